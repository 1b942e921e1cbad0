"""Interprets expressions: events in evaluation order, branches, assignments to targets."""

from __future__ import annotations

import ast

from amplint.code.dataflow import bindings_of, bound_in, changed_elsewhere, names_in
from amplint.code.expressions import path_text
from amplint.code.layout import LOOPS, layout_of
from amplint.code.module import Function, walk
from amplint.flow.call import Frame
from amplint.flow.calls import Calls
from amplint.flow.conditions import (
    Formula,
    assume,
    disjoin,
    evaluate,
    forget,
    is_about_gradients,
    is_volatile,
    periods,
    remembered,
    settle,
)
from amplint.flow.copies import assign_field, is_part_of_copy, place_copy
from amplint.flow.events import Transitions
from amplint.flow.facts import asks_for_gradients, asks_for_graph
from amplint.flow.functions import Runner
from amplint.flow.loops import LoopReader
from amplint.flow.naming import named
from amplint.flow.reader import Reader
from amplint.flow.state import State
from amplint.flow.values import FOREIGN, KEEPER, OPAQUE, POSITIVE, ZERO, Value, is_truthy, kind_of

Valued = list[tuple[State, Value]]


class Expressions:
    """Evaluates expressions that may hold protocol calls.

    Args:
        reader: reads expressions without side effects.
        transitions: applies protocol events.
        run: interprets the body of a called function.
    """

    def __init__(self, reader: Reader, transitions: Transitions, runner: Runner) -> None:
        self.reader = reader
        self.program = reader.program
        self.transitions = transitions
        self.loops = LoopReader(reader)
        self.calls = Calls(reader, transitions, self.expression, runner)
        self._walruses: dict[int, bool] = {}
        self._asking: dict[int, bool] = {}
        self._about_rounds: dict[int, bool] = {}

    def bind(self, target: ast.expr, value: Value, state: State, frame: Frame) -> None:
        """Assign, in place: forget the old value, remember the new one."""
        if isinstance(target, (ast.Tuple, ast.List)):
            parts = value[1] if value is not None and value[0] == "tuple" else ()
            rest = value if value == FOREIGN else None
            for index, item in enumerate(target.elts):
                known = parts[index] if len(parts) == len(target.elts) else rest
                self.bind(item, known, state, frame)
            return
        if isinstance(target, ast.Starred):
            self.bind(target.value, None, state, frame)
            return
        if isinstance(target, ast.Subscript):
            self.fill(target.value, state, frame)
        location = self._target_location(target, state, frame)
        if location is None:
            return
        if value == KEEPER and self._is_participant(target, frame):
            value = None  # a wrapper of a scaler or an optimizer: known by its role
        if value == OPAQUE and self._is_scaler(target, frame):
            value = None  # what unknown code made is the scaler, not a loss that it scaled
        self.calls.assign_gradient(target, value, state, frame)
        if value is not None and value[0] == "path" and value[1] == location:
            return
        if kind_of(value) in ("none", "const") and _is_replaced(target, frame):
            value = None
        if value is not None and value[0] == "copy":
            place_copy(value, location, state)
            for name, held in value[2]:
                if kind_of(held) in ("scaler", "optimizer"):
                    self._place(location + name, held, state)
            return
        self._place(location, value, state)

    def _place(self, location: str, value: Value, state: State) -> None:
        """Put a value into a place, in place; what was built for it gets its name from it."""
        value = settle(value, location, state)
        forget(location, state)
        if value is not None:
            state.values[location] = named(value, location, state, self.calls.events)
        elif is_part_of_copy(location, state):
            assign_field(location, value, state)

    def _is_scaler(self, target: ast.expr, frame: Frame) -> bool:
        return self.program.roles(frame.function).is_scaler(target, frame.function)

    def _is_participant(self, target: ast.expr, frame: Frame) -> bool:
        roles = self.program.roles(frame.function)
        return self._is_scaler(target, frame) or roles.is_optimizer(target, frame.function)

    def fill(self, place: ast.expr, state: State, frame: Frame) -> None:
        """Put something into a container, in place: it is not empty any more."""
        location = self.reader.locate(place, state, frame.function)
        if location is None:
            return
        if state.values.get(location) == ZERO:
            state.values[location] = POSITIVE
        for atom in (("true", location), ("positive", location)):
            if state.facts.get(atom) is False:
                del state.facts[atom]

    def _target_location(self, target: ast.expr, state: State, frame: Frame) -> str | None:
        """Where an assignment writes: a name rebinds, so its alias is not followed."""
        if isinstance(target, ast.Name):
            return self.reader.name_location(target.id, frame.function)
        if isinstance(target, ast.Attribute):
            base = self.reader.locate(target.value, state, frame.function, own=True)
            return None if base is None else f"{base}.{target.attr}"
        return self.reader.locate(target, state, frame.function, own=True)

    def branch(
        self, test: ast.expr, states: list[State], frame: Frame
    ) -> tuple[list[State], list[State]]:
        """Split states on a test, events inside the test included."""
        yes: list[State] = []
        no: list[State] = []
        for state in states:
            one, two = self._branch_state(test, state, frame)
            yes += one
            no += two
        return yes, no

    def branch_of_round(
        self, test: ast.expr, side: bool, states: list[State], frame: Frame
    ) -> tuple[list[State], list[State]]:
        """Split states on a test that may choose a round of a loop.

        Args:
            side: how it comes out where a state does not decide it.
        """
        yes: list[State] = []
        no: list[State] = []
        for state in states:
            one, two = self.branch(test, [state], frame)
            is_open = bool(one and two)
            yes += one if side or not is_open else []
            no += two if not side or not is_open else []
        return yes, no

    def _branch_state(
        self, test: ast.expr, state: State, frame: Frame
    ) -> tuple[list[State], list[State]]:
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            holds, fails = self._branch_state(test.operand, state, frame)
            return fails, holds
        if isinstance(test, ast.BoolOp) and self._needs_steps(test, state, frame):
            return self._branch_connective(test, state, frame)
        before: Valued = [(state, None)]
        if id(test) in self.program.slice(frame.function).calls or isinstance(test, ast.NamedExpr):
            before = self.expression(test, state, frame)
        yes: list[State] = []
        no: list[State] = []
        for current, value in before:
            returned = is_truthy(value)
            if returned is not None and not isinstance(test, ast.NamedExpr):
                (yes if returned else no).append(current)
                continue
            formula = self.reader.formula(test, current, frame.function)
            decided = evaluate(formula, current) is not None
            exact = decided or is_about_gradients(formula)
            asks = self._asks_for_gradients(test, frame.function)
            rounds = asks or self._asks_about_rounds(test, formula, current, frame.function)
            if not exact and rounds:
                current = current.copy()
                self.transitions.doubt_all(current)
            for truth, bucket in ((True, yes), (False, no)):
                for after in assume(formula, truth, current):
                    bucket.append(after if decided else _noted(after, test, frame, truth))
        return yes, no

    def _asks_about_rounds(
        self, test: ast.expr, formula: Formula, state: State, function: Function
    ) -> bool:
        """Whether a test behind a training loop may ask if the last window was complete.

        In whatever way: by a total that leaves a remainder when it is divided by the length of a
        window; or by something that the rounds bind, and that a branch in the loop binds or
        compares with what the test reads as well.
        """
        if ("flag", "after") not in state.typestate:
            return False
        lengths = {atom[2] for atom in state.facts if atom[0] == "boundary"}
        if not lengths.isdisjoint(periods(formula)):
            return True
        known = self._about_rounds.get(id(test))
        if known is None:
            known = self._about_rounds[id(test)] = any(
                isinstance(loop, LOOPS)
                and self.loops.shape(loop, function).trains
                and self._reads_window(names_in(test), loop, function)
                for loop in layout_of(function).nodes
            )
        return known

    def _reads_window(self, read: set[str], loop: ast.AST, function: Function) -> bool:
        changing = bound_in(function, loop)
        inside = layout_of(function).inside(loop)
        branches = [node for node in inside if isinstance(node, ast.If)]
        compared = {name for node in branches for name in names_in(node.test)} - changing
        chosen = {name for node in branches for name in bound_in(function, node)}
        return bool(read & changing) and bool(read & (compared | chosen))

    def _asks_for_gradients(self, test: ast.expr, function: Function) -> bool:
        """Whether a test, or a function that it calls, asks which gradients there are.

        Of `any(p.grad is not None for p in ...)` the formula knows the answer; of all other ways
        to ask nobody does.
        """
        known = self._asking.get(id(test))
        if known is None:
            bound = bindings_of(function)
            named = (bound.get(part.id, ()) for part in walk(test) if isinstance(part, ast.Name))
            values = [item.value for found in named for item in found if item.value is not None]
            nodes = [part for value in (test, *values) for part in walk(value)]
            known = self._asking[id(test)] = (
                asks_for_gradients(nodes)
                or asks_for_graph(nodes, function)
                or any(
                    self.program.facts(callee).asks
                    for part in nodes
                    if isinstance(part, ast.Call)
                    for callee in self.program.targets(part, function).functions
                )
            )
        return known

    def _needs_steps(self, test: ast.BoolOp, state: State, frame: Frame) -> bool:
        """Whether the operands must be evaluated one by one: events, walrus, volatile parts."""
        if id(test) in self.program.slice(frame.function).calls:
            return True
        if self._has_walrus(test):
            return True
        return is_volatile(self.reader.formula(test, state, frame.function))

    def _has_walrus(self, test: ast.expr) -> bool:
        found = self._walruses.get(id(test))
        if found is None:
            found = any(isinstance(node, ast.NamedExpr) for node in walk(test))
            self._walruses[id(test)] = found
        return found

    def _branch_connective(
        self, test: ast.BoolOp, state: State, frame: Frame
    ) -> tuple[list[State], list[State]]:
        going_on = isinstance(test.op, ast.And)
        running, stopped = [state], []
        for part in test.values:
            following: list[State] = []
            for current in running:
                yes, no = self._branch_state(part, current, frame)
                following += yes if going_on else no
                stopped += no if going_on else yes
            running = following
        return (running, stopped) if going_on else (stopped, running)

    def expression(
        self, node: ast.expr, state: State, frame: Frame, *, binding: bool = False
    ) -> Valued:
        """Evaluate an expression: the states after it, each with its value.

        Args:
            binding: the value is about to be bound, so a place stays an alias.
        """
        matters = id(node) in self.program.slice(frame.function).calls
        if isinstance(node, ast.IfExp) and (matters or binding):
            return self._conditional(node, state, frame, binding)
        if binding and isinstance(node, (ast.Subscript, ast.Call)):
            chosen = self._chosen(node, state, frame)
            if chosen is not None:
                return chosen
        if isinstance(node, ast.NamedExpr):
            return self._walrus(node, state, frame)
        if not matters:
            read = self.reader.binding if binding else self.reader.value
            return [(state, read(node, state, frame.function))]
        if isinstance(node, ast.Call):
            return self.calls.call(node, state, frame)
        if isinstance(node, (ast.Await, ast.Starred)):
            return self.expression(node.value, state, frame, binding=binding)
        if isinstance(node, ast.BoolOp):
            return self._connective_value(node, state, frame)
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp)):
            return self._comprehension(node, state, frame)
        if isinstance(node, ast.Attribute) and node.attr == "backward":
            return [
                (after, ("event", value, "backward") if kind_of(value) == "scaled" else value)
                for after, value in self.expression(node.value, state, frame)
            ]
        return self._sequence(node, state, frame)

    def _conditional(self, node: ast.IfExp, state: State, frame: Frame, binding: bool) -> Valued:
        yes, no = self.branch(node.test, [state], frame)
        results = [
            pair
            for after in yes
            for pair in self.expression(node.body, after, frame, binding=binding)
        ]
        results += [
            pair
            for after in no
            for pair in self.expression(node.orelse, after, frame, binding=binding)
        ]
        return results

    def _chosen(self, node: ast.expr, state: State, frame: Frame) -> Valued | None:
        """What a key chooses from a table, or by its name; None for other expressions.

        A key that the table lacks raises. Constants stay one value; the paths split for others.
        """
        known = self.reader.cases(node, state, frame.function)
        table = self.reader.table(node, frame.function)
        if table is None:
            return None if known is None else [(state, known)]
        tests = self.reader.key_tests(table, state, frame.function)
        found = disjoin(tests)
        if known is not None:
            if table.default is None and isinstance(found, tuple) and not is_volatile(found):
                state = remembered(found, True, state)
            return [(state, known)]
        results: Valued = []
        for test, (_, item) in zip(tests, table.entries, strict=True):
            for after in assume(test, True, state):
                results += self.expression(item, after, frame, binding=True)
        if table.default is not None:
            for after in assume(found, False, state):
                results += self.expression(table.default, after, frame, binding=True)
        return results

    def _connective_value(self, node: ast.BoolOp, state: State, frame: Frame) -> Valued:
        """`amp and GradScaler()`: the first operand that decides is the value."""
        results: Valued = []
        running = [state]
        goes_on = isinstance(node.op, ast.And)
        for operand in node.values[:-1]:
            yes, no = self.branch(operand, running, frame)
            running, decided = (yes, no) if goes_on else (no, yes)
            value: Value = ("const", False) if goes_on else None
            results += [(after, value) for after in decided]
        for current in running:
            for after, value in self.expression(node.values[-1], current, frame, binding=True):
                known = value or self.reader.value(node.values[-1], after, frame.function)
                results.append((after, known))
        return results

    def _walrus(self, node: ast.NamedExpr, state: State, frame: Frame) -> Valued:
        results = []
        for after, value in self.expression(node.value, state, frame, binding=True):
            after = after.copy()
            self.bind(node.target, value, after, frame)
            results.append((after, value))
        return results

    def _comprehension(
        self,
        node: ast.ListComp | ast.SetComp | ast.GeneratorExp,
        state: State,
        frame: Frame,
    ) -> Valued:
        """`[scaler.step(opt) for opt in opts]`: one round stands for all elements."""
        running = [state]
        for generator in node.generators:
            following = []
            for current in running:
                for after, _ in self.expression(generator.iter, current, frame):
                    after = after.copy()
                    self.bind(
                        generator.target,
                        self.loops.element(generator.iter, after, frame),
                        after,
                        frame,
                    )
                    following.append(after)
            running = following
            for test in generator.ifs:
                running = self.branch(test, running, frame)[0]
        results: Valued = []
        for current in running:
            for after, value in self.expression(node.elt, current, frame):
                scaled = value is not None and value[0] in ("scaled", "opaque")
                results.append((after, value if scaled else None))
        return results or [(state, None)]

    def _sequence(self, node: ast.expr, state: State, frame: Frame) -> Valued:
        """Evaluate the operands in order; a sum that holds a scaled loss is scaled."""
        running: list[tuple[State, tuple[Value, ...]]] = [(state, ())]
        operands = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
        for child in operands:
            running = [
                (after, (*values, value))
                for current, values in running
                for after, value in self.expression(child, current, frame)
            ]
        return [
            (after, self.calls.combine(node, operands, values, after, frame))
            for after, values in running
        ]


def _is_replaced(target: ast.expr, frame: Frame) -> bool:
    """Whether a callback may put something else into a place at any time."""
    changed = changed_elsewhere(frame.function)
    return bool(changed) and changed.get(path_text(target) or "", False)


def _noted(state: State, test: ast.expr, frame: Frame, truth: bool) -> State:
    state = State(state.typestate, state.values, state.facts, state.trail)
    state.note("assume", test, frame.function, truth)
    return state
