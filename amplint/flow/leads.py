"""Which functions of a file can lead to a given one, judged by the words that they use.

Cheap and generous: a word that they share is enough. A function that uses no word which leads
there cannot run it, so nobody has to follow that function to see how it is run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from amplint.code.module import Function, Module, walk
from amplint.code.statements import assignments_of

_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True, slots=True)
class _Use:
    """A name of a file with the words that its definition or its value uses."""

    name: str
    words: frozenset[str]


def leading_words(module: Module, words: Iterable[str]) -> frozenset[str]:
    """The words, and the names in a module of whatever uses one of them, directly or not."""
    found = set(words)
    left = [use for use in module.once(_uses) if use.name not in found]
    while True:
        new = {use.name for use in left if not found.isdisjoint(use.words)}
        if not new:
            return frozenset(found)
        found |= new
        left = [use for use in left if use.name not in found]


def leading_functions(module: Module, words: frozenset[str]) -> frozenset[Function]:
    """The functions of a module that use one of the words.

    Args:
        words: with everything of the module that uses them, see `leading_words`.
    """
    used = module.once(_words_by_function)
    return frozenset(item for item, own in used.items() if not words.isdisjoint(own))


def _words_by_function(module: Module) -> dict[Function, set[str]]:
    return {item: _words(item.node) for item in module.functions}


def _uses(module: Module) -> tuple[_Use, ...]:
    return tuple(_find_uses(module))


def _find_uses(module: Module) -> Iterator[_Use]:
    for node in walk(module.tree):
        if isinstance(node, _NAMED):
            yield _Use(node.name, frozenset(_words(node)))
        elif isinstance(node, ast.stmt):
            for target, value in assignments_of(node):
                used = frozenset(_words(value)) if value is not None else frozenset()
                yield from (_Use(name, used) for name in _words(target))


def _words(node: ast.AST) -> set[str]:
    """Names, attributes and strings in a node, and the name of the function that it is."""
    found: set[str] = set()
    for each in walk(node):
        if isinstance(each, ast.Name):
            found.add(each.id)
        elif isinstance(each, ast.Attribute):
            found.add(each.attr)
        elif isinstance(each, ast.Constant) and isinstance(each.value, str):
            found.add(each.value)
        elif isinstance(each, _NAMED):
            found.add(each.name)
    found.discard("self")
    return found
