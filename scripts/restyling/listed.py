"""Violations that are known, each with its reason: `listed.tsv`, compared by `restyle.py --listed`.

A violation is a program, a style and a code: what is said about the program as it stands is not
said about it in that style (`miss`), or the other way round (`alarm`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from restyling.judging import Verdict

LIST = Path(__file__).with_name("listed.tsv")

#: Kind, program, style and code.
Violation = tuple[str, str, str, str]


def listed() -> dict[Violation, str]:
    """The reason of each known violation."""
    lines = LIST.read_text("utf-8").splitlines()
    rows = [line.split("\t") for line in lines if not line.startswith("#")]
    return {(kind, program, style, code): reason for kind, program, style, code, reason in rows}


def violations(verdicts: Iterable[Verdict]) -> Iterator[Violation]:
    """What is said otherwise in another style, each once."""
    for verdict in verdicts:
        for kind, places in (("miss", verdict.missed), ("alarm", verdict.accused)):
            for code in dict.fromkeys(place.rpartition(" ")[2] for place in places):
                yield kind, verdict.fixture.name, verdict.style, code


def compared(verdicts: Iterable[Verdict]) -> tuple[list[Violation], list[Violation]]:
    """Violations that are not listed, and listed ones of these verdicts that are no more."""
    verdicts, known = list(verdicts), listed()
    found = set(violations(verdicts))
    asked = {(verdict.fixture.name, verdict.style) for verdict in verdicts}
    gone = [one for one in known if one[1:3] in asked and one not in found]
    return sorted(found - known.keys()), gone
