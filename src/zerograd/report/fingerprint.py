"""A name for a finding that does not change with edits elsewhere in the file.

It is a hash of the rule, the file and the text of the line, never of a line number. Several findings
with the same text are numbered.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator

from zerograd.core.finding import Report, source_key


def fingerprints(report: Report) -> Iterator[str]:
    """One for each finding of the report, in order."""
    seen: Counter[tuple[str, ...]] = Counter()
    for finding in report.findings:
        lines = report.sources.get(source_key(finding.site), ())
        line = finding.site.line
        text = lines[line - 1].strip() if 1 <= line <= len(lines) else finding.message
        about = (finding.code, finding.site.path, text)
        seen[about] += 1
        yield digest(*about, str(seen[about]))


def digest(*parts: str) -> str:
    """The hash of some parts."""
    return hashlib.sha256("\0".join(parts).encode("utf-8", "backslashreplace")).hexdigest()
