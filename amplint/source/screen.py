"""Tell by a file's bytes that no rule can fire in it, before anything is parsed."""

from __future__ import annotations

import re

#: A rule needs one of these words: the AMP classes and modules, a name that makes an
#: expression a scaler, or a suppression comment that may be unused (AMP900).
_MARKER = re.compile(rb"(?i)scaler|autocast|unscale_|\bamp\b|\bamp\d|amplint")

#: Escapes, shifts and wide characters can hide a word from a byte scan. A declared encoding
#: other than these, which extend ASCII byte for byte, is therefore never screened out.
_DECLARATION = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)", re.MULTILINE)
_EXTENDS_ASCII = re.compile(rb"(?i)utf[-_]?8|latin[-_]?1|ascii|iso[-_]8859[-_]\d+|cp125\d$|euc[-_]")


def mentions_amp(data: bytes) -> bool:
    """Whether a rule could fire in the file; False only where none can.

    Args:
        data: the undecoded file.
    """
    if _MARKER.search(data):
        return True
    if b"\0" in data:
        return True
    declared = _DECLARATION.search(data[:1000])
    return declared is not None and not _EXTENDS_ASCII.match(declared.group(1))
