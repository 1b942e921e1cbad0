"""Why the probe did not confirm what people call true, cause by cause, with correct neighbours.

Every text is a program of its own; what torch does with it was worked out by hand.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from amplint.findings import Evidence
from amplint.probe.process import Worker
from tests.probe.conftest import Asks

pytest.importorskip("torch")

# -- numbers that the probe invents ----------------------------------------------------------------

SPREAD = """\
import torch

def fit(model, optimizer, loader, scaler):
    for images, labels in loader:
        with torch.autocast("cuda"):
            scores = model(images)
            weight = torch.exp(-scores.detach().std())
            loss = (weight * torch.nn.functional.mse_loss(scores, labels)).mean()
        scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
"""
UNSCALES = "        scaler.unscale_(optimizer)\n        torch.nn.utils.clip"


def test_a_deviation_of_one_number_is_no_overflow(ask: Asks) -> None:
    assert ask("AMP110", "clip_grad_norm_", SPREAD).status == "confirmed"


def test_a_deviation_beside_an_unscale(ask: Asks) -> None:
    right = SPREAD.replace("        torch.nn.utils.clip", UNSCALES)
    assert ask("AMP110", "clip_grad_norm_", right).status != "confirmed"


PARTS = """\
import torch

def penalty(scores, labels):
    parts = torch.zeros_like(labels)
    parts[labels > 0] = (1.0 - scores)[labels > 0]
    return parts

def fit(model, optimizer, loader):
    for images, labels in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = penalty(model(images), labels).mean()
        loss.backward()
        optimizer.step()
"""


def test_a_loss_that_is_filled_part_by_part(ask: Asks) -> None:
    assert ask("AMP206", "with torch.autocast", PARTS).status == "confirmed"


def test_a_loss_that_is_filled_in_bfloat16(ask: Asks) -> None:
    wide = PARTS.replace("float16", "bfloat16")
    assert ask("AMP206", "with torch.autocast", wide).status != "confirmed"


CHECKED = """\
import torch

def fit(model, optimizer, loader, scaler):
    for images, labels in loader:
        assert torch.min(labels) >= 1
        optimizer.zero_grad()
        with torch.autocast("cuda"):
            loss = torch.nn.functional.mse_loss(model(images), labels)
        scaler.scale(loss).backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
"""


def test_an_assertion_about_what_users_train_with(ask: Asks) -> None:
    assert ask("AMP110", "clip_grad_norm_", CHECKED).status == "confirmed"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("        scaler.step(", "        assert norm < 0\n        scaler.step("),
        ("labels) >= 1", "labels) >= 1 and scaler.get_scale() < 2"),
    ],
    ids=["gradients", "scale"],
)
def test_an_assertion_about_training(ask: Asks, old: str, new: str) -> None:
    source = CHECKED.replace(old, new)
    assert source != CHECKED
    assert ask("AMP110", "clip_grad_norm_", source).status != "confirmed"


# -- arrays and masks ------------------------------------------------------------------------------

SCORED = """\
import numpy as np
import torch
import dataio

def accuracy(found, wanted):
    hits = (found == wanted).astype(np.float32)
    share = np.array([1, 2, 3], dtype=float)
    return hits.sum() / len(hits) + (share / share.sum())[0]

