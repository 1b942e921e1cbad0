"""Expressions stand for the functions, classes and values that Python would find."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

import pytest

from amplint.code.module import Function, Module
from amplint.code.project import Project
from amplint.values.objects import Objects

FILES = {
    "pyproject.toml": "",
    "package/__init__.py": "from .nets import Net as Exported\n",
    "package/nets.py": """
        import torch

        class Base(torch.nn.Module):
            def forward(self, x):
                return self.head(x)

            def head(self, x):
                return x

        class Net(Base):
            def __init__(self, width=8):
                super().__init__()
                self.width = width

        class Other:
            def __call__(self, x):
                return x
    """,
    "package/config.py": """
        from dataclasses import dataclass

        AMP = True

        @dataclass
        class Config:
            name: str
            dtype: str = "float16"
            amp = AMP

            @property
            def half(self):
                return self.dtype == "float16"
    """,
    "package/factory.py": """
        from .nets import Net, Other

        def build(wrap):
            net = Net()
            return net.cuda()

        def build_any(kind):
            if kind:
                return Net()
            return Other()

        def build_optional(kind):
            if not kind:
                return None
            return Net()
    """,
    "train.py": """
        import torch
        import package.nets
        from package import Exported, config, nets
        from package.config import AMP, Config
        from package.factory import build, build_any, build_optional
        from torch.nn.parallel import DistributedDataParallel as DDP

        class Trainer:
            def __init__(self, cfg: Config, net):
                self.cfg = cfg
                self.net = DDP(net)

            def step(self, x, flag):
                local = self.net.module
                either = local if flag else None
                for item in x:
                    other = item
                other.f()
                return either

        def main(options):
            model = build(options)
            trainer = Trainer(cfg=Config("a", dtype="bfloat16"), net=model)
            trainer.step(1, flag=True)
            options.amp = True
            options.amp
            Trainer(Config("b"), build(options)).step(2, False)

        PROBES = [Exported, nets.Net, package.nets.Base.head, AMP, config.AMP, build_any]
    """,
}


@pytest.fixture
def train(tmp_path: Path) -> tuple[Objects, Module]:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
    project = Project()
    source = (tmp_path / "train.py").read_text(encoding="utf-8")
    module = project.add("train.py", source, ast.parse(source), str(tmp_path / "train.py"))
    return Objects(project), module


def function(module: Module, qualname: str) -> Function:
    return next(item for item in module.functions if item.qualname == qualname)


def expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("Exported", "Net"),
        ("nets.Net", "Net"),
        ("package.nets.Base.head", "Base.head"),
        ("Trainer.step", "Trainer.step"),
        ("build", "build"),
        ("AMP", None),
        ("missing", None),
    ],
)
def test_symbol(train: tuple[Objects, Module], text: str, label: str | None) -> None:
    objects, module = train
    found = objects.symbol(expression(text), module.body)
    assert (found.qualname if found else None) == label


@pytest.mark.parametrize(
    ("where", "text", "name"),
    [
        ("main", "model", "Net"),
        ("main", "trainer", "Trainer"),
        ("main", "DDP(model)", "Net"),
        ("main", "build_any(1)", None),
        ("main", "build_optional(1)", "Net"),
        ("main", "options", None),
        ("Trainer.step", "self", "Trainer"),
        ("Trainer.step", "self.cfg", "Config"),
        ("Trainer.step", "self.net", "Net"),
        ("Trainer.step", "local", "Net"),
        ("Trainer.step", "either", "Net"),
        ("Trainer.step", "other", None),
    ],
)
def test_class_of(train: tuple[Objects, Module], where: str, text: str, name: str | None) -> None:
    objects, module = train
    found = objects.class_of(expression(text), function(module, where))
    assert (found.name if found else None) == name


@pytest.mark.parametrize(
    ("where", "text", "qualname"),
    [
        ("main", "model(x)", "Base.forward"),
        ("main", "trainer.step(x)", "Trainer.step"),
        ("main", "Trainer(cfg)", "Trainer.__init__"),
        ("main", "package.nets.Other()(x)", "Other.__call__"),
        ("main", "model.head(x)", "Base.head"),
        ("main", "torch.nn.Sequential(torch.nn.ReLU(), model)(x)", "Base.forward"),
        ("main", "torch.nn.Sequential(*[nets.Other() for _ in x])(x)", "Other.__call__"),
        ("main", "torch.nn.Sequential(model, nets.Other())(x)", None),
        ("main", "torch.nn.Sequential(model).head(x)", None),
        ("main", "torch.nn.Sequential(model, nets.Other())[1](x)", "Other.__call__"),
        ("main", "torch.nn.ModuleList([model, model])[0](x)", "Base.forward"),
        ("main", "torch.nn.ModuleList([model])(x)", None),
        ("main", "[nets.Other() for _ in x][0](x)", "Other.__call__"),
        ("main", "([model] + [nets.Net()])[0](x)", None),
        ("main", "([model] + [nets.Net()])[x](x)", "Base.forward"),
        ("Trainer.step", "self.net(x)", "Base.forward"),
        ("Trainer.step", "x(1)", None),
    ],
)
def test_callee(train: tuple[Objects, Module], where: str, text: str, qualname: str | None) -> None:
    objects, module = train
    call = expression(text)
    assert isinstance(call, ast.Call)
    found = objects.callee(call, function(module, where))
    assert (found.qualname if found else None) == qualname


@pytest.mark.parametrize(
    ("where", "text", "values"),
    [
        ("main", "AMP", ["True"]),
        ("main", "config.AMP", ["True"]),
        ("main", "options.amp", ["True"]),
        ("main", "options", None),
        ("main", "trainer.cfg", ["cfg"]),
        ("Trainer.step", "self.cfg.dtype", ["'float16'"]),
        ("Trainer.step", "self.cfg.name", [None]),
        ("Trainer.step", "self.cfg.half", ["self.dtype == 'float16'"]),
        ("Trainer.step", "other", ["item"]),
        ("Trainer.step", "item", [None]),
        ("Trainer.step", "self.cfg.missing", None),
    ],
)
def test_bindings(
    train: tuple[Objects, Module], where: str, text: str, values: list[str | None] | None
) -> None:
    objects, module = train
    found = objects.bindings(expression(text), function(module, where))
    texts = [ast.unparse(item.value) if item.value else None for item in found or ()]
    assert (texts if found is not None else None) == values


def test_arguments(train: tuple[Objects, Module]) -> None:
    objects, module = train
    passed = objects.arguments(function(module, "Trainer.step"), "flag")
    assert [ast.unparse(value) for value, _ in passed.given] == ["True", "False"]
    assert passed.omitted == ()
    config = objects.symbol(expression("nets.Net"), module.body)
    constructor = objects.method(config, "__init__")
    widths = objects.arguments(constructor, "width")
    assert widths.given == ()
    assert [site.function.qualname for site in widths.omitted] == ["build", "build_any"] + [
        "build_optional"
    ]


def test_is_module(train: tuple[Objects, Module]) -> None:
    objects, module = train
    assert objects.is_module(objects.symbol(expression("nets.Net"), module.body))
    assert not objects.is_module(objects.symbol(expression("nets.Other"), module.body))


EQUIPPED = """
class Learner:
    def __init__(self, opt):
        self.opt = opt
        self.rate = 1
        equip(self, opt)

    def ask(self):
        return self.helper, self.rate, self.limit


