"""Values from outside the code: options of command lines, and entries of data files."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING

from amplint.code.dataflow import constant_of
from amplint.code.expressions import last_name
from amplint.code.module import CallSite, Function, Module
from amplint.plaindata import NoData
from amplint.values import datafiles, options
from amplint.values.provenance import (
    NO_DATA,
    OTHER_KEY,
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
)

if TYPE_CHECKING:
    from amplint.values.origins import Origins


def command_line_option(
    origins: Origins, call: ast.Call, name: str, function: Function, activation: Activation | None
) -> Found:
    """A name of the namespace that `parser.parse_args()` returns."""
    modules = _declaring(origins, call, function, activation)
    found = options.argparse_options(modules, name)
    stored = options.stored_defaults(modules, name)
    if not found and not stored:
        return _added_class(origins, modules, name)
    results: list[tuple[Found, Firmness, tuple[Step, ...]]] = [
        (origins.of(value, where), Firmness.DEFAULT, ()) for value, where in stored
    ]
    untouched = _takes_nothing(call) and not origins.objects.outside_stores(function.module, name)
    for option in found:
        back = option_values(option)
        if untouched and option.default is not None:  # `parse_args([])`: nobody can give it
            back = Back((Before(option.default, option.function, None),), True)
            results.append((origins.follow(back, None), Firmness.FIXED, ()))
            continue
        results.append((origins.follow(back, None), Firmness.DEFAULT, ()))
    return joined(results, True)


def _added_class(origins: Origins, modules: list[Module], name: str) -> Found:
    """`parser.add_arguments(Config, dest="cfg")` of simple_parsing."""
    for site in (site for module in modules for site in module.calls):
        if site.method != "add_arguments" or not site.node.args:
            continue
        given = {item.arg: constant_of(item.value) for item in site.node.keywords}
        if given.get("dest") == name:
            filled = Origin(site.node.args[0], site.function, from_command_line=True)
            return Found((filled,))
    return UNKNOWN


def _takes_nothing(call: ast.Call) -> bool:
    """`parser.parse_args([])`: nobody can give an option."""
    given = call.args[0] if call.args else None
    return isinstance(given, ast.List) and not given.elts


def _declaring(
    origins: Origins, call: ast.Call, function: Function, activation: Activation | None
) -> list[Module]:
    """Files that may declare the options of a parser: where it is made and handed to."""
    modules = [function.module]
    if isinstance(call.func, ast.Attribute):
        for origin in origins.of(call.func.value, function, activation).origins:
            modules.append(origin.function.module)
    for site in function.module.once(_parser_calls):
        callee = origins.objects.callee(site.node, site.function)
        if callee is not None:
            modules.append(callee.module)
    return list(dict.fromkeys(modules))


def _parser_calls(module: Module) -> tuple[CallSite, ...]:
    """Calls of a file that hand a parser on, by its name."""
    return tuple(
        site
        for site in module.calls
        if any("parser" in last_name(argument).lower() for argument in site.node.args)
    )


def parsed_class(
    origins: Origins, call: ast.Call, part: Part, function: Function, activation: Activation | None
) -> Found:
    """One of the objects of `HfArgumentParser((A, B)).parse_args_into_dataclasses()`."""
    if not part.is_item or not isinstance(call.func, ast.Attribute):
        return UNKNOWN
    results: list[tuple[Found, Firmness, tuple[Step, ...]]] = []
    for origin in origins.of(call.func.value, function, activation).origins:
        made = origin.expression
        if not isinstance(made, ast.Call) or not made.args:
            continue
        classes = made.args[0]
        many = classes.elts if isinstance(classes, (ast.Tuple, ast.List)) else [classes]
        if isinstance(part.key, int) and part.key < len(many):
            filled = replace(origin, expression=many[part.key], from_command_line=True)
            results.append((Found((filled,)), Firmness.DEFAULT, ()))
    return joined(results, bool(results))


def file_data(
    origins: Origins, call: ast.Call, dotted: str | None, origin: Origin, part: Part
) -> Found:
    """An entry of a data file that is read under a constant path, or under the default of an option.

    Whoever chooses another file may choose other entries.
    """
    whole = whole_data(origins, call, dotted, origin)
    results = [(part_of_data(item, part), item.firmness, ()) for item in whole.origins]
    return joined(results, whole.complete and bool(results))


def whole_data(origins: Origins, call: ast.Call, dotted: str | None, origin: Origin) -> Found:
    """What a data file holds, for each path that a call may read it under."""
    here = (origin.function, origin.activation)
    if not call.args:
        return UNKNOWN
    complete = True
    found: list[Origin] = []
    sources = origins.of(call.args[0], *here).origins
    if datafiles.is_given_path(dotted):
        sources = (replace(origin, expression=call.args[0]),)
    for source in sources:
        path: ast.expr | None = source.expression
        if not datafiles.is_given_path(dotted):
            path = datafiles.path_argument(path) if isinstance(path, ast.Call) else None
        known = origins.keys(path, source.function, source.activation) if path else None
        complete = complete and bool(known) and OTHER_KEY not in (known or ())
        for name, firmness in known or ():
            data = _file_content(origins, str(name), dotted, origin) if name is not ... else NO_DATA
            if data is not NO_DATA:
                at = min(firmness, origin.firmness)
                found.append(replace(origin, expression=call, data=data, steps=(), firmness=at))
            elif name is not ...:
                complete = False
    return Found(tuple(found), complete and bool(found))


def _file_content(origins: Origins, path: str, dotted: str | None, origin: Origin) -> object:
    module = origin.function.module
    try:
        return datafiles.content_of(path, dotted, module, origins.objects.project)
    except NoData:
        return NO_DATA


def option_values(option: options.Option) -> Back:
    """What an option may be: its default, and what a user may give."""
    places = []
    complete = option.flag is not None or option.switch
    if option.default is not None:
        places.append(Before(option.default, option.function, None, Firmness.DEFAULT))
    given = [option.flag] if option.flag is not None else []
    if option.switch:
        given = [value for value in (True, False) if constant_of(option.default) is not value]
    for value in given:
        made = ast.copy_location(ast.Constant(value), option.call)
        step = Step(option.call, option.function.module, f"the option can be {value}")
        places.append(Before(made, option.function, None, Firmness.CHOICE, (step,)))
    if option.choices is not None:
        part = Part(..., True)
        places.append(Before(option.choices, option.function, None, Firmness.CHOICE, (), part))
        complete = True
    return Back(tuple(places), complete)


def filled_by_user(found: Found) -> Found:
    """A field that a command line may fill: its default stands unless somebody chooses."""
    switches = [
        replace(
            item,
            expression=ast.copy_location(ast.Constant(not item.expression.value), item.expression),
            firmness=Firmness.CHOICE,
        )
        for item in found.origins
        if isinstance(item.expression, ast.Constant) and isinstance(item.expression.value, bool)
    ]
    defaults = [item.then(Firmness.DEFAULT, ()) for item in found.origins]
    return Found((*defaults, *switches), bool(switches) and found.complete)


def part_of_data(origin: Origin, part: Part) -> Found:
    """An entry of what a data file holds; what refers to another entry (`${train.amp}`) is not known."""
    data = origin.data
    entry: object = NO_DATA
    if isinstance(data, dict) and part.key in data:
        entry = data[part.key]
    if isinstance(data, list) and isinstance(part.key, int) and part.key < len(data):
        entry = data[part.key]
    refers = isinstance(entry, str) and "${" in entry
    return UNKNOWN if entry is NO_DATA or refers else Found((replace(origin, data=entry),))
