"""What kept the probe from getting to a line in real programs, each in a small program."""

from __future__ import annotations

import pytest

from amplint.probe.messages import Note

from .conftest import Probe

STEP = """
    scaler = torch.amp.GradScaler("cuda")
    scaler.scale(model(torch.ones(2, 3)).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
"""


def steps(result) -> int:
    return sum(event.kind == "step" for event in result.events)


def test_annotations_name_types_of_packages_that_are_not_there(probe_source: Probe) -> None:
    source = (
        """
import torch
import arrays

def count(size: int | arrays.Size, also: arrays.Size | None = None) -> arrays.Size | int:
    return 2

def train(model, optimizer):
    count(2)
"""
        + STEP
    )
    assert steps(probe_source(source)) == 3


def test_a_union_with_an_unknown_type_is_one(probe_source: Probe) -> None:
    source = (
        """
import torch
import arrays
Size = int | arrays.Size | list[int]

def train(model, optimizer):
    assert Size is not None
"""
        + STEP
    )
    assert steps(probe_source(source)) == 3


def test_an_assertion_about_invented_data_is_assumed_and_said(probe_source: Probe) -> None:
    source = (
        """
import torch

def train(model, optimizer, data):
    assert data.is_contiguous() == 7
"""
        + STEP
    )
    result = probe_source(source, assumes=True)
    assert steps(result) == 3
    assert Note("assertion", row=5) in result.notes


def test_the_wrapper_of_a_model_has_the_model_inside(probe_source: Probe) -> None:
    source = (
        """
import torch
from torch.nn.parallel import DistributedDataParallel

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 1)

    def forward(self, x):
        return self.layer(x)

def train(rank):
    plain = Net()
    model = DistributedDataParallel(plain, device_ids=[rank])
    assert model.module.layer is plain.layer
    optimizer = torch.optim.SGD(model.module.parameters(), lr=0.1)
"""
        + STEP
    )
    assert steps(probe_source(source)) == 3


def test_a_layer_chosen_by_an_unknown_name(probe_source: Probe) -> None:
    source = (
        """
import torch
from torch import nn

def train(config):
    model = nn.Sequential(nn.Linear(3, 1), getattr(nn, config.activation)())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=config.m, nesterov=True)
"""
        + STEP
    )
    result = probe_source(source)
    assert steps(result) == 3
    assert any(note.kind == "connected" for note in result.notes)


@pytest.mark.parametrize(
    "call",
    ["launch(train, 2, args=(options,))", "fire.Fire(train)", "mp.spawn(train, args=(options,))"],
)
def test_a_launcher_calls_the_function(probe_source: Probe, call: str) -> None:
    source = f"""
import torch
import fire
from cluster import launch
import torch.multiprocessing as mp
options = dict(epochs=1)

def train(*options, model=torch.nn.Linear(3, 1)):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{STEP}
if __name__ == "__main__":
    {call}
"""
    result = probe_source(source, entry="<module>")
    assert steps(result) == 1
    assert "`train` is called by its launcher" in result.remarks
    assert not result.notes


def test_what_an_unknown_runner_does_besides_is_a_doubt(probe_source: Probe) -> None:
    source = "import engine\ndef train():\n    pass\nengine.run(train)\n"
    result = probe_source(source, entry="<module>")
    assert result.notes == (Note("launcher", "engine.run", detail="train"),)


def test_a_decorator_may_bring_arguments(probe_source: Probe) -> None:
    source = f"""
import torch
import config

@config.main(path="conf")
def main(cfg):
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=cfg.lr)
{STEP}
main()
"""
    result = probe_source(source, entry="<module>")
    assert steps(result) == 1
    assert Note("arguments", "main", detail="cfg") in result.notes


def test_a_key_of_a_table_that_is_written_where_it_is_read(probe_source: Probe) -> None:
    source = (
        """
import torch

def train(model, config):
    kind = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}[config.kind]
    optimizer = kind(model.parameters(), lr=0.1)
"""
        + STEP
    )
    assert steps(probe_source(source)) == 3


