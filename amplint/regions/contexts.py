"""Which autocast a `with` item or decorator is: device type, dtype and switch, wherever built.

`with ctx:` may enter an autocast that another function or file has built, or a `nullcontext`.
The answer is every alternative that definitions show.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from amplint.amp import names
from amplint.amp.dtypes import DType
from amplint.amp.libraries import class_row
from amplint.code.arguments import Kind, Passed, fill, optional, parameters, passed
from amplint.code.dataflow import Binding, bindings_of, scopes
from amplint.code.definitions import returned
from amplint.code.expressions import last_name
from amplint.code.layout import layout_of
from amplint.code.module import Class, Function
from amplint.findings import Standing
from amplint.regions.casts import ANYWHERE, GPU, Cast, Constants, There
from amplint.values.assumptions import Assumptions, name_of
from amplint.values.conditions import conditions_at
from amplint.values.objects import Objects
from amplint.values.provenance import Activation
from amplint.values.values import Value, Values

#: Definitions are followed through this many names, calls and parameters.
DEPTH = 8
#: What a call of an autocast without `dtype` casts to (torch 2.13).
DEFAULT_DTYPES = {"cuda": "float16", "xpu": "float16", "mps": "float16", "cpu": "bfloat16"}
_CONTEXT_FACTORIES = frozenset(("contextmanager", "asynccontextmanager"))


#: None stands for a context that is no autocast, or for an unknown one.
Alternatives = tuple[Cast | None, ...]
UNKNOWN: Alternatives = (None,)


@dataclass(frozen=True, slots=True)
class _Given:
    """Arguments of a call, those of `functools.partial` first, and where each is evaluated."""

    passed: Passed
    places: dict[ast.expr, Function]

    @staticmethod
    def of(arguments: Passed, function: Function) -> _Given:
        """The arguments of one call."""
        every = (*arguments.positional, *arguments.named.values())
        return _Given(arguments, dict.fromkeys(every, function))

    def before(self, later: _Given) -> _Given:
        """These arguments, then later ones that win."""
        return _Given(self.passed.then(later.passed), self.places | later.places)


class Contexts:
    """Resolves context expressions.

    Args:
        objects: what expressions stand for.
        values: which constants expressions are.
    """

    def __init__(self, objects: Objects, values: Values) -> None:
        self.objects = objects
        self.values = values
        self._known: dict[tuple[ast.expr, Function], Alternatives] = {}
        self._depth = 0

    def alternatives(self, expression: ast.expr, function: Function) -> Alternatives:
        """Every autocast that an expression may be; None among them for anything else."""
        key = (expression, function)
        if key not in self._known:
            self._known[key] = UNKNOWN  # a definition that needs itself ends here
            self._known[key] = self._context(expression, function)
        return self._known[key]

    # -- what an expression is ---------------------------------------------------------------

    def _context(self, expression: ast.expr, function: Function) -> Alternatives:
        if isinstance(expression, ast.IfExp):
            return self._either(expression, function, self.alternatives)
        if isinstance(expression, ast.BoolOp):
            return self._joined(expression, function)
        if isinstance(expression, ast.NamedExpr):
            return self.alternatives(expression.value, function)
        if isinstance(expression, ast.Call):
            given = _Given.of(passed(expression), function)
            return self._called(expression.func, function, given, expression)
        if isinstance(expression, (ast.Name, ast.Attribute)):
            found = self._bound(expression, function, self.alternatives)
            if any(is_property(item) for item in self.objects.bindings(expression, function) or ()):
                return found
            return tuple(None if item is None else replace(item, kept=True) for item in found)
        return UNKNOWN

    def _joined(self, expression: ast.BoolOp, function: Function) -> Alternatives:
        """What `or` and `and` may give; `and` gives a context, which is true, only at its end."""
        *before, last = (self.alternatives(value, function) for value in expression.values)
        drops = isinstance(expression.op, ast.And)
        kept = (item for part in before for item in part if item is None or not drops)
        return (*kept, *last)

    def _either(
        self,
        expression: ast.IfExp,
        function: Function,
        resolve: Callable[[ast.expr, Function], Alternatives],
    ) -> Alternatives:
        """The sides of a conditional expression that its test may choose, each under that."""
        test = expression.test
        sides = (
            (True, expression.body, ast.unparse(test)),
            (False, expression.orelse, _negated(test)),
        )
        truth = self.values.truth(test, function)
        found: list[Cast | None] = []
        for chosen, side, text in sides:
            for item in resolve(side, function) if chosen in truth else ():
                if item is not None and not item.condition:
                    item = replace(item, condition=text)
                found.append(item)
        return tuple(found)

    def _bound(
        self,
        expression: ast.expr,
        function: Function,
        resolve: Callable[[ast.expr, Function], Alternatives],
    ) -> Alternatives:
        """What the definitions of a name or attribute, or the callers of its function, give."""
        if isinstance(expression, ast.Name):
            for scope in scopes(function, function.module):
                if expression.id in parameters(scope):
                    return self._passed(expression.id, scope, resolve)
        found: list[Cast | None] = []
        bindings = self.objects.bindings(expression, function) or []
        for binding in bindings:
            if binding.value is None:
                found.append(None)
                continue
            for item in resolve(binding.value, binding.function):
                if item is not None and not item.condition and len(bindings) > 1:
                    item = replace(item, condition=_test_around(binding.value, binding.function))
                found.append(item)
        return tuple(found) or UNKNOWN

    def _passed(
        self,
        name: str,
        function: Function,
        resolve: Callable[[ast.expr, Function], Alternatives],
    ) -> Alternatives:
        known = self.objects.arguments(function, name)
        values = [(value, site.function) for value, site in known.given]
        default = parameters(function)[name].default
        if default is not None and (known.omitted or not values):
            values.append((default, function))
        return tuple(item for value in values for item in resolve(*value)) or UNKNOWN

    # -- what a call gives -------------------------------------------------------------------

    def _called(
        self, callee: ast.expr, function: Function, given: _Given, call: ast.expr
    ) -> Alternatives:
        if self._depth > DEPTH:
            return UNKNOWN
        self._depth += 1
        try:
            return self._find_called(callee, function, given, call)
        finally:
            self._depth -= 1

    def _find_called(
        self, callee: ast.expr, function: Function, given: _Given, call: ast.expr
    ) -> Alternatives:
        dotted = function.module.resolve(callee)
        if dotted in names.AUTOCASTS:
            built = self._built(str(dotted), given, call, function)
            return UNKNOWN if _raises(str(dotted), given.passed) else (built,)
        if dotted is not None and dotted.startswith("torch."):
            return UNKNOWN
        if isinstance(callee, ast.IfExp):
            return self._either(
                callee, function, lambda part, where: self._called(part, where, given, call)
            )
        if isinstance(callee, ast.Lambda):
            return self.alternatives(callee.body, function)
        if isinstance(callee, ast.Call):
            return self._made(callee, function, given, call)
        known = self.objects.symbol(callee, function)
        if known is None and isinstance(callee, ast.Attribute) and isinstance(call, ast.Call):
            known = self.objects.callee(call, function) if call.func is callee else None
        if isinstance(known, Function):
            return self._returned(known, call, function)
        if isinstance(known, Class):
            return self._instance(known, given, call, function)
        if isinstance(callee, (ast.Name, ast.Attribute)):
            if self._is_defined(callee, function):
                return self._bound(
                    callee, function, lambda value, where: self._called(value, where, given, call)
                )
            if dotted is None and "autocast" in last_name(callee).lower():
                # `accelerator.autocast()`; an import that is not found is another library's
                standing = self._standing_of_method(callee, function)
                return (Cast(call, function, enabled=None, standing=standing),)
        return UNKNOWN

    def _standing_of_method(self, callee: ast.expr, function: Function) -> Standing:
        """How it is known that a method called `autocast` opens one: a library's does."""
        if not isinstance(callee, ast.Attribute):
            return Standing.GUESS
        origins = self.objects.origins.of(callee.value, function).origins
        known = any(
            isinstance(item.expression, ast.Call)
            and class_row(item.function.module.resolve(item.expression.func)) is not None
            for item in origins
        )
        return Standing.LIBRARY if known else Standing.GUESS

    def _is_defined(self, callee: ast.expr, function: Function) -> bool:
        """Whether the project says what a name or attribute is."""
        if isinstance(callee, ast.Name):
            for scope in scopes(function, function.module):
                if callee.id in parameters(scope):
                    known = self.objects.arguments(scope, callee.id)
                    return bool(known.given or parameters(scope)[callee.id].default)
        return bool(self.objects.bindings(callee, function))

    def _made(
        self, maker: ast.Call, function: Function, given: _Given, call: ast.expr
    ) -> Alternatives:
        """`partial(autocast, "cuda")()` and `get_autocast(precision)()`."""
        if last_name(maker.func) == "partial" and maker.args:
            earlier = _Given.of(passed(maker).after(1), function)
            return self._called(maker.args[0], function, earlier.before(given), call)
        known = self.objects.callee(maker, function)
        if known is None:
            return UNKNOWN
        values = returned(known)
        found = [item for value in values for item in self._called(value, known, given, call)]
        return tuple(found) or UNKNOWN

    def _instance(
        self, owner: Class, given: _Given, call: ast.expr, function: Function
    ) -> Alternatives:
        bases = self.objects.base_names(owner) & names.AUTOCASTS
        if not bases or self.objects.method(owner, "__init__") is not None:
            return UNKNOWN if not bases else (Cast(call, function, enabled=None),)
        return (self._built(min(bases), given, call, function),)

    def _returned(self, known: Function, call: ast.expr, caller: Function) -> Alternatives:
        if any(last_name(_plain(item)) in _CONTEXT_FACTORIES for item in _decorators(known)):
            return self.around_yield(known, call, caller) or UNKNOWN
        found: list[Cast | None] = []
        for value in returned(known):
            if self._is_turned_down(value, known, call, caller):
                continue
            test = _test_around(value, known)
            for item in self._handed(value, known, call, caller):
                if item is not None and not item.condition and item.function is known:
                    item = replace(item, condition=test)
                found.append(item)
        return tuple(found) or UNKNOWN

    def _handed(
        self, value: ast.expr, known: Function, call: ast.expr, caller: Function
    ) -> Alternatives:
        """What an expression of a function gives where one call runs that: `autocast("cuda", **kw)`.

        What the call does not pass by `kw` is left out there.
        """
        words = next((each for each in parameters(known).values() if each.kind is Kind.WORDS), None)
        if words is None or not isinstance(value, ast.Call) or not isinstance(call, ast.Call):
            return self.alternatives(value, known)
        inner, outer = passed(value), self.objects.bind(call, caller, known)
        names_it = [isinstance(each, ast.Name) and each.id == words.name for each in inner.spread]
        is_sure = names_it == [True] and not passed(call).spread and not outer.refused
        if not is_sure or words.name in bindings_of(known):
            return self.alternatives(value, known)
        own = _Given.of(replace(inner, spread=()), known)
        by_word = _Given.of(Passed(named=outer.words), caller)
        return self._called(value.func, known, own.before(by_word), value)

    def _is_turned_down(
        self, value: ast.expr, known: Function, call: ast.expr, caller: Function
    ) -> bool:
        """Whether a test before a returned value fails for what one call passes."""
        if not isinstance(call, ast.Call):
            return False
        activation, tests = Activation(known, call, caller), conditions_at(value, known)
        return any(
            test.side not in self.values.truth(test.test, known, activation) for test in tests
        ) or (bool(tests) and self._facts(known, call, caller).holds(tests) is False)

    def _facts(self, known: Function, call: ast.Call, caller: Function) -> Assumptions:
        """What the tests around a call say about the parameters of the function that it runs."""
        facts = Assumptions.of(self.values, conditions_at(call, caller))
        here = Assumptions(self.values)
        for parameter, given in self.objects.bind(call, caller, known).given.items():
            name = name_of(given)
            if name in facts.known:
                here.known[parameter] = facts.known[name]
            if name in facts.excluded:
                here.excluded[parameter] = facts.excluded[name]
        return here

    def around_yield(self, known: Function, call: ast.expr, caller: Function) -> Alternatives:
        """The autocasts that are on while a call of a generator waits, one for each `yield`."""
        layout = layout_of(known)
        found: list[Cast | None] = []
        for node in layout.nodes:
            if not isinstance(node, ast.Yield):
                continue
            blocks = [n for n in layout.ancestors(node) if isinstance(n, (ast.With, ast.AsyncWith))]
            items = [item.context_expr for block in blocks for item in block.items]
            handed = [each for item in items for each in self._handed(item, known, call, caller)]
            found.append(next((each for each in handed if each is not None), None))
        return tuple(found)

    # -- arguments ---------------------------------------------------------------------------

    def _built(self, dotted: str, given: _Given, call: ast.expr, function: Function) -> Cast:
        """The cast that a call of torch's own autocast builds."""
        fixed = dotted.split(".")[1] if dotted in names.DEVICE_AUTOCASTS else ""
        bound = fill(optional(names.parameters_of(dotted)), given.passed)
        arguments = {name: (value, given.places[value]) for name, value in bound.given.items()}
        device = arguments.get("device_type")
        devices: Constants = frozenset((fixed,)) if fixed else self._devices(device)
        switch = arguments.get("enabled")
        states: Constants = None if "enabled" in bound.unknown else frozenset((True,))
        if switch is not None:
            states = self._values(*switch)
        enabled = _only_bool(states)
        condition = ast.unparse(switch[0]) if switch is not None and enabled is None else ""
        caching = arguments.get("cache_enabled")
        caches = "cache_enabled" not in bound.unknown
        if caching is not None:
            caches = self._values(*caching) != frozenset((False,))
        dtype = arguments.get("dtype")
        dtypes = usual = None
        if "dtype" not in bound.unknown:
            there = There.where_on(switch, devices)
            dtypes = self._dtypes(dtype, devices, partial(self._values, there=there))
            usually = self._usual_devices(device, devices, switch)
            there = There.where_on(switch, usually)
            usual = self._dtypes(dtype, usually, partial(self._usual_values, there=there))
        if dtypes is not None and len(dtypes) == 1:
            usual = dtypes
        chosen_by = ast.unparse(dtype[0]) if dtype is not None and usual != dtypes else ""
        return Cast(
            call,
            function,
            devices,
            dtypes,
            enabled,
            condition,
            caches,
            usual=usual,
            chosen_by=chosen_by,
            dtype=dtype,
            switch=switch,
            is_torchs=True,
        )

    def _devices(self, given: tuple[ast.expr, Function] | None) -> Constants:
        """The device types that an autocast may be for."""
        if given is None:
            return None
        known = device_types(self._values(*given))
        return known if known is not None else self._numbered_devices(*given)

    def _numbered_devices(self, expression: ast.expr, function: Function) -> Constants:
        """Device types of which numbers are not known: `f"cuda:{index}"`."""
        found = self.objects.origins.of(_without_type(expression), function)
        kinds: set[object] = set()
        for origin in found.origins:
            place = origin.expression, origin.function
            head = _numbered(*place)
            kind = frozenset((head,)) if head else device_types(self._values(*place))
            if kind is None:
                return None
            kinds |= kind
        return frozenset(kinds) if found.complete and kinds else None

    def _usual_devices(
        self,
        given: tuple[ast.expr, Function] | None,
        devices: Constants,
        switch: tuple[ast.expr, Function] | None,
    ) -> Constants:
        """The devices that a training runs on unless somebody chooses others: a GPU, if it may.

        Not where what switches the autocast on says that there is none.
        """
        if given is None:
            return devices
        if devices is None:
            devices = device_types(self._usual_values(_without_type(given[0]), given[1]))
        if devices is None or not devices >= GPU:
            return devices
        on_gpu = Assumptions(self.values)
        on_gpu.assume(given[0], "cuda", given[1])
        is_off = switch is not None and on_gpu.decides(*switch) is False
        return devices - GPU if is_off else GPU

    def _dtypes(
        self,
        given: tuple[ast.expr, Function] | None,
        devices: Constants,
        values_of: Callable[[ast.expr, Function], Constants],
    ) -> Constants:
        values = values_of(*given) if given is not None else frozenset((None,))
        if values is None:
            return None
        if None in values:
            if devices is None or not devices <= set(DEFAULT_DTYPES):
                return None
            defaults = (DEFAULT_DTYPES[str(device)] for device in devices)
            values = (values - {None}) | frozenset(defaults)
        return frozenset(map(str, values))

    def _values(
        self, expression: ast.expr, function: Function, there: There = ANYWHERE
    ) -> Constants:
        """Every constant that an expression may be; None if one of them is not known.

        A dtype is its name; `device.type` is what `torch.device` was given.
        """
        possible = there.possible(self.values, _without_type(expression), function)
        return _contents(possible.values) if possible.complete else None

    def _usual_values(
        self, expression: ast.expr, function: Function, there: There = ANYWHERE
    ) -> Constants:
        """The constants that an expression is unless somebody chooses otherwise."""
        return _contents(there.possible(self.values, expression, function).by_default())


