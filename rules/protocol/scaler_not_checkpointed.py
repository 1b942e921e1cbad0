"""# scaler-not-checkpointed (AMP120)

A checkpoint holds the state of the optimizer, but not that of the GradScaler that steps it.

## What it does
Flags the place that saves `optimizer.state_dict()` where the file also restores an optimizer, and
nothing saves or restores the scaler.

## Why is this bad?
The loss scale is part of the state of training. A resumed run starts again at 65536: where the
model overflows at that scale, the first steps after every resume are skipped until it is found
again (11 of them in the measured case, none with the state restored), and a scale that had grown
(to 4 million there) loses its headroom for small gradients. Nothing is raised.

## Example
```python
import torch

loader = [(torch.randn(8, 4), 10 * torch.randn(8, 1)) for _ in range(2)]


def train(checkpoint):
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
    if checkpoint:
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}


checkpoint = train({})
for resumed in range(3):
    checkpoint = train(checkpoint)
```

## Use instead
```python
import torch

loader = [(torch.randn(8, 4), 10 * torch.randn(8, 1)) for _ in range(2)]


def train(checkpoint):
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
    if checkpoint:
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        scaler.load_state_dict(checkpoint["scaler"])
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scaler": scaler.state_dict(),
    }


checkpoint = train({})
for resumed in range(3):
    checkpoint = train(checkpoint)
```

## How it is confirmed
Executing the function twice, the second time from the checkpoint: the loss scale is back at its
initial value.

## Fix safety
Unsafe: checkpoints get one more entry. The scaler's state is saved beside the optimizer's where that
is an entry of a literal, and restored behind the optimizer's where a checkpoint has one: old
checkpoints have none, and the empty state that a disabled scaler saves cannot be restored. No fix where
either is done by a helper, or the scaler is not in sight there.

## Known limits
Advice only. The optimizer's state may be saved and restored by helpers in other files. Silent
where an object, a container or an unknown function that could keep states takes the scaler.

## References
- PyTorch, Automatic Mixed Precision recipe: "Saving/Resuming"
- `torch/amp/grad_scaler.py`: `GradScaler.state_dict`, `GradScaler.load_state_dict`
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from amplint.amp.checkpoints import StateUse, parameter_uses, state_uses
from amplint.amp.scalers import BuiltScaler, built_scalers, is_handed_to
from amplint.code.arguments import Kind, parameters
from amplint.code.classes import ancestry_in_file, subclasses_in
from amplint.code.dataflow import arguments, bindings_of, receiver, scopes
from amplint.code.expressions import last_name, path_text
from amplint.code.layout import layout_of
from amplint.code.module import CallSite, Function, enclosing_class
from amplint.findings import Finding, Severity
from amplint.fixing.statements import code_of, statement_of
from amplint.fixing.verbs import Entry, Insert, Repair, unsafe
from amplint.rule import Rule
from amplint.view import FileView

RULE = Rule(
    code="AMP120",
    name="scaler-not-checkpointed",
    severity=Severity.INFO,
    effect="silent",
    summary="optimizer state is saved and restored, the scaler's is not",
    facts=("R04", "R05"),
    fix="unsafe",
    unprobed="it shows only when training is resumed from a checkpoint",
)

MESSAGE = (
    "the checkpoint lacks the state of `{scaler}`: a resumed run searches for the loss scale again"
)
HELP = (
    "save `{scaler}.state_dict()` too, and restore it with `{scaler}.load_state_dict(...)` where "
    "`{optimizer}` is restored on line {row}"
)
#: Functions and classes that may keep, or give back, the state of what they take.
KEEPERS = re.compile(
    r"save|load|checkpoint|ckpt|resum|restor|state|snapshot|regist|prepare|initialize|track"
    r"|dict|vars|setattr|append|update|add|setup",
    re.IGNORECASE,
)
#: Whose state nobody would take for a scaler's.
OTHER_OWNERS = re.compile(
    r"model|net|optim|\bopts?\b|sched|ema|encoder|decoder|critic|actor|module|disc|gen",
    re.IGNORECASE,
)


def check(view: FileView) -> Iterator[Finding]:
    """Report the first checkpoint of each scaler's optimizer that lacks the scaler."""
    if not _mentions_optimizer(view):
        return
    found = built_scalers(view, lambda assigned: bool(assigned.target))
    scalers = [built for built in found if not built.is_off(view)]
    if not scalers or _knows_scaler_states(view):
        return
    restored = next((use for use in _uses(view, "load_state_dict")), None)
    if restored is None:
        return
    for built in {built.target: built for built in reversed(scalers)}.values():
        if _may_be_kept(view, built):
            continue
        for use in _uses(view, "state_dict"):
            if _belong_together(view, built, use):
                yield _finding(view, built, use, restored)
                break


