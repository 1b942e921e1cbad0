"""What a run can show of a finding: the vocabulary in which each rule says it (`Rule.probe`).

Exceptions and damages of the protocol are those of `amplint.protocol.violations`. What is no
transition of it is either an exception of torch, or measured: see `amplint.probe.measurements`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from amplint.protocol import VIOLATIONS

#: Silent violations whose damage depends on the loss scale: the gradients that reach the
#: optimizer differ between two runs that differ in nothing but the initial scale.
SCALE_DEPENDENT = frozenset(
    {
        "unscale-of-zeros",
        "unscale-of-plain",
        "unscale-again",
        "step-on-spent",
        "step-on-piled",
        "step-on-mixed",
        "backward-after-unscale",
        "step-on-rescaled",
        "clip-of-scaled",
        "optimizer-step-on-scaled",
        "optimizer-step-on-mixed",
    }
)

#: Silent by themselves; a later step of the same optimizer then raises this.
RAISED_LATER = {
    "unscale-without-gradient": "step-without-gradient",
    "unscale-after-zero-grad": "step-without-gradient",
}

#: torch cannot tell these apart: gradients that never were from gradients that are gone.
SAME_ERROR = {
    "step-without-gradient": ("step-after-zero-grad",),
    "step-after-zero-grad": ("step-without-gradient",),
}


@dataclass(frozen=True, slots=True)
class Expectation:
    """One way in which a finding can show itself.

    Args:
        kind: "raises", "gradients", or a key of `amplint.probe.measurements.MEASURES`.
        slugs: violations of the protocol that explain it; empty where it is no transition
            of the protocol, and only the exception can tell.
        cause: the violation at the finding's row, if it shows only at a later row.
        anywhere: it may show at any row; the finding stands where the cause is written.
        without: the kind of `Omission` that makes it go away, if the finding's rows are what
            causes it; "" where there is no such counterfactual run.
        everywhere: the omission is not limited to the finding's rows.
        events: the kinds of events that it is about.
        relies_on: what of a run has to be right, besides that nothing was skipped and no test
            on data was forced: "protocol" (all that happens to scaler, optimizer and gradients,
            and that a backward was seen), "objects" (no model or optimizer went through
            unknown hands), "place" (nothing more: only where and when the line runs).
        shapes: whether it depends on the shapes or dtypes of data.
    """

    kind: str
    slugs: frozenset[str] = frozenset()
    exception: str = ""
    pattern: str = ""
    cause: str = ""
    anywhere: bool = False
    without: str = ""
    everywhere: bool = False
    events: frozenset[str] = frozenset()
    relies_on: str = "protocol"
    shapes: bool = False


def breaks(*slugs: str) -> tuple[Expectation, ...]:
    """The expectations of violations of the protocol."""
    found = []
    for slug in slugs:
        shown = VIOLATIONS[RAISED_LATER.get(slug, slug)]
        if shown.exception is not None:
            pattern = re.escape((shown.error or "").split("  ")[0])
            cause = slug if slug in RAISED_LATER else ""
            known = frozenset({shown.slug, *SAME_ERROR.get(shown.slug, ())})
            found.append(Expectation("raises", known, shown.exception, pattern, cause))
        elif slug in SCALE_DEPENDENT:
            found.append(Expectation("gradients", frozenset({slug}), cause=slug))
    return tuple(found)


def raises(exception: str, pattern: str, **more: Any) -> tuple[Expectation, ...]:
    """An exception of torch at the finding's rows."""
    return (Expectation("raises", frozenset(), exception, pattern, **more),)


def caused(
    without: str, exception: str, pattern: str, relies_on: str = "objects", **more: Any
) -> tuple[Expectation, ...]:
    """An exception of torch anywhere, which is gone if something at the rows is left out."""
    return raises(exception, pattern, anywhere=True, without=without, relies_on=relies_on, **more)


def measured(kind: str, relies_on: str = "objects", **more: Any) -> tuple[Expectation, ...]:
    """Something that `amplint.probe.measurements` finds in a run."""
    return (Expectation(kind, relies_on=relies_on, **more),)


NO_GRADIENT = ("step-without-gradient", "step-after-zero-grad")

PLAIN = ("unscale-of-plain", "step-on-mixed")

NO_GRAPH = ("RuntimeError", "does not require grad")

INFERENCE_TENSORS = ("RuntimeError", "Inference tensors cannot be saved for backward")

#: What `torch.autocast` and `GradScaler` say about their arguments.
AMP_ARGUMENTS = (
    r"missing 1 required positional argument: 'device_type'|Expected `device_type` of type `str`"
    r"|device type at start of device string|unsupported autocast device_type"
    r"|unexpected keyword argument|argument 'fill_value'|positional arguments? but"
    r"|multiple values for argument|missing 1 required positional argument"
    r"|object has no attribute 'device'"
)

#: What torch says about targets whose dtype or shape no loss can take.
TARGETS = (
    r"expected scalar type|must match the size|should be the same|Found dtype|can't be cast"
    r"|not implemented for|Expected floating point type|Target size|size mismatch|but got"
)

STEPS = frozenset({"step", "plain-step"})

HALF_GRADIENTS = ("ValueError", "Attempting to unscale FP16 gradients")

NOTHING_TO_RUN = "it is about the spelling of the API: nothing goes wrong in a run"

IN_A_LIBRARY = "it goes wrong inside a training library, which the probe does not load"
