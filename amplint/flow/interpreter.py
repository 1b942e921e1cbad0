"""Interprets the statements of a function on sets of abstract states.

Structured code needs no control-flow graph: each statement maps a list of states to the
states that go on, break, continue or return. A raise ends a state. States are merged after
every statement (`amplint.flow.merging`), which keeps the cost polynomial.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from amplint.code.by_name import written_by_name
from amplint.code.module import Function
from amplint.code.statements import catches_all, test_of_case
from amplint.code.tree import TRIES
from amplint.flow.assignments import Assignments
from amplint.flow.budget import BesideBudgetExceeded, BudgetExceeded, Cost
from amplint.flow.call import Frame
from amplint.flow.conditions import assume, evaluate, forget
from amplint.flow.events import Report, Transitions
from amplint.flow.expressions import Valued
from amplint.flow.facts import ZERO_GRAD
from amplint.flow.liveness import NONE_DEAD, Dead, liveness_of
from amplint.flow.loops import Enter, Loop, Shape, inner_iterable
from amplint.flow.merging import FINE, Limits, merge
from amplint.flow.outcome import Outcome
from amplint.flow.places import ROUND
from amplint.flow.program import Program
from amplint.flow.raising import catches, never_raises
from amplint.flow.reader import Reader
from amplint.flow.slice import fills_container, uncalled_backward, updates_container
from amplint.flow.state import Guards, State, Turn
from amplint.flow.typestates import EVERY
from amplint.flow.values import NONE, kind_of
from amplint.flow.witness import steps_of

#: Interpreting an entry stops after this many statement visits; what was found is kept.
VISIT_LIMIT = 12_000
#: Functions without events (data sets, configurations) may use so many of them. They are
#: followed only for what they store and return.
BESIDE_LIMIT = 3_000
#: From this many visits on, states are told apart by what they mean for the protocol alone.
FINE_VISITS = 2_000
COARSE = Limits(0, 0)
#: In functions that reach no event (constructors, configurations): what they store is read elsewhere.
WITHOUT_EVENTS = Limits(4, 16)
#: Rounds of a loop: two find every protocol bug, the third removes order effects.
ROUNDS = 3


class Interpreter(Assignments):
    """Follows the paths of functions of one program.

    Args:
        reader: reads expressions.
        transitions: applies protocol events.
        crowded: scopes known to hold several optimizers. A scope is the outermost training
            loop, or None outside of one.
    """

    def __init__(
        self,
        reader: Reader,
        transitions: Transitions,
        crowded: frozenset[int | None] = frozenset(),
    ) -> None:
        super().__init__(reader, transitions, self)
        self.raising = self.calls.functions.raising
        self.visits = 0
        self._beside = False
        self._visits_beside = 0
        self._crowded = crowded
        #: Tests that may choose a round of a container loop -> the side taken in the one that runs.
        self._choosing: dict[int, bool] = {}
        self._enter_scope(None)

    @property
    def scope(self) -> int | None:
        """The outermost training loop that is being interpreted."""
        return self.calls.events.scope

    def _enter_scope(self, scope: int | None) -> None:
        self.calls.events.scope = scope
        self.transitions.several = scope in self._crowded

    def run(self, frame: Frame, states: list[State]) -> Outcome:
        """Interpret the body of the frame's function.

        Raises:
            BudgetExceeded: the entry, or all that the checked file asked for, is too large.
        """
        return self.block(frame.function.body, states, frame)

    @property
    def cost(self) -> Cost:
        """What has been spent until now."""
        return Cost(self.visits, self._visits_beside)

    def run_again(self, function: Function, cost: Cost) -> bool:
        """Count what running a function has cost before; False where it is too large by now."""
        try:
            self._spend(cost)
        except BesideBudgetExceeded:
            if self._beside:
                raise
            return self.program.facts(function).interesting
        return True

    def run_callee(self, frame: Frame, state: State) -> Valued | None:
        """The states that a function returns with; None if it has no events and is too large."""
        if self._beside or self.program.facts(frame.function).interesting:
            return self._left(self.run(frame, [state]))
        if frame.function in self.program.work.endless:
            return None
        before = self._visits_beside
        self._beside = True
        try:
            return self._left(self.run(frame, [state]))
        except BesideBudgetExceeded:
            if self._visits_beside - before > BESIDE_LIMIT // 2:
                self.program.work.endless.add(frame.function)
            return None  # as if nobody knew the function
        finally:
            self._beside = False

    def _left(self, outcome: Outcome) -> Valued:
        """The ways out of a function; one that a handler takes has the exception as its value."""
        thrown = ((after, ("raised", raised)) for raised, after in outcome.raises)
        return [*outcome.returned(), *thrown]

    # -- statements --------------------------------------------------------------------

    def block(self, body: list[ast.stmt], states: list[State], frame: Frame) -> Outcome:
        """Interpret a statement list."""
        view = self.program.slice(frame.function)
        dead = frame.function.once(liveness_of).after
        outcome = Outcome(normal=states)
        for statement in body:
            outcome.raises += self.raising.in_calls(statement, outcome.normal, frame.function)
            if id(statement) not in view.kept:
                continue
            if not outcome.normal:
                break
            self._count(outcome.normal)
            earlier, self.raising.thrown = self.raising.thrown, []
            result = self._statement(statement, outcome.normal, frame)
            outcome.raises += self.raising.thrown
            self.raising.thrown = earlier
            outcome.absorb(result)
            here = dead.get(id(statement), NONE_DEAD)
            outcome.normal = self._merge(result.normal, frame, here)
        return outcome

    def _merge(self, states: list[State], frame: Frame, dead: Dead = NONE_DEAD) -> list[State]:
        """Merge the states at one point of the frame's function."""
        if len(states) < 2:
            return states
        guards = self.program.slice(frame.function).guards
        if self.visits > FINE_VISITS:
            return merge(states, guards, COARSE, dead)
        acts = self.program.facts(frame.function).acts
        return merge(states, guards, FINE if acts else WITHOUT_EVENTS, dead)

    def _count(self, states: list[State]) -> None:
        visits = len(states) * states[0].weight
        self._spend(Cost(visits, visits if self._beside else 0))

    def _spend(self, cost: Cost) -> None:
        self.visits += cost.visits
        self.program.work.budget.spend(cost.visits)
        if self.visits > VISIT_LIMIT:
            raise BudgetExceeded
        self._visits_beside += cost.beside
        if cost.beside and self._visits_beside > BESIDE_LIMIT:
            raise BesideBudgetExceeded

    def _statement(self, node: ast.stmt, states: list[State], frame: Frame) -> Outcome:
        handler = _HANDLERS.get(type(node))
        return handler(self, node, states, frame) if handler else Outcome(normal=states)

    def _expression_statement(self, node: ast.Expr, states: list[State], frame: Frame) -> Outcome:
        if fills_container(node) and isinstance(node.value, ast.Call):
            return Outcome(
                normal=[
                    after
                    for state in states
                    for after in self.fill_container(node.value, state, frame)
                ]
            )
        written = written_by_name(node.value)
        if written is not None:
            target, value = written
            assignment = ast.copy_location(ast.Assign([target], value), node)
            return Outcome(normal=self.assign(assignment, states, frame))
        normal = [after for state in states for after in self._run(node, state, frame)]
        if updates_container(node):
            normal = [after.copy() for after in normal]
            for after in normal:
                self.fill(node.value.func.value, after, frame)  # type: ignore[attr-defined]
        return Outcome(normal=normal)

    def _run(self, node: ast.Expr, state: State, frame: Frame) -> Iterator[State]:
        """The states after an expression whose value nobody takes; a scaled loss is lost there."""
        value = uncalled_backward(node) or node.value
        for after, result in self.expression(value, state, frame):
            steps = steps_of(after.trail)[state.length :]
            if kind_of(result) == "scaled" and not any(step[0] == "event" for step in steps):
                after = after.copy()
                after.note("drop", node, frame.function, None)
            yield after

    def _if(self, node: ast.If, states: list[State], frame: Frame) -> Outcome:
        outcome = Outcome()
        side = self._choosing.get(id(node))
        if side is None:
            yes, no = self.branch(node.test, states, frame)
        else:
            yes, no = self.branch_of_round(node.test, side, states, frame)
        for body, branch in ((node.body, yes), (node.orelse, no)):
            if branch:
                result = self.block(body, self._merge(branch, frame), frame)
                outcome.absorb(result)
                outcome.normal += result.normal
        return outcome

    def _while(self, node: ast.While, states: list[State], frame: Frame) -> Outcome:
        shape = self.loops.shape(node, frame.function)
        entered, skipped = self.branch(node.test, states, frame)
        outcome = Outcome(normal=[] if shape.trains and entered else skipped)
        exits = self._rounds(
            node, entered, frame, outcome, lambda ends: self.branch(node.test, ends, frame)
        )
        return self._leave_loop(node, shape, exits, frame, outcome)

    def _for(self, node: ast.For, states: list[State], frame: Frame) -> Outcome:
        shape = self.loops.shape(node, frame.function)
        entering = (self.expression(node.iter, state, frame) for state in states)
        states = [after for given in entering for after, _ in given]
        if shape.container:
            return self._unless_empty(node, states, frame)
        # Several trainings, one after the other, may each begin with objects of their own.
        in_turn = not shape.trains or self.scope is not None
        hooks = [
            state for state in states if in_turn and self.loops.runs_through(node, state, frame)
        ]
        states = [state for state in states if state not in hooks] if hooks else states
        ran = self._container_loop(node, hooks, frame) if hooks else Outcome()
        ran.normal, ran.breaks = [*ran.normal, *ran.breaks], []
        if hooks and not states:
            return ran
        surely = shape.trains or (isinstance(node.iter, (ast.Tuple, ast.List)) and node.iter.elts)
        outcome = Outcome()
        heads = []
        entered, skipped = (states, []) if surely else self._split_by_length(node, states, frame)
        outcome.normal += [self.loops.passed_over(node, state, frame) for state in skipped]
        for state in entered:
            state = state.copy()
            heads.append(self._entered(node, state, frame, self.loops.start))
        before = self.transitions.havocs
        exits = self._rounds(
            node, heads, frame, outcome, lambda ends: self._next_item(node, ends, frame)
        )
        if self.transitions.havocs > before:
            # Hooks that nobody can see: whether there are none is not known either.
            outcome.normal = []
        elif any(("havoc", EVERY) in state.typestate for state in exits):
            outcome.normal = [s for s in outcome.normal if ("havoc", EVERY) in s.typestate]
        outcome = self._leave_loop(node, shape, exits, frame, outcome)
        outcome.absorb(ran)
        outcome.normal += ran.normal
        return outcome

    def _unless_empty(self, node: ast.For, states: list[State], frame: Frame) -> Outcome:
        """A loop over optimizers or scalers: there are some, unless the path knows of none."""
        entered: list[State] = []
        none: list[State] = []
        for state in states:
            some = self.reader.formula(inner_iterable(node.iter), state, frame.function)
            if evaluate(some, state) is False:
                none.append(state)
            else:
                entered += assume(some, True, state)
        outcome = self._container_loop(node, entered, frame)
        outcome.normal += none
        broken, outcome.breaks = outcome.breaks, []
        return self._or_else(node, broken, frame, outcome)

    def _split_by_length(
        self, node: ast.For, states: list[State], frame: Frame
    ) -> tuple[list[State], list[State]]:
        """States that enter a loop, and those that find nothing to run over.

        A container of hooks that is empty once is empty in every iteration, so that is assumed
        like a test where the body does protocol work.
        """
        if not self.loops.words(node.body, frame.function):
            return states, list(states)
        entered: list[State] = []
        skipped: list[State] = []
        for state in states:
            formula = self.reader.formula(inner_iterable(node.iter), state, frame.function)
            if formula is None:
                entered.append(state)
                skipped.append(state)
                continue
            entered += assume(formula, True, state)
            skipped += assume(formula, False, state)
        return entered, skipped

    def _next_item(
        self, node: ast.For, ends: list[State], frame: Frame
    ) -> tuple[list[State], list[State]]:
        again, done = [], []
        for state in ends:
            last = self.loops.is_last(node, state, frame)
            if last is not True:
                again.append(self._entered(node, state.copy(), frame, self.loops.advance))
            if last is not False:
                done.append(state)
        return again, done

    def _entered(self, node: ast.For, state: State, frame: Frame, enter: Enter) -> State:
        """Enter a round, in place: a generator has worked since the round before."""
        enter(node, state, frame)
        if self.loops.shape(node, frame.function).works:
            self.transitions.havoc(state)
        return state

    def _rounds(
        self, node: Loop, heads: list[State], frame: Frame, outcome: Outcome, turn: Turn
    ) -> list[State]:
        """Iterate the body until nothing new appears; returns the states that leave."""
        shape = self.loops.shape(node, frame.function)
        if shape.trains:
            heads = [self._enter_training(state, shape) for state in heads]
        outer = self.scope
        if shape.trains and outer is None:
            self._enter_scope(id(node))
        exits = self._iterate(node, heads, frame, outcome, turn)
        self._enter_scope(outer)
        return exits

    def _iterate(
        self, node: Loop, heads: list[State], frame: Frame, outcome: Outcome, turn: Turn
    ) -> list[State]:
        exits: list[State] = []
        guards = self.program.slice(frame.function).guards
        seen: set[tuple] = set()
        dead = frame.function.once(liveness_of).heads.get(id(node), NONE_DEAD)
        for _ in range(ROUNDS):
            heads = self._merge(heads, frame, dead)
            heads = [state for state in heads if _is_new(state, guards, dead, seen)]
            if not heads:
                break
            result = self.block(node.body, heads, frame)
            outcome.returns += result.returns
            outcome.breaks += result.breaks
            outcome.raises += result.raises
            ends = [_asking_again(state) for state in result.normal + result.continues]
            again, done = turn(self._merge(ends, frame, dead))
            exits += done
            heads = [self._back_edge(state, node, frame) for state in again]
        return exits

    def _enter_training(self, state: State, shape: Shape) -> State:
        state = state.copy()
        state.typestate.pop(("flag", "after"), None)
        state.typestate.pop(("flag", "fed"), None)
        if shape.steps:
            self.transitions.enter_training_loop(state)
        return state

    def _back_edge(self, state: State, node: ast.stmt, frame: Frame) -> State:
        state = state.copy()
        self.transitions.back_edge(state)
        state.note("loop", node, frame.function, None)
        return state

    def _leave_loop(
        self, node: Loop, shape: Shape, exits: list[State], frame: Frame, outcome: Outcome
    ) -> Outcome:
        broken, outcome.breaks = outcome.breaks, []
        if shape.trains:
            # A loop over data is taken to reach a backward at least once.
            fed = [state for state in exits + broken if ("flag", "fed") in state.typestate]
            if fed:
                exits = [state for state in exits if state in fed]
                broken = [state for state in broken if state in fed]
            exits, broken = (
                [_after_training(state, node, frame) for state in part] for part in (exits, broken)
            )
            for state in exits:
                self.loops.count_known(state)
        outcome.normal += exits
        return self._or_else(node, broken, frame, outcome)

    def _or_else(self, node: Loop, broken: list[State], frame: Frame, outcome: Outcome) -> Outcome:
        """Run the `else` of a loop in the states that no `break` has led out of it."""
        if node.orelse:
            guards = self.program.slice(frame.function).guards
            result = self.block(node.orelse, merge(outcome.normal, guards), frame)
            outcome.absorb(result)
            outcome.normal = result.normal
        outcome.normal += broken
        return outcome

    def _container_loop(self, node: ast.For, states: list[State], frame: Frame) -> Outcome:
        """A loop over optimizers or scalers: one round stands for all elements.

        Where it leaves gradients that nobody knows, those of the elements that a test in it
        leaves out are not known either. Where the elements are known, each has its round. A test
        that may choose the round of an `update()`, and that nobody can decide, chooses the last.
        """
        outcome = Outcome()
        before = self.transitions.havocs
        choices = self.loops.choices(node, frame.function)
        for state in states:
            running = [state]
            items = self.loops.elements(node, state, frame)
            for place, item in enumerate(items, 1):
                first, last = place == 1 if len(items) > 1 else None, place == len(items)
                self._choosing |= {id(test): side is last for test, side in choices}
                following: list[State] = []
                for current in running:
                    current = current.copy()
                    self.bind(node.target, item, current, frame)
                    self.loops.mark_round(node, current, frame, first=first, last=last)
                    result = self.block(node.body, [current], frame)
                    outcome.returns += result.returns
                    outcome.raises += result.raises
                    outcome.breaks += result.breaks
                    following += result.normal + result.continues
                running = merge(following, self.program.slice(frame.function).guards)
            outcome.normal += running
        if self.transitions.havocs > before:
            unknown = [state for state in outcome.normal if not _knows_gradients(state)]
            outcome.normal = unknown or outcome.normal
        return outcome

    def _with(self, node: ast.With, states: list[State], frame: Frame) -> Outcome:
        for item in node.items:
            states = [after for state in states for after in self._enter(item, state, frame)]
        return self.block(node.body, states, frame)

    def _enter(self, item: ast.withitem, state: State, frame: Frame) -> list[State]:
        results = []
        for after, value in self.expression(item.context_expr, state, frame):
            if item.optional_vars is not None:
                after = after.copy()
                self.bind(item.optional_vars, self.calls.entered(item, value), after, frame)
            results.append(after)
        return results

    def _try(self, node: ast.Try, states: list[State], frame: Frame) -> Outcome:
        with self.raising.awaited(node.handlers):
            body = self.block(node.body, states, frame)
        outcome = Outcome(breaks=body.breaks, continues=body.continues, returns=body.returns)
        normal = body.normal
        if node.orelse and normal:
            result = self.block(node.orelse, normal, frame)
            outcome.absorb(result)
            normal = result.normal
        raised = body.raises
        for handler in () if never_raises(node.body, frame.function) else node.handlers:
            caught = [state for raises, state in raised if catches(handler, raises) is True]
            raised = [item for item in raised if catches(handler, item[0]) is False]
            if caught:
                result = self.block(handler.body, self._merge(caught, frame), frame)
                outcome.absorb(result)
                normal = normal + result.normal
            # Where else the body raised is unknown, so a handler knows no typestate.
            confused = [state.copy() for state in (*states, *body.normal)]
            for state in confused:
                self.transitions.havoc(state)
            result = self.block(handler.body, self._merge(confused, frame), frame)
            outcome.absorb(result)
            normal = normal + result.normal
        outcome.raises += raised
        outcome.normal = normal
        if not node.finalbody:
            return outcome
        return outcome.through(
            lambda left: self.block(node.finalbody, self._merge(left, frame), frame)
        )

    def _match(self, node: ast.Match, states: list[State], frame: Frame) -> Outcome:
        outcome = Outcome()
        for case in node.cases:
            if not states:
                break
            test = test_of_case(node.subject, case)
            if test is None:
                chosen, states = states, ([] if catches_all(case) else states)
            else:
                chosen, states = self.branch(test, states, frame)
            if case.guard is not None:
                chosen, rest = self.branch(case.guard, chosen, frame)
                states = self._merge(states + rest, frame)
            result = self.block(case.body, self._merge(chosen, frame), frame)
            outcome.absorb(result)
            outcome.normal += result.normal
        outcome.normal += states
        return outcome

    def _return(self, node: ast.Return, states: list[State], frame: Frame) -> Outcome:
        if node.value is None:
            return Outcome(returns=[(state, NONE) for state in states])
        returned = [
            pair
            for state in states
            for pair in self.expression(node.value, state, frame, binding=True)
        ]
        return Outcome(returns=returned)

    def _assert(self, node: ast.Assert, states: list[State], frame: Frame) -> Outcome:
        return Outcome(normal=self.branch(node.test, states, frame)[0])


