"""Ranks of one job beside each other: lined up by the number of the update, never by clocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

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
        values: of each rank, by its name; "" where there is no figure.
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
        """One sentence."""
        told = ", ".join(f"{name}: {value}" for name, value in self.values.items() if value)
        names = told or ", ".join(self.values)
        return f"ranks disagree about the {self.what} from update {self.update} on ({names})"


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
            having = [each for each in members if scaler in each.rounds]
            if len(having) > 1:
                yield from _of_scaler(scaler, having)


def _of_scaler(scaler: int, members: Sequence[Process]) -> Iterator[Disagreement]:
    columns = list(zip_longest(*(each.rounds[scaler] for each in members)))
    names = [each.name for each in members]
    seen: set[str] = set()
    for rounds in columns:
        if None in rounds:
            break
        for what, values in _aspects(rounds).items():
            if what not in seen and None not in values and len(set(values)) > 1:
                seen.add(what)
                shown = dict(zip(names, map(_shown, values)))
                yield Disagreement(what, scaler, rounds[0].update, shown)
    lengths = {len(each.rounds[scaler]) for each in members if each.ended}
    if len(lengths) > 1:
        shown = {each.name: str(len(each.rounds[scaler])) for each in members if each.ended}
        yield Disagreement(_NUMBER, scaler, min(lengths) + 1, shown)


def _aspects(rounds: Sequence[Round]) -> dict[str, list[object]]:
    return {
        _SCALE: [each.scale for each in rounds],
        _SKIPS: [each.skipped for each in rounds],
        _ORDER: [each.word for each in rounds],
    }


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "skipped" if value else "taken"
    return f"{value:g}" if isinstance(value, float) else ""
