"""The few changes to the user's code before it runs; rows stay what they are.

`x is None` cannot be answered by a stand-in, a loop over a stand-in may never end, and the
length of a tuple is only known where it is unpacked. So these three become calls of helpers
(`amplint.probe.worker.user_builtins` has them). In a run with repair, statements outside
the plan's slice are wrapped so that they may fail.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from amplint.probe.worker.uses import path_of

Node = TypeVar("Node", bound=ast.AST)

IS_NONE = "__amplint_is_none__"
LOOP = "__amplint_loop__"
AGAIN = "__amplint_again__"
KEYWORDS = "__amplint_keywords__"
KEY = "__amplint_key__"
UNPACK = "__amplint_unpack__"
REPAIR = "__amplint_repair__"
FILL = "__amplint_fill__"
ITEM = "__amplint_item__"
ASSUME = "__amplint_assume__"
ASSERTED = "__amplint_asserted__"
#: The path of what a function returns that could not.
RESULT = "result"
CONTAINS = "__amplint_contains__"
MERGED = "__amplint_merged__"
MEMBERS = "__amplint_members__"

SIMPLE = (
    ast.Expr,
    ast.Assign,
    ast.AugAssign,
    ast.AnnAssign,
    ast.Import,
    ast.ImportFrom,
    ast.Delete,
    ast.Assert,
    ast.Raise,
    ast.Return,
)
#: What tells the shape of a tensor.
SHAPES = frozenset({"shape", "ndim", "dim", "size", "numel"})
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


class Rewriter(ast.NodeTransformer):
    """Rewrites one top-level statement.

    Args:
        repairable: says of a statement whether it may be skipped when it raises; None if
            nothing may.
    """

    def __init__(self, repairable: Callable[[ast.stmt], bool] | None = None) -> None:
        self._repairable = repairable
        self._temporaries = 0

    def rewrite(self, statement: ast.stmt) -> list[ast.stmt]:
        """The statements that take its place."""
        return self._statements([statement])

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        """`x is None`, `x in table` and their opposites ask a helper."""
        self.generic_visit(node)
        if len(node.ops) != 1:
            return node
        if isinstance(node.ops[0], (ast.In, ast.NotIn)):
            found: ast.expr = _call(CONTAINS, [node.left, node.comparators[0]])
            if isinstance(node.ops[0], ast.NotIn):
                found = ast.UnaryOp(ast.Not(), found)
            return _located(found, node)
        if not isinstance(node.ops[0], (ast.Is, ast.IsNot)):
            return node
        other = node.comparators[0]
        if not (isinstance(other, ast.Constant) and other.value is None):
            return node
        asked: ast.expr = _call(IS_NONE, [node.left])
        if isinstance(node.ops[0], ast.IsNot):
            asked = ast.UnaryOp(ast.Not(), asked)
        return _located(asked, node)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """`f(**options)`: unknown options are those that `f` needs."""
        self.generic_visit(node)
        if not path_of(node.func) or any(isinstance(arg, ast.Starred) for arg in node.args):
            return node
        given = [keyword.arg for keyword in node.keywords if keyword.arg is not None]
        for keyword in node.keywords:
            if keyword.arg is None:
                known = ast.parse(repr((len(node.args), tuple(given))), mode="eval").body
                function = copied(node.func)
                asked = _call(KEYWORDS, [function, known, keyword.value])
                keyword.value = _located(asked, keyword.value)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        """`table[key]`, where the key may be a stand-in that has to become one of the keys."""
        self.generic_visit(node)
        members = _members_of(node.value)
        if not isinstance(node.ctx, ast.Load):
            return node
        if members is not None:
            return _located(_call("getattr", [members, node.slice]), node)
        if isinstance(node.slice, (ast.Name, ast.Attribute)) and path_of(node.value):
            table = copied(node.value)
            node.slice = _located(_call(KEY, [table, node.slice]), node.slice)
        elif isinstance(node.value, (ast.Dict, ast.Call)) and path_of(node.slice):
            return _located(_call(ITEM, [node.value, node.slice]), node)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """`x.__dict__`, which no stand-in has, asks a helper."""
        self.generic_visit(node)
        if node.attr != "__dict__" or not isinstance(node.ctx, ast.Load):
            return node
        return _located(_call(MEMBERS, [node.value]), node)

    def visit_Dict(self, node: ast.Dict) -> ast.expr:
        """`{**batch, **output}` has whatever keys are asked of it, if one of them is unknown."""
        merged = [value for key, value in zip(node.keys, node.values) if key is None]
        known = [copied(value) for value in merged if path_of(value)]
        self.generic_visit(node)
        return _located(_call(MERGED, [node, *known]), node) if known else node

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        """What the code takes for granted is assumed, and said."""
        about_shape, is_single = _is_about_shape(node.test), _is_single(node.test)
        self.generic_visit(node)
        known: list[ast.expr] = [ast.Constant(node.lineno), ast.Constant(about_shape)]
        test = node.test
        if is_single:
            test = ast.NamedExpr(ast.Name(ASSERTED, ast.Store()), test)
            known.append(ast.Name(ASSERTED, ast.Load()))
        node.test = _located(ast.BoolOp(ast.Or(), [test, _call(ASSUME, known)]), node.test)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Texts are texts, even if they are made of stand-ins."""
        self.generic_visit(node)
        if node.name in ("__str__", "__repr__"):
            for inner in ast.walk(node):
                if isinstance(inner, ast.Return) and inner.value is not None:
                    inner.value = _located(_call("str", [inner.value]), inner.value)
        return node

    def visit_For(self, node: ast.For) -> ast.AST:
        """Loops are bounded."""
        self.generic_visit(node)
        row = ast.Constant(node.lineno)
        node.iter = _located(_call(LOOP, [node.iter, row]), node.iter)
        return node

    def visit_While(self, node: ast.While) -> ast.AST:
        """`while test` asks first whether it may go on."""
        self.generic_visit(node)
        again = _call(AGAIN, [ast.Constant(node.lineno), ast.Constant(_never_ends(node))])
        node.test = _located(ast.BoolOp(ast.And(), [again, node.test]), node.test)
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        """A tuple on the left says how many values there have to be."""
        self.generic_visit(node)
        target = node.targets[0]
        if len(node.targets) != 1 or not isinstance(target, (ast.Tuple, ast.List)):
            return node
        if isinstance(node.value, (ast.Tuple, ast.List)):
            return node
        if any(isinstance(entry, ast.Starred) for entry in target.elts):
            return node
        count = ast.Constant(len(target.elts))
        node.value = _located(_call(UNPACK, [node.value, count]), node.value)
        return node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """As usual, but lists of statements may become longer."""
        for name, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                setattr(node, name, self._statements(value))
            elif isinstance(value, list):
                setattr(
                    node,
                    name,
                    [self.visit(item) if isinstance(item, ast.AST) else item for item in value],
                )
            elif isinstance(value, ast.AST):
                setattr(node, name, self.visit(value))
        return node

    # -- repair

    def _statements(self, body: list[ast.stmt]) -> list[ast.stmt]:
        return [new for statement in body for new in self._statement(statement)]

    def _statement(self, statement: ast.stmt) -> list[ast.stmt]:
        can_fail = self._repairable is not None and self._repairable(statement)
        new: Any = self.visit(statement)
        if isinstance(new, ast.While):
            begin = ast.Expr(_call(AGAIN, [ast.UnaryOp(ast.USub(), ast.Constant(new.lineno))]))
            return [_located(begin, new), new]
        if not can_fail or _leaves_a_loop(new):
            return [new]
        if isinstance(new, ast.Return):
            fallback = _located(ast.Return(_call(FILL, [ast.Constant(RESULT)])), new)
            return [self._guarded(new, [fallback], (RESULT,))]
        if isinstance(new, (ast.Assert, ast.Raise)):
            return [self._guarded(new, [], None)]
        if isinstance(new, SIMPLE):
            return [self._guarded(new, list(_fillings(new)), tuple(_bound(new)))]
        if isinstance(new, ast.If) and _is_plain(new.test):
            return self._hoisted(new, "test", ast.Constant(False))
        if isinstance(new, ast.For) and _is_plain(new.iter):
            return self._hoisted(new, "iter", _call(FILL, [ast.Constant("items")]))
        return [new]

    def _hoisted(self, statement: ast.stmt, name: str, fallback: ast.expr) -> list[ast.stmt]:
        """The condition of an `if`, or what a `for` runs over, evaluated before, guarded."""
        self._temporaries += 1
        temporary = f"__amplint_value_{self._temporaries}__"
        value = getattr(statement, name)
        if name == "test":
            value = _call("bool", [value])
        before = _located(ast.Assign([ast.Name(temporary, ast.Store())], value), statement)
        instead = _located(ast.Assign([ast.Name(temporary, ast.Store())], fallback), statement)
        setattr(statement, name, _located(ast.Name(temporary, ast.Load()), statement))
        return [self._guarded(before, [instead], ()), statement]

    def _guarded(
        self, statement: ast.stmt, fallback: list[ast.stmt], names: tuple[str, ...] | None
    ) -> ast.stmt:
        """The statement, or `fallback` if it raises.

        Args:
            names: what is bound by it; None for a statement that is there to raise.
        """
        error = "__amplint_error__"
        bound = None if names is None else " ".join(names)
        known = [ast.Constant(statement.lineno), ast.Constant(bound)]
        report = ast.Expr(_call(REPAIR, [ast.Name(error, ast.Load()), *known]))
        handler = ast.ExceptHandler(
            ast.Name("Exception", ast.Load()), error, [_located(report, statement), *fallback]
        )
        _located(handler, statement)
        return _located(ast.Try([statement], [handler], [], []), statement)


