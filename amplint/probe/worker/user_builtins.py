"""What the user's code gets as builtins: harmless, bounded, and aware of stand-ins."""

from __future__ import annotations

import builtins
import inspect
import re
import sys
from collections.abc import Iterable, Iterator, KeysView, Mapping, Sequence
from types import FrameType
from typing import Any

import torch

from amplint.probe.messages import SMALL, Skipped
from amplint.probe.worker import absorbed, slots, standins, values, words
from amplint.probe.worker.context import Run, StopRun, current
from amplint.probe.worker.failures import frames_of, is_amp_failure
from amplint.probe.worker.namespace import Loading, Namespace
from amplint.probe.worker.rewrite import (
    AGAIN,
    ASSUME,
    CONTAINS,
    FILL,
    IS_NONE,
    ITEM,
    KEY,
    KEYWORDS,
    LOOP,
    MEMBERS,
    MERGED,
    REPAIR,
    UNPACK,
)
from amplint.probe.worker.soft import LENGTH, SoftLength, SoftTensor, blocks, derived, soft

#: A loop is left after this many rows of the checked file, if it went round FEWEST times.
ROWS = 1500
FEWEST = 4
#: A `while` loop is left after this many rounds.
ROUNDS = 48
#: Any loop is left after this many rounds, in a run that has to be short and in others.
FEW_ROUNDS = 6
ANY_ROUNDS = 1_000_000

#: What a training loop only uses: its inside decides about no call of a scaler.
PARTS = (torch.nn.Module, torch.utils.data.Dataset)
MODULE_CALLS = (torch.nn.Module._call_impl.__code__,)
#: What tensors are asked for, and lists and loaders are not.
MOVES = frozenset({"to", "cuda", "shape", "dim"})
#: What an unknown value may be an entry of.
TABLES = (dict, list, tuple, set, frozenset, KeysView)
#: An entry of none of them.
OTHER = "something else"
PLAIN = (str, int, float, bool)
#: A text that `eval` does nothing with but look something up.
_DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
CONTAINERS = (tuple, list, dict, Mapping, Sequence)


class _AboutRanges(type):
    def __instancecheck__(cls, thing: Any) -> bool:
        return isinstance(thing, range)


class _Range(metaclass=_AboutRanges):
    """`range`, which knows how long data are."""

    def __new__(cls, *bounds: Any) -> Any:
        return blocks(*bounds) if any(isinstance(b, SoftLength) for b in bounds) else range(*bounds)


