"""Words in which a scaled backward overflows: the scaler must skip that step.

X stands for a scaled backward whose gradient is inf; the tracker sees a scaled backward.
The other letters are those of test_against_torch.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import pytest

pytest.importorskip("torch")

from amplint.protocol import Event
from amplint.selftest.side_by_side import LETTERS, NEW_SCALE, Rig

LENGTH = 4
ALPHABET = (*LETTERS, "X")


@dataclass
class Overflows:
    """Depth-first over the words, up to the first event that ruins the weight."""

    rig: Rig = field(default_factory=Rig)
    words: int = 0
    differences: list[str] = field(default_factory=list)
    ruined: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)

    def extend(self, prefix: str, slugs: tuple[str, ...]) -> None:
        before = self.rig.snapshot()
        for letter in ALPHABET:
            self.rig.restore(before)
            self._visit(prefix + letter, slugs)

    def _visit(self, word: str, slugs: tuple[str, ...]) -> None:
        self.rig.torch.loss_factor = math.inf if word[-1] == "X" else 1.0
        event = LETTERS.get(word[-1], Event.SCALED_BACKWARD)
        reaction = self.rig.apply(event, new_scale=NEW_SCALE)
        self.words += 1
        self.differences += [f"{word}: {text}" for text in reaction.differences]
        if reaction.violation is not None:
            slugs = (*slugs, reaction.violation.slug)
        if reaction.raised is not None:
            return
        if not math.isfinite(self.rig.torch.weight()):
            self.ruined.append((word, slugs))
        elif len(word) < LENGTH:
            self.extend(word, slugs)


@pytest.fixture(scope="module")
def overflows() -> Overflows:
    found = Overflows()
    found.extend("", ())
    return found


def steps_plainly_on_skipped_gradients(word: str) -> bool:
    """A plain backward and optimizer.step on top of what a skipped scaler.step left.

    Which steps are skipped is known only while the program runs, so the tracker calls the
    gradients applied either way; adding to applied gradients is wrong without AMP too.
    """
    overflow, step, backward = word.find("X"), word.find("T"), word.rfind("b")
    is_cleared = any(letter in "Z0" for letter in word[step:])
    return -1 < overflow < step < backward and word.endswith("O") and not is_cleared


def test_tracker_agrees_with_torch(overflows: Overflows) -> None:
    assert overflows.words == 9060
    assert overflows.differences[:20] == []


def test_overflow_reaches_the_weight_only_where_flagged(overflows: Overflows) -> None:
    unflagged = [word for word, slugs in overflows.ruined if not slugs]
    assert all(steps_plainly_on_skipped_gradients(word) for word in unflagged)
    assert (len(overflows.ruined), unflagged) == (192, ["XTbO"])
