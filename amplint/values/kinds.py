"""What a value can be where calls are concerned: objects of classes, functions, classes.

`kinds_of` sorts the origins of an expression, `targets_of` says which functions a call can run.
Both say why there may be others: unknown is an answer with a reason.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from amplint.code.arguments import is_decorated, receiver_of
from amplint.code.by_name import read_by_name
from amplint.code.dataflow import bindings_of, constant_of, parameters, scopes
from amplint.code.definitions import class_fields, plain_annotation, returned
from amplint.code.expressions import last_name
from amplint.code.keyed import entries_of
from amplint.code.module import Class, Function, enclosing_class
from amplint.values.callables import (
    PARTIALS,
    PROPERTIES,
    UNWRAPPING,
    Chain,
    Family,
    Instance,
    Kind,
    Kinds,
    Method,
    Targets,
    decorated,
    joined,
)
from amplint.values.provenance import Activation, Origin
from amplint.values.wrappers import CHAINS, SAME_OBJECT, WRAPPERS

if TYPE_CHECKING:
    from amplint.values.objects import Objects
    from amplint.values.origins import Origins


def kinds_of(
    origins: Origins, expression: ast.expr, function: Function, activation: Activation | None = None
) -> Kinds:
    """What an expression can be where a function evaluates it."""
    key = ("kinds", expression, function, activation)
    return origins.once(
        key, lambda: _kinds_of(origins, expression, function, activation), Kinds((), "circular")
    )


def _kinds_of(
    origins: Origins, expression: ast.expr, function: Function, activation: Activation | None
) -> Kinds:
    if isinstance(expression, ast.Name):
        own = _receiver(expression, function)
        if own is not None:
            return Kinds((own,))
        choices = origins.objects.project.choices(expression, function)
        if choices:
            return Kinds(choices)
    found = origins.of(expression, function, activation)
    sorted_ = [_as_declared(origins, item) for item in found.origins]
    if not found.complete or not found.origins:
        sorted_.append(Kinds((), f"`{last_name(expression) or 'it'}` is set out of sight"))
    entered = {step.into for item in found.origins for step in item.steps if step.into is not None}
    for callee in entered:
        if origins.objects.may_have_other_callers(callee):
            sorted_.append(Kinds((), f"`{callee.name}` may be called out of sight"))
    return joined(sorted_)


def _receiver(name: ast.Name, function: Function) -> Instance | Family | None:
    """What `self` or `cls` is inside a method, or in a function within one."""
    scope: Function | None = function
    while scope is not None:
        if name.id in parameters(scope) or name.id in bindings_of(scope):
            break
        scope = scope.parent
    if scope is None or scope.owner is None or name.id in bindings_of(scope):
        return None
    if receiver_of(scope) != name.id:
        return None
    if is_decorated(scope, "classmethod") or scope.name in ("__new__", "__init_subclass__"):
        return Family(scope.owner)
    return Instance(scope.owner, exact=False)


def _as_declared(origins: Origins, origin: Origin) -> Kinds:
    """What an origin can be; where nobody knows, what a parameter that it passes is said to be."""
    found = _kinds_of_origin(origins, origin)
    declared = (
        _said_of(origins, step.parameter, step.into)
        for step in origin.steps
        if step.into is not None and not found.known
    )
    owner = next((item for item in declared if item is not None), None)
    return found if owner is None else Kinds((Instance(owner, exact=False),), found.unknown)


def _said_of(origins: Origins, name: str, function: Function) -> Class | None:
    """The class that the annotation of a parameter names."""
    parameter = parameters(function).get(name)
    if parameter is None or parameter.annotation is None:
        return None
    owner = origins.objects.symbol(plain_annotation(parameter.annotation), function)
    return owner if isinstance(owner, Class) else None


def _kinds_of_origin(origins: Origins, origin: Origin) -> Kinds:
    node, function = origin.expression, origin.function
    if isinstance(node, (ast.Constant, ast.JoinedStr, ast.Dict, ast.List, ast.Tuple, ast.Set)):
        return Kinds()
    if isinstance(node, (ast.DictComp, ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.Compare)):
        return Kinds()
    if isinstance(node, ast.BoolOp):
        where = (function, origin.activation)
        return joined(kinds_of(origins, operand, *where) for operand in node.values)
    if isinstance(node, ast.Lambda):
        return Kinds((origins.lambda_function(node, function),))
    if isinstance(node, (ast.Name, ast.Attribute)):
        return _kinds_of_place(origins, node, origin)
    if isinstance(node, ast.Call):
        return _kinds_of_call(origins, node, origin)
    return Kinds((), "computed by an operation")


def _kinds_of_place(origins: Origins, node: ast.Name | ast.Attribute, origin: Origin) -> Kinds:
    function = origin.function
    symbol = origins.objects.symbol(node, function)
    if symbol is not None:
        return Kinds((symbol,))
    if isinstance(node, ast.Name):
        own = _receiver(node, function)
        return Kinds((own,)) if own is not None else _annotated(origins, node, function)
    if function.module.resolve(node) is not None:
        return Kinds((), f"`{ast.unparse(node)}` is not of the project")
    owner = kinds_of(origins, node.value, function, origin.activation)
    if node.attr in UNWRAPPING:
        return owner
    methods = [_bound(origins, kind, node.attr) for kind in owner.known]
    return joined([*methods, Kinds((), owner.unknown)])


def _annotated(origins: Origins, name: ast.Name, function: Function) -> Kinds:
    """What the annotation of a parameter says that nobody in sight fills."""
    for scope in scopes(function, function.module):
        parameter = parameters(scope).get(name.id)
        if parameter is not None and parameter.annotation is not None:
            owner = _said_of(origins, name.id, scope)
            known = (Instance(owner, exact=False),) if owner is not None else ()
            return Kinds(known, f"nobody in sight passes `{name.id}`")
    return _fixture(origins, name, function)


def _fixture(origins: Origins, name: ast.Name, function: Function) -> Kinds:
    """What pytest passes to a test: the value of the nearest fixture of the parameter's name."""
    unknown = Kinds((), f"nothing in sight sets `{name.id}`")
    scope = next(
        (item for item in scopes(function, function.module) if name.id in parameters(item)), None
    )
    if scope is None or not (scope.name.startswith("test") or is_decorated(scope, "fixture")):
        return unknown
    modules = (scope.module, *origins.objects.project.beside(scope.module, "conftest.py"))
    methods = scope.owner.methods.get(name.id) if scope.owner is not None else None
    found = [methods, *(module.body.nested.get(name.id) for module in modules)]
    for item in found:
        if item is not None and item is not scope and is_decorated(item, "fixture"):
            values = [
                node.value
                for node in item.nodes
                if isinstance(node, (ast.Return, ast.Yield)) and node.value is not None
            ]
            filled = Kinds((), f"a fixture gives `{name.id}`")
            return joined([*(kinds_of(origins, value, item) for value in values), filled])
    return unknown


