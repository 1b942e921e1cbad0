"""Which modules have half-precision parameters, since when, and why.

A module is cast in place (`model.half()`, `model.to(torch.float16)`), built that way
(`nn.Linear(..., dtype=torch.float16)`, `from_pretrained(..., torch_dtype=torch.float16)`), or
holds a child of which one of these is true. The last cast before the place of use counts.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from amplint.amp.casts import DTYPE_KEYWORDS, Cast, cast_of
from amplint.amp.names import PARAMETERS
from amplint.amp.parameter_loops import DISPLAYS, entries_of, paths_in_turn, places_held
from amplint.amp.view import AmpView
from amplint.code.dataflow import arguments, bindings_of, constant_of, names_in
from amplint.code.expressions import last_name, path_text
from amplint.code.layout import layout_of
from amplint.code.looking import only_looks
from amplint.code.module import Class, Function, Module
from amplint.values.conditions import conditions_at
from amplint.values.provenance import CALL_DEPTH, Activation, Condition, Firmness, Origin, Step
from amplint.values.values import Value
from amplint.values.wrappers import WRAPPERS

_KEEPS = frozenset(("append", "add", "insert"))
_CONTAINERS = frozenset(("ModuleDict", "ModuleList", "Sequential"))
#: Where one of these is called on a model, which of its parameters train is not in sight.
ADAPTERS = re.compile(
    r"peft|lora|adapter|prepare_model_for|kbit|int8|4bit|8bit|freeze|requires_grad|quant",
    re.IGNORECASE,
)
_DEPTH = 3


@dataclass(frozen=True, slots=True, eq=False)
class Half:
    """Parameters that become half.

    Args:
        node: the call that casts or builds.
        function: where it stands.
        value: the dtype, if it is an argument; None for `.half()`.
        conditions: what has to hold for it.
        firmness: how firmly.
        steps: from the dtype's place to the module.
        whole: whether these are surely all parameters that the module has then.
    """

    node: ast.AST
    function: Function
    value: Value | None
    conditions: tuple[Condition, ...]
    firmness: Firmness
    steps: tuple[Step, ...]
    whole: bool = False

    def first_in(self, module: Module) -> ast.AST | None:
        """The call itself if it lies in a file, else the first step that does."""
        if self.function.module is module:
            return self.node
        return next((step.node for step in self.steps if step.module is module), None)


def halves_of(
    view: AmpView,
    module: Origin,
    uses: Sequence[ast.AST] = (),
    wanted: str = "float16",
    *,
    frozen: bool = False,
) -> list[Half]:
    """Why parameters of a module are half where `module.expression` is evaluated.

    An empty list where they are not, or where that is not in sight.

    Args:
        uses: later places that see casts in place, too: the parameters stay the same objects.
        frozen: whether parameters that do not train count as well.
    """
    found: list[Half] = []
    for place in view.values.origins.aliases(module.expression, module.function, module.activation):
        if not frozen and _adapted(view, place):
            return []
        found += _casts_here(view, place, wanted, uses)
        if _recast(view, place, wanted, uses):
            break
        if isinstance(place.expression, ast.Call):
            found += _built(view, place, wanted, 0)
    return [half for half in found if not _contradictory(half.conditions)]


def _never_holds(view: AmpView, conditions: Sequence[Condition], place: Origin) -> bool:
    """Whether one test always goes the other way here: a switch of the object's class is off."""
    return any(
        item.side not in view.values.truth(item.test, item.function, place.activation)
        for item in conditions
    )


def _contradictory(conditions: Sequence[Condition]) -> bool:
    """Whether one test would have to go both ways: a cast where the module is not the one."""
    sides: dict[tuple[Function, str], bool] = {}
    for item in conditions:
        key = (item.function, ast.unparse(item.test))
        if sides.setdefault(key, item.side) is not item.side:
            return True
    return False


def _adapted(view: AmpView, place: Origin) -> bool:
    """Whether something around a module decides which parameters train, or freezes some.

    Not where a test before it never holds: `if freeze:` of a call that passes False.
    """
    path, node = _known_as(place), place.expression
    if isinstance(node, ast.Call) and ADAPTERS.search(ast.unparse(node.func)):
        return True
    if path is None or path in ("self", "cls"):
        return False
    subjects, loops = place.function.once(_adaptations)
    found = [node for item, node in subjects if item.startswith(path)]
    found += [node for loop, node in loops if path in loop]
    tests = (conditions_at(item, place.function) for item in found)
    return any(not _never_holds(view, item, place) for item in tests)


#: A text about a module, and the node that adapts it.
_Adapting = list[tuple[str, ast.AST]]


