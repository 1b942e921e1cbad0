"""Calls of functions of the program: parameters, summaries, what survives the return."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

from amplint.amp.roles import Role
from amplint.code.arguments import bind, fill, is_decorated, parameters, receiver_of
from amplint.code.classes import method_of
from amplint.code.dataflow import bindings_of, fills_of
from amplint.code.definitions import is_optional, is_stub
from amplint.code.layout import layout_of
from amplint.code.module import Class, Function
from amplint.code.records import AFTER_FILLING, is_record, keeps_values, record_parameters
from amplint.code.tree import TRIES
from amplint.flow.budget import Cost
from amplint.flow.call import Call, Frame, given_to
from amplint.flow.conditions import forget, mentions
from amplint.flow.copies import place_copy
from amplint.flow.events import Transitions
from amplint.flow.facts import FunctionFacts
from amplint.flow.footprints import Followed, Footprint, Summaries, Touched
from amplint.flow.handed import CALLED, USES, may_use
from amplint.flow.heirs import construction_decides, is_part_of_construction
from amplint.flow.leaving import handed_back
from amplint.flow.merging import merge
from amplint.flow.program import Program
from amplint.flow.raising import Raising
from amplint.flow.reader import Reader
from amplint.flow.state import State, parts_of
from amplint.flow.values import CALLABLE_KINDS, HANDED, NONE, UNBOUND, Value, is_container, kind_of
from amplint.values.kinds import start_of_super

Valued = list[tuple[State, Value]]


class Runner(Protocol):
    """Runs the bodies of functions, and counts what that costs."""

    @property
    def cost(self) -> Cost:
        """What has been spent until now."""

    def run_callee(self, frame: Frame, state: State) -> Valued | None:
        """The states that a function returns with, each with its value.

        None if it is too large for a function without events.
        """

    def run_again(self, function: Function, cost: Cost) -> bool:
        """Count what running a function has cost before; False where it is too large by now."""


#: Calls deeper than this are not followed.
CALL_DEPTH = 6
#: What fills a container that it is given is looked for this many calls deep.
FILLED_DEPTH = 2
#: A function without events of at most this many nodes is followed for what it returns.
SHORT = 200


class Functions:
    """Follows calls into functions of the program.

    Args:
        reader: reads expressions.
        runner: interprets function bodies.
        havoc: forgets what an unfollowed call may change.
        transitions: counts what happens beside the states: reports, havocs.
        scope: the training loop that is being interpreted; results hold within it.
        owners: what is known by now about optimizers, beside the states.
        named: a value as its place keeps it, known by that place.

    Attributes:
        inlined: functions that some call has reached.
        summaries: of the calls that were followed.
        raising: what leaves functions by exceptions, and the handlers that wait.
        earlier: those of another attempt at the same entry. They hold for functions without events.
    """

    def __init__(
        self,
        reader: Reader,
        runner: Runner,
        havoc: Callable[[State], Valued],
        transitions: Transitions,
        scope: Callable[[], int | None],
        owners: Callable[[], object],
        named: Callable[[Value, str, State], Value],
    ) -> None:
        self.reader = reader
        self.program = reader.program
        self.runner = runner
        self.havoc = havoc
        self.scope = scope
        self.owners = owners
        self.named = named
        self.transitions = transitions
        self.raising = Raising(self.program)
        self.inlined: set[Function] = set()
        self._later: dict[Function, frozenset[str]] = {}
        self._blank: dict[Function, dict[ast.AST, tuple[str, ...]]] = {}
        self._filling: dict[tuple[Function, str, int], bool] = {}
        self.summaries = Summaries()
        self.earlier = Summaries()
        # What the calls that are being followed have run so far, outermost first.
        self._touched = [Touched()]

    def find_method(self, instance: Value, name: str) -> Function | None:
        """The method that a call on an object runs."""
        if instance is None or instance[0] != "instance":
            return None
        return self.program.find_method(instance[1], name)

    def construct(self, owner: Class, call: Call) -> Valued:
        """`Class(...)`: run the constructor of classes that reach the protocol."""
        instance = ("instance", owner, f"{owner.label}@{call.node.lineno}+{call.node.col_offset}")
        self._touched[-1].words.add(owner.name)
        constructor = self.program.find_method(owner, "__init__")
        if constructor is None and is_record(owner):
            return self._fill_record(owner, instance, call)
        if constructor is None or not construction_decides(owner, self.program):
            return [(call.state, instance)]
        results = self.invoke(constructor, call, instance, force=True) or [(call.state, None)]
        return [(after, instance) for after, _ in results]

    def _fill_record(self, owner: Class, instance: Value, call: Call) -> Valued:
        """A dataclass or named tuple: its fields are what is passed; no defaults, which may differ."""
        assert instance is not None
        state = call.state.copy()
        family = self.program.ancestry(owner)
        self._touched[-1].words.update(record_parameters(family))
        kept = all(map(keeps_values, family))
        for name, argument in fill(record_parameters(family), call.passed).given.items():
            location = f"{instance[2]}.{name}"
            value = self._actual(argument, call)
            forget(location, state)
            if kind_of(value) == "copy" and kept:
                place_copy(value, location, state)
            elif value is not None and kept:
                state.values[location] = self.named(value, location, state)
        methods = (self.program.find_method(owner, name) for name in AFTER_FILLING)
        after = next(filter(None, methods), None)
        if after is None:
            return [(state, instance)]
        bare = ast.copy_location(ast.Call(call.node.func, [], []), call.node)
        results = self.invoke(after, replace(call.within(state), node=bare), instance, force=True)
        return [(later, instance) for later, _ in results or [(state, None)]]

    def super_method(self, call: Call) -> tuple[Function, Value] | None:
        """The method that `super().name(...)` runs, with its instance.

        The class that was built says which base comes next, not the one that holds the call.
        """
        owner = start_of_super(self.program.objects, call.place, call.function)
        instance = call.state.values.get(f"{call.function.label}:self")
        if owner is None or instance is None:
            return None
        family = self.program.ancestry(owner)
        if instance[0] == "instance" and owner in (built := self.program.ancestry(instance[1])):
            family = built[built.index(owner) :]
        method = method_of(family[1:], call.name)
        return (method, instance) if method is not None else None

    def _stays_idle(self, hook: Function, instance: Value) -> bool:
        """Whether a hook does nothing for objects that somebody in sight makes of this very class.

        Nobody puts another function in its place: `trainer.before_step = unscale`.
        """
        if instance is None or instance[0] != "instance" or not is_optional(hook):
            return False
        objects, owner = self.program.objects, instance[1]
        replaced = objects.outside_stores(owner.module, hook.name) or any(
            objects.stores(item, hook.name) for item in objects.ancestry(owner)
        )
        return objects.is_made(owner) and not replaced

    def invoke(
        self, function: Function, call: Call, instance: Value = None, *, force: bool = False
    ) -> Valued | None:
        """Interpret a call in the caller's state; None if the callee counts as unknown.

        Args:
            instance: the object, for methods.
            force: interpret it even if nothing in it reaches the protocol.
        """
        facts = self.program.facts(function)
        if is_stub(function):
            return [(call.state, None)] if self._stays_idle(function, instance) else None
        decides = force or self.program.settles_test(function) or self._is_wanted(function, call)
        decides = decides or (bool(facts.self_fills) and self._hands_over(call))
        decides = decides or is_part_of_construction(function, instance, self.program)
        if not facts.interesting and not decides:
            if self.may_use(function, call):
                return self.havoc(call.state)
            if facts.indirect and HANDED in call.state.values:
                return self.havoc(call.state)
            return self._pass_over(facts, instance, call.state)
        frame = call.frame
        if frame.depth >= CALL_DEPTH or function in frame.active or facts.generator:
            return self.havoc(call.state) if facts.interesting else [(call.state, None)]
        self.inlined.add(function)
        entered = call.state.copy()
        self.unbind(function, entered)
        entered.note("call", call.node, call.function, function)
        if instance is not None and not facts.interesting:
            # What it calls may be no part of what is followed.
            self._forget_fields(facts.fills - facts.self_fills, instance, entered)
        self._bind_parameters(function, call, entered, instance)
        inner = Frame(function, frame.depth + 1, (*frame.active, function))
        left = self._summarised(inner, entered, frame)
        if left is not None:
            return self._let_out(left)
        self._touched[-1].words |= facts.settles | facts.fills
        return [(_without_stored(facts, call.state), None)]

    def _let_out(self, left: Valued) -> Valued:
        """The states that a call goes on with; those of exceptions go to their handlers."""
        thrown = [(state, value) for state, value in left if kind_of(value) == "raised"]
        self.raising.thrown += ((value[1], state) for state, value in thrown if value is not None)
        return [item for item in left if item not in thrown] if thrown else left

    def may_use(self, function: Function, call: Call) -> bool:
        """Whether a function without a word of AMP does something to what a call gives it."""
        return may_use(self.program, function, self._participants(function, call))

    def _participants(self, function: Function, call: Call) -> dict[str, str]:
        """The parameters that a call fills with a scaler, an optimizer, or what may be a function."""
        runs = self.program.facts(function).indirect
        kinds = {item: _used_as(value, runs=runs) for item, value in call.values.items()}
        if not any(kinds.values()):
            return {}
        filled = bind(call.passed, function, on_object=True).given
        found = ((name, kinds.get(item, "")) for name, item in filled.items())
        return {name: kind for name, kind in found if kind}

    def _is_wanted(self, function: Function, call: Call) -> bool:
        """Whether a test may read what a short function returns: its paths stay apart then."""
        if id(call.node) not in self.program.slice(call.function).wanted:
            return False
        return len(function.nodes) <= SHORT and any(
            isinstance(node, ast.Return) for node in function.nodes
        )

    def _summarised(self, inner: Frame, entered: State, outer: Frame) -> Valued | None:
        call = (inner.active, self.scope(), self.raising.handlers)
        events = self.transitions
        known = self.summaries.find(call, entered)
        if known is None and not self.program.facts(inner.function).acts:
            known = self.summaries.adopt(call, entered, self.earlier)
            if known is not None:
                self.inlined |= known[0].touched.functions
                if not self.runner.run_again(inner.function, known[0].cost):
                    return None
        if known is not None:
            summary, part = known
            self._touched[-1].take(summary.touched)
            return summary.applied(entered, part, events)
        havocs, reports = events.havocs, len(events.reports)
        cost, owners = self.runner.cost, self.owners()
        self._touched.append(Touched({inner.function}))
        try:
            returned = self.runner.run_callee(inner, entered)
        finally:
            touched = self._touched.pop()
            self._touched[-1].take(touched)
        if returned is None:
            return None
        left = self._leave(returned, inner.function, outer)
        footprint = Footprint(
            touched,
            (function.label for function in inner.active),
            typed=any(self.program.facts(item).interesting for item in touched.functions),
        )
        reported, cost = events.reports[reports:], self.runner.cost.since(cost)
        pure = self.owners() == owners
        found = Followed(entered, left, touched, events.havocs - havocs, reported, cost, pure)
        self.summaries.keep(call, footprint, found)
        return left

    @contextmanager
    def trial(self) -> Iterator[None]:
        """A context whose results are not kept: nothing was reported on their paths."""
        kept, self.summaries = self.summaries, Summaries()
        try:
            yield
        finally:
            self.summaries = kept

    def unbind(self, function: Function, state: State) -> None:
        """What no branch has assigned yet cannot be used, in place; a local scaler counts as None."""
        locals_ = self.program.facts(function).locals - parameters(function).keys()
        for (scope, path), found in self.program.roles(function).by_path.items():
            if scope == function.qualname and Role.SCALER in found and path in locals_:
                state.values.setdefault(f"{function.label}:{path}", NONE)
        for name in self._assigned_later(function):
            state.values.setdefault(f"{function.label}:{name}", UNBOUND)

    def blank(self, made: ast.Assign | ast.AnnAssign, function: Function) -> tuple[str, ...]:
        """The attributes, as places, that an object lacks when a statement has just made it.

        Nothing but plain assignments of the function set them, all of which are followed.
        """
        known = self._blank.get(function)
        if known is None:
            known = self._blank[function] = _find_blank(function, self.program)
        return known.get(made, ())

    def _assigned_later(self, function: Function) -> frozenset[str]:
        """Locals that only some paths assign, all of whose assignments are followed."""
        known = self._later.get(function)
        if known is None:
            known = self._later[function] = frozenset(_assigned_in_branches(function, self.program))
        return known

    def _pass_over(self, facts: FunctionFacts, instance: Value, state: State) -> Valued:
        """A function without events: only what it, or what it calls, stores on `self` matters."""
        changed = facts.settles | facts.fills
        if instance is None or not changed:
            return [(state, None)]
        state = state.copy()
        self._forget_fields(changed, instance, state)
        return [(state, None)]

    def _forget_fields(self, names: set[str], instance: Value, state: State) -> None:
        """Forget, in place, what some fields of an object hold."""
        assert instance is not None
        self._touched[-1].words |= names
        if instance[0] == "class":  # no object whose fields have places
            return
        for name in names:
            forget(f"{instance[2]}.{name}", state)

    def _leave(self, returned: Valued, function: Function, frame: Frame) -> Valued:
        """Leave a function: its locals are gone, equal states are merged per value."""
        groups: dict[Value, list[State]] = {}
        for state, value in returned:
            state, value = handed_back(state, value, function)
            groups.setdefault(value, []).append(state)
        guards = self.program.slice(frame.function).guards
        apart = len(groups) > 1
        return [
            (state, value)
            for value, group in groups.items()
            for state in merge(group, guards, apart=apart)
        ]

    # -- parameters ------------------------------------------------------------------------------

    def _bind_parameters(
        self, function: Function, call: Call, state: State, instance: Value
    ) -> None:
        found = bind(call.passed, function, on_object=True)
        first = receiver_of(function)
        if first:
            state.values[f"{function.label}:{first}"] = _itself(function, instance)
        bound = {name: self._actual(value, call) for name, value in found.given.items()}
        for name, value in bound.items():
            if is_container(value) and self._fills(function, name, FILLED_DEPTH):
                bound[name] = self._shared(found.given[name], call)
        for name, default in found.defaults.items():
            bound[name] = self.reader.value(default, state, function) if default else None
        for name, value in bound.items():
            location = f"{function.label}:{name}"
            forget(location, state)
            if kind_of(value) == "copy":
                place_copy(value, location, state)
            elif value is not None and value != ("path", location):
                state.values[location] = value

    def _hands_over(self, call: Call) -> bool:
        """Whether a call is given something to be called later."""
        given = (self._actual(argument, call) for argument in call.values)
        return any(kind_of(value) in CALLABLE_KINDS for value in given)

    def _fills(self, function: Function, name: str, depth: int) -> bool:
        """Whether a function puts something into what a parameter holds, or hands it on for that."""
        key = (function, name, depth)
        if key not in self._filling:
            self._filling[key] = name in fills_of(function) or any(
                self._fills(callee, parameter, depth - 1)
                for node in (function.nodes if depth else ())
                if isinstance(node, ast.Call)
                and any(isinstance(item, ast.Name) and item.id == name for item in given_to(node))
                for callee in self.program.targets(node, function).functions
                for parameter, item in bind(node, callee).given.items()
                if isinstance(item, ast.Name) and item.id == name
            )
        return self._filling[key]

    def _shared(self, argument: ast.expr, call: Call) -> Value:
        """A container that the callee fills: it is the caller's, whatever that knows of it."""
        location = None
        if not call.is_bound(argument):
            location = self.reader.locate(argument, call.state, call.function)
        return self._actual(argument, call) if location is None else ("path", location)

    def _actual(self, argument: ast.expr, call: Call) -> Value:
        """An unknown place is passed as an alias: its role alone proves nothing."""
        if call.is_bound(argument):
            return call.values.get(argument)
        if isinstance(argument, (ast.Name, ast.Attribute, ast.Subscript)):
            return self.reader.binding(argument, call.state, call.function)
        return call.values.get(argument)


