"""The constants that an expression may be, across files, and how each one gets there.

    possible = view.values.of(expression, function)
    for value in possible.values:
        value.content    # None, a bool, a number, a string, a DType
        value.firmness   # FIXED, DEFAULT (somebody may choose otherwise) or CHOICE
        value.steps      # where it is written, then every call that hands it on
    possible.complete    # whether there are no other values

`only(...)` and `always(...)` ask the usual questions. A value that nothing is known about is
missing from the list, and the list is then incomplete: a rule that needs certainty asks for
`complete`, one that needs an example takes a value and shows its steps. Nothing is executed.
"""

from __future__ import annotations

import ast
import itertools
import math
import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from amplint.amp.dtypes import dotted_dtype, dtype_meant, torch_dtype
from amplint.code.dataflow import constant_of
from amplint.code.expressions import last_name
from amplint.code.module import Function, Module
from amplint.values.datafiles import loads_data
from amplint.values.external import whole_data
from amplint.values.objects import Objects
from amplint.values.origins import Origins
from amplint.values.provenance import (
    NO_DATA,
    OTHER_KEY,
    Activation,
    Firmness,
    Found,
    Keys,
    Origin,
    Part,
    Step,
    Truth,
)

#: Calls that answer yes or no, depending on the machine or on an object.
_QUESTIONS = frozenset(
    ("is_available", "is_bf16_supported", "is_autocast_available", "isinstance", "hasattr")
    + ("is_initialized", "exists", "isfile", "isdir", "is_built", "startswith", "endswith")
)
_CONVERSIONS: dict[str, Callable[[Any], object]] = {
    "bool": bool,
    "str": str,
    "int": int,
    "float": float,
    "device": lambda value: value,
}
_TEXT_METHODS = frozenset(("lower", "upper", "strip", "removeprefix", "replace", "casefold"))
_CONSTANTS = {
    name: value
    for library in ("math", "numpy", "torch", "np")
    for name, value in (
        (f"{library}.inf", math.inf),
        (f"{library}.pi", math.pi),
        (f"{library}.nan", math.nan),
    )
}
#: Largest and smallest positive normal number and machine epsilon, `torch.finfo` of torch 2.13.
FINFO: dict[str, dict[str, float]] = {
    "float16": {"max": 65504.0, "tiny": 2.0**-14, "eps": 2.0**-10},
    "bfloat16": {"max": 3.3895313892515355e38, "tiny": 2.0**-126, "eps": 2.0**-7},
    "float32": {"max": 3.4028234663852886e38, "tiny": 2.0**-126, "eps": 2.0**-23},
    "float64": {"max": 1.7976931348623157e308, "tiny": 2.0**-1022, "eps": 2.0**-52},
}
_ARITHMETIC: dict[type, Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.LShift: lambda number, bits: int(number) << int(bits),
    ast.Pow: operator.pow,
}
_COMPARISONS: dict[type, Callable[[Any, Any], object]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Is: operator.eq,
    ast.IsNot: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
#: A constant, how firmly, and the origin of what it was computed from if that is one constant.
Content = tuple[object, Firmness, Origin | None]

_WIDTH = 16


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A constant that an expression may be.

    Args:
        content: None, a bool, a number, a string, a `DType`, or plain data of a file.
        firmness: how firmly; `Firmness` has the words.
        origin: the expression that says so, and the steps from there.
    """

    content: object
    firmness: Firmness
    origin: Origin

    @property
    def node(self) -> ast.expr:
        """The expression that is the constant."""
        return self.origin.expression

    @property
    def module(self) -> Module:
        """The file that holds it."""
        return self.origin.function.module

    @property
    def dtype(self) -> str | None:
        """The dtype that it is or names ("float16"), or None."""
        return dtype_meant(self.content)

    @property
    def steps(self) -> tuple[Step, ...]:
        """From where the constant is written to where it was asked for."""
        origin = self.origin
        first = Step(origin.expression, self.module, f"`{ast.unparse(origin.expression)}` is here")
        if origin.steps and _row(origin.steps[0]) == _row(first):
            return origin.steps
        return (first, *origin.steps)


@dataclass(frozen=True, slots=True, eq=False)
class Possible:
    """The constants that an expression may be.

    Args:
        complete: whether it can be nothing else.
    """

    values: tuple[Value, ...] = ()
    complete: bool = False

    def always(self, test: Callable[[object], bool]) -> bool:
        """Whether every value is known and passes the test."""
        return self.complete and bool(self.values) and all(test(v.content) for v in self.values)

    def only(self) -> object:
        """The one value that it always is; `...` if there is none, or more than one."""
        found = {repr(value.content): value.content for value in self.values}
        return next(iter(found.values())) if self.complete and len(found) == 1 else ...

    def with_dtype(self, *names: str) -> Iterator[Value]:
        """The values that are or name one of these dtypes."""
        return (value for value in self.values if value.dtype in names)

    def by_default(self) -> tuple[Value, ...]:
        """The values that stand unless somebody chooses otherwise."""
        return tuple(value for value in self.values if value.firmness > Firmness.CHOICE)


class Values:
    """Answers what expressions of one program are.

    Args:
        objects: resolves names, classes and calls.
    """

    def __init__(self, objects: Objects) -> None:
        self.origins = Origins(objects, self.truth, self._keys)

    def of(
        self, expression: ast.expr, function: Function, activation: Activation | None = None
    ) -> Possible:
        """The constants that an expression may be where `function` evaluates it.

        Args:
            activation: for one call of the function; None for all known callers.
        """
        return self.origins.once(
            ("constants", expression, function, activation),
            lambda: self._of(expression, function, activation),
            Possible(),
        )

    def _of(
        self, expression: ast.expr, function: Function, activation: Activation | None
    ) -> Possible:
        found = self.origins.of(expression, function, activation)
        return self.constants(found.origins, found.complete)

    def part_of(
        self, expression: ast.expr, name: str, function: Function, activation: Activation | None
    ) -> Possible:
        """The constants that an attribute or an entry called `name` may be."""
        found = self.origins.part_of(expression, Part(name, False), function, activation)
        return self.constants(found.origins, found.complete)

    def constants(self, origins: Iterable[Origin], complete: bool) -> Possible:
        """The constants that some origins are."""
        values: list[Value] = []
        for origin in origins:
            contents = self._contents(origin)
            complete = complete and contents is not None
            for content, firmness, source in contents or ():
                seen = origin if source is None else _through(source, origin)
                values.append(Value(content, min(firmness, origin.firmness), seen))
            complete = complete and not (contents and contents[0] is _AND_MORE)
        return Possible(tuple(_distinct(values)), complete)

    def truth(
        self, test: ast.expr, function: Function, activation: Activation | None = None
    ) -> Truth:
        """The truth values that a condition may have, each with how firmly."""
        possible = self.of(test, function, activation)
        found: Truth = {}
        for value in possible.values:
            side = bool(value.content)
            found[side] = max(found.get(side, Firmness.CHOICE), value.firmness)
        if not possible.complete or not found:
            for side in (True, False):
                found.setdefault(side, Firmness.CHOICE)
        return found

    def _keys(
        self, key: ast.expr, function: Function, activation: Activation | None
    ) -> Keys | None:
        possible = self.of(key, function, activation)
        known = possible.values if possible.complete else possible.by_default()
        found: Keys = [(value.content, value.firmness) for value in known]
        if found and not possible.complete:
            found.append(OTHER_KEY)
        return found or None

    # -- one origin ----------------------------------------------------------------------------

    def _contents(self, origin: Origin) -> list[Content] | None:
        """What an origin is; None where that is no constant."""
        if origin.data is not NO_DATA:
            return [(origin.data, Firmness.FIXED, None)]
        node = origin.expression
        if isinstance(node, ast.Constant):
            return [(node.value, Firmness.FIXED, None)]
        if isinstance(node, (ast.Name, ast.Attribute)):
            return self._imported(node, origin)
        if isinstance(node, (ast.UnaryOp, ast.BinOp, ast.JoinedStr)):
            return self._computed(node, origin)
        if isinstance(node, ast.Compare):
            return self._comparison(node, origin)
        if isinstance(node, ast.BoolOp):
            return self._conjunction(node, origin)
        if isinstance(node, ast.Call):
            return self._call(node, origin)
        return None

    def _imported(self, node: ast.Name | ast.Attribute, origin: Origin) -> list[Content] | None:
        """`torch.float16`, `math.inf`, a limit of a dtype."""
        dotted = origin.function.module.resolve(node)
        dtype = dotted_dtype(dotted)
        if dtype is not None:
            return [(dtype, Firmness.FIXED, None)]
        if dotted in _CONSTANTS:
            return [(_CONSTANTS[dotted], Firmness.FIXED, None)]
        return self._limit(node, origin) if isinstance(node, ast.Attribute) else None

    def _limit(self, node: ast.Attribute, origin: Origin) -> list[Content] | None:
        """`torch.finfo(torch.float32).min`."""
        call = node.value
        if not isinstance(call, ast.Call) or last_name(call.func) != "finfo" or not call.args:
            return None
        possible = self.of(call.args[0], origin.function, origin.activation)
        found: list[Content] = []
        for value in possible.values:
            limits = FINFO.get(value.dtype or "", {})
            if node.attr == "min" and limits:
                found.append((-limits["max"], value.firmness, None))
            elif node.attr.replace("smallest_normal", "tiny") in limits:
                number = limits[node.attr.replace("smallest_normal", "tiny")]
                found.append((number, value.firmness, None))
        return found if possible.complete and found else None

    def _computed(
        self, node: ast.UnaryOp | ast.BinOp | ast.JoinedStr, origin: Origin
    ) -> list[Content] | None:
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            truth = self.truth(node.operand, origin.function, origin.activation)
            return [(not side, firmness, None) for side, firmness in truth.items()]
        operands, compute = _operation(node)
        possible = [self.of(item, origin.function, origin.activation) for item in operands]
        if not all(item.complete and item.values for item in possible):
            return None
        found: list[Content] = []
        for combination in _combinations(possible):
            try:
                content = compute(*(value.content for value in combination))
            except Exception:  # noqa: BLE001 -- whatever the program's own arithmetic raises
                return None
            found.append((content, min(value.firmness for value in combination), None))
        return found

    def _comparison(self, node: ast.Compare, origin: Origin) -> list[Content] | None:
        if len(node.ops) != 1:
            return _EITHER
        if isinstance(node.ops[0], (ast.In, ast.NotIn)):
            return self._membership(node, origin)
        compare = _COMPARISONS.get(type(node.ops[0]))
        if compare is None:
            return _EITHER
        sides = [
            self.of(item, origin.function, origin.activation)
            for item in (node.left, node.comparators[0])
        ]
        found: list[Content] = []
        for combination in _combinations(sides):
            try:
                content = bool(compare(*(value.content for value in combination)))
            except TypeError:
                return _EITHER
            found.append((content, min(value.firmness for value in combination), None))
        return found if all(side.complete for side in sides) and found else found + _EITHER

    def _membership(self, node: ast.Compare, origin: Origin) -> list[Content]:
        here = (origin.function, origin.activation)
        container = node.comparators[0]
        if not isinstance(container, (ast.Tuple, ast.List, ast.Set)):
            return _EITHER
        members = [self.of(item, *here).only() for item in container.elts]
        left = self.of(node.left, *here)
        negated = isinstance(node.ops[0], ast.NotIn)
        if ... in members:
            return _EITHER
        found: list[Content] = [
            ((value.content in members) is not negated, value.firmness, None)
            for value in left.values
        ]
        return found if left.complete and found else found + _EITHER

    def _conjunction(self, node: ast.BoolOp, origin: Origin) -> list[Content]:
        """`a and b`: false where one is, else the last."""
        found: list[Content] = []
        rest = Firmness.FIXED
        for operand in node.values[:-1]:
            truth = self.truth(operand, origin.function, origin.activation)
            if False in truth:
                found.append((False, min(rest, truth[False]), None))
            if True not in truth:
                return found
            rest = min(rest, truth[True])
        last = self.of(node.values[-1], origin.function, origin.activation)
        found += ((value.content, min(rest, value.firmness), value.origin) for value in last.values)
        return found if last.complete else found + _EITHER

    # -- calls ---------------------------------------------------------------------------------

    def _call(self, call: ast.Call, origin: Origin) -> list[Content] | None:
        name = last_name(call.func)
        module = origin.function.module
        if name == "getattr" and len(call.args) >= 2:
            return self._named_dtype(call, origin)
        if name == "isinstance" and len(call.args) == 2 and last_name(call.args[1]) == "dict":
            return self._is_dict(call.args[0], origin)
        if name in _QUESTIONS:
            return _EITHER
        dotted = module.resolve(call.func) or ""
        if dotted in ("os.getenv", "os.environ.get"):
            return self._environment(call, origin)
        if name in _CONVERSIONS and len(call.args) >= 1:
            return self._mapped(call.args[0], origin, _CONVERSIONS[name])
        if name in _TEXT_METHODS and isinstance(call.func, ast.Attribute):
            words = [constant_of(item) for item in call.args]
            if all(isinstance(word, str) for word in words):
                return self._mapped(
                    call.func.value, origin, lambda text: getattr(text, name)(*words)
                )
        return None

    def _is_dict(self, expression: ast.expr, origin: Origin) -> list[Content]:
        """Whether something is a dict, where it is what a data file holds, or a part of that."""
        answers: dict[bool, Firmness] = {}
        rest: list[Content] = []
        found = self.origins.of(expression, origin.function, origin.activation)
        for item in found.origins:
            whole = self._read(item)
            if whole is None or not (found.complete and whole.origins):
                return _EITHER
            rest = rest if whole.complete else [_AND_MORE]
            for each in whole.origins:
                side = isinstance(each.data, dict)
                answers[side] = max(answers.get(side, each.firmness), each.firmness)
        known = [(side, firmness, None) for side, firmness in answers.items()]
        return [*rest, *known] if known else _EITHER

    def _read(self, item: Origin) -> Found | None:
        """What an origin has read of data files; None of others."""
        if item.data is not NO_DATA:
            return Found((item,))
        dotted = item.function.module.resolve(getattr(item.expression, "func", item.expression))
        if not isinstance(item.expression, ast.Call) or not loads_data(dotted):
            return None
        return whole_data(self.origins, item.expression, dotted, item)

    def _named_dtype(self, call: ast.Call, origin: Origin) -> list[Content] | None:
        """`getattr(torch, name)`."""
        if origin.function.module.resolve(call.args[0]) != "torch":
            return None
        return self._mapped(
            call.args[1], origin, lambda name: torch_dtype(name) if isinstance(name, str) else None
        )

    def _environment(self, call: ast.Call, origin: Origin) -> list[Content] | None:
        default = constant_of(call.args[1]) if len(call.args) > 1 else None
        return [_AND_MORE, (default, Firmness.DEFAULT, None)] if default is not ... else None

    def _mapped(
        self, expression: ast.expr, origin: Origin, change: Callable[[object], object]
    ) -> list[Content] | None:
        possible = self.of(expression, origin.function, origin.activation)
        found: list[Content] = [] if possible.complete else [_AND_MORE]
        for value in possible.values:
            try:
                found.append((change(value.content), value.firmness, value.origin))
            except Exception:  # noqa: BLE001 -- the program's own conversion fails
                return None
        return [item for item in found if item is _AND_MORE or item[0] is not None] or None


#: Stands first in a list of contents that is not complete.
_AND_MORE: Content = (..., Firmness.CHOICE, None)
_EITHER: list[Content] = [(True, Firmness.CHOICE, None), (False, Firmness.CHOICE, None)]


def _through(source: Origin, origin: Origin) -> Origin:
    """A constant inside a conversion, seen from where the conversion was asked about."""
    return source.then(origin.firmness, origin.steps, origin.conditions)


def _operation(
    node: ast.UnaryOp | ast.BinOp | ast.JoinedStr,
) -> tuple[list[ast.expr], Callable[..., object]]:
    if isinstance(node, ast.UnaryOp):
        return [node.operand], lambda value: -value if isinstance(node.op, ast.USub) else +value
    if isinstance(node, ast.BinOp):
        return [node.left, node.right], partial(_arithmetic, type(node.op))
    parts = [item.value if isinstance(item, ast.FormattedValue) else item for item in node.values]
    return parts, lambda *texts: "".join(map(str, texts))


def _arithmetic(operation: type, left: object, right: object) -> object:
    """A calculation that costs nothing: no long powers, no repeated strings.

    Raises:
        TypeError: the operands are no plain numbers, or too large.
    """
    if operation is ast.Add and isinstance(left, str) and isinstance(right, str):
        return left + right
    if not isinstance(left, (int, float)) or not isinstance(right, (int, float)):
        raise TypeError
    if operation in (ast.Pow, ast.LShift) and (abs(right) > 400 or abs(left) > 1e6):
        raise TypeError
    compute = _ARITHMETIC.get(operation)
    if compute is None:
        raise TypeError
    return compute(left, right)


def _combinations(possible: Iterable[Possible]) -> Iterator[tuple[Value, ...]]:
    product = itertools.product(*(item.values for item in possible))
    return itertools.islice(product, _WIDTH * 2)


def _distinct(values: Iterable[Value]) -> Iterator[Value]:
    """Each constant once, with its firmest firmness."""
    found: dict[str, Value] = {}
    for value in values:
        if value.content is ...:
            continue
        key = repr(value.content)
        known = found.get(key)
        if known is None or value.firmness > known.firmness:
            found[key] = value
    return iter(found.values())


def _row(step: Step) -> tuple[str, int]:
    return step.module.filename, getattr(step.node, "lineno", 0)
