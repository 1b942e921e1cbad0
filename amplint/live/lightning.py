"""A callback for Lightning's Trainer: the same as `watch()`, while `fit` runs.

trainer = lightning.Trainer(callbacks=[amplint.live.lightning.Watching(sample=50)], ...)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplint.live import watch

if TYPE_CHECKING:
    from amplint.live.watching import Watch

try:
    from lightning.pytorch import Callback
except ImportError:  # the package under its older name
    from pytorch_lightning import Callback  # type: ignore[assignment]


class Watching(Callback):
    """Watches each `fit`, unless somebody watches this process already.

    Args:
        options: those of `amplint.live.watch`.
    """

    def __init__(self, **options: Any) -> None:
        self._options = options
        self._watch: Watch | None = None

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Before optimizers and strategy are set up, in each process."""
        from amplint.live.watching import is_watched

        if stage == "fit" and not is_watched():
            self._watch = watch(**self._options)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Also where `fit` has raised."""
        if self._watch is not None:
            self._watch.close()
        self._watch = None