def _assigned_in_branches(function: Function, program: Program) -> Iterator[str]:
    """Locals that nothing but plain assignments bind, none of which runs on every path."""
    if function is function.module.body:
        return
    top = {*map(id, function.body)}
    elsewhere = parameters(function).keys() | _bound_elsewhere(function)
    for name, found in bindings_of(function).items():
        if name in elsewhere or not name.isidentifier():
            continue
        statements = [item.statement for item in found]
        if all(
            _is_followed(each, function, program) and id(each) not in top for each in statements
        ):
            yield name


def _is_followed(statement: ast.AST, function: Function, program: Program) -> bool:
    """Whether a path knows that a plain assignment has run: nothing hides that it was left."""
    layout = layout_of(function)
    return (
        isinstance(statement, ast.Assign)
        and id(statement) in program.slice(function).kept
        and not any(_catches(outer) for outer in layout.ancestors(statement))
    )


def _find_blank(function: Function, program: Program) -> dict[ast.AST, tuple[str, ...]]:
    """Statements that make an object without attributes -> places of those that it gets later."""
    found: dict[ast.AST, tuple[str, ...]] = {}
    bindings = bindings_of(function)
    for path, stores in bindings.items():
        name, _, attribute = path.partition(".")
        if not attribute.isidentifier() or len(bindings.get(name, ())) != 1:
            continue
        if not all(_is_followed(item.statement, function, program) for item in stores):
            continue
        (made,) = bindings[name]
        label = _empty_object(made.value, function, program)
        if label and isinstance(made.statement, ast.Assign) and _stays(name, function):
            places = (f"{function.label}:{path}", f"{label}.{attribute}")
            found[made.statement] = (*found.get(made.statement, ()), *places)
    return found


