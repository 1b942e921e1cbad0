"""From one parsed file to a `FileView`: index, roles, flow."""

from __future__ import annotations

import ast
from functools import lru_cache

from amplint.amp.roles import roles_of
from amplint.code.module import Module
from amplint.code.project import Project
from amplint.findings import Span
from amplint.flow.engine import find_misuses
from amplint.flow.program import Program
from amplint.rule import FileView
from amplint.source.positions import LineTable
from amplint.values.values import Values


def analyse(
    filename: str, source: str, tree: ast.Module, *, path: str = "", project: Project | None = None
) -> FileView:
    """Index one file and follow the scaler protocol along its paths.

    Args:
        filename: as findings will print it.
        source: the decoded text that `tree` was parsed from.
        path: where the file lies on disk, to find what it imports; "" judges it alone.
        project: the project around it; None makes one that is looked for upwards from `path`.

    Raises:
        RecursionError: the file is nested too deeply to be walked.
    """
    project = project or Project()
    module = project.add(filename, source, tree, path)
    roles = roles_of(module)
    lines_of = lru_cache(maxsize=None)(lambda other: LineTable(other.source))

    def place_of(other: Module, node: ast.AST) -> Span:
        return lines_of(other).span_of(node)

    program = Program(project)
    misuses = find_misuses(program, module, roles, place_of)
    objects = program.objects
    assert objects is not None
    return FileView(module, roles, misuses, place_of, program, objects, Values(objects))
