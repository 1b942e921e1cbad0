"""One run, from a request to a result, in a process of its own."""

from __future__ import annotations

import contextlib
import sys
import time
from types import FrameType
from typing import Any

import torch
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook

from amplint.probe.messages import Event, Request, RunResult
from amplint.probe.worker import (
    accelerator,
    commandline,
    library,
    omissions,
    opaque_calls,
    rounding,
    torch_patches,
)
from amplint.probe.worker.context import Run, StopRun, begin
from amplint.probe.worker.entry import Entry, EntryError
from amplint.probe.worker.failures import describe
from amplint.probe.worker.handlers import packages_with_handlers
from amplint.probe.worker.namespace import Loading
from amplint.probe.worker.sources import Project, Used
from amplint.probe.worker.user_builtins import UserBuiltins
from amplint.probe.worker.world import World
from amplint.runtime.instrument import instrument
from amplint.runtime.monitor import Monitor, Observation, parameters_of
from amplint.runtime.places import user_place

#: Executed rows of the project after which a run is stopped.
ROWS = 60_000
#: Events that a result holds at most.
EVENTS = 1500
#: Forwards into which NaN may be put.
FORWARDS = 2
#: The key of the hook that measures a step, after all others: theirs are numbers.
_LAST_HOOK = "amplint"


def execute(request: Request, project: Project) -> tuple[RunResult, Used]:
    """Run the plan's entry once. Changes this process for good.

    Returns: the result, and what it has used of the project.
    """
    started = time.perf_counter()
    run = Run(request, project)
    run.world = World("cpu" if run.virtual_cuda else request.device)
    begin(run)
    torch.default_generator.manual_seed(0)
    _watch(run)
    torch_patches.install(run)
    commandline.install(run)
    run.with_handlers = packages_with_handlers(run)
    run.library = {**library.LIBRARY, **accelerator.LIBRARY}
    omissions.install(run)
    watched = torch_patches.watched()
    loading: Loading | None = None
    status, reason, raised = "returned", "", None
    try:
        with torch_patches.Devices(run.virtual_cuda):
            _trace(run)
            loading = Loading(run, UserBuiltins(run).table)
            Entry(run, loading).call()
    except StopRun as stop:
        status, reason = stop.status, stop.reason
    except EntryError as error:
        status, reason = "failed", str(error)
    except MemoryError:
        status, reason = "failed", "it takes more memory than a run may have"
    except BaseException as error:  # noqa: BLE001 -- what the user's code raises is the result
        sys.settrace(None)
        status, raised = "raised", describe(error, project.is_mine)
    finally:
        sys.settrace(None)
    with contextlib.suppress(Exception):  # what the user's objects raise who are looked at
        opaque_calls.report_filled()
    events, steps = tuple(run.events[-EVENTS:]), tuple(run.steps[:EVENTS])
    _tell_rounding(run, events)
    replaced = [key for key, value in torch_patches.watched().items() if value is not watched[key]]
    if replaced:
        status, reason, raised = (
            "failed",
            f"the code replaces torch's {'.'.join(replaced[0])}",
            None,
        )
    result = RunResult(
        status=status,
        reason=reason,
        raised=raised,
        decisions=run.decisions.made(),
        events=events,
        rows=tuple(sorted(run.rows)),
        steps=steps,
        skipped=tuple(run.skipped),
        opaque=tuple(run.opaque),
        asked=tuple(run.asked),
        notes=tuple(run.notes),
        remarks=tuple(run.remarks),
        calls=run.calls,
        torch=torch.__version__,
        device=request.device,
        seconds=time.perf_counter() - started,
    )
    executed = tuple(loading.used) if loading is not None else ()
    return result, Used(executed, project.read())


def _tell_rounding(run: Run, events: tuple[Event, ...]) -> None:
    """Add to the optimizers of a run what their steps do to weights of half precision."""
    for event in events:
        stepped = run.half_steps.get(event.optimizer) if event.kind == "optimizer" else None
        if stepped is not None:
            with contextlib.suppress(Exception):  # whatever the class says about its settings
                event.facts["unmoved"] = rounding.unmoved(stepped)
                event.facts["rate"] = float(stepped.settings["lr"])
                event.facts["dtype"] = str(stepped.dtype).removeprefix("torch.")


