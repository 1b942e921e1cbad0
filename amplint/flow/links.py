"""What a misuse of the protocol rests on: who takes part, and which options have to be set."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping

from amplint.amp.links import CLAIMS
from amplint.amp.roles import Role
from amplint.amp.switches import is_switch
from amplint.code.arguments import parameters
from amplint.code.dataflow import bindings_of
from amplint.code.expressions import path_text
from amplint.code.module import CallSite, Class, Function
from amplint.findings import Link, Standing
from amplint.flow.call import callee_name
from amplint.flow.diagnosis import condition
from amplint.flow.events import Site
from amplint.flow.facts import UPDATE
from amplint.flow.program import Program
from amplint.flow.state import Step
from amplint.flow.typestates import EVERY
from amplint.protocol import Event
from amplint.values.provenance import Firmness

#: An object of the path: its role, and how the path tells it from others.
Participant = tuple[Role, str]

#: From the firmest to the weakest.
_STRENGTH = tuple(Standing)


def links_of(
    program: Program, path: Iterable[Step], steps: Iterable[Step], flags: Iterable[Step]
) -> tuple[Link, ...]:
    """The links of one violation.

    Args:
        path: everything that leads to it.
        steps: those steps of the path that show it.
        flags: those that are tests without which there would be no violation.
    """
    happened = [step[3] for step in steps if step[0] == "event"]
    events = [item[1] for item in happened]
    path = list(path)
    passed = {step[2].label: step[2] for step in path}
    return (
        *_objects(program, events, passed),
        *_options(program, flags),
        *_between_calls(program, path, events),
        *_plain_losses(program, (item[1] for item in happened if item[0] is Event.PLAIN_BACKWARD)),
        *_raised(steps),
    )


def _raised(steps: Iterable[Step]) -> Iterator[Link]:
    """That an exception is raised which a handler takes: a test of arguments may never be false."""
    for step in steps:
        if step[0] == "raise":
            yield Link("reach", Standing.OPEN, str(step[3]), "is ever raised there")


def _plain_losses(program: Program, sites: Iterable[Site]) -> Iterator[Link]:
    """That a loss from out of sight is not scaled yet: `trainer.backward(scaler.scale(loss))`."""
    for site in sites:
        callee = site.node.func if isinstance(site.node, ast.Call) else None
        if not isinstance(callee, ast.Attribute):
            continue
        origins = program.objects.origins.of(callee.value, site.function).origins
        if origins and all(_is_handed_in(item.expression, item.function) for item in origins):
            yield Link("value", Standing.GUESS, ast.unparse(callee.value), "is handed in unscaled")


def _is_handed_in(expression: ast.expr, function: Function) -> bool:
    """Whether an expression is a parameter of its function, or a part of one."""
    while isinstance(expression, (ast.Attribute, ast.Subscript)):
        expression = expression.value
    return isinstance(expression, ast.Name) and expression.id in parameters(function)


def _between_calls(program: Program, path: Iterable[Step], sites: Iterable[Site]) -> Iterator[Link]:
    """That nobody updates a scaler between two calls of a function that never does.

    Whoever hands it in may, to the function or to the constructor of its object, where no such
    caller is in sight.
    """
    repeated = {step[1]: step[2] for step in path if step[0] == "again"}.values()
    for function in repeated:
        if UPDATE in program.reach_of(function):
            continue
        made = function.owner and program.find_method(function.owner, "__init__")
        given = {
            f"{item.label}:{name}": name
            for item in (function, *([made] if made else []))
            for name in parameters(item)
        }
        for name in dict.fromkeys(given[site.scaler] for site in sites if site.scaler in given):
            yield Link("reach", Standing.GUESS, name, "is not updated between two calls")


def _objects(
    program: Program, sites: Iterable[Site], passed: Mapping[str, Function]
) -> Iterator[Link]:
    """One link for each scaler and optimizer: known as firmly as where it is known best."""
    found: dict[Participant, tuple[Standing, str]] = {}
    for site in sites:
        for role, identity, expression in _participants(program, site):
            standing = min(
                (
                    program.roles(function).standing_of(place, function, role)
                    for place, function in _places(expression, identity, site, passed)
                ),
                key=_STRENGTH.index,
            )
            if _may_step_otherwise(program, expression, site):
                standing = Standing.GUESS
            known = found.get((role, identity))
            if known is None or _STRENGTH.index(standing) < _STRENGTH.index(known[0]):
                found[role, identity] = standing, ast.unparse(expression)
    for (role, _), (standing, text) in found.items():
        yield Link("object", standing, text, CLAIMS[role])


def _may_step_otherwise(program: Program, expression: ast.expr, site: Site) -> bool:
    """Whether the `step` of an optimizer may be code of the project that does protocol work.

    `optimizer = engine.wrap(optimizer)` may give an object that steps through the scaler.
    """
    callee = site.node.func if isinstance(site.node, ast.Call) else None
    if not isinstance(callee, ast.Attribute) or callee.value is not expression:
        return False
    if _is_handed_back(program, expression, site.function):
        return True
    makers = (
        program.objects.symbol(origin.expression.func, origin.function)
        for origin in program.objects.origins.of(expression, site.function).origins
        if isinstance(origin.expression, ast.Call)
    )
    steps = (
        program.find_method(maker, callee.attr) for maker in makers if isinstance(maker, Class)
    )
    return any(step is not None and program.facts(step).interesting for step in steps)


def _is_handed_back(program: Program, expression: ast.expr, function: Function) -> bool:
    """Whether an object is what code out of sight made of it: `m, opt = library.wrap(m, opt)`."""
    path = path_text(expression)
    for binding in bindings_of(function).get(path or "", ()):
        value = getattr(binding.statement, "value", None)
        if not isinstance(value, ast.Call) or program.objects.targets(value, function).functions:
            continue
        given = (*value.args, *(word.value for word in value.keywords))
        if any(path_text(item) == path for item in given):
            return True
    return False


def absence(tests: tuple[str, ...]) -> Iterator[Link]:
    """That calls are left out by several tests at once, or for each element of a loop."""
    if tests:
        yield Link("reach", Standing.GUESS, " and ".join(tests), "leave every such call out")


def scaler_and_optimizer(program: Program, site: CallSite) -> Iterator[Link]:
    """Both objects of `scaler.step(optimizer)`, where no path shows more of them."""
    assert isinstance(site.node.func, ast.Attribute)
    roles = program.roles(site.function)
    for role, item in zip(
        (Role.SCALER, Role.OPTIMIZER), (site.node.func.value, *site.node.args[:1]), strict=False
    ):
        standing = roles.standing_of(item, site.function, role)
        yield Link("object", standing, ast.unparse(item), CLAIMS[role])


def _participants(program: Program, site: Site) -> Iterator[tuple[Role, str, ast.expr]]:
    """The scaler and the optimizer that a call of the protocol names.

    Of a backward the scaler that its loss comes from, in the same function.
    """
    call = site.node
    callee = call.func if isinstance(call, ast.Call) else None
    if not isinstance(call, ast.Call) or not isinstance(callee, ast.Attribute):
        return
    receiver = callee.value
    if callee.attr == "backward":
        origins = program.objects.origins.of(receiver, site.function).origins if site.scaler else ()
        scaled = [item.expression for item in origins if item.function is site.function]
        for made in (receiver, *scaled):
            if not isinstance(made, ast.Call) or callee_name(made) != "scale":
                continue
            if site.scaler and isinstance(made.func, ast.Attribute):
                yield Role.SCALER, site.scaler, made.func.value
        return
    if site.scaler and site.scaler_text == ast.unparse(receiver):
        yield Role.SCALER, site.scaler, receiver
    if site.optimizer in ("", EVERY) or not site.optimizer_text:
        return
    for expression in (receiver, *call.args):
        if ast.unparse(expression) == site.optimizer_text:
            yield Role.OPTIMIZER, site.optimizer, expression


def _places(
    expression: ast.expr, identity: str, site: Site, passed: Mapping[str, Function]
) -> Iterator[tuple[ast.expr, Function]]:
    """Where an object can be looked at: at the call, and where the path has it from."""
    yield expression, site.function
    label, _, path = identity.rpartition(":")
    if label in passed and path.replace(".", "").isidentifier():
        yield ast.parse(path, mode="eval").body, passed[label]


def _options(program: Program, flags: Iterable[Step]) -> Iterator[Link]:
    """The tests that come out as they must only where somebody sets an option.

    That AMP is switched on is no option here.
    """
    for _, test, function, holds in flags:
        if not _is_chosen(program, test, function, bool(holds)):
            continue
        if not is_switch(test, function, program.modules):
            text = condition((test, bool(holds)))
            yield Link("value", Standing.OPTION, text, "is set, which is not its default")


def _is_chosen(program: Program, test: ast.expr, function: Function, holds: bool) -> bool:
    truth = program.values.truth(test, function)
    firmness, other = truth.get(holds), truth.get(not holds)
    return firmness is Firmness.CHOICE and other is not None and other > Firmness.CHOICE
