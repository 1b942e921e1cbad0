"""`scripts/survey.py`: sheets, what readers agree on, copies, and intervals against known values."""

from __future__ import annotations

import importlib
import io
import json
from pathlib import Path
from types import ModuleType

import pytest

from amplint.findings import Standing

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = ROOT / "scripts"

# Reports what is written in the file `says.json` of the checkout, or waits until it is stopped.
STAND_IN = """
import json, sys, time
from pathlib import Path
folder = Path(sys.argv[-1])
if (folder / "slow").exists():
    time.sleep(1000)
findings = json.loads((folder / "says.json").read_text())
for finding in findings:
    finding["filename"] = str(folder / finding["filename"])
parts = [{"filename": "train.py", "functions": ["run", "main"]}] if len(findings) > 3 else []
print(json.dumps({"findings": findings, "errors": ["x"] * len(parts), "incomplete": parts}))
"""


@pytest.fixture
def survey(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module("survey")


def row(survey: ModuleType, number: int, verdict: str = "", **fields: str) -> object:
    values = {"code": "AMP101", "severity": "error", "standing": "", "message": "no step"}
    values |= fields
    return survey.Row(
        repository=values.pop("repository", "a/one"),
        commit="1" * 40,
        file="train.py",
        row=str(number),
        verdict=verdict,
        **values,
    )


def stand_in(tree: Path) -> Path:
    (tree / "amplint").mkdir()
    (tree / "amplint" / "__init__.py").write_text("")
    (tree / "amplint" / "__main__.py").write_text(STAND_IN)
    return tree


def says(severity: str, **more: object) -> dict[str, object]:
    place = {"filename": "pkg/train.py", "location": {"row": 7, "column": 5}}
    return {"code": "AMP110", "severity": severity, "message": "a\ttab", **place, **more}


def test_a_sheet_holds_errors_and_warnings(
    survey: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    links = [
        {"kind": "reach", "standing": "option", "subject": "f", "claim": "is called"},
        {"kind": "object", "standing": "code", "subject": "s", "claim": "is the scaler"},
    ]
    findings = [says("error", links=links), says("info"), says("warning")]
    first, second = sheet_of(survey, tmp_path, capsys, findings)
    assert (first.file, first.row, first.severity) == ("pkg/train.py", "7", "error")
    assert (first.standing, first.weakest) == ("object:code reach:option", "option")
    assert first.message == "a tab"
    assert (second.severity, second.weakest, second.verdict) == ("warning", "", "")


def test_a_sheet_says_what_did_not_end(
    survey: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (only,) = sheet_of(survey, tmp_path, capsys, None, "--limit", "0.5")
    assert (only.repository, only.code, only.message) == ("a/one", "", "did not end in 0.5 s")


def sheet_of(
    survey: ModuleType,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    findings: list[dict[str, object]] | None,
    *options: str,
) -> list[object]:
    """The sheet about one checkout, in which amplint finds this; None: it does not end."""
    checkout = folder / f"a__one@{'1' * 12}"
    checkout.mkdir()
    if findings is None:
        (checkout / "slow").touch()
    (checkout / "says.json").write_text(json.dumps(findings or []))
    listed = folder / "list.tsv"
    listed.write_text("# words\na/one\t" + "1" * 40 + "\tmore\n")
    (folder / "tree").mkdir()
    tree = str(stand_in(folder / "tree"))
    assert survey.main([str(listed), str(folder), "--tree", tree, *options]) == 0
    sheet = folder / "sheet.tsv"
    sheet.write_text(capsys.readouterr().out)
    return survey.read_sheet(sheet)


def test_every_standing_of_a_link_has_a_rank(survey: ModuleType) -> None:
    """A link that the report does not know would end it."""
    assert set(survey.STANDINGS) == {standing.value for standing in Standing}


def test_a_sheet_says_what_it_lacks(
    survey: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = sheet_of(survey, tmp_path, capsys, [says("info")] * 4)
    assert [(item.code, item.message) for item in found] == [
        ("", "not analysed, files: 1"),
        ("", "followed in part, functions: 2"),
    ]


def test_a_missing_checkout_is_an_error(
    survey: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = tmp_path / "list.tsv"
    listed.write_text("a/one\t" + "1" * 40 + "\n")
    assert survey.main([str(listed), str(tmp_path)]) == 2
    assert "no such folder" in capsys.readouterr().err


def test_what_is_written_is_read_again(survey: ModuleType, tmp_path: Path) -> None:
    rows = [row(survey, 1, "true", reason='says "on", and\ttab', wrong="value"), row(survey, 2)]
    text = io.StringIO()
    survey.write_sheet(rows, text)
    file = tmp_path / "sheet.tsv"
    file.write_text(text.getvalue())
    assert survey.read_sheet(file) == rows
    assert "class" in text.getvalue().splitlines()[0].split("\t")


@pytest.mark.parametrize("wrong", ["maybe", "True"])
def test_verdicts_are_checked(survey: ModuleType, tmp_path: Path, wrong: str) -> None:
    text = io.StringIO()
    survey.write_sheet([row(survey, 1, wrong)], text)
    (tmp_path / "sheet.tsv").write_text(text.getvalue())
    with pytest.raises(survey.SurveyError, match="no such verdict"):
        survey.read_sheet(tmp_path / "sheet.tsv")


def test_columns_are_checked(survey: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "sheet.tsv").write_text("repository\tcommit\n")
    with pytest.raises(survey.SurveyError, match="expected the columns"):
        survey.read_sheet(tmp_path / "sheet.tsv")


@pytest.mark.parametrize(
    ("hits", "total", "low", "high"),
    # Newcombe (Statistics in Medicine 17, 1998), table I, method 3.
    [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_gives_published_intervals(
    survey: ModuleType, hits: int, total: int, low: float, high: float
) -> None:
    assert survey.wilson(hits, total) == pytest.approx((low, high), abs=6e-5)


def test_wilson_of_nothing_says_nothing(survey: ModuleType) -> None:
    assert survey.wilson(0, 0) == (0.0, 1.0)


def test_copies_count_once_by_pattern(survey: ModuleType) -> None:
    rows = [row(survey, n, "false", pattern="p1") for n in (1, 2, 3)]
    rows += [row(survey, 4, "true"), row(survey, 5, "true")]
    rows += [row(survey, 6, "harmless", pattern="p1", code="AMP501")]
    settled = survey.settle([rows])
    assert survey.Tally.of(verdict for _, verdict in settled) == survey.Tally(2, 1, 3, 0)
    patterns = survey.by_pattern(settled)
    assert survey.Tally.of(verdict for _, verdict in patterns) == survey.Tally(2, 1, 1, 0)


def test_one_pattern_has_one_verdict(survey: ModuleType) -> None:
    rows = [row(survey, 1, "false", pattern="p1"), row(survey, 2, "true", pattern="p1")]
    with pytest.raises(survey.SurveyError, match="both false and true"):
        survey.by_pattern(survey.settle([rows]))


@pytest.mark.parametrize(
    ("verdicts", "agreed"),
    [
        ((("first", "true"), ("second", "true")), "true"),
        ((("first", "true"), ("second", "false")), "open"),
        ((("first", "true"), ("second", "")), "true"),
        ((("first", ""), ("second", "")), "open"),
        ((("first", "true"), ("second", "false"), ("execution", "false")), "false"),
    ],
)
def test_readers_agree_or_execution_decides(
    survey: ModuleType, verdicts: tuple[tuple[str, str], ...], agreed: str
) -> None:
    rows = [row(survey, 1, verdict, reader=reader) for reader, verdict in verdicts]
    for sheets in ([[item] for item in rows], [rows]):
        ((_, verdict),) = survey.settle(sheets)
        assert verdict == agreed


def test_two_findings_of_one_line_stay_two(survey: ModuleType) -> None:
    sheet = [row(survey, 1, "true"), row(survey, 1, "true")]
    assert len(survey.settle([sheet, sheet])) == 2


def test_the_report_counts_by_level_rule_and_standing(survey: ModuleType) -> None:
    rows = [
        row(survey, 1, "true", standing="object:code"),
        row(survey, 2, "false", standing="object:code reach:option", wrong="reach"),
        row(survey, 3, "open", severity="warning", code="AMP501"),
        row(survey, 4, "", code="", severity="", message="did not end in 2 s"),
    ]
    text = survey.render([rows])
    assert "| error | 2 | 1 | 0 | 1 | 0 | 50% (9% to 91%) | 50% (9% to 91%) |" in text
    assert "| warning | 1 | 0 | 0 | 0 | 1 | - | - |" in text
    assert "| all | 3 | 1 | 0 | 1 | 1 |" in text
    assert "| AMP501 warning | 1 |" in text
    assert "| option | 1 | 0 | 0 | 1 |" in text
    assert "| reach | 1 | 0 | 0 | 1 |" in text
    assert text.endswith("- a/one: did not end in 2 s")


def test_a_finding_counts_for_each_of_its_links_and_copies_once(survey: ModuleType) -> None:
    rows = [
        row(survey, 1, "true", standing="object:code object:code value:option"),
        row(survey, 2, "false", standing="object:code", pattern="p1"),
        row(survey, 3, "false", standing="object:code", pattern="p1"),
    ]
    text = survey.render_links([rows])
    assert "| object:code | 2 | 1 | 0 | 1 | 0 |" in text
    assert "| value:option | 1 | 1 | 0 | 0 | 0 |" in text
    assert "| error: any | 2 | 1 | 0 | 1 | 0 |" in text


SHEETS = sorted((ROOT / "docs" / "survey").glob("*-sheet.tsv"))


@pytest.mark.parametrize("sheet", SHEETS, ids=lambda sheet: sheet.stem)
def test_the_page_of_a_batch_holds_the_sums_of_its_sheet(survey: ModuleType, sheet: Path) -> None:
    page = sheet.with_name(f"{sheet.stem.removesuffix('-sheet')}.md")
    begin, end = f"<!-- {sheet.stem}: begin -->\n", f"\n<!-- {sheet.stem}: end -->"
    _, found, rest = page.read_text("utf-8").partition(begin)
    assert found
    assert rest.partition(end)[0] == survey.render([survey.read_sheet(sheet)])


def test_the_documentation_has_a_line_for_each_batch(survey: ModuleType) -> None:
    text = (ROOT / "docs" / "precision.md").read_text("utf-8")
    _, found, rest = text.partition("<!-- batches: begin -->\n")
    assert found
    sheets = {survey._batch_of(sheet): survey.read_sheet(sheet) for sheet in SHEETS}
    assert rest.partition("\n<!-- batches: end -->")[0] == survey.render_batches(sheets)


def test_a_batch_is_one_line(survey: ModuleType) -> None:
    rows = [
        row(survey, 1, "true"),
        row(survey, 2, "false", pattern="p1"),
        row(survey, 3, "false", pattern="p1"),
        row(survey, 4, "harmless", severity="warning"),
        row(survey, 5, "open", severity="warning"),
    ]
    line = survey.render_batches({"Z": rows}).splitlines()[-1]
    assert line == (
        "| Z | 1 of 3 true | 1 of 2 true | 0 of 1 true, 1 harmless, 1 open "
        "| 0 of 1 true, 1 harmless, 1 open |"
    )


@pytest.mark.parametrize("part", ["links", "rules"])
def test_the_documentation_holds_what_they_are_worth(survey: ModuleType, part: str) -> None:
    text = (ROOT / "docs" / "precision.md").read_text("utf-8")
    sheets = sorted((ROOT / "docs" / "survey").glob("*-sheet.tsv"))
    _, found, rest = text.partition(f"<!-- {part}: begin -->\n")
    assert found
    table = rest.partition(f"\n<!-- {part}: end -->")[0]
    render = getattr(survey, f"render_{part}")
    assert table == render([survey.read_sheet(sheet) for sheet in sheets])


def test_a_rule_is_worth_the_same_at_every_level(survey: ModuleType) -> None:
    rows = [row(survey, 1, "true", severity="warning"), row(survey, 2, "false")]
    assert "| AMP101 | 2 | 1 | 0 | 1 | 0 |" in survey.render_rules([rows])
