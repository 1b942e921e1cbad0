"""What a run has to show before it can confirm a finding: one table, code -> expectations.

Exceptions and damages of the protocol are those of `amplint.protocol.violations`. What is no
transition of it is either an exception of torch, or measured: see `amplint.probe.measurements`.
`NOT_PROBED` says of every other code why one short run on stand-ins cannot show it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

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
        device: the kind of device that it needs, "" for any.
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
    device: str = ""

    def fits(self, device: str) -> bool:
        """Whether a run on this device ("cpu", "cuda:0") can show it."""
        return self.device in ("", device.partition(":")[0])


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


def _raises(exception: str, pattern: str, **more: Any) -> tuple[Expectation, ...]:
    """An exception of torch at the finding's rows."""
    return (Expectation("raises", frozenset(), exception, pattern, **more),)


def _caused(
    without: str, exception: str, pattern: str, relies_on: str = "objects", **more: Any
) -> tuple[Expectation, ...]:
    """An exception of torch anywhere, which is gone if something at the rows is left out."""
    return _raises(exception, pattern, anywhere=True, without=without, relies_on=relies_on, **more)


def _measured(kind: str, relies_on: str = "objects", **more: Any) -> tuple[Expectation, ...]:
    """Something that `amplint.probe.measurements` finds in a run."""
    return (Expectation(kind, relies_on=relies_on, **more),)


_NO_GRADIENT = ("step-without-gradient", "step-after-zero-grad")
_PLAIN = ("unscale-of-plain", "step-on-mixed")
_NO_GRAPH = ("RuntimeError", "does not require grad")
_INFERENCE = ("RuntimeError", "Inference tensors cannot be saved for backward")
#: What `torch.autocast` says about its arguments.
_AUTOCAST = (
    r"missing 1 required positional argument: 'device_type'|Expected `device_type` of type `str`"
    r"|device type at start of device string|unsupported autocast device_type"
    r"|unexpected keyword argument"
)
#: What torch says about targets whose dtype or shape no loss can take.
_TARGET = (
    r"expected scalar type|must match the size|should be the same|Found dtype|can't be cast"
    r"|not implemented for|Expected floating point type|Target size|size mismatch|but got"
)
_STEPS = frozenset({"step", "plain-step"})
_HALF_GRADIENTS = ("ValueError", "Attempting to unscale FP16 gradients")

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
    "AMP104": _of("step-twice") + _measured("applied-twice", "protocol"),
    "AMP105": _of("step-twice", "unscale-after-step"),
    "AMP106": _of("update-without-check", "update-uninitialised"),
    "AMP107": _of("unscale-again"),
    "AMP108": _of("unscale-twice", "unscale-after-step"),
    "AMP109": _of(
        *("backward-after-unscale", "step-on-rescaled", "unscale-of-zeros"),
        "unscale-without-gradient",
    ),
    "AMP110": _of("clip-of-scaled"),
    "AMP112": _of("optimizer-step-on-scaled", "optimizer-step-on-mixed")
    + _measured("applied-nan", "protocol"),
    "AMP113": _of("unscale-uninitialised", "step-uninitialised", *_PLAIN),
    "AMP114": _of("step-uninitialised", *_NO_GRADIENT, *_PLAIN),
    "AMP116": _of("step-on-piled"),
    "AMP117": _of("step-uninitialised", "unscale-uninitialised", "update-without-check")
    + _of("unscale-of-plain", "unscale-again"),
    # By its place among the arguments, the closure is called when the scaler has failed already.
    "AMP118": _raises("RuntimeError", "Closure use is not currently supported")
    + _of("step-uninitialised"),
    "AMP119": _measured("rebuilt"),
    "AMP123": _raises(
        "RuntimeError",
        "Trying to backward through the graph a second time",
        without="freed-graphs",
        everywhere=True,
    ),
    "AMP124": _of("step-without-gradient"),
    "AMP125": _of("update-without-check", "step-without-gradient"),
    "AMP127": _measured("idle-clip", "protocol", without="clips"),
    "AMP201": _of(
        *("step-uninitialised", "unscale-uninitialised", "update-uninitialised"),
        *("update-without-check", "step-twice", "unscale-twice", "unscale-after-step"),
        *(*_NO_GRADIENT, *_PLAIN, "optimizer-step-on-scaled", "clip-of-scaled"),
    ),
    "AMP202": _raises("AttributeError", "'NoneType' object has no attribute"),
    "AMP208": _measured("bool-scale", "place"),
    "AMP209": _raises("TypeError|ValueError|RuntimeError", _AUTOCAST, relies_on="place"),
    "AMP301": _caused("grad-modes", *_NO_GRAPH)
    + _caused("grad-modes", *_INFERENCE)
    + _measured("no-gradient", without="grad-modes"),
    "AMP302": _caused("copies", *_NO_GRAPH)
    + _caused("copies", "ValueError", "outputs must be a Tensor")
    + _caused("copies", "AssertionError", "No inf checks were recorded for this optimizer"),
    "AMP303": _caused("grad-modes", *_NO_GRAPH),
    "AMP304": _measured("stale-weights", events=_STEPS),
    "AMP305": _measured("no-gradient", without="autocast-cache"),
    "AMP306": _measured("leaking-region", "place"),
    "AMP307": _caused("inference-mode", *_INFERENCE, everywhere=True),
    "AMP401": _raises(*_HALF_GRADIENTS, anywhere=True),
    "AMP402": _measured("idle-scaler"),
    "AMP403": _measured("half-weights", without="casts"),
    "AMP404": _caused("casts", "RuntimeError|ValueError", _TARGET, "place", shapes=True),
    "AMP405": _caused("casts", *_HALF_GRADIENTS, "protocol"),
    "AMP501": _measured("in-region", "place", events=frozenset({"backward"})),
    "AMP502": _raises("RuntimeError", "unsafe to autocast", relies_on="place", device="cuda"),
    "AMP503": _raises(
        *("RuntimeError", "without overflow"),
        relies_on="objects",
        without="autocast",
        everywhere=True,
    ),
    "AMP504": _measured("vanishing"),
    "AMP507": _measured("in-region", "place", events=_STEPS),
}

