"""Places of a program: where names and attributes live, and what is known about them.

Locations are canonical strings, so that a guard in a callee and a guard in its caller are
the same atom: "function:name", "Class.attribute", "...['key']", "...[*]".
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any

from amplint.amp.roles import Role, optimizer_name, scaler_name
from amplint.code.arguments import receiver_of
from amplint.code.by_name import read_by_name
from amplint.code.definitions import class_fields, delegate
from amplint.code.expressions import last_name, path_text
from amplint.code.module import Class, Function, walk
from amplint.flow.call import callee_name
from amplint.flow.copies import original_of
from amplint.flow.facts import FunctionFacts, is_gradient
from amplint.flow.identity import one_access
from amplint.flow.kinship import is_torch_scaler
from amplint.flow.lists import fixed_list
from amplint.flow.program import Program
from amplint.flow.properties import field_behind, made_anew
from amplint.flow.state import State
from amplint.flow.values import COPIES, Value, kind_of

#: Stable calls whose result is a count.
COUNTING_CALLS = frozenset({"len", "numel", "device_count", "get_world_size"})
#: Calls whose result is the same whenever their arguments are.
STABLE_CALLS = frozenset(
    {
        "is_available",
        "len",
        "numel",
        "isinstance",
        "hasattr",
        "get_world_size",
        "get_rank",
        "is_initialized",
        "startswith",
        "endswith",
        "lower",
        "upper",
        "strip",
        "get",
        "getenv",
        "bool",
        "int",
        "str",
        "float",
        "getattr",
        "is_bf16_supported",
        "device_count",
        "type",
        "is_main_process",
        "is_main",
        "callable",
        "max",
        "min",
        "abs",
        "is_distributed",
    }
)
#: What a test mentions that asks objects: they may answer otherwise in the next round of a loop.
ROUND = "<round>"
#: Callees that may answer otherwise each time they are asked.
PASSING_CALLS = frozenset(
    {
        "next",
        "random",
        "rand",
        "randn",
        "randint",
        "uniform",
        "bernoulli",
        "sample",
        "choice",
        "time",
        "perf_counter",
        "monotonic",
        "now",
        "pop",
        "popleft",
        "read",
        "readline",
        "input",
        "step",
        "tick",
        "poll",
        "get_nowait",
        "get_scale",
    }
)


@dataclass(slots=True, eq=False)
class Places:
    """Locations, raw values and canonical texts of expressions.

    Args:
        program: the functions and roles that expressions refer to.
    """

    program: Program
    _homes: dict[tuple[str, Function], str] = field(default_factory=dict)
    _outside: dict[tuple[ast.expr, Function], bool] = field(default_factory=dict)
    _functions: dict[tuple[ast.Name, Function], Function | None] = field(default_factory=dict)
    _fixed: dict[ast.expr, Value] = field(default_factory=dict)
    _fields: dict[tuple[Class, str], str | None] = field(default_factory=dict)
    _judged: dict[int, str] = field(default_factory=dict)
    #: Unknown places that some name of theirs says to be scalers.
    _scalers: set[str] = field(default_factory=set)

    def name_location(self, name: str, function: Function) -> str:
        """Where a name of `function` lives."""
        key = (name, function)
        if key not in self._homes:
            self._homes[key] = self._home_of(name, function)
        return self._homes[key]

    def _home_of(self, name: str, function: Function) -> str:
        scope: Function | None = function
        while scope is not None:
            if name in self.program.facts(scope).locals:
                return f"{scope.label}:{name}"
            scope = scope.parent
        return f"{function.module.body.label}:{name}"

    def locate(
        self, node: ast.expr, state: State, function: Function, *, own: bool = False
    ) -> str | None:
        """Canonical location of a name, attribute or subscript; aliases are followed.

        Args:
            own: a field of a copy is a place of its own, as it is where it is assigned.
        """
        location = self._place(node, state, function, own=own)
        return None if location is None else self._follow(location, state, own=own)

    def _place(
        self, node: ast.expr, state: State, function: Function, *, own: bool = False
    ) -> str | None:
        """The same before what is held there is followed."""
        if (imported := self.program.imported_place(node, function)) is not None:
            location = imported
        elif isinstance(node, ast.Name):
            location = self.name_location(node.id, function)
        elif isinstance(node, ast.Attribute):
            whole = self._place(node.value, state, function, own=own)
            if whole is None:
                return None
            held = self._follow(whole, state, own=own)
            location = (
                held if node.attr == "__dict__" else f"{held}.{self._field(node, whole, state)}"
            )
        elif isinstance(node, ast.Subscript):
            base = self.locate(node.value, state, function, own=own)
            if base is None:
                return None
            location = item_location(base, self._index(node.slice, state, function))
        elif isinstance(node, ast.Call) and self._is_get(node):
            base = self.locate(node.func.value, state, function)  # type: ignore[attr-defined]
            if base is None:
                return None
            location = item_location(base, node.args[0])
        elif isinstance(node, ast.Call) and callee_name(node) == "vars" and len(node.args) == 1:
            return self._place(node.args[0], state, function)
        elif (named := read_by_name(node)) is not None:
            base = self.locate(named[0], state, function)
            return None if base is None else f"{base}.{named[1]}"
        elif isinstance(node, (ast.NamedExpr, ast.Await, ast.Starred)):
            return self._place(
                node.target if isinstance(node, ast.NamedExpr) else node.value, state, function
            )
        else:
            return None
        return location

    def _index(self, index: ast.expr, state: State, function: Function) -> ast.expr:
        """The key or the number that a name stands for on this path, if one is known."""
        if not isinstance(index, ast.Name):
            return index
        held = state.values.get(self.name_location(index.id, function))
        return ast.Constant(held[1]) if held is not None and held[0] == "const" else index

    def _follow(self, location: str, state: State, *, own: bool = False) -> str:
        value = state.values.get(location)
        if value is None:
            if own or COPIES not in state.values:
                return location
            original = original_of(location, state)
            return location if original == location else self._follow(original, state)
        if value[0] == "path":
            return value[1]
        return value[2] if value[0] in ("instance", "library") else location

    def _field(self, node: ast.Attribute, whole: str, state: State) -> str:
        """The path of the field that an attribute reads, behind a property that hands it on.

        Args:
            whole: the place of what the attribute is read from.
        """
        held = state.values.get(whole)
        if held is None or held[0] != "instance":
            return node.attr
        key = (held[1], node.attr)
        method = self.program.find_method(*key)
        if key not in self._fields:
            self._fields[key] = (
                field_behind(method) if method is not None else self._delegated(*key)
            )
        if method is not None and self._builds_scaler(method):
            return one_access(node)
        return self._fields[key] or node.attr

    def _builds_scaler(self, property_: Function) -> bool:
        """Whether each access of a property builds another scaler, which is on."""
        made = made_anew(property_)
        if made is None or not self.program.knows(property_):
            return False
        dotted = property_.module.resolve(made.func)
        role = self.program.roles(property_).constructor_role(dotted, made.func)
        may_be_off = len(made.args) > 4 or any(
            item.arg in (None, "enabled") for item in made.keywords
        )
        return role is Role.SCALER and not may_be_off

    def _delegated(self, owner: Class, name: str) -> str | None:
        """The path of the field behind an attribute that only `__getattr__` can give."""
        getter = self.program.find_method(owner, "__getattr__")
        inner = delegate(getter) if getter is not None else None
        receiver, _, path = (path_text(inner) or "" if inner is not None else "").partition(".")
        if getter is None or not path.isidentifier() or receiver != receiver_of(getter):
            return None
        family = self.program.ancestry(owner)
        known = path == name or any(
            name in class_fields(item) or self.program.objects.stores(item, name) for item in family
        )
        return None if known else f"{path}.{name}"

    def part(self, whole: ast.expr, name: str, state: State, function: Function) -> str | None:
        """Canonical location of an attribute or entry."""
        base = self.locate(whole, state, function)
        return None if base is None else self._follow(_named_location(base, name), state)

    def _is_get(self, node: ast.Call) -> bool:
        """`config.get("amp", False)`: the same place as `config["amp"]`."""
        constant = bool(node.args) and isinstance(node.args[0], ast.Constant)
        return constant and isinstance(node.func, ast.Attribute) and node.func.attr == "get"

    def raw(self, node: ast.expr, state: State, function: Function) -> Value:
        """What the path knows about a place, without judging it by role or name."""
        if isinstance(node, ast.Name):
            known = state.values.get(self.name_location(node.id, function))
            if known is not None and known[0] != "path":
                return known
            nested = self._function_named(node, function)
            if nested is not None:
                return ("function", nested)
        location = self.locate(node, state, function)
        if location is None:
            return None
        value = state.values.get(location)
        if value is None and isinstance(node, ast.Attribute):
            value = self._held(node, state, function)
        if value is None and self._is_outside(node, function):
            value = self._fixed_value(node, function)
        return value if value is not None else ("path", location)

    def place(self, node: ast.expr, state: State, function: Function) -> Value:
        """The value at a place; unknown places are judged by role, then by name."""
        value = self.raw(node, state, function)
        if value is None or value[0] != "path":
            return value
        kind = self._judged.get(id(node))
        if kind is None:
            kind = self._judged[id(node)] = self._judge(node, function)
        if kind == "scaler":
            if state.facts.get(is_torch_scaler(value[1])) is False:
                return value
            self._scalers.add(value[1])
        return (kind, value[1])

    def _judge(self, node: ast.expr, function: Function) -> str:
        """The kind of an unknown place: by its role, else by its name."""
        role = self.program.roles(function).role_of(node, function)
        if role is Role.SCALER or (role is None and scaler_name(last_name(node))):
            return "scaler"
        if role is Role.OPTIMIZER or (role is None and optimizer_name(last_name(node))):
            return "optimizer"
        return "path"

    def _held(self, node: ast.Attribute, state: State, function: Function) -> Value:
        """The object that an attribute holds: its location is that of the object's own fields."""
        base = self.locate(node.value, state, function)
        known = state.values.get(f"{base}.{node.attr}") if base is not None else None
        return known if known is not None and known[0] == "instance" else None

    def _fixed_value(self, node: ast.expr, function: Function) -> Value:
        """What a place outside of all functions always holds, if that is known."""
        if node not in self._fixed:
            constant = self.program.constant(node, function)
            self._fixed[node] = constant or fixed_list(self.program, node, function)
        return self._fixed[node]

    def _is_outside(self, node: ast.expr, function: Function) -> bool:
        """Whether a place belongs to a module."""
        key = (node, function)
        if key not in self._outside:
            self._outside[key] = self._begins_outside(node, function)
        return self._outside[key]

    def _begins_outside(self, node: ast.expr, function: Function) -> bool:
        root = node
        while isinstance(root, (ast.Attribute, ast.Subscript)):
            root = root.value
        if not isinstance(root, ast.Name) or self.program.imported_place(root, function):
            return isinstance(root, ast.Name)
        home = function.module.body
        place = self.name_location(root.id, function)
        return function is not home and place == f"{home.label}:{root.id}"

    def _function_named(self, name: ast.Name, function: Function) -> Function | None:
        """The function of the same file that a name stands for."""
        key = (name, function)
        if key not in self._functions:
            self._functions[key] = self._find_function(name, function)
        return self._functions[key]

    def _find_function(self, name: ast.Name, function: Function) -> Function | None:
        module = function.module
        definition = module.scopes.resolve(name, function.node).definition
        found = module.definitions.get(definition) if definition is not None else None
        return found if isinstance(found, Function) else None

    def text(self, node: ast.expr, state: State, function: Function) -> str | None:
        """Canonical text of a stable expression, None if it may change by itself."""
        location = self.locate(node, state, function)
        if location is not None:
            return location
        if isinstance(node, ast.Constant):
            return repr(node.value)
        if isinstance(
            node, (ast.BinOp, ast.BoolOp, ast.Compare, ast.UnaryOp, ast.Tuple, ast.List, ast.Set)
        ):
            parts = [
                self.text(child, state, function)
                for child in ast.iter_child_nodes(node)
                if isinstance(child, ast.expr)
            ]
            if None in parts:
                return None
            operators = "".join(
                type(child).__name__
                for child in ast.iter_child_nodes(node)
                if not isinstance(child, ast.expr)
            )
            return f"{type(node).__name__}{operators}({','.join(part or '' for part in parts)})"
        if isinstance(node, ast.Call) and callee_name(node) in STABLE_CALLS:
            return self._call_text(node, state, function)
        return None

    def _call_text(self, node: ast.Call, state: State, function: Function) -> str | None:
        parts = [self.text(argument, state, function) for argument in node.args]
        parts += [self.text(keyword.value, state, function) for keyword in node.keywords]
        callee = function.module.resolve(node.func) or self.text(node.func, state, function)
        if None in parts or callee is None:
            return None
        return f"{callee}({','.join(part or '' for part in parts)})"

    def mentioned(self, node: ast.AST, state: State, function: Function) -> set[str]:
        """Locations that an expression reads, those in comprehensions included."""
        location = self.locate(node, state, function) if isinstance(node, ast.expr) else None
        if location is not None:
            return {location}
        inner = (
            self.mentioned(child, state, function)
            for child in ast.iter_child_nodes(node)
            if not _names_library(child, node, function)
        )
        return set().union(*inner)

    def opaque(self, node: ast.expr, state: State, function: Function) -> tuple[Any, ...] | None:
        """A test that is told apart by its text alone: None if it may change by itself.

        What a function answers to the same arguments stays; what an object answers, whose methods
        nobody knows, holds for the round of a loop in which it is asked.
        """
        if any(isinstance(part, _PASSING) or is_gradient(part) for part in walk(node)):
            return None
        calls = [part for part in walk(node) if isinstance(part, ast.Call)]
        if not all(self._is_steady(call, state, function) for call in calls):
            return None
        places = self.mentioned(node, state, function)
        if any(_is_asked(call, function) for call in calls):
            places.add(ROUND)
        return ("other", self._canonical(node, state, function), frozenset(places))

    def _is_steady(self, call: ast.Call, state: State, function: Function) -> bool:
        """Whether a call changes nothing that its next answer depends on."""
        if callee_name(call) in PASSING_CALLS:
            return False
        if isinstance(call.func, ast.Attribute):
            held = self.raw(call.func.value, state, function) if is_place(call.func.value) else None
            if kind_of(held) in ("scaler", "optimizer"):
                return False
        return not any(
            _may_answer_otherwise(self.program.facts(item))
            for item in self.program.targets(call, function).functions
        )

    def _canonical(self, node: ast.AST, state: State, function: Function) -> str:
        """The text of an expression, with locations for names; attributes of places as one."""
        location = self.locate(node, state, function) if isinstance(node, ast.expr) else None
        if location is not None:
            return location
        parts = []
        for name, value in ast.iter_fields(node):
            for item in value if isinstance(value, list) else [value]:
                if isinstance(item, ast.expr_context):
                    continue
                told = isinstance(item, ast.AST)
                parts.append(self._canonical(item, state, function) if told else f"{name}={item!r}")
        return f"{type(node).__name__}({','.join(parts)})"


