"""The checker, with a rule that reports each call of `bad()`: what becomes of findings."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import amplint.rules
import pytest

from amplint import checker, inspection, workers
from amplint.checker import check_paths, check_source
from amplint.code import texts
from amplint.config import Settings
from amplint.findings import Finding, Severity
from amplint.inspection import FileResult
from amplint.rule import Misuse, Rule
from amplint.view import FileView

ROOT = Path(__file__).resolve().parent.parent
SETTINGS = Settings(jobs=1)
MARK = "import torch.amp\n"


def _toy(code: str, severity: Severity, check: Callable[[FileView], Iterator[Finding]]) -> object:
    name = amplint.rules.TABLE[code].replace("_", "-")
    return SimpleNamespace(RULE=Rule(code, name, severity, "crash", "toy"), check=check)


def _report_calls(code: str) -> Callable[[FileView], Iterator[Finding]]:
    def check(view: FileView) -> Iterator[Finding]:
        rule = Rule(code, "toy", Severity.ERROR, "crash", "toy")
        for site in view.module.calls:
            if site.method == "bad":
                yield view.finding(rule, site.node, "bad is bad", "call good()")

    return check


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """Stand-ins for the rules: AMP110 and AMP128 (a notice) report `bad()`, AMP900 is real."""
    modules = {
        code: _toy(code, Severity.ERROR, lambda view: iter(())) for code in amplint.rules.TABLE
    }
    modules["AMP110"] = _toy("AMP110", Severity.ERROR, _report_calls("AMP110"))
    modules["AMP128"] = _toy("AMP128", Severity.INFO, _report_calls("AMP128"))
    modules["AMP900"] = amplint.rules.load("AMP900")
    monkeypatch.setattr(amplint.rules, "load", modules.__getitem__)
    return modules


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(name: str, text: str) -> str:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(text, encoding="utf-8")
    return name


def found(source: str, settings: Settings = SETTINGS) -> list[tuple[str, int, int]]:
    """(code, row, column) of each finding; fails on errors."""
    result = check_source("a.py", source.encode(), settings)
    assert result.errors == ()
    return [(f.code, f.span.start.row, f.span.start.column) for f in result.findings]


def errors(source: bytes | str) -> list[tuple[str, int, int]]:
    data = source.encode() if isinstance(source, str) else source
    result = check_source("a.py", data, SETTINGS)
    assert result.findings == ()
    assert {error.code for error in result.errors} == {"AMP000"}
    return [(error.message, error.row, error.column) for error in result.errors]


# -- findings --------------------------------------------------------------------------


@pytest.mark.usefixtures("toys")
@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("", []),
        ("good()\n", []),
        ("bad()\n", [("AMP110", 1, 1)]),
        ("\ufeffbad()\n", [("AMP110", 1, 1)]),
        ("'😀'; bad()\r\nbad()", [("AMP110", 1, 6), ("AMP110", 2, 1)]),
        ("bad()  # noqa\n", []),
        ("bad()  # noqa: AMP110\n", []),
        ("bad()  # amplint: ignore[AMP110] why\n", []),
        ("bad(\n)  # amplint: ignore[AMP110] why\n", []),
        ("bad()  # noqa: AMP101\n", [("AMP110", 1, 1), ("AMP900", 1, 8)]),
        ("good()  # noqa: AMP110\n", [("AMP900", 1, 9)]),
        ("good()  # noqa: AMP128\n", []),  # this rule did not run
        ("good()  # noqa: AMP12\n", [("AMP900", 1, 9)]),
        ("good()  # noqa: AMP110, AMP900\n", []),
        ("good()  # amplint: ignore[AMP110] # noqa: AMP900\n", []),
        ("good()  # noqa: F401\n", []),
        ("good()  # noqa\n", []),
        ("good()  # amplint: ignore[AMP11O]\n", [("AMP900", 1, 9)]),
        ("# amplint: ignore-file\nbad()  # noqa: AMP101\n", []),
        ("# amplint: ignore-file[AMP110]\nbad()\n", []),
        ("# amplint: ignore-file[AMP110]\ngood()\n", [("AMP900", 1, 1)]),
    ],
)
def test_findings(source: str, expected: list[tuple[str, int, int]]) -> None:
    assert found(source) == expected


@pytest.mark.usefixtures("toys")
def test_a_selected_notice_runs() -> None:
    settings = replace(SETTINGS, select=("AMP128",))
    assert found("bad()\n", settings) == [("AMP128", 1, 1)]
    assert found("bad()  # noqa: AMP128\n", settings) == []
    assert found("good()  # noqa: AMP128\n", settings) == []  # AMP900 is not selected


@pytest.mark.usefixtures("toys")
def test_unused_suppressions_can_be_ignored() -> None:
    assert found("good()  # noqa: AMP110\n", replace(SETTINGS, ignore=("AMP900",))) == []


@pytest.mark.usefixtures("toys")
def test_ignored_for_some_files() -> None:
    write("tests/a.py", "bad()\ngood()  # noqa: AMP110\n")
    settings = replace(SETTINGS, per_file_ignores=(("tests/*", ("AMP110",)),))
    assert check_paths(["tests/a.py"], settings).findings == ()


@pytest.mark.usefixtures("toys")
def test_findings_are_sorted_by_place() -> None:
    write("b.py", MARK + "bad(); bad()\nbad()\n")
    write("a.py", MARK + "if 1:\n    bad()\nbad()\n")
    settings = replace(SETTINGS, extend_select=("AMP128",))
    places = [
        (f.filename, f.span.start.row, f.span.start.column, f.code)
        for f in check_paths(["b.py", "a.py"], settings).findings
    ]
    assert places == sorted(places)
    assert len(places) == 10


def test_one_place_and_message_is_one_finding(toys: dict[str, object]) -> None:
    report = _report_calls("AMP110")
    toys["AMP110"] = _toy("AMP110", Severity.ERROR, lambda view: (*report(view), *report(view)))
    assert found("bad()\n") == [("AMP110", 1, 1)]


# -- fingerprints ----------------------------------------------------------------------


def fingerprints(source: str, filename: str = "a.py") -> list[str]:
    return [f.fingerprint for f in check_source(filename, source.encode(), SETTINGS).findings]


@pytest.mark.usefixtures("toys")
@pytest.mark.parametrize(
    "changed",
    [
        "import os\n\nbad(1)\n",
        "if 1:\n    bad(1)\n",
        "bad( 1 )\n",
        "\tbad(1)\n".replace("\t", "if 1:\n\t"),
        "bad(2)\nbad(1)\n",
        "bad(1)\nbad(1)\n",
        "bad(1)\r\n",
    ],
)
def test_a_fingerprint_survives(changed: str) -> None:
    [identity] = fingerprints("bad(1)\n")
    assert identity in fingerprints(changed)


@pytest.mark.usefixtures("toys")
def test_fingerprints_are_distinct_and_without_the_path() -> None:
    several = fingerprints("bad(1)\nbad(1)\nbad(2)\nx = bad(1), bad(1)\ny()  # noqa: AMP110\n")
    assert len(set(several)) == 6
    assert fingerprints("bad(1)\n", os.path.abspath("x.py")) == fingerprints("bad(1)\n")


@pytest.mark.usefixtures("toys")
def test_a_suppression_leaves_the_other_fingerprints() -> None:
    first, second = fingerprints("bad()  #\nbad()  #\n")
    assert fingerprints("bad()  #\nbad()  # noqa\n") == [first]
    assert first != second


# -- the report ------------------------------------------------------------------------


@pytest.mark.usefixtures("toys")
def test_the_report_counts() -> None:
    write("marked.py", MARK + "bad()\n")
    write("plain.py", "bad()\n")
    write("broken.py", MARK + "def f(:\n")
    report = check_paths([".", "gone.py"], SETTINGS)
    assert (report.files, report.screened_out) == (3, 1)
    assert [f.filename for f in report.findings] == ["marked.py"]
    assert [(e.filename, e.code) for e in report.errors] == [
        ("broken.py", "AMP000"),
        ("gone.py", "AMP000"),
    ]
    assert report.seconds > 0


@pytest.mark.usefixtures("toys")
def test_what_is_named_is_parsed_although_nothing_mentions_amp() -> None:
    write("plain.py", "bad()\n")
    write("broken.py", "def f(:\n")
    report = check_paths(["plain.py", "broken.py"], SETTINGS)
    assert report.screened_out == 0
    assert [f.filename for f in report.findings] == ["plain.py"]
    assert [e.filename for e in report.errors] == ["broken.py"]


# -- files without a word of AMP ----------------------------------------------------------

PARTS = """
from torch.amp import GradScaler

