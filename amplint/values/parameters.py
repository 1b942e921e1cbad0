"""From a parameter back to what one call, or all known callers, pass for it."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING

from amplint.code.arguments import parameters
from amplint.code.module import CallSite, Function
from amplint.values import options
from amplint.values.external import option_values
from amplint.values.provenance import (
    Activation,
    Back,
    Before,
    Firmness,
    Part,
    Step,
    left_out,
    passing_step,
)

if TYPE_CHECKING:
    from amplint.values.origins import Origins


def back_of_parameter(
    origins: Origins, function: Function, name: str, activation: Activation | None
) -> Back:
    """What a parameter may be, for one call or, without an activation, for every known one."""
    default = parameters(function)[name].default
    option = options.click_option(function, name)
    if option is not None:
        return option_values(option)
    if activation is not None:
        return _passed(origins, function, name, default, activation)
    known = origins.objects.arguments(function, name)
    places = [
        Before(
            value,
            site.function,
            None,
            steps=(_passed_by_all(site, function, name),),
        )
        for value, site in known.given
    ]
    if default is not None and known.omitted:
        site = known.omitted[0]
        left = left_out(default, function, name, site.node, site.function)
        steps = tuple(replace(step, into=function) for step in left.steps)
        places.append(replace(left, steps=steps))
    is_seen = bool(known.given or known.omitted)
    if is_seen and not origins.objects.is_run_by_tests(function):
        return Back(tuple(places), not known.unclear)
    if default is not None and not known.omitted:  # a user may call what tests call
        outside = function.parent or function.module.body
        places.append(Before(default, outside, None, Firmness.DEFAULT))
    return Back(tuple(places), False)


def _passed_by_all(site: CallSite, function: Function, name: str) -> Step:
    return passing_step(site.node, site.function, name, function, into=function, parameter=name)


def _passed(
    origins: Origins,
    function: Function,
    name: str,
    default: ast.expr | None,
    activation: Activation,
) -> Back:
    call, caller = activation.call, activation.caller
    bound = origins.objects.bind(call, caller, function)
    steps = (passing_step(call, caller, name, function),)
    if name in bound.given:
        return Back((Before(bound.given[name], caller, activation.outer, steps=steps),))
    if name in bound.defaults and default is not None:
        return Back((left_out(default, function, name, call, caller),))
    sources = bound.unknown.get(name, ())
    if len(sources) != 1 or isinstance(sources[0], ast.Starred):
        return Back((), False)
    before = Before(sources[0], caller, activation.outer, steps=steps, part=Part(name, True))
    return _with_default(origins, [before], default, function, name, activation)


def _with_default(
    origins: Origins,
    places: list[Before],
    default: ast.expr | None,
    function: Function,
    name: str,
    activation: Activation,
) -> Back:
    found = [origins.behind(place, None) for place in places]
    if all(item.complete and item.origins for item in found) or default is None:
        return Back(tuple(places))
    left = left_out(default, function, name, activation.call, activation.caller)
    complete = all(item.complete for item in found)
    return Back((*places, replace(left, firmness=Firmness.DEFAULT)), complete)
