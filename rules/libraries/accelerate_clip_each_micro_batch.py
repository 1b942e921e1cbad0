"""# accelerate-clip-each-micro-batch (AMP611)

Under `accelerator.accumulate` gradients are clipped on each micro-batch, not once for each step.

## What it does
Flags a clip behind `accelerator.backward(loss)` in a `with accelerator.accumulate(model):` block
that no test such as `if accelerator.sync_gradients:` keeps for the last micro-batch, where the
accelerator is built with more than one `gradient_accumulation_steps`, or with an option for it.

## Why is this bad?
In the block `optimizer.step()` and `zero_grad()` do nothing until the last micro-batch. A clip does
not know that: it runs on each one and shortens the sum so far, so early micro-batches count less
than late ones. Under `mixed_precision="fp16"` training stops with `RuntimeError: unscale_() has
already been called on this optimizer since the last update().`, because `clip_grad_norm_` of the
accelerator unscales.

## Example
```python
import torch
from accelerate import Accelerator

precision = "fp16" if torch.cuda.is_available() else "no"
accelerator = Accelerator(mixed_precision=precision, gradient_accumulation_steps=4)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = accelerator.prepare(model, optimizer)

for _ in range(8):
    with accelerator.accumulate(model):
        inputs = torch.randn(8, 4, device=accelerator.device)
        loss = torch.nn.functional.mse_loss(model(inputs), 4 * inputs[:, :1])
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
```

## Use instead
```python
import torch
from accelerate import Accelerator

precision = "fp16" if torch.cuda.is_available() else "no"
accelerator = Accelerator(mixed_precision=precision, gradient_accumulation_steps=4)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = accelerator.prepare(model, optimizer)

for _ in range(8):
    with accelerator.accumulate(model):
        inputs = torch.randn(8, 4, device=accelerator.device)
        loss = torch.nn.functional.mse_loss(model(inputs), 4 * inputs[:, :1])
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
```

## How it is confirmed
Executed with accelerate 1.15: in float32 the example ends a seventh of its way beside the right
place, and with a scaler on the CPU in the place of the one on CUDA the second micro-batch raises.
The probe runs your code with an accelerator of its own on torch's scaler: torch raises, or the clip
shortens gradients to which others are added before the step.

## Fix safety
Unsafe: the clip comes under `if accelerator.sync_gradients:`, so that each batch counts. There is no
fix where the norm that the clip returns is used.

## Known limits
Silent where `gradient_accumulation_steps` is left out, and where a test around the clip may depend
on the micro-batch. torch's own clips under fp16 are AMP609.

## References
- accelerate, `accelerator.py`: `Accelerator.accumulate`, `clip_grad_norm_`, `unscale_gradients`
- accelerate, documentation: "Performing gradient accumulation"
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.amp import links
from amplint.amp.accelerators import (
    ACCELERATOR,
    accumulation_steps,
    cleared_before,
    half_precision,
    in_accumulation,
    path_of,
    set_to,
)
from amplint.amp.clips import torch_clips
from amplint.amp.library_objects import calls_on
from amplint.code.arguments import parameters, receiver_of
from amplint.code.dataflow import bound_in
from amplint.code.expressions import path_text
from amplint.code.layout import layout_of
from amplint.code.module import CallSite
from amplint.code.tree import walk
from amplint.expectations import breaks, measured
from amplint.findings import Finding, Link, Severity, Standing
from amplint.fixing.verbs import Repair, Within, unsafe
from amplint.rule import Rule
from amplint.values.conditions import conditions_at
from amplint.values.provenance import Condition
from amplint.view import FileView

RULE = Rule(
    code="AMP611",
    name="accelerate-clip-each-micro-batch",
    severity=Severity.ERROR,
    effect="crash/silent",
    summary="gradients clipped on each micro-batch of `accelerator.accumulate`",
    fix="unsafe",
    probe=breaks("unscale-twice") + measured("shortened", "protocol"),
)

STOPS = "`{clip}` runs on each micro-batch: the second one raises, as it was unscaled already"
SHORTENS = (
    "`{clip}` runs on each micro-batch: it shortens the sum so far, and early ones count less"
)
HELP = "clip under `if {accelerator}.sync_gradients:`"


def check(view: FileView) -> Iterator[Finding]:
    """Report clips that every micro-batch of an accumulation runs."""
    if "accumulate" not in view.module.source or "ccelerat" not in view.module.source:
        return
    own = calls_on(view.objects, view.module, ACCELERATOR, "clip_grad_norm_", "clip_grad_value_")
    plain = torch_clips(view)
    clips = [*((site, True) for site in own), *((site, False) for site in plain)]
    if not clips:
        return
    backwards = list(calls_on(view.objects, view.module, ACCELERATOR, "backward"))
    for clip, is_own in clips:
        backward = _accumulating_backward(clip, backwards)
        tests = _tests_of_settings(view, clip, backward) if backward is not None else None
        if backward is None or tests is None:
            continue
        accelerator = _receiver(backward)
        steps = accumulation_steps(view, accelerator, backward.function)
        precision = half_precision(view, accelerator, backward.function)
        if steps is None or (precision is not None and not is_own):
            continue
        setting, value = steps
        assert setting.given is not None
        rests = (
            links.library_object(view, accelerator, backward.function),
            set_to(value, setting.given, ast.Gt(), 1),
            *links.chosen(view, tests),
            links.proved("damage", clip.node, "runs on each micro-batch"),
        )
        stops = precision is not None and precision[0].standing is Standing.CODE
        if not stops and cleared_before(backward) is not None:
            rests += (
                Link(
                    "damage",
                    Standing.HARMLESS,
                    ast.unparse(clip.node),
                    "shortens what is cleared before the step",
                ),
            )
        words = {
            "clip": view.source_of(clip.node.func),
            "accelerator": view.source_of(accelerator),
        }
        message = (STOPS if stops else SHORTENS).format_map(words)
        help, path = HELP.format_map(words), path_of(view, setting, value)
        fix = _once(clip, words["accelerator"])
        yield view.finding(RULE, clip.node, message, help, path=path, links=rests, fix=fix)


def _once(clip: CallSite, accelerator: str) -> Repair | None:
    """The clip on the last micro-batch, where nothing reads what it returns."""
    statement = layout_of(clip.function).statement(clip.node)
    if not isinstance(statement, ast.Expr) or statement.value is not clip.node:
        return None
    return unsafe(Within(statement, f"if {accelerator}.sync_gradients:", statement))


def _receiver(site: CallSite) -> ast.expr:
    assert isinstance(site.node.func, ast.Attribute)
    return site.node.func.value


def _accumulating_backward(clip: CallSite, backwards: list[CallSite]) -> CallSite | None:
    """The backward of an accumulation that each round of the clip's own loop runs before it."""
    layout = layout_of(clip.function)
    for site in backwards:
        if (
            site.function is not clip.function
            or not {site.node, clip.node} <= layout.parents.keys()
        ):
            continue
        if layout.loops(site.node) != layout.loops(clip.node):
            continue
        if layout.reaches(site.node, clip.node) and in_accumulation(
            site, path_text(_receiver(site))
        ):
            return site
    return None


