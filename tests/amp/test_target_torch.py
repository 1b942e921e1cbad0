"""Which torch the code has to run on: ranges, and where projects state them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from amplint.amp.target_torch import Version, oldest, target_torch
from amplint.code.lookups import answer
from amplint.code.project import Project


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("2.3", (2, 3)),
        ("2", (2, 0)),
        (">=2", (2, 0)),
        (">=2.1,<3", (2, 1)),
        ("<3, >=2.1", (2, 1)),
        ("==2.0.*", (2, 0)),
        ("==1.13.1+cu117", (1, 13, 1)),
        ("~=2.4.0", (2, 4, 0)),
        (">1.8", (1, 8)),
        ("^2.1", (2, 1)),
        ("(>=1.6)", (1, 6)),
        (">=1.7,!=1.8", (1, 7)),
        ("<=2.2", (2, 2)),
        ("<2.3", (2, 2, 9999)),
        ("<2", (1, 9999)),
        ("!=2.0", None),
        ("*", None),
        ("", None),
        ("new", None),
        (">=", None),
    ],
)
def test_the_oldest_of_a_range(text: str, version: Version | None) -> None:
    assert oldest(text) == version


def target(tmp_path: Path, files: dict[str, str], settings: str | None = None) -> Version | None:
    """What holds for `pkg/train.py` of a project with these files."""
    (tmp_path / ".git").mkdir()
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    checked = tmp_path / "pkg" / "train.py"
    checked.parent.mkdir(exist_ok=True)
    checked.write_text("")
    project = Project(target_torch=settings)
    module = project.add("train.py", "", ast.parse(""), str(checked))
    found = target_torch(project, module)
    answers = project.lookups.answers.items()
    assert all(answer(question) == given for question, given in answers)
    return found


@pytest.mark.parametrize(
    ("name", "text", "version"),
    [
        ("pyproject.toml", '[project]\ndependencies = ["torch>=2.1", "numpy"]', (2, 1)),
        ("pyproject.toml", '[project.optional-dependencies]\ngpu = ["torch >= 1.9"]', (1, 9)),
        ("pyproject.toml", '[dependency-groups]\ndev = ["torch==2.6.0"]', (2, 6, 0)),
        ("pyproject.toml", '[tool.poetry.dependencies]\ntorch = "^2.1"', (2, 1)),
        ("pyproject.toml", '[tool.poetry.dependencies]\ntorch = {version = ">=1.10"}', (1, 10)),
        ("pyproject.toml", '[tool.poetry.group.x.dependencies]\ntorch = "2.0.1"', (2, 0, 1)),
        ("pyproject.toml", '[project]\ndependencies = ["torch"]', None),
        ("pyproject.toml", '[project]\ndependencies = ["torchvision>=0.9"]', None),
        ("pyproject.toml", '[project]\ndependencies = ["torch @ file:///x"]', None),
        ("pyproject.toml", "[project", None),
        ("pyproject.toml", 'project = 1\ntool = ["poetry"]', None),
        ("requirements.txt", "numpy\ntorch>=1.7.0  # why\n", (1, 7, 0)),
        ("requirements.txt", "torch==1.7.1+cu110 --find-links x", (1, 7, 1)),
        ("requirements.txt", 'torch>=1.8; python_version < "3.9"', (1, 8)),
        ("requirements.txt", "torch\ntorchaudio==0.9", None),
        ("requirements.txt", "torch-scatter>=1.0", None),
        ("requirements.txt", "# torch==1.2", None),
        ("requirements-dev.txt", "torch~=2.2", (2, 2)),
        ("requirements/base.txt", "torch[opt]>=1.11", (1, 11)),
        ("setup.cfg", "[options]\ninstall_requires =\n    torch>=1.6\n    numpy\n", (1, 6)),
        ("setup.cfg", "[options]\ninstall_requires = torch>=1.6\n", (1, 6)),
        ("setup.py", "setup(install_requires=['torch>=1.8.1', 'tqdm'])", (1, 8, 1)),
        ("setup.py", "setup(description='torch >= everything')", None),
        ("environment.yml", "dependencies:\n  - pytorch=1.12.1=py39_cu116\n", (1, 12, 1)),
        ("environment.yaml", "dependencies:\n  - pytorch::pytorch>=1.13\n  - pip", (1, 13)),
        ("environment.yml", "dependencies:\n  - pip:\n    - torch==2.0\n", (2, 0)),
    ],
)
def test_the_project_states_it(
    tmp_path: Path, name: str, text: str, version: Version | None
) -> None:
    assert target(tmp_path, {name: text}) == version


def test_the_oldest_of_one_folder_counts(tmp_path: Path) -> None:
    files = {"pyproject.toml": '[project]\ndependencies=["torch>=2.0"]', "requirements.txt": ""}
    files["requirements.txt"] = "torch==2.6"
    assert target(tmp_path, files) == (2, 0)


def test_the_nearest_folder_counts(tmp_path: Path) -> None:
    files = {"requirements.txt": "torch>=1.6", "pkg/requirements.txt": "torch>=2.4"}
    assert target(tmp_path, files) == (2, 4)


def test_a_folder_that_says_nothing_is_passed_over(tmp_path: Path) -> None:
    files = {"requirements.txt": "torch>=1.6", "pkg/requirements.txt": "torch\n"}
    assert target(tmp_path, files) == (1, 6)


def test_the_settings_come_first(tmp_path: Path) -> None:
    assert target(tmp_path, {"requirements.txt": "torch>=1.6"}, settings=">=2.4") == (2, 4)


def test_no_statement_means_the_newest(tmp_path: Path) -> None:
    assert target(tmp_path, {}) is None
