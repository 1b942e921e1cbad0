"""What sampled steps have shown: read from a record, summed up by module, and put into words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from amplint.live.catalogue import place

#: The largest float16; how far the largest gradient is below it is the headroom.
_LARGEST = 65504.0
#: From this share on, values that are lost are worth a line; so many modules are named.
_WORTH, _NAMED = 0.01, 3
_FLOAT16 = "torch.float16"
_KINDS = 6


@dataclass(frozen=True, slots=True)
class Look:
    """One sampled step: its update, and the norm of all gradients before and after unscaling."""

    scaler: int
    update: int
    before: float | None
    after: float | None


@dataclass(frozen=True, slots=True)
class Where:
    """Where the first value of a step arose that was not finite; see `forwards.Origin`."""

    update: int
    way: str
    module: str
    kind: str
    file: str
    row: int

    def words(self) -> str:
        """One phrase."""
        what = f"{self.way} {self.module or 'the model'} ({self.kind})" if self.kind else self.way
        at = (
            f", called at {place(self.file, self.row)}"
            if self.kind
            else f" at {place(self.file, self.row)}"
        )
        return f"{what}{at if self.file else ''}"


@dataclass(slots=True)
class Layer:
    """A module over all samples.

    Args:
        kinds: class, and dtypes of weights, outputs, gradients, optimizer states and reduction.
        values, zeros, tiny, bad: gradients that were looked at, and what they were: exactly 0,
            smaller than the smallest normal float16, inf or NaN. Steps with an inf or NaN count
            as bad only.
        top: the largest gradient of any step without one.
        compared, still: weights in half precision with a gradient, and those that did not move.
    """

    kinds: tuple[str, ...] = ("",) * _KINDS
    values: int = 0
    zeros: int = 0
    tiny: int = 0
    bad: int = 0
    top: float = 0.0
    compared: int = 0
    still: int = 0

    @property
    def is_float16(self) -> bool:
        """Whether gradients of this module may have been lost below float16."""
        return self.kinds[2] in (_FLOAT16, "") or self.kinds[3] == _FLOAT16

    @property
    def headroom(self) -> float | None:
        """How often the loss scale could double before the largest gradient overflows."""
        return math.log2(_LARGEST / self.top) if self.top > 0 else None


@dataclass(slots=True)
class Samples:
    """All of one process."""

    looks: list[Look] = field(default_factory=list)
    layers: dict[str, Layer] = field(default_factory=dict)
    origins: list[Where] = field(default_factory=list)
    is_compiled: bool = False
    failed: str = ""

    def take(self, line: dict[str, Any]) -> None:
        """A line of the record that is about samples."""
        kind = line["k"]
        if kind == "kinds":
            self.is_compiled = bool(line["compiled"])
            for name, kinds in line["m"].items():
                kinds = (*kinds, *[""] * _KINDS)[:_KINDS]  # older records have no reduction
                self.layers.setdefault(name, Layer()).kinds = tuple(map(str, kinds))
        elif kind == "sample":
            before, after = line["n"]
            self.looks.append(Look(line["s"], line["u"], before, after))
            for name, figures in line["m"].items():
                _add(self.layers.setdefault(name, Layer()), *figures)
        elif kind == "origin":
            place = (line["file"], line["row"])
            self.origins.append(Where(line["u"], line["way"], line["module"], line["kind"], *place))
        else:
            self.failed = line["words"]

    def lines(self) -> Iterator[str]:
        """What they show, in a few lines."""
        if self.failed:
            yield self.failed
        if not self.looks:
            return
        many = f"{len(self.looks)} sample" + ("" if len(self.looks) == 1 else "s")
        lost = self._worst(lambda layer: layer.tiny / layer.values if layer.is_float16 else 0.0)
        if lost:
            named = ", ".join(f"{share:.0%} of {name or 'the model'}" for name, share in lost)
            yield f"{many}: gradients smaller than float16 can hold exactly: {named}"
        else:
            yield f"{many}: no module with gradients smaller than float16 can hold exactly"
        still = self._worst(lambda layer: layer.still / layer.compared if layer.compared else 0.0)
        if still:
            named = ", ".join(f"{share:.0%} of {name or 'the model'}" for name, share in still)
            yield f"weights in half precision that a step did not move: {named}"
        if self.origins:
            first = self.origins[0]
            yield f"the first inf or NaN, before update {first.update}: {first.words()}"
        if self.is_compiled:
            yield "a part of the program is compiled, so modules were not looked at"

    def _worst(self, share: Any) -> list[tuple[str, float]]:
        shares = [(name, share(layer)) for name, layer in self.layers.items() if layer.values]
        worst = sorted((each for each in shares if each[1] >= _WORTH), key=lambda each: -each[1])
        return worst[:_NAMED]

    def as_json(self) -> dict[str, Any]:
        """Everything, for programs."""
        return {
            "steps": [asdict(look) for look in self.looks],
            "modules": {name: _layer_json(layer) for name, layer in self.layers.items()},
            "not_finite": [asdict(each) for each in self.origins],
            "compiled": self.is_compiled,
            "failed": self.failed,
        }


def _add(layer: Layer, *figures: Any) -> None:
    values, zeros, tiny, bad, top, compared, still = figures
    layer.compared += compared
    layer.still += still
    layer.bad += bad
    if bad or top is None:
        return
    layer.values += values
    layer.zeros += zeros
    layer.tiny += tiny
    layer.top = max(layer.top, top)


def _layer_json(layer: Layer) -> dict[str, Any]:
    names = ("class", "parameter", "ran", "gradient", "state", "reduction")
    figures = {key: value for key, value in asdict(layer).items() if key != "kinds"}
    return {**dict(zip(names, layer.kinds)), **figures, "headroom": layer.headroom}


def norms(looks: Sequence[Look]) -> str:
    """How large gradients were, in words."""
    known = [look for look in looks if look.after is not None]
    if not known:
        return "The norm of the gradients was not seen, or never finite."
    low, high = min(known, key=_after), max(known, key=_after)
    return (
        f"The norm of the unscaled gradients was between {_after(low):.3g} (update {low.update}) "
        f"and {_after(high):.3g} (update {high.update}), and {_after(known[-1]):.3g} at last."
    )


def _after(look: Look) -> float:
    return look.after or 0.0