def _empty_object(made: ast.expr | None, function: Function, program: Program) -> str:
    """The label of an object whose class says nothing about it; "" for others."""
    if not isinstance(made, ast.Call) or made.args or made.keywords:
        return ""
    owner = program.find_class(made.func, function)
    if owner is None or owner.bases or owner.node.keywords or owner.node.decorator_list:
        return ""
    says_nothing = all(isinstance(item, (ast.Pass, ast.Expr)) for item in owner.node.body)
    return f"{owner.label}@{made.lineno}+{made.col_offset}" if says_nothing else ""


def _stays(name: str, function: Function) -> bool:
    """Whether only the attributes of a local object are used, so that no other code gets it."""
    parents = layout_of(function).parents
    inside = (node for inner in function.nested.values() for node in ast.walk(inner.node))
    if any(isinstance(node, ast.Name) and node.id == name for node in inside):
        return False
    reads = (node for node in function.nodes if isinstance(node, ast.Name) and node.id == name)
    return all(
        isinstance(node.ctx, ast.Store) or isinstance(parents.get(node), ast.Attribute)
        for node in reads
    )


def _catches(statement: ast.AST) -> bool:
    """Whether what goes wrong inside a statement may not end the path: it is handled."""
    return isinstance(statement, TRIES) and bool(statement.handlers)


