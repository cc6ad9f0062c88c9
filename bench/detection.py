"""Runs zerograd and other tools on the same training loops, drawn from a grammar with the commit as the seed.

Each family of bugs has as many wrong programs as right ones. A bug is found if the tool prints something for the
wrong program that it does not print for its right twin; found for the right reason if that names the bug (a fitting
code of zerograd, or a message about gradients). A false alarm is a message about gradients for a right program.
The programs of a commit are not known before it is made, so no tool, zerograd included, can be tuned to them.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import grammar
import outcome
from corpus import progress
from grammar import FAMILIES, Program
from peers import ABOUT, TOOLS, Tool

METHOD = (
    "Loops from bench/grammar.py, a right and a wrong version of each, drawn with the commit as the seed. Found: "
    "something is printed for the wrong version that is not printed for the right one, and it names the bug (a "
    "fitting code, or for other tools any message about gradients). False alarm: a message about gradients for a "
    "right version."
)
OURS = "zerograd"


@dataclass
class Score:
    """The results of one tool in one family."""

    total: int = 0
    named: int = 0
    alarms: int = 0
    missed: list[int] = field(default_factory=list)


def ask(tool: Tool, programs: list[Program]) -> dict[str, Score]:
    """The score of a tool in each family."""
    scores = {family.name: Score() for family in FAMILIES}
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for number, one in enumerate(programs):
            for end, text in ((0, one.wrong), (1, one.right)):
                path = Path(folder) / f"train{2 * number + end:05}.py"
                path.write_text(text, encoding="utf-8")
                paths.append(path)
        answers = tool.ask(tool, paths)
    for number, one in enumerate(programs):
        wrong, right = answers[2 * number : 2 * number + 2]
        score = scores[one.family]
        score.total += 1
        new = wrong - right
        named = new & set(one.codes) if tool.name.startswith(OURS) else {m for m in new if ABOUT.search(m)}  # fmt: skip
        score.named += bool(named)
        score.alarms += any(ABOUT.search(message) for message in right)
        if not named:
            score.missed.append(number)
    return scores


def rows(tool: Tool, scores: dict[str, Score]) -> Iterator[outcome.Row]:
    """The values of the page of results."""
    total = sum(one.total for one in scores.values())
    named = sum(one.named for one in scores.values())
    yield outcome.Row(f"{tool.name}: found", named, of=total)
    yield outcome.Row(
        f"{tool.name}: false alarms", sum(s.alarms for s in scores.values()), of=total
    )
    for family, one in scores.items():
        if one.named or tool.name.startswith(OURS):
            yield outcome.Row(f"{tool.name}: {family}", one.named, of=one.total)


def show(tool: Tool, scores: dict[str, Score], seconds: float) -> None:
    """Print the scores of a tool."""
    print(f"{tool.name} ({seconds:.0f} s)")
    for family, one in scores.items():
        print(f"  {family:36}{one.named:>4} of {one.total:<4} found, {one.alarms:>3} false alarms")
    print(flush=True)


def commit() -> str:
    """The commit of this tree."""
    command = ["git", "-C", str(outcome.ROOT), "rev-parse", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def main() -> int:
    """Draw the programs, ask the tools, print the scores."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", help="another seed than the commit")
    parser.add_argument(
        "--count", type=int, default=60, metavar="N", help="programs of each family"
    )
    parser.add_argument("--ours", action="store_true", help="only zerograd")
    parser.add_argument("--missed", action="store_true", help="print the programs zerograd misses")
    outcome.add_argument(parser)
    options = parser.parse_args()
    seed = options.seed or commit()
    print(f"seed {seed}, {options.count} wrong and {options.count} right programs of each family\n")
    programs = [one for family in FAMILIES for one in grammar.programs(seed, family, options.count)]
    measured: list[outcome.Row] = []
    for tool in TOOLS:
        if options.ours and not tool.name.startswith(OURS):
            continue
        try:
            tool.install()
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"{tool.name}: not run, it cannot be installed here ({error})\n")
            continue
        progress("asking", 1, 1, tool.name)
        began = time.monotonic()
        scores = ask(tool, programs)
        show(tool, scores, time.monotonic() - began)
        measured += rows(tool, scores)
        if options.missed and tool.name.startswith(OURS):
            for score in scores.values():
                for number in score.missed:
                    print(
                        f"--- {tool.name} misses {programs[number].codes}\n{programs[number].wrong}"
                    )
    if options.result:
        title = f"Detection, side by side (seed {seed[:12]})"
        outcome.write(options.result, title=title, method=METHOD, rows=measured)
    return 0


if __name__ == "__main__":
    sys.exit(main())
