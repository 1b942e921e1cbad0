"""# scaler-recreated (AMP119)

A GradScaler is built anew for every epoch or iteration, so its scale is forgotten.

## What it does
Flags a `GradScaler` built inside the training loop that uses it, and one built inside a function
that is called for every epoch or iteration, while the optimizer it steps lives longer. An object of
the project's own that builds a scaler for itself and steps with it, once per call, is one, too.

## Why is this bad?
The scale is learned: it is halved at each overflow and grows after 2000 good steps. A new scaler
starts again at 65536. Where the model overflows at that scale, the first steps of every epoch are
skipped (one per epoch in the example, whose initial scale overflows on purpose); with a scaler per
iteration all of them are (30 of 30 in the measured case, where one scaler skips 1). Nothing is
raised. A scaler state restored from a checkpoint is lost with the next epoch. Where nothing computes
in float16 nothing overflows at the usual scales: then this is advice, and says so.

## Example
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(4)]

for epoch in range(3):
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
```

## Use instead
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(4)]

scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
for epoch in range(3):
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
```

## How it is confirmed
Executing two epochs shows another scaler object, with the scale back at its initial value.

## Fix safety
Unsafe: the scale then goes on from pass to pass. A statement of the loop's own body that builds the
scaler, from nothing that the loop binds, moves in front of the loop. No fix where a function is called
again and again: the scaler has to become a parameter of it.

## Known limits
Silent where the loop builds the optimizer too (folds, ensembles), and where the scaler is built
under a test of itself (unless it is a parameter, and a repeated call hands in none) or in an exception
handler, stored, returned, restored from a checkpoint, or
given the scale of the one before.
A function is "called per epoch" when a loop of its file, or of one that imports it, calls it,
through at most three functions, or by its name (`train_one_epoch`): the finding is then info. A
method that clears, scales and steps its object's own optimizer once, and that no call in sight
runs, is called once per batch.

## References
- PyTorch, Automatic Mixed Precision examples: "Creates a GradScaler once at the beginning of
  training"
- `torch/amp/grad_scaler.py`: `GradScaler.update`
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain

from amplint.amp import links
from amplint.amp.connected import connected_files
from amplint.amp.loop_invariants import is_loop_invariant
from amplint.amp.reached_calls import ScalerCall, calls_leading_to
from amplint.amp.roles import Role
from amplint.amp.scaler_calls import scaler_calls, starts_over
from amplint.amp.scalers import Assigned, BuiltScaler, built_scalers, built_wrappers
from amplint.code.arguments import bind, parameters
from amplint.code.dataflow import (
    arguments,
    bindings_of,
    bound_in,
    fills_of,
    names_in,
    paths_bound_in,
    receiver,
    root_of,
)
from amplint.code.definitions import is_memoised
from amplint.code.expressions import callee_of, last_name, path_text
from amplint.code.layout import LOOPS, Layout, layout_of, loop_header
from amplint.code.module import CallSite, Function
from amplint.expectations import measured
from amplint.findings import Finding, Link, PathStep, Severity, Standing
from amplint.fixing.statements import statement_of
from amplint.fixing.verbs import Move, Repair, unsafe
from amplint.regions.contexts import Alternatives
from amplint.rule import Rule
from amplint.values.bindings import container_of
from amplint.values.conditions import conditions_at
from amplint.values.provenance import Activation, Condition, Firmness
from amplint.view import FileView

RULE = Rule(
    code="AMP119",
    name="scaler-recreated",
    severity=Severity.WARNING,
    effect="silent",
    summary="a `GradScaler` built per iteration or per epoch, so its scale is forgotten",
    facts=("S27", "S27b"),
    fix="unsafe",
    probe=measured("rebuilt", "place"),
)

#: A loop over epochs, not over the batches of one (`range(steps_per_epoch)`).
OVER_EPOCHS = re.compile(r"^\w*epoch|epochs|(?:num|n|max|total|start)_epoch", re.IGNORECASE)
PER_EPOCH = re.compile(
    r"^_*(?:(?:do_|run_)?train(?:ing)?_?(?:one_?|an_?|single_?)?(?:epoch|step|batch|iter(?:ation)?)"
    r"|(?:one_?|run_?)epoch|epoch_?train)$",
    re.IGNORECASE,
)
#: Calls that lead to the construction are followed through this many functions.
_DEPTH = 3
MESSAGE = "each {where} builds a new GradScaler: the loss scale is searched for again"
HARMLESS = "each {where} builds a new GradScaler: harmless here, as nothing is float16"


def check(view: FileView) -> Iterator[Finding]:
    """Report constructions that are repeated while their optimizer stays the same."""
    reported: set[tuple[Function, str]] = set()
    wanted = partial(_is_wanted, view)
    for built in chain(built_scalers(view, wanted), built_wrappers(view, wanted)):
        where = (built.function, built.target)
        if where not in reported and not built.is_off(view):
            repeated = _repeated(view, built)
            reported.add(where)
            help = f"build `{built.target}` once, before the first epoch, and pass it in"
            plain = list(_damage(view, built))
            message = (HARMLESS if plain else MESSAGE).format(where=repeated)
            reach = Link("reach", _standing(view, built), built.function.name, "is run repeatedly")
            path = _path(view, built)
            scaler = links.participant(view, built.call, built.function, Role.SCALER, built.target)
            rests = (reach, scaler, *plain, *_never_again(view, built), *_never_used(view, built))
            fix = _once(built)
            yield view.finding(RULE, built.call, message, help, path=path, links=rests, fix=fix)


def _is_wanted(view: FileView, built: Assigned) -> bool:
    return view.is_judged(built.function) and bool(_repeated(view, built))


def _damage(view: FileView, built: BuiltScaler) -> Iterator[Link]:
    """That there is none: no float32 or bfloat16 gradient overflows at the usual scales."""
    if any(word.arg not in ("device", "enabled") for word in built.constructor.keywords):
        return
    scaled = {call.function for call in _own_calls(view, built, "scale")}
    spans = [found for function in scaled for _, found in view.regions.spans(function)]
    is_wide_here = bool(spans) and all(map(_is_wide, spans))
    if is_wide_here or connected_files(view.project, view.module).is_float32:
        yield Link("damage", Standing.HARMLESS, built.target, "scales what is float16")


def _is_wide(found: Alternatives) -> bool:
    """Whether no autocast of a region can be of float16: it is off, or of another dtype.

    What it may be instead, and is no autocast in sight, is a `nullcontext` or the like.
    """
    casts = [cast for cast in found if cast is not None]
    return bool(casts) and all(
        cast.enabled is False or (cast.dtypes is not None and "float16" not in cast.dtypes)
        for cast in casts
    )


def _once(built: BuiltScaler) -> Repair | None:
    """Build it in front of the loop, where nothing of the loop takes part in that."""
    layout = layout_of(built.function)
    loops = layout.loops(built.call)
    statement = statement_of(built.call, built.function)
    if not loops or statement is None or layout.parents[statement] is not loops[0]:
        return None
    loop = loops[0]
    if bound_in(built.function, loop) & (names_in(built.call) | {"self"}):
        return None
    return unsafe(Move(statement, loop)) if isinstance(loop, ast.stmt) else None


def _standing(view: FileView, built: BuiltScaler) -> Standing:
    """How it is known that the construction is repeated: a loop, one step's use, or a name."""
    if view.objects.loops(built.call, built.function):
        return Standing.CODE
    optimizers = _outside_optimizers(view, built)
    if _repeating_call(view, built, optimizers):
        return Standing.CODE
    return Standing.USE if _is_one_step(view, built, optimizers) else Standing.GUESS


