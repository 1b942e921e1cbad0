"""Which modules the optimizer of a training function owns.

Only an explicit owner counts: `Adam(model.parameters())`, also in a list of groups, also where
the optimizer is built by a caller or a factory. A filter on `requires_grad` says that some
parameters are frozen on purpose, so nothing is concluded from it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from amplint.project.dataflow import arguments, bindings_of, parameters
from amplint.project.module import Function
from amplint.project.objects import Objects, returned
from amplint.project.roles import last_name, optimizer_name, path_text

_DEPTH = 4
_OPTIMIZER_CLASS = re.compile(
    r"^torch\.optim\.(?!lr_scheduler|swa)|\.(?:Fused)?(?:Adam|SGD|Lamb|LAMB)"
)
#: Modules that are meant to stay as they are.
_FIXED = re.compile(
    r"teacher|ema|target|momentum|frozen|_ref\b|^ref|reference|_old\b", re.IGNORECASE
)


def owned_modules(function: Function, objects: Objects) -> list[str]:
    """Paths, as `function` writes them, of the modules whose parameters it steps."""
    found: list[str] = []
    for optimizer in _stepped(function):
        for path in _owned_by(optimizer, function, objects):
            if not _FIXED.search(path) and not _is_frozen(path, function):
                found.append(path)
    return list(dict.fromkeys(found))


def _stepped(function: Function) -> Iterator[ast.expr]:
    """The optimizers of `scaler.step(optimizer)` and `optimizer.step()`."""
    for node in function.nodes:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr == "step":
            yield node.args[0] if node.args else node.func.value


def _owned_by(optimizer: ast.expr, function: Function, objects: Objects) -> list[str]:
    if not isinstance(optimizer, ast.Name) or optimizer.id not in parameters(function):
        return _sources(optimizer, function, objects, _DEPTH)
    if optimizer.id in bindings_of(function) or not optimizer_name(optimizer.id):
        return []
    passed = objects.arguments(function, optimizer.id).given
    of_callers = [
        _as_parameters(_sources(value, site.function, objects, _DEPTH), function, site.node)
        for value, site in passed
    ]
    if not of_callers:
        return []
    return [path for path in of_callers[0] if all(path in paths for paths in of_callers)]


def _sources(expression: ast.expr, function: Function, objects: Objects, depth: int) -> list[str]:
    """Paths whose `parameters()` reach the constructor of an optimizer, as `function` has them."""
    if depth == 0:
        return []
    if not isinstance(expression, ast.Call):
        found = objects.bindings(expression, function) or []
        if len(found) != 1 or found[0].value is None:
            return []
        inner = _sources(found[0].value, found[0].function, objects, depth - 1)
        if found[0].function is function:
            return inner
        return [path for path in inner if path.startswith("self.")]
    if _OPTIMIZER_CLASS.search(function.module.resolve(expression.func) or ""):
        return _parameters_of(expression, function, objects)
    callee = objects.callee(expression, function)
    if callee is None or callee.name == "__init__":
        return []
    results = returned(callee)
    if len(results) != 1:
        return []
    inner = _sources(results[0], callee, objects, depth - 1)
    return list(_as_arguments(inner, callee, expression))


def _parameters_of(call: ast.Call, function: Function, objects: Objects) -> list[str]:
    given = [item.value for item in call.keywords if item.arg == "params"]
    first = call.args[0] if call.args else next(iter(given), None)
    if isinstance(first, ast.Name):
        found = objects.bindings(first, function) or []
        first = found[0].value if len(found) == 1 and found[0].function is function else None
    if first is None or "requires_grad" in ast.unparse(first):
        return []
    paths = [
        path_text(node.func.value)
        for node in ast.walk(first)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "parameters"
    ]
    return [path for path in paths if path is not None and "[*]" not in path]


def _as_parameters(paths: list[str], function: Function, call: ast.Call) -> list[str]:
    """Paths of a caller, as the called function writes them."""
    words = [word for word in parameters(function) if word not in ("self", "cls")]
    pairs = [*zip(words, call.args), *((item.arg, item.value) for item in call.keywords)]
    found = [path for path in paths if path.startswith("self.") and _is_own(call)]
    for word, argument in pairs:
        given = path_text(argument)
        if word is None or given is None:
            continue
        found += [word + rest for path in paths if (rest := _below(path, given)) is not None]
    return found


def _as_arguments(paths: list[str], callee: Function, call: ast.Call) -> Iterator[str]:
    """Paths of a called function, as its caller writes them."""
    words = [word for word in parameters(callee) if word not in ("self", "cls")]
    pairs = [*zip(words, call.args), *((item.arg, item.value) for item in call.keywords)]
    for path in paths:
        if path.startswith("self.") and _is_own(call):
            yield path
        for word, argument in pairs:
            rest = _below(path, word) if word else None
            given = path_text(argument)
            if rest is not None and given is not None:
                yield given + rest


def _below(path: str, head: str) -> str | None:
    rest = path[len(head) :]
    return rest if path.startswith(head) and (not rest or rest[0] in ".[") else None


def _is_own(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and path_text(call.func.value) == "self"


def _is_frozen(path: str, function: Function) -> bool:
    """Whether the file freezes a module of this name, by whatever means."""
    name = re.split(r"[.\[]", path)[-1].strip("]'\"")
    for other in function.module.functions:
        for node in other.nodes:
            if isinstance(node, ast.Call) and _freezes(node) and _mentions(node, name):
                return True
            if isinstance(node, ast.For) and _mentions(node.iter, name) and _clears(node):
                return True
    return False


def _freezes(call: ast.Call) -> bool:
    name = last_name(call.func)
    sets_false = any(
        isinstance(item, ast.Constant) and item.value is False for item in arguments(call)
    )
    return "freeze" in name or ("requires_grad" in name and sets_false)


def _clears(loop: ast.For) -> bool:
    return any(
        isinstance(target, ast.Attribute) and target.attr == "requires_grad"
        for node in ast.walk(loop)
        if isinstance(node, ast.Assign)
        for target in node.targets
    ) or any(isinstance(node, ast.Call) and _freezes(node) for node in ast.walk(loop))


def _mentions(node: ast.AST, name: str) -> bool:
    return any(
        getattr(part, "attr", None) == name
        or getattr(part, "id", None) == name
        or getattr(part, "value", None) == name
        for part in ast.walk(node)
    )
