"""Guarded parsing: any input ends in a tree or in `UnreadableFile`, never in a crash."""

from __future__ import annotations

import ast
import re
import sys
import warnings
from typing import TYPE_CHECKING

from amplint.errors import UnreadableFile
from amplint.source.positions import LineTable
from amplint.source.reading import SourceFile

if TYPE_CHECKING:
    import libcst

TOO_DEEP = "is nested too deeply to be analysed"


class TooDeep(UnreadableFile):
    """A text that cannot be parsed with the room for recursion that there is."""

    def __init__(self) -> None:
        super().__init__(TOO_DEEP)
        self.args = ()  # picklable across worker processes


#: LibCST's parser is native and recursive: it overflows the C stack, which kills the
#: process, from about 1,500 levels on. Real code stays below 30.
MAX_NESTING = 200
#: Whoever runs out of room in a program that nests no deeper does not run out because of it.
ORDINARY_NESTING = 60


def parse(source: SourceFile) -> ast.Module:
    """Parse a decoded file.

    Raises:
        UnreadableFile: the file is no Python that this interpreter can parse.
    """
    try:
        with warnings.catch_warnings():
            # The checked file's invalid escapes are not the user's concern here.
            warnings.simplefilter("ignore")
            return ast.parse(source.text, source.filename)
    except SyntaxError as error:
        raise _syntax_error(source, error) from error
    except (RecursionError, MemoryError) as error:
        raise TooDeep from error
    except ValueError as error:  # null bytes, before Python 3.12; lone surrogates
        raise UnreadableFile(f"cannot be parsed: {error}") from error


def _syntax_error(source: SourceFile, error: SyntaxError) -> UnreadableFile:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    place = LineTable(source.text).clamp(error.lineno or 1, error.offset or 1)
    message = f"cannot be parsed as Python {version}: {' '.join(error.msg.split())}"
    return UnreadableFile(message, place.row, place.column)


def refuse_long_chains(tree: ast.Module) -> None:
    """Refuse what is deep by `a.b.c` and `f()()()`: each link asks what all before it are.

    Raises:
        TooDeep: there is a chain of more than `MAX_NESTING` links.
    """
    links: dict[ast.AST, int] = {}
    for node in ast.walk(tree):
        length = links.get(node, 0) + 1
        if length > MAX_NESTING:
            raise TooDeep
        if isinstance(node, (ast.Attribute, ast.Subscript)):
            links[node.value] = length
        elif isinstance(node, ast.Call):
            links[node.func] = length


def nests_deeply(source: SourceFile) -> bool:
    """Whether a program nests so deeply that room for recursion may be short because of it."""
    try:
        return _tree_depth(parse(source)) > ORDINARY_NESTING
    except UnreadableFile:
        return True


def concrete_syntax(text: str) -> libcst.Module:
    """Parse a statement or a few with LibCST, which keeps every character, to build edits.

    Raises:
        UnreadableFile: the text is no Python, or nested too deeply for LibCST's parser.
    """
    import libcst

    tree = parse(SourceFile("<snippet>", text))
    if max(_bracket_depth(text), _tree_depth(tree)) > MAX_NESTING:
        raise UnreadableFile(TOO_DEEP)
    try:
        return libcst.parse_module(text)
    except libcst.ParserSyntaxError as error:
        raise UnreadableFile(
            f"cannot be parsed: {error.message}", error.raw_line, error.raw_column + 1
        ) from error
    except (RecursionError, MemoryError) as error:
        raise UnreadableFile(TOO_DEEP) from error


def _bracket_depth(text: str) -> int:
    """An upper bound of the nesting of brackets; those in strings are counted too."""
    depth = deepest = 0
    for bracket in re.findall(r"[()\[\]{}]", text):
        depth += 1 if bracket in "([{" else -1
        depth = max(depth, 0)
        deepest = max(deepest, depth)
    return deepest


def _tree_depth(tree: ast.AST) -> int:
    """Levels of nodes in the tree, without recursion."""
    depth = 0
    level: list[ast.AST] = [tree]
    while level:
        depth += 1
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    return depth
