"""What a function mentions, before any path is followed.

Interpreting is dear, reading is cheap: a function that neither touches the protocol nor
calls one that does is never interpreted, and inside the others only the statements that
can matter are kept (`amplint.flow.slice`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NamedTuple

from amplint.amp.clips import CLAMPS
from amplint.amp.names import CLIP_FUNCTIONS
from amplint.amp.roles import Role, Roles
from amplint.code.arguments import parameters
from amplint.code.by_name import matching, read_by_name, written_by_name
from amplint.code.dataflow import bindings_of, names_in
from amplint.code.expressions import path_text
from amplint.code.layout import layout_of
from amplint.code.module import CallSite, Function, Module, walk_function
from amplint.code.tree import walk
from amplint.flow.call import callee_name
from amplint.values.conditions import tests_at

CLIP_NAMES = frozenset(name.rpartition(".")[2] for name in CLIP_FUNCTIONS)
SCALER_METHODS = frozenset({"scale", "step", "update", "unscale_"})
#: Methods of scalers that read or write their state.
STATE_METHODS = frozenset({"state_dict", "load_state_dict"})

#: Words a function can mention; `FunctionFacts.words` and `reach` hold some of them.
BACKWARD, SCALE, STEP, UPDATE, UNSCALE, ZERO_GRAD, CLIP, PLAIN_STEP, EDIT, SCALER, STATE = (
    "backward",
    "scale",
    "step",
    "update",
    "unscale",
    "zero_grad",
    "clip",
    "plain_step",
    "edit",
    "scaler",
    "state",
)
WHOLE_STEP = frozenset({BACKWARD, SCALE, STEP, UPDATE})
EVENT_WORDS = frozenset({BACKWARD, SCALE, STEP, UPDATE, UNSCALE, ZERO_GRAD, CLIP, PLAIN_STEP, EDIT})
#: Methods that multiply or divide a gradient in place: by the scale, for all that is known.
EDITS = frozenset({"mul_", "div_"})
#: What a gradient has in common with its parameter.
_FORM = frozenset({"dtype", "shape", "ndim", "dim", "size", "numel", "device", "layout"})


@dataclass(slots=True, eq=False)
class FunctionFacts:
    """Facts of one function.

    Args:
        locals: names that the function binds, parameters included.
        words: protocol words its own body mentions.
        reach: `words` plus those of every function of the file it may call, by name.
        callees: last names of the functions and methods it calls.
        self_stores: attributes of `self` that it assigns.
        inner_stores: attributes that it assigns of objects which `self` has: `on` of
            `self.state.on = True`.
        self_fills: attributes of `self`, and of objects which it has, that it puts something into,
            or takes something out of.
        fills: these, and those of every function of the file it may call, by name.
        settles: attributes that it assigns of its parameters, `self` included, and of what these
            have, or that a function of the file which it may call assigns, by name.
        generator: whether it yields.
        asks: whether it asks which gradients exist, and reads no gradient otherwise.
        indirect: whether it calls what a variable or a container holds, or a function of the file
            which it may call does.
    """

    locals: frozenset[str]
    words: set[str]
    reach: set[str]
    callees: set[str]
    self_stores: set[str]
    settles: set[str]
    generator: bool = False
    asks: bool = False
    indirect: bool = False
    inner_stores: frozenset[str] = frozenset()
    self_fills: set[str] = field(default_factory=set)
    fills: set[str] = field(default_factory=set)

    @property
    def interesting(self) -> bool:
        """Whether interpreting the function can change a protocol state."""
        return bool(self.reach)

    @property
    def acts(self) -> bool:
        """Whether it may reach an event; building a scaler is none."""
        return not EVENT_WORDS.isdisjoint(self.reach)

    def take(self, other: FunctionFacts) -> bool:
        """Add what another function reaches; whether anything was new."""
        known = other.reach <= self.reach and other.settles <= self.settles
        if known and other.fills <= self.fills and other.indirect <= self.indirect:
            return False
        self.indirect |= other.indirect
        self.reach |= other.reach
        self.settles |= other.settles
        self.fills |= other.fills
        return True


def collect_facts(
    module: Module,
    roles: Roles,
    imported: Mapping[str, frozenset[str]],
    aliases: Mapping[str, frozenset[str]],
) -> dict[Function, FunctionFacts]:
    """Facts of every function of the module, `reach` closed over calls by name.

    Args:
        imported: callee name -> words, for functions and methods of other files.
        aliases: other name -> names of the functions that it may stand for.
    """
    facts = {function: _facts_of(function) for function in module.functions}
    sites: dict[Function, list[CallSite]] = {}
    for site in module.calls:
        sites.setdefault(site.function, []).append(site)
    for function, found in facts.items():
        for site in sites.get(function, ()):
            _read_call(site, found, roles)
        patterns = [name for name in found.callees if "*" in name]
        if patterns:
            callables = {*imported, *(item.name for item in module.functions[1:])}
            found.callees.update(*(matching(name, callables) for name in patterns))
        for name in found.callees:
            found.reach |= imported.get(name, frozenset())
    for found in facts.values():
        found.reach |= found.words
    close_over_calls(facts, aliases)
    return facts


def facts_of_lambda(
    function: Function, roles: Roles, reach: Mapping[str, frozenset[str]]
) -> FunctionFacts:
    """Facts of a lambda, which the module's own list of functions does not hold.

    Args:
        reach: callee name -> words that a call of it may reach.
    """
    found = _facts_of(function)
    for node in function.nodes:
        if isinstance(node, ast.Call):
            _read_call(CallSite(node, function, callee_name(node)), found, roles)
    for name in found.callees:
        found.reach |= reach.get(name, frozenset())
    found.reach |= found.words
    return found


_TELLING = frozenset(
    {
        *(ast.Name, ast.Attribute, ast.ExceptHandler, ast.Global, ast.Nonlocal),
        *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Yield, ast.YieldFrom),
    }
)


class _Told(NamedTuple):
    """What the text of one function says; kept with its module, so empty sets are shared."""

    locals: frozenset[str]
    words: frozenset[str]
    stores: frozenset[str]
    inner_stores: frozenset[str]
    settles: frozenset[str]
    generator: bool
    asks: bool


def _facts_of(function: Function) -> FunctionFacts:
    """What its own text says, for others to add to."""
    told = function.once(_told_by)
    return FunctionFacts(
        *(told.locals, set(told.words), set(), set(), set(told.stores), set(told.settles)),
        *(told.generator, told.asks),
        inner_stores=told.inner_stores,
    )


def _told_by(function: Function) -> _Told:
    own = parameters(function)
    names = set(own)
    outer: set[str] = set()
    stores: set[str] = set()
    inner: set[str] = set()
    settles: set[str] = set()
    words: set[str] = set()
    generator = False
    for node in walk_function(function):
        if type(node) not in _TELLING:  # of most nodes this is the only question
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
            names.add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            outer.update(node.names)
        elif isinstance(node, (ast.Yield, ast.YieldFrom)):
            generator = True
        elif isinstance(node, ast.ExceptHandler) and node.name:
            names.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            root = _root_name(node.value)
            if root == "self":
                (stores if isinstance(node.value, ast.Name) else inner).add(node.attr)
            if root in own:
                settles.add(node.attr)
            if node.attr == "grad":
                words.add(ZERO_GRAD)
    own_names = frozenset(names - outer)
    asks = asks_for_gradients(function.nodes)
    return _Told(
        own_names,
        frozenset(words),
        frozenset(stores),
        frozenset(inner),
        frozenset(settles | stores),
        generator,
        asks,
    )


def _root_name(place: ast.expr) -> str:
    """`a` of `a.b[c].d`; "" if there is no name at the root."""
    while isinstance(place, (ast.Attribute, ast.Subscript)):
        place = place.value
    return place.id if isinstance(place, ast.Name) else ""


def asks_for_gradients(nodes: Iterable[ast.AST]) -> bool:
    """Whether some code compares gradients with None, and does nothing else with them."""
    reads = {id(node) for node in nodes if isinstance(node, ast.Attribute) and node.attr == "grad"}
    if not reads:
        return False
    compared = {
        id(node.left)
        for node in nodes
        if isinstance(node, ast.Compare)
        and isinstance(node.comparators[0], ast.Constant)
        and node.comparators[0].value is None
    }
    return reads <= compared


#: What a tensor is asked for its graph by.
_GRAPH = frozenset({"requires_grad", "grad_fn"})


def asks_for_graph(nodes: Iterable[ast.AST], function: Function) -> bool:
    """Whether some code asks a value if a backward can start from it: `loss.requires_grad`.

    What a loop goes through are parameters, which are asked something else: whether they train.
    """
    bound, given = bindings_of(function), parameters(function)
    for node in nodes:
        if not isinstance(node, ast.Attribute) or node.attr not in _GRAPH:
            continue
        root = _root_name(node.value)
        made = [item.statement for item in bound.get(root, ())]
        looped = any(isinstance(item, (ast.For, ast.AsyncFor)) for item in made)
        if isinstance(node.ctx, ast.Load) and not looped and (made or root in given):
            return True
    return False


#: Methods that change a container.
_CHANGES = frozenset({"append", "insert", "extend", "add", "remove", "pop", "clear"})


def _read_call(site: CallSite, found: FunctionFacts, roles: Roles) -> None:
    words = protocol_words(site.node, site.method, site.function, roles)
    if site.method and not (words and _is_torchs(site, roles)):
        found.callees.add(site.method)
    looked_up = read_by_name(site.node.func)
    if looked_up is not None:
        found.callees.add(looked_up[1])
    if _is_variable(site.node.func, site.function, found):
        found.indirect = True
    if site.method in _CHANGES:
        place = site.node.func.value if isinstance(site.node.func, ast.Attribute) else None
        own = _own_attribute(place)
        if own:
            found.self_fills.add(own)
            found.fills.add(own)
    written = written_by_name(site.node)
    if written is not None and path_text(written[0].value) == "self":
        found.self_stores.add(written[0].attr)
    found.words |= words


def _is_torchs(site: CallSite, roles: Roles) -> bool:
    """Whether a call runs a method of torch's, whatever the file calls its own functions."""
    callee = site.node.func
    if not isinstance(callee, ast.Attribute):
        return False
    role = roles.role_of(callee.value, site.function)
    return role in (Role.SCALER, Role.OPTIMIZER) and not any(
        site.method in owner.methods and roles.class_role(owner) is role
        for owner in roles.module.classes.values()
    )


