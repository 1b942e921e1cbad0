"""The recipes of `scripts/mutators.py` on a small loop, and the count of `scripts/mutate.py`."""

from __future__ import annotations

import ast
import difflib
import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"

LOOP = """\
import torch

def train(model, loader, optimizer):
    scaler = torch.amp.GradScaler("cpu")
    for images, labels in loader:  # größer
        optimizer.zero_grad()
        loss = model(images, labels)
        scaler.scale(loss / 2).backward()
        scaler.step(
            optimizer
        )
        scaler.update()
"""

CLIPPED = """\
import torch

def train(model, loader, optimizer):
    scaler = torch.amp.GradScaler("cpu")
    for images, labels in loader:
        optimizer.zero_grad()
        scaler.scale(model(images, labels)).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
"""

ONCE = """\
import torch

model, optimizer, images = prepare()
scaler = torch.amp.GradScaler("cpu")
scaler.scale(model(images)).backward()
scaler.step(optimizer)
scaler.update()
"""

STEP = ["        scaler.step(", "            optimizer", "        )"]
UPDATE = "        scaler.update()"
UNSCALE = "        scaler.unscale_(optimizer)"

# Recipe, text, lines that go, lines that come instead.
EXPECTED = [
    ("duplicate-step", LOOP, ["        )"], ["        ); scaler.step(optimizer)"]),
    ("duplicate-update", LOOP, [UPDATE], [UPDATE + "; scaler.update()"]),
    (
        "update-before-step",
        LOOP,
        ["        scaler.step(", UPDATE],
        ["        scaler.update(); scaler.step(", "        pass"],
    ),
    ("plain-step", LOOP, STEP, ["        optimizer.step()"]),
    ("duplicate-unscale", CLIPPED, [UNSCALE], [UNSCALE + "; scaler.unscale_(optimizer)"]),
    ("delete-unscale", CLIPPED, [UNSCALE], ["        pass"]),
    (
        "zero-grad-before-step",
        LOOP,
        ["        scaler.step("],
        ["        optimizer.zero_grad(); scaler.step("],
    ),
    (
        "plain-backward",
        LOOP,
        ["        scaler.scale(loss / 2).backward()"],
        ["        (loss / 2).backward()"],
    ),
    ("delete-update", LOOP, [UPDATE], ["        pass"]),
    ("delete-backward", LOOP, ["        scaler.scale(loss / 2).backward()"], ["        pass"]),
    (
        "guard-step",
        LOOP,
        ["        scaler.step("],
        ["        if some_new_flag: scaler.step("],
    ),
]

# What torch does with the mutant; None: nothing, but other weights come out.
DAMAGE = {
    "duplicate-step": RuntimeError,
    "duplicate-update": AssertionError,
    "update-before-step": AssertionError,
    "plain-step": AssertionError,
    "duplicate-unscale": RuntimeError,
    "delete-unscale": None,
    "zero-grad-before-step": AssertionError,
    "plain-backward": AssertionError,
    "delete-update": RuntimeError,
    "delete-backward": AssertionError,
    "guard-step": AssertionError,
}

# Recipe, text, what is replaced in it, by what: correct code that the recipe would not break.
HARMLESS = [
    pytest.param("guard-step", CLIPPED, "", "", id="a batch may be dropped after unscale_"),
    pytest.param("zero-grad-before-step", CLIPPED, "", "", id="unscale_ recorded a check"),
    pytest.param("delete-unscale", LOOP, "", "", id="nothing to delete"),
    pytest.param(
        "delete-unscale",
        CLIPPED,
        "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
        "pass",
        id="no clip follows",
    ),
    pytest.param("delete-unscale", CLIPPED, "1.0", "None", id="the clip only measures"),
    pytest.param(
        "delete-unscale", CLIPPED, "1.0", "1.0 * scaler.get_scale()", id="scaled threshold"
    ),
    pytest.param(
        "delete-update", LOOP, "optimizer.zero_grad()", UPDATE.strip(), id="another update"
    ),
    pytest.param("delete-update", ONCE, "", "", id="a script that steps once"),
    pytest.param(
        "delete-backward",
        LOOP,
        "optimizer.zero_grad()",
        "scaler.scale(model.penalty()).backward()",
        id="another backward feeds the step",
    ),
    pytest.param("plain-step", LOOP, "# größer", "# SparseAdam", id="sparse gradients"),
    pytest.param("duplicate-step", LOOP, "GradScaler", "StandardScaler", id="no GradScaler"),
    pytest.param("duplicate-step", LOOP, "optimizer.zero_grad()", "continue", id="dead code"),
    pytest.param(
        "duplicate-update", LOOP, "scaler.update()", "scaler.update(2.0)", id="explicit scale"
    ),
]

# Reports AMP104 where one line steps twice.
STAND_IN = r"""
import json, sys
from pathlib import Path

findings = [
    {"code": "AMP104", "severity": "error", "message": "m", "filename": str(file),
     "location": {"row": row}, "path": []}
    for root in sys.argv if Path(root).is_dir()
    for file in Path(root).rglob("*.py")
    for row, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1)
    if line.endswith("; scaler.step(optimizer)")
]
print(json.dumps({"version": 1, "findings": findings, "errors": [], "summary": {}}))
"""

# The same, of single files, where `beside.py` lies beside them.
BESIDE_STAND_IN = STAND_IN.replace(
    """for root in sys.argv if Path(root).is_dir()
    for file in Path(root).rglob("*.py")""",
    """for file in map(Path, sys.argv[1:])
    if file.suffix == ".py" and (file.parent / "beside.py").exists()""",
)


