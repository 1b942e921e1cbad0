"""Which values a free input of a function may take, and where they are declared.

Declared values come first: `argparse` defaults and choices, dataclass fields, defaults of
parameters. Then what the code compares the value with. What is invented here is marked so.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from amplint.code.dataflow import bindings_of, parameters
from amplint.code.expressions import last_name, path_text
from amplint.code.module import Function, Module
from amplint.probe.messages import Domain
from amplint.values.objects import Objects

#: Small numbers that windows and counters are tried with.
_NUMBERS = (1, 2, 3)
#: A text that no test asks for.
OTHER = "something else"
_MISSING: Any = object()
#: Numbers beyond this are taken for sizes.
_LARGEST = 4
#: Texts that functions take for true which make truth values of texts.
_TRUE = re.compile(r"(?i)(true|t|yes|y|on|1)$")
#: Types of the values that an option of some kind may be given.
_TAKEN: dict[str, tuple[type, ...]] = {
    "flag": (bool,),
    "int": (int,),
    "float": (int, float),
    "str": (str,),
}


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a command line.

    Args:
        flag: as a user types it, "--accumulation-steps".
        values: the default first, then choices.
        kind: what else a user may give: "flag" (True or False), "choice" (one of the values),
            "int", "float", "str"; "" where that is not known.
        default: what it is without the user, None where no literal says so.
        optional: whether it is None without the user.
    """

    flag: str
    values: tuple[Any, ...]
    kind: str = ""
    default: Any = None
    optional: bool = False

    def takes(self, value: Any) -> bool:
        """Whether a user can set this value, or leaves it there."""
        if value is None:
            return self.optional
        if self.default is not None and is_same(value, self.default):
            return True
        if self.kind == "choice":
            return any(is_same(value, known) for known in self.values)
        return type(value) in _TAKEN.get(self.kind, ())


@dataclass(slots=True)
class Use:
    """What the code does with a path.

    Args:
        tested: it is a condition, or a part of one.
        compared: constants that it is compared with.
        counted: it is an operand of `%` or `//`.
        opened: attributes of it are read, so it is an object.
    """

    tested: bool = False
    compared: list[Any] = field(default_factory=list)
    counted: bool = False
    opened: bool = False


def options_of(modules: Iterable[Module]) -> dict[str, Option]:
    """Command line options of the files by the attribute that `parse_args` gives them."""
    found: dict[str, Option] = {}
    for module in modules:
        for site in module.calls:
            if site.method == "add_argument":
                for name, option in _option(site.node):
                    found.setdefault(name, option)
    return found


def domains_of(
    functions: Iterable[Function],
    objects: Objects,
    options: dict[str, Option],
    things: Collection[str],
    matters: Callable[[Function], Collection[ast.AST] | None],
) -> tuple[Domain, ...]:
    """Domains of the paths that the functions test, compare or count with.

    Args:
        functions: the entry first.
        matters: the statements of a function that can decide about events; None for all.
        things: paths of scalers, optimizers, models: objects, not values.
    """
    functions = list(functions)
    opened = {path for function in functions for path in _opened(function)}
    found: dict[str, Domain] = {}
    for index, function in enumerate(functions):
        passed = set(parameters(function))
        is_input = index == 0 or (function.name == "__init__" and functions[0].owner is not None)
        bound = set(bindings_of(function)) - passed
        if not is_input:
            bound |= passed
        for path, (node, use) in _uses(function, matters(function)).items():
            # What the code itself computes is no input.
            if path in found or path in things or path in bound:
                continue
            use.opened = path in opened
            domain = _domain(path, node, use, function, objects, options)
            if domain is not None:
                found[path] = domain
    return tuple(found.values())


