"""The way of one file: parse, analyse, run the rules, apply the suppressions.

This is what a worker process runs, so everything here is picklable and nothing raises.
"""

from __future__ import annotations

import ast
import hashlib
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING

from amplint.collector import sweep
from amplint.errors import UnreadableFile
from amplint.findings import FileError, Finding
from amplint.recursion import with_frames_at_hand, with_room
from amplint.source.reading import SourceFile

if TYPE_CHECKING:
    from amplint.code.lookups import Answer, Question
    from amplint.code.module import Module
    from amplint.code.project import Project
    from amplint.source.suppressions import Suppressions
    from amplint.view import FileView, InPlaceView

OUT_OF_MEMORY = "needs more memory to be analysed than there is"


@dataclass(frozen=True, slots=True)
class Task:
    """One file to inspect.

    Args:
        source: the decoded file.
        path: where it lies on disk, "" for standard input.
        key: of its result in the cache, "" where that is not kept.
        root: of the project; None looks upwards from the file.
        src: further folders of the project that hold top-level packages.
        target_torch: versions of torch to judge by; None asks the project's requirements.
        index: the folder with indexes of projects, "" for none.
        checked: the folder through which the file was found, "" for none.
        plain: no word of AMP stands in it: it counts only if it imports a file with one.
        codes: of the rules to run.
        edits: whether the edits of fixes are wanted.
        off_by_default: codes that run only if selected; see `Suppressions.unused`.
    """

    source: SourceFile
    codes: frozenset[str]
    off_by_default: frozenset[str] = frozenset()
    path: str = ""
    key: str = ""
    root: str | None = None
    src: tuple[str, ...] = ()
    target_torch: str | None = None
    index: str = ""
    checked: str = ""
    plain: bool = False
    edits: bool = False


@dataclass(frozen=True, slots=True)
class FileResult:
    """What checking one file gave.

    Args:
        filename: as its findings print it.
        findings: sorted by row, column and code.
        errors: why the file, or one rule in it, could not be checked.
        screened_out: nothing in the file mentions AMP, nor in what it imports, if it trains.
        lookups: what the analysis asked of the file system about other files.
        unfinished: functions that were too large to be followed to their end; see `Incomplete`.
        reused: it comes from the cache.
    """

    filename: str
    findings: tuple[Finding, ...] = ()
    errors: tuple[FileError, ...] = ()
    screened_out: bool = False
    lookups: Mapping[Question, Answer] = field(default_factory=dict, compare=False)
    unfinished: tuple[str, ...] = ()
    reused: bool = field(default=False, compare=False)


def inspect(task: Task) -> FileResult:
    """Check one file, as `_attempt` does, and free what that took."""
    try:
        return with_frames_at_hand(partial(_attempt, task))
    finally:
        sweep()


def _attempt(task: Task) -> FileResult:
    """Check one file; every failure becomes an error of the result.

    Under `AMPLINT_DEBUG=1` an unexpected exception is raised instead, for its traceback.
    """
    from amplint.source.parsing import TOO_DEEP, TooDeep, nests_deeply

    filename = task.source.filename
    try:
        try:
            return _inspect(task)
        except (RecursionError, TooDeep):
            return with_room(partial(_inspect, task, deep=True))
    except UnreadableFile as error:
        if task.plain:
            return FileResult(filename, screened_out=True)
        return FileResult(filename, errors=(unreadable(filename, error),))
    except RecursionError as error:
        if not nests_deeply(task.source):
            return FileResult(filename, errors=(_defect(filename, "the analysis", error),))
        if task.plain:
            return FileResult(filename, screened_out=True)
        return FileResult(filename, errors=(FileError(filename, TOO_DEEP),))
    except MemoryError:
        return FileResult(filename, errors=(FileError(filename, OUT_OF_MEMORY),))
    except Exception as error:  # noqa: BLE001 - one file's failure must not end the run
        return FileResult(filename, errors=(_defect(filename, "the analysis", error),))


def unreadable(filename: str, error: UnreadableFile) -> FileError:
    """The report's form of a file that cannot be read or parsed."""
    return FileError(filename, error.message, error.row, error.column)


def _inspect(task: Task, *, deep: bool = False) -> FileResult:
    from amplint.amp.libraries import SOURCES
    from amplint.code.project import Project, around
    from amplint.source.suppressions import collect
    from amplint.view import FileView

    source = task.source
    place = (task.root, task.src, task.target_torch, task.index, task.checked, SOURCES)
    # Who needs more room might find more of the files around it than others do.
    project = Project(*place) if deep else around(*place)
    module = None if deep else project.at(task.path, source)
    if module is None:
        project, module = _set_into(project, task, deep=deep)
    suppressions = collect(source.text)
    if suppressions.whole_file:
        return FileResult(source.filename)
    view = FileView(module, project)
    view.wants_edits = task.edits
    if task.plain and not _drives_amp(project, view.module):
        return FileResult(source.filename, screened_out=True, lookups=_rested_on(view))
    return _judge(task, suppressions, view)


def _rested_on(view: FileView) -> Mapping[Question, Answer]:
    """What a result depends on besides the bytes of its file."""
    answers = view.project.lookups.answers
    return {key: said for key, said in answers.items() if key != ("content", view.module.path)}


def _set_into(project: Project, task: Task, *, deep: bool) -> tuple[Project, Module]:
    """A project in which the task's text is the file, whatever lies on disk."""
    from amplint.source.parsing import parse, refuse_long_chains

    tree = parse(task.source)
    if deep:
        refuse_long_chains(tree)
    changed = project.another()
    return changed, changed.add(task.source.filename, task.source.text, tree, task.path)


