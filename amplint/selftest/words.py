"""Every word of calls up to a length, on one device: where torch differs from the table.

Started by `amplint doctor --self-test` in the user's Python; standard output gets one JSON object.
"""

from __future__ import annotations

import json
import sys

from amplint.protocol import Event
from amplint.selftest.side_by_side import EVERY_EVENT, walk

#: Calls of a word. There are 16,000 words then, and every rule of the table is broken by some.
LENGTH = 4
#: So many differences are told.
_TOLD = 20


def differences(device: str, length: int = LENGTH) -> tuple[int, list[str]]:
    """The number of words, and what torch did otherwise, in words.

    Args:
        device: of the scaler and the parameters, such as "cuda:0".
    """
    tallies = [walk(first, length, EVERY_EVENT, device) for first in Event]
    told = [line for tally in tallies for line in tally.differences]
    return sum(tally.words for tally in tallies), told


def main() -> None:
    """Judge the device that the last argument names."""
    count, told = differences(sys.argv[-1])
    print(json.dumps({"words": count, "differences": len(told), "told": told[:_TOLD]}))
