"""PyTorch-Ignite: its engine calls the function that it is handed once for every batch."""

from __future__ import annotations

from zerograd.static.frameworks.table import Framework

TABLE = Framework(packages=["ignite"], drivers=["Engine", "DeterministicEngine"])
