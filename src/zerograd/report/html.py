"""A run as one web page: a single file that needs no network and no server.

This module writes the text of the page. `assets/page.js` draws the timeline and the norms from the
data at the end of the page; the page runs no other script.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import sys
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files

from zerograd import __version__
from zerograd.core import help_text
from zerograd.core.events import Measured
from zerograd.core.finding import Finding, Fix, Problem, SourceKey, Watched
from zerograd.core.wording import listed
from zerograd.report.fix_diff import fix_diff
from zerograd.report.html_excerpt import escaped, excerpt
from zerograd.report.icon import icon
from zerograd.report.location import visible, where, where_problem
from zerograd.report.text import compiled_steps, optimizers
from zerograd.report.timeline import Lane, Norms, Timeline
from zerograd.rules.catalogue import BY_CODE


@dataclass
class Rank:
    """One process of a run."""

    name: str
    """`rank 0`; empty if there is only one process."""
    number: int | None
    """Its number among ranks that train together; None for a process of its own."""
    timeline: Timeline
    watched: Watched
    findings: list[int]
    """For each finding of this rank: its number in the page."""
    clean: bool = True


@dataclass
class Shown:
    """A finding, and what the page shows with it."""

    finding: Finding
    ranks: list[str] = field(default_factory=list)
    """The ranks that found it, if there are several."""
    whose: str = ""
    """The optimizer whose steps are counted, if several take steps."""


@dataclass
class RunPage:
    """The contents of a page."""

    program: str
    ranks: list[Rank]
    findings: list[Shown]
    errors: list[Problem]
    sources: Mapping[SourceKey, Sequence[str]]
    files: int = 0
    """How many files were checked, for a page without a run."""


def render(page: RunPage) -> Iterator[str]:
    """The page, part by part."""
    style, script = _asset("page.css"), _asset("page.js")
    yield _HEAD.format(
        icon=icon(),
        title=escaped(f"{_verdict(page)[1]} · {page.program}"),
        script=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        style=style,
    )
    yield _top(page)
    yield "<main id=main>"
    yield _hero(page)
    yield from _problems(page)
    yield from _findings(page)
    if any(rank.timeline.runs.ticks for rank in page.ranks):
        yield _TIMELINE
        yield _norms(page)
    yield from _windows(page)
    yield from _watched(page)
    yield "</main>"
    yield _FOOT.format(version=escaped(__version__))
    yield '<script type="application/json" id=data>'
    # No name can end the element or begin another one.
    yield from (part.replace("<", "\\u003c") for part in _JSON.iterencode(_data(page)))
    yield f"</script>\n<script>{script}</script>\n</body>\n</html>\n"


_JSON = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"), allow_nan=False)

_HEAD = """\
<!doctype html>
<html lang=en>
<head>
<meta charset=utf-8>
<meta name=viewport content="width=device-width, initial-scale=1">
<meta name=color-scheme content="light dark">
<meta http-equiv=Content-Security-Policy content="default-src 'none'; \
style-src 'unsafe-inline'; script-src 'sha256-{script}'; img-src data:; base-uri 'none'; form-action 'none'">
<title>{title}</title>
<link rel=icon href="{icon}">
<style>{style}</style>
</head>
<body>
"""

_FOOT = """\
<footer>Made by zerograd {version}. This file is the whole report: it loads nothing.</footer>
"""

_TIMELINE = """\
<section aria-labelledby=h-timeline>
<div class=head><h2 id=h-timeline>Timeline</h2>
<p>What happened to the gradients of each optimizer, and what they held in between.</p></div>
<div class=legend id=legend></div>
<div class=panel>
<div class=tools role=toolbar aria-label="Timeline">
<button type=button data-do=out title="Zoom out (−)" aria-label="Zoom out">−</button>
<button type=button data-do=in title="Zoom in (+)" aria-label="Zoom in">+</button>
<button type=button data-do=all title="The whole run (0)">All</button>
<span class=gap></span>
<button type=button data-do=prev class=finds title="Previous finding (p)">‹ finding</button>
<button type=button data-do=next class=finds title="Next finding (n)">finding ›</button>
<span class=gap></span>
<label class=goto>Step <input id=goto type=text inputmode=numeric autocomplete=off></label>
<label class=goto id=of hidden>of <select id=whose></select></label>
<output id=range aria-live=polite></output>
</div>
<canvas id=overview role=img aria-label="The whole run; drag to choose a part of it"></canvas>
<div id=timeline tabindex=0 role=application aria-roledescription=timeline aria-describedby=keys \
aria-label="Timeline of the run"><div id=names></div><canvas id=lanes aria-hidden=true></canvas></div>
<p id=reading></p>
<p id=keys class=keys><kbd>←</kbd> <kbd>→</kbd> step by step, with <kbd>Shift</kbd> by half a view ·
<kbd>+</kbd> <kbd>−</kbd> zoom · <kbd>0</kbd> all · <kbd>n</kbd> <kbd>p</kbd> next and previous finding ·
drag to move, <kbd>Ctrl</kbd> and wheel, or pinch, to zoom</p>
<div id=detail aria-live=polite></div>
</div>
</section>
"""


def _asset(name: str) -> str:
    return (files("zerograd.report") / "assets" / name).read_text(encoding="utf-8")


def _number(value: int) -> str:
    return f"{value:,}"


def _count(number: int, noun: str) -> str:
    return f"{_number(number)} {noun}{'' if number == 1 else 's'}"


def _top(page: RunPage) -> str:
    name = f"<span class=program>{escaped(page.program)}</span>" if page.program else ""
    return (
        '<a class=skip href="#main">Skip to the report</a>'
        "<header><div class=brand><span class=mark aria-hidden=true>∇<i>0</i></span> zerograd</div>"
        f"{name}<button type=button id=theme aria-pressed=false>Dark</button></header>"
    )


def _verdict(page: RunPage) -> tuple[str, str]:
    """The result, as a CSS class and a sentence."""
    levels = Counter(one.finding.level for one in page.findings)
    counts = [_count(levels["error"], "error")] if levels["error"] else []
    counts += [f"{_number(levels['advice'])} advice"] if levels["advice"] else []
    if counts:
        return ("bad" if levels["error"] else "advice"), ", ".join(counts)
    if page.errors:
        return "advice", "Incomplete"
    if page.ranks and not any(rank.watched.steps for rank in page.ranks):
        return "advice", "No optimizer step"
    if any(rank.watched.remarks for rank in page.ranks):
        return "advice", "Not always finite"
    return "good", "Nothing wrong"


def _steps(page: RunPage) -> int:
    """How many steps there were: a step of all ranks is one step, as in the terminal."""
    ranked = [rank.watched.steps for rank in page.ranks if rank.number is not None]
    return max(ranked, default=0) + sum(
        rank.watched.steps for rank in page.ranks if rank.number is None
    )


def _hero(page: RunPage) -> str:
    kind, sentence = _verdict(page)
    optimizers = max((len(rank.watched.optimizers) for rank in page.ranks), default=0)
    windows: Counter[int] = Counter()
    ranked = [rank for rank in page.ranks if rank.number is not None]
    for rank in [*ranked[:1], *(rank for rank in page.ranks if rank.number is None)]:
        windows.update(rank.watched.windows)
    length, times = windows.most_common(1)[0] if windows else (0, 0)
    mostly = "" if len(windows) == 1 else f"{_number(times)} "
    usual = f"{mostly}with {_count(length, 'backward')}" if windows else ""
    ran = {code for rank in page.ranks for code in rank.watched.ran}
    broken = len({one.finding.code for one in page.findings})
    tiles = [
        ("steps", _number(_steps(page)), f"on {len(ranked)} ranks" if len(ranked) > 1 else ""),
        ("optimizers", _number(optimizers), ""),
        ("parameters", _number(max((r.watched.parameters for r in page.ranks), default=0)), ""),
        ("windows", _number(sum(windows.values())), usual),
        ("rules", _number(len(ran)), f"{_number(broken)} broken" if broken else "none broken"),
    ]
    if not page.ranks:
        tiles = [("files", _number(page.files), "were checked")]
    shown = "".join(
        f"<div><dt>{name}</dt><dd>{value}{f'<small>{escaped(more)}</small>' if more else ''}</dd></div>"
        for name, value, more in tiles
    )
    sign = {"bad": "✕", "advice": "!", "good": "✓"}[kind]
    return (
        f"<section class='hero {kind}' aria-labelledby=verdict>"
        f"<p class=sign aria-hidden=true>{sign}</p><div><h1 id=verdict>{escaped(sentence)}</h1>"
        f"<p class=lead>{_lead(page, kind)}</p></div><dl class=tiles>{shown}</dl></section>"
    )


def _lead(page: RunPage, kind: str) -> str:
    if not page.ranks:
        first = f"{escaped(page.findings[0].finding.message)}. " if page.findings else ""
        return f"{first}{_count(page.files, 'file')} checked."
    ranks = sum(rank.number is not None for rank in page.ranks)
    steps = _count(_steps(page), "step") + (f" on {ranks} ranks" if ranks > 1 else "")
    stopped = "".join(f" {escaped(_stop(rank))}" for rank in page.ranks if not rank.clean)
    if kind == "good":
        return f"{steps} watched, and no rule was broken.{_remarks(page)}{stopped}"
    if page.findings:
        worst = page.findings[0].finding
        times = worst.seen or 1
        often = "" if times == 1 else f", {_number(times)} times"
        return f"{escaped(worst.message)}{often}. {steps} watched.{_remarks(page)}{stopped}"
    return f"{steps} watched.{_remarks(page)}{stopped}"


def _remarks(page: RunPage) -> str:
    said = dict.fromkeys(one for rank in page.ranks for one in rank.watched.remarks)
    return "".join(f" {escaped(one)}." for one in said)


def _stop(rank: Rank) -> str:
    """When a process stopped that did not end normally."""
    steps = rank.watched.steps
    when = f"after {_count(steps, 'step')}" if steps else "before its first optimizer step"
    return f"{rank.name.capitalize() or 'The run'} stopped {when}."


def _problems(page: RunPage) -> Iterator[str]:
    if page.errors:
        yield "<section class=problems aria-labelledby=h-problems><h2 id=h-problems>Problems</h2><ul>"
        for one in page.errors:
            yield f"<li><code>{escaped(where_problem(one))}</code> {escaped(one.message)}</li>"
        yield "</ul></section>"


def _findings(page: RunPage) -> Iterator[str]:
    if not page.findings:
        return
    yield "<section aria-labelledby=h-findings><div class=head><h2 id=h-findings>Findings</h2></div>"
    for number, shown in enumerate(page.findings):
        yield from _finding(number, shown, page)
    yield "</section>"


def _finding(number: int, shown: Shown, page: RunPage) -> Iterator[str]:
    one = shown.finding
    rule = BY_CODE.get(one.code)
    yield (
        f"<article class='finding {one.level}' id=finding-{number}>"
        f"<h3><span class=level>{one.level}</span> <span class=code>{escaped(one.code)}</span> "
        f"{escaped(one.name)}</h3><p class=message>{escaped(one.message)}</p>"
        f"<p class=place><code>{escaped(where(one.site))}</code>{_seen(shown)}</p>"
    )
    yield from excerpt(one, page.sources)
    if one.measured is not None:
        yield _numbers(one.measured)
    if one.help:
        text = help_text.helped(one, page.sources)
        code = "" if one.fix is not None else help_text.code(text)
        yield f"<p class=help><b>What to do</b> {escaped(text)}{_copy(code, code)}</p>"
    if one.fix is not None:
        yield from _fix(one.fix, page)
    if rule is not None:
        yield f"<p class=rule><b>Rule</b> {_with_code(rule.summary)}</p>"
    yield f"<button type=button class=show data-finding={number} hidden>Show in the timeline</button>"
    yield "</article>"


def _with_code(text: str) -> str:
    """Text with `code` as HTML."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", escaped(text))


