"""NVIDIA apex: `amp.initialize` wraps, `amp.scale_loss` scales."""

from __future__ import annotations

from zerograd.static.frameworks.table import Context, ContextEffect, Framework

TABLE = Framework(
    packages=["apex"],
    contexts=[Context("scale_loss", ContextEffect.SCALES_LOSS)],
    wrappers="initialize",
    mentions=["scale_loss"],
)
