"""# scaled-loss-reused (AMP115)

A loss that is already multiplied by the loss scale is used as if it were the loss.

## What it does
Flags a scaled loss that is logged, turned into a number with `.item()`, added to a running total,
returned after its backward, or scaled a second time, also by a function that it is passed to; and
one that is divided by the scale as `update()` has left it, which may be another.

## Why is this bad?
`scaler.scale(loss)` is 65536 times the loss at first, and another multiple after each change of
the scale. A logged value is wrong by that factor, and its jumps are those of the scale; early
stopping, schedulers and `is the loss finite` tests then look at the wrong number. Scaling twice
leaves the gradients 65536 times too large after the scaler has divided them once. Nothing is
raised, and with a disabled scaler everything is right.

## Example
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
loader = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(4)]

running_loss = 0.0
for inputs, targets in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    loss = scaler.scale(loss)
    loss.backward()
    scaler.step(optimizer)
    scaler.update()
    running_loss += loss.item()
```

## Use instead
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
loader = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(4)]

running_loss = 0.0
for inputs, targets in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    running_loss += loss.item()
```

## How it is confirmed
Executing the function with the scaler enabled and disabled gives values that differ by the loss
scale: `running_loss` is 65536 times larger in the example.

## Fix safety
Unsafe: what is logged or added up becomes smaller. Where `loss = scaler.scale(loss)` gives the loss its
own name again, the loss is scaled where its only backward starts instead, so that all later lines see
it as it is. Another name may be meant for the scaled loss: there is no fix.

## Known limits
Silent in a function that calls `get_scale()` before it leads to `update()`, where the statement
speaks of a "scaled" value, and for a helper that returns `scaler.scale(loss)` without calling
backward on it: its callers are judged. A function that a scaled loss is passed to is looked into,
in whatever file, if it reads that parameter once. One finding for each scaled loss: the first
wrong use.

## References
- PyTorch, Automatic Mixed Precision package: `GradScaler.scale`
- PyTorch, Automatic Mixed Precision examples: "Typical Mixed Precision Training"
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.amp import links
from amplint.amp.gradients import FINITENESS, words_of
from amplint.amp.reached_calls import calls_leading_to
from amplint.amp.roles import Role
from amplint.amp.scaled_losses import Scaling, scalings
from amplint.amp.scaler_calls import SHOWS, scaler_calls
from amplint.amp.scaling import scale_words
from amplint.code.dataflow import bindings_of, names_in, parameters, receiver
from amplint.code.definitions import returned
from amplint.code.expressions import last_name, path_text
from amplint.code.layout import Layout, layout_of
from amplint.code.module import CallSite, Function
from amplint.findings import Finding, PathStep, Severity
from amplint.fixing.verbs import Remove, Repair, Write, unsafe
from amplint.rule import Rule
from amplint.view import FileView

RULE = Rule(
    code="AMP115",
    name="scaled-loss-reused",
    severity=Severity.WARNING,
    effect="silent",
    summary="a scaled loss logged, returned, accumulated or scaled again",
    facts=("B21", "B24"),
    fix="unsafe",
    unprobed="only the logged or returned number is wrong, not the training",
)

#: What turns a loss into a number.
READERS = frozenset(("item", "tolist", "numpy", "detach", "cpu", "data"))
#: Callables that collect a value; a loss that is not backpropagated itself may be collected
#: for a common backward.
COLLECTORS = frozenset({"append", "update", "add", "AugAssign", "Return"})
WRAPPERS = (
    ast.Tuple, ast.List, ast.Dict, ast.keyword, ast.FormattedValue, ast.JoinedStr, ast.BinOp,
    ast.IfExp, ast.Starred,
)  # fmt: skip

WRONG_VALUE = "`{loss}` is still scaled: the value used here is too large ({scale})"
OTHER_SCALE = (
    "`{loss}` was scaled before `update()` and is divided by the scale behind it, which differs"
)
TWICE = "the loss is scaled twice, `{scaler}.step` divides once: too large ({scale})"


def check(view: FileView) -> Iterator[Finding]:
    """Report the first wrong use of each scaled loss."""
    for scaling in scalings(view):
        if not scaling.trains:
            continue
        layout = layout_of(scaling.function)
        found = _direct(view, layout, scaling) or _named(view, layout, scaling)
        if found is not None:
            yield found
    yield from _returned_scaled(view)


def _returned_scaled(view: FileView) -> Iterator[Finding]:
    """`scaler.scale(objective(...))` where every value that the function returns is scaled."""
    for site in scaler_calls(view, "scale"):
        given = site.node.args[0] if len(site.node.args) == 1 else None
        if isinstance(given, ast.Name):
            bound = bindings_of(site.function).get(given.id, ())
            given = bound[0].value if len(bound) == 1 else None
        helper = view.objects.callee(given, site.function) if isinstance(given, ast.Call) else None
        values = returned(helper) if helper is not None and helper is not site.function else []
        if helper is None or not values:
            continue
        if all(isinstance(value, ast.Call) and _scales(view, helper, value) for value in values):
            yield _scaled_again(view, site, helper, values[0])


def _scaled_again(view: FileView, site: CallSite, helper: Function, inner: ast.expr) -> Finding:
    scaler = receiver(site.node)
    scale = scale_words(view, scaler, site.function)
    step = view.step(inner, helper.module, f"`{helper.name}` returns the loss scaled")
    rests = (
        links.scaler_named(view, scaler, site.function),
        links.proved("effect", site.node, "multiplies by the loss scale again"),
    )
    message = TWICE.format(scaler=scaler, scale=scale)
    help = f"call `{scaler}.scale` once, directly before backward"
    return view.finding(RULE, site.node, message, help, path=(step,), links=rests)


def _direct(view: FileView, layout: Layout, scaling: Scaling) -> Finding | None:
    """A wrong use of the call itself."""
    parent, taker = layout.parents[scaling.node], layout.taker(scaling.node)
    if taker is not None:
        return _handed_on(view, layout, scaling, scaling.node, taker)
    if isinstance(parent, ast.Attribute) and parent.attr in READERS:
        return None if _divides(view, layout, scaling) else _wrong(view, scaling, parent, "")
    return None


def _named(view: FileView, layout: Layout, scaling: Scaling) -> Finding | None:
    """The first wrong use of the name that holds the scaled loss."""
    statement = layout.statement(scaling.node)
    if isinstance(statement, ast.AnnAssign):
        target: ast.expr = statement.target
    elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
    else:
        return None
    if not isinstance(target, ast.Name) or not _is_value(layout, scaling.node, statement):
        return None
    for read in _reads(layout, statement, target.id):
        taker = layout.taker(read)
        found = _handed_on(view, layout, scaling, read, taker) if taker is not None else None
        if found is not None:
            return found
        if _is_wrong(view, layout, scaling, statement, read):
            return _wrong(view, scaling, read, target.id)
    return None


def _handed_on(
    view: FileView, layout: Layout, scaling: Scaling, given: ast.expr, call: ast.Call
) -> Finding | None:
    """A scaled loss given to `scale`, or to a function that scales or writes down its loss."""
    if _scales(view, scaling.function, call):
        return _twice(view, scaling, call)
    helper = view.objects.callee(call, scaling.function)
    bound = view.objects.bind(call, scaling.function, helper).given if helper is not None else {}
    name = next((word for word, value in bound.items() if value is given), "")
    read = _only_read(helper, name) if helper is not None and name else None
    if helper is None or read is None:
        return None
    inner = layout_of(helper)
    taker = inner.taker(read)
    if taker is not None and _scales(view, helper, taker):
        step = view.step(taker, helper.module, f"`{helper.name}` scales what it is given")
        return _twice(view, scaling, call, (step,))
    divides = _divides(view, layout, scaling)
    if _use(inner, read) in READERS | SHOWS and not divides and not _minds(inner, read):
        step = view.step(read, helper.module, f"`{helper.name}` takes the value")
        return _wrong(view, scaling, given, ast.unparse(given), (step,))
    return None


def _only_read(helper: Function, name: str) -> ast.Name | None:
    """The only place where a function reads a parameter."""
    if helper.name == "__init__" or name in bindings_of(helper):
        return None
    nodes = layout_of(helper).nodes
    reads = [node for node in nodes if isinstance(node, ast.Name) and node.id == name]
    return reads[0] if len(reads) == 1 else None


def _minds(layout: Layout, read: ast.AST) -> bool:
    """Whether a function knows of the scale, or asks only whether the value is finite."""
    statement = layout.statement(read)
    tests = words_of(layout.inside(statement)) & FINITENESS
    return bool(tests) or bool(_scale_reads(layout)) or _speaks_of_it(layout, read)


def _is_value(layout: Layout, call: ast.Call, statement: ast.Assign | ast.AnnAssign) -> bool:
    """Whether the call is the assigned value, alone or as one side of `… if … else …`."""
    parent = layout.parents[call]
    return statement.value is call or (
        isinstance(parent, ast.IfExp) and statement.value is parent and call is not parent.test
    )


def _reads(layout: Layout, statement: ast.Assign | ast.AnnAssign, name: str) -> Iterator[ast.Name]:
    """The reads that the scaled value reaches on straight-line code."""
    for node in layout.nodes:
        if not isinstance(node, ast.Name) or node.id != name or not layout.before(statement, node):
            continue
        if not isinstance(node.ctx, ast.Load):
            if not isinstance(layout.statement(node), ast.AugAssign):
                return
            continue
        if layout.reaches(statement, node):
            yield node


def _scales(view: FileView, function: Function, call: ast.Call) -> bool:
    roles = view.roles_of(function.module)
    return (
        isinstance(call.func, ast.Attribute)
        and call.func.attr == "scale"
        and roles is not None
        and roles.is_scaler(call.func.value, function)
    )


def _is_wrong(
    view: FileView,
    layout: Layout,
    scaling: Scaling,
    statement: ast.Assign | ast.AnnAssign,
    read: ast.Name,
) -> bool:
    use = _use(layout, read)
    if use in COLLECTORS:
        wrong = _backward_before(layout, statement, read, read.id)
    else:
        wrong = use in READERS or use in SHOWS or use == "float"
    if not wrong or _speaks_of_it(layout, read) or _is_beside(layout, scaling, read):
        return False
    return not _divides(view, layout, scaling)


def _is_beside(layout: Layout, scaling: Scaling, read: ast.Name) -> bool:
    """Whether a statement takes the scaled loss and the plain one: it is about the difference."""
    plain = path_text(scaling.loss)
    return plain not in (None, read.id) and any(
        isinstance(node, (ast.Name, ast.Attribute)) and path_text(node) == plain
        for node in layout.inside(layout.statement(read))
    )


def _use(layout: Layout, read: ast.AST) -> str:
    """The method, function or statement that takes the value; "" if it is something else."""
    node, parent = read, layout.parents[read]
    if isinstance(parent, ast.Attribute):
        return parent.attr if parent.attr in READERS else ""
    while isinstance(parent, WRAPPERS):
        node, parent = parent, layout.parents[parent]
    if isinstance(parent, ast.Call) and node is not parent.func:
        is_math = names_in(parent.func) & {"torch", "math", "np", "numpy"}
        return "" if is_math else last_name(parent.func)
    if isinstance(parent, (ast.AugAssign, ast.Return)):
        return type(parent).__name__
    return ""


def _backward_before(layout: Layout, statement: ast.stmt, read: ast.AST, name: str) -> bool:
    return any(
        isinstance(node, ast.Attribute)
        and node.attr == "backward"
        and isinstance(node.value, ast.Name)
        and node.value.id == name
        and layout.reaches(node, read)
        for node in layout.between(statement, read)
    )


def _speaks_of_it(layout: Layout, read: ast.AST) -> bool:
    return "scaled" in _words(layout.statement(read))


def _words(statement: ast.stmt) -> str:
    texts = [node.value for node in ast.walk(statement) if isinstance(node, ast.Constant)]
    targets = getattr(statement, "targets", [getattr(statement, "target", ast.Name(""))])
    return " ".join([*(str(text) for text in texts), *map(last_name, targets)]).lower()


def _divides(view: FileView, layout: Layout, scaling: Scaling) -> bool:
    """Whether the function reads the scale that it has multiplied the loss by.

    A read behind an `update()` gives the next one.
    """
    reads = _scale_reads(layout)
    updates = _updates_after(view, layout, scaling) if reads else []
    if any(_is_scale_given(view, name, scaling.function) for name in parameters(scaling.function)):
        return True
    return any(not any(layout.reaches(update, read) for update in updates) for read in reads)


def _is_scale_given(view: FileView, name: str, function: Function) -> bool:
    """Whether callers pass the scale for a parameter: they have read it before the round."""
    given = view.objects.arguments(function, name).given
    found = (
        view.values.origins.of(value, site.function)
        for value, site in given
        if isinstance(value, ast.Name)
    )
    made = [item.expression for each in found for item in each.origins]
    return any(isinstance(item, ast.Call) and last_name(item.func) == "get_scale" for item in made)


def _scale_reads(layout: Layout) -> list[ast.AST]:
    return [
        node
        for node in layout.nodes
        if isinstance(node, ast.Attribute) and node.attr == "get_scale"
    ]


def _updates_after(view: FileView, layout: Layout, scaling: Scaling) -> list[ast.Call]:
    """Calls behind a scaling that update its scaler, or lead there."""
    calls = calls_leading_to(view, "update", scaling.function)
    return [
        call.node
        for call in calls
        if call.scaler == scaling.scaler and layout.reaches(scaling.node, call.node)
    ]


def _twice(
    view: FileView, scaling: Scaling, outer: ast.AST, path: tuple[PathStep, ...] = ()
) -> Finding:
    help = f"call `{scaling.scaler}.scale` once, directly before backward"
    scale = scale_words(view, scaling.scaler, scaling.function)
    message = TWICE.format(scaler=scaling.scaler, scale=scale)
    rests = (
        links.participant(view, *scaling.read, Role.SCALER, scaling.scaler),
        links.proved("effect", outer, "multiplies by the loss scale again"),
    )
    return view.finding(RULE, outer, message, help, path=scaling.path + path, links=rests)


def _wrong(
    view: FileView,
    scaling: Scaling,
    node: ast.AST,
    name: str,
    path: tuple[PathStep, ...] = (),
) -> Finding:
    loss = view.source_of(scaling.loss)
    help = f"call backward on `{view.source_of(scaling.node)}` and use the unscaled `{loss}` here"
    scale = scale_words(view, scaling.scaler, scaling.function)
    layout = layout_of(scaling.function)
    wrong = OTHER_SCALE if _scale_reads(layout) and _is_divided(layout, node) else WRONG_VALUE
    message = wrong.format(loss=name or view.source_of(scaling.node), scale=scale)
    rests = (
        links.participant(view, *scaling.read, Role.SCALER, scaling.scaler),
        links.proved("effect", scaling.node, "is what is used here"),
    )
    fix = _apart(scaling, name) if name else None
    path = scaling.path + path
    return view.finding(RULE, node, message, help, path=path, links=rests, fix=fix)


def _apart(scaling: Scaling, name: str) -> Repair | None:
    """Scale where the backward starts, so that the name keeps the loss as it is."""
    layout = layout_of(scaling.function)
    statement, loss = layout.statement(scaling.node), scaling.loss
    if not isinstance(statement, ast.Assign) or statement.value is not scaling.node:
        return None
    if not isinstance(loss, ast.Name) or loss.id != name or not scaling.is_direct:
        return None
    reads = list(_reads(layout, statement, name))
    starts = [read for read in reads if getattr(layout.parents[read], "attr", "") == "backward"]
    if len(starts) != 1 or layout.conditions(starts[0]) != layout.conditions(statement):
        return None
    return unsafe(Remove(statement), Write(starts[0], f"{scaling.scaler}.scale({{}})"))


def _is_divided(layout: Layout, node: ast.AST) -> bool:
    """Whether a value is divided by something before its statement ends."""
    return any(
        isinstance(outer, ast.BinOp) and isinstance(outer.op, ast.Div)
        for outer in layout.ancestors(node)
    )
