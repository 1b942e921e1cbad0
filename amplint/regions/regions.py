"""Which calls run inside which autocast region, in the function that opens it and in others.

A region is a `with` block, a decorated function, or what stands between `__enter__` and
`__exit__` or behind `enter_context`. A call in it takes the functions that it runs along; an
`autocast(enabled=False)` on the way ends that.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from amplint.amp.value_roles import ValueRoles
from amplint.amp.view import AmpView
from amplint.code.arguments import parameters, receiver_of
from amplint.code.expressions import last_name
from amplint.code.layout import Layout, layout_of
from amplint.code.module import Class, Function, Module
from amplint.code.unbound import is_cut_off
from amplint.findings import Link
from amplint.regions.casts import Cast
from amplint.regions.contexts import Alternatives, Contexts
from amplint.values.assumptions import Assumptions, may_run
from amplint.values.conditions import conditions_at
from amplint.values.objects import Objects
from amplint.values.provenance import Activation, Condition
from amplint.values.values import Values

#: Calls are followed this deep into other functions, and into this many of them.
CALL_DEPTH = 8
FUNCTION_LIMIT = 400

#: A file without one of these words opens no region; "sample" and "example" do not count.
_MAY_OPEN = re.compile(r"autocast|(?<![a-z])amp(?![a-z])|precision|half|mixed", re.IGNORECASE)

Trail = tuple[tuple[ast.Call, Function], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """A part of one function that runs under autocast.

    Args:
        cast: the autocast that may be on there.
        opened: the context expression, decorator or call that opens it.
        function: the function that it lies in.
        parts: statements or expressions of the function that lie in it, in source order.
        conditional: whether the context can also be something else, or switched off.
    """

    cast: Cast
    opened: ast.expr
    function: Function
    parts: tuple[ast.AST, ...]
    conditional: bool

    @property
    def link(self) -> Link:
        """That it is an autocast region, and how that is known."""
        return Link("region", self.cast.standing, ast.unparse(self.opened), "is an autocast")

    @property
    def entered_when(self) -> tuple[Condition, ...]:
        """The tests that have to come out so for it to be entered, with its autocast on."""
        tests = conditions_at(self.opened, self.function)
        if self.cast.switch is None:
            return tests
        switch, place = self.cast.switch
        return (*tests, Condition(switch, True, place))


@dataclass(frozen=True, slots=True, eq=False)
class Inside:
    """A call that runs inside a region.

    Args:
        function: the function that holds the call.
        trail: the calls that lead there from the region, each with the function that holds it;
            empty in the region's own function.
    """

    call: ast.Call
    function: Function
    trail: Trail = ()


@dataclass(frozen=True, slots=True, eq=False)
class _Span:
    """Nodes of a function between opening and closing a context."""

    opened: ast.expr
    parts: tuple[ast.AST, ...]


class Regions:
    """Finds the autocast regions of functions.

    Args:
        objects: what expressions stand for.
        values: which constants expressions are.
    """

    def __init__(self, objects: Objects, values: Values) -> None:
        self.objects = objects
        self.values = values
        self.roles = ValueRoles(objects)
        self.contexts = Contexts(objects, values)
        self._spans: dict[Function, list[tuple[_Span, Alternatives]]] = {}
        self._possible: dict[_Span, Region | None] = {}
        self._chosen: dict[tuple[Region, Cast], Region] = {}
        self._opened: dict[Module, list[Region]] = {}
        self._inside: dict[tuple[Region, Trail, bool], list[Inside]] = {}
        self._parts: dict[tuple[Region, ast.AST], Region] = {}
        self._switches: dict[Cast, ast.expr] = {}
        self._entries: dict[tuple[Trail, Function], tuple[Activation | None, bool]] = {}
        #: Answers of `islands` about whole functions.
        self.multiplying: dict[Function, bool] = {}
        #: Answers of `cached_weights` about expressions and classes.
        self.keepers: dict[ast.expr | Class, bool | None] = {}

    # -- the regions of one function ---------------------------------------------------------

    def of(self, function: Function) -> list[Region]:
        """The regions that a function opens, in source order; its own decorator comes first."""
        return [
            region
            for span, found in self.spans(function)
            if (region := self._region(span, found, function)) is not None
        ]

    def _region(self, span: _Span, found: Alternatives, function: Function) -> Region | None:
        """A span as a region, always the same one: regions are keys. None where it is off."""
        if span not in self._possible:
            self._possible[span] = _as_region(span, found, function)
        return self._possible[span]

    def opened(self, module: Module) -> list[Region]:
        """Every region that a function of a module opens, unless a test in sight never lets it."""
        if module not in self._opened:
            functions = module.functions if _MAY_OPEN.search(module.source) else []
            every = (region for function in functions for region in self.of(function))
            self._opened[module] = [
                region for region in every if may_run(self.values, region.opened, region.function)
            ]
        return self._opened[module]

    def chosen(self, module: Module) -> Iterator[Region]:
        """The regions of a module, once for each autocast that a test may choose for them."""
        for region in self.opened(module):
            for span, found in self.spans(region.function):
                if span.opened is region.opened:
                    for cast in found:
                        if cast and cast.enabled is not False:
                            yield self._with_cast(region, cast)

    def _with_cast(self, region: Region, cast: Cast) -> Region:
        """A region with another autocast, always the same one."""
        key = (region, cast)
        if key not in self._chosen:
            self._chosen[key] = replace(region, cast=cast)
        return self._chosen[key]

    def spans(self, function: Function) -> list[tuple[_Span, Alternatives]]:
        """The parts of a function under contexts that may be autocasts."""
        if function not in self._spans:
            self._spans[function] = [
                (_Span(opened, parts()), found)
                for opened, parts in _openings(function)
                if any(found := self.contexts.alternatives(opened, function))
            ]
            self._spans[function] += self._of_generators(function)
        return self._spans[function]

    def _of_generators(self, function: Function) -> Iterator[tuple[_Span, Alternatives]]:
        """The loops over generators that wait inside an autocast: that of the loop's body, too.

        One that is opened for each element ends with its round of the loop.
        """
        for node in function.nodes:
            if not isinstance(node, (ast.For, ast.AsyncFor)) or not isinstance(node.iter, ast.Call):
                continue
            call = node.iter
            maker = self.objects.callee(call, function)
            found = self.contexts.around_yield(maker, call, function) if maker is not None else ()
            if maker is not None and any(found):
                yields = (item for item in maker.nodes if isinstance(item, ast.Yield))
                is_whole = all(self._waits_for_all(item, maker) for item in yields)
                yield _Span(call, (node,) if is_whole else tuple(node.body)), found

    def _waits_for_all(self, node: ast.Yield, function: Function) -> bool:
        """Whether the outermost autocast around a `yield` is opened before its loops."""
        layout = layout_of(function)
        spans = self.spans_around(node, function)
        before = set(layout.loops(spans[0][0].opened)) if spans else set(layout.loops(node))
        return before.isdisjoint(layout.loops(node))

    def around(self, node: ast.AST, function: Function) -> Region | None:
        """The innermost region of the function that may be on where `node` runs.

        None also where an inner context switches autocast off.
        """
        off: list[Alternatives] = []
        for span, found in reversed(self.spans_around(node, function)):
            if is_off(found):
                off.append(found)
                continue
            region = self._region(span, found, function)
            if region is not None:
                return None if any(_same_device(each, region.cast) for each in off) else region
        return None

    def spans_around(self, node: ast.AST, function: Function) -> list[tuple[_Span, Alternatives]]:
        """The parts of a function under contexts that hold a node, outer ones first."""
        layout = layout_of(function)
        if node not in layout:
            return []
        return [
            (span, found)
            for span, found in self.spans(function)
            if any(layout.holds(part, node) for part in span.parts)
        ]

    # -- what runs inside --------------------------------------------------------------------

    def here(self, region: Region) -> list[Inside]:
        """The calls inside a region that its own function makes."""
        every = (Inside(call, region.function) for call in self._own_calls(region))
        return [item for item in every if not self.is_excluded(region, item.call, item.function)]

    def _own_calls(self, region: Region) -> Iterator[ast.Call]:
        return self._calls(region.function, region.parts, region, is_on=True)

    def inside(self, region: Region, trail: Trail = ()) -> list[Inside]:
        """Every call that runs inside a region, nearest functions first.

        Each function is entered once with the same arguments left out, and not at all where
        autocast is off.

        Args:
            trail: the calls that lead from the region to its part, where it is one.
        """
        return self._reached(region, trail, is_on=True)

    def until_end(self, region: Region, trail: Trail = ()) -> list[Inside]:
        """Every call that runs before a region ends, with autocast still on or off by then.

        An inner autocast that is off does not end the outer one: what that keeps, it keeps.
        """
        return self._reached(region, trail, is_on=False)

    def part(self, region: Region, node: ast.AST, function: Function) -> Region:
        """A node that runs inside a region, in whatever function, as a region."""
        key = (region, node)
        if key not in self._parts:
            self._parts[key] = replace(region, function=function, parts=(node,))
        return self._parts[key]

    def _reached(self, region: Region, trail: Trail, is_on: bool) -> list[Inside]:
        key = (region, trail, is_on)
        if key not in self._inside:
            found: dict[ast.Call, Inside] = {}
            for each in self._walk(region, is_on):
                item = replace(each, trail=(*trail, *each.trail))
                if item.call not in found and not self.is_excluded(
                    region, item.call, item.function, item.trail
                ):
                    found[item.call] = item
            self._inside[key] = list(found.values())
        return self._inside[key]

    def is_excluded(
        self, region: Region, node: ast.AST, function: Function, trail: Trail = ()
    ) -> bool:
        """Whether no run of a region comes to a node on this way.

        A test on the way asks that what switches the region on is false, or that an argument is
        what the calls of the way do not pass; or Python raises before.
        """
        ways = (*trail, (node, function))
        if region.cast.condition and self._is_off_on(region.cast, ways):
            return True
        if any(is_cut_off(each, where) for each, where in ways):
            return True
        return self.is_turned_away(node, function, trail)

    def is_turned_away(self, node: ast.AST, function: Function, trail: Trail) -> bool:
        """Whether a test on a way asks for an argument that the calls of the way do not pass."""
        activation, turned_away = self._entry(trail, function)
        return turned_away or self._turns_away(node, function, activation)

    def _is_off_on(self, cast: Cast, ways: Iterable[tuple[ast.AST, Function]]) -> bool:
        """Whether tests on a way are true only where the autocast is off."""
        facts = Assumptions.of(
            self.values, (test for node, where in ways for test in conditions_at(node, where))
        )
        return bool(facts.known) and facts.decides(self._switch(cast), cast.function) is False

    def _entry(self, trail: Trail, function: Function) -> tuple[Activation | None, bool]:
        """The call by which a trail comes into a function, and whether a test before ends it."""
        if not trail:
            return None, False
        if (trail, function) not in self._entries:
            call, caller = trail[-1]
            outer, turned_away = self._entry(trail[:-1], caller)
            turned_away = turned_away or self._turns_away(call, caller, outer)
            entry = Activation(function, call, caller, outer)
            self._entries[trail, function] = entry, turned_away
        return self._entries[trail, function]

    def _turns_away(self, node: ast.AST, function: Function, activation: Activation | None) -> bool:
        """Whether a test before a node fails for what one call of its function passes."""
        if activation is None:
            return False
        for test in conditions_at(node, function):
            if _asks_arguments(test.test, function):
                truth = self.values.truth(test.test, function, activation)
                if test.side not in truth:
                    return True
        return False

    def left_out(
        self,
        call: ast.Call,
        caller: Function,
        function: Function,
        absent: frozenset[str] = frozenset(),
    ) -> tuple[Function, frozenset[str]]:
        """A function and the parameters that a call of it leaves at their defaults.

        Args:
            absent: the caller's own ones; what is handed on of them is left out as well.
        """
        bound = self.objects.bind(call, caller, function)
        handed = {
            name
            for name, given in bound.given.items()
            if isinstance(given, ast.Name) and given.id in absent
        }
        return function, frozenset(bound.defaults) | handed

    def _switch(self, cast: Cast) -> ast.expr:
        """The condition of an autocast as an expression, always the same one."""
        if cast not in self._switches:
            self._switches[cast] = ast.parse(cast.condition, mode="eval").body
        return self._switches[cast]

    def _walk(self, region: Region, is_on: bool) -> Iterator[Inside]:
        seen: set[tuple[Function, frozenset[str]]] = set()
        pending: list[tuple[Inside, frozenset[str]]] = []
        for call in self._calls(region.function, region.parts, region, is_on):
            item = Inside(call, region.function)
            pending.append((item, frozenset()))
            yield item
        while pending:
            item, absent = pending.pop(0)
            known = self.objects.callee(item.call, item.function)
            if known is None or known is region.function or len(item.trail) >= CALL_DEPTH:
                continue
            entered = self.left_out(item.call, item.function, known, absent)
            if entered in seen or len(seen) >= FUNCTION_LIMIT or _runs_later(known):
                continue
            seen.add(entered)
            trail = (*item.trail, (item.call, item.function))
            for call in self._calls(known, tuple(known.body), region, is_on):
                inner = Inside(call, known, trail)
                pending.append((inner, entered[1]))
                yield inner

    def enters(self, region: Region) -> Iterator[tuple[Function, Trail]]:
        """The functions that calls inside a region run; the region's own if it runs again."""
        found: set[Function] = set()
        for item in self.inside(region):
            known = self.objects.callee(item.call, item.function)
            if known is not None and known not in found and not _runs_later(known):
                found.add(known)
                yield known, (*item.trail, (item.call, item.function))

    def _calls(
        self, function: Function, parts: tuple[ast.AST, ...], region: Region, is_on: bool
    ) -> Iterator[ast.Call]:
        """The calls in parts of a function that run at once; with autocast still on, if asked."""
        layout = layout_of(function)
        off = [
            part
            for span, found in self.spans(function)
            if is_on and is_off(found) and _same_device(found, region.cast)
            for part in span.parts
            if function is not region.function or not _encloses(layout, part, region.opened)
        ]
        nodes = dict.fromkeys(node for part in parts for node in layout.inside(part))
        later = function.once(_run_later)
        for node in nodes:
            if not isinstance(node, ast.Call) or any(layout.holds(cut, node) for cut in off):
                continue
            if node not in later:
                yield node


