"""Context expressions stand for the autocasts that Python would enter, and regions hold what
runs inside them."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

import pytest

from amplint.code.module import Function, Module
from amplint.code.project import Project
from amplint.regions.regions import Regions
from amplint.values.objects import Objects
from amplint.values.values import Values

FILES = {
    "pyproject.toml": "",
    "contexts.py": """
        from contextlib import contextmanager, nullcontext
        from functools import partial
        import torch

        DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
        SHARED = torch.autocast("cuda", dtype=torch.bfloat16)

        def chosen(flag):
            return torch.autocast(DEVICE, dtype=torch.float16) if flag else nullcontext()

        @contextmanager
        def managed(flag):
            with torch.no_grad(), torch.autocast("xpu", enabled=flag):
                yield

        def maker():
            return partial(torch.autocast, "cuda", dtype=torch.half)

        class Precision:
            @property
            def context(self):
                return torch.autocast("cuda", enabled=False)

            def enter(self):
                return torch.autocast("mps")
    """,
    "use.py": """
        import torch
        from contextlib import nullcontext, ExitStack
        from functools import partial
        from torch.cuda.amp import autocast
        import contexts
        from contexts import DEVICE, Precision, chosen, maker

        def names(flag, model, options):
            device = torch.device("cuda:1")
            local = autocast(flag)
            precision = Precision()
            make = lambda: torch.autocast("cpu")
            either = torch.autocast if flag else nullcontext
            made = maker()
            use(autocast)
            {expression}

        def use(passed):
            with passed():
                pass
    """,
}


def regions_in(around: Project) -> Regions:
    objects = Objects(around)
    return Regions(objects, Values(objects))


@pytest.fixture
def project(tmp_path: Path):
    def load(expression: str) -> tuple[Regions, Module, Function, ast.expr]:
        for name, text in FILES.items():
            if name == "use.py":
                text = text.format(expression=expression)
            (tmp_path / name).write_text(textwrap.dedent(text))
        source = (tmp_path / "use.py").read_text()
        around = Project(str(tmp_path))
        module = around.add("use.py", source, ast.parse(source), str(tmp_path / "use.py"))
        function = next(item for item in module.functions if item.name == "names")
        last = function.body[-1]
        assert isinstance(last, ast.Expr)
        return regions_in(around), module, function, last.value

    return load


def sets(values: frozenset[object] | None) -> list[object] | None:
    return None if values is None else sorted(values, key=str)


CASES = {
    "autocast()": [(["cuda"], ["float16"], True)],
    "autocast(False)": [(["cuda"], ["float16"], False)],
    "torch.autocast(device.type, torch.bfloat16)": [(["cuda"], ["bfloat16"], True)],
    "torch.autocast(DEVICE)": [(["cpu", "cuda"], ["bfloat16", "float16"], True)],
    "torch.autocast(options.device)": [(None, None, True)],
    "torch.autocast('cuda', dtype=options.dtype)": [(["cuda"], None, True)],
    "local": [(["cuda"], ["float16"], None)],
    "contexts.SHARED": [(["cuda"], ["bfloat16"], True)],
    "chosen(flag)": [(["cpu", "cuda"], ["float16"], True), None],
    "contexts.managed(True)": [(["xpu"], ["float16"], True)],
    "precision.context": [(["cuda"], ["float16"], False)],
    "precision.enter()": [(["mps"], ["float16"], True)],
    "make()": [(["cpu"], ["bfloat16"], True)],
    "made()": [(["cuda"], ["float16"], True)],
    "either('cuda')": [(["cuda"], ["float16"], True), None],
    "model.accelerator.autocast()": [(None, None, None)],
    "nullcontext()": [None],
    "torch.no_grad()": [None],
    "model": [None],
}


@pytest.mark.parametrize(("expression", "expected"), CASES.items(), ids=CASES)
def test_context_expressions(project, expression: str, expected: list) -> None:
    regions, _, function, node = project(expression)
    found = regions.contexts.alternatives(node, function)
    assert [
        None if cast is None else (sets(cast.devices), sets(cast.dtypes), cast.enabled)
        for cast in found
    ] == expected


def test_a_parameter_is_what_callers_pass(project) -> None:
    regions, module, _, _ = project("None")
    use = next(item for item in module.functions if item.name == "use")
    (region,) = regions.of(use)
    assert region.cast.devices == {"cuda"}


BODIES = {
    "block": ("with autocast():\n    a()\nb()", {"a"}),
    "several items": ("with autocast(), a():\n    b()", {"a", "b"}),
    "off inside": (
        "with autocast():\n    a()\n    with autocast(enabled=False):\n        b()",
        {"a"},
    ),
    "off, then on": (
        """
with autocast():
    with autocast(enabled=False):
        a()
        with autocast():
            b()
""",
        {"b"},
    ),
    "other device off": (
        "with autocast():\n    with torch.autocast('cpu', enabled=False):\n        b()",
        {"b"},
    ),
    "by hand": (
        "c = autocast()\nc.__enter__()\na()\nc.__exit__(None, None, None)\nb()",
        {"a"},
    ),
    "stack": (
        "with ExitStack() as stack:\n    a()\n    stack.enter_context(autocast())\n    b()\nc()",
        {"b"},
    ),
    "lambda": ("with autocast():\n    f = lambda: a()\n    b()", {"b"}),
    "decorator": ("@autocast()\ndef inner():\n    a()\ninner()\nb()", {"a"}),
    "through a function": (
        """
def inner():
    a()
    with autocast(enabled=False):
        b()
with autocast():
    inner()
""",
        {"a", "inner"},
    ),
    "a generator runs later": (
        "def inner():\n    a()\n    yield\nwith autocast():\n    inner()",
        {"inner"},
    ),
}


@pytest.mark.parametrize(("body", "expected"), BODIES.values(), ids=BODIES)
def test_what_runs_inside(body: str, expected: set[str]) -> None:
    source = (
        "import torch\nfrom contextlib import ExitStack\nfrom torch.cuda.amp import autocast\n"
        + body
    )
    around = Project()
    module = around.add("example.py", source, ast.parse(source), "")
    regions = regions_in(around)
    found = {
        ast.unparse(item.call.func)
        for function in module.functions
        for region in regions.of(function)
        for item in regions.inside(region)
    }
    quiet = {"autocast", "torch.autocast", "stack.enter_context", "ExitStack"}
    assert {name for name in found if "__" not in name} - quiet == expected
