"""# library-plain-backward (AMP612)

A plain `loss.backward()` before a step that goes through the scaler of Accelerate or Lightning.

## What it does
Flags `loss.backward()` whose gradients are stepped by an optimizer of `accelerator.prepare(...)` or
of a LightningModule's `self.optimizers()`, where the library scales losses: the accelerator is built
with `mixed_precision="fp16"`, or the project builds a `Trainer` with `precision="16-mixed"` (or `16`,
`"16"`, or a `MixedPrecision` plugin of that). Also in an `accelerator.accumulate(...)` block, where
`accelerator.backward` would divide by `gradient_accumulation_steps`.

## Why is this bad?
These steps go through the library's `GradScaler`, which divides the gradients by the loss scale, and
only `accelerator.backward(loss)` and `self.manual_backward(loss)` multiply the loss with it. If they
never run, training stops with `AssertionError: Attempted step but _scale is None.`; if they run for
another loss, the update of this one is too small by the loss scale of 65536, and nothing is raised.
Without a scaler the sum of an accumulation is too large by the number of its micro-batches.

## Example
```python
import torch
from accelerate import Accelerator

precision = "fp16" if torch.cuda.is_available() else "no"
accelerator = Accelerator(mixed_precision=precision)
model = torch.nn.Linear(4, 1)
head = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
tuner = torch.optim.SGD(head.parameters(), lr=0.1)
model, head, optimizer, tuner = accelerator.prepare(model, head, optimizer, tuner)

for _ in range(8):
    inputs = torch.randn(8, 4, device=accelerator.device)
    optimizer.zero_grad()
    tuner.zero_grad()
    auxiliary = head(inputs).square().mean()
    accelerator.backward(auxiliary)
    tuner.step()
    loss = torch.nn.functional.mse_loss(model(inputs), 4 * inputs[:, :1])
    loss.backward()
    optimizer.step()
```

## Use instead
```python
import torch
from accelerate import Accelerator

precision = "fp16" if torch.cuda.is_available() else "no"
accelerator = Accelerator(mixed_precision=precision)
model = torch.nn.Linear(4, 1)
head = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
tuner = torch.optim.SGD(head.parameters(), lr=0.1)
model, head, optimizer, tuner = accelerator.prepare(model, head, optimizer, tuner)

for _ in range(8):
    inputs = torch.randn(8, 4, device=accelerator.device)
    optimizer.zero_grad()
    tuner.zero_grad()
    auxiliary = head(inputs).square().mean()
    accelerator.backward(auxiliary)
    tuner.step()
    loss = torch.nn.functional.mse_loss(model(inputs), 4 * inputs[:, :1])
    accelerator.backward(loss)
    optimizer.step()
```

## How it is confirmed
Executed with accelerate 1.15 and lightning 2.6, with scalers on the CPU in the place of those on
CUDA: the update of the model above is 1.5e-5 of the right one, that of an accumulation over four
micro-batches four times as large, and a program without `accelerator.backward` stops at its first step.

## Fix safety
Unsafe: the update of the loss grows by the loss scale, or shrinks by the number of micro-batches.

## Known limits
Backward and step have to stand in one function, and no optimizer that the library has not prepared is
stepped behind the backward. Silent where the loss may be scaled or divided by hand, where `zero_grad`
runs between the two, and where the library's own backward stands on the other branch.

## References
- accelerate, `accelerator.py`: `Accelerator.backward`; `optimizer.py`: `AcceleratedOptimizer.step`
- lightning, `pytorch/plugins/precision/amp.py`: `MixedPrecision.pre_backward`, `optimizer_step`
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from amplint.amp import links
from amplint.amp.accelerators import (
    ACCELERATOR,
    accumulation_steps,
    half_precision,
    in_accumulation,
    path_of,
    set_to,
)
from amplint.amp.library_objects import calls_on, library_class_of
from amplint.amp.library_steps import (
    LibraryStep,
    library_step,
    optimizer_steps,
    plain_backwards,
)
from amplint.amp.lightning import scaling_trainer
from amplint.code.expressions import last_name, path_text
from amplint.code.layout import layout_of
from amplint.code.module import CallSite, Function, enclosing_class
from amplint.code.tree import walk
from amplint.expectations import IN_A_LIBRARY
from amplint.findings import Finding, Link, PathStep, Severity, Standing
from amplint.fixing.verbs import Write, unsafe
from amplint.rule import Rule
from amplint.view import FileView

RULE = Rule(
    code="AMP612",
    name="library-plain-backward",
    severity=Severity.ERROR,
    effect="crash/silent",
    summary="a plain `loss.backward()` before a step through the scaler of Accelerate or Lightning",
    facts=("S01", "S03"),
    fix="unsafe",
    unprobed=IN_A_LIBRARY,
)

NEVER = "`{backward}` scales nothing: `{step}` raises `AssertionError: ... _scale is None`"
LOST = "`{backward}` does not scale, and `{step}` divides by the loss scale: the update is lost"
SUM = "`{backward}` does not divide by `gradient_accumulation_steps`: the update is too large"
HELP = "call `{call}`"


@dataclass(frozen=True, slots=True, eq=False)
class _Damage:
    """What the library does to gradients of a plain backward, and what that rests on."""

    message: str
    links: tuple[Link, ...]
    path: tuple[PathStep, ...]


def check(view: FileView) -> Iterator[Finding]:
    """Report the plain backwards whose gradients a library's scaler steps."""
    if "ccelerat" not in view.module.source and "ightning" not in view.module.source:
        return
    functions = {site.function: None for site in view.module.calls if site.method == "backward"}
    for function in functions:
        steps = optimizer_steps(view, function)
        for backward in plain_backwards(view, function) if steps else ():
            step = _step_of(view, backward, steps)
            damage = _damage(view, backward, step) if step is not None else None
            if step is None or damage is None:
                continue
            call = _call(view, backward, step)
            words = {"backward": _words(backward), "step": view.source_of(step.site.node)}
            yield view.finding(
                RULE,
                backward.node,
                damage.message.format_map(words),
                HELP.format(call=call),
                path=damage.path,
                links=(_loss(view, backward), *damage.links),
                fix=unsafe(Write(backward.node, call.replace("{", "{{").replace("}", "}}"))),
            )