class Learner:
    def prepare(self):
        self.helper = GradScaler("cuda")

    def learn(self, loss):
        self.helper.scale(loss).backward()
        self.helper.step(self.rule)
"""
DRIVER = """
import torch
from {place} import Learner

class Run(Learner):
    def loop(self, net, batches):
        self.rule = torch.optim.SGD(net.parameters(), lr=0.1)
        self.prepare()
        for batch in batches:
            self.rule.zero_grad()
            self.learn(net(batch).mean())
            {rest}
"""
LONELY = "def fit(net, rule):\n    net().backward()\n    rule.step()\n"


def found_in(report: checker.Report) -> list[tuple[str, str]]:
    return [(finding.filename, finding.code) for finding in report.findings]


@pytest.mark.parametrize("place", ["parts", "pack"])
def test_a_plain_file_that_drives_an_amp_file_is_checked(place: str) -> None:
    write("pyproject.toml", "")
    write("parts.py" if place == "parts" else "pack/inner.py", PARTS)
    write("pack/__init__.py", "from .inner import *\n")
    write("run.py", DRIVER.format(place=place, rest="self.rule.step()"))
    write("lonely.py", LONELY)
    write("old.py", "print 'optimizer.step()'\n")
    report = check_paths(["."], SETTINGS)
    assert ("run.py", "AMP104") in found_in(report) or ("run.py", "AMP105") in found_in(report)
    assert (report.errors, report.screened_out) == ((), 3)


def test_what_a_plain_helper_does_wrong_is_reported_where_an_amp_file_calls_it() -> None:
    write("pyproject.toml", "")
    write("ends.py", "def end(a, b):\n    a.step(b)\n    a.update()\n    a.update()\n")
    write(
        "fit.py",
        "import torch\nfrom ends import end\n\n"
        "def fit(net, batches):\n"
        "    rule = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "    helper = torch.amp.GradScaler('cuda')\n"
        "    for batch in batches:\n"
        "        helper.scale(net(batch)).backward()\n"
        "        end(helper, rule)\n",
    )
    assert ("fit.py", "AMP106") in found_in(check_paths(["."], SETTINGS))
    assert ("ends.py", "AMP106") in found_in(check_paths(["ends.py"], SETTINGS))


@pytest.mark.usefixtures("toys")
@pytest.mark.parametrize("data", [b"x = '\xff'\n", b"x = 1\0\n", b"x = 1\n" * 20])
def test_an_unreadable_file_of_a_folder_is_an_error(data: bytes) -> None:
    Path("a.py").write_bytes(data)
    report = check_paths(["."], replace(SETTINGS, max_file_size=100))
    assert [error.filename for error in report.errors] == ["a.py"]
    assert (report.files, report.screened_out) == (1, 0)


@pytest.mark.usefixtures("toys")
def test_stdin() -> None:
    report = check_paths(["-"], SETTINGS, stdin=b"bad()\n")
    assert [(f.filename, f.span.start.row) for f in report.findings] == [("<stdin>", 1)]
    settings = replace(SETTINGS, stdin_filename="src/a.py", per_file_ignores=(("src", ("AMP1",)),))
    assert check_paths(["-"], settings, stdin=b"bad()\n").findings == ()


@pytest.mark.usefixtures("toys")
def test_stdin_over_the_limit_is_an_error() -> None:
    report = check_paths(["-"], replace(SETTINGS, max_file_size=3), stdin=b"bad()\n")
    assert [e.message for e in report.errors] == ["is larger than the limit of 3 bytes"]


@pytest.mark.usefixtures("toys")
def test_progress_ends_with_all_files() -> None:
    for name in ("a.py", "b.py", "c.py"):
        write(name, MARK)
    write("plain.py", "x = 1\n")
    calls: list[tuple[int, int]] = []
    check_paths(["."], SETTINGS, progress=lambda done, total: calls.append((done, total)))
    assert [total for _, total in calls] == [4] * len(calls)
    done = [count for count, _ in calls]
    assert done == sorted(done)
    assert done[-1] == 4


def test_nothing_to_check() -> None:
    assert replace(check_paths([], SETTINGS), seconds=0.0) == checker.Report()


# -- errors ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "message", "row", "column"),
    [
        ("x = (\n", "'(' was never closed", 1, 5),
        ("x = '😀' y\n", "invalid syntax", 1, 9),
        ("def f():\nx\n", "expected an indented block", 2, 1),
        ("print 'a'\n", "Missing parentheses in call to 'print'", 1, 1),
        ("x = 1\n\n\n  y = 2\n", "unexpected indent", 4, 1),
        ("x = '\n", "unterminated string literal", 1, 5),
        ("# noqa: AMP000\nx = (\n", "'(' was never closed", 2, 5),
        ("# amplint: ignore-file\nx = (\n", "'(' was never closed", 2, 5),
    ],
)
def test_a_syntax_error(source: str, message: str, row: int, column: int) -> None:
    [(found_message, found_row, found_column)] = errors(source)
    assert found_message.startswith("cannot be parsed as Python 3.")
    assert message in found_message
    assert found_row == row
    assert column <= found_column <= column + 2  # Pythons differ on an indent


def test_a_rule_that_fails_is_reported_and_the_others_run(toys: dict[str, object]) -> None:
    def fail(view: FileView) -> Iterator[Finding]:
        raise KeyError("no\nsuch\nkey")

    toys["AMP101"] = _toy("AMP101", Severity.ERROR, fail)
    result = check_source("a.py", b"bad()\n", SETTINGS)
    assert [f.code for f in result.findings] == ["AMP110"]
    [error] = result.errors
    assert error.message == (
        r"internal error of amplint in rule AMP101 (KeyError: 'no\nsuch\nkey'); "
        "please report it with the file"
    )


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (RecursionError(), "internal error of amplint in the analysis (RecursionError); please"),
        (MemoryError(), "needs more memory to be analysed than there is"),
        (AssertionError(), "internal error of amplint in rule AMP101 (AssertionError); please"),
        (ValueError("x" * 999), f"(ValueError: {'x' * 188}); please report"),
    ],
)
def test_a_failure(toys: dict[str, object], error: Exception, words: str) -> None:
    def fail(view: FileView) -> Iterator[Finding]:
        raise error

    toys["AMP101"] = _toy("AMP101", Severity.ERROR, fail)
    [found_error] = check_source("a.py", b"good()\n", SETTINGS).errors
    assert words in found_error.message


def test_a_program_is_nested_too_deeply_only_if_it_is_nested(toys: dict[str, object]) -> None:
    def fail(view: FileView) -> Iterator[Finding]:
        raise RecursionError

    toys["AMP101"] = _toy("AMP101", Severity.ERROR, fail)
    deep = b"x = " + b"-" * 70 + b"good()\n"
    [error] = check_source("a.py", deep, SETTINGS).errors
    assert error.message == "is nested too deeply to be analysed"


def test_a_failure_of_the_analysis(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> tuple[Misuse, ...]:
        raise IndexError("list index out of range")

    monkeypatch.setattr("amplint.flow.engine.find_misuses", fail)
    [(message, _, _)] = errors("x = 1\n")
    assert "internal error of amplint in the analysis (IndexError: list index" in message


def test_debugging_raises(toys: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(view: FileView) -> Iterator[Finding]:
        raise KeyError("key")

    monkeypatch.setenv("AMPLINT_DEBUG", "1")
    toys["AMP101"] = _toy("AMP101", Severity.ERROR, fail)
    with pytest.raises(KeyError):
        check_source("a.py", b"x = 1\n", SETTINGS)


def test_an_interrupt_ends_the_run(toys: dict[str, object]) -> None:
    def interrupt(view: FileView) -> Iterator[Finding]:
        raise KeyboardInterrupt

    toys["AMP101"] = _toy("AMP101", Severity.ERROR, interrupt)
    write("a.py", MARK)
    with pytest.raises(KeyboardInterrupt):
        check_paths(["."], SETTINGS)


def test_warnings_of_the_checked_file_are_not_shown(recwarn: pytest.WarningsRecorder) -> None:
    assert check_source("a.py", b"x = '\\d'\nassert (x, 1)\nx is 1\n", SETTINGS).errors == ()
    assert list(recwarn) == []


# -- processes -------------------------------------------------------------------------

_ODD_INSPECT = """
import os, signal
from amplint.inspection import inspect as really_inspect

