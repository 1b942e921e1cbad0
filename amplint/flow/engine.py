"""Which functions to follow, from which states; the results as misuses.

A function is judged through its callers: the module body comes first, then functions that
nothing in the file calls, then those that no call reached. What the constructor of a class
establishes holds at the entry of its methods, unless another method changes it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace

from amplint.flow.call import Frame
from amplint.flow.conditions import forget, mentions
from amplint.flow.diagnosis import AMP_GUARD, Diagnostician, Verdict, cause_of
from amplint.flow.events import Site, Transitions
from amplint.flow.facts import (
    BACKWARD,
    CLIP,
    PLAIN_STEP,
    SCALE,
    STEP,
    UNSCALE,
    UPDATE,
    ZERO_GRAD,
)
from amplint.flow.functions import drop_locals, is_stub
from amplint.flow.interpreter import BudgetExceeded, Interpreter
from amplint.flow.presence import never_done
from amplint.flow.program import Program, Unit
from amplint.flow.reader import Reader
from amplint.flow.slice import blocks_of
from amplint.flow.state import EVERY, State, merge
from amplint.flow.values import NONE
from amplint.flow.witness import PlaceOf, build_witness, relevant_steps, steps_of
from amplint.project.module import Class, Function, Module
from amplint.project.objects import class_fields
from amplint.project.roles import Role, Roles
from amplint.protocol import VIOLATIONS, Gradient
from amplint.rule import Misuse

#: More entry states than this say too little to be worth their cost.
ENTRY_LIMIT = 12
SELF_CONTAINED = frozenset({BACKWARD, SCALE, STEP, ZERO_GRAD})


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """One reported violation, before duplicates are removed.

    Args:
        entry: the function in which the path begins.
        origin: the site in another file, if the finding stands at the call that leads there.
    """

    slug: str
    site: Site
    state: State
    verdict: Verdict
    entry: Function
    origin: Site | None = None


def find_misuses(
    program: Program, module: Module, roles: Roles, place_of: PlaceOf
) -> tuple[Misuse, ...]:
    """Follow the scaler protocol through one module and the functions it calls.

    Args:
        program: takes the module, and finds what it imports.
        module: the indexed module.
        roles: its roles.
        place_of: where a node of a module lies, for the witness.
    """
    unit = program.add(module, roles)
    if not any(found.reach for found in unit.facts.values()):
        return ()
    engine = _Engine(program, unit)
    found = engine.follow()
    return tuple(_misuse(item, place_of) for item in _distinct(found))


def _distinct(found: list[Found]) -> list[Found]:
    """One finding per defect: the first report of each cause, one code per place."""
    kept: dict[tuple, Found] = {}
    for item in sorted(found, key=lambda item: (item.site.node.lineno, item.site.node.col_offset)):
        kept.setdefault((item.verdict.code, cause_of(item.slug, item.site, item.state)), item)
    places: dict[int, Found] = {}
    for item in kept.values():
        other = places.get(id(item.site.node))
        if other is None or _priority(item) < _priority(other):
            places[id(item.site.node)] = item
    defects: dict[int, Found] = {}
    for item in sorted(places.values(), key=_priority):
        if cause_of(item.slug, item.site, item.state) not in defects:
            defects[id(item.site.node)] = item
    return list(defects.values())


def _priority(item: Found) -> tuple[int, int]:
    """What happens in an earlier round of the loop comes first, then the more specific rule."""
    rounds = sum(step[0] == "loop" for step in steps_of(item.state.trail))
    return (rounds, _rank(item.verdict.code))


#: What a scaler lacks altogether -> (code, slug of what torch does then).
NEVER = {SCALE: ("AMP101", "step-uninitialised"), UPDATE: ("AMP105", "step-twice")}

#: Reported only where nothing more specific fits.
GENERAL = ("AMP101", "AMP105", "AMP106")


def _rank(code: str) -> int:
    if code == "AMP201":
        return 0
    return 2 if code in GENERAL else 1


def _depends_on_callers(item: Found) -> bool:
    """Whether the path takes a branch, or repeats a call, that a caller may decide about."""
    if item.entry.name == "<module>":
        return False
    return any(step[0] in ("assume", "again") for step in steps_of(item.state.trail))


def _participants(item: Found) -> tuple[str, str]:
    """Scaler and optimizer as the code writes them; a clip names neither, its path does."""
    scaler, optimizer = item.site.scaler_text, item.site.optimizer_text
    for step in reversed(steps_of(item.state.trail)):
        if step[0] != "event" or step[2].module is not item.site.function.module:
            continue
        other = step[3][1]
        scaler = scaler or other.scaler_text
        named = other.optimizer not in ("", EVERY)
        optimizer = optimizer or (other.optimizer_text if named else "")
    return scaler, optimizer


def _misuse(item: Found, place_of: PlaceOf) -> Misuse:
    site = item.site
    scaler, optimizer = _participants(item)
    return Misuse(
        code=item.verdict.code,
        node=site.node,
        function=site.function,
        violation=VIOLATIONS.get(item.slug),
        scaler=scaler,
        optimizer=optimizer,
        path=build_witness(item.state.trail, item.slug, item.origin or site, place_of),
        details=item.verdict.details,
    )


class _Engine:
    """Runs the interpreter from every entry of one module.

    Args:
        home: the module whose findings are wanted, if not that of the entries.
    """

    def __init__(self, program: Program, unit: Unit, home: Module | None = None) -> None:
        self.program = program
        self.module = unit.module
        self.home = home or unit.module
        self.roles = unit.roles
        self.facts = unit.facts
        self.slicer = unit.slicer
        self._diagnosticians: dict[Module, Diagnostician] = {}
        self.inlined: set[Function] = set()
        self.called: set[Function] = set()
        self.globals: list[State] = [self._constants()]
        self._others: dict[Module, tuple[_Engine, list[Found]]] = {}

    def follow(self) -> list[Found]:
        """Everything found from every entry."""
        found: list[Found] = []
        body = self.module.body
        if self.facts[body].reach:
            found += self._judge(body, [state.copy() for state in self.globals])
        called = {name for facts in self.facts.values() for name in facts.callees}
        candidates = [
            function
            for function in self.module.functions
            if function is not body
            and self.facts[function].reach
            and not _is_context_manager(function)
        ]
        for function in candidates:
            if function.name not in called and function not in self.inlined:
                found += self._judge(function, self._entry_states(function))
        for function in candidates:
            if function not in self.inlined and self._holds_a_protocol(function):
                found += self._judge(function, self._entry_states(function))
        found += self._judge_inherited()
        found += self._judge_split_classes()
        found = [item for item in found if not self._callers_refute(item)]
        return found + list(self._never_done({item.site.node for item in found}))

    def _callers_refute(self, item: Found) -> bool:
        """Whether callers in other files tie the parameters that this file leaves untied.

        `if use_amp:` against `if scaler is not None:` is right as long as every caller passes
        a scaler exactly when it passes the flag. Without any caller in sight the file stands
        for itself.
        """
        entry = item.entry
        if self.home is not self.module or not _depends_on_callers(item):
            return False
        seen = False
        for unit in self.program.callers(entry):
            caller, found = self._followed(unit)
            if entry not in caller.called:
                continue
            seen = True
            if any(other.site.node is item.site.node for other in found):
                return False
        return seen or self._subclasses_refute(item)

    def _followed(self, unit: Unit) -> tuple[_Engine, list[Found]]:
        """Another file followed for findings in this one, once."""
        if unit.module not in self._others:
            caller = _Engine(self.program, unit, home=self.module)
            self._others[unit.module] = (caller, caller.follow())
        return self._others[unit.module]

    def _subclasses_refute(self, item: Found) -> bool:
        """Whether every subclass of an abstract class completes it so that the path is gone."""
        owner = item.entry.owner
        if owner is None or not self._is_abstract(owner):
            return False
        subclasses = self.program.subclasses(owner)
        for subclass in subclasses:
            found = self._judge(item.entry, self._entry_states(item.entry, subclass))
            if any(other.site.node is item.site.node for other in found):
                return False
        return bool(subclasses)

    def _is_abstract(self, owner: Class) -> bool:
        """Whether a class uses attributes of `self` that only its subclasses can have."""
        family = self.program.ancestry(owner)
        if any(not self._is_known_base(base, item) for item in family for base in item.bases):
            return False
        methods = [method for item in family for method in item.methods.values()]
        had = {method.name for method in methods if not is_stub(method)}
        had.update(*(self.program.facts(method).self_stores for method in methods))
        had.update(*(class_fields(item) for item in family))
        read = {
            node.attr
            for method in methods
            for node in method.nodes
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "self"
        }
        return bool(read - had)

    def _never_done(self, reported: set[ast.expr]) -> Iterator[Found]:
        """Scalers that nothing in the file ever scales with, or updates."""
        for site, word in never_done(self.module, self.roles):
            if site.node in reported:
                continue
            text = ast.unparse(site.node.func.value)  # type: ignore[attr-defined]
            optimizer = ast.unparse(site.node.args[0]) if site.node.args else ""
            place = Site(site.node, site.function, text, "", text, optimizer)
            code, slug = NEVER[word]
            verdict = Verdict(code, {"never": "yes", "slug": slug})
            yield Found(slug, place, State(), verdict, site.function)

    # -- methods of base classes that call methods of this file ------------------------------

    def _judge_inherited(self) -> list[Found]:
        """Inherited methods that run a protocol with the help of methods that override others."""
        found: list[Found] = []
        for owner in self.module.classes.values():
            own = {name for name, method in owner.methods.items() if self.facts[method].reach}
            for base in self.program.ancestry(owner)[1:] if own else ():
                for method in base.methods.values():
                    if self._needs(own, method, owner):
                        found += self._judge(method, self._entry_states(method, owner))
        return found

    def _needs(self, own: set[str], method: Function, owner: Class) -> bool:
        """Whether an inherited method runs a protocol through methods that a class adds."""
        if method in self.called or self.program.find_method(owner, method.name) is not method:
            return False
        if method.name == "__init__" or not self.program.facts(method).callees & own:
            return False
        return self._holds_a_protocol(method)

    # -- classes whose callers run the backward ----------------------------------------------

    def _judge_split_classes(self) -> list[Found]:
        """Methods that step what a sibling method scaled: callers backward what it returns.

        Only a clip of the scaled gradients is reported: everything else may be done by the
        callers between the two methods.
        """
        found: list[Found] = []
        for owner in self.module.classes.values():
            words = [self.facts[method].words for method in owner.methods.values()]
            reach = set().union(*words) if words else set()
            if not {SCALE, STEP, CLIP} <= reach or reach & {BACKWARD, UNSCALE}:
                continue
            for method in owner.methods.values():
                if {STEP, CLIP} <= self.facts[method].words:
                    found += self._judge_stepper(owner, method)
        return found

    def _judge_stepper(self, owner: Class, method: Function) -> list[Found]:
        scalers = self._scaled_by_returns(owner)
        entries = self._entry_states(method)
        for state in entries:
            state.typestate[("gradient", EVERY)] = (Gradient.SCALED, scalers)
        if not scalers:
            return []
        found, _ = self._attempt(method, entries, frozenset())
        return [item for item in found if item.slug == "clip-of-scaled"]

    def _scaled_by_returns(self, owner: Class) -> frozenset[str]:
        """Scalers of the object whose scaled losses some method of the class returns."""
        scalers: set[str] = set()
        for method in owner.methods.values():
            if SCALE not in self.facts[method].words:
                continue
            interpreter = self._interpreter(lambda *_: None, method, frozenset())
            frame = Frame(method, active=(method,))
            try:
                outcome = interpreter.run(frame, self._entry_states(method))
            except BudgetExceeded:
                self.program.unfinished.add(method)
                continue
            for _, value in outcome.returns:
                if (
                    value is not None
                    and value[0] == "scaled"
                    and value[1].startswith(f"{owner.label}.")
                ):
                    scalers.add(value[1])
        return frozenset(scalers)

    def _holds_a_protocol(self, function: Function) -> bool:
        reach = self.program.facts(function).reach
        return BACKWARD in reach and bool(reach & {STEP, PLAIN_STEP})

    def _judge(self, function: Function, entries: list[State]) -> list[Found]:
        """Follow one entry; with several optimizers in one loop, again with that knowledge."""
        found, interpreter = self._attempt(function, entries, frozenset())
        crowded = frozenset(
            scope for scope, names in interpreter.calls.events.optimizers.items() if len(names) > 1
        )
        if crowded:
            found, interpreter = self._attempt(function, entries, crowded)
        self.called |= interpreter.calls.functions.inlined
        self.inlined |= interpreter.calls.functions.inlined | {function}
        return found

    def _attempt(
        self, function: Function, entries: list[State], crowded: frozenset
    ) -> tuple[list[Found], Interpreter]:
        found: list[Found] = []

        def report(slug: str, site: Site, state: State, details: dict[str, str]) -> None:
            judge = self._diagnostician(site.function.module)
            verdict = judge.diagnose(slug, site, state, details)
            if verdict is None:
                return
            place = verdict.site or site
            home = self._home(slug, place, state)
            if home is not None:
                origin = place if home is not place else None
                found.append(Found(slug, home, state.copy(), verdict, function, origin))

        interpreter = self._interpreter(report, function, crowded)
        frame = Frame(function, active=(function,))
        for state in entries:
            interpreter.calls.functions.unbind_scalers(function, state)
        try:
            outcome = interpreter.run(frame, entries)
            after = [*outcome.normal, *(state for state, _ in outcome.returns)]
            if self._is_called_per_batch(function, interpreter):
                interpreter.run(frame, self._next_call(after, function, interpreter))
            if function is self.module.body:
                self.globals = self._module_states(after)
        except BudgetExceeded:
            # What was found until here stands; silence about the rest means nothing.
            self.program.unfinished.add(function)
        return found, interpreter

    def _diagnostician(self, module: Module) -> Diagnostician:
        known = self._diagnosticians.get(module)
        if known is None:
            roles = self.program.roles(module.body)
            known = self._diagnosticians[module] = Diagnostician(module, roles)
        return known

    def _home(self, slug: str, site: Site, state: State) -> Site | None:
        """Where in this file to report a violation; None if it is all another file's affair.

        What a function of another file does wrong by itself is reported there. Here stands
        what only its caller makes wrong, at the call that leads to it.
        """
        if site.function.module is self.home:
            return site
        steps = relevant_steps(state.trail, slug, site)
        shared = any(step[0] == "event" and step[2].module is self.home for step in steps)
        if not shared and slug != "scaler-is-none":
            return None
        for step in reversed(steps_of(state.trail)):
            if step[0] == "call" and step[2].module is self.home:
                return replace(site, node=step[1], function=step[2])
        return None

    def _interpreter(self, report, function: Function, crowded: frozenset) -> Interpreter:
        transitions = Transitions(report, clears=ZERO_GRAD in self.program.facts(function).reach)
        return Interpreter(Reader(self.program), transitions, crowded)

    # -- entry states --------------------------------------------------------------------

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

    def _module_states(self, states: list[State]) -> list[State]:
        kept = []
        prefix = f"{self.module.body.label}:"
        for state in states:
            values = {
                place: value for place, value in state.values.items() if place.startswith(prefix)
            }
            kept.append(State({}, values, dict(state.facts)))
        kept = merge(kept, self.slicer.lasting_names)
        return kept if 0 < len(kept) <= ENTRY_LIMIT else [self._constants()]

    def _entry_states(self, function: Function, owner: Class | None = None) -> list[State]:
        """States at the start of a function.

        Args:
            owner: the class of the object, if not the one that defines the method.
        """
        owner = owner or function.owner
        states = [state.copy() for state in self.globals]
        if owner is None:
            return self._closure_states(function, states)
        instance = ("instance", owner, owner.label)
        constructor = self.program.find_method(owner, "__init__")
        if constructor is not None and constructor is not function:
            states = self._constructed(owner, constructor, instance, states)
        for state in states:
            state.values[f"{function.label}:{_first_parameter(function)}"] = instance
        return states

    def _closure_states(self, function: Function, states: list[State]) -> list[State]:
        """A nested function sees `self` of the method around it."""
        parent = function.parent
        while parent is not None:
            if parent.owner is not None:
                instance = ("instance", parent.owner, parent.owner.label)
                for state in states:
                    state.values[f"{parent.label}:{_first_parameter(parent)}"] = instance
            parent = parent.parent
        return states

    def _constructed(
        self, owner: Class, constructor: Function, instance, states: list[State]
    ) -> list[State]:
        """States after `__init__`, without what other methods may change."""
        interpreter = self._interpreter(lambda *_: None, constructor, frozenset())
        frame = Frame(constructor, active=(constructor,))
        for state in states:
            state.values[f"{constructor.label}:{_first_parameter(constructor)}"] = instance
            for attribute in self._own_scalers(owner):
                state.values[f"{owner.label}.{attribute}"] = NONE
            interpreter.calls.functions.unbind_scalers(constructor, state)
        try:
            outcome = interpreter.run(frame, states)
        except BudgetExceeded:
            self.program.unfinished.add(constructor)
            return [self._constants()]
        after = [*outcome.normal, *(state for state, _ in outcome.returns)]
        for state in after:
            self._forget_mutable(owner, constructor, state)
            state.typestate.clear()
            state.trail = None
        after = merge(after, self.slicer.lasting_names)
        return after if 0 < len(after) <= ENTRY_LIMIT else [self._constants()]

    def _own_scalers(self, owner: Class) -> set[str]:
        """Scaler attributes that only this class can set: absent until the constructor does."""
        family = self.program.ancestry(owner)
        if any(not self._is_known_base(base, item) for item in family for base in item.bases):
            return set()
        return {
            path
            for item in family
            for (scope, path), found in self.program.roles(item.module.body).by_path.items()
            if Role.SCALER in found
            and "." not in path
            and scope == f"class {item.name}"
            and not any(self._sets_on_class(other, path) for other in family)
        }

    def _is_known_base(self, base: ast.expr, owner: Class) -> bool:
        if self.program.find_class(base, owner.module.body) is not None:
            return True
        return ast.unparse(base) in (
            "object",
            "nn.Module",
            "torch.nn.Module",
            "ABC",
            "abc.ABC",
            "Module",
        )

    def _sets_on_class(self, owner: Class, name: str) -> bool:
        return any(
            isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)
            for statement in owner.node.body
            if isinstance(statement, (ast.Assign, ast.AnnAssign))
            for node in ast.walk(statement)
        )

    def _forget_mutable(self, owner: Class, constructor: Function, state: State) -> None:
        for attribute in self._mutable(owner, constructor):
            location = f"{owner.label}.{attribute}"
            value = state.values.get(location)
            if value is not None and value[0] == "scaler":
                continue
            forget(location, state)

    def _mutable(self, owner: Class, constructor: Function) -> set[str]:
        """Attributes that a method other than the constructor and its helpers assigns."""
        family = [*self.program.ancestry(owner), *self.module.subclasses(owner)]
        methods = [method for item in family for method in item.methods.values()]
        others = [method for method in methods if method.name != "__init__"]
        called_later = {name for method in others for name in self.program.facts(method).callees}
        helpers = self.program.facts(constructor).callees - called_later
        return {
            attribute
            for method in others
            if method.name not in helpers
            for attribute in self.program.facts(method).self_stores
        }

    # -- the virtual outer loop ------------------------------------------------------------

    def _is_called_per_batch(self, function: Function, interpreter: Interpreter) -> bool:
        """A self-contained training step that somebody unknown calls again and again."""
        facts = self.program.facts(function)
        if function is self.module.body or not facts.reach >= SELF_CONTAINED:
            return False
        around = self.program.unit(function).facts.values()
        anywhere = any(UPDATE in other.words for other in around)
        if anywhere and UPDATE not in facts.reach:
            return False
        return not self._trains_whole_epochs(function, interpreter)

    def _loops_around_backward(
        self, function: Function, body: list[ast.stmt], interpreter: Interpreter
    ) -> bool:
        for statement in body:
            block = (
                statement.body if isinstance(statement, (ast.For, ast.While, ast.AsyncFor)) else []
            )
            if BACKWARD in interpreter.loops.words(block, function):
                return True
            if any(
                self._loops_around_backward(function, block, interpreter)
                for block in blocks_of(statement)
            ):
                return True
        return False

    def _trains_whole_epochs(self, function: Function, interpreter: Interpreter) -> bool:
        """Whether the function, or one that it may call, loops around a backward."""
        pending, seen = [function], {function}
        while pending:
            current = pending.pop()
            if self._loops_around_backward(current, current.body, interpreter):
                return True
            for other in self.facts:
                if other not in seen and other.name in self.program.facts(current).callees:
                    seen.add(other)
                    pending.append(other)
        return False

    def _next_call(
        self, states: list[State], function: Function, interpreter: Interpreter
    ) -> list[State]:
        following = []
        for state in states:
            state = state.copy()
            interpreter.transitions.back_edge(state)
            state.note("again", function.node, function, None)
            keep = f"{function.label}:{_first_parameter(function)}"
            instance = state.values.get(keep) if function.owner is not None else None
            lasting = _lasting_facts(state, function)
            drop_locals(state, f"{function.label}:")
            state.facts.update(lasting)
            if instance is not None:
                state.values[keep] = instance
            following.append(state)
        return merge(following, self.slicer.lasting_names)


def _is_context_manager(function: Function) -> bool:
    """Whether a generator becomes a `with` block: what runs at its `yield` is the caller's."""
    decorators = getattr(function.node, "decorator_list", [])
    return any("contextmanager" in ast.unparse(item) for item in decorators)


def _lasting_facts(state: State, function: Function) -> dict[tuple, bool]:
    """What a call assumed about parameters that are the same in the next call.

    A scaler or an AMP switch is; a batch, a loss or "is this the boundary" is not.
    """
    prefix = f"{function.label}:"
    return {
        atom: truth
        for atom, truth in state.facts.items()
        if all(
            AMP_GUARD.search(m.removeprefix(prefix)) for m in mentions(atom) if m.startswith(prefix)
        )
    }


def _first_parameter(function: Function) -> str:
    arguments = getattr(function.node, "args", None)
    names = [*arguments.posonlyargs, *arguments.args] if arguments else []
    return names[0].arg if names else "self"