def _fix(fix: Fix, page: RunPage) -> Iterator[str]:
    """The fix as a diff, and a button that copies it."""
    lines = list(fix_diff(fix, page.sources))
    review = "" if fix.safe else ", review it"
    yield (
        f"<div class=fix><p><b>Fix</b> {escaped(fix.message)}{review}"
        f"{_copy(chr(10).join(lines) + chr(10), 'the diff')}</p>"
        "<pre tabindex=0 role=region aria-label='the fix as a diff'>"
    )
    for line in lines[2:]:
        tag = {"+": "ins", "-": "del"}.get(line[:1], "span")
        yield f"<{tag}>{escaped(line)}</{tag}>\n"
    yield "</pre></div>"


def _copy(copied: str, what: str) -> str:
    """A button that copies a text."""
    if not copied:
        return ""
    held = escape(copied, quote=True)
    shown = what if copied != what else f"<code>{escaped(what)}</code>"
    return f' <button type=button class=copy data-copy="{held}" hidden>Copy {shown}</button>'


def _seen(shown: Shown) -> str:
    one = shown.finding
    parts = []
    if one.seen is not None:
        parts.append("seen once" if one.seen == 1 else f"seen {_number(one.seen)} times")
    if one.site.iteration is not None:
        parts.append(
            f"{'first ' if (one.seen or 1) > 1 else ''}at step {_number(one.site.iteration)}"
            + (f" of {shown.whose}" if shown.whose else "")
        )
    if shown.ranks:
        parts.append(f"on {', '.join(shown.ranks)}")
    return escaped(" · " + " · ".join(parts)) if parts else ""


