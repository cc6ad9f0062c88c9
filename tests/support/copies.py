"""A copy of the package, to which a test adds what a contributor would add."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from support.paths import ROOT


def extended(folder: Path, files: Mapping[str, str], lines: Mapping[str, tuple[str, str]]) -> Path:
    """A copy in a folder, with new files, and with one new line after a line of some modules.

    Compiled modules are copied, too: they are valid, because the copies have the times of the originals.
    """
    copied = folder / "zerograd"
    shutil.copytree(ROOT / "src" / "zerograd", copied)
    for name, text in files.items():
        assert not (copied / name).exists()
        (copied / name).write_text(text, encoding="utf-8")
    for name, (after, new) in lines.items():
        text = (copied / name).read_text(encoding="utf-8")
        assert text.count(f"{after}\n") == 1
        text = text.replace(f"{after}\n", f"{after}\n{new}\n")
        (copied / name).write_text(text, encoding="utf-8")
    return folder
