"""# huge-initial-scale (ACM103)

A scaler that begins with more than 2**24 skips the first steps of every run.
"""

from amplint.authoring import Invalid
from amplint.findings import Severity
from amplint.fixing.verbs import Write, unsafe
from amplint.rule import Rule

RULE = Rule(
    code="ACM103",
    name="huge-initial-scale",
    severity=Severity.WARNING,
    effect="silent",
    summary="an initial loss scale above 2**24",
    fix="unsafe",
)


def check(view):
    """Report constructors whose `init_scale` is a number that is too large, wherever it is from."""
    for built in view.roles.constructions:
        for keyword in built.call.keywords:
            if keyword.arg != "init_scale":
                continue
            scale = view.values.of(keyword.value, built.function).only()
            if isinstance(scale, (int, float)) and scale > 2**24:
                yield view.finding(
                    RULE,
                    keyword.value,
                    f"the first steps are skipped until the scale has fallen from {scale:g}",
                    "begin with 65536",
                    fix=unsafe(Write(keyword.value, "2.0**16")),
                )


VALID = ['import torch\nscaler = torch.amp.GradScaler("cuda", init_scale=1024.0)\n']
INVALID = [
    Invalid(
        'import torch\nSCALE = 2.0**30\nscaler = torch.amp.GradScaler("cuda", init_scale=SCALE)\n',
        'import torch\nSCALE = 2.0**30\nscaler = torch.amp.GradScaler("cuda", init_scale=2.0**16)\n',
    )
]
