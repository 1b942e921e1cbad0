"""# unused-suppression (AMP900)

A suppression comment silences nothing.

## What it does
Flags `# noqa: AMP…` and `# amplint: ignore[…]` comments for rules that ran and reported nothing
on that statement, codes and names that no rule has, and `# amplint:` comments that cannot be
read. A bare `# noqa` and the codes of other tools are left alone.

## Why is this bad?
The mistake that the comment was written for is gone, or the comment never reached it. It stays in
wait for the next mistake on that line and hides it.

## Example
```python
import torch

scaler = torch.amp.GradScaler("cpu")  # noqa: AMP110
```

## Use instead
```python
import torch

scaler = torch.amp.GradScaler("cpu")
```

## How it is confirmed
Nothing is executed: the rules ran, and the comment was not needed.

## Fix safety
No fix is offered: no fix takes a comment away, and the mistake may be that it stands on the wrong line.

## Known limits
A comment is not judged when the rules that it names are not selected. A prefix such as `AMP1` is
judged only if every rule it covers ran, apart from those that are off by default.

## References
- flake8, "Selecting and Ignoring Violations"
"""

from __future__ import annotations

from collections.abc import Iterator

from amplint.findings import Finding, Severity
from amplint.rule import Rule
from amplint.source.suppressions import UnusedSuppression
from amplint.view import FileView

RULE = Rule(
    code="AMP900",
    name="unused-suppression",
    severity=Severity.WARNING,
    effect="api",
    summary="a suppression comment that silences nothing",
    unprobed="it is about a comment",
)


def check(view: FileView) -> Iterator[Finding]:
    """Report nothing: what was of no use is known only after all other rules; see `finding`."""
    return iter(())


def finding(filename: str, unused: UnusedSuppression) -> Finding:
    """The finding for one comment that silenced nothing."""
    return Finding(
        code=RULE.code,
        name=RULE.name,
        severity=RULE.severity,
        message=unused.message,
        help=unused.help,
        filename=filename,
        span=unused.span,
    )
