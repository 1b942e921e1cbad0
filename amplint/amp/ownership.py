"""Which modules an optimizer trains: from its constructor call to the models behind it.

`owned_modules` says which ones it may be, and how they get there; `trained_modules` which ones a
function surely trains, in its own words.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from amplint.amp.connected import connected_files
from amplint.amp.names import is_optimizer_class
from amplint.amp.parameter_sets import Taken, parameters_in
from amplint.amp.reached_calls import as_caller_writes
from amplint.amp.view import AmpView
from amplint.code.arguments import bind
from amplint.code.dataflow import arguments, bindings_of, constant_of, parameters, scopes
from amplint.code.expressions import last_name, path_text
from amplint.code.layout import layout_of
from amplint.code.module import CallSite, Class, Function, Module, enclosing_class, walk
from amplint.values.conditions import conditions_at
from amplint.values.provenance import Activation, Found, Origin

#: What freezes one parameter is looked for this many calls deep.
_CALLS = 2
_OPTIMIZER_CLASS = re.compile(
    r"^(?:Fused)?(?:Adam|AdamW|NAdam|RAdam|SparseAdam|Adamax|SGD|RMSprop|Adagrad|Adadelta|Rprop|LBFGS|ASGD"
    r"|Lion|Adafactor|AdaBelief|LARS|LAMB|Lamb|Ranger|MADGRAD|Adan|Muon|AdamWeightDecay"
    r"|Novograd|NovoGrad|AdaBound)$"
)
#: What an optimizer says by which `scaler.step` leaves the unscaling to it.
_UNSCALES = "_step_supports_amp_scaling"
#: Modules that are meant to stay as they are.
_FIXED = re.compile(
    r"teacher|ema|target|momentum|frozen|_ref\b|^ref|reference|_old\b", re.IGNORECASE
)


@dataclass(frozen=True, slots=True, eq=False)
class Owned:
    """A module whose parameters an optimizer holds.

    Args:
        module: the expression before `.parameters()`, where it is evaluated; its steps and
            conditions lead to the optimizer.
        optimizer: the constructor call.
        taken: how many of the parameters.
        kept: the containers that hold the module, under all names that they have.
        later: whether they may join an optimizer that has stepped without them.
        unseen: whether code out of sight builds the optimizer of a module that it is given.
    """

    module: Origin
    optimizer: Origin
    taken: Taken
    unseen: bool = False
    later: bool = False
    kept: tuple[Origin, ...] = ()

    @property
    def selected(self) -> bool:
        """Whether parameters are left out, be it those that do not train."""
        return self.taken is not Taken.ALL


def owned_modules(
    view: AmpView,
    optimizer: ast.expr,
    function: Function,
    *,
    unseen: bool = False,
) -> Iterator[Owned]:
    """The modules behind the optimizer that an expression stands for.

    Args:
        unseen: code out of sight that is given one module, and no optimizer, builds one for it.
    """
    for built in view.values.origins.aliases(optimizer, function):
        if is_optimizer_call(view, built):
            yield from _owned_by(view, built)
        elif unseen:
            yield from _owned_out_of_sight(view, built)


def _owned_out_of_sight(view: AmpView, built: Origin) -> Iterator[Owned]:
    """The module that an unknown function is given to build an optimizer of."""
    call = built.expression
    if not isinstance(call, ast.Call) or view.objects.callee(call, built.function) is not None:
        return
    if (built.function.module.resolve(call.func) or "torch").partition(".")[0] == "torch":
        return
    given = [item for item in arguments(call) if _is_module(view, item, built.function)]
    if len(given) == 1:
        yield Owned(built.at(given[0], *_place(built)), built, Taken.ALL, unseen=True)


def _is_module(view: AmpView, expression: ast.expr, function: Function) -> bool:
    owner = view.objects.class_of(expression, function)
    return owner is not None and view.objects.is_module(owner)


def _owned_by(view: AmpView, built: Origin) -> Iterator[Owned]:
    """The modules behind the parameters that a constructor call is given, or `add_param_group`."""
    call = built.expression
    assert isinstance(call, ast.Call)
    for given in call.args[:1] or [item.value for item in call.keywords if item.arg == "params"]:
        yield from _holding(view, built.at(given, *_place(built)), built)
    for module in dict.fromkeys((built.function.module, view.module)):
        for site, made in view.once(_added_groups, module):
            if call in made:
                yield from _added(view, built, site)


def _holding(view: AmpView, place: Origin, built: Origin) -> Iterator[Owned]:
    """The modules whose parameters, or groups of them, an optimizer gets by an expression."""
    for item in parameters_in(view, place):
        yield Owned(item.module, built, item.taken, kept=item.kept)


def _added_groups(view: AmpView, module: Module) -> list[tuple[CallSite, frozenset[ast.expr]]]:
    """The calls of `add_param_group` in a file, with what may have built their optimizers."""
    found = []
    for site in module.calls:
        callee = site.node.func
        if site.method == "add_param_group" and isinstance(callee, ast.Attribute):
            every = view.values.origins.of(callee.value, site.function).origins
            found.append((site, frozenset(item.expression for item in every)))
    return found


def _added(view: AmpView, built: Origin, site: CallSite) -> Iterator[Owned]:
    """The modules behind a group that joins an optimizer."""
    here = site.function is built.function
    tests = conditions_at(site.node, site.function, built.expression if here else None)
    seen = built.then(built.firmness, (), tests)
    later = bool(tests) or not here or _may_step_between(built, site)
    for group in arguments(site.node)[:1]:
        place = seen.at(group, site.function, built.activation if here else None)
        for owned in _holding(view, place, built):
            yield replace(owned, later=later)


def _may_step_between(built: Origin, site: CallSite) -> bool:
    """Whether something may step after an optimizer is built and before a group joins it."""
    assert isinstance(site.node.func, ast.Attribute)
    path = path_text(site.node.func.value)
    owner = (path or "").partition(".")[0]
    return any(
        isinstance(node, (ast.For, ast.AsyncFor, ast.While))
        or (isinstance(node, ast.Call) and _gets_at(node, path, owner, site.function))
        for node in layout_of(site.function).between(built.expression, site.node)
    )


def _gets_at(call: ast.Call, path: str | None, owner: str, function: Function) -> bool:
    """Whether a call outside of torch is given an optimizer, or is one of a method of its owner."""
    if (function.module.resolve(call.func) or "").startswith("torch."):
        return False
    given = [*arguments(call)]
    if isinstance(call.func, ast.Attribute):
        given.append(call.func.value)
    return any(path_text(item) in (path, owner) for item in given)


def _place(origin: Origin) -> tuple[Function, Activation | None]:
    return origin.function, origin.activation


def is_optimizer_call(view: AmpView, origin: Origin) -> bool:
    """Whether an expression builds an optimizer of torch, or one that is called or made like it."""
    node = origin.expression
    if not isinstance(node, ast.Call):
        return False
    if names_optimizer_class(node.func, origin.function):
        return True
    owner = view.objects.symbol(node.func, origin.function)
    if isinstance(owner, Class):
        return _takes_over_parameters(view, owner)
    if not isinstance(node.func, (ast.Name, ast.Attribute)) or "opt" not in last_name(node.func):
        return False
    found = view.values.origins.of(node.func, origin.function, origin.activation)
    return any(names_optimizer_class(item.expression, item.function) for item in found.origins)


def names_optimizer_class(callee: ast.expr, function: Function) -> bool:
    """Whether a callee is a class of torch's optimizers, or is called like one."""
    dotted = function.module.resolve(callee) or ""
    if dotted.startswith("torch.optim."):
        return is_optimizer_class(dotted)
    return bool(_OPTIMIZER_CLASS.match(last_name(callee)))


