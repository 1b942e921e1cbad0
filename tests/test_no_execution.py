"""Checking neither imports nor executes the checked code, nor uses the network, nor writes.

The checked tree is full of bait: modules with visible effects, a `conftest.py`, a package
that shadows a module of the standard library and one that shadows amplint's own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

BAIT = """
import os, socket, torch
from torch.cuda.amp import GradScaler, autocast
open(os.path.join({folder!r}, "was-executed"), "w").close()
socket.socket()
class Meta(type):
    def __init__(cls, *args):
        raise SystemExit("executed")
class Model(metaclass=Meta):
    pass
scaler = GradScaler()
for batch in loader:
    scaler.scale(loss).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)  # noqa: AMP999
    scaler.update()
"""

#: Runs `check_paths` under an audit hook, and prints the events that must not happen.
WATCHED_RUN = """
import json, os, sys
tree, jobs = os.path.realpath(sys.argv[1]), int(sys.argv[2])
events, watching = [], []

def inside(value):
    # Generated code is called "<string>": no file.
    return isinstance(value, str) and os.path.exists(value) and os.path.realpath(value).startswith(tree)

def hook(event, args):
    if not watching:
        return
    if event.startswith(("socket.", "subprocess.", "ctypes.", "os.exec", "os.posix_spawn",
                         "os.system", "urllib.")):
        events.append([event, repr(args)[:200]])
    elif event == "import" and inside(args[1]):
        events.append([event, args[0]])
    elif event == "exec" and inside(args[0].co_filename):
        events.append([event, args[0].co_filename])
    elif event == "open" and isinstance(args[2], int):
        if args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC):
            events.append([event, str(args[0])])
    elif event in ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink",
                   "os.chmod", "os.chown", "os.truncate", "shutil.rmtree"):
        events.append([event, repr(args)[:200]])

def main():
    sys.addaudithook(hook)
    sys.dont_write_bytecode = True
    from amplint.checker import check_paths
    from amplint.config import load_settings, with_overrides
    watching.append(True)
    report = check_paths([tree], with_overrides(load_settings(start=tree), jobs=jobs))
    watching.clear()
    print(json.dumps({"events": events, "files": report.files, "errors": len(report.errors),
                      "findings": len(report.findings),
                      "torch": "torch" in sys.modules, "libcst": "libcst" in sys.modules}))

if __name__ == "__main__":
    main()
"""


FILES = (
    "amplint/__init__.py",
    "amplint/rules.py",
    "conftest.py",
    "pickle.py",
    "pkg/__main__.py",
    "setup.py",
    "sitecustomize.py",
    "socket.py",
    "tokenize.py",
    "torch/__init__.py",
    "train.py",
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree whose modules leave a trace when they are run."""
    tree = tmp_path / "project"
    for name in FILES:
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(BAIT.format(folder=str(tree)))
    (tree / "amplint.toml").write_text("")
    return tree


def test_bait_that_is_run_leaves_a_trace(tree: Path) -> None:
    trace = next(line for line in (tree / "train.py").read_text().splitlines() if "open" in line)
    subprocess.run([sys.executable, "-c", f"import os; {trace}"], check=True)
    assert (tree / "was-executed").exists()


@pytest.mark.parametrize("jobs", [1, 2])
def test_nothing_of_the_tree_runs(tree: Path, tmp_path: Path, jobs: int) -> None:
    before = sorted(tree.rglob("*"))
    script = tmp_path / "outside" / "watch.py"
    script.parent.mkdir()
    script.write_text(WATCHED_RUN)
    done = subprocess.run(
        [sys.executable, str(script), str(tree), str(jobs)],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    seen = json.loads(done.stdout)
    assert (seen["files"], seen["errors"]) == (len(FILES), 0)
    assert seen["findings"] >= len(FILES)
    assert not seen["torch"]
    assert not seen["libcst"]
    assert seen["events"] == []
    assert sorted(tree.rglob("*")) == before
