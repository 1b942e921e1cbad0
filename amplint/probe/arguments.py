"""What one chain of calls passes for the inputs of a function, read from its text."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from amplint.code.dataflow import bindings_of, constant_of, parameters, scopes
from amplint.code.expressions import last_name, path_text
from amplint.code.module import Class, Function
from amplint.probe.choices import UNKNOWN
from amplint.probe.configfiles import ConfigFiles
from amplint.probe.domains import Option
from amplint.values.conditions import conditions_at
from amplint.values.objects import Objects
from amplint.values.parameters import back_of_parameter
from amplint.values.provenance import Activation, Back, Condition, Firmness, Origin
from amplint.values.values import Values

#: Names are followed through this many assignments.
_DEPTH = 6
_PARSE = frozenset({"parse_args", "parse_known_args", "parse_intermixed_args"})
#: What a user may give for a field with such a default.
_KINDS = {bool: "flag", int: "int", float: "float", str: "str"}
_CONVERSIONS: dict[str, type] = {kind.__name__: kind for kind in _KINDS}
_OBJECTS = (ast.Lambda, ast.List, ast.Dict, ast.Tuple, ast.Set, ast.ListComp, ast.DictComp)


@dataclass(frozen=True, slots=True)
class Way:
    """A way from outside into a function.

    Args:
        activation: the call of the function, and those around it; None where nobody calls it.
        made: the call that builds the object it is a method of, None where that is not known.
        conditions: what has to hold for these calls to be made.
    """

    function: Function
    activation: Activation | None
    made: Origin | None
    conditions: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True)
class Passed:
    """One thing that a call may pass.

    Args:
        value: a constant; `UNKNOWN` for an object, or for what somebody sets.
        option: under which name it is set, "" where nobody sets it.
        allowed: what the code makes of that, None for whatever the option takes.
        conditions: what has to hold for it to be passed.
        file: the configuration file that says so, "" if no other one says otherwise.
    """

    value: Any = UNKNOWN
    option: str = ""
    allowed: tuple[Any, ...] | None = None
    conditions: tuple[Condition, ...] = ()
    file: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """An attribute or, if `is_key`, an entry of something."""

    name: str
    is_key: bool = False


_STEP = re.compile(r"\.([^\W\d]\w*)|\['(\w+)'\]")


def _parts(path: str) -> tuple[str, list[Part]]:
    """`cfg.train['lr']` as "cfg" and its parts; "" for what is no such path."""
    root = re.match(r"[^\W\d]\w*", path)
    if root is None:
        return "", []
    parts: list[Part] = []
    place = root.end()
    while place < len(path):
        step = _STEP.match(path, place)
        if step is None:
            return "", []
        parts.append(Part(step[1] or step[2], is_key=step[1] is None))
        place = step.end()
    return root[0], parts


def _part(whole: ast.expr, part: Part) -> ast.expr:
    if part.is_key:
        key = ast.copy_location(ast.Constant(part.name), whole)
        return ast.Subscript(whole, key, ast.Load())
    return ast.Attribute(whole, part.name, ast.Load())


class ArgumentReader:
    """Reads what one way into a function passes for its inputs.

    Args:
        through_objects: whether what a constructor keeps of an argument is read as that argument.
            Anybody may have changed it since, so that it says what to try, and proves nothing.
    """

    def __init__(
        self,
        objects: Objects,
        values: Values,
        way: Way,
        options: dict[str, Option],
        files: ConfigFiles | None,
        *,
        through_objects: bool = False,
    ) -> None:
        self._through_objects = through_objects
        self._files = files
        self._objects = objects
        self._values = values
        self._way = way
        self._options = options

    def passed(self, path: str) -> tuple[list[Passed], bool]:
        """What an input may be, and whether it can be nothing else."""
        root, attributes = _parts(path)
        if not root:
            return [], False
        function, activation = self._way.function, self._way.activation
        if root == "self" or root not in parameters(function):
            if self._constructor is None or self._construction is None:
                return [], False
            function, activation = self._constructor, self._construction
            if root == "self" and attributes:
                root = self._kept.get(attributes.pop(0).name, "")
        if root not in parameters(function):
            return [], False
        if activation is None:
            return self._from_file(function, attributes)
        back = back_of_parameter(self._values.origins, function, root, activation)
        found: list[Passed] = []
        complete = back.complete
        for place in back.places:
            if place.part is not None:
                return [], False
            expression = place.expression
            for attribute in attributes:
                expression = ast.copy_location(_part(expression, attribute), expression)
            more, known = self._trace(expression, place.function, place.activation)
            found += more
            complete = complete and known
        return (found, complete) if back.places else self._from_file(function, attributes)

    def _from_file(self, function: Function, keys: list[Part]) -> tuple[list[Passed], bool]:
        """What the configuration files say of a decorated function's settings: who decorates
        a function may pass what it has read."""
        decorators = getattr(function.node, "decorator_list", ())
        if self._files is None or not keys or not decorators:
            return [], False
        entries = self._files.entries(".".join(key.name for key in keys))
        return [Passed(value, file=file) for value, file in entries], bool(entries)

    @cached_property
    def _constructor(self) -> Function | None:
        """The `__init__` of the function's class, unless the object has another one."""
        owner = self._way.function.owner
        if owner is None or self._way.made is None:
            return None
        own = self._objects.method(owner, "__init__")
        call = self._way.made.expression
        assert isinstance(call, ast.Call)
        built = self._objects.symbol(call.func, self._way.made.function)
        if isinstance(built, Class) and self._objects.method(built, "__init__") is not own:
            return None
        return own

    @cached_property
    def _construction(self) -> Activation | None:
        made = self._way.made
        if self._constructor is None or made is None:
            return None
        call = made.expression
        assert isinstance(call, ast.Call)
        return Activation(self._constructor, call, made.function, made.activation, constructs=True)

    @cached_property
    def _kept(self) -> dict[str, str]:
        """Attributes of `self` -> the parameters of `__init__` that they are."""
        assert self._constructor is not None
        given = parameters(self._constructor)
        return {
            path.removeprefix("self."): binding.value.id
            for path, bindings in bindings_of(self._constructor).items()
            for binding in bindings
            if path.startswith("self.")
            and isinstance(binding.value, ast.Name)
            and binding.value.id in given
        }

    def _trace(
        self,
        expression: ast.expr,
        function: Function,
        activation: Activation | None,
        depth: int = 0,
    ) -> tuple[list[Passed], bool]:
        """What an expression may be, back to constants and to what somebody sets."""
        here = (function, activation)
        if depth >= _DEPTH:
            return [], False
        if isinstance(expression, ast.Attribute):
            return self._attribute(expression, *here, depth)
        if isinstance(expression, ast.Name):
            free = self._free(expression, *here)
            if free is not None:
                return ([Passed(option=free)] if free else []), bool(free)
        kind = self._conversion(expression, function)
        if kind is not None:
            assert isinstance(expression, ast.Call)
            return _converted(self._trace(expression.args[0], *here, depth + 1), kind)
        if isinstance(expression, (ast.Name, ast.IfExp, ast.NamedExpr, ast.Call)):
            back = self._values.origins.back(expression, *here)
            if back is not None and all(place.part is None for place in back.places):
                return self._behind(back, depth)
        if isinstance(expression, _OBJECTS) or self._builds(expression, function):
            return [Passed()], True
        found, complete = self._constants(expression, *here)
        if not found and isinstance(expression, ast.Subscript):
            return self._configured(expression)
        if not complete and isinstance(expression, ast.Call):
            more, known = self._configured(expression)
            return [*found, *more], known
        return found, complete

    def _conversion(self, expression: ast.expr, function: Function) -> type | None:
        """The builtin type that a call makes of its only argument: `bool(value)`."""
        if not isinstance(expression, ast.Call) or expression.keywords or len(expression.args) != 1:
            return None
        callee = expression.func
        if not isinstance(callee, ast.Name) or callee.id not in _CONVERSIONS:
            return None
        is_builtin = function.module.scopes.resolve(callee).kind == "builtin"
        return _CONVERSIONS[callee.id] if is_builtin else None

    def _behind(self, back: Back, depth: int) -> tuple[list[Passed], bool]:
        """What is behind an expression: the first place that its conditions lead to."""
        found: list[Passed] = []
        complete = back.complete
        earlier: tuple[Condition, ...] = ()
        for place in back.places:
            if place.firmness is Firmness.CHOICE and not place.conditions:
                complete = False
                continue
            where = (place.function, place.activation)
            more, known = self._trace(place.expression, *where, depth + 1)
            complete = complete and known
            found += (
                replace(item, conditions=(*item.conditions, *place.conditions, *earlier))
                for item in more
            )
            if place.conditions:
                earlier = (*earlier, not_all(place.conditions))
        return found, complete

    def _free(
        self, name: ast.Name, function: Function, activation: Activation | None
    ) -> str | None:
        """A parameter of a function outside of the way: a name for it if nobody calls that
        function, "" if others do. None for anything else."""
        for scope in scopes(function, function.module):
            if name.id in bindings_of(scope):
                return None
            if name.id not in parameters(scope):
                continue
            if activation is not None and activation.callee is scope:
                return None
            return "" if self._objects.calls_of(scope) else f"{name.id} of {scope.label}"
        return None

    def _builds(self, expression: ast.expr, function: Function) -> bool:
        """Whether an expression makes a new object."""
        if not isinstance(expression, ast.Call):
            return False
        if isinstance(self._objects.symbol(expression.func, function), Class):
            return True
        name = last_name(expression.func)
        dotted = function.module.resolve(expression.func) or ""
        return dotted.startswith("torch.") and name[:1].isupper()

    def _attribute(
        self, read: ast.Attribute, function: Function, activation: Activation | None, depth: int
    ) -> tuple[list[Passed], bool]:
        here = (function, activation)
        if read.attr in self._options and self._is_namespace(read.value, *here):
            return self._option(read, *here)
        field = self._filled_field(read, *here)
        if field is not None:
            self._options.setdefault(read.attr, field)
            return self._option(read, *here)
        if read.attr == "enabled":
            return self._enabled(read.value, *here, depth)
        own = self._assigned_once(read, *here)
        if own is not None:
            return self._trace(*own, depth + 1)
        found, complete = self._constants(read, *here)
        return (found, complete) if found else self._configured(read)

    def _is_namespace(
        self, expression: ast.expr, function: Function, activation: Activation | None
    ) -> bool:
        """Whether an expression is what `parse_args()` returns."""
        if isinstance(expression, ast.Name) and self._free(expression, function, activation):
            return True
        found = self._values.origins.of(expression, function, activation).origins
        return bool(found) and all(
            isinstance(origin.expression, ast.Call) and last_name(origin.expression.func) in _PARSE
            for origin in found
        )

    def _filled_field(
        self, read: ast.Attribute, function: Function, activation: Activation | None
    ) -> Option | None:
        """A field of a class that `HfArgumentParser` and its like fill, as an option."""
        found = self._values.origins.of(read.value, function, activation).origins
        if not found or not all(origin.from_command_line for origin in found):
            return None
        defaults = [
            value.content
            for value in self._values.of(read, function, activation).values
            if value.firmness is Firmness.DEFAULT
        ]
        kind = _KINDS.get(type(defaults[0])) if len(defaults) == 1 else None
        if kind is None:
            return None
        (default,) = defaults
        values = (default, not default) if isinstance(default, bool) else (default,)
        return Option(f"--{read.attr}", values, kind, default)

    def _option(
        self, read: ast.Attribute, function: Function, activation: Activation | None
    ) -> tuple[list[Passed], bool]:
        """An option, unless the code has set it to something else in the meantime."""
        possible = self._values.of(read, function, activation)
        path = path_text(read)
        written = [
            binding
            for scope in scopes(function, function.module)
            for binding in bindings_of(scope).get(path or "", ())
        ]
        if not written:
            return [Passed(option=read.attr)], True
        if not possible.complete:
            return [], False
        tests = [conditions_at(item.statement, item.function) for item in written]
        if not all(tests):
            return self._constants(read, function, activation)
        allowed = tuple(value.content for value in possible.values)
        unless = tuple(not_all(conditions) for conditions in tests)
        return [Passed(option=read.attr, allowed=allowed, conditions=unless)], True

    def _enabled(
        self,
        scaler: ast.expr,
        function: Function,
        activation: Activation | None,
        depth: int,
    ) -> tuple[list[Passed], bool]:
        """The `enabled=` of the call that makes a scaler."""
        found = self._values.origins.of(scaler, function, activation).origins
        made = found[0].expression if len(found) == 1 else None
        if not isinstance(made, ast.Call) or not last_name(made.func).endswith("GradScaler"):
            return [], False
        for keyword in made.keywords:
            if keyword.arg == "enabled":
                return self._trace(keyword.value, found[0].function, found[0].activation, depth + 1)
        return [Passed(True)], not made.args

    def _configured(self, read: ast.expr) -> tuple[list[Passed], bool]:
        """What configuration files of the project call by the name that is read.

        Beside them `settings.get("amp", False)` gives what it gives where they have no such name.
        """
        key: object = None
        if isinstance(read, ast.Attribute):
            key = read.attr
        elif isinstance(read, ast.Subscript):
            key = constant_of(read.slice)
        elif isinstance(read, ast.Call) and last_name(read.func) == "get" and read.args:
            key = constant_of(read.args[0])
        if self._files is None or not isinstance(key, str):
            return [], False
        entries = self._files.entries(key)
        return [Passed(value, file=file) for value, file in entries], bool(entries)

    def _assigned_once(
        self, read: ast.Attribute, function: Function, activation: Activation | None
    ) -> tuple[ast.expr, Function, Activation | None] | None:
        """What `__init__` makes an attribute, if nothing else does."""
        found = self._objects.bindings(read, function) or ()
        if len(found) != 1 or found[0].function.name != "__init__" or found[0].value is None:
            return None
        if isinstance(read.value, ast.Name) and read.value.id == "self":
            return found[0].value, found[0].function, None
        if not self._through_objects:
            return None
        constructor = found[0].function
        construction = self._constructed(read.value, function, activation, constructor)
        return (found[0].value, constructor, construction) if construction is not None else None

    def _constructed(
        self,
        thing: ast.expr,
        function: Function,
        activation: Activation | None,
        constructor: Function,
    ) -> Activation | None:
        """The only call that makes an object, by a constructor."""
        found = self._values.origins.of(thing, function, activation)
        if not found.complete or len(found.origins) != 1:
            return None
        made = [
            item
            for item in self._values.origins.aliases(thing, function, activation)
            if self._makes(item, constructor)
        ]
        if len(made) != 1 or not isinstance(made[0].expression, ast.Call):
            return None
        where = (made[0].function, made[0].activation)
        return Activation(constructor, made[0].expression, *where, constructs=True)

    def _makes(self, made: Origin, constructor: Function) -> bool:
        """Whether an expression makes an object by a constructor."""
        call = made.expression
        built = (
            self._objects.symbol(call.func, made.function) if isinstance(call, ast.Call) else None
        )
        return isinstance(built, Class) and self._objects.method(built, "__init__") is constructor

    def _constants(
        self, expression: ast.expr, function: Function, activation: Activation | None
    ) -> tuple[list[Passed], bool]:
        """A constant that can be nothing else."""
        only = self._values.of(expression, function, activation).only()
        if only is ...:
            return [], False
        plain = only is None or isinstance(only, (bool, int, float, str))
        return [Passed(only if plain else UNKNOWN)], True


def not_all(conditions: tuple[Condition, ...]) -> Condition:
    """That one of some conditions does not hold."""
    others = [
        ast.UnaryOp(ast.Not(), condition.test) if condition.side else condition.test
        for condition in conditions
    ]
    return Condition(ast.BoolOp(ast.Or(), others), True, conditions[0].function)


def _converted(passed: tuple[list[Passed], bool], kind: type) -> tuple[list[Passed], bool]:
    """What a builtin makes of what may be passed; what somebody sets stays what they set."""
    found: list[Passed] = []
    complete = passed[1]
    for item in passed[0]:
        try:
            value = item.value if item.value is UNKNOWN else kind(item.value)
        except (TypeError, ValueError):
            complete = False
            continue
        found.append(replace(item, value=value))
    return found, complete
