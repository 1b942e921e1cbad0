"""What findings rest on: the objects of a training, each known as firmly as the program shows it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from amplint.amp.halves import Half
from amplint.amp.library_objects import library_class_of
from amplint.amp.ownership import Owned, owned_modules, runs_somewhere
from amplint.amp.reached_calls import ScalerCall
from amplint.amp.roles import Role
from amplint.amp.switches import is_switch
from amplint.amp.view import AmpView
from amplint.code.dataflow import arguments
from amplint.code.expressions import condition_text, last_name, path_text
from amplint.code.module import CallSite, Class, Function
from amplint.findings import Link, Standing
from amplint.values.conditions import conditions_at
from amplint.values.provenance import Condition, Firmness

#: What a link says of an object that has a role.
CLAIMS = {Role.SCALER: "is the gradient scaler", Role.OPTIMIZER: "is the optimizer"}
#: Methods that an object has because it is a module.
_OF_MODULES = frozenset(("parameters", "named_parameters", "train", "eval", "state_dict"))
_STANDINGS = {
    Firmness.FIXED: Standing.CODE,
    Firmness.DEFAULT: Standing.CODE,
    Firmness.CHOICE: Standing.OPTION,
}
#: Functions and methods that say what a tensor is like, and nothing of its numbers.
_ABOUT_SHAPE = frozenset(
    ("dim", "ndimension", "size", "numel", "len", "isinstance", "hasattr", "is_tensor")
    + ("is_floating_point", "get_device", "type")
)


def participant(
    view: AmpView, expression: ast.expr, function: Function, role: Role, text: str = ""
) -> Link:
    """That an expression is the scaler, or the optimizer, where a function reads it.

    Args:
        text: how the checked file writes it, where `function` lies elsewhere.
    """
    places = _places(view, expression, function)
    standings = (
        view.roles_of(where.module).standing_of(place, where, role) for place, where in places
    )
    known = next((item for item in standings if item is not Standing.GUESS), Standing.GUESS)
    return Link("object", known, text or ast.unparse(expression), CLAIMS[role])


def _places(
    view: AmpView, expression: ast.expr, function: Function
) -> Iterator[tuple[ast.expr, Function]]:
    """Where one object can be looked at: here, in callers, and in functions that are given it."""
    yield expression, function
    for alias in view.objects.origins.aliases(expression, function):
        yield alias.expression, alias.function
    path = path_text(expression)
    for site in function.module.calls:
        if site.function is not function or path not in map(path_text, arguments(site.node)):
            continue
        callee = view.objects.callee(site.node, function)
        given = view.objects.bind(site.node, function, callee).given if callee is not None else {}
        for name, value in given.items():
            if callee is not None and path_text(value) == path:
                yield ast.Name(name, ast.Load()), callee


def scaler_named(view: AmpView, text: str, function: Function) -> Link:
    """That what a function writes as `text` is the scaler."""
    try:
        expression = ast.parse(text, mode="eval").body
    except SyntaxError:
        return Link("object", Standing.GUESS, text, CLAIMS[Role.SCALER])
    return participant(view, expression, function, Role.SCALER)


def stepped(view: AmpView, call: ScalerCall | CallSite) -> tuple[Link, ...]:
    """The scaler and the optimizer of `scaler.step(optimizer)`, or of its `unscale_`."""
    if isinstance(call, CallSite):
        node, scaler, optimizer = call.node, "", ""
    else:
        node, scaler, optimizer = call.method, call.scaler, call.given
    assert isinstance(node.func, ast.Attribute)
    links = [participant(view, node.func.value, call.function, Role.SCALER, scaler)]
    if node.args:
        links.append(participant(view, node.args[0], call.function, Role.OPTIMIZER, optimizer))
    return tuple(links)


def data_decides(node: ast.AST, function: Function, tensors: Iterable[ast.expr]) -> Iterator[Link]:
    """That a node runs, where a test before it computes something of the tensors that it gets.

    `if scores.max() > 1`: what numbers there are is not in the text.
    """
    used = {
        each.id for tensor in tensors for each in ast.walk(tensor) if isinstance(each, ast.Name)
    }
    for item in conditions_at(node, function):
        calls = [each for each in ast.walk(item.test) if isinstance(each, ast.Call)]
        numbers = (call for call in calls if last_name(call.func) not in _ABOUT_SHAPE)
        read = {
            each.id for call in numbers for each in ast.walk(call) if isinstance(each, ast.Name)
        }
        if read & used:
            yield Link("reach", Standing.GUESS, ast.unparse(item.test), "comes out so")


def runs(call: ScalerCall) -> Iterator[Link]:
    """That a call in another function runs, where tests that nothing in sight decides allow it."""
    for test in call.tests:
        yield Link("reach", Standing.GUESS, ast.unparse(test), "lets the call run")


def receiver_optimizer(view: AmpView, call: ast.Call, function: Function) -> Link:
    """The optimizer of `optimizer.step()`."""
    assert isinstance(call.func, ast.Attribute)
    return participant(view, call.func.value, function, Role.OPTIMIZER)


def half_parameters(view: AmpView, owned: Owned, half: Half) -> Iterator[Link]:
    """That an optimizer owns a module, and that the module is half."""
    yield proved("object", owned.module.expression, "is what the optimizer owns")
    if owned.unseen:
        maker = ast.unparse(owned.optimizer.expression)
        yield Link("effect", Standing.OPEN, maker, "may leave parameters out")
    test = half.conditions[0].test if half.conditions else half.node
    yield held(half.firmness, " ".join(ast.unparse(test).split()), "makes it half")


def model(view: AmpView, expression: ast.expr, function: Function, *, is_run: bool = False) -> Link:
    """That an expression is a module, where a function reads it.

    Args:
        is_run: whether a loss is known to be computed by it.
    """
    standing = _standing_of_model(view, expression, function)
    if standing is Standing.GUESS and is_run:
        standing = Standing.USE
    return Link("object", standing, ast.unparse(expression), "is the model")


def _standing_of_model(view: AmpView, expression: ast.expr, function: Function) -> Standing:
    owner = view.objects.class_of(expression, function)
    if owner is not None and view.objects.is_module(owner):
        return Standing.CODE
    for origin in view.objects.origins.of(expression, function).origins:
        built = origin.expression
        if not isinstance(built, ast.Call):
            continue
        made = view.objects.symbol(built.func, origin.function)
        if isinstance(made, Class) and view.objects.is_module(made):
            return Standing.CODE
        if (origin.function.module.resolve(built.func) or "").startswith("torch.nn."):
            return Standing.CODE
    path = path_text(expression)
    is_used = any(
        isinstance(site.node.func, ast.Attribute)
        and site.method in _OF_MODULES
        and path_text(site.node.func.value) == path
        for site in function.module.calls
    )
    return Standing.USE if path is not None and is_used else Standing.GUESS


def reached(
    view: AmpView, optimizer: ast.expr, call: ast.AST, function: Function
) -> Iterator[Link]:
    """That a backward gives gradients to what an optimizer owns, where nothing in sight shows it.

    A step that always runs shows it itself: it raises without gradients, and nobody could train.

    Args:
        call: the step.
    """
    every = list(owned_modules(view, optimizer, function))
    shown = any(runs_somewhere(view, owned, function) for owned in every)
    if not every:
        shown = not conditions_at(call, function)
    if not shown:
        yield Link("reach", Standing.GUESS, ast.unparse(optimizer), "gets gradients of this loss")


def library_object(view: AmpView, expression: ast.expr, function: Function) -> Link:
    """That an expression is an object of a training library: by its constructor, or its name."""
    built = any(
        isinstance(item.expression, ast.Call)
        for item in view.objects.origins.of(expression, function).origins
    )
    row = library_class_of(expression, function, view.objects)
    standing = Standing.LIBRARY if built and row is not None else Standing.GUESS
    name = row.name.rpartition(".")[2] if row is not None else "library's object"
    return Link("object", standing, ast.unparse(expression), f"is the {name}")


def held(firmness: Firmness, subject: str, claim: str) -> Link:
    """That a value is what a finding says, as firmly as it holds."""
    return Link("value", _STANDINGS[firmness], subject, claim)


def chosen(view: AmpView, conditions: Iterable[Condition]) -> Iterator[Link]:
    """The tests that come out as they must only where somebody sets an option."""
    for item in conditions:
        truth = view.values.truth(item.test, item.function)
        other = truth.get(not item.side)
        if truth.get(item.side) is Firmness.CHOICE and other not in (None, Firmness.CHOICE):
            text = condition_text(item.test, item.side)
            yield Link("value", Standing.OPTION, text, "is set, which is not its default")


def chosen_beside_amp(view: AmpView, conditions: Iterable[Condition]) -> Iterator[Link]:
    """The same without the tests by which AMP is on, which is what amplint is about."""
    for item in conditions:
        modules = (view.module, item.function.module)
        if not (item.side and is_switch(item.test, item.function, modules)):
            yield from chosen(view, (item,))


def proved(kind: str, subject: ast.AST, claim: str) -> Link:
    """What the code in sight says by itself: a rule has read it there."""
    return Link(kind, Standing.CODE, " ".join(ast.unparse(subject).split()), claim)
