"""One autocast: its device, dtype and switch, as far as code shows them, and where these count."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field

from amplint.amp.dtypes import DType
from amplint.amp.machine import ON_A_GPU
from amplint.code.module import Function
from amplint.findings import Standing
from amplint.values.assumptions import NO_ANSWERS, possible_at
from amplint.values.provenance import Condition
from amplint.values.values import Possible, Value, Values

Constants = frozenset[object] | None
GPU: frozenset[object] = frozenset(("cuda",))
CPU: frozenset[object] = frozenset(("cpu",))


@dataclass(frozen=True, slots=True)
class There:
    """Where a constant counts.

    Args:
        given: tests that hold there.
        answers: what the machine says there.
    """

    given: tuple[Condition, ...] = ()
    answers: Mapping[str, bool] = field(default_factory=dict)

    @classmethod
    def where_on(cls, switch: tuple[ast.expr, Function] | None, devices: Constants) -> There:
        """Where an autocast for these devices is switched on."""
        given = () if switch is None else (Condition(switch[0], True, switch[1]),)
        return cls(given, ON_A_GPU if devices == GPU else NO_ANSWERS)

    def possible(self, values: Values, expression: ast.expr, function: Function) -> Possible:
        """The constants that an expression may be there."""
        return possible_at(values, expression, function, given=self.given, answers=self.answers)


ANYWHERE = There()


@dataclass(frozen=True, slots=True, eq=False)
class Cast:
    """One autocast that an expression can stand for.

    Args:
        call: the expression that builds it.
        function: where that is.
        devices: device types that it may have; None if not known.
        dtypes: names of dtypes that it may have ("float16"); None if not known.
        enabled: whether it is on; None where that is decided at run time.
        condition: what decides, as source text; "" where nothing does or it is not known.
        caches: whether cast weights are kept until the outermost region ends.
        kept: the object is built once, and entered again by each use.
        usual: names of dtypes that it has, on a GPU if it may be for one, unless somebody chooses
            otherwise; None if not known.
        chosen_by: what chooses the dtype, as source text; "" where nobody has a choice.
        dtype: the argument that is the dtype, and where it is evaluated; None where there is none.
        switch: the argument that switches it on, likewise.
        standing: how it is known that it is an autocast.
        is_torchs: torch's own class computes in it, so that its arguments say in what.
    """

    call: ast.expr
    function: Function
    devices: Constants = None
    dtypes: Constants = None
    enabled: bool | None = True
    condition: str = ""
    caches: bool = True
    kept: bool = False
    usual: Constants = None
    chosen_by: str = ""
    standing: Standing = Standing.CODE
    dtype: tuple[ast.expr, Function] | None = None
    switch: tuple[ast.expr, Function] | None = None
    is_torchs: bool = False

    def may_be_float16(self, values: Values) -> bool:
        """Whether it may compute in float16 on a GPU, by what is known of its dtype."""
        if not self.is_torchs or self.enabled is False:
            return False
        if self.dtype is None:  # float16 on GPUs, bfloat16 on the CPU
            return self.devices != CPU
        return bool(self.float16_by(values))

    def float16_by(self, values: Values) -> list[Value]:
        """The values of the dtype that it is given which are float16 where it is on, the firmest first."""
        if self.dtype is None:
            return []
        there = There.where_on(self.switch, self.devices)
        halves = there.possible(values, *self.dtype).with_dtype("float16")
        return sorted(
            (value for value in halves if isinstance(value.content, DType)),
            key=lambda value: -value.firmness,
        )
