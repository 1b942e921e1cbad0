"""# lightning-with-own-scaler (AMP602)

A LightningModule scales losses by hand while its Trainer runs with 16-bit mixed precision.

## What it does
Flags `scaler.scale(...)` in a `LightningModule` where the project builds a `Trainer` with
`precision="16-mixed"` (or `16`, `"16"`, or a `MixedPrecision` plugin of that) in the same file or in
a file that imports the module.

## Why is this bad?
The Trainer's precision plugin owns a GradScaler on CUDA: it scales in `backward` (in
`manual_backward`, too), and unscales and skips in the step of the wrapped optimizer. With a second
scaler the loss is multiplied by both scales, about 4 billion at the start: gradients overflow and
steps are skipped until one scale has shrunk to nothing. On CPU the plugin has no scaler, so a test
there shows nothing.

## Example
```python
import torch
from lightning import LightningModule, Trainer


class Regression(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=65536.0)
        self.automatic_optimization = False

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def training_step(self, batch, index):
        inputs, targets = batch
        optimizer = self.optimizers()
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(self.layer(inputs), targets)
        self.manual_backward(self.scaler.scale(loss))
        self.scaler.step(optimizer)
        self.scaler.update()


data = torch.utils.data.TensorDataset(torch.randn(16, 4), torch.randn(16, 1))
trainer = Trainer(
    precision="16-mixed",
    max_epochs=1,
    accelerator="cpu",
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


data = torch.utils.data.TensorDataset(torch.randn(16, 4), torch.randn(16, 1))
trainer = Trainer(
    precision="16-mixed",
    max_epochs=1,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Regression(), torch.utils.data.DataLoader(data, batch_size=8))
```

## How it is confirmed
Only on CUDA: there the trainer's plugin holds a scaler of its own.

## Fix safety
No fix is offered: several statements have to go.

## Known limits
Silent where no Trainer with a known 16-bit precision is found.

## References
- lightning, `pytorch/plugins/precision/amp.py`: `MixedPrecision.pre_backward`, `optimizer_step`
"""

from __future__ import annotations

from collections.abc import Iterator

from amplint.amp import links
from amplint.amp.lightning import is_lightning_module, scaling_trainer
from amplint.amp.scaler_calls import scaler_calls
from amplint.code.dataflow import receiver
from amplint.code.module import enclosing_class
from amplint.expectations import IN_A_LIBRARY
from amplint.findings import Finding, Link, Severity, Standing
from amplint.rule import Rule
from amplint.view import FileView

RULE = Rule(
    code="AMP602",
    name="lightning-with-own-scaler",
    severity=Severity.ERROR,
    effect="silent",
    summary="a hand-made `GradScaler` in a LightningModule run with a mixed `precision`",
    unprobed=IN_A_LIBRARY,
)
MESSAGE = (
    "the Trainer (line {row}{file}) scales by itself with {precision!r}: this loss is scaled twice"
)
HELP = "drop the GradScaler, call `self.manual_backward(loss)` and `optimizer.step()`"


def check(view: FileView) -> Iterator[Finding]:
    """Report the scaling in each LightningModule that a 16-bit Trainer runs."""
    if "ightning" not in view.module.source:
        return
    for site in scaler_calls(view, "scale"):
        owner = enclosing_class(site.function)
        if owner is None or not is_lightning_module(view, owner):
            continue
        found = scaling_trainer(view, owner)
        if found is not None:
            trainer, precision = found.site, found.precision
            other = trainer.function.module
            file = "" if other is view.module else f" of {other.filename}"
            content = precision.content
            message = MESSAGE.format(row=view.row_of(trainer.node), file=file, precision=content)
            step = view.step(trainer.node, other, f"the Trainer gets precision={content!r}")
            rests = (
                links.scaler_named(view, receiver(site.node), site.function),
                Link("object", Standing.LIBRARY, owner.name, "is a LightningModule"),
                links.held(precision.firmness, found.words, "trains in 16 bits"),
            )
            yield view.finding(RULE, site.node, message, HELP, path=(step,), links=rests)