model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
train, test = dataio.read("train"), dataio.read("test")
for epoch in range(10):
    scaler = torch.amp.GradScaler("cuda")
    for images, labels in torch.utils.data.DataLoader(train):
        optimizer.zero_grad()
        with torch.autocast("cuda"):
            loss = torch.nn.functional.mse_loss(model(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    print(accuracy(np.hstack(test.found).reshape(-1), np.hstack(test.wanted).reshape(-1)))
"""


def test_an_epoch_that_ends_with_a_comparison_of_arrays(ask: Asks) -> None:
    assert ask("AMP119", "scaler = ", SCORED).status == "confirmed"


def test_one_scaler_beside_a_comparison_of_arrays(ask: Asks) -> None:
    built = '    scaler = torch.amp.GradScaler("cuda")\n'
    loop = "for epoch in range(10):\n"
    right = SCORED.replace(built, "").replace(loop, f"{built.strip()}\n{loop}")
    assert ask("AMP119", "scaler = ", right).status != "confirmed"


# -- inputs ----------------------------------------------------------------------------------------

AVERAGED = """\
import torch
from average import Average

def epoch(model, optimizer, loader, average: Average = None):
    scaler = torch.amp.GradScaler("cuda")
    for images, labels in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda"):
            loss = torch.nn.functional.mse_loss(model(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if average is not None:
            average.follow(model)

def main(epochs):
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader(range(8))
    for number in range(epochs):
        epoch(model, optimizer, loader)
"""
AVERAGE = """\
class Average:
    def __init__(self, source):
        self.kept = {}
        self.count = source.count

    def follow(self, model):
        for name, value in model.named_parameters():
            if name not in self.kept:
                raise KeyError(name)
            self.kept[name] = self.kept[name] * 0.9 + value.detach() * 0.1
"""


def test_an_object_that_is_left_out_by_default(ask: Asks) -> None:
    assert ask("AMP119", "scaler = ", AVERAGED, average=AVERAGE).status == "confirmed"


def test_an_object_that_is_left_out_in_a_single_epoch(ask: Asks) -> None:
    once = AVERAGED.replace("    for number in range(epochs):\n        epoch(", "    epoch(")
    assert ask("AMP119", "scaler = ", once, average=AVERAGE).status != "confirmed"


SWITCHED = """\
import argparse
import torch

def truth(text):
    return text.lower() in ("true", "yes")

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--half", type=truth, default="no")
    options = parser.parse_args()
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda", enabled=options.half)
    for images, labels in torch.utils.data.DataLoader(range(8)):
        optimizer.zero_grad()
        with torch.autocast("cuda", enabled=options.half):
            loss = torch.nn.functional.mse_loss(model(images), labels)
        scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()

if __name__ == "__main__":
    main()
"""


def test_an_option_whose_type_is_a_function(ask: Asks) -> None:
    evidence = ask("AMP110", "clip_grad_norm_", SWITCHED)
    assert evidence.status == "confirmed"
    assert "--half" in evidence.detail


def test_an_option_whose_type_is_never_true(ask: Asks) -> None:
    never = SWITCHED.replace('in ("true", "yes")', "in ()")
    assert ask("AMP110", "clip_grad_norm_", never).status != "confirmed"


WINDOW = """\
import torch
from files import Files

class Settings:
    window = 16

def main(epochs):
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    loader = torch.utils.data.DataLoader(Files())
    for number, (images, labels) in enumerate(loader, 1):
        with torch.autocast("cuda"):
            loss = torch.nn.functional.mse_loss(model(images), labels) / Settings.window
        scaler.scale(loss).backward()
        if number % Settings.window == 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
"""


def test_a_window_of_many_batches(ask: Asks) -> None:
    assert ask("AMP110", "clip_grad_norm_", WINDOW).status == "confirmed"


def test_a_window_of_many_batches_that_is_unscaled(ask: Asks) -> None:
    clip = "            torch.nn.utils.clip"
    right = WINDOW.replace(clip, f"            scaler.unscale_(optimizer)\n{clip}")
    assert ask("AMP110", "clip_grad_norm_", right).status != "confirmed"


# -- who calls it ----------------------------------------------------------------------------------

IN_A_PACKAGE = """\
import struct
import torch
import steps

def main(index, epochs):
    count = struct.unpack("<I", open(index, "rb").read(4))[0]
    model = torch.nn.Linear(count, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader(range(count))
    for number in range(epochs):
        steps.training.epoch(model, optimizer, loader)
"""
EPOCH = """\
import torch

def epoch(model, optimizer, loader):
    scaler = torch.amp.GradScaler("cuda")
    for images, labels in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda"):
            loss = torch.nn.functional.mse_loss(model(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
"""


PASSED_ON = IN_A_PACKAGE.replace(
    "    for number in range(epochs):\n",
    "    train(model, optimizer, loader, epochs)\n\n"
    "def train(model, optimizer, loader, epochs):\n    for number in range(epochs):\n",
)


@pytest.mark.parametrize(
    ("main", "status"),
    [
        (IN_A_PACKAGE, True),
        (PASSED_ON, True),
        (PASSED_ON.replace("range(epochs)", "range(1)"), False),
        (IN_A_PACKAGE.replace("range(epochs)", "range(1)"), False),
    ],
    ids=["again", "by-another", "by-another-once", "once"],
)
def test_a_caller_that_imports_the_package_alone(
    ask_in_package: Asks, main: str, status: bool
) -> None:
    evidence = ask_in_package("AMP119", "scaler = ", EPOCH, main=main)
    assert (evidence.status == "confirmed") is status


@pytest.fixture
def ask_in_package(worker: Worker, tmp_path: Path) -> Asks:
    return AsksInPackage(worker, tmp_path)


class AsksInPackage(Asks):
    """Asks about `steps/training.py` beside `main.py`."""

    def __call__(self, code: str, line: str, source: str, **others: str) -> Evidence:
        inner = self._folder / "steps"
        inner.mkdir()
        (inner / "__init__.py").write_text("from . import training\n", encoding="utf-8")
        (self._folder / "main.py").write_text(others["main"], encoding="utf-8")
        return self.of(inner / "training.py", self._folder, code, line, source)


# -- what unknown functions are asked, and where ---------------------------------------------------

EITHER = """\
import argparse
import torch
from metrics import Distance

def fit(model, optimizer, loader, scaler, window=1):
    distance = Distance()
    for number, (images, labels) in enumerate(loader, 1):
        with torch.autocast("cuda"):
            scores = model(images)
        if window > 1:
            loss = distance(scores, labels) / window
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            if number % window == 0:
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
        else:
            loss = distance(scores, labels)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--window", type=int, default=1)
    options = parser.parse_args()
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    loader = torch.utils.data.DataLoader(range(8))
    fit(model, optimizer, loader, scaler, options.window)
"""


def test_a_function_that_is_asked_the_same_in_another_line(ask: Asks) -> None:
    assert ask("AMP108", "scaler.unscale_", EITHER).status == "confirmed"


def test_a_function_that_is_told_what_is_needed(ask: Asks) -> None:
    told = EITHER.replace("distance(scores, labels) / window", "distance(scores, labels, window)")
    assert ask("AMP108", "scaler.unscale_", told).status != "confirmed"
