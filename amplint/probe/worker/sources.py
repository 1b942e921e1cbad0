"""The user's files as definitions: which top-level statement binds which name. Nothing is run."""

from __future__ import annotations
import __future__

import ast
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import CodeType

from amplint.probe.messages import Plan, Request, Source
from amplint.probe.worker.effects import (
    bound_names,
    calls_one_of,
    changed_at_once,
    changed_by,
    configured,
    imported_by,
    imported_modules,
    is_decorated_with,
    stored_attribute,
    writes_to,
)
from amplint.probe.worker.rewrite import Rewriter, copied
from amplint.probe.worker.uses import Uses

#: Constant keys, as they are written.
KEYS = re.compile(r"""\[["'](\w+)["']\]|\.(?:get|pop)\(["'](\w+)["']""")
MOST_KEYS = 40
#: What a file that has to do with a gradient scaler holds; other scalers scale data.
SCALERS = re.compile(
    rb"GradScaler|unscale_|\.scale\(|scaler\.(?:step|update|get_scale)|(?:loss|grad|amp)_?scaler",
    re.IGNORECASE,
)
#: Imports, what begins a line that may change something, and the like, as they are written.
_IMPORT = re.compile(r"^(?:from\b[^\n]*?)?\bimport\b([^\n(]*(?:\([^)]*)?)", re.MULTILINE)
_CHANGED = re.compile(r"^([A-Za-z_]\w*)[.(\[]", re.MULTILINE)
_LOOP = re.compile(r"^(?:for|while)\b", re.MULTILINE)
_NAME = re.compile(r"\w+")
#: What is told of subclasses.
_SUBCLASSES = re.compile(r"__init_subclass__|__subclasses__|metaclass=")
Repair = Callable[[ast.stmt], bool] | None


@dataclass(frozen=True, slots=True)
class Used:
    """What a run has used of the project, which dies with the run.

    Args:
        executed: statements, by file and index, and whether with all their effects.
        read: what was read of which files, see `ModuleSource.read`.
    """

    executed: tuple[tuple[str, int, bool], ...] = ()
    read: dict[str, list[str]] = field(default_factory=dict)


#: Methods whose calls are never skipped.
EVENTS = frozenset(
    {
        *("scale", "step", "update", "unscale_", "backward", "zero_grad"),
        *("clip_grad_norm_", "clip_grad_value_"),
    }
)


