"""`zerograd enable`: watch whatever runs in this environment, where the variable ZEROGRAD asks for it."""

from __future__ import annotations

import argparse

from zerograd.cli.output import COULD_NOT, say

_EXAMPLES = """\
examples:
  zerograd enable                         once in an environment; it says which file it writes
  ZEROGRAD=warn python train.py           findings are printed as they happen
  ZEROGRAD=raise sbatch job.sh            stop at the first error; no command line has to change
  ZEROGRAD=collect torchrun train.py      one report at the end; ranks and child processes included
  zerograd disable                        undo it

ZEROGRAD is warn, raise, collect or off. without it nothing is watched, and nothing is loaded.
python reads the file at every start; the check of the variable takes microseconds. a program that is
watched like this keeps its exit code, and prints nothing if there are no findings. every finding is also
logged under the logger `zerograd`.

exit: 0, or 2 if the file cannot be written
"""


def add(parser: argparse.ArgumentParser) -> None:
    """The options of `enable`."""
    parser.description = "Lets the variable ZEROGRAD watch every program of this environment."
    parser.epilog = _EXAMPLES
    parser.add_argument(
        "--user", action="store_true", help="for all environments of this Python and this user"
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the file; the exit code."""
    from zerograd.launch.start_file import places, write

    found = places()
    if arguments.user and len(found) < 2:
        say("this Python has no directory of the user (a virtual environment): leave --user out")
        return COULD_NOT
    path = found[1 if arguments.user else 0]
    try:
        write(path)
    except OSError as error:
        hint = "use a virtual environment" + (
            "" if arguments.user else ", or zerograd enable --user"
        )
        say(f"{path} cannot be written: {error.strerror}; {hint}")
        return COULD_NOT
    if arguments.quiet:
        return 0
    print(f"{path} is written: every Python there now looks at the variable ZEROGRAD.")
    print("ZEROGRAD=warn python train.py watches a program; zerograd disable undoes it.")
    return 0