def _without_type(expression: ast.expr) -> ast.expr:
    """`device` of `device.type`."""
    if isinstance(expression, ast.Attribute) and expression.attr == "type":
        return expression.value
    return expression


def _numbered(expression: ast.expr, function: Function) -> str:
    """The device type of `f"cuda:{index}"` and `"cuda:" + index`; "" of everything else."""
    if isinstance(expression, ast.Call) and expression.args:
        is_device = function.module.resolve(expression.func) == "torch.device"
        return _numbered(expression.args[0], function) if is_device else ""
    heads: list[ast.expr] = []
    if isinstance(expression, ast.JoinedStr):
        heads = expression.values[:1]
    elif isinstance(expression, ast.BinOp) and isinstance(expression.op, ast.Add):
        heads = [expression.left]
    texts = [head.value for head in heads if isinstance(head, ast.Constant)]
    return next((text.partition(":")[0] for text in map(str, texts) if ":" in text), "")


def _contents(values: tuple[Value, ...]) -> Constants:
    """What some values are, a dtype by its name; None where there are none."""
    contents = (value.content for value in values)
    found = frozenset(item.name if isinstance(item, DType) else item for item in contents)
    return found or None


def _raises(dotted: str, given: Passed) -> bool:
    """Whether a call of torch's own autocast raises whatever its values are: nothing is entered."""
    fixed = dotted in names.DEVICE_AUTOCASTS
    if given.spread:
        return False
    has_device = fixed or given.positional or "device_type" in given.named
    return not has_device or not given.named.keys() <= set(names.parameters_of(dotted))


