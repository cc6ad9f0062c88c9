"""From events to findings, with no torch: what a watched run and a replayed recording have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Protocol

from zerograd.core.automaton import Ledger
from zerograd.core.events import Event, Kind, Site
from zerograd.core.finding import Finding, Note, Report
from zerograd.core.rule import Rule, Violation
from zerograd.fold.window_statistics import Book

Tell = Callable[[Finding], None]


# An attribute of an enumeration is looked up each time; a name of the module is not.
_BACKWARD, _STEP, _ZERO = Kind.BACKWARD, Kind.STEP, Kind.ZERO


class Recorder(Protocol):
    """Keeps the events of a run."""

    def write(self, subject: str, event: Event) -> None:
        """Keep one."""
        ...


class Judge:
    """Folds the events of every subject and collects what breaks a rule, each place once."""

    def __init__(self, rules: Iterable[Rule], tell: Tell | None = None) -> None:
        self.rules = tuple(rules)
        self.report = Report()
        self.recorder: Recorder | None = None
        self._codes = {rule.code for rule in self.rules}
        self._tell = tell
        self._ledger = Ledger(self.rules)
        self._books: dict[str, Book] = {}
        self._places: dict[tuple[str, str, int], int] = {}
        self._past_steps = 0
        self._past_windows: Counter[int] = Counter()

    def book(self, subject: str) -> Book:
        """What is known of a subject."""
        if subject not in self._books:
            self._books[subject] = Book(subject, self._ledger.node())
        return self._books[subject]

    @property
    def books(self) -> list[Book]:
        """Of all subjects that there are."""
        return list(self._books.values())

    @property
    def steps(self) -> int:
        """How many steps there were."""
        return self._past_steps + sum(book.steps for book in self._books.values())

    @property
    def windows(self) -> Counter[int]:
        """How many windows there were of each length."""
        total = Counter(self._past_windows)
        for book in self._books.values():
            total.update(book.windows)
        return +total

    def forked(self) -> None:
        """This process is a child of the one that it was: what that has done does not count here."""
        self._past_steps -= self.steps
        self._past_windows.subtract(self.windows)

    def forget(self, subject: str) -> None:
        """The subject is gone: what it has done counts, what it was about to do does not."""
        book = self._books.pop(subject, None)
        if book is not None:
            self._past_steps += book.steps
            self._past_windows.update(book.windows)

    def post(self, subject: str, event: Event) -> None:
        """Take one event of a subject."""
        self.move(self.book(subject), event)

    def move(self, book: Book, event: Event) -> None:
        """Take one event of a subject whose book is at hand."""
        if self.recorder is not None:
            self.recorder.write(book.name, event)
        before = book.node
        edge = before.edges.get(id(event)) or self._ledger.take(before, event)
        book.node = edge.node
        if edge.broken:
            self._broken(edge.broken, book, event)
        kind = event.kind
        if kind is _BACKWARD:
            if not event.may:
                book.window += 1
        elif kind is _STEP:
            if event.foreign:
                book.lent = edge.node
                return
            if book.plain(event):
                book.windows[book.window] += 1
                if book.drops:
                    book.drops = []
            else:
                self._broken(book.closed(event, before.state), book, event)
            book.window = 0
            book.steps += 1
        elif kind is _ZERO:
            if book.window:
                if before is not book.lent:
                    self._broken(book.dropped(event, before.state), book, event)
                book.window = 0

    def end(self, *, clean: bool = True) -> None:
        """The run is over; a run that was broken off is not blamed for what it left open."""
        if clean:
            end = Event(Kind.END, Site("", 0))
            for book in self._books.values():
                self._broken(book.ended(end), book, end)

    def tell(self, rule: Rule, violation: Violation, iteration: int | None = None) -> None:
        """Report a violation, or count it where its place is already known."""
        place = (rule.code, violation.site.path, violation.site.line)
        findings = self.report.findings
        number = self._places.get(place)
        if number is not None:
            seen = findings[number].seen or 1
            findings[number] = replace(findings[number], seen=seen + 1)
            if self._tell is not None:
                self._tell(findings[number])
            return
        finding = Finding(
            code=rule.code,
            name=rule.name,
            level=rule.level,
            message=violation.message,
            site=replace(violation.site, iteration=iteration),
            label=violation.label,
            notes=tuple(Note(one.site, one.message) for one in violation.evidence),
            help=violation.help,
            seen=1,
        )
        self._places[place] = len(findings)
        findings.append(finding)
        if self._tell is not None:
            self._tell(finding)

    def _broken(self, broken: Iterable[tuple[Rule, Violation]], book: Book, event: Event) -> None:
        for rule, violation in broken:
            if rule.code in self._codes and rule.code not in event.allowed:
                at = book.steps + 1 if event.diverged is None else event.diverged.step
                self.tell(rule, violation, at)
