"""Options of a command line: what `argparse` and `click` put into a name, from their calls."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from amplint.code.dataflow import constant_of
from amplint.code.expressions import last_name
from amplint.code.module import CallSite, Function, Module

_STORES = {"store_true": True, "store_false": False}
#: Words in the name of a converter that turns "yes" into True (`type=str2bool`).
_BOOLEAN_TYPES = ("bool",)


@dataclass(frozen=True, slots=True, eq=False)
class Option:
    """One option, as one call declares it.

    Args:
        call: `add_argument(...)` or `click.option(...)`.
        function: where that is written.
        default: what it is unless the user gives it; None where no expression says so.
        flag: the bool that it is when given; None for an option with a value.
        switch: whether it can be given as True and as False.
        choices: the expression of its `choices=`; None where anything is possible.
    """

    call: ast.Call
    function: Function
    default: ast.expr | None
    flag: bool | None
    switch: bool
    choices: ast.expr | None


def argparse_options(modules: Iterable[Module], name: str) -> list[Option]:
    """The `add_argument` calls of some modules whose value is stored under `name`."""
    return [_option(site) for module in modules for site in module.once(_declared).get(name, ())]


def _declared(module: Module) -> dict[str, list[CallSite]]:
    """The `add_argument` calls of a file by what their value is stored under."""
    found: dict[str, list[CallSite]] = {}
    for site in module.calls:
        if site.method == "add_argument":
            found.setdefault(_destination(site.node), []).append(site)
    return found


def stored_defaults(modules: Iterable[Module], name: str) -> list[tuple[ast.expr, Function]]:
    """What `parser.set_defaults(name=value)` calls set."""
    return [
        (keyword.value, site.function)
        for module in modules
        for site in module.once(_default_calls)
        for keyword in site.node.keywords
        if keyword.arg == name
    ]


def _default_calls(module: Module) -> tuple[CallSite, ...]:
    return tuple(site for site in module.calls if site.method == "set_defaults")


def click_option(function: Function, name: str) -> Option | None:
    """The `@click.option` of a command that fills its parameter."""
    node = function.node
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return None
    outside = function.parent or function.module.body
    for decorator in node.decorator_list:
        if not isinstance(decorator, ast.Call) or last_name(decorator.func) != "option":
            continue
        if _destination(decorator) == name:
            return _option(CallSite(decorator, outside, "option"))
    return None


def _option(site: CallSite) -> Option:
    given = {item.arg: item.value for item in site.node.keywords if item.arg}
    action = given.get("action")
    stores = _STORES.get(str(constant_of(action)))
    default = given.get("default")
    both = _has_both_forms(site.node) or last_name(action or ast.Name("")) == (
        "BooleanOptionalAction"
    )
    if constant_of(given.get("is_flag")) is True and not both:
        stores = True
    if default is None and stores is not None:
        default = ast.copy_location(ast.Constant(not stores), site.node)
    converter = last_name(given.get("type", ast.Name("")))
    switch = both or any(word in converter.lower() for word in _BOOLEAN_TYPES)
    return Option(site.node, site.function, default, stores, switch, _choices(given))


def _choices(given: dict[str, ast.expr]) -> ast.expr | None:
    choices = given.get("choices")
    kind = given.get("type")
    if choices is None and isinstance(kind, ast.Call) and last_name(kind.func) == "Choice":
        return kind.args[0] if kind.args else None
    return choices


def _has_both_forms(call: ast.Call) -> bool:
    """`"--amp/--no-amp"` of click."""
    return any("/" in str(constant_of(argument)) for argument in call.args)


def _destination(call: ast.Call) -> str:
    for keyword in call.keywords:
        if keyword.arg == "dest":
            return str(constant_of(keyword.value))
    words = list(_words(call))
    plain = [word for word in words if not word.startswith("-")]
    long = [word for word in words if word.startswith("--")]
    chosen = (plain or long or words or [""])[0]
    return chosen.lstrip("-").partition("/")[0].replace("-", "_")


def _words(call: ast.Call) -> Iterator[str]:
    for argument in call.args:
        value = constant_of(argument)
        if isinstance(value, str):
            yield value
