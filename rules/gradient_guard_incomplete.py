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
`update()` needs, and where the two models may share parameters.

## References
- PyTorch, `torch.optim.Optimizer.zero_grad`: `set_to_none`
- `torch/amp/grad_scaler.py`: `GradScaler.update`
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.findings import Finding, Severity
from amplint.project.dataflow import bindings_of, constant_of, definitions, receiver, scaler_calls
from amplint.project.layout import EXITS, layout_of
from amplint.project.module import CallSite, Function
from amplint.project.roles import last_name, path_text
from amplint.rule import FileView, Rule

RULE = Rule(
    code="AMP125",
    name="gradient-guard-incomplete",
    severity=Severity.WARNING,
    effect="crash",
    summary="`any(p.grad is not None …)` around `step` but not `update`, or of other parameters",
    facts=("S36", "S36b", "S36c", "S36d"),
)

UPDATE = (
    "`{call}` also runs when the test on line {row} finds no gradient: "
    "`AssertionError: No inf checks were recorded prior to update.`"
)
OTHER_MODEL = (
    "the test looks at `{seen}`, but `{optimizer}` holds the parameters of `{owned}`: it can be "
    "true while `{scaler}.step` finds no gradient and raises"
)
ALWAYS_TRUE = (
    "`zero_grad(set_to_none=False)` leaves zeros instead of None: this test is true from the "
    "second iteration on, and the step applies zeros"
)


def check(view: FileView) -> Iterator[Finding]:
    """Report gradient tests around a step that do not do their job."""
    for site in scaler_calls(view, "step"):
        layout = layout_of(site.function)
        if site.node not in layout or not site.node.args:
            continue
        for branch in layout.ancestors(site.node):
            if not isinstance(branch, ast.If):
                continue
            test = _gradient_test(branch, site.function)
            if test is not None and any(layout.holds(part, site.node) for part in branch.body):
                yield from _judge(view, site, branch, test)
                break


def _gradient_test(branch: ast.If, function: Function) -> ast.Call | None:
    """The `any(p.grad is not None for …)` of a test, written there or bound to its name."""
    parts = branch.test.values if isinstance(branch.test, ast.BoolOp) else [branch.test]
    if isinstance(branch.test, ast.BoolOp) and isinstance(branch.test.op, ast.Or):
        return None
    for part in parts:
        bindings = bindings_of(function).get(part.id, []) if isinstance(part, ast.Name) else []
        value = bindings[0].value if len(bindings) == 1 else part
        if isinstance(value, ast.Call) and _tests_gradients(value):
            return value
    return None


def _tests_gradients(call: ast.Call) -> bool:
    if last_name(call.func) != "any" or len(call.args) != 1:
        return False
    source = call.args[0]
    element = source.elt if isinstance(source, (ast.GeneratorExp, ast.ListComp)) else None
    return (
        isinstance(element, ast.Compare)
        and last_name(element.left) == "grad"
        and isinstance(element.ops[0], ast.IsNot)
        and constant_of(element.comparators[0]) is None
    )


def _judge(view: FileView, site: CallSite, branch: ast.If, test: ast.Call) -> Iterator[Finding]:
    if _keeps_zeros(site):
        help = "drop `set_to_none=False`, or test what you mean: whether a loss was computed"
        yield view.finding(RULE, branch.test, ALWAYS_TRUE, help)
        return
    other = _other_model(view, site, test)
    if other is not None:
        optimizer, scaler = view.source_of(site.node.args[0]), receiver(site.node)
        words = {"optimizer": optimizer, "scaler": scaler, "seen": other[0], "owned": other[1]}
        help = f"test the parameters in `{optimizer}.param_groups`"
        yield view.finding(RULE, branch.test, OTHER_MODEL.format_map(words), help)
        return
    for update in _uncovered_updates(view, site, branch):
        message = UPDATE.format(call=view.source_of(update), row=branch.lineno)
        help = f"move `{view.source_of(update)}` into the `if` on line {branch.lineno}"
        yield view.finding(RULE, update, message, help)


def _keeps_zeros(site: CallSite) -> bool:
    for node in layout_of(site.function).nodes:
        if not isinstance(node, ast.Call) or last_name(node.func) != "zero_grad":
            continue
        given = [item.value for item in node.keywords if item.arg == "set_to_none"]
        if any(constant_of(value) is False for value in [*node.args, *given]):
            return True
    return False


def _other_model(view: FileView, site: CallSite, test: ast.Call) -> tuple[str, str] | None:
    """The model that the test looks at and the one that the optimizer owns, if unrelated."""
    source = test.args[0]
    assert isinstance(source, (ast.GeneratorExp, ast.ListComp))
    built = definitions(view, site.node.args[0], site.function) or []
    arguments = getattr(built[0].value, "args", []) if len(built) == 1 else []
    seen = _owner(source.generators[0].iter)
    owned = _owner(arguments[0]) if arguments else None
    if seen is None or owned is None or len(source.generators) != 1:
        return None
    names = path_text(seen) or "", path_text(owned) or ""
    if names[0].startswith(names[1]) or names[1].startswith(names[0]):
        return None
    made = [definitions(view, model, site.function) or [] for model in (seen, owned)]
    if any(len(bindings) != 1 for bindings in made):
        return None
    texts = [ast.unparse(bindings[0].value) for bindings in made if bindings[0].value]
    calls = all(isinstance(bindings[0].value, ast.Call) for bindings in made)
    related = any(name in text for name in names for text in texts)
    return None if related or not calls else names


def _owner(expression: ast.expr) -> ast.expr | None:
    """The model of `model.parameters()`."""
    callee = expression.func if isinstance(expression, ast.Call) else None
    is_parameters = isinstance(callee, ast.Attribute) and callee.attr == "parameters"
    return callee.value if isinstance(callee, ast.Attribute) and is_parameters else None


def _uncovered_updates(view: FileView, site: CallSite, branch: ast.If) -> Iterator[ast.Call]:
    layout, scaler = layout_of(site.function), receiver(site.node)
    optimizer = ast.unparse(site.node.args[0])
    if any(isinstance(statement, EXITS) for statement in branch.orelse):
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
