"""Checks the text of an editor as `zerograd check` checks the file: same settings, same findings."""

from __future__ import annotations

import codecs
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass

from zerograd.check.check_session import CheckOptions, selected_report
from zerograd.check.discover import Discovery
from zerograd.core.finding import Edit, Finding, Problem
from zerograd.core.records import replace
from zerograd.core.suppressions import allows
from zerograd.fix.document import Document
from zerograd.fix.repair import Tries, with_fix
from zerograd.static.check_file import CLEAN, FileResult, result_for_bytes
from zerograd.static.read.load import from_bytes
from zerograd.static.read.positions import in_text
from zerograd.static.read.project import forget_modules
from zerograd.static.read.source import Unreadable
from zerograd.static.reuse import FileMemory


@dataclass(frozen=True)
class Text:
    """What an editor shows: a file, or the cells of a notebook; None for a cell that is not Python."""

    path: str
    text: str = ""
    cells: tuple[str | None, ...] | None = None

    @property
    def data(self) -> bytes:
        """The bytes of the file that would hold it."""
        if self.cells is None:
            # The mark says that the text is UTF-8, whatever encoding it declares for the disk.
            return codecs.BOM_UTF8 + self.text.encode("utf-8", "replace")
        cells = [
            {"cell_type": "markdown", "source": ""}
            if cell is None
            else {"cell_type": "code", "source": cell}
            for cell in self.cells
        ]
        return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4}).encode()

    def part(self, cell: int | None) -> str:
        """The text of a cell, or of the file."""
        if cell is None or self.cells is None:
            return self.text
        return self.cells[cell - 1] or ""


@dataclass(frozen=True)
class Checked:
    """What a check says about a text."""

    text: Text
    result: FileResult = CLEAN
    findings: tuple[Finding, ...] = ()
    """Those that the settings select."""
    problems: tuple[Problem, ...] = ()
    """What was left out, and what is wrong with the settings."""
    broken: bool = False
    """The text does not parse: most texts do not while somebody types."""


class Checker:
    """Checks texts, and repairs findings in them."""

    def __init__(self, options: CheckOptions) -> None:
        self._options = options
        self._memories: dict[str, FileMemory] = {}
        self._checked: set[str] = set()
        """The files whose last texts are still held parsed."""

    def tidy(self) -> None:
        """Drop syntax trees, and prepare for the next text. That takes a while: call it while no client waits."""
        while self._checked:
            forget_modules(self._checked.pop())
        for memory in self._memories.values():
            memory.parsed.tidy()

    def forget(self, path: str | None = None) -> None:
        """Forget what is known of a text, or of all: the next check finds everything anew."""
        if path is None:
            self._memories = {}
        else:
            self._memories.pop(path, None)

    def check(self, text: Text, top: str) -> Checked:
        """The findings in a text; none if `zerograd check` in the folder `top` leaves the file out."""
        options = self._options
        discovery = Discovery(
            options.exclude, include_tests=options.include_tests, config=options.config
        )
        settings = discovery.settings_above(os.path.dirname(os.path.abspath(text.path)))
        if discovery.leaves_out(text.path, top):
            return Checked(text, problems=tuple(discovery.found.problems))
        memory = self._memories.setdefault(text.path, FileMemory())
        result = result_for_bytes(text.data, text.path, memory=memory)
        self._checked.add(os.path.abspath(text.path))
        report = selected_report(result, settings, text.path, options)
        broken = [one for one in result.problems if one.line is not None]
        kept = [one for one in report.errors if one not in broken]
        problems = (*discovery.found.problems, *kept)
        return Checked(text, result, tuple(report.findings), problems, bool(broken))


def with_repair(checked: Checked, finding: Finding) -> Finding:
    """A finding of a text with its fix, or with the reason why it has none."""
    document = Document(checked.text.path, checked.text.data)
    same = (finding.code, finding.site)
    original = next(one for one in checked.result.findings if (one.code, one.site) == same)
    return with_fix(document, original, checked.result, Tries())


def allowing(text: Text, finding: Finding) -> Edit | None:
    """The edit that adds an allow comment for a finding; None where no comment is possible."""
    site = finding.site
    lines = lines_of_text(text.part(site.cell))
    comment = f"# zerograd: allow[{finding.name}]"
    for number in dict.fromkeys((site.line, max(site.line, site.end_line))):
        if not 1 <= number <= len(lines):
            return None
        column = len(lines[number - 1].rstrip()) + 1
        behind = Edit(
            site.path, number, column, number, len(lines[number - 1]) + 1, f"  {comment}", site.cell
        )
        if _allows(text, behind, finding):
            return behind
    return _above(text, finding, lines, comment)


def _above(text: Text, finding: Finding, lines: Sequence[str], comment: str) -> Edit | None:
    """A comment on a line of its own, above the statement."""
    site = finding.site
    for number in range(site.line, 0, -1):
        line = lines[number - 1]
        indent = line[: len(line) - len(line.lstrip())]
        edit = Edit(site.path, number, 1, number, 1, f"{indent}{comment}\n", site.cell)
        last = site.end_line + 1 if site.end_line else 0
        moved = replace(site, line=site.line + 1, end_line=last)
        if _allows(text, edit, replace(finding, site=moved)):
            return edit
    return None


def _allows(text: Text, edit: Edit, finding: Finding) -> bool:
    """Whether a text with this edit allows a finding."""
    document = Document(text.path, text.data).edited([edit])
    try:
        source = from_bytes(document.data, document.path)
    except Unreadable:
        return False
    return allows(source.text, in_text(finding, source))


def lines_of_text(text: str) -> list[str]:
    """The lines of a text as editors and Python count them: a form feed does not end one."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
