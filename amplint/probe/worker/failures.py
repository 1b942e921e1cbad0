"""Where an exception comes from, read from its traceback."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import FrameType

import torch

from amplint.probe.messages import Raised

TORCH = str(Path(torch.__file__).parent)
PROBE = str(Path(__file__).parent)
#: Where torch's C++, which has no frames, is called for the user's code.
CALLERS = frozenset(
    {(str(Path(PROBE) / "soft.py"), "call"), (str(Path(PROBE) / "banned.py"), "_refuse")}
)
#: Lines that are told of the way to an exception.
MOST_CALLS = 20
AMP = f"{TORCH}/amp/"
AUTOGRAD = f"{TORCH}/autograd/"


def frames_of(error: BaseException) -> list[tuple[FrameType, int]]:
    """Frames and rows of a traceback, outermost first."""
    found = []
    trace = error.__traceback__
    while trace is not None:
        found.append((trace.tb_frame, trace.tb_lineno))
        trace = trace.tb_next
    return found


def is_amp_failure(error: BaseException) -> bool:
    """Whether the exception was raised inside torch.amp or torch.autograd."""
    return _inside(error) in ("torch.amp", "torch.autograd")


def describe(error: BaseException, is_mine: Callable[[str], bool]) -> Raised:
    """The exception with the user's innermost line."""
    lines = [(frame.f_code.co_filename, line) for frame, line in frames_of(error)]
    calls = tuple(line for line in lines if is_mine(line[0]))
    filename, row = calls[-1] if calls else ("", 0)
    name = type(error).__name__
    return Raised(name, str(error)[:2000], _inside(error), filename, row, calls[-MOST_CALLS:])


def _inside(error: BaseException) -> str:
    files = [frame.f_code.co_filename for frame, _ in frames_of(error)]
    if any(name.startswith(AMP) for name in files):
        return "torch.amp"
    if any(name.startswith(AUTOGRAD) for name in files):
        return "torch.autograd"
    innermost = files[-1] if files else ""
    if innermost.startswith(TORCH) or _is_call(error):
        return "torch"
    if innermost.startswith(PROBE):
        return "probe"
    return "user"


def _is_call(error: BaseException) -> bool:
    """Whether torch's C++ raised it where the probe calls it for the user's code."""
    code = frames_of(error)[-1][0].f_code
    return (code.co_filename, code.co_name) in CALLERS
