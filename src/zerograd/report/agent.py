"""Findings for coding agents: a paragraph each, without decoration, with the exact edit as a diff."""

from __future__ import annotations

from collections.abc import Iterator

from zerograd.core.finding import Finding, Report
from zerograd.core.help_text import helped
from zerograd.core.wording import counted
from zerograd.report.fix_diff import fix_diff
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
        yield f"seen: {counted(finding.seen, 'time')}"
    if finding.help:
        yield f"do: {visible(helped(finding, report.sources))}"
    if finding.fix is not None:
        review = "" if finding.fix.safe else ", review it"
        yield f"edit ({'safe' if finding.fix.safe else 'unsafe'}{review}):"
        yield from fix_diff(finding.fix, report.sources)


def _last(report: Report) -> str:
    if not report.findings:
        what = "nothing else to report" if report.errors else "nothing to report"
        return f"{counted(report.files, 'file')} checked: {what}."
    fixable = sum(one.fix is not None for one in report.findings)
    return (
        f"{counted(len(report.findings), 'finding')}, {fixable} with an edit."
        " `zerograd explain CODE` explains a rule. If the code is meant like this, say so on the line:"
        " `# zerograd: allow[NAME]`."
    )
