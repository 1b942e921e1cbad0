"""Runs functions of the fixtures on real torch, with real arguments, under the hooks of a run.

    python -m tests.live.fixture_runs good|bad [PART]     # one JSON object for each function
    python -m tests.live.fixture_runs share PART          # the rows of observable.tsv, and good
    python -m tests.live.fixture_runs table               # write it anew

Arguments are made by the names of parameters: small models, optimizers, loaders. "cuda" means the
CPU here. Each function gets a forked process of its own.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import importlib.util
import inspect
import io
import json
import os
import re
import signal
import sys
import traceback
import warnings
import zlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from amplint.runtime.hooks import Hooks, Switch
from amplint.runtime.objects import ScalerRecord
from amplint.runtime.observer import Observer
from amplint.runtime.places import Place, Territory
from amplint.runtime.sink import Finding, Sample
from tests.live.fixture_arguments import BATCHES, From, World
from tests.live.fixture_arguments import own as arguments_of

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
#: Parts that tests run beside each other: one process for all took the last minutes of a suite.
SHARES = 6
#: Seconds for one function.
_LIMIT = 60
#: A method of a trainer without a loop of its own is called for each batch.
_CALLS = 3
_CODES = re.compile(r"#\s*((?:AMP\d{3}\s*)+)")


@dataclass
class Outcome:
    """What came of one function.

    Args:
        told: codes, rows and names of the findings.
        failed: why it ended early, "" if it did not.
        row: the fixture's row at which it did, 0 if that was none of its rows.
    """

    file: str
    function: str
    told: list[tuple[str, int, str]]
    updates: int = 0
    steps: int = 0
    failed: str = ""
    row: int = 0
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

    def sample(self, sample: Sample) -> None:
        """Not asked for here."""


def on_the_cpu() -> None:
    """Have "cuda" mean the CPU, for scalers, regions, modules and tensors.

    A scaler doubles its scale at the end of a loader, so that an old scale is a wrong one.
    """
    scaler, region = torch.amp.GradScaler.__init__, torch.amp.autocast_mode.autocast.__init__

    def make_scaler(self: Any, device: Any = "cuda", *args: Any, **kwargs: Any) -> None:
        kwargs = {"growth_interval": BATCHES, **kwargs} if len(args) < 4 else kwargs
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


@dataclass(frozen=True)
class Entry:
    """What can be called: a function at the top of a fixture, or a method of a class there."""

    path: Path
    name: str
    node: ast.FunctionDef

    @property
    def file(self) -> str:
        """The fixture, below the folder of all."""
        return self.path.relative_to(FIXTURES).as_posix()


def share_of(file: str) -> int:
    """Which of the parts that tests run beside each other a fixture belongs to."""
    return zlib.crc32(file.encode()) % SHARES


def entries(which: str, share: int | None = None) -> Iterator[Entry]:
    """The public functions of fixtures, and the public methods of their classes.

    Args:
        share: of the fixtures of this part only.
    """
    for path in sorted(FIXTURES.glob(f"AMP*/{which}_*.py")):
        if share not in (None, share_of(path.relative_to(FIXTURES).as_posix())):
            continue
        for node in ast.parse(path.read_text("utf-8", "replace")).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                yield Entry(path, node.name, node)
            elif isinstance(node, ast.ClassDef):
                for each in node.body:
                    if isinstance(each, ast.FunctionDef) and not each.name.startswith("_"):
                        yield Entry(path, f"{node.name}.{each.name}", each)


def marks(path: Path) -> list[tuple[str, int]]:
    """Code and row of each mistake that a fixture names."""
    lines = path.read_text("utf-8", "replace").splitlines()
    return [
        (code, row)
        for row, line in enumerate(lines, 1)
        for match in _CODES.finditer(line)
        for code in match[1].split()
    ]


def run(entry: Entry) -> Outcome:
    """Call one function, in this process."""
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    signal.alarm(_LIMIT)
    sys.path.insert(0, str(entry.path.parent))
    sys.argv[1:] = []
    told, defects = Told(), []
    nobody = (os.path.dirname(torch.__file__), str(FIXTURES.parent / "amplint"))
    territory = Territory(nobody, (str(FIXTURES),))
    on_the_cpu()
    observer = Observer(told, territory)
    Hooks(observer, Switch(lambda error: defects.append(repr(error))))
    failed, row, uncaught = "", 0, None
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            spec = importlib.util.spec_from_file_location("fixture", entry.path)
            module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
            spec.loader.exec_module(module)  # type: ignore[union-attr]
            _call(module, entry)
    except BaseException as error:  # noqa: BLE001 - it is the outcome
        failed, row = f"{type(error).__name__}: {str(error)[:100]}", _row_of(error, entry.path)
        uncaught = error
    observer.ended(uncaught)
    found = [(_code(f.slug), f.place[1], f.slug) for f in told.findings.values()]
    return Outcome(
        entry.file, entry.name, found, told.updates, told.steps, failed, row, tuple(defects)
    )


def _row_of(error: BaseException, path: Path) -> int:
    """The innermost row of a fixture that an exception has come through, 0 for none."""
    rows = [
        each.lineno
        for each in traceback.extract_tb(error.__traceback__)
        if each.filename == str(path)
    ]
    row = rows[-1] or 0 if rows else 0
    return _row_of_decorator(path, row) if sys.version_info < (3, 11) else row


def _row_of_decorator(path: Path, row: int) -> int:
    """The row of the decorator, where Python before 3.11 names that of the `def` below it."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.lineno == row:
            return node.decorator_list[-1].lineno if node.decorator_list else row
    return row


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


