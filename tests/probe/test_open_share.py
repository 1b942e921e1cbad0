"""What kept the probe from true findings of the open share, each with a correct or doubtful
neighbour.

Every text is a program of its own; what torch does with it was worked out by hand.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from amplint.probe.messages import Event, RunResult
from amplint.probe.modules import is_of_data
from amplint.probe.traces import is_in_first_call, is_second_call
from tests.probe.conftest import Asks

pytest.importorskip("torch")

# -- a limit that shows only shortly below the scale at which float16 overflows --------------------

WIDE = """\
import torch

def train(model, criterion, optimizer, loader):
    scaler = torch.amp.GradScaler("cuda")
    for inputs, targets in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda"):
            loss = criterion(model(inputs), targets)
        scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 3000.0)
        scaler.step(optimizer)
        scaler.update()
"""


def test_a_limit_far_above_the_gradients(ask: Asks) -> None:
    assert ask("AMP110", "clip_grad_norm_", WIDE).status == "confirmed"


def test_a_limit_that_grows_with_the_scale(ask: Asks) -> None:
    right = WIDE.replace("3000.0", "3000.0 * scaler.get_scale()")
    assert ask("AMP110", "clip_grad_norm_", right).status != "confirmed"


# -- a function that needs nothing, and a caller that needs much -----------------------------------

ALONE = """\
import torch
from torch.cuda.amp import GradScaler, autocast
from records import read, wrap

def run_epoch(net, optimizer, batches):
    scaler = GradScaler()
    for inputs, targets in batches:
        with autocast():
            loss = torch.nn.functional.mse_loss(net(inputs), targets)
        scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

def main():
    table = read("table")
    if table.kind != "wide" or table.width < 7:
        return
    net = torch.nn.Linear(table.width, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    run_epoch(net, optimizer, torch.utils.data.DataLoader(table.rows))
"""
HANDED = ALONE.replace(
    "    run_epoch(net, optimizer", "    wrap(optimizer)\n    run_epoch(net, optimizer"
)
EITHER = (
    ALONE.replace("run_epoch(net, optimizer, batches)", "run_epoch(net, optimizer, batches, log)")
    .replace(
        """\
        torch.nn.utils.clip_grad_norm_""",
        """\
        if not (log.measures or log.watches):
            scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_""",
    )
    .replace("DataLoader(table.rows))", "DataLoader(table.rows), read('log'))")
)
ASKED = """\
import torch
from torch.cuda.amp import GradScaler, autocast
from records import read

def run_epoch(net, optimizer, batches, limit):
    scaler = GradScaler()
    for inputs, targets in batches:
        with autocast():
            loss = torch.nn.functional.mse_loss(net(inputs), targets)
        scaler.scale(loss).backward()
        if limit == 3:
            torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

def main():
    table = read("table")
    net = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    run_epoch(net, optimizer, torch.utils.data.DataLoader(table.rows), table.limit)
"""


def test_what_a_caller_needs_is_no_need_of_the_failure(ask: Asks) -> None:
    evidence = ask("AMP110", "clip_grad_norm_", ALONE)
    assert evidence.status == "confirmed"
    assert "ran `run_epoch`" in evidence.detail


def test_of_two_inputs_of_a_function_one_is_a_need(ask: Asks) -> None:
    assert ask("AMP110", "clip_grad_norm_", EITHER).status == "conditional"


def test_a_caller_that_hands_its_optimizer_to_a_library_shows_nothing(ask: Asks) -> None:
    # `wrap` may well make it unscale.
    assert ask("AMP110", "clip_grad_norm_", HANDED).status == "conditional"


def test_what_the_function_itself_needs_has_to_be_passed(ask: Asks) -> None:
    assert ask("AMP110", "clip_grad_norm_", ASKED).status == "conditional"


# -- loops that the probe leaves early -------------------------------------------------------------

LONG = """\
import torch

def train(model, optimizer, inputs, targets):
    scaler = torch.amp.GradScaler("cuda")
    for number in range(100_000):
        optimizer.zero_grad()
        with torch.autocast("cuda"):
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
        scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.001)
        scaler.step(optimizer)
        scaler.update()
    return model
