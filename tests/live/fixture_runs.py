"""Runs functions of the fixtures on real torch, with real arguments, under the hooks of a run.

    python -m tests.live.fixture_runs good|bad [PART]     # one JSON object for each function
    python -m tests.live.fixture_runs table               # write observable.tsv anew

Arguments are made by the names of parameters: small models, optimizers, loaders. "cuda" means the
CPU here. Each function gets a forked process of its own.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import inspect
import io
import json
import os
import re
import signal
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from amplint.runtime.hooks import Hooks, Switch
from amplint.runtime.objects import ScalerRecord
from amplint.runtime.observer import Observer
from amplint.runtime.places import Place, Territory
from amplint.runtime.sink import Finding

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
#: Seconds for one function.
_LIMIT = 60
_BATCHES = 6
_CODES = re.compile(r"#\s*((?:AMP\d{3}\s*)+)")


@dataclass
class Outcome:
    """What came of one function.

    Args:
        expected: codes and rows that the fixture names inside the function.
        told: codes, rows and names of the findings.
        failed: why it ended early, "" if it did not.
    """

    file: str
    function: str
    expected: list[tuple[str, int]]
    told: list[tuple[str, int, str]]
    updates: int = 0
    steps: int = 0
    failed: str = ""
    defects: tuple[str, ...] = ()


class Told:
    """A sink that keeps what it hears."""

    def __init__(self) -> None:
        self.findings: dict[tuple[str, Any], Finding] = {}
        self.updates = self.steps = 0

    def finding(self, found: Finding) -> None:
        self.findings[found.slug, found.place] = found

    def reached(self, place: Place) -> None:
        """Not of interest here."""

    def round(self, scaler: ScalerRecord, skipped: bool | None) -> None:
        self.updates += 1

    def stepped(self) -> None:
        self.steps += 1


# -- arguments by name ---------------------------------------------------------------------------


class Net(nn.Module):
    """Takes and gives rows of eight numbers, of whatever it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: Any, *_args: Any, **_kwargs: Any) -> Any:
        return self.second(functional.relu(self.first(x.float())))


class World:
    """The objects of one call: models by their part of the name, optimizers over them.

    Args:
        names: the parameters of the function.
        widths: how many values a batch of a loader has where a loop takes it apart, by its name.
    """

    #: A word in a parameter's name, and the model that it belongs to.
    _PARTS = (
        ("gen", r"gen|(?<![a-z])g(?![a-z])|actor"),
        ("disc", r"disc|(?<![a-z])d(?![a-z])|critic"),
        ("teacher", r"teacher|ema"),
        ("backbone", r"backbone|encoder|features"),
        ("head", r"head|decoder"),
        ("first", r"first"),
        ("second", r"second"),
    )

    def __init__(self, names: list[str], widths: dict[str, int]) -> None:
        self._models: dict[str, Net] = {}
        self._widths = widths
        models = [n for n in names if re.search(_MODEL, n) and "opt" not in n]
        self._parts = {self._part(name) for name in models}
        self._optimizers = [name for name in names if re.search(r"opt", name)]

    def _part(self, name: str) -> str:
        return next((part for part, words in self._PARTS if re.search(words, name)), "net")

    def model(self, name: str) -> Net:
        return self._models.setdefault(self._part(name), Net())

    def optimizer(self, name: str) -> torch.optim.Optimizer:
        """Over the model that its name speaks of, if the function has that; else over a share."""
        if self._part(name) in self._parts - {"net"}:
            return torch.optim.SGD(self.model(name).parameters(), 0.01)
        net = self.model("net" if "net" in self._parts or not self._parts else min(self._parts))
        alike = [n for n in self._optimizers if self._part(n) not in self._parts - {"net"}]
        if len(alike) == 1:
            return torch.optim.SGD(net.parameters(), 0.01)
        half = net.second if alike.index(name) % 2 else net.first
        return torch.optim.SGD(half.parameters(), 0.01)

    def halves(self) -> list[torch.optim.Optimizer]:
        net = self.model("net")
        return [torch.optim.SGD(half.parameters(), 0.01) for half in (net.first, net.second)]

    def batches(self, name: str) -> list[Any]:
        made = torch.Generator().manual_seed(0)
        width = self._widths.get(name, 1)
        many = [[torch.randn(4, 8, generator=made) for _ in range(width)] for _ in range(_BATCHES)]
        return [tuple(each) if width > 1 else each[0] for each in many]

    def value(self, name: str) -> Any:
        """An argument for a parameter with this name.

        Raises:
            LookupError: no idea.
        """
        for words, make in _VALUES:
            if re.search(words, name):
                return make(self, name)
        raise LookupError(name)


