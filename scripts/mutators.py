"""Ways to break a correct scaler loop, each a function from a file to its mutations.

The docstring of a recipe says why the mutant must fail. Which mutations are real bugs is
decided here, from the semantics of torch and from the text, never from what amplint says:
`unscale_` and `step` record an inf check if there is a gradient; `update()` clears the
records. A second `unscale_` or `step` since the last `update()` raises, and so does a `step`
or an `update()` with nothing on record. Everything else passes in silence.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from scaler_source import Edit, Event, Source, scale_call

NEW_FLAG = "some_new_flag"  # unknown to the file, as a flag imported with `*` would be


@dataclass(frozen=True, slots=True)
class Mutation:
    """The edits that break one statement of a file, and the statement's line."""

    row: int
    edits: tuple[Edit, ...]


def holds_scaler_loop(source: Source) -> bool:
    """Whether the file steps an optimizer through a scaler."""
    return any(_is_optimizer(step) for step in source.statements("step"))


def duplicate_step(source: Source) -> Iterator[Mutation]:
    """Step twice.

    `RuntimeError: step() has already been called since the last update()`, always.
    """
    for step in _steps(source):
        yield _mutation(step, source.put_after(step.statement, ast.unparse(step.node)))


def duplicate_update(source: Source) -> Iterator[Mutation]:
    """Update twice.

    The first one clears the records: `AssertionError: No inf checks were recorded prior to
    update`, always.
    """
    for update in source.statements("update"):
        yield _mutation(update, source.put_after(update.statement, ast.unparse(update.node)))


def update_before_step(source: Source) -> Iterator[Mutation]:
    """Move `update()` before the last step that precedes it in its block.

    With nothing recorded it raises (`No inf checks were recorded prior to update`). With a
    record by `unscale_` the step divides by the scale a second time. With a record by another
    optimizer's step the scale may change between this optimizer's backward and its step, which
    then divides by the wrong scale. All three are wrong.
    """
    for update in source.statements("update"):
        step = _last_step_before(source, update)
        if step is not None:
            yield _mutation(
                update,
                source.put_before(step.statement, ast.unparse(update.node)),
                source.replace(update.statement, "pass"),
            )


def plain_step(source: Source) -> Iterator[Mutation]:
    """`scaler.step(opt)` becomes `opt.step()`.

    Gradients that are larger by the scale are applied, and `update()` has no record; after
    `unscale_` infinite gradients are applied instead of skipped. Not a bug for an optimizer of
    sparse parameters, which `unscale_` may serve alone: such files are left out.
    """
    if "SparseAdam" in source.text or "sparse=True" in source.text:
        return
    for step in _steps(source):
        yield _mutation(step, source.replace(step.node, f"{_optimizer(step)}.step()"))


def duplicate_unscale(source: Source) -> Iterator[Mutation]:
    """Unscale twice.

    `RuntimeError: unscale_() has already been called on this optimizer since the last
    update()`, always.
    """
    for unscale in source.statements("unscale"):
        yield _mutation(unscale, source.put_after(unscale.statement, ast.unparse(unscale.node)))


def delete_unscale(source: Source) -> Iterator[Mutation]:
    """Forget `unscale_` before a clip.

    The clip compares its threshold with gradients that are larger by the scale, so nearly
    every gradient is cut down to `threshold / scale`. Only a bug if a clip certainly follows
    before the step, and only if the threshold is not multiplied by the scale.
    """
    for unscale in source.statements("unscale"):
        if _is_clipped_next(source, unscale):
            yield _mutation(unscale, source.replace(unscale.statement, "pass"))


def zero_grad_before_step(source: Source) -> Iterator[Mutation]:
    """Clear the gradients just before the step.

    `step` finds no gradient to check: `AssertionError: No inf checks were recorded for this
    optimizer` (where gradients are zeroed instead: the batch is lost). Legal once `unscale_`
    has recorded a check, so functions that unscale, or call one that does, are left out.
    """
    for step in _steps(source):
        if not may_unscale(source, step):
            clear = f"{_optimizer(step)}.zero_grad()"
            yield _mutation(step, source.put_before(step.statement, clear))


