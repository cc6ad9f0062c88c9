"""transformers: `Trainer(…, callbacks=[WatchGradients()])`.

Findings go to the log of transformers; the gradient norm that steps used, the length of windows and the
number of findings are added to what the trainer logs, so all of its loggers show them.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from typing import Any

from zerograd.core.finding import Report
from zerograd.integrations.requirement import require
from zerograd.integrations.trainer_watch import TrainerWatch

require("transformers", "4.40")
_callbacks: Any = importlib.import_module("transformers.trainer_callback")
_logging: Any = importlib.import_module("transformers.utils.logging")
_Callback: Any = _callbacks.TrainerCallback


class WatchGradients(_Callback):  # type: ignore[misc]  # the library may be missing here
    """Watches every gradient of `Trainer.train()`. With `on="raise"` the first error ends it."""

    def __init__(self, on: str = "warn", rules: Iterable[str] | None = None) -> None:
        logger = _logging.get_logger("transformers.integrations.zerograd")
        self._watch = TrainerWatch(logger.warning, on, rules)

    @property
    def report(self) -> Report:
        """What was found in the last training."""
        return self._watch.report

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begin to watch."""
        self._go_first(sys._getframe(1).f_locals.get("self"))
        steps = getattr(state, "logging_steps", 0) or args.logging_steps
        self._watch.every = max(1, int(steps))
        self._watch.stop(clean=False)  # an earlier training may have ended with an exception
        self._watch.start()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Add the scalars to what the trainer logs."""
        if logs is not None and self._watch.due:
            logs.update(self._watch.scalars())

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stop watching."""
        self._watch.stop()

    def _go_first(self, handler: Any) -> None:
        """Move before the callbacks that report, so that they see what `on_log` adds.

        A trainer puts the callbacks of its user last, and no event says which handler has called.
        """
        if isinstance(handler, _callbacks.CallbackHandler) and self in handler.callbacks:
            handler.callbacks.remove(self)
            handler.callbacks.insert(0, self)