class ModuleSource:
    """One parsed file.

    Args:
        filename: where it lies, absolute.
        name: its dotted name, or its stem.

    Raises:
        OSError, SyntaxError, ValueError, RecursionError: the file cannot be read or parsed.
    """

    def __init__(self, filename: str, name: str) -> None:
        self.filename = filename
        self.name = name or Path(filename).stem
        self._codes: dict[tuple[int, bool, object], CodeType] = {}
        self._read_at_once: dict[int, tuple[str, ...]] = {}
        data = Path(filename).read_bytes()
        self.mentions_scaler = SCALERS.search(data) is not None
        self.tree = ast.parse(data, filename)
        self._lines = data.decode("utf-8", "replace").splitlines()
        self.statements = list(_top_level(self.tree.body))
        self.bindings: dict[str, list[int]] = {}
        #: Statements that assign to attributes of what a name is bound to: `cfg.TRAIN.LR = 0.1`.
        self.settings: dict[str, list[int]] = {}
        self.stars: list[ast.ImportFrom] = []
        for index, statement in enumerate(self.statements):
            for bound in bound_names(statement):
                self.bindings.setdefault(bound, []).append(index)
            root = configured(statement)
            if root:
                self.settings.setdefault(root, []).append(index)
            if isinstance(statement, ast.ImportFrom) and statement.names[0].name == "*":
                self.stars.append(statement)

    def registering(self, container: str, writers: Collection[str] = ()) -> list[int]:
        """Statements that may register something: decorated definitions, those that write into
        what is called like a container, and calls of functions that do.

        Args:
            writers: such functions of another file.
        """
        found = {
            index
            for index, at_top in self.writing.items()
            if writes_to(self.statements[index], container)
            or (at_top and calls_one_of(self.statements[index], writers))
        }
        return sorted(found.union(self.decorated))

    @cached_property
    def decorated(self) -> tuple[int, ...]:
        """Definitions under a decorator that the file has by name."""
        return tuple(
            index
            for index, statement in enumerate(self.statements)
            if is_decorated_with(statement, self.local_names)
        )

    @cached_property
    def writing(self) -> dict[int, bool]:
        """Statements that may write into something: calls and assignments, and whether they stand
        outside `if __name__ == "__main__"`."""
        top = set(map(id, self.tree.body))
        return {
            index: id(statement) in top
            for index, statement in enumerate(self.statements)
            if isinstance(statement, (ast.Expr, ast.Assign))
        }

    def read(self) -> list[str]:
        """What has been read of the file, for whoever reads it next."""
        return [name for name in vars(self) if name in _READINGS]

    def read_again(self, names: Iterable[str]) -> None:
        """Read of the file what somebody else has read."""
        for name in _READINGS.intersection(names):
            getattr(self, name)

    @cached_property
    def writers(self) -> dict[str, frozenset[str]]:
        """Names of the file that its functions change, and these functions."""
        found: dict[str, set[str]] = {}
        for statement in self.statements:
            for name in changed_by(statement) & self.bindings.keys():
                found.setdefault(name, set()).add(getattr(statement, "name", ""))
        return {name: frozenset(functions) for name, functions in found.items()}

    @cached_property
    def effects(self) -> list[int]:
        """Statements that change what other files hold as the file is imported: calls of what it
        imports, stores on that, definitions of subclasses of that."""
        imported = {name for statement in self.tree.body for name in imported_by(statement)}
        return self._at_top(lambda roots: not roots.isdisjoint(imported))

    @cached_property
    def computing(self) -> list[int]:
        """Statements that bind names which they do not name: `globals()[name] = value`."""
        return self._at_top(lambda roots: not roots.isdisjoint({"globals", "exec"}))

    def _at_top(self, matters: Callable[[set[str]], bool]) -> list[int]:
        top = set(map(id, self.tree.body))
        return [
            index
            for index, statement in enumerate(self.statements)
            if id(statement) in top and matters(changed_at_once(statement))
        ]

    def may_be_overridden(self, name: str) -> bool:
        """Whether names come with `*` after all that binds a name."""
        rows = [self.statements[index].lineno for index in self.bindings.get(name, ())]
        return any(star.lineno > max(rows, default=0) for star in self.stars)

    def modules_of(self, name: str) -> Iterator[tuple[str, int]]:
        """The modules that a name is imported from, and the level of the import."""
        for index in self.bindings.get(name, ()):
            yield from imported_modules(self.statements[index])

    def called(self, index: int) -> str:
        """The last part of the name of the function that a statement calls; "" for none."""
        statement = self.statements[index]
        call = statement.value if isinstance(statement, ast.Expr) else None
        callee = call.func if isinstance(call, ast.Call) else None
        return getattr(callee, "attr", getattr(callee, "id", ""))

    @cached_property
    def stored(self) -> frozenset[str]:
        """Attributes that the file stores on something as it is imported."""
        return frozenset(filter(None, map(stored_attribute, self.tree.body)))

    @cached_property
    def local_names(self) -> frozenset[str]:
        """Names that the file defines, or imports by name: decorators of libraries come whole."""
        return frozenset(
            bound
            for statement in self.statements
            if not isinstance(statement, ast.Import)
            for bound in bound_names(statement)
        )

    @cached_property
    def functions(self) -> dict[int, ast.FunctionDef]:
        """Functions by the row on which they start, with their decorators."""
        found: dict[int, ast.FunctionDef] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef):
                found.setdefault(first_row(node), node)
        return found

    @cached_property
    def assigned(self) -> dict[int, tuple[frozenset[str], frozenset[str]]]:
        """For the functions by their first row: attributes that they assign to their first
        parameter, and those of them that become what another parameter is."""
        return {
            row: (_assigned(node, node.args.args[0].arg), _kept(node, node.args.args[0].arg))
            for row, node in self.functions.items()
            if node.args.args
        }

    def trains(self, name: str) -> bool:
        """Whether the function of a name runs a backward or a step itself."""
        definition = self.definition(name)
        return isinstance(definition, ast.FunctionDef) and any(
            isinstance(node, ast.Attribute) and node.attr in EVENTS - {"update"}
            for node in ast.walk(definition)
        )

    def text_of(self, node: ast.AST) -> str:
        """The rows of a part of the file."""
        first, last = rows_of(node)
        return "\n".join(self._lines[first - 1 : last])

    def warm(self, index: int) -> None:
        """Read now what runs ask about a statement and about the functions of the file."""
        self.read_at_once(index)
        _ = self.assigned

    def read_at_once(self, index: int) -> tuple[str, ...]:
        """Names that executing a statement reads at once: not those in function bodies."""
        found = self._read_at_once.get(index)
        if found is None:
            names = dict.fromkeys(_names_read_now(self.statements[index]))
            found = self._read_at_once[index] = tuple(names)
        return found

    def code(
        self, index: int, effects: bool = True, repair: Repair = None, key: object = None
    ) -> CodeType:
        """The code of one statement, rewritten; kept for the next run of a warm worker.

        Args:
            index: in `statements`.
            effects: whether calls inside a compound statement are kept.
            repair: as the rewriter wants it.
            key: what distinguishes this `repair` from others; hashable.
        """
        found = self._codes.get((index, effects, key))
        if found is None:
            statement = copied(self.statements[index])
            if not effects:
                statement = _without_effects(statement)
            found = self._codes[index, effects, key] = self.compile(statement, repair)
        return found

    def compile(self, statement: ast.stmt, repair: Repair = None) -> CodeType:
        """The code of a statement, which is rewritten in place.

        Annotations stay texts: they name types of packages that are not there.
        """
        body = Rewriter(repair).rewrite(statement)
        module = ast.fix_missing_locations(ast.Module(body, []))
        flags = __future__.annotations.compiler_flag
        code: CodeType = compile(module, self.filename, "exec", flags, dont_inherit=True)
        return code

    def definition(self, qualname: str) -> ast.AST | None:
        """The function or class with this name, classes separated by dots."""
        body: Iterable[ast.stmt] = self.statements
        node: ast.AST | None = None
        for name in qualname.split("."):
            node = next(
                (
                    statement
                    for statement in body
                    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
                    and statement.name == name
                ),
                None,
            )
            if node is None:
                return None
            body = node.body
        return node


