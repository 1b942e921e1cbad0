"""How many values something is taken apart into: `for images, labels in loader`, `loss, logits = net(x)`.

Python raises a `ValueError` where names and values differ in number. A tuple that the code writes has
as many values as stand there; a `DataLoader` keeps that number, because the default collation works
part by part (`torch.utils.data.default_collate`). A tensor is taken apart along its first dimension:
what nothing in sight writes down has an unknown number of values.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

from amplint.code.arguments import is_decorated_otherwise, passed
from amplint.code.dataflow import bindings_of, constant_of
from amplint.code.definitions import is_stub, returned
from amplint.code.expressions import is_none, last_name
from amplint.code.layout import layout_of
from amplint.code.module import Class, Function, Module
from amplint.values.calls import back_of_returns
from amplint.values.kinds import targets_of
from amplint.values.objects import Objects
from amplint.values.provenance import WIDTH, Activation, Back, Before, Origin, Part

#: What a value can be; () where that is not known.
Shapes = tuple["Shape", ...]
Ask = Callable[[], Shapes]

#: Callables that give the elements of their first argument, one by one.
_SAME_ELEMENTS = frozenset(("iter", "list", "tuple", "reversed", "sorted"))
#: The same of libraries: progress bars, and `itertools.islice`.
_PASSING_ON = frozenset(("tqdm", "track", "islice"))
#: Methods of Accelerate and Fabric that give back what they are given, several as a tuple.
_PREPARING = frozenset(("prepare", "setup_dataloaders", "prepare_data_loader"))
_LOADER = "DataLoader"
#: What hangs a function on modules that may give something else than their `forward` has given.
_HOOKS = frozenset(("register_forward_hook", "register_module_forward_hook"))
#: Modules that torch's loaders and data sets are imported from.
_DATA = frozenset(("torch.utils.data", "torch.utils.data.dataloader", "torch.utils.data.dataset"))
#: Libraries whose base classes leave a data set's own `__getitem__` what it is.
_BASES = ("torch.utils.data.", "torchvision.datasets", "abc.", "object", "torch.nn.Module")
#: Class methods that make a model of transformers.
_MAKERS = frozenset(("from_pretrained", "from_config"))
#: Operators that no text has, on either side.
_NOT_OF_TEXTS = (ast.Sub, ast.Div, ast.Pow, ast.MatMult, ast.FloorDiv)


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """What a value consists of.

    Args:
        parts: what each of its values is; None where their number is open.
        each: what any of its values is, where their number is open.
        has_keys: whether it is a dict, whose values are its keys, and these are texts.
        is_fixed: whether nobody can add to it.
        is_batch: whether the default collation has made it, which refuses None.
        is_nothing: whether it is None.
    """

    parts: tuple[Ask, ...] | None = None
    each: Ask | None = None
    has_keys: bool = False
    is_fixed: bool = True
    is_batch: bool = False
    is_nothing: bool = False


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

    def is_batch(self, node: ast.expr, function: Function) -> bool:
        """Whether a name holds nothing but batches that a loop gets of loaders: it is never None."""
        if not isinstance(node, ast.Name):
            return False
        bound = bindings_of(function).get(node.id, ())
        if not bound or not all(isinstance(item.statement, ast.For) for item in bound):
            return False
        shapes = self.of(node, function)
        return bool(shapes) and all(shape.is_batch for shape in shapes)

    def is_nothing(self, node: ast.expr, function: Function) -> bool:
        """Whether an expression is None: what a function gives that returns nothing."""
        if not isinstance(node, (ast.Name, ast.Call)):
            return False
        shapes = self.of(node, function)
        return bool(shapes) and all(shape.is_nothing for shape in shapes)

    def takes_keys_for_values(self, node: ast.AST, function: Function) -> ast.Name | None:
        """A name that holds a key of a dict, where a node does with it what no text can."""
        if isinstance(node, ast.Attribute):
            is_refused = not hasattr(str, node.attr)
            return self._key(node.value, function) if is_refused else None
        if not isinstance(node, ast.BinOp):
            return None
        for operand, other in ((node.left, node.right), (node.right, node.left)):
            key = self._key(operand, function)
            if key is None:
                continue
            is_times = isinstance(node.op, ast.Mult) and self._is_fraction(other, function)
            if isinstance(node.op, _NOT_OF_TEXTS) or is_times:
                return key
        return None

    def _key(self, node: ast.expr, function: Function) -> ast.Name | None:
        """A name that gets its value only where dicts are taken apart."""
        if not isinstance(node, ast.Name) or node.id not in _taken_apart(function):
            return None
        back = self.objects.origins.back(node, function, None)
        if back is None or not back.complete or not back.places:
            return None
        shapes = _all(
            self.of(place.expression, place.function, place.activation)
            if place.part is not None and place.part.is_item and isinstance(place.part.key, int)
            else ()
            for place in back.places
        )
        return node if shapes and all(shape.has_keys for shape in shapes) else None

    def _is_fraction(self, node: ast.expr, function: Function) -> bool:
        found = self.objects.origins.of(node, function)
        constants = [constant_of(item.expression) for item in found.origins]
        return found.complete and bool(constants) and all(isinstance(c, float) for c in constants)

    def of(
        self, expression: ast.expr, function: Function, activation: Activation | None = None
    ) -> Shapes:
        """What an expression can be where a function evaluates it."""
        key = ("shapes", expression, function, activation)
        return self.objects.origins.once(
            key, lambda: self._of(expression, function, activation), ()
        )

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
        found = self._behind(back) if back is not None else ()
        return tuple(item if item.is_fixed else replace(item, parts=None) for item in found)

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
            found = self._display(expression.elts, function, activation)
            return tuple(replace(shape, is_fixed=False) for shape in found)
        if isinstance(expression, ast.Dict):
            keys = {constant_of(key) for key in expression.keys if key is not None}
            is_known = len(keys) == len(expression.keys) and all(isinstance(k, str) for k in keys)
            parts = (_nothing,) * len(keys)
            return (Shape(parts, has_keys=True, is_fixed=False),) if is_known else ()
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
            taken = _taken(self.of(place.expression, *where), place.part.key)
            if taken or self._is_stored_unseen(place):
                return taken
        return self._of_part(place.expression, place.part, *where)

    def _is_stored_unseen(self, place: Before) -> bool:
        """Whether some entry of a dict may be another one by now: stored by a computed key, or by others."""
        assert place.part is not None
        found = self.objects.origins.of(place.expression, place.function, place.activation)
        homes = {place.function.module, *(item.function.module for item in found.origins)}
        stored = frozenset().union(*(module.once(_keys_stored) for module in homes))
        key = place.part.key
        return ... in stored or key in stored or (key is ... and bool(stored))

    def _of_part(
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

    def _of_call(self, call: ast.Call, function: Function, activation: Activation | None) -> Shapes:
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
        if _gives_nothing(callee) and not self._is_changed(callee, inner.caller):
            return (Shape(is_nothing=True),)
        back = back_of_returns(self.objects.origins, inner)
        return self._behind(back, is_returned=True) if back is not None else ()

    def _is_changed(self, callee: Function, caller: Function) -> bool:
        """Whether something may give another result in place of a function's own."""
        if callee.name == "forward":
            home, project = callee.module, self.objects.project
            others = (module for word in _HOOKS for module in project.mentioning(home, word))
            return any(module.once(_registers_hooks) for module in (home, *others))
        return self.objects.is_replaced(callee, caller)

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
        if getting is None or is_decorated_otherwise(getting):
            return ()
        return (Shape(each=partial(self._returned, getting)),)

    def _iterated(self, iterating: Function) -> Shapes:
        if is_decorated_otherwise(iterating):
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
        if self._gives_model_output(call, *here):
            return (Shape(has_keys=True),)
        if library == _LOADER and home in _DATA:
            return self._loader(call, *here)
        if not is_plain:
            return ()
        first = self._ask(call.args[0], *here)
        if library == "Subset" and home in _DATA:
            return first()
        if library == "random_split" and home in _DATA:
            return (Shape(each=first),)
        if name == "scale" and isinstance(call.func, ast.Attribute):  # gives as many as it is given
            return tuple(shape for shape in first() if shape.is_nothing)
        if name in _PREPARING and isinstance(call.func, ast.Attribute):
            several = len(call.args) > 1
            return self._display(call.args, *here) if several else first()
        if name in _PASSING_ON or self._is_builtin(call.func, function):
            return self._builtin(name, call, first, *here)
        return ()

    def _is_builtin(self, callee: ast.expr, function: Function) -> bool:
        scopes = function.module.scopes
        return isinstance(callee, ast.Name) and scopes.resolve(callee).kind == "builtin"

    def _gives_model_output(
        self, call: ast.Call, function: Function, activation: Activation | None
    ) -> bool:
        """Whether a model of transformers is called that gives a `ModelOutput`, an ordered dict.

        With `return_dict=True`; its documentation has the entries that are None left out.
        """
        asked = passed(call).named.get("return_dict")
        if not isinstance(asked, ast.Constant) or asked.value is not True:
            return False
        found = self.objects.origins.of(call.func, function, activation)
        return bool(found.origins) and found.complete and all(map(_is_pretrained, found.origins))

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

    def _loader(self, call: ast.Call, function: Function, activation: Activation | None) -> Shapes:
        """What a `DataLoader` gives: parts of its items, put together part by part."""
        given = passed(call)
        if given.spread or any(isinstance(item, ast.Starred) for item in given.positional):
            return ()
        collate = given.named.get("collate_fn")
        if len(given.positional) > 6 or (collate is not None and not is_none(collate)):
            return self._collated(collate, function) if collate is not None else ()
        data = given.named.get("dataset", given.positional[0] if given.positional else None)
        size = given.named.get("batch_size", given.positional[1] if given.positional[1:] else None)
        if data is None:
            return ()
        item = partial(_any_asked, self._ask(data, function, activation))
        return (Shape(each=item if is_none(size) else partial(_batch, item)),)

    def _collated(self, collate: ast.expr, function: Function) -> Shapes:
        """What a loader gives that puts its items together by a function of the project."""
        found = targets_of(self.objects.origins, ast.Call(collate, [], []), function)
        makers = (partial(self._returned, item) for item in found.functions)
        return () if found.unknown else _all((Shape(each=item),) for item in makers)


