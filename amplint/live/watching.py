"""Watching one process: hooks, observer and record, put together."""

from __future__ import annotations

import atexit
import contextlib
import math
import multiprocessing.util
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from operator import attrgetter

import torch

import amplint
from amplint.live import catalogue
from amplint.live.record import Recorder, local_rank_of_process
from amplint.protocol import VIOLATIONS
from amplint.runtime.hooks import Hooks, Switch
from amplint.runtime.measures import Kinds
from amplint.runtime.objects import ScalerRecord
from amplint.runtime.observer import Observer
from amplint.runtime.places import Place, Territory
from amplint.runtime.sink import Finding, Misuse, Plan, Sample

#: Seconds between two lines that say how far a program without `update()` has come.
_BEAT = 2.0
#: So many samples are written down module by module, and one in so many after them.
_WHOLE_SAMPLES, _WHOLE_EVERY = 1000, 10
#: All fields of one, in order; `astuple` copies each of them.
_KINDS = attrgetter(*(each.name for each in fields(Kinds)))
#: JSON for "a step was skipped".
_SKIPPED = {None: "null", False: "0", True: "1"}
#: Origins of values that were not finite, as many as anybody reads.
_ORIGINS = 50


@dataclass(frozen=True, slots=True)
class Options:
    """What `amplint run` and `watch()` can be asked.

    Args:
        folder: of the run.
        quiet: say nothing before the end.
        user: folders that are the user's although they lie among installed packages.
        stop_on: lowest level of a finding that is raised in the training, "" for none.
        steps, overflow: see `amplint.runtime.sink.Plan`.
        sample: one step in so many is looked at closely; 0 for none.
        every: the calls of one update in so many are written down; 0 for none.
    """

    folder: str
    quiet: bool = False
    user: Sequence[str] = ()
    stop_on: str = ""
    steps: int = 0
    overflow: int = 0
    sample: int = 0
    every: int = 0


class Journal:
    """Hears of findings and rounds, writes them down, and tells a finding at once."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._told: dict[int, int] = {}
        self.recorder = Recorder(options.folder, self.say)
        self._steps = 0
        self._beat = 0.0
        self._samples = self._origins = self._rounds = 0
        self._calls: list[tuple[int, str, float, str, int]] = []
        self._kinds: dict[str, tuple[str, ...]] = {}

    def say(self, words: str) -> None:
        """One line on stderr; a process that has none is no reason to stop."""
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stderr.write(f"amplint: {words}\n")
            sys.stderr.flush()

    def finding(self, found: Finding) -> None:
        """Write a finding down when it is new, and whenever its count has doubled.

        Raises:
            Misuse: it reaches the level at which the training shall stop.
        """
        if not found.count & (found.count - 1):
            self.write(found)
        is_first = found.count == 1 and local_rank_of_process() == 0
        if is_first and not self._options.quiet:
            self.say(headline(found))
        level, stop_on = catalogue.ENTRIES[found.slug].level, self._options.stop_on
        raises = found.slug in VIOLATIONS and VIOLATIONS[found.slug].raises
        if stop_on and catalogue.reaches(level, stop_on) and not raises:
            raise Misuse(headline(found))

    def write(self, found: Finding) -> None:
        """Write a finding down, with its count of now."""
        self.recorder.write(
            k="finding",
            slug=found.slug,
            file=found.place[0],
            row=found.place[1],
            inside=found.inside,
            scaler=found.scaler,
            optimizer=found.optimizer,
            count=found.count,
            first=found.first,
            last=found.last,
            facts={key: value for key, value in found.facts.items() if value is not None},
            trail=[(kind, *place) for kind, place in found.trail],
            t=round(self.recorder.now(), 3),
        )

    def reached(self, place: Place) -> None:
        """Lines that had an event: of the others a run can say nothing."""
        if place[0]:
            self.recorder.write(k="at", file=place[0], row=place[1])

    def call(self, scaler: int, kind: str, place: Place) -> None:
        """A call of a round; kept until the round has ended."""
        self._calls.append((scaler, kind, round(self.recorder.now(), 6), *place))

    def _write_calls(self) -> None:
        if self._calls and self._rounds % self._options.every == 0:
            self.recorder.write(k="calls", c=self._calls)
        self._calls.clear()
        self._rounds += 1

    def round(self, scaler: ScalerRecord, skipped: bool | None) -> None:
        """One short line for each `update()`."""
        if self._options.every:
            self._write_calls()
        scale = scaler.scale
        value = "null" if scale is None else "1e999" if scale == math.inf else repr(scale)
        now = self.recorder.now()
        self.recorder.write_line(
            f'{{"k":"r","s":{scaler.number},"u":{scaler.updates},"t":{now:.3f},"v":{value},'
            f'"x":{_SKIPPED[skipped]},"w":{scaler.word}}}'.encode()
        )

    def stepped(self) -> None:
        """A step without a scaler: from time to time, how many there were."""
        self._steps += 1
        now = self.recorder.now()
        if now - self._beat >= _BEAT or self._steps == 1:
            self._beat = now
            self.recorder.write(k="steps", n=self._steps, t=round(now, 3))

    def sample(self, sample: Sample) -> None:
        """What a sampled step has shown: dtypes where they are other ones, and figures."""
        write, now = self.recorder.write, round(self.recorder.now(), 3)
        kinds = {name: _KINDS(each) for name, each in sample.kinds.items()}
        if kinds != self._kinds:
            self._kinds = kinds
            write(k="kinds", m=kinds, compiled=sample.is_compiled)
        at = {"s": sample.scaler, "u": sample.update, "t": now}
        self._samples += 1
        is_whole = self._samples <= _WHOLE_SAMPLES or self._samples % _WHOLE_EVERY == 0
        shares = sample.shares.items() if is_whole else ()
        modules = {
            name: [each.values, each.zeros, each.tiny, each.bad, _finite(each.top)]
            + [each.compared, each.still]
            for name, each in shares
        }
        write(k="sample", **at, n=[_finite(sample.before), _finite(sample.after)], m=modules)
        origin = sample.origin
        if origin is not None and self._origins < _ORIGINS:
            self._origins += 1
            place = {"file": origin.place[0], "row": origin.place[1]}
            write(k="origin", **at, way=origin.way, module=origin.module, kind=origin.kind, **place)

    def unsampled(self, words: str) -> None:
        """An error of amplint's own has ended the samples; the watching goes on."""
        self.say(words)
        self.recorder.write(k="unsampled", words=words)

    def end(self, findings: Sequence[Finding]) -> None:
        """The program has ended by itself."""
        if self.recorder.is_empty:
            return
        for found in findings:
            if found.count & (found.count - 1):
                self.write(found)
        self.recorder.write(k="end", steps=self._steps, t=round(self.recorder.now(), 3))
        if self.recorder.kept is not None:
            for found in findings:
                self.say(headline(found))
        self.recorder.close()


