"""A callback for transformers' Trainer: the same as `watch()`, while `train` runs.

trainer = transformers.Trainer(model, args, callbacks=[amplint.live.transformers.Watching()])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from amplint.live import watch

if TYPE_CHECKING:
    from amplint.live.watching import Watch


class Watching(TrainerCallback):  # type: ignore[misc]
    """Watches each `train`, unless somebody watches this process already.

    A `train` that raises tells no callback: its watch ends with the process.

    Args:
        options: those of `amplint.live.watch`.
    """

    def __init__(self, **options: Any) -> None:
        self._options = options
        self._watch: Watch | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Optimizer and scaler are made by now, and have not been used."""
        from amplint.live.watching import is_watched

        if not is_watched():
            self._watch = watch(**self._options)

    def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """The last step was made."""
        if self._watch is not None:
            self._watch.close()
        self._watch = None