def _run_later(function: Function) -> frozenset[ast.AST]:
    """What the lambdas of a function hold: it runs when they are called."""
    layout = layout_of(function)
    lambdas = (node for node in layout.nodes if isinstance(node, ast.Lambda))
    return frozenset(inner for node in lambdas for inner in layout.inside(node))


def _asks_arguments(test: ast.expr, function: Function) -> bool:
    """Whether a test names a parameter, the object of a method aside."""
    names = parameters(function).keys() - {receiver_of(function)}
    return any(isinstance(node, ast.Name) and node.id in names for node in ast.walk(test))


def _encloses(layout: Layout, part: ast.AST, opened: ast.expr) -> bool:
    """Whether a part holds what opens a region; a decorator lies in no part."""
    return opened in layout and layout.holds(part, opened)


def _openings(function: Function) -> Iterator[tuple[ast.expr, Callable[[], tuple[ast.AST, ...]]]]:
    """What may open a region, and the parts under it, which are looked for where it does."""
    for decorator in getattr(function.node, "decorator_list", ()):
        if isinstance(decorator, ast.Call) or _MAY_OPEN.search(last_name(decorator)):
            yield decorator, partial(tuple, function.body)
    layout = layout_of(function)
    for node in layout.nodes:
        if isinstance(node, (ast.With, ast.AsyncWith)):
            for index, item in enumerate(node.items):
                yield item.context_expr, partial(_under, node, index)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr == "__enter__":
                yield node.func.value, partial(_until_exit, function, node)
            elif node.func.attr == "enter_context" and node.args:
                yield node.args[0], partial(_until_stack_ends, function, node)


