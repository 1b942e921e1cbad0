"""Modules of the user's project, loaded by slicing: a name is defined when it is first read.

Only the statements that bind a wanted name are executed. What a module does besides
(training at top level, registering, printing) never happens.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import collections
import contextlib
import importlib
import sys
import types
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Any

from amplint.probe.modules import OBSERVERS
from amplint.probe.worker import absorbed, commandline, library, slots, standins, values
from amplint.probe.worker.context import Run
from amplint.probe.worker.effects import bound_names
from amplint.probe.worker.sources import ModuleSource, repair_key, repair_of

BUILTIN_NAMES = frozenset(dir(builtins))
#: Modules that hold what any file of a program may ask for.
SURROUNDINGS = frozenset({"os", "sys", "builtins"})
#: Folders above a file in which another one that it imports by name may lie.
NEAR = 3
#: Packages whose real code is used, besides torch and the pure standard library.
TORCH = frozenset({"torch"})


class Namespace(dict):  # type: ignore[type-arg]
    """The globals of one module of the user."""

    def __init__(self, loader: Loading, source: ModuleSource) -> None:
        super().__init__()
        self._loader = loader
        self._source = source
        self._done: set[int] = set()
        #: Of these, statements whose calls a script still has to make.
        self._without_effects: set[int] = set()
        #: Names that are being looked for in modules whose names come with `*`: these may come
        #: with the names of this one.
        self._sought: set[str] = set()
        #: Names whose statements are being executed: what these import by the name of this
        #: module lies beside it.
        self.defining: set[str] = set()
        #: The statement at which a script is: what comes later has bound nothing yet.
        self._at: int | None = None
        self["__builtins__"] = loader.user_builtins(self)
        self["__name__"] = source.name
        self["__file__"] = source.filename
        self["__annotations__"] = {}

    def __missing__(self, name: str) -> Any:
        if name in BUILTIN_NAMES and name not in self._source.bindings:
            raise KeyError(name)
        if name.startswith("__amplint_"):
            raise KeyError(name)
        return self.define(name)

    def define(self, name: str) -> Any:
        """Execute what binds `name`, and return its value; a stand-in where that fails."""
        self.defining.add(name)
        try:
            for index in self._source.bindings.get(name, ()):
                if self._at is None or index < self._at:
                    self._execute(index)
            self._compute(name)
            if name in self:
                return dict.__getitem__(self, name)
            found, value = self._from_stars(name)
            if not found:
                value = self._conditional(name)
        finally:
            self.defining.discard(name)
        self[name] = value
        return value

    def _compute(self, name: str) -> None:
        """What a module binds by other means than its statements say, once these have run."""
        for index in self._source.computing if self._at is None else ():
            if index not in self._done:
                self._done.add(index)
                with contextlib.suppress(Exception):  # then it stays as it is
                    self._run(index)
        if self._at is None and name in self and self._source.may_be_overridden(name):
            found, value = self._from_stars(name)
            if found:
                self[name] = value

    def has(self, name: str) -> bool:
        """Whether the module defines this name."""
        return name in self or name in self._source.bindings or self._from_stars(name)[0]

    def run_script(self) -> None:
        """Execute all statements in order, as `python file.py` does."""
        self["__name__"] = "__main__"
        for index in range(len(self._source.statements)):
            self._at = index
            if index not in self._done or index in self._without_effects:
                self._done.add(index)
                self._without_effects.discard(index)
                self._run(index)

    def _execute(self, index: int) -> None:
        statement = self._source.statements[index]
        if index in self._done or isinstance(statement, (ast.For, ast.While, ast.Expr)):
            return
        self._done.add(index)
        if isinstance(statement, (ast.If, ast.Try, ast.With)):
            self._without_effects.add(index)
        try:
            self._run(index, effects=False)
        except Exception as error:  # noqa: BLE001 -- whatever the user's own module raises
            row = statement.lineno
            reason = f"{type(error).__name__}: {error}"[:120]
            self._loader.run.remark(f"{self._source.name}:{row} was not executed: {reason}")
        for name in bound_names(statement):
            bound = dict.get(self, name)
            fill = partial(self._loader.register, name, self._source)
            if self._is_shared(name, bound):
                fill()
                bound = dict.get(self, name)
            if type(bound) in (list, dict, collections.defaultdict):
                self[name] = slots.opened(bound, name, fill)
            elif bound is None and name in self._source.writers:
                if slots.is_hook(self._loader.run, name, f"{self._source.name}.{name}"):
                    self[name] = slots.Unset(name)
            elif slots.is_users(self._loader.run, type(bound)):
                slots.open_slots(self._loader.run, bound, name)
            if isinstance(bound, argparse.ArgumentParser):
                self._feed_parser(name)
            elif isinstance(bound, (standins.StandIn, library.Settings)):
                self._configure(name)

    def _is_shared(self, name: str, bound: Any) -> bool:
        """Whether importing other files changes what a name is bound to, or what is in it.

        What is empty is filled when somebody looks into it.
        """
        if type(bound) in (list, dict, collections.defaultdict) and not bound:
            return False
        is_generic = hasattr(bound, "dispatch") and hasattr(bound, "register")
        changes = name in self._source.writers or name in self._loader.run.project.stored
        return is_generic or (changes and not isinstance(bound, types.ModuleType))

    def import_effects(self) -> None:
        """Do what importing the file does to others, as far as that concerns the project."""
        for index in self._source.effects:
            if index not in self._done and self._concerns_project(index):
                self._done.add(index)
                with contextlib.suppress(Exception):  # as if it were not there
                    self._run(index)

    def _concerns_project(self, index: int) -> bool:
        """Whether a statement touches something of the project's, or the run's surroundings, and
        calls no function that trains."""
        project, source = self._loader.run.project, self._source
        if isinstance(source.statements[index], ast.ClassDef) and not project.lists_subclasses:
            return False
        concerns = False
        for name in source.read_at_once(index):
            for module, level in source.modules_of(name):
                place = project.find(module, source.filename, level)
                known = project.module(place) if place is not None else None
                if known is not None and known.trains(source.called(index)):
                    return False
                concerns |= place is not None or module in SURROUNDINGS
        return concerns

    def register(self, container: str, writers: Collection[str] = ()) -> None:
        """Execute the definitions with decorators of the project, and the statements that write
        into a container, or call functions of another file that do."""
        for index in self._source.registering(container, writers):
            if index not in self._done:
                self._done.add(index)
                with contextlib.suppress(Exception):  # then nothing is registered
                    self._run(index)

    def _configure(self, name: str) -> None:
        """Run what a module writes into an object of an unknown class: `cfg.TRAIN.LR = 0.1`."""
        for index in self._source.settings.get(name, ()):
            if index not in self._done:
                self._done.add(index)
                try:
                    with standins.declaring():
                        self._run(index, effects=False)
                except Exception as error:  # noqa: BLE001 -- whatever the user's module raises
                    row = self._source.statements[index].lineno
                    reason = f"{type(error).__name__}: {error}"[:120]
                    self._loader.run.remark(f"{self._source.name}:{row} not executed: {reason}")

    def _feed_parser(self, name: str) -> None:
        for index, statement in enumerate(self._source.statements):
            if index in self._done or not isinstance(statement, ast.Expr):
                continue
            root = statement.value
            while isinstance(root, (ast.Call, ast.Attribute)):
                root = root.func if isinstance(root, ast.Call) else root.value
            if isinstance(root, ast.Name) and root.id == name:
                self._done.add(index)
                self._run(index)

    def _run(self, index: int, effects: bool = True) -> None:
        """Execute one statement; names that class bodies read are defined first."""
        for name in self._source.read_at_once(index):
            if name in self or name in BUILTIN_NAMES - self._source.bindings.keys():
                continue
            if name in self._source.bindings or self._from_stars(name)[0]:
                self.define(name)
        request, filename = self._loader.run.request, self._source.filename
        code = self._source.code(
            index, effects, repair_of(request, filename), repair_key(request, filename)
        )
        self._loader.used[filename, index, effects] = None
        exec(code, self)  # noqa: S102 -- running it is the probe's purpose

    def _from_stars(self, name: str) -> tuple[bool, Any]:
        if name.startswith("_") or name in self._sought:
            return False, None
        self._sought.add(name)
        try:
            return self._from_any_star(name)
        finally:
            self._sought.discard(name)

    def _from_any_star(self, name: str) -> tuple[bool, Any]:
        for star in self._source.stars:
            module = self._loader.import_module(
                star.module or "", self._source.filename, star.level
            )
            if isinstance(module, UserModule):
                if module._amp_has(name):
                    return True, getattr(module, name)
            elif name in vars(module):
                return True, getattr(module, name)
        return False, None

    def _conditional(self, name: str) -> Any:
        """A name that is bound only under a condition that does not hold here."""
        for index in self._source.bindings.get(name, ()):
            for node in ast.walk(self._source.statements[index]):
                if isinstance(node, (ast.Import, ast.ImportFrom)) and name in bound_names(node):
                    exec(self._source.compile(node), self)  # noqa: S102 -- an import
                    if name in self:
                        return dict.__getitem__(self, name)
        return values.make(name)


class UserModule(types.ModuleType):
    """A module of the project, as other modules see it."""

    def __init__(self, name: str, place: str, loader: Loading) -> None:
        super().__init__(name)
        self.__dict__["_amp_place"] = place
        self.__dict__["_amp_loader"] = loader
        source = loader.run.project.module(place) if place.endswith(".py") else None
        self.__dict__["_amp_names"] = Namespace(loader, source) if source else None
        if source is not None:  # dataclasses look up the module of a class
            sys.modules.setdefault(source.name, self)

    def _amp_has(self, name: str) -> bool:
        names = self._amp_names
        return names is not None and names.has(name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        names = self._amp_names
        if self._amp_has(name) and (name in names or name not in names.defining):
            return names[name]
        inner = self._amp_loader.run.project.below(self._amp_place, name)
        if inner is not None:
            return self._amp_loader.user_module(inner, f"{self.__name__}.{name}")
        return standins.StandIn(f"{self.__name__}.{name}")

    def __setattr__(self, name: str, value: Any) -> None:
        if self._amp_names is not None:
            self._amp_names[name] = value
        else:
            super().__setattr__(name, value)


class Loading:
    """Imports of one run."""

    def __init__(self, run: Run, user_builtins: Any) -> None:
        self.run = run
        self.modules: dict[str, Any] = {}
        #: Statements that were executed: file, index, and whether with all their effects.
        self.used: dict[tuple[str, int, bool], None] = {}
        self._make_builtins = user_builtins
        entry = run.plan.sources[run.plan.entry_source]
        self.entry_module = self.user_module(entry.filename, entry.module or "__main__")

    def user_builtins(self, namespace: Namespace) -> dict[str, Any]:
        """The builtins of a module of the user."""
        return {**vars(builtins), **self._make_builtins(self)}

    def user_module(self, place: str, name: str) -> UserModule:
        """The module of a file or folder of the project."""
        if place not in self.modules:
            self.modules[place] = UserModule(name, place, self)
        module: UserModule = self.modules[place]
        return module

    def import_(
        self, name: str, scope: Any = None, local: Any = None, wanted: Any = (), level: int = 0
    ) -> Any:
        """What `__import__` is for modules of the user."""
        importer = (scope or {}).get("__file__", self.run.project.checked)
        module = self.import_module(name, importer, level)
        if wanted or level:
            for attribute in wanted or ():
                self._submodule(module, attribute)
            return module
        return self.import_module(name.split(".")[0], importer, 0)

    def import_module(self, name: str, importer: str, level: int) -> Any:
        """The module of this name: torch and pure modules real, the project's sliced."""
        top = name.split(".")[0]
        if level == 0 and top in TORCH:
            # What writes a record of the training, `torch.utils.tensorboard`, has no part in it.
            found = None if name in OBSERVERS else _real(name)
            return found or absorbed.stand_in_module(name)
        place = self.run.project.find(name, importer, level)
        if place is not None and not (level == 0 and top in absorbed.REAL):
            return self.user_module(place, name or "package")
        if level:
            return absorbed.stand_in_module(name or "package")
        if name not in self.modules:
            self.modules[name] = self._outside(name, top)
        return self.modules[name]

    def _outside(self, name: str, top: str) -> Any:
        special = absorbed.SPECIAL.get(top)
        if special is not None:
            module = self.modules.setdefault(top, special())
            for part in name.split(".")[1:]:
                module = getattr(module, part)
            return module
        if name == "click" and (click := _real(name)) is not None:
            commandline.install_click(self.run, click)
            return click
        if name == "importlib":
            module = absorbed.stand_in_module(name)
            module.import_module = self._by_name  # type: ignore[attr-defined]
            return module
        if top in absorbed.REAL:
            return _real(name) or absorbed.stand_in_module(name)
        return absorbed.stand_in_module(name)

    def _by_name(self, name: Any, package: Any = None) -> Any:
        """What `importlib.import_module` gives; a file beside those of the plan may do anything."""
        text, project = str(name), self.run.project
        level = len(text) - len(text.lstrip("."))
        if level or project.find(text, project.checked, 0) is not None:
            return self.import_module(text.lstrip("."), project.checked, level)
        top = text.split(".")[0]
        places = (parent / top for parent in Path(project.checked).parents[:NEAR])
        if top and any(place.is_dir() or place.with_suffix(".py").is_file() for place in places):
            self.run.note("imported", text, self.run.row())
        return self.import_module(text, project.checked, 0)

    def register(self, container: str, home: ModuleSource) -> None:
        """Let the files of the plan fill a container of one of them, as importing them would."""
        writers = home.writers.get(container, frozenset())
        for source in self.run.plan.sources:
            names = self.user_module(source.filename, source.module or "__main__")._amp_names
            if names is not None and (source.module or source is not self.run.plan.sources[0]):
                names.register(container, () if names._source is home else writers)

    def import_effects(self) -> None:
        """Do what importing the files does to others, those first that others import."""
        modules = {source.filename: source.module for source in self.run.plan.sources}
        for source in reversed(self.run.project.with_effects):
            name = modules[source.filename] or "__main__"
            names = self.user_module(source.filename, name)._amp_names
            if names is not None:
                names.import_effects()

    def _submodule(self, module: Any, name: str) -> None:
        """`from torch import optim` may have to import a submodule, or find nothing."""
        if name == "*" or isinstance(module, (UserModule, standins.StandIn)):
            return
        if hasattr(module, name):
            return
        real = _real(f"{module.__name__}.{name}")
        if real is None:
            setattr(module, name, standins.StandIn(f"{module.__name__}.{name}"))


def _real(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return sys.modules.get(name)
