"""# unreadable-file (AMP000)

A file cannot be analysed.

## What it does
Reports every file that amplint was asked to check and could not: a path that does not exist, a
file or folder that may not be read, a syntax error, null bytes, bytes that are not text in the
declared encoding, a file over `max-file-size`, code nested too deeply, or an internal error. The
other files are still checked, and the exit status is 2.

A file found in a folder is parsed only if its bytes mention AMP. One named on the command line is
always parsed.

## Why is this bad?
A file that was not analysed is not clean. A run that passed it over and ended green would say so.

## Example
```python
import torch

scaler = torch.amp.GradScaler("cpu"
```

## Use instead
```python
import torch

scaler = torch.amp.GradScaler("cpu")
```

## How it is confirmed
Nothing is executed: Python's own parser rejects the file, or it cannot be read.

## Fix safety
No fix is offered.

## Known limits
The file is parsed by the Python that runs amplint: syntax that is newer than this Python is an
error. This code cannot be suppressed or deselected; exclude the file instead.

## References
- PEP 263, Defining Python Source Code Encodings
"""

from __future__ import annotations

from collections.abc import Iterator

from amplint.findings import Finding, Severity
from amplint.rule import Rule
from amplint.view import FileView

RULE = Rule(
    code="AMP000",
    name="unreadable-file",
    severity=Severity.ERROR,
    effect="api",
    summary="a file that cannot be analysed",
    unprobed="the file cannot be read",
)


def check(view: FileView) -> Iterator[Finding]:
    """Report nothing: a file that has a view could be analysed; the checker reports the rest."""
    return iter(())
