"""`scripts/costs.py` between this state and one that is slow, hungry or dies on one file."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LOOP = "import torch\nscaler = torch.amp.GradScaler()\nfor x in y:\n    scaler.step(optimizer)\n"


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state of amplint that spends too much on files whose names say so."""
    tree = tmp_path_factory.mktemp("changed")
    shutil.copytree(ROOT / "amplint", tree / "amplint", ignore=shutil.ignore_patterns("*.pyc"))
    shutil.copytree(ROOT / "rules", tree / "rules", ignore=shutil.ignore_patterns("*.pyc"))
    shutil.copy(ROOT / "pyproject.toml", tree)
    with (tree / "amplint" / "inspection.py").open("a") as file:
        file.write(
            "\n_judged = _judge\n"
            "def _judge(task, suppressions, view):\n"
            "    import time\n"
            "    until = time.process_time() + 1.2 * ('slow' in task.source.filename)\n"
            "    while time.process_time() < until: pass\n"
            "    if 'large' in task.source.filename: bytearray(b'x' * (200 << 20))\n"
            "    if 'last' in task.source.filename: os._exit(3)\n"
            "    return _judged(task, suppressions, view)\n"
        )
    return tree


@pytest.mark.skipif(sys.platform != "linux", reason="the unit of the peak is that of Linux")
def test_files_that_cost_more_are_named(changed: Path, tmp_path: Path) -> None:
    folder = tmp_path / f"a__one@{'1' * 12}"
    folder.mkdir()
    for name in ("a.py", "large.py", "slow.py", "z_last.py"):
        (folder / name).write_text(LOOP)
    (tmp_path / "list.tsv").write_text(f"a/one\t{'1' * 40}\n")
    command = [sys.executable, str(ROOT / "scripts" / "costs.py")]
    arguments = [str(tmp_path / "list.tsv"), str(tmp_path)]
    done = subprocess.run(
        [*command, str(ROOT), str(changed), *arguments], capture_output=True, text=True, check=False
    )
    lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (1, "")
    assert [line.split(":")[0].strip() for line in lines] == [
        *("a/one", "large.py", "slow.py", "z_last.py")
    ]
    assert "in 4 files" in lines[0]
    assert lines[-1].endswith("the run ended here")
    done = subprocess.run(
        [*command, str(ROOT), str(ROOT), *arguments], capture_output=True, text=True, check=False
    )
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 1)
