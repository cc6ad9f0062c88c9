"""A fix as a diff of the lines that it changes."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence

from zerograd.core.finding import Edit, Fix, SourceKey, source_key
from zerograd.report.location import visible


def fix_diff(fix: Fix, sources: Mapping[SourceKey, Sequence[str]]) -> Iterator[str]:
    """The edits as a diff of the lines that they change."""
    files: dict[SourceKey, list[Edit]] = {}
    for edit in fix.edits:
        files.setdefault(source_key(edit), []).append(edit)
    for key, edits in files.items():
        name = visible(key if isinstance(key, str) else f"{key.path} (cell {key.number})")
        before = [f"{line}\n" for line in sources.get(key, ())]
        diff = difflib.unified_diff(before, _edited(before, edits), name, name, n=1)
        yield from (line.rstrip("\n") for line in diff)


def _edited(lines: Sequence[str], edits: Sequence[Edit]) -> list[str]:
    """The lines with all edits applied, the last one first."""
    text = "".join(lines)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    for edit in sorted(edits, key=lambda one: (one.line, one.column), reverse=True):
        begin = starts[min(edit.line, len(starts)) - 1] + edit.column - 1
        end = starts[min(edit.end_line, len(starts)) - 1] + edit.end_column - 1
        text = text[:begin] + edit.text + text[end:]
    return text.splitlines(keepends=True)
