"""What a test says of gradients that are inf, held against what it says when it runs."""

from __future__ import annotations

import ast
import math
import textwrap

import pytest
import torch

from amplint.amp.overflows import at_overflow
from amplint.code.definitions import returned
from amplint.view import view_of

HELPERS = """
import math
import torch


def finite(tensors):
    for tensor in tensors:
        if not torch.isfinite(tensor).all():
            return False
    return True


def size(model):
    total = 0.0
    for parameter in model.parameters():
        if parameter.grad is not None:
            total += parameter.grad.norm() ** 2
    return total ** 0.5


def is_odd(number):
    return math.isinf(number) or math.isnan(number)


"""
DECIDED = (
    "return not torch.isfinite(size(model))",
    "return is_odd(float(size(model)))",
    "return finite(item.grad for item in model.parameters())",
    "return finite([item.grad for item in model.parameters()])",
    "return any(item.grad.isinf().any() for item in model.parameters())",
    "return torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).isfinite().item()",
    "return size(model) == float('inf')",
    "return size(model) != math.inf and True",
    "return bool(torch.isnan(size(model)) | torch.isinf(size(model)))",
    """
    broken = False
    for item in model.parameters():
        broken |= bool(torch.isinf(item.grad).any())
    return broken
    """,
    """
    fine = True
    for item in model.parameters():
        fine = fine and bool(torch.isfinite(item.grad).all())
    return fine
    """,
    """
    broken = False
    for item in model.parameters():
        if item.grad is None:
            continue
        if torch.isinf(item.grad).any():
            broken = True
    return broken
    """,
)
#: Of these an overflow decides nothing, or what else decides is not in the text.
OPEN = (
    "return torch.isnan(size(model))",
    "return any(torch.isnan(item.grad).any() for item in model.parameters())",
    "return torch.isinf(loss)",
    "return torch.isinf(torch.autograd.grad(loss, [model.weight])[0]).any()",
    "return all(torch.isfinite(item).all() for item in model.parameters())",
    "return loss.item() > 1 or not torch.isfinite(loss)",
    "return torch.isinf(size(model)) and loss.item() > 1",
    "return size(model) > 100",
)


def _function(body: str) -> str:
    return HELPERS + "def case(model, loss):\n" + textwrap.indent(textwrap.dedent(body), "    ")


def _answer(source: str) -> bool | None:
    view = view_of("case.py", source, ast.parse(source))
    function = next(item for item in view.module.functions if item.name == "case")
    return at_overflow(view, returned(function)[-1], function)


def _with_overflow() -> torch.nn.Module:
    model = torch.nn.Linear(2, 1)
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, math.inf)
    return model


@pytest.mark.parametrize("body", DECIDED)
def test_what_an_overflow_decides_is_what_python_says(body: str) -> None:
    space: dict[str, object] = {}
    exec(_function(body), space)  # noqa: S102 - written above
    said = space["case"](_with_overflow(), torch.tensor(0.5))  # type: ignore[operator]
    assert _answer(_function(body)) is bool(said)


@pytest.mark.parametrize("body", OPEN)
def test_what_it_does_not_decide_is_open(body: str) -> None:
    assert _answer(_function(body)) is None
