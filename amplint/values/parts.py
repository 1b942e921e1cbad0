"""Attributes and elements of values: entries of literals, of copies, of what is written later."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from amplint.code.arguments import fill, optional, passed
from amplint.code.dataflow import arguments, bindings_of, fills_of, parameters, scopes
from amplint.code.definitions import class_fields, plain_annotation
from amplint.code.expressions import last_name, path_text
from amplint.code.layout import layout_of
from amplint.code.module import Class, Function, enclosing_class
from amplint.code.records import (
    is_named_tuple,
    is_record,
    is_typed_dict,
    record_parameters,
    tuple_fields,
)
from amplint.values import datafiles
from amplint.values.bindings import bound_in_scope
from amplint.values.callables import UNWRAPPING
from amplint.values.conditions import equality
from amplint.values.external import (
    command_line_option,
    file_data,
    filled_by_user,
    parsed_class,
    part_of_data,
)
from amplint.values.fields import declared_field, field_of_any, field_of_new, field_of_self
from amplint.values.provenance import (
    NO_DATA,
    UNKNOWN,
    Activation,
    Firmness,
    Found,
    Origin,
    Part,
    Step,
    joined,
)
from amplint.values.wrappers import CHAINS, SAME_OBJECT, WRAPPERS

if TYPE_CHECKING:
    from amplint.values.origins import Origins

#: Calls whose keywords, or whose first argument, are what they hold.
_HOLDERS = frozenset(
    ("dict", "Namespace", "SimpleNamespace", "EasyDict", "AttrDict", "Munch", "Box", "DotMap")
    + ("CfgNode", "CN", "ConfigDict", "OrderedDict", "ModuleDict", "ModuleList", "Sequential")
    + ("create", "structured", "DictConfig")  # OmegaConf
    + ("munchify", "fromDict")
)
#: Calls that give back what their first argument holds.
_COPIES = frozenset(("vars", "asdict", "copy", "deepcopy", "to_container", "tuple", "list"))
_PARSE = frozenset(("parse_args", "parse_known_args", "parse_intermixed_args"))
#: Functions that fill an object of the given class from the command line.
_CLASS_PARSERS = ("tyro.cli", "simple_parsing.parse", "draccus.parse", "jsonargparse.CLI")


def part_of_value(
    origins: Origins,
    expression: ast.expr,
    part: Part,
    function: Function,
    activation: Activation | None,
) -> Found:
    """A part of the value of an expression: written to that place, or had from where it began."""
    owner = enclosing_class(function)
    is_self = isinstance(expression, ast.Name) and expression.id in ("self", "cls")
    if is_self and owner is not None and not part.is_item:
        return field_of_self(origins, owner, str(part.key), function, activation)
    found, rest = _written(origins, expression, part, function, activation)
    if rest is None:
        return found
    found = joined(_filled(origins, expression, part, function), True, found)
    updated = _updated(origins, expression, part, function, activation)
    if updated:
        found, rest = joined(updated, True, found), min(rest, Firmness.DEFAULT)
    back = origins.back(expression, function, activation)
    if back is None:
        below = part_of_origin(origins, Origin(expression, function, activation), part)
    else:
        below = origins.follow(back, part)
    if not below.origins and not below.complete:
        below = _annotated(origins, expression, part, function)
    return joined([(below, rest, ())], True, found)


def _written(
    origins: Origins,
    expression: ast.expr,
    part: Part,
    function: Function,
    activation: Activation | None,
) -> tuple[Found, Firmness | None]:
    """What `cfg.dtype = ...` and `cfg["dtype"] = ...` set on a path in sight."""
    path = path_text(expression)
    if path is None:
        return Found(), Firmness.FIXED
    path += str(part)
    root = path.partition(".")[0].partition("[")[0]
    for scope in scopes(function, function.module):
        if root not in parameters(scope) and root not in bindings_of(scope):
            continue
        inner = activation if activation is not None and activation.callee is scope else None
        written = bindings_of(scope).get(path, [])
        use = expression if scope is function else None
        bound, rest = bound_in_scope(origins, written, use, scope, inner, path)
        return origins.follow(bound, None) if bound.places else Found((), bound.complete), rest
    return Found(), Firmness.FIXED


def _filled(
    origins: Origins, expression: ast.expr, part: Part, function: Function
) -> list[tuple[Found, Firmness, tuple[Step, ...]]]:
    """What `append` and its like put into a container, for any element of it."""
    path = path_text(expression)
    if path is None or not part.is_item or isinstance(part.key, str):
        return []
    found: list[tuple[Found, Firmness, tuple[Step, ...]]] = []
    for scope in _scopes_filling(origins, path, function):
        for each_fill in fills_of(scope).get(path, ()):
            if each_fill.is_element:
                each = origins.of(each_fill.value, scope)
            else:
                each = origins.part_of(each_fill.value, Part(..., True), scope)
            found.append((each, Firmness.CHOICE, ()))
    return found


def _updated(
    origins: Origins,
    expression: ast.expr,
    part: Part,
    function: Function,
    activation: Activation | None,
) -> list[tuple[Found, Firmness, tuple[Step, ...]]]:
    """What `settings.update(others)` may put at a key before it is read, if `others` may have it."""
    path = path_text(expression)
    if path is None or not part.is_item or not isinstance(part.key, str):
        return []
    found: list[tuple[Found, Firmness, tuple[Step, ...]]] = []
    for scope in _scopes_filling(origins, path, function):
        inner = activation if scope is function else None
        for place, others, where in _put_in(origins, path, scope):
            if scope is function and _is_later(place, expression, scope):
                continue
            each = origins.part_of(others, part, where, inner if where is scope else None)
            if each.origins or not each.complete:
                found.append((each, Firmness.DEFAULT, ()))
    return found


def _put_in(
    origins: Origins, path: str, scope: Function
) -> Iterator[tuple[ast.expr, ast.expr, Function]]:
    """What a function, or one that it hands the container to, puts into it all at once.

    Yields the place in the function, and what is put in with the function that evaluates it.
    """
    for item in fills_of(scope).get(path, ()):
        if not item.is_element:
            yield item.value, item.value, scope
    for call in scope.once(_handing).get(path, ()):
        callee = origins.objects.symbol(call.func, scope)
        if not isinstance(callee, Function):
            continue
        for name, given in origins.objects.bind(call, scope, callee).given.items():
            for item in fills_of(callee).get(name, ()) if path_text(given) == path else ():
                if not item.is_element:
                    yield call, item.value, callee


def _handing(function: Function) -> dict[str, list[ast.Call]]:
    """The calls of a function, by the names and attributes that each is given."""
    found: dict[str, list[ast.Call]] = {}
    for node in function.nodes:
        if not isinstance(node, ast.Call):
            continue
        for path in filter(None, map(path_text, arguments(node))):
            found.setdefault(path, []).append(node)
    return found


def _is_later(node: ast.expr, use: ast.expr, scope: Function) -> bool:
    """Whether a part of a function has not run yet where another one runs, in any round of a loop."""
    layout = layout_of(scope)
    if use not in layout or node not in layout or layout.reaches(node, use):
        return False
    return not set(layout.loops(node)) & set(layout.loops(use))


def _scopes_filling(origins: Origins, path: str, function: Function) -> list[Function]:
    """The functions that see the same container under the same path."""
    root = path.partition(".")[0].partition("[")[0]
    owner = enclosing_class(function)
    if root in ("self", "cls") and owner is not None:
        family = origins.objects.family(owner)
        return [method for item in family for method in item.methods.values()]
    for scope in scopes(function, function.module):
        if root in parameters(scope) or root in bindings_of(scope):
            return [scope] if scope is not scope.module.body else _seeing_global(root, scope)
    return []


def _seeing_global(name: str, body: Function) -> list[Function]:
    """The module body and the functions that do not bind its name for themselves."""
    others = (item for item in body.module.functions if item is not body)
    return [
        body,
        *(
            item
            for item in others
            if name not in parameters(item) and name not in bindings_of(item)
        ),
    ]


def _annotated(origins: Origins, expression: ast.expr, part: Part, function: Function) -> Found:
    """Attributes of the class that annotates a parameter nobody in sight fills."""
    if not isinstance(expression, ast.Name) or part.is_item:
        return UNKNOWN
    for scope in scopes(function, function.module):
        known = parameters(scope).get(expression.id)
        if known is None or known.annotation is None:
            continue
        owner = origins.objects.symbol(plain_annotation(known.annotation), scope)
        if isinstance(owner, Class):
            found = field_of_any(origins, owner, str(part.key))
            return joined([(found, Firmness.DEFAULT, ())], False)
    return UNKNOWN


def part_of_origin(origins: Origins, origin: Origin, part: Part) -> Found:
    """A part of a value, from the expression that created it."""
    here = (origin.function, origin.activation)
    node = origin.expression
    if origin.data is not NO_DATA:
        return part_of_data(origin, part)
    if isinstance(node, ast.Dict):
        return _entry(origins, node, part, *here)
    if isinstance(node, (ast.List, ast.Tuple)):
        return _element(origins, node, part, *here)
    if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
        return origins.of(node.elt, *here) if _is_place(part) else UNKNOWN
    if isinstance(node, ast.DictComp):
        rebuilt = _rebuilt(node, origin.function)
        if rebuilt is not None:
            return origins.part_of(rebuilt, part, *here)
        return origins.of(node.value, *here) if part.is_item else UNKNOWN
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and part.key is ...:
        sides = [origins.part_of(side, part, *here) for side in (node.left, node.right)]
        return joined([(found, Firmness.CHOICE, ()) for found in sides], True)
    if isinstance(node, ast.Constant):  # a member of an Enum
        return origins.of(node, *here) if part.key == "value" else UNKNOWN
    if isinstance(node, (ast.Name, ast.Attribute)):
        symbol = origins.objects.symbol(node, origin.function)
        if not isinstance(symbol, Class):
            found = _imported(origins, node, part, origin.function)
            return found if found.origins else _annotated(origins, node, part, origin.function)
        found = declared_field(origins, symbol, str(part.key))
        if origin.from_command_line and not found.origins:
            return _filled_record(origins, symbol, origin, str(part.key))
        return filled_by_user(found) if origin.from_command_line else found
    if isinstance(node, ast.Call):
        return _part_of_call(origins, node, origin, part)
    return UNKNOWN


def _rebuilt(node: ast.DictComp, function: Function) -> ast.expr | None:
    """What a comprehension copies: `{k: v for k, v in config.items()}`.

    Also where it does the same to each value: `def wrap(node)` with `{k: wrap(v) for ...}`.
    """
    part, value = node.generators[0], node.value
    source, target = part.iter, part.target
    if isinstance(value, ast.Call) and len(value.args) == 1 and not value.keywords:
        value = value.args[0] if last_name(value.func) == function.name else value
    written = [ast.unparse(item) for item in (node.key, value)]
    is_plain = len(node.generators) == 1 and not part.ifs and isinstance(target, ast.Tuple)
    if not is_plain or written != [ast.unparse(item) for item in getattr(target, "elts", ())]:
        return None
    if not isinstance(source, ast.Call) or not isinstance(source.func, ast.Attribute):
        return None
    return source.func.value if source.func.attr == "items" else None


def _filled_record(origins: Origins, owner: Class, origin: Origin, name: str) -> Found:
    """A record within a record that a parser fills: its annotation says of which class it is."""
    for item in origins.objects.ancestry(owner):
        for binding in class_fields(item).get(name, []):
            if not isinstance(binding.statement, ast.AnnAssign):
                continue
            plain = plain_annotation(binding.statement.annotation)
            inner = origins.objects.symbol(plain, item.module.body)
            if isinstance(inner, Class) and is_record(inner):
                return Found((replace(origin, expression=plain, function=item.module.body),))
    return UNKNOWN


def _imported(origins: Origins, node: ast.expr, part: Part, function: Function) -> Found:
    """A module's constant: `config.AMP`."""
    if part.is_item or function.module.resolve(node) is None:
        return UNKNOWN
    attribute = origins.attribute_of(node, part)
    bindings = origins.objects.bindings(attribute, function)
    if not bindings:
        return UNKNOWN
    bound, _ = bound_in_scope(origins, bindings, None, bindings[0].function, None, str(part.key))
    return origins.follow(bound, None)


