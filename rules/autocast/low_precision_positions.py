"""# low-precision-positions (AMP509)

Positions are counted in half precision, where neighbours become equal: above 2048, or above 256.

## What it does
Flags `torch.arange` in float16 or bfloat16 (by `dtype=`, `.half()`, `.bfloat16()` or `.to(...)`)
that counts further than the type tells neighbours apart, where the result is a position: it goes
into `outer`, `einsum`, a comparison, or a function that takes a sine or cosine.

## Why is this bad?
float16 has 11 bits, so from 2048 on only even numbers exist, from 4096 on only multiples of four.
bfloat16 has 8 bits: from 256 on only even numbers, and 4096 positions are 769 different ones. Rotary
and sinusoidal embeddings turn that into wrong angles, by up to 2.2 radians in float16 and 14 in
bfloat16 at 4096 positions: far-away tokens cannot be told apart. Masks of lengths are off by a few.

## Example
```python
import torch

rates = 1.0 / 10000 ** (torch.arange(0, 64, 2) / 64)
positions = torch.arange(4096, dtype=torch.bfloat16)
angles = torch.outer(positions.float(), rates)
features = torch.cat([angles.sin(), angles.cos()], dim=1)
model = torch.nn.Linear(64, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for _ in range(4):
    optimizer.zero_grad()
    model(features).square().mean().backward()
    optimizer.step()
```

## Use instead
```python
import torch

rates = 1.0 / 10000 ** (torch.arange(0, 64, 2) / 64)
positions = torch.arange(4096, dtype=torch.float32)
angles = torch.outer(positions, rates)
features = torch.cat([angles.sin(), angles.cos()], dim=1)
model = torch.nn.Linear(64, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for _ in range(4):
    optimizer.zero_grad()
    model(features).square().mean().backward()
    optimizer.step()
```

## How it is confirmed
Executing both examples counts how many positions are left: less than one in five. The probe does not
look for it, because it runs with short sequences.

## Fix safety
No fix is offered: what comes behind may need the type.

## Known limits
How far it counts has to be a number in sight, or a default. A type that the tensors of a forward have
under autocast is not followed.

## References
- IEEE 754-2019, section 3.6: binary16 has a precision of 11 bits
- PyTorch, `torch.finfo`: bfloat16 has a precision of 8 bits
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator

from amplint.amp import links
from amplint.amp.halves import cast_of
from amplint.code.dataflow import bindings_of, names_in
from amplint.code.expressions import last_name
from amplint.code.layout import layout_of
from amplint.code.module import CallSite
from amplint.findings import Finding, Severity
from amplint.rule import Rule
from amplint.values.provenance import Firmness, Origin
from amplint.view import FileView

RULE = Rule(
    code="AMP509",
    name="low-precision-positions",
    severity=Severity.WARNING,
    effect="silent",
    summary="positions counted in half precision, beyond where neighbours become equal",
    unprobed="the sequences of a run are short",
)
#: Bits of the significand, the hidden one included.
BITS = {"float16": 11, "bfloat16": 8}
_ANGLES = frozenset(("sin", "cos"))
_OF_POSITIONS = frozenset(("outer", "ger", "einsum"))

MESSAGE = "`{call}` counts to {last:g} in {dtype}, where neighbours above {limit} are equal"
HELP = "count in float32 or in integers, and cast what is computed from it"


def check(view: FileView) -> Iterator[Finding]:
    """Report positions that a type cannot tell apart."""
    if "arange" not in view.module.source:
        return
    for site in view.module.calls:
        if site.dotted != "torch.arange" or site.node not in layout_of(site.function):
            continue
        found = _half(view, site)
        counted = _counted(view, site) if found is not None else None
        if found is None or counted is None or not _is_position(site):
            continue
        dtype, firmness = found
        last, step, count = counted
        if not _loses(last, step, BITS[dtype]):
            continue
        words = {"call": view.source_of(site.node), "last": last, "dtype": dtype}
        rests = (
            links.proved("object", site.node, "counts positions"),
            links.held(firmness, view.source_of(site.node), f"is {dtype}"),
            links.held(count, f"{last:g}", "is how far it counts"),
        )
        message = MESSAGE.format(limit=2 ** BITS[dtype], **words)
        yield view.finding(RULE, site.node, message, HELP, links=rests)


def _loses(last: float, step: float, bits: int) -> bool:
    """Whether two numbers that are a step apart become one before the last."""
    return last >= 2**bits and 0 < step < 2.0 ** (math.floor(math.log2(last)) - bits + 1)


def _half(view: FileView, site: CallSite) -> tuple[str, Firmness] | None:
    """The half precision that a range is in, by its own argument or by casts behind it."""
    for word in site.node.keywords:
        if word.arg == "dtype":
            for value in view.values.of(word.value, site.function).by_default():
                if value.dtype in BITS:
                    return value.dtype, value.firmness
    layout = layout_of(site.function)
    node: ast.AST = site.node
    found: tuple[str, Firmness] | None = None
    while isinstance(layout.parents.get(node), ast.Attribute):
        call = layout.parents.get(layout.parents[node])
        if not isinstance(call, ast.Call) or call.func is not layout.parents[node]:
            break
        for dtype in BITS:
            cast = cast_of(view, call, Origin(call, site.function), dtype)
            if cast is not None and cast.dtype == dtype:
                firmness = cast.value.firmness if cast.value is not None else Firmness.FIXED
                found = dtype, firmness
        node = call
    return found if found is not None and found[1] is not Firmness.CHOICE else None


def _counted(view: FileView, site: CallSite) -> tuple[float, float, Firmness] | None:
    """The last number of a range and its step, where they are numbers in sight."""
    given = [item for item in site.node.args if not isinstance(item, ast.Starred)]
    if not given or len(given) != len(site.node.args):
        return None
    numbers: list[float] = []
    firmness = Firmness.FIXED
    for item in given[:3]:
        known = view.values.of(item, site.function).by_default()
        if not known or not isinstance(known[0].content, (int, float)):
            return None
        numbers.append(float(known[0].content))
        firmness = min(firmness, known[0].firmness)
    start = numbers[0] if len(numbers) > 1 else 0.0
    end = numbers[1] if len(numbers) > 1 else numbers[0]
    step = numbers[2] if len(numbers) > 2 else 1.0
    if step <= 0 or end <= start:
        return None
    return start + step * (math.ceil((end - start) / step) - 1), step, firmness


def _is_position(site: CallSite) -> bool:
    """Whether a range goes where positions go."""
    function, layout = site.function, layout_of(site.function)
    statement = layout.statement(site.node)
    names = {
        path
        for path, found in bindings_of(function).items()
        if any(item.statement is statement for item in found)
    }
    for node in layout.nodes:
        called = last_name(node.func) if isinstance(node, ast.Call) else ""
        if called in _ANGLES:
            return True
        if not isinstance(node, ast.Compare) and called not in _OF_POSITIONS:
            continue
        if layout.holds(node, site.node) or names_in(node) & names:
            return True
    return False
