"""Loops: which ones train, which run over optimizers, and how their counters correlate."""

from __future__ import annotations

import ast

import pytest

from amplint.flow.loops import LoopReader
from amplint.view import view_of

from .reading import Reading

BACKWARD = "scaler.scale(loss).backward()"
STEP = "scaler.step(optimizer)"
UPDATE = "scaler.update()"
CLEAR = "optimizer.zero_grad()"
ITERATION = f"{CLEAR}; {BACKWARD}; {STEP}; {UPDATE}"


def codes(body: str, *, after: str = "pass") -> list[str]:
    """Codes found in a function with this training loop and these statements after it."""
    lines = [*body.strip().splitlines(), *after.strip().splitlines()]
    source = "\n".join(
        [
            "import torch",
            "def train(model, loader, optimizer, accum, n):",
            "    scaler = torch.amp.GradScaler('cuda')",
            *(f"    {line}" for line in lines),
            "",
        ]
    )
    view = view_of("train.py", source, ast.parse(source))
    return sorted(misuse.code for misuse in view.flow_misuses)


# -- shapes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loop", "trains", "steps", "container"),
    [
        (f"for x in loader:\n    {ITERATION}", True, True, False),
        (f"while flag:\n    {ITERATION}", True, True, False),
        (f"for x in loader:\n    {BACKWARD}", True, False, False),
        ("for x in loader:\n    y = model(x)", False, False, False),
        (f"for x in loader:\n    {STEP}", False, False, False),
        ("for item in y:\n    scaler.step(item)", False, False, True),
        ("for item in y:\n    item.zero_grad()", False, False, True),
        ("for item in y:\n    scaler.unscale_(item.optimizer)", False, False, True),
        ("for item in y:\n    scaler.unscale_(optimizer[item])", False, False, True),
        ("for item in model.parameters():\n    item.grad = None", False, False, True),
    ],
)
def test_kinds_of_loops(loop: str, trains: bool, steps: bool, container: bool) -> None:
    reading = Reading(loop)
    shape = LoopReader(reading.reader).shape(reading.function.body[0], reading.function)
    assert (shape.trains, shape.steps, shape.container) == (trains, steps, container)


@pytest.mark.parametrize(
    "head",
    [
        "for x in loader:",
        "for i, x in enumerate(loader):",
        "for i, x in enumerate(tqdm(loader)):",
        "for i in range(n):",
        "while True:",
        "while n > 0:",
        "for epoch in range(n):\n  for x in loader:",
    ],
)
def test_the_second_iteration_is_followed(head: str) -> None:
    pad = " " * (4 if "\n  for" not in head else 6)
    assert codes(f"{head}\n{pad}{ITERATION}") == []
    assert codes(f"{head}\n{pad}{ITERATION.replace(UPDATE, 'pass')}") == ["AMP105"]


# -- windows -----------------------------------------------------------------------------------

FINISH = f"{STEP}; {UPDATE}; {CLEAR}"
WINDOWS = [
    ("for i, x in enumerate(loader):", "(i + 1) % accum == 0", "len(loader) % accum != 0"),
    ("for i, x in enumerate(loader):", "(i + 1) % accum == 0", "(i + 1) % accum != 0"),
    ("for i, x in enumerate(loader):", "i % accum == accum - 1", "len(loader) % accum"),
    ("for i, x in enumerate(loader, 1):", "i % accum == 0", "len(loader) % accum != 0"),
    ("for i, x in enumerate(loader, start=1):", "not i % accum", "i % accum != 0"),
    ("for i in range(n):", "(i + 1) % accum == 0", "(i + 1) % accum != 0"),
]


@pytest.mark.parametrize(("head", "closed", "rest"), WINDOWS)
def test_the_rest_of_a_window_is_flushed_once(head: str, closed: str, rest: str) -> None:
    loop = f"{head}\n    {BACKWARD}\n    if {closed}:\n        {FINISH}"
    assert codes(loop) == []
    assert codes(loop, after=f"if {rest}:\n    {FINISH}") == []


