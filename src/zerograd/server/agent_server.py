"""Tools for coding agents, by the Model Context Protocol on standard input and output.

Each tool calls the function that the command of the same name calls. A check uses one process: a server
has threads, and a fork of them is not safe.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from zerograd import __version__
from zerograd.check import check_session
from zerograd.check.check_session import CheckOptions, CheckOutcome
from zerograd.core.usage_error import UsageError
from zerograd.learn.explanation import explanation
from zerograd.report import agent
from zerograd.report.text import remaining

T = TypeVar("T")
_ABOUT = (
    "Finds gradient bugs in PyTorch training loops. After you write or change a training loop, call check on the"
    " file. Apply the edits it shows, or call fix; call explain for a rule that you do not know."
)


def serve() -> int:
    """Serve one client until it ends; the exit code."""
    server = MCPServer("zerograd", version=__version__, instructions=_ABOUT, log_level="WARNING")
    for tool in (check, explain, fix):
        server.tool()(tool)
    server.run("stdio")
    return 0


def check(
    paths: list[str],
    select: list[str] | None = None,
    pedantic: bool = False,
    diff_base: str | None = None,
) -> str:
    """Check Python files, notebooks or directories for gradient bugs, without running them.

    Returns a paragraph per finding: place, rule, reason, what to do, and the exact edit as a diff.
    `select` names rules (ZG101, stale-gradient, or ZG1 for all of ZG1xx), `pedantic` adds findings that are only
    possible, and `diff_base` (a git revision) leaves out functions that have not changed since.
    """
    return agent.render(_run(paths, select, pedantic, diff_base, repair="show").report)


def explain(rule: str | None = None) -> str:
    """Explain a rule by its code or name, with a bad and a good example; without a rule, list all rules."""
    return _refusing(lambda: explanation(rule))


def fix(
    paths: list[str],
    select: list[str] | None = None,
    unsafe: bool = False,
    preview: bool = False,
) -> str:
    """Repair the findings of `check` in the files: safe fixes, with `unsafe` also those to review.

    With `preview` it returns the diff and changes nothing. A second check has proved every fix.
    """
    outcome = _run(paths, select, repair="diff" if preview else "fix", unsafe=unsafe)
    report = outcome.report
    done = f"{'would fix' if preview else 'fixed'} {report.fixed or 0}, {remaining(report)}\n"
    left = agent.render(report) if report.findings or report.errors else ""
    diff = outcome.diff.decode("utf-8", "replace")
    return "\n".join(part for part in (diff, done, left) if part)


def _run(
    paths: list[str],
    select: list[str] | None,
    pedantic: bool = False,
    diff_base: str | None = None,
    **repair: object,
) -> CheckOutcome:
    if not paths:
        raise ToolError("name at least one file or directory")
    missing = [path for path in paths if not os.path.exists(path)]
    if missing:
        raise ToolError(f"there is no {', '.join(missing)} in {os.getcwd()}")
    options = CheckOptions(
        tuple(paths),
        select=tuple(select) if select else None,
        pedantic=pedantic,
        jobs=1,
        diff_base=diff_base,
        **repair,  # type: ignore[arg-type]
    )
    return _refusing(lambda: check_session.run(options, lambda *_: None))


def _refusing(call: Callable[[], T]) -> T:
    """What a call returns; what the command line refuses is an error of the tool."""
    try:
        return call()
    except UsageError as error:
        raise ToolError(str(error)) from None
