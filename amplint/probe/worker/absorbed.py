"""Modules of the standard library, and numpy, that touch the machine: replaced by harmless ones.

This keeps accidents from happening (files, processes, network). It is not a sandbox.
"""

from __future__ import annotations

import glob
import math
import posixpath
import random
import re
import sys
import time
import types
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import Any

import torch

from amplint.probe.worker import commandline, standins
from amplint.probe.worker.context import StopRun, current
from amplint.probe.worker.loose import loose
from amplint.probe.worker.soft import connected, tensors_in

#: Pure enough to be real.
REAL = frozenset(
    [
        "__future__",
        "abc",
        "argparse",
        "array",
        "ast",
        "base64",
        "binascii",
        "bisect",
        "builtins",
        "calendar",
        "cmath",
        "codecs",
        "collections",
        "colorsys",
        "contextlib",
        "contextvars",
        "copy",
        "csv",
        "dataclasses",
        "datetime",
        "decimal",
        "difflib",
        "enum",
        "errno",
        "fractions",
        "functools",
        "gc",
        "hashlib",
        "heapq",
        "hmac",
        "html",
        "inspect",
        "io",
        "itertools",
        "keyword",
        "linecache",
        "locale",
        "math",
        "numbers",
        "operator",
        "pprint",
        "queue",
        "reprlib",
        "secrets",
        "statistics",
        "string",
        "struct",
        "textwrap",
        "time",
        "token",
        "tokenize",
        "traceback",
        "types",
        "typing",
        "typing_extensions",
        "unicodedata",
        "unittest",
        "uuid",
        "warnings",
        "weakref",
        "zlib",
    ]
)
#: Functions of `os` after which this process is not what it was: nothing is known about the rest.
ENDING = (
    *("_exit", "abort", "fork", "forkpty", "kill", "killpg", "posix_spawn", "posix_spawnp"),
    *("execl", "execle", "execlp", "execlpe", "execv", "execve", "execvp", "execvpe"),
)
PASSED_ON = frozenset({"join", "basename", "dirname", "splitext", "split", "normpath", "relpath"})


class Environment(dict):  # type: ignore[type-arg]
    """Environment variables of a single process that is launched alone, and what it sets itself.

    Nothing is exported: they are those of no other process.
    """

    def __missing__(self, key: str) -> str:
        return "1" if "SIZE" in key else "0"


