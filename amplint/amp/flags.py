"""Which expressions are switches: bools such as `use_amp` or `cfg.TRAIN.MIXED_PRECISION`."""

from __future__ import annotations

import ast
import re

from amplint.code.dataflow import constant_of, definitions, parameters, scopes
from amplint.code.expressions import last_name
from amplint.code.module import Function, Module

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


def is_flag(module: Module, expression: ast.expr, function: Function, depth: int = 3) -> bool:
    """Whether an expression is a bool: by its form, its definitions, or else by its name."""
    if isinstance(expression, ast.Constant):
        return isinstance(expression.value, bool)
    if isinstance(expression, ast.Compare):
        return True
    if isinstance(expression, ast.UnaryOp):
        return isinstance(expression.op, ast.Not)
    if isinstance(expression, ast.BoolOp):
        return all(is_flag(module, value, function, depth) for value in expression.values)
    if isinstance(expression, ast.IfExp):
        return all(
            is_flag(module, part, function, depth) for part in (expression.body, expression.orelse)
        )
    if isinstance(expression, ast.Call):
        return _flag_call(expression)
    if not isinstance(expression, (ast.Name, ast.Attribute, ast.Subscript)):
        return False
    known = definitions(module, expression, function)
    if known is not None and depth:
        return all(
            is_flag(module, binding.value, binding.function, depth - 1)
            for binding in known
            if binding.value is not None
        )
    annotation, default = _declaration(expression, function, module)
    if annotation is not None or default is not None:
        return last_name(annotation or ast.Name("")) == "bool" or isinstance(
            constant_of(default), bool
        )
    return flag_name(_key(expression) or last_name(expression))


def _flag_call(call: ast.Call) -> bool:
    name = last_name(call.func)
    if name in ("getattr", "get") and call.args:
        return isinstance(constant_of(call.args[-1]), bool)
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
                return parameters(scope)[expression.id]
    return None, None


def _key(expression: ast.expr) -> str:
    if isinstance(expression, ast.Subscript) and isinstance(expression.slice, ast.Constant):
        return str(expression.slice.value)
    return ""
