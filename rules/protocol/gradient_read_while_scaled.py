"""# gradient-read-while-scaled (AMP111)

Gradients are read while they are still multiplied by the loss scale.

## What it does
Flags a gradient norm that is computed between the scaled backward and `unscale_` or `step` and then
compared with a threshold (as advice where it is only logged), a penalty on the result of
`torch.autograd.grad(scaler.scale(…))` that was not divided by the scale, and gradients that are
divided by `scaler.get_scale()` by hand before `scaler.step` divides them again.

## Why is this bad?
Between the backward and `unscale_` every gradient is 65536 times too large at first, and another
multiple after each change of the scale. A threshold then decides by the scale, not by the
gradients: in the example every batch is taken for an exploding one and nothing is trained. A
gradient penalty of 0.53 became 34671 in the measured case. Gradients divided by hand are divided
twice: 1.5e-5 of the update with SGD. Nothing is raised.

## Example
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
loader = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(4)]

for inputs, targets in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    scaler.scale(loss).backward()
    norm = torch.stack([parameter.grad.norm() for parameter in model.parameters()]).norm()
    if norm > 100.0:
        continue
    scaler.step(optimizer)
    scaler.update()
```

## Use instead
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
loader = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(4)]

for inputs, targets in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = torch.stack([parameter.grad.norm() for parameter in model.parameters()]).norm()
    if norm <= 100.0:
        scaler.step(optimizer)
    scaler.update()
```

## How it is confirmed
Executing the function with the scaler enabled and disabled: the value that is compared differs by
the loss scale, and so does the update.

## Fix safety
No fix is offered: `unscale_` may be called once per step only, and other lines may rely on the
scaled values.

## Known limits
One function has to hold the backward, the read and the step, or the calls of the functions that do
them; a called function that compares has to be given the size as it is. Tests for inf and NaN are right on scaled gradients and not flagged; neither is a function
that calls `get_scale()`, apart from the division by hand. Clipping is AMP110.

## References
- PyTorch, Automatic Mixed Precision examples: "Working with Unscaled Gradients", "Gradient penalty"
- `torch/amp/grad_scaler.py`: `GradScaler.unscale_`
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from amplint.amp import links
from amplint.amp.gradients import (
    FINITENESS,
    derived_names,
    enters_a_loss,
    is_measured,
    scale_change,
    scaler_of,
    words_of,
)
from amplint.amp.loop_invariants import is_loop_invariant
from amplint.amp.reached_calls import ScalerCall, calls_leading_to
from amplint.amp.scaler_calls import SHOWS, scaler_calls
from amplint.amp.scaling import scale_words
from amplint.code.dataflow import arguments, bindings_of, names_in, receiver
from amplint.code.definitions import returned
from amplint.code.expressions import last_name
from amplint.code.layout import Layout, layout_of
from amplint.findings import Finding, Link, PathStep, Severity, Standing
from amplint.rule import Rule
from amplint.view import FileView

RULE = Rule(
    code="AMP111",
    name="gradient-read-while-scaled",
    severity=Severity.WARNING,
    effect="silent",
    summary="scaled gradients compared, put into a penalty, or divided by hand before `step`",
    facts=("U14", "U15", "B22"),
    unprobed="what the scaled number decides depends on your data and thresholds",
)

RECORDS = SHOWS | {"append", "update"}
#: Words that show that the function takes care of the scale.
EXCUSES = frozenset(("get_scale", "_get_scale_async", "inv_scale"))
#: Gradients looked at in one function; what is followed from each costs its length.
MAX_READS = 40
#: Methods after which a number is as large as before.
UNCHANGED = frozenset(("item", "float", "detach", "cpu", "double"))
#: Through so many calls a size is followed to what compares it.
CALLS = 2
ORDERS = (ast.Gt, ast.GtE, ast.Lt, ast.LtE)

SCALED = "the gradients are still scaled: "
COMPARED = f"{SCALED}`{{name}}` is too large ({{scale}}) for the test on line {{row}}"
COMPARED_IN = f"{SCALED}`{{name}}` is too large ({{scale}}) for the test in `{{where}}`"
LOGGED = f"{SCALED}the `{{name}}` on record is too large ({{scale}})"
PENALTY = f"{SCALED}the penalty made of `{{name}}` is too large ({{scale}})"
DIVIDED = (
    "the gradients are divided by the scale here and again by `{scaler}.step`: too small ({scale})"
)


@dataclass(frozen=True, slots=True, eq=False)
class _Test:
    """A comparison with something fixed that a called function makes of what it is given.

    Args:
        name: what is given, in the words of the caller.
        where: the function that compares.
        path: the call, and the comparison.
    """

    name: str
    where: str
    path: tuple[PathStep, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Read:
    """A place where the size of gradients is taken.

    Args:
        node: `parameter.grad`, or the call of a function that returns such a size.
        gradient: `parameter.grad` itself, in whatever function.
        path: to the gradients in the called function.
    """

    node: ast.expr
    gradient: ast.expr
    path: tuple[PathStep, ...] = ()


def check(view: FileView) -> Iterator[Finding]:
    """Report reads of scaled gradients that something depends on."""
    direct = {site.function for site in scaler_calls(view, "scale", "step")}
    for function in view.module.functions:
        reach = view.program.facts(function).reach if view.program.knows(function) else set()
        if function not in direct and not reach >= {"scale", "step"}:
            continue
        layout = layout_of(function)
        words = words_of(layout.nodes)
        if "get_scale" in words:
            yield from _divisions(view, layout)
        elif not words & EXCUSES:
            yield from _penalties(view, layout)
            yield from _norms(view, layout)


def _norms(view: FileView, layout: Layout) -> Iterator[Finding]:
    """The first size of gradients taken between a scaled backward and the step, and used."""
    reads = list(itertools.islice(_reads(view, layout), MAX_READS))
    if not reads:
        return
    scales, steps = (
        list(calls_leading_to(view, method, layout.function)) for method in ("scale", "step")
    )
    scales.reverse()
    for read in reads:
        before = next((call for call in scales if _is_before(layout, call, read)), None)
        after = next((call for call in steps if layout.reaches(read.node, call.node)), None)
        if before is None or after is None or not after.given:
            continue
        if not _may_unscale(view, layout, before.node, read.node):
            found = _used(view, layout, read, before, after)
            if found is not None:
                yield found
                return


def _is_before(layout: Layout, scale: ScalerCall, read: _Read) -> bool:
    """Whether a loss is scaled before a read; one function may do both."""
    if scale.node is not read.node:
        return layout.reaches(scale.node, read.node)
    inner = layout_of(scale.function)
    return read.gradient in inner and inner.reaches(scale.method, read.gradient)


def _reads(view: FileView, layout: Layout) -> Iterator[_Read]:
    for node in layout.nodes:
        if isinstance(node, ast.Attribute) and node.attr == "grad":
            if is_measured(layout, node):
                yield _Read(node, node)
        elif isinstance(node, ast.Call) and _is_kept(layout, node):
            yield from _read_by_helper(view, layout, node)


def _is_kept(layout: Layout, call: ast.Call) -> bool:
    """Whether the result of a call is assigned or compared: others are not worth following."""
    return isinstance(layout.parents[call], (ast.Assign, ast.Compare, ast.AnnAssign))


def _read_by_helper(view: FileView, layout: Layout, call: ast.Call) -> Iterator[_Read]:
    """A call of a function that measures gradients and returns what it found."""
    helper = view.objects.callee(call, layout.function)
    if helper is None or helper.name == "__init__" or not returned(helper):
        return
    inner = layout_of(helper)
    words = words_of(inner.nodes)
    if "grad" not in words or words & (EXCUSES | FINITENESS | {"get_scale", "unscale_"}):
        return
    reads = (node for node in inner.nodes if getattr(node, "attr", "") == "grad")
    for node in reads:
        if is_measured(inner, node) and _is_returned(inner, node):
            called = view.step(call, layout.function.module, f"call of `{helper.name}`")
            words_of_read = f"`{helper.name}` measures `{view.source_of(node)}`"
            step = view.step(node, helper.module, words_of_read)
            yield _Read(call, node, (called, step))  # type: ignore[arg-type]
            return


def _is_returned(layout: Layout, read: ast.AST) -> bool:
    """Whether what is computed from a gradient is returned."""
    statement = layout.statement(read)
    names = derived_names(layout, statement)
    return isinstance(statement, ast.Return) or any(
        names & names_in(value) for value in returned(layout.function)
    )


def _may_unscale(view: FileView, layout: Layout, scale: ast.AST, read: ast.AST) -> bool:
    """Whether a call before the read unscales the gradients, or may do it."""
    for node in layout.between(scale, read):
        if not isinstance(node, ast.Call):
            continue
        name = last_name(node.func)
        if any(word in name for word in ("unscale", "clip", "step", "scaler")):
            return True
        if any(view.roles.is_scaler(argument, layout.function) for argument in arguments(node)):
            return True
        if any(view.may_reach(word, node, layout.function) for word in ("unscale", "step")):
            return True
    return False


def _used(
    view: FileView, layout: Layout, read: _Read, before: ScalerCall, step: ScalerCall
) -> Finding | None:
    """A finding where what a statement computed is compared, else where it is recorded."""
    statement = layout.statement(read.node)
    help = f"call `{step.scaler}.unscale_({step.given})` before"
    path = tuple(dict.fromkeys((*before.path, *read.path)))
    rests = (*links.stepped(view, step), links.proved("effect", read.gradient, "is still scaled"))
    scale = scale_words(view, step.scaler, layout.function)
    parent = layout.parents[read.node]
    if isinstance(parent, ast.Compare):
        if not read.path or not _is_threshold_for(view, layout, parent, read.node):
            return None
        name = view.source_of(read.node)
        message = COMPARED.format(name=name, row=view.row_of(parent), scale=scale)
        return view.finding(RULE, read.node, message, help, path=path, links=rests)
    names = derived_names(layout, statement)
    rest = [node for node in layout.nodes if layout.before(statement, node)]
    for test in rest:
        name = _compared(view, layout, test, names) if isinstance(test, ast.Compare) else ""
        if name:
            message = COMPARED.format(name=name, row=view.row_of(test), scale=scale)
            return view.finding(RULE, statement, message, help, path=path, links=rests)
    for call in rest:
        found = _tested_by(view, layout, call, names) if isinstance(call, ast.Call) else None
        if found is not None:
            message = COMPARED_IN.format(name=found.name, where=found.where, scale=scale)
            path = tuple(dict.fromkeys((*path, *found.path)))
            return view.finding(RULE, statement, message, help, path=path, links=rests)
    for call in rest:
        if isinstance(call, ast.Call) and last_name(call.func) in RECORDS:
            shown = names & {name for argument in arguments(call) for name in names_in(argument)}
            if shown:
                message = LOGGED.format(name=min(shown), scale=scale)
                recorded = Link("damage", Standing.HARMLESS, min(shown), "is only recorded")
                return view.finding(
                    RULE, statement, message, help, path=path, links=(*rests, recorded)
                )
    return None


def _tested_by(
    view: FileView, layout: Layout, call: ast.Call, names: set[str], depth: int = CALLS
) -> _Test | None:
    """The test against something fixed that a call leads to, of one of these names as it is."""
    given = {item.id for item in map(_as_it_is, arguments(call)) if isinstance(item, ast.Name)}
    callee = view.objects.callee(call, layout.function) if given & names else None
    if callee is None or not depth:
        return None
    inner = layout_of(callee)
    if words_of(inner.nodes) & (EXCUSES | {"get_scale"}):
        return None
    binding = view.objects.bind(call, layout.function, callee)
    bound = {word: item for word, item in binding.given.items() if word != binding.receiver}
    taken = {
        word: value.id
        for word, argument in bound.items()
        if isinstance(value := _as_it_is(argument), ast.Name)
        and value.id in names
        and word not in bindings_of(callee)
    }
    step = view.step(call, layout.function.module, f"call of `{callee.name}`")
    for node in inner.nodes:
        if isinstance(node, ast.Compare):
            word = _compared(view, inner, node, set(taken), as_it_is=True)
            others = [bound[name] for name in names_in(node) & bound.keys() - taken.keys()]
            if word and all(is_loop_invariant(view, other, layout.function) for other in others):
                test = view.step(node, callee.module, f"`{view.source_of(node)}`")
                return _Test(taken[word], callee.qualname, (step, test))
        elif isinstance(node, ast.Call):
            found = _tested_by(view, inner, node, set(taken), depth - 1)
            if found is not None:
                return _Test(taken[found.name], found.where, (step, *found.path))
    return None


def _as_it_is(node: ast.expr) -> ast.expr:
    """What a number or a tensor is taken of without changing its size: `float(norm.item())`."""
    while isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in UNCHANGED and not node.args:
            node = node.func.value
        elif last_name(node.func) == "float" and len(node.args) == 1:
            node = node.args[0]
        else:
            return node
    return node


def _compared(
    view: FileView, layout: Layout, test: ast.Compare, names: set[str], *, as_it_is: bool = False
) -> str:
    """The name that is held against a fixed threshold; "" for anything relative.

    Args:
        as_it_is: whether the name itself has to be one side of the test.
    """
    if len(test.comparators) != 1:
        return ""
    for side in (test.left, test.comparators[0]):
        found = names & names_in(side)
        if as_it_is and not isinstance(_as_it_is(side), ast.Name):
            continue
        if found and _is_threshold_for(view, layout, test, side):
            return min(found)
    return ""


def _is_threshold_for(view: FileView, layout: Layout, test: ast.Compare, side: ast.expr) -> bool:
    """Whether one side of a test is held against something fixed on the other."""
    if len(test.ops) != 1 or not isinstance(test.ops[0], ORDERS):
        return False
    other = test.comparators[0] if side is test.left else test.left
    is_zero = isinstance(other, ast.Constant) and not other.value
    return not is_zero and is_loop_invariant(view, other, layout.function)


def _penalties(view: FileView, layout: Layout) -> Iterator[Finding]:
    """`torch.autograd.grad` of scaled outputs whose result is measured."""
    for node in layout.nodes:
        if (
            not isinstance(node, ast.Call)
            or view.module.resolve(node.func) != "torch.autograd.grad"
        ):
            continue
        outputs = [*node.args[:1], *(item.value for item in node.keywords if item.arg == "outputs")]
        scaler = scaler_of(view.roles, layout, outputs[0]) if outputs else ""
        if not scaler:
            continue
        names = derived_names(layout, layout.statement(node))
        if not (
            enters_a_loss(view, layout, node, names) or _returned_to_loss(view, layout, node, names)
        ):
            continue
        for use in layout.nodes:
            is_later = isinstance(use, ast.Name) and use.id in names and layout.before(node, use)
            if is_later and is_measured(layout, use):
                name = use.id  # type: ignore[attr-defined]
                scale = scale_words(view, scaler, layout.function)
                help = f"divide the gradients by `{scaler}.get_scale()` before the penalty"
                message = PENALTY.format(name=name, scale=scale)
                rests = (
                    links.scaler_named(view, scaler, layout.function),
                    links.proved("effect", node, "is of a scaled loss"),
                )
                yield view.finding(RULE, node, message, help, links=rests)
                break


def _returned_to_loss(view: FileView, layout: Layout, call: ast.Call, names: set[str]) -> bool:
    """Whether a function returns what it computes from gradients, and its callers train on it."""
    if not any(names & names_in(value) for value in returned(layout.function)):
        return False
    if any(isinstance(node, ast.Div) for node in layout.nodes):
        return False  # perhaps by the scale
    callers = view.objects.calls_of(layout.function)
    for site in callers:
        outer = layout_of(site.function)
        if site.node not in outer:
            return False
        taken = derived_names(outer, outer.statement(site.node))
        if not enters_a_loss(view, outer, site.node, taken):
            return False
    return bool(callers)


def _divisions(view: FileView, layout: Layout) -> Iterator[Finding]:
    """The only division of gradients by the scale, if a step of the scaler repeats it."""
    changes = [(node, scale_change(layout, node)) for node in layout.nodes]
    changes = [(node, kind) for node, kind in changes if kind]
    if [kind for _, kind in changes] != ["divides"] or _steps_plainly(view, layout, changes[0][0]):
        return
    for step in scaler_calls(view, "step", within=layout.function):
        if step.node.args and layout.reaches(changes[0][0], step.node):
            scaler, optimizer = receiver(step.node), view.source_of(step.node.args[0])
            help = f"call `{scaler}.unscale_({optimizer})` instead of dividing by hand"
            message = DIVIDED.format(
                scaler=scaler, scale=scale_words(view, scaler, layout.function)
            )
            rests = (
                *links.stepped(view, step),
                links.proved("effect", layout.statement(changes[0][0]), "divides the gradients"),
            )
            yield view.finding(RULE, changes[0][0], message, help, links=rests)
            return


def _steps_plainly(view: FileView, layout: Layout, change: ast.AST) -> bool:
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "step"
        and view.roles.is_optimizer(node.func.value, layout.function)
        and layout.reaches(change, node)
        for node in layout.nodes
    )
