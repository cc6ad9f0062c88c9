"""Writes files that are complete at every moment."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import BinaryIO


@contextlib.contextmanager
def atomic_write(path: str) -> Iterator[BinaryIO]:
    """A stream whose contents take the place of a file when all is written; not if that fails."""
    fresh = f"{path}.{os.getpid()}.tmp"
    try:
        with open(fresh, "wb") as stream:
            yield stream
        os.replace(fresh, path)
    finally:
        with contextlib.suppress(OSError):
            os.remove(fresh)
