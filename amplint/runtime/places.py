"""Whose line it is: frames of the user's own code, of libraries, of torch and of amplint."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Callable, Iterable
from enum import Enum
from inspect import CO_GENERATOR

#: File and 1-based row; "", 0 if there is none.
Place = tuple[str, int]
NOWHERE: Place = ("", 0)
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_CELL = "<ipython-input-"
_ENTERS = ("__enter__", "__aenter__", "enter_context")


def user_place(
    is_user: Callable[[str], bool],
    skip: int = 1,
    tell: Callable[[Place], None] = lambda _place: None,
) -> Callable[[], Place]:
    """A function that finds the innermost line of the stack whose file is the user's.

    Args:
        skip: so many frames are nobody's for certain, with the function's own. Python makes an
            object of each frame that is looked at, and that costs more than the look.
        tell: gets each line once.
    """
    known: dict[str, bool] = {}
    told: set[Place] = {NOWHERE}
    frame_of = sys._getframe

    def place() -> Place:
        frame = frame_of(skip)
        while frame is not None:
            filename = frame.f_code.co_filename
            mine = known.get(filename)
            if mine is None:
                mine = known[filename] = is_user(filename)
            if mine:
                found = filename, frame.f_lineno or 0
                if found not in told:
                    told.add(found)
                    tell(found)
                return found
            frame = frame.f_back  # type: ignore[assignment]
        return NOWHERE

    return place


class Owner(Enum):
    """Whose file it is."""

    USER = "user"
    LIBRARY = "library"
    #: Nobody's decision: torch, the standard library, amplint run on behalf of their caller.
    NOBODY = "nobody"


class Territory:
    """Tells the user's files from those of libraries.

    Args:
        nobody: the folders of torch and of amplint.
        user: folders that are the user's although they lie among installed packages.
    """

    def __init__(self, nobody: Iterable[str], user: Iterable[str] = ()) -> None:
        self._nobody = _prefixes(nobody)
        self._user = _prefixes(user)
        paths = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))
        self._standard = _prefixes((os.path.dirname(os.__file__), *filter(None, paths)))
        self._known: dict[str, Owner] = {}

    def owner(self, filename: str) -> Owner:
        """Whose the file of a code object is."""
        known = self._known.get(filename)
        if known is None:
            known = self._known[filename] = self._find(filename)
        return known

    def is_user(self, filename: str) -> bool:
        """Whether a code object's file is one of the user's."""
        return self.owner(filename) is Owner.USER

    def _find(self, filename: str) -> Owner:
        if filename.startswith("<"):
            return Owner.USER if filename.startswith(_CELL) else Owner.NOBODY
        path = os.path.abspath(filename)
        if path.startswith(self._user):
            return Owner.USER
        if path.startswith(self._nobody):
            return Owner.NOBODY
        if any(part in path for part in _INSTALLED):
            return Owner.LIBRARY
        return Owner.NOBODY if path.startswith(self._standard) else Owner.USER

    def caller(self, *, entering: bool = False, skip: int = 1) -> Place:
        """The innermost line that somebody has decided to run: the user's or a library's.

        Args:
            skip: so many frames are nobody's for certain, with its own.
            entering: a context manager is being entered. A library's `__enter__`, and a generator
                behind one, do it for whoever wrote the `with`.
        """
        frame, known = sys._getframe(skip), self._known
        while frame is not None:
            code = frame.f_code
            owner = known.get(code.co_filename) or self.owner(code.co_filename)
            if owner is not Owner.NOBODY:
                is_for_another = code.co_flags & CO_GENERATOR or code.co_name in _ENTERS
                if not (entering and is_for_another):
                    return code.co_filename, frame.f_lineno or 0
            frame = frame.f_back  # type: ignore[assignment]
        return NOWHERE


def _prefixes(folders: Iterable[str]) -> tuple[str, ...]:
    return tuple(os.path.join(os.path.abspath(folder), "") for folder in folders)
