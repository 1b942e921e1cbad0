"""The fix of AMP208 names the argument, and only where the call then means what it says."""

from __future__ import annotations

import ast

import pytest
from amplint.rules import load

from amplint.authoring import check_of
from amplint.source.positions import LineTable
from amplint.view import view_of


def fixed(source: str) -> str | None:
    """The source after the fix of its only finding; None if no fix is offered."""
    view = view_of("example.py", source, ast.parse(source))
    view.wants_edits = True
    (finding,) = check_of(load("AMP208"))(view)
    if finding.fix is None:
        return None
    assert finding.fix.applicability == "unsafe"
    (edit,) = finding.fix.edits
    lines = LineTable(source)
    start, end = lines.offset(edit.span.start), lines.offset(edit.span.end)
    return source[:start] + edit.content + source[end:]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('torch.amp.GradScaler("cuda", use_amp)', 'torch.amp.GradScaler("cuda", enabled=use_amp)'),
        ("torch.amp.GradScaler(use_amp)", "torch.amp.GradScaler(enabled=use_amp)"),
        ("torch.cuda.amp.GradScaler(False)", "torch.cuda.amp.GradScaler(enabled=False)"),
        (
            'torch.amp.GradScaler(\n    "größe",  # why\n    use_amp,\n)',
            'torch.amp.GradScaler(\n    "größe",  # why\n    enabled=use_amp,\n)',
        ),
        (
            "torch.amp.GradScaler(use_amp, growth_interval=100)",
            "torch.amp.GradScaler(enabled=use_amp, growth_interval=100)",
        ),
        (
            'torch.amp.GradScaler("cuda", (use_amp))',
            'torch.amp.GradScaler("cuda", enabled=(use_amp))',
        ),
        (
            'torch.amp.GradScaler("cuda", not args.off or use_amp)',
            'torch.amp.GradScaler("cuda", enabled=not args.off or use_amp)',
        ),
    ],
)
def test_the_argument_is_named(before: str, after: str) -> None:
    assert fixed(f"import torch\nscaler = {before}\n") == f"import torch\nscaler = {after}\n"


@pytest.mark.parametrize(
    "call",
    [
        'torch.amp.GradScaler("cuda", use_amp, 2.0)',
        'torch.amp.GradScaler("cuda", use_amp, enabled=use_amp)',
        'torch.amp.GradScaler("cuda", use_amp, **options)',
    ],
)
def test_no_fix_where_it_would_not_parse_or_not_mean_it(call: str) -> None:
    assert fixed(f"import torch\nscaler = {call}\n") is None
