"""Names, sources and settings that hold commands to a terminal or to a CI runner.

GitHub's runner obeys a line that begins with "::", after blanks, and "##[" anywhere in a line;
Azure's obeys "##vso[". A terminal obeys control characters, and the bidirectional ones make a line
read differently from what it says.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest

NAMES = (
    "::stop-commands::x.py",
    " ::add-mask::x.py",
    "##[stop-commands]x.py",
    "##vso[task.complete]x.py",
    "a\x1b]0;title\x07.py",
    "a\n::error::x.py",
    "a\r::x.py",
    "a\x9b31m.py",
    "a\u202eyp.py",
    "a\x85b.py",
)

SOURCE = """\
import torch
def train(model, loader, optimizer):
    scaler = torch.cuda.amp.GradScaler()
    for x in loader:
        scaler.scale(model(x, "##[stop-commands]a", "\x1b[31m")).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0); "##vso[task.complete]"
        if model["::stop-commands::##[group]\x07"]:
            "\x1b]8;;x\x07 ##[stop-commands]"
            scaler.step(optimizer)
        scaler.update()  # noqa: AMP101 ##[stop-commands]\x1b[2J
"""

#: Each prints something of the files above.
RUNS = {
    "full": ("--output-format", "full", "--select", "ALL"),
    "concise": ("--output-format", "concise", "--select", "ALL"),
    "github": ("--output-format", "github", "--select", "ALL"),
    "colour": ("--output-format", "full", "--color", "always"),
    "verbose": ("--verbose",),
    "statistics": ("--statistics",),
    "diff": ("--diff", "--unsafe-fixes"),
    "fix": ("--fix", "--unsafe-fixes"),
    "show-files": ("--show-files",),
    "files": (*NAMES, "gone\n::x::\x1b.py", "::gone::.py"),
    "root": ("--project-root", "::\x1b"),
    "config": ("--config", "::stop-commands::\x1b##[x].toml"),
    "setting": ("--config", "'::stop-commands::\x1b##[x]' = 1"),
    "value": ("--config", "jobs = '''\n::stop-commands::\x1b##[x]'''"),
    "rule": ("--select", "\n::stop-commands::\x1b##[x]"),
    "pattern": ("--exclude", "[##[x]\x1b"),
    "option": ("--\n::stop-commands::\x1b##[x]",),
    "format": ("--output-format", "\n::stop-commands::\x1b##[x]"),
}


@pytest.fixture
def odd_files(empty_folder: Path) -> Path:
    if sys.platform != "linux":
        pytest.skip("other systems do not have such names")
    for name in NAMES:
        (empty_folder / name).write_text(SOURCE)
    (empty_folder / "::broken::.py").write_text("scaler = ( '##[x]\x1b'\n")
    os.link(empty_folder / NAMES[0], empty_folder / "linked")
    return empty_folder


def commands(text: str, *, color: bool = False) -> list[str]:
    """Lines that something would obey; without amplint's own annotations and colours."""
    if color:
        text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    own = re.compile(r"::(?:error|warning|notice) title=amplint \(AMP\d+\),file=[^:]*?::(?!:)")
    return [
        line
        for line in text.split("\n")
        if (line.lstrip().startswith("::") and not own.match(line))
        or re.search(
            r"##(?:\[|vso\[)|[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]", line
        )
    ]


@pytest.mark.parametrize("run_name", RUNS)
def test_nothing_is_obeyed(run, odd_files: Path, run_name: str) -> None:
    options = RUNS[run_name]
    result = run("check", *options, *(() if run_name == "files" else (".",)))
    assert result.exit_code in (0, 1, 2)
    color = run_name == "colour"
    assert commands(result.stdout, color=color) == []
    assert commands(result.stderr, color=color) == []
    assert result.stdout + result.stderr


@pytest.mark.parametrize("command", ["probe", "rule", "clean", "x\n::y::\x1b"])
def test_nothing_is_obeyed_of_other_commands(run, odd_files: Path, command: str) -> None:
    (odd_files / "amplint.toml").write_text("'##[x]' = 1")
    result = run(command, "\n::stop-commands::\x1b##[x]")
    assert result.exit_code == 2
    assert commands(result.stdout + result.stderr) == []


def test_a_configuration_file(run, odd_files: Path) -> None:
    (odd_files / "amplint.toml").write_text('"##[x]\\u001b\\n::y::" = 1')
    result = run("check")
    assert (result.exit_code, commands(result.stderr)) == (2, [])
    assert r'unknown key `"\x23#[x]\x1b\n::y::"`' in result.stderr


def test_json_is_exact(run, odd_files: Path) -> None:
    result = run("check", "--output-format", "json", ".")
    names = {finding["filename"] for finding in json.loads(result.stdout)["findings"]}
    assert names == set(NAMES)


def test_a_diff_still_applies(run, empty_folder: Path) -> None:
    """Tabs, form feeds and line ends are text."""
    text = (
        "import torch\r\n\x0c\r\n\tx = 1\r\n".replace("\t", "") + "s = torch.cuda.amp.GradScaler()"
    )
    (empty_folder / "a.py").write_bytes(text.encode())
    diff = run("check", "--diff", "a.py").stdout_bytes.decode()
    assert " \x0c\r\n" in diff
    assert '+s = torch.amp.GradScaler("cuda")\n' in diff
