"""Expressions that raise whatever the input is, with torch's own objects: each is executed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from amplint.values.attributes import MODULE_HAS
from tests.values.test_unpacking import is_judged_as_it_runs
from tests.values.test_unreached import doubt_about_arriving

torch = pytest.importorskip("torch")

NET = """
class Net(nn.Module):
    def __init__(self, heads=2):
        super().__init__()
        self.body = nn.Linear(2, 2)
        {more}
    def forward(self, x):
        x = self.body(x)
        {line}
        arrive()
        return x
{behind}
Net()(torch.ones(1, 2))
"""
OPTIMIZER = """
net = nn.Linear(2, 2)
optimizer = torch.optim.{name}(net.parameters(), lr=0.1)
{line}
arrive()
"""


def net(line: str, more: str = "pass", behind: str = "") -> str:
    return NET.format(line=line, more=more, behind=behind)


def optimizer(line: str, name: str = "SGD") -> str:
    return OPTIMIZER.format(line=line, name=name)


#: (name, program, what cannot be; "" where a run arrives)
PROGRAMS = (
    ("an attribute", net("x = x * self.width"), "self.width"),
    ("a method of torch's", net("self.train()"), ""),
    ("a buffer", net("self.shift", "self.register_buffer('shift', torch.ones(1))"), ""),
    (
        "a buffer of a computed name",
        net("self.shift1", "[self.register_buffer(f'shift{i}', None) for i in (0, 1)]"),
        "",
    ),
    (
        "a layer of a computed name",
        net("self.part_1", "[setattr(self, f'part_{i}', nn.Linear(2, 2)) for i in (0, 1)]"),
        "",
    ),
    (
        "beside layers of computed names",
        net("self.width", "[setattr(self, f'part_{i}', nn.Linear(2, 2)) for i in (0, 1)]"),
        "self.width",
    ),
    (
        "a layer whose name ends as it is computed",
        net("self.one_part", "[setattr(self, f'{i}_part', nn.Linear(2, 2)) for i in ('one',)]"),
        "",
    ),
    ("of an heir", net("self.heads", behind="class Wide(Net):\n    heads = 2\nNet = Wide"), ""),
    ("hung on from outside", net("self.heads", behind="Net.heads = 3"), ""),
    ("loaded", optimizer("optimizer.load_state_dict(optimizer.state_dict())"), ""),
    (
        "loaded less strictly",
        optimizer("optimizer.load_state_dict(optimizer.state_dict(), strict=False)"),
        "optimizer.load_state_dict(...)",
    ),
    (
        "a model, loaded less strictly",
        optimizer("net.load_state_dict(net.state_dict(), strict=False)"),
        "",
    ),
    ("a step for a loss", optimizer("optimizer.step(lambda: 1.0)"), ""),
    ("a step with a rate", optimizer("optimizer.step(lr=0.1)"), "optimizer.step(...)"),
    ("cleared", optimizer("optimizer.zero_grad(True)", "AdamW"), ""),
    (
        "a plateau without its measure",
        optimizer("torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer).step()"),
        "torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer).step(...)",
    ),
    (
        "a plateau with its measure",
        optimizer("torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer).step(1.0)"),
        "",
    ),
    (
        "a schedule with a measure too many",
        optimizer("rates = torch.optim.lr_scheduler.StepLR(optimizer, 1)\nrates.step(1, 0.5)"),
        "rates.step(...)",
    ),
    (
        "a loss of one",
        "loss = nn.CrossEntropyLoss()\nloss(torch.ones(2, 2))\narrive()\n",
        "loss(...)",
    ),
    (
        "a loss of two",
        "loss = nn.CrossEntropyLoss()\nloss(torch.ones(2, 2), torch.tensor([0, 1]))\narrive()\n",
        "",
    ),
    (
        "a loader with an argument of another's",
        "DataLoader([1], batchsize=1)\narrive()\n",
        "DataLoader(...)",
    ),
)


@pytest.mark.parametrize(
    ("program", "why"), [row[1:] for row in PROGRAMS], ids=[r[0] for r in PROGRAMS]
)
def test_an_expression_raises_as_torch_says(program: str, why: str, tmp_path: Path) -> None:
    assert is_judged_as_it_runs(program, why, tmp_path)


def test_modules_have_what_the_row_says() -> None:
    own = {name for name in dir(torch.nn.Module()) if not name.startswith(("_", "register_"))}
    assert own <= MODULE_HAS


#: (name, what the file `tools.py` holds, line, what no run comes behind)
MODULES = (
    ("what is there", "rate = 1\n", "tools.rate", ""),
    ("what is not", "rates = 1\n", "tools.rate", "rate"),
    ("what somebody puts there", "rates = 1\n", "tools.rate = 2\ntools.rate", ""),
    ("what a function gives", "def __getattr__(name):\n    return 1\n", "tools.rate", ""),
)


@pytest.mark.parametrize(
    ("tools", "line", "why"), [row[1:] for row in MODULES], ids=[r[0] for r in MODULES]
)
def test_a_module_has_what_its_text_says(tools: str, line: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "tools.py").write_text(tools)
    script = tmp_path / "train.py"
    start = "import tools\n\ndef arrive():\n    print('arrived')\n\n"
    script.write_text(f"{start}{line}\narrive()\n")
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert ("arrived" in ran.stdout) is not bool(why)
    assert doubt_about_arriving(script) == why
