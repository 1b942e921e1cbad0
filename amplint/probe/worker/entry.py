"""Calling the entry function: its arguments, and the object that it is a method of."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import sys
import types
from collections.abc import Iterator
from typing import Any

import torch

from amplint.probe.worker import commandline, slots, standins, values, words
from amplint.probe.worker.context import Run
from amplint.probe.worker.failures import is_amp_failure
from amplint.probe.worker.namespace import Loading, Namespace
from amplint.probe.worker.soft import soft

#: How many values of a generator are asked for.
YIELDS = 4
#: How deep classes are built from annotations.
DEPTH = 3

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
ANNOTATED = {
    "GradScaler": "scaler",
    "Optimizer": "optimizer",
    "Module": "model",
    "DataLoader": "loader",
    "Tensor": "tensor",
    "device": "device",
}


class EntryError(Exception):
    """The entry cannot be called; the text says why."""


class Entry:
    """The plan's entry function in its loaded module."""

    def __init__(self, run: Run, loading: Loading) -> None:
        self._run = run
        self._loading = loading
        self._module = loading.entry_module
        self._depth = 0

    def call(self) -> None:
        """Run the entry as often as it needs.

        Raises:
            EntryError: there is no such function, or its object cannot be made.
            Exception: whatever the user's code raises.
        """
        names: Namespace | None = self._module._amp_names
        if names is None:
            raise EntryError("the checked file cannot be parsed")
        self._loading.import_effects()
        if self._run.plan.entry == "<module>":
            self._run.calls += 1
            names.run_script()
            return
        node = names._source.definition(self._run.plan.entry)
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            raise EntryError(f"there is no function {self._run.plan.entry}")
        owner, _, name = self._run.plan.entry.rpartition(".")
        if owner:
            function, bound = self._method(owner, name, node)
        else:
            function, bound = names[name], False
        if not callable(function):
            raise EntryError(f"{self._run.plan.entry} is not callable")
        if commandline.is_command(function):
            self._run.calls += 1
            function()
            return
        for _ in range(self._run.plan.calls):
            args, kwargs = self._arguments(node, bound, "")
            self._run.calls += 1
            _exhaust(function(*args, **kwargs))

    # -- objects

    def _method(self, owner: str, name: str, node: FunctionNode) -> tuple[Any, bool]:
        kind: Any = self._module
        for part in owner.split("."):
            kind = getattr(kind, part)
        if not isinstance(kind, type):
            raise EntryError(f"class {owner} could not be loaded")
        decorators = {ast.unparse(decorator) for decorator in node.decorator_list}
        if "staticmethod" in decorators:
            return getattr(kind, name), False
        if "classmethod" in decorators:
            return getattr(kind, name), True
        return getattr(self._instance(kind), name), True

    def _instance(self, kind: type) -> Any:
        """An object of the user's class, its own `__init__` having run as far as it goes."""
        if not issubclass(kind, standins.StandInBase):
            bases = (kind,) if issubclass(kind, torch.nn.Module) else (kind, standins.StandInBase)
            kind = type(kind.__name__, bases, {"__getattr__": _missing(kind)})
        init = self._init_of(kind)
        args, kwargs = self._arguments(init, True, "self") if init else ([], {})
        made: Any = kind.__new__(kind)  # type: ignore[call-overload]
        try:
            made.__init__(*args, **kwargs)
        except Exception as error:
            if is_amp_failure(error):
                raise
            reason = f"{type(error).__name__}: {error}"[:120]
            self._run.remark(f"{kind.__name__}.__init__ did not finish: {reason}")
        self._set_later(made, kind)
        slots.open_slots(self._run, made, "self")
        if isinstance(made, torch.nn.Module) and next(made.parameters(), None) is None:
            values.fill(made)
        return made

    def _set_later(self, made: Any, kind: type) -> None:
        """What `__init__` leaves at None for another method to set is set; so is an empty text
        that is used as an object."""
        for name, value in list(vars(made).items()):
            if type(value) is not str or value:
                continue
            if not set(self._run.use(f"self.{name}").attributes) <= set(dir(str)):
                setattr(made, name, standins.StandIn(f"self.{name}"))
        for name in self._assigned_elsewhere(kind):
            if name in vars(made) and vars(made)[name] is None:
                path = f"self.{name}"
                role = self._run.role(path)
                wanted = role.kind if role else words.kind_of(path, set())
                if wanted in values.MAKERS:
                    setattr(made, name, values.make(path))
        for name in self._assigned_elsewhere(kind, from_parameters=True):
            known = vars(made).get(name, self)
            if known is False:
                options: tuple[Any, ...] = (False, True)
            elif type(known) is int and known == 0:
                options = (*words.numbers_for(f"self.{name}"), 0)
            else:
                continue
            setattr(made, name, self._run.choose(f"self.{name}", options, "default"))

    def _assigned_elsewhere(self, kind: type, *, from_parameters: bool = False) -> set[str]:
        """Attributes of `self` that methods other than `__init__` assign.

        Args:
            from_parameters: only those that become what a caller passes.
        """
        names: set[str] = set()
        for base in kind.__mro__:
            for name, function in vars(base).items():
                code = getattr(function, "__code__", None)
                source = self._run.project.module(code.co_filename) if code else None
                if source is None or name == "__init__" or code is None:
                    continue
                assigned = source.assigned.get(code.co_firstlineno)
                names |= assigned[from_parameters] if assigned is not None else frozenset()
        return names

    def _init_of(self, kind: type) -> FunctionNode | None:
        init = inspect.unwrap(kind.__init__)  # type: ignore[misc]
        code = getattr(init, "__code__", None)
        if code is None:
            return None
        source = self._run.project.module(code.co_filename)
        return source.functions.get(code.co_firstlineno) if source is not None else None

    # -- arguments

    def _arguments(
        self, node: FunctionNode, bound: bool, owner: str
    ) -> tuple[list[Any], dict[str, Any]]:
        kept = _kept_as(node) if owner else {}
        positional = [*node.args.posonlyargs, *node.args.args]
        missing = len(positional) - len(node.args.defaults)
        defaults: list[ast.expr | None] = [None] * missing + list(node.args.defaults)
        args = [
            self._value(argument, default, kept.get(argument.arg, argument.arg))
            for argument, default in list(zip(positional, defaults))[1 if bound else 0 :]
        ]
        kwargs = {
            argument.arg: self._value(argument, default, kept.get(argument.arg, argument.arg))
            for argument, default in zip(node.args.kwonlyargs, node.args.kw_defaults)
        }
        if node.args.kwarg is not None and not owner:
            # Keys that the function asks its **kwargs for: names of its callers' arguments.
            for key in dict.fromkeys(self._run.use(node.args.kwarg.arg).keys):
                if key.isidentifier():
                    kwargs.setdefault(key, self._defaulted(ast.Constant(None), key, None))
        return args, kwargs

    def _value(self, argument: ast.arg, default: ast.expr | None, path: str) -> Any:
        """The value of one parameter; `path` is how the entry reaches it."""
        run = self._run
        if run.decisions.is_declared(path):
            return run.choose(path, ())
        role = run.role(path) or run.role(argument.arg)
        if role is not None and role.kind in values.MAKERS:
            return values.make(role.path)
        annotation = self._annotation(argument)
        kind = _kind_of_annotation(annotation)
        if kind == "tensor":
            is_loss = words.kind_of(path, set()) == "loss"
            if is_loss:
                return values.make(path)
            return values.tensor(path) if run.request.trainable_inputs else soft()
        is_object = kind is not None or isinstance(annotation, type)
        if is_object and role is None and self._is_left_out(default, path):
            return slots.Unset(path) if slots.is_hook(run, path) else None
        if kind is not None and role is None:
            built = self._of_kind(kind, path, annotation)
            if built is not None:
                return built
        if isinstance(annotation, type) and role is None:
            built = self._build(annotation, path)
            if built is not None:
                return built
        if default is not None:
            return self._defaulted(default, path, annotation)
        if annotation in (int, float, bool, str):
            return self._scalar(annotation, path)
        return values.make(path)

    def _is_left_out(self, default: ast.expr | None, path: str) -> bool:
        """Whether a parameter keeps its default, None, which the function asks about."""
        is_none = isinstance(default, ast.Constant) and default.value is None
        return is_none and values.may_be_none(self._run, path) and self._none_first(path)

    def _of_kind(self, kind: str, path: str, annotation: Any) -> Any:
        if kind == "model":
            built = self._build(annotation, path) if isinstance(annotation, type) else None
            return built if built is not None else values.world(self._run).model(path)
        return values.MAKERS[kind](self._run, path)

    def _scalar(self, kind: Any, path: str) -> Any:
        run = self._run
        if kind is bool:
            return run.choose(path, words.flags_for(path))
        if kind in (int, float):
            return kind(run.choose(path, words.numbers_for(path)))
        return values.make(path)

    def _defaulted(self, default: ast.expr, path: str, annotation: Any) -> Any:
        run = self._run
        known = self._evaluated(default)
        use = run.use(path)
        if isinstance(known, bool):
            return run.choose(path, (known, not known), "default")
        if known is None:
            kind = words.kind_of(path, use.attributes)
            if (use.attributes or use.called) and not values.may_be_none(run, path):
                return values.make(path)
            if kind in values.MAKERS or use.attributes or use.called:
                if not self._none_first(path):
                    return values.make(path)
                return slots.Unset(path) if slots.is_hook(run, path) else None
            if values.may_be_none(run, path):
                return None if self._none_first(path) else standins.StandIn(path)
            return values.make(path)
        if isinstance(known, str):
            others = [other for other in use.compared if isinstance(other, str)]
            others += ["cuda"] if words.kind_of(path, set()) == "device" else []
            return run.choose(path, (known, *others), "default") if others else known
        if isinstance(known, (int, float)):
            if use.truth or use.compared:
                options = (known, *(n for n in words.numbers_for(path) if n != known))
                return run.choose(path, options, "default")
            return known
        if isinstance(known, standins.StandIn):
            return values.make(path)
        return slots.opened(known, path)

    def _none_first(self, path: str) -> bool:
        """Whether the default, None, is taken; a scaler or optimizer is there by default."""
        kind = words.kind_of(path, self._run.use(path).attributes)
        options = (False, True) if kind in values.MAKERS else (True, False)
        return bool(self._run.choose(f"{path} is None", options, "default"))

    def _evaluated(self, expression: ast.expr) -> Any:
        try:
            whole = ast.fix_missing_locations(ast.Expression(expression))
            code = compile(whole, "<default>", "eval")
            return eval(code, self._module._amp_names)
        except Exception:  # noqa: BLE001 -- whatever the user's own expression raises
            return standins.StandIn(ast.unparse(expression))

    def _annotation(self, argument: ast.arg) -> Any:
        node = argument.annotation
        if node is None:
            return None
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                node = ast.parse(node.value, mode="eval").body
            except SyntaxError:
                return None
        return self._evaluated(_without_none(node))

    # -- classes of the user

    def _build(self, kind: type, path: str) -> Any:
        """An object of a class of the project; None where that does not work."""
        source = getattr(kind, "__module__", "")
        if self._depth >= DEPTH or not self._is_users(kind) or source == "builtins":
            return None
        self._depth += 1
        try:
            if dataclasses.is_dataclass(kind):
                return kind(**dict(self._fields(kind, path)))
            init = self._init_of(kind)
            args, kwargs = self._arguments(init, True, "") if init else ([], {})
            made = kind(*args, **kwargs)
            slots.open_slots(self._run, made, path)
            return made
        except Exception as error:  # noqa: BLE001 -- whatever the user's own class raises
            reason = f"{type(error).__name__}: {error}"[:120]
            self._run.remark(f"{kind.__name__} for {path} could not be built: {reason}")
            return None
        finally:
            self._depth -= 1

    def _is_users(self, kind: type) -> bool:
        try:
            return self._run.project.is_mine(inspect.getfile(kind))
        except (TypeError, OSError):
            functions = [item for item in vars(kind).values() if hasattr(item, "__code__")]
            names = {function.__code__.co_filename for function in functions}
            return any(self._run.project.is_mine(name) for name in names) or (
                dataclasses.is_dataclass(kind)
            )

    def _fields(self, kind: Any, path: str) -> Iterator[tuple[str, Any]]:
        for field in dataclasses.fields(kind):
            if not field.init:
                continue
            inner = f"{path}.{field.name}"
            if self._run.decisions.is_given(inner):
                yield field.name, self._run.choose(inner, ())
            elif isinstance(field.default, bool):
                options = (field.default, not field.default)
                yield field.name, self._run.choose(inner, options, "default")
            elif field.default is dataclasses.MISSING and (
                field.default_factory is dataclasses.MISSING
            ):
                yield field.name, values.make(inner)


