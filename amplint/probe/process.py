"""The worker process: started once, kept warm, restarted when a run has killed it.

Nothing of this process's environment reaches it but the few variables of `KEPT`. Its home,
working directory and temporary folder are one scratch folder, removed at the end. What the
kernel adds stands in `amplint.probe.worker.limits`.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping

import amplint
from amplint.errors import AmplintError
from amplint.probe.interpreter import Interpreter
from amplint.probe.messages import (
    PATIENCE,
    Hello,
    Request,
    RunResult,
    decode_hello,
    decode_result,
    encode,
)

#: Environment variables that the worker keeps: where drivers and libraries lie.
KEPT = ("CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH")
#: What scratch folders are called, before the number of the process that owns them.
_PREFIX = "amplint-probe-"
#: Wall time for importing torch and warming up.
START_SECONDS = 120.0
#: Wall time that the worker gets beyond a run's own limit before it is killed with the run.
GRACE_SECONDS = 5.0
#: Longest line that is read from a worker, in bytes.
LONGEST_LINE = 16 << 20

#: Loads this amplint and no other one, without adding its folder to the search path, where
#: packages of another Python may lie.
_BOOT = """
import importlib.util, json, sys
folder, search_path = sys.argv[1], json.loads(sys.argv[2])
sys.path[:] = search_path
spec = importlib.util.spec_from_file_location(
    "amplint", folder + "/__init__.py", submodule_search_locations=[folder])
sys.modules["amplint"] = module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
from amplint.probe.worker import limits
measures = limits.isolate()
from amplint.probe.worker import serve
serve.main(measures)
"""


class WorkerFailed(AmplintError):
    """The worker could not be started."""


class Worker:
    """Runs requests, one after the other. `close` it: then nothing is left behind.

    Args:
        interpreter: whose torch runs the code.
        boot: what its Python executes, with amplint's folder and the search path (JSON) as
            arguments; tests replace it.
    """

    def __init__(self, interpreter: Interpreter, *, boot: str = _BOOT) -> None:
        self.interpreter = interpreter
        self.starts = 0
        self._boot = boot
        self._process: subprocess.Popen[bytes] | None = None
        self._hello = Hello()
        self._pending = b""
        self._stopped = False
        _clear_scratch()
        self._scratch = tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-")

    @property
    def process(self) -> int | None:
        """The number of the worker's process; None while there is none."""
        return self._process.pid if self._process is not None else None

    def hello(self) -> Hello:
        """What the worker said when it was ready; starts it if it is not running.

        Raises:
            WorkerFailed: it cannot be started, or cannot import torch.
        """
        if self._process is None:
            self._start()
        return self._hello

    def run(self, request: Request) -> RunResult:
        """Run one request. Whatever the run does to its worker becomes a status.

        Raises:
            WorkerFailed: the worker cannot be started, or has been told to stop.
        """
        if self._stopped:
            raise WorkerFailed("the probe was interrupted")
        self.hello()
        line = json.dumps(encode(request)).encode() + b"\n"
        started = time.monotonic()
        try:
            self._send(line)
            answer = self._read_line(request.seconds * PATIENCE + GRACE_SECONDS)
            return decode_result(json.loads(answer))
        except TimeoutError:
            return self._lost("timeout", f"no answer after {request.seconds:.0f} s", started)
        except EOFError:
            return self._lost("killed", "the run ended its worker", started)
        except OverflowError:
            return self._lost("killed", "the run answered without end", started)
        except (ValueError, KeyError, TypeError, OSError) as error:
            return self._lost("failed", f"the worker sent nonsense ({error})", started)

    def stop(self) -> None:
        """End the run that another thread waits for, and start no other."""
        self._stopped = True
        process = self._process
        if process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)

    def close(self) -> None:
        """End the worker and remove its scratch folder."""
        self._kill()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _lost(self, status: str, reason: str, started: float) -> RunResult:
        self._kill()
        seconds = time.monotonic() - started
        return RunResult(status, reason, torch=self._hello.torch, seconds=seconds)

    def _start(self) -> None:
        self.starts += 1
        self._pending = b""
        os.makedirs(self._scratch, exist_ok=True)
        folder = os.path.dirname(os.path.abspath(amplint.__file__))
        search_path = json.dumps(self.interpreter.search_path)
        debugging = os.environ.get("AMPLINT_DEBUG") == "1"
        try:
            self._process = subprocess.Popen(
                [self.interpreter.path, "-I", "-c", self._boot, folder, search_path],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=None if debugging else subprocess.DEVNULL,
                cwd=self._scratch,
                env=_environment(self._scratch),
                start_new_session=True,
            )
            self._hello = decode_hello(json.loads(self._read_line(START_SECONDS)))
        except (OSError, EOFError, OverflowError, ValueError, KeyError, TypeError) as error:
            self._kill()
            raise WorkerFailed(
                f"the probe's worker did not start under {self.interpreter.path} "
                f"({type(error).__name__})",
                "run the same command under AMPLINT_DEBUG=1 to see why",
            ) from error
        if self._hello.error:
            self._kill()
            raise WorkerFailed(
                f"torch cannot be used by {self.interpreter.path}: {self._hello.error}",
                "name another interpreter with --python PATH",
            )

    def _send(self, line: bytes) -> None:
        assert self._process is not None and self._process.stdin is not None
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
        except BrokenPipeError:
            raise EOFError from None

    def _read_line(self, seconds: float) -> bytes:
        """One line of the worker.

        Raises:
            TimeoutError, EOFError: none came.
            OverflowError: it is longer than `LONGEST_LINE`.
        """
        assert self._process is not None and self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        deadline = time.monotonic() + seconds
        parts = [self._pending]
        length = len(self._pending)
        while b"\n" not in parts[-1]:
            ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError
            part = os.read(descriptor, 1 << 16)
            if not part:
                raise EOFError
            parts.append(part)
            length += len(part)
            if length > LONGEST_LINE:
                raise OverflowError
        line, _, self._pending = b"".join(parts).partition(b"\n")
        return line

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            process.kill()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    pass
        process.wait()


def _clear_scratch() -> None:
    """Remove the folders of processes that were killed before they could."""
    with os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            owner = entry.name.removeprefix(_PREFIX).partition("-")[0]
            if entry.name.startswith(_PREFIX) and owner.isdigit() and not _is_alive(int(owner)):
                shutil.rmtree(entry.path, ignore_errors=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # somebody else's
    return True


def _environment(scratch: str, outer: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The worker's whole environment: no secrets, no settings of anybody."""
    return {
        **{name: outer[name] for name in KEPT if name in outer},
        "HOME": scratch,
        "TMPDIR": scratch,
        "PATH": os.defpath,
        "LANG": "C.UTF-8",
        "PYTHONHASHSEED": "0",
        # One thread: a fork keeps no other, and the runs are small.
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }
