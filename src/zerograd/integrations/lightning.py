"""Lightning: `Trainer(callbacks=[WatchGradients()])`.

Findings go to Lightning's log; the gradient norm that steps used, the length of windows and the number
of findings go to the loggers of the trainer, every `log_every_n_steps` steps.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterable
from typing import Any

from zerograd.core.finding import Report
from zerograd.integrations.requirement import first_of
from zerograd.integrations.trainer_watch import TrainerWatch
from zerograd.runtime.tracebacks import tidy

_HOMES = {"lightning": "lightning.pytorch", "pytorch-lightning": "pytorch_lightning"}
_HOME = _HOMES[first_of(dict.fromkeys(_HOMES, "2.0"))]
_Callback: Any = importlib.import_module(_HOME).Callback


class WatchGradients(_Callback):  # type: ignore[misc]  # the library may be missing here
    """Watches every gradient of a fit. With `on="raise"` the first error ends the fit."""

    def __init__(self, on: str = "warn", rules: Iterable[str] | None = None) -> None:
        super().__init__()
        self._watch = TrainerWatch(logging.getLogger(_HOME).warning, on, rules)

    @property
    def report(self) -> Report:
        """What was found in the last fit."""
        return self._watch.report

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin to watch."""
        self._watch.every = max(1, trainer.log_every_n_steps)
        self._watch.start()

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Log the scalars of a step."""
        if self._watch.due and trainer.loggers:
            scalars = self._watch.scalars()
            for logger in trainer.loggers:
                logger.log_metrics(scalars, step=trainer.global_step)

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Stop watching."""
        self._watch.stop()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Stop watching, because the fit has failed; its traceback is the user's."""
        tidy(exception)
        self._watch.stop(clean=False)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Stop watching, however the fit has ended."""
        self._watch.stop(clean=False)
