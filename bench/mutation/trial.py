"""A training script run in this process: what it has learned, or how it failed.

A script leaves its weights under the name `result`. Frameworks that are not installed here have
stand-ins in `standins/`, which do on one process what the real ones do to gradients.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import signal
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

STANDINS = Path(__file__).parent / "standins"
LONGEST = 20
"""Seconds after which a script, of which the right ones take less than one, will not end."""

BROKEN = (NameError, TypeError, ValueError, LookupError, SyntaxError)
"""Errors that say that the edit has broken the code, not what it does to gradients."""


@dataclass(frozen=True)
class Trial:
    """What a run came to."""

    weights: str = ""
    """A digest of every bit of the result; nothing if it failed."""
    error: str = ""
    nonsense: bool = False
    """The failure has nothing to do with gradients."""
    watched: tuple[str, ...] = ()
    """The codes of what a watch found, where one was asked for."""

    def same(self, other: Trial) -> bool:
        return self.weights == other.weights and not self.error and not other.error


class Endless(RuntimeError):
    """The script does not come to its end."""


def prepare() -> None:
    """Once per process: torch on one thread, and the stand-ins."""
    import torch

    torch.set_num_threads(1)
    if str(STANDINS) not in sys.path:
        sys.path.insert(0, str(STANDINS))
    if hasattr(signal, "SIGALRM"):
        signal.signal(signal.SIGALRM, _too_long)


def run(text: str, path: Path, *, watch: bool = False) -> Trial:
    """Run a script's text as if it stood in its file."""
    import zerograd

    codes: tuple[str, ...] = ()
    try:
        code = compile(text, str(path), "exec", dont_inherit=True)
        with _quietly():
            if watch:
                with zerograd.watch(on="collect") as report:
                    names = _execute(code, path)
                codes = tuple(sorted({finding.code for finding in report.findings}))
                codes += tuple("error" for _ in report.errors)
            else:
                names = _execute(code, path)
    except Exception as error:  # noqa: BLE001 - a failure is a result
        return Trial(error=f"{type(error).__name__}: {error}", nonsense=isinstance(error, BROKEN))
    return Trial(_digest(names["result"]), watched=codes)


def _execute(code: Any, path: Path) -> dict[str, Any]:
    import torch

    names: dict[str, Any] = {"__name__": "__main__", "__file__": str(path)}
    with torch.enable_grad():
        exec(code, names)
    return names


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Without its output and warnings, and not for ever."""
    if hasattr(signal, "SIGALRM"):
        signal.alarm(LONGEST)
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        if hasattr(signal, "SIGALRM"):
            signal.alarm(0)


def _too_long(number: int, frame: FrameType | None) -> None:
    raise Endless(f"still running after {LONGEST} s")


def _digest(result: Any) -> str:
    digest = hashlib.sha256()
    for tensor in result:
        # 0.0 and -0.0 are one number.
        digest.update((tensor.detach() + 0.0).contiguous().numpy().tobytes())
    return digest.hexdigest()
