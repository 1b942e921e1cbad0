"""One activation of a function while its gradients are followed, what its places hold, its backwards."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from amplint.code.arguments import Bound, Kind, parameters
from amplint.code.dataflow import changed_elsewhere, root_of
from amplint.code.expressions import path_text
from amplint.code.module import Function
from amplint.gradflow.bearing import Bearing
from amplint.gradflow.values import Block, Flow, Value, join


@dataclass(frozen=True, slots=True, eq=False)
class Backward:
    """A backward that the analysis met.

    Args:
        loss: what it starts from.
        node: the call.
        function: the function that holds the call.
        calls: the calls that lead into that function.
    """

    loss: Flow
    node: ast.Call
    function: Function
    calls: tuple[tuple[ast.Call, Function], ...]


@dataclass(slots=True, eq=False)
class Frame:
    """One activation of a function.

    Args:
        values: what names and paths hold.
        bearing: the statements that count.
        mode: the block that switches gradients off here, None where they are on.
        calls: the calls that lead here.
        returned: the joined values of the return statements so far.
        written: paths of the tensors that a call has written into.
        left: what places hold where branches leave the innermost loop's round, or the function.
    """

    function: Function
    values: dict[str, Value]
    bearing: Bearing
    mode: Block | None = None
    calls: tuple[tuple[ast.Call, Function], ...] = ()
    returned: Value | None = None
    written: set[str] = field(default_factory=set)
    left: list[dict[str, Value]] = field(default_factory=list)


def write(path: str, value: Value, frame: Frame) -> None:
    """Note that a call has written into a tensor, a part of which may stay what it was."""
    hold(path, join(frame.values.get(path), value), frame)
    frame.written.add(path)


def hold(path: str, value: Value, frame: Frame) -> None:
    """Note what a place holds, unless code outside the function may change it at any time."""
    changed = changed_elsewhere(frame.function)
    if changed and (root_of(path) in changed or any(_is_of(path, place) for place in changed)):
        frame.values.pop(path, None)
    else:
        frame.values[path] = value


def _is_of(path: str, place: str) -> bool:
    """Whether a path is a place or a part of it."""
    return path == place or path.startswith((place + ".", place + "["))


def renamed(values: dict[str, Value], path: str, word: str) -> dict[str, Value]:
    """What is known about parts of an argument, under the name of the parameter."""
    parts = (path + ".", path + "[")
    return {
        word + key[len(path) :]: value for key, value in values.items() if key.startswith(parts)
    }


def called_on(call: ast.Call, callee: Function) -> str:
    """The path of the object whose method a call runs: `net` of `net(x)` and of `net.loss(x)`."""
    func = call.func
    if isinstance(func, ast.Attribute) and func.attr == callee.name:
        func = func.value
    return path_text(func) or ""


def sources(bound: Bound, callee: Function) -> dict[str, tuple[ast.expr, ...]]:
    """What each parameter of a called function may be made of, the receiver aside."""
    found = {name: (value,) for name, value in bound.given.items()} | dict(bound.unknown)
    for item in parameters(callee).values():
        if item.kind is Kind.REST and bound.rest is not None:
            found[item.name] = bound.rest
        elif item.kind is Kind.WORDS:
            found[item.name] = (*bound.words.values(), *found.get(item.name, ()))
    return {name: found.get(name, ()) for name in parameters(callee) if name != bound.receiver}


def base_cut(source: Flow, kind: str, node: ast.expr, frame: Frame) -> Flow:
    """A value behind a detaching operation.

    What is a number already, as a log needs it, becomes a tensor without a graph here.
    """
    block = Block(kind, node, frame.function, frame.calls)
    if kind != "tensor" or source.connected:
        return source.cut(block)
    blocked = {root: old if old.by_mode else block for root, old in source.blocked.items()}
    return Flow(frozenset(), blocked)


def own(values: dict[str, Value]) -> dict[str, Value]:
    return {path: value for path, value in values.items() if path.startswith("self.")}


def running(frame: Frame) -> list[Function]:
    return [frame.function, *(function for _, function in frame.calls)]