_MODEL = r"model|net|module|coder|backbone|head|policy|gen|disc|teacher|student|critic|actor|base"
_VALUES: tuple[tuple[str, Callable[[World, str], Any]], ...] = (
    (r"^optimizers$|^opts$", lambda w, _: w.halves()),
    (r"sched", lambda w, n: torch.optim.lr_scheduler.StepLR(w.optimizer(n), 100)),
    (r"opt", lambda w, n: w.optimizer(n)),
    (r"scaler", lambda _w, _n: torch.amp.GradScaler("cpu", init_scale=1024.0)),
    (
        r"loader|batches|data|iterator|dataset|samples|pages|recordings|sounds|held_out",
        lambda w, n: w.batches(n),
    ),
    (
        _MODEL,
        lambda w, n: w.model(n),
    ),
    (r"batch$|^x$|input|image|^real|target|^y$|label", lambda _w, _n: torch.randn(4, 8)),
    (r"criterion|loss_f|objective", lambda _w, _n: functional.mse_loss),
    (r"epoch|accum|every|interval|^k$|^n$|window|micro|steps|count", lambda _w, _n: 2),
    (r"max_norm|clip|limit|threshold|grad_norm", lambda _w, _n: 1.0),
    (r"device", lambda _w, _n: "cpu"),
    (r"dtype", lambda _w, _n: torch.float16),
    (r"amp|fp16|enabled|mixed|half|use_|is_", lambda _w, _n: True),
    (r"lr|rate|weight|alpha|lambda|eps|scale", lambda _w, _n: 0.1),
    (r"param", lambda w, n: list(w.model(n).parameters())),
    (
        r"log|writer",
        lambda _w, _n: types.SimpleNamespace(
            info=lambda *_a: None, log=lambda *_a, **_k: None, add_scalar=lambda *_a: None
        ),
    ),
)


def on_the_cpu() -> None:
    """Have "cuda" mean the CPU, for scalers, regions, modules and tensors."""
    scaler, region = torch.amp.GradScaler.__init__, torch.amp.autocast_mode.autocast.__init__

    def make_scaler(self: Any, device: Any = "cuda", *args: Any, **kwargs: Any) -> None:
        scaler(self, "cpu" if isinstance(device, str) else device, *args, **kwargs)

    def make_region(self: Any, device_type: str, dtype: Any = None, *a: Any, **k: Any) -> None:
        if device_type == "cuda":
            device_type, dtype = "cpu", dtype or torch.float16
        region(self, device_type, dtype, *a, **k)

    def make_old_region(
        self: Any, enabled: bool = True, dtype: Any = torch.float16, cache_enabled: bool = True
    ) -> None:
        make_region(self, "cuda", dtype, enabled, cache_enabled)

    torch.amp.GradScaler.__init__ = make_scaler
    torch.amp.autocast_mode.autocast.__init__ = make_region
    torch.cuda.amp.GradScaler.__init__ = lambda self, *a, **k: make_scaler(self, "cpu", *a, **k)
    torch.cuda.amp.autocast.__init__ = make_old_region
    for owner in (nn.Module, torch.Tensor):
        owner.cuda = lambda self, *_a, **_k: self
        owner.to = _without_device(owner.to)


def _without_device(plain: Callable[..., Any]) -> Callable[..., Any]:
    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        is_device = lambda value: isinstance(value, torch.device) or value == "cuda"
        kept = {k: "cpu" if k == "device" else v for k, v in kwargs.items()}
        return plain(self, *("cpu" if is_device(each) else each for each in args), **kept)

    return to


# -- running -------------------------------------------------------------------------------------


def functions(which: str) -> Iterator[tuple[Path, ast.FunctionDef, str]]:
    """The functions at the top of fixtures that train, with their source."""
    for path in sorted(FIXTURES.glob(f"AMP*/{which}_*.py")):
        text = path.read_text("utf-8", "replace")
        for node in ast.parse(text).body:
            if not isinstance(node, ast.FunctionDef) or node.name.startswith("_"):
                continue
            source = ast.get_source_segment(text, node) or ""
            if re.search(r"backward|\.step\(|autocast", source):
                yield path, node, text


def run(path: Path, node: ast.FunctionDef, text: str) -> Outcome:
    """Call one function, in this process."""
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    signal.alarm(_LIMIT)
    sys.path.insert(0, str(path.parent))
    rows = range(node.lineno, (node.end_lineno or node.lineno) + 1)
    lines = text.splitlines()
    expected = [
        (code, row)
        for row in rows
        for match in _CODES.finditer(lines[row - 1])
        for code in match[1].split()
    ]
    told, defects = Told(), []
    nobody = (os.path.dirname(torch.__file__), str(FIXTURES.parent / "amplint"))
    territory = Territory(nobody, (str(FIXTURES),))
    on_the_cpu()
    Hooks(Observer(told, territory), Switch(lambda error: defects.append(repr(error))))
    failed = ""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            spec = importlib.util.spec_from_file_location("fixture", path)
            module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
            spec.loader.exec_module(module)  # type: ignore[union-attr]
            own = OWN.get(path.relative_to(FIXTURES).as_posix(), {})
            _call(getattr(module, node.name), _widths(node), own)
    except BaseException as error:  # noqa: BLE001 - it is the outcome
        failed = f"{type(error).__name__}: {str(error)[:100]}"
    found = [(f.slug, f.place[1], f.slug) for f in told.findings.values()]
    return Outcome(
        path.relative_to(FIXTURES).as_posix(),
        node.name,
        expected,
        [(_code(slug), row, slug) for slug, row, _ in found],
        told.updates,
        told.steps,
        failed,
        tuple(defects),
    )


