"""# scheduler-ignores-skipped-step (AMP121)

The learning rate schedule advances although the scaler has skipped the optimizer's step.

## What it does
Flags a `scheduler.step()` that runs for every batch beside `scaler.step(optimizer)` and does not
ask whether the scaler skipped that step.

## Why is this bad?
Where gradients overflow, `scaler.step` leaves the optimizer alone, but the schedule goes on. The
learning rate is then lower than planned for the steps that were really taken (0.006 instead of 0.05
in the measured case: four schedule steps for one optimizer step), and a warm-up is partly spent on
steps that never happened. Usually only a few steps at the start of a training are lost. PyTorch
warns (`lr_scheduler.step()` before `optimizer.step()`) only if the very first step is skipped.

## Example
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
scaler = torch.amp.GradScaler("cpu")
loader = [(torch.randn(8, 4), size * torch.randn(8, 1)) for size in (1.0, 1e36, 1e36, 1e36)]

for inputs, targets in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    scheduler.step()
```

## Use instead
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
scaler = torch.amp.GradScaler("cpu")
loader = [(torch.randn(8, 4), size * torch.randn(8, 1)) for size in (1.0, 1e36, 1e36, 1e36)]

for inputs, targets in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    scaler.scale(loss).backward()
    scale = scaler.get_scale()
    scaler.step(optimizer)
    scaler.update()
    if scaler.get_scale() >= scale:
        scheduler.step()
```

## How it is confirmed
Executing the function with gradients that overflow: the schedule counts more steps than the
optimizer.

## Fix safety
No fix is offered: the test has to go around `scaler.update()`, and a schedule that counts batches
on purpose is no mistake.

## Known limits
Advice only. Silent for schedules stepped once per epoch, for `scheduler.step(position)`, where any
test before the call reads the scale or what `scaler.step` returned, where the optimizer steps in a
narrower window than the schedule, and for schedulers that another library wrapped.

## References
- PyTorch, `torch.optim`: "How to adjust learning rate"
- `torch/amp/grad_scaler.py`: `GradScaler._maybe_opt_step`
- `torch/optim/lr_scheduler.py`: `LRScheduler.step`
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from amplint.amp.roles import Role
from amplint.amp.scaler_calls import scaler_calls
from amplint.amp.scalers import is_off
from amplint.code.dataflow import arguments, bindings_of, names_in, receiver
from amplint.code.expressions import last_name, path_text
from amplint.code.layout import EXITS, Layout, layout_of, loop_header
from amplint.code.module import CallSite, Function
from amplint.findings import Finding, Severity
from amplint.rule import Rule
from amplint.view import FileView

RULE = Rule(
    code="AMP121",
    name="scheduler-ignores-skipped-step",
    severity=Severity.INFO,
    effect="silent",
    summary="a per-batch `lr_scheduler.step()` that also runs when the scaler skipped the step",
    facts=("R01", "R01b", "R02", "O05"),
    unprobed="a skipped step shifts the schedule by one: no single run is wrong",
)

MESSAGE = "`{call}` also runs where the step of line {row} is skipped: the schedule runs ahead"
HELP = (
    "compare `{scaler}.get_scale()` from before `{scaler}.step` with the value after "
    "`{scaler}.update()`, and step the schedule only if it has not shrunk"
)
#: A learning rate schedule by its name alone, and schedules of something else.
SCHEDULER = re.compile(r"sched", re.IGNORECASE)
NOT_OF_RATES = re.compile(
    r"noise|diffus|wd_|weight|decay_|moment|ema|temp|sampl|mask|drop|beta|kl_|task|job|prof|config",
    re.IGNORECASE,
)
#: What a test reads that knows of skipped steps.
SKIP_WORDS = re.compile(
    r"get_scale|found_inf|_scale\b|skip|overflow|_step_count|_opt_called|isfinite|isnan|isinf"
    r"|step_was|did_step|stepped|nan|inf\b",
)


def check(view: FileView) -> Iterator[Finding]:
    """Report schedules that run beside a scaler's step whatever it did."""
    schedules = [site for site in view.module.calls if _is_schedule(view, site)]
    for schedule in schedules:
        step = _step_beside(view, schedule)
        if step is None or _asks(view, schedule):
            continue
        scaler, row = receiver(step.node), view.row_of(step.node)
        call, taken = view.source_of(schedule.node), view.source_of(step.node)
        message = MESSAGE.format(call=call, step=taken, row=row)
        yield view.finding(RULE, schedule.node, message, HELP.format(scaler=scaler))


