"""What copies the numbers of a tensor, or reads them, and leaves its graph behind."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.code.dataflow import arguments, bindings_of
from amplint.code.expressions import last_name, path_text
from amplint.code.module import Function, walk

#: Methods and attributes whose result has no graph (`torch/_tensor.py`; amp-semantics B01 to B06).
DETACHING = {
    "detach": "detach",
    "detach_": "detach",
    "item": "item",
    "tolist": "item",
    "numpy": "numpy",
    "data": "data",
}
#: Functions that copy values and drop the graph.
COPYING = {
    "torch.tensor": "tensor",
    "numpy.array": "numpy",
    "numpy.asarray": "numpy",
    "float": "float",
    "int": "float",
}
_COPIES = frozenset(name.rpartition(".")[2] for name in COPYING)


def copies_handed_over(function: Function) -> Iterator[ast.Call]:
    """The calls of a function that are given a copy, or a name for one."""
    bound = bindings_of(function)
    copied = {
        name
        for name, bindings in bound.items()
        if any(item.value is not None and _copies(item.value) for item in bindings)
    }
    for node in function.nodes:
        if isinstance(node, ast.Call) and any(
            path_text(given) in copied or _copies(given) for given in arguments(node)
        ):
            yield node


def _copies(expression: ast.expr) -> bool:
    """Whether a copy without a graph is made in an expression, by the names of what is called."""
    parts = (node for node in walk(expression) if isinstance(node, (ast.Call, ast.Attribute)))
    names = (last_name(node.func if isinstance(node, ast.Call) else node) for node in parts)
    return any(name in DETACHING or name in _COPIES for name in names)
