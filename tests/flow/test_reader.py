"""Reading expressions: equal conditions are one formula, opposite ones its negation."""

from __future__ import annotations

import pytest

from amplint.flow.call import Frame
from amplint.flow.conditions import evaluate, is_volatile, mentions, negate
from amplint.flow.loops import LoopReader
from amplint.flow.places import ROUND
from amplint.flow.state import State
from amplint.flow.values import NONE, OPAQUE

from .reading import Reading


def read(text: str, state: State | None = None, reading: Reading | None = None):
    """The formula of an expression in a function that binds all the names used here."""
    return (reading or Reading()).formula(text, state or State())


SAME = [
    ("x is not None", "not x is None"),
    ("x is not None", "x != None"),
    ("x is None", "x == None"),
    ("x == 'fp16'", "'fp16' == x"),
    ("x == 'fp16'", "not x != 'fp16'"),
    ("x in ('fp16', 'amp')", "x == 'fp16' or x == 'amp'"),
    ("x not in ('fp16',)", "x != 'fp16'"),
    ("x is True", "x"),
    ("x == True", "x"),
    ("x == False", "not x"),
    ("bool(x)", "x"),
    ("not not x", "x"),
    ("x > 0", "not x <= 0"),
    ("x > 0", "x >= 1"),
    ("x == 0", "not x > 0"),
    ("x != 0", "x > 0"),
    ("len(x) == 0", "not len(x)"),
    ("len(x) != 0", "len(x) > 0"),
    ("n > 2", "n >= 3"),
    ("n > 2", "2 < n"),
    ("n > 2", "not n < 3"),
    ("x.numel()", "x.numel() > 0"),
    ("x and y", "not (not x or not y)"),
    ("x or not y", "not (not x and y)"),
    ("x < y", "y > x"),
    ("x >= y", "not x < y"),
    ("x <= y", "not y < x"),
    ("getattr(cfg, 'amp')", "cfg.amp"),
    ("cfg['amp']", "cfg.amp"),
    ("getattr(cfg, 'amp', False)", "cfg.amp"),
    ("i % k == 0", "not i % k != 0"),
    ("i % k == 0", "not i % k"),
    ("i % k != 0", "i % k > 0"),
    ("(i + 1) % k == 0", "not (i + 1) % k"),
    ("len(x) > 0", "len(x) >= 1"),
    ("str(x) == 'True'", "x"),
    ("str(x) != 'False'", "x"),
    ("scaler is not None", "scaler"),
    ("cfg['amp'] == 1.5", "cfg['amp'] == 1.5"),
    ("x and True", "x"),
    ("x or False", "x"),
    ("x if y else x", "y and x or not y and x"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_two_spellings_of_one_condition(one: str, other: str) -> None:
    assert read(one) == read(other)
    assert read(f"not ({one})") == negate(read(other))


DIFFERENT = [
    ("x is None", "y is None"),
    ("x == 'fp16'", "x == 'bf16'"),
    ("x", "x is not None"),
    ("cfg.amp", "cfg.fp16"),
    ("i % k == 0", "(i + 1) % k == 0"),
    ("i % k == 0", "i % n == 0"),
    ("x < y", "y < x"),
    ("x and y", "x or y"),
]


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_two_conditions(one: str, other: str) -> None:
    assert read(one) not in (read(other), negate(read(other)), None)


@pytest.mark.parametrize(
    "text",
    [
        "next(x)",
        "random.random() < y",
        "x.pop() == 3",
        "(lambda: x)()",
        "sum(p.grad.norm() for p in x) > y",
    ],
)
def test_what_may_change_by_itself_is_never_remembered(text: str) -> None:
    assert is_volatile(read(text))


@pytest.mark.parametrize(
    "text",
    [
        "torch.cuda.is_available()",
        "hasattr(x, 'amp')",
        "isinstance(x, int)",
        "len(x) == k",
        "x.startswith('fp')",
        "x < y",
        "x < y < k",
        "x in cfg",
        "min(x, y) > k",
        "compute(x)",
        "not compute(x)",
        "compute() is None",
        "torch.isnan(x)",
        "x.item() > 3",
        "'cuda' in str(x)",
        "[x for x in y]",
        "x + y",
    ],
)
def test_what_stays_as_it_is_makes_a_fact(text: str) -> None:
    formula = read(text)
    assert formula is not None and not is_volatile(formula)
    assert formula == read(text)


# -- values decide conditions ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text", "expected"),
    [
        (NONE, "x is None", True),
        (NONE, "x", False),
        (NONE, "x == 'fp16'", False),
        (("const", "fp16"), "x == 'fp16'", True),
        (("const", "fp16"), "x != 'bf16'", True),
        (("const", "fp16"), "x in ('bf16', 'fp16')", True),
        (("const", 0), "x > 0", False),
        (("const", 0), "x", False),
        (("const", 3), "x", True),
        (("positive",), "x > 0", True),
        (("positive",), "x", True),
        (("scaler", "s"), "x is not None", True),
        (("scaler", "s"), "x", True),
        (OPAQUE, "x is None", None),
        (("formula", ("true", "flag")), "x", None),
    ],
)
def test_a_known_value_decides_a_condition(value: tuple, text: str, expected) -> None:
    reading = Reading()
    place = reading.place("x", State())
    state = State(values={place: value})
    assert evaluate(reading.formula(text, state), state) is expected


def test_an_alias_is_read_as_what_it_stands_for() -> None:
    reading = Reading()
    state = State(values={reading.place("x", State()): ("path", "Trainer.cfg")})
    assert reading.place("x.amp", state) == "Trainer.cfg.amp"
    assert reading.formula("x.amp", state) == ("true", "Trainer.cfg.amp")


def test_a_stored_condition_is_read_as_the_condition() -> None:
    reading = Reading()
    condition = reading.formula("cfg.amp and k > 1", State())
    state = State(values={reading.place("flag", State()): ("formula", condition)})
    assert reading.formula("flag", state) == condition
    assert reading.formula("not flag", state) == negate(condition)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("None", NONE),
        ("True", ("const", True)),
        ("'fp16'", ("const", "fp16")),
        ("2", ("const", 2)),
        ("x + y", None),
        ("b'bytes'", None),
        ("(None, 1)", ("tuple", (NONE, ("const", 1)))),
        ("not None", ("const", True)),
    ],
)
def test_values_of_literals(text: str, expected) -> None:
    assert Reading().value(text, State()) == expected