def _adaptations(function: Function) -> tuple[_Adapting, _Adapting]:
    """What a function hands to freezing calls, and what its loops that freeze run over, as text."""
    layout = layout_of(function)
    subjects: _Adapting = []
    loops: _Adapting = []
    for node in layout.nodes:
        if isinstance(node, ast.Call) and _may_freeze(node):
            given = (*node.args, *_receivers(node))
            subjects += [(path, node) for item in given for path in _paths(item, function)]
        if _sets_requires_grad(node) or _is_handed_a_parameter(node, function):
            around = layout.loops(node)
            loops += [(ast.unparse(getattr(loop, "iter", loop)), node) for loop in around]
    return subjects, loops


def _paths(item: ast.expr, function: Function) -> tuple[str, ...]:
    """What a function calls what a call is given, and each element that it may be in a loop."""
    return (path_text(item) or "", *paths_in_turn(item, function, any_round=True))


def _may_freeze(call: ast.Call) -> bool:
    """A call of adapters, or `requires_grad_` unless it is told to train."""
    if last_name(call.func) == "requires_grad_":
        return bool(call.args) and constant_of(call.args[0]) is False
    return bool(ADAPTERS.search(ast.unparse(call.func)))


def _sets_requires_grad(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and node.attr == "requires_grad"
        and isinstance(node.ctx, ast.Store)
    )


def _is_handed_a_parameter(node: ast.AST, function: Function) -> bool:
    """Whether a call gets the parameter that a loop is at, and may freeze it: torch's do not."""
    if not isinstance(node, ast.Call):
        return False
    dotted = function.module.resolve(node.func) or ""
    if dotted.startswith("torch.") or only_looks(node, function) or _is_kept(node, function):
        return False
    given = {path_text(item) for item in arguments(node)}
    return any(
        isinstance(loop, (ast.For, ast.AsyncFor))
        and last_name(getattr(loop.iter, "func", loop.iter)) in PARAMETERS
        and not given.isdisjoint(names_in(_parameter_of(loop.target)))
        for loop in layout_of(function).loops(node)
    )


