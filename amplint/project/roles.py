"""What an expression is: a scaler, an optimizer, an autocast object, or something else.

Roles come before names: an expression is a scaler because of where it comes from (a
constructor, an annotation, an attribute assigned in any method), and only when nothing is
known about it because of its name. The index is flow-insensitive; the flow analysis
refines it with the values that really reach a place.
"""

from __future__ import annotations

import ast
import enum
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from amplint.project import names
from amplint.project.module import Class, Function, Module


class Role(enum.Enum):
    """What a value is for the protocol."""

    SCALER = "scaler"
    OPTIMIZER = "optimizer"
    SCHEDULER = "scheduler"
    AUTOCAST = "autocast"
    OTHER = "other"  # known to be none of the above


_SCALER_NAME = re.compile(
    r"(?:^|_)(?:grad_?|amp_?|loss_?|fp16_?)?scalers?(?:_|\d|$)|^gradscaler", re.IGNORECASE
)
_NOT_A_SCALER_NAME = re.compile(
    r"standard|min_?max|robust|inv|feature|data|target|_fn$|image|norm|time|temp|lr_|x_|y_",
    re.IGNORECASE,
)
_OPTIMIZER_NAME = re.compile(
    r"optim|^opts?(?:_|\d|$)|_opts?(?:_|\d|$)|^solver|opt[A-Z]", re.IGNORECASE
)
_NOT_AN_OPTIMIZER_NAME = re.compile(
    r"option|sched|optimi[sz]e$|args|config|cfg|optimal|optional", re.IGNORECASE
)


def scaler_name(name: str) -> bool:
    """Whether a name alone suggests a gradient scaler ("scaler", "grad_scaler", "scaler_G")."""
    return bool(_SCALER_NAME.search(name)) and not _NOT_A_SCALER_NAME.search(name)


def optimizer_name(name: str) -> bool:
    """Whether a name alone suggests an optimizer ("optimizer", "opt_G", "optim")."""
    return bool(_OPTIMIZER_NAME.search(name)) and not _NOT_AN_OPTIMIZER_NAME.search(name)


def last_name(expression: ast.expr) -> str:
    """The name that a reader sees last: "scaler" for `self.amp.scaler["G"]`."""
    while isinstance(expression, (ast.Subscript, ast.Starred, ast.Await)):
        expression = expression.value
    if isinstance(expression, ast.Attribute):
        return expression.attr
    return expression.id if isinstance(expression, ast.Name) else ""


@dataclass(frozen=True, slots=True, eq=False)
class ScalerConstruction:
    """A call that builds a GradScaler.

    Args:
        call: the constructor call.
        function: the function that holds it.
        dotted: which constructor ("torch.cuda.amp.GradScaler"); for a subclass of the file
            its name.
        target: what it is assigned to, as source text; "" when it is not assigned directly.
    """

    call: ast.Call
    function: Function
    dotted: str
    target: str


@dataclass(slots=True, eq=False)
class Roles:
    """Roles of the names and attributes of one module.

    Keys are (scope, path): for `self.x` the scope is the outermost base class of the file,
    for names the function that binds them, else the module.
    """

    module: Module
    by_path: dict[tuple[str, str], set[Role]] = field(default_factory=dict)
    constructions: list[ScalerConstruction] = field(default_factory=list)

    def role_of(self, expression: ast.expr, function: Function) -> Role | None:
        """The role of an expression where `function` reads it, or None if unknown.

        A name alone is no role here: see `is_scaler` and `is_optimizer`.
        """
        if isinstance(expression, ast.Call):
            return self._call_role(expression, function)
        if isinstance(expression, ast.IfExp):
            return self.role_of(expression.body, function) or self.role_of(
                expression.orelse, function
            )
        if isinstance(expression, ast.BoolOp):
            operands = (self.role_of(value, function) for value in expression.values)
            return next((role for role in operands if role), None)
        if isinstance(expression, ast.NamedExpr):
            return self.role_of(expression.value, function)
        for key in self._keys(expression, function):
            roles = self.by_path.get(key)
            if roles:
                known = roles - {Role.OTHER}
                return min(known, key=lambda role: role.value) if known else Role.OTHER
        return None

    def is_scaler(self, expression: ast.expr, function: Function) -> bool:
        """Whether the expression is a gradient scaler, by origin or else by name."""
        role = self.role_of(expression, function)
        return role is Role.SCALER if role else scaler_name(last_name(expression))

    def is_optimizer(self, expression: ast.expr, function: Function) -> bool:
        """Whether the expression is an optimizer, by origin or else by name."""
        role = self.role_of(expression, function)
        return role is Role.OPTIMIZER if role else optimizer_name(last_name(expression))

    def constructor_role(self, dotted: str | None, callee: ast.expr) -> Role | None:
        """The role of what a constructor call returns; None for unknown callees."""
        if isinstance(callee, ast.Name) and callee.id in self.module.classes and dotted is None:
            return self._class_role(self.module.classes[callee.id])
        if dotted is None:
            return None
        if dotted in names.GRAD_SCALERS or dotted in names.SHARDED_GRAD_SCALERS:
            return Role.SCALER
        if dotted in names.AUTOCASTS:
            return Role.AUTOCAST
        last = dotted.rpartition(".")[2]
        if last in ("GradScaler", "ShardedGradScaler"):
            return Role.SCALER
        if ".lr_scheduler." in dotted:
            return Role.SCHEDULER
        if dotted.startswith("torch.optim.") and last[:1].isupper():
            return Role.OPTIMIZER
        if last[:1].isupper() and last.endswith("Scaler"):
            return Role.OTHER
        return None

    def _class_role(self, owner: Class) -> Role:
        for candidate in self.module.ancestry(owner):
            for base in candidate.bases:
                dotted = self.module.resolve(base)
                if dotted and (
                    dotted in names.GRAD_SCALERS or dotted in names.SHARDED_GRAD_SCALERS
                ):
                    return Role.SCALER
                if dotted and dotted.startswith("torch.optim.") and ".lr_scheduler." not in dotted:
                    return Role.OPTIMIZER
        return Role.OTHER

    def _call_role(self, call: ast.Call, function: Function) -> Role | None:
        return self.constructor_role(self.module.resolve(call.func), call.func)

    def _keys(self, expression: ast.expr, function: Function) -> Iterator[tuple[str, str]]:
        path = path_text(expression)
        if path is None:
            return
        if path.startswith(("self.", "cls.")):
            owner = enclosing_class(function)
            for candidate in self._family(owner) if owner else ():
                yield (f"class {candidate.name}", path.partition(".")[2])
            return
        scope: Function | None = function
        while scope is not None:
            yield (scope.qualname, path)
            scope = scope.parent
        yield (self.module.body.qualname, path)

    def _family(self, owner: Class) -> list[Class]:
        return [*self.module.ancestry(owner), *self.module.subclasses(owner)]