def _bound(origins: Origins, kind: Kind, name: str) -> Kinds:
    """A method of what an expression can be, without calling it."""
    if isinstance(kind, Class):
        method = origins.objects.method(kind, name)
        return Kinds((method,)) if method is not None else _out_of_sight(origins, kind, name)
    if isinstance(kind, Family):
        inherited = methods_of(origins, Instance(kind.owner, exact=False), name)
        return Kinds(inherited.functions, inherited.unknown)
    if not isinstance(kind, Instance):
        return Kinds((), f"`{name}` of a function")
    found = methods_of(origins, kind, name)
    if any(is_decorated(item, *PROPERTIES) for item in found.functions):
        return Kinds((), f"`{name}` is a property")
    if not found.functions:
        stored = joined(_outside(origins, kind, name))
        return stored if stored.known else Kinds((), found.unknown)
    bound = Kinds(tuple(Method(item, kind) for item in found.functions), found.unknown)
    return joined((bound, *_hiding(origins, kind, name)))


def _hiding(origins: Origins, receiver: Instance, name: str) -> Iterator[Kinds]:
    """What attributes of the same name are that stand before a method, or in its place."""
    objects = origins.objects
    order = objects.ancestry(receiver.owner)
    for item in order if receiver.exact else objects.family(receiver.owner):
        for binding in class_fields(item).get(name, ()):
            if binding.value is not None:
                values = kinds_of(origins, binding.value, item.module.body)
                yield Kinds(
                    tuple(
                        Method(each, receiver) if isinstance(each, Function) else each
                        for each in values.known
                    ),
                    values.unknown,
                )
        for method, written in objects.stores(item, name):
            for binding in written:
                if binding.value is None:
                    yield Kinds((), f"`{name}` is set by a statement")
                else:
                    yield kinds_of(origins, binding.value, method)
    yield from _outside(origins, receiver, name)


