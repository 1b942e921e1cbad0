"""The engine against really executed programs: no false alarm, and every crash reported.

tests/flow/concrete.py runs each program on the protocol's tracker, under every setting of its
flags, window lengths and numbers of batches. Where no run breaks a rule, a finding would be
a false alarm. Where a run stops with an exception, silence would be a miss.
"""

from __future__ import annotations

import ast
import itertools
import random

import pytest

from amplint.checker import check_source
from amplint.config import Settings
from amplint.protocol import Event, Tracker
from amplint.protocol.violations import Violation
from amplint.view import view_of
from tests.budget import budget

from .concrete import FREED_GRAPH, every_run
from .programs import Author, broken, joined
from .several import Pairs

# -- one path: every word of events in the body of a training loop -----------------------------

STATEMENTS = {
    Event.SCALE: "scaler.scale(loss)",
    Event.SCALED_BACKWARD: "scaler.scale(loss).backward()",
    Event.PLAIN_BACKWARD: "loss.backward()",
    Event.UNSCALE: "scaler.unscale_(optimizer)",
    Event.STEP: "scaler.step(optimizer)",
    Event.UPDATE: "scaler.update()",
    Event.SET_SCALE: "scaler.update(2.0)",
    Event.ZERO_GRAD: "optimizer.zero_grad()",
    Event.ZERO_GRAD_KEEP: "optimizer.zero_grad(set_to_none=False)",
    Event.CLIP: "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
    Event.OPTIMIZER_STEP: "optimizer.step()",
}
HEAD = """\
import torch
def train(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for x in loader:
        loss = model(x)
"""
BACKWARDS = {Event.SCALED_BACKWARD, Event.PLAIN_BACKWARD}

#: What a word may stop with although the engine says nothing, and why that is accepted.
LENIENT = {
    "a loop without any backward is no training loop": lambda word, _: not BACKWARDS & set(word),
    "only the first scale() initialises a scaler, which is not followed": lambda _, slug: (
        slug.endswith("-uninitialised")
    ),
}

Word = tuple[Event, ...]


def words(length: int) -> list[Word]:
    """All words of at most this length."""
    return [word for size in range(1, length + 1) for word in itertools.product(Event, repeat=size)]


def random_words(count: int) -> list[Word]:
    """Longer words: a right iteration with a few events dropped, doubled, moved or added."""
    chance = random.Random(0)
    right = [
        (Event.ZERO_GRAD, Event.SCALED_BACKWARD, Event.STEP, Event.UPDATE),
        (
            Event.SCALED_BACKWARD,
            Event.UNSCALE,
            Event.CLIP,
            Event.STEP,
            Event.UPDATE,
            Event.ZERO_GRAD,
        ),
        (Event.SCALED_BACKWARD, Event.SCALED_BACKWARD, Event.STEP, Event.UPDATE, Event.ZERO_GRAD),
        (
            Event.PLAIN_BACKWARD,
            Event.OPTIMIZER_STEP,
            Event.ZERO_GRAD,
            Event.SCALED_BACKWARD,
            Event.STEP,
            Event.UPDATE,
            Event.ZERO_GRAD,
        ),
        (Event.SCALED_BACKWARD, Event.UNSCALE, Event.ZERO_GRAD, Event.STEP, Event.UPDATE),
    ]
    return [_disturbed(chance.choice(right), chance) for _ in range(count)]


def _disturbed(word: Word, chance: random.Random) -> Word:
    events = list(word)
    for _ in range(chance.randint(1, 3)):
        place = chance.randrange(len(events))
        kind = chance.choice(("drop", "double", "swap", "add"))
        if kind == "drop" and len(events) > 1:
            del events[place]
        elif kind == "double":
            events.insert(chance.randrange(len(events) + 1), events[place])
        elif kind == "swap":
            other = chance.randrange(len(events))
            events[place], events[other] = events[other], events[place]
        else:
            events.insert(place, chance.choice(list(Event)))
    return tuple(events)


def loop_of(word: Word) -> str:
    """A program whose training loop does this in each iteration."""
    return HEAD + "".join(f"        {STATEMENTS[event]}\n" for event in word)


