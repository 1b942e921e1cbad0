"""# fsdp-plain-scaler (AMP604)

A plain `GradScaler` steps a model that `FullyShardedDataParallel` shards.

## What it does
Flags `torch.amp.GradScaler(...)` where it steps an optimizer of a model that FSDP1
(`torch.distributed.fsdp.FullyShardedDataParallel`) shards, in whatever file that happens, and no
`ShardedGradScaler` stands for it on another branch or in a subclass.

## Why is this bad?
Each rank holds a part of the gradients. A plain scaler looks for inf and NaN in its own part only:
if one rank overflows, that rank skips the step and halves its scale while the others step. In the
measured case (two ranks, inf in the second one's shard) the first stepped at scale 65536 and the
second skipped at 32768: from then on weights and scales differ between the ranks, and nothing is
raised. `ShardedGradScaler` asks all ranks first: both skipped.

## Example
```python
import os

import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

os.environ.setdefault("MASTER_ADDR", "localhost")
os.environ.setdefault("MASTER_PORT", "29541")
torch.distributed.init_process_group("gloo", rank=0, world_size=1)
model = FSDP(torch.nn.Linear(4, 1), device_id=torch.device("cpu"))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=65536.0)

for _ in range(4):
    inputs, targets = torch.randn(8, 4), torch.randn(8, 1)
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
torch.distributed.destroy_process_group()
```

## Use instead
```python
import os

import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

os.environ.setdefault("MASTER_ADDR", "localhost")
os.environ.setdefault("MASTER_PORT", "29541")
torch.distributed.init_process_group("gloo", rank=0, world_size=1)
model = FSDP(torch.nn.Linear(4, 1), device_id=torch.device("cpu"))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = ShardedGradScaler("cpu", init_scale=65536.0)

for _ in range(4):
    inputs, targets = torch.randn(8, 4), torch.randn(8, 1)
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
torch.distributed.destroy_process_group()
```

## How it is confirmed
Executing the step on two ranks with an overflow on one of them. On one rank the two scalers agree.

## Fix safety
No fix is offered. The positional arguments of `ShardedGradScaler` come in another order
(`backoff_factor` before `growth_factor`).

## Known limits
FSDP2 (`fully_shard`) works with the plain scaler, its gradients are DTensors: not flagged. Where
the sharding hangs on one switch and the scaler on another one, and nothing ties them, both have to
stand in one function. An optimizer that is built before the wrapping holds
parameters that FSDP1 flattens away (unless `use_orig_params` is set): its first step raises, which
is another mistake, and not flagged.

## References
- `torch/distributed/fsdp/sharded_grad_scaler.py`: `ShardedGradScaler._unscale_grads_`
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.amp import links
from amplint.amp.names import GRAD_SCALERS
from amplint.amp.ownership import Owned, owned_modules
from amplint.amp.scaling import ScalerUse, scaler_uses
from amplint.code.dataflow import constant_of
from amplint.code.expressions import path_text
from amplint.code.layout import layout_of
from amplint.code.module import Function
from amplint.findings import Finding, Link, Severity, Standing
from amplint.rule import Rule
from amplint.values.assumptions import Assumptions
from amplint.values.conditions import conditions_at
from amplint.values.provenance import Condition, Origin, same_call
from amplint.view import FileView

RULE = Rule(
    code="AMP604",
    name="fsdp-plain-scaler",
    severity=Severity.ERROR,
    effect="silent",
    summary="a plain `GradScaler` with FSDP1, which needs `ShardedGradScaler`",
    facts=("fsdp1_plain_scaler_inf_one_shard", "fsdp1_sharded_scaler_inf_one_shard"),
    unprobed="it needs several processes with a GPU each",
)
FSDP = frozenset(
    f"{module}.FullyShardedDataParallel"
    for module in (
        "torch.distributed.fsdp",
        "torch.distributed.fsdp.fully_sharded_data_parallel",
        "fairscale.nn",
        "fairscale.nn.data_parallel",
    )
)

MESSAGE = (
    "a plain GradScaler sees one shard (FSDP on {place}): after an overflow the ranks drift apart"
)
HELP = (
    "use `ShardedGradScaler` of `torch.distributed.fsdp.sharded_grad_scaler` for the sharded model"
)


def check(view: FileView) -> Iterator[Finding]:
    """Report each plain scaler that steps a model under FSDP1, whatever file shards it."""
    seen: set[ast.AST] = set()
    for use in scaler_uses(view, "step"):
        built = use.built
        if built.expression in seen or not _is_plain(built) or _has_sharded(view, use):
            continue
        wrap = next(_wraps(view, use), None)
        if wrap is not None:
            seen.add(built.expression)
            yield _finding(view, use, wrap)


def _finding(view: FileView, use: ScalerUse, wrap: Origin) -> Finding:
    built, shards = use.built.expression, wrap.expression
    assert isinstance(shards, ast.Call)
    place = f"line {view.row_of(shards)}"
    if wrap.function.module is not view.module:
        place += f" of `{wrap.function.module.filename.rpartition('/')[2]}`"
    steps = [view.step(shards, wrap.function.module, "the model is sharded here")]
    if use.built.function.module is not view.module:
        steps.append(view.step(built, use.built.function.module, "the scaler is built here"))
    rests = (
        links.proved("object", built, "is the gradient scaler"),
        Link("effect", Standing.LIBRARY, ast.unparse(shards.func), "shards"),
        links.proved("identity", built, "steps the sharded model"),
        *links.chosen(view, wrap.conditions),
    )
    message = MESSAGE.format(place=place)
    return view.finding(RULE, _anchor(view, use), message, HELP, path=tuple(steps), links=rests)


def _anchor(view: FileView, use: ScalerUse) -> ast.AST:
    """The constructor call, or else the call of this file that it comes from, or the step."""
    if use.built.function.module is view.module:
        return use.built.expression
    came = (step.node for step in use.built.steps if step.module is view.module)
    return next(came, use.site.node)


def _is_plain(built: Origin) -> bool:
    assert isinstance(built.expression, ast.Call)
    return built.function.module.resolve(built.expression.func) in GRAD_SCALERS


def _has_sharded(view: FileView, use: ScalerUse) -> bool:
    """Whether the scaler of a call may be another one, made for shards."""
    return any(other.site is use.site and not _is_plain(other.built) for other in view.once(_steps))


def _steps(view: FileView) -> tuple[ScalerUse, ...]:
    return tuple(scaler_uses(view, "step"))


def _wraps(view: FileView, use: ScalerUse) -> Iterator[Origin]:
    """The calls that shard what a scaler steps, where that scaler is built and on."""
    for optimizer in use.site.node.args[:1]:
        for owned in owned_modules(view, optimizer, use.site.function):
            if same_call(use.built, owned.optimizer):
                for wrap in (*_before(view, owned), *_in_place(owned)):
                    if _meets(view, use, owned, wrap):
                        yield wrap


def _before(view: FileView, owned: Owned) -> Iterator[Origin]:
    """The calls that gave the module whose parameters the optimizer was built from."""
    module = owned.module
    for origin in view.values.origins.aliases(
        module.expression, module.function, module.activation
    ):
        if _shards(origin.expression, origin.function):
            yield origin.then(module.firmness, (), module.conditions)


def _in_place(owned: Owned) -> Iterator[Origin]:
    """The calls in the same function that shard it later, and keep its parameters."""
    module = owned.module
    path = path_text(module.expression)
    layout = layout_of(module.function)
    for node in layout.nodes:
        if not isinstance(node, ast.Call) or not _shards(node, module.function):
            continue
        if path is None or path not in [path_text(given) for given in node.args[:1]]:
            continue
        if _keeps_parameters(node):
            conditions = (*conditions_at(node, module.function), *module.conditions)
            yield module.at(node, module.function, module.activation).then(
                module.firmness, (), conditions
            )


def _shards(node: ast.expr, function: Function) -> bool:
    return isinstance(node, ast.Call) and function.module.resolve(node.func) in FSDP


def _keeps_parameters(wrap: ast.Call) -> bool:
    """Whether the parameters stay what they were, sharded in place."""
    return any(
        item.arg == "use_orig_params" and constant_of(item.value) is not False
        for item in wrap.keywords
    )


def _meets(view: FileView, use: ScalerUse, owned: Owned, wrap: Origin) -> bool:
    """Whether a run that shards the model steps it with this scaler, switched on."""
    facts = Assumptions.of(view.values, wrap.conditions)
    guards = [
        *use.built.conditions,
        *owned.optimizer.conditions,
        *conditions_at(use.site.node, use.site.function),
    ]
    answers = [_passes(facts, guard) for guard in guards]
    answers.append(_is_on(view, use, owned, facts))
    if False in answers:
        return False
    # Two switches in two functions, which nothing ties, may exclude each other.
    return None not in answers or not wrap.conditions or wrap.function is use.built.function


def _passes(facts: Assumptions, guard: Condition) -> bool | None:
    answer = facts.decides(guard.test, guard.function)
    return None if answer is None else answer is guard.side


def _is_on(view: FileView, use: ScalerUse, owned: Owned, facts: Assumptions) -> bool | None:
    """Whether the scaler is enabled where it steps this optimizer; None where that is open."""
    if use.enabled is None:
        return True
    answer = facts.decides(use.enabled, use.switching)
    if answer is not None:
        return answer
    possible = view.values.of(use.enabled, use.switching, use.built.activation)
    met = [value for value in possible.values if same_call(value.origin, owned.optimizer)]
    may_be = any(value.content for value in met) or not possible.complete
    return None if may_be else False