def interpreter_for(
    program: Program, function: Function, report: Report, crowded: frozenset[int | None]
) -> Interpreter:
    """An interpreter that begins in a function.

    Args:
        crowded: see `Interpreter`.
    """
    transitions = Transitions(report, clears=ZERO_GRAD in program.facts(function).reach)
    return Interpreter(Reader(program), transitions, crowded)


def silent_interpreter(program: Program, function: Function) -> Interpreter:
    """An interpreter that is asked only for the states that a function leaves behind."""
    return interpreter_for(program, function, lambda *_: None, frozenset())


def _is_new(state: State, guards: Guards, dead: Dead, seen: set[tuple]) -> bool:
    key = (state.key(guards, dead), frozenset(state.facts.items()))
    if key in seen:
        return False
    seen.add(key)
    return True


def _asking_again(state: State) -> State:
    """A state in which calls that were asked in this round may answer otherwise."""
    if not any(atom[0] == "other" and ROUND in atom[2] for atom in state.facts):
        return state
    state = state.copy()
    forget(ROUND, state)
    return state


def _knows_gradients(state: State) -> bool:
    return any(item[0] is not None for key, item in state.typestate.items() if key[0] == "gradient")


def _after_training(state: State, node: ast.stmt, frame: Frame) -> State:
    state = state.copy()
    state.typestate[("flag", "after")] = True
    state.note("leave", node, frame.function, None)
    return state


