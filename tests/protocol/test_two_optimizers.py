"""Two optimizers on one scaler: random programs, and the loops that such code is made of.

The programs go on after an exception, as code that swallows it does.
"""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from hypothesis import given, settings
from hypothesis import strategies as st

from amplint.protocol import Event
from amplint.selftest.side_by_side import LETTERS, Rig

OPTIMIZERS = ("generator", "discriminator")
SCALES = (1.0, 128.0, 65536.0, 2.0**20)

events = st.tuples(st.sampled_from(Event), st.sampled_from(OPTIMIZERS), st.sampled_from(SCALES))
#: Whole protocol steps, so that random programs get past the first backward.
iterations = st.sampled_from(OPTIMIZERS).map(
    lambda key: [(event, key, 128.0) for event in (Event.SCALED_BACKWARD, Event.STEP)]
)
programs = st.lists(st.one_of(events.map(lambda event: [event]), iterations), max_size=16).map(
    lambda parts: [event for part in parts for event in part]
)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(programs)
def test_tracker_agrees_with_torch(program: list[tuple[Event, str, float]]) -> None:
    rig = Rig(OPTIMIZERS)
    for event, key, new_scale in program:
        assert rig.apply(event, key, new_scale).differences == ()


def run(program: str) -> tuple[Rig, list[str]]:
    """Run words like "B Tg Td P": a letter, then g or d for the optimizer it concerns."""
    rig = Rig(OPTIMIZERS)
    keys = {"g": "generator", "d": "discriminator", "": "generator"}
    slugs = []
    for step in program.split():
        reaction = rig.apply(LETTERS[step[0]], keys[step[1:]])
        assert reaction.differences == ()
        if reaction.violation is not None:
            slugs.append(reaction.violation.slug)
    return rig, slugs


@pytest.mark.parametrize(
    "program",
    [
        "B Tg Td P Zg Zd " * 2,
        "Zg Zd B Ug Ud Cg Cd Tg Td P " * 2,
        "B Td P Zg Zd B Tg P Zg Zd " * 2,
        "B Td Zg Zd B Tg P Zg Zd " * 2,
        "B Tg P Zg Zd B Tg Td P Zg Zd " * 2,
        "B Ug Cg Tg Td P Zg Zd " * 2,
    ],
    ids=["joint", "clipped", "turns", "turns-one-update", "every-second", "one-clipped"],
)
def test_correct_loop_is_right_and_silent(program: str) -> None:
    rig, slugs = run(program)
    assert slugs == []
    for key in OPTIMIZERS:
        assert rig.torch.weight(key) == pytest.approx(rig.without_amp.weight(key), rel=1e-3)
        assert rig.torch.weight(key) != 0


@pytest.mark.parametrize(
    ("program", "slug"),
    [
        ("B Tg P Td", "stale-scale"),
        ("B Ud Cg Tg", "clip-of-scaled"),
        ("B Tg Td P P", "update-without-check"),
        ("B Tg Zd Td", "step-after-zero-grad"),
        ("B Ug Og Td", "optimizer-step-bypass"),
    ],
)
def test_the_broken_rule_is_named(program: str, slug: str) -> None:
    _, slugs = run(program)
    assert slugs == [slug]


def test_one_inf_check_lets_update_pass_for_all() -> None:
    """A wedged optimizer recovers when another one lets update() through."""
    rig, slugs = run("B Zd Td Tg P B Zd Td")
    assert slugs == ["step-after-zero-grad", "step-after-zero-grad"]
    assert rig.tracker.pair("generator").checked is False
