"""Opacus: it collects the gradients of every sample before the step."""

from __future__ import annotations

from zerograd.static.frameworks.table import Framework

TABLE = Framework(packages=["opacus"])
