"""Places that no run comes to: Python raises before, or nobody can call what holds them.

What stands behind a `NameError` is a mistake on paper: it can only happen once something else has
been mended. Of the errors that were false on code that nobody had read, most stood in such a place
(docs/precision.md, batches N and P). `raising.py` knows what raises.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise

from amplint.code.arguments import is_decorated_otherwise
from amplint.code.expressions import last_name
from amplint.code.layout import TRIES, layout_of
from amplint.code.module import Function, Module, walk
from amplint.code.unbound import is_behind
from amplint.code.undefined import UNSEEN
from amplint.findings import Link, Standing
from amplint.values.conditions import conditions_at
from amplint.values.modules import is_script
from amplint.values.objects import Objects
from amplint.values.provenance import Firmness
from amplint.values.raising import Raising, doubt
from amplint.values.values import Values

#: Context managers of torch and the standard library whose `__exit__` swallows nothing.
_PASSING = frozenset(
    ("autocast", "no_grad", "enable_grad", "inference_mode", "set_grad_enabled", "nullcontext")
    + ("detect_anomaly", "set_detect_anomaly", "record_function", "profile", "device")
)
#: What Python raises where a library does not have, or does not take, something.
_OF_VERSIONS = frozenset(("TypeError", "AttributeError", "ImportError", "ModuleNotFoundError"))
_LIBRARIES = frozenset(("torch", "contextlib"))


class Unreached:
    """Answers for the files of one project, each found out once.

    Args:
        refuses: whether a library refuses a call, made by a function, wherever it runs.
    """

    def __init__(
        self, objects: Objects, values: Values, refuses: Callable[[ast.Call, Function], bool]
    ) -> None:
        self.objects = objects
        self.raising = Raising(objects, values, refuses)
        self._unentered: dict[Function, Link | None] = {}

    def doubt(self, node: ast.AST, function: Function) -> Link | None:
        """What would have to hold for a run to come to a node, and by all in sight does not."""
        return (
            self._before(node, function)
            or self._left_out(node, function)
            or self._for_another_torch(node, function)
            or self._why_unentered(function)
        )

    def no_second_round(self, loop: ast.AST, function: Function) -> Link | None:
        """Why a loop of a function does not go round: each round raises at the same place."""
        layout = layout_of(function)
        places = self.raising.places(
            function, lambda node: layout.leaves_out(layout.statement(node)) is loop
        )
        return next((found for _, found in places), None)

    def _why_unentered(self, function: Function) -> Link | None:
        """Why no run comes to the first statement of a function."""
        if function not in self._unentered:
            self._unentered[function] = None  # functions that call each other end here
            self._unentered[function] = (
                self._uncallable(function)
                or self._unmade(function)
                or self._unloaded(function)
                or self._uncalled(function)
            )
        return self._unentered[function]

    # -- inside one function -------------------------------------------------------------------

    def _before(self, node: ast.AST, function: Function) -> Link | None:
        layout = layout_of(function)
        if node not in layout:
            return None
        passes = partial(self._passes_errors, function)
        places = self.raising.places(
            function,
            lambda other: (
                layout.before(other, node)
                and not layout.holds(other, node)
                and is_behind(layout, node, other, passes)
            ),
        )
        return next((found for _, found in places), None)

    def _left_out(self, node: ast.AST, function: Function) -> Link | None:
        """Why a node does not run: a test around it, or before it, always goes the other way.

        By parameters that nobody passes. What stands in a configuration, or at the top of a file, people
        change there.
        """
        for item in conditions_at(node, function) if node in layout_of(function) else ():
            if self.raising.values.truth(item.test, item.function) != {
                not item.side: Firmness.FIXED
            }:
                continue
            if self._hangs_on_defaults(item.test, item.function):
                return doubt(ast.unparse(item.test), f"is ever {'true' if item.side else 'false'}")
        return None

    def _for_another_torch(self, node: ast.AST, function: Function) -> Link | None:
        """Why a handler does not run: it calls in another way what torch takes as it is called before.

        `try: scaler = GradScaler("cuda") except TypeError: scaler = GradScaler()`, by any arguments.
        """
        layout = layout_of(function)
        around = layout.ancestors(node) if node in layout else ()
        for handler, outer in pairwise(around):
            if not isinstance(handler, ast.ExceptHandler) or not isinstance(outer, TRIES):
                continue
            if not _is_of_versions(handler):
                continue
            again = {last_name(call.func) for call in self._torch_calls(handler, function)}
            for statement in outer.body:
                for call in self._torch_calls(statement, function):
                    if last_name(call.func) in again and not self.raising.refuses(call, function):
                        return doubt(ast.unparse(call), "is refused by torch")
        return None

    def _torch_calls(self, block: ast.AST, function: Function) -> Iterator[ast.Call]:
        for part in layout_of(function).inside(block):
            if isinstance(part, ast.Call):
                dotted = function.module.resolve(part.func) or ""
                if dotted.startswith("torch."):
                    yield part

    def _hangs_on_defaults(self, test: ast.expr, function: Function) -> bool:
        """Whether all constants that a test may read are defaults of parameters."""
        origins = (
            origin
            for part in walk(test)
            if isinstance(part, (ast.Name, ast.Attribute)) and isinstance(part.ctx, ast.Load)
            for origin in self.objects.origins.of(part, function).origins
            if isinstance(origin.expression, ast.Constant)
        )
        around = [item.function.module.scopes.parents.get(item.expression) for item in origins]
        return bool(around) and all(isinstance(outer, ast.arguments) for outer in around)

    def _passes_errors(self, function: Function, context: ast.expr) -> bool:
        """Whether a context manager is one of a library that swallows no error."""
        maker = context.func if isinstance(context, ast.Call) else context
        found = self.objects.origins.of(maker, function)
        dotted = [item.function.module.resolve(item.expression) or "" for item in found.origins]
        parts = [name.split(".") for name in dotted]
        return bool(parts) and all(p[0] in _LIBRARIES and p[-1] in _PASSING for p in parts)

    # -- around it -----------------------------------------------------------------------------

    def _unmade(self, function: Function) -> Link | None:
        """Why no object has a method: the constructor raises, and no heir has another one."""
        owner = function.owner
        constructor = self.raising.constructor(owner) if owner is not None else None
        if owner is None or constructor is None or function.name in ("__init__", "__new__"):
            return None
        raised = (
            None if is_decorated_otherwise(constructor) else self.raising.never_ends(constructor)
        )
        heirs = self.objects.subclasses(owner) if raised is not None else ()
        return None if any("__init__" in heir.methods for heir in heirs) else raised

    def _unloaded(self, function: Function) -> Link | None:
        """Why a function is never there: its file raises at the top, before it calls anything."""
        body = function.module.body
        if function is body:
            return None
        layout = layout_of(body)
        calls = [node for node in layout.nodes if isinstance(node, ast.Call)]
        own = [call for call in calls if self.objects.symbol(call.func, body) is not None]
        places = self.raising.places(
            body,
            lambda node: (
                layout.leaves_out(layout.statement(node)) is body.node
                and not any(call is node or layout.before(call, node) for call in own)
            ),
        )
        return next((found for _, found in places), None)

    def _uncalled(self, function: Function) -> Link | None:
        """Why nobody calls a function: no run comes to any of its calls."""
        sites = self.objects.every_call_of(function) if function is not function.module.body else ()
        doubts = [
            self.doubt(site.node, site.function)
            or self.raising.not_taken(site.node, site.function, function)
            for site in sites
        ]
        return doubts[0] if doubts and all(doubts) else None

    def _uncallable(self, function: Function) -> Link | None:
        """Why nobody calls a function: its file does not, and no other names the file or the function."""
        module = function.module
        stem = self.objects.project.stem_of(module)
        if not stem or function is module.body or not self.objects.project.is_searched(module):
            return None
        name = _outermost(function)
        used = module.once(_names_reached)
        if name in used or not used.isdisjoint(UNSEEN):
            return None
        if not stem.isidentifier():
            mentioned = self.objects.project.mentioning(module, stem)
            return None if any(mentioned) else doubt(name, "is called by somebody")
        if not module.once(is_script):
            unused = self.objects.mentions.is_unused(name, module)
            return doubt(name, "is called by somebody") if unused else None
        if any(self.objects.project.mentioning(module, stem, name)):
            return None
        # Of a script that somebody edits between its runs, a function may be the one of another day.
        return Link("reach", Standing.OPEN, name, "is called by somebody")


def _is_of_versions(handler: ast.ExceptHandler) -> bool:
    """Whether a handler awaits what a library of another version raises, and nothing else."""
    kinds = getattr(handler.type, "elts", [handler.type])
    return all(kind is not None and last_name(kind) in _OF_VERSIONS for kind in kinds)


def _outermost(function: Function) -> str:
    """The name at the top of the file under which a function, or what holds it, can be called."""
    return function.qualname.partition(".")[0]


def _names_reached(module: Module) -> frozenset[str]:
    """Names that the body of a file reads, or what it reads by them, as far as that leads.

    A text may be a name: `getattr(module, "train")`. What is decorated is read by the decorator.
    """
    definitions = {
        item.name: item
        for item in module.tree.body
        if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        if not item.decorator_list
    }
    kept = set(map(id, definitions.values()))
    found: set[str] = set()
    pending = [item for item in module.tree.body if id(item) not in kept]
    while pending:
        for name in _names_in(pending.pop()):
            if name not in found:
                found.add(name)
                pending += [definitions[name]] if name in definitions else []
    return frozenset(found)


def _names_in(statement: ast.stmt) -> Iterator[str]:
    yield getattr(statement, "name", "")
    for node in walk(statement):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
