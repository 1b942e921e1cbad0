"""The hook as users get it: pre-commit clones the repository, installs it and runs it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: Seconds that pip may take to build the hook's environment.
TIMEOUT = 600

TRAINING = """\
import torch


def train(model, optimizer, loader):
    scaler = torch.amp.GradScaler("cuda")
    for inputs, targets in loader:
        optimizer.zero_grad()
        with torch.amp.autocast("cuda"):
            loss = model(inputs, targets)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.step(optimizer)
        scaler.update()
"""


def run(*command: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": "", **env},
        capture_output=True,
        check=False,
        text=True,
        timeout=TIMEOUT,
    )


def git(*args: str, cwd: Path) -> None:
    identity = ("-c", "user.name=test", "-c", "user.email=test@example.org")
    done = run("git", *identity, *args, cwd=cwd)
    assert done.returncode == 0, done.stderr


def commit_all(folder: Path) -> None:
    git("init", "--quiet", cwd=folder)
    git("add", "--all", "--force", ".", cwd=folder)
    git("commit", "--quiet", "--no-verify", "--message", "all", cwd=folder)


@pytest.fixture(scope="module")
def package_index(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skip where pip cannot get what building the hook's environment needs."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    folder = tmp_path_factory.mktemp("download")
    done = run(
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "setuptools>=77",
        cwd=folder,
    )
    if done.returncode:
        pytest.skip("pip reaches no package index, so no hook environment can be built")


@pytest.fixture(scope="module")
def hook_repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The working tree as it is now, committed to a repository of its own."""
    folder = tmp_path_factory.mktemp("amplint")
    for name in ("amplint", "rules"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in (".pre-commit-hooks.yaml", "pyproject.toml", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, folder / name)
    commit_all(folder)
    return folder


@pytest.fixture
def user_repository(tmp_path: Path) -> Path:
    """A project with a package `rules` of its own, which must not get in the way."""
    folder = tmp_path / "user"
    (folder / "rules").mkdir(parents=True)
    (folder / "rules" / "__init__.py").write_text("raise ImportError('not the rules of amplint')\n")
    (folder / "train.py").write_text(TRAINING)
    (folder / "notes.txt").write_text("scaler.step(optimizer)\n")
    (folder / "generated").mkdir()
    (folder / "generated" / "copy.py").write_text(TRAINING)
    (folder / "pyproject.toml").write_text('[tool.amplint]\nextend-exclude = ["generated"]\n')
    commit_all(folder)
    return folder


def test_manifest_is_valid() -> None:
    done = run(
        sys.executable, "-m", "pre_commit", "validate-manifest", ".pre-commit-hooks.yaml", cwd=ROOT
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.usefixtures("package_index")
def test_the_hook_finds_the_mistake(
    hook_repository: Path, user_repository: Path, tmp_path: Path
) -> None:
    done = run(
        sys.executable,
        *("-m", "pre_commit", "try-repo", str(hook_repository), "amplint"),
        *("--all-files", "--verbose"),
        cwd=user_repository,
        PRE_COMMIT_HOME=str(tmp_path / "home"),
    )
    output = done.stdout + done.stderr
    assert done.returncode == 1, output
    assert "- exit code: 1" in output, output
    assert "train.py:12:9: error AMP104 " in output, output
    # Of four files, types_or leaves out the text and --force-exclude what is configured.
    assert "generated" not in output.split("- exit code: 1")[1]
    assert "(2 files checked" in output, output
