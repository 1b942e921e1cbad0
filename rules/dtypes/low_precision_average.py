"""# low-precision-average (AMP407)

An exponential average of weights is kept in half precision, where its small steps are rounded away.

## What it does
Flags updates such as `average.mul_(0.999).add_(weight, alpha=0.001)` or `average.lerp_(weight, 0.001)`
over the parameters of a module that was cast to float16 or bfloat16, and `AveragedModel` with an
exponential average of such a module, where one update takes over at most a thousandth of the
difference, in bfloat16 a hundredth. Where no number in sight says how much, it is advice.

## Why is this bad?
A float16 number has 11 bits and a bfloat16 number 8. An update that is smaller than half of the last
bit changes nothing, and the next one begins where this one did. After 2000 updates towards weights
that are 10 % away, 72 % of the averaged weights are what they were at a decay of 0.999 in float16,
96 % in bfloat16, and 98 % at 0.9999 in float16. The average stays near its first values; it looks
as if averaging did not help.

## Example
```python
import copy

import torch

model = torch.nn.Linear(64, 1)
teacher = copy.deepcopy(model)
average = copy.deepcopy(model).bfloat16()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for _ in range(1000):
    inputs = torch.randn(8, 64)
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(inputs), 1.1 * teacher(inputs).detach()).backward()
    optimizer.step()
    with torch.no_grad():
        for old, new in zip(average.parameters(), model.parameters()):
            old.mul_(0.999).add_(new, alpha=0.001)
```

## Use instead
```python
import copy

import torch

model = torch.nn.Linear(64, 1)
teacher = copy.deepcopy(model)
average = copy.deepcopy(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for _ in range(1000):
    inputs = torch.randn(8, 64)
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(inputs), 1.1 * teacher(inputs).detach()).backward()
    optimizer.step()
    with torch.no_grad():
        for old, new in zip(average.parameters(), model.parameters()):
            old.mul_(0.999).add_(new, alpha=0.001)
small = copy.deepcopy(average).bfloat16()
```

## How it is confirmed
Executing both examples shows how far the averages went: the first goes less than a tenth of the
way of the second. The probe runs a function once, and one update shows nothing.

## Fix safety
No fix: the average then takes twice the memory.

## Known limits
The average has to be a module whose cast is in sight: its parameters, or what its `state_dict` gives.
Averages in lists and dicts of tensors that are kept are not followed. A simple mean over a few
checkpoints (stochastic weight averaging) is not reported.

## References
- PyTorch, `torch/optim/swa_utils.py`: `get_ema_multi_avg_fn`, `AveragedModel`
- N. J. Higham, "Accuracy and Stability of Numerical Algorithms", 2nd edition, section 4.2: sums
  in which small terms are lost
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.amp import links
from amplint.amp.averages import Average, averages_of
from amplint.amp.halves import Half, halves_of
from amplint.findings import Finding, Link, Severity, Standing
from amplint.rule import Rule
from amplint.view import FileView

RULE = Rule(
    code="AMP407",
    name="low-precision-average",
    severity=Severity.WARNING,
    effect="silent",
    summary="an exponential average of weights kept in half precision: its small steps are lost",
    unprobed="one update is too little to see that an average stands still",
)
#: A file without these keeps no average.
_WORDS = ("parameters()", "state_dict()", "AveragedModel")
#: What one update takes over of the difference, at most. Measured over 2 / share updates towards
#: weights 10 % away, the average is then wrong by 80 % of the way; at ten times that, by 30 %.
LARGEST_SHARES = {"float16": 0.0011, "bfloat16": 0.011}

MESSAGE = "`{module}` is averaged in {dtype}: steps of {share} of the difference are rounded away"
HELP = "keep the average in float32, and cast a copy of it where half precision is wanted"


def check(view: FileView) -> Iterator[Finding]:
    """Report averages of weights whose module is half, once for each place that updates one."""
    if not any(word in view.module.source for word in _WORDS):
        return
    for average in averages_of(view):
        for dtype, largest in LARGEST_SHARES.items():
            if average.share is not None and not 0 < average.share <= largest:
                continue
            halves = halves_of(view, average.module, (average.node,), dtype, frozen=True)
            if halves:
                yield _finding(view, average, max(halves, key=lambda half: half.firmness), dtype)
                break


def _finding(view: FileView, average: Average, half: Half, dtype: str) -> Finding:
    path = [view.step(step.node, step.module, step.words) for step in half.steps]
    share = average.share
    words = MESSAGE.format(
        module=view.source_of(average.module.expression),
        dtype=dtype,
        share="a small part" if share is None else f"{share:.2g}",
    )
    test = half.conditions[0].test if half.conditions else half.node
    standing = Standing.CODE if share is not None else Standing.GUESS
    rests = (
        links.proved("object", average.module.expression, "is the average"),
        links.held(half.firmness, " ".join(ast.unparse(test).split()), f"makes it {dtype}"),
        Link("value", standing, "the share of an update", "is small"),
    )
    return view.finding(
        RULE, average.node, words, HELP, path=tuple(dict.fromkeys(path)), links=rests
    )
