"""What a run can see: each broken rule with its code, its level, and words that hold figures.

The words tell what was measured in this run. A figure that nobody knows (a loss scale that only
the device knows) is left out.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from amplint.protocol import VIOLATIONS
from amplint.protocol.violations import BEYOND_THE_TABLE
from amplint.rules import TABLE

LEVELS = ("info", "warning", "error")
#: What a run cannot see, whatever the program does: what stands first is in each report's text.
UNSEEN = (
    "what runs inside a graph that was compiled or captured",
    "gradients that the program sets or changes by itself",
    "processes that were started without PYTHONPATH (`python -E`, `-I`, a cleaned environment)",
    "a scaler class that never calls the methods of torch's",
    "reading and writing attributes of a scaler",
    "what a program concludes from the loss scale",
    "numbers of an optimizer",
    "what hooks of an optimizer do",
    "weights that no optimizer holds",
    "what a program does with the value of a loss",
    "what a program does with a norm or a gradient",
    "dtypes inside a forward",
    "dtypes inside a loss",
    "casts of modules",
    "grad modes of modules",
    "schedulers",
    "what a program saves under which name",
    "a switch of the program that is set otherwise, and lines that did not run",
    "how an argument is given",
    "the age of a name",
    "the age of a library",
)
#: So many of them are in the text; the page and JSON have all.
FIRST_UNSEEN = 4


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that a run can tell.

    Args:
        code: the rule, "" where no rule of the static analysis has it.
        level: one of `LEVELS`.
        words: one sentence; "{scale}" is the loss scale, "{bound}" a threshold.
    """

    code: str
    level: str
    words: str


#: Of broken rules of the protocol's table that torch lets pass.
_SILENT = {
    "step-on-zeros": "the step applies zeros: the gradients were cleared after the backward",
    "unscale-without-gradient": "there is nothing to unscale: no backward has run yet",
    "unscale-after-zero-grad": "there is nothing to unscale: the gradients were cleared",
    "unscale-of-zeros": "zeros are unscaled; gradients of a later backward stay multiplied by "
    "the loss scale ({scale})",
    "unscale-of-plain": "gradients that were never scaled are divided by the loss scale ({scale})",
    "unscale-again": "gradients that are unscaled are divided by the loss scale ({scale}) again, "
    "because update() ran in between",
    "stale-scale": "gradients that were multiplied by {was} are divided by {scale}",
    "step-on-spent": "no backward ran since the last step: the old gradients are divided by the "
    "loss scale ({scale}) and applied again",
    "step-on-piled": "gradients of an earlier step lie below those of the last backward and are "
    "divided by the loss scale ({scale}) again",
    "step-on-mixed": "scaled and plain gradients were added; the plain part is divided by the "
    "loss scale ({scale})",
    "backward-after-unscale": "gradients multiplied by the loss scale ({scale}) are added to "
    "unscaled ones",
    "step-on-rescaled": "gradients are applied while multiplied by the loss scale ({scale})",
    "clip-of-scaled": "gradients are clipped while multiplied by the loss scale ({scale}): the "
    "threshold of {bound} acts as {effective}",
    "clip-of-spent": "gradients that a step has applied are clipped, which changes nothing",
    "optimizer-step-on-scaled": "the optimizer applies gradients multiplied by the loss scale "
    "({scale})",
    "optimizer-step-bypass": "the optimizer steps without the scaler, which therefore cannot skip "
    "gradients that are inf or NaN",
    "optimizer-step-twice": "the same gradients are applied a second time",
    "optimizer-step-on-mixed": "scaled and unscaled gradients were added together and are applied "
    "as they are (loss scale {scale})",
}

