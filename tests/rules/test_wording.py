"""Every message of the rules that subscribe to the flow analysis, for every violation.

The words must hold what a reader needs: no template field left, torch's own error where
torch raises, one line of reasonable length.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Mapping

import pytest

from amplint import rules
from amplint.findings import shorten
from amplint.protocol import VIOLATIONS
from amplint.rule import Misuse
from amplint.view import FileView, view_of
from amplint.wording import called_method, quote_each

SOURCE = "def train():\n    self.scaler.step(self.optimizer)\n"
DETAILS = {
    "guard": "self.config.mixed_precision",
    "other_guard": "self.scaler is not None",
    "line": "12",
    "norm": "clip_grad_norm_",
    "scalers": "scaler_g",
}
#: Slugs of the flow analysis that are no single transition, so torch's table lacks them.
#: The keys of single variants count as slugs here: they stand for any violation.
WITHOUT_VIOLATION = (
    *("foreign-scaler", "other-object-unscaled", "losses-mixed"),
    *("absent", "unscale_"),
)
LONGEST_MESSAGE = 160

#: The rules whose findings come from the flow analysis: they ask for misuses, or let `report` do it.
SUBSCRIBERS = [
    code
    for code in rules.TABLE
    if re.search(r"\bmisuses\(|wording import .*\breport\b", inspect.getsource(rules.load(code)))
]


def showing(misuse: Misuse) -> FileView:
    view = view_of("train.py", SOURCE, ast.parse(SOURCE))
    vars(view)["flow_misuses"] = (misuse,)
    return view


def misuse_of(code: str, slug: str = "", details: Mapping[str, str] = DETAILS) -> Misuse:
    view = view_of("train.py", SOURCE, ast.parse(SOURCE))
    function = view.module.functions[1]
    call = function.body[0].value
    names = ("self.scaler", "self.optimizer")
    return Misuse(code, call, function, VIOLATIONS.get(slug), *names, details=details)


def templates() -> list[tuple[str, str, str]]:
    """(code, slug, variant) of every template."""
    keys = [(code, key) for code in SUBSCRIBERS for key in rules.load(code).MESSAGES]
    return [(code, key.partition(" ")[0], key.partition(" ")[2]) for code, key in keys]


def words_of(code: str, slug: str, details: Mapping[str, str]) -> tuple[str, str]:
    (finding,) = rules.load(code).check(showing(misuse_of(code, slug, details)))
    return finding.message, finding.help


@pytest.mark.parametrize(("code", "slug", "variant"), templates())
@pytest.mark.parametrize("details", [DETAILS, {}], ids=["details", "bare"])
def test_the_words_are_complete(
    code: str, slug: str, variant: str, details: Mapping[str, str]
) -> None:
    chosen = {**details, "slug": slug, **({variant: "yes"} if variant else {})}
    for text in words_of(code, slug, chosen):
        assert text and "\n" not in text and len(text) <= LONGEST_MESSAGE
        assert not set("{}") & set(text)
        assert "!" not in text.replace("!=", "")
        assert text.count("`") % 2 == 0
        assert "  " not in text


@pytest.mark.parametrize(("code", "slug", "variant"), templates())
def test_torch_is_quoted_where_it_raises(code: str, slug: str, variant: str) -> None:
    assert not slug or slug in VIOLATIONS or slug in WITHOUT_VIOLATION
    violation = VIOLATIONS.get(slug)
    if violation is None or not violation.raises:
        return
    message, _ = words_of(code, slug, {**DETAILS, **({variant: "yes"} if variant else {})})
    (quoted,) = re.findall(rf"`({violation.exception}: [^`]*)`", message)
    whole = f"{violation.exception}: {violation.error}"
    assert whole.startswith(quoted.removesuffix("…")) and len(quoted) > len("RuntimeError: ")


@pytest.mark.parametrize(
    ("source", "method"),
    [
        ("scaler.unscale_(optimizer)", "unscale_"),
        ("scaler.scale(loss).backward()", "backward"),
        ("clip(model)", ""),
        ("scaler.step", "step"),
        ("a + b", ""),
    ],
)
def test_called_method(source: str, method: str) -> None:
    assert called_method(ast.parse(source, mode="eval").body) == method


def test_long_conditions_are_cut() -> None:
    assert shorten("use_amp  and\n scaler", 18) == "use_amp and scaler"
    assert shorten("use_amp and scaler", 17) == "use_amp and …"
    assert shorten("x" * 100, 40) == "x" * 38 + " …"
    assert quote_each("a, b") == "`a`, `b`"
