"""Calls of torch that clip gradients, whole or number by number, and the limits that they get."""

from __future__ import annotations

import ast
import math

from amplint.amp import names
from amplint.amp.view import AmpView
from amplint.code.expressions import path_text
from amplint.code.module import CallSite, Module
from amplint.code.tree import walk

_LIMITS = ("max_norm", "clip_value", "gradient_clip_val")
#: Methods that keep each number of a tensor between two limits, in place.
CLAMPS = frozenset(("clamp_", "clip_"))
#: The largest number of float16: who limits at it means what float16 can hold, not a size.
_LARGEST = 65504.0


def torch_clips(module: Module) -> list[CallSite]:
    """Calls of torch's own clipping functions in a file."""
    return module.once(_find_clips)


def _find_clips(module: Module) -> list[CallSite]:
    return [site for site in module.calls if site.dotted in names.CLIP_FUNCTIONS]


def has_other_limit(view: AmpView, clip: CallSite) -> bool:
    """Whether a clip's limit is infinite, so that it only measures, or mentions a scale."""
    limit = next((item.value for item in clip.node.keywords if item.arg in _LIMITS), None)
    if limit is None and len(clip.node.args) > 1:
        limit = clip.node.args[1]
    if limit is None:
        return False
    parts = (node for node in walk(limit) if isinstance(node, ast.expr))
    if any("scale" in (path_text(node) or "") for node in parts):
        return True
    return view.values.of(limit, clip.function).only() == math.inf


def says_the_same(limit: object) -> bool:
    """Whether a limit is none, or the same for scaled gradients as for others."""
    if not isinstance(limit, (int, float)):
        return limit is None
    return not limit or abs(limit) >= _LARGEST
