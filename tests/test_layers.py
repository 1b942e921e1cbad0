"""What may import what: arrows run one way through the rooms, and no circle joins files.

Imports count wherever they stand: at the top, in a function, under `TYPE_CHECKING`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

#: The rooms from the ground up. What stands in a line may import what stands above it, and its
#: own room. The longest entry that begins a file's name says where the file stands.
ORDER = (
    ("", "errors", "protocol", "collector", "recursion"),
    ("files",),
    ("plugins", "expectations"),
    ("rules",),  # the table alone
    ("findings", "workers", "plaindata"),
    ("levels",),
    ("selectors",),
    ("source",),
    ("code",),
    ("values",),
    ("amp",),
    ("rule", "config"),
    ("selection", "source.discovery"),
    ("gradflow",),
    ("regions", "flow"),
    ("fixing.verbs", "fixing.arguments", "fixing.transformer", "fixing.codemods"),
    ("view",),
    (
        "wording",
        "fixing.edits",
        "fixing.statements",
        "fixing.blocks",
        "fixing.windows",
        "authoring",
    ),
    ("rules.*",),
    ("inspection",),
    ("cache",),
    ("checker",),
    ("runtime",),
    ("selftest",),
    ("live",),
    ("probe",),
    ("fixing", "report"),
    ("cli",),
    ("__main__",),
)
LEVELS = {name: level for level, names in enumerate(ORDER) for name in names}

#: Arrows that run up today: the constants that an expression may be know torch's dtypes.
KNOWN_ARROWS = {("values.assumptions", "amp.dtypes"), ("values.values", "amp.dtypes")}

#: Honest recursions: an origin is asked for its parts' origins; a stand-in makes stand-ins.
_ORIGINS = "bindings calls conditions external fields kinds objects origins parameters parts"
_STAND_INS = "context data omissions opaque_calls operations soft standins values world"
KNOWN_CIRCLES = {
    frozenset(f"values.{name}" for name in _ORIGINS.split()),
    frozenset(f"probe.worker.{name}" for name in _STAND_INS.split()),
}

_TORCH = re.compile(r"torch|lightning|scaler|autocast|optimizer", re.IGNORECASE)


def _files() -> dict[str, Path]:
    """Every file of amplint by its dotted name below `amplint`."""
    found = {}
    for top, room in (("amplint", ()), ("rules", ("rules",))):
        for path in sorted((ROOT / top).rglob("*.py")):
            parts = path.relative_to(ROOT / top).with_suffix("").parts
            own = parts[:-1] if parts[-1] == "__init__" else parts
            found[".".join((*room, *own))] = path
    return found


FILES = _files()


def imports(source: str, files: Mapping[str, Path]) -> set[str]:
    """The files that a file imports, by their names below `amplint`."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            assert node.level == 0, "a relative import"
            both = [(f"{node.module}.{alias.name}", node.module) for alias in node.names]
            names = [member if _below(member) in files else module for member, module in both]
        else:
            continue
        found.update(name for name in map(_below, names) if name in files)
    return found


def _below(dotted: str) -> str | None:
    """ "code.module" for "amplint.code.module", None for what is no part of amplint."""
    return dotted[len("amplint.") :] if f"{dotted}.".startswith("amplint.") else None


@cache
def arrows() -> dict[str, set[str]]:
    """What each file imports. Read in a test, not while tests are collected in each process."""
    return {n: imports(path.read_text("utf-8"), FILES) - {n} for n, path in FILES.items()}


def level(name: str) -> int:
    """How high a file stands."""
    if name.startswith("rules."):
        return LEVELS["rules.*"]
    parts = name.split(".")
    prefixes = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next(LEVELS[prefix] for prefix in prefixes if prefix in LEVELS)


def runs_down(start: str, end: str) -> bool:
    """Whether a file may import another one."""
    if level(start) != level(end):
        return level(start) > level(end)
    return start.partition(".")[0] == end.partition(".")[0]


def circles(arrows: Mapping[str, set[str]]) -> set[frozenset[str]]:
    """The largest sets of files each of which leads to all the others."""
    reached = {name: set(_reached(name, arrows)) for name in arrows}
    return {
        frozenset(other for other in reached[name] if name in reached[other])
        for name in arrows
        if name in reached[name]
    }


