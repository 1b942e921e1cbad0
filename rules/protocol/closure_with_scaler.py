"""# closure-with-scaler (AMP118)

A closure is passed to `scaler.step`, or the scaler steps an LBFGS optimizer.

## What it does
Flags `scaler.step(optimizer, closure)` and `scaler.step(optimizer, closure=…)` with a lambda, a
function or a method as closure, also where a caller passes it, and `scaler.step` of an optimizer
that is always an `LBFGS`, wherever it is built.

## Why is this bad?
A scaler unscales the gradients before the optimizer's step; a closure computes new, scaled ones
inside it. As a keyword it is refused: `RuntimeError: Closure use is not currently supported if
GradScaler is enabled.` (`closure=None` too). A positional closure slips past that check: SGD then
applies the gradients that the closure leaves, 65536 times too large, and nobody skips an overflow
in them. `LBFGS` needs a closure, so it cannot be stepped by a scaler at all: without one it raises
`TypeError: LBFGS.step() missing 1 required positional argument: 'closure'`. With a disabled
scaler everything works.

## Example
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
loader = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(2)]

for inputs, targets in loader:

    def closure():
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        scaler.scale(loss).backward()
        return loss

    closure()
    scaler.step(optimizer, closure)
    scaler.update()
```

## Use instead
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
loader = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(2)]

for inputs, targets in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
```

## How it is confirmed
Executing the function raises the `RuntimeError` or `TypeError`, or moves the parameters by 65536
times the step of the same loop without the closure.

## Fix safety
No fix is offered: the closure's body has to move in front of the step, and LBFGS has to be trained
in full precision.

## Known limits
A closure that arrives as a parameter is flagged only where a known caller passes one: wrappers
forward an optional one that nobody passes. Skipped: files with a GradScaler subclass that has its own `step`, and scalers of another
object (`state.scaler`) whose class is not in sight.

## References
- PyTorch, Automatic Mixed Precision package: `GradScaler.step` ("Closure use is not currently
  supported")
- `torch/amp/grad_scaler.py`: `GradScaler.step`
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.amp import links
from amplint.amp.scaler_calls import scaler_calls
from amplint.amp.scaling import TORCH_SCALERS, is_torch_scaler, scale_words
from amplint.code.dataflow import constant_of, receiver, scopes
from amplint.code.expressions import last_name
from amplint.code.module import CallSite, Function, enclosing_class
from amplint.expectations import breaks, raises
from amplint.findings import Finding, Link, PathStep, Severity, Standing
from amplint.rule import Rule
from amplint.values.provenance import Firmness, Origin
from amplint.view import FileView

RULE = Rule(
    code="AMP118",
    name="closure-with-scaler",
    severity=Severity.ERROR,
    effect="crash/silent",
    summary="`scaler.step(optimizer, closure)`, or a scaler with LBFGS",
    facts=("S19", "S19b", "S19c", "S19d", "S19e", "S19f"),
    probe=(
        raises("RuntimeError", "Closure use is not currently supported")
        + breaks("step-uninitialised")
    ),
)

REFUSED = (
    "`{scaler}.step` takes no closure: `RuntimeError: Closure use is not currently supported…`"
)
SLIPS_THROUGH = (
    "the closure's gradients are applied while scaled: too large by the loss scale, {scale}"
)
NO_CLOSURE = (
    "`{optimizer}` is an LBFGS: `TypeError: LBFGS.step() missing 1 required positional argument…`"
)
LBFGS = (
    "`{optimizer}` is an LBFGS, which runs its closure in the step: nothing unscales its gradients"
)
BACKWARD_FIRST = "run the backward of the scaled loss first, then call `{scaler}.step({optimizer})`"
FULL_PRECISION = "train with LBFGS in full precision: `{optimizer}.step(closure)` and no GradScaler"


def check(view: FileView) -> Iterator[Finding]:
    """Report closures given to a scaler's step, and steps of LBFGS."""
    if _own_step(view):
        return
    for site in scaler_calls(view, "step"):
        if not site.node.args or _is_foreign(view, site):
            continue
        message, help, path = _misuse(view, site)
        if message:
            words = {
                "scaler": receiver(site.node),
                "optimizer": view.source_of(site.node.args[0]),
                "scale": scale_words(view, receiver(site.node), site.function),
            }
            message, help = message.format_map(words), help.format_map(words)
            rests = (
                *links.stepped(view, site),
                Link("damage", Standing.LIBRARY, words["optimizer"], "is stepped with a closure"),
            )
            yield view.finding(RULE, site.node, message, help, path=path, links=rests)


