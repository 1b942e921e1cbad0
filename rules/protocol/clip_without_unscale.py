"""# clip-without-unscale (AMP110)

Gradients are clipped while they are still multiplied by the loss scale.

## What it does
Flags `clip_grad_norm_`, `clip_grad_value_`, an optimizer's or model's clip method and project
functions that clip, when the gradients come from a scaled backward and were not unscaled:
no `unscale_`, `unscale_` after the clip, `unscale_` of another optimizer, or a clip on every
micro-batch with `unscale_` only at the end of the window.

## Why is this bad?
The gradients are about 65536 times too large, so `max_norm=1.0` acts like `max_norm=1.5e-5`:
every step is clipped. Nothing is raised. The update is 2.9e-5 of the right one with SGD and
0.96 with Adam, which normalises most of it away. As the loss scale changes during training, so
does the real threshold, and resumed runs differ.

`clip_grad_norm_(parameters, max_norm * scaler.get_scale())` without `unscale_` is right.

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
    scaler.scale(loss).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
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
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    scaler.step(optimizer)
    scaler.update()
```

## How it is confirmed
Executing the function shows that the clip sees a norm 65536 times that of the same run with the
scaler off, and that the parameters move by a tiny part of the right update.

## Fix safety
Unsafe: gradients are then clipped at the threshold that the code names, which changes training. The
fix puts `scaler.unscale_(optimizer)` in front of the clip, and takes away one that follows in the
same block. It is offered where the clip is a statement of its own, and control runs from it to the
only step of this optimizer in the function. A test of names and attributes that only the step is
under (`if use_amp and scaler is not None:`) is written around the new call as well. Where the step
stands under a test that is computed, or in a loop over optimizers (`for each in optimizers:`), the
clips move in front of it, with the tests around them, so that they run once for each step; so does a
clip in front of the line that binds the scaler. There is no fix where a norm that is kept would have to
move, where the function also steps elsewhere, and where something between reads or drops gradients.

## Known limits
With several optimizers a clip is reported only if none of their gradients can be unscaled, or where
the code shows that one of them owns other modules than those that are. A clip whose threshold
mentions the scale is taken to be right.

## References
- PyTorch, Automatic Mixed Precision examples: "Gradient clipping"
- `torch/amp/grad_scaler.py`: `GradScaler.unscale_`
- `torch/nn/utils/clip_grad.py`: `clip_grad_norm_`, `clip_grad_value_`
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.code.dataflow import arguments, bindings_of
from amplint.code.expressions import path_text
from amplint.code.layout import layout_of
from amplint.expectations import breaks
from amplint.findings import Finding, Severity
from amplint.fixing.statements import beside, calls_on, code_of, is_unconditional, own_statement
from amplint.fixing.verbs import Insert, Move, Repair, unsafe
from amplint.fixing.windows import PLAIN, at_the_step, under
from amplint.rule import Misuse, Rule
from amplint.view import FileView
from amplint.wording import report

RULE = Rule(
    code="AMP110",
    name="clip-without-unscale",
    severity=Severity.ERROR,
    effect="silent",
    summary="gradients clipped while still multiplied by the loss scale",
    facts=("C01", "C02", "C03", "C08", "U09"),
    fix="unsafe",
    probe=breaks("clip-of-scaled"),
)

MESSAGES = {
    "": (
        "`{clip}` clips scaled gradients{when}: its limit is too small by the loss scale, {scale}"
    ),
}
HELPS = {
    "": "call `{scaler}.unscale_({optimizer})` once between the last backward and `{clip}`",
}


def check(view: FileView) -> Iterator[Finding]:
    """Report the clips that see scaled gradients."""
    return report(view, RULE, MESSAGES, HELPS, _unscale_before)


def _unscale_before(view: FileView, misuse: Misuse) -> Repair | None:
    """Unscale in front of the clip instead of behind it or not at all."""
    statement, layout = own_statement(misuse, view), layout_of(misuse.function)
    steps = [
        site.node
        for site in calls_on(view, misuse, "step")
        if misuse.node in layout and layout.reaches(misuse.node, site.node)
    ]
    optimizer = _first(steps[0]) if len(steps) == 1 else ""
    if statement is not None and not steps:
        return at_the_step(view, misuse, statement)
    if statement is None or not optimizer or misuse.optimizer not in ("", optimizer):
        return None
    guards = _guards(view, misuse, steps[0])
    if guards is None:
        return at_the_step(view, misuse, statement)
    late = [site for site in calls_on(view, misuse, "unscale_") if _first(site.node) == optimizer]
    if not late:
        code = f"{misuse.scaler}.unscale_({optimizer})"
        return unsafe(Insert(statement, under(guards, code)))
    block = beside(misuse, statement)
    following = block[block.index(statement) + 1 :] if statement in block else []
    moved = [other for other in following if getattr(other, "value", None) is late[0].node]
    if len(late) > 1 or not moved or not is_unconditional(misuse):
        return None
    return unsafe(Move(moved[0], statement))


def _first(call: ast.Call) -> str:
    """The first argument of a call as text."""
    return next(map(ast.unparse, arguments(call)), "")


def _guards(view: FileView, misuse: Misuse, step: ast.Call) -> list[str] | None:
    """Tests that only the step behind the clip is under; None where it is not behind it.

    A test that is computed, or may have changed, stands for an accumulation window or more: there
    the clip has to move as well.
    """
    layout = layout_of(misuse.function)
    if layout.loops(misuse.node) != layout.loops(step):
        return None
    own = layout.conditions(misuse.node)
    found = [test for test in layout.conditions(step) if test not in own]
    branches = [node for node in layout.ancestors(step) if isinstance(node, ast.If)]
    body = [node.test for node in branches if any(layout.holds(one, step) for one in node.body)]
    for test in found:
        if test not in body or not all(isinstance(node, PLAIN) for node in ast.walk(test)):
            return None
        paths = {path_text(node) for node in ast.walk(test)} & {*_bound_between(misuse, step)}
        if paths:
            return None
    return [code_of(view, test) for test in found]


def _bound_between(misuse: Misuse, step: ast.Call) -> set[str]:
    """What the function binds between the clip and the step."""
    between = layout_of(misuse.function).between(misuse.node, step)
    bindings = bindings_of(misuse.function)
    return {
        path for path, items in bindings.items() if any(one.statement in between for one in items)
    }
