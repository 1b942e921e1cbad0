"""Calls: protocol events, constructors, functions of the file, and unknown callees.

An unknown callee that receives a scaler may do anything: then nothing is known any more
("havoc"), and unknown never reports.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from amplint.flow.conditions import assume, evaluate, forget, mentions
from amplint.flow.events import Site
from amplint.flow.facts import BACKWARD, CLIP_NAMES, SCALER_METHODS, UNSCALE
from amplint.flow.reader import Frame, callee_name
from amplint.flow.slice import CLIP_HELPER, RUNNERS, SUSPECT, is_own_call
from amplint.flow.state import EVERY, State
from amplint.flow.values import NONE, OPAQUE, Value, kind_of
from amplint.project import names
from amplint.project.module import Class, Function, walk_function
from amplint.project.roles import Role, enclosing_class, last_name

if TYPE_CHECKING:
    from amplint.flow.interpreter import Interpreter

Valued = list[tuple[State, Value]]
CALL_DEPTH = 6

#: Receivers whose `backward` is a framework's: it may scale by itself.
FRAMEWORK = re.compile(
    r"accelerator|engine|fabric|trainer|manager|runner|strategy|deepspeed|^amp$|optim|model|^self$|scaler|handler|plugin|backend|controller",
    re.IGNORECASE,
)
#: Callees that look at a scaler or a scaled value and change nothing.
HARMLESS = re.compile(
    r"print|log|debug|info|warn|len|save|dump|state_dict|isinstance|hasattr|append|item|str|repr|"
    r"type|id|format|float|isnan|isfinite|isinf|add_scalar|record|display|set_postfix|detach|cpu|mean|"
    r"all_reduce|reduce|barrier|broadcast|get_scale|is_enabled|checkpoint|dict|tuple|list|zip|"
    r"partial|Lambda|lr_scheduler|LR$|Scheduler",
)
STEPPERS = re.compile(r"step|backward|zero|train|clip|scal", re.IGNORECASE)
SCALER_READS = frozenset({"state_dict", "load_state_dict", "get_scale", "is_enabled"})
SCALE_MENTION = re.compile(r"scale", re.IGNORECASE)
UNBOUNDED = re.compile(r"inf\b|None$", re.IGNORECASE)


class Calls:
    """Evaluates calls for an interpreter."""

    def __init__(self, interpreter: Interpreter) -> None:
        self.interpreter = interpreter
        self.reader = interpreter.reader
        self.transitions = interpreter.transitions
        self.parameters: dict[str, frozenset[str]] = {}  # optimizer id -> module locations
        # Results of calls by exact entry state: the rounds of a loop soon repeat themselves.
        self._summaries: dict[tuple, list[tuple[State, Value, list[tuple]]]] = {}
        self._loss_names: dict[Function, set[str]] = {}

    # -- entry -------------------------------------------------------------------------

    def call(self, node: ast.Call, state: State, frame: Frame) -> Valued:
        """Evaluate a call: receiver first, then arguments, then the call itself."""
        receivers: Valued = [(state, None)]
        if isinstance(node.func, ast.Attribute):
            receivers = self.interpreter.expression(node.func.value, state, frame)
        elif not isinstance(node.func, ast.Name):
            receivers = self.interpreter.expression(node.func, state, frame)
        results: Valued = []
        for current, receiver in receivers:
            for after, arguments in self._arguments(node, current, frame):
                results += self._dispatch(node, receiver, arguments, after, frame)
        return results

    def _arguments(self, node: ast.Call, state: State, frame: Frame) -> list[tuple[State, dict[ast.expr, Value]]]:
        running: list[tuple[State, dict[ast.expr, Value]]] = [(state, {})]
        for argument in _argument_expressions(node):
            running = [
                (after, {**known, argument: value})
                for current, known in running
                for after, value in self.interpreter.expression(argument, current, frame)
            ]
        return running

    def _dispatch(self, node: ast.Call, receiver: Value, arguments, state: State, frame: Frame) -> Valued:
        name = callee_name(node)
        if isinstance(node.func, ast.Attribute):
            done = self._method(node, name, receiver, arguments, state, frame)
        else:
            done = self._plain(node, name, arguments, state, frame)
        return done if done is not None else self._unknown(node, name, arguments, state, frame)

    # -- methods -----------------------------------------------------------------------

    def _method(self, node: ast.Call, name: str, receiver: Value, arguments, state: State, frame: Frame) -> Valued | None:
        kind = kind_of(receiver)
        place = node.func.value  # type: ignore[union-attr]
        if kind == "none" and name in SCALER_METHODS | SCALER_READS and self.reader.roles.is_scaler(place, frame.function):
            return self._scaler_is_none(node, state, frame)
        if kind == "scaler":
            return self._scaler_method(node, name, receiver, arguments, state, frame)
        if name == "backward":
            return self._backward(node, receiver, arguments, state, frame)
        if kind in ("scaled", "opaque"):
            return [(state, receiver)]
        if kind == "instance":
            method = self._find_method(receiver, name)
            if method is not None:
                return self.invoke(method, node, arguments, state, frame, receiver)
        if _is_super(place):
            return self._super_call(node, name, arguments, state, frame)
        if name in CLIP_NAMES:
            return self._clip(node, name, state, frame)
        if kind == "optimizer" and name == "step":
            return self._optimizer_step(node, receiver, state, frame)
        if name == "zero_grad":
            return self._zero_grad(node, receiver, state, frame)
        if name in ("mul_", "div_") and last_name(place) == "grad":
            return self._havoc(state)
        return self._constructor(node, arguments, state, frame)

    def _scaler_is_none(self, node: ast.Call, state: State, frame: Frame) -> Valued:
        place = ast.unparse(node.func.value)  # type: ignore[union-attr]
        site = Site(node, frame.function, scaler_text=place)
        self.transitions.report("scaler-is-none", site, state, {})
        return []

    def _scaler_method(self, node: ast.Call, name: str, receiver: Value, arguments, state: State, frame: Frame) -> Valued | None:
        handler = {
            "scale": self._scale, "unscale_": self._unscale, "step": self._step, "update": self._update,
        }.get(name)
        if handler is None:
            return [(state, None)]
        state = state.copy()
        place = self.reader.locate(node.func.value, state, frame.function)  # type: ignore[union-attr]
        if place is not None and place not in state.values:
            state.facts[("some", place)] = True
        results: Valued = []
        for current in self._enabled_or_not(receiver[1], state):
            results += handler(node, receiver[1], arguments, current.copy(), frame)
        return results

    def _enabled_or_not(self, scaler: str, state: State) -> list[State]:
        """Split on whether the scaler is enabled, where the code makes it depend on something."""
        value = state.values.get(f"{scaler}.<enabled>")
        switch = value[1] if kind_of(value) == "formula" else ("true", f"{scaler}.<enabled>")
        if value is None and not self._asks_is_enabled():
            return [state]
        if switch is None or evaluate(switch, state) is not None:
            return [state]
        results = []
        for truth in (True, False):
            for after in assume(switch, truth, state):
                after = after.copy()
                after.values[f"{scaler}.<enabled>"] = ("const", truth)
                results.append(after)
        return results

    def _asks_is_enabled(self) -> bool:
        return any("is_enabled" in facts.callees for facts in self.reader.facts.values())

    def _scale(self, node: ast.Call, scaler: str, arguments, state: State, frame: Frame) -> Valued:
        if self._disabled(scaler, state):
            return [(state, arguments.get(node.args[0]) if node.args else None)]
        return [(state, ("scaled", scaler))]

    def _unscale(self, node: ast.Call, scaler: str, arguments, state: State, frame: Frame) -> Valued:
        if not self._disabled(scaler, state) and node.args:
            self.transitions.unscale(state, self._pair_site(node, scaler, arguments, state, frame))
        return [(state, None)]

    def _step(self, node: ast.Call, scaler: str, arguments, state: State, frame: Frame) -> Valued:
        target = _optimizer_argument(node)
        if target is None:
            return [(state, None)]
        if isinstance(target, ast.Name) and target.id == "self":
            return self._havoc(state)  # an object that records whether the step ran
        if len(_argument_expressions(node)) > 1:
            return self._havoc(state)  # with a closure: amplint.rules.closure_with_scaler
        site = self._pair_site(node, scaler, arguments, state, frame)
        if self._disabled(scaler, state):
            self.transitions.quiet_step(state, site)
        else:
            self.transitions.step(state, site)
        return [(state, None)]

    def _update(self, node: ast.Call, scaler: str, arguments, state: State, frame: Frame) -> Valued:
        if not self._disabled(scaler, state):
            site = self._scaler_site(node, scaler, frame)
            self.transitions.update(state, site, new_scale=bool(node.args or node.keywords))
        return [(state, None)]

    def _disabled(self, scaler: str, state: State) -> bool:
        value = state.values.get(f"{scaler}.<enabled>")
        if value is not None and value[0] == "formula":
            return evaluate(value[1], state) is False
        return evaluate(("true", f"{scaler}.<enabled>"), state) is False

    def _backward(self, node: ast.Call, receiver: Value, arguments, state: State, frame: Frame) -> Valued | None:
        place = node.func.value  # type: ignore[union-attr]
        scaled = [value for value in (receiver, *arguments.values()) if kind_of(value) == "scaled"]
        framework = bool(FRAMEWORK.search(last_name(place)))
        if kind_of(receiver) == "instance" and self._find_method(receiver, "backward"):
            return self.invoke(self._find_method(receiver, "backward"), node, arguments, state, frame, receiver)
        if scaled and (kind_of(receiver) == "scaled" or not framework):
            return self._feed(node, scaled[0][1], state, frame)
        is_autograd = ast.unparse(place) in ("torch.autograd", "autograd")
        if framework or kind_of(receiver) == "opaque" or (node.args and not is_autograd):
            return self._havoc(state)
        state = state.copy()
        self.transitions.plain_backward(state, Site(node, frame.function, optimizer_text=""))
        state.typestate[("flag", "fed")] = True
        state.typestate.pop(("flag", "after"), None)
        return [(state, None)]

    def _feed(self, node: ast.Call, scaler: str, state: State, frame: Frame) -> Valued:
        state = state.copy()
        self.transitions.scaled_backward(state, self._scaler_site(node, scaler, frame))
        state.typestate[("flag", "fed")] = True
        state.typestate.pop(("flag", "after"), None)
        return [(state, None)]

    def _optimizer_step(self, node: ast.Call, receiver: Value, state: State, frame: Frame) -> Valued:
        state = state.copy()
        text = ast.unparse(node.func.value)  # type: ignore[union-attr]
        self.interpreter.saw_optimizer(receiver[1])
        site = Site(node, frame.function, optimizer=receiver[1], optimizer_text=text)
        self.transitions.optimizer_step(state, site)
        return [(state, None)]

    def _zero_grad(self, node: ast.Call, receiver: Value, state: State, frame: Frame) -> Valued:
        state = state.copy()
        optimizer = receiver[1] if kind_of(receiver) == "optimizer" else EVERY
        if optimizer != EVERY:
            self.interpreter.saw_optimizer(optimizer)
        text = ast.unparse(node.func.value)  # type: ignore[union-attr]
        site = Site(node, frame.function, optimizer=optimizer, optimizer_text=text)
        self.transitions.zero_grad(state, site, keep=_keeps_zeros(node))
        return [(state, None)]

    def _clip(self, node: ast.Call, name: str, state: State, frame: Frame) -> Valued:
        if self._threshold_is_harmless(node, frame.function):
            return [(state, None)]
        state = state.copy()
        only = self._optimizers_over(node, state, frame)
        site = Site(node, frame.function, details={"norm": name})
        self.transitions.clip(state, site, only, frozenset(self.parameters))
        return [(state, None)]

    def _threshold_is_harmless(self, node: ast.Call, function: Function) -> bool:
        """A threshold that mentions the scale is meant for scaled gradients; inf only measures."""
        named = ("max_norm", "clip_value", "max_value")
        thresholds = [*node.args[1:2], *(word.value for word in node.keywords if word.arg in named)]
        for threshold in thresholds:
            texts = [ast.unparse(threshold), *self._definitions(threshold, function)]
            if any(SCALE_MENTION.search(text) or UNBOUNDED.search(text) for text in texts):
                return True
        return False

    def _definitions(self, place: ast.expr, function: Function) -> list[str]:
        """Texts of what a local name is assigned in its function."""
        if not isinstance(place, ast.Name):
            return []
        return [
            ast.unparse(statement.value)
            for statement in walk_function(function)
            if isinstance(statement, ast.Assign)
            and any(isinstance(target, ast.Name) and target.id == place.id for target in statement.targets)
        ]

    def _optimizers_over(self, node: ast.Call, state: State, frame: Frame) -> frozenset[str] | None:
        """Optimizers that own the clipped module's parameters, if that is known."""
        if not node.args:
            return None
        modules = self._modules_in(node.args[0], state, frame)
        owners = {key for key, owned in self.parameters.items() if owned & modules}
        return frozenset(owners) or None

    def _modules_in(self, node: ast.expr, state: State, frame: Frame) -> frozenset[str]:
        found = set()
        for child in ast.walk(node):
            if isinstance(child, ast.Call) and callee_name(child) == "parameters" and isinstance(child.func, ast.Attribute):
                location = self.reader.locate(child.func.value, state, frame.function)
                if location is not None:
                    found.add(location)
        return frozenset(found)

    # -- names and constructors ----------------------------------------------------------

    def _plain(self, node: ast.Call, name: str, arguments, state: State, frame: Frame) -> Valued | None:
        if isinstance(node.func, ast.Name):
            value = self.reader.raw(node.func, state, frame.function)
            if kind_of(value) == "function":
                return self.invoke(value[1], node, arguments, state, frame, None)
            if kind_of(value) == "instance":
                method = self._find_method(value, "__call__")
                return self.invoke(method, node, arguments, state, frame, value) if method else None
        if name in CLIP_NAMES or self.reader.module.resolve(node.func) in names.CLIP_FUNCTIONS:
            return self._clip(node, name, state, frame)
        return self._constructor(node, arguments, state, frame)

    def _constructor(self, node: ast.Call, arguments, state: State, frame: Frame) -> Valued | None:
        module = self.reader.module
        dotted = module.resolve(node.func)
        role = self.reader.roles.constructor_role(dotted, node.func)
        identity = f"new@{node.lineno}:{node.col_offset}"
        if role is Role.SCALER:
            return [(state, ("scaler", identity, self._enabled(node, dotted, state, frame)))]
        if role is Role.OPTIMIZER:
            self.parameters[identity] = self._modules_in(node, state, frame)
            return [(state, ("optimizer", identity))]
        if isinstance(node.func, ast.Name) and node.func.id in module.classes and dotted is None:
            return self._construct(module.classes[node.func.id], node, arguments, state, frame)
        return None

    def _enabled(self, node: ast.Call, dotted: str | None, state: State, frame: Frame):
        for keyword in node.keywords:
            if keyword.arg == "enabled":
                return self.reader.formula(keyword.value, state, frame.function)
            if keyword.arg is None:
                return None
        return True

    def _construct(self, owner: Class, node: ast.Call, arguments, state: State, frame: Frame) -> Valued | None:
        instance = ("instance", owner.name, f"{owner.name}@{node.lineno}")
        constructor = self.reader.module.find_method(owner, "__init__")
        if constructor is None or not self._class_is_interesting(owner):
            return [(state, instance)]
        results = self.invoke(constructor, node, arguments, state, frame, instance, force=True)
        return [(after, instance) for after, _ in results]

    def _class_is_interesting(self, owner: Class) -> bool:
        family = self.reader.module.ancestry(owner)
        return any(self.reader.facts[method].reach for item in family for method in item.methods.values())

    def rename(self, identity: str, location: str) -> None:
        """A new optimizer found its name: what is known about it moves along."""
        owned = self.parameters.pop(identity, None)
        if owned is not None:
            self.parameters[location] = owned | self.parameters.get(location, frozenset())

    # -- functions of the file -------------------------------------------------------------

    def _find_method(self, instance: Value, name: str) -> Function | None:
        owner = self.reader.module.classes.get(instance[1])
        return self.reader.module.find_method(owner, name) if owner else None

    def _super_call(self, node: ast.Call, name: str, arguments, state: State, frame: Frame) -> Valued | None:
        owner = enclosing_class(frame.function)
        instance = state.values.get(f"{frame.function.qualname}:self")
        if owner is None or instance is None:
            return None
        for base in self.reader.module.ancestry(owner)[1:]:
            if name in base.methods:
                return self.invoke(base.methods[name], node, arguments, state, frame, instance)
        return None

    def invoke(self, function: Function, node: ast.Call, arguments, state: State, frame: Frame, instance: Value, *, force: bool = False) -> Valued | None:
        """Interpret a call of a function of the file in the caller's state."""
        facts = self.reader.facts[function]
        if _is_stub(function):
            return None
        if not facts.interesting and not force:
            return self._pass_over(facts, instance, state)
        if frame.depth >= CALL_DEPTH or function in frame.active or facts.generator:
            return self._havoc(state) if facts.interesting else [(state, None)]
        self.interpreter.inlined.add(function)
        inner = Frame(function, facts, frame.depth + 1, (*frame.active, function))
        entered = state.copy()
        self.unbind_scalers(function, entered)
        entered.note("call", node, frame.function, function)
        self._bind_parameters(function, node, arguments, entered, frame, instance)
        key = (
            function, inner.depth, self.interpreter.scope,
            frozenset(entered.typestate.items()),
            frozenset(entered.values.items()),
            frozenset(entered.facts.items()),
        )
        summary = self._summaries.get(key)
        if summary is None:
            outcome = self.interpreter.run(inner, [entered])
            returned = [*outcome.returns, *((after, NONE) for after in outcome.normal)]
            left = self._left(returned, function, frame)
            summary = [(after, value, _added_steps(after, entered)) for after, value in left]
            self._summaries[key] = summary
            return left
        return [(_resumed(after, steps, entered), value) for after, value, steps in summary]

    def unbind_scalers(self, function: Function, state: State) -> None:
        """A local scaler that no branch has built yet cannot be used: it counts as None."""
        for (scope, path), found in self.reader.roles.by_path.items():
            if scope == function.qualname and Role.SCALER in found and "." not in path:
                if path in self.reader.facts[function].locals and path not in _parameter_names(function):
                    state.values.setdefault(f"{scope}:{path}", NONE)

    def _pass_over(self, facts, instance: Value, state: State) -> Valued:
        """A function without events: only what it stores on `self` matters."""
        if instance is None or not facts.self_stores:
            return [(state, None)]
        state = state.copy()
        for attribute in facts.self_stores:
            forget(f"{instance[2]}.{attribute}", state)
        return [(state, None)]

    def _left(self, returned: Valued, function: Function, frame: Frame) -> Valued:
        """Leave a function: its locals are gone, equal states are merged per value."""
        from amplint.flow.state import merge

        prefix = f"{function.qualname}:"
        groups: dict[Value, list[State]] = {}
        for state, value in returned:
            state = state.copy()
            if value is not None and value[0] in ("path", "formula") and _is_local(value, prefix):
                known = evaluate(value[1], state) if value[0] == "formula" else None
                value = ("const", known) if known is not None else None
            drop_locals(state, prefix)
            groups.setdefault(value, []).append(state)
        guards = self.interpreter.slice_of(frame.function).guard_names
        return [(state, value) for value, states in groups.items() for state in merge(states, guards)]

    def _bind_parameters(self, function: Function, node: ast.Call, arguments, state: State, frame: Frame, instance: Value) -> None:
        parameters = function.node.args  # type: ignore[union-attr]
        plain = [argument.arg for argument in (*parameters.posonlyargs, *parameters.args)]
        is_method = function.owner is not None and plain and not _is_static(function)
        if is_method:
            state.values[f"{function.qualname}:{plain[0]}"] = instance or ("instance", function.owner.name, function.owner.name)
            plain = plain[1:]
        bound = self._actuals(plain, node, arguments, state, frame)
        spread = any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords)
        for name, default in _defaults(parameters).items():
            if name not in bound and not spread:
                bound[name] = self.reader.value(default, state, function)
        for name, value in bound.items():
            forget(f"{function.qualname}:{name}", state)
            if value is not None and value != ("path", f"{function.qualname}:{name}"):
                state.values[f"{function.qualname}:{name}"] = value

    def _actuals(self, plain: list[str], node: ast.Call, arguments, state: State, frame: Frame) -> dict[str, Value]:
        bound: dict[str, Value] = {}
        for name, argument in zip(plain, node.args):
            if isinstance(argument, ast.Starred):
                break
            bound[name] = self._actual(argument, arguments, state, frame)
        for keyword in node.keywords:
            if keyword.arg is not None:
                bound[keyword.arg] = self._actual(keyword.value, arguments, state, frame)
        return bound

    def _actual(self, argument: ast.expr, arguments, state: State, frame: Frame) -> Value:
        if isinstance(argument, (ast.Name, ast.Attribute, ast.Subscript)):
            return self.reader.raw(argument, state, frame.function)
        return arguments.get(argument)

    # -- unknown callees ---------------------------------------------------------------

    def _unknown(self, node: ast.Call, name: str, arguments, state: State, frame: Frame) -> Valued:
        kinds = {kind_of(value) for value in arguments.values()}
        if CLIP_HELPER.search(name) and not kinds & {"scaler", "optimizer", "scaled"}:
            return self._clip(node, name, state, frame)
        if self._may_do_protocol_work(node, name, arguments, state, frame):
            return [(after, OPAQUE if SCALE_MENTION.search(name) else None) for after, _ in self._havoc(state)]
        scaled = [value for value in arguments.values() if kind_of(value) in ("scaled", "opaque")]
        if scaled:
            return [(state, scaled[0] if name in ("cast", "sum") else OPAQUE)]
        return [(state, self.reader.value(node, state, frame.function))]

    def _may_do_protocol_work(self, node: ast.Call, name: str, arguments, state: State, frame: Frame) -> bool:
        if HARMLESS.search(name):
            return False
        if name in RUNNERS:
            return True
        kinds = {kind_of(value) for value in arguments.values()}
        if "scaler" in kinds:
            return True
        if "scaled" in kinds and SUSPECT.search(name) and name != "update":
            return True
        if ("optimizer" in kinds or EVERY in kinds) and STEPPERS.search(name):
            return True
        if is_own_call(node.func) and SUSPECT.search(name):
            return not self._computes_loss(node, frame.function)
        return False

    def _computes_loss(self, node: ast.Call, function: Function) -> bool:
        """A call whose result is backwarded later is a forward, no protocol work."""
        if function not in self._loss_names:
            self._loss_names[function] = set(_loss_calls(function))
        return id(node) in self._loss_names[function]

    def _havoc(self, state: State) -> Valued:
        state = state.copy()
        self.transitions.havoc(state)
        return [(state, None)]

    # -- details -----------------------------------------------------------------------

    def _pair_site(self, node: ast.Call, scaler: str, arguments, state: State, frame: Frame) -> Site:
        target = _optimizer_argument(node)
        value = arguments.get(target)
        if kind_of(value) == "optimizer":
            optimizer = value[1]
        else:
            optimizer = self.reader.locate(target, state, frame.function) or ast.unparse(target)
        self.interpreter.saw_optimizer(optimizer)
        return Site(
            node, frame.function, scaler, optimizer,
            ast.unparse(node.func.value), ast.unparse(target),  # type: ignore[union-attr]
        )

    def _scaler_site(self, node: ast.Call, scaler: str, frame: Frame) -> Site:
        place = node.func.value if isinstance(node.func, ast.Attribute) else node.func
        text = ast.unparse(place)
        inner = place
        if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and inner.func.attr == "scale":
            text = ast.unparse(inner.func.value)
        return Site(node, frame.function, scaler, "", text, "")

    def combine(self, node: ast.expr, operands, values, state: State, frame: Frame) -> Value:
        """The value of an operation on evaluated operands; mixes of losses are reported."""
        scaled = [value for value in values if kind_of(value) in ("scaled", "opaque")]
        if isinstance(node, (ast.Tuple, ast.List)):
            return ("tuple", tuple(values))
        if not scaled or isinstance(node, (ast.Dict, ast.Compare)):
            return None
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and scaled[0][0] == "scaled":
            other = operands[1] if kind_of(values[0]) == "scaled" else operands[0]
            plain = values[1] if kind_of(values[0]) == "scaled" else values[0]
            if kind_of(plain) in ("", "path") and self._is_plain_loss(other, frame):
                site = Site(node, frame.function, scaled[0][1], details={"plain": ast.unparse(other)})
                self.transitions.report("losses-mixed", site, state, {})
        return scaled[0]

    def _is_plain_loss(self, place: ast.expr, frame: Frame) -> bool:
        """A local that is computed here, or named a loss: a scaled one would be known."""
        if not isinstance(place, ast.Name):
            return "loss" in last_name(place).lower()
        parameters = {argument.arg for argument in ast.walk(frame.function.node) if isinstance(argument, ast.arg)}
        own = place.id in frame.facts.locals and place.id not in parameters
        return own or "loss" in place.id.lower()

    def entered(self, item: ast.withitem, value: Value) -> Value:
        """What `with item as target` binds: apex hands out a loss that it scales itself."""
        expression = item.context_expr
        if isinstance(expression, ast.Call) and SCALE_MENTION.search(callee_name(expression)):
            return OPAQUE
        return value

    def edit_gradient(self, node: ast.AugAssign, state: State, frame: Frame) -> None:
        """`p.grad /= scale` by hand: nobody knows whether that unscales."""
        if "grad" in _attributes(node.target) and SCALE_MENTION.search(ast.unparse(node.value)):
            self.transitions.havoc(state)

    def assign_gradient(self, target: ast.expr, value: Value, state: State, frame: Frame) -> None:
        """`p.grad = None` clears; any other assignment to `.grad` is unknown work."""
        if not isinstance(target, ast.Attribute) or target.attr != "grad":
            return
        if kind_of(value) == "none":
            self.transitions.zero_grad(state, Site(target, frame.function, optimizer=EVERY))
            return
        self.transitions.havoc(state)


