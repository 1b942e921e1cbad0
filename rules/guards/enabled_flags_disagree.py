"""# enabled-flags-disagree (AMP204)

Float16 autocast can be on while the GradScaler is off.

## What it does
Compares the `enabled` of a float16 `autocast` with the `enabled` of the GradScaler that scales the
loss in the same function, through simple definitions in the file, and flags a scaler that can be
off while autocast is on. A scaler with the wider condition is reported as advice.

## Why is this bad?
A disabled scaler passes everything through: the loss is not scaled, and float16 gradients below
6e-8 become zero on their way back (76 % of all gradient entries in the measured model, none with
the scaler). Nothing is raised; layers with small gradients just stop training. In the example no
parameter moves at all. The other way round, a scaler without autocast, only costs time.

## Example
```python
import torch

use_amp, use_scaler = True, False
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", enabled=use_scaler)
loader = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(4)]

for inputs, targets in loader:
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16, enabled=use_amp):
        outputs = model(inputs)
    loss = 1e-8 * torch.nn.functional.mse_loss(outputs.float(), targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
```

## Use instead
```python
import torch

use_amp = True
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", enabled=use_amp)
loader = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(4)]

for inputs, targets in loader:
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16, enabled=use_amp):
        outputs = model(inputs)
    loss = 1e-8 * torch.nn.functional.mse_loss(outputs.float(), targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
```

## How it is confirmed
Executing the function with the flags as they disagree: gradients that are not zero with the scaler
enabled are exactly zero.

## Fix safety
Unsafe: the scaler is then on and off together with autocast. It gets the switch of autocast where that
is a name, an attribute or a literal with one value for both. If the switch of the scaler is the one that
is meant, the fix is wrong.

## Known limits
Only what can be told for sure: a constant against another, one condition contained in the other,
one the negation of the other, a test that fails wherever autocast's dtype is float16, where both
ask for the same value, or options in sight that somebody can set so that only autocast is on. Otherwise silent where that dtype is a variable, where the file builds
several scalers, where a condition in the function tests the flag, and where what else the scaler
needs is computed (it may ask for the device or the dtype, which decides about autocast, too). What
somebody has to choose makes it `info`. A loss that is handed on as it is is followed to what scales it
through three functions.

## References
- PyTorch, Automatic Mixed Precision examples: "Typical Mixed Precision Training" (one `use_amp` for
  both)
- PyTorch, Automatic Mixed Precision package: "Gradient Scaling"
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from amplint.amp import links, names
from amplint.amp.choices import Way, choice_of
from amplint.amp.roles import Role, ScalerConstruction
from amplint.amp.scaler_calls import scaler_calls
from amplint.amp.scaling import ScalerUse, scaler_uses, uses_in
from amplint.amp.switch_parts import Parts, parts_of
from amplint.amp.switches import switch_given
from amplint.code.dataflow import arguments, bindings_of, constant_of
from amplint.code.expressions import last_name, path_text
from amplint.code.layout import layout_of
from amplint.code.module import CallSite, Function
from amplint.findings import Finding, Link, Severity, Standing
from amplint.fixing.statements import code_of, is_known_at
from amplint.fixing.verbs import Add, Repair, Write, unsafe
from amplint.regions.callers import Callers
from amplint.regions.plain_losses import Results, results_of
from amplint.regions.regions import Region
from amplint.rule import Rule
from amplint.values.assumptions import Assumptions
from amplint.values.conditions import conditions_at
from amplint.values.provenance import NO_DATA, Activation, Condition, Firmness
from amplint.values.values import Value
from amplint.view import FileView

RULE = Rule(
    code="AMP204",
    name="enabled-flags-disagree",
    severity=Severity.WARNING,
    effect="silent",
    summary="a GradScaler that can be disabled while float16 autocast is enabled",
    facts=("H10",),
    fix="unsafe",
    unprobed="small gradients that vanish in float16 depend on your model and data",
)

CAN_BE_OFF = (
    "the scaler can be off (`{scaler}`) where autocast is on (line {row}): small gradients vanish"
)
CHOSEN_OFF = (
    "the scaler is off (`{scaler}`) where `{chosen}` has autocast on (line {row}): small gradients "
    "vanish"
)
SAME = "give both the same flag: `enabled={autocast}`"
WIDER = "the scaler is on (`{scaler}`) where autocast is off (line {row}): it scales for nothing"

NEVER_TRUE = "`{scaler}` is never true: compare values of one type"

#: Through so many functions a loss is followed to what scales it.
_DEPTH = 2


@dataclass(frozen=True, slots=True, eq=False)
class _Scaling:
    """A scaler that gets what a region computes.

    Args:
        place: what is wrong: the constructor, the call that scales or hands the loss to the function
            that does; the region where another file hands it on.
        ways: the conditions behind the region under which that happens.
    """

    use: ScalerUse
    place: ast.AST
    ways: tuple[Condition, ...]


def check(view: FileView) -> Iterator[Finding]:
    """Compare the only scaler of a file with the autocasts beside its `scale` calls.

    Where their words say nothing, ask for a float16 under which the scaler's test fails.
    """
    found = next(_by_words(view), None) or next(_by_values(view), None)
    if found is not None:
        yield found


def _by_words(view: FileView) -> Iterator[Finding]:
    built = view.roles.constructions
    if len(built) != 1 or built[0].dotted not in names.GRAD_SCALERS:
        return
    if view.home_of(built[0].call) is not None:
        return  # its values are known without being written in
    layout = layout_of(built[0].function)
    if built[0].call not in layout or layout.conditions(built[0].call):
        return
    if any(item.arg is None for item in built[0].call.keywords):
        return
    never_on = _is_never_on(view, built[0])
    for autocast in view.module.calls:
        if not (_is_float16(view, autocast) or (never_on and _may_be_float16(view, autocast))):
            continue
        for site in scaler_calls(view, "scale", within=autocast.function):
            finding = _compare(view, built[0], site, autocast)
            if finding is not None:
                yield finding


def _compare(
    view: FileView, built: ScalerConstruction, site: CallSite, autocast: CallSite
) -> Finding | None:
    ours = switch_given(built.call, built.dotted)
    theirs = switch_given(autocast.node, autocast.dotted or "")
    rests: tuple[Link, ...] = (
        links.participant(view, built.call, built.function, Role.SCALER, built.target),
        _float16_link(view, autocast),
    )
    scaler = parts_of(view, ours, built.function)
    region = parts_of(view, theirs, autocast.function)
    words = {
        "scaler": view.source_of(ours),
        "autocast": view.source_of(theirs),
        "row": str(view.row_of(autocast.node)),
    }
    fix: Repair | None = _same_flag(view, built, autocast, ours, theirs)
    by_default = _default(view, ours, built.function), _default(view, theirs, autocast.function)
    guarded = _is_guarded(site, autocast, (scaler or {}).keys() ^ (region or {}).keys())
    if by_default == (False, True) and scaler != region and not guarded:
        help = SAME.format_map(words)
        if _is_never_on(view, built):
            help, fix = NEVER_TRUE.format_map(words), None
        rests = (*rests, links.proved("value", ours, "is off by default"))
        return view.finding(
            RULE, built.call, CAN_BE_OFF.format_map(words), help, links=rests, fix=fix
        )
    if region is None or guarded or (scaler is not None and scaler.keys() == region.keys()):
        return None
    off = _off(view, scaler, region, ours)
    if off:
        help = SAME.format_map(words)
        message = CAN_BE_OFF.format_map(words)
        return view.finding(RULE, built.call, message, help, links=(*rests, *off), fix=fix)
    chosen = _chosen_off(view, built, ours, site, autocast)
    if chosen is not None:
        tests = [link.subject for link in links.chosen(view, chosen)]
        words["chosen"] = " and ".join(dict.fromkeys(tests))
        message = (CHOSEN_OFF if tests else CAN_BE_OFF).format_map(words)
        help = SAME.format_map(words)
        off = [*links.chosen_beside_amp(view, chosen), links.proved("value", ours, "is off then")]
        return view.finding(RULE, built.call, message, help, links=(*rests, *off), fix=fix)
    if scaler is not None and scaler.keys() < region.keys():
        help = SAME.format_map(words)
        message = WIDER.format_map(words)
        damage = Link("damage", Standing.HARMLESS, words["scaler"], "scales float32 gradients")
        return view.finding(RULE, built.call, message, help, links=(*rests, damage), fix=fix)
    return None


def _by_values(view: FileView) -> Iterator[Finding]:
    """Scalers of losses of a region that a test switches off wherever its dtype is float16."""
    uses = [use for use in scaler_uses(view, "scale") if _is_switched(view, use)]
    callers = Callers(view.regions)
    for region in view.regions.chosen(view.module):
        for half in region.cast.float16_by(view.values):
            for scaling in _scalings(view, callers, region, uses):
                if _is_off(view, scaling, region, half):
                    yield _off_for_float16(view, scaling, region, half)


def _is_switched(view: FileView, use: ScalerUse) -> bool:
    """Whether a scaler is always the same one, and a test or a setting switches it."""
    assert isinstance(use.site.node.func, ast.Attribute)
    found = view.values.origins.of(use.site.node.func.value, use.site.function)
    if use.enabled is None or len(found.origins) != 1 or not found.complete:
        return False
    made = view.values.origins.of(use.enabled, use.switching).origins
    return not found.origins[0].conditions and all(
        isinstance(item.expression, (ast.Compare, ast.BoolOp, ast.UnaryOp, ast.Constant))
        or item.data is not NO_DATA
        for item in made
    )


def _scalings(
    view: FileView, callers: Callers, region: Region, uses: list[ScalerUse]
) -> Iterator[_Scaling]:
    """What scales the results of a region: where they are computed, or in a function given them."""
    for results, _ in results_of(view, callers, region):
        for use in uses:
            given = arguments(use.site.node)
            if given and results.function is use.site.function and results.hold(given[0]):
                ways = conditions_at(use.site.node, use.site.function, region.opened)
                is_here = view.is_written and use.built.function.module is view.module
                place = use.built.expression if is_here else use.site.node
                yield _Scaling(use, place, tuple(ways))
        if view.is_written:
            yield from _handed_on(view, region, results)


def _handed_on(view: FileView, region: Region, results: Results) -> Iterator[_Scaling]:
    """The scalers of losses that one function computes and another scales: `runner.step(loss)`."""
    function = results.function
    for site in _calls_with(results.hold, function):
        place = site.node if function.module is view.module else region.opened
        before = tuple(conditions_at(site.node, function, region.opened))
        for scale, ways in _scales_of(view, site, results.hold, _DEPTH):
            for use in uses_in(view, scale):
                if _is_switched(view, use):
                    yield _Scaling(use, place, (*before, *ways))


def _calls_with(holds: Callable[[ast.expr], bool], function: Function) -> Iterator[CallSite]:
    """The calls in a function that are given a loss."""
    for site in function.module.calls:
        is_here = site.function is function and site.node in layout_of(function)
        if is_here and any(map(holds, arguments(site.node))):
            yield site


def _scales_of(
    view: FileView, site: CallSite, holds: Callable[[ast.expr], bool], depth: int
) -> Iterator[tuple[CallSite, tuple[Condition, ...]]]:
    """The `scale` calls of a loss that a call hands over as it is, each with its conditions."""
    callee = view.objects.targets(site.node, site.function).only
    if callee is None or callee is site.function:
        return
    given = view.objects.bind(site.node, site.function, callee).given
    for name in (name for name, item in given.items() if holds(item)):
        if name in bindings_of(callee):
            continue

        def is_it(item: ast.expr, name: str = name) -> bool:
            return path_text(item) == name

        for inner in _calls_with(is_it, callee):
            ways = tuple(conditions_at(inner.node, callee))
            if inner.method == "scale" and isinstance(inner.node.func, ast.Attribute):
                yield inner, ways
            elif depth:
                for scale, more in _scales_of(view, inner, is_it, depth - 1):
                    yield scale, (*ways, *more)


def _is_off(view: FileView, scaling: _Scaling, region: Region, half: Value) -> bool:
    """Whether the test of a scaler fails where a region is on and casts to float16."""
    use = scaling.use
    assert use.enabled is not None and region.cast.dtype is not None
    dtype, function = region.cast.dtype
    facts = Assumptions.of(view.values, half.origin.conditions, exact=True)
    facts.assume(dtype, half.content, function)
    if facts.holds(region.entered_when) is False:
        return False
    for item in region.entered_when:
        facts.learn(item.test, item.side, item.function)
    if facts.holds(scaling.ways) is not True:
        return False
    if _is_never_true(view, use.enabled, use.switching):
        return True
    if facts.decides(use.enabled, use.switching, use.built.activation) is False:
        return True
    return _is_off_by_default(view, use, region, half)


def _is_off_by_default(view: FileView, use: ScalerUse, region: Region, half: Value) -> bool:
    """Whether a region is on in float16, and its scaler off, unless somebody chooses otherwise."""
    assert use.enabled is not None
    if half.firmness is Firmness.CHOICE:
        return False
    if _by_default(view, use.enabled, use.switching, use.built.activation) != {False}:
        return False
    is_on = all(
        _by_default(view, item.test, item.function) == {item.side} for item in region.entered_when
    )
    return is_on and all(_holds_by_default(view, item) for item in half.origin.conditions)


def _by_default(
    view: FileView, test: ast.expr, function: Function, activation: Activation | None = None
) -> set[object]:
    """How a test comes out unless somebody chooses; nothing where that is not in sight."""
    possible = view.values.of(test, function, activation)
    return {item.content for item in possible.by_default()}


def _holds_by_default(view: FileView, condition: Condition) -> bool:
    """Whether a test comes out so unless somebody chooses; of what class data is, nobody does."""
    test = condition.test
    if isinstance(test, ast.Call) and last_name(test.func) == "isinstance":
        return True
    return _by_default(view, test, condition.function) == {condition.side}


def _off_for_float16(view: FileView, scaling: _Scaling, region: Region, half: Value) -> Finding:
    use = scaling.use
    assert use.enabled is not None and region.cast.dtype is not None
    assert isinstance(use.site.node.func, ast.Attribute)
    place, ours = scaling.place, use.enabled
    dtype, scaler = view.source_of(region.cast.dtype[0]), view.source_of(ours)
    words = {"scaler": scaler, "row": str(view.row_of(region.opened))}
    if half.origin.expression is not region.cast.dtype[0]:
        help = f"`{scaler}` has to hold wherever `{dtype}` is float16"
    elif region.cast.switch is not None:
        help = SAME.format(autocast=view.source_of(region.cast.switch[0]))
    else:
        help = f"`{scaler}` has to hold: this autocast is always float16"
    rests = (
        links.participant(view, use.site.node.func.value, use.site.function, Role.SCALER),
        region.link,
        links.held(half.firmness, f"{dtype} is float16", "is what autocast gets"),
        links.proved("value", ours, "is false then"),
    )
    steps = (
        view.step(use.built.expression, use.built.function.module, "the scaler is built"),
        view.step(region.opened, region.function.module, "autocast is on"),
        view.step(use.site.node, use.site.function.module, "the loss goes back as it is"),
    )
    message = CAN_BE_OFF.format_map(words)
    return view.finding(RULE, place, message, help, path=steps, links=rests)


def _same_flag(
    view: FileView,
    built: ScalerConstruction,
    autocast: CallSite,
    ours: ast.expr,
    theirs: ast.expr,
) -> Repair | None:
    """Give the scaler the switch of autocast, where that has its value when the scaler is built."""
    if not is_known_at(view, theirs, autocast.function, built.function, built.call):
        return None
    text = code_of(view, theirs)
    if ours in (*built.call.args, *(item.value for item in built.call.keywords)):
        return unsafe(Write(ours, text))
    return unsafe(Add(built.call, text, keyword="enabled"))


def _off(view: FileView, scaler: Parts | None, region: Parts, switch: ast.expr) -> list[Link]:
    """That the scaler is off in a case where autocast is on; nothing where none is in sight."""
    if scaler is None:
        return [links.proved("value", switch, "is off")]
    if any(
        f"not {text}" in region or text == f"not {other}" for text in scaler for other in region
    ):
        return [links.proved("value", switch, "is the opposite")]
    if not region.keys() < scaler.keys():
        return []
    extra = [scaler[text] for text in scaler.keys() - region.keys()]
    if any(_is_computed(view, *place) for place in extra):
        return []  # it may ask for the device, or the dtype, which decides about autocast as well
    return [_can_be_false(view, *place) for place in extra]


def _chosen_off(
    view: FileView, built: ScalerConstruction, ours: ast.expr, site: CallSite, autocast: CallSite
) -> Way | None:
    """What switches a float16 autocast on and leaves the scaler off, by options in sight."""
    region = _region(view, autocast)
    if region is None or not _is_float16(view, autocast):
        return None
    scales = conditions_at(site.node, site.function)
    is_off = Condition(ours, False, built.function)
    return choice_of(view.values, (*region.entered_when, *scales, is_off))


def _is_computed(view: FileView, switch: ast.expr, function: Function) -> bool:
    """Whether a switch is what a test or a call gives, and nobody sets it."""
    found = view.values.origins.of(switch, function).origins
    return any(isinstance(item.expression, (ast.Call, ast.Compare, ast.BoolOp)) for item in found)


def _can_be_false(view: FileView, switch: ast.expr, function: Function) -> Link:
    firmness = view.values.truth(switch, function).get(False)
    text = ast.unparse(switch)
    if firmness is None:
        return Link("value", Standing.GUESS, text, "can be off")
    return links.held(firmness, f"not {text}", "can be chosen")


def _default(view: FileView, expression: ast.expr, function: Function) -> bool | None:
    """Which way a switch stands unless somebody chooses; None if that is not in sight."""
    possible = view.values.of(expression, function)
    if possible.only() is not ...:
        return bool(possible.only())
    found = {item.content for item in possible.by_default()}
    return bool(found.pop()) if len(found) == 1 else None


def _is_float16(view: FileView, site: CallSite) -> bool:
    """Whether a call is an autocast of float16, on a GPU if its device may be one."""
    if site.dotted not in names.AUTOCASTS or site.node not in layout_of(site.function):
        return False
    if any(item.arg is None for item in site.node.keywords):
        return False
    given = {item.arg: item.value for item in site.node.keywords}
    dtype = _dtype_of(site)
    if dtype is not None:
        return view.module.resolve(dtype) in ("torch.float16", "torch.half")
    if site.dotted in names.DEVICE_AUTOCASTS:
        return site.dotted.startswith("torch.cuda.")
    device = given.get("device_type", next(iter(site.node.args), None))
    if device is None or isinstance(device, ast.Constant):
        return constant_of(device) == "cuda"
    region = _region(view, site)
    return region is not None and region.cast.usual == frozenset({"float16"})


def _region(view: FileView, site: CallSite) -> Region | None:
    """The region that a call of autocast opens."""
    found = (item for item in view.regions.of(site.function) if item.opened is site.node)
    return next(found, None)


def _is_never_on(view: FileView, built: ScalerConstruction) -> bool:
    """Whether a test that switches a scaler fails whatever is chosen."""
    ours = switch_given(built.call, built.dotted)
    return _is_never_true(view, ours, built.function)


def _is_never_true(view: FileView, test: ast.expr, function: Function) -> bool:
    """Whether a comparison fails whatever is chosen: a dtype is no string."""
    if not view.values.of(test, function).always(lambda content: content is False):
        return False
    made = [item.expression for item in view.values.origins.of(test, function).origins]
    return all(isinstance(item, ast.Compare) for item in made or [test])


def _dtype_of(site: CallSite) -> ast.expr | None:
    given = {item.arg: item.value for item in site.node.keywords}
    return given.get("dtype", next(iter(site.node.args[1:2]), None))


def _may_be_float16(view: FileView, site: CallSite) -> bool:
    """Whether some choice makes a call a float16 autocast."""
    if site.dotted not in names.AUTOCASTS or site.dotted in names.DEVICE_AUTOCASTS:
        return False
    dtype = _dtype_of(site)
    if dtype is None or site.node not in layout_of(site.function):
        return False
    return any(view.values.of(dtype, site.function).with_dtype("float16"))


def _float16_link(view: FileView, site: CallSite) -> Link:
    if _is_float16(view, site):
        region = _region(view, site)
        if region is not None:
            return region.link
        return links.proved("region", site.node, "is a float16 autocast")
    dtype = _dtype_of(site)
    assert dtype is not None
    found = view.values.of(dtype, site.function).with_dtype("float16")
    text = f"{ast.unparse(dtype)} is float16"
    return links.held(max(value.firmness for value in found), text, "is what autocast gets")


def _is_guarded(site: CallSite, autocast: CallSite, differing: AbstractSet[str]) -> bool:
    """Whether a condition of the function may tie the flags that differ.

    A test around autocast may ask for what switches the scaler in any words: a parameter of
    another name that callers fill with the same condition, whether there is a scaler at all.
    """
    layout = layout_of(site.function)
    around = [node for node in layout.ancestors(autocast.node) if isinstance(node, ast.If)]
    if around or set(layout.conditions(autocast.node)) != set(layout.conditions(site.node)):
        return True
    words = site.function.once(_tested)
    last = {text.rpartition(".")[2].rpartition(" ")[2] for text in differing}
    return any(re.search(rf"\b{re.escape(word)}\b", words) for word in last if word)


def _tested(function: Function) -> str:
    """The text of all tests of a function."""
    kinds = (ast.If, ast.IfExp, ast.Assert)
    tests = [node.test for node in layout_of(function).nodes if isinstance(node, kinds)]
    return " ".join(ast.unparse(test) for test in tests)
