"""What a user has to set so that a call is made, and passes what it should.

Values of one command line hang together: what one argument needs must not speak against what
another one, or the test around the call, needs.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from amplint.probe.domains import Option, is_same
from amplint.values.provenance import Condition

#: The truth of a test that is about something else than options.
UNKNOWN: Any = object()
#: A value that a user sets, whatever it is.
_GIVEN: Any = object()
#: What asks for a device.
_MACHINE = ".is_available()"
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda value, many: value in many,
    ast.NotIn: lambda value, many: value not in many,
}


class Choices:
    """Values that a user sets; whatever is not set keeps its default.

    Args:
        options: by the name under which the code reads them.
        made: what is set already.
    """

    def __init__(
        self, options: Mapping[str, Option], made: Mapping[str, Any] | None = None
    ) -> None:
        self._options = options
        self._made = dict(made or {})

    def copy(self) -> Choices:
        """The same choices, to try more."""
        return Choices(self._options, self._made)

    def value(self, name: str) -> Any:
        """What an option is; `UNKNOWN` without a literal default."""
        if name in self._made:
            return UNKNOWN if self._made[name] is _GIVEN else self._made[name]
        option = self._options.get(name)
        if option is None or (option.default is None and not option.optional):
            return UNKNOWN
        return option.default

    @property
    def set_by_user(self) -> dict[str, Any]:
        """What is not as it is where the user sets nothing."""
        return {name: value for name, value in self._made.items() if not self._is_usual(name)}

    def _is_usual(self, name: str) -> bool:
        option = self._options.get(name)
        if option is None or self._made[name] is _GIVEN:
            return False
        return is_same(self._made[name], option.default)

    def keep(self, name: str) -> Any:
        """What an option is, and stays: what else it is needed for has to go with that."""
        value = self.value(name)
        if value is not UNKNOWN:
            self._made.setdefault(name, value)
        return value

    def choose(self, name: str, value: Any) -> bool:
        """Set a value; False where another one is set, or nobody can set it."""
        known = self._made.get(name, _GIVEN)
        if known is not _GIVEN:
            return is_same(known, value)
        option = self._options.get(name)
        if (name in self._made and value is None) or (
            option is not None and not option.takes(value)
        ):
            return False
        self._made[name] = value
        return True

    def give(self, name: str) -> bool:
        """Set anything but None; False where that is set."""
        option = self._options.get(name)
        if option is None or option.optional:
            self._made.setdefault(name, _GIVEN)
        return self._made.get(name, _GIVEN) is not None

    def permit(self, condition: Condition, *, known: bool = False) -> bool:
        """Whether a test can come out as it must; what that needs is set.

        A test about something else may come out either way, unless it also asks for what a
        user has to set.

        Args:
            known: the test has to be about what a user sets, or about the machine.
        """
        names = self._names(condition.test)
        found = self._evaluated(condition.test)
        if found is UNKNOWN:
            if known and _MACHINE not in ast.unparse(condition.test):
                return False
            return not any(map(self._is_unusual, names))
        if bool(found) is condition.side:
            for name in names:
                if self.value(name) is not UNKNOWN:
                    self._made.setdefault(name, self.value(name))
            return True
        free = [name for name in names if name not in self._made]
        if len(names) != 1 or not free:
            return False
        for value in self._options[free[0]].values:
            other = Choices(self._options, {**self._made, free[0]: value})
            if bool(other._evaluated(condition.test)) is condition.side:
                return self.choose(free[0], value)
        return False

    def _is_unusual(self, name: str) -> bool:
        """Whether an option is set to something else than its default."""
        if name not in self._made:
            return False
        return self._options[name].default is None or not self._is_usual(name)

    def _names(self, test: ast.expr) -> list[str]:
        read = (
            node.attr if isinstance(node, ast.Attribute) else node.id
            for node in ast.walk(test)
            if isinstance(node, (ast.Attribute, ast.Name))
        )
        return [name for name in dict.fromkeys(read) if name in self._options]

    def _evaluated(self, test: ast.expr) -> Any:
        """What a test gives; `UNKNOWN` unless it is about options and constants only."""
        if isinstance(test, ast.Constant):
            return test.value
        if isinstance(test, ast.Attribute):
            return self.value(test.attr) if test.attr in self._options else UNKNOWN
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            operand = self._evaluated(test.operand)
            return UNKNOWN if operand is UNKNOWN else not operand
        if isinstance(test, ast.BoolOp):
            return self._conjunction(test)
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            return self._comparison(test)
        if isinstance(test, (ast.UnaryOp, ast.Tuple, ast.List, ast.Set)):
            return _literal(test)
        return UNKNOWN

    def _conjunction(self, test: ast.BoolOp) -> Any:
        decides = isinstance(test.op, ast.Or)
        sides: Iterable[Any] = [self._evaluated(operand) for operand in test.values]
        if any(side is not UNKNOWN and bool(side) is decides for side in sides):
            return decides
        return UNKNOWN if any(side is UNKNOWN for side in sides) else not decides

    def _comparison(self, test: ast.Compare) -> Any:
        compare = _COMPARISONS[type(test.ops[0])]
        left, right = self._evaluated(test.left), self._evaluated(test.comparators[0])
        if left is UNKNOWN or right is UNKNOWN:
            return UNKNOWN
        try:
            return bool(compare(left, right))
        except TypeError:
            return UNKNOWN


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):
        return UNKNOWN
