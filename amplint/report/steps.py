"""The steps of a path in words: what happened, and how the scaler stands after it."""

from __future__ import annotations

from amplint.findings import PathStep, shorten
from amplint.protocol import VIOLATIONS, Event

#: Longest condition that a step quotes, in characters.
LONGEST_CONDITION = 80

WORDS: dict[Event, tuple[str, str]] = {
    Event.SCALED_BACKWARD: ("backward on the scaled loss", "gradients are scaled"),
    Event.PLAIN_BACKWARD: ("backward on the plain loss", "gradients are not scaled"),
    Event.UNSCALE: ("`unscale_` divides the gradients by the loss scale", "gradients are unscaled"),
    Event.STEP: ("the scaler steps the optimizer", "stepped, update() is due"),
    Event.UPDATE: ("`update()` adjusts the loss scale", "ready for the next round"),
    Event.SET_SCALE: ("`update(new_scale)` sets the loss scale", "ready for the next round"),
    Event.ZERO_GRAD: ("the gradients are cleared", "no gradients"),
    Event.ZERO_GRAD_KEEP: ("the gradients are set to zero", "gradients are zeros"),
    Event.CLIP: ("the gradients are clipped", ""),
    Event.OPTIMIZER_STEP: ("the optimizer steps without the scaler", "gradients are applied"),
}

#: What the same events do while there is no gradient.
IDLE_WORDS: dict[Event, tuple[str, str]] = {
    Event.UNSCALE: ("`unscale_` finds no gradients", "still no gradients"),
    Event.CLIP: ("there is nothing to clip", ""),
    Event.OPTIMIZER_STEP: ("the optimizer finds no gradients", ""),
    Event.ZERO_GRAD: ("there is nothing to clear", ""),
}


def words_of(step: PathStep) -> tuple[str, str]:
    """What happened, and the state after it; "" for a state that is unchanged or at fault."""
    if step.kind == "said":
        return step.message, step.state
    if step.event is not None:
        return _event(step, step.event)
    if step.kind == "assume":
        return (
            f"assume `{shorten(step.subject, LONGEST_CONDITION)}` is {'true' if step.holds else 'false'}",
            "",
        )
    if step.kind == "again":
        return f"`{step.subject or 'the function'}` is called for the next batch", ""
    if step.kind == "call":
        return f"call of `{step.subject}`", ""
    if step.kind == "raise":
        return f"`{step.subject}` may be raised here, and a handler takes it", ""
    return ("the loop goes round" if step.kind == "loop" else "the loop ends"), ""


def _event(step: PathStep, event: Event) -> tuple[str, str]:
    message, state = (step.idle and IDLE_WORDS.get(event)) or WORDS[event]
    return (_ending(step.broken, message), "") if step.broken else (message, state)


def _ending(slug: str, message: str) -> str:
    """The last step says how it ends: with torch's error, or wrong and without one."""
    violation = VIOLATIONS.get(slug)
    if violation is None or slug == "unscale-of-plain":
        return message  # raises only if the scaler has never scaled anything
    if violation.exception is not None:
        error = (violation.error or "").split("  ")[0]
        return f"torch raises `{violation.exception}: {error}`"
    return f"{message}: wrong, and torch raises nothing"
