"""Where the value of an expression was created, across names, attributes, calls and files.

`Origins` goes back from an expression to the expressions that created its value: literals,
constructor calls, names that nothing is known about. It follows assignments that can reach
the place, parameters to what callers pass, fields of objects to their constructor call or
default, elements of literal containers, options of a command line, and data files. Each
origin says how it got there and whether somebody may choose otherwise.

`amplint.values.values` turns origins into constants; rules about objects (which model does
this optimizer own?) ask for the origins themselves.
"""

from __future__ import annotations

import ast
import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from amplint.project.dataflow import Binding, bindings_of, constant_of, parameters, scopes
from amplint.project.layout import EXITS, layout_of
from amplint.project.module import Class, Function, Module
from amplint.project.objects import (
    SAME_OBJECT,
    WRAPPERS,
    Objects,
    class_fields,
    plain_annotation,
    returned,
)
from amplint.project.roles import enclosing_class, last_name, path_text
from amplint.values import datafiles, options

#: Calls are followed through this many functions at once.
CALL_DEPTH = 6
#: An expression with more predecessors, and a question nested deeper, is unknown.
_WIDTH = 16
_NESTING = 40
#: Calls whose keywords, or whose first argument, are what they hold.
_HOLDERS = frozenset(
    ("dict", "Namespace", "SimpleNamespace", "EasyDict", "AttrDict", "Munch", "Box", "DotMap")
    + ("CfgNode", "CN", "ConfigDict", "OrderedDict", "ModuleDict", "ModuleList", "Sequential")
    + ("create", "structured")  # OmegaConf
)
#: Calls that give back what their first argument holds.
_COPIES = frozenset(("vars", "asdict", "copy", "deepcopy", "to_container", "tuple", "list"))
_PARSE = frozenset(("parse_args", "parse_known_args", "parse_intermixed_args"))
#: Functions that fill an object of the given class from the command line.
_CLASS_PARSERS = ("tyro.cli", "simple_parsing.parse", "draccus.parse", "jsonargparse.CLI")


