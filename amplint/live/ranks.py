"""Ranks of one job beside each other: lined up by the number of the update, never by clocks."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from amplint.live.merge import Process, Round

_SCALE, _SKIPS, _ORDER, _NUMBER = (
    "loss scale",
    "skipped steps",
    "order of calls",
    "number of updates",
)


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Ranks that differ: what in, from which update of which scaler on, and what each has.

    Args:
        what: the loss scale, skipped steps, the order of calls or the number of updates.
        values: of each rank, by its name.
    """

    what: str
    scaler: int
    update: int
    values: dict[str, str]

    @property
    def level(self) -> str:
        """Other scales apply other gradients; another order of calls may be meant."""
        return "error" if self.what in (_SCALE, _SKIPS) else "warning"

    def words(self) -> str:
        """One sentence; it names the few that differ from the many."""
        together: dict[str, list[str]] = {}
        for name, value in self.values.items():
            together.setdefault(value, []).append(name)
        most = max(together, key=lambda value: len(together[value]))
        parts = [
            f"{name}: {value}"
            for name, value in self.values.items()
            if value != most or len(together[most]) == 1
        ]
        if len(together[most]) > 1:
            parts.append(f"the other {len(together[most])}: {most}")
        return (
            f"ranks disagree about the {self.what} from update {self.update} on "
            f"({', '.join(parts)})"
        )


class Lineup:
    """The rounds of one scaler on the ranks of a job, compared as they come.

    Where two processes have one rank (a program that the rank started inherits it, a folder was
    used twice), nobody knows which of them the others should be like: that rank is left out.

    Args:
        scaler: its number.
        limit: so many rounds of a rank wait for the others at most; None for all.
    """

    def __init__(self, scaler: int, limit: int | None = None) -> None:
        self._scaler, self._limit = scaler, limit
        self._waiting: dict[str, deque[Round]] = {}
        self._owners: dict[str, tuple[str, int]] = {}
        self._twice: set[str] = set()
        self._seen: set[str] = set()

    def add(self, process: Process, rounds: Iterable[Round]) -> None:
        """More rounds of a rank, in order."""
        name, owner = process.name, (process.host, process.pid)
        if self._owners.setdefault(name, owner) != owner:
            self._twice.add(name)
            self._waiting.pop(name, None)
        if name not in self._twice:
            self._waiting.setdefault(name, deque(maxlen=self._limit)).extend(rounds)

    def is_clear(self, process: Process) -> bool:
        """Whether no other process has the same rank."""
        return process.name not in self._twice

    def differences(self) -> Iterator[Disagreement]:
        """The first difference of each kind, as far as every rank has come."""
        while len(self._waiting) > 1 and all(self._waiting.values()):
            newest = max(rounds[0].update for rounds in self._waiting.values())
            behind = [rounds for rounds in self._waiting.values() if rounds[0].update < newest]
            for rounds in behind:
                rounds.popleft()  # the others began later, or were resumed
            if not behind:
                yield from self._compared({n: r.popleft() for n, r in self._waiting.items()})

    def _compared(self, rounds: Mapping[str, Round]) -> Iterator[Disagreement]:
        update = next(iter(rounds.values())).update
        for what, values in _aspects(list(rounds.values())).items():
            if what not in self._seen and None not in values and len(set(values)) > 1:
                self._seen.add(what)
                shown = dict(zip(rounds, _shown(what, values)))
                yield Disagreement(what, self._scaler, update, shown)


def disagreements(processes: Iterable[Process]) -> Iterator[Disagreement]:
    """The first difference of each kind, for each scaler of each job.

    Restarts of one job are compared with their like; a process without a rank with nobody. A rank
    that was killed is only compared as far as it came.
    """
    jobs: dict[int, list[Process]] = {}
    for process in processes:
        if process.rank is not None:
            jobs.setdefault(process.restart, []).append(process)
    for members in jobs.values():
        for scaler in sorted({number for each in members for number in each.rounds}):
            yield from _of_scaler(scaler, [each for each in members if scaler in each.rounds])


def _of_scaler(scaler: int, members: Sequence[Process]) -> Iterator[Disagreement]:
    lineup = Lineup(scaler)
    for each in members:
        lineup.add(each, each.rounds[scaler])
    yield from lineup.differences()
    whole = [each for each in members if each.ended and lineup.is_clear(each)]
    lengths = {each.name: len(each.rounds[scaler]) for each in whole}
    if len(set(lengths.values())) > 1:
        shown = {name: str(length) for name, length in lengths.items()}
        yield Disagreement(_NUMBER, scaler, min(lengths.values()) + 1, shown)


def _aspects(rounds: Sequence[Round]) -> dict[str, list[object]]:
    return {
        _SCALE: [each.scale for each in rounds],
        _SKIPS: [each.skipped for each in rounds],
        _ORDER: [each.word for each in rounds],
    }


def _shown(what: str, values: Sequence[object]) -> list[str]:
    """Values in words; orders of calls have numbers."""
    if what == _ORDER:
        numbers = {value: index for index, value in enumerate(dict.fromkeys(values))}
        return [f"order {numbers[value] + 1}" for value in values]
    if what == _SKIPS:
        return ["skipped" if value else "taken" for value in values]
    return [f"{value:g}" for value in values]
