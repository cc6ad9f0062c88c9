"""The parts of a lesson. They are data: lessons compute them, presenter and web pages show them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from zerograd.core.finding import Report

MARKED = re.compile(r"`([^`]+)`|\*([^*]+)\*")
"""Code or emphasis in a paragraph."""


@dataclass(frozen=True)
class Say:
    """A paragraph; `code` and *emphasis* are marked as in Markdown."""

    text: str


@dataclass(frozen=True)
class Code:
    """Code that the lesson runs."""

    text: str
    title: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of text and numbers."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Bars:
    """Quantities side by side. A row has a label, an amount, and the amount as text."""

    rows: tuple[tuple[str, float, str], ...]
    title: str = ""


@dataclass(frozen=True)
class Curves:
    """Series over the same steps, drawn on a logarithmic scale."""

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
    """The gradient that fills a bucket; 0 means the largest gradient shown."""


class Lab(Protocol):
    """One weight and its bucket, for the reader to try out."""

    weight: float
    rate: float
    gradients: tuple[float, ...]
    """The gradients of the batches, in turn."""
    table: dict[str, dict[str, str]]
    """The state after a call, by the state before it."""

    def press(self, call: str) -> Moment:
        """Call zero, backward or step."""
        ...


@dataclass(frozen=True)
class TryOut:
    """Here the reader presses the buttons."""

    lab: Lab


@dataclass(frozen=True)
class CommandReport:
    """A zerograd command and its report."""

    command: str
    report: Report


@dataclass(frozen=True)
class Pause:
    """The presenter waits for Enter here."""


Plain = Say | Code | Table | Bars | Curves | Buckets | TryOut | CommandReport | Pause


@dataclass(frozen=True)
class Question:
    """A question that the reader answers with yes or no before the answer is shown."""

    text: str
    truth: bool
    because: Iterable[Plain]
    """The explanation. It may be computed when it is first read."""


Part = Plain | Question


def number(value: float) -> str:
    """A number with four significant digits: 8, 0.25, 1.2e-07."""
    return f"{value:.4g}"
