"""Which rules run, by the selectors of the settings, in general and for each file."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from amplint.config import Settings
from amplint.selectors import UNREADABLE, best

if TYPE_CHECKING:
    from amplint.source.ignores import Patterns


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

        advice = frozenset(code for code in TABLE if load(code).RULE.severity is Severity.INFO)
        return advice | frozenset(filter(_is_advice, self._of_plugins))

    @cached_property
    def codes(self) -> frozenset[str]:
        """Codes to run where no pattern of `per_file_ignores` says otherwise."""
        from amplint.rules import TABLE

        every = (*TABLE, *self._of_plugins)
        return frozenset(code for code in every if self._is_selected(code)) - {UNREADABLE}

    @cached_property
    def _of_plugins(self) -> tuple[str, ...]:
        from amplint import plugins

        return tuple(plugins.installed()) if self._settings.plugins else ()

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


def _is_advice(code: str) -> bool:
    """Whether a rule of another package only advises; one that cannot be loaded is run, and fails."""
    from amplint.findings import Severity
    from amplint.rules import load

    try:
        return load(code).RULE.severity is Severity.INFO
    except Exception:  # noqa: BLE001 - the file's report names the package
        return False