"""
BEFORE = LONG.replace(
    "    for number in range(100_000):\n",
    "    for warm in range(100_000):\n        scaler.is_enabled()\n    for number in range(3):\n",
)


def test_what_was_seen_before_a_loop_is_left(ask: Asks) -> None:
    assert ask("AMP110", "clip_grad_norm_", LONG).status == "confirmed"


def test_what_comes_after_a_loop_that_was_left(ask: Asks) -> None:
    assert ask("AMP110", "clip_grad_norm_", BEFORE).status == "conditional"


# -- optimizers of libraries -----------------------------------------------------------------------

BORROWED = """\
import torch
from transformers import AdamW

def train(loader):
    model = torch.nn.Linear(4, 1)
    optimizer = AdamW(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for inputs, targets in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda"):
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
        scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.001)
        scaler.step(optimizer)
        scaler.update()
"""


def test_an_optimizer_of_a_known_library(ask: Asks) -> None:
    assert ask("AMP110", "clip_grad_norm_", BORROWED).status == "confirmed"


def test_an_optimizer_of_an_unknown_library(ask: Asks) -> None:
    other = BORROWED.replace("from transformers", "from optimizers")
    assert ask("AMP110", "clip_grad_norm_", other).status == "conditional"


# -- optimizers that divide by the scale themselves ------------------------------------------------

FUSED = BORROWED.replace("from transformers import AdamW", "from torch.optim import AdamW").replace(
    "lr=0.1)", "lr=0.1, fused=True)"
)


def test_a_clip_before_an_optimizer_that_unscales(ask: Asks) -> None:
    assert ask("AMP110", "clip_grad_norm_", FUSED).status == "confirmed"


@pytest.mark.parametrize("limit", ["0.001 * scaler.get_scale()", "1e30"])
def test_a_clip_that_changes_nothing_before_an_optimizer_that_unscales(
    ask: Asks, limit: str
) -> None:
    # The gradients that reach the step are scaled, those that it applies are not.
    right = FUSED.replace("0.001)", f"{limit})")
    assert ask("AMP110", "clip_grad_norm_", right).status != "confirmed"


# -- no scaler: what a loss is made of, and what runs beside it, makes no difference ---------------

PLAIN = """\
import torch

def prepare(folder):
    found = {}
    total = 7 // len(found)
    return total

def train(model, optimizer, loader, folder):
    weight = prepare(folder)
    for inputs, targets in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda"):
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
"""


def test_a_skipped_statement_beside_an_unscaled_training(ask: Asks) -> None:
    assert ask("AMP206", "with torch.autocast", PLAIN).status == "confirmed"


def test_a_skipped_statement_that_may_end_the_function(ask: Asks) -> None:
    ends = PLAIN.replace(
        "    weight = prepare(folder)\n", "    if 7 // len({}):\n        raise ValueError\n"
    )
    assert ask("AMP206", "with torch.autocast", ends).status != "confirmed"


# -- what a file holds -----------------------------------------------------------------------------

TABLE = """\
import json
import torch

def main():
    with open("settings.json") as text:
        table = json.load(text)
    names = {}
    for name, entry in table["sizes"].items():
        names[name] = entry.get("width")
    if table["mode"].lower() != "deep":
        return
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    loss = model(torch.ones(2, 4)).sum()
    loss.backward()
    scaler.step(optimizer)
    scaler.update()

if __name__ == "__main__":
    main()
