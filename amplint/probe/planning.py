"""From a finding to plans: which functions to call, with what, and what they have to show.

The static analysis already knows what is a scaler, an optimizer, a flag and who calls whom.
A plan is that knowledge as plain data, for a worker that knows nothing of the program.
"""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from amplint.amp.accelerators import ACCELERATOR
from amplint.amp.library_objects import calls_on
from amplint.amp.roles import roles_of
from amplint.code.dataflow import names_in, parameters
from amplint.code.expressions import path_text
from amplint.code.layout import LOOPS
from amplint.code.module import Class, Function, Module, enclosing_class
from amplint.code.statements import blocks_of, expressions_of
from amplint.findings import Finding
from amplint.flow.program import Program
from amplint.probe.byhand import first_touch, is_by_hand, may_be_fused, touch_in_step
from amplint.probe.callers import Callers
from amplint.probe.carried import Carried
from amplint.probe.counters import tests_of_counters
from amplint.probe.domains import Option, domains_of, domains_of_options, options_of
from amplint.probe.messages import Domain, Event, Note, Plan, Raised, Role
from amplint.probe.predictions import (
    expectations,
    is_about_calls,
    is_about_place,
    needs_data,
    predict,
    rows_of,
)
from amplint.probe.preferences import Compared, Truth, demands, fits
from amplint.probe.refusals import ways_around
from amplint.probe.repetition import Repetition
from amplint.probe.replacements import doubt_about
from amplint.probe.roles import roles_in, with_nested
from amplint.probe.search import NAN
from amplint.probe.straight import is_straight
from amplint.source.positions import split_lines
from amplint.view import FileView

#: How often a function without a loop is called.
CALLS = 3
#: Callers are climbed through this many calls.
CLIMB = 3
#: Callers of one function that are tried.
CALLER_LIMIT = 4

#: Kinds of roles that are objects; a domain of values is nothing for them.
OBJECTS = frozenset({"scaler", "optimizer", "model", "loss", "loader", "scheduler"})

