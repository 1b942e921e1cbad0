"""Loss scales and norms over the updates, drawn as SVG that a screen reader can tell."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import NamedTuple

from amplint.live.merge import Round, Seen
from amplint.live.samples import Look

#: Drawing area, in the units of the view box.
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 720, 220, 56, 28, 12
#: A longer curve is thinned to its lowest and highest in so many parts, so that spikes stay.
_PARTS = 1000


class Point(NamedTuple):
    """A figure that is known after an update."""

    update: int
    value: float


def thinned(points: Sequence[Point]) -> list[Point]:
    """What a curve needs: all, or of each part the lowest and the highest."""
    if len(points) <= 2 * _PARTS:
        return list(points)
    size = math.ceil(len(points) / _PARTS)
    kept: list[Point] = []
    for start in range(0, len(points), size):
        part = points[start : start + size]
        kept.extend(sorted({min(part, key=_value), max(part, key=_value)}))
    return kept


def sentence(rounds: Sequence[Round]) -> str:
    """What the curve shows, in words."""
    known = [each for each in rounds if each.scale is not None]
    skips = [each for each in rounds if each.skipped]
    if not known:
        return f"{len(rounds)} updates; the loss scale was known to the device alone."
    low, high = min(known, key=_scale), max(known, key=_scale)
    words = [f"{len(rounds)} updates"]
    if low.scale == high.scale:
        words.append(f"the loss scale was {low.scale:g} all the time")
    else:
        words.append(
            f"the loss scale was lowest after update {low.update} ({low.scale:g}), highest after "
            f"update {high.update} ({high.scale:g}), and {known[-1].scale:g} at the end"
        )
    if skips:
        words.append(
            f"{len(skips)} steps were skipped, the first before update {skips[0].update}, the last "
            f"before update {skips[-1].update}"
        )
    else:
        words.append("no step was skipped")
    return "; ".join(words) + "."


def scales(rounds: Sequence[Round], findings: Sequence[Seen], name: str) -> Iterator[str]:
    """The loss scale, with a tick for each skip and a mark for each finding.

    Args:
        findings: those of this process.
        name: unique in the page; it ties title and drawing together.
    """
    points = [Point(each.update, each.scale) for each in rounds if each.scale is not None]
    skips = [each.update for each in rounds if each.skipped]
    about = _About("Loss scale by update", sentence(rounds), name)
    yield from _svg(about, {"scale": points}, skips, findings)


def norms(looks: Sequence[Look], words: str, name: str) -> Iterator[str]:
    """The norm of the gradients before (dashed) and after they were unscaled.

    A tick stands for a sample whose norm was inf, NaN or not known.

    Args:
        words: what the curve shows.
        name: unique in the page.
    """
    lines = {
        "before": [Point(each.update, each.before) for each in looks if each.before is not None],
        "scale": [Point(each.update, each.after) for each in looks if each.after is not None],
    }
    bad = [each.update for each in looks if each.after is None]
    words = f"{words} The dashed line is the norm before unscaling."
    yield from _svg(_About("Norm of the gradients by update", words, name), lines, bad, ())


class _About(NamedTuple):
    title: str
    words: str
    name: str


def _svg(
    about: _About,
    lines: Mapping[str, Sequence[Point]],
    ticks: Sequence[int],
    findings: Sequence[Seen],
) -> Iterator[str]:
    """Lines on a logarithmic axis, ticks below them, and marks above; nothing without a point.

    Args:
        lines: by class.
        ticks: updates.
    """
    points = [point for line in lines.values() for point in line]
    if not points:
        return
    last = max([point.update for point in points] + list(ticks))
    axis = _Axis(points, last)
    name = about.name
    yield (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-labelledby="{name}-t {name}-d">'
        f'<title id="{name}-t">{escape(about.title)}</title>'
        f'<desc id="{name}-d">{escape(about.words)}</desc>'
    )
    for exponent in axis.ticks():
        y = axis.y(2.0**exponent)
        yield f'<line class="grid" x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH}" y2="{y:.1f}"/>'
        yield f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">2^{exponent}</text>'
    for kind, line in lines.items():
        shown = thinned(line) * (
            2 if len(line) == 1 else 1
        )  # a line from a point to itself is a dot
        path = " ".join(f"{axis.x(u):.1f},{axis.y(value):.1f}" for u, value in shown)
        yield f'<polyline class="{kind}" points="{path}"/>'
    floor = _HEIGHT - _BOTTOM
    for update in ticks[:: max(1, len(ticks) // _PARTS)]:  # no more than can be told apart
        x = axis.x(update)
        yield f'<line class="skip" x1="{x:.1f}" y1="{floor}" x2="{x:.1f}" y2="{floor - 9}"/>'
    for found in findings:
        x = axis.x(min(max(found.first + 1, 1), last))
        yield (
            f'<path class="{found.level}" d="M{x:.1f} {_TOP} l-5 -9 h10 z">'
            f"<title>{escape(found.code or found.slug)} after update {found.first}</title></path>"
        )
    yield f'<text x="{_LEFT}" y="{_HEIGHT - 8}">update 1</text>'
    yield f'<text x="{_WIDTH}" y="{_HEIGHT - 8}" text-anchor="end">update {last}</text></svg>'


class _Axis:
    """From updates and figures to the drawing."""

    def __init__(self, points: Sequence[Point], last: int) -> None:
        logs = [math.log2(value) for _, value in points if 0 < value < math.inf]
        self._low = math.floor(min(logs, default=0)) - 1
        self._high = math.ceil(max(logs, default=0)) + 1
        self._last = max(last, 2)

    def x(self, update: int) -> float:
        return _LEFT + (_WIDTH - _LEFT) * (update - 1) / (self._last - 1)

    def y(self, value: float) -> float:
        level = math.log2(value) if 0 < value < math.inf else self._end(value)
        share = (level - self._low) / (self._high - self._low)
        return _HEIGHT - _BOTTOM - (_HEIGHT - _BOTTOM - _TOP) * share

    def _end(self, value: float) -> int:
        return self._high if value > 0 else self._low

    def ticks(self) -> range:
        return range(self._low, self._high + 1, max(1, (self._high - self._low) // 6))


def _value(point: Point) -> float:
    return point.value


def _scale(entry: Round) -> float:
    return entry.scale or 0.0
