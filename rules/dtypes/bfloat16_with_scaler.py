"""# bfloat16-with-scaler (AMP402)

A `GradScaler` scales the loss although the forward runs in bfloat16, which needs no scaling.

## What it does
Flags the constructor of a scaler that stays enabled while autocast's `dtype` is bfloat16: as a
literal, as the default of an option or a configuration, or on a branch of its own
(`elif precision == "bf16"`). Conditions are compared: a scaler that is built, enabled or used
only where the dtype is float16 is not flagged. The finding is `info`: parameters come out the same,
bit for bit. An option that has to be set for the scaler or the dtype is named.

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
Unsafe: losses are no longer scaled. The scaler gets `enabled=False`, and where the dtype is chosen at
run time, `enabled=dtype == torch.float16`: a disabled scaler passes everything through. It is
built behind the statement that chooses the dtype, where that follows in the same block. No fix where
the dtype is not known where the scaler is built, and where another region is float16.

## Known limits
The dtype has to be given to autocast in the same file as the scaler's `scale` call. A dtype that
only a user's configuration can make bfloat16, with no branch in the code that names it, is not
flagged. Where one option chooses bfloat16 and another one the scaler (`--bf16`, `--fp16`), nothing
says that anybody sets both, and nothing is flagged.

## References
- PyTorch, Automatic Mixed Precision package: "gradient scaling helps prevent gradients with small
  magnitudes from flushing to zero"
- `torch/amp/grad_scaler.py`: `_maybe_opt_step` reads `found_inf` on the host
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from amplint.amp import links, names
from amplint.amp.dtypes import dtype_meant
from amplint.amp.grad_modes import is_off
from amplint.amp.roles import Role
from amplint.amp.scaling import ScalerUse, evaluates, scaler_uses
from amplint.code.dataflow import bindings_of, constant_of
from amplint.code.expressions import path_text
from amplint.code.layout import layout_of
from amplint.code.module import CallSite, enclosing_class
from amplint.code.statements import block_of
from amplint.expectations import measured
from amplint.findings import Finding, Link, PathStep, Severity, Standing, shorten
from amplint.fixing.statements import code_of, is_known_at, keyword_of, statement_of, torch_in
from amplint.fixing.verbs import Add, Import, Move, Repair, Write, unsafe
from amplint.regions.contexts import DEFAULT_DTYPES
from amplint.rule import Rule
from amplint.values.assumptions import Assumptions
from amplint.values.conditions import conditions_at
from amplint.values.provenance import Condition, Firmness, Origin
from amplint.values.values import Value
from amplint.view import FileView

RULE = Rule(
    code="AMP402",
    name="bfloat16-with-scaler",
    severity=Severity.WARNING,
    effect="perf",
    summary="a GradScaler stays enabled although autocast runs in bfloat16",
    facts=("H08", "H09"),
    fix="unsafe",
    probe=measured("idle-scaler"),
)

ALWAYS = "the scaler is enabled for a forward in bfloat16, which needs none: harmless here"
CHOSEN = "the scaler is enabled where {why}, which needs none: harmless here"
OPTION = "with `{option}` the scaler is enabled for a forward in bfloat16, which needs none: harmless here"
DROP = "drop the scaler"
COMPARE = "drop the scaler, or enable it only where the dtype is float16"


@dataclass(frozen=True, slots=True, eq=False)
class _Met:
    """A region in bfloat16 that a scaler meets.

    Args:
        value: its dtype.
        is_branch: whether other regions are float16.
        options: what somebody has to set for the scaler to be there.
    """

    region: CallSite
    value: Value
    is_branch: bool
    options: list[str]


def check(view: FileView) -> Iterator[Finding]:
    """Report scalers that are on while the dtype of autocast is bfloat16."""
    regions = list(_regions(view))
    values = {site: value for site in regions if (value := _bfloat16(view, site)) is not None}
    if not values:
        return
    plain = [site for site in regions if _is_float16(view, site)]
    uses = list(scaler_uses(view, "scale"))
    uses.sort(key=lambda use: use.built.function.module is not view.module)  # ours first
    met = ((use, _met(view, use, _around(view, use.site, regions), values, plain)) for use in uses)
    candidates = [(use, found) for use, found in met if found is not None]
    candidates.sort(key=lambda pair: len(pair[1].options))  # a way that needs no option first
    reported: set[ast.AST] = set()
    for use, found in candidates:
        if not reported & {use.built.expression, use.site.node}:
            reported |= {use.built.expression, use.site.node}
            yield _finding(view, use, found)


def _met(
    view: FileView,
    use: ScalerUse,
    around: list[CallSite],
    values: Mapping[CallSite, Value],
    plain: list[CallSite],
) -> _Met | None:
    """The first region in bfloat16 whose loss a scaler scales, if one does.

    Args:
        around: the regions that the loss can come from.
        values: the dtype of each region in bfloat16.
        plain: the regions in float16.
    """
    candidates = [region for region in around if region in values]
    others = [other for other in plain if other in around] if candidates else []
    for region in candidates:
        options = _needed(view, use, region, values[region], others)
        if options is not None:
            return _Met(region, values[region], bool(others), options)
    return None


def _regions(view: FileView) -> Iterator[CallSite]:
    """Autocast objects of the file that training may enter."""
    for site in view.module.calls:
        if site.dotted not in names.AUTOCASTS:
            continue
        if not evaluates(site.function) and not is_off(view.objects, site.node, site.function):
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
    found = sorted(possible.with_dtype("bfloat16"), key=lambda value: -value.firmness)
    return found[0] if found else None


def _needed(
    view: FileView, use: ScalerUse, region: CallSite, value: Value, others: list[CallSite]
) -> list[str] | None:
    """The options that enable the scaler where the dtype is bfloat16; None where none do.

    None as well where the dtype is somebody's choice, and the scaler another one's: nothing says
    that anybody makes both.

    Args:
        others: regions in float16, one of which may be entered instead.
    """
    facts = Assumptions.of(view.values, value.origin.conditions)
    dtype = _dtype(region)
    assert dtype is not None
    facts.assume(dtype, value.content, region.function)
    entered = _entered(region)
    if facts.holds(entered) is False:
        return None
    for item in entered:
        facts.learn(item.test, item.side, item.function)
    if not all(facts.holds(_entered(other)) is False for other in others):
        return None
    guards = [*use.built.conditions, *conditions_at(use.site.node, use.site.function)]
    shared = {(ast.dump(item.test), item.side) for item in entered}
    if use.enabled is not None:
        guards.append(Condition(use.enabled, True, use.switching))
    options: dict[str, None] = {}
    for guard in guards:
        if (ast.dump(guard.test), guard.side) in shared or _tests_for(view, guard, use):
            continue
        answer = facts.decides(guard.test, guard.function)
        if answer is None and _compares_with_float16(view, guard):
            return None
        if answer is not None and answer is not guard.side:
            return None
        if answer is None:
            options |= dict.fromkeys(_options(view, guard, region))
    chosen = value.firmness is Firmness.CHOICE or value.origin.conditions
    return None if options and chosen else list(options)


def _tests_for(view: FileView, guard: Condition, use: ScalerUse) -> bool:
    """Whether a test asks whether the scaler itself is there."""
    test = guard.test.left if isinstance(guard.test, ast.Compare) else guard.test
    found = view.values.origins.of(test, guard.function).origins
    return any(item.expression is use.built.expression for item in found)


def _compares_with_float16(view: FileView, guard: Condition) -> bool:
    """Whether one side of an undecided comparison is float16, in whatever spelling.

    A flag stands for what was computed, wherever that was.
    """
    computed = view.values.origins.of(guard.test, guard.function).origins
    tests = {guard.test: guard.function} | {item.expression: item.function for item in computed}
    return any(
        dtype_meant(view.values.of(side, function).only()) == "float16"
        for test, function in tests.items()
        for node in ast.walk(test)
        if isinstance(node, ast.Compare)
        for side in (node.left, *node.comparators)
    )


def _options(view: FileView, guard: Condition, region: CallSite) -> Iterator[str]:
    """What somebody has to set for a test to come out on one side, as the code first reads it.

    A test that is computed from the batch, the forward or the machine needs nobody, nor does one
    of a device type.
    """
    test, side, function = guard.test, guard.side, guard.function
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _options(view, Condition(test.operand, not side, function), region)
    elif isinstance(test, ast.BoolOp):
        for operand in test.values:
            yield from _options(view, Condition(operand, side, function), region)
    elif view.values.truth(test, function).get(side, Firmness.CHOICE) is Firmness.CHOICE:
        read = test.left if isinstance(test, ast.Compare) else test
        others = test.comparators if isinstance(test, ast.Compare) else []
        contents = [view.values.of(item, function).only() for item in others]
        if not all(isinstance(item, str) and item not in DEFAULT_DTYPES for item in contents):
            return
        for origin in view.values.origins.of(read, function).origins:
            is_place = isinstance(origin.expression, (ast.Name, ast.Attribute, ast.Subscript))
            if is_place and not _is_of_forward(view, origin, region):
                yield shorten(ast.unparse(test if others else origin.expression))
                return


def _is_of_forward(view: FileView, origin: Origin, region: CallSite) -> bool:
    """Whether an expression reads what calls inside a region have returned."""
    if origin.function is not region.function:
        return False
    root = origin.expression
    while isinstance(root, (ast.Attribute, ast.Subscript)):
        root = root.value
    layout = layout_of(region.function)
    around = [node for node in layout.ancestors(region.node) if isinstance(node, ast.With)]
    found = [item.expression for item in view.values.origins.of(root, region.function).origins]
    return bool(found) and all(
        isinstance(item, ast.Call)
        and item in layout
        and any(layout.holds(node, item) for node in around)
        for item in found
    )


def _entered(region: CallSite) -> list[Condition]:
    """What holds where a region casts: the tests around it, and its `enabled`."""
    found = [*conditions_at(region.node, region.function)]
    given = (item.value for item in region.node.keywords if item.arg == "enabled")
    found += (Condition(enabled, True, region.function) for enabled in given)
    return found


def _finding(view: FileView, use: ScalerUse, met: _Met) -> Finding:
    region, value, options = met.region, met.value, met.options
    dtype = _dtype(region)
    assert dtype is not None
    ours = use.built.function.module is view.module
    node = use.built.expression if ours else use.site.node
    steps = [view.step(item.node, item.module, item.words) for item in value.steps]
    steps.append(view.step(region.node, region.function.module, "autocast runs in bfloat16"))
    built, where = use.built.expression, use.built.function.module
    steps.append(view.step(built, where, "the scaler is enabled all the same"))
    steps.append(view.step(use.site.node, use.site.function.module, "and scales the loss"))
    message = _message(view, value, region, dtype, met.is_branch)
    if options:
        message = OPTION.format(option="` and `".join(options))
    fixed = value.firmness is Firmness.FIXED and not value.origin.conditions
    return view.finding(
        RULE,
        node,
        message,
        DROP if fixed or met.is_branch else COMPARE,
        path=_distinct(steps),
        links=_links(view, use, met),
        # Where another region is float16, the scaler is needed there.
        fix=_disabled(view, use, region, dtype, fixed=fixed)
        if ours and not met.is_branch
        else None,
    )


def _disabled(
    view: FileView, use: ScalerUse, region: CallSite, dtype: ast.expr, *, fixed: bool
) -> Repair | None:
    """Switch the scaler off, or where the dtype is chosen, on for float16 alone."""
    call, torch = use.built.expression, torch_in(view)
    later: tuple[Move, ...] = ()
    if not isinstance(call, ast.Call) or torch is None:
        return None
    imports: tuple[Import, ...] = ()
    if fixed:
        switch = "False"
    elif is_known_at(view, dtype, region.function, use.built.function, call):
        switch, imports = f"{code_of(view, dtype)} == {torch[0]}.float16", torch[1]
    else:
        holder = _binder_behind(use, region, dtype, call)
        if holder is None:
            return None
        switch, imports = f"{code_of(view, dtype)} == {torch[0]}.float16", torch[1]
        later = (Move(layout_of(region.function).statement(call), holder, after=True),)
    if view.module.resolve(call.func) not in names.GRAD_SCALERS or keyword_of(call, None):
        return None
    given = keyword_of(call, "enabled")
    if given is None:
        add = Add(call, switch, keyword="enabled")
        return unsafe(add, *later, *imports) if len(call.args) < 2 else None
    both = switch if fixed or constant_of(given.value) is True else f"({{}}) and {switch}"
    return unsafe(Write(given.value, both), *later, *imports)


def _binder_behind(
    use: ScalerUse, region: CallSite, dtype: ast.expr, call: ast.Call
) -> ast.stmt | None:
    """The statement behind a constructor, in its block, that alone binds the name of the dtype.

    None where the scaler is read before that statement ends.
    """
    function = use.built.function
    statement = statement_of(call, function)
    if not isinstance(dtype, ast.Name) or function is not region.function:
        return None
    if not isinstance(statement, ast.Assign):
        return None
    layout = layout_of(function)
    block = block_of(statement, layout.parents[statement])
    behind = block[block.index(statement) + 1 :]
    binders = [item.statement for item in bindings_of(function).get(dtype.id, ())]
    for index, other in enumerate(behind):
        if not any(layout.holds(other, one) for one in binders):
            continue
        between = [node for each in behind[: index + 1] for node in layout.inside(each)]
        paths = {path_text(node) for node in between if isinstance(node, (ast.Name, ast.Attribute))}
        is_read = paths & {path_text(target) for target in statement.targets}
        return other if not is_read and all(layout.holds(other, one) for one in binders) else None
    return None


def _links(view: FileView, use: ScalerUse, met: _Met) -> Iterator[Link]:
    callee = use.site.node.func
    assert isinstance(callee, ast.Attribute)
    yield links.participant(view, callee.value, use.site.function, Role.SCALER)
    yield links.proved("region", met.region.node, "is an autocast in bfloat16")
    yield Link("damage", Standing.HARMLESS, ast.unparse(callee), "changes no parameter")
    for option in met.options:
        yield Link("value", Standing.OPTION, option, "enables the scaler")
    yield from links.chosen(view, met.value.origin.conditions)
    if met.value.firmness is Firmness.CHOICE:
        dtype = _dtype(met.region)
        assert dtype is not None
        yield Link("value", Standing.OPTION, ast.unparse(dtype), "is bfloat16")


def _message(
    view: FileView, value: Value, region: CallSite, dtype: ast.expr, is_branch: bool
) -> str:
    if is_branch:
        tests = [item for item in conditions_at(region.node, region.function) if item.side]
        chosen = [item for item in tests if list(_options(view, item, region))]
        if chosen:
            return CHOSEN.format(why=f"`{shorten(ast.unparse(chosen[0].test))}`")
    if value.firmness is not Firmness.CHOICE:
        return ALWAYS
    return CHOSEN.format(why=f"`{ast.unparse(dtype)}` is bfloat16")


def _distinct(steps: list[PathStep]) -> tuple[PathStep, ...]:
    return tuple(dict.fromkeys(steps))
