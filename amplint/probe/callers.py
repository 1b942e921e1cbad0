"""What the calls of a project pass to a function, and whether one call can pass it all.

Gate 6 of a confirmation asks whether the inputs of a run can occur. A caller that can be run
answers that itself. For one that cannot, its text is read: literals, defaults, options of the
command line, parameters that it is itself passed, entries of data files. Whatever else an
argument is, is unknown.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from amplint.code.dataflow import parameters
from amplint.code.definitions import returned
from amplint.code.expressions import last_name
from amplint.code.layout import layout_of
from amplint.code.module import CallSite, Class, Function, Module
from amplint.probe.arguments import ArgumentReader, Passed, Way, not_all
from amplint.probe.choices import UNKNOWN, Choices
from amplint.probe.configfiles import ConfigFiles
from amplint.probe.domains import Option, is_same
from amplint.probe.messages import Decision, path_of_option
from amplint.values.conditions import conditions_at
from amplint.values.objects import Objects
from amplint.values.provenance import Activation, Condition, Origin
from amplint.values.values import Values

#: Ways into a function that are looked at.
WAYS = 12
#: Optimizers of torch that call the model themselves, or want sparse gradients.
_SPECIAL = frozenset({"LBFGS", "SparseAdam"})
_NONE = " is None"
#: Under which name it is chosen which configuration file is read: no option has it.
_FILE = "configuration file"


@dataclass(frozen=True, slots=True)
class Settled:
    """The inputs that one way into a function settles.

    Args:
        values: path -> value; what is missing is unknown.
        by_user: paths of those that somebody has to set on a command line, or to pass.
        typed: option -> what it has to be, where that is not its default.
    """

    values: dict[str, Any]
    by_user: frozenset[str] = frozenset()
    typed: Mapping[str, Any] = field(default_factory=dict)


class Callers:
    """Reads the calls of a project.

    Args:
        objects: finds the calls.
        values: what their arguments are.
        climb: calls that a way may have.
        root: the folder of the project, for its configuration files; "" for none.
    """

    def __init__(self, objects: Objects, values: Values, climb: int, root: str = "") -> None:
        self._objects = objects
        self._values = values
        self._climb = climb
        self._sites: dict[Function, list[CallSite]] = {}
        self._files = ConfigFiles(root) if root else None

    # -- calls ---------------------------------------------------------------------------------

    def sites(self, function: Function) -> list[CallSite]:
        """The calls of a function, also those of an object that stand for its `__call__`."""
        known = self._sites.get(function)
        if known is None:
            known = self._objects.calls_of(function)
            if function.owner is not None and function.name in ("__call__", "forward"):
                known = list(dict.fromkeys((*known, *self._calls_of_objects(function))))
            self._sites[function] = known
        return known

    def constructions(self, owner: Class) -> list[CallSite]:
        """The calls that build objects of a class with an `__init__`."""
        constructor = self._objects.method(owner, "__init__")
        return self._objects.calls_of(constructor) if constructor is not None else []

    def _calls_of_objects(self, function: Function) -> Iterator[CallSite]:
        """`scaler(loss)` where `scaler = Scaler()` is made, or where that is handed to."""
        assert function.owner is not None
        for made in self.constructions(function.owner):
            layout = layout_of(made.function)
            if made.node not in layout:
                continue
            statement = layout.statement(made.node)
            targets = statement.targets if isinstance(statement, ast.Assign) else ()
            names = {last_name(target) for target in targets}
            for module in (made.function.module, *self._callees_of(made.function.module, names)):
                for site in module.calls:
                    if site.method in names and self._runs(site, function):
                        yield site

    def _callees_of(self, module: Module, names: Collection[str]) -> list[Module]:
        """The files whose functions are passed an object of one of these names."""
        found = [
            callee.module
            for site in module.calls
            if any(
                last_name(value) in names
                for value in (*site.node.args, *(keyword.value for keyword in site.node.keywords))
            )
            and (callee := self._objects.callee(site.node, site.function)) is not None
        ]
        return [other for other in dict.fromkeys(found) if other is not module]

    def _runs(self, site: CallSite, function: Function) -> bool:
        return self._objects.callee(site.node, site.function) is function

    def handed_to(self, function: Function) -> Iterator[str]:
        """The functions of libraries that get a function, or the class whose method it is, and
        may call it with whatever they like."""
        names = {function.name} if function.owner is None else {function.owner.name}
        constructor = self._objects.method(function.owner, "__init__") if function.owner else None
        named = constructor or function
        for module in dict.fromkeys((named.module, *self._objects.project.users(named))):
            for site in module.calls:
                given = (*site.node.args, *(keyword.value for keyword in site.node.keywords))
                is_given = any(
                    isinstance(value, (ast.Name, ast.Attribute)) and last_name(value) in names
                    for value in given
                )
                if is_given and self._objects.symbol(site.node.func, site.function) is None:
                    yield module.resolve(site.node.func) or ast.unparse(site.node.func)

    # -- ways ----------------------------------------------------------------------------------

    def ways(self, function: Function) -> list[Way]:
        """How a function is called; one way without any call where nobody calls it."""
        return list(itertools.islice(self._ways(function, 0), WAYS))

    def _ways(self, function: Function, depth: int) -> Iterator[Way]:
        sites = [site for site in self.sites(function) if site.function is not function]
        if depth >= self._climb:
            yield Way(function, None, None)
            return
        for site in sites:
            for outer in itertools.islice(self._ways(site.function, depth + 1), WAYS):
                activation = Activation(function, site.node, site.function, outer.activation)
                if not self._may_run(site, outer):
                    continue
                conditions = (*outer.conditions, *_conditions(site))
                for made in self._receivers(site, function, outer):
                    yield Way(function, activation, made, conditions)
        if sites:
            return
        made_at = self.constructions(function.owner) if function.owner is not None else []
        for site in made_at if function.name != "__init__" else ():
            for outer in itertools.islice(self._ways(site.function, depth + 1), WAYS):
                if self._may_run(site, outer):
                    made = Origin(site.node, site.function, outer.activation)
                    yield Way(function, None, made, (*outer.conditions, *_conditions(site)))
        if not made_at:
            yield Way(function, None, None)

    def _may_run(self, site: CallSite, outer: Way) -> bool:
        """Whether what the calls around it pass lets control come to a call."""
        return all(
            condition.side in self._values.truth(condition.test, site.function, outer.activation)
            for condition in _conditions(site)
        )

    def _receivers(self, site: CallSite, function: Function, outer: Way) -> Iterator[Origin | None]:
        """The calls that may have built the object whose method a call runs."""
        owner = function.owner
        if owner is None:
            yield None
        elif function.name == "__init__":
            yield Origin(site.node, site.function, outer.activation)
        elif not isinstance(site.node.func, ast.Attribute) or site.method != function.name:
            yield from self._built(site.node.func, site.function, owner, outer)
        elif isinstance(site.node.func.value, ast.Name) and site.node.func.value.id == "self":
            yield outer.made
        else:
            yield from self._built(site.node.func.value, site.function, owner, outer)

    def _built(
        self, receiver: ast.expr, function: Function, owner: Class, outer: Way
    ) -> Iterator[Origin | None]:
        found = [
            origin
            for origin in self._values.origins.of(receiver, function, outer.activation).origins
            if isinstance(origin.expression, ast.Call)
            and self._is_kind(self._objects.symbol(origin.expression.func, origin.function), owner)
        ]
        if found:
            yield from found
            return
        for site in self.constructions(owner):
            yield Origin(site.node, site.function)
        if not self.constructions(owner):
            yield None

    def _is_kind(self, symbol: object, owner: Class) -> bool:
        return isinstance(symbol, Class) and owner in self._objects.ancestry(symbol)

    # -- what is passed ------------------------------------------------------------------------

    def passes_optimizers(self, function: Function, name: str) -> bool:
        """Whether every call that fills a parameter, of a function or of the constructor of its
        object, passes what makes an optimizer of torch: `lambda net: Adam(net.parameters())`."""
        called = function
        if name not in parameters(function) and function.owner is not None:
            called = self._objects.method(function.owner, "__init__") or function
        given = self._objects.arguments(called, name).given if name in parameters(called) else ()
        return bool(given) and all(
            self._makes_optimizers(value, site.function) for value, site in given
        )

    def _makes_optimizers(self, expression: ast.expr, function: Function) -> bool:
        found = self._values.origins.of(expression, function)
        products = [
            product
            for origin in found.origins
            for product in self._products(origin.expression, origin.function)
        ]
        return found.complete and bool(products) and all(_is_optimizer(*p) for p in products)

    def _products(
        self, factory: ast.expr, function: Function
    ) -> Iterator[tuple[ast.expr | None, Function]]:
        """What calls of something give; None for what is not known."""
        symbol = self._objects.symbol(factory, function)
        if isinstance(factory, ast.Lambda):
            yield factory.body, function
        elif isinstance(factory, ast.Call) and last_name(factory.func) == "partial":
            yield ast.Call(factory.args[0], [], factory.keywords), function
        elif isinstance(symbol, Function):
            for value in returned(symbol):
                found = self._values.origins.of(value, symbol).origins
                yield from ((origin.expression, origin.function) for origin in found)
                if not found:
                    yield None, symbol
        elif symbol is None:
            yield ast.Call(factory, [], []), function

    def settle(
        self,
        way: Way,
        decisions: Iterable[Decision],
        options: Mapping[str, Option],
        wanted: Collection[str] = (),
        *,
        through_objects: bool = False,
    ) -> Settled | None:
        """The inputs that a way into a function settles: as they were chosen where it can pass
        that, else as it passes them.

        Args:
            wanted: paths of inputs that have to be as they were chosen if possible. The others
                are what they are if the user sets nothing.
            through_objects: as `ArgumentReader` has it; not where the answer is to prove something.

        Returns:
            None if the way is never taken like that.
        """
        known = dict(options)  # grows by the fields that a command line fills
        reader = ArgumentReader(
            *(self._objects, self._values, way, known, self._files),
            through_objects=through_objects,
        )
        choices = Choices(known)
        settled: dict[str, Any] = {}
        by_user: set[str] = set()
        for decision in sorted(decisions, key=lambda item: item.path not in wanted):
            path = decision.path.removesuffix(_NONE)
            passed, complete = reader.passed(path)
            asks_none = path != decision.path
            attempts = (True, False) if decision.path in wanted else (False, True)
            for exact in attempts if complete else (True,):
                fitting = (
                    _fit(item, decision.choice, asks_none, exact, choices) for item in passed
                )
                chosen = next((item for item in fitting if item is not None), None)
                if chosen is not None:
                    settled[decision.path], choices, is_set = chosen
                    by_user |= {decision.path} if is_set else set()
                    break
        if not all(map(choices.permit, way.conditions)):
            return None
        return Settled(settled, frozenset(by_user), choices.set_by_user)

    def typed(
        self,
        function: Function,
        caller: Function,
        decisions: Collection[Decision],
        options: Mapping[str, Option],
        wanted: Collection[str],
    ) -> dict[str, Any]:
        """What a run of a caller is given on the command line so that it passes a function what
        that was run with: by the paths of options.

        Args:
            wanted: paths of the inputs that were chosen.
        """
        for way in self.ways(function):
            if caller not in _on_the_way(way.activation):
                continue
            settled = self.settle(way, decisions, options, wanted, through_objects=True)
            if settled is not None:
                typed = {name: value for name, value in settled.typed.items() if name in options}
                return {path_of_option(name): value for name, value in typed.items()}
        return {}


def _on_the_way(activation: Activation | None) -> Iterator[Function]:
    """The functions whose calls lead to a function, from the inside."""
    while activation is not None:
        yield activation.caller
        activation = activation.outer


def _is_optimizer(made: ast.expr | None, function: Function) -> bool:
    """Whether an expression builds an optimizer of torch that takes plain gradients."""
    if not isinstance(made, ast.Call):
        return False
    dotted = function.module.resolve(made.func) or ""
    return (
        dotted.startswith("torch.optim.")
        and last_name(made.func)[:1].isupper()
        and last_name(made.func) not in _SPECIAL
        and not any(item.arg in ("fused", None) for item in made.keywords)
    )


def _fit(
    passed: Passed, wanted: Any, asks_none: bool, exact: bool, choices: Choices
) -> tuple[Any, Choices, bool] | None:
    """The value of a decision, what a user sets for it, and whether one sets it at all; None if
    it cannot be had.

    Args:
        asks_none: the decision is whether something is None.
        exact: it has to be as wanted.
    """
    choices = choices.copy()
    if passed.file and not choices.choose(_FILE, passed.file):
        return None
    known = _none_or_not if asks_none else _value
    value = known(passed, wanted, exact, choices)
    if value is UNKNOWN or (exact and not is_same(value, wanted)):
        return None
    permitted = all(choices.permit(condition, known=True) for condition in passed.conditions)
    return (value, choices, bool(passed.option)) if permitted else None


def _value(passed: Passed, wanted: Any, exact: bool, choices: Choices) -> Any:
    if not passed.option:
        return passed.value
    if not exact:
        return choices.keep(passed.option)
    allowed = passed.allowed is None or any(is_same(wanted, item) for item in passed.allowed)
    return wanted if allowed and choices.choose(passed.option, wanted) else UNKNOWN


def _none_or_not(passed: Passed, wanted: Any, exact: bool, choices: Choices) -> Any:
    """Whether None is passed; `UNKNOWN` for what cannot be as it is wanted."""
    if not passed.option:
        return passed.value is None
    if not exact:
        value = choices.keep(passed.option)
        return UNKNOWN if value is UNKNOWN else value is None
    if wanted:
        return True if choices.choose(passed.option, None) else UNKNOWN
    return False if choices.give(passed.option) else UNKNOWN


def _conditions(site: CallSite) -> tuple[Condition, ...]:
    """What has to hold for a call to be made: tests around it, exits and assertions before."""
    function, layout = site.function, layout_of(site.function)
    if site.node not in layout:
        return ()
    asserted = (
        not_all((Condition(node.test, False, function), *conditions_at(node, function, site.node)))
        for node in layout.nodes
        if isinstance(node, ast.Assert) and layout.before(node, site.node)
    )
    return (*conditions_at(site.node, function), *asserted)