def _under(block: ast.With | ast.AsyncWith, index: int) -> tuple[ast.AST, ...]:
    """What runs in the context with an index: the contexts after it, and the body."""
    return (*(item.context_expr for item in block.items[index + 1 :]), *block.body)


def _until_exit(function: Function, enter: ast.Call) -> tuple[ast.AST, ...]:
    """The statements between `ctx.__enter__()` and `ctx.__exit__(...)`; none without the latter."""
    layout = layout_of(function)
    assert isinstance(enter.func, ast.Attribute)
    context = ast.dump(enter.func.value)
    for node in layout.nodes:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        closes = node.func.attr == "__exit__" and ast.dump(node.func.value) == context
        if closes and layout.reaches(enter, node):
            return tuple(n for n in layout.between(enter, node) if isinstance(n, ast.stmt))
    return ()


def _until_stack_ends(function: Function, call: ast.Call) -> tuple[ast.AST, ...]:
    """The statements behind `stack.enter_context(...)` in the `with` block of the stack."""
    layout = layout_of(function)
    assert isinstance(call.func, ast.Attribute)
    stack = ast.dump(call.func.value)
    for block in layout.ancestors(call):
        if not isinstance(block, (ast.With, ast.AsyncWith)):
            continue
        named = [item.optional_vars for item in block.items if item.optional_vars is not None]
        if any(_as_read(target) == stack for target in named):
            return tuple(
                node
                for node in layout.inside(block)
                if isinstance(node, ast.stmt) and layout.reaches(call, node)
            )
    return ()


