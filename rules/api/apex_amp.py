"""# apex-amp (AMP802)

Mixed precision comes from `apex.amp`, which torch's own AMP has replaced.

## What it does
Notes each import of `apex.amp` (`from apex import amp`, `import apex.amp`), and `apex.amp` after
`import apex`, once in each scope that imports it.

## Why is this bad?
NVIDIA has marked `apex.amp` as deprecated in favour of torch's AMP. apex has to be compiled on each
machine for its torch and CUDA; without that, the program ends with `ModuleNotFoundError: No module
named 'apex'`. It patches torch's functions globally (`opt_level="O1"`) or casts the model (`"O2"`),
and works on CUDA only.

## Example
```python
import torch
from apex import amp

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
loader = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(4)]

for inputs, targets in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
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
    with torch.amp.autocast("cpu", dtype=torch.float16):
        outputs = model(inputs)
    loss = torch.nn.functional.mse_loss(outputs.float(), targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
```

## How it is confirmed
Executing the example without a compiled apex raises the error. The rule is advice and off unless
selected.

## Fix safety
No fix is offered: `initialize` and `scale_loss` turn into several statements at several places, and
clipping has to move to after `unscale_`.

## Known limits
Other parts of apex (`apex.optimizers`, `apex.parallel`) are not meant. An import inside a handler
or under a condition is noted like any other.

## References
- PyTorch, Automatic Mixed Precision package
- NVIDIA apex, `apex.amp`: deprecation note
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.code.meanings import Imported
from amplint.code.scopes import Scopes
from amplint.expectations import NOTHING_TO_RUN
from amplint.findings import Finding, Severity
from amplint.rule import Rule
from amplint.view import FileView

RULE = Rule(
    code="AMP802",
    name="apex-amp",
    severity=Severity.INFO,
    effect="api",
    summary="mixed precision from `apex.amp` instead of torch",
    unprobed=NOTHING_TO_RUN,
)

MESSAGE = "`apex.amp` is deprecated, and without it: `ModuleNotFoundError: No module named 'apex'`"
HELP = "use `torch.amp.autocast` around the forward pass and `torch.amp.GradScaler`"


def check(view: FileView) -> Iterator[Finding]:
    """Report where `apex.amp` comes in."""
    if "apex" not in view.module.source:
        return
    scopes = view.module.scopes
    for imported in scopes.imports:
        node = _entry(imported, scopes)
        if node is not None:
            yield view.finding(RULE, node, MESSAGE, HELP)


def _entry(imported: Imported, scopes: Scopes) -> ast.AST | None:
    """Where an import brings in `apex.amp`: itself, or the first `apex.amp` that reads it."""
    is_from = isinstance(imported.statement, ast.ImportFrom)
    name = imported.dotted if is_from else imported.alias.name
    if name == "apex.amp" or name.startswith("apex.amp."):
        return imported.alias
    if imported.dotted != "apex":
        return None
    reads = (scopes.parents.get(name) for name in scopes.reads(imported))
    found = (node for node in reads if isinstance(node, ast.Attribute) and node.attr == "amp")
    return next(found, None)