class Reader:
    def __init__(self):
        self.pages = 3
        mark(self)

    def ask(self):
        return self.limit


def equip(learner, opt):
    learner.helper = 2
    learner.rate = 5


def mark(reader):
    reader.limit = 7
"""


@pytest.mark.parametrize(
    ("owner", "field", "values"),
    [
        ("Learner", "helper", ["2"]),  # only a function that is handed the object stores it
        ("Learner", "rate", ["1", "5"]),
        ("Learner", "limit", []),  # stored on objects of another class
        ("Reader", "limit", ["7"]),
    ],
)
def test_what_functions_store_in_objects(
    owner: str, field: str, values: list[str], tmp_path: Path
) -> None:
    project = Project()
    path = str(tmp_path / "learner.py")
    module = project.add("learner.py", EQUIPPED, ast.parse(EQUIPPED), path)
    objects = Objects(project)
    ask = function(module, f"{owner}.ask")
    read = next(
        node
        for node in ast.walk(ask.node)
        if isinstance(node, ast.Attribute) and node.attr == field
    )
    found = objects.origins.of(read, ask)
    assert sorted(ast.unparse(item.expression) for item in found.origins) == values


def test_what_only_tests_call_others_may_call_too(tmp_path: Path) -> None:
    texts = {
        "pyproject.toml": "",
        "parts.py": "def shared(x): return x\ndef tested(x): return x\ndef helped(x): return x\n",
        "run.py": "from parts import shared\nshared(1)\n",
        "test_parts.py": (
            "from parts import shared, tested, helped\n"
            "def helper():\n    helped(2)\n"
            "def test_all():\n    shared(2)\n    tested(3)\n    helper()\n"
        ),
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    project, path = Project(), str(tmp_path / "parts.py")
    module = project.add("parts.py", texts["parts.py"], ast.parse(texts["parts.py"]), path)
    objects = Objects(project)
    found = {
        name: objects.origins.of(each.body[0].value, each).complete
        for name in ("shared", "tested", "helped")
        for each in [function(module, name)]
    }
    assert found == {"shared": True, "tested": False, "helped": False}


#: (name, files of a project around `parts/inner/steps.py` that calls of `fit` are looked for in, files that hold some)
HANDED_ON = (
    (
        "its own package",
        {"parts/inner/__init__.py": "from .steps import fit\n"},
        "parts.inner",
        True,
    ),
    (
        "the package above",
        {
            "parts/inner/__init__.py": "from .steps import fit\n",
            "parts/__init__.py": "from .inner import fit\n",
        },
        "parts",
        True,
    ),
    ("a star", {"parts/inner/__init__.py": "from .steps import *\n"}, "parts.inner", True),
    (
        "a package without it",
        {"parts/inner/__init__.py": "from .other import fit\n"},
        "parts.inner",
        False,
    ),
)


@pytest.mark.parametrize(
    ("files", "package", "seen"), [row[1:] for row in HANDED_ON], ids=[row[0] for row in HANDED_ON]
)
def test_calls_under_the_name_of_a_package(
    files: dict[str, str], package: str, seen: bool, tmp_path: Path
) -> None:
    source = "def fit(rate=1):\n    return rate\n"
    files = {
        "parts/__init__.py": "",
        "parts/inner/steps.py": source,
        "parts/inner/other.py": "def fit(rate=2):\n    return rate\n",
        "main.py": f"from {package} import fit\nfit(3)\n",
        **files,
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / ".git").mkdir()
    path = tmp_path / "parts" / "inner" / "steps.py"
    project = Project()
    module = project.add("steps.py", source, ast.parse(source), str(path))
    calls = Objects(project).calls_of(function(module, "fit"))
    assert [site.function.module.filename.endswith("main.py") for site in calls] == [True] * seen