def _only_bool(values: Constants) -> bool | None:
    """The one bool that all possible values are."""
    if values is not None and len(values) == 1:
        return next((value for value in values if isinstance(value, bool)), None)
    return None


def device_types(values: Constants) -> Constants:
    """Device types of device strings: "cuda" for "cuda:0"."""
    if values is None or not all(isinstance(value, str) for value in values):
        return None
    return frozenset(str(value).partition(":")[0] for value in values)


def _test_around(value: ast.expr, function: Function) -> str:
    layout = layout_of(function)
    if value not in layout:
        return ""
    for node in layout.ancestors(value):
        if isinstance(node, ast.If):
            within = any(layout.holds(statement, value) for statement in node.body)
            return ast.unparse(node.test) if within else _negated(node.test)
    return ""


def _negated(test: ast.expr) -> str:
    return ast.unparse(ast.UnaryOp(ast.Not(), test))


def is_property(binding: Binding) -> bool:
    """Whether a binding is what a method returns, evaluated at each use."""
    return isinstance(binding.statement, (ast.FunctionDef, ast.AsyncFunctionDef))


def _decorators(function: Function) -> list[ast.expr]:
    return list(getattr(function.node, "decorator_list", ()))


def _plain(decorator: ast.expr) -> ast.expr:
    return decorator.func if isinstance(decorator, ast.Call) else decorator