def inspect(task):
    if "deadly" in task.source.filename:
        os.kill(os.getpid(), signal.SIGKILL)
    return really_inspect(task)
"""


@pytest.mark.skipif(os.name != "posix", reason="a process is killed by a signal")
def test_a_worker_that_dies_costs_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write("lib/odd_inspect.py", _ODD_INSPECT)
    monkeypatch.syspath_prepend(str(tmp_path / "lib"))
    import odd_inspect  # type: ignore[import-not-found]

    monkeypatch.setattr(checker, "inspect", odd_inspect.inspect)
    for number in range(6):
        write(f"src/ok{number}.py", MARK + "x = 1  # noqa: AMP999\n")
    write("src/deadly.py", MARK)
    report = check_paths(["src"], Settings(jobs=2))
    sys.modules.pop("odd_inspect")
    assert [(e.filename, e.message) for e in report.errors] == [("src/deadly.py", checker.KILLED)]
    assert len({f.filename for f in report.findings}) == 6
    assert report.files == 7


def test_processes_follow_imports_from_relative_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stands in another file is found from where the paths start, in every process."""
    monkeypatch.chdir(tmp_path)
    Path("package").mkdir()
    Path("package/helper.py").write_text("def undo(scaler, optimizer):\n    scaler.update()\n")
    text = (
        "from helper import undo\n"
        "def train(model, loader, optimizer, scaler):\n"
        "    for x, y in loader:\n"
        "        optimizer.zero_grad()\n"
        "        scaler.scale(model(x, y)).backward()\n"
        "        scaler.unscale_(optimizer)\n"
        "        undo(scaler, optimizer)\n"
        "        scaler.step(optimizer)\n"
        "        scaler.update()\n"
    )
    for name in ("first", "second", "third"):
        Path(f"package/{name}.py").write_text(text)
    alone, together = (check_paths(["package"], Settings(jobs=n, cache=False)) for n in (1, 2))
    assert together.findings == alone.findings
    assert {step.filename for step in together.findings[0].path} >= {"package/helper.py"}


