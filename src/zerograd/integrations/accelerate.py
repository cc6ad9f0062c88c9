"""accelerate: `with watch_gradients(accelerator) as report:` around the training loop.

Findings go to the log of accelerate; the gradient norm that steps used, the length of windows and the
number of findings go to the trackers of the accelerator.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from zerograd.core.finding import Report
from zerograd.integrations.requirement import require
from zerograd.integrations.trainer_watch import TrainerWatch
from zerograd.runtime.tracebacks import tidy

require("accelerate", "0.30")
_logging: Any = importlib.import_module("accelerate.logging")


@contextmanager
def watch_gradients(
    accelerator: Any, on: str = "warn", rules: Iterable[str] | None = None, *, every: int = 10
) -> Iterator[Report]:
    """Watch every gradient in the block, and log to the trackers every so many optimizer steps.

    With `on="raise"` the first error ends the block.
    """
    logger = _logging.get_logger("accelerate.zerograd")

    def warn(message: str) -> None:
        logger.warning(message, main_process_only=False)

    watch = TrainerWatch(warn, on, rules, lambda scalars, step: accelerator.log(scalars, step=step))
    watch.every = every
    report = watch.start()
    try:
        yield report
    except BaseException as error:
        tidy(error)
        watch.stop(clean=False)
        raise
    watch.stop()
