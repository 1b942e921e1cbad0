"""How many values something is taken apart into: `for images, labels in loader`, `loss, logits = net(x)`.

Python raises a `ValueError` where names and values differ in number. A tuple that the code writes has
as many values as stand there; a `DataLoader` keeps that number, because the default collation works
part by part (`torch.utils.data.default_collate`). A tensor is taken apart along its first dimension:
what nothing in sight writes down has an unknown number of values.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from amplint.code.arguments import passed
from amplint.code.dataflow import constant_of
from amplint.code.expressions import is_none, last_name
from amplint.code.layout import layout_of
from amplint.code.module import Class, Function
from amplint.values.calls import back_of_returns
from amplint.values.kinds import targets_of
from amplint.values.objects import Objects
from amplint.values.provenance import WIDTH, Activation, Back, Before, Part

#: What a value can be; () where that is not known.
Shapes = tuple["Shape", ...]
Ask = Callable[[], Shapes]

#: Callables that give the elements of their first argument, one by one.
_SAME_ELEMENTS = frozenset(("iter", "list", "tuple", "reversed", "sorted"))
#: The same of libraries: progress bars, and `itertools.islice`.
_PASSING_ON = frozenset(("tqdm", "track", "islice"))
#: Methods of Accelerate and Fabric that give back what they are given, several as a tuple.
_PREPARING = frozenset(("prepare", "setup_dataloaders", "prepare_data_loader"))
#: Data sets and loaders of torch by the last part of their name.
_LOADER = "DataLoader"
_DATA = frozenset(("torch.utils.data", "torch.utils.data.dataloader", "torch.utils.data.dataset"))
#: Libraries whose base classes leave a data set's own `__getitem__` what it is.
_BASES = ("torch.utils.data.", "torchvision.datasets", "abc.", "object", "torch.nn.Module")


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """What a value consists of.

    Args:
        parts: what each of its values is; None where their number is open.
        each: what any of its values is, where their number is open.
    """

    parts: tuple[Ask, ...] | None = None
    each: Ask | None = None


def _nothing() -> Shapes:
    return ()


class Unpacking:
    """Answers for the files of one project, each found out once."""

    def __init__(self, objects: Objects) -> None:
        self.objects = objects

    def refused(self, statement: ast.AST, function: Function) -> ast.expr | None:
        """The targets of a statement that cannot take what they are given; None if they may."""
        if isinstance(statement, (ast.For, ast.AsyncFor)):
            target = statement.target
            is_apart = isinstance(target, (ast.Tuple, ast.List))
            shapes = _any_of(self.of(statement.iter, function)) if is_apart else ()
            return target if _refuses(target, shapes) else None
        if not isinstance(statement, ast.Assign):
            return None
        for target in statement.targets:
            is_apart = isinstance(target, (ast.Tuple, ast.List))
            if is_apart and _refuses(target, self.of(statement.value, function)):
                return target
        return None

    def of(
        self, expression: ast.expr, function: Function, activation: Activation | None = None
    ) -> Shapes:
        """What an expression can be where a function evaluates it."""
        key = ("shapes", expression, function, activation)
        return self.objects.origins.once(key, lambda: self._of(expression, function, activation), ())

    def _ask(self, expression: ast.expr, function: Function, activation: Activation | None) -> Ask:
        return partial(self.of, expression, function, activation)

    def _of(
        self, expression: ast.expr, function: Function, activation: Activation | None
    ) -> Shapes:
        here = (function, activation)
        if isinstance(expression, ast.Tuple):
            return self._display(expression.elts, *here)
        if isinstance(expression, ast.Call):
            return self._of_call(expression, *here)
        if isinstance(expression, (ast.List, ast.Dict)):
            return ()  # others may add to it
        back = self.objects.origins.back(expression, *here)
        return self._behind(back) if back is not None else ()

    def _display(
        self, items: Iterable[ast.expr], function: Function, activation: Activation | None
    ) -> Shapes:
        items = list(items)
        if any(isinstance(item, ast.Starred) for item in items):
            return ()
        return (Shape(tuple(self._ask(item, function, activation) for item in items)),)

    def _made_here(
        self, expression: ast.expr, function: Function, activation: Activation | None
    ) -> Shapes:
        """What a function gives with `return` or `yield`: nobody has changed what is written there."""
        if isinstance(expression, ast.List):
            return self._display(expression.elts, function, activation)
        if isinstance(expression, ast.Dict):
            keys = {constant_of(key) if key is not None else ... for key in expression.keys}
            is_known = ... not in keys and len(keys) == len(expression.keys) and keys
            return (Shape((_nothing,) * len(keys)),) if is_known else ()
        return self.of(expression, function, activation)

    # -- one step back -------------------------------------------------------------------------

    def _behind(self, back: Back, is_returned: bool = False) -> Shapes:
        if not back.complete or not 0 < len(back.places) <= WIDTH:
            return ()
        return _all(self._at(place, is_returned) for place in back.places)

    def _at(self, place: Before, is_returned: bool) -> Shapes:
        entered = (step.into for step in place.steps if step.into is not None)
        if any(map(self.objects.may_have_other_callers, entered)):
            return ()
        where = (place.function, place.activation)
        if place.part is None:
            ask = self._made_here if is_returned else self.of
            return ask(place.expression, *where)
        if place.part.is_item:
            return _taken(self.of(place.expression, *where), place.part.key)
        return self._of_attribute(place.expression, place.part, *where)

    def _of_attribute(
        self,
        owner: ast.expr,
        part: Part,
        function: Function,
        activation: Activation | None,
    ) -> Shapes:
        found = self.objects.origins.part_of(owner, part, function, activation)
        entered = (step.into for item in found.origins for step in item.steps if step.into)
        if not found.complete or any(map(self.objects.may_have_other_callers, entered)):
            return ()
        return _all(
            self.of(item.expression, item.function, item.activation) for item in found.origins
        )

    # -- calls ---------------------------------------------------------------------------------

    def _of_call(
        self, call: ast.Call, function: Function, activation: Activation | None
    ) -> Shapes:
        known = self.objects.symbol(call.func, function)
        if isinstance(known, Class):
            return self._object(known)
        found = targets_of(self.objects.origins, call, function, activation)
        if found.functions:
            if found.unknown:
                return ()
            return _all(
                self._given_by(item, Activation(item, call, function, activation))
                for item in found.functions
            )
        return self._of_library(call, function, activation)

    def _given_by(self, callee: Function, inner: Activation) -> Shapes:
        if callee.name in ("__init__", "__new__") or isinstance(callee.node, ast.AsyncFunctionDef):
            return ()
        yields = _yields(callee)
        if yields:
            return (Shape(each=partial(self._any_made, yields, callee, inner)),)
        back = back_of_returns(self.objects.origins, inner)
        return self._behind(back, is_returned=True) if back is not None else ()

    def _any_made(
        self, values: list[ast.expr], function: Function, activation: Activation | None
    ) -> Shapes:
        return _all(self._made_here(value, function, activation) for value in values)

    def _object(self, owner: Class) -> Shapes:
        """What Python gives of an object, one after the other: by `__iter__`, or by `__getitem__`."""
        if not self._is_whole(owner) or self.objects.method(owner, "__getitems__") is not None:
            return ()
        iterating = self.objects.method(owner, "__iter__")
        if iterating is not None:
            return self._iterated(iterating)
        getting = self.objects.method(owner, "__getitem__")
        if getting is None or getattr(getting.node, "decorator_list", ()):
            return ()
        return (Shape(each=partial(self._returned, getting)),)

    def _iterated(self, iterating: Function) -> Shapes:
        if getattr(iterating.node, "decorator_list", ()):
            return ()
        yields = _yields(iterating)
        if yields:
            return (Shape(each=partial(self._any_made, yields, iterating, None)),)
        return self._returned(iterating)

    def _returned(self, function: Function) -> Shapes:
        """What any call of a function returns."""
        nodes = [node for node in layout_of(function).nodes if isinstance(node, ast.Return)]
        values = [node.value for node in nodes if node.value is not None]
        if len(values) < len(nodes) or _yields(function):
            return ()
        return self._any_made(values, function, None)

    def _is_whole(self, owner: Class) -> bool:
        """Whether no base that is out of sight decides how objects of a class are taken apart."""
        order = self.objects.ancestry(owner)
        return all(
            self.objects.symbol(base, item.module.body) in order
            or (item.module.resolve(base) or ast.unparse(base)).startswith(_BASES)
            for item in order
            for base in item.bases
        )

    def _of_library(
        self, call: ast.Call, function: Function, activation: Activation | None
    ) -> Shapes:
        here = (function, activation)
        name = last_name(call.func)
        is_plain = bool(call.args) and not any(isinstance(it, ast.Starred) for it in call.args)
        home, _, library = (function.module.resolve(call.func) or "").rpartition(".")
        if library == _LOADER and home in _DATA:
            return self._loader(call, *here)
        if not is_plain:
            return ()
        first = self._ask(call.args[0], *here)
        if library == "Subset" and home in _DATA:
            return first()
        if library == "random_split" and home in _DATA:
            return (Shape(each=first),)
        if name in _PREPARING and isinstance(call.func, ast.Attribute):
            several = len(call.args) > 1
            return self._display(call.args, *here) if several else first()
        if name in _PASSING_ON or self._is_builtin(call.func, function):
            return self._builtin(name, call, first, *here)
        return ()

    def _is_builtin(self, callee: ast.expr, function: Function) -> bool:
        scopes = function.module.scopes
        return isinstance(callee, ast.Name) and scopes.resolve(callee).kind == "builtin"

    def _builtin(
        self,
        name: str,
        call: ast.Call,
        first: Ask,
        function: Function,
        activation: Activation | None,
    ) -> Shapes:
        if name == "enumerate":
            return (Shape(each=lambda: (Shape((_nothing, lambda: _any_of(first()))),)),)
        if name == "zip":
            asked = [self._ask(item, function, activation) for item in call.args]
            rows = tuple(partial(_any_asked, ask) for ask in asked)
            return (Shape(each=lambda: (Shape(rows),)),)
        if name == "next":
            return _any_of(first())
        return first() if name in _SAME_ELEMENTS | _PASSING_ON else ()

    def _loader(
        self, call: ast.Call, function: Function, activation: Activation | None
    ) -> Shapes:
        """What a `DataLoader` gives: parts of its items, put together part by part."""
        given = passed(call)
        if given.spread or any(isinstance(item, ast.Starred) for item in given.positional):
            return ()
        collate = given.named.get("collate_fn")
        if len(given.positional) > 6 or (collate is not None and not is_none(collate)):
            return self._collated(collate, function) if collate is not None else ()
        data = given.named.get("dataset", given.positional[0] if given.positional else None)
        if data is None:
            return ()
        return (Shape(each=partial(_any_asked, self._ask(data, function, activation))),)

    def _collated(self, collate: ast.expr, function: Function) -> Shapes:
        if isinstance(collate, ast.Lambda):
            made = self.objects.origins.lambda_function(collate, function)
            return (Shape(each=self._ask(collate.body, made, None)),)
        known = self.objects.symbol(collate, function)
        if not isinstance(known, Function) or getattr(known.node, "decorator_list", ()):
            return ()
        return (Shape(each=partial(self._returned, known)),)


def _refuses(target: ast.expr, shapes: Shapes) -> bool:
    """Whether a target can take none of the values that it may be given."""
    return bool(shapes) and all(_cannot_take(target, shape) for shape in shapes)


def _cannot_take(target: ast.expr, shape: Shape) -> bool:
    if not isinstance(target, (ast.Tuple, ast.List)) or shape.parts is None:
        return False
    stars = sum(isinstance(item, ast.Starred) for item in target.elts)
    if stars:
        return len(shape.parts) < len(target.elts) - stars
    if len(shape.parts) != len(target.elts):
        return True
    return any(
        _refuses(item, ask())
        for item, ask in zip(target.elts, shape.parts)
        if isinstance(item, (ast.Tuple, ast.List))
    )


def _all(found: Iterable[Shapes]) -> Shapes:
    """All of several answers; nothing where one of them is not known."""
    every: list[Shape] = []
    for shapes in found:
        if not shapes:
            return ()
        every += shapes
    return tuple(every)


def _any_asked(ask: Ask) -> Shapes:
    return _any_of(ask())


def _any_of(shapes: Shapes) -> Shapes:
    """What one value of any of some values is."""
    return _taken(shapes, ...)


def _taken(shapes: Shapes, key: object) -> Shapes:
    return _all(_part(shape, key) for shape in shapes)


def _part(shape: Shape, key: object) -> Shapes:
    """What stands at an index of a value, or at any."""
    if shape.parts is None:
        return shape.each() if shape.each is not None else ()
    if key is ...:
        return _all(ask() for ask in shape.parts)
    is_index = isinstance(key, int) and -len(shape.parts) <= key < len(shape.parts)
    return shape.parts[key]() if is_index else ()  # type: ignore[index]


def _yields(function: Function) -> list[ast.expr]:
    """What a generator gives; what it hands on of another one is not looked for."""
    nodes = layout_of(function).nodes
    if any(isinstance(node, ast.YieldFrom) for node in nodes):
        return [ast.Constant(None)]
    found = [node for node in nodes if isinstance(node, ast.Yield)]
    return [node.value or ast.Constant(None) for node in found]
