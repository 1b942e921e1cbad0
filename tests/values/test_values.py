"""The constants that expressions may be, and how each one gets there."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

import pytest

from amplint.amp.dtypes import DType, dotted_dtype, dtype_meant
from amplint.code.module import Function, Module
from amplint.code.project import Project
from amplint.values.objects import Objects
from amplint.values.provenance import Firmness
from amplint.values.values import Possible, Values

HALF, BF16, FLOAT = DType("float16"), DType("bfloat16"), DType("float32")
FIXED, DEFAULT, CHOICE = Firmness.FIXED, Firmness.DEFAULT, Firmness.CHOICE


def judge(tmp_path: Path, files: dict[str, str], *, main: str = "main.py") -> Possible:
    """The possible values of the argument of the only `ask(...)` call in the main file."""
    for name, text in {"pyproject.toml": "", **files}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    source = (tmp_path / main).read_text()
    project = Project()
    module = project.add(main, source, ast.parse(source), str(tmp_path / main))
    values = Values(Objects(project))
    call, function = _asked(module)
    return values.of(call.args[0], function)


def _asked(module: Module) -> tuple[ast.Call, Function]:
    (site,) = (site for site in module.calls if site.method == "ask")
    return site.node, site.function


def firmnesses(possible: Possible) -> dict[object, Firmness]:
    return {value.content: value.firmness for value in possible.values}


def words(possible: Possible) -> list[str]:
    (value,) = possible.values
    return [f"{step.module.filename}:{step.node.lineno} {step.words}" for step in value.steps]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("ask(-1e9)", -1e9),
        ("ask(2 ** 16)", 65536),
        ("ask(1 << 4)", 16),
        ("ask(not True)", False),
        ("ask('fp' + '16')", "fp16"),
        ("ask(f'float{16}')", "float16"),
        ("x = 3\nask(x)", 3),
        ("import torch\nask(torch.half)", HALF),
        ("from torch import float16 as h\nask(h)", HALF),
        ("import torch\nask(getattr(torch, 'half'))", HALF),
        ("import torch\nask({'fp16': torch.float16, 'no': None}['fp16'])", HALF),
        ("import torch\nask({'fp16': torch.float16}.get('fp32', torch.float32))", FLOAT),
        ("import torch\nask((torch.float16, torch.bfloat16)[1])", BF16),
        ("import torch\nT = dict(half=torch.float16)\nask(T['half'])", HALF),
        ("import torch\nask(torch.finfo(torch.float16).min)", -65504.0),
        ("import torch\nask(-torch.finfo(torch.half).max)", -65504.0),
        ("ask(float('-inf'))", float("-inf")),
        ("import numpy as np\nask(-np.inf)", float("-inf")),
        ("ask('a' if 1 == 1 else 'b')", "a"),
        ("ask(None or 'b')", "b"),
        ("ask('FP16'.lower())", "fp16"),
        ("ask('fp16' in ('fp16', 'bf16'))", True),
        ("x = 1\nx = 2\nask(x)\nx = 3", 2),
        ("class C:\n    dtype = 'float16'\nask(C.dtype)", "float16"),
        ("class C:\n    dtype = 'float16'\nask(C().dtype)", "float16"),
        ("import enum\nclass P(enum.Enum):\n    HALF = 'fp16'\nask(P.HALF.value)", "fp16"),
        ("def f():\n    return 'fp16'\nask(f())", "fp16"),
        ("def f(x):\n    if x == 1:\n        return 'a'\n    return 'b'\nask(f(1))", "a"),
        ("def f(x):\n    if x == 1:\n        return 'a'\n    return 'b'\nask(f(2))", "b"),
        ("def f(x='d'):\n    return x\nask(f())", "d"),
        ("a, b = 'x', 'y'\nask(b)", "y"),
        ("def f():\n    return 'x', 'y'\na, b = f()\nask(b)", "y"),
        ("c = {}\nc['dtype'] = 'fp16'\nask(c['dtype'])", "fp16"),
        ("c = {'dtype': 'fp32'}\nc['dtype'] = 'fp16'\nask(c.get('dtype'))", "fp16"),
        ("base = {'d': 1}\nask({**base, 'e': 2}['d'])", 1),
        (
            "from types import SimpleNamespace\nc = SimpleNamespace(d='fp16')\nask(c.d)",
            "fp16",
        ),
    ],
)
def test_one_value(tmp_path: Path, source: str, expected: object) -> None:
    possible = judge(tmp_path, {"main.py": source})
    assert possible.only() == expected
    assert firmnesses(possible) == {expected: FIXED}


@pytest.mark.parametrize(
    "source",
    [
        "ask(unknown)",
        "ask(unknown())",
        "def f(x):\n    ask(x)",
        "import torch\nask(getattr(torch, unknown))",
        "x = 1\nx += 1\nask(x)",
        "ask(2 ** 10000000)",
        "ask('x' * 1000000000)",
        "ask(1 / 0)",
        "x = x\nask(x)",
        "def f():\n    return f()\nask(f())",
        "for x in range(3):\n    ask(x)",
        "import config\nask(config.missing)",
        "import yaml\nask(yaml.safe_load(open('c.yaml'))['dtype'])",
    ],
)
def test_nothing_is_known(tmp_path: Path, source: str) -> None:
    possible = judge(tmp_path, {"main.py": source})
    assert not possible.values
    assert not possible.complete
    assert possible.only() is ...


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            "import torch\nask(torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.half)",
            {BF16: CHOICE, HALF: CHOICE},
        ),
        (
            "import torch\nd = torch.float32\nif unknown:\n    d = torch.half\nask(d)",
            {HALF: CHOICE, FLOAT: CHOICE},
        ),
        (
            (
                "import torch\nif u == 1:\n    d = torch.half\nelif u == 2:\n    d = torch.bfloat16\n"
                "else:\n    raise ValueError\nask(d)"
            ),
            {HALF: CHOICE, BF16: CHOICE},
        ),
        ("ask(unknown and False)", {False: CHOICE}),
        ("d = 'a'\nfor i in r:\n    ask(d)\n    d = 'b'", {"a": FIXED, "b": FIXED}),
        ("for i in r:\n    d = 'a'\n    ask(d)\n    d = 'b'", {"a": FIXED}),
        ("def f(x):\n    ask(x)\nf(1)\nf(2)", {1: FIXED, 2: FIXED}),
        ("def f(x):\n    x = x or 5\n    ask(x)\nf(None)", {5: FIXED}),
        ("x = 1\ndef f():\n    global x\n    x = 2\nask(x)", {1: FIXED, 2: CHOICE}),
        (
            "def g():\n    x = 1\n    def f():\n        nonlocal x\n        x = 2\n    ask(x)",
            {1: FIXED, 2: CHOICE},
        ),
        (
            (
                "x = 3\ndef g():\n    x = 1\n    def f():\n        def h():\n"
                "            nonlocal x\n            x = 2\n    ask(x)"
            ),
            {1: FIXED, 2: CHOICE},
        ),
    ],
)
def test_several_values(tmp_path: Path, source: str, expected: dict[object, Firmness]) -> None:
    possible = judge(tmp_path, {"main.py": source})
    assert firmnesses(possible) == expected
    assert possible.complete


ARGPARSE = """
    import argparse
    parser = argparse.ArgumentParser()
    parser.add_argument("--fp16", action="store_true")
    parser.add_argument("--no-amp", dest="amp", action="store_false")
    parser.add_argument("--dtype", default="float16", choices=["float16", "float32"])
    parser.add_argument("--any", type=str, default="float16")
    parser.add_argument("--bf16", type=str2bool, default=True)
    parser.add_argument("--both", action=argparse.BooleanOptionalAction, default=False)
    args = parser.parse_args()
