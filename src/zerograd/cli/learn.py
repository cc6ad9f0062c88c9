"""`zerograd learn`: the course, on a terminal or as web pages."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from zerograd.cli.options import add_color
from zerograd.cli.output import COULD_NOT, INTERRUPTED, say, wants_color

if TYPE_CHECKING:
    from zerograd.learn.contents import Lesson
    from zerograd.learn.presenter import Terminal

_EXAMPLES = """\
examples:
  zerograd learn                     the whole course: Enter goes on, q quits
  zerograd learn --list              list the lessons
  zerograd learn --lesson 4          one lesson, by number or name
  zerograd learn --answer no | less  without pauses, every question answered with no
  zerograd learn --html lessons/     write the course as web pages, with a bucket to play with

torch computes every number while you read.

exit: 0, or 2 without torch or for an unknown lesson
"""


def add(parser: argparse.ArgumentParser) -> None:
    """The options of `learn`."""
    parser.description = "Teaches what gradients do between zero_grad(), backward() and step()."
    parser.epilog = _EXAMPLES
    parser.add_argument("--list", action="store_true", help="list the lessons")
    parser.add_argument("--lesson", metavar="N", help="show only this lesson: its number or name")
    parser.add_argument(
        "--answer", choices=("yes", "no"), help="answer every question like this, and do not wait"
    )
    parser.add_argument("--html", metavar="DIR", help="write the lessons as web pages")
    add_color(parser)


def run(arguments: argparse.Namespace) -> int:
    """Show the lessons; the exit code."""
    from zerograd.learn.contents import LESSONS, find, similar

    lessons: Sequence[Lesson] = LESSONS
    if arguments.lesson is not None:
        found = find(arguments.lesson)
        if found is None:
            close = " or ".join(f"{one.number} ({one.name})" for one in similar(arguments.lesson))
            hint = f"did you mean {close}? " if close else ""
            say(
                f"unknown lesson {arguments.lesson!r}; {hint}zerograd learn --list shows all lessons"
            )
            return COULD_NOT
        lessons = (found,)
    if arguments.list:
        _terminal(arguments).contents(lessons)
        return 0
    from zerograd.runtime.patches import Unsupported, load_torch

    try:
        load_torch()
    except Unsupported as error:
        say(f"the lessons need torch: {error} (zerograd learn --list does not)")
        return COULD_NOT
    if arguments.html is not None:
        return _pages(lessons, arguments.html)
    try:
        _terminal(arguments).course(lessons)
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def _terminal(arguments: argparse.Namespace) -> Terminal:
    from zerograd.learn.presenter import Terminal

    there = sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
    answer = None if arguments.answer is None else arguments.answer == "yes"
    return Terminal(
        sys.stdout, sys.stdin if there else None, color=wants_color(arguments), answer=answer
    )


def _pages(lessons: Sequence[Lesson], folder: str) -> int:
    from zerograd.learn.web_pages import write

    try:
        for path in write(lessons, folder):
            print(path)
    except OSError as error:
        say(f"{error.filename or folder} cannot be written: {error.strerror}")
        return COULD_NOT
    return 0
