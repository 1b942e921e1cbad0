"""Whose torch runs the probe: the one of the user's project, or amplint's own.

Interpreters are asked for versions and their search path in a process of their own; torch is
not imported for that.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from amplint.errors import AmplintError

#: Oldest torch whose GradScaler is `torch.amp.GradScaler`, and oldest Python of the worker.
OLDEST_TORCH = (2, 3)
OLDEST_PYTHON = (3, 10)
_SECONDS = 120.0

_ASK = """
import importlib.metadata, json, sys
try:
    torch = importlib.metadata.version("torch")
except importlib.metadata.PackageNotFoundError:
    torch = ""
print(json.dumps({"python": sys.version_info[:2], "torch": torch,
                  "path": [entry for entry in sys.path if entry]}))
"""


class ProbeUnavailable(AmplintError):
    """There is nothing to run the probe with."""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python that has torch.

    Args:
        path: the executable.
        torch: its version, "2.13.0+cpu".
        search_path: its `sys.path`, without the working directory.
    """

    path: str
    torch: str
    search_path: tuple[str, ...]


def find_interpreter(named: str | None, project: str) -> Interpreter:
    """The first suitable one of: the named one, the active environment, the project's, amplint's.

    Args:
        named: the value of `--python`; nothing else is tried then.
        project: a folder of the checked project; environments lie in it or above.

    Raises:
        ProbeUnavailable: none has a torch that is new enough.
    """
    if os.name != "posix":
        raise ProbeUnavailable(
            "the probe needs Linux or macOS: each run is a forked process",
            "run it in WSL or in a container",
        )
    reasons = []
    for path in [named] if named else dict.fromkeys(_candidates(project)):
        found = _ask(path)
        if isinstance(found, Interpreter):
            return found
        reasons.append(f"{path}: {found}")
    raise ProbeUnavailable(
        "the probe executes code with real torch, and found none: " + "; ".join(reasons),
        "`pip install 'amplint[probe]'`, or name the interpreter of your project with --python PATH",
    )


def _candidates(project: str) -> Iterator[str]:
    """Interpreters to ask when none is named, in order."""
    active = os.environ.get("VIRTUAL_ENV")
    if active:
        yield os.path.join(active, "bin", "python")
    folder = os.path.abspath(project)
    while True:
        for name in (".venv", "venv"):
            python = os.path.join(folder, name, "bin", "python")
            if os.path.exists(python):
                yield python
        if os.path.exists(os.path.join(folder, ".git")) or os.path.dirname(folder) == folder:
            break
        folder = os.path.dirname(folder)
    yield sys.executable


def _ask(path: str) -> Interpreter | str:
    """What an interpreter says about itself, or why it cannot be used."""
    try:
        done = subprocess.run(
            [path, "-c", _ASK], cwd="/", capture_output=True, timeout=_SECONDS, check=True
        )
        told = json.loads(done.stdout)
    except FileNotFoundError:
        return "there is no such file"
    except subprocess.TimeoutExpired:
        return "it did not answer"
    except (OSError, subprocess.CalledProcessError, ValueError):
        return "it is no working Python"
    version = ".".join(map(str, told["python"]))
    if tuple(told["python"]) < OLDEST_PYTHON:
        return f"it is Python {version}, older than 3.10"
    if not told["torch"]:
        return "it has no torch"
    if _release(told["torch"]) < OLDEST_TORCH:
        return f"its torch is {told['torch']}, older than 2.3"
    return Interpreter(path, told["torch"], tuple(told["path"]))


def _release(version: str) -> tuple[int, ...]:
    """(2, 13) for "2.13.0+cpu"; an unreadable version passes for a new one."""
    try:
        return tuple(int(part) for part in version.split(".")[:2])
    except ValueError:
        return OLDEST_TORCH
