"""What a misuse of the protocol rests on, in whole programs."""

from __future__ import annotations

import textwrap

import pytest

from amplint.checker import check_source
from amplint.config import Settings
from amplint.findings import Finding, Severity, Standing
from amplint.levels import level

HEAD = """
import argparse
import torch
from torch.amp import GradScaler, autocast

parser = argparse.ArgumentParser()
parser.add_argument("--clip", action="store_true")
parser.add_argument("--debug", action="store_true")
parser.add_argument("--amp", action="store_true")
parser.add_argument("--low", action="store_true")
parser.add_argument("--twice", action="store_true", default=True)
args = parser.parse_args()
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
low = args.low
scaler = GradScaler("cpu", enabled=low and torch.cuda.is_available())
for batch in torch.ones(4, 2, 3):
    optimizer.zero_grad()
    scaler.scale(model(batch).mean()).backward()
"""


def check(body: str, head: str = HEAD) -> list[Finding]:
    source = head + textwrap.indent(textwrap.dedent(body), "    ") if head else body
    result = check_source("main.py", source.encode(), Settings())
    assert result.errors == ()
    return list(result.findings)


def carried(finding: Finding) -> Severity:
    """What the links of a finding let it be, whatever its rule's claims were worth elsewhere."""
    return level(Severity.ERROR, finding.links)


CLIP = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
REST = "scaler.step(optimizer)\nscaler.update()\n"


@pytest.mark.parametrize(
    ("test", "options", "severity"),
    [
        ("if True:", [], Severity.ERROR),
        ("if args.twice:", [], Severity.ERROR),
        ("if args.amp:", ["args.amp"], Severity.ERROR),  # nothing is switched on by it
        ("if args.low:", [], Severity.ERROR),
        ("if args.clip:\n  if args.low:", ["args.clip"], Severity.ERROR),
        ("if args.clip:", ["args.clip"], Severity.ERROR),
        ("if args.clip:\n  if args.debug:", ["args.clip", "args.debug"], Severity.WARNING),
        ("if args.clip:\n  if args.twice:", ["args.clip"], Severity.ERROR),
    ],
)
def test_options(test: str, options: list[str], severity: Severity) -> None:
    (finding,) = check(f"{test}\n      {CLIP}\n{REST}")
    assert finding.code == "AMP110"
    chosen = [link.subject for link in finding.links if link.standing is Standing.OPTION]
    assert (chosen, carried(finding)) == (options, severity)
    assert all(f"`{option}`" in finding.message for option in options)


def test_both_participants_are_known_from_the_code() -> None:
    (finding,) = check(f"scaler.step(optimizer)\n{REST}")
    objects = {link.subject: link.standing for link in finding.links if link.kind == "object"}
    assert objects == {"scaler": Standing.CODE, "optimizer": Standing.CODE}


def test_what_a_caller_passes_is_known_whatever_it_is_called() -> None:
    head = HEAD.replace("for batch", "def end(a, b):\n    a.step(b)\n    a.step(b)\nfor batch")
    (finding,) = check("end(scaler, optimizer)\nscaler.update()\n", head)
    assert finding.code == "AMP104"
    objects = [link for link in finding.links if link.kind == "object"]
    assert {link.standing for link in objects} == {Standing.CODE}


def test_a_name_alone_carries_no_error() -> None:
    """Nobody in sight calls it, and `step` is all that is asked of the object."""
    found = check("def end(scaler, thing):\n    scaler.step(thing)\n    scaler.step(thing)\n", "")
    assert [(item.code, carried(item)) for item in found] in ([], [("AMP104", Severity.INFO)])


