"""Record, while a program runs, which function each of its calls really runs.

    python scripts/truth_recorder.py OUT ROOT MODULE [ARGUMENT ...]

Runs a module (or a file that ends in `.py`) as `__main__` under `sys.setprofile`, in this process
and all its threads, and writes to OUT, as JSON, every call of a Python function that a file below
ROOT made. Nothing of amplint is imported: the recording is Python's own word. Which call of a line
ran is known by its columns, which code objects have since Python 3.11.

What a profile function of Python 3.11 is not told stays out: calls of generator functions and of
coroutines (they make an object and run nothing), and child processes.

Exit status: that of the program.
"""

from __future__ import annotations

import dis
import json
import os
import runpy
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from types import CodeType, FrameType
from typing import Any

#: How a call reached the function that ran.
DIRECT = "direct"  # its instruction ran that function
THROUGH = "through"  # it ran a library, which ran that function
OUTSIDE = "outside"  # what ran directly is no function of the project
#: Instructions that calls are compiled to, in Python 3.11 to 3.14.
CALL_INSTRUCTIONS = frozenset(
    ("CALL", "PRECALL", "CALL_FUNCTION", "CALL_FUNCTION_KW", "CALL_FUNCTION_EX", "CALL_METHOD")
    + ("CALL_KW",)
)
_LAZY = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR
#: The class of a receiver is looked at in so many runs of one call.
_SAMPLES = 100
#: So many frames of libraries are looked through for the caller in the project.
_LIBRARY_FRAMES = 60
_MRO = type.__dict__["__mro__"]

#: A call as it is seen: `id` of the caller's code, offset in it, `id` of the code that ran.
Run = tuple[int, int, int]


@dataclass(slots=True)
class Seen:
    """What was seen of one function at one call."""

    count: int = 0
    receivers: set[type] = field(default_factory=set)


class Recorder:
    """Takes profile events.

    Args:
        root: the folder whose files are the project.
    """

    def __init__(self, root: str) -> None:
        self._root = os.path.realpath(root) + os.sep
        # By `id`, and kept alive: code objects of two copies of one file are equal.
        self.codes: dict[int, CodeType] = {}
        self._inside: dict[int, bool] = {}
        self._in_c: dict[FrameType, object] = {}
        self._files: dict[type, str] = {}
        self.direct: dict[Run, Seen] = {}
        self.through: dict[Run, Seen] = {}
        self.outside: dict[tuple[int, int], set[str]] = {}

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        """One profile event."""
        if event == "call":
            self._called(frame)
        elif event == "c_call":
            if self.is_inside(frame.f_code):
                self._in_c[frame] = arg
                self._left(frame, _name_of(arg))
        elif event != "return":  # of a C function, normally or by an exception
            self._in_c.pop(frame, None)

    def is_inside(self, code: CodeType) -> bool:
        """Whether a code object comes from a file of the project."""
        known = self._inside.get(id(code))
        if known is None:
            self.codes[id(code)] = code
            path = code.co_filename
            generated = path.startswith("<")  # by `exec`, or frozen into Python
            inside = not generated and os.path.realpath(path).startswith(self._root)
            known = self._inside[id(code)] = inside
        return known

    def file_of(self, owner: type) -> str:
        """The file of a class as it was known when the class was seen; "" if unknown."""
        return self._files.get(owner, "")

    def _called(self, frame: FrameType) -> None:
        caller, code = frame.f_back, frame.f_code
        if caller is None or code.co_flags & _LAZY:
            return
        inside = self.is_inside(code)
        if self.is_inside(caller.f_code) and caller not in self._in_c:
            if inside:
                self._seen(self.direct, caller, frame)
            else:
                self._left(caller, f"{frame.f_globals.get('__name__')}.{code.co_name}")
        elif inside:
            origin = self._origin(caller)
            if origin is not None:
                self._seen(self.through, origin, frame)

    def _origin(self, frame: FrameType | None) -> FrameType | None:
        """The nearest frame of the project from a library's frame outwards."""
        for _ in range(_LIBRARY_FRAMES):
            if frame is None or self.is_inside(frame.f_code):
                return frame
            frame = frame.f_back
        return None

    def _left(self, caller: FrameType, name: str) -> None:
        self.outside.setdefault((id(caller.f_code), caller.f_lasti), set()).add(name)

    def _seen(
        self,
        table: dict[Run, Seen],
        caller: FrameType,
        frame: FrameType,
    ) -> None:
        key = (id(caller.f_code), caller.f_lasti, id(frame.f_code))
        seen = table.get(key)
        if seen is None:
            seen = table[key] = Seen()
        seen.count += 1
        if seen.count <= _SAMPLES:
            self._look_at_receiver(seen, frame)

    def _look_at_receiver(self, seen: Seen, frame: FrameType) -> None:
        code = frame.f_code
        if not code.co_argcount or code.co_varnames[0] not in ("self", "cls"):
            return
        owner = _owner(frame.f_locals.get(code.co_varnames[0]), code.co_name)
        if owner not in seen.receivers:
            seen.receivers.add(owner)
            for base in _MRO.__get__(owner):
                if base not in self._files:
                    module = sys.modules.get(base.__module__)
                    self._files[base] = getattr(module, "__file__", None) or ""


