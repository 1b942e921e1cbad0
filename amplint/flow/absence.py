"""Calls that would have kept the protocol, and the tests that leave them out of a path.

Whoever wrote `unscale_` under a test knows the protocol. That one test leaves it out is a path that
the program has. That each of several does, or one for each element of a loop, is for somebody to
show. A scaler that one test leaves out and that is used under another, about something else, is None
only if the two can disagree: on code that nobody had read they never did (docs/precision.md).
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping

from amplint.amp.switches import is_switch
from amplint.code.arguments import parameters
from amplint.code.dataflow import bindings_of
from amplint.code.expressions import is_none, last_name, path_text
from amplint.code.layout import layout_of
from amplint.code.module import CallSite, Class, Function, enclosing_class
from amplint.flow.call import given_to
from amplint.flow.conditions import Formula, evaluate, mentions
from amplint.flow.events import Site
from amplint.flow.facts import (
    BACKWARD,
    SCALE,
    SCALER,
    STEP,
    UNSCALE,
    UPDATE,
    ZERO_GRAD,
    protocol_words,
)
from amplint.flow.program import Program
from amplint.flow.reader import Reader
from amplint.flow.state import State, Step
from amplint.values.conditions import conditions_at
from amplint.values.provenance import Condition, Origin

_GRADIENTS = frozenset({SCALE, BACKWARD})
_ROUND = frozenset({STEP, ZERO_GRAD})
#: slug -> the words of which one, at the right place of the path, would have kept the protocol.
REMEDIES: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("step-without-gradient", "unscale-without-gradient"), _GRADIENTS),
    **dict.fromkeys(("step-on-zeros", "unscale-of-zeros", "step-on-spent"), _GRADIENTS),
    **dict.fromkeys(("step-uninitialised", "unscale-uninitialised"), _GRADIENTS),
    "update-uninitialised": _GRADIENTS,
    "unscale-of-plain": frozenset({SCALE}),
    "step-twice": frozenset({UPDATE}),
    "unscale-twice": frozenset({UPDATE}),
    "unscale-after-step": frozenset({UPDATE}),
    "update-without-check": frozenset({STEP, UNSCALE}),
    "clip-of-scaled": frozenset({UNSCALE}),
    "optimizer-step-on-scaled": frozenset({STEP, UNSCALE}),
    "step-on-piled": frozenset({ZERO_GRAD}),
    "step-on-mixed": frozenset({SCALE, ZERO_GRAD}),
    "backward-after-unscale": _ROUND,
    "step-on-rescaled": _ROUND,
    "stale-scale": _ROUND,
    "unscale-again": _ROUND,
    "scaler-is-none": frozenset({SCALER}),
}
#: What an atom begins with that comes out either way within one run.
_IN_EACH_RUN = frozenset({"boundary", "first", "last", "gradient"})


def unproved(
    program: Program, reader: Reader, slug: str, site: Site, state: State, steps: list[Step]
) -> tuple[str, ...]:
    """The tests that a path needs at once, where nothing shows that they come out so together.

    Args:
        steps: of the path, oldest first.
    """
    if ("flag", "after") in state.typestate and (counts := _counted_apart(steps)):
        return counts
    if computed := _computed_counts(steps) or _told_by_elements(steps):
        return computed
    question = _Absence(program, reader, state)
    tests: dict[str, Condition] = {}
    for call, against in question.left_out(REMEDIES.get(slug, frozenset()), steps):
        if _asks_each_element(against[0], call, site) or _is_always_given(
            program, against[0], call
        ):
            return (_text(against[0].test),)
        if all(question.formula(test) is not None for test in against):
            tests[_text(against[0].test)] = against[0]
    if not tests:
        return ()
    if slug == "scaler-is-none":
        others = question.guards([*steps, ("event", site.node, site.function, None)], tests)
        tests |= {_text(test.test): test for test in others}
    return tuple(tests) if len(tests) > 1 else ()


def _is_always_given(program: Program, test: Condition, call: CallSite) -> bool:
    """Whether a test asks if there is what a call gets, and nothing in sight says that there is not."""
    asked = test.test
    while isinstance(asked, ast.UnaryOp):
        asked = asked.operand
    if isinstance(asked, ast.Compare) and is_none(asked.comparators[0]):
        asked = asked.left
    given = {path_text(argument) for argument in call.node.args}
    if path_text(asked) is None or path_text(asked) not in given:
        return False
    found = program.values.origins.of(asked, test.function)
    nothing = [origin for origin in found.origins if is_none(origin.expression)]
    return all(_is_default(origin) and not found.complete for origin in nothing)


def _is_default(origin: Origin) -> bool:
    """Whether a value is what a parameter has where a call gives none."""
    parents = origin.function.module.scopes.parents
    return isinstance(parents.get(origin.expression), ast.arguments)


def leaves_each_out(
    program: Program, reader: Reader, slug: str, state: State, steps: list[Step]
) -> bool:
    """Whether a path leaves each of several optimizers out by an option of its own.

    With all of these set nothing is trained at all.
    """
    if slug != "update-without-check":
        return False
    question = _Absence(program, reader, state)
    options: dict[tuple[str, ...], set[str]] = {}
    for call, against in question.left_out(REMEDIES[slug], steps):
        option = _option(against[0]) if len(against) == 1 else None
        if option is None:
            return False
        options.setdefault(tuple(map(_text, call.node.args)), set()).add(option)
    return len(options) > 1 and len(set.union(*options.values())) == len(options)


def _counted_apart(steps: list[Step]) -> tuple[str, ...]:
    """The tests of a path that ask a count which a function is given, moves and hands back.

    How such a count goes along with the rounds of the caller's loop is not followed: that a flush
    behind the loop finds nothing pending is then shown by nothing.
    """
    asked = [step for step in steps if step[0] == "assume"]
    found = [test for _, test, function, _ in asked if _asks_a_moved_count(test, function)]
    return tuple(dict.fromkeys(_text(test) for test in (*found, asked[-1][1]))) if found else ()


def _computed_counts(steps: list[Step]) -> tuple[str, ...]:
    """The tests of a path that ask one computed count in two ways: `(i * n + j) % k`.

    By how much it grows from round to round is not followed: which of its tests go together is then
    shown by nothing.
    """
    asked: dict[str, dict[str, None]] = {}
    for kind, test, *_ in steps:
        for count in _counts_in(test) if kind == "assume" else ():
            asked.setdefault(count, {})[_text(test)] = None
    return next((tuple(tests) for tests in asked.values() if len(tests) > 1), ())


def _told_by_elements(steps: list[Step]) -> tuple[str, ...]:
    """The tests of a path that ask two things of what a loop goes over: `if part.first`, `if part.last`.

    What the data says here and there, in one round or in two, goes together as its maker wants it.
    """
    asked = (step for step in steps if step[0] == "assume")
    found = dict.fromkeys(
        _text(test) for _, test, function, _ in asked if _asks_an_element(test, function)
    )
    return tuple(found) if len(found) > 1 else ()


def _asks_an_element(test: ast.expr, function: Function) -> bool:
    """Whether a test is what an element of a loop holds, by itself; its number is counted by others."""
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test = test.operand
    root = test
    while isinstance(root, (ast.Attribute, ast.Subscript)):
        root = root.value
    if not isinstance(root, ast.Name) or test not in layout_of(function):
        return False
    loops = (loop for loop in layout_of(function).loops(test) if isinstance(loop, ast.For))
    return any(root.id in _given_names(loop) for loop in loops)


def _given_names(loop: ast.For) -> set[str]:
    """The names that a loop fills, without the number that `enumerate` or `range` gives."""
    target = loop.target
    name = last_name(loop.iter.func) if isinstance(loop.iter, ast.Call) else ""
    if name == "range":
        return set()
    parts = target.elts[1:] if name == "enumerate" and isinstance(target, ast.Tuple) else [target]
    return {node.id for part in parts for node in ast.walk(part) if isinstance(node, ast.Name)}


def _counts_in(test: ast.expr) -> Iterator[str]:
    """The counts whose remainder a test asks, numbers that are added left out, if computed."""
    for node in ast.walk(test):
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mod):
            continue
        count = node.left
        while isinstance(count, ast.BinOp) and isinstance(count.right, ast.Constant):
            count = count.left
        if isinstance(count, ast.BinOp):
            yield _text(count)


def asks_one_object_twice(program: Program, steps: list[Step]) -> bool:
    """Whether a path asks several methods of one object, one of which changes what is asked.

    `window.begins()` and `window.ends()` count together: how is not followed.
    """
    asked: dict[tuple[Class | None, str], dict[str, bool]] = {}
    for _, test, function, _ in (step for step in steps if step[0] == "assume"):
        call = _asked_call(test, function)
        callee = call.func if call is not None else None
        place = path_text(callee.value) if isinstance(callee, ast.Attribute) else None
        if call is None or place is None:
            continue
        found = program.targets(call, function).functions
        if found and not any(program.facts(item).reach for item in found):
            settles = any(program.facts(item).settles for item in found)
            methods = asked.setdefault((enclosing_class(function), place), {})
            methods[_text(call)] = settles or methods.get(_text(call), False)
    return any(len(item) > 1 and any(item.values()) for item in asked.values())


def _asked_call(test: ast.expr, function: Function) -> ast.Call | None:
    """The call that a test is, or whose result a name of it holds; a negation asks the same."""
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test = test.operand
    if isinstance(test, ast.Name):
        bound = [item.value for item in bindings_of(function).get(test.id, ())]
        test = bound[0] if len(bound) == 1 and bound[0] is not None else test
    return test if isinstance(test, ast.Call) else None


def _asks_a_moved_count(test: ast.expr, function: Function) -> bool:
    bindings, given = bindings_of(function), parameters(function)
    for name in {part.id for part in ast.walk(test) if isinstance(part, ast.Name)}:
        for binding in bindings.get(name, ()):
            moved = isinstance(binding.statement, ast.AugAssign) and name in given
            if moved or _is_handed_back(name, binding.value):
                return True
    return False


def _is_handed_back(name: str, value: ast.expr | None) -> bool:
    """`count = run(batch, count)`."""
    passed = given_to(value) if isinstance(value, ast.Call) else ()
    return any(isinstance(item, ast.Name) and item.id == name for item in passed)


class _Absence:
    """What one path leaves out.

    Args:
        state: the one that the path ends in.
    """

    def __init__(self, program: Program, reader: Reader, state: State) -> None:
        self._program, self._reader, self._state = program, reader, state

    def left_out(
        self, words: frozenset[str], steps: list[Step]
    ) -> Iterator[tuple[CallSite, list[Condition]]]:
        """Calls that are one of these words, each with the tests that leave it out."""
        assumed, implied = _assumed(steps), dict(self._implied(steps))
        for function in dict.fromkeys(step[2] for step in steps):
            for site, tests in _guarded_calls(function):
                outcomes = [(test, _outcome(test.test, assumed)) for test in tests]
                against = [
                    test
                    for test, side in outcomes
                    if (implied.get(_asked(test)) if side is None else side) is (not test.side)
                ]
                if against and words & self._words(site):
                    yield site, against

    def _implied(self, steps: list[Step]) -> Iterator[tuple[tuple[Function, str], bool]]:
        """What the outcome of a test says of one operand, where the path knows all the others.

        `if accumulates and optimizer is not None` was not taken although it accumulates: whoever
        asks for the optimizer again has its answer.
        """
        for kind, test, function, side in steps:
            if kind != "assume" or not isinstance(test, ast.BoolOp):
                continue
            passes = isinstance(test.op, ast.And)
            asked = [Condition(operand, passes, function) for operand in test.values]
            formulas = ((each, self.formula(each)) for each in asked)
            left = [each for each, formula in formulas if self._truth(formula) is not passes]
            if side is (not passes) and len(left) == 1:
                yield _asked(left[0]), not passes

    def _truth(self, formula: Formula) -> bool | None:
        return None if isinstance(formula, bool) else evaluate(formula, self._state)

    def guards(self, steps: list[Step], known: Mapping[str, Condition]) -> Iterator[Condition]:
        """The settings that a path assumes so that it comes to its end, beside the known ones.

        That AMP is on goes without saying, unless the known ones are about that. So does whatever
        stands around the known ones as well: `if __name__ == "__main__":`.
        """
        assumed, modules = _assumed(steps), tuple({step[2].module for step in steps})
        about_amp = any(is_switch(test.test, test.function, modules) for test in known.values())
        taken = frozenset().union(*(mentions(self.formula(test)) for test in known.values()))
        around = set.intersection(*(_ways_to(test, steps) for test in known.values()))
        calls = (step for step in steps if step[0] == "call" and step[1] not in around)
        nodes = [*calls, steps[-1]]
        for test in (test for _, node, where, _ in nodes for test in conditions_at(node, where)):
            formula = self.formula(test)
            if id(test.test) not in assumed or formula is None or mentions(formula) & taken:
                continue
            if about_amp or not is_switch(test.test, test.function, modules):
                yield test

    def _words(self, site: CallSite) -> frozenset[str]:
        """The protocol words that a call is, or may reach."""
        function = site.function
        roles = self._program.roles(function)
        words = protocol_words(site.node, site.method, function, roles)
        by_name = self._program.reach(site.node, function)
        if words or not by_name:
            return words
        found = self._program.targets(site.node, function).functions
        return frozenset().union(*map(self._program.reach_of, found)) if found else by_name

    def formula(self, test: Condition) -> Formula:
        """What a test asks of the settings; None if it comes out either way in each run."""
        if _is_bound_in_a_loop(test):
            return None
        formula = self._reader.formula(test.test, self._state, test.function)
        return None if _changes(formula) else formula


def _ways_to(test: Condition, steps: list[Step]) -> set[ast.AST]:
    """The calls by which a path came to the function that asks a test; none if it did not ask."""
    asked = [index for index, step in enumerate(steps) if step[:2] == ("assume", test.test)]
    found: set[ast.AST] = set()
    where = test.function
    for kind, node, caller, callee in reversed(steps[: asked[0]] if asked else ()):
        if kind == "call" and callee is where:
            found.add(node)
            where = caller
    return found


def _assumed(steps: Iterable[Step]) -> dict[int, bool]:
    """Tests that a path did not know -> how they came out."""
    return {id(step[1]): bool(step[3]) for step in steps if step[0] == "assume"}


def _asked(test: Condition) -> tuple[Function, str]:
    """What names a test where it is asked again in its function."""
    return test.function, _text(test.test)


def _outcome(test: ast.expr, assumed: Mapping[int, bool]) -> bool | None:
    """How a test came out, which a path may know by its operands; None where it did not ask."""
    if id(test) in assumed:
        return assumed[id(test)]
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _outcome(test.operand, assumed)
        return None if inner is None else not inner
    if not isinstance(test, ast.BoolOp):
        return None
    found = [_outcome(operand, assumed) for operand in test.values]
    decides = isinstance(test.op, ast.Or)
    if decides in found:
        return decides
    return None if None in found else not decides


def _option(condition: Condition) -> str | None:
    """The attribute that a test reads and that its file never stores: the same in each round."""
    test = condition.test
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test = test.operand
    if not isinstance(test, ast.Attribute) or path_text(test) is None:
        return None
    functions = condition.function.module.functions
    is_stored = any(
        isinstance(node, ast.Attribute)
        and node.attr == test.attr
        and isinstance(node.ctx, ast.Store)
        for function in functions
        for node in function.nodes
    )
    return None if is_stored else _text(test)


def _changes(formula: Formula) -> bool:
    """Whether a formula is about the data, or about which round of a loop this is."""
    if formula is None:
        return True
    if isinstance(formula, bool):
        return False
    if formula[0] == "not":
        return _changes(formula[1])
    if formula[0] in ("and", "or"):
        return any(map(_changes, formula[1]))
    return formula[0] in _IN_EACH_RUN


def _is_bound_in_a_loop(test: Condition) -> bool:
    """Whether a test reads a name that each round of a loop around it binds anew."""
    layout, bindings = layout_of(test.function), bindings_of(test.function)
    loops = layout.loops(test.test) if test.test in layout else ()
    names = {part.id for part in ast.walk(test.test) if isinstance(part, ast.Name)}
    statements = [item.statement for name in names for item in bindings.get(name, ())]
    return any(
        statement is loop or layout.holds(loop, statement)
        for statement in statements
        if statement in layout
        for loop in loops
    )


def _guarded_calls(function: Function) -> tuple[tuple[CallSite, tuple[Condition, ...]], ...]:
    return function.once(_find_guarded_calls)


def _find_guarded_calls(
    function: Function,
) -> tuple[tuple[CallSite, tuple[Condition, ...]], ...]:
    """The calls of a function that stand under tests."""
    sites = (site for site in function.module.calls if site.function is function)
    found = ((site, conditions_at(site.node, function)) for site in sites)
    return tuple((site, tests) for site, tests in found if tests)


def _asks_each_element(test: Condition, call: CallSite, site: Site) -> bool:
    """Whether a test reads what a loop around a call takes out, and the reported call is outside."""
    layout = layout_of(call.function)
    names = {part.id for part in ast.walk(test.test) if isinstance(part, ast.Name)}
    return any(
        isinstance(loop, ast.For)
        and not (site.node in layout and layout.holds(loop, site.node))
        and any(isinstance(part, ast.Name) and part.id in names for part in ast.walk(loop.target))
        for loop in (layout.loops(call.node) if call.node in layout else ())
    )


def _text(test: ast.expr) -> str:
    return " ".join(ast.unparse(test).split())
