"""Which dtypes an autocast may have that asks the machine for bfloat16.

On a GPU `torch.cuda.is_bf16_supported()` is true since torch 2.3, which counts emulation, and false
without one (torch/cuda/__init__.py). An autocast for CUDA does nothing without a GPU.
"""

from __future__ import annotations

import ast

import pytest

from amplint.code.project import Project
from amplint.regions.regions import Regions
from amplint.values.objects import Objects
from amplint.values.values import Values

PROGRAM = """
import torch
from torch import autocast
from torch.cuda import is_bf16_supported

WIDE, NARROW = torch.bfloat16, torch.float16

def chosen():
    if torch.cuda.is_available() and torch.cuda.is_bf16_supported():
        return WIDE
    return NARROW

def where(half=False):
    {statement}
    {expression}
"""
WIDE, NARROW = ["bfloat16"], ["float16"]
BOTH = WIDE + NARROW
#: A statement before an autocast, the autocast, and the dtypes that it may have.
CASES = [
    ("x = WIDE if torch.cuda.is_bf16_supported() else NARROW", "autocast('cuda', dtype=x)", WIDE),
    ("x = NARROW if not is_bf16_supported() else WIDE", "autocast('cuda', x)", WIDE),
    ("x = chosen()", "autocast('cuda', dtype=x)", WIDE),
    ("x = chosen()", "torch.cuda.amp.autocast(True, x)", WIDE),
    ("x = chosen()", "autocast('cuda', dtype=x, enabled=not half)", WIDE),
    ("x = chosen()", "autocast('cpu', dtype=x)", BOTH),
    ("x = WIDE if half or is_bf16_supported() else NARROW", "autocast('cuda', dtype=x)", WIDE),
    ("x = NARROW if half or not is_bf16_supported() else WIDE", "autocast('cuda', x)", BOTH),
    (
        "x = WIDE if torch.cuda.is_bf16_supported(including_emulation=False) else NARROW",
        "autocast('cuda', dtype=x)",
        BOTH,
    ),
]


@pytest.mark.parametrize(("statement", "expression", "expected"), CASES)
def test_an_autocast_for_cuda_is_asked_about_on_a_gpu(
    statement: str, expression: str, expected: list[str]
) -> None:
    text = PROGRAM.format(statement=statement, expression=expression)
    project = Project()
    module = project.add("program.py", text, ast.parse(text), "")
    (function,) = [item for item in module.functions if item.name == "where"]
    last = function.body[-1]
    assert isinstance(last, ast.Expr)
    objects = Objects(project)
    (cast,) = Regions(objects, Values(objects)).contexts.alternatives(last.value, function)
    assert cast is not None
    assert sorted(cast.dtypes or ()) == expected
