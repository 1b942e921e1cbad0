"""The table of methods against torch's own signatures, and refusals against Python's words."""

from __future__ import annotations

import ast
import importlib
import inspect

import pytest
import torch

from amplint.amp.names import MEMBERS
from amplint.amp.signatures import METHODS, no_method, refusal
from amplint.code.arguments import passed

CALLS = (
    "update(scale=1.0)",
    "update(1.0, 2.0)",
    "update(1.0, new_scale=2.0)",
    "scale()",
    "scale(loss=1)",
    "scale(1, 2)",
    "scale(1, outputs=1)",
    "unscale_()",
    "unscale_(optimizer, 1)",
    "unscale_(model=1)",
    "step()",
    "step(optim=optimizer)",
    "get_scale(1)",
    "is_enabled(True)",
    "state_dict(prefix='')",
    "load_state_dict({}, strict=False)",
    "set_growth_interval()",
)


def test_the_table_has_torchs_methods_and_their_parameters() -> None:
    methods = inspect.getmembers(torch.amp.GradScaler, inspect.isfunction)
    public = {name: found for name, found in methods if not name.startswith("_")}
    assert set(METHODS) == set(public)
    for name, found in public.items():
        every = list(inspect.signature(found).parameters.values())[1:]
        plain = [item for item in every if item.kind is item.POSITIONAL_OR_KEYWORD]
        required = tuple(item.name for item in plain if item.default is item.empty)
        assert METHODS[name].required == required
        assert METHODS[name].optional == tuple(item.name for item in plain)[len(required) :]
        assert METHODS[name].takes_more == (len(plain) < len(every))


@pytest.mark.parametrize("call", CALLS)
def test_a_refusal_is_what_python_says(call: str) -> None:
    space = {
        "scaler": torch.amp.GradScaler("cpu"),
        "optimizer": torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0),
    }
    node = ast.parse(call, mode="eval").body
    assert isinstance(node, ast.Call)
    assert isinstance(node.func, ast.Name)
    words = refusal(node.func.id, passed(node))
    assert words
    with pytest.raises(TypeError) as raised:
        eval(f"scaler.{call}", space)
    assert str(raised.value) == f"GradScaler.{node.func.id}() {words}"


@pytest.mark.parametrize(
    "call",
    [
        "update()",
        "update(2.0)",
        "update(new_scale=2.0)",
        "step(optimizer, *more)",
        "step(optimizer, closure)",
        "step(optimizer, closure=None)",
        "scale(outputs=loss)",
        "scale(*losses)",
        "unscale_(**words)",
        "load_state_dict(state)",
    ],
)
def test_nothing_is_refused_that_may_be_right(call: str) -> None:
    node = ast.parse(call, mode="eval").body
    assert isinstance(node, ast.Call)
    assert isinstance(node.func, ast.Name)
    assert refusal(node.func.id, passed(node)) == ""


@pytest.mark.parametrize("module", sorted(MEMBERS))
def test_the_names_of_torchs_modules(module: str) -> None:
    found = vars(importlib.import_module(module))
    assert MEMBERS[module] == {name for name in found if not name.startswith("_")}


@pytest.mark.parametrize(
    ("name", "meant"),
    [("unscale", ("unscale_",)), ("scaler", ("scale",)), ("frobnicate", ()), ("_scale", None)]
    + [(name, None) for name in METHODS],
)
def test_no_method_of_a_scaler(name: str, meant: tuple[str, ...] | None) -> None:
    assert no_method(name) == meant
    if meant is not None:
        assert not hasattr(torch.amp.GradScaler("cpu"), name)
