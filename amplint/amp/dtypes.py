"""torch's floating-point types in every spelling that programs use for them."""

from __future__ import annotations

from dataclasses import dataclass

#: How `torch.<name>` spells each type: `torch/__init__.py` and `torch/csrc/utils/tensor_dtypes`.
_TORCH_NAMES = {
    "float16": "float16",
    "half": "float16",
    "bfloat16": "bfloat16",
    "float32": "float32",
    "float": "float32",
    "float64": "float64",
    "double": "float64",
    "int64": "int64",
    "long": "int64",
    "int32": "int32",
    "int": "int32",
    "int16": "int16",
    "short": "int16",
    "int8": "int8",
    "uint8": "uint8",
    "bool": "bool",
}
#: How configurations name the types that a training may compute in, for `getattr(torch, name)`.
FLOATING_NAMES = ("float16", "bfloat16", "float32")
#: Tensor classes that name a type: `torch.cuda.HalfTensor`.
_TENSOR_CLASSES = {
    "HalfTensor": "float16",
    "BFloat16Tensor": "bfloat16",
    "FloatTensor": "float32",
    "DoubleTensor": "float64",
    "LongTensor": "int64",
    "IntTensor": "int32",
    "BoolTensor": "bool",
}
#: Words of configurations and command lines that are no names of torch.
_WORDS = {
    "fp16": "float16",
    "16": "float16",
    "bf16": "bfloat16",
    "fp32": "float32",
    "32": "float32",
    "single": "float32",
    "fp64": "float64",
}


@dataclass(frozen=True, slots=True)
class DType:
    """A torch dtype; `name` is canonical ("float16", never "half")."""

    name: str

    def __str__(self) -> str:
        return f"torch.{self.name}"


def torch_dtype(name: str) -> DType | None:
    """The dtype that `torch.<name>` is: "half" and "float16" give the same one."""
    known = _TORCH_NAMES.get(name)
    return DType(known) if known is not None else None


def dotted_dtype(dotted: str | None) -> DType | None:
    """The dtype of "torch.half" or "torch.cuda.HalfTensor"; None for any other name."""
    if dotted is None or not dotted.startswith("torch."):
        return None
    last = dotted.rpartition(".")[2]
    if dotted == f"torch.{last}" and last in _TORCH_NAMES:
        return torch_dtype(last)
    known = _TENSOR_CLASSES.get(last)
    return DType(known) if known is not None else None


def dtype_meant(content: object) -> str | None:
    """The dtype that a constant stands for: a dtype itself, or a word such as "fp16".

    Returns:
        A canonical name ("float16"), or None.
    """
    if isinstance(content, DType):
        return content.name
    if not isinstance(content, str):
        return None
    word = content.strip().lower().removeprefix("torch.")
    return _TORCH_NAMES.get(word) or _WORDS.get(word)
