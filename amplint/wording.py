"""From a `Misuse` of the flow analysis to the words of a `Finding`.

A rule that subscribes to the flow analysis keeps two tables of templates, one for messages
and one for helps. A key of such a table is

- ``"slug variant"``: the slug of a `Violation` (or the detail "slug" of a misuse without one),
  and either a detail whose value is "yes" ("loop", "never") or the method that the offending
  call calls ("unscale_");
- ``"variant"``: the variant alone;
- ``"slug"``: the violation alone;
- ``""``: everything else; every table has it.

Templates may use the names that `fields` returns.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping

from amplint.amp.reached_calls import calls_leading_to
from amplint.amp.scaling import scale_words
from amplint.code.expressions import path_text
from amplint.code.layout import layout_of
from amplint.code.module import Function
from amplint.findings import Finding, shorten
from amplint.fixing.verbs import Repair
from amplint.protocol import Violation
from amplint.rule import Misuse, Rule
from amplint.view import FileView

#: Longest error of torch that a message quotes; the path has all of it.
LONGEST_ERROR = 46
#: Methods that are events of the protocol; any other call leads to a step in a helper.
_EVENTS = frozenset({"scale", "unscale_", "step", "update", "backward", "zero_grad"})


def report(
    view: FileView,
    rule: Rule,
    messages: Mapping[str, str],
    helps: Mapping[str, str],
    fix: Callable[[FileView, Misuse], Repair | None] | None = None,
    misuses: Iterable[Misuse] | None = None,
) -> Iterator[Finding]:
    """One finding for each misuse that the flow analysis found under the rule's code.

    Args:
        misuses: those to report instead, where the rule has judged them itself.
    """
    for misuse in view.misuses(rule.code) if misuses is None else misuses:
        words = fields(view, misuse)
        yield view.finding(
            rule,
            misuse.node,
            choose(messages, misuse).format_map(words),
            choose(helps, misuse).format_map(words),
            path=misuse.path,
            links=misuse.links,
            fix=fix(view, misuse) if fix is not None else None,
        )


def choose(templates: Mapping[str, str], misuse: Misuse) -> str:
    """The most specific template for a misuse."""
    slug = misuse.violation.slug if misuse.violation else misuse.details.get("slug", "")
    variants = [name for name, value in misuse.details.items() if value == "yes"]
    variants.extend(filter(None, (called_method(misuse.node),)))
    keys = [*(f"{slug} {variant}" for variant in variants), *variants, slug, ""]
    return next(templates[key] for key in keys if key in templates)


def fields(view: FileView, misuse: Misuse) -> dict[str, str]:
    """What a template may mention.

    Returns:
        call: the offending expression; method: the event that it is; loss: what is trained on; scaler, optimizer: as
        the code writes them; when: " when `condition`" or ""; other: the condition of the
        matching event, quoted; needed: the method that it is; at: " on line 12" (of the related event) or ""; clip: the
        function that clips; scalers: those that scaled the loss; scale: the loss scale
        ("65536 at first"); error: torch's exception and text; consequence: that error, or the measured damage.
    """
    details = misuse.details
    scaler, optimizer = _participants(view, misuse)
    guard, other, line = details.get("guard"), details.get("other_guard"), details.get("line")
    method = called_method(misuse.node)
    error = error_text(misuse.violation) if misuse.violation else ""
    damage = misuse.violation.damage if misuse.violation else "the step is incomplete"
    return {
        "call": view.source_of(misuse.node),
        "method": method if method in _EVENTS else "step",
        "loss": _loss(misuse.function),
        "scaler": scaler,
        "optimizer": optimizer,
        "when": f" when `{shorten(guard)}`" if guard else "",
        "other": f"`{shorten(other)}`" if other else "another condition",
        "needed": details.get("needed", "call"),
        "at": f" on line {line}" if line else "",
        "clip": details.get("norm") or "clip_grad_norm_",
        "scale": scale_words(view, scaler, misuse.function),
        "scalers": quote_each(details.get("scalers", "")) or "another scaler",
        "error": error,
        "consequence": f"it raises {error}" if error else damage,
    }


def _loss(function: Function) -> str:
    """What a function runs its first backward on, as it writes it; "loss" where it runs none."""
    for node in function.nodes:
        if called_method(node) != "backward" or not isinstance(node, ast.Call):
            continue
        receiver = node.func.value  # type: ignore[attr-defined]
        if called_method(receiver) == "scale" and isinstance(receiver, ast.Call):
            receiver = next(iter(receiver.args), receiver)
        if path_text(receiver) is not None:
            return ast.unparse(receiver)
    return "loss"


def _participants(view: FileView, misuse: Misuse) -> tuple[str, str]:
    """Scaler and optimizer as the code writes them: of the misuse, else of the step after it.

    A clip names no optimizer: where nothing says whose gradients it clips, it is the one of the next
    step, and the last step of the path may be of another.
    """
    layout = layout_of(misuse.function)
    clips = misuse.violation is not None and misuse.violation.slug == "clip-of-scaled"
    if misuse.node not in layout or (misuse.scaler and misuse.optimizer and not clips):
        return misuse.scaler or "scaler", misuse.optimizer or "optimizer"
    steps = list(calls_leading_to(view, "step", misuse.function))
    after = [call for call in steps if layout.before(misuse.node, call.node)]
    behind = [call.given for call in after if misuse.scaler in ("", call.scaler)] if clips else []
    of_scaler = [call for call in after or steps if misuse.scaler in ("", call.scaler)]
    scaler = misuse.scaler or next((call.scaler for call in of_scaler), "scaler")
    owner = misuse.details.get("owner", "")
    optimizers = (owner, *behind[:1], misuse.optimizer, *(call.given for call in of_scaler))
    return scaler, next(filter(None, optimizers), "optimizer")


def error_text(violation: Violation) -> str:
    """torch's exception and how its text begins; "" when torch is silent."""
    if violation.exception is None or violation.error is None:
        return ""
    text = f"{violation.exception}: {violation.error.partition('  ')[0]}"
    if len(text) <= LONGEST_ERROR:
        return f"`{text}`"
    return f"`{text[:LONGEST_ERROR].rpartition(' ')[0]}…`"


def called_method(node: ast.AST) -> str:
    """The name after the last dot of a call ("unscale_"); "" for anything else."""
    if isinstance(node, ast.Await):
        node = node.value
    if isinstance(node, ast.Call):
        node = node.func
    return node.attr if isinstance(node, ast.Attribute) else ""


def quote_each(names: str) -> str:
    """A comma list with every name in backticks."""
    return ", ".join(f"`{name.strip()}`" for name in names.split(",") if name.strip())
