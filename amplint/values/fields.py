"""Attributes of objects: what methods, properties, class bodies and functions that get them give."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from amplint.code.arguments import fill, passed
from amplint.code.classes import method_of
from amplint.code.dataflow import bindings_of
from amplint.code.definitions import class_fields, delegate, returned
from amplint.code.expressions import last_name, path_text
from amplint.code.module import Class, Function
from amplint.code.records import record_parameters
from amplint.values.bindings import bound_in_scope
from amplint.values.callables import classes_in
from amplint.values.calls import back_of_returns
from amplint.values.kinds import kinds_of
from amplint.values.provenance import (
    CALL_DEPTH,
    UNKNOWN,
    Activation,
    Back,
    Before,
    Firmness,
    Found,
    Origin,
    Part,
    Step,
    joined,
    passing_step,
)

if TYPE_CHECKING:
    from amplint.values.origins import Origins


def field_of_self(
    origins: Origins, owner: Class, name: str, function: Function, activation: Activation | None
) -> Found:
    """What `self.name` is inside a method."""
    inside = activation is not None and activation.callee is function
    if activation is not None and inside and activation.constructs:
        made = Origin(activation.call, activation.caller, activation.outer)
        found = field_of_new(origins, owner, made, name)
        if found is not None:
            return found
    if activation is not None and inside and not activation.constructs:
        owner = _receiver_class(origins, activation) or owner
    return _field(origins, owner, name, {})


def _receiver_class(origins: Origins, activation: Activation) -> Class | None:
    """The class of the object whose method a call runs, where it is below the method's own."""
    callee = activation.call.func
    if not isinstance(callee, ast.Attribute) or activation.callee.owner is None:
        return None
    made = origins.objects.class_of(callee.value, activation.caller)
    is_below = made is not None and activation.callee.owner in origins.objects.ancestry(made)
    return made if is_below else None


def field_of_any(origins: Origins, owner: Class, name: str) -> Found:
    """What an attribute is of some object of a class, or of a subclass."""
    return _field(origins, owner, name, {})


def _field(origins: Origins, owner: Class, name: str, calls: dict[Function, Activation]) -> Found:
    """What an attribute of objects of a class is, from all its methods.

    Args:
        calls: for which call a method (`__init__`) is seen.
    """
    results: list[tuple[Found, Firmness, tuple[Step, ...]]] = []
    rest: Firmness | None = Firmness.FIXED
    family = origins.objects.family(owner)
    order = origins.objects.ancestry(owner)
    for item in family:
        prop = item.methods.get(name)
        if prop is not None and item in order:
            return _property(origins, prop, calls)
        if prop is not None:
            results.append((_property(origins, prop, {}), Firmness.CHOICE, ()))
        for method, written in origins.objects.stores(item, name):
            bound, left = bound_in_scope(
                origins, written, None, method, calls.get(method), f"self.{name}"
            )
            results.append((origins.follow(bound, None), Firmness.FIXED, ()))
            if method.name == "__init__" and item in family[:1]:
                rest = left
    results += _stored_outside(origins, owner, family, name)
    if rest is not None:
        results += (
            (declared_field(origins, item, name), rest, ()) for item in family if _has(item, name)
        )
    return joined(results, bool(results)) if results else _delegated(origins, order, name)


def _stored_outside(
    origins: Origins, owner: Class, family: list[Class], name: str
) -> Iterator[tuple[Found, Firmness, tuple[Step, ...]]]:
    """What other code puts into a field of such an object: `def set_up(trainer): trainer.scaler = ...`."""
    for place, stored in origins.objects.outside_stores(owner.module, name):
        path = path_text(place)
        if path is None or not _may_be_of(origins, place, stored.function, family):
            continue
        bound, _ = bound_in_scope(origins, [stored], None, stored.function, None, f"{path}.{name}")
        yield origins.follow(bound, None), Firmness.CHOICE, ()


def _may_be_of(origins: Origins, place: ast.expr, function: Function, family: list[Class]) -> bool:
    """Whether an object in sight that a place holds is of one of some classes."""
    found = classes_in(kinds_of(origins, place, function))
    return any(item in family for item in found)


def _delegated(origins: Origins, order: list[Class], name: str) -> Found:
    """What an object's `__getattr__` gives for a name that nothing else gives it."""
    getter = method_of(order, "__getattr__")
    inner = delegate(getter) if getter is not None else None
    if getter is None or inner is None or path_text(inner) == f"self.{name}":
        return Found()
    return origins.part_of(inner, Part(name, False), getter)


