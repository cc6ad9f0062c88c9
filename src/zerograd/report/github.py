"""Workflow commands: findings as annotations on the changed lines of a pull request.

Characters that would end a value or begin another one are escaped.
"""

from __future__ import annotations

from zerograd.core.events import Site
from zerograd.core.finding import Report
from zerograd.core.help_text import with_help
from zerograd.report.location import visible

_LEVELS = {"error": "error", "advice": "warning"}


def render(report: Report, *, color: bool = False) -> str:
    """One workflow command for each finding and each file that could not be checked."""
    lines = []
    for finding in report.findings:
        title = f"{finding.code} {finding.name}"
        text = with_help(finding, report.sources)
        place = _place(finding.site)
        if finding.site.cell is not None:
            text = f"cell {finding.site.cell}, line {finding.site.line}: {text}"
        lines.append(_command(_LEVELS[finding.level], {**place, "title": title}, text))
    for problem in report.errors:
        spot: dict[str, object] = {"file": problem.path, "line": problem.line, "title": "zerograd"}
        lines.append(_command("error", spot, f"{problem.path} {problem.message}"))
    return "".join(f"{line}\n" for line in lines)


def _place(site: Site) -> dict[str, object]:
    # A line number in a cell is not a line number of the notebook's file.
    if site.cell is not None:
        return {"file": site.path}
    place: dict[str, object] = {"file": site.path, "line": site.line, "col": site.column}
    if site.end_line:
        place["endLine"] = site.end_line
        # Columns are only understood within one line.
        if site.end_line == site.line:
            place["endColumn"] = site.end_column
        else:
            del place["col"]
    return place


def _command(level: str, properties: dict[str, object], text: str) -> str:
    given = [f"{name}={_property(str(v))}" for name, v in properties.items() if v is not None]
    return f"::{level} {','.join(given)}::{_data(text)}"


def _data(text: str) -> str:
    lines = text.replace("%", "%25").replace("\r", "%0D").split("\n")
    return "%0A".join(map(visible, lines))


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