def test_a_text_made_of_unknown_things(probe_source: Probe) -> None:
    source = (
        """
import torch
from tables import table

class Meter:
    def __str__(self):
        return table(self)

def train(model, optimizer):
    print(str(Meter()))
"""
        + STEP
    )
    assert steps(probe_source(source)) == 3


def test_a_loader_that_is_called_is_a_function(probe_source: Probe) -> None:
    source = """
import torch

def train(data, model, optimizer):
    for batch in data.train_loader():
        scaler = torch.amp.GradScaler("cuda")
        scaler.scale(model(batch).sum()).backward()
        scaler.step(optimizer)
"""
    assert steps(probe_source(source)) >= 1


def test_a_base_class_that_is_not_there_may_be_a_module(probe_source: Probe) -> None:
    source = (
        """
import torch
from library import BaseModel

class Net(BaseModel):
    def __init__(self, config):
        super().__init__(config)
        self.layer = torch.nn.Linear(3, 1)

    def forward(self, x):
        return self.layer(x) * self.config.width

def train(config):
    model = Net(config).cuda().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    assert len(optimizer.param_groups[0]["params"]) == 2
"""
        + STEP
    )
    result = probe_source(source)
    assert steps(result) == 3
    assert Note("connected", "Net") in result.notes


def test_a_class_may_be_a_mapping_by_its_base(probe_source: Probe) -> None:
    source = (
        """
import torch
from library import Options

class Settings(Options):
    clip = 1.0

def train(model, optimizer):
    settings = Settings()
    settings["extra"] = 2
    if "clip" in settings and settings["clip"] > 0 and settings["extra"] == 2:
        pass
"""
        + STEP
    )
    assert steps(probe_source(source)) == 3


def test_a_trainer_that_is_a_module_without_layers_of_its_own(probe_source: Probe) -> None:
    source = """
import torch

class Trainer(torch.nn.Module):
    def forward(self, x):
        return super().forward(x)

    def fit(self, loader):
        device = next(self.parameters()).device
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cuda")
        for batch in loader:
            scaler.scale(self(batch.to(device)).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
"""
    result = probe_source(source, entry="Trainer.fit")
    assert steps(result) == 2
    assert Note("connected", "Trainer.forward") in result.notes


def test_a_module_with_the_name_of_its_package_is_not_the_package(probe_source: Probe) -> None:
    source = (
        """
import torch
from fit.parts import rate
"""
        + """
def train(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=rate())
    assert rate() == 0.25
"""
        + STEP
    )
    files = {
        "fit/__init__.py": "",
        "fit/parts/__init__.py": "from .fit import rate",
        "fit/parts/fit.py": "from fit.numbers import quarter\ndef rate():\n    return quarter()\n",
        "fit/numbers.py": "def quarter():\n    return 0.25\n",
    }
    assert steps(probe_source(source, files=files)) == 3


def test_a_model_that_is_too_large_is_run_with_small_layers(probe_source: Probe) -> None:
    source = """
import torch
from torch import nn

def train(x):
    attention = nn.MultiheadAttention(768, 12)
    model = nn.Sequential(nn.Embedding(5000, 768), nn.Linear(768, 40), nn.GroupNorm(8, 40))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    assert [tuple(p.shape) for p in model.parameters()][:2] == [(12, 12), (12, 12)]
    for _ in range(40):
        attention.train()
    scaler = torch.amp.GradScaler("cuda")
    scaler.scale(model(torch.full((2, 3), 99)).sum()).backward()
    scaler.step(optimizer)
"""
    result = probe_source(source, assignment={"torch.nn is small": True})
    assert steps(result) == 1, result
    assert Note("small-layers") in result.notes
    assert any(note.detail == "6" for note in result.notes if note.kind.startswith("loop"))


