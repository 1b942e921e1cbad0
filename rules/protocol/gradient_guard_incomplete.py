"""# gradient-guard-incomplete (AMP125)

A test for gradients guards the step, but not all that depends on it.

## What it does
Flags `if any(p.grad is not None for p in …): scaler.step(optimizer)` when `scaler.update()` runs
outside of that test, when the test looks at a model whose parameters are not the optimizer's, and
when `zero_grad(set_to_none=False)` makes it useless.

## Why is this bad?
The test avoids `AssertionError: No inf checks were recorded for this optimizer.` by skipping the
step. But `scaler.update()` needs a recorded check as well: outside of the test it raises
`AssertionError: No inf checks were recorded prior to update.` instead. A test over another model's
parameters is true while the optimizer has no gradient, and the first error is back. And with
`set_to_none=False` the gradients are zeros instead of `None`: from the second iteration on the test
is always true, and momentum, weight decay and Adam move the weights without a gradient.

## Example
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
loader = [(torch.randn(8, 4), torch.randn(8, 1), index % 2 == 0) for index in range(4)]

for inputs, targets, labelled in loader:
    optimizer.zero_grad()
    if labelled:
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        scaler.scale(loss).backward()
    if any(parameter.grad is not None for parameter in model.parameters()):
        scaler.step(optimizer)
    scaler.update()
```

## Use instead
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
loader = [(torch.randn(8, 4), torch.randn(8, 1), index % 2 == 0) for index in range(4)]

for inputs, targets, labelled in loader:
    optimizer.zero_grad()
    if labelled:
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        scaler.scale(loss).backward()
    if any(parameter.grad is not None for parameter in model.parameters()):
        scaler.step(optimizer)
        scaler.update()
```

## How it is confirmed
Executing the function with a batch that gives no gradients raises the `AssertionError` at
`scaler.update()` or at `scaler.step`.

## Fix safety
No fix is offered: the lines between the step and the update may have to move as well.

## Known limits
Silent where another optimizer is stepped in the same function, because it may record the check that
`update()` needs, and where the two models may share parameters. A test in a helper is followed if
the helper does nothing else.

## References
- PyTorch, `torch.optim.Optimizer.zero_grad`: `set_to_none`
- `torch/amp/grad_scaler.py`: `GradScaler.update`
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.amp import links
from amplint.amp.gradient_tests import GuardedStep, guarded_steps
from amplint.amp.ownership import owned_modules
from amplint.amp.scaler_calls import scaler_calls
from amplint.code.dataflow import arguments, names_in, receiver
from amplint.code.layout import EXITS, Layout, layout_of
from amplint.code.module import CallSite, walk
from amplint.expectations import breaks
from amplint.findings import Finding, Severity
from amplint.rule import Rule
from amplint.values.provenance import Origin
from amplint.view import FileView

RULE = Rule(
    code="AMP125",
    name="gradient-guard-incomplete",
    severity=Severity.WARNING,
    effect="crash",
    summary="`any(p.grad is not None …)` around `step` but not `update`, or of other parameters",
    facts=("S36", "S36b", "S36c", "S36d"),
    probe=breaks("update-without-check", "step-without-gradient"),
)

UPDATE = (
    "`{call}` also runs where line {row} finds no gradient: `AssertionError: No inf checks "
    "were recorded…`"
)
OTHER_MODEL = (
    "the test looks at `{seen}`, but `{optimizer}` holds `{owned}`: `{scaler}.step` can raise"
)
ALWAYS_TRUE = (
    "`zero_grad(set_to_none=False)` leaves zeros: this test is true, and the step applies them"
)


def check(view: FileView) -> Iterator[Finding]:
    """Report gradient tests around a step that do not do their job."""
    for guard in guarded_steps(view):
        yield from _judge(view, guard)


def _judge(view: FileView, guard: GuardedStep) -> Iterator[Finding]:
    site, branch = guard.site, guard.branch
    rests = (
        *links.stepped(view, site),
        links.proved("reach", branch.test, "decides about the step"),
    )
    if guard.is_useless:
        help = "drop `set_to_none=False`, or test what you mean: whether a loss was computed"
        yield view.finding(RULE, branch.test, ALWAYS_TRUE, help, path=guard.path, links=rests)
        return
    other = _other_model(view, guard)
    if other is not None:
        optimizer, scaler = view.source_of(site.node.args[0]), receiver(site.node)
        words = {"optimizer": optimizer, "scaler": scaler, "seen": other[0], "owned": other[1]}
        help = f"test the parameters in `{optimizer}.param_groups`"
        message = OTHER_MODEL.format_map(words)
        yield view.finding(RULE, branch.test, message, help, path=guard.path, links=rests)
        return
    for update in _uncovered_updates(view, site, branch):
        message = UPDATE.format(call=view.source_of(update), row=view.row_of(branch))
        help = f"move `{view.source_of(update)}` into the `if` on line {view.row_of(branch)}"
        yield view.finding(RULE, update, message, help, path=guard.path, links=rests)


def _other_model(view: FileView, guard: GuardedStep) -> tuple[str, str] | None:
    """The model that the test looks at and the one that the optimizer owns, if unrelated."""
    site, seen = guard.site, guard.model
    owned = list(owned_modules(view, site.node.args[0], site.function))
    if seen is None or not owned or any(item.selected for item in owned):
        return None
    looked = _parts(view, Origin(seen, site.function))
    held = [_parts(view, item.module) for item in owned]
    if not looked or not all(held) or any(_related(view, looked, parts) for parts in held):
        return None
    return view.source_of(seen), ast.unparse(owned[0].module.expression)


def _parts(view: FileView, model: Origin) -> list[Origin]:
    """The calls that built a model and what it is a part of; none where one is not known."""
    found: list[Origin] = []
    place: ast.expr | None = model.expression
    while place is not None:
        made = view.values.origins.of(place, model.function, model.activation)
        known = made.complete and len(made.origins) == 1
        if not known or not isinstance(made.origins[0].expression, ast.Call):
            return []
        found.append(made.origins[0])
        place = place.value if isinstance(place, (ast.Attribute, ast.Subscript)) else None
    return found


def _related(view: FileView, looked: list[Origin], held: list[Origin]) -> bool:
    """Whether one model is a part of the other, or was built from it."""
    one, other = ({origin.expression for origin in each} for each in (looked, held))
    if looked[0].expression in other or held[0].expression in one:
        return True
    return _is_given(view, looked[0], other) or _is_given(view, held[0], one)


def _is_given(view: FileView, built: Origin, others: set[ast.expr]) -> bool:
    """Whether a call that builds a model is given one of others."""
    assert isinstance(built.expression, ast.Call)
    if not others.isdisjoint(walk(built.expression)):
        return True
    return any(
        origin.expression in others
        for argument in arguments(built.expression)
        for item in walk(argument)
        if isinstance(item, (ast.Name, ast.Attribute))
        for origin in view.values.origins.of(item, built.function, built.activation).origins
    )


def _is_one_of_several(layout: Layout, optimizer: ast.expr) -> bool:
    """Whether a step stands for several optimizers, each with a test of its own."""
    return any(
        isinstance(loop, (ast.For, ast.AsyncFor))
        and not names_in(loop.target).isdisjoint(names_in(optimizer))
        for loop in layout.loops(optimizer)
    )


def _uncovered_updates(view: FileView, site: CallSite, branch: ast.If) -> Iterator[ast.Call]:
    layout, scaler = layout_of(site.function), receiver(site.node)
    optimizer = ast.unparse(site.node.args[0])
    if any(isinstance(statement, EXITS) for statement in branch.orelse):
        return
    if _is_one_of_several(layout, site.node.args[0]):
        return
    for other in scaler_calls(view, "step", "unscale_", within=site.function):
        is_here = receiver(other.node) == scaler
        arguments = [ast.unparse(argument) for argument in other.node.args[:1]]
        if is_here and arguments != [optimizer]:
            return
        if is_here and other.method == "step" and not layout.holds(branch, other.node):
            return
    around = layout.conditions(branch)
    for other in scaler_calls(view, "update", within=site.function):
        if receiver(other.node) != scaler:
            continue
        is_plain = not other.node.args and not other.node.keywords
        follows = layout.reaches(branch, other.node)
        if is_plain and follows and layout.conditions(other.node) == around:
            yield other.node
