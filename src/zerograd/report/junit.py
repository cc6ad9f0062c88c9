"""JUnit XML, which most CI servers show as test results: one test case per finding.

An error is a failure, advice is a passed test case with its text as output, and a file that could not be
checked is an error of the suite.
"""

from __future__ import annotations

import re
from xml.sax.saxutils import escape, quoteattr

from zerograd.core.finding import Finding, Problem, Report
from zerograd.core.help_text import with_help
from zerograd.report.location import visible, where

_FORBIDDEN = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML cannot hold."""


def render(report: Report, *, color: bool = False) -> str:
    """One test suite; a clean report has one passed test case."""
    cases = [_finding(one, report) for one in report.findings]
    cases += map(_problem, report.errors)
    cases = cases or ['    <testcase classname="zerograd" name="no findings"/>\n']
    failures = sum(finding.level == "error" for finding in report.findings)
    counts = f'tests="{len(cases)}" failures="{failures}" errors="{len(report.errors)}"'
    text = (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<testsuites name="zerograd" {counts}>\n'
        f'  <testsuite name="zerograd" {counts}>\n'
        f"{''.join(cases)}"
        "  </testsuite>\n"
        "</testsuites>\n"
    )
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)


def _finding(finding: Finding, report: Report) -> str:
    text = f"{where(finding.site)}: {with_help(finding, report.sources)}"
    title = f"{finding.code} {finding.name} ({where(finding.site)})"
    attributes = (
        f"classname={quoteattr(visible(finding.site.path))} name={quoteattr(title)} "
        f'file={quoteattr(visible(finding.site.path))} line="{finding.site.line}"'
    )
    if finding.level == "error":
        kind = f"message={quoteattr(finding.message)} type={quoteattr(finding.code)}"
        inside = f"<failure {kind}>{escape(text)}</failure>"
    else:
        inside = f"<system-out>{escape(text)}</system-out>"
    return f"    <testcase {attributes}>{inside}</testcase>\n"


def _problem(problem: Problem) -> str:
    path = quoteattr(visible(problem.path))
    message = quoteattr(problem.message)
    return (
        f'    <testcase classname={path} name="not checked">'
        f'<error message={message} type="problem"/></testcase>\n'
    )