def _reached(name: str, arrows: Mapping[str, set[str]]) -> Iterator[str]:
    pending, seen = [name], set()
    while pending:
        for other in arrows[pending.pop()] - seen:
            seen.add(other)
            pending.append(other)
            yield other


def test_no_circle_joins_files() -> None:
    """A circle that is gone has to leave the list, too."""
    assert circles(arrows()) == KNOWN_CIRCLES


def test_arrows_run_down() -> None:
    up = {
        (name, end) for name, ends in arrows().items() for end in ends if not runs_down(name, end)
    }
    assert up == KNOWN_ARROWS


def test_every_room_stands_somewhere() -> None:
    for name in FILES:
        assert level(name) >= 0, name


def test_nothing_of_torch_is_known_below() -> None:
    knowing = {
        name
        for name, path in FILES.items()
        if name.startswith("code.") and any(map(_TORCH.search, _texts(path)))
    }
    assert knowing == set()


def _texts(path: Path) -> Iterator[str]:
    """The string and bytes constants of a file, without its docstrings."""
    tree = ast.parse(path.read_text("utf-8"))
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        value = getattr(node, "value", None) if isinstance(node, ast.Constant) else None
        if isinstance(value, (str, bytes)) and id(node) not in docstrings:
            yield value if isinstance(value, str) else value.decode("latin-1")


# -- the measure itself ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import amplint.code.module", {"code.module"}),
        ("from amplint.code import module", {"code.module"}),
        ("from amplint.code.module import Function", {"code.module"}),
        ("def f():\n    from amplint.view import FileView", {"view"}),
        ("if TYPE_CHECKING:\n    from amplint.view import FileView", {"view"}),
        ("from amplint.rules import load", {"rules"}),
        ("from amplint import __version__", {""}),
        ("import ast, amplint_tools", set()),
    ],
)
def test_imports(source: str, found: set[str]) -> None:
    assert imports(source, FILES) == found


def test_circles() -> None:
    arrows = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set(), "e": {"f"}, "f": {"e", "a"}}
    assert circles(arrows) == {frozenset("bc"), frozenset("ef")}


@pytest.mark.parametrize(
    ("start", "end", "allowed"),
    [
        ("flow.engine", "amp.roles", True),
        ("flow.engine", "flow.state", True),
        ("flow.engine", "regions.regions", False),
        ("code.module", "amp.names", False),
        ("amp.losses", "view", False),
        ("rules.protocol.step_twice", "fixing.statements", True),
        ("rules.protocol.step_twice", "fixing.fixer", False),
        ("selectors", "rules", True),
        ("selectors", "rules.protocol.step_twice", False),
    ],
)
def test_the_order(start: str, end: str, allowed: bool) -> None:
    assert runs_down(start, end) is allowed


#: Who opens files beside the one door, and why.
OPENERS = {
    "files.py": "the door",
    "cache.py": "writes its entries",
    "cli/output.py": "writes the report where it is asked to",
    "cli/problem_matcher.py": "amplint's own data",
    "cli/run.py": "writes the report of a run",
    "cli/terminal.py": "what a reader that went away does not get",
    "fixing/files.py": "writes what is fixed",
    "plugins.py": "installed packages",
}
_OPENS = frozenset({"open", "read_text", "read_bytes", "fdopen"})


def test_files_are_read_through_one_door() -> None:
    """What a check reads: limits and kinds of files are known to `amplint/files.py` alone."""
    package = ROOT / "amplint"
    apart = ("live", "runtime", "probe", "selftest")  # run beside the user's program, or for it
    openers = set()
    for path in package.rglob("*.py"):
        name = path.relative_to(package).as_posix()
        nodes = ast.walk(ast.parse(path.read_text("utf-8")))
        names = {
            getattr(node.func, "id", getattr(node.func, "attr", ""))
            for node in nodes
            if isinstance(node, ast.Call)
        }
        if names & _OPENS and not name.startswith(apart):
            openers.add(name)
    assert openers <= OPENERS.keys(), openers - OPENERS.keys()