def _own_attribute(place: ast.expr | None) -> str:
    """`table` of `self.table`, `self.table[name]`, `self.kept.table.setdefault(name, [])`; else ""."""
    while isinstance(place, (ast.Subscript, ast.Call)):
        receiver = place.func if isinstance(place, ast.Call) else place
        place = receiver.value if isinstance(receiver, (ast.Attribute, ast.Subscript)) else None
    own = isinstance(place, ast.Attribute) and _root_name(place) == "self"
    return place.attr if own else ""  # type: ignore[union-attr]


def _is_variable(callee: ast.expr, function: Function, found: FunctionFacts) -> bool:
    """Whether a callee is what a local or an element of a container holds."""
    if isinstance(callee, ast.Name):
        return callee.id in found.locals and callee.id not in function.nested
    return isinstance(callee, (ast.Subscript, ast.Call))


def sites_by_word(module: Module, roles: Roles) -> dict[str, list[CallSite]]:
    """Every protocol call of the module, by word, in source order."""
    found: dict[str, list[CallSite]] = {}
    for site in module.calls:
        word = protocol_word(site.node, site.method, site.function, roles)
        if word is not None:
            found.setdefault(word, []).append(site)
    return found


def protocol_words(node: ast.Call, method: str, function: Function, roles: Roles) -> frozenset[str]:
    """Every protocol word that a call is: several, if a library does a whole step in it."""
    if roles.is_stepper(node.func, function):
        return WHOLE_STEP
    word = protocol_word(node, method, function, roles)
    return frozenset({word}) if word is not None else frozenset()


