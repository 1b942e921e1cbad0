"""The fix of AMP801, and what torch says about it: nothing changes but the warning."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from amplint.code.index import forget
from amplint.config import Settings
from amplint.fixing.fixer import FixTask, fix
from amplint.inspection import Task
from amplint.selection import Selection
from amplint.source.reading import decode

EVERY = Selection(Settings()).codes


def fixed(source: str, target: str = "2.4", path: str = "", *, unsafe: bool = False) -> str:
    """The text after all safe fixes, or after all; a run of its own."""
    forget()
    data = source.encode()
    task = Task(decode(data, path or "train.py"), EVERY, path=path, target_torch=target or None)
    return fix(FixTask(task, EVERY, unsafe, data)).text


CALLS = {
    "C.autocast()": 'N.autocast("cuda")',
    "C.autocast(use_amp)": 'N.autocast("cuda", enabled=use_amp)',
    "C.autocast(not (use_amp))": 'N.autocast("cuda", enabled=not (use_amp))',
    "C.autocast((use_amp), dtype)": 'N.autocast("cuda", enabled=(use_amp), dtype=dtype)',
    "C.autocast(True, dtype, False)": (
        'N.autocast("cuda", enabled=True, dtype=dtype, cache_enabled=False)'
    ),
    "C.autocast(use_amp := True)": 'N.autocast("cuda", enabled=(use_amp := True))',
    "(C.autocast)()": '(N.autocast)("cuda")',
    "C.autocast(enabled=use_amp,)": 'N.autocast("cuda", enabled=use_amp,)',
    "C.autocast(**options)": 'N.autocast("cuda", **options)',
    "C.autocast(\n    use_amp,  # why\n)": 'N.autocast(\n    "cuda",\n    enabled=use_amp,  # why\n)',
    "C.autocast(  # why\n)": 'N.autocast("cuda"  # why\n)',
    "torch.cpu.amp.autocast()": 'N.autocast("cpu")',
    "C.autocast_mode.autocast()": 'N.autocast("cuda")',
    "C.GradScaler()": 'N.GradScaler("cuda")',
    "C.GradScaler(1024.0)": 'N.GradScaler("cuda", 1024.0)',
    "C.GradScaler(1024.0, 2.0, enabled=use_amp)": (
        'N.GradScaler("cuda", 1024.0, 2.0, enabled=use_amp)'
    ),
    "C.GradScaler(**options)": 'N.GradScaler("cuda", **options)',
    "C.GradScaler(*options)": 'N.GradScaler("cuda", *options)',
    "C.custom_fwd(f)": 'N.custom_fwd(f, device_type="cuda")',
    "C.custom_fwd(f,)": 'N.custom_fwd(f, device_type="cuda",)',
    "C.custom_fwd(f, cast_inputs=dtype)": 'N.custom_fwd(f, device_type="cuda", cast_inputs=dtype)',
    "C.custom_fwd(cast_inputs=dtype)(f)": (
        'N.custom_fwd(device_type="cuda", cast_inputs=dtype)(f)'
    ),
    "C.custom_bwd(f)": 'N.custom_bwd(f, device_type="cuda")',
    "partial(C.autocast, enabled=use_amp)": 'partial(N.autocast, "cuda", enabled=use_amp)',
    "partial(C.autocast, use_amp)": 'partial(N.autocast, "cuda", enabled=use_amp)',
    "partial(C.GradScaler)": 'partial(N.GradScaler, "cuda")',
    "isinstance(x, C.GradScaler)": "isinstance(x, N.GradScaler)",
    "isinstance(x, (int, C.GradScaler))": "isinstance(x, (int, N.GradScaler))",
}
HEAD = "import torch\nfrom functools import partial\n"


def spelled(text: str) -> str:
    return text.replace("C.", "torch.cuda.amp.").replace("N.", "torch.amp.")


@pytest.mark.parametrize(("before", "after"), CALLS.items())
def test_calls(before: str, after: str) -> None:
    text = HEAD + "x = {}\n"
    assert fixed(text.format(spelled(before))) == text.format(spelled(after))


@pytest.mark.parametrize(
    "call",
    [
        "C.autocast(*options)",
        "C.autocast('cuda')",
        "C.autocast(device_type='cuda')",
        "C.autocast(True, enabled=True)",
        "C.GradScaler(False)",
        "C.GradScaler(use_amp)",
        "C.GradScaler('cuda')",
        "C.GradScaler(device='cuda')",
        "C.custom_fwd(f, g)",
        "C.autocast",
        "partial(C.autocast, dtype=dtype)",
        "type(x) is C.GradScaler",
        "f'{C.autocast()}'",
    ],
)
def test_what_cannot_be_rewritten_for_certain_stays(call: str) -> None:
    text = f"{HEAD}x = {spelled(call)}\n"
    assert fixed(text) == text


IMPORTS = {
    "whole statement": (
        "from torch.cuda.amp import GradScaler, autocast as cast\nGradScaler()\ncast()\n",
        'from torch.amp import GradScaler, autocast as cast\nGradScaler("cuda")\ncast("cuda")\n',
    ),
    "some names stay": (
        "from torch.cuda.amp import GradScaler, autocast\nGradScaler(False)\nautocast()\n",
        (
            "from torch.amp import autocast\nfrom torch.cuda.amp import GradScaler\n"
            'GradScaler(False)\nautocast("cuda")\n'
        ),
    ),
    "the first name goes": (
        (
            "def f():\n    from torch.cuda.amp import autocast, GradScaler\n    autocast()\n"
            "    return GradScaler\n"
        ),
        (
            "def f():\n    from torch.amp import autocast\n    from torch.cuda.amp import GradScaler\n"
            '    autocast("cuda")\n    return GradScaler\n'
        ),
    ),
    "the middle stays": (
        (
            "from torch.cuda.amp import (\n    autocast,\n    GradScaler,\n    custom_bwd,\n)\n"
            "autocast()\nx = GradScaler\n@custom_bwd\ndef f(): ...\n"
        ),
        (
            "from torch.amp import autocast, custom_bwd\n"
            "from torch.cuda.amp import (\n    GradScaler,\n)\n"
            'autocast("cuda")\nx = GradScaler\n@custom_bwd(device_type="cuda")\ndef f(): ...\n'
        ),
    ),
    "on a line with others": (
        "import os; from torch.cuda.amp import autocast, GradScaler; autocast(); x = GradScaler\n",
        (
            "import os; from torch.amp import autocast; from torch.cuda.amp import GradScaler; "
            'autocast("cuda"); x = GradScaler\n'
        ),
    ),
    "module": (
        "import os, torch.cuda.amp as amp\namp.autocast()\namp.GradScaler()\n",
        'import os, torch.amp as amp\namp.autocast("cuda")\namp.GradScaler("cuda")\n',
    ),
    "module from": (
        "from torch.cuda import amp, is_available\namp.autocast()\nis_available()\n",
        (
            "from torch import amp\nfrom torch.cuda import is_available\n"
            'amp.autocast("cuda")\nis_available()\n'
        ),
    ),
    "submodule": (
        "from torch.cuda.amp.grad_scaler import GradScaler\nGradScaler()\n",
        'from torch.amp import GradScaler\nGradScaler("cuda")\n',
    ),
    "never read": (
        "from torch.cuda.amp import autocast\n",
        "from torch.amp import autocast\n",
    ),
    "single quotes": (
        "from torch.cuda.amp import autocast\nx = 'a'\nautocast()\n",
        "from torch.amp import autocast\nx = 'a'\nautocast('cuda')\n",
    ),
    "torch under another name": (
        "import torch as th\nth.cuda.amp.autocast()\n",
        'import torch as th\nth.amp.autocast("cuda")\n',
    ),
    "two scopes": (
        "from torch.cuda.amp import autocast\ndef f(autocast):\n    autocast()\nautocast()\n",
        'from torch.amp import autocast\ndef f(autocast):\n    autocast()\nautocast("cuda")\n',
    ),
    "types": (
        "from torch.cuda.amp import GradScaler\ndef f(a: GradScaler | None) -> GradScaler: ...\n",
        "from torch.amp import GradScaler\ndef f(a: GradScaler | None) -> GradScaler: ...\n",
    ),
}


@pytest.mark.parametrize(("before", "after"), IMPORTS.values(), ids=IMPORTS)
def test_imports_move_with_their_uses(before: str, after: str) -> None:
    assert fixed(before) == after


@pytest.mark.parametrize("before", [before for before, _ in IMPORTS.values()], ids=IMPORTS)
def test_the_second_time_nothing_changes(before: str) -> None:
    once = fixed(before)
    assert fixed(once) == once


@pytest.mark.parametrize(
    "text",
    [
        "from torch.cuda.amp import autocast\nautocast()\nx = autocast\n",
        "from torch.cuda.amp import autocast\nclass A(autocast): ...\nautocast()\n",
        "from torch.cuda.amp import autocast\n__all__ = ['autocast']\nautocast()\n",
        "from torch.cuda.amp import autocast as autocast\n",
        "from torch.cuda.amp import autocast\nautocast()\nautocast = None\n",
        "from torch.cuda.amp import autocast\nautocast()\ndel autocast\n",
        "from torch.cuda.amp import *\nautocast()\n",
        "from torch.cuda.amp import (autocast,  # why\n    GradScaler)\nautocast()\nx = GradScaler\n",
        "import torch.cuda.amp as amp\namp.autocast()\nf(amp)\n",
        "from torch import cuda\ncuda.amp.autocast()\n",
        (
            "try:\n    from torch.cuda.amp import autocast\nexcept ImportError:\n    autocast = None\n"
            "autocast()\n"
        ),
    ],
)
def test_an_import_that_is_needed_as_it_is_stays(text: str) -> None:
    assert fixed(text) == text


def test_a_name_that_another_file_imports_stays(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "other.py").write_text("from common import autocast\nautocast(False)\n")
    text = "from torch.cuda.amp import GradScaler, autocast\nautocast()\nGradScaler()\n"
    path = tmp_path / "common.py"
    path.write_text(text)
    assert fixed(text, path=str(path)) == (
        "from torch.amp import GradScaler\nfrom torch.cuda.amp import autocast\n"
        'autocast()\nGradScaler("cuda")\n'
    )
    (tmp_path / "other.py").write_text("from elsewhere import autocast  # not common\n")
    assert "from torch.cuda" not in fixed(text, path=str(path))


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("1.11", 0),
        ("1.12", 1),
        ("2.2", 1),
        ("2.3", 2),
        (">=2.4", 3),
        ("<2.3", 1),
    ],
)
def test_only_what_the_target_has_is_replaced(target: str, expected: int) -> None:
    text = spelled(f"{HEAD}C.autocast()\nC.GradScaler()\n@C.custom_bwd\ndef f(): ...\n")
    assert fixed(text, target).count("torch.amp.") == expected


def test_defaults_that_are_changed_make_it_unsafe() -> None:
    text = f"{HEAD}torch.set_autocast_gpu_dtype(x)\ntorch.cuda.amp.autocast()\n"
    assert fixed(text) == text


@pytest.mark.parametrize(
    "call",
    [
        "isinstance(x, C)",
        "issubclass(type(x), (int, C))",
        "type(x) is C",
        "x.__class__ in (int, C)",
    ],
)
@pytest.mark.parametrize("way", ["import torch\n", "from torch.cuda.amp import GradScaler\n"])
def test_a_class_that_another_file_asks_for_makes_it_unsafe(
    tmp_path: Path, call: str, way: str
) -> None:
    """An object of the newer class is none of the older, which derives from it."""
    name = "torch.cuda.amp.GradScaler" if way.startswith("import") else "GradScaler"
    (tmp_path / ".git").mkdir()
    other = tmp_path / "other.py"
    text = "import torch\nscaler = torch.cuda.amp.GradScaler()\ntorch.cuda.amp.autocast()\n"
    path = tmp_path / "train.py"
    path.write_text(text)
    other.write_text(f"{way}def f(x):\n    return {call.replace('C', name)}\n")
    kept = text.replace("torch.cuda.amp.autocast()", 'torch.amp.autocast("cuda")')
    assert fixed(text, path=str(path)) == kept
    other.write_text(other.read_text().replace("cuda.amp", "amp"))
    assert "cuda.amp" not in fixed(text, path=str(path))


@pytest.mark.parametrize("place", ["same file", "another file"])
def test_a_question_whose_answer_for_newer_scalers_would_change(tmp_path: Path, place: str) -> None:
    """Where they are made, objects of the newer class are none of the older one until then."""
    (tmp_path / ".git").mkdir()
    path = tmp_path / "kinds.py"
    made = "from torch.amp import GradScaler as Scaler\nscaler = Scaler('cuda')\n"
    text = "import torch\ndef f(x):\n    return isinstance(x, torch.cuda.amp.GradScaler)\n"
    moved = text.replace("cuda.amp", "amp")
    assert fixed(text) == moved  # of itself the question is safe to move
    if place == "same file":
        text, moved = text + made, moved + made
    else:
        (tmp_path / "train.py").write_text(made)
    assert fixed(text, path=str(path)) == text
    assert fixed(text, path=str(path), unsafe=True) == moved
    with_older = text + "old = torch.cuda.amp.GradScaler()\n"
    assert fixed(with_older, path=str(path)) == with_older  # else the question is answered no


def test_torch_tells_the_older_scaler_from_the_newer() -> None:
    torch = pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert isinstance(torch.cuda.amp.GradScaler(), torch.amp.GradScaler)
        assert not isinstance(torch.amp.GradScaler("cpu"), torch.cuda.amp.GradScaler)


def test_a_call_that_only_the_newer_class_takes_makes_it_unsafe() -> None:
    call = "with autocast(device_type=str(device)):  # where it is"
    text = (
        f"from torch.cuda.amp import autocast\n\ndef f(x, device):\n    {call}\n        return x\n"
    )
    assert fixed(text) == text
    after = text.replace("torch.cuda.amp", "torch.amp")
    assert fixed(text, unsafe=True) == after == fixed(after, unsafe=True)
    odd = text.replace("device_type=", "device=")
    assert fixed(odd, unsafe=True) == odd


def test_a_type_that_is_compared_makes_it_unsafe() -> None:
    text = spelled(f"{HEAD}s = C.GradScaler()\nif type(s) is C.GradScaler:\n    pass\n")
    assert fixed(text) == text


@pytest.mark.parametrize("handler", ["ImportError", "Exception", "(ImportError, AttributeError)"])
def test_an_import_that_may_fail_needs_a_known_torch(handler: str) -> None:
    """An older torch would go on without AMP."""
    text = (
        "try:\n    from torch.cuda.amp import autocast, GradScaler\n    HAS_AMP = True\n"
        f"except {handler}:\n    HAS_AMP = False\nautocast()\nGradScaler()\n"
    )
    assert fixed(text, target="") == text
    assert "torch.cuda" not in fixed(text, target="2.4")


# -- torch -------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["cuda", "cpu"])
@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize(
    "arguments",
    ["enabled", "enabled, dtype", "enabled, dtype, False", "dtype=dtype, enabled=enabled"]
    + ["enabled=enabled", "enabled, cache_enabled=False", "**{'enabled': enabled}"],
)
def test_torch_sees_the_same_autocast(device: str, enabled: bool, arguments: str) -> None:
    torch = pytest.importorskip("torch")
    before = f"import torch\nx = torch.{device}.amp.autocast({arguments})\n"
    after = fixed(before)
    assert after != before
    shown = []
    for text in (before, after):
        names = {"enabled": enabled, "dtype": torch.bfloat16}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            exec(compile(text, "train.py", "exec"), names)  # noqa: S102 -- one of our own programs
        context = names["x"]
        state = (context.device, context._enabled, context.fast_dtype, context._cache_enabled)
        shown.append(state)
        old = any("is deprecated" in str(item.message) for item in caught)
        assert old is (text == before)
    assert shown[0] == shown[1]


@pytest.mark.parametrize("arguments", ["", "1024.0", "2.0, 3.0, 0.25, 7, True", "enabled=False"])
def test_torch_sees_the_same_scaler(arguments: str) -> None:
    pytest.importorskip("torch")
    before = f"import torch\nx = torch.cpu.amp.GradScaler({arguments})\n"
    after = fixed(before)
    assert after != before
    states = []
    for text in (before, after):
        names: dict[str, object] = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(compile(text, "train.py", "exec"), names)  # noqa: S102 -- one of our own programs
        states.append((names["x"].state_dict(), names["x"]._device))  # type: ignore[attr-defined]
    assert states[0] == states[1]