def _takes_over_parameters(view: AmpView, owner: Class) -> bool:
    """Whether a class of the project hands what it is given to the constructor of torch's."""
    every = view.objects.ancestry(owner)
    bases = (each.module.resolve(base) or "" for each in every for base in each.bases)
    constructors = (each.methods.get("__init__") for each in every)
    return any(map(is_optimizer_class, bases)) and all(
        _hands_on_first(each) for each in constructors if each is not None
    )


def _hands_on_first(constructor: Function) -> bool:
    """Whether a constructor gives its first parameter as it is to that of its base class."""
    names = [*parameters(constructor)][1:2]
    if not names or names[0] in bindings_of(constructor):
        return False
    return any(
        isinstance(node, ast.Call)
        and last_name(node.func) == "__init__"
        and names[0] in [path_text(given) for given in arguments(node)]
        for node in constructor.nodes
    )


def is_fused(view: AmpView, built: Origin) -> bool:
    """Whether an optimizer is asked to be fused, or unscales itself: it takes float16 gradients (H05)."""
    call = built.expression
    assert isinstance(call, ast.Call)
    owner = view.objects.symbol(call.func, built.function)
    if isinstance(owner, Class) and any(
        _UNSCALES in each.module.source for each in view.objects.ancestry(owner)
    ):
        return True
    return any(
        item.arg == "fused" and constant_of(item.value) is not False for item in call.keywords
    )


