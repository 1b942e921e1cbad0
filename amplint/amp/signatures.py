"""The methods of torch's `GradScaler`, what they take, and what they say to other arguments."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from amplint.code.arguments import Passed


@dataclass(frozen=True, slots=True)
class Signature:
    """The parameters of a method, its object left out.

    Args:
        required: those that a call has to fill, in order.
        optional: those behind them.
        takes_more: whether it takes any other argument.
    """

    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    takes_more: bool = False


_NOTHING = Signature()
_FACTOR = Signature(("new_factor",))
#: Method -> its parameters (torch 2.13; the same since torch.amp has the class).
METHODS: Mapping[str, Signature] = {
    "scale": Signature(("outputs",)),
    "unscale_": Signature(("optimizer",)),
    "step": Signature(("optimizer",), takes_more=True),
    "update": Signature((), ("new_scale",)),
    "get_scale": _NOTHING,
    "get_growth_factor": _NOTHING,
    "set_growth_factor": _FACTOR,
    "get_backoff_factor": _NOTHING,
    "set_backoff_factor": _FACTOR,
    "get_growth_interval": _NOTHING,
    "set_growth_interval": Signature(("new_interval",)),
    "is_enabled": _NOTHING,
    "state_dict": _NOTHING,
    "load_state_dict": Signature(("state_dict",)),
}


def no_method(name: str) -> tuple[str, ...] | None:
    """The methods that a name may be meant for that is none of them; None if it is one.

    What begins with an underscore is the class's own business, and may be anything.
    """
    if name in METHODS or name.startswith("_"):
        return None
    return tuple(get_close_matches(name, METHODS, n=1))


def refusal(method: str, passed: Passed) -> str:
    """The words of the `TypeError` that a call of a method raises; "" if it takes the arguments.

    What a `*` or `**` holds is not known, and refused by nothing.
    """
    signature = METHODS[method]
    known = (*signature.required, *signature.optional)
    if passed.spread or any(isinstance(item, ast.Starred) for item in passed.positional):
        return ""
    unknown = [name for name in passed.named if name not in known]
    if unknown and not signature.takes_more:
        return f"got an unexpected keyword argument '{unknown[0]}'"
    count = len(passed.positional)
    if count > len(known) and not signature.takes_more:
        takes = len(known) + 1
        some = f"from {len(signature.required) + 1} to {takes}" if signature.optional else takes
        plural = "s" if takes > 1 else ""
        return f"takes {some} positional argument{plural} but {count + 1} were given"
    for name in known[:count]:
        if name in passed.named:
            return f"got multiple values for argument '{name}'"
    missing = [name for name in signature.required[count:] if name not in passed.named]
    return f"missing 1 required positional argument: '{missing[0]}'" if missing else ""