#: Projects whose files a worker keeps: findings come file by file.
KEPT = 4
#: What a file keeps that was read of it once.
_READINGS = frozenset(
    name for name, value in vars(ModuleSource).items() if isinstance(value, cached_property)
)


class Project:
    """The files of a plan, parsed when they are first needed."""

    def __init__(self, sources: tuple[Source, ...]) -> None:
        self.checked = sources[0].filename
        self._names = {source.filename: source.module for source in sources}
        self._by_name: dict[str, list[str]] = {}
        for source in sources:
            self._by_name.setdefault(source.module, []).append(source.filename)
        self._folders = {
            str(parent) for filename in self._names for parent in Path(filename).parents
        }
        self._parsed: dict[str, ModuleSource | None] = {}
        self._uses: Uses | None = None
        self._keys: list[str] | None = None

    def module(self, filename: str) -> ModuleSource | None:
        """The parsed file; None if it is none of the project's, or cannot be parsed."""
        if filename not in self._names:
            return None
        if filename not in self._parsed:
            try:
                parsed = ModuleSource(filename, self._names.get(filename, ""))
            except (OSError, SyntaxError, ValueError, RecursionError):
                parsed = None
            self._parsed[filename] = parsed
        return self._parsed[filename]

    def read(self) -> dict[str, list[str]]:
        """What has been read of which files."""
        return {name: source.read() for name, source in self._parsed.items() if source is not None}

    def read_imported(self, entry: str) -> None:
        """Parse what the checked file and another one import: runs would do it one by one."""
        for importer in dict.fromkeys((self.checked, entry)):
            source = self.module(importer)
            for statement in source.statements if source is not None else ():
                for name, level in imported_modules(statement):
                    place = self.find(name, importer, level)
                    if place is not None:
                        self.module(place)

    def modules_with(self, words: re.Pattern[str]) -> Iterator[ModuleSource]:
        """The files that say something and can be parsed."""
        named = [name for name in self._names if words.search(_text_of(name))]
        yield from filter(None, map(self.module, named))

    def uses(self) -> Uses:
        """How the checked file uses its paths."""
        if self._uses is None:
            self._uses = Uses()
            checked = self.module(self.checked)
            if checked is not None:
                self._uses.read(checked.tree)
        return self._uses

    @cached_property
    def counts(self) -> bool:
        """Whether the checked file does something in every so many rounds."""
        checked = self.module(self.checked)
        return checked is not None and any(
            isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and _is_number(node.left)
            for node in ast.walk(checked.tree)
        )

    def keys(self) -> list[str]:
        """The constant string keys that the files read, those of the checked one first."""
        if self._keys is None:
            texts = (_text_of(filename) for filename in self._names)
            found = (key[0] or key[1] for text in texts for key in KEYS.findall(text))
            self._keys = list(dict.fromkeys(found))[:MOST_KEYS]
        return self._keys

    @cached_property
    def lists_subclasses(self) -> bool:
        """Whether any file does something with the subclasses of a class as they are defined."""
        return any(_SUBCLASSES.search(_text_of(name)) for name in self._names)

    @cached_property
    def stored(self) -> frozenset[str]:
        """Attributes that files store on something as they are imported."""
        return frozenset(name for source in self.with_effects for name in source.stored)

    @cached_property
    def with_effects(self) -> tuple[ModuleSource, ...]:
        """The files whose import changes what others hold, in the order of the plan."""
        named = [name for name in self._names if self._may_have_effects(_text_of(name))]
        parsed = filter(None, map(self.module, named))
        return tuple(source for source in parsed if source.effects)

    def _may_have_effects(self, text: str) -> bool:
        """Whether a file is worth parsing for that: most are not."""
        if _LOOP.search(text) or (self.lists_subclasses and "class " in text):
            return True
        imported = {word for found in _IMPORT.findall(text) for word in _NAME.findall(found)}
        return not imported.isdisjoint(_CHANGED.findall(text))

    def is_mine(self, filename: str) -> bool:
        """Whether a file belongs to the plan's sources."""
        return filename in self._names

    def find(self, dotted: str, importer: str, level: int) -> str | None:
        """The file or folder of a module as `importer` would import it; None if not here.

        A folder stands for a package whose `__init__.py` is not among the sources.
        """
        parents = [str(parent) for parent in Path(importer).parents]
        named = self._by_name.get(dotted, ())
        if not level and len(named) == 1:
            return named[0]
        if level:
            roots = parents[level - 1 : level]
        else:
            roots = parents + [str(parent) for parent in Path(self.checked).parents]
        for root in roots:
            found = self._below(root, dotted)
            if found is not None and (found != importer or found.endswith("/__init__.py")):
                return found  # a package may import what lies beside its `__init__.py`
        return None

    def below(self, place: str, name: str) -> str | None:
        """The submodule `name` of a package, given as its file or folder."""
        folder = place if place in self._folders else str(Path(place).parent)
        return self._below(folder, name)

    def _below(self, root: str, dotted: str) -> str | None:
        base = "/".join([root, *dotted.split(".")]) if dotted else root
        for candidate in (f"{base}.py", f"{base}/__init__.py"):
            if candidate in self._names:
                return candidate
        return base if base in self._folders and len(base) > 1 else None


