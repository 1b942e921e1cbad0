"""Calls that give back what they are given: methods of modules, and wrappers around them."""

from __future__ import annotations

#: Methods that give back the object they are called on (`torch.nn.Module`, and `share_memory`).
SAME_OBJECT = frozenset(
    ("to", "cuda", "cpu", "xpu", "half", "float", "double", "bfloat16", "type", "train", "eval")
    + ("requires_grad_", "apply", "share_memory", "to_empty")
)
#: Callables that give back their first argument, or an object that behaves like it.
WRAPPERS = frozenset(
    (
        "DataParallel",
        "DistributedDataParallel",
        "DDP",
        "FullyShardedDataParallel",
        "FSDP",
        "compile",
        "convert_sync_batchnorm",
        "deepcopy",
        "script",
        "unwrap_model",
        "prepare",
        "prepare_model",
        "setup_module",
    )
)
#: Modules that call what they were given, one after the other.
CHAINS = frozenset(("torch.nn.Sequential", "torch.nn.modules.container.Sequential"))
#: Base classes whose objects are called through `forward`.
MODULE_BASES = frozenset(
    (
        "torch.nn.Module",
        "torch.nn.modules.module.Module",
        "torch.nn.modules.Module",
        "lightning.LightningModule",
        "lightning.pytorch.LightningModule",
        "pytorch_lightning.LightningModule",
        "pytorch_lightning.core.LightningModule",
        "transformers.PreTrainedModel",
        "transformers.modeling_utils.PreTrainedModel",
    )
)
