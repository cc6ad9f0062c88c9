"""Clears gradients by hand."""

from __future__ import annotations

from typing import Any


def none_by_hand(model: Any) -> None:
    for param in model.parameters():
        param.grad = None


def zeros_by_hand(model: Any) -> None:
    for param in model.parameters():
        if param.grad is not None:
            param.grad.zero_()
