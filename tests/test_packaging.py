"""What pip installs is what the checkout holds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import amplint

try:
    import tomllib
except ModuleNotFoundError:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def package_folders() -> list[tuple[str, Path]]:
    """(import name, folder) of every folder with an `__init__.py`."""
    found = []
    for top, import_name in (("amplint", "amplint"), ("rules", "amplint.rules")):
        for init in sorted((ROOT / top).rglob("__init__.py")):
            parts = init.parent.relative_to(ROOT / top).parts
            found.append((".".join((import_name, *parts)), init.parent))
    return found


def test_every_package_is_listed() -> None:
    listed = PYPROJECT["tool"]["setuptools"]["packages"]
    assert listed == sorted(name for name, _ in package_folders())


@pytest.mark.parametrize(("name", "folder"), package_folders())
def test_no_module_lies_in_an_unlisted_folder(name: str, folder: Path) -> None:
    loose = [
        child
        for child in folder.iterdir()
        if child.is_dir() and not (child / "__init__.py").exists() and list(child.rglob("*.py"))
    ]
    assert loose == [], f"{name} holds Python files that no package lists"


def test_rules_are_mapped() -> None:
    assert PYPROJECT["tool"]["setuptools"]["package-dir"] == {"amplint.rules": "rules"}


def test_data_files_are_listed() -> None:
    patterns = PYPROJECT["tool"]["setuptools"]["package-data"]["amplint"]
    shipped = {path for pattern in patterns for path in (ROOT / "amplint").glob(pattern)}
    present = {
        path
        for path in (ROOT / "amplint").rglob("*")
        if path.is_file() and path.suffix not in {".py", ".pyc"}
    }
    assert shipped == present
    assert shipped, "the patterns match nothing"


def test_version_has_one_source() -> None:
    assert "version" not in PYPROJECT["project"]
    assert PYPROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "amplint.__version__"}
    assert re.fullmatch(r"\d+\.\d+\.\d+", amplint.__version__)


def test_runtime_needs_neither_torch_nor_rich() -> None:
    names = {re.split(r"[><=;\s]", entry)[0] for entry in PYPROJECT["project"]["dependencies"]}
    assert names == {"click", "libcst", "packaging", "pyyaml", "tomli"}


def test_dependencies_have_floors_and_no_caps() -> None:
    for entry in PYPROJECT["project"]["dependencies"]:
        requirement = entry.split(";")[0]
        assert ">=" in requirement and "<" not in requirement and "~" not in requirement, entry
