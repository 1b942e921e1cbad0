"""# trainer-float16-weights (AMP603)

A Hugging Face `Trainer` with `fp16=True` trains a model whose weights were loaded in float16.

## What it does
Flags the place where the weights become float16 (`from_pretrained(..., torch_dtype=torch.float16)`,
`dtype=`, `.half()`), if that model is given to a `Trainer` whose `TrainingArguments` have
`fp16=True`.

## Why is this bad?
`fp16=True` is mixed precision: autocast around the forward and a GradScaler around the step. The
scaler refuses float16 gradients, and float16 weights have those: the first optimizer step raises
`ValueError: Attempting to unscale FP16 gradients.` The weights have to be float32; autocast casts
copies of them.

## Example
```python
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

config = BertConfig(
    vocab_size=32, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8
)
BertForSequenceClassification(config).save_pretrained("checkpoint")
model = BertForSequenceClassification.from_pretrained("checkpoint", dtype=torch.float16)
example = {"input_ids": torch.tensor([1, 2, 3]), "labels": torch.tensor(1)}
arguments = TrainingArguments(output_dir="run", max_steps=1, fp16=True, report_to=[])
Trainer(model=model, args=arguments, train_dataset=[example] * 8).train()
```

## Use instead
```python
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

config = BertConfig(
    vocab_size=32, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8
)
BertForSequenceClassification(config).save_pretrained("checkpoint")
model = BertForSequenceClassification.from_pretrained("checkpoint", dtype=torch.float32)
example = {"input_ids": torch.tensor([1, 2, 3]), "labels": torch.tensor(1)}
arguments = TrainingArguments(output_dir="run", max_steps=1, fp16=True, report_to=[])
Trainer(model=model, args=arguments, train_dataset=[example] * 8).train()
```

## How it is confirmed
Executing one step raises the exception. That needs CUDA (elsewhere the trainer's scaler is off or
`fp16=True` is refused) and transformers with accelerate; the test is marked `cuda` and skipped
where one of them is missing.

## Fix safety
No fix: with a frozen base and float32 adapters, float16 weights are right.

## Known limits
Silent where adapters (peft, LoRA), quantization or frozen parameters are around: newer versions of
peft keep the adapters in float32, older ones do not. The arguments have to be in sight of the
`Trainer` call. Without a dtype, `from_pretrained` of transformers 5 takes that of the checkpoint,
which is not in sight either.

## References
- `torch/amp/grad_scaler.py`: `_unscale_grads_`
- transformers, `modeling_utils.py`: `PreTrainedModel.from_pretrained`, argument `dtype`
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.amp import links
from amplint.amp.halves import Half, halves_of
from amplint.amp.trainers import argument_named, is_training_arguments, trainers
from amplint.code.module import CallSite
from amplint.expectations import IN_A_LIBRARY
from amplint.findings import Finding, Link, Severity, Standing
from amplint.rule import Rule
from amplint.values.provenance import Firmness, Origin, Step
from amplint.values.values import Value
from amplint.view import FileView

RULE = Rule(
    code="AMP603",
    name="trainer-float16-weights",
    severity=Severity.ERROR,
    effect="crash",
    summary="a `Trainer` with `fp16=True` trains weights that were loaded in float16",
    facts=("H01", "H03"),
    unprobed=IN_A_LIBRARY,
)

RAISES = (
    "`{model}` is float16 with `fp16=True`: `ValueError: Attempting to unscale FP16 gradients.`"
)
HELP = "load the weights with `dtype=torch.float32`; `fp16=True` casts copies of them"


def check(view: FileView) -> Iterator[Finding]:
    """Report float16 weights in trainers that run with a scaler."""
    for site in trainers(view):
        model, arguments = argument_named(site, "model", 0), argument_named(site, "args", 1)
        if not isinstance(model, ast.expr) or not isinstance(arguments, ast.expr):
            continue
        switch = _float16_switch(view, arguments, site)
        if switch is None:
            continue
        halves = halves_of(view, Origin(model, site.function))
        certain = [half for half in halves if half.firmness is not Firmness.CHOICE]
        for half in certain[:1]:
            yield _finding(view, site, model, half, switch)


def _float16_switch(view: FileView, arguments: ast.expr, site: CallSite) -> Value | None:
    """The True of `fp16=True` in the arguments of a trainer; None where it may be off."""
    for origin in view.values.origins.of(arguments, site.function).origins:
        call = origin.expression
        if not isinstance(call, ast.Call):
            continue
        if not is_training_arguments(origin.function.module.resolve(call.func)):
            continue
        for keyword in call.keywords:
            if keyword.arg != "fp16":
                continue
            possible = view.values.of(keyword.value, origin.function, origin.activation)
            for value in possible.by_default():
                if value.content is True:
                    return value
    return None


def _finding(view: FileView, site: CallSite, model: ast.expr, half: Half, switch: Value) -> Finding:
    anchor = half.first_in(view.module) or site.node
    steps = [
        *half.steps,
        *switch.steps,
        Step(site.node, site.function.module, "the trainer scales losses and steps the weights"),
    ]
    path = [view.step(step.node, step.module, step.words) for step in steps]
    message = RAISES.format(model=view.source_of(model))
    rests = (
        Link("object", Standing.LIBRARY, view.source_of(site.node.func), "is the trainer"),
        links.held(switch.firmness, "fp16", "is switched on"),
        links.held(half.firmness, view.source_of(half.node), "makes the weights float16"),
    )
    return view.finding(RULE, anchor, message, HELP, path=tuple(dict.fromkeys(path)), links=rests)
