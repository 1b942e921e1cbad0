"""Tests of whether any gradient exists: `any(p.grad is not None for p in …)`, here or in a helper."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from amplint.amp.scaler_calls import scaler_calls
from amplint.amp.view import AmpView
from amplint.code.arguments import bind
from amplint.code.dataflow import bindings_of, constant_of
from amplint.code.definitions import returned
from amplint.code.expressions import last_name
from amplint.code.layout import layout_of
from amplint.code.module import CallSite, Function
from amplint.findings import PathStep


@dataclass(frozen=True, slots=True, eq=False)
class GuardedStep:
    """A `scaler.step` that runs only if a test finds a gradient.

    Args:
        site: the step.
        branch: the `if` around it.
        model: the model whose parameters the test looks at, as an expression of the step's
            function; None where that is not known.
        path: to the test itself, where a helper holds it.
    """

    site: CallSite
    branch: ast.If
    model: ast.expr | None
    path: tuple[PathStep, ...] = ()

    @property
    def is_useless(self) -> bool:
        """Whether gradients are cleared to zeros, so that the test is always true."""
        return keeps_zeros(self.site.function)


def guarded_steps(view: AmpView) -> tuple[GuardedStep, ...]:
    """The steps of a file behind a test for gradients, the innermost test of each."""
    return view.once(_guarded_steps)


def _guarded_steps(view: AmpView) -> tuple[GuardedStep, ...]:
    found = (_guard_of(view, site) for site in scaler_calls(view, "step"))
    return tuple(guard for guard in found if guard is not None)


def _guard_of(view: AmpView, site: CallSite) -> GuardedStep | None:
    layout = layout_of(site.function)
    if site.node not in layout or not site.node.args:
        return None
    for branch in layout.ancestors(site.node):
        if not isinstance(branch, ast.If):
            continue
        guard = next(_tests_of(view, site, branch), None)
        if guard is not None and any(layout.holds(part, site.node) for part in branch.body):
            return guard
    return None


def _tests_of(view: AmpView, site: CallSite, branch: ast.If) -> Iterator[GuardedStep]:
    """The tests for gradients among the parts of a condition, or bound to a name in it."""
    test = branch.test
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or):
        return
    for part in test.values if isinstance(test, ast.BoolOp) else [test]:
        names = bindings_of(site.function).get(part.id, []) if isinstance(part, ast.Name) else []
        value = names[0].value if len(names) == 1 else part
        if not isinstance(value, ast.Call):
            continue
        source = _source_of(value)
        if source is not None:
            yield GuardedStep(site, branch, owner_of(source))
            continue
        yield from _helper_test(view, site, branch, value)


def _helper_test(
    view: AmpView, site: CallSite, branch: ast.If, call: ast.Call
) -> Iterator[GuardedStep]:
    """The test for gradients that a called function of the project returns."""
    helper = view.objects.callee(call, site.function)
    source = _returned_source(helper) if helper is not None else None
    if helper is None or source is None:
        return
    seen = owner_of(source)
    model = bind(call, helper).given.get(seen.id) if isinstance(seen, ast.Name) else None
    step = view.step(source, helper.module, f"`{helper.name}` looks at `{ast.unparse(source)}`")
    yield GuardedStep(site, branch, model, (step,))


def _returned_source(helper: Function) -> ast.expr | None:
    """What the gradient test of a helper runs over: one `any(...)`, or a loop that says so."""
    values = returned(helper)
    if len(values) == 1 and isinstance(values[0], ast.Call):
        return _source_of(values[0])
    if [constant_of(value) for value in values] != [True, False]:
        return None
    loops = [node for node in helper.body if isinstance(node, ast.For)]
    if len(loops) != 1 or len(loops[0].body) != 1 or loops[0].orelse:
        return None
    inner = loops[0].body[0]
    is_test = isinstance(inner, ast.If) and not inner.orelse and _asks_for_gradient(inner.test)
    return loops[0].iter if is_test else None


def _source_of(call: ast.Call) -> ast.expr | None:
    """What `any(p.grad is not None for p in source)` runs over; None for any other call.

    With two loops (`for group in optimizer.param_groups for p in ...`) it is the outer one.
    """
    if last_name(call.func) != "any" or len(call.args) != 1:
        return None
    source = call.args[0]
    if not isinstance(source, (ast.GeneratorExp, ast.ListComp)):
        return None
    return source.generators[0].iter if _asks_for_gradient(source.elt) else None


def _asks_for_gradient(test: ast.expr) -> bool:
    return (
        isinstance(test, ast.Compare)
        and last_name(test.left) == "grad"
        and isinstance(test.ops[0], ast.IsNot)
        and constant_of(test.comparators[0]) is None
    )


def owner_of(expression: ast.expr) -> ast.expr | None:
    """The model of `model.parameters()`; None for any other expression."""
    callee = expression.func if isinstance(expression, ast.Call) else None
    is_parameters = isinstance(callee, ast.Attribute) and callee.attr == "parameters"
    return callee.value if isinstance(callee, ast.Attribute) and is_parameters else None


@lru_cache(maxsize=16)
def keeps_zeros(function: Function) -> bool:
    """Whether a function clears gradients to zeros; asked once for all its steps."""
    for node in layout_of(function).nodes:
        if not isinstance(node, ast.Call) or last_name(node.func) != "zero_grad":
            continue
        given = [item.value for item in node.keywords if item.arg == "set_to_none"]
        if any(constant_of(value) is False for value in [*node.args, *given]):
            return True
    return False