def _added_steps(after: State, entered: State) -> list[tuple]:
    """Witness steps of a call, oldest first."""
    steps = []
    trail = after.trail
    while trail is not None and trail is not entered.trail:
        trail, step = trail
        steps.append(step)
    steps.reverse()
    return steps


def _resumed(after: State, steps: list[tuple], entered: State) -> State:
    state = State(after.typestate, after.values, after.facts, entered.trail)
    for step in steps:
        state.note(*step)
    return state


def drop_locals(state: State, prefix: str) -> None:
    """Forget, in place, every local of a function that was left."""
    for location in [place for place in state.values if place.startswith(prefix)]:
        del state.values[location]
    for place, value in list(state.values.items()):
        if value is not None and value[0] in ("path", "formula") and _is_local(value, prefix):
            known = evaluate(value[1], state) if value[0] == "formula" else None
            if known is None:
                del state.values[place]
            else:
                state.values[place] = ("const", known)
    for atom in [atom for atom in state.facts if any(m.startswith(prefix) for m in mentions(atom))]:
        del state.facts[atom]


def _is_local(value: Value, prefix: str) -> bool:
    if value[0] == "path":
        return value[1].startswith(prefix)
    return any(mention.startswith(prefix) for mention in mentions(value[1]))


def _argument_expressions(node: ast.Call) -> list[ast.expr]:
    return [*node.args, *(keyword.value for keyword in node.keywords)]


