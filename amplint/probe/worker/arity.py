"""How many values the caller is about to unpack, read from its bytecode."""

from __future__ import annotations

import functools
import opcode
from types import CodeType, FrameType

SEQUENCE = opcode.opmap["UNPACK_SEQUENCE"]
STARRED = opcode.opmap["UNPACK_EX"]
EXTENDED = opcode.opmap["EXTENDED_ARG"]


def unpacked(frame: FrameType | None) -> int | None:
    """The count if `frame` is at an unpacking assignment, else None."""
    if frame is None:
        return None
    return _unpackings(frame.f_code).get(frame.f_lasti)


@functools.cache
def _unpackings(code: CodeType) -> dict[int, int]:
    """Offsets of unpacking instructions, which are two bytes each, and what they unpack.

    Up to 3.10 a frame stands at the extension of an argument, from 3.11 on behind it.
    """
    counts = {}
    high = 0
    instructions = code.co_code
    for offset in range(0, len(instructions), 2):
        operation, argument = instructions[offset], instructions[offset + 1]
        if operation == SEQUENCE:
            counts[offset] = argument
        elif operation == STARRED:  # the values behind the star stand in the high byte
            counts[offset] = argument + high + 1
            if high:
                counts[offset - 2] = counts[offset]
        high = argument if operation == EXTENDED else 0
    return counts