class _Module(types.ModuleType):
    """Names that are not set are stand-ins."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__version__":
            raise AttributeError(name)
        if name == "__version__":
            return standins.VERSION
        return standins.StandIn(f"{self.__name__}.{name}")


class Absent(_Module):
    """A module of a library that is not there: nobody knows what it holds."""


def stand_in_module(name: str) -> types.ModuleType:
    """A module that has every name."""
    return Absent(name)


def _os() -> types.ModuleType:
    module = _Module("os")
    path = _Module("os.path")
    for name in PASSED_ON:
        setattr(path, name, _textual(getattr(posixpath, name)))
    for name in ("exists", "isfile", "isdir", "islink"):
        setattr(path, name, _existence(name))
    for name in ("abspath", "realpath", "expanduser", "expandvars"):
        setattr(path, name, str)
    path.sep = module.sep = "/"  # type: ignore[attr-defined]
    environment = Environment()
    members = {
        "path": path,
        "environ": environment,
        "linesep": "\n",
        "name": "posix",
        "getcwd": lambda: "/nonexistent",
        "cpu_count": lambda: 2,
        "getpid": lambda: 1,
        "listdir": lambda *args: _files("os.listdir"),
        "walk": _walk,
        "getenv": lambda key, default=None: dict.get(environment, key, default),
        "putenv": environment.__setitem__,
        **{name: made for name in ("mkdir", "makedirs", "mknod")},
        **{name: _ending(f"os.{name}") for name in ENDING},
    }
    for name, value in members.items():
        setattr(module, name, value)
    return module


def _ending(name: str) -> Callable[..., Any]:
    def end(*args: Any, **kwargs: Any) -> Any:
        raise StopRun("killed", f"line {current().row()} calls {name}")

    return end


class FileName(str):
    """The name of a file that nobody has seen: it ends as somebody asks for."""

    def endswith(self, ending: Any, *_places: Any) -> bool:
        endings = ending if isinstance(ending, tuple) else (ending,)
        return any(isinstance(one, str) and one.startswith(".") for one in endings)

    def lower(self) -> FileName:
        return self


def _files(name: str) -> list[str]:
    """What lies in a folder: nothing, or a few files."""
    has_files = current().choose(f"{name}@{current().row()}", (False, True))
    return _called_like("*") if has_files else []


def _matching(name: str, pattern: Any) -> list[str]:
    """What is called like a pattern: who asks by one has files of that kind, or none."""
    has_files = current().choose(f"{name}@{current().row()}", (True, False))
    return _called_like(str(pattern)) if has_files else []


def _called_like(pattern: str) -> list[str]:
    """Two names that a pattern matches. How they end is as unknown as it is in the pattern."""
    place = pattern.replace("**/", "")
    is_known = "*" not in posixpath.splitext(place)[1] and "." in posixpath.basename(place)
    names = [place.replace("*", number) for number in ("1", "2")]
    return names if is_known else [FileName(name) for name in names]


def _glob() -> types.ModuleType:
    module = _Module("glob")
    members = {
        "glob": lambda pattern="*", *args, **kwargs: _matching("glob.glob", pattern),
        "iglob": lambda pattern="*", *args, **kwargs: iter(_matching("glob.iglob", pattern)),
        "escape": glob.escape,
    }
    for name, value in members.items():
        setattr(module, name, value)
    return module


def _walk(top: Any = ".", *_args: Any, **_settings: Any) -> Iterator[Any]:
    files = _files("os.walk")
    return iter([(str(top), [], files)] if files else [])


def _textual(function: Callable[..., Any]) -> Callable[..., Any]:
    def textual(*args: Any, **kwargs: Any) -> Any:
        named = {name: str(argument) for name, argument in kwargs.items()}
        return function(*(str(argument) for argument in args), **named)

    return textual


def _existence(name: str) -> Callable[..., bool]:
    def exists(*args: Any) -> bool:
        run = current()
        if args and _place_of(args[0]) in run.made_files:
            return True
        return bool(run.choose(f"os.path.{name}@{run.row()}", (False, True)))

    return exists


def made(path: Any, *args: Any, **kwargs: Any) -> None:
    """Nothing is written, but who asks for the file from now on finds it."""
    place = _place_of(path)
    if place:
        current().made_files.add(place)


def opened(path: Any = "", mode: Any = "r", *args: Any, **kwargs: Any) -> Any:
    """A file: one that is written to is there afterwards."""
    if isinstance(mode, str) and set(mode) & set("wax+"):
        made(path)
    return standins.StandIn("open()")


def _place_of(path: Any) -> str:
    """The text of a path; "" for one that nobody knows."""
    return posixpath.normpath(str(path)) if isinstance(path, (str, PurePosixPath)) else ""


def _sys() -> types.ModuleType:
    module = _Module("sys")
    members = {
        "argv": commandline.Arguments(["main.py"]),
        "path": [],
        "modules": {},
        "exit": sys.exit,
        "maxsize": sys.maxsize,
        "float_info": sys.float_info,
        "version_info": sys.version_info,
        "version": sys.version,
        "platform": "linux",
        "exc_info": sys.exc_info,
        "executable": "python",
        "getsizeof": lambda *args: 64,
    }
    for name, value in members.items():
        setattr(module, name, value)
    return module


def _time() -> types.ModuleType:
    module = _Module("time")
    for name in ("time", "perf_counter", "monotonic", "process_time", "strftime", "localtime"):
        setattr(module, name, getattr(time, name))
    module.sleep = lambda *args: None  # type: ignore[attr-defined]
    return module


def _numpy() -> types.ModuleType:
    """Numbers stay numbers, tensors stay tensors, the rest is unknown."""
    module = _Module("numpy")
    module.inf = module.Inf = math.inf  # type: ignore[attr-defined]
    module.nan = module.NaN = math.nan  # type: ignore[attr-defined]
    module.pi = math.pi  # type: ignore[attr-defined]
    tests = {"isnan": math.isnan, "isinf": math.isinf, "isfinite": math.isfinite}
    for name, function in tests.items():
        setattr(module, name, _on_number(function, getattr(torch, name)))
    for name in ("mean", "sum", "average", "median", "array", "asarray", "stack", "concatenate"):
        setattr(module, name, _reduction)
    for name in ("sqrt", "exp", "log", "log10", "cos", "sin", "floor", "ceil"):
        setattr(module, name, _on_number(getattr(math, name), lambda value: value * 1))
    for name in ("float32", "float64", "int64", "int32"):
        setattr(module, name, float if name.startswith("float") else int)
    return module


def _on_number(
    on_float: Callable[[float], Any], on_tensor: Callable[[Any], Any]
) -> Callable[..., Any]:
    def apply(value: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return on_tensor(value)
        try:
            return on_float(float(standins.number(value)))
        except (TypeError, ValueError):
            return standins.StandIn("numpy()")

    return apply


def _reduction(value: Any = 0.0, *args: Any, **kwargs: Any) -> Any:
    tensors = list(tensors_in(value))
    if tensors:
        return connected(tensors).detach()
    if (
        isinstance(value, (list, tuple))
        and value
        and all(isinstance(entry, (int, float)) for entry in value)
    ):
        return loose(sum(value) / len(value))
    if isinstance(value, (int, float)):
        return loose(value)
    return standins.StandIn("numpy()")


def _re() -> types.ModuleType:
    """Regular expressions that say nothing about texts that nobody knows."""
    module = _Module("re")
    for name, value in vars(re).items():
        if not name.startswith("__"):
            callable_ = isinstance(value, types.FunctionType)
            setattr(module, name, _of_texts(value, f"re.{name}()") if callable_ else value)

    def compiled(pattern: Any, *args: Any, **kwargs: Any) -> Any:
        known = "" if isinstance(pattern, standins.StandIn) else pattern
        return _Pattern(re.compile(known, *args, **kwargs))

    module.compile = compiled  # type: ignore[attr-defined]
    return module


class _Pattern:
    """A compiled pattern whose methods may be given stand-ins."""

    def __init__(self, pattern: Any) -> None:
        self._pattern = pattern

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._pattern, name)
        return _of_texts(value, f"re.{name}()") if callable(value) else value


def _of_texts(function: Callable[..., Any], path: str) -> Callable[..., Any]:
    def apply(*args: Any, **kwargs: Any) -> Any:
        given = (*args, *kwargs.values())
        if any(isinstance(value, standins.StandIn) for value in given):
            return standins.StandIn(path)
        args = tuple(getattr(value, "_pattern", value) for value in args)
        return function(*args, **kwargs)

    return apply


class Path(PurePosixPath):
    """A path on a disk that nobody knows; nothing is read or written."""

    def __new__(cls, *parts: Any) -> Any:
        return super().__new__(cls, *(str(part) for part in parts))

    def __init__(self, *parts: Any) -> None:
        if sys.version_info >= (3, 12):
            super().__init__(*(str(part) for part in parts))

    def __truediv__(self, key: Any) -> Any:
        return super().__truediv__(str(key))

    @classmethod
    def cwd(cls) -> Any:
        """Somewhere."""
        return cls("/nonexistent")

    home = cwd

    def exists(self, *args: Any, **kwargs: Any) -> bool:
        """A decision of the run."""
        return _existence("exists")(self)

    is_file = is_dir = exists

    def resolve(self, *args: Any, **kwargs: Any) -> Any:
        """The same path."""
        return self

    absolute = expanduser = resolve

    def mkdir(self, *args: Any, **kwargs: Any) -> None:
        """Nothing is written; it is there from then on."""
        made(self)

    touch = symlink_to = mkdir

    def unlink(self, *args: Any, **kwargs: Any) -> None:
        """Nothing is removed."""
        current().made_files.discard(_place_of(self))

    rmdir = unlink

    def rename(self, target: Any) -> Any:
        """Nothing is moved; the target is there from then on."""
        self.unlink()
        made(target)
        return Path(target)

    replace = rename

    def chmod(self, *args: Any, **kwargs: Any) -> None:
        """Nothing happens."""

    def open(self, mode: Any = "r", *args: Any, **kwargs: Any) -> Any:
        """A file; what is written to is there from then on."""
        opened(self, mode)
        return standins.StandIn("pathlib.Path().open()")

    def write_text(self, *args: Any, **kwargs: Any) -> Any:
        """Nothing is written; it is there from then on."""
        made(self)
        return standins.StandIn("pathlib.Path().write_text")(*args, **kwargs)

    def write_bytes(self, *args: Any, **kwargs: Any) -> Any:
        """Nothing is written; it is there from then on."""
        made(self)
        return standins.StandIn("pathlib.Path().write_bytes")(*args, **kwargs)

    def glob(self, pattern: Any, *args: Any, **kwargs: Any) -> Any:
        """Files, whose ending is that of the pattern."""
        if any(isinstance(name, FileName) for name in _called_like(str(pattern))):
            return standins.StandIn("pathlib.Path().glob")(pattern)
        return iter([self / name for name in _matching("pathlib.Path().glob", pattern)])

    rglob = glob

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return standins.StandIn(f"pathlib.Path().{name}")


def _pathlib() -> types.ModuleType:
    module = _Module("pathlib")
    module.Path = module.PosixPath = Path  # type: ignore[attr-defined]
    module.PurePath = module.PurePosixPath = PurePosixPath  # type: ignore[attr-defined]
    return module


def _random() -> types.ModuleType:
    module = _Module("random")
    for name, value in vars(random).items():
        if not name.startswith("__"):
            setattr(module, name, value)
    module.seed = lambda *args, **kwargs: random.seed(0)  # type: ignore[attr-defined]
    return module


SPECIAL: dict[str, Callable[[], types.ModuleType]] = {
    "glob": _glob,
    "os": _os,
    "sys": _sys,
    "time": _time,
    "numpy": _numpy,
    "pathlib": _pathlib,
    "random": _random,
    "re": _re,
}
