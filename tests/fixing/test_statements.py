"""The fixes of order mistakes: what they write, and where they are not offered."""

from __future__ import annotations

import pytest

from amplint.config import Settings
from amplint.fixing.fixer import FixTask, fix
from amplint.inspection import Task, inspect
from amplint.selection import Selection
from amplint.source.reading import decode

EVERY = Selection(Settings()).codes
HEAD = """\
import torch


def train(model, optimizer, loader, scaler, max_norm):
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = model(inputs, targets)
"""


def fixed(body: str) -> str:
    """The body of the loop after all fixes."""
    text = HEAD + "".join(f"        {line}\n" for line in body.splitlines())
    data = text.encode()
    after = fix(FixTask(Task(decode(data, "train.py"), EVERY), EVERY, True, data)).text
    assert after.startswith(HEAD)
    return "\n".join(line.removeprefix(" " * 8) for line in after[len(HEAD) :].splitlines())


CLIP = "torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)"
BRANCHES = "if model.amp and model.scaled:\n    scaler.scale(loss).backward()\nelse:\n    loss.backward()\n"
STEPS = (
    "if model.amp and model.scaled:\n    scaler.step(optimizer)\n    scaler.update()\n"
    "else:\n    optimizer.step()"
)
CASES = {
    "unscale before the clip": (
        f"scaler.scale(loss).backward()\n{CLIP}\nscaler.step(optimizer)\nscaler.update()",
        (
            "scaler.scale(loss).backward()\nscaler.unscale_(optimizer)\n"
            f"{CLIP}\nscaler.step(optimizer)\nscaler.update()"
        ),
    ),
    "unscale moves before the clip": (
        (
            f"scaler.scale(loss).backward()\nnorm = {CLIP}  # why\nscaler.unscale_(optimizer)\n"
            "scaler.step(optimizer)\nscaler.update()"
        ),
        (
            "scaler.scale(loss).backward()\nscaler.unscale_(optimizer)\n"
            f"norm = {CLIP}  # why\nscaler.step(optimizer)\nscaler.update()"
        ),
    ),
    "a comment moves with its statement": (
        (
            f"scaler.scale(loss).backward()\n# clip\n{CLIP}\n# unscale\n"
            "scaler.unscale_(optimizer)  # why\nscaler.step(optimizer)\nscaler.update()"
        ),
        (
            "scaler.scale(loss).backward()\n# unscale\nscaler.unscale_(optimizer)  # why\n"
            f"# clip\n{CLIP}\nscaler.step(optimizer)\nscaler.update()"
        ),
    ),
    "statements that share a line": (
        f"scaler.scale(loss).backward(); {CLIP}\nscaler.step(optimizer)\nscaler.update()",
        (
            f"scaler.scale(loss).backward(); scaler.unscale_(optimizer); {CLIP}\n"
            "scaler.step(optimizer)\nscaler.update()"
        ),
    ),
    "unscale where the clip is": (
        (
            f"scaler.scale(loss).backward()\nif max_norm:\n    {CLIP}\nscaler.step(optimizer)\n"
            "scaler.update()"
        ),
        (
            "scaler.scale(loss).backward()\nif max_norm:\n    scaler.unscale_(optimizer)\n"
            f"    {CLIP}\nscaler.step(optimizer)\nscaler.update()"
        ),
    ),
    "a test of several names is written once more": (
        f"{BRANCHES}norm = {CLIP}\n{STEPS}",
        f"{BRANCHES}if model.amp and model.scaled:\n    scaler.unscale_(optimizer)\nnorm = {CLIP}\n{STEPS}",
    ),
    "a clip moves to where the window ends": (
        (
            f"scaler.scale(loss).backward()\n# why\n{CLIP}\nif inputs % 4 == 0:\n"
            "    scaler.step(optimizer)\n    scaler.update()"
        ),
        (
            "scaler.scale(loss).backward()\nif inputs % 4 == 0:\n    scaler.unscale_(optimizer)\n"
            f"    # why\n    {CLIP}\n    scaler.step(optimizer)\n    scaler.update()"
        ),
    ),
    "unscale where the step is": (
        (
            f"if model.amp:\n    scaler.scale(loss).backward()\nelse:\n    loss.backward()\n{CLIP}\n"
            "if model.amp:\n    scaler.step(optimizer)\n    scaler.update()\nelse:\n"
            "    optimizer.step()"
        ),
        (
            "if model.amp:\n    scaler.scale(loss).backward()\nelse:\n    loss.backward()\n"
            f"if model.amp:\n    scaler.unscale_(optimizer)\n{CLIP}\n"
            "if model.amp:\n    scaler.step(optimizer)\n    scaler.update()\nelse:\n"
            "    optimizer.step()"
        ),
    ),
    "one update behind a branch that steps": (
        (
            "scaler.scale(loss).backward()\nscaler.step(optimizer)\nscaler.update()\n"
            "if model.head:\n    scaler.step(model.head)  # of the head\n    scaler.update()"
        ),
        (
            "scaler.scale(loss).backward()\nscaler.step(optimizer)\n"
            "if model.head:\n    scaler.step(model.head)  # of the head\nscaler.update()"
        ),
    ),
    "a block ends with its comments": (
        (
            'with torch.autocast("cuda"):\n    loss = model(inputs, targets)\n'
            "    # gradients\n    scaler.scale(loss).backward()  # scaled\n"
            "    if inputs:\n        log(loss)\nscaler.step(optimizer)\nscaler.update()"
        ),
        (
            'with torch.autocast("cuda"):\n    loss = model(inputs, targets)\n'
            "# gradients\nscaler.scale(loss).backward()  # scaled\n"
            "if inputs:\n    log(loss)\nscaler.step(optimizer)\nscaler.update()"
        ),
    ),
    "step through the scaler": (
        "scaler.scale(loss).backward()\noptimizer.step()\nscaler.update()",
        "scaler.scale(loss).backward()\nscaler.step(optimizer)\nscaler.update()",
    ),
    "and update": (
        "scaler.scale(loss).backward()\noptimizer.step()",
        "scaler.scale(loss).backward()\nscaler.step(optimizer)\nscaler.update()",
    ),
    "parentheses": (
        "scaler.scale(loss).backward\nscaler.step(optimizer)\nscaler.update()",
        "scaler.scale(loss).backward()\nscaler.step(optimizer)\nscaler.update()",
    ),
    "backward": (
        "scaler.scale(loss)\nscaler.step(optimizer)\nscaler.update()",
        "scaler.scale(loss).backward()\nscaler.step(optimizer)\nscaler.update()",
    ),
    "a forward keeps its block": (
        (
            'with torch.autocast("cuda"):\n    scaler.scale(loss).backward()\n    # again\n'
            "    loss = model(inputs, targets)\nscaler.step(optimizer)\nscaler.update()"
        ),
        (
            'scaler.scale(loss).backward()\n# again\nwith torch.autocast("cuda"):\n'
            "    loss = model(inputs, targets)\nscaler.step(optimizer)\nscaler.update()"
        ),
    ),
    "handler": (
        (
            "scaler.scale(loss).backward()\ntry:\n    scaler.step(optimizer)\n"
            "except RuntimeError:\n    raise SystemExit('No inf checks')\nscaler.update()"
        ),
        (
            "scaler.scale(loss).backward()\ntry:\n    scaler.step(optimizer)\n"
            "except (RuntimeError, AssertionError):\n    raise SystemExit('No inf checks')\nscaler.update()"
        ),
    ),
}


