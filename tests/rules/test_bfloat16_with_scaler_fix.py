"""The fix of AMP402 where the dtype is chosen: the scaler is built behind that choice."""

from __future__ import annotations

from amplint.config import Settings
from amplint.fixing.fixer import FixTask, fix
from amplint.inspection import Task
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


def test_it_stays_where_it_is_read_before() -> None:
    text = BEFORE.replace(
        "        dtype = torch.float16\n", "        log(scaler)\n        dtype = torch.float16\n"
    )
    assert fixed(text) == text
