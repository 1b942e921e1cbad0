"""# loss-target-dtype (AMP404)

A loss gets targets of a dtype that it cannot take: class indices as floats, or the reverse.

## What it does
Flags a target that is cast right where it goes into a loss, or on its way there:

- class indices cast to a floating type for `cross_entropy`, `nll_loss` or their modules. Float
  targets with the shape of the logits are class probabilities and legal, so it must be in sight
  that the tensor holds indices (it is compared with an `argmax`, given to `one_hot`, or made by
  `randint`); `nll_loss` takes nothing but indices;
- class indices cast to int32 or bool for the same losses;
- integers (`.long()`, `one_hot(...)`) for `binary_cross_entropy_with_logits`,
  `binary_cross_entropy`, `huber_loss` or `kl_div`, and `one_hot(...)` for `cross_entropy`;
- indices as floats for a function of the project that turns targets into distributions only
  where their dtype is an integer's (`if target.dtype == torch.long`).

The finding stands at the cast, also where a function of another file computes the loss.

## Why is this bad?
Such casts appear when a loss under autocast complains about dtypes, and the loss then raises:
`RuntimeError: expected target dtype to be Long or Byte, but got Float`; `result type Float can't be
cast to the desired output type Long`; `Expected floating point type for target with class
probabilities, got Long`. A function that asks for the dtype takes indices for distributions, and
fails by their shape, or trains on nonsense where the shapes happen to fit.

## Example
```python
import torch

model = torch.nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
loader = [(torch.randn(8, 4), torch.randint(0, 3, (8,))) for _ in range(4)]

for inputs, targets in loader:
    optimizer.zero_grad()
    logits = model(inputs)
    loss = torch.nn.functional.cross_entropy(logits, targets.float())
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    correct = (logits.argmax(1) == targets).sum()
```

## Use instead
```python
import torch

model = torch.nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
loader = [(torch.randn(8, 4), torch.randint(0, 3, (8,))) for _ in range(4)]

for inputs, targets in loader:
    optimizer.zero_grad()
    logits = model(inputs)
    loss = torch.nn.functional.cross_entropy(logits, targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    correct = (logits.argmax(1) == targets).sum()
```

## How it is confirmed
Executing the loss once raises the exception.

## Fix safety
Unsafe: training goes on where it stopped, with the loss that is written there. A cast that the loss
cannot take goes, or becomes `.long()` or `.float()`; `one_hot(...)` gets a `.float()`. No fix for
`to(device, dtype)`, which moves the tensor as well, and for a cast that only a function of the project
cannot take. Where the loss is the wrong one, the fix is wrong, too.

## Known limits
Only casts are seen, not the dtypes that a data set yields. A loss that may be one of two kinds is
not judged. `mse_loss`, `l1_loss` and `smooth_l1_loss` take integers and promote them.

## References
- `torch.nn.CrossEntropyLoss`: class indices or class probabilities
- `torch.nn.BCEWithLogitsLoss`, `torch.nn.HuberLoss`, `torch.nn.KLDivLoss`
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from amplint.amp import links
from amplint.amp.halves import cast_of
from amplint.code.dataflow import bindings_of, constant_of
from amplint.code.definitions import returned
from amplint.code.expressions import last_name, path_text
from amplint.code.layout import layout_of
from amplint.code.module import CallSite, Function, Module
from amplint.expectations import TARGETS, caused
from amplint.findings import Finding, Severity
from amplint.fixing.statements import code_of
from amplint.fixing.verbs import Repair, Write, unsafe
from amplint.rule import Rule
from amplint.values.provenance import Activation, Origin, Step
from amplint.view import FileView

RULE = Rule(
    code="AMP404",
    name="loss-target-dtype",
    severity=Severity.ERROR,
    effect="crash",
    summary="a loss gets class indices as floats, or integers where it needs floats",
    fix="unsafe",
    probe=caused("casts", "RuntimeError|ValueError", TARGETS, "place", shapes=True),
)


@dataclass(frozen=True, slots=True)
class Kind:
    """What a loss takes as its target.

    Args:
        indices: whether integers are class indices.
        probabilities: whether floats of the logits' shape are legal, too.
    """

    indices: bool
    probabilities: bool


_INDICES = Kind(True, False)
_EITHER = Kind(True, True)
_FLOATS = Kind(False, True)
_LOSSES = {
    "cross_entropy": _EITHER,
    "CrossEntropyLoss": _EITHER,
    "nll_loss": _INDICES,
    "NLLLoss": _INDICES,
    "multi_margin_loss": _INDICES,
    "binary_cross_entropy_with_logits": _FLOATS,
    "BCEWithLogitsLoss": _FLOATS,
    "binary_cross_entropy": _FLOATS,
    "BCELoss": _FLOATS,
    "huber_loss": _FLOATS,
    "HuberLoss": _FLOATS,
    "kl_div": _FLOATS,
    "KLDivLoss": _FLOATS,
}
_FLOATING = ("float16", "bfloat16", "float32", "float64")
_INTEGER_CASTS = {"long": "int64", "int": "int32", "bool": "bool", "short": "int16"}
_CASTS = frozenset({"float", "half", "double", "to", "type", *_INTEGER_CASTS})
#: Comparisons of dtypes, and whether they are true of equal ones.
_EQUAL = {ast.Eq: True, ast.In: True, ast.Is: True, ast.NotEq: False, ast.NotIn: False}

AS_FLOAT = "`{target}` makes floats of class indices: `{loss}` raises `{error}`"
WRONG_INTEGER = "`{target}` is {dtype}, `{loss}` takes int64: `{error}`"
AS_INTEGER = "`{target}` holds integers, `{loss}` takes floats: `{error}`"
AS_DISTRIBUTION = "`{target}` makes floats of class indices: `{loss}` takes them for distributions"
_EXPECTED = "RuntimeError: expected target dtype…"
_ERRORS = {
    "binary_cross_entropy": "RuntimeError: Found dtype Long…",
    "BCELoss": "RuntimeError: Found dtype Long…",
    "huber_loss": "RuntimeError: Found dtype Long…",
    "HuberLoss": "RuntimeError: Found dtype Long…",
    "kl_div": "RuntimeError: kl_div: Integral inputs…",
    "KLDivLoss": "RuntimeError: kl_div: Integral inputs…",
    "cross_entropy": "RuntimeError: Expected floating point type…",
}
_NO_CAST = "RuntimeError: result type Float can't be cast…"
KEEP_INDICES = "pass the indices as they are (int64); autocast does not touch integer tensors"
LONG = "cast the indices with `.long()`"
USE_FLOATS = "cast the target to float: `{target}.float()`"
_TORCH_NAMES = {"float16": "Half", "float32": "Float", "float64": "Double", "bfloat16": "BFloat16"}


def check(view: FileView) -> Iterator[Finding]:
    """Report targets whose cast contradicts the loss they go into."""
    for site in view.module.calls:
        if len(site.node.args) + len(site.node.keywords) < 2:
            continue
        kind, name = _kind(view, site)
        if kind is not None:
            yield from _judged(view, site, kind, name)
        elif any(_may_cast(view, item, site.function) for item in _given(site.node)):
            yield from _handed_on(view, site)


def _given(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(item.value for item in call.keywords)]


def _kind(view: FileView, site: CallSite, *, named: bool = True) -> tuple[Kind | None, str]:
    """What the called loss takes; None for anything but a loss of torch.

    Args:
        named: whether objects are only asked about where they are called after a loss.
    """
    dotted = site.dotted or ""
    name = dotted.rpartition(".")[2]
    if dotted.startswith("torch.nn.functional."):
        return _LOSSES.get(name), name
    if dotted.startswith("torch.") or not isinstance(site.node.func, (ast.Name, ast.Attribute)):
        return None, ""
    called = last_name(site.node.func).lower()
    if named and "loss" not in called and "crit" not in called:
        return None, ""
    found = view.values.origins.of(site.node.func, site.function)
    names = {_module_name(origin) for origin in found.origins}
    if len(names) != 1 or not found.complete:
        return None, ""
    name = names.pop()
    if name == "CrossEntropyLoss" and all(map(_ignores_an_index, found.origins)):
        return _INDICES, name  # distributions have no index to ignore
    return _LOSSES.get(name), name


def _ignores_an_index(origin: Origin) -> bool:
    node = origin.expression
    words = node.keywords if isinstance(node, ast.Call) else []
    given = next((constant_of(item.value) for item in words if item.arg == "ignore_index"), None)
    return isinstance(given, int) and given >= 0


def _module_name(origin: Origin) -> str:
    node = origin.expression
    if not isinstance(node, ast.Call):
        return ""
    dotted = origin.function.module.resolve(node.func) or ""
    return dotted.rpartition(".")[2] if dotted.startswith("torch.nn.") else ""


def _target(call: ast.Call) -> ast.expr | None:
    for keyword in call.keywords:
        if keyword.arg == "target":
            return keyword.value
    return call.args[1] if len(call.args) > 1 else None


def _judged(
    view: FileView, site: CallSite, kind: Kind, name: str, passed: Activation | None = None
) -> Iterator[Finding]:
    """Report the cast in this file that a loss gets as its target, and cannot take.

    Args:
        passed: the call that the loss is computed for; None for all known ones.
    """
    target = _target(site.node)
    if target is None:
        return
    found = view.values.origins.of(target, site.function, passed)
    if not found.complete or len(found.origins) != 1:
        return
    source = found.origins[0]
    node = source.expression
    if not isinstance(node, ast.Call) or source.function.module is not view.module:
        return
    dtype = _cast_to(view, node, source)
    if dtype is None:
        return
    words = _words(view, node, source, kind, name, dtype)
    if words is None:
        return
    message, help_text = words
    steps = (
        *source.steps,
        Step(site.node, site.function.module, f"`{name}` gets it as its target"),
    )
    path = [view.step(step.node, step.module, step.words) for step in steps]
    rests = (
        links.proved("object", site.node.func, f"is torch's `{name}`"),
        links.held(source.firmness, view.source_of(node), "is its target"),
    )
    fix = _recast(view, node, help_text)
    yield view.finding(RULE, node, message, help_text, path=tuple(path), links=rests, fix=fix)


def _recast(view: FileView, node: ast.Call, help_text: str) -> Repair | None:
    """Leave the cast out, or write the one that the help names."""
    if last_name(node.func) == "one_hot":
        return unsafe(Write(node, "{}.float()"))
    if not isinstance(node.func, ast.Attribute) or len(node.args) + len(node.keywords) > 1:
        return None  # `to(device, dtype)` moves the tensor, too
    tensor = code_of(view, node.func.value)
    cast = {KEEP_INDICES: "", LONG: ".long()"}.get(help_text, ".float()")
    return unsafe(Write(node, f"{tensor}{cast}"))


def _cast_to(view: FileView, node: ast.Call, source: Origin) -> str | None:
    """The dtype that a call gives its tensor: by a cast, or by `one_hot`."""
    name = last_name(node.func)
    if name == "one_hot":
        return "one_hot"
    if isinstance(node.func, ast.Attribute) and name in _INTEGER_CASTS and not node.args:
        return _INTEGER_CASTS[name]
    cast = cast_of(view, node, source, "")
    return cast.dtype if cast is not None and cast.dtype else None


def _words(
    view: FileView, node: ast.Call, source: Origin, kind: Kind, name: str, dtype: str
) -> tuple[str, str] | None:
    """Message and help for a cast that the loss cannot take; None for one that it can."""
    text = view.source_of(node)
    if dtype in _FLOATING and kind.indices:
        assert isinstance(node.func, ast.Attribute)
        if kind.probabilities and not _holds_indices(view, node.func.value, source.function):
            return None
        error = _EXPECTED.format(dtype=_TORCH_NAMES[dtype])
        return AS_FLOAT.format(target=text, loss=name, error=error), KEEP_INDICES
    if kind.indices and dtype in ("int32", "bool", "int16"):
        error = _EXPECTED.format(dtype={"int32": "Int", "bool": "Bool", "int16": "Short"}[dtype])
        message = WRONG_INTEGER.format(target=text, dtype=dtype, loss=name, error=error)
        return message, LONG
    integers = dtype == "one_hot" or dtype in _INTEGER_CASTS.values()
    if integers and (not kind.indices or (dtype == "one_hot" and kind.probabilities)):
        error = _ERRORS["cross_entropy"] if kind.indices else _ERRORS.get(name, _NO_CAST)
        if dtype == "bool":  # another message for each loss
            return None
        message = AS_INTEGER.format(target=text, loss=name, error=error)
        return message, USE_FLOATS.format(target=_without_cast(view, node, dtype))
    return None


def _without_cast(view: FileView, node: ast.Call, dtype: str) -> str:
    if dtype != "one_hot" and isinstance(node.func, ast.Attribute):
        return view.source_of(node.func.value)
    return view.source_of(node)


# -- indices ---------------------------------------------------------------------------------------


def _holds_indices(view: FileView, tensor: ast.expr, function: Function, depth: int = 1) -> bool:
    """Whether it is in sight that a tensor holds class indices."""
    path = path_text(tensor)
    if path is None:
        return isinstance(tensor, ast.Call) and last_name(tensor.func) in ("argmax", "randint")
    for node in layout_of(function).nodes:
        if isinstance(node, ast.Compare) and _compared_with_argmax(node, path, function):
            return True
        if not isinstance(node, ast.Call):
            continue
        given = [path_text(item) for item in node.args]
        if path in given and last_name(node.func) in ("one_hot", "scatter_", "gather"):
            return True
        if path in given and depth and _indices_inside(view, node, path, function):
            return True
    return any(
        isinstance(item.value, ast.Call) and last_name(item.value.func) in ("argmax", "randint")
        for item in bindings_of(function).get(path, ())
    )


def _compared_with_argmax(compare: ast.Compare, path: str, function: Function) -> bool:
    sides = [compare.left, *compare.comparators]
    if len(sides) != 2 or not isinstance(compare.ops[0], (ast.Eq, ast.NotEq)):
        return False
    if not any(path_text(_bare(side)) == path for side in sides):
        return False
    return any(_is_argmax(side, function) for side in sides)


def _bare(expression: ast.expr) -> ast.expr:
    """`targets` of `targets.view_as(predicted)`, `targets.data`, `targets.to(device)`."""
    while True:
        if isinstance(expression, ast.Call) and isinstance(expression.func, ast.Attribute):
            expression = expression.func.value
        elif isinstance(expression, ast.Attribute) and expression.attr == "data":
            expression = expression.value
        else:
            return expression


def _is_argmax(expression: ast.expr, function: Function) -> bool:
    for node in ast.walk(expression):
        if isinstance(node, ast.Call) and last_name(node.func) == "argmax":
            return True
        if isinstance(node, ast.Name):
            for item in bindings_of(function).get(node.id, ()):
                text = ast.unparse(item.statement)
                if "argmax" in text or ".max(" in text or ".topk(" in text:
                    return True
    return False


def _indices_inside(view: FileView, call: ast.Call, path: str, function: Function) -> bool:
    callee = view.objects.callee(call, function)
    if callee is None:
        return False
    given = view.objects.bind(call, function, callee).given
    return any(
        path_text(value) == path and _compares_with_argmax(callee, name)
        for name, value in given.items()
    )


def _compares_with_argmax(function: Function, name: str) -> bool:
    return any(
        isinstance(node, ast.Compare) and _compared_with_argmax(node, name, function)
        for node in layout_of(function).nodes
    )


# -- functions of the project that are given a cast ------------------------------------------------


def _casts_in(argument: ast.expr, function: Function) -> ast.Call | None:
    """The call of a cast that an argument is, or that the function binds to its name alone."""
    if isinstance(argument, ast.Name):
        bound = bindings_of(function).get(argument.id, ())
        if len(bound) != 1 or bound[0].value is None:
            return None
        argument = bound[0].value
    if not isinstance(argument, ast.Call):
        return None
    name = last_name(argument.func)
    is_cast = isinstance(argument.func, ast.Attribute) and name in _CASTS
    return argument if is_cast or name == "one_hot" else None


def _may_cast(view: FileView, argument: ast.expr, function: Function) -> bool:
    """Whether an argument is cast in the file: where it is bound, or in what a call returns."""
    if _casts_in(argument, function) is not None:
        return True
    if not isinstance(argument, ast.Name) or not view.module.once(_casts_and_returns):
        return False
    bound = bindings_of(function).get(argument.id, ())
    statement = bound[0].statement if len(bound) == 1 else None
    return isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call)


def _casts_and_returns(module: Module) -> bool:
    """Whether a function of a file that returns something casts something."""
    return any(
        isinstance(node, ast.Call) and last_name(node.func) in _CASTS
        for function in module.functions
        if returned(function)
        for node in function.nodes
    )


def _handed_on(view: FileView, site: CallSite) -> Iterator[Finding]:
    """Casts that a function of the project gives to a loss which cannot take them."""
    callee = view.objects.callee(site.node, site.function)
    if callee is None:
        return
    passed = Activation(callee, site.node, site.function)
    called = (
        loss
        for loss in callee.module.calls
        if loss.function is callee and _target(loss.node) is not None
    )
    losses = [(loss, *_kind(view, loss, named=False)) for loss in called]
    for loss, kind, name in losses:
        if kind is not None and callee.module is not view.module:
            yield from _judged(view, loss, kind, name, passed)
    for argument, parameter in _cast_arguments(view, site, callee):
        yield from _taken_for_distribution(view, argument, parameter, losses, passed)


def _cast_arguments(
    view: FileView, site: CallSite, callee: Function
) -> Iterator[tuple[ast.Call, str]]:
    """Arguments that are cast to a floating type, each with its parameter."""
    for name, value in view.objects.bind(site.node, site.function, callee).given.items():
        node = _casts_in(value, site.function)
        cast = cast_of(view, node, Origin(node, site.function)) if node is not None else None
        is_method = node is not None and isinstance(node.func, ast.Attribute)
        if node is not None and is_method and cast is not None and cast.dtype in _FLOATING:
            yield node, name


def _taken_for_distribution(
    view: FileView,
    argument: ast.Call,
    name: str,
    losses: Sequence[tuple[CallSite, Kind | None, str]],
    passed: Activation,
) -> Iterator[Finding]:
    """Report indices as floats for a function that converts targets only if they are integers."""
    callee = passed.callee
    test = _index_test(view, callee, name)
    assert isinstance(argument.func, ast.Attribute)
    if test is None or not _holds_indices(view, argument.func.value, passed.caller):
        return
    takers = (site for site, kind, _ in losses if kind and _takes(view, site, argument, passed))
    loss = next(takers, None)
    if loss is None:
        return
    asks, side = test
    steps = (
        Step(argument, passed.caller.module, "class indices become floats"),
        Step(passed.call, passed.caller.module, f"passed as `{name}` of `{callee.name}`"),
        Step(asks, callee.module, f"{side}: the indices are not turned into distributions"),
        Step(loss.node, callee.module, "the loss takes them for a distribution"),
    )
    path = tuple(view.step(step.node, step.module, step.words) for step in steps)
    target = view.source_of(argument)
    message = AS_DISTRIBUTION.format(target=target, loss=callee.name)
    rests = (
        links.proved("object", loss.node.func, "is a loss of torch"),
        links.proved("value", argument, "holds class indices as floats"),
    )
    yield view.finding(RULE, argument, message, KEEP_INDICES, path=path, links=rests)


def _takes(view: FileView, site: CallSite, argument: ast.Call, passed: Activation) -> bool:
    """Whether a loss may get an argument of a call as its target."""
    target = _target(site.node)
    if target is None:
        return False
    found = view.values.origins.of(target, site.function, passed)
    return any(origin.expression is argument for origin in found.origins)


def _index_test(view: FileView, function: Function, name: str) -> tuple[ast.expr, str] | None:
    """The test of a dtype around a conversion to distributions, and what floats make of it."""
    for node in layout_of(function).nodes:
        if not isinstance(node, (ast.If, ast.IfExp)):
            continue
        floats = _of_dtype(view, node.test, name, function, "float32")
        indices = _of_dtype(view, node.test, name, function, "int64")
        if floats is None or indices is None or floats == indices:
            continue
        if _one_hot_in(view, _nodes_of(node, indices), function):
            return node.test, "true" if floats else "false"
    return None


def _of_dtype(
    view: FileView, test: ast.expr, name: str, function: Function, dtype: str
) -> bool | None:
    """What a test says of a tensor of some dtype; None where it asks something else."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _of_dtype(view, test.operand, name, function, dtype)
        return None if inner is None else not inner
    if isinstance(test, ast.Call) and last_name(test.func) == "is_floating_point":
        asked = test.args[0] if test.args else getattr(test.func, "value", test)
        return dtype in _FLOATING if path_text(asked) == name else None
    if path_text(test) == f"{name}.dtype.is_floating_point":
        return dtype in _FLOATING
    if not isinstance(test, ast.Compare) or path_text(test.left) != f"{name}.dtype":
        return None
    other = test.comparators[0]
    items = other.elts if isinstance(other, (ast.Tuple, ast.List, ast.Set)) else [other]
    known = {value.dtype for item in items for value in view.values.of(item, function).values}
    if not known or None in known or type(test.ops[0]) not in _EQUAL:
        return None
    return (dtype in known) is _EQUAL[type(test.ops[0])]


def _nodes_of(node: ast.If | ast.IfExp, side: bool) -> Iterator[ast.AST]:
    """What runs where a test comes out on one side."""
    if isinstance(node, ast.IfExp):
        return ast.walk(node.body if side else node.orelse)
    branch = node.body if side else node.orelse
    return (item for statement in branch for item in ast.walk(statement))


def _one_hot_in(view: FileView, nodes: Iterable[ast.AST], function: Function) -> bool:
    for node in nodes:
        if not isinstance(node, ast.Call):
            continue
        callee = view.objects.callee(node, function)
        inner = layout_of(callee).nodes if callee is not None else []
        calls = [item for item in (node, *inner) if isinstance(item, ast.Call)]
        if any(last_name(item.func) in ("one_hot", "scatter_", "scatter") for item in calls):
            return True
    return False
