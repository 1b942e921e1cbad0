"""Arguments of a LibCST call: one more, one less, one with a name; the layout of the others stays."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import libcst as cst
from libcst import matchers as m

_SPACE = cst.SimpleWhitespace("")


def add(call: cst.Call, code: str, index: int | None, keyword: str) -> cst.Call:
    """The call with one more argument.

    Args:
        index: of the argument that it goes in front of; None for the last place.
        keyword: its name, "" for none.
    """
    new = _argument(code, keyword)
    if not call.args:
        inside = call.whitespace_before_args
        new = new.with_changes(whitespace_after_arg=inside)
        return call.with_changes(args=[new], whitespace_before_args=_SPACE)
    if index is None or index >= len(call.args):
        return _append(call, new)
    args = list(call.args)
    before = call.whitespace_before_args if index == 0 else _behind(args[index - 1])
    args.insert(index, new.with_changes(comma=cst.Comma(whitespace_after=_between(before))))
    return call.with_changes(args=args)


def name(call: cst.Call, keywords: Mapping[int, str]) -> cst.Call:
    """The call with keywords for positional arguments, by index."""
    args = list(call.args)
    for index, keyword in keywords.items():
        args[index] = _named(args[index], keyword)
    return call.with_changes(args=args)


def _named(argument: cst.Arg, keyword: str) -> cst.Arg:
    value = argument.value
    if isinstance(value, cst.NamedExpr) and not value.lpar:
        value = value.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    return argument.with_changes(value=value, keyword=cst.Name(keyword), equal=_equal())


def drop(call: cst.Call, index: int) -> cst.Call:
    """The call without one of its arguments.

    Raises:
        ValueError: a comment would go with it.
    """
    return call.with_changes(args=without(call.args, [index]))


def entry(literal: cst.Dict, key: str, code: str) -> cst.Dict:
    """The literal of a dict with one more entry, laid out like the others."""
    new = cst.DictElement(cst.parse_expression(key), cst.parse_expression(code))
    if not literal.elements:
        return literal.with_changes(elements=[new])
    *first, last = literal.elements
    closing = last.comma if isinstance(last.comma, cst.Comma) else None
    end: Any = closing.whitespace_after if closing else None
    if not isinstance(end, cst.ParenthesizedWhitespace):
        end = literal.rbrace.whitespace_before
    between, edge = _split(literal.lbrace.whitespace_after, end)
    if closing:
        new = new.with_changes(comma=closing.with_changes(whitespace_after=edge))
        edge = _SPACE
    last = last.with_changes(comma=cst.Comma(whitespace_after=between))
    rbrace = literal.rbrace.with_changes(whitespace_before=edge)
    return literal.with_changes(elements=[*first, last, new], rbrace=rbrace)


def without(items: Sequence[Any], indices: Collection[int]) -> list[Any]:
    """Arguments or names of an import without some of them; what ends the list stays.

    Raises:
        ValueError: a comment would go with them.
    """
    kept = [item for index, item in enumerate(items) if index not in indices]
    lost = [item for index, item in enumerate(items) if index in indices]
    last = items[-1]
    if kept and last in lost:
        lost[-1] = last.with_changes(comma=cst.MaybeSentinel.DEFAULT)
        lost.append(kept[-1].comma)
        kept[-1] = kept[-1].with_changes(comma=last.comma)
        if isinstance(last, cst.Arg):
            kept[-1] = kept[-1].with_changes(whitespace_after_arg=last.whitespace_after_arg)
    if any(map(has_comment, lost)):
        raise ValueError("a comment")
    return kept


def _argument(code: str, keyword: str) -> cst.Arg:
    value = cst.parse_expression(code)
    if not keyword:
        return cst.Arg(value)
    return cst.Arg(value, keyword=cst.Name(keyword), equal=_equal())


def _equal() -> cst.AssignEqual:
    return cst.AssignEqual(whitespace_before=_SPACE, whitespace_after=_SPACE)


def _append(call: cst.Call, new: cst.Arg) -> cst.Call:
    """Behind the last argument; a comma that ends the list stays there."""
    *first, last = call.args
    closing = last.comma if isinstance(last.comma, cst.Comma) else None
    end = closing.whitespace_after if closing else last.whitespace_after_arg
    between, edge = _split(call.whitespace_before_args, end)
    if closing:
        last = last.with_changes(comma=closing.with_changes(whitespace_after=between))
        new = new.with_changes(comma=closing.with_changes(whitespace_after=edge))
    else:
        comma = cst.Comma(whitespace_after=between)
        last = last.with_changes(comma=comma, whitespace_after_arg=_SPACE)
        new = new.with_changes(whitespace_after_arg=edge)
    return call.with_changes(args=[*first, last, new])


def _split(start: Any, end: Any) -> tuple[Any, Any]:
    """What comes in front of a new last item, and behind it.

    Args:
        start: what stands in front of the first item.
        end: what stands behind the last one; its comment stays with that.
    """
    if not isinstance(end, cst.ParenthesizedWhitespace):
        return cst.SimpleWhitespace(" "), end
    indent = start if isinstance(start, cst.ParenthesizedWhitespace) else end
    return end.with_changes(last_line=indent.last_line, indent=indent.indent), _bare(end)


def _bare(space: cst.ParenthesizedWhitespace) -> cst.ParenthesizedWhitespace:
    """A line break with the same indentation, and without comments."""
    return space.with_changes(first_line=cst.TrailingWhitespace(), empty_lines=())


def _behind(argument: cst.Arg) -> Any:
    return argument.comma.whitespace_after if isinstance(argument.comma, cst.Comma) else _SPACE


def _between(before: Any) -> Any:
    """What separates a new argument from the next, where `before` stands in front of it."""
    if not isinstance(before, cst.ParenthesizedWhitespace):
        return cst.SimpleWhitespace(" ")
    return _bare(before)


def has_comment(node: Any) -> bool:
    """Whether there is a comment in a node; a comma that is left to LibCST has none."""
    return isinstance(node, cst.CSTNode) and bool(m.findall(node, m.Comment()))
