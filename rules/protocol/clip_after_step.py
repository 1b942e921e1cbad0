"""# clip-after-step (AMP127)

Gradients are clipped after the step that applied them, or before the backward computes them.

## What it does
Flags `clip_grad_norm_`, `clip_grad_value_` and project functions that clip, between
`scaler.step(optimizer)` or `optimizer.step()` and the next backward, be it before `zero_grad()` or
behind it.

## Why is this bad?
The gradients were applied already, so the clip changes nothing that training uses. Nothing is
raised, and the norm it returns looks right in the log. An exploding gradient goes through
unclipped: with `max_norm=1e-4` the measured step was 5294 times the clipped one.

## Example
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
loader = [(torch.randn(8, 4), 100 * torch.randn(8, 1)) for _ in range(4)]

for inputs, targets in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
```

## Use instead
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
loader = [(torch.randn(8, 4), 100 * torch.randn(8, 1)) for _ in range(4)]

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
Executing the function with and without the clip moves the parameters by the same amount.

## Fix safety
Unsafe: steps become smaller where the clip has been without effect. The clip moves in front of the
only `scaler.step` of its block, behind a new `unscale_` if the function has none. No fix where the
step stands elsewhere, or where anything but plain calls lies between.

## Known limits
A clip with an infinite threshold only measures the norm and is silent.

## References
- PyTorch, Automatic Mixed Precision examples: "Gradient clipping"
- `torch/nn/utils/clip_grad.py`: `clip_grad_norm_`, `clip_grad_value_`
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from amplint.amp import links
from amplint.amp.clips import has_other_limit, torch_clips
from amplint.amp.roles import Role
from amplint.code.dataflow import receiver
from amplint.code.expressions import last_name
from amplint.code.layout import layout_of
from amplint.code.module import CallSite, Function
from amplint.expectations import measured
from amplint.findings import Finding, Severity
from amplint.fixing.statements import beside, calls_on, is_unconditional, own_statement
from amplint.fixing.verbs import Insert, Move, Repair, unsafe
from amplint.regions.regions import Inside
from amplint.regions.training import is_backward, stepped_optimizer
from amplint.rule import Misuse, Rule
from amplint.view import FileView
from amplint.wording import report

RULE = Rule(
    code="AMP127",
    name="clip-after-step",
    severity=Severity.ERROR,
    effect="silent",
    summary="gradients clipped when there are none to clip: after the step, or before the backward",
    facts=("C04",),
    fix="unsafe",
    probe=measured("idle-clip", "protocol", without="clips"),
)

MESSAGES = {
    "": "`{clip}` runs after the step{at}{when}: the gradients were applied unclipped",
}
HELPS = {
    "": "move `{clip}` before `{scaler}.step({optimizer})`, after `{scaler}.unscale_({optimizer})`",
}


NONE_YET = "`{clip}` runs before the backward (line {row}): there are no gradients to clip yet"
HELP_NONE_YET = "move `{clip}` behind the backward{unscale}, and before the step"


def check(view: FileView) -> Iterator[Finding]:
    """Report the clips of gradients that are spent, and of those that are not there yet."""
    yield from report(view, RULE, MESSAGES, HELPS, _clip_before)
    for clip in torch_clips(view):
        if view.is_judged(clip.function) and not has_other_limit(view, clip):
            yield from _before_backward(view, clip)


def _before_backward(view: FileView, clip: CallSite) -> Iterator[Finding]:
    """A clip between `zero_grad()` and the backward of the round that a step then uses."""
    found = _idle(view, clip)
    if found is None:
        return
    optimizer = stepped_optimizer(view.regions, Inside(found.step, clip.function))
    assert optimizer is not None
    unscale = f"{receiver(found.step)}.unscale_({ast.unparse(optimizer)})"
    words = {
        "clip": view.source_of(clip.node.func),
        "row": view.row_of(found.backward),
        "unscale": f", after `{unscale}`" if found.step.args else "",
    }
    rests = (
        links.participant(view, optimizer, clip.function, Role.OPTIMIZER),
        links.proved("damage", clip.node, "finds no gradients"),
    )
    path = (
        view.step(found.clearing, view.module, "the gradients are cleared"),
        view.step(clip.node, view.module, f"`{words['clip']}`"),
        view.step(found.backward, view.module, "the gradients come only here"),
    )
    message, help = NONE_YET.format_map(words), HELP_NONE_YET.format_map(words)
    yield view.finding(RULE, clip.node, message, help, path=path, links=rests)


@dataclass(frozen=True, slots=True, eq=False)
class _Idle:
    """The calls around a clip that finds nothing, in their order; the step may be anywhere."""

    clearing: ast.Call
    backward: ast.Call
    step: ast.Call


def _idle(view: FileView, clip: CallSite) -> _Idle | None:
    """What is around a clip that stands between `zero_grad()` and the first backward of a round.

    Only where one optimizer is cleared and stepped: of several nobody knows whose gradients are
    clipped. Nor where another clip follows the backward.
    """
    layout = layout_of(clip.function)
    calls = [node for node in layout.nodes if isinstance(node, ast.Call)]
    if clip.node not in layout or not _has_one_optimizer(view, calls, clip.function):
        return None
    here = [call for call in calls if layout.loops(call) == layout.loops(clip.node)]
    zeros = [call for call in here if _clears(call) and layout.dominates(call, clip.node)]
    behind = [
        call
        for call in here
        if is_backward(view.regions, Inside(call, clip.function))
        and layout.reaches(clip.node, call)
    ]
    if not zeros or not behind:
        return None
    between = layout.between(zeros[-1], clip.node)
    if any(_makes_gradients(view, node, clip.function) for node in between):
        return None
    later = [call for call in calls if layout.reaches(behind[0], call)]
    if {site.node for site in torch_clips(view)}.intersection(later):
        return None
    steps = [call for call in later if stepped_optimizer(view.regions, Inside(call, clip.function))]
    return _Idle(zeros[-1], behind[0], steps[0]) if steps else None


def _has_one_optimizer(view: FileView, calls: list[ast.Call], function: Function) -> bool:
    """Whether all that calls clear, and all that they step, is one object."""
    stepped = (stepped_optimizer(view.regions, Inside(call, function)) for call in calls)
    cleared = {receiver(call) for call in calls if _clears(call)}
    return len(cleared) == 1 and len({ast.unparse(item) for item in stepped if item}) == 1


def _clears(call: ast.Call) -> bool:
    return last_name(call.func) == "zero_grad"


def _makes_gradients(view: FileView, node: ast.AST, function: Function) -> bool:
    """Whether a node may run a backward, or writes gradients."""
    if isinstance(node, ast.Attribute) and node.attr == "grad":
        return True
    return isinstance(node, ast.Call) and (
        last_name(node.func) == "backward" or view.may_reach("backward", node, function)
    )


def _clip_before(view: FileView, misuse: Misuse) -> Repair | None:
    """Move the clip in front of the step, and unscale there if nothing does.

    Only where both stand in one block with nothing but plain calls between.
    """
    statement = own_statement(misuse, view)
    if not isinstance(statement, ast.Expr) or not is_unconditional(misuse):
        return None
    block = beside(misuse, statement)
    before = block[: block.index(statement)]
    steps = {site.node for site in calls_on(view, misuse, "step")}
    found = [other for other in before if getattr(other, "value", None) in steps]
    if len(found) != 1:
        return None
    if not all(isinstance(other, ast.Expr) for other in before[before.index(found[0]) :]):
        return None
    move = Move(statement, found[0])
    if any(calls_on(view, misuse, "unscale_")):
        return unsafe(move)
    return unsafe(Insert(found[0], f"{misuse.scaler}.unscale_({misuse.optimizer})"), move)
