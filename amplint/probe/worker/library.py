"""Small real classes for objects of libraries whose meaning is known: nested settings, progress,
means."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from amplint.probe.worker import values
from amplint.probe.worker.context import current
from amplint.probe.worker.world import Progress

#: Calls that make nested settings which are read as attributes.
SETTINGS = frozenset(
    [
        *("yacs.config.CfgNode", "easydict.EasyDict", "addict.Dict", "munch.Munch"),
        *("ml_collections.ConfigDict", "ml_collections.config_dict.ConfigDict"),
        *("omegaconf.OmegaConf.create", "box.Box"),
    ]
)
#: Where tqdm's progress bar is imported from.
PROGRESS = frozenset(
    [
        *("tqdm.tqdm", "tqdm.auto.tqdm", "tqdm.std.tqdm", "tqdm.autonotebook.tqdm"),
        *("tqdm.notebook.tqdm", "tqdm.tqdm_notebook", "tqdm.asyncio.tqdm", "tqdm.rich.tqdm"),
    ]
)


class Settings(dict):  # type: ignore[type-arg]
    """Nested settings. What the code writes is a default; users may set something else."""

    def __init__(self, path: str, *given: Any, **named: Any) -> None:
        super().__init__()
        object.__setattr__(self, "_amp_path", path)
        for table in (*given[:1], named):
            for key, value in table.items() if isinstance(table, dict) else ():
                self[str(key)] = value

    def __setitem__(self, key: str, value: Any) -> None:
        if type(value) is dict:
            value = Settings(f"{self._amp_path}.{key}", value)
        super().__setitem__(key, value)

    def __missing__(self, key: str) -> Any:
        return values.make(f"{self._amp_path}.{key}")

    def __getitem__(self, key: str) -> Any:
        value = super().__getitem__(key)
        if not isinstance(value, (bool, int, float, str)):
            return value
        path = f"{self._amp_path}.{key}"
        use, (is_wanted, _) = current().use(path), current().decisions.asked(path)
        if is_wanted or isinstance(value, bool) or use.truth or use.compared:
            return values.Declared(path, value).choose()
        return value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def get(self, key: str, default: Any = None) -> Any:
        """A setting."""
        if key not in self:
            return default
        return self[key]

    def clone(self) -> Settings:
        """A copy of its own."""
        return copy.deepcopy(self)

    def __deepcopy__(self, memo: Any) -> Settings:
        made = Settings(self._amp_path)
        for key in self:
            made[key] = copy.deepcopy(dict.__getitem__(self, key), memo)
        return made

    def freeze(self, *args: Any, **kwargs: Any) -> None:
        """Files are read by nobody, and what may be set is left to decisions."""

    def dump(self, *args: Any, **kwargs: Any) -> str:
        """Nobody reads it."""
        return ""

    defrost = merge_from_file = merge_from_list = merge_from_other_cfg = lock = unlock = freeze


class Meter:
    """What timm/utils/metrics.py keeps of a quantity: the last value, the sum, and the mean."""

    def __init__(self, _name: str) -> None:
        self.reset()

    def reset(self) -> None:
        """Nothing has been seen."""
        self.val: Any = 0
        self.avg: Any = 0
        self.sum: Any = 0
        self.count: Any = 0

    def update(self, val: Any, n: Any = 1) -> None:
        """A value of so many samples."""
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count if self.count else self.sum


#: Name of a class -> what is called for it, with the last part of the name in front.
LIBRARY: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(SETTINGS, Settings),
    **dict.fromkeys(PROGRESS, Progress),
    **dict.fromkeys(("timm.utils.AverageMeter", "timm.utils.metrics.AverageMeter"), Meter),
}
