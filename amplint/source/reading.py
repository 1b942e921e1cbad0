"""Read and decode a Python file as the interpreter would, keeping how to write it back."""

from __future__ import annotations

import codecs
import json
import os
import re
from dataclasses import dataclass

from amplint import files
from amplint.errors import UnreadableFile

#: Size limit in bytes unless configured; larger files are generated data, not programs.
MAX_FILE_SIZE = 1_000_000

_NEWLINE = re.compile(rb"\r\n|\r|\n")
_NON_ASCII_TO_QUESTION_MARK = bytes(range(128)) + b"?" * 128


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One decoded file.

    Args:
        filename: as findings print it.
        text: the decoded source without byte order mark; line ends as in the file.
        encoding: codec name; "utf-8" also for files with a byte order mark.
        newline: the first line end of the file; "\\n" where there is none.
        bom: whether the file starts with a UTF-8 byte order mark.
    """

    filename: str
    text: str
    encoding: str = "utf-8"
    newline: str = "\n"
    bom: bool = False

    def encode(self, text: str) -> bytes:
        """Encode a changed text as the file was: same codec, same byte order mark.

        Raises:
            UnicodeEncodeError: the change holds characters that the codec lacks.
        """
        data = text.encode(self.encoding)
        return codecs.BOM_UTF8 + data if self.bom else data


def read_source(
    source: str | os.PathLike[str] | bytes, filename: str, *, max_file_size: int = MAX_FILE_SIZE
) -> SourceFile:
    """Decode a file, by path or by its bytes.

    Args:
        source: where to read, or what was read.
        filename: as findings print it.
        max_file_size: limit in bytes.

    Raises:
        UnreadableFile: the file cannot be opened, is over the limit, holds null bytes, or
            is not text in the encoding that it declares (PEP 263; UTF-8 if none).
    """
    if isinstance(source, bytes):
        return decode(source, filename, max_file_size=max_file_size)
    return decode(files.read(source, max_file_size), filename, max_file_size=max_file_size)


def decode(data: bytes, filename: str, *, max_file_size: int = MAX_FILE_SIZE) -> SourceFile:
    """Decode the bytes of a file; see `read_source`."""
    if len(data) > max_file_size:
        raise UnreadableFile(files.too_large(max_file_size))
    if b"\0" in data:
        place = _place(data, data.index(0), "utf-8")
        raise UnreadableFile("holds null bytes, so it is no Python source", *place)
    bom = data.startswith(codecs.BOM_UTF8)
    encoding = _declared_encoding(data)
    body = data[len(codecs.BOM_UTF8) :] if bom else data
    newline = _NEWLINE.search(data)
    return SourceFile(
        filename,
        _decode_body(body, encoding),
        encoding,
        newline.group().decode() if newline else "\n",
        bom,
    )


def is_notebook(text: str) -> bool:
    """Whether a text is a Jupyter notebook: most of them are also a Python expression."""
    if not text.lstrip().startswith("{") or '"nbformat"' not in text:
        return False
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and "cells" in document


def _declared_encoding(data: bytes) -> str:
    head = data[: len(codecs.BOM_UTF8)] if data.startswith(codecs.BOM_UTF8) else b""
    lines = _NEWLINE.split(data[len(head) :], maxsplit=2)[:2]
    if not any(b"coding" in line for line in lines):
        return "utf-8"
    import tokenize

    # `detect_encoding` insists that the first two lines are UTF-8 even where the cookie
    # says otherwise; the interpreter does not. Only the ASCII part can hold a cookie.
    ascii_lines = [line.translate(_NON_ASCII_TO_QUESTION_MARK) + b"\n" for line in lines]
    ascii_lines[0] = head + ascii_lines[0]
    try:
        encoding, _ = tokenize.detect_encoding(iter(ascii_lines).__next__)
    except SyntaxError as error:
        raise UnreadableFile(f"declares an encoding that cannot be used: {error.msg}") from error
    return "utf-8" if encoding == "utf-8-sig" else encoding


def _decode_body(body: bytes, encoding: str) -> str:
    try:
        return body.decode(encoding)
    except UnicodeDecodeError as error:
        byte = body[error.start]
        message = f"is not valid {encoding}: byte 0x{byte:02x}"
        raise UnreadableFile(message, *_place(body, error.start, encoding)) from error
    except (LookupError, ValueError) as error:  # codecs that are not for text, such as "hex"
        raise UnreadableFile(f"declares the encoding {encoding}, which fails: {error}") from error


def _place(data: bytes, offset: int, encoding: str) -> tuple[int, int]:
    """1-based row and column in code points of a byte; in bytes unless UTF-8."""
    lines = _NEWLINE.split(data[:offset])
    before = lines[-1].decode("utf-8" if encoding == "utf-8" else "latin-1", "replace")
    return len(lines), len(before) + 1
