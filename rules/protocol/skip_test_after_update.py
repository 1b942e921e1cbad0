"""# skip-test-after-update (AMP126)

A skipped step is looked for by comparing two reads of the scale that are always equal.

## What it does
Flags a comparison of two `scaler.get_scale()` values when both are read after `scaler.update()`, or
both before it.

## Why is this bad?
`scaler.step` returns nothing that tells a skipped step, so the usual test is whether the scale
fell: read it, call `scaler.update()`, read it again. Only `update()` changes the scale. Two reads
on the same side of it are equal: the test never sees a skip, so a scheduler or an EMA that depends
on it also runs for skipped steps. In the example the first step overflows and is not counted.

## Example
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
loader = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(4)]

skipped = 0
for inputs, targets in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    previous = scaler.get_scale()
    skipped += scaler.get_scale() < previous
```

## Use instead
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
loader = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(4)]

skipped = 0
for inputs, targets in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    previous = scaler.get_scale()
    scaler.update()
    skipped += scaler.get_scale() < previous
```

## How it is confirmed
Executing the function with an overflowing loss: the scale falls, and the test says that it did not.

## Fix safety
No fix is offered: the read has to move over `scaler.update()`, and what lies between may need it
where it is.

## Known limits
Both reads have to be in one function, or one of them in a function that does nothing but compare;
the `update()` may be in a function that is called there. Nothing between the reads may be able to
call `update()` itself.

## References
- PyTorch, Automatic Mixed Precision package: `GradScaler.get_scale`, `GradScaler.update`
- `torch/amp/grad_scaler.py`: `GradScaler.update`
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from dataclasses import dataclass

from amplint.amp import links
from amplint.amp.reached_calls import as_caller_writes, calls_leading_to
from amplint.amp.scaler_calls import scaler_calls
from amplint.code.arguments import bind, parameters
from amplint.code.dataflow import arguments, bindings_of, receiver
from amplint.code.expressions import last_name, path_text
from amplint.code.layout import Layout, layout_of
from amplint.code.module import Function
from amplint.findings import Finding, PathStep, Severity
from amplint.rule import Rule
from amplint.view import FileView

RULE = Rule(
    code="AMP126",
    name="skip-test-after-update",
    severity=Severity.WARNING,
    effect="silent",
    summary="a skipped-step test whose two reads of the scale are on one side of `update()`",
    facts=("S18", "S43"),
    unprobed="nothing in training changes: the test is about a step that was skipped",
)

_BUILTINS = frozenset(dir(builtins)) - {"eval", "exec"}
SAME_SIDE = "both reads of the scale are {side} `{scaler}.update()`: a skipped step is never seen"
HELP = "read `{scaler}.get_scale()` once before and once after `{scaler}.update()`"


@dataclass(frozen=True, slots=True, eq=False)
class _Test:
    """A comparison of two reads of the scale, the earlier one first.

    Args:
        node: the comparison, or the call of a function that only compares.
        first: the call of `get_scale` that ran first.
        second: the other one; `node` itself where it happens in the called function.
        path: to the comparison in the called function.
    """

    node: ast.expr
    first: ast.Call
    second: ast.Call
    path: tuple[PathStep, ...] = ()


def check(view: FileView) -> Iterator[Finding]:
    """Report comparisons of the scale with itself."""
    functions = dict.fromkeys(site.function for site in scaler_calls(view, "get_scale"))
    for function in functions:
        layout = layout_of(function)
        for test in _tests(view, function):
            side, path = _side(view, layout, test)
            if side:
                words = {"side": side, "scaler": receiver(test.first)}
                message, help = SAME_SIDE.format_map(words), HELP.format_map(words)
                rests = (
                    links.scaler_named(view, words["scaler"], function),
                    links.proved("effect", test.node, f"reads the scale twice {side} the update"),
                )
                steps = (*path, *test.path)
                yield view.finding(RULE, test.node, message, help, path=steps, links=rests)


def _tests(view: FileView, function: Function) -> Iterator[_Test]:
    layout = layout_of(function)
    for node in layout.nodes:
        if isinstance(node, ast.Compare) and len(node.comparators) == 1:
            reads = [_read(view, function, side) for side in (node.left, *node.comparators)]
            first, second = sorted(reads, key=lambda read: layout.nodes.index(read) if read else -1)
            if first is not None and second is not None and receiver(first) == receiver(second):
                yield _Test(node, first, second)
        elif isinstance(node, ast.Call):
            yield from _test_of_helper(view, function, node)


def _test_of_helper(view: FileView, function: Function, call: ast.Call) -> Iterator[_Test]:
    """A call of a function that does nothing but compare a read of the scale with a new one."""
    reads = [(value, _read(view, function, value)) for value in arguments(call)]
    kept = [(value, read) for value, read in reads if read is not None and value is not read]
    helper = view.objects.callee(call, function) if len(kept) == 1 else None
    compare = _only_comparison(helper) if helper is not None else None
    if helper is None or compare is None:
        return
    value, first = kept[0]
    assert first is not None
    for here, there in (
        (compare.left, compare.comparators[0]),
        (compare.comparators[0], compare.left),
    ):
        if not isinstance(here, ast.Name) or bind(call, helper).given.get(here.id) is not value:
            continue
        if not isinstance(there, ast.Call) or last_name(there.func) != "get_scale":
            continue
        if as_caller_writes(receiver(there), helper, call) == receiver(first):
            step = view.step(compare, helper.module, f"`{helper.name}` reads the scale again")
            yield _Test(call, first, call, (step,))


def _only_comparison(helper: Function) -> ast.Compare | None:
    """What a function returns, if that is one comparison and it does nothing else."""
    body = [
        item
        for item in helper.body
        if not (isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant))
    ]
    value = body[0].value if len(body) == 1 and isinstance(body[0], ast.Return) else None
    return value if isinstance(value, ast.Compare) and len(value.comparators) == 1 else None


def _read(view: FileView, function: Function, expression: ast.expr) -> ast.Call | None:
    """The `scaler.get_scale()` call that gives an operand its value, if there is only one."""
    if isinstance(expression, (ast.Name, ast.Attribute)):
        name = path_text(expression) or ""
        bindings = bindings_of(function).get(name, [])
        if len(bindings) != 1 or bindings[0].value is None or name in parameters(function):
            return None
        expression = bindings[0].value
    if not isinstance(expression, ast.Call) or last_name(expression.func) != "get_scale":
        return None
    callee = expression.func
    is_scaler = isinstance(callee, ast.Attribute) and view.roles.is_scaler(callee.value, function)
    return expression if is_scaler else None


def _side(view: FileView, layout: Layout, test: _Test) -> tuple[str, tuple[PathStep, ...]]:
    """ "after" or "before" if no `update()` lies between two reads, but one around them.

    Returns:
        The side, and the path to an `update()` in another function.
    """
    first, second = test.first, test.second
    if layout.loops(first) != layout.loops(second) or not layout.dominates(first, second):
        return "", ()
    scaler = receiver(first)
    if not all(_is_harmless(view, layout, scaler, node) for node in layout.between(first, second)):
        return "", ()
    updates = [
        found
        for found in calls_leading_to(view, "update", layout.function)
        if found.scaler == receiver(first) and layout.loops(found.node) == layout.loops(first)
    ]
    for update in updates:
        if layout.dominates(update.node, first):
            return "after", update.path
    for update in updates:
        if layout.dominates(second, update.node):
            return "before", update.path
    return "", ()


def _is_harmless(view: FileView, layout: Layout, scaler: str, node: ast.AST) -> bool:
    """Whether a node between the reads surely runs no `scaler.update()`.

    What is known is looked into. What is not in sight cannot update a scaler that it does not get.
    """
    if not isinstance(node, ast.Call):
        return not isinstance(node, (ast.Yield, ast.YieldFrom, ast.Await))
    function, callee = layout.function, node.func
    if isinstance(callee, ast.Attribute) and view.roles.is_scaler(callee.value, function):
        return callee.attr in ("step", "unscale_", "get_scale", "scale", "is_enabled")
    if view.objects.callee(node, function) is not None:
        return not view.may_reach("update", node, function)
    owner = callee.value if isinstance(callee, ast.Attribute) else None
    keepers = {scaler, scaler.partition(".")[0]}
    if keepers & {path_text(item) for item in (owner, *arguments(node)) if item is not None}:
        return False
    if isinstance(callee, ast.Name):
        return callee.id in _BUILTINS or function.module.resolve(callee) is not None
    return owner is not None