def _numbers(measured: Measured) -> str:
    """The expected and the used gradient norm as bars, to scale."""
    most = max(measured.expected, measured.got)
    whole = math.isfinite(most) and most > 0

    def bar(kind: str, label: str, value: float) -> str:
        share = 100 * value / most if whole else 100.0
        return (
            f"<div class={kind}><span>{label}</span><b>{escaped(f'{value:.6g}')}</b>"
            f"<i><u style='width:{share:.2f}%'></u></i></div>"
        )

    names = listed(measured.names, measured.count)
    of = f" of {escaped(names)}" if names else ""
    return (
        f"<div class=numbers><p>Gradient norm{of}</p>"
        f"{bar('right', 'should have been', measured.expected)}{bar('used', 'was', measured.got)}</div>"
    )


def _norms(page: RunPage) -> str:
    if not any(lane.norms for rank in page.ranks for lane in rank.timeline.lanes):
        return ""
    return (
        "<section aria-labelledby=h-norms id=norms><div class=head><h2 id=h-norms>Gradient norms</h2>"
        "<p>The norm (L2, over all parameters of the optimizer) that each step used and, if it was "
        "wrong, the right one. The steps in view are those of the timeline.</p></div>"
        "<div class=panel><p class=key><span class=k-used>used</span> "
        "<span class=k-range hidden>from the smallest to the largest used</span> "
        "<span class=k-right>should have been</span> <span class=k-wrong>the difference</span> "
        "<span class=k-endless hidden>inf or nan</span></p>"
        "<div id=charts></div></div></section>"
    )


