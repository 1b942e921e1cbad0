"""What conditions say about each other: given that this branch was taken, is that one, too?

`dtype = torch.bfloat16` stands under `args.precision == "bf16"`; a scaler is built with
`enabled=args.precision == "fp16"`. `Assumptions.of` learns from the first that `precision` is
"bf16", and `decides` then answers the second: no. Locations are told apart by their last name
(`cfg.amp` and `self.cfg.amp` are one), which joins places that a parameter or an attribute
separates; a name that means two things in one program makes an answer wrong towards "decided",
and the rules that ask report only where nothing is decided against them. What a report rests on is
asked of exact assumptions: there a name counts only where its value comes from the same places, and
constants are equal where Python says so.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from amplint.amp.dtypes import DType, dtype_meant
from amplint.code.arguments import receiver_of
from amplint.code.dataflow import bindings_of, parameters, scopes
from amplint.code.expressions import path_text
from amplint.code.layout import layout_of
from amplint.code.module import Function
from amplint.values.conditions import conditions_at
from amplint.values.provenance import Activation, Condition, Origin
from amplint.values.values import Possible, Value, Values

_DEPTH = 4
#: A function that evaluates an expression, and for which call; None for all known callers.
Here = tuple[Function, Activation | None]
#: What an entry of a data file can be that holds no other entries.
SCALARS = (bool, int, float, str, type(None))
#: Nothing is known of what calls say.
NO_ANSWERS: Mapping[str, bool] = MappingProxyType({})
#: Methods of texts that give the same answer for the same text.
_SAME_TEXT = frozenset(("casefold", "lower", "strip", "upper"))


@dataclass(slots=True, eq=False)
class Assumptions:
    """Facts about names, learned from conditions that hold.

    Args:
        known: what a name is.
        excluded: what a name is not.
        exact: whether a name has to have its value from where it was learned.
        answers: what calls without arguments say, by the dotted names of their functions.
    """

    values: Values
    known: dict[str, object] = field(default_factory=dict)
    excluded: dict[str, list[object]] = field(default_factory=dict)
    exact: bool = False
    answers: Mapping[str, bool] = field(default_factory=dict)
    _places: dict[str, _Place] = field(default_factory=dict)

    @classmethod
    def of(
        cls, values: Values, conditions: Iterable[Condition], exact: bool = False
    ) -> Assumptions:
        """The facts that some conditions imply together."""
        found = cls(values, exact=exact)
        for condition in conditions:
            found.learn(condition.test, condition.side, condition.function)
        return found

    def learn(self, test: ast.expr, side: bool, function: Function, depth: int = _DEPTH) -> None:
        """Take in that a test came out on one side."""
        test = without_bool(test, function)
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            self.learn(test.operand, not side, function, depth)
        elif isinstance(test, ast.BoolOp):
            if isinstance(test.op, ast.And) is side:
                for operand in test.values:
                    self.learn(operand, side, function, depth)
        elif isinstance(test, ast.Compare) and len(test.ops) == 1:
            self._learn_comparison(test, side, function)
        elif name_of(test):
            if self._is_one(name_of(test), test, (function, None)):
                self.known.setdefault(name_of(test), side)
            definition = definition_of(test, function) if depth else None
            if definition is not None:
                self.learn(definition, side, function, depth - 1)

    def _learn_comparison(self, test: ast.Compare, side: bool, function: Function) -> None:
        name = name_of(test.left)
        content = self._constant(test.comparators[0], (function, None))
        if not name or content is ...:
            return
        if isinstance(test.ops[0], (ast.Eq, ast.Is, ast.NotEq, ast.IsNot)):
            if isinstance(test.ops[0], (ast.Eq, ast.Is)) is side:
                self.assume(test.left, content, function)
            elif self._is_one(name, test.left, (function, None)):
                self.excluded.setdefault(name, []).append(content)

    def assume(self, expression: ast.expr, content: object, function: Function) -> None:
        """Take in what a name is, and what it was copied from."""
        for name, place in _names_of(expression, function):
            if self._is_one(name, place, (function, None)):
                self.known.setdefault(name, content)

    def _is_one(self, name: str, place: ast.expr, here: Here) -> bool:
        """Whether a name has its value from where all that is known of it has; exact facts ask."""
        if not self.exact:
            return True
        text = ast.unparse(place)
        found = _Place(_sources_of(self.values, place, here), here[0], text)
        return found.may_be(self._places.setdefault(name, found))

    def decides(
        self,
        test: ast.expr,
        function: Function,
        activation: Activation | None = None,
        depth: int = _DEPTH,
    ) -> bool | None:
        """How a test comes out under the facts; None where they do not decide it.

        Args:
            activation: for one call of the function; None for all known callers.
        """
        here = function, activation
        test = without_bool(test, function)
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self.decides(test.operand, *here, depth)
            return None if inner is None else not inner
        if isinstance(test, ast.BoolOp):
            return self._decides_operands(test, here, depth)
        if isinstance(test, ast.Compare):
            return self._decides_comparison(test, here)
        if isinstance(test, ast.Call) and not (test.args or test.keywords):
            answer = self.answers.get(function.module.resolve(test.func) or "")
            if answer is not None:
                return answer
        name = name_of(test)
        if name in self.known and self._is_one(name, test, here):
            return bool(self.known[name])
        definition = definition_of(test, function) if name and depth else None
        if definition is not None:
            return self.decides(definition, *here, depth - 1)
        return self._decides_by_origin(test, here, depth)

    def _decides_by_origin(self, test: ast.expr, here: Here, depth: int) -> bool | None:
        """What is left of the values of a test where facts rule some of the ways out they come."""
        computed = _only_computation(self.values, test, here) if depth else None
        if computed is not None:
            where = computed.function, computed.activation
            return self.decides(computed.expression, *where, depth - 1)
        possible = self.values.of(test, *here)
        ways = [
            value
            for value in possible.values
            if not depth or self.holds(value.origin.conditions, 0) is not False
        ]
        truths = {bool(value.content) for value in ways}
        return truths.pop() if possible.complete and len(truths) == 1 else None

    def holds(self, conditions: Iterable[Condition], depth: int = _DEPTH) -> bool | None:
        """Whether all conditions hold under the facts; None where they do not decide it."""
        conditions = tuple(conditions)
        answers = [self.decides(item.test, item.function, None, depth) for item in conditions]
        sides = [item.side for item in conditions]
        if any(answer is not None and answer is not side for answer, side in zip(answers, sides)):
            return False
        return None if None in answers else True

    def _decides_operands(self, test: ast.BoolOp, here: Here, depth: int) -> bool | None:
        absorbing = isinstance(test.op, ast.Or)
        answers = [self.decides(operand, *here, depth) for operand in test.values]
        if absorbing in answers:
            return absorbing
        return None if None in answers else not absorbing

    def _decides_comparison(self, test: ast.Compare, here: Here) -> bool | None:
        if len(test.ops) != 1:
            return None
        operation, right = test.ops[0], test.comparators[0]
        if isinstance(operation, (ast.In, ast.NotIn)):
            return self._decides_membership(test.left, right, isinstance(operation, ast.In), here)
        if not isinstance(operation, (ast.Eq, ast.Is, ast.NotEq, ast.IsNot)):
            return None
        equal = self._equal(test.left, self._constant(right, here), here)
        if equal is None:
            return None
        return equal is isinstance(operation, (ast.Eq, ast.Is))

    def _equal(self, left: ast.expr, content: object, here: Here) -> bool | None:
        if content is ...:
            return None
        for name, place in _names_of(left, here[0]):
            if not self._is_one(name, place, here):
                continue
            if name in self.known:
                return self._same(self.known[name], content)
            if any(self._same(item, content) for item in self.excluded.get(name, ())):
                return False
        constant = self._constant(left, here)
        return None if constant is ... else self._same(constant, content)

    def _same(self, first: object, second: object) -> bool | None:
        """Whether two constants are equal; None where one is only known to be true, or false."""
        if not self.exact:
            return same(first, second)
        return None if isinstance(first, bool) is not isinstance(second, bool) else first == second

    def _decides_membership(
        self, left: ast.expr, container: ast.expr, positive: bool, here: Here
    ) -> bool | None:
        name = name_of(left)
        if not isinstance(container, (ast.Tuple, ast.List, ast.Set)) or name not in self.known:
            return None
        if not self._is_one(name, left, here):
            return None
        members = [self._constant(item, here) for item in container.elts]
        answers = [self._same(self.known[name], item) for item in members if item is not ...]
        if True in answers:
            return positive
        return None if ... in members or None in answers else not positive

    def _constant(self, expression: ast.expr, here: Here) -> object:
        """The one constant that an expression always is, of those that answers of calls leave."""
        possible = self.values.of(expression, *here)
        if not self.answers:
            return possible.only()
        ways = [v for v in possible.values if self.holds(v.origin.conditions, 1) is not False]
        return Possible(tuple(ways), possible.complete).only()


def without_bool(test: ast.expr, function: Function) -> ast.expr:
    """`cfg.amp` of `bool(cfg.amp)`: both are true, or neither is."""
    while isinstance(test, ast.Call) and len(test.args) == 1 and not test.keywords:
        callee = test.func
        if not isinstance(callee, ast.Name) or callee.id != "bool":
            break
        if function.module.scopes.resolve(callee, function.node).kind != "builtin":
            break
        test = test.args[0]
    return test


def may_follow(
    values: Values,
    first: ast.AST,
    second: ast.AST,
    function: Function,
    entered: ast.AST | None = None,
) -> bool:
    """Whether one node of a function may run behind another: a way leads there, and tests allow it.

    Args:
        entered: what both are inside of; of a loop around that, one round holds both. What is bound
            in a loop that goes round between them may have changed: its tests say nothing.
    """
    layout = layout_of(function)
    if not layout.reaches(first, second):
        return False
    outer = layout.loops(entered) if entered is not None else ()
    around = [loop for loop in layout.loops(first) if loop not in outer]
    rounds = [loop for loop in around if loop in layout.loops(second)]
    changing = {
        name
        for name, bindings in bindings_of(function).items()
        for binding in bindings
        if any(layout.holds(loop, binding.statement) for loop in rounds)
    }
    facts = Assumptions.of(values, conditions_at(first, function))
    lasting = [
        item
        for item in conditions_at(second, function)
        if changing.isdisjoint(filter(None, map(path_text, _expressions(item.test))))
    ]
    return facts.holds(lasting) is not False


def _expressions(test: ast.expr) -> Iterator[ast.expr]:
    return (node for node in ast.walk(test) if isinstance(node, ast.expr))


def same(first: object, second: object) -> bool:
    """Whether two constants are equal; a dtype equals every spelling of itself."""
    if isinstance(first, DType) or isinstance(second, DType):
        return dtype_meant(first) is not None and dtype_meant(first) == dtype_meant(second)
    if isinstance(first, str) and isinstance(second, str):
        meant = dtype_meant(first)
        return first == second or (meant is not None and meant == dtype_meant(second))
    if first is True and isinstance(second, str):  # known to be true only: not ""
        return False
    return first == second


def name_of(expression: ast.expr) -> str:
    """The last name of a name, attribute or constant subscript; "" for anything else.

    `name.lower()` and its like have a name of their own, as each call gives the same text.
    """
    if isinstance(expression, ast.Name):
        return expression.id
    if isinstance(expression, ast.Attribute):
        return expression.attr
    if isinstance(expression, ast.Subscript) and isinstance(expression.slice, ast.Constant):
        return str(expression.slice.value)
    if isinstance(expression, ast.Call) and not (expression.args or expression.keywords):
        method = expression.func
        if isinstance(method, ast.Attribute) and method.attr in _SAME_TEXT:
            inner = name_of(method.value)
            return f"{inner}.{method.attr}()" if inner else ""
    return ""


def _names_of(expression: ast.expr, function: Function) -> Iterator[tuple[str, ast.expr]]:
    """The names of what an expression is, and of what it was copied from, nearest first; and each."""
    for _ in range(_DEPTH):
        name = name_of(expression) or _name_of_call(expression)
        if not name:
            return
        yield name, expression
        definition = definition_of(expression, function)
        if definition is None:
            return
        expression = definition


def _name_of_call(expression: ast.expr) -> str:
    """A name for what a function makes of named things: `dtype_of(config)`, wherever it is called.

    Only values are taken for equal by it. That a test came out so once says nothing of the next time.
    """
    if not isinstance(expression, ast.Call) or expression.keywords:
        return ""
    given = [name_of(argument) for argument in expression.args]
    callee = name_of(expression.func)
    if isinstance(expression.func, ast.Attribute):
        owner = name_of(expression.func.value)
        callee = f"{owner}.{callee}" if owner else ""
    return f"{callee}({', '.join(given)})" if callee and given and all(given) else ""


def definition_of(expression: ast.expr, function: Function) -> ast.expr | None:
    """What the only binding of a name gives it; None for anything else."""
    if not isinstance(expression, ast.Name):
        return None
    for scope in scopes(function, function.module):
        if expression.id in parameters(scope):
            return None
        found = bindings_of(scope).get(expression.id, [])
        if found:
            return found[0].value if len(found) == 1 else None
    return None


def _only_computation(values: Values, test: ast.expr, here: Here) -> Origin | None:
    """The one test behind a flag, such as what a property returns; None where there are others."""
    found = values.origins.of(test, *here)
    if len(found.origins) != 1 or not found.complete or found.origins[0].conditions:
        return None
    computed = found.origins[0].expression
    is_test = isinstance(computed, (ast.Compare, ast.BoolOp, ast.UnaryOp))
    return found.origins[0] if is_test and computed is not test else None


@dataclass(frozen=True, slots=True)
class _Place:
    """Where exact facts know a name from: where its value comes from, and how it is written there."""

    sources: frozenset[object]
    function: Function
    text: str

    def may_be(self, other: _Place) -> bool:
        """Whether both have one value. `first.kind` and `second.kind` of one function are two."""
        is_elsewhere = self.function is not other.function
        return self.sources == other.sources and (is_elsewhere or self.text == other.text)


def possible_at(
    values: Values,
    expression: ast.expr,
    function: Function,
    depth: int = _DEPTH,
    *,
    given: Iterable[Condition] = (),
    answers: Mapping[str, bool] = NO_ANSWERS,
) -> Possible:
    """The constants that an expression may be where it stands: those that the tests there allow.

    `torch.autocast("cuda", dtype=dtype)` under `if dtype:` is given no None. What a parameter may be
    its callers say, each where it calls.

    Args:
        given: what else holds where the expression counts: the switch of an autocast.
        answers: what calls without arguments say there, by the dotted names of their functions.
    """
    possible = values.of(expression, function)
    if len(possible.values) < 2:
        return possible
    conditions = (*conditions_at(expression, function), *given)
    passed = _passed(values, expression, function) if depth else None
    allowed = None
    if passed is not None:
        around = [possible_at(values, *item, depth - 1, answers=answers) for item in passed]
        if all(item.values for item in around):
            allowed = {repr(value.content) for item in around for value in item.values}
    kept: list[Value] = []
    machine = Assumptions(values, answers=answers)
    for value in possible.values:
        if answers and machine.holds(value.origin.conditions) is False:
            continue
        facts = Assumptions.of(values, value.origin.conditions, exact=True)
        alone = Assumptions(values, exact=True)  # `kind` of `args.kind` has the same name
        for known in (facts, alone):
            known.assume(expression, value.content, function)
        is_possible = all(known.holds(conditions) is not False for known in (facts, alone))
        if is_possible and (allowed is None or repr(value.content) in allowed):
            kept.append(value)
    return Possible(tuple(kept), possible.complete) if kept else possible


def _passed(
    values: Values, expression: ast.expr, function: Function
) -> list[tuple[ast.expr, Function]] | None:
    """What all callers pass for a parameter; None where one leaves it out, or more may call."""
    if not isinstance(expression, ast.Name) or expression.id not in parameters(function):
        return None
    objects = values.origins.objects
    if bindings_of(function).get(expression.id):
        return None
    sites = objects.every_call_of(function)
    given = [objects.bind(site.node, site.function, function).given for site in sites]
    passed = [item.get(expression.id) for item in given]
    found = [(each, site.function) for each, site in zip(passed, sites) if each is not None]
    return found if found and len(found) == len(sites) else None


def may_run(
    values: Values, node: ast.AST, function: Function, activation: Activation | None = None
) -> bool:
    """Whether each test around a node, asked alone, can come out so that it runs.

    Args:
        activation: the call of the function; None for all known callers.
    """
    return all(
        item.side in values.truth(item.test, item.function, activation)
        for item in conditions_at(node, function)
    )


def _sources_of(values: Values, expression: ast.expr, here: Here) -> frozenset[object]:
    """Where the value of an expression comes from: equal for two that have it from one place.

    What creates it, each under the tests that choose it. Of what is not in sight the name, and
    which function or class that belongs to; of what one call reads from a file the value, as
    different entries come from there.
    """
    return frozenset(
        (
            source_of(item.expression, item.function),
            repr(item.data) if isinstance(item.data, SCALARS) else "",
            frozenset((ast.dump(each.test), each.side) for each in item.conditions),
        )
        for item in values.origins.of(expression, *here).origins
    )


def source_of(expression: ast.expr, function: Function) -> object:
    """What creates a value, equal for all ways that lead there."""
    if isinstance(expression, ast.Constant):  # what an option can be is made anew by each question
        at = getattr(expression, "lineno", 0), getattr(expression, "col_offset", 0)
        return function.module, at, repr(expression.value)
    path = path_text(expression)
    root = expression
    while isinstance(root, (ast.Attribute, ast.Subscript)):
        root = root.value
    if path is None or not isinstance(root, ast.Name):
        return expression
    if root.id == receiver_of(function):
        return path.partition(".")[2], function.owner
    return path, function.module.scopes.resolve(root).scope
