"""Losses of an autocast region that go backward as they are, and whether anything scales them.

What a region computes is followed through the bindings that reach a use, and to the functions
that get it returned. A loss is plain where `backward()` is called on the tensor itself; whether a
scaler is built somewhere says nothing about it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from amplint.amp.accelerators import never_scales, runs_in_bfloat16
from amplint.amp.choices import Way, choice_of
from amplint.amp.grad_modes import is_off
from amplint.amp.half_tensors import is_raised_loss
from amplint.amp.library_steps import preparing
from amplint.amp.links import model
from amplint.amp.losses import CUTS
from amplint.amp.scaled_losses import MOVES
from amplint.amp.view import AmpView
from amplint.code.dataflow import Binding, arguments, bindings_of, fills_of
from amplint.code.definitions import returned
from amplint.code.expressions import last_name, path_text
from amplint.code.layout import layout_of
from amplint.code.module import Function, walk
from amplint.findings import Link, Standing
from amplint.gradflow.handing import is_handed_on
from amplint.regions.callers import Callers
from amplint.regions.regions import Inside, Region
from amplint.regions.training import is_backward, stepped_optimizer
from amplint.values.assumptions import Assumptions, may_run
from amplint.values.bindings import reaching
from amplint.values.conditions import conditions_at
from amplint.values.values import Values

#: What a region computes is followed through this many functions that return it.
_DEPTH = 2
_LOOPS = (ast.For, ast.AsyncFor, ast.comprehension)
#: Methods that change gradients by a factor in place, as unscaling by hand does.
_FACTORS = frozenset(("mul_", "div_", "_foreach_mul_", "_foreach_div_"))


@dataclass(frozen=True, slots=True, eq=False)
class PlainLoss:
    """A plain backward of what a region computes, and the plain step that follows it.

    Args:
        function: holds the backward.
        results: what of the function comes from the region.
        through: the function that hands it there; the region's own where it is the same one.
        loss: what goes backward.
        library: that the library whose method runs the backward does not scale; None for torch's.
        step: the first step behind the backward, here or where `function` is called.
        stepping: the function that holds the step.
    """

    region: Region
    function: Function
    results: Results
    through: Function
    backward: ast.Call
    loss: ast.expr
    library: Link | None
    step: ast.Call
    stepping: Function


class Results:
    """What a function computes, with gradients, from some of its nodes.

    Args:
        view: asked what called functions hand on.
        seeds: nodes of the function that lie in a region, or calls that return what one computes.
    """

    def __init__(self, view: AmpView, function: Function, seeds: Iterable[ast.AST]) -> None:
        self.function = function
        self._view = view
        self._layout = layout_of(function)
        self._seeds = [node for node in seeds if node in self._layout]
        self._known: dict[ast.AST, bool] = {}

    def begin_at(self, node: ast.AST) -> bool:
        """Whether a node is one of the seeds."""
        return node in self._seeds

    def hold(self, expression: ast.expr) -> bool:
        """Whether an expression is computed from a seed, so that gradients go back there."""
        return any(
            self._comes_from(node) and is_handed_on(self._view, node, expression, self.function)
            for node in _carriers(expression)
        )

    def lead_to(self, node: ast.AST, values: Values) -> bool:
        """Whether a node may run behind a seed, in the same round, as the tests of both allow."""
        return any(
            self._layout.reaches(seed, node)
            and Assumptions.of(values, conditions_at(seed, self.function)).holds(
                conditions_at(node, self.function)
            )
            is not False
            for seed in self._seeds
        )

    def way_to(self, expression: ast.expr) -> list[ast.expr]:
        """The expressions that an expression's value is computed by, itself first."""
        found, pending = [expression], [expression]
        while pending:
            for node in _carriers(pending.pop()):
                for binding in self._bindings(node):
                    source = binding.source
                    if source is not None and source not in found and self._leaves(binding):
                        found.append(source)
                        pending.append(source)
        return found

    def _is_seed(self, node: ast.AST) -> bool:
        """Whether a node computes something where the seeds are; a batch that is moved is the same."""
        if isinstance(node, ast.Call) and last_name(node.func) in MOVES:
            return False
        if not isinstance(node, ast.Call) and not isinstance(
            getattr(node, "op", None), ast.MatMult
        ):
            return False
        inside = node in self._layout and any(
            self._layout.holds(seed, node) for seed in self._seeds
        )
        return inside and not (isinstance(node, ast.Call) and self._ignores_region(node))

    def _ignores_region(self, call: ast.Call) -> bool:
        """Whether a call computes nothing in the region's type.

        Such are a loss that autocast runs in float32, and a model that Accelerate runs in bfloat16.
        """
        if is_raised_loss(self._view, call, self.function):
            return True
        found = preparing(self._view, call.func, call, self.function)
        return found is not None and runs_in_bfloat16(self._view, *found)

    def _comes_from(self, node: ast.expr) -> bool:
        if node in self._known:
            return self._known[node]
        self._known[node] = False  # a value that needs itself ends here
        self._known[node] = self._is_seed(node) or any(map(self._leaves, self._bindings(node)))
        return self._known[node]

    def _leaves(self, binding: Binding) -> bool:
        """Whether what a binding leaves is computed from a seed."""
        source = binding.source
        if source is None or is_off(self._view.objects, binding.statement, self.function):
            return False
        if isinstance(binding.statement, _LOOPS):  # what a loader gives is computed by no layer
            parts = (node for node in _carriers(source) if not isinstance(node, ast.Call))
            return any(map(self._comes_from, parts))
        return self.hold(source)

    def _bindings(self, node: ast.expr) -> Iterator[Binding]:
        """The bindings that a name or attribute may have its value from where it is read."""
        path = path_text(node)
        if path is None:
            return
        for fill in fills_of(self.function).get(path, ()):
            if fill.value in self._layout:
                yield Binding(self._layout.statement(fill.value), fill.value, self.function)
        for group in reaching(bindings_of(self.function).get(path, []), node, self.function):
            for binding in reversed(group):
                yield binding
                is_more = isinstance(binding.statement, ast.AugAssign)
                if not is_more and not conditions_at(binding.statement, self.function, node):
                    break


