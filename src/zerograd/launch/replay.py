"""Judges a recording again, without torch: its findings, and a timeline of the run for the page."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from zerograd.core import suppressions
from zerograd.core.events import Event
from zerograd.core.finding import Finding, Place, Report, SourceKey, Watched, source_key
from zerograd.core.usage_error import UsageError
from zerograd.fold.judge import Judge, Track
from zerograd.launch.run_session import run_selection
from zerograd.recording.reader import Played, Progress, replay
from zerograd.report.timeline import Timeline
from zerograd.rules.catalogue import RULES
from zerograd.rules.selection import Selection
from zerograd.static.check_file import add_sources, lines_of
from zerograd.static.read.load import from_text
from zerograd.static.read.source import Unreadable

MOST_SUBJECTS = 2048
"""The largest number of subjects at a time. A program that makes more drops old optimizers too."""


_STREAKS = frozenset(rule.code for rule in RULES if rule.in_a_row > 1)
"""Rules about all steps of a subject from one on, which only the end of the run shows."""


@dataclass
class Replayed:
    """The result of a replay."""

    path: str
    report: Report
    selection: Selection
    played: Played
    timeline: Timeline | None = None


def judged(
    path: str,
    select: Iterable[str] | None,
    ignore: Iterable[str],
    timeline: Timeline | None = None,
    progress: Progress | None = None,
) -> Replayed:
    """Judge a recording. Raises `UsageError` if that cannot start."""
    selection = run_selection(select, ignore)
    judging = _Judging(selection, timeline)
    try:
        norms = None if timeline is None else timeline.norms
        played = replay(path, judging.post, norms, progress)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    judging.end(played)
    report = judging.judge.report
    report.findings = [
        replace(one, optimizer=played.called.get(one.subject, "")) for one in report.findings
    ]
    report.errors += played.problems
    report.sources |= _in_cells(played.sources)
    report.watched = _watched(judging.judge, selection, played)
    add_sources(report)
    done = Replayed(path, report, selection, played, timeline)
    _silence(done)
    return done


class _Judging:
    """Passes events to the judge, and the results to the timeline."""

    def __init__(self, selection: Selection, timeline: Timeline | None) -> None:
        rules = [rule for rule in RULES if rule.code in selection.codes]
        self.judge = Judge(rules, self._mark)
        self._timeline = timeline
        self._places: dict[Place, int] = {}
        self._broken: list[int] = []
        self._late: list[Finding] = []
        """The findings with these numbers; at the end, those that the end of the run has shown."""
        self._tracks: dict[str, Track] = {}

    def post(self, subject: str, event: Event) -> None:
        track = self._tracks.get(subject) or self._welcome(subject)
        self.judge.post(track, event)
        if self._timeline is not None:
            self._timeline.add(subject, event, track.node.grads, tuple(self._broken))
        if self._broken:
            self._broken.clear()
            self._late.clear()

    def end(self, played: Played) -> None:
        self._late.clear()
        self.judge.end(clean=played.clean)
        if self._timeline is not None:
            last = tuple(self._places[one.place] for one in self._late if one.code not in _STREAKS)
            if last:
                self._timeline.mark_last(last)
            self._timeline.close()
            for one in self._late:
                if one.code in _STREAKS:
                    first = one.site.iteration or 1
                    self._timeline.mark_steps(one.subject, first, self._places[one.place])
            for lane in self._timeline.lanes:
                lane.title, _ = played.titles.get(lane.name, (lane.title, 0))
                lane.called = played.called.get(lane.name, lane.called)
                windows = self.judge.track(lane.name).windows
                lane.windows = dict(sorted(windows.counts.items()))

    def _mark(self, finding: Finding) -> None:
        number = self._places.setdefault(finding.place, len(self._places))
        self._broken.append(number)
        self._late.append(finding)

    def _welcome(self, subject: str) -> Track:
        if len(self._tracks) >= MOST_SUBJECTS:
            shown = {lane.name for lane in self._timeline.lanes} if self._timeline else set()
            for old in [one for one in self._tracks if one not in shown][: MOST_SUBJECTS // 2]:
                del self._tracks[old]
                self.judge.forget(old)
        track = self._tracks[subject] = self.judge.track(subject)
        return track


def _watched(judge: Judge, selection: Selection, played: Played) -> Watched:
    """What was watched, as the recording says, or as far as its events show it."""
    seen = played.watched
    ran = tuple(sorted(selection.codes))
    if seen is None:
        titles = tuple(title for title, _ in played.titles.values())
        seen = Watched(titles, sum(number for _, number in played.titles.values()))
        could_not = {}
    else:
        could_not = {code: why for code, why in seen.could_not.items() if code in ran}
    return replace(
        seen,
        steps=judge.steps,
        windows=dict(sorted(judge.windows.items())),
        ran=tuple(code for code in ran if code not in could_not),
        remarks=judge.remarks(selection.codes),
        could_not=could_not,
    )


def _in_cells(sources: Mapping[SourceKey, list[str]]) -> dict[SourceKey, list[str]]:
    """The sources of a recording; those of notebooks, which it has as JSON, by cell."""
    found: dict[SourceKey, list[str]] = {}
    for key, lines in sources.items():
        if not isinstance(key, str) or not key.endswith(".ipynb"):
            found[key] = lines
            continue
        with contextlib.suppress(Unreadable):
            found |= lines_of(from_text("\n".join(lines), key))
    return found


def _silence(done: Replayed) -> None:
    """Leave out findings that a comment in the source allows."""
    report = done.report
    texts = {key: "\n".join(lines) for key, lines in report.sources.items()}
    kept = [
        number
        for number, finding in enumerate(report.findings)
        if not suppressions.allows(texts.get(source_key(finding.site), ""), finding)
    ]
    if len(kept) < len(report.findings):
        now = {old: new for new, old in enumerate(kept)}
        report.findings = [report.findings[number] for number in kept]
        if done.timeline is not None:
            done.timeline.marks = [
                mark._replace(findings=tuple(now[one] for one in mark.findings if one in now))
                for mark in done.timeline.marks
            ]
