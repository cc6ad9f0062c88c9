"""Finds files without gradient code of their own that call a step of another file in a loop.

A file is read again only if it imports a name that leads to a step. Its outline decides whether it calls
such a name in a loop.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from zerograd.static.check_file import FileResult
from zerograd.static.read.outline import FARTHEST, Outline, Outlines, outline_of


def drivers(results: Mapping[str, FileResult]) -> list[str]:
    """The paths of files that were not parsed, and lead from a loop to a step of another file."""
    silent = {path: result.unparsed for path, result in results.items() if result.unparsed}
    names: set[bytes] = set()
    leading: set[str] = set()
    for path, result in results.items():
        if result.exports:
            leading.add(os.path.abspath(path))
            names |= {_stem(path), *result.exports}
    found: dict[str, Outline] = {}
    for _ in range(FARTHEST):
        # A file that imports a leading name may lead on: a package, a class that inherits.
        if not names:
            break
        fresh = [path for path, lines in silent.items() if not names.isdisjoint(_words(lines))]
        leads: dict[str, list[bytes]] = {}
        for path in fresh:
            del silent[path]
            outline = outline_of(os.path.abspath(path))
            if outline is not None:
                found[path] = outline
                only = leading | {outline.path}
                leads[path] = Outlines(FARTHEST, only).exports(outline)
        leading = leading | {found[path].path for path, names in leads.items() if names}
        names = {name for path, names in leads.items() if names for name in (_stem(path), *names)}
    outlines = Outlines(FARTHEST, leading)
    return [path for path, outline in found.items() if outlines.leads_to_a_step(outline)]


_words = re.compile(rb"\w+").findall


def _stem(path: str) -> bytes:
    """The name by which a file is imported."""
    folder, name = os.path.split(os.path.abspath(path))
    stem = name.removesuffix(".py")
    return os.fsencode(os.path.basename(folder) if stem == "__init__" else stem)
