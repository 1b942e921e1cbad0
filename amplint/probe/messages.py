"""What the probe and its worker say to each other: plain data, one JSON object each.

The worker runs in the interpreter that has the user's torch, and perhaps nothing else. So
this module imports the standard library only, and everything here survives JSON.
Rows are 1-based. Paths of values ("args.amp", "self.scaler") are written as the entry
function writes them.

The transport: `amplint.probe.process` starts `amplint.probe.worker.serve.main(measures)` in
the user's interpreter, already isolated by those measures. Standard input brings one request
on each line. What was standard output takes a `Hello` first, then one result for each
request, in order; the worker keeps a copy of that descriptor for itself and points 0 and 1
at the null device before any code of the user runs. The end of input ends the worker. Its
working directory is a scratch folder, the only one that runs may write to
(`amplint.probe.worker.limits`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

#: A value that an assignment may have: layers of torch.nn are made smaller than the code says,
#: and loops are left early.
SMALL = "torch.nn is small"
#: Another one: all files and folders that the code asks for are there, and hold something.
FILES = "files are there"
#: How decisions about them begin.
ABOUT_FILES = ("os.listdir@", "os.walk@", "os.path.")
#: The root of the paths of all options of a command line, whatever the code calls the result.
OPTIONS = "args"
#: Wall time that a run, and a finding, may take for each processor second that it may use: what a
#: verdict says does not depend on how busy the machine is.
PATIENCE = 3.0


def path_of_option(name: str) -> str:
    """The path of what the option of a command line is, by the attribute that holds it."""
    return f"{OPTIONS}.{name}"


def membership(path: str, entry: object) -> str:
    """The path of the decision whether something is in what stands at a path."""
    return f"contains({path}, {entry!r})"


@dataclass(frozen=True, slots=True)
class Source:
    """One file of the user's project that definitions may be loaded from.

    Args:
        filename: where it lies on disk, absolute.
        module: the dotted name under which the project imports it, "" if nobody does. A file
            that is imported under several names is listed once for each.
        package: the dotted package that its relative imports start from, "" if it is in none.
    """

    filename: str
    module: str = ""
    package: str = ""


@dataclass(frozen=True, slots=True)
class Role:
    """What the static analysis knows about a value of the entry function.

    Args:
        path: "scaler", "self.optimizer", "args.amp".
        kind: "scaler", "optimizer", "model", "loss", "loader", "scheduler", "config", "flag",
            "function", "other".
        origin: why: "constructor", "annotation", "caller", "use", "name" (the last resort).
        detail: what the kind needs: the constructor's source text, the class's qualname.
    """

    path: str
    kind: str
    origin: str = "name"
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Domain:
    """Values that a free input may take, the preferred one first.

    Args:
        path: "args.accumulation_steps"; "*.accumulation_steps" for every attribute of that name
            for which there is nothing else.
        values: JSON values.
        origin: "default" (declared: argparse, dataclass, literal), "guard" (compared with) or
            "invented".
    """

    path: str
    values: tuple[Any, ...]
    origin: str = "invented"


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the finding says will happen.

    Args:
        kind: "raises", "gradients" (those that reach `optimizer.step` change with the loss
            scale), or another key of `amplint.probe.measurements.MEASURES`.
        exception: its class name, for "raises".
        pattern: regular expression that its message matches, "" for any.
        rows: of the checked file, where it is raised or seen.
        detail: the violation of the protocol that causes it, if one does.
    """

    kind: str
    exception: str = ""
    pattern: str = ""
    rows: tuple[int, ...] = ()
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Omission:
    """Something that a counterfactual run leaves out, with everything else as it was.

    Args:
        kind: "grad-modes" (`no_grad`, `inference_mode` and `set_grad_enabled(False)` change
            nothing), "copies" (`detach`, `data`, `item` and `torch.tensor` return the tensor
            itself), "casts" (tensors and models keep their dtype), "clips" (gradients are not
            clipped), "inference-mode" (it is `no_grad`), "autocast-cache" (every weight is
            cast anew), "autocast" (nothing is cast), "initial-scales" (a text that a
            scaler is given for one is none), "freed-graphs" (every backward keeps
            its graph).
        rows: of the checked file; what happens on these rows, or in calls that are made
            there, is left out. Empty for everywhere.
    """

    kind: str
    rows: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything a worker needs to run one function of the user.

    Args:
        sources: the checked file first, then files that it may take definitions from.
        entry: qualname of the function to call: "train", "Trainer.train_step"; "<module>" for
            the statements of a script.
        entry_source: index in `sources` of the file that holds the entry; 0 is the checked file,
            another one holds a caller. All rows are rows of the checked file even then.
        calls: how often the entry is called, with the same objects.
        parameters: names of the entry's parameters, and "self": what stands there is invented
            unless a constructor of the user made it.
        target_rows: rows of the checked file that have to be reached.
        roles: of the entry's parameters, attributes and free names.
        domains: of free inputs; every other one is invented when it is first read.
        predictions: any of them confirms.
        slice_rows: rows of the checked file that matter to scalers, optimizers, losses and
            their guards; of the statements there, those that touch them are never skipped.
        call_rows: first rows of those of these statements that call what may do something to
            a scaler, gradients or optimizers.
        prefer: path of a decision -> the value with which a run is to start.
        real_data: whether loaders hand out what the user's own data sets hold, where those can
            be run: shapes and dtypes are real then.
        omissions: what every run leaves out: causes of earlier failures that are confirmed.
    """

    sources: tuple[Source, ...]
    entry: str
    target_rows: tuple[int, ...]
    roles: tuple[Role, ...] = ()
    domains: tuple[Domain, ...] = ()
    predictions: tuple[Prediction, ...] = ()
    slice_rows: tuple[int, ...] = ()
    call_rows: tuple[int, ...] = ()
    prefer: dict[str, Any] = field(default_factory=dict)
    entry_source: int = 0
    parameters: tuple[str, ...] = ()
    calls: int = 1
    real_data: bool = False
    omissions: tuple[Omission, ...] = ()


@dataclass(frozen=True, slots=True)
class Hello:
    """The first line of a worker, when torch is imported and warm.

    Args:
        torch: its version.
        devices: that scalers may run on: "cpu", "cuda:0".
        measures: of isolation that are in force, as `amplint.probe.worker.limits` names them.
        error: why no run is possible ("No module named 'torch'"); "" where all is well.
    """

    torch: str = ""
    devices: tuple[str, ...] = ("cpu",)
    measures: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """One run.

    Args:
        plan: what to run.
        assignment: path of a decision -> value; what is missing takes its first value.
        init_scale: of every scaler that the run builds.
        enabled: False builds every scaler disabled, whatever the code asks for: a control run.
        device: "cpu", "cuda:0".
        seconds: processor time after which the run is ended; so is one that takes `PATIENCE`
            times as much wall time.
        repair: whether statements that raise may be skipped, but those that do something to
            scalers, gradients or optimizers.
        omissions: what is left out: a counterfactual run, to see what causes what.
        trainable_inputs: whether every tensor that is invented for a parameter or attribute
            requires a gradient, as if somebody trained it.
        exaggerate: whether every optimizer step changes the weights far more than it should,
            so that whoever reads them afterwards shows it.
        loss_weight: factor of every loss, applied where its backward begins.
        most_steps: optimizer steps after which the run ends, because what it is about has been
            seen by then; 0 for any number.
    """

    plan: Plan
    assignment: dict[str, Any] = field(default_factory=dict)
    init_scale: float = 1024.0
    enabled: bool = True
    device: str = "cpu"
    seconds: float = 4.0
    repair: bool = False
    omissions: tuple[Omission, ...] = ()
    trainable_inputs: bool = False
    exaggerate: bool = False
    loss_weight: float = 1.0
    most_steps: int = 0


@dataclass(frozen=True, slots=True)
class Decision:
    """A free value that the run read, and what it was given.

    Args:
        path: of an input as the entry writes it, or about one: "X is None", "len(X)",
            "hasattr(X, 'y')", "isinstance(X, Y)". About the data: "data@ROW" (the truth of a
            tensor; what it really holds is the first option) and "nan in forward N" (False,
            True: whether the output of the N-th call of a model that is trained is NaN, so
            that everything computed from it is, too). About the machine: "os.…", "torch.…".
        options: all its values, the chosen one included.
        row: of the checked file where it was first read, 0 if elsewhere.
        origin: as in `Domain`, or "option" (a command line that the project's own parser has
            parsed says so; its default is the first option), or "role".
        after: how many optimizer steps the run had made before.
    """

    path: str
    options: tuple[Any, ...]
    choice: Any
    row: int = 0
    origin: str = "invented"
    after: int = 0


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a real scaler, optimizer, gradient or autocast region.

    Args:
        kind: a word of the protocol ("scale", "backward", "unscale_", "clip", "step", "update",
            "zero_grad", "plain-step") or "forward", "autocast-enter", "autocast-exit",
            "scaler" or "optimizer" (one was built), "operation" (on float16, on a target row).
        filename, row: the user's innermost line.
        scaler, optimizer: running numbers of the objects, 0 for none.
        state: the typestate after the event, in the protocol's words.
        facts: what else was seen. "raised": the class of the exception that the call raised
            (a call that fails is an event all the same, the last one at its row). Of a
            backward: "scaled", and "optimizers", the numbers of those whose parameters it
            reached. Of a zero_grad: "keep", for `set_to_none=False`. Of an update: "new-scale",
            where the code names the scale. Of unscale_, step, clip
            and plain-step: "gradients", how many parameters had one. Of all: "autocast", whether
            it was enabled. Of what was built: "class", "stands-for", the path of an object
            that the probe made up; of a scaler "enabled" and "scale"; of an optimizer
            "trainable", the indices of the parameters that require a gradient. Of a forward:
            "model", its class. Of a region: "device", "dtype", "enabled", "explicit" (the code
            names the dtype), and at its end "leaks": autocast is not as it was before.
    """

    kind: str
    filename: str
    row: int
    scaler: int = 0
    optimizer: int = 0
    state: str = ""
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Raised:
    """The exception that ended a run.

    Args:
        inside: where it was raised: "torch.amp", "torch.autograd", "torch", "user", "probe".
        filename, row: the user's innermost line.
        calls: the lines of the project that led there, outermost first, that one included.
    """

    type: str
    message: str
    inside: str
    filename: str = ""
    row: int = 0
    calls: tuple[tuple[str, int], ...] = ()

    def rows_of(self, filename: str) -> tuple[int, ...]:
        """The rows of a file on the way to the exception, the innermost first."""
        calls = self.calls or ((self.filename, self.row),)
        return tuple(row for name, row in reversed(calls) if name == filename)


