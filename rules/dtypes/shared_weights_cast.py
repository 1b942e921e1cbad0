"""# shared-weights-cast (AMP405)

The model that is being trained is cast to half for evaluation or export, and not cast back.

## What it does
Flags `model.half()` and `model.to(torch.float16)` inside a training loop, or in a function or
method that a training loop calls with the trained model, if nothing casts it back to float32
afterwards. It is a warning where unknown code is given the model behind the cast, and may cast it
back, and where an option chooses the dtype.

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
A cast back anywhere in the function or in the loop, also on some paths only, counts. The trained
model is the one whose `parameters()` the code around the backward uses, or else one that it calls;
a loop that hands its model to unknown code for training is not judged.

## References
- `torch.nn.Module.half`: "This method modifies the module in-place"
- `torch/amp/grad_scaler.py`: `_unscale_grads_`
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from amplint.amp import links
from amplint.amp.halves import Cast, cast_of
from amplint.amp.model_uses import casts_to, is_trained, renewals, same_model, uses_of
from amplint.code.arguments import bind
from amplint.code.dataflow import parameters
from amplint.code.expressions import last_name, path_text
from amplint.code.layout import layout_of
from amplint.code.module import CallSite, Function, enclosing_class
from amplint.expectations import HALF_GRADIENTS, caused
from amplint.findings import Finding, Link, Severity, Standing
from amplint.rule import Rule
from amplint.values.assumptions import may_run
from amplint.values.conditions import conditions_at
from amplint.values.provenance import Activation, Firmness, Origin, Step
from amplint.view import FileView

RULE = Rule(
    code="AMP405",
    name="shared-weights-cast",
    severity=Severity.ERROR,
    effect="crash",
    summary="the trained model is cast to half for evaluation and not cast back",
    facts=("H01", "H24"),
    probe=caused("casts", *HALF_GRADIENTS, "protocol"),
)

CAST = (
    "`{cast}` casts the trained model in place{when}: the next step finds float16 "
    "parameters{unless}"
)
HELP = "cast a copy (`copy.deepcopy({model}).half()`), or evaluate under autocast"


@dataclass(frozen=True, slots=True, eq=False)
class _Training:
    """A loop that trains the model that is cast.

    Args:
        function: holds the loop.
        path: what that function calls the model.
        steps: from the loop's call to the cast.
    """

    loop: ast.AST
    function: Function
    path: str
    steps: tuple[Step, ...]


def check(view: FileView) -> Iterator[Finding]:
    """Report casts of trained models inside, or called from, training loops."""
    for site in view.module.calls:
        if site.method not in ("half", "to") or not isinstance(site.node.func, ast.Attribute):
            continue
        written = path_text(site.node.func.value)
        if written is None or site.node not in layout_of(site.function):
            continue
        path = same_model(written, site.function)
        cast = cast_of(view, site.node, Origin(site.node, site.function))
        if cast is None or cast.dtype != "float16" or _cast_back(view, site, path):
            continue
        training = next(_in_training(view, site, path), None)
        if training is not None:
            yield _finding(view, site, cast, training)


def _cast_back(view: FileView, site: CallSite, path: str) -> bool:
    """Whether the function, or another method of the class, casts the model to another dtype."""
    owner = enclosing_class(site.function)
    functions = [site.function]
    if owner is not None and path.startswith("self."):
        functions = [item for item in view.module.functions if enclosing_class(item) is owner]
    return any(_casts_back(view, path, item, layout_of(item).nodes) for item in functions)


def _casts_back(view: FileView, path: str, function: Function, nodes: list[ast.AST]) -> bool:
    """Whether a cast among some nodes makes the model another dtype, or a copy keeps it."""
    return any(
        last_name(use.call.func) == "deepcopy" or casts_to(view, use) not in (None, "float16")
        for use in uses_of(view, path, function, nodes)
    )


def _in_training(view: FileView, site: CallSite, path: str) -> Iterator[_Training]:
    """The loops that reach the cast with the model that they train."""
    function = site.function
    step = Step(site.node, function.module, "the parameters become float16")
    yield from _loops(view, path, function, site.node, (step,))
    for call in view.objects.calls_of(function):
        outer = _passed(site, call, path)
        activation = Activation(function, call.node, call.function)
        if outer is None or not may_run(view.values, site.node, function, activation):
            continue
        words = f"`{function.name}` is called with the trained model"
        steps = (Step(call.node, call.function.module, words), step)
        yield from _loops(view, outer, call.function, call.node, steps)


def _loops(
    view: FileView, path: str, function: Function, node: ast.AST, steps: tuple[Step, ...]
) -> Iterator[_Training]:
    """The loops around a node that train the model round after round, and never cast it back."""
    layout = layout_of(function)
    for loop in view.objects.loops(node, function):
        if any(layout.holds(loop, statement) for statement in renewals(path, function)):
            return
        nodes = layout.inside(loop)
        if is_trained(view, path, function, nodes):
            if not _casts_back(view, path, function, nodes):
                last = Step(loop, function.module, "the loop trains the same model again")
                yield _Training(loop, function, path, (*steps, last))
            return


def _passed(site: CallSite, call: CallSite, path: str) -> str | None:
    """What the caller calls the model; None where the callee does not share it."""
    function, layout = site.function, layout_of(site.function)
    if any(layout.reaches(statement, site.node) for statement in renewals(path, function)):
        return None
    if path.startswith("self."):
        receiver = call.node.func.value if isinstance(call.node.func, ast.Attribute) else None
        return path if receiver is not None and path_text(receiver) == "self" else None
    if path not in parameters(function):
        return None
    argument = bind(call.node, function).given.get(path)
    text = path_text(argument) if argument is not None else None
    return same_model(text, call.function) if text is not None else None


def _unknown_code(view: FileView, site: CallSite, path: str, training: _Training) -> str:
    """What is given the model behind the cast and is not in sight; "" for nothing."""
    layout, function = layout_of(site.function), site.function
    later = [node for node in layout.nodes if layout.reaches(site.node, node)]
    around = layout_of(training.function).inside(training.loop)
    places = ((path, function, later), (training.path, training.function, around))
    found = (use for place in places for use in uses_of(view, *place) if not use.followed)
    return next((view.source_of(use.call.func) for use in found), "")


def _finding(view: FileView, site: CallSite, cast: Cast, training: _Training) -> Finding:
    assert isinstance(site.node.func, ast.Attribute)
    written = path_text(site.node.func.value) or ""
    unknown = _unknown_code(view, site, same_model(written, site.function), training)
    tests = [view.source_of(item.test) for item in conditions_at(site.node, site.function)[:1]]
    message = CAST.format(
        cast=view.source_of(site.node),
        when=f" (it depends on `{tests[0]}`)" if tests else "",
        unless=f" unless `{unknown}(...)` does" if unknown else "",
    )
    return view.finding(
        RULE,
        site.node,
        message,
        HELP.format(model=written),
        path=tuple(view.step(step.node, step.module, step.words) for step in training.steps),
        links=_links(view, site, cast, written, unknown),
    )


def _links(
    view: FileView, site: CallSite, cast: Cast, written: str, unknown: str
) -> Iterator[Link]:
    """What the finding rests on: which dtype it is, and what else could cast the model."""
    trained = links.model(view, site.node.func.value, site.function, is_run=True)  # type: ignore[attr-defined]
    yield Link("object", trained.standing, written, "is the trained model")
    yield links.proved("effect", site.node, "casts it in place")
    if unknown:
        yield Link("effect", Standing.OPEN, unknown, "is given the model and may cast it back")
    if cast.value is not None and cast.value.firmness is Firmness.CHOICE:
        test = next(iter(conditions_at(site.node, site.function)), None)
        chosen = view.source_of(site.node if test is None else test.test)
        yield Link("value", Standing.OPTION, chosen, "is set, which is not its default")