"""


@pytest.mark.parametrize(
    ("name", "expected", "complete"),
    [
        ("fp16", {False: DEFAULT, True: CHOICE}, True),
        ("amp", {True: DEFAULT, False: CHOICE}, True),
        ("dtype", {"float16": DEFAULT, "float32": CHOICE}, True),
        ("any", {"float16": DEFAULT}, False),
        ("bf16", {True: DEFAULT, False: CHOICE}, True),
        ("both", {False: DEFAULT, True: CHOICE}, True),
        ("missing", {}, False),
    ],
)
def test_options_of_argparse(
    tmp_path: Path, name: str, expected: dict[object, Firmness], complete: bool
) -> None:
    source = textwrap.dedent(ARGPARSE)
    for question in (
        f"ask(args.{name})",
        f"def f(a):\n    ask(a.{name})\nf(args)",
        f"ask(vars(args)['{name}'])",
    ):
        possible = judge(tmp_path, {"main.py": source + question})
        assert firmnesses(possible) == expected
        assert possible.complete is complete


def test_a_flag_decides_with_its_default(tmp_path: Path) -> None:
    source = "import torch\nask(torch.float16 if args.fp16 else torch.float32)"
    possible = judge(tmp_path, {"main.py": textwrap.dedent(ARGPARSE) + source})
    assert firmnesses(possible) == {HALF: CHOICE, FLOAT: DEFAULT}


def test_a_namespace_that_is_written_to(tmp_path: Path) -> None:
    source = textwrap.dedent(ARGPARSE) + "args.fp16 = True\nask(args.fp16)"
    assert firmnesses(judge(tmp_path, {"main.py": source})) == {True: FIXED}


UPDATED = """
    import json

    def read(path):
        found = {{}}
        found.update(json.load(open(path)))
        return found

    def extend(found):
        found.update({{"lr": 4}})

    def main(path):
        settings = {start}
        {change}
        ask(settings{use})
        settings.update({{"lr": 3}})
