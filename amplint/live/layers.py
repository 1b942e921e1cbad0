"""Sampled steps as parts of the page: norms, gradients by module, the map of dtypes."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from amplint.live import curve
from amplint.live.samples import Layer, Samples, norms

#: Rows of the table of norms.
_ROWS = 200
#: Width of a bar, in the units of its view box.
_FULL = 100


def sections(samples: Samples, name: str, tie: str) -> Iterator[str]:
    """What samples of one process show; nothing where there are none.

    Args:
        name: of the process.
        tie: unique in the page.
    """
    lines = list(samples.lines())
    if not lines:
        return
    yield f"<h3>{escape(name)}</h3><ul>"
    for line in lines:
        yield f"<li>{escape(line[0].upper() + line[1:])}</li>"
    yield f"</ul><p>{escape(norms(samples.looks))}</p>"
    yield from curve.norms(samples.looks, norms(samples.looks), tie)
    yield from _norm_table(samples)
    half = {key: layer for key, layer in samples.layers.items() if layer.values or layer.bad}
    if half:
        yield from _gradients(half)
    kinds = {key: layer for key, layer in samples.layers.items() if any(layer.kinds)}
    if kinds:
        yield from _dtypes(kinds)


def _norm_table(samples: Samples) -> Iterator[str]:
    yield "<details><summary>Norms of the gradients</summary><div class=wide><table>"
    yield "<tr><th scope=col>update<th scope=col>before unscaling<th scope=col>after</tr>"
    for look in samples.looks[-_ROWS:]:
        yield f"<tr><td>{look.update}<td>{_figure(look.before)}<td>{_figure(look.after)}</tr>"
    shown = min(len(samples.looks), _ROWS)
    yield f"</table></div><p>The last {shown} of {len(samples.looks)} samples.</p></details>"


def _gradients(layers: dict[str, Layer]) -> Iterator[str]:
    """Underflow by module, worst first; the bar says what the figure beside it says."""
    yield "<h4>Gradients by module, while multiplied by the loss scale</h4>"
    yield "<p>Too small: not zero, and smaller than the smallest normal float16 (2^-14), so that "
    yield "digits are lost. Zeros may be meant, or lost. Headroom: how often the loss scale could "
    yield "double. Not moved: weights in half precision that a step left as they were.</p>"
    yield "<div class=wide><table><tr><th scope=col>module<th scope=col colspan=2>too small"
    yield "<th scope=col>zeros<th scope=col>inf or NaN<th scope=col>headroom<th scope=col>not moved</tr>"
    order = sorted(layers.items(), key=lambda item: -_share(item[1].tiny, item[1].values))
    for name, layer in order:
        small = _share(layer.tiny, layer.values)
        moved = _percent(layer.still, layer.compared) if layer.compared else ""
        room = "" if layer.headroom is None else f"{layer.headroom:.1f}"
        yield (
            f"<tr><th scope=row><code>{escape(name or 'the model')}</code>"
            f"<td>{_percent(layer.tiny, layer.values)}<td>{_bar(small)}"
            f"<td>{_percent(layer.zeros, layer.values)}<td>{layer.bad}<td>{room}<td>{moved}</tr>"
        )
    yield "</table></div>"


def _dtypes(layers: dict[str, Layer]) -> Iterator[str]:
    yield "<h4>Dtypes</h4><div class=wide><table><tr><th scope=col>module<th scope=col>class"
    yield "<th scope=col>weights<th scope=col>ran in<th scope=col>gradients<th scope=col>optimizer"
    yield "<th scope=col>reduction, as configured</tr>"
    for name, layer in layers.items():
        cells = "".join(f"<td>{escape(kind.removeprefix('torch.'))}" for kind in layer.kinds)
        yield f"<tr><th scope=row><code>{escape(name or 'the model')}</code>{cells}</tr>"
    yield "</table></div>"


def _bar(share: float) -> str:
    return (
        f'<svg class=bar viewBox="0 0 {_FULL} 10" aria-hidden="true">'
        f'<rect width="{_FULL * share:.1f}" height="10"/></svg>'
    )


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _percent(part: int, whole: int) -> str:
    return f"{_share(part, whole):.1%}" if whole else "unknown"


def _figure(value: float | None) -> str:
    return "not known or not finite" if value is None else f"{value:.4g}"
