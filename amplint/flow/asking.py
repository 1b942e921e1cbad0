"""What callers, subclasses and other files are asked about a finding, and what their answers say."""

from __future__ import annotations

import ast
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import TypeVar

from amplint.code.dataflow import parameters
from amplint.code.module import Function, Module, walk
from amplint.flow.defects import Found
from amplint.flow.state import Step
from amplint.flow.witness import steps_of
from amplint.protocol import Event

#: What a question is about.
Key = TypeVar("Key")
#: What is found, and the functions that some path reached.
Answer = tuple[list[Found], AbstractSet[Function]]


def depends_on_callers(item: Found) -> bool:
    """Whether a caller may decide about the path: a branch, a repetition, a loss that it scales."""
    if item.entry.name == "<module>":
        return False
    steps = steps_of(item.state.trail)
    return any(step[0] in ("assume", "again") or _takes_its_loss(step) for step in steps)


def _takes_its_loss(step: Step) -> bool:
    """Whether a step is a plain backward of a loss that is passed in: the caller may scale it."""
    if step[0] != "event" or step[3][0] is not Event.PLAIN_BACKWARD:
        return False
    callee = step[1].func if isinstance(step[1], ast.Call) else None
    loss = callee.value if isinstance(callee, ast.Attribute) else None
    operands = walk(loss) if isinstance(loss, (ast.Name, ast.BinOp)) else []
    given = parameters(step[2])
    return any(isinstance(node, ast.Name) and node.id in given for node in operands)


@dataclass(frozen=True, slots=True, eq=False)
class Followed:
    """What somebody else was asked about a function.

    Args:
        called: functions that some path has reached.
        complete: whether all paths were followed to their end. What half of an answer holds was
            seen in part.
    """

    found: tuple[Found, ...]
    called: AbstractSet[Function]
    complete: bool

    def finds(self, item: Found) -> bool:
        """Whether the same is found."""
        return any(
            other.slug == item.slug for other in self.found if other.site.node is item.site.node
        )

    def confirms(self, item: Found) -> bool:
        """Whether the same is found in a whole answer."""
        return self.complete and self.finds(item)


@dataclass(slots=True, eq=False)
class Judged:
    """What other files do wrong by themselves.

    Args:
        asking: modules that this is being found out about.
        known: by the function that does it.
    """

    asking: set[Module]
    known: dict[Function, Followed] = field(default_factory=dict)
