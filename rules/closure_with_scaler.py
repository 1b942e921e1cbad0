"""# closure-with-scaler (AMP118)

A closure is passed to `scaler.step`, or the scaler steps an LBFGS optimizer.

## What it does
Flags `scaler.step(optimizer, closure)` and `scaler.step(optimizer, closure=…)` with a lambda, a
local function or a method as closure, and `scaler.step` of an optimizer that is always an
`LBFGS`.

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
A closure that arrives as a parameter is not flagged: wrappers forward an optional one that nobody
passes. Skipped: files with a GradScaler subclass that has its own `step`, and scalers of another
object (`state.scaler`) whose class is not in sight.

## References
- PyTorch, Automatic Mixed Precision package: `GradScaler.step` ("Closure use is not currently
  supported")
- `torch/amp/grad_scaler.py`: `GradScaler.step`
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.findings import Finding, Severity
from amplint.project import names
from amplint.project.dataflow import constant_of, definitions, receiver, scaler_calls, scopes
from amplint.project.module import CallSite
from amplint.project.roles import enclosing_class, last_name
from amplint.rule import FileView, Rule

RULE = Rule(
    code="AMP118",
    name="closure-with-scaler",
    severity=Severity.ERROR,
    effect="crash/silent",
    summary="`scaler.step(optimizer, closure)`, or a scaler with LBFGS",
    facts=("S19", "S19b", "S19c", "S19d", "S19e", "S19f"),
)

TORCH_SCALERS = names.GRAD_SCALERS | names.SHARDED_GRAD_SCALERS
REFUSED = (
    "`{scaler}.step` takes no closure: `RuntimeError: Closure use is not currently supported if "
    "GradScaler is enabled.`"
)
SLIPS_THROUGH = (
    "the closure's gradients are applied while still multiplied by the loss scale: 65536 times "
    "the update with SGD, and overflows are not skipped"
)
NO_CLOSURE = (
    "`{optimizer}` is an LBFGS: `TypeError: LBFGS.step() missing 1 required positional argument: "
    "'closure'`"
)
LBFGS = (
    "`{optimizer}` is an LBFGS, which runs its closure inside the step: the scaler can neither "
    "unscale those gradients nor skip an overflow"
)
BACKWARD_FIRST = (
    "run `{scaler}.scale(loss).backward()` first, then call `{scaler}.step({optimizer})`"
)
FULL_PRECISION = "train with LBFGS in full precision: `{optimizer}.step(closure)` and no GradScaler"


def check(view: FileView) -> Iterator[Finding]:
    """Report closures given to a scaler's step, and steps of LBFGS."""
    if _own_step(view):
        return
    for site in scaler_calls(view, "step"):
        if not site.node.args or _is_foreign(view, site):
            continue
        message, help = _misuse(view, site)
        if message:
            words = {
                "scaler": receiver(site.node),
                "optimizer": view.source_of(site.node.args[0]),
            }
            yield view.finding(RULE, site.node, message.format_map(words), help.format_map(words))


def _is_foreign(view: FileView, site: CallSite) -> bool:
    """Whether the scaler may be of a class that takes closures: not torch's, or out of sight."""
    callee = site.node.func
    assert isinstance(callee, ast.Attribute)
    known = definitions(view, callee.value, site.function)
    if known is None:
        return "." in receiver(site.node).removeprefix("self.")
    built = [node for binding in known if binding.value for node in ast.walk(binding.value)]
    classes = [node.func for node in built if isinstance(node, ast.Call)]
    return any(
        last_name(callee).endswith("Scaler") and view.module.resolve(callee) not in TORCH_SCALERS
        for callee in classes
    )


def _own_step(view: FileView) -> bool:
    """Whether a class of the file replaces `GradScaler.step`."""
    return any(
        "step" in owner.methods
        and any(view.module.resolve(base) in TORCH_SCALERS for base in owner.bases)
        for owner in view.module.classes.values()
    )


def _misuse(view: FileView, site: CallSite) -> tuple[str, str]:
    call = site.node
    keyword = next((item.value for item in call.keywords if item.arg == "closure"), None)
    if _is_lbfgs(view, site):
        given = keyword is not None or len(call.args) > 1
        return (LBFGS if given else NO_CLOSURE), FULL_PRECISION
    if keyword is not None and (_is_closure(view, keyword, site) or constant_of(keyword) is None):
        return REFUSED, BACKWARD_FIRST
    if len(call.args) > 1 and _is_closure(view, call.args[1], site):
        return SLIPS_THROUGH, BACKWARD_FIRST
    return "", ""


def _is_closure(view: FileView, expression: ast.expr, site: CallSite) -> bool:
    if isinstance(expression, ast.Lambda):
        return True
    if isinstance(expression, ast.Call):
        is_partial = view.module.resolve(expression.func) == "functools.partial"
        given = expression.args[:1] if is_partial else []
        return any(_is_closure(view, inner, site) for inner in given)
    if isinstance(expression, ast.Name):
        nested = (scope.nested for scope in scopes(site.function, view.module))
        return any(expression.id in functions for functions in nested)
    owner = enclosing_class(site.function)
    if owner is None or not isinstance(expression, ast.Attribute):
        return False
    is_own = isinstance(expression.value, ast.Name) and expression.value.id == "self"
    return is_own and view.module.find_method(owner, expression.attr) is not None


def _is_lbfgs(view: FileView, site: CallSite) -> bool:
    """Whether everything that the file binds the optimizer to is an LBFGS."""
    known = definitions(view, site.node.args[0], site.function)
    if known is None:
        return False
    return all(
        isinstance(binding.value, ast.Call)
        and (view.module.resolve(binding.value.func) or "").rpartition(".")[2] == "LBFGS"
        for binding in known
    )
