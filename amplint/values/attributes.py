"""Which attributes objects have: those of project classes, and what an object has not been given yet.

By all that the text of a class, of its bases and of whoever stores something on its objects shows.
What computes the name of an attribute, or stands out of sight, makes the answer unknown.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from amplint.code.arguments import receiver_of
from amplint.code.definitions import class_fields
from amplint.code.expressions import last_name, path_text
from amplint.code.layout import layout_of
from amplint.code.module import Class, Function, Module
from amplint.values.objects import Objects
from amplint.values.provenance import Origin
from amplint.values.wrappers import MODULE_BASES, SAME_OBJECT

#: Bases whose objects have attributes that no text of the project shows.
_WITH_MORE = MODULE_BASES | {"torch.utils.data.Dataset"}
#: The names of torch's own module class.
_MODULES = frozenset(item for item in MODULE_BASES if item.startswith("torch."))
#: What its objects have (torch 2.13; older ones have less).
MODULE_HAS = frozenset(
    [
        "T_destination",
        "add_module",
        "apply",
        "bfloat16",
        "buffers",
        "call_super_init",
        "children",
        "compile",
        "cpu",
        "cuda",
        "double",
        "dump_patches",
        "eval",
        "extra_repr",
        "float",
        "forward",
        "get_buffer",
        "get_extra_state",
        "get_parameter",
        "get_submodule",
        "half",
        "ipu",
        "load_state_dict",
        "modules",
        "mtia",
        "named_buffers",
        "named_children",
        "named_modules",
        "named_parameters",
        "parameters",
        "requires_grad_",
        "set_extra_state",
        "set_submodule",
        "share_memory",
        "state_dict",
        "to",
        "to_empty",
        "train",
        "training",
        "type",
        "xpu",
        "zero_grad",
    ]
)


#: How a module gets what is no assignment: under a name that may be computed.
_REGISTERING = frozenset(("add_module", "register_module", "register_buffer", "register_parameter"))


class Attributes:
    """Answers for the files of one project."""

    def __init__(self, objects: Objects) -> None:
        self.objects = objects

    def lacks(self, node: ast.Attribute, function: Function) -> bool:
        """Whether no object that an attribute is read of has one of that name when it is read."""
        if not isinstance(node.ctx, ast.Load) or node.attr.startswith("__"):
            return False
        if self._is_own(node, function):
            return self._is_never_set(node, function) or self._is_set_later(node, function)
        classes = self._classes_of(node.value, function)
        return bool(classes) and all(self._has_none(item, node.attr, function) for item in classes)

    def is_too_early(self, node: ast.Assign, function: Function) -> bool:
        """Whether a module is put into a module whose base has not been set up: torch refuses that.

        `torch.nn.Module.__setattr__` (torch 2.13): "cannot assign module before Module.__init__() call".
        """
        owner = function.owner
        if owner is None or function.name != "__init__" or not self._makes_module(node, function):
            return False
        own = receiver_of(function)
        if not any(path_text(item) == f"{own}.{last_name(item)}" for item in node.targets):
            return False
        if not self.objects.base_names(owner) & _MODULES or not self.objects.is_plain(owner):
            return False
        heirs = self.objects.subclasses(owner)
        if any("__init__" in item.methods for item in heirs) or is_changed_unseen(owner):
            return False
        layout = layout_of(function)
        order = self.objects.ancestry(owner)
        return not any(
            each.attr == "__init__" and (each not in layout or not layout.before(node, each))
            for item in order
            for name, method in item.methods.items()
            if item is owner or name != "__init__"
            for each in method.nodes
            if isinstance(each, ast.Attribute)
        )

    def left_abstract(self, owner: Class) -> str:
        """A method that is abstract for a class, so that Python makes no object of it; "" if none."""
        if not self.objects.is_plain(owner):
            return ""
        order = self.objects.ancestry(owner)
        if not self.objects.base_names(owner) & {"abc.ABC"} and not any(map(_is_abc, order)):
            return ""
        names = dict.fromkeys(name for item in order for name in item.methods)
        for name in names:
            first = next(it for it in order if name in it.methods or name in class_fields(it))
            method = first.methods.get(name)
            if method is not None and _is_abstract(method):
                is_given = name in class_fields(first) or self.objects.outside_stores(
                    owner.module, name
                )
                return "" if is_given else name
        return ""

    def _makes_module(self, node: ast.Assign, function: Function) -> bool:
        """Whether what a statement binds is made by a class of torch's layers, or of the project's."""
        if not isinstance(node.value, ast.Call):
            return False
        known = self.objects.symbol(node.value.func, function)
        if isinstance(known, Class):
            return self.objects.is_plain(known) and bool(self.objects.base_names(known) & _MODULES)
        dotted = function.module.resolve(node.value.func) or ""
        package, _, name = dotted.rpartition(".")
        is_layer = package == "torch.nn" and name[:1].isupper() and "Parameter" not in name
        return is_layer and function.module.imported_once(node.value.func)

    # -- of what a method gets first ------------------------------------------------------------

    def _is_own(self, node: ast.Attribute, function: Function) -> bool:
        own = receiver_of(function)
        return function.owner is not None and bool(own) and path_text(node.value) == own

    def _is_never_set(self, node: ast.Attribute, function: Function) -> bool:
        """Whether no class that `self` can be of has or sets `self.sampler`."""
        owner = function.owner
        if owner is None or node.attr in owner.module.once(names_bound):
            return False
        if self._is_called_on_class(function):
            return False
        return self._none_has(self._relatives(owner), owner, node.attr)

    def _is_set_later(self, node: ast.Attribute, function: Function) -> bool:
        """Whether a constructor reads what only it sets itself, further down."""
        owner, layout = function.owner, layout_of(function)
        if owner is None or function.name != "__init__" or self._is_called_on_class(function):
            return False
        relatives = self._relatives(owner)
        written = {
            method: bindings
            for item in relatives
            for method, bindings in self.objects.stores(item, node.attr)
        }
        if list(written) != [function]:
            return False
        later = [item.statement for item in written[function]]
        around = {*layout.loops(node)}
        if not all(
            item in layout
            and layout.before(node, item)
            and not layout.holds(item, node)
            and around.isdisjoint(layout.loops(item))
            for item in later
        ):
            return False
        if any(_is_told_of(item, node.attr) for item in relatives):
            return False
        return self._are_whole(relatives, owner, node.attr)

    def _relatives(self, owner: Class) -> set[Class]:
        """All classes that share an object with a class."""
        return {base for item in self.objects.family(owner) for base in self.objects.ancestry(item)}

    # -- of what is made in sight ---------------------------------------------------------------

    def _classes_of(self, place: ast.expr, function: Function) -> list[Class]:
        """The classes of the project whose calls have made an object; none where any may be another."""
        if not isinstance(place, (ast.Name, ast.Attribute, ast.Call)):
            return []
        found = self.objects.origins.of(place, function)
        entered = {step.into for item in found.origins for step in item.steps if step.into}
        if not found.complete or any(map(self.objects.may_have_other_callers, entered)):
            return []
        classes = [self._class_made(item) for item in found.origins]
        known = [item for item in classes if item is not None]
        return known if len(known) == len(classes) else []

    def _class_made(self, origin: Origin) -> Class | None:
        """The class of what a call makes: `Net().to(device)` is a `Net`."""
        made = origin.expression
        while (
            isinstance(made, ast.Call)
            and isinstance(made.func, ast.Attribute)
            and made.func.attr in SAME_OBJECT
            and isinstance(made.func.value, ast.Call)
        ):
            made = made.func.value
        found = (
            self.objects.symbol(made.func, origin.function) if isinstance(made, ast.Call) else None
        )
        return found if isinstance(found, Class) else None

    def _has_none(self, owner: Class, name: str, reader: Function) -> bool:
        """Whether an object that a call of a class has made has no attribute of that name."""
        order = self.objects.ancestry(owner)
        homes = {item.module for item in order} | {reader.module}
        if any(name in item.once(names_bound) for item in homes):
            return False
        return not self.is_set_unseen(owner.module, order, name) and self._none_has(
            set(order), owner, name
        )

    def is_set_unseen(self, home: Module, classes: Collection[Class] = (), name: str = "") -> bool:
        """Whether some file stores attributes under names that it computes on what may be an object.

        Args:
            classes: those of the object, with their bases; none of an object of a library.
            name: what the attribute may be called; "" for any.
        """
        words = ("setattr", "__dict__", "vars")
        others = (each for word in words for each in self.objects.project.mentioning(home, word))
        return any(
            held != receiver_of(function)
            or function.owner is None
            or not self._relatives(function.owner).isdisjoint(classes)
            for module in dict.fromkeys((home, *others))
            for held, function, computed in module.once(_unseen_stores)
            if _may_be_called(computed, name)
        )

    # -- of classes -----------------------------------------------------------------------------

    def _none_has(self, classes: set[Class], owner: Class, name: str) -> bool:
        if any(name in item.module.once(names_bound) for item in classes):
            return False
        return self._are_whole(classes, owner, name)

    def _are_whole(self, classes: set[Class], owner: Class, name: str) -> bool:
        """Whether classes show all that their objects have, as far as a name goes."""
        if not all(self._is_whole(item, name) for item in classes):
            return False
        if any(is_changed_unseen(item, name) for item in classes):
            return False
        return not self.objects.outside_stores(owner.module, name)

    def _is_called_on_class(self, function: Function) -> bool:
        """Whether some call hands in what comes first: `Trainer.fit(options, net)`."""
        return any(
            isinstance(site.node.func, ast.Attribute)
            and isinstance(self.objects.symbol(site.node.func.value, site.function), Class)
            for site in self.objects.calls_of(function)
        )

    def _is_whole(self, owner: Class, name: str) -> bool:
        """Whether the text of a class and of its bases shows whether its objects have something."""
        more = self.objects.base_names(owner) & _WITH_MORE
        if not self._is_known(owner) or not more <= _MODULES:
            return False
        if not more:
            return True
        is_own = name in MODULE_HAS or name.startswith(("_", "register_"))
        return not is_own and not any(map(_registers_unseen, ast.walk(owner.node)))

    def _is_known(self, owner: Class) -> bool:
        """Whether objects of a class have what its text says: it may be a dataclass."""
        return self.objects.is_plain(owner) or all(
            not item.node.keywords
            and "__new__" not in item.methods
            and all(isinstance(self.objects.symbol(b, item.module.body), Class) for b in item.bases)
            and all(_is_dataclass(each, item) for each in item.node.decorator_list)
            for item in self.objects.ancestry(owner)
        )


def is_changed_unseen(owner: Class, name: str = "") -> bool:
    """Whether a class sets attributes by names that are computed, or by itself.

    Args:
        name: what the attribute may be called; "" for any.
    """
    words = {"setattr", "vars", "__dict__", "__setattr__", "__getattr__", "__getattribute__"}
    others = {
        node.func
        for node in ast.walk(owner.node)
        if isinstance(node, ast.Call) and not _may_be_called(_computed_name(node), name)
    }
    named = (
        getattr(node, "id", "") or getattr(node, "attr", "") or getattr(node, "name", "")
        for node in ast.walk(owner.node)
        if node not in others
    )
    return not words.isdisjoint(named)


def _computed_name(node: ast.AST) -> ast.expr | None:
    """The name under which `setattr` stores; None for everything else."""
    if not isinstance(node, ast.Call) or last_name(node.func) not in ("setattr", "__setattr__"):
        return None
    place = 1 if last_name(node.func) == "setattr" else 0
    return node.args[place] if len(node.args) > place else None


def _may_be_called(computed: ast.expr | None, name: str) -> bool:
    """Whether a computed name may come out as one: `f"layer_{index}"` begins and ends as it does."""
    if not isinstance(computed, ast.JoinedStr) or not name:
        return True
    ends = [part.value if isinstance(part, ast.Constant) else "" for part in computed.values]
    first, last = (str(ends[index]) if ends else "" for index in (0, -1))
    return name.startswith(first) and name.endswith(last)


def _registers_unseen(node: ast.AST) -> bool:
    """Whether a module registers a part of itself under a name that is computed."""
    if not isinstance(node, ast.Call) or last_name(node.func) not in _REGISTERING:
        return False
    return not node.args or not isinstance(node.args[0], ast.Constant)


def names_bound(module: Module) -> frozenset[str]:
    """What a file defines or stores, as names or as attributes of anything, or names in a text."""
    found: set[str] = set()
    for node in ast.walk(module.tree):
        if isinstance(node, (ast.Name, ast.Attribute)):
            stored = not isinstance(node.ctx, ast.Load)
            found |= {_name_of(node)} if stored else set()
        elif isinstance(node, ast.Constant):
            found |= {node.value} if isinstance(node.value, str) else set()
        else:
            found.add(_name_of(node))
    return frozenset(found)


def _name_of(node: ast.AST) -> str:
    names = (getattr(node, item, None) for item in ("id", "attr", "name", "arg"))
    return next((name for name in names if isinstance(name, str)), "")


def _is_dataclass(decorator: ast.expr, owner: Class) -> bool:
    maker = decorator.func if isinstance(decorator, ast.Call) else decorator
    return owner.module.resolve(maker) == "dataclasses.dataclass"


def _is_told_of(owner: Class, name: str) -> bool:
    """Whether a class has something of a name otherwise than by storing it: a field, a text."""
    return (
        name in owner.methods
        or name in class_fields(owner)
        or any(
            isinstance(node, ast.Constant) and node.value == name for node in ast.walk(owner.node)
        )
    )


def _unseen_stores(module: Module) -> tuple[tuple[str, Function, ast.expr | None], ...]:
    """What a file stores attributes on under computed names, or gets at all of them of; where; the name."""
    return tuple(
        (path_text(held) or "", function, _computed_name(node))
        for function in module.functions
        for node in function.nodes
        for held in _stored_unseen(node)
    )


def _stored_unseen(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.Call) and last_name(node.func) in ("setattr", "__setattr__"):
        named = any(isinstance(item, ast.Constant) for item in node.args[:2])
        yield from () if named else node.args[:1]
        return
    held = getattr(node, "value", None)
    if not isinstance(node, (ast.Attribute, ast.Subscript, ast.Assign)):
        return
    if isinstance(held, ast.Attribute) and held.attr == "__dict__":
        yield held.value
    elif isinstance(held, ast.Call) and last_name(held.func) == "vars":
        yield held.args[0] if held.args else held


def _is_abc(owner: Class) -> bool:
    """Whether a class has the metaclass that refuses to make objects with abstract methods."""
    return any(
        word.arg == "metaclass" and owner.module.resolve(word.value) == "abc.ABCMeta"
        for word in owner.node.keywords
    )


def _is_abstract(method: Function) -> bool:
    decorators = getattr(method.node, "decorator_list", ())
    return any(method.module.resolve(item) == "abc.abstractmethod" for item in decorators)