def _property(origins: Origins, prop: Function, calls: dict[Function, Activation]) -> Found:
    if not any(
        last_name(item) in ("property", "cached_property")
        for item in getattr(prop.node, "decorator_list", ())
    ):
        return UNKNOWN
    made = next(iter(calls.values()), None)
    if made is not None:
        back = back_of_returns(origins, replace(made, callee=prop))
        return origins.follow(back, None) if back is not None else UNKNOWN
    places = (Before(value, prop, None, Firmness.CHOICE) for value in returned(prop))
    return origins.follow(Back(tuple(places)), None)


def declared_field(origins: Origins, owner: Class, name: str) -> Found:
    """What the class body says: a constant, or the default of a dataclass field."""
    for item in origins.objects.ancestry(owner):
        for binding in reversed(class_fields(item).get(name, [])):
            if binding.value is None:
                return UNKNOWN
            value = _field_default(binding.value)
            if value is None:
                return UNKNOWN
            words = f"`{item.name}.{name}` is `{_short(value)}` by default"
            step = Step(binding.statement, item.module, words)
            return joined([(origins.of(value, item.module.body), Firmness.FIXED, (step,))], True)
    return UNKNOWN


def field_of_new(origins: Origins, owner: Class, made: Origin, name: str) -> Found | None:
    """A field of the object that one constructor call makes; None if nothing is known."""
    call = made.expression
    assert isinstance(call, ast.Call)
    init = origins.objects.method(owner, "__init__")
    if init is not None:
        if made.activation is not None and made.activation.depth >= CALL_DEPTH:
            return None
        inner = Activation(init, call, made.function, made.activation, constructs=True)
        return _field(origins, owner, name, {init: inner})
    if not any(_has(item, name) for item in origins.objects.ancestry(owner)):
        prop = origins.objects.method(owner, name)
        if prop is None:
            return None
        inner = Activation(prop, call, made.function, made.activation, constructs=True)
        return _property(origins, prop, {prop: inner})
    return _field_given(origins, owner, made, name)


def _field_given(origins: Origins, owner: Class, made: Origin, name: str) -> Found:
    """A field of a dataclass and its like: what the call passes, else the default."""
    call = made.expression
    assert isinstance(call, ast.Call)
    here = (made.function, made.activation)
    fields = record_parameters(origins.objects.ancestry(owner))
    bound = fill(fields, passed(call))
    value = bound.given.get(name)
    after = _written_after(origins, owner, made, name)
    if value is not None:
        step = passing_step(call, made.function, name, owner)
        return joined([(origins.of(value, *here), Firmness.FIXED, (step,)), *after], True)
    words = f"`{last_name(call.func)}(...)` leaves `{name}` at its default"
    step = Step(call, made.function.module, words)
    default = (declared_field(origins, owner, name), Firmness.FIXED, (step,))
    sources = bound.unknown.get(name, ())
    if not sources:
        return joined([default, *after], True)
    if isinstance(sources[0], ast.Starred):
        return UNKNOWN
    given = origins.part_of(sources[0], Part(name, True), *here)
    if given.origins and given.complete:
        return given
    weak = (default[0], Firmness.DEFAULT, default[2])
    return joined([(given, Firmness.FIXED, ()), weak, *after], given.complete)


def _written_after(
    origins: Origins, owner: Class, made: Origin, name: str
) -> list[tuple[Found, Firmness, tuple[Step, ...]]]:
    """What `__post_init__` puts into a field."""
    post = origins.objects.method(owner, "__post_init__")
    written = bindings_of(post).get(f"self.{name}", []) if post is not None else []
    if post is None or not written:
        return []
    call = made.expression
    assert isinstance(call, ast.Call)
    bound, _ = bound_in_scope(origins, written, None, post, None, f"self.{name}")
    return [(origins.follow(bound, None), Firmness.CHOICE, ())]


def _field_default(value: ast.expr) -> ast.expr | None:
    """The default in `field(default=x)`, `Field(x)`, `attr.ib(default=x)`, else the value."""
    if not isinstance(value, ast.Call):
        return value
    if last_name(value.func) not in ("field", "Field", "ib", "attrib", "attr", "arg", "choice"):
        return value
    given = {item.arg: item.value for item in value.keywords}
    factory = given.get("default_factory") or given.get("factory")
    if isinstance(factory, ast.Lambda):
        return factory.body
    if factory is not None:
        return ast.copy_location(ast.Call(factory, [], []), factory)
    return given.get("default") or (value.args[0] if value.args else None)


def _has(owner: Class, name: str) -> bool:
    return name in class_fields(owner)


def _short(value: ast.expr) -> str:
    text = " ".join(ast.unparse(value).split())
    return text if len(text) <= 40 else text[:37] + "..."
