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
- for such a question, where the project makes scalers of the newer class: what is said of them would
  change;
- for `autocast(device_type=...)`, which the older class does not take (AMP209) and the newer one does;
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
from amplint.amp.names import (
    DEVICE_AUTOCAST_PARAMETERS,
    DEVICE_GRAD_SCALERS,
    DEVICE_SCALER_PARAMETERS,
    GRAD_SCALERS,
)
from amplint.amp.old_amp import (
    ASKS_FOR_CLASS,
    MEMBERS,
    MODULES,
    SINCE,
    Old,
    Use,
    asks_version,
    is_called_as_fallback,
    is_fallback,
    is_newer,
    is_newer_optional,
    is_old,
    members_of,
    stands_beside_newer,
    tests_for_scaler,
    type_role,
)
from amplint.amp.target_torch import Version, target_torch
from amplint.code.meanings import Imported
from amplint.code.module import Function
from amplint.code.scopes import Scopes
from amplint.expectations import NOTHING_TO_RUN
from amplint.findings import Finding, Severity
from amplint.fixing.statements import code_of
from amplint.fixing.verbs import Add, Insert, Name, Rename, Repair, Verb, Write
from amplint.rule import Rule
from amplint.view import FileView

RULE = Rule(
    code="AMP801",
    name="deprecated-amp-api",
    severity=Severity.WARNING,
    effect="api",
    summary="`torch.cuda.amp` or `torch.cpu.amp` where torch has `torch.amp`",
    facts=("A17",),
    fix="safe",
    unprobed=NOTHING_TO_RUN,
)

MESSAGE = "`{old}` is deprecated since torch 2.4{warns}: use `{new}`"
#: What torch 2.4 and newer say, by kind of use; an annotation or an import warns of nothing.
WARNS = {
    "call": " and warns at each call",
    "base": " and warns for subclasses",
    "": "",
}
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

_NEWER_SCALERS = GRAD_SCALERS - DEVICE_GRAD_SCALERS


def check(view: FileView) -> Iterator[Finding]:
    """Report the uses of the older interface that the target torch can do without."""
    if "amp" not in view.module.source or not _MENTION.search(view.module.source):
        return
    scopes = view.module.scopes
    imports = [imported for imported in scopes.imports if is_old(imported)]
    stars = [node for node in scopes.parents if _is_star(node)]
    handed_on = list(_handed_on(view, imports))
    if not imports and not stars and not handed_on:
        return
    target = target_torch(view.project, view.module)
    older = _Interface(view, scopes, target, imports)
    for imported in imports:
        yield from _judge(view, older, imported)
    for use in handed_on:
        if older.is_wrong(use):
            call = SHORT[use.old.name].format(device=use.old.device)
            yield _finding(view, use.node, use.old, call, None, older.kind(use))
    if target is None or target >= max(SINCE.values()):
        for star in stars:
            yield view.finding(RULE, star, STAR.format(module=star.module), HELP_STAR)


def _judge(view: FileView, older: _Interface, imported: Imported) -> Iterator[Finding]:
    """Report what is read through one import, or the import itself if nothing is."""
    if older.is_silent(imported):
        return
    uses = older.uses(imported)
    for use in uses:
        if older.is_wrong(use):
            help, fix = older.help(use), older.fix(use)
            yield _finding(view, use.node, use.old, help, fix, older.kind(use))
    old = MEMBERS.get(imported.dotted)
    if old is not None and not older.is_read(imported) and older.is_available(old):
        fix = older.import_fix(imported)
        yield _finding(view, imported.alias, old, SHORT[old.name].format(device=old.device), fix)


def _handed_on(view: FileView, imports: list[Imported]) -> Iterator[Use]:
    """Calls of the older interface of a torch that another file of the project hands on."""
    scopes = view.module.scopes
    found = (item for each in imports for item in members_of(each, scopes))
    known = {item.node for item in found if isinstance(item, Use)}
    for site in view.module.calls:
        callee = site.node.func
        old = MEMBERS.get(site.dotted or "") if isinstance(callee, ast.Attribute) else None
        if old is not None and callee not in known:
            yield Use(callee, old)


