"""Each raising violation against torch: the shortest program, the exact type and text."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from amplint.protocol import VIOLATIONS
from amplint.selftest.side_by_side import Rig, read

#: Slug and the word (letters: see test_against_torch.py) whose last event raises it.
SHORTEST = {
    "step-uninitialised": "bT",
    "unscale-uninitialised": "bU",
    "update-uninitialised": "P",
    "step-without-gradient": "ST",
    "step-after-zero-grad": "BZT",
    "step-twice": "BTT",
    "unscale-twice": "BUU",
    "unscale-after-step": "BTU",
    "update-without-check": "BP",
}

#: More programs that end in the same error, by the mistake behind them.
VARIANTS = {
    "backward comes after the step": ("SZT", "step-without-gradient"),
    "unscale_ before backward": ("SUBT", "step-without-gradient"),
    "unscale_ after zero_grad": ("BZUT", "step-without-gradient"),
    "update never called": ("BTZBT", "step-twice"),
    "update never called, with unscale_": ("BUTZBU", "unscale-after-step"),
    "unscale_ per micro-batch": ("BUBU", "unscale-twice"),
    "update per micro-batch": ("BTPBP", "update-without-check"),
    "update after a plain step": ("BOP", "update-without-check"),
    "update twice": ("BTPP", "update-without-check"),
    "scale set before the first scale()": ("N", "update-uninitialised"),
}


def last_reaction(letters: str):
    """Run a word whose last event alone may raise."""
    rig = Rig()
    *earlier, last = read(letters)
    for event in earlier:
        assert rig.apply(event).raised is None
    reaction = rig.apply(last)
    assert reaction.differences == ()
    return reaction


def test_every_raising_violation_has_a_program() -> None:
    assert set(SHORTEST) == {slug for slug, violation in VIOLATIONS.items() if violation.raises}


@pytest.mark.parametrize(("slug", "letters"), SHORTEST.items())
def test_torch_raises_exactly_this(slug: str, letters: str) -> None:
    reaction = last_reaction(letters)
    assert reaction.raised == (VIOLATIONS[slug].exception, VIOLATIONS[slug].error)
    assert reaction.violation is VIOLATIONS[slug]


@pytest.mark.parametrize("mistake", VARIANTS)
def test_mistake_ends_in_the_error(mistake: str) -> None:
    letters, slug = VARIANTS[mistake]
    reaction = last_reaction(letters)
    assert reaction.raised == (VIOLATIONS[slug].exception, VIOLATIONS[slug].error)
    assert reaction.violation is VIOLATIONS[slug]


def test_failed_step_leaves_the_optimizer_unscaled() -> None:
    """Code that swallows the error fails again, with another message, and never recovers."""
    rig = Rig()
    slugs = []
    for event in read("BZT" + "BUT" + "BTP"):
        reaction = rig.apply(event)
        assert reaction.differences == ()
        if reaction.violation is not None:
            slugs.append(reaction.violation.slug)
    assert slugs == [
        "step-after-zero-grad",
        "unscale-twice",
        "step-without-gradient",
        "step-without-gradient",
        "update-without-check",
    ]
    assert rig.torch.weight() == 0