class Standing(enum.IntEnum):
    """How firmly an expression has a value; the weaker of two is the smaller one."""

    CHOICE = 0  # somebody has to choose it, or a condition that nothing settles has to hold
    DEFAULT = 1  # declared in the code; a user, or a caller out of sight, may choose otherwise
    FIXED = 2  # nothing in the project says otherwise


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A place that a value passes on its way, for the path of a finding.

    Args:
        passes: whether it is a call that hands the value to a parameter.
    """

    node: ast.AST
    module: Module
    words: str
    passes: bool = False


@dataclass(frozen=True, slots=True)
class Activation:
    """One call of a function, so that its parameters are what this call passes.

    Args:
        constructs: whether `self` is the object that the call makes.
    """

    callee: Function
    call: ast.Call
    caller: Function
    outer: Activation | None = None
    constructs: bool = False

    @property
    def depth(self) -> int:
        """How many calls are nested, this one included."""
        return 1 + (self.outer.depth if self.outer is not None else 0)


@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """A test that has to come out on one side.

    Args:
        side: which one.
        function: where the test is evaluated.
    """

    test: ast.expr
    side: bool
    function: Function


@dataclass(frozen=True, slots=True, eq=False)
class Origin:
    """An expression that created a value.

    Args:
        function: where it is evaluated.
        activation: for which call of that function; None for any.
        steps: the way from here to the expression that was asked about.
        conditions: what has to hold for the value to come from here; not all of them.
        data: what a data file holds; `NO_DATA` for everything else.
        from_command_line: the expression is a class, an object of which a parser fills.
    """

    expression: ast.expr
    function: Function
    activation: Activation | None = None
    standing: Standing = Standing.FIXED
    steps: tuple[Step, ...] = ()
    conditions: tuple[Condition, ...] = ()
    data: object = ...
    from_command_line: bool = False

    def then(
        self,
        standing: Standing,
        steps: tuple[Step, ...],
        conditions: tuple[Condition, ...] = (),
    ) -> Origin:
        """The same origin, seen from further away."""
        return replace(
            self,
            standing=min(self.standing, standing),
            steps=self.steps + steps,
            conditions=self.conditions + conditions,
        )

    def at(self, expression: ast.expr, function: Function, activation: Activation | None) -> Origin:
        """The way from another expression that ends where this one does."""
        return replace(self, expression=expression, function=function, activation=activation)


#: `Origin.data` of everything that is no data file.
NO_DATA = ...


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """All origins of an expression that are in sight.

    Args:
        complete: whether there are no others; without any origin: a literal lacks the entry.
    """

    origins: tuple[Origin, ...] = ()
    complete: bool = True


UNKNOWN = Found((), False)


@dataclass(frozen=True, slots=True)
class Part:
    """An attribute or an element: `.dtype`, `["dtype"]`, `[0]`.

    Args:
        key: its name or index; `...` if that is not known.
        is_item: whether it is an element.
        index: the expression of an unknown key, and the function that evaluates it.
    """

    key: object
    is_item: bool
    index: tuple[ast.expr, Function] | None = None

    def __str__(self) -> str:
        return f"[{self.key!r}]" if self.is_item else f".{self.key}"


@dataclass(frozen=True, slots=True, eq=False)
class _Before:
    """Where a value comes from, one step back; with `part`, a part of the value there."""

    expression: ast.expr
    function: Function
    activation: Activation | None
    standing: Standing = Standing.FIXED
    steps: tuple[Step, ...] = ()
    part: Part | None = None
    conditions: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class _Back:
    """All predecessors of an expression."""

    places: tuple[_Before, ...]
    complete: bool = True


#: The truth values that a condition may have, each with how firmly.
Truth = dict[bool, Standing]


class Origins:
    """Goes back from expressions to where their values were created.

    Args:
        objects: resolves names, classes and calls.
        truth: decides about conditions.
        keys: the constants that a subscript may be; None if they are not all known.
    """

    def __init__(
        self,
        objects: Objects,
        truth: Callable[[ast.expr, Function, Activation | None], Truth],
        keys: Callable[[ast.expr, Function, Activation | None], list[object] | None],
    ) -> None:
        self.objects = objects
        self._truth = truth
        self._keys = keys
        self._known: dict[object, Found] = {}
        self._pending: set[object] = set()
        self._made: dict[ast.expr, ast.expr] = {}

    # -- questions -----------------------------------------------------------------------------

    def of(
        self, expression: ast.expr, function: Function, activation: Activation | None = None
    ) -> Found:
        """The origins of an expression where `function` evaluates it."""
        key = (expression, function, activation)
        return self._once(key, lambda: self._of(expression, function, activation))

    def part_of(
        self,
        expression: ast.expr,
        part: Part,
        function: Function,
        activation: Activation | None = None,
    ) -> Found:
        """The origins of an attribute or element of the value of an expression."""
        key = (expression, part, function, activation)
        return self._once(key, lambda: self._part_of(expression, part, function, activation))

    def aliases(
        self, expression: ast.expr, function: Function, activation: Activation | None = None
    ) -> list[Origin]:
        """The expression itself and every other one that its value passes through."""
        pending = [Origin(expression, function, activation)]
        found: list[Origin] = []
        seen: set[object] = set()
        while pending and len(found) < _WIDTH * 4:
            current = pending.pop(0)
            here = (current.function, current.activation)
            if (current.expression, *here) in seen:
                continue
            seen.add((current.expression, *here))
            found.append(current)
            inner = _same_object(current.expression)
            if inner is not None:
                pending.append(current.then(Standing.FIXED, ()).at(inner, *here))
                continue
            back = self._back(current.expression, *here)
            for place in back.places[:_WIDTH] if back is not None else ():
                seen_from = current.then(place.standing, place.steps, place.conditions)
                if place.part is None:
                    pending.append(seen_from.at(place.expression, place.function, place.activation))
                else:
                    pending += self._aliases_of_part(place, seen_from)
        return found

    def _aliases_of_part(self, place: _Before, seen_from: Origin) -> list[Origin]:
        assert place.part is not None
        where = (place.function, place.activation)
        found = self.part_of(place.expression, place.part, *where).origins
        return [
            replace(
                item,
                standing=min(item.standing, seen_from.standing),
                steps=item.steps + seen_from.steps,
                conditions=item.conditions + seen_from.conditions,
            )
            for item in found
        ]

    def _once(self, key: object, answer: Callable[[], Found]) -> Found:
        known = self._known.get(key)
        if known is not None:
            return known
        if key in self._pending or len(self._pending) > _NESTING:
            return UNKNOWN
        self._pending.add(key)
        try:
            found = answer()
        finally:
            self._pending.discard(key)
        self._known[key] = found
        return found

    def _of(self, expression: ast.expr, function: Function, activation: Activation | None) -> Found:
        back = self._back(expression, function, activation)
        if back is None:
            return Found((Origin(expression, function, activation),), True)
        found = self._follow(back, None)
        if found.origins or found.complete:
            return found
        return Found((Origin(expression, function, activation),), False)

    def _follow(self, back: _Back, part: Part | None) -> Found:
        """Origins behind all predecessors; of a part of them if one is given."""
        origins: list[Origin] = []
        complete = back.complete and 0 < len(back.places) <= _WIDTH
        for place in back.places[:_WIDTH]:
            found = self._behind(place, part)
            complete = complete and found.complete
            origins += (
                item.then(place.standing, place.steps, place.conditions) for item in found.origins
            )
        return Found(tuple(origins[: _WIDTH * 2]), complete and len(origins) <= _WIDTH * 2)

    def _behind(self, place: _Before, part: Part | None) -> Found:
        where = (place.function, place.activation)
        if place.part is None:
            if part is None:
                return self.of(place.expression, *where)
            return self.part_of(place.expression, part, *where)
        inner = self.part_of(place.expression, place.part, *where)
        return inner if part is None else self.parts_of(inner, part)

    def parts_of(self, found: Found, part: Part) -> Found:
        """The same part of several origins."""
        results = [
            (self._part_of_origin(item, part), item.standing, item.steps) for item in found.origins
        ]
        return _joined(results, found.complete)

    # -- one step back -------------------------------------------------------------------------

    def _back(
        self, expression: ast.expr, function: Function, activation: Activation | None
    ) -> _Back | None:
        """The predecessors of an expression; None if it creates its value itself."""
        here = (function, activation)
        if isinstance(expression, ast.IfExp):
            return self._back_of_choice(expression, *here)
        if isinstance(expression, ast.BoolOp):
            return self._back_of_operands(expression, *here)
        if isinstance(expression, (ast.NamedExpr, ast.Await)):
            return _Back((_Before(expression.value, *here),))
        if isinstance(expression, ast.Name):
            return self._back_of_name(expression, *here)
        if isinstance(expression, ast.Attribute):
            dotted = function.module.resolve(expression)
            if dotted is not None and self._is_foreign(dotted, function.module):
                return None
            if isinstance(expression.value, ast.Call) and _is_limit(expression.value):
                return None
            part = Part(expression.attr, False)
            return _Back((_Before(expression.value, *here, part=part),))
        if isinstance(expression, ast.Subscript):
            return self._back_of_subscript(expression, *here)
        if isinstance(expression, ast.Call):
            return self._back_of_call(expression, *here)
        return None

    def _is_foreign(self, dotted: str, module: Module) -> bool:
        """Whether a dotted name leads out of the project, or to a function or class of it."""
        if self.objects.project.definition(dotted, module) is not None:
            return True
        parts = dotted.split(".")
        names = (".".join(parts[:end]) for end in range(len(parts) - 1, 0, -1))
        return all(self.objects.project.module_named(name, module) is None for name in names)

    def _back_of_choice(
        self, choice: ast.IfExp, function: Function, activation: Activation | None
    ) -> _Back:
        truth = self._truth(choice.test, function, activation)
        sides = ((True, choice.body), (False, choice.orelse))
        return _Back(
            tuple(
                _Before(
                    value,
                    function,
                    activation,
                    truth[side],
                    conditions=(Condition(choice.test, side, function),),
                )
                for side, value in sides
                if side in truth
            )
        )

    def _back_of_operands(
        self, operation: ast.BoolOp, function: Function, activation: Activation | None
    ) -> _Back | None:
        """Operands of `a or b`; None for conditions, which `Values` evaluates."""
        if isinstance(operation.op, ast.And):
            return None
        places: list[_Before] = []
        rest = Standing.FIXED
        for operand in operation.values:
            truth = self._truth(operand, function, activation)
            last = operand is operation.values[-1]
            if last or True in truth:
                holds = rest if last else min(rest, truth[True])
                places.append(_Before(operand, function, activation, holds))
            if False not in truth:
                break
            rest = min(rest, truth[False])
        return _Back(tuple(places))

    def _back_of_subscript(
        self, expression: ast.Subscript, function: Function, activation: Activation | None
    ) -> _Back:
        index = expression.slice
        keys = self._keys(index, function, activation)
        if keys is None:
            part = Part(..., True, (index, function))
            return _Back((_Before(expression.value, function, activation, part=part),))
        places = (
            _Before(
                expression.value,
                function,
                activation,
                part=Part(key, True),
                conditions=(_equals(index, _literal(key), function),) if len(keys) > 1 else (),
            )
            for key in keys
        )
        return _Back(tuple(places))

    # -- calls ---------------------------------------------------------------------------------

    def _back_of_call(
        self, call: ast.Call, function: Function, activation: Activation | None
    ) -> _Back | None:
        looked_up = self._looked_up(call, function, activation)
        if looked_up is not None:
            return looked_up
        symbol = self.objects.symbol(call.func, function)
        if isinstance(symbol, Class):
            return None
        callee = symbol if isinstance(symbol, Function) else self._method(call, function)
        if callee is None or (activation is not None and activation.depth >= CALL_DEPTH):
            return None
        return self._back_of_returns(Activation(callee, call, function, activation))

    def _method(self, call: ast.Call, function: Function) -> Function | None:
        if not isinstance(call.func, ast.Attribute) or call.func.attr in SAME_OBJECT:
            return None
        callee = self.objects.callee(call, function)
        return callee if callee is not None and callee.name not in ("__init__", "forward") else None

    def _back_of_returns(self, inner: Activation) -> _Back | None:
        callee = inner.callee
        layout = layout_of(callee)
        found = [
            node for node in layout.nodes if isinstance(node, ast.Return) and node.value is not None
        ]
        if not found or any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in layout.nodes):
            return None
        words = f"`{callee.name}` returns it"
        places: list[_Before] = []
        rest: Standing | None = Standing.FIXED
        for node in found:
            holds, fails = self._standing_of(node, None, callee, inner)
            if holds is not None and rest is not None and node.value is not None:
                step = Step(inner.call, inner.caller.module, words)
                conditions = conditions_at(node, callee)
                before = _Before(
                    node.value, callee, inner, min(rest, holds), (step,), conditions=conditions
                )
                places.append(before)
            rest = min(rest, fails) if rest is not None and fails is not None else None
            if rest is None:
                break
        return _Back(tuple(places))

    def _looked_up(
        self, call: ast.Call, function: Function, activation: Activation | None
    ) -> _Back | None:
        """`getattr(x, "name")`, `x.get("name", default)`, `next(iter(x))` and their like."""
        name = last_name(call.func)
        here = (function, activation)
        if isinstance(call.func, ast.Name) and name == "getattr" and len(call.args) >= 2:
            if function.module.resolve(call.args[0]) == "torch":
                return None
            keys = self._keys(call.args[1], *here)
            subject, is_item, rest = call.args[0], False, call.args[2:]
        elif isinstance(call.func, ast.Attribute) and name in ("get", "pop") and call.args:
            if path_text(call.func.value) in ("os.environ",):
                return None
            keys = self._keys(call.args[0], *here)
            subject, is_item, rest = call.func.value, True, call.args[1:]
        else:
            return None
        if keys is None:
            return None
        places = [_Before(subject, *here, part=Part(key, is_item)) for key in keys]
        return self._with_fallback(places, rest, *here)

    def _with_fallback(
        self,
        places: list[_Before],
        rest: list[ast.expr],
        function: Function,
        activation: Activation | None,
    ) -> _Back:
        """What is looked up, and the given default where nothing, or not everything, is known."""
        found = [self._behind(place, None) for place in places]
        absent = all(item.complete and not item.origins for item in found)
        if rest and not all(item.complete and item.origins for item in found):
            standing = Standing.FIXED if absent else Standing.DEFAULT
            places.append(_Before(rest[0], function, activation, standing))
        return _Back(tuple(places[-1:] if absent else places))

    # -- names ---------------------------------------------------------------------------------

    def _back_of_name(
        self, name: ast.Name, function: Function, activation: Activation | None
    ) -> _Back | None:
        if self.objects.symbol(name, function) is not None:
            return None
        module = function.module
        for scope in scopes(function, module):
            inner = activation if activation is not None and activation.callee is scope else None
            found = bindings_of(scope).get(name.id, [])
            if found and all(isinstance(item.statement, _IMPORTS) for item in found):
                break
            if any(isinstance(item.statement, _ELSEWHERE) for item in found):
                continue
            use = name if scope is function else None
            if name.id in parameters(scope):
                bound, rest = self._bound(found, use, scope, inner, name.id)
                if rest is None:
                    return bound
                passed = self._back_of_parameter(scope, name.id, inner)
                return _merged(bound, _weakened(passed, rest))
            if found:
                return self._bound_and_global(found, use, scope, inner, name.id)
        bindings = self.objects.bindings(name, function)
        if not bindings:
            return None
        bound, _ = self._bound(bindings, None, bindings[0].function, None, name.id)
        return bound

    def _bound_and_global(
        self,
        found: list[Binding],
        use: ast.AST | None,
        scope: Function,
        activation: Activation | None,
        name: str,
    ) -> _Back:
        """Bindings of a name, and those of functions that declare it `global`."""
        bound, _ = self._bound(found, use, scope, activation, name)
        if scope is not scope.module.body:
            return bound
        for other in _writers(scope.module, name):
            more, _ = self._bound(_plain(bindings_of(other)[name]), None, other, None, name)
            bound = _merged(bound, _weakened(more, Standing.CHOICE))
        return bound

    def _bound(
        self,
        bindings: Sequence[Binding],
        use: ast.AST | None,
        scope: Function,
        activation: Activation | None,
        name: str,
    ) -> tuple[_Back, Standing | None]:
        """What bindings in one scope leave in a name, the last one first.

        Returns:
            The predecessors, and how firmly none of the bindings has run (None: one has).
        """
        first, *carried = reaching(bindings, use, scope)
        back, rest = self._left_by(first, use, activation, name)
        for later in carried:
            back = _merged(back, self._left_by(later, use, activation, name)[0])
        return back, rest

    def _left_by(
        self,
        bindings: Sequence[Binding],
        use: ast.AST | None,
        activation: Activation | None,
        name: str,
    ) -> tuple[_Back, Standing | None]:
        """The same for bindings that run one after the other."""
        places: list[_Before] = []
        complete = True
        rest: Standing | None = Standing.FIXED
        for binding in reversed(bindings):
            holds, fails = self._standing_of(binding.statement, use, binding.function, activation)
            if holds is None or rest is None:
                continue
            before = _before(binding, name, activation)
            if before is None:
                complete = False
            else:
                standing = min(before.standing, rest, holds)
                conditions = conditions_at(binding.statement, binding.function, use)
                places.append(replace(before, standing=standing, conditions=conditions))
            rest = _weaker(rest, fails)
            if rest is None:
                break
        return _Back(tuple(places), complete), rest

    def _standing_of(
        self,
        node: ast.AST,
        use: ast.AST | None,
        function: Function,
        activation: Activation | None,
    ) -> tuple[Standing | None, Standing | None]:
        """How firmly a statement runs, and how firmly it does not; None for "cannot be".

        Conditions that hold the place of use, too, do not count.
        """
        layout = layout_of(function)
        if node not in layout:  # a field of a class body
            return Standing.FIXED, None
        holds: Standing | None = Standing.FIXED
        fails: Standing | None = None
        inner = node
        for outer in layout.ancestors(node):
            here, inner = inner, outer
            if use is not None and use in layout and layout.holds(outer, use):
                break
            if isinstance(outer, (ast.ExceptHandler, ast.match_case)):
                holds, fails = _weaker(holds, Standing.CHOICE), Standing.DEFAULT
            if not isinstance(outer, ast.If) or here is outer.test:
                continue
            truth = self._truth(outer.test, function, activation)
            side = here in outer.body
            holds = _weaker(holds, truth.get(side))
            fails = _stronger(fails, truth.get(not side))
        return holds, fails

    # -- parameters ----------------------------------------------------------------------------

    def _back_of_parameter(
        self, function: Function, name: str, activation: Activation | None
    ) -> _Back:
        _, default = parameters(function)[name]
        option = options.click_option(function, name)
        if option is not None:
            return _option_values(option)
        if activation is not None:
            return self._passed(function, name, default, activation)
        known = self.objects.arguments(function, name)
        places = [
            _Before(value, site.function, None, steps=(_passing(site.node, site.function, name),))
            for value, site in known.given
        ]
        if default is not None and known.omitted:
            site = known.omitted[0]
            places.append(_left_out(default, function, name, site.node, site.function))
        if known.given or known.omitted:
            return _Back(tuple(places))
        if default is not None:
            outside = function.parent or function.module.body
            places.append(_Before(default, outside, None, Standing.DEFAULT))
        return _Back(tuple(places), False)

    def _passed(
        self, function: Function, name: str, default: ast.expr | None, activation: Activation
    ) -> _Back:
        call, caller = activation.call, activation.caller
        value = _argument(call, function, name)
        if value is not None:
            steps = (_passing(call, caller, name),)
            return _Back((_Before(value, caller, activation.outer, steps=steps),))
        spread = [item.value for item in call.keywords if item.arg is None]
        if spread:
            part = Part(name, True)
            steps = (_passing(call, caller, name),)
            before = _Before(spread[0], caller, activation.outer, steps=steps, part=part)
            return self._with_default([before], default, function, name, activation)
        if default is None or any(isinstance(item, ast.Starred) for item in call.args):
            return _Back((), False)
        return _Back((_left_out(default, function, name, call, caller),))

    def _with_default(
        self,
        places: list[_Before],
        default: ast.expr | None,
        function: Function,
        name: str,
        activation: Activation,
    ) -> _Back:
        found = [self._behind(place, None) for place in places]
        if all(item.complete and item.origins for item in found) or default is None:
            return _Back(tuple(places))
        left = _left_out(default, function, name, activation.call, activation.caller)
        complete = all(item.complete for item in found)
        return _Back((*places, replace(left, standing=Standing.DEFAULT)), complete)

    # -- attributes and elements ---------------------------------------------------------------

    def _part_of(
        self, expression: ast.expr, part: Part, function: Function, activation: Activation | None
    ) -> Found:
        owner = enclosing_class(function)
        is_self = isinstance(expression, ast.Name) and expression.id in ("self", "cls")
        if is_self and owner is not None and not part.is_item:
            return self._own_field(owner, str(part.key), function, activation)
        found, rest = self._written(expression, part, function, activation)
        if rest is None:
            return found
        back = self._back(expression, function, activation)
        if back is None:
            below = self._part_of_origin(Origin(expression, function, activation), part)
        else:
            below = self._follow(back, part)
        if not below.origins and not below.complete:
            below = self._annotated(expression, part, function)
        return _joined([(below, rest, ())], True, found)

    def _written(
        self, expression: ast.expr, part: Part, function: Function, activation: Activation | None
    ) -> tuple[Found, Standing | None]:
        """What `cfg.dtype = ...` and `cfg["dtype"] = ...` set on a path in sight."""
        path = path_text(expression)
        if path is None:
            return Found(), Standing.FIXED
        path += str(part)
        root = path.partition(".")[0].partition("[")[0]
        for scope in scopes(function, function.module):
            if root not in parameters(scope) and root not in bindings_of(scope):
                continue
            inner = activation if activation is not None and activation.callee is scope else None
            written = bindings_of(scope).get(path, [])
            use = expression if scope is function else None
            bound, rest = self._bound(written, use, scope, inner, path)
            return self._follow(bound, None) if bound.places else Found((), bound.complete), rest
        return Found(), Standing.FIXED

    def _annotated(self, expression: ast.expr, part: Part, function: Function) -> Found:
        """Defaults of the class that annotates a parameter nobody in sight fills."""
        if not isinstance(expression, ast.Name) or part.is_item:
            return UNKNOWN
        for scope in scopes(function, function.module):
            annotation = parameters(scope).get(expression.id, (None, None))[0]
            if annotation is None:
                continue
            owner = self.objects.symbol(plain_annotation(annotation), scope)
            if isinstance(owner, Class):
                found = self._class_field(owner, str(part.key))
                return _joined([(found, Standing.DEFAULT, ())], False)
        return UNKNOWN

    def _own_field(
        self, owner: Class, name: str, function: Function, activation: Activation | None
    ) -> Found:
        """What `self.name` is inside a method."""
        inside = activation is not None and activation.callee is function
        if activation is not None and inside and activation.constructs:
            made = Origin(activation.call, activation.caller, activation.outer)
            found = self._field_of_new(owner, made, name)
            if found is not None:
                return found
        return self._field(owner, name, {})

    def _field(self, owner: Class, name: str, calls: dict[Function, Activation]) -> Found:
        """What an attribute of objects of a class is, from all its methods.

        Args:
            calls: for which call a method (`__init__`) is seen.
        """
        results: list[tuple[Found, Standing, tuple[Step, ...]]] = []
        rest: Standing | None = Standing.FIXED
        family = [*self.objects.ancestry(owner), *owner.module.subclasses(owner)]
        for item in family:
            prop = item.methods.get(name)
            if prop is not None:
                return self._property(prop, calls)
            for method in item.methods.values():
                written = bindings_of(method).get(f"self.{name}", [])
                if not written:
                    continue
                bound, left = self._bound(written, None, method, calls.get(method), f"self.{name}")
                results.append((self._follow(bound, None), Standing.FIXED, ()))
                if method.name == "__init__" and item in family[:1]:
                    rest = left
        if rest is not None:
            results += (
                (self._class_field(item, name), rest, ()) for item in family if _has(item, name)
            )
        return _joined(results, bool(results))

    def _property(self, prop: Function, calls: dict[Function, Activation]) -> Found:
        if not any(
            last_name(item) in ("property", "cached_property")
            for item in getattr(prop.node, "decorator_list", ())
        ):
            return UNKNOWN
        made = next(iter(calls.values()), None)
        if made is not None:
            back = self._back_of_returns(replace(made, callee=prop))
            return self._follow(back, None) if back is not None else UNKNOWN
        places = (_Before(value, prop, None, Standing.CHOICE) for value in returned(prop))
        return self._follow(_Back(tuple(places)), None)

    def _class_field(self, owner: Class, name: str) -> Found:
        """What the class body says: a constant, or the default of a dataclass field."""
        for item in self.objects.ancestry(owner):
            for binding in reversed(class_fields(item).get(name, [])):
                if binding.value is None:
                    return UNKNOWN
                value = _field_default(binding.value)
                if value is None:
                    return UNKNOWN
                words = f"`{item.name}.{name}` is `{_short(value)}` by default"
                step = Step(binding.statement, item.module, words)
                return _joined([(self.of(value, item.module.body), Standing.FIXED, (step,))], True)
        return UNKNOWN

    def _part_of_origin(self, origin: Origin, part: Part) -> Found:
        """A part of a value, from the expression that created it."""
        here = (origin.function, origin.activation)
        node = origin.expression
        if origin.data is not NO_DATA:
            return _part_of_data(origin, part)
        if isinstance(node, ast.Dict):
            return self._entry(node, part, *here)
        if isinstance(node, (ast.List, ast.Tuple)):
            return self._element(node, part, *here)
        if isinstance(node, ast.Constant):  # a member of an Enum
            return self.of(node, *here) if part.key == "value" else UNKNOWN
        if isinstance(node, (ast.Name, ast.Attribute)):
            symbol = self.objects.symbol(node, origin.function)
            if not isinstance(symbol, Class):
                return self._imported(node, part, origin.function)
            found = self._class_field(symbol, str(part.key))
            return _filled(found) if origin.from_command_line else found
        if isinstance(node, ast.Call):
            return self._part_of_call(node, origin, part)
        return UNKNOWN

    def _imported(self, node: ast.expr, part: Part, function: Function) -> Found:
        """A module's constant: `config.AMP`."""
        if part.is_item or function.module.resolve(node) is None:
            return UNKNOWN
        attribute = self._synthetic(node, part)
        bindings = self.objects.bindings(attribute, function)
        if not bindings:
            return UNKNOWN
        bound, _ = self._bound(bindings, None, bindings[0].function, None, str(part.key))
        return self._follow(bound, None)

    def _synthetic(self, node: ast.expr, part: Part) -> ast.expr:
        if node not in self._made:
            made = ast.Attribute(node, str(part.key), ast.Load())
            self._made[node] = ast.copy_location(made, node)
        known = self._made[node]
        assert isinstance(known, ast.Attribute)
        if known.attr != part.key:
            return ast.copy_location(ast.Attribute(node, str(part.key), ast.Load()), node)
        return known

    def _entry(
        self, node: ast.Dict, part: Part, function: Function, activation: Activation | None
    ) -> Found:
        results: list[tuple[Found, Standing, tuple[Step, ...]]] = []
        complete = True
        for key, value in reversed(list(zip(node.keys, node.values))):
            if key is None:
                inner = self.part_of(value, part, function, activation)
                results.append((inner, Standing.FIXED, ()))
                if inner.complete and inner.origins and part.key is not ...:
                    break
                continue
            known = self._keys(key, function, activation)
            if part.key is ...:
                inner = _if_index_is(self.of(value, function, activation), part, key)
                results.append((inner, Standing.CHOICE, ()))
            elif known is None:
                complete = False
            elif part.key in known:
                results.append((self.of(value, function, activation), Standing.FIXED, ()))
                break
        return _joined(results, complete)

    def _element(
        self,
        node: ast.List | ast.Tuple,
        part: Part,
        function: Function,
        activation: Activation | None,
    ) -> Found:
        if any(isinstance(item, ast.Starred) for item in node.elts):
            return UNKNOWN
        if part.key is ...:
            each = [self.of(item, function, activation) for item in node.elts]
            return _joined([(found, Standing.CHOICE, ()) for found in each], True)
        if isinstance(part.key, int) and -len(node.elts) <= part.key < len(node.elts):
            return self.of(node.elts[part.key], function, activation)
        return UNKNOWN

    # -- parts of what calls return ------------------------------------------------------------

    def _part_of_call(self, call: ast.Call, origin: Origin, part: Part) -> Found:
        here = (origin.function, origin.activation)
        name = last_name(call.func)
        dotted = origin.function.module.resolve(call.func)
        symbol = self.objects.symbol(call.func, origin.function)
        if isinstance(symbol, Class):
            if part.is_item:
                return UNKNOWN
            found = self._field_of_new(symbol, origin, str(part.key))
            return found if found is not None else UNKNOWN
        if isinstance(call.func, ast.Attribute) and name in _PARSE:
            if part.is_item:
                return self.of(call, *here) if part.key == 0 else UNKNOWN
            return self._option(call, str(part.key), *here)
        if name == "parse_args_into_dataclasses":
            return self._parsed_class(call, part, *here)
        if dotted in _CLASS_PARSERS and call.args:
            filled = Origin(call.args[0], *here, from_command_line=True)
            return self._part_of_origin(filled, part)
        if datafiles.loads_data(dotted):
            return self._data(call, dotted, origin, part)
        if name == "replace" and call.args:
            return self._replaced(call, part, *here)
        return self._held(call, part, *here)

    def _held(
        self, call: ast.Call, part: Part, function: Function, activation: Activation | None
    ) -> Found:
        """Parts of containers, copies and wrapped modules."""
        name = last_name(call.func)
        first = call.args[0] if call.args else None
        if name in SAME_OBJECT and isinstance(call.func, ast.Attribute):
            return self.part_of(call.func.value, part, function, activation)
        if name == "prepare" and part.is_item and isinstance(part.key, int):
            given = call.args[part.key : part.key + 1]
            return self.of(given[0], function, activation) if given else UNKNOWN
        if name in WRAPPERS and first is not None:
            return self.part_of(first, part, function, activation)
        if name in _COPIES and first is not None:
            kind = Part(part.key, False) if name in ("vars", "asdict") else part
            return self.part_of(first, kind, function, activation)
        if name not in _HOLDERS:
            return UNKNOWN
        for item in call.keywords:
            if item.arg is not None and item.arg == part.key:
                return self.of(item.value, function, activation)
        spread = [item.value for item in call.keywords if item.arg is None]
        inner = spread or call.args[:1]
        if not inner:
            return UNKNOWN
        is_item = part.is_item or isinstance(inner[0], (ast.Dict, ast.Name)) or bool(spread)
        found = self.part_of(inner[0], Part(part.key, is_item), function, activation)
        if found.origins or part.is_item:
            return found
        return self.part_of(inner[0], part, function, activation)

    def _replaced(
        self, call: ast.Call, part: Part, function: Function, activation: Activation | None
    ) -> Found:
        """`dataclasses.replace(cfg, dtype=...)`."""
        for item in call.keywords:
            if item.arg == part.key:
                return self.of(item.value, function, activation)
        return self.part_of(call.args[0], part, function, activation)

    def _field_of_new(self, owner: Class, made: Origin, name: str) -> Found | None:
        """A field of the object that one constructor call makes; None if nothing is known."""
        call = made.expression
        assert isinstance(call, ast.Call)
        init = self.objects.method(owner, "__init__")
        if init is not None:
            if made.activation is not None and made.activation.depth >= CALL_DEPTH:
                return None
            inner = Activation(init, call, made.function, made.activation, constructs=True)
            return self._field(owner, name, {init: inner})
        if not any(_has(item, name) for item in self.objects.ancestry(owner)):
            prop = self.objects.method(owner, name)
            if prop is None:
                return None
            inner = Activation(prop, call, made.function, made.activation, constructs=True)
            return self._property(prop, {prop: inner})
        return self._field_given(owner, made, name)

    def _field_given(self, owner: Class, made: Origin, name: str) -> Found:
        """A field of a dataclass and its like: what the call passes, else the default."""
        call = made.expression
        assert isinstance(call, ast.Call)
        here = (made.function, made.activation)
        value = _field_argument(call, self._field_names(owner), name)
        after = self._written_after(owner, made, name)
        if value is not None:
            step = _passing(call, made.function, name)
            return _joined([(self.of(value, *here), Standing.FIXED, (step,)), *after], True)
        spread = [item.value for item in call.keywords if item.arg is None]
        words = f"`{last_name(call.func)}(...)` leaves `{name}` at its default"
        step = Step(call, made.function.module, words)
        default = (self._class_field(owner, name), Standing.FIXED, (step,))
        if not spread:
            return _joined([default, *after], True)
        given = self.part_of(spread[0], Part(name, True), *here)
        if given.origins and given.complete:
            return given
        weak = (default[0], Standing.DEFAULT, default[2])
        return _joined([(given, Standing.FIXED, ()), weak, *after], given.complete)

    def _written_after(
        self, owner: Class, made: Origin, name: str
    ) -> list[tuple[Found, Standing, tuple[Step, ...]]]:
        """What `__post_init__` puts into a field."""
        post = self.objects.method(owner, "__post_init__")
        written = bindings_of(post).get(f"self.{name}", []) if post is not None else []
        if post is None or not written:
            return []
        call = made.expression
        assert isinstance(call, ast.Call)
        bound, _ = self._bound(written, None, post, None, f"self.{name}")
        return [(self._follow(bound, None), Standing.CHOICE, ())]

    def _field_names(self, owner: Class) -> list[str]:
        """Fields in the order of the generated constructor."""
        names: dict[str, None] = {}
        for item in reversed(self.objects.ancestry(owner)):
            for statement in item.node.body:
                if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                    names.setdefault(statement.target.id)
        return list(names)

    # -- command lines and files ---------------------------------------------------------------

    def _option(
        self, call: ast.Call, name: str, function: Function, activation: Activation | None
    ) -> Found:
        """A name of the namespace that `parser.parse_args()` returns."""
        modules = self._declaring(call, function, activation)
        found = options.argparse_options(modules, name)
        stored = options.stored_defaults(modules, name)
        if not found and not stored:
            return self._added_class(modules, name)
        results: list[tuple[Found, Standing, tuple[Step, ...]]] = [
            (self.of(value, where), Standing.DEFAULT, ()) for value, where in stored
        ]
        for option in found:
            results.append((self._follow(_option_values(option), None), Standing.DEFAULT, ()))
        return _joined(results, True)

    def _added_class(self, modules: list[Module], name: str) -> Found:
        """`parser.add_arguments(Config, dest="cfg")` of simple_parsing."""
        for site in (site for module in modules for site in module.calls):
            if site.method != "add_arguments" or not site.node.args:
                continue
            given = {item.arg: constant_of(item.value) for item in site.node.keywords}
            if given.get("dest") == name:
                filled = Origin(site.node.args[0], site.function, from_command_line=True)
                return Found((filled,))
        return UNKNOWN

    def _declaring(
        self, call: ast.Call, function: Function, activation: Activation | None
    ) -> list[Module]:
        """Files that may declare the options of a parser: where it is made and handed to."""
        modules = [function.module]
        if isinstance(call.func, ast.Attribute):
            for origin in self.of(call.func.value, function, activation).origins:
                modules.append(origin.function.module)
        for site in function.module.calls:
            if any("parser" in last_name(argument).lower() for argument in site.node.args):
                callee = self.objects.callee(site.node, site.function)
                if callee is not None:
                    modules.append(callee.module)
        return list(dict.fromkeys(modules))

    def _parsed_class(
        self, call: ast.Call, part: Part, function: Function, activation: Activation | None
    ) -> Found:
        """One of the objects of `HfArgumentParser((A, B)).parse_args_into_dataclasses()`."""
        if not part.is_item or not isinstance(call.func, ast.Attribute):
            return UNKNOWN
        results: list[tuple[Found, Standing, tuple[Step, ...]]] = []
        for origin in self.of(call.func.value, function, activation).origins:
            made = origin.expression
            if not isinstance(made, ast.Call) or not made.args:
                continue
            classes = made.args[0]
            many = classes.elts if isinstance(classes, (ast.Tuple, ast.List)) else [classes]
            if isinstance(part.key, int) and part.key < len(many):
                filled = replace(origin, expression=many[part.key], from_command_line=True)
                results.append((Found((filled,)), Standing.DEFAULT, ()))
        return _joined(results, bool(results))

    def _data(self, call: ast.Call, dotted: str | None, origin: Origin, part: Part) -> Found:
        """An entry of a JSON or TOML file that is read under a constant path."""
        here = (origin.function, origin.activation)
        if not call.args:
            return UNKNOWN
        results: list[tuple[Found, Standing, tuple[Step, ...]]] = []
        for source in self.of(call.args[0], *here).origins:
            node = source.expression
            path = datafiles.path_argument(node) if isinstance(node, ast.Call) else None
            known = self._keys(path, source.function, source.activation) if path else None
            for name in known or ():
                found = self._file_entry(str(name), dotted, replace(origin, expression=call), part)
                results.append((found, Standing.FIXED, ()))
        return _joined(results, bool(results))

    def _file_entry(self, path: str, dotted: str | None, origin: Origin, part: Part) -> Found:
        module = origin.function.module
        try:
            data = datafiles.content_of(path, dotted, module, self.objects.project)
        except datafiles.NoData:
            return UNKNOWN
        return _part_of_data(replace(origin, data=data, steps=()), part)


