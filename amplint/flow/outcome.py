"""Where the states of a block go: on, out of a loop or into its next round, out of the function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from amplint.flow.functions import Valued
from amplint.flow.raising import Thrown
from amplint.flow.state import State
from amplint.flow.values import NONE


@dataclass(slots=True)
class Outcome:
    """Where the states of a block go."""

    normal: list[State] = field(default_factory=list)
    breaks: list[State] = field(default_factory=list)
    continues: list[State] = field(default_factory=list)
    returns: Valued = field(default_factory=list)
    raises: Thrown = field(default_factory=list)

    def absorb(self, other: Outcome) -> None:
        """Take over everything of another block but its normal end."""
        self.breaks += other.breaks
        self.continues += other.continues
        self.returns += other.returns
        self.raises += other.raises

    def through(self, last: Callable[[list[State]], Outcome]) -> Outcome:
        """Where the states go that run one more block on each way out: a `finally`."""
        found = Outcome()

        def after(states: list[State]) -> list[State]:
            ran = last(states) if states else Outcome()
            found.absorb(ran)
            return ran.normal

        found.normal = after(self.normal)
        found.breaks += after(self.breaks)
        found.continues += after(self.continues)
        for value in dict.fromkeys(value for _, value in self.returns):
            states = [state for state, each in self.returns if each == value]
            found.returns += ((state, value) for state in after(states))
        for raised in dict.fromkeys(raised for raised, _ in self.raises):
            states = [state for each, state in self.raises if each == raised]
            found.raises += ((raised, state) for state in after(states))
        return found

    def returned(self) -> Valued:
        """Every way out of a function by its end or a `return`, with the value that it returns."""
        return [*self.returns, *((after, NONE) for after in self.normal)]
