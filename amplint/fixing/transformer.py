"""What becomes of each LibCST node of a piece of code, by the verbs of a fix."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import libcst as cst
from libcst import matchers as m
from libcst.helpers import parse_template_expression
from libcst.metadata import MetadataWrapper, PositionProvider

from amplint.fixing import arguments
from amplint.fixing.arguments import has_comment
from amplint.fixing.verbs import (
    Add,
    Become,
    Changing,
    Decorate,
    Drop,
    Entry,
    Import,
    Insert,
    Move,
    Name,
    Remove,
    Rename,
    Unwrap,
    Verb,
    Within,
    Write,
)

_Small = cst.BaseSmallStatement
_Statement = cst.SimpleStatementLine | cst.BaseCompoundStatement
#: Expressions that need no parentheses, whatever is written around them.
_ATOMS = (cst.Name, cst.Attribute, cst.Call, cst.Subscript, cst.BaseNumber, cst.BaseString)
#: The place of a node: LibCST's lines (1-based) and columns (0-based), its end for an expression.
Place = tuple[tuple[int, int], tuple[int, int]]


class CannotFix(Exception):
    """The code is written so that the fix cannot be made for certain."""


@dataclass(eq=False)
class Plan(cst.CSTTransformer):
    """What becomes of each node of a piece, done in one visit.

    Statements that stand alone on their line are keys themselves, not the line.

    Args:
        gone: statements that leave their place, by the verb that says so.
        within: what stands around a statement and those behind it, and the last of these.
    """

    changes: dict[cst.CSTNode, list[Changing]] = field(default_factory=lambda: defaultdict(list))
    before: dict[cst.CSTNode, list[_Statement]] = field(default_factory=lambda: defaultdict(list))
    after: dict[cst.CSTNode, list[_Statement]] = field(default_factory=lambda: defaultdict(list))
    gone: dict[cst.CSTNode, Remove | Move | Unwrap] = field(default_factory=dict)
    within: dict[cst.CSTNode, tuple[Any, cst.CSTNode]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        verbs: Iterable[Verb],
        tree: cst.Module,
        place: Callable[[ast.AST], Place],
        indent: str,
    ) -> Plan:
        """The verbs about a piece of code, with LibCST's nodes for Python's.

        Args:
            place: where LibCST sees a node of the file.
            indent: one level of indentation, as the file has it.

        Raises:
            CannotFix: LibCST has no such node there.
        """
        nodes, plan = _by_place(tree), cls()
        every = m.findall(tree, m.SimpleStatementLine())
        lines = {_key(line): cst.ensure_type(line, cst.SimpleStatementLine) for line in every}

        def found(node: ast.AST) -> Any:
            start, end = place(node)
            key = start if isinstance(node, ast.stmt) else (start, end)
            if key not in nodes:
                raise CannotFix
            return nodes[key]

        for verb in verbs:
            if isinstance(verb, Changing):
                plan.changes[found(verb.node)].append(verb)
                continue
            assert not isinstance(verb, Import)
            node = found(verb.statement)
            beside = plan.after if getattr(verb, "after", False) else plan.before
            match verb:
                case Insert():
                    beside[node] += _parsed(verb.code, indent)
                case Within():
                    (outer,) = _parsed(f"{verb.header}\n    pass", indent)
                    plan.within[node] = outer, found(verb.last or verb.statement)
                case Move():
                    beside[found(verb.to)].append(lines.get(node) or _line_of(node))
                    plan.gone[node] = verb
                case _:
                    plan.gone[node] = verb
        return plan

    def on_leave(self, original_node: Any, updated_node: Any) -> Any:
        """Apply what the plan says about one node."""
        node = updated_node
        for verb in self.changes.get(original_node, ()):
            node = changed(verb, node)
        if isinstance(original_node, (cst.SimpleStatementLine, cst.SimpleStatementSuite)):
            if _key(original_node) is original_node:  # several on one line
                return node.with_changes(body=self._small(original_node.body, node.body))
        elif isinstance(original_node, (cst.IndentedBlock, cst.Module)):
            return self._block(original_node, node)
        return node

    def _block(self, original: Any, updated: Any) -> Any:
        body: list[_Statement] = []
        kept: list[cst.EmptyLine] = []
        outer: tuple[int, Any, cst.CSTNode] | None = None
        for old, new in zip(original.body, updated.body, strict=True):
            key = _key(old)
            comments, group = self._left(key, new)
            kept += comments
            group = [*_in_front(self._come(self.before, key), group), *self._come(self.after, key)]
            if group and kept:
                group[0] = group[0].with_changes(leading_lines=(*kept, *group[0].leading_lines))
                kept = []
            if key in self.within:
                outer = (len(body), *self.within[key])
            body += group
            if outer is not None and outer[2] is key:
                body[outer[0] :] = [_around(outer[1], body[outer[0] :])]
        if not body and isinstance(original, cst.IndentedBlock):
            raise CannotFix
        if kept:
            updated = updated.with_changes(footer=(*kept, *updated.footer))
        return updated.with_changes(body=body)

    def _left(self, key: cst.CSTNode, line: Any) -> tuple[list[cst.EmptyLine], list[Any]]:
        """The comments and the statements that are left of a line of a block."""
        match self.gone.get(key):
            case Remove():
                return _comments_above(line), []
            case Unwrap():
                return [], _body(line)
            case Move():
                return [], []
        is_empty = isinstance(line, cst.SimpleStatementLine) and not line.body
        return [], [] if is_empty else [line]

    def _come(self, beside: dict[cst.CSTNode, list[_Statement]], key: cst.CSTNode) -> list[Any]:
        """Statements that come beside one, with what becomes of their own parts."""
        return [each.visit(self) for each in beside.get(key, ())]

    def _small(self, original: Sequence[_Small], updated: Sequence[_Small]) -> list[_Small]:
        """The statements of one line, separated by semicolons."""
        body: list[_Small] = []
        for old, new in zip(original, updated, strict=True):
            verb = self.gone.get(old)
            if old in self.within or (isinstance(verb, Remove) and has_comment(old)):
                raise CannotFix
            body += map(_alone, self._come(self.before, old))
            body += [] if verb is not None else [new]
            body += map(_alone, self._come(self.after, old))
        if body and body[-1] is not updated[-1]:
            body[-1] = body[-1].with_changes(semicolon=cst.MaybeSentinel.DEFAULT)
        return body


def _by_place(tree: cst.Module) -> dict[object, cst.CSTNode]:
    """Statements by where they start, expressions by where they start and end."""
    found: dict[object, cst.CSTNode] = {}
    wrapper = MetadataWrapper(tree, unsafe_skip_copy=True)
    for node, where in wrapper.resolve(PositionProvider).items():
        start = (where.start.line, where.start.column)
        if isinstance(node, cst.BaseExpression):
            found[start, (where.end.line, where.end.column)] = node
        elif isinstance(node, (_Small, cst.BaseCompoundStatement)):
            found[start] = node
    return found


def changed(verb: Changing, node: Any) -> Any:
    """What a verb makes of a LibCST node."""
    match verb:
        case Write():
            return _written(node, verb.code)
        case Add():
            return arguments.add(node, verb.code, verb.index, verb.keyword)
        case Name():
            return arguments.name(node, verb.keywords)
        case Drop():
            return arguments.drop(node, verb.index)
        case Entry():
            return arguments.entry(node, verb.key, verb.code)
        case Decorate():
            new = cst.Decorator(cst.parse_expression(verb.code))
            return node.with_changes(decorators=(*node.decorators, new))
        case Rename():
            return _renamed(verb, node)
        case Become():
            return verb.change(node)


def _written(node: Any, code: str) -> Any:
    """An expression for another one, which stands for `{}`; its parentheses stay."""
    if "{}" in code:
        if not isinstance(node, _ATOMS) and not node.lpar:
            node = node.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
        return parse_template_expression(code.replace("{}", "{node}"), node=node)
    if has_comment(node):
        raise CannotFix
    return cst.parse_expression(code).with_changes(lpar=node.lpar, rpar=node.rpar)


def _renamed(verb: Rename, node: Any) -> Any:
    """An import statement with other modules, or with fewer names."""
    modules = [verb.modules.get(alias, "") for alias in verb.node.names]
    if None in modules:
        gone = [index for index, module in enumerate(modules) if module is None]
        return node.with_changes(names=arguments.without(node.names, gone))
    if isinstance(verb.node, ast.ImportFrom):
        return node.with_changes(module=cst.parse_expression(str(modules[0])))
    pairs = zip(node.names, modules, strict=True)
    renamed = [
        alias.with_changes(name=cst.parse_expression(module)) if module else alias
        for alias, module in pairs
    ]
    return node.with_changes(names=renamed)


def _parsed(code: str, indent: str) -> list[Any]:
    """New statements; a snippet says nothing about the indentation of the file, so they do."""
    tree = m.replace(
        cst.parse_module(code),
        m.IndentedBlock(),
        lambda block, _: cst.ensure_type(block, cst.IndentedBlock).with_changes(indent=indent),
    )
    return list(cst.ensure_type(tree, cst.Module).body)


def _key(line: cst.CSTNode) -> cst.CSTNode:
    """The statement that a line consists of; the line itself where there are several."""
    if isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1:
        return line.body[0]
    return line


def _line_of(statement: Any) -> _Statement:
    """A statement that stood between semicolons, or is compound, for a place of its own."""
    if not isinstance(statement, _Small):
        return cast("_Statement", statement)
    return cst.SimpleStatementLine([statement.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)])


def _alone(line: Any) -> _Small:
    """The one statement of a line without comments.

    Raises:
        CannotFix: it cannot stand between semicolons.
    """
    if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
        raise CannotFix
    if line.trailing_whitespace.comment or any(each.comment for each in line.leading_lines):
        raise CannotFix
    return line.body[0]


def _comments_above(line: Any) -> list[cst.EmptyLine]:
    """The comments that stay when a statement goes.

    Raises:
        CannotFix: there is one beside or inside the statement.
    """
    above = [each for each in line.leading_lines if each.comment]
    if len(m.findall(line, m.Comment())) > len(above):
        raise CannotFix
    return above


def _body(block: Any) -> list[_Statement]:
    """The statements of a compound one, below what stands above it.

    Raises:
        CannotFix: a comment belongs to the block itself.
    """
    body = block.body
    is_short = isinstance(body, cst.SimpleStatementSuite)
    own = [*block.items] if is_short else [body.header, *body.footer, *block.items]
    if any(map(has_comment, own)):
        raise CannotFix
    if is_short:
        line = cst.SimpleStatementLine(body.body, trailing_whitespace=body.trailing_whitespace)
        return [line.with_changes(leading_lines=block.leading_lines)]
    first, *rest = body.body
    return [first.with_changes(leading_lines=(*block.leading_lines, *first.leading_lines)), *rest]


def _around(outer: Any, body: list[_Statement]) -> Any:
    """A compound statement with another body; what stands above the body stands above it."""
    first = cast("Any", body[0])
    outer = outer.with_changes(leading_lines=first.leading_lines)
    inner = [first.with_changes(leading_lines=()), *body[1:]]
    return outer.with_changes(body=outer.body.with_changes(body=inner))


def _in_front(new: list[_Statement], old: list[_Statement]) -> list[_Statement]:
    """Statements in front of one, between it and what stands above it."""
    if not new or not old:
        return [*new, *old]
    first, target = cast("Any", new[0]), cast("Any", old[0])
    if any(each.comment for each in first.leading_lines):
        return [*new, *old]
    first = first.with_changes(leading_lines=target.leading_lines)
    return [first, *new[1:], target.with_changes(leading_lines=())]