class UserBuiltins:
    """Builtins of one run."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._rounds: dict[int, tuple[int, int]] = {}
        #: Loops that were left early: file and row.
        self._left: set[tuple[str, int]] = set()
        #: Assertions that were taken to hold: doubtful since then, too.
        self._assumed: set[tuple[str, int]] = set()
        self._slice = frozenset(run.plan.slice_rows)
        self._calls = frozenset(run.plan.call_rows)
        self._most = FEW_ROUNDS if run.request.assignment.get(SMALL) else ANY_ROUNDS

    def table(self, loading: Loading) -> dict[str, Any]:
        """Names that differ from Python's own."""
        return {
            "__import__": loading.import_,
            IS_NONE: self.is_none,
            LOOP: self.loop,
            AGAIN: self.again,
            UNPACK: self.unpack,
            KEY: self.key,
            ITEM: self.item,
            CONTAINS: self.contains,
            ASSUME: self.assume,
            KEYWORDS: self.keywords,
            MERGED: _merged,
            MEMBERS: _members,
            REPAIR: self.repair,
            FILL: values.make,
            "isinstance": self.isinstance,
            "issubclass": _issubclass,
            "hasattr": self.hasattr,
            "getattr": _getattr,
            "next": _next,
            "len": _len,
            "range": _Range,
            "vars": _vars,
            "open": absorbed.opened,
            "input": lambda *args: "",
            "print": lambda *args, **kwargs: None,
            "breakpoint": lambda *args, **kwargs: None,
            "eval": _eval,
            "exec": self.exec,
            "exit": _exit,
            "quit": _exit,
        }

    def exec(self, *_args: Any) -> None:
        """Nothing is executed of what may do anything."""
        self._run.note("imported", "exec", self._run.row())

    def is_none(self, thing: Any) -> bool:
        """`thing is None`, where `thing` may be a stand-in."""
        if isinstance(thing, slots.Unset):
            return thing._amp_is_none()
        if not isinstance(thing, standins.StandIn):
            return thing is None
        value = object.__getattribute__(thing, "_value")
        if value is not standins.UNBOUND:
            return value is None
        path = object.__getattribute__(thing, "_path")
        return values.is_none(path)

    def loop(self, items: Iterable[Any], row: int) -> Iterator[Any]:
        """The items of a `for` loop, as many as the budget allows."""
        before = self._run.lines
        for count, item in enumerate(items):
            long = self._run.lines - before > ROWS
            if count >= self._most or (count >= FEWEST and long):
                self._leave(sys._getframe(1), row, count)
                return
            yield item

    def again(self, row: int, never_ends: bool = False) -> bool:
        """Whether a `while` loop may go on; a negative row says that it begins.

        Raises:
            StopRun: it has gone on long enough, and nothing could ever leave it.
        """
        if row < 0:
            self._rounds[-row] = 0, self._run.lines
            return True
        rounds, lines = self._rounds.get(row, (0, self._run.lines))
        self._rounds[row] = rounds + 1, lines
        tired = rounds >= FEWEST and self._run.lines - lines > ROWS
        if rounds >= min(ROUNDS, self._most) or tired:
            if never_ends:
                raise StopRun("timeout", f"the loop in line {row} does not end")
            self._leave(sys._getframe(1), row, rounds)
            return False
        return True

    def _leave(self, frame: FrameType, row: int, rounds: int) -> None:
        here = frame.f_code.co_filename == self._run.project.checked and row in self._slice
        place = frame.f_code.co_filename, row
        if place in self._left:
            return  # doubtful since then
        self._left.add(place)
        kept = len(self._run.steps)
        self._run.note("loop" if here else "loop-elsewhere", "", row, str(rounds), kept)

    def key(self, table: Any, key: Any) -> Any:
        """A stand-in that is looked up in a real table is one of its keys."""
        if not isinstance(key, standins.StandIn) or not isinstance(table, dict) or not table:
            return key
        if key in table or not all(isinstance(known, (str, int)) for known in table):
            return key
        return key._amp_bind_to(tuple(table))

    def contains(self, entry: Any, table: Any) -> bool:
        """`entry in table`; a stand-in is one of the entries first, then something else."""
        if isinstance(table, Namespace) and isinstance(entry, str):
            return table.has(entry)  # and defined as soon as it is read
        if isinstance(entry, standins.StandIn) and isinstance(table, TABLES) and table:
            known = tuple(table)
            if all(isinstance(other, (str, int)) for other in known):
                entry = entry._amp_bind_to((*known, OTHER))
        if isinstance(entry, standins.StandIn) and isinstance(table, str):
            path = f"contains({table!r}, {standins.get(entry, '_path')})"
            return bool(self._run.choose(path, (False, True)))
        return entry in table

    def item(self, table: Any, key: Any) -> Any:
        """`{...}[key]`, as `key` says."""
        if isinstance(table, Namespace) and isinstance(key, standins.StandIn):
            return key  # something that the module may define
        return table[self.key(table, key)]

    def assume(self, row: int, about_shape: bool, found: Any = None) -> bool:
        """An assertion that does not hold of what the probe made up is taken to hold.

        Args:
            found: what its test gave.
        """
        about_shape = about_shape or self._is_about_batches(found)
        if self._is_in_a_part(sys._getframe(1)):
            self._run.note("assertion-in-part", row=row)
        elif about_shape:
            self._run.remark(f"the assertion in line {row} holds")
        elif (place := (sys._getframe(1).f_code.co_filename, row)) not in self._assumed:
            self._assumed.add(place)
            self._run.note("assertion", row=row, after=len(self._run.steps))
        return True

    def _is_about_batches(self, found: Any) -> bool:
        """Whether a test asks about tensors that no training has touched: what users train with
        passes it, whatever else they do."""
        return (
            isinstance(found, SoftTensor)
            and not getattr(found, "_amp_exact", False)
            and not any(event.kind in ("backward", "scale") for event in self._run.events)
            and not self._run.decisions.injects_nan
        )

    def keywords(self, function: Any, given: tuple[int, tuple[str, ...]], options: Any) -> Any:
        """The options of a call, where a stand-in holds them: what the function requires.

        Args:
            given: the number of positional arguments, and the names of the others.
        """
        if not isinstance(options, (standins.StandIn, SoftTensor)):
            return options
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except (TypeError, ValueError):
            return {}
        count, names = given
        wanted = [
            parameter.name
            for parameter in parameters[count:]
            if parameter.default is parameter.empty
            and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        ]
        return {name: options[name] for name in wanted if name not in names}

    def unpack(self, value: Any, count: int) -> Any:
        """A sequence of invented values has as many as are unpacked."""
        if type(value) not in (list, tuple) or len(value) == count:
            return value
        if not value or not all(
            isinstance(entry, (SoftTensor, standins.StandIn)) for entry in value
        ):
            return value
        self._run.remark("length of a sequence taken from where it is unpacked")
        last = value[-1]
        return [*value[:count], *[_another(last) for _ in range(count - len(value))]]

    def repair(self, error: Exception, row: int, bound: str | None) -> None:
        """Skip a statement that has raised, unless the failure is what a probe looks for.

        Args:
            bound: the paths that it would have bound; None if it is there to raise.
        """
        # What the limits of a run cause says nothing about the code, and goes on to its end.
        limits = (StopIteration, GeneratorExit, RecursionError, MemoryError)
        if isinstance(error, limits) or is_amp_failure(error):
            raise error
        frame = sys._getframe(1)
        reason = f"{type(error).__name__}: {error}"
        ends_calls = self._ends_calls(error, frame)
        if not ends_calls and self._is_in_a_part(frame):
            self._run.note("skipped-in-part", row=row, detail=reason[:160])
            return
        names = tuple((bound or "").split())
        apart = bound is not None and not ends_calls and self._is_apart(frame, row, names)
        self._run.skipped.setdefault(Skipped(row, reason[:120], apart, names), None)

    def _is_in_a_part(self, frame: FrameType | None) -> bool:
        """Whether a model or data set is at work, in a file that knows of no scaler."""
        source = self._run.project.module(frame.f_code.co_filename) if frame else None
        if source is None or source.mentions_scaler:
            return False
        while frame is not None:
            if frame.f_code in MODULE_CALLS or _is_of_a_part(frame):
                return True
            frame = frame.f_back
        return False

    def _is_apart(self, frame: FrameType, row: int, names: tuple[str, ...]) -> bool:
        """Whether no call of a scaler depends on a statement, but by tests of what it binds.

        A call may do anything, unless the slice of the checked file knows better. What is bound is
        a stand-in now, and a test of that is a decision of the run.
        """
        filename = frame.f_code.co_filename
        if any(self._kind_of(name) in ("scaler", "loss") for name in names):
            return False
        if filename == self._run.project.checked:
            return row not in (self._slice if not names else self._calls)
        if any(isinstance(value, torch.amp.GradScaler) for value in frame.f_locals.values()):
            return False
        return bool(names) and not self._may_call_a_scaler(filename)

    def _ends_calls(self, error: Exception, frame: FrameType) -> bool:
        """Whether the failure ended a function that was called here and may call a scaler."""
        return any(
            self._may_call_a_scaler(inner.f_code.co_filename)
            for inner, _ in frames_of(error)
            if inner is not frame
        )

    def _may_call_a_scaler(self, filename: str) -> bool:
        source = self._run.project.module(filename)
        return source is not None and source.mentions_scaler

    def _kind_of(self, path: str) -> str | None:
        role = self._run.role(path)
        return role.kind if role else words.kind_of(path, self._run.use(path).attributes)

    def isinstance(self, thing: Any, kinds: Any) -> bool:
        """What invented data, and things that nothing is known about, are is a decision."""
        if isinstance(thing, standins.StandIn):
            names = [kind.__name__ for kind in _flat(kinds) if kind in (*CONTAINERS, *PLAIN)]
            unbound = object.__getattribute__(thing, "_value") is standins.UNBOUND
            if names and unbound:
                path = f"isinstance({object.__getattribute__(thing, '_path')}, {names[0]})"
                return bool(self._run.choose(path, (False, True)))
        if isinstance(thing, SoftTensor) and not thing.requires_grad:
            names = [kind.__name__ for kind in _flat(kinds) if kind in CONTAINERS]
            if names and not _isinstance(thing, kinds):
                path = f"isinstance(data, {names[0]})@{self._run.row()}"
                return bool(self._run.choose(path, (False, True)))
        return _isinstance(thing, kinds)

    def hasattr(self, thing: Any, name: str) -> bool:
        """Whether an unknown object has an attribute is a decision."""
        if isinstance(thing, standins.StandIn):
            path = object.__getattribute__(thing, "_path")
            return bool(self._run.choose(f"hasattr({path}, {name!r})", (True, False)))
        return builtins.hasattr(thing, name)