def _never_again(view: FileView, built: BuiltScaler) -> Iterator[Link]:
    """That the loop around the construction goes round, where each round of it raises."""
    place: tuple[ast.AST, Function] = built.call, built.function
    if not view.objects.loops(*place):
        site = _repeating_call(view, built, _outside_optimizers(view, built))
        place = (site.node, site.function) if site is not None else place
    loops = (view.unreached.no_second_round(loop, place[1]) for loop in view.objects.loops(*place))
    yield from filter(None, loops)


def _never_used(view: FileView, built: BuiltScaler) -> Iterator[Link]:
    """That a scaler scales, where something raises before each place that does."""
    calls = list(_own_calls(view, built, "scale"))
    doubts = [view.unreached.doubt(call.node, call.function) for call in calls]
    if doubts and all(doubts):
        yield from filter(None, doubts[:1])


def _path(view: FileView, built: BuiltScaler) -> tuple[PathStep, ...]:
    """The loop of another file that repeats the construction, and the factory of another file."""
    steps = []
    if not view.objects.loops(built.call, built.function):
        optimizers = _outside_optimizers(view, built)
        site = _repeating_call(view, built, optimizers)
        if site is not None:
            words = f"`{built.function.name}` is called again and again"
            steps.append(view.step(site.node, site.function.module, words))
    steps.append(view.step(built.call, view.module, f"`{built.target}` is a new scaler each time"))
    if built.factory is not None:
        words = f"`{built.factory.name}` builds it"
        steps.append(view.step(built.constructor, built.factory.module, words))
    is_local = built.factory is None and len(steps) == 1
    return () if is_local else tuple(steps)


