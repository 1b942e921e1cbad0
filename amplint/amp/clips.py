"""Calls of torch that clip gradients, whole or number by number, and the limits that they get."""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass

from amplint.amp import names
from amplint.amp.view import AmpView
from amplint.code.arguments import Passed, written
from amplint.code.dataflow import arguments, bindings_of, names_in
from amplint.code.expressions import last_name, path_text
from amplint.code.module import CallSite, Function
from amplint.code.tree import walk
from amplint.values.provenance import Activation, Firmness, Origin

_LIMITS = ("max_norm", "clip_value", "gradient_clip_val")
#: Methods that keep each number of a tensor between two limits, in place.
CLAMPS = frozenset(("clamp_", "clip_"))
#: Torch's clipping functions by their last names, which libraries give to their own.
_NAMES = frozenset(name.rpartition(".")[2] for name in names.CLIP_FUNCTIONS)
#: The largest number of float16: who limits at it means what float16 can hold, not a size.
_LARGEST = 65504.0


@dataclass(frozen=True, slots=True, eq=False)
class _Bound:
    """A function of torch that clips, as a value.

    Args:
        name: that of the function.
        given: what `partial` has bound.
        function: where that is written.
        activation: for which call of that function.
    """

    name: str
    given: Passed
    function: Function
    activation: Activation | None


def torch_clips(view: AmpView) -> list[CallSite]:
    """Calls of torch's own clipping functions in a file, under whatever name they are kept."""
    return [site for site in view.module.calls if site in view.once(_clips)]


def clip_name(view: AmpView, clip: CallSite) -> str:
    """The name of the function that a clip runs."""
    bound = view.once(_clips).get(clip)
    return bound.name if bound is not None else clip.method


def has_other_limit(view: AmpView, clip: CallSite) -> bool:
    """Whether a clip's limit is infinite, so that it only measures, or mentions a scale."""
    bound = view.once(_clips).get(clip)
    early = bound.given if bound is not None else Passed()
    given = early.then(written(clip.node))
    limit = next((given.named[word] for word in _LIMITS if word in given.named), None)
    if limit is None and len(given.positional) > 1:
        limit = given.positional[1]
    if limit is None:
        return False
    parts = (node for node in walk(limit) if isinstance(node, ast.expr))
    if any("scale" in (path_text(node) or "") for node in parts):
        return True
    if bound is not None and limit in early.every():
        return view.values.of(limit, bound.function, bound.activation).only() == math.inf
    return view.values.of(limit, clip.function).only() == math.inf


def _clips(view: AmpView) -> dict[CallSite, _Bound | None]:
    """The clips of a file, each with the value that is called where the text does not say it."""
    found: dict[CallSite, _Bound | None] = {
        site: None for site in view.module.calls if site.dotted in names.CLIP_FUNCTIONS
    }
    others = (site for site in view.module.calls if site not in found and not site.dotted)
    known = ((site, _bound(view, site)) for site in others if _is_given_parameters(site))
    found.update((site, bound) for site, bound in known if bound is not None)
    return found


def _is_given_parameters(site: CallSite) -> bool:
    """Whether a call's arguments may be a model's parameters, by what its function binds them to."""
    given = [*arguments(site.node)]
    bound = bindings_of(site.function)
    words = {name for each in given for name in names_in(each)}
    known = [item.value for name in words for item in bound.get(name, ())]
    return any(
        isinstance(node, ast.Attribute) and node.attr in names.PARAMETERS
        for each in (*given, *filter(None, known))
        for node in walk(each)
    )


def _bound(view: AmpView, site: CallSite) -> _Bound | None:
    """The clipping function that a call runs, unless a test in sight has chosen to do nothing.

    A test between two ways of clipping may be one of the precision.
    """
    if path_text(site.node.func) is None:
        return None
    found = view.values.origins.of(site.node.func, site.function)
    clips = [(item, bound) for item in found.origins if (bound := _as_clip(item)) is not None]
    others = [item for item in found.origins if item not in [clip for clip, _ in clips]]
    if not found.complete or not clips or not all(map(_is_left_out, others)):
        return None
    return next((bound for item, bound in clips if _is_usual(view, item)), None)


def _is_left_out(origin: Origin) -> bool:
    """Whether a test chooses what is called, and this clips in no other way."""
    parts = (last_name(part) for part in walk(origin.expression) if isinstance(part, ast.expr))
    return bool(origin.conditions) and _NAMES.isdisjoint(parts)


def _as_clip(origin: Origin) -> _Bound | None:
    """The clipping function that an expression is, or binds arguments of."""
    node, given = origin.expression, Passed()
    while isinstance(node, ast.Call) and last_name(node.func) == "partial" and node.args:
        given, node = written(node).after(1).then(given), node.args[0]
    dotted = origin.function.module.resolve(node) or ""
    if dotted not in names.CLIP_FUNCTIONS:
        return None
    return _Bound(dotted.rpartition(".")[2], given, origin.function, origin.activation)


def _is_usual(view: AmpView, origin: Origin) -> bool:
    """Whether no test on the way of a value has to come out against its default."""
    for item in origin.conditions:
        truth = view.values.truth(item.test, item.function, origin.activation)
        other = truth.get(not item.side)
        if item.side not in truth:
            return False
        if truth[item.side] is Firmness.CHOICE and other not in (None, Firmness.CHOICE):
            return False
    return True


def says_the_same(limit: object) -> bool:
    """Whether a limit is none, or the same for scaled gradients as for others."""
    if not isinstance(limit, (int, float)):
        return limit is None
    return not limit or abs(limit) >= _LARGEST
