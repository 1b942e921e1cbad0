"""Wrappers around torch's own methods that tell an `Observer`; no policy, only safety.

Every wrapper has one shape. torch's function runs exactly once, with what the user gave it, and
what it raises goes on to the user. An error of amplint's own switches watching off and is told
once; the training does not see it. While dynamo traces, a wrapper is torch's function.
"""

from __future__ import annotations

import functools
import gc
import sys
import types
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from amplint.protocol import Event
from amplint.runtime.dynamo import keep_from_dynamo, set_eval_frame
from amplint.runtime.observer import Observer
from amplint.runtime.patches import Patches
from amplint.runtime.sink import Misuse

Arguments = tuple[Any, ...]
Keywords = dict[str, Any]
#: Says what happens before a call; its result is handed to the one that says what came after.
Before = Callable[[Arguments, Keywords], Any]
After = Callable[[Any, Any, "BaseException | None"], None]
#: What `Before` returns where the call is nobody's business.
PASS = object()
_SCALER_METHODS = ("scale", "unscale_", "step", "update", "get_scale", "state_dict")


class Switch:
    """Whether amplint watches; it is turned off by an error of its own, for good.

    Args:
        told: gets that error, once.
    """

    def __init__(self, told: Callable[[BaseException], None]) -> None:
        self._told = told
        self.is_on = True

    def fail(self, error: BaseException) -> None:
        """Turn off."""
        if self.is_on:
            self.is_on = False
            self._told(error)

    def guarded(self, action: Callable[[], None]) -> None:
        """Do something of amplint's own, which the user must not see fail."""
        try:
            action()
        except Exception as error:  # noqa: BLE001 - never the user's
            self.fail(error)