def _is_foreign(view: FileView, site: CallSite) -> bool:
    """Whether the scaler may be of a class that takes closures: not torch's, or out of sight."""
    callee = site.node.func
    assert isinstance(callee, ast.Attribute)
    found = view.values.origins.of(callee.value, site.function).origins
    built = [item for item in found if isinstance(item.expression, ast.Call)]
    if not built:
        return "." in receiver(site.node).removeprefix("self.")
    return not all(is_torch_scaler(view, item) for item in built)


def _own_step(view: FileView) -> bool:
    """Whether a class of the file replaces `GradScaler.step`."""
    return any(
        "step" in owner.methods
        and any(view.module.resolve(base) in TORCH_SCALERS for base in owner.bases)
        for owner in view.module.classes.values()
    )


def _misuse(view: FileView, site: CallSite) -> tuple[str, str, tuple[PathStep, ...]]:
    """Message, help and path; an empty message where nothing is wrong."""
    call, function = site.node, site.function
    keyword = next((item.value for item in call.keywords if item.arg == "closure"), None)
    lbfgs = _lbfgs(view, site)
    if lbfgs is not None:
        given = keyword is not None or len(call.args) > 1
        return (LBFGS if given else NO_CLOSURE), FULL_PRECISION, _path(view, lbfgs)
    if keyword is not None and constant_of(keyword) is None:
        return REFUSED, BACKWARD_FIRST, ()
    for message, closure in ((REFUSED, keyword), (SLIPS_THROUGH, next(iter(call.args[1:]), None))):
        passed = _closure(view, closure, function) if closure is not None else None
        if passed is not None:
            return message, BACKWARD_FIRST, _path(view, passed)
    return "", "", ()


def _path(view: FileView, origin: Origin) -> tuple[PathStep, ...]:
    """From where an object was made to the step; empty where that is one function."""
    if not origin.steps:
        return ()
    text = f"`{view.source_of(origin.expression)}` is here"
    first = view.step(origin.expression, origin.function.module, text)
    return (first, *(view.step(step.node, step.module, step.words) for step in origin.steps))


def _closure(view: FileView, expression: ast.expr, function: Function) -> Origin | None:
    """The closure that an expression is, or that some caller passes for it, whatever happens."""
    if _is_closure(view, expression, function):
        return Origin(expression, function)
    for origin in view.values.origins.of(expression, function).origins:
        certain = origin.firmness is Firmness.FIXED and not origin.conditions
        if certain and _is_closure(view, origin.expression, origin.function):
            return origin
    return None


def _is_closure(view: FileView, expression: ast.expr, function: Function) -> bool:
    if isinstance(expression, ast.Lambda):
        return True
    if isinstance(expression, ast.Call):
        is_partial = function.module.resolve(expression.func) == "functools.partial"
        given = expression.args[:1] if is_partial else []
        return any(_is_closure(view, inner, function) for inner in given)
    if isinstance(expression, ast.Name):
        nested = (scope.nested for scope in scopes(function, function.module))
        if any(expression.id in functions for functions in nested):
            return True
    elif isinstance(expression, ast.Attribute) and last_name(expression.value) == "self":
        owner = enclosing_class(function)
        return owner is not None and view.objects.method(owner, expression.attr) is not None
    return isinstance(view.objects.symbol(expression, function), Function)


def _lbfgs(view: FileView, site: CallSite) -> Origin | None:
    """Where the optimizer is built, if everything that it can be is an LBFGS."""
    found = view.values.origins.of(site.node.args[0], site.function)
    is_lbfgs = found.complete and all(_builds_lbfgs(item) for item in found.origins)
    return next(iter(found.origins), None) if is_lbfgs else None


def _builds_lbfgs(origin: Origin) -> bool:
    node = origin.expression
    if not isinstance(node, ast.Call):
        return False
    return (origin.function.module.resolve(node.func) or "").rpartition(".")[2] == "LBFGS"
