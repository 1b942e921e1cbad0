"""Loops: which ones train, which ones run over optimizers, and what their counters mean."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from amplint.code.arguments import bind, parameters, passed
from amplint.code.dataflow import bindings_of
from amplint.code.expressions import path_text
from amplint.code.layout import Loop
from amplint.code.looking import only_looks
from amplint.code.module import Function, walk
from amplint.code.statements import blocks_of
from amplint.flow.call import Frame, argument_expressions, callee_name, given_to
from amplint.flow.conditions import forget
from amplint.flow.facts import (
    BACKWARD,
    EDIT,
    EDITS,
    EVENT_WORDS,
    PLAIN_STEP,
    SCALE,
    STEP,
    UNSCALE,
    UPDATE,
    ZERO_GRAD,
    is_gradient,
    protocol_words,
)
from amplint.flow.generators import works_between_rounds
from amplint.flow.places import item_location
from amplint.flow.reader import Reader
from amplint.flow.slice import FILLS
from amplint.flow.state import State
from amplint.flow.values import CALLABLE_KINDS, KEEPER, ZERO, Value
from amplint.values.displays import keys_held

#: Enters a round of a loop, in place.
Enter = Callable[[ast.For, State, Frame], None]
#: Calls whose result yields the same elements.
TRANSPARENT = frozenset(
    ("tqdm", "trange", "iter", "list", "tuple", "sorted", "reversed")
    + ("track", "prefetch", "progress_bar", "log_every")
)
#: Longer lists of hooks are not followed one by one.
HOOKS = 8
#: Calls deeper than this are not searched for what becomes of a loop's element.
CALLS = 3
DICT_VIEWS = ("keys", "values", "items")
PER_OPTIMIZER = frozenset({STEP, UNSCALE, UPDATE, ZERO_GRAD, EDIT, PLAIN_STEP})


@dataclass(frozen=True, slots=True)
class Shape:
    """What kind of loop it is.

    Args:
        trains: it holds a backward, so it is taken to run at least once.
        steps: it holds a step as well: "nothing is pending" can begin here.
        container: it runs over optimizers or scalers.
        works: what it goes over runs code of the protocol between two rounds.
    """

    trains: bool
    steps: bool
    container: bool
    works: bool


class LoopReader:
    """Reads loops of one module."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.program = reader.program
        self._shapes: dict[int, Shape] = {}
        self._choices: dict[int, list[tuple[ast.If, bool]]] = {}
        self._keys: dict[ast.expr, tuple[int | str, ...]] = {}

    def shape(self, node: Loop, function: Function) -> Shape:
        """The shape of a loop statement of `function`."""
        found = self._shapes.get(id(node))
        if found is None:
            found = self._shapes[id(node)] = self._shape(node, function)
        return found

    def _shape(self, node: Loop, function: Function) -> Shape:
        words: set[str] = set()
        targets: set[str] = set()
        works = False
        if isinstance(node, (ast.For, ast.AsyncFor)):
            targets = _target_names(node.target)
            works = bool(targets) and works_between_rounds(self.program, node, function)
        for call in _calls_in(node.body):
            words |= self._reach(call, function) | self._words(call, function)
        trains = BACKWARD in words
        container = bool(targets) and self._concerns(node.body, targets, function, CALLS)
        steps = trains and bool(words & {STEP, PLAIN_STEP, UNSCALE})
        return Shape(trains, steps, container, works)

    def _reach(self, call: ast.Call, function: Function) -> frozenset[str]:
        """Protocol words that a call may reach; by name only where nobody knows what it runs."""
        by_name = self.program.reach(call, function)
        if BACKWARD not in by_name:
            return by_name
        found = self.program.targets(call, function)
        if found.unknown or not found.functions:
            return by_name
        return frozenset().union(*map(self.program.reach_of, found.functions))

    def _concerns(
        self, body: list[ast.stmt], names: set[str], function: Function, depth: int
    ) -> bool:
        """Whether statements treat what some names stand for as optimizers, scalers or parameters.

        Args:
            depth: how many calls deep this is looked for in the functions that get it.
        """
        names = names | _chosen_by(names, body)
        if any(_changes_gradients(statement, names) for statement in body):
            return True
        return any(
            _is_about(call, self._words(call, function), names)
            or self._hands_over(call, names, function, depth)
            for call in _calls_in(body)
        )

    def _hands_over(self, call: ast.Call, names: set[str], function: Function, depth: int) -> bool:
        """Whether an optimizer goes to a function that steps, unscales, clears or edits it.

        So does what chooses one there, such as its key.
        """
        if not self.program.reach(call, function) & PER_OPTIMIZER - {UPDATE}:
            return False
        given = [
            argument for argument in argument_expressions(call) if _stands_for(argument, names)
        ]
        if any(self.program.roles(function).is_optimizer(argument, function) for argument in given):
            return True
        if not given or not depth:
            return False
        return any(
            self._concerns(callee.body, taken, callee, depth - 1)
            for callee in self.program.targets(call, function).functions
            if (taken := _taken(call, callee, given))
        )

    def words(self, body: list[ast.stmt], function: Function) -> set[str]:
        """Protocol words that a block reaches, calls included."""
        found: set[str] = set()
        for call in _calls_in(body):
            found |= self.program.reach(call, function) | self._words(call, function)
        return found & EVENT_WORDS

    def _words(self, call: ast.Call, function: Function) -> frozenset[str]:
        return protocol_words(call, callee_name(call), function, self.program.roles(function))

    # -- data loops --------------------------------------------------------------------

    def start(self, node: ast.For, state: State, frame: Frame) -> None:
        """Enter the first iteration, in place."""
        counter = self._counter(node, state, frame)
        self._forget_targets(node, state, frame)
        if counter is not None:
            state.facts[("first", counter)] = True

    def advance(self, node: ast.For, state: State, frame: Frame) -> None:
        """Enter the next iteration, in place: a closed window makes the next one start."""
        counter = self._counter(node, state, frame)
        closed = {
            (kind[1], kind[2]): truth
            for kind, truth in state.facts.items()
            if kind[0] == "boundary" and kind[1] == counter and kind[3] is True
        }
        before = {
            (kind[1], kind[2]): truth
            for kind, truth in state.facts.items()
            if kind[0] == "boundary" and kind[1] == counter and kind[3] == "now"
        }
        self._forget_targets(node, state, frame)
        if counter is None:
            return
        state.facts[("first", counter)] = False
        for (place, period), truth in before.items():
            state.facts[("boundary", place, period, "behind")] = truth
        for (place, period), truth in closed.items():
            state.facts[("boundary", place, period, False)] = truth

    def count_known(self, state: State) -> None:
        """Leave a loop, in place: its last index tells what the length leaves over."""
        for atom, truth in list(state.facts.items()):
            text = self.reader.windows.get(atom[1]) if atom[0] == "boundary" else None
            if text is not None and atom[3] is True:
                state.facts[("boundary", f"len({text})", atom[2], True)] = truth

    def is_last(self, node: ast.For, state: State, frame: Frame) -> bool | None:
        """Whether the path has decided that this iteration is the last one."""
        counter = self._counter(node, state, frame)
        return state.facts.get(("last", counter)) if counter is not None else None

    def _forget_targets(self, node: ast.For, state: State, frame: Frame) -> None:
        for name in _target_names(node.target):
            location = self.reader.name_location(name, frame.function)
            forget(location, state)
            for atom in [
                atom for atom in state.facts if atom[0] in ("first", "last") and atom[1] == location
            ]:
                del state.facts[atom]
        if isinstance(node.target, ast.Name):
            item = self._item(node.iter, state, frame)
            if item is not None:
                state.values[self.reader.name_location(node.target.id, frame.function)] = item

    def _item(self, iterable: ast.expr, state: State, frame: Frame) -> Value:
        """What a loop over scaled losses, or over what was given a scaler, takes out."""
        value = self.reader.value(iterable, state, frame.function)
        if value == KEEPER:
            return KEEPER
        items = value[1] if value is not None and value[0] == "tuple" else (value,)
        scaled = [item for item in items if item is not None and item[0] in ("scaled", "opaque")]
        return scaled[0] if scaled else None

    def _counter(self, node: ast.For, state: State, frame: Frame) -> str | None:
        """The location of the loop's index, registered with its first value."""
        found = _index_of(node, frame.function)
        if found is None:
            return None
        name, first, iterable = found
        location = self.reader.name_location(name, frame.function)
        self.reader.counters[location] = first
        text = self.reader.text(iterable, state, frame.function) if iterable is not None else None
        if text is not None:
            self.reader.windows[location] = text
        return location

    def passed_over(self, node: ast.For, state: State, frame: Frame) -> State:
        """The state behind a loop without a round: lists of optimizers are filled elsewhere, then.

        Whoever trains has some, and that a list of settings is empty is no way to have none. A list
        that a function of the loop is given may be such a one.
        """
        emptied = [
            place
            for call in _calls_in(node.body)
            for item in self._filled(call, frame.function)
            if _begins_empty(item, frame.function)
            and (place := self.reader.locate(item, state, frame.function)) is not None
            and state.values.get(place) == ZERO
        ]
        if emptied:
            state = state.copy()
            for place in emptied:
                forget(place, state)
        return state

    def _filled(self, call: ast.Call, function: Function) -> list[ast.expr]:
        """What a call may put optimizers into: a list that it appends one to, or is given."""
        callee = call.func
        if not isinstance(callee, ast.Attribute) or callee.attr not in FILLS:
            return [] if only_looks(call, function) else given_to(call)
        roles = self.program.roles(function)
        is_filled = any(roles.is_optimizer(item, function) for item in call.args[:1])
        return [callee.value] if is_filled else []

    # -- container loops ---------------------------------------------------------------

    def mark_round(
        self, node: ast.For, state: State, frame: Frame, *, first: bool | None, last: bool
    ) -> None:
        """Enter a round of a container loop, in place.

        Args:
            first: None of the one round that stands for all of them.
            last: of that one, too: what waits for the end happens.
        """
        counter = self._counter(node, state, frame)
        if counter is None:
            return
        state.facts[("last", counter)] = last
        state.facts.pop(("first", counter), None)
        if first is not None:
            state.facts[("first", counter)] = first

    def choices(self, node: ast.For, function: Function) -> list[tuple[ast.If, bool]]:
        """Tests that may choose the round of a container loop in which `update()` runs.

        They ask for what differs from round to round, and one side of them alone reaches it.

        Returns:
            Each with the side that does.
        """
        found = self._choices.get(id(node))
        if found is None:
            varying = _varying(node)
            found = self._choices[id(node)] = [
                (test, side)
                for test, side in self._deciding(node.body, False, function)
                if any(
                    path_text(part) in varying
                    for part in walk(test.test)
                    if isinstance(part, ast.expr)
                )
            ]
        return found

    def _deciding(
        self, block: list[ast.stmt], rest: bool, function: Function
    ) -> Iterator[tuple[ast.If, bool]]:
        """Tests of which one side alone reaches an `update()` of this round.

        Args:
            rest: whether what follows the block in the round reaches one.
        """
        for place, statement in enumerate(block):
            after = rest or UPDATE in self.words(block[place + 1 :], function)
            if isinstance(statement, ast.If):
                yes, no = (
                    UPDATE in self.words(side, function) or (after and not _leaves(side))
                    for side in (statement.body, statement.orelse)
                )
                if yes is not no:
                    yield statement, yes
            for inner in blocks_of(statement):
                yield from self._deciding(inner, after, function)

    def runs_through(self, node: ast.For, state: State, frame: Frame) -> bool:
        """Whether a loop takes functions, or objects, out of a list in a known order."""
        value = self.reader.listed(inner_iterable(node.iter), state, frame.function)
        if value is None or value[0] != "tuple" or node.orelse:
            return False
        return 0 < len(value[1]) <= HOOKS and all(
            item is not None and item[0] in CALLABLE_KINDS for item in value[1]
        )

    def elements(self, node: ast.For, state: State, frame: Frame) -> list[Value]:
        """The values the target takes: each one where they are known, else one for all."""
        found = self._members(node.iter, state, frame)
        is_key = all(item is not None and item[0] == "const" for item in found)
        if found and len(found) <= HOOKS and (is_key or all(map(_is_place, found))):
            return list(found)
        return [self.element(node.iter, state, frame)]

    def _members(self, iterable: ast.expr, state: State, frame: Frame) -> tuple[Value, ...]:
        """What an expression yields, one after the other; nothing if that is not known."""
        if not isinstance(iterable, ast.Call):
            return self._listed(iterable, state, frame)
        name, inner = callee_name(iterable), next(iter(iterable.args), None)
        if name == "zip":
            return self._zipped(iterable.args, state, frame)
        if name in DICT_VIEWS and isinstance(iterable.func, ast.Attribute) and not inner:
            entries = self._held(iterable.func.value, str, state, frame)
            keys, items = tuple(("const", key) for key in entries), tuple(entries.values())
            pairs = tuple(("tuple", pair) for pair in zip(keys, items, strict=True))
            return {"keys": keys, "values": items, "items": pairs}[name]
        if inner is None or name not in TRANSPARENT | {"enumerate"}:
            return self._listed(iterable, state, frame)
        found = self._members(inner, state, frame)
        if name == "enumerate":
            first = _enumerate_start(iterable)
            return tuple(
                ("tuple", (None if first is None else ("const", first + place), item))
                for place, item in enumerate(found)
            )
        return found[::-1] if name == "reversed" else found

    def _zipped(self, parts: list[ast.expr], state: State, frame: Frame) -> tuple[Value, ...]:
        """The tuples that `zip` yields, as many as the shortest of those that are known."""
        members = [self._members(part, state, frame) for part in parts]
        rounds = min(map(len, filter(None, members)), default=0)
        rest = [self.element(part, state, frame) for part in parts] if rounds else []
        return tuple(
            ("tuple", tuple(found[place] if found else one for found, one in zip(members, rest)))
            for place in range(rounds)
        )

    def _listed(self, node: ast.expr, state: State, frame: Frame) -> tuple[Value, ...]:
        """What a list holds, one after the other; of a dict the keys."""
        value = self.reader.listed(node, state, frame.function)
        if value is not None and value[0] == "tuple":
            return value[1]
        keys = tuple(("const", key) for key in self._held(node, str, state, frame))
        return keys or tuple(self._held(node, int, state, frame).values())

    def _held(self, node: ast.expr, kind: type, state: State, frame: Frame) -> dict[object, Value]:
        """What a list (int), or a dict (str), holds at its indices or keys."""
        location = self.reader.locate(node, state, frame.function)
        if location is None:
            return {}
        keys = self._keys.get(node)
        if keys is None:
            origins_of = self.program.objects.origins.of
            keys = self._keys[node] = keys_held(origins_of, node, frame.function)
        return {
            key: ("path", item_location(location, ast.Constant(key)))
            for key in keys
            if isinstance(key, kind)
        }

    def element(self, iterable: ast.expr, state: State, frame: Frame) -> Value:
        """One element that stands for all: the location `iterable[*]`."""
        if isinstance(iterable, ast.Call):
            name = callee_name(iterable)
            if name == "zip":
                return ("tuple", tuple(self.element(item, state, frame) for item in iterable.args))
            if name == "enumerate" and iterable.args:
                return ("tuple", (None, self.element(iterable.args[0], state, frame)))
            if name == "items" and isinstance(iterable.func, ast.Attribute):
                return ("tuple", (None, self.element(iterable.func.value, state, frame)))
            if name in ("values", "keys") and isinstance(iterable.func, ast.Attribute):
                return self.element(iterable.func.value, state, frame)
            if name in TRANSPARENT and iterable.args:
                return self.element(iterable.args[0], state, frame)
            return None
        location = self.reader.locate(iterable, state, frame.function)
        return None if location is None else ("path", f"{location}[*]")


