"""Repairs the findings of a file, and checks the repaired text again.

A fix is applied only if the text still parses, and a second check shows that the finding is gone and
no new one has appeared. The fixes of a file are applied one after the other, each to the text that
the fix before it has left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.util import find_spec

from zerograd.core.finding import Edit, Finding, Fix
from zerograd.core.rule import Page, Windows
from zerograd.fix.context import Repair, Scene
from zerograd.fix.document import Document, Overlap
from zerograd.fix.edits import EditableCode, Refused
from zerograd.rules.catalogue import BY_CODE
from zerograd.static.check_file import FileResult, result_for_bytes
from zerograd.static.read.positions import edit_in_cell, in_text
from zerograd.static.read.source import Source

MOST = 20_000_000
"""Characters that may be checked again for one file: a few hundred attempts for a long one."""

Wanted = Callable[[Finding], bool]
_Key = tuple[str, str, int]
"""The rule, the text of the line, and which of equal ones."""


@dataclass
class Repaired:
    """A document after its repair: what was fixed, and the result for what is left."""

    document: Document
    result: FileResult
    fixed: list[Finding] = field(default_factory=list)


@dataclass
class Tries:
    """How many characters may still be checked for one file: counted, not timed."""

    left: int = MOST
    begin: Callable[[], object] | None = None
    """It is called before each check."""

    def spend(self, document: Document) -> None:
        """Counts one more check; `Refused` when there were too many."""
        if self.begin is not None:
            self.begin()
        self.left -= len(document.data)
        if self.left < 0:
            raise Refused(
                "too many repairs were tried in this file; apply some fixes, then check again"
            )


def repair(
    document: Document, wanted: Wanted, *, unsafe: bool, reported: Wanted | None = None
) -> Repaired:
    """Repair the wanted findings of a document: only safely, or where `unsafe` is set, all.

    `reported` says which findings of the original document are reported; the others stay as they are.
    """
    done = Repaired(document, result_for_bytes(document.data, document.path))
    originals = _Originals(done, reported)
    tries = Tries()
    tried: set[_Key] = set()
    moved = False
    while True:
        todo = [(f, key) for f, key in originals.reported(done) if key not in tried and wanted(f)]
        if not todo:
            if not moved:
                break
            # A repair that failed may succeed after another one.
            tried, moved = set(), False
            continue
        finding, key = todo[0]
        tried.add(key)
        looked_at = with_fix(done.document, finding, done.result, tries)
        fix = looked_at.fix
        if fix is not None and (fix.safe or unsafe):
            done.fixed.append(finding)
            originals.repaired(key)
            moved = True
            done.document = done.document.edited(fix.edits)
            done.result = result_for_bytes(done.document.data, document.path)
        else:
            found = (looked_at if one is finding else one for one in done.result.findings)
            done.result = replace(done.result, findings=tuple(found))
    done.result = with_fixes(done.document, done.result, wanted, tries)
    return done


class _Originals:
    """Knows which findings were reported before the first repair, while repairs move lines and remove findings."""

    def __init__(self, done: Repaired, reported: Wanted | None) -> None:
        self._rows: dict[tuple[str, str], list[bool]] = {}
        """By rule and text of the line: of equal findings, in their order, which are reported."""
        for finding, (code, line, _) in _keyed(done) if reported is not None else ():
            assert reported is not None
            self._rows.setdefault((code, line), []).append(reported(finding))
        self._all = all(one for row in self._rows.values() for one in row)

    def reported(self, done: Repaired) -> Iterator[tuple[Finding, _Key]]:
        """The findings that may be repaired."""
        found = list(_keyed(done))
        now = Counter(key[:2] for _, key in found)
        for finding, key in found:
            row = self._rows.get(key[:2], [self._all])
            is_sure = len(row) == now[key[:2]]
            if self._all or (row[key[2] - 1] if is_sure else all(row)):
                yield finding, key

    def repaired(self, key: _Key) -> None:
        """The finding with this key is gone."""
        row = self._rows.get(key[:2], [])
        if len(row) >= key[2]:
            del row[key[2] - 1]


def _keyed(done: Repaired) -> Iterator[tuple[Finding, _Key]]:
    """The findings in the document, each with a key that does not depend on the lines above it."""
    if not done.result.findings:
        return
    source = done.document.source
    lines = source.lines
    seen: Counter[tuple[str, str]] = Counter()
    for finding in done.result.findings:
        if finding.site.path == source.path:
            about = (finding.code, lines[in_text(finding, source).site.line - 1].strip())
            seen[about] += 1
            yield finding, (*about, seen[about])


def with_fixes(
    document: Document, result: FileResult, wanted: Wanted, tries: Tries | None = None
) -> FileResult:
    """The result with a fix for each wanted finding, or with the reason why it has none."""
    tries = tries or Tries()
    findings = tuple(
        one if one.fix or one.refused or not wanted(one) else with_fix(document, one, result, tries)
        for one in result.findings
    )
    return replace(result, findings=findings)


def with_fix(document: Document, finding: Finding, result: FileResult, tries: Tries) -> Finding:
    """A finding with the first fix that works, or with the reason why there is none."""
    try:
        source = document.source
        others = [in_text(one, source) for one in result.findings]
        refused = "there is no simple fix"
        for number, one in enumerate(repairs(document.code, in_text(finding, source), others)):
            try:
                edits = _placed(one, source)
                repaired = document.edited(edits)
                tries.spend(repaired)
                if holds(repaired, finding, result):
                    safe = one.safe and finding.certain
                    return replace(finding, fix=Fix(one.message, safe, edits))
                reason = "a second check still finds a problem in the repaired code"
            except (Refused, Overlap) as error:
                reason = str(error)
            refused = refused if number else reason
    except Refused as error:
        refused = str(error)
    except Exception as error:  # noqa: BLE001 (our own bug in one repair must not lose the report)
        refused = f"zerograd failed ({error!r}); report this as a bug in zerograd"
    return replace(finding, refused=refused)


def module_of(rule: Page) -> str | None:
    """The module that repairs what a rule finds: it has the rule's name."""
    name = f"zerograd.fix.{rule.name.replace('-', '_')}"
    return name if find_spec(name) is not None else None


