"""# float16-without-scaler (AMP206)

A model is trained under float16 autocast and nothing scales its loss.

## What it does
Flags a float16 autocast region whose loss goes into a plain `backward()` before an optimizer step,
in the same function or in one that gets the loss returned, if nothing scales that loss; so does a
loss that a LightningModule returns to a Trainer without a 16-bit precision, and one that goes into
`accelerator.backward` of an Accelerator that is given another precision than fp16. Another
loss that is scaled, or a scaler that somebody else uses, does not help it. As advice, where there is
a scaler: a forward that one branch of a training step runs outside autocast, while the other one
runs it inside.

## Why is this bad?
Gradients inside the region are float16: what is smaller than 6e-8 becomes zero on its way back. In
the measured model 76 % of all gradient entries were zero without a scaler and none with it. Nothing
is raised; layers with small gradients just stop training. In the example no parameter moves at all.

## Example
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
loader = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(4)]

for inputs, targets in loader:
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        outputs = model(inputs)
    loss = 1e-8 * torch.nn.functional.mse_loss(outputs.float(), targets)
    loss.backward()
    optimizer.step()
```

## Use instead
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
loader = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(4)]

for inputs, targets in loader:
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        outputs = model(inputs)
    loss = 1e-8 * torch.nn.functional.mse_loss(outputs.float(), targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
```

## How it is confirmed
Executing the step: no scaler takes part, and where the loss is small, gradients are exactly zero
that are not zero without autocast.

## Fix safety
No fix is offered: a scaler is built in one place and used in three, and the checkpoint should hold
its state. Where the hardware has bfloat16, `dtype=torch.bfloat16` needs no scaler.

## Known limits
Only where the dtype is float16 unless somebody chooses otherwise: given so, by default of an option,
or left to CUDA's default; or where a test chooses among contexts and one of them is float16. The loss is followed through the bindings that reach its `backward()`.
Nothing is said where something in sight may scale it, on the other side of a test, too (unless options
in sight can be set so that the region is on and this side is taken), where code
out of sight makes something of it alone, or where a file that takes part uses a class of a library
that scales (unless it is Lightning's, and its Trainer does not, or the Accelerator whose backward it
is); an Accelerator that is given no precision is set up by the launcher, and silent; a name that speaks of a scaler that nobody builds makes it `info`. Branches are compared
within one function, and only where the test that chooses is seen to change with the batch: a name
that the innermost loop binds, or that a loop around a call in sight passes.

## References
- PyTorch, Automatic Mixed Precision package: "Gradient Scaling"
- PyTorch, Automatic Mixed Precision examples: "Typical Mixed Precision Training"
- lightning, `pytorch/plugins/precision/precision.py`: `Precision.backward`
- accelerate, `accelerator.py`: `Accelerator.__init__` (a scaler for fp16 only) and `backward`
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator

from amplint.amp import links
from amplint.amp.accelerators import ACCELERATOR
from amplint.amp.choices import Way
from amplint.amp.grad_modes import is_off
from amplint.amp.half_tensors import SAME_DTYPE
from amplint.amp.library_objects import names_training
from amplint.amp.loop_invariants import changes_by_round
from amplint.amp.roles import Role, roles_of
from amplint.amp.scaler_calls import scaler_calls
from amplint.amp.uses import uses_of
from amplint.code.expressions import last_name, path_text
from amplint.code.layout import Layout, layout_of
from amplint.code.module import Function, Module, enclosing_class, walk
from amplint.expectations import measured
from amplint.findings import Finding, Link, Severity, Standing
from amplint.regions.callers import Callers
from amplint.regions.plain_losses import (
    PlainLoss,
    chosen_unscaled,
    is_scaled_instead,
    may_be_scaled,
    plain_losses,
    unscales_by_hand,
)
from amplint.regions.regions import Region, opening_words
from amplint.regions.returned_losses import ReturnedLoss, returned_losses
from amplint.rule import Rule
from amplint.view import FileView

RULE = Rule(
    code="AMP206",
    name="float16-without-scaler",
    severity=Severity.WARNING,
    effect="silent",
    summary="training under float16 autocast without a gradient scaler",
    facts=("H10",),
    probe=measured("unscaled", "protocol"),
)

#: Words of a scaler, or of a library that has one.
SCALES = re.compile(
    r"scaler|loss_?scal|accelerat|lightning|deepspeed|apex|fabric|colossal|bmtrain|fairscale"
    r"|composer|mmcv|mmengine|unscale|GradScal",
    re.IGNORECASE,
)

MESSAGE = "nothing scales `{loss}` of this float16 autocast{condition}: gradients below 6e-8 vanish"
ONE_BRANCH = "this branch runs `{call}` outside autocast, the other one inside (line {row})"
HELP_BRANCH = "open one autocast around both branches, or `enabled=False` where float32 is meant"
#: Attributes of a tensor that say where it is, and what it is made of.
PLACES = frozenset(("device", "dtype", "is_cuda"))
HELP = (
    "scale the loss: `scaler.scale({loss}).backward()`, `scaler.step({optimizer})`, "
    "`scaler.update()`; or use `dtype=torch.bfloat16`"
)
HELP_CHOSEN = (
    "scale the loss wherever this autocast is on, or give it `dtype=torch.bfloat16` where nothing "
    "scales"
)
HELP_ACCELERATOR = (
    'give the Accelerator `mixed_precision="fp16"`, which scales, and open `accelerator.autocast()` '
    "in place of this autocast; or use `dtype=torch.bfloat16`"
)
HELP_TRAINER = (
    'give the Trainer `precision="16-mixed"`, which scales, in place of this autocast; or use '
    "`dtype=torch.bfloat16`"
)


def check(view: FileView) -> Iterator[Finding]:
    """Report float16 regions whose loss is trained on without a scaler, once for each step.

    Where there is a scaler: forwards that one branch of a training step runs outside autocast.
    """
    if view.module.once(_has_scaler):
        yield from _branches_without(view)
    callers = Callers(view.regions)
    reported: set[ast.Call] = set()
    left: dict[ast.expr, ReturnedLoss] = {}
    for region in view.regions.chosen(view.module):
        if region.cast.usual != frozenset({"float16"}):
            continue
        if is_off(view.objects, region.opened, region.function):
            continue
        for plain in plain_losses(view, callers, region):
            scaling = _scaling(view, callers, plain)
            if plain.step not in reported and scaling is not Standing.CODE:
                reported.add(plain.step)
                yield _finding(view, callers, plain, scaling)
                break
        for item in returned_losses(view, callers, region):
            left[item.loss] = item  # of several regions the last is the loss's own
    yield from (_left_to_trainer(view, item) for item in left.values())


def _finding(
    view: FileView, callers: Callers, plain: PlainLoss, scaling: Standing | None
) -> Finding:
    region = plain.region
    is_option = is_scaled_instead(view, callers, plain)
    chosen = (is_option and chosen_unscaled(view, plain)) or ()
    assert isinstance(plain.step.func, ast.Attribute)
    words = {
        "loss": view.source_of(plain.loss),
        "optimizer": view.source_of(plain.step.func.value),
    }
    path = (
        view.step(region.opened, region.function.module, opening_words(view, region)),
        view.step(plain.backward, plain.function.module, "the gradients come back unscaled"),
        view.step(plain.step, plain.stepping.module, "the optimizer applies them"),
    )
    condition = _chosen_condition(view, chosen) if chosen else _condition(region)
    message = MESSAGE.format(condition=condition, **words)
    rests: tuple[Link, ...] = (
        region.link,
        *links.chosen_beside_amp(view, chosen),
        links.participant(view, plain.step.func.value, plain.stepping, Role.OPTIMIZER),
        Link(
            "effect",
            scaling or Standing.CODE,
            ast.unparse(plain.backward),
            "gives unscaled gradients",
        ),
    )
    help = (HELP_CHOSEN if chosen else HELP).format_map(words)
    if plain.library is not None:
        help, rests = HELP_ACCELERATOR, (*rests, plain.library)
    return view.finding(RULE, region.opened, message, help, path=path, links=rests)


def _left_to_trainer(view: FileView, returned: ReturnedLoss) -> Finding:
    region, trainer = returned.region, returned.trainer
    path = (
        view.step(region.opened, region.function.module, opening_words(view, region)),
        view.step(returned.loss, returned.function.module, "the Trainer gets the loss"),
        view.step(trainer.site.node, trainer.site.function.module, "it has no 16-bit precision"),
    )
    loss = view.source_of(returned.loss)
    message = MESSAGE.format(loss=loss, condition=_condition(region))
    standing = Standing.LIBRARY if trainer.fits else Standing.GUESS
    rests = (
        region.link,
        Link("object", Standing.LIBRARY, returned.owner.name, "is a LightningModule"),
        Link("effect", standing, view.source_of(trainer.site.node), "runs a plain backward"),
    )
    return view.finding(RULE, region.opened, message, HELP_TRAINER, path=path, links=rests)


def _condition(region: Region) -> str:
    """What switches the region on, and what makes it float16, where either is an option."""
    switch, dtype = " ".join(region.cast.condition.split()), region.cast.chosen_by
    found = [f"where `{switch}`"] if switch else []
    found += [f"`{dtype}` by default"] if dtype else []
    if not dtype and region.cast.dtypes != frozenset({"float16"}):
        found.append("on `cuda`")
    return f" ({', '.join(found)})" if found else ""


def _chosen_condition(view: FileView, chosen: Way) -> str:
    """What of a choice is not so by default."""
    tests = dict.fromkeys(link.subject for link in links.chosen(view, chosen))
    return f" (where {' and '.join(f'`{test}`' for test in tests)})" if tests else ""


def _branches_without(view: FileView) -> Iterator[Finding]:
    """Forwards of a model that another branch of the same training step runs in a region."""
    reported: set[ast.Call] = set()
    for region in view.regions.opened(view.module):
        always_on = region.cast.enabled is True and not region.conditional
        if not always_on or region.opened not in layout_of(region.function):
            continue
        for call, inside in _outside(view, region):
            if call not in reported:
                reported.add(call)
                words = {"call": view.source_of(call.func), "row": str(view.row_of(inside))}
                path = (view.step(inside, view.module, "here it runs under autocast"),)
                damage = Link("damage", Standing.HARMLESS, words["call"], "runs in float32")
                message = ONE_BRANCH.format_map(words)
                model = links.model(view, call.func, region.function, is_run=True)
                rests = (model, region.link, damage)
                yield view.finding(RULE, call, message, HELP_BRANCH, path=path, links=rests)


def _outside(view: FileView, region: Region) -> Iterator[tuple[ast.Call, ast.Call]]:
    """Calls outside a region that exclude one inside it, of the same model, for one backward."""
    layout = layout_of(region.function)
    scales = [site.node for site in scaler_calls(view, "scale", within=region.function)]
    if not scales:
        return
    parts = (node for part in region.parts for node in layout.inside(part))
    inside = dict.fromkeys(node for node in parts if isinstance(node, ast.Call))
    outside: dict[str | None, list[ast.Call]] = defaultdict(list)
    for node in layout.nodes:
        if isinstance(node, ast.Call) and node not in inside:
            outside[path_text(node.func)].append(node)
    for first in inside:
        name = path_text(first.func)
        for other in outside[name] if name is not None else ():
            if not layout.exclusive(first, other):
                continue
            if _is_meant(view, layout, other, first):
                continue
            if not _may_be_model(view, first, region.function):
                continue
            if any(layout.reaches(first, s) and layout.reaches(other, s) for s in scales):
                yield other, first


def _may_be_model(view: FileView, call: ast.Call, function: Function) -> bool:
    """Whether a call runs a module, or what nothing in sight defines.

    `targets.view(-1)` has the dtype of its tensor, on either side.
    """
    if isinstance(call.func, ast.Attribute) and call.func.attr in SAME_DTYPE:
        return False
    if links.model(view, call.func, function).standing is not Standing.GUESS:
        return True
    is_known = view.objects.callee(call, function) or function.module.resolve(call.func)
    return not is_known and bool(call.args)


def _is_meant(view: FileView, layout: Layout, call: ast.Call, other: ast.Call) -> bool:
    """Whether a call is meant as it is: under a context of its own, or chosen for the training.

    Only a test that changes with the batch leaves autocast out of some steps by mistake, unless
    it asks the batch's device or dtype.
    """
    apart = [node for node in layout.ancestors(call) if not layout.holds(node, other)]
    fork = next((node for node in layout.ancestors(call) if layout.holds(node, other)), None)
    if any(isinstance(node, (ast.With, ast.AsyncWith)) for node in apart):
        return True
    if not isinstance(fork, (ast.If, ast.IfExp)):
        return True
    changes = changes_by_round(view, fork.test, layout.function, call)
    return not changes or _asks_of_place(fork.test)


def _asks_of_place(test: ast.expr) -> bool:
    """Whether a test asks where a tensor is, or what it is made of."""
    return any(isinstance(node, ast.Attribute) and node.attr in PLACES for node in walk(test))


def _taking_part(view: FileView, callers: Callers, plain: PlainLoss) -> set[Module]:
    """The files that may say how a loss is scaled: its own, its callers', its optimizer's."""
    function = plain.function
    modules = {function.module, plain.region.function.module}
    owner = enclosing_class(function)
    if owner is not None:
        modules |= {item.module for item in view.objects.ancestry(owner)}
    modules |= {caller.module for _, caller in callers.callers(function)}
    assert isinstance(plain.step.func, ast.Attribute)
    for binding in view.objects.bindings(plain.step.func.value, plain.stepping) or ():
        modules.add(binding.function.module)
    return modules


def _scaling(view: FileView, callers: Callers, plain: PlainLoss) -> Standing | None:
    """How it is known that something scales a loss; None where nothing does."""
    modules = _taking_part(view, callers, plain)
    known = ACCELERATOR if plain.library is not None else ""
    if any(names_training(module, known) for module in modules) or unscales_by_hand(plain):
        return Standing.CODE
    if may_be_scaled(view, callers, plain):
        return Standing.CODE
    if plain.library is not None:
        return None
    in_sight = any(module.once(_has_scaler) or _is_handed_one(view, module) for module in modules)
    spoken = any(_speaks_of_scaling(view, module) for module in modules)
    return Standing.GUESS if spoken and not in_sight else None


def _has_scaler(module: Module) -> bool:
    """Whether a file builds a scaler, or uses one."""
    return bool(roles_of(module).constructions or module.once(uses_of).scalers)


def _is_handed_one(view: FileView, module: Module) -> bool:
    """Whether a name of a file that speaks of a scaler stands for one that other code builds."""
    roles = view.roles_of(module)
    return any(
        isinstance(node, (ast.Name, ast.Attribute))
        and SCALES.search(last_name(node)) is not None
        and roles.standing_of(node, function, Role.SCALER) is Standing.CODE
        for function in module.functions
        for node in function.nodes
    )


def _speaks_of_scaling(view: FileView, module: Module) -> bool:
    """Whether a name in a file speaks of a scaler; what comments say does not count.

    Nor does a name that is None whenever it is read, or that nothing reads.
    """
    return SCALES.search(module.source) is not None and any(
        SCALES.search(text) and not _is_nothing(view, node, function)
        for function in module.functions
        for node in function.nodes
        for text in (
            getattr(node, field, None) for field in ("id", "attr", "arg", "name", "module")
        )
        if isinstance(text, str)
    )


def _is_nothing(view: FileView, node: ast.AST, function: Function) -> bool:
    """Whether what has a name is no value where it stands, or always None.

    What is imported is, where it is read under the same name.
    """
    if isinstance(node, ast.keyword):
        node = node.value
    elif isinstance(node, (ast.Name, ast.Attribute)) and not isinstance(node.ctx, ast.Load):
        return True
    if not isinstance(node, ast.expr):
        return isinstance(node, ast.arg) or not getattr(node, "asname", node)
    return view.values.of(node, function).always(lambda content: content is None)
