"""What a loop hands to functions, lists of objects at the top of a module, declared methods."""

from __future__ import annotations

import ast

import pytest

from amplint.view import view_of


def codes(source: str) -> list[str]:
    """Codes of the protocol found in a file with this text."""
    text = f"import torch\n{source}"
    return sorted(misuse.code for misuse in view_of("a.py", text, ast.parse(text)).flow_misuses)


# -- loops over optimizers whose body is a call ----------------------------------------------------

SEVERAL = """\
{helpers}
def fit(net, data, opts, scaler, stages):
    for x in data:
        for opt in opts:
            {clear}
        scaler.scale(net(x).mean()).backward()
        {loop}
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        for opt in opts:
            scaler.step(opt)
        scaler.update()
"""
ZERO = "def empty(one):\n    one.zero_grad(set_to_none=True)\n"
TIDY = "class Tidy:\n    def __call__(self, one):\n        one.zero_grad()\n"
UNSCALE = "for opt in opts:\n            scaler.unscale_(opt)"
DEEP = "def outer(one, gs):\n    inner(gs, one)\ndef inner(gs, each):\n    gs.unscale_(each)\n"


@pytest.mark.parametrize(
    ("helpers", "clear", "loop"),
    [
        (ZERO, "empty(opt)", UNSCALE),
        (TIDY, "Tidy()(opt)", UNSCALE),
        (DEEP, "opt.zero_grad()", "for opt in opts:\n            outer(opt, scaler)"),
        ("", "opt.zero_grad()", UNSCALE),
    ],
    ids=["function", "object", "two calls deep", "here"],
)
def test_a_loop_that_hands_optimizers_on_runs_over_optimizers(
    helpers: str, clear: str, loop: str
) -> None:
    program = SEVERAL.format(helpers=helpers, clear=clear, loop=loop)
    assert codes(program) == []
    assert codes(program.replace(loop, "pass")) == ["AMP110"]


BY_KEY = """\
class Parts:
    def __init__(self, nets):
        self.opts = {key: torch.optim.SGD(net.parameters(), lr=0.1) for key, net in nets.items()}

def advance(parts, key, scaler):
    {body}

def fit(nets, data, loss_of, used):
    parts, scaler = Parts(nets), torch.amp.GradScaler("cuda")
    for x in data:
        loss = loss_of(nets, x)
        scaler.scale(loss).backward()
        for key in used:
            advance(parts, key, scaler)
        scaler.update()
        for opt in parts.opts.values():
            opt.zero_grad()
"""


@pytest.mark.parametrize(
    "body", ["scaler.step(parts.opts[key])", "mine = parts.opts[key]; scaler.step(mine)"]
)
def test_the_key_of_an_optimizer_is_handed_on(body: str) -> None:
    program = BY_KEY.replace("{body}", body)
    assert codes(program) == []
    assert codes(program.replace(body, f"{body}; {body}")) == ["AMP104"]


BY_HAND = """\
class Divider:
    def visit(self, weight, by):
        {test}
            weight.grad.data.mul_(by)

def fit(net, data, opt, scaler):
    for x in data:
        opt.zero_grad()
        scaler.scale(net(x).mean()).backward()
        by = 1.0 / scaler.get_scale()
        for weight in net.parameters():
            Divider().visit(weight, by)
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
"""


@pytest.mark.parametrize("test", ["if weight.grad is not None:", "if weight.requires_grad:"])
def test_gradients_divided_in_a_method_are_not_known_to_be_scaled(test: str) -> None:
    program = BY_HAND.replace("{test}", test)
    assert codes(program) == []
    assert codes(program.replace("Divider().visit(weight, by)", "pass"))


DROPPED = """\
def drop(name, weight):
    {test}
    weight.grad = None

def fit(net, data, opt, scaler):
    for x in data:
        opt.zero_grad()
        scaler.scale(net(x).mean()).backward()
        for name, weight in net.named_parameters():
            drop(name, weight)
        scaler.step(opt)
        scaler.update()
"""


