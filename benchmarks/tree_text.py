"""A tree of Python files in the shape of a large project, written by a program.

Sizes follow public training code (half of its files have less than 4 kB, a tenth more than
19 kB); one file in twenty mentions AMP; every module imports others. The same text every time:
`python benchmarks/tree_text.py FOLDER 2000` writes it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from script import BLOCK, DATASET, HELPER, METRIC, SCHEDULE
from trainer_text import MODEL, TRAINER

#: Files of one package, its `__init__.py` included.
PACKAGE = 50
#: One file in so many mentions AMP.
EVERY = 20
#: Sizes in bytes that files are filled up to: twentieths of the distribution.
SIZES = (
    *(200, 600, 1_000, 1_400, 1_900, 2_400, 2_900, 3_400, 3_700, 4_000),
    *(4_800, 5_700, 6_900, 8_200, 9_800, 12_000, 15_000, 19_000, 27_500, 42_000),
)

LOOP = '''
def train(model, optimizer, loader, config, device):
    """One epoch with {what}."""
    scaler = torch.amp.GradScaler("cuda", enabled=config.amp)
    history = []
    for index, (images, targets) in enumerate(loader):
        images, targets = images.to(device), targets.to(device)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.float16, enabled=config.amp):
            output = model(images)
            loss = F.cross_entropy(output, targets, label_smoothing={smoothing})
        scaler.scale(loss).backward()
        if config.clip_norm is not None:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), config.clip_norm)
        scaler.step(optimizer)
        scaler.update()
        if index % {period} == 0:
            history.append(loss.item())
            logger.info("step %d: %.4f", index, history[-1])
    return history
'''

WRAPPED_LOOP = '''
def train(model, optimizer, loader, config, device):
    """One epoch; the wrapper knows when to step."""
    scaler = LossScaler(config.amp)
    optimizer.zero_grad()
    for index, (images, targets) in enumerate(loader):
        boundary = (index + 1) % {period} == 0
        with torch.autocast("cuda", dtype=torch.float16, enabled=config.amp):
            loss = F.cross_entropy(model(images.to(device)), targets.to(device))
        norm = scaler(loss / {period}, optimizer, model.parameters(), config.clip_norm, boundary)
        if boundary:
            optimizer.zero_grad()
            logger.info("step %d: norm %s", index, norm)
'''

WRAPPER = '''\
"""The loss scaler that every package shares."""

import torch


class LossScaler:
    """Scales, runs the backward, clips and steps."""

    def __init__(self, enabled=True):
        self._scaler = torch.amp.GradScaler("cuda", enabled=enabled)

    def __call__(self, loss, optimizer, parameters, clip_norm=None, step=True):
        self._scaler.scale(loss).backward()
        if not step:
            return None
        norm = None
        if clip_norm is not None:
            self._scaler.unscale_(optimizer)
            norm = torch.nn.utils.clip_grad_norm_(parameters, clip_norm)
        self._scaler.step(optimizer)
        self._scaler.update()
        return norm

    def state_dict(self):
        return self._scaler.state_dict()

    def load_state_dict(self, state):
        self._scaler.load_state_dict(state)
'''

EVALUATE = '''
@torch.no_grad()
def evaluate(model, loader, device, amp={amp}):
    """Accuracy, in half precision where that is wanted."""
    model.eval()
    right = seen = 0
    for images, targets in loader:
        with torch.autocast("cuda", enabled=amp):
            output = model(images.to(device))
        right += int((output.argmax(dim=-1).cpu() == targets).sum())
        seen += len(targets)
    return right / max(1, seen)
'''

FLAG = '''
def add_arguments(parser):
    """Options of the runs in this package."""
    parser.add_argument("--amp", action="store_true", default={amp})
    parser.add_argument("--clip-norm", type=float, default=None)
    parser.add_argument("--accumulate", type=int, default={period})
    return parser
'''

NAMES = '''
def names_of{index}(step):
    """Names of the steps until now."""
    if step < 0:
        return
    yield f"part{index}-{{step}}"'''

#: What a text may mention -> how it is imported there: the standard library, then the others.
IMPORTED = (
    {
        "contextlib": "import contextlib",
        "json": "import json",
        "logger": "import logging",
        "math": "import math",
        "os": "import os",
        "random": "import random",
        "time": "import time",
        "defaultdict": "from collections import defaultdict",
        "Path": "from pathlib import Path",
    },
    {
        "torch": "import torch",
        "dist": "import torch.distributed as dist",
        "F": "import torch.nn.functional as F",
        "nn": "from torch import nn",
        "Dataset": "from torch.utils.data import Dataset",
    },
)

PYPROJECT = '[project]\nname = "tree"\nversion = "0"\n'


def write_tree(folder: Path, count: int) -> None:
    """Write `count` Python files, and the project file that makes the folder a root."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.joinpath("pyproject.toml").write_text(PYPROJECT, "utf-8")
    for name, text in tree(count):
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")


