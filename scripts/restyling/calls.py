"""Styles that call own functions with their arguments in another form."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from restyling.imports import imported
from restyling.program import DoesNotApplyError, Edit, Program, Source, dotted_name

Call = tuple[ast.Call, ast.FunctionDef, list[ast.arg]]

#: Calls of torch that may name their arguments, and the names in their order.
_TORCH = {
    "torch.nn.utils.clip_grad_norm_": ("parameters", "max_norm"),
    "nn.utils.clip_grad_norm_": ("parameters", "max_norm"),
    "clip_grad_norm_": ("parameters", "max_norm"),
    "torch.optim.SGD": ("params", "lr"),
    "torch.optim.Adam": ("params", "lr"),
    "torch.optim.AdamW": ("params", "lr"),
    "torch.amp.GradScaler": ("device",),
    "torch.autocast": ("device_type",),
}


def _own_calls(program: Program, source: Source) -> Iterator[Call]:
    """Calls of the program's own functions and methods, with the parameters that are filled."""
    top = source.scopes.by_node[source.tree]
    functions = {n.name: n for n in source.tree.body if isinstance(n, ast.FunctionDef)}
    twice = [n.name for n in source.tree.body if isinstance(n, ast.FunctionDef)]
    functions = {name: node for name, node in functions.items() if twice.count(name) == 1}
    for one in imported(source):
        other = program.module_of(one.module) if one.module else None
        if other is not None:
            for node in other.tree.body:
                if isinstance(node, ast.FunctionDef) and node.name == one.name:
                    functions[one.local] = node
    for call in ast.walk(source.tree):
        if not isinstance(call, ast.Call):
            continue
        callee = call.func
        if isinstance(callee, ast.Name) and source.scopes.binding.get(callee) is top:
            function = functions.get(callee.id)
            if function is not None and not function.decorator_list:
                yield call, function, function.args.args
        elif isinstance(callee, ast.Attribute) and dotted_name(callee.value) == "self":
            function = _method(program, source, callee.attr)
            if function is not None:
                yield call, function, function.args.args[1:]


def _method(program: Program, source: Source, name: str) -> ast.FunctionDef | None:
    """The only method of that name in the program, where no attribute is called so."""
    found = []
    for other in program.python:
        for node in ast.walk(other.tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == name:
                found.append((other, node))
            stored = isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load)
            if stored and node.attr == name:
                return None
    if len(found) != 1 or found[0][1].decorator_list:
        return None
    return found[0][1] if found[0][0].method_class(found[0][1]) else None


def _rewritten(
    program: Program,
    rewrite: Callable[[Source, Call], list[Edit]],
    needs: str = "",
    torch: Callable[[Source], list[Edit]] = lambda source: [],
) -> Program:
    changed = {}
    for source in program.python:
        edits: list[Edit] = []
        rewritten: list[ast.Call] = []
        for call in _own_calls(program, source):
            inner = any(call[0] in set(ast.walk(other)) for other in rewritten)
            if call[1].args.posonlyargs or call[1].args.vararg or inner:
                continue
            if source.text[source.end(call[0]) - 1] != ")":
                continue
            new = rewrite(source, call)
            if new:
                rewritten.append(call[0])
                edits += new
        edits += torch(source)
        if edits:
            row = source.before_row(source.import_row(), needs)
            changed[source.name] = source.edited([row, *edits])
    if not changed:
        raise DoesNotApplyError("calls no own function with arguments that could be written so")
    return program.with_texts(changed)


def _plain(call: ast.Call) -> bool:
    starred = any(isinstance(one, ast.Starred) for one in call.args)
    return not starred and all(keyword.arg for keyword in call.keywords)


def keyword_arguments(program: Program) -> Program:
    """Own functions, and some of torch, get all their arguments by keyword."""

    def rewrite(source: Source, call: Call) -> list[Edit]:
        node, _, parameters = call
        if not _plain(node) or len(node.args) > len(parameters):
            return []
        starts = [source.start(one) for one in node.args]
        names = [one.arg for one in parameters]
        return [Edit(start, start, f"{name}=") for start, name in zip(starts, names)]

    def torch(source: Source) -> list[Edit]:
        edits = []
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Call) and _plain(node):
                names = _TORCH.get(dotted_name(node.func), ())
                if names and len(node.args) <= len(names):
                    starts = [source.start(one) for one in node.args]
                    edits += [Edit(at, at, f"{name}=") for at, name in zip(starts, names)]
        return edits

    return _rewritten(program, rewrite, torch=torch)


def positional_arguments(program: Program) -> Program:
    """Own functions get by position what they got by keyword, in the same order."""

    def rewrite(source: Source, call: Call) -> list[Edit]:
        node, _, parameters = call
        names = [one.arg for one in parameters[len(node.args) :]]
        if not _plain(node) or not node.keywords:
            return []
        if [keyword.arg for keyword in node.keywords] != names[: len(node.keywords)]:
            return []
        return [
            Edit(source.start(keyword), source.start(keyword.value), "")
            for keyword in node.keywords
        ]

    return _rewritten(program, rewrite)


def _listed(source: Source, call: Call) -> str:
    return ", ".join(source.of(one) for one in call[0].args)


def _inner(source: Source, node: ast.Call) -> Edit | None:
    """The characters of the positional arguments of a call that has no others."""
    if not node.args or node.keywords or not _plain(node):
        return None
    between = source.text[source.end(node.func) : source.end(node)]
    if "#" in between or any(isinstance(one, ast.GeneratorExp) for one in node.args):
        return None
    return Edit(source.end(node.func), source.end(node), "")


def star_arguments(program: Program) -> Program:
    """Own functions get their arguments as `*(a, b)`."""

    def rewrite(source: Source, call: Call) -> list[Edit]:
        inner = _inner(source, call[0])
        if inner is None:
            return []
        return [Edit(inner.start, inner.end, f"(*({_listed(source, call)},))")]

    return _rewritten(program, rewrite)


def dict_arguments(program: Program) -> Program:
    """Own functions get their arguments as `**{"a": a, "b": b}`."""

    def rewrite(source: Source, call: Call) -> list[Edit]:
        node, _, parameters = call
        inner = _inner(source, node)
        if inner is None or len(node.args) > len(parameters):
            return []
        pairs = [f'"{p.arg}": {source.of(a)}' for p, a in zip(parameters, node.args)]
        return [Edit(inner.start, inner.end, "(**{" + ", ".join(pairs) + "})")]

    return _rewritten(program, rewrite)


def partial(program: Program) -> Program:
    """Own functions get their first argument through `functools.partial`."""

    def rewrite(source: Source, call: Call) -> list[Edit]:
        node = call[0]
        inner = _inner(source, node)
        if inner is None:
            return []
        callee = source.of(node.func)
        rest = ", ".join(source.of(one) for one in node.args[1:])
        text = f"functools.partial({callee}, {source.of(node.args[0])})({rest})"
        return [Edit(source.start(node), source.end(node), text)]

    return _rewritten(program, rewrite, "import functools\n")
