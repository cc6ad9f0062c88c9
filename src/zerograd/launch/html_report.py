"""`zerograd report` and `zerograd run --html`: writes one web page for one or more recordings."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from zerograd.core.atomic_write import atomic_write
from zerograd.core.finding import Place, Problem, Watched
from zerograd.core.usage_error import UsageError
from zerograd.launch.known_fixes import with_known_fixes
from zerograd.launch.replay import Replayed, judged
from zerograd.launch.run_session import fails
from zerograd.processes.merge import together
from zerograd.recording.reader import Progress
from zerograd.report import html
from zerograd.report.timeline import Timeline

SUFFIXES = (".jsonl", ".recording")
MOST_RANKS = 64


def make(
    recordings: Sequence[str],
    output: str,
    select: Iterable[str] | None,
    ignore: Iterable[str],
    progress: Progress | None = None,
) -> tuple[bool, list[Problem]]:
    """Write a page. Returns whether its findings fail a run, and what could not be shown.

    Raises `UsageError` if there is nothing to show, or the page cannot be written.
    """
    done = [judged(path, select, ignore, Timeline(), progress) for path in _found(recordings)]
    shown = [one for one in done if one.timeline is not None and _any(one)]
    problems = [problem for one in done for problem in one.report.errors]
    if not shown:
        reasons = "; ".join(f"{one.path}: {one.message}" for one in problems)
        raise UsageError(reasons or "no recording to show: zerograd run --record writes one")
    write_page(_page(shown, problems), output)
    return any(fails(one.report, one.selection) for one in shown), problems


def _found(recordings: Sequence[str]) -> list[str]:
    """The given recordings, and those in the given directories."""
    found: list[str] = []
    for path in recordings:
        if os.path.isdir(path):
            inside = sorted(name for name in os.listdir(path) if name.endswith(SUFFIXES))
            if not inside:
                raise UsageError(f"{path} contains no recording: their names end in {SUFFIXES[0]}")
            found += [os.path.join(path, name) for name in inside]
        else:
            found.append(path)
    if len(found) > MOST_RANKS:
        raise UsageError(f"a page shows at most {MOST_RANKS} recordings, not {len(found)}")
    return found


def _any(done: Replayed) -> bool:
    """Whether the file is a recording; the recording of an empty run is one."""
    timeline = done.timeline
    return not done.report.errors or (timeline is not None and bool(timeline.lanes))


def _page(shown: list[Replayed], problems: list[Problem]) -> html.RunPage:
    shown = sorted(shown, key=lambda one: (one.played.rank is None, one.played.rank or 0))
    findings: dict[Place, html.Shown] = {}
    ranks = []
    for at, one in enumerate(shown):
        number = one.played.rank
        name = f"rank {at if number is None else number}" if len(shown) > 1 else ""
        numbers = [_add(findings, one, number, name) for number in range(len(one.report.findings))]
        assert one.timeline is not None
        watched = one.report.watched or Watched()
        ranks.append(html.Rank(name, number, one.timeline, watched, numbers, one.played.clean))
    cards = list(findings.values())
    ordered = sorted(cards, key=lambda card: card.finding.level != "error")
    for rank in ranks:
        rank.findings = [ordered.index(cards[number]) for number in rank.findings]
    sources = {path: lines for one in shown for path, lines in one.report.sources.items()}
    fixed = with_known_fixes([card.finding for card in ordered], sources)
    for card, finding in zip(ordered, fixed, strict=True):
        card.finding = finding
    program = next((one.played.program for one in shown if one.played.program), shown[0].path)
    return html.RunPage(program, ranks, ordered, problems, sources)


def _add(findings: dict[Place, html.Shown], done: Replayed, number: int, rank: str) -> int:
    """Add a finding, or count it again if another rank has it. Returns its number in the page."""
    finding = done.report.findings[number]
    place = finding.place
    shown = findings.get(place)
    if shown is None:
        shown = findings[place] = html.Shown(finding, whose=_whose(done, number))
    else:
        shown.finding = together([shown.finding, finding])
    if rank:
        shown.ranks.append(rank)
    return list(findings).index(place)


def _whose(done: Replayed, number: int) -> str:
    """The optimizer whose steps a finding counts, where several take steps."""
    assert done.timeline is not None
    lanes = done.timeline.lanes
    if sum(lane.steps > 0 for lane in lanes) < 2:
        return ""
    at = next((mark.lane for mark in done.timeline.marks if number in mark.findings), -1)
    return lanes[at].called if at >= 0 and lanes[at].steps else ""


def write_page(page: html.RunPage, output: str) -> None:
    """Write a page, or raise `UsageError`. A file is always complete."""
    is_device = os.path.exists(output) and not os.path.isfile(output)
    try:
        with open(output, "wb") if is_device else atomic_write(output) as stream:
            parts = html.render(page)
            stream.writelines(part.encode("utf-8", "backslashreplace") for part in parts)
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror}") from None