_IMPORTS = (ast.Import, ast.ImportFrom)
_ELSEWHERE = (ast.Global, ast.Nonlocal)


def _same_object(expression: ast.expr) -> ast.expr | None:
    """`net` of `net.to(device)`, `DistributedDataParallel(net)` and `accelerator.prepare(net)`."""
    if not isinstance(expression, ast.Call):
        return None
    name = last_name(expression.func)
    if name in SAME_OBJECT and isinstance(expression.func, ast.Attribute):
        return expression.func.value
    return expression.args[0] if name in WRAPPERS and len(expression.args) >= 1 else None


def conditions_at(
    node: ast.AST, function: Function, use: ast.AST | None = None
) -> tuple[Condition, ...]:
    """The conditions under which control reaches a node: tests around it, exits before it.

    Args:
        use: tests that also hold this node do not count.
    """
    layout = layout_of(function)
    if node not in layout:
        return ()
    found: list[Condition] = []
    inner: ast.AST = node
    for outer in layout.ancestors(node):
        if use is not None and use in layout and layout.holds(outer, use):
            break
        for block in (getattr(outer, "body", None), getattr(outer, "orelse", None)):
            if isinstance(block, list) and inner in block:
                found += _exits_before(block[: block.index(inner)], function)
        if isinstance(outer, (ast.If, ast.IfExp)) and inner is not outer.test:
            in_body = inner is outer.body if isinstance(outer, ast.IfExp) else inner in outer.body
            found.append(Condition(outer.test, in_body, function))
        inner = outer
    return tuple(found)


