"""# except-misses-inf-check (AMP122)

An exception handler around the scaler misses "No inf checks", or swallows it and goes on.

## What it does
Flags `except RuntimeError` and the like whose handler looks for "No inf checks were recorded",
which is an `AssertionError`; and a handler that catches everything around `scaler.step` or
`scaler.unscale_` alone and lets the loop continue.

## Why is this bad?
`scaler.step` raises `AssertionError: No inf checks were recorded for this optimizer.`, and the
missing `_scale` errors are `AssertionError` too; only the double step and double `unscale_` are
`RuntimeError`. So the handler never runs and training stops. Swallowing is worse: the failed step
leaves the optimizer marked as unscaled, the gradients of the next iteration are not unscaled any
more, and its step fails again: in the measured case 4 of 4 iterations failed, and the weights never
moved. `scaler.update()` in the handler raises as well, because no check was recorded.

## Example
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
loader = [(torch.randn(8, 4), torch.randn(8, 1), index % 2 == 1) for index in range(4)]

for inputs, targets, labelled in loader:
    optimizer.zero_grad()
    predicted = model(inputs) if labelled else torch.zeros(8, 1, requires_grad=True)
    scaler.scale(torch.nn.functional.mse_loss(predicted, targets)).backward()
    try:
        scaler.step(optimizer)
        scaler.update()
    except RuntimeError as error:
        if "No inf checks were recorded" not in str(error):
            raise
```

## Use instead
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
loader = [(torch.randn(8, 4), torch.randn(8, 1), index % 2 == 1) for index in range(4)]

for inputs, targets, labelled in loader:
    if not labelled:
        continue
    optimizer.zero_grad()
    scaler.scale(torch.nn.functional.mse_loss(model(inputs), targets)).backward()
    scaler.step(optimizer)
    scaler.update()
```

## How it is confirmed
Executing the function raises the `AssertionError` through the handler; with a handler that swallows
it, the parameters stay where they are for the rest of the run.

## Fix safety
Unsafe: `except RuntimeError` becomes `except (RuntimeError, AssertionError)`, so that the handler
runs where training stopped before. It is offered where the handler speaks of inf checks and of nothing else,
and leaves the loop or updates the scaler; one that only goes on would swallow the error. Better
than any handler is a scaled backward before each step.

## Known limits
A swallowed error is advice: that there is one is for another mistake to show. The step may be in a
function that the `try` calls, in whatever file, up to three calls deep.
A handler around a whole training step (forward and backward included) is only flagged if it names
the missing inf check: it may be meant for batches that cannot be read or do not fit into memory.
Nothing is said where the same round steps or updates behind the handler, outside of any: that call
raises, too, and the run ends.
Without a loop in sight, a function is taken to run again if it holds a whole training step.

## References
- PyTorch, Automatic Mixed Precision package: `GradScaler.step`, `GradScaler.update`
- `torch/amp/grad_scaler.py`: `GradScaler.step`
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from amplint.amp import links
from amplint.amp.reached_calls import ScalerCall, calls_leading_to
from amplint.code.dataflow import arguments
from amplint.code.definitions import is_of_tests
from amplint.code.expressions import last_name, path_text
from amplint.code.layout import LOOPS, Layout, layout_of
from amplint.code.module import Function
from amplint.findings import Finding, Link, Severity, Standing
from amplint.fixing.verbs import Repair, Write, unsafe
from amplint.rule import Rule
from amplint.view import FileView

RULE = Rule(
    code="AMP122",
    name="except-misses-inf-check",
    severity=Severity.ERROR,
    effect="silent",
    summary="a handler that misses `AssertionError: No inf checks`, or swallows it and goes on",
    facts=("S37", "S37b", "S37c", "S37d", "E13"),
    fix="unsafe",
    unprobed="it shows only when another mistake raises inside the `try`",
)

INF_CHECK = re.compile(r"inf[ _]?checks?\b", re.IGNORECASE)
#: Exceptions that also catch an `AssertionError`.
BROAD = frozenset({"Exception", "BaseException", "AssertionError"})
UPDATE_CALLS = frozenset(
    (
        "parameters",
        "step",
        "update",
        "zero_grad",
        "item",
        "print",
        "info",
        "debug",
        "warning",
    )
)
LEAVES = (ast.Raise, ast.Assert, ast.Return, ast.Break)
#: What a handler calls is followed through this many functions.
DEPTH = 3
STOPS = frozenset({"exit", "_exit", "quit", "abort", "fail", "GradScaler", "load_state_dict"})

MISSED = "`{caught}` does not catch `AssertionError: No inf checks were recorded…`: training stops"
SWALLOWED = "behind a swallowed `{scaler}.{method}` every later step fails as well"


def check(view: FileView) -> Iterator[Finding]:
    """Report handlers around scaler calls."""
    seen: set[ast.Try] = set()
    for call, function in _steps_in_try(view):
        block = _protecting(layout_of(function), call.node)
        if block is None or block in seen:
            continue
        seen.add(block)
        for handler in block.handlers:
            yield from _judge(view, call, function, block, handler)


def _steps_in_try(view: FileView) -> Iterator[tuple[ScalerCall, Function]]:
    """Calls that step or unscale, in functions with a handler."""
    for function in view.module.functions:
        if not any(isinstance(node, ast.Try) for node in function.nodes):
            continue
        for method in ("step", "unscale_"):
            for call in calls_leading_to(view, method, function):
                caught = call.path and _protecting(layout_of(call.function), call.method)
                if not caught:
                    yield call, function


def _protecting(layout: Layout, call: ast.Call) -> ast.Try | None:
    """The innermost `try` whose body runs the call directly, without a loop between."""
    inner: ast.AST = call
    for node in layout.ancestors(call):
        if isinstance(node, LOOPS):
            return None
        if isinstance(node, ast.Try) and inner in node.body:
            return node
        inner = node
    return None


def _judge(
    view: FileView,
    call: ScalerCall,
    function: Function,
    block: ast.Try,
    handler: ast.ExceptHandler,
) -> Iterator[Finding]:
    caught = _caught(handler)
    if not caught & BROAD:
        if handler.type is not None and _mentions_inf_check(handler):
            message = MISSED.format(caught=view.source_of(handler.type))
            help = "skip the step when there is no gradient instead of catching the error"
            fix = _catch_it(handler)
            rests = (*links.stepped(view, call), links.proved("value", handler.type, "is caught"))
            yield view.finding(
                RULE, handler.type, message, help, path=call.path, fix=fix, links=rests
            )
        return
    if (
        _goes_on(view, function, handler, call.scaler)
        and _only_steps(view, function, block, caught)
        and not _fails_behind(view, call, function, block)
    ):
        message = SWALLOWED.format(scaler=call.scaler, method=last_name(call.method.func))
        help = "let the error through, and make sure that a scaled backward ran before the step"
        reach = Link("reach", _repetition(view, function, handler), function.name, "goes on")
        # Nothing in sight makes it raise: of three patterns of the blind batches none did.
        raised = Link("effect", Standing.GUESS, ast.unparse(call.method), "raises")
        rests = (*links.stepped(view, call), reach, raised)
        yield view.finding(
            RULE, handler.type or handler, message, help, path=call.path, links=rests
        )


def _catch_it(handler: ast.ExceptHandler) -> Repair | None:
    """Catch what torch raises, in a handler that tests for nothing else."""
    tests = sum(isinstance(node, (ast.If, ast.IfExp, ast.match_case)) for node in ast.walk(handler))
    if not isinstance(handler.type, ast.Name) or tests > 1:
        return None
    return unsafe(Write(handler.type, "({}, AssertionError)"))


def _caught(handler: ast.ExceptHandler) -> set[str]:
    if handler.type is None:
        return {"BaseException"}
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return {last_name(item) for item in types}


def _mentions_inf_check(handler: ast.ExceptHandler) -> bool:
    return any(
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and INF_CHECK.search(node.value)
        for statement in handler.body
        for node in ast.walk(statement)
    )


def _goes_on(view: FileView, function: Function, handler: ast.ExceptHandler, scaler: str) -> bool:
    """Whether the handler lets the training loop continue with the same scaler state."""
    if is_of_tests(function):
        return False
    layout = layout_of(function)
    nodes = layout.inside(handler)
    if any(isinstance(node, LEAVES) for node in nodes):
        return False
    if _repetition(view, function, handler) is Standing.GUESS:
        return False
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    return not any(_may_mend(view, call, function, scaler) for call in calls)


def _fails_behind(view: FileView, call: ScalerCall, function: Function, block: ast.Try) -> bool:
    """Whether the same round steps or updates once more, outside of any handler for that.

    torch raises there what the handler has swallowed: the run ends, and says why.
    """
    layout = layout_of(function)
    for method in ("step", "update"):
        for later in calls_leading_to(view, method, function):
            together = layout.conditions(later.node) == layout.conditions(block)
            if later.scaler != call.scaler or not layout.before(block, later.node) or not together:
                continue
            around = _protecting(layout, later.node)
            caught = [_caught(handler) & BROAD for handler in around.handlers] if around else []
            if layout.loops(later.node) == layout.loops(block) and not any(caught):
                return True
    return False


def _repetition(view: FileView, function: Function, handler: ast.ExceptHandler) -> Standing:
    """How it is known that what follows the handler is run again: by a loop, or by use.

    Nobody trains with one step: what scales and steps once is called for each batch.
    """
    if layout_of(function).loops(handler):
        return Standing.CODE
    callers = [site for site in view.objects.calls_of(function)]
    inside = [site for site in callers if site.node in layout_of(site.function)]
    if any(layout_of(site.function).loops(site.node) for site in inside):
        return Standing.CODE
    scales = next(calls_leading_to(view, "scale", function), None)
    return Standing.USE if scales is not None and not callers else Standing.GUESS


def _may_mend(
    view: FileView, call: ast.Call, function: Function, scaler: str, depth: int = DEPTH
) -> bool:
    """Whether a call stops the run or renews the scaler, or may: nobody knows what it runs.

    Args:
        scaler: as `function` writes it; "" in functions that it calls.
    """
    if last_name(call.func) in STOPS:
        return True
    if isinstance(call.func, ast.Attribute) and call.func.attr == "update":
        return view.roles_of(function.module).is_scaler(call.func.value, function)
    found = view.objects.targets(call, function)
    if not found.functions:
        return _is_given(scaler, call)
    return bool(depth) and any(
        _may_mend(view, inner, target, "", depth - 1)
        for target in found.functions
        for inner in layout_of(target).nodes
        if isinstance(inner, ast.Call)
    )


def _is_given(scaler: str, call: ast.Call) -> bool:
    """Whether a call gets the scaler, or the object that keeps it."""
    keepers = {scaler, scaler.rpartition(".")[0]} - {""}
    return any(path_text(argument) in keepers for argument in arguments(call))


def _only_steps(view: FileView, function: Function, block: ast.Try, caught: set[str]) -> bool:
    """Whether nothing but the optimizer's update can fail in the body."""
    if caught == {"AssertionError"}:
        return True
    layout = layout_of(function)
    return all(
        _belongs_to_update(view, function, node)
        for statement in block.body
        for node in layout.inside(statement)
        if isinstance(node, ast.Call)
    )


def _belongs_to_update(view: FileView, function: Function, call: ast.Call, depth: int = 3) -> bool:
    name = last_name(call.func)
    if name in UPDATE_CALLS or "clip" in name:
        return True
    roles = view.roles_of(function.module)
    if name == "backward":
        return False
    if isinstance(call.func, ast.Attribute):
        owner = call.func.value
        if roles.is_scaler(owner, function) or roles.is_optimizer(owner, function):
            return True
    leads_there = any(view.may_reach(word, call, function) for word in ("step", "unscale"))
    callee = view.objects.callee(call, function) if depth and leads_there else None
    if callee is None or callee.name == "__init__":
        return False
    nodes = layout_of(callee).nodes
    if any(isinstance(node, (ast.Raise, ast.Assert)) for node in nodes):
        return False
    inner = (node for node in nodes if isinstance(node, ast.Call))
    return all(_belongs_to_update(view, callee, node, depth - 1) for node in inner)
