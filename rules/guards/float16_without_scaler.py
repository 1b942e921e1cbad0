"""# float16-without-scaler (AMP206)

A model is trained under float16 autocast and nothing scales its loss.

## What it does
Flags a float16 autocast region whose loss goes into a plain `backward()` before an optimizer step,
in the same function or in one that gets the loss returned, if neither these files nor their callers
mention a gradient scaler or a training library that brings one. As advice, where there is a scaler:
a forward that one branch of a training step runs outside autocast, while the other one runs it
inside.

## Why is this bad?
Gradients inside the region are float16: what is smaller than 6e-8 becomes zero on its way back. In
the measured model 76 % of all gradient entries were zero without a scaler and none with it. Nothing
is raised; layers with small gradients just stop training. In the example no parameter moves at all.

## Example
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
loader = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(4)]

for inputs, targets in loader:
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        outputs = model(inputs)
    loss = 1e-8 * torch.nn.functional.mse_loss(outputs.float(), targets)
    loss.backward()
    optimizer.step()
```

## Use instead
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
loader = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(4)]

for inputs, targets in loader:
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        outputs = model(inputs)
    loss = 1e-8 * torch.nn.functional.mse_loss(outputs.float(), targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
```

## How it is confirmed
Executing the step: no scaler takes part, and where the loss is small, gradients are exactly zero
that are not zero without autocast.

## Fix safety
No fix is offered: a scaler is built in one place and used in three, and the checkpoint should hold
its state. Where the hardware has bfloat16, `dtype=torch.bfloat16` needs no scaler.

## Known limits
Only where the dtype is surely float16: given so, or left to CUDA's default. The loss is followed
through plain assignments. Where a file that takes part builds a scaler, uses one, or uses a
class of a library that has one, nothing is said; a name that speaks of a scaler makes it `info`. Branches are
compared within one function, and not under tests about AMP, precision or the device, or of a
parameter that stays the same for the whole call.

## References
- PyTorch, Automatic Mixed Precision package: "Gradient Scaling"
- PyTorch, Automatic Mixed Precision examples: "Typical Mixed Precision Training"
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from amplint.amp import links
from amplint.amp.library_objects import names_training
from amplint.amp.roles import Role, roles_of
from amplint.amp.scaler_calls import scaler_calls
from amplint.amp.uses import uses_of
from amplint.code.dataflow import bindings_of, parameters
from amplint.code.definitions import returned
from amplint.code.expressions import last_name, path_text
from amplint.code.layout import Layout, layout_of
from amplint.code.module import Function, Module, enclosing_class, walk
from amplint.expectations import measured
from amplint.findings import Finding, Link, Severity, Standing
from amplint.regions.callers import Callers
from amplint.regions.regions import Inside, Region, opening_words
from amplint.regions.training import is_backward, stepped_optimizer
from amplint.rule import Rule
from amplint.values.objects import Objects
from amplint.view import FileView

RULE = Rule(
    code="AMP206",
    name="float16-without-scaler",
    severity=Severity.WARNING,
    effect="silent",
    summary="training under float16 autocast without a gradient scaler",
    facts=("H10",),
    probe=measured("unscaled", "protocol"),
)

#: Words of a scaler, or of a library that has one.
SCALES = re.compile(
    r"scaler|loss_?scal|accelerat|lightning|deepspeed|apex|fabric|colossal|bmtrain|fairscale"
    r"|composer|mmcv|mmengine|unscale|GradScal",
    re.IGNORECASE,
)
NO_GRADIENTS = frozenset(("no_grad", "inference_mode", "eval_mode"))
#: The loss is followed through this many callers.
DEPTH = 2

MESSAGE = "nothing scales the loss of this float16 autocast{condition}: gradients below 6e-8 vanish"
ONE_BRANCH = "this branch runs `{call}` outside autocast, the other one inside (line {row})"
HELP_BRANCH = "open one autocast around both branches, or `enabled=False` where float32 is meant"
#: Words of a test that decides about precision.
SWITCH = re.compile(
    r"amp|fp16|fp32|half|float|dtype|precision|autocast|scal|cuda|device", re.IGNORECASE
)
HELP = (
    "scale the loss: `scaler.scale({loss}).backward()`, `scaler.step({optimizer})`, "
    "`scaler.update()`; or use `dtype=torch.bfloat16`"
)


@dataclass(frozen=True, slots=True, eq=False)
class Training:
    """The plain backward of a loss, and the step behind it.

    Args:
        scaling: how it is known that something scales after all; None where nothing says so.
    """

    function: Function
    backward: ast.Call
    step: ast.Call
    scaling: Standing | None = None


def check(view: FileView) -> Iterator[Finding]:
    """Report float16 regions whose loss is trained on without a scaler, once for each step.

    Where there is a scaler: forwards that one branch of a training step runs outside autocast.
    """
    if view.module.once(_scales) is Standing.CODE:
        yield from _branches_without(view)
        return
    reported: set[ast.Call] = set()
    for region in view.regions.opened(view.module):
        if region.cast.dtypes != {"float16"} or _without_gradients(region.opened, region.function):
            continue
        training = _training(view, region)
        if training is not None and training.step not in reported:
            reported.add(training.step)
            yield _finding(view, region, training)


def _finding(view: FileView, region: Region, training: Training) -> Finding:
    module = training.function.module
    condition = " ".join(region.cast.condition.split())
    assert isinstance(training.backward.func, ast.Attribute)
    assert isinstance(training.step.func, ast.Attribute)
    words = {
        "loss": view.source_of(training.backward.func.value),
        "optimizer": view.source_of(training.step.func.value),
    }
    path = (
        view.step(region.opened, region.function.module, opening_words(view, region)),
        view.step(training.backward, module, "the gradients come back unscaled"),
        view.step(training.step, module, "the optimizer applies them"),
    )
    message = MESSAGE.format(condition=f" (where `{condition}`)" if condition else "")
    rests = (
        region.link,
        links.participant(view, training.step.func.value, training.function, Role.OPTIMIZER),
        Link(
            "effect",
            training.scaling or Standing.CODE,
            ast.unparse(training.backward),
            "gives unscaled gradients",
        ),
    )
    help = HELP.format_map(words)
    return view.finding(RULE, region.opened, message, help, path=path, links=rests)


def _branches_without(view: FileView) -> Iterator[Finding]:
    """Forwards of a model that another branch of the same training step runs in a region."""
    reported: set[ast.Call] = set()
    for region in view.regions.opened(view.module):
        always_on = region.cast.enabled is True and not region.conditional
        if not always_on or region.opened not in layout_of(region.function):
            continue
        for call, inside in _outside(view, region):
            if call not in reported:
                reported.add(call)
                words = {"call": view.source_of(call.func), "row": inside.lineno}
                path = (view.step(inside, view.module, "here it runs under autocast"),)
                damage = Link("damage", Standing.HARMLESS, words["call"], "runs in float32")
                message = ONE_BRANCH.format_map(words)
                model = links.model(view, call.func, region.function, is_run=True)
                rests = (model, region.link, damage)
                yield view.finding(RULE, call, message, HELP_BRANCH, path=path, links=rests)


def _outside(view: FileView, region: Region) -> Iterator[tuple[ast.Call, ast.Call]]:
    """Calls outside a region that exclude one inside it, of the same model, for one backward."""
    layout = layout_of(region.function)
    inside = [
        node for part in region.parts for node in layout.inside(part) if isinstance(node, ast.Call)
    ]
    scales = [site.node for site in scaler_calls(view, "scale", within=region.function)]
    for first in inside if scales else ():
        name = path_text(first.func)
        for other in layout.nodes:
            if not isinstance(other, ast.Call) or name is None or path_text(other.func) != name:
                continue
            if other in inside or not layout.exclusive(first, other):
                continue
            if _is_meant(layout, other, first, region.function):
                continue
            if not _may_be_model(view, first, region.function):
                continue
            if any(layout.reaches(first, s) and layout.reaches(other, s) for s in scales):
                yield other, first


def _may_be_model(view: FileView, call: ast.Call, function: Function) -> bool:
    """Whether a call runs a module, or what nothing in sight defines."""
    if links.model(view, call.func, function).standing is not Standing.GUESS:
        return True
    is_known = view.objects.callee(call, function) or function.module.resolve(call.func)
    return not is_known and bool(call.args)


def _is_meant(layout: Layout, call: ast.Call, other: ast.Call, function: Function) -> bool:
    """Whether a call is meant as it is: under a context of its own, or behind a switch.

    A switch is a test about AMP, or of a parameter that stays the same for the whole call. What
    also stands around the other branch's call tells nothing.
    """
    blocks = (
        node
        for node in layout.ancestors(call)
        if isinstance(node, (ast.With, ast.AsyncWith)) and not layout.holds(node, other)
    )
    contexts = [item.context_expr for block in blocks for item in block.items]
    tests = layout.conditions(call)
    words = " ".join(map(ast.unparse, tests))
    fixed = parameters(function).keys() - bindings_of(function).keys()
    switched = any(isinstance(test, ast.Name) and test.id in fixed for test in tests)
    return bool(contexts) or switched or SWITCH.search(words) is not None


def _without_gradients(node: ast.AST, function: Function) -> bool:
    """Whether no graph is recorded where a node of a function, or its decorator, runs."""
    layout = layout_of(function)
    around = [*layout.ancestors(node)] if node in layout else []
    blocks = [node for node in around if isinstance(node, (ast.With, ast.AsyncWith))]
    contexts = [item.context_expr for block in blocks for item in block.items]
    contexts += getattr(function.node, "decorator_list", [])
    return any(names_of(context) & NO_GRADIENTS for context in contexts)


def names_of(expression: ast.expr) -> set[str]:
    """The last names of an expression's parts."""
    return {last_name(node) for node in walk(expression) if isinstance(node, ast.expr)}


