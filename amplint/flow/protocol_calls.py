"""Calls that are protocol events: backward, unscale_, step, update, zero_grad, clip."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from amplint.amp.clips import CLAMPS, says_the_same
from amplint.amp.parameter_loops import parameters_behind
from amplint.code.arguments import receiver_of
from amplint.code.dataflow import bindings_of, parameters
from amplint.code.expressions import last_name
from amplint.code.module import Function, walk
from amplint.flow.call import Call, callee_name, keeps_zeros, scaler_text
from amplint.flow.conditions import assume, evaluate, is_under, remembered
from amplint.flow.events import Site, Transitions
from amplint.flow.facts import SCALE, SCALER_METHODS, STATE_METHODS, STEP, ZERO_GRAD
from amplint.flow.kinship import is_torch_scaler
from amplint.flow.param_groups import grouped_in
from amplint.flow.reader import Reader
from amplint.flow.state import SWITCH, State
from amplint.flow.typestates import EVERY
from amplint.flow.values import Value, kind_of
from amplint.protocol import Stage

Valued = list[tuple[State, Value]]

#: Methods that fail on a scaler that is None.
SCALER_USES = SCALER_METHODS | STATE_METHODS
#: Receivers whose `backward` is a framework's: it may scale by itself.
FRAMEWORK = re.compile(
    r"accelerator|engine|fabric|trainer|manager|runner|strategy|deepspeed|^amp$|optim|model|"
    r"^self$|scaler|handler|plugin|backend|controller",
    re.IGNORECASE,
)
SCALE_MENTION = re.compile(r"scale", re.IGNORECASE)
UNBOUNDED = re.compile(r"inf\b|None$", re.IGNORECASE)
#: A copy of a module has parameters of its own.
COPY = "deepcopy"
#: A function or an object of the program that a loss was computed by, and nobody knows its module.
OTHER = "<other>"
THRESHOLDS = ("max_norm", "clip_value", "max_value", "min", "max")


class SeveralOptimizers(Exception):
    """A scope holds a second optimizer: what was found without that knowledge does not count."""


class ProtocolCalls:
    """Turns calls into protocol events.

    Attributes:
        parameters: optimizer id -> locations of the modules whose parameters it owns.
        optimizers: scope -> optimizers that took part in an event there.
        scope: the outermost training loop, None outside of one.
        waits: whether to stop at the second optimizer of a scope.
    """

    def __init__(self, reader: Reader, transitions: Transitions) -> None:
        self.reader = reader
        self.transitions = transitions
        self.parameters: dict[str, frozenset[str]] = {}
        self.optimizers: dict[int | None, set[str]] = {}
        self.scope: int | None = None
        self.waits = False

    # -- the scaler ------------------------------------------------------------------------

    def scaler_is_none(self, call: Call) -> Valued:
        """A method of a scaler that is None on this path: the path ends here."""
        words = {"method": call.name}
        site = Site(call.node, call.function, scaler_text=call.receiver_text, details=words)
        self.transitions.report("scaler-is-none", site, call.state, {})
        return []

    def scaler_method(self, call: Call, scaler: str) -> Valued:
        """A method of a scaler; those without effect on the protocol only have a value."""
        handler = {
            "scale": self._scale,
            "unscale_": self._unscale,
            "step": self._step,
            "update": self._update,
        }.get(call.name)
        if handler is None:
            return [(call.state, None)]
        call = call.changed()
        place = self.reader.locate(call.place, call.state, call.function)
        if place is not None and not call.whose and place not in call.state.values:
            call.state.facts[("some", place)] = True
            call.state.facts[is_torch_scaler(place)] = True
        results: Valued = []
        for state in self._where_it_is_on(scaler, call):
            results += handler(call.within(state.copy()), scaler)
        return results

    def _where_it_is_on(self, scaler: str, call: Call) -> list[State]:
        """The scaler is on, where the code makes that depend on something that may be so."""
        place = scaler + SWITCH
        value = call.state.values.get(place)
        switch = value[1] if value is not None and value[0] == "formula" else ("true", place)
        if value is None and not self.reader.program.asks_is_enabled(call.function):
            return [call.state]
        if switch is None or isinstance(switch, bool) or kind_of(value) == "const":
            return [call.state]
        for truth in (True, False):
            # `State.key` keeps the two apart.
            found = [
                remembered(switch, truth, after) for after in assume(switch, truth, call.state)
            ]
            for after in found if value is None else ():
                after.values[place] = ("const", truth)
            if found:
                return found
        return []

    def _scale(self, call: Call, scaler: str) -> Valued:
        if self._is_disabled(scaler, call.state):
            argument = call.positional[0] if call.positional else None
            return [(call.state, call.values.get(argument) if argument else None)]
        return [(call.state, ("scaled", scaler))]

    def _unscale(self, call: Call, scaler: str) -> Valued:
        target = call.optimizer
        if target is not None and not self._is_disabled(scaler, call.state):
            if kind_of(call.values.get(target)) == "foreign":
                return self.havoc(call.state)
            self.transitions.unscale(call.state, self.site_of(call, scaler, target))
        return [(call.state, None)]

    def _step(self, call: Call, scaler: str) -> Valued:
        target = call.optimizer
        if target is None:
            return [(call.state, None)]
        records_only = isinstance(target, ast.Name) and target.id == "self"
        if records_only or len(call.positional) + len(call.named) > 1:
            # An object that only records that the step ran; a closure (AMP118).
            return self.havoc(call.state)
        if kind_of(call.values.get(target)) == "foreign":
            return self.havoc(call.state)
        site = self.site_of(call, scaler, target)
        if self._is_disabled(scaler, call.state):
            self.transitions.quiet_step(call.state, site)
        else:
            self.transitions.step(call.state, site)
            if self._may_clear(target, call.function):
                self.transitions.doubt_gradients(call.state, site.optimizer)
        return [(call.state, None)]

    def _may_clear(self, optimizer: ast.expr, function: Function) -> bool:
        """Whether an optimizer is of a class of the project whose `step` does more than to step.

        Torch's leave the gradients; what another one does with them is its own.
        """
        program = self.reader.program
        owner = program.objects.class_of(optimizer, function)
        step = program.find_method(owner, "step") if owner is not None else None
        if step is None:
            return False
        facts = program.facts(step)
        return ZERO_GRAD in facts.reach or bool(facts.callees - {"step"})

    def _update(self, call: Call, scaler: str) -> Valued:
        if not self._is_disabled(scaler, call.state):
            new_scale = bool(call.positional or call.node.keywords)
            self.transitions.update(call.state, self._site(call, scaler), new_scale=new_scale)
        return [(call.state, None)]

    def _is_disabled(self, scaler: str, state: State) -> bool:
        return evaluate(("true", scaler + SWITCH), state) is False

    # -- backward and the optimizer ----------------------------------------------------------

    def backward(self, call: Call) -> Valued:
        """`x.backward(...)`: scaled, plain, or a framework's that nobody can judge."""
        if kind_of(call.receiver) in ("const", "none"):
            return []  # a sum over an empty loop: the path ends in an AttributeError
        values = (call.receiver, *call.values.values())
        scaled = [value[1] for value in values if value is not None and value[0] == "scaled"]
        framework = bool(FRAMEWORK.search(last_name(call.place)))
        if scaled and (kind_of(call.receiver) == "scaled" or not framework):
            return self._fed(call, scaled[0])
        autograd = ast.unparse(call.place) in ("torch.autograd", "autograd")
        opaque = kind_of(call.receiver) in ("opaque", "keeper")
        private = self._is_private(call) or self._is_handed_a_scaled_one(call)
        if framework or opaque or private or (call.node.args and not autograd):
            return self.havoc(call.state)
        return self._fed(call, None)

    def _is_handed_a_scaled_one(self, call: Call) -> bool:
        """Whether a backward starts from what a caller in sight, which is not followed, has scaled."""
        if call.frame.active[:1] != (call.function,):
            return False
        program = self.reader.program
        return any(
            isinstance(made, ast.Call)
            and isinstance(made.func, ast.Attribute)
            and made.func.attr == "scale"
            and program.roles(origin.function).is_scaler(made.func.value, origin.function)
            for part in walk(call.place)
            if isinstance(part, ast.Name)
            for origin in program.values.origins.of(part, call.function).origins
            for made in [origin.expression]
        )

    def _is_private(self, call: Call) -> bool:
        """A plain backward in a helper of another file is often an attack's or a plot's own.

        Not where it starts from a loss that the caller hands in.
        """
        if call.function.module is call.frame.entry:
            return False
        name = call.place.id if isinstance(call.place, ast.Name) else ""
        if name in parameters(call.function) and name not in bindings_of(call.function):
            return False
        return not self.reader.program.facts(call.function).reach & {SCALE, STEP}

    def _fed(self, call: Call, scaler: str | None) -> Valued:
        state = call.state.copy()
        self.feed(state, None if scaler is None else self._site(call, scaler), call)
        return [(state, None)]

    def feed(self, state: State, site: Site | None, call: Call) -> None:
        """A backward, in place.

        Args:
            site: with the scaler of the loss; None for a plain backward.
        """
        if site is None:
            self.transitions.plain_backward(state, Site(call.node, call.function))
        else:
            self.transitions.scaled_backward(state, site)
        for optimizer in self._unrelated(call, plain=site is None):
            self.transitions.doubt_gradients(state, optimizer)
        state.typestate[("flag", "fed")] = True
        state.typestate.pop(("flag", "after"), None)

    def _unrelated(self, call: Call, *, plain: bool) -> list[str]:
        """Optimizers whose modules the loss does not mention, however it was computed here.

        Whether it reaches them all the same, through a module that holds theirs, is not known.
        Of a plain loss from out of sight nobody knows which of several optimizers it is for.
        That needs the modules of several optimizers in sight; of a plain one, several optimizers,
        or a copy of a module behind the loss: a copy's parameters are its own.

        Args:
            plain: whether the loss is not scaled.
        """
        several = plain and self.transitions.several
        may_copy = plain and any(COPY in item.module.source for item in self._running(call))
        if len(self.parameters) < 2 and not several and not may_copy:
            return []
        mentioned = self._behind(_loss_of(call), call, plain=plain)
        if mentioned is None and not plain:
            return []
        mentioned = mentioned or set()
        if len(self.parameters) < 2 and not several and COPY not in mentioned:
            return []
        known = {optimizer for optimizer, owned in self.parameters.items() if owned}
        unrelated = [
            optimizer
            for optimizer in known
            if not any(
                _related(one, two) for one in self.parameters[optimizer] for two in mentioned
            )
        ]
        is_of_others = several and bool(known - {*unrelated})  # it is meant for these
        is_of_copies = (
            plain and len(unrelated) == len(known) and COPY in mentioned and OTHER not in mentioned
        )
        if is_of_others or is_of_copies:
            unrelated += {EVERY, *self.transitions.named(call.state)} - known
        return sorted(unrelated)

    def _running(self, call: Call) -> set[Function]:
        return {call.function, *call.frame.active}

    def _behind(self, loss: ast.expr, call: Call, *, plain: bool) -> set[str] | None:
        """Places that a loss was computed from in its function; `COPY` and `OTHER` beside them.

        Batches that a copy is run on are none. A plain loss that is handed in was computed in the
        functions that do so. None if some places are out of sight and no module of an optimizer
        is among the others.
        """
        found: set[str] = set()
        from_outside = False
        pending = self._computed(loss, call) if plain else [(loss, call.function)]
        for node, function in pending:
            given = parameters(function).keys() - {"self", "cls"}
            location = None
            if isinstance(node, (ast.Name, ast.Attribute)):
                location = self.reader.locate(node, call.state, function)
            if location is not None and self._is_owned(location):
                found.add(location)
                continue  # of `self.model` only the model counts, not `self`
            if self._is_copy(node, function):
                found.add(COPY)
                continue
            if isinstance(node, ast.Call) and self._is_other(node.func, function, call):
                found.add(OTHER)
            pending += [(part, function) for part in self._operands(node, given, function, call)]
            if location is None or location in found or not isinstance(node, ast.Name):
                continue
            found.add(location)
            if node.id in given:
                from_outside = True  # it may come with a graph of its own
                continue
            sources = [item.source for item in bindings_of(function).get(node.id, ())]
            pending += [(source, function) for source in sources if source is not None]
        is_known = COPY in found or any(map(self._is_owned, found))
        return found if is_known or not from_outside else None

    def _computed(self, loss: ast.expr, call: Call) -> list[tuple[ast.AST, Function]]:
        """Where a loss is computed: in the function of its backward, or in those that hand it in."""
        if isinstance(loss, ast.Name) and loss.id in parameters(call.function):
            found = self.reader.program.values.origins.of(loss, call.function)
            running = self._running(call)
            made = [item for item in found.origins if item.function in running]
            if made and all(isinstance(item.expression, ast.Call) for item in made):
                return [(item.expression, item.function) for item in made]
        return [(loss, call.function)]

    def _is_copy(self, node: ast.AST, function: Function) -> bool:
        """Whether an expression copies something, or a name holds what a function has copied."""
        if isinstance(node, ast.Call):
            return callee_name(node) == COPY
        if not isinstance(node, ast.Name):
            return False
        found = self.reader.program.values.origins.of(node, function)
        sources = [item.expression for item in found.origins]
        is_known = found.complete or node.id not in parameters(function)
        return (
            is_known
            and bool(sources)
            and all(isinstance(item, ast.Call) and callee_name(item) == COPY for item in sources)
        )

    def _is_other(self, callee: ast.expr, function: Function, call: Call) -> bool:
        """Whether a place is called that is neither an optimizer's module, a copy nor a library's."""
        location = self.reader.locate(callee, call.state, function)
        if location is None or self._is_owned(location) or self._is_copy(callee, function):
            return False
        return function.module.resolve(callee) is None

    def _operands(
        self, node: ast.AST, given: AbstractSet[str], function: Function, call: Call
    ) -> list[ast.AST]:
        """The parts of an expression that may bring a graph: no batch that a model is run on."""
        if isinstance(node, ast.Call) and callee_name(node) == "detach":
            return []
        parts = [*ast.iter_child_nodes(node)]
        place = node.func if isinstance(node, ast.Call) else None
        if place is None:
            return parts
        if function.module.resolve(place) is not None:  # a function of a library: no module
            return [part for part in parts if part is not place]
        location = self.reader.locate(place, call.state, function)
        is_owned = location is not None and self._is_owned(location)
        if not is_owned and not self._is_copy(place, function):
            return parts
        return [part for part in parts if part is place or not _is_name_of(part, given)]

    def _is_owned(self, location: str) -> bool:
        """Whether a place holds a module whose parameters an optimizer has, or a part of it."""
        return any(_related(location, one) for owned in self.parameters.values() for one in owned)

    def optimizer_step(self, call: Call, optimizer: str) -> Valued:
        """`optimizer.step()`."""
        state = call.state.copy()
        self._saw(optimizer)
        text = call.receiver_text
        site = Site(call.node, call.function, optimizer=optimizer, optimizer_text=text)
        self.transitions.optimizer_step(state, site)
        if self._may_clear(call.place, call.function):
            self.transitions.doubt_gradients(state, optimizer)
        return [(state, None)]

    def zero_grad(self, call: Call) -> Valued:
        """`optimizer.zero_grad()`; on anything else every optimizer is cleared."""
        state = call.state.copy()
        if _is_only_cleared(call):
            self.transitions.doubt_all(state)
            return [(state, None)]
        receiver = call.receiver
        optimizer = EVERY
        if receiver is not None and receiver[0] == "optimizer":
            optimizer = receiver[1]
            self._saw(optimizer)
        text = call.receiver_text
        site = Site(call.node, call.function, optimizer=optimizer, optimizer_text=text)
        self.transitions.zero_grad(state, site, keep=keeps_zeros(call.node))
        return [(state, None)]

    # -- clipping ------------------------------------------------------------------------------

    def clip(self, call: Call) -> Valued:
        """A clip of gradients, unless its threshold is meant for scaled ones."""
        clipped = self._clipped(call)
        is_known = call.name not in CLAMPS or clipped is not None  # others may be of an image
        if not is_known or self._threshold_is_harmless(call):
            return [(call.state, None)]
        state = call.state.copy()
        only = self._still_scaled(state, self._optimizers_over(clipped, call.within(state)))
        prefix = f"{call.function.label}:"
        owners = [name for name in only or () if name.startswith(prefix)]
        text = owners[0].removeprefix(prefix) if len(owners) == 1 else ""
        owner = self._written(next(iter(only)), call) if only and len(only) == 1 else ""
        details = {"norm": call.name, "owner": owner}
        site = Site(call.node, call.function, optimizer_text=text, details=details)
        known = frozenset(name for name, modules in self.parameters.items() if modules)
        self.transitions.clip(state, site, only, known)
        return [(state, None)]

    def _threshold_is_harmless(self, call: Call) -> bool:
        """A threshold that mentions the scale is meant for scaled gradients; inf only measures."""
        node, function, given = call.node, call.function, call.positional
        if any(SCALE_MENTION.search(word) for word in call.named):
            return True
        named = [value for word, value in call.named.items() if word in THRESHOLDS]
        # `optimizer.clip_grad_norm(threshold)` has no parameters before the threshold.
        first = [word for word in given[:1] if "param" not in ast.unparse(word)]
        thresholds = (*first, *given[1:2], *named)
        values = self.reader.program.values
        same = (values.of(item, function).always(says_the_same) for item in thresholds)
        if callee_name(node) in CLAMPS and all(same):
            return True
        for threshold in thresholds:
            texts = [ast.unparse(threshold), *self._definitions(threshold, function)]
            if any(SCALE_MENTION.search(text) or UNBOUNDED.search(text) for text in texts):
                return True
        return False

    def _definitions(self, place: ast.expr, function: Function) -> Iterator[str]:
        """Texts of what the names in an expression are, here or by what callers pass."""
        for name in walk(place):
            if isinstance(name, ast.Name):
                for binding in bindings_of(function).get(name.id, ()):
                    yield ast.unparse(binding.value) if binding.value is not None else ""
                if name.id in parameters(function):
                    found = self.reader.program.objects.origins.of(name, function)
                    for origin in found.origins:
                        if isinstance(origin.expression, (ast.Call, ast.BinOp)):
                            yield ast.unparse(origin.expression)

    def _clipped(self, call: Call) -> ast.expr | None:
        """The parameters whose gradients a call clips."""
        if call.name in CLAMPS:
            return parameters_behind(call.place, call.function, self.reader.program.objects)
        return call.named.get("parameters") or next(iter(call.positional), None)

    def _optimizers_over(self, clipped: ast.expr | None, call: Call) -> frozenset[str] | None:
        """Optimizers over the clipped modules, parts of them, or what they are part of, if known."""
        if clipped is None:
            return None
        modules: set[str] = set()
        owners: set[str] = set()
        for part, function in self._clipped_parts(clipped, call):
            modules |= self.modules_in(part, call.state, function)
            owners |= grouped_in(part, call.state, function, self.reader)
        owners |= {
            key
            for key, owned in self.parameters.items()
            if any(_related(one, two) for one in owned for two in modules)
        }
        return frozenset(owners) or None

    def _clipped_parts(self, clipped: ast.expr, call: Call) -> list[tuple[ast.expr, Function]]:
        """What is clipped, by the text or by what its name stands for; nothing if that is unknown."""
        if not isinstance(clipped, ast.Name):
            return [(clipped, call.function)]
        found = self.reader.program.objects.origins.of(clipped, call.function)
        running = {call.function, *call.frame.active}
        if not found.complete or any(item.function not in running for item in found.origins):
            return []
        return [(item.expression, item.function) for item in found.origins]

    def _written(self, location: str, call: Call) -> str:
        """A place as the innermost running function that has a name for it writes it, or ""."""
        for function in (call.function, *reversed(call.frame.active)):
            own = receiver_of(function)
            whole = self.reader.locate(ast.Name(own), call.state, function) if own else None
            for prefix, text in ((f"{function.label}:", ""), (f"{whole}.", f"{own}.")):
                if location.startswith(prefix):
                    return text + location.removeprefix(prefix)
        return ""

    def _still_scaled(self, state: State, over: frozenset[str] | None) -> frozenset[str] | None:
        """Of optimizers over what is clipped those beside the ones that may be unscaled by then.

        All of them where none is beside: what they share with an unscaled one is unscaled, too.
        """
        if over is None:
            return None
        done = {name for name in over if _may_be_unscaled(state, name)}
        unscaled = {one for name in done for one in self.parameters.get(name, ())}
        beside = {
            name
            for name in over - done
            if not any(
                _related(one, two) for one in unscaled for two in self.parameters.get(name, ())
            )
        }
        return frozenset(beside) or over

    def modules_in(self, node: ast.expr, state: State, function: Function) -> frozenset[str]:
        """Locations of the modules whose `parameters()` an expression mentions."""
        found = set()
        for child in walk(node):
            if not isinstance(child, ast.Call) or callee_name(child) != "parameters":
                continue
            if isinstance(child.func, ast.Attribute):
                location = self.reader.locate(child.func.value, state, function)
                if location is not None:
                    found.add(location)
        return frozenset(found)

    # -- sites ---------------------------------------------------------------------------------

    def havoc(self, state: State) -> Valued:
        """Something unknown may have happened."""
        state = state.copy()
        self.transitions.havoc(state)
        return [(state, None)]

    def rename(self, identity: str, location: str) -> None:
        """A new optimizer found its name: what is known about it moves along."""
        owned = self.parameters.pop(identity, None)
        if owned is not None:
            self.parameters[location] = owned | self.parameters.get(location, frozenset())

    def known_optimizers(self) -> tuple[dict, dict]:
        """What is known by now about optimizers, to be compared with what is known later."""
        return dict(self.parameters), {scope: len(it) for scope, it in self.optimizers.items()}

    def _saw(self, optimizer: str) -> None:
        known = self.optimizers.setdefault(self.scope, set())
        known.add(optimizer)
        if self.waits and len(known) > 1:
            raise SeveralOptimizers

    def site_of(self, call: Call, scaler: str, target: ast.expr) -> Site:
        """A call that is about a scaler and an optimizer, given as an expression."""
        value = call.values.get(target)
        if value is not None and (value[0] == "optimizer" or call.is_bound(target)):
            optimizer = str(value[1])
        else:
            location = self.reader.locate(target, call.state, call.function)
            optimizer = location or ast.unparse(target)
        self._saw(optimizer)
        texts = call.receiver_text, ast.unparse(target)
        return Site(call.node, call.function, scaler, optimizer, *texts)

    def _site(self, call: Call, scaler: str) -> Site:
        return Site(call.node, call.function, scaler, "", scaler_text(call, scaler), "")


