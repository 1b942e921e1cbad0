"""What the bad example of each page does when torch 2.13 runs it (CPU scaler, scale 65536).

`fixtures/CODE/outcome.toml` says it; what takes code to measure stands in `outcomes_*.py` beside
this file.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path

from tests.fixtures_runner import outcome_files

from .page_examples import Advice, Changes, Outcome, Raises

_KINDS = {"raises": Raises, "changes": Changes, "advice": Advice}


def _plain() -> Iterator[tuple[str, Outcome]]:
    for code, said in outcome_files().items():
        for name, kind in _KINDS.items():
            if name in said:
                yield code, kind(**said[name])


def _measured() -> Iterator[tuple[str, Outcome]]:
    for file in sorted(Path(__file__).parent.glob("outcomes_*.py")):
        yield from importlib.import_module(f".{file.stem}", __package__).OUTCOMES.items()


OUTCOMES: dict[str, Outcome] = {**dict(_plain()), **dict(_measured())}