def _outside(origins: Origins, receiver: Instance, name: str) -> Iterator[Kinds]:
    """What other code may store in an attribute: known where it stores it on the class."""
    family = origins.objects.family(receiver.owner)
    for place, stored in origins.objects.outside_stores(receiver.owner.module, name):
        owner = origins.objects.symbol(place, stored.function)
        if owner in family and stored.value is not None:
            yield kinds_of(origins, stored.value, stored.function)
        if owner in family or stored.function.module.resolve(place) is None:
            yield Kinds((), f"`{name}` is stored from outside")


def _out_of_sight(origins: Origins, owner: Class, name: str) -> Kinds:
    return Kinds((), f"`{name}` is not defined by `{owner.name}` or its bases in sight")


def methods_of(origins: Origins, receiver: Instance, name: str) -> Targets:
    """The methods that a call by name can run on an object, overriding ones included."""
    key = ("methods", receiver, name)
    return origins.once(key, lambda: _methods_of(origins, receiver, name), Targets((), "circular"))


def _methods_of(origins: Origins, receiver: Instance, name: str) -> Targets:
    own = origins.objects.method(receiver.owner, name)
    found = [own] if own is not None else []
    if not receiver.exact:
        for other in origins.objects.subclasses(receiver.owner):
            if name in other.methods:
                found.append(other.methods[name])
    if not found:
        return Targets((), f"`{name}` is not defined by `{receiver.owner.name}`")
    return Targets(tuple(dict.fromkeys(found)))


def _kinds_of_call(origins: Origins, call: ast.Call, origin: Origin) -> Kinds:
    function = origin.function
    symbol = origins.objects.symbol(call.func, function)
    if isinstance(symbol, Class):
        return Kinds((Instance(symbol, exact=True),))
    if function.module.resolve(call.func) in CHAINS:
        return _chained(origins, call, origin)
    name = last_name(call.func)
    if name == "super" and isinstance(call.func, ast.Name):
        return Kinds((), "super()")
    if (looked_up := _looked_up(origins, call, origin)) is not None:
        return looked_up
    made_of = _class_made(call)
    if made_of is not None:
        return joined(_made(kinds_of(origins, made_of, function, origin.activation)))
    if name == "type" and len(call.args) == 1 and isinstance(call.func, ast.Name):
        return joined(_types(kinds_of(origins, call.args[0], function, origin.activation)))
    inner = same_object(call)
    if inner is None and name in PARTIALS and call.args:
        inner = call.args[0]
    if inner is not None:
        return kinds_of(origins, inner, function, origin.activation)
    built = kinds_of(origins, call.func, function, origin.activation)
    made = joined(_made(built))
    if made.known and len(made.known) == len(built.known):
        return made
    if any(isinstance(kind, Instance) for kind in built.known) and _gives_itself(
        origins, call, origin
    ):
        return built
    if not made.known and origin.activation is not None:
        return _returned_to_anybody(origins, call, origin)
    return Kinds(made.known, f"what `{name or 'a call'}` returns is not in sight")


def _looked_up(origins: Origins, call: ast.Call, origin: Origin) -> Kinds | None:
    """The methods that `getattr(hook, event)` gives, for each name that it is asked with."""
    if read_by_name(call) is None or len(call.args) != 2:
        return None
    where = (origin.function, origin.activation)
    found = origins.of(call.args[1], *where)
    names = [constant_of(item.expression) for item in found.origins]
    if not found.complete or not names:
        return None
    owner = kinds_of(origins, call.args[0], *where)
    methods = (_bound(origins, kind, str(name)) for kind in owner.known for name in names)
    return joined([*methods, Kinds((), owner.unknown)])


