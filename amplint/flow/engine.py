"""Which functions to follow, and in which order; the results as misuses.

A function is judged through its callers: the module body comes first, then functions that
nothing in the file calls, then those that no call reached.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import cached_property

from amplint.amp.roles import Roles
from amplint.code.dataflow import parameters, values_read
from amplint.code.definitions import is_of_tests
from amplint.code.module import CallSite, Class, Function, Module, enclosing_class
from amplint.code.unbound import is_cut_off
from amplint.flow.absence import asks_one_object_twice, leaves_each_out, unproved
from amplint.flow.asking import Answer, Followed, Judged, Key, depends_on_callers
from amplint.flow.budget import BudgetExceeded
from amplint.flow.call import Frame
from amplint.flow.defects import Found, Run, distinct, misuse_of
from amplint.flow.denials import uses_what_it_denies
from amplint.flow.diagnosis import (
    Diagnostician,
    Verdict,
    condition,
    deciding_flags,
)
from amplint.flow.entries import Entries, only_repeats
from amplint.flow.events import Site
from amplint.flow.facts import BACKWARD, EVENT_WORDS, PLAIN_STEP, SCALE, STEP, UPDATE
from amplint.flow.feasibility import atoms_tested, feasible, half_seen, is_focused
from amplint.flow.heirs import completing, is_abstract
from amplint.flow.interpreter import Interpreter, interpreter_for
from amplint.flow.leads import leading_functions, leading_words
from amplint.flow.links import absence, links_of, scaler_and_optimizer
from amplint.flow.machine import is_impossible
from amplint.flow.presence import never_done
from amplint.flow.program import Program, Unit
from amplint.flow.protocol_calls import SeveralOptimizers
from amplint.flow.repetition import is_called_per_batch, next_call
from amplint.flow.split_classes import split_steppers
from amplint.flow.state import State
from amplint.flow.witness import PlaceOf, relevant_steps, steps_of
from amplint.rule import Misuse


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
    if not any(found.acts or found.words for found in unit.facts.values()):
        return ()
    found = _Engine(program, unit, Judged({module})).follow()
    return tuple(misuse_of(item, place_of) for item in distinct(found))


#: The use of a scaler that is None: what is wrong there needs none that is on.
NO_SCALER = "scaler-is-none"
#: What a scaler lacks altogether -> (code, slug of what torch does then).
NEVER = {SCALE: ("AMP101", "step-uninitialised"), UPDATE: ("AMP105", "step-twice")}


class _Engine:
    """Runs the interpreter from every entry of one module.

    Args:
        judged: what is known of other files.
        home: the module whose findings are wanted, if not that of the entries.
        about: the function that the findings are about, if not any: only entries that may
            lead to it are followed.
    """

    def __init__(
        self,
        program: Program,
        unit: Unit,
        judged: Judged,
        home: Module | None = None,
        about: Function | None = None,
    ) -> None:
        self.program = program
        self.unit = unit
        self.module = unit.module
        self.home = home or unit.module
        self.about = about
        self.roles = unit.roles
        self.facts = unit.facts
        self._mentions_protocol = any(found.words for found in unit.facts.values())
        self._diagnosticians: dict[Module, Diagnostician] = {}
        self.inlined: set[Function] = set()
        self.called: set[Function] = set()
        self.unfollowed: set[Function] = set()
        self._half_entered: set[Function] = set()
        self.entries = Entries(program, unit)
        self._leading = None if about is None else self._leading_to(about)
        self._judged = judged
        self._callers: dict[tuple[Function, Module], Followed] = {}
        self._heirs: dict[tuple[Function, Class], Followed] = {}

    def _leading_to(self, about: Function) -> frozenset[Function]:
        """Functions of the file from which a path may lead to a function, in whatever file."""
        family = [about.owner, *self.program.subclasses(about.owner)] if about.owner else []
        words = leading_words(about.module, (about.name, *(item.name for item in family)))
        return leading_functions(self.module, leading_words(self.module, words))

    def _may_go_wrong(self, function: Function) -> bool:
        """Whether a path from here can break the protocol.

        It needs an event; or a scaler that is used where there is none, in this file: what only
        builds a trainer of another file shows nothing about that trainer. Nor does a test that only
        lets one train: nobody trains with what it sets up.
        """
        facts = self.facts[function]
        if is_of_tests(function) and self.home is self.module:
            return facts.acts and function in self._acting_here
        return facts.acts or (facts.interesting and self._mentions_protocol)

    @cached_property
    def _acting_here(self) -> frozenset[Function]:
        """Functions that use one of this file with an event of its own, or are one."""
        own = [item for item, facts in self.facts.items() if facts.words & EVENT_WORDS]
        names = {item.name for item in own} | {item.owner.name for item in own if item.owner}
        words = leading_words(self.module, names)
        return leading_functions(self.module, words).union(own)

    def _leads(self, function: Function) -> bool:
        """Whether an entry is to be followed; one of another file always is."""
        leading = self._leading
        return leading is None or function in leading or function.module is not self.module

    def follow(self) -> list[Found]:
        """Everything found from every entry."""
        found: list[Found] = []
        body = self.module.body
        if self._may_go_wrong(body):
            found += self._judge(body, [state.copy() for state in self.entries.globals])
        candidates = [
            function
            for function in self.module.functions
            if function is not body
            and self._may_go_wrong(function)
            and self._leads(function)
            and not _is_context_manager(function)
        ]
        for function in sorted(candidates, key=self._is_handed_out):  # users come first
            if function not in self.inlined and not self._is_called_here(function):
                found += self._judge_entry(function)
        for function in self._callers_first(candidates):
            if function not in self.inlined and self._holds_a_protocol(function):
                found += self._judge_entry(function)
        found += self._judge_inherited()
        found += self._judge_split_classes()
        found = [item for item in found if self._is_wanted(item)]
        unfinished = frozenset(self.program.work.unfinished)  # more states would end there, too
        found = list(feasible(found, unfinished, self._attempt_apart))
        found = [item for item in found if not item.elsewhere or self._is_made_here(item)]
        found = [kept for item in found if (kept := self._as_callers_have_it(item)) is not None]
        found += self._never_done(found)
        return [item for item in found if self._is_wanted(item)]

    def _attempt_apart(
        self, about: Found, entries: Sequence[State], crowded: frozenset[int | None]
    ) -> list[Found] | None:
        """Where a finding is found from states that are told apart; None if that does not end."""
        try:
            with self.program.work.beside():
                return self._attempt(about.entry, entries, crowded, about=about)[0]
        except BudgetExceeded:
            return None

    def _is_called_here(self, function: Function) -> bool:
        """Whether a call of the file is known to run a function.

        `self.model.train()` runs no `train` of the file.
        """
        return any(
            function in self.program.targets(site.node, site.function).functions
            for site in self.module.calls
            if site.method == function.name
        )

    def _callers_first(self, candidates: list[Function]) -> list[Function]:
        """Functions of the file behind those that surely call them, which decide about them."""
        wanted = {function.name for function in candidates}
        callers: dict[Function | None, list[Function]] = {}
        for site in self.module.calls:
            if site.method in wanted:
                callee = self.program.targets(site.node, site.function).only
                callers.setdefault(callee, []).append(site.function)
        ordered: dict[Function, None] = {}
        opened: set[Function] = set()
        pending = candidates[::-1]
        while pending:
            function = pending[-1]
            if function not in opened:
                opened.add(function)
                pending += [item for item in callers.get(function, ()) if item not in opened]
            else:
                ordered[pending.pop()] = None
        return [function for function in ordered if function in set(candidates)]

    def _is_wanted(self, item: Found) -> bool:
        """Whether a finding is about what the engine was asked about."""
        if self.about is None or self.home is not self.module:
            return True
        return item.site.function is self.about

    def _judge_entry(self, function: Function) -> list[Found]:
        """Follow an entry; one of an abstract class as the objects of its subclasses run it.

        What only some of them do wrong is their defect, and is reported in their files.
        """
        if only_repeats(function, self.unit, self.program, self._half_entered):
            self.program.work.leave(function)
            return []
        heirs = completing(function, self.program)
        if not heirs:
            states = self.entries.states(function)
            if function in self.unfollowed:
                self._give_arguments(function, states)
            found = self._judge(function, states)
            return [item for item in found if not self._subclasses_refute(item)]
        each = [self._judge(function, self.entries.states(function, heir)) for heir in heirs]
        shared = set.intersection(*({item.site.node for item in items} for items in each))
        return [item for item in each[0] if item.site.node in shared and self._decided_here(item)]

    def _give_arguments(self, function: Function, states: list[State]) -> None:
        """Fill, in place, the parameters for which all calls pass one and the same constant."""
        for name in parameters(function):
            possible = self.program.values.of(ast.Name(name, ast.Load()), function)
            contents = {item.content for item in possible.values}
            content = contents.pop() if possible.complete and len(contents) == 1 else None
            if isinstance(content, (bool, int, float, str)):
                for state in states:
                    state.values[f"{function.label}:{name}"] = ("const", content)

    def _decided_here(self, item: Found) -> bool:
        """Whether no test in another file leads to a misuse: else it is that file's."""
        steps = steps_of(item.state.trail)
        return all(step[2].module is self.home for step in steps if step[0] == "assume")

    def _as_callers_have_it(self, item: Found) -> Found | None:
        """A finding, unless callers in other files tie the parameters that this file leaves untied.

        `if use_amp:` against `if scaler is not None:` is right as long as every caller passes
        a scaler exactly when it passes the flag. Without any caller in sight the file stands
        for itself. What a caller that was followed in part does wrong was seen in part.
        """
        entry = item.entry
        if self.home is not self.module:
            return item
        if item.slug == NO_SCALER and self._is_called_out_of_sight(entry):
            return None  # whoever does may have asked before
        if entry not in self.entries.given and not depends_on_callers(item):
            return item
        if not self.program.is_searched(entry):
            return None  # the project is too large to look for them
        seen = half = False
        for unit in self.program.callers(entry):
            if unit.module is self.module:  # of an inherited method; followed already
                continue
            answer = self._followed(unit, entry)
            if answer.confirms(item):
                return item
            half = half or answer.finds(item)
            seen = seen or entry in answer.called or not answer.complete
        if half:
            return half_seen(item)
        return None if seen else item

    def _is_called_out_of_sight(self, entry: Function) -> bool:
        """Whether calls of a function are known, but not followed, or others got it to call it."""
        return entry in self.entries.given & self.unfollowed or self._is_handed_out(entry)

    def _is_handed_out(self, function: Function) -> bool:
        """Whether a file in sight reads a function as a value, as in a table."""
        return any(function.name in item.once(values_read) for item in self.program.modules)

    def _followed(self, unit: Unit, entry: Function) -> Followed:
        """What another file shows about a function of this one."""

        def follow() -> Answer:
            caller = _Engine(self.program, unit, self._judged, home=self.module, about=entry)
            return caller.follow(), caller.called

        return self._ask(self._callers, (entry, unit.module), follow)

    def _ask(self, known: dict[Key, Followed], key: Key, ask: Callable[[], Answer]) -> Followed:
        """What `ask` finds; asked once, and what rests on half an answer is half of one."""
        if key in known:
            self.program.work.cuts += not known[key].complete
            return known[key]
        cuts = self.program.work.cuts
        found, called = ask()
        known[key] = Followed(tuple(found), called, complete=self.program.work.cuts == cuts)
        return known[key]

    def _subclasses_refute(self, item: Found) -> bool:
        """Whether only objects of subclasses run a method, and the path is gone with each of them."""
        entry = item.entry
        heirs = self.program.subclasses(entry.owner) if entry.owner is not None else []
        if entry.owner is None or not heirs or self.home is not self.module:
            return False
        objects = self.program.objects
        if objects.is_made(entry.owner) and not is_abstract(entry.owner, self.program):
            return False
        run = [heir for heir in heirs if objects.is_made(heir) or not objects.subclasses(heir)]
        return not any(self._completed(entry, heir).confirms(item) for heir in run)

    def _completed(self, entry: Function, heir: Class) -> Followed:
        """What an entry does to the objects of a subclass."""

        def judge() -> Answer:
            return self._judge(entry, self.entries.states(entry, heir)), frozenset()

        return self._ask(self._heirs, (entry, heir), judge)

    def _never_done(self, reported: Sequence[Found]) -> Iterator[Found]:
        """Scalers that nothing in the file ever scales with, or updates, and that no path has shown."""
        told = {(item.verdict.code, item.site.scaler_text) for item in reported}
        nodes = {item.site.node for item in reported}
        for site, word in never_done(self.unit):
            text = ast.unparse(site.node.func.value)  # type: ignore[attr-defined]
            code, slug = NEVER[word]
            is_told = site.node in nodes or (code, text) in told
            if is_told or self._is_shared(site):
                continue
            optimizer = ast.unparse(site.node.args[0]) if site.node.args else ""
            place = Site(site.node, site.function, text, "", text, optimizer)
            verdict = Verdict(code, {"never": "yes", "slug": slug})
            links = tuple(scaler_and_optimizer(self.program, site))
            yield Found(slug, place, State(), verdict, site.function, links=links)

    def _is_shared(self, site: CallSite) -> bool:
        """Whether another file may use the scaler of a call: it is an attribute that one reads."""
        scaler, owner = site.node.func.value, enclosing_class(site.function)  # type: ignore[attr-defined]
        if not isinstance(scaler, ast.Attribute) or owner is None:
            return False
        return self.program.objects.is_read_outside(owner, scaler.attr)

    # -- methods of base classes that call methods of this file ------------------------------

    def _judge_inherited(self) -> list[Found]:
        """Inherited methods that run a protocol with the help of methods that override others."""
        found: list[Found] = []
        for owner in self.module.classes.values():
            own = {name for name, method in owner.methods.items() if self.facts[method].reach}
            for base in self.program.ancestry(owner)[1:] if own else ():
                for method in base.methods.values():
                    if self._leads(method) and self._needs(own, method, owner):
                        found += self._judge(method, self.entries.states(method, owner))
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
        """Clips in methods that step what a sibling method scaled."""
        return [
            item
            for method, states in split_steppers(self.unit, self.program, self.entries)
            if self._leads(method)
            for item in self._attempt(method, states, frozenset())[0]
            if item.slug == "clip-of-scaled"
        ]

    def _holds_a_protocol(self, function: Function) -> bool:
        return _is_protocol(self.program.facts(function).reach) and _is_protocol(
            self.program.reach_of(function)
        )

    def _judge(self, function: Function, entries: list[State]) -> list[Found]:
        """Follow one entry; with several optimizers in one loop, again with that knowledge.

        The first attempt ends where it meets a second optimizer, the next one looks for others.
        """
        crowded: frozenset[int | None] = frozenset()
        found, interpreter = self._attempt(function, entries, crowded, waits=True)
        for _ in range(2):
            optimizers = interpreter.calls.events.optimizers
            every = crowded.union(scope for scope, names in optimizers.items() if len(names) > 1)
            if every == crowded:
                break
            crowded = every
            found, interpreter = self._attempt(function, entries, crowded, earlier=interpreter)
        self.called |= interpreter.calls.functions.inlined
        self.unfollowed |= interpreter.calls.unfollowed
        self.inlined |= interpreter.calls.functions.inlined | {function}
        return found

    def _attempt(
        self,
        function: Function,
        entries: Sequence[State],
        crowded: frozenset,
        *,
        waits: bool = False,
        earlier: Interpreter | None = None,
        about: Found | None = None,
    ) -> tuple[list[Found], Interpreter]:
        found: list[Found] = []

        def report(slug: str, site: Site, state: State, details: dict[str, str]) -> None:
            if about is not None and slug != about.slug:
                return  # another mistake, and what a report rests on is dear to find out
            judge = self._diagnostician(site.function.module)
            verdict = judge.diagnose(slug, site, state, details)
            place = verdict.site or site if verdict is not None else None
            home = self._home(place, state) if place is not None else None
            if verdict is None or place is None or home is None:
                return
            if about is not None and home.node is not about.site.node:
                return
            every, reader = steps_of(state.trail), interpreter.reader
            passed = [function, *(step[2] for step in every)]
            if (
                is_cut_off(place.node, place.function)
                or is_impossible(self.program, state, place, passed, scales=slug != NO_SCALER)
                or leaves_each_out(self.program, reader, slug, state, every)
                or asks_one_object_twice(self.program, every)
                or uses_what_it_denies(reader, every, place, state)
            ):
                return
            steps = relevant_steps(state.trail, slug, place)
            flags = list(deciding_flags(reader, steps, place.scaler_text, state))
            if flags:
                verdict.details.setdefault("guard", condition((flags[0][1], flags[0][3])))
            links = (
                *links_of(self.program, every, steps, flags),
                *absence(unproved(self.program, reader, slug, site, state, steps)),
            )
            run = Run(tuple(entries), crowded, frozenset(atoms_tested(steps, state, reader)))
            after, origin, elsewhere = state.copy(), None, False
            if home is not place:
                verdict.details.pop("line", None)  # of another file
                origin, elsewhere = place, self._lies_elsewhere(slug, place, state)
            found.append(Found(slug, home, after, verdict, function, origin, elsewhere, links, run))

        interpreter = interpreter_for(self.program, function, report, crowded)
        interpreter.calls.events.parameters |= self.entries.owned_in(entries)
        interpreter.calls.events.waits = waits
        if earlier is not None:
            interpreter.calls.functions.earlier = earlier.calls.functions.summaries
            interpreter.calls.unfollowed |= earlier.calls.unfollowed
        frame = Frame(function, active=(function,))
        for state in entries:
            interpreter.calls.functions.unbind(function, state)
        try:
            outcome = interpreter.run(frame, list(entries))
            after = [*outcome.normal, *(state for state, _ in outcome.returns)]
            if is_called_per_batch(function, self.unit, interpreter):
                interpreter.run(frame, next_call(after, function, self.unit, interpreter))
            if function is self.module.body and not is_focused(entries):
                self.entries.leave_module(after)
        except BudgetExceeded:
            if is_focused(entries):
                raise  # the run before came to its end, and stands
            # What was found until here stands; silence about the rest means nothing.
            self.program.work.leave(function)
            self._half_entered |= interpreter.calls.functions.inlined
        except SeveralOptimizers:
            pass  # it is followed again
        return found, interpreter

    def _diagnostician(self, module: Module) -> Diagnostician:
        known = self._diagnosticians.get(module)
        if known is None:
            roles = self.program.roles(module.body)
            facts = [*self.program.unit(module.body).facts.values(), *self.facts.values()]
            reach = frozenset().union(*(found.reach for found in facts))
            known = self._diagnosticians[module] = Diagnostician(
                module, roles, reach, self.program.values.origins
            )
        return known

    def _home(self, site: Site, state: State) -> Site | None:
        """Where in this file to report a violation: at its place, or at the call that leads there.

        None if the path does not pass this file.
        """
        if site.function.module is self.home:
            return site
        steps = steps_of(state.trail)
        calls = [step for step in steps if step[0] == "call" and step[2].module is self.home]
        # Without a call in sight, a method of this file that an inherited one has called decides.
        inside = [step for step in steps if step[0] == "assume" and step[2].module is self.home]
        for step in reversed(calls or inside):
            return replace(site, node=step[1], function=step[2])
        return None

    def _lies_elsewhere(self, slug: str, site: Site, state: State) -> bool:
        """Whether all that leads to a violation happens in other files."""
        steps = relevant_steps(state.trail, slug, site)
        shared = any(step[0] == "event" and step[2].module is self.home for step in steps)
        return not shared and slug != NO_SCALER

    def _is_made_here(self, item: Found) -> bool:
        """Whether what happens in other files is wrong only because this one calls them so.

        What their functions do wrong by themselves is reported there, but for those of files
        in which no analysis starts.
        """
        if self.home is not self.module or item.origin is None:
            return False
        steps = relevant_steps(item.state.trail, item.slug, item.origin)
        functions = {step[2] for step in steps if step[0] == "event"} | {item.origin.function}
        checked = (item for item in functions if self.program.mentions_amp(item.module))
        ordered = sorted(checked, key=lambda function: function.label)
        answers = (self._judged_alone(function) for function in ordered)
        if any(answer.found or not answer.complete for answer in answers):
            return False
        rounds = {step[2] for step in steps if step[0] == "loop"} - functions
        around = sorted(rounds, key=lambda function: function.label)
        return not any(self._is_told_in(function, item) for function in around)

    def _is_told_in(self, function: Function, item: Found) -> bool:
        """Whether a function of another file, whose loop a path goes round, shows the same alone."""
        if function.module is self.home or not self.program.mentions_amp(function.module):
            return False
        assert item.origin is not None
        return any(
            other.verdict.code == item.verdict.code
            and (other.origin or other.site).node is item.origin.node
            for other in self._judged_alone(function).found
        )

    def _judged_alone(self, function: Function) -> Followed:
        """What a function of another file does wrong by itself.

        Nothing where its file is being asked already.
        """
        judged, home = self._judged, function.module
        if function not in judged.known and home in judged.asking:
            return Followed((), frozenset(), complete=True)

        def follow() -> Answer:
            judged.asking.add(home)
            engine = _Engine(self.program, self.program.unit(function), judged, about=function)
            found = engine.follow()
            judged.asking.discard(home)
            return found, engine.called

        return self._ask(judged.known, function, follow)


def _is_protocol(words: AbstractSet[str]) -> bool:
    return BACKWARD in words and bool(words & {STEP, PLAIN_STEP})


def _is_context_manager(function: Function) -> bool:
    """Whether a generator becomes a `with` block: what runs at its `yield` is the caller's."""
    decorators = getattr(function.node, "decorator_list", [])
    return any("contextmanager" in ast.unparse(item) for item in decorators)
