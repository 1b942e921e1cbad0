"""# both-half-precisions (AMP605)

`fp16=True` and `bf16=True` in one set of training arguments.

## What it does
Flags a call of `TrainingArguments` (transformers; also its subclasses and those of `trl`), and a
DeepSpeed configuration literal, in which float16 and bfloat16 are both switched on: by constants,
or by names that are always true. Switches that exclude each other (`bf16=bf16, fp16=not bf16`) and
options of a command line are not flagged.

## Why is this bad?
The two are alternatives. `TrainingArguments` raises `ValueError: At most one of fp16 and bf16 can
be True, but not both` when it is built (transformers 5.23), DeepSpeed fails an assertion when it
reads its configuration. Nothing is trained.

## Example
```python
from transformers import TrainingArguments

arguments = TrainingArguments(output_dir="run", use_cpu=True, fp16=True, bf16=True)
```

## Use instead
```python
from transformers import TrainingArguments

arguments = TrainingArguments(output_dir="run", use_cpu=True, bf16=True)
```

## How it is confirmed
Building the arguments raises the exception; with `use_cpu=True` no GPU is needed. The test that
runs the examples is skipped where transformers is not installed; with transformers 5.23 they do
what is written here.

## Fix safety
Unsafe: a literal `fp16=True` is taken away, so that training runs in bfloat16. GPUs older than Ampere
need the other one. No fix in the literals of DeepSpeed.

## Known limits
A switch that arrives as a command line option is taken to be chosen well. Configuration files of
DeepSpeed are not read.

## References
- transformers, `training_args.py`: `TrainingArguments.__post_init__`
- DeepSpeed, `runtime/config.py`: "bfloat16 and fp16 modes cannot be simultaneously enabled"
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from amplint.amp import links
from amplint.amp.trainers import training_arguments
from amplint.authoring import Candidate, Pattern, m
from amplint.code.dataflow import constant_of
from amplint.code.module import CallSite
from amplint.expectations import IN_A_LIBRARY
from amplint.findings import Link, Severity, Standing
from amplint.rule import Rule
from amplint.values.provenance import Firmness
from amplint.values.values import Value
from amplint.view import FileView

RULE = Rule(
    code="AMP605",
    name="both-half-precisions",
    severity=Severity.ERROR,
    effect="crash",
    summary="`fp16=True` and `bf16=True` in one set of training arguments",
    fix="unsafe",
    unprobed=IN_A_LIBRARY,
)

BOTH = "`{callee}` gets float16 and bfloat16 at once: {effect}"
RAISES = "`ValueError: At most one of fp16 and bf16 can be True…`"
ASSERTS = "DeepSpeed refuses such a configuration"
HELP = "keep `bf16=True` on GPUs that have it (Ampere and later), else `fp16=True`"


def trainers(view: FileView) -> Iterator[Candidate]:
    """Arguments of a training in which both are always on."""
    for site in training_arguments(view):
        callee = view.source_of(site.node.func)
        both = [value for name in ("fp16", "bf16") if (value := _switched_on(view, site, name))]
        if len(both) < 2:
            continue
        steps = [step for value in both for step in value.steps]
        path = [view.step(step.node, step.module, step.words) for step in steps]
        path.append(view.step(site.node, view.module, "both are switched on"))
        rests = (
            Link("object", Standing.LIBRARY, callee, "takes the training's arguments"),
            *(links.held(value.firmness, "fp16 and bf16", "are on") for value in both),
        )
        words = {"callee": callee, "effect": RAISES}
        yield Candidate(site.node, None, {}, words, tuple(dict.fromkeys(path)), rests)


def _switched_on(view: FileView, site: CallSite, name: str) -> Value | None:
    """The True that a switch always is; None if it may be something else."""
    for keyword in site.node.keywords:
        if keyword.arg != name:
            continue
        possible = view.values.of(keyword.value, site.function)
        on = possible.always(lambda content: content is True)
        fixed = all(value.firmness is Firmness.FIXED for value in possible.values)
        return possible.values[0] if on and fixed else None
    return None


def without_float16(call: Any) -> Any:
    """The call without a literal `fp16=True`.

    Raises:
        ValueError: the switch is no literal.
    """
    from amplint.fixing import arguments

    literal = m.Arg(keyword=m.Name("fp16"), value=m.Name("True"))
    (index,) = [index for index, arg in enumerate(call.args) if m.matches(arg, literal)]
    return arguments.drop(call, index)


def configurations(view: FileView) -> Iterator[Candidate]:
    """Literals of dicts that say something of `"fp16"`."""
    words = {"callee": "fp16, bf16", "effect": ASSERTS}
    for node in view.module.nodes():
        if isinstance(node, ast.Dict) and "fp16" in map(constant_of, node.keys):
            rests = (
                Link("object", Standing.USE, "fp16, bf16", "is a DeepSpeed configuration"),
                links.proved("value", node, "switches both on"),
            )
            yield Candidate(node, None, {}, words, links=rests)


def enables_both(_: Candidate) -> Any:
    """`{"fp16": {"enabled": True}, "bf16": {"enabled": True}}`, among other entries."""

    def holds(*entries: Any) -> Any:
        return m.Dict(elements=[m.ZeroOrMore(), m.OneOf(*entries), m.ZeroOrMore()])

    def entry(key: str, value: Any) -> Any:
        return m.DictElement(m.SimpleString(repr(key)), value)

    on = holds(entry("enabled", m.Name("True")))
    return holds(entry("fp16", on)) & holds(entry("bf16", on), entry("bfloat16", on))


PATTERNS = (
    Pattern(lambda _: m.Call(), BOTH, HELP, candidates=trainers, replace=without_float16),
    Pattern(enables_both, BOTH, HELP, candidates=configurations),
)
