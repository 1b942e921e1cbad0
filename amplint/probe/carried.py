"""Which files of the project a plan carries into its run: the checked one, and what may be imported."""

from __future__ import annotations

from collections.abc import Iterator

from amplint.code.module import Module
from amplint.probe.messages import Source
from amplint.view import FileView

#: A plan carries this many files.
_MOST = 60


class Carried:
    """The files of the plans for one checked file.

    Args:
        view: the analysed file.
        path: where it lies on disk.
    """

    def __init__(self, view: FileView, path: str) -> None:
        self._view = view
        self._path = path
        self._imported: dict[Module, list[tuple[Module, str]]] = {}

    def sources(self, entry_module: Module) -> tuple[Source, ...]:
        """The checked file first, then everything that it or the entry's file may import."""
        here = self._view.module
        found = {(self._path, ""): Source(self._path, "", self._package_of(here))}
        for module, name in self.imported(entry_module):
            path = self.path_of(module)
            found.setdefault((path, name), Source(path, name, self._package_of(module)))
        return tuple(found.values())

    def imported(self, entry_module: Module) -> list[tuple[Module, str]]:
        """(module, name it is imported by), breadth first; the entry's own module has ""."""
        if entry_module not in self._imported:
            start = list(dict.fromkeys((self._view.module, entry_module)))
            self._imported[entry_module] = self._closure([(module, "") for module in start])
        return self._imported[entry_module]

    def imports_of(self, module: Module) -> Iterator[tuple[Module, str]]:
        """What one module imports itself, packages around a module included."""
        for dotted in sorted({*module.scopes.aliases.values(), *module.scopes.stars}):
            name = dotted
            while name:
                found = self._view.project.module_named(name, module)
                if found is not None:
                    yield found, name
                name = name.rpartition(".")[0]

    def path_of(self, module: Module) -> str:
        """Where a module lies on disk."""
        return self._path if module is self._view.module else module.path

    def _package_of(self, module: Module) -> str:
        return self._view.project.package_of(module)

    def _closure(self, start: list[tuple[Module, str]]) -> list[tuple[Module, str]]:
        found = list(start)
        expanded: set[Module] = set()
        for module, _ in found:  # grows while it is walked
            if module in expanded or len(found) >= _MOST:
                continue
            expanded.add(module)
            found += [item for item in dict.fromkeys(self.imports_of(module)) if item not in found]
        return found[:_MOST]
