"""What functions that no name in sight tells do: given participants, given functions, looked up.

`def finish(first, second): first.step(second)`: no name and no annotation tells what `first` is;
the call does. `def told(listener, owner): listener(owner.optimizer)` runs whatever it is given.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from amplint.code.arguments import bind
from amplint.code.by_name import matching, pattern_of
from amplint.code.module import Function
from amplint.flow.call import callee_name
from amplint.flow.facts import EVENT_WORDS
from amplint.flow.program import Program
from amplint.flow.slice import is_for_effect

#: What the given participant is -> methods that change what is known about it.
USES: Mapping[str, AbstractSet[str]] = {
    "scaler": frozenset({"scale", "unscale_", "step", "update"}),
    "optimizer": frozenset({"step", "zero_grad"}),
}
#: What is given may be a function that reaches the protocol.
CALLED = "called"
#: Calls are followed through this many functions.
DEPTH = 3


def may_use(
    program: Program, function: Function, given: Mapping[str, str], depth: int = DEPTH
) -> bool:
    """Whether a function, or one that it calls, uses a participant under a parameter's name.

    Args:
        given: parameter -> what is passed: "scaler", "optimizer", or `CALLED`.
    """
    return bool(given) and any(
        _is_use(node, given)
        or _runs(program, node, function, given)
        or _hands_on(program, node, function, given, depth)
        for node in function.nodes
        if isinstance(node, ast.Call)
    )


def _is_use(call: ast.Call, given: Mapping[str, str]) -> bool:
    """`first.step(...)` of a parameter."""
    callee = call.func
    if not isinstance(callee, ast.Attribute) or not isinstance(callee.value, ast.Name):
        return False
    return callee.attr in USES.get(given.get(callee.value.id, ""), ())


def _runs(program: Program, call: ast.Call, function: Function, given: Mapping[str, str]) -> bool:
    """`first(...)` of a parameter that may be a function with protocol calls."""
    callee = call.func
    if not isinstance(callee, ast.Name) or given.get(callee.id) != CALLED:
        return False
    found = program.targets(call, function).functions
    if not found:
        return is_for_effect(call, function)
    return any(program.facts(item).interesting for item in found)


def _hands_on(
    program: Program, call: ast.Call, function: Function, given: Mapping[str, str], depth: int
) -> bool:
    """Whether a call passes a participant to a function that may use it."""
    if not depth or callee_name(call) == function.name:
        return False
    passed = [*call.args, *(word.value for word in call.keywords)]
    if not any(isinstance(item, ast.Name) and item.id in given for item in passed):
        return False
    for target in program.targets(call, function).functions:
        filled = bind(call, target, on_object=True).given
        inner = {
            name: given[item.id]
            for name, item in filled.items()
            if isinstance(item, ast.Name) and item.id in given
        }
        if may_use(program, target, inner, depth - 1):
            return True
    return False


def may_look_up(program: Program, whole: ast.expr, name: ast.expr, function: Function) -> bool:
    """Whether `getattr(whole, name)` may give a function of the project with events.

    The name is not known, or not all of it: `f"on_{moment}"`.
    """
    if isinstance(name, ast.Constant) or function.module.resolve(whole) is not None:
        return False
    reach = program.unit(function).reach
    return any(EVENT_WORDS & reach[found] for found in matching(pattern_of(name), reach))
