"""Styles that take meaning out of names: neutral locals, neutral attributes, no annotations."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from restyling.program import (
    DoesNotApplyError,
    Edit,
    Program,
    Source,
    arguments_of,
    dotted_name,
)

#: Decorators behind which a function is still called with the same arguments.
_TRANSPARENT = re.compile(
    r"(torch\.|staticmethod|classmethod|property|.*\.setter|functools\.wraps|wraps|"
    r"(contextlib\.)?contextmanager|(abc\.)?abstractmethod|autocast|custom_|no_grad|"
    r"inference_mode|override)"
)
_OPEN_BASES = frozenset({"", "object", "nn.Module", "torch.nn.Module", "Module", "ABC", "abc.ABC"})
#: Attributes that objects of torch and of Python have, so that `x.name` may mean theirs.
_FOREIGN = frozenset(
    [
        "data",
        "grad",
        "weight",
        "bias",
        "step",
        "scale",
        "update",
        "backward",
        "state",
        "training",
        "device",
        "dtype",
        "shape",
        "size",
        "T",
        "item",
        "mean",
        "sum",
        "parameters",
        "named_parameters",
        "modules",
        "children",
        "param_groups",
        "zero_grad",
        "defaults",
        "add",
        "append",
        "extend",
        "pop",
        "get",
        "items",
        "keys",
        "values",
        "name",
        "value",
        "args",
        "loss",
        "logits",
        "sample",
        "forward",
        "mode",
        "train",
        "eval",
        "to",
        "half",
        "float",
        "bfloat16",
        "cuda",
        "cpu",
        "requires_grad",
        "is_leaf",
        "detach",
        "clone",
        "norm",
        "best",
        "count",
        "optimizer_state_dict",
        "state_dict",
        "load_state_dict",
        "enabled",
        "index",
        "epoch",
        "hooks",
        "optimizers",
        "config",
        "gradient_accumulation_steps",
        "sync_gradients",
        "automatic_optimization",
        "trainer",
        "device_type",
        "max_norm",
        "parser",
        "default",
        "inner",
        "func",
        "keywords",
        "module",
        "buffers",
        "layers",
        "amp",
        "amp_dtype",
    ]
)


def neutral_locals(program: Program) -> Program:
    """Every parameter and local variable is called v1, v2 and so on, its keyword arguments too."""
    sources = list(program.python)
    if any(_looks_at_names(source) for source in sources):
        raise DoesNotApplyError("asks for its own names")
    blocked = _spoken(sources) | {"self", "cls", "_"} | _unsafe_parameters(program, sources)
    for source in sources:
        blocked |= source.scopes.awkward | _without_position(source)
    chosen: dict[str, str] = {}
    taken = {word for source in sources for word in re.findall(r"\w+", source.text)}
    changed = {}
    for source in sources:
        for node, name in _local_uses(source):
            if name not in blocked and not name.startswith("__") and name not in chosen:
                chosen[name] = _next_name("v", taken)
    if not chosen:
        raise DoesNotApplyError("no local name that can be changed alone")
    own = _Own(program, sources)
    for source in sources:
        edits = [
            source.rename(node, name, chosen[name])
            for node, name in _local_uses(source)
            if name in chosen
        ]
        for call, keyword in _keywords(source):
            if keyword.arg in chosen and own.takes(source, call, keyword.arg) == "own":
                edits.append(source.rename(keyword, keyword.arg, chosen[keyword.arg]))
        changed[source.name] = source.edited(edits)
    return program.with_texts(changed)


#: What a driver builds for a parameter of this name.
_DRIVEN = {
    "model": "torch.nn.Linear(4, 1)",
    "optimizer": "torch.optim.SGD(model.parameters(), lr=0.1)",
    "scaler": 'torch.amp.GradScaler("cuda")',
    "loader": "[(torch.randn(2, 4), torch.randn(2, 1))]",
}


def neutral_locals_called(program: Program) -> Program:
    """The same, and a new function builds what a training function gets, and calls it."""
    changed = {}
    for source in program.python:
        text = source.text
        for number, function in enumerate(source.tree.body, start=1):
            if isinstance(function, ast.FunctionDef) and not function.decorator_list:
                text += _driver(function, number)
        if text != source.text:
            changed[source.name] = text
    if not changed:
        raise DoesNotApplyError("no function that gets a scaler and other usual things only")
    return neutral_locals(program.with_texts(changed))


def _driver(function: ast.FunctionDef, number: int) -> str:
    names = [given.arg for given in arguments_of(function)]
    plain = not (function.args.kwonlyargs or function.args.vararg or function.args.kwarg)
    # Only whole loops: a part of a step, called alone, would be a mistake of the driver.
    whole = {"model", "loader", "scaler"} <= set(names) <= set(_DRIVEN)
    if not plain or not whole:
        return ""
    lines = [f"\n\ndef drive_{number}():", "    import torch", ""]
    needed = set(names) | {"model"}
    lines += [f"    {name} = {text}" for name, text in _DRIVEN.items() if name in needed]
    return "\n".join([*lines, f"    {function.name}({', '.join(names)})"]) + "\n"


def _next_name(letter: str, taken: set[str]) -> str:
    number = 1
    while f"{letter}{number}" in taken:
        number += 1
    taken.add(f"{letter}{number}")
    return f"{letter}{number}"


def _local_uses(source: Source) -> Iterator[tuple[ast.AST, str]]:
    for node, scope in source.scopes.binding.items():
        if scope is not None and scope.is_local:
            yield node, node.id if isinstance(node, ast.Name) else node.arg


def _without_position(source: Source) -> set[str]:
    """Names inside f-strings at rows and columns that are not theirs."""
    names = set()
    for node, name in _local_uses(source):
        try:
            source.rename(node, name, name)
        except (DoesNotApplyError, IndexError):
            names.add(name)
    return names


def _looks_at_names(source: Source) -> bool:
    calls = (node for node in ast.walk(source.tree) if isinstance(node, ast.Call))
    return any(
        isinstance(call.func, ast.Name) and call.func.id in {"vars", "locals", "globals", "eval"}
        for call in calls
    )


def _spoken(sources: list[Source]) -> set[str]:
    """Words of strings that are no docstrings: keys, options, names for getattr."""
    words: set[str] = set()
    for source in sources:
        docstrings = {
            node.body[0].value
            for node in ast.walk(source.tree)
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
            and node.body
            and isinstance(node.body[0], ast.Expr)
        }
        for node in ast.walk(source.tree):
            spoken = isinstance(node, ast.Constant) and isinstance(node.value, str)
            if spoken and node not in docstrings:
                words.update(re.findall(r"\w+", node.value.replace("-", "_")))
                words.update(re.findall(r"\w+", node.value.replace("--", "").replace("-", "_")))
    return words


def _keywords(source: Source) -> Iterator[tuple[ast.Call, ast.keyword]]:
    for call in ast.walk(source.tree):
        if isinstance(call, ast.Call):
            yield from ((call, keyword) for keyword in call.keywords if keyword.arg)


class _Own:
    """Whose parameter a keyword argument names."""

    def __init__(self, program: Program, sources: list[Source]) -> None:
        self._functions: dict[str, list[ast.FunctionDef]] = {}
        self._classes: dict[str, ast.ClassDef] = {}
        self._assigned: set[str] = set()
        for source in sources:
            for node in ast.walk(source.tree):
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    self._functions.setdefault(node.name, []).append(node)
                elif isinstance(node, ast.ClassDef):
                    self._classes[node.name] = node
                elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                    self._assigned.add(node.attr)

    def takes(self, source: Source, call: ast.Call, name: str) -> str:
        """`own`, `foreign` or `unknown`: whose parameter `name` is in a call."""
        callee = call.func
        if isinstance(callee, ast.Name):
            return self._plain(source, callee, name)
        if not isinstance(callee, ast.Attribute):
            return "unknown"
        if callee.attr == "partial" or callee.attr in self._assigned:
            return "unknown"
        if callee.attr in self._functions:
            return self._of_functions(self._functions[callee.attr], name)
        if callee.attr in self._classes:
            return self._of_class(self._classes[callee.attr], name)
        return "foreign"

    def _plain(self, source: Source, callee: ast.Name, name: str) -> str:
        scope = source.scopes.binding.get(callee)
        if callee.id in {"partial", "dict", "replace"}:
            return "unknown"
        if scope is None:
            return "foreign"
        if scope.is_local:
            return "unknown"
        if callee.id in self._functions:
            return self._of_functions(self._functions[callee.id], name)
        if callee.id in self._classes:
            return self._of_class(self._classes[callee.id], name)
        imported = any(
            alias.name == callee.id and not alias.asname
            for node in source.tree.body
            if isinstance(node, (ast.Import, ast.ImportFrom))
            for alias in node.names
        )
        return "foreign" if imported else "unknown"

    def _of_functions(self, functions: list[ast.FunctionDef], name: str) -> str:
        if all(name in {given.arg for given in arguments_of(one)} for one in functions):
            return "own"
        return "unknown"

    def _of_class(self, cls: ast.ClassDef, name: str) -> str:
        for _ in range(5):
            for node in cls.body:
                if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                    return self._of_functions([node], name)
            fields = {
                node.target.id
                for node in cls.body
                if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
            }
            if name in fields:
                return "foreign"
            bases = [
                self._classes[dotted_name(b)] for b in cls.bases if dotted_name(b) in self._classes
            ]
            if not bases:
                return "unknown"
            cls = bases[0]
        return "unknown"


def _unsafe_parameters(program: Program, sources: list[Source]) -> set[str]:
    """Parameters that somebody may name whom a renaming would not reach."""
    own = _Own(program, sources)
    names = {
        keyword.arg
        for source in sources
        for call, keyword in _keywords(source)
        if own.takes(source, call, keyword.arg) == "unknown"
    }
    open_classes = set(_OPEN_BASES) | {
        node.name for s in sources for node in ast.walk(s.tree) if isinstance(node, ast.ClassDef)
    }
    for source in sources:
        for function in source.functions():
            cls = source.method_class(function)
            foreign = cls is not None and not all(dotted_name(b) in open_classes for b in cls.bases)
            decorated = not all(
                _TRANSPARENT.match(source.of(one)) for one in function.decorator_list
            )
            if foreign or decorated:
                names.update(given.arg for given in arguments_of(function))
    return names


def neutral_attributes(program: Program) -> Program:
    """Attributes that own classes give themselves are called a1, a2 and so on."""
    sources = list(program.python)
    if any(_looks_at_names(source) for source in sources):
        raise DoesNotApplyError("asks for its own names")
    chosen: dict[str, str] = {}
    taken = {word for source in sources for word in re.findall(r"\w+", source.text)}
    blocked = _spoken(sources) | _FOREIGN | _defined_in_classes(sources)
    for source in sources:
        for node in ast.walk(source.tree):
            if _is_own_store(source, node) and node.attr not in blocked | set(chosen):
                chosen[node.attr] = _next_name("a", taken)
    for source in sources:
        for node in ast.walk(source.tree):
            if not isinstance(node, ast.Attribute) or node.attr not in chosen:
                continue
            if _is_imported(source, node) or not _stands_there(source, node):
                del chosen[node.attr]
    if not chosen:
        raise DoesNotApplyError("no class gives itself an attribute")
    return program.with_texts(
        {
            source.name: source.edited(
                [
                    source.rename(node, node.attr, chosen[node.attr])
                    for node in ast.walk(source.tree)
                    if isinstance(node, ast.Attribute) and node.attr in chosen
                ]
            )
            for source in sources
        }
    )


def _is_own_store(source: Source, node: ast.AST) -> bool:
    if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Store):
        return False
    if dotted_name(node.value) != "self":
        return False
    around = source.parents[node]
    while not isinstance(around, (ast.ClassDef, ast.Module)):
        around = source.parents[around]
    if not isinstance(around, ast.ClassDef) or around.decorator_list:
        return False
    return all(dotted_name(base) in _OPEN_BASES for base in around.bases)


def _defined_in_classes(sources: list[Source]) -> set[str]:
    """Methods, properties and class attributes: other places give or ask for these names."""
    names: set[str] = set()
    for source in sources:
        for cls in ast.walk(source.tree):
            if isinstance(cls, ast.ClassDef):
                for node in cls.body:
                    names.add(getattr(node, "name", ""))
                    targets = getattr(node, "targets", [getattr(node, "target", None)])
                    names.update(target.id for target in targets if isinstance(target, ast.Name))
                if any(dotted_name(base) not in _OPEN_BASES for base in cls.bases):
                    names.update(
                        node.attr for node in ast.walk(cls) if isinstance(node, ast.Attribute)
                    )
    return names


def _is_imported(source: Source, node: ast.Attribute) -> bool:
    root = dotted_name(node).partition(".")[0]
    return any(
        root == (alias.asname or alias.name).partition(".")[0]
        for statement in ast.walk(source.tree)
        if isinstance(statement, (ast.Import, ast.ImportFrom))
        for alias in statement.names
    )


def _stands_there(source: Source, node: ast.Attribute) -> bool:
    try:
        source.rename(node, node.attr, node.attr)
    except (DoesNotApplyError, IndexError):
        return False
    return True


def no_annotations(program: Program) -> Program:
    """No parameter, result or variable says its type, but for fields of data classes."""
    changed = {}
    for source in program.python:
        edits: list[Edit] = []
        for node in ast.walk(source.tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                if not all(_TRANSPARENT.match(source.of(one)) for one in node.decorator_list):
                    continue
                for given in arguments_of(node):
                    if given.annotation is not None:
                        name = source.start(given) + len(given.arg)
                        edits.append(Edit(name, source.end(given), ""))
                if node.returns is not None:
                    arrow = source.text.rindex("->", 0, source.start(node.returns))
                    while source.text[arrow - 1] == " ":
                        arrow -= 1
                    edits.append(Edit(arrow, source.end(node.returns), ""))
            elif _is_annotated(node) and not isinstance(source.parents[node], ast.ClassDef):
                edits.append(Edit(source.end(node.target), source.end(node.annotation), ""))
        if edits:
            changed[source.name] = source.edited(edits)
    if not changed:
        raise DoesNotApplyError("no annotation that means nothing")
    return program.with_texts(changed)


def _is_annotated(node: ast.AST) -> bool:
    return isinstance(node, ast.AnnAssign) and node.value is not None and bool(node.simple)