def _exits_before(statements: list[ast.stmt], function: Function) -> Iterator[Condition]:
    """`if done: return`, `if done: ... continue`: behind it the test was false."""
    for statement in statements:
        if not isinstance(statement, ast.If) or statement.orelse:
            continue
        if isinstance(statement.body[-1], EXITS):
            yield Condition(statement.test, False, function)


def _equals(left: ast.expr, right: ast.expr, function: Function) -> Condition:
    test = ast.Compare(left, [ast.Eq()], [right])
    return Condition(ast.fix_missing_locations(ast.copy_location(test, left)), True, function)


def _literal(content: object) -> ast.expr:
    """A constant as an expression; whatever has no literal becomes its text."""
    if content is None or isinstance(content, (str, bytes, bool, int, float)):
        return ast.Constant(content)
    return ast.Constant(str(content))


def _if_index_is(found: Found, part: Part, key: ast.expr) -> Found:
    """What an entry of a table gives if the unknown index is its key."""
    if part.index is None:
        return found
    index, function = part.index
    condition = _equals(index, key, function)
    origins = (item.then(Standing.CHOICE, (), (condition,)) for item in found.origins)
    return Found(tuple(origins), found.complete)


def _is_limit(call: ast.Call) -> bool:
    """`torch.finfo(...)`: its attributes are constants."""
    return last_name(call.func) == "finfo"


