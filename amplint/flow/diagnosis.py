"""Which rule reports a broken transition: the violation, seen in its context.

One defect, one finding: the most specific rule wins. Where guards that can disagree are
the cause, that is the rule; after the loop that holds the backward, a step without
gradients is a leftover step; a state carried round the loop is a missing update.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from amplint.amp.roles import Roles
from amplint.amp.switches import is_switch
from amplint.code.expressions import asks_for_start, condition_text, path_text
from amplint.code.layout import layout_of
from amplint.code.module import Function, Module
from amplint.code.statements import blocks_of
from amplint.flow.call import callee_name
from amplint.flow.conditions import evaluate
from amplint.flow.events import Site
from amplint.flow.facts import SCALE, STEP, UNSCALE, UPDATE, protocol_word, sites_by_word
from amplint.flow.raising import is_awaited
from amplint.flow.reader import Reader
from amplint.flow.state import State, Step
from amplint.flow.witness import steps_of
from amplint.protocol import Event
from amplint.protocol.violations import code_of
from amplint.values.origins import Origins

#: A test whether some parameter has a gradient, inline or through a flag.
GRADIENT_GUARD = re.compile(r"\.grad is not None|(?:has|have|any|got)_?grad", re.IGNORECASE)
#: A test around a call, and whether it holds there.
Guard = tuple[ast.expr, bool]

#: Slugs that no finding is made of: zero_grad() may hide anywhere before such a step.
SILENT = frozenset({"step-on-spent"})
#: Missing gradients after the training loop: the flush of an incomplete window.
LEFTOVER = frozenset(
    {
        "step-without-gradient",
        "step-on-spent",
        "step-on-zeros",
        "unscale-without-gradient",
        "unscale-of-zeros",
    }
)
#: Codes that follow from a scaled loss that nobody uses.
OF_LOST_SCALING = frozenset({"AMP101", "AMP109", "AMP113"})
#: slug -> the event whose guard may be the one that disagrees.
COUNTERPART = {
    "unscale-of-plain": SCALE,
    "step-twice": UPDATE,
    "unscale-after-step": UPDATE,
    "update-without-check": STEP,
    "optimizer-step-on-scaled": SCALE,
}

#: Word of the protocol -> the scaler's method that it is.
_METHODS = {SCALE: "scale", STEP: "step", UPDATE: "update", UNSCALE: "unscale_"}


@dataclass(frozen=True, slots=True, eq=False)
class Verdict:
    """A code and the words that go with it.

    Args:
        site: where to report, if not where the violation happened.
        because: the step of the path that decides; the story begins with it.
    """

    code: str
    details: dict[str, str] = field(default_factory=dict)
    site: Site | None = None
    because: Step | None = None


@dataclass(slots=True, eq=False)
class Diagnostician:
    """Chooses codes for the violations of one module.

    Args:
        reach: protocol words that the functions of the module, or of the one whose findings
            are wanted, may reach.
        origins: where the optimizers come from.
    """

    module: Module
    roles: Roles
    reach: frozenset[str]
    origins: Origins
    _guards: dict[int, list[Guard]] = field(default_factory=dict)
    _sites: dict[str, list[tuple[ast.Call, Function]]] = field(default_factory=dict)
    _indexed: bool = False

    def diagnose(
        self, slug: str, site: Site, state: State, details: dict[str, str]
    ) -> Verdict | None:
        """The verdict on one violation, None if the linter stays silent."""
        words = {**site.details, **details}
        code = self._in_context(slug, site, state, words)
        if code is None or (code in OF_LOST_SCALING and self._loses_scaling(site, state)):
            return None
        because = self._leaving_none(site, state) if slug == "scaler-is-none" else None
        if because is not None:
            words["guard"] = condition((because[1], because[3]))
        self._describe(slug, site, state, words)
        if code == "AMP105":
            flush = _flush_without_update(state, site)
            if flush is not None:
                return Verdict("AMP103", {"loop": "yes", "line": str(site.node.lineno)}, flush)
        mismatch = self._guard_mismatch(slug, site, state)
        if mismatch is not None:
            return Verdict("AMP201", {**words, **mismatch})
        return Verdict(code, words, because=because)

    def _leaving_none(self, site: Site, state: State) -> Step | None:
        """The assumption of a path by which the scaler is None: of a test around what makes it."""
        callee = site.node.func if isinstance(site.node, ast.Call) else None
        if not isinstance(callee, ast.Attribute):
            return None
        made = self.origins.of(callee.value, site.function).origins
        tests = {
            test
            for origin in made
            for around in layout_of(origin.function).conditions(origin.expression)
            for test in ast.walk(around)
        }
        steps = reversed(steps_of(state.trail))
        return next((step for step in steps if step[0] == "assume" and step[1] in tests), None)

    def _in_context(self, slug: str, site: Site, state: State, words: dict[str, str]) -> str | None:
        if slug in LEFTOVER and ("flag", "after") in state.typestate:
            return "AMP103"
        if slug in ("step-twice", "unscale-after-step") and words.get("loop") == "yes":
            return "AMP105"
        if slug == "update-without-check" and self._guards_step_by_gradient(site.function):
            return None  # AMP125 names the guard, the cause
        if slug == "scaler-is-none" and self._is_expected(site, state):
            return None
        if slug == "unscale-of-plain" and self._never_scales():
            words["never"] = "yes"
            return "AMP101"
        if slug == "optimizer-step-bypass" and self._is_sparse(site):
            return None  # sparse gradients are unscaled, then stepped by hand on purpose
        return None if slug in SILENT else code_of(slug)

    def _is_sparse(self, site: Site) -> bool:
        """Whether the file of a step, or one that builds its optimizer, is about sparse gradients."""
        files = [self.module]
        if isinstance(site.node, ast.Call) and isinstance(site.node.func, ast.Attribute):
            made = self.origins.of(site.node.func.value, site.function).origins
            files += [item.function.module for item in made]
        return any("sparse" in file.source.lower() for file in dict.fromkeys(files))

    def _loses_scaling(self, site: Site, state: State) -> bool:
        """A scaled loss is dropped on the path: AMP114 names that line, the cause."""
        steps = steps_of(state.trail)
        if any(step[0] == "drop" for step in steps):
            return True
        events = [step for step in steps if step[0] == "event"]
        functions = {site.function, *(step[2] for step in events)}
        plain = any(step[3][0] is Event.PLAIN_BACKWARD for step in events)
        return plain and any(_forgets_scaled_loss(function, self.roles) for function in functions)

    def _guards_step_by_gradient(self, function: Function) -> bool:
        """Whether a step of the function runs only if some gradient exists."""
        return any(
            GRADIENT_GUARD.search(_text(test)) is not None
            for node, other in self.sites(STEP)
            if other is function
            for test, _ in self.guards_of(node)
        )

    def _never_scales(self) -> bool:
        """A scaler is built here and nothing is ever scaled: the first step already stops."""
        return bool(self.roles.constructions) and SCALE not in self.reach

    def _is_unassigned(self, site: Site) -> bool:
        """Whether a scaler that is used has no value at all, as nothing ever makes it None."""
        callee = site.node.func if isinstance(site.node, ast.Call) else None
        if not isinstance(callee, ast.Attribute):
            return False
        found = self.origins.objects.bindings(callee.value, site.function)
        return bool(found) and all(isinstance(item.value, ast.Call) for item in found or ())

    def _is_expected(self, site: Site, state: State) -> bool:
        """Whether a handler around a use of None, or around a call that leads there, is for that."""
        is_local = site.scaler_text.isidentifier() and self._is_unassigned(site)
        names = ("UnboundLocalError", "NameError") if is_local else ("AttributeError",)
        where = site.function
        if is_awaited(site.node, where, names):
            return True
        for kind, call, caller, callee in reversed(steps_of(state.trail)):
            if kind == "call" and callee is where:
                if is_awaited(call, caller, names):
                    return True
                where = caller
        return False

    def _describe(self, slug: str, site: Site, state: State, words: dict[str, str]) -> None:
        words["slug"] = slug
        cause, function = _cause(slug, site, state)
        if cause is not site.node and function.module is self.module:
            words["line"] = str(cause.lineno)
        if slug == "step-on-piled":
            self._describe_pile(site, state, words)
        if slug == "scaler-is-none" and self._is_unassigned(site):
            words["absent"] = "yes"
        guards = self.guards_of(site.node)
        if guards:
            left_out = self._left_out(site) if words.get("loop") == "yes" else None
            words.setdefault("guard", condition(left_out or guards[-1]))
        counterpart = COUNTERPART.get(slug)
        if counterpart is not None and counterpart not in self.reach:
            words["never"] = "yes"

    def _left_out(self, site: Site) -> Guard | None:
        """What leaves the `update()` out that would have ended the round of a repeated call.

        The tests that both stand under decide nothing. None where it is not one test for all.
        """
        own = {(_text(test), holds) for test, holds in self.guards_of(site.node)}
        found: dict[tuple[str, bool], Guard] = {}
        for node, function in self.sites(UPDATE):
            if function is not site.function or not _same_scaler(node, site):
                continue
            others = [
                (test, not holds)
                for test, holds in self.guards_of(node)
                if (_text(test), holds) not in own
            ]
            if len(others) != 1:
                return None
            found[_text(others[0][0]), others[0][1]] = others[0]
        return found.popitem()[1] if len(found) == 1 else None

    def _describe_pile(self, site: Site, state: State, words: dict[str, str]) -> None:
        """Which step left its gradients behind, if it is another one than that at fault."""
        words.pop("line", None)
        events = [step for step in steps_of(state.trail)[:-1] if step[0] == "event"]
        steps = [step for step in events if step[3][0] is Event.STEP]
        if steps and steps[-1][1] is not site.node:
            words["flush"] = "yes"
            if steps[-1][2].module is self.module:
                words["line"] = str(steps[-1][1].lineno)

    def _guard_mismatch(self, slug: str, site: Site, state: State) -> dict[str, str] | None:
        """The two guards that disagree, if disagreement is the cause."""
        word = COUNTERPART.get(slug)
        if word is None:
            return None
        own = [test for test, _ in self.guards_of(site.node)]
        own_texts = {_text(test) for test in own}
        plain = _last_event(state, Event.PLAIN_BACKWARD) if slug == "unscale-of-plain" else None
        passed = {site.function, *(step[2] for step in steps_of(state.trail))}
        calls = [(node, function) for node, function in self.sites(word) if function in passed]
        if any(self._runs_with(node, function, site, own_texts) for node, function in calls):
            return None
        for node, function in calls:
            if plain is not None and function is not plain[2]:
                continue
            if function is site.function and not _same_scaler(node, site):
                continue
            guards = [test for test, _ in self.guards_of(node)]
            others = [test for test in guards if self._is_switch(test, function)]
            differing = [test for test in others if _text(test) not in own_texts]
            if not differing:
                continue
            amp_own = [test for test in own if self._is_switch(test, site.function)]
            if slug == "optimizer-step-on-scaled" and not amp_own:
                continue
            guard = _text(amp_own[-1]) if amp_own else ""
            other = {"other_guard": _text(differing[-1]), "needed": _METHODS[word]}
            return {"guard": guard, "line": str(node.lineno), **other}
        return None

    def _runs_with(self, call: ast.Call, function: Function, site: Site, tests: set[str]) -> bool:
        """Whether a call of the same scaler stands under no other test: no test leaves it out."""
        if function is not site.function or not _same_scaler(call, site):
            return False
        return all(_text(test) in tests for test, _ in self.guards_of(call))

    def _is_switch(self, test: ast.expr, function: Function) -> bool:
        """Whether a test is about AMP: it asks for a scaler, or for what decides that one scales."""
        if any(self.roles.is_scaler(part, function) for part in _places(test)):
            return ".get_scale()" not in _text(test)
        return is_switch(test, function, (self.module,))

    # -- static index ------------------------------------------------------------------

    def sites(self, word: str) -> list[tuple[ast.Call, Function]]:
        """Every call of the module that is this protocol word."""
        self._index()
        return self._sites.get(word, [])

    def guards_of(self, node: ast.AST) -> list[Guard]:
        """The tests of the if statements around a call, outermost first.

        `if True:` decides nothing, and that the file is run (`__name__`) is nobody's choice.
        """
        self._index()
        return self._guards.get(id(node), [])

    def _index(self) -> None:
        if self._indexed:
            return
        self._indexed = True
        for word, found in sites_by_word(self.module, self.roles).items():
            self._sites[word] = [(site.node, site.function) for site in found]
        for function in self.module.functions:
            self._read_guards(function.body, [])

    def _read_guards(self, body: list[ast.stmt], guards: list[Guard]) -> None:
        for statement in body:
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                continue
            if isinstance(statement, ast.If):
                self._note_calls(statement.test, guards)
                is_constant = isinstance(statement.test, ast.Constant)
                decides = not (is_constant or asks_for_start(statement.test))
                for part, holds in ((statement.body, True), (statement.orelse, False)):
                    own = [(statement.test, holds)] if decides else []
                    self._read_guards(part, [*guards, *own])
                continue
            for child in ast.iter_child_nodes(statement):
                if isinstance(child, ast.expr):
                    self._note_calls(child, guards)
            for block in blocks_of(statement):
                self._read_guards(block, guards)

    def _note_calls(self, expression: ast.expr, guards: list[Guard]) -> None:
        if isinstance(expression, ast.IfExp):
            self._note_calls(expression.body, [*guards, (expression.test, True)])
            self._note_calls(expression.orelse, [*guards, (expression.test, False)])
            return
        if isinstance(expression, ast.Call):
            self._guards[id(expression)] = guards
        for child in ast.iter_child_nodes(expression):
            if isinstance(child, (ast.expr, ast.keyword, ast.comprehension)):
                self._note_calls(child, guards)  # type: ignore[arg-type]


def _same_scaler(call: ast.Call, site: Site) -> bool:
    """Whether a call of the function is of the scaler that a violation is about, as far as known."""
    if not site.scaler_text or not isinstance(call.func, ast.Attribute):
        return True
    return ast.unparse(call.func.value) == site.scaler_text


def _places(test: ast.expr) -> Iterator[ast.expr]:
    """The names and attributes that a test reads."""
    return (part for part in ast.walk(test) if isinstance(part, (ast.Name, ast.Attribute)))


def _flush_without_update(state: State, site: Site) -> Site | None:
    """The step after the training loop that left the round open, if that is the cause."""
    steps = steps_of(state.trail)[:-1]
    for index in range(len(steps) - 1, -1, -1):
        step = steps[index]
        if step[0] != "event" or step[3][0] is not Event.STEP:
            continue
        if step[1] is site.node:
            return None
        marks = [other[0] for other in steps[:index] if other[0] in ("leave", "loop")]
        return step[3][1] if marks and marks[-1] == "leave" else None
    return None


def _forgets_scaled_loss(function: Function, roles: Roles) -> bool:
    """Whether a function stores a scaled loss under a name that it never reads."""
    read = {
        node.id
        for node in function.nodes
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    for node in function.nodes:
        if isinstance(node, ast.Assign) and _is_scaling(node.value, function, roles):
            target = node.targets[0]
            if isinstance(target, ast.Name) and target.id not in read:
                return True
    return False


def _is_scaling(node: ast.expr, function: Function, roles: Roles) -> bool:
    if not isinstance(node, ast.Call):
        return False
    return protocol_word(node, callee_name(node), function, roles) == SCALE


def _last_event(state: State, wanted: Event) -> Step | None:
    for step in reversed(steps_of(state.trail)):
        if step[0] == "event" and step[3][0] is wanted:
            return step
    return None


#: slug -> the event without which the violation would not be one.
CAUSES = {
    "step-twice": Event.STEP,
    "unscale-after-step": Event.STEP,
    "unscale-twice": Event.UNSCALE,
    "backward-after-unscale": Event.UNSCALE,
    "unscale-of-plain": Event.PLAIN_BACKWARD,
    "clip-of-scaled": Event.SCALED_BACKWARD,
    "step-on-piled": Event.SCALED_BACKWARD,
    "stale-scale": Event.UPDATE,
    "unscale-again": Event.UPDATE,
    "optimizer-step-twice": Event.STEP,
}


def cause_of(slug: str, site: Site, state: State) -> int:
    """Identity of the event that caused a violation: two reports of one cause are one defect."""
    return id(_cause(slug, site, state)[0])


def _cause(slug: str, site: Site, state: State) -> tuple[ast.expr, Function]:
    wanted = CAUSES.get(slug)
    for step in reversed(steps_of(state.trail) if wanted else []):
        if step[0] == "event" and step[3][0] is wanted and step[1] is not site.node:
            return step[1], step[2]
    return site.node, site.function


def deciding_flags(reader: Reader, steps: list[Step], scaler: str, state: State) -> Iterator[Step]:
    """The tests of flags on a path without which there would be no violation, the last first.

    What is known in a state holds on every path that leads to it.

    Args:
        steps: of the path, oldest first.
        scaler: as the code writes it; that there is one goes without saying.
    """
    for step in reversed(steps):
        kind, node, function, holds = step
        if kind != "assume" or not _is_flag(node) or (scaler and scaler in _text(node)):
            continue
        if evaluate(reader.formula(node, state, function), state) is holds:
            yield step


def _is_flag(test: ast.expr) -> bool:
    """A name or attribute, negated or compared with a word or None: no counter, no batch."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _is_flag(test.operand)
    if isinstance(test, ast.Compare):
        other = test.comparators[0]
        is_word = isinstance(other, ast.Constant) and isinstance(other.value, (str, type(None)))
        return len(test.ops) == 1 and is_word and _is_flag(test.left)
    return path_text(test) is not None


def _text(test: ast.expr) -> str:
    return " ".join(ast.unparse(test).split())


def condition(guard: Guard) -> str:
    """A guard as the reader would say it: the test, negated in its else branch."""
    return condition_text(*guard)