def _is_kept(call: ast.Call, function: Function) -> bool:
    """Whether a call only puts what it is given into a list or a set that the function has made."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in _KEEPS:
        return False
    made = bindings_of(function).get(path_text(call.func.value) or "", ())
    return bool(made) and all(
        isinstance(item.value, (ast.List, ast.Set))
        or (isinstance(item.value, ast.Call) and last_name(item.value.func) in ("list", "set"))
        for item in made
    )


def _parameter_of(target: ast.expr) -> ast.expr:
    """What a loop calls the parameter: behind its name, where it takes both."""
    return target.elts[-1] if isinstance(target, ast.Tuple) and target.elts else target


def _receivers(call: ast.Call) -> list[ast.expr]:
    return [call.func.value] if isinstance(call.func, ast.Attribute) else []


def _casts_here(
    view: AmpView, place: Origin, wanted: str, uses: Sequence[ast.AST] = ()
) -> Iterator[Half]:
    """Casts in place of a name or attribute, before it is used; only the last one counts."""
    path = _known_as(place)
    layout = layout_of(place.function)
    if path is None or place.expression not in layout:
        return
    later = _later(place, uses)
    methods = place.function.once(_methods_called).get(path, ())
    handed = place.function.once(_handed_over).get(path, ())
    ordered = [node for node in layout.nodes if node in (*methods, *handed)] if handed else methods
    calls = [node for node in ordered if any(layout.reaches(node, use) for use in later)]
    for call in reversed(calls):
        assert isinstance(call, ast.Call)
        is_method = call in methods
        cast = (cast_of if is_method else _cast_by_callee)(view, call, place, wanted)
        if cast is None:
            continue
        conditions = conditions_at(call, place.function, place.expression)
        if _never_holds(view, conditions, place):
            continue
        if cast.dtype == wanted:
            half = _half(call, place, cast.value, wanted, conditions)
            yield replace(half, whole=is_method and last_name(call.func) != "apply")
        if not conditions:
            return


def _known_as(place: Origin) -> str | None:
    """The path of a module; for an entry of a display with a name, that of the element: `nets['G']`."""
    node = place.expression
    layout = layout_of(place.function)
    display = layout.parents.get(node)
    bound = layout.parents.get(display) if display is not None else None
    if not isinstance(display, DISPLAYS) or not isinstance(bound, ast.Assign):
        return path_text(node)
    if path_text(node) is not None:
        return path_text(node)
    entries = entries_of(display) or []
    held = places_held(bound.targets[0], display)
    return held[entries.index(node)] if node in entries and held else None


def _later(place: Origin, uses: Sequence[ast.AST]) -> list[ast.AST]:
    """Where a function uses a module, or lets go of one that it has just made."""
    layout = layout_of(place.function)
    found = [use for use in uses if use in layout]
    if path_text(place.expression) is not None:
        return [place.expression, *found]
    return found or [node for node in layout.nodes if isinstance(node, ast.Return)]


def _cast_by_callee(view: AmpView, call: ast.Call, place: Origin, wanted: str) -> Cast | None:
    """What dtype a called function certainly casts the model to that it is given."""
    callee = view.objects.callee(call, place.function)
    path = path_text(place.expression)
    if callee is None or callee.name == "__init__" or callee is place.function:
        return None
    given = view.objects.bind(call, place.function, callee).given.items()
    word = next((name for name, item in given if path_text(item) == path), "")
    if word in bindings_of(callee):
        return None
    inside = Activation(callee, call, place.function, place.activation)
    for node in reversed(callee.once(_methods_called).get(word, ())):
        cast = cast_of(view, node, Origin(node, callee, inside), wanted)
        if cast is not None and not conditions_at(node, callee):
            return cast
    return None


def _recast(view: AmpView, place: Origin, wanted: str, uses: Sequence[ast.AST] = ()) -> bool:
    """Whether everything before this place is overwritten by a cast to another dtype."""
    node = place.expression
    cast = cast_of(view, node, place, wanted) if isinstance(node, ast.Call) else None
    if cast is not None and cast.dtype not in ("", wanted):
        return True
    path, layout = _known_as(place), layout_of(place.function)
    if path is None or node not in layout:
        return False
    later = [node] if path_text(node) is not None else _later(place, uses)
    for call in place.function.once(_methods_called).get(path, ()):
        if not any(layout.reaches(call, use) for use in later):
            continue
        cast = cast_of(view, call, place, wanted)
        if cast is not None and cast.dtype != wanted:
            return True
    return False


def _methods_called(function: Function) -> dict[str, list[ast.Call]]:
    """Calls of methods in a function by the path of the object, in source order.

    On the variable of a loop they are calls on each of its elements.
    """
    found: dict[str, list[ast.Call]] = {}
    for node in layout_of(function).nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            path = path_text(node.func.value)
            if path is not None:
                for each in (path, *paths_in_turn(node.func.value, function)):
                    found.setdefault(each, []).append(node)
    return found


def _handed_over(function: Function) -> dict[str, list[ast.Call]]:
    """Calls in a function by the paths of what they are given as it is, in source order."""
    found: dict[str, list[ast.Call]] = {}
    calls = (node for node in layout_of(function).nodes if isinstance(node, ast.Call))
    for call in calls:
        for path in map(path_text, arguments(call)):
            if path is not None:
                found.setdefault(path, []).append(call)
    return found


def _half(
    node: ast.AST,
    place: Origin,
    value: Value | None,
    wanted: str,
    conditions: tuple[Condition, ...] = (),
) -> Half:
    firmness = place.firmness
    steps: tuple[Step, ...] = ()
    if value is not None:
        firmness = min(firmness, value.firmness)
        conditions = (*conditions, *value.origin.conditions)
        steps = value.steps
    words = f"its parameters become {wanted}"
    steps = (*steps, Step(node, place.function.module, words), *place.steps)
    return Half(node, place.function, value, (*conditions, *place.conditions), firmness, steps)


def _built(view: AmpView, place: Origin, wanted: str, depth: int) -> Iterator[Half]:
    """Half parameters that a call creates: a cast, a dtype argument, a class of the project."""
    call = place.expression
    if not isinstance(call, ast.Call) or depth > _DEPTH:
        return
    cast = cast_of(view, call, place, wanted)
    if cast is not None:
        if cast.dtype == wanted:
            whole = last_name(call.func) != "apply"
            yield replace(_half(call, place, cast.value, wanted), whole=whole)
        return
    name = last_name(call.func)
    if name in WRAPPERS:
        return
    known = view.objects.symbol(call.func, place.function)
    if isinstance(known, Class):
        yield from _built_by_class(view, known, place, wanted, depth)
        return
    if name in _CONTAINERS:
        yield from _contained(view, call, place, wanted, depth)
        return
    yield from _dtype_argument(view, call, place, wanted)


def _dtype_argument(view: AmpView, call: ast.Call, place: Origin, wanted: str) -> Iterator[Half]:
    """`nn.Linear(..., dtype=half)`, `from_pretrained(..., torch_dtype=half)`."""
    dotted = place.function.module.resolve(call.func) or ""
    if not (dotted.startswith("torch.nn.") or last_name(call.func) == "from_pretrained"):
        return
    if any(
        item.arg is not None and ADAPTERS.search(item.arg) for item in call.keywords
    ):  # load_in_8bit=True: integers, not float16
        return
    for item in call.keywords:
        if item.arg not in DTYPE_KEYWORDS:
            continue
        possible = view.values.of(item.value, place.function, place.activation)
        found = sorted(possible.with_dtype(wanted), key=lambda value: -value.firmness)
        if found:
            yield _half(call, place, found[0], wanted)


def _contained(
    view: AmpView, call: ast.Call, place: Origin, wanted: str, depth: int
) -> Iterator[Half]:
    for argument in call.args:
        items = [argument]
        if isinstance(argument, ast.Dict):
            items = list(argument.values)
        elif isinstance(argument, (ast.List, ast.Tuple)):
            items = list(argument.elts)
        for item in items:
            yield from _child(view, item, place, wanted, depth)


def _child(view: AmpView, item: ast.expr, place: Origin, wanted: str, depth: int) -> Iterator[Half]:
    """Half parameters of a module inside a module, with the way on to the outer one."""
    if depth >= _DEPTH:
        return
    for source in view.values.origins.aliases(item, place.function, place.activation):
        if _adapted(view, source):
            return
        halves = [*_casts_here(view, source, wanted)]
        if not halves and _recast(view, source, wanted):
            return
        halves += _built(view, source, wanted, depth + 1)
        for half in halves:
            yield Half(
                half.node,
                half.function,
                half.value,
                (*half.conditions, *place.conditions),
                min(half.firmness, place.firmness),
                (*half.steps, *place.steps),
            )


def _built_by_class(
    view: AmpView, owner: Class, place: Origin, wanted: str, depth: int
) -> Iterator[Half]:
    """Half parameters of an object of a project's class, as this constructor call makes it."""
    init = view.objects.method(owner, "__init__")
    call = place.expression
    assert isinstance(call, ast.Call)
    if init is None or (place.activation is not None and place.activation.depth >= CALL_DEPTH):
        return
    inside = Activation(init, call, place.function, place.activation, constructs=True)
    own = Origin(call, init, inside, place.firmness, place.steps, place.conditions)
    if _freezes(owner):
        return
    for path, bindings in bindings_of(init).items():
        if not path.startswith("self."):
            continue
        for binding in bindings:
            if binding.value is None or not isinstance(binding.value, ast.Call):
                continue
            conditions = conditions_at(binding.statement, init)
            child = Origin(
                own.expression,
                init,
                inside,
                own.firmness if not conditions else Firmness.CHOICE,
                own.steps,
                (*own.conditions, *conditions),
            )
            if not _cast_later(view, init, path, binding.statement, own):
                yield from _child(view, binding.value, child, wanted, depth)
    yield from _cast_inside(view, init, own, wanted)


