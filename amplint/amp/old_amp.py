"""torch's older AMP interface, `torch.cuda.amp` and `torch.cpu.amp`: where a file uses it.

Checked against the released wheels: `torch.amp` has `autocast` since 1.12 (1.11 has no such
package), `GradScaler` since 2.3 (2.2.2 has none) and `custom_fwd`/`custom_bwd` since 2.4. The
older names warn since 2.4.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from amplint.amp.target_torch import Version
from amplint.code.by_name import read_by_name
from amplint.code.meanings import Imported
from amplint.code.module import CallSite, Function, Module
from amplint.code.scopes import Scopes
from amplint.code.tree import walk
from amplint.values.objects import Objects


@dataclass(frozen=True, slots=True)
class Old:
    """A name of the older interface.

    Args:
        device: that it stands for, "cuda" or "cpu".
        name: "autocast", "GradScaler", "custom_fwd" or "custom_bwd"; the newer one, in
            `torch.amp`, is called the same.
    """

    device: str
    name: str

    @property
    def since(self) -> Version:
        """The first torch that has the newer one."""
        return SINCE[self.name]


SINCE: dict[str, Version] = {
    "autocast": (1, 12),
    "GradScaler": (2, 3),
    "custom_fwd": (2, 4),
    "custom_bwd": (2, 4),
}
_SUBMODULE = {
    "autocast": "autocast_mode",
    "GradScaler": "grad_scaler",
    "custom_fwd": "autocast_mode",
    "custom_bwd": "autocast_mode",
}
#: Dotted names, the submodules included. `torch.cpu.amp` never had `custom_fwd`.
MEMBERS: dict[str, Old] = {
    f"torch.{device}.amp.{prefix}{name}": Old(device, name)
    for device in ("cuda", "cpu")
    for name, module in _SUBMODULE.items()
    for prefix in ("", f"{module}.")
    if device == "cuda" or not name.startswith("custom_")
}
#: Module of the older interface -> module of the newer one.
MODULES: dict[str, str] = {
    f"torch.{device}.amp{module}": f"torch.amp{module}"
    for device in ("cuda", "cpu")
    for module in ("", ".autocast_mode", ".grad_scaler")
}

#: A mention of the newer interface in a piece of code.
_NEWER = re.compile(
    r"\btorch\.(?:amp|autocast|GradScaler)\b|\bfrom torch import .*\b(?:amp|autocast|GradScaler)\b"
    r"|\btorch, ['\"](?:amp|autocast|GradScaler)\b"
)
#: A test that is about the version of torch, or about what torch has.
_VERSION_TEST = re.compile(
    r"version|hasattr|getattr|signature|torch_?\d|torch_(?:ge|gt|le|lt)|_available_in|\bTORCH",
    re.IGNORECASE,
)
_READS_VERSION = re.compile(r"\btorch\.(?:__version__|version\.__version__|torch_version)\b")
#: The same by the metadata of the installed package.
_READS_METADATA = re.compile(r"\b(?:version|get_distribution)\(")
TYPE_TESTS = frozenset({"isinstance", "issubclass"})
#: What a file mentions that may ask an object for its class: `type(scaler) is GradScaler`, too.
ASKS_FOR_CLASS = TYPE_TESTS | {"type", "__class__"}
#: So many calls upwards it is asked who leads to a function.
_CALLERS = 4
_LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)


@dataclass(frozen=True, slots=True, eq=False)
class Use:
    """One place that names something of the older interface.

    Args:
        node: the whole name, `torch.cuda.amp.autocast` or only `autocast`.
        old: what it names.
        imported: the import that its first name comes from; None where another file of the
            project hands torch on.
    """

    node: ast.expr
    old: Old
    imported: Imported | None = None


def members_of(imported: Imported, scopes: Scopes) -> Iterator[Use | ast.Name]:
    """What is read through one import: a use, or the bare name where it is none.

    A name that only passes through torch (`torch.nn`) is left out.
    """
    for name in scopes.reads(imported):
        node: ast.expr = name
        dotted = imported.dotted
        while dotted not in MEMBERS:
            parent = scopes.parents.get(node)
            if not isinstance(parent, ast.Attribute) or not _leads_on(dotted):
                break
            node, dotted = parent, f"{dotted}.{parent.attr}"
        if dotted in MEMBERS and isinstance(getattr(node, "ctx", None), ast.Load):
            yield Use(node, MEMBERS[dotted], imported)
        elif imported.dotted in MODULES or imported.dotted in MEMBERS:
            yield name


def _leads_on(dotted: str) -> bool:
    return any(name.startswith(f"{dotted}.") for name in MEMBERS)


def is_old(imported: Imported) -> bool:
    """Whether an import can lead to the older interface."""
    return imported.dotted in MEMBERS or imported.dotted in MODULES or _leads_on(imported.dotted)


def is_newer(dotted: str) -> bool:
    """Whether a dotted name belongs to the newer interface."""
    return _NEWER.match(dotted) is not None


def is_fallback(
    node: ast.AST,
    module: Module,
    asks_version: Callable[[ast.expr], bool],
) -> bool:
    """Whether a place is the branch for a torch that lacks the newer interface.

    That is a branch of a test or a `try` that has the newer one in another branch, and any
    branch, or what follows an early exit, that is about versions in a file that knows the
    newer one.

    Args:
        asks_version: whether a test surely asks for the version of torch. Code under one is
            written for more than one torch, whether or not the file knows the newer interface.
    """
    knows_newer = module.once(_knows_newer)
    inner = node
    for outer in module.scopes.ancestors(node):
        if isinstance(outer, (ast.If, ast.IfExp)) and inner is not outer.test:
            if asks_version(outer.test):
                return True
            test = ast.unparse(outer.test)
            others = [part for part in _branches(outer) if not _holds(part, inner)]
            if knows_newer and (
                _VERSION_TEST.search(test) or _mention_newer([*others, [outer.test]], module)
            ):
                return True
        elif knows_newer and _mention_newer([_asked_before(outer, inner)], module):
            return True
        elif knows_newer and isinstance(outer, ast.Try):
            others = [part for part in _branches(outer) if not _holds(part, inner)]
            if inner not in outer.finalbody and _mention_newer(others, module):
                return True
        if knows_newer and isinstance(inner, ast.stmt) and _follows_version_exit(outer, inner):
            return True
        inner = outer
    return False


def type_role(node: ast.expr, scopes: Scopes) -> str:
    """As what a class is named that is only a type there: "annotation" or "test"; "" otherwise."""
    inner: ast.AST = node
    for outer in scopes.ancestors(node):
        if inner in (getattr(outer, "annotation", None), getattr(outer, "returns", None)):
            return "annotation"
        if isinstance(outer, ast.Call):
            called = outer.func.id if isinstance(outer.func, ast.Name) else ""
            return "test" if called in TYPE_TESTS and inner is outer.args[-1] else ""
        if not isinstance(outer, (ast.Subscript, ast.Tuple, ast.BinOp)):
            return ""
        inner = outer
    return ""


def tests_for_scaler(module: Module) -> bool:
    """Whether a file asks objects for the older scaler's class, in a call or a comparison."""
    called = (
        argument
        for site in module.calls
        if isinstance(site.node.func, ast.Name) and site.node.func.id in TYPE_TESTS
        for argument in site.node.args[1:]
    )
    compared = (
        operand
        for node in module.nodes()
        if isinstance(node, ast.Compare)
        for operand in (node.left, *node.comparators)
        if not isinstance(operand, ast.Call)
    )
    return any(
        getattr(MEMBERS.get(module.resolve(node) or ""), "name", "") == "GradScaler"
        for asked in (*called, *compared)
        for node in ast.walk(asked)
        if isinstance(node, (ast.Name, ast.Attribute))
    )


