"""Settings: their defaults, and reading them from `pyproject.toml` or `amplint.toml`.

`[tool.amplint]` of the nearest `pyproject.toml`, or the whole of an `amplint.toml` beside
or above the working directory; in one folder `amplint.toml` wins. Keys are the fields of
`Settings` in kebab-case. Paths and patterns are relative to the file's folder.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

from amplint import files
from amplint.errors import ConfigError, UnreadableFile, did_you_mean
from amplint.plaindata import NoData, dotted_key, from_toml
from amplint.selectors import unknown_selector_hint

#: Folders that hold no code of the user's: environments, caches, build output.
DEFAULT_EXCLUDE = (
    ".amplint_cache",
    ".bzr",
    ".direnv",
    ".eggs",
    ".git",
    ".hg",
    ".ipynb_checkpoints",
    ".mypy_cache",
    ".nox",
    ".pyenv",
    ".pytest_cache",
    ".ruff_cache",
    ".svn",
    ".tox",
    ".venv",
    ".vscode",
    "__pycache__",
    "__pypackages__",
    "_build",
    "buck-out",
    "build",
    "dist",
    "node_modules",
    "site-packages",
    "venv",
)

#: Settings that hold patterns, which are checked when they are read.
_PATTERNS = frozenset({"exclude", "extend-exclude", "per-file-ignores"})
#: Bounds of `max-file-size`, in bytes, and of `jobs`.
LARGEST_FILE, MOST_JOBS = 1 << 30, 1_000
#: Characters of a wrong value that a message shows.
_LONGEST = 200

FAIL_LEVELS = ("error", "warning", "info", "confirmed", "never")
#: Formats of a report; each is a module of `amplint.report`.
FORMATS = ("full", "concise", "json", "github", "sarif")
#: Settings that take one of a few words.
_CHOICES = {"fail-on": FAIL_LEVELS, "output-format": FORMATS}
_SELECTORS = ("select", "extend-select", "ignore")
#: Where a wrong setting stands, if no file holds it.
COMMAND_LINE = "command line"


@dataclass(frozen=True, slots=True)
class Settings:
    """What to check and how. Every field has a default that suits most projects.

    Args:
        select: codes, prefixes ("AMP1"), names or "ALL" to check instead of the default,
            which is every rule but the notices.
        extend_select: the same, in addition to the default or to `select`.
        ignore: the same, not to check; between selectors that match one rule the longer
            one wins, and `ignore` where they are equally long.
        per_file_ignores: (gitignore-style pattern, selectors) pairs.
        exclude: gitignore-style patterns of files and folders to pass over.
        extend_exclude: the same, in addition to `exclude`.
        force_exclude: pass over excluded files even if named explicitly.
        respect_gitignore: pass over what `.gitignore` files name.
        max_file_size: in bytes; a larger file is an error (AMP000).
        jobs: number of processes; 0 chooses by the amount of work.
        cache: whether results may be reused between runs.
        fail_on: least severity that makes the exit status 1, one of `FAIL_LEVELS`.
        plugins: whether rules of installed packages run.
        fix: whether safe fixes are applied.
        unsafe_fixes: whether fixes that change what the program does count as fixes, too.
        target_torch: torch versions that the checked code runs on, "2.3" or ">=2.1,<3"; None
            asks the project's own requirements.
        project_root: folder of the project, for imports; None looks upwards from each file.
        src: folders below the project's root that hold top-level packages, besides `src`.
        output_format: of the report; None leaves it to the command line.
        stdin_filename: name of the file whose text is read from standard input.
        root: folder that patterns are relative to; "" is the working directory.
        origin: the configuration file that was read, or None.
    """

    select: tuple[str, ...] = ()
    extend_select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    per_file_ignores: tuple[tuple[str, tuple[str, ...]], ...] = ()
    exclude: tuple[str, ...] = DEFAULT_EXCLUDE
    extend_exclude: tuple[str, ...] = ()
    force_exclude: bool = False
    respect_gitignore: bool = True
    max_file_size: int = 1_000_000
    jobs: int = 0
    cache: bool = True
    fail_on: str = "warning"
    plugins: bool = True
    fix: bool = False
    unsafe_fixes: bool = False
    target_torch: str | None = None
    project_root: str | None = None
    src: tuple[str, ...] = ()
    output_format: str | None = None
    stdin_filename: str | None = None
    root: str = field(default="", metadata={"file_key": False})
    origin: str | None = field(default=None, metadata={"file_key": False})

    @property
    def wants_edits(self) -> bool:
        """Whether the report shows the edits of fixes; otherwise only `--fix` makes them."""
        return self.output_format == "json"


def load_settings(
    *, start: str | os.PathLike[str] = ".", config: str | os.PathLike[str] | None = None
) -> Settings:
    """Settings of the nearest configuration file, or of the given one.

    Args:
        start: folder to search from, upwards.
        config: read this file instead of searching.

    Raises:
        ConfigError: the file cannot be read, is no TOML, or holds unknown keys or values.
    """
    path = os.fspath(config) if config is not None else find_config(start)
    if path is None:
        return Settings()
    table = _own_table(path, _read_toml(path))
    return settings_from_table(table or {}, path)


def find_config(start: str | os.PathLike[str] = ".") -> str | None:
    """The configuration file that applies to a folder: its own, or its nearest parent's.

    Raises:
        ConfigError: a `pyproject.toml` on the way cannot be read, or has a word of amplint and is no
            TOML.
    """
    folder = os.path.abspath(start)
    while True:
        for name in ("amplint.toml", ".amplint.toml", "pyproject.toml"):
            path = os.path.join(folder, name)
            if os.path.lexists(path) and _is_for_amplint(path):
                return path
        parent = os.path.dirname(folder)
        if parent == folder:
            return None
        folder = parent


def with_overrides(settings: Settings, **overrides: Any) -> Settings:
    """Apply command-line options; None means that the option was not given.

    A `select` of the command line replaces the file's whole selection, its `ignore`
    included; the other selectors are added to the file's.
    """
    given = {key: value for key, value in overrides.items() if value is not None}
    if given.get("select"):
        settings = replace(settings, select=(), extend_select=(), ignore=())
    for key in ("extend_select", "ignore", "extend_exclude"):
        if key in given:
            given[key] = (*getattr(settings, key), *given[key])
    return replace(settings, **given)


def _is_for_amplint(path: str) -> bool:
    if os.path.basename(path) != "pyproject.toml":
        return True
    if b"amplint" not in _read(path):  # its TOML is the business of others
        return False
    return _own_table(path, _read_toml(path)) is not None


def _own_table(path: str, document: Mapping[str, Any]) -> Any:
    if os.path.basename(path) != "pyproject.toml":
        return document
    tool = document.get("tool", {})
    return tool.get("amplint") if isinstance(tool, Mapping) else None


def _read(path: str) -> bytes:
    try:
        return files.read(path, files.CONFIGURATION)
    except UnreadableFile as error:
        raise ConfigError(f"{path}: {error.message}") from error


def _read_toml(path: str) -> dict[str, Any]:
    try:
        return from_toml(_read(path).decode())
    except UnicodeDecodeError as error:
        row = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}: is no valid TOML: {error} (at line {row})") from error
    except NoData as error:
        raise ConfigError(f"{path}: is no valid TOML: {error}") from error


def settings_from_table(table: Any, path: str) -> Settings:
    """Settings from a parsed table.

    Args:
        table: what the file holds for amplint.
        path: the file, for messages and as the root of patterns.

    Raises:
        ConfigError: an unknown key, a value of another type, or an unknown rule.
    """
    if not isinstance(table, Mapping):
        raise ConfigError(f"{path}: `tool.amplint` must be a table, not {_shown(table)}")
    known = {
        item.name.replace("_", "-"): item.name
        for item in fields(Settings)
        if item.metadata.get("file_key", True)
    }
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in known:
            hint = did_you_mean(key, known) or f"known keys: {', '.join(sorted(known))}"
            raise ConfigError(f"{path}: unknown key `{_dotted(path, key)}`", hint)
        values[known[key]] = _checked(path, key, value)
    root = os.path.dirname(os.path.abspath(path))
    settings = Settings(**values, root=root, origin=path)
    check_selectors(settings, path)
    return settings


def check_selectors(settings: Settings, where: str) -> None:
    """Check that every selector names at least one rule.

    Args:
        where: the file that holds the settings, or `COMMAND_LINE`.

    Raises:
        ConfigError: one does not; with the closest code or name as hint.
    """
    lists: list[tuple[str, tuple[str, ...], tuple[str, ...]]] = [
        (key, (), getattr(settings, key.replace("-", "_"))) for key in _SELECTORS
    ]
    lists += [
        ("per-file-ignores", (pattern,), selectors)
        for pattern, selectors in settings.per_file_ignores
    ]
    for key, inner, selectors in lists:
        for selector in selectors:
            hint = unknown_selector_hint(selector)
            if hint is not None:
                words = f"no rule matches `{_short(selector)}` in `{_dotted(where, key, *inner)}`"
                raise ConfigError(f"{where}: {words}", hint)


def _dotted(where: str, key: str, *inner: str) -> str:
    """A setting as it is written where it stands: a dotted key of TOML, or an option."""
    if where == COMMAND_LINE:
        return f"--{key}"
    table = ("tool", "amplint") if os.path.basename(where) == "pyproject.toml" else ()
    return _short(dotted_key((*table, key, *inner)))


def _checked(path: str, key: str, value: Any) -> Any:
    check, wanted = _CHECKS.get(key, (_strings, "a list of strings"))
    result = check(value)
    if result is None:
        inner, wanted, value = _wrong_part(key, wanted, value)
        hint = did_you_mean(value, _CHOICES.get(key, ())) if isinstance(value, str) else None
        name = _dotted(path, key, *inner)
        raise ConfigError(f"{path}: `{name}` must be {wanted}, not {_shown(value)}", hint)
    if "\0" in _text_of(value):
        raise ConfigError(f"{path}: `{_dotted(path, key)}` holds a null character")
    for pattern in result if key in _PATTERNS else ():
        _check_pattern(pattern if isinstance(pattern, str) else pattern[0], path, key)
    return result


def _wrong_part(key: str, wanted: str, value: Any) -> tuple[tuple[str, ...], str, Any]:
    """Which key of a setting that is a table has the wrong value, what it must be, and the value."""
    if key == "per-file-ignores" and isinstance(value, Mapping):
        for pattern, selectors in value.items():
            if _strings(selectors) is None:
                return (pattern,), "a list of strings", selectors
    return (), wanted, value


def _text_of(value: Any) -> str:
    """All the text in a value of a setting."""
    if isinstance(value, Mapping):
        return "".join(key + _text_of(inner) for key, inner in value.items())
    if isinstance(value, list):
        return "".join(map(_text_of, value))
    return value if isinstance(value, str) else ""


def _check_pattern(pattern: str, path: str, key: str) -> None:
    from amplint.source.globs import Malformed, parse

    try:
        parse(pattern)
    except Malformed as error:
        raise ConfigError(
            f"{path}: malformed pattern in `{_dotted(path, key)}`: {error}",
            "patterns are those of git",
        ) from error


def _shown(value: Any) -> str:
    """A value in some words: a number can have more digits than Python writes."""
    try:
        words = repr(value)
    except ValueError:
        return "a number of thousands of digits"
    except RecursionError:
        return "tables in tables"
    return _short(words)


def _short(words: str) -> str:
    return words if len(words) <= _LONGEST else f"{words[:_LONGEST]}..."


def _strings(value: Any) -> tuple[str, ...] | None:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    return None


def _per_file(value: Any) -> tuple[tuple[str, tuple[str, ...]], ...] | None:
    if not isinstance(value, Mapping):
        return None
    pairs = [(pattern, _strings(selectors)) for pattern, selectors in value.items()]
    if any(selectors is None for _, selectors in pairs):
        return None
    return tuple((pattern, selectors or ()) for pattern, selectors in pairs)


def _boolean(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _natural(value: Any, most: int) -> int | None:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and 0 <= value <= most else None


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _choice(value: Any, among: tuple[str, ...]) -> str | None:
    return value if value in among else None


def _versions(value: Any) -> str | None:
    from amplint.amp.target_torch import oldest

    return value if isinstance(value, str) and oldest(value) is not None else None


_Check = tuple[Callable[[Any], Any], str]
_CHECKS: Mapping[str, _Check] = {
    "per-file-ignores": (_per_file, "a table from patterns to lists of strings"),
    "force-exclude": (_boolean, "true or false"),
    "respect-gitignore": (_boolean, "true or false"),
    "cache": (_boolean, "true or false"),
    "max-file-size": (
        partial(_natural, most=LARGEST_FILE),
        f"a number of bytes up to {LARGEST_FILE}",
    ),
    "jobs": (
        partial(_natural, most=MOST_JOBS),
        f"a number of processes up to {MOST_JOBS}, 0 for automatic",
    ),
    **{
        key: (partial(_choice, among=words), f"one of {', '.join(words)}")
        for key, words in _CHOICES.items()
    },
    "plugins": (_boolean, "true or false"),
    "fix": (_boolean, "true or false"),
    "unsafe-fixes": (_boolean, "true or false"),
    "target-torch": (_versions, 'a version or a range, such as "2.3" or ">=2.1"'),
    "project-root": (_string, "a string"),
    "stdin-filename": (_string, "a string"),
}