def _is_candidate(built: Assigned) -> bool:
    layout = layout_of(built.function)
    if built.call not in layout or not built.target or _is_put_in(built):
        return False
    if _keeps_scale(built):
        return False
    if not _is_parameter(built) and any(_asks_for_it(built)):
        return False
    return not any(isinstance(node, ast.ExceptHandler) for node in layout.ancestors(built.call))


def _asks_for_it(built: Assigned) -> Iterator[Condition]:
    """The conditions of a construction that name what it is kept under: there may be one already."""
    name = built.target.partition("[")[0].rpartition(".")[2]
    for condition in conditions_at(built.call, built.function):
        if name in ast.unparse(condition.test):
            yield condition


def _is_parameter(built: Assigned) -> bool:
    return built.target in parameters(built.function)


def _is_put_in(built: Assigned) -> bool:
    """Whether a scaler becomes one entry of a container that may hold others."""
    targets = getattr(statement_of(built.call, built.function), "targets", ())
    return any(isinstance(target, ast.Subscript) for target in targets)


def _keeps_scale(built: Assigned) -> bool:
    """Whether a scaler begins with the scale of the one before: `init_scale=scaler.get_scale()`."""
    bound = bindings_of(built.function)
    given = [binding.value for name in names_in(built.call) for binding in bound.get(name, ())]
    return any(
        isinstance(node, ast.Call) and last_name(node.func) == "get_scale"
        for value in (built.call, *filter(None, given))
        for node in ast.walk(value)
    )


def _repeated(view: FileView, built: Assigned) -> str:
    """What repeats the construction of a scaler, in words, or ""."""
    if not _is_candidate(built):
        return ""
    layout = layout_of(built.function)
    loops = view.objects.loops(built.call, built.function)
    may_be_given = any(_asks_for_it(built))
    if loops and may_be_given:
        return ""
    if loops:
        header = getattr(loops[0], "test", None)
        tests = [test for test in layout.conditions(built.call) if test is not header]
        inside = [test for test in tests if layout.holds(loops[0], test)]
        if not all(is_loop_invariant(view, test, built.function, loops[0]) for test in inside):
            return ""
        if not _loop_uses(view, built, loops[0]):
            return ""
        return f"pass of the loop on line {view.place_of(view.module, loops[0]).start.row}"
    function = built.function
    if function is view.module.body or is_memoised(function):
        return ""
    if _loops_over_epochs(layout) or not _is_alone(view, built):
        return ""
    if any(_may_have_epochs(view, call) for call in _own_calls(view, built, "scale")):
        return ""
    optimizers = _outside_optimizers(view, built)
    per_call = PER_EPOCH.search(function.name) or _is_one_step(view, built, optimizers)
    is_named = bool(per_call) and not may_be_given
    if optimizers and (is_named or _repeating_call(view, built, optimizers)):
        return f"call of `{function.name}`"
    return ""


def _is_one_step(view: FileView, built: Assigned, optimizers: set[str]) -> bool:
    """Whether a method is one whole training step for the optimizers that its object keeps.

    Nobody trains with one step, so a caller out of sight repeats it.
    """
    function = built.function
    if function.owner is None or optimizers != {"self"} or view.objects.calls_of(function):
        return False
    layout = layout_of(function)
    calls = [call for word in ("scale", "step") for call in _own_calls(view, built, word)]
    if any(call.function is not function or _is_repeated(view, call) for call in calls):
        return False
    return any(isinstance(node, ast.Call) and _clears(node) for node in layout.nodes)


def _clears(call: ast.Call) -> bool:
    return last_name(call.func) == "zero_grad"


