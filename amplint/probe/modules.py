"""What is known of libraries by the module that a function comes from, and by nothing else.

The names are those of the modules, as the code imports them: how a project calls a function says
nothing about what it does.
"""

from __future__ import annotations

#: Modules that write down what they are given: they neither refuse nor change anything.
#: Logging and progress of the standard library and of PyPI, trackers of experiments.
OBSERVERS = frozenset(
    [
        *("logging", "warnings", "pprint", "time", "tqdm", "rich", "loguru", "termcolor"),
        *("wandb", "tensorboard", "tensorboardX", "mlflow", "comet_ml", "neptune", "clearml"),
        *("aim", "swanlab", "visdom", "torch.utils.tensorboard", "progressbar", "tabulate"),
        *("builtins", "psutil", "structlog", "torchinfo", "torchsummary", "prettytable"),
        *("omegaconf.OmegaConf.to_yaml", "omegaconf.OmegaConf.to_container", "yaml.dump"),
        *("hydra.main", "click", "typer", "torch.distributed.elastic", "numba", "beartype"),
        *("yaml.safe_dump", "json.dump", "json.dumps", "shutil", "socket", "platform"),
        *("pathlib.Path.write_text", "pathlib.Path.write_bytes"),
    ]
)
#: What reads a file that the user writes: each entry is what the user wants it to be.
READERS = (
    *("yaml.safe_load()", "yaml.load()", "yaml.full_load()", "yaml.unsafe_load()"),
    *("json.load()", "json.loads()", "toml.load()", "toml.loads()", "tomllib.load()"),
    *("tomli.load()", "omegaconf.OmegaConf.load()", "hydra.compose()", "open()"),
)

#: Methods and functions of the standard library, PyYAML, toml and OmegaConf that write a file, or
#: the text of one.
WRITERS = frozenset(
    ["write", "writelines", "write_text", "write_bytes", "dump", "dumps", "safe_dump", "save"]
)


#: What calls a function that it is given, with what its parameters are called and nothing else.
LAUNCHERS = frozenset(
    [
        *("fire.Fire", "typer.run", "absl.app.run", "torch.multiprocessing.spawn"),
        *("torch.multiprocessing.start_processes", "isinstance", "issubclass", "super"),
        *("functools.partial", "functools.wraps", "torch.compile", "inspect.signature"),
    ]
)


#: Functions that make schedules of learning rates: they read and write `param_groups`.
SCHEDULES = (
    *("timm.scheduler.", "transformers.get_", "transformers.optimization.get_"),
    *("diffusers.optimization.get_", "torch.optim.lr_scheduler.", "pytorch_warmup."),
    *("warmup_scheduler.", "cosine_annealing_warmup.", "monai.optimizers."),
)


#: Those of them that take any numbers: each divides by at least one (transformers, optimization.py;
#: diffusers, optimization.py). The polynomial one refuses some, and `get_scheduler` names.
TOLERANT_SCHEDULES = frozenset(
    f"{home}.get_{kind}"
    for home in ("transformers", "transformers.optimization", "diffusers.optimization")
    for kind in (
        *("linear_schedule_with_warmup", "cosine_schedule_with_warmup"),
        *("cosine_with_hard_restarts_schedule_with_warmup", "constant_schedule"),
        *("constant_schedule_with_warmup", "inverse_sqrt_schedule"),
    )
)


#: Classes of libraries that are optimizers of torch: their `step` applies the gradients as they are,
#: and none declares `_step_supports_amp_scaling`, by which `GradScaler.step` leaves unscaling to
#: them. Read in lion_pytorch/lion_pytorch.py (Lion), prodigyopt/prodigy.py (Prodigy), bitsandbytes,
#: optim/optimizer.py (Optimizer8bit, the base of its classes), and transformers, optimization.py
#: (Adafactor; AdamW, which version 5 lacks, in copies that name that file).
OPTIMIZERS = frozenset(
    [
        *("transformers.AdamW", "transformers.optimization.AdamW", "transformers.Adafactor"),
        *("transformers.optimization.Adafactor", "lion_pytorch.Lion", "prodigyopt.Prodigy"),
        *("bitsandbytes.optim.Adam8bit", "bitsandbytes.optim.AdamW8bit"),
        *("bitsandbytes.optim.PagedAdamW8bit", "bitsandbytes.optim.PagedAdamW32bit"),
    ]
)


def is_optimizer(name: str) -> bool:
    """Whether a class of a library is known to be an optimizer of torch that leaves unscaling to
    the scaler."""
    return name in OPTIMIZERS


def makes_schedules(name: str) -> bool:
    """Whether a function is known to do nothing to an optimizer but set its learning rates."""
    return name.startswith(SCHEDULES)


def takes_any_length(name: str) -> bool:
    """Whether a function makes a schedule of learning rates of whatever numbers it is given."""
    return name in TOLERANT_SCHEDULES


def is_launcher(name: str) -> bool:
    """Whether a function is known to pass on what its user says."""
    return name in LAUNCHERS


def is_observer(name: str) -> bool:
    """Whether a function, by its path from its module on, only writes down what it is given."""
    parts = name.replace("()", "").split(".")
    return any(".".join(parts[:count]) in OBSERVERS for count in range(1, len(parts) + 1))


def is_of_data(name: str) -> bool:
    """Whether a function is a method of what a file holds, or of a part of it: texts, lists and
    mappings refuse nothing."""
    return name.startswith(READERS)


def reads_files(path: str) -> bool:
    """Whether a value is an entry of a file that the user writes."""
    return path.startswith(READERS)


def writes_files(name: str) -> bool:
    """Whether a function may write what another one reads from a file, or its text."""
    return name.rpartition(".")[2] in WRITERS
