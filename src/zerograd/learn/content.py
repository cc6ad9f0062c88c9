"""What a lesson is made of. Data: lessons compute it, renderers show it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from zerograd.core.finding import Report

MARKED = re.compile(r"`([^`]+)`|\*([^*]+)\*")
"""Code, or stressed words, in a paragraph."""


@dataclass(frozen=True)
class Say:
    """A paragraph; `code` and *stress* are marked as in Markdown."""

    text: str


@dataclass(frozen=True)
class Code:
    """Code that the lesson runs."""

    text: str
    title: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of words and numbers."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Bars:
    """Quantities side by side: what, how much, and how that is said."""

    rows: tuple[tuple[str, float, str], ...]
    title: str = ""


@dataclass(frozen=True)
class Curves:
    """Series over the same steps, on a logarithmic scale."""

    lines: tuple[tuple[str, tuple[float, ...]], ...]
    title: str = ""


@dataclass(frozen=True)
class Moment:
    """The bucket after one call."""

    call: str
    gradient: float | None
    weight: float
    state: str = ""


@dataclass(frozen=True)
class Buckets:
    """The bucket, call by call."""

    moments: tuple[Moment, ...]
    brim: float = 0.0
    """What fills a bucket to the brim; 0: the most there is."""


class Lab(Protocol):
    """A weight with a bucket, to play with."""

    weight: float
    rate: float
    gradients: tuple[float, ...]
    """What the batches bring, in turn."""
    table: dict[str, dict[str, str]]
    """The state after a call, by the state before it."""

    def press(self, call: str) -> Moment:
        """Call zero, backward or step."""
        ...


@dataclass(frozen=True)
class Try:
    """An invitation to press the buttons oneself."""

    lab: Lab


@dataclass(frozen=True)
class Verdict:
    """What zerograd says, and how it was asked."""

    asked: str
    report: Report


@dataclass(frozen=True)
class Pause:
    """A place to take a breath."""


Plain = Say | Code | Table | Bars | Curves | Buckets | Try | Verdict | Pause


@dataclass(frozen=True)
class Question:
    """Something to commit to with yes or no before the answer is shown."""

    text: str
    truth: bool
    because: Iterable[Plain]
    """May be computed only once it is asked for."""


Part = Plain | Question


def number(value: float) -> str:
    """A number as a person would write it: 8, 0.25, 1.2e-07."""
    return f"{value:.4g}"