@pytest.mark.parametrize(("before", "after"), CASES.values(), ids=CASES)
def test_the_order_is_put_right(before: str, after: str) -> None:
    assert fixed(before) == after


@pytest.mark.parametrize(
    "body",
    [
        # the clip belongs to the end of the window, and its norm is kept
        (
            f"scaler.scale(loss).backward()\nnorm = {CLIP}\nif inputs % 4 == 0:\n"
            "    scaler.step(optimizer)\n    scaler.update()"
        ),
        # which backward is meant cannot be read
        "scaler.scale(loss)\nloss.backward()\nloss.backward()\nscaler.step(optimizer)\nscaler.update()",
    ],
    ids=["window", "two backwards"],
)
def test_what_is_not_certain_stays(body: str) -> None:
    assert fixed(body) == body


def test_a_guard_is_only_shown() -> None:
    text = (
        "import torch\n\n\ndef train(model, optimizer, loader, amp):\n"
        '    scaler = torch.amp.GradScaler("cuda") if amp else None\n'
        "    for inputs in loader:\n        optimizer.zero_grad()\n        loss = model(inputs)\n"
        "        if amp:\n            scaler.scale(loss).backward()\n"
        "            scaler.step(optimizer)\n        else:\n            loss.backward()\n"
        "            optimizer.step()\n        scaler.update()\n"
    )
    data = text.encode()
    result = inspect(Task(decode(data, "train.py"), EVERY, edits=True))
    (finding,) = [item for item in result.findings if item.code == "AMP202"]
    assert finding.fix is not None
    assert finding.fix.applicability == "display"
    (edit,) = finding.fix.edits
    indent = " " * 8
    assert edit.content == f"{indent}if scaler is not None:\n{indent}    scaler.update()\n"
    assert fix(FixTask(Task(decode(data, "train.py"), EVERY), EVERY, True, data)).text == text