def _as_read(target: ast.expr) -> str:
    return ast.dump(ast.Name(target.id, ast.Load())) if isinstance(target, ast.Name) else ""


def _runs_later(function: Function) -> bool:
    """Whether a call of the function only makes a generator or a coroutine."""
    if isinstance(function.node, ast.AsyncFunctionDef):
        return True
    return any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in function.nodes)


def _as_region(span: _Span, found: Alternatives, function: Function) -> Region | None:
    cast = _possibly_on(found)
    if cast is None:
        return None
    return Region(cast, span.opened, function, span.parts, _is_conditional(found))


def _possibly_on(found: Alternatives) -> Cast | None:
    """The first autocast of the alternatives that can be on, for the devices of all of them.

    A context manager with a branch for each kind of machine is for whatever device it finds.
    """
    casts = [cast for cast in found if cast is not None and cast.enabled is not False]
    if len(casts) < 2:
        return next(iter(casts), None)
    devices = [cast.devices for cast in casts if cast.devices is not None]
    known = len(devices) == len(casts)
    return replace(casts[0], devices=frozenset().union(*devices) if known else None)


def _is_conditional(found: Alternatives) -> bool:
    return any(cast is None or cast.enabled is not True for cast in found)


def is_off(found: Alternatives) -> bool:
    """Whether the alternatives are autocasts that are all switched off."""
    return all(cast is not None and cast.enabled is False for cast in found)


def _same_device(found: Alternatives, cast: Cast) -> bool:
    """Whether autocasts that are off may be those of the cast's device."""
    for other in found:
        if other is None or other.devices is None or cast.devices is None:
            continue
        if not other.devices & cast.devices:
            return False
    return True


def opening_words(view: AmpView, region: Region) -> str:
    """What a path says about a region's first line."""
    text = view.source_of(region.opened)
    condition = " ".join(region.cast.condition.split())
    if condition and len(condition) <= 60:
        return f"`{text}` switches autocast on where `{condition}`"
    if region.conditional:
        return f"`{text}` can switch autocast on"
    return f"`{text}` switches autocast on"


def call_words(call: ast.Call) -> str:
    """How a path names a call: the callee without its arguments."""
    text = " ".join(ast.unparse(call.func).split())
    return f"`{text}(...)`" if len(text) <= 60 else f"`{last_name(call.func)}(...)`"
