"""Calls of scalers in one file, and what a file says about the training around them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from amplint.amp.roles import Role
from amplint.amp.view import AmpView
from amplint.code.dataflow import arguments, names_in, receiver
from amplint.code.expressions import last_name
from amplint.code.layout import Layout, layout_of, loop_header
from amplint.code.module import CallSite, Function, walk

SCALER_METHODS = frozenset(("scale", "unscale_", "step", "update", "get_scale", "load_state_dict"))


#: Names of functions and methods that show a value to people.
SHOWS = frozenset(
    ("print", "info", "debug", "log", "add_scalar", "log_metric", "log_metrics", "set_postfix")
    + ("set_postfix_str", "set_description", "write")
)


#: Names of loops that train something new each time.
_OTHER_TRAINING = re.compile(
    r"fold|seed|model|task|con?fi?g|trial|param|exp(?!oc)|lr|net|arch|stage|phase|client|rank"
    r"|method|datasets|split|ensemble|member|test|agent|generation|individual|round|run|repeat"
    r"|restart|scene",
    re.IGNORECASE,
)


#: What a number is a rate of: a loop over `epochs_per_task` goes over no tasks.
_PER = re.compile(r"_?per_\w+", re.IGNORECASE)


_REBUILDS = re.compile(
    r"build|reset|init|setup|set_up|create|make|configure|restart", re.IGNORECASE
)


#: Methods that only what is trained has: a model or an optimizer.
_OF_TRAINED = frozenset(
    ("parameters", "named_parameters", "train", "zero_grad", "state_dict", "load_state_dict")
)


def starts_over(layout: Layout, loop: ast.AST, besides: ast.Call | None = None) -> bool:
    """Whether each pass of a loop may train something new.

    Args:
        besides: a call that is known to build something else.
    """
    if _OTHER_TRAINING.search(_PER.sub("", loop_header(loop))):
        return True
    calls = [node for node in layout.nodes if isinstance(node, ast.Call)]
    trained = {receiver(call) for call in calls if last_name(call.func) in _OF_TRAINED} - {""}
    for inner in layout.inside(loop):  # `for part in model.modules()`
        if isinstance(inner, ast.For) and not trained.isdisjoint(map(receiver, _calls_in(inner))):
            trained |= names_in(inner.target)
    return any(
        _may_rebuild(call, layout.function, trained) or _brings_back(call, loop, layout, trained)
        for call in calls
        if call is not besides and _is_apart(call, loop, layout)
    )


def _calls_in(loop: ast.For) -> list[ast.Call]:
    return [node for node in walk(loop.iter) if isinstance(node, ast.Call)]


def _is_apart(call: ast.Call, loop: ast.AST, layout: Layout) -> bool:
    """Whether a call stands in a loop, and not among the batches: no inner loop holds a backward."""
    loops = layout.loops(call)
    inner = loops[: loops.index(loop)] if loop in loops else []
    return loop in loops and not any(
        isinstance(node, ast.Call) and last_name(node.func) == "backward"
        for each in inner
        for node in layout.inside(each)
    )


def _may_rebuild(call: ast.Call, function: Function, trained: set[str]) -> bool:
    """Whether a call may make what is trained new: `reset(model)`, `self.setup(fold)`, `init()`.

    What is imported may do so to what it is given; that a meter is reset is something else.
    """
    if not _REBUILDS.search(last_name(call.func)):
        return False
    given = {ast.unparse(item) for item in arguments(call)}
    is_imported = function.module.resolve(call.func) is not None
    if is_imported or "." not in ast.unparse(call.func):
        return not trained.isdisjoint(given) or not (given or is_imported)
    return receiver(call) in trained | {"self", "cls"}


def _brings_back(call: ast.Call, loop: ast.AST, layout: Layout, trained: set[str]) -> bool:
    """Whether each pass of a loop gives what is trained other weights: `net.load_state_dict(first)`.

    A target network, an average or the best model copies those of another model.
    """
    if last_name(call.func) != "load_state_dict" or receiver(call) not in trained:
        return False
    given = (node for item in call.args for node in ast.walk(item))
    if any(isinstance(node, ast.Call) and last_name(node.func) == "state_dict" for node in given):
        return False
    return not any(layout.holds(loop, test) for test in layout.conditions(call))


def scaler_calls(
    view: AmpView, *methods: str, within: Function | None = None
) -> Iterator[CallSite]:
    """The calls `scaler.<method>(...)` of a file, for receivers that are gradient scalers.

    Calls that a test expects to fail are left out.

    Args:
        within: only the calls of this function.
    """
    for site in view.once(_scaler_calls).get(within, ()):
        if site.method in methods:
            yield site


def _scaler_calls(view: AmpView) -> dict[Function | None, list[CallSite]]:
    """The scaler calls by function, all of them under None."""
    found: dict[Function | None, list[CallSite]] = {None: []}
    for site in view.module.calls:
        callee = site.node.func
        if site.method not in SCALER_METHODS or not isinstance(callee, ast.Attribute):
            continue
        is_statement = site.node in layout_of(site.function)  # not in a class body or a decorator
        if not is_statement or not view.roles.is_scaler(callee.value, site.function):
            continue
        if not expects_error(view, site):
            found[None].append(site)
            found.setdefault(site.function, []).append(site)
    return found


def expects_error(view: AmpView, site: CallSite, depth: int = 2) -> bool:
    """Whether a call stands in `with pytest.raises(...)`, or all calls of its function do.

    Args:
        depth: how many callers up this is looked for.
    """
    if _is_expected(site):
        return True
    if site.function is site.function.module.body or not depth:
        return False
    callers = view.objects.calls_of(site.function)
    return bool(callers) and all(expects_error(view, item, depth - 1) for item in callers)


def _is_expected(site: CallSite) -> bool:
    layout = layout_of(site.function)
    return any(
        isinstance(item.context_expr, ast.Call)
        and last_name(item.context_expr.func).startswith(("raises", "assertRaises"))
        for node in layout.ancestors(site.node)
        if isinstance(node, (ast.With, ast.AsyncWith))
        for item in node.items
    )


def trains(view: AmpView, site: CallSite) -> bool:
    """Whether the receiver of a `scale` call is surely no scaler of data.

    Either it was built as a gradient scaler, or the file also calls `step` or `unscale_`
    on the same expression.
    """
    callee = site.node.func
    if not isinstance(callee, ast.Attribute):
        return False
    if view.roles.role_of(callee.value, site.function) is Role.SCALER:
        return True
    return receiver(site.node) in view.once(_stepping)


def _stepping(view: AmpView) -> set[str]:
    """The receivers of `step` and `unscale_` calls, as the code writes them."""
    return {receiver(site.node) for site in scaler_calls(view, "step", "unscale_")}
