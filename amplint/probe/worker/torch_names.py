"""Functions of torch by their names, in groups that soft tensors treat alike."""

from __future__ import annotations

import re

#: Operations that autocast runs in its lower precision (torch's autocast lists; the name is
#: that of the Python function).
LOWER = frozenset(
    [
        "linear",
        "matmul",
        "__matmul__",
        "__rmatmul__",
        "mm",
        "bmm",
        "mv",
        "addmm",
        "addbmm",
        "baddbmm",
        "addmv",
        "einsum",
        "chain_matmul",
        "conv1d",
        "conv2d",
        "conv3d",
        "conv_transpose1d",
        "conv_transpose2d",
        "conv_transpose3d",
        "conv_tbc",
        "prelu",
        "scaled_dot_product_attention",
        "multi_head_attention_forward",
        "lstm",
        "gru",
        "rnn_tanh",
        "bilinear",
    ]
)
#: Operations that autocast runs in float32 on CUDA; on the CPU some of them stay in half.
FULL = frozenset(
    [
        "acos",
        "asin",
        "cosh",
        "erfinv",
        "sinh",
        "tan",
        "softmin",
        "__rpow__",
        "__rtruediv__",
        "__rdiv__",
        "normalize",
        "binary_cross_entropy_with_logits",
        "cosine_embedding_loss",
        "cross_entropy",
        "hinge_embedding_loss",
        "kl_div",
        "l1_loss",
        "margin_ranking_loss",
        "mse_loss",
        "multilabel_margin_loss",
        "multi_margin_loss",
        "nll_loss",
        "pdist",
        "poisson_nll_loss",
        "smooth_l1_loss",
        "soft_margin_loss",
        "triplet_margin_loss",
        "softmax",
        "log_softmax",
        "exp",
        "expm1",
        "log",
        "log10",
        "log2",
        "log1p",
        "pow",
        "__pow__",
        "prod",
        "sum",
        "norm",
        "cumsum",
        "cumprod",
        "layer_norm",
        "group_norm",
        "cosine_similarity",
        "renorm",
        "dist",
        "cdist",
        "softplus",
        "rsqrt",
        "reciprocal",
    ]
)
#: Results of these are facts about data, not data: their truth is never a free choice.
EXACT = frozenset(
    ["isnan", "isinf", "isfinite", "isneginf", "isposinf", "any", "all", "equal", "allclose"]
)
#: Results of these never have a gradient.
INDEXES = frozenset(
    [
        "argmax",
        "argmin",
        "argsort",
        "bincount",
        "bucketize",
        "count_nonzero",
        "histc",
        "multinomial",
        "nonzero",
        "one_hot",
        "round",
        "searchsorted",
        "sign",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "__eq__",
        "__ne__",
        "__lt__",
        "__le__",
        "__gt__",
        "__ge__",
        "isin",
        "logical_and",
        "logical_or",
        "logical_not",
    ]
)
#: These make data, whose size may be an invented number that makes no sense.
FACTORIES = frozenset(
    [
        "randint",
        "randperm",
        "arange",
        "linspace",
        "zeros",
        "ones",
        "empty",
        "full",
        "rand",
        "randn",
        "tensor",
        "as_tensor",
        "stack",
        "cat",
    ]
)
#: These give values and their indices: along a dimension, or always.
ALONG = frozenset({"max", "min", "median", "nanmedian"})
PAIRS = frozenset({"sort", "topk", "mode", "kthvalue", "cummax", "cummin"})
#: These may never be replaced by an approximation: their failure is what a probe looks for.
STRICT = frozenset({"backward", "grad", "unscale_"})
#: Operations whose second argument is a mask.
MASKED = frozenset({"masked_fill", "masked_fill_"})
#: What torch says about a dtype whatever the shapes are.
ABOUT_DTYPES = re.compile("without overflow|unsafe to autocast")
