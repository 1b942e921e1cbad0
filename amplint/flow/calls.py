"""Evaluates calls: protocol events, constructors, functions of the program, unknown callees.

An unknown callee that receives a scaler may do anything: then nothing is known any more
("havoc"), and unknown never reports.
"""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from typing import Protocol

from amplint.amp import names
from amplint.amp.roles import Role
from amplint.code.arguments import is_decorated, parameters
from amplint.code.dataflow import names_in
from amplint.code.definitions import is_stub
from amplint.code.expressions import callee_of, last_name
from amplint.code.looking import only_looks
from amplint.code.module import Class, Function, walk
from amplint.code.undefined import is_in_a_branch, makes_nothing
from amplint.flow.call import Call, Frame, argument_expressions, callee_name, is_super
from amplint.flow.conditions import Formula
from amplint.flow.escapes import Escapes
from amplint.flow.events import Site, Transitions
from amplint.flow.facts import CLIP_NAMES, EDITS, clips, is_gradient, is_of_some
from amplint.flow.functions import Functions, Runner
from amplint.flow.library_calls import LibraryCalls
from amplint.flow.naming import named
from amplint.flow.protocol_calls import SCALE_MENTION, SCALER_USES, ProtocolCalls
from amplint.flow.reader import Reader
from amplint.flow.slice import CLIP_HELPER, RUNNERS, SUSPECT, is_for_effect, is_own_call
from amplint.flow.state import State
from amplint.flow.typestates import EVERY
from amplint.flow.values import CALLABLE_KINDS, HANDED, KEEPER, OPAQUE, UNBOUND, Value, kind_of

Valued = list[tuple[State, Value]]


class Evaluate(Protocol):
    """Evaluates an expression that may hold calls itself; bound, a place stays an alias."""

    def __call__(
        self, node: ast.expr, state: State, frame: Frame, *, binding: bool = False
    ) -> Valued: ...


#: Callees that look at a scaler or a scaled value and change nothing, by a word of their names.
HARMLESS = re.compile(
    r"(?:^|_|(?<=[a-z])(?=[A-Z]))(?:print|log|logs|logger|logging|debug|info|warn|warning|len|save|"
    r"dump|dumps|state_dict|isinstance|hasattr|append|item|items|str|repr|type|id|format|float|"
    r"isnan|isfinite|isinf|add_scalar|add_scalars|record|display|set_postfix|detach|cpu|mean|"
    r"reduce|barrier|broadcast|get_scale|is_enabled|checkpoint|dict|tuple|list|zip|partial|Lambda|"
    r"lr_scheduler|LR|Scheduler)(?:_|$|(?=[A-Z]))|LR$|Scheduler",
)
#: Callables that only put together what they are given, or hand out a part of it.
CONTAINERS = frozenset(
    {"dict", "list", "tuple", "set", "zip", "SimpleNamespace", "Namespace", "getattr", "vars"}
)
#: Methods of what a library has taken over that may change gradients.
FOREIGN_STEPS = frozenset({"step", "backward", "zero_grad"})
#: Callees that may step or clear an optimizer that they are given.
STEPPERS = re.compile(r"step|backward|zero|train|clip|scal", re.IGNORECASE)


