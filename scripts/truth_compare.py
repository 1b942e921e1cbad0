"""Compare what calls ran with what amplint says that they run.

Reads the recordings of `truth_recorder.py`. A call site is *contained* if every function that it
ran is in the static answer, *unknown* if one is not and the answer says that it may not be all,
and *wrong* if the answer claims to be all.
"""

from __future__ import annotations

import ast
import json
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from truth_recorder import DIRECT

from amplint.code.module import Function, Module
from amplint.code.project import Project
from amplint.files import DATA, read
from amplint.source.parsing import parse
from amplint.source.reading import decode
from amplint.values.objects import Objects

CONTAINED, UNKNOWN, WRONG = "contained", "unknown", "wrong"
#: What a call of a class, of an object, or of neither runs under its own name.
_CALLED_AS_IS = frozenset({"__init__", "__new__", "__call__"})

#: A function that ran or is claimed: file, first line with decorators, name.
Key = tuple[str, int, str]
#: A class: file, and qualname without `<locals>`.
ClassKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Answer:
    """What amplint says that a call runs.

    Args:
        functions: those that it knows.
        complete: whether it claims that there are no others.
        reason: why it is not complete; "" if it is.
        lazy: one of them is a generator function or a coroutine, whose calls run nothing.
    """

    functions: frozenset[Key]
    complete: bool
    reason: str = ""
    lazy: bool = False


@dataclass(frozen=True, slots=True)
class Ran:
    """A function that a call ran.

    Args:
        direct: the call ran it itself; else a library did that the call ran.
        receivers: classes of `self`, each with its `__mro__`.
        number: which of the instructions at the position of the call ran it, from 0.
    """

    key: Key
    qualname: str
    direct: bool
    receivers: tuple[tuple[ClassKey, ...], ...]
    number: int


