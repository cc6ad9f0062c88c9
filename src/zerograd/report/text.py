"""Findings for people: what is wrong, where, because of which earlier line, and what to do.

The text is the same on a terminal and in a pipe, except for the colours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from zerograd.core.finding import Finding, Fix, Problem, Report, Watched, source_key
from zerograd.core.rule import Feature
from zerograd.core.training_loop import LoopVerdict, VerdictName
from zerograd.report.excerpt import Annotation, Paint, excerpt
from zerograd.report.location import visible, where, where_problem
from zerograd.report.loop_text import listing
from zerograd.rules.catalogue import BY_CODE

_STYLES = {
    "bold": "1",
    "dim": "2",
    "error": "1;31",
    "advice": "1;33",
    "mark": "31",
    "note": "94",
    "label": "36",
}


def colored(style: str, text: str) -> str:
    """The text in the colour of a style."""
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m"


def plain(style: str, text: str) -> str:
    """The text without colour."""
    return text


def render(report: Report, *, color: bool = False, summed: bool = True) -> str:
    """Every finding with its excerpt, then what could not be checked, then a summary if it is wanted."""
    paint = colored if color else plain
    blocks = ["\n".join(_finding(one, report, paint)) for one in report.findings]
    if report.errors:
        blocks.append("\n".join(_problem(one, paint) for one in report.errors))
    if report.skipped:
        blocks.append("\n".join(_problem(one, paint, "skipped", "dim") for one in report.skipped))
    if report.watched is not None and report.watched.lost:
        blocks.append("\n".join(_row(*row, paint) for row in _stopped(report.watched)))
    if report.lists_loops and report.loops:
        blocks.append(listing(report, paint).rstrip("\n"))
    if summed:
        blocks.append(summary(report))
    return "\n\n".join(blocks) + "\n" if blocks else ""


def _finding(finding: Finding, report: Report, paint: Paint) -> Iterator[str]:
    rule = paint(finding.level, finding.code) + " " + paint("bold", finding.name)
    doubt = "" if finding.certain else " (possible)"
    yield f"{paint('bold', where(finding.site))}  {rule}{doubt}  {visible(finding.message)}"
    marks = [Annotation(finding.site, "^", finding.label)]
    marks += [Annotation(note.site, "-", note.message) for note in finding.notes]
    yield from excerpt(marks, report.sources, paint)
    if finding.optimizer and _one_of_several(finding, report) and not _is_marked(finding, report):
        yield _row("opt ", visible(finding.optimizer), paint)
    for test in finding.when:
        yield _row("when", visible(test), paint)
    if finding.seen is not None or finding.site.iteration is not None:
        yield _row("seen", seen(finding), paint)
    if finding.help:
        from zerograd.core.help_text import helped

        yield _row("help", visible(helped(finding, report.sources)) + fixable(finding), paint)
    if finding.refused and report.fixed is not None:
        yield _row("fix ", f"none: {visible(finding.refused)}", paint)


def _one_of_several(finding: Finding, report: Report) -> bool:
    """Whether there may be another optimizer; a run may still make one."""
    names = {step.subject for one in report.loops or () for step in one.loop.steps}
    return bool(finding.subject) or len(names) > 1


def _is_marked(finding: Finding, report: Report) -> bool:
    """Whether a marked line shows the name of the optimizer."""
    sites = (finding.site, *(note.site for note in finding.notes))
    lines = [report.sources.get(source_key(site), [])[site.line - 1 : site.line] for site in sites]
    name = finding.optimizer.replace('"', "'")
    return any(name in text.replace('"', "'") for line in lines for text in line)


def seen(finding: Finding, *, several: bool = False) -> str:
    """How often a run has shown it, and when first: `4 times, first at step 2`.

    Steps are those of its optimizer, which is named where there are several.
    """
    parts = []
    if finding.seen is not None:
        parts.append("once" if finding.seen == 1 else f"{finding.seen} times")
    if finding.site.iteration is not None:
        first = "first " if (finding.seen or 1) > 1 else ""
        whose = f" of {visible(finding.optimizer)}" if several and finding.optimizer else ""
        parts.append(f"{first}at step {finding.site.iteration}{whose}")
    if finding.ranks:
        parts.append(f"on {_ranks(finding.ranks)}")
    return ", ".join(parts)


def fixable(finding: Finding) -> str:
    """A mark for a finding that has a fix."""
    if finding.fix is None:
        return ""
    return "  [*] fixable with " + ("--fix" if finding.fix.safe else "--unsafe-fixes")


def _row(label: str, text: str, paint: Paint) -> str:
    return f"   {paint('label', label)}  {text}"


def problem(problem: Problem, *, color: bool = False) -> str:
    """One problem, in a line."""
    return _problem(problem, colored if color else plain)


def _problem(problem: Problem, paint: Paint, kind: str = "problem", style: str = "error") -> str:
    place = paint("bold", where_problem(problem))
    return f"{place}  {paint(style, kind)}  {visible(problem.message)}"


def summary(report: Report) -> str:
    """One line with the result."""
    levels = Counter(finding.level for finding in report.findings)
    parts = (
        _some(levels["error"], "error"),
        f"{levels['advice']} advice" * bool(levels["advice"]),
        _some(len(report.errors), "problem"),
    )
    found = ", ".join(filter(None, parts))
    result = found or "nothing to report"
    if report.watched is not None:
        steps = _some(report.watched.steps, "step") or "no step"
        ranks = f" on {len(report.watched.ranks)} ranks" if report.watched.ranks else ""
        return f"watched {steps}{ranks}: {result}"
    files = f"checked {_some(report.files, 'file') or 'no file'}"
    if report.loops is None:
        # Without files it is the report of a watch that is still open, or could not begin.
        lines = [f"{files}: {result}" if report.files else result]
    else:
        lines = [f"{files}: {_loops(report.loops)}", *([f"found {found}"] if found else [])]
    hidden = (
        f"{report.known} known" if report.known else "",
        f"{report.unchanged} in unchanged code" if report.unchanged else "",
    )
    if any(hidden):
        lines.append(f"not shown: {', '.join(filter(None, hidden))}")
    if report.fixed is not None:
        lines.append(f"{report.fixed} fixed, {remaining(report)}")
    elif report.findings:
        fixes = [one.fix for one in report.findings if one.fix is not None]
        lines += [f"fixable: {_fixable(fixes)}"] if fixes else []
    return "\n".join(lines)


def _loops(loops: list[LoopVerdict]) -> str:
    """`31 training loops: 27 right, 3 wrong, 1 not followed`."""
    counts = Counter(one.verdict for one in loops)
    verdicts: tuple[VerdictName, ...] = ("right", "wrong", "not followed")
    parts = [f"{counts[name]} {name}" for name in verdicts if counts[name]]
    number = _some(len(loops), "training loop")
    return f"{number}: {', '.join(parts)}" if loops else "no training loop"


def _fixable(fixes: list[Fix]) -> str:
    """How many findings can be repaired: `2 with --fix, 1 more with --unsafe-fixes`."""
    safe = sum(fix.safe for fix in fixes)
    unsafe = len(fixes) - safe
    more = "more " if safe else ""
    parts = (
        f"{safe} with --fix" * bool(safe),
        f"{unsafe} {more}with --unsafe-fixes" * bool(unsafe),
    )
    return ", ".join(filter(None, parts))


def remaining(report: Report) -> str:
    """What is left after a repair: `2 remaining (1 more with --unsafe-fixes)`."""
    more = sum(one.fix is not None and not one.fix.safe for one in report.findings)
    unsafe = f" ({more} more with --unsafe-fixes)" if more else ""
    return f"{len(report.findings)} remaining{unsafe}"


def block(finding: Finding, report: Report, *, color: bool = False) -> str:
    """One finding alone, as it is printed while a program runs."""
    return "\n".join(_finding(finding, report, colored if color else plain)) + "\n\n"


def closing(report: Report, name: str, *, color: bool = False) -> str:
    """The result of a run: what was watched, by which rules, and how often each finding was seen."""
    paint = colored if color else plain
    lines = [paint("bold", f"zerograd watched {visible(name)}")]
    rows = [] if report.watched is None else list(_watched(report.watched))
    width = max((len(label) for label, _ in rows), default=0)
    lines += [_row(f"{label:<{width}}", visible(value), paint) for label, value in rows]
    several = report.watched is not None and len(report.watched.optimizers) > 1
    for finding in sorted(report.findings, key=lambda one: one.level != "error"):
        rule = paint(finding.level, finding.code) + " " + paint("bold", finding.name)
        lines.append(f"{where(finding.site)}  {rule}  seen {seen(finding, several=several)}")
    lines += [_problem(one, paint) for one in report.errors]
    return "\n".join([*lines, summary(report)]) + "\n"


def _watched(watched: Watched) -> Iterator[tuple[str, str]]:
    for optimizer in optimizers(watched):
        yield "optimizer", optimizer
    for optimizer in watched.unwatched:
        yield "not watched", f"{optimizer}: it is not a torch.optim.Optimizer"
    for optimizer in watched.compiled:
        yield "not watched", compiled_steps(optimizer)
    if watched.ranks:
        yield "ranks", _runs(watched.ranks)
    yield from _stopped(watched)
    yield "parameters", str(watched.parameters)
    yield "steps", str(watched.steps)
    if watched.windows:
        lengths = sorted(watched.windows.items())
        counts = [f"{times} of {_some(n, 'backward') or 'none'}" for n, times in lengths]
        yield "windows", ", ".join(counts)
    for remark in watched.remarks:
        yield "remark", remark
    yield "rules", _codes(watched.ran) or "none"
    if watched.could_not:
        yield "skipped", ", ".join(_not_applied(watched))


_FAMILIES = {
    Feature.SHARED_GRADIENTS: "distributed rules",
    Feature.REPLICAS: "distributed rules",
    Feature.SCALER: "AMP rules",
    Feature.SEVERAL_OPTIMIZERS: "rules about several optimizers",
}


def _not_applied(watched: Watched) -> Iterator[str]:
    """The rules that a run had nothing for, as families: `AMP rules (no scaler)`."""
    groups: dict[tuple[str, str], list[str]] = {}
    for code, reason in watched.could_not.items():
        page = BY_CODE.get(code)
        family = "" if page is None or page.applies_to is None else _FAMILIES[page.applies_to]
        groups.setdefault((family, reason), []).append(code)
    for (family, reason), codes in groups.items():
        split = sum(one == family for one, _ in groups) > 1
        yield f"{_codes(codes) if split or not family else family} ({reason})"


def compiled_steps(optimizer: str) -> str:
    """What is not watched of an optimizer that steps in compiled code."""
    return f"steps of {optimizer}, in code that torch.compile has compiled"


def optimizers(watched: Watched) -> list[str]:
    """`Adam, 4 parameters`, or for equal ones `2 × Adam, 4 parameters each`."""
    counts = Counter(watched.optimizers)
    return [one if times == 1 else f"{times} × {one} each" for one, times in counts.items()]


def _stopped(watched: Watched) -> Iterator[tuple[str, str]]:
    for steps in sorted(set(watched.lost.values())):
        ranks = [rank for rank, taken in watched.lost.items() if taken == steps]
        after = f"after step {steps}" if steps else "before the first step"
        yield "stopped", f"{_ranks(ranks)} {after}; findings until then are included"


def _ranks(ranks: Iterable[int]) -> str:
    """`rank 3`, or `ranks 0–7`."""
    numbers = set(ranks)
    return f"rank{'' if len(numbers) == 1 else 's'} {_runs(numbers)}"


def _codes(codes: Iterable[str]) -> str:
    """Codes in order, as ranges: `ZG101–ZG106, ZG108`."""
    numbers: dict[str, list[int]] = {}
    for code in codes:
        letters = code.rstrip("0123456789")
        numbers.setdefault(letters, []).append(int(code[len(letters) :]))
    return ", ".join(_runs(some, letters) for letters, some in sorted(numbers.items()))


def _runs(numbers: Iterable[int], before: str = "") -> str:
    """Numbers in order, as ranges: `0–3, 7`."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    ends = [[run[0]] if len(run) == 1 else [run[0], run[-1]] for run in runs]
    return ", ".join("–".join(f"{before}{end}" for end in run) for run in ends)


def _some(number: int, noun: str) -> str:
    """`2 steps`; nothing for 0."""
    return f"{number} {noun}{'' if number == 1 else 's'}" if number else ""


def statistics(report: Report) -> str:
    """How many findings each rule has, the most frequent first; then the summary."""
    counts = Counter((one.code, one.name, one.level) for one in report.findings)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    lines = [f"{count:>5}  {code}  {name}  ({level})" for (code, name, level), count in ordered]
    lines += [f"{where_problem(one)}  problem  {visible(one.message)}" for one in report.errors]
    return "".join(f"{line}\n" for line in [*lines, summary(report)])
