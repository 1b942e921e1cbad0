"""# float16-parameters-with-scaler (AMP401)

The optimizer that a GradScaler steps holds float16 parameters.

## What it does
Flags the place where parameters of a trained model become float16, if a scaler steps the
optimizer that owns them: `model.half()`, `model.to(torch.float16)`, a dtype argument of a layer or
of `from_pretrained`, in any file. The dtype may arrive through a default, a field of a
configuration or a constructor argument; the path of the finding shows how.

## Why is this bad?
The gradients of float16 parameters are float16, and the scaler refuses to unscale those: the
rounding would happen before the division. `scaler.unscale_` and `scaler.step` raise
`ValueError: Attempting to unscale FP16 gradients.` at the first step. One float16 layer is enough.
On a machine without CUDA the scaler is off and the same code trains, so a test on a laptop says
nothing. Autocast needs no help: it casts float32 weights for each matrix product by itself and
keeps the master copy, which is what mixed precision means.

## Example
```python
import torch

model = torch.nn.Linear(4, 1)
model.half()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
loader = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(4)]

for inputs, targets in loader:
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        outputs = model(inputs)
    loss = torch.nn.functional.mse_loss(outputs.float(), targets)
    scaler.scale(loss).backward()
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
    with torch.autocast("cpu", dtype=torch.float16):
        outputs = model(inputs)
    loss = torch.nn.functional.mse_loss(outputs.float(), targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
```

## How it is confirmed
Executing one step raises the exception.

## Fix safety
No fix: where the dtype comes from is a decision (memory, a frozen base with float32 adapters).

## Known limits
Besides torch's own scalers, Accelerate's is known (`mixed_precision="fp16"`). Silent where adapters
are used or something is frozen around the model (which parameters train is then not in sight), and
where the optimizer takes some of its parameters by name. Of those that ask for a gradient it is only
sure where all parameters of the model were cast and nothing out of sight gets it afterwards. Silent
for fused optimizers, which accept float16 gradients, and for a scaler whose `_unscale_grads_` the
code replaces. An optimizer of the project's own counts where its constructor hands on what it is
given. Where code out of sight builds the optimizer of the one module that it is given, nothing
proves that it takes all parameters: a warning. A checkpoint that was saved in float16 and loaded
without a dtype is not seen.

## References
- PyTorch, Automatic Mixed Precision package: "Do not call half() on your model"
- `torch/amp/grad_scaler.py`: `_unscale_grads_`
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from amplint.amp import links
from amplint.amp.halves import Half
from amplint.amp.owned_halves import owned_halves
from amplint.amp.ownership import Owned, is_fused, owned_modules
from amplint.amp.passes import is_of_a_pass
from amplint.amp.scaling import (
    AcceleratedStep,
    ScalerUse,
    accelerated_steps,
    scaler_uses,
    unscales_otherwise,
)
from amplint.code.dataflow import arguments
from amplint.code.module import CallSite
from amplint.expectations import HALF_GRADIENTS, raises
from amplint.findings import Finding, Severity, shorten
from amplint.rule import Rule
from amplint.values.assumptions import Assumptions
from amplint.values.conditions import conditions_at
from amplint.values.provenance import Condition, Firmness, Step, same_call
from amplint.view import FileView

RULE = Rule(
    code="AMP401",
    name="float16-parameters-with-scaler",
    severity=Severity.ERROR,
    effect="crash",
    summary="a GradScaler steps an optimizer that holds float16 parameters",
    facts=("H01", "H01b", "H02", "H03", "H04"),
    probe=raises(*HALF_GRADIENTS, anywhere=True),
)

CAST = (
    "`{model}` has float16 parameters{when}{unless}: `ValueError: Attempting to unscale FP16 "
    "gradients.`"
)
HELP = "keep the parameters in float32 (`dtype=torch.float32`); autocast casts what is worth it"


def check(view: FileView) -> Iterator[Finding]:
    """Report float16 parameters behind a scaler's steps, the user's own or Accelerate's."""
    seen: set[ast.AST] = set()
    for site, owned, half in (*_with_scaler(view), *_with_accelerator(view)):
        anchor = _anchor(view, site, owned, half)
        if anchor not in seen:
            seen.add(anchor)
            yield _finding(view, anchor, site, owned, half)


def _with_scaler(view: FileView) -> Iterator[tuple[CallSite, Owned, Half]]:
    for use in scaler_uses(view, "step", "unscale_"):
        if not use.site.node.args or unscales_otherwise(view, use.built):
            continue
        optimizer = use.site.node.args[0]
        every = owned_modules(view, optimizer, use.site.function, unseen=True)
        beside = (owned for owned in every if same_call(use.built, owned.optimizer))
        for owned, half in _halves(view, use.site, beside):
            if _scaled(view, use, owned, half):
                yield use.site, owned, half


