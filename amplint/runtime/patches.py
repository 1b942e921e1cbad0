"""Replacing attributes of classes and modules, and putting them back."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

_ABSENT = object()


class Patches:
    """What was replaced, in order; `undo` restores it in reverse."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], object]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Replace one attribute of a class or module."""
        before = vars(owner).get(name, _ABSENT)
        setattr(owner, name, value)
        if before is _ABSENT:
            self._undo.append(lambda: delattr(owner, name))
        else:
            self._undo.append(lambda: setattr(owner, name, before))

    def wrap(self, owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
        """Replace a function by one that calls `wrapper(original, *args, **kwargs)`."""
        original = getattr(owner, name)

        @functools.wraps(original)
        def replacement(*args: Any, **kwargs: Any) -> Any:
            return wrapper(original, *args, **kwargs)

        self.set(owner, name, replacement)

    def on_undo(self, action: Callable[[], object]) -> None:
        """Remember anything else that has to be undone."""
        self._undo.append(action)

    def undo(self) -> None:
        """Restore everything; a second call does nothing."""
        while self._undo:
            self._undo.pop()()
