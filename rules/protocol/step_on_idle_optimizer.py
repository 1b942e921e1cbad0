"""# step-on-idle-optimizer (AMP124)

The scaler steps an optimizer whose parameters never get a gradient.

## What it does
Flags `scaler.step(optimizer)` where the optimizer was built over a model whose parameters are all
frozen, that is never run, or that was replaced by a new one afterwards.

## Why is this bad?
Without a single gradient there is nothing to check for infs:
`AssertionError: No inf checks were recorded for this optimizer.` stops training at the first step.
A plain `optimizer.step()` and a disabled scaler skip such parameters silently: nothing is trained.
(With all parameters of the loss frozen, the backward before it raises already.)

## Example
```python
import torch

backbone, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
for parameter in backbone.parameters():
    parameter.requires_grad = False
optimizer = torch.optim.SGD(backbone.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
loader = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(4)]

for inputs, targets in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(head(backbone(inputs)), targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
```

## Use instead
```python
import torch

backbone, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
for parameter in backbone.parameters():
    parameter.requires_grad = False
optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
loader = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(4)]

for inputs, targets in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(head(backbone(inputs)), targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
```

## How it is confirmed
Executing the function raises the `AssertionError` at the first `scaler.step`.

## Fix safety
No fix is offered: which parameters are meant to be trained cannot be read from the code.

## Known limits
Only local names in one function or script, and only an optimizer over `model.parameters()` as a
whole, which a called function may have built. A helper that freezes is followed if it does nothing else. Silent where anything unfreezes parameters or the model is handed on. The two networks of a
GAN are not followed: a generator's loss also gives the discriminator gradients.
Where the step stands in another function under a test that nothing in sight decides, the finding is
only `info`.

## References
- PyTorch, Automatic Mixed Precision package: `GradScaler.step`
- `torch/amp/grad_scaler.py`: `GradScaler.step`, `GradScaler._unscale_grads_`
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from amplint.amp import links
from amplint.amp.ownership import owned_modules, path_in
from amplint.amp.reached_calls import calls_leading_to
from amplint.amp.roles import Role
from amplint.code.arguments import passed
from amplint.code.dataflow import Binding, bindings_of, constant_of, names_in, parameters
from amplint.code.expressions import last_name, path_text
from amplint.code.layout import SCOPES, Layout, layout_of
from amplint.code.module import Function
from amplint.expectations import breaks
from amplint.findings import Finding, Severity
from amplint.rule import Rule
from amplint.view import FileView

#: So many calls deep a function that builds an optimizer is asked what it trains.
_CALLS = 3

RULE = Rule(
    code="AMP124",
    name="step-on-idle-optimizer",
    severity=Severity.ERROR,
    effect="crash",
    summary="`scaler.step` of an optimizer whose parameters cannot have a gradient",
    facts=("S09", "S10", "S12", "S33"),
    probe=breaks("step-without-gradient"),
)

ERROR = "`AssertionError: No inf checks were recorded…`"
FROZEN = f"all of `{{model}}` is frozen (line {{row}}): the step raises {ERROR}"
UNUSED = f"`{{model}}` is never run: the step of its parameters raises {ERROR}"
REPLACED = f"`{{optimizer}}` holds the `{{model}}` of before line {{row}}: {ERROR}"
HELPS = {
    FROZEN: "build `{optimizer}` over parameters that are trained, or do not freeze `{model}`",
    UNUSED: "build `{optimizer}` over the parameters of the model that computes the loss",
    REPLACED: "build `{optimizer}` after the last assignment of `{model}`",
}
#: Calls are followed through this many functions for what they do to an optimizer.
DEPTH = 3
#: Methods that run no forward and change no parameter's `requires_grad`.
INERT = frozenset(
    ("parameters", "train", "eval", "to", "cuda", "cpu", "state_dict", "load_state_dict")
    + ("zero_grad", "requires_grad_")
)
#: Statements that use parameters without computing a loss from them.
READS_ONLY = re.compile(r"optim|clip_grad|numel|SGD|Adam|requires_grad", re.IGNORECASE)


def check(view: FileView) -> Iterator[Finding]:
    """Report steps of optimizers that cannot have a gradient."""
    reported: set[ast.Call] = set()
    for function in view.module.functions:
        for call in calls_leading_to(view, "step", function):
            built = _built(view, call.node, function, call.given)
            template, words = _diagnose(view, call.node, function, *built) if built else ("", {})
            if built is None or not template or call.node in reported:
                continue
            if any(_changes_groups(view, item) for item in {function, call.function}):
                continue
            reported.add(call.node)
            names = {"optimizer": call.given, **words}
            message, help = template.format(**names), HELPS[template].format(**names)
            owned, made = built
            trained = links.model(view, ast.Name(owned, ast.Load()), function)
            idle = links.proved("effect", made, "holds parameters without gradients")
            rests = (*links.stepped(view, call), *links.runs(call), trained, idle)
            yield view.finding(RULE, call.node, message, help, path=call.path, links=rests)


def _changes_groups(view: FileView, function: Function, depth: int = DEPTH) -> bool:
    """Whether a function, or one that it calls, gives an optimizer more parameters."""
    if any(_adds_group(node) for node in function.nodes):
        return True
    calls = [node for node in layout_of(function).nodes if isinstance(node, ast.Call) and depth]
    targets = {item for call in calls for item in view.objects.targets(call, function).functions}
    return any(_changes_groups(view, item, depth - 1) for item in targets - {function})


def _adds_group(node: ast.AST) -> bool:
    if not isinstance(node, ast.Attribute):
        return False
    fills = node.attr in ("append", "extend") and last_name(node.value) == "param_groups"
    return fills or node.attr == "add_param_group"


def _built(
    view: FileView, step: ast.Call, function: Function, optimizer: str
) -> tuple[str, ast.Call] | None:
    """The model and the only constructor call of an optimizer over `model.parameters()`."""
    if step not in layout_of(function) or optimizer in parameters(function):
        return None
    bindings = bindings_of(function).get(optimizer, [])
    call = bindings[0].value if len(bindings) == 1 else None
    if not isinstance(call, ast.Call) or view.roles.role_of(call, function) is not Role.OPTIMIZER:
        return _built_by(view, function, optimizer) if len(bindings) == 1 else None
    sources = [*call.args, *(item.value for item in call.keywords if item.arg == "params")]
    callee = sources[0].func if sources and isinstance(sources[0], ast.Call) else None
    if not isinstance(callee, ast.Attribute) or callee.attr != "parameters":
        return None
    model = callee.value
    if not isinstance(model, ast.Name) or model.id in parameters(function):
        return None
    return model.id, call


def _built_by(view: FileView, function: Function, optimizer: str) -> tuple[str, ast.Call] | None:
    """The same where a called function has built it: the model here, and the call."""
    owned = list(owned_modules(view, ast.Name(optimizer, ast.Load()), function))
    if len(owned) != 1 or owned[0].selected:
        return None
    call = owned[0].optimizer.activation
    while call is not None and call.caller is not function:
        call = call.outer
    model = path_in(view, owned[0], function)
    if call is None or model is None or not model.isidentifier() or model in parameters(function):
        return None
    return model, call.call


def _diagnose(
    view: FileView, step: ast.Call, function: Function, model: str, built: ast.Call
) -> tuple[str, dict[str, object]]:
    layout = layout_of(function)
    bindings = bindings_of(function).get(model, [])
    if not bindings or layout.conditions(built) or _shared_name(layout, model):
        return "", {}
    freezers = _freezing_calls(view, layout, model)
    place = _frozen(layout, model, freezers)
    known = freezers | ({built} if _leaves_frozen(view, built, function) else set())
    if place is not None and _only_inert(layout, model, may_run=True, besides=known):
        return FROZEN, {"model": model, "row": view.row_of(place)}
    is_own = len(bindings) == 1 and _is_constructed(bindings[0])
    if is_own and _only_inert(layout, model, may_run=False):
        return UNUSED, {"model": model}
    place = _replacement(step, layout, model, built)
    return (
        (REPLACED, {"model": model, "row": view.row_of(place)}) if place is not None else ("", {})
    )


def _leaves_frozen(view: FileView, built: ast.Call, function: Function) -> bool:
    """Whether a function that builds an optimizer says nothing of what is trained."""
    factory = view.objects.callee(built, function)
    return factory is not None and not _says_what_is_trained(view, factory, _CALLS)


def _says_what_is_trained(view: FileView, function: Function, depth: int) -> bool:
    """Whether a function, or one that it calls, mentions `requires_grad`; deeper ones may."""
    if any(
        isinstance(node, ast.Attribute) and "requires_grad" in node.attr for node in function.nodes
    ):
        return True
    calls = (node for node in function.nodes if isinstance(node, ast.Call))
    callees = (view.objects.callee(call, function) for call in calls)
    return any(
        not depth or _says_what_is_trained(view, callee, depth - 1)
        for callee in callees
        if callee is not None
    )


def _shared_name(layout: Layout, model: str) -> bool:
    """Whether nested functions or `global` make the name visible elsewhere."""
    outer = (ast.Global, ast.Nonlocal)
    return any(
        model in (node.names if isinstance(node, outer) else names_in(node))
        for node in layout.nodes
        if isinstance(node, (*outer, *SCOPES))
    )


def _freezing_calls(view: FileView, layout: Layout, model: str) -> frozenset[ast.Call]:
    """Calls of functions of the project that freeze the model they take, and do nothing else."""
    return frozenset(
        node
        for node in layout.nodes
        if isinstance(node, ast.Call)
        and list(map(path_text, passed(node).every())) == [model]
        and _freezes_its_argument(view.objects.callee(node, layout.function))
    )


def _freezes_its_argument(helper: Function | None) -> bool:
    names = list(parameters(helper)) if helper is not None else []
    if helper is None or helper.owner is not None or len(names) != 1:
        return False
    body = [statement for statement in helper.body if not _is_docstring(statement)]
    if len(body) != 1:
        return False
    only = body[0]
    if isinstance(only, ast.For):
        return _is_freezing_loop(only, names[0])
    return ast.unparse(only) == f"{names[0]}.requires_grad_(False)"


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _frozen(layout: Layout, model: str, freezers: frozenset[ast.Call]) -> ast.stmt | None:
    """The statement that freezes all parameters of a model for good."""
    freezing = (node for node in layout.nodes if node in freezers or _freezes(node, model))
    place = next((n for n in freezing if not layout.conditions(n) and not layout.loops(n)), None)
    if place is None:
        return None
    nodes = (node for node in ast.walk(layout.function.node) if node not in freezers)
    return None if any(_unfreezes(node, model) for node in nodes) else layout.statement(place)


def _freezes(node: ast.AST, model: str) -> bool:
    if isinstance(node, ast.For):
        return _is_freezing_loop(node, model)
    if not isinstance(node, ast.Call) or last_name(node.func) != "requires_grad_":
        return False
    return ast.unparse(node) == f"{model}.requires_grad_(False)"


def _is_freezing_loop(loop: ast.For, model: str) -> bool:
    if len(loop.body) != 1 or ast.unparse(loop.iter) != f"{model}.parameters()":
        return False
    each = ast.unparse(loop.target)
    frozen = (f"{each}.requires_grad = False", f"{each}.requires_grad_(False)")
    return ast.unparse(loop.body[0]) in frozen


def _unfreezes(node: ast.AST, model: str) -> bool:
    """Whether a node may make parameters trainable, or give a model new ones."""
    if isinstance(node, ast.Assign):
        attributes = [target for target in node.targets if isinstance(target, ast.Attribute)]
        if any(target.attr == "requires_grad" for target in attributes):
            return constant_of(node.value) is not False
        return any(model in names_in(target) for target in attributes)
    if isinstance(node, ast.Call):
        name = last_name(node.func)
        if name == "requires_grad_":
            return not (node.args and constant_of(node.args[0]) is False)
        return "requires_grad" in name or "freeze" in name or name == "setattr"
    return False


def _only_inert(
    layout: Layout, model: str, *, may_run: bool, besides: frozenset[ast.Call] = frozenset()
) -> bool:
    """Whether the function never hands the model on, nor computes with it unless `may_run`."""
    for node in layout.nodes:
        if not isinstance(node, ast.Name) or node.id != model or isinstance(node.ctx, ast.Store):
            continue
        parent = layout.parents[node]
        if layout.taker(node) in besides:
            continue
        is_run = isinstance(parent, ast.Call) and parent.func is node
        method = parent.attr if isinstance(parent, ast.Attribute) else ""
        if method not in INERT and not (is_run and may_run):
            return False
        reads = method == "parameters" and not may_run
        if reads and not READS_ONLY.search(ast.unparse(layout.statement(node))):
            return False
    return True


def _is_constructed(binding: Binding) -> bool:
    """Whether the value is `Class(...)` or `nn.Class(...).to(device)`."""
    value = binding.value
    while isinstance(value, ast.Call) and last_name(value.func) in ("to", "cuda", "cpu", "train"):
        value = value.func.value if isinstance(value.func, ast.Attribute) else None
    return isinstance(value, ast.Call) and last_name(value.func)[:1].isupper()


def _replacement(step: ast.Call, layout: Layout, model: str, built: ast.Call) -> ast.Assign | None:
    """A later assignment of a new model, without condition, before the step's loop."""
    later = [
        binding
        for binding in bindings_of(layout.function)[model]
        if layout.before(built, binding.statement)
    ]
    if len(later) != 1 or not isinstance(later[0].statement, ast.Assign):
        return None
    statement, value = later[0].statement, later[0].value
    if layout.loops(statement) != layout.loops(built) or layout.conditions(statement):
        return None
    bindings = bindings_of(layout.function)
    models = {name for name, each in bindings.items() if any(map(_is_constructed, each))}
    if not all(map(_is_constructed, bindings[model])) or value is None:
        return None
    wraps = models & names_in(value)
    return None if wraps or not layout.before(statement, step) else statement
