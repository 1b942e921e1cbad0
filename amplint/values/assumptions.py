"""What conditions say about each other: given that this branch was taken, is that one, too?

`dtype = torch.bfloat16` stands under `args.precision == "bf16"`; a scaler is built with
`enabled=args.precision == "fp16"`. `Assumptions.of` learns from the first that `precision` is
"bf16", and `decides` then answers the second: no. Locations are told apart by their last name
(`cfg.amp` and `self.cfg.amp` are one), which joins places that a parameter or an attribute
separates; a name that means two things in one program makes an answer wrong towards "decided",
and the rules that ask report only where nothing is decided against them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from amplint.amp.dtypes import DType, dtype_meant
from amplint.code.dataflow import bindings_of, parameters, scopes
from amplint.code.module import Function
from amplint.values.provenance import Condition
from amplint.values.values import Values

_DEPTH = 4
#: Methods of texts that give the same answer for the same text.
_SAME_TEXT = frozenset(("casefold", "lower", "strip", "upper"))


@dataclass(slots=True, eq=False)
class Assumptions:
    """Facts about names, learned from conditions that hold.

    Args:
        known: what a name is.
        excluded: what a name is not.
    """

    values: Values
    known: dict[str, object] = field(default_factory=dict)
    excluded: dict[str, list[object]] = field(default_factory=dict)

    @classmethod
    def of(cls, values: Values, conditions: Iterable[Condition]) -> Assumptions:
        """The facts that some conditions imply together."""
        found = cls(values)
        for condition in conditions:
            found.learn(condition.test, condition.side, condition.function)
        return found

    def learn(self, test: ast.expr, side: bool, function: Function, depth: int = _DEPTH) -> None:
        """Take in that a test came out on one side."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            self.learn(test.operand, not side, function, depth)
        elif isinstance(test, ast.BoolOp):
            if isinstance(test.op, ast.And) is side:
                for operand in test.values:
                    self.learn(operand, side, function, depth)
        elif isinstance(test, ast.Compare) and len(test.ops) == 1:
            self._learn_comparison(test, side, function)
        elif name_of(test):
            self.known.setdefault(name_of(test), side)
            definition = definition_of(test, function) if depth else None
            if definition is not None:
                self.learn(definition, side, function, depth - 1)

    def _learn_comparison(self, test: ast.Compare, side: bool, function: Function) -> None:
        name = name_of(test.left)
        content = self._constant(test.comparators[0], function)
        if not name or content is ...:
            return
        if isinstance(test.ops[0], (ast.Eq, ast.Is, ast.NotEq, ast.IsNot)):
            if isinstance(test.ops[0], (ast.Eq, ast.Is)) is side:
                self.assume(test.left, content, function)
            else:
                self.excluded.setdefault(name, []).append(content)

    def assume(self, expression: ast.expr, content: object, function: Function) -> None:
        """Take in what a name is, and what it was copied from."""
        for name in _names_of(expression, function):
            self.known.setdefault(name, content)

    def decides(self, test: ast.expr, function: Function, depth: int = _DEPTH) -> bool | None:
        """How a test comes out under the facts; None where they do not decide it."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self.decides(test.operand, function, depth)
            return None if inner is None else not inner
        if isinstance(test, ast.BoolOp):
            return self._decides_operands(test, function, depth)
        if isinstance(test, ast.Compare):
            return self._decides_comparison(test, function)
        name = name_of(test)
        if name in self.known:
            return bool(self.known[name])
        definition = definition_of(test, function) if name and depth else None
        if definition is not None:
            return self.decides(definition, function, depth - 1)
        return self._decides_by_origin(test, function, depth)

    def _decides_by_origin(self, test: ast.expr, function: Function, depth: int) -> bool | None:
        """What is left of the values of a test where facts rule some of the ways out they come."""
        possible = self.values.of(test, function)
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
        answers = [self.decides(item.test, item.function, depth) for item in conditions]
        sides = [item.side for item in conditions]
        if any(answer is not None and answer is not side for answer, side in zip(answers, sides)):
            return False
        return None if None in answers else True

    def _decides_operands(self, test: ast.BoolOp, function: Function, depth: int) -> bool | None:
        absorbing = isinstance(test.op, ast.Or)
        answers = [self.decides(operand, function, depth) for operand in test.values]
        if absorbing in answers:
            return absorbing
        return None if None in answers else not absorbing

    def _decides_comparison(self, test: ast.Compare, function: Function) -> bool | None:
        if len(test.ops) != 1:
            return None
        operation, right = test.ops[0], test.comparators[0]
        name = name_of(test.left)
        if isinstance(operation, (ast.In, ast.NotIn)):
            return self._decides_membership(name, right, isinstance(operation, ast.In), function)
        if not isinstance(operation, (ast.Eq, ast.Is, ast.NotEq, ast.IsNot)):
            return None
        equal = self._equal(test.left, self._constant(right, function), function)
        if equal is None:
            return None
        return equal is isinstance(operation, (ast.Eq, ast.Is))

    def _equal(self, left: ast.expr, content: object, function: Function) -> bool | None:
        if content is ...:
            return None
        for name in _names_of(left, function):
            if name in self.known:
                return same(self.known[name], content)
            if any(same(item, content) for item in self.excluded.get(name, ())):
                return False
        constant = self._constant(left, function)
        return None if constant is ... else same(constant, content)

    def _decides_membership(
        self, name: str, container: ast.expr, positive: bool, function: Function
    ) -> bool | None:
        if not isinstance(container, (ast.Tuple, ast.List, ast.Set)) or name not in self.known:
            return None
        members = [self._constant(item, function) for item in container.elts]
        if any(same(self.known[name], item) for item in members):
            return positive
        return None if ... in members else not positive

    def _constant(self, expression: ast.expr, function: Function) -> object:
        return self.values.of(expression, function).only()


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


def _names_of(expression: ast.expr, function: Function) -> Iterator[str]:
    """The names of what an expression is, and of what it was copied from, nearest first."""
    for _ in range(_DEPTH):
        name = name_of(expression) or _name_of_call(expression)
        if not name:
            return
        yield name
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
