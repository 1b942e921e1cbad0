"""# shared-weights-cast (AMP405)

The model that is being trained is cast to half for evaluation or export, and not cast back.

## What it does
Flags `model.half()` and `model.to(torch.float16)` inside a training loop, or in a function or
method that a training loop calls with the trained model, if nothing casts it back to float32
afterwards.

## Why is this bad?
`half()` on a module works in place and returns the same module: the parameters that the optimizer
holds become float16. The evaluation is fine; the next training step is not. With a GradScaler it
raises `ValueError: Attempting to unscale FP16 gradients.`, without one the weights have lost 13
bits for good and small updates vanish. `.float()` afterwards cures the exception, not the rounding.

## Example
```python
import torch


def evaluate(model, inputs):
    model.half()
    with torch.no_grad():
        return model(inputs.half()).float().mean().item()


model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
loader = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(4)]

for epoch in range(2):
    for inputs, targets in loader:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            outputs = model(inputs)
        loss = torch.nn.functional.mse_loss(outputs.float(), targets)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    evaluate(model, loader[0][0])
```

## Use instead
```python
import copy

import torch


def evaluate(model, inputs):
    served = copy.deepcopy(model).half()
    with torch.no_grad():
        return served(inputs.half()).float().mean().item()


model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
loader = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(4)]

for epoch in range(2):
    for inputs, targets in loader:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            outputs = model(inputs)
        loss = torch.nn.functional.mse_loss(outputs.float(), targets)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    evaluate(model, loader[0][0])
```

## How it is confirmed
Executing two epochs raises the exception in the second one.

## Fix safety
No fix. Evaluate under autocast, or cast a copy (`copy.deepcopy(model).half()`).

## Known limits
A cast back anywhere behind the cast, also on some paths only, counts. The trained model is known
by its name in the loop: it is given to the optimizer or to a function that trains.

## References
- `torch.nn.Module.half`: "This method modifies the module in-place"
- `torch/amp/grad_scaler.py`: `_unscale_grads_`
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from amplint.amp.halves import cast_of
from amplint.code.arguments import bind
from amplint.code.dataflow import parameters
from amplint.code.expressions import last_name, path_text
from amplint.code.layout import Layout, layout_of
from amplint.code.module import CallSite, Function, enclosing_class
from amplint.findings import Finding, Severity
from amplint.rule import Rule
from amplint.values.conditions import conditions_at
from amplint.values.provenance import Activation, Origin, Step
from amplint.view import FileView

RULE = Rule(
    code="AMP405",
    name="shared-weights-cast",
    severity=Severity.ERROR,
    effect="crash",
    summary="the trained model is cast to half for evaluation and not cast back",
    facts=("H01", "H24"),
)

CAST = (
    "`{cast}` casts the trained model in place, and nothing casts it back: the next training step "
    "finds float16 parameters"
)
HELP = "cast a copy (`copy.deepcopy({model}).half()`), or evaluate under autocast"

#: Calls that train.
_TRAINS = re.compile(r"train|fit|backward|optimi[sz]e|update", re.IGNORECASE)
_DTYPE = re.compile(r"16|half|type|prec", re.IGNORECASE)
_TRAINS_NOT = re.compile(r"load|log|save|print|progress|meter|metric|pbar|trainer$", re.IGNORECASE)


def check(view: FileView) -> Iterator[Finding]:
    """Report casts of trained models inside, or called from, training loops."""
    for site in view.module.calls:
        if site.method not in ("half", "to") or not isinstance(site.node.func, ast.Attribute):
            continue
        path = path_text(site.node.func.value)
        if path is None or site.node not in layout_of(site.function):
            continue
        if site.method == "to" and not _names_a_dtype(site.node):
            continue
        cast = cast_of(view, site.node, Origin(site.node, site.function))
        if cast is None or cast.dtype != "float16" or _cast_back(view, site, path):
            continue
        steps = next(_in_training(view, site, path), None)
        if steps is not None:
            yield _finding(view, site, path, steps)


def _names_a_dtype(call: ast.Call) -> bool:
    """Whether `.to(...)` may be about more than a device, by its words."""
    return any(_DTYPE.search(ast.unparse(item)) for item in (*call.args, *call.keywords))


def _cast_back(view: FileView, site: CallSite, path: str) -> bool:
    """Whether the function, or another method of the class, casts the model to another dtype."""
    owner = enclosing_class(site.function)
    functions = [site.function]
    if owner is not None and path.startswith("self."):
        functions = [item for item in view.module.functions if enclosing_class(item) is owner]
    for function in functions:
        for node in layout_of(function).nodes:
            if node is site.node or not isinstance(node, ast.Call):
                continue
            if isinstance(node.func, ast.Attribute) and path_text(node.func.value) == path:
                cast = cast_of(view, node, Origin(node, function))
                if cast is not None and cast.dtype != "float16":
                    return True
            elif last_name(node.func) == "deepcopy" and path in map(path_text, node.args):
                return True
    return False


def _in_training(view: FileView, site: CallSite, path: str) -> Iterator[tuple[Step, ...]]:
    """The ways on which a training loop reaches the cast with the model that it trains."""
    module, function = site.function.module, site.function
    step = Step(site.node, module, "the parameters become float16")
    loop = _training_loop(layout_of(function), site.node, path)
    if loop is not None:
        yield (step, Step(loop, module, "the loop trains the same model again"))
        return
    for call in view.objects.calls_of(function):
        outer = _passed(function, call, path)
        if outer is None or not _may_run(view, site, function, call):
            continue
        layout = layout_of(call.function)
        if call.node not in layout:
            continue
        loop = _training_loop(layout, call.node, outer)
        if loop is not None:
            there = call.function.module
            words = f"`{function.name}` is called with the trained model"
            yield (
                Step(call.node, there, words),
                step,
                Step(loop, there, "the loop trains the same model again"),
            )


def _passed(function: Function, call: CallSite, path: str) -> str | None:
    """What the caller calls the model; None where the callee does not share it."""
    if path.startswith("self."):
        receiver = call.node.func.value if isinstance(call.node.func, ast.Attribute) else None
        return path if receiver is not None and path_text(receiver) == "self" else None
    if path not in parameters(function):
        return None
    argument = bind(call.node, function).given.get(path)
    return path_text(argument) if argument is not None else None


def _may_run(view: FileView, site: CallSite, function: Function, call: CallSite) -> bool:
    """Whether the conditions around the cast may hold for this call."""
    activation = Activation(function, call.node, call.function)
    return all(
        item.side in view.values.truth(item.test, function, activation)
        for item in conditions_at(site.node, function)
    )


def _training_loop(layout: Layout, node: ast.AST, path: str) -> ast.AST | None:
    """A loop around a node that also trains the model of this name."""
    for loop in layout.loops(node):
        for other in layout.inside(loop):
            if isinstance(other, ast.Call) and other is not node and _trains(other, path, layout):
                return loop
    return None


def _trains(call: ast.Call, path: str, layout: Layout) -> bool:
    name = last_name(call.func)
    if path in map(path_text, [*call.args, *(item.value for item in call.keywords)]):
        return bool(_TRAINS.search(name)) and not _TRAINS_NOT.search(name)
    if isinstance(call.func, ast.Attribute) and path_text(call.func.value) == "self":
        return path.startswith("self.") and bool(_TRAINS.search(name))
    if name != "backward":
        return False
    return any(
        isinstance(node, ast.Attribute)
        and node.attr == "parameters"
        and path_text(node.value) == path
        for node in layout.nodes
    )


def _finding(view: FileView, site: CallSite, path: str, steps: tuple[Step, ...]) -> Finding:
    places = tuple(view.step(step.node, step.module, step.words) for step in steps)
    message = CAST.format(cast=view.source_of(site.node))
    return view.finding(RULE, site.node, message, HELP.format(model=path), path=places)
