"""Which expressions are switches: bools such as `use_amp` or `cfg.TRAIN.MIXED_PRECISION`."""

from __future__ import annotations

import ast
import re

from amplint.code.dataflow import constant_of, parameters, scopes
from amplint.code.expressions import last_name
from amplint.code.module import Function, Module
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
    """Whether an expression is a bool: by the values that reach it, or else by its name.

    A name speaks only where nothing in sight sets it.
    """
    contents = [item.content for item in values.of(expression, function).values]
    known = [content for content in contents if content is not None]
    if known and not all(isinstance(content, bool) for content in known):
        return False
    found = values.origins.of(expression, function).origins
    judged = [_is_bool(values, item.expression, item.function) for item in found]
    if judged and None not in judged:
        return all(judged)
    return False not in judged and (bool(known) or _is_called_a_flag(expression, function))


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
