"""Which layers a value was computed by, and which graphs a backward has freed by then.

A second backward crashes where it meets a layer whose saved tensors an earlier one has freed.
Functions are followed in a straight line, through calls into any file, with the objects that
are passed to them. Only what certainly happens counts: of two branches what both do, of a loop
one pass, of an unknown call nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import reduce

from amplint.amp.grad_modes import OFF, OPEN, decorated, entered_mode
from amplint.amp.graph_values import (
    LAYER,
    NOTHING,
    Each,
    Node,
    Object,
    Value,
    common,
    elements,
    entries,
    flat,
    looked_up,
    same,
    union,
    unpacked,
    without,
)
from amplint.amp.losses import CUTS
from amplint.code.arguments import parameters, receiver_of
from amplint.code.dataflow import Binding, arguments, bindings_of, constant_of
from amplint.code.definitions import class_fields, returned
from amplint.code.expressions import last_name
from amplint.code.layout import EXITS
from amplint.code.module import Class, Function, Module, walk
from amplint.values.kinds import same_object
from amplint.values.objects import Objects
from amplint.values.wrappers import SAME_OBJECT

#: Layers that keep tensors for their backward (torch/nn/modules).
LAYERS = frozenset(
    ("Linear", "Bilinear", "Embedding", "EmbeddingBag", "LayerNorm", "GroupNorm", "RMSNorm")
    + ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm", "LSTM", "GRU", "RNN")
    + ("Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d")
    + ("MultiheadAttention", "TransformerEncoderLayer", "TransformerEncoder", "Transformer")
)
#: Containers of `torch.nn` that are what is put into them.
CONTAINERS = frozenset(("ModuleDict", "ModuleList"))
#: Further calls that end a graph, or one of whose results has none: `torch.distributions` samples
#: without one, and places in a sorted tensor are integers.
_CUTS = CUTS | {"sample", "multinomial", "sort", "min", "median", "mode", "kthvalue", "argsort"}
#: Builtins that put what they iterate over into a list, or into pairs and tuples.
_LISTING = frozenset(("list", "tuple", "reversed", "sorted", "enumerate", "zip"))
#: Methods of dicts that only read; any other one may change which elements there are.
_READING = frozenset(("items", "values", "keys", "get"))
#: Grad modes under which a graph may not be there.
_NO_GRAPH = OFF | {OPEN}
_DEPTH = 6
_BUDGET = 6_000

#: A local name, or the place of an object and the name of its attribute.
Key = str | tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A call on the way from where the analysis began, with the function that holds it."""

    node: ast.Call
    function: Function


#: The calls that lead to a place, the place itself last.
Trace = tuple[Call, ...]
#: Called with the node that both need, the first backward and the second one.
Report = Callable[[Node, Trace, Trace], None]


class TooLarge(Exception):
    """The function leads too far to be followed."""


@dataclass(slots=True)
class _Scene:
    """One activation of a function.

    Args:
        values: by local name; of attributes by the place of the object and their name.
        freed: nodes whose graph is gone, with the backward that did it.
        trace: the calls that lead here.
        rounds: the loops that are in their second round.
    """

    function: Function
    values: dict[Key, Value]
    freed: dict[Node, Trace]
    trace: Trace = ()
    rounds: tuple[ast.AST, ...] = ()
    returned: list[Value] = field(default_factory=list)

    def branch(self) -> _Scene:
        values, freed = dict(self.values), dict(self.freed)
        copy = _Scene(self.function, values, freed, self.trace, self.rounds)
        copy.returned = self.returned
        return copy


