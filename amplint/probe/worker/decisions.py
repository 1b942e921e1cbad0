"""Free values of a run: each path is decided once, and the decision is kept."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from amplint.probe.messages import ABOUT_FILES, FILES, Decision, Domain, Request

#: Any value but None.
GIVEN: Any = object()


class Decisions:
    """Chooses values for free inputs: as assigned, else as preferred, else the first option."""

    def __init__(self, request: Request) -> None:
        self._domains = {domain.path: domain for domain in request.plan.domains}
        self._wanted = {**request.plan.prefer, **request.assignment}
        self._declared = {*self._domains, *request.plan.prefer}
        self._made: dict[str, Decision] = {}

    def choose(
        self,
        path: str,
        options: Iterable[Any],
        origin: str = "invented",
        row: int = 0,
        after: int = 0,
    ) -> Any:
        """The value of `path`; `options` count only where the plan has no domain for it.

        Args:
            row, after: where it is asked for, see `Decision`.
        """
        made = self._made.get(path)
        if made is not None:
            return made.choice
        domain = self._domains.get(path)
        if domain is not None:
            options, origin = domain.values, domain.origin
        values = unique(options)
        declared = self._option(path, values)
        if declared is not None and domain is None:
            values, origin = unique((*declared.values, *values)), "default"
        if path in self._wanted:
            choice = self._wanted[path]
            values = unique((*values, choice))
        elif self._wanted.get(FILES) and path.startswith(ABOUT_FILES):
            choice = True
        else:
            choice = values[0]
        self._made[path] = Decision(path, values, choice, row, origin, after)
        return choice

    def _option(self, path: str, values: tuple[Any, ...]) -> Domain | None:
        """The command line option that an attribute is called like, if its values are of the
        kind that the code asks for."""
        parts = path.split(".")
        if len(parts) < 2 or not all(part.isidentifier() for part in parts):
            return None
        declared = self._domains.get(f"*.{parts[-1]}")
        if declared is None or any(
            not _are_alike(value, asked) for value in declared.values for asked in values[:1]
        ):
            return None
        return declared

    def knows(self, path: str) -> bool:
        """Whether this path has been decided."""
        return path in self._made

    def is_declared(self, path: str) -> bool:
        """Whether the plan says anything about this path. A value that the request assigns says
        nothing about what kind of thing stands there: a run differs in the value only."""
        return path in self._declared

    def is_given(self, path: str) -> bool:
        """Whether the plan or the request has a value for this path."""
        return path in self._domains or path in self._wanted

    def take(self, path: str, options: tuple[Any, ...], choice: Any, origin: str) -> Any:
        """Decide a path as this, unless it is decided."""
        made = self._made.setdefault(path, Decision(path, options, choice, 0, origin))
        return made.choice

    def asked(self, path: str) -> tuple[bool, Any]:
        """Whether a path, or the only other one of that last name, has a wanted value; which.

        `GIVEN` stands for whatever is not None.
        """
        if path in self._wanted:
            return True, self._wanted[path]
        leaf = path.rpartition(".")[2]
        if any(
            value is False and re.search(rf"(?:^|\.){leaf} is None$", other)
            for other, value in self._wanted.items()
        ):
            return True, GIVEN
        found = [value for other, value in self._wanted.items() if other.endswith(f".{leaf}")]
        if not found or any(value != found[0] for value in found):
            return False, None
        self._wanted[path] = found[0]
        return True, found[0]

    def known_for(self, leaf: str, kind: type) -> list[Any]:
        """The values of a type that the plan knows for attributes of this name."""
        return [
            value
            for path, domain in self._domains.items()
            if path.rpartition(".")[2] == leaf
            for value in domain.values
            if type(value) is kind
        ]

    @property
    def injects_nan(self) -> bool:
        """Whether a NaN has been put into the run."""
        return any(d.path.startswith("nan in ") and d.choice for d in self._made.values())

    def has_chosen(self, value: float) -> bool:
        """Whether a number is one that was chosen."""
        return any(type(d.choice) is float and d.choice == value for d in self._made.values())

    def made(self) -> tuple[Decision, ...]:
        """All decisions so far, in order."""
        return tuple(self._made.values())


def _are_alike(one: Any, other: Any) -> bool:
    """Two truth values, two texts, or two numbers."""
    if isinstance(one, bool) or isinstance(other, bool):
        return isinstance(one, bool) and isinstance(other, bool)
    if isinstance(one, str) or isinstance(other, str):
        return isinstance(one, str) and isinstance(other, str)
    return isinstance(one, (int, float)) and isinstance(other, (int, float))


def unique(values: Iterable[Any]) -> tuple[Any, ...]:
    """Without repetitions, in order; True and 1 are different."""
    kept: dict[tuple[type, Any], Any] = {}
    for value in values:
        key = value if not isinstance(value, (list, dict)) else repr(value)
        kept.setdefault((type(value), key), value)
    return tuple(kept.values())
