"""Which method of a class has run before another one: nothing else sets what that one uses.

`train_epoch` reads `self.model`, and only `setup` sets it: whoever calls `train_epoch` has called
`setup`, or gets an `AttributeError`. What `setup` does to the scaler holds in `train_epoch`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.code.arguments import receiver_of
from amplint.code.expressions import path_text
from amplint.code.layout import LOOPS, layout_of
from amplint.code.module import Class, Function
from amplint.code.unbound import always_runs
from amplint.flow.program import Program

#: Methods are followed through this many calls.
_DEPTH = 4


def setup_method(
    program: Program, function: Function, owner: Class, later: list[Function]
) -> Function | None:
    """The one method that alone sets something that a method of a class surely uses.

    Args:
        owner: the class of the object.
        later: methods that may run when the constructor is over.
    """
    run = dict.fromkeys(_runs(program, function, owner))
    own = {name for method in run for name in program.facts(method).self_stores}
    names = dict.fromkeys(name for method in run for name in sorted(_reads(method) - own))
    for name in names:
        setters = [
            place
            for item in program.ancestry(owner)
            for place, _ in program.objects.stores(item, name)
        ]
        is_alone = len(setters) == 1 and setters[0] in later and setters[0] not in run
        if is_alone and function not in _runs(program, setters[0], owner):
            return setters[0]
    return None


def _runs(
    program: Program, function: Function, owner: Class, depth: int = _DEPTH
) -> Iterator[Function]:
    """A method, and those of the same object that every run of it calls, in order."""
    yield function
    for node in _certain(function) if depth else ():
        if isinstance(node, ast.Call) and _is_own(node.func, function):
            assert isinstance(node.func, ast.Attribute)
            called = program.find_method(owner, node.func.attr)
            if called is not None and called is not function:
                yield from _runs(program, called, owner, depth - 1)


def _reads(function: Function) -> set[str]:
    """Attributes of its object that every run of a method reads."""
    return {
        node.attr
        for node in _certain(function)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Load)
        and _is_own(node, function)
    }


def _certain(function: Function) -> Iterator[ast.AST]:
    """The nodes of a method that no branch leaves out; its loops are taken to run."""
    layout = layout_of(function)
    for node in layout.nodes:
        if isinstance(node, (ast.Attribute, ast.Call)) and always_runs(layout, node):
            outer = layout.leaves_out(layout.statement(node))
            while isinstance(outer, LOOPS):
                outer = layout.leaves_out(outer)
            if outer is function.node:
                yield node


def _is_own(node: ast.expr, function: Function) -> bool:
    own = receiver_of(function)
    return bool(own) and isinstance(node, ast.Attribute) and path_text(node.value) == own
