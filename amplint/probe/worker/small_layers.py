"""Layers of torch with few weights, for models that are too large to run in seconds.

Shapes are not followed anyway: which parameter hangs on which loss, in which dtype, is the same.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch

#: Sizes above this one are made this.
LARGEST = 12
#: Parameters of constructors that are sizes.
SIZES = frozenset(
    {
        *("in_features", "out_features", "in1_features", "in2_features"),
        *("in_channels", "out_channels", "num_channels", "num_features"),
        *("num_embeddings", "embedding_dim", "embed_dim", "kdim", "vdim"),
        *("input_size", "hidden_size", "proj_size", "normalized_shape"),
        *("d_model", "dim_feedforward"),
    }
)
#: Parameters that have to divide those.
DIVISORS = frozenset({"groups", "num_groups", "num_heads", "nhead"})
LAYERS = tuple(
    getattr(torch.nn, name)
    for name in (
        *("Linear", "Bilinear", "Embedding", "EmbeddingBag", "LayerNorm", "GroupNorm"),
        *("Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"),
        *("BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm"),
        *("LSTM", "GRU", "RNN", "LSTMCell", "GRUCell", "MultiheadAttention"),
        *("TransformerEncoderLayer", "TransformerDecoderLayer", "Transformer"),
    )
)


def install() -> None:
    """Let every constructor of a layer make a small one."""
    for kind in LAYERS:
        _shrink(kind)


def _shrink(kind: Any) -> None:
    init = kind.__init__
    signature = inspect.signature(init)

    def new_init(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            bound = signature.bind(self, *args, **kwargs)
        except TypeError:
            init(self, *args, **kwargs)
            return
        for name, value in bound.arguments.items():
            if name in SIZES:
                bound.arguments[name] = _small(value)
            elif name in DIVISORS and isinstance(value, int):
                bound.arguments[name] = 1
            elif name == "padding_idx" and isinstance(value, int):
                bound.arguments[name] = None
        init(*bound.args, **bound.kwargs)

    kind.__init__ = new_init


def _small(value: Any) -> Any:
    if type(value) is int:
        return min(value, LARGEST)
    if isinstance(value, (list, tuple)):
        return type(value)(_small(entry) for entry in value)
    return value
