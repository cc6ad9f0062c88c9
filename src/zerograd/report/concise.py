"""One line for each finding, for editors and `grep`."""

from __future__ import annotations

from zerograd.core.finding import Report
from zerograd.report.location import visible, where, where_problem
from zerograd.report.text import fixable


def render(report: Report, *, color: bool = False) -> str:
    """`path:line:column: CODE name message`, one line each."""
    lines = [
        f"{where(one.site)}: {one.code} {one.name} {visible(one.message)}{fixable(one)}"
        for one in report.findings
    ]
    lines += [f"{where_problem(one)}: {visible(one.message)}" for one in report.errors]
    return "".join(f"{line}\n" for line in lines)
