"""Which argument fills which parameter, by Python's own rules.

`bind` is the only place that says so. It never guesses: what a `*` or a `**` may fill is
unknown, and a call that Python would refuse fills nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING

from amplint.code.expressions import binder_of, callee_of, last_name

if TYPE_CHECKING:
    from amplint.code.module import Function


class Kind(Enum):
    """How a parameter can be filled."""

    POSITIONAL_ONLY = "positional only"
    PLAIN = "by position or by name"
    REST = "*"
    KEYWORD_ONLY = "keyword only"
    WORDS = "**"


#: What PEP 8 calls the object or the class of a method, whatever it is annotated with.
_RECEIVERS = frozenset(("self", "cls", "mcs"))
# Tuples, because the hash of an Enum's member is computed in Python, for every parameter.
_BY_POSITION = (Kind.POSITIONAL_ONLY, Kind.PLAIN)
_BY_NAME = (Kind.PLAIN, Kind.KEYWORD_ONLY)
#: Decorators under which a function keeps the parameters that its definition lists.
_KEEPS = frozenset(
    ("staticmethod", "classmethod", "abstractmethod", "override", "overload", "final", "wraps")
    + ("contextmanager", "asynccontextmanager", "cache", "lru_cache")
)


@dataclass(frozen=True, slots=True, eq=False)
class Parameter:
    """One parameter of a function.

    Args:
        default: its default; None if it has none, or one that is not in sight.
        required: whether a call has to fill it.
    """

    name: str
    kind: Kind
    annotation: ast.expr | None = None
    default: ast.expr | None = None
    required: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Passed:
    """What a call passes, the arguments that `functools.partial` has bound first.

    Args:
        positional: positional arguments in order, `*x` among them as `ast.Starred`.
        named: keyword arguments.
        spread: the expressions behind `**`.
        repeated: a keyword that is passed twice, "" for none.
    """

    positional: tuple[ast.expr, ...] = ()
    named: Mapping[str, ast.expr] = field(default_factory=dict)
    spread: tuple[ast.expr, ...] = ()
    repeated: str = ""

    def every(self) -> list[ast.expr]:
        """All arguments; those that a `*` or `**` holds as one."""
        return [*self.positional, *self.named.values(), *self.spread]

    def after(self, count: int) -> Passed:
        """The same arguments without the first ones: what `partial(f, x)` binds of `f`."""
        return Passed(self.positional[count:], self.named, self.spread, self.repeated)

    def then(self, later: Passed) -> Passed:
        """The arguments of a call of what `partial` made of these: later keywords win.

        A later `**` may replace any earlier keyword: they are not counted then.
        """
        return Passed(
            self.positional + later.positional,
            {**({} if later.spread else self.named), **later.named},
            self.spread + later.spread,
            self.repeated or later.repeated,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Bound:
    """How a call fills the parameters of a function.

    Each parameter but `*args` and `**kwargs` is in one of the first three, except for a receiver
    that no expression names. Where Python refuses the call, all are empty.

    Args:
        given: parameter -> the argument that fills it; the object of a method included.
        defaults: the parameters that the call surely leaves to their defaults, with these.
        unknown: parameter -> the arguments that may fill it: `*x` as `ast.Starred`, `**x` as `x`,
            none where a decorator has other parameters than the function.
        rest: what the `*` parameter gets, in order; None where that is not known.
        words: what the `**` parameter surely gets.
        receiver: the parameter that stands for the object or class of a method, "" for none.
        refused: why Python would refuse the call, "" if it may accept it.
    """

    given: Mapping[str, ast.expr] = field(default_factory=dict)
    defaults: Mapping[str, ast.expr | None] = field(default_factory=dict)
    unknown: Mapping[str, tuple[ast.expr, ...]] = field(default_factory=dict)
    rest: tuple[ast.expr, ...] | None = ()
    words: Mapping[str, ast.expr] = field(default_factory=dict)
    receiver: str = ""
    refused: str = ""

    def values(self) -> dict[str, ast.expr]:
        """The parameters whose argument, or default, is known."""
        known = {name: value for name, value in self.defaults.items() if value is not None}
        return {**known, **self.given}


# -- parameters -----------------------------------------------------------------------------------


def parameters(function: Function) -> Mapping[str, Parameter]:
    """The parameters of a function by name, in the order of its definition."""
    return function.once(_find_parameters)


def _find_parameters(function: Function) -> Mapping[str, Parameter]:
    arguments = getattr(function.node, "args", None)
    return listed(arguments) if isinstance(arguments, ast.arguments) else {}


def listed(arguments: ast.arguments) -> Mapping[str, Parameter]:
    """The parameters that a `def` or `lambda` lists, by name, in order."""
    plain = [(item, Kind.POSITIONAL_ONLY) for item in arguments.posonlyargs]
    plain += [(item, Kind.PLAIN) for item in arguments.args]
    without = [None] * (len(plain) - len(arguments.defaults))
    found = [
        _parameter(item, kind, default)
        for (item, kind), default in zip(plain, (*without, *arguments.defaults))
    ]
    if arguments.vararg is not None:
        found.append(Parameter(arguments.vararg.arg, Kind.REST, arguments.vararg.annotation))
    for item, default in zip(arguments.kwonlyargs, arguments.kw_defaults):
        found.append(_parameter(item, Kind.KEYWORD_ONLY, default))
    if arguments.kwarg is not None:
        found.append(Parameter(arguments.kwarg.arg, Kind.WORDS, arguments.kwarg.annotation))
    return {item.name: item for item in found}


def _parameter(item: ast.arg, kind: Kind, default: ast.expr | None) -> Parameter:
    return Parameter(item.arg, kind, item.annotation, default, default is None)


def optional(names: Iterable[str]) -> Mapping[str, Parameter]:
    """Parameters of which only the names and their order are known; a call may leave each out."""
    return {name: Parameter(name, Kind.PLAIN) for name in names}


def first_parameter(function: Function) -> str:
    """The name of the first positional parameter: what a method calls its object; "" if none."""
    names = (item.name for item in parameters(function).values() if item.kind in _BY_POSITION)
    return next(names, "")


def receiver_of(function: Function) -> str:
    """The parameter that stands for the object, or the class, of a method; "" for no method."""
    if function.owner is None or is_decorated(function, "staticmethod"):
        return ""
    first = first_parameter(function)
    return "" if first not in _RECEIVERS and _is_of_elsewhere(first, function) else first


def _is_of_elsewhere(name: str, function: Function) -> bool:
    """Whether a first parameter is annotated with an imported class: the class calls it unbound."""
    known = parameters(function).get(name)
    annotation = known.annotation if known is not None else None
    if not isinstance(annotation, (ast.Name, ast.Attribute)):
        return False
    return function.module.resolve(annotation) is not None


def written_argument(call: ast.Call, name: str, index: int) -> ast.expr | None:
    """What a call passes as an argument, `words["lr"]` for the `lr` of `**words`; None if nothing.

    Args:
        index: its place among the positional ones.
    """
    given = passed(call)
    if name in given.named:
        return given.named[name]
    if index < len(given.positional):
        return given.positional[index]
    if len(given.spread) != 1:
        return None
    (words,) = given.spread
    entry = ast.Subscript(words, ast.copy_location(ast.Constant(name), words), ast.Load())
    return ast.copy_location(entry, words)


def signature(function: Function) -> tuple[object, ...]:
    """What of a function decides how `bind` fills its parameters, the name of its class aside."""
    every = tuple((item.name, item.kind, item.required) for item in parameters(function).values())
    return every, receiver_of(function), frozenset(_decorators(function))


def is_decorated(function: Function, *names: str) -> bool:
    """Whether a function has a decorator with one of these last names, called or not."""
    return not _decorators(function).isdisjoint(names)


def is_decorated_otherwise(function: Function) -> bool:
    """Whether a decorator may put something else in a function's place."""
    return not _decorators(function) <= {"staticmethod", "classmethod"}