def _plain(bindings: Iterable[Binding]) -> list[Binding]:
    return [item for item in bindings if not isinstance(item.statement, _ELSEWHERE)]


def _writers(module: Module, name: str) -> Iterator[Function]:
    """Functions that declare a name `global`."""
    for function in module.functions:
        found = bindings_of(function).get(name, ())
        if any(isinstance(item.statement, ast.Global) for item in found):
            yield function


def reaching(
    bindings: Sequence[Binding], use: ast.AST | None, scope: Function
) -> list[Sequence[Binding]]:
    """The bindings that may have run when a name is used, the nearest ones last.

    Returns:
        Those before the use, and those that an earlier round of a loop has left if there are any.
    """
    layout = layout_of(scope)
    if use is None or use not in layout:
        return [bindings]
    loops = layout.loops(use)
    earlier: list[Binding] = []
    later: list[Binding] = []  # in an earlier round of a loop
    renewed = False
    for item in bindings:
        place = item.statement
        if place not in layout:
            earlier.append(item)
            continue
        if layout.holds(place, use) and not isinstance(place, (ast.For, ast.AsyncFor)):
            continue
        around = layout.loops(place)
        if layout.before(place, use) or layout.holds(place, use):
            if not layout.exclusive(place, use) or set(loops) & set(around):
                earlier.append(item)
            every_round = bool(loops) and loops[0] in around
            renewed = renewed or (every_round and not conditions_at(place, scope, use))
        elif set(loops) & set(around):
            later.append(item)
    return [earlier] if renewed or not later else [earlier, later]


