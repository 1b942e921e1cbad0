"""What a rule is: metadata, and one function from a file's view to findings.

A rule module of `amplint.rules` holds its page as docstring, `RULE` and `check`. Nothing
else is needed to add one, besides its line in the table of `amplint.rules`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from amplint.amp.roles import Roles, roles_of
from amplint.code.module import Function, Module
from amplint.code.objects import Objects
from amplint.findings import Finding, Fix, PathStep, Severity, Span
from amplint.flow.program import Program
from amplint.protocol import Violation
from amplint.values.values import Values


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
    """

    code: str
    name: str
    severity: Severity
    effect: str
    summary: str
    facts: tuple[str, ...] = ()
    fix: str = "none"
    since: str = "0.1.0"


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
        details: extra words for the message, by name; each rule documents its own.
    """

    code: str
    node: ast.expr
    function: Function
    violation: Violation | None = None
    scaler: str = ""
    optimizer: str = ""
    path: tuple[PathStep, ...] = ()
    details: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class FileView:
    """Everything a rule may look at for one file.

    Args:
        module: the indexed file.
        roles: what its names and attributes are.
        flow_misuses: what the flow analysis found, all codes.
        place_of: where a node of a module lies, as a `Span` in 1-based code points.
        program: the modules that the flow analysis looked at.
        objects: what expressions stand for, in whatever file.
        values: the constants that expressions may be, in whatever file.
    """

    module: Module
    roles: Roles
    flow_misuses: tuple[Misuse, ...]
    place_of: Callable[[Module, ast.AST], Span]
    program: Program
    objects: Objects
    values: Values

    def span_of(self, node: ast.AST) -> Span:
        """Where a node of the checked file lies, in 1-based code points."""
        return self.place_of(self.module, node)

    def roles_of(self, function: Function) -> Roles:
        """The roles of the file that holds a function."""
        if function.module is self.module:
            return self.roles
        return roles_of(function.module)

    def may_reach(self, word: str, call: ast.Call, function: Function) -> bool:
        """Whether a function of the called name may use a word of the protocol; cheap.

        Args:
            word: "scale", "step", "update" or "unscale".
            function: holds the call, in whatever file.
        """
        return not self.program.knows(function) or word in self.program.reach(call, function)

    def step(self, node: ast.AST, module: Module, message: str) -> PathStep:
        """One step of a path, in whatever file."""
        start = self.place_of(module, node).start
        return PathStep(module.filename, start.row, start.column, message)

    def misuses(self, code: str) -> Iterator[Misuse]:
        """The flow analysis' results for one code."""
        return (misuse for misuse in self.flow_misuses if misuse.code == code)

    def source_of(self, node: ast.AST) -> str:
        """The source text of a node on one line, shortened to 60 characters."""
        text = " ".join(ast.unparse(node).split())
        return text if len(text) <= 60 else text[:57] + "..."

    def finding(
        self,
        rule: Rule,
        node: ast.AST,
        message: str,
        help: str,
        *,
        path: tuple[PathStep, ...] = (),
        severity: Severity | None = None,
        fix: Fix | None = None,
    ) -> Finding:
        """Build a finding of `rule` at `node`."""
        return Finding(
            code=rule.code,
            name=rule.name,
            severity=severity or rule.severity,
            message=message,
            help=help,
            filename=self.module.filename,
            span=self.span_of(node),
            path=path,
            fix=fix,
        )