def test_a_graph_whose_shapes_do_not_fit_still_feeds_its_parameters(probe_source: Probe) -> None:
    source = """
import torch

def train(model, optimizer, x):
    total = torch.zeros(3)
    out = model(x) * torch.ones(3)
    squares = out * out
    out += 1
    scaler = torch.amp.GradScaler("cuda")
    scaler.scale((squares + total).sum()).backward()
    scaler.step(optimizer)
"""
    result = probe_source(source)
    assert steps(result) == 3
    assert Note("connected", "the loss") in result.notes


def test_an_unknown_name_is_one_of_those_that_are_known(probe_source: Probe) -> None:
    source = (
        """
import torch
KINDS = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}

def train(model, config):
    if config.kind not in KINDS.keys():
        raise ValueError(config.kind)
    optimizer = KINDS[config.kind](model.parameters(), lr=0.1)
"""
        + STEP
    )
    result = probe_source(source)
    assert steps(result) == 3
    (decision,) = [d for d in result.decisions if d.path == "config.kind"]
    assert decision.options == ("adam", "sgd", "something else")


def test_whether_an_unknown_value_is_a_list_is_a_decision(probe_source: Probe) -> None:
    source = (
        """
import torch

def train(model, optimizer, config):
    if not isinstance(config.names, list):
        raise TypeError("no list")
"""
        + STEP
    )
    assert probe_source(source).raised.type == "TypeError"
    taken = {"isinstance(config.names, list)": True}
    assert steps(probe_source(source, assignment=taken)) == 3


def test_texts_and_paths_that_nobody_knows(probe_source: Probe) -> None:
    source = (
        """
import random
import re
from pathlib import Path
import torch
import yaml

def train(model, optimizer, config):
    random.seed(config.seed)
    name = re.match(r"(\\w+)-", config.name)
    known = re.compile("a+").match("aaa").group()
    assert known == "aaa" and re.sub("a", "b", "a") == "b"
    folder = Path(config.folder) / name.group(1) / "out"
    folder.mkdir(parents=True)
    (folder / "log.txt").write_text("written")
    blocks = yaml.load(config.file)
    for block in blocks["stem"] + blocks["head"]:
        block
"""
        + STEP
    )
    assert steps(probe_source(source)) == 1


def test_a_function_of_a_module_that_is_looked_up_by_name(probe_source: Probe) -> None:
    source = (
        """
import torch
import nets

def train(config):
    model = nets.__dict__["small"]()
    other = vars(nets)[config.arch](width=3)
    optimizer = torch.optim.SGD(model.parameters(), lr=config.rates["lr"])
    assert optimizer.param_groups[0]["lr"] < 1
    assert config.rates["dropout"] < 1
"""
        + STEP
    )
    files = {"nets.py": "import torch\ndef small():\n    return torch.nn.Linear(3, 1)\n"}
    assert steps(probe_source(source, files=files)) == 3


def test_a_batch_has_the_keys_that_other_files_read(probe_source: Probe) -> None:
    source = """
import torch
from shape import inputs_of

def train(model, optimizer, loader):
    for batch in loader:
        moved = {key: value.cuda() for key, value in batch.items()}
        scaler = torch.amp.GradScaler("cuda")
        scaler.scale(model(inputs_of(moved)).sum()).backward()
        scaler.step(optimizer)
"""
    files = {"shape.py": "def inputs_of(batch):\n    return batch['pixels']\n"}
    assert steps(probe_source(source, files=files)) == 2


def test_what_another_method_configures_is_free(probe_source: Probe) -> None:
    source = """
import torch

class Trainer:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer
        self.half = False
        self.window = 0
        self.count = 0

    def configure(self, half, window):
        self.half = half
        self.window = window

    def train(self, loader):
        scaler = torch.amp.GradScaler("cuda")
        for batch in loader:
            self.count += 1
            scaler.scale(self.model(batch).sum()).backward()
            if self.half and self.count % self.window == 0:
                scaler.step(self.optimizer)
"""
    result = probe_source(source, entry="Trainer.train")
    assert result.status == "returned", result
    made = {decision.path: decision.options for decision in result.decisions}
    assert made["self.half"] == (False, True)
    assert made["self.window"][0] > 0 and "self.count" not in made
    assert steps(probe_source(source, "Trainer.train", assignment={"self.half": True})) >= 1


