"""From what a finding rests on to its level: the one table that decides.

An error is proved: none of its links is guessed. That AMP is switched on is what amplint is
about; beyond that an error may need one option that is not left at its default, and names it.
An error that needs several options, which nothing in sight turns on together, is a warning; a
warning that needs one is advice. An object that is known by its use alone, because nobody in sight
builds it or hands it in, makes no error, and before a run has shown it no more than advice: on code that
nobody had read two of 14 such patterns were true since these levels stand, which is fewer than the one in
three that a rule needs (docs/precision.md).

What a rule claims counts, too. Some claims need so much to be known of a program (that nobody clears
the gradients between two rounds, that a path can be taken at all) that they were wrong at least as
often as right where they were judged. Such a rule makes a warning of what reading alone shows, and
advice where it was wrong more than twice as often; it is an error where the probe has seen it happen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from amplint.findings import Evidence, Finding, Link, Severity, Standing

#: The most that a finding can be, one of whose links has this standing.
CEILING: Mapping[Standing, Severity] = {
    Standing.CODE: Severity.ERROR,
    Standing.LIBRARY: Severity.ERROR,
    Standing.USE: Severity.WARNING,
    Standing.OPTION: Severity.ERROR,
    Standing.OPEN: Severity.WARNING,
    Standing.HARMLESS: Severity.INFO,
    Standing.GUESS: Severity.INFO,
}
#: Severity -> what it becomes where it takes one option, and where it takes more.
OF_OPTIONS: Mapping[Severity, tuple[Severity, Severity]] = {
    Severity.ERROR: (Severity.ERROR, Severity.WARNING),
    Severity.WARNING: (Severity.INFO, Severity.INFO),
    Severity.INFO: (Severity.INFO, Severity.INFO),
}
#: Rules of severity error whose findings, judged on code that nobody had read, were true in fewer
#: than two of three patterns: false, or without consequence, in the others.
#: tests/test_calibration.py adds up the published sheets: a rule comes and goes with what they say.
WARNING_UNTIL_SEEN = frozenset(
    {
        "AMP101",
        "AMP102",
        "AMP103",
        "AMP105",
        "AMP106",
        "AMP107",
        "AMP109",
        "AMP112",
        "AMP113",
        "AMP114",
        "AMP116",
        "AMP117",
        "AMP122",
        "AMP123",
        "AMP124",
        "AMP129",
        "AMP130",
        "AMP201",
        "AMP202",
        "AMP301",
        "AMP302",
        "AMP304",
        "AMP405",
        "AMP604",
    }
)
#: Rules that were true in fewer than one of three patterns of the batches since these levels stand,
#: of five or more: what they say is advice before a run has shown it (tests/test_calibration.py).
ADVICE_UNTIL_SEEN = frozenset({"AMP113", "AMP202", "AMP301"})
#: The same of standings: findings with a link that stands so.
WEAK_UNTIL_SEEN = frozenset({Standing.USE})


def level(severity: Severity, links: Iterable[Link]) -> Severity:
    """What a finding can be: its rule's severity, or less where its links do not carry that."""
    known = set(links)
    chosen = len(options(known))
    if chosen:
        severity = OF_OPTIONS[severity][chosen > 1]
    ceilings = (CEILING[link.standing] for link in known)
    return min((severity, *ceilings), key=lambda item: item.rank)


def unseen(code: str, severity: Severity, links: Iterable[Link] = ()) -> Severity:
    """What a finding of a rule is, that can be of this severity, before a run has shown it."""
    if code in ADVICE_UNTIL_SEEN or any(link.standing in WEAK_UNTIL_SEEN for link in links):
        return Severity.INFO
    if code in WARNING_UNTIL_SEEN:
        return min(severity, Severity.WARNING, key=lambda item: item.rank)
    return severity


def seen_as(finding: Finding, severity: Severity, evidence: Evidence) -> Finding:
    """A finding that a run has shown, at the level that this makes it.

    Args:
        severity: its rule's.
        evidence: what the run says.
    """
    return replace(finding, severity=level(severity, finding.links), evidence=evidence)


def options(links: Iterable[Link]) -> tuple[str, ...]:
    """The options that have to be set, as conditions ("args.clip > 0"), sorted."""
    return tuple(sorted({link.subject for link in links if link.standing is Standing.OPTION}))


def naming_options(message: str, links: Iterable[Link]) -> str:
    """The message, which names every option that has to be set."""
    missing = [option for option in options(links) if f"`{option}`" not in message]
    if not missing:
        return message
    return f"{message} (with {' and '.join(f'`{option}`' for option in missing)})"
