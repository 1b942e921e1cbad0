"""Functions that would cost exponential time if every path were followed by itself.

Each holds two nested training loops and `count` tests in a row, on flags of the caller.
"""

from __future__ import annotations

from collections.abc import Callable

Lines = list[str]

STEP = (
    "if amp:",
    "    scaler.scale(loss).backward()",
    "    scaler.step(optimizer)",
    "    scaler.update()",
    "else:",
    "    loss.backward()",
    "    optimizer.step()",
)


def _program(parameters: str, tests: Lines, step: Lines, setup: Lines | None = None) -> str:
    body = ["optimizer.zero_grad()", "loss = model(batch)", *tests, *step]
    inner = ["for batch in loader:", *(f"    {line}" for line in body)]
    loops = ["for epoch in range(epochs):", *(f"    {line}" for line in inner)]
    made = ["scaler = torch.amp.GradScaler('cuda') if amp else None"] if setup is None else setup
    head = f"def train(model, optimizer, loader, epochs, amp, {parameters}):"
    return "\n".join(["import torch", head, *(f"    {line}" for line in (*made, *loops)), ""])


def correlated(count: int) -> str:
    """All tests on the flag that decides about AMP, with assignments to the loss."""
    tests = []
    for _ in range(count):
        tests += ["if amp:", "    loss = loss / 2", "else:", "    loss = loss + 1"]
    return _program("seed", tests, list(STEP))


def four_flags(count: int) -> str:
    """Tests on four flags in turn, with assignments to the loss."""
    tests = []
    for number in range(count):
        tests += [f"if flag{number % 4}:", "    loss = loss / 2"]
    return _program("flag0, flag1, flag2, flag3", tests, list(STEP))


def independent(count: int) -> str:
    """Half of the tests store a flag each, the other half act on what was stored."""
    numbers = range(count // 2)
    tests = []
    for number in numbers:
        tests += [f"if flag{number}:", f"    on{number} = True", "else:", f"    on{number} = False"]
    for number in numbers:
        tests += [f"if on{number}:", "    optimizer.zero_grad()"]
    return _program(", ".join(f"flag{number}" for number in numbers), tests, list(STEP))


def unscaling(count: int) -> str:
    """Protocol calls in every branch: the first flag that is set unscales."""
    flags = [f"flag{number}" for number in range(count)]
    tests = ["scaler.scale(loss).backward()", "unscaled = False"]
    for flag in flags:
        tests += [
            f"if {flag} and not unscaled:",
            "    scaler.unscale_(optimizer)",
            "    unscaled = True",
        ]
    step = ["scaler.step(optimizer)", "scaler.update()"]
    return _program(", ".join(flags), tests, step, ["scaler = torch.amp.GradScaler('cuda')"])


def optimizers(count: int) -> str:
    """Five optimizers, each unscaled under a flag of its own, and tests on those flags."""
    names = [f"optimizer{number}" for number in range(5)]
    flags = [f"flag{number}" for number in range(5)]
    tests = [f"{name}.zero_grad()" for name in names] + ["scaler.scale(loss).backward()"]
    for name, flag in zip(names, flags, strict=True):
        tests += [f"if {flag}:", f"    scaler.unscale_({name})"]
    for number in range(5, count):
        tests += [f"if {flags[number % 5]}:", "    loss = loss / 2"]
    step = [f"scaler.step({name})" for name in names] + ["scaler.update()"]
    parameters = ", ".join([*names, *flags])
    return _program(parameters, tests, step, ["scaler = torch.amp.GradScaler('cuda')"])


SHAPES: dict[str, Callable[[int], str]] = {
    shape.__name__: shape for shape in (correlated, four_flags, independent, unscaling, optimizers)
}
