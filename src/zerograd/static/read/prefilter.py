"""Decides from the bytes of a file whether it has to be parsed: most files do nothing to gradients.

It saves about three quarters of the processor time of a check (1,500 files of `bench/ecosystem.txt`).
"""

from __future__ import annotations

import re
from functools import lru_cache

from zerograd.core.late_pattern import pattern

_BACKWARD = pattern(rb"backward(?:\w*\s*\(|\b(?<=\.backward))")
"""A call or a method; most other uses of "backward" are about compatibility."""
_USE = pattern(rb"step\s*\(|\.step\b|\.grad\b|scaler\s*\(|\boptim\b")
"""An optimizer that is made should step, too."""
_SCALER = pattern(rb"scaler\s*\(\s*loss|(?:Grad|Loss|Native|Apex|Amp)\w*Scaler\s*\(")
"""Callable scalers run backward and step in one call that names neither."""
_OPTIMIZER = pattern(rb"(?:opt|scaler)\w*\.step\s*\(")
"""An optimizer is stepped here, perhaps by a scaler, and filled and cleared in other files."""
_HOOK = pattern(
    rb"def[ \t]+(?:(?:on|before|after)_\w+|training_step|compute_loss|batch_end)[ \t]*\(self"
)
"""A library that calls such a method runs the backward and the step itself."""
_CALLS = (b"backward(", b"zero_grad", b".step(", b"scaler(", b"unscale_(")
_GRAD = pattern(rb"\.grad\b")
_COUNTS = pattern(rb"return\b[^\n#\"']*%[^\n#\"']*[=!]=")
"""A function returns a test of a count: `return (i + 1) % self.steps == 0`. It may say when a window closes."""

_NOT_DONE = pattern(
    rb"def\s+\w+|#[^\n]*"
    rb'|"""[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*"""'
    rb"|'''[^'\\]*(?:(?:\\.|'(?!''))[^'\\]*)*'''"
    rb'|"[^"\\\n]*(?:\\.[^"\\\n]*)*"'
    rb"|'[^'\\\n]*(?:\\.[^'\\\n]*)*'",
    re.DOTALL,
)
"""Text that does nothing when it is run: comments, strings, the names of functions."""


def worth_parsing(data: bytes, *, notebook: bool = False) -> bool:
    """Whether a file both fills or clears gradients and uses them: other files cannot break a rule.

    A file with an allow comment is parsed, too: an unused allow is reported.
    """
    # The code of a notebook is in strings.
    if _fills_and_uses(data) and (notebook or _does(data)):
        return True
    return _clips_in_hook(data) or b"zerograd: allow" in data


def _clips_in_hook(data: bytes) -> bool:
    return b"clip_grad" in data and _HOOK.search(data) is not None


@lru_cache(maxsize=32)  # asked for a file, its outline and its exports: saves 3 % of a check
def _does(data: bytes) -> bool:
    """Whether code, and not only comments and strings, fills or clears gradients and uses them."""
    return _fills_and_uses(_NOT_DONE.sub(b" ", data))


def _fills_and_uses(data: bytes) -> bool:
    if b"zero_grad" in data or (b"backward" in data and _BACKWARD.search(data)):
        return _USE.search(data) is not None
    if b"caler" in data and _SCALER.search(data) is not None:
        return True
    return b".step" in data and _OPTIMIZER.search(data) is not None


_MAKES = pattern(rb"\btorch\.optim\b(?!\.lr_sched)|\boptim\.[A-Z]")


def speaks(data: bytes) -> bool:
    """Whether an imported module may do anything to gradients, make what steps, or say when to step."""
    if any(call in data for call in _CALLS) or b"clip_grad" in data:
        return True
    if b"optim" in data and _MAKES.search(data) is not None:
        return True
    if b"%" in data and _COUNTS.search(data) is not None:
        return True
    return b".grad" in data and _GRAD.search(data) is not None
