"""How an `accelerate.Accelerator` was set up: the values of its constructor's arguments."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from amplint.amp.libraries import class_row
from amplint.amp.view import AmpView
from amplint.code.module import Function
from amplint.values.provenance import Origin
from amplint.values.values import Possible

ACCELERATOR = "accelerate.Accelerator"


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """What one constructor call says about an argument.

    Args:
        built: the call, as the accelerator's origin.
        given: the argument's expression; None where the call leaves it out.
        possible: the constants that it may be; nothing where it is left out.
    """

    built: Origin
    given: ast.expr | None
    possible: Possible


def settings_of(
    view: AmpView, accelerator: ast.expr, function: Function, name: str, index: int
) -> Iterator[Setting]:
    """What the constructors that an accelerator may come from say about an argument.

    Args:
        name: of the argument ("mixed_precision").
        index: its place among the positional ones.
    """
    for origin in view.values.origins.of(accelerator, function).origins:
        call = origin.expression
        if not isinstance(call, ast.Call):
            continue
        row = class_row(origin.function.module.resolve(call.func))
        if row is None or row.name != ACCELERATOR:
            continue
        given = next((item.value for item in call.keywords if item.arg == name), None)
        if given is None and len(call.args) > index:
            given = call.args[index]
        possible = Possible()
        if given is not None:
            possible = view.values.of(given, origin.function, origin.activation)
        yield Setting(origin, given, possible)


def precisions_of(view: AmpView, accelerator: ast.expr, function: Function) -> list[Setting]:
    """What is said about `mixed_precision`; left out, `accelerate launch` decides."""
    return list(settings_of(view, accelerator, function, "mixed_precision", 2))
