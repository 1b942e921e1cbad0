"""What a run has to show before it can confirm a finding: one table, code -> expectations.

Exceptions and damages are those of `amplint.protocol.violations`. A code that is not in the
table is never probed: what it warns of does not show in one short run (a scaler that forgets
its scale, a check that is too late), or stand-ins cannot tell (shapes, kernels, devices).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from amplint.findings import Finding
from amplint.probe.messages import Prediction
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
        slugs: violations of the protocol that explain it; empty where it is no transition
            of the protocol, and only the exception can tell.
        cause: the violation at the finding's row, if it shows only at a later row.
        anywhere: it may show at any row; the finding stands where the cause is written.
    """

    kind: str
    slugs: frozenset[str] = frozenset()
    exception: str = ""
    pattern: str = ""
    cause: str = ""
    anywhere: bool = False


def _of(*slugs: str) -> tuple[Expectation, ...]:
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


def _raises(exception: str, pattern: str) -> tuple[Expectation, ...]:
    return (Expectation("raises", frozenset(), exception, pattern),)


_NO_GRADIENT = ("step-without-gradient", "step-after-zero-grad")
_PLAIN = ("unscale-of-plain", "step-on-mixed")

EXPECTATIONS: dict[str, tuple[Expectation, ...]] = {
    # It may stand at the `unscale_` before the step, and something else may have been scaled.
    "AMP101": _of("step-uninitialised", *_NO_GRADIENT, "step-on-spent")
    + _of("unscale-uninitialised", *_PLAIN),
    "AMP102": _of("step-after-zero-grad", "unscale-after-zero-grad"),
    "AMP103": _of(
        *("step-uninitialised", "unscale-uninitialised", *_NO_GRADIENT, "step-on-spent"),
        *("unscale-without-gradient", "unscale-after-zero-grad", "step-twice"),
        *("unscale-twice", "unscale-after-step"),
    ),
    "AMP104": _of("step-twice"),
    "AMP105": _of("step-twice", "unscale-after-step"),
    "AMP106": _of("update-without-check", "update-uninitialised"),
    "AMP107": _of("unscale-again"),
    "AMP108": _of("unscale-twice", "unscale-after-step"),
    "AMP109": _of(
        *("backward-after-unscale", "step-on-rescaled", "unscale-of-zeros"),
        "unscale-without-gradient",
    ),
    "AMP110": _of("clip-of-scaled"),
    "AMP112": _of("optimizer-step-on-scaled", "optimizer-step-on-mixed"),
    "AMP113": _of("unscale-uninitialised", "step-uninitialised", *_PLAIN),
    "AMP114": _of("step-uninitialised", *_NO_GRADIENT, *_PLAIN),
    "AMP116": _of("step-on-piled"),
    "AMP117": _of("step-uninitialised", "unscale-uninitialised", "update-without-check")
    + _of("unscale-of-plain", "unscale-again"),
    "AMP118": _raises("RuntimeError", "Closure use is not currently supported"),
    "AMP123": _raises("RuntimeError", "Trying to backward through the graph a second time"),
    "AMP124": _of("step-without-gradient"),
    "AMP125": _of("update-without-check", "step-without-gradient"),
    "AMP201": _of(
        *("step-uninitialised", "unscale-uninitialised", "update-uninitialised"),
        *("update-without-check", "step-twice", "unscale-twice", "unscale-after-step"),
        *(*_NO_GRADIENT, *_PLAIN, "optimizer-step-on-scaled", "clip-of-scaled"),
    ),
    "AMP202": _raises("AttributeError", "'NoneType' object has no attribute"),
    "AMP401": (
        Expectation(
            "raises",
            exception="ValueError",
            pattern="Attempting to unscale FP16 gradients",
            anywhere=True,
        ),
    ),
}


def predict(finding: Finding) -> tuple[Prediction, ...]:
    """What a run of the finding's code has to show; empty where no run can."""
    here = rows_of(finding)
    return tuple(
        Prediction(
            expected.kind,
            expected.exception,
            expected.pattern,
            () if expected.cause or expected.anywhere else here,
            expected.cause,
        )
        for expected in EXPECTATIONS.get(finding.code, ())
    )


def slugs_of(code: str) -> frozenset[str]:
    """The violations of the protocol that explain a finding of this code."""
    return frozenset().union(*(expected.slugs for expected in EXPECTATIONS.get(code, ())))


def rows_of(finding: Finding) -> tuple[int, ...]:
    """The rows that the finding's expression covers."""
    end = finding.span.end
    last = end.row if end.column > 1 or end.row == finding.span.start.row else end.row - 1
    return tuple(range(finding.span.start.row, last + 1))
