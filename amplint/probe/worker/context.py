"""The run that is going on: what it was asked, what it has decided, what it approximated."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from amplint.probe.messages import Asked, Event, Handed, Note, Plan, Request, Role, Skipped
from amplint.probe.worker.decisions import Decisions
from amplint.probe.worker.omissions import Omissions
from amplint.probe.worker.sources import Project
from amplint.probe.worker.uses import Use

if TYPE_CHECKING:
    from amplint.probe.worker.world import World

#: Predictions about single operations.
OPERATIONS = frozenset({"vanishing"})
#: Predictions about all steps of a training: these runs are no shorter than they have to be.
ALL_STEPS = frozenset({"idle-scaler", "idle-clip", "no-gradient"})
#: How often a target row is passed before a run that goes well has seen enough, how often where
#: all steps matter, and where the code counts rounds.
ENOUGH, ENOUGH_OF_ALL, ENOUGH_COUNTED = 8, 12, 45
#: Calls of torch after which a run is a long one. So is one that has made as many steps as rows are
#: passed otherwise: the row is one of each epoch, not of each batch.
MANY_CALLS = 6_000
#: How often a target row is passed in a long run: twice, or a common window where code counts or
#: all steps matter.
ENOUGH_OF_LONG, MORE_OF_LONG = 2, 4


class StopRun(BaseException):
    """Ends a run from inside the user's code; no handler of theirs should stop it."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class Run:
    """Everything that one run shares."""

    def __init__(self, request: Request, project: Project) -> None:
        self.request = request
        self.plan: Plan = request.plan
        self.project = project
        #: The small real objects; set before the run begins.
        self.world: World
        self.decisions = Decisions(request)
        self.omissions = Omissions(self)
        #: Whether operations on float16 matter that stand on a target row.
        self.watches_operations = any(
            prediction.kind in OPERATIONS for prediction in self.plan.predictions
        )
        self.needs_all_steps = any(item.kind in ALL_STEPS for item in self.plan.predictions)
        #: Told every torch function, where a run is about what CUDA's autocast refuses.
        self.refuses: Callable[[str, Any, Any], None] | None = None
        self.uses = project.uses()
        self.events: list[Event] = []
        self.steps: list[tuple[int, tuple[float | None, ...]]] = []
        #: Steps of weights of half precision, by the number of the optimizer.
        self.half_steps: dict[int, Any] = {}
        self.skipped: dict[Skipped, None] = {}
        self.opaque: dict[Handed, None] = {}
        #: Packages from outside that may call functions of the project whenever they are called.
        self.with_handlers: frozenset[str] = frozenset()
        #: What unknown functions were given that may be filled later: by path and identity, the row
        #: and the thing.
        self.given: dict[tuple[str, int], tuple[int, Any]] = {}
        #: Path of an inherited attribute that nobody has -> the object that it belongs to.
        self.holders: dict[str, Any] = {}
        self.asked: dict[Asked, None] = {}
        #: With what the length of data is first compared, by the path of the decision.
        self.bounds: dict[str, float] = {}
        #: Files and folders that the run has made: whoever asks for them finds them.
        self.made_files: set[str] = set()
        self.notes: dict[Note, None] = {}
        self.remarks: dict[str, None] = {}
        self.rows: dict[int, int] = {}
        self.lines = 0
        #: Calls of torch, a measure of a run's time that repeats itself.
        self.torch_calls = 0
        #: What stands for calls of known libraries: path -> what is called instead.
        self.library: dict[str, Callable[..., Any]] = {}
        #: How often the entry was called.
        self.calls = 0
        #: Whether what is written into stand-ins are the defaults of a configuration.
        self.declares = False
        self.virtual_cuda = not request.device.startswith("cuda")
        #: Told the leaves of each graph that a backward went through.
        self.after_backward: Callable[[list[Any]], None] = lambda leaves: None
        self._roles = {role.path: role for role in self.plan.roles}

    def choose(self, path: str, options: Iterable[Any], origin: str = "invented") -> Any:
        """Decide a free value, once for each path."""
        if self.decisions.knows(path):
            return self.decisions.choose(path, options)
        return self.decisions.choose(path, options, origin, self.row(), len(self.steps))

    def has_seen_enough(self, row: int) -> bool:
        """Whether a target row was passed so often that nothing new is to be expected."""
        counts = self.project.counts
        enough = ENOUGH_COUNTED if counts else ENOUGH_OF_ALL if self.needs_all_steps else ENOUGH
        if self.torch_calls > MANY_CALLS or len(self.steps) > enough:
            enough = MORE_OF_LONG if counts or self.needs_all_steps else ENOUGH_OF_LONG
        return self.rows[row] > enough

    def row(self) -> int:
        """The innermost row of the checked file that is being executed; 0 if none is."""
        frame = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_filename == self.project.checked:
                return frame.f_lineno or 0
            frame = frame.f_back  # type: ignore[assignment]
        return 0

    def role(self, path: str) -> Role | None:
        """What the plan knows about a path."""
        return self._roles.get(path)

    def use(self, path: str) -> Use:
        """How the checked file uses a path."""
        return self.uses.of(path)

    def note(
        self, kind: str, subject: str = "", row: int = 0, detail: str = "", after: int = 0
    ) -> None:
        """Remember an approximation that a verdict has to know, once; see `Note`."""
        self.notes.setdefault(Note(kind, subject, row, detail, after), None)

    def remark(self, text: str) -> None:
        """Remember an approximation that no verdict depends on, once."""
        self.remarks.setdefault(text, None)


_CURRENT: ContextVar[Run] = ContextVar("amplint run")


def begin(run: Run) -> None:
    """Make this the current run."""
    _CURRENT.set(run)


def current() -> Run:
    """The run that is going on.

    Raises:
        LookupError: there is none.
    """
    return _CURRENT.get()
