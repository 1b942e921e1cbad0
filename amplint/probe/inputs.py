"""Inputs of a run in words: what a user would set, and what the probe invented."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from amplint.probe.domains import Option
from amplint.probe.messages import Decision, RunResult

#: Decisions about data and the machine, which no caller of a function determines.
_SURROUNDINGS = re.compile(r"^len\(|@\d+$|^nan in |^os\.|^torch\.(?!load\(|hub)")
#: Decisions that go against what a tensor really holds, if they are not the first option.
_DATA = re.compile(r"^\w+@\d+$")
_ABOUT = re.compile(r"^\w+\(")
_MEMBER = re.compile(r"^contains\((.*), (.*)\)$")


@dataclass(frozen=True, slots=True)
class Need:
    """A decision without which the outcome changes.

    Args:
        holding: the options under which the outcome stays, the chosen one first.
        without: runs with other options, in which the outcome is gone.
        tried: whether that was seen. What could not be tried counts as needed.
        instead: decisions of which any one is enough where this one is another.
    """

    decision: Decision
    holding: tuple[Any, ...]
    tried: bool = True
    without: tuple[RunResult, ...] = ()
    instead: tuple[Decision, ...] = ()


def is_surroundings(path: str) -> bool:
    """Whether a decision is about data or the machine: `len(loader)`, a NaN in the loss."""
    return _SURROUNDINGS.search(path) is not None


def is_data(path: str) -> bool:
    """Whether a decision is about data: how many batches there are, what is in them."""
    return is_surroundings(path) and not path.startswith(("os.", "torch."))


def is_machine(path: str) -> bool:
    """Whether a decision is about what the machine or the version of torch can do; what is in
    a file that torch reads is not."""
    return path.startswith("torch.") and not path.startswith(("torch.load(", "torch.hub"))


def root_of(path: str) -> str:
    """The name that a path begins with: "args" for "args.amp" and "hasattr(args, 'amp')"."""
    return re.split(r"\W", _ABOUT.sub("", path), maxsplit=1)[0]


def is_about(path: str, name: str) -> bool:
    """Whether a decision is about what a name holds: "len(x.y)" and "x is None" are about "x"."""
    parts = re.findall(r"[A-Za-z_][\w.]*", path)
    return any(part == name or part.startswith(f"{name}.") for part in parts)


def against_data(decision: Decision) -> int:
    """The row of a test that was made to go another way than its tensor says, else 0."""
    if not _DATA.match(decision.path) or decision.choice == decision.options[0]:
        return 0
    return int(decision.path.rpartition("@")[2])


def is_remarkable(decision: Decision) -> bool:
    """Whether a reader has to hear of a value: an enabled scaler is no news, nor is no NaN."""
    if decision.path.endswith(".enabled") and decision.origin == "role":
        return not decision.choice
    return bool(decision.choice) or not decision.path.startswith("nan in ")


def describe(need: Need, options: dict[str, Option]) -> str:
    """One needed input, as a user would set it; what is declared apart from what is not."""
    if need.instead:
        each = (Need(d, (d.choice,)) for d in (need.decision, *need.instead))
        return " or ".join(describe(item, options) for item in each)
    decision = need.decision
    if decision.path.startswith("nan in "):
        return f"a NaN in the output of {decision.path.removeprefix('nan in ')}"
    if _DATA.match(decision.path):
        row = decision.path.rpartition("@")[2]
        return f"data for which the test in line {row} is {str(bool(decision.choice)).lower()}"
    if decision.path.endswith(" is None"):
        given = decision.path.removesuffix(" is None")
        return f"`{given}` " + ("= None" if decision.choice else "given")
    if decision.path.startswith("len("):
        return _batches(need)
    member = _MEMBER.match(decision.path)
    if member is not None:
        return f"`{member[2]} {'in' if decision.choice else 'not in'} {member[1]}`"
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


def _batches(need: Need) -> str:
    """ "3 batches", or "at least 2 batches" where every larger number does it, too."""
    least = min(need.holding)
    numbers = [value for value in need.decision.options if isinstance(value, int)]
    if len(need.holding) > 1 and all((n >= least) == (n in need.holding) for n in numbers):
        return f"at least {least} batch{'es' if least != 1 else ''}"
    return f"{need.decision.choice} batches" if need.decision.choice != 1 else "1 batch"


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
