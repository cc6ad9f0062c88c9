"""A baseline: the findings that were there when a project began to use zerograd.

A known finding is recognised by its rule, its file, its function and the text of its lines, never by a
line number. Equal ones are counted, so that one more of them is new.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from zerograd.check.function_texts import Files, enclosing
from zerograd.check.settings import relative_to
from zerograd.core.finding import Finding
from zerograd.core.usage_error import UsageError

VERSION = 1


class Known(NamedTuple):
    """What identifies a finding."""

    rule: str
    path: str
    """Relative to the directory of the baseline."""
    function: str
    lines: tuple[str, ...]


class Baseline:
    """The known findings that no finding of this check has matched yet."""

    def __init__(self, path: str, left: Counter[Known] | None = None) -> None:
        self._path = path
        self._root = _root(path)
        self._left = _load(path) if left is None else left

    def copy(self) -> Baseline:
        """One that matches on its own."""
        return Baseline(self._path, self._left.copy())

    def take(self, finding: Finding, files: Files) -> bool:
        """Whether a finding is known; a known finding matches once."""
        known = identity(finding, self._root, files)
        if not self._left[known]:
            return False
        self._left[known] -= 1
        return True


def identity(finding: Finding, root: str, files: Files) -> Known:
    """What identifies a finding when the lines above it move."""
    path = relative_to(finding.site.path, root)
    function = enclosing(files.lines(finding.site), finding.site.line).name
    marked = []
    for site in (finding.site, *(note.site for note in finding.notes)):
        lines = files.lines(site)
        if 1 <= site.line <= len(lines):
            marked.append(lines[site.line - 1].strip())
    return Known(finding.code, path, function, tuple(marked))


def write(path: str, findings: Iterable[Finding], files: Files) -> None:
    """Write a baseline that knows these findings."""
    import json

    counts = Counter(identity(finding, _root(path), files) for finding in findings)
    known = [{**one._asdict(), "count": count} for one, count in sorted(counts.items())]
    text = json.dumps({"version": VERSION, "findings": known}, indent=2) + "\n"
    try:
        with open(path, "w", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(text)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None


def _root(path: str) -> str:
    return os.path.dirname(os.path.abspath(path))


def _load(path: str) -> Counter[Known]:
    import json

    command = f"zerograd check --write-baseline {path}"
    again = f"write it again: {command}"
    try:
        with open(path, encoding="utf-8") as stream:
            data = json.load(stream)
    except FileNotFoundError:
        raise UsageError(f"there is no baseline {path}; write it: {command}") from None
    except OSError as error:
        raise UsageError(f"the baseline {path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not a baseline ({error}); {again}") from None
    version = data.get("version") if isinstance(data, dict) else None
    if version != VERSION:
        reason = f"it has version {version!r}, this zerograd reads version {VERSION}"
        raise UsageError(f"the baseline {path} cannot be used: {reason}; {again}")
    try:
        return Counter(dict(map(_entry, data["findings"])))
    except (KeyError, TypeError, ValueError):
        raise UsageError(f"{path} is not a baseline (its findings are broken); {again}") from None


def _entry(entry: dict[str, object]) -> tuple[Known, int]:
    rule, path, function = (entry[name] for name in ("rule", "path", "function"))
    lines, count = entry["lines"], entry["count"]
    texts = isinstance(rule, str) and isinstance(path, str) and isinstance(function, str)
    if not (texts and isinstance(lines, list) and isinstance(count, int)):
        raise TypeError
    return Known(str(rule), str(path), str(function), tuple(map(str, lines))), count