def stands_beside_newer(node: ast.AST, name: str, scopes: Scopes) -> bool:
    """Whether a class is one of several that a type test accepts, the newer one among them."""
    inner = node
    for outer in scopes.ancestors(node):
        if isinstance(outer, ast.Call) and inner in outer.args[1:]:
            tests = isinstance(outer.func, ast.Name) and outer.func.id in TYPE_TESTS
            return tests and _mentions(inner, name)
        if not isinstance(outer, ast.expr):
            return False
        inner = outer
    return False


def is_newer_optional(
    name: str, tree: ast.Module, asks_version: Callable[[ast.expr], bool]
) -> bool:
    """Whether a file takes something of the newer interface only if torch is new enough."""
    return any(
        isinstance(node, (ast.If, ast.IfExp))
        and any(_mentions(item, name) for part in _branches(node) for item in part)
        and asks_version(node.test)
        for node in ast.walk(tree)
    )


def _mentions(node: ast.AST, name: str) -> bool:
    return f"torch.amp.{name}" in ast.unparse(node)


def asks_version(objects: Objects, test: ast.expr, function: Function, depth: int = 3) -> bool:
    """Whether a test reads torch's version in the end, through names and functions of the project."""
    if _reads_version(test, function.module):
        return True
    for node in ast.walk(test) if depth else ():
        if isinstance(node, ast.Call):
            helper = objects.callee(node, function)
            if helper is not None and _reads_version(helper.node, helper.module):
                return True
        elif isinstance(node, ast.Name):
            bound = objects.bindings(node, function) or []
            values = [(item.value, item.function) for item in bound if item.value is not None]
            if any(asks_version(objects, value, there, depth - 1) for value, there in values):
                return True
    return False


