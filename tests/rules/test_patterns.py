"""Patterns: which candidates they accept, what they say, and when LibCST is loaded."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from amplint.authoring import Candidate, Pattern, check_of, m
from amplint.findings import Finding, Severity
from amplint.rule import Rule
from amplint.view import FileView, view_of

RULE = Rule("ACM901", "empty", Severity.WARNING, "perf", "a pattern of a test")


def found(source: str, *patterns: Pattern) -> list[Finding]:
    module: Any = SimpleNamespace(__name__="rule", RULE=RULE, PATTERNS=patterns)
    return list(check_of(module)(view_of("train.py", source, ast.parse(source))))


def saving(found: Candidate) -> Any:
    """A call with one argument, which is saved."""
    return m.Call(args=[m.Arg(value=m.SaveMatchedNode(m.DoNotCare(), "given"))])


def numbers(view: FileView) -> Iterator[Candidate]:
    """Calls whose last argument is a number."""
    for site in view.module.calls:
        if site.node.args and isinstance(site.node.args[-1], ast.Constant):
            yield Candidate(site.node, parts={"number": site.node.args[-1]}, words={"row": "here"})


def test_what_a_matcher_saves_is_a_word() -> None:
    pattern = Pattern(saving, "`{given}` goes", "drop `{given}`", callees=("torch.manual_seed",))
    source = "from torch import manual_seed as seed\nseed(a + 1)\nseed()\nother(2)\n"
    (finding,) = found(source, pattern)
    assert (finding.span.start.row, finding.message) == (2, "`a + 1` goes")
    assert finding.help == "drop `a + 1`"
    rests = [(link.kind, link.subject, link.claim) for link in finding.links]
    assert rests[0] == ("object", "seed", "is torch.manual_seed")
    assert rests[1][:2] == ("value", "seed(a + 1)")


def test_the_first_pattern_for_a_place_speaks() -> None:
    second = Pattern(
        lambda code: m.Call(args=[m.DoNotCare(), m.Arg(value=code.is_a("number"))]),
        "second {row}",
        "",
        candidates=numbers,
    )
    every = Pattern(lambda _: m.Call(), "any {row}", "", candidates=numbers)
    told = [finding.message for finding in found("f(1, 2)\nf(2, 2)\nf(3)\n", second, every)]
    assert sorted(told) == ["any here", "second here", "second here"]


def test_a_replacement_that_raises_is_no_fix() -> None:
    def refuse(call: Any) -> Any:
        if call.args:
            raise ValueError
        return call

    pattern = Pattern(lambda _: m.Call(), "", "", callees=("torch.manual_seed",), replace=refuse)
    source = "import torch\ntorch.manual_seed(1)\ntorch.manual_seed()\n"
    assert [finding.fix is not None for finding in found(source, pattern)] == [False, True]


def test_libcst_is_loaded_for_a_candidate_only() -> None:
    program = (
        "import ast, sys\n"
        "from amplint.authoring import check_of\n"
        "from amplint.rules import load\n"
        "from amplint.view import view_of\n"
        "for source in sys.argv[1:]:\n"
        "    view = view_of('train.py', source, ast.parse(source))\n"
        "    list(check_of(load('AMP208'))(view)), list(check_of(load('AMP605'))(view))\n"
        "    print('libcst' in sys.modules)\n"
    )
    right = "import torch\nscaler = torch.amp.GradScaler('cuda', enabled=False)\nfp16 = {1: 2}\n"
    wrong = right.replace("enabled=", "")
    run = subprocess.run(
        [sys.executable, "-c", program, right, wrong],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.stdout.split() == ["False", "True"], run.stderr
