"""# private-scaler-state (AMP128)

Private state of a GradScaler is read or written.

## What it does
Flags `scaler._scale`, `scaler._per_optimizer_states`, `scaler._growth_tracker`,
`scaler._check_inf_per_device(...)` and the other private attributes and methods of torch's
`GradScaler`, outside of a subclass.

## Why is this bad?
The private names are not part of torch's interface and have changed before. They also do not
behave like the public ones: `_scale` is `None` until the first `scale()` call, so
`scaler._scale.item()` raises `AttributeError: 'NoneType' object has no attribute 'item'` on a
fresh scaler; assigning a Python number to it makes the next call fail; and the inf records in
`_per_optimizer_states` are gone after `update()`.

## Example
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
loader = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(4)]

print("initial scale", scaler._scale.item())
for inputs, targets in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
```

## Use instead
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
loader = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(4)]

print("initial scale", scaler.get_scale())
for inputs, targets in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
```

## How it is confirmed
Executing the example raises the `AttributeError`. Most uses run with the torch they were written
for: this rule is advice and off unless selected.

## Fix safety
Safe where the public method gives the same: `scaler._scale.item()` becomes `scaler.get_scale()`, and
the factors, the interval and the switch are read by their methods. No fix elsewhere: `get_scale()`
returns a number where `_scale` is a tensor, and not every private attribute has a public counterpart.

## Known limits
The object has to be known as a gradient scaler by its origin or its name. Access through
`getattr(scaler, "_scale")` is not seen.

## References
- PyTorch, Automatic Mixed Precision package: `GradScaler.get_scale`, `GradScaler.update`,
  `GradScaler.state_dict`
- `torch/amp/grad_scaler.py`: `GradScaler.__init__`, `GradScaler._lazy_init_scale_growth_tracker`
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from functools import partial
from typing import Any

from amplint.authoring import Candidate, Pattern, m
from amplint.code.module import walk_function
from amplint.findings import Severity
from amplint.rule import Rule
from amplint.view import FileView

RULE = Rule(
    code="AMP128",
    name="private-scaler-state",
    severity=Severity.INFO,
    effect="api",
    summary="`scaler._scale`, `_per_optimizer_states`, … read or written",
    fix="safe",
    unprobed="nothing goes wrong until torch changes its private names",
)

#: Private name of `GradScaler` -> what to use instead.
INSTEAD = {
    "_scale": "use `{scaler}.get_scale()` to read it and `{scaler}.update(new_scale)` to set it",
    "_get_scale_async": "use `{scaler}.get_scale()`",
    "_growth_tracker": "use `{scaler}.state_dict()` and `{scaler}.load_state_dict(...)`",
    "_init_growth_tracker": "use `{scaler}.state_dict()` and `{scaler}.load_state_dict(...)`",
    "_init_scale": "use `{scaler}.get_scale()`, or keep the number yourself",
    "_growth_factor": "use `{scaler}.get_growth_factor()` and `{scaler}.set_growth_factor(...)`",
    "_backoff_factor": "use `{scaler}.get_backoff_factor()` and `{scaler}.set_backoff_factor(...)`",
    "_growth_interval": "use `{scaler}.get_growth_interval()` and "
    "`{scaler}.set_growth_interval(...)`",
    "_enabled": "use `{scaler}.is_enabled()`",
    "_per_optimizer_states": "compare `{scaler}.get_scale()` before and after `{scaler}.update()` "
    "to see whether a step was skipped",
    "_found_inf_per_device": "compare `{scaler}.get_scale()` before and after `{scaler}.update()` "
    "to see whether a step was skipped",
    "_check_inf_per_device": "use `{scaler}.unscale_(optimizer)`, which records the check",
    "_unscale_grads_": "use `{scaler}.unscale_(optimizer)`",
    "_maybe_opt_step": "use `{scaler}.step(optimizer)`",
    "_lazy_init_scale_growth_tracker": "call `{scaler}.scale(...)`, which initialises the scale",
    "_check_scale_growth_tracker": "call `{scaler}.scale(...)`, which initialises the scale",
}

MESSAGE = "`{name}` is private in torch's GradScaler{trap}: any release may change it"
TRAPS = {
    "_scale": ", `None` before the first `scale()`",
    "_growth_tracker": ", `None` before the first `scale()`",
    "_per_optimizer_states": ", emptied by `update()`",
}


#: Private names that hold what a public method gives.
READERS = {
    "_growth_factor": "get_growth_factor",
    "_backoff_factor": "get_backoff_factor",
    "_growth_interval": "get_growth_interval",
    "_enabled": "is_enabled",
}


def private(context: type[ast.expr_context], view: FileView) -> Iterator[Candidate]:
    """The private attributes of scalers in a file; with a method of theirs that is called."""
    if not any(f".{name}" in view.module.source for name in INSTEAD):
        return
    parents = view.module.scopes.parents
    for function in view.module.functions:
        for node in walk_function(function):
            if not isinstance(node, ast.Attribute) or node.attr not in INSTEAD:
                continue
            if isinstance(node.ctx, context) and view.roles.is_scaler(node.value, function):
                help = INSTEAD[node.attr].format(scaler=view.source_of(node.value))
                words = {"name": node.attr, "trap": TRAPS.get(node.attr, ""), "help": help}
                method = parents[node] if isinstance(parents[node], ast.Attribute) else None
                call = parents[method] if method is not None else None
                whole = call if isinstance(call, ast.Call) and call.func is method else node
                yield Candidate(whole, node, words=words)


def of(names: Collection[str]) -> Any:
    """`scaler.<name>`."""
    return m.Attribute(attr=m.Name(m.MatchIfTrue(lambda name: name in names)))


def get_scale(call: Any) -> Any:
    """The call without the tensor: `get_scale()` gives the same number."""
    name = call.func.attr.with_changes(value="get_scale")
    return call.with_changes(func=call.func.value.with_changes(attr=name))


def reader(attribute: Any) -> Any:
    """The call that gives what the attribute holds."""
    import libcst

    name = attribute.attr.with_changes(value=READERS[attribute.attr.value])
    return libcst.Call(attribute.with_changes(attr=name))


read = partial(private, ast.Load)
anywhere = partial(private, ast.expr_context)
PATTERNS = (
    Pattern(
        lambda _: m.Call(func=m.Attribute(value=of(("_scale",)), attr=m.Name("item")), args=[]),
        *(MESSAGE, "{help}", (), read, get_scale, "safe"),
    ),
    Pattern(lambda _: of(READERS), MESSAGE, "{help}", (), read, reader, "safe"),
    Pattern(
        lambda _: of(INSTEAD) | m.Call(func=m.Attribute(value=of(INSTEAD))),
        *(MESSAGE, "{help}", (), anywhere),
    ),
)
