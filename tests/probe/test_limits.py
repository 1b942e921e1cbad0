"""What the kernel refuses to a confined process, with no help from Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="the measures are Linux's"
)

#: Executes statements, each in a confined child, and prints how each child ended.
HARNESS = """
import ctypes, json, os, signal, socket, subprocess, sys, threading, time
sys.path.insert(0, sys.argv[1])
from amplint.probe.worker import limits
measures = list(limits.isolate())
scratch, outside = sys.argv[2], sys.argv[3]
libc = ctypes.CDLL(None, use_errno=True)
endings = {}
for name, statement in json.loads(sys.argv[4]).items():
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        confined = limits.confine(scratch, 1.0)
        try:
            exec(statement)
            os.write(writing, b"done")
        except BaseException as error:
            os.write(writing, type(error).__name__.encode())
        os._exit(0)
    os.close(writing)
    _, status = os.waitpid(child, 0)
    said = os.read(reading, 1000).decode()
    endings[name] = said or f"signal {os.WTERMSIG(status)}"
    limits.clear_descendants()
measures += json.loads(endings.pop("confined"))
print(json.dumps({"measures": measures, "endings": endings}))
"""

#: Says what measures are in force, and leaves.
CONFINED = "os.write(writing, json.dumps(confined).encode()); os._exit(0)"

NEEDS = {
    "landlock": {
        "write outside": ("open(outside + '/new', 'w')", "PermissionError"),
        "truncate": ("os.truncate(outside + '/old', 0)", "PermissionError"),
        "remove": ("os.remove(outside + '/old')", "PermissionError"),
        "rename": ("os.rename(outside + '/old', scratch + '/old')", "OSError PermissionError"),
        "write to scratch": ("open(scratch + '/x', 'w').write('x')", "done"),
        "read outside": ("assert open(outside + '/old').read() == 'kept'", "done"),
        "write to null": ("open(os.devnull, 'w').write('x')", "done"),
    },
    "seccomp": {
        "fork": ("os.fork()", "PermissionError"),
        "fork past Python": ("assert libc.fork() == -1", "done"),
        "start a program": ("subprocess.run(['true'])", "PermissionError"),
        "socket": ("socket.socket()", "PermissionError"),
        "kill the parent": ("os.kill(os.getppid(), 9)", "PermissionError"),
        "kill everybody": ("os.kill(-1, 9)", "PermissionError"),
        "abort": ("os.abort()", "signal 6"),
        "thread": ("t = threading.Thread(target=int); t.start(); t.join()", "done"),
    },
    "resource limits": {
        "memory": ("bytearray(16 << 30)", "MemoryError"),
        "time": ("while True: pass", "signal 9"),
        "file size": ("open(scratch + '/big', 'wb').write(b'x' * (2 << 20))", "OSError"),
        "open files": ("[open(os.devnull) for _ in range(200)]", "OSError"),
    },
    "process namespace": {
        "survive": ("signal.signal(signal.SIGTERM, signal.SIG_IGN)", "done"),
    },
}


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "old").write_text("kept")
    scratch = tmp_path_factory.mktemp("scratch")
    statements = {"confined": CONFINED} | {
        name: statement for group in NEEDS.values() for name, (statement, _) in group.items()
    }
    done = subprocess.run(
        [
            *(sys.executable, "-c", HARNESS, str(ROOT), str(scratch), str(outside)),
            json.dumps(statements),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert (outside / "old").read_text() == "kept"
    assert [path.name for path in outside.iterdir()] == ["old"]
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("measure", "name"), [(measure, name) for measure, group in NEEDS.items() for name in group]
)
def test_refused(outcome: dict, measure: str, name: str) -> None:
    if measure not in outcome["measures"]:
        pytest.skip(f"this kernel has no {measure}")
    assert outcome["endings"][name] in NEEDS[measure][name][1].split() or (
        outcome["endings"][name] == NEEDS[measure][name][1]
    )


def test_an_ordinary_user_is_confined_as_well(tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("the other tests run as an ordinary user already")
    script = (
        "import encodings.ascii, os, sys; sys.path.insert(0, sys.argv[1])\n"
        "from amplint.probe.worker import limits\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "print(limits.confine('/tmp', 5.0))\n"
        "try:\n    os.fork()\nexcept OSError as error:\n    print('refused')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(ROOT)], capture_output=True, text=True, check=True
    )
    assert "resource limits" in done.stdout
    assert "refused" in done.stdout
