"""# deprecated-amp-api (AMP801)

`torch.cuda.amp` or `torch.cpu.amp` is used, although every torch in question has `torch.amp`.

## What it does
Flags `autocast`, `GradScaler`, `custom_fwd` and `custom_bwd` of `torch.cuda.amp` and
`torch.cpu.amp`, under whatever name they were imported: calls, decorators, base classes,
annotations and bare references. An import is flagged where nothing in the file reads it.

Whether there is a replacement depends on torch: `torch.amp.autocast` came with 1.12,
`torch.amp.GradScaler` with 2.3, `torch.amp.custom_fwd` and `custom_bwd` with 2.4. The rule asks the
setting `target-torch`, else what the project requires (`pyproject.toml`, `setup.cfg`, `setup.py`,
`requirements*.txt`, `environment*.yml`), and is silent about names without replacement on the
oldest of these versions. Without any requirement the newest torch counts.

## Why is this bad?
Since torch 2.4 calls, decorators and subclasses warn: "FutureWarning:
`torch.cuda.amp.autocast(args...)` is deprecated. Please use `torch.amp.autocast('cuda', args...)`
instead." The old names are bound to one device, so
the code cannot move to another one, and they will be removed.

## Example
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
loader = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(4)]

for inputs, targets in loader:
    optimizer.zero_grad()
    with torch.cpu.amp.autocast(True, torch.float16):
        outputs = model(inputs)
    loss = torch.nn.functional.mse_loss(outputs.float(), targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
```

## Use instead
```python
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
loader = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(4)]

for inputs, targets in loader:
    optimizer.zero_grad()
    with torch.amp.autocast("cpu", enabled=True, dtype=torch.float16):
        outputs = model(inputs)
    loss = torch.nn.functional.mse_loss(outputs.float(), targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
```

## How it is confirmed
Executing the example prints the FutureWarning; both programs train alike.

## Fix safety
Safe: the old names are thin wrappers, and the fixed call passes the same values. The device comes
first, and positional arguments of `autocast` get their names, because their order has changed. An
import is rewritten together with all its uses, in one edit. It is left alone, and there is no fix,
where a use cannot be rewritten (an alias, a base class, `*args`), where the name is also bound to
something else, and where other files or `__all__` need it. The fix is unsafe

- where the file calls `torch.set_autocast_gpu_dtype` or its relatives: the new names follow these
  defaults, the old ones do not;
- for a scaler, where the project asks objects for the older class (`isinstance`): the newer one is its
  base, so that the answer would be no;
- for an import in a `try`, where nobody says which torch the code runs on: an older torch would go on
  without AMP, and nobody would see why.

## Known limits
Branches for an older torch (`except ImportError`, tests of versions, `hasattr(torch.amp, ...)`) are
left alone in files that also know the newer interface; branches of a test that surely reads
`torch.__version__`, through whatever function of the project, and imports with a class or function
of its own as fallback are left alone everywhere. So are a type test that accepts the newer class
as well, and annotations and type tests in a file that takes the newer class only from some version
on. Names in strings are not seen, and other files of the project are searched for uses of a name
only up to 5,000 files. A module alias that is an attribute (`self.amp = torch.cuda.amp`) is not
followed.

## References
- PyTorch, Automatic Mixed Precision package: deprecation notes of `torch.cuda.amp.autocast`,
  `torch.cuda.amp.GradScaler`, `torch.cuda.amp.custom_fwd`
- `torch/cuda/amp/autocast_mode.py`, `torch/cuda/amp/grad_scaler.py`, `torch/cpu/amp`
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TypeGuard

from amplint.amp.flags import is_flag
from amplint.amp.old_amp import (
    MEMBERS,
    MODULES,
    SINCE,
    Old,
    Use,
    asks_version,
    is_fallback,
    is_newer,
    is_newer_optional,
    is_old,
    members_of,
    stands_beside_newer,
)
from amplint.amp.target_torch import Version, target_torch
from amplint.code.module import Function, Module
from amplint.code.scopes import Imported, Scopes
from amplint.findings import Edit, Finding, Fix, Position, Severity, Span
from amplint.fixing.edits import apply, joined, moved, resolve
from amplint.rule import Rule
from amplint.source.call_text import CallText, call_text
from amplint.source.positions import LineTable
from amplint.view import FileView

RULE = Rule(
    code="AMP801",
    name="deprecated-amp-api",
    severity=Severity.WARNING,
    effect="api",
    summary="`torch.cuda.amp` or `torch.cpu.amp` where torch has `torch.amp`",
    facts=("A17",),
    fix="safe",
)

MESSAGE = "`{old}` is deprecated since torch 2.4{warns}: `{new}` does the same for any device"
#: What torch 2.4 and newer say, by kind of use; an annotation or an import warns of nothing.
WARNS = {"call": ", which warns at each call", "base": ", which warns for subclasses", "": ""}
STAR = "`from {module} import *` brings in the deprecated interface of torch < 2.4"
HELP = "write `{call}`"
SHORT = {
    "autocast": 'torch.amp.autocast("{device}", ...)',
    "GradScaler": 'torch.amp.GradScaler("{device}", ...)',
    "custom_fwd": '@torch.amp.custom_fwd(device_type="{device}")',
    "custom_bwd": '@torch.amp.custom_bwd(device_type="{device}")',
}
HELP_STAR = "import the names that are needed from `torch.amp`"

#: Whether the file can hold the old interface at all: `cuda.amp`, or an import of `cuda`.
_MENTION = re.compile(
    r"\b(?:cuda|cpu)[\s\\]*\.[\s\\]*amp\b"
    r"|\b(?:import|from)\b(?:[^\n(]|\\\n)*(?:\([^)]*)?\b(?:cuda|cpu)\b"
)
#: Defaults that the newer `autocast` follows and the older one does not.
_DEFAULTS = re.compile(r"\bset_autocast_(?:gpu_dtype|cpu_dtype|dtype|cache_enabled)\b")

_TYPE_TESTS = ("isinstance", "issubclass")
_AUTOCAST_PARAMETERS = ("enabled", "dtype", "cache_enabled")
_SCALER_PARAMETERS = frozenset(
    ("init_scale", "growth_factor", "backoff_factor", "growth_interval", "enabled")
)


def check(view: FileView) -> Iterator[Finding]:
    """Report the uses of the older interface that the target torch can do without."""
    if "amp" not in view.module.source or not _MENTION.search(view.module.source):
        return
    scopes = view.module.scopes
    imports = [imported for imported in scopes.imports if is_old(imported)]
    stars = [node for node in scopes.parents if _is_star(node)]
    if not imports and not stars:
        return
    target = target_torch(view.project, view.module)
    rewriter = _Rewriter(view, scopes, target, imports)
    for imported in imports:
        yield from _judge(view, rewriter, imported)
    if target is None or target >= max(SINCE.values()):
        for star in stars:
            yield view.finding(RULE, star, STAR.format(module=star.module), HELP_STAR)


def _judge(view: FileView, rewriter: _Rewriter, imported: Imported) -> Iterator[Finding]:
    """Report what is read through one import, or the import itself if nothing is."""
    if rewriter.is_silent(imported):
        return
    uses = rewriter.uses(imported)
    for use in uses:
        if rewriter.is_wrong(use):
            help, fix = rewriter.help(use), rewriter.fix(use)
            yield _finding(view, use.node, use.old, help, fix, rewriter.kind(use))
    old = MEMBERS.get(imported.dotted)
    if old is not None and not rewriter.is_read(imported) and rewriter.is_available(old):
        fix = rewriter.import_fix(imported)
        yield _finding(view, imported.alias, old, SHORT[old.name].format(device=old.device), fix)


def _finding(
    view: FileView, node: ast.AST, old: Old, call: str, fix: Fix | None, kind: str = ""
) -> Finding:
    words = {"old": f"torch.{old.device}.amp.{old.name}", "new": f"torch.amp.{old.name}"}
    message = MESSAGE.format(**words, warns=WARNS[kind])
    return view.finding(RULE, node, message, HELP.format(call=call), fix=fix)


def _is_star(node: ast.AST) -> TypeGuard[ast.ImportFrom]:
    return (
        isinstance(node, ast.ImportFrom)
        and not node.level
        and node.module in MODULES
        and node.names[0].name == "*"
    )


class _Rewriter:
    """What can be rewritten in one file, and the edits that do it.

    Args:
        target: the oldest torch that counts; None for the newest.
        imports: every import of the file that leads to the older interface.
    """

    def __init__(
        self,
        view: FileView,
        scopes: Scopes,
        target: Version | None,
        imports: list[Imported],
    ) -> None:
        self._view = view
        self._scopes = scopes
        self._target = target
        self._lines = LineTable(view.module.source)
        self._items = {each: list(members_of(each, scopes)) for each in imports}
        self._functions = {site.node: site.function for site in view.module.calls}
        self._import_fixes: dict[ast.stmt, Fix | None] = {}
        self._convertible: dict[Imported, bool] = {}
        self._optional: dict[str, bool] = {}
        source = view.module.source
        self._quote = "'" if source.count("'") > source.count('"') else '"'
        self._applicability = "unsafe" if _DEFAULTS.search(source) else "safe"

    # -- what counts ---------------------------------------------------------------------------

    def uses(self, imported: Imported) -> list[Use]:
        """What is used through an import, in source order."""
        return [item for item in self._items[imported] if isinstance(item, Use)]

    def is_read(self, imported: Imported) -> bool:
        """Whether anything reads the name."""
        return bool(self._items[imported])

    def is_available(self, old: Old) -> bool:
        """Whether every torch in question has the replacement."""
        return self._target is None or self._target >= old.since

    def is_silent(self, imported: Imported) -> bool:
        """Whether the name may be something else, or is the fallback for an older torch."""
        if self._is_fallback(imported.statement):
            return True
        rivals = self._scopes.rivals(imported)
        others = [rival for rival in rivals if self._dotted(rival) != imported.dotted]
        if any(is_newer(self._dotted(rival) or "") for rival in others):
            return True
        return not all(self._only_without(imported, rival) for rival in others)

    def kind(self, use: Use) -> str:
        """How a name is used: a key of `WARNS`."""
        parent = self._scopes.parents.get(use.node)
        if isinstance(parent, ast.Call) and parent.func is use.node:
            return "call"
        if use.node in getattr(parent, "decorator_list", ()):
            return "call"
        return "base" if isinstance(parent, ast.ClassDef) and use.node in parent.bases else ""

    def is_wrong(self, use: Use) -> bool:
        """Whether a use is to be reported."""
        if not self.is_available(use.old) or self._is_fallback(use.node):
            return False
        if stands_beside_newer(use.node, use.old.name, self._scopes):
            return False
        return bool(self.kind(use)) or not self._is_newer_optional(use.old.name)

    def _is_newer_optional(self, name: str) -> bool:
        """Whether the file also runs where the replacement is missing: types cannot do without."""
        if name not in self._optional:
            tree = self._view.module.tree
            self._optional[name] = is_newer_optional(name, tree, self._asks_version)
        return self._optional[name]

    def _is_fallback(self, node: ast.AST) -> bool:
        return is_fallback(node, self._scopes, self._view.module.source, self._asks_version)

    def _asks_version(self, test: ast.expr) -> bool:
        return asks_version(self._view.objects, test, self._function_around(test))

    def _function_around(self, node: ast.AST) -> Function:
        """The function that evaluates a node, or the module body."""
        functions: dict[ast.AST, Function] = {
            function.node: function for function in self._view.module.functions
        }
        around = (functions.get(outer) for outer in self._scopes.ancestors(node))
        return next(filter(None, around), self._view.module.body)

    def _dotted(self, binder: ast.AST) -> str | None:
        """What an import binds; None for any other binding."""
        found = (each.dotted for each in self._scopes.imports if each.alias is binder)
        return next(found, None)

    def _only_without(self, imported: Imported, rival: ast.AST) -> bool:
        """Whether a rival binds the name only where the import has failed.

        A class or function of its own does not count: such a project runs where there is no AMP
        at all, and would take it instead of the newer interface on all versions between.
        """
        if isinstance(rival, (ast.ClassDef, ast.FunctionDef)):
            return False
        for outer in self._scopes.ancestors(imported.statement):
            if isinstance(outer, ast.Try) and imported.statement in outer.body:
                return any(handler in self._around(rival) for handler in outer.handlers)
        return False

    def _around(self, node: ast.AST) -> set[ast.AST]:
        return {node, *self._scopes.ancestors(node)}

    # -- fixes ---------------------------------------------------------------------------------

    def fix(self, use: Use) -> Fix | None:
        """The fix of a use, together with the import and its other uses where it needs that."""
        if use.imported.dotted in MEMBERS or use.imported.dotted in MODULES:
            return self.import_fix(use.imported)
        edits = self._use_edits(use)
        name = self._name_edit(use)
        return None if edits is None or name is None else self._fix((name, *edits), [use])

    def import_fix(self, imported: Imported) -> Fix | None:
        """The fix of an import: its statement and every use of what it brings in."""
        if not self._can_move(imported):
            return None
        statement = imported.statement
        if statement not in self._import_fixes:
            self._import_fixes[statement] = self._statement_fix(statement)
        return self._import_fixes[statement]

    def help(self, use: Use) -> str:
        """The code to type."""
        short = SHORT[use.old.name].format(device=use.old.device)
        call = self._scopes.parents.get(use.node)
        edits = self._use_edits(use)
        if not isinstance(call, ast.Call) or call.func is not use.node or not edits:
            return short
        changes = resolve(edits, self._lines, "\n")
        start = self._lines.offset(self._view.span_of(use.node).end)
        end = moved(self._lines.offset(self._view.span_of(call).end), changes)
        arguments = apply(self._lines.source, changes)[start:end]
        written = f"torch.amp.{use.old.name}{arguments}"
        return short if len(written) > 80 or "\n" in written or "\r" in written else written

    def _fix(self, edits: Iterable[Edit], uses: Iterable[Use], *, sure: bool = True) -> Fix:
        """Edits that move these uses; `sure` if every torch in question has the newer interface."""
        makes = any(
            use.old.name == "GradScaler" and not _is_type_only(use.node, self._scopes)
            for use in uses
        )
        safe = sure and not (makes and self._is_class_asked_for)
        return Fix(self._applicability if safe else "unsafe", tuple(joined(edits)))

    @cached_property
    def _is_class_asked_for(self) -> bool:
        """Whether the project tells the older scaler's class from others: the newer is its base."""
        own = (use for each in self._items for use in self.uses(each))
        return any(
            use.old.name == "GradScaler" and not self.kind(use) and self._use_edits(use) is None
            for use in own
        ) or any(
            _tests_for_scaler(other)
            for test in _TYPE_TESTS
            for other in self._view.project.mentioning(self._view.module, test, "GradScaler")
        )

    def _is_optional(self, statement: ast.stmt) -> bool:
        """Whether the program goes on without the import, so that nobody would see it fail."""
        inner: ast.AST = statement
        for outer in self._scopes.ancestors(statement):
            if isinstance(outer, ast.Try) and inner in outer.body and outer.handlers:
                return True
            inner = outer
        return False

    def _can_move(self, imported: Imported) -> bool:
        """Whether an import of a name or module can be rewritten with all its uses."""
        if imported not in self._convertible:
            self._convertible[imported] = self._is_free(imported) and all(
                isinstance(item, Use) and self.is_wrong(item) and self._use_edits(item) is not None
                for item in self._items[imported]
            )
        return self._convertible[imported]

    def _is_free(self, imported: Imported) -> bool:
        """Whether nobody else needs the import as it is."""
        if self.is_silent(imported) or self._scopes.rivals(imported):
            return False
        old = MEMBERS.get(imported.dotted)
        if old is not None and not self.is_available(old):
            return False
        if not self._scopes.is_global(imported):
            return True
        module = self._view.module
        if module.filename.endswith(("__init__.py", ".pyi")):
            return False
        # `import a as a` that nothing reads is the sign of a name that is passed on.
        passed_on = imported.alias.asname == imported.alias.name and not self.is_read(imported)
        if passed_on or _in_all(module.tree, imported.name):
            return False
        return not self._view.project.is_imported_from(module, imported.name)

    def _name_edit(self, use: Use) -> Edit | None:
        """`torch.cuda.amp.autocast` to `torch.amp.autocast`, whatever torch is called."""
        root = use.imported.name
        if use.imported.dotted != "torch":
            return None
        span = self._view.span_of(use.node)
        if self._lines.text(span) != ast.unparse(use.node):
            return None  # spread over lines, or inside an f-string
        return Edit(span, f"{root}.amp.{use.old.name}")

    # -- statements ----------------------------------------------------------------------------

    def _statement_fix(self, statement: ast.Import | ast.ImportFrom) -> Fix | None:
        mine = [each for each in self._items if each.statement is statement]
        moving = [each for each in mine if self._can_move(each)]
        edits = self._import_edits(statement, [each.alias for each in moving])
        if edits is None:
            return None
        uses = [use for imported in moving for use in self.uses(imported)]
        for use in uses:
            edits += self._use_edits(use) or ()
        sure = self._target is not None or not self._is_optional(statement)
        return self._fix(edits, uses, sure=sure)

    def _import_edits(
        self, statement: ast.Import | ast.ImportFrom, aliases: list[ast.alias]
    ) -> list[Edit] | None:
        if isinstance(statement, ast.Import):
            return [
                Edit(self._view.span_of(alias), f"{MODULES[alias.name]} as {alias.asname}")
                for alias in aliases
            ]
        module = "torch.amp" if statement.module in MODULES else "torch"
        if len(aliases) == len(statement.names):
            return self._rename_module(statement, module)
        return self._split(statement, aliases, module)

    def _rename_module(self, statement: ast.ImportFrom, module: str) -> list[Edit] | None:
        start = self._view.span_of(statement).start
        match = re.match(r"from[ \t]+([\w.]+)[ \t]+import\b", self._after(start))
        if match is None or match[1] != statement.module:
            return None
        return [Edit(self._span(self._lines.offset(start), *match.span(1)), module)]

    def _split(
        self, statement: ast.ImportFrom, aliases: list[ast.alias], module: str
    ) -> list[Edit] | None:
        """A statement of their own for some of the names, before the one that stays."""
        start = self._view.span_of(statement).start
        moved_names = ", ".join(ast.unparse(alias) for alias in aliases)
        before = self._lines.line(start.row)[: start.column - 1]
        separator = "; " if before.strip() else f"\n{before}"
        edits = [Edit(Span(start, start), f"from {module} import {moved_names}{separator}")]
        names = statement.names
        for index, alias in enumerate(names):
            if alias not in aliases:
                continue
            if any(other not in aliases for other in names[index + 1 :]):
                first = self._view.span_of(alias).start
                last = self._view.span_of(names[index + 1]).start
            else:  # nothing that stays follows: take the comma before it instead
                first = self._view.span_of(names[index - 1]).end
                last = self._view.span_of(alias).end
            if "#" in self._lines.text(Span(first, last)):
                return None
            edits.append(Edit(Span(first, last), ""))
        return joined(edits)

    def _after(self, position: Position) -> str:
        return self._lines.source[self._lines.offset(position) :][:400]

    def _span(self, base: int, first: int, last: int) -> Span:
        return Span(self._lines.position_at(base + first), self._lines.position_at(base + last))

    # -- uses ----------------------------------------------------------------------------------

    def _use_edits(self, use: Use) -> tuple[Edit, ...] | None:
        """The edits around a name that make its use one of the newer interface.

        None if the use cannot be rewritten, or not for certain.
        """
        parents = self._scopes.parents
        parent = parents.get(use.node)
        if any(isinstance(outer, ast.JoinedStr) for outer in self._scopes.ancestors(use.node)):
            return None
        if isinstance(parent, ast.Call) and parent.func is use.node:
            return self._call_edits(parent, use.old, skip=0)
        if isinstance(parent, ast.Call) and use.node is parent.args[0] and self._is_partial(parent):
            return self._call_edits(parent, use.old, skip=1)
        if use.old.name.startswith("custom_"):
            decorates = use.node in getattr(parent, "decorator_list", ())
            end = self._view.span_of(use.node).end
            return (Edit(Span(end, end), f"({self._device_type(use.old)})"),) if decorates else None
        return () if _is_type_only(use.node, self._scopes) else None

    def _is_partial(self, call: ast.Call) -> bool:
        return self._view.module.resolve(call.func) == "functools.partial"

    def _call_edits(self, call: ast.Call, old: Old, *, skip: int) -> tuple[Edit, ...] | None:
        text = call_text(self._lines, call)
        given = _Arguments(call, skip)
        if text is None or not given.are_plain(old.name):
            return None
        if old.name == "autocast":
            return self._autocast_edits(text, given, old)
        if old.name == "GradScaler":
            function = self._functions.get(call)
            if function is None or any(
                self._is_odd(item, function) for item in given.positional[:1]
            ):
                return None
            return (self._insert_device(text, old, skip),)
        return None if skip else (self._custom_edit(text, given, old),)

    def _is_odd(self, argument: ast.expr, function: Function) -> bool:
        """Whether an argument is no factor: AMP208 has to be solved first."""
        if isinstance(argument, ast.Constant) and isinstance(argument.value, (bool, str)):
            return True
        return is_flag(self._view.values, argument, function)

    def _autocast_edits(
        self, text: CallText, given: _Arguments, old: Old
    ) -> tuple[Edit, ...] | None:
        skip = given.skip
        if skip and "enabled" not in given.names:
            return None  # a later call may pass it by position
        edits = [self._insert_device(text, old, skip)]
        for name, argument, index in given.named_by_position():
            start = text.arguments[index][0]
            if isinstance(argument, ast.NamedExpr) and self._lines.source[start] != "(":
                return None
            edits.append(self._insert(start, f"{name}="))
        return tuple(joined(edits))

    def _insert_device(self, text: CallText, old: Old, skip: int) -> Edit:
        """The device as first argument behind the first `skip` ones."""
        device = f"{self._quote}{old.device}{self._quote}"
        if skip < len(text.arguments):
            start = text.arguments[skip][0]
            return self._insert(start, device + self._separator(start))
        if text.arguments:
            return self._insert(text.arguments[-1][1], f", {device}")
        return self._insert(text.opening, device)

    def _custom_edit(self, text: CallText, given: _Arguments, old: Old) -> Edit:
        device = self._device_type(old)
        if len(given.positional) < len(text.arguments):
            start = text.arguments[len(given.positional)][0]
            return self._insert(start, device + self._separator(start))
        if text.arguments:
            return self._insert(text.arguments[-1][1], f", {device}")
        return self._insert(text.opening, device)

    def _device_type(self, old: Old) -> str:
        return f"device_type={self._quote}{old.device}{self._quote}"

    def _separator(self, offset: int) -> str:
        """What stands between an inserted argument and the one that starts at an offset."""
        place = self._lines.position_at(offset)
        before = self._lines.line(place.row)[: place.column - 1]
        return ", " if before.strip() else f",\n{before}"

    def _insert(self, offset: int, content: str) -> Edit:
        place = self._lines.position_at(offset)
        return Edit(Span(place, place), content)