def runs_somewhere(view: AmpView, owned: Owned, function: Function) -> bool:
    """Whether any file around a training function calls a module, or might.

    Its class has to be in sight to tell.
    """
    origins = view.values.origins
    made = {
        item.expression
        for item in origins.of(owned.module.expression, *_place(owned.module)).origins
    }
    if not made or not _is_module(view, owned.module.expression, owned.module.function):
        return True
    places = {function.module, owned.module.function.module, owned.optimizer.function.module}
    around = connected_files(view.objects.project, function.module).modules
    for site in (site for module in places.union(around) for site in module.calls):
        callee = site.node.func
        if path_text(callee) is None or site.function.module.resolve(callee) is not None:
            continue
        if any(item.expression in made for item in origins.of(callee, site.function).origins):
            return True
    return False


# -- what a function surely trains ---------------------------------------------------------------


def trained_modules(view: AmpView, function: Function) -> list[str]:
    """Paths, as `function` writes them, of the modules whose parameters its steps surely train.

    Only an explicit owner counts: `Adam(model.parameters())`, also in a list of groups, also where
    a caller or a factory builds the optimizer. A selection of parameters says that some are frozen
    on purpose, and a call that freezes says so of all. So does a name like "teacher", unless the
    optimizer is given several modules, this one by its name.
    """
    stepped = (*_stepped(function), *_stepped_by_callees(view, function))
    owned = (_owned(view, optimizer, function) for optimizer in stepped)
    kept = (path for paths in owned for path in paths if paths[1:] or not _FIXED.search(path))
    return [path for path in dict.fromkeys(kept) if not _is_frozen(view, path, function)]


def steps_its_own(function: Function) -> bool:
    """Whether a function steps something that no call of it hands over as such."""
    given = parameters(function)
    return any(
        not isinstance(stepped, ast.Name) or stepped.id not in given
        for stepped in _stepped(function)
    )


def _stepped(function: Function) -> Iterator[ast.expr]:
    """What may be the optimizer of `scaler.step(optimizer)`, `optimizer.step()`, `amp.step(loss, opt)`."""
    for node in function.nodes:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr == "step":
            yield from node.args or [node.func.value]


def _stepped_by_callees(view: AmpView, function: Function) -> Iterator[ast.expr]:
    """What a function hands to others that step it: `engine.run(loss, optimizer)`."""
    for node in function.nodes:
        if not isinstance(node, ast.Call) or last_name(node.func) == "step":
            continue
        callee = view.objects.callee(node, function) if arguments(node) else None
        stepped = {path_text(item) for item in _stepped(callee)} if callee is not None else set()
        if callee is not None and stepped & parameters(callee).keys():
            given = view.objects.bind(node, function, callee).given
            yield from (given[name] for name in given if name in stepped)