"""


def test_methods_of_what_a_file_holds_refuse_nothing(ask: Asks) -> None:
    assert ask("AMP101", "scaler.step", TABLE).status == "confirmed"


def test_only_what_reads_a_file_gives_data() -> None:
    assert is_of_data("json.load()['sizes'].items") and is_of_data("open().readline().split")
    assert not is_of_data("loader.load()['sizes'].items") and not is_of_data("json.loaders.get")


def test_methods_of_what_a_library_gives_may_refuse(ask: Asks) -> None:
    other = TABLE.replace("import json", "import loader").replace("json.load(", "loader.load(")
    assert ask("AMP101", "scaler.step", other).status == "conditional"


# -- arguments that torch does not have, whatever was skipped before -------------------------------

FORM = """\
import torch
from torch.cuda.amp import autocast

def evaluate(model, loader):
    share = 7 // len({})
    model.eval()
    for inputs in loader:
        with autocast(device_type="cuda"):
            print(model(inputs), share)
"""


def test_arguments_behind_a_skipped_statement(ask: Asks) -> None:
    assert ask("AMP209", "with autocast", FORM).status == "confirmed"


@pytest.mark.parametrize(
    "statement",
    ["    if 7 // len({}) > 3:\n        raise ValueError\n", "    assert 7 // len({}) > 3\n"],
    ids=["raises", "asserts"],
)
def test_arguments_behind_a_statement_that_may_end_it(ask: Asks, statement: str) -> None:
    other = FORM.replace("    share = 7 // len({})\n", "    share = 1\n" + statement)
    assert ask("AMP209", "with autocast", other).status != "confirmed"


# -- settings in classes of Python, in keys, and what is so by default -----------------------------

SET = """\
import torch
from torch.cuda.amp import GradScaler, autocast

def run_epoch(net, optimizer, batches, settings):
    scaler = GradScaler()
    for inputs, targets in batches:
        with autocast():
            loss = torch.nn.functional.mse_loss(net(inputs), targets)
        scaler.scale(loss).backward()
        if settings.clips:
            if settings.kind == "norm":
                torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
"""
USED = """\
import importlib
import sys
import torch
from train import run_epoch

def main():
    settings = importlib.import_module(sys.argv[1]).Settings
    net = torch.nn.Linear({}["width"], 1)  # no run gets past this: the text has to say it
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    run_epoch(net, optimizer, torch.utils.data.DataLoader([1, 2, 3]), settings)

main()
"""
TOGETHER = """\
class Settings:
    clips = True
    kind = "norm"
    name = "first"
    width = 4
    depth = 2
"""
APART = """\
class Settings:
    clips = True
    kind = "value"
    name = "first"
    width = 4
    depth = 2

class Others:
    clips = False
    kind = "norm"
    name = "second"
    width = 5
    depth = 3
"""


@pytest.mark.parametrize(
    ("settings", "status"),
    [
        (TOGETHER, "confirmed"),
        (APART, "conditional"),
        # Too few to be settings: any class has some constants.
        ("class Settings:\n    clips = True\n    kind = 'norm'\n", "conditional"),
    ],
)
def test_settings_in_a_class(ask: Asks, settings: str, status: str) -> None:
    evidence = ask("AMP110", "clip_grad_norm_", SET, main=USED, small=settings)
    assert evidence.status == status, evidence


def test_settings_under_keys(ask: Asks, tmp_path: Path) -> None:
    keyed = SET.replace("settings.clips", "settings['clips']")
    keyed = keyed.replace("settings.kind", "settings['kind']")
    (tmp_path / "one.json").write_text('{"clips": true, "kind": "norm"}', encoding="utf-8")
    assert ask("AMP110", "clip_grad_norm_", keyed, main=USED).status == "confirmed"
    (tmp_path / "one.json").write_text('{"clips": false, "kind": "norm"}', encoding="utf-8")
    (tmp_path / "two.json").write_text('{"clips": true, "kind": "value"}', encoding="utf-8")
    assert ask("AMP110", "clip_grad_norm_", keyed, main=USED).status == "conditional"


# -- objects that the probe makes up ---------------------------------------------------------------

SHOWN = """\
import torch
from tqdm import tqdm

