"""Counterfactual runs: what a request leaves out, with everything else as it was.

If a failure is gone when one `detach()` does nothing, that `detach()` is its cause, whatever
else the probe has invented: the two runs differ in nothing else.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

if TYPE_CHECKING:
    from amplint.probe.worker.context import Run

#: Methods that give a value without its gradient.
COPIES = frozenset({"detach", "detach_", "item", "numpy"})
#: What reading `tensor.data` calls.
_DATA = torch.Tensor.data.__get__  # type: ignore[attr-defined]
#: Functions that copy a tensor they are given.
FACTORIES = frozenset({"tensor", "as_tensor", "asarray"})
CASTS = frozenset({"float", "half", "double", "bfloat16", "int", "long", "short", "type"})
#: Factor of the weights after an exaggerated step.
EXAGGERATION = 1.25


class Omissions:
    """What the request of a run leaves out."""

    def __init__(self, run: Run) -> None:
        self._checked = run.project.checked
        self._is_mine = run.project.is_mine
        self._rows: dict[str, frozenset[int]] = {}
        for omission in (*run.plan.omissions, *run.request.omissions):
            before = self._rows.get(omission.kind, frozenset())
            self._rows[omission.kind] = before | frozenset(omission.rows)

    def __bool__(self) -> bool:
        return bool(self._rows)

    def applies(self, kind: str, made_at: int = 0) -> bool:
        """Whether things of this kind are left out here.

        Args:
            made_at: row of the checked file on which the object in question was made.
        """
        rows = self._rows.get(kind)
        if rows is None:
            return False
        return not rows or made_at in rows or self._is_under(rows)

    def made_at(self) -> int:
        """The user's innermost row, if it is one of the checked file; else 0."""
        frame = sys._getframe(1)
        while frame is not None:
            filename = frame.f_code.co_filename
            if self._is_mine(filename):
                return frame.f_lineno or 0 if filename == self._checked else 0
            frame = frame.f_back  # type: ignore[assignment]
        return 0

    def instead(self, function: Any, name: str, args: Any, kwargs: Any) -> Any:
        """What a function of torch returns that is left out; None if it is not."""
        if not args or not isinstance(args[0], torch.Tensor):
            return None
        if name in COPIES or name in FACTORIES or function == _DATA:
            return args[0] if self.applies("copies") else None
        if name in CASTS:
            return args[0] if self.applies("casts") else None
        if name == "to" and self.applies("casts"):
            left, named = without_dtype(args[1:], kwargs)
            return args[0] if not left and not named else function(args[0], *left, **named)
        return None

    def _is_under(self, rows: frozenset[int]) -> bool:
        frame = sys._getframe(1)
        while frame is not None:
            if frame.f_lineno in rows and frame.f_code.co_filename == self._checked:
                return True
            frame = frame.f_back  # type: ignore[assignment]
        return False


def without_dtype(args: Any, kwargs: Any) -> tuple[list[Any], dict[str, Any]]:
    """Arguments of `to` without a dtype, or a tensor that stands for one."""
    left = [value for value in args if not isinstance(value, (torch.dtype, torch.Tensor))]
    named = {key: value for key, value in kwargs.items() if key not in ("dtype", "other")}
    return left, named


def install(run: Run) -> None:
    """Leave out of torch what the request says."""
    if run.request.exaggerate:
        register_optimizer_step_post_hook(_exaggerate)
    if not run.omissions:
        return
    _grad_modes(run.omissions)
    _inference_modes(run.omissions)
    _models(run.omissions)
    _clips(run.omissions)
    _regions(run.omissions)


def _exaggerate(optimizer: Any, _args: Any, _kwargs: Any) -> None:
    with torch.no_grad():
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.mul_(EXAGGERATION)