def plain_backward(source: Source) -> Iterator[Mutation]:
    """`scaler.scale(loss).backward()` becomes `loss.backward()`.

    If nothing else is ever scaled, `AssertionError: Attempted step but _scale is None`; else
    the step divides plain gradients by the scale, and the weights hardly move.
    """
    for backward in source.statements("scaled backward"):
        scaled = scale_call(backward.node)
        if scaled is None:
            continue
        loss = source.text_of(scaled.args[0])
        plain = loss if isinstance(scaled.args[0], ast.Name) else f"({loss})"
        yield _mutation(backward, source.replace(scaled, plain))


def delete_update(source: Source) -> Iterator[Mutation]:
    """Forget `update()`.

    The second iteration raises at its `unscale_` or `step`. Legal if another `update()` runs
    between two steps of the optimizer (one update serves every optimizer of the scaler), so it
    must be the only one of its loop, or of the file where a caller owns the loop. What the file's
    top level does outside of any loop runs once.
    """
    for update in source.statements("update"):
        if _is_only_update(source, update):
            yield _mutation(update, source.replace(update.statement, "pass"))


def delete_backward(source: Source) -> Iterator[Mutation]:
    """Forget the backward.

    `step` finds no gradient: `No inf checks were recorded for this optimizer`, or `_scale is
    None`. Only a bug if no other backward can feed the step; an exclusive one on the path
    without a scaler can not, an exclusive scaled one can (accumulation).
    """
    for backward in source.statements("scaled backward"):
        if _is_only_backward(source, backward):
            yield _mutation(backward, source.replace(backward.statement, "pass"))


def guard_step(source: Source) -> Iterator[Mutation]:
    """Put the step alone under a new flag, in front of an unconditional `update()`.

    Without the flag `update()` raises, because nothing is recorded. Legal after `unscale_`
    (that is how a batch is dropped) and beside another optimizer's step, both of which record
    a check: functions that hold or call either are left out.
    """
    for step in _steps(source):
        if not source.stands_alone(step.statement) or not _is_only_record(source, step):
            continue
        if any(_last_step_before(source, update) is step for update in source.events):
            guarded = f"if {NEW_FLAG}: {source.text_of(step.node)}"
            yield _mutation(step, source.replace(step.statement, guarded))


