"""`scripts/ecosystem.py` between two stand-ins that report what words in the code tell them to."""

from __future__ import annotations

import importlib
import json
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"

# Reports every line of the checked files that holds one of `WORDS`; "broken" is no Python.
STAND_IN = r"""
import json, os, sys
from pathlib import Path

WORDS = {words!r}
findings, errors = [], []
for file in sorted(Path(sys.argv[-1]).rglob("*.py")):
    name = os.path.relpath(file).replace(os.sep, "/")
    for row, line in enumerate(file.read_text().splitlines(), start=1):
        place = {{"filename": name, "location": {{"row": row, "column": 1}}}}
        if "crash" in line and "crash" in WORDS:
            sys.exit("it crashed")
        if "broken" in line:
            errors.append({{**place, "code": "AMP000", "message": WORDS[0]}})
        for word in WORDS:
            if word in line:
                code = "AMP101" if word == "step" else "AMP110"
                findings.append({{**place, "code": code, "severity": "error", "message": word}})
print(json.dumps({{"findings": findings, "errors": errors}}))
sys.exit(1 if findings else 0)
"""

COMMITS = {"a/one": "1" * 40, "b/two": "2" * 40}


def stand_in(folder: Path, *words: str) -> Path:
    """A source tree whose amplint reports lines with one of the words."""
    for name in ("amplint/__init__.py", "rules/__init__.py", "pyproject.toml"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    (folder / "amplint" / "__main__.py").write_text(STAND_IN.format(words=words))
    return folder


@pytest.fixture
def ecosystem(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module("ecosystem")


@pytest.fixture
def checkouts(tmp_path: Path) -> tuple[str, str]:
    """The list and the folder of two checkouts."""
    for (name, commit), text in zip(
        COMMITS.items(), ("pass\nstep\nclip\n", "x = 1\nclip step\n"), strict=True
    ):
        file = tmp_path / "checkouts" / f"{name.replace('/', '__')}@{commit[:12]}" / "lib" / "x.py"
        file.parent.mkdir(parents=True)
        file.write_text(text)
    listing = tmp_path / "list.tsv"
    rows = [f"{name}\t{commit}\t7 files\n" for name, commit in COMMITS.items()]
    listing.write_text("# repo\tcommit\n\n" + "".join(rows))
    return str(listing), str(tmp_path / "checkouts")


def test_nothing_changed(
    ecosystem: ModuleType,
    tmp_path: Path,
    checkouts: tuple[str, str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    tree = str(stand_in(tmp_path / "tree", "step"))
    assert ecosystem.main([tree, tree, *checkouts]) == 0
    assert capsys.readouterr().out == "0 findings appeared and 0 went, in 0 of 2 checkouts\n"


def test_what_appeared_and_what_went_by_repository_and_code(
    ecosystem: ModuleType,
    tmp_path: Path,
    checkouts: tuple[str, str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = str(stand_in(tmp_path / "before", "step"))
    after = str(stand_in(tmp_path / "after", "clip"))
    assert ecosystem.main([before, after, *checkouts]) == 1
    assert (
        capsys.readouterr().out
        == """\
a/one@111111111111: +1 -1
  AMP101
    - lib/x.py:2:1: error AMP101 step
  AMP110
    + lib/x.py:3:1: error AMP110 clip

b/two@222222222222: +1 -1
  AMP101
    - lib/x.py:2:1: error AMP101 step
  AMP110
    + lib/x.py:2:1: error AMP110 clip

2 findings appeared and 2 went, in 2 of 2 checkouts
"""
    )


def test_markdown(
    ecosystem: ModuleType,
    tmp_path: Path,
    checkouts: tuple[str, str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = str(stand_in(tmp_path / "before", "step"))
    after = str(stand_in(tmp_path / "after", "step", "x = 1"))
    assert ecosystem.main([before, after, *checkouts, "--markdown"]) == 1
    assert (
        capsys.readouterr().out
        == """\
**1 finding appeared and 0 went, in 1 of 2 checkouts**

| code | appeared | went |
|---|---|---|
| AMP110 | 1 | 0 |

<details><summary>b/two@222222222222: +1 -0</summary>

AMP110

```diff
+ lib/x.py:1:1: error AMP110 x = 1
```

</details>
"""
    )


def test_json(
    ecosystem: ModuleType,
    tmp_path: Path,
    checkouts: tuple[str, str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = str(stand_in(tmp_path / "before", "pass"))
    after = str(stand_in(tmp_path / "after", "nothing"))
    assert ecosystem.main([before, after, *checkouts, "--json"]) == 1
    (changed,) = (document := json.loads(capsys.readouterr().out))["changed"]
    assert document["compared"] == 2
    assert (changed["repository"], changed["commit"]) == ("a/one", "1" * 40)
    assert (changed["appeared"], changed["problem"]) == ([], None)
    assert changed["went"] == [
        {
            "code": "AMP110",
            "filename": "lib/x.py",
            "row": 1,
            "column": 1,
            "severity": "error",
            "message": "pass",
        }
    ]


def test_a_file_that_can_no_longer_be_analysed_appears(
    ecosystem: ModuleType,
    tmp_path: Path,
    checkouts: tuple[str, str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    for file in Path(checkouts[1]).rglob("x.py"):
        file.write_text("broken\n")
    before = str(stand_in(tmp_path / "before", "one"))
    after = str(stand_in(tmp_path / "after", "other"))
    assert ecosystem.main([before, before, *checkouts]) == 0
    assert ecosystem.main([before, after, *checkouts]) == 1
    assert "+ lib/x.py:1:1: error AMP000 other" in capsys.readouterr().out


def test_what_cannot_be_compared_is_status_2_and_the_rest_is_printed(
    ecosystem: ModuleType,
    tmp_path: Path,
    checkouts: tuple[str, str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    (file,) = Path(checkouts[1]).rglob("a__one*/lib/x.py")
    file.write_text("crash\n")
    before = str(stand_in(tmp_path / "before", "clip"))
    after = str(stand_in(tmp_path / "after", "step", "crash"))
    assert ecosystem.main([before, after, *checkouts]) == 2
    output = capsys.readouterr().out
    assert "a/one@111111111111: not compared: amplint of" in output
    assert "status 1: it crashed" in output
    assert "+ lib/x.py:2:1: error AMP101 step" in output
    assert output.endswith("1 finding appeared and 1 went, in 1 of 2 checkouts; 1 not compared\n")


def test_a_missing_checkout(
    ecosystem: ModuleType,
    tmp_path: Path,
    checkouts: tuple[str, str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path(checkouts[0]).write_text(f"a/one\t{'3' * 40}\n")
    tree = str(stand_in(tmp_path / "tree", "step"))
    assert ecosystem.main([tree, tree, *checkouts]) == 2
    assert "a/one@333333333333: not compared: no such folder" in capsys.readouterr().out


def test_commits_of_this_repository(
    ecosystem: ModuleType,
    tmp_path: Path,
    checkouts: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    repository = tmp_path / "repository"
    monkeypatch.setattr(ecosystem, "REPOSITORY", repository)
    git = ["git", "-C", str(repository), "-c", "user.name=n", "-c", "user.email=e@example.org"]
    for number, word in enumerate(("step", "clip")):
        stand_in(repository, word)
        if number == 0:
            subprocess.run([*git, "init", "-q"], check=True)
        subprocess.run([*git, "add", "."], check=True)
        subprocess.run([*git, "commit", "-q", "-m", word], check=True)
    assert ecosystem.main(["HEAD~1", "HEAD", *checkouts]) == 1
    assert "2 findings appeared and 2 went" in capsys.readouterr().out
    assert ecosystem.main(["HEAD", str(repository), *checkouts]) == 0


def test_what_is_no_commit(
    ecosystem: ModuleType, checkouts: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert ecosystem.main(["no-such-commit", "HEAD", *checkouts]) == 2
    assert "neither a folder nor a commit" in capsys.readouterr().err


def test_a_line_without_a_commit(
    ecosystem: ModuleType, checkouts: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path(checkouts[0]).write_text("a/one\n")
    assert ecosystem.main([".", ".", *checkouts]) == 2
    assert "list.tsv:1: expected owner/name, a tab and a commit" in capsys.readouterr().err


def test_the_real_amplint_agrees_with_itself(
    ecosystem: ModuleType, checkouts: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    (file,) = Path(checkouts[1]).rglob("a__one*/lib/x.py")
    file.write_text("from torch.amp import GradScaler\nscaler = GradScaler('cuda')\n")
    tree = str(SCRIPTS.parent)
    assert ecosystem.main([tree, tree, *checkouts, "--select", "ALL"]) == 0