def _begins_empty(expression: ast.expr, function: Function) -> bool:
    """Whether a place is bound to an empty list."""
    bindings = bindings_of(function).get(path_text(expression) or "", ())
    return any(isinstance(item.value, ast.List) and not item.value.elts for item in bindings)


def _is_place(value: Value) -> bool:
    """Whether a display's element names a participant; keys and numbers stand for all."""
    return value is not None and (
        value[0] in ("path", "optimizer", "scaler", "tuple") or value[0] in CALLABLE_KINDS
    )


def _changes_gradients(statement: ast.stmt, targets: set[str]) -> bool:
    """`p.grad = None` or `p.grad.div_(factor)` for each parameter of the loop."""
    return any(
        _is_gradient_changed(node) and bool(_names_of_place(node) & targets)
        for node in walk(statement)
        if isinstance(node, ast.Attribute)
    )


def _is_gradient_changed(node: ast.Attribute) -> bool:
    if node.attr == "grad":
        return isinstance(node.ctx, ast.Store)
    return node.attr in EDITS and is_gradient(node.value)


def inner_iterable(node: ast.expr) -> ast.expr:
    through = TRANSPARENT | {"enumerate"}
    while isinstance(node, ast.Call) and node.args and callee_name(node) in through:
        node = node.args[0]
    return node


