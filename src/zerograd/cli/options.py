"""Options that several commands share."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from zerograd.core.usage_error import UsageError
from zerograd.report.formats import FORMATS


def add_rules(group: argparse._ArgumentGroup) -> None:
    """`--select` and `--ignore`."""
    group.add_argument(
        "--select",
        action="append",
        metavar="RULES",
        help="use only these rules: codes, names, or ZG1 for all of ZG1xx",
    )
    group.add_argument(
        "--ignore",
        action="append",
        metavar="RULES",
        help="do not use these rules",
    )


def add_check_rules(group: argparse._ArgumentGroup) -> None:
    """The same, and what else decides about the findings of a check."""
    add_rules(group)
    group.add_argument(
        "--pedantic",
        action="store_true",
        help="also show findings that are possible but not certain",
    )
    group.add_argument(
        "--config", metavar="FILE", help="use the settings of this file for all files"
    )


def add_output(group: argparse._ArgumentGroup) -> None:
    """`--format`, `--output` and `--color`."""
    group.add_argument("--format", choices=FORMATS, default="text", help="default: text")
    group.add_argument(
        "--output",
        metavar="FILE",
        type=lambda name: None if name == "-" else name,
        help="write the report to a file",
    )
    group.set_defaults(statistics=False)  # only `check` has them
    add_color(group)


def add_color(group: argparse._ActionsContainer) -> None:
    """`--color`."""
    group.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="default: auto, on a terminal; NO_COLOR and FORCE_COLOR are obeyed",
    )


def add_exit_zero(group: argparse._ActionsContainer) -> None:
    """`--exit-zero`."""
    group.add_argument(
        "--exit-zero", action="store_true", help="exit with 0 even if there are findings"
    )


def number_of(what: str) -> Callable[[str], int]:
    """The type of an option that counts something, from 1 on."""

    def number(text: str) -> int:
        if not text.isdecimal() or int(text) < 1:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number of {what}: 1, 2, 3 …")
        return int(text)

    return number


def add_verbosity(group: argparse._ActionsContainer) -> None:
    """`-q` and `-v`, which every command has."""
    group.add_argument(
        "-q",
        "--quiet",
        action="store_true",
        help="print only findings, problems and what was asked for",
    )
    group.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="also print what is used, and how long it takes",
    )


def listed(given: list[str] | None) -> tuple[str, ...] | None:
    """The items of `--select a,b --select c`; None without the option."""
    if given is None:
        return None
    return tuple(item.strip() for one in given for item in one.split(",") if item.strip())


def rule_options(arguments: argparse.Namespace) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """The selected rules, None without `--select`, and the ignored ones."""
    select = listed(arguments.select)
    if select == ():
        raise UsageError("--select names no rule; without it, all rules are used")
    return select, listed(arguments.ignore) or ()
