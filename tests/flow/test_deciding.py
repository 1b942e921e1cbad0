"""What a path calls possible, z3 does: up to 10,000 random rows of guards, of the shapes that guards have."""

from __future__ import annotations

import random

import pytest

from amplint.flow.clauses import shortened
from amplint.flow.conditions import assume, evaluate, negate
from amplint.flow.merging import merge
from amplint.flow.state import NO_GUARDS, State
from tests.budget import budget

from .reading import Reading

z3 = pytest.importorskip("z3")

#: What a word may be: None, "", two words that guards ask for, another one, another falsy object.
NOTHING, EMPTY, FP16, BF16, OTHER, FALSY = range(6)
CODES = {"fp16": FP16, "bf16": BF16}
COUNTS, WORDS, FLAGS = ("n", "k"), ("mode", "x"), ("flag", "cfg.amp")
ROWS = budget(1_000, 10_000)


class Judge:
    """The same guards for z3, each with its text."""

    def __init__(self) -> None:
        self.numbers = {name: z3.Int(name) for name in COUNTS}
        self.words = {name: z3.Int(name) for name in WORDS}
        self.states = {name: z3.Int(name) for name in FLAGS}  # 0 None, 1 False, 2 True
        self.nothing = {name: z3.Bool(f"{name} is None") for name in COUNTS}
        self.solver = z3.Solver()
        self.solver.add(*(number >= 0 for number in self.numbers.values()))
        self.solver.add(*(z3.And(word >= 0, word <= FALSY) for word in self.words.values()))
        self.solver.add(*(z3.And(flag >= 0, flag <= 2) for flag in self.states.values()))

    def guard(self, source: random.Random, depth: int = 2):
        """A random guard: (text, what it says)."""
        shape = source.random()
        if depth and shape < 0.15:
            text, formula = self.guard(source, depth - 1)
            return f"not ({text})", z3.Not(formula)
        if depth and shape < 0.45:
            parts = [self.guard(source, depth - 1) for _ in range(source.choice((2, 2, 3)))]
            word, join = source.choice((("and", z3.And), ("or", z3.Or)))
            return f" {word} ".join(f"({t})" for t, _ in parts), join(*(f for _, f in parts))
        return source.choice((self.count, self.word, self.flag))(source)

    def count(self, source: random.Random):
        """A test of a number that may be None; what is compared is none."""
        name = source.choice(COUNTS)
        number, some = self.numbers[name], z3.Not(self.nothing[name])
        bound = source.randint(1, 4)
        return source.choice(
            [
                (f"{name} > {bound}", z3.And(some, number > bound)),
                (f"{name} >= {bound}", z3.And(some, number >= bound)),
                (f"{bound} < {name}", z3.And(some, bound < number)),
                (f"{name} < {bound}", z3.And(some, number < bound)),
                (f"{name} <= {bound}", z3.And(some, number <= bound)),
                (f"{name} > 0", z3.And(some, number > 0)),
                (f"{name} == {bound}", z3.And(some, number == bound)),
                (f"{name} != {bound}", z3.Or(self.nothing[name], number != bound)),
                (f"{name} in ({bound}, 7)", z3.And(some, z3.Or(number == bound, number == 7))),
                (name, z3.And(some, number != 0)),
                (f"{name} is None", self.nothing[name]),
            ]
        )

    def word(self, source: random.Random):
        """A test of a word."""
        name = source.choice(WORDS)
        word = self.words[name]
        text, code = source.choice([*CODES.items()])
        return source.choice(
            [
                (f"{name} == '{text}'", word == code),
                (f"'{text}' != {name}", word != code),
                (f"{name} in ('fp16', 'bf16')", z3.Or(word == FP16, word == BF16)),
                (f"{name} == ''", word == EMPTY),
                (name, z3.Or(word == FP16, word == BF16, word == OTHER)),
                (f"{name} is not None", word != NOTHING),
            ]
        )

    def flag(self, source: random.Random):
        """A test of a switch."""
        name = source.choice(FLAGS)
        flag = self.states[name]
        return source.choice(
            [
                (name, flag == 2),
                (f"bool({name})", flag == 2),
                (f"{name} == False", flag != 2),
                (f"{name} is None", flag == 0),
            ]
        )

    def allows(self, formulas: list) -> bool:
        """Whether all of them can be true."""
        self.solver.push()
        self.solver.add(*formulas)
        answer = self.solver.check() == z3.sat
        self.solver.pop()
        return answer


