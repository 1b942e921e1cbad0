"""Every way to break the protocol: torch's exact error, or the measured silent damage.

Measured with torch 2.13.0 (CPU scaler, init_scale 65536). `facts` are the ids of the
executed cases, kept so that messages, rule pages and tests can name the same evidence.
"update ratio" is the size of the parameter change divided by that of the correct step.
"""

from __future__ import annotations

from dataclasses import dataclass

_HINT = (
    "  This may indicate your script did not use scaler.scale(loss or outputs) "
    "earlier in the iteration."
)
NO_INF_CHECKS = "No inf checks were recorded for this optimizer."


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule of the protocol.

    Args:
        slug: stable identifier, used in tests and tables.
        code: the rule that reports it when nothing more specific is known.
        exception: the exception's type name when torch raises, else None.
        error: torch's exact text when it raises, else None.
        damage: what happens to training, in words with the measured number.
        facts: ids of the executed cases behind `error` and `damage`.
    """

    slug: str
    code: str
    exception: str | None
    error: str | None
    damage: str
    facts: tuple[str, ...]

    @property
    def raises(self) -> bool:
        """Whether torch stops the program here."""
        return self.exception is not None


_TABLE = (
    Violation(
        "step-uninitialised",
        "AMP101",
        "AssertionError",
        "Attempted step but _scale is None." + _HINT,
        "the scaler never scaled anything; training stops at the first step",
        ("S01", "S02", "S26"),
    ),
    Violation(
        "unscale-uninitialised",
        "AMP113",
        "AssertionError",
        "Attempted unscale_ but _scale is None." + _HINT,
        "the scaler never scaled anything; training stops at unscale_",
        ("U03",),
    ),
    Violation(
        "update-uninitialised",
        "AMP106",
        "AssertionError",
        "Attempted update but _scale is None." + _HINT,
        "the scaler never scaled anything; training stops at update()",
        ("P02",),
    ),
    Violation(
        "step-without-gradient",
        "AMP101",
        "AssertionError",
        NO_INF_CHECKS,
        "the scaler found no gradient to check; training stops at the step",
        ("S05", "S06", "S25"),
    ),
    Violation(
        "step-after-zero-grad",
        "AMP102",
        "AssertionError",
        NO_INF_CHECKS,
        "the gradients were cleared before the step; training stops at the step",
        ("S07", "U16"),
    ),
    Violation(
        "step-on-zeros",
        "AMP102",
        None,
        None,
        "the step applies zeros: only weight decay and momentum move the weights "
        "(update ratio 0.34 with weight decay)",
        ("S08",),
    ),
    Violation(
        "step-twice",
        "AMP104",
        "RuntimeError",
        "step() has already been called since the last update().",
        "training stops at the second step",
        ("S13", "S14"),
    ),
    Violation(
        "unscale-twice",
        "AMP108",
        "RuntimeError",
        "unscale_() has already been called on this optimizer since the last update().",
        "training stops at the second unscale_",
        ("U01", "U06"),
    ),
    Violation(
        "unscale-after-step",
        "AMP108",
        "RuntimeError",
        "unscale_() is being called after step().",
        "training stops at unscale_",
        ("U02", "S14b"),
    ),
    Violation(
        "unscale-without-gradient",
        "AMP109",
        None,
        None,
        "there is nothing to unscale yet; the later step stops with "
        f"`AssertionError: {NO_INF_CHECKS}`",
        ("U04",),
    ),
    Violation(
        "unscale-after-zero-grad",
        "AMP102",
        None,
        None,
        "the gradients were cleared, so there is nothing to unscale; the later step stops "
        f"with `AssertionError: {NO_INF_CHECKS}`",
        ("U16",),
    ),
    Violation(
        "unscale-of-zeros",
        "AMP109",
        None,
        None,
        "zeros are unscaled; the gradients of the next backward are then applied while "
        "still multiplied by the loss scale (update ratio 65536)",
        ("U05",),
    ),
    Violation(
        "unscale-of-plain",
        "AMP113",
        None,
        None,
        "gradients that were never scaled are divided by the loss scale "
        "(SGD update ratio 1.5e-5, Adam 0.944)",
        ("S03", "S03b", "S16d"),
    ),
    Violation(
        "unscale-again",
        "AMP107",
        None,
        None,
        "update() made the scaler forget that it had unscaled, so the gradients are "
        "divided by the loss scale a second time (update ratio 1.5e-5)",
        ("P09",),
    ),
    Violation(
        "stale-scale",
        "AMP107",
        None,
        None,
        "the gradients are divided by another loss scale than they were multiplied with; "
        "wrong by a factor of 2 at each change of the scale",
        ("S30", "P11"),
    ),
    Violation(
        "step-on-spent",
        "AMP101",
        None,
        None,
        "no backward ran since the last step; the old gradients are divided by the loss "
        "scale and applied again (update ratio 1.5e-5)",
        ("P05",),
    ),
    Violation(
        "step-on-piled",
        "AMP116",
        None,
        None,
        "gradients of earlier micro-batches lie in .grad already unscaled and are divided "
        "by the loss scale again (0.4 of what the same loop does without a scaler, with a "
        "window of four)",
        ("P05",),
    ),
    Violation(
        "step-on-mixed",
        "AMP113",
        None,
        None,
        "scaled and plain gradients were added together; the plain part is divided by the "
        "loss scale (update ratio 0.5 for two equal losses)",
        ("B14", "B25"),
    ),
    Violation(
        "backward-after-unscale",
        "AMP109",
        None,
        None,
        "scaled gradients land on unscaled ones and are applied undivided "
        "(update ratio 32768 for two equal losses); an overflow in them is not skipped",
        ("U08", "U08b"),
    ),
    Violation(
        "step-on-rescaled",
        "AMP109",
        None,
        None,
        "the gradients of the last backward are applied while still multiplied by the loss "
        "scale (update ratio 65536)",
        ("U05", "U08", "U18"),
    ),
    Violation(
        "update-without-check",
        "AMP106",
        "AssertionError",
        "No inf checks were recorded prior to update.",
        "nothing was unscaled or stepped since the last update(); training stops at update()",
        ("P01", "P04", "P06", "P10"),
    ),
    Violation(
        "clip-of-scaled",
        "AMP110",
        None,
        None,
        "the gradients are still multiplied by the loss scale, so the threshold is about "
        "65536 times too small (update ratio 2.9e-5 with SGD, 0.96 with Adam)",
        ("C01", "C02", "C02b", "C03", "C08", "U09"),
    ),
    Violation(
        "clip-of-spent",
        "AMP127",
        None,
        None,
        "the gradients were applied already; clipping them now does nothing "
        "(with a max_norm of 1e-4, 5294 times the clipped step was taken)",
        ("C04",),
    ),
    Violation(
        "optimizer-step-on-scaled",
        "AMP112",
        None,
        None,
        "gradients multiplied by the loss scale are applied (update ratio 65536 with SGD; "
        "invisible with Adam, whose moments are then off by 65536)",
        ("S16", "S16b", "S16c"),
    ),
    Violation(
        "optimizer-step-bypass",
        "AMP112",
        None,
        None,
        "the scaler cannot skip the step when a gradient overflows: inf and NaN reach the weights",
        ("S17", "S17b"),
    ),
    Violation(
        "optimizer-step-twice",
        "AMP104",
        None,
        None,
        "the same gradients are applied a second time (update ratio 2), and a skipped "
        "overflow is applied after all",
        ("S15", "S15b"),
    ),
    Violation(
        "optimizer-step-on-mixed",
        "AMP112",
        None,
        None,
        "scaled and unscaled gradients, added together, are applied undivided "
        "(update ratio 32768 for two equal losses)",
        ("U08", "S16"),
    ),
)

VIOLATIONS: dict[str, Violation] = {violation.slug: violation for violation in _TABLE}

#: Misuses that are no row of the table, because they are about more than one pair: slug -> rule.
BEYOND_THE_TABLE: dict[str, str] = {
    "foreign-scaler": "AMP117",
    "losses-mixed": "AMP113",
    "optimizer-recreated": "AMP117",
    "other-object-unscaled": "AMP117",
    "scaler-is-none": "AMP202",
}


def code_of(slug: str) -> str:
    """The rule that reports a misuse when nothing more specific is known."""
    violation = VIOLATIONS.get(slug)
    return violation.code if violation else BEYOND_THE_TABLE[slug]
