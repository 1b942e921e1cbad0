"""What the fixes of single rules write, in programs other than those of their pages."""

from __future__ import annotations

import ast

import pytest
from amplint.rules import load

from amplint.authoring import check_of
from amplint.fixing.edits import apply, resolve
from amplint.source.positions import LineTable
from amplint.view import view_of

HEAD = "import torch\nimport torch.nn.functional as F\n"


def fixed(code: str, source: str) -> str:
    """The source after the first finding's fix; as it is where there is none."""
    view = view_of("train.py", source, ast.parse(source))
    view.wants_edits = True
    found = [finding for finding in check_of(load(code))(view) if finding.fix is not None]
    if not found:
        return source
    assert found[0].fix is not None
    lines = LineTable(source)
    return apply(source, resolve(found[0].fix.edits, lines, "\n"))


#: Scales that only make the scaler allocate its tensors: there is nothing to go backward from.
WARM_UPS = (
    "scaler.scale(torch.zeros(1))\n",
    "scaler.scale(torch.zeros(1, device='cuda'))\n",
    "scaler.scale(torch.tensor(0.0))\n",
    "zero = torch.zeros(1)\nscaler.scale(zero)\n",
)


@pytest.mark.parametrize("text", WARM_UPS)
def test_a_warm_up_gets_no_backward(text: str) -> None:
    source = HEAD + 'scaler = torch.amp.GradScaler("cuda")\n' + text
    assert fixed("AMP114", source) == source


def test_a_scale_of_a_loss_gets_its_backward() -> None:
    loop = "def train(net, x, scaler: torch.amp.GradScaler):\n    loss = net(x).mean()\n"
    source = HEAD + loop + "    scaler.scale(loss)\n"
    assert fixed("AMP114", source) == source.replace("scale(loss)", "scale(loss).backward()")


CASES = {
    "a guard of the step, in its own quotes": (
        "AMP110",
        (
            "def train(net, optimizer, batches, device):\n"
            '    scaler = torch.amp.GradScaler("cuda") if device.type == "cuda" else None\n'
            "    for batch in batches:\n        loss = net(batch).mean()\n"
            '        if device.type == "cuda" and scaler is not None:\n'
            "            scaler.scale(loss).backward()\n        else:\n            loss.backward()\n"
            "        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)\n"
            '        if device.type == "cuda" and scaler is not None:\n'
            "            scaler.step(optimizer)\n            scaler.update()\n"
            "        else:\n            optimizer.step()\n        optimizer.zero_grad()\n"
        ),
        (
            "def train(net, optimizer, batches, device):\n"
            '    scaler = torch.amp.GradScaler("cuda") if device.type == "cuda" else None\n'
            "    for batch in batches:\n        loss = net(batch).mean()\n"
            '        if device.type == "cuda" and scaler is not None:\n'
            "            scaler.scale(loss).backward()\n        else:\n            loss.backward()\n"
            '        if device.type == "cuda" and scaler is not None:\n'
            "            scaler.unscale_(optimizer)\n"
            "        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)\n"
            '        if device.type == "cuda" and scaler is not None:\n'
            "            scaler.step(optimizer)\n            scaler.update()\n"
            "        else:\n            optimizer.step()\n        optimizer.zero_grad()\n"
        ),
    ),
    "a device where the old scaler takes its scale": (
        "AMP209",
        'scaler = torch.cuda.amp.GradScaler("cuda", enabled=True)  # fast\n',
        "scaler = torch.cuda.amp.GradScaler(enabled=True)  # fast\n",
    ),
    "a mode in the middle of a function": (
        "AMP303",
        (
            "def evaluate(model, batches):\n    model.eval()\n    torch.set_grad_enabled(False)\n"
            "    for batch in batches:  # all\n        model(batch)\n    return 1\n"
            "def train(model, batches):\n    for batch in batches:\n        model(batch).backward()\n"
            "        evaluate(model, batches)\n"
        ),
        (
            "def evaluate(model, batches):\n    model.eval()\n    with torch.no_grad():\n"
            "        for batch in batches:  # all\n            model(batch)\n        return 1\n"
            "def train(model, batches):\n    for batch in batches:\n        model(batch).backward()\n"
            "        evaluate(model, batches)\n"
        ),
    ),
    "a dtype without its device": (
        "AMP209",
        "with torch.autocast(torch.float16):  # half\n    pass\n",
        'with torch.autocast("cuda", dtype=torch.float16):  # half\n    pass\n',
    ),
    "a device that is no string": (
        "AMP209",
        'device = torch.device("cuda:0")\nwith torch.autocast(device, dtype=torch.float16):\n    pass\n',
        (
            'device = torch.device("cuda:0")\n'
            "with torch.autocast(device.type, dtype=torch.float16):\n    pass\n"
        ),
    ),
    "an older autocast with a device": (
        "AMP209",
        'with torch.cuda.amp.autocast("cuda"):\n    pass\n',
        "with torch.cuda.amp.autocast():\n    pass\n",
    ),
    "a class that is not called": (
        "AMP209",
        "with torch.autocast:\n    pass\n",
        'with torch.autocast("cuda"):\n    pass\n',
    ),
    "no device at all": (
        "AMP209",
        "with torch.autocast(dtype=torch.float16):\n    pass\n",
        'with torch.autocast("cuda", dtype=torch.float16):\n    pass\n',
    ),
    "a loss of probabilities as a function": (
        "AMP502",
        (
            "def loss_of(model, x, y):\n    with torch.autocast('cuda'):\n        out = model(x)\n"
            "        return F.binary_cross_entropy(out.sigmoid().float(), y)\n"
        ),
        (
            "def loss_of(model, x, y):\n    with torch.autocast('cuda'):\n        out = model(x)\n"
            "        return F.binary_cross_entropy_with_logits(out, y)\n"
        ),
    ),
    "a loss of probabilities that two calls use": (
        "AMP502",
        (
            "bce = torch.nn.BCELoss()\ndef losses(model, x, y):\n    with torch.autocast('cuda'):\n"
            "        return bce(model(x).sigmoid(), y), bce(x, y)\n"
        ),
        "",
    ),
    "integers of the wrong size": (
        "AMP404",
        "def loss_of(out, y):\n    return F.nll_loss(out, y.int())\n",
        "def loss_of(out, y):\n    return F.nll_loss(out, y.long())\n",
    ),
    "integers where floats belong": (
        "AMP404",
        "def loss_of(out, y):\n    return F.huber_loss(out, y.long())\n",
        "def loss_of(out, y):\n    return F.huber_loss(out, y.float())\n",
    ),
    "a detached loss": (
        "AMP302",
        (
            "def train(model, optimizer, loader):\n    for x in loader:\n        optimizer.zero_grad()\n"
            "        loss = model(x).mean()\n        loss.detach().backward()\n        optimizer.step()\n"
        ),
        (
            "def train(model, optimizer, loader):\n    for x in loader:\n        optimizer.zero_grad()\n"
            "        loss = model(x).mean()\n        loss.backward()\n        optimizer.step()\n"
        ),
    ),
    "a scaler in the loop over epochs": (
        "AMP119",
        (
            "def train(model, optimizer, loader):\n    for epoch in range(3):\n"
            '        scaler = torch.amp.GradScaler("cuda")  # new\n        for x in loader:\n'
            "            scaler.scale(model(x)).backward()\n            scaler.step(optimizer)\n"
            "            scaler.update()\n"
        ),
        (
            'def train(model, optimizer, loader):\n    scaler = torch.amp.GradScaler("cuda")  # new\n'
            "    for epoch in range(3):\n        for x in loader:\n"
            "            scaler.scale(model(x)).backward()\n            scaler.step(optimizer)\n"
            "            scaler.update()\n"
        ),
    ),
    "no update anywhere": (
        "AMP105",
        (
            "def train(model, optimizer, loader):\n    scaler = torch.amp.GradScaler('cuda')\n"
            "    for x in loader:\n        optimizer.zero_grad()\n"
            "        scaler.scale(model(x)).backward()\n        scaler.step(optimizer); log(x)\n"
        ),
        (
            "def train(model, optimizer, loader):\n    scaler = torch.amp.GradScaler('cuda')\n"
            "    for x in loader:\n        optimizer.zero_grad()\n"
            "        scaler.scale(model(x)).backward()\n"
            "        scaler.step(optimizer); scaler.update(); log(x)\n"
        ),
    ),
}


