"""A look at the bytes of a file: whether it says enough about gradients to be parsed."""

from __future__ import annotations

import re

_BACKWARD = re.compile(rb"backward(?:\w*\s*\(|\b(?<=\.backward))")
"""A call or a method: most that is written of backward is about compatibility."""
_USE = re.compile(rb"step\s*\(|\.step\b|\.grad\b|scaler\s*\(")
_SCALER = re.compile(rb"scaler\s*\(\s*loss|(?:Grad|Loss|Native|Apex|Amp)\w*Scaler\s*\(")
"""Callable scalers run backward and step in one call that names neither."""
_SPEAKS = (b"backward(", b"zero_grad", b".step(", b"scaler(")
_GRAD = re.compile(rb"\.grad\b")

_IDLE = re.compile(
    rb"def\s+\w+|#[^\n]*"
    rb'|"""[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*"""'
    rb"|'''[^'\\]*(?:(?:\\.|'(?!''))[^'\\]*)*'''"
    rb'|"[^"\\\n]*(?:\\.[^"\\\n]*)*"'
    rb"|'[^'\\\n]*(?:\\.[^'\\\n]*)*'",
    re.DOTALL,
)
"""What names a thing and does not do it: comments, strings, the names of functions."""


def worth_parsing(data: bytes, *, notebook: bool = False) -> bool:
    """Whether a file both fills or clears gradients and uses them: less cannot break a rule.

    One that allows something is read whatever it holds: an idle allow is told.
    """
    # The code of a notebook stands in strings.
    if _fills_and_uses(data) and (notebook or _fills_and_uses(_IDLE.sub(b" ", data))):
        return True
    return b"zerograd: allow" in data


def _fills_and_uses(data: bytes) -> bool:
    if b"zero_grad" in data or (b"backward" in data and _BACKWARD.search(data)):
        return _USE.search(data) is not None
    return b"caler" in data and _SCALER.search(data) is not None


def speaks(data: bytes) -> bool:
    """Whether a module that is imported has a word for anything that is done to gradients."""
    if any(word in data for word in _SPEAKS):
        return True
    return b".grad" in data and _GRAD.search(data) is not None
