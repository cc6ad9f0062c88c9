"""`zerograd enable` makes every Python of an environment import this module at its start, if ZEROGRAD is set.

It waits for the import of torch. A process that never imports torch loads nothing else of zerograd.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

VARIABLE = "ZEROGRAD"
_BEGUN: list[str] = []
MODES = ("warn", "raise", "collect", "off")


class TorchImport:
    """Comes first among the import finders, and acts on the import of torch only."""

    zerograd = True
    """`zerograd run` removes it: nothing is watched twice."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find torch, and watch from the end of its import."""
        if name != "torch":
            return None
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        try:
            from zerograd.launch.child import begin

            finder = begin(os.environ.get(VARIABLE, ""))
        except Exception as error:  # noqa: BLE001  # a fault of ours never costs a program
            sys.stderr.write(f"zerograd: {sys.argv[0]} is not watched: {error!r}\n")
            return None
        return finder.find_spec(name, path, target)


def begin() -> None:
    """Watch this process if the environment asks for it; `zerograd run` watches its own processes."""
    mode = os.environ.get(VARIABLE, "")
    # Python reads the file twice where two names lead to one directory.
    if mode in ("", "off") or os.environ.get("ZEROGRAD_RUN") or _BEGUN:
        return
    _BEGUN.append(mode)
    if mode in MODES:
        sys.meta_path.insert(0, TorchImport())
        return
    known = ", ".join(MODES)
    sys.stderr.write(f"zerograd: {VARIABLE}={mode} is not one of {known}; nothing is watched\n")