def test_what_is_selected_from_invented_data_is_not_empty(probe_source: Probe) -> None:
    source = """
import torch

def train(model, optimizer, x):
    scaler = torch.amp.GradScaler("cuda")
    loss = model(x)
    loss = loss[loss > 99]
    if loss.nelement() > 0:
        scaler.scale(loss.mean()).backward()
        scaler.step(optimizer)
"""
    result = probe_source(source)
    assert steps(result) == 3
    assert Note("selected", row=7) in result.notes


def test_a_package_imports_what_lies_beside_its_init(probe_source: Probe) -> None:
    source = (
        """
import torch
import kit

def train(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=kit.rates.rate() * kit.factors.factor())
    assert optimizer.param_groups[0]["lr"] == 0.125
"""
        + STEP
    )
    files = {
        "kit/__init__.py": "from . import rates\nfrom kit import factors\n",
        "kit/rates.py": "def rate():\n    return 0.25\n",
        "kit/factors.py": "def factor():\n    return 0.5\n",
    }
    assert steps(probe_source(source, files=files)) == 3


def test_files_that_take_all_names_of_each_other(probe_source: Probe) -> None:
    source = (
        """
import torch
from left import *

def train(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=rate())
    assert optimizer.param_groups[0]["lr"] == 0.25
    print(nobody_has_this)
"""
        + STEP
    )
    files = {
        "left.py": "from right import *\n",
        "right.py": "from left import *\ndef rate():\n    return 0.25\n",
    }
    assert steps(probe_source(source, files=files)) == 3


def test_what_shows_the_progress_of_a_loader_is_left_at_the_end(probe_source: Probe) -> None:
    source = """
import torch
from bars import shown

def train(model, optimizer, loader):
    scaler = torch.amp.GradScaler("cuda")
    with shown(loader, "training") as batches:
        for batch in batches:
            scaler.scale(model(batch).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
"""
    assert steps(probe_source(source)) > 0


def test_names_of_an_unknown_module(probe_source: Probe) -> None:
    source = (
        """
import torch
import shelf

def names():
    return [name for name in shelf.__dict__ if name[0].islower()] + ["own"]

def train(model, optimizer):
    assert names() == ["own"]
    model.kind = "a"
    assert model.__dict__["kind"] == "a"
"""
        + STEP
    )
    result = probe_source(source)
    assert steps(result) == 3
    assert ("unfilled", "shelf.__dict__") in {(note.kind, note.subject) for note in result.notes}


@pytest.mark.parametrize("reentrant", ["True", "False"])
def test_a_forward_that_is_computed_again(probe_source: Probe, reentrant: str) -> None:
    source = (
        """
import torch
from torch.utils.checkpoint import checkpoint

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 1)

    def forward(self, x):
        return checkpoint(self.layer, x, use_reentrant=REENTRANT)

def train():
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
""".replace("REENTRANT", reentrant)
        + STEP
    )
    result = probe_source(source)
    assert steps(result) == 3
    assert all(norm for _, norms in result.steps for norm in norms)


@pytest.mark.parametrize(
    ("calls", "ending"), [(2, ("stopped", 8)), (7000, ("stopped", 2))], ids=["short", "long"]
)
def test_a_long_run_ends_when_it_has_passed_the_line_often_enough(
    probe_source: Probe, calls: int, ending: tuple[str, int]
) -> None:
    source = f"""
import torch
from heavy import work

def train(model, optimizer):
    scaler = torch.amp.GradScaler("cuda")
    for epoch in range(30):
        work({calls})
        scaler.scale(model(torch.ones(2, 3)).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
"""
    heavy = "import torch\ndef work(n):\n    for _ in range(n):\n        torch.ones(1)\n"
    row = source.splitlines().index("        scaler.step(optimizer)") + 1
    found = [
        probe_source(source, files={"heavy.py": heavy}, plan={"target_rows": (row,)})
        for _ in range(2)
    ]
    assert [(result.status, steps(result)) for result in found] == [ending, ending]


