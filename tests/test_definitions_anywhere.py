"""Fixtures whose statements are moved into classes, functions, decorators and defaults: none breaks a rule.

What a nested definition evaluates where it stands has a place in the function around it: of 10,000
programs that no person would write two broke a rule that asked for such a place (docs/reliability.md).
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from amplint.checker import check_source
from amplint.config import Settings
from tests.budget import budget

FOLDER = Path(__file__).resolve().parent.parent / "fixtures"
#: These broke a rule as decorators and defaults.
KNOWN = ("AMP301/bad_listed_with_others.py", "AMP301/good_group_of_another_optimizer.py")
CHOSEN = (
    *(FOLDER / name for name in KNOWN),
    *sorted(FOLDER.rglob("*.py"))[5 :: budget(80, 1)],
)
EVERY_RULE = Settings(select=("ALL",))

#: Statements with blocks, whose bodies move.
BLOCKS = (ast.Module, ast.FunctionDef, ast.For, ast.With, ast.If, ast.Try)


def _definition(text: str, body: list[ast.stmt]) -> list[ast.stmt]:
    (made,) = ast.parse(text).body
    assert isinstance(made, (ast.ClassDef, ast.FunctionDef))
    made.body = body
    return [made]


class _Wrapped(ast.NodeTransformer):
    """The bodies of one kind of statement become those of a class, or of a function."""

    def __init__(self, kind: type[ast.AST], text: str) -> None:
        self.kind, self.text = kind, text

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        if isinstance(node, self.kind):
            node.body = _definition(self.text, node.body)  # type: ignore[attr-defined]
        return node


class _Evaluated(ast.NodeTransformer):
    """Calls that are statements become a decorator, or a default, of a function."""

    def __init__(self, text: str) -> None:
        self.text = text

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        if not isinstance(node.value, ast.Call):
            return node
        (made,) = ast.parse(self.text).body
        assert isinstance(made, ast.FunctionDef)
        if made.decorator_list:
            made.decorator_list = [node.value]
        else:
            made.args.defaults = [node.value]
        return made


CHANGES: dict[str, Callable[[], ast.NodeTransformer]] = {
    "a decorator": partial(_Evaluated, "@before\ndef added(): pass"),
    "a default": partial(_Evaluated, "def added(given=1): pass"),
    **{
        f"{kind.__name__} in a class": partial(_Wrapped, kind, "class Added: pass")
        for kind in BLOCKS
    },
    **{
        f"{kind.__name__} in a function": partial(_Wrapped, kind, "def added(): pass")
        for kind in BLOCKS
    },
}


@pytest.mark.parametrize("change", CHANGES)
def test_no_rule_breaks(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMPLINT_DEBUG", "1")  # an internal error is raised as it is
    checked = 0
    for path in CHOSEN:
        tree = CHANGES[change]().visit(ast.parse(path.read_text("utf-8")))
        text = ast.unparse(ast.fix_missing_locations(tree))
        with contextlib.suppress(SyntaxError):  # a `return` outside of a function
            compile(text, path.name, "exec")
            check_source("a.py", text.encode(), EVERY_RULE)
            checked += 1
    assert checked
