"""The GradScaler protocol as data: states, events, transitions, violations.

Everything that amplint knows about the order in which a scaler, its optimizers and
their gradients may be used stands here once, as a table, and so does its one runner: the
probe and the live monitor tell a `Tracker` what happens, and the static engine asks the table
about abstract states. Pure Python: neither torch nor libcst.
"""

from __future__ import annotations

from amplint.protocol.states import Event, Gradient, Pair, Stage
from amplint.protocol.table import advance
from amplint.protocol.tracker import Tracker
from amplint.protocol.violations import VIOLATIONS, Violation

__all__ = [
    "VIOLATIONS",
    "Event",
    "Gradient",
    "Pair",
    "Stage",
    "Tracker",
    "Violation",
    "advance",
]