def _is_schedule(view: FileView, site: CallSite) -> bool:
    """Whether a call is `scheduler.step()` of a learning rate schedule."""
    callee = site.node.func
    if site.method != "step" or not isinstance(callee, ast.Attribute) or arguments(site.node):
        return False
    if site.node not in layout_of(site.function):
        return False
    role = view.roles.role_of(callee.value, site.function)
    if role is not None:
        return role is Role.SCHEDULER
    name = last_name(callee.value)
    return bool(SCHEDULER.search(name)) and not NOT_OF_RATES.search(name)


def _step_beside(view: FileView, schedule: CallSite) -> CallSite | None:
    """The scaler's step that runs as often as the schedule; None if there is none, or several."""
    layout = layout_of(schedule.function)
    steps = [
        site
        for site in scaler_calls(view, "step", within=schedule.function)
        if not layout.exclusive(site.node, schedule.node)
        and _batch_loop(layout, site.node) is _batch_loop(layout, schedule.node)
    ]
    if not steps or not all(_runs_as_often(layout, site.node, schedule.node) for site in steps):
        return None
    return None if _is_foreign(view, schedule) or _is_off(view, steps[0]) else steps[0]


def _batch_loop(layout: Layout, node: ast.AST) -> ast.AST | None:
    """The innermost loop around a call that runs over batches, not over a list of objects."""
    owner = re.compile(r"sched|optim|\bopts?\b", re.IGNORECASE)
    loops = [loop for loop in layout.loops(node) if not owner.search(loop_header(loop))]
    return loops[0] if loops else None


def _runs_as_often(layout: Layout, step: ast.AST, schedule: ast.AST) -> bool:
    """Whether neither call has a counter among its own tests that the other lacks."""
    mine, theirs = layout.conditions(schedule), layout.conditions(step)
    own = [test for test in mine if test not in theirs]
    others = [test for test in theirs if test not in mine]
    return not any(_counts(layout, test) for test in (*own, *others))


def _counts(layout: Layout, test: ast.expr) -> bool:
    """Whether a test depends on how far the loop is: a window, the last batch, a warm-up."""
    nodes = list(ast.walk(test))
    if "len" in names_in(test) or any(isinstance(node, ast.BinOp) for node in nodes):
        return True
    paths = {path_text(node) for node in nodes if isinstance(node, (ast.Name, ast.Attribute))}
    return any(
        layout.holds(loop, binding.statement)
        for loop in layout.loops(test)
        for path, bindings in bindings_of(layout.function).items()
        if path in paths
        for binding in bindings
    )


def _is_foreign(view: FileView, schedule: CallSite) -> bool:
    """Whether a library or the scheduler's own class may count the steps that were taken."""
    callee = schedule.node.func
    assert isinstance(callee, ast.Attribute)
    if any("step_post_hook" in site.method for site in view.module.calls):
        return True
    path = path_text(callee.value) or ""
    statements = [
        binding.statement
        for function in view.module.functions
        for binding in bindings_of(function).get(path, ())
    ]
    if any(re.search(r"prepare\(|\.initialize\(", ast.unparse(node)) for node in statements):
        return True
    own = view.objects.class_of(callee.value, schedule.function)
    return own is not None and bool(SKIP_WORDS.search(ast.unparse(own.node)))


def _is_off(view: FileView, step: CallSite) -> bool:
    """Whether the scaler is surely disabled."""
    return any(
        is_off(view, built.call, built.function)
        for built in view.roles.constructions
        if built.target == receiver(step.node)
    )


def _asks(view: FileView, schedule: CallSite) -> bool:
    """Whether a test on the way to the schedule knows whether the step was skipped."""
    layout = layout_of(schedule.function)
    exits = [
        node.test
        for node in layout.nodes
        if isinstance(node, ast.If)
        and isinstance(node.body[-1], EXITS)
        and layout.before(node, schedule.node)
    ]
    tests = (*layout.conditions(schedule.node), *exits)
    return any(_knows_of_skips(view, schedule.function, test) for test in tests)


def _knows_of_skips(
    view: FileView, function: Function, expression: ast.expr, depth: int = 3
) -> bool:
    if SKIP_WORDS.search(ast.unparse(expression)):
        return True
    calls = [node.func for node in ast.walk(expression) if isinstance(node, ast.Call)]
    methods = [callee for callee in calls if isinstance(callee, ast.Attribute)]
    if any(view.roles.is_scaler(callee.value, function) for callee in methods):
        return True
    return depth > 0 and any(
        _knows_of_skips(view, function, binding.value, depth - 1)
        for name in names_in(expression)
        for binding in bindings_of(function).get(name, ())
        if binding.value is not None
    )