class _Arguments:
    """The arguments of a call of the older interface, in source order.

    Args:
        skip: number of leading arguments that are not for it: 1 in `partial(autocast, ...)`.
    """

    def __init__(self, call: ast.Call, skip: int) -> None:
        self.skip = skip
        self.positional = call.args[skip:]
        self.keywords = [item.arg for item in call.keywords]
        self._in_order = all(
            (argument.lineno, argument.col_offset) < (item.lineno, item.col_offset)
            for argument in call.args
            for item in call.keywords
        )

    @property
    def names(self) -> set[str | None]:
        """Parameters of `autocast` that are given."""
        return {*_AUTOCAST_PARAMETERS[: len(self.positional)], *self.keywords}

    def named_by_position(self) -> Iterator[tuple[str, ast.expr, int]]:
        """Each positional argument of `autocast`: its name, itself, its index in the text."""
        pairs = zip(_AUTOCAST_PARAMETERS, self.positional, strict=False)
        for index, (name, argument) in enumerate(pairs, start=self.skip):
            yield name, argument, index

    def are_plain(self, name: str) -> bool:
        """Whether the call is right by the older signature and can be rewritten."""
        if not self._in_order:
            return False
        if name == "GradScaler":
            return all(word is None or word in _SCALER_PARAMETERS for word in self.keywords)
        if any(isinstance(argument, ast.Starred) for argument in self.positional):
            return False
        if name != "autocast":
            return len(self.positional) <= 1 and set(self.keywords) <= {"cast_inputs"}
        if len(self.positional) > len(_AUTOCAST_PARAMETERS):
            return False
        taken = _AUTOCAST_PARAMETERS[: len(self.positional)]
        known = set(_AUTOCAST_PARAMETERS[len(taken) :]) | {None}
        return set(self.keywords) <= known and not _is_text(self.positional)


