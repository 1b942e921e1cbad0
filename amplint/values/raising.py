"""Why evaluating an expression raises, whatever the input is: what stands behind it never runs.

By code in sight, or by a row about a library, never by a guess. Of reads of locals that nothing has
bound yet `code/unbound.py` knows, of names that nothing binds `code/undefined.py`, of what files
bind `modules.py`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping

from amplint.code.arguments import is_decorated_otherwise, receiver_of
from amplint.code.definitions import class_fields
from amplint.code.expressions import is_none, last_name, path_text
from amplint.code.layout import EXITS, Layout, layout_of
from amplint.code.module import Class, Function
from amplint.code.unbound import always_runs
from amplint.code.undefined import is_undefined
from amplint.findings import Link, Standing
from amplint.values.attributes import Attributes, is_changed_unseen
from amplint.values.modules import Modules
from amplint.values.namespaces import Namespaces
from amplint.values.objects import Objects
from amplint.values.provenance import CALL_DEPTH, Activation, Firmness
from amplint.values.unpacking import Unpacking
from amplint.values.values import Values

#: Builtins that give a number.
_COUNTING = frozenset(("len", "int", "float"))
#: Builtins of which no version takes other keywords ("Built-in Functions", Python 3.10 to 3.14).
_KEYWORDS: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("abs", "getattr", "hasattr", "isinstance", "iter", "len"), frozenset()),
    **dict.fromkeys(("list", "range", "reversed", "set", "setattr", "tuple"), frozenset()),
    **dict.fromkeys(("max", "min"), frozenset(("default", "key"))),
    "enumerate": frozenset(("iterable", "start")),
    "sorted": frozenset(("key", "reverse")),
    "sum": frozenset(("start",)),
    "zip": frozenset(("strict",)),
}
#: Operators that may have None beside a text, or a type.
_TAKING_NONE = (ast.Mod, ast.BitOr)
#: What an expression makes whose text says so.
_DISPLAYS: dict[type[ast.expr], type] = {
    ast.Dict: dict,
    ast.DictComp: dict,
    ast.List: list,
    ast.ListComp: list,
    ast.Tuple: tuple,
    ast.Set: set,
}


class Raising:
    """Answers for the files of one project, each found out once.

    Args:
        values: says how a test comes out.
        refuses: whether a library refuses a call, made by a function, wherever it runs.
    """

    def __init__(
        self, objects: Objects, values: Values, refuses: Callable[[ast.Call, Function], bool]
    ) -> None:
        self.objects = objects
        self.values = values
        self.refuses = refuses
        self.unpacking = Unpacking(objects)
        self.attributes = Attributes(objects)
        self.namespaces = Namespaces(self.attributes)
        self.modules = Modules(objects)
        self._known: dict[ast.AST, Link | None] = {}
        self._choosy: dict[Function, bool] = {}

    def places(
        self, function: Function, counts: Callable[[ast.AST], bool]
    ) -> Iterator[tuple[ast.AST, Link]]:
        """The expressions of a function that raise wherever their statement runs.

        Args:
            counts: which of them matter; asked first.
        """
        for node in function.once(_may_raise):
            place = _where_raised(node)
            if not counts(place):
                continue
            if node not in self._known:
                self._known[node] = None  # a circle of calls ends here
                self._known[node] = self._raised_by(node, function)
            found = self._known[node]
            if found is not None:
                yield place, found

    def never_ends(self, function: Function, *, imports: bool = True) -> Link | None:
        """Why no call of a function comes to its end, or to a `return` of it.

        A loop that trains is taken to have a batch, as the paths of a training are (decision 6).

        Args:
            imports: whether an import counts that raises by what another file says.
        """
        layout = layout_of(function)
        if _runs_later(function):
            return None
        returns = [node for node in layout.nodes if isinstance(node, ast.Return)]
        places = self.places(
            function,
            lambda node: (
                (imports or not isinstance(node, (ast.Import, ast.ImportFrom)))
                and _is_entered(layout.leaves_out(layout.statement(node)), layout)
                and not any(layout.before(item, node) for item in returns)
            ),
        )
        return next((found for _, found in places), None)

    def _raised_by(self, node: ast.AST, function: Function) -> Link | None:
        """Why evaluating a node raises, whatever it holds."""
        if isinstance(node, ast.Name):
            return doubt(node.id, "is defined") if is_undefined(node, function) else None
        if isinstance(node, ast.Attribute):
            return (
                self._of_nothing(node, function)
                or self._lacking(node, function)
                or self._not_in_module(node, function)
                or self._of_a_key(node, function)
                or self._of_a_display(node, function)
            )
        if isinstance(node, ast.BinOp):
            return self._of_a_key(node, function) or self._of_operands(node, function)
        if isinstance(node, ast.Subscript):
            return _of_a_number(node) or self._without_items(node, function)
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            return self._not_imported(node, function)
        if isinstance(node, ast.Assign):
            return self._taken_apart(node, function) or self._too_early(node, function)
        if isinstance(node, ast.For):
            return self._taken_apart(node, function) or self._over_a_number(node, function)
        return self._refused(node, function) if isinstance(node, ast.Call) else None

    def _not_imported(self, node: ast.Import | ast.ImportFrom, function: Function) -> Link | None:
        """Why an import raises: a module that is there lacks a name, or does not come to its end."""
        here = function.module
        is_relative = isinstance(node, ast.ImportFrom) and node.level > 0
        if is_relative and function is here.body and self.modules.is_top_level(here):
            stem = self.objects.project.stem_of(here)
            return doubt(stem, "is imported as part of a package")
        name, home = self.modules.missing(node, here)
        if name:
            return doubt(name, f"is defined in `{home}`")
        for module in self.modules.imported_by(node, here):
            raised = self.never_ends(module.body, imports=False)  # their files are not read
            if raised is not None:
                return raised
        return None

    def _not_in_module(self, node: ast.Attribute, function: Function) -> Link | None:
        """Why `tools.rate` raises: that file is there, and has nothing of that name."""
        home = self.modules.not_bound(node, function.module)
        return doubt(node.attr, f"is defined in `{home}`") if home else None

    def _lacking(self, node: ast.Attribute, function: Function) -> Link | None:
        """Why `self.sampler` raises, or `trainer.fit`: no object that it can be asked of has that."""
        if not (self.attributes.lacks(node, function) or self.namespaces.lacks(node, function)):
            return None
        return doubt(ast.unparse(node), "is ever set")

    def _of_nothing(self, node: ast.Attribute, function: Function) -> Link | None:
        """Why `self.model.train` raises: whatever sets that attribute sets it to None."""
        held, owner = node.value, function.owner
        if not hasattr(None, node.attr) and self.unpacking.is_nothing(held, function):
            return doubt(ast.unparse(held), "is ever more than None")
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
        if not is_nothing or any(is_changed_unseen(item) for item in family):
            return None
        if self.objects.outside_stores(owner.module, held.attr):
            return None
        return doubt(path_text(held) or held.attr, "is ever more than None")

    def _of_a_display(self, node: ast.Attribute, function: Function) -> Link | None:
        """Why `options.rate` raises: whatever binds that name binds it to a dict, or a list."""
        if not isinstance(node.value, ast.Name):
            return None
        found = self.objects.origins.of(node.value, function)
        kinds = [_DISPLAYS.get(type(item.expression)) for item in found.origins]
        if not found.complete or not kinds:
            return None
        if any(kind is None or hasattr(kind, node.attr) for kind in kinds):
            return None
        return doubt(ast.unparse(node), "is an attribute of a dict, a list or a tuple")

    def _taken_apart(self, node: ast.Assign | ast.For, function: Function) -> Link | None:
        """Why a statement raises that takes a value apart: it has another number of values."""
        targets = self.unpacking.refused(node, function)
        if targets is None:
            return None
        written = ast.unparse(targets)
        shown = written[1:-1] if isinstance(targets, ast.Tuple) else written
        return doubt(shown, "are as many as the values they get")

    def _of_a_key(self, node: ast.expr, function: Function) -> Link | None:
        """Why a use of `loss` raises that `loss, logits = {...}` has bound: it is a text."""
        name = self.unpacking.takes_keys_for_values(node, function)
        return None if name is None else doubt(name.id, "is more than a key of a dict")

    def _too_early(self, node: ast.Assign, function: Function) -> Link | None:
        """Why `self.body = nn.Linear(2, 2)` raises: nothing has called `Module.__init__` before."""
        if not self.attributes.is_too_early(node, function):
            return None
        return doubt("super().__init__()", "is called before")

    def _over_a_number(
        self, node: ast.For, function: Function, inside: Activation | None = None
    ) -> Link | None:
        """Why `for batch in len(loader)` raises: a number has no elements."""
        over = node.iter
        if isinstance(over, ast.Call):
            return doubt(ast.unparse(over), "has elements") if _counts(over, function) else None
        possible = self.values.of(over, function, inside)
        is_number = possible.always(lambda value: type(value) in (int, float))
        if not is_number or any(v.firmness is not Firmness.FIXED for v in possible.values):
            return None
        return doubt(ast.unparse(over), "has elements")

    def _of_operands(self, node: ast.expr, function: Function) -> Link | None:
        """Why an operation raises: an operand of it is None."""
        assert isinstance(node, ast.BinOp)
        if isinstance(node.op, _TAKING_NONE):
            return None
        for operand in (node.left, node.right):
            if self.unpacking.is_nothing(operand, function):
                return doubt(ast.unparse(operand), "is ever more than None")
        return None

    def _without_items(self, node: ast.Subscript, function: Function) -> Link | None:
        """Why `found["loss"]` raises: it is None."""
        if self.unpacking.is_nothing(node.value, function):
            return doubt(ast.unparse(node.value), "is ever more than None")
        return None

    def _refused(self, call: ast.Call, function: Function) -> Link | None:
        """Why a call raises: what it runs does not take that, or never ends."""
        found = self.objects.symbol(call.func, function)
        if found is None:
            if self.modules.is_module(call.func, function):
                return doubt(ast.unparse(call.func), "is a function or a class")
            if _has_odd_keyword(call, function) or self.refuses(call, function):
                return doubt(f"{ast.unparse(call.func)}(...)", "takes its arguments")
            return self._refused_by_all(call, function)
        abstract = self.attributes.left_abstract(found) if isinstance(found, Class) else ""
        if abstract:
            return doubt(f"{found.name}.{abstract}", "is more than abstract")
        callee = self._runs(call, function)
        if callee is None:
            return None
        return (
            self.not_taken(call, function, callee)
            or self.never_ends(callee)
            or self._not_allowed(call, function, callee)
        )

    def _runs(self, call: ast.Call, function: Function) -> Function | None:
        """The one function, or constructor, that a call by a name runs as it is written."""
        found = self.objects.symbol(call.func, function)
        callee = self.constructor(found) if isinstance(found, Class) else found
        if callee is None or is_decorated_otherwise(callee):
            return None
        return None if self.objects.is_replaced(callee, function) else callee

    def _refused_by_all(self, call: ast.Call, function: Function) -> Link | None:
        """Why a call raises whichever of the functions it runs that it can run."""
        targets = self.objects.targets(call, function)
        if targets.unknown or not targets.functions:
            return None
        doubts: list[Link] = []
        for callee in targets.functions:
            raised = None if is_decorated_otherwise(callee) else self.never_ends(callee)
            is_whole = raised is not None or self._passes_all(call, function, callee)
            if raised is None and is_whole:
                raised = self.not_taken(call, function, callee) or self._not_allowed(
                    call, function, callee
                )
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

    def not_taken(self, call: ast.Call, function: Function, callee: Function) -> Link | None:
        """Why a call raises before it enters its callee: that does not take its arguments."""
        if not self.objects.bind(call, function, callee).refused:
            return None
        return doubt(f"{ast.unparse(call.func)}(...)", "takes its arguments")

    def _not_allowed(
        self, call: ast.Call, function: Function, callee: Function, around: Activation | None = None
    ) -> Link | None:
        """Why a callee raises for what one call passes: `assert dim % heads == 0`, of constants.

        Or `for name in names` of a number, there or in what it hands that on to.
        """
        layout = layout_of(callee)
        if _runs_later(callee) or not self._is_choosy(callee):
            return None
        inside = Activation(callee, call, function, around, constructs=callee.name == "__init__")
        for statement in callee.body:
            if any(isinstance(node, ast.Return) for node in layout.inside(statement)):
                return None
            if self._raises_inside(statement, callee, inside):
                return doubt(f"{ast.unparse(call.func)}(...)", "allows what it is given")
        return None

    def _is_choosy(self, callee: Function) -> bool:
        """Whether a function, or what it calls, holds anything that may refuse what it is given.

        Asked once of each function; what one call passes is asked only of those, call by call.
        """
        if callee not in self._choosy:
            self._choosy[callee] = True  # a circle of calls may come back to what refuses
            self._choosy[callee] = any(
                _needed(item) is not None or isinstance(item, ast.For) for item in callee.body
            ) or any(
                self._is_choosy(further)
                for item in callee.body
                if isinstance(onward := getattr(item, "value", None), ast.Call)
                and (further := self._runs(onward, callee)) is not None
            )
        return self._choosy[callee]

    def _raises_inside(self, statement: ast.stmt, callee: Function, inside: Activation) -> bool:
        """Whether a statement of a callee raises for what this call passes."""
        needed = _needed(statement)
        if needed is not None:
            test, side = needed
            return self.values.truth(test, callee, inside) == {not side: Firmness.FIXED}
        if isinstance(statement, ast.For):
            return self._over_a_number(statement, callee, inside) is not None
        onward = getattr(statement, "value", None)
        if not isinstance(onward, ast.Call) or inside.depth >= CALL_DEPTH:
            return False
        further = self._runs(onward, callee)
        if further is None or self.objects.bind(onward, callee, further).refused:
            return False
        return self._not_allowed(onward, callee, further, inside) is not None

    def constructor(self, owner: Class) -> Function | None:
        """What a call of a class runs, where that is all that it runs."""
        return self.objects.method(owner, "__init__") if self.objects.is_plain(owner) else None


def doubt(subject: str, claim: str) -> Link:
    """That no run comes to a place, as a link: something would have to be so, and is not."""
    return Link("reach", Standing.GUESS, subject, claim)


#: Nodes that may raise by what stands there.
_RAISING = (
    *(ast.Name, ast.Attribute, ast.Subscript, ast.Import, ast.ImportFrom, ast.Assign, ast.For),
    *(ast.BinOp, ast.Call),
)


def _is_entered(outer: ast.AST, layout: Layout) -> bool:
    """Whether every call of a function runs what a statement of it holds: it trains, or is no loop."""
    while isinstance(outer, ast.For) and any(map(_is_backward, layout.inside(outer))):
        outer = layout.leaves_out(outer)
    return outer is layout.function.node


def _is_backward(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and last_name(node.func) == "backward"


def _runs_later(function: Function) -> bool:
    """Whether a call of a function runs nothing of it yet: it makes a generator, or a coroutine."""
    return isinstance(function.node, ast.AsyncFunctionDef) or any(
        isinstance(node, (ast.Yield, ast.YieldFrom)) for node in layout_of(function).nodes
    )


def _needed(statement: ast.stmt) -> tuple[ast.expr, bool] | None:
    """The test, and how it has to come out, for a statement of a function to raise nothing."""
    if isinstance(statement, ast.Assert):
        return statement.test, True
    if isinstance(statement, ast.If) and isinstance(statement.body[-1], ast.Raise):
        is_plain = not any(isinstance(item, (*EXITS, ast.If)) for item in statement.body[:-1])
        return (statement.test, False) if is_plain else None
    return None


def _may_raise(function: Function) -> tuple[ast.AST, ...]:
    """The nodes of a function that may raise and run with their statement."""
    layout = layout_of(function)
    nodes = (node for node in layout.nodes if isinstance(node, _RAISING))
    return tuple(node for node in nodes if always_runs(layout, node))


def _where_raised(node: ast.AST) -> ast.AST:
    """What is evaluated last before a node raises: of a loop's head what it runs over."""
    return node.iter if isinstance(node, ast.For) else node


def _builtin(call: ast.Call, function: Function) -> str:
    """The name of the builtin that a call runs, "" for others."""
    callee = call.func
    if not isinstance(callee, ast.Name):
        return ""
    return callee.id if function.module.scopes.resolve(callee).kind == "builtin" else ""


def _counts(call: ast.Call, function: Function) -> bool:
    """Whether a call of a builtin gives a number."""
    return _builtin(call, function) in _COUNTING


def _has_odd_keyword(call: ast.Call, function: Function) -> bool:
    """Whether a builtin is given a keyword that it does not take: `enumerate(loader, desc="train")`."""
    given = {item.arg for item in call.keywords} - {None}
    taken = _KEYWORDS.get(_builtin(call, function)) if given else None
    return taken is not None and not given <= taken


def _of_a_number(node: ast.Subscript) -> Link | None:
    """Why `0[mask]` raises: a number has no items, and None has none, either."""
    held = node.value
    if not isinstance(held, ast.Constant) or isinstance(held.value, (str, bytes)):
        return None
    return doubt(ast.unparse(held), "has items")
