"""Which rules run: selectors (codes, prefixes, names, "ALL") against the rule table."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from amplint.config import Settings, did_you_mean

if TYPE_CHECKING:
    from amplint.source.ignores import Patterns

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
    from amplint.rules import TABLE

    if any(specificity(selector, code) >= 0 for code in TABLE):
        return None
    alike = selector.upper().translate(_LOOK_LIKE_DIGITS)
    if f"AMP{alike[3:]}" in TABLE:
        return f"did you mean `AMP{alike[3:]}`?"
    meant = did_you_mean(selector.upper(), TABLE) or did_you_mean(selector.lower(), rule_names())
    return meant or "run `amplint rule --all` for every code and name"


class Selection:
    """The rules to run, in general and for each file.

    Args:
        settings: of the run.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @cached_property
    def off_by_default(self) -> frozenset[str]:
        """Codes of the rules that must be selected: those that only give advice."""
        from amplint.findings import Severity
        from amplint.rules import TABLE, load

        return frozenset(code for code in TABLE if load(code).RULE.severity is Severity.INFO)

    @cached_property
    def codes(self) -> frozenset[str]:
        """Codes to run where no pattern of `per_file_ignores` says otherwise."""
        from amplint.rules import TABLE

        return frozenset(code for code in TABLE if self._is_selected(code)) - {UNREADABLE}

    def codes_for(self, path: str) -> frozenset[str]:
        """Codes to run in one file.

        Raises:
            ConfigError: a pattern of `per_file_ignores` is malformed.
        """
        ignored: set[str] = set()
        for patterns, selectors in self._per_file:
            if patterns.match_with_parents(path):
                ignored.update(code for code in self.codes if best(selectors, code) >= 0)
        return self.codes - ignored

    @cached_property
    def _per_file(self) -> list[tuple[Patterns, tuple[str, ...]]]:
        from amplint.source.ignores import Patterns

        root = self._settings.root
        return [
            (Patterns([pattern], root), selectors)
            for pattern, selectors in self._settings.per_file_ignores
        ]

    def _is_selected(self, code: str) -> bool:
        settings = self._settings
        wanted = best((*settings.select, *settings.extend_select), code)
        if wanted < 0 and not settings.select and code not in self.off_by_default:
            wanted = 0
        return wanted >= 0 and wanted > best(settings.ignore, code)


def best(selectors: Iterable[str], code: str) -> int:
    """The most exact of the selectors that name a rule; -1 if none does."""
    return max((specificity(selector, code) for selector in selectors), default=-1)