class Graphs:
    """Follows functions of a project and reports backwards through freed graphs.

    Args:
        objects: resolves calls and classes.
        report: called for each second backward.

    Attributes:
        homes: the files whose code leads to the call of a layer.
    """

    def __init__(self, objects: Objects, report: Report) -> None:
        self.objects = objects
        self.report = report
        self.homes: dict[Node, frozenset[Module]] = {}
        self._left = _BUDGET

    def follow(self, function: Function) -> None:
        """Follow a function with unknown arguments; too large ones are left where they stand."""
        self._left = _BUDGET
        owner = function.owner
        own = receiver_of(function)
        values: dict[Key, Value] = {own: Object(owner, (own,))} if owner is not None and own else {}
        try:
            self._block(function.body, _Scene(function, values, {}))
        except TooLarge:
            return

    # -- statements ------------------------------------------------------------------------------

    def _block(self, body: Iterable[ast.stmt], scene: _Scene) -> bool:
        """Follow statements; False if they certainly leave the block."""
        return all(self._statement(statement, scene) for statement in body)

    def _statement(self, node: ast.stmt, scene: _Scene) -> bool:
        self._left -= 1
        if self._left < 0:
            raise TooLarge
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            self._assign(node, scene)
        elif isinstance(node, ast.Expr):
            self._value(node.value, scene)
        elif isinstance(node, ast.Return):
            scene.returned.append(self._value(node.value, scene) if node.value else None)
            return False
        elif isinstance(node, (ast.Raise, ast.Continue, ast.Break)):
            return False
        elif isinstance(node, ast.If):
            return self._if(node, scene)
        elif isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
            self._loop(node, scene)
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            return self._with(node, scene)
        elif isinstance(node, ast.Try):
            return self._block([*node.body, *node.orelse, *node.finalbody], scene)
        return True

    def _assign(self, node: ast.Assign | ast.AnnAssign | ast.AugAssign, scene: _Scene) -> None:
        if node.value is None:
            return
        value = self._value(node.value, scene)
        if isinstance(node, ast.AugAssign):
            value = flat(value) | flat(self._value(node.target, scene))
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            self._store(target, value, scene)

    def _store(self, target: ast.expr, value: Value, scene: _Scene) -> None:
        if isinstance(target, ast.Attribute):
            held = self._value(target.value, scene)
            if isinstance(held, Object) and held.place:
                place = (*held.place, target.attr)
                scene.values[place] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            for item, part in zip(target.elts, unpacked(value, len(target.elts))):
                self._store(item, part, scene)
        else:
            _bind(target, value, scene)

    def _if(self, node: ast.If, scene: _Scene) -> bool:
        self._value(node.test, scene)
        ends = []
        for body in (node.body, node.orelse):
            end = scene.branch()
            if self._block(body, end):
                ends.append(end)
        if not ends:
            return False
        first, last = ends[0], ends[-1]
        scene.values = _shared(first.values, last.values)
        scene.freed = {node: trace for node, trace in first.freed.items() if node in last.freed}
        return True

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While, scene: _Scene) -> None:
        inner = scene.branch()
        each = None
        if not isinstance(node, ast.While):
            each = elements(self._value(node.iter, inner))
            _bind(node.target, each, inner)
        goes_on = self._block(node.body, inner)
        if goes_on and _repeats(node) and not self.objects.runs_once(node, scene.function):
            again = inner.branch()
            again.rounds += (node,)
            if not isinstance(node, ast.While):
                _bind(node.target, each, again)
            self._block(node.body, again)
        changed = {
            name for name, value in inner.values.items() if scene.values.get(name) is not value
        }
        scene.values = {name: v for name, v in scene.values.items() if name not in changed}

    def _with(self, node: ast.With | ast.AsyncWith, scene: _Scene) -> bool:
        before = dict(scene.values)
        for item in node.items:
            if item.optional_vars is not None:
                _bind(item.optional_vars, None, scene)
        going_on = self._block(node.body, scene)
        kinds = [entered_mode(self.objects, i.context_expr, scene.function) for i in node.items]
        if not _NO_GRAPH.isdisjoint(kinds):
            for name, value in scene.values.items():
                if before.get(name) is not value and not isinstance(value, Object):
                    scene.values[name] = NOTHING
        return going_on

    # -- expressions -----------------------------------------------------------------------------

    def _value(self, node: ast.expr, scene: _Scene) -> Value:
        if isinstance(node, ast.Call):
            return self._call(node, scene)
        if isinstance(node, ast.Name):
            return scene.values[node.id] if node.id in scene.values else self._object(node, scene)
        if isinstance(node, ast.Attribute):
            return self._attribute(node, scene)
        if isinstance(node, ast.Subscript):
            return looked_up(self._value(node.value, scene), node.slice)
        if isinstance(node, ast.Tuple):
            return tuple(self._value(item, scene) for item in node.elts)
        if isinstance(node, ast.Dict):
            return _dict_of(node, [self._value(item, scene) for item in node.values])
        if isinstance(node, (ast.ListComp, ast.GeneratorExp, ast.DictComp)):
            return self._comprehension(node, scene)
        if isinstance(node, ast.IfExp):
            return common(self._value(node.body, scene), self._value(node.orelse, scene))
        if isinstance(node, (ast.BinOp, ast.UnaryOp, ast.List)):
            parts = [n for n in ast.iter_child_nodes(node) if isinstance(n, ast.expr)]
            return union(self._value(part, scene) for part in parts)
        if isinstance(node, (ast.Await, ast.Starred, ast.NamedExpr)):
            value = self._value(node.value, scene)
            if isinstance(node, ast.NamedExpr):
                _bind(node.target, value, scene)
            return value
        return None

    def _comprehension(
        self, node: ast.ListComp | ast.GeneratorExp | ast.DictComp, scene: _Scene
    ) -> Value:
        """What all elements share: what was computed before; each has what it computes for itself."""
        over = self._value(node.generators[0].iter, scene)  # once, before the first element
        inner = scene.branch()
        inner.rounds += (node,)
        _bind(node.generators[0].target, elements(over), inner)
        for generator in node.generators[1:]:
            _bind(generator.target, elements(self._value(generator.iter, inner)), inner)
        is_dict = isinstance(node, ast.DictComp)
        value = self._value(node.value if isinstance(node, ast.DictComp) else node.elt, inner)
        return Each(without(value, node), keyed=is_dict)

    def _object(self, node: ast.expr, scene: _Scene) -> Value:
        owner = self.objects.class_of(node, scene.function)
        return Object(owner) if owner is not None else None

    def _attribute(self, node: ast.Attribute, scene: _Scene) -> Value:
        base = self._value(node.value, scene)
        if isinstance(base, Object):
            return self._part(base, node.attr, scene)
        if isinstance(base, frozenset):
            return NOTHING if node.attr in _CUTS else base
        return self._object(node, scene) if base is None else None

    def _part(self, held: Object, name: str, scene: _Scene) -> Value:
        """What an attribute of an object holds: what was stored on the way, else what it always is."""
        place = (*held.place, name) if held.place else ()
        if place in scene.values:
            return scene.values[place]
        value = self._field(held.owner, name)
        return Object(value.owner, place) if isinstance(value, Object) else value

    def _field(self, owner: Class, name: str) -> Value:
        """What the methods of a class store in an attribute of its objects."""
        found: list[Binding] = []
        for item in self.objects.ancestry(owner):
            found += class_fields(item).get(name, ())
            for method in item.methods.values():
                found += bindings_of(method).get(f"self.{name}", ())
        values = [self._stored(item.value, item.function) for item in found]
        return values[0] if values and all(same(value, values[0]) for value in values) else None

    def _stored(self, node: ast.expr | None, function: Function) -> Value:
        inner = same_object(node) if isinstance(node, ast.Call) else None
        if inner is not None:  # `Linear(2, 2).to(device)`
            return self._stored(inner, function)
        if isinstance(node, ast.Call) and _torch_module(node, function) in LAYERS:
            return LAYER
        if isinstance(node, ast.Call) and _torch_module(node, function) in CONTAINERS:
            return self._stored_in(node, function)
        if isinstance(node, ast.Call) and _torch_module(node, function) == "Sequential":
            parts = [self._stored(item, function) for item in node.args]
            return LAYER if LAYER in parts else None
        made = self._made(node, function) if isinstance(node, ast.Call) else None
        if made is not None:
            return made
        owner = self.objects.class_of(node, function) if node is not None else None
        return Object(owner) if owner is not None else None

    def _stored_in(self, container: ast.Call, function: Function) -> Value:
        """The modules that a container of `torch.nn` is built of."""
        given = container.args[0] if container.args else None
        if isinstance(given, ast.Dict):
            return _dict_of(given, [self._stored(item, function) for item in given.values])
        if isinstance(given, (ast.List, ast.Tuple)):
            return tuple(self._stored(item, function) for item in given.elts)
        if isinstance(given, ast.DictComp):
            return Each(self._stored(given.value, function), keyed=True)
        if isinstance(given, (ast.ListComp, ast.GeneratorExp)):
            return Each(self._stored(given.elt, function))
        return None

    def _made(self, call: ast.Call, function: Function) -> Value:
        """A layer that a function of the project builds and returns, whichever return runs."""
        callee = self.objects.callee(call, function)
        if callee is None or callee.name == "__init__":
            return None
        values = returned(callee)
        built = (
            isinstance(item, ast.Call) and _torch_module(item, callee) != "" for item in values
        )
        if not values or not all(built):
            return None
        kinds = [self._stored(item, callee) for item in values]
        return LAYER if all(kind is LAYER for kind in kinds) else None

    # -- calls -----------------------------------------------------------------------------------

    def _call(self, call: ast.Call, scene: _Scene) -> Value:
        callee = call.func
        receiver = self._value(callee.value, scene) if isinstance(callee, ast.Attribute) else None
        given = [self._value(item, scene) for item in call.args]
        named = {item.arg: self._value(item.value, scene) for item in call.keywords}
        name = last_name(callee)
        if name == "backward" and isinstance(callee, ast.Attribute) and not call.args:
            self._backward(call, flat(receiver), scene)
            return None
        if self._is_itself(receiver, name):
            return receiver
        passed = union([*given, *named.values()])
        if self._is_layer(callee, receiver, scene):
            node = (*(step.node for step in scene.trace), *scene.rounds, call)
            self.homes[node] = self._files(receiver, scene)
            return passed | {node}
        function, held = self._callee(call, receiver, scene)
        if function is not None:
            return self._inline(call, function, held, given, named, scene)
        if isinstance(receiver, (dict, Each)) and name not in _READING | SAME_OBJECT:
            assert isinstance(callee, ast.Attribute)
            self._store(callee.value, None, scene)  # which elements it has may change
        either = self.objects.targets(call, scene.function)
        if (
            len(either.functions) > 1
            and not either.unknown
            and not any(map(_is_made, either.functions))
        ):
            return self._either(call, either.functions, given, named, scene)
        return self._outside(call, receiver, given, passed, scene)

    def _files(self, receiver: Value, scene: _Scene) -> frozenset[Module]:
        """The files whose code leads to a layer, and the one that may have built it."""
        functions = (scene.function, *(step.function for step in scene.trace))
        owner = {receiver.owner.module} if isinstance(receiver, Object) else set()
        return frozenset({function.module for function in functions} | owner)

    def _either(
        self,
        call: ast.Call,
        functions: Iterable[Function],
        given: list[Value],
        named: dict[str | None, Value],
        scene: _Scene,
    ) -> Value:
        """A call that runs one of several functions: what is so whichever it is."""
        ends, values = [], []
        for function in functions:
            end = scene.branch()
            values.append(self._inline(call, function, None, given, named, end))
            ends.append(end)
        scene.values, scene.freed = ends[0].values, ends[0].freed
        for end in ends[1:]:
            scene.values = _shared(scene.values, end.values)
            scene.freed = {node: trace for node, trace in scene.freed.items() if node in end.freed}
        return reduce(common, values)

    def _is_itself(self, receiver: Value, name: str) -> bool:
        """Whether a method gives back its object, and is not the class's own."""
        if receiver is LAYER:
            return name in SAME_OBJECT
        gives_back = isinstance(receiver, Object) and name in SAME_OBJECT | {"module"}
        return gives_back and self.objects.method(receiver.owner, name) is None

    def _is_layer(self, callee: ast.expr, receiver: Value, scene: _Scene) -> bool:
        if isinstance(callee, ast.Attribute):
            if isinstance(receiver, Object):
                return self._part(receiver, callee.attr, scene) is LAYER
            return False
        if isinstance(callee, ast.Subscript):
            return self._value(callee, scene) is LAYER
        return isinstance(callee, ast.Name) and scene.values.get(callee.id) is LAYER

    def _callee(
        self, call: ast.Call, receiver: Value, scene: _Scene
    ) -> tuple[Function | None, Object | None]:
        """The function that a call runs and its object."""
        name = last_name(call.func)
        if isinstance(receiver, Object):
            method = self.objects.method(receiver.owner, name)
            if method is not None:
                return method, receiver
            held = self._part(receiver, name, scene)
        else:
            named = isinstance(call.func, (ast.Name, ast.Subscript))
            held = self._value(call.func, scene) if named else None
        if isinstance(held, Object):
            own = held.owner
            return self.objects.method(own, "__call__") or self.objects.method(own, "forward"), held
        function = self.objects.callee(call, scene.function)
        if function is None or _is_made(function):
            return None, None
        return function, Object(function.owner) if function.owner is not None else None

    def _inline(
        self,
        call: ast.Call,
        function: Function,
        held: Object | None,
        given: list[Value],
        named: dict[str | None, Value],
        scene: _Scene,
    ) -> Value:
        step = Call(call, scene.function)
        active = {item.function for item in scene.trace} | {scene.function}
        stored: dict[Key, Value] = {
            key: value for key, value in scene.values.items() if isinstance(key, tuple)
        }
        if len(scene.trace) >= _DEPTH or function in active or _is_generator(function):
            scene.values.update(dict.fromkeys(stored))
            return None
        switch = decorated(function)
        if switch is not None and switch[0] in _NO_GRAPH:
            return NOTHING
        bound = self.objects.bind(call, scene.function, function)
        known = dict(zip(arguments(call), (*given, *named.values())))
        values: dict[Key, Value] = {**stored, **dict.fromkeys(parameters(function))}
        values.update((name, known.get(value)) for name, value in bound.given.items())
        if held is not None and bound.receiver:
            values[bound.receiver] = held
        inner = _Scene(function, values, scene.freed, (*scene.trace, step), scene.rounds)
        if self._block(function.body, inner):
            inner.returned.append(None)
        scene.freed = inner.freed
        several = len(inner.returned) > 1  # what each of them has stored is not kept apart
        scene.values.update(
            (key, None if several and stored.get(key) is not value else value)
            for key, value in inner.values.items()
            if isinstance(key, tuple)
        )
        value = inner.returned[0] if inner.returned else None
        for other in inner.returned[1:]:
            value = common(value, other)
        return value

    def _outside(
        self,
        call: ast.Call,
        receiver: Value,
        given: list[Value],
        passed: frozenset[Node],
        scene: _Scene,
    ) -> Value:
        """A call of torch, of a tensor's method, or of something unknown."""
        name = last_name(call.func)
        if name in _CUTS:
            return NOTHING
        module = _torch_module(call, scene.function)
        if module in LAYERS:
            return LAYER
        if module in CONTAINERS and given:
            parts = call.args[0] if call.args else None
            if isinstance(parts, (ast.List, ast.Tuple)):
                return tuple(self._value(item, scene) for item in parts.elts)
            return given[0]
        if module == "Sequential" and given:
            return LAYER if LAYER in given else given[0] if len(given) == 1 else None
        dotted = scene.function.module.resolve(call.func) or ""
        if dotted.startswith("torch."):
            return passed
        if isinstance(receiver, frozenset):
            return receiver | passed
        if isinstance(receiver, (dict, Each)) and name in SAME_OBJECT:
            return receiver
        held = _handed_out(call, receiver, given)
        if held is not None:
            return held
        if name == "scale" and isinstance(call.func, ast.Attribute):
            return passed  # scaler.scale(loss)
        known = self._object(call, scene)
        return known

    def _backward(self, call: ast.Call, nodes: frozenset[Node], scene: _Scene) -> None:
        trace = (*scene.trace, Call(call, scene.function))
        common = sorted(nodes & scene.freed.keys(), key=lambda node: node[-1].lineno)  # type: ignore[attr-defined]
        if common:
            self.report(common[0], scene.freed[common[0]], trace)
        options = [item.value for item in call.keywords]
        if all(constant_of(value) is False for value in options):
            scene.freed = {**scene.freed, **dict.fromkeys(nodes, trace)}