def repairs(code: EditableCode, finding: Finding, others: Sequence[Finding]) -> Iterator[Repair]:
    """Ways to repair a finding, the best first, none of them checked yet; or `Refused`."""
    name = module_of(BY_CODE[finding.code])
    if name is None:
        raise Refused("this rule has no automatic fix")
    yield from import_module(name).repairs(Scene(code, finding, others))


def _placed(one: Repair, source: Source) -> tuple[Edit, ...]:
    edits = one.edits()
    if source.cells is None:
        return edits
    edits = tuple(edit_in_cell(edit, source) for edit in edits)
    if len({edit.cell for edit in edits}) > 1:
        raise Refused("the fix would change two cells")
    return edits


def holds(document: Document, finding: Finding, before: FileResult) -> bool:
    """Whether the finding is gone from the repaired document and no new one has appeared."""
    after = result_for_bytes(document.data, document.path)
    if len(after.problems) > len(before.problems):
        return False
    if sum(f.code == finding.code for f in after.findings) >= sum(
        f.code == finding.code for f in before.findings
    ):
        return False
    # A complete window may show that its end is wrong, too: that is advice, and no new bug.
    completes = finding.level == "error" or BY_CODE[finding.code].windows is Windows.LENGTH
    old, new = (_counts(one, but_windows=completes) for one in (before, after))
    return all(count <= old[what] for what, count in new.items())


def _counts(result: FileResult, *, but_windows: bool) -> Counter[tuple[str, bool]]:
    """How many findings there are of each rule, and how many of them are certain."""
    found = [
        finding
        for finding in result.findings
        if not (but_windows and finding.level == "advice" and BY_CODE[finding.code].windows)
    ]
    certain = Counter((finding.code, True) for finding in found if finding.certain)
    return certain + Counter((finding.code, False) for finding in found)