def domains_of_options(options: Mapping[str, Option]) -> Iterator[Domain]:
    """What attributes that are called like an option are by default, wherever they stand.

    Large numbers are left out: they are sizes and counts, and a run is to be short.
    """
    for name, option in options.items():
        values = [value for value in option.values if type(value) in (bool, int, float, str)]
        if values and all(isinstance(v, str) or abs(v) <= _LARGEST for v in values):
            yield Domain(f"*.{name}", tuple(values), "default")


def _domain(
    path: str,
    node: ast.expr,
    use: Use,
    function: Function,
    objects: Objects,
    options: dict[str, Option],
) -> Domain | None:
    leaf = path.rpartition(".")[2]
    declared = list(_declared(node, function, objects))
    if "." in path and leaf in options:
        declared = [*options[leaf].values, *declared]
    values = _unique((*declared, *_alternatives(declared, use)))
    if len(values) < 2 or not all(_is_plain(value) for value in values):
        return None
    return Domain(path, values, "default" if declared else "guard")


def _declared(node: ast.expr, function: Function, objects: Objects) -> Iterator[Any]:
    """Default of a parameter, or of a field of the class that the object has."""
    if isinstance(node, ast.Name):
        known = parameters(function).get(node.id)
        value = _literal(known.default) if known is not None else _MISSING
        if value is not _MISSING and value is not None:
            yield value
        return
    for binding in objects.bindings(node, function) or ():
        value = _literal(binding.value)
        # `self.x = None` is filled in later; nothing is known about with what.
        if value is not _MISSING and value is not None:
            yield value


def _alternatives(declared: list[Any], use: Use) -> Iterator[Any]:
    """Further values under which a test can go another way."""
    known = [*declared, *use.compared]
    if any(isinstance(value, str) for value in known):
        yield from (value for value in use.compared if isinstance(value, str))
        if len(declared) < 2:  # with two or more they are the choices that there are
            yield OTHER
        return
    numbers = [value for value in known if isinstance(value, (int, float)) and value is not True]
    numbers = [value for value in numbers if value is not False]
    if use.counted:
        yield from _NUMBERS
    if numbers:
        if any(isinstance(value, float) for value in numbers):
            yield from (1.0, 0.0)
        else:
            yield from (*(value + 1 for value in use.compared if type(value) is int), *_NUMBERS)
        if use.compared:
            yield from (value for value in use.compared if type(value) in (int, float))
    elif use.tested and not use.counted and not use.opened:
        yield from (True, False)


def _uses(
    function: Function, matter: Collection[ast.AST] | None
) -> dict[str, tuple[ast.expr, Use]]:
    found: dict[str, tuple[ast.expr, Use]] = {}

    def use_of(node: ast.expr) -> Use:
        path = path_text(node)
        if path is None or "[*]" in path or isinstance(node, ast.Subscript):
            return Use()
        return found.setdefault(path, (node, Use()))[1]

    nodes: Iterable[ast.AST] = function.nodes
    if matter is not None:
        nodes = [node for statement in matter for node in _own_nodes(statement)]
    for node in nodes:
        if isinstance(node, (ast.If, ast.While, ast.IfExp, ast.Assert)):
            for part in _conditions(node.test):
                use_of(part).tested = True
        elif isinstance(node, ast.Compare):
            for constant in _constants(node.comparators):
                use_of(node.left).compared.append(constant)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mod, ast.FloorDiv)):
            use_of(node.right).counted = True
        elif isinstance(node, ast.keyword) and node.arg == "enabled":
            use_of(node.value).tested = True
    return {
        path: item
        for path, item in found.items()
        if item[1].tested or item[1].compared or item[1].counted
    }


def _opened(function: Function) -> Iterator[str]:
    """The paths of which a function reads attributes."""
    for node in function.nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, (ast.Name, ast.Attribute)):
            path = path_text(node.value)
            if path is not None:
                yield path


def _own_nodes(statement: ast.AST) -> Iterator[ast.AST]:
    """A statement and its expressions, without the blocks inside it."""
    yield statement
    for child in ast.iter_child_nodes(statement):
        if not isinstance(child, (ast.stmt, ast.excepthandler, ast.match_case)):
            yield from ast.walk(child)