def _carriers(expression: ast.AST) -> Iterator[ast.expr]:
    """The parts of an expression that gradients may come back through."""
    if isinstance(expression, ast.Attribute) and expression.attr in CUTS:
        return
    if isinstance(expression, ast.Call) and last_name(expression.func) in CUTS:
        return
    if isinstance(expression, (ast.Lambda, ast.Constant)):
        return
    if isinstance(expression, ast.expr):
        yield expression
    for part in ast.iter_child_nodes(expression):
        yield from _carriers(part)


# -- which loss goes backward ----------------------------------------------------------------


def plain_losses(view: AmpView, callers: Callers, region: Region) -> Iterator[PlainLoss]:
    """The plain backwards of what a region computes, each with the step that follows it."""
    for results, through in results_of(view, callers, region):
        yield from _plain_in(view, callers, region, results, through)


def results_of(
    view: AmpView, callers: Callers, region: Region
) -> Iterator[tuple[Results, Function]]:
    """What a region computes, in its function and in those that get it returned, with who returns it."""
    function = region.function
    is_decorator = region.opened in getattr(function.node, "decorator_list", ())
    seeds = () if is_decorator else region.parts
    pending = [(Results(view, function, seeds), function, is_decorator, 0)]
    while pending:
        results, through, returns_all, depth = pending.pop(0)
        yield results, through
        where = results.function
        gives = returns_all or any(map(results.hold, returned(where)))
        if gives and depth < _DEPTH:
            for call, caller in callers.callers(where):
                if call in layout_of(caller) and not is_off(view.objects, call, caller):
                    pending.append((Results(view, caller, (call,)), where, False, depth + 1))


def _plain_in(
    view: AmpView, callers: Callers, region: Region, results: Results, through: Function
) -> Iterator[PlainLoss]:
    function = results.function
    for node in layout_of(function).nodes:
        if not isinstance(node, ast.Call):
            continue
        loss, library = _plain_loss(view, node, function)
        if loss is None or not results.hold(loss):
            continue
        if not is_backward(callers.regions, Inside(node, function)):
            continue
        if not results.lead_to(node, callers.regions.values):
            continue
        if callers.regions.is_excluded(region, node, function) or not _may_run(
            callers, node, function
        ):
            continue
        found = _step_behind(callers, node, function)
        if found is not None:
            yield PlainLoss(region, function, results, through, node, loss, library, *found)


