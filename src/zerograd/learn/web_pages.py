"""Writes the course as web pages. Each page is one file that loads nothing else.

The pages work with a dark theme, by keyboard and on a phone, and can be read without scripts. All
text of a lesson is escaped.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from zerograd.learn.content import (
    MARKED,
    Bars,
    Buckets,
    Code,
    CommandReport,
    Curves,
    Part,
    Pause,
    Question,
    Say,
    Table,
    TryOut,
    number,
)
from zerograd.learn.contents import Lesson
from zerograd.report import text
from zerograd.report.icon import icon

WIDE, HIGH, LEFT = 640, 240, 60
"""The size of a plot, and its left margin."""


def write(lessons: Sequence[Lesson], folder: str, home: str = "") -> Iterator[str]:
    """Write a page for each lesson and an index. Yields each path once it is written.

    `home` is the address of the site that the pages are part of, as they see it.
    """
    os.makedirs(folder, exist_ok=True)
    for place, lesson in enumerate(lessons):
        before = lessons[place - 1] if place else None
        after = lessons[place + 1] if place + 1 < len(lessons) else None
        yield _save(folder, file(lesson), page(lesson, before, after, home))
    yield _save(folder, "index.html", index(lessons, home))


def _save(folder: str, name: str, page: str) -> str:
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(page)
    return path


def file(lesson: Lesson) -> str:
    """The file name of a lesson's page."""
    return f"lesson-{lesson.number}.html"


def index(lessons: Iterable[Lesson], home: str = "") -> str:
    """The table of contents as a page."""
    rows = "".join(
        f'<li value="{lesson.number}"><a href="{file(lesson)}">{escape(lesson.title)}</a>'
        f'<br><span class="about">{escape(lesson.about)}</span></li>\n'
        for lesson in lessons
    )
    about = "Every number in these lessons was computed by torch when the pages were made."
    title = "Gradients and how to clear them"
    return _page(
        title, f'<h1>{title}</h1>\n<p class="about">{about}</p>\n<ol>\n{rows}</ol>\n', home
    )


def page(
    lesson: Lesson, before: Lesson | None = None, after: Lesson | None = None, home: str = ""
) -> str:
    """One lesson as a page."""
    body = "".join(map(render, lesson.parts()))
    links = [
        f'<a rel="prev" href="{file(before)}">← {escape(before.title)}</a>' if before else "<span></span>",
        '<a href="index.html">All lessons</a>',
        f'<a rel="next" href="{file(after)}">{escape(after.title)} →</a>' if after else "<span></span>",
    ]  # fmt: skip
    return _page(
        f"{lesson.number}. {lesson.title}",
        f'<p class="about">Lesson {lesson.number}</p>\n<h1>{escape(lesson.title)}</h1>\n'
        f'<p class="about">{escape(lesson.about)}</p>\n{body}'
        f'<nav aria-label="lessons">{"".join(links)}</nav>\n',
        home,
    )


def _page(title: str, body: str, home: str) -> str:
    style, script = (files("zerograd.learn").joinpath(f"page.{kind}") for kind in ("css", "js"))
    back = f'<a href="{escape(home)}">← The documentation</a>' if home else ""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)} · zerograd learn</title>\n"
        f'<link rel="icon" href="{icon()}">\n'
        f"<style>\n{style.read_text(encoding='utf-8')}</style>\n</head>\n<body>\n"
        f'<header><a class="brand" href="index.html"><span aria-hidden="true">∇<sub>0</sub></span> zerograd learn</a>'
        f'{back}<button type="button" id="theme" hidden>Dark</button></header>\n<main>\n{body}</main>\n'
        f"<script>\n{script.read_text(encoding='utf-8')}</script>\n</body>\n</html>\n"
    )


def render(part: Part) -> str:
    """One part as HTML."""
    return _RENDERERS[type(part)](part)


def _say(part: Say) -> str:
    return f"<p>{_marked(part.text)}</p>\n"


def _marked(text: str) -> str:
    """The text of a paragraph, escaped, with code and emphasis as HTML."""

    def mark(found: Any) -> str:
        return f"<code>{found[1]}</code>" if found[1] else f"<em>{found[2]}</em>"

    return MARKED.sub(mark, escape(text, quote=False))


def _code(part: Code) -> str:
    title = f"<figcaption>{escape(part.title)}</figcaption>" if part.title else ""
    return f'<figure>{title}<pre tabindex="0"><code>{escape(part.text)}</code></pre></figure>\n'


def _table(part: Table) -> str:
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in part.head)
    rows = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in part.rows
    )
    label = escape(" and ".join(cell for cell in part.head if cell))
    return (
        f'<div class="scroll" tabindex="0" role="group" aria-label="table: {label}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>\n"
    )


def _bars(part: Bars) -> str:
    most = max(amount for _, amount, _ in part.rows) or 1.0
    rows = "".join(
        f'<tr><td>{escape(what)}</td><td><div class="bar" style="width: {100 * amount / most:.1f}%">'
        f"</div></td><td>{escape(shown)}</td></tr>"
        for what, amount, shown in part.rows
    )
    return f'<figure><figcaption>{escape(part.title)}</figcaption><table class="bars">{rows}</table></figure>\n'


