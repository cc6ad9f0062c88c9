"""A report as JSON: the format other programs read, the same for check, run and replay.

The keys are a contract: every key is always present, null means that there is no value.
"""

from __future__ import annotations

import json

from zerograd.core.finding import Finding, Fix, Report

VERSION = 1


def render(report: Report, *, color: bool = False) -> str:
    """The report as one JSON object."""
    return (
        json.dumps(
            {
                "version": VERSION,
                "findings": [_finding(finding) for finding in report.findings],
                "errors": [
                    {"path": one.path, "line": one.line, "message": one.message}
                    for one in report.errors
                ],
                "files": report.files,
            },
            indent=2,
        )
        + "\n"
    )


def _finding(finding: Finding) -> dict[str, object]:
    site = finding.site
    return {
        "code": finding.code,
        "name": finding.name,
        "level": finding.level,
        "certain": finding.certain,
        "message": finding.message,
        "path": site.path,
        "line": site.line,
        "column": site.column,
        "cell": site.cell,
        "when": list(finding.when),
        "seen": finding.seen,
        "rank": finding.rank,
        "ranks": list(finding.ranks),
        "notes": [
            {"path": note.site.path, "line": note.site.line, "message": note.message}
            for note in finding.notes
        ],
        "fix": None if finding.fix is None else _fix(finding.fix),
    }


def _fix(fix: Fix) -> dict[str, object]:
    edits = [
        {
            "path": edit.path,
            "cell": edit.cell,
            "line": edit.line,
            "column": edit.column,
            "end_line": edit.end_line,
            "end_column": edit.end_column,
            "text": edit.text,
        }
        for edit in fix.edits
    ]
    return {"safe": fix.safe, "edits": edits}