def _may_run(callers: Callers, node: ast.AST, function: Function) -> bool:
    """Whether no test before a node, or before each call of its function, always fails."""
    values = callers.regions.values
    if not may_run(values, node, function):
        return False
    calling = list(callers.callers(function))
    return not calling or any(may_run(values, call, caller) for call, caller in calling)


def _plain_loss(
    view: AmpView, call: ast.Call, function: Function
) -> tuple[ast.expr | None, Link | None]:
    """What goes backward unscaled: of `loss.backward()`, or by a library that does not scale.

    A loss is a name or attribute, or arithmetic with one.
    """
    callee = call.func
    if not isinstance(callee, ast.Attribute) or callee.attr != "backward":
        return None, None
    loss, library = callee.value, None
    if len(call.args) == 1:
        loss, library = call.args[0], never_scales(view, callee.value, function)
    is_loss = isinstance(loss, ast.BinOp) or path_text(loss) is not None
    is_plain = not call.args or library is not None
    return (loss if is_loss and is_plain else None), library


def _step_behind(
    callers: Callers, backward: ast.Call, function: Function
) -> tuple[ast.Call, Function] | None:
    """The first step behind a backward, if it is an optimizer's own: here, or in a caller.

    Behind the backward of a closure comes the step that is given the closure.
    """
    step = _first_step(callers, backward, function)
    if step is not None:
        return (step, function) if not step.args else None
    for call, caller in callers.callers(function):
        step = _first_step(callers, call, caller) if call in layout_of(caller) else None
        if step is not None:
            return (step, caller) if not step.args else None
    outer = function.parent
    step = _step_with(callers, function, outer) if outer is not None else None
    return (step, outer) if step is not None and outer is not None else None


def _step_with(callers: Callers, closure: Function, outer: Function) -> ast.Call | None:
    """The `optimizer.step(closure)` of the function around a closure."""
    for node in layout_of(outer).nodes:
        if not isinstance(node, ast.Call) or last_name(node.func) != "step":
            continue
        given = arguments(node)
        if len(given) != 1 or callers.objects.symbol(given[0], outer) is not closure:
            continue
        stepped = stepped_optimizer(callers.regions, Inside(node, outer))
        if stepped is not None and stepped is not given[0]:
            return node
    return None


def _first_step(callers: Callers, node: ast.Call, function: Function) -> ast.Call | None:
    """The first step behind a call of a function, on a path that the call's own tests allow."""
    layout = layout_of(function)
    facts = Assumptions.of(callers.regions.values, conditions_at(node, function))
    return next(
        (
            other
            for other in layout.nodes
            if isinstance(other, ast.Call)
            and last_name(other.func) == "step"
            and layout.reaches(node, other)
            and facts.holds(conditions_at(other, function)) is not False
            and stepped_optimizer(callers.regions, Inside(other, function)) is not None
        ),
        None,
    )


# -- whether it is scaled --------------------------------------------------------------------


def may_be_scaled(view: AmpView, callers: Callers, plain: PlainLoss) -> bool:
    """Whether something may scale the loss before its backward, or in place of it.

    Code out of sight that is given the loss and nothing else but a scaler or an optimizer may; so
    may the other side of a test before the backward, unless somebody can choose both the region and
    this side, and another call of a region that can be off.
    """
    results = plain.results
    if scaled_on_the_way(view, results, plain.loss):
        return True
    if is_scaled_instead(view, callers, plain) and chosen_unscaled(view, plain) is None:
        return True
    return plain.region.conditional and any(
        _scales_one(view, Results(view, caller, (call,)))
        for call, caller in callers.callers(plain.through)
        if caller is not plain.function or not results.begin_at(call)
    )


def scaled_on_the_way(view: AmpView, results: Results, loss: ast.expr) -> bool:
    """Whether a call by which a loss is computed may scale it."""
    return any(
        isinstance(node, ast.Call)
        and (_scales(view, results, node) or _converts(view, results, node))
        for part in results.way_to(loss)
        for node in walk(part)
    )


def _gets(results: Results, call: ast.Call) -> bool:
    return any(map(results.hold, arguments(call)))


def _scales(view: AmpView, results: Results, call: ast.Call) -> bool:
    """Whether a call that is given one of the results leads to `scale`."""
    if not _gets(results, call):
        return False
    function = results.function
    return last_name(call.func) == "scale" or (
        view.objects.callee(call, function) is not None and view.may_reach("scale", call, function)
    )