def _index_of(node: ast.For, function: Function) -> tuple[str, int | None, ast.expr | None] | None:
    """(index name, its first value if known, the iterable it counts) of an enumerating loop."""
    iterable = _counting(node.iter, function)
    if not isinstance(iterable, ast.Call):
        return None
    name = callee_name(iterable)
    if name == "range" and isinstance(node.target, ast.Name):
        first = iterable.args[0] if len(iterable.args) > 1 else None
        return node.target.id, _start(first), None
    index = node.target.elts[0] if isinstance(node.target, ast.Tuple) else None
    if name == "enumerate" and isinstance(index, ast.Name) and iterable.args:
        return index.id, _enumerate_start(iterable), _counting(iterable.args[0], function)
    return None


def _counting(
    iterable: ast.expr, function: Function, names: frozenset[str] = frozenset()
) -> ast.expr:
    """What a loop really goes over: behind a progress bar, and behind the name of one."""
    while isinstance(iterable, ast.Call) and callee_name(iterable) in TRANSPARENT and iterable.args:
        iterable = iterable.args[0]
    if not isinstance(iterable, ast.Name) or iterable.id in names | parameters(function).keys():
        return iterable
    values = [binding.value for binding in bindings_of(function).get(iterable.id, ())]
    known = [value for value in values if value is not None]
    behind = [_counting(value, function, names | {iterable.id}) for value in known]
    # `if is_main: batches = tqdm(batches)` goes over the same.
    others = {ast.dump(item): item for item in behind if ast.dump(item) != ast.dump(iterable)}
    same = len(others) == 1 and len(known) == len(values)
    return next(iter(others.values())) if same else iterable