def _watch(run: Run) -> None:
    """Record events, the gradients that reach steps, and forwards."""

    def listen(seen: Observation) -> None:
        facts = dict(seen.facts)
        if seen.violation is not None:
            facts["violation"] = seen.violation.slug
        if seen.filename != run.project.checked:
            facts["through"] = run.row()
        run.events.append(
            Event(
                seen.kind,
                seen.filename,
                seen.row,
                seen.scaler,
                seen.optimizer,
                seen.state,
                facts,
            )
        )

    place = user_place(run.project.is_mine)
    monitor = Monitor(listen, place)
    instrument(monitor)
    run.world.known_optimizers = monitor.known_optimizers
    run.after_backward = _Graphs(run, monitor).after_backward
    _watch_constructions(run, monitor, place)

    watches_rounding = any(item.kind == rounding.KIND for item in run.plan.predictions)

    def before_step(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        # What the code hooks on comes before: it may change gradients.
        hooks = optimizer._optimizer_step_pre_hooks
        hooks[_LAST_HOOK] = measured
        hooks.move_to_end(_LAST_HOOK)

    def measured(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if 0 < run.request.most_steps <= len(run.steps):
            raise StopRun("stopped", "enough optimizer steps were seen")
        # An optimizer that is given the scale divides by it itself.
        scale = getattr(optimizer, "grad_scale", None)
        share = 1.0 / float(scale) if isinstance(scale, torch.Tensor) else 1.0
        norms = tuple(_norm(parameter.grad, share) for parameter in parameters_of(optimizer))
        run.steps.append((place()[1], norms))
        if watches_rounding:
            number = monitor.optimizer_number(optimizer)
            seen = rounding.seen_at(optimizer, run.half_steps.get(number))
            if seen is not None:
                run.half_steps[number] = seen

    register_optimizer_step_pre_hook(before_step)
    _Forwards(run, place, monitor).watch()


class _Graphs:
    """Tells of each backward which parameters are in the graph of its loss."""

    def __init__(self, run: Run, monitor: Monitor) -> None:
        self._run = run
        self._monitor = monitor

    def after_backward(self, leaves: list[Any]) -> None:
        """The backward that has just been recorded started from the graph of these leaves."""
        events = self._run.events
        if not events or events[-1].kind != "backward":
            return
        reached = {id(leaf) for leaf in leaves}
        graph = {}
        for optimizer in self._monitor.known_optimizers():
            owned = enumerate(parameters_of(optimizer))
            indices = [index for index, parameter in owned if id(parameter) in reached]
            if indices:
                graph[str(self._monitor.optimizer_number(optimizer))] = indices
        events[-1].facts["graph"] = graph


def _watch_constructions(run: Run, monitor: Monitor, place: Any) -> None:
    """Record which scalers and optimizers are built or restored where, and what is made up."""
    scaler_class = torch.amp.GradScaler
    scaler_init, optimizer_init = scaler_class.__init__, Optimizer.__init__

    def add(kind: str, built: Any, number: int, facts: dict[str, Any]) -> None:
        facts["class"] = type(built).__name__
        if run.world.inventing:
            facts["stands-for"] = run.world.inventing
        filename, row = place()
        scaler, optimizer = (0, number) if kind == "optimizer" else (number, 0)
        run.events.append(Event(kind, filename, row, scaler, optimizer, facts=facts))

    def new_scaler(self: Any, *args: Any, **kwargs: Any) -> None:
        scaler_init(self, *args, **kwargs)
        scale = getattr(self, "_init_scale", 1.0)
        # A text is no scale: the first use of the scaler raises.
        facts = {"enabled": self.is_enabled(), "scale": 0.0 if type(scale) is str else float(scale)}
        facts["bools"] = getattr(self, "_amp_bools", {})
        add("scaler", self, monitor.scaler_number(self), facts)

    def restored(self: Any, *args: Any, **kwargs: Any) -> None:
        add("restore", self, monitor.scaler_number(self), {})

    def new_optimizer(self: Any, *args: Any, **kwargs: Any) -> None:
        optimizer_init(self, *args, **kwargs)
        owned = enumerate(parameters_of(self))
        trainable = [index for index, parameter in owned if parameter.requires_grad]
        # Fused kernels calculate in float32, where no usual epsilon is zero (semantics H05).
        eps = None if self.defaults.get("fused") else self.defaults.get("eps")
        facts = {"trainable": trainable, "eps": eps}
        add("optimizer", self, monitor.optimizer_number(self), facts)

    scaler_class.__init__ = new_scaler  # type: ignore[method-assign]
    scaler_class.load_state_dict = restored  # type: ignore[method-assign]
    Optimizer.__init__ = new_optimizer  # type: ignore[method-assign]


def _norm(gradient: Any, share: float) -> float | None:
    """The 2-norm of the gradient that is applied, a share of what the parameter has."""
    if gradient is None:
        return None
    with torch._C.DisableTorchFunction():
        return share * float(gradient.detach().float().norm())


class _Forwards:
    """Sees the outermost forward of each model, and puts NaN into it where that is decided.

    A model of the project is given NaN, and so is what its layers give: what it makes of that is its
    own business. Of any other model the output is NaN.
    """

    def __init__(self, run: Run, place: Any, monitor: Monitor) -> None:
        self._run = run
        self._place = place
        self._monitor = monitor
        self._depth = 0
        self._count = 0
        #: Whether NaN goes into the model of the project that is running, and whether it has.
        self._poisons = self._has_poisoned = False

    def watch(self) -> None:
        """Hook every module."""
        module = torch.nn.modules.module
        module.register_module_forward_pre_hook(self._before)
        module.register_module_forward_hook(self._after, always_call=True)

    def _before(self, module: Any, args: Any) -> Any:
        self._depth += 1
        if self._depth > 1:
            return None
        code = getattr(type(module).forward, "__code__", None)
        is_mine = code is not None and self._run.project.is_mine(code.co_filename)
        self._has_poisoned = False
        self._poisons = (
            is_mine
            and self._count < FORWARDS
            and _is_trained(module)
            and self._run.choose(f"nan in forward {self._count + 1}", (False, True))
        )
        return self._poisoned(args) if self._poisons else None

    def _poisoned(self, value: Any) -> Any:
        """NaN in the place of numbers; nothing where there are none."""
        made = _with_nan(value)
        pairs = zip(value, made) if isinstance(value, (tuple, list)) else [(value, made)]
        if not any(one is not other for one, other in pairs):
            return None
        self._has_poisoned = True
        return made

    def _after(self, module: Any, args: Any, output: Any) -> Any:
        self._depth -= 1
        if self._depth and self._poisons and type(module).__module__.startswith("torch.nn."):
            return self._poisoned(output)
        if self._depth or output is None or not _is_trained(module):
            return None
        self._count += 1
        filename, row = self._place()
        facts = {"model": type(module).__name__, "autocast": self._monitor.in_region}
        self._run.events.append(Event("forward", filename, row, facts=facts))
        if self._count > FORWARDS:
            return None
        if not self._run.choose(f"nan in forward {self._count}", (False, True)):
            return None
        return None if self._has_poisoned else _with_nan(output)


def _is_trained(module: Any) -> bool:
    return module.training and any(parameter.requires_grad for parameter in module.parameters())


def _with_nan(output: Any) -> Any:
    if isinstance(output, torch.Tensor) and output.is_floating_point():
        return output * float("nan")
    if type(output) in (list, tuple):
        return type(output)(_with_nan(entry) for entry in output)
    if isinstance(output, dict):
        return {key: _with_nan(entry) for key, entry in output.items()}
    return output


def _trace(run: Run) -> None:
    """Record the rows of the checked file, and stop a run that has gone on long enough."""
    checked = run.project.checked
    targets = set(run.plan.target_rows)

    def on_line(frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            row = frame.f_lineno
            run.lines += 1
            run.rows[row] = run.rows.get(row, 0) + 1
            if run.lines > ROWS:
                raise StopRun("stopped", f"{ROWS} rows executed")
            if row in targets and run.has_seen_enough(row):
                raise StopRun("stopped", "the rows in question were passed often enough")
        return on_line

    def on_call(frame: FrameType, event: str, argument: Any) -> Any:
        return on_line if frame.f_code.co_filename == checked else None

    sys.settrace(on_call)