def _call(module: Any, entry: Entry) -> None:
    """Build the class, if it is a method, and call the function."""
    owner, _, method = entry.name.rpartition(".")
    functions = [getattr(module, owner)] if owner else []
    plain = getattr(functions[0], method) if owner else getattr(module, entry.name)
    wanted = [name for each in functions for name in _wanted(each)]
    last = [name for name in _wanted(plain) if not owner or name != "self"]
    world = World([name.lower() for name in (*wanted, *last)], _widths(entry.node))
    own = {
        name: value.make(world) if isinstance(value, From) else value
        for name, value in arguments_of(entry.file, entry.name).items()
    }
    give = lambda names: {n: own[n] if n in own else world.value(n.lower()) for n in names}
    if owner:
        plain = getattr(functions[0](**give(wanted)), method)
    given = give(last)
    has_loop = any(isinstance(each, (ast.For, ast.While)) for each in ast.walk(entry.node))
    for _ in range(_CALLS if owner and not has_loop else 1):
        result = plain(**given)
        if inspect.isgenerator(result):
            list(result)


def _wanted(function: Any) -> list[str]:
    """The names of parameters that a call has to give."""
    return [
        parameter.name
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]


def _code(slug: str) -> str:
    from amplint.live.catalogue import ENTRIES

    return ENTRIES[slug].code


def in_child(entry: Entry) -> Outcome:
    """The same in a process that ends with it."""
    import torch._dynamo

    gc.freeze()  # a collection in the child would copy every page that it looks through
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        torch.set_num_threads(1)
        with os.fdopen(writer, "w") as stream:
            json.dump(asdict(run(entry)), stream)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as stream:
        answer = stream.read()
    os.waitpid(child, 0)
    if not answer:
        return Outcome(entry.file, entry.name, [], failed="died")
    return Outcome(**json.loads(answer))


# -- the table -----------------------------------------------------------------------------------

TABLE = Path(__file__).with_name("observable.tsv")
#: Why a run does not tell what a rule says, where it is not that it did not happen here.
WHY_NOT = {
    "AMP107/bad_two_optimizers.py:19": "the program has changed the gradients by itself: unknown",
    "AMP111": "what a program does with a norm or a gradient is no event",
    "AMP115": "what a program does with the value of a loss is no event",
    "AMP119": "the new scaler begins where the old one was: nothing is lost here",
    "AMP120": "what a program saves under which name is no event",
    "AMP121": "schedulers are not followed",
    "AMP122": "the exception that is swallowed does not come here",
    "AMP126": "what a program concludes from the loss scale is no event",
    "AMP128": "reading and writing attributes of a scaler is no event",
    "AMP131": "what a program does with a norm or a gradient is no event",
    "AMP201": "the guards agree as they are set here",
    "AMP202": "the guard is set as the code needs it here",
    "AMP203": "a switch of the program",
    "AMP204": "a switch of the program",
    "AMP205": "one device is at hand here",
    "AMP206/bad_one_branch.py": "the backward outside the region runs in float32: nothing is lost",
    "AMP207": "no region is what a float32 program has, too",
    "AMP208": "how an argument is given is no event",
    "AMP301": "grad modes of modules are not followed",
    "AMP403": "dtypes inside a forward are not followed",
    "AMP404": "dtypes inside a loss are not followed",
    "AMP405": "casts of modules are not followed",
    "AMP407": "weights that no optimizer holds are not looked at",
    "AMP501/bad_in_block.py:53": "cuda means the CPU here, and its region inside is off",
    "AMP502": "dtypes inside a loss are not followed",
    "AMP503": "dtypes inside a forward are not followed",
    "AMP504": "numbers of an optimizer are not looked at",
    "AMP505": "dtypes inside a forward are not followed",
    "AMP506": "threads of DataParallel need several devices",
    "AMP601": "the library's own scaler is off here",
    "AMP603": "transformers is no part of the tests",
    "AMP606": "what hooks of an optimizer do is no event",
    "AMP609": "the library's own scaler is off here",
    "AMP611": "the library's own scaler is off here",
    "AMP612": "the library's own scaler is off here",
    "AMP801": "the age of a name is no event",
    "AMP802": "the age of a library is no event",
}


