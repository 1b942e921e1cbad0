"""# bfloat16-with-scaler (AMP402)

A `GradScaler` scales the loss although the forward runs in bfloat16, which needs no scaling.

## What it does
Flags the constructor of a scaler that stays enabled while autocast's `dtype` is bfloat16: as a
literal, as the default of an option or a configuration, or on a branch of its own
(`elif precision == "bf16"`). Conditions are compared: a scaler that is built, enabled or used
only where the dtype is float16 is not flagged.

## Why is this bad?
Loss scaling protects small float16 gradients, which have 5 exponent bits, from becoming zero.
bfloat16 has the 8 exponent bits of float32, so there is nothing to protect. What the scaler still
costs: every step waits for the GPU to learn whether a gradient is infinite, the gradients are
multiplied and divided again, and a step is skipped whenever the growing scale (it doubles every
2000 steps) overflows. The result is the same as without it as long as that does not happen
(measured on CPU: parameters after a step are equal).

## Example
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
loader = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(4)]

for inputs, targets in loader:
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
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

for inputs, targets in loader:
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
```

## How it is confirmed
Executing both gives the same parameters: the scaler adds work and nothing else.

## Fix safety
No fix. Where the dtype is chosen at run time, write
`GradScaler(enabled=dtype == torch.float16)`: a disabled scaler passes everything through.

## Known limits
The dtype has to be given to autocast in the same file as the scaler's `scale` call. A dtype that
only a user's configuration can make bfloat16, with no branch in the code that names it, is not
flagged. A guard that speaks of half precision and is not tied to the dtype's choice
(`if args.fp16:`) is taken to exclude bfloat16.

## References
- PyTorch, Automatic Mixed Precision package: "gradient scaling helps prevent gradients with small
  magnitudes from flushing to zero"
- `torch/amp/grad_scaler.py`: `_maybe_opt_step` reads `found_inf` on the host
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from amplint.amp import names
from amplint.amp.scaling import ScalerUse, evaluates, scaler_uses, without_gradient
from amplint.code.module import CallSite, enclosing_class
from amplint.findings import Finding, PathStep, Severity
from amplint.rule import Rule
from amplint.values.assumptions import Assumptions
from amplint.values.conditions import conditions_at
from amplint.values.provenance import Condition, Standing
from amplint.values.values import Value
from amplint.view import FileView
from amplint.wording import shorten

RULE = Rule(
    code="AMP402",
    name="bfloat16-with-scaler",
    severity=Severity.WARNING,
    effect="perf",
    summary="a GradScaler stays enabled although autocast runs in bfloat16",
    facts=("H08", "H09"),
)

ALWAYS = "the scaler is enabled, and the forward runs in bfloat16, which needs no loss scaling"
CHOSEN = "the scaler stays enabled where {why}, which needs no loss scaling"
HELP = "drop the scaler, or build it with `enabled=dtype == torch.float16`"

#: A guard with one of these words probably asks for float16.
_HALF = re.compile(r"fp_?16|half|float16|bf_?16|precision|dtype", re.IGNORECASE)


def check(view: FileView) -> Iterator[Finding]:
    """Report scalers that are on while the dtype of autocast is bfloat16."""
    regions = list(_regions(view))
    uses = list(scaler_uses(view, "scale"))
    uses.sort(key=lambda use: use.built.function.module is not view.module)  # ours first
    reported: set[ast.AST] = set()
    for use in uses:
        if reported & {use.built.expression, use.site.node}:
            continue
        around = _around(view, use.site, regions)
        for region in around:
            value = _bfloat16(view, region)
            others = [other for other in around if _is_float16(view, other)]
            if value is not None and _stays_on(view, use, region, value, others):
                reported |= {use.built.expression, use.site.node}
                yield _finding(view, use, region, value, bool(others))
                break


def _regions(view: FileView) -> Iterator[CallSite]:
    """Autocast objects of the file that training may enter."""
    for site in view.module.calls:
        if site.dotted not in names.AUTOCASTS:
            continue
        if not evaluates(site.function) and not without_gradient(site.node, site.function):
            yield site


def _dtype(site: CallSite) -> ast.expr | None:
    for keyword in site.node.keywords:
        if keyword.arg == "dtype":
            return keyword.value
    return site.node.args[1] if len(site.node.args) > 1 else None


def _around(view: FileView, site: CallSite, regions: list[CallSite]) -> list[CallSite]:
    """The regions that the loss of a `scale` call can come from: the nearest ones known."""
    same = [region for region in regions if region.function is site.function]
    owner = enclosing_class(site.function)
    if not same and owner is not None:
        same = [region for region in regions if enclosing_class(region.function) is owner]
    return same or regions


def _is_float16(view: FileView, region: CallSite) -> bool:
    """Whether a region is never bfloat16; without a dtype a GPU takes float16."""
    dtype = _dtype(region)
    if dtype is None:
        return True
    possible = view.values.of(dtype, region.function)
    return possible.complete and all(value.dtype == "float16" for value in possible.values)


def _bfloat16(view: FileView, region: CallSite) -> Value | None:
    dtype = _dtype(region)
    if dtype is None:
        return None
    possible = view.values.of(dtype, region.function)
    found = sorted(possible.with_dtype("bfloat16"), key=lambda value: -value.standing)
    return found[0] if found else None


def _stays_on(
    view: FileView, use: ScalerUse, region: CallSite, value: Value, others: list[CallSite]
) -> bool:
    """Whether the scaler is built, enabled and used when the dtype is bfloat16.

    Args:
        others: regions in float16, one of which may be entered instead.
    """
    facts = Assumptions.of(view.values, value.origin.conditions)
    dtype = _dtype(region)
    assert dtype is not None
    facts.assume(dtype, value.content, region.function)
    entered = _entered(region)
    if facts.holds(entered) is False:
        return False
    for item in entered:
        facts.learn(item.test, item.side, item.function)
    if not all(facts.holds(_entered(other)) is False for other in others):
        return False
    guards = [*use.built.conditions, *conditions_at(use.site.node, use.site.function)]
    shared = {(ast.dump(item.test), item.side) for item in entered}
    enabled = use.enabled
    if enabled is not None:
        guards.append(Condition(enabled, True, use.built.function))
    return all(
        _passes(facts, guard, value)
        for guard in guards
        if (ast.dump(guard.test), guard.side) not in shared
    )


def _entered(region: CallSite) -> list[Condition]:
    """What holds where a region casts: the tests around it, and its `enabled`."""
    found = [*conditions_at(region.node, region.function)]
    given = (item.value for item in region.node.keywords if item.arg == "enabled")
    found += (Condition(enabled, True, region.function) for enabled in given)
    return found


def _passes(facts: Assumptions, guard: Condition, value: Value) -> bool:
    answer = facts.decides(guard.test, guard.function)
    if answer is not None:
        return answer is guard.side
    if value.standing is Standing.FIXED and not value.origin.conditions:
        return _always_possible(facts, guard)
    return not _HALF.search(_words(guard))


def _always_possible(facts: Assumptions, guard: Condition) -> bool:
    """Whether an undecided guard of a scaler whose autocast is always bfloat16 lets it pass."""
    return "float16" not in _words(guard).replace("bfloat16", "")


def _words(guard: Condition) -> str:
    return ast.unparse(guard.test)


def _finding(
    view: FileView, use: ScalerUse, region: CallSite, value: Value, chosen: bool
) -> Finding:
    dtype = _dtype(region)
    assert dtype is not None
    ours = use.built.function.module is view.module
    node = use.built.expression if ours else use.site.node
    steps = [view.step(item.node, item.module, item.words) for item in value.steps]
    steps.append(view.step(region.node, region.function.module, "autocast runs in bfloat16"))
    built, where = use.built.expression, use.built.function.module
    steps.append(view.step(built, where, "the scaler is enabled all the same"))
    steps.append(view.step(use.site.node, use.site.function.module, "and scales the loss"))
    return view.finding(
        RULE, node, _message(value, region, dtype, chosen), HELP, path=_distinct(steps)
    )


def _message(value: Value, region: CallSite, dtype: ast.expr, chosen: bool) -> str:
    if chosen:
        tests = [item for item in conditions_at(region.node, region.function) if item.side]
        precise = [item for item in tests if _HALF.search(_words(item))]
        if precise:
            return CHOSEN.format(why=f"`{shorten(_words(precise[0]))}`")
    if value.standing is not Standing.CHOICE:
        return ALWAYS
    return CHOSEN.format(why=f"`{ast.unparse(dtype)}` is bfloat16")


def _distinct(steps: list[PathStep]) -> tuple[PathStep, ...]:
    return tuple(dict.fromkeys(steps))
