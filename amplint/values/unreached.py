"""Places that no run comes to: Python raises before, or nobody can call what holds them.

What stands behind a `NameError` is a mistake on paper: it can only happen once something else has
been mended. Of the errors that were false on code that nobody had read, most stood in such a place
(docs/precision.md, batches N and P). A module that is missing counts for nothing: a repository may lack
what its author has. A name that a module does not have, which is there, counts. Of reads of locals that
nothing has bound yet `code/unbound.py` knows: no path leads behind them.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterator
from functools import partial

from amplint.code.arguments import receiver_of
from amplint.code.definitions import class_fields
from amplint.code.expressions import is_none, last_name, path_text
from amplint.code.imports import taken_from
from amplint.code.layout import Layout, layout_of
from amplint.code.module import Class, Function, Module, walk
from amplint.code.tree import TRIES
from amplint.code.unbound import always_runs, is_behind
from amplint.findings import Link, Standing
from amplint.values.objects import Objects
from amplint.values.unpacking import Unpacking
from amplint.values.wrappers import MODULE_BASES

#: Names by which code may define or run what its text does not show.
_UNSEEN = frozenset(("exec", "eval", "globals", "locals", "vars", "builtins", "__builtins__"))
#: Names that a tool, a translation or an older Python may provide.
_PROVIDED = frozenset(("_", "profile", "display", "unicode", "xrange", "raw_input"))

#: Context managers of torch and the standard library whose `__exit__` swallows nothing.
_PASSING = frozenset(
    ("autocast", "no_grad", "enable_grad", "inference_mode", "set_grad_enabled", "nullcontext")
    + ("detect_anomaly", "set_detect_anomaly", "record_function", "profile", "device")
)
_LIBRARIES = frozenset(("torch", "contextlib"))
#: Bases whose objects have attributes that no text of the project shows.
_WITH_MORE = MODULE_BASES | {"torch.utils.data.Dataset"}


class Unreached:
    """Answers for the files of one project, each found out once.

    Args:
        refuses: whether a library refuses a call, made by a function, wherever it runs.
    """

    def __init__(self, objects: Objects, refuses: Callable[[ast.Call, Function], bool]) -> None:
        self.objects = objects
        self.refuses = refuses
        self.unpacking = Unpacking(objects)
        self._raising: dict[ast.AST, Link | None] = {}
        self._unentered: dict[Function, Link | None] = {}

    def doubt(self, node: ast.AST, function: Function) -> Link | None:
        """What would have to hold for a run to come to a node, and by all in sight does not."""
        return self._before(node, function) or self._why_unentered(function)

    def no_second_round(self, loop: ast.AST, function: Function) -> Link | None:
        """Why a loop of a function does not go round: each round raises at the same place."""
        layout = layout_of(function)
        places = self._raises(
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
        places = self._raises(
            function,
            lambda other: (
                layout.before(other, node)
                and not layout.holds(other, node)
                and is_behind(layout, node, other, passes)
            ),
        )
        return next((found for _, found in places), None)

    def _passes_errors(self, function: Function, context: ast.expr) -> bool:
        """Whether a context manager is one of a library that swallows no error."""
        maker = context.func if isinstance(context, ast.Call) else context
        found = self.objects.origins.of(maker, function)
        dotted = [item.function.module.resolve(item.expression) or "" for item in found.origins]
        parts = [name.split(".") for name in dotted]
        return bool(parts) and all(p[0] in _LIBRARIES and p[-1] in _PASSING for p in parts)

    def _never_ends(self, function: Function) -> Link | None:
        """Why no call of a function comes to its end, or to a `return` of it."""
        layout = layout_of(function)
        if isinstance(function.node, ast.AsyncFunctionDef) or any(
            isinstance(node, (ast.Yield, ast.YieldFrom)) for node in layout.nodes
        ):
            return None
        returns = [node for node in layout.nodes if isinstance(node, ast.Return)]
        places = self._raises(
            function,
            lambda node: (
                layout.leaves_out(layout.statement(node)) is function.node
                and not any(layout.before(item, node) for item in returns)
            ),
        )
        return next((found for _, found in places), None)

    def _raises(
        self, function: Function, counts: Callable[[ast.AST], bool]
    ) -> Iterator[tuple[ast.AST, Link]]:
        """The expressions of a function that raise wherever their statement runs.

        Args:
            counts: which of them matter; asked first.
        """
        layout = layout_of(function)
        for node in function.once(_may_raise):
            place = _where_raised(node)
            if not counts(place):
                continue
            if node not in self._raising:
                self._raising[node] = None  # a circle of calls ends here
                self._raising[node] = self._raised_by(node, function, layout)
            found = self._raising[node]
            if found is not None:
                yield place, found

    def _raised_by(self, node: ast.AST, function: Function, layout: Layout) -> Link | None:
        """Why evaluating a node raises, whatever it holds."""
        if isinstance(node, ast.Name):
            return _undefined(node, function, layout)
        if isinstance(node, ast.Attribute):
            return (
                self._of_nothing(node, function)
                or self._missing(node, function)
                or self._of_a_key(node, function)
            )
        if isinstance(node, ast.BinOp):
            return self._of_a_key(node, function)
        if isinstance(node, ast.Subscript):
            return _of_a_number(node)
        if isinstance(node, ast.ImportFrom):
            return self._not_there(node, function)
        if isinstance(node, (ast.Assign, ast.For)):
            return self._taken_apart(node, function)
        return self._refused(node, function) if isinstance(node, ast.Call) else None

    def _not_there(self, node: ast.ImportFrom, function: Function) -> Link | None:
        """Why an import raises: its module is there, and does not have the name."""
        here = function.module
        if node.level and function is here.body and self._is_top_level(here):
            return _doubt(self._stem_of(here), "is imported as part of a package")
        for alias, _, dotted in taken_from(node, self.objects.project.package_of(here)):
            home = self.objects.project.module_named(dotted.rpartition(".")[0], here)
            if home is not None and self._lacks(home, alias.name):
                return _doubt(alias.name, f"is defined in `{home.name}`")
        return None

    def _is_top_level(self, module: Module) -> bool:
        """Whether all who import a file take it from their own folder, so that it has no package.

        Python's reference, "The import system": `__package__` is then "", and a relative import an
        `ImportError`. A script may be run as `python -m package.script`.
        """
        stem = self._stem_of(module)
        if stem == "__init__" or module.once(_is_script):
            return False
        others = self.objects.project.mentioning(module, stem)
        ways = [way for other in others for way in self._ways_to(module, other)]
        return bool(ways) and all(way == stem for way in ways)

    def _ways_to(self, module: Module, other: Module) -> Iterator[str]:
        """The names under which a file imports another one; "" for a relative import."""
        for node in ast.walk(other.tree):
            if not isinstance(node, (ast.Import, ast.ImportFrom)):
                continue
            if isinstance(node, ast.ImportFrom) and node.level:
                yield ""
                continue
            outer = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names = [".".join((*outer, alias.name)) for alias in node.names]
            for name in (*outer, *names):
                if self.objects.project.module_named(name, other) is module:
                    yield name

    def _lacks(self, home: Module, name: str) -> bool:
        """Whether neither a module nor another that an import may mean by its name has a name.

        A package may have it from a compiled file, which is no text.
        """
        stem = self._stem_of(home)
        others = self.objects.project.mentioning(home, name)
        homes = (home, *(other for other in others if self._stem_of(other) == stem))
        return stem != "__init__" and not any(_may_have(item, name) for item in homes)

    def _stem_of(self, module: Module) -> str:
        path = self.objects.project.path_of(module)
        return os.path.splitext(os.path.basename(path))[0]

    def _missing(self, node: ast.Attribute, function: Function) -> Link | None:
        """Why `self.sampler` raises: no class that `self` can be of has or sets that attribute."""
        owner = function.owner
        own = receiver_of(function)
        if owner is None or not own or path_text(node.value) != own or node.attr.startswith("__"):
            return None
        if node.attr in owner.module.once(_names_bound) or self._is_called_on_class(function):
            return None
        family = {
            base for item in self.objects.family(owner) for base in self.objects.ancestry(item)
        }
        if not all(map(self._is_whole, family)) or any(map(_is_changed_unseen, family)):
            return None
        if any(node.attr in item.module.once(_names_bound) for item in family):
            return None
        if self.objects.outside_stores(owner.module, node.attr):
            return None
        return _doubt(f"{own}.{node.attr}", "is ever set")

    def _is_called_on_class(self, function: Function) -> bool:
        """Whether some call hands in what comes first: `Trainer.fit(options, net)`."""
        return any(
            isinstance(site.node.func, ast.Attribute)
            and isinstance(self.objects.symbol(site.node.func.value, site.function), Class)
            for site in self.objects.calls_of(function)
        )

    def _is_whole(self, owner: Class) -> bool:
        """Whether the text of a class and of its bases shows all that its objects have."""
        return self.objects.is_plain(owner) and self.objects.base_names(owner).isdisjoint(
            _WITH_MORE
        )

    def _of_nothing(self, node: ast.Attribute, function: Function) -> Link | None:
        """Why `self.model.train` raises: whatever sets that attribute sets it to None."""
        held, owner = node.value, function.owner
        own = receiver_of(function)
        if owner is None or not own or not isinstance(held, ast.Attribute):
            return None
        if path_text(held.value) != own or not self.objects.is_plain(owner):
            return None
        family = self.objects.family(owner)
        stores = [
            binding
            for item in family
            for _, found in self.objects.stores(item, held.attr)
            for binding in found
        ]
        fields = [item for item in family if held.attr in class_fields(item)]
        is_nothing = bool(stores) and all(is_none(item.value) for item in stores) and not fields
        if not is_nothing or any(_is_changed_unseen(item) for item in family):
            return None
        if self.objects.outside_stores(owner.module, held.attr):
            return None
        return _doubt(path_text(held) or held.attr, "is ever more than None")

    def _taken_apart(self, node: ast.Assign | ast.For, function: Function) -> Link | None:
        """Why a statement raises that takes a value apart: it has another number of values."""
        targets = self.unpacking.refused(node, function)
        if targets is None:
            return None
        written = ast.unparse(targets)
        shown = written[1:-1] if isinstance(targets, ast.Tuple) else written
        return _doubt(shown, "are as many as the values they get")

    def _of_a_key(self, node: ast.expr, function: Function) -> Link | None:
        """Why a use of `loss` raises that `loss, logits = {...}` has bound: it is a text."""
        name = self.unpacking.takes_keys_for_values(node, function)
        return None if name is None else _doubt(name.id, "is more than a key of a dict")

    def _refused(self, call: ast.Call, function: Function) -> Link | None:
        """Why a call raises: what it runs does not take that, or never ends."""
        found = self.objects.symbol(call.func, function)
        if found is None:
            if self.refuses(call, function):
                return _doubt(f"{ast.unparse(call.func)}(...)", "takes its arguments")
            return self._refused_by_all(call, function)
        if isinstance(found, Class):
            found = self._constructor(found)
        if found is None or _is_decorated(found) or self.objects.is_replaced(found, function):
            return None
        return self._not_taken(call, function, found) or self._never_ends(found)

    def _refused_by_all(self, call: ast.Call, function: Function) -> Link | None:
        """Why a call raises whichever of the functions it runs that it can run."""
        targets = self.objects.targets(call, function)
        if targets.unknown or not targets.functions:
            return None
        doubts: list[Link] = []
        for callee in targets.functions:
            raised = None if _is_decorated(callee) else self._never_ends(callee)
            is_whole = raised is not None or self._passes_all(call, function, callee)
            raised = raised or (self._not_taken(call, function, callee) if is_whole else None)
            if raised is None:
                return None
            doubts.append(raised)
        return doubts[0]

    def _passes_all(self, call: ast.Call, function: Function, callee: Function) -> bool:
        """Whether a call passes all that its callee gets, and no `partial` has bound more of it."""
        place = call.func
        if isinstance(place, ast.Attribute) and place.attr == callee.name and callee.owner:
            family = self.objects.family(callee.owner)
            stored = any(self.objects.stores(item, callee.name) for item in family)
            return not stored and not self.objects.outside_stores(function.module, callee.name)
        made = self.objects.origins.of(place, function)
        return made.complete and all(
            isinstance(item.expression, ast.Call)
            and isinstance(self.objects.symbol(item.expression.func, item.function), Class)
            for item in made.origins
        )

    def _not_taken(self, call: ast.Call, function: Function, callee: Function) -> Link | None:
        """Why a call raises before it enters its callee: that does not take its arguments."""
        if not self.objects.bind(call, function, callee).refused:
            return None
        return _doubt(f"{ast.unparse(call.func)}(...)", "takes its arguments")

    def _constructor(self, owner: Class) -> Function | None:
        """What a call of a class runs, where that is all that it runs."""
        return self.objects.method(owner, "__init__") if self.objects.is_plain(owner) else None

    # -- around it -----------------------------------------------------------------------------

    def _unmade(self, function: Function) -> Link | None:
        """Why no object has a method: the constructor raises, and no heir has another one."""
        owner = function.owner
        constructor = self._constructor(owner) if owner is not None else None
        if owner is None or constructor is None or function.name in ("__init__", "__new__"):
            return None
        raised = None if _is_decorated(constructor) else self._never_ends(constructor)
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
        places = self._raises(
            body,
            lambda node: (
                layout.leaves_out(layout.statement(node)) is body.node
                and not any(call is node or layout.before(call, node) for call in own)
            ),
        )
        return next((found for _, found in places), None)

    def _uncalled(self, function: Function) -> Link | None:
        """Why nobody calls a function: no run comes to any of its calls."""
        sites = self.objects.calls_of(function) if function is not function.module.body else ()
        if not sites or self.objects.may_have_other_callers(function):
            return None
        doubts = [
            self.doubt(site.node, site.function)
            or self._not_taken(site.node, site.function, function)
            for site in sites
        ]
        return doubts[0] if all(doubts) else None

    def _uncallable(self, function: Function) -> Link | None:
        """Why nobody calls a function: its own file does not, and no other names that file."""
        module = function.module
        stem = self._stem_of(module)
        if not stem or function is module.body or not self.objects.project.is_searched(module):
            return None
        name = _outermost(function)
        used = module.once(_names_reached)
        if name in used or not used.isdisjoint(_UNSEEN):
            return None
        if not stem.isidentifier():
            mentioned = self.objects.project.mentioning(module, stem)
            return None if any(mentioned) else _doubt(name, "is called by somebody")
        if not module.once(_is_script) or any(self.objects.project.mentioning(module, stem, name)):
            return None
        # Of a script that somebody edits between its runs, a function may be the one of another day.
        return Link("reach", Standing.OPEN, name, "is called by somebody")


def _doubt(subject: str, claim: str) -> Link:
    return Link("reach", Standing.GUESS, subject, claim)


#: Nodes that may raise by what stands there.
_RAISING = (
    *(ast.Name, ast.Attribute, ast.Subscript, ast.ImportFrom, ast.Assign, ast.For, ast.BinOp),
    ast.Call,
)


def _may_raise(function: Function) -> tuple[ast.AST, ...]:
    """The nodes of a function that may raise and run with their statement."""
    layout = layout_of(function)
    nodes = (node for node in layout.nodes if isinstance(node, _RAISING))
    return tuple(node for node in nodes if always_runs(layout, node))


def _where_raised(node: ast.AST) -> ast.AST:
    """What is evaluated last before a node raises: of a loop's head what it runs over."""
    return node.iter if isinstance(node, ast.For) else node