@dataclass(frozen=True, slots=True)
class Skipped:
    """A statement that raised, and was skipped so that the run could go on.

    Args:
        row: of the file that it is in.
        apart: no call of a scaler depends on what it does, except by tests of what it binds;
            and it is none that ends anything: no `raise`, no `assert`.
        names: what it would have bound, where stand-ins are now.
    """

    row: int
    reason: str
    apart: bool = False
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Handed:
    """A call of a function that nobody has, with things that matter.

    Args:
        name: how the code calls it.
        row: of the checked file.
        kinds: of what it received, itself or inside an object: "scaler", "optimizer", "model",
            "loss".
    """

    name: str
    row: int
    kinds: tuple[str, ...] = ("scaler",)


#: Characters of what a call is given, in words; what is longer is cut off.
LONGEST_GIVEN = 400


@dataclass(frozen=True, slots=True)
class Asked:
    """A call of a function that nobody has, before a target row was reached.

    Args:
        name: how the code calls it, from the module that it is imported from.
        row: of the checked file.
        inputs: paths of unknown values that it got, or that it is a method of.
        given: the other things that it got, as far as they are plain, in words.
    """

    name: str
    row: int
    inputs: tuple[str, ...] = ()
    given: str = ""


@dataclass(frozen=True, slots=True)
class Note:
    """Something that is taken to be so, and that nobody has seen.

    Args:
        kind: a key of `amplint.probe.doubts.WORDS`, which has the words.
        subject: a path or a name, as the code writes it.
        row: of the line that it is about.
        detail: what else the words need.
        after: how many optimizer steps the run had made before, where only what comes later
            depends on it.
    """

    kind: str
    subject: str = ""
    row: int = 0
    detail: str = ""
    after: int = 0


