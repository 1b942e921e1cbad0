"""Training functions whose losses do not reach what they train."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from amplint.amp.grad_modes import OFF, chosen, switched
from amplint.amp.ownership import names_optimizer_class, steps_its_own, trained_modules
from amplint.amp.view import AmpView
from amplint.code.arguments import parameters
from amplint.code.dataflow import bindings_of
from amplint.code.expressions import last_name, path_text
from amplint.code.layout import layout_of
from amplint.code.module import CallSite, Function, walk
from amplint.findings import Link, Standing
from amplint.gradflow.copies import copies_handed_over
from amplint.gradflow.frame import Backward
from amplint.gradflow.interpreter import Interpreter
from amplint.gradflow.values import ANYTHING, LEAF, Block, Flow
from amplint.values.assumptions import may_run
from amplint.values.conditions import conditions_at
from amplint.values.provenance import Origin

_BACKWARDS = frozenset(("backward", "manual_backward"))
#: Through so many functions more a backward is looked for behind a call beside a step.
_CALLS = 1
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
    for function, handed in _entries(view):
        if not view.is_judged(function):
            continue
        roots = trained_modules(view, function)
        for limit in (None,) if handed else (_NEAR, None):
            made = _made_for(view, function, roots) if limit is None else {}
            values = view.values if limit is None else None
            interpreter = Interpreter(view.objects, roots, limit, made, values=values)
            interpreter.follow(function, handed)
            if interpreter.gave_up:
                break
            yield from _of_handed(view, function, interpreter) if handed else ()
            if _reach_all(function, interpreter):
                break
        else:
            yield from _of_function(view, function, interpreter)
        yield from _of_choices(view, function, roots)


def _entries(view: AmpView) -> Iterator[tuple[Function, frozenset[ast.stmt]]]:
    """The functions of the file that run a backward, or hand copies to one that does.

    Yields:
        each with the statements that hand copies over, if it is asked about these.
    """
    training = _training(view)
    for function in view.module.functions:
        handed = [
            call for call in copies_handed_over(function) if _runs_backward(view, call, function, 0)
        ]
        if function in training:
            yield function, frozenset()
        if handed:
            statement = layout_of(function).statement
            yield function, frozenset(statement(call) for call in handed)


def _training(view: AmpView) -> dict[Function, None]:
    """The functions of a file that run a backward, and those that lead to one elsewhere.

    These step, or build an optimizer for whoever does.
    """
    calls = view.module.calls
    found = dict.fromkeys(site.function for site in calls if site.method in _BACKWARDS)
    stepping = {site.function for site in calls if site.method == "step" or _builds(site)}
    stepping -= found.keys()
    for site in calls if stepping else ():
        if site.function in stepping and _runs_backward(view, site.node, site.function, _CALLS):
            found[site.function] = None
    return found


def _builds(site: CallSite) -> bool:
    """Whether a call builds an optimizer inside a function."""
    is_inside = site.function is not site.function.module.body
    return is_inside and names_optimizer_class(site.node.func, site.function)


def _runs_backward(view: AmpView, call: ast.Call, function: Function, depth: int) -> bool:
    """Whether a call runs a function of the project that holds a backward.

    Args:
        depth: through so many functions more that it calls.
    """
    callee = view.objects.callee(call, function)
    if callee is None:
        return False
    inner = [node for node in callee.nodes if isinstance(node, ast.Call)]
    if any(last_name(node.func) in _BACKWARDS for node in inner):
        return True
    return depth > 0 and any(_runs_backward(view, node, callee, depth - 1) for node in inner)


def _of_choices(view: AmpView, function: Function, roots: list[str]) -> Iterator[CutOff]:
    """The same where one test chooses the region of the forward, and whether a backward runs.

    `with autocast() if scaler else no_grad():`, and then `else: loss.backward()`.
    """
    for test, side in _sides_without_gradients(function):
        interpreter = Interpreter(view.objects, roots, made={}, assumed={ast.unparse(test): side})
        interpreter.follow(function)
        if interpreter.gave_up:
            continue
        for item in interpreter.backwards:
            block = item.loss.blocked.get(ANYTHING)
            if block is None or item.loss.connected - {LEAF} or item.function is not function:
                continue
            if _runs_on(test, side, item, block) and may_run(view.values, item.node, item.function):
                yield CutOff(function, item, block)


def _sides_without_gradients(function: Function) -> Iterator[tuple[ast.expr, bool]]:
    """The tests that choose between regions, each with its side that switches gradients off."""
    for node in function.nodes:
        for item in node.items if isinstance(node, (ast.With, ast.AsyncWith)) else ():
            choice = chosen(item.context_expr, function)
            if choice is None:
                continue
            for side, entered in ((True, choice.body), (False, choice.orelse)):
                if switched(entered, function.module) in OFF:
                    yield choice.test, side


def _runs_on(test: ast.expr, side: bool, backward: Backward, block: Block) -> bool:
    """Whether a backward runs only where a test has one outcome, which nothing changes before."""
    conditions = conditions_at(backward.node, backward.function)
    if not any(_agrees(item.test, item.side, test, side) for item in conditions):
        return False
    layout = layout_of(backward.function)
    parts = (part for part in walk(test) if isinstance(part, ast.expr))
    names = {path for part in parts if (path := path_text(part)) is not None}
    bound = bindings_of(backward.function)
    changes = [item.statement for name in names for item in bound.get(name, ())]
    outermost = (layout.loops(block.node) or [layout.statement(block.node)])[-1]
    return all(layout.before(change, outermost) for change in changes)


def _agrees(first: ast.expr, side: bool, second: ast.expr, other: bool) -> bool:
    """Whether one test came out on a side exactly where another one came out on its own."""
    while isinstance(first, ast.UnaryOp) and isinstance(first.op, ast.Not):
        first, side = first.operand, not side
    while isinstance(second, ast.UnaryOp) and isinstance(second.op, ast.Not):
        second, other = second.operand, not other
    return side is other and ast.unparse(first) == ast.unparse(second)


def _made_for(view: AmpView, function: Function, roots: list[str]) -> dict[str, Flow]:
    """What parameters are connected to that callers made of a module which is owned here.

    `train(net, DistributedDataParallel(net), Adam(net.parameters()))`: both run its parameters.
    """
    names = [name for name in parameters(function) if name not in roots]
    owned = {root: _whole(view, root, function) for root in roots} if names else {}
    found = {}
    for name in names:
        parts = _parts(view, name, function)
        reached = {root for root, wholes in owned.items() if parts & wholes}
        if reached:
            found[name] = Flow(frozenset({*reached, ANYTHING}))
    return found


def _whole(view: AmpView, path: str, function: Function) -> set[tuple[str, Function]]:
    """The places of other functions whose value an expression of this one has."""
    return {
        (text, item.function)
        for item in _aliases(view, path, function)
        if (text := path_text(item.expression)) is not None
    }


def _parts(view: AmpView, path: str, function: Function) -> set[tuple[str, Function]]:
    """The places of other functions that the value of an expression was made of."""
    return {
        (text, item.function)
        for item in _aliases(view, path, function)
        for node in walk(item.expression)
        if (text := path_text(node)) is not None
    }


def _aliases(view: AmpView, path: str, function: Function) -> Iterator[Origin]:
    read = ast.parse(path, mode="eval").body
    found = view.values.origins.aliases(read, function)
    return (item for item in found if item.function is not function)


def _reach_all(function: Function, interpreter: Interpreter) -> bool:
    """Whether each loss of a function reaches something, and together they reach all roots."""
    losses = [item.loss for item in interpreter.backwards if item.function is function]
    return not any(map(_may_be_cut, losses)) and {*interpreter.roots} <= {
        root for item in losses for root in item.connected
    }


def _may_be_cut(loss: Flow) -> bool:
    """Whether a loss reaches nothing, or what it reaches may be the number that it is divided by."""
    reached = loss.connected - {LEAF}
    block = loss.blocked.get(ANYTHING)
    return not reached or (reached == {ANYTHING} and block is not None and bool(block.kind))


def _of_function(view: AmpView, function: Function, interpreter: Interpreter) -> Iterator[CutOff]:
    backwards = [
        item for item in interpreter.backwards if may_run(view.values, item.node, item.function)
    ]
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
    # A function that is called and steps trains what its own optimizer owns, on features of ours.
    own = [
        item
        for item in backwards
        if item.function is function or not _is_judged_alone(view, item.function)
    ]
    for root in interpreter.roots:
        blocked = (item for item in own if root in item.loss.blocked)
        first = next(blocked, None)
        if first is not None and root not in connected:
            yield CutOff(function, first, first.loss.blocked[root], root)


def _is_judged_alone(view: AmpView, function: Function) -> bool:
    """Whether a function that steps has a module of its own optimizer, or names one that it gets."""
    return steps_its_own(function) or bool(trained_modules(view, function))


def _of_handed(view: AmpView, function: Function, interpreter: Interpreter) -> Iterator[CutOff]:
    """Copies that a function makes, and a function that it calls runs a backward on."""
    for backward in interpreter.backwards:
        block = backward.loss.blocked.get(ANYTHING)
        if block is None or block.by_mode or block.function is not function:
            continue
        is_direct = len(backward.calls) == 1 and not backward.loss.connected - {LEAF}
        if is_direct and may_run(view.values, backward.node, backward.function):
            yield CutOff(function, backward, block)