def _missing(kind: type) -> Any:
    """`__getattr__` of the user's class, then stand-ins."""
    before = getattr(kind, "__getattr__", None)

    def getattribute(self: Any, name: str) -> Any:
        if before is not None:
            try:
                return before(self, name)
            except AttributeError:
                pass
        if standins.is_registering(sys._getframe(1)):
            raise AttributeError(name)
        return standins.StandInBase.__getattr__(self, name)

    return getattribute


def _kept_as(node: FunctionNode) -> dict[str, str]:
    """Parameters of `__init__` that become attributes: "config" -> "self.config"."""
    kept: dict[str, str] = {}
    for inner in ast.walk(node):
        if not isinstance(inner, ast.Assign):
            continue
        for target, value in _pairs(inner):
            if not isinstance(value, ast.Name) or not isinstance(target, ast.Attribute):
                continue
            if isinstance(target.value, ast.Name):
                kept.setdefault(value.id, f"{target.value.id}.{target.attr}")
    return kept


def _pairs(assignment: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Targets and what they get, those of `a, b = c, d` one by one."""
    value = assignment.value
    for target in assignment.targets:
        if (
            isinstance(target, ast.Tuple)
            and isinstance(value, ast.Tuple)
            and len(target.elts) == len(value.elts)
        ):
            yield from zip(target.elts, value.elts)
        else:
            yield target, value


def _without_none(node: ast.expr) -> ast.expr:
    """`X` of `Optional[X]` and `X | None`."""
    if isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("Optional"):
        return node.slice
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        right = node.right
        if isinstance(right, ast.Constant) and right.value is None:
            return node.left
    return node


def _kind_of_annotation(annotation: Any) -> str | None:
    if isinstance(annotation, type) and issubclass(annotation, torch.nn.Module):
        return "model"
    if isinstance(annotation, type) and issubclass(annotation, torch.optim.Optimizer):
        return "optimizer"
    name = getattr(annotation, "__name__", "") if annotation is not None else ""
    if isinstance(annotation, standins.StandIn):
        name = object.__getattribute__(annotation, "_path").rsplit(".", 1)[-1]
    if name == "Loader":
        return "loader"
    return ANNOTATED.get(name)


def _exhaust(result: Any) -> None:
    if inspect.iscoroutine(result):
        try:
            result.send(None)
        except StopIteration:
            return
    if isinstance(result, types.GeneratorType):
        for count, _ in enumerate(result):
            if count >= YIELDS:
                return
