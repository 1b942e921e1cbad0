"""The examples of the rule pages: reading them, checking them, and running them with torch."""

from __future__ import annotations

import ast
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from amplint import rules
from amplint.authoring import check_of
from amplint.code.project import Project
from amplint.findings import Finding, Severity
from amplint.view import view_of

HEADINGS = (
    "What it does",
    "Why is this bad?",
    "Example",
    "Use instead",
    "How it is confirmed",
    "Fix safety",
    "Known limits",
    "References",
)
#: Reported by the checker and not by a rule's `check`: their examples are no programs.
CHECKER_CODES = frozenset({"AMP000", "AMP900"})
RULE_CODES = tuple(code for code in rules.TABLE if code not in CHECKER_CODES)

#: Rules about older torch: the version that their examples are judged for.
TARGETS = {"AMP305": "2.6"}

_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Page:
    """A rule's docstring, taken apart.

    Args:
        title: the first line without "# ".
        summary: the line below the title.
        sections: (heading, text) in order.
    """

    title: str
    summary: str
    sections: tuple[tuple[str, str], ...]

    def example(self, heading: str) -> str:
        """The only Python block below a heading.

        Raises:
            ValueError: there is none, or more than one.
        """
        (block,) = _BLOCK.findall(dict(self.sections)[heading])
        return block


def read_page(code: str) -> Page:
    """Take the docstring of a rule's module apart."""
    head, *rest = re.split(r"^## ", rules.load(code).__doc__ or "", flags=re.MULTILINE)
    title, _, summary = head.strip().partition("\n")
    sections = (part.partition("\n") for part in rest)
    return Page(
        title.removeprefix("# "),
        summary.strip(),
        tuple((heading, text.strip() + "\n") for heading, _, text in sections),
    )


def findings_of(source: str, code: str) -> Iterator[Finding]:
    """What all rules say about an example on the page of `code`.

    Rules that only give advice are off, as by default, on all pages but their own.
    """
    project = Project(target_torch=TARGETS.get(code))
    view = view_of("example.py", source, ast.parse(source), project=project)
    for other in RULE_CODES:
        rule = rules.load(other)
        if other == code or rule.RULE.severity is not Severity.INFO:
            yield from check_of(rule)(view)


@dataclass(slots=True)
class Run:
    """A program after its execution with real torch.

    Args:
        names: its global names.
        error: what it raised, or None.
        before: each parameter that an optimizer stepped, with its value before the first step.
    """

    names: dict[str, Any] = field(default_factory=dict)
    error: Exception | None = None
    before: dict[torch.Tensor, torch.Tensor] = field(default_factory=dict)

    @property
    def update(self) -> float:
        """Length of the change of all stepped parameters; inf where a value is inf or NaN."""
        return self.update_of(self.before)

    def update_of(self, parameters: Iterable[torch.Tensor]) -> float:
        """Length of the change of some stepped parameters; inf where a value is inf or NaN."""
        squares = sum(
            (parameter.detach().double() - self.before[parameter].double()).square().sum().item()
            for parameter in parameters
        )
        return math.sqrt(squares) if math.isfinite(squares) else math.inf

    def remember(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        """Keep the parameters of an optimizer as they are before its first step."""
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                self.before.setdefault(parameter, parameter.detach().clone())


def execute(source: str) -> Run:
    """Run a program from a fixed seed, on one thread, without command line arguments."""
    run = Run({"__name__": "__main__"})
    program = compile(source, "example.py", "exec")
    with _settings(), _hook(run.remember):
        try:
            exec(program, run.names)  # noqa: S102 -- the examples are ours
        except Exception as error:  # noqa: BLE001 -- which one is what the test asks
            run.error = error
    return run


def without_scaling(source: str) -> str:
    """The same program with every scaler disabled: what it does where AMP is off."""
    return re.sub(r'GradScaler\("cpu"', 'GradScaler("cpu", enabled=False', source)


@contextmanager
def _settings() -> Iterator[None]:
    threads, arguments = torch.get_num_threads(), sys.argv
    torch.set_num_threads(1)
    torch.manual_seed(0)
    sys.argv = ["example.py"]
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_grad_enabled(True)
        sys.argv = arguments


@contextmanager
def _hook(before_step: Callable[..., None]) -> Iterator[None]:
    handle = register_optimizer_step_pre_hook(before_step)
    try:
        yield
    finally:
        handle.remove()


@dataclass(frozen=True, slots=True)
class Raises:
    """The bad example stops with this exception; the text is exact up to its first sentence."""

    exception: str
    text: str


@dataclass(frozen=True, slots=True)
class Changes:
    """The bad example runs through and does measurable damage: low <= measure <= high.

    Args:
        measure: from the run of the bad example and the run it is compared with to a number.
        reference: "good": compared with the example below "Use instead"; "disabled":
            with the bad example itself while the scaler is off.
    """

    low: float
    high: float
    measure: Callable[[Run, Run], float] | None = None
    reference: str = "disabled"


@dataclass(frozen=True, slots=True)
class Advice:
    """Both examples run and train alike; the rule is about something else, named in `why`."""

    why: str


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """What the bad example does where these packages are installed, on a GPU if `cuda`."""

    outcome: Raises
    packages: tuple[str, ...]
    cuda: bool = False


Outcome = Raises | Changes | Advice | Elsewhere


def update_ratio(run: Run, reference: Run) -> float:
    """How far the parameters moved, relative to the reference (1 is right)."""
    return run.update / reference.update


def update_ratio_of(name: str) -> Callable[[Run, Run], float]:
    """The same for the parameters of one module, given by its global name."""

    def ratio(run: Run, reference: Run) -> float:
        moved = (one.update_of(one.names[name].parameters()) for one in (run, reference))
        return next(moved) / next(moved)

    return ratio
