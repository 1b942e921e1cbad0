"""Which findings `scripts/probe_findings.py` asks about: those that every reader calls true."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
COMMIT = "0123456789abcdef"
HEAD = "repository\tcommit\tfile\trow\tcode\tseverity\tstanding\tmessage\tverdict\treader\treason"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        return importlib.import_module("probe_findings")
    finally:
        sys.path.pop(0)


def _row(file: str, verdict: str) -> str:
    return f"Me/Net\t{COMMIT}\t{file}\t9\tAMP110\terror\t\tit clips\t{verdict}\tfirst\tseen"


def test_a_row_counts_if_all_readers_call_it_true(script: ModuleType, tmp_path: Path) -> None:
    folder = tmp_path / "Me__Net@0123456789ab"
    folder.mkdir()
    for name in ("true.py", "split.py", "wrong.py"):
        (folder / name).write_text("", encoding="utf-8")
    sheet = tmp_path / "batch-x-sheet.tsv"
    rows = [_row("true.py", "true"), _row("split.py", "true"), _row("split.py", "harmless")]
    rows += [_row("wrong.py", "false"), _row("gone.py", "true"), _row("true.py", "true")]
    sheet.write_text("\n".join([HEAD, *rows]), encoding="utf-8")
    checkouts = {folder.name.lower(): folder}
    [truth] = script._of_sheets([sheet], checkouts)
    assert (truth.listed, truth.path, truth.rows, truth.codes) == (
        *("batch-x", "true.py"),
        *((9,), ("AMP110",)),
    )


def test_only_bugs_of_a_list_are_asked_about(script: ModuleType, tmp_path: Path) -> None:
    folder = tmp_path / "Me__Net@0123456789ab"
    entry = {"repo": "Me/Net", "commit": COMMIT, "path": "a.py", "lines": [3], "codes": ["AMP105"]}
    entries = [{**entry, "kind": "bug"}, {**entry, "kind": "clean"}]
    listed = tmp_path / "list.jsonl"
    listed.write_text("\n".join(map(json.dumps, entries)), encoding="utf-8")
    [truth] = script._of_lists([listed], {folder.name.lower(): folder})
    assert (truth.path, truth.rows, truth.codes) == ("a.py", (3,), ("AMP105",))