def is_called_as_fallback(
    objects: Objects, function: Function, seen: tuple[Function, ...] = ()
) -> bool:
    """Whether all ways to a function lead through branches for a torch without the newer interface.

    Args:
        seen: the functions that the question came from; a circle leads nowhere.
    """

    def is_one(call: CallSite) -> bool:
        def asks(test: ast.expr) -> bool:
            return asks_version(objects, test, call.function)

        return is_fallback(call.node, call.function.module, asks) or is_called_as_fallback(
            objects, call.function, (*seen, function)
        )

    if function in seen or len(seen) == _CALLERS or function is function.module.body:
        return False
    calls = objects.every_call_of(function)
    return bool(calls) and all(is_one(call) for call in calls)


def _reads_version(node: ast.AST, module: Module) -> bool:
    text = _named(node, module)
    if _READS_VERSION.search(text):
        return True
    return "'torch'" in text and _READS_METADATA.search(text) is not None


def _branches(node: ast.If | ast.IfExp | ast.Try) -> list[list[ast.AST]]:
    if isinstance(node, ast.IfExp):
        return [[node.body], [node.orelse]]
    if isinstance(node, ast.If):
        return [[*node.body], [*node.orelse]]
    return [[*node.body], [*node.handlers], [*node.orelse]]


def _asked_before(outer: ast.AST, node: ast.AST) -> list[ast.AST]:
    """What is taken in place of a part of an expression if it is there: `new or old`, and of `getattr`."""
    if isinstance(outer, ast.BoolOp) and isinstance(outer.op, ast.Or):
        return [*outer.values[: outer.values.index(node)]]  # type: ignore[arg-type]
    is_default = isinstance(outer, ast.Call) and node in outer.args[2:3]
    return [outer] if is_default and read_by_name(outer) is not None else []


def _holds(part: list[ast.AST], node: ast.AST) -> bool:
    return any(node is item for item in part)


def _mention_newer(parts: list[list[ast.AST]], module: Module) -> bool:
    return any(_NEWER.search(_named(item, module)) for part in parts for item in part)


def _knows_newer(module: Module) -> bool:
    """Whether a file names the newer interface anywhere."""
    return bool(_NEWER.search(module.source)) or any(
        _NEWER.search(module.resolve(node) or "")
        for node in walk(module.tree)
        if isinstance(node, ast.Attribute)
    )


def _named(node: ast.AST, module: Module) -> str:
    """Code, and behind it the names of torch's that it has under whatever name it imports them."""
    names = (item for item in walk(node) if isinstance(item, (ast.Name, ast.Attribute)))
    resolved = (module.resolve(name) or "" for name in names)
    return " ".join((ast.unparse(node), *(name for name in resolved if "torch" in name)))


def _follows_version_exit(outer: ast.AST, inner: ast.stmt) -> bool:
    """Whether a test about versions has left the block of `inner` before it."""
    for block in (getattr(outer, "body", None), getattr(outer, "orelse", None)):
        if not isinstance(block, list) or inner not in block:
            continue
        for statement in block[: block.index(inner)]:
            if (
                isinstance(statement, ast.If)
                and isinstance(statement.body[-1], _LEAVES)
                and _VERSION_TEST.search(ast.unparse(statement.test))
            ):
                return True
    return False