def _entry(
    origins: Origins, node: ast.Dict, part: Part, function: Function, activation: Activation | None
) -> Found:
    results: list[tuple[Found, Firmness, tuple[Step, ...]]] = []
    complete = True
    for key, value in reversed(list(zip(node.keys, node.values))):
        if key is None:
            inner = origins.part_of(value, part, function, activation)
            results.append((inner, Firmness.FIXED, ()))
            if inner.complete and inner.origins and part.key is not ...:
                break
            continue
        known = [content for content, _ in origins.keys(key, function, activation) or ()]
        if part.key is ...:
            inner = _if_index_is(origins.of(value, function, activation), part, key)
            results.append((inner, Firmness.CHOICE, ()))
        elif not known or ... in known:
            complete = False
        elif part.key in known:
            results.append((origins.of(value, function, activation), Firmness.FIXED, ()))
            break
    return joined(results, complete)


def _element(
    origins: Origins,
    node: ast.List | ast.Tuple,
    part: Part,
    function: Function,
    activation: Activation | None,
) -> Found:
    if any(isinstance(item, ast.Starred) for item in node.elts):
        return UNKNOWN
    if part.key is ...:
        each = [origins.of(item, function, activation) for item in node.elts]
        return joined([(found, Firmness.CHOICE, ()) for found in each], True)
    if isinstance(part.key, int) and -len(node.elts) <= part.key < len(node.elts):
        return origins.of(node.elts[part.key], function, activation)
    return UNKNOWN


