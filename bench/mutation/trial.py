"""Runs a training script in this process, and returns its weights or its failure.

A script puts its weights into the name `result`. Frameworks that are not installed have stand-ins in
`standins/`, with the same effect on gradients as the real ones on one process.
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
"""The time limit in seconds. Correct scripts take less than one."""

BROKEN = (NameError, TypeError, ValueError, LookupError, SyntaxError)
"""Errors that mean that the edit broke the code itself, not its gradients."""


@dataclass(frozen=True)
class Trial:
    """The result of a run."""

    weights: str = ""
    """A digest of every bit of the result; empty if the run failed."""
    error: str = ""
    nonsense: bool = False
    """The failure has nothing to do with gradients."""
    watched: tuple[str, ...] = ()
    """The codes that a watch found, if one was requested."""

    def same(self, other: Trial) -> bool:
        return self.weights == other.weights and not self.error and not other.error


class Endless(RuntimeError):
    """The script runs too long."""


def prepare() -> None:
    """Prepare a process: torch on one thread, and the stand-ins."""
    import torch
    import torch._dynamo  # the first optimizer imports it, which a time limit must not interrupt

    torch.set_num_threads(1)
    if str(STANDINS) not in sys.path:
        sys.path.insert(0, str(STANDINS))
    if hasattr(signal, "SIGALRM"):
        signal.signal(signal.SIGALRM, _too_long)


def run(text: str, path: Path, *, watch: bool = False) -> Trial:
    """Run the text of a script under its file name."""
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
    """Run without output and warnings, with a time limit."""
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
        # 0.0 and -0.0 are the same number.
        digest.update((tensor.detach() + 0.0).contiguous().numpy().tobytes())
    return digest.hexdigest()