def _enumerate_start(call: ast.Call) -> int | None:
    named = [keyword.value for keyword in call.keywords if keyword.arg == "start"]
    return _start(next(iter([*call.args[1:2], *named]), None))


def _start(first: ast.expr | None) -> int | None:
    """Where counting begins; None where nobody knows."""
    if first is None:
        return 0
    value = first.value if isinstance(first, ast.Constant) else None
    return value if isinstance(value, int) else None


def _target_names(target: ast.expr) -> set[str]:
    return {node.id for node in walk(target) if isinstance(node, ast.Name)}


def _varying(node: ast.For) -> set[str | None]:
    """Names that differ from round to round by themselves: targets, counters, flags, tests of these.

    What the round computes is none: it says how the round went, not which one it is.
    """
    found: set[str | None] = {*_target_names(node.target)}
    for statement in node.body:
        for part in walk(statement):
            if isinstance(part, ast.AugAssign):
                found.add(path_text(part.target))
            elif isinstance(part, ast.Assign) and _is_told(part.value):
                found |= {path_text(target) for target in part.targets}
    return found


def _is_told(value: ast.expr) -> bool:
    """Whether a value follows from what stands there, or from how much there is."""
    return all(callee_name(part) == "len" for part in walk(value) if isinstance(part, ast.Call))


