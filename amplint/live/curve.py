"""The loss scale of one scaler over its updates, drawn as SVG that a screen reader can tell."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from amplint.live.merge import Round, Seen

#: Drawing area, in the units of the view box.
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 720, 220, 56, 28, 12
#: A longer curve is thinned to its lowest and highest in so many parts, so that spikes stay.
_PARTS = 1000


def thinned(rounds: Sequence[Round]) -> list[Round]:
    """The rounds that a curve needs: of each part the lowest and the highest scale."""
    known = [each for each in rounds if each.scale is not None]
    if len(known) <= 2 * _PARTS:
        return known
    size = math.ceil(len(known) / _PARTS)
    kept: list[Round] = []
    for start in range(0, len(known), size):
        part = known[start : start + size]
        ends = {id(each): each for each in (min(part, key=_scale), max(part, key=_scale))}
        kept.extend(sorted(ends.values(), key=lambda each: each.update))
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


def svg(rounds: Sequence[Round], findings: Sequence[Seen], name: str) -> Iterator[str]:
    """The curve on a logarithmic axis, with a tick for each skip and a mark for each finding.

    Args:
        findings: those of this process.
        name: unique in the page; it ties title and drawing together.
    """
    points = thinned(rounds)
    if not points:
        return
    last = rounds[-1].update
    axis = _Axis(points, last)
    yield (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-labelledby="{name}-t {name}-d">'
        f'<title id="{name}-t">Loss scale by update</title>'
        f'<desc id="{name}-d">{escape(sentence(rounds))}</desc>'
    )
    for exponent in axis.ticks():
        y = axis.y(2.0**exponent)
        yield f'<line class="grid" x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH}" y2="{y:.1f}"/>'
        yield f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">2^{exponent}</text>'
    path = " ".join(f"{axis.x(each.update):.1f},{axis.y(_scale(each)):.1f}" for each in points)
    yield f'<polyline class="scale" points="{path}"/>'
    floor = _HEIGHT - _BOTTOM
    for each in _spread([r for r in rounds if r.skipped]):
        x = axis.x(each.update)
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
    """From updates and scales to the drawing."""

    def __init__(self, points: Sequence[Round], last: int) -> None:
        logs = [math.log2(_scale(each)) for each in points if _scale(each) > 0]
        self._low = math.floor(min(logs, default=0)) - 1
        self._high = math.ceil(max(logs, default=0)) + 1
        self._last = max(last, 2)

    def x(self, update: int) -> float:
        return _LEFT + (_WIDTH - _LEFT) * (update - 1) / (self._last - 1)

    def y(self, scale: float) -> float:
        level = math.log2(scale) if scale > 0 else self._low
        share = (level - self._low) / (self._high - self._low)
        return _HEIGHT - _BOTTOM - (_HEIGHT - _BOTTOM - _TOP) * share

    def ticks(self) -> range:
        return range(self._low, self._high + 1, max(1, (self._high - self._low) // 6))


def _spread(skips: Sequence[Round]) -> Sequence[Round]:
    """No more marks than can be told from each other."""
    return skips[:: max(1, len(skips) // _PARTS)]


def _scale(entry: Round) -> float:
    return entry.scale or 0.0
