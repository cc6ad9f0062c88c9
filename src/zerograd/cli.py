"""The command `zerograd`: reads the words, prints the answer, never shows a traceback.

It imports what a command needs when the command runs, so that it answers at once.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from zerograd import __version__

if TYPE_CHECKING:
    from zerograd.check import Options, Page
    from zerograd.finding import Report

FORMATS = ("text", "concise", "json", "github", "gitlab", "sarif")
INTERRUPTED = 130
COULD_NOT = 2

_ABOUT = "Finds gradient-handling bugs in PyTorch training loops, without running them."
_EXAMPLES = """\
examples:
  zerograd check .                        check every Python file and notebook below here
  zerograd check train.py --pedantic      one file, with the findings that are only possible
  zerograd explain stale-gradient         what a rule is about, with a bad and a good example
"""
_CHECK_EXAMPLES = """\
examples:
  zerograd check src/ notebooks/          directories, files, notebooks
  zerograd check . --select ZG1,ZG201     by code, by name, or by the beginning of a code
  zerograd check . --ignore unscaled-window --exclude legacy/
  zerograd check . --format sarif --output zerograd.sarif
  git show HEAD:train.py | zerograd check - --stdin-filename train.py

silence a finding that is meant that way, where it is, above the function, or atop the file:
  loss.backward()  # zerograd: allow[stale-gradient]

settings are read from the nearest pyproject.toml above each file:
  [tool.zerograd]
  ignore = ["dropped-window"]
  exclude = ["legacy"]
  include-tests = true                    # default: false
  per-file-ignores = { "examples/*" = ["ZG3"] }

exit: 0 clean or advice only, 1 errors found (or advice that was selected by its code or name),
      2 something could not be checked
