"""Structural edits that break programs: most results still parse, few make sense.

An edit changes a tree in place, drawn from a random generator, so that the same seed gives the
same program. `broken` is the only way in.
"""

from __future__ import annotations

import ast
import copy
import random
from collections.abc import Callable, Iterator, Sequence

Block = list[ast.stmt]
Edit = Callable[[ast.Module, ast.Module, random.Random], None]

#: So many edits are made at most, the number drawn evenly.
MOST_EDITS = 6
#: One of so many programs is also cut or has lines exchanged as text, so that it may not parse.
TEXT_EDITS = 8


def broken(text: str, other: str, chance: random.Random) -> str:
    """A program with some edits; `other` is a program that parts are taken from.

    Raises:
        SyntaxError, ValueError, RecursionError: one of the two programs cannot be parsed, or the
            edited tree not be written.
    """
    tree, donor = ast.parse(text), ast.parse(other)
    for program in (tree, donor):
        program.body = program.body or [ast.Pass()]  # of comments alone
    for _ in range(chance.randint(1, MOST_EDITS)):
        chance.choice(EDITS)(tree, donor, chance)
    made = ast.unparse(ast.fix_missing_locations(tree)) + "\n"
    return _as_text(made, chance) if not chance.randrange(TEXT_EDITS) else made


def blocks_in(tree: ast.AST) -> Iterator[Block]:
    """Every list of statements in a tree that is not empty."""
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list) and block:
                yield block


def _place(tree: ast.Module, chance: random.Random) -> tuple[Block, int]:
    block = chance.choice(list(blocks_in(tree)) or [tree.body])
    return block, chance.randrange(len(block)) if block else 0


def _cut(block: Block, index: int) -> None:
    block[index : index + 1] = [] if len(block) > 1 else [ast.Pass()]


def _delete(tree: ast.Module, donor: ast.Module, chance: random.Random) -> None:
    _cut(*_place(tree, chance))


def _double(tree: ast.Module, donor: ast.Module, chance: random.Random) -> None:
    block, index = _place(tree, chance)
    block[index:index] = copy.deepcopy(block[index : index + 1])


def _move(tree: ast.Module, donor: ast.Module, chance: random.Random) -> None:
    """A statement to another place; never into itself."""
    block, index = _place(tree, chance)
    statement = block[index]
    target, place = _place(tree, chance)
    if all(inner is not target for inner in blocks_in(statement)):
        _cut(block, index)
        target.insert(place, statement)


def _graft(tree: ast.Module, donor: ast.Module, chance: random.Random) -> None:
    """A statement of the other program, anywhere in this one."""
    block, index = _place(tree, chance)
    source, place = _place(donor, chance)
    block[index:index] = copy.deepcopy(source[place : place + 1])


def _wrap(tree: ast.Module, donor: ast.Module, chance: random.Random) -> None:
    """A statement under a loop, a test, a `with`, a `try` or a function."""
    block, index = _place(tree, chance)
    head = chance.choice(_HEADS)
    around = ast.parse(head).body[0]
    inner = around.body[0].body if isinstance(around, ast.ClassDef) else around.body  # type: ignore[attr-defined]
    inner[:] = [block[index]]
    block[index] = around


_HEADS = (
    "for item in items: pass",
    "while True: pass",
    "if flag: pass",
    "if not flag:\n pass\nelse:\n raise ValueError",
    "with torch.autocast('cuda', dtype=torch.float16): pass",
    "with torch.no_grad() as _: pass",
    "try:\n pass\nexcept Exception:\n continue_ = 1\nfinally:\n del flag",
    "def step(self, *args, scaler=None, **options): pass",
    "async def step(loss): pass",
    "class Trainer(Trainer):\n def step(self): pass",
)


def _flatten(tree: ast.Module, donor: ast.Module, chance: random.Random) -> None:
    """The body of a compound statement in its place."""
    block, index = _place(tree, chance)
    inner = getattr(block[index], "body", None)
    if isinstance(inner, list):
        block[index : index + 1] = inner


def _swap_expressions(tree: ast.Module, donor: ast.Module, chance: random.Random) -> None:
    """An expression in the place of another one, of this program or the other."""
    fields = list(_expressions(tree))
    sources = fields if chance.randrange(2) else list(_expressions(donor))
    if not fields or not sources:
        return
    owner, name = chance.choice(fields)
    other, field = chance.choice(sources)
    setattr(owner, name, copy.deepcopy(getattr(other, field)))


def _expressions(tree: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    for node in ast.walk(tree):
        for name, value in ast.iter_fields(node):
            if isinstance(value, ast.expr) and not isinstance(
                getattr(value, "ctx", None), (ast.Store, ast.Del)
            ):
                yield node, name


def _rename(tree: ast.Module, donor: ast.Module, chance: random.Random) -> None:
    """A name or an attribute becomes another one of the program."""
    named = [node for node in ast.walk(tree) if isinstance(node, (ast.Name, ast.Attribute))]
    if not named:
        return
    words = [node.id if isinstance(node, ast.Name) else node.attr for node in named]
    node, word = chance.choice(named), chance.choice(words)
    if isinstance(node, ast.Name):
        node.id = word
    else:
        node.attr = word


def _arguments(tree: ast.Module, donor: ast.Module, chance: random.Random) -> None:
    """Arguments of a call are dropped, doubled, starred or given by name."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    if not calls:
        return
    call = chance.choice(calls)
    kind = chance.randrange(4)
    if kind == 0:
        call.args, call.keywords = call.args[1:], call.keywords[1:]
    elif kind == 1:
        call.args = [*call.args, *copy.deepcopy(call.args)]
    elif kind == 2:
        call.args = [ast.Starred(item, ast.Load()) for item in call.args]
    else:
        names = ("enabled", "scaler", "optimizer", None)
        call.keywords += [ast.keyword(chance.choice(names), item) for item in call.args[:1]]


EDITS: Sequence[Edit] = (
    *(_delete, _double, _move, _graft, _wrap),
    *(_flatten, _swap_expressions, _rename, _arguments),
)


def _as_text(text: str, chance: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    index = chance.randrange(len(lines))
    kind = chance.randrange(4)
    if kind == 0:
        return text[: chance.randrange(len(text)) + 1]
    if kind == 1:
        lines[index] = "    " + lines[index]
    elif kind == 2:
        lines[index] = lines[index].lstrip()
    else:
        other = chance.randrange(len(lines))
        lines[index], lines[other] = lines[other], lines[index]
    return "".join(lines)
