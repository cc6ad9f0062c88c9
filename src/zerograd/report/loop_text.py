"""Training loops for people: one line each, or the account of one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from zerograd.core.finding import Finding, Report
from zerograd.core.training_loop import Account, LoopVerdict, Mention, TrainingLoop, VerdictName
from zerograd.report.excerpt import Paint
from zerograd.report.location import visible, where

_STYLE: dict[VerdictName, str] = {"right": "dim", "wrong": "error", "not followed": "advice"}
_KINDS = {
    "loop": "a loop in {name}",
    "per-batch": "{name}, which a framework calls for each batch",
    "function": "{name}, which nothing is seen to call",
    "module": "the top level of the file",
    "notebook": "the cells of the notebook",
}


def listing(report: Report, paint: Paint) -> str:
    """Every training loop with its verdict, in the order of the source."""
    rows = []
    for one in report.loops or ():
        verdict = paint(_STYLE[one.verdict], f"{one.verdict:<12}")
        place = paint("bold", where(one.loop.site))
        rows.append(f"{place}  {verdict}  {_title(one.loop)}{_because(one)}\n")
    return "".join(rows)


def _title(loop: TrainingLoop) -> str:
    steps = ", ".join(dict.fromkeys(visible(step.call) for step in loop.steps))
    return f"{visible(loop.name)}: {steps}"


def _because(one: LoopVerdict) -> str:
    if one.gap is not None:
        return f": {visible(one.gap.reason)} ({where(one.gap.site)})"
    codes = dict.fromkeys(found.code for found in one.loop.found)
    return f": {', '.join(codes)}" if one.verdict == "wrong" else ""


def explanation(verdicts: Iterable[LoopVerdict], findings: list[Finding], paint: Paint) -> str:
    """All that is known about some loops: `check --why`."""
    return "\n".join("\n".join(_explained(one, findings, paint)) + "\n" for one in verdicts)


def _explained(one: LoopVerdict, findings: list[Finding], paint: Paint) -> Iterator[str]:
    loop = one.loop
    kind = _KINDS[loop.kind].format(name=visible(loop.name))
    yield f"{paint('bold', where(loop.site))}  {paint(_STYLE[one.verdict], one.verdict)}  {kind}"
    if one.gap is not None:
        yield _row("because", f"{visible(one.gap.reason)} ({where(one.gap.site)})", paint)
    for number in one.findings:
        finding = findings[number]
        text = f"{finding.code} {finding.name}: {visible(finding.message)}"
        yield _row("found", f"{text} ({where(finding.site)})", paint)
    allowed = len(loop.found) - len(one.findings)
    if allowed > 0:
        yield _row("not shown", f"{allowed} more that a comment or the selection hides", paint)
    for step in loop.steps:
        yield _row("step", f"{visible(step.call)} ({where(step.site)})", paint)
    if not loop.accounts:
        yield _row("read", "clear, backward and step follow each other in one block", paint)
    for account in loop.accounts:
        yield from _account(account, paint)


def _account(account: Account, paint: Paint) -> Iterator[str]:
    params = ", ".join(map(visible, account.params)) or "parameters that cannot be seen"
    yield _row("subject", f"{visible(account.subject)}, which steps {params}", paint)
    for label, mentions, none in (
        ("filled by", account.backwards, "no backward that is seen"),
        ("cleared by", account.clears, "nothing that is seen"),
        ("clipped by", account.clips, ""),
        ("guarded by", account.guards, ""),
    ):
        for mention in mentions:
            yield _row(label, _mention(mention), paint)
        if not mentions and none:
            yield _row(label, none, paint)
    for assumption in account.assumed:
        yield _row("assumed", visible(assumption), paint)
    for one in account.withheld:
        when = " and ".join(map(visible, one.when)) or "another way through the code"
        text = f"{one.code} {one.name}: {visible(one.message)} ({where(one.site)})"
        yield _row("held back", f"{text}; it needs {when}", paint)


def _mention(mention: Mention) -> str:
    doubt = "" if mention.sure else ", perhaps"
    return f"{visible(mention.call or 'an assignment')} ({where(mention.site)}){doubt}"


def _row(label: str, text: str, paint: Paint) -> str:
    return f"   {paint('label', f'{label:<10}')}  {text}"
