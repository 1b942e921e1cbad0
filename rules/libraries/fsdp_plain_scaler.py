"""# fsdp-plain-scaler (AMP604)

A plain `GradScaler` steps a model that `FullyShardedDataParallel` shards.

## What it does
Flags `torch.amp.GradScaler(...)` in a file that wraps its model in FSDP1
(`torch.distributed.fsdp.FullyShardedDataParallel`), where the scaler steps an optimizer of that model
and no `ShardedGradScaler` stands for it on another branch.

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
FSDP2 (`fully_shard`) works with the plain scaler, its gradients are DTensors: not flagged. A scaler
in another file than the wrapping is not seen. An optimizer that is built before the wrapping holds
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
from amplint.amp.ownership import owned_modules
from amplint.amp.roles import ScalerConstruction
from amplint.amp.scaler_calls import scaler_calls
from amplint.amp.scalers import is_off
from amplint.code.dataflow import constant_of, receiver
from amplint.code.expressions import path_text
from amplint.code.layout import layout_of
from amplint.code.module import CallSite
from amplint.findings import Finding, Link, Severity, Standing
from amplint.rule import Rule
from amplint.values.provenance import Origin
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
    "a plain GradScaler sees one shard (FSDP on line {row}): after an overflow the ranks "
    "drift apart"
)
HELP = (
    "use `ShardedGradScaler` of `torch.distributed.fsdp.sharded_grad_scaler` for the sharded model"
)


def check(view: FileView) -> Iterator[Finding]:
    """Report each plain scaler that steps a model of the same file under FSDP1."""
    wraps = [site for site in view.module.calls if site.dotted in FSDP]
    if not wraps or "ShardedGradScaler" in view.module.source:
        return
    for built in view.roles.constructions:
        if built.dotted not in GRAD_SCALERS or not _stepping(view, built):
            continue
        if not is_off(view, built.call, built.function):
            beside = [site for site in wraps if site.function is built.function]
            met = (site for site in beside or wraps if not _exclusive(built, site))
            held = (site for site in met if _steps_what_is_sharded(view, built, site))
            wrap = next((site for site in held if not _comes_late(view, built, site)), None)
            if wrap is not None:
                step = view.step(wrap.node, view.module, "the model is sharded here")
                message = MESSAGE.format(row=wrap.node.lineno)
                rests = (
                    links.proved("object", built.call, "is the gradient scaler"),
                    Link("effect", Standing.LIBRARY, view.source_of(wrap.node.func), "shards"),
                    links.proved("identity", built.call, "steps the sharded model"),
                )
                yield view.finding(RULE, built.call, message, HELP, path=(step,), links=rests)


def _stepping(view: FileView, built: ScalerConstruction) -> list[CallSite]:
    """The `step` calls of a scaler."""
    named = (site for site in scaler_calls(view, "step") if receiver(site.node) == built.target)
    return [site for site in named if _may_be(view, site, built)]


def _may_be(view: FileView, site: CallSite, built: ScalerConstruction) -> bool:
    """Whether a scaler that is called under the same name may be the one that is built here."""
    assert isinstance(site.node.func, ast.Attribute)
    found = view.values.origins.of(site.node.func.value, site.function)
    return not found.complete or any(item.expression is built.call for item in found.origins)


def _steps_what_is_sharded(view: FileView, built: ScalerConstruction, wrap: CallSite) -> bool:
    """Whether an optimizer that a scaler steps holds parameters of the model that is wrapped."""
    return any(
        _is_wrapped(view, owned.module, wrap)
        for site in _stepping(view, built)
        for optimizer in site.node.args[:1]
        for owned in owned_modules(view, optimizer, site.function)
    )


def _is_wrapped(view: FileView, module: Origin, wrap: CallSite) -> bool:
    """Whether a module is what a call gives, or, by its name there, what the call is given."""
    if module.expression is wrap.node:
        return True
    found = view.values.origins.of(module.expression, module.function, module.activation)
    if any(origin.expression is wrap.node for origin in found.origins):
        return True
    path = path_text(module.expression)
    given = [path_text(argument) for argument in wrap.node.args[:1]]
    return module.function is wrap.function and path is not None and path in given


def _comes_late(view: FileView, built: ScalerConstruction, wrap: CallSite) -> bool:
    """Whether the optimizers that a scaler steps hold none of the sharded parameters.

    They were built before, from parameters that the wrapping flattens away: the first step raises.
    """
    if _keeps_parameters(wrap.node):
        return False
    layout = layout_of(wrap.function)
    makers = [
        origin
        for site in _stepping(view, built)
        for optimizer in site.node.args[:1]
        for origin in view.values.origins.aliases(optimizer, site.function)
        if isinstance(origin.expression, ast.Call)
    ]
    return bool(makers) and all(
        maker.function is wrap.function
        and wrap.node in layout
        and maker.expression in layout
        and layout.before(maker.expression, wrap.node)
        for maker in makers
    )


def _keeps_parameters(wrap: ast.Call) -> bool:
    """Whether the parameters stay what they were, sharded in place."""
    return any(
        item.arg == "use_orig_params" and constant_of(item.value) is not False
        for item in wrap.keywords
    )


def _exclusive(built: ScalerConstruction, wrap: CallSite) -> bool:
    """Whether a run that wraps the model cannot build this scaler, as far as branches tell."""
    layout = layout_of(built.function)
    if built.call not in layout:
        return True
    if wrap.function is built.function and wrap.node in layout:
        return layout.exclusive(built.call, wrap.node)
    return any(isinstance(node, ast.If) for node in layout.ancestors(built.call))