def _windows(page: RunPage) -> Iterator[str]:
    rows = [(rank, lane) for rank in page.ranks for lane in rank.timeline.lanes if lane.windows]
    if not rows:
        return
    yield (
        "<section aria-labelledby=h-windows><div class=head><h2 id=h-windows>Windows</h2>"
        "<p>How many backward calls each step used.</p></div><div class='panel columns'>"
    )
    for rank, lane in rows:
        yield _histogram(rank, lane)
    yield "</div></section>"


def _histogram(rank: Rank, lane: Lane) -> str:
    most = max(lane.windows.values())
    shown = sorted(sorted(lane.windows.items(), key=lambda item: -item[1])[:24])
    rest = len(lane.windows) - len(shown)
    rows = "".join(
        f"<tr><th scope=row>{_count(length, 'backward')}</th>"
        f"<td class=bar><i style='width:{100 * times / most:.2f}%'></i></td><td>{_number(times)}</td></tr>"
        for length, times in shown
    )
    more = f"<p class=quiet>and {_count(rest, 'other length')}</p>" if rest else ""
    name = f"{rank.name} · {lane.title}" if rank.name else lane.title
    return (
        f"<div><table class=windows><caption>{escaped(name)}</caption>"
        "<thead class=away><tr><th scope=col>length</th><td></td><th scope=col>windows</th></tr></thead>"
        f"<tbody>{rows}</tbody></table>{more}</div>"
    )


def _watched(page: RunPage) -> Iterator[str]:
    if not page.ranks:
        return
    yield (
        "<section aria-labelledby=h-watched><details class=panel><summary><h2 id=h-watched>"
        f"What was watched</h2> <span>{escaped(_scope(page))}</span></summary><div class=columns>"
    )
    for rank in page.ranks:
        yield from _rank(rank)
    yield "</div></details></section>"