def _of_a_number(node: ast.Subscript) -> Link | None:
    """Why `0[mask]` raises: a number has no items, and None has none, either."""
    held = node.value
    if not isinstance(held, ast.Constant) or isinstance(held.value, (str, bytes)):
        return None
    return _doubt(ast.unparse(held), "has items")


def _undefined(name: ast.Name, function: Function, layout: Layout) -> Link | None:
    """Why reading a name raises: nothing in its file binds it, and Python does not provide it."""
    scopes = function.module.scopes
    if not isinstance(name.ctx, ast.Load) or scopes.stars or _is_annotation(name, layout):
        return None
    if name.id in _PROVIDED or name.id.startswith("__") or function.module.once(_is_open):
        return None
    if scopes.resolve(name, function.node).kind != "unknown" or _is_tried(name, layout):
        return None
    return _doubt(name.id, "is defined")


def _is_annotation(name: ast.Name, layout: Layout) -> bool:
    """Whether a name stands in an annotation, which functions do not evaluate."""
    return any(
        isinstance(outer, ast.AnnAssign) and layout.holds(outer.annotation, name)
        for outer in layout.ancestors(name)
        if outer in layout
    )


def _is_tried(name: ast.Name, layout: Layout) -> bool:
    """Whether a handler may take the error: its file expects that the name may be missing."""
    return any(isinstance(outer, TRIES) for outer in layout.ancestors(name))


