"""# mixed-tf32-apis (AMP211)

TF32 is switched by the new interface and asked for by the old one, which then raises.

## What it does
Flags a read of `torch.backends.cuda.matmul.allow_tf32` behind `fp32_precision = "tf32"` for all
backends or for matrix products, and of `torch.backends.cudnn.allow_tf32` behind `fp32_precision =
"ieee"` for convolutions or recurrent layers alone, where the function sets nothing by the old
interface in between, and the file nothing at all.

## Why is this bad?
torch keeps both switches, and compares them when the old one is read: `RuntimeError: PyTorch is
checking whether allow_tf32_new is enabled for cuBlas matmul,Current status indicate that you have
used mix of the legacy and new APIs to set the TF32 status for cublas matmul. We suggest only using
the new API to set the TF32 flag. See also:
https://pytorch.org/docs/main/notes/cuda.html#tensorfloat-32-tf32-on-ampere-and-later-devices`. The
program ends where it only wanted to log a setting, also on a machine without a GPU.

## Example
```python
import torch

torch.backends.cuda.matmul.fp32_precision = "tf32"
try:
    print("tf32:", torch.backends.cuda.matmul.allow_tf32)
finally:
    torch.backends.cuda.matmul.fp32_precision = "ieee"

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.randn(8, 4)).square().mean().backward()
optimizer.step()
```

## Use instead
```python
import torch

torch.backends.cuda.matmul.fp32_precision = "tf32"
try:
    print("tf32:", torch.backends.cuda.matmul.fp32_precision == "tf32")
finally:
    torch.backends.cuda.matmul.fp32_precision = "ieee"

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.randn(8, 4)).square().mean().backward()
optimizer.step()
```

## How it is confirmed
Executing the example raises the error above, on the CPU too.

## Fix safety
Safe: for matrix products the read becomes `fp32_precision == "tf32"`, which is what it asked for.
Behind a setting for convolutions or recurrent layers alone there is no fix: the old switch asks about
both.

## Known limits
Both have to stand in one function, the new setting first, as a constant.

## References
- PyTorch, "CUDA semantics": TensorFloat-32 on Ampere and later devices
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from amplint.amp import links
from amplint.code.layout import layout_of
from amplint.code.module import Function
from amplint.findings import Finding, Severity
from amplint.fixing.statements import code_of
from amplint.fixing.verbs import Repair, Write, safe
from amplint.rule import Rule
from amplint.view import FileView

RULE = Rule(
    code="AMP211",
    name="mixed-tf32-apis",
    severity=Severity.ERROR,
    effect="crash",
    summary="TF32 set by `fp32_precision` and read by `allow_tf32`, which then raises",
    fix="safe",
    unprobed="the switches are torch's own, and a run would leave them changed",
)
_MATMUL = "torch.backends.cuda.matmul.allow_tf32"
_CUDNN = "torch.backends.cudnn.allow_tf32"
#: A setting of the new interface, and its value -> the old switch that no longer agrees, executed
#: with torch 2.13. The old defaults are off for matrix products and on for cuDNN.
DISAGREES: Mapping[tuple[str, str], str] = {
    ("torch.backends.fp32_precision", "tf32"): _MATMUL,
    ("torch.backends.cuda.matmul.fp32_precision", "tf32"): _MATMUL,
    ("torch.backends.cudnn.conv.fp32_precision", "ieee"): _CUDNN,
    ("torch.backends.cudnn.rnn.fp32_precision", "ieee"): _CUDNN,
}

#: What needs no parentheses around a comparison in it.
_APART = (ast.Call, ast.keyword, ast.Assign, ast.If, ast.Return)

MESSAGE = "`{read}` raises `RuntimeError`: {row} sets TF32 by `fp32_precision`, and both must agree"
HELP = "read `fp32_precision`, or use the old interface alone"


def check(view: FileView) -> Iterator[Finding]:
    """Report reads of an old switch that a new setting contradicts."""
    source = view.module.source
    if "fp32_precision" not in source or "allow_tf32" not in source:
        return
    if "set_float32_matmul_precision" in source:
        return  # it sets both
    for function in view.module.functions:
        for setting, old in _settings(view, function):
            for node in _reads(view, function, old):
                layout = layout_of(function)
                if not layout.dominates(setting, node) or _is_caught(function, node):
                    continue
                words = {"read": ast.unparse(node), "row": f"line {view.row_of(setting)}"}
                rests = (
                    links.proved("object", node, "is the old switch"),
                    links.proved("value", setting, "says otherwise"),
                )
                step = view.step(setting, view.module, "the new interface sets TF32")
                message, fix = MESSAGE.format_map(words), _asked_anew(view, node)
                yield view.finding(RULE, node, message, HELP, path=(step,), links=rests, fix=fix)


def _asked_anew(view: FileView, read: ast.Attribute) -> Repair | None:
    """The question in the words of the new interface, which has one answer for matrix products."""
    if view.module.resolve(read) != _MATMUL:
        return None
    asked = f'{code_of(view, read.value)}.fp32_precision == "tf32"'
    outer = view.module.scopes.parents.get(read)
    return safe(Write(read, asked if isinstance(outer, _APART) else f"({asked})"))


def _settings(view: FileView, function: Function) -> Iterator[tuple[ast.Assign, str]]:
    """Assignments of the new interface, with the old switch that they contradict."""
    for node in function.nodes:
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Constant):
            continue
        for target in node.targets:
            name = view.module.resolve(target) or ""
            old = DISAGREES.get((name, str(node.value.value)))
            if old is not None and node in layout_of(function):
                yield node, old


def _reads(view: FileView, function: Function, old: str) -> Iterator[ast.Attribute]:
    """Reads of an old switch in a function; none where the file sets one."""
    switches = [
        node
        for node in view.module.nodes()
        if isinstance(node, ast.Attribute) and node.attr == "allow_tf32"
    ]
    if any(isinstance(node.ctx, ast.Store) for node in switches):
        return
    for node in switches:
        if node in layout_of(function) and view.module.resolve(node) == old:
            yield node


def _is_caught(function: Function, node: ast.AST) -> bool:
    layout = layout_of(function)
    return any(isinstance(outer, ast.Try) and outer.handlers for outer in layout.ancestors(node))