class _Merged(dict):  # type: ignore[type-arg]
    """A dictionary that an unknown mapping was poured into."""

    def __missing__(self, key: Any) -> Any:
        self[key] = soft()
        return self[key]


def _merged(table: dict[Any, Any], *parts: Any) -> dict[Any, Any]:
    unknown = any(isinstance(part, (standins.StandIn, SoftTensor)) for part in parts)
    return _Merged(table) if unknown else table


def _is_of_a_part(frame: FrameType) -> bool:
    """Whether this is a special method, such as the constructor, of a model or data set."""
    code = frame.f_code
    if not code.co_name.startswith("__") or not code.co_varnames:
        return False
    return isinstance(frame.f_locals.get(code.co_varnames[0]), PARTS)


def _another(value: Any) -> Any:
    return derived(value) if isinstance(value, torch.Tensor) else value


def _flat(kinds: Any) -> tuple[Any, ...]:
    return kinds if isinstance(kinds, tuple) else (kinds,)


def _isinstance(thing: Any, kinds: Any) -> bool:
    try:
        return isinstance(thing, kinds)
    except TypeError:
        return False


def _issubclass(thing: Any, kinds: Any) -> bool:
    try:
        return issubclass(thing, kinds)
    except TypeError:
        return False


def _getattr(thing: Any, name: Any, *default: Any) -> Any:
    if isinstance(name, standins.StandIn):
        return name
    return getattr(thing, name, *default)


