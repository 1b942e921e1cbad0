"""# bce-under-autocast (AMP502)

Plain binary cross entropy is computed under CUDA autocast, where torch forbids it.

## What it does
Flags `torch.nn.functional.binary_cross_entropy` and calls of `torch.nn.BCELoss` objects inside an
autocast region of CUDA or XPU. The callers of a loss or model are followed upwards through the files
of the project; an inner `autocast(enabled=False)` is respected.

## Why is this bad?
Its gradient divides by `p * (1 - p)`, which leaves half precision's range, so CUDA and XPU autocast
refuse it: `RuntimeError: torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to
autocast.` The ban is on the operation, not on its arguments: `.float()` on them does not help, nor
does bfloat16. The CPU and a run with autocast off do not show it.

## Example
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
criterion = torch.nn.BCELoss()
loader = [(torch.randn(8, 4), torch.rand(8, 1)) for _ in range(4)]

for inputs, targets in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = criterion(torch.sigmoid(model(inputs)).float(), targets)
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
criterion = torch.nn.BCEWithLogitsLoss()
loader = [(torch.randn(8, 4), torch.rand(8, 1)) for _ in range(4)]

for inputs, targets in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = criterion(model(inputs), targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
```

## How it is confirmed
Executing the forward on a CUDA device raises the `RuntimeError`. Without one, both examples run
alike; but the ban is a kernel of torch's dispatcher and needs no GPU: the probe asks it where an
argument hangs on a model that the code has moved to CUDA.

## Fix safety
Unsafe: the loss is computed in another way, which is more exact. `binary_cross_entropy` becomes
`binary_cross_entropy_with_logits`, `BCELoss()` becomes `BCEWithLogitsLoss()`, and the sigmoid goes,
where it is the argument of the call, and the loss is called nowhere else. Elsewhere the sigmoid may be
in the model, which is also asked for probabilities.

## Known limits
Losses that are chosen by name from a registry are not found. A loss object is flagged only if every
definition in sight is a `BCELoss`, or an option that the code declares makes it one. Silent where a condition around the call excludes autocast, or asks
torch for it; one that speaks of mixed precision and says nothing in sight makes it `info`. A region whose device type is not known is taken for CUDA.
Where a float16 region trains something that is not in sight, and the project builds the module around
the loss, the finding is only `info`; so it is where a test computes something of the loss's arguments.

## References
- PyTorch, Automatic Mixed Precision package: "Prefer binary_cross_entropy_with_logits over
  binary_cross_entropy"
- `aten/src/ATen/autocast_mode.h`: `binary_cross_entropy_banned`
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from amplint.amp import links
from amplint.amp.scaler_calls import expects_error
from amplint.code.expressions import last_name
from amplint.code.layout import layout_of
from amplint.code.module import CallSite, Function
from amplint.expectations import raises
from amplint.findings import Finding, Link, Severity, Standing, shorten
from amplint.fixing.statements import code_of
from amplint.fixing.verbs import Repair, Write, unsafe
from amplint.regions.callers import Callers, is_chosen, way_chosen
from amplint.regions.float16 import may_run
from amplint.regions.regions import Inside, Region
from amplint.regions.training import path_to
from amplint.rule import Rule
from amplint.values.assumptions import Assumptions
from amplint.values.conditions import conditions_at
from amplint.values.provenance import Condition
from amplint.view import FileView

RULE = Rule(
    code="AMP502",
    name="bce-under-autocast",
    severity=Severity.ERROR,
    effect="crash",
    summary="`BCELoss` or `binary_cross_entropy` under CUDA autocast, which forbids it",
    facts=("A13", "A13b", "A13c"),
    fix="unsafe",
    probe=raises("RuntimeError", "unsafe to autocast", relies_on="place"),
)

FUNCTIONS = frozenset(("torch.nn.functional.binary_cross_entropy",))
LOSSES = frozenset(("torch.nn.BCELoss", "torch.nn.modules.loss.BCELoss"))
MENTIONS = re.compile(r"binary_cross_entropy(?!_with)|BCELoss")
#: Functions of torch that say whether autocast is on.
_ASKING = frozenset(("is_autocast_enabled", "is_autocast_available", "get_autocast_dtype"))
#: Words of a test that may exclude autocast, where nothing in sight says so.
ASKS = re.compile(r"autocast|amp\b|amp_|half|fp16|mixed", re.IGNORECASE)

MESSAGE = (
    "`{call}` runs under {device} autocast ({where}){when}: `RuntimeError: … unsafe to autocast`"
)
HELP = (
    "use `binary_cross_entropy_with_logits` (`BCEWithLogitsLoss`) without the sigmoid, or call it "
    'under `torch.autocast("{device}", enabled=False)` with `.float()` arguments'
)
SIGMOIDS = frozenset(("torch.sigmoid", "torch.nn.functional.sigmoid", "torch.special.expit"))
LOGITS = {
    "binary_cross_entropy": "binary_cross_entropy_with_logits",
    "BCELoss": "BCEWithLogitsLoss",
}
DEVICES = {"cuda": "CUDA", "xpu": "XPU"}


def check(view: FileView) -> Iterator[Finding]:
    """Report each plain binary cross entropy that an autocast region reaches."""
    if not MENTIONS.search(view.module.source):
        return
    for site in view.module.calls:
        if site.node not in layout_of(site.function):
            continue
        chosen = _as_entropy(view, site.node.func, site.function)
        if chosen is None or expects_error(view, site):
            continue
        found = _reported(view, site, chosen)
        if found is not None:
            yield found


def _reported(view: FileView, site: CallSite, chosen: tuple[Condition, ...]) -> Finding | None:
    """The finding of the first region that reaches a call, or of one that may.

    Where an option chooses what runs the call, and every way excludes autocast, that is known.
    """
    callers = Callers(view.regions, choices=True)
    is_settled = False
    for region, trail in callers.regions_around(site.node, site.function):
        made = callers.made_by(trail, site.function)
        way = way_chosen(view, made)
        if way is None:
            continue
        conditions = tuple(dict.fromkeys((*chosen, *way)))
        reach = _reach(view, region, site, conditions)
        if reach is not None and _forbids(region):
            place = Inside(site.node, site.function, trail)
            return _finding(view, region, place, (reach, *links.chosen(view, conditions)))
        is_settled = is_settled or bool(made)
    return None if is_settled else _possible(view, site, chosen)


def _possible(view: FileView, site: CallSite, chosen: tuple[Condition, ...]) -> Finding | None:
    """The finding of a region from which the way to a call is not in sight."""
    region = may_run(view, Callers(view.regions), site.node, site.function)
    if region is None or not _forbids(region) or _reach(view, region, site, chosen) is None:
        return None
    reach = Link("reach", Standing.GUESS, ast.unparse(site.node.func), "runs inside")
    place = Inside(site.node, site.function, ())
    return _finding(view, region, place, (reach,), ", if it runs this module")


def _forbids(region: Region) -> bool:
    """Whether a region is, or may be, of a device whose autocast forbids the loss."""
    devices = region.cast.devices
    return devices is None or bool(devices & DEVICES.keys())


def _finding(
    view: FileView, region: Region, item: Inside, reach: tuple[Link, ...], doubt: str = ""
) -> Finding:
    devices = region.cast.devices or DEVICES.keys()
    device = min(str(name) for name in devices if name in DEVICES)
    where = f"line {view.row_of(region.opened)}"
    if region.function.module is not view.module:
        where += f" of `{region.function.module.filename.rpartition('/')[2]}`"
    where += doubt
    flag = region.cast.condition
    words = {
        "call": view.source_of(item.call.func) + "(...)",
        "where": where,
        "when": f" when `{shorten(flag)}`" if flag else "",
    }
    message = MESSAGE.format(device=DEVICES[device], **words)
    path = path_to(view, region, item, "binary cross entropy runs with autocast still on")
    help = HELP.format(device=device)
    loss = links.proved("object", item.call.func, "is torch's binary cross entropy")
    data = links.data_decides(item.call, item.function, item.call.args)
    rests, fix = (region.link, loss, *reach, *data), _on_logits(view, item)
    return view.finding(RULE, item.call, message, help, path=path, links=rests, fix=fix)


def _on_logits(view: FileView, item: Inside) -> Repair | None:
    """The loss of the logits, where the sigmoid is its argument and nothing else is its loss."""
    call, function = item.call, item.function
    if function.module is not view.module or not call.args:
        return None
    logits = _logits(call.args[0], function)
    named = call.func
    if view.module.resolve(named) not in FUNCTIONS:
        found = view.objects.bindings(named, function) or []
        made = [one.value for one in found if isinstance(one.value, ast.Call)]
        uses = [one for one in view.module.calls if ast.dump(one.node.func) == ast.dump(named)]
        if len(found) != 1 or len(made) != 1 or found[0].function.module is not view.module:
            return None
        if len(uses) != 1 or made[0].args or made[0].keywords:
            return None
        named = made[0].func
    if logits is None or not isinstance(named, ast.Attribute):
        return None
    better = LOGITS[named.attr]
    call_edit = Write(call.args[0], code_of(view, logits))
    return unsafe(call_edit, Write(named, f"{code_of(view, named.value)}.{better}"))


def _logits(argument: ast.expr, function: Function) -> ast.expr | None:
    """What a sigmoid is taken of, `.float()` behind it included."""
    if not isinstance(argument, ast.Call):
        return None
    if isinstance(argument.func, ast.Attribute) and not argument.args:
        if argument.func.attr == "float":
            return _logits(argument.func.value, function)
        return argument.func.value if argument.func.attr == "sigmoid" else None
    is_sigmoid = function.module.resolve(argument.func) in SIGMOIDS
    return argument.args[0] if is_sigmoid and len(argument.args) == 1 else None


def _reach(
    view: FileView, region: Region, site: CallSite, chosen: tuple[Condition, ...]
) -> Link | None:
    """That the call runs with autocast on; None where tests exclude that.

    Args:
        chosen: what has to hold for it to be a call of the loss.
    """
    facts = Assumptions.of(view.values, conditions_at(region.opened, region.function))
    for item in getattr(region.cast.call, "keywords", ()):
        if item.arg == "enabled":
            facts.learn(item.value, True, region.cast.function)
    standing = Standing.CODE
    for test in (*conditions_at(site.node, site.function), *chosen):
        answer = facts.decides(test.test, test.function)
        asks = {last_name(node) for node in ast.walk(test.test) if isinstance(node, ast.expr)}
        if asks & _ASKING or answer not in (None, test.side):
            return None
        if answer is None and ASKS.search(ast.unparse(test.test)):
            standing = Standing.GUESS
    return Link("reach", standing, ast.unparse(site.node.func), "runs with autocast on")


def _as_entropy(
    view: FileView, callee: ast.expr, function: Function
) -> tuple[Condition, ...] | None:
    """What has to hold for a callee to be the function, or an object of the class.

    Nothing where it always is; what an option decides, by its default or by a value that the code
    names. None for everything else.
    """
    module = function.module
    if module.resolve(callee) in FUNCTIONS:
        return ()
    if isinstance(callee, ast.Call):
        return () if module.resolve(callee.func) in LOSSES else None
    if not isinstance(callee, (ast.Name, ast.Attribute)):
        return None
    found = view.objects.bindings(callee, function) or []
    if found and all(
        item.value is not None and _makes_plain_entropy(item.value, item.function) for item in found
    ):
        return ()
    made = [
        item
        for item in view.values.origins.of(callee, function).origins
        if item.conditions and _makes_plain_entropy(item.expression, item.function)
    ]
    best = max(made, key=lambda item: item.firmness, default=None)
    if best is None or not is_chosen(view, best):
        return None
    return best.conditions


def _makes_plain_entropy(value: ast.expr, function: Function) -> bool:
    if isinstance(value, ast.Call):
        inner = value.func
        if isinstance(inner, ast.Attribute) and inner.attr in ("cuda", "to"):
            return _makes_plain_entropy(inner.value, function)
        return function.module.resolve(inner) in LOSSES
    return function.module.resolve(value) in FUNCTIONS