@pytest.mark.parametrize(("head", "closed", "rest"), WINDOWS)
def test_a_flush_without_the_right_guard(head: str, closed: str, rest: str) -> None:
    loop = f"{head}\n    {BACKWARD}\n    if {closed}:\n        {FINISH}"
    assert codes(loop, after=FINISH) == ["AMP103"]
    assert codes(loop, after=f"if not ({rest}):\n    {FINISH}") == ["AMP103"]


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        ("i % accum == 0", "(i + 1) % accum == 0", []),
        ("i % accum == 0", "i % accum == accum - 1", []),
        ("i == 0", "(i + 1) % accum == 0", ["AMP116"]),
        ("i % n == 0", "(i + 1) % accum == 0", ["AMP116"]),
    ],
)
def test_gradients_cleared_at_the_start_of_a_window(start, end, expected) -> None:
    loop = (
        f"for i, x in enumerate(loader):\n    if {start}:\n        {CLEAR}\n"
        f"    {BACKWARD}\n    if {end}:\n        {STEP}\n        {UPDATE}"
    )
    assert codes(loop) == expected


def test_the_last_iteration_is_not_followed_by_another() -> None:
    loop = (
        f"for i, x in enumerate(loader):\n    {BACKWARD}\n    {STEP}\n"
        f"    if i == len(loader) - 1:\n        {STEP}\n    {UPDATE}\n    {CLEAR}"
    )
    assert codes(loop) == ["AMP104"]
    harmless = loop.replace(f"        {STEP}\n", "        pass\n")
    assert codes(harmless) == []


# -- exits -------------------------------------------------------------------------------------


@pytest.mark.parametrize("exit_", ["break", "continue", "return", "raise ValueError"])
def test_leaving_before_the_backward_is_harmless(exit_: str) -> None:
    loop = f"for x in loader:\n    if model(x) is None: {exit_}\n    {BACKWARD}\n    {FINISH}"
    assert codes(loop) == []
    assert codes(loop.replace(UPDATE, "pass")) == ["AMP105"]


def test_continue_between_step_and_update_leaves_the_round_open() -> None:
    loop = (
        f"for x in loader:\n    {CLEAR}\n    {BACKWARD}\n    {STEP}\n"
        f"    if model(x) is None:\n        continue\n    {UPDATE}"
    )
    assert codes(loop) == ["AMP105"]


def test_break_keeps_what_the_iteration_did() -> None:
    loop = (
        f"for x in loader:\n    {CLEAR}\n    {BACKWARD}\n"
        f"    if n:\n        break\n    {STEP}\n    {UPDATE}"
    )
    assert codes(loop, after=f"{STEP}\n{UPDATE}") == ["AMP103"]
    assert codes(loop.replace("if n:", "if model(x):")) == []


@pytest.mark.parametrize(
    ("otherwise", "expected"), [("pass", []), (UPDATE, ["AMP106"]), (STEP, ["AMP103"])]
)
def test_else_runs_after_the_last_iteration(otherwise: str, expected: list) -> None:
    assert codes(f"for x in loader:\n    {ITERATION}\nelse:\n    {otherwise}") == expected


# -- loops over optimizers ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "container", ["optimizers", "optimizers.values()", "(first, second)", "list(optimizers)"]
)
def test_one_round_stands_for_all_optimizers(container: str) -> None:
    setup = "optimizers = n\nfirst, second = n\n"
    loop = (
        f"for x in loader:\n    for opt in {container}:\n        opt.zero_grad()\n    {BACKWARD}\n"
        f"    for opt in {container}:\n        scaler.unscale_(opt)\n"
        "    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
        f"    for opt in {container}:\n        scaler.step(opt)\n    {UPDATE}"
    )
    assert codes(setup + loop) == []
    doubled = loop.replace("scaler.step(opt)", "scaler.step(opt); scaler.step(opt)")
    assert codes(setup + doubled) == ["AMP104"]


def test_a_comprehension_over_optimizers() -> None:
    loop = (
        "for x in loader:\n    [opt.zero_grad() for opt in optimizers]\n"
        f"    {BACKWARD}\n    [scaler.step(opt) for opt in optimizers]\n    {UPDATE}"
    )
    assert codes("optimizers = n\n" + loop) == []
    assert codes("optimizers = n\n" + loop.replace(UPDATE, "pass")) == ["AMP105"]