def _owned(view: AmpView, optimizer: ast.expr, function: Function) -> list[str]:
    """The modules that an optimizer owns whichever of its constructor calls has built it."""
    found = view.values.origins.of(optimizer, function)
    if not found.complete or not all(is_optimizer_call(view, item) for item in found.origins):
        return []
    owned = [
        [
            path_in(view, item, function)
            for item in _owned_by(view, built)
            if not (item.selected or item.later or item.module.conditions != built.conditions)
        ]
        for built in found.origins
    ]
    return [
        path
        for path in (owned[0] if owned else ())
        if path is not None and "[*]" not in path and all(path in paths for paths in owned)
    ]


def _passing_call(origin: Origin) -> ast.AST | None:
    """The last call that hands a value to a parameter."""
    return next((step.node for step in reversed(origin.steps) if step.to is not None), None)


def path_in(view: AmpView, owned: Owned, function: Function) -> str | None:
    """A module, as `function` writes it; None if it cannot name it."""
    place = owned.module
    path, here, activation = path_text(place.expression), place.function, place.activation
    while path is not None and here is not function:
        if here in scopes(function, function.module):
            return None if _is_local(path, function) else path
        if activation is None or activation.callee is not here:
            return _as_parameter(view, path, owned, function)
        argument = _as_argument(path, here, activation.call)
        if argument is None:
            return _under_own_name(view, place, function)
        path = argument
        here, activation = activation.caller, activation.outer
    return path


def _under_own_name(view: AmpView, module: Origin, function: Function) -> str | None:
    """The name under which `function` has what a function that it calls has built."""
    origins = view.values.origins
    built = _created(origins.of(module.expression, *_place(module)))
    if built is None:
        return None
    for path, bindings in bindings_of(function).items():
        read = ast.Name(path, ast.Load())
        if (
            path.isidentifier()
            and len(bindings) == 1
            and _created(origins.of(read, function)) == built
        ):
            return path
    return None


def _created(found: Found) -> tuple[ast.expr, Activation | None] | None:
    """The one call that has created a value, and in which call of its function."""
    if not found.complete or len(found.origins) != 1:
        return None
    origin = found.origins[0]
    return (
        (origin.expression, origin.activation) if isinstance(origin.expression, ast.Call) else None
    )


def _is_local(path: str, function: Function) -> bool:
    root = path.partition(".")[0].partition("[")[0]
    return root in parameters(function) or root in bindings_of(function)


def _as_argument(path: str, callee: Function, call: ast.Call) -> str | None:
    """A path of a called function, as its caller writes it."""
    root = path.partition(".")[0].partition("[")[0]
    return as_caller_writes(path, callee, call) if root in bind(call, callee).given else None


def _as_parameter(view: AmpView, path: str, owned: Owned, function: Function) -> str | None:
    """A path of another function, as `function` sees it: through `self`, or what it is passed."""
    place = owned.module.function
    if path.startswith("self."):
        ours, theirs = enclosing_class(function), enclosing_class(place)
        if ours is None or theirs is None:
            return None
        related = theirs in view.objects.ancestry(ours) or ours in view.objects.ancestry(theirs)
        return path if related else None
    call = _passing_call(owned.optimizer)
    if not isinstance(call, ast.Call) or last_name(call.func) != function.name:
        return None
    for word, argument in bind(call, function).given.items():
        given = path_text(argument)
        rest = path[len(given) :] if given and path.startswith(given) else None
        if rest is not None and (not rest or rest[0] in ".["):
            return word + rest
    return None


def _is_frozen(view: AmpView, path: str, function: Function) -> bool:
    """Whether a module is frozen and not thawed in the function itself.

    By its file, by a caller of the function, or by the class of the object that it is a part of.
    """
    if _thaws(view, path, function, _CALLS):
        return False
    if _is_frozen_in(view, path, function.module):
        return True
    if any(_is_frozen_in(view, path, module) for module in _homes(view, path, function)):
        return True
    root = path.partition(".")[0].partition("[")[0]
    if root not in parameters(function):
        return False
    return any(
        _is_frozen_in(view, as_caller_writes(path, function, site.node), site.function.module)
        for site in view.objects.calls_of(function)
    )


