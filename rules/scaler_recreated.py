"""# scaler-recreated (AMP119)

A GradScaler is built anew for every epoch or iteration, so its scale is forgotten.

## What it does
Flags a `GradScaler` built inside the training loop that uses it, and one built inside a function
that is called for every epoch or iteration, while the optimizer it steps lives longer.

## Why is this bad?
The scale is learned: it is halved at each overflow and grows after 2000 good steps. A new scaler
starts again at 65536. Where the model overflows at that scale, the first steps of every epoch are
skipped; with a scaler per iteration all of them are (30 of 30 steps skipped in the measured case,
where one scaler skips 1). Nothing is raised. A checkpoint that holds such a scaler's state restores
it into an object that the next epoch replaces.

## Example
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(4)]

for epoch in range(3):
    scaler = torch.amp.GradScaler("cpu")
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), targets) * 1e34
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
```

## Use instead
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(4)]

scaler = torch.amp.GradScaler("cpu")
for epoch in range(3):
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), targets) * 1e34
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
```

## How it is confirmed
Executing two epochs shows another scaler object, with the scale back at its initial value.

## Fix safety
No fix is offered: a scaler that has to outlive a function becomes a parameter of it.

## Known limits
Silent where the optimizer is built in the same loop (folds, ensembles), where the scaler is built
under a test of itself or in an exception handler, stored in a container, returned, or restored
with `load_state_dict`. A function counts as "called per epoch" when a loop of the same file calls
it, or when its name says so (`train_one_epoch`).

## References
- PyTorch, Automatic Mixed Precision examples: "Creates a GradScaler once at the beginning of
  training"
- `torch/amp/grad_scaler.py`: `GradScaler.update`
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from amplint.findings import Finding, Severity
from amplint.project.dataflow import (
    Layout,
    arguments,
    bindings_of,
    bound_in,
    constant_of,
    layout_of,
    names_in,
    parameters,
    receiver,
    scaler_calls,
)
from amplint.project.module import CallSite, Function
from amplint.project.roles import ScalerConstruction, last_name, path_text
from amplint.rule import FileView, Rule

RULE = Rule(
    code="AMP119",
    name="scaler-recreated",
    severity=Severity.WARNING,
    effect="silent",
    summary="a `GradScaler` built per iteration or per epoch, so its scale is forgotten",
    facts=("S27", "S27b"),
)

#: Names of loops that train something new each time.
OTHER_TRAINING = re.compile(
    r"fold|seed|model|task|con?fi?g|trial|param|exp(?!oc)|lr|net|arch|stage|phase|client|rank"
    r"|method|dataset|split|ensemble|member|test|agent|generation|individual|round",
    re.IGNORECASE,
)
PER_EPOCH = re.compile(
    r"^_*(?:(?:do_|run_)?train(?:ing)?_?(?:one_?|an_?|single_?)?(?:epoch|step|batch|iter(?:ation)?)"
    r"|(?:one_?|run_?)epoch|epoch_?train)$",
    re.IGNORECASE,
)
IN_LOOP = (
    "each pass of the loop on line {row} builds a new GradScaler: the scale starts again at its "
    "initial value, and steps it had learned not to overflow are skipped again"
)
IN_FUNCTION = (
    "each call of `{name}` builds a new GradScaler: the scale starts again at its initial value, and "
    "steps it had learned not to overflow are skipped again"
)


def check(view: FileView) -> Iterator[Finding]:
    """Report constructions that are repeated while their optimizer stays the same."""
    reported: set[tuple[Function, str]] = set()
    for built in view.roles.constructions:
        where = (built.function, built.target)
        if where in reported or not _is_candidate(built):
            continue
        message = _repeated(view, built)
        if message:
            reported.add(where)
            target = built.target
            help = f"build `{target}` once, before the first epoch, and pass it in"
            yield view.finding(RULE, built.call, message, help)


def _is_candidate(built: ScalerConstruction) -> bool:
    layout = layout_of(built.function)
    if built.call not in layout or not built.target or "[" in built.target:
        return False
    enabled = [item.value for item in built.call.keywords if item.arg == "enabled"]
    if any(constant_of(value) is False for value in enabled):
        return False
    name = built.target.rpartition(".")[2]
    if any(name in ast.unparse(test) for test in layout.conditions(built.call)):
        return False
    return not any(isinstance(node, ast.ExceptHandler) for node in layout.ancestors(built.call))


def _repeated(view: FileView, built: ScalerConstruction) -> str:
    """The message if the construction is repeated, else ""."""
    layout = layout_of(built.function)
    loops = layout.loops(built.call)
    if loops:
        if _conditional(layout, built.call, loops[0]) or not _loop_uses(view, built, loops[0]):
            return ""
        return IN_LOOP.format(row=loops[0].lineno)  # type: ignore[attr-defined]
    function = built.function
    if function is view.module.body or not _function_uses(view, built):
        return ""
    if _is_called_in_loop(view, function) or _named_per_epoch(layout, function):
        return IN_FUNCTION.format(name=function.name)
    return ""


def _conditional(layout: Layout, call: ast.Call, loop: ast.AST) -> bool:
    for node in layout.ancestors(call):
        if node is loop:
            return False
        if isinstance(node, (ast.If, ast.Try)):
            return True
    return False


def _loop_uses(view: FileView, built: ScalerConstruction, loop: ast.AST) -> bool:
    """Whether the loop steps an optimizer from outside of it with the scaler."""
    layout = layout_of(built.function)
    if OTHER_TRAINING.search(_header(loop)):
        return False
    bound = bound_in(built.function, loop)
    for node in layout.inside(loop):
        if not isinstance(node, ast.Call) or not layout.before(built.call, node):
            continue
        steps = receiver(node) == built.target and last_name(node.func) == "step"
        takes = any(path_text(argument) == built.target for argument in arguments(node))
        optimizers = [
            argument
            for argument in arguments(node)
            if view.roles.is_optimizer(argument, built.function)
        ]
        names = {name for optimizer in optimizers for name in names_in(optimizer)}
        if (steps or takes) and names and not bound & names:
            return True
    return False


def _header(loop: ast.AST) -> str:
    if isinstance(loop, ast.While):
        return ast.unparse(loop.test)
    assert isinstance(loop, (ast.For, ast.AsyncFor))
    return f"{ast.unparse(loop.target)} {ast.unparse(loop.iter)}"


def _function_uses(view: FileView, built: ScalerConstruction) -> bool:
    """Whether the function runs the protocol alone, on an optimizer from outside of it."""
    function = built.function
    calls = [
        site
        for site in scaler_calls(view, "scale", "step", "load_state_dict")
        if site.function is function and receiver(site.node) == built.target
    ]
    methods = {site.method for site in calls}
    if "load_state_dict" in methods or not {"scale", "step"} <= methods or _escapes(built):
        return False
    steps = [site.node for site in calls if site.method == "step" and site.node.args]
    return bool(steps) and all(_comes_from_outside(function, step.args[0]) for step in steps)


def _escapes(built: ScalerConstruction) -> bool:
    layout = layout_of(built.function)
    for node in layout.nodes:
        if isinstance(node, (ast.Global, ast.Nonlocal)) and built.target in node.names:
            return True
        if not isinstance(node, (ast.Name, ast.Attribute)) or path_text(node) != built.target:
            continue
        parent = layout.parents[node]
        if isinstance(node.ctx, ast.Load) and isinstance(
            parent, (ast.Return, ast.Tuple, ast.List, ast.Dict, ast.Assign, ast.Yield)
        ):
            return True
    return False


def _comes_from_outside(function: Function, optimizer: ast.expr) -> bool:
    path = path_text(optimizer)
    if path is None or "[*]" in path:
        return False
    if path.startswith("self.") or path in parameters(function):
        return path not in bindings_of(function)
    bindings = bindings_of(function).get(path, [])
    return all(binding.value and path_text(binding.value) for binding in bindings)


def _is_called_in_loop(view: FileView, function: Function) -> bool:
    return any(
        site.node in layout_of(site.function) and _runs_per_epoch(view, site)
        for site in view.module.calls
        if site.method == function.name
        and receiver(site.node) == ("" if function.owner is None else "self")
    )


def _runs_per_epoch(view: FileView, site: CallSite) -> bool:
    layout = layout_of(site.function)
    loops = layout.loops(site.node)
    if not loops or any(OTHER_TRAINING.search(_header(loop)) for loop in loops):
        return False
    bound = bound_in(site.function, loops[0])
    for argument in arguments(site.node):
        if view.roles.is_optimizer(argument, site.function) and names_in(argument) & bound:
            return False
    return True


def _named_per_epoch(layout: Layout, function: Function) -> bool:
    """Whether the name says "once per epoch" and the body has no loop over epochs."""
    if not PER_EPOCH.search(function.name):
        return False
    loops = [node for node in layout.nodes if isinstance(node, (ast.For, ast.While))]
    return not any("epoch" in _header(loop).lower() for loop in loops)
