"""Which autocast regions a function runs in: its callers, upwards through the files of a project.

A loss knows nothing of mixed precision; what calls it may. Objects of classes are followed to
where they are called: kept in attributes, handed to constructors and functions, returned by
factories such as `get_model`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.amp.links import chosen
from amplint.amp.view import AmpView
from amplint.code.dataflow import values_handed
from amplint.code.definitions import returned
from amplint.code.expressions import last_name
from amplint.code.layout import layout_of
from amplint.code.module import CallSite, Class, Function, Module
from amplint.regions.islands import applied_function
from amplint.regions.regions import Inside, Region, Regions, Trail, is_off
from amplint.values.callables import Kinds, classes_in
from amplint.values.provenance import Condition, Firmness, Origin
from amplint.values.wrappers import WRAPPERS

#: Callers are followed this far up, and over this many functions.
CALLER_DEPTH = 10
FUNCTION_LIMIT = 60
#: Files that name a class, beyond which its objects are not looked for.
FILE_LIMIT = 40
_CALLED = frozenset(("forward", "__call__"))


class Callers:
    """Finds the regions around a function.

    Args:
        regions: of single functions.
        choices: whether a call counts whose callee is an object of one of several classes; who
            asks so has to say what has to hold for it to be one of these, see `made_by`.
    """

    def __init__(self, regions: Regions, choices: bool = False) -> None:
        self.regions = regions
        self.choices = choices
        self.objects = regions.objects
        self.project = regions.objects.project

    def regions_around(self, node: ast.AST, function: Function) -> Iterator[tuple[Region, Trail]]:
        """Regions that `node` runs in, each with the calls that lead from it to `function`."""
        for region, trail in self._regions_around(node, function):
            if not self.regions.is_excluded(region, node, function, trail):
                yield region, trail

    def _regions_around(self, node: ast.AST, function: Function) -> Iterator[tuple[Region, Trail]]:
        if self.is_off(node, function):
            return
        around = self.regions.around(node, function)
        if around is not None:
            yield around, ()
            return
        seen: set[tuple[Function, tuple[Function, frozenset[str]]]] = set()
        pending: list[tuple[Function, Trail]] = [(function, ())]
        while pending and len(seen) < FUNCTION_LIMIT:
            inner, trail = pending.pop(0)
            for call, caller in self.callers(inner):
                if self.is_off(call, caller):
                    continue
                longer = ((call, caller), *trail)
                if self.regions.is_turned_away(node, function, longer):
                    continue
                around = self.regions.around(call, caller)
                way = caller, self.regions.left_out(call, caller, inner)
                if around is not None:
                    yield around, longer
                elif way not in seen and caller is not function and len(longer) < CALLER_DEPTH:
                    seen.add(way)
                    pending.append((caller, longer))

    def open_ends(self, node: ast.AST, function: Function) -> Iterator[Class]:
        """Modules by whose `forward` code out of sight may reach a node, in its own autocast.

        Nobody in sight calls the module's `forward`, or that of a module that runs it.
        """
        seen, pending = {function}, [] if self.is_off(node, function) else [function]
        while pending and len(seen) < FUNCTION_LIMIT:
            inner = pending.pop(0)
            callers = [place for call, place in self.callers(inner) if not self.is_off(call, place)]
            if not callers and inner.owner is not None and self.objects.is_module(inner.owner):
                yield inner.owner
            pending += (place for place in callers if place not in seen)
            seen |= set(callers)

    def is_open(self, node: ast.AST, function: Function) -> bool:
        """Whether code out of sight may call what holds a node, with an autocast of its own."""
        return next(self.open_ends(node, function), None) is not None

    def is_off(self, node: ast.AST, function: Function) -> bool:
        """Whether the innermost autocast around a node of a function is off on accelerators."""
        for _, found in reversed(self.regions.spans_around(node, function)):
            if not is_off(found):
                return False
            if any(cast is not None and cast.devices != frozenset({"cpu"}) for cast in found):
                return True
        return False

    # -- who calls ---------------------------------------------------------------------------

    def callers(self, function: Function) -> Iterator[tuple[ast.Call, Function]]:
        """The calls of a function, each with the function that holds it."""
        if function.name in _CALLED and function.owner is not None:
            yield from self._calls_of_objects(function.owner)
            return
        for site in self.objects.calls_of(function):
            yield site.node, site.function
        if function.owner is None and function.parent is None:
            yield from self._calls_of_values(function)

    def _calls_of_values(self, function: Function) -> Iterator[tuple[ast.Call, Function]]:
        """`criterion(x)` where `criterion` is the function, under whatever name it was handed over."""
        home, name = function.module, function.name
        naming = [home, *self.project.mentioning(home, name)][:FILE_LIMIT]
        reading = [module for module in naming if name in module.once(values_handed)]
        for module in self._modules_with(function, reading) if reading else ():
            for site in module.calls:
                if site.method != name and self._may_be(function, site):
                    yield site.node, site.function

    def _may_be(self, function: Function, site: CallSite) -> bool:
        """Whether a call of a variable runs a function, or may by a choice where such calls count."""
        callee = site.node.func
        if not isinstance(callee, (ast.Name, ast.Attribute)) or site.dotted is not None:
            return False
        found = self.objects.targets(site.node, site.function)
        return found.only is function or (self.choices and function in found.functions)

    def _calls_of_objects(self, owner: Class) -> Iterator[tuple[ast.Call, Function]]:
        """`model(x)` where `model` is an object of the class."""
        seen: set[ast.Call] = set()
        for module in self._modules_with_objects(owner):
            for site in module.calls:
                callee = site.node.func
                if site.node in seen or not isinstance(callee, (ast.Name, ast.Attribute)):
                    continue
                if self._may_run(owner, callee, site.function):
                    seen.add(site.node)
                    yield site.node, site.function
        for call, function in self._calls_of_made(owner):
            if call not in seen:
                yield call, function

    def _may_run(self, owner: Class, callee: ast.expr, function: Function) -> bool:
        if owner in self.objects.classes_called(callee, function):
            return True
        return self.choices and owner in classes_in(self.objects.kinds(callee, function))

    def made_by(self, trail: Trail, last: Function) -> list[list[Origin]]:
        """For each call of a way whose callee may be another object: where it is the one it needs.

        Args:
            last: the function that the last call of the way runs.
        """
        found = []
        inner = [*(function for _, function in trail[1:]), last]
        for (call, caller), function in zip(trail, inner):
            owner = function.owner if function.name in _CALLED else None
            if owner is None and last_name(call.func) == function.name:
                continue
            if self.objects.classes_called(call.func, caller):
                continue
            if owner is None and self.objects.targets(call, caller).only is function:
                continue
            thing = owner or function
            if thing not in _things(self.objects.kinds(call.func, caller)):
                continue  # it is called for another reason: what a factory's name says
            origins = self.objects.origins.of(call.func, caller).origins
            made = [item for item in origins if self._is(thing, item.expression, item.function)]
            found.append(made)
        return found

    def _modules_with_objects(self, owner: Class) -> list[Module]:
        """Modules that name the class, or call what builds it, and those they hand its objects to."""
        naming = [owner.module, *self.project.mentioning(owner.module, owner.name)][:FILE_LIMIT]
        return self._modules_with(owner, naming)

    def _modules_with(self, thing: Class | Function, naming: list[Module]) -> list[Module]:
        """Modules that name a class or a function, and those that get its objects, or itself."""
        found = dict.fromkeys(naming)
        for builder in self._builders(thing, naming):
            found.update(dict.fromkeys(self.project.users(builder)))
        for module in list(found)[:FILE_LIMIT]:
            for site in module.calls:
                known = self.objects.callee(site.node, site.function)
                if known is None or known.module in found:
                    continue  # what a call hands over is dear to find out
                values = [*site.node.args, *(item.value for item in site.node.keywords)]
                if any(self._is(thing, value, site.function) for value in values):
                    found[known.module] = None
        return list(found)

    def _is(self, thing: Class | Function, value: ast.expr, function: Function) -> bool:
        """Whether a value is an object of a class, or may be a function."""
        if isinstance(thing, Class):
            return self.objects.class_of(value, function) is thing
        return thing in _things(self.objects.kinds(value, function))

    # -- objects from factories ---------------------------------------------------------------

    def _calls_of_made(self, owner: Class) -> Iterator[tuple[ast.Call, Function]]:
        """Calls of what an unknown object's method returned, if it has the name of a factory.

        `self.model = experiment.get_model()`, where a `get_model` of the project returns objects
        of the class.
        """
        for factory in self._factories(owner):
            for module in self.project.mentioning(owner.module, "autocast", factory):
                for site in module.calls:
                    callee = site.node.func
                    if isinstance(callee, (ast.Name, ast.Attribute)) and self._is_made(
                        callee, site.function, factory
                    ):
                        yield site.node, site.function

    def _builders(self, thing: Class | Function, naming: list[Module]) -> list[Function]:
        """The functions that return objects of a class, or a function, where one may be chosen."""
        return [
            function
            for module in naming
            for function in module.functions
            if function.owner is None
            and any(
                thing in _things(self.objects.kinds(value, function))
                for value in returned(function)
            )
        ]

    def _factories(self, owner: Class) -> set[str]:
        """Names of methods that return objects of the class."""
        found: set[str] = set()
        modules = [owner.module, *self.project.mentioning(owner.module, owner.name)]
        for module in modules[:FILE_LIMIT]:
            for function in module.functions:
                if function.owner is None or function.name in _CALLED:
                    continue
                values = returned(function)
                if any(self.objects.class_of(value, function) is owner for value in values):
                    found.add(function.name)
        return found

    def _is_made(
        self, expression: ast.expr, function: Function, factory: str, depth: int = 6
    ) -> bool:
        """Whether every definition of an expression calls an unknown method of this name."""
        if isinstance(expression, ast.Call):
            name = last_name(expression.func)
            if name == factory and isinstance(expression.func, ast.Attribute):
                return self.objects.callee(expression, function) is None
            if name in WRAPPERS and expression.args:
                return self._is_made(expression.args[0], function, factory, depth - 1)
            return False
        if not depth or not isinstance(expression, (ast.Name, ast.Attribute)):
            return False
        found = self.objects.bindings(expression, function) or []
        values = [(item.value, item.function) for item in found if item.value is not None]
        return any(self._is_made(value, where, factory, depth - 1) for value, where in values)


def _things(kinds: Kinds) -> tuple[Class | Function, ...]:
    """The classes whose objects an expression can be, and the functions that it can be."""
    functions = (item for item in kinds.known if isinstance(item, Function))
    return (*classes_in(kinds), *functions)


def applied_inside(
    view: AmpView, regions: Regions, owner: Class
) -> Iterator[tuple[Region, Inside]]:
    """Where `apply` of an autograd function of a file runs inside a region."""
    callers = Callers(regions)
    modules: list[Module] = [view.module, *view.project.mentioning(view.module, owner.name)]
    for module in modules:
        for site in module.calls:
            if site.node not in layout_of(site.function):
                continue
            if applied_function(regions, site.node, site.function) is not owner:
                continue
            trail: Trail
            for region, trail in callers.regions_around(site.node, site.function):
                yield region, Inside(site.node, site.function, trail)


def way_chosen(view: AmpView, made: list[list[Origin]]) -> tuple[Condition, ...] | None:
    """What has to hold for objects on a way to be those it needs; None if nothing chooses one.

    Args:
        made: see `Callers.made_by`.
    """
    conditions: tuple[Condition, ...] = ()
    for origins in made:
        best = max(origins, key=lambda item: item.firmness, default=None)
        if best is None or not is_chosen(view, best):
            return None
        conditions += best.conditions
    return conditions


def is_chosen(view: AmpView, made: Origin) -> bool:
    """Whether a default makes it so, or an option that the code declares."""
    if made.firmness > Firmness.CHOICE or any(chosen(view, made.conditions)):
        return True
    truths = [view.values.truth(item.test, item.function) for item in made.conditions]
    sides = [truth.get(item.side) for truth, item in zip(truths, made.conditions)]
    return bool(sides) and all(side is not None and side > Firmness.CHOICE for side in sides)
