"""# lightning-clip-while-scaled (AMP608)

A LightningModule clips gradients before its Trainer's precision plugin unscales them.

## What it does
Flags `self.clip_gradients(...)` and torch's clipping functions behind `self.manual_backward(loss)`
in a method of a `LightningModule`, and anywhere in its `on_after_backward`, where the project
builds a `Trainer` with `precision="16-mixed"` (or `16`, `"16"`, or a `MixedPrecision` plugin of
that) in the same file or in a file that imports the module.

## Why is this bad?
The Trainer's precision plugin owns a GradScaler on CUDA. `manual_backward` scales the loss, and only
the step of the wrapped optimizer unscales. Gradients in between are 65536 times too large at first:
the clip acts as a limit 65536 times smaller. In the example the update is 3e-5 of what it should
be. Lightning raises nothing and warns of nothing.

## Example
```python
import torch
from lightning import LightningModule, Trainer


class Regression(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.automatic_optimization = False

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def training_step(self, batch, index):
        inputs, targets = batch
        optimizer = self.optimizers()
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(self.layer(inputs), targets)
        self.manual_backward(loss)
        self.clip_gradients(optimizer, 1.0, "norm")
        optimizer.step()


data = torch.utils.data.TensorDataset(torch.randn(16, 4), torch.randn(16, 1))
trainer = Trainer(
    precision="16-mixed",
    max_epochs=1,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Regression(), torch.utils.data.DataLoader(data, batch_size=8))
```

## Use instead
```python
import torch
from lightning import LightningModule, Trainer


class Regression(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.automatic_optimization = False

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def training_step(self, batch, index):
        inputs, targets = batch
        optimizer = self.optimizers()
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(self.layer(inputs), targets)
        self.manual_backward(loss)
        optimizer.step()

    def on_before_optimizer_step(self, optimizer):
        self.clip_gradients(optimizer, 1.0, "norm")


data = torch.utils.data.TensorDataset(torch.randn(16, 4), torch.randn(16, 1))
trainer = Trainer(
    precision="16-mixed",
    max_epochs=1,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Regression(), torch.utils.data.DataLoader(data, batch_size=8))
```

## How it is confirmed
Executed with lightning 2.6 and its own `MixedPrecision` plugin on the CPU, scaler included: see the
update above. The probe does not load lightning.

## Fix safety
No fix is offered: the clip has to move into another method.

## Known limits
Silent where no Trainer with a known 16-bit precision is found, and where the class has a
`clip_gradients` of its own. Backward and clip have to stand in one method.

## References
- lightning, `pytorch/plugins/precision/amp.py`: `MixedPrecision.pre_backward`, `optimizer_step`
- lightning, `pytorch/core/module.py`: `LightningModule.clip_gradients`
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.amp import links
from amplint.amp.clips import has_other_limit, torch_clips
from amplint.amp.lightning import is_lightning_module, scaling_trainer
from amplint.code.expressions import path_text
from amplint.code.layout import layout_of
from amplint.code.module import CallSite, Class, enclosing_class
from amplint.code.tree import walk
from amplint.expectations import IN_A_LIBRARY
from amplint.findings import Finding, Link, Severity, Standing
from amplint.rule import Rule
from amplint.view import FileView

RULE = Rule(
    code="AMP608",
    name="lightning-clip-while-scaled",
    severity=Severity.ERROR,
    effect="silent",
    summary="a LightningModule clips before its 16-bit Trainer has unscaled the gradients",
    unprobed=IN_A_LIBRARY,
)
#: Behind one of these in a method the gradients have their own size, or are used up.
_UNSCALES = frozenset(("unscale_", "step"))

MESSAGE = "`{clip}` clips gradients that {where} scaled: the Trainer unscales them in the step"
HELP = "clip in `on_before_optimizer_step(self, optimizer)`: there the gradients are unscaled"


def check(view: FileView) -> Iterator[Finding]:
    """Report the clips of Lightning modules that come too early."""
    if "ightning" not in view.module.source:
        return
    for clip in [*torch_clips(view), *_own_clips(view)]:
        owner = enclosing_class(clip.function)
        where = _scaled_by(clip)
        if owner is None or not where or not is_lightning_module(view, owner):
            continue
        found = scaling_trainer(view, owner)
        if found is None or has_other_limit(view, clip):
            continue
        trainer, precision = found.site, found.precision
        step = view.step(
            trainer.node, trainer.function.module, f"trains with {precision.content!r}"
        )
        rests = (
            Link("object", Standing.LIBRARY, owner.name, "is a LightningModule"),
            links.held(precision.firmness, found.words, "makes the Trainer scale"),
            links.proved("damage", clip.node, "sees gradients that are still scaled"),
        )
        message = MESSAGE.format(clip=view.source_of(clip.node.func), where=where)
        yield view.finding(RULE, clip.node, message, HELP, path=(step,), links=rests)


def _own_clips(view: FileView) -> Iterator[CallSite]:
    """Calls of Lightning's own `self.clip_gradients`."""
    for site in view.module.calls:
        if site.method != "clip_gradients" or path_text(site.node.func) != "self.clip_gradients":
            continue
        owner = enclosing_class(site.function)
        if owner is not None and not _defines_clip(view, owner):
            yield site


def _defines_clip(view: FileView, owner: Class) -> bool:
    return view.objects.method(owner, "clip_gradients") is not None


def _scaled_by(clip: CallSite) -> str:
    """What has scaled the gradients that a clip sees, in words; "" where nothing surely has."""
    function, layout = clip.function, layout_of(clip.function)
    if clip.node not in layout:
        return ""
    calls = [site for site in function.module.calls if site.function is function]
    before = [site for site in calls if site.node in layout and _precedes(clip, site)]
    backwards = [item for item in before if path_text(item.node.func) == "self.manual_backward"]
    last = backwards[-1] if backwards else None
    hook = function.owner is not None and function.name == "on_after_backward"
    if last is None and not hook:
        return ""
    since = [item for item in before if last is None or layout.before(last.node, item.node)]
    if any(item.method in _UNSCALES for item in since) or _tests_precision(clip):
        return ""
    return "`self.manual_backward`" if last is not None else "the backward before this hook"


def _precedes(clip: CallSite, site: CallSite) -> bool:
    layout = layout_of(clip.function)
    return layout.before(site.node, clip.node) and not layout.exclusive(site.node, clip.node)


def _tests_precision(clip: CallSite) -> bool:
    """Whether a test around a clip reads the Trainer's precision, or its scaler."""
    tests = layout_of(clip.function).conditions(clip.node)
    parts = (node for test in tests for node in walk(test) if isinstance(node, ast.expr))
    paths = filter(None, map(path_text, parts))
    return any("precision" in path or "scaler" in path for path in paths)
