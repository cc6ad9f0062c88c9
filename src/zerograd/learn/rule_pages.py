"""The parts of a rule's page, and the finding of its bad example, made by running the tool."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from zerograd.core.finding import Report
from zerograd.core.rule import Page
from zerograd.learn.snippet import Snippet

PRELUDE = """\
import torch
from torch import nn

N = 4
model = nn.Linear(3, 1)
G = nn.Linear(3, 3)
D = nn.Linear(3, 1)
loss_fn = nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
opt_g = torch.optim.SGD(G.parameters(), lr=0.01)
opt_d = torch.optim.SGD(D.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu")
loader = [(torch.randn(2, 3), 10 + torch.randn(2, 1)) for _ in range(2 * N + 2)]
"""
"""The names that the examples on the pages use."""

ACCELERATED = """\
from accelerate import Accelerator

accelerator = Accelerator(gradient_accumulation_steps=N)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
"""

SHARED = """\
from contextlib import nullcontext

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

if not dist.is_initialized():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
"""

LAYOUT = re.compile(
    r"[^\n]+\.\n\n(?P<why>.+)"
    r"\n\n## Bad\n\n```python\n(?P<bad>.+?)```\n\n## Good\n\n```python\n(?P<good>.+?)```\n",
    re.DOTALL,
)
"""Summary, reasons, `## Bad`, `## Good`, and nothing else."""


def prelude(code: str) -> str:
    """The code that runs before an example."""
    if "DistributedDataParallel" in code:
        return PRELUDE + SHARED
    return PRELUDE + ACCELERATED if "accelerator" in code else PRELUDE


@dataclass(frozen=True)
class Explained:
    """The parts of a rule's page: what it says, why it matters, a bad and a good example."""

    page: Page
    why: tuple[str, ...]
    """Paragraphs, in Markdown."""
    bad: str = ""
    good: str = ""

    @cached_property
    def found(self) -> tuple[str, Report] | None:
        """The command that was run on the bad example, and its report; None if it cannot run here."""
        if self.page.only == "runtime":
            return self._run()
        if not self.bad:
            return None
        snippet = Snippet(self.bad, prelude(self.bad))
        return f"zerograd check {snippet.name}", snippet.check()

    @cached_property
    def ran(self) -> tuple[str, Report] | None:
        """The same for a run, where source shows the mistake as well; None if it does not run here."""
        return self._run() if self.page.only == "both" else None

    def _run(self) -> tuple[str, Report] | None:
        if not self.bad:
            return None
        snippet = Snippet(self.bad, prelude(self.bad))
        try:
            report = snippet.watch()
        except Exception:  # noqa: BLE001, without torch, or without ranks, there is no run to show
            return None
        own = any(one.code == self.page.code for one in report.findings)
        return (f"zerograd run {snippet.name}", report) if own else None


def explained(page: Page) -> Explained:
    """The parts of a rule's page; a page without examples is only text."""
    parts = LAYOUT.fullmatch(page.doc)
    if parts is None:
        return Explained(page, _paragraphs(page.doc.strip().partition("\n\n")[2]))
    return Explained(page, _paragraphs(parts["why"]), parts["bad"], parts["good"])


def _paragraphs(text: str) -> tuple[str, ...]:
    return tuple(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