def _registers_hooks(module: Module) -> bool:
    return any(site.method in _HOOKS for site in module.calls)


def _keys_stored(module: Module) -> frozenset[object]:
    """The keys that a file stores more than constants under; `...` for computed ones."""
    return frozenset(
        constant_of(target.slice)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Assign) and not isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Subscript)
        and not isinstance(target.slice, (ast.Slice, ast.Tuple))
    )


def _taken_apart(function: Function) -> frozenset[str]:
    """The names that a function binds by taking something apart."""
    return function.once(_names_apart)


def _names_apart(function: Function) -> frozenset[str]:
    targets = [
        target
        for node in function.nodes
        if isinstance(node, (ast.Assign, ast.For))
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, (ast.Tuple, ast.List))
    ]
    inner = (node for target in targets for node in ast.walk(target))
    return frozenset(node.id for node in inner if isinstance(node, ast.Name))


def _is_pretrained(origin: Origin) -> bool:
    made = origin.expression
    dotted = origin.function.module.resolve(made.func) if isinstance(made, ast.Call) else None
    owner, _, maker = (dotted or "").rpartition(".")
    name = owner.rpartition(".")[2]
    is_model = "Model" in name or "For" in name
    return owner.startswith("transformers.") and is_model and maker in _MAKERS


def _refuses(target: ast.expr, shapes: Shapes) -> bool:
    """Whether a target can take none of the values that it may be given."""
    return bool(shapes) and all(_cannot_take(target, shape) for shape in shapes)


