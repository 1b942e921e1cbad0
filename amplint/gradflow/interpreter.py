"""Follows gradients through one function and the functions it calls.

Values are joined where branches meet, so a module that any path connects counts as connected:
what is reported is cut off on every path. Where the analysis does not know, it connects.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from amplint.amp.grad_modes import (
    OFF,
    Assumed,
    asks_for_gradients,
    decorated,
    entered_mode,
    makes_leaf,
    taken,
)
from amplint.amp.libraries import Effect, call_row
from amplint.amp.library_objects import library_class_of
from amplint.code.arguments import parameters
from amplint.code.dataflow import arguments
from amplint.code.definitions import is_stub
from amplint.code.expressions import last_name, path_text
from amplint.code.layout import EXITS
from amplint.code.module import Class, Function, walk
from amplint.gradflow.bearing import (
    BACKWARDS,
    FILLING,
    NOWHERE,
    Bearing,
    Places,
    bearing_near,
    bearing_of_callee,
    bearing_of_entry,
    is_in_place,
    is_on_self,
    place_of,
    written_to,
)
from amplint.gradflow.copies import COPYING, DETACHING
from amplint.gradflow.frame import (
    Backward,
    Frame,
    base_cut,
    called_on,
    hold,
    own,
    renamed,
    running,
    sources,
    write,
)
from amplint.gradflow.numbers import counts, is_number
from amplint.gradflow.values import (
    ANYTHING,
    COMPUTED,
    GIVEN,
    GROWN,
    LEAF,
    NOTHING,
    Block,
    Flow,
    Root,
    Value,
    cut_all,
    flow_of,
    is_callable,
    is_owned,
    join,
    join_places,
    union,
)
from amplint.values.objects import Objects
from amplint.values.values import Values

#: Calls deeper than this connect everything they are given.
CALL_DEPTH = 5
#: Expressions that one analysis may evaluate; beyond it everything is connected.
BUDGET = 20_000

#: Modules of functions that have no parameters of their own.
_PURE = ("torch.", "math.", "numpy.", "builtins.", "einops.")
_BUILTINS = frozenset(
    ("sum", "max", "min", "abs", "len", "list", "tuple", "dict", "zip", "enumerate", "range")
    + ("sorted", "reversed", "iter", "next", "print", "isinstance", "getattr", "str", "round")
)
#: Callables that iterate over their arguments.
_ITERATES = frozenset(("enumerate", "zip", "tqdm", "iter", "islice", "chain", "list", "trange"))
#: A value that nobody has looked at: as if it reached nothing.
_NOWHERE = Block("", ast.Constant(None), None)  # type: ignore[arg-type]  # it is in no function
_LEFT_OUT = Flow(frozenset(), {ANYTHING: _NOWHERE})


@dataclass(slots=True, eq=False)
class Interpreter:
    """Follows one entry function.

    Args:
        objects: resolves callees.
        roots: paths of the modules that an optimizer owns.
        steps: how many assignments before its losses the entry is evaluated; what stands before
            them counts as cut off. None evaluates all that counts.
        made: what parameters of the entry are connected to that a caller made of roots.
        assumed: how tests of the entry come out that `with` statements choose by.
        values: says which factors are numbers; without it any may have a graph.

    Attributes:
        backwards: every backward, in the order in which they run.
    """

    objects: Objects
    roots: Sequence[str] = ()
    steps: int | None = None
    made: Mapping[str, Flow] = field(default_factory=dict)
    assumed: Assumed = field(default_factory=dict)
    values: Values | None = None
    backwards: list[Backward] = field(default_factory=list)
    _left: int = BUDGET
    _hands_over: bool = False
    _bearings: dict[tuple[Function, Places, Places], Bearing] = field(default_factory=dict)

    def follow(self, function: Function, handed: frozenset[ast.stmt] = frozenset()) -> None:
        """Run the function from an unknown caller: its parameters may be connected to anything.

        Args:
            handed: statements that count as those with a backward do: what they call runs one.
        """
        self._hands_over = bool(handed)
        values: dict[str, Value] = dict.fromkeys(parameters(function), GIVEN)
        values.update(self.made)
        values.update({root: Root(root) for root in self.roots})
        if self.steps is None:
            counts = bearing_of_entry(function, self._owned_among(values), handed)
        else:
            counts = bearing_near(function, self.steps)
        frame = Frame(function, values, counts, self._mode_of(function, None, ()))
        self._block(function.body, frame)

    def result_of(self, function: Function) -> Flow:
        """What a call of the function returns, its parameters being what `made` says."""
        counts = bearing_of_callee(function, NOWHERE, NOWHERE)
        frame = Frame(function, dict(self.made), counts, self._mode_of(function, None, ()))
        self._block(function.body, frame)
        return flow_of(frame.returned if frame.returned is not None else NOTHING)

    @property
    def gave_up(self) -> bool:
        """Whether the budget ended; then nothing may be concluded."""
        return self._left <= 0

    def _mode_of(
        self, function: Function, around: Block | None, calls: tuple[tuple[ast.Call, Function], ...]
    ) -> Block | None:
        found = decorated(function)
        if found is None:
            return around
        kind, decorator = found
        return Block(kind, decorator, function, calls) if kind in OFF else None

    def _bearing_of(self, callee: Function, values: dict[str, Value], wanted: Places) -> Bearing:
        key = (callee, self._owned_among(values), wanted)
        if key not in self._bearings:
            self._bearings[key] = bearing_of_callee(*key, backwards=self._hands_over)
        return self._bearings[key]

    def _owned_among(self, values: dict[str, Value]) -> Places:
        """Places that hold what the optimizer owns; backwards of callees run on these."""
        if self.steps is not None or not self.roots:
            return NOWHERE
        return frozenset(place_of(path) for path, value in values.items() if is_owned(value))

    # -- statements ------------------------------------------------------------------------------

    def _block(self, statements: Iterable[ast.stmt], frame: Frame) -> None:
        counts = frame.bearing
        for statement in statements:
            if statement in counts.run or statement in counts.entered:
                self._statement(statement, frame)

    def _statement(self, node: ast.stmt, frame: Frame) -> None:
        if isinstance(node, ast.Assign):
            value = self._value(node.value, frame)
            for target in node.targets:
                self._bind(target, value, frame)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self._bind(node.target, self._value(node.value, frame), frame)
        elif isinstance(node, ast.AugAssign):
            parts = (self._value(node.target, frame), self._factor(node.value, frame))
            self._bind(node.target, self._operation(parts, frame), frame)
        elif isinstance(node, ast.Return):
            value = self._value(node.value, frame) if node.value is not None else NOTHING
            frame.returned = value if frame.returned is None else join(frame.returned, value)
        elif isinstance(node, ast.Expr):
            self._value(node.value, frame)
        elif isinstance(node, (ast.If, ast.Try, ast.Match)):
            self._branches(node, frame)
        elif isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
            self._loop(node, frame)
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            self._with(node, frame)

    def _branches(self, node: ast.If | ast.Try | ast.Match, frame: Frame) -> None:
        if isinstance(node, ast.If):
            if node in frame.bearing.run:
                self._value(node.test, frame)
            blocks = [node.body, node.orelse]
        elif isinstance(node, ast.Match):
            blocks = [case.body for case in node.cases]
        else:
            blocks = [[*node.body, *node.orelse], *(handler.body for handler in node.handlers)]
        before, after = frame.values, None
        for block in blocks:
            frame.values = dict(before)
            self._block(block, frame)
            if any(isinstance(statement, EXITS) for statement in block):
                frame.left.append(frame.values)
            else:
                after = frame.values if after is None else join_places(after, frame.values)
        frame.values = after if after is not None else before
        if isinstance(node, ast.Try):
            self._block(node.finalbody, frame)

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While, frame: Frame) -> None:
        before, outer = dict(frame.values), frame.left
        for _ in range(2):  # what one round leaves behind is read in the next
            frame.left = []
            entered = dict(frame.values)
            if node not in frame.bearing.run:
                pass
            elif isinstance(node, ast.While):
                self._value(node.test, frame)
            else:
                self._bind(node.target, self._elements(node.iter, frame), frame)
            self._block(node.body, frame)
            for values in frame.left:
                frame.values = join_places(frame.values, values)
            if frame.values == entered:  # nested loops would cost twice as much at each level
                break
        frame.values, frame.left = join_places(before, frame.values), outer
        self._block(node.orelse, frame)

    def _elements(self, iterable: ast.expr, frame: Frame) -> Value:
        """What a loop variable holds; a loader that the caller hands over gives data."""
        if isinstance(iterable, ast.Call) and last_name(iterable.func) in _ITERATES:
            return union(self._elements(argument, frame) for argument in iterable.args)
        value = self._value(iterable, frame)
        return NOTHING if value is GIVEN else flow_of(value)

    def _with(self, node: ast.With | ast.AsyncWith, frame: Frame) -> None:
        around = frame.mode
        for item in node.items:
            entered = item.context_expr
            if self.assumed and not frame.calls:
                entered = taken(entered, frame.function, self.assumed)
            kind = entered_mode(self.objects, entered, frame.function)
            if kind:
                block = Block(kind, entered, frame.function, frame.calls)
                frame.mode = block if kind in OFF else None
            if kind or node not in frame.bearing.run:
                continue
            value = self._value(item.context_expr, frame)
            if item.optional_vars is not None:
                self._bind(item.optional_vars, value, frame)
        self._block(node.body, frame)
        frame.mode = around

    def _bind(self, target: ast.expr, value: Value, frame: Frame) -> None:
        if isinstance(target, ast.Starred):
            target = target.value
        if isinstance(target, (ast.Tuple, ast.List)):
            parts: Sequence[Value] = [flow_of(value)] * len(target.elts)
            if isinstance(value, tuple) and len(value) == len(target.elts):
                parts = value
            for inner, part in zip(target.elts, parts):
                self._bind(inner, part, frame)
            return
        path = path_text(target)
        if path is None or (not frame.calls and self._holds_root(path)):
            return  # building or wrapping a module leaves it, and its parts, the same roots
        for known in [key for key in frame.values if key.startswith((path + ".", path + "["))]:
            del frame.values[known]
        if isinstance(target, ast.Attribute) and target.attr == "requires_grad":
            self._make_leaf(target.value, frame)
            return
        if isinstance(target, ast.Subscript):  # a container keeps what it holds already
            value = join(frame.values.get(path), value)
            holder = path_text(target.value) or ""
            hold(holder, join(frame.values.get(holder), flow_of(value)), frame)
        hold(path, value, frame)

    def _holds_root(self, path: str) -> bool:
        return any(root == path or root.startswith((path + ".", path + "[")) for root in self.roots)

    def _make_leaf(self, tensor: ast.expr, frame: Frame) -> None:
        path = path_text(tensor)
        known = frame.values.get(path or "")
        if isinstance(known, Flow):
            frame.values[path or ""] = Flow(known.connected | {LEAF}, known.blocked)

    # -- expressions -----------------------------------------------------------------------------

    def _value(self, node: ast.expr, frame: Frame) -> Value:
        self._left -= 1
        if self.gave_up:
            return flow_of(tuple(Root(root) for root in self.roots)) if self.roots else COMPUTED
        if isinstance(node, ast.Call):
            return self._call(node, frame)
        if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
            return self._place(node, frame)
        if isinstance(node, ast.Constant):
            return NOTHING
        if isinstance(node, ast.Tuple):
            return tuple(self._value(part, frame) for part in node.elts)
        if isinstance(node, ast.IfExp):
            self._value(node.test, frame)
            return join(self._value(node.body, frame), self._value(node.orelse, frame))
        if isinstance(node, ast.NamedExpr):
            value = self._value(node.value, frame)
            self._bind(node.target, value, frame)
            return value
        if isinstance(node, (ast.Starred, ast.Await)):
            return self._value(node.value, frame)
        if isinstance(node, ast.Lambda):
            return COMPUTED
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
            return self._comprehension(node, frame)
        if isinstance(node, ast.Compare):
            return NOTHING
        if isinstance(node, ast.BinOp):
            sides = (node.left, node.right)
            return self._operation([self._factor(side, frame) for side in sides], frame)
        parts = [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]
        return self._operation([self._value(part, frame) for part in parts], frame)

    def _factor(self, node: ast.expr, frame: Frame) -> Value:
        """A side of some arithmetic; a setting that is a number has no graph."""
        value = self._value(node, frame)
        if value is not GIVEN or self.values is None:
            return value
        return NOTHING if is_number(self.values, node, frame.function) else value

    def _operation(self, parts: Iterable[Value], frame: Frame) -> Flow:
        found = union(parts)
        if LEAF in found.connected:
            found = Flow((found.connected - {LEAF}) | {GROWN}, found.blocked)
        return found.cut(frame.mode) if frame.mode is not None else found

    def _comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp, frame: Frame
    ) -> Value:
        outside = dict(frame.values)
        for generator in node.generators:
            self._bind(generator.target, self._elements(generator.iter, frame), frame)
        heads = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
        found = union(self._value(head, frame) for head in heads)
        frame.values = outside
        return found

    def _place(self, node: ast.Name | ast.Attribute | ast.Subscript, frame: Frame) -> Value:
        path = path_text(node)
        if path is not None and frame.bearing.leaves_out(path, self.roots):
            return _LEFT_OUT
        if path is not None and path in frame.values:
            return frame.values[path]
        if isinstance(node, ast.Name):
            return GIVEN
        base = self._value(node.value, frame)
        if isinstance(node, ast.Attribute):
            if node.attr in ("shape", "dtype", "device", "requires_grad", "ndim", "is_cuda"):
                return NOTHING
            if isinstance(base, Root):
                return base  # a part of it
            if node.attr in DETACHING:
                return base_cut(flow_of(base), DETACHING[node.attr], node, frame)
            return flow_of(base)
        if isinstance(base, tuple) and isinstance(node.slice, ast.Constant):
            index = node.slice.value
            if isinstance(index, int) and -len(base) <= index < len(base):
                return base[index]
        return base if isinstance(base, Root) else flow_of(base)

    # -- calls -----------------------------------------------------------------------------------

    def _call(self, node: ast.Call, frame: Frame) -> Value:
        name = last_name(node.func)
        receiver = self._receiver(node, frame)
        given = [self._value(argument, frame) for argument in arguments(node)]
        if name in BACKWARDS:
            return self._backward(node, receiver, given, frame)
        if counts(node, frame.function) and not isinstance(receiver, Root):
            return NOTHING
        dotted = frame.function.module.resolve(node.func)
        kind = DETACHING.get(name) if receiver is not None else COPYING.get(dotted or name)
        if kind is not None and not isinstance(receiver, Root):
            # Options such as `requires_grad=flag` hold nothing that could be cut off.
            copied = given[: len(node.args)] or given
            source = union(copied) if receiver is None else flow_of(receiver)
            cut = base_cut(source, kind, node, frame)
            if makes_leaf(node, dotted):
                return Flow(frozenset({LEAF}), cut.blocked)
            if name == "detach_" and isinstance(node.func, ast.Attribute):
                self._bind(node.func.value, cut, frame)
            return cut
        if isinstance(receiver, Root):
            return self._module_call(node, receiver, given, frame)
        callee = self.objects.callee(node, frame.function)
        if callee is not None and callee.name != "__init__" and not is_stub(callee):
            return self._known(callee, node, receiver, given, frame)
        return self._unknown(node, dotted, receiver, given, frame)

    def _receiver(self, node: ast.Call, frame: Frame) -> Value | None:
        if isinstance(node.func, ast.Attribute):
            if frame.function.module.resolve(node.func) is not None:
                return None  # a function of an imported module
            path = path_text(node.func) or ""
            called = None if frame.bearing.leaves_out(path, self.roots) else frame.values.get(path)
            if called is None:
                called = self._made_of_modules(node.func, frame)
            if called is not None and is_callable(called):
                return called
            return self._value(node.func.value, frame)
        value = self._value(node.func, frame)
        if is_callable(value):
            return value
        return self._made_of_modules(node.func, frame)

    def _made_of_modules(self, place: ast.expr, frame: Frame) -> Flow | None:
        """What an attribute is connected to that another method made of owned modules.

        `self.parallel = DistributedDataParallel(self.model)` in the constructor.
        """
        while isinstance(place, ast.Subscript):
            place = place.value
        if not isinstance(place, ast.Attribute) or not self.roots:
            return None
        made = [
            item.value
            for item in self.objects.bindings(place, frame.function) or ()
            if isinstance(item.value, ast.Call) and item.function is not frame.function
        ]
        parts = {path_text(part) or "" for value in made for part in walk(value)}
        own = (frame.values.get(part) for part in parts if part.startswith("self."))
        named = [value.name for value in own if isinstance(value, Root)]
        return Flow(frozenset((*named, ANYTHING))) if named else None

    def _backward(
        self, node: ast.Call, receiver: Value | None, given: list[Value], frame: Frame
    ) -> Value:
        is_own = last_name(node.func) == "backward" and isinstance(receiver, Flow)
        if is_own and given and self._is_of_library(node, frame):
            is_own = False
        # `accelerator.backward(loss)`: the receiver is no tensor, the first argument is.
        scaled = given[0] if given and not node.keywords else NOTHING
        loss = flow_of(receiver) if is_own and receiver is not None else flow_of(scaled)
        if is_own and given and receiver == COMPUTED:
            loss = union((loss, *given))
        self.backwards.append(Backward(loss, node, frame.function, frame.calls))
        return NOTHING

    def _is_of_library(self, node: ast.Call, frame: Frame) -> bool:
        """Whether a backward is that of an object of a training library, which gets the loss."""
        assert isinstance(node.func, ast.Attribute)
        row = library_class_of(node.func.value, frame.function, self.objects)
        call = call_row(f"{row.name}.{node.func.attr}") if row is not None else None
        return call is not None and Effect.BACKWARD in call.effects

    def _module_call(self, node: ast.Call, root: Root, given: list[Value], frame: Frame) -> Value:
        """A call of a module, or of one of its methods."""
        name = last_name(node.func)
        if name in ("parameters", "named_parameters"):
            return flow_of(NOTHING).with_root(root.name)
        if name in ("state_dict", "train", "eval", "zero_grad"):
            return NOTHING
        found = union(given).with_root(root.name)
        callee = self.objects.callee(node, frame.function)
        mode = frame.mode
        if callee is not None:
            calls = (*frame.calls, (node, frame.function))
            mode = self._mode_of(callee, mode, calls)
        return found.cut(mode) if mode is not None else found

    def _known(
        self,
        callee: Function,
        node: ast.Call,
        receiver: Value | None,
        given: list[Value],
        frame: Frame,
    ) -> Value:
        calls = (*frame.calls, (node, frame.function))
        mode = self._mode_of(callee, frame.mode, calls)
        if len(calls) > CALL_DEPTH or any(item is callee for item in running(frame)):
            found = union((*given, receiver or NOTHING, COMPUTED))
            return found.cut(mode) if mode is not None else found
        bound = self.objects.bind(node, frame.function, callee)
        known = dict(zip(arguments(node), given))
        values = {
            name: self._joined(parts, known, frame)
            for name, parts in sources(bound, callee).items()
        }
        for word, argument in bound.given.items():
            path = path_text(argument)
            if path is not None and word != bound.receiver:
                values.update(renamed(frame.values, path, word))
        shares_self = is_on_self(node)
        if shares_self:
            values.update(own(frame.values))
        elif bound.receiver:
            values.update(renamed(frame.values, called_on(node, callee), bound.receiver))
        wanted = frame.bearing.wanted if shares_self else NOWHERE
        inner = Frame(callee, values, self._bearing_of(callee, values, wanted), mode, calls)
        self._block(callee.body, inner)
        if shares_self:
            frame.values.update(own(inner.values))
        for word, argument in bound.given.items():
            path = path_text(argument)
            if path is not None and word in inner.written:
                write(path, flow_of(inner.values.get(word, NOTHING)), frame)
        result = inner.returned if inner.returned is not None else NOTHING
        return cut_all(result, mode) if mode is not None else result

    def _joined(
        self, parts: tuple[ast.expr, ...], known: dict[ast.expr, Value], frame: Frame
    ) -> Value:
        """What a parameter is made of; nothing for a default, which is a constant."""
        values = [known[part] if part in known else self._value(part, frame) for part in parts]
        return values[0] if len(values) == 1 else union(values)

    def _unknown(
        self,
        node: ast.Call,
        dotted: str | None,
        receiver: Value | None,
        given: list[Value],
        frame: Frame,
    ) -> Value:
        name = last_name(node.func)
        if name in FILLING and isinstance(node.func, ast.Attribute) and given:
            path = path_text(node.func.value)
            if path is not None:  # a container keeps what it holds already
                hold(path, join(frame.values.get(path), union(given)), frame)
            return NOTHING
        if name == "requires_grad_" and isinstance(receiver, Flow) and asks_for_gradients(node):
            return Flow(receiver.connected | {LEAF}, receiver.blocked)
        if name == "scale" and given:  # `scaler.scale(loss)`: the loss, or several of them
            return given[0]
        if makes_leaf(node, dotted):
            return Flow(frozenset({LEAF}), union(given).blocked)
        parts = [*given, *([receiver] if receiver is not None else [])]
        if self._has_parameters(node, dotted, receiver, frame):
            parts.append(COMPUTED)
        result = self._operation(parts, frame)
        target = _written(node, receiver)
        if target is not None:
            write(target, result, frame)
        return result

    def _has_parameters(
        self, node: ast.Call, dotted: str | None, receiver: Value | None, frame: Frame
    ) -> bool:
        """Whether a call may bring parameters of its own into the graph."""
        if dotted is not None and (dotted + ".").startswith(_PURE):
            return False
        if isinstance(node.func, ast.Name) and node.func.id in _BUILTINS:
            return False
        if isinstance(self.objects.symbol(node.func, frame.function), Class):
            return True
        if isinstance(node.func, ast.Attribute) and receiver not in (None, COMPUTED):
            return False  # a method of a tensor
        return not self._is_torch_loss(node.func, frame)

    def _is_torch_loss(self, callee: ast.expr, frame: Frame) -> bool:
        """Whether a callee is an object such as `nn.CrossEntropyLoss()`."""
        found = self.objects.bindings(callee, frame.function) or []
        dotted = [
            item.function.module.resolve(item.value.func)
            for item in found
            if isinstance(item.value, ast.Call)
        ]
        return bool(found) and len(dotted) == len(found) and all(map(_is_loss_class, dotted))


def _written(call: ast.Call, receiver: Value | None) -> str | None:
    """The path of the tensor that a call writes its result into, if it does."""
    target = written_to(call)
    if target is None and isinstance(receiver, Flow) and is_in_place(last_name(call.func)):
        assert isinstance(call.func, ast.Attribute)
        target = call.func.value
    return path_text(target) if target is not None else None


def _is_loss_class(dotted: str | None) -> bool:
    return dotted is not None and dotted.startswith("torch.nn.") and dotted.endswith("Loss")