def _grad_modes(omissions: Omissions) -> None:
    modes = torch.autograd.grad_mode
    for kind in (modes.no_grad, modes.inference_mode):
        _remember_row(kind, omissions)
    enter = modes.no_grad.__enter__

    def enter_no_grad(self: Any) -> Any:
        if not omissions.applies("grad-modes", self._amp_row):
            return enter(self)
        self.prev = torch.is_grad_enabled()
        return None

    modes.no_grad.__enter__ = enter_no_grad  # type: ignore[method-assign]
    switch = modes.set_grad_enabled.__init__

    def init_switch(self: Any, mode: Any) -> None:
        if not mode and omissions.applies("grad-modes"):
            mode = torch.is_grad_enabled()
        switch(self, bool(mode))

    modes.set_grad_enabled.__init__ = init_switch  # type: ignore[method-assign]


def _inference_modes(omissions: Omissions) -> None:
    mode = torch.autograd.grad_mode.inference_mode
    enter = mode.__enter__

    def enter_inference_mode(self: Any) -> Any:
        if omissions.applies("grad-modes", self._amp_row):
            self._inference_mode_context = _GradMode(torch.is_grad_enabled())
        elif omissions.applies("inference-mode", self._amp_row):
            self._inference_mode_context = _GradMode(False)
        else:
            return enter(self)
        return None

    mode.__enter__ = enter_inference_mode  # type: ignore[method-assign]


class _GradMode:
    """What an inference mode that is none has to leave."""

    def __init__(self, enabled: bool) -> None:
        self._before = torch.is_grad_enabled()
        torch._C._set_grad_enabled(enabled)

    def __exit__(self, *error: object) -> None:
        torch._C._set_grad_enabled(self._before)


def _remember_row(kind: Any, omissions: Omissions) -> None:
    """Grad modes know where they were written: a decorator is entered wherever it is called."""
    init, clone = kind.__init__, kind.clone
    kind._amp_row = 0  # those that torch has made already

    def new_init(self: Any, *args: Any, **kwargs: Any) -> None:
        self._amp_row = omissions.made_at()
        init(self, *args, **kwargs)

    def new_clone(self: Any) -> Any:
        made = clone(self)
        made._amp_row = self._amp_row
        return made

    kind.__init__ = new_init
    kind.clone = new_clone


def _models(omissions: Omissions) -> None:
    module: Any = torch.nn.Module
    for name in ("half", "float", "double", "bfloat16", "type"):
        _wrap(module, name, lambda original: _kept(omissions, original))
    to = module.to

    def new_to(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not omissions.applies("casts"):
            return to(self, *args, **kwargs)
        left, named = without_dtype(args, kwargs)
        return to(self, *left, **named) if left or named else self

    module.to = new_to


def _kept(omissions: Omissions, original: Callable[..., Any]) -> Callable[..., Any]:
    def cast(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self if omissions.applies("casts") else original(self, *args, **kwargs)

    return cast


def _clips(omissions: Omissions) -> None:
    for module in (torch.nn.utils, torch.nn.utils.clip_grad):
        _wrap(module, "clip_grad_norm_", lambda original: _measured(omissions, original))
        _wrap(module, "clip_grad_value_", lambda original: _skipped(omissions, original))


def _measured(omissions: Omissions, original: Callable[..., Any]) -> Callable[..., Any]:
    def clip(parameters: Any, max_norm: Any, *args: Any, **kwargs: Any) -> Any:
        limit = float("inf") if omissions.applies("clips") else max_norm
        return original(parameters, limit, *args, **kwargs)

    return clip


def _skipped(omissions: Omissions, original: Callable[..., Any]) -> Callable[..., Any]:
    def clip(*args: Any, **kwargs: Any) -> Any:
        return None if omissions.applies("clips") else original(*args, **kwargs)

    return clip


def _regions(omissions: Omissions) -> None:
    region: Any = torch.amp.autocast_mode.autocast
    init = region.__init__

    def new_init(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        if omissions.applies("autocast-cache"):
            self._cache_enabled = False
        if omissions.applies("autocast"):
            self._enabled = False

    region.__init__ = new_init


def _wrap(
    owner: Any, name: str, wrapper: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> None:
    setattr(owner, name, wrapper(getattr(owner, name)))