def test_gradients_of_some_parameters_are_dropped_in_a_function() -> None:
    inside = "if name.startswith('head'):\n        weight.grad = None"
    some = DROPPED.replace("{test}\n    weight.grad = None", inside)
    assert codes(some) == []
    assert codes(DROPPED.replace("    {test}\n", "")) == ["AMP102"]


# -- lists of objects --------------------------------------------------------------------------------

HOOKS = """\
class Backward:
    def run(self, job):
        job.scaler.scale(job.loss).backward()

class Clip:
    def __init__(self, most):
        self.most = most

    def run(self, job):
        job.scaler.unscale_(job.opt)
        torch.nn.utils.clip_grad_norm_(job.net.parameters(), self.most)

class Finish:
    def run(self, job):
        job.scaler.step(job.opt)
        job.scaler.update()
        job.opt.zero_grad()

{hooks}

class Job:
    def __init__(self, net):
        self.net = net
        self.opt = torch.optim.SGD(net.parameters(), lr=0.1)
        self.scaler = torch.amp.GradScaler("cuda")

    def fit(self, data):
        for x in data:
            self.loss = self.net(x).mean()
            for hook in HOOKS:
                hook.run(self)
"""


@pytest.mark.parametrize(
    ("hooks", "expected"),
    [
        ("HOOKS = [Backward(), Clip(1.0), Finish()]", []),
        ("HOOKS = (Backward(), Finish())", []),
        ("HOOKS = [Clip(1.0), Backward(), Finish()]", ["AMP111"]),
        ("HOOKS = [Backward(), Finish(), Clip(1.0)]", ["AMP110"]),
        ("HOOKS = [Backward(), Finish(), Finish()]", ["AMP101"]),
        ("HOOKS = [Backward(), Finish(), Finish()]\ndef more(): HOOKS.append(Clip(1.0))", []),
        ("HOOKS = [Backward(), Finish(), Finish()] if VARIANT else []", []),
    ],
)
def test_objects_in_a_list_of_the_module_run_in_turn(hooks: str, expected: list[str]) -> None:
    found = codes(HOOKS.replace("{hooks}", hooks))
    assert bool(found) is bool(expected), found


# -- functions behind their callers ------------------------------------------------------------------

OFF = """\
class Extra:
    def go(self, scaler, opt):
        return self.work(scaler, opt)

    def work(self, scaler, opt):
        scaler.step(opt)

class Usual:
    def go(self, net, x, scaler, opt, twice):
        opt.zero_grad()
        scaler.scale(net(x).mean()).backward()
        scaler.step(opt)
        if twice > 1:
            Extra().go(scaler, opt)
        scaler.update()

    def work(self, net, x, scaler, opt, twice):
        self.go(net, x, scaler, opt, twice)

def fit(net, data, twice):
    opt, scaler = torch.optim.SGD(net.parameters(), lr=0.1), torch.amp.GradScaler("cuda")
    for x in data:
        Usual().work(net, x, scaler, opt, twice)

def main(net, data):
    fit(net, data, {twice})
"""


def test_a_method_that_no_caller_reaches_is_no_training_step_by_its_name() -> None:
    assert codes(OFF.replace("{twice}", "1")) == []
    assert codes(OFF.replace("{twice}", "2")) == ["AMP104"]


DECLARED = """\
class Base:
    def __init__(self, net, opt):
        self.net, self.opt, self.scaler = net, opt, torch.amp.GradScaler("cuda")

    def scaled_backward(self, x):
        {body}

class Runner:
    def go(self, owner, x):
        owner.opt.zero_grad()
        owner.scaled_backward(x)
        owner.scaler.step(owner.opt)
        owner.scaler.update()

class Loop(Base):
    def fit(self, data):
        for x in data:
            Runner().go(self, x)
"""


@pytest.mark.parametrize(
    "body",
    [
        "raise NotImplementedError",
        "message = 'say how'; raise NotImplementedError(message)",
        "raise TypeError(type(self))",
        "assert False, 'a subclass does this'",
        "...",
    ],
)
def test_a_declared_method_of_what_is_handed_over_may_do_anything(body: str) -> None:
    assert codes(DECLARED.replace("{body}", body)) == []
    assert codes(DECLARED.replace("{body}", "self.net(x)")) == ["AMP101"]


