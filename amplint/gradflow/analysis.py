"""Training functions whose losses do not reach what they train."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from amplint.amp.ownership import trained_modules
from amplint.amp.view import AmpView
from amplint.code.module import Function
from amplint.findings import Link, Standing
from amplint.gradflow.interpreter import Backward, Interpreter
from amplint.gradflow.values import ANYTHING, LEAF, Block

_BACKWARDS = frozenset(("backward", "manual_backward"))
#: Most losses are seen to reach something in so many assignments: `loss = f(out)`, `out = net(x)`.
_NEAR = 2


@dataclass(frozen=True, slots=True, eq=False)
class CutOff:
    """A loss that does not reach a module, or nothing at all.

    Args:
        function: the training function.
        backward: the backward of that loss.
        block: what stands in between.
        root: the module, as the function writes it; "" where the loss reaches nothing.
    """

    function: Function
    backward: Backward
    block: Block
    root: str = ""

    @property
    def links(self) -> tuple[Link, ...]:
        """What is trained, and that the gradient stops."""
        loss = self.backward.node.func
        if isinstance(loss, ast.Attribute):
            loss = loss.value
        subject = self.root or ast.unparse(loss)
        claim = "is what the optimizer owns" if self.root else "is backpropagated"
        return (
            Link("object", Standing.CODE, subject, claim),
            Link("effect", Standing.CODE, ast.unparse(self.block.node), "cuts the graph"),
        )


def cut_off(view: AmpView) -> Iterator[CutOff]:
    """All of them in one file."""
    functions = dict.fromkeys(
        site.function for site in view.module.calls if site.method in _BACKWARDS
    )
    for function in filter(view.is_judged, functions):
        roots = trained_modules(view, function)
        for steps in (_NEAR, None):
            interpreter = Interpreter(view.objects, roots, steps)
            interpreter.follow(function)
            if interpreter.gave_up or _reach_all(function, interpreter):
                break
        else:
            yield from _of_function(function, interpreter)


def _reach_all(function: Function, interpreter: Interpreter) -> bool:
    """Whether each loss of a function reaches something, and together they reach all roots."""
    reached = [item.loss.connected for item in interpreter.backwards if item.function is function]
    return all(item - {LEAF} for item in reached) and {*interpreter.roots} <= {
        root for item in reached for root in item
    }


def _of_function(function: Function, interpreter: Interpreter) -> Iterator[CutOff]:
    backwards = interpreter.backwards
    reported: set[ast.AST] = set()
    for backward in backwards:
        block = backward.loss.blocked.get(ANYTHING)
        if block is None or backward.loss.connected - {LEAF} or backward.function is not function:
            continue
        if backward.node not in reported:
            reported.add(backward.node)
            yield CutOff(function, backward, block)
    if reported:
        return
    connected = {root for backward in backwards for root in backward.loss.connected}
    for root in interpreter.roots:
        blocked = (item for item in backwards if root in item.loss.blocked)
        first = next(blocked, None)
        if first is not None and root not in connected:
            yield CutOff(function, first, first.loss.blocked[root], root)