def train(model, optimizer, loader):
    scaler = torch.amp.GradScaler("cuda")
    total = 0.0
    bar = tqdm(enumerate(loader), total=len(loader))
    for index, inputs in bar:
        optimizer.zero_grad()
        with torch.autocast("cuda"):
            loss = model(inputs).mean()
        scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        total += loss.item()
        bar.set_postfix(loss=total / (bar.n + 1))
        picture = model(inputs)[0].cpu().numpy().transpose(1, 2, 0)
"""


def test_a_progress_bar_around_what_is_counted(ask: Asks) -> None:
    assert ask("AMP110", "clip_grad_norm_", SHOWN).status == "confirmed"


LISTED = """\
import os
import torch
from shelves import Shelf

class Pictures(Shelf):
    def __init__(self, folder):
        self.names = [n for n in os.listdir(folder) if n.lower().endswith((".png", ".jpg"))]
        if not self.names:
            raise OSError("no pictures")

    def __len__(self):
        return len(self.names)

def train(model, folder):
    scaler = torch.amp.GradScaler("cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    pictures = Pictures.read(folder) if folder is None else Pictures(folder)
    for inputs in torch.utils.data.DataLoader(pictures):
        optimizer.zero_grad()
        scaler.scale(model(inputs).mean()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
"""


def test_a_folder_with_files(ask: Asks) -> None:
    assert ask("AMP110", "clip_grad_norm_", LISTED).status == "confirmed"


# -- numbers of rounds that are what they are by default -------------------------------------------

ROUNDS = """\
import argparse
import torch

def run(args, net, batches):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for epoch in range(args.epochs):
        if args.amp:
            scaler = torch.amp.GradScaler("cuda")
        for inputs in batches:
            optimizer.zero_grad()
            with torch.autocast("cuda", enabled=args.amp):
                loss = net(inputs).mean()
            if args.amp:
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
            else:
                loss.backward()
                optimizer.step()

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default={default})
parser.add_argument("--amp", action="store_true")
"""


@pytest.mark.parametrize(("default", "status"), [("50", "confirmed"), ("1", "conditional")])
def test_enough_rounds_by_default(ask: Asks, default: str, status: str) -> None:
    evidence = ask("AMP119", "scaler = torch", ROUNDS.replace("{default}", default))
    assert evidence.status == status, evidence


# -- whose object it is, and who may call what -----------------------------------------------------

DERIVED = """\
import torch

class Base:
    early = True

    def __init__(self, net):
        self.net = net
        self.optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        self.scaler = torch.amp.GradScaler("cuda")

    def round(self, inputs, targets):
        self.optimizer.zero_grad()
        with torch.autocast("cuda"):
            loss = torch.nn.functional.mse_loss(self.net(inputs), targets)
        self.scaler.scale(loss).backward()
        if not self.early:
            self.scaler.unscale_(self.optimizer)
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), 0.001)
        self.scaler.step(self.optimizer)
        self.scaler.update()

class Late(Base):
    early = False

def main(batches):
    worker = Late(torch.nn.Linear(8, 2))
    for inputs, targets in batches:
        worker.round(inputs, targets)
"""


def test_a_base_of_which_only_a_subclass_has_objects(ask: Asks) -> None:
    assert ask("AMP110", "clip_grad_norm_", DERIVED).status != "confirmed"


def test_a_base_that_has_objects(ask: Asks) -> None:
    used = DERIVED.replace("Late(torch", "Base(torch")
    assert ask("AMP110", "clip_grad_norm_", used).status == "confirmed"


def test_a_base_whose_subclass_leaves_alone_what_it_uses(ask: Asks) -> None:
    apart = DERIVED.replace("early = False", "name = 'late'")
    assert ask("AMP110", "clip_grad_norm_", apart).status == "confirmed"


HANDED_BY_IMPORT = """\
import torch
from bench import board

