"""Files that want to be read for ever, or to explode: each run ends, with a message that says why.

The bounds are the operating system's: processor time, address space, and an alarm for whoever
waits. No clock of the test decides.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from amplint.amp.target_torch import oldest

ROOT = Path(__file__).resolve().parent.parent

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits are those of Linux")

#: Runs amplint within limits: seconds of processor time, bytes, and seconds of waiting.
LIMITED = """
import os, resource, signal, sys
resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[1]),) * 2)
resource.setrlimit(resource.RLIMIT_AS, (1 << 30,) * 2)
signal.alarm(120)
os.execv(sys.executable, [sys.executable, "-m", "amplint", *sys.argv[2:]])
"""

TRAIN = """\
import torch
scaler = torch.amp.GradScaler("cuda")
for x in loader:
    scaler.scale(model(x)).backward()
    scaler.step(optimizer)
    scaler.update()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(TRAIN)
    return tmp_path


def check(*arguments: str, seconds: int = 10) -> tuple[int, str]:
    """The exit status, and what is printed."""
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(seconds), "check", *(arguments or (".",))],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stdout
    assert "internal error" not in done.stdout
    return done.returncode, done.stdout


# -- what depends on itself ----------------------------------------------------------------------


def test_names_that_depend_on_each_other(folder: Path) -> None:
    """Whether a name holds gradients is asked once, not along every path between thirty names."""
    names = [f"v{number}" for number in range(30)]
    bound = "".join(
        f"        {name} = helper({', '.join(names[max(0, at - 4) : at + 5])})\n"
        for at, name in enumerate(names)
    )
    nested = "helper(" * 60 + "v3" + ")" * 60
    (folder / "train.py").write_text(
        "import math\nimport torch\n\n\n"
        "def helper(*values):\n    return sum(values)\n\n\n"
        "def train(model, loader, optimizer):\n"
        "    scaler = torch.amp.GradScaler('cuda')\n"
        "    for batch in loader:\n"
        "        scaler.scale(model(batch)).backward()\n"
        f"{bound}        if math.isinf(v29) or math.isnan({nested}):\n"
        "            raise RuntimeError('diverged')\n"
        "        scaler.step(optimizer)\n        scaler.update()\n        optimizer.zero_grad()\n"
    )
    assert check()[0] in (0, 1)


# -- what is no regular file -------------------------------------------------------------------


def test_a_pipe_as_a_source(folder: Path) -> None:
    os.mkfifo(folder / "x.py")
    status, output = check("x.py", "train.py")
    assert (status, "x.py:1:1: error AMP000 is a pipe, not a regular file" in output) == (2, True)
    assert check()[0] == 0  # in a folder it is no file


@pytest.mark.parametrize(
    ("target", "words"), [(None, "is a pipe"), ("/dev/zero", "is a device"), ("big", "is larger")]
)
def test_an_ignore_file_that_is_none(folder: Path, target: str | None, words: str) -> None:
    (folder / "big").write_bytes(b"*.log\n" * 200_000)
    if target is None:
        os.mkfifo(folder / ".gitignore")
    else:
        (folder / ".gitignore").symlink_to(target)
    status, output = check()
    assert status == 2
    assert f".gitignore:1:1: error AMP000 {words}" in output
    assert "1 file checked" in output


def test_a_pipe_as_the_mark_of_a_cache(folder: Path) -> None:
    (folder / ".amplint_cache").mkdir()
    os.mkfifo(folder / ".amplint_cache" / "CACHEDIR.TAG")
    status, output = check()
    assert status == 0
    assert "note: results are not kept" in output


def _make(path: Path, kind: str) -> None:
    """Something at a path that is no regular file."""
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)  # in the working directory: an address is short
    else:
        path.symlink_to({"dangling": "gone", "device": "/dev/zero"}[kind])


KINDS = {
    "folder": "is a folder, not a regular file",
    "pipe": "is a pipe, not a regular file",
    "socket": "is a socket, not a regular file",
    "device": "is a device, not a regular file",
    "dangling": "cannot be read: No such file",
}


