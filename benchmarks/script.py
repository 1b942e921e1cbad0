"""A training script of about 1,500 lines, written by a program: the same text every time.

Run it to see the text: `python benchmarks/script.py`.
"""

from __future__ import annotations

from trainer_text import MAIN, MODEL, TRAINER

IMPORTS = '''\
"""Train an image model with automatic mixed precision."""

import argparse
import contextlib
import json
import logging
import math
import os
import random
import time
from collections import defaultdict
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

logger = logging.getLogger(__name__)
'''

BLOCK = '''
class {name}(nn.Module):
    """A residual block with {norm} and {activation}."""

    def __init__(self, channels, expansion={expansion}, dropout={dropout}):
        super().__init__()
        hidden = channels * expansion
        self.norm = nn.{norm}({norm_arguments})
        self.expand = nn.Conv2d(channels, hidden, 1, bias=False)
        self.depthwise = nn.Conv2d(hidden, hidden, {kernel}, padding={padding}, groups=hidden)
        self.project = nn.Conv2d(hidden, channels, 1)
        self.activation = nn.{activation}()
        self.dropout = nn.Dropout(dropout) if dropout > 0 else nn.Identity()
        self.scale = nn.Parameter(torch.full((channels, 1, 1), 1e-2))

    def forward(self, x, mask=None):
        shortcut = x
        x = self.norm(x)
        x = self.activation(self.expand(x))
        x = self.activation(self.depthwise(x))
        if mask is not None:
            x = x * mask.unsqueeze(1)
        x = self.dropout(self.project(x))
        return shortcut + self.scale * x

    def flops(self, height, width):
        total = 0
        for layer in (self.expand, self.depthwise, self.project):
            kernel = layer.kernel_size[0] * layer.kernel_size[1]
            total += kernel * layer.in_channels * layer.out_channels // layer.groups
        return total * height * width
'''

DATASET = '''
class {name}(Dataset):
    """Images of the {split} split, with {what}."""

    def __init__(self, root, size={size}, cache=False):
        self.root = Path(root)
        self.size = size
        self.files = sorted(self.root.glob("{split}/*.pt"))
        self.cache = {{}} if cache else None
        if not self.files:
            logger.warning("no files below %s", self.root)

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        if self.cache is not None and index in self.cache:
            return self.cache[index]
        image, target = torch.load(self.files[index])
        image = self.augment(image.float() / 255)
        if self.cache is not None:
            self.cache[index] = image, target
        return image, target

    def augment(self, image):
        if random.random() < {chance}:
            image = torch.flip(image, [-1])
        top = random.randint(0, max(0, image.shape[-2] - self.size))
        left = random.randint(0, max(0, image.shape[-1] - self.size))
        image = image[..., top : top + self.size, left : left + self.size]
        if random.random() < {chance}:
            image = (image * (0.8 + 0.4 * random.random())).clamp(0, 1)
        return (image - 0.5) / 0.25
'''

METRIC = '''
class {name}:
    """{what} over an epoch."""

    def __init__(self, classes):
        self.classes = classes
        self.reset()

    def reset(self):
        self.count = 0
        self.total = 0.0
        self.per_class = defaultdict(float)

    def update(self, output, target):
        probabilities = output.float().softmax(dim=-1)
        value = {formula}
        self.total += float(value) * len(target)
        self.count += len(target)
        for label in target.unique().tolist():
            self.per_class[label] += int((target == label).sum())

    def compute(self):
        if self.count == 0:
            return 0.0
        return self.total / self.count

    def synchronize(self, device):
        if not (dist.is_available() and dist.is_initialized()):
            return
        values = torch.tensor([self.total, self.count], device=device)
        dist.all_reduce(values)
        self.total, self.count = values.tolist()
'''

SCHEDULE = '''
def {name}(step, total, base, warmup={warmup}):
    """Learning rate at a step: linear warm-up, then {what}."""
    if step < warmup:
        return base * (step + 1) / warmup
    progress = (step - warmup) / max(1, total - warmup)
    if progress >= 1:
        return 0.0
    return base * {formula}
'''

HELPER = '''
def {name}(values, default={default}):
    """{what}."""
    kept = []
    for key, value in sorted(values.items()):
        if value is None:
            continue
        if isinstance(value, torch.Tensor):
            value = value.detach().float().mean().item()
        if isinstance(value, (list, tuple)):
            value = sum(value) / len(value) if value else default
        if not math.isfinite(value):
            logger.warning("%s is not finite", key)
            value = default
        kept.append(({expression}))
    return kept
'''

