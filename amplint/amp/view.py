"""One file of a project, and what its code means to AMP: what the questions of this room take."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from functools import cached_property
from typing import TypeVar, cast

from amplint.amp.roles import Roles
from amplint.amp.value_roles import ValueRoles
from amplint.code.module import Function, Module
from amplint.code.project import Project
from amplint.findings import PathStep, Span
from amplint.source.positions import LineTable
from amplint.values.objects import Objects
from amplint.values.values import Values

#: What a question about one file gives.
Answer = TypeVar("Answer")


class AmpView(ABC):
    """The checked file, in its project; everything is found out when it is first asked for.

    Args:
        module: the checked file.
        project: the project around it.
    """

    def __init__(self, module: Module, project: Project) -> None:
        self.module = module
        self.project = project
        self._answers: dict[tuple[Hashable, ...], object] = {}

    @cached_property
    def roles(self) -> Roles:
        """What the names and attributes of the file are."""
        return self.roles_of(self.module)

    @cached_property
    def _value_roles(self) -> ValueRoles:
        return ValueRoles(self.objects)

    def roles_of(self, module: Module) -> Roles:
        """What the names and attributes of a module of the project are."""
        return self._value_roles.of(module)

    @cached_property
    def objects(self) -> Objects:
        """What expressions stand for, in whatever file."""
        return Objects(self.project)

    @cached_property
    def values(self) -> Values:
        """The constants that expressions may be, in whatever file."""
        return Values(self.objects)

    def once(self, ask: Callable[..., Answer], *about: Hashable) -> Answer:
        """What `ask(view, *about)` says; asked once, however often it is wanted."""
        key = (ask, *about)
        if key not in self._answers:
            self._answers[key] = ask(self, *about)
        return cast("Answer", self._answers[key])

    def is_judged(self, function: Function) -> bool:
        """Whether findings in a function are wanted; dear questions ask for others first."""
        return True

    @abstractmethod
    def may_reach(self, word: str, call: ast.Call, function: Function) -> bool:
        """Whether a function of the called name may use a word of the protocol; cheap.

        Args:
            word: "scale", "step", "update" or "unscale".
            function: holds the call, in whatever file.
        """

    def place_of(self, module: Module, node: ast.AST) -> Span:
        """Where a node of a module lies, in 1-based code points."""
        return module.once(_lines).span_of(node)

    def span_of(self, node: ast.AST) -> Span:
        """Where a node of the checked file lies, in 1-based code points."""
        return self.place_of(self.module, node)

    def row_of(self, node: ast.AST) -> int:
        """The row of a node in its file, as a message tells it; 1 for what has none."""
        return getattr(node, "lineno", 1)

    def step(self, node: ast.AST, module: Module, message: str) -> PathStep:
        """One step of a path, in whatever file."""
        start = self.place_of(module, node).start
        return PathStep(module.filename, start.row, start.column, message)

    def source_of(self, node: ast.AST) -> str:
        """The source text of a node on one line, shortened to 60 characters."""
        text = " ".join(ast.unparse(node).split())
        return text if len(text) <= 60 else text[:57] + "..."


def _lines(module: Module) -> LineTable:
    return LineTable(module.source)
