"""From the options of `amplint check` to `Settings`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from amplint.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from amplint.config import Settings


def build_settings(options: dict[str, Any]) -> Settings:
    """The configuration file's settings with the command line's on top.

    Args:
        options: values by click's parameter names; None or empty where not given.

    Raises:
        ConfigError: a configuration or a selector is wrong.
        UsageError: options that contradict each other.
    """
    from amplint.config import COMMAND_LINE, check_selectors, with_overrides

    settings = _configured(options["config"], isolated=options["isolated"])
    overrides = {key: split_list(options[key]) or None for key in _LISTS}
    overrides |= {key: options[key] for key in _PLAIN}
    settings = with_overrides(
        settings, per_file_ignores=_per_file_ignores(options["per_file_ignores"]), **overrides
    )
    check_selectors(settings, COMMAND_LINE)
    return settings


_LISTS = ("select", "ignore", "extend_select", "exclude", "extend_exclude")
_PLAIN = (
    "force_exclude",
    "respect_gitignore",
    "fail_on",
    "fix",
    "unsafe_fixes",
    "cache",
    "jobs",
    "output_format",
    "project_root",
    "stdin_filename",
)


def unset_options() -> dict[str, Any]:
    """What `build_settings` gets from a command that leaves everything to the configuration."""
    return {
        **dict.fromkeys(_LISTS, ()),
        **dict.fromkeys(_PLAIN),
        "per_file_ignores": (),
        "config": (),
        "isolated": False,
    }


def split_list(values: Iterable[str]) -> tuple[str, ...]:
    """Items of options that take comma-separated lists and may be repeated."""
    return tuple(item.strip() for value in values for item in value.split(",") if item.strip())


def _per_file_ignores(values: Iterable[str]) -> tuple[tuple[str, tuple[str, ...]], ...] | None:
    pairs: dict[str, list[str]] = {}
    for item in split_list(values):
        pattern, colon, selector = item.rpartition(":")
        if not colon or not pattern or not selector:
            raise UsageError(
                f"`--per-file-ignores {item}` is not of the form PATTERN:CODE",
                "for example --per-file-ignores 'tests/*:AMP110'",
            )
        pairs.setdefault(pattern.strip(), []).append(selector.strip())
    return tuple((pattern, tuple(codes)) for pattern, codes in pairs.items()) or None


def _configured(values: Sequence[str], *, isolated: bool) -> Settings:
    from amplint.config import Settings, load_settings

    inline = [value for value in values if _is_inline(value)]
    paths = [value for value in values if not _is_inline(value)]
    if isolated and paths:
        raise UsageError("`--isolated` and a configuration file contradict each other")
    if len(paths) > 1:
        raise UsageError(f"more than one configuration file: {', '.join(paths)}")
    if isolated:
        settings = Settings(plugins=False)
    else:
        settings = load_settings(config=paths[0] if paths else None)
    for text in inline:
        settings = _with_inline(settings, text)
    return settings


def _is_inline(value: str) -> bool:
    """Whether a value of `--config` is `key = value` rather than a path."""
    return "=" in value and not os.path.exists(value)


def _with_inline(settings: Settings, text: str) -> Settings:
    from amplint.config import settings_from_table
    from amplint.plaindata import NoData, from_toml

    try:
        table = from_toml(text)
    except NoData as error:
        raise ConfigError(
            f"`--config {text}` is no valid TOML: {error}",
            "text needs quotes: --config 'fail-on = \"error\"'",
        ) from error
    given = settings_from_table(table, "--config")
    names = [key.replace("-", "_") for key in table]
    return replace(settings, **{name: getattr(given, name) for name in names})
