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

from amplint.amp.view import AmpView
from amplint.code.module import Function
from amplint.code.project import Project
from amplint.findings import Finding, Fix, Link, PathStep
from amplint.fixing.verbs import Repair
from amplint.levels import level, naming_options
from amplint.rule import Misuse, Rule

if TYPE_CHECKING:
    from amplint.flow.program import Program
    from amplint.gradflow.analysis import CutOff
    from amplint.regions.regions import Regions
    from amplint.regions.training import Stale


class AnalysisFailed(Exception):
    """The paths of a file could not be followed; the cause says why."""


class FileView(AmpView):
    """Everything a rule may look at for one file.

    Attributes:
        wants_edits: whether somebody asks for the edits of fixes, and not only for which there are.
    """

    wants_edits = False

    @cached_property
    def _followed(self) -> tuple[Program, tuple[Misuse, ...]]:
        from amplint.flow.engine import find_misuses
        from amplint.flow.program import Program

        try:
            program = Program(self.project, self.objects, self.values)
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
                for item in (self.program.unfinished if "_followed" in vars(self) else ())
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
        """Build a finding of `rule` at `node`; its links decide how severe it is."""
        links = tuple(sorted(set(links), key=lambda link: (link.kind, link.subject, link.claim)))
        return Finding(
            code=rule.code,
            name=rule.name,
            severity=level(rule.severity, links),
            message=naming_options(message, links),
            help=help,
            filename=self.module.filename,
            span=self.span_of(node),
            path=path,
            fix=self._fix(fix) if fix is not None else None,
            links=links,
        )

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