def _finding(
    view: FileView, node: ast.AST, old: Old, call: str, fix: Repair | None, kind: str = ""
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


class _Interface:
    """The older interface in one file: what of it counts, and what makes it the newer one.

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
        self._items = {each: list(members_of(each, scopes)) for each in imports}
        self._functions = {site.node: site.function for site in view.module.calls}
        self._import_fixes: dict[ast.stmt, Repair | None] = {}
        self._convertible: dict[Imported, bool] = {}
        self._optional: dict[str, bool] = {}
        self._for_older: dict[Function, bool] = {view.module.body: False}
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
        if is_fallback(node, self._view.module, self._asks_version):
            return True
        function = self._function_around(node)
        if function not in self._for_older:
            self._for_older[function] = is_called_as_fallback(self._view.objects, function)
        return self._for_older[function]

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

    def fix(self, use: Use) -> Repair | None:
        """The fix of a use, together with the import and its other uses where it needs that."""
        if use.imported is None:
            return None
        if use.imported.dotted in MEMBERS or use.imported.dotted in MODULES:
            return self.import_fix(use.imported)
        verbs = self._verbs(use)
        if verbs is None or use.imported.dotted != "torch":
            return None
        name = Write(use.node, f"{use.imported.name}.amp.{use.old.name}")
        return self._fix((name, *verbs), [use])

    def import_fix(self, imported: Imported) -> Repair | None:
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
        if not isinstance(call, ast.Call) or call.func is not use.node:
            return short
        if self._verbs(use) is None or _is_newer_form(call, use.old):
            return short
        words = [code_of(self._view, item) for item in (*call.args, *call.keywords)]
        if use.old.name == "autocast":
            names = DEVICE_AUTOCAST_PARAMETERS[: len(call.args)]
            words[: len(names)] = [f"{name}={word}" for name, word in zip(names, words)]
        is_custom = use.old.name.startswith("custom_")
        place = len(call.args) if is_custom else 0
        device = self._device(use.old)
        words.insert(place, f"device_type={device}" if is_custom else device)
        written = f"torch.amp.{use.old.name}({', '.join(words)})"
        return short if len(written) > 80 or "\n" in written or "\r" in written else written

    def _fix(self, verbs: Iterable[Verb], uses: Iterable[Use], *, sure: bool = True) -> Repair:
        """Verbs that move these uses; `sure` if every torch in question has the newer interface."""
        roles = {type_role(use.node, self._scopes) for use in uses if use.old.name == "GradScaler"}
        raises = any(
            isinstance(call := self._scopes.parents.get(use.node), ast.Call)
            and _is_newer_form(call, use.old)
            for use in uses
        )
        is_safe = (
            sure
            and not raises
            and not ("" in roles and self._is_class_asked_for)
            and not ("test" in roles and self._is_newer_made)
        )
        return Repair(self._applicability if is_safe else "unsafe", tuple(verbs))

    @cached_property
    def _is_class_asked_for(self) -> bool:
        """Whether the project tells the older scaler's class from others: the newer is its base."""
        own = [
            use for each in self._items for use in self.uses(each) if use.old.name == "GradScaler"
        ]
        return any(
            (not self.kind(use) and self._verbs(use) is None)
            or (type_role(use.node, self._scopes) == "test" and self._is_newer_made)
            for use in own
        ) or any(
            tests_for_scaler(other)
            for test in sorted(ASKS_FOR_CLASS)
            for other in self._view.project.mentioning(self._view.module, test, "GradScaler")
        )

    @cached_property
    def _is_newer_made(self) -> bool:
        """Whether the project makes scalers of the newer class, which are none of the older."""
        module = self._view.module
        others = self._view.project.mentioning(module, "GradScaler", "amp")
        return any(
            site.dotted in _NEWER_SCALERS for each in (module, *others) for site in each.calls
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
                isinstance(item, Use) and self.is_wrong(item) and self._verbs(item) is not None
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
        return not self._view.objects.mentions.is_imported(imported.name, module)

    def _statement_fix(self, statement: ast.Import | ast.ImportFrom) -> Repair:
        moving = [one for one in self._items if one.statement is statement and self._can_move(one)]
        uses = [use for imported in moving for use in self.uses(imported)]
        verbs = [verb for use in uses for verb in self._verbs(use) or ()]
        sure = self._target is not None or not self._is_optional(statement)
        return self._fix(
            (*_moved(statement, [one.alias for one in moving]), *verbs), uses, sure=sure
        )

    def _verbs(self, use: Use) -> tuple[Verb, ...] | None:
        """What makes a use one of the newer interface, besides its name.

        None if the use cannot be rewritten, or not for certain.
        """
        parent = self._scopes.parents.get(use.node)
        if any(isinstance(outer, ast.JoinedStr) for outer in self._scopes.ancestors(use.node)):
            return None
        if isinstance(parent, ast.Call) and parent.func is use.node:
            return self._call_verbs(parent, use.old, skip=0)
        if isinstance(parent, ast.Call) and use.node is parent.args[0] and self._is_partial(parent):
            return self._call_verbs(parent, use.old, skip=1)
        if use.old.name.startswith("custom_"):
            if use.node not in getattr(parent, "decorator_list", ()):
                return None
            return (Write(use.node, f"{{}}(device_type={self._device(use.old)})"),)
        return () if type_role(use.node, self._scopes) else None

    def _is_partial(self, call: ast.Call) -> bool:
        return self._view.module.resolve(call.func) == "functools.partial"

    def _call_verbs(self, call: ast.Call, old: Old, *, skip: int) -> tuple[Verb, ...] | None:
        """The device as an argument, and names for those whose places have changed.

        Args:
            skip: number of leading arguments that are not for it: 1 in `partial(autocast, ...)`.
        """
        if not _is_in_order(call):
            return None
        if not skip and _is_newer_form(call, old):
            return ()
        positional = call.args[skip:]
        words = [item.arg for item in call.keywords]
        if old.name == "GradScaler":
            function = self._functions.get(call)
            if not set(words) <= {*DEVICE_SCALER_PARAMETERS, None} or function is None:
                return None
            if any(self._is_odd(item, function) for item in positional[:1]):
                return None
            return (Add(call, self._device(old), skip),)
        if any(isinstance(argument, ast.Starred) for argument in positional):
            return None
        if old.name != "autocast":
            if skip or len(positional) > 1 or not set(words) <= {"cast_inputs"}:
                return None
            return (Add(call, self._device(old), len(positional), "device_type"),)
        names = DEVICE_AUTOCAST_PARAMETERS[: len(positional)]
        known = {*DEVICE_AUTOCAST_PARAMETERS[len(names) :], None}
        if len(positional) > len(names) or not set(words) <= known or _is_text(positional):
            return None
        if skip and "enabled" not in {*names, *words}:
            return None  # a later call may pass it by position
        named = Name(call, {skip + 1 + index: name for index, name in enumerate(names)})
        return (Add(call, self._device(old), skip), named)

    def _is_odd(self, argument: ast.expr, function: Function) -> bool:
        """Whether an argument is no factor: AMP208 has to be solved first."""
        if isinstance(argument, ast.Constant) and isinstance(argument.value, (bool, str)):
            return True
        return is_flag(self._view.values, argument, function)

    def _device(self, old: Old) -> str:
        return f"{self._quote}{old.device}{self._quote}"


def _moved(statement: ast.Import | ast.ImportFrom, aliases: list[ast.alias]) -> Iterator[Verb]:
    """Let names of an import come from `torch.amp`, or `torch.amp` itself from `torch`."""
    if isinstance(statement, ast.Import):
        yield Rename(statement, {alias: MODULES[alias.name] for alias in aliases})
        return
    module = "torch.amp" if statement.module in MODULES else "torch"
    if len(aliases) == len(statement.names):
        yield Rename(statement, dict.fromkeys(aliases, module))
        return
    yield Insert(statement, f"from {module} import {', '.join(map(ast.unparse, aliases))}")
    yield Rename(statement, dict.fromkeys(aliases))


def _is_in_order(call: ast.Call) -> bool:
    """Whether all positional arguments stand before those with names."""
    return all(
        (argument.lineno, argument.col_offset) < (item.lineno, item.col_offset)
        for argument in call.args
        for item in call.keywords
    )


def _is_newer_form(call: ast.Call, old: Old) -> bool:
    """Whether `autocast` is called as only the newer one can be: the older one raises."""
    words = [item.arg for item in call.keywords]
    is_known = {*words} <= {"device_type", *DEVICE_AUTOCAST_PARAMETERS}
    return old.name == "autocast" and "device_type" in words and not call.args and is_known


def _is_text(arguments: list[ast.expr]) -> bool:
    """Whether the first argument is no switch but a device."""
    first = arguments[0] if arguments else None
    return isinstance(first, ast.Constant) and isinstance(first.value, str)


def _in_all(tree: ast.Module, name: str) -> bool:
    """Whether a module lists a name in `__all__`."""
    for statement in tree.body:
        targets = getattr(statement, "targets", None) or [getattr(statement, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            words = (node.value for node in ast.walk(statement) if isinstance(node, ast.Constant))
            if name in words:
                return True
    return False