def _scales_one(view: AmpView, results: Results) -> bool:
    """Whether a function scales one of the results, where the tests around both allow it."""
    calls = (node for node in layout_of(results.function).nodes if isinstance(node, ast.Call))
    return any(
        _scales(view, results, call) and results.lead_to(call, view.values) for call in calls
    )


def _converts(view: AmpView, results: Results, call: ast.Call) -> bool:
    """Whether code out of sight makes something of the results alone, as what scales them would."""
    function = results.function
    if not _gets(results, call) or not _is_out_of_sight(view, call, function):
        return False
    if model(view, call.func, function).standing is not Standing.GUESS:
        return False
    roles = view.roles_of(function.module)
    return all(
        results.hold(item) or roles.is_scaler(item, function) or roles.is_optimizer(item, function)
        for item in arguments(call)
    )


def _is_out_of_sight(view: AmpView, call: ast.Call, function: Function) -> bool:
    """Whether nothing is known of what a call runs: no torch, no module, nothing of Python."""
    module, callee = function.module, call.func
    if isinstance(callee, ast.Name) and module.scopes.resolve(callee).kind == "builtin":
        return False
    if (module.resolve(callee) or "").partition(".")[0] in ("torch", "math"):
        return False
    return not view.objects.classes_called(callee, function) and (
        view.objects.callee(call, function) is None
    )


def is_scaled_instead(view: AmpView, callers: Callers, plain: PlainLoss) -> bool:
    """Whether the same loss may be scaled where a test keeps it from going backward here."""
    return _is_tested(plain) and _is_scaled_instead(view, callers, plain)


def chosen_unscaled(view: AmpView, plain: PlainLoss) -> Way | None:
    """What somebody can choose for the region to be on, in float16, where the loss goes backward.

    None also where the autocast is built elsewhere than where it is entered: what leads there is
    not asked.
    """
    if plain.region.cast.call is not plain.region.opened:
        return None
    here = (*plain.region.entered_when, *conditions_at(plain.backward, plain.function))
    if plain.region.cast.dtype is None:
        return choice_of(view.values, here)
    ways = (
        choice_of(view.values, (*half.origin.conditions, *here))
        for half in plain.region.cast.float16_by(view.values)
    )
    return next((way for way in ways if way is not None), None)


def _is_tested(plain: PlainLoss) -> bool:
    """Whether a test decides that the loss goes backward, and not only that it is computed."""
    is_here = plain.region.function is plain.function
    use = plain.region.opened if is_here else None
    return bool(conditions_at(plain.backward, plain.function, use))


def _is_scaled_instead(view: AmpView, callers: Callers, plain: PlainLoss) -> bool:
    results, function = plain.results, plain.function
    if _scales_one(view, results) or _is_handed_on(view, plain):
        return True
    if not any(map(results.hold, returned(function))):
        return False
    getting = list(callers.callers(function))
    return not getting or any(
        _scales_one(view, Results(view, caller, (call,))) for call, caller in getting
    )


def _is_handed_on(view: AmpView, plain: PlainLoss) -> bool:
    """Whether code out of sight gets the loss on a path on which it does not go backward here."""
    layout = layout_of(plain.function)
    return any(
        isinstance(call, ast.Call)
        and _gets(plain.results, call)
        and not layout.reaches(call, plain.backward)
        and not layout.reaches(plain.backward, call)
        and plain.results.lead_to(call, view.values)
        and _is_out_of_sight(view, call, plain.function)
        for call in layout.nodes
    )


def unscales_by_hand(plain: PlainLoss) -> bool:
    """Whether the loss is multiplied on its way, and gradients of the file are divided again."""
    multiplied = any(
        isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)
        for part in plain.results.way_to(plain.loss)
        for node in walk(part)
    )
    return multiplied and any(map(_changes_gradients, plain.function.module.nodes()))


def _changes_gradients(node: ast.AST) -> bool:
    """`parameter.grad /= scale`, `parameter.grad.mul_(...)`, `torch._foreach_div_(grads, ...)`."""
    if isinstance(node, ast.AugAssign):
        return last_name(node.target) == "grad"
    if not isinstance(node, ast.Call) or last_name(node.func) not in _FACTORS:
        return False
    return "grad" in ast.unparse(node)
