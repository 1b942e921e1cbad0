"""Which rules a selector names: codes, prefixes, names and "ALL" against the rule table."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from amplint.errors import did_you_mean

#: Always on and never ignorable: a file that cannot be analysed must not look clean.
UNREADABLE = "AMP000"
UNUSED_SUPPRESSION = "AMP900"

_LOOK_LIKE_DIGITS = str.maketrans("OIL", "011")


@lru_cache(maxsize=1)
def rule_names() -> dict[str, str]:
    """Kebab-case rule name -> code; a rule's module is named for it."""
    from amplint.rules import TABLE

    return {module.replace("_", "-"): code for code, module in TABLE.items()}


def specificity(selector: str, code: str) -> int:
    """How exactly a selector names a rule: 0 for "ALL", its length for a prefix; -1 if not.

    Args:
        selector: a code, a prefix of codes, a rule's name or "ALL"; codes in any case.
        code: a rule's code.
    """
    if selector.upper() == "ALL":
        return 0
    if rule_names().get(selector.lower().replace("_", "-")) == code:
        return len(code)
    prefix = selector.upper()
    return len(prefix) if len(prefix) >= 3 and code.startswith(prefix) else -1


def unknown_selector_hint(selector: str) -> str | None:
    """None for a selector that matches a rule, else what was probably meant."""
    from amplint.rules import TABLE, known

    if any(specificity(selector, code) >= 0 for code in known()):
        return None
    alike = selector.upper().translate(_LOOK_LIKE_DIGITS)
    if f"AMP{alike[3:]}" in TABLE:
        return f"did you mean `AMP{alike[3:]}`?"
    meant = did_you_mean(selector.upper(), TABLE) or did_you_mean(selector.lower(), rule_names())
    return meant or "run `amplint rule --all` for every code and name"


def best(selectors: Iterable[str], code: str) -> int:
    """The most exact of the selectors that name a rule; -1 if none does."""
    return max((specificity(selector, code) for selector in selectors), default=-1)