def test_processes_give_the_same_report() -> None:
    for number in range(8):
        write(f"a{number}.py", MARK + f"x = {number}  # noqa: AMP999\n")
    write("broken.py", MARK + "x = (\n")
    alone, together = (replace(check_paths(["."], Settings(jobs=n)), seconds=0.0) for n in (1, 2))
    assert alone == together
    assert len(alone.findings) == 8
    assert len(alone.errors) == 1


@pytest.mark.parametrize(
    ("jobs", "characters", "expected"),
    [(0, 100, False), (0, checker.WORTH_PROCESSES, True), (1, 10**6, False), (2, 100, True)],
)
def test_processes_are_started_only_where_they_pay(
    jobs: int, characters: int, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[int] = []

    def run(
        function: object, tasks: list[inspection.Task], processes: int, **options: object
    ) -> Iterator[object]:
        started.append(processes)
        return iter([(task, FileResult(task.source.filename)) for task in tasks])

    monkeypatch.setattr(workers, "run", run)
    monkeypatch.setattr(workers, "available_processors", lambda: 4)
    monkeypatch.setattr(checker, "inspect", lambda task: FileResult(task.source.filename))
    for name in ("a.py", "b.py", "c.py"):
        write(name, MARK + "#" * (characters // 3))
    check_paths(["."], Settings(jobs=jobs))
    assert started == ([jobs or 3] if expected else [])


def test_the_project_root_decides_where_imports_are_found(tmp_path: Path) -> None:
    """A helper in a source folder of the project is followed only if the settings name it."""
    (tmp_path / "lib" / "helpers").mkdir(parents=True)
    (tmp_path / "lib" / "helpers" / "__init__.py").write_text("")
    (tmp_path / "lib" / "helpers" / "steps.py").write_text(
        "def finish(scaler, optimizer):\n    scaler.step(optimizer)\n    optimizer.zero_grad()\n"
    )
    script = tmp_path / "jobs" / "train.py"
    script.parent.mkdir()
    script.write_text(
        "import torch\n"
        "from helpers.steps import finish\n"
        "def train(model, loader, optimizer):\n"
        "    scaler = torch.amp.GradScaler('cuda')\n"
        "    for x in loader:\n"
        "        scaler.scale(model(x)).backward()\n"
        "        finish(scaler, optimizer)\n"
    )
    alone = check_paths([str(script)], SETTINGS)
    known = check_paths([str(script)], replace(SETTINGS, project_root=str(tmp_path), src=("lib",)))
    assert [finding.code for finding in alone.findings] == []
    assert [finding.code for finding in known.findings] == ["AMP105"]


#: Clips gradients that nobody has unscaled, and the file of another folder that scaled them.
APART = {
    "engine/loop.py": """\
import torch


def finish(scaler, optimizer, model):
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
""",
    "apps/main.py": """\
import torch

from engine.loop import finish

scaler = torch.amp.GradScaler("cuda")


def train(model, loader, optimizer):
    for batch in loader:
        optimizer.zero_grad()
        scaler.scale(model(batch).mean()).backward()
        finish(scaler, optimizer, model)
""",
}


@pytest.mark.parametrize(
    ("checked", "mark", "expected"),
    [
        (".", "", ["AMP110"]),
        ("apps/main.py", "", []),  # named by itself, it has the folder around it
        (".", "apps/setup.py", []),  # a project of its own, which has no other folder
    ],
)
def test_without_a_project_file_the_checked_folder_is_the_project(
    checked: str, mark: str, expected: list[str], tmp_path: Path
) -> None:
    for name, text in (*APART.items(), *([(mark, "")] if mark else [])):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    report = check_paths([str(tmp_path / checked)], SETTINGS)
    assert [finding.code for finding in report.findings] == expected


@pytest.mark.parametrize("most", [1, 5_000])
def test_a_project_too_large_to_look_for_callers_is_not_accused(
    most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a caller would tie together is not reported where nobody looks for callers."""
    monkeypatch.setattr(texts, "_SEARCH_LIMIT", most)
    fixture = ROOT / "fixtures" / "projects" / "guards_tied_by_caller"
    shutil.copytree(fixture, tmp_path / "project")
    settings = replace(SETTINGS, project_root=str(tmp_path / "project"))
    report = check_paths([str(tmp_path / "project")], settings)
    assert not report.findings
