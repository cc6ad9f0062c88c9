"""What the integrations of trainers share: a watch, and the scalars that go to the trainer's loggers."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from zerograd.core.finding import Finding, Report
from zerograd.core.help_text import helped
from zerograd.report import concise
from zerograd.runtime.gradient_values import holding, plain
from zerograd.runtime.norms import gradient_norm
from zerograd.runtime.patches import load_torch
from zerograd.runtime.watch import Watch

NORM = "zerograd/gradient_norm"
"""The norm of the gradients that the last step used: after clipping and unscaling."""
WINDOW = "zerograd/window"
"""The mean number of backward calls per step, since the last time."""
FINDINGS = "zerograd/findings"
"""How many findings there are so far."""


class TrainerWatch:
    """A watch whose findings are handed to a trainer's logger, and that measures every so many steps."""

    def __init__(
        self,
        warn: Callable[[str], None],
        on: str,
        rules: Iterable[str] | None,
        log: Callable[[dict[str, float], int], object] | None = None,
    ) -> None:
        """`log`, if given, gets the scalars at once, with the number of the step."""
        self.every = 1
        """How many steps there are between two measurements."""
        self.steps = 0
        """How many optimizer steps there were."""
        self._warn = warn
        self._log = log
        self._watch = Watch(on, rules, on_finding=self._found)
        self._measured_at = 0
        self._norms: dict[int, Any] = {}
        """By the number of an optimizer: a norm that is still on its device."""
        self._optimizers: dict[int, int] = {}
        """Their numbers, by identity."""
        self._windows: Counter[int] = Counter()
        self._unhook: Callable[[], object] | None = None

    @property
    def report(self) -> Report:
        """What was found so far."""
        return self._watch.report

    def start(self) -> Report:
        """Begin to watch. A second call does nothing."""
        if self._unhook is None:
            load_torch()
            hooks = importlib.import_module("torch.optim.optimizer")
            self.steps = self._measured_at = 0
            self._windows = Counter()
            self._unhook = hooks.register_optimizer_step_post_hook(self._stepped).remove
            self._watch.start()
        return self.report

    def stop(self, *, clean: bool = True) -> Report:
        """Stop watching. A second call does nothing."""
        if self._unhook is not None:
            self._unhook()
            self._unhook = None
            self._watch.stop(clean=clean)
        return self.report

    @property
    def due(self) -> bool:
        """Whether something was measured since the last call of `scalars`."""
        return bool(self._norms)

    def scalars(self) -> dict[str, float]:
        """What was measured since the last time; the norm is missing if no step was measured."""
        values = {
            NORM if number == 1 else f"{NORM}_{number}": float(norm)
            for number, norm in sorted(self._norms.items())
        }
        self._norms.clear()
        self._measured_at = self.steps
        windows: Counter[int] = Counter()
        for glance in self._watch.glance():
            windows.update(glance.windows)
        fresh = windows - self._windows
        self._windows = windows
        if fresh:
            values[WINDOW] = sum(n * times for n, times in fresh.items()) / fresh.total()
        values[FINDINGS] = float(len(self.report.findings))
        return values

    def _stepped(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """An optimizer has taken a step. It leaves the gradients that it has used."""
        self.steps += 1
        number = self._optimizers.setdefault(id(optimizer), len(self._optimizers) + 1)
        if self.steps - self._measured_at >= self.every:
            params = [param for group in optimizer.param_groups for param in group["params"]]
            grads = [plain(one.grad) for one in holding(params) if one.grad is not None]
            self._norms[number] = gradient_norm(load_torch(), grads)
            if self._log is not None:
                self._log(self.scalars(), self.steps)

    def _found(self, finding: Finding) -> None:
        if finding.seen == 1:
            line = concise.render(Report([finding])).rstrip("\n")
            advice = helped(finding, self.report.sources)
            self._warn(f"zerograd: {line}{f' ({advice})' if advice else ''}")