def _cannot_take(target: ast.expr, shape: Shape) -> bool:
    if not isinstance(target, (ast.Tuple, ast.List)):
        return False
    if shape.parts is None:
        return shape.is_nothing
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


def _gives_nothing(function: Function) -> bool:
    """Whether a function has a body, and no `return` with a value in it."""
    if is_stub(function) or isinstance(function.node, ast.Lambda):
        return False
    if is_decorated_otherwise(function):
        return False
    return not returned(function)


def _all(found: Iterable[Shapes]) -> Shapes:
    """All of several answers; nothing where one of them is not known."""
    every: list[Shape] = []
    for shapes in found:
        if not shapes:
            return ()
        every += shapes
    return tuple(every)


def _batch(item: Ask) -> Shapes:
    """What the default collation makes of items."""
    return tuple(replace(shape, is_batch=True) for shape in item()) or (Shape(is_batch=True),)


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
    if not isinstance(key, int) or not -len(shape.parts) <= key < len(shape.parts):
        return ()
    return shape.parts[key]()


def _yields(function: Function) -> list[ast.expr]:
    """What a generator gives; what it hands on of another one is not looked for."""
    nodes = layout_of(function).nodes
    if any(isinstance(node, ast.YieldFrom) for node in nodes):
        return [ast.Constant(None)]
    found = [node for node in nodes if isinstance(node, ast.Yield)]
    return [node.value or ast.Constant(None) for node in found]