@dataclass(frozen=True, slots=True)
class RunResult:
    """What one run gave.

    Args:
        status: "returned", "raised", "stopped" (enough was seen), "timeout", "killed" (by a
            limit or a signal), "failed" (the probe itself could not go on: see `reason`).
        rows: rows of the checked file that were executed.
        steps: for each optimizer step, in order: its row and the 2-norm of the gradients that
            reached it, one for each parameter; None for a parameter without gradient.
        skipped: statements that raised, in a run with repair.
        opaque: stand-ins that received a scaler, optimizer, model or loss.
        asked: calls of functions that nobody has, before the first target row.
        notes: other approximations that a verdict has to know; any of them may keep a run from
            confirming.
        calls: how often the entry was called; 0 if nobody has counted.
        seconds, processor: wall time and processor time of the run.
        remarks: approximations that do not bear on a verdict: what was left out or invented
            beside the gradients.
    """

    status: str
    reason: str = ""
    raised: Raised | None = None
    decisions: tuple[Decision, ...] = ()
    events: tuple[Event, ...] = ()
    rows: tuple[int, ...] = ()
    steps: tuple[tuple[int, tuple[float | None, ...]], ...] = ()
    skipped: tuple[Skipped, ...] = ()
    opaque: tuple[Handed, ...] = ()
    asked: tuple[Asked, ...] = ()
    notes: tuple[Note, ...] = ()
    remarks: tuple[str, ...] = ()
    calls: int = 0
    torch: str = ""
    device: str = "cpu"
    seconds: float = 0.0
    processor: float = 0.0