@dataclass(slots=True)
class Site:
    """A call expression that was executed.

    Args:
        where: line, column, end line, end column (1-based lines, columns in bytes from 0).
        outside: functions of libraries that it ran.
    """

    file: str
    where: tuple[int, int, int, int]
    ran: list[Ran] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Recording:
    """One run of a program.

    Args:
        root: the folder of the project.
        sites: by file, in the order of position.
    """

    root: str
    sites: Mapping[str, tuple[Site, ...]]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judgement of one call site.

    Args:
        shape: how the callee is written.
        outcome: contained, unknown or wrong.
        reason: why the answer is unknown; for a wrong one the functions that were missed.
        through: no function of the project ran directly, only by way of a library.
    """

    file: str
    line: int
    text: str
    shape: str
    outcome: str
    reason: str
    through: bool


@dataclass(slots=True)
class Receivers:
    """How `class_of` fares with receivers of methods: counted in pairs of site and class."""

    exact: int = 0
    base: int = 0
    unknown: int = 0
    wrong: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Comparison:
    """All judgements of one recording."""

    verdicts: list[Verdict] = field(default_factory=list)
    receivers: Receivers = field(default_factory=Receivers)


# -- reading -----------------------------------------------------------------------------------


def read_recording(path: Path) -> Recording:
    """Read what `truth_recorder.py` wrote.

    Raises:
        OSError, ValueError, KeyError: it is no recording.
    """
    document = json.loads(path.read_text(encoding="utf-8"))
    files = document["files"]
    functions = [
        ((files[file], line, qualname.rpartition(".")[2]), qualname)
        for file, line, qualname in document["functions"]
    ]
    classes = [
        (files[file] if file >= 0 else "", name.replace("<locals>.", ""))
        for file, name, _ in document["classes"]
    ]
    mros = [tuple(classes[index] for index in row[2]) for row in document["classes"]]
    sites: dict[tuple[object, ...], Site] = {}
    for file, *where, number, how, function, receivers, _ in document["calls"]:
        key, qualname = functions[function]
        owners = tuple(mros[index] for index in receivers)
        site = _site(sites, files[file], where)
        site.ran.append(Ran(key, qualname, how == DIRECT, owners, number))
    for file, *where, _, names in document["outside"]:
        _site(sites, files[file], where).outside += names
    by_file: dict[str, list[Site]] = defaultdict(list)
    for site in sorted(sites.values(), key=lambda item: (item.file, item.where)):
        by_file[site.file].append(site)
    return Recording(document["root"], {file: tuple(found) for file, found in by_file.items()})


def _site(sites: dict[tuple[object, ...], Site], file: str, where: list[int]) -> Site:
    line, column, end_line, end_column = where
    place = (line, column, end_line, end_column)
    return sites.setdefault((file, place), Site(file, place))


# -- asking amplint ----------------------------------------------------------------------------


class Model:
    """amplint's answers about one project; the only part that knows its interface.

    Args:
        root: the folder of the project; None takes the folder of each file for itself.
        files: relative to `base`, all files that will be asked about.
    """

    def __init__(self, base: Path, root: str | None, files: Iterable[str]) -> None:
        self._base = base
        self._project = Project(root)
        self._objects = Objects(self._project)
        self.modules = {file: self._load(file) for file in files}

    def _load(self, file: str) -> Module:
        path = str(self._base / file)
        source = decode(read(path, DATA), path)
        return self._project.add(path, source.text, parse(source), path)

    def targets(self, call: ast.Call, function: Function) -> Answer:
        """What the call runs, as amplint says."""
        found = self._objects.targets(call, function)
        return Answer(
            frozenset(map(self._key, found.functions)),
            not found.unknown,
            found.unknown,
            lazy=any(map(_is_lazy, found.functions)),
        )

    def class_of(self, expression: ast.expr, function: Function) -> ClassKey | None:
        """The class that the value of an expression is an object of, as amplint says."""
        found = self._objects.class_of(expression, function)
        return (self._file(found.module), found.qualname) if found else None

    def _key(self, function: Function) -> Key:
        decorators = getattr(function.node, "decorator_list", [])
        lines = [getattr(function.node, "lineno", 1), *(item.lineno for item in decorators)]
        return (self._file(function.module), min(lines), function.name)

    def _file(self, module: Module) -> str:
        path = module.path or os.path.realpath(module.filename)
        return os.path.relpath(path, self._base).replace(os.sep, "/")


def _is_lazy(function: Function) -> bool:
    """Whether calls of a function only make a generator or a coroutine."""
    yields = (ast.Yield, ast.YieldFrom)
    node = function.node
    return isinstance(node, ast.AsyncFunctionDef) or any(
        isinstance(item, yields) for item in function.nodes
    )


# -- judging -----------------------------------------------------------------------------------


def compare(recording: Recording, *, own_roots: bool) -> Comparison:
    """Judge every executed call of a recording.

    Args:
        own_roots: the folder of each top-level package or script is a project of its own, as
            in a folder of small programs.
    """
    base = Path(recording.root)
    found = Comparison()
    for root, files in _projects(recording, own_roots=own_roots).items():
        model = Model(base, root, files)
        for file in files:
            _judge_file(model, file, recording.sites[file], found)
    return found


def _projects(recording: Recording, *, own_roots: bool) -> dict[str, list[str]]:
    grouped: dict[str, list[str]] = defaultdict(list)
    for file in recording.sites:
        folder = Path(recording.root, file).parent
        while own_roots and (folder / "__init__.py").exists():
            folder = folder.parent
        grouped[str(folder) if own_roots else recording.root].append(file)
    return grouped


def _judge_file(model: Model, file: str, sites: Iterable[Site], found: Comparison) -> None:
    module = model.modules[file]
    calls = {
        (node.end_lineno, node.end_col_offset): (node, function)
        for node, function in ((item.node, item.function) for item in module.calls)
    }
    decorators = _decorators(module)
    for site in sites:
        call, function = calls.get(site.where[2:], (None, None))
        if call is None or function is None or site.where[:2] not in _starts(call):
            continue  # a class statement, or a decorator without parentheses
        ran = [
            item
            for item in site.ran
            if _is_explicit(item, call) and not (item.number and call in decorators)
        ]
        verdict = _judge(model, site, ran, call, function)
        if verdict is not None:
            found.verdicts.append(verdict)
        _judge_receivers(model, site, ran, call, function, found.receivers)


def _decorators(module: Module) -> set[ast.expr]:
    """Decorators that are calls: applying their result has their position, too."""
    nodes = (node for function in module.functions for node in ast.walk(function.node))
    return {item for node in nodes for item in getattr(node, "decorator_list", ())}


def _starts(call: ast.Call) -> set[tuple[int, int]]:
    """Where the instruction of a call may start: of a method on a line of its own, at its name."""
    starts = {(call.lineno, call.col_offset)}
    callee = call.func
    if isinstance(callee, ast.Attribute) and callee.end_lineno is not None:
        width = len(callee.attr.encode())
        starts.add((callee.end_lineno, (callee.end_col_offset or 0) - width))
    return starts


def _is_explicit(ran: Ran, call: ast.Call) -> bool:
    """Whether the call stands for the function: `str(x)` only happens to run `__str__`."""
    name = ran.key[2]
    if not (name.startswith("__") and name.endswith("__")) or name in _CALLED_AS_IS:
        return True
    return isinstance(call.func, ast.Attribute) and call.func.attr == name


def _judge(
    model: Model, site: Site, ran: list[Ran], call: ast.Call, function: Function
) -> Verdict | None:
    """None where neither a function of the project ran nor one is claimed to.

    Nor where a library made a generator of a function of the project: nobody sees that call.
    """
    direct = {item.key: item for item in ran if item.direct}
    through = {item.key for item in ran if not item.direct}
    answer = model.targets(call, function)
    claimed_to_run = answer.functions and not answer.lazy
    if not direct and not (claimed_to_run and (site.outside or through)):
        return None
    if not direct:  # a library ran, and amplint names a function of the project
        fine = answer.functions & through or not answer.complete
        outcome = CONTAINED if fine else WRONG
        missed = sorted(site.outside)
    else:
        lacking = direct.keys() - answer.functions
        if any(isinstance(item, ast.Starred) for item in call.args):
            # `f(*map(g, x))` runs g on its way to f.
            names = {key[2] for key in answer.functions & direct.keys()}
            lacking = {key for key in lacking if not names or key[2] in names}
        missed = sorted(f"{key[0]}:{key[1]} {direct[key].qualname}" for key in lacking)
        outcome = CONTAINED if not missed else WRONG if answer.complete else UNKNOWN
    reason = answer.reason if outcome == UNKNOWN else ""
    if outcome == WRONG:
        claimed = sorted(f"{key[0]}:{key[1]} {key[2]}" for key in answer.functions)
        reason = f"ran {', '.join(missed)}; said {', '.join(claimed)}"
    text = " ".join(ast.unparse(call).split())
    return Verdict(site.file, site.where[0], text, shape(call.func), outcome, reason, not direct)


def shape(callee: ast.expr) -> str:
    """How a callee is written: `name()`, `self.f()`, `self.a.f()`, `super().f()`, …"""
    if isinstance(callee, ast.Name):
        return "name()"
    if not isinstance(callee, ast.Attribute):
        return {ast.Call: "f()()", ast.Subscript: "x[…]()"}.get(type(callee), "other")
    return _RECEIVERS.get(type(callee.value), _receiver)(callee.value) + ".f()"


def _receiver(value: ast.expr) -> str:
    return "other"


def _named_receiver(value: ast.expr) -> str:
    name = value.id if isinstance(value, ast.Name) else ""
    return name if name in ("self", "cls") else "name"


def _attribute_receiver(value: ast.expr) -> str:
    while isinstance(value, ast.Attribute):
        value = value.value
    return "self.a" if isinstance(value, ast.Name) and value.id == "self" else "name.a"


def _call_receiver(value: ast.expr) -> str:
    callee = value.func if isinstance(value, ast.Call) else value
    return "super()" if isinstance(callee, ast.Name) and callee.id == "super" else "call()"


_RECEIVERS = {
    ast.Name: _named_receiver,
    ast.Attribute: _attribute_receiver,
    ast.Call: _call_receiver,
    ast.Subscript: lambda _: "x[…]",
    ast.Constant: lambda _: "constant",
}


def _judge_receivers(
    model: Model,
    site: Site,
    ran: list[Ran],
    call: ast.Call,
    function: Function,
    found: Receivers,
) -> None:
    """Ask for the class of `x` in `x.method()`, where `method` ran with `x` as its `self`."""
    callee = call.func
    if not isinstance(callee, ast.Attribute) or shape(callee) == "super().f()":
        return
    methods = [item for item in ran if item.direct and item.key[2] == callee.attr]
    owners = {mro for item in methods for mro in item.receivers}
    if not owners:
        return
    claimed = model.class_of(callee.value, function)
    for mro in sorted(owners):
        if claimed is None:
            found.unknown += 1
        elif claimed == mro[0]:
            found.exact += 1
        elif claimed in mro:
            found.base += 1
        else:
            place = f"{site.file}:{site.where[0]}"
            text = ast.unparse(callee.value)
            found.wrong.append(f"{place} {text}: is {mro[0][1]}, said {claimed[1]}")
