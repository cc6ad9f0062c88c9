"""The static half has no torch: there, a test that imports torch or runs a program under it is skipped."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType, ModuleType

import pytest

TESTS = Path(__file__).resolve().parents[1]
INSTALLED = importlib.util.find_spec("torch") is not None


def skip() -> None:
    """Skip the test, or the module of tests, that needs torch."""
    if not INSTALLED:
        pytest.skip("torch is not installed", allow_module_level=True)


def skip_what_imports_it() -> None:
    """Let an `import torch` in a test skip it. One in zerograd fails as it does for users."""
    if not INSTALLED:
        sys.meta_path.insert(0, _Finder())


class _Finder:
    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> None:
        if name.partition(".")[0] == "torch" and _importer() is not None:
            skip()


def _importer() -> FrameType | None:
    """The frame of a test that imports, if a test does."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and (frame.f_code.co_filename == __file__ or "importlib" in frame.f_code.co_filename):  # fmt: skip
        frame = frame.f_back
    inside = frame is not None and Path(frame.f_code.co_filename).is_relative_to(TESTS)
    return frame if inside else None