@pytest.mark.parametrize("name", ["amplint.toml", ".amplint.toml", "pyproject.toml"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_configuration_that_is_no_file(folder: Path, name: str, kind: str) -> None:
    _make(folder / name, kind)
    status, output = check()
    assert (status, output.startswith(f"error: {folder / name}: {KINDS[kind]}")) == (2, True)


def test_a_configuration_that_is_too_large(folder: Path) -> None:
    (folder / "pyproject.toml").write_text("#" * 1_000_000 + "\n[tool.amplint]\njobs = 1\n")
    status, output = check()
    assert (status, "pyproject.toml: is larger than the limit" in output) == (2, True)


@pytest.mark.parametrize(
    "name", ["requirements.txt", "dev-requirements.txt", "setup.py", "setup.cfg", "environment.yml"]
)
@pytest.mark.parametrize("kind", ["pipe", "socket", "device"])
def test_requirements_that_are_no_file(folder: Path, name: str, kind: str) -> None:
    _make(folder / name, kind)
    (folder / "train.py").write_text("import torch\nscaler = torch.cuda.amp.GradScaler()\n")
    status, output = check("train.py")
    assert (status, f"{name}:1:1: error AMP000 {KINDS[kind]}" in output) == (2, True)
    assert "train.py:2:10: warning AMP801" in output  # the rest is checked


@pytest.mark.parametrize("kind", ["folder", "dangling"])
def test_what_pip_could_not_read_either_states_no_requirements(folder: Path, kind: str) -> None:
    _make(folder / "requirements.txt", kind)
    (folder / "train.py").write_text("import torch\nscaler = torch.cuda.amp.GradScaler()\n")
    assert check("train.py")[0] == 1


@pytest.mark.parametrize("kind", ["pipe", "socket", "device"])
def test_data_that_is_no_file_is_unknown(folder: Path, kind: str) -> None:
    """A program may well read a pipe; what comes through it is nothing that can be known."""
    _make(folder / "conf.json", kind)
    read = "import json\ncfg = json.load(open('conf.json'))\n"
    (folder / "train.py").write_text(read + TRAIN.replace('"cuda"', 'enabled=cfg["amp"]'))
    assert check()[0] == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_cache_that_is_none_is_told(folder: Path, kind: str) -> None:
    if kind != "folder":
        _make(folder / ".amplint_cache", kind)
    else:
        (folder / ".amplint_cache").mkdir()
        _make(folder / ".amplint_cache" / "CACHEDIR.TAG", kind)
    status, output = check()
    assert (status, "note: results are not kept" in output) == (0, True)


# -- data files ----------------------------------------------------------------------------------

SECRETS = """\
import json, torch
with open("conf.json") as file:
    cfg = json.load(file)
def train(model, loader, optimizer):
    scaler = torch.amp.GradScaler("cuda", enabled=cfg["amp"])
    for x in loader:
        with torch.autocast("cuda", dtype=cfg["dtype"]):
            loss = model(x.to(cfg["device"])).masked_fill(x, cfg["fill"])
        scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), cfg["scale"])
        scaler.step(optimizer)
        if cfg["password"] != "hunter1":
            scaler.update()
def finish(model, loader, optimizer):
    scaler = torch.amp.GradScaler("cuda")
    for x in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda"):
            loss = model(x.to(cfg["device"])).half().masked_fill(x, cfg["fill"])
        scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), cfg["scale"])
        if cfg["password"] != "hunter1":
            scaler.step(optimizer)
        scaler.update()
"""


@pytest.mark.parametrize("form", ["full", "concise", "json", "github", "sarif"])
def test_no_text_of_a_data_file_is_printed(folder: Path, form: str) -> None:
    keys = ("device", "precision", "dtype", "password", "scale", "amp")
    data = {key: f"cpu16-hunter2-{key}" for key in keys}
    (folder / "conf.json").write_text(json.dumps({**data, "fill": -1e9}))
    (folder / "train.py").write_text(SECRETS)
    status, output = check("--select", "ALL", "--output-format", form, ".")
    assert (status, "hunter2" in output) == (1, False)


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
)
MERGES = "a0: &a0 {k: 1}\n" + "".join(
    f"a{n}: &a{n}\n  <<: [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
)


@pytest.mark.parametrize(
    "text",
    [
        BOMB,
        MERGES,
        "a: &a [*a]\n",
        "".join(f"key{n}: [1, 2, {{a: b}}]\n" for n in range(28_000)),
        "a: " + "1:" * 250_000 + "1\n",
        "a: " + "[" * 20_000,
        "a: " + "9" * 60_000 + "\n",
    ],
    ids=["aliases", "merges", "circle", "long", "base 60", "nested", "digits"],
)
def test_yaml_that_explodes(folder: Path, text: str) -> None:
    (folder / "conf.yaml").write_text(text + "amp: true\n")
    for key in ("a11", "amp"):
        (folder / f"train_{key}.py").write_text(
            "import yaml\ncfg = yaml.safe_load(open('conf.yaml'))\n"
            + TRAIN.replace('"cuda"', f'"cuda", enabled=cfg["{key}"]')
            + f"    if cfg['{key}'] == 1:\n        scaler.step(optimizer)\n"
        )
    assert check(seconds=3)[0] in (0, 1)


# -- patterns --------------------------------------------------------------------------------------

STARS = "*a" * 24 + "b.py"


def test_patterns_take_no_exponential_time(folder: Path) -> None:
    (folder / ("a" * 200 + ".py")).write_text("")
    folders = "/".join(["a"] * 60)
    (folder / folders).mkdir(parents=True)
    deep = "**/a/" * 24 + "b.py"
    assert check(".", "--exclude", f"{STARS},{deep}")[0] == 0
    (folder / ".gitignore").write_text(f"{STARS}\n{deep}\n")
    assert check()[0] == 0


def test_a_malformed_pattern_costs_its_line(folder: Path) -> None:
    (folder / "b.py").write_text("scaler = (")
    (folder / ".gitignore").write_text("# ours\na[z-a]\n[\nx\\\nb.py\n")
    status, output = check()
    assert (status, "b.py" in output) == (0, False)  # the other lines count
    words = "malformed pattern, this line is ignored: `a[z-a]` has the empty range z-a (and 2 more)"
    assert f"note: .gitignore:2: {words}\n" in output
    (folder / ".gitignore").write_text("b.py\n[\x1b[2J" + "a" * 100_000)
    status, output = check()
    assert (status, "\x1b" in output, len(output) < 1_000) == (0, False, True)
    assert "note: .gitignore:2: malformed pattern" in output
    status, output = check(".", "--exclude", "a[z-a]")
    assert (status, "malformed pattern: `a[z-a]` has the empty range z-a" in output) == (2, True)
    (folder / "amplint.toml").write_text('extend-exclude = ["b", "a[z-a]"]')
    status, output = check()
    assert status == 2
    assert "amplint.toml: malformed pattern in `extend-exclude`: `a[z-a]`" in output


# -- requirements and configuration ------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "torch" + " " * 200_000 + "x",
        "torch[" + " " * 100_000,
        "torch>=1" + " " * 200_000 + "-",
        "torch>=" + "1." * 100_000 + "!",
        "torch>=" + "1" * 100_000,
    ],
    ids=["spaces", "extra", "option", "parts", "digits"],
)
@pytest.mark.parametrize("name", ["requirements.txt", "setup.cfg"])
def test_requirements_take_no_cubic_time(folder: Path, name: str, line: str) -> None:
    (folder / name).write_text(line + "\n")
    (folder / "train.py").write_text("import torch\nscaler = torch.cuda.amp.GradScaler()\n")
    status, output = check()
    assert (status, "AMP801" in output) == (1, True)
    assert oldest(line[5:]) is None


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("jobs = " + "9" * 5_000, "a number has too many digits (at line 1, in `jobs`)"),
        ("jobs = 0x" + "9" * 5_000, "`jobs` must be a number of processes up to 1000"),
        ("jobs = 9223372036854775807", "`jobs` must be a number of processes up to 1000"),
        ("max-file-size = 9223372036854775807", "`max-file-size` must be a number of bytes up to"),
        ("select = " + "[" * 50_000, "it is nested too deeply (at line 1, in `select`)"),
        ('select = ["\\u0000"]', "`select` holds a null character"),
        ('exclude = ["a\\u0000"]', "`exclude` holds a null character"),
        ('project-root = "\\u0000"', "`project-root` holds a null character"),
        ('stdin-filename = "\\u0000"', "`stdin-filename` holds a null character"),
        ('target-torch = "' + "1" * 5_000 + '"', "`target-torch` must be a version or a range"),
        ("x" * 900_000, "is no valid TOML"),
        ("#" * 1_000_001, "is larger than the limit of 1000000 bytes"),
    ],
)
def test_an_odd_configuration(folder: Path, line: str, words: str) -> None:
    (folder / "amplint.toml").write_text(line)
    status, output = check()
    assert (status, output.startswith(f"error: {folder / 'amplint.toml'}: ")) == (2, True)
    assert words in output
    assert len(output) < 1_000
    if not line.startswith(("x", "#")):
        status, output = check("--config", line, "--isolated", ".")
        assert (status, len(output) < 120_000) == (2, True)


