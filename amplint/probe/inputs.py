"""Inputs of a run in words: what a user would set, and what the probe invented."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from amplint.probe.domains import Option

if TYPE_CHECKING:
    from amplint.probe.search import Need

#: Decisions about data and the machine, which no caller of a function determines.
_SURROUNDINGS = re.compile(r"\(|@|#|\bnan\b|^os\.|^torch\.", re.IGNORECASE)


def is_surroundings(path: str) -> bool:
    """Whether a decision is about data or the machine: `len(loader)`, a NaN in the loss."""
    return _SURROUNDINGS.search(path) is not None


def root_of(path: str) -> str:
    """ "args" for "args.amp" and "args['amp']"."""
    return re.split(r"[.\[(!?#@]", path, maxsplit=1)[0]


def describe(need: Need, options: dict[str, Option]) -> str:
    """One needed input, as a user would set it; what is declared apart from what is not."""
    decision = need.decision
    condition = _condition(need)
    leaf = decision.path.rpartition(".")[2]
    option = options.get(leaf) if "." in decision.path else None
    if option is not None:
        return _flag(option, decision.choice, condition)
    default = decision.options[0] if decision.origin == "default" else None
    if decision.origin != "default":
        return f"`{decision.path}` {condition}"
    if type(default) is type(decision.choice) and default == decision.choice:
        return f"`{decision.path}` {condition} (its default)"
    return f"`{decision.path}` {condition} (default {default!r})"


def _flag(option: Option, choice: Any, condition: str) -> str:
    default = option.values[0] if option.values else None
    if isinstance(default, bool) and isinstance(choice, bool):
        return f"no {option.flag}" if choice is default else option.flag
    return f"{option.flag} {condition}" + (f" (default {default!r})" if option.values else "")


def _condition(need: Need) -> str:
    """`= 2`, or `>= 2` where every larger value that was tried does it, too."""
    choice = need.decision.choice
    numbers = [v for v in need.decision.options if type(v) in (int, float)]
    if type(choice) in (int, float) and len(numbers) == len(need.decision.options):
        least = min(need.holding)
        if len(need.holding) > 1 and all((v >= least) == (v in need.holding) for v in numbers):
            return f">= {least!r}"
    return f"= {choice!r}"