def protocol_word(node: ast.Call, method: str, function: Function, roles: Roles) -> str | None:
    """Which protocol word a call is, judged by method name and role; None if none."""
    receiver = node.func.value if isinstance(node.func, ast.Attribute) else None
    if method == "backward":
        return BACKWARD
    if method == "zero_grad":
        return ZERO_GRAD
    if method == "unscale_":
        return UNSCALE
    if clips(method, receiver):
        return CLIP
    # An attribute has been judged by its name; a plain name may be an alias.
    if receiver is None and roles.module.resolve(node.func) in CLIP_FUNCTIONS:
        return CLIP
    if method in ("GradScaler", "ShardedGradScaler"):
        return SCALER
    if receiver is None:
        return None
    if method in EDITS and is_gradient(receiver):
        return EDIT
    if method in SCALER_METHODS and roles.is_scaler(receiver, function):
        return {"scale": SCALE, "step": STEP, "update": UPDATE}[method]
    if method == "step" and roles.is_optimizer(receiver, function):
        return PLAIN_STEP
    # No event, and it fails on a scaler that is None.
    if method in STATE_METHODS and roles.is_scaler(receiver, function):
        return STATE
    return None


def clips(method: str, receiver: ast.expr | None) -> bool:
    """Whether a method clips gradients, all at once or one in place: `p.grad.clamp_(-1, 1)`."""
    if method in CLAMPS:
        return receiver is not None and is_gradient(receiver)
    return method in CLIP_NAMES


