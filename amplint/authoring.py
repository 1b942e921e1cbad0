"""What a package's own rule may be made of: a pattern, an order of events, or a whole check.

A module with a `check(view)` is a whole check. One with a `PATTERN`, several `PATTERNS` or an `ORDER`
says what to look for, and gets its check from here, be it amplint's own or of an installed package.
`docs/rules-of-your-own.md` builds one of each.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from amplint.amp import links
from amplint.amp.roles import Role
from amplint.amp.scaler_calls import scaler_calls
from amplint.code.dataflow import receiver
from amplint.code.layout import layout_of
from amplint.code.module import CallSite
from amplint.findings import Finding, Link, PathStep
from amplint.fixing.verbs import Become, Repair
from amplint.rule import Rule
from amplint.view import FileView

Check = Callable[[FileView], Iterator[Finding]]


class _Matchers:
    """`libcst.matchers`, loaded when the first matcher is made."""

    def __getattr__(self, name: str) -> Any:
        from libcst import matchers

        return getattr(matchers, name)


m: Any = _Matchers()


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """Code that the program model found, and what it knows about it; its shape is still open.

    Args:
        node: what a pattern is tried on.
        place: where the finding stands; None for `node`.
        parts: parts of it by what the program model says they are, for matchers to ask with `is_a`.
        words: for the `{...}` of message and help.
        path, links: as of a finding.
    """

    node: ast.expr
    place: ast.AST | None = None
    parts: Mapping[str, ast.expr] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)
    path: tuple[PathStep, ...] = ()
    links: tuple[Link, ...] = ()

    def is_a(self, kind: str) -> Any:
        """A matcher for one of the parts."""
        import libcst

        code, blank = ast.unparse(self.parts[kind]), libcst.Module([])
        return m.MatchIfTrue(lambda node: blank.code_for_node(node) == code)


@dataclass(frozen=True, slots=True)
class Pattern:
    """Code of one shape, which LibCST sees only where the program model has a candidate.

    Args:
        matcher: a `libcst.matchers` object, or a function that makes one for a candidate: LibCST
            is then loaded only if there is one.
        message: what is wrong and what it does; `{name}` is the code that the matcher saved under
            this name, or a word of the candidate.
        help: the edit to make, in the same words.
        callees: calls of these functions are candidates ("torch.cuda.empty_cache"), however
            imported.
        candidates: finds others.
        replace: from the LibCST node to the one that replaces it; it raises `ValueError` where the
            edit is not known. None for no fix.
        applicability: of that fix, "safe" or "unsafe".
    """

    matcher: Any
    message: str
    help: str
    callees: Collection[str] = ()
    candidates: Callable[[FileView], Iterable[Candidate]] | None = None
    replace: Callable[[Any], Any] | None = None
    applicability: str = "unsafe"

    def found(self, view: FileView) -> Iterable[Candidate]:
        """The code of a file that may have this shape."""
        if self.candidates is not None:
            return self.candidates(view)
        sites = (site for site in view.module.calls if site.dotted in self.callees)
        return (Candidate(site.node, links=_of_call(site)) for site in sites)


def _of_call(site: CallSite) -> tuple[Link, ...]:
    """What is known of a call that is found by its name alone."""
    return (
        links.proved("object", site.node.func, f"is {site.dotted}"),
        links.proved("value", site.node, "is given what the pattern looks for"),
    )


@dataclass(frozen=True, slots=True)
class Order:
    """An order of events.

    Args:
        message: what is wrong and what it does; `{scaler}` is the scaler as the code writes it.
        help: the edit to make, in the same words.
        violation: a misuse of the protocol that torch's table knows (`amplint protocol`), found on
            every path that the analysis follows; "" for `methods`.
        methods: methods of one scaler, the last of which is wrong where control runs straight to it
            from each one before.
        unless: methods of the scaler that make it right if one runs in between.
    """

    message: str
    help: str
    violation: str = ""
    methods: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Invalid:
    """A program that a rule has to report.

    Args:
        replacement: the program after `--fix --unsafe-fixes`; None where that is not asked.
    """

    source: str
    replacement: str | None = None


def check_of(module: ModuleType) -> Check:
    """The check of a rule's module.

    Raises:
        TypeError: the module has neither `check`, nor `PATTERN`, nor `ORDER`.
    """
    if hasattr(module, "check"):
        return module.check  # type: ignore[no-any-return]
    pattern, order = getattr(module, "PATTERN", None), getattr(module, "ORDER", None)
    patterns = getattr(module, "PATTERNS", (pattern,) if pattern else ())
    if patterns:
        return lambda view: _matches(view, module.RULE, patterns)
    if isinstance(order, Order):
        return lambda view: _misuses(view, module.RULE, order)
    raise TypeError(f"{module.__name__} has neither `check`, nor `PATTERN`, nor `ORDER`")


def _matches(view: FileView, rule: Rule, patterns: Iterable[Pattern]) -> Iterator[Finding]:
    """What has the shape of a pattern; of several patterns for one place the first one speaks."""
    told: set[ast.AST] = set()
    for pattern in patterns:
        for found in pattern.found(view):
            place = found.place or found.node
            saved = None if place in told else _saved(pattern, found)
            if saved is None:
                continue
            told.add(place)
            words = {**saved.words, **found.words}
            message, help = pattern.message.format_map(words), pattern.help.format_map(words)
            yield view.finding(
                rule, place, message, help, path=found.path, links=found.links, fix=saved.fix
            )


@dataclass(frozen=True, slots=True)
class _Saved:
    """The code that a matcher saved, by name, and the fix."""

    words: Mapping[str, str]
    fix: Repair | None


def _saved(pattern: Pattern, found: Candidate) -> _Saved | None:
    """What a matcher makes of a candidate; None where it has another shape."""
    import libcst

    from amplint.errors import UnreadableFile
    from amplint.source.parsing import concrete_syntax

    try:
        tree = concrete_syntax(f"({ast.unparse(found.node)})")
    except UnreadableFile:
        return None
    line = libcst.ensure_type(tree.body[0], libcst.SimpleStatementLine)
    node = libcst.ensure_type(line.body[0], libcst.Expr).value
    matcher = pattern.matcher(found) if callable(pattern.matcher) else pattern.matcher
    saved = m.extract(node, matcher)
    if saved is None:
        return None
    words = {name: tree.code_for_node(part) for name, part in saved.items()}
    return _Saved(words, _fix(pattern, found, node))


def _fix(pattern: Pattern, found: Candidate, node: Any) -> Repair | None:
    """The fix, if the edit is known: that is tried on the snippet."""
    if pattern.replace is None:
        return None
    try:
        pattern.replace(node)
    except ValueError:
        return None
    return Repair(pattern.applicability, (Become(found.node, pattern.replace),))


def _misuses(view: FileView, rule: Rule, order: Order) -> Iterator[Finding]:
    if order.violation:
        for misuse in view.flow_misuses:
            if misuse.violation is not None and misuse.violation.slug == order.violation:
                words = {"scaler": misuse.scaler or "scaler"}
                message, help = order.message.format_map(words), order.help.format_map(words)
                yield view.finding(
                    rule, misuse.node, message, help, path=misuse.path, links=misuse.links
                )
        return
    for last in scaler_calls(view, order.methods[-1]):
        if _follows(view, order, last.node):
            words = {"scaler": receiver(last.node) or "scaler"}
            message, help = order.message.format_map(words), order.help.format_map(words)
            yield view.finding(rule, last.node, message, help, links=_of_order(view, order, last))


def _of_order(view: FileView, order: Order, last: CallSite) -> tuple[Link, ...]:
    """Whose methods these are, and that they run in this order."""
    assert isinstance(last.node.func, ast.Attribute)
    scaler = links.participant(view, last.node.func.value, last.function, Role.SCALER)
    before = ", ".join(order.methods[:-1])
    return scaler, links.proved("effect", last.node, f"runs straight behind {before}")


def _follows(view: FileView, order: Order, last: ast.Call) -> bool:
    """Whether the other methods run before a call, in order, and nothing that makes it right."""
    methods = (*order.methods[:-1], *order.unless)
    calls = [site for site in scaler_calls(view, *methods) if receiver(site.node) == receiver(last)]
    node = last
    for method in reversed(order.methods[:-1]):
        earlier = [
            site
            for site in calls
            if site.method == method
            and node in (layout := layout_of(site.function))
            and layout.reaches(site.node, node)
            and not any(
                other.method in order.unless
                and layout.reaches(site.node, other.node)
                and layout.reaches(other.node, node)
                for other in calls
                if other.function is site.function
            )
        ]
        if not earlier:
            return False
        node = earlier[-1].node
    return True
