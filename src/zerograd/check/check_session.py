"""One check, from the arguments of the command to its report.

It finds the files, takes their results from the cache or computes them, and reports the selected findings. A
result does not depend on the selection, so the cache is valid for every selection.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import chain
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Literal

from zerograd.check.baseline import Baseline
from zerograd.check.baseline import write as write_baseline
from zerograd.check.cache import Cache
from zerograd.check.changes import ChangedFunctions
from zerograd.check.discover import Discovery, Target, Targets, stamp_of
from zerograd.check.function_texts import Files
from zerograd.check.settings import DEFAULT, Settings
from zerograd.check.settings import load as load_settings
from zerograd.core.finding import Finding, Level, Problem, Report, SourceKey
from zerograd.core.records import dataclass, replace
from zerograd.rules.selection import Selection, UnknownRule, expand, resolve
from zerograd.static.check_file import (
    CLEAN,
    FileResult,
    add_sources,
    lines_of,
    result_for_bytes,
    result_for_file,
)
from zerograd.static.read.load import from_bytes
from zerograd.static.read.source import Unreadable

if TYPE_CHECKING:
    from zerograd.check.loop_verdicts import Grade, Seen
    from zerograd.core.rule import Page
    from zerograd.core.training_loop import Found
    from zerograd.fix.rewrite import Rewriter

Progress = Callable[[int, int], object]


@dataclass(frozen=True)
class CheckOptions:
    """The arguments of the command; None where the settings decide."""

    paths: tuple[str, ...]
    select: tuple[str, ...] | None = None
    ignore: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    pedantic: bool = False
    include_tests: bool = False
    jobs: int = 0
    cache: bool = True
    stdin: bytes | None = None
    stdin_filename: str = ""
    repair: Literal["", "show", "diff", "fix"] = ""
    """Fixes are: not computed, shown with their findings, shown as a diff, applied."""
    unsafe: bool = False
    explain: bool = False
    """Explain each training loop (`--why`), without the cache, which holds no explanations."""
    config: str | None = None
    """The file whose settings are used for all files."""
    fail_on: Literal["", "error", "advice"] = ""
    """What fails a check; without it, errors and advice that was selected by its code or name."""
    baseline: str | None = None
    write_baseline: str | None = None
    diff_base: str | None = None
    verbose: bool = False
    """The outcome says what the check has used."""


@dataclass(frozen=True)
class CheckOutcome:
    """The report of a check, and whether it failed."""

    report: Report
    failed: bool
    diff: bytes = b""
    """The changes, with `--diff`."""
    stdin: bytes | None = None
    """Standard input, repaired."""
    used: tuple[str, ...] = ()
    """What the check has used, if asked: settings, the cache."""

    @property
    def exit_code(self) -> int:
        """0 clean, 1 findings that fail a check or a diff, 2 something could not be checked."""
        return 2 if self.report.errors else int(self.failed or bool(self.diff))


def run(options: CheckOptions, progress: Progress) -> CheckOutcome:
    """Run a check.

    It raises `UsageError` for a rule, a baseline or a revision that does not exist or cannot be used.
    """
    collector = _Collector(options)
    memory = Cache(options.paths) if options.cache and not options.explain else None
    loader = memory.load_settings if memory else load_settings
    discovery = Discovery(
        options.exclude, include_tests=options.include_tests, loader=loader, config=options.config
    )
    # A named file is always read, even if it is also in a named directory that excludes it.
    for path in sorted(options.paths, key=os.path.isdir):
        if path != "-":
            discovery.add(path)
    found = discovery.found
    # `--why` shows no fixes: a rewritten text is checked again, without an account of its loops.
    shows_fixes = options.repair == "show" and not options.explain
    # To show fixes, what repairs is loaded only where a file has a finding.
    later = options.explain or (shows_fixes and options.stdin is None)
    rewriter = None if later else _rewriter(options)
    stdin = options.stdin
    if stdin is not None:
        settings = discovery.settings_above(
            os.path.dirname(os.path.abspath(options.stdin_filename))
        )
        stdin = _with_stdin(stdin, settings, options, rewriter, collector)
    used = _used(found.targets, memory) if options.verbose else ()
    results = _results(found.targets, memory, options, progress)
    if shows_fixes:
        _add_fixes(options, found.targets, results, collector, memory)
    elif rewriter is not None:
        results = _rewritten(rewriter, found.targets, results, collector)
    for number, target in enumerate(found.targets):
        # The loops and findings in a result are needed, the rest takes memory.
        result, results[number] = results[number], CLEAN
        if target.settings is not DEFAULT:
            collector.without_unknown(target.settings)
        if result.findings or result.problems or result.loops or result.skipped:
            collector.add(result, target.settings, target.path)
    if memory:
        memory.save()
    report = collector.report
    if len(report.findings) > 1:
        report.findings = _reported_once(report.findings)
    collector.add_loops(found.targets)
    report.files += len(found.targets)
    report.errors[:0] = found.problems
    if report.findings:
        add_sources(report)
    if options.write_baseline is not None:
        write_baseline(options.write_baseline, report.findings, collector.files)
        return CheckOutcome(report, failed=False, used=used)
    if rewriter is None:
        return CheckOutcome(report, collector.failed, used=used)
    report.fixed = rewriter.fixed if rewriter.mode != "show" else None
    return CheckOutcome(report, collector.failed, rewriter.diff, stdin, used)


def _with_stdin(
    stdin: bytes,
    settings: Settings,
    options: CheckOptions,
    rewriter: Rewriter | None,
    collector: _Collector,
) -> bytes:
    """Check what was read from standard input, and add it to the report; the text as it is after the repair."""
    name = options.stdin_filename or "<stdin>"
    result = result_for_bytes(stdin, name, explain=options.explain)
    if rewriter is not None and collector.any(result, settings):
        collector.files.give(name, _lines(name, stdin))
        reported = collector.reports(result, settings)
        stdin, result = rewriter.text(name, stdin, result, collector.wanted(settings), reported)
    lines = _lines(name, stdin)
    collector.files.give(name, lines)
    collector.report.sources.update(lines)
    collector.add(result, settings, name)
    collector.report.files += 1
    return stdin


def selected_report(
    result: FileResult, settings: Settings, path: str, options: CheckOptions
) -> Report:
    """The findings of one file that the options and the settings select."""
    collector = _Collector(options)
    collector.add(result, settings, path)
    return collector.report


def _used(targets: Targets, memory: Cache | None) -> tuple[str, ...]:
    """The files with settings, and how many files the cache knows."""
    settings = sorted({target.settings.path for target in targets} - {""})
    lines = [f"settings of {path}" for path in settings] or ["no settings: all defaults"]
    if memory is None:
        return (*lines, "no cache")
    known = sum(memory.knows(one.path, one.mtime, one.size) for one in targets)
    return (*lines, f"{known} of {len(targets)} files are unchanged since they were last checked")


def _lines(path: str, data: bytes) -> dict[SourceKey, list[str]]:
    try:
        return lines_of(from_bytes(data, path))
    except Unreadable:
        return {}


def _rewriter(options: CheckOptions) -> Rewriter | None:
    if not options.repair:
        return None
    from zerograd.fix.rewrite import Rewriter

    return Rewriter(options.repair, options.unsafe)


def _rewritten(
    rewriter: Rewriter, targets: Targets, results: list[FileResult], collector: _Collector
) -> list[FileResult]:
    """The results after the repair; files that depend on a repaired file are checked again."""
    left = list(results)
    for number, (target, result) in enumerate(zip(targets, results, strict=True)):
        if collector.any(result, target.settings):
            wanted = collector.wanted(target.settings)
            reported = collector.reports(result, target.settings)
            left[number] = rewriter.file(target.path, result, wanted, reported)
    for path, data in rewriter.repaired.items():
        collector.files.give(path, _lines(path, data))
    if rewriter.changed:
        for number, target in enumerate(targets):
            if not rewriter.changed.isdisjoint(map(os.path.abspath, left[number].depends)):
                left[number] = result_for_file(target.path, named=True)
    return left


def _add_fixes(
    options: CheckOptions,
    targets: Targets,
    results: list[FileResult],
    collector: _Collector,
    memory: Cache | None,
) -> None:
    """Give each reported finding that has no fix one; the cache remembers fixes, too."""
    rewriter: Rewriter | None = None
    for number, (target, result) in enumerate(zip(targets, results, strict=True)):
        if not result.findings:
            continue
        reports = collector.reports(result, target.settings) or collector.wanted(target.settings)
        without = [one for one in result.findings if not (one.fix or one.refused) and reports(one)]
        if not without or not _is_unchanged(target):
            continue  # or the result is for a text that is gone
        rewriter = rewriter or _rewriter(options)
        assert rewriter is not None
        with_fixes = rewriter.file(target.path, result, without.__contains__)
        results[number] = replace(result, findings=with_fixes.findings)
        if memory is not None:
            memory.put(target.path, target.mtime, target.size, results[number])


def _is_unchanged(target: Target) -> bool:
    try:
        status = os.stat(target.path)
    except OSError:
        return False
    return stamp_of(status) == (target.mtime, target.size)


def _results(
    targets: Targets, memory: Cache | None, options: CheckOptions, progress: Progress
) -> list[FileResult]:
    """The result for each file, from the cache if the file has not changed."""
    results = [CLEAN] * len(targets)
    unknown: Sequence[int] = range(len(targets))
    if memory is not None:
        known = [memory.get(one.path, one.mtime, one.size) for one in targets]
        results = [result or CLEAN for result in known]
        unknown = [number for number, result in enumerate(known) if result is None]
    if not unknown:
        return results
    from zerograd.check.workers import Job, check_all

    # With a baseline, or a revision to compare with, most findings are not reported.
    hides = options.baseline is not None or options.diff_base is not None
    fixes = options.repair == "show" and not options.explain and not hides

    def check(numbers: Sequence[int], *, parse: bool) -> None:
        def job(at: int) -> Job:
            target = targets[numbers[at]]
            stamp = (target.mtime, target.size) if fixes else None
            return Job(target.path, target.named or parse, options.explain, stamp)

        made = check_all(job, len(numbers), options.jobs or _cores(), progress)
        for number, result in zip(numbers, made, strict=True):
            results[number] = result
            if memory is not None:
                target = targets[number]
                memory.put(target.path, target.mtime, target.size, result)

    check(unknown, parse=False)
    if any(result.unparsed for result in results):
        from zerograd.check.drivers import drivers

        given = zip(targets, results, strict=True)
        found = set(drivers({one.path: v for one, v in given if v.unparsed or v.exports}))
        repeating = [at for at, target in enumerate(targets) if target.path in found]
        unread = {at: results[at] for at in repeating}
        check(repeating, parse=True)
        for at in repeating:
            # A file that was not named on the command line and does not parse stays as it was.
            if any(problem.skippable for problem in results[at].problems):
                results[at] = unread[at]
    return results


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _reported_once(findings: list[Finding]) -> list[Finding]:
    """The findings, without those inside of a helper that are also reported at its call in the loop.

    The file of the loop knows only the name of the helper; the file that hands it over knows its code.
    """
    calls: dict[tuple[str, str], list[Finding]] = {}
    for one in findings:
        if any(note.site == one.site for note in one.notes):
            calls.setdefault((one.code, one.site.path), []).append(one)
    if not calls:
        return findings
    return [
        one
        for one in findings
        if not any(
            note.site.path != one.site.path
            and note.site.line <= call.site.line <= note.site.end_line
            for note in one.notes
            for call in calls.get((one.code, note.site.path), ())
        )
    ]


class _Collector:
    """Collects the selected findings in one report."""

    def __init__(self, options: CheckOptions) -> None:
        self.report = Report()
        self.failed = False
        self._options = options
        self._without_unknown: dict[Settings, Settings] = {}
        self._selections: dict[object, Selection | None] = {}
        self._seen: dict[tuple[str, object], bool] = {}
        """The findings that were seen, and whether each is certain."""
        self._loops: list[Seen] = []
        self._baseline = None if options.baseline is None else Baseline(options.baseline)
        self._changes = None if options.diff_base is None else _changes(options.diff_base, options)
        self._severities: dict[Settings, dict[str, str]] = {}
        for selector in (*(options.select or ()), *options.ignore):
            expand(selector, _pages())

    @cached_property
    def files(self) -> Files:
        """The lines around findings, which baselines and changes compare."""
        return Files()

    def add(self, result: FileResult, settings: Settings, path: str) -> None:
        """Add the findings of one file that the command line and the settings select."""
        for problem in result.problems:
            if self._changes is None or self._changes.touch_file(problem.path):
                self.report.errors.append(problem)
            else:
                self.report.unchanged += 1
        self.report.skipped += result.skipped
        if result.loops:
            self._loops.append((path, settings, result.loops))
        for finding in result.findings:
            # Two files that call the same function both have its findings; one may be certain of it.
            same = (finding.code, finding.site)
            certain = self._seen.get(same)
            if certain or certain is finding.certain or not self.wants(finding, settings):
                continue
            self._seen[same] = finding.certain
            if certain is None:
                if self._is_hidden(finding):
                    continue
            else:
                kept = [one for one in self.report.findings if (one.code, one.site) != same]
                if len(kept) == len(self.report.findings):
                    continue  # it is hidden
                self.report.findings[:] = kept
            level = self._level(finding, settings)
            self.failed |= self._fails(finding, level, settings)
            if not self._options.repair and (finding.fix is not None or finding.refused):
                # The cache may know a fix: with and without it, the report is the same.
                finding = replace(finding, fix=None, refused="")
            pages = settings.rule_pages.rstrip("/")
            if pages or level != finding.level:
                url = f"{pages}/{finding.code}.html" if pages else ""
                finding = replace(finding, level=level, url=url)
            self.report.findings.append(finding)

    def reports(self, result: FileResult, settings: Settings) -> Callable[[Finding], bool] | None:
        """Which findings of a result are reported; None means all that are selected."""
        if self._changes is None and self._baseline is None:
            return None
        baseline = None if self._baseline is None else self._baseline.copy()
        shown = {
            (one.code, one.site)
            for one in result.findings
            if self.wants(one, settings)
            if self._changes is None or self._changes.touch(one, self.files)
            if baseline is None or not baseline.take(one, self.files)
        }
        return lambda finding: (finding.code, finding.site) in shown

    def _is_hidden(self, finding: Finding) -> bool:
        """Whether a finding is counted only: nothing near it has changed, or a baseline knows it."""
        if self._changes is not None and not self._changes.touch(finding, self.files):
            self.report.unchanged += 1
            return True
        known = self._baseline is not None and self._baseline.take(finding, self.files)
        self.report.known += known
        return known

    def _level(self, finding: Finding | Found, settings: Settings) -> Level:
        """What the rule of a finding counts for: the settings decide, or else the rule."""
        level = self._severity(settings).get(finding.code, finding.level)
        return "error" if level == "error" else "advice"

    def _severity(self, settings: Settings) -> dict[str, str]:
        """The severities that the settings give, by code; a narrow name is stronger than a wide one."""
        if not settings.severity:
            return {}
        known = self.without_unknown(settings)
        if known not in self._severities:
            graded = [(expand(selector, _pages()), level) for selector, level in known.severity]
            graded.sort(key=lambda one: -len(one[0]))
            self._severities[known] = {code: level for codes, level in graded for code in codes}
        return self._severities[known]

    def _fails(self, finding: Finding | Found, level: Level, settings: Settings) -> bool:
        """Whether a finding fails the check."""
        if level == "error" or self._options.fail_on:
            return level == "error" or self._options.fail_on == "advice"
        selection = self._selection(finding.site.path, self.without_unknown(settings))
        return selection is not None and finding.code in selection.explicit

    def add_loops(self, targets: Targets) -> None:
        """Add the verdicts on the training loops of the checked files."""
        from zerograd.check.loop_verdicts import verdicts

        checked = chain(map(itemgetter(0), self._loops), map(attrgetter("path"), targets))
        self.report.loops = verdicts(self._loops, checked, self.report.findings, self._grade)

    def _grade(self, settings: Settings, found: Found) -> Grade:
        """What a finding in a training loop counts for, whether a comment allows it or not."""
        settings = self.without_unknown(settings)
        selection = self._selection(found.site.path, settings)
        if selection is not None and found.code not in selection.codes:
            return ""
        if self._severity(settings).get(found.code) == "off":
            return ""
        if not (found.certain or self._options.pedantic or settings.pedantic):
            return "possible"
        level = self._level(found, settings)
        return "wrong" if self._fails(found, level, settings) else "advice"

    def wants(self, finding: Finding, settings: Settings) -> bool:
        """Whether the command line and the settings select a finding."""
        if not (finding.certain or self._options.pedantic or settings.pedantic):
            return False
        if self._severity(settings).get(finding.code) == "off":
            return False
        selection = self._selection(finding.site.path, self.without_unknown(settings))
        return selection is None or finding.code in selection.codes

    def wanted(self, settings: Settings) -> Callable[[Finding], bool]:
        """`wants`, under these settings."""
        return lambda finding: self.wants(finding, settings)

    def any(self, result: FileResult, settings: Settings) -> bool:
        """Whether any finding of a result is selected."""
        return any(self.wants(finding, settings) for finding in result.findings)

    def _selection(self, path: str, settings: Settings) -> Selection | None:
        """The selected rules for a file; None means all."""
        select = self._options.select if self._options.select is not None else settings.select
        ignore = (*self._options.ignore, *settings.ignored_in(path))
        if select is None and not ignore:
            return None
        key = (select, ignore)
        if key not in self._selections:
            self._selections[key] = resolve(select, ignore, _pages())
        return self._selections[key]

    def without_unknown(self, settings: Settings) -> Settings:
        """The settings without unknown rules. Each unknown rule is reported, once."""
        if settings not in self._without_unknown:
            by_file = settings.per_file_ignores
            self._without_unknown[settings] = replace(
                settings,
                select=settings.select and (self._known(settings.select, settings) or None),
                ignore=self._known(settings.ignore, settings),
                per_file_ignores=tuple((one, self._known(n, settings)) for one, n in by_file),
                severity=tuple(
                    (selector, level)
                    for selector, level in settings.severity
                    if self._known([selector], settings)
                ),
            )
        return self._without_unknown[settings]

    def _known(self, selectors: Iterable[str], settings: Settings) -> tuple[str, ...]:
        known = []
        for selector in selectors:
            try:
                expand(selector, _pages())
                known.append(selector)
            except UnknownRule as error:
                message = f"[tool.zerograd] {error}; it is not used"
                self.report.errors.append(Problem(settings.path, message))
        return tuple(known)


def _changes(revision: str, options: CheckOptions) -> ChangedFunctions:
    """What differs from a revision, in the repository of the first path."""
    first = os.path.abspath(next((path for path in options.paths if path != "-"), "."))
    return ChangedFunctions(revision, first if os.path.isdir(first) else os.path.dirname(first))


def _pages() -> tuple[Page, ...]:
    """All rules. They are loaded only if a rule is named: many checks just read the cache."""
    from zerograd.rules.catalogue import PAGES

    return PAGES
