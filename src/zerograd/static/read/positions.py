"""Positions as the user sees them: columns in characters, paths as given, lines of notebook cells.

The syntax tree counts columns in bytes of UTF-8, and a notebook's lines through all its cells.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from zerograd.core.events import Site
from zerograd.core.finding import Edit, Finding, Note
from zerograd.core.records import replace
from zerograd.core.training_loop import Account, Mention, TrainingLoop
from zerograd.static.read.load import read
from zerograd.static.read.source import Source, Unreadable


class PositionMap:
    """Changes the positions in one file's findings to those that the user sees."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._lines: dict[str, list[str] | None] = {}

    def as_seen(self, finding: Finding) -> Finding:
        """The finding with columns and paths as the user sees them."""
        return _moved(finding, self._site)

    def loop_as_seen(self, loop: TrainingLoop) -> TrainingLoop:
        """The training loop with columns, paths and cells as the user sees them."""
        source = self._source

        def placed(site: Site) -> Site:
            site = self._site(site)
            return site if source.cells is None else _in_cell(site, source)

        return moved_loop(loop, placed)

    def _site(self, site: Site) -> Site:
        path = self._path(site.path)
        lines = self._lines_of(site.path)
        if lines is None:
            return site if path == site.path else replace(site, path=path)
        return replace(
            site,
            path=path,
            column=_characters(lines, site.line, site.column),
            end_column=_characters(lines, site.end_line, site.end_column),
        )

    def _path(self, path: str) -> str:
        """The path of another file of the project, relative if the user gave a relative path."""
        if not os.path.isabs(path) or os.path.isabs(self._source.path):
            return path
        relative = os.path.relpath(path)
        outside = relative.startswith(os.pardir)
        return path if outside and not self._source.path.startswith(os.pardir) else relative

    def _lines_of(self, path: str) -> list[str] | None:
        """The lines of a file; None where bytes and characters are the same."""
        if path not in self._lines:
            try:
                source = self._source if path == self._source.path else read(path)
            except Unreadable:
                self._lines[path] = None
            else:
                self._lines[path] = None if source.text.isascii() else source.lines
        return self._lines[path]


def _characters(lines: list[str], line: int, column: int) -> int:
    if not 1 <= line <= len(lines):
        return column
    before = lines[line - 1].encode("utf-8", "surrogatepass")[: column - 1]
    return len(before.decode("utf-8", "ignore")) + 1


def in_cell(finding: Finding, source: Source) -> Finding:
    """The finding with positions in this notebook as a cell and a line of the cell."""
    return _moved(finding, lambda site: _in_cell(site, source))


def _in_cell(site: Site, source: Source) -> Site:
    if site.path != source.path:
        return site
    cell, line = source.place(site.line)
    last = source.place(site.end_line)[1] if site.end_line else 0
    return replace(site, cell=cell, line=line, end_line=last)


def edit_in_cell(edit: Edit, source: Source) -> Edit:
    """An edit with its position as a cell and lines of the cell."""
    cell, line = source.place(edit.line)
    return replace(edit, cell=cell, line=line, end_line=edit.end_line - edit.line + line)


def in_text(finding: Finding, source: Source) -> Finding:
    """The opposite of `in_cell`: positions in this notebook as lines of the whole text."""
    starts = {cell.number: cell.start for cell in source.cells or ()}

    def placed(site: Site) -> Site:
        if site.path != source.path or site.cell is None:
            return site
        more = starts[site.cell] - 1
        last = site.end_line + more if site.end_line else 0
        return replace(site, cell=None, line=site.line + more, end_line=last)

    return _moved(finding, placed)


def moved_loop(loop: TrainingLoop, move: Callable[[Site], Site]) -> TrainingLoop:
    """The training loop with all its places moved."""
    return replace(
        loop,
        site=move(loop.site),
        steps=tuple(replace(step, site=move(step.site)) for step in loop.steps),
        found=tuple(replace(one, site=move(one.site)) for one in loop.found),
        gap=loop.gap and replace(loop.gap, site=move(loop.gap.site)),
        accounts=tuple(_moved_account(account, move) for account in loop.accounts),
    )


def _moved_account(account: Account, move: Callable[[Site], Site]) -> Account:
    def each(mentions: tuple[Mention, ...]) -> tuple[Mention, ...]:
        return tuple(replace(one, site=move(one.site)) for one in mentions)

    return replace(
        account,
        backwards=each(account.backwards),
        clears=each(account.clears),
        clips=each(account.clips),
        guards=each(account.guards),
        withheld=tuple(replace(one, site=move(one.site)) for one in account.withheld),
    )


def _moved(finding: Finding, move: Callable[[Site], Site]) -> Finding:
    site, step = move(finding.site), finding.step and move(finding.step)
    notes = [move(note.site) for note in finding.notes]
    if (
        site is finding.site
        and step is finding.step
        and not any(map(_differs, finding.notes, notes))
    ):
        return finding
    moved = tuple(map(lambda note, there: replace(note, site=there), finding.notes, notes))
    return replace(finding, site=site, notes=moved, step=step)


def _differs(note: Note, site: Site) -> bool:
    return note.site is not site