def _tests_for_scaler(module: Module) -> bool:
    """Whether a file asks objects for the older scaler's class."""
    return any(
        getattr(MEMBERS.get(module.resolve(node) or ""), "name", "") == "GradScaler"
        for site in module.calls
        if isinstance(site.node.func, ast.Name) and site.node.func.id in _TYPE_TESTS
        for argument in site.node.args[1:]
        for node in ast.walk(argument)
        if isinstance(node, (ast.Name, ast.Attribute))
    )


def _is_text(arguments: list[ast.expr]) -> bool:
    """Whether the first argument is no switch but a device."""
    first = arguments[0] if arguments else None
    return isinstance(first, ast.Constant) and isinstance(first.value, str)


def _is_type_only(node: ast.expr, scopes: Scopes) -> bool:
    """Whether a class is named only as a type: an annotation, or the test of `isinstance`."""
    inner: ast.AST = node
    for outer in scopes.ancestors(node):
        if inner in (getattr(outer, "annotation", None), getattr(outer, "returns", None)):
            return True
        if isinstance(outer, ast.Call):
            called = outer.func.id if isinstance(outer.func, ast.Name) else ""
            return called in _TYPE_TESTS and inner is outer.args[-1]
        if not isinstance(outer, (ast.Subscript, ast.Tuple, ast.BinOp)):
            return False
        inner = outer
    return False


def _in_all(tree: ast.Module, name: str) -> bool:
    """Whether a module lists a name in `__all__`."""
    for statement in tree.body:
        targets = getattr(statement, "targets", None) or [getattr(statement, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            words = (node.value for node in ast.walk(statement) if isinstance(node, ast.Constant))
            if name in words:
                return True
    return False
