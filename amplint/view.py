"""What a rule looks at: one file as a set of questions, each answered when it is first asked.

A rule pays for what it asks. The paths of the protocol are followed for the first rule that
wants a misuse, or the program that they lead through; a rule about spellings never has them
followed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from amplint.amp.dry_runs import dry_run
from amplint.amp.view import AmpView
from amplint.code.expressions import last_name
from amplint.code.module import CallSite, Function, Module
from amplint.code.project import Project
from amplint.findings import Finding, Fix, Link, PathStep, Span
from amplint.fixing.verbs import Repair
from amplint.levels import level, naming_options, unseen
from amplint.rule import Misuse, Rule

if TYPE_CHECKING:
    from amplint.flow.program import Program
    from amplint.gradflow.analysis import CutOff
    from amplint.regions.regions import Regions
    from amplint.regions.training import Stale
    from amplint.values.in_place import InPlace, Place
    from amplint.values.unreached import Unreached


class AnalysisFailed(Exception):
    """The paths of a file could not be followed; the cause says why."""


class FileView(AmpView):
    """Everything a rule may look at for one file.

    Attributes:
        wants_edits: whether somebody asks for the edits of fixes, and not only for which there are.
        is_written: whether the file stands as it is written, so that paths through calls count.
    """

    wants_edits = False
    is_written = True

    @cached_property
    def _followed(self) -> tuple[Program, tuple[Misuse, ...]]:
        from amplint.flow.budget import limit_of
        from amplint.flow.engine import find_misuses
        from amplint.flow.program import Program

        visits = limit_of(self.module.source.count("\n") + 1)
        try:
            program = Program(self.project, self.objects, self.values, visits)
            return program, find_misuses(program, self.module, self.roles, self.place_of)
        except (RecursionError, MemoryError):
            raise
        except Exception as error:
            raise AnalysisFailed from error

    @property
    def program(self) -> Program:
        """The modules that the flow analysis looked at, once it has."""
        return self._followed[0]

    @cached_property
    def flow_misuses(self) -> tuple[Misuse, ...]:
        """What the flow analysis found, all codes."""
        return self._followed[1]

    def misuses(self, code: str) -> Iterator[Misuse]:
        """The flow analysis' results for one code."""
        return (misuse for misuse in self.flow_misuses if misuse.code == code)

    @property
    def unfinished(self) -> tuple[str, ...]:
        """Functions that the flow analysis left half-way, sorted; none where nobody asked for it.

        By qualified name, those of other files after their file's name and a colon.
        """
        here = self.module
        return tuple(
            sorted(
                item.qualname if item.module is here else f"{item.module.filename}:{item.qualname}"
                for item in (self.program.work.unfinished if "_followed" in vars(self) else ())
            )
        )

    def may_reach(self, word: str, call: ast.Call, function: Function) -> bool:
        """Whether a function of the called name may use a word of the protocol; cheap."""
        return not self.program.knows(function) or word in self.program.reach(call, function)

    @cached_property
    def regions(self) -> Regions:
        """The autocast regions of functions, in whatever file."""
        from amplint.regions.regions import Regions

        return Regions(self.objects, self.values)

    @cached_property
    def stale_steps(self) -> tuple[Stale, ...]:
        """One step for each region of the file behind which weights are stale."""
        from amplint.regions.training import stale_steps

        return tuple(stale_steps(self.regions, self.module))

    @cached_property
    def cut_off(self) -> tuple[CutOff, ...]:
        """The losses of the file that do not reach what they train."""
        from amplint.gradflow.analysis import cut_off

        return tuple(cut_off(self))

    def finding(
        self,
        rule: Rule,
        node: ast.AST,
        message: str,
        help: str,
        *,
        path: tuple[PathStep, ...] = (),
        fix: Repair | None = None,
        links: Iterable[Link] = (),
    ) -> Finding:
        """Build a finding of `rule` at `node`; its links decide how severe it is.

        Where no run comes to the node, by all that is in sight, one more link says so; or where
        nobody uses the weights that go wrong silently.
        """
        function = self._functions.get(node, self.module.body)
        doubts = [self.unreached.doubt(node, function)]
        if rule.effect == "silent":
            doubts.append(dry_run(self, node, function))
        found = {*links, *(doubt for doubt in doubts if doubt is not None)}
        links = tuple(sorted(found, key=lambda link: (link.kind, link.subject, link.claim)))
        return Finding(
            code=rule.code,
            name=rule.name,
            severity=unseen(rule.code, level(rule.severity, links), links),
            message=naming_options(message, links),
            help=help,
            filename=self.module.filename,
            span=self.span_of(node),
            path=path,
            fix=self._fix(fix) if fix is not None else None,
            links=links,
        )

    @cached_property
    def _functions(self) -> dict[ast.AST, Function]:
        """Each node of the file with the function that holds it."""
        return {node: function for function in self.module.functions for node in function.nodes}

    @cached_property
    def unreached(self) -> Unreached:
        """Which places of the project no run comes to."""
        from amplint.values.unreached import Unreached

        return Unreached(self.objects, self.values, self._refused)

    def _refused(self, call: ast.Call, function: Function) -> bool:
        """Whether torch refuses a call wherever it runs."""
        from amplint.amp.constructor_arguments import is_refused
        from amplint.amp.refused_calls import no_member, refused_call
        from amplint.amp.torch_calls import refused

        if refused(self, call, function):
            return True
        site = CallSite(call, function, last_name(call.func))
        if refused_call(self, site) is not None or no_member(self, site) is not None:
            return True
        return is_refused(self, site)

    def home_of(self, node: ast.AST) -> tuple[FileView, int] | None:
        """The other file that a node was written in from, and its row there; None for a file's own."""
        return None

    def _fix(self, repair: Repair) -> Fix | None:
        """What a finding says of its fix; LibCST is loaded only where the edits are wanted."""
        if not self.wants_edits:
            return Fix(repair.applicability, ())
        from amplint.fixing.codemods import made

        if repair not in self._made:
            self._made[repair] = made(repair, self.module)
        return self._made[repair]

    @cached_property
    def _made(self) -> dict[Repair, Fix | None]:
        """Fixes that several findings share are made once."""
        return {}

    @cached_property
    def in_place(self) -> InPlaceView | None:
        """The file with helpers written into their callers; None where there are none."""
        from amplint.amp.training_words import uses_training_words
        from amplint.values.in_place import in_place

        found = in_place(self.module, self.objects, uses_training_words)
        return None if found is None else InPlaceView(self, found)


