"""What an expression is: a scaler, an optimizer, an autocast object, or something else.

Roles come before names: an expression is a scaler because of where it comes from (a
constructor, an annotation, an attribute assigned in any method) or how it is used, and only when
that says nothing because of its name. The index is flow-insensitive; the flow analysis
refines it with the values that really reach a place.
"""

from __future__ import annotations

import ast
import enum
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from amplint.amp import names
from amplint.amp.libraries import class_row
from amplint.amp.uses import key_of, uses_of
from amplint.code.arguments import Kind, parameters
from amplint.code.by_name import read_by_name, written_by_name
from amplint.code.classes import ancestry_in_file, subclasses_in
from amplint.code.expressions import is_none, last_name, path_text
from amplint.code.module import Class, Function, Module, enclosing_class
from amplint.findings import Standing


class Role(enum.Enum):
    """What a value is for the protocol."""

    SCALER = "scaler"
    OPTIMIZER = "optimizer"
    SCHEDULER = "scheduler"
    AUTOCAST = "autocast"
    OTHER = "other"  # known to be none of the above


#: What binds arguments of a callable.
PARTIALS = frozenset({"functools.partial", "toolz.partial"})

_SCALER_NAME = re.compile(
    r"(?:^|_)(?:grad_?|amp_?|loss_?|fp16_?)?scalers?(?:_|\d|$)|^gradscaler", re.IGNORECASE
)
_NOT_A_SCALER_NAME = re.compile(
    r"standard|min_?max|robust|inv|feature|data|target|_fn$|image|norm|time|temp|lr_|x_|y_",
    re.IGNORECASE,
)
#: What says something about a scaler or an optimizer, and is none: "use_scaler", "scaler_type".
_ABOUT_ONE = re.compile(
    r"^_?(?:use|with|has|have|is|needs?|want|wants|enable|should|skip|no)_"
    r"|_(?:enabled|flag|name|type|cls|class|kwargs|state|path)$",
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
    return bool(_SCALER_NAME.search(name)) and not (
        _NOT_A_SCALER_NAME.search(name) or _ABOUT_ONE.search(name)
    )


def optimizer_name(name: str) -> bool:
    """Whether a name alone suggests an optimizer ("optimizer", "opt_G", "optim")."""
    return bool(_OPTIMIZER_NAME.search(name)) and not (
        _NOT_AN_OPTIMIZER_NAME.search(name) or _ABOUT_ONE.search(name)
    )


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
    for names the function that binds them, else the module. `path[...]` stands for every
    element of a container that holds one kind of thing.

    Args:
        built: keys whose role is that of something which is built there, not of an annotation.
        makers: the roles of what a call of a name or attribute gives: `Opt = AdamW`,
            `build = partial(SGD, lr=0.1)`, a function that returns one of several optimizers.
        steppers: paths of objects of training libraries whose call is a whole training step.
        by_value: what an expression is by the values that reach it, in whatever file; asked where
            the module itself says nothing.
        by_callers: what callers take an expression for, where its use says nothing either.
        imported: dotted name -> role of what a call of it gives, where other files say so.
    """

    module: Module
    by_path: dict[tuple[str, str], set[Role]] = field(default_factory=dict)
    constructions: list[ScalerConstruction] = field(default_factory=list)
    built: set[tuple[str, str]] = field(default_factory=set)
    makers: dict[tuple[str, str], set[Role | None]] = field(default_factory=dict)
    steppers: set[tuple[str, str]] = field(default_factory=set)
    by_value: Callable[[ast.expr, Function], Role | None] | None = None
    by_callers: Callable[[ast.expr, Function], Role | None] | None = None
    imported: Mapping[str, Role] = field(default_factory=dict)

    def role_of(self, expression: ast.expr, function: Function) -> Role | None:
        """The role of an expression where `function` reads it, or None if unknown.

        A name alone is no role here: see `is_scaler` and `is_optimizer`.
        """
        role = self.declared_role(expression, function)
        if role is not None or path_text(expression) not in self.module.once(uses_of).shaped:
            return role
        role = self._role_by_use(expression, function)
        if role is None and self.by_callers is not None:
            return self.by_callers(expression, function)
        return role

    def declared_role(self, expression: ast.expr, function: Function) -> Role | None:
        """The same by constructors, annotations and values alone: its uses say nothing."""
        if isinstance(expression, ast.Call) and read_by_name(expression) is None:
            return self.call_role(expression, function)
        if isinstance(expression, ast.IfExp):
            return self.role_of(expression.body, function) or self.role_of(
                expression.orelse, function
            )
        if isinstance(expression, ast.BoolOp):
            operands = (self.role_of(value, function) for value in expression.values)
            return next((role for role in operands if role), None)
        if isinstance(expression, ast.NamedExpr):
            return self.role_of(expression.value, function)
        if (function.module.resolve(expression) or "").startswith("torch."):
            return Role.OTHER  # `torch.cuda.amp.grad_scaler` is a module
        for key in self.keys(expression, function):
            roles = self.by_path.get(key)
            if roles:
                known = roles - {Role.OTHER}
                return min(known, key=lambda role: role.value) if known else Role.OTHER
        if self.by_value is None or path_text(expression) not in self.module.once(uses_of).shaped:
            return None
        return self.by_value(expression, function)

    def _role_by_use(self, expression: ast.expr, function: Function) -> Role | None:
        """What an object must be by the methods that are called on it, and where it is given."""
        uses = self.module.once(uses_of)
        keys = set(self.keys(expression, function))
        if not keys.isdisjoint(uses.scalers):
            return Role.SCALER
        return None if keys.isdisjoint(uses.optimizers) else Role.OPTIMIZER

    def is_scaler(self, expression: ast.expr, function: Function) -> bool:
        """Whether the expression is a gradient scaler, by origin or else by name."""
        role = self.role_of(expression, function)
        return role is Role.SCALER if role else scaler_name(last_name(expression))

    def is_optimizer(self, expression: ast.expr, function: Function) -> bool:
        """Whether the expression is an optimizer, by origin or else by name."""
        role = self.role_of(expression, function)
        return role is Role.OPTIMIZER if role else optimizer_name(last_name(expression))

    def standing_of(self, expression: ast.expr, function: Function, role: Role) -> Standing:
        """How it is known that an expression has a role where a function reads it.

        By the code that builds it, as what a scaler steps, by the way it is used, or by its name or
        annotation alone.
        """
        if isinstance(expression, ast.Call):
            return Standing.CODE
        keys = list(self.keys(expression, function))
        if any(key in self.built for key in keys):
            return Standing.CODE
        if self.by_value is not None and self.by_value(expression, function) is role:
            return Standing.CODE
        path = path_text(expression)
        if path is None:
            return Standing.GUESS
        own, uses = key_of(function, path), self.module.once(uses_of)
        if role is Role.SCALER:
            return Standing.USE if uses.speak_for_scaler(own) else Standing.GUESS
        steppers = set(self._steppers_of(own))
        if Standing.CODE in steppers:
            return Standing.LIBRARY  # a scaler steps nothing but optimizers
        used = uses.speak_for_optimizer(own) or Standing.USE in steppers
        return Standing.USE if used else Standing.GUESS

    def _steppers_of(self, key: tuple[str, str]) -> Iterator[Standing]:
        """How firmly what steps something, or unscales it, is known as a scaler."""
        for site in self.module.once(uses_of).given.get(key, ()):
            if isinstance(site.node.func, ast.Attribute):
                yield self.standing_of(site.node.func.value, site.function, Role.SCALER)

    def is_stepper(self, callee: ast.expr, function: Function) -> bool:
        """Whether calling an expression is a whole training step of a library."""
        return bool(self.steppers) and any(
            key in self.steppers for key in self.keys(callee, function)
        )

    def constructor_role(self, dotted: str | None, callee: ast.expr) -> Role | None:
        """The role of what a constructor call returns; None for unknown callees."""
        if isinstance(callee, ast.Name) and callee.id in self.module.classes and dotted is None:
            return self.class_role(self.module.classes[callee.id])
        if dotted is None:
            return None
        if dotted in self.imported:
            return self.imported[dotted]
        if dotted in names.GRAD_SCALERS or dotted in names.SHARDED_GRAD_SCALERS:
            return Role.SCALER
        if dotted in names.AUTOCASTS:
            return Role.AUTOCAST
        last = dotted.rpartition(".")[2]
        if last in ("GradScaler", "ShardedGradScaler"):
            return Role.SCALER
        if ".lr_scheduler." in dotted or dotted == "torch.optim.swa_utils.SWALR":
            return Role.SCHEDULER
        if names.is_optimizer_class(dotted):
            return Role.OPTIMIZER
        if last[:1].isupper() and last.endswith("Scaler"):
            return Role.OTHER
        return None

    def class_role(self, owner: Class) -> Role:
        """The role of the objects of a class of the module."""
        for candidate in ancestry_in_file(owner):
            for base in candidate.bases:
                dotted = self.module.resolve(base)
                if dotted and (
                    dotted in names.GRAD_SCALERS or dotted in names.SHARDED_GRAD_SCALERS
                ):
                    return Role.SCALER
                if dotted and names.is_optimizer_class(dotted):
                    return Role.OPTIMIZER
        return Role.OTHER

    def call_role(self, call: ast.Call, function: Function) -> Role | None:
        """The role of what a call gives: of a constructor, or of whatever stands for one."""
        return self.maker_role(call.func, function)

    def maker_role(self, callee: ast.expr, function: Function) -> Role | None:
        """The role of what calling an expression gives; None for unknown callees."""
        direct = self.constructor_role(self.module.resolve(callee), callee)
        if direct is not None:
            return direct
        if isinstance(callee, ast.Call):
            return self._maker_role_of_call(callee, function)
        if isinstance(callee, ast.IfExp):
            one, two = (self.maker_role(side, function) for side in (callee.body, callee.orelse))
            return one if one is two else None
        if isinstance(callee, ast.Subscript) and self._is_optimizers(callee.value, ".__dict__"):
            return Role.OPTIMIZER
        if not self.makers:
            return None
        known = (self.makers.get(key) for key in self.keys(callee, function))
        found = next((roles for roles in known if roles), set())
        return next(iter(found)) if len(found) == 1 else None

    def _maker_role_of_call(self, callee: ast.Call, function: Function) -> Role | None:
        """`partial(SGD, lr=0.1)` and `getattr(torch.optim, name)`, to be called."""
        if self.module.resolve(callee.func) in PARTIALS and callee.args:
            return self.maker_role(callee.args[0], function)
        named = read_by_name(callee)
        if named is not None and self._is_optimizers(named[0]):
            return Role.OPTIMIZER
        return None

    def _is_optimizers(self, expression: ast.expr, rest: str = "") -> bool:
        return self.module.resolve(expression) == f"torch.optim{rest}"

    def keys(self, expression: ast.expr, function: Function) -> Iterator[tuple[str, str]]:
        """The keys under which something may be known about an expression, the nearest first."""
        path = path_text(expression)
        if path is None:
            return
        if path.startswith(("self.", "cls.")):
            owner = enclosing_class(function)
            for candidate in self._family(owner) if owner else ():
                yield from _with_elements(f"class {candidate.name}", path.partition(".")[2])
            return
        scope: Function | None = function
        while scope is not None:
            yield from _with_elements(scope.qualname, path)
            scope = scope.parent
        yield from _with_elements(self.module.body.qualname, path)

    def _family(self, owner: Class) -> list[Class]:
        return [*ancestry_in_file(owner), *subclasses_in(self.module, owner)]


def _with_elements(scope: str, path: str) -> Iterator[tuple[str, str]]:
    """The keys of a path: its own, and that of every element of its container."""
    yield scope, path
    if path.endswith("]"):
        yield scope, f"{path[: path.rindex('[')]}[...]"


def roles_of(module: Module) -> Roles:
    """The roles of a module, by what it says itself."""
    return module.once(build_roles)


def build_roles(module: Module, imported: Mapping[str, Role] | None = None) -> Roles:
    """Collect the roles of every assignment, annotation and constructor of the module.

    Args:
        imported: dotted name -> role of what a call of it gives, where other files say so.
    """
    roles = Roles(module, imported=imported or {})
    bindings = [
        (function, target, value)
        for function in module.functions
        for target, value in _bindings(function)
    ]
    assigned: dict[int, str] = {}
    for function, target, value in bindings:
        _bind(roles, function, target, value)
        if isinstance(value, ast.Call):
            assigned[id(value)] = path_text(target) or ""
    if _add_factories(roles):
        for function, target, value in bindings:
            _bind(roles, function, target, value)
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


def _add_factories(roles: Roles) -> bool:
    """Take in functions that return scalers, or optimizers, only; whether there are any."""
    found = {
        _factory_key(function): role
        for function in roles.module.functions
        if (role := factory_role(roles, function)) is not None
    }
    for key, made in found.items():
        roles.makers.setdefault(key, set()).add(made)
    return bool(found)


def factory_role(roles: Roles, function: Function) -> Role | None:
    """The role of everything that a function returns, None aside; None where they differ."""
    returned = [
        node.value
        for node in function.nodes
        if isinstance(node, ast.Return) and node.value is not None
    ]
    found = {roles.role_of(value, function) for value in returned if not is_none(value)}
    role = next(iter(found)) if len(found) == 1 else None
    return role if role in (Role.SCALER, Role.OPTIMIZER) else None


def _factory_key(function: Function) -> tuple[str, str]:
    if function.owner is not None:
        return (f"class {function.owner.name}", function.name)
    scope = function.parent or function.module.body
    return (scope.qualname, function.name)


_BINDING = frozenset(
    {ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.With, ast.AsyncWith, ast.For, ast.Call}
)


def _bindings(function: Function) -> Iterator[tuple[ast.expr, ast.expr]]:
    from amplint.code.module import walk_function

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
        elif isinstance(node, ast.For):
            yield from _elements(node.target, node.iter)
        elif isinstance(node, ast.Call):
            written = written_by_name(node)
            if written is not None:
                yield written
    for taken in parameters(function).values():
        if taken.annotation is not None and taken.kind not in (Kind.REST, Kind.WORDS):
            yield ast.Name(taken.name, ast.Store()), taken.annotation


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    if isinstance(target, (ast.Tuple, ast.List)):
        if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts):
            for inner, part in zip(target.elts, value.elts):
                yield from _pairs(inner, part)
        return
    yield target, value


def _elements(target: ast.expr, iterable: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Loop targets, each with the element of a container that it takes."""
    if isinstance(iterable, ast.Call):
        name = last_name(iterable.func)
        parts = target.elts if isinstance(target, ast.Tuple) else []
        if name == "zip" and len(parts) == len(iterable.args):
            for part, other in zip(parts, iterable.args):
                yield from _elements(part, other)
        elif name == "enumerate" and len(parts) == 2 and iterable.args:
            yield from _elements(parts[1], iterable.args[0])
        elif name == "items" and len(parts) == 2 and isinstance(iterable.func, ast.Attribute):
            yield from _elements(parts[1], iterable.func.value)
        elif name == "values" and isinstance(iterable.func, ast.Attribute):
            yield from _elements(target, iterable.func.value)
    elif isinstance(iterable, (ast.Name, ast.Attribute)):
        element = ast.Subscript(iterable, ast.Name("element", ast.Load()), ast.Load())
        yield target, ast.copy_location(element, iterable)


def _bind(roles: Roles, function: Function, target: ast.expr, value: ast.expr) -> None:
    path = path_text(target)
    if path is None:
        return
    if isinstance(value, (ast.Dict, ast.List, ast.Tuple, ast.DictComp, ast.ListComp)):
        _bind_elements(roles, function, path, value)
    found = set(_value_roles(roles, function, value))
    if found:
        roles.by_path.setdefault(key_of(function, path), set()).update(found)
        if _builds(value):
            roles.built.add(key_of(function, path))
    row = class_row(roles.module.resolve(value.func)) if isinstance(value, ast.Call) else None
    if row is not None and row.always_on:
        roles.steppers.add(key_of(function, path))
    made = _made(roles, function, value)
    if made or key_of(function, path) in roles.makers:
        roles.makers.setdefault(key_of(function, path), set()).add(made)


def _builds(value: ast.expr) -> bool:
    """Whether a value is made by a call: an annotation never is."""
    return any(isinstance(node, ast.Call) for node in ast.walk(value))


def _made(roles: Roles, function: Function, value: ast.expr) -> Role | None:
    """The role of what a value gives when it is called: `AdamW`, `partial(SGD, lr=0.1)`."""
    if not isinstance(value, (ast.Name, ast.Attribute, ast.IfExp, ast.Call)):
        return None
    role = roles.maker_role(value, function)
    return role if role in (Role.SCALER, Role.OPTIMIZER) else None


def _bind_elements(roles: Roles, function: Function, path: str, value: ast.expr) -> None:
    """Elements of a display that share a role, or whose calls give things that share one."""
    if isinstance(value, (ast.ListComp, ast.DictComp)):
        parts = [value.elt if isinstance(value, ast.ListComp) else value.value]
    else:
        parts = list(value.values if isinstance(value, ast.Dict) else value.elts)  # type: ignore[attr-defined]
    key = key_of(function, f"{path}[...]")
    found = [frozenset(_value_roles(roles, function, part)) for part in parts]
    if found and found[0] and len(set(found)) == 1:
        roles.by_path.setdefault(key, set()).update(found[0])
        roles.built.add(key)
    made = {_made(roles, function, part) for part in parts}
    if made and None not in made:
        roles.makers.setdefault(key, set()).update(made)
    for index, (part, known) in enumerate(zip(parts, found)):
        name = value.keys[index] if isinstance(value, ast.Dict) else ast.Constant(index)
        if known and isinstance(name, ast.Constant) and not isinstance(part, ast.Starred):
            own = key_of(function, f"{path}[{name.value!r}]")
            roles.by_path.setdefault(own, set()).update(known)
            roles.built.add(own)


def _value_roles(roles: Roles, function: Function, value: ast.expr) -> Iterator[Role]:
    if isinstance(value, (ast.Call, ast.Subscript)):
        role = roles.role_of(value, function)
        if role is not None:
            yield role
        elif isinstance(value, ast.Subscript):
            yield from _annotation_roles(ast.unparse(value))
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
