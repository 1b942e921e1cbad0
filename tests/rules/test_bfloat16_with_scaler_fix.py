"""The fix of AMP402 where the dtype is chosen: the scaler is built behind that choice.

And where region and switch are chosen together: what goes with bfloat16 decides.
"""

from __future__ import annotations

from amplint.config import Settings
from amplint.fixing.fixer import FixTask, fix
from amplint.inspection import Task, inspect
from amplint.selection import Selection
from amplint.source.reading import decode

EVERY = Selection(Settings(plugins=False)).codes
BEFORE = """\
import torch

def train(model, optimizer, loader, args):
    scaler = torch.amp.GradScaler("cuda")  # one for all
    if args.precision == "half":
        dtype = torch.float16
    else:
        dtype = torch.bfloat16
    for inputs in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=dtype):
            loss = model(inputs)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
"""
BUILT = '    scaler = torch.amp.GradScaler("cuda")  # one for all\n'
SWITCHED = (
    '    scaler = torch.amp.GradScaler("cuda", enabled=dtype == torch.float16)  # one for all\n'
)


def fixed(text: str) -> str:
    data = text.encode()
    return fix(FixTask(Task(decode(data, "train.py"), EVERY), EVERY, True, data)).text


def test_the_scaler_moves_behind_the_choice() -> None:
    head, tail = BEFORE.replace(BUILT, "").split("    for inputs")
    assert fixed(BEFORE) == f"{head}{SWITCHED}    for inputs{tail}"


def test_a_switch_that_says_nothing_goes() -> None:
    text = BEFORE.replace('GradScaler("cuda")', 'GradScaler("cuda", enabled=True)')
    assert fixed(text) == fixed(BEFORE)


def test_it_stays_where_it_is_read_before() -> None:
    text = BEFORE.replace(
        "        dtype = torch.float16\n", "        log(scaler)\n        dtype = torch.float16\n"
    )
    assert fixed(text) == text


TOGETHER = """\
import torch

def chosen(want):
    if want == "bf16" and torch.cuda.is_bf16_supported():
        return torch.autocast("cuda", dtype=torch.bfloat16), False
    if want == "fp16":
        return torch.autocast("cuda", dtype=torch.float16), True
    return torch.autocast("cuda", enabled=False), False

def train(model, optimizer, loader, args):
    region, scales = chosen(args.precision)
    scaler = torch.amp.GradScaler("cuda", enabled=scales)
    for inputs in loader:
        optimizer.zero_grad()
        with region:
            loss = model(inputs)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
"""


def rows(text: str) -> list[int]:
    """Where AMP402 is found."""
    found = inspect(Task(decode(text.encode(), "train.py"), EVERY)).findings
    return [finding.span.start.row for finding in found if finding.code == "AMP402"]


def test_a_switch_that_comes_with_the_region() -> None:
    assert rows(TOGETHER) == []


def test_a_wrong_switch_that_comes_with_the_region_is_told_and_left_to_a_person() -> None:
    wrong = TOGETHER.replace("dtype=torch.bfloat16), False", "dtype=torch.bfloat16), True")
    assert rows(wrong) == [12]
    assert fixed(wrong) == wrong  # the float16 of the other one needs its scaler