def _before(binding: Binding, name: str, activation: Activation | None) -> _Before | None:
    """The expression that a binding takes its value from; None where that is no expression."""
    if binding.value is not None:
        return _Before(binding.value, binding.function, activation)
    statement = binding.statement
    if isinstance(statement, ast.withitem):
        return _Before(statement.context_expr, binding.function, activation)
    if isinstance(statement, (ast.For, ast.AsyncFor)) and path_text(statement.target) == name:
        return _Before(statement.iter, binding.function, activation, part=Part(..., True))
    if isinstance(statement, ast.Assign):
        for target in statement.targets:
            index = _position(target, name)
            if index is not None:
                part = Part(index, True)
                return _Before(statement.value, binding.function, activation, part=part)
    return None


def _position(target: ast.expr, name: str) -> int | None:
    """The index of a name among the targets of an unpacking."""
    if not isinstance(target, (ast.Tuple, ast.List)):
        return None
    for index, item in enumerate(target.elts):
        if isinstance(item, ast.Starred):
            return None
        if path_text(item) == name:
            return index
    return None


def _argument(call: ast.Call, function: Function, name: str) -> ast.expr | None:
    for item in call.keywords:
        if item.arg == name:
            return item.value
    names = [word for word in parameters(function) if word not in ("self", "cls")]
    for word, argument in zip(names, call.args):
        if isinstance(argument, ast.Starred):
            return None
        if word == name:
            return argument
    return None


