"""What `Report` and `Finding` show of themselves: as text, in a notebook, as a web page.

`core.finding` loads this module by its name when somebody looks at one of them.
"""

from __future__ import annotations

import os
import tempfile
import webbrowser
from html import escape

from zerograd.core.finding import Finding, Report, Watched
from zerograd.core.usage_error import UsageError
from zerograd.launch.html_report import write_page
from zerograd.launch.known_fixes import with_known_fixes
from zerograd.report import html, html_fragment, text
from zerograd.report.timeline import Timeline
from zerograd.runtime.notebook_cells import running_shell
from zerograd.static.check_file import add_sources


def report_text(report: Report) -> str:
    """The report as the command prints it."""
    return text.render(report).rstrip("\n")


def report_fragment(report: Report) -> str:
    """The report as HTML for the output of a cell."""
    return html_fragment.render(report)


def finding_text(finding: Finding) -> str:
    """A finding as the command prints it, with its source if that can be read."""
    return text.block(finding, _around(finding)).rstrip("\n")


def finding_fragment(finding: Finding) -> str:
    """A finding as HTML for the output of a cell."""
    return html_fragment.finding(finding, _around(finding))


def page(report: Report, path: str | os.PathLike[str]) -> str:
    """Write the report as a web page; its path."""
    name = os.fspath(path)
    if os.path.isdir(name):
        raise IsADirectoryError(f"{name} is a directory; name a file for the page")
    try:
        write_page(_page(report), name)
    except UsageError as error:
        raise OSError(str(error)) from None
    return name


def show(report: Report) -> None:
    """Show the page: below the cell in a notebook, otherwise in the browser."""
    shell = running_shell()
    if getattr(shell, "kernel", None) is not None:
        from IPython.display import display

        inner = escape("".join(html.render(_page(report))), quote=True)
        frame = f'<iframe srcdoc="{inner}" style="width:100%;height:640px;border:0"></iframe>'
        bundle = {"text/html": frame, "text/plain": report_text(report)}
        display(bundle, raw=True)  # type: ignore[no-untyped-call]
        return
    handle, name = tempfile.mkstemp(prefix="zerograd-", suffix=".html")
    os.close(handle)
    page(report, name)
    if not webbrowser.open(f"file://{name}"):
        raise RuntimeError(f"no browser was found; the page is {name}")


def _around(finding: Finding) -> Report:
    report = Report([finding])
    add_sources(report)
    return report


def _page(report: Report) -> html.RunPage:
    """The page of a report. It has no timeline: that needs a recording of the events."""
    watched = report.watched
    numbers = list(range(len(report.findings)))
    if watched is None and report.loops is None and not report.files:
        watched = Watched()  # a watch that is still open
    ranks = [html.Rank("", None, Timeline(), watched, numbers)] if watched is not None else []
    shown = [html.Shown(one) for one in with_known_fixes(report.findings, report.sources)]
    return html.RunPage("", ranks, shown, report.errors, report.sources, report.files)