def _decorators(function: Function) -> set[str]:
    found = getattr(function.node, "decorator_list", ())
    return {last_name(item.func if isinstance(item, ast.Call) else item) for item in found}


# -- arguments ------------------------------------------------------------------------------------


def passed(call: ast.Call) -> Passed:
    """What a call passes; what a `partial` has bound that it calls on the spot comes first."""
    return _bound_by(call.func).then(written(call))


def _bound_by(callee: ast.expr) -> Passed:
    binder = binder_of(callee)
    if binder is None:
        return Passed()
    return _bound_by(binder.args[0]).then(written(binder).after(1))


def written(call: ast.Call) -> Passed:
    """The arguments of a call; `*(a, b)` and `**{"key": value}` count as what they hold."""
    positional: list[ast.expr] = []
    for argument in call.args:
        positional += _elements(argument)
    named: dict[str, ast.expr] = {}
    spread: list[ast.expr] = []
    repeated = ""
    for word in call.keywords:
        entries = _entries(word)
        if entries is None:
            spread.append(word.value)
            continue
        repeated = repeated or next((key for key, _ in entries if key in named), "")
        named.update(entries)
    return Passed(tuple(positional), named, tuple(spread), repeated)


def _elements(argument: ast.expr) -> list[ast.expr]:
    if isinstance(argument, ast.Starred) and isinstance(argument.value, (ast.Tuple, ast.List)):
        return [inner for item in argument.value.elts for inner in _elements(item)]
    return [argument]