def _loss_of(backward: CallSite) -> ast.expr:
    assert isinstance(backward.node.func, ast.Attribute)
    return backward.node.func.value


def _words(backward: CallSite) -> str:
    """A backward as a message names it: without what computes the loss."""
    loss = path_text(_loss_of(backward))
    return f"{loss}.backward()" if loss is not None else "backward()"


def _step_of(view: FileView, backward: CallSite, steps: list[CallSite]) -> LibraryStep | None:
    """The first step behind a backward, if the library runs all that its gradients come to."""
    layout = layout_of(backward.function)
    behind = [site for site in steps if layout.reaches(backward.node, site.node)]
    found = [library_step(view, site) for site in behind]
    first = found[0] if found else None
    if first is None or None in found:
        return None
    between = layout.between(backward.node, first.site.node)
    calls = [node for node in between if isinstance(node, ast.Call)]
    if any(
        isinstance(node.func, ast.Attribute) and node.func.attr == "zero_grad" for node in calls
    ):
        return None
    if _reads_gradients(between) or _has_other_branch(view, backward, first):
        return None
    return first


def _reads_gradients(between: list[ast.AST]) -> bool:
    """Whether the gradient of something by name is read: of an input that is attacked, say."""
    targets = {
        name.id
        for node in between
        if isinstance(node, (ast.For, ast.comprehension))
        for name in walk(node.target)
        if isinstance(name, ast.Name)
    }
    return any(
        isinstance(node, ast.Attribute)
        and node.attr == "grad"
        and path_text(node) is not None
        and (path_text(node) or "").partition(".")[0] not in targets
        for node in between
    )


def _has_other_branch(view: FileView, backward: CallSite, step: LibraryStep) -> bool:
    """Whether a test decides between a plain backward and the library's."""
    layout = layout_of(backward.function)
    return any(
        site.function is backward.function
        and site.node in layout
        and layout.exclusive(site.node, backward.node)
        for site in _own_backwards(view, step)
    )


def _own_backwards(view: FileView, step: LibraryStep) -> list[CallSite]:
    """Calls of the backward of this accelerator, or of this module, in the file."""
    if step.accelerator is None:
        return [
            site
            for site in view.module.calls
            if path_text(site.node.func) == "self.manual_backward"
            and enclosing_class(site.function) is step.owner
        ]
    built = _built(view, step.accelerator, step.function)
    return [
        site
        for site in calls_on(view.objects, view.module, ACCELERATOR, "backward")
        if isinstance(site.node.func, ast.Attribute)
        and built & _built(view, site.node.func.value, site.function)
    ]


