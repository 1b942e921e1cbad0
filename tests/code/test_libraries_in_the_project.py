"""A library that is the project itself: files outside of it see the rows of the table, its own see its code."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from amplint.amp.libraries import SOURCES, class_row
from amplint.code.index import forget
from amplint.code.module import Class
from amplint.code.project import Project
from amplint.inspection import Task, inspect
from amplint.source.reading import SourceFile

LIBRARY = {
    "accelerate/__init__.py": "from .accelerator import Accelerator\n",
    "accelerate/accelerator.py": (
        "from torch.amp import GradScaler\n\n"
        "class Accelerator:\n"
        "    def __init__(self, mixed_precision=None):\n"
        "        self.scaler = GradScaler('cuda')\n"
        "    def prepare(self, *parts):\n"
        "        return parts\n"
        "    def backward(self, loss):\n"
        "        self.scaler.scale(loss).backward()\n"
    ),
}
USE = "from accelerate import Accelerator\nREAD(Accelerator)\n"
#: A training as the library's documentation has it; its optimizer steps through the scaler.
EXAMPLE = """
from accelerate import Accelerator

def train(model, optimizer, loader):
    accelerator = Accelerator(mixed_precision="fp16")
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        accelerator.backward(model(batch))
        {clip}
        optimizer.step()
        optimizer.zero_grad()
"""


def write(folder: Path, texts: dict[str, str]) -> None:
    (folder / "pyproject.toml").touch()
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def is_in_sight(folder: Path, name: str, libraries: tuple[str, ...]) -> bool:
    """Whether a file finds the class that it reads in the project."""
    text = (folder / name).read_text(encoding="utf-8")
    project = Project(str(folder), libraries=libraries)
    module = project.add(name, text, ast.parse(text), str(folder / name))
    (site,) = [item for item in module.calls if item.method == "READ"]
    return isinstance(project.named(site.node.args[0], site.function), Class)


@pytest.mark.parametrize("below", ["", "src/"])
def test_only_its_own_files_find_a_library(below: str, tmp_path: Path) -> None:
    texts = {below + name: text for name, text in LIBRARY.items()}
    texts |= {"examples/train.py": USE, f"{below}accelerate/tools/run.py": USE}
    write(tmp_path, texts)
    assert not is_in_sight(tmp_path, "examples/train.py", SOURCES)
    assert is_in_sight(tmp_path, f"{below}accelerate/tools/run.py", SOURCES)
    assert is_in_sight(tmp_path, "examples/train.py", ())


def test_a_folder_that_only_has_the_name_of_a_library_is_the_project(tmp_path: Path) -> None:
    write(tmp_path, {"accelerate/__init__.py": "class Accelerator: ...\n", "train.py": USE})
    assert is_in_sight(tmp_path, "train.py", SOURCES)


def test_sources_are_of_libraries_with_rows() -> None:
    rows = ["accelerate.Accelerator", "lightning.fabric.Fabric", "lightning_fabric.Fabric"]
    rows += ["pytorch_lightning.LightningModule", "mmengine.optim.AmpOptimWrapper"]
    assert all(map(class_row, rows))
    assert {name.partition(".")[0] for name in rows} == {
        source.partition("/")[0] for source in SOURCES
    }


CLIP = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"


@pytest.mark.parametrize(("clip", "expected"), [("pass", []), (CLIP, ["AMP609"])])
def test_an_example_of_the_library_is_judged_like_anybodys_code(
    clip: str, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "import torch\n" + EXAMPLE.format(clip=clip)
    write(tmp_path, {**LIBRARY, "train.py": text})
    forget()
    task = Task(
        SourceFile("train.py", text), frozenset({"AMP110", "AMP112", "AMP609"}), path="train.py"
    )
    assert [item.code for item in inspect(task).findings] == expected