def _with_accelerator(view: FileView) -> Iterator[tuple[CallSite, Owned, Half]]:
    for step in accelerated_steps(view):
        assert isinstance(step.site.node.func, ast.Attribute)
        if unscales_otherwise(view, step.accelerator):
            continue
        every = owned_modules(view, step.site.node.func.value, step.site.function)
        for owned, half in _halves(view, step.site, every):
            if _runs_in_float16(view, step, half):
                yield step.site, owned, half


def _halves(view: FileView, site: CallSite, every: Iterable[Owned]) -> Iterator[tuple[Owned, Half]]:
    plain = [owned for owned in every if not is_fused(view, owned.optimizer)]
    return owned_halves(view, plain, site.node)


def _runs_in_float16(view: FileView, step: AcceleratedStep, half: Half) -> bool:
    """Whether Accelerate makes a scaler where the parameters are float16."""
    facts = Assumptions.of(view.values, half.conditions)
    if "mixed_precision" in facts.known:
        return facts.known["mixed_precision"] == "fp16"
    if step.mixed_precision is None or half.conditions:
        return False
    possible = view.values.of(step.mixed_precision, step.accelerator.function)
    return any(value.content == "fp16" for value in possible.by_default())


def _scaled(view: FileView, use: ScalerUse, owned: Owned, half: Half) -> bool:
    """Whether the scaler is built, enabled and used where the parameters are float16."""
    facts = Assumptions.of(view.values, half.conditions)
    if half.value is not None:
        facts.assume(half.value.node, half.value.content, half.value.origin.function)
        for argument in _giving(view, half):
            facts.assume(argument, half.value.content, half.function)
    guards = [
        *use.built.conditions,
        *owned.optimizer.conditions,
        *conditions_at(use.site.node, use.site.function),
    ]
    enabled = use.enabled
    if enabled is not None:
        guards.append(Condition(enabled, True, use.switching))
    if not _pass(facts, guards, half, use.site):
        return False
    callers = [
        call
        for call in view.objects.calls_of(use.site.function)
        if call.function is not call.function.module.body
    ]
    ways = (conditions_at(call.node, call.function) for call in callers)
    return not callers or any(_pass(facts, way, half, call) for call, way in zip(callers, ways))


def _giving(view: FileView, half: Half) -> Iterator[ast.expr]:
    """The arguments of a cast that the dtype may be."""
    assert half.value is not None
    for argument in arguments(half.node) if isinstance(half.node, ast.Call) else ():
        possible = view.values.of(argument, half.function)
        if any(value.node is half.value.node for value in possible.values):
            yield argument


def _parts(guard: Condition) -> Iterator[Condition]:
    """The conditions that hold where one does: each operand of an `and` that is true."""
    test = guard.test
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _parts(Condition(test.operand, not guard.side, guard.function))
    elif isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) is guard.side:
        for operand in test.values:
            yield from _parts(Condition(operand, guard.side, guard.function))
    else:
        yield guard


def _pass(facts: Assumptions, guards: Iterable[Condition], half: Half, site: CallSite) -> bool:
    return all(_passes(facts, part, half, site) for guard in guards for part in _parts(guard))


def _passes(facts: Assumptions, guard: Condition, half: Half, site: CallSite) -> bool:
    answer = facts.decides(guard.test, guard.function)
    if answer is not None:
        return answer is guard.side
    # two switches that nothing ties may exclude each other
    return not half.conditions or is_of_a_pass(guard, site.node)


def _anchor(view: FileView, site: CallSite, owned: Owned, half: Half) -> ast.AST:
    """Where the parameters become float16, else the first place on the way in this file."""
    moved = (step.node for step in owned.module.steps if step.module is view.module)
    return half.first_in(view.module) or next(moved, site.node)


def _finding(view: FileView, anchor: ast.AST, site: CallSite, owned: Owned, half: Half) -> Finding:
    built, moved = owned.optimizer, owned.module.steps
    handed_on = len(moved) - len(built.steps)
    steps = [
        *half.steps,
        *moved[:handed_on],
        Step(built.expression, built.function.module, "the optimizer owns them"),
        *moved[handed_on:],
        Step(site.node, site.function.module, "the scaler steps it"),
    ]
    path = [view.step(step.node, step.module, step.words) for step in steps]
    maker = view.source_of(built.expression.func) if isinstance(built.expression, ast.Call) else ""
    message = CAST.format(
        model=view.source_of(owned.module.expression),
        when=_when(half),
        unless=f" unless `{maker}(...)` leaves them out" if owned.unseen else "",
    )
    stepped = (
        links.stepped(view, site)
        if site.node.args
        else (links.receiver_optimizer(view, site.node, site.function),)
    )
    rests = (*stepped, *links.half_parameters(view, owned, half))
    return view.finding(RULE, anchor, message, HELP, path=tuple(dict.fromkeys(path)), links=rests)


def _when(half: Half) -> str:
    """The nearest test that the parameters are float16 under; or that somebody chooses so."""
    if half.conditions:
        nearest = half.conditions[0]
        test = ast.unparse(nearest.test)
        return f" when `{shorten(test)}`" if nearest.side else f" unless `{shorten(test)}`"
    return " if that is chosen" if half.firmness is Firmness.CHOICE else ""
