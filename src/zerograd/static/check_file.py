"""One file from bytes to findings: read, parse, analyse, leave out what comments allow.

Nothing of it is ever run, and what could not be read or was cut short becomes a `Problem`, never an exception.
"""

from __future__ import annotations

import ast
import contextlib
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from zerograd.core.finding import CellKey, Finding, Problem, Report, SourceKey
from zerograd.core.records import dataclass, replace
from zerograd.core.training_loop import TrainingLoop
from zerograd.static.read.load import from_bytes, from_text, read, read_bytes
from zerograd.static.read.outline import Outlines, import_lines, outlined
from zerograd.static.read.prefilter import worth_parsing
from zerograd.static.read.source import Source, Unreadable, parse
from zerograd.static.time_limit import TOO_LONG, Overrun, time_limit

if TYPE_CHECKING:
    from zerograd.static.reuse import FileMemory

_MARK = "zerograd:"
"""A text without it holds no allow comment."""


@dataclass(frozen=True)
class FileResult:
    """All that is known about one file, whatever the user selects: what the cache remembers."""

    findings: tuple[Finding, ...] = ()
    problems: tuple[Problem, ...] = ()
    depends: tuple[str, ...] = ()
    """The other files and folders that the result depends on."""
    lasting: bool = True
    """Whether the same bytes would get the same result again."""
    loops: tuple[TrainingLoop, ...] = ()
    """The training loops that the file leads to."""
    skipped: tuple[Problem, ...] = ()
    """Why the file was left out."""
    exports: tuple[bytes, ...] = ()
    """The names through which a file that imports them reaches a step."""
    unparsed: bytes = b""
    """The import statements of a file that was not parsed: it may lead to the steps of other files."""


CLEAN = FileResult()


def check_file(path: str | os.PathLike[str], *, pedantic: bool = False) -> Report:
    """Check one Python file or notebook; possible findings only when `pedantic`."""
    return _report(lambda: read(path), pedantic)


def check_text(text: str, path: str = "<text>", *, pedantic: bool = False) -> Report:
    """Check a text as if it were at `path`, where imports of its project are looked up."""
    return _report(lambda: from_text(text, path), pedantic)


def check_cells(cells: Sequence[tuple[int, str]], path: str) -> Report:
    """Check code cells, given with their numbers, as one program; in bounded time.

    More cells may follow, so no allow comment is called unused.
    """
    from zerograd.static.read.notebooks import from_cells

    try:
        with time_limit():
            return _report(lambda: from_cells(cells, path), pedantic=False, whole=False)
    except Overrun:
        return Report(errors=[Problem(path, TOO_LONG)], files=1)


def result_for_file(
    path: str,
    *,
    named: bool = False,
    begin: Callable[[], object] | None = None,
    explain: bool = False,
) -> FileResult:
    """The result for a file of the disk; `begin` is called before the file is parsed.

    Only a file that the user has named is parsed whatever its bytes say. `explain` accounts for each
    training loop.
    """
    try:
        data = read_bytes(path)
    except Unreadable as error:
        return FileResult(problems=(error.problem,), lasting=False)
    notebook = path.endswith(".ipynb")
    if not named and not worth_parsing(data, notebook=notebook):
        lines = b"\n".join(import_lines(data)) if not notebook else b""
        return FileResult(unparsed=lines) if lines else CLEAN
    if begin is not None:
        begin()
    result = result_for_bytes(data, path, explain=explain)
    if named or not any(problem.skippable for problem in result.problems):
        return result
    return replace(result, problems=(), skipped=result.problems)


def result_for_bytes(
    data: bytes, path: str, *, explain: bool = False, memory: FileMemory | None = None
) -> FileResult:
    """The result for a file that holds these bytes: in bounded time, and without an exception.

    With a memory of the file's earlier texts it has the findings and the problems alone.
    """
    try:
        with time_limit():
            result = _result(from_bytes(data, path), explain, memory)
            if memory is not None or path.endswith(".ipynb"):
                return result
            exports = _exports(data, path)
            return replace(result, exports=exports) if exports else result
    except Unreadable as error:
        return FileResult(problems=(error.problem,))
    except Overrun:
        from zerograd.static.read.project import forget_modules

        forget_modules()
        # A machine that is less busy may be fast enough.
        return FileResult(problems=(Problem(path, TOO_LONG),), lasting=False)
    except Exception as error:  # noqa: BLE001 (our own bug in one file must not lose the others)
        return FileResult(problems=(Problem(path, _bug(error)),))


