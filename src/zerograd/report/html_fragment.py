"""A report as a piece of HTML for the output of a notebook cell.

It brings its own style. Where a viewer removes that, the text is still in order.
"""

from __future__ import annotations

from collections.abc import Iterator

from zerograd.core.events import Site
from zerograd.core.finding import Finding, Report
from zerograd.core.help_text import helped
from zerograd.report.html_excerpt import escaped, excerpt
from zerograd.report.location import where, where_problem
from zerograd.report.text import seen, summary

_STYLE = """\
<style>
.zerograd{font:13px/1.5 system-ui,sans-serif;border-left:3px solid #8a8f98;padding:2px 0 2px 12px;margin:6px 0}
.zerograd.error{border-color:#d1242f}.zerograd.advice{border-color:#bf8700}.zerograd.clean{border-color:#1a7f37}
.zerograd p{margin:2px 0}.zerograd code{font:12px/1.5 ui-monospace,monospace;background:none}
.zerograd .code{font-weight:600}.zerograd .place,.zerograd .quiet{opacity:.75}
.zerograd ol{margin:4px 0;padding-left:4em}.zerograd li code{white-space:pre}
.zerograd mark{background:#d1242f33;color:inherit}.zerograd mark.there{background:#0969da33}
.zerograd em{font-style:normal;opacity:.75;margin-left:1em}
</style>"""


def render(report: Report, closing: str | None = None) -> str:
    """The findings, what could not be checked, and one line with the result, or another one instead."""
    lines = [_STYLE, *(part for one in report.findings for part in _finding(one, report))]
    for problem in report.errors:
        lines.append(
            f"<div class='zerograd advice'><p><code>{escaped(where_problem(problem))}</code> "
            f"{escaped(problem.message)}</p></div>"
        )
    last = summary(report) if closing is None else closing
    if last:
        said = "<br>".join(map(escaped, last.splitlines()))
        kind = "quiet" if report.findings or report.errors else "clean"
        lines.append(f"<div class='zerograd {kind}'><p>zerograd {said}</p></div>")
    return "\n".join(lines)


def finding(one: Finding, report: Report) -> str:
    """One finding alone."""
    return "\n".join([_STYLE, *_finding(one, report)])


def _finding(one: Finding, report: Report) -> Iterator[str]:
    often = seen(one)
    yield (
        f"<div class='zerograd {one.level}'><p><span class=code>{escaped(one.code)}</span> "
        f"<b>{escaped(one.name)}</b>{'' if one.certain else ' (possible)'}: {escaped(one.message)}</p>"
        f"<p class=place>{_place(one.site)}{f', seen {escaped(often)}' if often else ''}</p>"
    )
    yield from excerpt(one, report.sources)
    if one.when:
        yield f"<p class=place>when <code>{escaped(' and '.join(one.when))}</code></p>"
    if one.help:
        yield f"<p><b>help</b> {escaped(helped(one, report.sources))}</p>"
    yield "</div>"


def _place(site: Site) -> str:
    if site.cell is None:
        return f"<code>{escaped(where(site))}</code>"
    return f"{escaped(site.path)}, cell {site.cell}, line {site.line}"
