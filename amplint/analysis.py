"""From one parsed file to a `FileView`: index, roles, flow."""

from __future__ import annotations

import ast

from amplint.flow.engine import find_misuses
from amplint.project.module import build_module
from amplint.project.roles import build_roles
from amplint.rule import FileView
from amplint.source.positions import LineTable


def analyse(filename: str, source: str, tree: ast.Module) -> FileView:
    """Index one file and follow the scaler protocol along its paths.

    Args:
        filename: as findings will print it.
        source: the decoded text that `tree` was parsed from.

    Raises:
        RecursionError: the file is nested too deeply to be walked.
    """
    module = build_module(filename, source, tree)
    roles = build_roles(module)
    lines = LineTable(source)
    misuses = find_misuses(module, roles, lines.span_of)
    return FileView(module, roles, misuses, lines.span_of)