def _is_place(part: Part) -> bool:
    """Whether a part is an element by its place, or any."""
    return part.is_item and not isinstance(part.key, str)


def _if_index_is(found: Found, part: Part, key: ast.expr) -> Found:
    """What an entry of a table gives if the unknown index is its key."""
    if part.index is None:
        return found
    index, function = part.index
    condition = equality(index, key, function)
    origins = (item.then(Firmness.CHOICE, (), (condition,)) for item in found.origins)
    return Found(tuple(origins), found.complete)


def _part_of_call(origins: Origins, call: ast.Call, origin: Origin, part: Part) -> Found:
    here = (origin.function, origin.activation)
    name = last_name(call.func)
    dotted = origin.function.module.resolve(call.func)
    symbol = origins.objects.symbol(call.func, origin.function)
    if isinstance(symbol, Class) and any(map(is_typed_dict, origins.objects.ancestry(symbol))):
        value = passed(call).named.get(str(part.key)) if part.is_item else None
        return origins.of(value, *here) if value is not None else UNKNOWN
    if isinstance(symbol, Class) and _is_plain_dict(origins, symbol, part):
        return _held_by(origins, call, part, *here)
    if isinstance(symbol, Class):
        part = _field_at(origins, symbol, part) if part.is_item else part
        found = field_of_new(origins, symbol, origin, str(part.key)) if not part.is_item else None
        return found if found is not None else UNKNOWN
    fields = _tuple_fields(origins, call, origin.function)
    if fields:
        return _field_of_tuple(origins, call, fields, part, *here)
    if isinstance(call.func, ast.Attribute) and name in _PARSE:
        if part.is_item:
            return origins.of(call, *here) if part.key == 0 else UNKNOWN
        return command_line_option(origins, call, str(part.key), *here)
    if name == "parse_args_into_dataclasses":
        return parsed_class(origins, call, part, *here)
    if dotted in _CLASS_PARSERS and call.args:
        filled = Origin(call.args[0], *here, from_command_line=True)
        return part_of_origin(origins, filled, part)
    if datafiles.loads_data(dotted):
        return file_data(origins, call, dotted, origin, part)
    if name == "replace" and call.args:
        return _replaced(origins, call, part, *here)
    return _held(origins, call, part, *here)