def _leaves(block: list[ast.stmt]) -> bool:
    return bool(block) and isinstance(block[-1], (ast.Continue, ast.Break, ast.Return, ast.Raise))


def _chosen_by(targets: set[str], body: list[ast.stmt]) -> set[str]:
    """Names that stand for what the loop's element chooses: `optimizer = self.optimizers[name]`.

    A name that is also bound to something else may stay the same from round to round.
    """
    chosen: set[str] = set()
    other: set[str] = set()
    for statement in body:
        for node in walk(statement):
            if not isinstance(node, ast.Assign) or len(node.targets) != 1:
                continue
            target = node.targets[0]
            if isinstance(target, ast.Name):
                (chosen if _is_chosen(node.value, targets) else other).add(target.id)
    return chosen - other


def _is_chosen(value: ast.expr, targets: set[str]) -> bool:
    """Whether an expression is an entry under the element itself: no sum, no remainder of it."""
    return (
        isinstance(value, ast.Subscript)
        and isinstance(value.slice, ast.Name)
        and value.slice.id in targets
    )


def _stands_for(argument: ast.expr, names: set[str]) -> bool:
    """Whether an argument is one of these, or chosen by one of them."""
    return bool(_names_of_place(argument) & names)


def _taken(call: ast.Call, callee: Function, given: list[ast.expr]) -> set[str]:
    """The parameters of a callee that get some arguments of a call."""
    bound = bind(passed(call), callee, on_object=True).given
    return {name for name, argument in bound.items() if argument in given}


