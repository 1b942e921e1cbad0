"""How many values the caller is about to unpack, read from its bytecode."""

from __future__ import annotations

import dis
import functools
from types import CodeType, FrameType


def unpacked(frame: FrameType | None) -> int | None:
    """The count if `frame` is at an unpacking assignment, else None."""
    if frame is None:
        return None
    return _unpackings(frame.f_code).get(frame.f_lasti)


@functools.cache
def _unpackings(code: CodeType) -> dict[int, int]:
    counts = {}
    for instruction in dis.get_instructions(code):
        argument = instruction.arg or 0
        if instruction.opname.startswith("UNPACK_SEQUENCE"):
            counts[instruction.offset] = argument
        elif instruction.opname == "UNPACK_EX":
            counts[instruction.offset] = (argument & 0xFF) + (argument >> 8) + 1
    return counts
