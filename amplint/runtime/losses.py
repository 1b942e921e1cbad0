"""Which loss a backward starts from: scaled, plain, or a sum of both.

The node that `scaler.scale` creates gets a mark. Where no marked node is alive, nothing can be
scaled, and no graph is looked at; otherwise the look ends at nodes older than the oldest mark.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from threading import get_ident
from typing import Any, NamedTuple

import torch

_KEY = "amplint.loss"
#: So many nodes of a graph are looked at; what users do with a scaled loss adds a few.
_NODES = 64
#: Nodes whose result is scaled if what goes in is: linear in it, and nothing is added.
_LINEAR = frozenset(
    {
        *("SumBackward0", "SumBackward1", "MeanBackward0", "MeanBackward1", "DivBackward0"),
        *("MulBackward0", "NegBackward0", "ToCopyBackward0", "ViewBackward0", "CloneBackward0"),
        *("SqueezeBackward0", "SqueezeBackward1", "UnsqueezeBackward0", "SelectBackward0"),
    }
)
_SUMS = frozenset(
    {"AddBackward0", "SubBackward0", "RsubBackward1", "StackBackward0", "CatBackward0"}
)
#: How far a factor may be from the loss scale and still be it, relatively.
_NEAR = 1e-3


class Kind(Enum):
    """What a backward brings to the gradients."""

    SCALED = "scaled"
    PLAIN = "plain"
    MIXED = "mixed"
    UNKNOWN = "unknown"


class Loss(NamedTuple):
    """What a backward starts from, and the number of the scaler, 0 for none."""

    kind: Kind
    scaler: int = 0


class _Mark:
    """Lies in the metadata of a node, and lives as long as it."""

    __slots__ = ("__weakref__", "scaler", "sequence", "thread")

    def __init__(self, scaler: int, sequence: int) -> None:
        self.scaler, self.sequence, self.thread = scaler, sequence, get_ident()


class Marks:
    """The scaled losses that are alive."""

    def __init__(self) -> None:
        #: References that take themselves out; a `WeakSet` does so in Python.
        self._living: set[weakref.ref[_Mark]] = set()

    def put(self, tensor: torch.Tensor, scaler: int) -> None:
        """Mark what `scaler.scale` has returned."""
        node = tensor.grad_fn
        if node is not None:
            mark = _Mark(scaler, node._sequence_nr())
            node.metadata[_KEY] = mark  # type: ignore[index]  # a dict: torch's stub is wrong
            self._living.add(weakref.ref(mark, self._living.discard))

    def scaler_of(self, tensor: torch.Tensor) -> int:
        """The number of the scaler whose `scale` returned this tensor, 0 for none."""
        node = tensor.grad_fn
        mark = node.metadata.get(_KEY) if node is not None else None  # type: ignore[attr-defined]
        return mark.scaler if mark is not None else 0

    def loss(self, roots: Sequence[torch.Tensor], scales: Callable[[], list[float]]) -> Loss:
        """What these roots of a backward are.

        Args:
            scales: gives the loss scales of today; a factor like one is scaling by hand.
        """
        if len(roots) == 1:
            return self._root(roots[0], scales)
        found = [self._root(root, scales) for root in roots]
        kinds = {loss.kind for loss in found}
        scalers = {loss.scaler for loss in found if loss.scaler}
        if len(scalers) > 1:
            return Loss(Kind.UNKNOWN, min(scalers))
        scaler = min(scalers, default=0)
        if len(kinds) <= 1:
            return Loss(kinds.pop() if kinds else Kind.UNKNOWN, scaler)
        known = kinds <= {Kind.SCALED, Kind.PLAIN, Kind.MIXED}
        return Loss(Kind.MIXED if known else Kind.UNKNOWN, scaler)

    @staticmethod
    def is_multiplied(roots: Iterable[torch.Tensor]) -> bool:
        """Whether a root is a product with one number of more than 1: somebody scales by hand."""
        return any(_is_product(root.grad_fn) for root in roots if root.grad_fn is not None)

    def _root(self, root: torch.Tensor, scales: Callable[[], list[float]]) -> Loss:
        scaler = self.scaler_of(root)
        if scaler:
            return Loss(Kind.SCALED, scaler)
        if root.grad_fn is None:
            return Loss(Kind.PLAIN)
        living = [mark for mark in (each() for each in tuple(self._living)) if mark is not None]
        look = _Look(living, tuple(scale for scale in scales() if scale != 1.0))
        if not living:  # then all there can be is a factor at the root
            return Loss(Kind.UNKNOWN if look.is_scaled_by_hand(root.grad_fn) else Kind.PLAIN)
        return Loss(look.kind(root.grad_fn), look.scaler)


class _Look:
    """One look at the graph below a root."""

    def __init__(self, living: list[_Mark], scales: tuple[float, ...]) -> None:
        self._scales = scales
        self._left = _NODES
        here = get_ident()
        # Sequence numbers are counted for each thread.
        own = all(mark.thread == here for mark in living)
        self._oldest = min((mark.sequence for mark in living), default=0) if own else 0
        self.scaler = 0

    def kind(self, node: Any) -> Kind:
        """What the result of a node is."""
        mark = node.metadata.get(_KEY)
        if mark is not None:
            self.scaler = self.scaler or mark.scaler
            return Kind.SCALED if self.scaler == mark.scaler else Kind.UNKNOWN
        if not node.next_functions or node._sequence_nr() < self._oldest:
            return Kind.PLAIN
        self._left -= 1
        if self._left < 0 or self._is_scaling(node):
            return Kind.UNKNOWN
        name = node.name()
        kinds = {self.kind(below) for below, _ in node.next_functions if below is not None}
        if kinds == {Kind.PLAIN}:
            return Kind.PLAIN
        if Kind.UNKNOWN in kinds or not (name in _LINEAR or name in _SUMS):
            return Kind.UNKNOWN
        if kinds == {Kind.SCALED}:
            return Kind.SCALED
        return Kind.MIXED if name in _SUMS else Kind.UNKNOWN

    def is_scaled_by_hand(self, node: Any) -> bool:
        """`loss * scaler.get_scale()`, with a few nodes on the way."""
        for _ in range(4):
            if node is None:
                return False
            if self._is_scaling(node):
                return True
            node = node.next_functions[0][0] if node.next_functions else None
        return False

    def _is_scaling(self, node: Any) -> bool:
        # A value of a device would have to be waited for.
        return any(
            factor is None or any(abs(factor - scale) <= _NEAR * scale for scale in self._scales)
            for factor in _factors(node)
        )


def _is_product(node: Any) -> bool:
    return any(factor is None or factor > 1.0 for factor in _factors(node))


def _factors(node: Any) -> Iterator[float | None]:
    """The constant numbers that a product is made of; None for one that only a device knows."""
    if node.name() != "MulBackward0":
        return
    for name in ("_saved_other", "_saved_self"):
        try:
            factor = getattr(node, name, None)
        except RuntimeError:  # the graph was used, its saved tensors are gone
            return
        if isinstance(factor, torch.Tensor) and factor.numel() == 1 and not factor.requires_grad:
            is_plain = factor.device.type == "cpu" and type(factor) is torch.Tensor
            yield float(factor) if is_plain else None