def _field_argument(call: ast.Call, fields: list[str], name: str) -> ast.expr | None:
    for item in call.keywords:
        if item.arg == name:
            return item.value
    return dict(zip(fields, call.args)).get(name)


def _field_default(value: ast.expr) -> ast.expr | None:
    """The default in `field(default=x)`, `Field(x)`, `attr.ib(default=x)`, else the value."""
    if not isinstance(value, ast.Call):
        return value
    if last_name(value.func) not in ("field", "Field", "ib", "attrib", "attr", "arg", "choice"):
        return value
    given = {item.arg: item.value for item in value.keywords}
    factory = given.get("default_factory") or given.get("factory")
    if isinstance(factory, ast.Lambda):
        return factory.body
    if factory is not None:
        return ast.copy_location(ast.Call(factory, [], []), factory)
    return given.get("default") or (value.args[0] if value.args else None)


def _option_values(option: options.Option) -> _Back:
    """What an option may be: its default, and what a user may give."""
    places = []
    complete = option.flag is not None or option.switch
    if option.default is not None:
        places.append(_Before(option.default, option.function, None, Standing.DEFAULT))
    given = [option.flag] if option.flag is not None else []
    if option.switch:
        given = [value for value in (True, False) if constant_of(option.default) is not value]
    for value in given:
        made = ast.copy_location(ast.Constant(value), option.call)
        step = Step(option.call, option.function.module, f"the option can be {value}")
        places.append(_Before(made, option.function, None, Standing.CHOICE, (step,)))
    if option.choices is not None:
        part = Part(..., True)
        places.append(_Before(option.choices, option.function, None, Standing.CHOICE, (), part))
        complete = True
    return _Back(tuple(places), complete)


