"""The scaler calls of one Python file, and edits of its text that keep the lines in place.

For `mutators.py`. Plain `ast`, one file, no knowledge of amplint: the test of an analyser
must not share the analyser's view of the code.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Arm:
    """One turn on the way down to a statement: the index-th child of a block of `owner`."""

    owner: ast.AST
    block: str
    index: int


@dataclass(frozen=True, slots=True, eq=False)
class Event:
    """A call that matters to the protocol.

    Args:
        kind: "step", "update", "reset" (update to a given scale), "unscale", "scaled backward",
            "other backward", "clip" or "call".
        trail: the way from the function's body down to the statement.
        scaler: the scaler as written, "" for calls without one.
        name: the last name of what is called.
    """

    kind: str
    node: ast.Call
    statement: ast.stmt
    function: FunctionNode | None
    trail: tuple[Arm, ...]
    scaler: str
    name: str

    @property
    def is_statement(self) -> bool:
        """Whether the call is a statement of its own, which can be edited as a whole."""
        return isinstance(self.statement, ast.Expr) and self.statement.value is self.node

    @property
    def operand(self) -> ast.expr | None:
        """The only argument, where it is a plain one."""
        if len(self.node.args) != 1 or self.node.keywords:
            return None
        only = self.node.args[0]
        return None if isinstance(only, ast.Starred) else only

    @property
    def loops(self) -> tuple[ast.AST, ...]:
        """The loops of the function around the event, outermost first."""
        kinds = (ast.For, ast.AsyncFor, ast.While)
        return tuple(
            arm.owner for arm in self.trail if isinstance(arm.owner, kinds) and arm.block == "body"
        )

    def parting(self, other: Event) -> tuple[Arm, Arm] | None:
        """The turns at which the ways to the two part; None if they are one statement."""
        pairs = zip(self.trail, other.trail, strict=False)
        return next(((mine, theirs) for mine, theirs in pairs if mine != theirs), None)

    def excludes(self, other: Event) -> bool:
        """Whether the two are on different arms of one `if`."""
        parting = self.parting(other)
        if parting is None:
            return False
        mine, theirs = parting
        same_if = mine.owner is theirs.owner and isinstance(mine.owner, ast.If)
        return same_if and mine.block != theirs.block

    def is_sibling_before(self, other: Event) -> bool:
        """Whether both are statements of one block, this one first."""
        mine, theirs = self.trail[-1], other.trail[-1]
        same_block = mine.owner is theirs.owner and mine.block == theirs.block
        return same_block and mine.index < theirs.index


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace the text from byte `start` to byte `end` (UTF-8) by `text`."""

    start: int
    end: int
    text: str


class Source:
    """A parsed file: its text, its events, and where its nodes are in the text."""

    def __init__(self, text: str) -> None:
        """Parse.

        Raises:
            SyntaxError, ValueError: if `text` is no Python.
        """
        self.tree = ast.parse(text)
        self.text = text
        self._bytes = text.encode()
        self._line_starts = [0]
        for line in self._bytes.splitlines(keepends=True):
            self._line_starts.append(self._line_starts[-1] + len(line))
        self.events = tuple(_events(self.tree))
        self._kinds_by_function = _kinds_by_function(self.events)

    def statements(self, kind: str) -> Iterator[Event]:
        """Events of a kind that are statements of their own."""
        return (event for event in self.events if event.kind == kind and event.is_statement)

    def rivals(self, event: Event, *kinds: str) -> list[Event]:
        """Other events of these kinds that can run in the same call of the function."""
        return [
            other
            for other in self.events
            if other.kind in kinds
            and other is not event
            and other.function is event.function
            and not other.excludes(event)
        ]

    def calls_helper(self, event: Event, *kinds: str) -> bool:
        """Whether the event's function calls a function of this file that holds such events."""
        here = getattr(event.function, "name", None)
        return any(
            other.function is event.function
            and other.name != here
            and not self._kinds_by_function.get(other.name, set()).isdisjoint(kinds)
            for other in self.events
        )

    def apply(self, edits: Iterable[Edit]) -> str:
        """The text with the edits made; they must not overlap."""
        result = self._bytes
        for edit in sorted(edits, key=lambda edit: edit.start, reverse=True):
            result = result[: edit.start] + edit.text.encode() + result[edit.end :]
        return result.decode()

    def replace(self, node: ast.stmt | ast.expr, text: str) -> Edit:
        """Write `text` in the place of a node."""
        return Edit(*self._range(node), text)

    def put_before(self, statement: ast.stmt, text: str) -> Edit:
        """Write a simple statement before another, on its line."""
        start, _ = self._range(statement)
        return Edit(start, start, f"{text}; ")

    def put_after(self, statement: ast.stmt, text: str) -> Edit:
        """Write a simple statement after another, on its line."""
        _, end = self._range(statement)
        return Edit(end, end, f"; {text}")

    def stands_alone(self, statement: ast.stmt) -> bool:
        """Whether nothing but a comment shares the statement's lines."""
        start, end = self._range(statement)
        before = self._bytes[:start].rpartition(b"\n")[2]
        after = self._bytes[end:].partition(b"\n")[0].strip()
        return not before.strip() and (not after or after.startswith(b"#"))

    def text_of(self, node: ast.expr) -> str:
        """The text of a node as it stands in the file."""
        start, end = self._range(node)
        return self._bytes[start:end].decode()

    def _range(self, node: ast.stmt | ast.expr) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return (
            self._line_starts[node.lineno - 1] + node.col_offset,
            self._line_starts[node.end_lineno - 1] + node.end_col_offset,
        )