def _loop_uses(view: FileView, built: Assigned, loop: ast.AST) -> bool:
    """Whether the loop steps an optimizer from outside of it with the scaler.

    A pass that has epochs of its own, or gives the scaler its scale back, is a whole training.
    """
    layout = layout_of(built.function)
    if starts_over(layout, loop, besides=built.call) or _is_restored(built, loop):
        return False
    bound = paths_bound_in(built.function, loop)
    for node in layout.inside(loop):
        if not isinstance(node, ast.Call):
            continue
        runs = built.target in (receiver(node), path_text(node.func))
        takes = any(path_text(argument) == built.target for argument in arguments(node))
        if not (runs or takes) or not layout.before(built.call, node):
            continue
        if _loops_between(view, node, built.function, loop) > 1:
            continue
        given = [item for item in arguments(node) if view.roles.is_optimizer(item, built.function)]
        names = {name for optimizer in given for name in names_in(optimizer)}
        names |= {path for optimizer in given if (path := path_text(optimizer))}
        if names and not any(_replaces(item, name) for item in bound for name in names):
            return True
    return False


def _is_restored(built: Assigned, loop: ast.AST) -> bool:
    """Whether the loop gives a scaler, or the one that an object keeps, its scale back."""
    calls = (node for node in layout_of(built.function).inside(loop) if isinstance(node, ast.Call))
    restored = (receiver(node) or "" for node in calls if last_name(node.func) == "load_state_dict")
    return any(f"{path}.".startswith(f"{built.target}.") for path in restored)


def _replaces(bound: str, path: str) -> bool:
    """Whether binding one path gives another a new object: itself, what it is part of, an element.

    What is put into an attribute of an optimizer leaves it the optimizer that it is.
    """
    if path.startswith(bound):
        return path[len(bound) :][:1] in ("", ".", "[")
    return bound.startswith(f"{path}[")


def _loops_between(view: FileView, node: ast.AST, function: Function, loop: ast.AST) -> int:
    """How many loops stand around a node, below a loop."""
    loops = view.objects.loops(node, function)
    return loops.index(loop) if loop in loops else 0


def _is_alone(view: FileView, built: Assigned) -> bool:
    """Whether the function runs the protocol with a scaler that nothing else keeps."""
    restores = scaler_calls(view, "load_state_dict", within=built.function)
    if any(receiver(site.node) == built.target for site in restores):
        return False
    calls = [list(_own_calls(view, built, method)) for method in ("scale", "step")]
    layout = layout_of(built.function)
    uses = [call.node for each in calls for call in each if call.node in layout]
    if any(layout.before(node, built.call) for node in uses):
        return False  # there was a scaler before: this one takes its place on purpose
    helpers = {call.function for each in calls for call in each} - {built.function}
    sites = {call.node for each in calls for call in each if call.path}
    helpers.update(filter(None, (view.objects.callee(site, built.function) for site in sites)))
    if any("load_state_dict" in ast.unparse(helper.node) for helper in helpers):
        return False
    return all(calls) and not _escapes(built)


def _own_calls(view: FileView, built: Assigned, method: str) -> Iterator[ScalerCall]:
    """Calls of a method of the scaler in the function that builds it, helpers included."""
    calls = calls_leading_to(view, method, built.function)
    return (call for call in calls if call.scaler == built.target)


def _escapes(built: Assigned) -> bool:
    """Whether a name of the scaler is seen from outside, or anything else keeps the scaler."""
    return built.target in built.function.once(_kept)


def _kept(function: Function) -> set[str]:
    """Names and dotted paths that a function hands out, or stores elsewhere."""
    layout = layout_of(function)
    keepers = (ast.Return, ast.Tuple, ast.List, ast.Dict, ast.Assign, ast.Yield)
    found: set[str] = set()
    for node in layout.nodes:
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            found.update(node.names)
        elif isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
            path = path_text(node) if isinstance(layout.parents[node], keepers) else None
            found.update([path] if path else [])
    return found


def _outside_optimizers(view: FileView, built: Assigned) -> set[str]:
    """Root names of the stepped optimizers; none if the function builds one of them."""
    roots = set()
    for call in _own_calls(view, built, "step"):
        given = ast.parse(call.given, mode="eval").body if call.given else None
        source = _source(given, built.function)
        if source is None or (call.path and "[" in call.given):
            return set()  # what a called function adds to a container is not asked
        roots.add(root_of(source))
    return roots


