"""The program under analysis: modules, what is known about their functions, who calls whom.

One file is a program of one module; the modules that it imports join it when a call leads
there. The interpreter asks for functions and classes by expression, never for files.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from amplint.amp.names import CLIP_FUNCTIONS
from amplint.amp.roles import Role, Roles, build_roles, factory_role, roles_of
from amplint.amp.value_roles import ValueRoles
from amplint.code.arguments import parameters
from amplint.code.classes import method_of
from amplint.code.definitions import is_stub
from amplint.code.keyed import registered_under, requested, table_of
from amplint.code.module import Class, Function, Module, as_function, names_read
from amplint.code.project import Project
from amplint.code.records import fields_of, is_record
from amplint.code.registries import Request
from amplint.code.tables import Table
from amplint.code.tree import NESTED
from amplint.flow.aliases import NO_ALIASES, Aliases, find_aliases
from amplint.flow.budget import FILE_LIMIT, Work
from amplint.flow.call import callee_name, given_to
from amplint.flow.facts import (
    SCALER_METHODS,
    FunctionFacts,
    close_over_calls,
    collect_facts,
    facts_of_lambda,
    joined,
    reach_by_name,
)
from amplint.flow.slice import SUSPECT, Slice, Slicer, tested_around_events, tested_beside_events
from amplint.flow.values import CLIPPER, NONE, Value
from amplint.source.screen import mentions_amp
from amplint.values.callables import Instance, Targets
from amplint.values.objects import Objects
from amplint.values.unpacking import Unpacking
from amplint.values.values import Values

#: An imported file without one of these words cannot take part in the protocol.
_PROTOCOL_WORDS = re.compile(
    r"backward|\.step\b|zero_grad|clip_grad|unscale_|[gG]rad_?[sS]caler|autocast|scaler"
    r"|\.update\(\)|\.scale\(|\.cl(?:amp|ip)_\("
)
#: Callers and subclasses are looked for in this many files that mention the name.
CALLER_LIMIT = 12
#: Names of classes that hold options.
CONFIGURATION = re.compile(r"config|cfg|arg|option|setting|param|^opts?$", re.IGNORECASE)


@dataclass(slots=True, eq=False)
class Unit:
    """One module with everything that was read from it.

    Args:
        reach: callee name -> protocol words that a call of that name may reach.
        aliases: other names of functions, classes and methods.
    """

    module: Module
    roles: Roles
    facts: dict[Function, FunctionFacts] = field(default_factory=dict)
    reach: dict[str, frozenset[str]] = field(default_factory=dict)
    aliases: Aliases = NO_ALIASES
    slicer: Slicer = field(init=False)


class Program:
    """Modules of one project, as far as the interpreter asked for them.

    Args:
        project: finds functions and classes of other files; None for a file judged alone.
        objects: what values can be, shared with whoever asks the same.
        values: which constants they can be, likewise.
        visits: what the analysis may cost; of a checked file `budget.limit_of` says it.

    Attributes:
        work: what the checked file may still cost, and what was left for that.
    """

    def __init__(
        self,
        project: Project | None = None,
        objects: Objects | None = None,
        values: Values | None = None,
        visits: int = FILE_LIMIT,
    ) -> None:
        self.work = Work(visits)
        self._project = project or Project()
        self.objects = objects or Objects(self._project)
        self.values = values or Values(self.objects)
        self.unpacking = Unpacking(self.objects)
        self._values = ValueRoles(self.objects)
        self._units: dict[Module, Unit] = {}
        self._slices: dict[Function, Slice] = {}
        self._lambdas: dict[ast.Lambda, Function] = {}
        self._hands: dict[Function, bool] = {}
        self._methods: dict[ast.Attribute, Function | None] = {}
        self._reaches: dict[Module, dict[str, frozenset[str]]] = {}
        self._symbols: dict[Module, list[tuple[str, str, Function | Class]]] = {}
        self._imported_places: dict[ast.expr, str | None] = {}
        self._reached: dict[Function, frozenset[str]] = {}
        self._tested: set[str] = set()
        self._deciding: set[str] = set()
        self._handed: set[str] = set()
        self._models: set[str] = set()

    def _note_tests(self, roles: Roles) -> None:
        self._tested |= tested_beside_events(roles)
        self._deciding |= tested_around_events(roles)

    def add(self, module: Module, roles: Roles) -> Unit:
        """Take a module into the program, with what its imports may reach."""
        roles = self._values.complete(roles)
        unit = self._units[module] = Unit(module, roles)
        self._note_tests(roles)  # what is imported may decide these tests
        imported = self._imported_reach(module)
        makers = dict(self._imported_makers(module, roles))
        if makers:
            unit.roles = roles = self._values.complete(build_roles(module, makers))
            self._note_tests(roles)
        names = (self._tested, self._deciding, self._handed, self._models)
        unit.slicer = Slicer(roles, *names)
        unit.aliases = aliases = find_aliases(module, roles, imported)
        foreign = joined(imported, aliases.spread(imported))
        unit.facts.update(collect_facts(module, roles, foreign, aliases.targets))
        self._index_names(unit, {})
        for owner in module.classes.values():
            self._complete_bases(owner)
        return unit

    def _imported_makers(self, module: Module, roles: Roles) -> Iterator[tuple[str, Role]]:
        """Imported functions that build scalers or optimizers, and classes of the project.

        Of classes only those that are not what their names say.
        """
        for name, dotted, found in self._imported(module):
            if isinstance(found, Class):
                role = self._class_role(found)
                named = roles.constructor_role(dotted, ast.Name(name, ast.Load()))
                if role is not (named or Role.OTHER):
                    yield dotted, role
            elif self._partakes(found):
                made = factory_role(self.roles(found), found)
                if made is not None:
                    yield dotted, made

    def makes_scaler(self, owner: Class) -> bool:
        """Whether an object of a class, or of one that derives from it, may be a scaler."""
        family = (owner, *self.subclasses(owner))
        return any(self._class_role(item) is Role.SCALER for item in family)

    def _class_role(self, owner: Class) -> Role:
        """The role of the objects of a class, by its bases in whatever file."""
        found = (Roles(item.module).class_role(item) for item in self.objects.ancestry(owner))
        return next((role for role in found if role is not Role.OTHER), Role.OTHER)

    def _index_names(self, unit: Unit, completed: Mapping[str, AbstractSet[str]]) -> None:
        """Work out which names of calls matter in a module.

        Args:
            completed: methods that classes of other files add to those of this one.
        """
        unit.reach.update(reach_by_name(unit.facts))
        unit.reach.update(joined(unit.reach, self._imported_reach(unit.module)))
        unit.reach.update(joined(unit.reach, completed))
        others = unit.aliases.spread(unit.reach)
        unit.reach.update(joined(unit.reach, others))
        unit.slicer.interesting |= {*self._interesting_names(unit), *completed, *others}
        unit.slicer.add_lasting({*others, *unit.aliases.choices})
        self._handed |= {*others, *self._handed_on(unit)}
        self._slices.clear()

    def _complete_bases(self, owner: Class) -> None:
        """Let base classes in other files reach what the methods that override theirs reach."""
        own = {name: self.facts(method) for name, method in owner.methods.items()}
        words = {name: found.reach for name, found in own.items() if found.reach}
        for base in self.ancestry(owner)[1:] if words else ():
            unit = self.unit(base)
            if base.module is owner.module or not unit.facts:
                continue
            for found in unit.facts.values():
                for name in found.callees & words.keys():
                    found.reach |= words[name]
            close_over_calls(unit.facts, unit.aliases.targets)
            self._index_names(unit, words)

    def _handed_on(self, unit: Unit) -> Iterator[str]:
        """Methods that reach the protocol: another module may call them on what it is given."""
        for function, facts in unit.facts.items():
            if function.owner is not None and facts.reach and not function.name.startswith("__"):
                yield function.name

    def _interesting_names(self, unit: Unit) -> Iterator[str]:
        """Names whose call may reach the protocol, or decide a test about it."""
        yield from self._imported_reach(unit.module)
        for function, facts in unit.facts.items():
            if function.name in ("__init__", "<module>"):
                continue
            if facts.reach or self.settles_test(function) or _may_be_completed(function):
                yield function.name
        for owner in unit.module.classes.values():
            if self.is_interesting(owner) or self.stores_tested(owner):
                yield owner.name
        filled = self._fill_tested(unit.module)
        for name, dotted, found in self._imported(unit.module):
            # A configuration does not mention the protocol.
            configures = name in filled or CONFIGURATION.search(dotted) is not None
            if not configures and not self._partakes(found):
                continue
            if isinstance(found, Class):
                if self.is_interesting(found) or self.stores_tested(found):
                    yield name
            elif self.settles_test(found):
                yield name

    def _fill_tested(self, module: Module) -> set[str]:
        """Names that a module calls with a keyword which a test of the program may read."""
        return {
            site.method
            for site in module.calls
            if any(word.arg in self._tested for word in site.node.keywords)
        }

    def settles_test(self, function: Function) -> bool:
        """Whether a function assigns attributes that a test of the program reads."""
        facts = self.unit(function).facts.get(function)
        return facts is not None and bool(facts.settles & self._tested)

    def stores_tested(self, owner: Class) -> bool:
        """Whether running the constructor of a class may decide a test."""
        constructor = self.find_method(owner, "__init__")
        if constructor is None and is_record(owner):
            return any(
                not self._tested.isdisjoint(fields_of(item)) for item in self.ancestry(owner)
            )
        return constructor is not None and self.settles_test(constructor)

    def imported_place(self, node: ast.expr, function: Function) -> str | None:
        """Where a variable of another file lives, under whatever name it is imported."""
        if not isinstance(node, (ast.Name, ast.Attribute)):
            return None
        try:
            return self._imported_places[node]  # asked for every name of every visit
        except KeyError:
            found = self._imported_places[node] = self._find_imported(node, function)
            return found

    def _find_imported(self, node: ast.Name | ast.Attribute, function: Function) -> str | None:
        dotted = function.module.resolve(node)
        found = self.objects.bindings(node, function) if dotted is not None else None
        if dotted is None or not found or found[0].function.module is function.module:
            return None
        if any(isinstance(item.statement, NESTED) for item in found):
            return None
        home = found[0].function.module.body
        name = dotted.rpartition(".")[2]
        return f"{home.label}:{name}" if found[0].function is home else None

    def constant(self, node: ast.expr, function: Function) -> Value:
        """The constant that a place outside of all functions always is; None if there is none."""
        content = self.values.of(node, function).only()
        if content is None:
            return NONE
        return ("const", content) if isinstance(content, (bool, int, float, str)) else None

    def knows(self, function: Function) -> bool:
        """Whether the module of a function is part of the program."""
        return function.module in self._units

    @property
    def modules(self) -> tuple[Module, ...]:
        """The files that the analysis has looked at so far."""
        return tuple(self._units)

    def unit(self, found: Function | Class) -> Unit:
        """The unit that holds a function or class; its module joins the program by that."""
        return self._unit_of(found.module)

    def facts(self, function: Function) -> FunctionFacts:
        """Facts of a function."""
        return self.unit(function).facts[function]

    def roles(self, function: Function) -> Roles:
        """Roles of the module that holds a function."""
        return self.unit(function).roles

    def slice(self, function: Function) -> Slice:
        """The relevance slice of a function, computed once."""
        found = self._slices.get(function)
        if found is None:
            found = self._slices[function] = self.unit(function).slicer.slice(function)
        return found

    def targets(self, call: ast.Call, function: Function) -> Targets:
        """The functions of the program that a call can run by the values in sight."""
        found = self.objects.targets(call, function)
        known = tuple(item for item in found.functions if self._has_facts(item))
        lacking = "" if len(known) == len(found.functions) else "a lambda"
        return Targets(known, found.unknown or lacking)

    def _has_facts(self, function: Function) -> bool:
        """Whether a function was read with its module; a lambda is only read where it is met."""
        self._known(function)
        return function.module in self._units and function in self._units[function.module].facts

    def find_function(self, expression: ast.expr, function: Function) -> Function | None:
        """The function that an expression names where `function` reads it."""
        found = self._project.named(expression, function)
        return found if isinstance(found, Function) and self.unit(found) else None

    def find_lambda(self, node: ast.Lambda, function: Function) -> Function | None:
        """A lambda as a function, if it reaches the protocol."""
        known = self._lambdas.get(node)
        if known is None:
            known = self._lambdas[node] = as_function(node, function)
            unit = self.unit(function)
            unit.facts[known] = facts_of_lambda(known, unit.roles, unit.reach)
        return known if self.facts(known).interesting else None

    def find_class(self, expression: ast.expr, function: Function) -> Class | None:
        """The class of the program that an expression names where `function` reads it."""
        found = self._project.named(expression, function)
        return found if isinstance(found, Class) else None

    def find_callable(self, expression: ast.expr, function: Function) -> Value:
        """The class or function that an expression stands for; as a value.

        Only of files that can take part in the protocol.
        """
        if function.module.resolve(expression) in CLIP_FUNCTIONS:
            return CLIPPER
        found = self._project.named(expression, function)
        return _callable(found) if found is not None and self._partakes(found) else None

    def find_entry(self, expression: ast.expr, function: Function) -> Value:
        """The function or class in a table of the program: `STEPS["amp"]`; as a value."""
        if not isinstance(expression, ast.Subscript):
            return None
        found = table_of(expression.value, function.module, self._project)
        if found is None:
            return None
        table, home = found
        if not isinstance(expression.slice, ast.Constant):
            return self._any_entry(table, home)
        key = str(expression.slice.value)
        entry = table.entries.get(key)
        if entry is not None:
            return self.find_callable(entry, home.body)
        return self._known(registered_under(key, table, home, self._project))

    def _any_entry(self, table: Table, home: Module) -> Value:
        """What any key of a table may give, if all of it is known."""
        entries = table.entries.values()
        found = [self.find_callable(entry, home.body) for entry in entries]
        if table.registrars or not found or None in found:
            return None
        return ("choice", tuple(found))

    def find_requested(self, call: ast.Call, function: Function) -> tuple[Value, Request] | None:
        """What a call asks a registry of the program for, as a value."""
        found = requested(call, function, self._project)
        return (self._known(found[0]), found[1]) if found is not None else None

    def _requested(self, module: Module) -> Iterator[Function | Class]:
        """Everything that a module asks registries for."""
        for site in module.calls:
            found = self.find_requested(site.node, site.function)
            if found is not None and found[0] is not None:
                yield found[0][1]

    def _imported(self, module: Module) -> list[tuple[str, str, Function | Class]]:
        """Imported functions and classes that are read: the name in a call, dotted, the symbol.

        What a module only hands on, its importers find where it is defined.
        `limit` after `from tools import limit`, and where it calls `tools.limit(...)`.
        """
        known = self._symbols.get(module)
        if known is None:
            read = module.once(names_read)
            places = {item for item in module.scopes.aliases.items() if item[0] in read}
            places |= {(site.method, site.dotted) for site in module.calls if site.dotted}
            found = (
                (name, place, self._project.definition(place, module))
                for name, place in sorted(places)
            )
            known = self._symbols[module] = [
                (name, place, symbol) for name, place, symbol in found if symbol is not None
            ]
        return known

    def _partakes(self, found: Function | Class) -> bool:
        """Whether a symbol can take part in the protocol.

        A word of it stands in the module, or a function, or a method, hands what it is given to one
        that can.
        """
        if found.module in self._units or found.module.once(_has_protocol_words):
            return True
        if isinstance(found, Class):
            return any(map(self._partakes, found.methods.values()))
        if found not in self._hands:
            self._hands[found] = False  # while its own calls are asked
            self._hands[found] = self._hands_on(found)
        return self._hands[found]

    def _hands_on(self, function: Function) -> bool:
        given = parameters(function)
        calls = (node for node in function.nodes if isinstance(node, ast.Call))
        for call in calls:
            if not any(isinstance(item, ast.Name) and item.id in given for item in given_to(call)):
                continue
            found = self._project.named(call.func, function)
            if found not in (None, function) and self._partakes(found):
                return True
        return False

    def mentions_amp(self, module: Module) -> bool:
        """Whether an analysis starts in a module, too."""
        return module.once(_mentions_amp)

    def _known(self, found: Function | Class | None) -> Value:
        """A symbol as a value, its module being part of the program."""
        if found is not None:
            self.unit(found)
        return _callable(found)

    def _imported_reach(self, module: Module) -> dict[str, frozenset[str]]:
        """Names that calls of imported functions and methods use -> words they may reach."""
        known = self._reaches.get(module)
        if known is not None:
            return known
        reach: dict[str, set[str]] = {}
        self._reaches[module] = {}
        for name, _, found in self._imported(module):
            if not self._partakes(found):
                continue
            for called, words in self._reach_of(found, name):
                reach.setdefault(called, set()).update(words)
        for found in self._requested(module):
            for called, words in self._reach_of(found, found.name):
                reach.setdefault(called, set()).update(words)
        self._reaches[module] = {name: frozenset(words) for name, words in reach.items() if words}
        return self._reaches[module]

    def _reach_of(self, found: Function | Class, name: str) -> Iterator[tuple[str, set[str]]]:
        if isinstance(found, Function):
            yield name, self._reach(found)
            return
        for item in self.ancestry(found):
            for method in item.methods.values():
                yield method.name, self._reach(method)
                if method.name in ("__init__", "__call__"):
                    yield name, self._reach(method)

    def _reach(self, function: Function) -> set[str]:
        facts = self.unit(function).facts.get(function)
        return facts.reach if facts is not None else set()

    def callers(self, function: Function) -> Iterator[Unit]:
        """Units of other files that may call a function, or a method through a subclass."""
        if function.owner is None:
            modules = list(self._project.users(function))[:CALLER_LIMIT]
        else:
            classes = [function.owner, *self.subclasses(function.owner)]
            found = (self._project.mentioning(function.module, item.name) for item in classes)
            modules = list(dict.fromkeys(itertools.chain(*found)))[:CALLER_LIMIT]
        for module in modules:
            yield self._unit_of(module)

    def is_searched(self, function: Function) -> bool:
        """Whether callers of a function would be found, wherever in its project they are."""
        return self._project.is_searched(function.module)

    def subclasses(self, owner: Class) -> list[Class]:
        """Classes of the project with `owner` among their bases, directly or not."""
        return list(self.objects.subclasses(owner))

    def _unit_of(self, module: Module) -> Unit:
        if module not in self._units:
            self.add(module, roles_of(module))
        return self._units[module]

    def ancestry(self, owner: Class) -> list[Class]:
        """The class and its bases, in whatever file, in the order of method resolution."""
        return self.objects.ancestry(owner)

    def find_method(self, owner: Class, name: str) -> Function | None:
        """A method of the class or of its bases, nearest first."""
        return method_of(self.ancestry(owner), name)

    def method_of(self, node: ast.Attribute, function: Function) -> Function | None:
        """The one method that an attribute of an object reads, by all that the object can be."""
        if node not in self._methods:
            self._methods[node] = self._find_method_of(node, function)
        return self._methods[node]

    def _find_method_of(self, node: ast.Attribute, function: Function) -> Function | None:
        found = self.objects.kinds(node.value, function)
        methods: set[Function | None] = set()
        for kind in found.known:
            if not isinstance(kind, Instance):
                return None
            heirs = () if kind.exact else self.subclasses(kind.owner)
            methods |= {self.find_method(owner, node.attr) for owner in (kind.owner, *heirs)}
        return methods.pop() if len(methods) == 1 else None

    def is_interesting(self, owner: Class) -> bool:
        """Whether any method of the class, inherited ones included, reaches the protocol.

        Or the class has the methods of a scaler: which object it is decides what they do.
        """
        family = self.ancestry(owner)
        methods = [method for item in family for method in item.methods.values()]
        if SCALER_METHODS <= {method.name for method in methods}:
            return True
        return any(map(self._reach, methods))

    def reach(self, call: ast.Call, function: Function) -> frozenset[str]:
        """Protocol words that a call may reach, judged by the callee's name."""
        return self.unit(function).reach.get(callee_name(call), frozenset())

    def reach_of(self, function: Function) -> frozenset[str]:
        """Protocol words that a function may reach by the functions that its calls can run.

        Where these are not known, the callee's name decides.
        """
        if function not in self._reached:
            self._reached[function] = frozenset(self._followed_reach(function))
        return self._reached[function]

    def _followed_reach(self, function: Function) -> set[str]:
        words: set[str] = set()
        seen, pending = {function}, [function]
        while pending:
            current = pending.pop()
            words |= self.facts(current).words
            calls = (node for node in current.nodes if isinstance(node, ast.Call))
            for call in calls:
                by_name = self.reach(call, current)
                if by_name <= words:
                    continue
                found = self.targets(call, current)
                if found.unknown or not found.functions:
                    words |= by_name
                pending += [item for item in found.functions if item not in seen]
                seen.update(found.functions)
        return words

    def asks_is_enabled(self, function: Function) -> bool:
        """Whether the function's module ever calls `is_enabled`."""
        return any("is_enabled" in facts.callees for facts in self.unit(function).facts.values())


def _has_protocol_words(module: Module) -> bool:
    return _PROTOCOL_WORDS.search(module.source) is not None


def _mentions_amp(module: Module) -> bool:
    return mentions_amp(module.source.encode("utf-8", "replace"))


def _may_be_completed(function: Function) -> bool:
    """Whether a class declares a method that subclasses may let do protocol work, by its name."""
    return function.owner is not None and is_stub(function) and bool(SUSPECT.search(function.name))


def _callable(found: Function | Class | None) -> Value:
    if found is None:
        return None
    return ("class", found) if isinstance(found, Class) else ("function", found)