def _len(thing: Any) -> int:
    """Python's own makes an ordinary number of the length of what is invented."""
    return SoftLength(LENGTH) if _is_batch(thing) else len(thing)


def _is_batch(thing: Any) -> bool:
    """Whether something is invented data, also where only its use says that it is a tensor."""
    if not isinstance(thing, standins.StandIn):
        return isinstance(thing, SoftTensor)
    value = object.__getattribute__(thing, "_value")
    if value is not standins.UNBOUND:
        return isinstance(value, SoftTensor)
    attributes = current().use(object.__getattribute__(thing, "_path")).attributes
    return not MOVES.isdisjoint(attributes)


def _next(items: Any, *default: Any) -> Any:
    if isinstance(items, (SoftTensor, torch.nn.Module)):
        return soft()  # a generator of data may be called like one of images
    return next(items, *default)


def _members(thing: Any) -> Any:
    """`thing.__dict__`; what a stand-in has is unknown, as what a builder registers is."""
    if isinstance(thing, standins.StandIn):
        return slots.opened({}, f"{object.__getattribute__(thing, '_path')}.__dict__")
    if isinstance(thing, absorbed.Absent):
        return slots.opened({}, f"{thing.__name__}.__dict__")
    return thing.__dict__


def _vars(*things: Any) -> Any:
    return _members(*things) if things else {}


def _eval(text: Any, *names: Any) -> Any:
    """What a dotted name means where it is asked for; anything else may do anything."""
    if names or type(text) is not str or not _DOTTED.fullmatch(text):
        return standins.StandIn("eval()")
    frame = sys._getframe(1)
    return eval(text, frame.f_globals, frame.f_locals)


def _exit(*args: Any) -> None:
    raise SystemExit(*args)
