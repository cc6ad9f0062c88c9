"""Findings repaired: a way to repair one counts only after the repaired text was checked again.

A fix holds when the text still parses, its finding is gone, and no other has come. Fixes of one file
are made one after the other, each in the text that the one before has left, until none holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace

from zerograd.finding import Edit, Finding, Fix
from zerograd.fixes import repairs
from zerograd.fixes.scene import Repair
from zerograd.static.bounded import guarded
from zerograd.static.document import Document, Overlap
from zerograd.static.edits import Code, Refused
from zerograd.static.lint import Verdict, judge
from zerograd.static.places import edit_in_cell, in_text
from zerograd.static.source import Source, Unreadable, parse

ROUNDS = 200
"""So many fixes in one file are enough."""

Wanted = Callable[[Finding], bool]


@dataclass
class Repaired:
    """A document after its repair: what was fixed, and the verdict on what is left."""

    document: Document
    verdict: Verdict
    fixed: list[Finding] = field(default_factory=list)


def repair(document: Document, wanted: Wanted, *, unsafe: bool) -> Repaired:
    """Every wanted finding of a document fixed that can be; only safely, or else `unsafe` too."""
    done = Repaired(document, look(document))
    tried: set[tuple[str, str]] = set()
    moved = False
    while len(done.fixed) < ROUNDS:
        finding = next((f for f in _asked(done, wanted) if _key(f, done) not in tried), None)
        if finding is None:
            if not moved:
                break
            # What could not be done before another fix may be done after it.
            tried, moved = set(), False
            continue
        tried.add(_key(finding, done))
        fix = with_fix(done.document, finding, done.verdict).fix
        if fix is not None and (fix.safe or unsafe):
            done.fixed.append(finding)
            moved = True
            done.document = done.document.edited(fix.edits)
            done.verdict = look(done.document)
    done.verdict = with_fixes(done.document, done.verdict, wanted)
    return done


def _asked(done: Repaired, wanted: Wanted) -> Iterator[Finding]:
    path = done.document.path
    return (f for f in done.verdict.findings if f.site.path == path and wanted(f))


def _key(finding: Finding, done: Repaired) -> tuple[str, str]:
    """A finding told apart from others whatever is inserted above it."""
    source = done.document.source
    line = in_text(finding, source).site.line
    return finding.code, source.lines[line - 1].strip()


def with_fixes(document: Document, verdict: Verdict, wanted: Wanted) -> Verdict:
    """The verdict with a fix for each wanted finding that has one, and the reason where not."""
    findings = tuple(
        with_fix(document, finding, verdict) if wanted(finding) else finding
        for finding in verdict.findings
    )
    return replace(verdict, findings=findings)


def with_fix(document: Document, finding: Finding, verdict: Verdict) -> Finding:
    """A finding with the first fix that holds."""
    refused = ""
    try:
        source = document.source
        code = Code(source.text, parse(source), source.path)
        others = [in_text(one, source) for one in verdict.findings]
        for one in repairs(code, in_text(finding, source), others):
            try:
                edits = _placed(one, source)
                if holds(document.edited(edits), finding, verdict):
                    safe = one.safe and finding.certain
                    return replace(finding, fix=Fix(one.message, safe, edits))
                refused = refused or "what it would lead to is not right"
            except (Refused, Overlap) as reason:
                refused = refused or str(reason)
    except Refused as reason:
        refused = str(reason)
    except Unreadable:
        refused = "the file cannot be read any more"
    return replace(finding, refused=refused or "there is no plain repair for it")


def _placed(one: Repair, source: Source) -> tuple[Edit, ...]:
    edits = one.edits()
    if source.cells is None:
        return edits
    edits = tuple(edit_in_cell(edit, source) for edit in edits)
    if len({edit.cell for edit in edits}) > 1:
        raise Refused("it would change two cells")
    return edits


def holds(document: Document, finding: Finding, before: Verdict) -> bool:
    """Whether a document lacks a finding that it had before, and has none that it had not."""
    after = look(document)
    if len(after.problems) > len(before.problems):
        return False
    if sum(f.code == finding.code for f in after.findings) >= sum(
        f.code == finding.code for f in before.findings
    ):
        return False
    # A window that is whole now may show what was wrong with its end: that is advice.
    shown = _ENDS if finding.level == "error" or finding.code == "ZG302" else frozenset()
    old, new = _counts(before, shown), _counts(after, shown)
    return all(count <= old[what] for what, count in new.items())


_ENDS = frozenset({"ZG301", "ZG302", "ZG303", "ZG304"})


def _counts(verdict: Verdict, but: Collection[str]) -> Counter[tuple[str, bool]]:
    """How many findings there are of each rule, and how many of them are certain."""
    found = [finding for finding in verdict.findings if finding.code not in but]
    certain = Counter((finding.code, True) for finding in found if finding.certain)
    return certain + Counter((finding.code, False) for finding in found)


def look(document: Document) -> Verdict:
    """The verdict on a document, in bounded time."""

    def check() -> Verdict:
        try:
            return judge(document.source)
        except Unreadable as error:
            return Verdict(problems=(error.problem,))

    return guarded(document.path, check)
