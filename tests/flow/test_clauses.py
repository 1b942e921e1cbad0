"""A scaler that is built under several tests and used under several: who is None, and where.

Programs are drawn, and executed for all values of their options: those that use None on some of
them are to be reported, and no other.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from amplint.checker import check_paths
from amplint.config import Settings
from amplint.flow.clauses import clauses_left, shortened
from amplint.flow.state import State

TESTS = ("args.half", "not args.slow", "args.kind == 'torch'", "torch.cuda.is_available()")
OPTIONS = tuple(
    ({"half": half, "slow": slow, "kind": kind}, device)
    for half, slow, kind, device in itertools.product(
        (True, False), (True, False), ("torch", "apex", "fp16", "bf16", "fp32"), (True, False)
    )
)


class Options:
    """What `args` is in an executed program."""

    def __init__(self, **values: object) -> None:
        self.__dict__.update(values)


def _nested(tests: list[str], body: str, indent: str, draw: random.Random) -> list[str]:
    """`body` under all tests: an `if` for each, or one for the last two; perhaps with an `elif`."""
    if not tests:
        return [indent + body]
    head, rest = tests[0], tests[1:]
    if rest and draw.random() < 0.4:
        head, rest = f"{head} and {rest[0]}", rest[1:]
    lines = [f"{indent}if {head}:", *_nested(rest, body, indent + "    ", draw)]
    if draw.random() < 0.3:
        lines += [f"{indent}elif args.slow:", f"{indent}    print('slow')"]
    return lines


def _program(seed: int) -> str:
    draw = random.Random(seed)
    built = draw.sample(TESTS, draw.choice((2, 2, 3)))
    used = draw.sample(TESTS, len(built)) if draw.random() < 0.3 else draw.sample(built, len(built))
    return "\n".join(
        [
            f"def train_{seed}(model, loader, optimizer, args):",
            "    scaler = None",
            *_nested(built, "scaler = torch.amp.GradScaler('cuda')", "    ", draw),
            "    for x in loader:",
            "        optimizer.zero_grad()",
            "        loss = model(x)",
            "        before = loss",
            *_nested(used, "before = scaler.scale(loss)", "        ", draw),
            "        before.backward()",
        ]
    )


HEAD = """import enum

import torch
from torch.amp import GradScaler

from machine import load, supported

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}


class Kind(enum.Enum):
    TORCH = "torch"
    APEX = "apex"
    BF16 = "bf16"
    FP32 = "fp32"
    FP16 = "fp16"


def chosen_by(options):
    if options.kind == "fp16":
        return torch.float16
    if options.kind == "bf16":
        return torch.bfloat16
    return torch.float32


def is_slow(options):
    if not options.slow:
        return False
    return True


class Flags:
    def __init__(self, args):
        self.args = args
        self.mode = Kind(args.kind)

    @property
    def native(self):
        return self.args.slow

    def wanted(self):
        return self.args.half and self.args.slow

    def is_half(self):
        return self.mode is Kind.FP16