"""


@pytest.mark.parametrize(
    ("start", "change", "use", "expected", "complete"),
    [
        ("{'lr': 1}", "pass", "['lr']", {1: FIXED}, True),
        ("read(path)", "pass", ".get('lr', 1)", {1: DEFAULT}, False),
        ("{'lr': 1}", "settings.update(read(path))", "['lr']", {1: DEFAULT}, False),
        ("{'lr': 1}", "settings.update({'lr': 2})", "['lr']", {1: DEFAULT, 2: DEFAULT}, True),
        ("{'lr': 1}", "extend(settings)", "['lr']", {1: DEFAULT, 4: DEFAULT}, True),
        ("{'lr': 1}", "settings.update({'eps': 2})", "['lr']", {1: FIXED}, True),
        (
            "{'lr': 1}",
            "other = read(path)\n        other.update(settings)",
            "['lr']",
            {1: FIXED},
            True,
        ),
    ],
)
def test_settings_that_are_updated(
    tmp_path: Path,
    start: str,
    change: str,
    use: str,
    expected: dict[object, Firmness],
    complete: bool,
) -> None:
    """What comes from a file may be under any key; what is put in later is not read yet."""
    source = UPDATED.format(start=start, change=change, use=use)
    possible = judge(tmp_path, {"main.py": source})
    assert (firmnesses(possible), possible.complete) == (expected, complete)


def test_settings_of_an_earlier_round(tmp_path: Path) -> None:
    source = """
        def main(rounds):
            settings = {}
            for later in rounds:
                ask(settings.get("lr", 1))
                settings.update(later)
    """
    possible = judge(tmp_path, {"main.py": source})
    assert (firmnesses(possible), possible.complete) == ({1: DEFAULT}, False)


def test_options_of_click(tmp_path: Path) -> None:
    source = """
        import click

        @click.command()
        @click.option("--fp16/--fp32", default=True)
        def main(fp16):
            ask(fp16)
    """
    possible = judge(tmp_path, {"main.py": source})
    assert firmnesses(possible) == {True: DEFAULT, False: CHOICE}


def test_dataclasses_filled_from_the_command_line(tmp_path: Path) -> None:
    config = """
        from dataclasses import dataclass, field

        @dataclass
        class Options:
            dtype: str = field(default="float16")
            fp16: bool = True
    """
    for made in (
        "import tyro\ncfg = tyro.cli(Options)",
        (
            "from transformers import HfArgumentParser\n"
            "cfg, other = HfArgumentParser((Options, dict)).parse_args_into_dataclasses()"
        ),
        (
            "from simple_parsing import ArgumentParser\nparser = ArgumentParser()\n"
            "parser.add_arguments(Options, dest='cfg')\ncfg = parser.parse_args().cfg"
        ),
    ):
        head = f"from config import Options\n{made}\n"
        possible = judge(tmp_path, {"config.py": config, "main.py": head + "ask(cfg.dtype)"})
        assert (firmnesses(possible), possible.complete) == ({"float16": DEFAULT}, False)
        possible = judge(tmp_path, {"config.py": config, "main.py": head + "ask(cfg.fp16)"})
        assert firmnesses(possible) == {True: DEFAULT, False: CHOICE}
        assert possible.complete


MODEL = """
    import torch
    from dataclasses import dataclass

    @dataclass
    class ModelConfig:
        name: str = "tiny"
        dtype: str = "float16"

    class Model(torch.nn.Module):
        def __init__(self, width, config: ModelConfig):
            dtype = getattr(torch, config.dtype)
            ask(dtype)