def _asks_the_step(view: FileView, read: ast.AST, clip: CallSite) -> bool:
    """Whether what a test reads is `sync_gradients`, by itself or behind a property."""
    assert isinstance(read, ast.expr)
    behind = view.values.origins.aliases(read, clip.function)
    parts = (part for item in behind for part in walk(item.expression))
    return any(isinstance(part, ast.Attribute) and part.attr == "sync_gradients" for part in parts)


def _tests_of_settings(
    view: FileView, clip: CallSite, backward: CallSite
) -> tuple[Condition, ...] | None:
    """The tests between backward and clip; None if one may tell micro-batches apart."""
    before = {item.test for item in conditions_at(backward.node, backward.function)}
    tests = conditions_at(clip.node, clip.function)
    tests = tuple(item for item in tests if item.test not in before)
    layout = layout_of(clip.function)
    loops = layout.loops(clip.node)
    changed = bound_in(clip.function, loops[0] if loops else clip.function.node)
    if not loops:  # the caller's loop decides what it is called with
        changed |= parameters(clip.function).keys() - {receiver_of(clip.function)}
    for condition in tests:
        for node in walk(condition.test):
            path = path_text(node) if isinstance(node, (ast.Name, ast.Attribute)) else ""
            if isinstance(node, ast.Call) or path is None:
                return None
            if path.partition(".")[0] in changed or (path and _asks_the_step(view, node, clip)):
                return None
        if "self" in {item.id for item in walk(condition.test) if isinstance(item, ast.Name)} and (
            not view.values.of(condition.test, clip.function).values
        ):
            return None  # who knows when it changes
    return tests