def is_gradient(place: ast.AST) -> bool:
    """`p.grad`, `p.grad.data`: to assign it, or to change it in place, needs no protocol call."""
    if isinstance(place, ast.Attribute) and place.attr == "data":
        place = place.value
    return isinstance(place, ast.Attribute) and place.attr == "grad"


def is_of_some(target: ast.expr, function: Function) -> bool:
    """Whether a test of a loop's own names, other than of a gradient, stands around a place.

    A function that gets the parameter is called in the loop; what else it gets may come from there.
    """
    layout = layout_of(function)
    if target not in layout:
        return False
    loop = next(iter(layout.loops(target)), None)
    if isinstance(loop, (ast.For, ast.AsyncFor)):
        names = names_in(loop.target)
    elif loop is None and names_in(target) & parameters(function).keys():
        names = {*parameters(function)}
    else:
        return False
    tests = tests_at(target, function, loop)
    return any(names & names_in(test) and not _asks_gradient(test) for test in tests)


def _asks_gradient(test: ast.expr) -> bool:
    """Whether a test is about what a gradient is, and not only about its form: its parameter's."""
    attributes = [part for part in walk(test) if isinstance(part, ast.Attribute)]
    forms = {id(part.value) for part in attributes if part.attr in _FORM}
    return any(part.attr == "grad" and id(part) not in forms for part in attributes)


def close_over_calls(
    facts: dict[Function, FunctionFacts], aliases: Mapping[str, frozenset[str]]
) -> None:
    """Let every function reach, in place, what the functions that it calls by name reach.

    Many methods may have one name, and many functions call it: what a name reaches stands between
    them, so that it is handed on once for each.
    """
    names = _names_called(facts, aliases)
    joint: dict[str, FunctionFacts] = {}
    callers: dict[str, list[Function]] = {}
    for function, found in facts.items():
        for name in found.callees:
            callers.setdefault(name, []).append(function)
    changed: Iterable[Function] = facts
    while changed:
        told: dict[str, None] = {}
        for callee in changed:
            for name in names[callee]:
                if name not in joint:
                    joint[name] = FunctionFacts(frozenset(), set(), set(), set(), set(), set())
                if joint[name].take(facts[callee]):
                    told[name] = None
        changed = {
            caller: None
            for name in told
            for caller in callers.get(name, ())
            if facts[caller].take(joint[name])
        }


def _names_called(
    functions: Iterable[Function], aliases: Mapping[str, frozenset[str]]
) -> dict[Function, set[str]]:
    """The names under which functions may be called; constructors by their class."""
    others: dict[str, set[str]] = {}
    for name, targets in aliases.items():
        for target in targets:
            others.setdefault(target, set()).add(name)
    found: dict[Function, set[str]] = {}
    for function in functions:
        own = {function.name}
        if function.name in ("__init__", "__call__") and function.owner is not None:
            own.add(function.owner.name)
        found[function] = own.union(*(others.get(name, ()) for name in own))
    return found


def joined(
    words: Mapping[str, frozenset[str]], others: Mapping[str, AbstractSet[str]]
) -> dict[str, frozenset[str]]:
    """Words by name, of both."""
    found = dict(words)
    for name, more in others.items():
        found[name] = found.get(name, frozenset()) | more
    return found


def reach_by_name(facts: dict[Function, FunctionFacts]) -> dict[str, frozenset[str]]:
    """Reach by the names under which functions are called; constructors by their class."""
    found: dict[str, set[str]] = {}
    for function, known in facts.items():
        names = [function.name]
        if function.owner is not None and function.name in ("__init__", "__call__"):
            names.append(function.owner.name)
        for name in names:
            found.setdefault(name, set()).update(known.reach)
    return {name: frozenset(words) for name, words in found.items()}