def _training(view: FileView, region: Region) -> Training | None:
    objects = view.regions.objects
    callers = Callers(view.regions)
    start = {
        path
        for part in region.parts
        for node in layout_of(region.function).inside(part)
        if (path := _bound_path(node)) is not None
    }
    if region.opened in getattr(region.function.node, "decorator_list", ()):
        start = set()
    pending = [(region.function, start, not start, 0)]
    while pending:
        function, names, returns_all, depth = pending.pop(0)
        names = _derived(function, names)
        found = _trained_on(view, function, names)
        if found is not None:
            scaling = _scaling(objects, callers, found, function)
            return None if scaling is Standing.CODE else replace(found, scaling=scaling)
        gives = returns_all or any(_mentions(value, names) for value in returned(function))
        if not gives or depth >= DEPTH:
            continue
        for call, caller in callers.callers(function):
            holding = layout_of(caller)
            if call not in holding or _without_gradients(call, caller):
                continue
            targets = _targets(holding.statement(call))
            if targets:
                pending.append((caller, targets, False, depth + 1))
    return None


def _bound_path(node: ast.AST) -> str | None:
    """The path that a name or attribute is written to."""
    if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
        return path_text(node)
    return None


def _targets(statement: ast.stmt) -> set[str]:
    paths = (_bound_path(node) for node in walk(statement))
    return {path for path in paths if path is not None}