def _built(view: FileView, accelerator: ast.expr, function: Function) -> set[ast.expr]:
    """The constructor calls that an accelerator may come from."""
    return {item.expression for item in view.objects.origins.of(accelerator, function).origins}


def _loss(view: FileView, backward: CallSite) -> Link:
    """That what runs backward is a loss that the function computes."""
    loss = _loss_of(backward)
    bound = view.objects.bindings(loss, backward.function)
    is_path = path_text(loss) is not None
    standing = Standing.CODE if bound or not is_path else Standing.GUESS
    return Link("object", standing, ast.unparse(loss), "is a loss that nothing has scaled")


def _damage(view: FileView, backward: CallSite, step: LibraryStep) -> _Damage | None:
    """What is wrong with the backward; None where nothing in sight says that it matters."""
    if step.accelerator is None:
        return _of_lightning(view, backward, step)
    found = half_precision(view, step.accelerator, step.function)
    known = links.library_object(view, step.accelerator, step.function)
    if found is not None and found[0].standing is not Standing.GUESS:
        link, path = found
        message = LOST if _own_backwards(view, step) else NEVER
        proof = links.proved("damage", step.site.node, "divides by a scale that the loss lacks")
        return _Damage(message, (known, link, proof), path)
    return _of_accumulation(view, backward, step, known)


def _of_lightning(view: FileView, backward: CallSite, step: LibraryStep) -> _Damage | None:
    assert step.owner is not None
    trainer = scaling_trainer(view, step.owner)
    if trainer is None:
        return None
    site = trainer.site
    words = f"trains with {trainer.precision.content!r}"
    rests = (
        Link("object", Standing.LIBRARY, step.owner.name, "is a LightningModule"),
        links.held(trainer.precision.firmness, trainer.words, "makes the Trainer scale"),
        links.proved("damage", step.site.node, "divides by a scale that the loss lacks"),
    )
    path = (view.step(site.node, site.function.module, words),)
    return _Damage(LOST if _own_backwards(view, step) else NEVER, rests, path)


def _of_accumulation(
    view: FileView, backward: CallSite, step: LibraryStep, known: Link
) -> _Damage | None:
    assert step.accelerator is not None
    found = accumulation_steps(view, step.accelerator, step.function)
    accelerator = _accelerator_here(view, backward, step)
    if found is None or not in_accumulation(backward, accelerator):
        return None
    setting, value = found
    assert setting.given is not None
    if _is_divided(view, backward, setting.given):
        return None
    proof = links.proved("damage", backward.node, "adds up what the library would have divided")
    rests = (known, set_to(value, setting.given, ast.Gt(), 1), proof)
    return _Damage(SUM, rests, path_of(view, setting, value))


def _is_divided(view: FileView, backward: CallSite, given: ast.expr) -> bool:
    """Whether a loss may be divided by hand: in its function, or by that number in the file."""
    loss = _loss_of(backward)
    bound = view.objects.bindings(loss, backward.function) or ()
    parts: list[ast.AST] = [loss, *(item.statement for item in bound)]
    if any(_divisor(node) for part in parts for node in walk(part)):
        return True
    steps = {"gradient_accumulation_steps", last_name(given)}
    divisors = (_divisor(node) for node in view.module.nodes())
    return any(
        last_name(part) in steps
        for divisor in divisors
        if divisor is not None
        for part in walk(divisor)
        if isinstance(part, (ast.Name, ast.Attribute))
    )


def _divisor(node: ast.AST) -> ast.expr | None:
    """What a division divides by; None for anything else."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return node.right
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Div):
        return node.value
    return None


def _accelerator_here(view: FileView, backward: CallSite, step: LibraryStep) -> str:
    """What the accelerator is called in the function of a backward."""
    assert step.accelerator is not None
    for site in view.module.calls:
        callee = site.node.func
        if site.function is backward.function and isinstance(callee, ast.Attribute):
            row = library_class_of(callee.value, site.function, view.objects)
            if row is not None and row.name == ACCELERATOR:
                return view.source_of(callee.value)
    return ast.unparse(step.accelerator)


def _call(view: FileView, backward: CallSite, step: LibraryStep) -> str:
    """The call of the library that belongs in the place of a plain backward."""
    loss = view.source_of(_loss_of(backward))
    options = [f"{item.arg}={view.source_of(item.value)}" for item in backward.node.keywords]
    method = "self.manual_backward"
    if step.accelerator is not None:
        method = f"{_accelerator_here(view, backward, step)}.backward"
    return f"{method}({', '.join([loss, *options])})"