@pytest.mark.parametrize(
    "text", ["x + loss", "loss / k", "2 * loss", "loss.mean()", "loss.sum() / k", "sum(loss)"]
)
def test_arithmetic_keeps_a_scaled_loss_scaled(text: str) -> None:
    reading = Reading("loss = x")
    state = State(values={reading.place("loss", State()): ("scaled", "s")})
    assert reading.value(text, state) == ("scaled", "s")


def test_an_unknown_function_of_a_scaled_loss_may_be_scaled() -> None:
    reading = Reading("loss = x")
    state = State(values={reading.place("loss", State()): ("scaled", "s")})
    assert reading.value("reduce(loss)", state) == OPAQUE


# -- windows ----------------------------------------------------------------------------------


@pytest.fixture
def counted() -> Reading:
    """A reader that knows `i` as the index of a loop that starts at 0."""
    reading = Reading("for i, item in enumerate(loader):\n    pass")
    reading.reader.counters[reading.place("i", State())] = 0
    return reading


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("(i + 1) % k == 0", "(1 + i) % k == 0"),
        ("(i + 1) % k == 0", "i % k == k - 1"),
        ("(i + 1) % k != 0", "not i % k == k - 1"),
        ("i == len(loader) - 1", "(i + 1) == len(loader)"),
    ],
)
def test_ends_of_windows(counted: Reading, one: str, other: str) -> None:
    assert counted.formula(one, State()) == counted.formula(other, State())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("(i + 1) % k == 0", "i % k == 0"),
        ("(i + 1) % k == 0", "(i + 1) % n == 0"),
        ("i == 0", "i == len(loader) - 1"),
    ],
)
def test_start_and_end_of_a_window_differ(counted: Reading, one: str, other: str) -> None:
    first, second = (counted.formula(text, State()) for text in (one, other))
    assert first not in (second, negate(second), None)


def test_the_first_index_is_the_first_iteration(counted: Reading) -> None:
    place = counted.place("i", State())
    assert counted.formula("i == 0", State()) == ("first", place)
    assert counted.formula("i != 0", State()) == negate(("first", place))
    assert counted.formula("i > 0", State()) == negate(("first", place))


def test_an_index_that_starts_at_one(counted: Reading) -> None:
    end = counted.formula("(i + 1) % k == 0", State())
    counted.reader.counters[counted.place("i", State())] = 1
    assert counted.formula("i % k == 0", State()) == end
    assert counted.formula("i == 1", State())[0] == "first"


def test_the_rest_of_a_loader_is_the_window_of_its_loop(counted: Reading) -> None:
    reader = counted.reader
    reader.windows[counted.place("i", State())] = counted.place("loader", State())
    for truth in (True, False):
        state = State(facts={counted.formula("(i + 1) % k == 0", State()): truth})
        LoopReader(reader).count_known(state)
        assert evaluate(counted.formula("len(loader) % k == 0", state), state) is truth


@pytest.mark.parametrize(
    ("iterable", "first"),
    [
        ("enumerate(loader)", 0),
        ("enumerate(loader, 1)", 1),
        ("enumerate(loader, start=n)", None),
        ("enumerate(loader, start=n + 1)", None),
    ],
)
def test_where_counting_begins(iterable: str, first: int | None) -> None:
    counted = Reading(f"for i, x in {iterable}:\n    pass")
    loop = counted.function.body[0]
    LoopReader(counted.reader).start(loop, State(), Frame(counted.function))
    assert counted.reader.counters[counted.place("i", State())] == first


@pytest.mark.parametrize(
    ("text", "passing"),
    [
        ("compute(x)", False),
        ("torch.isnan(x)", False),
        ("'cuda' in str(x)", False),
        ("compute()", True),
        ("x.ready()", True),
        ("x.item() > 3", True),
        ("any(y.ready() for y in x)", True),
    ],
)
def test_what_objects_answer_holds_for_a_round(text: str, passing: bool) -> None:
    formula = read(text)
    assert isinstance(formula, tuple)
    assert (ROUND in mentions(formula)) is passing


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("all([x, y])", "x and y"),
        ("any((x, y))", "x or y"),
        ("bool(int(x))", "x"),
        ("str(x).lower() in {'fp16', 'half'}", "str(x).lower() in {'fp16', 'half'}"),
        ("'cuda' in str(x)", "'cuda' in str(x)"),
        ("compute(x, mode=y)", "compute(x, mode=y)"),
    ],
)
def test_one_condition_in_two_ways(one: str, other: str) -> None:
    assert read(one) == read(other)
