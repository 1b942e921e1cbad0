"""Projects in shapes that make a search run in circles or for ever: it ends, and still finds."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from amplint import files
from amplint.checker import Report, check_paths
from amplint.code import lookups
from amplint.config import Settings

#: Clips gradients that `prepare` has unscaled, or has not.
TRAIN = """\
import torch
{imports}
scaler = torch.amp.GradScaler("cuda")
def train(model, loader, optimizer):
    for batch in loader:
        optimizer.zero_grad()
        scaler.scale(model(batch).mean()).backward()
        {prepare}(scaler, optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
"""
UNSCALES = "def prepare(scaler, optimizer):\n    scaler.unscale_(optimizer)\n"
LEAVES = "def prepare(scaler, optimizer):\n    scaler.get_scale()\n"
BOTH = pytest.mark.parametrize(("helper", "expected"), [(UNSCALES, []), (LEAVES, ["AMP110"])])

#: A method of the base class that steps without unscaling, under a hook of the subclass.
BASE = """\
import torch
class Base:
    def __init__(self, optimizer):
        self.optimizer = optimizer
        self.scaler = torch.amp.GradScaler("cuda")
    def fit(self, model, loader):
        for batch in loader:
            self.optimizer.zero_grad()
            self.scaler.scale(model(batch).mean()).backward()
            self.clip(model)
            self.scaler.step(self.optimizer)
            self.scaler.update()
    def clip(self, model):
        pass
"""
CLIPS = """\
    def clip(self, model):
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
"""

#: Processor seconds that no project here may take; the dearest one takes less than a tenth.
LONG = 60.0


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test in a project of its own."""
    (tmp_path / "pyproject.toml").write_text("")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each file is read for another one."""
    counted: Counter[str] = Counter()

    def counting(path: str, limit: int) -> bytes:
        counted[Path(path).name] += 1
        return files.read(path, limit)

    monkeypatch.setattr(lookups, "files", SimpleNamespace(read=counting))
    return counted


def write(**files: str) -> None:
    """`a__b=text` writes a/b.py."""
    for name, text in files.items():
        path = Path(name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def check(*paths: str) -> Report:
    started = time.process_time()
    report = check_paths(paths or (".",), Settings(jobs=1))
    assert time.process_time() - started < LONG
    return report


def codes(*paths: str) -> list[str]:
    report = check(*paths)
    assert report.errors == ()
    return [finding.code for finding in report.findings]


def train(imports: str, prepare: str = "prepare") -> str:
    return TRAIN.format(imports=imports, prepare=prepare)


# -- imports ---------------------------------------------------------------------------------


@BOTH
def test_an_import_cycle(helper: str, expected: list[str], reads: Counter[str]) -> None:
    write(train=train("from helper import prepare"))
    write(helper="from train import train\nfrom third import other\n" + helper)
    write(third="import helper, train\nfrom helper import prepare\nother = 'scaler'\n")
    assert codes("train.py") == expected
    assert max(reads.values()) == 1


@BOTH
def test_a_cycle_of_reexports(helper: str, expected: list[str]) -> None:
    """One name goes round for ever; the other is found beside it."""
    write(a="from b import nowhere\n" + helper)
    write(b="from c import nowhere\nfrom a import prepare\nscaler = 1\n")
    write(c="from a import nowhere\nfrom b import prepare\nscaler = 1\n")
    write(train=train("from c import nowhere, prepare"))
    assert codes("train.py") == expected
    write(train=train("from c import nowhere", "nowhere"))
    assert codes("train.py") == []


@pytest.mark.parametrize(
    "imports",
    [
        "from nowhere import prepare",
        "from . import prepare",
        "from ....nowhere import prepare",
        "from nowhere import *",
        "import nowhere\nprepare = nowhere.prepare",
    ],
)
def test_a_module_that_is_not_there_may_do_anything(imports: str) -> None:
    write(train=train(imports))
    assert codes() == []


def test_a_module_that_is_broken_is_its_own_error() -> None:
    write(train=train("from helper import prepare"), helper="def prepare(scaler, optimizer:\n")
    report = check()
    assert [error.filename for error in report.errors] == ["helper.py"]
    assert report.findings == ()


def test_a_folder_in_place_of_a_module() -> None:
    write(train=train("from helper import prepare"))
    Path("helper.py").mkdir()
    assert codes("train.py") == []


@BOTH
def test_a_file_that_imports_itself(helper: str, expected: list[str]) -> None:
    write(train=train("import train\nfrom train import prepare, train as again") + helper)
    assert codes() == expected


@BOTH
def test_star_imports_in_a_cycle(helper: str, expected: list[str]) -> None:
    write(a="from b import *\nscaler = 1\n", b="from a import *\nfrom c import *\nscaler = 1\n")
    write(c="from a import *\nfrom b import *\nfrom c import *\n" + helper)
    write(train=train("from a import *"))
    assert codes("train.py") == expected


@BOTH
def test_modules_that_all_star_import_each_other(
    helper: str, expected: list[str], reads: Counter[str]
) -> None:
    """As many paths as there are orders of the modules, but each module is searched once."""
    stars = "".join(f"from m{number} import *\n" for number in range(30))
    for number in range(29):
        write(**{f"m{number}": stars + "scaler = 1\n"})
    write(m29=stars + helper, train=train(stars))
    assert codes("train.py") == expected
    assert set(reads.values()) == {1}


def test_a_chain_of_fifty_reexports(reads: Counter[str]) -> None:
    """Too long to be followed to its end: what it leads to may do anything."""
    for number in range(50):
        write(**{f"m{number}": f"from m{number + 1} import prepare\nscaler = 1\n"})
    write(m50=LEAVES, train=train("from m0 import prepare"))
    assert codes("train.py") == []
    assert len(reads) < 50
    write(train=train("from m48 import prepare"))
    assert codes("train.py") == ["AMP110"]


@pytest.mark.parametrize(
    ("use", "is_read"),
    [
        ("", False),
        ("SHAPE = Pipeline.SHAPE\n", True),
        ("def output() -> 'list[Pipeline]': ...\n", True),
        ("def output(pipeline: 'Pipeline'): ...\n", True),
        ("class Sub(Pipeline): ...\n", True),
        ("class Other:\n    made = Pipeline\n", True),
    ],
)
@BOTH
def test_what_an_imported_file_only_hands_on_is_not_read(
    helper: str, expected: list[str], use: str, is_read: bool, reads: Counter[str]
) -> None:
    write(train=train("from tools import prepare"))
    write(tools="from pipeline import Pipeline, unused\n" + helper + use)
    write(pipeline="class Pipeline:\n    SHAPE = 'scaler'\ndef unused(): ...\n")
    assert codes("train.py") == expected
    assert ("pipeline.py" in reads) == is_read


def test_every_file_of_a_chain_is_checked_in_time() -> None:
    """Each of fifty training files imports the next one."""
    for number in range(50):
        write(**{f"m{number}": train(f"from m{number + 1} import prepare") + LEAVES})
    write(m50=LEAVES)
    assert codes() == ["AMP110"] * 50


# -- packages of one name ----------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("local", ["torch", "torch__amp", "torch__nn__utils"])
@pytest.mark.parametrize("package", [False, True])
def test_a_local_module_called_torch(
    local: str, package: bool, helper: str, expected: list[str]
) -> None:
    """Beside a checkout of torch, its names mean what they always mean."""
    write(**{local: "scaler = None\n"})
    if package:
        Path("torch").mkdir(exist_ok=True)
        Path("torch/__init__.py").write_text("scaler = None\n")
    write(train=train("from helper import prepare"), helper=helper)
    assert codes("train.py") == expected


def test_two_packages_of_one_name() -> None:
    """A script in the root runs with the root first; one inside `src` sees its own package."""
    write(tools__helper=UNSCALES, src__tools__helper=LEAVES)
    Path("tools/__init__.py").write_text("")
    Path("src/tools/__init__.py").write_text("")
    write(train=train("from tools.helper import prepare"))
    write(src__tools__train=train("from tools.helper import prepare"))
    write(src__tools__relative=train("from .helper import prepare"))
    assert codes("train.py") == []
    assert codes("src/tools/train.py") == ["AMP110"]
    assert codes("src/tools/relative.py") == ["AMP110"]


def test_a_folder_of_scripts_without_a_project_file() -> None:
    """`from parts.helper import …` in `parts/` is run from above, with no package in sight."""
    write(work__parts__helper=UNSCALES, work__parts__deep__helper=LEAVES)
    write(work__parts__train=train("from parts.helper import prepare"))
    write(work__parts__deep__train=train("from parts.deep.helper import prepare"))
    Path("pyproject.toml").unlink(missing_ok=True)
    assert codes("work/parts/train.py") == []
    assert codes("work/parts/deep/train.py") == ["AMP110"]


def test_a_module_and_a_package_of_one_name() -> None:
    """Python takes the package."""
    write(helper=LEAVES, helper__parts=UNSCALES, train=train("from helper import prepare"))
    Path("helper/__init__.py").write_text("from .parts import prepare\n")
    assert codes("train.py") == []


# -- classes -----------------------------------------------------------------------------------


def test_two_hundred_subclasses_of_one_base() -> None:
    write(base=BASE)
    for number in range(100):
        names = (2 * number, 2 * number + 1)
        bodies = [f"class Trainer{name}(Base):\n{CLIPS}" for name in names]
        write(**{f"trainers__part{number}": "import torch\nfrom base import Base\n" + bodies[0]})
        with Path(f"trainers/part{number}.py").open("a") as file:
            file.write(bodies[1])
    report = check()
    assert report.errors == ()
    assert report.files == 101


def test_a_subclass_that_breaks_the_loop_of_its_base() -> None:
    write(base=BASE, trainer="import torch\nfrom base import Base\nclass Mine(Base):\n" + CLIPS)
    report = check("trainer.py")
    assert report.errors == ()
    assert {finding.code for finding in report.findings} <= {"AMP110"}


def test_base_classes_in_a_cycle() -> None:
    """No program, but a file that somebody is editing."""
    write(base="from trainer import Mine\n" + BASE.replace("class Base:", "class Base(Mine):"))
    write(
        trainer="import torch\nfrom base import Base\nclass Mine(Base, Mine):\n"
        + CLIPS
        + "    def other(self, loss):\n        self.scaler.scale(loss).backward()\n"
    )
    assert check().errors == ()


def test_a_class_that_is_its_own_base() -> None:
    write(base=BASE.replace("class Base:", "class Base(Base):"))
    assert codes() == []


# -- sizes -------------------------------------------------------------------------------------


@BOTH
def test_an_imported_file_of_20_000_lines(
    helper: str, expected: list[str], reads: Counter[str]
) -> None:
    table = "".join(
        f"def f{number}(x):\n    y = x + {number}\n    if y > {number}:\n        y -= 1\n"
        f"    return f{number + 1}(y)\n"
        for number in range(4_000)
    )
    assert table.count("\n") == 20_000
    write(generated=table + helper, train=train("from generated import prepare"))
    assert codes("train.py") == expected
    assert reads["generated.py"] == 1


@BOTH
def test_a_chain_of_calls_through_a_generated_file(helper: str, expected: list[str]) -> None:
    """Each of 3,000 functions hands the scaler to two others, over twice as many paths each."""
    functions = [
        f"def f{number}(scaler, optimizer):\n"
        f"    f{number + 1}(scaler, optimizer)\n    f{number + 2}(scaler, optimizer)\n"
        for number in range(3_000)
    ]
    last = "".join(helper.replace("prepare", f"f{number}") for number in (3_000, 3_001))
    write(generated="".join(functions) + last)
    write(train=train("from generated import f0", "f0"))
    assert codes("train.py") == expected
