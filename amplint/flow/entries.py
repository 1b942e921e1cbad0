"""The states in which a function begins: its module, its object and what it is given.

What the constructor of a class leaves behind holds at the entry of its methods, unless
another method changes it. That is how `self.scaler` is tied to `self.use_amp`. The same holds
for an object of the project that a parameter is known to be: by its annotation, or by what
callers in sight pass.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet

from amplint.amp.roles import Role
from amplint.code.arguments import first_parameter, parameters, receiver_of
from amplint.code.classes import subclasses_in
from amplint.code.dataflow import outside_stores
from amplint.code.definitions import class_fields
from amplint.code.expressions import is_none, path_text
from amplint.code.layout import layout_of
from amplint.code.module import Class, Function, walk
from amplint.code.statements import assignments_of
from amplint.flow.budget import BudgetExceeded
from amplint.flow.call import Frame
from amplint.flow.conditions import forget, is_under
from amplint.flow.heirs import is_incomplete, may_inherit_scaler
from amplint.flow.interpreter import silent_interpreter
from amplint.flow.merging import merge
from amplint.flow.outcome import Outcome
from amplint.flow.program import Program, Unit
from amplint.flow.setup_methods import setup_method
from amplint.flow.state import State, parts_of
from amplint.flow.values import NONE, UNBOUND, ZERO, kind_of
from amplint.values.callables import Instance

#: More entry states than this say too little to be worth their cost.
ENTRY_LIMIT = 12


class Entries:
    """Entry states of the functions of one module.

    Attributes:
        globals: the states that the module body left behind; its constants until it has run.
        owned: optimizer -> locations of the modules whose parameters a constructor gave it.
        given: functions that begin with an object of the project: their callers decide about it.
    """

    def __init__(self, program: Program, unit: Unit) -> None:
        self.program = program
        self.module = unit.module
        self.slicer = unit.slicer
        self.globals: list[State] = [self._constants()]
        self.owned: dict[str, frozenset[str]] = {}
        self.given: set[Function] = set()

    def _constants(self) -> State:
        """Module-level names that are bound once, to a literal."""
        bindings: dict[str, list[ast.expr]] = {}
        for node in self.module.nodes():
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                bindings.setdefault(node.id, []).append(node)
        state = State()
        for statement in self.module.tree.body:
            if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant):
                for target in statement.targets:
                    if isinstance(target, ast.Name) and len(bindings[target.id]) == 1:
                        value = statement.value.value
                        literal = ("none",) if value is None else ("const", value)
                        if isinstance(value, (bool, int, float, str, type(None))):
                            state.values[f"{self.module.body.label}:{target.id}"] = literal
        return state

    def leave_module(self, states: list[State]) -> None:
        """Keep what the module body leaves behind.

        Not of names that it deletes: functions that read them run before.
        """
        kept = []
        prefix = f"{self.module.body.label}:"
        deleted = {f"{prefix}{name}" for name in _deleted(self.module.body)}
        for state in states:
            values = {
                place: value
                for place, value in state.values.items()
                if place.startswith(prefix) and place not in deleted
            }
            kept.append(State({}, values, dict(state.facts)))
        kept = merge(kept, self.slicer.lasting)
        self.globals = kept if 0 < len(kept) <= ENTRY_LIMIT else [self._constants()]

    def states(self, function: Function, owner: Class | None = None) -> list[State]:
        """States at the start of a function.

        Args:
            owner: the class of the object, if not the one that defines the method.
        """
        owner = owner or function.owner
        states = [state.copy() for state in self.globals]
        if owner is None:
            return self._given(function, self._closure_states(function, states))
        instance = ("instance", owner, owner.label)
        constructor = self.program.find_method(owner, "__init__")
        if constructor is not None and constructor is not function:
            made = self._constructed(owner, constructor, instance, states, (owner,))
            states = self._prepared(owner, constructor, function, made) or [self._constants()]
        own = receiver_of(function)
        for state in states if own else ():
            state.values[f"{function.label}:{own}"] = instance
        return self._given(function, states, (owner,))

    def _given(
        self, function: Function, states: list[State], around: tuple[Class, ...] = ()
    ) -> list[State]:
        """States in which parameters hold the objects of the project that they can be.

        Args:
            around: the classes whose objects are being made; a circle ends there.
        """
        for name, parameter in parameters(function).items():
            classes = self._classes_given(function, name)
            place = f"{function.label}:{name}"
            filled = [
                state
                for owner in classes
                for state in self._holding(("instance", owner, place), states, around)
            ]
            if not parameter.required:
                filled += states
            if classes and len(filled) <= ENTRY_LIMIT:
                self.given.add(function)
                states = filled
        return states

    def _classes_given(self, function: Function, name: str) -> list[Class]:
        """Classes that run a protocol, one of which an argument is an object of."""
        if function.owner is not None and name == receiver_of(function):
            return []
        found = self.program.objects.kinds(ast.Name(name, ast.Load()), function)
        owners: dict[Class, None] = {}
        for kind in found.known:
            if isinstance(kind, Instance):
                owners.update(dict.fromkeys(self._complete(kind)))
        return [owner for owner in owners if self.program.is_interesting(owner)]

    def _complete(self, kind: Instance) -> list[Class]:
        """The class of an object; its subclasses where that only declares what they do."""
        program = self.program
        if kind.exact or not is_incomplete(kind.owner, program):
            return [kind.owner]
        heirs = program.subclasses(kind.owner)
        return [heir for heir in heirs if not is_incomplete(heir, program)]

    def _holding(
        self, instance: tuple[str, Class, str], states: list[State], around: tuple[Class, ...]
    ) -> list[State]:
        """States in which a place holds an object as its constructor leaves it."""
        _, owner, place = instance
        states = [state.copy() for state in states]
        constructor = self.program.find_method(owner, "__init__")
        if constructor is not None and owner not in around:
            made = self._constructed(owner, constructor, instance, states, (*around, owner))
            states = made or states
        for state in states:
            state.values[place] = instance
        return states

    def _closure_states(self, function: Function, states: list[State]) -> list[State]:
        """A nested function sees `self` of the method around it."""
        parent = function.parent
        while parent is not None:
            if parent.owner is not None:
                instance = ("instance", parent.owner, parent.owner.label)
                for state in states:
                    state.values[f"{parent.label}:{first_parameter(parent)}"] = instance
            parent = parent.parent
        return states

    def _constructed(
        self,
        owner: Class,
        constructor: Function,
        instance: tuple[str, Class, str],
        states: list[State],
        around: tuple[Class, ...],
    ) -> list[State]:
        """States after `__init__`, without what other methods may change; none if it is too large."""
        interpreter = silent_interpreter(self.program, constructor)
        frame = Frame(constructor, active=(constructor,))
        place = instance[2]
        states = self._given(constructor, [state.copy() for state in states], around)
        for state in states:
            state.values[f"{constructor.label}:{first_parameter(constructor)}"] = instance
            for attribute in self._own_scalers(owner):
                state.values[f"{place}.{attribute}"] = NONE
            for attribute in self._beside_scalers(owner, constructor):
                state.values[f"{place}.{attribute}"] = UNBOUND
            interpreter.calls.functions.unbind(constructor, state)
        try:
            outcome = interpreter.run(frame, states)
        except BudgetExceeded:
            self.program.work.leave(constructor)
            return []
        self.owned |= interpreter.calls.events.parameters
        return self._left(outcome, owner, constructor, place)

    def _left(self, outcome: Outcome, owner: Class, method: Function, place: str) -> list[State]:
        """States behind a method, without what others may change; none if it is too large."""
        after = [*outcome.normal, *(state for state, _ in outcome.returns)]
        for state in after:
            self._forget_mutable(owner, method, place, state)
            state.typestate.clear()
            state.trail = None
        after = merge(after, self.slicer.lasting)
        return after if len(after) <= ENTRY_LIMIT else []

    def _prepared(
        self, owner: Class, constructor: Function, function: Function, made: list[State]
    ) -> list[State]:
        """States of an object behind the method that has to run first, if it changes a scaler."""
        later = self._later_methods(frozenset((owner,)))
        setter = setup_method(self.program, function, owner, later)
        if setter is None or not any(
            kind_of(state.values.get(f"{owner.label}.{name}")) == "scaler"
            for state in made
            for name in self._changed(setter)
        ):
            return made
        interpreter = silent_interpreter(self.program, setter)
        instance = ("instance", owner, owner.label)
        states = [state.copy() for state in made]
        for state in states:
            state.values[f"{setter.label}:{receiver_of(setter)}"] = instance
        try:
            outcome = interpreter.run(Frame(setter, active=(setter,)), states)
        except BudgetExceeded:
            self.program.work.leave(setter)
            return made
        return self._left(outcome, owner, setter, owner.label) or made

    def owned_in(self, states: Iterable[State]) -> dict[str, frozenset[str]]:
        """What the optimizers own that an entry's states hold: no other object's are in play."""
        held = {
            value[1]
            for state in states
            for value in state.values.values()
            if value is not None and value[0] == "optimizer"
        }
        return {name: modules for name, modules in self.owned.items() if name in held}

    def _own_scalers(self, owner: Class) -> set[str]:
        """Scaler attributes that only this class can set: absent until the constructor does."""
        family = self.program.ancestry(owner)
        if may_inherit_scaler(family, self.program):
            return set()
        return {
            path
            for item in family
            for (scope, path), found in self.program.roles(item.module.body).by_path.items()
            if Role.SCALER in found
            and path.isidentifier()
            and scope == f"class {item.name}"
            and not any(self._sets_on_class(other, path) for other in family)
        }

    def _beside_scalers(self, owner: Class, constructor: Function) -> set[str]:
        """Attributes that a constructor assigns in branches around its scalers, and nowhere else.

        Where such a branch is not taken, a method that uses one of them raises.
        """
        scalers, layout = self._own_scalers(owner), layout_of(constructor)
        stores = self._stores_with_helpers(constructor, owner, scalers)
        branches = {
            outer
            for attribute in scalers & stores.keys()
            for statement in stores[attribute]
            for outer in layout.ancestors(statement)
            if isinstance(outer, ast.If)
        }
        return {
            attribute
            for attribute, statements in stores.items()
            if attribute not in scalers
            and all(layout.leaves_out(statement) in branches for statement in statements)
            and not self._may_come_otherwise(owner, attribute)
        }

    def _may_come_otherwise(self, owner: Class, name: str) -> bool:
        """Whether something beside the class' own methods may give an object an attribute."""
        order = self.program.ancestry(owner)
        return (
            name in owner.module.once(outside_stores)
            or any(name in class_fields(item) or name in item.methods for item in order)
            or any(self.program.objects.stores(item, name) for item in order[1:])
        )

    def _stores_with_helpers(
        self, constructor: Function, owner: Class, scalers: set[str]
    ) -> dict[str, list[ast.stmt]]:
        """`_stores`, and the calls of methods that build the scalers beside what they assign."""
        found = self._stores(constructor)
        for node in constructor.nodes:
            if not isinstance(node, ast.Expr):
                continue
            called = _own_method_called(node, first_parameter(constructor))
            helper = self.program.find_method(owner, called) if called is not None else None
            inside = self._stores(helper) if helper is not None else {}
            if helper is None or not scalers & inside.keys():
                continue
            inner = layout_of(helper)
            for attribute, statements in inside.items():
                always = all(inner.leaves_out(item) is helper.node for item in statements)
                if always or attribute in scalers:
                    found.setdefault(attribute, []).append(node)
        return found

    def _stores(self, constructor: Function) -> dict[str, list[ast.stmt]]:
        """Attribute of the object -> the statements of a constructor that assign it, if all count."""
        own, kept = first_parameter(constructor), self.program.slice(constructor).kept
        found: dict[str, list[ast.stmt]] = {}
        for node in constructor.nodes:
            if not isinstance(node, ast.Assign):
                continue
            for target in (part for each in node.targets for part in walk(each)):
                if not isinstance(target, ast.Attribute) or path_text(target.value) != own:
                    continue
                if id(node) in kept:
                    found.setdefault(target.attr, []).append(node)
        return found

    def _sets_on_class(self, owner: Class, name: str) -> bool:
        return any(
            isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)
            for statement in owner.node.body
            if isinstance(statement, (ast.Assign, ast.AnnAssign))
            for node in walk(statement)
        )

    def _forget_mutable(self, owner: Class, method: Function, place: str, state: State) -> None:
        """Forget, in place, what may be otherwise when a method begins, of objects held below, too."""
        filled = self.program.facts(method).fills
        held = objects_below(place, owner, state)
        others = self._later_methods(frozenset(held.values()))
        others = [other for other in others if other is not method]
        every = [self.program.facts(other) for other in others]
        inner = {name for facts in every for name in facts.inner_stores | facts.self_fills}
        for root, kind in held.items():
            family = self._family(kind)
            by_others = self._set_by_others(kind) if method.name == "__init__" else set()
            changed = by_others | {
                name for other in others if other.owner in family for name in self._changed(other)
            }
            for name in changed:
                _forget_unless_scaler(f"{root}.{name}", state)
            below = [each for each in state.values if is_under(each, root)]
            for location in below:
                rest = location[len(root) :]
                if not rest or ":" in rest:  # the object itself, locals of its methods
                    continue
                parts = parts_of(rest)
                # A path on which no test of the constructor put anything in has nothing to train.
                empty = state.values.get(location) == ZERO and parts[-1] in filled
                if empty or not inner.isdisjoint(parts):
                    _forget_unless_scaler(location, state)

    def _family(self, owner: Class) -> list[Class]:
        return [*self.program.ancestry(owner), *subclasses_in(owner.module, owner)]

    def _later_methods(self, owners: frozenset[Class]) -> list[Function]:
        """Methods of some classes that may run when the constructors are over.

        Not those that only constructors call: what they do, these have done.
        """
        family = {item for owner in owners for item in self._family(owner)}
        methods = [method for item in family for method in item.methods.values()]
        others = [method for method in methods if method.name != "__init__"]
        called_later = {name for method in others for name in self.program.facts(method).callees}
        helpers = {
            name
            for owner in owners
            for constructor in self._constructors(owner)
            for name in self.program.facts(constructor).callees - called_later
        }
        return [method for method in others if method.name not in helpers]

    def _constructors(self, owner: Class) -> Iterator[Function]:
        """What a class runs when an object is made, with those of its bases that it hands on to."""
        for item in self.program.ancestry(owner):
            constructor = item.methods.get("__init__")
            if constructor is not None:
                yield constructor
                if "__init__" not in self.program.facts(constructor).callees:
                    return

    def _set_by_others(self, owner: Class) -> set[str]:
        """Attributes that the class only ever sets to None, and uses: others give them a value."""
        given: dict[str, bool] = {}
        for item in self.program.ancestry(owner):
            for method in item.methods.values():
                for target, value in method.once(assignments_in):
                    if isinstance(target, ast.Attribute):
                        nothing = is_none(value)
                        given[target.attr] = given.get(target.attr, True) and nothing
        return {attribute for attribute, nothing in given.items() if nothing}

    def _changed(self, method: Function) -> set[str]:
        facts = self.program.facts(method)
        return facts.self_stores | facts.self_fills