class Calls:
    """Evaluates calls for an interpreter.

    Args:
        reader: reads expressions.
        transitions: applies protocol events.
        evaluate: evaluates an expression that may hold calls itself.
        runner: interprets function bodies.

    Attributes:
        unfollowed: functions that some call runs, by the values in sight, without being followed.
    """

    def __init__(
        self, reader: Reader, transitions: Transitions, evaluate: Evaluate, runner: Runner
    ) -> None:
        self.reader = reader
        self.transitions = transitions
        self.evaluate = evaluate
        self.events = ProtocolCalls(reader, transitions)
        self.libraries = LibraryCalls(self.events)
        self.escapes = Escapes(reader)
        self.functions = Functions(
            reader,
            runner,
            self.events.havoc,
            transitions,
            scope=lambda: self.events.scope,
            owners=self.events.known_optimizers,
            named=lambda value, place, state: named(value, place, state, self.events),
        )
        self.unfollowed: set[Function] = set()

    def call(self, node: ast.Call, state: State, frame: Frame) -> Valued:
        """Evaluate a call: receiver first, then arguments, then the call itself."""
        if self._ends_at(node, frame):
            return []
        receivers: Valued = [(state, None)]
        if isinstance(node.func, ast.Attribute):
            receivers = self.evaluate(node.func.value, state, frame)
        elif not isinstance(node.func, ast.Name):
            receivers = self.evaluate(node.func, state, frame)
        results: Valued = []
        for before, receiver in receivers:
            if receiver == UNBOUND:
                continue  # the path ends in an UnboundLocalError
            for after, values in self._arguments(node, before, frame):
                call = Call(node, callee_name(node), receiver, values, after, frame)
                results += self._dispatch(call)
        return results

    def _ends_at(self, node: ast.Call, frame: Frame) -> bool:
        """Whether a path ends in a NameError.

        One that every call of the entry comes to is told beside its findings: a file that lacks
        its first lines has the mistakes that it shows.
        """
        function = frame.function
        is_entered = len(frame.active) > 1
        return makes_nothing(node, function) and (is_entered or is_in_a_branch(node, function))

    def _arguments(
        self, node: ast.Call, state: State, frame: Frame
    ) -> list[tuple[State, dict[ast.expr, Value]]]:
        running: list[tuple[State, dict[ast.expr, Value]]] = [(state, {})]
        for argument in argument_expressions(node):
            is_choice = self._chooses(argument, frame)
            running = [
                (after, {**known, argument: value})
                for current, known in running
                for after, value in self.evaluate(argument, current, frame, binding=is_choice)
                if value != UNBOUND
            ]
        return running

    def _chooses(self, argument: ast.expr, frame: Frame) -> bool:
        """Whether a test chooses if the callee gets a scaler or an optimizer: its paths part there."""
        roles = self.reader.program.roles(frame.function)
        return isinstance(argument, ast.IfExp) and any(
            roles.is_scaler(part, frame.function) or roles.is_optimizer(part, frame.function)
            for part in (argument.body, argument.orelse)
            if isinstance(part, (ast.Name, ast.Attribute, ast.Subscript))
        )

    def _dispatch(self, call: Call) -> Valued:
        is_method = isinstance(call.node.func, ast.Attribute)
        done = self.libraries.call(call)
        if done is None:
            done = self._bind(call)
        if done is None:
            done = self._method(call) if is_method else self._plain(call)
        if done is None:
            done = self._by_values(call)
        if done is None:
            return self._unknown(call)
        return [(state, value if value is not None else self._made(call)) for state, value in done]

    def _bind(self, call: Call) -> Valued | None:
        """`partial(finish, scaler.scale(loss))`: what it is given was evaluated already."""
        if call.name != "partial":
            return None
        made = self.reader.value(call.node, call.state, call.function)
        if made is None or made[0] != "partial":
            return None
        bound = (
            (word, part, call.values.get(part) if isinstance(part, ast.Call) else value)
            for word, part, value in made[2]
        )
        return [(call.state, ("partial", made[1], tuple(bound)))]

    def _made(self, call: Call) -> Value:
        """The optimizer that a function without events builds."""
        if self._role(call) is not Role.OPTIMIZER:
            return None
        return ("optimizer", f"new@{call.node.lineno}:{call.node.col_offset}")

    def _role(self, call: Call) -> Role | None:
        return self.reader.program.roles(call.function).call_role(call.node, call.function)

    def _by_values(self, call: Call) -> Valued | None:
        """A call that the path knows nothing about, by the values in sight that it can run.

        None if what they do is not in sight. Where it is open which of them runs,
        nothing is known any more.
        """
        program = self.reader.program
        found = program.targets(call.node, call.function)
        facts = [program.facts(item) for item in found.functions]
        if not any(item.reach for item in facts):
            if any(self.functions.may_use(item, call) for item in found.functions):
                return self.events.havoc(call.state)
            idle = bool(facts) and not found.unknown and not any(item.indirect for item in facts)
            # Subclasses out of sight may complete what a class declares for its own objects.
            if not idle or (self._is_own(call) and any(map(is_stub, found.functions))):
                return None
            settles = any(item.settles for item in facts)  # what tests ask is read where it is kept
            value = self.reader.value(call.node, call.state, call.function) if settles else None
            return [(call.state, value)]
        only = found.only
        # How often a loop finds it in its container is not known.
        if (
            only is None
            or self._is_variable(call)
            or (only.owner is not None and not is_decorated(only, "staticmethod"))
        ):
            self.unfollowed.update(found.functions)
            return self.events.havoc(call.state)
        return self.functions.invoke(only, call)

    # -- methods -----------------------------------------------------------------------------

    def _method(self, call: Call) -> Valued | None:
        done = self._method_of_participant(call)
        if done is None:
            done = self._requested(call)
        if done is not None:
            return done
        method = self.functions.find_method(call.receiver, call.name)
        if method is not None:
            return self.functions.invoke(method, call, call.receiver)
        kept = self.reader.raw(call.node.func, call.state, call.function)
        if kind_of(kept) in CALLABLE_KINDS:
            return self._through(kept, call)
        imported = self.reader.program.find_function(call.node.func, call.function)
        if imported is not None and imported.owner is None:
            return self.functions.invoke(imported, call)
        owner = self._class_named(call.place, call)
        if owner is not None:
            return self._method_of_class(owner, call)
        if is_super(call.place):
            found = self.functions.super_method(call)
            return self.functions.invoke(found[0], call, found[1]) if found else None
        if call.name == "backward":
            return self.events.backward(call)
        if clips(call.name, call.place):
            return self.events.clip(call)
        if call.name == "zero_grad":
            return self.events.zero_grad(call)
        if call.name in EDITS and is_gradient(call.place):
            return self.events.havoc(call.state)
        return self._constructor(call)

    def _requested(self, call: Call) -> Valued | None:
        """A class or function of a registry, or an object that it builds."""
        found = self.reader.program.find_requested(call.node, call.function)
        if found is None:
            return None
        value, request = found
        if request.options is None:
            return [(call.state, value)]
        words = list(request.options)
        node = ast.copy_location(ast.Call(call.node.func, [], words), call.node)
        values = {
            word.value: self.reader.value(word.value, call.state, call.function) for word in words
        }
        return self._through(value, replace(call, node=node, values=values))

    def _class_named(self, place: ast.expr, call: Call) -> Class | None:
        """The class of the program that an expression names, `cls` included."""
        value = self.reader.raw(place, call.state, call.function)
        if value is not None and value[0] == "class":
            return value[1]
        return self.reader.program.find_class(place, call.function)

    def _method_of_class(self, owner: Class, call: Call) -> Valued | None:
        """`Class.method(...)`: a static or class method, or `Base.__init__(self, ...)`."""
        method = self.reader.program.find_method(owner, call.name)
        if method is None:
            return None
        if is_decorated(method, "staticmethod"):
            return self.functions.invoke(method, call)
        if is_decorated(method, "classmethod"):
            return self.functions.invoke(method, call, ("class", owner))
        first = call.node.args[0] if call.node.args else None
        instance = call.values.get(first) if first is not None else None
        if instance is None or instance[0] != "instance":
            return None
        rest = ast.Call(call.node.func, call.node.args[1:], call.node.keywords)
        bound = replace(call, node=ast.copy_location(rest, call.node))
        return self.functions.invoke(method, bound, instance)

    def _method_of_participant(self, call: Call) -> Valued | None:
        """A method of a scaler, a scaled value or an optimizer."""
        receiver = call.receiver
        if receiver is None:
            return None
        kind = receiver[0]
        if kind == "none" and call.name in SCALER_USES and self._is_scaler(call):
            return self.events.scaler_is_none(call)
        if kind == "scaler":
            return self.events.scaler_method(call, receiver[1])
        if kind == "foreign":
            return self.events.havoc(call.state) if call.name in FOREIGN_STEPS else None
        if kind in ("scaled", "opaque") and call.name != "backward":
            return [(call.state, receiver)]
        if kind == "optimizer" and call.name == "step":
            return [
                pair
                for state in self._closure(call)
                for pair in self.events.optimizer_step(call.within(state), receiver[1])
            ]
        if kind == "optimizer" and call.name == "zero_grad" and call.whose:
            return self.events.zero_grad(call)
        return None

    def _closure(self, call: Call) -> list[State]:
        """The states in which `optimizer.step(closure)` applies gradients: those of the closure.

        torch/optim/optimizer.py: every `step` calls it before it reads a gradient. What is out of
        sight may be one, and do anything.
        """
        given = (*call.node.args, *(word.value for word in call.node.keywords))
        if not given:
            return [call.state]
        bare = ast.copy_location(ast.Call(call.node.func, [], []), call.node)
        closure = self.reader.binding(given[0], call.state, call.function)
        ran = self._through(closure, replace(call, node=bare, values={}, receiver=None))
        if ran is None and kind_of(closure) not in ("none", "const"):
            ran = self.events.havoc(call.state)
        return [call.state] if ran is None else [state for state, _ in ran]

    def _is_scaler(self, call: Call) -> bool:
        return self.reader.program.roles(call.function).is_scaler(call.place, call.function)

    # -- names and constructors ----------------------------------------------------------------

    def _plain(self, call: Call) -> Valued | None:
        value = call.receiver
        if isinstance(call.node.func, ast.Name):
            value = self.reader.raw(call.node.func, call.state, call.function)
        elif isinstance(call.node.func, ast.Subscript):
            value = self.reader.entry(call.node.func, call.state, call.function)
        if kind_of(value) in CALLABLE_KINDS:
            return self._through(value, call)
        imported = self.reader.program.find_function(call.node.func, call.function)
        if imported is not None:
            return self.functions.invoke(imported, call)
        dotted = call.function.module.resolve(call.node.func)
        if call.name in CLIP_NAMES or dotted in names.CLIP_FUNCTIONS:
            return self.events.clip(call)
        return self._constructor(call)

    def _through(self, value: Value, call: Call) -> Valued | None:
        """Call what a name, an attribute or a container holds; None if nobody knows how."""
        if value is None:
            return None
        kind = value[0]
        if kind == "function":
            return self.functions.invoke(value[1], call)
        if kind == "class":
            return self.functions.construct(value[1], call)
        if kind == "method":
            return self.functions.invoke(value[2], call, value[1])
        if kind == "partial":
            return self._through(value[1], call.with_bound(value[2]))
        if kind == "choice":
            return self._any_of(value[1], call)
        if kind == "event":
            return self._bound_event(value[1], value[2], call)
        if kind == "clip":
            return self.events.clip(call)
        method = self.functions.find_method(value, "__call__")
        return self.functions.invoke(method, call, value) if method is not None else None

    def _any_of(self, values: tuple[Value, ...], call: Call) -> Valued | None:
        """One of several callables: known if all of them leave the same behind."""
        with self.functions.trial(), self.transitions.silence():
            outcomes = {_effects(self._through(value, call)) for value in values}
        return self._through(values[0], call) if len(outcomes) == 1 else None

    def _bound_event(self, participant: Value, name: str, call: Call) -> Valued | None:
        """A method of a scaler or an optimizer under another name."""
        assert participant is not None
        if name == "backward":
            return self.events.backward(replace(call, receiver=participant))
        whose = participant[1].rpartition(":")[2]
        return self._method_of_participant(
            replace(call, receiver=participant, name=name, whose=whose)
        )

    def _constructor(self, call: Call) -> Valued | None:
        node, function = call.node, call.function
        role = self._role(call)
        identity = f"new@{node.lineno}:{node.col_offset}"
        if role is Role.SCALER:
            return [(call.state, ("scaler", identity, self._enabled(call)))]
        if role is Role.OPTIMIZER:
            owned = self.events.modules_in(node, call.state, function)
            self.events.parameters[identity] = owned
            return [(call.state, ("optimizer", identity))]
        owner = self.reader.program.find_class(node.func, function)
        return self.functions.construct(owner, call) if owner is not None else None

    def _enabled(self, call: Call) -> Formula:
        """Under which condition the new scaler is enabled."""
        for word in call.node.keywords:
            if word.arg == "enabled":
                return self.reader.formula(word.value, call.state, call.function)
            if word.arg is None:
                return None
        return True

    # -- unknown callees -------------------------------------------------------------------------

    def _unknown(self, call: Call) -> Valued:
        kinds = {kind_of(value) for value in call.values.values()}
        if CLIP_HELPER.search(call.name) and not kinds & {"scaler", "optimizer", "scaled"}:
            return self.events.clip(call)
        if call.name in CONTAINERS and self.escapes.is_given(call):
            return [(call.state, KEEPER)]
        if self._may_do_protocol_work(call, kinds):
            value = OPAQUE if SCALE_MENTION.search(call.name) else None
            if not self.escapes.is_given(call):
                return [(after, value) for after, _ in self.events.havoc(call.state)]
            kept = self.escapes.keep(call)
            return [(after, value or KEEPER) for after, _ in self.events.havoc(kept)]
        if self._may_train(call):
            call = call.changed()
            self.transitions.doubt_all(call.state)
        scaled = [value for value in call.values.values() if kind_of(value) in ("scaled", "opaque")]
        if scaled:
            return [(call.state, scaled[0] if call.name in ("cast", "sum") else OPAQUE)]
        if SCALE_MENTION.search(call.name):
            return [(call.state, OPAQUE)]
        return [(call.state, self.reader.value(call.node, call.state, call.function))]

    def _may_do_protocol_work(self, call: Call, kinds: set[str]) -> bool:
        name = call.name
        if only_looks(call.node, call.function):
            return False
        if self._is_variable(call):
            if is_for_effect(call.node, call.function):
                return True
        elif HARMLESS.search(name):
            return False
        if self._is_handed_in(call) and SUSPECT.search(name) and not self._computes_loss(call):
            return True
        if name in RUNNERS or "scaler" in kinds:
            return True
        if "scaled" in kinds and SUSPECT.search(name) and name != "update":
            return True
        if "optimizer" in kinds and STEPPERS.search(name):
            return True
        if self._computes_loss(call):
            return False
        if self._may_use_scaler(call):
            return True
        if self._is_variable(call) and HANDED in call.state.values:
            return True
        if "optimizer" in kinds and self._is_variable(call):
            return True
        return self._is_own(call) and SUSPECT.search(name) is not None

    def _is_own(self, call: Call) -> bool:
        """Whether a method is called on the object that some entry is about: a subclass decides."""
        if is_own_call(callee_of(call.node)):
            return True
        receiver = call.receiver
        return receiver is not None and receiver[0] == "instance" and "@" not in receiver[2]

    def _may_train(self, call: Call) -> bool:
        """Whether unknown code gets a model, and may run a backward or clear its gradients."""
        if HARMLESS.search(call.name) or self._computes_loss(call):
            return False
        return bool(self.reader.program.unit(call.function).slicer.models_in(call.node))

    def _is_variable(self, call: Call) -> bool:
        """`for hook in hooks: hook()`: a callee that is whatever a local holds."""
        callee = call.node.func
        locals_ = self.reader.program.facts(call.function).locals
        return isinstance(callee, ast.Name) and callee.id in locals_

    def _may_use_scaler(self, call: Call) -> bool:
        return self.escapes.is_given(call) or self.escapes.is_kept(call)

    def _is_handed_in(self, call: Call) -> bool:
        """A parameter that is called: `unscale_hook(optimizer)`."""
        callee = call.node.func
        return isinstance(callee, ast.Name) and callee.id in parameters(call.function)

    def _computes_loss(self, call: Call) -> bool:
        """A call whose result is backwarded later is a forward, no protocol work."""
        return id(call.node) in call.function.once(_loss_calls)

    # -- operators, with, assignments ------------------------------------------------------------

    def combine(
        self,
        node: ast.expr,
        operands: list[ast.expr],
        values: tuple[Value, ...],
        state: State,
        frame: Frame,
    ) -> Value:
        """The value of an operation on evaluated operands; mixes of losses are reported."""
        if isinstance(node, (ast.Tuple, ast.List)):
            return ("tuple", values)
        if isinstance(node, ast.Dict):
            known = dict(zip(operands, values))
            called = {item: known[item] for item in node.values if isinstance(item, ast.Call)}
            return self.reader.display(node, called, state, frame.function)
        scaled = [value for value in values if kind_of(value) in ("scaled", "opaque")]
        if not scaled or isinstance(node, ast.Compare):
            return None
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            self._report_mixed_losses(node, operands, values, state, frame)
        return scaled[0]

    def _report_mixed_losses(
        self,
        node: ast.expr,
        operands: list[ast.expr],
        values: tuple[Value, ...],
        state: State,
        frame: Frame,
    ) -> None:
        kinds = [kind_of(value) for value in values]
        if "scaled" not in kinds:
            return
        index = kinds.index("scaled")
        other = operands[1 - index]
        if kinds[1 - index] not in ("", "path") or not self._is_plain_loss(other, frame.function):
            return
        scaled = values[index]
        scaler = scaled[1] if scaled is not None else ""
        site = Site(node, frame.function, scaler, details={"plain": ast.unparse(other)})
        self.transitions.report("losses-mixed", site, state, {})

    def _is_plain_loss(self, place: ast.expr, function: Function) -> bool:
        """A local that is computed here, or named a loss: a scaled one would be known."""
        if not isinstance(place, ast.Name):
            return "loss" in last_name(place).lower()
        own = self.reader.program.facts(function).locals - parameters(function).keys()
        return place.id in own or "loss" in place.id.lower()

    def entered(self, item: ast.withitem, value: Value) -> Value:
        """What `with item as target` binds: apex hands out a loss that it scales itself."""
        expression = item.context_expr
        if isinstance(expression, ast.Call) and SCALE_MENTION.search(callee_name(expression)):
            return OPAQUE
        return value

    def edit_gradient(self, node: ast.AugAssign, state: State) -> None:
        """`p.grad /= scale` by hand: nobody knows whether that unscales."""
        attributes = {part.attr for part in walk(node.target) if isinstance(part, ast.Attribute)}
        if "grad" in attributes and SCALE_MENTION.search(ast.unparse(node.value)):
            self.transitions.havoc(state)

    def assign_gradient(self, target: ast.expr, value: Value, state: State, frame: Frame) -> None:
        """`p.grad = None` clears; any other assignment to `.grad` is unknown work."""
        if not isinstance(target, ast.Attribute) or target.attr != "grad":
            return
        if kind_of(value) == "none":
            if is_of_some(target, frame.function):
                return  # the others still have theirs, which is enough for a step
            self.transitions.zero_grad(state, Site(target, frame.function, optimizer=EVERY))
            return
        self.transitions.havoc(state)


def _effects(results: Valued | None) -> frozenset | None:
    """What a call did to the protocol, and what it returned."""
    if results is None:
        return None
    return frozenset((frozenset(state.typestate.items()), value) for state, value in results)


def _loss_calls(function: Function) -> frozenset[int]:
    """Ids of calls whose result is later backwarded or scaled in the same function."""
    used: set[str] = set()
    assigned: list[tuple[set[str], int]] = []
    for node in function.nodes:
        if isinstance(node, ast.Call) and callee_name(node) in ("backward", "scale"):
            places = [node.func.value] if isinstance(node.func, ast.Attribute) else []
            for place in (*places, *node.args[:1]):
                used |= names_in(place)
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            targets = {name for target in node.targets for name in names_in(target)}
            assigned.append((targets, id(node.value)))
    return frozenset(call for targets, call in assigned if targets & used)