def test_sizes_that_heads_divide(probe_source: Probe) -> None:
    source = (
        """
import torch

def train(config):
    layer = torch.nn.TransformerEncoderLayer(config.d_model, nhead=4, dim_feedforward=config.width)
    model = torch.nn.Sequential(layer, torch.nn.Linear(config.d_model, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
        + STEP
    )
    assert steps(probe_source(source)) == 3


def test_the_layers_of_a_model_of_a_library_are_unknown(probe_source: Probe) -> None:
    source = (
        """
import torch

def train(model):
    for block in model.layer[-2:]:
        block.weight.data.normal_()
    model.head = torch.nn.Linear(3, 5)
    optimizer = torch.optim.SGD(model.head.parameters(), lr=0.1)
"""
        + STEP
    )
    result = probe_source(source)
    assert steps(result) == 1
    assert all(norm for _, norms in result.steps for norm in norms)


def test_a_number_that_is_assigned_stays_what_the_code_takes_it_for(probe_source: Probe) -> None:
    source = """
from zoo import build

def train():
    found = build()[0]
    if found > 1:
        return found.shape
    return found.shape
"""
    first = probe_source(source)
    other = probe_source(source, assignment={"zoo.build()[0]": 1})
    assert (first.status, other.status) == ("returned", "returned")
    assert [decision.choice for decision in other.decisions] == [1]


def test_a_script_reads_no_name_that_a_later_line_binds(probe_source: Probe) -> None:
    source = """
import torch
from zoo import build

model = build()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
wanted = [size for size in 7 // len({})] if model is None else sizes
for number in range(2):
    sizes = [number]
    scaler.scale(model(sizes).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
if wanted:
    sizes = [torch.ones(3)]
    raise ValueError(sizes)
"""
    result = probe_source(source, entry="<module>", repair=True)
    rows = [event.row for event in result.events if event.kind == "step"]
    assert rows == [12, 12]


def test_keys_that_nobody_has_named_may_be_numbers(probe_source: Probe) -> None:
    source = """
import json

def train(folder):
    known = folder["name"]
    widths = {int(key): float(value["width"]) for key, value in json.load(open("a")).items()}
    assert all(type(key) is int for key in widths)
    return len(widths)
"""
    assert probe_source(source).status == "returned"


def test_what_torch_asks_before_it_registers_is_not_invented(probe_source: Probe) -> None:
    source = """
import torch

class Prompts(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.words = torch.nn.Parameter(torch.zeros(2, 3))
        self.register_buffer("mask", torch.ones(2))
        self.layer = torch.nn.Linear(3, 1)

    def forward(self, x):
        return self.layer(self.words) + self.unknown
"""
    result = probe_source(source, entry="Prompts.__init__")
    assert result.status == "returned", result
    assert not any("did not finish" in text for text in result.remarks)


def test_data_are_as_long_as_the_blocks_that_are_read(probe_source: Probe) -> None:
    source = """
def train(model, optimizer, scaler, tokens):
    assert tokens.size(0) // 64 > 0
    for start in range(0, tokens.size(0) - 1, 64):
        block = tokens[start : start + 64]
        if block.size(0) != 64:
            continue
        scaler.scale(model(block).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert isinstance(range(2), range) and list(range(2)) == [0, 1]
"""
    result = probe_source(source, plan={"calls": 1})
    assert steps(result) == 2
    assert [d.choice for d in result.decisions if d.path == "size@6"] == [True]
    shorter = probe_source(source, plan={"calls": 1}, assignment={"size@6": False})
    assert steps(shorter) == 0


def test_a_run_ends_after_as_many_steps_as_are_wanted(probe_source: Probe) -> None:
    source = """
import torch

def train(model, optimizer, loader):
    for inputs in loader:
        model(inputs).sum().backward()
        optimizer.step()
"""
    assert len(probe_source(source).steps) == 2
    ended = probe_source(source, most_steps=1)
    assert (ended.status, len(ended.steps)) == ("stopped", 1)