def _is_plain_dict(origins: Origins, owner: Class, part: Part) -> bool:
    """Whether a class is a dict with the constructor of one, whose attributes are its entries."""
    family = origins.objects.ancestry(owner)
    bases = {last_name(base) for item in family for base in item.bases}
    has_entries = part.is_item or any(
        "__getattr__" in item.methods or "__getattr__" in class_fields(item) for item in family
    )
    is_dict = "dict" in bases and origins.objects.method(owner, "__init__") is None
    is_own = not part.is_item and origins.objects.method(owner, str(part.key)) is not None
    return is_dict and has_entries and not is_own


def _field_at(origins: Origins, owner: Class, part: Part) -> Part:
    """The field of a named tuple that stands at a place; the place itself if it is none."""
    family = origins.objects.ancestry(owner)
    fields = [*record_parameters(family)] if any(map(is_named_tuple, family)) else []
    if isinstance(part.key, int) and -len(fields) <= part.key < len(fields):
        return Part(fields[part.key], False)
    return part


def _tuple_fields(origins: Origins, call: ast.Call, function: Function) -> list[str]:
    """The fields of `Parts = namedtuple("Parts", ...)`, in whatever file, where a call makes one."""
    bindings = origins.objects.bindings(call.func, function) or ()
    if len(bindings) != 1 or bindings[0].value is None:
        return []
    return tuple_fields(bindings[0].value, bindings[0].function.module)


