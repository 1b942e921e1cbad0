"""# clip-without-unscale (AMP110)

Gradients are clipped while they are still multiplied by the loss scale.

## What it does
Flags `clip_grad_norm_`, `clip_grad_value_`, `p.grad.clamp_(-1, 1)` in a loop over parameters, an
optimizer's or model's clip method and project functions that clip, when the gradients come from a scaled backward and were not unscaled:
no `unscale_`, `unscale_` after the clip, `unscale_` of another optimizer, or a clip on every
micro-batch with `unscale_` only at the end of the window. A hook on parameters that clips
(`register_hook`) runs inside the backward, before any `unscale_`.

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
mentions the scale is taken to be right. A clip that a factory in sight returns is not seen as one.

## References
- PyTorch, Automatic Mixed Precision examples: "Gradient clipping"
- `torch/amp/grad_scaler.py`: `GradScaler.unscale_`
- `torch/nn/utils/clip_grad.py`: `clip_grad_norm_`, `clip_grad_value_`
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

from amplint.amp import links
from amplint.amp.gradient_hooks import ClippingHook, clipping_hooks, ways_onto
from amplint.amp.ownership import Owned, owned_modules
from amplint.amp.scaling import ScalerUse, scale_words, scaler_uses
from amplint.code.dataflow import arguments, bindings_of
from amplint.code.expressions import path_text
from amplint.code.layout import layout_of
from amplint.expectations import breaks
from amplint.findings import Finding, Severity
from amplint.fixing.statements import beside, calls_on, code_of, is_unconditional, own_statement
from amplint.fixing.verbs import Insert, Move, Repair, unsafe
from amplint.fixing.windows import PLAIN, at_the_step, under
from amplint.rule import Misuse, Rule
from amplint.values.assumptions import Assumptions
from amplint.values.provenance import Condition, same_call
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


#: A clip in a hook on parameters, which runs while the scaled backward does.
IN_A_HOOK = (
    "`{clip}` clips gradients in a hook, while they are scaled: its limit is too small by the loss "
    "scale, {scale}"
)
HELP_IN_A_HOOK = (
    "clip behind `{scaler}.unscale_({optimizer})` instead, or multiply the limit by "
    "`{scaler}.get_scale()`"
)


def check(view: FileView) -> Iterator[Finding]:
    """Report the clips that see scaled gradients, on some path or in a hook."""
    yield from report(view, RULE, MESSAGES, HELPS, _unscale_before)
    yield from _in_hooks(view)


def _in_hooks(view: FileView) -> Iterator[Finding]:
    """The clips of hooks on what a scaler's steps train; each once, where this file shows it."""
    steps = list(_steps(view))
    hooks = list(clipping_hooks(view, around=view.is_written)) if steps else ()
    told: set[ast.AST] = set()
    for use, owned in steps:
        for hook in hooks:
            anchor = _anchor(view, use, hook)
            ways = ways_onto(view, hook, owned.module) if anchor not in told else ()
            every = (_needed(view, use, way) for way in ways)
            needed = next((item for item in every if item is not None), None)
            if needed is not None:
                told.add(anchor)
                yield _of_hook(view, use, owned, hook, needed)


def _steps(view: FileView) -> Iterator[tuple[ScalerUse, Owned]]:
    """The steps of scalers, with the modules that they train.

    Where one step may be of several scalers, each with the optimizers that are built beside it.
    """
    uses = [use for use in scaler_uses(view, "step") if use.site.node.args]
    several = Counter(use.site for use in uses)
    for use in uses:
        for owned in owned_modules(view, use.site.node.args[0], use.site.function):
            is_beside = use.built.function is owned.optimizer.function
            if same_call(use.built, owned.optimizer) and (is_beside or several[use.site] == 1):
                yield use, owned


def _needed(
    view: FileView, use: ScalerUse, registers: tuple[Condition, ...]
) -> list[Condition] | None:
    """The conditions under which a scaler is on and a hook is there; None where that may never be.

    Switches that nothing ties may exclude each other.
    """
    enabled = [Condition(use.enabled, True, use.switching)] if use.enabled is not None else []
    switches = [*use.built.conditions, *enabled]
    facts = Assumptions.of(view.values, registers)
    for item in switches:
        sides = view.values.truth(item.test, item.function)
        if item.side not in sides:
            return None
        answer = facts.decides(item.test, item.function) if registers else item.side
        if answer is (not item.side) or (answer is None and len(sides) > 1):
            return None
    return [*switches, *registers]


def _of_hook(
    view: FileView,
    use: ScalerUse,
    owned: Owned,
    hook: ClippingHook,
    conditions: list[Condition],
) -> Finding:
    call = use.site.node
    assert isinstance(call.func, ast.Attribute)
    scaler, optimizer = ast.unparse(call.func.value), _first(call)
    words = {
        "clip": view.source_of(hook.clip.func),
        "scale": scale_words(view, scaler, use.site.function),
        "scaler": scaler,
        "optimizer": optimizer,
    }
    built = owned.optimizer
    path = (
        view.step(hook.site.node, hook.site.function.module, "every backward runs the hook"),
        view.step(built.expression, built.function.module, "the optimizer owns the parameters"),
        view.step(call, use.site.function.module, f"`{scaler}` has scaled their gradients"),
    )
    rests = (
        *links.stepped(view, use.site),
        *links.chosen(view, conditions),
        links.proved("damage", hook.clip, "limits scaled gradients"),
    )
    message, help = IN_A_HOOK.format_map(words), HELP_IN_A_HOOK.format_map(words)
    anchor = _anchor(view, use, hook)
    return view.finding(RULE, anchor, message, help, path=path, links=rests)


def _anchor(view: FileView, use: ScalerUse, hook: ClippingHook) -> ast.AST:
    """The clip, or the step that makes it wrong where another file registers the hook."""
    is_here = hook.site.function.module is view.module
    return hook.clip if is_here else use.site.node


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
