"""Whether a function takes part in a training, by the words that its code uses; cheap."""

from __future__ import annotations

import ast

from amplint.code.module import Function

#: One of them makes a function one that trains, or sets a training with AMP up.
_WORDS = frozenset(
    ("backward", "manual_backward", "unscale_", "get_scale", "GradScaler")
    + ("clip_grad_norm_", "clip_grad_value_")
)


def uses_training_words(function: Function) -> bool:
    """Whether the code of a function has such a word."""
    return function.once(_uses_words)


def _uses_words(function: Function) -> bool:
    return any(
        (node.attr if isinstance(node, ast.Attribute) else node.id) in _WORDS
        for node in function.nodes
        if isinstance(node, (ast.Name, ast.Attribute))
    )
