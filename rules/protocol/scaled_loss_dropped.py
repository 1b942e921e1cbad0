"""# scaled-loss-dropped (AMP114)

The result of `scaler.scale(loss)` is thrown away, or its `backward` is never called.

## What it does
Flags `scaler.scale(loss)` as a statement of its own, `scaler.scale(loss).backward` without
parentheses, and a scaled loss that is stored and never read while `loss.backward()` runs on the
plain one. A function of the project that returns the scaled loss counts as `scale`.

## Why is this bad?
`scale` does not change the loss in place: it returns a new tensor. When that tensor is dropped and
`loss.backward()` runs, `scaler.step` still divides the gradients by the loss scale. Nothing is
raised: with SGD the update is 1.5e-5 of the right one (1/65536), with Adam 0.94 of it. Without
the call parentheses of `backward` there is no gradient at all and training stops with
`AssertionError: No inf checks were recorded for this optimizer.` A disabled scaler hides both.

## Example
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
loader = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(4)]

for inputs, targets in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    scaler.scale(loss)
    loss.backward()
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
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
```

## How it is confirmed
Executing the function moves the parameters by 1.5e-5 of the step that a plain
`optimizer.step()` takes, or raises the `AssertionError` where `backward` was not called.

## Fix safety
Unsafe: there are gradients then, or scaled ones, which changes training. The parentheses of a
`backward` are added, and `.backward()` to a `scale` that stands alone, where the function has no
other backward. Where its only one is a plain backward on this loss, under no condition, that one
starts from the scaled loss, and the call that was thrown away goes.

## Known limits
Silent where nothing shows that the scaler is one of gradients, because `scale` is also a method of
data scalers, and where the stored loss is read anywhere in the function. A function that returns
the scaled loss is followed, in whatever file, if it returns nothing else.

## References
- PyTorch, Automatic Mixed Precision package: `GradScaler.scale`
- `torch/amp/grad_scaler.py`: `GradScaler.scale`
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.amp import links
from amplint.amp.grad_modes import is_off
from amplint.amp.roles import Role
from amplint.amp.scaled_losses import Scaling, is_constant_tensor, scalings
from amplint.amp.scaling import scale_words
from amplint.code.dataflow import bindings_of, receiver
from amplint.code.expressions import last_name, path_text
from amplint.code.layout import layout_of
from amplint.expectations import NO_GRADIENT, PLAIN, breaks
from amplint.findings import Finding, Link, Severity
from amplint.fixing.verbs import Remove, Repair, Write, unsafe
from amplint.rule import Rule
from amplint.values.bindings import reaching
from amplint.view import FileView

RULE = Rule(
    code="AMP114",
    name="scaled-loss-dropped",
    severity=Severity.ERROR,
    effect="crash/silent",
    summary="the result of `scaler.scale(loss)` unused, or `.backward` not called",
    facts=("S04", "S05"),
    fix="unsafe",
    probe=breaks("step-uninitialised", *NO_GRADIENT, *PLAIN),
)

UNUSED = "the scaled loss is thrown away: `{scaler}.step` divides unscaled gradients ({scale})"
NOT_CALLED = "`backward` is not called: `{scaler}.step` raises `AssertionError: No inf checks…`"


def check(view: FileView) -> Iterator[Finding]:
    """Report each call whose scaled loss reaches no backward."""
    for scaling in scalings(view):
        parent = layout_of(scaling.function).parents[scaling.node]
        if isinstance(parent, ast.Attribute) and parent.attr == "backward":
            if isinstance(layout_of(scaling.function).parents[parent], ast.Expr):
                yield _not_called(view, scaling, parent)
        elif not scaling.trains:
            continue
        elif isinstance(parent, ast.Expr):
            if not (
                is_constant_tensor(view, scaling) or _is_apart(scaling) or _is_cut(view, scaling)
            ):
                yield _unused(view, scaling)
        elif isinstance(parent, ast.Assign):
            yield from _check_name(view, scaling, parent)


def _check_name(view: FileView, scaling: Scaling, statement: ast.Assign) -> Iterator[Finding]:
    if len(statement.targets) != 1 or not isinstance(statement.targets[0], ast.Name):
        return
    name = statement.targets[0].id
    reads = [node for node in ast.walk(scaling.function.node) if _reads(node, name)]
    layout = layout_of(scaling.function)
    uncalled = _uncalled_backward(layout.parents, reads[0]) if len(reads) == 1 else None
    if uncalled is not None:
        yield _not_called(view, scaling, uncalled)
    elif not reads and _plain_backwards(scaling, statement):
        yield _unused(view, scaling)


def _is_apart(scaling: Scaling) -> bool:
    """Whether a loop only looks at its losses, while others of the function are trained by.

    A validation that scales its loss like the training before it harms nobody.
    """
    layout = layout_of(scaling.function)
    loop = next(iter(layout.loops(scaling.node)), None)
    trained = [
        node
        for node in layout.nodes
        if isinstance(node, ast.Call) and last_name(node.func) in ("backward", "step")
    ]
    inside = loop is not None and any(layout.holds(loop, node) for node in trained)
    return loop is not None and not inside and any(map(_is_scaled_backward, trained))


def _is_cut(view: FileView, scaling: Scaling) -> bool:
    """Whether the loss is computed where gradients are off: nobody can run its backward."""
    function, loss = scaling.function, path_text(scaling.loss)
    if is_off(view.objects, scaling.node, function):
        return True
    bound = bindings_of(function).get(loss or "", [])
    groups = reaching(bound, scaling.loss, function)
    found = [binding for group in groups for binding in group]
    return bool(found) and all(is_off(view.objects, item.statement, function) for item in found)


def _is_scaled_backward(node: ast.Call) -> bool:
    """`scaler.scale(loss).backward()`"""
    place = node.func.value if isinstance(node.func, ast.Attribute) else None
    return isinstance(place, ast.Call) and last_name(place.func) == "scale"


def _reads(node: ast.AST, name: str) -> bool:
    if isinstance(node, (ast.Global, ast.Nonlocal)):
        return name in node.names
    return isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Store)


def _uncalled_backward(parents: dict[ast.AST, ast.AST], read: ast.AST) -> ast.Attribute | None:
    attribute = parents.get(read)
    if not isinstance(attribute, ast.Attribute) or attribute.attr != "backward":
        return None
    return attribute if isinstance(parents[attribute], ast.Expr) else None


def _plain_backwards(scaling: Scaling, statement: ast.stmt) -> list[ast.expr]:
    """Where a backward behind a statement starts from the loss as it is."""
    layout = layout_of(scaling.function)
    loss = ast.unparse(scaling.loss)
    return [
        node.func.value
        for node in layout.nodes
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "backward"
        and receiver(node) == loss
        and layout.reaches(statement, node)
    ]


def _unused(view: FileView, scaling: Scaling) -> Finding:
    return view.finding(
        RULE,
        scaling.node,
        UNUSED.format(
            scaler=scaling.scaler, scale=scale_words(view, scaling.scaler, scaling.function)
        ),
        f"call backward on the result: `{view.source_of(scaling.node)}.backward()`",
        path=scaling.path,
        fix=_through_scaler(scaling),
        links=_links(view, scaling),
    )


def _links(view: FileView, scaling: Scaling) -> tuple[Link, ...]:
    scaler = links.participant(view, *scaling.read, Role.SCALER, scaling.scaler)
    return scaler, links.proved("effect", scaling.node, "reaches no backward")


def _through_scaler(scaling: Scaling) -> Repair | None:
    """Call the missing backward, or let the only one of the function start from the scaled loss."""
    layout = layout_of(scaling.function)
    statement = layout.statement(scaling.node)
    if not isinstance(layout.parents[scaling.node], (ast.Expr, ast.Assign)):
        return None
    calls = [node for node in layout.nodes if isinstance(node, ast.Call)]
    backwards = [call for call in calls if last_name(call.func) == "backward"]
    if not backwards:
        is_alone = isinstance(statement, ast.Expr)
        return unsafe(Write(scaling.node, "{}.backward()")) if is_alone else None
    plain = _plain_backwards(scaling, statement)
    if len(backwards) != 1 or len(plain) != 1 or layout.conditions(backwards[0]):
        return None
    return unsafe(Remove(statement), Write(plain[0], f"{scaling.scaler}.scale({{}})"))


def _not_called(view: FileView, scaling: Scaling, node: ast.expr) -> Finding:
    return view.finding(
        RULE,
        node,
        NOT_CALLED.format(scaler=scaling.scaler),
        f"add the parentheses: `{view.source_of(node)}()`",
        path=scaling.path,
        fix=unsafe(Write(node, "{}()")),
        links=_links(view, scaling),
    )