def _exports(data: bytes, path: str) -> tuple[bytes, ...]:
    """The functions and classes of a file that lead to one of its own steps."""
    if b"def " not in data and b"class " not in data:
        return ()
    outline = outlined(data, path)
    return tuple(Outlines(0).exports(outline)) if outline.steps else ()


def _bug(error: Exception) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = ""
    if trace is not None:
        where = f" in {os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}"
    return f"was not checked: zerograd failed{where} ({error!r}); report this as a bug in zerograd"


def _result(
    source: Source,
    explain: bool = False,
    memory: FileMemory | None = None,
    *,
    whole: bool = True,
) -> FileResult:
    """Every finding that no comment allows, with its place as the user sees it."""
    from zerograd.static.analyse import analyse

    problems = list(source.problems)
    try:
        analysis = analyse(source, explain=explain, memory=memory)
    except Unreadable as error:
        return FileResult(problems=(*problems, error.problem))
    except (RecursionError, MemoryError):
        message = "is nested too deeply to be followed and was not checked; split it, or exclude it"
        return FileResult(problems=(*problems, Problem(source.path, message)))
    if analysis.cut:
        message = f"was checked only in part ({analysis.cut}); split it, or exclude it"
        problems.append(Problem(source.path, message))
    findings = list(analysis.findings)
    if findings or _MARK in source.text:
        findings = _as_reported(
            source, analysis.tree, findings, complete=whole and not analysis.cut
        )
    loops = analysis.loops
    own_ascii = source.cells is None and source.text.isascii() and not analysis.depends
    if loops and not own_ascii:  # else all positions are already as the user sees them
        from zerograd.static.read.positions import PositionMap

        loops = list(map(PositionMap(source).loop_as_seen, loops))
    return FileResult(
        tuple(findings),
        tuple(problems),
        tuple(analysis.depends),
        loops=tuple(loops),
    )


def _as_reported(
    source: Source, tree: ast.Module, findings: list[Finding], *, complete: bool
) -> list[Finding]:
    """The findings that no comment allows, with places as the user sees them; and unused allows."""
    from zerograd.core import suppressions
    from zerograd.rules import unused_allow
    from zerograd.static.read.positions import PositionMap, in_cell

    places = PositionMap(source)
    findings = [places.as_seen(finding) for finding in findings]
    for path in {finding.site.path for finding in findings} - {source.path}:
        # A finding may be in a function of another file: then that file's comments count.
        with contextlib.suppress(Unreadable):
            other = read(path)
            if _MARK in other.text:
                allows = suppressions.find_allows(other.text, path, parse(other), _known())
                findings = suppressions.apply(findings, allows)
    if _MARK in source.text:
        allows = suppressions.find_allows(source.text, source.path, tree, _known())
        findings = suppressions.apply(findings, allows)
        findings += unused_allow.check(allows, _known("runtime")) if complete else []
    findings.sort(key=lambda f: (f.site.path, f.site.line, f.site.column, f.code))
    return [in_cell(one, source) for one in findings] if source.cells is not None else findings


def _known(only: str = "") -> set[str]:
    """The codes and names of the rules, or of those that only one reader sees."""
    from zerograd.rules.catalogue import RULES

    rules = [rule for rule in RULES if only in ("", rule.only)]
    return {name for rule in rules for name in (rule.code, rule.name)}


def _report(read_source: Callable[[], Source], pedantic: bool, *, whole: bool = True) -> Report:
    try:
        source = read_source()
    except Unreadable as error:
        return Report(errors=[error.problem], files=1)
    result = _result(source, whole=whole)
    findings = [finding for finding in result.findings if finding.certain or pedantic]
    report = Report(findings, list(result.problems), files=1)
    if findings:
        report.sources.update(lines_of(source))
        add_sources(report)
    return report


def add_sources(report: Report) -> None:
    """Read the files that the findings point into and that the report does not hold yet."""
    held = {key.path if isinstance(key, CellKey) else key for key in report.sources}
    for finding in report.findings:
        for site in (finding.site, *(note.site for note in finding.notes)):
            if site.path in held:
                continue
            held.add(site.path)
            try:
                report.sources.update(lines_of(read(site.path)))
            except Unreadable:
                # The finding is reported without an excerpt.
                continue


def lines_of(source: Source) -> dict[SourceKey, list[str]]:
    """The source as a report keeps it for excerpts."""
    if source.cells is None:
        return {source.path: source.lines}
    return {CellKey(source.path, cell.number): list(cell.lines) for cell in source.cells}