def _scope(page: RunPage) -> str:
    """What the folded part contains, in a few words."""
    ran = {code for rank in page.ranks for code in rank.watched.ran}
    could_not = {code for rank in page.ranks for code in rank.watched.could_not} - ran
    off = f", {_number(len(could_not))} that did not apply" if could_not else ""
    return f"{_count(len(ran), 'rule')} that applied{off}"


def _rank(rank: Rank) -> Iterator[str]:
    watched = rank.watched
    yield f"<div>{f'<h3>{escaped(rank.name)}</h3>' if rank.name else ''}<dl class=facts>"
    titles = optimizers(watched)
    more = [f"and {len(titles) - 24} more"] if len(titles) > 24 else []
    yield _fact("optimizers", titles[:24] + more)
    lanes = len(rank.timeline.lanes)
    if rank.timeline.left_out:
        yield _fact("in the timeline", [f"the first {lanes} optimizers"])
    unwatched = [f"{one}: it is not a torch.optim.Optimizer" for one in watched.unwatched]
    yield _fact("not watched", unwatched + [compiled_steps(one) for one in watched.compiled])
    yield _fact("steps", [_number(watched.steps)])
    yield _fact("remarks", watched.remarks)
    yield "</dl>"
    yield f"<h4>Rules that were applied</h4><ul class=rules>{''.join(map(_rule, watched.ran))}</ul>"
    if watched.could_not:
        yield "<h4>Rules that did not apply</h4><ul class='rules off'>"
        for code, why in watched.could_not.items():
            yield _rule(code, why)
        yield "</ul>"
    yield "</div>"


def _fact(name: str, values: Sequence[str]) -> str:
    if not values:
        return ""
    return f"<dt>{name}</dt>" + "".join(f"<dd>{escaped(value)}</dd>" for value in values)


def _rule(code: str, why: str = "") -> str:
    rule = BY_CODE.get(code)
    name, summary = ("", "") if rule is None else (rule.name, rule.summary)
    more = f" <small>{escaped(why)}</small>" if why else ""
    return f"<li title='{escaped(summary)}'><span class=code>{escaped(code)}</span> {escaped(name)}{more}</li>"


def _data(page: RunPage) -> dict[str, object]:
    """The data that the script draws."""
    findings = [
        {
            "code": visible(one.finding.code),
            "name": visible(one.finding.name),
            "level": one.finding.level,
        }
        for one in page.findings
    ]
    return {"findings": findings, "ranks": [_rank_data(rank) for rank in page.ranks]}


def _rank_data(rank: Rank) -> dict[str, object]:
    line = rank.timeline
    paths = list(dict.fromkeys(path for path, _ in line.sites))
    number = {path: at for at, path in enumerate(paths)}
    return {
        "name": visible(rank.name),
        "lanes": [
            {
                "title": visible(lane.title),
                "name": visible(lane.called),
                "steps": lane.steps,
                "norms": _norm_data(lane.norms),
            }
            for lane in line.lanes
        ],
        "paths": [visible(path) for path in paths],
        "sites": [[number[path], at] for path, at in line.sites],
        "moments": [
            [one.lane, one.kind, one.site, one.state, [rank.findings[at] for at in one.findings]]
            for one in line.marks
        ],
        "motifs": [
            [list(one.starts), [at for pair in one.marks for at in pair]] for one in line.motifs
        ],
        "ticks": line.runs.ticks,
        "each": line.runs.each,
        "runs": _packed(line.runs.motifs),
        "counts": _packed(line.runs.counts),
    }


def _norm_data(norms: Norms | None) -> dict[str, object] | None:
    if norms is None or not norms.used:
        return None
    differs = any(not math.isnan(one) for one in norms.right)
    return {
        "each": norms.each,
        "used": _packed(norms.used),
        "right": _packed(norms.right) if differs else None,
    }


def _packed(numbers: array[int] | array[float]) -> str:
    """Numbers for a typed array of the browser: little-endian, in base64."""
    if sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    return base64.b64encode(numbers.tobytes()).decode("ascii")