def _freezes(owner: Class) -> bool:
    """Whether methods of a class decide which of its parameters train."""
    return any(
        (isinstance(node, ast.Attribute) and node.attr in ("requires_grad", "requires_grad_"))
        or (isinstance(node, ast.Call) and ADAPTERS.search(last_name(node.func)) is not None)
        for method in owner.methods.values()
        for node in method.nodes
    )


def _cast_inside(view: AmpView, init: Function, own: Origin, wanted: str) -> Iterator[Half]:
    """`self.half()` and `self.body.half()` in a constructor."""
    for node in layout_of(init).nodes:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        path = path_text(node.func.value)
        if path is None or not (path == "self" or path.startswith("self.")):
            continue
        if path != "self" and not _is_child(view, init, path):
            continue
        cast = cast_of(view, node, own, wanted)
        if cast is None or cast.dtype != wanted:
            continue
        conditions = conditions_at(node, init)
        if not (_never_holds(view, conditions, own) or _cast_later(view, init, path, node, own)):
            yield _half(node, own, cast.value, wanted, conditions)


def _is_child(view: AmpView, init: Function, path: str) -> bool:
    """Whether an attribute is bound to a module, not to a tensor."""
    for binding in bindings_of(init).get(path, ()):
        value = binding.value
        if isinstance(value, ast.Call):
            dotted = init.module.resolve(value.func) or ""
            if dotted.startswith("torch.nn.") and dotted != "torch.nn.Parameter":
                return True
            known = view.objects.symbol(value.func, init)
            if isinstance(known, Class) and view.objects.is_module(known):
                return True
            if last_name(value.func) == "from_pretrained":
                return True
    return False


def _cast_later(view: AmpView, init: Function, path: str, node: ast.AST, own: Origin) -> bool:
    """Whether a child or the whole object is cast to another dtype afterwards."""
    layout = layout_of(init)
    for call in layout.nodes:
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        if path_text(call.func.value) not in ("self", path) or not layout.before(node, call):
            continue
        cast = cast_of(view, call, own)
        if cast is not None and cast.dtype not in ("float16",):
            return True
    return False