def _optimizer_argument(node: ast.Call) -> ast.expr | None:
    if node.args:
        return None if isinstance(node.args[0], ast.Starred) else node.args[0]
    return next((keyword.value for keyword in node.keywords if keyword.arg == "optimizer"), None)


def _is_super(place: ast.expr) -> bool:
    return isinstance(place, ast.Call) and isinstance(place.func, ast.Name) and place.func.id == "super"


def _is_static(function: Function) -> bool:
    decorators = getattr(function.node, "decorator_list", [])
    return any(isinstance(item, ast.Name) and item.id == "staticmethod" for item in decorators)


def _is_stub(function: Function) -> bool:
    """A body of nothing but a docstring, pass, `...` or raise NotImplementedError."""
    for statement in function.body:
        if isinstance(statement, ast.Pass):
            continue
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            continue
        if isinstance(statement, ast.Raise) and "NotImplemented" in ast.unparse(statement):
            continue
        return False
    return True


def _parameter_names(function: Function) -> set[str]:
    arguments = getattr(function.node, "args", None)
    if not isinstance(arguments, ast.arguments):
        return set()
    return {argument.arg for argument in ast.walk(arguments) if isinstance(argument, ast.arg)}


def _defaults(parameters: ast.arguments) -> dict[str, ast.expr]:
    plain = [*parameters.posonlyargs, *parameters.args]
    found = {
        argument.arg: default
        for argument, default in zip(plain[len(plain) - len(parameters.defaults) :], parameters.defaults)
    }
    for argument, default in zip(parameters.kwonlyargs, parameters.kw_defaults):
        if default is not None:
            found[argument.arg] = default
    return found


def _keeps_zeros(node: ast.Call) -> bool:
    values = [keyword.value for keyword in node.keywords if keyword.arg == "set_to_none"] + node.args[:1]
    return any(isinstance(value, ast.Constant) and value.value is False for value in values)


def _attributes(node: ast.expr) -> set[str]:
    return {child.attr for child in ast.walk(node) if isinstance(child, ast.Attribute)}


def _loss_calls(function: Function):
    """Ids of calls whose result is later backwarded or scaled in the same function."""
    used: set[str] = set()
    assigned: list[tuple[set[str], int]] = []
    for node in ast.walk(function.node):
        if isinstance(node, ast.Call) and callee_name(node) in ("backward", "scale"):
            for place in ([node.func.value] if isinstance(node.func, ast.Attribute) else []) + node.args[:1]:
                used |= {child.id for child in ast.walk(place) if isinstance(child, ast.Name)}
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            targets = {child.id for target in node.targets for child in ast.walk(target) if isinstance(child, ast.Name)}
            assigned.append((targets, id(node.value)))
    return [call for targets, call in assigned if targets & used]
