"""The small real objects of a run: models, optimizers, scalers, loaders."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from amplint.probe.worker import data, standins
from amplint.probe.worker.context import current
from amplint.probe.worker.soft import (
    SoftTensor,
    connected,
    soft,
    tensors_in,
    without_overrides,
)

#: Two rounds show what three or four do, where nothing counts them.
BATCHES = (2, 3, 1, 4)
#: Where all of them matter.
ALL_BATCHES = (4, 3, 1, 2)
#: Where code counts batches: a common window, and more than most windows have.
COUNTED_BATCHES = (4, 40, 3, 1, 2)
#: Real numbers of batches above this one are not run.
MOST_BATCHES = 12
#: What a model owns besides tensors, where code asks for it.
NO_SYNC = frozenset({"no_sync", "join", "summon_full_params"})
from amplint.runtime.monitor import parameters_of


class TinyModel(torch.nn.Module):
    """Two layers of a few weights; the output hangs on all of them, on what the code puts beside
    them, and on all inputs. Whatever its parameters are called, what the code reads by one of
    these names is a part of the real model, of which nothing is known."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.__dict__["_amp_path"] = path
        self.layer = torch.nn.Linear(3, 2)
        self.head = torch.nn.Linear(2, 1)
        self.__dict__["_amp_layers"] = (self._modules["layer"], self._modules["head"])

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """A scalar near 0.5 in the dtype that autocast asks for."""
        first, last = self._amp_layers
        with without_overrides():
            weight = first.weight
            inputs = torch.ones(2, 3, dtype=weight.dtype, device=weight.device)
            output = last(first(inputs)).mean()
            seen = [tensor for tensor in tensors_in([args, kwargs]) if tensor.numel()]
            seen += self._added()
            if seen:
                carrier = connected(seen).to(weight.device).as_subclass(torch.Tensor)
                output = output + 0.01 * carrier.to(output.dtype)
            return (output * output + 0.5).as_subclass(SoftTensor)

    def _added(self) -> list[Any]:
        """The parameters that the code has given the model."""
        own = {id(parameter) for layer in self._amp_layers for parameter in layer.parameters()}
        return [parameter for parameter in self.parameters() if id(parameter) not in own]

    def __getattr__(self, name: str) -> Any:
        try:
            known = super().__getattr__(name)
            if not any(known is layer for layer in self.__dict__.get("_amp_layers", ())):
                return known
        except AttributeError:
            if name.startswith("__"):
                raise
        if name == "module":
            return self
        if name in NO_SYNC:
            return lambda *args, **kwargs: contextlib.nullcontext()
        return standins.StandIn(f"{self._amp_path}.{name}", owner=self)

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, standins.StandIn):
            self.__dict__[name] = value
        else:
            super().__setattr__(name, value)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Checkpoints are not loaded."""
        return standins.StandIn("load_state_dict()")

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: Any) -> Any:
        return self  # a container of models stands for each of them

    def __iter__(self) -> Iterator[Any]:
        return iter([self])


class Sampler:
    """The order of the data, which does not matter here."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __iter__(self) -> Any:
        return iter(range(2))

    def __len__(self) -> int:
        return 2

    def set_epoch(self, epoch: Any) -> None:
        """Nothing depends on it."""


class Batches:
    """The iterator of a loader, which knows how many batches the loader has."""

    def __init__(self, batches: Iterable[Any]) -> None:
        self._batches = list(batches)
        self._left = iter(self._batches)

    def __iter__(self) -> Batches:
        return self

    def __next__(self) -> Any:
        return next(self._left)

    def __len__(self) -> int:
        return len(self._batches)


class Loader:
    """A few batches of soft tensors."""

    def __init__(self, dataset: Any = None, *args: Any, **kwargs: Any) -> None:
        self.dataset = standins.StandIn("dataset") if dataset is None else dataset
        self.batch_size = kwargs.get("batch_size", args[0] if args else 2)
        sampler = kwargs.get("sampler")
        self.sampler = Sampler() if sampler is None else sampler
        self._amp_path = f"DataLoader@{current().row()}"
        self._amp_lengths = _lengths(self.dataset, self.batch_size)
        self._amp_served = 0

    def __iter__(self) -> Iterator[Any]:
        count = len(self)
        real = data.batches(self.dataset, self.batch_size, count)
        return Batches(real or [soft() for _ in range(count)])

    def __next__(self) -> Any:
        self._amp_served += 1
        if self._amp_served > len(self):
            self._amp_served = 0
            raise StopIteration
        return soft()

    def __len__(self) -> int:
        return int(current().choose(f"len({self._amp_path})", self._amp_lengths))

    def __getitem__(self, index: Any) -> Any:
        return soft()

    def __enter__(self) -> Any:
        return self  # as what shows the progress of one

    def __exit__(self, *_error: object) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return standins.StandIn(f"{self.__dict__.get('_amp_path', 'loader')}.{name}")

    def __class_getitem__(cls, item: Any) -> type:
        return cls


