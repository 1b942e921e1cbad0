"""The index of a project: which of its files a search finds, kept on disk between runs.

Whether a search finds a file depends on that file alone. So what was found is known for every
file that has not changed since, and only the others are read: a hook that checks one file of a
large project does not read the project again.

The index knows nothing that a search in the texts would not find: without it, or with a damaged
one, the same is found in more time.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from amplint import files
from amplint.code.texts import Listing, Search, Texts, listing
from amplint.collector import thaw
from amplint.errors import UnreadableFile
from amplint.source.sealed import seal, unseal

SUFFIX = ".index"
#: Of more searches than these, only those of the last run are kept.
_MOST_SEARCHES = 2_000


@dataclass(frozen=True, slots=True)
class Index:
    """What searches below a folder have found.

    Args:
        states: of the files that were searched, see `Listing`.
        found: paths of files by the search that finds them, sorted.
    """

    states: Mapping[str, str] = field(default_factory=dict)
    found: Mapping[Search, tuple[str, ...]] = field(default_factory=dict)


class Searches:
    """Searches in files, of which some are known.

    Args:
        files: as they are now.
        index: of an earlier run.
    """

    def __init__(self, files: Listing, index: Index) -> None:
        self.files = files
        self.index = index
        self._found: dict[Search, tuple[str, ...]] = {}

    def find(self, search: Search) -> list[str]:
        """The files that a search finds, sorted; each checked file of a run may ask the same."""
        if search not in self._found:
            self._found[search] = tuple(self._find(search))
        return list(self._found[search])

    def _find(self, search: Search) -> list[str]:
        known = self.index.found.get(search)
        if known is None:
            return self._everything.find(search)
        unchanged = [path for path in known if path in self._unchanged]
        return sorted((*unchanged, *self._rest.find(search)))

    def updated(self, found: Mapping[Search, Iterable[str]]) -> Index:
        """The index with the files as they are now, and with what was found in them."""
        results = {search: tuple(paths) for search, paths in found.items()}
        if self._is_worth_keeping(len(results)):
            for search in self.index.found.keys() - results.keys():
                results[search] = tuple(self.find(search))
        return Index(self.files.states, dict(sorted(results.items())))

    def _is_worth_keeping(self, new: int) -> bool:
        """Whether searches that nobody asked for in this run are carried on."""
        changed = len(self.files.paths) - len(self._unchanged)
        few = len(self.index.found) + new <= _MOST_SEARCHES
        return few and 2 * changed <= len(self.files.paths)

    @cached_property
    def _unchanged(self) -> frozenset[str]:
        before = self.index.states
        now = self.files.states
        return frozenset(path for path, state in now.items() if state == before.get(path, ""))

    @cached_property
    def _everything(self) -> Texts:
        return Texts(self.files.paths)

    @cached_property
    def _rest(self) -> Texts:
        return Texts([path for path in self.files.paths if path not in self._unchanged])


@lru_cache(maxsize=4)
def searches_below(root: str, folder: str) -> Searches:
    """Searches in the files below a folder; they are listed and read once in a run.

    Args:
        folder: where indexes are kept, "" for none.
    """
    files = listing(root)  # before anything is read: a later change is another state
    return Searches(files, load(root, folder) if folder else Index())


@lru_cache(maxsize=1)
def kept_in_this_run() -> dict[Hashable, object]:
    """What else holds as long as the files are not looked at again."""
    return {}


def forget() -> None:
    """Look at the files again: a new run begins."""
    listing.cache_clear()
    searches_below.cache_clear()
    kept_in_this_run.cache_clear()
    thaw()


# -- on disk -------------------------------------------------------------------------------


def path_of(root: str, folder: str) -> str:
    """Where the index of the files below `root` is kept."""
    name = hashlib.sha256(os.fsencode(root)).hexdigest()[:32]
    return os.path.join(folder, name + SUFFIX)


def load(root: str, folder: str) -> Index:
    """The index of an earlier run; an empty one where there is none, no whole one, or another's."""
    path = path_of(root, folder)
    try:
        if files.is_of_another_user(path):
            return Index()
        return decode(files.read(path, files.INDEX), root)
    except (OSError, UnreadableFile, ValueError, TypeError, LookupError, RecursionError):
        return Index()


def encode(index: Index, root: str) -> bytes:
    """An index as bytes: JSON, in which files are named by their number."""
    numbers = {path: number for number, path in enumerate(index.states)}
    found = [
        [list(search), [numbers[path] for path in paths]] for search, paths in index.found.items()
    ]
    entry = {"root": root, "states": list(index.states.items()), "found": found}
    return seal(json.dumps(entry, separators=(",", ":")).encode())


def decode(data: bytes, root: str) -> Index:
    """The index of some bytes.

    Raises:
        ValueError, TypeError, LookupError, RecursionError: they are no whole index of `root`.
    """
    entry = json.loads(unseal(data))
    if entry["root"] != root:
        raise ValueError("the index of another folder")
    states = {_text(path): _text(state) for path, state in entry["states"]}
    paths = list(states)
    found = {
        tuple(map(_text, search)): tuple(sorted(paths[number] for number in numbers))
        for search, numbers in entry["found"]
    }
    return Index(states, found)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("no text")
    return value