def tree(count: int) -> Iterator[tuple[str, str]]:
    """Relative path and text of every file; one in `EVERY` mentions AMP."""
    for number in range(count):
        package, index = divmod(number, PACKAGE)
        name = "__init__" if index == 0 else "common" if index == 10 else f"part{index}"
        yield f"area{package}/{name}.py", _text(package, index)


def _text(package: int, index: int) -> str:
    if index == 0:
        return _package_text(package)
    if index % EVERY != 10:
        return _module(package, index, "")
    # 10, 30 and every second 50 + 0: `index` 10 is the wrapper, 30 uses AMP in one of five ways.
    if index == 10:
        return WRAPPER
    return _module(package, index, _amp_part(package))


def _package_text(package: int) -> str:
    lines = [f"from .part{part} import names_of{part} as names_of{part}" for part in (1, 11, 21)]
    text = f'"""Package {package}."""\n\n' + "\n".join(lines) + "\n"
    # In every second package, so that with `common` and `part30` one file in twenty mentions AMP.
    return text + "\n" + FLAG.format(amp=False, period=1) if package % 2 else text


def _amp_part(package: int) -> str:
    kinds = (
        LOOP.format(what="plain scaling", smoothing=0.1, period=50),
        WRAPPED_LOOP.format(period=2 + package % 3),
        EVALUATE.format(amp=bool(package % 2)),
        "\nBLOCKS, METRICS, SCHEDULES = {}, {}, {}\n" + MODEL + TRAINER,
        LOOP.format(what="clipping", smoothing=0.0, period=10) + EVALUATE.format(amp=True),
    )
    return kinds[package % len(kinds)]


def _module(package: int, index: int, special: str) -> str:
    others = dict(_others(package, index, wrapped="LossScaler" in special))
    calls = [
        f"    yield from {name}(step - 1)"
        for name in others.values()
        if name.startswith("names_of")
    ]
    parts = [special, "\n".join(["", NAMES.format(index=index), *calls, ""])]
    length = sum(map(len, parts))
    size = SIZES[(7 * package + 3 * index) % len(SIZES)]
    for filler in _fillers(package, index):
        if length >= size:
            break
        parts.append(filler)
        length += len(filler)
    body = "\n".join(parts).strip("\n")
    title = f'"""Part {index} of package {package}."""'
    return "\n".join([title, *_head(others, body), body, ""])


def _head(others: dict[str, str], body: str) -> Iterator[str]:
    """Imports of what a text uses and nothing else, sorted: linters find nothing there."""
    for group in IMPORTED:
        lines = [line for name, line in group.items() if re.search(rf"\b{name}\b", body)]
        yield from ("", *lines) if lines else ()
    for relative in (False, True):
        lines = [
            f"from {module} import {name}"
            for module, name in others.items()
            if module.startswith(".") == relative
        ]
        yield from ("", *lines) if lines else ()
    if "logger" in body:
        yield from ("", "logger = logging.getLogger(__name__)")
    yield from ("", "")


def _others(package: int, index: int, *, wrapped: bool) -> Iterator[tuple[str, str]]:
    """Modules and what is imported of them: of a neighbour, of the package before."""
    before = index - 1 - (index == 11)
    if package:
        beside = before - 1 if before > 1 else 3
        beside -= beside == 10  # which is `common`
        yield f"area{package - 1}.part{beside}", f"names_of{beside}"
    if wrapped:
        yield ".common", "LossScaler"
    if before:
        yield f".part{before}", f"names_of{before}"


def _fillers(package: int, index: int) -> Iterator[str]:
    number = index
    while True:
        yield BLOCK.format(
            name=f"Block{number}",
            norm="GroupNorm",
            norm_arguments="8, channels",
            activation=("ReLU", "GELU", "SiLU")[number % 3],
            expansion=2 + number % 3,
            dropout=0.1 * (package % 2),
            kernel=3 + 2 * (number % 3),
            padding=1 + number % 3,
        )
        yield METRIC.format(
            name=f"Metric{number}", what="Mean confidence", formula="probabilities.amax(-1).mean()"
        )
        yield SCHEDULE.format(
            name=f"linear{number}", what="a line", formula="(1 - progress)", warmup=500 + number
        )
        yield DATASET.format(
            name=f"Train{number}", split="train", what="random crops", size=160 + number, chance=0.5
        )
        yield HELPER.format(
            name=f"pairs{number}", what="Pairs for a table", default=0.0, expression="key, value"
        )
        number += PACKAGE


if __name__ == "__main__":
    write_tree(Path(sys.argv[1]), int(sys.argv[2]))
