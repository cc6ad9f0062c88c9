"""Catalyst: its runner calls `handle_batch` once for every batch."""

from __future__ import annotations

from zerograd.static.frameworks.table import Framework

TABLE = Framework(packages=["catalyst"], driven=["handle_batch", "_handle_batch"])
