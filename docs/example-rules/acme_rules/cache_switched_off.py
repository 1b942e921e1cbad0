"""# cache-switched-off (ACM101)

`autocast(cache_enabled=False)` casts each weight again for each use.
"""

from libcst import matchers as m

from amplint.authoring import Invalid, Pattern
from amplint.findings import Severity
from amplint.rule import Rule

RULE = Rule(
    code="ACM101",
    name="cache-switched-off",
    severity=Severity.WARNING,
    effect="perf",
    summary="autocast without its cache of weights",
    fix="unsafe",
)

OFF = m.Arg(keyword=m.Name("cache_enabled"), value=m.Name("False"))


def without_switch(call):
    """The call without the argument."""
    return call.with_changes(args=[arg for arg in call.args if not m.matches(arg, OFF)])


PATTERN = Pattern(
    callees=("torch.autocast", "torch.amp.autocast"),
    matcher=m.Call(args=[m.ZeroOrMore(), OFF, m.ZeroOrMore()]),
    message="autocast casts each weight again for each use of it",
    help="leave `cache_enabled=False` out",
    replace=without_switch,
)

VALID = ['import torch\nwith torch.autocast("cuda"):\n    pass\n']
INVALID = [
    Invalid(
        'from torch import autocast\nwith autocast("cuda", cache_enabled=False):  # why\n    pass\n',
        'from torch import autocast\nwith autocast("cuda", ):  # why\n    pass\n',
    )
]