class Hooks:
    """All wrappers of one observer; `undo` takes them back."""

    def __init__(self, observer: Observer, switch: Switch) -> None:
        self._observer = observer
        self._switch = switch
        observer.objects.fail = observer.regions.fail = switch.fail
        self._patches = Patches()
        self._classes: set[type] = set()
        self._foreign: set[type] = set()
        #: Functions of torch's modules, and what stands in their place.
        self._replaced: dict[Any, Any] = {}
        try:
            self._scalers()
            self._backward()
            self._optimizers()
            self._clips()
            self._regions()
            self._graphs()
        except BaseException:
            self.undo()  # all of them or none
            raise

    def adopt(self) -> None:
        """Find what the program has made before: optimizers, scalers, names of clips."""
        objects = gc.get_objects()
        optimizers = [each for each in objects if issubclass(type(each), Optimizer)]
        scalers = [each for each in objects if issubclass(type(each), torch.amp.GradScaler)]
        for optimizer in optimizers:
            if hasattr(optimizer, "param_groups"):
                self._observer.objects.optimizer(optimizer)
        for scaler in filter(_is_enabled, scalers):
            self._wrap_scaler_class(type(scaler))
            self._observer.scaler_made(scaler)
            for optimizer in optimizers:
                self._observer.adopt(scaler, optimizer)
        self._rebind()

    def _rebind(self) -> None:
        """Names that modules have imported from torch before it was wrapped."""
        for module in list(sys.modules.values()):
            names = vars(module) if isinstance(module, types.ModuleType) else {}
            for name, value in list(names.items()):
                if type(value) is types.FunctionType and value in self._replaced:
                    self._patches.set(module, name, self._replaced[value])

    def undo(self) -> None:
        """Put back everything."""
        self._patches.undo()

    # -- scalers

    def _scalers(self) -> None:
        self._wrap_scaler_class(torch.amp.GradScaler)

        def made(token: Any, _result: Any, raised: BaseException | None) -> None:
            scaler = token
            if raised is None and _is_enabled(scaler):
                self._wrap_scaler_class(type(scaler))
                self._observer.scaler_made(scaler)

        # `torch.cuda.amp.GradScaler` and others call this one.
        self._wrap(torch.amp.GradScaler, "__init__", _first, made)

    def _wrap_scaler_class(self, scaler_class: type) -> None:
        """Wrap the methods that a class or its bases in torch define.

        A subclass of the user's is seen where it calls `super()`; one that never does goes its
        own way, and is not followed.
        """
        for base in scaler_class.__mro__:
            if base in self._classes or base is object:
                continue
            self._classes.add(base)
            if not base.__module__.startswith("torch."):
                if _goes_its_own_way(base):
                    self._foreign.add(base)
                continue
            for name in (*_SCALER_METHODS, "load_state_dict"):
                if name in vars(base):
                    before, after = self._of_scaler(name)
                    self._wrap(base, name, self._followed(before), after)

    def _followed(self, before: Before) -> Before:
        """Pass where the scaler is off, is followed already, or cannot be followed."""

        def guarded(args: Arguments, kwargs: Keywords) -> Any:
            scaler = args[0] if args else None
            thread = self._observer.thread
            if thread.inside or thread.stepping is not None or not _is_enabled(scaler):
                return PASS
            if self._foreign and not self._foreign.isdisjoint(type(scaler).__mro__):
                return PASS
            token = before(args, kwargs)
            if token is not PASS:
                thread.inside += 1
            return token

        return guarded

    def _of_scaler(self, name: str) -> tuple[Before, After]:
        observer, thread = self._observer, self._observer.thread

        def outside(after: After) -> After:
            def done(token: Any, result: Any, raised: BaseException | None) -> None:
                thread.inside -= 1
                after(token, result, raised)

            return done

        def scaling(args: Arguments, kwargs: Keywords) -> Any:
            return args[0], _tensors(_argument(args, kwargs, 1, "outputs"))

        def scaled(token: Any, result: Any, raised: BaseException | None) -> None:
            if raised is None:
                scaler, inputs = token
                observer.scaled(scaler, inputs, _tensors(result))

        def handed(args: Arguments, kwargs: Keywords) -> Any:
            optimizer = _argument(args, kwargs, 1, "optimizer")
            if not hasattr(optimizer, "param_groups"):
                return PASS
            event = Event.STEP if name == "step" else Event.UNSCALE
            closed = name == "step" and len(args) > 2 and any(map(callable, args[2:]))
            return observer.before_handed(name, event, args[0], optimizer, has_closure=closed)

        def ended(token: Any, _result: Any, raised: BaseException | None) -> None:
            observer.after_handed(token, raised is not None)

        def updating(args: Arguments, kwargs: Keywords) -> Any:
            return args[0], _argument(args, kwargs, 1, "new_scale")

        def updated(token: Any, _result: Any, raised: BaseException | None) -> None:
            scaler, new_scale = token
            observer.updated(scaler, new_scale, raised is not None)

        def asked(token: Any, result: Any, raised: BaseException | None) -> None:
            if raised is None:
                record = observer.scaler(token)
                record.scale, record.asked_at = float(result), record.updates

        def saved(token: Any, _result: Any, _raised: BaseException | None) -> None:
            observer.scaler(token).is_saved = True

        def loading(args: Arguments, kwargs: Keywords) -> Any:
            return args[0], _argument(args, kwargs, 1, "state_dict")

        def loaded(token: Any, _result: Any, raised: BaseException | None) -> None:
            scaler, state = token
            if raised is None:
                observer.scaler(scaler).loaded(state)

        before, after = {
            "scale": (scaling, scaled),
            "unscale_": (handed, ended),
            "step": (handed, ended),
            "update": (updating, updated),
            "get_scale": (_first, asked),
            "state_dict": (_first, saved),
            "load_state_dict": (loading, loaded),
        }[name]
        return before, outside(after)

    # -- backwards

    def _backward(self) -> None:
        observer = self._observer

        def before(args: Arguments, kwargs: Keywords) -> Any:
            roots = _tensors(_argument(args, kwargs, 0, "tensors"))
            given = _argument(args, kwargs, 1, "grad_tensors")
            return (observer.before_backward(roots, bool(_tensors(given))),)

        def after(token: Any, _result: Any, raised: BaseException | None) -> None:
            observer.after_backward(token[0], raised is not None)

        # `Tensor.backward` looks it up there at each call.
        self._wrap(torch.autograd, "backward", before, after)

    # -- optimizers

    def _optimizers(self) -> None:
        observer = self._observer

        def made(token: Any, _result: Any, raised: BaseException | None) -> None:
            if raised is None:
                observer.objects.optimizer(token)

        def clearing(args: Arguments, kwargs: Keywords) -> Any:
            none = args[1] if len(args) > 1 else kwargs.get("set_to_none", True)
            return args[0], not none

        def cleared(token: Any, _result: Any, raised: BaseException | None) -> None:
            if raised is None:
                observer.zero_grad(*token)

        def module_cleared(token: Any, _result: Any, raised: BaseException | None) -> None:
            if raised is None:
                observer.module_zero_grad(token.parameters)

        def saved(token: Any, _result: Any, _raised: BaseException | None) -> None:
            known = observer.objects.optimizer(token)
            known.is_saved = known.is_saved or known.steps > 0

        def loaded(token: Any, _result: Any, raised: BaseException | None) -> None:
            if raised is None:
                observer.regions.loaded(token)

        self._wrap(Optimizer, "__init__", _first, made)
        self._wrap(Optimizer, "zero_grad", clearing, cleared)
        self._wrap(Optimizer, "state_dict", _first, saved)
        self._wrap(torch.nn.Module, "zero_grad", _first, module_cleared)
        self._wrap(torch.nn.Module, "load_state_dict", _first, loaded)

        pre, post = observer.before_plain_step, observer.after_plain_step
        before, after = self._step_hook(pre), self._step_hook(post)
        self._patches.on_undo(register_optimizer_step_pre_hook(before).remove)
        self._patches.on_undo(register_optimizer_step_post_hook(after).remove)

    def _step_hook(self, tell: Callable[[Any, bool], None]) -> Callable[..., None]:
        switch = self._switch

        def watched(optimizer: Any, args: Arguments, kwargs: Keywords) -> None:
            if not switch.is_on:
                return
            callback = set_eval_frame(None)
            try:
                tell(optimizer, _has_closure(args, kwargs))
            except Misuse:
                raise
            except Exception as error:  # noqa: BLE001 - never the user's
                switch.fail(error)
            finally:
                if callback is not None:
                    set_eval_frame(callback)

        def hook(optimizer: Any, args: Arguments, kwargs: Keywords) -> None:
            if not torch.compiler.is_compiling():
                watched(optimizer, args, kwargs)

        keep_from_dynamo(watched, hook)
        return hook

    # -- clips

    def _clips(self) -> None:
        observer = self._observer

        def before(args: Arguments, kwargs: Keywords) -> Any:
            given = _argument(args, kwargs, 0, "parameters")
            parameters = given if isinstance(given, (list, tuple)) else _tensors(given)
            bound = args[1] if len(args) > 1 else kwargs.get("max_norm", kwargs.get("clip_value"))
            return observer.before_clip(parameters, bound)

        def after(token: Any, _result: Any, _raised: BaseException | None) -> None:
            observer.after_clip(token)

        module = torch.nn.utils.clip_grad
        if hasattr(module, "_clip_grads_with_norm_"):
            # What every norm clip calls, by whatever name user code has it; its list is made.
            self._wrap(module, "_clip_grads_with_norm_", before, after)
            names = ("clip_grads_with_norm_", "clip_grad_value_")
        else:
            names = ("clip_grad_norm_", "clip_grad_value_")
        for owner in (torch.nn.utils, module):
            for name in names:
                if hasattr(owner, name):
                    self._wrap(owner, name, before, after, _walk_once)

    # -- regions

    def _regions(self) -> None:
        regions = self._observer.regions
        region_class = torch.amp.autocast_mode.autocast

        def made(token: Any, _result: Any, raised: BaseException | None) -> None:
            if raised is None:
                regions.made(token)

        def entering(args: Arguments, _kwargs: Keywords) -> Any:
            regions.entering(args[0])
            return args[0]

        def entered(token: Any, _result: Any, raised: BaseException | None) -> None:
            if raised is not None:
                regions.left(token)

        def left(token: Any, _result: Any, _raised: BaseException | None) -> None:
            regions.left(token)

        self._wrap(region_class, "__init__", _first, made)
        self._wrap(region_class, "__enter__", entering, entered)
        self._wrap(region_class, "__exit__", _first, left)

    # -- captured graphs

    def _graphs(self) -> None:
        def replayed(_token: Any, _result: Any, _raised: BaseException | None) -> None:
            self._observer.replayed()

        self._wrap(torch.cuda.CUDAGraph, "replay", _first, replayed)

    # -- the one shape

    def _wrap(
        self,
        owner: Any,
        name: str,
        before: Before,
        after: After,
        prepare: Callable[[Arguments], Arguments] | None = None,
    ) -> None:
        plain = getattr(owner, name)
        switch = self._switch

        def watched(*args: Any, **kwargs: Any) -> Any:
            if not switch.is_on:
                return plain(*args, **kwargs)
            callback = set_eval_frame(None)
            try:
                args = prepare(args) if prepare is not None else args
                token = before(args, kwargs)
            except Misuse:
                raise
            except Exception as error:  # noqa: BLE001 - never the user's
                switch.fail(error)
                token = PASS
            finally:
                if callback is not None:
                    set_eval_frame(callback)
            if token is PASS:
                return plain(*args, **kwargs)
            try:
                result = plain(*args, **kwargs)
            except BaseException as error:
                quietly(token, None, error)
                raise
            quietly(token, result, None)
            return result

        def quietly(token: Any, result: Any, raised: BaseException | None) -> None:
            callback = set_eval_frame(None)
            try:
                after(token, result, raised)
            except Misuse:
                if raised is None:
                    raise
            except Exception as error:  # noqa: BLE001 - never the user's
                switch.fail(error)
            finally:
                if callback is not None:
                    set_eval_frame(callback)

        @functools.wraps(plain)
        def replacement(*args: Any, **kwargs: Any) -> Any:
            # A constant for dynamo: it sees torch's own function and nothing else.
            if torch.compiler.is_compiling():
                return plain(*args, **kwargs)
            return watched(*args, **kwargs)

        keep_from_dynamo(watched, quietly, replacement)
        if isinstance(owner, types.ModuleType):
            self._replaced[plain] = replacement
        self._patches.set(owner, name, replacement)


