"""The fixes of what a run has found: a check of the same source often finds it, too, and knows a fix."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from zerograd.core.finding import Finding, SourceKey
from zerograd.core.records import replace
from zerograd.fix.document import Document
from zerograd.fix.repair import Tries, with_fix
from zerograd.static.check_file import FileResult, result_for_bytes


def with_known_fixes(
    findings: Iterable[Finding], sources: Mapping[SourceKey, Sequence[str]]
) -> list[Finding]:
    """The findings; those that a check makes at the same line have its fix."""
    known = _KnownFixes(sources)
    return [known.added(one) for one in findings]


class _KnownFixes:
    def __init__(self, sources: Mapping[SourceKey, Sequence[str]]) -> None:
        self._sources = sources
        self._checked: dict[str, tuple[Document, FileResult]] = {}

    def added(self, finding: Finding) -> Finding:
        site = finding.site
        if finding.fix is not None or site.cell is not None or not self._sources.get(site.path):
            return finding
        document, result = self._check(site.path)
        for one in result.findings:
            if one.place == finding.place:
                return replace(finding, fix=with_fix(document, one, result, Tries()).fix)
        return finding

    def _check(self, path: str) -> tuple[Document, FileResult]:
        if path not in self._checked:
            text = "\n".join(self._sources[path])
            document = Document(path, text.encode("utf-8", "replace"))
            self._checked[path] = document, result_for_bytes(document.data, path)
        return self._checked[path]
