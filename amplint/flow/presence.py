"""What never happens to a scaler in the whole file: no path needed.

A scaler that is built here, kept here and stepped here, but that nothing here ever scales
with (or updates), is broken whatever the order of the calls is. Silent as soon as the
scaler may be used by code that is not in the file.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.amp.roles import Role, Roles, ScalerConstruction
from amplint.code.expressions import last_name, path_text
from amplint.code.module import CallSite, Function, Module
from amplint.flow.calls import HARMLESS
from amplint.flow.facts import (
    BACKWARD,
    PLAIN_STEP,
    SCALE,
    STEP,
    UNSCALE,
    UPDATE,
    sites_by_word,
)
from amplint.flow.program import Unit


def never_done(unit: Unit) -> Iterator[tuple[CallSite, str]]:
    """Yield (step site, missing word) of scalers that are never scaled or never updated.

    What the functions of other files do counts, if this one calls them.

    The word is `SCALE` or `UPDATE`; at most one site per scaler and word.
    """
    module, roles = unit.module, unit.roles
    sites = sites_by_word(module, roles)
    reach = frozenset().union(*(found.reach for found in unit.facts.values()))
    read = _methods_read(module, roles)
    missing = [word for word in (SCALE, UPDATE) if word not in reach | read]
    if not missing or STEP not in sites or _escapes(module, roles):
        return
    for construction in roles.constructions:
        if not is_private(construction):
            continue
        steps = [site for site in sites[STEP] if _receiver(site) == construction.target]
        if steps:
            yield steps[0], missing[0]


def never_stepped(unit: Unit) -> Iterator[tuple[CallSite, ScalerConstruction]]:
    """Yield the first `unscale_` of each scaler that updates and after which nothing steps.

    Silent as soon as anything in the file may be a step: whatever is called `step`, but a
    scheduler's. Without the `unscale_`, `update()` raises (AMP106).
    """
    module, roles = unit.module, unit.roles
    sites = sites_by_word(module, roles)
    reach = frozenset().union(*(found.reach for found in unit.facts.values()))
    if not {SCALE, BACKWARD} <= reach or reach & {STEP, PLAIN_STEP} or UNSCALE not in sites:
        return
    if steps_something(module, roles) or _escapes(module, roles):
        return
    for construction in roles.constructions:
        own = [
            [site for site in sites.get(word, ()) if _receiver(site) == construction.target]
            for word in (UNSCALE, UPDATE)
        ]
        if all(own):
            yield own[0][0], construction


def steps_something(module: Module, roles: Roles) -> bool:
    """Whether a file mentions a `step` of anything but a scheduler."""
    return any(
        isinstance(node, ast.Attribute)
        and node.attr == "step"
        and roles.role_of(node.value, function) is not Role.SCHEDULER
        for function in module.functions
        for node in function.nodes
    )


def _methods_read(module: Module, roles: Roles) -> set[str]:
    """Attributes of scalers that the file reads, called or not: `run = scaler.scale`."""
    return {
        node.attr
        for function in module.functions
        for node in function.nodes
        if isinstance(node, ast.Attribute) and roles.is_scaler(node.value, function)
    }


def _receiver(site: CallSite) -> str | None:
    return path_text(site.node.func.value) if isinstance(site.node.func, ast.Attribute) else None


def is_private(construction: ScalerConstruction) -> bool:
    """A local, or an attribute that only its own class should touch."""
    target = construction.target
    if target.startswith("self._"):
        return True
    in_function = construction.function.name != "<module>"
    return bool(target) and "." not in target and "[" not in target and in_function


def _escapes(module: Module, roles: Roles) -> bool:
    """Whether any scaler of the file may reach code outside of it."""
    own = {function.name for function in module.functions} | set(module.classes)
    for site in module.calls:
        if site.method in own or (HARMLESS.search(site.method) and not _binds_another(site, own)):
            continue
        arguments = (*site.node.args, *(keyword.value for keyword in site.node.keywords))
        if any(_is_scaler_place(argument, site, roles) for argument in arguments):
            return True
    return any(
        _mentions_scaler(value, function, roles)
        for function in module.functions
        for node in function.nodes
        for value in _stored_values(node)
    )


def _binds_another(site: CallSite, own: set[str]) -> bool:
    """`partial(tools.step, scaler=scaler)`: a function of another file gets what is bound."""
    bound = site.node.args[:1] if site.method == "partial" else []
    return any(last_name(item) not in own for item in bound)


def _is_scaler_place(node: ast.expr, site: CallSite, roles: Roles) -> bool:
    return path_text(node) is not None and roles.is_scaler(node, site.function)


def _stored_values(node: ast.AST) -> list[ast.expr]:
    """Values that leave the function: returned, yielded, or put into a container."""
    if isinstance(node, (ast.Return, ast.Yield)) and node.value is not None:
        return [node.value]
    if isinstance(node, (ast.List, ast.Tuple)) and isinstance(node.ctx, ast.Load):
        return node.elts
    if isinstance(node, ast.Dict):
        return node.values
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], (ast.Attribute, ast.Subscript)):
        return [node.value]
    return []


def _mentions_scaler(value: ast.expr, function: Function, roles: Roles) -> bool:
    return path_text(value) is not None and roles.is_scaler(value, function)