"""


def _parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        "zerograd", description=_ABOUT, epilog=_EXAMPLES, formatter_class=raw, allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"zerograd {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    check = commands.add_parser(
        "check",
        help="find gradient-handling bugs in files and directories",
        description="Reads training code, never runs it, and says where gradients go wrong.",
        epilog=_CHECK_EXAMPLES,
        formatter_class=raw,
        allow_abbrev=False,
    )
    check.add_argument(
        "paths", nargs="+", metavar="PATH", help="file, directory, or - for standard input"
    )
    chosen = check.add_argument_group("what counts")
    chosen.add_argument(
        "--select",
        action="append",
        metavar="RULES",
        help="only these rules: codes, names, or ZG1 for all of ZG1xx",
    )
    chosen.add_argument(
        "--ignore", action="append", metavar="RULES", help="not these rules: likewise"
    )
    chosen.add_argument(
        "--pedantic", action="store_true", help="also show findings that are possible, not certain"
    )
    files = check.add_argument_group("which files")
    files.add_argument(
        "--exclude", action="append", metavar="PATTERN", help="leave out, in .gitignore's manner"
    )
    files.add_argument(
        "--include-tests", action="store_true", help="check test files, too: left out by default"
    )
    files.add_argument(
        "--stdin-filename", metavar="NAME", default="", help="what standard input is called"
    )
    output = check.add_argument_group("how it is told")
    output.add_argument("--format", choices=FORMATS, default="text", help="default: text")
    output.add_argument("--output", metavar="FILE", help="write the report to a file")
    output.add_argument(
        "--color", choices=("auto", "always", "never"), default="auto", help="default: auto"
    )
    output.add_argument("--statistics", action="store_true", help="count findings by rule")
    output.add_argument("--exit-zero", action="store_true", help="findings do not fail the check")
    running = check.add_argument_group("how it runs")
    running.add_argument(
        "--jobs", type=_jobs, metavar="N", default=0, help="processes; default: one for each core"
    )
    running.add_argument("--no-cache", action="store_true", help="read every file again")
    check.set_defaults(run=_check)

    explain = commands.add_parser(
        "explain",
        help="print a rule's page, or list all rules",
        description="What a rule is about, with a bad and a good example. Alone: all rules.",
        allow_abbrev=False,
    )
    explain.add_argument("rule", nargs="?", metavar="RULE", help="code or name")
    explain.set_defaults(run=_explain)
    return parser


def _jobs(word: str) -> int:
    if not word.isdecimal() or int(word) < 1:
        raise argparse.ArgumentTypeError(f"{word!r} is not a number of processes: 1, 2, 3 …")
    return int(word)


def main(words: Sequence[str] | None = None) -> int:
    """Run the command that the words ask for; the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # Names of files need not be text, and a terminal need not know every sign.
            stream.reconfigure(errors="backslashreplace")
    try:
        arguments = _parser().parse_args(words)
        code: int = arguments.run(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        _say("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever reads has read enough. Nothing may be written on the way out, either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return COULD_NOT
    except Exception as error:
        if os.environ.get("ZEROGRAD_TRACEBACK"):
            raise
        _say(f"failed ({error!r}); report this as a bug, with ZEROGRAD_TRACEBACK=1 set")
        return COULD_NOT
    return code


def _say(message: str) -> None:
    print(f"zerograd: {message}", file=sys.stderr)


def _check(arguments: argparse.Namespace) -> int:
    from zerograd.check import run
    from zerograd.selection import UnknownRule

    if arguments.statistics and arguments.format not in ("text", "concise"):
        _say(f"--statistics goes with --format text, not with {arguments.format}")
        return COULD_NOT
    if _words(arguments.select) == ():
        _say("--select names no rule; without it every rule counts")
        return COULD_NOT
    progress = _Progress()
    try:
        outcome = run(_options(arguments), progress.tell)
    except UnknownRule as error:
        _say(str(error))
        return COULD_NOT
    finally:
        progress.end()
    if not _write(_render(outcome.report, arguments), arguments.output):
        return COULD_NOT
    code = outcome.exit_code
    return 0 if code == 1 and arguments.exit_zero else code


def _options(arguments: argparse.Namespace) -> Options:
    from zerograd.check import Options

    stdin = sys.stdin.buffer.read() if "-" in arguments.paths else None
    return Options(
        paths=tuple(arguments.paths),
        select=_words(arguments.select),
        ignore=_words(arguments.ignore) or (),
        exclude=_words(arguments.exclude) or (),
        pedantic=arguments.pedantic,
        include_tests=arguments.include_tests,
        jobs=arguments.jobs,
        cache=not arguments.no_cache,
        stdin=stdin,
        stdin_filename=arguments.stdin_filename,
    )


def _words(given: list[str] | None) -> tuple[str, ...] | None:
    """The words of `--select a,b --select c`; None without any."""
    if given is None:
        return None
    return tuple(word.strip() for one in given for word in one.split(",") if word.strip())


def _render(report: Report, arguments: argparse.Namespace) -> str:
    if arguments.format == "sarif":
        from zerograd.check import catalogue
        from zerograd.report import sarif

        return sarif.render(report, rules=catalogue(), version=__version__)
    if arguments.statistics:
        from zerograd.report import text

        return text.statistics(report)
    if arguments.format == "text":
        from zerograd.report import text

        return text.render(report, color=_colored(arguments))
    from importlib import import_module

    rendered: str = import_module(f"zerograd.report.{arguments.format}").render(report)
    return rendered


def _colored(arguments: argparse.Namespace) -> bool:
    if arguments.color != "auto":
        return bool(arguments.color == "always")
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or arguments.output:
        return False
    return sys.stdout.isatty()


def _write(text: str, path: str | None) -> bool:
    if path is None:
        sys.stdout.write(text)
        return True
    try:
        with open(path, "w", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(text)
    except OSError as error:
        _say(f"{path} cannot be written: {error.strerror}")
        return False
    return True


class _Progress:
    """A line on the terminal, once a check takes longer than one likes to wait in the dark."""

    AFTER = 2.0
    EVERY = 0.1

    def __init__(self) -> None:
        self._next = time.monotonic() + self.AFTER
        self._shown = False
        self._terminal = sys.stderr.isatty()

    def tell(self, done: int, total: int) -> None:
        """So many files are read, of so many."""
        if self._terminal and time.monotonic() >= self._next:
            self._next = time.monotonic() + self.EVERY
            self._shown = True
            print(f"\r\x1b[Kchecking: {done} of {total} files", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Leave the terminal as it was."""
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _explain(arguments: argparse.Namespace) -> int:
    from zerograd.check import catalogue
    from zerograd.selection import UnknownRule, expand

    pages = catalogue()
    if arguments.rule is None:
        print(_table(pages))
        return 0
    try:
        codes = expand(arguments.rule, pages)
    except UnknownRule as error:
        _say(str(error))
        return COULD_NOT
    chosen = [page for page in pages if page.code in codes]
    if len(chosen) > 1:
        print(_table(chosen))
        return 0
    page = chosen[0]
    print(f"{page.code} {page.name} ({page.level})\n\n{page.doc.strip()}")
    return 0


def _table(pages: Sequence[Page]) -> str:
    width = max(len(page.name) for page in pages)
    return "\n".join(
        f"{page.code}  {page.name:<{width}}  {page.level:<6}  {page.doc.strip().splitlines()[0]}"
        for page in pages
    )
