"""# scaler-optimizer-mismatch (AMP117)

One scaler scales the loss and another one steps, or the scaler meets another optimizer object.

## What it does
Flags `scaler.step` and `scaler.unscale_` on gradients that another scaler has scaled,
`unscale_(inner)` followed by `step(wrapper)` of the same optimizer, and an optimizer that is built
anew between `unscale_` and `step`.

## Why is this bad?
A scaler divides by its own scale and keeps its records by `id(optimizer)`.
- Two scalers: if the one that steps has never scaled, torch stops with
  `AssertionError: Attempted step but _scale is None.`; else the gradients are wrong by the ratio of
  the two scales (65536 / 1024: 64 times), and the `update()` of the first one stops with
  `AssertionError: No inf checks were recorded prior to update.`
- Wrapper or new object: the record of `unscale_` is not found, and the step divides the gradients
  a second time (update ratio 1.5e-5) without a word.

## Example
```python
import torch

generator = torch.nn.Linear(2, 4)
discriminator = torch.nn.Linear(4, 1)
optimizer_g = torch.optim.SGD(generator.parameters(), lr=0.1)
optimizer_d = torch.optim.SGD(discriminator.parameters(), lr=0.1)
scaler_g = torch.amp.GradScaler("cpu")
scaler_d = torch.amp.GradScaler("cpu")

for real in [torch.randn(8, 4) for _ in range(4)]:
    optimizer_d.zero_grad()
    fake = generator(torch.randn(8, 2))
    loss_d = discriminator(fake.detach()).mean() - discriminator(real).mean()
    scaler_d.scale(loss_d).backward()
    scaler_d.step(optimizer_d)
    scaler_d.update()

    optimizer_g.zero_grad()
    loss_g = -discriminator(fake).mean()
    scaler_g.scale(loss_g).backward()
    scaler_d.step(optimizer_g)
    scaler_g.update()
```

## Use instead
```python
import torch

generator = torch.nn.Linear(2, 4)
discriminator = torch.nn.Linear(4, 1)
optimizer_g = torch.optim.SGD(generator.parameters(), lr=0.1)
optimizer_d = torch.optim.SGD(discriminator.parameters(), lr=0.1)
scaler_g = torch.amp.GradScaler("cpu")
scaler_d = torch.amp.GradScaler("cpu")

for real in [torch.randn(8, 4) for _ in range(4)]:
    optimizer_d.zero_grad()
    fake = generator(torch.randn(8, 2))
    loss_d = discriminator(fake.detach()).mean() - discriminator(real).mean()
    scaler_d.scale(loss_d).backward()
    scaler_d.step(optimizer_d)
    scaler_d.update()

    optimizer_g.zero_grad()
    loss_g = -discriminator(fake).mean()
    scaler_g.scale(loss_g).backward()
    scaler_g.step(optimizer_g)
    scaler_g.update()
```

## How it is confirmed
Executing the function raises one of the two `AssertionError`s, or moves the parameters by another
amount than with the scalers off.

## Fix safety
No fix is offered: the scale, the step or the optimizer may be the wrong one.

## Known limits
An optimizer that one method unscales and the wrapper around it that another method steps are told
apart inside one class only. With several optimizers the rule is silent if this scaler may have scaled any of the gradients.

## References
- PyTorch, Automatic Mixed Precision examples: "Working with Multiple Models, Losses, and
  Optimizers"
- `torch/amp/grad_scaler.py`: `GradScaler.step`, `GradScaler._per_optimizer_states`
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from amplint.amp import links
from amplint.code.expressions import path_text
from amplint.code.module import CallSite, Class
from amplint.expectations import breaks
from amplint.findings import Finding, Link, Severity, Standing
from amplint.rule import Rule
from amplint.view import FileView
from amplint.wording import report

RULE = Rule(
    code="AMP117",
    name="scaler-optimizer-mismatch",
    severity=Severity.ERROR,
    effect="crash/silent",
    summary="scaled by one scaler, stepped by another, or through another optimizer object",
    facts=("O14", "S38", "S26"),
    probe=(
        breaks("step-uninitialised", "unscale-uninitialised", "update-without-check")
        + breaks("unscale-of-plain", "unscale-again")
    ),
)

MESSAGES = {
    "": "`{scaler}` runs `{method}` on what is not its own{when}: the wrong scale divides it",
    "foreign-scaler": "`{scaler}` runs `{method}` on gradients that {scalers} has scaled{when}",
    "step-uninitialised": "`{scaler}` steps gradients that {scalers} has scaled{when}: {error}",
    "other-object-unscaled": (
        "`{scaler}` unscaled another object than `{optimizer}`{at}{when}: the step divides again"
    ),
}
HELPS = {
    "": "use one scaler and one optimizer object for `scale`, `unscale_`, `step` and `update`",
    "other-object-unscaled": "pass the same optimizer object to `{scaler}.unscale_` and "
    "`{scaler}.step`",
}


BETWEEN_METHODS = (
    "`{scaler}` unscales `{inner}` and steps `{outer}` (line {row}): the step divides again"
)


def check(view: FileView) -> Iterator[Finding]:
    """Report the scaler calls on gradients or optimizers that are not theirs."""
    yield from report(view, RULE, MESSAGES, HELPS)
    for owner in view.module.classes.values():
        yield from _between_methods(view, list(_uses(view, owner)))


@dataclass(frozen=True, slots=True)
class _Use:
    """A call of a method of a scaler with an optimizer, and what both are read or made from."""

    site: CallSite
    scaler: frozenset[str]
    optimizer: frozenset[str]
    made: tuple[ast.Call, ...]


def _uses(view: FileView, owner: Class) -> Iterator[_Use]:
    """What the methods of a class step and unscale with scalers of their object."""
    for site in view.module.calls:
        if site.function.owner is not owner or site.method not in ("step", "unscale_"):
            continue
        callee, given = site.node.func, site.node.args
        if not isinstance(callee, ast.Attribute) or len(given) != 1:
            continue
        if view.roles.is_scaler(callee.value, site.function):
            scaler, optimizer = (_ways(view, item, site) for item in (callee.value, given[0]))
            made = tuple(item for item in optimizer if isinstance(item, ast.Call))
            yield _Use(site, _below_self(scaler), _below_self(optimizer), made)


def _ways(view: FileView, expression: ast.expr, site: CallSite) -> list[ast.expr]:
    aliases = view.objects.origins.aliases(expression, site.function)
    return [item.expression for item in aliases]


def _below_self(expressions: list[ast.expr]) -> frozenset[str]:
    paths = map(path_text, expressions)
    return frozenset(path for path in paths if path is not None and path.startswith("self."))


def _between_methods(view: FileView, uses: list[_Use]) -> Iterator[Finding]:
    """Report what one method unscales and another one steps: an optimizer, and its wrapper."""
    steps = [use for use in uses if use.site.method == "step"]
    for use in uses:
        if use.site.method == "step":
            continue
        own = [step for step in steps if step.scaler & use.scaler]
        outer = [step for step in own if _wraps(step, use)]
        if not outer or len(outer) < len(own) or use.site.function is outer[0].site.function:
            continue
        words = {
            "scaler": ast.unparse(use.site.node.func.value),  # type: ignore[attr-defined]
            "inner": ast.unparse(use.site.node.args[0]),
            "outer": ast.unparse(outer[0].site.node.args[0]),
            "row": str(view.row_of(outer[0].site.node)),
        }
        help = HELPS["other-object-unscaled"].format(scaler=words["scaler"])
        path = (
            view.step(use.site.node, view.module, f"unscales `{words['inner']}`"),
            view.step(outer[0].site.node, view.module, f"unscales `{words['outer']}` again"),
        )
        rests = (
            *links.stepped(view, use.site),
            *links.stepped(view, outer[0].site),
            Link(
                "identity",
                Standing.CODE,
                words["outer"],
                f"is another object than {words['inner']}",
            ),
        )
        message = BETWEEN_METHODS.format_map(words)
        yield view.finding(RULE, use.site.node, message, help, path=path, links=rests)


def _wraps(outer: _Use, inner: _Use) -> bool:
    """Whether one optimizer is a part of the other object, and certainly not the same."""
    if outer.optimizer & inner.optimizer or set(outer.made) & set(inner.made):
        return False
    parts = {path.rpartition(".")[0] for path in inner.optimizer}
    given = {part for made in outer.made for item in made.args for part in ast.walk(item)}
    return bool(outer.optimizer & parts) or not given.isdisjoint(inner.made)
