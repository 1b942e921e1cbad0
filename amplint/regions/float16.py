"""Which tensors are float16 because an autocast region runs their forward, in whatever file.

A module runs under autocast because somebody builds it and a region runs it. Where both are
there and the way between them is not in sight, it may: that is less than a proof.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from amplint.amp.half_tensors import HalfReading, Place, Source
from amplint.amp.links import chosen
from amplint.amp.scaling import evaluates
from amplint.amp.view import AmpView
from amplint.code.definitions import is_test_file
from amplint.code.expressions import last_name
from amplint.code.module import Class, Function, enclosing_class
from amplint.findings import Link, Standing
from amplint.regions.callers import Callers, way_chosen
from amplint.regions.regions import Inside, Region, Regions, Trail, call_words
from amplint.values.callables import KEEPING, PROPERTIES
from amplint.values.provenance import Condition, Step


@dataclass(frozen=True, slots=True, eq=False)
class HalfTensor:
    """Why a tensor is float16.

    Args:
        operation: the operation that makes it so.
        function: that computes it, in whatever file.
        region: the autocast region that runs it; None for an explicit cast.
        trail: the calls that lead from the region there.
        sure: whether it is known that the region runs it.
        conditions: what has to hold for an object on the way to be the one that it needs.
    """

    operation: ast.expr
    function: Function
    region: Region | None
    trail: Trail = ()
    sure: bool = True
    conditions: tuple[Condition, ...] = ()

    @property
    def why(self) -> str:
        """What makes the tensor float16, in words that go on behind "is float16"."""
        if self.region is None:
            return ""
        if self.sure:
            return " under autocast"
        row, name = self.region.opened.lineno, self.region.function.module.filename
        return f" if the autocast of `{name.rpartition('/')[2]}`, line {row}, runs this module"

    @property
    def link(self) -> Link:
        """That autocast runs the operation, or that it is a cast, and how that is known."""
        standing = Standing.CODE if self.sure else Standing.GUESS
        kind = "value" if self.region is None else "region"
        return Link(kind, standing, ast.unparse(self.operation), "computes in float16")

    def links(self, view: AmpView, expression: ast.expr) -> tuple[Link, ...]:
        """How it is known that a tensor is float16: that of the operation, and what it rests on."""
        result = Link("object", Standing.CODE, ast.unparse(expression), "is its result")
        return (self.link, result, *chosen(view, self.conditions))

    def steps(self) -> Iterator[Step]:
        """From the region to the operation."""
        if self.region is not None:
            words = "autocast runs the forward in float16"
            yield Step(self.region.opened, self.region.function.module, words)
        for call, function in self.trail:
            yield Step(call, function.module, f"{call_words(call)} runs inside")
        yield Step(self.operation, self.function.module, "the result is float16")


def half_tensor(
    view: AmpView, regions: Regions, tensor: ast.expr, function: Function
) -> HalfTensor | None:
    """Why a tensor is float16 where a function computes with it; None where it may not be."""
    callers = Callers(regions, choices=True)
    source = HalfReading(view, given=partial(_given, callers)).of(tensor, function)
    found = _half(view, callers, tensor, function, source) if source is not None else None
    return found or _half_without_autocast(view, callers, tensor, function)


def _given(callers: Callers, function: Function, name: str) -> Iterator[Place]:
    """What the calls of a function, or of the module whose forward it is, pass for a parameter."""
    for call, caller in callers.callers(function):
        value = callers.objects.bind(call, caller, function).given.get(name)
        if value is not None and not evaluates(caller):
            yield value, caller


def half_dtype(
    view: AmpView, regions: Regions, dtype: ast.expr, function: Function
) -> HalfTensor | None:
    """Why `x.dtype`, or a parameter that is given it, is float16; None where it may not be."""
    source = HalfReading(view).of_dtype(dtype, function)
    return _half(view, Callers(regions), dtype, function, source) if source is not None else None


def _half(
    view: AmpView, callers: Callers, use: ast.expr, function: Function, source: Source
) -> HalfTensor | None:
    if source.is_cast:
        return HalfTensor(source.node, source.function, None)
    if _is_decorated(function) or _is_decorated(source.function):
        return None
    for region, trail, conditions in _ways(view, callers, use, function, source):
        if region.cast.may_be_float16(view.values):
            where = source.node, source.function
            return HalfTensor(*where, region, trail, conditions=conditions)
    possible = may_run(view, callers, source.node, source.function)
    if possible is None:
        return None
    return HalfTensor(source.node, source.function, possible, sure=False)


def _ways(
    view: AmpView, callers: Callers, use: ast.expr, function: Function, source: Source
) -> Iterator[tuple[Region, Trail, tuple[Condition, ...]]]:
    """The regions that run a use and its source, each with the way to the source.

    With what has to hold for the objects on the way to the use to be those that it needs.
    """
    is_here = source.function is function
    computing: dict[ast.AST, Trail] = {}
    for region, trail in () if is_here else callers.regions_around(source.node, source.function):
        computing.setdefault(region.opened, trail)
    for region, trail in callers.regions_around(use, function):
        if is_here and callers.regions.is_excluded(region, source.node, function, trail):
            continue  # the way ends at a test between the two
        way = way_chosen(view, callers.made_by(trail, function))
        if way is not None and (is_here or region.opened in computing):
            yield region, trail if is_here else computing[region.opened], way


def may_run(view: AmpView, callers: Callers, node: ast.expr, function: Function) -> Region | None:
    """The float16 region that may run the module around a node, along a way out of sight."""
    owner = enclosing_class(function)
    is_module = owner is not None and view.objects.is_module(owner)
    ends = callers.open_ends(node, function)
    end = next(ends, None) if is_module or owner is None else None
    if end is None or not _is_built(view, owner if is_module and owner else end, set()):
        return None
    return view.once(_open_region, callers.regions)


def _half_without_autocast(
    view: AmpView, callers: Callers, tensor: ast.expr, function: Function
) -> HalfTensor | None:
    """A tensor that is cast by hand, where no autocast runs that could cast it back."""
    source = HalfReading(view, autocast=False).of(tensor, function)
    if source is None or _is_decorated(function) or callers.is_open(tensor, function):
        return None
    if next(callers.regions_around(tensor, function), None) is not None:
        return None
    return HalfTensor(source.node, source.function, None)


def _is_decorated(function: Function) -> bool:
    """Whether a decorator may change the dtype of what a function gets, or switch autocast off."""
    decorators = getattr(function.node, "decorator_list", ())
    names = {last_name(item.func if isinstance(item, ast.Call) else item) for item in decorators}
    return bool(names - KEEPING - PROPERTIES) or "custom_fwd" in names


def _is_built(view: AmpView, owner: Class, seen: set[Class]) -> bool:
    """Whether a class is built, or handed on as a value, by code that is not itself a dead class.

    Tests build everything: they do not count.
    """
    seen.add(owner)
    family = {owner, *view.objects.subclasses(owner)}
    for name in dict.fromkeys(item.name for item in family):
        for module, holder in view.objects.mentions.holders(name, owner.module):
            around = module.classes.get(holder)
            if around in family or around in seen:
                continue
            if around is None or not view.objects.is_module(around):
                return True
            if _is_built(view, around, seen):
                return True
    return False


def _open_region(view: AmpView, regions: Regions) -> Region | None:
    """A float16 region of a training step in the project that runs something out of sight."""
    for module in (view.module, *view.project.mentioning(view.module, "autocast")):
        if "backward" not in module.source or is_test_file(module.filename):
            continue
        for region in regions.opened(module):
            if evaluates(region.function):
                continue
            if not region.cast.may_be_float16(view.values):
                continue
            if any(_is_open(view, item) for item in regions.inside(region)):
                return region
    return None


def _is_open(view: AmpView, item: Inside) -> bool:
    """Whether a call may run any module: it is of something whose values are not all known."""
    if item.function.module.resolve(item.call.func) is not None:
        return False
    found = view.objects.targets(item.call, item.function)
    return not found.functions and bool(found.unknown)