def _derived(function: Function, names: set[str]) -> set[str]:
    """The names, and those assigned from them in source order."""
    found = set(names)
    for node in layout_of(function).nodes:
        if not isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
            continue
        if node.value is not None and _mentions(node.value, found):
            found |= _targets(node)
    return found


def _mentions(value: ast.expr, names: set[str]) -> bool:
    return any(path_text(node) in names for node in walk(value) if isinstance(node, ast.expr))


def _trained_on(view: FileView, function: Function, names: set[str]) -> Training | None:
    """A plain backward of one of the names, and a plain optimizer step behind it."""
    regions = view.regions
    layout = layout_of(function)
    calls = [node for node in layout.nodes if isinstance(node, ast.Call)]
    passes = [call for call in calls if _is_plain_backward(call, names)]
    steps = [
        call
        for call in calls
        if not call.args and stepped_optimizer(regions, Inside(call, function)) is not None
    ]
    for backward in passes:
        if not is_backward(regions, Inside(backward, function)):
            continue
        for step in steps:
            if layout.reaches(backward, step):
                return Training(function, backward, step)
    return None


def _is_plain_backward(call: ast.Call, names: set[str]) -> bool:
    callee = call.func
    if not isinstance(callee, ast.Attribute) or callee.attr != "backward" or call.args:
        return False
    return path_text(callee.value) in names


def _scaling(
    objects: Objects, callers: Callers, training: Training, function: Function
) -> Standing | None:
    """How it is known that a file that takes part in the training scales; None if none does."""
    modules: set[Module] = {training.function.module}
    owner = enclosing_class(training.function)
    if owner is not None:
        modules |= {item.module for item in objects.ancestry(owner)}
    modules |= {caller.module for _, caller in callers.callers(training.function)}
    assert isinstance(training.step.func, ast.Attribute)
    for binding in objects.bindings(training.step.func.value, function) or ():
        modules.add(binding.function.module)
    found = {module.once(_scales) for module in modules}
    return next((item for item in (Standing.CODE, Standing.GUESS) if item in found), None)


def _scales(module: Module) -> Standing | None:
    """Whether a file has a scaler, or a library that does, or only names that speak of one."""
    if roles_of(module).constructions or module.once(uses_of).scalers:
        return Standing.CODE
    if names_training(module):
        return Standing.CODE
    return Standing.GUESS if _speaks_of_scaling(module) else None


def _speaks_of_scaling(module: Module) -> bool:
    """Whether a name in a file speaks of a scaler; what comments say does not count."""
    return SCALES.search(module.source) is not None and any(
        SCALES.search(text)
        for node in walk(module.tree)
        for text in (
            getattr(node, field, None) for field in ("id", "attr", "arg", "name", "module")
        )
        if isinstance(text, str)
    )
