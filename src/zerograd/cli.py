"""The command `zerograd`: reads the words, prints the answer, never shows a traceback.

It imports what a command needs when the command runs, so that it answers at once.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from zerograd import __version__

if TYPE_CHECKING:
    from zerograd.check import Options, Page
    from zerograd.finding import Report
    from zerograd.run import Options as RunOptions

FORMATS = ("text", "concise", "json", "github", "gitlab", "sarif")
INTERRUPTED = 130
COULD_NOT = 2

_ABOUT = "Finds gradient-handling bugs in PyTorch training loops: in the code, and while it runs."
_EXAMPLES = """\
examples:
  zerograd check .                        check every Python file and notebook below here
  zerograd check train.py --pedantic      one file, with the findings that are only possible
  zerograd run train.py --epochs 3        run a script as python would, and watch its gradients
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
_RUN_USAGE = """\
zerograd run [options] SCRIPT [ARGUMENTS…]
       zerograd run [options] -m MODULE [ARGUMENTS…]"""
_RUN_EXAMPLES = """\
options of zerograd stand before the script; all that follows it is the script's own.

examples:
  zerograd run train.py --lr 0.1            as `python train.py --lr 0.1`, and watched
  zerograd run -m project.train             as `python -m project.train`
  zerograd run --on raise train.py          stop at the first error, with a traceback
  zerograd run --select ZG1 train.py        by code, by name, or by the beginning of a code
  zerograd run --format json --output found.json train.py
  zerograd run --record run.jsonl train.py  keep the events; zerograd replay judges them again

findings are told on standard error as they happen, and summed up at the end; standard output is
the script's own. what is meant to be so is silenced in the script:
  with zerograd.allow("stale-gradient"): …

exit: the script's own code if it is not 0; else 0 clean, 1 findings (advice counts where it was
selected), 2 it could not be run, or not be watched
"""
_REPLAY_EXAMPLES = """\
examples:
  zerograd run --record run.jsonl train.py  make a recording
  zerograd replay run.jsonl                 judge it again, on any machine: torch is not needed
  zerograd replay run.jsonl --select ZG3    … by other rules

exit: 0 clean, 1 findings (advice counts where it was selected), 2 the recording could not be read,
or not to its end
"""
_VALUED = ("--on", "--select", "--ignore", "--format", "--output", "--record", "--color")
"""The options of `run` that are followed by a word."""


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
    _add_rules(chosen)
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
    _add_output(output)
    output.add_argument("--statistics", action="store_true", help="count findings by rule")
    output.add_argument("--exit-zero", action="store_true", help="findings do not fail the check")
    running = check.add_argument_group("how it runs")
    running.add_argument(
        "--jobs", type=_jobs, metavar="N", default=0, help="processes; default: one for each core"
    )
    running.add_argument("--no-cache", action="store_true", help="read every file again")
    check.set_defaults(run=_check)

    _add_run(commands.add_parser, raw)
    _add_replay(commands.add_parser, raw)

    explain = commands.add_parser(
        "explain",
        help="print a rule's page, or list all rules",
        description="What a rule is about, with a bad and a good example. Alone: all rules.",
        allow_abbrev=False,
    )
    explain.add_argument("rule", nargs="?", metavar="RULE", help="code or name")
    explain.set_defaults(run=_explain)
    return parser


def _add_run(add_parser: Callable[..., argparse.ArgumentParser], raw: object) -> None:
    run = add_parser(
        "run",
        help="run a script unchanged and watch its gradients",
        usage=_RUN_USAGE,
        description="Runs a script as python would, and says where its gradients go wrong.",
        epilog=_RUN_EXAMPLES,
        formatter_class=raw,
        allow_abbrev=False,
    )
    run.add_argument(
        "--on", choices=("warn", "raise"), default="warn", help="raise: stop at the first error"
    )
    _add_rules(run.add_argument_group("what counts"))
    output = run.add_argument_group("how it is told")
    _add_output(output)
    output.add_argument("--record", metavar="FILE", help="write the events to a file, for replay")
    output.add_argument(
        "-q", "--quiet", action="store_true", help="no summary when there is nothing to report"
    )
    output.add_argument("--exit-zero", action="store_true", help="findings do not fail the run")
    run.set_defaults(run=_run, statistics=False)


def _add_replay(add_parser: Callable[..., argparse.ArgumentParser], raw: object) -> None:
    replay = add_parser(
        "replay",
        help="judge the recording of a run again, without torch",
        description="Reads what `zerograd run --record` wrote, and judges it again.",
        epilog=_REPLAY_EXAMPLES,
        formatter_class=raw,
        allow_abbrev=False,
    )
    replay.add_argument("recording", metavar="FILE", help="a recording")
    _add_rules(replay.add_argument_group("what counts"))
    output = replay.add_argument_group("how it is told")
    _add_output(output)
    output.add_argument("--exit-zero", action="store_true", help="findings do not fail the replay")
    replay.set_defaults(run=_replay, statistics=False)