def _entries(word: ast.keyword) -> list[tuple[str, ast.expr]] | None:
    """What a keyword argument passes under which names; None for a `**` of unknown keys."""
    if word.arg is not None:
        return [(word.arg, word.value)]
    if not isinstance(word.value, ast.Dict):
        return None
    found: dict[str, ast.expr] = {}
    for key, value in zip(word.value.keys, word.value.values):
        if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
            return None
        found[key.value] = value
    return list(found.items())


# -- binding --------------------------------------------------------------------------------------


def bind(
    call: ast.Call | Passed,
    function: Function,
    *,
    receiver: ast.expr | None = None,
    on_object: bool | None = None,
) -> Bound:
    """How a call that runs a function fills its parameters.

    Args:
        call: the call, or what it passes together with what `partial` has bound.
        function: what it runs; `__init__` for a call of its class, `forward` for one of a module.
        receiver: the object that the method is called on, where it is not in the call.
        on_object: whether the call is made on an object, which fills the first parameter of a
            method (`net.run(x)`, and `Net.run(net, x)` is not). None: as the call is written.
    """
    arguments = passed(call) if isinstance(call, ast.Call) else call
    every = parameters(function)
    first = receiver_of(function)
    if first and on_object is None and isinstance(call, ast.Call):
        on_object = not _names_class(call, function)
    if not first or (on_object is False and not is_decorated(function, "classmethod")):
        found = fill(every, arguments)
        return _doubtful(found, function)
    others = {name: item for name, item in every.items() if name != first}
    found = fill(others, arguments, first if every[first].kind is Kind.PLAIN else "")
    if found.refused:
        return replace(_doubtful(found, function), receiver=first)
    if receiver is None and isinstance(call, ast.Call):
        receiver = _object_of(call, function)
    given = {first: receiver, **found.given} if receiver is not None else found.given
    return replace(found, given=given, receiver=first)


def _doubtful(found: Bound, function: Function) -> Bound:
    """The same answer, or nothing known where a call shows that a decorator changes parameters.

    Most decorators do not: it is asked only where a call contradicts the definition.
    """
    if not found.refused or _decorators(function) <= _KEEPS:
        return found
    return Bound(unknown=dict.fromkeys(parameters(function), ()), rest=None)


def _names_class(call: ast.Call, function: Function) -> bool:
    """Whether a method is called as `Class.method(...)`, by the name of its own class."""
    callee = callee_of(call)
    if not isinstance(callee, ast.Attribute) or callee.attr != function.name:
        return False
    return function.owner is not None and last_name(callee.value) == function.owner.name


def _object_of(call: ast.Call, function: Function) -> ast.expr | None:
    """The object that a call of a method names; None for constructors, `super()` and classes."""
    if function.name == "__init__" or is_decorated(function, "classmethod"):
        return None
    callee = callee_of(call)
    if not isinstance(callee, ast.Attribute) or callee.attr != function.name:
        return None if function.name not in ("__call__", "forward") else callee
    place = callee.value
    is_super = isinstance(place, ast.Call) and last_name(place.func) == "super"
    return None if is_super else place


