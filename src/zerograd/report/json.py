"""A report as JSON: the format other programs read, the same for check, run and replay.

The keys are a contract: every key is always present, null means that there is no value.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import islice

from zerograd.core.events import Site
from zerograd.core.finding import Finding, Fix, Problem, Report, SourceKey
from zerograd.core.help_text import helped
from zerograd.core.training_loop import Account, LoopVerdict, Mention

VERSION = 1


def render(report: Report, *, color: bool = False) -> str:
    """The report as one JSON object."""
    shown: dict[str, object] = {
        "version": VERSION,
        "findings": [_finding(finding, report.sources) for finding in report.findings],
        "errors": list(map(_problem, report.errors)),
        "skipped": [{"path": one.path, "message": one.message} for one in report.skipped],
        "files": report.files,
        "optimizers": list(report.watched.optimizers) if report.watched else [],
        "known": report.known,
        "unchanged": report.unchanged,
    }
    if report.lists_loops:
        shown["loops"] = [_loop(one) for one in report.loops or ()]
    return indented(shown)


def indented(shown: object) -> str:
    """Values as indented JSON. `json.dumps` keeps all pieces until the end, in seven times the memory of the text."""
    pieces = json.JSONEncoder(indent=2).iterencode(shown)
    parts = iter(lambda: "".join(islice(pieces, 1000)), "")
    return "".join((*parts, "\n"))


def explanation(report: Report, verdicts: list[LoopVerdict]) -> str:
    """The loops that `check --why` explains, and the findings that they refer to."""
    shown = {
        "version": VERSION,
        "why": [
            {**_loop(one), "accounts": [_account(account) for account in one.loop.accounts]}
            for one in verdicts
        ],
        "findings": [_finding(finding, report.sources) for finding in report.findings],
        "errors": list(map(_problem, report.errors)),
    }
    return indented(shown)


def _problem(problem: Problem) -> dict[str, object]:
    return {"path": problem.path, "line": problem.line, "message": problem.message}


def _loop(one: LoopVerdict) -> dict[str, object]:
    loop, gap = one.loop, one.gap
    return {
        **_place(loop.site),
        "name": loop.name,
        "kind": loop.kind,
        "verdict": one.verdict,
        "reason_code": gap and gap.why.value,
        "reason": gap and gap.reason,
        "cause": gap and _place(gap.site),
        "findings": list(one.findings),
        "steps": [
            {**_place(step.site), "call": step.call, "subject": step.subject} for step in loop.steps
        ],
    }


def _account(account: Account) -> dict[str, object]:
    return {
        "subject": account.subject,
        "params": list(account.params),
        "backwards": list(map(_mention, account.backwards)),
        "clears": list(map(_mention, account.clears)),
        "clips": list(map(_mention, account.clips)),
        "guards": list(map(_mention, account.guards)),
        "assumed": list(account.assumed),
        "withheld": [
            {
                **_place(one.site),
                "code": one.code,
                "name": one.name,
                "message": one.message,
                "when": list(one.when),
            }
            for one in account.withheld
        ],
    }


def _mention(mention: Mention) -> dict[str, object]:
    return {**_place(mention.site), "call": mention.call, "sure": mention.sure}


def _place(site: Site) -> dict[str, object]:
    return {"path": site.path, "cell": site.cell, "line": site.line, "column": site.column}


def _finding(finding: Finding, sources: Mapping[SourceKey, Sequence[str]]) -> dict[str, object]:
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
        "end_line": site.end_line or None,
        "end_column": site.end_column or None,
        "cell": site.cell,
        "help": helped(finding, sources) or None,
        "optimizer": finding.optimizer or None,
        "url": finding.url or None,
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