#: Of what no single transition of the table says.
_BESIDE = {
    "losses-mixed": Entry(
        "", "error", "a scaled and an unscaled loss were added and go backwards together"
    ),
    "foreign-scaler": Entry(
        "",
        "error",
        "gradients that one scaler multiplied by {was} are divided by another's {scale}",
    ),
    "fused-without-gradient": Entry(
        "AMP606", "warning", "a fused optimizer steps without any gradient, and torch lets it pass"
    ),
    "scaler-recreated": Entry(
        "AMP119",
        "warning",
        "the optimizer gets a new scaler of the same line: the loss scale was {was}, and is {scale} "
        "again",
    ),
    "scale-of-scaled": Entry(
        "AMP115", "error", "a loss that is scaled already is multiplied by {scale} again"
    ),
    "closure-by-position": Entry(
        "AMP118",
        "error",
        "the step gets a closure: gradients that it computes are applied as they are, unchecked "
        "(loss scale {scale})",
    ),
    "backward-under-autocast": Entry("AMP501", "info", "a backward runs inside an autocast region"),
    "island-backward-under-autocast": Entry(
        "AMP501",
        "warning",
        "a backward runs inside an autocast region in which a part had autocast switched off: the "
        "backward of that part runs in half precision",
    ),
    "step-under-autocast": Entry("AMP507", "info", "an optimizer steps inside an autocast region"),
    "training-loop-under-one-autocast": Entry(
        "AMP304",
        "error",
        "a backward feeds weights that were stepped before, inside one and the same autocast "
        "region: its forward has used copies of the weights from before that step",
    ),
    "weights-loaded-under-autocast": Entry(
        "",
        "error",
        "weights are loaded inside an autocast region that has half-precision copies of the ones "
        "before: the forward behind it computes with those",
    ),
    "autocast-re-entered": Entry(
        "AMP306",
        "warning",
        "one autocast object was entered twice, and leaving it has not restored what was before",
    ),
    "autocast-never-entered": Entry(
        "",
        "warning",
        "an autocast region is made and dropped here, and none was entered before three steps had "
        "run: all of it runs in full precision",
    ),
    "float16-without-scaler": Entry(
        "AMP206",
        "warning",
        "training runs in float16 regions without a gradient scaler: small gradients become zero",
    ),
    "bfloat16-with-scaler": Entry(
        "AMP402", "info", "a scaler is at work although all autocast regions are bfloat16"
    ),
    "scale-collapsed": Entry(
        "", "error", "the loss scale is {scale}: 1/scale is infinite, and NaN reaches the weights"
    ),
    "never-stepped": Entry(
        "AMP130",
        "warning",
        "gradients are unscaled and no optimizer steps: {rounds} updates of finite gradients have "
        "left the weights as they were",
    ),
    "always-cleared": Entry(
        "AMP102",
        "warning",
        "gradients are cleared before this step has them: {rounds} updates of finite gradients have "
        "left the weights as they were",
    ),
    "ended-at-overflow": Entry(
        "AMP129",
        "warning",
        "the program ends with {error} while its unscaled gradients are inf or NaN: the scaler would "
        "have skipped this step and halved the loss scale ({scale})",
    ),
    "never-finite": Entry(
        "", "warning", "20 steps in a row were skipped, at a loss scale of {scale} by now"
    ),
}

ENTRIES: Mapping[str, Entry] = {
    **{
        slug: Entry(violation.code, "error", _SILENT[slug])
        if not violation.raises
        else Entry(violation.code, "error", f"torch stops here: {violation.damage}")
        for slug, violation in VIOLATIONS.items()
    },
    **{
        slug: Entry(entry.code or BEYOND_THE_TABLE.get(slug, ""), entry.level, entry.words)
        for slug, entry in _BESIDE.items()
    },
}


def words(slug: str, facts: Mapping[str, Any]) -> str:
    """The sentence of a finding, with its figures; what is not known is "unknown"."""
    values = {"scale": None, "bound": None, "was": None, "rounds": None, "error": None, **facts}
    scale, bound = values["scale"], values["bound"]
    values["effective"] = bound / scale if scale and bound is not None else None
    shown = {name: _figure(value) for name, value in values.items()}
    return ENTRIES[slug].words.format(**shown)


def _figure(value: Any) -> str:
    if isinstance(value, str):
        return value
    return f"{value:.6g}" if isinstance(value, (int, float)) else "unknown"


def headline(slug: str, file: str, row: int, facts: Mapping[str, Any]) -> str:
    """A finding in one line, as it is told at once."""
    entry = ENTRIES[slug]
    rule = TABLE.get(entry.code, slug).replace("_", "-")
    name = f"{entry.code} {rule}".strip()
    return f"{place(file, row)}: {entry.level}: {name}: {words(slug, facts)}"


def reaches(level: str, threshold: str) -> bool:
    """Whether a level is at or above another one."""
    return LEVELS.index(level) >= LEVELS.index(threshold)


def place(file: str, row: int) -> str:
    """A place, relative to the working directory where it lies below."""
    if not file:
        return "no line of yours"
    with contextlib.suppress(OSError, ValueError):
        relative = os.path.relpath(file)
        file = file if relative.startswith(os.pardir) else relative
    return f"{file}:{row}"
