"""`amplint rule --test PACKAGE`: the cases that stand beside the rules of an installed package."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

from amplint.errors import UsageError


def failures(package: str) -> Iterator[tuple[str, list[str]]]:
    """Each rule of a package by code, with what its cases show to be wrong; nothing if all is well.

    Raises:
        UsageError: no installed package of this name has rules.
    """
    from amplint import plugins
    from amplint.rules import load

    wanted = package.replace("_", "-").lower()
    codes = [
        code
        for code, plugin in plugins.installed().items()
        if wanted in (plugin.package.lower(), plugin.module.partition(".")[0].replace("_", "-"))
    ]
    if not codes:
        known = sorted({plugin.package for plugin in plugins.installed().values()})
        hint = f"packages with rules: {', '.join(known)}" if known else "no package has rules"
        raise UsageError(f"no installed package `{package}` has rules", hint)
    for code in codes:
        try:
            found = list(_judged(code, load(code)))
        except Exception as error:  # noqa: BLE001 - a rule that cannot be loaded fails its cases
            found = [f"{type(error).__name__}: {error}"]
        yield code, found


def _judged(code: str, module: ModuleType) -> Iterator[str]:
    if module.RULE.code != code:
        yield f"its RULE says {module.RULE.code}"
    valid, invalid = getattr(module, "VALID", ()), getattr(module, "INVALID", ())
    if not valid or not invalid:
        yield "it needs VALID and INVALID programs"
    for index, source in enumerate(valid):
        yield from (f"VALID[{index}]: {line}" for line in _found(code, source))
    for index, case in enumerate(invalid):
        found = _found(code, case.source)
        if not found or any(not line.startswith("line ") for line in found):
            yield f"INVALID[{index}]: {'; '.join(found) or 'nothing is found'}"
        elif case.replacement is not None:
            fixed = _fixed(code, case.source)
            if fixed != case.replacement:
                yield f"INVALID[{index}] becomes {fixed!r}"


def _found(code: str, source: str) -> list[str]:
    from amplint.inspection import inspect

    result = inspect(_task(code, source))
    rows = [f"line {item.span.start.row}: {item.message}" for item in result.findings]
    return [*rows, *(error.message for error in result.errors)]


def _fixed(code: str, source: str) -> str:
    from amplint.fixing.fixer import FixTask, fix

    return fix(FixTask(_task(code, source), frozenset({code}), True, source.encode())).text


def _task(code: str, source: str) -> Any:
    from amplint.inspection import Task
    from amplint.source.reading import decode

    return Task(decode(source.encode(), "case.py"), frozenset({code}))