"""


def test_a_default_in_another_file_with_its_path(tmp_path: Path) -> None:
    build = "from model import Model, ModelConfig\nmodel = Model(8, ModelConfig(name='x'))\n"
    possible = judge(tmp_path, {"build.py": build, "model.py": MODEL}, main="model.py")
    assert firmnesses(possible) == {HALF: FIXED}
    value = possible.values[0]
    assert value.dtype == "float16"
    assert ast.unparse(value.node) == "'float16'"


def test_the_path_of_a_config_default(tmp_path: Path) -> None:
    model = MODEL.replace("ask(dtype)", "ask(config.dtype)")
    build = "from model import Model, ModelConfig\nmodel = Model(8, ModelConfig(name='x'))\n"
    possible = judge(tmp_path, {"build.py": build, "model.py": model}, main="model.py")
    assert [line.partition(" ")[2] for line in words(possible)] == [
        "`ModelConfig.dtype` is `'float16'` by default",
        "`ModelConfig(...)` leaves `dtype` at its default",
        "passed as `config` of `Model`",
    ]


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ("ModelConfig('x', 'float32')", {"float32": FIXED}),
        ("ModelConfig(dtype='float32')", {"float32": FIXED}),
        ("ModelConfig(**{'dtype': 'float32'})", {"float32": FIXED}),
        ("dataclasses.replace(ModelConfig(), dtype='float32')", {"float32": FIXED}),
        ("copy.deepcopy(ModelConfig('x'))", {"float16": FIXED}),
    ],
)
def test_constructor_calls_that_flow_there(
    tmp_path: Path, made: str, expected: dict[object, Firmness]
) -> None:
    model = MODEL.replace("ask(dtype)", "ask(config.dtype)")
    build = f"""
import copy, dataclasses
from model import Model, ModelConfig

def config():
    return {made}

unrelated = ModelConfig(dtype="bfloat16")
model = Model(8, config())
"""
    possible = judge(tmp_path, {"build.py": build, "model.py": model}, main="model.py")
    assert firmnesses(possible) == expected


def test_a_config_that_nobody_makes_stands_by_default(tmp_path: Path) -> None:
    model = MODEL.replace("ask(dtype)", "ask(config.dtype)")
    possible = judge(tmp_path, {"model.py": model}, main="model.py")
    assert firmnesses(possible) == {"float16": DEFAULT}
    assert not possible.complete


def test_instance_attributes_through_init(tmp_path: Path) -> None:
    source = """
        import torch

        class Trainer:
            def __init__(self, precision="fp16", amp=None):
                self.precision = precision
                self.table = {"fp16": torch.float16, "bf16": torch.bfloat16}

            @property
            def dtype(self):
                return self.table[self.precision]

            def run(self):
                ask(self.dtype)

        Trainer("bf16").run()
    """
    assert firmnesses(judge(tmp_path, {"main.py": source})) == {BF16: CHOICE}
    source = source.replace("ask(self.dtype)", "pass").replace(
        'Trainer("bf16").run()', 'ask(Trainer("bf16").dtype)'
    )
    assert firmnesses(judge(tmp_path, {"main.py": source})) == {BF16: FIXED}


def test_constants_of_other_modules(tmp_path: Path) -> None:
    files = {"settings.py": "AMP = True\nfrom other import DTYPE\n", "other.py": "DTYPE = 'bf16'"}
    for source in (
        "import settings\nask(settings.DTYPE)",
        "from settings import DTYPE\nask(DTYPE)",
        "import settings as s\nask(s.DTYPE)",
    ):
        assert judge(tmp_path, {**files, "main.py": source}).only() == "bf16"


def test_parameters_take_what_other_files_pass(tmp_path: Path) -> None:
    files = {
        "lib.py": "def train(dtype='fp16', amp=True):\n    ask(dtype)\n",
        "run.py": "from lib import train\ntrain('bf16')\n",
        "again.py": "import lib\nlib.train(amp=False)\n",
    }
    possible = judge(tmp_path, files, main="lib.py")
    assert firmnesses(possible) == {"bf16": FIXED, "fp16": FIXED}
    assert possible.complete


@pytest.mark.parametrize(
    "read",
    [
        "import json\ncfg = json.load(open('conf/a.json'))",
        "import json\nwith open('conf/a.json') as f:\n    cfg = json.load(f)",
        "import json, pathlib\ncfg = json.loads(pathlib.Path('conf/a.json').read_text())",
        "import tomllib\nwith open('conf/a.toml', 'rb') as f:\n    cfg = tomllib.load(f)",
        "import yaml\nwith open('conf/a.yaml') as f:\n    cfg = yaml.safe_load(f)",
        "import yaml\ncfg = yaml.load(open('conf/a.yaml'), Loader=yaml.FullLoader)",
    ],
)
def test_data_files(tmp_path: Path, read: str) -> None:
    files = {
        "conf/a.json": '{"train": {"dtype": "fp16"}}',
        "conf/a.toml": '[train]\ndtype = "fp16"\n',
        "conf/a.yaml": "train:\n  dtype: fp16\n",
        "main.py": f"{read}\nask(cfg['train']['dtype'])",
    }
    assert judge(tmp_path, files).only() == "fp16"
    files["main.py"] = f"{read}\nask(cfg['other'])"
    assert not judge(tmp_path, files).values


@pytest.mark.parametrize(
    "made",
    [
        "SimpleNamespace(**data['train'])",
        "Munch.fromDict(data).train",
        "munchify(data).train",
        "OmegaConf.load('conf/a.yaml').train",
        "OmegaConf.create(data).train",
        "Settings(data).train",
        "Settings(**data).train",
        "Settings({k: v for k, v in data.items()}).train",
        "spread(data).train",
        "unless_leaf(data).train",
    ],
)
def test_data_that_attributes_are_read_of(tmp_path: Path, made: str) -> None:
    header = """import yaml
