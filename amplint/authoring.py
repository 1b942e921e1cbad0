"""What a package's own rule may be made of: a pattern, an order of events, or a whole check.

A module with a `check(view)` like amplint's own rules is a whole check. One with a `PATTERN` or an
`ORDER` says what to look for, and gets its check from here. `docs/rules-of-your-own.md` builds one of
each.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from amplint.amp.scaler_calls import scaler_calls
from amplint.code.dataflow import receiver
from amplint.code.layout import layout_of
from amplint.findings import Finding
from amplint.fixing.verbs import Become, Repair
from amplint.rule import Rule
from amplint.view import FileView

Check = Callable[[FileView], Iterator[Finding]]


@dataclass(frozen=True, slots=True)
class Pattern:
    """Calls of some functions that a matcher of LibCST accepts.

    Args:
        callees: dotted names of the functions ("torch.cuda.empty_cache"), however imported.
        matcher: a `libcst.matchers` object, tried on each call.
        message: what is wrong and what it does.
        help: the edit to make.
        replace: from the call's LibCST node to the one that replaces it; None for no fix.
        applicability: of that fix, "safe" or "unsafe".
    """

    callees: tuple[str, ...]
    matcher: Any
    message: str
    help: str
    replace: Callable[[Any], Any] | None = None
    applicability: str = "unsafe"


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
    if isinstance(pattern, Pattern):
        return lambda view: _matches(view, module.RULE, pattern)
    if isinstance(order, Order):
        return lambda view: _misuses(view, module.RULE, order)
    raise TypeError(f"{module.__name__} has neither `check`, nor `PATTERN`, nor `ORDER`")


def _matches(view: FileView, rule: Rule, pattern: Pattern) -> Iterator[Finding]:
    """The calls that the matcher accepts; LibCST parses only calls of these functions."""
    sites = (site for site in view.module.calls if site.dotted in pattern.callees)
    for site in sites:
        if _accepts(view, pattern, site.node):
            repair = None
            if pattern.replace is not None:
                repair = Repair(pattern.applicability, (Become(site.node, pattern.replace),))
            yield view.finding(rule, site.node, pattern.message, pattern.help, fix=repair)


def _accepts(view: FileView, pattern: Pattern, call: ast.Call) -> bool:
    import libcst
    from libcst import matchers

    from amplint.errors import UnreadableFile
    from amplint.source.parsing import concrete_syntax

    try:
        (line,) = concrete_syntax(f"({ast.unparse(call)})").body
    except UnreadableFile:
        return False
    node = libcst.ensure_type(line, libcst.SimpleStatementLine).body[0]
    return matchers.matches(libcst.ensure_type(node, libcst.Expr).value, pattern.matcher)


def _misuses(view: FileView, rule: Rule, order: Order) -> Iterator[Finding]:
    if order.violation:
        for misuse in view.flow_misuses:
            if misuse.violation is not None and misuse.violation.slug == order.violation:
                words = {"scaler": misuse.scaler or "scaler"}
                message, help = order.message.format_map(words), order.help.format_map(words)
                path, links = misuse.path, misuse.links
                yield view.finding(rule, misuse.node, message, help, path=path, links=links)
        return
    for last in scaler_calls(view, order.methods[-1]):
        if _follows(view, order, last.node):
            words = {"scaler": receiver(last.node) or "scaler"}
            message, help = order.message.format_map(words), order.help.format_map(words)
            yield view.finding(rule, last.node, message, help)


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
