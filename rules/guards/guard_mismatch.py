"""# guard-mismatch (AMP201)

The calls of one training step stand under conditions that can disagree.

## What it does
Flags `unscale_`, `step`, `update` or a backward that is reached under a guard which does not
follow the guard of the call it belongs to, for example a backward under
`if config.mixed_precision` and a step under `if self.scaler`. Conditions that the code ties
together, such as `scaler = GradScaler() if config.mixed_precision else None`, are the same.

## Why is this bad?
For one setting half of the protocol runs. Scaler on and backward plain: if nothing was ever
scaled, `AssertionError: Attempted step but _scale is None.`; else the update is silently 65536
times too small. Backward scaled and step plain: it is 65536 times too large. Step without update:
`RuntimeError: step() has already been called since the last update().` in the second iteration.
The setting that breaks is mostly the one that nobody runs on the development machine.

## Example
```python
import argparse
import sys
import torch

class Trainer:
    def __init__(self, model, optimizer, config):
        self.model, self.optimizer, self.config = model, optimizer, config
        self.scaler = torch.amp.GradScaler("cpu")

    def train_epoch(self, loader):
        for inputs, targets in loader:
            self.optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(self.model(inputs), targets)
            if self.config.mixed_precision:
                self.scaler.scale(loss).backward()
            else:
                loss.backward()
            if self.scaler is not None:
                self.scaler.step(self.optimizer)
                self.scaler.update()
            else:
                self.optimizer.step()

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
config = argparse.Namespace(mixed_precision="--mixed-precision" in sys.argv)
trainer = Trainer(model, optimizer, config)
trainer.train_epoch([(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(4)])
```

## Use instead
```python
import argparse
import sys
import torch

class Trainer:
    def __init__(self, model, optimizer, config):
        self.model, self.optimizer = model, optimizer
        self.scaler = torch.amp.GradScaler("cpu", enabled=config.mixed_precision)

    def train_epoch(self, loader):
        for inputs, targets in loader:
            self.optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(self.model(inputs), targets)
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
config = argparse.Namespace(mixed_precision="--mixed-precision" in sys.argv)
trainer = Trainer(model, optimizer, config)
trainer.train_epoch([(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(4)])
```

## How it is confirmed
Executing the function under the setting of the reported path raises the exception, or moves the
parameters by another amount than with the scaler off.

## Fix safety
No fix is offered: only the author knows which of the two conditions is meant.

## Known limits
Ties made in other files are not seen; a parameter `scaler` is taken to be independent of a
flag unless the file ties them.

## References
- PyTorch, Automatic Mixed Precision examples: "Typical Mixed Precision Training"
- `torch/amp/grad_scaler.py`: `GradScaler.__init__` (`enabled`), `GradScaler.step`
"""

from __future__ import annotations

from collections.abc import Iterator

from amplint.expectations import NO_GRADIENT, PLAIN, breaks
from amplint.findings import Finding, Severity
from amplint.rule import Rule
from amplint.view import FileView
from amplint.wording import report

RULE = Rule(
    code="AMP201",
    name="guard-mismatch",
    severity=Severity.ERROR,
    effect="crash/silent",
    summary="calls of one training step under conditions that can disagree",
    facts=("S01", "S03"),
    probe=breaks(
        *("step-uninitialised", "unscale-uninitialised", "update-uninitialised"),
        *("update-without-check", "step-twice", "unscale-twice", "unscale-after-step"),
        *(*NO_GRADIENT, *PLAIN, "optimizer-step-on-scaled", "clip-of-scaled"),
    ),
)

_DISAGREES = "this `{method}` runs{when}, but `{needed}`{at} needs {other}: "
MESSAGES = {
    "": _DISAGREES + "{consequence}",
    "unscale-of-plain": _DISAGREES + "it raises, or divides plain gradients",
    "step-on-mixed": _DISAGREES + "it divides plain gradients, too",
    "optimizer-step-on-scaled": _DISAGREES + "it applies scaled gradients",
    "optimizer-step-bypass": _DISAGREES + "inf and NaN reach the weights",
}
HELPS = {
    "": "use one condition for every call of the step, or none: "
    "`GradScaler(device, enabled=...)` makes all scaler calls right for both settings",
}


def check(view: FileView) -> Iterator[Finding]:
    """Report the calls that are reached without the call they belong to."""
    return report(view, RULE, MESSAGES, HELPS)