from types import SimpleNamespace
from munch import Munch, munchify
from omegaconf import OmegaConf

class Settings(dict):
    def __getattr__(self, name):
        return self[name]

def spread(tree):
    return SimpleNamespace(**{k: spread(v) for k, v in tree.items()})

def unless_leaf(tree):
    if not isinstance(tree, dict):
        return tree
    return SimpleNamespace(**{k: unless_leaf(v) for k, v in tree.items()})

data = yaml.safe_load(open('conf/a.yaml'))
"""
    files = {
        "conf/a.yaml": "train:\n  dtype: fp16\n  other: ${train.dtype}\n",
        "main.py": f"{header}ask({made}.dtype)",
    }
    assert judge(tmp_path, files).only() == "fp16"
    for part in ("missing", "other"):
        files["main.py"] = f"{header}ask({made}.{part})"
        assert not judge(tmp_path, files).values


def test_whether_data_is_a_dict(tmp_path: Path) -> None:
    files = {"a.yaml": "train: {half: true}\nrate: 0.1\n"}
    for asked, answers in (
        ("data", {True: FIXED}),
        ("data['train']", {True: FIXED}),
        ("data['rate']", {False: FIXED}),
        ("unknown", {True: CHOICE, False: CHOICE}),
    ):
        read = "import yaml\ndata = yaml.safe_load(open('a.yaml'))"
        files["main.py"] = f"{read}\nask(isinstance({asked}, dict))"
        assert firmnesses(judge(tmp_path, files)) == answers


@pytest.mark.parametrize(
    "made",
    [
        "class Settings(dict):\n    pass\nask(Settings(data).train)",  # an AttributeError
        (
            "class Settings(dict):\n    def __getattr__(self, name):\n        return self[name]\n"
            "    def train(self):\n        pass\nask(Settings(data).train)"
        ),
        "ask({k: v for k, v in data.items() if k != 'train'}['train'])",
        "ask({k: f(v) for k, v in data.items()}['train'])",
        "ask({v: k for k, v in data.items()}['train'])",
    ],
)
def test_data_that_is_changed_on_the_way(tmp_path: Path, made: str) -> None:
    files = {
        "a.yaml": "train: fp16\n",
        "main.py": f"import yaml\ndata = yaml.safe_load(open('a.yaml'))\n{made}",
    }
    assert not judge(tmp_path, files).values


def test_a_data_file_that_is_the_default_of_an_option(tmp_path: Path) -> None:
    source = """import argparse, yaml
parser = argparse.ArgumentParser()
parser.add_argument("--config", default="a.yaml")
with open(parser.parse_args().config) as file:
    ask(yaml.safe_load(file)["dtype"])