def _dict_of(node: ast.Dict, values: list[Value]) -> Value:
    """A dict by its keys; where some are not known, what all its entries have in common."""
    if all(isinstance(key, ast.Constant) for key in node.keys):
        return dict(zip(map(constant_of, node.keys), values, strict=True))
    return Each(elements(tuple(values)), keyed=True)


def _handed_out(call: ast.Call, receiver: Value, given: list[Value]) -> Value:
    """The container that a builtin, or a method of a dict, makes of the elements of others."""
    name = last_name(call.func)
    if isinstance(receiver, (dict, Each)):
        held = entries(receiver)
        handed = {"values": Each(held), "items": Each((None, held)), "get": held}
        return handed.get(name)
    if not isinstance(call.func, ast.Name) or name not in _LISTING:
        return None
    parts = tuple(map(elements, given))
    if name == "zip":
        return Each(parts)
    return Each((None, parts[0]) if name == "enumerate" else parts[0]) if parts else None


def _shared(one: dict[Key, Value], two: dict[Key, Value]) -> dict[Key, Value]:
    """What two branches leave in the places that both know."""
    return {place: common(one[place], two[place]) for place in one.keys() & two.keys()}


def _bind(target: ast.expr, value: Value, scene: _Scene) -> None:
    if isinstance(target, ast.Name):
        scene.values[target.id] = value
    elif isinstance(target, ast.Starred):
        _bind(target.value, None, scene)
    elif isinstance(target, (ast.Tuple, ast.List)):
        for item, part in zip(target.elts, unpacked(value, len(target.elts))):
            _bind(item, part, scene)
    elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
        scene.values[target.value.id] = None


def _repeats(loop: ast.For | ast.AsyncFor | ast.While) -> bool:
    """Whether a loop has a second round that is like its first: nothing in it ends it early."""
    return not any(isinstance(node, EXITS) for node in walk(loop))


def _torch_module(call: ast.Call, function: Function) -> str:
    """The name of a class of `torch.nn` that a call builds, "" for anything else."""
    dotted = function.module.resolve(call.func) or ""
    return dotted.rpartition(".")[2] if dotted.startswith("torch.nn.") else ""


def _is_made(function: Function) -> bool:
    """Whether a function runs for an object that its call has made or that is called."""
    return function.name in ("__init__", "forward", "__call__")


def _is_generator(function: Function) -> bool:
    return any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in function.nodes)