def _add_rules(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--select",
        action="append",
        metavar="RULES",
        help="only these rules: codes, names, or ZG1 for all of ZG1xx",
    )
    group.add_argument(
        "--ignore", action="append", metavar="RULES", help="not these rules: likewise"
    )


def _add_output(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--format", choices=FORMATS, default="text", help="default: text")
    group.add_argument("--output", metavar="FILE", help="write the report to a file")
    group.add_argument(
        "--color", choices=("auto", "always", "never"), default="auto", help="default: auto"
    )


def _jobs(word: str) -> int:
    if not word.isdecimal() or int(word) < 1:
        raise argparse.ArgumentTypeError(f"{word!r} is not a number of processes: 1, 2, 3 …")
    return int(word)


def main(words: Sequence[str] | None = None) -> int:
    """Run the command that the words ask for; the exit code."""
    own, program = _split(sys.argv[1:] if words is None else words)
    strictness = _forgive()
    try:
        arguments = _parser().parse_args(own)
        if program is not None:
            arguments.program, arguments.strictness = program, strictness
            return _run(arguments)
        code: int = arguments.run(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        if sys.excepthook is _silent:
            raise
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


def _split(words: Sequence[str]) -> tuple[Sequence[str], Sequence[str] | None]:
    """The words that are zerograd's, and for `run` those that are the program's: it and the rest."""
    if words[:1] != ["run"]:
        return words, None
    at = 1
    while at < len(words) and words[at][:1] == "-" and words[at] not in ("-", "--"):
        if words[at].startswith("-m"):
            break
        at += 2 if words[at] in _VALUED else 1
    return words[:at], words[at + 1 if words[at : at + 1] == ["--"] else at :]


def _forgive() -> dict[str, str]:
    """Names of files need not be text, and a terminal need not know every sign."""
    before = {}
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if hasattr(stream, "reconfigure"):
            before[name] = stream.errors
            stream.reconfigure(errors="backslashreplace")
    return before


def _say(message: str) -> None:
    print(f"zerograd: {message}", file=sys.stderr)


def _check(arguments: argparse.Namespace) -> int:
    # A check makes many objects and no cycles to speak of, and then the process ends.
    gc.disable()
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
    gc.freeze()
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


def _run(arguments: argparse.Namespace) -> int:
    from zerograd.run import Refused, run
    from zerograd.selection import UnknownRule

    try:
        options = _run_options(arguments)
        for name, errors in arguments.strictness.items():
            getattr(sys, name).reconfigure(errors=errors)
        outcome = run(options, lambda report: _render(report, arguments))
    except (Refused, UnknownRule) as error:
        _say(str(error))
        return COULD_NOT
    if outcome.interrupted:
        # Everything is said: python has to die of the signal, so that a shell stops, too.
        sys.excepthook = _silent
        raise KeyboardInterrupt
    return outcome.code


def _silent(kind: object, error: object, trace: object) -> None:
    """Say nothing of an exception."""


def _run_options(arguments: argparse.Namespace) -> RunOptions:
    from zerograd.run import Options, Refused
    from zerograd.runtime.launch import Program

    name, *rest = arguments.program or [""]
    module = name.startswith("-m")
    if module:
        name, *rest = [name[2:], *rest] if name != "-m" else rest or [""]
    if not name:
        what = "a MODULE" if module else "a SCRIPT, or -m MODULE"
        raise Refused(f"run needs {what}; zerograd run --help shows how")
    select = _words(arguments.select)
    if select == ():
        raise Refused("--select names no rule; without it every rule counts")
    colors = {"always": True, "never": False}
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        colors["auto"] = False
    return Options(
        Program(name, tuple(rest), module),
        on=arguments.on,
        select=select,
        ignore=_words(arguments.ignore) or (),
        output=arguments.output,
        record=arguments.record,
        color=colors.get(arguments.color),
        quiet=arguments.quiet,
        exit_zero=arguments.exit_zero,
        report_to_stdout=arguments.format != "text",
    )


def _replay(arguments: argparse.Namespace) -> int:
    from zerograd.run import Refused, fails, replay
    from zerograd.selection import UnknownRule

    select = _words(arguments.select)
    if select == ():
        _say("--select names no rule; without it every rule counts")
        return COULD_NOT
    try:
        report, selection = replay(arguments.recording, select, _words(arguments.ignore) or ())
    except (Refused, UnknownRule) as error:
        _say(str(error))
        return COULD_NOT
    if not _write(_render(report, arguments), arguments.output):
        return COULD_NOT
    if report.errors:
        return COULD_NOT
    return int(fails(report, selection) and not arguments.exit_zero)


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