def _gives_itself(origins: Origins, call: ast.Call, origin: Origin) -> bool:
    """Whether an object that is called gives itself: its `forward` ends with `return self`."""
    found = targets_of(origins, call, origin.function, origin.activation)
    return (
        bool(found.functions)
        and not found.unknown
        and all(
            item.name in ("__call__", "forward")
            and [getattr(value, "id", "") for value in returned(item)] == [receiver_of(item)]
            for item in found.functions
        )
    )


def _returned_to_anybody(origins: Origins, call: ast.Call, origin: Origin) -> Kinds:
    """What a call gives that is too deep to follow for itself: what any call of it does."""
    found = targets_of(origins, call, origin.function, origin.activation)
    unknown = f"what `{last_name(call.func) or 'a call'}` returns is not in sight"
    values = [(value, callee) for callee in found.functions for value in returned(callee)]
    if not values or any(
        isinstance(item, ast.Yield) for each in found.functions for item in each.nodes
    ):
        return Kinds((), unknown)
    return joined([*(kinds_of(origins, *each) for each in values), Kinds((), unknown)])


def _class_made(call: ast.Call) -> ast.expr | None:
    """`cls` of `object.__new__(cls)` and `super().__new__(cls)`."""
    return call.args[0] if last_name(call.func) == "__new__" and call.args else None


def _made(built: Kinds) -> Iterator[Kinds]:
    """The objects that calls of classes make."""
    for kind in built.known:
        if isinstance(kind, (Class, Family)):
            owner = kind if isinstance(kind, Class) else kind.owner
            yield Kinds((Instance(owner, exact=isinstance(kind, Class)),))
    yield Kinds((), built.unknown)


def _types(values: Kinds) -> Iterator[Kinds]:
    """The classes of objects."""
    for kind in values.known:
        if isinstance(kind, Instance):
            yield Kinds((kind.owner if kind.exact else Family(kind.owner),))
    known = all(isinstance(kind, Instance) for kind in values.known)
    yield Kinds((), values.unknown or ("" if known else "a type"))


def _chained(origins: Origins, call: ast.Call, origin: Origin) -> Kinds:
    """What `nn.Sequential(...)` calls: modules by position, or any element of a list of them."""
    where = (origin.function, origin.activation)
    found = joined(
        kinds_of(origins, origins.item_of(item.value, ...), *where)
        if isinstance(item, ast.Starred)
        else kinds_of(origins, item, *where)
        for item in call.args
    )
    return Kinds((Chain(found.known, found.unknown),))


def same_object(call: ast.Call) -> ast.expr | None:
    """`net` of `net.to(device)`, `DistributedDataParallel(net)` and `accelerator.prepare(net)`."""
    name = last_name(call.func)
    if name in SAME_OBJECT and isinstance(call.func, ast.Attribute):
        return call.func.value
    return call.args[0] if name in WRAPPERS and call.args else None


def targets_of(
    origins: Origins, call: ast.Call, function: Function, activation: Activation | None = None
) -> Targets:
    """The functions of the project that a call can run.

    A class stands for its `__init__`, an object for its `__call__` or `forward`.
    """
    callee = call.func
    if isinstance(callee, ast.Attribute) and _is_super(callee.value):
        return _inherited(origins, callee, function)
    direct = origins.objects.symbol(callee, function)
    if direct is not None:
        if isinstance(direct, Function) and origins.objects.is_replaced(direct, function):
            return _run_by(origins, [direct], f"`{direct.name}` is replaced somewhere")
        return _run_by(origins, [direct], "")
    if isinstance(callee, ast.Attribute):
        found = _targets_of_method(origins, callee, function, activation)
        if found is not None:
            return found
    if isinstance(callee, ast.Subscript):
        entries = entries_of(callee, function.module, origins.objects.project)
        if entries:
            return _any_of(_as_registered(origins, entry) for entry in entries)
    kinds = kinds_of(origins, callee, function, activation)
    return _run_by(origins, kinds.known, kinds.unknown)


def _as_registered(origins: Origins, entry: Function | Class) -> Targets:
    """What runs where a table's entry is called: the function itself, if nothing else decorates it."""
    if isinstance(entry, Class):
        return _construction(origins, entry)
    is_only = len(getattr(entry.node, "decorator_list", ())) == 1
    return Targets((entry,)) if is_only else decorated(entry)