def repair_key(request: Request, filename: str) -> object:
    """What the code of a file depends on besides the file."""
    if not request.repair:
        return None
    if filename != request.plan.sources[0].filename:
        return ()
    return request.plan.slice_rows, request.plan.target_rows


def repair_of(request: Request, filename: str) -> Repair:
    """Which statements of a file may fail in this run; None where none may."""
    if not request.repair:
        return None
    if filename != request.plan.sources[0].filename:
        return lambda statement: True
    wanted = frozenset(request.plan.slice_rows)
    targets = frozenset(request.plan.target_rows)

    def may_fail(statement: ast.stmt) -> bool:
        rows = range(statement.lineno, _last_row(statement) + 1)
        return targets.isdisjoint(rows) and (wanted.isdisjoint(rows) or not _is_event(statement))

    return may_fail


def _is_event(statement: ast.stmt) -> bool:
    """Whether a statement itself does something to scalers, gradients or optimizers."""
    own = _own(statement)
    return any(isinstance(node, ast.Attribute) and node.attr in EVENTS for node in ast.walk(own))


def first_row(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The row on which Python says that a function starts."""
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def _assigned(node: ast.FunctionDef, owner: str) -> frozenset[str]:
    """What is assigned to attributes: "rate" of `self.rate = 0.1`."""
    return frozenset(
        inner.attr
        for inner in ast.walk(node)
        if isinstance(inner, ast.Attribute)
        and isinstance(inner.ctx, ast.Store)
        and isinstance(inner.value, ast.Name)
        and inner.value.id == owner
    )


def _kept(node: ast.FunctionDef, owner: str) -> frozenset[str]:
    """What keeps a parameter: "rate" of `self.rate = rate`, where that is one."""
    given = {argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)}
    return frozenset(
        target.attr
        for inner in ast.walk(node)
        if isinstance(inner, ast.Assign)
        and isinstance(inner.value, ast.Name)
        and inner.value.id in given
        for target in inner.targets
        if isinstance(target, ast.Attribute)
        and isinstance(target.value, ast.Name)
        and target.value.id == owner
    )


def _names_read_now(statement: ast.stmt) -> Iterator[str]:
    queue: list[ast.AST] = [statement]
    while queue:
        node = queue.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            queue += [*node.decorator_list, *node.args.defaults]
            queue += [default for default in node.args.kw_defaults if default is not None]
            continue
        if isinstance(node, ast.Lambda):
            continue
        annotation = node.annotation if isinstance(node, ast.AnnAssign) else None
        queue += [child for child in ast.iter_child_nodes(node) if child is not annotation]


def _text_of(filename: str) -> str:
    try:
        return Path(filename).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def rows_of(node: ast.AST) -> tuple[int, int]:
    """The first and the last row of a statement or an expression."""
    first: int = node.lineno  # type: ignore[attr-defined]
    return first, getattr(node, "end_lineno", None) or first


def _last_row(statement: ast.stmt) -> int:
    """The last row of what a statement does itself, without the statements in it."""
    return getattr(_own(statement), "end_lineno", None) or statement.lineno


def _own(statement: ast.stmt) -> ast.AST:
    """A statement without the statements in it."""
    if isinstance(statement, ast.If):
        return statement.test
    if isinstance(statement, ast.For):
        return statement.iter
    return statement


class Projects:
    """Projects by plan: a warm worker parses a file once for many runs."""

    def __init__(self) -> None:
        self._projects: dict[tuple[Source, ...], Project] = {}

    def of(self, plan: Plan) -> Project:
        """The project of a plan; its checked file is parsed already."""
        project = self._projects.get(plan.sources)
        if project is None:
            while len(self._projects) >= KEPT:  # what a process holds makes each fork of it dearer
                del self._projects[next(iter(self._projects))]
            project = self._projects[plan.sources] = Project(plan.sources)
            project.uses()
            project.keys()
            _ = project.stored, project.counts  # parsed once for all runs
            project.read_imported(plan.sources[plan.entry_source].filename)
        return project

    def prepare(self, request: Request, used: Used) -> None:
        """Compile what a run has executed, and read what it read, so that the next one finds it."""
        project = self.of(request.plan)
        for filename, names in used.read.items():
            source = project.module(filename)
            if source is not None:
                source.read_again(names)
        for filename, index, effects in used.executed:
            source = project.module(filename)
            if source is not None:
                key = repair_key(request, filename)
                source.code(index, effects, repair_of(request, filename), key)
                source.warm(index)


def _is_number(expression: ast.expr) -> bool:
    """Whether the left side of `%` may be a number: no text is formatted."""
    return not isinstance(expression, (ast.Constant, ast.JoinedStr))


def _top_level(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of a module; those of `if __name__ == "__main__"` count as top level."""
    for statement in body:
        if isinstance(statement, ast.If) and _is_main_guard(statement.test):
            yield from _top_level(statement.body)
        else:
            yield statement


def _without_effects(statement: ast.stmt) -> ast.stmt:
    """A compound statement without the calls in it that nobody asked for."""
    if not isinstance(statement, (ast.If, ast.Try, ast.With)):
        return statement
    for node in ast.walk(statement):
        for name, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                kept = [inner for inner in value if not isinstance(inner, ast.Expr)]
                setattr(node, name, kept or [ast.copy_location(ast.Pass(), value[0])])
    return statement


def _is_main_guard(test: ast.expr) -> bool:
    return any(isinstance(node, ast.Name) and node.id == "__name__" for node in ast.walk(test))
