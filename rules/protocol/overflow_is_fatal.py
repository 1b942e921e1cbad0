"""# overflow-is-fatal (AMP129)

The program ends at gradients that are not finite, which its scaler would have skipped.

## What it does
Flags, behind `scaler.unscale_(optimizer)`, a clip with `error_if_nonfinite=True`, and a `raise`,
`assert` or exit that is decided by gradients, or their norm, not being finite, also in a function
or a callback that is called there. Flags `fabric.clip_gradients`
with `max_norm`, where the Fabric was built with 16-bit mixed precision: it is
`error_if_nonfinite=True` by default. Where a handler around the clip catches the error, it is
silent, and so it is about losses: a forward that is not finite is no matter of the scale.

## Why is this bad?
With a gradient scaler an overflow is an ordinary event. The scale begins at 65536, grows every 2000
steps, and is too large now and then: gradients become inf, `scaler.step` skips the update, and
`scaler.update` halves the scale. A program that raises at the norm dies there, often at the first
batch: `RuntimeError: The total norm of order 2.0 for gradients from `parameters` is non-finite, so
it cannot be clipped. To disable this error and scale the gradients by the non-finite norm anyway,
set `error_if_nonfinite=False``

## Example
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
scaler = torch.amp.GradScaler("cpu", init_scale=65536.0)

for _ in range(16):
    optimizer.zero_grad()
    inputs = torch.randn(8, 4)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = torch.nn.functional.mse_loss(model(inputs), 100 * inputs[:, :1])
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
    scaler.step(optimizer)
    scaler.update()
```

## Use instead
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
scaler = torch.amp.GradScaler("cpu", init_scale=65536.0)

for _ in range(16):
    optimizer.zero_grad()
    inputs = torch.randn(8, 4)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = torch.nn.functional.mse_loss(model(inputs), 100 * inputs[:, :1])
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
```

## How it is confirmed
Executing the example raises the error above; without it the first steps are skipped, and it trains.
For Fabric the same with lightning 2.6 and its own plugin on the CPU. The probe does not look for
it: whether gradients overflow depends on your model and data.

## Fix safety
No fix is offered: somebody wanted to know.

## Known limits
Clip and `unscale_` have to stand in one function; a test may be three calls deep. A test that counts, such as "ten in a row",
is not reported, nor is one of NaN alone. A Fabric that may shard its model (FSDP) is left out: its
strategy clips by a function of its own, which does not ask.

## References
- `torch/nn/utils/clip_grad.py`: `clip_grad_norm_`; `torch/amp/grad_scaler.py`: `GradScaler.step`
- lightning, `fabric/fabric.py`: `Fabric.clip_gradients`; `fabric/strategies/fsdp.py`: `clip_gradients_norm`
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.amp import links
from amplint.amp.accelerators import FABRIC, settings_of
from amplint.amp.clips import torch_clips
from amplint.amp.gradients import FINITENESS, words_of
from amplint.amp.library_objects import calls_on
from amplint.amp.overflows import at_overflow
from amplint.amp.scaler_calls import scaler_calls
from amplint.amp.switches import is_switch
from amplint.code.dataflow import bindings_of, names_in
from amplint.code.expressions import last_name
from amplint.code.layout import layout_of
from amplint.code.module import CallSite, Function, walk
from amplint.findings import Finding, Link, PathStep, Severity
from amplint.rule import Rule
from amplint.values.conditions import conditions_at
from amplint.values.kinds import targets_of
from amplint.values.provenance import Activation, Firmness
from amplint.view import FileView

RULE = Rule(
    code="AMP129",
    name="overflow-is-fatal",
    severity=Severity.ERROR,
    effect="crash",
    summary="the program ends at gradients that are not finite, which the scaler would skip",
    unprobed="whether gradients overflow depends on your model and data",
)
#: What may end the program: a test, or a call that leads to one.
_ENDS = (ast.Assert, ast.If, ast.Call)
#: What ends the program is looked for this many calls deep.
_CALLS = 3
#: How the names of strategies end that shard a model.
_SHARDS = ("fsdp", "fsdp_cpu_offload")
#: With these a Fabric scales losses, on CUDA.
_SCALED = (16, "16", "16-mixed")

RAISES = "`{clip}` raises at the first overflow, which `{scaler}` would skip"
ENDS = "the program ends at the first overflow of the gradients, which `{scaler}` would skip"
HELP = "let the step be skipped: drop `error_if_nonfinite`, or log the norm"
FABRIC_HELP = "pass `error_if_nonfinite=False`: the step is then skipped"


def check(view: FileView) -> Iterator[Finding]:
    """Report what ends a training at an overflow that it could go on from."""
    if "unscale_" in view.module.source:
        yield from _fatal_tests(view)
    if "error_if_nonfinite" in view.module.source:
        yield from _raising_clips(view)
    if "abric" in view.module.source and "clip_gradients" in view.module.source:
        yield from _fabrics(view)


def _raising_clips(view: FileView) -> Iterator[Finding]:
    for clip in torch_clips(view):
        unscaled = _unscaled_before(view, clip.node, clip.function)
        link = _asked_to_raise(view, clip)
        if unscaled is None or link is None or _is_caught(clip) or _runs_if_finite(view, clip):
            continue
        words = {"clip": view.source_of(clip.node.func), "scaler": _scaler(view, unscaled)}
        yield _finding(view, clip.node, RAISES.format_map(words), unscaled, (link,))


def _runs_if_finite(view: FileView, clip: CallSite) -> bool:
    """Whether a test around a clip, or what it asks, looks for values that are not finite."""
    bound = bindings_of(clip.function)
    for condition in conditions_at(clip.node, clip.function):
        asked = [item.value for name in names_in(condition.test) for item in bound.get(name, ())]
        for source in (condition.test, *asked):
            if source is not None and _looks_for_overflow(view, source, clip.function):
                return True
    return False


def _looks_for_overflow(view: FileView, source: ast.expr, function: Function) -> bool:
    calls = [node for node in walk(source) if isinstance(node, ast.Call)]
    callees = (view.objects.callee(call, function) for call in calls)
    return any(last_name(call.func) in FINITENESS for call in calls) or any(
        callee is not None and words_of(layout_of(callee).nodes) & FINITENESS for callee in callees
    )


def _asked_to_raise(view: FileView, clip: CallSite) -> Link | None:
    """That `error_if_nonfinite` is True."""
    for word in clip.node.keywords:
        if word.arg == "error_if_nonfinite":
            firmness = view.values.truth(word.value, clip.function).get(True)
            known = view.values.of(word.value, clip.function).values
            if firmness is not None and known:
                return links.held(firmness, ast.unparse(word.value), "asks for an error")
    return None


def _unscaled_before(view: FileView, node: ast.AST, function: Function) -> CallSite | None:
    """The `unscale_` of a scaler from which control runs down to a node."""
    layout = layout_of(function)
    found = [
        site
        for site in scaler_calls(view, "unscale_", within=function)
        if site.node in layout and node in layout and layout.reaches(site.node, node)
    ]
    return found[-1] if found else None


def _is_caught(clip: CallSite) -> bool:
    """Whether a handler of the function may catch what a clip raises."""
    layout = layout_of(clip.function)
    return any(
        isinstance(outer, ast.Try)
        and outer.handlers
        and any(layout.holds(statement, clip.node) for statement in outer.body)
        for outer in layout.ancestors(clip.node)
    )


# -- tests of gradients -----------------------------------------------------------------------------


def _fatal_tests(view: FileView) -> Iterator[Finding]:
    """Tests of gradients that end the program where they are not finite, here or in what is called."""
    for function in {site.function: None for site in scaler_calls(view, "unscale_")}:
        layout = layout_of(function)
        for node in (item for item in layout.nodes if isinstance(item, _ENDS)):
            unscaled = _unscaled_before(view, node, function)
            if unscaled is None or _in_handler(function, node):
                continue
            ending = _ending(view, node, function)
            path: tuple[PathStep, ...] = ()
            # Behind the loop nothing waits for a step.
            if ending is None and layout.loops(node) == layout.loops(unscaled.node):
                path = _ending_behind(view, node, function)
            if (ending is None and not path) or _is_taken_up(view, function):
                continue
            if not _asks_for_scaling(view, node, function, unscaled):
                message = ENDS.format(scaler=_scaler(view, unscaled))
                yield _finding(view, ending or node, message, unscaled, (), path)


def _is_taken_up(view: FileView, function: Function, depth: int = _CALLS) -> bool:
    """Whether a handler around a call that leads to a function may take what it raises."""
    return bool(depth) and any(
        _in_handler(site.function, site.node) or _is_taken_up(view, site.function, depth - 1)
        for site in view.objects.calls_of(function)
    )


def _asks_for_scaling(
    view: FileView, node: ast.AST, function: Function, unscaled: CallSite | None = None
) -> bool:
    """Whether a test around a node, and not around the `unscale_`, asks whether AMP is on."""
    shared = unscaled.node if unscaled is not None else None
    before = {item.test for item in conditions_at(shared, function)} if shared is not None else ()
    return any(
        item.test not in before and is_switch(item.test, function, (view.module, function.module))
        for item in conditions_at(node, function)
    )


def _ending_behind(
    view: FileView,
    node: ast.AST,
    function: Function,
    outer: Activation | None = None,
    depth: int = _CALLS,
) -> tuple[PathStep, ...]:
    """The way from a call to what ends the program where gradients are not finite; () for others."""
    if not isinstance(node, ast.Call) or not depth:
        return ()
    for callee in targets_of(view.objects.origins, node, function, outer).functions:
        inside = layout_of(callee).nodes if callee is not function else ()
        entered = Activation(callee, node, function, outer)
        endings = view.once(_endings, callee)
        for part in inside:
            ending = endings.get(part)
            further: tuple[PathStep, ...] = ()
            if ending is None:
                further = _ending_behind(view, part, callee, entered, depth - 1)
            if (ending is None and not further) or _in_handler(callee, part):
                continue
            if not _asks_for_scaling(view, part, callee):
                step = view.step(ending or part, callee.module, "ends where they are not finite")
                return (step, *further)
    return ()


def _endings(view: FileView, function: Function) -> dict[ast.AST, ast.AST]:
    """The nodes of a function that end the program where gradients are not finite, with what ends it."""
    found = {node: _ending(view, node, function) for node in layout_of(function).nodes}
    return {node: ending for node, ending in found.items() if ending is not None}


def _ending(view: FileView, node: ast.AST, function: Function) -> ast.AST | None:
    """The statement that ends the program where gradients are not finite."""
    if isinstance(node, ast.Assert):
        if view.objects.is_run_by_tests(function):
            return None
        return node if at_overflow(view, node.test, function) is False else None
    if not isinstance(node, ast.If):
        return None
    endings = {
        side: next((each for each in branch if isinstance(each, ast.Raise)), None)
        for side, branch in ((True, node.body), (False, node.orelse))
    }
    if not any(endings.values()):
        return None
    outcome = at_overflow(view, node.test, function)
    return None if outcome is None else endings[outcome]


def _in_handler(function: Function, node: ast.AST) -> bool:
    """Whether what a statement raises may be caught in the function."""
    layout = layout_of(function)
    return any(isinstance(outer, ast.Try) and outer.handlers for outer in layout.ancestors(node))


# -- Fabric ----------------------------------------------------------------------------------------


def _fabrics(view: FileView) -> Iterator[Finding]:
    """Clips of a Fabric that scales, which raise unless they are told not to."""
    for clip in calls_on(view.objects, view.module, FABRIC, "clip_gradients"):
        assert isinstance(clip.node.func, ast.Attribute)
        given = {item.arg: item.value for item in clip.node.keywords}
        if "max_norm" not in given or None in given or len(clip.node.args) > 2:
            continue
        if clip.node not in layout_of(clip.function) or _is_caught(clip):
            continue
        asked = given.get("error_if_nonfinite")
        if asked is not None and view.values.of(asked, clip.function).only() is not True:
            continue
        fabric = clip.node.func.value
        link = _scales(view, fabric, clip.function)
        if link is not None and not _clips_by_itself(view, fabric, clip.function):
            words = {"clip": view.source_of(clip.node.func), "scaler": "its scaler"}
            message = RAISES.format_map(words).replace("`its scaler`", "its scaler")
            rests = (
                links.library_object(view, fabric, clip.function),
                link,
                links.proved("damage", clip.node, "raises where gradients are not finite"),
            )
            yield view.finding(RULE, clip.node, message, FABRIC_HELP, links=rests)


def _scales(view: FileView, fabric: ast.expr, function: Function) -> Link | None:
    for item in settings_of(view, fabric, function, "precision", 4, FABRIC):
        for value in sorted(item.possible.values, key=lambda value: -value.firmness):
            if value.content in _SCALED and not isinstance(value.content, bool) and item.given:
                text = ast.unparse(item.given)
                if value.firmness is Firmness.CHOICE:
                    text = f"{text} == {value.content!r}"
                return links.held(value.firmness, text, "makes the Fabric scale")
    return None


def _clips_by_itself(view: FileView, fabric: ast.expr, function: Function) -> bool:
    """Whether a Fabric may be one whose strategy clips without asking whether the norm is finite.

    lightning, `fabric/strategies/{fsdp,xla_fsdp}.py`: `clip_gradients_norm`.
    """
    for item in settings_of(view, fabric, function, "strategy", 1, FABRIC):
        if item.given is None:
            continue
        if any(str(value.content).endswith(_SHARDS) for value in item.possible.values):
            return True
        origins = view.values.origins.of(item.given, item.built.function).origins
        made = [origin.expression for origin in origins]
        calls = [node for node in made if isinstance(node, ast.Call)]
        if any(last_name(call.func).endswith("FSDPStrategy") for call in calls):
            return True
    return False


def _scaler(view: FileView, unscaled: CallSite) -> str:
    assert isinstance(unscaled.node.func, ast.Attribute)
    return view.source_of(unscaled.node.func.value)


def _finding(
    view: FileView,
    node: ast.AST,
    message: str,
    unscaled: CallSite,
    more: tuple[Link, ...],
    behind: tuple[PathStep, ...] = (),
) -> Finding:
    would = view.step(unscaled.node, view.module, "the scaler would skip what is not finite")
    rests = (
        *links.stepped(view, unscaled),
        *more,
        links.proved("damage", node, "ends the program where gradients are not finite"),
    )
    return view.finding(RULE, node, message, HELP, path=(would, *behind), links=rests)