class Progress:
    """A progress bar of tqdm: gives out what it is made of, and counts."""

    def __init__(self, _name: str, iterable: Any = None, *_args: Any, **settings: Any) -> None:
        self.iterable = iterable
        self.total = settings.get("total")
        self.n = 0

    def __iter__(self) -> Iterator[Any]:
        given = self.iterable
        # What is None for the probe only: nobody makes a bar of that to go through it.
        for entry in standins.StandIn("tqdm.tqdm()") if given is None else given:
            yield entry
            self.n += 1

    def __next__(self) -> Any:
        self.n += 1
        return next(self.iterable)

    def __len__(self) -> int:
        return int(standins.number(self.total)) if self.iterable is None else len(self.iterable)

    def __bool__(self) -> bool:
        return True

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_error: object) -> None:
        """Swallows nothing."""

    def update(self, count: Any = 1) -> None:
        """Something is done."""
        self.n += int(standins.number(count))

    def set_postfix(self, *_args: Any, **_words: Any) -> None:
        """Nobody looks at it."""

    set_description = set_description_str = set_postfix_str = set_postfix
    close = refresh = clear = reset = display = unpause = write = set_postfix

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "iterable":
            raise AttributeError(name)
        return standins.StandIn(f"tqdm.tqdm().{name}")


def _lengths(dataset: Any, batch_size: Any) -> tuple[int, ...]:
    """Numbers of batches: the real one first, where the user's data set tells it."""
    if isinstance(dataset, (standins.StandIn, SoftTensor)) or type(batch_size) is not int:
        return batch_numbers()
    try:
        count = -(-len(dataset) // batch_size)
    except (TypeError, ZeroDivisionError):
        return batch_numbers()
    return (count, *batch_numbers()) if 0 < count <= MOST_BATCHES else batch_numbers()


def batch_numbers() -> tuple[int, ...]:
    """Invented numbers of batches, the ordinary one first, then one for those that count."""
    if current().project.counts:
        return COUNTED_BATCHES
    return ALL_BATCHES if current().needs_all_steps else BATCHES


def named_loader(path: str) -> Loader:
    """A loader whose length is a decision about `path`."""
    loader = Loader()
    loader._amp_path = path
    return loader


class World:
    """What the run has built, by path."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.models: dict[str, TinyModel] = {}
        #: What results of unknown functions hang on, which may have parameters of their own.
        self.ghost = torch.nn.Parameter(torch.zeros((), device=device))
        self._optimizers: dict[str, Any] = {}
        self._scalers: dict[str, Any] = {}
        #: Optimizers that were made before any model was seen take every later one.
        self._open: list[Any] = []
        #: Paths of devices that nobody has named.
        self.invented_devices: list[str] = []
        #: The path of the object that is being made up; "" while nothing is.
        self.inventing = ""
        #: All optimizers of the run, the user's own included; set by whoever watches them.
        self.known_optimizers: Callable[[], list[Any]] = list

    def model(self, path: str = "model") -> TinyModel:
        """The tiny model that stands at this path."""
        if path not in self.models:
            model = self.models[path] = TinyModel(path).to(self.device)
            for optimizer in self._open:
                optimizer.add_param_group({"params": list(model.parameters())})
        return self.models[path]

    def another_model(self, path: str) -> TinyModel:
        """A model that a call has returned: each call returns its own."""
        calls = sum(model._amp_path == path for model in self.models.values())
        if not calls:
            return self.model(path)
        model = self.models[f"{path}#{calls}"] = self.model(f"{path}#{calls}")
        model.__dict__["_amp_path"] = path
        return model

    def any_model(self) -> TinyModel:
        """The first model, made now if there is none."""
        return next(iter(self.models.values())) if self.models else self.model()

    def optimizer(self, path: str, parameters: Iterable[Any] = ()) -> Any:
        """The optimizer that stands at this path, over these parameters or all models'."""
        if path not in self._optimizers:
            owned = [parameter for parameter in parameters if parameter.requires_grad]
            unknown = not owned
            if unknown:
                owned = self._parameters_for(path)
            with self._invents(path):
                optimizer = torch.optim.SGD(owned, lr=1e-3)
            self._optimizers[path] = optimizer
            if unknown:
                self._open.append(optimizer)
        return self._optimizers[path]

    def link(self, reached: list[Any]) -> None:
        """A backward reaches these parameters: an optimizer that is known by name only, and
        owns none of them, gets those that nobody owns."""
        optimizers = self.known_optimizers()
        taken = {id(p) for optimizer in optimizers for p in parameters_of(optimizer)}
        free = [parameter for parameter in reached if id(parameter) not in taken]
        wanted = {id(parameter) for parameter in reached}
        for optimizer in self._open:
            if free and not any(id(p) in wanted for p in parameters_of(optimizer)):
                optimizer.add_param_group({"params": free})
                return

    def trained(self) -> list[Any]:
        """The parameters of all optimizers."""
        optimizers = self.known_optimizers()
        return [p for optimizer in optimizers for p in parameters_of(optimizer)]

    def scaler(self, path: str, enabled: bool = True) -> Any:
        """The scaler that stands at this path."""
        if path not in self._scalers:
            kind = self.device.split(":", 1)[0]
            with self._invents(path):
                self._scalers[path] = torch.amp.GradScaler(kind, enabled=enabled)
        return self._scalers[path]

    @contextlib.contextmanager
    def _invents(self, path: str) -> Iterator[None]:
        self.inventing = path
        try:
            yield
        finally:
            self.inventing = ""

    def _parameters_for(self, path: str) -> list[Any]:
        models = list(self.models.values()) or [self.model()]
        side = side_of(path)
        partners = [model for model in models if side and side_of(model._amp_path) == side]
        return [parameter for model in partners or models for parameter in model.parameters()]


def side_of(path: str) -> str:
    """ "d" of "optimizer_d", "optD" and "netD": which of several models is meant."""
    leaf = path.rsplit(".", 1)[-1]
    if "_" in leaf:
        return leaf.rsplit("_", 1)[-1].lower()[:1] if len(leaf.rsplit("_", 1)[-1]) <= 4 else ""
    return leaf[-1].lower() if leaf[-1:].isupper() or leaf[-1:].isdigit() else ""