def verdict(outcome: Outcome, code: str, row: int) -> tuple[int, str]:
    """What one run says about one mark of a fixture: how much it is worth, and the words."""
    at_row = sorted({told or slug for told, where, slug in outcome.told if where == row})
    if code in at_row:
        return 0, "told"
    if at_row:
        return 1, f"told as {' '.join(at_row)}"
    kind = outcome.failed.partition(":")[0]
    if outcome.row == row:
        return 2, f"the program stops there: {kind}"
    has_run = outcome.updates or outcome.steps or outcome.told
    first = min(((where, told or slug) for told, where, slug in outcome.told), default=None)
    if first is not None:
        return 3, f"told at {first[0]} as {first[1]}"
    if outcome.row and kind not in _OUTSIDE:
        return 4, f"the program stops at {outcome.row}: {kind}"
    if outcome.failed and not has_run:
        return 6, "not run: " + (outcome.failed if kind in _OUTSIDE else kind)
    return 5, "not told"


#: Rules about names: what else happens at the line has nothing to do with them.
_STYLE = ("AMP801", "AMP802")
#: It was not the program that stopped.
_OUTSIDE = ("LookupError", "ModuleNotFoundError")


def rows(share: int | None = None) -> Iterator[tuple[str, str, str]]:
    """The table: file, code with row, and the best that any function of the file says of it."""
    outcomes: dict[Path, list[tuple[Entry, Outcome]]] = {}
    for entry in entries("bad", share):
        outcomes.setdefault(entry.path, []).append((entry, in_child(entry)))
    for path, pairs in outcomes.items():
        for code, row in marks(path):
            found = min((_of(entry, outcome, code, row) for entry, outcome in pairs), default=None)
            if found is not None:
                is_style = code in _STYLE and found[0] > 0
                reason = why_not(path, code, row) if is_style or found[0] >= 5 else ""
                words = f"not told: {reason}" if reason else found[1]
                yield path.relative_to(FIXTURES).as_posix(), f"{code}:{row}", words


def _of(entry: Entry, outcome: Outcome, code: str, row: int) -> tuple[int, str]:
    """The verdict of an entry; what is said elsewhere counts only for its own rows."""
    worth, words = verdict(outcome, code, row)
    is_own = entry.node.lineno <= row <= (entry.node.end_lineno or row)
    return (worth, words) if is_own or worth < 3 else (7, "not run: no function leads there")


def why_not(path: Path, code: str, row: int) -> str:
    """Why a run does not tell a mark, "" if nobody has said so."""
    name = path.relative_to(FIXTURES).as_posix()
    return next((WHY_NOT[key] for key in (f"{name}:{row}", name, code) if key in WHY_NOT), "")


def main() -> None:
    """One JSON object for each function; `table` writes the table anew.

    Arguments: `good`, `bad`, `share` (one JSON object of the rows and the good functions) or
    `table`; the number of a share, none for all.
    """
    which, *numbers = sys.argv[1:]
    share = int(numbers[0]) if numbers else None
    if which == "table":
        TABLE.write_text("".join("\t".join(row) + "\n" for row in rows()), "utf-8")
        return
    if which == "share":
        good = [asdict(in_child(entry)) for entry in entries("good", share)]
        print(json.dumps({"rows": list(rows(share)), "good": good}))
        return
    for entry in entries(which, share):
        print(json.dumps(asdict(in_child(entry))), flush=True)


if __name__ == "__main__":
    main()
