"""`scripts/corpus.py` on a tiny list, with a stand-in that reports what comments tell it to."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"

# Reports every line that ends in `# says CODE SEVERITY`; `# also LINE` gives its path a step.
STAND_IN = r"""
import json, re, sys
from pathlib import Path

if sys.argv[1] == "rule":
    catalogue = [{"code": code, "name": "n", "severity": "error"} for code in ("AMP101", "AMP110")]
    print(json.dumps(catalogue))
    sys.exit(0)
findings, errors = [], []
for name in [argument for argument in sys.argv[2:] if argument.endswith(".py")]:
    text = Path(name).read_text()
    if "unreadable" in text:
        errors.append({"filename": name, "code": "AMP000", "message": "", "location": {"row": 1}})
    for row, line in enumerate(text.splitlines(), start=1):
        said = re.search(r"# says (\w+) (\w+)(?: also (\d+))?$", line)
        if said is None or (said[2] == "info" and "--extend-select" not in sys.argv):
            continue
        path = [{"filename": name, "row": int(said[3])}] if said[3] else []
        findings.append({"code": said[1], "severity": said[2], "message": "m", "filename": name,
                         "location": {"row": row}, "path": path})
print(json.dumps({"version": 1, "findings": findings, "errors": errors, "summary": {}}))
sys.exit(1 if findings else 0)
"""

BUG = {"kind": "bug", "repo": "o/n", "commit": "c" * 40, "needs": "fn", "codes": ["AMP110"]}
CLEAN = {"kind": "clean", "repo": "o/n", "commit": "c" * 40, "lines": {}, "allowed": []}


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, with the stand-in in amplint's place."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    script = importlib.import_module("corpus")
    stand_in = tmp_path / "stand_in.py"
    stand_in.write_text(STAND_IN)
    monkeypatch.setattr(script, "AMPLINT", (sys.executable, str(stand_in)))
    return script


def run(
    corpus: ModuleType, folder: Path, files: dict[str, str], records: list[dict], *options: str
) -> int:
    """Lay out one checkout, write the list and run the script."""
    for name, text in files.items():
        file = folder / "checkouts" / ("o__n@" + "c" * 12) / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    listing = folder / "list.jsonl"
    listing.write_text("".join(json.dumps(record) + "\n" for record in records))
    return corpus.main([str(listing), str(folder / "checkouts"), *options])


def at(row: int, said: str) -> str:
    """A file with a comment for the stand-in on one line."""
    return "\n" * (row - 1) + f"pass  # says {said}\n"


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ((10, "AMP110 error"), True),
        ((15, "AMP110 error"), True),
        ((16, "AMP110 error"), False),
        ((40, "AMP110 error also 8"), True),
        ((10, "AMP101 error"), False),
        ((72, "AMP110 error"), True),  # a further site
    ],
)
def test_bug_is_found_near_a_listed_line(
    corpus: ModuleType,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    said: tuple[int, str],
    found: bool,
) -> None:
    bug = {**BUG, "id": "b", "path": "a.py", "lines": [10]}
    bug["sites"] = [{"path": "a.py", "lines": [70]}]
    status = run(corpus, tmp_path, {"a.py": at(*said)}, [bug], "--min-recall", "1")
    last = capsys.readouterr().out.splitlines()[-1]
    assert status == (0 if found else 1)
    assert last.startswith("1 of 1 found (100 %)" if found else "0 of 1 found (0 %)")


@pytest.mark.parametrize(
    ("said", "alarms"),
    [
        ("AMP110 error", 1),
        ("AMP101 warning", 1),
        ("AMP203 error", 0),  # not in the catalogue of this amplint
    ],
)
def test_false_alarms_in_clean_code(
    corpus: ModuleType,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    said: str,
    alarms: int,
) -> None:
    clean = {**CLEAN, "id": "c", "paths": ["a.py"]}
    status = run(corpus, tmp_path, {"a.py": at(3, said)}, [clean])
    assert status == bool(alarms)
    assert f"{alarms} false alarms in 1 clean entries" in capsys.readouterr().out


def test_allowed_codes_and_api_age_are_no_false_alarms(corpus: ModuleType, tmp_path: Path) -> None:
    clean = {**CLEAN, "id": "c", "paths": ["a.py"], "allowed": ["AMP110"]}
    text = at(3, "AMP110 error") + at(1, "AMP801 warning")
    assert run(corpus, tmp_path, {"a.py": text}, [clean], "--codes", "AMP110,AMP801") == 0


def test_grey_bugs_do_not_count(
    corpus: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grey = {**BUG, "id": "g", "path": "a.py", "lines": [1], "grey": True}
    assert run(corpus, tmp_path, {"a.py": "pass\n"}, [grey], "--min-recall", "1", "--json") == 0
    assert json.loads(capsys.readouterr().out)["grey"] == {"g": False}


def test_advice_is_selected(corpus: ModuleType, tmp_path: Path) -> None:
    advice = {**BUG, "id": "i", "path": "a.py", "lines": [1], "tier": "info"}
    files = {"a.py": at(1, "AMP110 info")}
    assert run(corpus, tmp_path, files, [advice], "--min-recall", "1") == 0


@pytest.mark.parametrize("option", [("--needs", "class,project"), ("--codes", "AMP101")])
def test_filters_leave_out_other_bugs(
    corpus: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], option: tuple[str, str]
) -> None:
    bug = {**BUG, "id": "b", "path": "a.py", "lines": [1]}
    assert run(corpus, tmp_path, {"a.py": "pass\n"}, [bug], *option) == 0
    assert "0 of 0 found" in capsys.readouterr().out


@pytest.mark.parametrize("files", [{}, {"a.py": "unreadable\n"}])
def test_an_entry_that_cannot_be_checked_is_no_success(
    corpus: ModuleType, tmp_path: Path, files: dict[str, str]
) -> None:
    clean = {**CLEAN, "id": "c", "paths": ["a.py"]}
    assert run(corpus, tmp_path, files, [clean]) == 2
