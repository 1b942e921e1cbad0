"""# unscaled-for-nothing (ACM102)

`unscale_` and `update` without a step between them: the gradients are not applied.
"""

from amplint.authoring import Invalid, Order
from amplint.findings import Severity
from amplint.rule import Rule

RULE = Rule(
    code="ACM102",
    name="unscaled-for-nothing",
    severity=Severity.WARNING,
    effect="silent",
    summary="gradients unscaled, and never applied",
)

ORDER = Order(
    methods=("unscale_", "update"),
    unless=("step",),
    message="`{scaler}` unscales gradients that no step applies",
    help="call `{scaler}.step(optimizer)` in between",
)

LOOP = """\
import torch

def train(model, optimizer, loader):
    scaler = torch.amp.GradScaler("cuda")
    for batch in loader:
        scaler.scale(model(batch)).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
"""
VALID = [LOOP]
INVALID = [Invalid(LOOP.replace("        scaler.step(optimizer)\n", ""))]
