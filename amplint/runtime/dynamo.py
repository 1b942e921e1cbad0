"""Keeping torch.compile away from frames of amplint's own; private names of torch, with fallbacks."""

from __future__ import annotations

import sys
from typing import Any

import torch


def keep_from_dynamo(*functions: Any) -> None:
    """Never compile these frames, nor trace into them; what they call is compiled as before.

    The last one may be traced: it has to ask `torch.compiler.is_compiling` first.
    """
    for function in functions[:-1]:
        function._torchdynamo_disable = True
    try:
        from torch._C._dynamo import eval_frame

        action = eval_frame._FrameAction
        strategy = eval_frame._FrameExecStrategy(action.SKIP, action.DEFAULT)
        for function in functions:
            eval_frame.set_code_exec_strategy(function.__code__, strategy)
    except (ImportError, AttributeError, TypeError):
        return  # another torch: its compiled programs may see our frames


def has_compiled() -> bool:
    """Whether anything of this process was compiled; where nobody can tell, yes."""
    module = sys.modules.get("torch._dynamo.convert_frame")
    return module is not None and getattr(module, "FRAME_COUNTER", 1) > 0


def _no_eval_frame(_callback: Any) -> None:
    """Where torch has no such function."""


#: With None, no frame of amplint's is compiled; returns what was set before.
set_eval_frame = getattr(
    getattr(torch._C._dynamo, "eval_frame", None), "set_eval_frame", _no_eval_frame
)
