"""AMP501 warns where torch's gradients differ between a backward inside a region and behind it."""

from __future__ import annotations

import ast

import pytest
import torch
from amplint.rules import load

from amplint.findings import Severity
from amplint.view import view_of

PROGRAM = """
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(1)


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        with torch.autocast("cpu", enabled=False):
            return x.float() @ w

    @staticmethod
    def backward(ctx, grad):
        x, w = ctx.saved_tensors
        return grad @ w.t(), x.float().t() @ grad


class Aware(Product):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx, grad):
        x, w = ctx.saved_tensors
        return grad @ w.t(), x.t() @ grad


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad * ctx.saved_tensors[0]


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(32, 32)

    def forward(self, x):
        with torch.autocast("cpu", enabled=False):
            return self.layer(x.float())


def normed(x):
    with torch.autocast("cpu", enabled=False):
        return F.layer_norm(x.float(), (32,))


def multiplied(x):
    with torch.autocast("cpu", enabled=False):
        return F.linear(x.float(), weight)


body, head, other = nn.Linear(32, 32), Head(), nn.Linear(32, 32)
weight = nn.Parameter(torch.randn(32, 32) / 6)
both, lstm = nn.Bilinear(32, 32, 4), nn.LSTM(32, 32)
x = torch.randn(64, 32)
parameters = [*body.parameters(), *head.parameters(), *both.parameters(), weight]


def step():
    {before}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        {first}
        loss = ({inside}).float().square().mean()
        loss.backward()


def behind():
    {before}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        {first}
        loss = ({inside}).float().square().mean()
    loss.backward()
"""

#: Name -> the statement before the region, the output inside it, whether gradients differ.
CASES = {
    "layers": ("y = x", "F.layer_norm(body(y), (32,)) @ weight", False),
    "a float32 layer of a class": ("y = x", "head(body(y))", True),
    "a float32 norm": ("y = x", "normed(body(y))", False),
    "a float32 product": ("y = x", "multiplied(body(y))", True),
    "computed before": ("y = body(x)", "torch.sin(y)", True),
    "inputs before": ("y = x * 2", "body(y)", False),
    "function without custom_bwd": ("y = x", "Product.apply(body(y), weight)", True),
    "function with custom_bwd": ("y = x", "Aware.apply(body(y), weight)", False),
    "elementwise function": ("y = x", "Square.apply(body(y)) @ weight", False),
    "distances": ("y = x", "torch.cdist(body(y), x)", True),
    "bilinear": ("y = x", "both(y, x)", True),
    "recurrent": ("y = x", "lstm(body(y))[0]", False),
}


#: Name -> the first statement of the region, the output, whether gradients differ.
FIRST = {
    "only recorded": ("far = torch.cdist(body(x), x).max().item()", "body(x)", False),
    "only printed": ("print(torch.cdist(body(x), x).shape)", "body(x)", False),
    "put into a list": ("parts = []; parts.append(torch.cdist(body(x), x))", "parts[0]", True),
    "under two names": ("far = torch.cdist(body(x), x); near = far + 1", "near * 2", True),
    "added in place": (
        "total = body(x).sum(); total += torch.cdist(body(x), x).sum()",
        "total",
        True,
    ),
    "taken from a loop": ("for total in [torch.cdist(body(x), x)]: pass", "total", True),
}


def gradients(source: str, name: str) -> list[torch.Tensor]:
    scope: dict = {}
    exec(source, scope)  # noqa: S102
    scope[name]()
    return [item.grad for item in scope["parameters"] if item.grad is not None]


@pytest.mark.parametrize(("before", "inside", "differs"), CASES.values(), ids=CASES)
def test_severity_follows_the_gradients(before: str, inside: str, differs: bool) -> None:
    judge(before, "pass", inside, differs)


@pytest.mark.parametrize(("first", "inside", "differs"), FIRST.values(), ids=FIRST)
def test_what_the_loss_does_not_contain_does_not_count(
    first: str, inside: str, differs: bool
) -> None:
    judge("pass", first, inside, differs)


def judge(before: str, first: str, inside: str, differs: bool) -> None:
    """Run the program and ask amplint about it: both say whether gradients differ."""
    source = PROGRAM.replace("{before}", before).replace("{first}", first)
    source = source.replace("{inside}", inside)
    pairs = zip(gradients(source, "step"), gradients(source, "behind"), strict=True)
    assert differs is not all(torch.equal(one, two) for one, two in pairs)

    view = view_of("program.py", source, ast.parse(source))
    (finding,) = load("AMP501").check(view)
    assert finding.severity is (Severity.WARNING if differs else Severity.INFO)
