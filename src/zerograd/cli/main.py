"""The command `zerograd`: parses the arguments, calls a subcommand, never shows a traceback."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
import time
from collections.abc import Sequence
from errno import ENOSPC
from importlib import import_module
from types import ModuleType
from typing import NoReturn

from zerograd import __version__
from zerograd.cli.commands import COMMANDS
from zerograd.cli.options import add_verbosity
from zerograd.cli.output import COULD_NOT, INTERRUPTED, detail, say, silent
from zerograd.core.usage_error import UsageError

_WRITTEN = ("output", "html", "record", "write_baseline")
"""The options that name a file to write."""
_ABOUT = "Finds gradient-handling bugs in PyTorch training loops: in the code, and while it runs."
_EXAMPLES = """\
examples:
  zerograd check .                        check every Python file and notebook below here
  zerograd check train.py --pedantic      one file, including findings that are only possible
  zerograd run train.py --epochs 3        run a script like python, and watch its gradients
  zerograd explain stale-gradient         explain a rule, with a bad and a good example
  zerograd learn                          learn what gradients do, in eleven short lessons
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; the exit code."""
    strictness = _forgive()
    try:
        code = _run_command(sys.argv[1:] if arguments is None else arguments, strictness)
    except UsageError as error:
        say(str(error))
        return COULD_NOT
    except KeyboardInterrupt:
        if sys.excepthook is silent:
            raise
        say("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has closed the pipe. Nothing may be written on exit, either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return COULD_NOT
    except Exception as error:
        if os.environ.get("ZEROGRAD_TRACEBACK"):
            raise
        if isinstance(error, OSError) and error.errno == ENOSPC:
            say("the output cannot be written: no space is left on the device")
            return COULD_NOT
        say(f"failed ({error!r}); report this as a bug, with ZEROGRAD_TRACEBACK=1 set")
        return COULD_NOT
    return code


def _run_command(arguments: Sequence[str], strictness: dict[str, str]) -> int:
    asked = arguments[0] if arguments and arguments[0] in COMMANDS else ""
    command = import_module(f"zerograd.cli.{asked}") if asked else None
    # Everything after the script belongs to the script.
    own, program = command.split(arguments) if command and asked == "run" else (arguments, ())
    parser = _parser(asked, command)
    options, unknown = parser.parse_known_args(own)
    if unknown:
        parser.asked.refuse(unknown)
    if command is None:
        parser.print_help(sys.stderr)
        return COULD_NOT
    options.program, options.strictness = program, strictness
    for option in _WRITTEN:
        path = vars(options).get(option) or ""
        if path.endswith((".py", ".ipynb")) and os.path.isfile(path):
            raise UsageError(
                f"{path} is source code, which a report would replace; name another file"
            )
    try:
        here = os.getcwd()
    except OSError:
        raise UsageError("the current directory is gone; change into another one") from None
    detail(f"{__version__}, Python {sys.version.split()[0]}, in {here}", options)
    start = time.monotonic()
    code: int = command.run(options)
    with contextlib.suppress(OSError, ValueError):  # a script may have closed its standard error
        detail(f"took {time.monotonic() - start:.2f} s", options)
    if asked != "run":  # there standard output belongs to the script
        sys.stdout.flush()
    return code


class _Parser(argparse.ArgumentParser):
    """A parser that suggests a similar command or option for one that it does not know."""

    asked: _Parser
    """The parser of the called subcommand."""

    def refuse(self, unknown: Sequence[str]) -> NoReturn:
        """End with a message about unknown arguments."""
        options = list(self._option_string_actions)
        hints = [
            _similar(argument.partition("=")[0], options)
            for argument in unknown
            if argument[:1] == "-"
        ]
        if self._subparsers and not any(hints):
            hints = ["; options come after the command"]
        self.error(f"unrecognized arguments: {' '.join(unknown)}{''.join(hints)}")

    def error(self, message: str) -> NoReturn:
        """End with a message; a command or a value that does not exist gets a suggestion."""
        wrong = re.match(r"argument (.*): invalid choice: '(.*?)' \(choose from (.*)\)", message)
        if wrong and wrong[1] == "COMMAND":
            path = (
                f"; did you mean {self.prog} check {wrong[2]}?" if os.path.exists(wrong[2]) else ""
            )
            message = f"unknown command '{wrong[2]}'{_similar(wrong[2], list(COMMANDS)) or path}"
        elif wrong:
            message += _similar(wrong[2], re.findall(r"[\w-]+", wrong[3]))
        self.exit(COULD_NOT, f"{self.prog}: error: {message}\nsee {self.prog} --help\n")


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help as wide as the terminal.

    argparse asks `shutil` for the width, even where no help is printed: that loads compression libraries, 2 % of
    the instructions of a one-file check.
    """

    def __init__(self, prog: str) -> None:
        columns = os.environ.get("COLUMNS", "")
        width = int(columns) if columns.isdecimal() else 0
        with contextlib.suppress(OSError, ValueError, AttributeError):
            width = width or os.get_terminal_size(sys.__stdout__.fileno()).columns  # type: ignore[union-attr]
        super().__init__(prog, width=(width or 80) - 2)


def _similar(argument: str, known: list[str]) -> str:
    from difflib import get_close_matches

    # All options begin with dashes: that does not make two of them similar.
    names = {name.lstrip("-"): name for name in known}
    close = get_close_matches(argument.lstrip("-"), names, 1)
    return f"; did you mean {names[close[0]]}?" if close else ""


def _parser(asked: str, command: ModuleType | None) -> _Parser:
    """The parser; only the called subcommand is loaded and adds its options."""
    parser = _Parser(
        "zerograd", description=_ABOUT, epilog=_EXAMPLES, formatter_class=_Help, allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"zerograd {__version__}")
    parser.asked = parser
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, purpose in COMMANDS.items() if not asked else [(asked, COMMANDS[asked])]:
        added = commands.add_parser(name, help=purpose, formatter_class=_Help, allow_abbrev=False)
        if name == asked and command is not None:
            command.add(added)
            add_verbosity(added)
            parser.asked = added
    return parser


def _forgive() -> dict[str, str]:
    """Let file names that are not text, and characters the terminal lacks, be printed escaped."""
    before = {}
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # it was closed, and nothing else may get its number
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        if hasattr(stream, "reconfigure"):
            before[name] = stream.errors
            stream.reconfigure(errors="backslashreplace")
    return before
