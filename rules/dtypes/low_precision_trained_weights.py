"""# low-precision-trained-weights (AMP406)

An Adam steps weights that are themselves bfloat16, with a learning rate that rounding swallows.

## What it does
Flags `Adam`, `AdamW` and their relatives of `torch.optim` over the parameters of a module that was
cast to bfloat16, or built in it, where the learning rate is at most 2e-5 and a step is in sight. The
same for float16 from 2e-6 down, where `eps` is large enough for float16.

## Why is this bad?
Adam moves each weight by about the learning rate. A bfloat16 number has 8 bits: a weight of 0.02
changes by 8e-5 at least or not at all. Measured with torch 2.13 over 100 steps of AdamW on a small
network: at 1e-4 half of the weights were never changed, at 2e-5 88 %, at 1e-5 94 %; in float32 each
weight was. The loss goes down a little, by the few weights near zero, so nothing seems wrong. Under
autocast the weights stay float32 and every step counts.

## Example
```python
import torch

model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
model.to(torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)

for _ in range(50):
    inputs = torch.randn(8, 64, dtype=torch.bfloat16)
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), inputs[:, :1])
    loss.backward()
    optimizer.step()
```

## Use instead
```python
import torch

model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)

for _ in range(50):
    inputs = torch.randn(8, 64)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = torch.nn.functional.mse_loss(model(inputs), inputs[:, :1])
    loss.backward()
    optimizer.step()
```

## How it is confirmed
Executing both examples: in the first more than three quarters of the weights never change, in the
second all do. The probe makes the step of your optimizer, with the learning rate that it has in a
run of your code, on weights of the usual size in the dtype that yours have there.

## Fix safety
No fix: float32 weights take twice the memory.

## Known limits
Silent where the optimizer or the model is handed to code out of sight: DeepSpeed and FSDP keep copies
of the weights in float32. Groups with learning rates of their own, and schedules that raise the rate
(`OneCycleLR`, `CyclicLR`), are not judged. Weights far from the usual size, below 0.001, do change.

## References
- PyTorch, `torch/optim/adamw.py`: the update is added to the parameter in its own dtype
- P. Zamirai et al., "Revisiting BFloat16 Training", 2020: nearest rounding cancels small updates
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from amplint.amp import links
from amplint.amp.halves import Half
from amplint.amp.owned_halves import owned_halves
from amplint.amp.ownership import Owned, owned_modules
from amplint.code.arguments import written_argument
from amplint.code.dataflow import arguments, bindings_of
from amplint.code.expressions import path_text
from amplint.code.layout import layout_of
from amplint.code.module import CallSite, Class, Function, enclosing_class
from amplint.code.records import is_record, is_typed_dict
from amplint.expectations import measured
from amplint.findings import Finding, Severity
from amplint.rule import Rule
from amplint.values.provenance import Step
from amplint.values.values import Value
from amplint.view import FileView

RULE = Rule(
    code="AMP406",
    name="low-precision-trained-weights",
    severity=Severity.WARNING,
    effect="silent",
    summary="an Adam steps weights in half precision by less than their last bit",
    probe=measured("swallowed"),
)
#: Their step is about the learning rate, whatever the gradient is.
_ADAMS = frozenset(("Adam", "AdamW", "NAdam", "RAdam", "Adamax"))
#: The largest learning rate of which most steps are rounded away, measured as on the page.
LARGEST_RATES = {"bfloat16": 2e-5, "float16": 2e-6}
#: From here on the square root of float16's second moments has something to be added to.
_FLOAT16_EPS = 1e-7
#: Schedules that begin below the rate they were given, or go beyond it.
_RAISING = frozenset(("OneCycleLR", "CyclicLR"))
#: What takes an optimizer and leaves it alone.
_HARMLESS = frozenset(("print", "len", "isinstance", "hasattr", "getattr", "id", "type", "vars"))

MESSAGE = "steps of {rate:g} are rounded away: the weights of `{model}` are {dtype} themselves"
HELP = "keep the weights in float32 and run the forward under autocast"


def check(view: FileView) -> Iterator[Finding]:
    """Report optimizers whose steps are too small for the weights they have."""
    if "Adam" not in view.module.source:
        return
    for site in view.module.calls:
        dotted = site.dotted or ""
        if not dotted.startswith("torch.optim.") or dotted.rpartition(".")[2] not in _ADAMS:
            continue
        rate = _number(view, site, "lr", 1)
        if rate is None or rate[0] > max(LARGEST_RATES.values()) or not rate[0] > 0:
            continue
        half = _half(view, site, rate[0])
        if half is not None and _is_plainly_stepped(view, site):
            yield _finding(view, site, rate, *half)


def _number(view: FileView, site: CallSite, name: str, index: int) -> tuple[float, Value] | None:
    """The number that an argument is unless somebody chooses another one."""
    given = written_argument(site.node, name, index)
    if given is None:
        return None
    for value in view.values.of(given, site.function).by_default():
        if isinstance(value.content, (int, float)) and not isinstance(value.content, bool):
            return float(value.content), value
    return None


def _half(view: FileView, site: CallSite, rate: float) -> tuple[Owned, Half, str] | None:
    """The module in half precision that an optimizer owns, if its steps are too small for it."""
    if site.node.args and any(isinstance(item, ast.Dict) for item in ast.walk(site.node.args[0])):
        return None
    every = list(owned_modules(view, site.node, site.function))
    for dtype, largest in LARGEST_RATES.items():
        if rate > largest or (dtype == "float16" and not _suits_float16(view, site)):
            continue
        found = [*owned_halves(view, every, site.node, dtype)]
        if found:
            owned, half = max(found, key=lambda item: item[1].firmness)
            return owned, half, dtype
    return None


def _suits_float16(view: FileView, site: CallSite) -> bool:
    """Whether the epsilon keeps Adam from dividing by zero, which is AMP504's matter."""
    eps = _number(view, site, "eps", 3)
    return eps is not None and eps[0] >= _FLOAT16_EPS


