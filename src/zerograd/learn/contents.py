"""The table of contents. A lesson is a module in `lessons/`, loaded when it is given: it needs torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module

from zerograd.learn.content import Part


@dataclass(frozen=True)
class Lesson:
    """One lesson: its number, its module, and what it is about."""

    number: int
    name: str
    title: str
    about: str

    def parts(self) -> Iterator[Part]:
        """The lesson, computed as it goes."""
        give: Callable[[], Iterator[Part]] = import_module(
            f"zerograd.learn.lessons.{self.name}"
        ).lesson
        return give()


_TITLES = (
    ("bucket", "The bucket", "3, then 5, then 8: .grad is a bucket that nobody empties for you"),
    ("accumulate", "Why gradients add up", "what a gradient is, and what backward() does with it"),
    ("clearing", "How to clear them", "five ways, what each leaves behind, and what none of them touches"),
    ("set_to_none", "None or zeros", "set_to_none: its memory and time, measured here, and its one catch"),
    ("place", "Where it belongs", "three right places in the loop, and one that undoes all learning"),
    ("skipped", "When it is skipped", "two trainings side by side, and what the wrong one really does"),
    ("on_purpose", "Adding up on purpose", "a big batch in small pieces, exactly"),
    ("devices", "Several devices, half precision", "who clears what under DDP, and what a scaler adds"),
    ("design", "Why PyTorch is made so", "what adding up is good for, and what it asks of you"),
    ("myths", "Four myths", "yes or no? Commit before you look"),
    ("pitfalls", "Three pitfalls", "each wrong, each repaired, each found by zerograd"),
)  # fmt: skip
LESSONS = tuple(Lesson(number, *row) for number, row in enumerate(_TITLES, 1))


def find(word: str) -> Lesson | None:
    """The lesson of that number or name."""
    for lesson in LESSONS:
        if word.replace("-", "_") in (str(lesson.number), lesson.name):
            return lesson
    return None
