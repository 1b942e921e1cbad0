"""`amplint run`: the third observer, which watches whole trainings while they happen.

In the user's process only `watching`, `record`, `catalogue` and `amplint.runtime` are loaded, and
nothing but torch and the standard library. What reads the records needs no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amplint.live.watching import Watch


def watch(
    folder: str | None = None, *, quiet: bool = False, stop_on: str = "", sample: int = 0
) -> Watch:
    """Watch this process from now on; needs torch.

    Optimizers and scalers that exist already are followed, too; what their gradients hold is
    unknown until they are cleared. Under `amplint run`, and at a second call, nothing changes.

    Args:
        folder: of the record; a new one below `amplint-runs` unless given.
        quiet: say nothing before the end.
        stop_on: "error", "warning" or "info": raise `amplint.runtime.sink.Misuse`, a
            `RuntimeError`, at a finding of this level or above.
        sample: look closely at one step in so many; 0 for none.

    Returns: the watch; its `close()`, or leaving it as a context manager, takes everything back.
    """
    import os
    import time

    from amplint.live.watching import Options, begin

    name = os.path.join("amplint-runs", f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}")
    return begin(
        Options(os.path.abspath(folder or name), quiet, stop_on=stop_on, sample=sample), late=True
    )
