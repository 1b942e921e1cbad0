"""Whether autograd records at a place: each program is executed, and torch is asked there."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

import pytest

from amplint.amp.grad_modes import OFF, OPEN, mode_at
from amplint.view import view_of

pytest.importorskip("torch")

START = """
from contextlib import contextmanager, nullcontext
import torch
def ask():
    print(torch.is_grad_enabled(), torch.is_inference_mode_enabled())
"""

#: (name, program, the mode that is told at its call of `ask`)
PROGRAMS = (
    ("plain", "ask()", ""),
    ("a block", "with torch.no_grad():\n    ask()", "no_grad"),
    ("inference", "with torch.inference_mode():\n    ask()", "inference_mode"),
    ("under another name", "quiet = torch.no_grad\nwith torch.no_grad():\n    ask()", "no_grad"),
    ("imported by name", "from torch import no_grad as still\nwith still():\n    ask()", "no_grad"),
    ("a kept context", "still = torch.no_grad()\nwith still:\n    ask()", "no_grad"),
    ("behind a block", "with torch.no_grad():\n    pass\nask()", ""),
    (
        "the innermost decides",
        "with torch.no_grad():\n    with torch.enable_grad():\n        ask()",
        "on",
    ),
    (
        "the last of a line decides",
        "with torch.enable_grad(), torch.no_grad():\n    ask()",
        "no_grad",
    ),
    ("set off", "with torch.set_grad_enabled(False):\n    ask()", "no_grad"),
    ("set on", "with torch.set_grad_enabled(True):\n    ask()", "on"),
    ("set by name", "with torch.set_grad_enabled(mode=False):\n    ask()", "no_grad"),
    ("no inference", "with torch.inference_mode(False):\n    ask()", "on"),
    ("a flag", "import os\nwith torch.set_grad_enabled(bool(os.sep)):\n    ask()", "open"),
    (
        "a choice",
        "import os\nwith torch.no_grad() if os.sep else nullcontext():\n    ask()",
        "open",
    ),
    ("a decorator", "@torch.no_grad()\ndef run():\n    ask()\nrun()", "no_grad"),
    (
        "a block inside a decorated function",
        "@torch.no_grad()\ndef run():\n    with torch.enable_grad():\n        ask()\nrun()",
        "on",
    ),
    ("a caller", "def run():\n    ask()\nwith torch.no_grad():\n    run()", "no_grad"),
    (
        "a caller's caller",
        (
            "def inner():\n    ask()\ndef outer():\n    inner()\n"
            "@torch.no_grad()\ndef evaluate():\n    outer()\nevaluate()"
        ),
        "no_grad",
    ),
    (
        "callers that do not agree",
        "def run():\n    ask()\nwith torch.no_grad():\n    run()\nrun()",
        "",
    ),
    (
        "two ways of none",
        (
            "def run():\n    ask()\nwith torch.no_grad():\n    run()\n"
            "with torch.inference_mode():\n    run()"
        ),
        "no_grad",
    ),
    (
        "called through a value, too",
        "def run():\n    ask()\nwith torch.no_grad():\n    run()\n[each() for each in (run,)]",
        "",
    ),
    (
        "a method",
        (
            "class Run:\n    def one(self):\n        ask()\n    def all(self):\n"
            "        with torch.no_grad():\n            self.one()\nRun().all()"
        ),
        "no_grad",
    ),
    (
        "an own context manager",
        "@contextmanager\ndef still():\n    with torch.no_grad():\n        yield\nwith still():\n    ask()",
        "no_grad",
    ),
    (
        "an own context manager of another kind",
        "@contextmanager\ndef timed():\n    yield\nwith timed():\n    ask()",
        "",
    ),
    (
        "own ones that could enter each other for ever",
        (
            "@contextmanager\ndef one(n):\n    with other(n - 1) if n else nullcontext():\n        yield\n"
            "@contextmanager\ndef other(n):\n    with one(n - 1) if n else nullcontext():\n        yield\n"
            "with one(2):\n    ask()"
        ),
        "",
    ),
    (
        "a choice that chooses itself",
        (
            "def run(still=None):\n    still = still if still else torch.no_grad()\n"
            "    with still:\n        ask()\nrun(nullcontext())"
        ),
        "",
    ),
    (
        "an own one that gives another",
        "def still():\n    return torch.no_grad()\nwith still():\n    ask()",
        "no_grad",
    ),
)


@pytest.mark.parametrize(
    ("program", "mode"), [row[1:] for row in PROGRAMS], ids=[row[0] for row in PROGRAMS]
)
def test_what_is_told_is_what_torch_has(
    program: str, mode: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "train.py"
    (tmp_path / "pyproject.toml").write_text("")
    source = START + textwrap.dedent(program) + "\n"
    script.write_text(source)
    view = view_of(str(script), source, ast.parse(source), path=str(script))
    (site,) = (site for site in view.module.calls if site.method == "ask")
    assert mode_at(view.objects, site.node, site.function) == mode
    exec(compile(source, str(script), "exec"), {})  # noqa: S102 (a program of this file)
    printed = capsys.readouterr().out
    seen = {tuple(word == "True" for word in row.split()) for row in printed.splitlines()}
    assert seen
    if mode in OFF:
        assert not any(enabled for enabled, _ in seen)
    elif mode != OPEN:
        assert any(enabled for enabled, _ in seen)
    if mode == "inference_mode":
        assert all(inferring for _, inferring in seen)
