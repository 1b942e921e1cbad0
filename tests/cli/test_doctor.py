"""`amplint doctor`: what it finds here, and whether torch and the table agree."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from amplint import plugins
from amplint.cli import doctor
from amplint.selftest import words

torch = pytest.importorskip("torch")


def test_versions_plugins_settings_and_the_cage(
    run, empty_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One run for all: it starts the probe's worker, which imports torch."""
    found = {code: plugins.Plugin(code, "acme", "acme-rules") for code in ("ACM102", "ACM101")}
    monkeypatch.setattr(plugins, "installed", lambda: found)
    (empty_folder / "amplint.toml").write_text('fail-on = "error"\nexclude = ["a\\u001b"]\n')
    result = run("doctor", "--python", sys.executable)
    assert result.exit_code == 0, result.stdout
    lines = result.stdout.splitlines()
    assert f"configuration: {empty_folder / 'amplint.toml'}" in lines
    assert "  fail-on = 'error'" in lines
    assert any(line.startswith(f"torch {torch.__version__} ({sys.executable})") for line in lines)
    known = [line for line in lines if line.startswith(tuple(f"  {m}: " for m in doctor.MEASURES))]
    assert len(known) == len(doctor.MEASURES)
    assert "\x1b" not in result.stdout
    assert "rules of acme-rules: ACM101, ACM102" in lines


def test_without_a_torch_it_says_so(run, tmp_path: Path) -> None:
    result = run("doctor", "--self-test", "--python", str(tmp_path / "nowhere"))
    assert (result.exit_code, "there is no such file" in result.stdout) == (2, True)


def test_a_broken_configuration_is_told(run, empty_folder: Path) -> None:
    (empty_folder / "amplint.toml").write_text("[")
    result = run("doctor")
    assert (result.exit_code, "is no valid TOML" in result.stdout) == (2, True)
    assert result.stdout.startswith("amplint ")


def test_incidents_are_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Confirmed before the repair, not after it; the runs themselves: tests/probe."""
    asked: list[str] = []

    def confirmed(folder: str, _interpreter: object) -> int:
        asked.append(Path(folder).name)
        return int(asked[-1] == "before")

    monkeypatch.setattr(doctor, "_confirmed", confirmed)
    told = list(doctor._incidents(None))  # type: ignore[arg-type]
    assert ([good for _, good in told], len(asked)) == ([True] * 5, 10)
    monkeypatch.setattr(doctor, "_confirmed", lambda *_: 1)
    assert not any(good for _, good in doctor._incidents(None))  # type: ignore[arg-type]


def test_this_torch_agrees(run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_incidents", lambda interpreter: iter([("incidents", True)]))
    result = run("doctor", "--self-test", "--python", sys.executable)
    assert result.exit_code == 0, result.stdout
    assert "protocol on cpu: " in result.stdout
    assert "words of calls, all as the table says\n" in result.stdout


def test_another_torch_is_told_from_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that lets a scaler update before anything was checked."""
    from amplint.selftest import side_by_side

    def update(self: object, new_scale: float | None = None) -> None:
        pass

    side_by_side.walk.cache_clear()
    monkeypatch.setattr(torch.amp.GradScaler, "update", update)
    count, told = words.differences("cpu", 2)
    side_by_side.walk.cache_clear()
    assert count > 100
    assert any("raises" in line for line in told)