def _fillings(statement: ast.stmt) -> Iterator[ast.stmt]:
    """Stand-ins for what the statement would have bound."""
    for path in _bound(statement):
        again = ast.parse(path, mode="eval").body
        again.ctx = ast.Store()  # type: ignore[attr-defined]
        assign = ast.Assign([again], _call(FILL, [ast.Constant(path)]))
        yield _located(assign, statement)


def _bound(statement: ast.stmt) -> Iterator[str]:
    """The paths that an assignment binds: "x", "self.x"."""
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, (ast.AugAssign, ast.AnnAssign)):
        targets = [statement.target]
    else:
        return
    for target in targets:
        for node in ast.walk(target):
            if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
                yield ast.unparse(node)


def _is_about_shape(test: ast.expr) -> bool:
    """Whether a test holds if the comparisons with shapes of tensors do, which no run follows: those
    of `a.dim() == 3 or not reduce` are enough, those of an `and` are not."""
    if isinstance(test, ast.BoolOp):
        enough = any if isinstance(test.op, ast.Or) else all
        return enough(map(_is_about_shape, test.values))
    return isinstance(test, ast.Compare) and any(
        isinstance(node, ast.Attribute) and node.attr in SHAPES for node in ast.walk(test)
    )


def _is_single(test: ast.expr) -> bool:
    """Whether nothing of a test is left out where its first part does not hold."""
    return isinstance(test, ast.Call) or (isinstance(test, ast.Compare) and len(test.ops) == 1)