def _source(expression: ast.expr | None, function: Function, depth: int = _DEPTH) -> str | None:
    """The path outside of a function that it has an object from; None if it may build it itself.

    Of an element that is the path of its container, to which the function adds nothing.
    """
    path = path_text(expression) if expression is not None and depth else None
    if path is None:
        return None
    container = path.partition("[")[0]
    if container in fills_of(function):
        return None
    found = bindings_of(function)
    bound = next((name for name in (path, container, root_of(path)) if name in found), path)
    for binding in found.get(bound, []):
        value = binding.value
        if isinstance(binding.statement, (ast.For, ast.AsyncFor)):
            value = container_of(binding.statement, bound)
        path = _source(value, function, depth - 1)
        if path is None:
            return None
    return path


def _is_repeated(view: FileView, call: ScalerCall) -> bool:
    return bool(view.objects.loops(call.node, call.function))


def _may_have_epochs(view: FileView, call: ScalerCall) -> bool:
    """Whether a loop around the batches may count epochs: it runs over no loaders or data sets."""
    outer = view.objects.loops(call.node, call.function)[1:]
    return any(isinstance(loop, ast.While) or _counts(loop) for loop in outer)


def _counts(loop: ast.AST) -> bool:
    """Whether a loop runs over numbers: `range(n)`, `tqdm(range(n))`, `trange(n)`."""
    named = {last_name(node.func) for node in ast.walk(loop.iter) if isinstance(node, ast.Call)}  # type: ignore[attr-defined]
    return not named.isdisjoint(("range", "trange"))


def _repeating_call(view: FileView, built: Assigned, optimizers: set[str]) -> CallSite | None:
    """A call that a loop repeats and that comes to a construction with the same optimizers."""
    sites = [site for site in view.objects.calls_of(built.function) if _builds(view, built, site)]
    return _call_in_loop(view, built.function, sites, optimizers)


def _builds(view: FileView, built: Assigned, site: CallSite) -> bool:
    """Whether a call builds a scaler, by the tests that ask whether it is given one."""
    inner = Activation(built.function, site.node, site.function)
    return all(
        view.values.truth(condition.test, built.function, inner) == {condition.side: Firmness.FIXED}
        for condition in _asks_for_it(built)
    )


def _call_in_loop(
    view: FileView,
    function: Function,
    sites: Iterable[CallSite],
    optimizers: set[str],
    depth: int = _DEPTH,
) -> CallSite | None:
    """One of some calls that lead to a function, which a loop repeats with the same optimizers."""
    for site in sites:
        if site.node not in layout_of(site.function):
            continue
        loops = view.objects.loops(site.node, site.function)
        outer = _passed(site, function, optimizers)
        if loops and _runs_per_epoch(site, loops, outer):
            return site
        if loops or not depth or outer & _built_in(site.function):
            continue
        further = view.objects.calls_of(site.function)
        found = _call_in_loop(view, site.function, further, outer, depth - 1)
        if found is not None:
            return found
    return None


def _passed(site: CallSite, function: Function, optimizers: set[str]) -> set[str]:
    """The names that the optimizers of a function have where it is called."""
    given = bind(site.node, function).given
    callee, found = callee_of(site.node), set()
    if "self" in optimizers and isinstance(callee, ast.Attribute):
        found = names_in(callee.value)
    for name in optimizers - {"self"}:
        found |= names_in(given[name]) if name in given else {name}
    return found


def _built_in(function: Function) -> set[str]:
    """Names that a function binds: another call of it has other objects under them."""
    return {path.partition(".")[0] for path in bindings_of(function)} - {"self"}


def _runs_per_epoch(site: CallSite, loops: list[ast.AST], optimizers: set[str]) -> bool:
    """Whether the innermost loop around a call repeats it with the same optimizers.

    The folds around the epochs may build what they like.
    """
    if starts_over(layout_of(site.function), loops[0]):
        return False
    return not bound_in(site.function, loops[0]) & optimizers


def _loops_over_epochs(layout: Layout) -> bool:
    return any(
        OVER_EPOCHS.search(loop_header(node)) for node in layout.nodes if isinstance(node, LOOPS)
    )