def _calls_in(body: list[ast.stmt]) -> list[ast.Call]:
    """The calls of a block, those of functions that it defines left out."""
    found: list[ast.Call] = []
    pending: list[ast.AST] = [*body]
    while pending:
        node = pending.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            continue
        if isinstance(node, ast.Call):
            found.append(node)
        pending.extend(ast.iter_child_nodes(node))
    return found


def _is_about(call: ast.Call, words: frozenset[str], targets: set[str]) -> bool:
    """Whether a protocol call names an element of the loop as scaler or optimizer."""
    if not words & (PER_OPTIMIZER | {SCALE}):
        return False
    places: list[ast.expr] = [call.func.value] if isinstance(call.func, ast.Attribute) else []
    if words & {STEP, UNSCALE}:
        places += call.args[:1]
    return any(_names_of_place(place) & targets for place in places)


def _names_of_place(place: ast.expr) -> set[str]:
    """Root name and names used as subscripts: {"optimizers", "name"} for `optimizers[name]`."""
    found: set[str] = set()
    while isinstance(place, (ast.Attribute, ast.Subscript)):
        if isinstance(place, ast.Subscript):
            found |= {node.id for node in walk(place.slice) if isinstance(node, ast.Name)}
        place = place.value
    if isinstance(place, ast.Name):
        found.add(place.id)
    return found