class Watch:
    """A process that is watched, until `close`."""

    def __init__(self, options: Options) -> None:
        own = os.path.dirname(os.path.abspath(str(amplint.__file__)))
        territory = Territory((os.path.dirname(torch.__file__), own), options.user)
        self._journal = Journal(options)
        plan = Plan(options.steps, options.overflow)
        self._observer = self._make_observer(territory, plan, options.sample)
        if options.every:
            self._observer.tell_call = self._journal.call
        self._switch = Switch(self._failed)
        self._pid = os.getpid()
        self._hooks = Hooks(self._observer, self._switch)
        atexit.register(self._ended)
        self._finalize()
        # Children of multiprocessing forget what their parent had registered.
        multiprocessing.util.register_after_fork(self, Watch._finalize)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)

    @property
    def folder(self) -> str:
        """Where the record lies."""
        return self._journal.recorder.folder

    def _make_observer(self, territory: Territory, plan: Plan, sample: int) -> Observer:
        if not sample:
            return Observer(self._journal, territory, plan)
        from amplint.runtime.sampling import SamplingObserver

        complain = self._journal.unsampled
        return SamplingObserver(self._journal, territory, plan, every=sample, complain=complain)

    def adopt(self) -> None:
        """Follow what the program had made before it was watched, too."""
        self._switch.guarded(self._hooks.adopt)

    def __enter__(self) -> Watch:  # noqa: PYI034 -- typing.Self is newer than Python 3.10
        return self

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        self.close(error)

    def close(self, error: BaseException | None = None) -> None:
        """Take everything back, and end the record.

        Args:
            error: the exception that ends what was watched, if one does.
        """
        self._hooks.undo()
        self._observer.stop()
        self._ended(error)
        if _Current.watch is self:
            _Current.watch = None

    def _finalize(self) -> None:
        """Children of multiprocessing leave by os._exit, without atexit."""
        multiprocessing.util.Finalize(None, self._ended, exitpriority=0)

    def _ended(self, error: BaseException | None = None) -> None:
        if self._pid == os.getpid():
            self._pid = 0
            # Python leaves there what nobody has caught.
            error = error or getattr(sys, "last_value", None)
            if self._switch.is_on:
                self._switch.guarded(lambda: self._last_words(error))
            with contextlib.suppress(Exception):
                self._journal.end(self._observer.findings())

    def _last_words(self, error: BaseException | None) -> None:
        with contextlib.suppress(Misuse):  # there is nothing left to stop
            self._observer.ended(error)

    def _forked(self) -> None:
        self._pid = os.getpid()
        self._journal.recorder.after_fork()
        self._observer.forget_findings()

    def _failed(self, error: BaseException) -> None:
        where = _innermost(error)
        self._journal.say(
            f"an error of its own, watching ends here ({type(error).__name__}: {error}; {where})"
        )
        with contextlib.suppress(Exception):
            words = f"{type(error).__name__}: {error}; {where}"
            self._journal.recorder.write(k="failed", words=words)


def _finite(value: float | None) -> float | None:
    """What JSON can hold, with as many digits as anybody reads."""
    return float(f"{value:.4g}") if value is not None and math.isfinite(value) else None


def headline(found: Finding) -> str:
    """A finding in one line, as it is told at once."""
    return catalogue.headline(found.slug, *found.place, found.facts)


def _innermost(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "nowhere"
    return f"{os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}"


class _Current:
    """The one watch of this process."""

    watch: Watch | None = None


def is_watched() -> bool:
    """Whether somebody watches this process already."""
    return _Current.watch is not None


def begin(options: Options, *, late: bool = False) -> Watch:
    """Watch this process; where it is watched already, that stays as it is.

    Args:
        late: the program may have made its optimizers and scalers already.
    """
    if _Current.watch is None:
        _Current.watch = Watch(options)
        if late:
            _Current.watch.adopt()
    return _Current.watch
