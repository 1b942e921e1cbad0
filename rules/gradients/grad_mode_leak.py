"""# grad-mode-leak (AMP303)

`torch.set_grad_enabled(False)` as a statement stays in force when the training goes on.

## What it does
Flags `torch.set_grad_enabled(False)` outside of a `with` statement where nothing in the project
files at hand switches gradients on again, and a backward comes later: further down in the same
function, or in the loop that calls the function that holds it.

## Why is this bad?
Called as a statement it changes the mode of the whole thread until the next call. The forward
passes of the next epoch build no graph, and the first `backward()` after the evaluation raises
`RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn`.
`torch.no_grad()` as a statement is harmless and does nothing at all.

## Example
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=65536.0)
batches = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(2)]


def evaluate():
    torch.set_grad_enabled(False)
    return sum(torch.nn.functional.mse_loss(model(x), y).item() for x, y in batches)


for epoch in range(2):
    for inputs, targets in batches:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    evaluate()
```

## Use instead
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=65536.0)
batches = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(2)]


@torch.no_grad()
def evaluate():
    return sum(torch.nn.functional.mse_loss(model(x), y).item() for x, y in batches)


for epoch in range(2):
    for inputs, targets in batches:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    evaluate()
```

## How it is confirmed
Executing an evaluation and the next training step raises the error.

## Fix safety
Unsafe: training goes on where it stopped. A function that begins with the statement gets the decorator
`@torch.no_grad()` instead; where it comes later in a function, all that follows there goes into a
`with torch.no_grad():`. No fix where the same function trains later, at the top of a file, and for a
statement in another file.

## Known limits
Any other call of `set_grad_enabled` in the file of the call or of the callee keeps the rule
silent. A script that only evaluates has no backward and is not flagged.

## References
- `torch/autograd/grad_mode.py`: `set_grad_enabled`
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.amp import links
from amplint.amp.grad_modes import is_grad_switch
from amplint.code.layout import layout_of
from amplint.code.module import CallSite, Function, Module
from amplint.expectations import NO_GRAPH, caused
from amplint.findings import Finding, PathStep, Severity
from amplint.fixing.statements import statement_of
from amplint.fixing.verbs import Decorate, Remove, Repair, Within, unsafe
from amplint.rule import Rule
from amplint.view import FileView

RULE = Rule(
    code="AMP303",
    name="grad-mode-leak",
    severity=Severity.ERROR,
    effect="crash",
    summary="`torch.set_grad_enabled(False)` as a statement, never restored before training code",
    facts=("B11", "B11b"),
    fix="unsafe",
    probe=caused("grad-modes", *NO_GRAPH),
)

MESSAGE = (
    "gradients stay off from here on: {later} raises `RuntimeError: element 0 of tensors "
    "does not require grad…`"
)
HELP = "put the evaluation under `with torch.no_grad():` or decorate it with `@torch.no_grad()`"

#: Calls deeper than this are not asked for a backward.
DEPTH = 3


def check(view: FileView) -> Iterator[Finding]:
    """Report the statement itself, or the call that runs it in another file."""
    elsewhere = _switches_elsewhere(view)
    for site in view.module.calls:
        if site.node not in layout_of(site.function) or not view.is_judged(site.function):
            continue
        if _switches_off(site) and not view.module.once(_restores):
            yield from _report(view, site.node, site.function, ())
        elif elsewhere and site.method and not site.method.startswith("__"):
            yield from _in_other_file(view, site)


def _switches_elsewhere(view: FileView) -> bool:
    """Whether another file of the project switches gradients off for good; few do."""
    return any(
        not module.once(_restores) and any(map(_switches_off, module.calls))
        for module in view.project.mentioning(view.module, "set_grad_enabled")
    )


def _report(
    view: FileView, node: ast.Call, function: Function, path: tuple[PathStep, ...]
) -> Iterator[Finding]:
    later = _later(view, node, function)
    if later is not None:
        where = f"line {view.row_of(later.node)}"
        steps = (*path, view.step(later.node, later.function.module, "runs a backward later"))
        rests = (
            links.proved("object", later.node, "runs a backward"),
            links.proved("effect", node, "switches gradients off"),
        )
        message = MESSAGE.format(later=where)
        fix = _under_no_grad(node, function) if later.function is not function else None
        yield view.finding(RULE, node, message, HELP, path=steps, links=rests, fix=fix)


def _under_no_grad(node: ast.Call, function: Function) -> Repair | None:
    """Decorate the function that begins with the statement, or put what follows in a block."""
    statement, body = statement_of(node, function), function.body
    callee = node.func
    if statement not in body or not isinstance(callee, ast.Attribute):
        return None
    if callee.attr != "set_grad_enabled" or not isinstance(function.node, ast.FunctionDef):
        return None
    mode = f"{ast.unparse(callee.value)}.no_grad()"
    index = body.index(statement)
    before = body[:index]
    if len(body) < 2 or any(
        isinstance(part, (ast.Yield, ast.YieldFrom)) for part in function.nodes
    ):
        return None
    if all(isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) for one in before):
        return unsafe(Decorate(function.node, mode), Remove(statement))
    if index + 1 == len(body):
        return None
    return unsafe(Remove(statement), Within(body[index + 1], f"with {mode}:", body[-1]))


def _in_other_file(view: FileView, site: CallSite) -> Iterator[Finding]:
    callee = view.objects.callee(site.node, site.function)
    if callee is None or callee.module is view.module or callee.module.once(_restores):
        return
    if view.module.once(_restores):
        return
    for other in callee.module.calls:
        if other.function is callee and _switches_off(other):
            text = f"`{view.source_of(other.node)}` in `{callee.qualname}`"
            yield from _report(
                view, site.node, site.function, (view.step(other.node, callee.module, text),)
            )


def _switches_off(site: CallSite) -> bool:
    if not is_grad_switch(site.node, site.function.module) or not site.node.args:
        return False
    value = site.node.args[0]
    parent = layout_of(site.function).parents.get(site.node)
    is_false = isinstance(value, ast.Constant) and value.value is False
    return is_false and isinstance(parent, ast.Expr)


def _restores(module: Module) -> bool:
    """Whether anything in a file may switch gradients on again."""
    for site in module.calls:
        if not is_grad_switch(site.node, module) or not site.node.args:
            continue
        value = site.node.args[0]
        if not (isinstance(value, ast.Constant) and value.value is False):
            return True
    return False


def _later(view: FileView, node: ast.Call, function: Function, depth: int = 2) -> CallSite | None:
    """A call that runs a backward after `node`, in this function or in the loop of a caller."""
    layout = layout_of(function)
    loops = layout.loops(node)
    for site in _trainings(view, function):
        again = loops and layout.holds(loops[-1], site.node)
        if site.node is node or layout.exclusive(node, site.node):
            continue
        if again or layout.before(node, site.node):
            return site
    if depth == 0:
        return None
    for caller in view.objects.calls_of(function):
        inside = caller.function.module is view.module and caller.node in layout_of(caller.function)
        found = _later(view, caller.node, caller.function, depth - 1) if inside else None
        if found is not None:
            return found
    return None


def _trainings(view: FileView, function: Function) -> Iterator[CallSite]:
    """The calls of a function that run a backward, directly or through known functions."""
    for site in function.module.calls:
        if site.function is not function or site.node not in layout_of(function):
            continue
        if site.method == "backward" or _trains(view, site, DEPTH):
            yield site


def _trains(view: FileView, site: CallSite, depth: int) -> bool:
    callee = view.objects.callee(site.node, site.function) if depth else None
    if callee is None:
        return False
    return any(
        other.method == "backward" or _trains(view, other, depth - 1)
        for other in callee.module.calls
        if other.function is callee
    )
