"""The relevance slice: which statements of a function can change a protocol state.

Kept are statements with a protocol call, a call that may reach one, a way out of a block
that decides about one, and assignments to names that guards, receivers or their
definitions mention. Everything else is never interpreted.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

from amplint.amp.roles import Role, Roles, scaler_name
from amplint.amp.uses import uses_of
from amplint.code.arguments import parameters
from amplint.code.dataflow import bindings_of, fills_of
from amplint.code.expressions import callee_of, last_name
from amplint.code.module import Function, walk
from amplint.code.registries import request_of
from amplint.code.statements import assignments_of, blocks_of, expressions_of
from amplint.code.tree import NESTED
from amplint.flow.call import argument_expressions, callee_name, given_to
from amplint.flow.carriers import ASKS, carriers, passed_parts
from amplint.flow.facts import is_gradient, protocol_word
from amplint.flow.state import Guards
from amplint.flow.switch_names import switch_names

#: Callee names that may do protocol work although nobody knows what they are.
SUSPECT = re.compile(
    r"backward|backprop|step|optim|scal|clip|grad|update|train.|accum|zero", re.IGNORECASE
)
#: Callee names that do protocol work whoever they belong to.
RUNNERS = frozenset(
    {"backward", "zero_grad", "optimizer_step", "call_hook", "run_hook", "manual_backward"}
)
#: Methods that only models have.
PARAMETERS = frozenset({"parameters", "named_parameters"})
#: Helpers of other files that clip, by the name they usually have.
CLIP_HELPER = re.compile(r"^_?clip_?grad")
#: Methods after which a container holds something, and those after which nobody knows what.
FILLS = frozenset({"append", "add", "extend", "appendleft", "setdefault"})
REORDERS = frozenset({"insert", "remove", "pop", "clear", "sort", "reverse"})
EXITS = (ast.Return, ast.Break, ast.Continue, ast.Raise)
VALUE_FORMS = (
    ast.Name,
    ast.Attribute,
    ast.Subscript,
    ast.BoolOp,
    ast.Compare,
    ast.IfExp,
    ast.UnaryOp,
    ast.BinOp,
    ast.NamedExpr,
    ast.Tuple,
    ast.List,
)


@dataclass(frozen=True, slots=True)
class Slice:
    """What to interpret of one function.

    Args:
        kept: ids of the statements that matter.
        calls: ids of expressions that hold a call that matters.
        wanted: ids of calls whose result a test may read.
        guards: last names in tests that decide about events or ways out; numbers and flags
            under these names stay apart when states are merged.
    """

    kept: frozenset[int]
    calls: frozenset[int]
    wanted: frozenset[int]
    guards: Guards


class Slicer:
    """Slices the functions of one module.

    Args:
        roles: roles of the module.
        tested: attributes that functions with protocol calls test, in any module of the
            program; filled while it grows.
        deciding: those of them whose test decides about a protocol call; filled likewise.
        handed: names of methods and other names of functions that reach the protocol, in any
            module of the program; filled likewise.
        models: names of what parameters are asked of; those of this module are put in.

    Attributes:
        interesting: names of functions and classes that reach the protocol.
        lasting: names under which values stay apart in every function.
    """

    def __init__(
        self,
        roles: Roles,
        tested: set[str],
        deciding: set[str],
        handed: set[str],
        models: set[str],
    ) -> None:
        self.roles = roles
        #: Whether the module holds `:=` at all: hardly any does, and looking for it is dear.
        self.binds_inside = ":=" in roles.module.source
        self.handed = handed
        self.interesting: frozenset[str] = frozenset()
        self.participants = frozenset(self._participants(roles))
        self.lasting = self._lasting(roles)
        self.tested = tested
        self.deciding = deciding
        self.models = models
        models |= {
            last_name(site.node.func.value)
            for site in roles.module.calls
            if site.method in PARAMETERS and isinstance(site.node.func, ast.Attribute)
        } - {"", "self"}
        self._known_carriers: tuple[frozenset[str], frozenset[str]] | None = None

    def _participants(self, roles: Roles) -> Iterator[str]:
        """Names of scalers and optimizers in protocol calls: their aliases matter everywhere."""
        for site in roles.module.calls:
            if protocol_word(site.node, site.method, site.function, roles) is None:
                continue
            places = [site.node.func, *site.node.args[:1]]
            for place in places:
                if isinstance(place, (ast.Attribute, ast.Name, ast.Subscript)):
                    yield from names_in(place)

    def add_lasting(self, names: AbstractSet[str]) -> None:
        """Let values under these names stay apart, too: they hold functions, or choose them."""
        known = self.lasting
        self.lasting = known._replace(names=known.names | names, near=known.near | names)

    def _lasting(self, roles: Roles) -> Guards:
        """Names under which values stay apart in every function: scalers, tested attributes."""
        scalers = {
            path.rpartition(".")[2]
            for (_, path), found in roles.by_path.items()
            if Role.SCALER in found
        } | {path.rpartition(".")[2] for _, path in roles.module.once(uses_of).scalers}
        tested = {
            name
            for node in roles.module.nodes()
            if isinstance(node, (ast.If, ast.While, ast.IfExp))
            for name in _parts_read(node.test)
        }
        names = frozenset(scalers | tested | switch_names(roles))
        return Guards(names, frozenset(scalers), self.participants)

    def slice(self, function: Function) -> Slice:
        """Slice one function (see the module docstring)."""
        work = _Work(self, function)
        work.mark(function.body)
        work.close()
        kept = frozenset(work.keep(function.body))
        scalers = {name for name in work.relevant if scaler_name(name)}
        filled = fills_of(function).keys() & parameters(function).keys()  # a caller may test them
        guards = Guards(
            frozenset(work.guards | scalers | filled | self.tested | self.lasting.names),
            frozenset(work.near | scalers | filled | self.deciding | self.lasting.near),
            self.participants,
        )
        return Slice(kept, frozenset(work.calls), frozenset(work.wanted), guards)

    def matters(self, call: ast.Call, function: Function) -> bool:
        """Whether a call may change a protocol state."""
        callee = callee_of(call)
        name = callee_name(call)
        if self.decides(call, function) or name in RUNNERS or name == "__init__":
            return True  # a base class's constructor may build the scaler
        if isinstance(callee, ast.Subscript):
            return True  # a table of functions, of this file or another
        if request_of(call, function) is not None:
            return True
        if self._is_handed_in(call, name, function):
            return True
        if is_own_call(callee) and SUSPECT.search(name):
            return True
        if CLIP_HELPER.search(name):
            return True
        if self._may_use_scaler(call) or self.models_in(call):
            return True
        return any(self._gives_participant(item, function) for item in argument_expressions(call))

    def decides(self, call: ast.Call, function: Function) -> bool:
        """Whether a call does protocol work, runs a function that may, or makes a participant."""
        callee, name = callee_of(call), callee_name(call)
        if name in self.interesting or protocol_word(call, name, function, self.roles):
            return True
        if self.roles.call_role(call, function) in (Role.SCALER, Role.OPTIMIZER):
            return True
        return isinstance(callee, ast.Attribute) and self._is_participant(callee.value, function)

    def _may_use_scaler(self, call: ast.Call) -> bool:
        """Whether unknown code gets a scaler by a call, or has got one, judged by names."""
        receiver = call.func.value if isinstance(call.func, ast.Attribute) else call.func
        known = self._carriers()
        if last_name(receiver) in known and not ASKS.search(callee_name(call)):
            return True
        return any(
            last_name(part) in known or last_name(part) == "self"
            for argument in argument_expressions(call)
            for part in passed_parts(argument)
        )

    def models_in(self, call: ast.Call) -> list[ast.expr]:
        """Models that a call is given with something to run them on, if it is no call of torch.

        A model is what parameters are asked of anywhere in the program.
        """
        given = argument_expressions(call)
        found: list[ast.expr] = [
            part
            for part in given
            if isinstance(part, (ast.Name, ast.Attribute)) and last_name(part) in self.models
        ]
        if not found or all(part in found or isinstance(part, ast.Constant) for part in given):
            return []
        dotted = self.roles.module.resolve(call.func) or ""
        return [] if dotted.partition(".")[0] == "torch" else found

    def _carriers(self) -> frozenset[str]:
        if self._known_carriers is None or self._known_carriers[0] != self.interesting:
            found = carriers(self.roles, self.interesting)
            self._known_carriers = (self.interesting, found)
        return self._known_carriers[1]

    def _is_handed_in(self, call: ast.Call, name: str, function: Function) -> bool:
        """Whether a call runs a parameter, or a method that some class of the program has."""
        callee = call.func
        if isinstance(callee, ast.Name):
            if is_for_effect(call, function) and _is_variable(name, function):
                return True
            suspect = name in self.handed or SUSPECT.search(name) is not None
            return suspect and name in parameters(function)
        return name in self.handed or _runs_parameter(call, function)

    def _gives_participant(self, argument: ast.expr, function: Function) -> bool:
        """A scaler or an optimizer, or a lambda that runs one."""
        if isinstance(argument, ast.Lambda):
            return any(self._is_participant(part, function) for part in passed_parts(argument))
        return self._is_participant(argument, function)

    def _is_participant(self, expression: ast.expr, function: Function) -> bool:
        if not isinstance(expression, (ast.Name, ast.Attribute, ast.Subscript)):
            return False
        return self.roles.is_scaler(expression, function) or self.roles.is_optimizer(
            expression, function
        )


def tested_beside_events(roles: Roles) -> set[str]:
    """Attributes that are tested in the functions of a module that hold a protocol call."""
    return {
        part.attr
        for function in _protocol_calls(roles)
        for node in function.nodes
        if isinstance(node, (ast.If, ast.While, ast.IfExp))
        for part in walk(node.test)
        if isinstance(part, ast.Attribute)
    }


def tested_around_events(roles: Roles) -> set[str]:
    """Those of `tested_beside_events` whose test decides whether a protocol call runs."""
    return {
        part.attr
        for function, calls in _protocol_calls(roles).items()
        for node in function.nodes
        if isinstance(node, (ast.If, ast.While, ast.IfExp))
        if any(id(inner) in calls for inner in walk(node))
        for part in walk(node.test)
        if isinstance(part, ast.Attribute)
    }


def _protocol_calls(roles: Roles) -> dict[Function, set[int]]:
    """The ids of protocol calls in each function of a module that has one, and tests attributes."""
    found: dict[Function, set[int]] = {}
    for site in roles.module.calls:
        if not site.function.once(_tests_attributes):
            continue
        if protocol_word(site.node, site.method, site.function, roles) is not None:
            found.setdefault(site.function, set()).add(id(site.node))
    return found


def _tests_attributes(function: Function) -> bool:
    return any(
        isinstance(part, ast.Attribute)
        for node in function.nodes
        if isinstance(node, (ast.If, ast.While, ast.IfExp))
        for part in walk(node.test)
    )


class Matter(IntEnum):
    """What a statement means for the protocol."""

    NONE = 0
    SOME = 1  # unknown code that may work on it, or the end of the program
    EVENT = 2  # a protocol call, a function that may reach one, or a way past them


class _Work:
    """One slicing run."""

    def __init__(self, slicer: Slicer, function: Function) -> None:
        self.slicer = slicer
        self.function = function
        self.calls: set[int] = set()
        self.relevant: set[str] = slicer.tested | slicer.lasting.names | slicer.participants
        if function.name == "__init__":  # in which attributes an object keeps its modules
            self.relevant |= slicer.models
        self.guards: set[str] = set()
        self.near: set[str] = set()
        self.assignments: list[tuple[set[str], set[str]]] = []
        self.calls_bound: list[tuple[set[str], ast.Call]] = []
        self.wanted: set[int] = set()

    def mark(self, body: Iterable[ast.stmt]) -> Matter:
        """Collect matter of a block: the most that it holds."""
        return max(map(self._mark_statement, body), default=Matter.NONE)

    def _mark_statement(self, statement: ast.stmt) -> Matter:
        if isinstance(statement, NESTED):
            return Matter.NONE
        matter = max(self._mark_expressions(statement), self._mark_uncalled(statement))
        for block in blocks_of(statement):
            matter = max(matter, self.mark(block))
        self._read_assignment(statement)
        if isinstance(statement, EXITS):
            ends = isinstance(statement, ast.Raise)
            matter = max(matter, Matter.SOME if ends else Matter.EVENT)
        if matter:
            self._read_guard(statement, near=matter is Matter.EVENT)
        return matter

    def _mark_expressions(self, statement: ast.stmt) -> Matter:
        return max(map(self._mark_expression, expressions_of(statement)), default=Matter.NONE)

    def _mark_uncalled(self, statement: ast.stmt) -> Matter:
        """What a statement is that names a backward and forgets to call it."""
        place = uncalled_backward(statement)
        if place is None:
            return Matter.NONE
        self.calls.add(id(statement.value))  # type: ignore[attr-defined]
        self.relevant.update(names_in(place))
        return Matter.EVENT

    def _mark_expression(self, node: ast.AST) -> Matter:
        if isinstance(node, ast.Lambda):
            return Matter.NONE
        found = max(map(self._mark_expression, ast.iter_child_nodes(node)), default=Matter.NONE)
        if isinstance(node, ast.Call) and self.slicer.matters(node, self.function):
            decides = self.slicer.decides(node, self.function)
            found = max(found, Matter.EVENT if decides else Matter.SOME)
            self.relevant.update(names_in(node))
            if callee_name(node) in self.slicer.interesting:
                self._read_arguments(node)
        if isinstance(node, ast.IfExp) and found:
            self._guard(node.test, near=found is Matter.EVENT)
        if found:
            self.calls.add(id(node))
        return found

    def _read_arguments(self, call: ast.Call) -> None:
        """What a function of the program is given may decide a test in it."""
        for argument in given_to(call):
            if isinstance(argument, (ast.Name, ast.Attribute)):
                self.guards.update(names_in(argument))
                self.relevant.update(names_in(argument))

    def _read_assignment(self, statement: ast.stmt) -> None:
        for target, value in assignments_of(statement, inside=self.slicer.binds_inside):
            names = set(names_in(target))
            self.assignments.append((names, value_names(value)))
            if isinstance(value, ast.Call):
                self.calls_bound.append((names, value))

    def _guard(self, test: ast.expr, *, near: bool) -> None:
        names = names_in(test)
        self.guards |= names
        self.relevant |= names
        if near:
            self.near |= names

    def _read_guard(self, statement: ast.stmt, *, near: bool) -> None:
        if isinstance(statement, (ast.If, ast.While, ast.Assert)):
            self._guard(statement.test, near=near)
        elif isinstance(statement, (ast.For, ast.AsyncFor)):
            self.relevant.update(names_in(statement.iter))
        elif isinstance(statement, (ast.With, ast.AsyncWith)):
            for item in statement.items:
                self.relevant.update(names_in(item.context_expr))
        elif isinstance(statement, ast.Match):
            self._guard(statement.subject, near=near)
        elif isinstance(statement, ast.Return) and statement.value is not None:
            self.relevant.update(value_names(statement.value))
            self.guards |= _handed_back(statement.value)
            self.near |= _handed_back(statement.value)
        self.relevant.update(self.guards)

    def close(self) -> None:
        """Names that define relevant names are relevant."""
        changed = True
        while changed:
            changed = False
            for targets, sources in self.assignments:
                if targets & self.relevant and not sources <= self.relevant:
                    self.relevant |= sources
                    changed = True
                told = targets & self.guards or targets & self.slicer.tested
                if told and not sources <= self.guards:
                    self.guards |= sources
                    changed = True
                if targets & self.near and not sources <= self.near:
                    self.near |= sources
                    changed = True
        self.wanted = {id(call) for names, call in self.calls_bound if names & self.guards}
        self.calls |= self.wanted

    def keep(self, body: Iterable[ast.stmt]) -> Iterator[int]:
        """Ids of the statements to interpret, enclosing ones included."""
        for statement in body:
            inner = [kept for block in blocks_of(statement) for kept in self.keep(block)]
            if inner or self._is_kept(statement):
                yield id(statement)
                yield from inner

    def _is_kept(self, statement: ast.stmt) -> bool:
        if isinstance(statement, NESTED):
            return False
        if isinstance(statement, EXITS):
            return True
        if any(id(expression) in self.calls for expression in expressions_of(statement)):
            return True
        if fills_container(statement):
            place = statement.value.func.value  # type: ignore[attr-defined]
            reached = _is_own(place) or _root(place) in parameters(self.function)
            return reached or bool(names_in(place) & self.relevant)
        if updates_container(statement):
            return bool(names_in(statement.value.func.value) & self.relevant)  # type: ignore[attr-defined]
        if isinstance(statement, ast.Assert):
            return bool(names_in(statement.test) & self.relevant)
        return any(
            names_in(target) & self.relevant or is_gradient(target) or self._keeps(target, value)
            for target, value in assignments_of(statement, inside=self.slicer.binds_inside)
        )

    def _keeps(self, target: ast.expr, value: ast.expr | None) -> bool:
        """`self.trainer = trainer`: another file may reach the protocol through the object.

        `self.callbacks = []` and `self.callbacks = callbacks or []`: another method may fill it.
        """
        if self.function.name != "__init__" or not isinstance(target, ast.Attribute):
            return False
        if isinstance(value, ast.BoolOp):
            value = value.values[-1]
        if isinstance(value, ast.Name):
            return value.id in parameters(self.function)
        return isinstance(value, ast.List) and not value.elts


def uncalled_backward(statement: ast.stmt) -> ast.expr | None:
    """`loss` of the statement `loss.backward`, which does nothing; None of any other."""
    value = statement.value if isinstance(statement, ast.Expr) else None
    is_named = isinstance(value, ast.Attribute) and value.attr == "backward"
    return value.value if is_named else None  # type: ignore[union-attr]


def fills_container(statement: ast.stmt) -> bool:
    """Whether a statement only changes what a container holds: `pending.append(x)`."""
    return _is_method_call(statement, FILLS | REORDERS)


def updates_container(statement: ast.stmt) -> bool:
    """Whether a statement may put something into a dict: `options.update(more)`."""
    return _is_method_call(statement, frozenset({"update"}))


def _is_method_call(statement: ast.stmt, names: frozenset[str]) -> bool:
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return False
    callee = statement.value.func
    return isinstance(callee, ast.Attribute) and callee.attr in names


def _is_own(place: ast.expr) -> bool:
    """`self.callbacks`, `self.table[name]`: another method may run what is put in there."""
    return not isinstance(place, ast.Name) and _root(place) == "self"


def _root(place: ast.expr) -> str:
    """The name that a place begins with; "" if it begins with something else."""
    while isinstance(place, (ast.Attribute, ast.Subscript, ast.Call)):
        place = place.func if isinstance(place, ast.Call) else place.value
    return place.id if isinstance(place, ast.Name) else ""


def is_for_effect(call: ast.Call, function: Function) -> bool:
    """Whether nobody takes what a call returns: it is there for what it does."""
    return id(call) in _effects_of(function)


@lru_cache(maxsize=256)
def _effects_of(function: Function) -> frozenset[int]:
    statements = (node.value for node in function.nodes if isinstance(node, ast.Expr))
    return frozenset(id(value) for value in statements if isinstance(value, ast.Call))


def _runs_parameter(call: ast.Call, function: Function) -> bool:
    """`stepper.finish()`, for its effect: a caller may have given a scaler to the parameter."""
    place = call.func.value if isinstance(call.func, ast.Attribute) else None
    if not isinstance(place, ast.Name) or place.id not in parameters(function):
        return False
    name = callee_name(call)
    return is_for_effect(call, function) and not ASKS.search(name) and place.id != "self"


def _is_variable(name: str, function: Function) -> bool:
    """Whether a name is a parameter, or what a loop takes out of a container."""
    if name in parameters(function):
        return True
    found = bindings_of(function).get(name, ())
    return any(isinstance(binding.statement, (ast.For, ast.AsyncFor)) for binding in found)


def is_own_call(callee: ast.expr) -> bool:
    """Whether a callee is `self.method` or `super().method`."""
    if not isinstance(callee, ast.Attribute):
        return False
    place = callee.value
    if isinstance(place, ast.Call):
        return isinstance(place.func, ast.Name) and place.func.id == "super"
    return isinstance(place, ast.Name) and place.id == "self"


def names_in(node: ast.AST) -> set[str]:
    """Identifiers in an expression: names, attributes and keys, without `self`."""
    found = {child.id for child in walk(node) if isinstance(child, ast.Name)}
    found.update(_parts_read(node))
    found.discard("self")
    return found


def _parts_read(node: ast.AST) -> Iterator[str]:
    """Attributes and keys in an expression."""
    for child in walk(node):
        if isinstance(child, ast.Attribute):
            yield child.attr
        elif isinstance(child, ast.Subscript) and isinstance(child.slice, ast.Constant):
            yield str(child.slice.value)
        elif isinstance(child, ast.Call) and callee_name(child) in _BY_KEY:
            yield from _keys(child.args[:2])
        elif isinstance(child, ast.Compare):
            yield from _keys([child.left])


#: Calls that read a part of an object by its name, as an argument says it.
_BY_KEY = frozenset({"get", "getattr", "hasattr", "getenv"})


def _keys(nodes: list[ast.expr]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _handed_back(value: ast.expr) -> set[str]:
    """Names that a function returns as they are: a test of its caller may read them."""
    items = value.elts if isinstance(value, ast.Tuple) else [value]
    return {item.id for item in items if isinstance(item, ast.Name)}


def value_names(value: ast.expr | None) -> set[str]:
    """Names that a value depends on as far as the interpreter evaluates it."""
    if value is None or not isinstance(value, (*VALUE_FORMS, ast.Call)):
        return set()
    if isinstance(value, ast.Call):
        switches = [word.value for word in value.keywords if word.arg == "enabled"]
        given = value.args if len(value.args) <= 2 else []
        return {name for argument in (*given, *switches) for name in names_in(argument)}
    return names_in(value)
