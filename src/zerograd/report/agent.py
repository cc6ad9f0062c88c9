"""Findings for coding agents: a paragraph each, without decoration, with the exact edit as a diff."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence

from zerograd.core.finding import Cell, Edit, Finding, Fix, Report, SourceKey
from zerograd.report.location import visible, where, where_problem


def render(report: Report, *, color: bool = False) -> str:
    """Every finding as a paragraph, then what could not be checked, then what to do next."""
    paragraphs = ["\n".join(_finding(one, report)) for one in report.findings]
    paragraphs += [
        f"{where_problem(one)}: not checked: {visible(one.message)}" for one in report.errors
    ]
    return "\n\n".join([*paragraphs, _last(report)]) + "\n"


def _finding(finding: Finding, report: Report) -> Iterator[str]:
    doubt = "" if finding.certain else ", possible"
    kind = f"{finding.code} {finding.name} ({finding.level}{doubt})"
    yield f"{where(finding.site)}: {kind}: {visible(finding.message)}"
    if finding.optimizer:
        yield f"optimizer: {visible(finding.optimizer)}"
    for note in finding.notes:
        yield f"see {where(note.site)}: {visible(note.message)}"
    if finding.when:
        yield f"when: {' and '.join(map(visible, finding.when))}"
    if finding.seen is not None:
        yield f"seen: {finding.seen} time{'' if finding.seen == 1 else 's'}"
    if finding.help:
        yield f"do: {visible(finding.help)}"
    if finding.fix is not None:
        review = "" if finding.fix.safe else ", review it"
        yield f"edit ({'safe' if finding.fix.safe else 'unsafe'}{review}):"
        yield from _edit(finding.fix, report)


def _edit(fix: Fix, report: Report) -> Iterator[str]:
    """The edits as a diff of the lines that they change."""
    files: dict[SourceKey, list[Edit]] = {}
    for edit in fix.edits:
        key = edit.path if edit.cell is None else Cell(edit.path, edit.cell)
        files.setdefault(key, []).append(edit)
    for key, edits in files.items():
        name = visible(key if isinstance(key, str) else f"{key.path} (cell {key.number})")
        before = [f"{line}\n" for line in report.sources.get(key, ())]
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


def _last(report: Report) -> str:
    if not report.findings:
        what = "nothing else to report" if report.errors else "nothing to report"
        return f"{report.files} file{'' if report.files == 1 else 's'} checked: {what}."
    number = len(report.findings)
    fixable = sum(one.fix is not None for one in report.findings)
    return (
        f"{number} finding{'' if number == 1 else 's'}, {fixable} with an edit."
        " `zerograd explain CODE` explains a rule. If the code is meant like this, say so on the line:"
        " `# zerograd: allow[NAME]`."
    )
