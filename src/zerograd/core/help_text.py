"""The help of a finding in the names of the user's code.

A rule writes `optimizer.zero_grad()` and `(i + 1) % N == 0`. The lines that a finding marks show what
the program calls its optimizer, scaler, loss, counter and loader. What they do not show keeps its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from zerograd.core.finding import Finding, SourceKey, source_key

_NAME = r"[A-Za-z_][\w.]*(?:\[[^\]]*\])?"
_STEP = re.compile(rf"({_NAME})\.(?:step|zero_grad)\(\s*(?:set_to_none=\w+)?\s*\)")
_SCALED_STEP = re.compile(rf"({_NAME})\.(?:step|unscale_)\(\s*({_NAME})\s*\)")
_SCALED = re.compile(rf"({_NAME})\.scale\((?:\s*({_NAME})\s*\)\.backward\()?")
_BACKWARD = re.compile(rf"({_NAME})\.backward\(\s*\)")
_GUARD = re.compile(r"([A-Za-z_][\w.]*)(?:\s*\+\s*1)?\s*\)?\s*%\s*([A-Za-z_][\w.]*|\d+)")
_LOOP = re.compile(rf"for\s+([A-Za-z_]\w*)\s*,.*\bin\s+enumerate\(\s*({_NAME})\s*[,)]")
_USUAL_NAMES = re.compile(
    r"\b(?:optimizer(?=\.|\))|scaler(?=\.)|loss(?=\))|i(?= \+ 1)|N(?= == 0)|loader(?=\)))"
)
_ABOVE = 60
"""How many lines above a finding its loop may begin."""


def helped(finding: Finding, sources: Mapping[SourceKey, Sequence[str]]) -> str:
    """The help of a finding, with the names that its lines show."""
    if not _USUAL_NAMES.search(finding.help):
        return finding.help
    names: dict[str, str] = {}
    if re.fullmatch(_NAME, finding.optimizer):
        names["optimizer"] = finding.optimizer
    for line in _lines(finding, sources):
        _read(line, names)
    _read_loop(finding, sources, names)
    return _USUAL_NAMES.sub(lambda usual: names.get(usual[0], usual[0]), finding.help)


def with_help(finding: Finding, sources: Mapping[SourceKey, Sequence[str]]) -> str:
    """The message of a finding and its help, on one line."""
    return finding.message + (f"; {helped(finding, sources)}" if finding.help else "")


def code(text: str) -> str:
    """The code in a help, to be copied: what follows its colon, or its longest call; "" if it has none."""
    last = text.rpartition(": ")[2]
    if re.fullmatch(rf"{_NAME}\([^()]*\)", last):
        return last
    calls = re.findall(rf"{_NAME}\.\w+\([^()]*\)(?:\.\w+\(\))?", text)
    return max(calls, key=len, default="")


def _lines(finding: Finding, sources: Mapping[SourceKey, Sequence[str]]) -> Iterator[str]:
    """The lines that a finding marks; first its own step, because the notes may name another optimizer's."""
    own = [finding.site] if finding.step is None else [finding.site, finding.step]
    for site in (*own, *(note.site for note in finding.notes)):
        yield from sources.get(source_key(site), ())[max(site.line, 1) - 1 : site.line]


def _read(line: str, names: dict[str, str]) -> None:
    """Take the names that a line shows. The first line that shows one decides."""
    if one := _SCALED_STEP.search(line):
        names.setdefault("scaler", one[1])
        names.setdefault("optimizer", one[2])
    elif one := _STEP.search(line):
        names.setdefault("optimizer", one[1])
    if one := _SCALED.search(line):
        names.setdefault("scaler", one[1])
        if one[2]:
            names.setdefault("loss", one[2])
    elif one := _BACKWARD.search(line):
        names.setdefault("loss", one[1])
    if one := _GUARD.search(line):
        names.setdefault("i", one[1])
        names.setdefault("N", one[2])


def _read_loop(
    finding: Finding, sources: Mapping[SourceKey, Sequence[str]], names: dict[str, str]
) -> None:
    """Take the counter and the loader of the loop above."""
    site = finding.site
    lines = sources.get(source_key(site), ())
    for number in range(min(site.line, len(lines)) - 1, max(-1, site.line - _ABOVE), -1):
        if one := _LOOP.search(lines[number]):
            if names.setdefault("i", one[1]) == one[1]:
                names.setdefault("loader", one[2])
            return
