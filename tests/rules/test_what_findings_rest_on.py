"""What decides a finding is what values are and how they are used, never a word in a name."""

from __future__ import annotations

import textwrap

import pytest

from amplint.checker import check_source
from amplint.config import Settings
from amplint.findings import Finding, Severity, Standing

HEAD = "import torch\nfrom torch.amp import GradScaler, autocast\nF = torch.nn.functional\n"


def found(code: str, program: str, head: str = HEAD) -> list[Finding]:
    source = head + textwrap.dedent(program)
    result = check_source("main.py", source.encode(), Settings(select=(code,)))
    assert result.errors == ()
    return list(result.findings)


SWALLOWED = """
class Runner:
    def __init__(self, net, sgd):
        self.net, self.sgd, self.keeper = net, sgd, GradScaler("cuda")

    def {name}(self, x):
        {first}
        try:
            self.keeper.step(self.sgd)
            self.keeper.update()
        except Exception:
            self.failed = True
"""


@pytest.mark.parametrize(
    ("name", "first", "count"),
    [
        ("go", "self.keeper.scale(self.net(x).sum()).backward()", 1),
        ("train_step", "self.keeper.scale(self.net(x).sum()).backward()", 1),
        ("train_step", "pass", 0),
        ("update_epoch", "print(x)", 0),
    ],
)
def test_who_swallows_a_step_again_and_again(name: str, first: str, count: int) -> None:
    assert len(found("AMP122", SWALLOWED.format(name=name, first=first))) == count


ANEW = """
def one_pass(net, sgd, pages):
    keeper = GradScaler("cuda"{scale})
    for x, y in pages:
        sgd.zero_grad()
        with autocast("cuda"{switch}):
            loss = F.mse_loss(net(x), y)
        keeper.scale(loss).backward()
        keeper.step(sgd)
        keeper.update()

def fit(net, pages, times):
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(times):
        one_pass(net, sgd, pages)
"""


@pytest.mark.parametrize(
    ("scale", "switch", "severity"),
    [
        ("", "", Severity.WARNING),
        ("", ", enabled=False", Severity.INFO),
        (", init_scale=2.0**100", ", enabled=False", Severity.WARNING),
    ],
)
def test_a_scaler_built_anew_harms_where_something_overflows(
    scale: str, switch: str, severity: Severity
) -> None:
    (finding,) = found("AMP119", ANEW.format(scale=scale, switch=switch))
    assert finding.severity is severity
    assert ("harmless here" in finding.message) is (severity is Severity.INFO)


FLAGS = """
import argparse
options = argparse.ArgumentParser()
options.add_argument("--low", action="store_true")
options.add_argument("--guard", {guard})
chosen = options.parse_args()

def fit(net, pages, sgd):
    other = {other}
    keeper = GradScaler("cuda", enabled=chosen.low and other)
    for page in pages:
        sgd.zero_grad()
        with autocast("cuda", dtype=torch.float16, enabled=chosen.low):
            loss = net(page).sum()
        keeper.scale(loss).backward()
        keeper.step(sgd)
        keeper.update()
"""


@pytest.mark.parametrize(
    ("guard", "other", "levels"),
    [
        ('action="store_false"', "chosen.guard", ["info"]),  # an option has to be chosen
        ('action="store_true"', "chosen.guard", ["warning"]),  # off unless somebody chooses
        ('action="store_true"', "torch.cuda.is_available()", []),  # autocast is off with it
        ('action="store_true"', "pick(torch).kind == 'fast'", []),
    ],
)
def test_whether_a_scaler_can_be_off_alone(guard: str, other: str, levels: list[str]) -> None:
    findings = found("AMP204", FLAGS.format(guard=guard, other=other))
    assert [item.severity.value for item in findings] == levels
    assert all("chosen.guard" in item.message for item in findings if levels == ["info"])


PLAIN = """
def fit(net, pages, {extra}):
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    for page in pages:
        sgd.zero_grad()
        with autocast("cuda", dtype=torch.float16):
            loss = net(page).sum()
        {goes}.backward()
        sgd.step()
{rest}
"""


@pytest.mark.parametrize(
    ("extra", "goes", "rest", "levels"),
    [
        ("lr", "loss", "", ["warning"]),
        (
            "image_scaler",
            "loss",
            "    image_scaler.show()",
            ["info"],
        ),  # a word that may speak of one
        ("image_scaler", "loss", "", ["warning"]),  # nothing is done with it
        ("lr", "loss", "keeper = GradScaler('cuda')", ["warning"]),  # and scales nothing
        ("it", "loss", "def other(it, sgd):\n    it.unscale_(sgd)", ["warning"]),
        ("keeper", "keeper.scale(loss)", "keeper = GradScaler('cuda')", []),
    ],
)
def test_whether_anything_scales(extra: str, goes: str, rest: str, levels: list[str]) -> None:
    head = HEAD if "GradScaler" in rest else HEAD.replace("GradScaler, ", "")
    findings = found("AMP206", PLAIN.format(extra=extra, goes=goes, rest=rest), head)
    assert [item.severity.value for item in findings] == levels


