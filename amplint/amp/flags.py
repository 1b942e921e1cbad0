"""Which expressions are switches: bools such as `use_amp` or `cfg.TRAIN.MIXED_PRECISION`."""

from __future__ import annotations

import ast
import re

from amplint.code.dataflow import constant_of, parameters, scopes
from amplint.code.expressions import last_name, path_text
from amplint.code.module import Function, Module
from amplint.findings import Link, Standing
from amplint.values.values import Values

_FLAG_TOKENS = frozenset(
    (
        "amp",
        "fp16",
        "bf16",
        "half",
        "mixed",
        "enabled",
        "enable",
        "autocast",
        "is",
        "use",
        "has",
        "with",
        "without",
        "no",
        "not",
        "do",
        "should",
        "disable",
        "disabled",
    )
)
_NO_FLAG_TOKENS = frozenset(
    (
        "device",
        "scale",
        "init",
        "dtype",
        "type",
        "interval",
        "factor",
        "backend",
        "str",
        "string",
        "name",
        "growth",
        "value",
        "level",
        "power",
        "number",
        "num",
        "count",
        "dev",
        "kwargs",
        "args",
        "config",
        "cfg",
        "options",
        "params",
        "step",
        "steps",
        "mode",
        "kind",
        "ctx",
        "context",
        "impl",
        "module",
        "scaler",
        "handler",
        "policy",
        "ratio",
        "size",
        "index",
        "path",
        "file",
    )
)
_TOKENS = re.compile(r"[A-Z]+(?![a-z])\d*|[A-Z]?[a-z]+\d*|\d+")


def flag_name(name: str) -> bool:
    """Whether a name alone says that it holds a bool ("use_amp", "fp16", "amp_enabled")."""
    tokens = {token.lower() for token in _TOKENS.findall(name)}
    return bool(tokens & _FLAG_TOKENS) and not tokens & _NO_FLAG_TOKENS


def is_flag(values: Values, expression: ast.expr, function: Function) -> bool:
    """Whether an expression is a bool, or called like one where nothing in sight sets it."""
    return flag_standing(values, expression, function) is not None


def flag_link(values: Values, expression: ast.expr, function: Function) -> Link:
    """That an expression, for which `is_flag` holds, is a bool: what a finding rests on."""
    standing = flag_standing(values, expression, function) or Standing.GUESS
    return Link("value", standing, ast.unparse(expression), "is a bool")


def flag_standing(values: Values, expression: ast.expr, function: Function) -> Standing | None:
    """How it is known that an expression is a bool: by the values that reach it, by use, by name.

    A name speaks only where nothing in sight sets it.
    """
    contents = [item.content for item in values.of(expression, function).values]
    known = [content for content in contents if content is not None]
    if known and not all(isinstance(content, bool) for content in known):
        return None
    found = values.origins.of(expression, function).origins
    judged = [_is_bool(values, item.expression, item.function) for item in found]
    if False in judged:
        return None
    if known or (judged and None not in judged):
        return Standing.CODE
    if not _is_called_a_flag(expression, function):
        return None
    return Standing.USE if _switches_elsewhere(expression, function) else Standing.GUESS


def _switches_elsewhere(expression: ast.expr, function: Function) -> bool:
    """Whether the file passes the same name or attribute as `enabled=`."""
    path = path_text(expression)
    scopes_read = [function] if path is not None and "." not in path else function.module.functions
    return path is not None and any(
        isinstance(node, ast.keyword) and node.arg == "enabled" and path_text(node.value) == path
        for scope in scopes_read
        for node in scope.nodes
    )


def _is_bool(values: Values, node: ast.expr, function: Function) -> bool | None:
    """Whether what creates a value gives a bool; None where that is not in sight."""
    if isinstance(node, ast.Constant):
        return None if node.value is None else isinstance(node.value, bool)
    if isinstance(node, ast.Compare):
        return True
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.Not)
    if isinstance(node, ast.BoolOp):
        return all(is_flag(values, value, function) for value in node.values)
    if isinstance(node, ast.Call):
        return _flag_call(node)
    if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
        return None
    return False


def _is_called_a_flag(expression: ast.expr, function: Function) -> bool:
    """Whether the annotation, the default or else the name of a place says that it is a bool."""
    if not isinstance(expression, (ast.Name, ast.Attribute, ast.Subscript)):
        return False
    annotation, default = _declaration(expression, function, function.module)
    if annotation is not None or isinstance(default, ast.Constant):
        return last_name(annotation or ast.Name("")) == "bool" or isinstance(
            constant_of(default), bool
        )
    return flag_name(_key(expression) or last_name(expression))


def _flag_call(call: ast.Call) -> bool | None:
    name = last_name(call.func)
    if name in ("getattr", "get") and call.args:
        default = constant_of(call.args[-1]) if len(call.args) > 1 else None
        return None if default is None else isinstance(default, bool)
    return name in (
        "bool",
        "is_available",
        "any",
        "all",
        "isinstance",
        "hasattr",
        "is_bf16_supported",
    )


def _declaration(
    expression: ast.expr, function: Function, module: Module
) -> tuple[ast.expr | None, ast.expr | None]:
    if isinstance(expression, ast.Name):
        for scope in scopes(function, module):
            if expression.id in parameters(scope):
                known = parameters(scope)[expression.id]
                return known.annotation, known.default
    return None, None


def _key(expression: ast.expr) -> str:
    if isinstance(expression, ast.Subscript) and isinstance(expression.slice, ast.Constant):
        return str(expression.slice.value)
    return ""
