"""Moving `unscale_` and clips to where an accumulation window ends: in front of its step."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace

from amplint.amp.scaler_calls import scaler_calls
from amplint.code.dataflow import bindings_of, receiver
from amplint.code.expressions import last_name, path_text
from amplint.code.layout import Layout, layout_of
from amplint.code.module import Function
from amplint.fixing.statements import beside, calls_on, statement_of
from amplint.fixing.verbs import Insert, Move, Remove, Repair, Verb, unsafe
from amplint.rule import Misuse
from amplint.view import FileView

#: What a clip does not move across: it makes, reads or drops gradients.
_EVENTS = frozenset(("grad", "backward", "zero_grad", "unscale_", "update"))
#: What a test may consist of that is written a second time.
PLAIN = (
    *(ast.Name, ast.Attribute, ast.Constant, ast.Load),
    *(ast.Compare, ast.cmpop, ast.BoolOp, ast.boolop, ast.UnaryOp, ast.Not),
)


def at_the_step(view: FileView, misuse: Misuse, statement: ast.stmt) -> Repair | None:
    """Unscale and clip in front of the only step, for each step once.

    Args:
        statement: a clip, or an `unscale_`, that runs more often than the step, or too far from it.
    """
    layout = layout_of(misuse.function)
    if not misuse.scaler:
        misuse = replace(misuse, scaler=_only_scaler(view, misuse.function))
    steps = [statement_of(site.node, misuse.function) for site in calls_on(view, misuse, "step")]
    step = steps[0] if len(steps) == 1 else None
    if step is None or not layout.reaches(statement, step):
        return None
    place = _Place.of(misuse, statement, step)
    if place is None or not place.holds_every_step():
        return None
    early = [site.node for site in calls_on(view, misuse, "unscale_")]
    moved = [each for each in place.between if is_clipping(each)]
    code = place.unscaling()
    if not moved or code is None or place.has_events(moved, statement):
        return None
    clips = [Move(each, place.target) for each in moved]
    if not early:
        return unsafe(Insert(place.target, code), *clips)
    if [statement_of(call, misuse.function) for call in early] != [statement]:
        return None
    if any(layout.holds(each, statement) for each in moved):
        return unsafe(*clips)
    first: tuple[Verb, ...] = (Move(statement, place.target),)
    if "\n" in code:
        first = (Remove(statement), Insert(place.target, code))
    return unsafe(*first, *clips)


def under(tests: list[str], code: str) -> str:
    """A statement under tests, all of which have to hold."""
    words = [f"({test})" if " " in test and len(tests) > 1 else test for test in tests]
    return f"if {' and '.join(words)}:\n    {code}" if tests else code


def _only_scaler(view: FileView, function: Function) -> str:
    """The scaler whose `step` a function calls, as the code writes it; "" if there are several."""
    found = {receiver(site.node) or "" for site in scaler_calls(view, "step", within=function)}
    return found.pop() if len(found) == 1 else ""


def is_clipping(statement: ast.stmt) -> bool:
    """Whether a statement only clips, whatever it asks before, and keeps no norm."""
    if isinstance(statement, ast.If):
        return all(map(is_clipping, [*statement.body, *statement.orelse]))
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call):
        return False
    name = last_name(call.func)
    return "clip_grad" in name or name == "unscale_"


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a clip goes.

    Args:
        target: the statement that it goes in front of, which holds the step or is it.
        step: the statement that steps.
        between: the statements from the one with the clip to the one with the step.
    """

    misuse: Misuse
    target: ast.stmt
    step: ast.stmt
    between: list[ast.stmt]

    @classmethod
    def of(cls, misuse: Misuse, statement: ast.stmt, step: ast.stmt) -> _Place | None:
        """In front of the step, in the window of a step that a test holds."""
        layout = layout_of(misuse.function)
        around = (one for one in layout.ancestors(step) if one in layout.parents)
        inner = [step, *(one for one in around if isinstance(one, ast.stmt))]
        for outer in inner:
            block = beside(misuse, outer)
            first = next((i for i, each in enumerate(block) if layout.holds(each, statement)), None)
            if first is None or layout.holds(outer, statement):
                continue
            place = cls(misuse, outer, step, block[first : block.index(outer)])
            is_window = isinstance(outer, ast.If) and not any(map(place.steps, outer.orelse))
            return replace(place, target=inner[inner.index(outer) - 1]) if is_window else place
        return None

    @property
    def layout(self) -> Layout:
        """Of the function."""
        return layout_of(self.misuse.function)

    @property
    def _optimizer(self) -> str:
        call = self.step.value  # type: ignore[attr-defined]
        return ast.unparse(call.args[0]) if call.args else ""

    def unscaling(self) -> str | None:
        """The code that unscales what the step steps; None where it cannot be said."""
        code = f"{self.misuse.scaler}.unscale_({self._optimizer})"
        if not self._optimizer:
            return None
        if self.target is self.step:
            return code
        if isinstance(self.target, ast.For):
            one = self.target
            is_again = path_text(one.iter) is not None and self.step in one.body
            header = f"for {ast.unparse(one.target)} in {ast.unparse(one.iter)}:"
            return f"{header}\n    {code}" if is_again and not one.orelse else None
        tests: list[str] = []
        for node in [*self.layout.ancestors(self.step)]:
            if not isinstance(node, ast.If):
                return None
            plain = all(isinstance(each, PLAIN) for each in ast.walk(node.test))
            if not plain or not any(self.layout.holds(each, self.step) for each in node.body):
                return None
            tests.append(ast.unparse(node.test))
            if node is self.target:
                break
        return under(tests[::-1], code)

    def steps(self, statement: ast.stmt) -> int:
        """How often a statement names a step of the optimizer without its scaler."""
        return sum(
            isinstance(node, ast.Attribute)
            and node.attr == "step"
            and ast.unparse(node.value) == self._optimizer
            for node in ast.walk(statement)
        )

    def holds_every_step(self) -> bool:
        """Whether whatever steps the optimizer does it behind the clip, once it has moved."""
        block = beside(self.misuse, self.target)
        behind = block[block.index(self.target) :]
        return sum(map(self.steps, behind)) == sum(map(self.steps, self.misuse.function.body))

    def has_events(self, moved: list[ast.stmt], statement: ast.stmt) -> bool:
        """Whether something on the way makes, reads or drops gradients, or binds what is moved."""
        reads = {path_text(node) for each in moved for node in ast.walk(each)} - {None}
        first, skipped = moved[0], {node for each in moved for node in self.layout.inside(each)}
        way = [node for node in self.layout.between(first, self.target) if node not in skipped]
        own = set(self.layout.inside(statement))
        events = [node for node in way if getattr(node, "attr", "") in _EVENTS and node not in own]
        bound = {
            path
            for path, items in bindings_of(self.misuse.function).items()
            if any(item.statement in way for item in items)
        }
        return bool(events) or bool(bound & reads)