@pytest.mark.parametrize(
    ("body", "severity"),
    [
        # One test may come out either way.
        ("if kinds.a:\n  scaler.scale(loss).backward()", Severity.ERROR),
        ("if kinds.a:\n  if kinds.b:\n    scaler.scale(loss).backward()", Severity.ERROR),
        # That none of several does is shown by nothing.
        (
            (
                "if kinds.a:\n  scaler.scale(loss).backward(retain_graph=True)\n"
                "if kinds.b:\n  scaler.scale(loss).backward()"
            ),
            Severity.INFO,
        ),
        (
            (
                "if kinds.a:\n  scaler.scale(loss).backward()\n"
                "elif kinds.b:\n  scaler.scale(2 * loss).backward()"
            ),
            Severity.INFO,
        ),
        # Tests in other words: a path knows how their operands came out.
        (
            (
                "if not kinds.a:\n  scaler.scale(loss).backward(retain_graph=True)\n"
                "if kinds.b and not kinds.c:\n  scaler.scale(loss).backward()"
            ),
            Severity.INFO,
        ),
        (
            (
                "if kinds.a or kinds.b:\n  scaler.scale(loss).backward(retain_graph=True)\n"
                "if not (kinds.c or kinds.d):\n  scaler.scale(loss).backward()"
            ),
            Severity.INFO,
        ),
        ("if not kinds.a and kinds.b:\n  scaler.scale(loss).backward()", Severity.ERROR),
    ],
)
def test_several_tests_that_leave_every_backward_out_are_guessed(
    body: str, severity: Severity
) -> None:
    head = "from torch.amp import GradScaler\nscaler = GradScaler('cuda')\n"
    loop = (
        f"optimizer.zero_grad()\nlosses = net(batch)\nloss = losses['sum']\n{body}\n"
        "scaler.step(optimizer)\nscaler.update()\n"
    )
    function = "def train(net, optimizer, batches, kinds):\n  for batch in batches:\n{}"
    found = check(head + function.format(textwrap.indent(loop, "    ")), head="")
    (finding,) = [item for item in found if item.code == "AMP101"]
    assert carried(finding) is severity


@pytest.mark.parametrize(
    ("test", "severity"),
    [("name != 'judge'", Severity.INFO), ("is_finite", Severity.ERROR)],
)
def test_that_a_loop_leaves_every_element_out_is_guessed(test: str, severity: Severity) -> None:
    source = f"""
    from torch.amp import GradScaler

    def train(net, optimizers, batches, is_finite):
        scaler = GradScaler("cuda")
        for batch in batches:
            scaler.scale(net(batch)).backward()
            for name in optimizers.keys():
                if {test}:
                    scaler.step(optimizers[name])
                    optimizers[name].zero_grad()
            scaler.update()
    """
    (finding,) = check(textwrap.dedent(source), head="")
    assert (finding.code, carried(finding)) == ("AMP106", severity)


SCALER_OR_NONE = """
    import torch
    from torch.amp import GradScaler

    def train(net, optimizer, batches, settings, flag):
        scaler = GradScaler("cuda") if {made} else None
        for step, batch in enumerate(batches):
            optimizer.zero_grad()
            loss = net(batch).mean()
            if {used}:
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
"""


@pytest.mark.parametrize(
    ("made", "used", "severity"),
    [
        ("settings.low", "batch", Severity.ERROR),
        ("settings.low", "step % 2 == 0", Severity.ERROR),  # comes out either way in each run
        ("settings.low", "torch.isfinite(loss)", Severity.ERROR),
        ("settings.low", "settings.low or settings.fast", Severity.ERROR),  # shares a place
        ("settings.low", "settings.fast", Severity.INFO),
        ("settings.low", "flag", Severity.INFO),
    ],
)
def test_that_a_scaler_is_used_where_none_was_made_is_guessed_of_two_settings(
    made: str, used: str, severity: Severity
) -> None:
    source = SCALER_OR_NONE.format(made=made, used=used)
    (finding,) = [item for item in check(textwrap.dedent(source), head="") if item.code == "AMP202"]
    assert carried(finding) is severity


def test_that_the_call_to_a_function_that_uses_it_stands_under_a_setting_counts_too() -> None:
    source = """
    from torch.amp import GradScaler

    def train(net, optimizer, batches, settings):
        scaler = GradScaler("cuda") if settings.low else None
        for batch in batches:
            loss = net(batch).mean()
            if settings.fast:
                learn(scaler, loss, optimizer)

    def learn(scaler, loss, optimizer):
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    """
    (finding,) = check(textwrap.dedent(source), head="")
    assert (finding.code, carried(finding)) == ("AMP202", Severity.INFO)


