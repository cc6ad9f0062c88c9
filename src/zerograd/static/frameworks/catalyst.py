"""Catalyst: its runner calls `handle_batch`, and the methods of callbacks, once for every batch."""

from __future__ import annotations

from zerograd.static.frameworks.table import Framework

TABLE = Framework(
    packages=["catalyst"],
    driven=["handle_batch", "_handle_batch", "on_batch_start", "on_batch_end"],
)