def enclosing_class(function: Function) -> Class | None:
    """The class whose `self` a function sees, through nested functions."""
    scope: Function | None = function
    while scope is not None:
        if scope.owner is not None:
            return scope.owner
        scope = scope.parent
    return None


def path_text(expression: ast.expr) -> str | None:
    """Canonical text of a name, attribute or subscript chain; None for anything else.

    Constant subscripts are kept (`scalers['G']`), all others become `[*]`.
    """
    if isinstance(expression, ast.Name):
        return expression.id
    if isinstance(expression, ast.Attribute):
        base = path_text(expression.value)
        return None if base is None else f"{base}.{expression.attr}"
    if isinstance(expression, ast.Subscript):
        base = path_text(expression.value)
        if base is None:
            return None
        index = expression.slice
        return f"{base}[{index.value!r}]" if isinstance(index, ast.Constant) else f"{base}[*]"
    return None


def build_roles(module: Module) -> Roles:
    """Collect the roles of every assignment, annotation and constructor of the module."""
    roles = Roles(module)
    assigned: dict[int, str] = {}
    for function in module.functions:
        for target, value in _bindings(function):
            _bind(roles, function, target, value)
            if isinstance(value, ast.Call):
                assigned[id(value)] = path_text(target) or ""
    for site in module.calls:
        role = roles.constructor_role(site.dotted, site.node.func)
        if role is Role.SCALER:
            dotted = site.dotted or site.method
            roles.constructions.append(
                ScalerConstruction(
                    site.node, site.function, dotted, assigned.get(id(site.node), "")
                )
            )
    return roles


_BINDING = frozenset({ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.With, ast.AsyncWith})


def _bindings(function: Function) -> Iterator[tuple[ast.expr, ast.expr]]:
    from amplint.project.module import walk_function

    for node in walk_function(function):
        if type(node) not in _BINDING:  # of most nodes this is the only question
            continue
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from _pairs(target, node.value)
        elif isinstance(node, ast.AnnAssign):
            yield node.target, node.value or node.annotation
            yield node.target, node.annotation
        elif isinstance(node, ast.NamedExpr):
            yield node.target, node.value
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                if item.optional_vars is not None:
                    yield item.optional_vars, item.context_expr
    arguments = getattr(function.node, "args", None)
    if isinstance(arguments, ast.arguments):
        for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            if argument.annotation is not None:
                yield ast.Name(argument.arg, ast.Store()), argument.annotation


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    if isinstance(target, (ast.Tuple, ast.List)):
        if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts):
            for inner, part in zip(target.elts, value.elts):
                yield from _pairs(inner, part)
        return
    yield target, value


def _bind(roles: Roles, function: Function, target: ast.expr, value: ast.expr) -> None:
    path = path_text(target)
    if path is None:
        return
    found = set(_value_roles(roles, function, value))
    if not found:
        return
    owner = enclosing_class(function)
    if path.startswith("self.") and owner is not None:
        key = (f"class {owner.name}", path.partition(".")[2])
    else:
        key = (function.qualname, path)
    roles.by_path.setdefault(key, set()).update(found)


def _value_roles(roles: Roles, function: Function, value: ast.expr) -> Iterator[Role]:
    if isinstance(value, ast.Call):
        role = roles.role_of(value, function)
        if role is not None:
            yield role
    elif isinstance(value, ast.IfExp):
        yield from _value_roles(roles, function, value.body)
        yield from _value_roles(roles, function, value.orelse)
    elif isinstance(value, ast.BoolOp):
        for part in value.values:
            yield from _value_roles(roles, function, part)
    elif isinstance(value, (ast.List, ast.Tuple)):
        for part in value.elts:
            yield from _value_roles(roles, function, part)
    elif isinstance(value, ast.Constant) and isinstance(value.value, str):
        yield from _annotation_roles(value.value)
    else:
        yield from _annotation_roles(ast.unparse(value) if _is_annotation(value) else "")


def _is_annotation(value: ast.expr) -> bool:
    text = last_name(value)
    return bool(text) or isinstance(value, (ast.Subscript, ast.BinOp))


_ANNOTATIONS = (
    (re.compile(r"\bGradScaler\b"), Role.SCALER),
    (re.compile(r"\b(?:optim\.)?(?:Optimizer|SGD|AdamW?)\b"), Role.OPTIMIZER),
)


def _annotation_roles(text: str) -> Iterator[Role]:
    for pattern, role in _ANNOTATIONS:
        if pattern.search(text):
            yield role
