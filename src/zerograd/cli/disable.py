"""`zerograd disable`: takes back what `zerograd enable` has done."""

from __future__ import annotations

import argparse
import os

from zerograd.cli.output import COULD_NOT, say


def add(parser: argparse.ArgumentParser) -> None:
    """The options of `disable`: there are none of its own."""
    parser.description = "Undoes `zerograd enable`: the variable ZEROGRAD has no effect any more."
    parser.epilog = "exit: 0, or 2 if the file cannot be removed"


def run(arguments: argparse.Namespace) -> int:
    """Remove the file; the exit code."""
    from zerograd.launch.start_file import places, written

    found = written()
    for path in found:
        try:
            os.remove(path)
        except OSError as error:
            say(f"{path} cannot be removed: {error.strerror}")
            return COULD_NOT
        if not arguments.quiet:
            print(f"{path} is removed.")
    if not found and not arguments.quiet:
        print(f"nothing to undo: there is no {' and no '.join(places())}")
    return 0