#: Tests whether something is finite, and functions that make them, in the path of a finding.
_FINITE = re.compile(r"nan|finite|isinf|infinite", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan, and what a verdict needs to know about it that the worker does not.

    Args:
        function: the entry.
        options: command line options by attribute name.
    """

    plan: Plan
    function: Function
    options: dict[str, Option]


class PlanBuilder:
    """Plans for the findings of one file.

    Args:
        view: the analysed file.
        path: where it lies on disk.
    """

    def __init__(self, view: FileView, path: str) -> None:
        self.view = view
        self.path = path
        self._carried = Carried(view, path)

    @cached_property
    def calls(self) -> Callers:
        """What the calls of the project's functions pass."""
        folders = self.view.project.folders_of(self.view.module)
        return Callers(self.view.objects, self.view.values, CLIMB, folders[0] if folders else "")

    def entries(self, finding: Finding) -> list[Function]:
        """Functions to call, the best first.

        The function that holds the finding if it runs a backward, else the nearest callers
        that do: half of a protocol fails wherever the other half is missing. What is about a
        place only shows without either, too.
        """
        target = self.function_at(finding.span.start.row)
        return list(dict.fromkeys((*self._alone(finding, target), *self._with_backward(target))))

    def _alone(self, finding: Finding, target: Function) -> list[Function]:
        return [target] if is_about_place(finding.code) else []

    def _with_backward(self, target: Function) -> list[Function]:
        level, seen = [target], [target]
        for _ in range(CLIMB):
            with_backward = [function for function in level if self.runs_backward(function)]
            if with_backward:
                return with_backward
            level = [
                caller
                for function in level
                for caller in self.callers(function)
                if caller not in seen
            ]
            seen += level
        return [target]

    def function_at(self, row: int) -> Function:
        """The innermost function that holds a row, in its decorators, too; a nested one stands
        for its outermost."""
        found = self.view.module.body
        for function in self.view.module.functions[1:]:
            node = function.node
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
                inside = first <= row <= (node.end_lineno or node.lineno)
                if inside and function.parent is None:
                    found = function
        return found

    def callers(self, function: Function) -> list[Function]:
        """Functions of the project that call a function, or build the object it belongs to."""
        found = [site.function for site in self.calls.sites(function)]
        if not found and function.owner is not None:
            found = [site.function for site in self.calls.constructions(function.owner)]
        outermost = [_outermost(caller) for caller in found]
        return list(dict.fromkeys(f for f in outermost if f is not function))[:CALLER_LIMIT]

    @cached_property
    def rows_by_hand(self) -> frozenset[int]:
        """Rows of the checked file on which gradients are made, read or changed by hand."""
        view = self.view
        library = {id(c.node) for c in calls_on(view.objects, view.module, ACCELERATOR, "backward")}
        return frozenset(
            row
            for node in ast.walk(view.module.tree)
            if is_by_hand(node) and id(node) not in library
            for row in range(node.lineno, (node.end_lineno or node.lineno) + 1)
        )

    @cached_property
    def touched_gradients(self) -> int:
        """The first row, in any file around, on which gradients may be changed; 0 for none."""
        rows = (first_touch(module.tree) for module, _ in self._carried.imported(self.view.module))
        return next(filter(None, (first_touch(self.view.module.tree), *rows)), 0)

    def touched_in_step(self, optimizer: str, plan: Plan) -> int:
        """The row of the `step` of a class of optimizers, in any file around, that may change
        gradients before they are applied; 0 for none."""
        entry = self._entries.get((plan.sources[plan.entry_source].filename, plan.entry))
        module = entry.module if entry is not None else self.view.module
        around = (module for module, _ in self._carried.imported(module))
        return next(filter(None, (touch_in_step(each.tree, optimizer) for each in around)), 0)

    @cached_property
    def rows_that_filter(self) -> frozenset[int]:
        """Rows of the checked file that ask a parameter whether it is trained."""
        return frozenset(
            node.lineno
            for node in ast.walk(self.view.module.tree)
            if isinstance(node, ast.Attribute)
            and node.attr == "requires_grad"
            and isinstance(node.ctx, ast.Load)
        )

    @cached_property
    def rows_by_counter(self) -> frozenset[int]:
        """Rows of the checked file that test how often something has been done."""
        return frozenset(
            row
            for function in self.view.module.functions
            for row in tests_of_counters(function, self.slice_rows)
        )

    def builds_scaler_here(self, events: Iterable[Event], row: int) -> bool:
        """Whether the function at a row built the only scaler: nobody else has scaled with it."""
        built = [event for event in events if event.kind == "scaler"]
        return len(built) == 1 and (
            built[0].filename == self.path
            and "stands-for" not in built[0].facts
            and self.function_at(built[0].row) is self.function_at(row)
        )

    def calls_with(self, owners: Collection[str]) -> Iterator[tuple[str, int]]:
        """Calls of the checked file of methods of these paths, or with them as arguments."""
        for site in self.view.module.calls:
            callee = site.node.func
            receiver = callee.value if isinstance(callee, ast.Attribute) else None
            given = (*site.node.args, *(keyword.value for keyword in site.node.keywords))
            parts = [part for part in (receiver, *given) if part is not None]
            if any(path_text(part) in owners for part in parts):
                yield ast.unparse(callee), site.node.lineno

    @cached_property
    def may_scale_itself(self) -> bool:
        """Whether an optimizer may take the scale and divide by it: fused, or by declaration."""
        return any(
            may_be_fused(module.tree) for module, _ in self._carried.imported(self.view.module)
        )

    @property
    def is_sparse(self) -> bool:
        """Whether the file has to do with sparse gradients."""
        return "sparse" in self.view.module.source.lower()

    def names_arguments(self, row: int) -> bool:
        """Whether no call in a line unpacks its arguments."""
        return not any(
            isinstance(argument, ast.Starred) or argument.arg is None
            for site in self.view.module.calls
            if site.node.lineno <= row <= (site.node.end_lineno or row)
            for argument in (*site.node.args, *site.node.keywords)
            if isinstance(argument, (ast.Starred, ast.keyword))
        )

    def is_given_a_scale(self, row: int) -> bool:
        """Whether a scaler that is built in a line begins at a number that is no literal."""
        return any(
            keyword.arg in ("init_scale", None) and names_in(keyword.value)
            for site in self.view.module.calls
            if site.node.lineno <= row <= (site.node.end_lineno or row)
            for keyword in site.node.keywords
        )

    def doubt_about(self, function: Function) -> Note | None:
        """Something else that the program may have in the place of what a function calls."""
        return doubt_about(function, self.view.objects, self._modules_around(function, [function]))

    def ways_around(self, raised: Raised, plan: Plan) -> list[dict[str, Any]]:
        """Inputs that a program may accept, which has refused others in a line."""
        entry = self._entries.get((plan.sources[plan.entry_source].filename, plan.entry))
        module = entry.module if entry is not None else self.view.module
        for other, _ in self._carried.imported(module):
            if self._carried.path_of(other) == raised.filename:
                return ways_around(other, raised.row, self.view.values.origins)
        return []

    def is_straight(self, row: int) -> bool:
        """Whether nothing in its function decides whether a line is reached, but loops."""
        return is_straight(self.function_at(row).body, row)

    def text_of(self, row: int) -> str:
        """A line of the checked file."""
        return split_lines(self.view.module.source)[row - 1]

    def is_passed(self, name: str, function: Function) -> bool:
        """Whether any call around a function passes a keyword of this name, or a call of it, or
        of the constructor of its object, the argument by its place."""
        called = [function]
        if function.owner is not None:
            constructor = self.view.objects.method(function.owner, "__init__")
            called += [constructor] if constructor is not None else []
        if any(
            self.view.objects.arguments(callee, name).given
            for callee in called
            if name in parameters(callee)
        ):
            return True
        return any(
            keyword.arg == name
            for module in self._modules_around(function, [function])
            for site in module.calls
            for keyword in site.node.keywords
        )

    def is_passed_optimizer(self, plan: Plan, name: str) -> bool:
        """Whether all that callers pass for a parameter makes optimizers of torch."""
        entry = self._entries.get((plan.sources[plan.entry_source].filename, plan.entry))
        return entry is not None and self.calls.passes_optimizers(entry, name)

    def is_repeated(self, plan: Plan, optimizers: Collection[str]) -> bool:
        """Whether a loop of a caller calls the entry again with the same optimizers."""
        entry = self._entries.get((plan.sources[plan.entry_source].filename, plan.entry))
        repetition = Repetition(self.view.objects, self.calls)
        return entry is not None and repetition.is_repeated(entry, optimizers)

    @cached_property
    def _entries(self) -> dict[tuple[str, str], Function]:
        return {}

    def plan(self, finding: Finding, entry: Function) -> Planned:
        """The plan of running one entry for one finding."""
        sources = self._carried.sources(entry.module)
        concerned = self._concerned(entry)
        roles = tuple(self._roles(concerned))
        things = {role.path for role in roles if role.kind in OBJECTS}
        options = options_of(self._modules_around(entry, concerned))
        domains = domains_of(
            concerned, self.view.objects, options, things, self._statements_that_matter
        )
        domains = (*domains, *domains_of_options(options))
        if any(_FINITE.search(step.subject) for step in finding.path):
            domains = (*domains, Domain(NAN, (False, True), "guard"))
        names = [source.filename for source in sources]
        self._entries[self._carried.path_of(entry.module), entry.qualname] = entry
        plan = Plan(
            sources=sources,
            entry=entry.qualname,
            target_rows=rows_of(finding),
            roles=roles,
            domains=domains,
            predictions=predict(finding),
            slice_rows=self.slice_rows,
            call_rows=self.call_rows,
            prefer=self._preferences(finding, domains),
            entry_source=names.index(self._carried.path_of(entry.module)),
            calls=self._calls_of(entry, finding),
            real_data=needs_data(finding.code),
            parameters=self._parameters_of(entry),
        )
        return Planned(plan, entry, options)

    def _calls_of(self, entry: Function, finding: Finding) -> int:
        """How often an entry is called: what is about each call of a function shows in the second
        one, and some other mistakes in the next iteration of whoever calls it."""
        if not _loops(entry):
            return CALLS
        row = finding.span.start.row
        per_call = is_about_calls(finding.code) and entry is self.function_at(row)
        return 2 if per_call and not _loops_at(entry, row) else 1

    def _parameters_of(self, entry: Function) -> tuple[str, ...]:
        """Names of the entry's parameters, of those of its object's constructor, and "self"."""
        constructor = self.view.objects.method(entry.owner, "__init__") if entry.owner else None
        made = parameters(constructor) if constructor is not None else ()
        return tuple(dict.fromkeys((*parameters(entry), *made, "self")))

    # -- entries -----------------------------------------------------------------------------

    def runs_backward(self, function: Function) -> bool:
        """Whether a function runs a backward, itself or in what it calls."""
        return any(self._has_backward(other) for other in self._reached(function))

    def _has_backward(self, function: Function) -> bool:
        return any(
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("backward", "manual_backward")
            for other in with_nested(function)
            for node in other.nodes
        )

    def _reached(self, function: Function) -> list[Function]:
        """The function and those of the project that it calls, nearest first."""
        found, pending = [function], [(function, 0)]
        while pending:
            current, depth = pending.pop(0)
            for inner in with_nested(current):
                for node in inner.nodes:
                    if not isinstance(node, ast.Call) or depth >= CLIMB:
                        continue
                    callee = self._callee(node, inner)
                    if callee is not None and callee not in found:
                        found.append(callee)
                        pending.append((callee, depth + 1))
        return found

    def _callee(self, call: ast.Call, function: Function) -> Function | None:
        """What a call runs, as far as names tell; whose class an object has would cost more."""
        own = enclosing_class(function)
        func = call.func
        if own is not None and isinstance(func, ast.Attribute) and _is_self(func.value):
            return self.view.objects.method(own, func.attr)
        known = self.view.objects.symbol(func, function)
        if isinstance(known, Class):
            return self.view.objects.method(known, "__init__")
        if known is None and isinstance(func, ast.Attribute):
            return self._method_named(func.attr)
        return known

    def _method_named(self, name: str) -> Function | None:
        """The only method of this name in the checked file."""
        found = [
            owner.methods[name]
            for owner in self.view.module.classes.values()
            if name in owner.methods
        ]
        return found[0] if len(found) == 1 else None

    def _concerned(self, entry: Function) -> list[Function]:
        """Functions whose inputs matter: what the entry reaches, and constructors of `self`."""
        found = self._reached(entry)
        owner = enclosing_class(entry)
        if owner is not None:
            constructor = self.view.objects.method(owner, "__init__")
            if constructor is not None and constructor not in found:
                found += [f for f in self._reached(constructor) if f not in found]
        return found

    # -- modules ------------------------------------------------------------------------------

    def _modules_around(self, entry: Function, concerned: list[Function]) -> list[Module]:
        """Modules in which the inputs of an entry may be declared, its callers' included."""
        found = [function.module for function in concerned]
        level = [entry]
        for _ in range(CLIMB):
            level = [caller for function in level for caller in self.callers(function)]
            for caller in level:
                found += [
                    caller.module,
                    *(module for module, _ in self._carried.imports_of(caller.module)),
                ]
        found += [module for module, _ in self._carried.imported(entry.module)]
        return list(dict.fromkeys(found))

    # -- roles -------------------------------------------------------------------------------

    def _roles(self, functions: Iterable[Function]) -> Iterator[Role]:
        seen: set[str] = set()
        for function in functions:
            for role in roles_in(function, roles_of(function.module)):
                if role.path not in seen:
                    seen.add(role.path)
                    yield role

    # -- rows and preferences ----------------------------------------------------------------

    @cached_property
    def _program(self) -> Program:
        """The modules as the flow analysis has them before it follows any path."""
        program = Program(self.view.project, self.view.objects, self.view.values)
        program.add(self.view.module, self.view.roles)
        return program

    @cached_property
    def slice_rows(self) -> tuple[int, ...]:
        """Rows of the checked file whose statements matter to the protocol."""
        rows: set[int] = set()
        for function in self.view.module.functions:
            if not isinstance(function.node, ast.Lambda):
                kept = self._program.slice(function).kept
                rows.update(_rows_of_kept(function.body, kept))
        return tuple(sorted(rows))

    @cached_property
    def call_rows(self) -> tuple[int, ...]:
        """First rows of the statements whose calls may do something of the protocol."""
        rows: set[int] = set()
        for function in self.view.module.functions:
            if isinstance(function.node, ast.Lambda):
                continue
            found = self._program.slice(function)
            acting = found.calls - found.wanted
            for node in function.nodes:
                if isinstance(node, ast.stmt) and any(
                    id(expression) in acting for expression in expressions_of(node)
                ):
                    rows.add(node.lineno)
        return tuple(sorted(rows))

    def _statements_that_matter(self, function: Function) -> list[ast.AST] | None:
        """The statements of the slice; None for a function that was never sliced."""
        if not self._program.knows(function) or isinstance(function.node, ast.Lambda):
            return None
        kept = self._program.slice(function).kept
        return [node for node in function.nodes if id(node) in kept]

    def _preferences(self, finding: Finding, domains: Iterable[Domain]) -> dict[str, Any]:
        """Values under which the path of the finding is taken, as far as its tests say so."""
        wanted: dict[str, Truth | Compared] = {}
        tests = (*self._assumptions(finding), *self._guards(finding), *self._switches(finding))
        for test, holds in tests:
            for path, value in demands(test, holds):
                wanted.setdefault(path, value)
        chosen: dict[str, Any] = {
            path: value.holds
            for path, value in wanted.items()
            if path.endswith(")") and isinstance(value, Truth)
        }
        known = {domain.path: domain.values for domain in domains}
        for path, value in wanted.items():
            # An option of a command line is an attribute of whatever holds the options.
            option = f"*.{path.rpartition('.')[2]}" if "." in path else path
            fitting = [v for v in known.get(path, known.get(option, ())) if fits(v, value)]
            if fitting:
                chosen[path] = fitting[0]
        return chosen

    def _assumptions(self, finding: Finding) -> Iterator[tuple[ast.expr, bool]]:
        """The tests of the witness, the last ones first: earlier ones may have changed."""
        for step in reversed(finding.path):
            if step.kind != "assume":
                continue
            with contextlib.suppress(SyntaxError):  # Python does not read all that it unparses
                yield ast.parse(step.subject, mode="eval").body, step.holds

    def _switches(self, finding: Finding) -> Iterator[tuple[ast.expr, bool]]:
        """What enables the regions and scalers of the file: where they are off, little is wrong.

        What is about micro-batches needs windows that have more than one.
        """
        windows = any(expected.kind == "shortened" for expected in expectations(finding.code))
        for site in self.view.module.calls:
            for keyword in site.node.keywords:
                if keyword.arg == "enabled":
                    yield keyword.value, True
                elif keyword.arg == "mixed_precision":
                    yield ast.Compare(keyword.value, [ast.Eq()], [ast.Constant("fp16")]), True
                elif keyword.arg == "gradient_accumulation_steps" and windows:
                    yield ast.Compare(keyword.value, [ast.Gt()], [ast.Constant(1)]), True

    def _guards(self, finding: Finding) -> Iterator[tuple[ast.expr, bool]]:
        """The tests of the `if` statements around the finding."""
        row = finding.span.start.row
        for node in ast.walk(self.view.module.tree):
            if isinstance(node, ast.If):
                if _covers(node.body, row):
                    yield node.test, True
                elif _covers(node.orelse, row):
                    yield node.test, False


def _outermost(function: Function) -> Function:
    while function.parent is not None:
        function = function.parent
    return function


def _loops(function: Function) -> bool:
    """Whether a function loops by itself; the worker calls the others several times."""
    if function.name == "<module>":
        return True
    return any(isinstance(node, LOOPS) for node in ast.walk(function.node))


def _loops_at(function: Function, row: int) -> bool:
    """Whether a row of a function, which may be a script, stands in a loop."""
    return function.name == "<module>" or any(
        isinstance(node, LOOPS) and node.lineno <= row <= (node.end_lineno or row)
        for node in ast.walk(function.node)
    )


def _is_self(expression: ast.expr) -> bool:
    return isinstance(expression, ast.Name) and expression.id == "self"


def _covers(body: list[ast.stmt], row: int) -> bool:
    return any(s.lineno <= row <= (s.end_lineno or s.lineno) for s in body)


def _rows_of_kept(body: Iterable[ast.stmt], kept: frozenset[int]) -> Iterator[int]:
    """Rows of the kept statements; of a compound one its header, up to its first block."""
    for statement in body:
        blocks = [block for block in blocks_of(statement) if block]
        if id(statement) in kept:
            last = statement.end_lineno or statement.lineno
            if blocks:
                last = min(block[0].lineno for block in blocks) - 1
            yield from range(statement.lineno, max(last, statement.lineno) + 1)
        for block in blocks:
            yield from _rows_of_kept(block, kept)
