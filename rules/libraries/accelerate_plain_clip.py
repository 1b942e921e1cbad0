"""# accelerate-plain-clip (AMP609)

torch's own clipping between `accelerator.backward` and the step sees scaled gradients.

## What it does
Flags `torch.nn.utils.clip_grad_norm_` and `clip_grad_value_` behind `accelerator.backward(loss)`
in one function, where nothing has unscaled the gradients in between. It is an error where the
accelerator is built with `mixed_precision="fp16"`, or with an option that can be `"fp16"`, such as
an entry of a configuration with a default, and advice where nothing in sight says what the precision is.

## Why is this bad?
Under `mixed_precision="fp16"` the accelerator owns a gradient scaler. Its `backward` multiplies the
loss by 65536 at first, and only the step of the prepared optimizer divides again. A clip in between
compares the scaled gradients with the limit, so it acts as a limit 65536 times smaller: in the
example the update is 3e-5 of what it should be, and training stands still without any message. `accelerator.clip_grad_norm_` unscales first.

## Example
```python
import torch
from accelerate import Accelerator

precision = "fp16" if torch.cuda.is_available() else "no"
accelerator = Accelerator(mixed_precision=precision)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = accelerator.prepare(model, optimizer)

for _ in range(4):
    inputs = torch.randn(8, 4, device=accelerator.device)
    targets = torch.randn(8, 1, device=accelerator.device)
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    accelerator.backward(loss)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
```

## Use instead
```python
import torch
from accelerate import Accelerator

precision = "fp16" if torch.cuda.is_available() else "no"
accelerator = Accelerator(mixed_precision=precision)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = accelerator.prepare(model, optimizer)

for _ in range(4):
    inputs = torch.randn(8, 4, device=accelerator.device)
    targets = torch.randn(8, 1, device=accelerator.device)
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    accelerator.backward(loss)
    accelerator.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
```

## How it is confirmed
Executed with accelerate 1.15 and a scaler on the CPU in the place of the one on CUDA: the update of
the example is less than a ten-thousandth of the right one. The probe runs your code with an
accelerator of its own on torch's scaler, started plainly: the gradients must depend on the scale.

## Fix safety
No fix is offered: under accumulation the new call has to stand below `accelerator.sync_gradients`.

## Known limits
Backward and clip have to stand in one function. A clip under a test of the precision, a clip
without a limit (`float("inf")`), and one whose limit mentions the scale are taken to be right.

## References
- accelerate, `accelerator.py`: `Accelerator.backward`, `unscale_gradients`, `clip_grad_norm_`
- accelerate, `optimizer.py`: `AcceleratedOptimizer.step`
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.amp import links, names
from amplint.amp.accelerators import ACCELERATOR, half_precision, precisions_of
from amplint.amp.clips import clip_name, has_other_limit, torch_clips
from amplint.amp.library_objects import calls_on
from amplint.code.expressions import path_text
from amplint.code.layout import layout_of
from amplint.code.module import CallSite
from amplint.code.tree import walk
from amplint.expectations import breaks
from amplint.findings import Finding, Severity
from amplint.rule import Rule
from amplint.view import FileView

RULE = Rule(
    code="AMP609",
    name="accelerate-plain-clip",
    severity=Severity.ERROR,
    effect="silent",
    summary="torch's own clipping behind `accelerator.backward`, which has scaled the gradients",
    probe=breaks("clip-of-scaled"),
)
#: Methods that give gradients their own size back, of the accelerator and of its scaler.
UNSCALES = frozenset(
    ("unscale_gradients", "clip_grad_norm_", "clip_grad_value_", "unscale_", "step")
)
#: What an accelerator says about the step, and not about its precision.
_OF_STEPS = frozenset(("sync_gradients", "is_main_process", "is_local_main_process"))

MESSAGE = "`{clip}` clips what `{backward}` scaled: its limit is too small by the loss scale"
HELP = "call `{accelerator}.{name}(...)`, which unscales the gradients first"


def check(view: FileView) -> Iterator[Finding]:
    """Report each clip of torch's that follows the backward of an accelerator."""
    if "ccelerat" not in view.module.source:
        return
    clips = torch_clips(view)
    if not clips:
        return
    backwards = list(calls_on(view.objects, view.module, ACCELERATOR, "backward"))
    for clip in clips:
        backward = _backward_before(clip, backwards)
        if backward is None or _is_meant(view, clip, backward):
            continue
        accelerator = _accelerator(backward)
        precision = half_precision(view, accelerator, backward.function)
        if precision is not None:
            link, path = precision
            rests = (
                links.library_object(view, accelerator, backward.function),
                link,
                links.proved("damage", clip.node, "sees gradients that are still scaled"),
            )
            words = {
                "clip": view.source_of(clip.node.func),
                "backward": view.source_of(backward.node.func),
                "accelerator": view.source_of(accelerator),
                "name": "clip_grad_value_"
                if "value" in clip_name(view, clip)
                else "clip_grad_norm_",
            }
            message, help = MESSAGE.format_map(words), HELP.format_map(words)
            yield view.finding(RULE, clip.node, message, help, path=path, links=rests)


def _accelerator(backward: CallSite) -> ast.expr:
    assert isinstance(backward.node.func, ast.Attribute)
    return backward.node.func.value


def _backward_before(clip: CallSite, backwards: list[CallSite]) -> CallSite | None:
    """The last backward from which control runs down to a clip, with nothing that unscales."""
    layout = layout_of(clip.function)
    here = [site for site in backwards if site.function is clip.function and site.node in layout]
    if clip.node not in layout:
        return None
    before = [site for site in here if layout.reaches(site.node, clip.node)]
    if not before:
        return None
    between = [
        site
        for site in clip.function.module.calls
        if site.function is clip.function
        and site.method in UNSCALES
        and isinstance(site.node.func, ast.Attribute)
        and site.dotted not in names.CLIP_FUNCTIONS
        and site.node in layout
        and layout.before(before[-1].node, site.node)
        and layout.before(site.node, clip.node)
        and not layout.exclusive(site.node, clip.node)
    ]
    return None if between else before[-1]


def _is_meant(view: FileView, clip: CallSite, backward: CallSite) -> bool:
    """Whether a clip allows for the scale: by a test around it, by its limit, or by having none."""
    accelerator = path_text(_accelerator(backward))
    layout = layout_of(clip.function)
    for site in clip.function.module.calls:
        if site.function is not clip.function or site.method not in UNSCALES:
            continue
        callee = site.node.func
        if (
            isinstance(callee, ast.Attribute)
            and path_text(callee.value) == accelerator
            and site.node in layout
            and layout.exclusive(site.node, clip.node)
        ):
            return True  # a test decides between the two
    return _tests_precision(view, clip, backward) or has_other_limit(view, clip)


def _tests_precision(view: FileView, clip: CallSite, backward: CallSite) -> bool:
    """Whether a test around a clip reads the precision, or the accelerator that has it."""
    accelerator = path_text(_accelerator(backward))
    precisions = precisions_of(view, _accelerator(backward), backward.function)
    read = {path_text(item.given) for item in precisions if item.given is not None}
    tests = layout_of(clip.function).conditions(clip.node)
    parts = (node for test in tests for node in walk(test) if isinstance(node, ast.expr))
    for path in filter(None, map(path_text, parts)):
        owner, _, name = path.rpartition(".")
        if path in read or (owner == accelerator and name not in _OF_STEPS):
            return True
    return False
