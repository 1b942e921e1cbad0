"""What a command line and a data file give, where the code leaves no choice."""

from __future__ import annotations

from pathlib import Path

import pytest

from amplint.checker import check_paths
from amplint.config import Settings

HEAD = """\
import argparse, os, pathlib
import json, tomllib
import yaml
import torch

"""
REST = """

class Head(torch.nn.Module):
    def forward(self, x, mask):
        with torch.autocast("cuda", enabled=SWITCH):
            return torch.matmul(x, x.transpose(-2, -1)).masked_fill(mask, -1e9)
"""
PARSER = """\
parser = argparse.ArgumentParser()
parser.add_argument("--half", action="store_true")
SWITCH = parser.parse_args({given}).half
"""


def codes(folder: Path, text: str) -> list[str]:
    """Codes found in a file with this text, alone in a folder."""
    (folder / "head.py").write_text(HEAD + text + REST, encoding="utf-8")
    settings = Settings(jobs=1, cache=False, project_root=str(folder))
    report = check_paths([str(folder / "head.py")], settings)
    assert not report.errors
    return [found.code for found in report.findings]


@pytest.mark.parametrize(
    ("given", "expected"),
    [("[]", []), ("", ["AMP503"]), ("['--half']", ["AMP503"]), ("None", ["AMP503"])],
)
def test_nobody_gives_an_option_to_an_empty_command_line(
    given: str, expected: list[str], tmp_path: Path
) -> None:
    assert codes(tmp_path, PARSER.format(given=given)) == expected


@pytest.mark.parametrize("store", ["job.options.half = True", "self.options.half = True"])
def test_an_option_that_somebody_sets_later_is_open(store: str, tmp_path: Path) -> None:
    """The namespace is kept in an attribute, and another method turns the option on."""
    text = f"""
class Job:
    def __init__(self):
        self.options = self.read()
        self.model = torch.nn.Linear(3, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def read(self):
        parser = argparse.ArgumentParser()
        parser.add_argument("--half", action="store_true", default=False)
        return parser.parse_args([])

    def turn_on(self, job):
        {store}

    def train(self, batches):
        scaler = torch.amp.GradScaler("cuda", enabled=self.options.half)
        with torch.autocast("cuda", enabled=self.options.half):
            for batch in batches:
                self.optimizer.zero_grad()
                scaler.scale(self.model(batch).mean()).backward()
                scaler.step(self.optimizer)
                scaler.update()
"""
    assert "AMP304" in codes(tmp_path, text.replace("SWITCH", "True") + "SWITCH = False")
    closed = text.replace(store, "pass") + "SWITCH = False"
    assert "AMP304" not in codes(tmp_path, closed)


@pytest.mark.parametrize(
    "path",
    [
        "(pathlib.Path(__file__).parent / 'run.{kind}').read_text()",
        "pathlib.Path(__file__).resolve().parent.joinpath('run.{kind}').read_text()",
        "open(os.path.join(os.path.dirname(os.path.abspath(__file__)), 'run.{kind}')).read()",
        "open('run.{kind}').read()",
    ],
)
@pytest.mark.parametrize(
    ("kind", "load", "content"),
    [
        ("yaml", "yaml.safe_load", "half: {value}\n"),
        ("json", "json.loads", '{{"half": {value}}}'),
        ("toml", "tomllib.loads", "half = {value}\n"),
    ],
)
def test_a_data_file_beside_the_code_is_read(
    path: str, kind: str, load: str, content: str, tmp_path: Path
) -> None:
    text = f"SWITCH = {load}({path.format(kind=kind)})['half']\n"
    for value, expected in (("false", []), ("true", ["AMP503"])):
        (tmp_path / f"run.{kind}").write_text(content.format(value=value), encoding="utf-8")
        assert codes(tmp_path, text) == expected