def _targets_of_method(
    origins: Origins, callee: ast.Attribute, function: Function, activation: Activation | None
) -> Targets | None:
    """Methods of what the receiver can be; None where an attribute is called that is none."""
    owner = kinds_of(origins, callee.value, function, activation)
    found: dict[Kind, None] = {}
    unknown = owner.unknown
    for kind in owner.known:
        bound = _bound(origins, kind, callee.attr)
        if not bound.known:
            return None
        found.update(dict.fromkeys(bound.known))
        unknown = unknown or bound.unknown
    return _run_by(origins, found, unknown) if found else None


def _run_by(origins: Origins, kinds: Iterable[Kind], unknown: str) -> Targets:
    found = _any_of((Targets((), unknown), *(_entered(origins, kind) for kind in kinds)))
    if not found.functions and not found.unknown:
        return Targets((), "nothing that can be called is in sight")
    return found


def _entered(origins: Origins, kind: Kind) -> Targets:
    """The functions that a call of a value runs first."""
    if isinstance(kind, Method):
        return decorated(kind.function)
    if isinstance(kind, Function):
        return decorated(kind)
    if isinstance(kind, Class):
        return _construction(origins, kind)
    if isinstance(kind, Family):
        return _any_of(
            _construction(origins, item)
            for item in (kind.owner, *origins.objects.subclasses(kind.owner))
        )
    if isinstance(kind, Chain):
        return _run_by(origins, kind.parts, kind.unknown)
    for name in ("__call__", "forward"):
        found = methods_of(origins, kind, name)
        if found.functions:
            return _any_of(map(decorated, found.functions))
    return Targets((), f"objects of `{kind.owner.name}` are called out of sight")


def _construction(origins: Origins, owner: Class) -> Targets:
    """What the call of a class runs: of a metaclass, `__new__`, and `__init__`."""
    order = origins.objects.ancestry(owner)
    found = [
        origins.objects.method(meta, "__call__")
        for item in order
        for word in item.node.keywords
        if word.arg == "metaclass"
        and isinstance(meta := origins.objects.symbol(word.value, item.module.body), Class)
    ]
    found += [origins.objects.method(owner, name) for name in ("__new__", "__init__")]
    functions = [item for item in found if item is not None]
    if not functions:
        return Targets((), f"`{owner.name}` has no `__init__` in sight")
    return _any_of(map(decorated, functions))


def _any_of(results: Iterable[Targets]) -> Targets:
    functions: dict[Function, None] = {}
    unknown = ""
    for item in results:
        functions.update(dict.fromkeys(item.functions))
        unknown = unknown or item.unknown
    return Targets(tuple(functions), unknown)


def _is_super(expression: ast.expr) -> bool:
    return isinstance(expression, ast.Call) and last_name(expression.func) == "super"


def _inherited(origins: Origins, callee: ast.Attribute, function: Function) -> Targets:
    """The methods that `super().name(...)` can run: which one depends on the object's class."""
    name = callee.attr
    own = enclosing_class(function)
    if own is None:
        return Targets((), "super() outside of a class")
    start = start_of_super(origins.objects, callee.value, function)
    if start is None:
        return Targets((), "super() of a class that is not in sight")
    found: dict[Function, None] = {}
    for family in (own, *origins.objects.subclasses(own)):
        order = origins.objects.ancestry(family)
        behind = order[order.index(start) + 1 :] if start in order else []
        method = next((item.methods[name] for item in behind if name in item.methods), None)
        if method is not None:
            found[method] = None
    if not found:
        return Targets((), f"`{name}` is inherited from out of sight")
    return Targets(tuple(found))


def start_of_super(objects: Objects, place: ast.expr, function: Function) -> Class | None:
    """The class behind which `super()` or `super(Class, self)` begins to look."""
    own = enclosing_class(function)
    given = place.args[0] if isinstance(place, ast.Call) and place.args else None
    if given is None:
        return own
    named = objects.symbol(given, function)
    if named is None and own is not None and last_name(given) == own.name:
        return own  # one of several of that name: each method means its own
    return named if isinstance(named, Class) else None