def _first(args: Arguments, _kwargs: Keywords) -> Any:
    return args[0]


def _argument(args: Arguments, kwargs: Keywords, index: int, name: str) -> Any:
    """The argument at a position or by its name, None if it is not given."""
    return args[index] if len(args) > index else kwargs.get(name)


def _walk_once(args: Arguments) -> Arguments:
    """A generator of parameters becomes a list, because two will walk over it."""
    if args and isinstance(args[0], types.GeneratorType):
        return (list(args[0]), *args[1:])
    return args


def _is_enabled(scaler: Any) -> bool:
    return bool(getattr(scaler, "_enabled", False))


def _has_closure(args: Arguments, kwargs: Keywords) -> bool:
    """Whether a step got a closure; a hook's `args` begin with the optimizer."""
    if len(args) < 2 and not kwargs:
        return False
    return kwargs.get("closure") is not None or any(callable(arg) for arg in args[1:])


def _goes_its_own_way(scaler_class: type) -> bool:
    """Whether a class overrides a method of the protocol and never calls the one behind it."""
    for name in ("scale", "unscale_", "step", "update"):
        code = getattr(vars(scaler_class).get(name), "__code__", None)
        names = code.co_names if code is not None else ("super",)
        if not {"super", "GradScaler", "__class__"} & {*names, *getattr(code, "co_freevars", ())}:
            return True
    return False


def _tensors(value: Any) -> list[Any]:
    """The tensors of what `scale`, `backward` and clips accept: one, or an iterable."""
    if isinstance(value, torch.Tensor):
        return [value]
    is_iterable = value is not None and isinstance(value, Iterable)
    if not is_iterable or isinstance(value, (str, bytes, types.GeneratorType)):
        return []
    return [tensor for item in value for tensor in _tensors(item)]