def _is_plainly_stepped(view: FileView, site: CallSite) -> bool:
    """Whether `step()` of the optimizer is in sight, and nobody unknown is given it."""
    step = _step_of(view, site)
    if step is None:
        return False
    assert isinstance(step.node.func, ast.Attribute)
    places = {(site.function, name) for name in _names(site)}
    for alias in view.values.origins.aliases(step.node.func.value, step.function):
        places.add((alias.function, path_text(alias.expression) or ""))
    files = dict.fromkeys(function.module for function, _ in places)
    return not any(_hands_on(view, call, places, site) for file in files for call in file.calls)


def _step_of(view: FileView, site: CallSite) -> CallSite | None:
    """A plain `step()` of the optimizer: in its file, else in one that may be handed it."""
    for module in itertools.chain((view.module,), view.project.mentioning(view.module, "step")):
        for other in module.calls:
            callee = other.node.func
            if other.method != "step" or arguments(other.node):
                continue
            if isinstance(callee, ast.Attribute) and _is_the_one(
                view, callee.value, other.function, site
            ):
                return other
    return None


def _is_the_one(view: FileView, expression: ast.expr, function: Function, site: CallSite) -> bool:
    found = view.values.origins.of(expression, function)
    return any(origin.expression is site.node for origin in found.origins)


def _hands_on(
    view: FileView, call: CallSite, places: AbstractSet[tuple[Function, str]], site: CallSite
) -> bool:
    """Whether a call gives the optimizer to code out of sight, or to a schedule that raises it.

    Args:
        places: what it is called, and in which functions.
    """
    names = {name for function, name in places if _shares(call.function, function)}
    given = [item for item in arguments(call.node) if path_text(item) in names]
    if site.node not in arguments(call.node) and not given:
        return False
    dotted = call.dotted or ""
    if dotted.startswith("torch.optim."):
        return dotted.rpartition(".")[2] in _RAISING
    if view.objects.callee(call.node, call.function) is not None or call.method in _HARMLESS:
        return False
    owner = view.objects.symbol(call.node.func, call.function)
    return not (isinstance(owner, Class) and (is_record(owner) or is_typed_dict(owner)))


def _shares(function: Function, other: Function) -> bool:
    """Whether two functions are one, or methods of one class."""
    owner = enclosing_class(function)
    return function is other or (owner is not None and owner is enclosing_class(other))


def _names(site: CallSite) -> set[str]:
    """The names that the optimizer, and what it owns, have where it is built."""
    layout = layout_of(site.function)
    if site.node not in layout:
        return set()
    statement = layout.statement(site.node)
    bound = bindings_of(site.function).items()
    return {path for path, items in bound if any(one.statement is statement for one in items)}


def _finding(
    view: FileView, site: CallSite, rate: tuple[float, Value], owned: Owned, half: Half, dtype: str
) -> Finding:
    steps = (*half.steps, Step(site.node, view.module, "the optimizer owns them"))
    path = [view.step(step.node, step.module, step.words) for step in steps]
    message = MESSAGE.format(
        rate=rate[0], model=view.source_of(owned.module.expression), dtype=dtype
    )
    rests = (
        links.proved("object", site.node, "is the optimizer"),
        *links.half_parameters(view, owned, half),
        links.held(rate[1].firmness, ast.unparse(rate[1].node), "is the learning rate"),
    )
    return view.finding(
        RULE, site.node, message, HELP, path=tuple(dict.fromkeys(path)), links=rests
    )
