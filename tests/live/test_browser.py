"""The page of a run in headless Chromium: what it draws, what it complains about, narrow screens."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import zlib
from pathlib import Path

import pytest

from amplint.live.page import render
from tests.live.test_record import SAMPLES, process, run, seen

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
#: Width of a narrow phone, in CSS pixels.
_PHONE = 360
#: Tells in the title of a copy what the page looks like on a phone: what reaches beyond the edge
#: (tables scroll by themselves), and what has no size.
_LOOK = f"""<script>addEventListener("load", () => {{
document.body.style.cssText = "width: {_PHONE}px; padding: 0; margin: 0";
const wrong = [];
for (const each of document.querySelectorAll("main *")) {{
  const box = each.getBoundingClientRect(), name = each.tagName + "." + each.className.baseVal;
  if (each.closest(".wide") || each.closest("svg") !== (each.ownerSVGElement || null)) continue;
  if (each.tagName === "svg" && box.height < 20) wrong.push("flat " + name);
  if (box.right > {_PHONE} + 1) wrong.push("wide " + name);
}}
document.title = "seen:" + wrong.join(",") + ":" + document.querySelectorAll("svg").length;
}});</script>"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with everything: findings, skips, samples, a rank that differs."""
    rank = process(0, 65536.0, *[32768.0] * 40, skipped=(2, 30))
    for line in SAMPLES:
        rank.samples.take(line)
    made = run(rank, process(1, 65536.0, *[16384.0] * 40), findings=(seen(), seen("never-finite")))
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text("\n".join(render(made)), "utf-8")
    return path


def chromium(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run it without a window, without network, with a profile of its own."""
    name = next(filter(None, map(shutil.which, _NAMES)), None)
    if name is None:
        pytest.skip("no Chromium is installed")
    given = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
    offline = ("--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={folder / 'profile'}")
    return subprocess.run(
        [name, *given, *offline, "--enable-logging=stderr", *options],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env={**os.environ, "HOME": str(folder)},
    )


def rows(png: Path) -> list[bytes]:
    """The rows of an image of 8 bits a channel, as they are packed."""
    data, at, packed = png.read_bytes(), 8, b""
    width, height, depth, kind = struct.unpack(">IIBB", data[16:26])
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        if data[at + 4 : at + 8] == b"IDAT":
            packed += data[at + 8 : at + 8 + length]
        at += length + 12
    plain, size = zlib.decompress(packed), 1 + width * {2: 3, 6: 4}[kind]
    assert (depth, len(plain)) == (8, size * height)
    return [plain[size * row : size * (row + 1)] for row in range(height)]


def test_it_is_drawn_without_a_complaint(page: Path, tmp_path: Path) -> None:
    image = tmp_path / "page.png"
    done = chromium(tmp_path, f"--screenshot={image}", "--window-size=900,2400", page.as_uri())
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
    drawn = rows(image)
    assert len(drawn) == 2400
    assert len(set(drawn)) > 400, "most of the page is blank"


def test_it_fits_a_phone(page: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.html"
    copy.write_text(page.read_text("utf-8").replace("</head>", f"{_LOOK}</head>"), "utf-8")
    done = chromium(tmp_path, "--dump-dom", copy.as_uri())
    found = re.search(r"<title>seen:(.*):(\d+)</title>", done.stdout)
    assert found is not None, done.stdout[:300]
    assert (found[1], int(found[2]) >= 4) == ("", True)
