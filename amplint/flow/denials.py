"""What a path says is None, and uses all the same: Python raises there, whatever else goes wrong.

`if self.model is not None:` around what clears the gradients leaves no path without a model that
steps: the loss was computed by `self.model(...)`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from amplint.code.expressions import is_none, path_text
from amplint.code.layout import Layout, layout_of
from amplint.code.module import Function, walk
from amplint.code.unbound import always_runs
from amplint.flow.conditions import evaluate
from amplint.flow.events import Site
from amplint.flow.reader import Reader
from amplint.flow.state import State, Step

#: What reads something of an object, or runs it.
_USES = (ast.Attribute, ast.Subscript, ast.Call)


def uses_what_it_denies(reader: Reader, steps: Sequence[Step], site: Site, state: State) -> bool:
    """Whether a path runs an expression that needs an object which is None by a test on it.

    Args:
        steps: of the path, oldest first.
        site: where it ends. Its scaler may be None: that is then what is found.
        state: in which it ends; what merged paths do not share is not known there.
    """
    for index, (kind, test, function, *_) in enumerate(steps):
        if kind != "assume" or test not in layout_of(function):
            continue
        run = [step[1] for step in steps[index:] if step[2] is function and step[0] == "event"]
        run += [site.node] if site.function is function else []
        places = set(_denied(reader, test, function, state)) - {site.scaler_text}
        if any(_needs(layout_of(function), test, place, run) for place in places):
            return True
    return False


def _denied(reader: Reader, test: ast.expr, function: Function, state: State) -> Iterator[str]:
    """The places that a test compares with None, and that are None."""
    for part in walk(test):
        if not isinstance(part, ast.Compare) or not is_none(part.comparators[0]):
            continue
        place = path_text(part.left)
        is_so = evaluate(reader.formula(part, state, function), state)
        if place is not None and is_so is isinstance(part.ops[0], (ast.Is, ast.Eq)):
            yield place


def _needs(layout: Layout, test: ast.AST, place: str, run: Iterable[ast.AST]) -> bool:
    """Whether whatever ran some nodes has used a place, which nothing binds but before the test."""
    named = [node for node in layout.nodes if isinstance(node, (ast.Name, ast.Attribute))]
    bound = [node for node in named if not isinstance(node.ctx, ast.Load)]
    if any(path_text(node) == place and not layout.dominates(node, test) for node in bound):
        return False
    uses = [
        node
        for node in layout.nodes
        if isinstance(node, _USES)
        and path_text(node.func if isinstance(node, ast.Call) else node.value) == place
        and always_runs(layout, node)
    ]
    done = [node for node in run if node in layout]
    return any(
        layout.holds(node, use) or layout.dominates(use, node) for use in uses for node in done
    )
