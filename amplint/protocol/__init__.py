"""The GradScaler protocol as data: states, events, transitions, violations.

Everything that amplint knows about the order in which a scaler, its optimizers and
their gradients may be used stands here once. The static engine, the probe and the
live monitor all look at this one machine. Pure Python: neither torch nor libcst.
"""

from __future__ import annotations

from amplint.protocol.machine import Machine, advance
from amplint.protocol.states import Event, Gradient, Pair, Stage
from amplint.protocol.violations import VIOLATIONS, Violation

__all__ = [
    "VIOLATIONS",
    "Event",
    "Gradient",
    "Machine",
    "Pair",
    "Stage",
    "Violation",
    "advance",
]
