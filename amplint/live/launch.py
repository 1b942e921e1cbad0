"""Starts the user's command so that every Python below it is watched, and waits for it.

The command is a child and never takes this process's place: somebody has to write the report when
it was killed. Its standard streams are those of this process.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

import amplint
from amplint.live.merge import RUN_FILE

#: They are handed on to the command. SIGINT reaches it by the terminal already.
_PASSED_ON = ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGCONT")
_BOOT = "boot"


def make_folder(wanted: str | None, command: Sequence[str]) -> str:
    """The folder of this run: the wanted one, a new one below `amplint-runs`, or a temporary one.

    Raises:
        OSError: the wanted one cannot be made.
    """
    if wanted is not None:
        os.makedirs(wanted, exist_ok=True)
        return os.path.abspath(wanted)
    program = next((part for part in command[1:] if not part.startswith("-")), command[0])
    stem = os.path.splitext(os.path.basename(program))[0]
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{stem}"
    for number in range(1, 100):
        folder = os.path.abspath(
            os.path.join("amplint-runs", f"{name}-{number}" if number > 1 else name)
        )
        try:
            os.makedirs(folder)
        except FileExistsError:
            continue
        except OSError:
            break
        return folder
    return tempfile.mkdtemp(prefix="amplint-run-")


def prepare(folder: str, options: Mapping[str, Any]) -> str:
    """Lay down what the watched processes load first; returns the folder for PYTHONPATH.

    Raises:
        OSError: it cannot be written.
    """
    own = os.path.dirname(os.path.abspath(str(amplint.__file__)))
    boot = os.path.join(folder, _BOOT)
    os.makedirs(boot, exist_ok=True)
    for name in ("sitecustomize.py", "amplint_boot.py"):
        shutil.copyfile(os.path.join(own, "live", _BOOT, name), os.path.join(boot, name))
    # Launchers on other nodes may hand on PYTHON* and nothing else: so it is a file.
    with open(os.path.join(boot, "options.json"), "w", encoding="utf-8") as file:
        json.dump({"package": own, "folder": folder, **options}, file)
    return boot


def run(command: Sequence[str], folder: str, options: Mapping[str, Any]) -> int:
    """Run the command; returns its exit status, 128 and the number for a signal.

    Raises:
        OSError: the command cannot be started, or the folder cannot be written before.
    """
    boot = prepare(folder, options)
    path = [boot, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    started = time.time()
    child = subprocess.Popen(command, env=environment)
    before = _hand_on(child)
    try:
        status = child.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    status = 128 - status if status < 0 else status
    about = {"command": list(command), "status": status, "started": started, "ended": time.time()}
    # A disk that is full by now is no reason to lose the status.
    with (
        contextlib.suppress(OSError),
        open(os.path.join(folder, RUN_FILE), "w", encoding="utf-8") as file,
    ):
        json.dump(about, file)
    return status


def _hand_on(child: subprocess.Popen[bytes]) -> dict[int, Any]:
    """Send signals on to the child; returns the handlers of before."""

    def send(number: int, _frame: object) -> None:
        child.send_signal(number)

    before: dict[int, Any] = {signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN)}
    for name in _PASSED_ON:
        number = getattr(signal, name, None)
        if number is not None:
            before[number] = signal.signal(number, send)
    return before