"""
    possible = judge(tmp_path, {"a.yaml": "dtype: fp16\n", "main.py": source})
    assert firmnesses(possible) == {"fp16": DEFAULT}
    assert not possible.complete
    source = source.replace('default="a.yaml"', "required=True")
    assert not judge(tmp_path, {"main.py": source}).values


def test_data_files_outside_of_the_project_are_not_read(tmp_path: Path) -> None:
    """Neither by a path nor through a link."""
    project = tmp_path / "project"
    project.mkdir()
    outside = tmp_path / "a.json"
    outside.write_text('{"dtype": "fp16"}')
    (project / "link.json").symlink_to(outside)
    (project / "near.json").symlink_to("inner.json")
    for path in (str(outside), "../a.json", "sub/../../a.json", "link.json", "near.json"):
        files = {
            "inner.json": '{"dtype": "bf16"}',
            "main.py": f"import json\nask(json.load(open({path!r}))['dtype'])",
        }
        contents = [value.content for value in judge(project, files).values]
        assert contents == (["bf16"] if path == "near.json" else []), path


@pytest.mark.parametrize("text", ["a: [", "a: !!python/name:os.system", "a: {b: *c}", "- 1"])
def test_yaml_that_is_no_plain_data_is_unknown(tmp_path: Path, text: str) -> None:
    files = {"a.yaml": text, "main.py": "import yaml\nask(yaml.unsafe_load(open('a.yaml'))['a'])"}
    assert not judge(tmp_path, files).values


def test_data_files_are_recorded_lookups(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "c.json").write_text('{"dtype": "fp16"}')
    source = "import json\nask(json.load(open('c.json'))['dtype'])"
    project = Project()
    module = project.add("main.py", source, ast.parse(source), str(tmp_path / "main.py"))
    call, function = _asked(module)
    assert Values(Objects(project)).of(call.args[0], function).only() == "fp16"
    path = str(tmp_path / "c.json")
    assert ("file", path) in project.lookups.answers
    assert ("content", path) in project.lookups.answers


def test_possible_answers(tmp_path: Path) -> None:
    source = "import torch\nask(torch.half if unknown else torch.bfloat16)"
    possible = judge(tmp_path, {"main.py": source})
    assert possible.always(lambda content: content in (HALF, BF16))
    assert [value.content for value in possible.with_dtype("float16")] == [HALF]
    assert possible.by_default() == ()


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (HALF, "float16"),
        ("fp16", "float16"),
        ("torch.half", "float16"),
        ("BF16", "bfloat16"),
        ("float", "float32"),
        ("auto", None),
        (16, None),
        (None, None),
    ],
)
def test_dtype_meant(content: object, name: str | None) -> None:
    assert dtype_meant(content) == name


def test_dotted_dtypes_are_those_of_torch() -> None:
    torch = pytest.importorskip("torch")
    for spelled in ("half", "float16", "float", "double", "bfloat16", "long", "bool", "short"):
        found = dotted_dtype(f"torch.{spelled}")
        assert found is not None
        assert str(found) == str(getattr(torch, spelled))
    assert dotted_dtype("torch.cuda.HalfTensor") == HALF
    assert dotted_dtype("torch.nn.half") is None


def test_conditions_of_a_value(tmp_path: Path) -> None:
    source = """
        import torch
        if kind == "fp32":
            dtype = torch.float32
        elif kind == "fp16":
            dtype = torch.float16
        else:
            raise ValueError(kind)
        table = {"a": torch.bfloat16, "b": dtype}
        ask(table[name])
    """
    possible = judge(tmp_path, {"main.py": source})
    (value,) = possible.with_dtype("float16")
    tests = {(ast.unparse(item.test), item.side) for item in value.origin.conditions}
    assert tests == {
        ("kind == 'fp32'", False),
        ("kind == 'fp16'", True),
        ("name == 'b'", True),
    }


def test_none_has_no_attribute(tmp_path: Path) -> None:
    """What is read from an object that may be None is read where it is one."""
    source = """
        class Settings:
            windows = 1

        class Run:
            def __init__(self, given):
                self.settings = None
                if given:
                    self.settings = Settings()

            def fit(self):
                ask(self.settings.windows)
    """
    possible = judge(tmp_path, {"main.py": source})
    assert possible.complete
    assert [value.content for value in possible.values] == [1]