@pytest.fixture
def mutate(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module("mutate")


def mutants(mutate: ModuleType, recipe: str, text: str) -> list[str]:
    """The texts that one recipe makes of a text."""
    recipes = [one for one in mutate.RECIPES if one.name == recipe]
    source = mutate.Source(text)
    return [mutant.text for mutant in mutate.make_mutants(Path("a.py"), source, recipes)]


def trained_weights(text: str) -> list[float]:
    """Run a loop for two batches on a model that returns its loss."""
    torch = pytest.importorskip("torch")

    class Model(torch.nn.Linear):
        def forward(self, images: object, labels: object) -> object:
            return (super().forward(images) - labels).square().mean()

    torch.manual_seed(0)
    model = Model(2, 1)
    batch = (torch.ones(3, 2), torch.full((3, 1), 9.0))
    space: dict = {"some_new_flag": False}
    exec(compile(text, "loop.py", "exec"), space)  # noqa: S102 - the text is above
    space["train"](model, [batch, batch], torch.optim.SGD(model.parameters(), lr=0.01))
    return model.weight.flatten().tolist()


def changed(before: str, after: str) -> tuple[list[str], list[str]]:
    """The lines that went and the lines that came."""
    diff = list(difflib.ndiff(before.splitlines(), after.splitlines()))
    gone = [line[2:] for line in diff if line.startswith("- ")]
    come = [line[2:] for line in diff if line.startswith("+ ")]
    return gone, come


@pytest.mark.parametrize(
    ("recipe", "text", "gone", "come"), EXPECTED, ids=[case[0] for case in EXPECTED]
)
def test_recipe_breaks_exactly_one_statement(
    mutate: ModuleType, recipe: str, text: str, gone: list[str], come: list[str]
) -> None:
    (mutant,) = mutants(mutate, recipe, text)
    ast.parse(mutant)
    assert changed(text, mutant) == (gone, come)


@pytest.mark.parametrize(("recipe", "text"), [case[:2] for case in EXPECTED])
def test_mutant_fails_in_torch(mutate: ModuleType, recipe: str, text: str) -> None:
    (mutant,) = mutants(mutate, recipe, text)
    damage = DAMAGE[recipe]
    if damage is None:
        assert trained_weights(mutant) != trained_weights(text)
        return
    with pytest.raises(damage):
        trained_weights(mutant)


def test_every_recipe_is_tested(mutate: ModuleType) -> None:
    assert [case[0] for case in EXPECTED] == [recipe.name for recipe in mutate.RECIPES]


@pytest.mark.parametrize(("recipe", "text", "old", "new"), HARMLESS)
def test_recipe_leaves_out_what_would_be_no_bug(
    mutate: ModuleType, recipe: str, text: str, old: str, new: str
) -> None:
    assert old in text
    assert mutants(mutate, recipe, text.replace(old, new, 1)) == []


@pytest.mark.parametrize(
    ("recipe", "status", "row"),
    [
        ("duplicate-step", 0, "duplicate-step             1/1     100 %  AMP104 1"),
        ("delete-update", 1, "delete-update              0/1       0 %"),
    ],
)
def test_table_and_exit_status(
    mutate: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    recipe: str,
    status: int,
    row: str,
) -> None:
    stand_in = tmp_path / "stand_in.py"
    stand_in.write_text(STAND_IN)
    monkeypatch.setattr("corpus.AMPLINT", (sys.executable, str(stand_in)))
    code = tmp_path / "code"
    code.mkdir()
    (code / "good.py").write_text(LOOP, encoding="utf-8")
    (code / "same.py").write_text(LOOP, encoding="utf-8")
    (code / "bad.py").write_text(mutants(mutate, "duplicate-step", LOOP)[0], encoding="utf-8")

    assert mutate.main([str(code), "--recipe", recipe, "--misses"]) == status
    output = capsys.readouterr().out.splitlines()
    assert output[0] == row
    assert output[-2:] == ["unchanged files with findings: 1", "  bad.py:11 AMP104"]
    assert ("  good.py:12 delete-update" in output) == (recipe == "delete-update")


def test_a_folder_without_loops_is_no_success(mutate: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text("import torch\n")
    assert mutate.main([str(tmp_path)]) == 2


def test_in_project_a_mutant_is_checked_beside_the_files_of_its_project(
    mutate: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stand_in = tmp_path / "stand_in.py"
    stand_in.write_text(BESIDE_STAND_IN)
    monkeypatch.setattr("corpus.AMPLINT", (sys.executable, str(stand_in)))
    for project in ("one", "two"):
        (tmp_path / "code" / project).mkdir(parents=True)
        for name in ("first.py", "second.py"):
            text = LOOP.replace("größer", project + name)
            (tmp_path / "code" / project / name).write_text(text, encoding="utf-8")
    (tmp_path / "code" / "one" / "beside.py").touch()
    before = {file: file.read_bytes() for file in (tmp_path / "code").rglob("*.py")}

    options = ["--recipe", "duplicate-step", "--in-project", "--per-project", "1", "--misses"]
    assert mutate.main([str(tmp_path / "code"), *options]) == 1
    output = capsys.readouterr().out.splitlines()
    assert output[0] == "duplicate-step             1/2      50 %  AMP104 1"
    assert "  two/first.py:9 duplicate-step" in output
    assert {file: file.read_bytes() for file in (tmp_path / "code").rglob("*.py")} == before