def _is_name_of(part: ast.AST, given: AbstractSet[str]) -> bool:
    """Whether an argument is one of these names."""
    value = part.value if isinstance(part, ast.keyword) else part
    return isinstance(value, ast.Name) and value.id in given


def _is_only_cleared(call: Call) -> bool:
    """Whether a parameter is an optimizer or a model, for all that its function does with it."""
    place = call.place
    if kind_of(call.receiver) != "path" or not isinstance(place, ast.Name):
        return False
    if place.id not in parameters(call.function):
        return False
    reads = sum(isinstance(node, ast.Name) and node.id == place.id for node in call.function.nodes)
    cleared = sum(
        isinstance(node, ast.Attribute)
        and node.attr == "zero_grad"
        and isinstance(node.value, ast.Name)
        and node.value.id == place.id
        for node in call.function.nodes
    )
    return reads == cleared


def _loss_of(call: Call) -> ast.expr:
    """What a backward starts from: `loss` of `scaler.scale(loss).backward()`, too."""
    place = call.place
    if isinstance(place, ast.Call) and callee_name(place) == "scale" and place.args:
        return place.args[0]
    return place


def _may_be_unscaled(state: State, optimizer: str) -> bool:
    """Whether some scaler may have unscaled the gradients of an optimizer in this round."""
    return any(
        key[0] == "stage" and key[2] == optimizer and value[0] in (Stage.UNSCALED, None)
        for key, value in state.typestate.items()
    )


def _related(one: str, two: str) -> bool:
    """Whether two places are the same, or one is a part of the other."""
    return is_under(one, two) or is_under(two, one)
