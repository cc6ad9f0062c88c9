"""Findings, edits and places as the Language Server Protocol has them.

Its lines and columns count from 0, its columns in units that client and server have agreed on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lsprotocol import types
from pygls import uris

from zerograd.core.events import Site
from zerograd.core.finding import Edit, Finding, Problem, source_key
from zerograd.core.help_text import helped
from zerograd.server.editor_checks import Text, lines_of_text
from zerograd.static.read.load import read
from zerograd.static.read.source import Unreadable

if TYPE_CHECKING:
    from pygls.workspace import PositionCodec

SOURCE = "zerograd"
_SEVERITY = {
    "error": types.DiagnosticSeverity.Error,
    "advice": types.DiagnosticSeverity.Warning,
}


class Positions:
    """The places of one text, which one document or one per cell shows."""

    def __init__(self, text: Text, documents: Sequence[str], codec: PositionCodec) -> None:
        self.text = text
        self.documents = documents
        """The address of the document, or of each cell."""
        self._codec = codec
        self._lines: dict[tuple[str, int | None], list[str]] = {}

    def uri(self, path: str, cell: int | None) -> str:
        """The address of the document that shows a place."""
        if path != self.text.path:
            return uris.from_fs_path(path) or path
        return self.documents[0 if cell is None else cell - 1]

    def range(self, site: Site) -> types.Range:
        """The range of a site; to the end of its line where its end is not known."""
        lines = self._lines_of(site.path, site.cell)
        if site.end_line:
            end = (site.end_line, site.end_column)
        else:
            here = lines[site.line - 1] if 1 <= site.line <= len(lines) else ""
            end = (site.line, len(here) + 1)
        return self._range(lines, (site.line, site.column), end)

    def location(self, site: Site) -> types.Location:
        """The document and the range of a site."""
        return types.Location(self.uri(site.path, site.cell), self.range(site))

    def edit(self, edit: Edit) -> types.TextEdit:
        """An edit of the document that shows its place."""
        lines = self._lines_of(edit.path, edit.cell)
        begin, end = (edit.line, edit.column), (edit.end_line, edit.end_column)
        return types.TextEdit(self._range(lines, begin, end), edit.text)

    def _range(
        self, lines: Sequence[str], begin: tuple[int, int], end: tuple[int, int]
    ) -> types.Range:
        places = [types.Position(line - 1, max(column - 1, 0)) for line, column in (begin, end)]
        return self._codec.range_to_client_units(lines, types.Range(*places))

    def _lines_of(self, path: str, cell: int | None) -> list[str]:
        key = (path, cell)
        if key not in self._lines:
            if path == self.text.path:
                self._lines[key] = lines_of_text(self.text.part(cell))
            else:
                try:
                    self._lines[key] = read(path).lines
                except Unreadable:
                    self._lines[key] = []
        return self._lines[key]

    def shown_at(self, finding: Finding) -> Site | None:
        """Where this text shows a finding: at its place, or at its other end; None if it is elsewhere."""
        ends = (finding.site, *(note.site for note in finding.notes))
        return next((site for site in ends if site.path == self.text.path), None)

    def diagnostic(self, finding: Finding, site: Site) -> types.Diagnostic:
        """A finding as an editor shows it."""
        lines = [finding.message]
        lines += [f"when {test}" for test in finding.when]
        ends = (finding.site, *(note.site for note in finding.notes))
        sources = {source_key(one): self._lines_of(one.path, one.cell) for one in ends}
        lines += [f"help: {helped(finding, sources)}"] if finding.help else []
        related = [
            types.DiagnosticRelatedInformation(self.location(note.site), note.message)
            for note in finding.notes
        ]
        if site is not finding.site:
            main = types.DiagnosticRelatedInformation(self.location(finding.site), finding.message)
            related = [main, *related]
        severity = _SEVERITY[finding.level]
        return types.Diagnostic(
            self.range(site),
            "\n".join(lines),
            severity=severity if finding.certain else types.DiagnosticSeverity.Information,
            code=finding.code,
            code_description=types.CodeDescription(finding.url) if finding.url else None,
            source=SOURCE,
            related_information=related or None,
            data={"rule": finding.name},
        )

    def remark(self, problem: Problem) -> types.Diagnostic:
        """What was not checked, on the first line."""
        start = types.Position(0, 0)
        return types.Diagnostic(
            types.Range(start, start),
            f"this file {problem.message}",
            severity=types.DiagnosticSeverity.Information,
            source=SOURCE,
        )
