"""`amplint doctor`: what amplint finds on this machine, to be attached to a bug report."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from amplint.config import Settings
    from amplint.probe.interpreter import Interpreter
    from amplint.probe.messages import Hello

#: What the probe's cage is made of, where the system has all of it.
MEASURES = ("network namespace", "process namespace", "resource limits", "landlock", "seccomp")
#: Wall time of a self-test on one device, in seconds.
_SECONDS = 900

_BOOT = """
import importlib.util, json, sys
folder, sys.path[:] = sys.argv[1], json.loads(sys.argv[2])
spec = importlib.util.spec_from_file_location(
    "amplint", folder + "/__init__.py", submodule_search_locations=[folder])
sys.modules["amplint"] = module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
from amplint.selftest import words
words.main()
"""


@click.command()
@click.option("--self-test", is_flag=True, help="Compare this torch with the protocol's table.")
@click.option("--python", metavar="PATH", help="Interpreter with the project's torch.")
@click.pass_context
def doctor(ctx: click.Context, self_test: bool, python: str | None) -> None:
    """Say what amplint works with here: versions, settings, torch, and the probe's cage.

    With --self-test every word of calls up to length 4 and the recorded incidents run on your
    torch, on each device. Exit status: 0; 1 where torch differs from the table; 2 if there is
    no torch to test.
    """
    from amplint.cli.terminal import write_lines
    from amplint.config import load_settings
    from amplint.errors import AmplintError
    from amplint.report.text import printable

    write_lines(map(printable, _versions()))
    try:
        settings = load_settings()
        write_lines(map(printable, _configuration(settings)))
        write_lines(map(printable, _plugins()))
        interpreter, hello = _torch(settings, python)
    except AmplintError as error:
        write_lines([printable(f"error: {error.message}")])
        ctx.exit(2)
    write_lines(map(printable, _cage(interpreter, hello)))
    if not self_test:
        return
    agrees = True
    for line, is_right in _self_test(interpreter, hello):
        write_lines([printable(line)])
        agrees = agrees and is_right
    ctx.exit(0 if agrees else 1)


def _versions() -> Iterator[str]:
    import platform
    from importlib import metadata

    from amplint import __version__

    yield f"amplint {__version__}"
    yield f"Python {platform.python_version()} ({sys.executable}), {platform.platform()}"
    for name in ("click", "libcst", "packaging", "pyyaml"):
        try:
            yield f"{name} {metadata.version(name)}"
        except metadata.PackageNotFoundError:
            yield f"{name} is missing"


def _configuration(settings: Settings) -> Iterator[str]:
    """The settings that somebody has chosen."""
    from dataclasses import fields

    from amplint.cache import folder_for
    from amplint.config import Settings as Defaults

    yield f"configuration: {settings.origin or 'none, the defaults are in force'}"
    default = Defaults()
    for item in fields(settings):
        value = getattr(settings, item.name)
        if item.metadata.get("file_key", True) and value != getattr(default, item.name):
            yield f"  {item.name.replace('_', '-')} = {value!r}"
    yield f"cache: {folder_for(settings)}"


def _plugins() -> Iterator[str]:
    """The rules that installed packages bring.

    Raises:
        ConfigError: they cannot be used as they are.
    """
    from amplint.plugins import installed

    packages: dict[str, list[str]] = {}
    for plugin in installed().values():
        packages.setdefault(plugin.package, []).append(plugin.code)
    for package, codes in packages.items():
        yield f"rules of {package}: {', '.join(sorted(codes))}"
    if not packages:
        yield "rules of other packages: none"


def _torch(settings: Settings, python: str | None) -> tuple[Interpreter, Hello]:
    """Whose torch it is, and what the probe's worker says there.

    Raises:
        ProbeUnavailable, WorkerFailed: there is none.
    """
    from contextlib import closing

    from amplint.probe.interpreter import find_interpreter
    from amplint.probe.process import Worker

    interpreter = find_interpreter(python, settings.project_root or os.getcwd())
    with closing(Worker(interpreter)) as worker:
        return interpreter, worker.hello()


def _cage(interpreter: Interpreter, hello: Hello) -> Iterator[str]:
    yield f"torch {hello.torch} ({interpreter.path}), devices: {', '.join(hello.devices)}"
    yield "the probe's cage:"
    for measure in MEASURES:
        yield f"  {measure}: {'works' if measure in hello.measures else 'does not work here'}"


def _self_test(interpreter: Interpreter, hello: Hello) -> Iterator[tuple[str, bool]]:
    """Lines, each with whether all is as it should be."""
    for device in hello.devices:
        yield from _words(interpreter, device)
    yield from _incidents(interpreter)


def _words(interpreter: Interpreter, device: str) -> Iterator[tuple[str, bool]]:
    import amplint

    folder = os.path.dirname(os.path.abspath(str(amplint.__file__)))
    arguments = [folder, json.dumps(interpreter.search_path), device]
    done = subprocess.run(
        [interpreter.path, "-I", "-c", _BOOT, *arguments],
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
        yield f"protocol on {device}: could not be run: {last[0]}", False
        return
    found = json.loads(done.stdout)
    count = found["differences"]
    verdict = f"{count} differences from the table" if count else "all as the table says"
    yield f"protocol on {device}: {found['words']} words of calls, {verdict}", not count
    for line in found["told"]:
        yield f"  {line}", False


def _incidents(interpreter: Interpreter) -> Iterator[tuple[str, bool]]:
    """Each recorded incident is confirmed before its repair, and nothing is after it."""
    import amplint

    top = os.path.join(os.path.dirname(os.path.dirname(str(amplint.__file__))), "fixtures")
    folder = os.path.join(top, "incidents")
    if not os.path.isdir(folder):
        yield "incidents: not part of this installation, only of a checkout", True
        return
    for name in sorted(os.listdir(folder)):
        before, after = (
            _confirmed(os.path.join(folder, name, state), interpreter)
            for state in ("before", "after")
        )
        verdict = f"{before} findings confirmed before the repair, {after} after it"
        yield f"incident {name}: {verdict}", before > 0 and not after


def _confirmed(folder: str, interpreter: Interpreter) -> int:
    """How many findings in a project the probe confirms."""
    from amplint.checker import check_paths
    from amplint.config import Settings
    from amplint.probe.confirmation import Limits, probe_findings

    settings = Settings(project_root=folder)
    findings = check_paths([folder], settings).findings
    probed = probe_findings(findings, settings, Limits(120.0, 150, interpreter.path))
    return sum(item.finding.evidence.status == "confirmed" for item in probed)
