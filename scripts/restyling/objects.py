"""Styles that build the same objects in another place, or put something around them."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Callable, Iterator

from restyling.blocks import extract
from restyling.program import (
    DoesNotApplyError,
    Edit,
    Program,
    Source,
    arguments_of,
    codes_of_line,
    dotted_name,
    first_row,
)

_MADE = re.compile(r"(\w+\.)*(GradScaler|SGD|Adam|AdamW|RMSprop|Adagrad|NAdam|Adadelta)$")
_LAYER = re.compile(
    r"(torch\.)?nn\.(Linear|Conv\dd|LayerNorm|BatchNorm\dd|GroupNorm|ReLU|GELU|Dropout|Flatten"
    r"|Sigmoid|Tanh|Embedding)$"
)


def _is_made(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and bool(_MADE.match(dotted_name(node.func)))


# Built in a function


def _runs(source: Source, function: ast.FunctionDef) -> Iterator[list[ast.stmt]]:
    """Consecutive assignments that end with the construction of a scaler or an optimizer."""
    for node in ast.walk(function):
        body = getattr(node, "body", None)
        if isinstance(node, (ast.Lambda, ast.IfExp)) or not body:
            continue
        run: list[ast.stmt] = []
        for statement in [*body, None]:
            if statement is not None and _is_assignment(statement):
                run.append(statement)
                continue
            while run and not _is_made(run[-1].value):
                run.pop()
            if run:
                yield run
            run = []


def _is_assignment(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return False
    return isinstance(statement.value, ast.Call) and isinstance(statement.targets[0], ast.Name)


def _factories(
    program: Program, form: Callable[[str, list[str], list[str]], tuple[str, str, list]]
):
    changed = {}
    number = 0
    for source in program.python:
        edits: list[Edit] = []
        for function in source.functions():
            if not isinstance(source.parents[function], (ast.Module, ast.ClassDef)):
                continue
            if isinstance(source.parents[function], ast.ClassDef):
                made = _attributes_made(source, function, number, form)
                if made is not None:
                    number += 1
                    edits += made
                    continue
            for run in _runs(source, function):
                block = extract(source, function, run, keep=True)
                if block is None or len(block.given) < 1:
                    continue
                number += 1
                edits += _built(source, block, list(block.given), list(block.given), number, form)
        if edits:
            changed[source.name] = source.edited(edits)
    if not changed:
        raise DoesNotApplyError("builds no scaler and no optimizer in a plain assignment")
    return program.with_texts(changed)


def _built(source, block, names, targets, number, form, body=None) -> list[Edit]:
    name = f"build_{number}"
    before, result, lines = form(name, names, targets)
    call = f"{name}({', '.join(block.taken)})"
    header = f"def {name}({', '.join(block.parameters)}):\n"
    text = textwrap.indent(body or block.body(), "    ")
    definition = f"{before}{header}{text}    return {result}\n\n\n"
    row = first_row(_top(source, block.function))
    placed = [line.replace("CALL", call) for line in lines]
    placed = [line + block.note(name) for line in placed]
    return [source.before_row(row, definition), block.replaced(placed)]


def _top(source: Source, node: ast.AST) -> ast.stmt:
    while not isinstance(source.parents[node], ast.Module):
        node = source.parents[node]
    return node


def _attributes_made(source, method, number, form) -> list[Edit] | None:
    """The same for consecutive `self.x = ...` of a method, which then come as local names."""
    run: list[ast.stmt] = []
    best: list[ast.stmt] = []
    for statement in [*method.body, None]:
        if statement is not None and _gives_attribute(statement, run):
            run.append(statement)
            continue
        while run and not _is_made(run[-1].value):
            run.pop()
        while run and not _is_made(run[0].value):
            run.pop(0)
        best = best or run
        run = []
    if not best:
        return None
    block = extract(source, method, best)
    if block is None or block.given:
        return None
    names = [statement.targets[0].attr for statement in best]
    if set(names) & set(block.taken) or len(set(names)) < len(names):
        return None
    text = block.body()
    for name in names:
        text = re.sub(rf"^owner\.{name}\b", name, text, flags=re.MULTILINE)
    if re.search(rf"owner\.({'|'.join(names)})\b", text):
        return None
    targets = [f"self.{name}" for name in names]
    return _built(source, block, names, targets, number + 1, form, text)


def _gives_attribute(statement: ast.stmt, run: list[ast.stmt]) -> bool:
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return False
    target = statement.targets[0]
    if not isinstance(target, ast.Attribute) or dotted_name(target.value) != "self":
        return False
    before = {one.targets[0].attr for one in run}
    reads = {node.attr for node in ast.walk(statement.value) if isinstance(node, ast.Attribute)}
    return isinstance(statement.value, ast.Call) and not (reads & before)


def built_as_tuple(program: Program) -> Program:
    """A function builds the objects and returns them as a tuple."""
    return _factories(
        program,
        lambda name, names, targets: (
            "",
            f"({', '.join(names)},)",
            [f"{', '.join(targets)}{',' if len(targets) == 1 else ''} = CALL"],
        ),
    )


def built_as_dict(program: Program) -> Program:
    """A function builds the objects and returns them as a dict."""
    return _factories(
        program,
        lambda name, names, targets: (
            "",
            "{" + ", ".join(f'"{one}": {one}' for one in names) + "}",
            [f"{name}_parts = CALL"]
            + [f'{target} = {name}_parts["{one}"]' for one, target in zip(names, targets)],
        ),
    )


def built_as_dataclass(program: Program) -> Program:
    """A function builds the objects and returns them as a data class."""

    def form(name: str, names: list[str], targets: list[str]) -> tuple[str, str, list[str]]:
        fields = "".join(f"    {one}: object\n" for one in names)
        cls = "Parts" + name.removeprefix("build_")
        before = f"import dataclasses\n\n\n@dataclasses.dataclass\nclass {cls}:\n{fields}\n\n"
        lines = [f"{name}_parts = CALL"]
        lines += [f"{target} = {name}_parts.{one}" for one, target in zip(names, targets)]
        return before, f"{cls}({', '.join(names)})", lines

    return _factories(program, form)


# An attribute chain, a wrapper


def attribute_chain(program: Program) -> Program:
    """Scalers and optimizers are attributes of an object in between: `self.kept.scaler`."""
    sources = list(program.python)
    found = False
    changed = {}
    for source in sources:
        edits = _chained_attributes(source, sources) + _chained_locals(source)
        if not edits:
            continue
        found = True
        row = source.definition_row()
        cls = "class Kept:\n    pass\n\n\n"
        changed[source.name] = source.edited([source.before_row(row, cls), *edits])
    if not found:
        raise DoesNotApplyError("no scaler and no optimizer is kept")
    return program.with_texts(changed)


def _chained_attributes(source: Source, sources: list[Source]) -> list[Edit]:
    edits: list[Edit] = []
    for cls in source.tree.body:
        if not isinstance(cls, ast.ClassDef) or cls.decorator_list:
            continue
        builder = next(
            (n for n in cls.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None
        )
        if builder is None:
            continue
        names = {
            statement.targets[0].attr
            for statement in builder.body
            if isinstance(statement, ast.Assign)
            and _is_self_attribute(statement.targets[0])
            and (_is_made(statement.value) or re.search("scaler|optim", source.of(statement)))
        }
        inside = set(ast.walk(cls))
        names -= {
            node.attr
            for other in sources
            for node in ast.walk(other.tree)
            if isinstance(node, ast.Attribute) and not (node in inside and _is_self_attribute(node))
        }
        names -= {
            node.value
            for other in sources
            for node in ast.walk(other.tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        if builder.lineno == builder.body[0].lineno or not names:
            continue
        first = builder.body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            first = builder.body[1]
        blanks = " " * first.col_offset
        edits.append(source.before_row(first_row(first), f"{blanks}self.kept = Kept()\n"))
        for node in inside:
            if _is_self_attribute(node) and node.attr in names:
                if source.of(node) != f"self.{node.attr}":
                    raise DoesNotApplyError("an attribute in an f-string")
                edits.append(source.replace(node, f"self.kept.{node.attr}"))
    return edits


def _is_self_attribute(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and dotted_name(node.value) == "self"


def _made_locals(source: Source, function: ast.FunctionDef) -> Iterator[tuple[str, ast.Assign]]:
    """Local names that are set once, to a new scaler or optimizer."""
    scope = source.scopes.by_node[function]
    parameters = {given.arg for given in arguments_of(function)}
    for statement in ast.walk(function):
        if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
            continue
        target = statement.targets[0]
        if not isinstance(target, ast.Name) or not _is_made(statement.value):
            continue
        if source.scopes.binding.get(target) is not scope or target.id in parameters:
            continue
        stores = [
            node
            for node, owner in source.scopes.binding.items()
            if owner is scope
            and isinstance(node, ast.Name)
            and node.id == target.id
            and not isinstance(node.ctx, ast.Load)
        ]
        if len(stores) == 1 and target.id not in source.scopes.awkward:
            yield target.id, statement


def _uses(source: Source, function: ast.AST, name: str) -> list[ast.Name]:
    scope = source.scopes.by_node[function]
    return [
        node
        for node, owner in source.scopes.binding.items()
        if owner is scope and isinstance(node, ast.Name) and node.id == name
    ]


def _chained_locals(source: Source) -> list[Edit]:
    edits: list[Edit] = []
    for function in source.functions():
        if source.method_class(function) is not None and function.name == "__init__":
            continue
        names = list(_made_locals(source, function))
        if not names:
            continue
        first = function.body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            if len(function.body) == 1:
                continue
            first = function.body[1]
        if first.lineno == function.lineno:
            continue
        blanks = " " * first.col_offset
        edits.append(source.before_row(first_row(first), f"{blanks}kept = Kept()\n"))
        for name, _ in names:
            for node in _uses(source, function, name):
                edits.append(source.rename(node, name, f"kept.{name}"))
    return edits


def wrapper_class(program: Program) -> Program:
    """A scaler stands inside an object of an own class, whose methods call its methods."""
    sources = list(program.python)
    changed = {}
    for source in sources:
        methods: dict[str, int] = {}
        edits: list[Edit] = []
        for function in source.functions():
            for name, statement in _made_locals(source, function):
                if not dotted_name(statement.value.func).endswith("GradScaler"):
                    continue
                uses = [
                    node
                    for node in _uses(source, function, name)
                    if node is not statement.targets[0]
                ]
                if _only_calls(source, uses, methods):
                    edits += _around(source, statement.value)
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Assign) and _is_made(node.value) and len(node.targets) == 1:
                target = node.targets[0]
                if not dotted_name(node.value.func).endswith("GradScaler"):
                    continue
                if _is_self_attribute(target) and _attribute_only_calls(
                    sources, source, target, methods
                ):
                    edits += _around(source, node.value)
        if not edits:
            continue
        row = source.definition_row()
        changed[source.name] = source.edited(
            [source.before_row(row, _wrapper(methods, _leads_to(source))), *edits]
        )
    if not changed:
        raise DoesNotApplyError("no scaler of its own of which only methods are called")
    return program.with_texts(changed)


def _around(source: Source, call: ast.Call) -> list[Edit]:
    start, end = source.start(call), source.end(call)
    return [Edit(start, start, "Wrapped("), Edit(end, end, ")")]


def _only_calls(source: Source, uses: list[ast.AST], methods: dict[str, int]) -> bool:
    found: dict[str, int] = {}
    for node in uses:
        attribute = source.parents[node]
        call = source.parents.get(attribute)
        if not isinstance(attribute, ast.Attribute) or not isinstance(call, ast.Call):
            return False
        if call.func is not attribute or call.keywords or attribute.attr.startswith("_"):
            return False
        if any(isinstance(one, ast.Starred) for one in call.args):
            return False
        if found.setdefault(attribute.attr, len(call.args)) != len(call.args):
            return False
    if any(methods.get(name, count) != count for name, count in found.items()):
        return False
    methods.update(found)
    return bool(found)


def _attribute_only_calls(
    sources: list[Source], source: Source, target: ast.Attribute, methods: dict[str, int]
) -> bool:
    for other in sources:
        if target.attr in re.findall(r"[\"'](\w+)[\"']", other.text):
            return False
    uses = [
        node
        for other in sources
        for node in ast.walk(other.tree)
        if isinstance(node, ast.Attribute) and node.attr == target.attr and node is not target
    ]
    own = [node for node in uses if node in source.parents]
    if len(own) < len(uses) or any(not _is_self_attribute(node) for node in uses):
        return False
    return all(isinstance(node.ctx, ast.Load) for node in uses) and _only_calls(
        source, uses, methods
    )


def _leads_to(source: Source) -> str:
    """A comment for rows where a finding of this file is right, too: what is marked calls them."""
    codes = dict.fromkeys(code for line in source.lines for code in codes_of_line(line))
    return f"  # leads to *: {' '.join(codes)}" if codes else ""


def _wrapper(methods: dict[str, int], note: str) -> str:
    lines = ["class Wrapped:", "    def __init__(self, inner):", "        self.inner = inner"]
    for name, count in methods.items():
        names = [f"x{number}" for number in range(1, count + 1)]
        lines += ["", f"    def {name}({', '.join(['self', *names])}):"]
        lines += [f"        return self.inner.{name}({', '.join(names)}){note}"]
    return "\n".join(lines) + "\n\n\n"


# Modules


def in_sequential(program: Program) -> Program:
    """A layer or a model stands alone in an `nn.Sequential`."""
    return _modules(program, lambda text: f"restyled_nn.Sequential({text})", "", False)


def in_module_list(program: Program) -> Program:
    """A layer or a model stands in an `nn.ModuleList`, and its element is called."""
    return _modules(program, lambda text: f"restyled_nn.ModuleList([{text}])", "[0]", True)


def moved_in_constructor(program: Program) -> Program:
    """A layer or a model is moved where it is made: `.to(device)` to where it is already.

    The device is asked for: a constant one would be another mistake under autocast for `cuda`.
    """
    return _modules(program, lambda text: f"{text}.to(get_default_device())", "", False)


def _modules(program: Program, around: Callable[[str], str], element: str, called: bool) -> Program:
    sources = list(program.python)
    classes = _module_classes(sources)
    changed = {}
    for source in sources:
        edits: list[Edit] = []
        for node in ast.walk(source.tree):
            if not isinstance(node, ast.Assign) or len(node.targets) != 1:
                continue
            if not isinstance(node.value, ast.Call):
                continue
            callee = dotted_name(node.value.func)
            if not _LAYER.match(callee) and callee not in classes:
                continue
            uses = _uses_of(source, sources, node.targets[0])
            allowed = None if uses is None else _calls_only(source, uses, called)
            if allowed is None:
                continue
            text = source.of(node.value)
            edits.append(source.replace(node.value, around(text)))
            if element:
                edits += [Edit(source.end(use), source.end(use), element) for use in allowed]
        if edits:
            row = source.import_row()
            name = "nn as restyled_nn" if "restyled_nn" in around("") else "get_default_device"
            line = f"from torch import {name}\n"
            changed[source.name] = source.edited([source.before_row(row, line), *edits])
    if not changed:
        raise DoesNotApplyError("makes no module that is only called")
    return program.with_texts(changed)


def _module_classes(sources: list[Source]) -> set[str]:
    """Own modules whose `forward` takes one value and of which nothing else is asked outside."""
    asked = {
        node.attr
        for source in sources
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Attribute) and not _is_self_attribute(node)
    }
    names = set()
    for source in sources:
        for cls in source.tree.body:
            if not isinstance(cls, ast.ClassDef):
                continue
            if [dotted_name(base) for base in cls.bases] not in (
                ["nn.Module"],
                ["torch.nn.Module"],
            ):
                continue
            methods = {node.name: node for node in cls.body if isinstance(node, ast.FunctionDef)}
            forward = methods.get("forward")
            if forward is None or len(arguments_of(forward)) != 2:
                continue
            own = {
                node.attr
                for node in ast.walk(cls)
                if _is_self_attribute(node) and isinstance(node.ctx, ast.Store)
            }
            if set(methods) <= {"__init__", "forward"} and not own & asked:
                names.add(cls.name)
    return names


def _uses_of(source: Source, sources: list[Source], target: ast.AST) -> list[ast.AST] | None:
    """Where the object is used, None where it cannot be told."""
    if isinstance(target, ast.Name):
        scope = source.scopes.binding.get(target)
        same = [
            node
            for node, owner in source.scopes.binding.items()
            if owner is scope and isinstance(node, ast.Name) and node.id == target.id
        ]
        if scope is None or not scope.is_local or target.id in source.scopes.awkward:
            return None
        stores = [node for node in same if not isinstance(node.ctx, ast.Load)]
        return [node for node in same if node is not target] if len(stores) == 1 else None
    if not _is_self_attribute(target):
        return None
    uses = [
        node
        for other in sources
        for node in ast.walk(other.tree)
        if isinstance(node, ast.Attribute) and node.attr == target.attr and node is not target
    ]
    if any(node not in source.parents or not isinstance(node.ctx, ast.Load) for node in uses):
        return None
    spoken = any(target.attr in re.findall(r"[\"']([\w.]+)[\"']", one.text) for one in sources)
    return None if spoken or not all(map(_is_self_attribute, uses)) else uses


_PASSIVE = frozenset({"parameters", "train", "eval", "cuda", "requires_grad_", "zero_grad"})


def _calls_only(source: Source, uses: list[ast.AST], strict: bool) -> list[ast.AST] | None:
    """The uses that call the object, None where one does something else with it."""
    called = []
    for node in uses:
        around = source.parents[node]
        if isinstance(around, ast.Call) and around.func is node:
            if len(around.args) != 1 or around.keywords or isinstance(around.args[0], ast.Starred):
                return None
            called.append(node)
        elif isinstance(around, ast.Attribute) and around.attr in _PASSIVE:
            if source.of(node) != dotted_name(node):
                return None
        else:
            return None
    return called or None
