"""How an `Accelerator` or a `Fabric` was set up: the values of its constructor's arguments."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from amplint.amp.libraries import class_row
from amplint.amp.links import held
from amplint.amp.view import AmpView
from amplint.code.arguments import written_argument
from amplint.code.dataflow import receiver
from amplint.code.expressions import last_name, path_text
from amplint.code.layout import Layout, layout_of
from amplint.code.module import CallSite, Function
from amplint.findings import Link, PathStep, Standing
from amplint.values.provenance import Firmness, Origin
from amplint.values.values import Possible, Value

ACCELERATOR = "accelerate.Accelerator"
FABRIC = "lightning.fabric.Fabric"


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """What one constructor call says about an argument.

    Args:
        built: the call, as the accelerator's origin.
        given: the argument's expression; None where the call leaves it out.
        possible: the constants that it may be; nothing where it is left out.
    """

    built: Origin
    given: ast.expr | None
    possible: Possible


def settings_of(
    view: AmpView,
    accelerator: ast.expr,
    function: Function,
    name: str,
    index: int,
    kind: str = ACCELERATOR,
) -> Iterator[Setting]:
    """What the constructors that an accelerator may come from say about an argument.

    Args:
        kind: the class of the object.
        name: of the argument ("mixed_precision").
        index: its place among the positional ones.
    """
    for origin in view.values.origins.of(accelerator, function).origins:
        call = origin.expression
        if not isinstance(call, ast.Call):
            continue
        row = class_row(origin.function.module.resolve(call.func))
        if row is None or row.name != kind:
            continue
        given = written_argument(call, name, index)
        possible = Possible()
        if given is not None:
            possible = view.values.of(given, origin.function, origin.activation)
        yield Setting(origin, given, possible)


def precisions_of(view: AmpView, accelerator: ast.expr, function: Function) -> list[Setting]:
    """What is said about `mixed_precision`; left out, `accelerate launch` decides."""
    return list(settings_of(view, accelerator, function, "mixed_precision", 2))


def half_precision(
    view: AmpView, accelerator: ast.expr, function: Function
) -> tuple[Link, tuple[PathStep, ...]] | None:
    """How firmly an accelerator trains in fp16, with the way there; None where it never does."""
    settings = precisions_of(view, accelerator, function)
    for item in settings:
        for value in sorted(item.possible.values, key=lambda value: -value.firmness):
            if value.content == "fp16" and item.given is not None:
                link = set_to(value, item.given, ast.Eq(), "fp16")
                return link, path_of(view, item, value)
    if settings and all(_is_known(item) for item in settings):
        return None
    for item in settings:
        default = _default(item)
        if item.given is not None and default is not None:
            test = ast.Compare(item.given, [ast.Eq()], [ast.Constant("fp16")])
            words = " ".join(ast.unparse(test).split())
            return held(Firmness.CHOICE, words, "sets it so"), path_of(view, item, default)
    return Link("value", Standing.GUESS, "mixed_precision", "is fp16: nothing in sight says so"), ()


def never_scales(view: AmpView, accelerator: ast.expr, function: Function) -> Link | None:
    """That an accelerator has no scaler, unless somebody chooses fp16; None if that is not known.

    Given a precision, `accelerate launch` does not decide: `AcceleratorState.__init__` asks the
    environment only where `mixed_precision` is None. Only fp16 has a scaler (`Accelerator.__init__`).
    """
    settings = precisions_of(view, accelerator, function)
    usual = [_usual(item) for item in settings]
    if not usual or any(not words or "fp16" in words for words in usual):
        return None
    given = " or ".join(sorted(set().union(*usual)))
    owner = ast.unparse(accelerator)
    return Link("value", Standing.CODE, f"{owner}.mixed_precision", f"is {given} by default")


def runs_in_bfloat16(view: AmpView, accelerator: ast.expr, function: Function) -> bool:
    """Whether the models of an accelerator compute in bfloat16, unless somebody chooses otherwise.

    `Accelerator.prepare_model` puts an autocast of its own around the forward of each, which an
    outer one does not change, and gives float32 (`convert_outputs_to_fp32`).
    """
    usual = [_usual(item) for item in precisions_of(view, accelerator, function)]
    return bool(usual) and all(words == {"bf16"} for words in usual)


def _usual(setting: Setting) -> frozenset[str]:
    """The words that a precision may be if nobody chooses another; none where that is not known."""
    values = setting.possible.values
    usual = [item for item in values if item.firmness is Firmness.DEFAULT]
    known = usual or (values if _is_known(setting) else ())
    words = [item.content.lower() for item in known if isinstance(item.content, str)]
    return frozenset(words) if len(words) == len(known) else frozenset()


def in_accumulation(site: CallSite, accelerator: str | None) -> bool:
    """Whether a call lies in a `with accelerator.accumulate(...)` block of this accelerator."""
    return any(path_text(call.func) == f"{accelerator}.accumulate" for call in _contexts(site))


def _contexts(site: CallSite) -> Iterator[ast.Call]:
    """The calls whose contexts are open around a call, innermost first."""
    for outer in layout_of(site.function).ancestors(site.node):
        if isinstance(outer, (ast.With, ast.AsyncWith)):
            for item in outer.items:
                if isinstance(item.context_expr, ast.Call):
                    yield item.context_expr


def cleared_before(backward: CallSite) -> ast.Call | None:
    """The `zero_grad` that each micro-batch runs in front of its backward, of what it then steps.

    `AcceleratedOptimizer.zero_grad` acts on the last micro-batch, as `step` does (accelerate,
    `optimizer.py`), and torch's own on each: the step gets the gradients of the last one alone.
    """
    layout = layout_of(backward.function)
    calls = [site.node for site in backward.function.module.calls if site.node in layout]
    trained = {path_text(model) for call in _contexts(backward) for model in call.args} | {
        receiver(node)
        for node in calls
        if last_name(node.func) == "step" and layout.before(backward.node, node)
    }
    cleared = (
        node
        for node in calls
        if last_name(node.func) == "zero_grad" and receiver(node) in trained - {None}
    )
    return next((node for node in cleared if _precedes(layout, node, backward.node)), None)


def _precedes(layout: Layout, first: ast.Call, second: ast.Call) -> bool:
    """Whether each round that runs the second call has run the first."""
    same_round = layout.loops(first) == layout.loops(second)
    return same_round and layout.before(first, second) and layout.dominates(first, second)


def accumulation_steps(
    view: AmpView, accelerator: ast.expr, function: Function
) -> tuple[Setting, Value] | None:
    """How many micro-batches make a step, where that can be more than one."""
    for item in settings_of(view, accelerator, function, "gradient_accumulation_steps", 3):
        if item.given is None:
            continue
        for value in sorted(item.possible.values, key=lambda value: -value.firmness):
            if isinstance(value.content, int) and value.content > 1:
                return item, value
        defaults = item.possible.values
        if defaults and not item.possible.complete:  # an option that may be any number
            origin = defaults[0].origin
            return item, Value(defaults[0].content, Firmness.CHOICE, origin)
    return None


def path_of(view: AmpView, setting: Setting, value: Value) -> tuple[PathStep, ...]:
    """From where a setting's value is written to the accelerator's use."""
    steps = (*value.steps, *setting.built.steps)
    return tuple(dict.fromkeys(view.step(item.node, item.module, item.words) for item in steps))


def set_to(value: Value, given: ast.expr, compared: ast.cmpop, content: str | int) -> Link:
    """That a setting is what a finding says: by a test in sight, or by what an option is."""
    test: ast.expr = given
    if value.origin.conditions:
        test = value.origin.conditions[0].test
    elif value.firmness is Firmness.CHOICE:
        test = ast.Compare(given, [compared], [ast.Constant(content)])
    return held(value.firmness, " ".join(ast.unparse(test).split()), "sets it so")


def _default(setting: Setting) -> Value | None:
    """What a setting is unless somebody chooses another of the library's words; None if unknown.

    Where it is None by default, the launcher decides, and not a setting of the program.
    """
    if setting.possible.complete:
        return None
    known = (item for item in setting.possible.values if item.firmness is Firmness.DEFAULT)
    return next((item for item in known if isinstance(item.content, str)), None)


def _is_known(setting: Setting) -> bool:
    """Whether nobody but the code in sight decides: where it says None, the launcher does."""
    contents = [value.content for value in setting.possible.values]
    return setting.possible.complete and bool(contents) and None not in contents