def _bound_elsewhere(function: Function) -> set[str]:
    """Names that other functions may bind, or that a statement unbinds."""
    found: set[str] = set()
    for inner in (function, *function.nested.values()):
        for node in inner.nodes:
            if isinstance(node, (ast.Global, ast.Nonlocal)):
                found.update(node.names)
            elif isinstance(node, ast.Delete):
                found.update(item.id for item in node.targets if isinstance(item, ast.Name))
    return found


def _itself(function: Function, instance: Value) -> Value:
    """What the first parameter of a method is: the object that is known, its class, or any."""
    owner = function.owner
    assert owner is not None
    if is_decorated(function, "classmethod"):
        if instance is not None and instance[0] == "instance":
            return ("class", instance[1])
        return instance or ("class", owner)
    return instance or ("instance", owner, owner.label)


def _used_as(value: Value, *, runs: bool) -> str:
    """What a function may use a value as; "" for nothing that matters.

    Args:
        runs: whether it calls what a variable holds.
    """
    kind = kind_of(value)
    if runs and (kind == "path" or kind in CALLABLE_KINDS):
        return CALLED
    return kind if kind in USES else ""


def _without_stored(facts: FunctionFacts, state: State) -> State:
    """A state without the attributes that a function, or one that it calls, may store."""
    stored = facts.settles | facts.fills
    state = state.copy()
    known = {*state.values, *(place for atom in state.facts for place in mentions(atom))}
    for place in known:
        if not stored.isdisjoint(parts_of(place)):
            forget(place, state)
    return state