NO_NEXT = """\
import torch
from math import inf, nan
def train{name}(kind, model, loader, optimizer):
    scaler = torch.amp.GradScaler("cuda")
    for x in loader:
        scaler.scale(model(x)).backward()
        if kind != {number}:
            scaler.unscale_(optimizer)
            if kind > 3:
                torch.nn.utils.clip_grad_norm_(model.parameters(), kind)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
"""


def test_numbers_that_no_other_follows(folder: Path) -> None:
    numbers = ("inf", "-inf", "nan", "1e300", "-1e300", "10**400")
    texts = (NO_NEXT.format(name=name, number=number) for name, number in enumerate(numbers))
    (folder / "train.py").write_text("".join(texts))
    assert check(seconds=6) == (0, "No AMP misuse found in 1 file.\n")


def test_a_hundred_thousand_imports_in_one_line(folder: Path) -> None:
    (folder / "many.py").write_text("import()" * 120_000)
    (folder / "open.py").write_text("import (\n" * 100_000)
    helper = "from helper import finish\n" + TRAIN.replace(
        "scaler.update()", "finish(scaler, optimizer)"
    )
    (folder / "train.py").write_text(helper)
    (folder / "helper.py").write_text("def finish(scaler, optimizer):\n    scaler.update()\n")
    assert check("train.py", "helper.py", seconds=4)[0] == 0


def test_standard_input_that_never_ends() -> None:
    command = [sys.executable, "-c", LIMITED, "10", "check", "-"]
    with open("/dev/zero", "rb") as endless:
        done = subprocess.run(
            command,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=endless,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert "larger than the limit" in done.stdout + done.stderr
