"""What the events of one run say, beside what the protocol makes of them."""

from __future__ import annotations

from collections.abc import Callable

from amplint.probe.explanation import Broken, protocol_events
from amplint.probe.inputs import root_of
from amplint.probe.messages import Event, Role, RunResult
from amplint.probe.search import Trial

#: What a function has to do itself so that nothing is left to its caller.
_WHOLE_ROUND = frozenset({"scale", "backward", "step", "update", "zero_grad"})
#: The same of a training without a scaler.
_PLAIN_ROUND = frozenset({"backward", "plain-step", "zero_grad"})


def clears(trial: Trial) -> bool:
    return any(event.kind == "zero_grad" for event in trial.result.events)


def has_model_of_ours(result: RunResult) -> bool:
    """Whether a model that the probe made up took part, and not only the user's own."""
    return any(event.facts.get("model") == "TinyModel" for event in result.events)


def has_half_weights_only(result: RunResult) -> bool:
    """Whether all that the last optimizer of the run owns is float16: whichever of it a loss
    reaches, its gradient is."""
    events = protocol_events(result.events)
    return bool(events) and events[-1].facts.get("dtypes") == ["torch.float16"]


def is_never_fed(trial: Trial) -> bool:
    """Whether the last optimizer never had a gradient, and the probe chose its parameters, or
    what the loss depends on."""
    events = protocol_events(trial.result.events)
    number = events[-1].optimizer if events else 0
    if not number or not events[-1].facts.get("raised"):
        return False
    if any(number in event.facts.get("optimizers", ()) for event in events):
        return False
    if not any(event.kind == "forward" for event in trial.result.events):
        return True
    return any(map(_is_invented(trial), trial.plan.roles))


def _is_invented(trial: Trial) -> Callable[[Role], bool]:
    """Whether a role is an optimizer or a loss that the probe made up."""

    def is_invented(role: Role) -> bool:
        if role.kind == "loss":
            return root_of(role.path) in trial.plan.parameters
        return role.kind == "optimizer" and role.origin != "constructor"

    return is_invented


def keeps_its_scalers(result: RunResult) -> bool:
    """Whether the code has built every scaler itself, and nobody unknown has got one: then what
    it calls cannot call them, whatever it is called."""
    built = [event for event in result.events if event.kind == "scaler"]
    return (
        bool(built)
        and all("stands-for" not in event.facts for event in built)
        and not any(note.kind == "scaler-class" for note in result.notes)
        and not any("scaler" in call.kinds for call in result.opaque)
    )


def invents_no_scaler(result: RunResult) -> bool:
    """Whether nobody passes a scaler in: the code builds each one that takes part."""
    return not any(note.kind == "scaler-class" for note in result.notes) and not any(
        event.kind == "scaler" and "stands-for" in event.facts for event in result.events
    )


def may_be_the_same(result: RunResult) -> list[str]:
    """The paths of several scalers that the probe made up: who passes them may pass one."""
    paths = [e.facts["stands-for"] for e in result.events if "stands-for" in e.facts and e.scaler]
    return sorted(set(paths)) if len(set(paths)) > 1 else []


def owners(trial: Trial) -> set[str]:
    """Parameters of unknown classes that hold a scaler or an optimizer: `scaling.scaler`."""
    return {
        role.path.rpartition(".")[0]
        for role in trial.plan.roles
        if role.kind in ("scaler", "optimizer")
        and "." in role.path
        and root_of(role.path) in trial.plan.parameters
        and not role.path.startswith("self.")
    }


def is_second_call(trial: Trial) -> bool:
    """Whether a function that does only a part of a round has been called more than once."""
    events = protocol_events(trial.result.events)
    whole = _WHOLE_ROUND if has_scaler(trial.result) else _PLAIN_ROUND
    if trial.result.calls == 1 or {event.kind for event in events} >= whole:
        return False
    return len(_first_call(trial.result)) < len(events)


def _first_call(result: RunResult) -> tuple[Event, ...]:
    """The events up to the first that stands where another one did."""
    seen = set()
    events = protocol_events(result.events)
    for index, event in enumerate(events):
        place = (event.kind, event.filename, event.row, event.optimizer)
        if place in seen:
            return events[:index]
        seen.add(place)
    return events


def steps_before_a_second_call(result: RunResult) -> bool:
    return is_in_first_call(result, 0)


def is_in_first_call(result: RunResult, step: int | None) -> bool:
    """Whether a step of a run, counted from 0, is one of the first call; None is none."""
    steps = [event for event in _first_call(result) if event.kind in ("step", "plain-step")]
    return step is not None and step < len(steps)


def has_scaler(result: RunResult) -> bool:
    """Whether a run has a scaler, or does what only one does."""
    return any(event.kind in ("scaler", "scale", "unscale_", "step") for event in result.events)


def steps_what_it_scaled(result: RunResult, cause: Broken) -> bool:
    """Whether a single backward, a scaled one, comes before what breaks a rule, and the step of
    a scaler succeeds after it."""
    events = protocol_events(result.events)
    backwards = {(e.filename, e.row, e.facts.get("scaled")) for e in events if e.kind == "backward"}
    return (
        len(backwards) == 1
        and all(scaled for _, _, scaled in backwards)
        and any(
            event.kind == "step"
            and event.optimizer == cause.event.optimizer
            and not event.facts.get("raised")
            for event in events[cause.index :]
        )
    )


def stepped(trial: Trial) -> set[str]:
    """The paths of the optimizers that a run has stepped; empty where one of them is unknown."""
    events = trial.result.events
    made = {event.optimizer: event.facts for event in events if event.kind == "optimizer"}
    known = {role.path for role in trial.plan.roles if role.kind == "optimizer"}
    kept = {path for path in known if root_of(path) == "self"}
    found: set[str] = set()
    for number in {event.optimizer for event in events if event.kind in ("step", "plain-step")}:
        path = made.get(number, {}).get("stands-for")
        if path is None and not kept:
            return set()
        found |= {path} if path is not None else kept
    return found


def shares_invented_parameters(trial: Trial) -> bool:
    """Whether there are several optimizers, and somebody else knows what each of them owns."""
    if len({event.optimizer for event in trial.result.events if event.optimizer}) < 2:
        return False
    built = [event for event in trial.result.events if event.kind == "optimizer"]
    if built:
        return any("stands-for" in event.facts for event in built)
    return trial.plan.entry != "<module>" and any(
        role.kind == "optimizer" and role.origin != "constructor" for role in trial.plan.roles
    )
