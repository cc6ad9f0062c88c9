"""Libraries that only wrap: what they are handed comes back, and is used as before."""

from __future__ import annotations

from zerograd.static.frameworks.table import Framework

TABLE = Framework(
    wrappers="watch"  # wandb
    "|optimize"  # intel_extension_for_pytorch
)
