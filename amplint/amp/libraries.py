"""What training libraries do to the protocol: one row for each call, looked up by dotted name.

Each of these libraries runs a gradient scaler of its own behind calls that look harmless, or
that look like misuses: `accelerator.backward(loss)` scales, a plain `optimizer.step()` of a
prepared optimizer unscales. A row says what one call does, in order, and where its source can
be read. A call that is not here does nothing to gradients.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from dataclasses import dataclass


class Effect(enum.Enum):
    """What a library's call does to gradients or to its scaler."""

    SCALE = "scale"  # returns or hands out a scaled loss
    BACKWARD = "backward"  # on a loss that the library scales itself, if it has a scaler
    UNSCALE = "unscale"
    CLIP = "clip"
    STEP = "step"
    UPDATE = "update"
    ZERO_GRAD = "zero_grad"
    TAKE_OVER = "take_over"  # returns optimizers that the library scales for from now on


@dataclass(frozen=True, slots=True)
class LibraryCall:
    """One method or function of a library.

    Args:
        owner: the class, or the module of a function: "accelerate.Accelerator".
        name: "backward"; "__call__" for an object that is called.
        effects: what it does, in order. Conditions (accumulation, a disabled scaler) are left
            out: these effects are possible, no others are.
        source: package, file and function that show it.
        optimizer: the argument that is the optimizer: position and keyword, from 0.
        boundary: the argument that says whether unscale, step and update are due, likewise;
            they are if it is not given.
    """

    owner: str
    name: str
    effects: tuple[Effect, ...]
    source: str
    optimizer: tuple[int, str] | None = None
    boundary: tuple[int, str] | None = None


@dataclass(frozen=True, slots=True)
class LibraryClass:
    """A class of a library.

    Args:
        name: its canonical dotted name.
        aliases: other dotted names under which it is imported.
        usual: what variables that hold an instance are called.
        owns_scaler: whether an instance may scale losses by itself.
        inherited: whether projects subclass it; its calls are then `self.<name>`.
        always_on: the attribute with the scaler of an instance, if that scaler is always on.
            Then the effects of its calls are certain, else only possible.
    """

    name: str
    aliases: tuple[str, ...] = ()
    usual: re.Pattern[str] | None = None
    owns_scaler: bool = True
    inherited: bool = False
    always_on: str = ""