#: What may give something else each time, or gives a name a value.
_PASSING = (ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr, ast.Lambda)


def _may_answer_otherwise(facts: FunctionFacts) -> bool:
    """Whether a function of the project changes something, or looks at gradients."""
    return bool(facts.reach or facts.self_stores or facts.self_fills or facts.asks)


def _names_library(node: ast.AST, parent: ast.AST, function: Function) -> bool:
    """Whether a node is the callee of a call into a library: no place that anybody assigns."""
    return (
        isinstance(parent, ast.Call)
        and node is parent.func
        and function.module.resolve(parent.func) is not None
    )


def _is_asked(call: ast.Call, function: Function) -> bool:
    """Whether a call asks something that may have changed: an object, or nobody knows what."""
    if callee_name(call) in STABLE_CALLS or function.module.resolve(call.func) is not None:
        return False
    return isinstance(call.func, ast.Attribute) or not (call.args or call.keywords)


def is_place(node: ast.expr) -> bool:
    """Whether an expression is a name, or a part of what one holds."""
    return isinstance(node, (ast.Name, ast.Attribute, ast.Subscript))


def item_location(base: str, index: ast.expr) -> str:
    """Where an item lives: `cfg["amp"]`, `vars(args)["amp"]` and `args.amp` are one flag."""
    if not isinstance(index, ast.Constant):
        return f"{base}[*]"
    return _named_location(base, index.value)


def _named_location(base: str, key: object) -> str:
    if isinstance(key, str) and key.isidentifier():
        return f"{base}.{key}"
    return f"{base}[{key!r}]"