def is_possible(texts: list[tuple[str, bool]], reading: Reading, *, merged: bool) -> bool:
    """Whether a path gets through all the guards, each on one side."""
    states = [State()]
    for text, truth in texts:
        formula = reading.formula(text, State())
        states = [after for state in states for after in assume(formula, truth, state)]
        if merged:
            states = merge(states, NO_GUARDS)
    return bool(states)


def test_what_z3_proves_impossible_is_never_possible() -> None:
    judge, reading, source = Judge(), Reading(), random.Random(20)
    wrong, possible = [], 0
    for _ in range(ROWS):
        row = [(*judge.guard(source), source.random() < 0.5) for _ in range(source.randint(2, 6))]
        texts = [(text, truth) for text, _, truth in row]
        if is_possible(texts, reading, merged=False):
            possible += 1
            if not judge.allows([f if truth else z3.Not(f) for _, f, truth in row]):
                wrong.append(texts)
    assert ROWS / 10 < possible < ROWS * 9 / 10
    assert wrong == []


def test_plain_tests_of_what_is_there_are_decided_exactly() -> None:
    """Without None, and without `and` and `or`: possible exactly where z3 says so."""
    judge, reading, source = Judge(), Reading(), random.Random(4)
    judge.solver.add(*(z3.Not(none) for none in judge.nothing.values()))
    seen = set()
    for _ in range(ROWS // 5):
        row = [(*judge.guard(source, depth=0), source.random() < 0.5) for _ in range(4)]
        if any("None" in text for text, _, _ in row):
            continue
        texts = [(text, truth) for text, _, truth in row]
        allowed = judge.allows([f if truth else z3.Not(f) for _, f, truth in row])
        seen.add(allowed)
        assert is_possible(texts, reading, merged=False) is allowed, texts
    assert seen == {True, False}


@pytest.mark.parametrize(
    "row",
    [
        [("x or y", True), ("x", False), ("y", False)],
        [("x or y", True), ("y", False), ("x", False)],
        [("x and y", False), ("y", True), ("x", True)],
        [("mode == 'fp16' or n > 2", True), ("n < 3", True), ("mode == 'bf16'", True)],
        [("mode == 'fp16' or n > 2", True), ("mode == 'bf16'", True), ("n < 3", True)],
        [("not (x or y)", False), ("not x and not y", True)],
        [("x and y", False), ("y and x", True)],
    ],
)
def test_a_disjunction_outlives_the_merging_of_its_parts(row: list[tuple[str, bool]]) -> None:
    assert not is_possible(row, Reading(), merged=True)
    assert is_possible(row[:-1], Reading(), merged=True)


def test_what_follows_is_kept_where_states_are_merged() -> None:
    reading = Reading()
    is_bf16 = reading.formula("mode == 'bf16'", State())
    [first] = assume(reading.formula("mode == 'fp16'", State()), True, State())
    [first] = assume(is_bf16, False, first)
    [second] = assume(is_bf16, False, State())
    [both] = merge([first, second], NO_GUARDS)
    assert evaluate(is_bf16, both) is False


def test_a_shortened_clause_says_the_same() -> None:
    """Of places that are compared as numbers where the clause compares them: others have no truth."""
    judge, reading, source = Judge(), Reading(), random.Random(27)
    changed = 0
    for _ in range(ROWS // 5):
        clause = {}
        for text, said in (judge.guard(source, depth=0) for _ in range(source.choice((2, 2, 3)))):
            formula = reading.formula(text, State())
            if isinstance(formula, tuple) and formula[0] not in ("and", "or"):
                denied = source.random() < 0.5
                clause[negate(formula) if denied else formula] = z3.Not(said) if denied else said
        if not clause:
            continue
        short = shortened(frozenset(clause))
        numbers = {_atom(each)[1] for each in clause if _atom(each)[0] in ("above", "positive")}
        whole, left = z3.Or(*clause.values()), z3.Or(*(clause[each] for each in short))
        compared = [z3.Not(judge.nothing[name.rpartition(":")[2]]) for name in numbers]
        assert not judge.allows([*compared, whole != (left if short else z3.BoolVal(True))]), clause
        changed += short != clause.keys()
    assert changed > ROWS / 50


def _atom(literal: tuple) -> tuple:
    return literal[1] if literal[0] == "not" else literal
