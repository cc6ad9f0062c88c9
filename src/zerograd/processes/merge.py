"""Merges the reports of the processes of a run: each finding once, with its ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from zerograd.core.finding import Finding, Place, Problem, Report, Watched
from zerograd.core.records import replace
from zerograd.processes.process_files import ProcessFile


def merged(
    parts: Iterable[ProcessFile], own: Report | None = None, rank: int | None = None
) -> Report:
    """The merged report; `own` is the report of a process that is not among the parts."""
    parts = list(parts)
    if own is not None and rank is not None:
        found = {finding.place: finding for finding in own.findings}
        errors = list(own.errors)
        here = ProcessFile("", rank, findings=found, watched=own.watched, errors=errors, ended=True)
        parts.insert(0, here)
        own = None
    own = Report() if own is None else own
    alike: dict[Place, list[Finding]] = {}
    for finding in own.findings:
        alike.setdefault(finding.place, []).append(finding)
    for part in parts:
        for place, finding in part.findings.items():
            ranked = replace(finding, ranks=() if part.rank is None else (part.rank,))
            alike.setdefault(place, []).append(ranked)
    report = Report([together(findings) for findings in alike.values()])
    report.errors = [*own.errors, *_problems(parts)]
    report.sources = dict(own.sources)
    report.watched = _watched(parts, own.watched)
    return report


def together(findings: list[Finding]) -> Finding:
    """The finding of the first rank, with the highest count of all ranks."""
    first = findings[0]
    ranks = {rank for one in findings for rank in one.ranks}
    steps = [one.site.iteration for one in findings if one.site.iteration is not None]
    return replace(
        first,
        seen=max((one.seen or 1 for one in findings), default=None),
        ranks=tuple(sorted(ranks)),
        site=replace(first.site, iteration=min(steps, default=None)),
    )


def _problems(parts: list[ProcessFile]) -> list[Problem]:
    """Problems of all processes once; problems of some ranks with their rank."""
    said = Counter(problem for part in parts for problem in part.errors)
    found: dict[Problem, None] = {}
    for part in parts:
        for problem in part.errors:
            if part.rank is not None and said[problem] < len(parts) and not problem.names_rank:
                message = f"rank {part.rank}: {problem.message}"
                problem = replace(problem, message=message, names_rank=True)
            found[problem] = None
    return list(found)


def _watched(parts: list[ProcessFile], own: Watched | None) -> Watched | None:
    """The summary of the first rank, together with processes that trained without a rank."""
    if own is not None and parts and not own.steps:
        own = None  # it only launched the others
    ranked = [part for part in parts if part.rank is not None]
    others = [part.watched for part in parts if part.rank is None]
    first = next((part.watched for part in ranked if part.watched is not None), None)
    known = [one for one in (own, first, *others) if one is not None]
    if not parts and not known:
        return None
    windows: Counter[int] = Counter()
    for one in known:
        windows.update(one.windows)
    on_ranks = max(
        (part.watched.steps if part.watched else part.steps for part in ranked), default=0
    )
    beside = sum(one.steps for one in (own, *others) if one is not None)
    ran = {code for one in known for code in one.ran}
    could_not = {code: why for one in known for code, why in one.could_not.items()}
    return Watched(
        optimizers=tuple(title for one in known for title in one.optimizers),
        parameters=sum(one.parameters for one in known),
        steps=on_ranks + beside,
        windows=dict(sorted(windows.items())),
        ran=tuple(sorted(ran)),
        could_not={code: why for code, why in sorted(could_not.items()) if code not in ran},
        remarks=tuple(dict.fromkeys(remark for one in known for remark in one.remarks)),
        unwatched=tuple(sorted({one for part in known for one in part.unwatched})),
        compiled=tuple(sorted({one for part in known for one in part.compiled})),
        ranks=tuple(sorted({part.rank for part in ranked if part.rank is not None})),
        lost={p.rank: p.steps for p in ranked if p.rank is not None and not p.ended},
    )