def test_that_the_words_are_about_the_test_that_makes_no_scaler_and_the_path_begins_there() -> None:
    source = """
    from torch.amp import GradScaler

    def made(settings):
        if settings.low:
            keeper = GradScaler("cuda")
        else:
            keeper = None
        return keeper

    def train(net, optimizer, batches, settings, epochs):
        keeper = made(settings)
        if settings.wide:
            net.widen()
        for epoch in range(epochs):
            if settings.verbose:
                print(epoch)
            for step, batch in enumerate(batches):
                loss = net(batch).mean()
                optimizer.zero_grad()
                if settings.low:
                    keeper.scale(loss).backward()
                else:
                    loss.backward()
                learn(keeper, optimizer)

    def learn(keeper, optimizer):
        keeper.step(optimizer)
        keeper.update()
    """
    (finding,) = [item for item in check(textwrap.dedent(source), head="") if item.code == "AMP202"]
    assert "when `not settings.low`" in finding.message
    steps = [(step.kind, step.subject) for step in finding.path]
    assert steps == [("assume", "settings.low"), ("call", "learn")]


@pytest.mark.parametrize(
    ("first", "second", "severity"),
    [
        ("settings.clip", "settings.clip", Severity.ERROR),
        ("settings.clip", "settings.late", Severity.INFO),
        ("step % 2 == 0", "step % 3 == 0", Severity.ERROR),
    ],
)
def test_that_several_tests_leave_every_remedy_out_is_guessed(
    first: str, second: str, severity: Severity
) -> None:
    source = f"""
    import torch
    from torch.amp import GradScaler

    def train(net, optimizer, batches, settings):
        scaler = GradScaler("cuda")
        for step, batch in enumerate(batches):
            optimizer.zero_grad()
            scaler.scale(net(batch).mean()).backward()
            if {first}:
                scaler.unscale_(optimizer)
            elif {second}:
                scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
    """
    (finding,) = check(textwrap.dedent(source), head="")
    assert (finding.code, carried(finding)) == ("AMP110", severity)


CENTERS = """
import torch


class Centers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.points = torch.nn.Parameter(torch.zeros(3, 8))

    def forward(self, features):
        return torch.cdist(features, self.points).min(1).values.mean()


def losses_of(options):
    centers = Centers()

    def loss_of(features, target):
        return LOSS

    return loss_of, centers


def optimizers_of(options, net, centers):
    groups = []
    for name, value in net.named_parameters():
        groups += [{"params": [value], "lr": options.lr}]
    optimizer = torch.optim.SGD(groups)
    optimizer_of_centers = torch.optim.SGD(centers.parameters(), lr=0.5)
    return optimizer, optimizer_of_centers


def train(options, net, batches, optimizer, optimizer_of_centers, loss_of, centers):
    scaler = torch.amp.GradScaler("cuda")
    for x, y in batches:
        optimizer.zero_grad()
        optimizer_of_centers.zero_grad()
        with torch.autocast("cuda"):
            features = net(x)
            loss = loss_of(features, y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if "center" in options.kind:
            for point in centers.parameters():
                point.grad.data *= 2.0
            scaler.step(optimizer_of_centers)
            scaler.update()


def main(net, batches, options):
    loss_of, centers = losses_of(options)
    OTHER
    optimizer, optimizer_of_centers = optimizers_of(options, net, centers)
    train(options, net, batches, optimizer, optimizer_of_centers, loss_of, centers)
"""
PLAIN = "(features - target).pow(2).mean()"


@pytest.mark.parametrize(
    ("loss", "other", "severity"),
    [
        (PLAIN, "pass", Severity.INFO),
        (PLAIN, "print(Centers()(options.features))", Severity.INFO),  # another object
        (f"{PLAIN} + centers(features)", "pass", Severity.ERROR),
        (PLAIN, "print(centers(options.features))", Severity.ERROR),  # not this loss, but run
    ],
)
def test_that_a_module_gets_gradients_is_guessed_where_nothing_runs_it(
    loss: str, other: str, severity: Severity
) -> None:
    (finding,) = check(CENTERS.replace("LOSS", loss).replace("OTHER", other), head="")
    assert (finding.code, carried(finding)) == ("AMP107", severity)