def _is_open(module: Module) -> bool:
    """Whether a file may bind names that its text does not show."""
    bound = module.scopes.module.bindings
    return "__getattr__" in bound or any(
        isinstance(node, ast.Name) and node.id in _UNSEEN for node in ast.walk(module.tree)
    )


def _is_changed_unseen(owner: Class) -> bool:
    """Whether a class sets attributes by names that are computed, or by itself."""
    words = {"setattr", "vars", "__dict__", "__setattr__", "__getattr__", "__getattribute__"}
    named = (
        getattr(node, "id", "") or getattr(node, "attr", "") or getattr(node, "name", "")
        for node in ast.walk(owner.node)
    )
    return not words.isdisjoint(named)


def _may_have(module: Module, name: str) -> bool:
    """Whether a module may bind a name; what a star brings is not looked for."""
    scopes = module.scopes
    bound = scopes.meaning(name, scopes.module).scope is scopes.module
    return bound or bool(scopes.stars) or _is_open(module)


def _names_bound(module: Module) -> frozenset[str]:
    """What a file defines or stores, as names or as attributes of anything, or names in a text."""
    found: set[str] = set()
    for node in ast.walk(module.tree):
        if isinstance(node, (ast.Name, ast.Attribute)):
            stored = not isinstance(node.ctx, ast.Load)
            found |= {_name_of(node)} if stored else set()
        elif isinstance(node, ast.Constant):
            found |= {node.value} if isinstance(node.value, str) else set()
        else:
            found.add(_name_of(node))
    return frozenset(found)


def _name_of(node: ast.AST) -> str:
    names = (getattr(node, item, None) for item in ("id", "attr", "name", "arg"))
    return next((name for name in names if isinstance(name, str)), "")


def _is_decorated(function: Function) -> bool:
    """Whether a decorator may put something else in a function's place."""
    written = getattr(function.node, "decorator_list", ())
    return any(last_name(item) not in ("staticmethod", "classmethod") for item in written)


def _outermost(function: Function) -> str:
    """The name at the top of the file under which a function, or what holds it, can be called."""
    return function.qualname.partition(".")[0]


def _is_script(module: Module) -> bool:
    """Whether the body of a file asks if it is the program that runs: `__name__ == "__main__"`."""
    return any(
        isinstance(node, ast.Name) and node.id == "__name__"
        for statement in module.tree.body
        if isinstance(statement, ast.If)
        for node in ast.walk(statement.test)
    )


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
