"""The output formats: one module of this package each, one line here."""

from __future__ import annotations

from typing import NamedTuple


class Format(NamedTuple):
    """What the commands have to know about a format before it renders a report."""

    for_people: bool = False
    """People read it, so `--statistics` may take its place."""
    shows_fixes: bool = False
    """It shows repairs, so a check looks for them even without `--fix`."""


FORMATS = {
    "text": Format(for_people=True, shows_fixes=True),
    "concise": Format(for_people=True),
    "agent": Format(shows_fixes=True),
    "json": Format(shows_fixes=True),
    "github": Format(),
    "gitlab": Format(),
    "junit": Format(),
    "sarif": Format(shows_fixes=True),
}
"""By name of the module, which has a function `render(report, *, color)`."""