@dataclass(frozen=True, slots=True)
class Recipe:
    """A way to break a statement, and the codes of which any is right."""

    breaks: Callable[[Source], Iterator[Mutation]]
    codes: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name on the command line and in the table."""
        return self.breaks.__name__.replace("_", "-")


RECIPES = (
    Recipe(duplicate_step, ("AMP104", "AMP103")),
    Recipe(duplicate_update, ("AMP106",)),
    Recipe(update_before_step, ("AMP107", "AMP106")),
    Recipe(plain_step, ("AMP112", "AMP106")),
    Recipe(duplicate_unscale, ("AMP108",)),
    Recipe(delete_unscale, ("AMP110",)),
    Recipe(zero_grad_before_step, ("AMP102", "AMP101")),
    Recipe(plain_backward, ("AMP113", "AMP201", "AMP101")),
    Recipe(delete_update, ("AMP105", "AMP108", "AMP103")),
    Recipe(delete_backward, ("AMP101", "AMP109", "AMP201")),
    Recipe(guard_step, ("AMP201", "AMP106")),
)
PROTOCOL_CODES = frozenset(code for recipe in RECIPES for code in recipe.codes)


def _steps(source: Source) -> Iterator[Event]:
    """Scaler steps of an optimizer that can be named again."""
    return filter(_is_optimizer, source.statements("step"))


def _is_optimizer(step: Event) -> bool:
    """Whether the stepped object is written as a name, an attribute or an element.

    `scaler.step(self)` is left out: it is a recorder that pretends to be an optimizer.
    """
    if isinstance(step.operand, ast.Name):
        return step.operand.id != "self"
    return isinstance(step.operand, (ast.Attribute, ast.Subscript))


def _optimizer(event: Event) -> str:
    """The stepped object, as written."""
    assert event.operand is not None
    return ast.unparse(event.operand)


def _mutation(event: Event, *edits: Edit) -> Mutation:
    """Edits of the statement of an event."""
    return Mutation(event.statement.lineno, edits)


def _last_step_before(source: Source, update: Event) -> Event | None:
    """The step that an `update()` concludes: the last one before it in its block."""
    if update.kind != "update":
        return None
    before = [e for e in source.events if e.is_sibling_before(update) and _one_scaler(e, update)]
    protocol = [e for e in before if e.kind in ("step", "update", "reset")]
    return protocol[-1] if protocol and protocol[-1] in _steps(source) else None


def _is_only_record(source: Source, step: Event) -> bool:
    """Whether nothing but `step` records an inf check for the `update()` after it."""
    steps = [rival for rival in source.rivals(step, "step") if _one_scaler(rival, step)]
    return not steps and not source.calls_helper(step, "step") and not may_unscale(source, step)


def may_unscale(source: Source, step: Event) -> bool:
    """Whether an inf check may already be on record when `step` runs."""
    return (
        bool(source.rivals(step, "unscale"))
        or source.calls_helper(step, "unscale")
        or _unscales_in_hook(source)
    )


def _unscales_in_hook(source: Source) -> bool:
    """Whether the file unscales in a function that does not step: a hook others may call."""
    stepping = {event.function for event in source.events if event.kind == "step"}
    return any(e.kind == "unscale" and e.function not in stepping for e in source.events)


def _is_clipped_next(source: Source, unscale: Event) -> bool:
    """Whether the gradients that `unscale` serves are certainly clipped before their step.

    Where several optimizers are unscaled together, there must be a clip for each of them.
    """
    steps = [_row(s) for s in source.rivals(unscale, "step") if _row(s) > _row(unscale)]
    end = min(steps, default=sys.maxsize)
    clips = [c for c in source.rivals(unscale, "clip") if _row(unscale) < _row(c) < end]
    others = [u for u in source.rivals(unscale, "unscale") if _row(u) < end]
    return len(clips) > len(others) and any(_follows(c, unscale) and _cuts(c) for c in clips)


def _follows(second: Event, first: Event) -> bool:
    """Whether `second` runs after `first`, if only under a further test.

    That is: it is in the rest of the block of `first`, however deep; or it is in the rest of
    a block around `first` and under no `if` there (which could exclude the `if` of `first`).
    """
    parting = first.parting(second)
    if parting is None:
        return False
    mine, theirs = parting
    if mine.owner is not theirs.owner or mine.block != theirs.block:
        return False
    deeper = second.trail[second.trail.index(theirs) + 1 :]
    return mine == first.trail[-1] or not any(isinstance(arm.owner, ast.If) for arm in deeper)


def _cuts(clip: Event) -> bool:
    """Whether a clip has a threshold of its own, not None and not derived from the scale."""
    arguments = [*clip.node.args, *(keyword.value for keyword in clip.node.keywords)]
    unlimited = any(isinstance(a, ast.Constant) and a.value is None for a in arguments)
    return not unlimited and "scale" not in " ".join(map(ast.unparse, arguments))


def _is_only_update(source: Source, update: Event) -> bool:
    """Whether no other update can run between two steps of one optimizer."""
    if source.calls_helper(update, "update", "reset"):
        return False
    if update.function is None and not update.loops:
        return False
    loop = update.loops[-1] if update.loops else None
    steps = [event for event in source.events if event.kind == "step"]
    if any(loop in step.loops for step in steps):
        rivals = source.rivals(update, "update", "reset")
        return not any(loop in rival.loops and _one_scaler(rival, update) for rival in rivals)
    updates = [event for event in source.events if event.kind in ("update", "reset")]
    others = [e for e in updates if e is not update and _one_scaler(e, update)]
    return bool(steps) and all(other.excludes(update) for other in others)


def _is_only_backward(source: Source, backward: Event) -> bool:
    """Whether no other backward can feed the step that this one feeds."""
    if source.calls_helper(backward, "scaled backward", "other backward"):
        return False
    if source.rivals(backward, "scaled backward", "other backward"):
        return False
    scaled = [event for event in source.events if event.kind == "scaled backward"]
    if source.rivals(backward, "step"):
        return [e for e in scaled if e.function is backward.function] == [backward]
    return scaled == [backward]


def _one_scaler(one: Event, other: Event) -> bool:
    """Whether both are calls on scalers of one name, which may be one scaler."""
    return one.scaler.rpartition(".")[2] == other.scaler.rpartition(".")[2]


def _row(event: Event) -> int:
    """The first line of an event's statement."""
    return event.statement.lineno