def _conditions(test: ast.expr) -> Iterator[ast.expr]:
    """The parts of a test that are true or false by themselves."""
    if isinstance(test, ast.BoolOp):
        for value in test.values:
            yield from _conditions(value)
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _conditions(test.operand)
    elif isinstance(test, (ast.Name, ast.Attribute)):
        yield test


def _constants(comparators: Iterable[ast.expr]) -> Iterator[Any]:
    for comparator in comparators:
        parts = (
            comparator.elts
            if isinstance(comparator, (ast.List, ast.Tuple, ast.Set))
            else [comparator]
        )
        for part in parts:
            if isinstance(part, ast.Constant) and part.value is not None:
                yield part.value


def _option(call: ast.Call) -> Iterator[tuple[str, Option]]:
    flags = [
        argument.value
        for argument in call.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    ]
    if not flags:
        return
    keywords = {item.arg: item.value for item in call.keywords if item.arg}
    long = next((flag for flag in flags if flag.startswith("--")), flags[0])
    name = _literal(keywords.get("dest"))
    if not isinstance(name, str):
        name = long.lstrip("-").replace("-", "_")
    values: list[Any] = []
    default = _literal(keywords.get("default"))
    action = _literal(keywords.get("action"))
    if action in ("store_true", "store_false"):
        off = action == "store_false"
        values = [off, not off] if default is _MISSING else [bool(default), not default]
    elif default is not _MISSING and default is not None:
        values = [default]
        if isinstance(default, bool):
            values.append(not default)
    choices = keywords.get("choices")
    if isinstance(choices, (ast.List, ast.Tuple, ast.Set)):
        values += [_literal(item) for item in choices.elts]
    kind = _kind(keywords)
    if kind == "flag" and isinstance(default, str):
        values = [_TRUE.match(default) is not None]
        values.append(not values[0])
    known = values[0] if kind == "flag" and values else default
    yield (
        name,
        Option(
            long,
            _unique(value for value in values if value is not _MISSING),
            kind,
            None if known is _MISSING else known,
            kind != "flag" and long.startswith("-") and _is_optional(keywords),
        ),
    )


def _kind(keywords: dict[str, ast.expr]) -> str:
    """What a user may give for an option; "" where that takes more than a look."""
    action = keywords.get("action")
    if _literal(action) in ("store_true", "store_false"):
        return "flag"
    if action is not None:
        return "flag" if last_name(action) == "BooleanOptionalAction" else ""
    if "nargs" in keywords:
        return ""
    if "choices" in keywords:
        return "choice"
    converter = last_name(keywords["type"]) if "type" in keywords else "str"
    if "bool" in converter.lower() and converter != "bool":  # `bool("False")` is True
        return "flag"
    return converter if converter in _TAKEN else ""


def _is_optional(keywords: dict[str, ast.expr]) -> bool:
    if _literal(keywords.get("required")) is True:
        return False
    return "default" not in keywords or _literal(keywords["default"]) is None


def _literal(node: ast.expr | None) -> Any:
    """The value of a literal; `_MISSING` for anything else."""
    if node is None:
        return _MISSING
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return _MISSING


def is_same(one: Any, other: Any) -> bool:
    """Equal, and both are truth values or none is: True is not 1, and 1.0 is."""
    return isinstance(one, bool) is isinstance(other, bool) and bool(one == other)


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))


def _unique(values: Iterable[Any]) -> tuple[Any, ...]:
    """Without repetitions, in order; True and 1 are different, 1 and 1.0 are not."""
    kept: dict[tuple[bool, Any], Any] = {}
    for value in values:
        key = value if isinstance(value, (bool, int, float, str)) else repr(value)
        kept.setdefault((isinstance(value, bool), key), value)
    return tuple(kept.values())