@board.task
def train(net, batches):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for inputs, targets in batches:
        optimizer.zero_grad()
        with torch.autocast("cuda"):
            loss = torch.nn.functional.mse_loss(net(inputs), targets)
        scaler.scale(loss).backward()
        board.tick()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.001)
        scaler.step(optimizer)
        scaler.update()
"""
HANDLER = """
@board.on("tick")
def note():
    current.scaler.unscale_(current.optimizer)
"""


def test_what_holds_the_line_is_not_called_in_the_middle_of_itself(ask: Asks) -> None:
    assert "board.tick" not in str(ask("AMP110", "clip_grad_norm_", HANDED_BY_IMPORT))


@pytest.mark.parametrize(
    "handler", [HANDLER, "\nboard.add(lambda: current.scaler.unscale_(None))\n"]
)
def test_a_handler_of_the_same_library(ask: Asks, handler: str) -> None:
    evidence = ask("AMP110", "clip_grad_norm_", HANDED_BY_IMPORT + handler)
    assert any("`bench.board.tick` in line" in words for words in evidence.assumptions)


def test_a_handler_that_touches_nothing(ask: Asks) -> None:
    handler = '\n@board.on("tick")\ndef note():\n    print("tick")\n'
    evidence = ask("AMP110", "clip_grad_norm_", HANDED_BY_IMPORT + handler)
    assert "board.tick" not in str(evidence)


# -- a schedule that is made of what is needed -----------------------------------------------------

SCHEDULED = """\
import argparse
import torch
from transformers import get_linear_schedule_with_warmup

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--warm", type=int, default=0)
    options = parser.parse_args()
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    rates = get_linear_schedule_with_warmup(optimizer, options.warm, 8)
    for _ in range(8):
        optimizer.zero_grad()
        loss = model(torch.ones(2, 4)).square().sum()
        scaler.scale(loss).backward()
        if options.warm > 2:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        scaler.step(optimizer)
        scaler.update()
        rates.step()

if __name__ == "__main__":
    main()
"""


def test_a_schedule_that_takes_any_numbers(ask: Asks) -> None:
    assert ask("AMP110", "clip_grad_norm_", SCHEDULED).status == "confirmed"


def test_a_schedule_that_refuses_some_numbers(ask: Asks) -> None:
    other = SCHEDULED.replace("get_linear_schedule", "get_polynomial_decay_schedule")
    assert ask("AMP110", "clip_grad_norm_", other).status == "conditional"


# -- what a second call may change -----------------------------------------------------------------


def _events(*kinds: str) -> tuple[Event, ...]:
    rows = {kind: row for row, kind in enumerate(dict.fromkeys(kinds), 1)}
    return tuple(Event(kind, "train.py", rows[kind], optimizer=1) for kind in kinds)


@pytest.mark.parametrize(
    ("kinds", "is_second"),
    [
        (("zero_grad", "backward", "plain-step") * 2, False),  # each call is a round
        (("backward", "plain-step") * 2, True),  # who clears the gradients is not seen
        (("scale", "backward", "plain-step") * 2, True),  # a scaler, and nothing steps with it
        (("zero_grad", "scale", "backward", "step", "update") * 2, False),
    ],
)
def test_a_round_without_a_scaler_is_a_whole_one(kinds: tuple[str, ...], is_second: bool) -> None:
    result = RunResult("returned", events=_events(*kinds), calls=2)
    assert is_second_call(SimpleNamespace(result=result)) is is_second  # type: ignore[arg-type]


def test_steps_are_counted_within_the_first_call() -> None:
    result = RunResult("returned", events=_events(*("backward", "plain-step") * 2), calls=2)
    assert is_in_first_call(result, 0)
    assert not is_in_first_call(result, 1)
    assert not is_in_first_call(result, None)
