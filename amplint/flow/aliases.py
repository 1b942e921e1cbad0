"""Other names for functions, classes and methods: variables, parameters, tables, bound arguments.

Which statements matter is decided by names, before any path is followed (`amplint.flow.facts`).
So a name that may stand for a function has to count as one: `finish = partial(step, scaler)`,
`STEPS = {"amp": amp_step}`, `fit(model, on_end=finish)`. Too many names only cost time: what
is really called, the paths say.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from amplint.amp.names import CLIP_FUNCTIONS
from amplint.amp.roles import Role, Roles
from amplint.code.arguments import bind, signature
from amplint.code.by_name import matching, read_by_name, written_by_name
from amplint.code.module import Function, Module, walk
from amplint.flow.call import callee_name
from amplint.flow.facts import CLIP, protocol_words

#: Methods of a participant that are protocol events, and the word of each.
BOUND_EVENTS = {
    "scale": "scale",
    "unscale_": "unscale",
    "step": "step",
    "update": "update",
    "backward": "backward",
    "zero_grad": "zero_grad",
}
#: Calls that hand on the elements of a container.
_PASSES_ON = frozenset({"enumerate", "zip", "items", "values", "get", "list", "tuple", "reversed"})
_FILLS = frozenset({"append", "add", "insert", "extend", "register", "setdefault"})

#: Nodes that bind a name or fill a parameter.
_TELLING = frozenset(
    {ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.For, ast.comprehension, ast.Call}
)
_CONSTANT = (ast.Constant, ast.BinOp, ast.Compare, ast.JoinedStr, ast.Lambda)


@dataclass(frozen=True, slots=True)
class Aliases:
    """Names of one module that may stand for something to be called.

    Args:
        targets: name -> names of functions, methods and classes that it may stand for.
        words: name -> protocol words of methods of scalers and optimizers that it may stand for.
        choices: names of objects whose class depends on the path.
        lambdas: names that the module binds once, to a lambda.
    """

    targets: Mapping[str, frozenset[str]]
    words: Mapping[str, frozenset[str]]
    choices: frozenset[str]
    lambdas: Mapping[str, ast.Lambda]

    def spread(self, known: Mapping[str, frozenset[str]]) -> dict[str, frozenset[str]]:
        """What the names may reach, from what their targets reach."""
        found = dict(self.words)
        for name, targets in self.targets.items():
            words = frozenset().union(*(known.get(target, frozenset()) for target in targets))
            if words:
                found[name] = found.get(name, frozenset()) | words
        return found


NO_ALIASES = Aliases({}, {}, frozenset(), {})


def find_aliases(module: Module, roles: Roles, imported: Iterable[str]) -> Aliases:
    """Collect the other names in a module.

    Args:
        imported: names that calls of imported functions and methods use.
    """
    own = {function.name for function in module.functions[1:]} | module.classes.keys()
    return _Collector(module, roles, own | set(imported)).collect()


@dataclass(frozen=True, slots=True, eq=False)
class _Told:
    """What the text of a module says about other names, whatever the roles in it are.

    Args:
        direct: name -> last names of what it may be.
        made: name -> names of the callees that may give it.
        lambdas: name -> the lambdas that it is bound to, None for anything else.
        closures: names with the lambdas in what they are bound to, and the functions around these.
        events: names with what they may be if no method of a participant is meant.
        clips: names that may be a function of torch that clips gradients.
    """

    direct: Mapping[str, set[str]]
    made: Mapping[str, set[str]]
    lambdas: Mapping[str, list[ast.Lambda | None]]
    closures: list[tuple[str, ast.Lambda, Function]]
    events: list[tuple[str, ast.Attribute, Function]]
    clips: set[str]


class _Collector:
    """Adds to what the text says what the roles of a module say."""

    def __init__(self, module: Module, roles: Roles, callables: set[str]) -> None:
        self.roles = roles
        self.callables = callables
        self.told = module.once(_told_by)
        self.direct: dict[str, set[str]] = {}
        self.words: dict[str, set[str]] = {}

    def collect(self) -> Aliases:
        told = self.told
        self.direct = {
            name: {found for other in others for found in self._looked_up(other)}
            for name, others in told.direct.items()
        }
        self.words = {name: {CLIP} for name in told.clips}
        for name, closure, function in told.closures:
            self._note_lambda(name, closure, function)
        for name, part, function in told.events:
            word = self._bound_event(part, function)
            if word is not None:
                self.words.setdefault(name, set()).add(word)
            elif part.attr != name:
                self.direct.setdefault(name, set()).add(part.attr)
        targets = _closed(self.direct, self.callables)
        others = {**dict.fromkeys(self.words, frozenset()), **_closed(self.direct, self.words)}
        words = {
            name: frozenset().union(*(self.words.get(other, ()) for other in (name, *more)))
            for name, more in others.items()
        }
        choices = {
            name
            for name, makers in told.made.items()
            if len(makers & self.callables) > 1 or makers & targets.keys()
        }
        lambdas = {
            name: found[0]
            for name, found in told.lambdas.items()
            if len(found) == 1 and found[0] is not None
        }
        return Aliases(targets, words, frozenset(choices), lambdas)

    def _looked_up(self, name: str) -> Iterable[str]:
        """A name, or all names that one with a `*` in it may be."""
        return matching(name, self.callables) if "*" in name else (name,)

    def _note_lambda(self, name: str, value: ast.Lambda, function: Function) -> None:
        """What calling a lambda does, under the name that it gets."""
        for node in walk(value.body):
            if isinstance(node, ast.Call):
                called = callee_name(node)
                words = protocol_words(node, called, function, self.roles)
                if words:
                    self.words.setdefault(name, set()).update(words)
                if called and called != name:
                    self.direct.setdefault(name, set()).add(called)

    def _bound_event(self, part: ast.Attribute, function: Function) -> str | None:
        """The protocol word of `scaler.step`, if the method belongs to a participant."""
        if part.attr == "backward":
            return BOUND_EVENTS[part.attr]
        if self.roles.is_scaler(part.value, function):
            return BOUND_EVENTS[part.attr]
        role = self.roles.role_of(part.value, function)
        if role is Role.OPTIMIZER or self.roles.is_optimizer(part.value, function):
            return "plain_step" if part.attr == "step" else BOUND_EVENTS[part.attr]
        return None


def _told_by(module: Module) -> _Told:
    return _Reader(module).told()


class _Reader:
    """Reads the text of a module."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.functions = _functions_by_name(module)
        self.methods = _methods_by_class(module)
        self.direct: dict[str, set[str]] = {}
        self.made: dict[str, set[str]] = {}
        self.lambdas: dict[str, list[ast.Lambda | None]] = {}
        self.closures: list[tuple[str, ast.Lambda, Function]] = []
        self.events: list[tuple[str, ast.Attribute, Function]] = []
        self.clips: set[str] = set()

    def told(self) -> _Told:
        for function in self.module.functions:
            for node in function.nodes:
                if type(node) not in _TELLING:  # of most nodes this is the only question
                    continue
                for name, value in self._bindings(node):
                    self._note(name, value, function)
        return _Told(self.direct, self.made, self.lambdas, self.closures, self.events, self.clips)

    def _bindings(self, node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from _named(target, node.value)
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
            yield from _named(node.target, node.value)
        elif isinstance(node, (ast.For, ast.comprehension)):
            yield from _named(node.target, node.iter)
        elif isinstance(node, ast.Call):
            yield from self._passed(node)

    def _passed(self, call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
        """Arguments by the names of the parameters; what a container takes in."""
        written = written_by_name(call)
        if written is not None:
            yield written[0].attr, written[1]
            return
        for word in call.keywords:
            if word.arg is not None:
                yield word.arg, word.value
        for function in self._called(call):
            bound = bind(call, function)
            for name, argument in bound.given.items():
                if name != bound.receiver:
                    yield name, argument
        if isinstance(call.func, ast.Attribute) and call.func.attr in _FILLS:
            for argument in call.args[-1:]:
                yield from _named(call.func.value, argument)

    def _called(self, call: ast.Call) -> Iterator[Function]:
        """Functions that a call may run, by name: those that fill their parameters otherwise."""
        name = callee_name(call)
        yield from self.functions.get(name, {}).values()
        if isinstance(call.func, ast.Attribute):  # perhaps `Class.method(...)`
            yield from self.methods.get((_last(call.func.value), name), ())

    def _note(self, name: str, value: ast.expr, function: Function) -> None:
        if isinstance(value, ast.Lambda) or name in self.lambdas:
            known = value if isinstance(value, ast.Lambda) else None
            self.lambdas.setdefault(name, []).append(known)
        self.closures += ((name, closure, function) for closure in _lambdas(value))
        if isinstance(value, _CONSTANT):
            return
        for maker in _makers(value):
            self.made.setdefault(name, set()).add(maker)
        for part in _parts(value):
            if self.module.resolve(part) in CLIP_FUNCTIONS:
                self.clips.add(name)
            if isinstance(part, ast.Attribute) and part.attr in BOUND_EVENTS:
                self.events.append((name, part, function))
                continue
            other = _last(part)
            if other and other != name:
                self.direct.setdefault(name, set()).add(other)


def _closed(direct: Mapping[str, set[str]], ends: Iterable[str]) -> dict[str, frozenset[str]]:
    """Names from which some end can be reached, with these ends."""
    ends = set(ends)
    found: dict[str, set[str]] = {}
    sources: dict[str, set[str]] = {}
    for name, others in direct.items():
        for other in others:
            sources.setdefault(other, set()).add(name)
            if other in ends:
                found.setdefault(name, set()).add(other)
    pending = list(found)
    while pending:
        other = pending.pop()
        for name in sources.get(other, ()):
            known = found.setdefault(name, set())
            if not found[other] <= known:
                known |= found[other]
                pending.append(name)
    return {name: frozenset(targets) for name, targets in found.items()}


def _functions_by_name(module: Module) -> dict[str, dict[object, Function]]:
    """Functions of a module by the names that calls of them use: one for each signature."""
    found: dict[str, dict[object, Function]] = {}
    for function in module.functions[1:]:
        names = [function.name]
        if function.owner is not None and function.name == "__init__":
            names.append(function.owner.name)
        for name in names:
            found.setdefault(name, {}).setdefault(signature(function), function)
    return found


def _methods_by_class(module: Module) -> dict[tuple[str, str], list[Function]]:
    """Methods of a module by the names of their classes and their own."""
    found: dict[tuple[str, str], list[Function]] = {}
    for function in module.functions[1:]:
        if function.owner is not None:
            found.setdefault((function.owner.name, function.name), []).append(function)
    return found


def _named(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """The last names that an assignment binds, each with what it may come from."""
    if isinstance(target, (ast.Tuple, ast.List)):
        parts = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
        for index, item in enumerate(target.elts):
            yield from _named(item, parts[index] if len(parts) == len(target.elts) else value)
        return
    while isinstance(target, (ast.Subscript, ast.Starred)):
        target = target.value
    name = _last(target)
    if name:
        yield name, value


def _parts(value: ast.expr) -> Iterator[ast.expr]:
    """Names and attributes that a value may be, or that its elements may be."""
    if isinstance(value, (ast.Name, ast.Attribute)):
        yield value
    elif isinstance(value, ast.IfExp):
        yield from _parts(value.body)
        yield from _parts(value.orelse)
    elif isinstance(value, (ast.BoolOp, ast.Dict)):
        for item in value.values:
            yield from _parts(item)
    elif isinstance(value, (ast.List, ast.Tuple)):
        for item in value.elts:
            yield from _parts(item)
    elif isinstance(value, (ast.Subscript, ast.Starred, ast.Await, ast.NamedExpr)):
        yield from _parts(value.value)
    elif isinstance(value, ast.Call):
        yield from _parts_of_call(value)


def _lambdas(value: ast.expr) -> Iterator[ast.Lambda]:
    """Lambdas that a value is, or that its elements are."""
    items = [value]
    if isinstance(value, (ast.List, ast.Tuple)):
        items = value.elts
    elif isinstance(value, ast.Dict):
        items = value.values
    elif isinstance(value, ast.IfExp):
        items = [value.body, value.orelse]
    return (item for item in items if isinstance(item, ast.Lambda))


def _parts_of_call(call: ast.Call) -> Iterator[ast.expr]:
    named = read_by_name(call)
    if named is not None:
        yield ast.Attribute(named[0], named[1], ast.Load())
        return
    name = callee_name(call)
    if name == "partial":
        for argument in call.args[:1]:
            yield from _parts(argument)
    elif name in _PASSES_ON:
        if isinstance(call.func, ast.Attribute):
            yield from _parts(call.func.value)
        for argument in call.args:
            yield from _parts(argument)


def _makers(value: ast.expr) -> Iterator[str]:
    """Names of the callees that may give a value."""
    if isinstance(value, ast.Call):
        yield callee_name(value)
    elif isinstance(value, ast.IfExp):
        yield from _makers(value.body)
        yield from _makers(value.orelse)


def _last(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