"""
#: What an executed program is given.
IMPORTS = (
    "import torch",
    "from torch.amp import GradScaler",
    "from machine import load, supported",
)
#: How a program says that the precision is float16; `dtype` and `half` follow from it.
TABLES = (
    "dtype = {'fp32': torch.float32, 'fp16': torch.float16, 'bf16': torch.bfloat16}[args.kind]",
    "dtype = DTYPES[args.kind]",
    "dtype = chosen_by(args)",
    "dtype = DTYPES.get(args.kind, torch.bfloat16)",
    "dtype = torch.float16 if args.kind == 'fp16' else torch.float32",
    "dtype = torch.float32\n    if args.kind == 'fp16':\n        dtype = torch.float16",
)
HALF = ("args.kind == 'fp16'", "dtype == torch.float16", "dtype is torch.float16", "half")
NATIVE = (
    "args.slow",
    "bool(args.slow)",
    "getattr(args, 'slow', False)",
    "supported(args.slow)",
    "is_slow(args)",
    "'T' in str(args.slow)",
    "all([args.slow, True])",
)


def _in_other_words(seed: int) -> str:
    draw = random.Random(seed)
    native = draw.choice(NATIVE)
    same = draw.random() < 0.6
    used = draw.choice(HALF) if same else "dtype != torch.float32"
    return "\n".join(
        [
            f"def train_{seed}(model, loader, optimizer, args):",
            f"    {draw.choice(TABLES)}",
            f"    half = {draw.choice(HALF[:3])}",
            "    scaler = None",
            *_nested([draw.choice(HALF), native], "scaler = GradScaler('cuda')", "    ", draw),
            "    for x in loader:",
            "        optimizer.zero_grad()",
            "        loss = model(x)",
            "        before = loss",
            *_nested([native, used], "before = scaler.scale(loss)", "        ", draw),
            "        before.backward()",
        ]
    )


#: Tests that agree, of an object that was given the options.
AGREEING = (
    ("flags.native", "flags.args.slow", "native"),
    ("flags.wanted()", "(flags.args.half and flags.native)", "wanted"),
    ("flags.is_half()", "flags.mode == Kind.FP16", "flags.mode in (Kind.FP16,)", "chosen")
    + ("flags.mode not in (Kind.TORCH, Kind.APEX, Kind.BF16, Kind.FP32)",),
)


def _through_objects(seed: int) -> str:
    draw = random.Random(seed)
    words, others = draw.sample(AGREEING, 2)
    built, used = draw.choice(words), draw.choice(words if draw.random() < 0.7 else others)
    told, made = draw.choice((("flags: Flags", "load(args)"), ("flags", "Flags(args)")))
    used = used.replace("flags.", "self.flags.") if "flags." in used else f"self.{used}"
    return "\n".join(
        [
            f"class Train{seed}:",
            f"    def __init__(self, optimizer, {told}):",
            "        self.flags, self.optimizer = flags, optimizer",
            "        native = self.native = flags.native",
            "        wanted = self.wanted = flags.wanted()",
            "        chosen = self.chosen = self.flags.mode is Kind.FP16",
            "        self.scaler = None",
            f"        if {built}:",
            "            self.scaler = GradScaler('cuda')",
            "",
            "    def run(self, model, loader):",
            "        for x in loader:",
            "            self.optimizer.zero_grad()",
            "            loss = model(x)",
            f"            if {used}:",
            "                self.scaler.scale(loss).backward()",
            "            else:",
            "                loss.backward()",
            "",
            "",
            f"def train_{seed}(model, loader, optimizer, args):",
            f"    Train{seed}(optimizer, {made}).run(model, loader)",
        ]
    )


class Torch:
    """What the programs ask torch for."""

    float16, bfloat16, float32 = "float16", "bfloat16", "float32"


def _uses_none(source: str, name: str) -> bool:
    """Whether some choice of options uses a scaler that is None, by executing all of them."""

    class Anything:
        def is_available(self) -> bool:
            return device

        def __getattr__(self, _: str) -> Anything:
            return self

        def __call__(self, *_: object) -> Anything:
            return self

    names = {
        "torch": Torch,
        "GradScaler": lambda *_: Anything(),
        "supported": bool,
        "load": lambda args: names["Flags"](args),
        "print": lambda *_: None,
    }
    Torch.amp = Torch.cuda = Anything()
    known = "\n".join(line for line in HEAD.splitlines() if line not in IMPORTS)
    exec(f"{known}\n{source}", names)  # noqa: S102 -- the program is this file's own
    for options, device in OPTIONS:
        try:
            names[name](Anything(), [1], Anything(), Options(**options))
        except AttributeError:
            return True
        except KeyError:  # no precision of the table
            continue
    return False


@pytest.mark.parametrize("author", (_program, _in_other_words, _through_objects))
@pytest.mark.parametrize("start", range(0, 120, 30))
def test_drawn_programs(start: int, author: Callable[[int], str], tmp_path: Path) -> None:
    programs = {f"train_{seed}": author(seed) for seed in range(start, start + 30)}
    (tmp_path / "pyproject.toml").write_text("", "utf-8")
    path, expected, rows, text = tmp_path / "loops.py", set(), {}, HEAD
    for name, program in programs.items():
        rows[name] = text.count("\n") + 1
        text += f"{program}\n\n\n"
        if _uses_none(program, name):
            expected.add(name)
    path.write_text(text, "utf-8")
    report = check_paths([str(path)], Settings(jobs=1, cache=False, respect_gitignore=False))
    found = {
        max((row, name) for name, row in rows.items() if row <= item.span.start.row)[1]
        for item in report.findings
        if item.code == "AMP202"
    }
    assert 0 < len(expected) < len(programs)
    assert found == expected


def _state(**facts: bool) -> State:
    return State(facts={("true", name): truth for name, truth in facts.items()})


NAMES = frozenset({"a", "b", "c"})


def test_one_of_two_holds() -> None:
    left = list(clauses_left(_state(a=False), _state(a=True, b=False), {}, NAMES))
    assert left == [(("or", frozenset({("not", ("true", "a")), ("not", ("true", "b"))})), True)]


def test_a_clause_grows_where_a_third_path_does_not_fulfil_it() -> None:
    clause = ("or", frozenset({("not", ("true", "a")), ("not", ("true", "b"))}))
    both = State(facts={clause: True})
    left = list(clauses_left(both, _state(a=True, b=True, c=False), {}, NAMES))
    assert left == [(("or", clause[1] | {("not", ("true", "c"))}), True)]


def test_a_clause_stays_where_a_third_path_fulfils_it() -> None:
    clause = ("or", frozenset({("not", ("true", "a")), ("not", ("true", "b"))}))
    left = list(clauses_left(State(facts={clause: True}), _state(b=False, c=True), {}, NAMES))
    assert (clause, True) in left


def test_other_places_make_no_clause() -> None:
    assert not list(clauses_left(_state(x=False), _state(x=True, y=False), {}, NAMES))


TRUE, SOME, SLOW = ("true", "a"), ("some", "a"), ("true", "slow")


@pytest.mark.parametrize(
    ("clause", "left"),
    [
        ({SOME, ("not", TRUE)}, set()),
        ({TRUE, SOME}, {SOME}),
        ({("not", SOME), ("not", TRUE)}, {("not", TRUE)}),
        ({("above", "b", 3), ("above", "b", 1), TRUE}, {("above", "b", 1), TRUE}),
        ({("or", (TRUE, SLOW)), ("not", SLOW)}, set()),
        ({TRUE, ("not", SLOW)}, {TRUE, ("not", SLOW)}),
    ],
)
def test_a_clause_says_nothing_twice(clause: set, left: set) -> None:
    assert shortened(frozenset(clause)) == left


def test_a_shorter_clause_makes_longer_ones_needless() -> None:
    longer = ("or", frozenset({("not", ("true", "a")), ("not", ("true", "b")), ("true", "c")}))
    one = State(facts={("true", "a"): False, longer: True})
    left = dict(clauses_left(one, _state(a=True, b=False), {}, NAMES))
    assert left == {("or", frozenset({("not", ("true", "a")), ("not", ("true", "b"))})): True}


def test_what_is_left_of_a_clause_may_be_one_fact() -> None:
    one, other = State(facts={TRUE: True}), State(facts={SOME: True, ("true", "b"): True})
    assert (SOME, True) in clauses_left(one, other, {}, NAMES)