def _finding(view: FileView, built: BuiltScaler, use: StateUse, restored: StateUse) -> Finding:
    words = {"optimizer": view.source_of(use.owner), "scaler": built.target}
    help = HELP.format(row=view.row_of(restored.node), **words)
    path = (
        view.step(built.call, view.module, f"`{built.target}` begins with a new loss scale"),
        view.step(restored.node, view.module, f"a resumed run restores `{words['optimizer']}`"),
    )
    return view.finding(
        RULE,
        use.node,
        MESSAGE.format_map(words),
        help,
        path=(*path, *restored.path, *use.path),
        fix=_kept_too(view, built, use, restored),
    )


def _kept_too(
    view: FileView, built: BuiltScaler, use: StateUse, restored: StateUse
) -> Repair | None:
    """Save the scaler's state beside the optimizer's, and restore it where a checkpoint has one."""
    literal = view.module.scopes.parents[use.node]
    given = restored.node.args[0] if restored.node.args else None
    statement = statement_of(restored.node, restored.function)
    if not isinstance(literal, ast.Dict) or not isinstance(given, ast.Subscript):
        return None
    if not isinstance(given.slice, ast.Constant) or use.path or restored.path or statement is None:
        return None
    places = ((use.function, use.node), (restored.function, restored.node))
    if not all(_is_there(built, function, place) for function, place in places):
        return None
    quote = "'" if code_of(view, given.slice).endswith("'") else '"'
    word = "scaler_state_dict" if str(given.slice.value).endswith("state_dict") else "scaler"
    key = f"{quote}{word}{quote}"
    checkpoint, scaler = code_of(view, given.value), built.target
    code = f"if {checkpoint}.get({key}):\n    {scaler}.load_state_dict({checkpoint}[{key}])"
    entry = Entry(literal, key, f"{scaler}.state_dict()")
    return unsafe(entry, Insert(statement, code, after=True))


def _is_there(built: BuiltScaler, function: Function, place: ast.AST) -> bool:
    """Whether the scaler is built before a place that reads it by the same name."""
    layout = layout_of(built.function)
    if function is built.function and place in layout:
        return layout.dominates(built.call, place)
    return built.target.startswith("self.") and _is_one_object(
        built.target, function, built.function
    )


def _mentions_optimizer(view: FileView) -> bool:
    """Whether a call of the file is an optimizer's method, or takes one."""
    return any(
        view.roles.is_optimizer(item, site.function)
        for site in view.module.calls
        for item in (getattr(site.node.func, "value", site.node.func), *arguments(site.node))
    )


def _uses(view: FileView, method: str) -> Iterator[StateUse]:
    """Where the state of an optimizer is saved or restored, helpers included, in source order."""
    for use in state_uses(view, method):
        if view.roles.is_optimizer(use.owner, use.function):
            yield use


def _belong_together(view: FileView, built: BuiltScaler, use: StateUse) -> bool:
    """Whether the scaler steps the saved optimizer, or goes with it into one call."""
    optimizer = path_text(use.owner)
    if optimizer is None:
        return False
    for site in view.module.calls:
        is_step = site.method == "step" and receiver(site.node) == built.target
        if not is_handed_to(site.node, optimizer):
            continue
        if not is_step and not is_handed_to(site.node, built.target):
            continue
        same_scaler = _is_one_object(built.target, site.function, built.function)
        if same_scaler and _is_one_object(optimizer, site.function, use.function):
            return True
    return _are_one_tuple(use.function, {optimizer, built.target})


