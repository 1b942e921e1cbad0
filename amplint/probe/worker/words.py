"""What names say, where nothing better is known. Every use of this is the last resort."""

from __future__ import annotations

import re
from typing import Any

#: Roots of paths that hold options: nothing below them is a model or an optimizer.
OPTIONS = frozenset(
    [
        "args",
        "cfg",
        "config",
        "conf",
        "opt",
        "opts",
        "option",
        "options",
        "hparams",
        "hps",
        "hp",
        "params",
        "flags",
        "FLAGS",
        "settings",
    ]
)
KINDS = {
    "scaler": frozenset({"scaler", "gradscaler"}),
    "optimizer": frozenset({"optimizer", "optim", "optimiser"}),
    "model": frozenset(
        [
            "model",
            "net",
            "network",
            "generator",
            "discriminator",
            "encoder",
            "decoder",
            "student",
            "teacher",
            "backbone",
            "netg",
            "netd",
            "policy",
            "agent",
            "actor",
            "critic",
            "vae",
            "unet",
        ]
    ),
    "loader": frozenset({"loader", "dataloader", "trainloader", "iterator", "batches"}),
    "device": frozenset({"device"}),
    "loss": frozenset({"loss", "losses"}),
}
#: Words that may stand beside the telling one: model_ema, optimizer_d, scaler2.
SIDES = frozenset(
    [
        "a",
        "b",
        "c",
        "d",
        "g",
        "e",
        "f",
        "q",
        "k",
        "s",
        "t",
        "x",
        "y",
        "ema",
        "gen",
        "dis",
        "disc",
        "ddp",
        "module",
        "raw",
        "train",
        "val",
        "valid",
        "test",
        "main",
        "self",
        "src",
        "target",
        "online",
        "grad",
        "amp",
        "my",
        "the",
        "data",
        "1",
        "2",
        "3",
        "0",
        "wo",
        "without",
    ]
)
APIS = {
    "scaler": frozenset(
        [
            "scale",
            "unscale_",
            "step",
            "update",
            "get_scale",
            "is_enabled",
            "state_dict",
            "load_state_dict",
            "get_growth_factor",
            "_scale",
            "_enabled",
            "get_backoff_factor",
            "set_growth_interval",
            "_per_optimizer_states",
            "get_growth_interval",
            "_init_scale",
            "_growth_tracker",
            "set_growth_factor",
        ]
    ),
    "optimizer": frozenset(
        [
            "step",
            "zero_grad",
            "param_groups",
            "state_dict",
            "load_state_dict",
            "state",
            "defaults",
            "add_param_group",
            "register_step_pre_hook",
            "register_step_post_hook",
            "train",
            "eval",
        ]
    ),
}
#: Names of flags that are off in an ordinary run.
OFF = re.compile(
    r"resume|debug|dry|eval|test|profile|distributed|ddp|wandb|log|verbose|early|stop|horovod"
    r"|fsdp|deepspeed|xla|tpu|compile|overflow|skip|apex|nhwc|channels|tensorboard|finetune"
    r"|npu|mlu|musa|hpu|xpu|mps|rocm|ascend|sagemaker|comet|clearml|mlflow|neptune|evolve"
    r"|pretrain|multi|freeze|load|ckpt|checkpoint|bf16|ema|save|export|val_only|no_",
    re.IGNORECASE,
)
NUMBERS: tuple[tuple[re.Pattern[str], tuple[Any, ...]], ...] = (
    (re.compile(r"accum|acc_step|update_freq|grad_acc|batch_chunk", re.IGNORECASE), (2, 1, 4)),
    (re.compile(r"world|nproc|n_gpu|num_gpu", re.IGNORECASE), (1, 2)),
    (re.compile(r"max_?(norm|grad)|clip|grad_norm", re.IGNORECASE), (1.0, 0.0)),
    (
        re.compile(
            r"(^|_)(lr|eps|epsilon|momentum|alpha|betas?\d?|gamma|lambda|tau|rate|weight)(_|\d*$)"
            r"|learning_rate|decay|drop|coef|temperature|ratio|smooth",
            re.IGNORECASE,
        ),
        (0.001,),
    ),
    (
        re.compile(
            r"start|begin|last|resume|rank|^iteration$|^epoch$|cur|offset|seed|_so_far|global_step"
            r"|iter_num|warmup|^step$|patience|best",
            re.IGNORECASE,
        ),
        (0,),
    ),
    (re.compile(r"freq|interval|every|period", re.IGNORECASE), (1, 100)),
    # Sizes of layers, which heads and groups have to divide.
    (
        re.compile(
            r"^d_?(model|ff|inner|hid\w*)$|(^|_)(dim|dims|hidden|width|channels|embd?|embed\w*)(_|\d*$)"
            r"|hidden_size|embedding_size|feature_size|vocab|n_?class|num_class|num_labels",
            re.IGNORECASE,
        ),
        (16, 8),
    ),
)
#: Calls and subscripts in a path.
DEEPEST = 6
PLAIN_NUMBERS = (2, 1, 3, 0)

_KEY = re.compile(r"\[['\"](\w+)['\"]\]$")
_TOKENS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")


def kind_of(path: str, attributes: set[str]) -> str | None:
    """The kind that a path's name suggests; `attributes` are what the source reads from it."""
    if path.endswith(")") or path.split(".", 1)[0].lstrip("_") in OPTIONS:
        return None
    if path.startswith("self.") and path.split(".")[1].lstrip("_") in OPTIONS:
        return None
    leaf = leaf_of(path)
    if leaf[:1].isupper() or leaf.startswith(("num_", "n_", "use_", "is_", "has_", "get_")):
        return None
    indexed = path.endswith("]")
    tokens = [token.lower() for token in _TOKENS.findall(leaf)]
    if not tokens:
        return None
    for kind, words in KINDS.items():
        if _names(tokens, words, indexed) and attributes <= APIS.get(kind, attributes):
            return kind
    return None


def leaf_of(path: str) -> str:
    """The last name of a path, without an index: "b" of "a.b[0]"."""
    return re.sub(r"\[.*$", "", path.rsplit(".", 1)[-1])


def _named(path: str) -> str:
    """What a value is called, by its key where it has one: "lr" of "cfg['lr']"."""
    key = _KEY.search(path)
    return key[1] if key else leaf_of(path)


def numbers_for(path: str) -> tuple[Any, ...]:
    """Values that a number of this name may take, the ordinary one first."""
    leaf = _named(path)
    return next((found for word, found in NUMBERS if word.search(leaf)), PLAIN_NUMBERS)


def is_deep(path: str) -> bool:
    """Whether a path is the work of a recursion over stand-ins, which has to end somewhere."""
    return path.count("(") + path.count("[") > DEEPEST


def is_number(path: str) -> bool:
    """Whether the name is that of a number where its truth is asked."""
    return bool(re.search(r"clip|max_?norm|accum|num_|^n_", _named(path), re.IGNORECASE))


def flags_for(path: str) -> tuple[bool, bool]:
    """Both truth values, the ordinary one first."""
    return (False, True) if OFF.search(_named(path)) else (True, False)


def _names(tokens: list[str], words: frozenset[str], indexed: bool) -> bool:
    def fits(token: str) -> bool:
        return token in words or (indexed and token.rstrip("s") in words)

    joined = "".join(tokens)
    if joined in words:
        return True
    if fits(tokens[-1]):
        return True
    return fits(tokens[0]) and all(token in SIDES for token in tokens[1:])