def _judge(task: Task, suppressions: Suppressions, view: FileView) -> FileResult:
    """What the rules and the suppressions make of a file."""
    from amplint.source.discovery import relative

    source = task.source
    errors: list[FileError] = []
    told = list(_run_rules(view, task.codes, errors))
    told += _only_in_place(view, task.codes, told, errors)
    found = _fingerprinted(_distinct(told), view)
    kept = [item for item in found if not suppressions.match(item.code, item.span.start.row)]
    if not errors:  # a rule that failed might have needed a suppression
        kept += _fingerprinted(_unused_suppressions(task, suppressions), view)
    findings = tuple(sorted(kept, key=place))
    errors += [FileError(relative(path), words) for path, words in view.project.lookups.odd.items()]
    return FileResult(
        source.filename,
        findings,
        tuple(errors),
        lookups=_rested_on(view),
        unfinished=view.unfinished,
    )


def _drives_amp(project: Project, module: Module) -> bool:
    """Whether a module imports, through whatever hands it on, a file that trains with AMP."""
    from amplint.source.screen import trains_with_amp

    return any(trains_with_amp(text) for text in project.imported_texts(module))


def place(finding: Finding) -> tuple[str, int, int, str]:
    """The sort key of a report: filename, row, column, code."""
    start = finding.span.start
    return finding.filename, start.row, start.column, finding.code


def _run_rules(
    view: FileView, codes: Collection[str], errors: list[FileError]
) -> Iterator[Finding]:
    from amplint.authoring import check_of
    from amplint.rules import load
    from amplint.view import AnalysisFailed

    for code in sorted(codes):
        try:
            yield from check_of(load(code))(view)
        except (RecursionError, MemoryError):
            raise
        except AnalysisFailed as failure:  # once, not for every rule that asks
            raise failure.__cause__ or failure from None
        except Exception as error:  # noqa: BLE001 - the other rules must still run
            errors.append(_defect_of_rule(view.module.filename, code, error))


def _only_in_place(
    view: FileView, codes: Collection[str], told: Collection[Finding], errors: list[FileError]
) -> Iterator[Finding]:
    """What the rules find once helpers are written into their callers, and not before."""
    other = view.in_place
    if other is None:
        return
    places = {(one.code, row) for one in told for row in _rows(one)}
    for one in _run_rules(other, codes, errors):
        node = other.nodes.get(one)
        if node is None or any((one.code, row) in places for row in other.rows(node)):
            continue
        if other.has_changed(node) and not _stands_elsewhere(other, one, node):
            yield one


def _stands_elsewhere(view: InPlaceView, finding: Finding, node: ast.AST) -> bool:
    """Whether another file has this finding by itself: it is told when that one is checked."""
    from amplint.authoring import check_of
    from amplint.rules import load

    home = view.home_of(node)
    if home is None:
        return False
    other, row = home
    return any(row in _rows(one) for one in check_of(load(finding.code))(other))


def _rows(finding: Finding) -> set[int]:
    """The rows of the checked file that a finding names."""
    steps = {step.row for step in finding.path if step.filename == finding.filename}
    return {finding.span.start.row, *steps}


def _defect_of_rule(filename: str, code: str, error: Exception) -> FileError:
    from amplint import plugins

    plugin = plugins.installed().get(code)
    if plugin is None:
        return _defect(filename, f"rule {code}", error)
    words = " ".join(f"{type(error).__name__}: {error}".split())[:200].rstrip(": ")
    return FileError(filename, f"the rule {code} of the package {plugin.package} fails ({words})")


def _defect(filename: str, where: str, error: Exception) -> FileError:
    if os.environ.get("AMPLINT_DEBUG") == "1":
        raise error
    words = " ".join(f"{type(error).__name__}: {error}".split())[:200].rstrip(": ")
    return FileError(
        filename, f"internal error of amplint in {where} ({words}); please report it with the file"
    )


def _unused_suppressions(task: Task, suppressions: Suppressions) -> Iterator[Finding]:
    from amplint.rules import load
    from amplint.selectors import UNREADABLE, UNUSED_SUPPRESSION

    if UNUSED_SUPPRESSION not in task.codes:
        return
    report = load(UNUSED_SUPPRESSION).finding
    for unused in suppressions.unused(task.codes | {UNREADABLE}, task.off_by_default):
        if not suppressions.match(UNUSED_SUPPRESSION, unused.span.start.row):
            yield report(task.source.filename, unused)


def _distinct(findings: Iterable[Finding]) -> list[Finding]:
    """Sorted, each code once for one place and message."""
    first: dict[object, Finding] = {}
    for finding in findings:
        first.setdefault((finding.code, finding.span, finding.message), finding)
    return sorted(first.values(), key=place)


def _fingerprinted(findings: Iterable[Finding], view: FileView) -> list[Finding]:
    """Give each finding an identity that survives edits elsewhere in the file.

    The code, the text of the line without its spacing, and which one of its kind it is
    among equal lines of the file. Neither the path nor the row takes part: who compares
    findings of several files adds the path.
    """
    from amplint.source.positions import split_lines

    lines = split_lines(view.module.source)

    @cache
    def line_digest(row: int) -> str:
        return _sha1("".join(lines[row - 1].split()))

    seen: Counter[str] = Counter()
    result = []
    for finding in findings:
        kind = f"{finding.code} {line_digest(finding.span.start.row)}"
        result.append(replace(finding, fingerprint=_sha1(f"{kind} {seen[kind]}")))
        seen[kind] += 1
    return result


def _sha1(text: str) -> str:
    return hashlib.sha1(text.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()
