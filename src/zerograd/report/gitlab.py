"""GitLab's Code Quality report.

A finding keeps its fingerprint when other lines change.
"""

from __future__ import annotations

from zerograd.core.finding import Report
from zerograd.report.fingerprint import digest, fingerprints
from zerograd.report.json import indented

_SEVERITIES = {"error": "major", "advice": "minor"}


def render(report: Report, *, color: bool = False) -> str:
    """A JSON array of issues."""
    issues = []
    for finding, fingerprint in zip(report.findings, fingerprints(report), strict=True):
        cell = "" if finding.site.cell is None else f"cell {finding.site.cell}: "
        issues.append(
            {
                "description": f"{cell}{finding.message}",
                "check_name": f"{finding.code} {finding.name}",
                "fingerprint": fingerprint,
                "severity": _SEVERITIES[finding.level],
                "location": {"path": finding.site.path, "lines": {"begin": finding.site.line}},
            }
        )
    for problem in report.errors:
        issues.append(
            {
                "description": f"not checked: {problem.path} {problem.message}",
                "check_name": "not-checked",
                "fingerprint": digest("not-checked", problem.path, problem.message),
                "severity": "info",
                "location": {"path": problem.path, "lines": {"begin": problem.line or 1}},
            }
        )
    return indented(issues)