def objects_below(place: str, owner: Class, state: State) -> dict[str, Class]:
    """Where the fields of an object live, and those of the objects that it has: with their classes."""
    found = {place: owner}
    pending = [place]
    while pending:
        root = pending.pop()
        for location, value in state.values.items():
            if value is None or value[0] != "instance" or not is_under(location, root):
                continue
            if value[2] not in found:
                found[value[2]] = value[1]
                pending.append(value[2])
    return found


def _forget_unless_scaler(location: str, state: State) -> None:
    value = state.values.get(location)
    if value is None or value[0] != "scaler":
        forget(location, state)


def assignments_in(method: Function) -> list[tuple[ast.expr, ast.expr | None]]:
    """(target, value) of everything that a method assigns."""
    statements = (node for node in method.nodes if isinstance(node, ast.stmt))
    return [pair for statement in statements for pair in assignments_of(statement)]


def _own_method_called(node: ast.AST, own: str) -> str | None:
    """The name of the method that the statement `self.build(...)` calls."""
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
        return None
    callee = node.value.func
    if not isinstance(callee, ast.Attribute) or path_text(callee.value) != own:
        return None
    return callee.attr


def _deleted(function: Function) -> Iterator[str]:
    """The names that `del` takes away."""
    for node in layout_of(function).nodes:
        for target in node.targets if isinstance(node, ast.Delete) else ():
            yield from (part.id for part in walk(target) if isinstance(part, ast.Name))


def only_repeats(
    function: Function, unit: Unit, program: Program, entered: AbstractSet[Function]
) -> bool:
    """Whether all that a function does for the protocol lies in what was too much already.

    `run(**options)` beside a script that calls the same `main`: what was entered from there, and not
    left before the budget ended, would end it here again.

    Args:
        entered: by entries that were left half-way.
    """
    if unit.facts[function].words or not entered:
        return False
    sites = [site for site in unit.module.calls if site.function is function]
    targets = [program.targets(site.node, function).functions for site in sites]
    acting = {item for found in targets for item in found if program.facts(item).acts}
    return bool(acting) and acting <= entered