_NOTHING_TO_RUN = "it is about the spelling of the API: nothing goes wrong in a run"
_IN_A_LIBRARY = "it goes wrong inside a training library, which the probe does not load"
#: Why one short run on stand-ins cannot show what a rule warns of.
NOT_PROBED: dict[str, str] = {
    "AMP000": "the file cannot be read",
    "AMP111": "what the scaled number decides depends on your data and thresholds",
    "AMP115": "only the logged or returned number is wrong, not the training",
    "AMP120": "it shows only when training is resumed from a checkpoint",
    "AMP121": "a skipped step shifts the schedule by one: no single run is wrong",
    "AMP122": "it shows only when another mistake raises inside the `try`",
    "AMP126": "nothing in training changes: the test is about a step that was skipped",
    "AMP128": "nothing goes wrong until torch changes its private names",
    "AMP129": "whether gradients overflow depends on your model and data",
    "AMP130": "a run of one function does not show that no other one steps",
    "AMP203": "it shows only on a machine without that device",
    "AMP204": "small gradients that vanish in float16 depend on your model and data",
    "AMP205": "it shows only on the device that the model really runs on",
    "AMP206": "small gradients that vanish in float16 depend on your model and data",
    "AMP207": "nothing goes wrong: the scaler only costs time",
    "AMP210": "it needs a GPU older than Ampere",
    "AMP211": "the switches are torch's own, and a run would leave them changed",
    "AMP406": "which weights a step is too small for depends on their size, and stand-ins are small",
    "AMP407": "one update is too little to see that an average stands still",
    "AMP502": "it needs a GPU: autocast forbids binary cross entropy on CUDA, not on the CPU",
    "AMP505": "the matrix products of a custom function need the shapes of your data",
    "AMP506": "it needs at least two GPUs",
    "AMP509": "the sequences of a run are short",
    "AMP512": "which dtypes meet depends on your layers",
    "AMP601": _IN_A_LIBRARY,
    "AMP602": _IN_A_LIBRARY,
    "AMP603": _IN_A_LIBRARY,
    "AMP604": "it needs several processes with a GPU each",
    "AMP605": _IN_A_LIBRARY,
    "AMP606": "it needs a fused optimizer on a GPU",
    "AMP608": _IN_A_LIBRARY,
    "AMP609": _IN_A_LIBRARY,
    "AMP611": _IN_A_LIBRARY,
    "AMP801": _NOTHING_TO_RUN,
    "AMP802": _NOTHING_TO_RUN,
    "AMP900": "it is about a comment",
}


def can_show(code: str, device: str) -> bool:
    """Whether a run on this device ("cpu", "cuda:0") can show a finding of this code."""
    return any(expected.fits(device) for expected in EXPECTATIONS.get(code, ()))


def needs_data(code: str) -> bool:
    """Whether what a finding of this code shows depends on shapes or dtypes of data."""
    return any(expected.shapes for expected in EXPECTATIONS.get(code, ()))


def why_not(code: str) -> str:
    """Why a finding of this code is not probed, as a sentence without its full stop."""
    return NOT_PROBED.get(code, "no run is known that would show it")


def predict(finding: Finding) -> tuple[Prediction, ...]:
    """What a run of the finding's code has to show, on whatever device; empty where none can."""
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