def _homes(view: AmpView, path: str, function: Function) -> Iterator[Module]:
    """The files of the classes of the objects that a module is a part of."""
    whole = ast.parse(path, mode="eval").body
    while isinstance(whole, (ast.Attribute, ast.Subscript)):
        whole = whole.value
        for owner in view.objects.classes_called(whole, function):
            yield from (each.module for each in view.objects.ancestry(owner))


def _thaws(view: AmpView, path: str, function: Function, depth: int) -> bool:
    """Whether a function, or a method without arguments that it calls, lets a module train again."""
    name = _last_part(path)
    loops = (node for node in function.nodes if isinstance(node, ast.For))
    if any(
        name in _words_in(loop.iter) and _stores_requirement(walk(loop), True) for loop in loops
    ):
        return True
    calls = [node for node in function.nodes if isinstance(node, ast.Call)]
    if any(_asks_to_train(call) and name in _words_in(call.func) for call in calls):
        return True
    plain = (call for call in calls if depth and not arguments(call))
    callees = (view.objects.callee(call, function) for call in plain)
    return any(
        _thaws(view, path, callee, depth - 1)
        for callee in callees
        if callee is not None and callee.name != "__init__"
    )


def _asks_to_train(call: ast.Call) -> bool:
    return last_name(call.func) == "requires_grad_" and all(
        constant_of(item) is True for item in arguments(call)
    )


def _last_part(path: str) -> str:
    """The name, or the key, of the innermost part that a path leads to."""
    return re.split(r"[.\[]", path)[-1].strip("]'\"")


def _is_frozen_in(view: AmpView, path: str, module: Module) -> bool:
    known = view.once(_frozen_names)
    if module not in known:
        known[module] = frozenset(_find_frozen(view, module))
    return _last_part(path) in known[module]


def _frozen_names(view: AmpView) -> dict[Module, frozenset[object]]:
    """The names of each module that was asked about."""
    return {}


def _find_frozen(view: AmpView, module: Module) -> Iterator[object]:
    """Names and constants in calls that freeze something, and in what freezing loops run over."""
    for function in module.functions:
        for node in function.nodes:
            if isinstance(node, ast.Call) and _freezes(node):
                yield from _words_in(node)
            elif isinstance(node, ast.For) and _clears(view, node, function):
                yield from _words_in(node.iter)


def _freezes(call: ast.Call) -> bool:
    name = last_name(call.func)
    sets_false = any(constant_of(item) is False for item in arguments(call))
    return "freeze" in name or ("requires_grad" in name and sets_false)


def _clears(view: AmpView, loop: ast.For, function: Function) -> bool:
    """Whether a loop freezes what it runs over, itself or by what it calls with it."""
    nodes = walk(loop)
    if _stores_requirement(nodes):
        return True
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    if any(map(_freezes, calls)):
        return True
    if "parameters" not in _words_in(loop.iter):
        return False
    return any(_is_cleared_by(view, call, function, _CALLS) for call in calls)


def _is_cleared_by(view: AmpView, call: ast.Call, function: Function, depth: int) -> bool:
    callees = view.objects.targets(call, function).functions if depth else ()
    return any(
        _stores_requirement(callee.nodes)
        or any(
            _is_cleared_by(view, node, callee, depth - 1)
            for node in callee.nodes
            if isinstance(node, ast.Call)
        )
        for callee in callees
    )


def _stores_requirement(nodes: list[ast.AST], value: bool | None = None) -> bool:
    """Whether some statement sets `requires_grad`, to one value or to any."""
    return any(
        isinstance(target, ast.Attribute)
        and target.attr == "requires_grad"
        and (value is None or constant_of(node.value) is value)
        for node in nodes
        if isinstance(node, ast.Assign)
        for target in node.targets
    )


def _words_in(node: ast.AST) -> set[object]:
    return {getattr(part, field, None) for part in walk(node) for field in ("attr", "id", "value")}
