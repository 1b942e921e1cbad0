"""# loss-detached (AMP302)

What `backward()` starts from has been taken out of the graph.

## What it does
Flags `.item()`, `.detach()`, `.data`, `.numpy()`, `float(loss)` and `torch.tensor(loss)` where the
result, and nothing else that has a graph, goes to `scaler.scale(...)`, to `backward()`, also that of
an Accelerator or a Fabric, or to a function that runs a backward on it. Of a loss that only trains a
parameter beside the model, what copies the model's outputs on the way to it.

## Why is this bad?
`scaler.scale(loss.item())` raises `ValueError: outputs must be a Tensor or an iterable of Tensors`;
a detached loss raises `RuntimeError: element 0 of tensors does not require grad and does not have a
grad_fn` in `backward()`. With `requires_grad_()` or `torch.tensor(loss, requires_grad=True)` the
backward passes, but ends at the copy: no parameter gets a gradient, and `scaler.step` raises
`AssertionError: No inf checks were recorded for this optimizer.` Without a scaler, or with a
disabled one, nothing is raised and nothing is learned.

## Example
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=65536.0)

for _ in range(4):
    inputs, targets = torch.randn(8, 4), torch.randn(8, 1)
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    loss = torch.tensor(loss.item(), requires_grad=True)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
```

## Use instead
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=65536.0)

for _ in range(4):
    inputs, targets = torch.randn(8, 4), torch.randn(8, 1)
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
```

## How it is confirmed
Executing the step raises the error, or leaves every parameter without a gradient.

## Fix safety
Unsafe: what was not trained is trained then. A statement that puts a copy of the loss under its own
name is taken away (`loss = torch.tensor(loss.item())`), and a copy that a backward or `scale` starts
from becomes the loss itself. A copy under another name may be meant for the log: there is no fix.

## Known limits
Silent where any part of the loss may have a graph, and where a tensor is detached on purpose to
read its own gradient: then a computation follows between the copy and the backward.

## References
- `torch/amp/grad_scaler.py`: `GradScaler.scale`
- `torch/_tensor.py`: `Tensor.detach`
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.amp.reached_calls import calls_leading_to
from amplint.code.expressions import last_name
from amplint.code.layout import layout_of
from amplint.expectations import NO_GRAPH, caused
from amplint.findings import Finding, PathStep, Severity
from amplint.fixing.statements import code_of
from amplint.fixing.verbs import Remove, Repair, Write, unsafe
from amplint.gradflow.analysis import CutOff
from amplint.gradflow.values import GROWN, LEAF
from amplint.rule import Rule
from amplint.view import FileView

RULE = Rule(
    code="AMP302",
    name="loss-detached",
    severity=Severity.ERROR,
    effect="crash/silent",
    summary="`.item()`, `.detach()`, `.data` or `torch.tensor(loss)` on the way to `backward()`",
    facts=("B01", "B02", "B03", "B04", "B04b", "B05", "B06"),
    fix="unsafe",
    probe=(
        caused("copies", *NO_GRAPH)
        + caused("copies", "ValueError", "outputs must be a Tensor")
        + caused("copies", "AssertionError", "No inf checks were recorded for this optimizer")
    ),
)

CRASH = "{source} has no graph: `RuntimeError: element 0 of tensors does not require grad…`"
NUMBER = "{source} is a number: `ValueError: outputs must be a Tensor…`"
LEAF_COPY = "{source} starts a graph of its own: {step}"
RAISES = "`{scaler}.step` raises `AssertionError: No inf checks…`"
BESIDE = "{source} has no graph: the loss does not reach `{root}`, which never gets a gradient"
CHANGES_NOTHING = "its backward trains nothing"
COPIES = frozenset(("tensor", "as_tensor", "float"))
HELP = "run the backward on the loss itself, and use the copy for logging only"


def check(view: FileView) -> Iterator[Finding]:
    """Report each detaching operation whose result is all that a backward starts from."""
    reported: set[ast.AST] = set()
    for found in view.cut_off:
        node = _place(view, found)
        if node is None or node in reported or found.block.by_mode:
            continue
        if found.root and not _is_left_alone(found):
            continue
        reported.add(node)
        source = f"`{view.source_of(found.block.node)}`"
        words = {"source": source, "step": _step(view, found), "root": found.root}
        message = _template(found).format_map(words)
        path, rests, fix = _path(view, found), found.links, _attached(view, found)
        yield view.finding(RULE, node, message, HELP, path=path, links=rests, fix=fix)


def _place(view: FileView, found: CutOff) -> ast.expr | None:
    """What copies, if it stands in the checked file; else the call there that leads to it."""
    if found.block.function.module is view.module:
        return found.block.node
    calls = (call for call, caller in found.block.calls if caller.module is view.module)
    return next(calls, None)


def _is_left_alone(found: CutOff) -> bool:
    """Whether a loss trains a tensor beside a module, and is given only copies of what that computes.

    `.detach()` says that it is meant.
    """
    return found.block.kind not in ("detach", "data") and found.backward.loss.connected == {GROWN}


def _template(found: CutOff) -> str:
    if found.root:
        return BESIDE
    if LEAF in found.backward.loss.connected:
        return LEAF_COPY
    return NUMBER if found.block.kind in ("item", "float") else CRASH


def _step(view: FileView, found: CutOff) -> str:
    """What the step does without gradients: a scaler's raises."""
    steps = calls_leading_to(view, "step", found.function)
    scaler = next((call.scaler for call in steps), "")
    return RAISES.format(scaler=scaler) if scaler else CHANGES_NOTHING


def _attached(view: FileView, found: CutOff) -> Repair | None:
    """Keep the loss: no copy under its own name, none as the start of the backward."""
    layout = layout_of(found.block.function)
    if found.block.node not in layout:
        return None
    node, parent = found.block.node, layout.parents[found.block.node]
    while isinstance(parent, ast.Call) and node in parent.args and last_name(parent.func) in COPIES:
        node, parent = parent, layout.parents[parent]
    inner = _inner(node)
    if inner is None:
        return None
    if isinstance(parent, ast.Assign) and isinstance(inner, ast.Name):
        is_own = [ast.unparse(target) for target in parent.targets] == [inner.id]
        return unsafe(Remove(parent)) if is_own else None
    is_start = isinstance(parent, ast.Attribute) and parent.attr == "backward"
    scales = isinstance(parent, ast.Call) and last_name(parent.func) == "scale"
    return unsafe(Write(node, code_of(view, inner))) if is_start or scales else None


def _inner(node: ast.expr) -> ast.expr | None:
    """The tensor that an expression copies or reads, through all that does so in a row."""
    if isinstance(node, ast.Attribute) and node.attr == "data":
        return _inner(node.value) or node.value
    if not isinstance(node, ast.Call):
        return None
    if isinstance(node.func, ast.Attribute) and node.func.attr in ("detach", "item"):
        return _inner(node.func.value) or node.func.value
    if last_name(node.func) in COPIES and node.args:
        return _inner(node.args[0]) or node.args[0]
    return None


def _path(view: FileView, found: CutOff) -> tuple[PathStep, ...]:
    block, backward = found.block, found.backward
    return (
        view.step(
            block.node, block.function.module, f"`{view.source_of(block.node)}` leaves the graph"
        ),
        view.step(
            backward.node,
            backward.function.module,
            f"`{view.source_of(backward.node)}` starts from it",
        ),
    )