ENGINE = """
import torch

class Scaled(torch.optim.Optimizer):
    def __init__(self, inner, scaler):
        self.inner, self.scaler = inner, scaler

    def step(self, closure=None):
        STEP

class Engine:
    def __init__(self):
        self.scaler = torch.amp.GradScaler("cuda")

    def prepared(self, part):
        if isinstance(part, torch.optim.Optimizer):
            return Scaled(part, self.scaler)
        return part

    def wrap(self, *parts):
        done = tuple(self.prepared(part) for part in parts)
        return done if len(done) > 1 else done[0]

def train(loader, net):
    engine = Engine()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    net, optimizer = engine.wrap(net, optimizer)
    for x, y in loader:
        engine.scaler.scale(torch.nn.functional.mse_loss(net(x), y)).backward()
        optimizer.step()
        optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    ("step", "severity"),
    [
        ("self.scaler.step(self.inner); self.scaler.update()", Severity.INFO),
        ("return [part.add_(part.grad) for part in self.parts]", Severity.ERROR),
    ],
)
def test_a_step_that_may_be_the_projects_own_carries_no_error(
    step: str, severity: Severity
) -> None:
    (finding,) = check(ENGINE.replace("STEP", step), "")
    assert (finding.code, carried(finding)) == ("AMP112", severity)


@pytest.mark.parametrize(
    ("wrap", "severity"),
    [
        ("net, optimizer = wrapping.prepared(net, optimizer)", Severity.INFO),
        ("optimizer = wrapping.Sharded(inner=optimizer)", Severity.INFO),
        ("wrapping.log(optimizer)", Severity.ERROR),
        ("net, other = wrapping.prepared(net, optimizer)", Severity.ERROR),
    ],
)
def test_what_code_out_of_sight_hands_back_carries_no_error(wrap: str, severity: Severity) -> None:
    code = ENGINE.replace("net, optimizer = engine.wrap(net, optimizer)", wrap)
    found = check("import wrapping" + code.replace("STEP", "pass"), "")
    assert [(item.code, carried(item)) for item in found] == [("AMP112", severity)]


STEP = """
import torch
from torch.amp import GradScaler, autocast

def train_step(model, batch, optimizer, scaler):
    optimizer.zero_grad()
    with autocast("cuda", dtype=torch.float16):
        loss = model(batch)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
"""
CALLER = """
def train(model, optimizer, loader):
    scaler = GradScaler()
    for batch in loader:
        train_step(model, batch, optimizer, scaler)
"""


@pytest.mark.parametrize(
    ("source", "severity"),
    [
        (STEP, Severity.INFO),  # whoever owns the scaler may update it
        (STEP + CALLER, Severity.ERROR),
    ],
)
def test_what_the_owner_of_a_scaler_does_between_two_calls(source: str, severity: Severity) -> None:
    found = [carried(item) for item in check(source, "") if item.code == "AMP105"]
    assert found == [severity]


LEARNER = """
import torch
from torch.amp import GradScaler

class Learner:
    def __init__(self, model, optimizer):
        self.model = model
        self.optimizer = optimizer
        self.scaler = GradScaler()

    def learn(self, objective):
        self.optimizer.zero_grad()
        objective.backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
