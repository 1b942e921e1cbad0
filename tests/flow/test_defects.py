"""Which of several reports of one defect is told."""

from __future__ import annotations

import ast
from dataclasses import replace

import pytest

from amplint.findings import Link, Standing
from amplint.flow import engine
from amplint.flow.defects import Found, distinct
from amplint.view import view_of

PROGRAM = """
import torch

def train(net, pages, opt):
    gs = torch.amp.GradScaler("cuda")
    for page in pages:
        gs.scale(net(page).mean()).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        gs.step(opt)
        gs.update()
        opt.zero_grad()
"""


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> Found:
    """The report of the clip, as the engine has it before duplicates are removed."""
    seen: list[Found] = []
    monkeypatch.setattr(engine, "distinct", lambda found: seen.extend(found) or [])
    assert view_of("train.py", PROGRAM, ast.parse(PROGRAM)).flow_misuses == ()
    return next(item for item in seen if item.slug == "clip-of-scaled")


def test_a_report_that_needs_an_option_gives_way_to_one_that_does_not(report: Found) -> None:
    resumes = Link("reach", Standing.OPTION, "args.resume", "is set")
    longer = replace(report, links=(*report.links, resumes))
    assert distinct([longer, report]) == distinct([report, longer]) == [report]


def test_what_another_entry_says_comes_first_as_it_came(report: Found) -> None:
    """Callers are followed before what they call, and know more."""
    resumes = Link("reach", Standing.OPTION, "args.resume", "is set")
    entry = report.entry.module.body
    by_caller = replace(report, links=(*report.links, resumes), entry=entry)
    assert distinct([by_caller, report]) == [by_caller]
