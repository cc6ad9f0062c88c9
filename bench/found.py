"""Renews bench/found.jsonl from checkouts: what this version reports at each place that was read, and its repair.

Each repair becomes a patch without context, so that it contains no foreign line that it does not change.
"""

from __future__ import annotations

import difflib
import json
import sys
from pathlib import Path
from typing import Any

import prove
from corpus import progress
from zerograd.check import check_session
from zerograd.check.check_session import CheckOptions
from zerograd.core.finding import Finding, Report
from zerograd.fix.document import Document

Row = dict[str, Any]
KEYS = (
    "repo",
    "commit",
    "path",
    "cell",
    "line",
    "code",
    "verdict",
    "reason",
    "severity",
    "upstream",
)
"""The facts of a row, of which `upstream` may be absent; the others are renewed."""
RENEWED = ("now", "fix", "proven")


def renew(data: Path, repos: Path, patches: Path | None) -> int:
    """Write what is reported today into the data file; the number of rows without a checkout."""
    rows = [json.loads(line) for line in data.read_text(encoding="utf-8").splitlines()]
    checkouts: dict[Path, list[Row]] = {}
    for row in rows:
        checkouts.setdefault(checkout(repos, row), []).append(row)
    absent = 0
    for number, (folder, mine) in enumerate(sorted(checkouts.items()), 1):
        progress("checkouts", number, len(checkouts), folder.parent.name)
        if not folder.is_dir():
            print(f"there is no checkout {folder}", file=sys.stderr)
            absent += len(mine)
            continue
        report = _report(folder)
        for row in mine:
            _renew(row, folder, report, patches)
    lines = [json.dumps({key: row.get(key) for key in (*KEYS, *RENEWED)}) for row in rows]
    data.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return absent


def checkout(repos: Path, row: Row) -> Path:
    """DIR/OWNER+NAME/COMMIT."""
    folder: str = row["repo"].replace("/", "+")
    return repos / folder / str(row["commit"])


def _report(folder: Path) -> Report:
    options = CheckOptions(
        paths=(str(folder),), pedantic=True, include_tests=True, cache=False, repair="show"
    )
    return check_session.run(options, lambda *_: None).report


def _renew(row: Row, folder: Path, report: Report, patches: Path | None) -> None:
    path = (folder / row["path"]).resolve()
    place = (row["cell"], row["line"], row["code"])
    here = [
        one
        for one in report.findings
        if Path(one.site.path).resolve() == path
        and (one.site.cell, one.site.line, one.code) == place
    ]
    row["now"] = _level(here)
    row["fix"] = row["proven"] = None
    if not here:
        return
    finding = here[0]
    if finding.fix is not None:
        row["fix"] = "safe" if finding.fix.safe else "unsafe"
        before, after = _texts(finding, path)
        if row["verdict"] == "true" and path.suffix == ".py":
            row["proven"] = prove.prove(before, after, row["line"], row["code"])
        if patches is not None:
            name = f"{row['repo'].replace('/', '+')}-{path.stem}-{row['line']}-{row['code']}.patch"
            patches.mkdir(parents=True, exist_ok=True)
            (patches / name).write_text(_patch(finding, path, row["path"]), encoding="utf-8")


def _level(here: list[Finding]) -> str:
    if not here:
        return "nothing"
    if any(one.certain for one in here):
        return "error" if any(one.level == "error" for one in here) else "advice"
    return "possible"


def _texts(finding: Finding, path: Path) -> tuple[str, str]:
    """The file as it is, and with the repair of the finding."""
    assert finding.fix is not None
    before = Document(str(path), path.read_bytes())
    return before.text, before.edited(finding.fix.edits).text


def _patch(finding: Finding, path: Path, name: str) -> str:
    before, after = (text.splitlines(keepends=True) for text in _texts(finding, path))
    return "".join(difflib.unified_diff(before, after, f"a/{name}", f"b/{name}", n=0))