def _field_of_tuple(
    origins: Origins,
    call: ast.Call,
    fields: list[str],
    part: Part,
    function: Function,
    activation: Activation | None,
) -> Found:
    """A field of a named tuple, by its name or its place."""
    given = fill(optional(dict.fromkeys(fields)), passed(call)).given
    if part.key is ... and len(given) == len(fields):
        each = [origins.of(item, function, activation) for item in given.values()]
        return joined([(found, Firmness.CHOICE, ()) for found in each], True)
    if isinstance(part.key, int) and -len(fields) <= part.key < len(fields):
        part = Part(fields[part.key], False)
    value = given.get(str(part.key)) if not part.is_item else None
    return origins.of(value, function, activation) if value is not None else UNKNOWN


def _held(
    origins: Origins, call: ast.Call, part: Part, function: Function, activation: Activation | None
) -> Found:
    """Parts of containers, copies and wrapped modules."""
    name = last_name(call.func)
    first = call.args[0] if call.args else None
    if name in SAME_OBJECT and isinstance(call.func, ast.Attribute):
        return origins.part_of(call.func.value, part, function, activation)
    if name == "prepare" and part.is_item and isinstance(part.key, int):
        given = call.args[part.key : part.key + 1]
        return origins.of(given[0], function, activation) if given else UNKNOWN
    if name in WRAPPERS and first is not None:
        if part.key in UNWRAPPING:
            return origins.of(first, function, activation)
        return origins.part_of(first, part, function, activation)
    if name in _COPIES and first is not None:
        kind = Part(part.key, False) if name in ("vars", "asdict") else part
        return origins.part_of(first, kind, function, activation)
    if name not in _HOLDERS:
        return UNKNOWN
    for item in call.keywords:
        if item.arg is not None and item.arg == part.key:
            return origins.of(item.value, function, activation)
    if function.module.resolve(call.func) in CHAINS and _is_place(part):
        layers = ast.copy_location(ast.Tuple(call.args, ast.Load()), call)
        return _element(origins, layers, part, function, activation)
    return _held_by(origins, call, part, function, activation)


def _held_by(
    origins: Origins, call: ast.Call, part: Part, function: Function, activation: Activation | None
) -> Found:
    """Parts of what a container is made of: `dict(other)`, `Namespace(**options)`."""
    spread = [item.value for item in call.keywords if item.arg is None]
    inner = spread or call.args[:1]
    if not inner:
        return UNKNOWN
    is_item = (
        part.is_item or isinstance(inner[0], (ast.Dict, ast.DictComp, ast.Name)) or bool(spread)
    )
    found = origins.part_of(inner[0], Part(part.key, is_item), function, activation)
    if found.origins or part.is_item:
        return found
    return origins.part_of(inner[0], part, function, activation)


def _replaced(
    origins: Origins, call: ast.Call, part: Part, function: Function, activation: Activation | None
) -> Found:
    """`dataclasses.replace(cfg, dtype=...)`."""
    for item in call.keywords:
        if item.arg == part.key:
            return origins.of(item.value, function, activation)
    return origins.part_of(call.args[0], part, function, activation)
