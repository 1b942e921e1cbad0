"""At which initial loss scale it shows that gradients depend on the scale."""

from __future__ import annotations

import math
from dataclasses import replace

from amplint.probe.measurements import Difference, difference
from amplint.probe.messages import Request, RunResult
from amplint.probe.search import Budget, Trial

#: Initial scales of the metamorphic test: a run is compared at the first of them with itself
#: at its own scale, and at the second. A small one, because what is added without being scaled
#: vanishes beside a large scale; and a large one, because a threshold may not be reached by
#: small gradients.
SMALL_SCALE, LARGE_SCALE = 2.0, 16384.0
#: The largest initial scale that is tried, where a limit is far above invented gradients: a
#: scale that trainings with small gradients do grow to.
LARGEST_SCALE = 2.0**22
#: Scales that are tried between the largest one at which all steps are made, and one at which
#: float16 overflows.
HALVINGS = 3


class Scales:
    """Runs of one finding that differ in the initial scale alone.

    Args:
        budget: for these runs.
    """

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        #: The scale at which gradients have differed before: the first to be tried again.
        self._scale: float | None = None

    def differing(self, trial: Trial) -> tuple[Request, RunResult, Difference] | None:
        """The first run at a larger scale whose gradients differ, what it gave, and the norms.

        A limit may be so large that it shows only shortly below the scale at which float16
        overflows, and every step is skipped.
        """
        reference = self._budget.run(replace(trial.request, init_scale=SMALL_SCALE))
        low, high = SMALL_SCALE, 0.0
        pending = [trial.request.init_scale, LARGE_SCALE, LARGEST_SCALE]
        if self._scale is not None:
            larger = replace(trial.request, init_scale=self._scale)
            result = self._budget.run(larger)
            found = difference(reference, result)
            if found is not None:
                return larger, result, found
        for _ in range(len(pending) + HALVINGS):
            scale = pending.pop(0) if pending else 2.0 ** (math.log2(low * high) // 2)
            larger = replace(trial.request, init_scale=scale)
            result = self._budget.run(larger)
            found = difference(reference, result)
            if found is not None:
                self._scale = scale
                return larger, result, found
            if len(result.steps) < len(reference.steps):
                high, pending = scale, []
            else:
                low = scale
            if not pending and low * 2.0 >= high:
                return None
        return None
