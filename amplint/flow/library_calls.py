"""Calls of training libraries: what the table of `amplint.amp.libraries` says they do.

A class whose scaler is always on makes events. Of every other row only that its effects are
possible is known (bf16, no precision at all, an accumulation that is not over), so after such a
call nothing is known about gradients, and unknown never reports.
"""

from __future__ import annotations

import ast

from amplint.amp.libraries import Effect, LibraryCall, call_row, class_row, usual_receiver
from amplint.amp.library_objects import imports_library
from amplint.code.expressions import last_name
from amplint.flow.call import Call
from amplint.flow.conditions import assume
from amplint.flow.events import Site
from amplint.flow.protocol_calls import ProtocolCalls, Valued
from amplint.flow.state import State
from amplint.flow.values import FOREIGN, Value, kind_of


class LibraryCalls:
    """Applies rows of the table.

    Args:
        events: applies the events that a row stands for.
    """

    def __init__(self, events: ProtocolCalls) -> None:
        self.events = events
        self.reader = events.reader
        self.transitions = events.transitions

    def call(self, call: Call) -> Valued | None:
        """A call of a library's function or object; None for any other."""
        owner = self._owner(call)
        if owner is None:
            row = self._row_without_object(call)
            return None if row is None else self._apply(row, None, call)
        is_method = (
            isinstance(call.node.func, ast.Attribute) and kind_of(call.receiver) == "library"
        )
        row = call_row(f"{owner[1]}.{call.name if is_method else '__call__'}")
        if row is None:
            return [(call.state, None)]  # not in the table: nothing happens to gradients
        return self._apply(row, owner, call)

    def _owner(self, call: Call) -> Value:
        """The object of a library whose method, or which itself, is called."""
        if kind_of(call.receiver) == "library":
            return call.receiver
        callee = call.node.func
        if not isinstance(callee, (ast.Name, ast.Attribute, ast.Subscript)):
            return None
        value = self.reader.raw(callee, call.state, call.function)
        return value if kind_of(value) == "library" else None

    def _row_without_object(self, call: Call) -> LibraryCall | None:
        """A function of a library, or a method of what is usually called so where it is used."""
        module = call.function.module
        row = call_row(module.resolve(call.node.func))
        if row is not None or not isinstance(call.node.func, ast.Attribute):
            return row
        if kind_of(call.receiver) not in ("", "path", "optimizer"):
            return None
        row = usual_receiver(last_name(call.place), call.name)
        known = class_row(row.owner) if row is not None else None
        return row if known is not None and imports_library(module, known) else None

    def _apply(self, row: LibraryCall, owner: Value, call: Call) -> Valued:
        if Effect.TAKE_OVER in row.effects:
            return [(call.state, FOREIGN)]
        kind = class_row(row.owner)
        optimizer = self._argument(row.optimizer, call)
        if owner is None or kind is None or not kind.always_on or optimizer is None:
            return self.events.havoc(call.state)
        site = self.events.site_of(call, f"{owner[2]}.{kind.always_on}", optimizer)
        state = call.state.copy()
        self.events.feed(state, site, call)
        due = self._argument(row.boundary, call)
        condition = True if due is None else self.reader.formula(due, state, call.function)
        results: Valued = [(after, None) for after in assume(condition, False, state)]
        for after in assume(condition, True, state):
            after = after.copy()
            self._step(after, site)
            results.append((after, None))
        return results

    def _step(self, state: State, site: Site) -> None:
        self.transitions.step(state, site)
        self.transitions.update(state, site, new_scale=False)

    def _argument(self, place: tuple[int, str] | None, call: Call) -> ast.expr | None:
        """The argument at a position or under a keyword."""
        if place is None:
            return None
        index, name = place
        if index < len(call.positional):
            return call.positional[index]
        return call.named.get(name)
