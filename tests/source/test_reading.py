"""Decoding: what the interpreter accepts is read, everything else says what is wrong where."""

from __future__ import annotations

import codecs
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplint.errors import UnreadableFile
from amplint.source.reading import read_source

LATIN_1 = "# -*- coding: latin-1 -*-\nx = 'é'\n"


@pytest.mark.parametrize(
    ("data", "text", "encoding", "newline", "bom"),
    [
        (b"", "", "utf-8", "\n", False),
        (b"x = 1\n", "x = 1\n", "utf-8", "\n", False),
        ("x = '字😀'".encode(), "x = '字😀'", "utf-8", "\n", False),
        (b"x\r\ny\n", "x\r\ny\n", "utf-8", "\r\n", False),
        (b"x\ry\r", "x\ry\r", "utf-8", "\r", False),
        (codecs.BOM_UTF8 + b"x\n", "x\n", "utf-8", "\n", True),
        (LATIN_1.encode("latin-1"), LATIN_1, "iso-8859-1", "\n", False),
        (
            "# é coding: latin-1\n".encode("latin-1"),
            "# é coding: latin-1\n",
            "iso-8859-1",
            "\n",
            False,
        ),
        (b"#!/bin/python\r# vim: set fileencoding=cp1252 :\r'\x80'", None, "cp1252", "\r", False),
        ("# coding: shift_jis\n# 字\n".encode("shift_jis"), None, "shift_jis", "\n", False),
        (b"x\n\n# coding: latin-1\n", None, "utf-8", "\n", False),
        (b"x = 1\x0c\n", "x = 1\x0c\n", "utf-8", "\n", False),
    ],
)
def test_reads(data: bytes, text: str | None, encoding: str, newline: str, bom: bool) -> None:
    source = read_source(data, "a.py")
    assert (source.encoding, source.newline, source.bom) == (encoding, newline, bom)
    assert text is None or source.text == text
    assert source.encode(source.text) == data


@pytest.mark.parametrize(
    ("data", "words", "row", "column"),
    [
        (b"x = 1\ny = '\xe9'\n", "not valid utf-8: byte 0xe9", 2, 6),
        ("é = '".encode() + b"\xff'", "not valid utf-8: byte 0xff", 1, 6),
        (b"a\rb\r\n\xff", "not valid utf-8: byte 0xff", 3, 1),
        (b"\xff\xfeG\0r\0a\0d\0", "null bytes", 1, 4),
        (b"x = 1\ny = \0\n", "null bytes", 2, 5),
        (b"# coding: klingon\n", "encoding that cannot be used: unknown encoding: klingon", 1, 1),
        (codecs.BOM_UTF8 + b"# coding: latin-1\n", "encoding that cannot be used", 1, 1),
        (b"# coding: ascii\nx = '\xe9'\n", "not valid ascii: byte 0xe9", 2, 6),
        (b"# coding: hex\n", "encoding", 1, 1),
        (b"x = 1\n" * 4, "larger than the limit of 20 bytes", 1, 1),
    ],
)
def test_says_what_is_wrong(data: bytes, words: str, row: int, column: int) -> None:
    with pytest.raises(UnreadableFile) as caught:
        read_source(data, "a.py", max_file_size=20 if b"x = 1\n" * 4 == data else 1000)
    assert words in caught.value.message
    assert (caught.value.row, caught.value.column) == (row, column)


@given(st.binary(max_size=60) | st.binary(max_size=40).map(b"# coding: ".__add__))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        source = read_source(data, "a.py")
    except UnreadableFile as error:
        assert error.message
        assert error.row >= 1 and error.column >= 1
    else:
        assert isinstance(source.text, str)


@given(
    st.sampled_from(
        [
            "utf-8",
            "latin-1",
            "cp1251",
            "euc_jp",
            "utf-16",
            "rot13",
            "zlib",
            "idna",
            "punycode",
            "unicode_escape",
            "raw_unicode_escape",
            "utf-7",
            "undefined",
        ]
    ),
    st.binary(max_size=30),
)
def test_any_declared_codec_is_read_or_refused(encoding: str, rest: bytes) -> None:
    try:
        source = read_source(f"# coding: {encoding}\n".encode() + rest, "a.py")
    except UnreadableFile as error:
        assert error.message
    else:
        assert isinstance(source.text, str)


def test_reads_a_path(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(b"x = 1\r\n")
    source = read_source(path, "shown.py")
    assert (source.filename, source.text) == ("shown.py", "x = 1\r\n")


@pytest.mark.parametrize(("name", "words"), [("gone.py", "No such file"), ("", "is a folder")])
def test_a_path_that_cannot_be_opened(tmp_path: Path, name: str, words: str) -> None:
    with pytest.raises(UnreadableFile, match=words):
        read_source(tmp_path / name, "a.py")


def test_a_path_with_a_null_byte() -> None:
    with pytest.raises(UnreadableFile, match="null"):
        read_source("a\0.py", "a.py")


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="no endless device here")
def test_an_endless_device_is_not_read() -> None:
    with pytest.raises(UnreadableFile, match="is a device"):
        read_source("/dev/zero", "a.py")
