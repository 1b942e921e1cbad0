"""Rules of installed packages: the example of the documentation, installed and run."""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from amplint import plugins
from amplint.errors import ConfigError

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "docs" / "example-rules"
CODE = """\
import torch

def train(model, optimizer, loader):
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**30)
    for batch in loader:
        with torch.autocast("cuda", cache_enabled=False):
            loss = model(batch)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        scaler.update()
"""
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment of its own with the example package in it."""
    pytest.importorskip("setuptools")
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder / "venv", with_pip=False)
    shutil.copytree(EXAMPLE, folder / "source")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    wheel = [*pip, "wheel", "--no-deps", "--no-build-isolation", "-q", "-w", str(folder)]
    subprocess.run([*wheel, str(folder / "source")], check=True, timeout=300)
    (built,) = folder.glob("acme_rules-*.whl")
    python = folder / "venv" / "bin" / "python"
    target = subprocess.run(
        [str(python), "-c", "import site; print(site.getsitepackages()[0])"],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout.strip()
    shutil.unpack_archive(built, target, "zip")
    return folder / "venv"


@pytest.fixture
def run(environment: Path, tmp_path: Path) -> Run:
    """`run(*arguments)`: amplint in that environment, with a training script in the folder."""
    (tmp_path / "train.py").write_text(CODE)

    def start(*arguments: str) -> subprocess.CompletedProcess[str]:
        others = [path for path in sys.path if path.endswith("site-packages")]
        path = os.pathsep.join([str(ROOT), *others])
        return subprocess.run(
            [str(environment / "bin" / "python"), "-m", "amplint", *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            check=False,
            text=True,
            timeout=120,
        )

    return start


def test_the_cases_of_the_example_hold(run: Run) -> None:
    done = run("rule", "--test", "acme-rules")
    assert (done.returncode, done.stdout) == (0, "ACM101  ok\nACM102  ok\nACM103  ok\n"), done


def test_the_three_kinds_of_rules_find_and_fix(run: Run, tmp_path: Path) -> None:
    done = run("check", "--select", "ACM", "--output-format", "concise", ".")
    assert done.returncode == 1, done
    assert [line.split(": ")[1][:14] for line in done.stdout.splitlines()[:3]] == [
        "warning ACM103",
        "warning ACM101",
        "warning ACM102",
    ]
    run("check", "--select", "ACM", "--fix", "--unsafe-fixes", ".")
    text = (tmp_path / "train.py").read_text()
    assert "init_scale=2.0**16" in text and "cache_enabled" not in text


def test_isolated_runs_none_of_them(run: Run) -> None:
    assert "ACM" not in run("check", "--isolated", ".").stdout


def test_a_rule_that_raises_is_an_error_of_its_package(run: Run, environment: Path) -> None:
    (module,) = environment.rglob("huge_initial_scale.py")
    before = module.read_text()
    module.write_text(before.replace("    for built in", "    1 / 0\n    for built in"))
    try:
        done = run("check", "--no-cache", "--output-format", "concise", ".")
    finally:
        module.write_text(before)
    assert done.returncode == 2
    assert "the rule ACM103 of the package acme-rules fails (ZeroDivisionError" in done.stdout
    assert "ACM101" in done.stdout and "ACM102" in done.stdout


def test_a_module_of_the_checked_tree_is_not_taken_for_the_package(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "acme_rules").mkdir()
    (tmp_path / "acme_rules" / "__init__.py").write_text("raise SystemExit('imported')\n")
    (tmp_path / "evil.egg-info").mkdir()
    entry = "[amplint.rules]\nEVL101 = acme_rules\n"
    (tmp_path / "evil.egg-info" / "entry_points.txt").write_text(entry)
    done = run("check", "--output-format", "concise", "train.py")
    assert "ACM101" in done.stdout and "EVL" not in done.stdout + done.stderr


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """`packages(name="CODE")`: installed packages that claim these codes."""
    monkeypatch.setattr(site, "getsitepackages", lambda: [str(tmp_path)])
    monkeypatch.setattr(site, "ENABLE_USER_SITE", False)

    def install(**codes: str) -> None:
        for name, code in codes.items():
            (tmp_path / f"{name}-1.0.dist-info").mkdir()
            text = f"[amplint.rules]\n{code} = {name}.rule\n"
            (tmp_path / f"{name}-1.0.dist-info" / "entry_points.txt").write_text(text)
        plugins.installed.cache_clear()

    yield install
    plugins.installed.cache_clear()


def test_a_clash_names_both_packages(packages: Callable[..., None]) -> None:
    packages(first="ABC101", second="ABC102")
    with pytest.raises(ConfigError, match="`first` and `second` both have rules ABC"):
        plugins.installed()


@pytest.mark.parametrize("code", ["AMP901", "AB1", "abc101"])
def test_a_code_has_letters_of_its_own(packages: Callable[..., None], code: str) -> None:
    packages(first=code)
    with pytest.raises(ConfigError, match=f"`first` calls a rule `{code}`"):
        plugins.installed()
