"""# autocast-re-entered (AMP306)

One autocast object is entered again before it has been left, and autocast stays on afterwards.

## What it does
Flags a function decorated with `autocast` that calls itself, directly or through others (also a
module whose decorated `forward` calls a child of the same class), and a stored autocast object whose
`with` block runs another `with` block of the same object.

## Why is this bad?
An autocast object remembers the state that it has to restore. Entering it again overwrites that with
"on", so leaving it switches autocast on for everything behind it: losses, metrics and the backward
run in half precision outside every region, until something resets the thread's state. A decorator
makes one object for all calls of the function. Nothing is raised.

## Example
```python
import torch


class Tree(torch.nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self.child = Tree(depth - 1) if depth else None

    @torch.autocast("cpu", dtype=torch.bfloat16)
    def forward(self, x):
        x = self.layer(x)
        return x if self.child is None else self.child(x)


tree, head = Tree(depth=1), torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD([*tree.parameters(), *head.parameters()], lr=0.1)
features = tree(torch.randn(8, 4))
outputs = head(features.float())  # behind the region
loss = outputs.float().square().mean()
loss.backward()
optimizer.step()
torch.set_autocast_enabled("cpu", False)  # else it stays on for the rest of the program
```

## Use instead
```python
import torch


class Tree(torch.nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self.child = Tree(depth - 1) if depth else None

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x = self.layer(x)
            return x if self.child is None else self.child(x)


tree, head = Tree(depth=1), torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD([*tree.parameters(), *head.parameters()], lr=0.1)
features = tree(torch.randn(8, 4))
outputs = head(features.float())  # behind the region
loss = outputs.float().square().mean()
loss.backward()
optimizer.step()
```

## How it is confirmed
Executing the call: `torch.is_autocast_enabled` is false before it and true behind it.

## Fix safety
No fix is offered: a decorator has to become a `with` block around the body, which moves every line.

## Known limits
Children in lists are not looked into. A stored object counts as the same one in a module's global
name, in one function, and in an attribute of `self` along calls of methods of `self`.

## References
- PyTorch, Automatic Mixed Precision package: `torch.autocast`
- `torch/amp/autocast_mode.py`: `autocast.__enter__`, `autocast_decorator`
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.amp import links
from amplint.code.dataflow import parameters
from amplint.code.expressions import path_text
from amplint.code.layout import layout_of
from amplint.expectations import measured
from amplint.findings import Finding, Link, Severity
from amplint.regions.regions import Inside, Region, Regions, Trail
from amplint.regions.training import anchor, path_to
from amplint.rule import Rule
from amplint.view import FileView

RULE = Rule(
    code="AMP306",
    name="autocast-re-entered",
    severity=Severity.WARNING,
    effect="silent",
    summary="one autocast object or decorator entered again before it is left: autocast leaks out",
    facts=("A06", "A06b", "A06c", "A06d"),
    probe=measured("leaking-region", "place"),
)

RECURSION = (
    "`{function}` enters its autocast again (line {row}) before leaving it: autocast stays on"
)
SAME_OBJECT = "`{context}` is entered again (line {row}) before it is left: autocast stays on"
INSTEAD = "write `with {context}:` inside `{function}`: a new object for each call"
NEW_OBJECT = "build a new autocast for each `with`"


def check(view: FileView) -> Iterator[Finding]:
    """Report the place of each region where its own object is entered once more."""
    regions = view.regions
    for region in view.regions.opened(view.module):
        if region.opened in getattr(region.function.node, "decorator_list", ()):
            yield from _recursion(view, regions, region)
        elif region.cast.kept and not _is_passed(region):
            yield from _same_object(view, regions, region)


def _recursion(view: FileView, regions: Regions, region: Region) -> Iterator[Finding]:
    if region.cast.call is not region.opened and not region.cast.kept:
        return
    for function, trail in regions.enters(region):
        if function is not region.function:
            continue
        item = _last(trail)
        words = {
            "function": function.qualname,
            "row": view.row_of(region.opened),
            "context": view.source_of(region.opened),
        }
        path = path_to(view, region, item, "enters the same object again")
        help = INSTEAD.format_map(words)
        message = RECURSION.format_map(words)
        rests = _links(region, item.call)
        yield view.finding(RULE, anchor(view, item), message, help, path=path, links=rests)


def _last(trail: Trail) -> Inside:
    """The last call of a trail."""
    call, function = trail[-1]
    return Inside(call, function, trail[:-1])


def _same_object(view: FileView, regions: Regions, region: Region) -> Iterator[Finding]:
    for other, trail in _entered_inside(regions, region):
        if other.cast.call is not region.cast.call or not _is_same(region, other, trail):
            continue
        message = SAME_OBJECT.format(
            context=view.source_of(region.opened), row=view.row_of(region.opened)
        )
        node: ast.expr = other.opened
        path = [view.step(region.opened, view.module, "entered here")]
        for call, function in trail:
            path.append(view.step(call, function.module, "runs inside"))
        path.append(view.step(other.opened, other.function.module, "and entered again here"))
        if other.function.module is not view.module:
            node = anchor(view, _last(trail))
        rests = _links(region, other.opened)
        yield view.finding(RULE, node, message, NEW_OBJECT, path=tuple(path), links=rests)


def _links(region: Region, again: ast.expr) -> tuple[Link, ...]:
    """That it is an autocast object, and that the second place has the same one."""
    entered = Link("object", region.cast.standing, ast.unparse(region.opened), "is an autocast")
    return entered, links.proved("identity", again, "enters the same object")


def _entered_inside(regions: Regions, region: Region) -> Iterator[tuple[Region, Trail]]:
    """The regions that are opened while one is open."""
    layout = layout_of(region.function)
    for other in regions.of(region.function):
        inside = other.opened in layout and any(
            layout.holds(part, other.opened) for part in region.parts
        )
        if inside and other.opened is not region.opened:
            yield other, ()
    for function, trail in regions.enters(region):
        for other in regions.of(function):
            if other.opened is not region.opened or function is region.function:
                yield other, trail


def _is_same(region: Region, other: Region, trail: Trail) -> bool:
    """Whether two uses of what one expression has built are surely the same object."""
    if not other.cast.kept or _is_passed(other):
        return False
    builder = region.cast.function
    if builder is builder.module.body:
        return True
    first, second = path_text(region.opened) or "", path_text(other.opened) or ""
    if not first or first != second:
        return False  # what a call gives may be new each time
    if not trail:
        return True
    if not first.startswith("self."):
        return False
    return all(
        isinstance(call.func, ast.Attribute) and path_text(call.func.value) == "self"
        for call, _ in trail
    )


def _is_passed(region: Region) -> bool:
    """Whether the object comes from the caller: each call may pass another one."""
    return _root(region.opened) in set(parameters(region.function)) - {"self"}


def _root(expression: ast.expr) -> str:
    return (path_text(expression) or "").partition(".")[0]
