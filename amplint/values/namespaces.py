"""What a namespace of `argparse` has: what its parser declares, and what code stores on it."""

from __future__ import annotations

import ast

from amplint.code.dataflow import constant_of
from amplint.code.expressions import path_text
from amplint.code.module import CallSite, Function, Module
from amplint.values.attributes import Attributes, names_bound
from amplint.values.options import argparse_options, stored_defaults
from amplint.values.provenance import Origin

_PARSER = "argparse.ArgumentParser"
#: Packages whose functions read a namespace, and store nothing on it.
_READING = frozenset(
    ("argparse", "copy", "json", "logging", "os", "pprint", "torch", "wandb", "yaml")
)


class Namespaces:
    """Answers for the files of one project."""

    def __init__(self, attributes: Attributes) -> None:
        self.attributes = attributes
        self.objects = attributes.objects

    def lacks(self, node: ast.Attribute, function: Function) -> bool:
        """Whether nothing gives a namespace the attribute that is read of it: `args.bs`."""
        if not isinstance(node.ctx, ast.Load) or node.attr.startswith("_"):
            return False
        if not isinstance(node.value, (ast.Name, ast.Attribute)):
            return False
        found = self.objects.origins.of(node.value, function)
        entered = {step.into for item in found.origins for step in item.steps if step.into}
        if not found.origins or not found.complete or not all(map(self._is_parsed, found.origins)):
            return False
        if any(map(self.objects.may_have_other_callers, entered)):
            return False
        homes = {function.module, *(item.function.module for item in found.origins)}
        return self._is_undeclared(node.attr, homes) and not self._is_handed_out(node, homes)

    def _is_parsed(self, origin: Origin) -> bool:
        """Whether a parser that is made in sight has given a namespace."""
        call = origin.expression
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            return False
        if call.func.attr != "parse_args" or call.keywords or len(call.args) > 1:
            return False
        parsers = self.objects.origins.of(call.func.value, origin.function, origin.activation)
        return (
            parsers.complete and bool(parsers.origins) and all(map(_makes_parser, parsers.origins))
        )

    def _is_undeclared(self, name: str, homes: set[Module]) -> bool:
        """Whether no file declares an option, or stores an attribute, of a name."""
        for home in homes:
            others = [home, *self.objects.project.mentioning(home, "add_argument")]
            if argparse_options(others, name) or stored_defaults(others, name):
                return False
            if any(map(self._is_open, others)) or self.attributes.is_set_unseen(home):
                return False
            if any(name in item.once(names_bound) for item in (*others, *homes)):
                return False
            if self.objects.outside_stores(home, name):
                return False
        return True

    def _is_open(self, module: Module) -> bool:
        """Whether a file may declare options that its text does not name."""
        sites = module.once(_declaring)
        if any(map(_is_computed, sites)):
            return True
        parsers = {path_text(site.node.func.value) for site in sites}  # type: ignore[attr-defined]
        return any(
            self.objects.symbol(site.node.func, site.function) is None
            for site in module.calls
            if not parsers.isdisjoint(map(path_text, _given(site)))
        )

    def _is_handed_out(self, node: ast.Attribute, homes: set[Module]) -> bool:
        """Whether a function out of sight gets the namespace: it may store something on it."""
        held = path_text(node.value)
        return any(
            not self._reads_only(site)
            for home in homes
            for site in home.calls
            if held in map(path_text, _given(site))
        )

    def _reads_only(self, site: CallSite) -> bool:
        callee, module = site.node.func, site.function.module
        if self.objects.symbol(callee, site.function) is not None:
            return True
        if isinstance(callee, ast.Name) and module.scopes.resolve(callee).kind == "builtin":
            return True
        return (site.dotted or "").partition(".")[0] in _READING


def _given(site: CallSite) -> list[ast.expr]:
    return [*site.node.args, *(word.value for word in site.node.keywords)]


def _makes_parser(origin: Origin) -> bool:
    call, module = origin.expression, origin.function.module
    if not isinstance(call, ast.Call) or module.resolve(call.func) != _PARSER:
        return False
    return not any(word.arg in ("parents", None) for word in call.keywords)


def _declaring(module: Module) -> tuple[CallSite, ...]:
    """The calls of a file that declare options, or may."""
    words = ("add_argument", "add_subparsers", "set_defaults", "add_arguments")
    return tuple(
        site
        for site in module.calls
        if site.method in words and isinstance(site.node.func, ast.Attribute)
    )


def _is_computed(site: CallSite) -> bool:
    """Whether a call declares what its text does not name."""
    if site.method != "add_argument":
        return site.method != "set_defaults" or any(not word.arg for word in site.node.keywords)
    words = [constant_of(item) for item in site.node.args]
    dest = [word for word in site.node.keywords if word.arg in ("dest", None)]
    named = all(word.arg and isinstance(constant_of(word.value), str) for word in dest)
    return not named or not all(isinstance(word, str) for word in words)