def _going_on(change: Callable[..., list[State]]) -> Callable[..., Outcome]:
    """A statement behind which every path goes on."""
    return lambda self, node, states, frame: Outcome(normal=change(self, node, states, frame))


_HANDLERS: dict[type[ast.stmt], Callable[..., Outcome]] = {
    ast.Expr: Interpreter._expression_statement,
    ast.Assign: _going_on(Interpreter.assign),
    ast.AnnAssign: _going_on(Interpreter.assign),
    ast.AugAssign: _going_on(Interpreter.augmented),
    ast.Delete: _going_on(Interpreter.delete),
    ast.If: Interpreter._if,
    ast.While: Interpreter._while,
    ast.For: Interpreter._for,
    ast.AsyncFor: Interpreter._for,
    ast.With: Interpreter._with,
    ast.AsyncWith: Interpreter._with,
    **dict.fromkeys(TRIES, Interpreter._try),
    ast.Match: Interpreter._match,
    ast.Return: Interpreter._return,
    ast.Assert: Interpreter._assert,
    ast.Raise: lambda self, node, states, frame: Outcome(
        raises=self.raising.by(node, states, frame.function)
    ),
    ast.Break: lambda self, node, states, frame: Outcome(breaks=states),
    ast.Continue: lambda self, node, states, frame: Outcome(continues=states),
}
