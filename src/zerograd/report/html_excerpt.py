"""The lines of source around a finding as HTML, with a mark and a label for each call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from zerograd.core.events import Site
from zerograd.core.finding import Finding, SourceKey, source_key
from zerograd.report.location import visible, where

AROUND = 2
"""Lines before and after a marked one."""
WIDEST = 400


def excerpt(finding: Finding, sources: Mapping[SourceKey, Sequence[str]]) -> Iterator[str]:
    """The marked lines, file by file, the finding's own file first."""
    marks = [(finding.site, "here", finding.label or "here")]
    marks += [(note.site, "there", note.message) for note in finding.notes]
    for file in dict.fromkeys(source_key(site) for site, _, _ in marks):
        here = [mark for mark in marks if source_key(mark[0]) == file]
        lines = sources.get(file) or ()
        known = [mark for mark in here if 1 <= mark[0].line <= len(lines)]
        if known:
            path = known[0][0].path
            title = f"Source lines of {visible(path)}"
            yield f"<div class=source tabindex=0 role=region aria-label='{escape(title)}'>"
            if file != source_key(finding.site):
                yield f"<p class=file>{escaped(path)}</p>"
            yield from _lines(known, lines)
            yield "</div>"
        for site, kind, said in here:
            if (site, kind, said) not in known and kind == "there" and site.path:
                yield f"<p class=there><code>{escape(where(site))}</code> {escaped(said)}</p>"


def _lines(marks: Sequence[tuple[Site, str, str]], lines: Sequence[str]) -> Iterator[str]:
    shown = sorted(
        {
            number
            for site, _, _ in marks
            for number in range(site.line - AROUND, site.line + AROUND + 1)
            if 1 <= number <= len(lines)
        }
    )
    yield "<ol>"
    previous = shown[0]
    for number in shown:
        if number > previous + 1:
            yield "<li class=cut aria-hidden=true>⋯</li>"
        previous = number
        here = [mark for mark in marks if mark[0].line == number]
        kind = (
            f" class={'here' if any(k == 'here' for _, k, _ in here) else 'there'}" if here else ""
        )
        said = "".join(f"<em class={k}>{escaped(label)}</em>" for _, k, label in here)
        yield f"<li value={number}{kind}><code>{_marked(lines[number - 1], here)}</code>{said}</li>"
    yield "</ol>"


def _marked(line: str, marks: Sequence[tuple[Site, str, str]]) -> str:
    """A line with the call of its first mark highlighted."""
    line = line[:WIDEST]
    if not marks:
        return _shown(line) or " "
    site, kind, _ = marks[0]
    start = min(max(site.column - 1, 0), len(line))
    end = site.end_column - 1 if site.end_line in (0, site.line) else 0
    if end <= start:
        # Only the line is known: mark all of it but the spaces.
        start, end = len(line) - len(line.lstrip()), len(line.rstrip())
    return (
        f"{_shown(line[:start])}<mark class={kind}>{_shown(line[start:end])}</mark>"
        f"{_shown(line[end:])}"
    )


def _shown(text: str) -> str:
    return escaped(text.replace("\t", "    "))


def escaped(value: object) -> str:
    """Text that is safe in HTML."""
    return escape(visible(str(value)))
