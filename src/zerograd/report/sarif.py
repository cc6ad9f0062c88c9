"""SARIF 2.1.0, the format that code scanning services read.

Every result names its rule by index, and every rule of the catalogue is included with its page.
"""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import quote

from zerograd import __version__
from zerograd.core.events import Site
from zerograd.core.finding import Finding, Fix, Problem, Report
from zerograd.core.help_text import with_help
from zerograd.core.rule import Page
from zerograd.report.fingerprint import fingerprints
from zerograd.report.json import indented
from zerograd.rules.catalogue import PAGES

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
_LEVELS = {"error": "error", "advice": "note"}


def render(report: Report, *, color: bool = False) -> str:
    """The report as one SARIF log with one run."""
    index = {rule.code: number for number, rule in enumerate(PAGES)}
    urls = {finding.code: finding.url for finding in report.findings}
    driver: dict[str, Any] = {
        "name": "zerograd",
        "semanticVersion": __version__,
        "rules": [_rule(rule, urls.get(rule.code, "")) for rule in PAGES],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {
                "executionSuccessful": not report.errors,
                "toolExecutionNotifications": [_notification(one) for one in report.errors],
            }
        ],
        "results": [
            _result(finding, fingerprint, index, report)
            for finding, fingerprint in zip(report.findings, fingerprints(report), strict=True)
        ],
    }
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return indented(log)


def _rule(rule: Page, url: str) -> dict[str, Any]:
    page = rule.doc.strip()
    return {
        **({"helpUri": url} if url else {}),
        "id": rule.code,
        "name": rule.name,
        "shortDescription": {"text": rule.summary},
        "fullDescription": {"text": page.split("\n## ", 1)[0].strip()},
        "help": {"text": page, "markdown": page},
        "defaultConfiguration": {"level": _LEVELS[rule.level]},
    }


def _result(
    finding: Finding, fingerprint: str, index: dict[str, int], report: Report
) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "level": _LEVELS[finding.level],
        "message": {"text": with_help(finding, report.sources)},
        "locations": [_location(finding.site)],
        "partialFingerprints": {"zerograd/v1": fingerprint},
        "properties": {"certain": finding.certain, "when": list(finding.when)},
    }
    if finding.code in index:
        result["ruleIndex"] = index[finding.code]
    if finding.notes:
        result["relatedLocations"] = [
            {"id": number, "message": {"text": note.message}, **_location(note.site)}
            for number, note in enumerate(finding.notes, start=1)
        ]
    if finding.fix is not None and finding.site.cell is None:
        result["fixes"] = [_fix(finding.fix)]
    return result


def _fix(fix: Fix) -> dict[str, Any]:
    """One fix; not for notebooks, because an edit of a cell is not a region of the file."""
    changes: dict[str, list[dict[str, Any]]] = {}
    for edit in fix.edits:
        region = {
            "startLine": edit.line,
            "startColumn": edit.column,
            "endLine": edit.end_line,
            "endColumn": edit.end_column,
        }
        replacement = {"deletedRegion": region, "insertedContent": {"text": edit.text}}
        changes.setdefault(edit.path, []).append(replacement)
    return {
        "description": {"text": fix.message if fix.safe else f"{fix.message} (unsafe)"},
        "artifactChanges": [
            {"artifactLocation": {"uri": _uri(path)}, "replacements": replacements}
            for path, replacements in changes.items()
        ],
    }


def _location(site: Site) -> dict[str, Any]:
    region = {"startLine": site.line, "startColumn": site.column}
    if site.end_line:
        region |= {"endLine": site.end_line, "endColumn": site.end_column}
    location: dict[str, Any] = {
        "physicalLocation": {"artifactLocation": {"uri": _uri(site.path)}, "region": region}
    }
    if site.cell is not None:
        location["logicalLocations"] = [{"name": f"cell {site.cell}"}]
    return location


def _notification(problem: Problem) -> dict[str, Any]:
    place: dict[str, Any] = {"artifactLocation": {"uri": _uri(problem.path)}}
    if problem.line is not None:
        place["region"] = {"startLine": problem.line}
    return {
        "level": "error",
        "message": {"text": f"{problem.path} {problem.message}"},
        "locations": [{"physicalLocation": place}],
    }


def _uri(path: str) -> str:
    """The path as a URI; a relative path stays relative to the root of the checkout."""
    uri = quote(path.replace(os.sep, "/").encode("utf-8", "surrogateescape"))
    if not os.path.isabs(path):
        return uri
    return f"file:///{uri.lstrip('/')}"
