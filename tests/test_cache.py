"""The cache: a result is reused exactly while nothing that it depends on has changed."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import example, given, settings
from hypothesis import strategies as st

import amplint
from amplint import cache as caching
from amplint.cache import Cache, decode, encode, folder_for, open_cache
from amplint.checker import Report, check_paths
from amplint.cli.main import cli
from amplint.code import texts
from amplint.code.texts import Texts
from amplint.config import Settings, load_settings
from amplint.findings import (
    Edit,
    Evidence,
    FileError,
    Finding,
    Fix,
    Incomplete,
    Link,
    PathStep,
    Position,
    Severity,
    Span,
    Standing,
)
from amplint.inspection import FileResult
from amplint.protocol import Event

ROOT = Path(__file__).resolve().parent.parent
SETTINGS = Settings(jobs=1)

#: Clips scaled gradients, AMP110, whatever `helper` does.
CLIPS = """\
import torch
from torch.amp import GradScaler
scaler = GradScaler("cuda")
def train(model, loader, optimizer):
    for batch in loader:
        optimizer.zero_grad()
        scaler.scale(model(batch).mean()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
"""
#: Right or wrong with `helper.prepare`, which may or may not unscale.
ASKS_HELPER = CLIPS.replace("import torch\n", "import torch\nfrom helper import prepare\n").replace(
    "        torch.nn", "        prepare(scaler, optimizer)\n        torch.nn"
)
UNSCALES = "def prepare(scaler, optimizer):\n    scaler.unscale_(optimizer)\n"
LEAVES = "def prepare(scaler, optimizer):\n    scaler.get_scale()\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of its own for every test, without variables of the caller."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text("[tool.amplint]\n")
    monkeypatch.chdir(project)
    monkeypatch.delenv("AMPLINT_CACHE_DIR", raising=False)
    monkeypatch.delenv("AMPLINT_DEBUG", raising=False)
    return project


def check(*paths: str, settings: Settings = SETTINGS) -> Report:
    """A run with a cache, as the command line makes it."""
    return check_paths(paths or (".",), settings, cache=open_cache(settings))


def codes(report: Report) -> list[str]:
    assert report.errors == ()
    return [finding.code for finding in report.findings]


def write(name: str, text: str) -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def entries() -> list[Path]:
    return sorted(Path(".amplint_cache").rglob("*.json"))


# -- reuse and its end -------------------------------------------------------------------------


def test_the_second_run_reuses_and_reports_the_same() -> None:
    write("train.py", CLIPS)
    cold, warm = check(), check()
    assert (cold.reused, warm.reused) == (0, 1)
    assert codes(cold) == ["AMP110"]
    assert replace(warm, seconds=0.0, reused=0) == replace(cold, seconds=0.0)
    assert codes(check_paths(["."], SETTINGS)) == ["AMP110"]


def test_a_file_that_takes_no_part_is_looked_at_again_when_its_imports_do() -> None:
    write("parts.py", "def build():\n    return None\n")
    write("run.py", "from parts import build\n\ndef fit(x):\n    build()\n    x.step()\n")
    left_out = [check(".").screened_out for _ in range(2)]
    write("parts.py", "def build():\n    return 'GradScaler'\n")
    again = check(".")
    assert left_out[0] - again.screened_out == left_out[1] - again.screened_out == 2
    assert check("run.py").screened_out == 0


def test_functions_that_were_not_followed_to_the_end_are_told_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write("train.py", CLIPS)
    monkeypatch.setattr("amplint.flow.interpreter.VISIT_LIMIT", 5)
    cold, warm = check(), check()
    assert (cold.incomplete, cold.reused) == ((Incomplete("train.py", ("train",)),), 0)
    assert (warm.incomplete, warm.reused) == (cold.incomplete, 1)


def test_several_processes_fill_the_same_cache() -> None:
    for number in range(3):
        write(f"train{number}.py", CLIPS)
    assert check(settings=replace(SETTINGS, jobs=2)).reused == 0
    assert check().reused == 3


def test_an_edit_is_seen() -> None:
    path = write("train.py", CLIPS)
    assert codes(check()) == ["AMP110"]
    write(
        "train.py",
        CLIPS.replace("        torch.nn", "        scaler.unscale_(optimizer)\n        torch.nn"),
    )
    report = check()
    assert (report.reused, codes(report)) == (0, [])
    path.write_text(CLIPS)
    report = check()
    assert (report.reused, codes(report)) == (1, ["AMP110"])


def test_an_edit_of_an_imported_file_judges_its_importers_again() -> None:
    write("train.py", ASKS_HELPER)
    helper = write("helper.py", UNSCALES)
    assert codes(check("train.py")) == []
    assert check("train.py").reused == 1
    helper.write_text(LEAVES)
    report = check("train.py")
    assert (report.reused, codes(report)) == (0, ["AMP110"])
    helper.write_text(UNSCALES)
    assert codes(check("train.py")) == []


def test_a_module_that_appears_or_goes_away_is_seen() -> None:
    write("train.py", ASKS_HELPER)
    assert codes(check("train.py")) == []  # an unknown function may do anything
    assert check("train.py").reused == 1
    helper = write("helper.py", LEAVES)
    assert codes(check("train.py")) == ["AMP110"]
    helper.unlink()
    assert codes(check("train.py")) == []


def test_a_module_that_comes_first_on_the_search_path_is_seen() -> None:
    write("src/helper.py", UNSCALES)
    write("train.py", ASKS_HELPER)
    assert codes(check("train.py")) == []
    write("helper/__init__.py", LEAVES)
    assert codes(check("train.py")) == ["AMP110"]


def test_a_module_in_a_package_that_was_not_there_is_seen() -> None:
    write("train.py", ASKS_HELPER.replace("from helper", "from tools.amp.helper"))
    assert codes(check("train.py")) == []
    write("tools/amp/helper.py", LEAVES)
    assert codes(check("train.py")) == ["AMP110"]


def test_what_a_package_reexports_is_followed() -> None:
    write("train.py", ASKS_HELPER)
    write("helper/__init__.py", "from .parts import prepare\n")
    parts = write("helper/parts.py", UNSCALES)
    assert codes(check("train.py")) == []
    parts.write_text(LEAVES)
    assert codes(check("train.py")) == ["AMP110"]


def test_a_moved_project_root_is_seen() -> None:
    write("lib/run/train.py", ASKS_HELPER)
    write("helper.py", LEAVES)
    assert codes(check("lib")) == ["AMP110"]
    write("lib/setup.py", "")
    assert codes(check("lib")) == []


def test_a_caller_that_appears_is_seen() -> None:
    """Guards that a file leaves untied are judged through their callers in other files."""
    example = ROOT / "fixtures" / "projects" / "guards_tied_by_caller"
    write("engine.py", (example / "engine.py").read_text())
    alone = check("engine.py")
    assert codes(alone)
    assert check("engine.py").reused == 1
    write("main.py", (example / "main.py").read_text())
    assert codes(check("engine.py")) == []
    Path("main.py").unlink()
    assert codes(check("engine.py")) == codes(alone)


def test_a_search_through_unchanged_files_is_not_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nor in a cache that was restored: the times of its files are others, but only once."""
    example = ROOT / "fixtures" / "projects" / "guards_tied_by_caller"
    paths = [write(name, (example / name).read_text()) for name in ("engine.py", "main.py")]
    searches: list[str] = []
    search = Texts.importing

    def counting(texts: Texts, *words: str) -> list[str]:
        searches.append(words[-1])
        return search(texts, *words)

    monkeypatch.setattr(Texts, "importing", counting)
    monkeypatch.setattr("amplint.code.texts._RECENT", 0)
    time.sleep(0.02)  # longer than one tick of the file system's clock
    check()
    assert searches
    for path in paths:
        searches.clear()
        assert check().reused == 2
        assert not searches
        _age(path, 3)  # as a checkout of the same content does
        time.sleep(0.02)
        assert check().reused == 2
        assert searches


def a_project_of_many(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Files with callers in other files; names of those whose text is searched from now on."""
    example = ROOT / "fixtures" / "projects" / "guards_tied_by_caller"
    for name in ("engine.py", "main.py"):
        write(name, (example / name).read_text())
    for number in range(8):
        write(f"other{number}.py", f"from engine import train{number}\n")
    searched: list[str] = []
    head = texts._head

    def noting(path: str) -> bytes:
        searched.append(os.path.basename(path))
        return head(path)

    monkeypatch.setattr(texts, "_head", noting)
    monkeypatch.setattr(texts, "_RECENT", 0)
    time.sleep(0.02)  # longer than one tick of the file system's clock
    return searched


@pytest.mark.parametrize("jobs", [1, 2])
def test_with_an_index_only_what_has_changed_is_searched(
    jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched = a_project_of_many(monkeypatch)
    settings = replace(SETTINGS, jobs=jobs)
    first = check("engine.py", "main.py", settings=settings)
    assert jobs > 1 or len(searched) == 10
    write("engine.py", Path("engine.py").read_text() + "\n# changed\n")
    time.sleep(0.02)
    searched.clear()
    again = check("engine.py", "main.py")
    assert codes(again) == codes(first)
    assert again.reused == 0
    assert searched == ["engine.py"]


@pytest.mark.parametrize("damage", [b"", b"{}", None])
def test_a_damaged_index_is_made_anew(
    damage: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched = a_project_of_many(monkeypatch)
    expected = codes(check("engine.py"))
    (kept,) = Path(".amplint_cache").rglob("*.index")
    whole = kept.read_bytes()
    kept.write_bytes(whole[:-1] if damage is None else damage)
    searched.clear()
    for path in entries():
        path.unlink()
    assert codes(check("engine.py")) == expected
    assert len(searched) == 10
    assert kept.read_bytes() == whole


def test_a_caller_that_appears_is_found_beside_the_index(monkeypatch: pytest.MonkeyPatch) -> None:
    a_project_of_many(monkeypatch)
    caller = Path("main.py").read_text()
    Path("main.py").unlink()
    time.sleep(0.02)
    alone = codes(check("engine.py"))
    write("main.py", caller)
    time.sleep(0.02)
    assert codes(check("engine.py")) != alone


def test_an_edit_elsewhere_changes_nothing() -> None:
    write("train.py", ASKS_HELPER)
    write("helper.py", UNSCALES)
    other = write("other.py", CLIPS)
    check()
    other.write_text("# new\n" + CLIPS)
    report = check()
    assert report.files - report.reused == 1


@pytest.mark.parametrize(
    "changed",
    [
        {"select": ("AMP2",)},
        {"ignore": ("AMP110",)},
        {"extend_select": ("AMP128",)},
        {"per_file_ignores": (("*.py", ("AMP110",)),)},
        {"project_root": "lib"},
        {"src": ("lib",)},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_other_settings_have_results_of_their_own(changed: dict[str, object]) -> None:
    write("train.py", CLIPS)
    check()
    other = replace(SETTINGS, **changed)
    report = check(settings=other)
    assert report.reused == 0
    assert report.findings == check_paths(["."], other).findings
    assert check(settings=other).reused == check().reused == 1


def test_settings_of_the_output_do_not_matter() -> None:
    write("train.py", CLIPS)
    check()
    other = replace(SETTINGS, fail_on="never", output_format="github", exclude=())
    assert check(settings=other).reused == 1


def test_results_with_the_edits_of_fixes_are_kept_apart() -> None:
    write("train.py", CLIPS)
    check()
    shown = replace(SETTINGS, output_format="json")
    assert [check(settings=shown).reused for _ in range(2)] == [0, 1]


def test_another_version_starts_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    write("train.py", CLIPS)
    check()
    monkeypatch.setattr(amplint, "__version__", "99.0")
    assert check().reused == 0
    assert {entry.parts[1] for entry in entries()} > {"99.0"}


def test_another_state_of_the_code_starts_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    write("train.py", CLIPS)
    check()
    monkeypatch.setattr(caching, "code_digest", lambda: "changed")
    assert check().reused == 0


def test_the_digest_of_the_code_covers_the_rules(tmp_path: Path) -> None:
    """A copy whose rule differs in one comment has another digest."""

    def digest_of(root: Path) -> str:
        program = "from amplint.cache import code_digest; print(code_digest())"
        done = subprocess.run(
            [sys.executable, "-B", "-c", program],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(root)},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    import shutil

    copy = tmp_path / "copy"
    for name in ("amplint", "rules"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, copy / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", copy)
    before = digest_of(copy)
    rule = copy / "rules" / "protocol" / "step_twice.py"
    rule.write_text(rule.read_text() + "# changed\n")
    assert digest_of(copy) != before


def test_two_folders_with_equal_files_do_not_share_results(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same printed name and the same bytes, but another helper beside it."""
    monkeypatch.setenv("AMPLINT_CACHE_DIR", str(folder / "shared"))
    for name, helper in (("a", UNSCALES), ("b", LEAVES)):
        write(f"{name}/train.py", ASKS_HELPER)
        write(f"{name}/helper.py", helper)
    monkeypatch.chdir(folder / "a")
    assert codes(check("train.py")) == []
    monkeypatch.chdir(folder / "b")
    assert codes(check("train.py")) == ["AMP110"]


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege there")
def test_a_link_that_points_elsewhere_is_seen() -> None:
    """The same printed name and the same bytes, but another helper beside the real file."""
    for name, helper in (("a", UNSCALES), ("b", LEAVES)):
        write(f"{name}/train.py", ASKS_HELPER)
        write(f"{name}/helper.py", helper)
    link = Path("train.py")
    link.symlink_to("a/train.py")
    assert codes(check("train.py")) == []
    link.unlink()
    link.symlink_to("b/train.py")
    assert codes(check("train.py")) == ["AMP110"]


def test_errors_are_not_kept() -> None:
    path = write("train.py", CLIPS + "def broken(:\n")
    assert check().errors
    assert check().errors
    assert entries() == []
    path.write_text(CLIPS)
    assert codes(check()) == ["AMP110"]


def test_standard_input_and_files_without_amp_are_not_kept() -> None:
    write("plain.py", "x = 1\n")
    report = check_paths([".", "-"], SETTINGS, stdin=CLIPS.encode(), cache=open_cache(SETTINGS))
    assert codes(report) == ["AMP110"]
    assert not Path(".amplint_cache").exists()


# -- where it is -------------------------------------------------------------------------------


def test_the_cache_lies_beside_the_configuration(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(root=str(folder))
    (folder / "deeper").mkdir()
    monkeypatch.chdir(folder / "deeper")
    assert folder_for(settings) == str(folder / ".amplint_cache")
    assert folder_for(Settings()) == str(folder / "deeper" / ".amplint_cache")


def test_a_configuration_from_elsewhere_does_not_draw_the_cache_there(
    folder: Path, tmp_path: Path
) -> None:
    assert folder_for(Settings(root=str(tmp_path / "proj"))) == str(folder / ".amplint_cache")


def test_the_variable_chooses_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMPLINT_CACHE_DIR", str(tmp_path / "elsewhere" / "cache"))
    write("train.py", CLIPS)
    check()
    assert check().reused == 1
    assert list((tmp_path / "elsewhere" / "cache").rglob("*.json"))
    assert not Path(".amplint_cache").exists()


def test_backups_and_git_pass_it_over() -> None:
    write("train.py", CLIPS)
    check()
    tag = Path(".amplint_cache", "CACHEDIR.TAG").read_text()
    # The first 43 bytes that https://bford.info/cachedir/ prescribes.
    assert tag.startswith("Signature: 8a477f597d28d172789f06886806bc55\n")
    assert Path(".amplint_cache", ".gitignore").read_text() == "*\n"


@pytest.mark.parametrize("off", ["setting", "variable"])
def test_it_can_be_turned_off(off: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if off == "variable":
        monkeypatch.setenv("AMPLINT_DEBUG", "1")
    assert open_cache(replace(SETTINGS, cache=off != "setting")) is None


# -- damage ------------------------------------------------------------------------------------


def _signed(value: object) -> bytes:
    body = json.dumps(value).encode()
    return b'"%s"\n%s' % (hashlib.sha256(body).hexdigest().encode(), body)


def _entry(**changed: object) -> bytes:
    """A whole entry, but for what is changed; None leaves a field out."""
    fields = {
        "filename": "a.py",
        "findings": [],
        "lookups": [],
        "unfinished": [],
        "screened_out": False,
        **changed,
    }
    return _signed({name: value for name, value in fields.items() if value is not None})


WRONG = {
    "empty": b"",
    "null bytes": bytes(500),
    "other JSON": b"{}",
    "no digest": b'""\n{}\n',
    "list": _signed([]),
    "no findings": _entry(findings=None),
    "no functions": _entry(unfinished=None),
    "no answer whether it takes part": _entry(screened_out=None),
    "count of functions": _entry(unfinished=1),
    "numbers as functions": _entry(unfinished=[1]),
    "number as name": _entry(filename=1),
    "object as findings": _entry(findings={}),
    "short finding": _entry(findings=[["AMP110"]]),
    "unknown question": _entry(lookups=[[["rm", "/"], ""]]),
    "empty question": _entry(lookups=[[[], ""]]),
    "question about nothing": _entry(lookups=[[["file"], ""]]),
    "answer of another type": _entry(lookups=[[["exists", "/"], 1]]),
    "deep": _signed(0).replace(b"0", b"[" * 100_000),
}


def test_a_whole_entry_is_none_of_these() -> None:
    assert decode(_entry()).reused


@pytest.mark.parametrize("data", WRONG.values(), ids=WRONG)
def test_what_is_no_entry_is_a_miss(data: bytes) -> None:
    write("train.py", CLIPS)
    check()
    (entry,) = entries()
    entry.write_bytes(data)
    report = check()
    assert (report.reused, codes(report)) == (0, ["AMP110"])
    assert check().reused == 1  # written anew


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_any_damage_is_a_miss(data: st.DataObject) -> None:
    entry = encode(FileResult("a.py", (FINDING,), lookups={("exists", "/x"): False}))
    start = data.draw(st.integers(0, len(entry)))
    end = data.draw(st.integers(start, len(entry)))
    damaged = entry[:start] + data.draw(st.binary(max_size=20)) + entry[end:]
    if damaged == entry:
        return
    with pytest.raises((ValueError, TypeError, LookupError)):
        decode(damaged)


def test_a_folder_in_place_of_an_entry_is_a_miss() -> None:
    write("train.py", CLIPS)
    check()
    (entry,) = entries()
    entry.unlink()
    entry.mkdir()
    report = check()
    assert (report.reused, codes(report)) == (0, ["AMP110"])


def test_a_file_in_place_of_the_folder() -> None:
    write("train.py", CLIPS)
    Path(".amplint_cache").write_text("in the way")
    cache = open_cache(SETTINGS)
    assert cache is not None
    assert codes(check_paths(["."], SETTINGS, cache=cache)) == ["AMP110"]
    assert cache.failure is not None
    assert Path(".amplint_cache").read_text() == "in the way"


def test_a_folder_with_other_things_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """`AMPLINT_CACHE_DIR=~` must not make `amplint clean` remove a home folder."""
    write("train.py", CLIPS)
    write("home/diary.txt", "dear diary")
    monkeypatch.setenv("AMPLINT_CACHE_DIR", "home")
    cache = open_cache(SETTINGS)
    assert cache is not None
    check_paths(["."], SETTINGS, cache=cache)
    assert "holds other things" in (cache.failure or "")
    assert os.listdir("home") == ["diary.txt"]


def test_a_run_that_was_killed_while_writing() -> None:
    """Its temporary file is neither an entry nor in the way."""
    write("train.py", CLIPS)
    write(".amplint_cache/.tmp-0123", "half of the t")
    assert codes(check()) == ["AMP110"]
    (entry,) = entries()
    (entry.parent / ".tmp-4567").write_bytes(entry.read_bytes()[:40])
    assert check().reused == 1


def test_a_failed_write_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    write("train.py", CLIPS)
    cache = open_cache(SETTINGS)
    assert cache is not None
    assert codes(check_paths(["."], SETTINGS, cache=cache)) == ["AMP110"]
    assert cache.failure is not None
    assert cache.failure.endswith("No space left on device")
    assert [path for path in Path(".amplint_cache").rglob("*") if path.is_file()] == []


# -- several runs at once, old entries ---------------------------------------------------------


def test_two_runs_at_once(folder: Path) -> None:
    for number in range(20):
        write(f"train{number}.py", CLIPS)
    command = [sys.executable, "-m", "amplint", "check", "--output-format", "json", "."]
    runs = [
        subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for _ in range(2)
    ]
    outputs = [run.communicate(timeout=120) for run in runs]
    assert [run.returncode for run in runs] == [1, 1]
    assert [errors for _, errors in outputs] == [b"", b""]
    assert check(settings=replace(load_settings(), output_format="json")).reused == 20
    names = [path.name for path in Path(".amplint_cache").rglob("*") if path.is_file()]
    assert len([name for name in names if name.startswith(".tmp-")]) == 0


def _spawn(*options: str) -> subprocess.Popen[bytes]:
    return _run_python("-m", "amplint", "check", *options, ".")


def _run_python(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


#: Ends the process, as a kill from outside does, before or after the n-th file gets its name.
KILLED = """
import os, signal, sys
from amplint.cli.main import main
moment, left, replace = sys.argv.pop(1), int(sys.argv.pop(1)), os.replace

def counting_replace(*paths):
    global left
    left -= 1
    if not left and moment == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    replace(*paths)
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)

os.replace = counting_replace
main()
"""


@pytest.mark.skipif(os.name != "posix", reason="a process is killed by a signal")
def test_runs_that_are_killed_at_any_moment() -> None:
    """Whatever they leave behind, the next run reports what a first run reports."""
    for number in range(40):
        write(f"train{number}.py", CLIPS)
    first = _spawn("--no-cache", "--jobs", "1")
    expected = first.communicate(timeout=120)[0]
    left = []
    for moment in (f"{when} {count}" for count in (1, 2, 3, 10) for when in ("before", "after")):
        killed = _run_python("-c", KILLED, *moment.split(), "check", "--jobs", "1", ".")
        killed.communicate(timeout=120)
        assert killed.returncode == -signal.SIGKILL
        left.append(len(entries()))
    assert left == sorted(left)
    assert 0 < left[-1] < 40
    last = _spawn("--jobs", "1")
    output, errors = last.communicate(timeout=120)
    assert (last.returncode, output, errors) == (first.returncode, expected, b"")
    assert len(entries()) == 40
    for entry in entries():
        decode(entry.read_bytes())


def _age(path: Path, days: float) -> None:
    then = time.time() - days * caching.DAY
    os.utime(path, (then, then))


def test_entries_that_no_run_uses_are_removed() -> None:
    write("train.py", CLIPS)
    check()
    (used,) = entries()
    _age(used, 40)
    forgotten = [write(f".amplint_cache/0.0.{n}/ab/{'ab' * 32}.json", "") for n in (1, 2)]
    _age(forgotten[0], 40)
    _age(forgotten[1], 20)
    tag = Path(".amplint_cache", "CACHEDIR.TAG")
    _age(tag, 2)
    write("new.py", CLIPS)
    assert check().reused == 1
    assert [path.exists() for path in forgotten] == [False, True]
    assert not forgotten[0].parent.parent.exists()
    assert used.exists()
    assert time.time() - tag.stat().st_mtime < caching.DAY


def test_cleaning_up_happens_once_a_day() -> None:
    write("train.py", CLIPS)
    check()
    forgotten = write(f".amplint_cache/0.0.1/ab/{'ab' * 32}.json", "")
    _age(forgotten, 40)
    write("new.py", CLIPS)
    check()
    assert forgotten.exists()


# -- entries -----------------------------------------------------------------------------------

TEXT = st.text(st.characters(exclude_categories=()), max_size=8)  # with lone surrogates
POSITIONS = st.builds(Position, st.integers(), st.integers())
SPANS = st.builds(Span, POSITIONS, POSITIONS)
STEP_VALUES = {
    "filename": TEXT,
    "row": st.integers(),
    "column": st.integers(),
    "message": TEXT,
    "state": TEXT,
    "kind": TEXT,
    "subject": TEXT,
    "holds": st.booleans(),
    "event": st.none() | st.sampled_from(Event),
    "idle": st.booleans(),
    "broken": TEXT,
}
STEPS = st.builds(PathStep, **STEP_VALUES)
EDITS = st.builds(Edit, SPANS, TEXT)
OPTIONAL_TEXT = st.none() | TEXT


def tuples(items: st.SearchStrategy[object]) -> st.SearchStrategy[tuple[object, ...]]:
    return st.lists(items, max_size=3).map(tuple)


VALUES = {
    "code": TEXT,
    "name": TEXT,
    "severity": st.sampled_from(Severity),
    "message": TEXT,
    "help": TEXT,
    "filename": TEXT,
    "span": SPANS,
    "path": tuples(STEPS),
    "cell": st.none() | st.integers(),
    "evidence": st.builds(
        Evidence, TEXT, OPTIONAL_TEXT, OPTIONAL_TEXT, OPTIONAL_TEXT, tuples(TEXT)
    ),
    "fix": st.none() | st.builds(Fix, TEXT, tuples(EDITS)),
    "fingerprint": TEXT,
    "links": tuples(st.builds(Link, TEXT, st.sampled_from(Standing), TEXT, TEXT)),
}
LOOKUPS = st.dictionaries(
    tuples(TEXT), st.booleans() | TEXT | st.lists(TEXT, max_size=3), max_size=3
)
PLACE = Span(Position(1, 1), Position(1, 2))
FINDING = Finding("AMP110", "a", Severity.ERROR, "b", "c", "a.py", PLACE)


def test_every_field_of_a_finding_is_drawn() -> None:
    assert list(VALUES) == [item.name for item in fields(Finding)]
    assert list(STEP_VALUES) == [item.name for item in fields(PathStep)]


@example("\ud83d\ude00", (), {})  # two halves, not one character
@given(TEXT, tuples(st.builds(Finding, **VALUES)), LOOKUPS)
@settings(deadline=None)
def test_results_come_back_as_they_were(
    filename: str, findings: tuple[Finding, ...], lookups: dict[tuple[str, ...], object]
) -> None:
    back = decode(
        encode(FileResult(filename, findings, lookups=lookups, unfinished=("fit", "b.py:run")))
    )
    assert back == FileResult(filename, findings, unfinished=("fit", "b.py:run"))
    assert back.lookups == lookups
    assert back.reused


def test_a_result_with_an_error_is_not_put(folder: Path) -> None:
    cache = Cache(str(folder / "kept"), SETTINGS)
    cache.put("00" * 32, FileResult("a.py", errors=(FileError("a.py", "internal error"),)))
    assert not (folder / "kept").exists()


# -- the command line --------------------------------------------------------------------------


@pytest.fixture
def run() -> Callable[..., tuple[int, str]]:
    def invoke(*args: str) -> tuple[int, str]:
        result = CliRunner().invoke(cli, args)
        return result.exit_code, result.output

    return invoke


def test_check_uses_it_and_no_cache_does_not(run: Callable[..., tuple[int, str]]) -> None:
    write("train.py", CLIPS)
    assert run("check", "--no-cache")[0] == 1
    assert not Path(".amplint_cache").exists()
    assert run("check")[0] == 1
    assert ".amplint_cache, 1 results reused" in run("check", "-v")[1]
    assert "cache" not in run("check", "-v", "--no-cache")[1]


def test_one_note_where_nothing_can_be_written(run: Callable[..., tuple[int, str]]) -> None:
    write("train.py", CLIPS)
    write("more.py", CLIPS)
    Path(".amplint_cache").write_text("in the way")
    status, output = run("check")
    assert status == 1
    assert output.count("note: results are not kept") == 1
    assert "note" not in run("check", "--quiet")[1]
    assert "note" not in run("check", "--no-cache")[1]


@pytest.mark.parametrize(
    "error", [PermissionError(13, "Permission denied"), OSError(30, "Read-only")]
)
def test_one_note_where_the_project_is_read_only(
    error: OSError, run: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the system answers there; a superuser may write wherever a mode forbids it."""

    def refuse(*args: object, **options: object) -> None:
        raise error

    monkeypatch.setattr(os, "makedirs", refuse)
    for number in range(5):
        write(f"train{number}.py", CLIPS)
    status, output = run("check")
    assert status == 1
    assert output.count("error AMP110") == 5
    assert output.count("note: results are not kept for the next run: cannot write") == 1
    assert str(error.strerror) in output
    assert "note" not in run("check", "-q")[1]


def test_a_cache_that_can_only_be_read_is_used(
    run: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    write("train.py", CLIPS)
    check(settings=load_settings())

    def refuse(*args: object, **options: object) -> None:
        raise OSError(30, "Read-only file system")

    for name in ("makedirs", "replace", "utime"):
        monkeypatch.setattr(os, name, refuse)
    status, output = run("check", "-v")
    assert (status, "1 results reused" in output, "note" in output) == (1, True, False)


def test_clean(run: Callable[..., tuple[int, str]], folder: Path) -> None:
    write("train.py", CLIPS)
    run("check")
    before = set(folder.iterdir())
    assert run("clean") == (0, f"removed {folder / '.amplint_cache'}\n")
    assert before - set(folder.iterdir()) == {folder / ".amplint_cache"}
    status, output = run("clean")
    assert (status, output.startswith("nothing to remove")) == (0, True)


def test_clean_removes_only_what_carries_the_tag(run: Callable[..., tuple[int, str]]) -> None:
    precious = write(".amplint_cache/precious.txt", "")
    assert run("clean")[0] == 0
    write(".amplint_cache/CACHEDIR.TAG", "Signature: 8a477f597d28d172789f06886806bc55\n# of others")
    assert run("clean")[0] == 0
    assert precious.exists()


def test_clean_finds_both_places(
    run: Callable[..., tuple[int, str]], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("deeper/train.py", CLIPS)
    monkeypatch.chdir(folder / "deeper")
    run("check")
    run("check", "--isolated")
    caches = [folder / ".amplint_cache", folder / "deeper" / ".amplint_cache"]
    assert all(path.is_dir() for path in caches)
    assert run("clean")[1] == "".join(f"removed {path}\n" for path in sorted(caches))
    assert not any(path.exists() for path in caches)


def test_clean_follows_the_variable(
    run: Callable[..., tuple[int, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("train.py", CLIPS)
    run("check")
    monkeypatch.setenv("AMPLINT_CACHE_DIR", str(tmp_path / "elsewhere"))
    run("check")
    assert run("clean") == (0, f"removed {tmp_path / 'elsewhere'}\n")
    assert Path(".amplint_cache").is_dir()


# -- what a run does -----------------------------------------------------------------------------

#: Runs the command line and prints the modules it imported, the texts it compiled, and what it
#: wrote.
WATCHED = """
import os, sys
from amplint.cli.main import main
events, watching = [], [True]
def hook(event, args):
    if not watching:
        return
    if event == "compile" and args[1] in ("train.py", "helper.py"):
        events.append("parsed")
    elif event == "open" and isinstance(args[2], int):
        if args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            events.append(f"wrote {os.path.abspath(args[0])}")
    elif event in ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.utime"):
        events.append(f"wrote {os.path.abspath(args[0])}")
sys.dont_write_bytecode = True
sys.addaudithook(hook)
try:
    main()
finally:
    watching.clear()
    print(*events, *sorted(sys.modules), sep="\\n", file=sys.stderr)
"""


def watch(*args: str) -> tuple[str, list[str]]:
    """stdout of a run, and its events and modules."""
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, "check", *args],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 1, done.stderr
    return done.stdout, done.stderr.splitlines()


def test_a_warm_run_neither_parses_nor_imports_the_analysis() -> None:
    write("train.py", ASKS_HELPER)
    write("helper.py", LEAVES)
    cold_output, cold = watch()
    warm_output, warm = watch()
    assert warm_output == cold_output
    heavy = ("amplint.view", "amplint.flow", "amplint.rules.", "amplint.code.project")
    heavy = (*heavy, "amplint.source.parsing", "libcst", "torch")
    assert "parsed" in cold
    assert "amplint.view" in cold
    assert [line for line in warm if line == "parsed" or line.startswith(heavy)] == []


def test_check_writes_nothing_outside_its_cache(folder: Path) -> None:
    write("train.py", CLIPS)
    time.sleep(2.1)  # no stamp is kept of a file just written, but a moment later
    inside = f"wrote {folder / '.amplint_cache'}"
    _, events = watch()
    written = [line for line in events if line.startswith("wrote ")]
    assert written
    assert [line for line in written if not line.startswith(inside)] == []
    _, events = watch()
    assert [line for line in events if line.startswith("wrote ")] == []


# -- caches that are not ours ------------------------------------------------------------------


@pytest.mark.parametrize("version", ["2", "3", "4"])
@pytest.mark.parametrize("kind", ["folder", "link", "worktree", "nested"])
def test_a_cache_that_git_tracks_is_ignored(folder: Path, version: str, kind: str) -> None:
    """As a pull request brings it: forged results would make the run green."""
    git("init", "-q")
    git("config", "index.version", version)
    if kind == "nested":
        Path("deep/er").mkdir(parents=True)
        os.chdir("deep/er")
    write("train.py", CLIPS)
    write(".amplint_before/a", "")
    write(".amplint_cache.bak", "")
    check()
    assert check().reused == 1
    if kind == "link":
        Path(".amplint_cache").rename("other")
        Path(".amplint_cache").symlink_to("other")
    git("add", "--force", ".")
    if version == "3":  # an entry with extended flags makes it one
        write("later.txt", "")
        git("add", "--intent-to-add", "later.txt")
    if kind == "worktree":
        git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "all")
        git("worktree", "add", "-q", "tree")
        os.chdir("tree")
    before = sorted(Path(".amplint_cache").rglob("*"))
    cache = caching.open_cache(SETTINGS)
    assert cache is not None
    assert cache.failure is not None
    assert "is tracked by git, so it is ignored" in cache.failure
    report = check()
    assert (report.reused, len(report.findings)) == (0, 1)
    assert sorted(Path(".amplint_cache").rglob("*")) == before
    git("rm", "-rq", "--cached", "--force", ".amplint_cache")
    assert caching.open_cache(SETTINGS).failure is None  # type: ignore[union-attr]


def git(*arguments: str) -> None:
    subprocess.run(["git", *arguments], check=True, capture_output=True)


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give away"
)
def test_a_cache_of_another_user_is_ignored() -> None:
    write("train.py", CLIPS)
    check()
    os.chown(".amplint_cache", 12345, -1)
    cache = caching.open_cache(SETTINGS)
    assert cache is not None
    assert cache.failure is not None
    assert "belongs to another user" in cache.failure
    assert (check().reused, cache.indexes) == (0, "")


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give away"
)
def test_entries_of_another_user_are_ignored() -> None:
    """In a folder of one's own that others may write into."""
    write("train.py", CLIPS)
    found = check()
    assert check().reused == 1
    kept = list(Path(".amplint_cache").rglob("*.json"))
    assert kept
    for path in kept:
        os.chown(path, 12345, -1)
    again = check()
    assert (again.reused, again.findings) == (0, found.findings)


def test_an_index_that_is_none_tracks_nothing() -> None:
    write("train.py", CLIPS)
    write(".git/index", "")
    check()
    for data in (b"", b"DIRC", b"DIRC\0\0\0\2\0\0\0\x09.amplint_cache/", b"x" * 100):
        write(".git/index", data.decode("latin-1"))
        assert check().reused == 1
