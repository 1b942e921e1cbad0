"""How the cost of a file grows with one thing in it: `python benchmarks/growth.py`.

Each shape is a program with a count of something. It is checked with every rule, in this process,
at four counts, each twice the one before; the table has processor seconds, and how much the last
doubling multiplied them. See README.md.

Exit status: 0, or 1 where a figure is over its budget.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from amplint.checker import check_source
from amplint.config import Settings

#: How much twice as many may cost, unless the file's budget of visits ended the analysis: linear
#: is 2. What compares each with each, in a fast way, is behind the rest.
RATIO_BUDGET = 3.6
#: Processor seconds of the largest program.
SECONDS_BUDGET = 12.0

EVERY_RULE = Settings(select=("ALL",))
Lines = list[str]

STEP = (
    "optimizer.zero_grad()",
    "with torch.autocast('cuda', enabled=amp):",
    "    loss = model(x)",
    "scaler.scale(loss).backward()",
    "scaler.step(optimizer)",
    "scaler.update()",
)


def _indented(lines: Lines | tuple[str, ...], depth: int = 1) -> Lines:
    return ["    " * depth + line for line in lines]


def _program(*lines: str) -> str:
    return "\n".join(("import torch", *lines, ""))


def loops(count: int) -> str:
    """Training loops one after the other in one function, each with a scaler."""
    head = "scaler = torch.amp.GradScaler('cuda', enabled=amp)"
    loop = [head, "for x in loader:", *_indented(STEP)]
    body = _indented([line for _ in range(count) for line in loop])
    return _program("def train(model, optimizer, loader, amp):", *body)


def overrides(count: int) -> str:
    """Classes in a row, each with a `step` that calls the one before with `super()`."""
    lines = [
        "class C0:",
        "    def __init__(self, model, optimizer):",
        "        self.model, self.optimizer = model, optimizer",
        "        self.scaler = torch.amp.GradScaler('cuda')",
        "    def step(self, x):",
        "        self.optimizer.zero_grad()",
        "        self.scaler.scale(self.model(x)).backward()",
        "        self.scaler.step(self.optimizer)",
        "        self.scaler.update()",
    ]
    for number in range(1, count):
        lines += [
            f"class C{number}(C{number - 1}):",
            "    def step(self, x):",
            f"        self.count{number} = 1",
            "        super().step(x)",
        ]
    return _program(*lines)


def cases(count: int) -> str:
    """A `match` whose cases scale different losses."""
    match = ["match mode:"]
    for number in range(count):
        match += [f"    case {number}:", f"        scaler.scale(loss * {number}).backward()"]
    return _matching([*match, "    case _:", "        scaler.scale(loss).backward()"])


def guarded_cases(count: int) -> str:
    """A `match` on classes, with a guard at each case."""
    match = ["match mode:"]
    for number in range(count):
        match += [f"    case Mode(a={number}) if amp:", f"        loss = loss * {number}"]
    return _matching([*match, "scaler.scale(loss).backward()"])


def _matching(match: Lines) -> str:
    body = ["optimizer.zero_grad()", "loss = model(x)", *match, *STEP[-2:]]
    return _program(
        "def train(model, optimizer, loader, mode, amp):",
        "    scaler = torch.amp.GradScaler('cuda')",
        "    for x in loader:",
        *_indented(body, 2),
    )


def networks(count: int) -> str:
    """Networks and optimizers that a loop builds and trains, each of a class with a part."""
    lines: Lines = []
    for number in range(count):
        lines += [
            f"class Net{number}(torch.nn.Module):",
            "    def __init__(self, size):",
            "        super().__init__()",
            f"        self.part = Part{number}(size)",
            "    def forward(self, x):",
            "        return self.part(x)",
            f"class Part{number}(torch.nn.Module):",
            "    def __init__(self, size):",
            "        super().__init__()",
            "        self.linear = torch.nn.Linear(size, size)",
            "    def forward(self, x):",
            "        return self.linear(x)",
        ]
    body: Lines = []
    for number in range(count):
        body += [
            f"net{number} = Net{number}(3)",
            f"optimizer{number} = torch.optim.Adam(net{number}.parameters())",
            f"optimizer{number}.zero_grad()",
            f"scaler.scale(net{number}(x)).backward()",
            f"scaler.step(optimizer{number})",
        ]
    head = [
        "def train(loader):",
        "    scaler = torch.amp.GradScaler('cuda')",
        "    for x in loader:",
    ]
    return _program(*lines, *head, *_indented([*body, "scaler.update()"], 2))


def trainers(count: int) -> str:
    """Objects that a loop builds, each with a scaler and an optimizer, under a test."""
    lines: Lines = []
    for number in range(count):
        lines += [
            f"class Trainer{number}:",
            "    def __init__(self, net, amp):",
            "        self.net = net",
            "        self.optimizer = torch.optim.Adam(net.parameters())",
            "        self.scaler = torch.amp.GradScaler('cuda', enabled=amp)",
            "        if amp:",
            "            self.flag = 1",
            "    def play(self, x):",
            "        self.optimizer.zero_grad()",
            "        self.scaler.scale(self.net(x)).backward()",
            "        self.scaler.step(self.optimizer)",
            "        self.scaler.update()",
        ]
    body: Lines = []
    for number in range(count):
        body += [f"one{number} = Trainer{number}(nets[{number}], amp)", f"one{number}.play(x)"]
    head = [
        "def train(loader, amp, nets):",
        "    for epoch in range(9):",
        "        for x in loader:",
    ]
    return _program(*lines, *head, *_indented(body, 3))


#: Each shape with the largest of its counts.
SHAPES: dict[Callable[[int], str], int] = {
    loops: 200,
    overrides: 200,
    cases: 640,
    guarded_cases: 640,
    networks: 100,
    trainers: 100,
}


def seconds_of(text: str) -> tuple[float, bool]:
    """Processor seconds of a check, and whether it reached the end of every function."""
    start = time.process_time()
    result = check_source("a.py", text.encode(), EVERY_RULE)
    assert not result.errors
    return time.process_time() - start, not result.unfinished


def main() -> int:
    """Measure, print, and return the exit status."""
    seconds_of(loops(1))  # imports
    failed = False
    print(f"{'shape':<15} {'largest':>7}  seconds at 1/8, 1/4, 1/2 and all of it     ratio")
    for shape, largest in SHAPES.items():
        costs = [min(seconds_of(shape(largest // part)) for _ in range(2)) for part in (8, 4, 2, 1)]
        ratio = costs[-1][0] / costs[-2][0]
        ended = costs[-1][1]
        over = (ended and ratio > RATIO_BUDGET) or costs[-1][0] > SECONDS_BUDGET
        failed |= over
        words = ("" if ended else "  incomplete, and told") + ("  TOO MUCH" if over else "")
        row = " ".join(f"{seconds:9.2f}" for seconds, _ in costs)
        print(f"{shape.__name__:<15} {largest:>7}  {row}     {ratio:5.1f}{words}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