def fill(every: Mapping[str, Parameter], arguments: Passed, taken: str = "") -> Bound:
    """How arguments fill parameters.

    Args:
        taken: a parameter before these that is filled already, and takes keywords too.
    """
    return _Filling(every, arguments, taken).bound()


class _Filling:
    """One call, on its way from arguments to parameters."""

    def __init__(self, every: Mapping[str, Parameter], arguments: Passed, taken: str) -> None:
        self.every = every
        self.taken = taken
        self.named = arguments.named
        self.spread = arguments.spread
        self.positional = list(arguments.positional)
        self.repeated = arguments.repeated
        self.places = [item for item in every.values() if item.kind in _BY_POSITION]
        self.rest = next((item for item in every.values() if item.kind is Kind.REST), None)
        self.words = next((item for item in every.values() if item.kind is Kind.WORDS), None)
        # A keyword for a parameter, and no later position can be reached: it would be filled twice.
        by_name = [
            index
            for index, item in enumerate(self.places)
            if item.kind is Kind.PLAIN and item.name in self.named
        ]
        limit = None if self.rest is not None else len(self.places)
        self.limit = min(by_name) if by_name else limit

    def bound(self) -> Bound:
        """The answer."""
        refused = self._refused_outright()
        if refused:
            return Bound(refused=refused)
        self._empty_stars()
        stars = [item for item in self.positional if isinstance(item, ast.Starred)]
        sure = self.positional.index(stars[0]) if stars else len(self.positional)
        given = {item.name: value for item, value in zip(self.places, self.positional[:sure])}
        given.update((name, self.named[name]) for name in self.named if self._is_keyword(name))
        unknown, defaults, missing = self._unfilled(given, self.positional[sure:])
        if missing:
            return Bound(refused=f"`{missing}` is missing")
        words = {name: value for name, value in self.named.items() if not self._is_keyword(name)}
        rest = tuple(self.positional[len(self.places) :])
        is_sure = not stars or sure >= len(self.places) or self.limit is not None
        if self.rest is not None and not is_sure:
            unknown[self.rest.name] = tuple(self.positional[sure:])
        return Bound(given, defaults, unknown, rest if is_sure else None, words)

    def _is_keyword(self, name: str) -> bool:
        return name in self.every and self.every[name].kind in _BY_NAME

    def _refused_outright(self) -> str:
        """Why no content of the stars can make Python accept the call."""
        if self.repeated:
            return f"`{self.repeated}` is passed twice"
        for name in self.named:
            if name == self.taken:
                return f"`{name}` is passed twice"
            if not self._is_keyword(name) and self.words is None:
                return f"`{name}` is no parameter that takes a keyword"
        count = sum(not isinstance(item, ast.Starred) for item in self.positional)
        if self.limit is None or count <= self.limit:
            return ""
        if self.limit < len(self.places):
            return f"`{self.places[self.limit].name}` is passed twice"
        return "too many positional arguments"

    def _empty_stars(self) -> None:
        """Drop stars that have to be empty, because all positions are taken without them."""
        plain = [item for item in self.positional if not isinstance(item, ast.Starred)]
        if self.limit is not None and len(plain) == self.limit:
            self.positional = plain

    def _unfilled(
        self, given: Mapping[str, ast.expr], unsure: list[ast.expr]
    ) -> tuple[dict[str, tuple[ast.expr, ...]], dict[str, ast.expr | None], str]:
        """The other parameters: those that stars may fill, those left out, one that is missing."""
        unknown: dict[str, tuple[ast.expr, ...]] = {}
        defaults: dict[str, ast.expr | None] = {}
        reached = {item.name for item in self.places[: self.limit]} if unsure else set()
        for name, item in self.every.items():
            if name in given or item.kind in (Kind.REST, Kind.WORDS):
                continue
            sources = tuple(unsure) if name in reached else ()
            sources += self.spread if item.kind in _BY_NAME else ()
            if sources:
                unknown[name] = sources
            elif item.required:
                return unknown, defaults, name
            else:
                defaults[name] = item.default
        if self.words is not None and self.spread:
            unknown[self.words.name] = self.spread
        return unknown, defaults, ""
