"""Paths that code builds from its own file, and what that makes of `sys.path`."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from amplint.code.filepaths import added_folders
from amplint.code.module import build_module
from amplint.code.project import Project

HERE = "/project/tools/run/train.py"
HEAD = "import os\nimport sys\nimport os.path as osp\nfrom pathlib import Path\nimport pathlib\n"
#: What a file says -> what it adds, where the file lies in /project/tools/run.
ADDED = {
    "sys.path.append('..')": [".."],
    "sys.path.insert(0, './lib')": ["lib"],
    "sys.path.extend(['a', 'b'])": ["a", "b"],
    "sys.path.append(os.getcwd())": ["."],
    "sys.path.append(os.path.dirname(__file__))": ["/project/tools/run"],
    "sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))": [
        "/project/tools"
    ],
    "sys.path.insert(1, os.path.join(os.path.dirname(__file__), '..', 'src'))": [
        "/project/tools/src"
    ],
    "sys.path.insert(1, osp.join(osp.dirname(__file__) + '/../src'))": ["/project/tools/src"],
    "sys.path.append(str(Path(__file__).parent.parent))": ["/project/tools"],
    "sys.path.append(str(Path(__file__).resolve().parents[2] / 'src'))": ["/project/src"],
    "sys.path.append(pathlib.Path(__file__).parent.joinpath('x').as_posix())": [
        "/project/tools/run/x"
    ],
    "ROOT = Path(__file__).parents[1]\nSRC = ROOT / 'src'\nsys.path.insert(0, str(SRC))": [
        "/project/tools/src"
    ],
    "def main():\n    sys.path.append('lib')": ["lib"],
    # What the text does not say.
    "sys.path.append(ROOT)": [],
    "sys.path.append(os.environ['ROOT'])": [],
    "ROOT = 'a'\nROOT = find()\nsys.path.append(ROOT)": [],
    "sys.path.append(Path(__file__).parents[n])": [],
    "sys.path.append()": [],
    "sys.path = ['a']": [],
    "where = where + 'x'\nsys.path.append(where)": [],
    "path = []\npath.append('lib')  # not sys.path": [],
}


@pytest.mark.parametrize("text", ADDED)
def test_what_a_file_adds(text: str) -> None:
    source = HEAD + text
    module = build_module("train.py", source, ast.parse(source))
    assert added_folders(module, HERE) == ADDED[text]


def module_named(root: Path, importer: str, dotted: str) -> str | None:
    """Where an import of `importer` leads, relative to the project."""
    project = Project(str(root))
    path = root / importer
    text = path.read_text(encoding="utf-8")
    module = project.add(importer, text, ast.parse(text), str(path))
    found = project.module_named(dotted, module)
    return found and str(Path(found.path).relative_to(root.resolve()))


def write(root: Path, **texts: str) -> None:
    for name, text in texts.items():
        path = root.joinpath(*name.split("__")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def test_a_file_finds_what_it_adds_and_its_neighbour_does_not(tmp_path: Path) -> None:
    write(
        tmp_path,
        common__helpers__clip="",
        tools__train="import sys\nsys.path.append('../common')\n",
        tools__test="",
    )
    found = module_named(tmp_path, "tools/train.py", "helpers.clip")
    assert found == "common/helpers/clip.py"
    assert module_named(tmp_path, "tools/test.py", "helpers.clip") is None


def test_a_relative_folder_may_start_where_the_program_is_started(tmp_path: Path) -> None:
    write(tmp_path, common__clip="", tools__train="import sys\nsys.path.append('common')\n")
    assert module_named(tmp_path, "tools/train.py", "clip") == "common/clip.py"


def test_what_python_finds_anyway_comes_first(tmp_path: Path) -> None:
    write(
        tmp_path,
        clip="",
        common__clip="",
        train="import sys\nsys.path.append('common')\n",
    )
    assert module_named(tmp_path, "train.py", "clip") == "clip.py"


def test_a_module_finds_what_lies_beside_the_script_that_imports_it(tmp_path: Path) -> None:
    """`python app/train.py` imports `models.net`, and that `layers.attention`; `app` is no package."""
    write(
        tmp_path,
        app__layers__attention="",
        app__layers__logging="",
        app__logging="",
        app__models__deep__net="",
    )
    importer = "app/models/deep/net.py"
    assert module_named(tmp_path, importer, "layers.attention") == "app/layers/attention.py"
    assert module_named(tmp_path, importer, "logging") is None  # more likely Python's own
    assert module_named(tmp_path, importer, "attention") is None