# -- objects that attributes hold ----------------------------------------------------------------------

KEPT = """\
class Guarded:
    def __init__(self, wrapped):
        self.wrapped = wrapped

    def enlarge(self, value):
        return self.wrapped.scale(value)

    def apply(self, opt):
        {apply}

class Fit:
    def __init__(self, net):
        self.net, self.opt = net, torch.optim.SGD(net.parameters(), lr=0.1)
        self.tools = Guarded(torch.amp.GradScaler("cuda"))

    def run(self, data):
        for x in data:
            self.opt.zero_grad()
            self.tools.enlarge(self.net(x).mean()).backward()
            self.tools.apply(self.opt)
"""
RIGHT = "self.wrapped.step(opt); self.wrapped.update()"


@pytest.mark.parametrize(
    ("apply", "expected"),
    [
        (RIGHT, []),
        ("self.wrapped.step(opt)", ["AMP105"]),
        (f"torch.nn.utils.clip_grad_norm_(opt.param_groups[0]['params'], 1); {RIGHT}", ["AMP110"]),
        (f"opt.step(); {RIGHT}", ["AMP112"]),
    ],
)
def test_methods_of_an_object_that_an_attribute_holds(apply: str, expected: list[str]) -> None:
    assert codes(KEPT.replace("{apply}", apply)) == expected
    moved = KEPT.replace("self.tools", "self.parts.tools").replace(
        "self.parts.tools = ", "self.parts = torch.nn.Module(); self.parts.tools = "
    )
    assert codes(moved.replace("{apply}", apply)) in ([], expected)


SIDE = """\
class Side(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.out = torch.nn.Linear(4, 2)

    def learn(self, hidden, wanted):
        fixed = {cut}
        torch.nn.functional.mse_loss(self.out(fixed), wanted).backward()

class Both:
    def __init__(self, trunk):
        self.trunk, self.side = trunk, Side()
        self.of_trunk = torch.optim.SGD(trunk.parameters(), lr=0.1)
        self.of_side = torch.optim.SGD(self.side.parameters(), lr=0.1)
        self.gs = torch.amp.GradScaler("cuda")

    def fit(self, data):
        for x, y in data:
            self.of_trunk.zero_grad()
            self.of_side.zero_grad()
            hidden = self.trunk(x)
            self.side.learn(hidden, y)
            self.gs.scale(hidden.mean()).backward()
            self.gs.step({first})
            self.gs.update()
            {second}.step()
"""


def test_a_plain_backward_of_a_held_part_is_not_taken_to_reach_the_others() -> None:
    right = {"first": "self.of_trunk", "second": "self.of_side"}
    assert codes(SIDE.format(cut="hidden.detach()", **right)) == []
    assert codes(SIDE.format(cut="hidden", **right)) == []


HIDDEN_OWNER = """
import torch

def tools_for(part):
    return {{"opt": torch.optim.Adam(part.parameters()), "rate": 0.1}}

class Judge(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rate = torch.nn.Linear(4, 1)
        self.opt = tools_for(self)["opt"]

    def practise(self, shown):
        score = self.rate(shown).mean()
        self.opt.zero_grad()
        score.backward()
        self.opt.step()

class Duel:
    def __init__(self, painter):
        self.painter, self.judge = painter, Judge()
        self.opt = torch.optim.Adam(painter.parameters())
        self.gs = torch.amp.GradScaler("cuda")

    def fit(self, scenes):
        for scene in scenes:
            self.opt.zero_grad()
            shown = self.painter(scene)
            {between}
            self.gs.scale(shown.mean()).backward()
            self.gs.step(self.opt)
            self.gs.update()
"""


def test_a_plain_loss_of_an_optimizer_whose_modules_are_hidden_proves_nothing() -> None:
    assert codes(HIDDEN_OWNER.format(between="self.judge.practise(shown.detach())")) == []
    assert "AMP113" in codes(HIDDEN_OWNER.format(between="shown.sum().backward()"))