def _never_ends(loop: ast.While) -> bool:
    """Whether nothing in a loop can leave it but an exception of what it calls."""
    if not isinstance(loop.test, ast.Constant) or not loop.test.value:
        return False
    pending: list[ast.AST] = [*loop.body]
    while pending:
        node = pending.pop()
        if isinstance(node, (ast.Break, ast.Return, ast.Raise, ast.Yield, ast.YieldFrom)):
            return False
        if not isinstance(node, SCOPES):
            pending.extend(ast.iter_child_nodes(node))
    return True


def _leaves_a_loop(statement: ast.AST) -> bool:
    """`raise` without an exception, yields and imports of the future keep their meaning."""
    if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
        return True
    if isinstance(statement, ast.Raise) and statement.exc is None:
        return True
    return isinstance(statement, ast.Expr) and isinstance(
        statement.value, (ast.Constant, ast.Yield, ast.YieldFrom, ast.Await)
    )


def _is_plain(expression: ast.expr) -> bool:
    bad = (ast.NamedExpr, ast.Yield, ast.YieldFrom, ast.Await)
    return not any(isinstance(node, bad) for node in ast.walk(expression))


def _members_of(table: ast.expr) -> ast.expr | None:
    """What `vars(x)`, and the helper that `x.__dict__` has become, tell the members of."""
    if isinstance(table, ast.Call) and len(table.args) == 1:
        return table.args[0] if path_of(table.func) in ("vars", MEMBERS) else None
    return None


def _call(name: str, arguments: list[ast.expr]) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), arguments, [])


def _located(new: Node, old: ast.AST) -> Node:
    """All nodes of `new` that have no place yet stand where `old` stands; what is below one
    that has a place has one, too."""
    pending: list[ast.AST] = [new]
    while pending:
        node = pending.pop()
        if isinstance(node, (ast.expr, ast.stmt, ast.ExceptHandler)):
            if hasattr(node, "lineno"):
                continue
            ast.copy_location(node, old)
            node.end_lineno = node.lineno
            node.end_col_offset = node.col_offset
        pending.extend(ast.iter_child_nodes(node))
    return new


def copied(node: Node) -> Node:
    """A tree like this one. `copy.deepcopy` takes several times as long."""
    new = type(node)()
    for name, value in vars(node).items():
        if isinstance(value, ast.AST) and not isinstance(value, ast.expr_context):
            value = copied(value)
        elif isinstance(value, list):
            value = [copied(item) if isinstance(item, ast.AST) else item for item in value]
        setattr(new, name, value)
    return new