def _filled(found: Found) -> Found:
    """A field that a command line may fill: its default stands unless somebody chooses."""
    switches = [
        replace(
            item,
            expression=ast.copy_location(ast.Constant(not item.expression.value), item.expression),
            standing=Standing.CHOICE,
        )
        for item in found.origins
        if isinstance(item.expression, ast.Constant) and isinstance(item.expression.value, bool)
    ]
    defaults = [item.then(Standing.DEFAULT, ()) for item in found.origins]
    return Found((*defaults, *switches), bool(switches) and found.complete)


def _part_of_data(origin: Origin, part: Part) -> Found:
    data = origin.data
    if isinstance(data, dict) and part.key in data:
        return Found((replace(origin, data=data[part.key]),))
    if isinstance(data, list) and isinstance(part.key, int) and part.key < len(data):
        return Found((replace(origin, data=data[part.key]),))
    return UNKNOWN


def _passing(call: ast.Call, caller: Function, name: str) -> Step:
    words = f"passed as `{name}` of `{last_name(call.func)}`"
    return Step(call, caller.module, words, passes=True)


def same_call(first: Origin, second: Origin) -> bool:
    """Whether two arguments of one function can come from one and the same call of it."""
    calls = [
        next((step.node for step in reversed(item.steps) if step.passes), None)
        for item in (first, second)
    ]
    return None in calls or calls[0] is calls[1]


def _left_out(
    default: ast.expr, function: Function, name: str, call: ast.Call, caller: Function
) -> _Before:
    outside = function.parent or function.module.body
    words = f"`{last_name(call.func)}(...)` leaves `{name}` at its default"
    step = Step(call, caller.module, words)
    return _Before(default, outside, None, steps=(step,))


def _joined(
    results: Iterable[tuple[Found, Standing, tuple[Step, ...]]],
    complete: bool,
    first: Found | None = None,
) -> Found:
    origins = list(first.origins) if first is not None else []
    complete = complete and (first is None or first.complete)
    for found, standing, steps in results:
        complete = complete and found.complete
        origins += (item.then(standing, steps) for item in found.origins)
    return Found(tuple(origins[: _WIDTH * 2]), complete and len(origins) <= _WIDTH * 2)


def _merged(first: _Back, second: _Back) -> _Back:
    return _Back((*first.places, *second.places), first.complete and second.complete)


def _weakened(back: _Back, standing: Standing) -> _Back:
    places = (replace(item, standing=min(item.standing, standing)) for item in back.places)
    return _Back(tuple(places), back.complete)


def _weaker(first: Standing | None, second: Standing | None) -> Standing | None:
    return None if first is None or second is None else min(first, second)


def _stronger(first: Standing | None, second: Standing | None) -> Standing | None:
    if first is None or second is None:
        return first if second is None else second
    return max(first, second)


def _has(owner: Class, name: str) -> bool:
    return name in class_fields(owner)


def _short(value: ast.expr) -> str:
    text = " ".join(ast.unparse(value).split())
    return text if len(text) <= 40 else text[:37] + "..."
