"""What `pytest --zerograd` does around each test.

It never imports torch: a test is watched once something else has imported torch.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from typing import Any, cast

import pytest

from zerograd.core.finding import Finding, Report
from zerograd.launch.launch import Finder
from zerograd.report import text
from zerograd.rules.catalogue import RULES
from zerograd.rules.selection import UnknownRule, expand
from zerograd.runtime.engine import Engine
from zerograd.runtime.patches import Unsupported
from zerograd.runtime.watch import GradientError, Watch

_WATCHED = "zerograd_watched"
"""The attribute of a test report that says what was watched. It has to be plain data for pytest-xdist."""
_SEEN = pytest.StashKey[Report]()
"""What was found in a test."""
JUDGES_ITSELF = pytest.StashKey[bool]()
"""Whether the test asks for `gradient_report`: then it decides itself what a finding means."""


class WatchedTests:
    """Starts a watch before the set-up of each test, and stops it after its call.

    Torch stays patched from one watched test to the next, but not in a test that is not watched.
    """

    def __init__(self) -> None:
        self._finder = Finder(self)
        self._watch: Watch | None = None
        """The watch of the test that runs."""
        self._problem = ""
        """Why tests cannot be watched."""
        self._tests = 0
        self._steps = 0
        self._advice: dict[str, None] = {}
        """What does not fail a test: advice, and problems of zerograd."""

    def pytest_sessionstart(self) -> None:
        """Notice the import of torch."""
        sys.meta_path.insert(0, self._finder)

    def pytest_unconfigure(self) -> None:
        """Leave everything as it was."""
        self._finder.leave()
        Engine.stay_patched(False)

    def torch_imported(self) -> None:
        """Something has imported torch."""
        if self._watch is not None:
            self._start(self._watch)

    def torch_missing(self) -> None:
        """There is nothing to watch without torch."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Watch the fixtures of a test, too: many of them train."""
        self._watch = watch = _watch_of(item)
        if "torch" in sys.modules:
            Engine.stay_patched(watch is not None)
            if watch is not None:
                self._start(watch)
        if self._problem:
            pytest.fail(self._problem, pytrace=False)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Run a test, and fail it if there are findings."""
        try:
            result = yield
        except BaseException:
            report = self._stop(item, clean=False)
            if report is not None and report.findings:
                item.add_report_section("call", "zerograd", _text(report.findings, report))
            raise
        report = self._stop(item, clean=True)
        if report is not None and not item.stash.get(JUDGES_ITSELF, False):
            errors = [one for one in report.findings if one.level == "error"]
            if errors:
                raise _failure(errors, report)
        return result

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        """End the watch of a test whose set-up has failed."""
        self._stop(item, clean=False)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Say in the report of a test what was watched."""
        made = yield
        seen = item.stash.get(_SEEN, None)
        if made.when == "call" and seen is not None:
            advice = [one for one in seen.findings if one.level == "advice"]
            lines = [_text(advice, seen)] if advice else []
            lines += [one.message for one in seen.errors]
            steps = seen.watched.steps if seen.watched else 0
            setattr(made, _WATCHED, {"steps": steps, "advice": lines})
        return made

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count what was watched, in the process that prints the result."""
        seen = getattr(report, _WATCHED, None)
        if seen is not None:
            self._tests += 1
            self._steps += seen["steps"]
            self._advice.update(dict.fromkeys(seen["advice"]))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say how much was watched, and what does not fail a test."""
        lines = [line for text in self._advice for line in (*text.splitlines(), "")]
        tests = f"{self._tests} test{'' if self._tests == 1 else 's'}"
        steps = f"{self._steps} optimizer step{'' if self._steps == 1 else 's'}"
        if lines:
            terminalreporter.section("zerograd: advice")
            for line in lines:
                terminalreporter.write_line(line)
        terminalreporter.write_line(f"zerograd watched {tests}, {steps}")

    def _start(self, watch: Watch) -> None:
        try:
            watch.start()
        except Unsupported as error:
            self._problem = f"zerograd: {error}; run pytest without --zerograd"

    def _stop(self, item: pytest.Item, *, clean: bool) -> Report | None:
        """End the watch of the test that runs."""
        watch, self._watch = self._watch, None
        if watch is None:
            return None
        item.stash[_SEEN] = report = watch.stop(clean=clean)
        return report


class _TestWatch(Watch):
    """A watch that logs nothing: pytest would show each finding a second time, below the failure."""

    def _announce(self, finding: Finding) -> None:
        pass


def _watch_of(item: pytest.Item) -> Watch | None:
    """A watch for what the marks of a test do not allow; None if they allow everything."""
    allowed_codes: set[str] = set()
    for mark in item.iter_markers("zerograd"):
        allowed = mark.kwargs.get("allow", ())
        if mark.args or set(mark.kwargs) - {"allow"} or not _is_list(allowed):
            pytest.fail("the mark is written zerograd(allow=[names of rules])", pytrace=False)
        for rule in allowed:
            try:
                allowed_codes |= expand(rule, RULES)
            except UnknownRule as error:
                problem = str(error)
            else:
                continue
            pytest.fail(f"the mark zerograd of this test: {problem}", pytrace=False)
    if not allowed_codes:
        # To choose among the rules takes longer than to begin a watch.
        return _TestWatch("collect", searches=False, sums_up=False)
    codes = {rule.code for rule in RULES} - allowed_codes
    return _TestWatch("collect", sorted(codes), searches=False, sums_up=False) if codes else None


def _is_list(value: object) -> bool:
    return isinstance(value, (list, tuple, set)) and all(isinstance(one, str) for one in value)


def _text(findings: list[Finding], report: Report) -> str:
    return "\n".join(text.block(one, report).rstrip("\n") for one in findings)


def _failure(findings: list[Finding], report: Report) -> BaseException:
    """A `GradientError` that pytest shows without a traceback, which would be about zerograd."""
    failed: type[BaseException] = pytest.fail.Exception
    kind = type("GradientError", (failed, GradientError), {"__module__": "zerograd"})
    error = cast("BaseException", BaseException.__new__(kind))
    GradientError.__init__(cast("GradientError", error), *findings)
    vars(error).update(msg=_text(findings, report), pytrace=False)
    return error