#: Arguments that a function needs to be what it says: it is right for bfloat16, or on a CPU.
OWN: dict[str, dict[str, Any]] = {
    "AMP204/good_bfloat16.py": {"dtype": torch.bfloat16},
}


def _widths(node: ast.FunctionDef) -> dict[str, int]:
    """How many values a loop takes out of what a name holds."""
    found = {}
    for loop in ast.walk(node):
        if isinstance(loop, (ast.For, ast.comprehension)):
            target, names = loop.target, [n for n in ast.walk(loop.iter) if isinstance(n, ast.Name)]
            while isinstance(target, ast.Tuple) and isinstance(loop.iter, ast.Call):
                inner = [each for each in target.elts if isinstance(each, ast.Tuple)]
                if not inner:
                    break
                target = inner[0]
            is_numbered = isinstance(loop.iter, ast.Call) and target is loop.target
            if isinstance(target, ast.Tuple) and not is_numbered:
                found.update({name.id.lower(): len(target.elts) for name in names})
    return found


def _call(function: Callable[..., Any], widths: dict[str, int], own: dict[str, Any]) -> None:
    wanted = [
        parameter.name
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    world = World([name.lower() for name in wanted], widths)
    given = {name: world.value(name.lower()) for name in wanted}
    given |= {name: value for name, value in own.items() if name in wanted}
    result = function(**given)
    if inspect.isgenerator(result):
        list(result)


def _code(slug: str) -> str:
    from amplint.live.catalogue import ENTRIES

    return ENTRIES[slug].code


def in_child(path: Path, node: ast.FunctionDef, text: str) -> Outcome:
    """The same in a process that ends with it."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        with os.fdopen(writer, "w") as stream:
            json.dump(asdict(run(path, node, text)), stream)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as stream:
        answer = stream.read()
    os.waitpid(child, 0)
    if not answer:
        return Outcome(path.relative_to(FIXTURES).as_posix(), node.name, [], [], failed="died")
    return Outcome(**json.loads(answer))


# -- the table -----------------------------------------------------------------------------------

TABLE = Path(__file__).with_name("observable.tsv")
#: Why a run does not tell what a rule says, where it is not that it did not happen here.
WHY_NOT = {
    "AMP111": "what a program does with a norm or a gradient is no event",
    "AMP115": "what a program does with the value of a loss is no event",
    "AMP119": "the new scaler begins where the old one was: nothing is lost here",
    "AMP121": "schedulers are not followed",
    "AMP122": "the exception that is swallowed does not come here",
    "AMP126": "what a program concludes from the loss scale is no event",
    "AMP201": "the guards agree as they are set here",
    "AMP202": "the guard is set as the code needs it here",
    "AMP203": "a switch of the program",
    "AMP205": "one device is at hand here",
    "AMP207": "no region is what a float32 program has, too",
    "AMP301": "grad modes of modules are not followed",
    "AMP403": "dtypes inside a forward are not followed",
    "AMP404": "dtypes inside a loss are not followed",
    "AMP506": "threads of DataParallel need several devices",
    "AMP601": "the library's own scaler is off here",
    "AMP801": "the age of a name is no event",
}


def verdict(outcome: Outcome, code: str, row: int) -> str:
    """What a run says about one mark of a fixture, in the words of the table."""
    at_row = sorted({told for told, where, _ in outcome.told if where == row})
    if code in at_row:
        return "told"
    if at_row:
        return f"told as {' '.join(at_row) or 'no rule'}"
    elsewhere = sorted({(where, told) for told, where, _ in outcome.told})
    if elsewhere:
        return "told " + " ".join(f"at {where} as {told or 'no rule'}" for where, told in elsewhere)
    if outcome.failed and not outcome.updates and not outcome.steps:
        return "not run: " + outcome.failed.partition(":")[0]
    return "not told: " + WHY_NOT.get(code, "it does not happen with these arguments")


def rows() -> Iterator[tuple[str, str, str, str]]:
    """The table: file, function, code with row, verdict."""
    for path, node, text in functions("bad"):
        outcome = in_child(path, node, text)
        for code, row in outcome.expected:
            yield outcome.file, outcome.function, f"{code}:{row}", verdict(outcome, code, row)


def main() -> None:
    """One JSON object for each function; `table` writes the table anew."""
    which, *part = sys.argv[1:]
    torch.set_num_threads(1)
    if which == "table":
        TABLE.write_text("".join("\t".join(row) + "\n" for row in rows()), "utf-8")
        return
    for path, node, text in functions(which):
        if not part or part[0] in str(path):
            print(json.dumps(asdict(in_child(path, node, text))), flush=True)


if __name__ == "__main__":
    main()
