"""What a rule is: metadata, and one function from a file's view to findings.

A rule module of `amplint.rules` holds its page as docstring, `RULE` and `check`. Nothing
else is needed to add one, besides its line in the table of `amplint.rules`.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field

from amplint.code.module import Function
from amplint.expectations import Expectation
from amplint.findings import Link, PathStep, Severity
from amplint.protocol import Violation


@dataclass(frozen=True, slots=True)
class Rule:
    """Metadata of one rule.

    Args:
        code: "AMP101"; fixed for ever, because suppressions and baselines hold it.
        name: kebab-case, names the mistake.
        severity: of its findings unless a finding says otherwise. INFO rules are off
            unless selected.
        effect: "crash", "silent", "crash/silent", "perf" or "api".
        summary: one line for the catalogue.
        facts: ids of the executed cases behind the page.
        fix: "safe", "unsafe", "display" or "none".
        probe: what a run can show of a finding; empty where none can.
        unprobed: why one short run on stand-ins cannot show it, everywhere or without the device
            that `probe` needs; a sentence without its full stop.
    """

    code: str
    name: str
    severity: Severity
    effect: str
    summary: str
    facts: tuple[str, ...] = ()
    fix: str = "none"
    since: str = "0.1.0"
    probe: tuple[Expectation, ...] = ()
    unprobed: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Misuse:
    """A broken rule of the protocol that the flow analysis found on a feasible path.

    Args:
        code: the rule that reports it.
        node: the offending call.
        function: the function that holds `node`.
        violation: what torch does; None where the misuse is no single transition.
        scaler: the scaler as the code writes it ("self.scaler"), "" if none is involved.
        optimizer: the optimizer as the code writes it, "" if none is involved.
        path: the witness.
        links: what it rests on.
        details: extra words for the message, by name; each rule documents its own.
    """

    code: str
    node: ast.expr
    function: Function
    violation: Violation | None = None
    scaler: str = ""
    optimizer: str = ""
    path: tuple[PathStep, ...] = ()
    links: tuple[Link, ...] = ()
    details: Mapping[str, str] = field(default_factory=dict)
