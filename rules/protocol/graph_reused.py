"""# graph-reused (AMP123)

A backward runs through a graph that an earlier backward has already freed.

## What it does
Flags a second backward of the same loss, also under another name or in a sum, a backward inside a
loop of a loss computed before the loop, and the backwards of two losses computed from one forward
pass, where the first backward does not keep the graph.

## Why is this bad?
A backward frees what the forward pass stored. The second one through the same part of the graph
stops training with `RuntimeError: Trying to backward through the graph a second time (or directly
access saved tensors after they have already been freed). Saved intermediate values of the graph are
freed when you call .backward() or autograd.grad(). Specify retain_graph=True if you need to
backward through the graph a second time or if you need to access saved tensors after calling
backward.` With `retain_graph=True` on a plain and a
scaled backward of the same loss the error goes away, and the gradients are a mixture of scaled and
unscaled ones.

## Example
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
loader = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(4)]

for inputs, targets in loader:
    optimizer.zero_grad()
    outputs = model(inputs)
    loss = torch.nn.functional.mse_loss(outputs, targets)
    auxiliary = torch.nn.functional.l1_loss(outputs, targets)
    scaler.scale(loss).backward()
    scaler.scale(auxiliary).backward()
    scaler.step(optimizer)
    scaler.update()
```

## Use instead
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
loader = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(4)]

for inputs, targets in loader:
    optimizer.zero_grad()
    outputs = model(inputs)
    loss = torch.nn.functional.mse_loss(outputs, targets)
    auxiliary = torch.nn.functional.l1_loss(outputs, targets)
    scaler.scale(loss + auxiliary).backward()
    scaler.step(optimizer)
    scaler.update()
```

## How it is confirmed
Executing the function raises the `RuntimeError` at the second backward.

## Fix safety
No fix is offered: adding the losses, keeping the graph and detaching one of them are three
different trainings.

## Known limits
Straight-line code: a backward that some condition excludes is not counted. Two losses of one
function are only compared when both are computed from the very same output of a model whose
parameters the file gives to an optimizer, and nothing detaches it. A backward in a called method
is compared if both losses certainly depend on one call of a `torch.nn` layer; nothing is said
about files of a training that store a `requires_grad` somewhere. A loop is followed for two rounds
where nothing in it ends it early, and a call is given what it has returned the round before, or the
loop takes one element after the other; that there are several is taken for granted unless the
container is written out.

## References
- PyTorch, `torch.Tensor.backward`: `retain_graph`
- PyTorch, Automatic Mixed Precision examples: "Working with Multiple Models, Losses, and
  Optimizers"
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

from amplint.amp import links
from amplint.amp.connected import connected_files
from amplint.amp.graphs import Call, Graphs, Node, Trace
from amplint.amp.losses import Backward, backwards_of
from amplint.amp.scaler_calls import scaler_calls
from amplint.code.dataflow import Binding, arguments, bindings_of, names_in
from amplint.code.expressions import last_name, path_text
from amplint.code.layout import EXITS, Layout, layout_of
from amplint.code.module import Function, Module
from amplint.expectations import raises
from amplint.findings import Finding, Link, PathStep, Severity
from amplint.flow.facts import BACKWARD
from amplint.gradflow.outputs import outputs_of
from amplint.rule import Rule
from amplint.view import FileView

RULE = Rule(
    code="AMP123",
    name="graph-reused",
    severity=Severity.ERROR,
    effect="crash",
    summary="a second backward through a graph that the first one has freed",
    facts=("B13", "B13b", "B14"),
    probe=raises(
        "RuntimeError",
        "Trying to backward through the graph a second time",
        without="freed-graphs",
        everywhere=True,
    ),
)

ERROR = "`RuntimeError: Trying to backward through the graph…`"
AGAIN = f"`{{loss}}` is backpropagated again after line {{row}}: {ERROR}"
IN_LOOP = f"`{{loss}}` is computed before the loop on line {{row}}: {ERROR}"
SHARED = f"`{{loss}}` shares `{{output}}` with the loss of line {{row}}: {ERROR}"
NEXT_ROUND = f"`{{call}}` goes through the graph that its round before has freed: {ERROR}"
TOGETHER = "run one backward on the sum, or keep the graph in all rounds but the last"
CARRIED = "detach what one round hands to the next"
ACROSS = f"`{{call}}` goes through the graph that line {{row}} has freed: {ERROR}"

#: Expressions that make a container of values.
CONTAINERS = (ast.ListComp, ast.GeneratorExp, ast.DictComp, ast.Dict, ast.Tuple)
#: Loops that often run once: a list with one optimizer or one model in it.
ONE_PASS = re.compile(r"^range\(1\)$|opt|model|net|device|scaler", re.IGNORECASE)


def check(view: FileView) -> Iterator[Finding]:
    """Report backwards through freed graphs in functions that scale a loss."""
    reported: set[ast.Call] = set()
    for function in dict.fromkeys(site.function for site in scaler_calls(view, "scale")):
        backwards = list(backwards_of(view, function))
        for finding, call in (
            *_again(view, function, backwards),
            *_shared(view, function, backwards),
        ):
            if call not in reported:
                reported.add(call)
                yield finding
    for finding, call in _across_calls(view) if view.is_written else ():
        if call not in reported:
            reported.add(call)
            yield finding


def _again(
    view: FileView, function: Function, backwards: list[Backward]
) -> Iterator[tuple[Finding, ast.Call]]:
    layout = layout_of(function)
    by_loss: dict[str, list[Backward]] = {}
    for backward in backwards:
        by_loss.setdefault(backward.loss, []).append(backward)
    parts = _parts(layout, by_loss.keys())
    for first in backwards:
        if first.keeps:
            continue
        seconds = (
            *_of_the_same(layout, first, by_loss[first.loss]),
            *_of_a_sum(layout, first, parts.get(first.loss, ()), by_loss),
        )
        for second in seconds:
            message = AGAIN.format(loss=first.loss, row=view.row_of(first.call))
            help = "delete one of the two, or compute the loss again before the second"
            rests = _links(view, function, first.call, second.call)
            yield view.finding(RULE, second.call, message, help, links=rests), second.call
        loop = _loop_over_one_loss(layout, first)
        if loop is not None:
            message = IN_LOOP.format(loss=first.loss, row=view.row_of(loop))
            help = f"compute `{first.loss}` inside the loop, or move its backward out of it"
            rests = _links(view, function, first.call, first.call)
            yield view.finding(RULE, first.call, message, help, links=rests), first.call


def _links(view: FileView, function: Function, first: ast.Call, second: ast.Call) -> Iterator[Link]:
    """What is backpropagated, and that both backwards go through one graph."""
    for call in (first, second):
        loss = call.func.value if isinstance(call.func, ast.Attribute) else call
        yield links.proved("object", loss, "is backpropagated")
    yield links.proved("identity", second, f"shares the graph of line {view.row_of(first)}")


def _of_the_same(layout: Layout, first: Backward, same: list[Backward]) -> Iterator[Backward]:
    """Later backwards of a loss that has no other value by then."""
    if not bindings_of(layout.function).get(first.loss):
        return
    for second in same[same.index(first) + 1 :]:
        if _is_bound_between(layout, first.loss, first.call, second.call):
            return
        if _both_run(layout, first.call, second.call):
            yield second


def _of_a_sum(
    layout: Layout,
    first: Backward,
    parts: Sequence[tuple[str, Binding]],
    by_loss: Mapping[str, list[Backward]],
) -> Iterator[Backward]:
    """Later backwards of another name of a loss, or of a sum with it.

    Args:
        parts: names and bindings that a loss goes into.
    """
    for name, binding in parts:
        taken = binding.statement
        for second in by_loss[name]:
            is_first = layout.before(taken, first.call)
            early, late = (taken, first.call) if is_first else (first.call, taken)
            ways = ((early, late), (first.call, second.call), (taken, second.call))
            if not all(_both_run(layout, *way) for way in ways):
                continue
            if _is_bound_between(layout, first.loss, early, late):
                continue
            if not _is_bound_between(layout, name, taken, second.call):
                yield second


def _parts(layout: Layout, losses: AbstractSet[str]) -> dict[str, list[tuple[str, Binding]]]:
    """Which losses are names of other losses, or sums with them: `total = first + second`."""
    found: dict[str, list[tuple[str, Binding]]] = {}
    bindings = bindings_of(layout.function)
    for name in losses if len(losses) > 1 else ():
        for binding in bindings.get(name, ()):
            for part in _summands(binding.source):
                if part in losses and part != name:
                    found.setdefault(part, []).append((name, binding))
    return found


def _summands(value: ast.expr | None) -> Iterator[str]:
    """The names that arithmetic puts together."""
    if isinstance(value, ast.BinOp):
        yield from _summands(value.left)
        yield from _summands(value.right)
    elif isinstance(value, (ast.Name, ast.Attribute)):
        yield path_text(value) or ""


def _is_bound_between(layout: Layout, name: str, first: ast.AST, second: ast.AST) -> bool:
    """Whether a name gets another value on the way."""
    return any(
        layout.reaches(first, binding.statement) and layout.reaches(binding.statement, second)
        for binding in bindings_of(layout.function).get(name, [])
    )


def _both_run(layout: Layout, first: ast.AST, second: ast.AST) -> bool:
    """Whether one path runs both; two conditions of their own may exclude each other."""
    ours, theirs = (set(layout.conditions(node)) for node in (first, second))
    return not (ours - theirs and theirs - ours) and layout.reaches(first, second)


def _loop_over_one_loss(layout: Layout, backward: Backward) -> ast.For | ast.While | None:
    """The loop that repeats the backward of a loss that was computed before it."""
    loop = next(iter(layout.loops(backward.call)), None)
    bindings = bindings_of(layout.function).get(backward.loss, [])
    if not isinstance(loop, (ast.For, ast.While)) or not bindings:
        return None
    if isinstance(loop, ast.For) and ONE_PASS.search(ast.unparse(loop.iter)):
        return None
    if any(isinstance(node, EXITS) for node in layout.inside(loop)):
        return None
    header = getattr(loop, "test", None)
    tests = [test for test in layout.conditions(backward.call) if layout.holds(loop, test)]
    before = all(layout.before(binding.statement, loop) for binding in bindings)
    return loop if before and tests in ([], [header]) else None


def _shared(
    view: FileView, function: Function, backwards: list[Backward]
) -> Iterator[tuple[Finding, ast.Call]]:
    layout = layout_of(function)
    if any(map(_freezes, layout.nodes)):
        return
    earlier: dict[str, list[Backward]] = {}  # by output: only these are compared
    for second in backwards:
        outputs = outputs_of(view, layout, second.loss)
        candidates = {
            first: output for output in sorted(outputs) for first in earlier.get(output, ())
        }
        for first, output in candidates.items():
            if first.loss == second.loss or not layout.dominates(first.call, second.call):
                continue
            words = {"loss": second.loss, "output": output, "row": view.row_of(first.call)}
            help = _apart(layout, first, second, output)
            rests = _links(view, function, first.call, second.call)
            message = SHARED.format_map(words)
            yield view.finding(RULE, second.call, message, help, links=rests), second.call
            break
        if not second.keeps:
            for output in outputs:
                earlier.setdefault(output, []).append(second)


def _apart(layout: Layout, first: Backward, second: Backward, output: str) -> str:
    """What to do about a shared output: two steps want two graphs, one step wants one backward."""
    between = layout.between(first.call, second.call)
    if any(isinstance(node, ast.Call) and last_name(node.func) == "step" for node in between):
        return f"use `{output}.detach()` in `{first.loss}`"
    return f"add the losses and call backward once: `{first.loss} + {second.loss}`"


# -- backwards in called functions ---------------------------------------------------------------


def _across_calls(view: FileView) -> list[tuple[Finding, ast.Call]]:
    """Second backwards through one graph that meet only where functions call each other."""
    found: list[tuple[Finding, ast.Call]] = []

    def report(shared: Node, first: Trace, second: Trace) -> None:
        modules = {call.function.module for call in (*first, *second)} | graphs.homes[shared]
        modules.update(connected_files(view.objects.project, view.module).modules)
        pair = _in_file(view, first, second)
        if pair is None or any(module.once(_switches_gradients) for module in modules):
            return
        ours, theirs = pair
        message = ACROSS.format(call=_spelled(theirs), row=view.row_of(ours.node))
        help = (
            f"detach what `{_spelled(ours)}` gets from this graph, or run one backward on the sum"
        )
        if ours.node is theirs.node:
            message, help = NEXT_ROUND.format(call=_spelled(theirs)), CARRIED
            if not _is_made_in_loop(shared, theirs):
                help = TOGETHER
        path = tuple(_steps(view, first, second))
        rests = _links(view, second[-1].function, first[-1].node, second[-1].node)
        finding = view.finding(RULE, theirs.node, message, help, path=path, links=rests)
        found.append((finding, theirs.node))

    graphs = Graphs(view.objects, report)
    for function in _that_scale(view):
        graphs.follow(function)
    return found


def _that_scale(view: FileView) -> list[Function]:
    """Functions around a scaled loss in which two calls may run a backward.

    Callers come first: more is known about the arguments there.
    """
    callers: dict[str, list[Function]] = {}
    for site in view.module.calls:
        callers.setdefault(site.method, []).append(site.function)
    found = dict.fromkeys(site.function for site in scaler_calls(view, "scale"))
    pending = list(found)
    while pending:
        fresh = [caller for caller in callers.get(pending.pop().name, ()) if caller not in found]
        found.update(dict.fromkeys(fresh))
        pending += fresh
    crowded = [function for function in found if _runs_two_backwards(view, function)]
    outer = [caller for function in crowded for caller in callers.get(function.name, ())]
    return list(dict.fromkeys([*outer, *crowded[::-1]]))


def _runs_two_backwards(view: FileView, function: Function) -> bool:
    """Whether two calls of a function are backwards or may reach one, by name.

    One that a loop repeats counts twice if the loop hands something to its next round, or takes
    one part of something after the other.
    """
    count = 0
    layout = layout_of(function)
    for node in function.nodes:
        if isinstance(node, ast.Call):
            reached = view.program.reach(node, function)
            if last_name(node.func) == BACKWARD or BACKWARD in reached:
                count += 1
                loops = layout.loops(node)
                if count >= 2 or any(_carries(layout, loop) for loop in loops):
                    return True
                if any(_takes_parts(view, layout, loop) for loop in loops):
                    return True
    return False


def _carries(layout: Layout, loop: ast.AST) -> bool:
    """Whether a call in a loop is given what it returns, and nothing of the loop comes before."""
    bound: set[str] = set()
    for node in layout.inside(loop):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            given = {item.id for item in arguments(node.value) if isinstance(item, ast.Name)}
            taken = {name for target in node.targets for name in names_in(target)}
            if (given & taken) - bound:
                return True
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.add(node.id)
    return False


def _takes_parts(view: FileView, layout: Layout, loop: ast.AST) -> bool:
    """Whether a loop reads a container that its function makes, or runs over what a call returned."""
    if not isinstance(loop, (ast.For, ast.AsyncFor)):
        return False
    if any(isinstance(node, CONTAINERS) for node in ast.walk(loop.iter)):
        return True
    over = names_in(loop.iter)
    bindings = bindings_of(layout.function)
    read = {node.id for node in layout.inside(loop) if isinstance(node, ast.Name)}
    sources = (
        (name, binding.source)
        for name in read & bindings.keys()
        for binding in bindings[name]
        if layout.before(binding.statement, loop)
    )
    return any(
        isinstance(made, CONTAINERS)
        or (
            name in over
            and isinstance(made, ast.Call)
            and view.objects.callee(made, layout.function) is not None
        )
        for name, made in sources
    )


def _switches_gradients(module: Module) -> bool:
    """Whether a file freezes something, or lets it train again: a frozen layer frees no graph."""
    return any(map(_freezes, module.nodes()))


def _freezes(node: ast.AST) -> bool:
    """`p.requires_grad = flag`, and calls of `requires_grad_` and of functions named after it."""
    if isinstance(node, ast.Call):
        named = [item.value for item in node.args if isinstance(item, ast.Constant)]
        return "requires_grad" in last_name(node.func) or "requires_grad" in named
    if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Store):
        return False
    return node.attr == "requires_grad"


def _in_file(view: FileView, first: Trace, second: Trace) -> tuple[Call, Call] | None:
    """The innermost calls of both traces that the checked file holds, and that tell them apart.

    One call twice where a loop repeats it; None where another file or function holds both.
    """
    own = [
        [call for call in trace if call.function.module is view.module] for trace in (first, second)
    ]
    if not all(own):
        return None
    if own[0][-1].node is not own[1][-1].node or _same_calls(first, second):
        return own[0][-1], own[1][-1]
    apart = next(pair for pair in zip(first, second) if pair[0].node is not pair[1].node)
    return apart if apart[0].function.module is view.module else None


def _is_made_in_loop(shared: Node, call: Call) -> bool:
    """Whether a layer runs in the loop that repeats a call, or before it."""
    layout = layout_of(call.function)
    loops = layout.loops(call.node)
    return any(node in layout and layout.holds(loop, node) for loop in loops[:1] for node in shared)


def _same_calls(first: Trace, second: Trace) -> bool:
    return [call.node for call in first] == [call.node for call in second]


def _spelled(call: Call) -> str:
    """A call as a reader knows it: `policy.update(...)`."""
    callee = call.node.func
    name = ast.unparse(callee)
    if isinstance(callee, ast.Attribute) and isinstance(callee.value, ast.Call):
        name = f"{ast.unparse(callee.value.func)}(...).{callee.attr}"
    given = "..." if call.node.args or call.node.keywords else ""
    return f"{name}({given})"


def _steps(view: FileView, first: Trace, second: Trace) -> Iterator[PathStep]:
    shared = 0
    while shared < len(first) - 1 and first[shared].node is second[shared].node:
        shared += 1  # calls that lead to both
    for trace, last in ((first, "this backward frees the graph"), (second, "torch raises here")):
        for call in trace[shared:]:
            words = last if call is trace[-1] else f"call of `{ast.unparse(call.node.func)}`"
            yield view.step(call.node, call.function.module, words)