def _curves(part: Curves) -> str:
    found = [math.log10(one) for _, line in part.lines for one in line if 0 < one < math.inf]
    low, high = min(found), max(found)
    span = (high - low) or 1.0

    def path(line: Sequence[float]) -> str:
        points = []
        for place, value in enumerate(line):
            if 0 < value < math.inf:
                across = LEFT + (WIDE - LEFT - 10) * place / max(1, len(line) - 1)
                down = 10 + (HIGH - 40) * (high - math.log10(value)) / span
                points.append(f"{across:.1f},{down:.1f}")
        return "M" + " L".join(points)

    steps = max(len(line) for _, line in part.lines)
    drawn = "".join(f'<path class="line{i}" d="{path(line)}"/>' for i, (_, line) in enumerate(part.lines))  # fmt: skip
    keys = "".join(
        f'<li><span class="key{i}">{"━━" if i == 0 else "╍╍"}</span> {escape(name)}: ends at {number(line[-1])}</li>'
        for i, (name, line) in enumerate(part.lines)
    )
    label = "; ".join(f"{name} from {number(line[0])} to {number(line[-1])}" for name, line in part.lines)  # fmt: skip
    return (
        f"<figure><figcaption>{escape(part.title)}</figcaption>"
        f'<svg viewBox="0 0 {WIDE} {HIGH}" role="img" aria-label="{escape(label)}">'
        f'<path class="axis" d="M{LEFT},10 V{HIGH - 30} H{WIDE - 10}"/>{drawn}'
        f'<text x="{LEFT - 6}" y="16" text-anchor="end">{number(10**high)}</text>'
        f'<text x="{LEFT - 6}" y="{HIGH - 28}" text-anchor="end">{number(10**low)}</text>'
        f'<text x="{LEFT}" y="{HIGH - 10}">1</text>'
        f'<text x="{WIDE - 10}" y="{HIGH - 10}" text-anchor="end">{steps}</text></svg>'
        f"<ul>{keys}</ul></figure>\n"
    )


def _buckets(part: Buckets) -> str:
    most = part.brim or max(abs(one.gradient or 0.0) for one in part.moments) or 1.0
    drawn = "".join(
        f'<li class="{escape(one.state)}"><code>{escape(one.call)}</code>'
        f'<div class="pail"><div class="water" style="height: {100 * abs(one.gradient or 0.0) / most:.1f}%">'
        f'</div></div><span class="held">{"None" if one.gradient is None else number(one.gradient)}</span>'
        f'{escape(one.state)}<br><span class="soft">weight {number(one.weight)}</span></li>'
        for one in part.moments
    )
    return f'<ol class="buckets">{drawn}</ol>\n'


def _try(part: TryOut) -> str:
    lab = part.lab
    given = {
        "weight": lab.weight,
        "rate": lab.rate,
        "gradients": lab.gradients,
        "table": lab.table,
        "start": next(iter(lab.table)),
    }
    calls = (("backward", "backward()"), ("zero", "zero_grad()"), ("step", "step()"), ("again", "start again"))  # fmt: skip
    buttons = "".join(
        f'<button type="button" data-call="{call}">{label}</button>' for call, label in calls
    )
    return (
        '<section class="lab" hidden aria-labelledby="your-turn"><h2 id="your-turn">Your turn</h2>'
        f'<script type="application/json">{_json(given)}</script>'
        f'<div class="bucket"><div class="pail"><div class="water"></div></div></div><p>{buttons}</p>'
        '<p aria-live="polite"><span data-show="said"></span> <code>.grad</code> is '
        '<strong data-show="gradient"></strong> (<span data-show="state"></span>), the weight '
        '<strong data-show="weight"></strong>.</p></section>\n'
    )


def _json(given: object) -> str:
    """JSON that is safe inside a script element: it cannot end the element."""
    return json.dumps(given).replace("<", "\\u003c")


def _command_report(part: CommandReport) -> str:
    report = text.render(part.report).rstrip("\n")
    return (
        f'<figure><figcaption>zerograd says</figcaption><pre tabindex="0"><code>$ {escape(part.command)}\n'
        f"{escape(report)}</code></pre></figure>\n"
    )


def _question(part: Question) -> str:
    truth = "yes" if part.truth else "no"
    because = "".join(map(render, part.because))
    return (
        f'<section class="question" data-truth="{truth}"><p>{_marked(part.text)}</p>'
        '<p class="buttons" hidden><button type="button" data-answer="yes">Yes</button>'
        '<button type="button" data-answer="no">No</button></p><p class="said" aria-live="polite"></p>'
        f"<details><summary>The answer</summary><p>The answer is {truth}.</p>{because}</details></section>\n"
    )


def _pause(part: Pause) -> str:
    return ""


_RENDERERS: dict[type, Callable[[Any], str]] = {
    Say: _say,
    Code: _code,
    Table: _table,
    Bars: _bars,
    Curves: _curves,
    Buckets: _buckets,
    TryOut: _try,
    CommandReport: _command_report,
    Question: _question,
    Pause: _pause,
}