def _owner(receiver: object, name: str) -> type:
    """The class that a method was looked up in: a class itself has class methods."""
    if not isinstance(receiver, type):
        return type(receiver)
    bases = _MRO.__get__(receiver)
    names = {name, *(f"_{base.__name__.lstrip('_')}{name}" for base in bases)}  # mangled ones
    return receiver if any(names & vars(base).keys() for base in bases) else type(receiver)


def _name_of(function: object) -> str:
    name = getattr(function, "__qualname__", None) or type(function).__name__
    return f"{getattr(function, '__module__', None) or 'builtins'}.{name}"


# -- writing ---------------------------------------------------------------------------------


class Writer:
    """Turns what was recorded into JSON values, each file, function and class once.

    Args:
        recorder: has seen everything.
        root: as the recorder was given it.
    """

    def __init__(self, recorder: Recorder, root: str) -> None:
        self._recorder = recorder
        self._root = os.path.realpath(root)
        self._files: dict[str, int] = {}
        self._functions: dict[tuple[int, int, str], int] = {}
        self._classes: dict[tuple[int, str], int] = {}
        self._mros: list[list[int]] = []
        self._positions: dict[int, dict[int, tuple[int, ...]]] = {}

    def document(self) -> dict[str, object]:
        """The whole recording: `truth_compare.py` reads it."""
        calls = sorted(
            [
                *self._rows(self._recorder.direct, DIRECT),
                *self._rows(self._recorder.through, THROUGH),
            ]
        )
        outside = sorted(self._outside())
        return {
            "python": ".".join(map(str, sys.version_info[:3])),
            "root": self._root,
            "files": list(self._files),
            "functions": [list(item) for item in self._functions],
            "classes": [[*key, mro] for key, mro in zip(self._classes, self._mros)],
            "calls": calls,
            "outside": outside,
        }

    def _rows(self, table: dict[Run, Seen], how: str) -> Iterator[list[object]]:
        codes = self._recorder.codes
        for (caller, offset, callee), seen in table.items():
            position = self._position(codes[caller], offset)
            if position is not None:
                receivers = sorted({self._class(owner) for owner in seen.receivers})
                yield [*position, how, self._function(codes[callee]), receivers, seen.count]

    def _outside(self) -> Iterator[list[object]]:
        for (caller, offset), names in self._recorder.outside.items():
            position = self._position(self._recorder.codes[caller], offset)
            if position is not None:
                yield [*position, sorted(names)]

    def _position(self, code: CodeType, offset: int) -> tuple[int, ...] | None:
        """File, line, column, end line, end column and which of the calls there; None if no call."""
        if id(code) not in self._positions:
            self._positions[id(code)] = call_positions(code)
        found = self._positions[id(code)].get(_start(code, offset))
        return (self._file(code.co_filename), *found) if found is not None else None

    def _file(self, path: str) -> int:
        path = os.path.realpath(path)
        if path.startswith(self._root + os.sep):
            path = os.path.relpath(path, self._root)
        return self._files.setdefault(path.replace(os.sep, "/"), len(self._files))

    def _function(self, code: CodeType) -> int:
        name = getattr(code, "co_qualname", code.co_name)
        key = (self._file(code.co_filename), code.co_firstlineno, name)
        return self._functions.setdefault(key, len(self._functions))

    def _class(self, owner: type) -> int:
        path = self._recorder.file_of(owner)
        key = (self._file(path) if path else -1, owner.__qualname__)
        if key not in self._classes:
            self._classes[key] = len(self._classes)
            own: list[int] = []
            self._mros.append(own)
            own += [self._class(base) for base in _MRO.__get__(owner)]
        return self._classes[key]


def _start(code: CodeType, offset: int) -> int:
    """The instruction that an offset belongs to: caches follow it where a call was inlined."""
    cache = dis.opmap.get("CACHE")
    while cache is not None and offset > 0 and code.co_code[offset] == cache:
        offset -= 2
    return offset


def call_positions(code: CodeType) -> dict[int, tuple[int, ...]]:
    """By offset of each call instruction: line, column, end line, end column, running number.

    The number counts the call instructions at one position from 0: applying a decorator has the
    position of the expression after `@`, and a `finally` block is compiled several times.
    """
    positions = list(code.co_positions())
    found: dict[int, tuple[int, ...]] = {}
    numbers: dict[tuple[int, ...], int] = {}
    for instruction in dis.get_instructions(code):
        if instruction.opname not in CALL_INSTRUCTIONS:
            continue
        line, end_line, column, end_column = positions[instruction.offset // 2]
        if line is None or end_line is None or column is None or end_column is None:
            continue
        place = (line, column, end_line, end_column)
        found[instruction.offset] = (*place, numbers.get(place, 0))
        if instruction.opname != "PRECALL":  # belongs to the CALL that follows
            numbers[place] = numbers.get(place, 0) + 1
    return found


# -- running ---------------------------------------------------------------------------------


def record(out: str, root: str, module: str, arguments: list[str]) -> int:
    """Run a program under the recorder and write the recording; gives its exit status."""
    sys.argv = [module, *arguments]
    sys.path[0] = os.getcwd()
    recorder = Recorder(root)
    threading.setprofile(recorder)
    sys.setprofile(recorder)
    try:
        if module.endswith(".py"):
            runpy.run_path(module, run_name="__main__")
        else:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    with open(out, "w", encoding="utf-8") as stream:
        json.dump(Writer(recorder, root).document(), stream, separators=(",", ":"))
    return status


if __name__ == "__main__":
    sys.exit(record(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]))