def read_source(file: Path) -> Source | None:
    """Parse a file; None if it is no UTF-8 Python or has nothing to do with torch."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        return None
    if ".step(" not in text or "torch" not in text or "\f" in text:
        return None
    try:
        return Source(text)
    except (SyntaxError, ValueError):
        return None


def _events(tree: ast.Module) -> Iterator[Event]:
    """Every call of the file, in the order of the text."""
    known = _Names.of(tree)
    for statement, function, trail in _statements(tree, None, ()):
        for call in _calls_of(statement):
            kind, scaler = known.classify(call)
            yield Event(kind, call, statement, function, trail, scaler, _last_name(call.func))


@dataclass(frozen=True, slots=True)
class _Names:
    """What the names of a file stand for.

    Args:
        classes: last name of a target → names of the scaler classes it is built from.
        scaled: last names of targets that hold a scaled loss.
    """

    classes: Mapping[str, frozenset[str]]
    scaled: frozenset[str]

    @classmethod
    def of(cls, tree: ast.Module) -> _Names:
        """Read all assignments of the file."""
        classes: defaultdict[str, set[str]] = defaultdict(set)
        scaled: set[str] = set()
        for node in ast.walk(tree):
            if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
                continue
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            called = {_last_name(c.func) for c in ast.walk(node.value) if isinstance(c, ast.Call)}
            for target in map(_last_name, targets):
                classes[target] |= {name for name in called if name.endswith("Scaler")}
                scaled |= {target} if "scale" in called else set()
        return cls({name: frozenset(found) for name, found in classes.items()}, frozenset(scaled))

    def classify(self, call: ast.Call) -> tuple[str, str]:
        """The kind of a call, and the scaler it is called on."""
        name = _last_name(call.func)
        receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
        if receiver is not None and self.is_scaler(receiver):
            on = ast.unparse(receiver)
            if name == "update":
                return ("reset" if call.args or call.keywords else "update"), on
            kind = {"step": "step", "unscale_": "unscale"}.get(name, "call")
            return kind, on
        scale = scale_call(call)
        if scale is not None and isinstance(scale.func, ast.Attribute):
            return "scaled backward", ast.unparse(scale.func.value)
        if name == "backward" and receiver is not None and _last_name(receiver) in self.scaled:
            return "scaled backward", ""
        if "backward" in name.lower():
            return "other backward", ""
        return ("clip" if "clip_grad" in name.lower() else "call"), ""

    def is_scaler(self, node: ast.expr) -> bool:
        """Whether an expression is a gradient scaler of torch: built as one, or named so."""
        name = _last_name(node)
        built = self.classes.get(name, frozenset())
        if built:
            return any(found.endswith("GradScaler") for found in built)
        return "scaler" in name.lower()


def scale_call(call: ast.Call) -> ast.Call | None:
    """The `scaler.scale(loss)` of `scaler.scale(loss).backward(...)`."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "backward":
        return None
    scale = call.func.value
    if not isinstance(scale, ast.Call) or not isinstance(scale.func, ast.Attribute):
        return None
    return scale if scale.func.attr == "scale" and len(scale.args) == 1 else None


def _last_name(node: ast.expr) -> str:
    """`scaler` for `scaler`, `self.scaler` and `self.scaler["G"]`; "" for other shapes."""
    if isinstance(node, ast.Subscript):
        return _last_name(node.value)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _statements(
    owner: ast.AST, function: FunctionNode | None, trail: tuple[Arm, ...]
) -> Iterator[tuple[ast.stmt, FunctionNode | None, tuple[Arm, ...]]]:
    """Every statement below `owner`, with its function and its trail in that function.

    The rest of a block after `return`, `raise`, `break` or `continue` never runs: left out.
    """
    for block, value in ast.iter_fields(owner):
        if not isinstance(value, list):
            continue
        for index, child in enumerate(value):
            if not isinstance(child, (ast.stmt, ast.excepthandler, ast.match_case)):
                continue
            way = (*trail, Arm(owner, block, index))
            if isinstance(child, ast.stmt):
                yield child, function, way
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield from _statements(child, child, ())
            else:
                yield from _statements(child, function, way)
            if isinstance(child, (ast.Return, ast.Raise, ast.Break, ast.Continue)):
                break


def _calls_of(statement: ast.stmt) -> Iterator[ast.Call]:
    """The calls of a statement itself, without those of the statements in its blocks."""
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Call):
            yield node
        waiting += [
            child
            for child in ast.iter_child_nodes(node)
            if not isinstance(child, (ast.stmt, ast.excepthandler, ast.match_case))
        ]


def _kinds_by_function(events: Iterable[Event]) -> Mapping[str, set[str]]:
    """Name of a function of the file → the kinds of events it holds."""
    kinds: defaultdict[str, set[str]] = defaultdict(set)
    for event in events:
        if isinstance(event.function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            kinds[event.function.name].add(event.kind)
    return kinds