def _are_one_tuple(function: Function, paths: set[str]) -> bool:
    """Whether a function puts objects into one tuple, to pass it on as `*arguments`."""
    tuples = [node for node in function.nodes if isinstance(node, ast.Tuple)]
    return any(paths <= {path_text(part) for part in node.elts} for node in tuples)


def _is_one_object(path: str, first: Function, second: Function) -> bool:
    """Whether a name or an attribute of `self` means the same object in two functions."""
    if not path.startswith("self."):
        return first in scopes(second, second.module) or second in scopes(first, first.module)
    owner, other = enclosing_class(first), enclosing_class(second)
    family = [*ancestry_in_file(owner), *subclasses_in(first.module, owner)] if owner else []
    return other in family


def _knows_scaler_states(view: FileView) -> bool:
    """Whether anything in the file may save or restore the state of a scaler."""
    for use in (*state_uses(view, "state_dict"), *state_uses(view, "load_state_dict")):
        text = ast.unparse(use.owner)
        if view.roles.is_scaler(use.owner, use.function) or re.search(r"(?i)scal|amp", text):
            return True
        if _is_any_object(use) and not OTHER_OWNERS.search(text):
            return True
    return any(
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch(r"\w*scaler\w*", node.value, re.IGNORECASE)
        for node in ast.walk(view.module.tree)
    )


def _is_any_object(use: StateUse) -> bool:
    """Whether the owner is looked up, or runs over a collection, or is the whole `self`."""
    name = (path_text(use.owner) or "").partition(".")[0].partition("[")[0]
    if not name:
        return True
    if name == "self":
        return path_text(use.owner) == "self"
    bound = bindings_of(use.function).get(name, [])
    generators = [node for node in use.function.nodes if isinstance(node, ast.comprehension)]
    targets = {last_name(part) for node in generators for part in ast.walk(node.target)}  # type: ignore[arg-type]
    return name in targets or any(isinstance(item.statement, ast.For) for item in bound)


def _may_be_kept(view: FileView, built: BuiltScaler) -> bool:
    """Whether the scaler goes where something may save it."""
    if any(
        is_handed_to(site.node, built.target) and _keeps(view, site, built.target)
        for site in view.module.calls
    ):
        return True
    if _is_in_container(view, built.target):
        return True
    owner = enclosing_class(built.function)
    if owner is None or not built.target.startswith("self."):
        return False
    text = ast.unparse(owner.node)
    if re.search(
        r"\b__dict__|\bvars\(self\)|__getstate__|\b(?:torch\.save|dumps?)\(self[,)]", text
    ):
        return True
    stem = view.module.filename.rpartition("/")[2].removesuffix(".py")
    name = built.target.rpartition(".")[2]
    project = view.project
    return any(
        next(project.mentioning(view.module, owner.name, stem, f"{name}.{method}"), None)
        for method in ("state_dict", "load_state_dict")
    )


def _keeps(view: FileView, site: CallSite, scaler: str) -> bool:
    """Whether a call that takes the scaler may save or restore its state."""
    helper = view.objects.callee(site.node, site.function)
    if helper is None:
        return bool(KEEPERS.search(site.method)) or site.method[:1].isupper()
    if helper.owner is not None and helper.name == "__init__":
        text = ast.unparse(helper.owner.node)
        return "state_dict" in text or "save" in text
    words = {
        **parameter_uses(view, helper, "state_dict"),
        **parameter_uses(view, helper, "load_state_dict"),
    }
    return any("scal" in name.lower() for name in words) or _is_open(helper)


def _is_open(helper: Function) -> bool:
    """Whether a function takes whatever it is given (`**objects`)."""
    return any(item.kind in (Kind.REST, Kind.WORDS) for item in parameters(helper).values())


def _is_in_container(view: FileView, scaler: str) -> bool:
    containers = (ast.Dict, ast.List, ast.Tuple, ast.Set)
    for function in view.module.functions:
        layout = layout_of(function)
        for node in layout.nodes:
            if isinstance(node, containers) and isinstance(
                getattr(node, "ctx", ast.Load()), ast.Load
            ):
                parts = [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]
                returns = isinstance(layout.parents[node], (ast.Return, ast.Assign))
                is_tuple = isinstance(node, ast.Tuple) and returns
                if not is_tuple and any(path_text(part) == scaler for part in parts):
                    return True
    return False
