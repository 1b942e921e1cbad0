"""Abstract values: what the interpreter knows about an expression.

A value is a small tuple whose first element names its kind, or None for "unknown":

    ("none",)                 None
    ("const", v)              a literal bool, number or string
    ("positive",)             a number above zero (a loss sum after `+=`)
    ("scaler", id)            a GradScaler; id is a construction site or a location
    ("optimizer", id)         an optimizer, likewise
    ("scaled", id)            a tensor multiplied by the scale of scaler id
    ("opaque",)               something that may be scaled: its backward is judged by nobody
    ("path", location)        unknown, but the same as that location
    ("formula", f)            a boolean, or as truthy as one: see amplint.flow.conditions
    ("text", f)               `str` of that: "True" or "False"
    ("cases", f, choices)     one of several constants, each with the condition that chooses it;
                              f: some condition holds
    ("instance", class, id)   an object of a class of the file; id prefixes its attributes
    ("function", function)    a function of the file
    ("class", class)          a class of the program: an alias, `cls` of its class methods
    ("method", instance, function)  a method of an object, not called yet
    ("copy", location, fields, class)  a copy of what is there, with other values in some fields
    ("unbound",)              nothing: on this path no assignment has run yet
    ("event", participant, name)    a method of a scaler or an optimizer, not called yet
    ("clip",)                       a function of torch that clips gradients, not called yet
    ("partial", callee, bound)      arguments bound to one of these, as `Call.bound` has them
    ("choice", values)        one of these, nobody knows which: a table with an unknown key
    ("library", class, id)    an object of a training library's class, by its dotted name
    ("foreign",)              what a library has taken over: it scales and steps by itself
    ("keeper",)               an object of unknown code that was given a scaler: it may use it
    ("hook",)                 what is looked up under a name that is not known: it may do anything
    ("autocast",), ("null",)  an autocast object; a null context
    ("tuple", values)         a tuple or list display
    ("raised", exception)     what a call ends with in place of a value
"""

from __future__ import annotations

from typing import Any

Value = tuple[Any, ...] | None

NONE: Value = ("none",)
ZERO: Value = ("const", 0)
POSITIVE: Value = ("positive",)
OPAQUE: Value = ("opaque",)
CLIPPER: Value = ("clip",)
FOREIGN: Value = ("foreign",)
KEEPER: Value = ("keeper",)
HOOK: Value = ("hook",)
UNBOUND: Value = ("unbound",)
#: Under which name a path notes, beside a place, of what it holds a copy; and that there are any.
ORIGINAL = ".<original>"
COPIES = "<copies>"
#: Kinds that may turn out to be None.
_OPEN = frozenset({"path", "opaque", "keeper", "copy", "unbound"})
#: Where a path notes that something which uses a scaler was put into a container out of sight.
HANDED = "<handed>"

#: Kinds that can be called.
CALLABLE_KINDS = frozenset(
    {"function", "class", "method", "event", "clip", "partial", "instance", "choice"}
)
#: Kinds that take part in the merge key, what is foreign for what steps only: they correlate with the
#: typestate.
KEYED_KINDS = frozenset({"scaled", "scaler", "opaque", "foreign", "keeper"})
#: Kinds that do where a relevant guard tests them, or the name is a scaler's.
GUARD_KINDS = frozenset({"const", "positive", "none"}) | CALLABLE_KINDS


def kind_of(value: Value) -> str:
    """The kind of a value, "" for unknown ones."""
    return value[0] if value else ""


def is_container(value: Value) -> bool:
    """Whether a value may be a container of which it is known how full it is."""
    return value in (ZERO, POSITIVE) or kind_of(value) == "tuple"


def is_truthy(value: Value) -> bool | None:
    """Truth of a value where it is certain, else None. A GradScaler has no `__bool__`."""
    if value is None:
        return None
    kind = value[0]
    if kind == "none":
        return False
    if kind == "const":
        # An enumerator is known by its name only; its value may be falsy.
        return None if str(value[1]).startswith("<") else bool(value[1])
    if kind in CALLABLE_KINDS or kind in ("scaler", "optimizer", "autocast", "positive", "hook"):
        return True
    if kind == "tuple":
        return bool(value[1])
    return None


def is_not_none(value: Value) -> bool | None:
    """Whether a value is certainly not None (True), certainly None (False), or unknown."""
    if value is None or value[0] in _OPEN or value == ("formula", False):
        return None
    return value[0] != "none"