def _named(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


CLASSES = (
    LibraryClass(
        "accelerate.Accelerator",
        ("accelerate.accelerator.Accelerator",),
        _named(r"^_?accelerator$"),
    ),
    LibraryClass("accelerate.optimizer.AcceleratedOptimizer"),
    LibraryClass(
        "lightning.fabric.Fabric",
        ("lightning.Fabric", "lightning_fabric.Fabric", "lightning.fabric.fabric.Fabric"),
        _named(r"^_?fabric$"),
    ),
    LibraryClass(
        "lightning.pytorch.LightningModule",
        (
            "lightning.LightningModule",
            "pytorch_lightning.LightningModule",
            "lightning.pytorch.core.module.LightningModule",
            "pytorch_lightning.core.lightning.LightningModule",
        ),
        inherited=True,
    ),
    LibraryClass(
        "lightning.pytorch.Trainer",
        ("lightning.Trainer", "pytorch_lightning.Trainer"),
        _named(r"^_?trainer$"),
    ),
    LibraryClass("mmengine.optim.OptimWrapper", (), _named(r"optim_wrapper"), owns_scaler=False),
    LibraryClass(
        "mmengine.optim.AmpOptimWrapper",
        ("mmengine.optim.optimizer.AmpOptimWrapper",),
        _named(r"optim_wrapper"),
    ),
    LibraryClass("timm.utils.NativeScaler", ("timm.utils.cuda.NativeScaler",), always_on="_scaler"),
    LibraryClass("timm.utils.ApexScaler", ("timm.utils.cuda.ApexScaler",)),
    LibraryClass(
        "deepspeed.DeepSpeedEngine",
        ("deepspeed.runtime.engine.DeepSpeedEngine",),
        _named(r"^(?:model_|ds_|deepspeed_)?engine$"),
    ),
    LibraryClass(
        "transformers.Trainer",
        ("transformers.trainer.Trainer", "transformers.Seq2SeqTrainer"),
        _named(r"trainer$"),
        inherited=True,
    ),
)

#: A file of each library whose rows say all that counts of it. Where such a library is the project
#: itself, or lies in it, its examples and tests are judged by the rows like anybody's code.
SOURCES = (
    "accelerate/accelerator.py",
    "lightning/fabric/fabric.py",
    "lightning_fabric/fabric.py",
    "pytorch_lightning/core/module.py",
    "mmengine/optim/optimizer/amp_optimizer_wrapper.py",
)

_ACCELERATOR = "accelerate.Accelerator"
_FABRIC = "lightning.fabric.Fabric"
_MODULE = "lightning.pytorch.LightningModule"
_MM = "mmengine.optim.AmpOptimWrapper"
_STEPS = (Effect.UNSCALE, Effect.STEP, Effect.UPDATE)
_WHOLE_ROUND = (
    Effect.SCALE,
    Effect.BACKWARD,
    Effect.UNSCALE,
    Effect.CLIP,
    Effect.STEP,
    Effect.UPDATE,
)

CALLS = (
    LibraryCall(
        _ACCELERATOR,
        "prepare",
        (Effect.TAKE_OVER,),
        "accelerate, accelerator.py, Accelerator.prepare",
    ),
    LibraryCall(
        _ACCELERATOR,
        "prepare_optimizer",
        (Effect.TAKE_OVER,),
        "accelerate, accelerator.py, Accelerator.prepare_optimizer",
    ),
    LibraryCall(_FABRIC, "setup", (Effect.TAKE_OVER,), "lightning, fabric/fabric.py, Fabric.setup"),
    LibraryCall(
        _FABRIC,
        "setup_optimizers",
        (Effect.TAKE_OVER,),
        "lightning, fabric/fabric.py, Fabric.setup_optimizers",
    ),
    LibraryCall("apex.amp", "initialize", (Effect.TAKE_OVER,), "apex, amp/frontend.py, initialize"),
    LibraryCall(
        "deepspeed", "initialize", (Effect.TAKE_OVER,), "deepspeed, __init__.py, initialize"
    ),
    LibraryCall(
        _ACCELERATOR,
        "backward",
        (Effect.SCALE, Effect.BACKWARD),
        "accelerate, accelerator.py, Accelerator.backward",
    ),
    LibraryCall(
        _ACCELERATOR,
        "unscale_gradients",
        (Effect.UNSCALE,),
        "accelerate, accelerator.py, Accelerator.unscale_gradients",
    ),
    LibraryCall(
        _ACCELERATOR,
        "clip_grad_norm_",
        (Effect.UNSCALE, Effect.CLIP),
        "accelerate, accelerator.py, Accelerator.clip_grad_norm_",
    ),
    LibraryCall(
        _ACCELERATOR,
        "clip_grad_value_",
        (Effect.UNSCALE, Effect.CLIP),
        "accelerate, accelerator.py, Accelerator.clip_grad_value_",
    ),
    LibraryCall(
        "accelerate.optimizer.AcceleratedOptimizer",
        "step",
        _STEPS,
        "accelerate, optimizer.py, AcceleratedOptimizer.step",
    ),
    LibraryCall(
        "accelerate.optimizer.AcceleratedOptimizer",
        "zero_grad",
        (Effect.ZERO_GRAD,),
        "accelerate, optimizer.py, AcceleratedOptimizer.zero_grad",
    ),
    LibraryCall(
        _FABRIC,
        "backward",
        (Effect.SCALE, Effect.BACKWARD),
        "lightning, fabric/plugins/precision/amp.py, MixedPrecision.backward",
    ),
    LibraryCall(
        _FABRIC,
        "clip_gradients",
        (Effect.UNSCALE, Effect.CLIP),
        "lightning, fabric/plugins/precision/amp.py, MixedPrecision.unscale_gradients",
    ),
    LibraryCall(
        _MODULE,
        "manual_backward",
        (Effect.SCALE, Effect.BACKWARD),
        "lightning, pytorch/plugins/precision/amp.py, MixedPrecision.pre_backward",
    ),
    LibraryCall(
        _MODULE,
        "clip_gradients",
        (Effect.CLIP,),
        "lightning, pytorch/plugins/precision/amp.py, MixedPrecision.clip_gradients",
    ),
    LibraryCall(
        "lightning.pytorch.Trainer",
        "fit",
        (*_WHOLE_ROUND, Effect.ZERO_GRAD),
        "lightning, pytorch/plugins/precision/amp.py, MixedPrecision.optimizer_step",
    ),
    LibraryCall(
        _MM,
        "backward",
        (Effect.SCALE, Effect.BACKWARD),
        "mmengine, optim/optimizer/amp_optimizer_wrapper.py, AmpOptimWrapper.backward",
    ),
    LibraryCall(
        _MM,
        "step",
        (Effect.UNSCALE, Effect.CLIP, Effect.STEP, Effect.UPDATE),
        "mmengine, optim/optimizer/amp_optimizer_wrapper.py, AmpOptimWrapper.step",
    ),
    LibraryCall(
        _MM,
        "update_params",
        (*_WHOLE_ROUND, Effect.ZERO_GRAD),
        "mmengine, optim/optimizer/optimizer_wrapper.py, OptimWrapper.update_params",
    ),
    LibraryCall(
        "mmengine.optim.OptimWrapper",
        "update_params",
        (Effect.BACKWARD, Effect.CLIP, Effect.STEP, Effect.ZERO_GRAD),
        "mmengine, optim/optimizer/optimizer_wrapper.py, OptimWrapper.update_params",
    ),
    LibraryCall(
        "timm.utils.NativeScaler",
        "__call__",
        _WHOLE_ROUND,
        "timm, utils/cuda.py, NativeScaler.__call__",
        optimizer=(1, "optimizer"),
        boundary=(6, "need_update"),
    ),
    LibraryCall(
        "timm.utils.ApexScaler",
        "__call__",
        (Effect.SCALE, Effect.BACKWARD, Effect.UNSCALE, Effect.CLIP, Effect.STEP),
        "timm, utils/cuda.py, ApexScaler.__call__",
    ),
    LibraryCall(
        "apex.amp", "scale_loss", (Effect.SCALE, Effect.UNSCALE), "apex, amp/handle.py, scale_loss"
    ),
    LibraryCall(
        "deepspeed.DeepSpeedEngine",
        "backward",
        (Effect.SCALE, Effect.BACKWARD),
        "deepspeed, runtime/engine.py, DeepSpeedEngine.backward",
    ),
    LibraryCall(
        "deepspeed.DeepSpeedEngine",
        "step",
        (Effect.UNSCALE, Effect.CLIP, Effect.STEP, Effect.UPDATE, Effect.ZERO_GRAD),
        "deepspeed, runtime/engine.py, DeepSpeedEngine.step",
    ),
    LibraryCall(
        "transformers.Trainer",
        "train",
        (*_WHOLE_ROUND, Effect.ZERO_GRAD),
        "transformers, trainer.py, Trainer._inner_training_loop",
    ),
    LibraryCall(
        "transformers.Trainer",
        "training_step",
        (Effect.SCALE, Effect.BACKWARD),
        "transformers, trainer.py, Trainer.training_step",
    ),
)

#: Optimizers that set `_step_supports_amp_scaling` when built with `fused=True`: they unscale
#: inside `step`. torch 2.13, one file each in `torch/optim`.
FUSED_ON_REQUEST = (
    "torch.optim.Adam",
    "torch.optim.AdamW",
    "torch.optim.SGD",
    "torch.optim.Adagrad",
)
#: Optimizers that always do: apex, optimizers/fused_mixed_precision_lamb.py.
ALWAYS_FUSED = ("apex.optimizers.FusedMixedPrecisionLamb",)

_BY_CLASS = {name: row for row in CLASSES for name in (row.name, *row.aliases)}
_BY_CALL = {(row.owner, row.name): row for row in CALLS}


def class_row(dotted: str | None) -> LibraryClass | None:
    """The row of a library's class by any of its dotted names."""
    return _BY_CLASS.get(dotted) if dotted is not None else None


def call_row(dotted: str | None) -> LibraryCall | None:
    """The row of a method or function: "accelerate.Accelerator.backward"; aliases count."""
    if dotted is None:
        return None
    owner, _, name = dotted.rpartition(".")
    known = class_row(owner)
    return _BY_CALL.get((known.name if known is not None else owner, name))


def calls_of(row: LibraryClass) -> Iterator[LibraryCall]:
    """Every call of a class that has an effect."""
    return (call for call in CALLS if call.owner == row.name)


def usual_receiver(name: str, method: str) -> LibraryCall | None:
    """The row that `name.method(...)` probably is, judged by the variable's name alone."""
    for row in CLASSES:
        if row.usual is not None and row.usual.search(name):
            found = _BY_CALL.get((row.name, method))
            if found is not None:
                return found
    return None


def supports_amp_scaling(dotted: str | None, *, fused: bool) -> bool:
    """Whether an optimizer of this class unscales inside its own `step`.

    Args:
        fused: whether it is built with `fused=True`.
    """
    return dotted in ALWAYS_FUSED or (fused and dotted in FUSED_ON_REQUEST)