ENTROPY = """
def fit(net, x, y, {flag}, other):
    with autocast("cuda", enabled={flag}):
        p = torch.sigmoid(net(x))
        if {test}:
            return F.binary_cross_entropy(p, y)
        return p.mean()
"""


@pytest.mark.parametrize(
    ("flag", "test", "levels"),
    [
        ("low", "not low", []),  # excluded by the switch, whatever it is called
        ("fast", "fast", ["error"]),
        ("low", "not torch.is_autocast_enabled()", []),
        ("low", "other == 'entropy'", ["error"]),
        ("low", "other.half", ["info"]),  # it may be the same switch
    ],
)
def test_whether_autocast_is_on_at_an_entropy(flag: str, test: str, levels: list[str]) -> None:
    findings = found("AMP502", ENTROPY.format(flag=flag, test=test))
    assert [item.severity.value for item in findings] == levels


SKIPPED = """
def fit(net, pages, sgd, rates, note):
    keeper = GradScaler("cuda")
    for page in pages:
        keeper.scale(net(page).sum()).backward()
        keeper.step(sgd)
        keeper.update()
        before = keeper.get_scale()
        {between}
        if before <= keeper.get_scale():
            rates.step()
"""


@pytest.mark.parametrize(
    ("between", "count"),
    [
        ("pass", 1),
        ("sgd.zero_grad()", 1),
        ("note.take(before)", 1),
        ("note.take(keeper)", 0),
        ("note(page)", 0),  # it may have closed over the scaler
    ],
)
def test_whether_an_update_can_lie_between_two_reads(between: str, count: int) -> None:
    assert len(found("AMP126", SKIPPED.format(between=between))) == count


HELPERS = """
def fit(net, pages, it, sgd):
    for page in pages:
        try:
            end(it, sgd)
        except Exception:
            continue

def end(it, sgd):
    it.unscale_(sgd)
    it.step(sgd)
    it.update()
"""


def test_an_object_is_known_where_it_is_handed_to() -> None:
    (finding,) = found("AMP122", HELPERS)
    assert {link.standing for link in finding.links if link.kind == "object"} == {Standing.USE}


TABLE = """
import argparse
options = argparse.ArgumentParser()
options.add_argument("--number", default=None, choices=["half", "brain"])

def fit(net, pages, sgd, chosen):
    kinds = dict(half=torch.float16, brain=torch.bfloat16)
    keeper = GradScaler("cuda", enabled=chosen.number is not None)
    for page in pages:
        with autocast("cuda", dtype=kinds[chosen.number]):
            loss = net(page).sum()
        keeper.scale(loss).backward()
        keeper.step(sgd)
        keeper.update()

fit(None, [], None, options.parse_args())
"""


def test_the_option_that_decides_about_the_dtype_is_named() -> None:
    (finding,) = found("AMP402", TABLE)
    assert finding.severity is Severity.INFO
    assert "`chosen.number == 'brain'`" in finding.message


GUARDED = """
def fit(net, pages, {flag}):
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    keeper = GradScaler("cuda")
    for page in pages:
        sgd.zero_grad()
        loss = net(page).sum()
        {scaling}
        {stepping}
        keeper.update()
"""
EITHER = "{test}: keeper.scale(loss).backward()\n        else: loss.backward()"


@pytest.mark.parametrize(
    ("flag", "scaling", "stepping", "code"),
    [
        ("fast", EITHER, "keeper.step(sgd)", "AMP201"),  # it decides what is scaled
        ("half_rate", "keeper.scale(loss).backward()", "{test}: keeper.step(sgd)", "AMP106"),
    ],
)
def test_a_guard_is_about_amp_by_what_it_guards(
    flag: str, scaling: str, stepping: str, code: str
) -> None:
    words = {"flag": flag, "scaling": scaling, "stepping": stepping}
    program = GUARDED.format(**words).replace("{test}", f"if {flag}")
    source = (HEAD + program).encode()
    result = check_source("main.py", source, Settings(select=("AMP1", "AMP201")))
    assert [item.code for item in result.findings] == [code]


LATE = """
def fit(net, rows, keeper, first, second, names):
    for row in rows:
        first.zero_grad()
        second.zero_grad()
        with autocast("cuda", dtype=torch.float16):
            loss = net(row).sum()
        keeper.scale(loss).backward()
        keeper.step(first)
        keeper.update()
        {late}


def main(net, rows, names):
    first = torch.optim.SGD(net.parameters(), lr=0.1)
    second = torch.optim.SGD(names["rim"], lr=0.1)
    fit(net, rows, torch.amp.GradScaler("cuda"), first, second, names)
"""


@pytest.mark.parametrize(
    ("late", "levels"),
    [
        ("keeper.step(second)", ["warning"]),  # without gradients it would raise in each round
        ("if 'rim' in names:\n            keeper.step(second)", ["info"]),  # nobody may go there
    ],
)
def test_whether_a_late_optimizer_has_gradients(late: str, levels: list[str]) -> None:
    findings = found("AMP107", LATE.format(late=late))
    assert [item.severity.value for item in findings] == levels