def judged(word: Word) -> list[str]:
    """What the engine says about a loop: codes with their slugs."""
    source = loop_of(word)
    view = view_of("train.py", source, ast.parse(source))
    return [
        f"{misuse.code} {misuse.violation.slug if misuse.violation else ''}"
        for misuse in view.flow_misuses
    ]


def is_reported(word: Word) -> bool:
    """Whether the engine, or a rule that the engine leaves the case to, says anything."""
    return bool(judged(word) or _findings(loop_of(word)))


def executed(word: Word) -> list[Violation]:
    """What really happens in the first iterations: torch stops at the first exception."""
    tracker = Tracker()
    found = []
    for event in (*word, *word, *word):
        violation = tracker.apply(event, "scaler", "optimizer")
        if violation is not None:
            found.append(violation)
            if violation.raises:
                break
    return found


def _agreed(word: Word) -> list[str]:
    """Assert that the engine says what happens; returns the exceptions that this needs."""
    spelled = " ".join(event.name for event in word)
    said, happened = judged(word), executed(word)
    assert happened or not said, f"false alarm on {spelled}: {said}"
    if not happened or not happened[-1].raises or said or is_reported(word):
        return []
    slug = happened[-1].slug
    excused = [name for name, excuses in LENIENT.items() if excuses(word, slug)]
    assert excused, f"{spelled} stops with {slug}, and nothing is said"
    return excused


def test_every_short_word() -> None:
    """And every lenient exception is needed for one."""
    excuses = {excuse for word in words(3) for excuse in _agreed(word)}
    assert excuses == LENIENT.keys()


def test_longer_words() -> None:
    for word in random_words(budget(200, 1500)):
        _agreed(word)


# -- many paths: whole programs ------------------------------------------------------------------

AUTHORS = (Author, Pairs)
PROGRAMS = budget(12, 50)
MUTANTS = budget(40, 200)

#: Crashes that a broken program may meet while amplint is silent, and why.
SILENT_STOPS = {
    FREED_GRAPH,  # not of the scaler protocol: amplint.rules.graph_reused
}


def _findings(source: str) -> list[str]:
    result = check_source("program.py", source.encode(), Settings())
    assert result.errors == ()
    return [f"{item.span.start.row}: {item.code} {item.message}" for item in result.findings]


@pytest.mark.parametrize("author", AUTHORS)
def test_the_authors_write_correct_programs(author: type) -> None:
    for seed in range(PROGRAMS):
        source = joined(author(seed).program())
        for world in every_run(source):
            assert (world.broken, world.stopped) == ([], ""), f"seed {seed}\n{source}"


@pytest.mark.parametrize("author", AUTHORS)
def test_nothing_is_said_about_correct_programs(author: type) -> None:
    for seed in range(PROGRAMS):
        source = joined(author(seed).program())
        assert _findings(source) == [], f"seed {seed}\n{source}"


def _mutants(author: type):
    for seed in range(MUTANTS):
        source = broken(author(seed).program(), random.Random(seed))
        if source is None:
            continue
        try:
            yield source, list(every_run(source))
        except NameError:
            continue  # the mutation moved a line before what it uses


def _says_nothing_steps(finding: str, source: str) -> bool:
    """Whether a finding is about a step that is missing altogether, which breaks no order."""
    return "AMP130" in finding and ".step(" not in source


@pytest.mark.parametrize("author", AUTHORS)
def test_programs_with_one_broken_line(author: type) -> None:
    """A harmless mutation stays silent; one that torch stops at is reported."""
    outcomes = {"harmless": 0, "stopped": 0}
    for source, worlds in _mutants(author):
        found = _findings(source)
        stops = {world.stopped for world in worlds} - {""}
        if not stops and not any(world.broken for world in worlds):
            assert [item for item in found if not _says_nothing_steps(item, source)] == [], source
            outcomes["harmless"] += 1
        if stops - SILENT_STOPS and ".backward()" in source:
            assert found, f"{stops}\n{source}"
            outcomes["stopped"] += 1
    assert min(outcomes.values()) > MUTANTS // 20, outcomes
