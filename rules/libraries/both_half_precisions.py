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

from amplint.amp import links
from amplint.amp.trainers import training_arguments
from amplint.code.dataflow import constant_of
from amplint.code.module import CallSite, Function
from amplint.expectations import IN_A_LIBRARY
from amplint.findings import Finding, Link, Severity, Standing
from amplint.fixing.statements import argument_index, keyword_of
from amplint.fixing.verbs import Drop, Repair, unsafe
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


def check(view: FileView) -> Iterator[Finding]:
    """Report training arguments and DeepSpeed literals with both kinds of half."""
    for site in training_arguments(view):
        both = [_switched_on(view, site, name) for name in ("fp16", "bf16")]
        if None not in both:
            callee = view.source_of(site.node.func)
            fix = _keep_bfloat16(site.node)
            yield _finding(view, site.node, site.function, callee, RAISES, both, fix)
    for function in view.module.functions:
        for node in function.nodes:
            if isinstance(node, ast.Dict) and _enables_both(node):
                message = BOTH.format(callee="fp16, bf16", effect=ASSERTS)
                rests = (
                    Link("object", Standing.USE, "fp16, bf16", "is a DeepSpeed configuration"),
                    links.proved("value", node, "switches both on"),
                )
                yield view.finding(RULE, node, message, HELP, links=rests)


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


def _enables_both(node: ast.Dict) -> bool:
    entries = {constant_of(key): value for key, value in zip(node.keys, node.values)}
    return _enabled(entries.get("fp16")) and _enabled(entries.get("bf16", entries.get("bfloat16")))


def _enabled(value: ast.expr | None) -> bool:
    if not isinstance(value, ast.Dict):
        return False
    return any(
        constant_of(key) == "enabled" and constant_of(item) is True
        for key, item in zip(value.keys, value.values)
    )


def _finding(
    view: FileView,
    node: ast.expr,
    function: Function,
    callee: str,
    effect: str,
    both: list[Value | None],
    fix: Repair | None,
) -> Finding:
    steps = [step for value in both if value is not None for step in value.steps]
    path = [view.step(step.node, step.module, step.words) for step in steps]
    path.append(view.step(node, function.module, "both are switched on"))
    message = BOTH.format(callee=callee, effect=effect)
    rests = (
        Link("object", Standing.LIBRARY, callee, "takes the training's arguments"),
        *(links.held(value.firmness, "fp16 and bf16", "are on") for value in both if value),
    )
    steps_of = tuple(dict.fromkeys(path))
    return view.finding(RULE, node, message, HELP, path=steps_of, links=rests, fix=fix)


def _keep_bfloat16(call: ast.Call) -> Repair | None:
    """Take the literal `fp16=True` away."""
    given = keyword_of(call, "fp16")
    if given is None or constant_of(given.value) is not True:
        return None
    return unsafe(Drop(call, argument_index(call, given)))