"""


@pytest.mark.parametrize(
    ("rest", "severity"),
    [
        ("", Severity.INFO),  # whoever hands the loss in may scale it
        ("    def each(self, objectives):\n        self.learn(objectives[0])\n", Severity.INFO),
        (
            "    def given(self, objective):\n        self.learn(objective)\n",
            Severity.INFO,
        ),
        (
            "    def run(self, batch):\n        self.learn(self.model(batch).mean())\n",
            Severity.ERROR,
        ),
    ],
)
def test_that_a_loss_from_out_of_sight_is_not_scaled_is_guessed(
    rest: str, severity: Severity
) -> None:
    found = [carried(item) for item in check(LEARNER + rest, "") if item.code == "AMP101"]
    assert found == [severity]


def test_the_help_for_a_clip_names_the_optimizer_that_steps_after_it() -> None:
    source = """
    import torch
    from torch.amp import GradScaler

    def train(first, second, one, two, batches):
        scaler = GradScaler("cuda")
        for batch in batches:
            scaler.scale(first(batch).mean()).backward()
            torch.nn.utils.clip_grad_norm_(first.parameters(), 1.0)
            scaler.step(one)
            scaler.update()
            one.zero_grad()
            scaler.scale(second(batch).mean()).backward()
            torch.nn.utils.clip_grad_norm_(second.parameters(), 1.0)
            scaler.step(two)
            scaler.update()
            two.zero_grad()
    """
    helps = [item.help or "" for item in check(textwrap.dedent(source), head="")]
    assert [("(one)" in text, "(two)" in text) for text in helps] == [(True, False), (False, True)]


COUNTED = """
import torch
from torch.amp import GradScaler

def learn(net, batch, count, scaler, optimizer):
    scaler.scale(net(batch).mean()).backward()
    {moved}
    if count % 4 == 0:
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    return count

def train(net, optimizer, batches):
    scaler = GradScaler("cuda")
    optimizer.zero_grad()
    count = 0
    for index, batch in enumerate(batches, 1):
        {call}
    if {flush}:
        scaler.step(optimizer)
        scaler.update()
"""


@pytest.mark.parametrize(
    ("moved", "call", "flush", "severity"),
    [
        # The index and a count that goes up in the callee: nothing shows that they agree.
        (
            "count += 1",
            "count = learn(net, batch, count, scaler, optimizer)",
            "index % 4 != 0",
            Severity.INFO,
        ),
        ("pass", "learn(net, batch, index, scaler, optimizer)", "index % 4 == 0", Severity.ERROR),
        ("pass", "learn(net, batch, index, scaler, optimizer)", "index % 3 == 0", Severity.ERROR),
    ],
)
def test_that_a_count_of_another_function_goes_along_with_a_loop_is_guessed(
    moved: str, call: str, flush: str, severity: Severity
) -> None:
    found = check(COUNTED.format(moved=moved, call=call, flush=flush), head="")
    assert [(item.code, carried(item)) for item in found] == [("AMP103", severity)]


@pytest.mark.parametrize(
    ("given", "held", "severity"),
    [
        ("keeper", "keeper", Severity.INFO),  # whoever made it has it, too
        ("", 'torch.amp.GradScaler("cuda")', Severity.ERROR),
    ],
)
def test_whoever_hands_a_scaler_to_a_constructor_may_update_it(
    given: str, held: str, severity: Severity
) -> None:
    body = f"""
        class Strategy:
            def __init__(self, {given}):
                self.first = {held}

            def learn(self, optimizer, model, inputs):
                optimizer.zero_grad()
                self.first.scale(model(inputs).mean()).backward()
                self.first.step(optimizer)


        def run(strategy, optimizer, model, batches):
            for inputs in batches:
                strategy.learn(optimizer, model, inputs)
    """
    (finding,) = check("import torch\n\n" + textwrap.dedent(body), head="")
    assert (finding.code, carried(finding)) == ("AMP105", severity)


COMPUTED = """
    import torch
    from torch.amp import GradScaler

    def train(net, optimizer, batches, parts, every, limit):
        scaler = GradScaler("cuda")
        for row, batch in enumerate(batches):
            for column, part in enumerate(batch.chunk(parts)):
                if {count} % every == 0:
                    optimizer.zero_grad()
                scaler.scale(net(part).mean()).backward()
                if ({count} + 1) % every == 0:
                    if limit:
                        scaler.unscale_(optimizer)
                        torch.nn.utils.clip_grad_norm_(net.parameters(), limit)
                    scaler.step(optimizer)
                    scaler.update()
"""


def test_how_a_computed_count_grows_is_guessed() -> None:
    """A window may end and the next one not begin only if the count leaves numbers out."""
    found = check(textwrap.dedent(COMPUTED.format(count="(row * parts + column)")), head="")
    assert {carried(item) for item in found} == {Severity.INFO}
    assert check(textwrap.dedent(COMPUTED.format(count="column")), head="") == []