@pytest.mark.parametrize(("code", "before", "after"), CASES.values(), ids=CASES)
def test_the_fix_writes(code: str, before: str, after: str) -> None:
    """An empty `after` stands for a program that stays as it is."""
    assert fixed(code, HEAD + before) == HEAD + (after or before)


def test_long_code_is_written_in_full() -> None:
    """Messages shorten what they quote; a fix must not."""
    tensor = "scores_of_every_head_of_the_decoder_before_the_softmax_and_the_mask"
    text = (
        f"{HEAD}class Block:\n    def forward(self, x, mask):\n        with torch.autocast('cuda'):\n"
        f"            {tensor} = torch.matmul(x, x)\n"
        f"            return {tensor}.masked_fill(mask, -1e9)\n"
    )
    assert f"torch.finfo({tensor}.dtype).min" in fixed("AMP503", text)


ADVERSARY = (
    HEAD
    + """
class Adversary:
    def __init__(self, generator, judge):
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.generator, self.judge = generator.to(self.device), judge.to(self.device)
        self.scaler_g = torch.amp.GradScaler("cuda")
        self.scaler_d = torch.amp.GradScaler("cuda")

    def step(self, noise, real):
        noise, real = noise.to(self.device), real.to(self.device)
        with torch.amp.autocast(device_type="cuda"):
            loss = -self.judge(self.generator(noise)).mean()
        self.scaler_g.scale(loss).backward()
        with torch.amp.autocast("cuda"):  # the judge
            loss = (self.judge(self.generator(noise).detach()) - self.judge(real)).mean()
        self.scaler_d.scale(loss).backward()
"""
)


def test_every_region_and_scaler_gets_the_same_switch() -> None:
    after = fixed("AMP203", ADVERSARY)
    assert after.count("enabled=torch.cuda.is_available()") == 4
    assert after.replace(", enabled=torch.cuda.is_available()", "") == ADVERSARY
    assert fixed("AMP203", after) == after


@pytest.mark.parametrize(
    ("right", "other"),
    [
        ('autocast("cuda")', "autocast(self.device.type, dtype=torch.float16)"),
        ('autocast("cuda")', 'autocast("cuda", torch.float16)'),
        ('GradScaler("cuda")\n\n', 'GradScaler("cuda", enabled=True)\n\n'),
    ],
)
def test_a_switch_that_does_not_suit_all_is_given_to_none(right: str, other: str) -> None:
    assert right in ADVERSARY
    source = ADVERSARY.replace(right, other)
    assert fixed("AMP203", source) == source