class InPlaceView(FileView):
    """A file whose functions do themselves what they call helpers for.

    The paths of the protocol lead through calls anyway: they are followed in the file as it is
    written, and nothing is known of them here. Findings are those in functions that have changed;
    they stand where the code is written, or at the call that leads into another file.

    Attributes:
        nodes: where each finding was made.
    """

    is_written = False

    def __init__(self, view: FileView, changed: InPlace) -> None:
        here = view.module
        project = view.project.another()
        super().__init__(project.add(here.filename, here.source, changed.tree, here.path), project)
        self._view = view
        self._changed = changed
        self._here = here
        self.nodes: dict[Finding, ast.AST] = {}

    @cached_property
    def _followed(self) -> tuple[Program, tuple[Misuse, ...]]:
        from amplint.flow.program import Program

        return Program(self.project, self.objects, self.values), ()

    def may_reach(self, word: str, call: ast.Call, function: Function) -> bool:
        """As the file in which the call is written has it: by the name of the callee."""
        place = self._written_in(call)
        if place is not None:
            function = place.module.body
        elif function.module is self.module:
            function = self._here.body
        return self._view.may_reach(word, call, function)

    def place_of(self, module: Module, node: ast.AST) -> Span:
        """Where a node lies in the file as it is written."""
        written = self._here_for(node) if module is self.module else None
        if written is None:
            return super().place_of(module, node)
        return super().place_of(self._here, written)

    def _is_of_file(self, node: ast.AST) -> bool:
        """Whether a node is one of the file in this form, and of no other file."""
        return node in self.module.scopes.parents

    def _here_for(self, node: ast.AST) -> ast.AST | None:
        """What stands in the file for a node that was written in: it, or the call to its file."""
        place = self._written_in(node)
        if place is None:
            return None
        return place.node if place.module is self._here else place.calls[-1]

    def step(self, node: ast.AST, module: Module, message: str) -> PathStep:
        """A step of a path, in the file that its code is written in."""
        place = self._written_in(node) if module is self.module else None
        if place is None or place.module is self._here or not hasattr(place.node, "lineno"):
            return super().step(node, module, message)
        return self._view.step(place.node, place.module, message)

    def row_of(self, node: ast.AST) -> int:
        """The row of a node in the file as it is written."""
        written = self._here_for(node) if self._is_of_file(node) else None
        return super().row_of(written or node)

    def source_of(self, node: ast.AST) -> str:
        """The source text of a node as it is written, under the names that it has there."""
        place = self._written_in(node) if self._is_of_file(node) else None
        is_it = place is not None and type(place.node) is type(node)
        return super().source_of(place.node if place is not None and is_it else node)

    def is_judged(self, function: Function) -> bool:
        """Whether something was written into a function of the file."""
        return (function.qualname, getattr(function.node, "lineno", 0)) in self._judged

    @cached_property
    def _judged(self) -> frozenset[tuple[str, int]]:
        changed = self._changed.functions
        return frozenset((item.qualname, getattr(item.node, "lineno", 0)) for item in changed)

    def has_changed(self, node: ast.AST) -> bool:
        """Whether a node stands in a function into which something was written."""
        return self._around(getattr(node, "lineno", 0)) in self._changed.functions

    def _around(self, row: int) -> Function:
        """The innermost function of the file around a row."""
        return [item for item in self._here.functions if _holds(item, row)][-1]

    def rows(self, node: ast.AST) -> set[int]:
        """The rows that stand for a node in the file: its own, and those of the calls to it."""
        place = self._written_in(node)
        own = {self.span_of(node).start.row}
        return own if place is None else own | {call.lineno for call in place.calls}

    def home_of(self, node: ast.AST) -> tuple[FileView, int] | None:
        """The other file that a node was written in from, and its row there."""
        place = self._written_in(node)
        if place is None or place.module is self._here:
            return None
        row: int = place.node.lineno  # type: ignore[attr-defined]  # of a finding: it has a row
        return FileView(place.module, self._view.project), row

    def _way_to(self, node: ast.AST) -> Iterator[PathStep]:
        """From the function of the file to what was written into it."""
        place = self._written_in(node)
        if place is None:
            return
        if place.module is self._here:
            for call in place.calls:
                words = f"`{last_name(call.func)}` is called"
                yield self._view.step(call, self._here, words)
        else:
            words = f"`{self._view.source_of(place.node)}`"
            yield self._view.step(place.node, place.module, words)

    def finding(
        self,
        rule: Rule,
        node: ast.AST,
        message: str,
        help: str,
        *,
        path: tuple[PathStep, ...] = (),
        fix: Repair | None = None,
        links: Iterable[Link] = (),
    ) -> Finding:
        """As in any file; which of them are told is decided where both forms are known."""
        whole = (*self._way_to(node), *path)
        found = super().finding(rule, node, message, help, path=whole, fix=fix, links=links)
        self.nodes[found] = node
        return found

    def _written_in(self, node: ast.AST) -> Place | None:
        known = self._changed.places.get(node)
        if known is None and hasattr(node, "lineno") and hasattr(node, "col_offset"):
            known = self._changed.by_position.get((node.lineno, node.col_offset))
        return known

    def _fix(self, repair: Repair) -> Fix | None:
        """Edits would change code that other callers run, too."""
        return None


def _holds(function: Function, row: int) -> bool:
    node = function.node
    return isinstance(node, ast.Module) or node.lineno <= row <= (node.end_lineno or 0)


def view_of(
    filename: str, source: str, tree: ast.Module, *, path: str = "", project: Project | None = None
) -> FileView:
    """One parsed file, ready to be asked.

    Args:
        filename: as findings will print it.
        source: the decoded text that `tree` was parsed from.
        path: where the file lies on disk, to find what it imports; "" judges it alone.
        project: the project around it; None makes one that is looked for upwards from `path`.

    Raises:
        RecursionError: the file is nested too deeply to be walked.
    """
    project = project or Project()
    return FileView(project.add(filename, source, tree, path), project)
