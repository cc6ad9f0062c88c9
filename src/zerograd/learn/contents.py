"""The table of contents. A lesson is a module in `lessons/`; it needs torch, so it is loaded late."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module

from zerograd.learn.content import Part


@dataclass(frozen=True)
class Lesson:
    """One lesson: its number, module, title and subject."""

    number: int
    name: str
    title: str
    about: str

    def parts(self) -> Iterator[Part]:
        """The parts of the lesson, computed one after the other."""
        give: Callable[[], Iterator[Part]] = import_module(
            f"zerograd.learn.lessons.{self.name}"
        ).lesson
        return give()


_TITLES = (
    ("bucket", "The bucket", "3, then 5, then 8: .grad is a bucket that you have to empty"),
    ("accumulate", "Why gradients add up", "what a gradient is, and what backward() does with it"),
    ("clearing", "How to clear gradients", "five ways, and what each leaves in .grad"),
    ("set_to_none", "None or zeros", "set_to_none: memory and time, measured here, and one catch"),
    ("place", "Where to clear", "three right places in the loop, and one that prevents learning"),
    ("skipped", "A forgotten clear", "two trainings side by side, with and without the clear"),
    ("on_purpose", "Gradient accumulation", "a big batch in small pieces, with exactly the same gradient"),
    ("devices", "Several devices, half precision", "who clears what under DDP, and what a scaler adds"),
    ("design", "Why PyTorch adds gradients up", "what it makes possible, and what you have to do"),
    ("myths", "Four myths", "answer yes or no before you look"),
    ("pitfalls", "Three pitfalls", "each shown wrong and repaired, each found by zerograd"),
)  # fmt: skip
LESSONS = tuple(Lesson(number, *row) for number, row in enumerate(_TITLES, 1))


def find(name: str) -> Lesson | None:
    """The lesson with this number or name."""
    for lesson in LESSONS:
        if name.replace("-", "_") in (str(lesson.number), lesson.name):
            return lesson
    return None


def similar(name: str) -> list[Lesson]:
    """The lessons whose name or title is like this, the closest first."""
    from difflib import get_close_matches

    titles = {title: lesson for lesson in LESSONS for title in (lesson.name, lesson.title.lower())}
    close = get_close_matches(name.lower().replace("-", "_"), titles, 3, 0.5)
    return list(dict.fromkeys(titles[title] for title in close))