def encode(message: Hello | Request | RunResult) -> dict[str, Any]:
    """The JSON object of a message."""
    return asdict(message)


def decode_hello(data: dict[str, Any]) -> Hello:
    """The hello of a JSON object that `encode` made.

    Raises:
        KeyError, TypeError: it is none.
    """
    return Hello(
        **{
            **data,
            "devices": tuple(data["devices"]),
            "measures": tuple(data["measures"]),
        }
    )


def decode_request(data: dict[str, Any]) -> Request:
    """The request of a JSON object that `encode` made.

    Raises:
        KeyError, TypeError: it is none.
    """
    plan = data["plan"]
    return Request(
        **{
            **data,
            "omissions": _omissions(data["omissions"]),
            "plan": Plan(
                **{
                    **plan,
                    "sources": tuple(Source(**item) for item in plan["sources"]),
                    "target_rows": tuple(plan["target_rows"]),
                    "roles": tuple(Role(**item) for item in plan["roles"]),
                    "domains": tuple(
                        Domain(**{**item, "values": tuple(item["values"])})
                        for item in plan["domains"]
                    ),
                    "predictions": tuple(
                        Prediction(**{**item, "rows": tuple(item["rows"])})
                        for item in plan["predictions"]
                    ),
                    "slice_rows": tuple(plan["slice_rows"]),
                    "call_rows": tuple(plan["call_rows"]),
                    "parameters": tuple(plan["parameters"]),
                    "omissions": _omissions(plan["omissions"]),
                }
            ),
        }
    )


def _omissions(items: list[dict[str, Any]]) -> tuple[Omission, ...]:
    return tuple(Omission(item["kind"], tuple(item["rows"])) for item in items)


def _raised(data: dict[str, Any]) -> Raised:
    return Raised(**{**data, "calls": tuple((name, row) for name, row in data["calls"])})


def decode_result(data: dict[str, Any]) -> RunResult:
    """The result of a JSON object that `encode` made.

    Raises:
        KeyError, TypeError: it is none.
    """
    raised = data["raised"]
    return RunResult(
        **{
            **data,
            "raised": _raised(raised) if raised else None,
            "decisions": tuple(
                Decision(**{**item, "options": tuple(item["options"])})
                for item in data["decisions"]
            ),
            "events": tuple(Event(**item) for item in data["events"]),
            "rows": tuple(data["rows"]),
            "steps": tuple((row, tuple(norms)) for row, norms in data["steps"]),
            "skipped": tuple(
                Skipped(**{**item, "names": tuple(item["names"])}) for item in data["skipped"]
            ),
            "opaque": tuple(
                Handed(**{**item, "kinds": tuple(item["kinds"])}) for item in data["opaque"]
            ),
            "asked": tuple(
                Asked(**{**item, "inputs": tuple(item["inputs"])}) for item in data["asked"]
            ),
            "notes": tuple(Note(**item) for item in data["notes"]),
            "remarks": tuple(data["remarks"]),
        }
    )