FLAGS = ("amp", "ema", "cache", "checkpointing", "stop-on-nan")
NUMBERS = {
    "epochs": 90,
    "batch-size": 128,
    "workers": 8,
    "seed": 0,
    "channels": 96,
    "classes": 1000,
    "accumulate": 1,
    "log-every": 50,
    "keep": 3,
    "max-steps": 0,
    "evaluate-every": 1,
    "lr": 1e-3,
    "weight-decay": 0.05,
    "label-smoothing": 0.1,
    "ema-decay": 0.9999,
    "mixup": 0.0,
    "mixup-chance": 0.5,
    "entropy-weight": 0.0,
}
NAMES = {
    "output": "runs",
    "data": "data",
    "optimizer": "adamw",
    "schedule": "cosine0",
    "monitor": "accuracy0",
    "dataset": "train0",
    "valid-dataset": "valid0",
    "resume": "",
}
NORMS = (("BatchNorm2d", "channels"), ("GroupNorm", "8, channels"), ("InstanceNorm2d", "channels"))
ACTIVATIONS = ("ReLU", "GELU", "SiLU")
METRIC_FORMULAS = (
    ("accuracy", "Accuracy", "(probabilities.argmax(dim=-1) == target).float().mean()"),
    ("confidence", "Mean confidence", "probabilities.max(dim=-1).values.mean()"),
    ("nll", "Negative log-likelihood", "F.nll_loss(probabilities.clamp_min(1e-6).log(), target)"),
)
SCHEDULE_FORMULAS = (
    ("cosine", "half a cosine", "0.5 * (1 + math.cos(math.pi * progress))"),
    ("linear", "a straight line", "(1 - progress)"),
    ("root", "an inverse root", "(1 + 9 * progress) ** -0.5"),
)


def _blocks() -> tuple[str, str]:
    parts, table = [], []
    for number in range(12):
        norm, arguments = NORMS[number % 3]
        parts.append(
            BLOCK.format(
                name=f"Block{number}",
                norm=norm,
                norm_arguments=arguments,
                activation=ACTIVATIONS[number // 3 % 3],
                expansion=2 + number % 3,
                dropout=0.1 * (number % 2),
                kernel=3 + 2 * (number % 3),
                padding=1 + number % 3,
            )
        )
        table.append(f'    "block{number}": Block{number},')
    return "\n".join(parts), "\nBLOCKS = {\n" + "\n".join(table) + "\n}\n"


def _datasets() -> tuple[str, str]:
    parts, table = [], []
    for number in range(6):
        split = ("train", "valid")[number % 2]
        name = f"{split.title()}{number // 2}"
        parts.append(
            DATASET.format(
                name=name,
                split=split,
                what="random crops and flips",
                size=160 + 32 * number,
                chance=0.25 * (number % 3 + 1),
            )
        )
        table.append(f'    "{name.lower()}": {name},')
    return "\n".join(parts), "\nDATASETS = {\n" + "\n".join(table) + "\n}\n"


def _metrics() -> tuple[str, str]:
    parts, table = [], []
    for number in range(6):
        key, what, formula = METRIC_FORMULAS[number % 3]
        name = f"{key.title()}{number // 3}"
        parts.append(METRIC.format(name=name, what=what, formula=formula))
        table.append(f'    "{name.lower()}": {name},')
    return "\n".join(parts), "\nMETRICS = {\n" + "\n".join(table) + "\n}\n"


def _schedules() -> tuple[str, str]:
    parts, table = [], []
    for number in range(9):
        key, what, formula = SCHEDULE_FORMULAS[number % 3]
        name = f"{key}{number // 3}"
        parts.append(
            SCHEDULE.format(name=name, what=what, formula=formula, warmup=500 * (number + 1))
        )
        table.append(f'    "{name}": {name},')
    return "\n".join(parts), "\nSCHEDULES = {\n" + "\n".join(table) + "\n}\n"


def _helpers() -> str:
    kinds = (
        ("lines_of", "Lines of a log", 'f"{key}: {value:.4f}"'),
        ("pairs_of", "Pairs for a table", "key, value"),
        ("rounded", "Rounded pairs", "key, round(value, 4)"),
    )
    return "\n".join(
        HELPER.format(
            name=f"{name}{number}", what=what, default=float(number), expression=expression
        )
        for number in range(4)
        for name, what, expression in kinds
    )


def _arguments() -> str:
    lines = ["", "", "def parse_arguments():", "    parser = argparse.ArgumentParser()"]
    lines += [f'    parser.add_argument("--{flag}", action="store_true")' for flag in FLAGS]
    lines += [
        f'    parser.add_argument("--{name}", type={type(value).__name__}, default={value})'
        for name, value in NUMBERS.items()
    ]
    lines += [
        f'    parser.add_argument("--{name}", default="{value}")' for name, value in NAMES.items()
    ]
    lines += [
        '    parser.add_argument("--clip-norm", type=float, default=None)',
        '    parser.add_argument("--blocks", nargs="+", default=["block0"])',
        '    parser.add_argument("--metrics", nargs="+", default=["accuracy0"])',
        "    return parser.parse_args()",
        "",
    ]
    return "\n".join(lines)


def training_script() -> str:
    """The script's text."""
    sections = [IMPORTS]
    tables = []
    for write in (_blocks, _datasets, _metrics, _schedules):
        text, table = write()
        sections.append(text)
        tables.append(table)
    return "\n".join([*sections, _helpers(), *tables, MODEL, _arguments(), TRAINER, MAIN])


if __name__ == "__main__":
    print(training_script(), end="")
