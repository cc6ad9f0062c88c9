"""Runs zerograd and other tools on the same training loops, drawn from a grammar with the commit as the seed.

Each family of bugs has as many wrong programs as right ones; with `--mutants`, the mutants of bench/right come too.
The programs of a commit are not known before it is made, so no tool, zerograd included, can be tuned to them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import re
import resource
import statistics
import sys
import tempfile
from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import grammar
import mutants
import outcome
from corpus import progress
from grammar import FAMILIES, Program
from mutation import operators, trial
from tools import ABOUT, TOOLS, Tool, Unavailable, by_running, timed

METHOD = (
    "Loops from bench/grammar.py, a right and a wrong version of each, drawn with the commit as the seed. A bug is "
    "found if something is printed for the wrong version that is not printed for the right one; it is named if that "
    "is a fitting code of zerograd, or for other tools a message with a word of the bug. Only here: the tool names it, "
    "and zerograd check does not. A false alarm is a message about gradients for a right version. Set-up: the steps after installing. The processor time is that of the whole "
    "command, divided by the programs; programs that are run are forks of one process that has loaded torch and the "
    "tool, and zerograd run is measured by what it starts, zerograd.watch. Overhead: the processor time of a short "
    "program with the tool, set-up included, relative to the same program without it, in interleaved rounds; bare "
    "again is the control."
)
PLAINEST = ("zero deleted", "zero hoisted a loop level")
"""Kinds of mutants that a search for zero_grad in a loop can find."""
MUTANTS = {"plainest": PLAINEST, "all": tuple(kind.name for kind in operators.KINDS)}
SAMPLED = "pylint, TorchFix, semgrep and tools that watch runs saw {} of each family and each kind of mutant."
ROUNDS, TIMED = 3, 4
"""How often so many programs are timed."""


@dataclass
class Score:
    """The results of one tool in one family."""

    total: int = 0
    found: int = 0
    named: int = 0
    alarms: int = 0


@dataclass(frozen=True)
class Answers:
    """What a tool has said, and how long it took."""

    scores: dict[str, Score]
    seconds: float
    """Processor time per program."""
    named: set[str]
    """The wrong programs whose bug it names."""


def drawn(seed: str, count: int) -> list[Program]:
    """The programs of all families."""
    return [one for family in FAMILIES for one in grammar.programs(seed, family, count)]


def broken(kinds: Collection[str]) -> list[Program]:
    """The mutants of bench/right, of these kinds, that fail or learn other weights; with their originals."""
    paths = sorted(mutants.RIGHT.glob("*.py"))
    context = multiprocessing.get_context("spawn")
    with context.Pool(os.cpu_count() or 1, initializer=trial.prepare) as pool:
        found = pool.map(_broken, [(path, kinds) for path in paths], chunksize=1)
    return [one for some in found for one in some]


def _broken(task: tuple[Path, Collection[str]]) -> list[Program]:
    path, kinds = task
    text = path.read_bytes().decode("utf-8-sig")
    right = trial.run(text, path)
    found = []
    for mutant in operators.mutants(text):
        kind = mutant.kind
        if kind.name in kinds:
            run = trial.run(mutant.text, path)
            if not run.nonsense and not run.same(right):
                found.append(Program(kind.name, kind.codes, _names(kind.codes), text, mutant.text))
    return found


def _names(codes: tuple[str, ...]) -> str:
    fitting = [one.names for one in FAMILIES if set(one.codes) & set(codes)]
    return "|".join(fitting) or ABOUT.pattern


def ask(tool: Tool, programs: list[Program]) -> Answers:
    """The score of a tool in each family; a right version is shown to it once."""
    scores: dict[str, Score] = {}
    by_name = set()
    with tempfile.TemporaryDirectory() as folder:
        texts = [text for one in programs for text in (one.wrong, one.right)]
        # Each is a project of its own: what other files of a project do can excuse a loop.
        paths = {text: Path(folder) / f"{i:05}" / f"train{i:05}.py" for i, text in enumerate(texts)}
        for text, path in paths.items():
            path.parent.mkdir()
            path.write_text(text, encoding="utf-8")
        before = _children()
        said = dict(zip(paths, tool.ask(tool, list(paths.values())), strict=True))
        seconds = (_children() - before) / len(paths)
    for one in programs:
        score = scores.setdefault(one.family, Score())
        new = said[one.wrong] - said[one.right]
        named = new & set(one.codes) if tool.ours else {m for m in new if re.search(one.names, m, re.IGNORECASE)}  # fmt: skip
        score.total += 1
        score.found += bool(new)
        score.named += bool(named)
        score.alarms += any(ABOUT.search(message) for message in said[one.right])
        if named:
            by_name.add(one.wrong)
    return Answers(scores, seconds, by_name)


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def overhead(tool: Tool, programs: list[Program]) -> Iterator[outcome.Row]:
    """The processor time of right programs with the tool, relative to that without."""
    ratios: dict[str, list[float]] = {"overhead": [], "bare again": []}
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for number, one in enumerate(programs):
            paths.append(Path(folder) / f"train{number:05}.py")
            paths[-1].write_text(one.right, encoding="utf-8")
        for took in timed(tool, paths, ROUNDS):
            ratios["overhead"].append(took["tool"] / took["bare"])
            ratios["bare again"].append(took["again"] / took["bare"])
    for name, found in ratios.items():
        yield outcome.Row(
            f"{tool.name}: {name}", statistics.median(found), "×", min(found), max(found)
        )


def rows(tool: Tool, answers: Answers, what: str = "") -> Iterator[outcome.Row]:
    """The values of the page of results."""
    scores = answers.scores.values()
    total = sum(one.total for one in scores)
    if not what or answers.scores.keys() - set(PLAINEST):
        yield outcome.Row(f"{tool.name}: {what}found", sum(one.found for one in scores), of=total)
        yield outcome.Row(f"{tool.name}: {what}named", sum(one.named for one in scores), of=total)
    if what:
        plain = [one for kind, one in answers.scores.items() if kind in PLAINEST]
        yield outcome.Row(f"{tool.name}: deleted or hoisted zero_grad", sum(one.named for one in plain), of=sum(one.total for one in plain))  # fmt: skip
        return
    yield outcome.Row(f"{tool.name}: false alarms", sum(one.alarms for one in scores), of=total)
    yield outcome.Row(f"{tool.name}: set-up steps", len(tool.set_up))
    yield outcome.Row(f"{tool.name}: processor", answers.seconds, "s per program")


def by_family(tool: Tool, answers: Answers) -> Iterator[outcome.Row]:
    """How many bugs of each family are named."""
    codes = {family.name: " ".join(family.codes) for family in FAMILIES}
    for family, one in answers.scores.items():
        name = f"{family} ({codes[family]}): {tool.name}"
        yield outcome.Row(name, one.named, of=one.total)


def show(tool: Tool, answers: Answers) -> None:
    """Print the scores of a tool."""
    print(f"{tool.name} ({answers.seconds:.2f} s of processor time per program)")
    for family, one in answers.scores.items():
        print(f"  {family:36}{one.found:>4} found, {one.named:>4} named of {one.total:<4} {one.alarms:>3} false alarms")  # fmt: skip
    print(flush=True)


def chosen(options: argparse.Namespace) -> Iterator[Tool]:
    """The tools that are asked for and can be had; the others are named."""
    for tool in TOOLS:
        if (options.ours and not tool.ours) or options.only not in tool.name or options.reads not in ("", tool.reads):  # fmt: skip
            continue
        try:
            tool.install()
        except Unavailable as error:
            print(f"{tool.name}: not run: {error}\n")
            options.notes.append(f"{tool.name}: not run: {error}.")
            continue
        yield tool


def first(programs: Iterable[Program], count: int | None) -> list[Program]:
    """The first so many programs of each family."""
    kept: dict[str, list[Program]] = {}
    for one in programs:
        kept.setdefault(one.family, []).append(one)
    return [one for some in kept.values() for one in some[:count]]


def main() -> int:
    """Draw the programs, ask the tools, print the scores."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", help="another seed than the commit")
    parser.add_argument("--count", type=int, default=60, metavar="N", help="programs of each family")  # fmt: skip
    parser.add_argument("--slow", type=int, metavar="N", help="programs of each family, and mutants of each kind, for tools that are slow or watch runs (default: as many)")  # fmt: skip
    parser.add_argument("--ours", action="store_true", help="only zerograd")
    parser.add_argument("--only", default="", metavar="NAME", help="tools whose name contains this")
    parser.add_argument("--reads", default="", choices=("", "source", "runs"), help="only such tools")  # fmt: skip
    parser.add_argument("--mutants", choices=MUTANTS, help="also the mutants of bench/right")
    parser.add_argument(
        "--missed", action="store_true", help="print the programs that a tool misses"
    )
    parser.add_argument("--parts", type=Path, metavar="DIR", help="keep what was measured for each tool here, and do not measure it again")  # fmt: skip
    parser.add_argument("--known", action="store_true", help="measure nothing: take what is kept")
    outcome.add_argument(parser)
    options = parser.parse_args()
    options.notes = [SAMPLED.format(options.slow)] if options.slow and not options.ours else []
    seed = options.seed or outcome.setting()["commit"]
    print(f"seed {seed}, {options.count} wrong and {options.count} right programs of each family\n")
    programs = drawn(seed, options.count)
    wrong = _mutants(options.mutants, seed, options.parts) if options.mutants else []
    measured: list[outcome.Row] = []
    families: list[outcome.Row] = []
    ours: set[str] = set()
    for tool in chosen(options):
        part = options.parts and options.parts / f"{tool.home.name}.json"
        slow = tool.slow or tool.reads == "runs"
        count = tool.sample or (options.slow if slow else None)
        shown, mutated = first(programs, count), [] if tool.sample else first(wrong, count)
        of = f"{seed}, {len(shown)} programs, {len(mutated)} mutants"
        known = _known(part, of)
        if known is None and options.known:
            options.notes.append(f"{tool.name}: not measured yet.")
            continue
        if known is None:
            progress("asking", 1, 1, tool.name)
            known = _measure(tool, shown, mutated, options.missed)
            if part:
                _keep(part, of, known)
        measured += known.rows
        families += known.families
        if tool is TOOLS[0]:
            ours = set(known.named)
        elif ours:
            measured.append(outcome.Row(f"{tool.name}: only here", len(set(known.named) - ours)))
        if tool.sample:
            options.notes.append(f"{tool.name} is slow, so it saw {tool.sample} of each family, and no mutants.")  # fmt: skip
    if options.result:
        what = f"{options.count} wrong and {options.count} right programs of each family"
        if options.slow:
            what += f", {options.slow} for tools that are slow or watch runs"
        title = f"Detection, side by side (seed {seed}; {what})"
        outcome.write(
            options.result,
            title=title,
            method=METHOD,
            rows=[*measured, *families],
            tables=True,
            notes=options.notes,
            commit=seed if options.known else None,
        )
    return 0


@dataclass(frozen=True)
class Measured:
    """The values of one tool."""

    rows: list[outcome.Row]
    families: list[outcome.Row]
    named: list[str]
    """Digests of the wrong programs whose bug it names."""


def _measure(tool: Tool, programs: list[Program], wrong: list[Program], missed: bool) -> Measured:
    answers = ask(tool, programs)
    show(tool, answers)
    found = list(rows(tool, answers))
    named = answers.named
    if tool.reads == "runs" and tool.ask is by_running:
        found += overhead(tool, first(programs, 1)[:TIMED])
    if wrong:
        mutated = ask(tool, wrong)
        show(tool, mutated)
        found += rows(tool, mutated, "mutants ")
        named = named | mutated.named
    if missed:
        for one in (*programs, *wrong):
            if one.wrong not in named:
                print(f"--- {tool.name} misses {one.codes}\n{one.wrong}")
    digests = sorted(hashlib.sha256(text.encode()).hexdigest()[:12] for text in named)
    return Measured(found, list(by_family(tool, answers)), digests)


def _mutants(name: str, seed: str, parts: Path | None) -> list[Program]:
    """The mutants, which are run to see which of them are bugs; once, if parts are kept."""
    kept = parts and parts / f"mutants-{name}.json"
    if kept and kept.exists():
        found = json.loads(kept.read_text(encoding="utf-8"))
        if found["of"] == seed:
            return [Program(**{**one, "codes": tuple(one["codes"])}) for one in found["mutants"]]
    mutated = broken(MUTANTS[name])
    if kept:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps({"of": seed, "mutants": [vars(one) for one in mutated]}), encoding="utf-8")  # fmt: skip
    return mutated


def _known(part: Path | None, of: str) -> Measured | None:
    if part is None or not part.exists():
        return None
    found = json.loads(part.read_text(encoding="utf-8"))
    if found["of"] != of:
        return None
    one, two = ([outcome.Row(**row) for row in found[name]] for name in ("rows", "families"))
    return Measured(one, two, found["named"])


def _keep(part: Path, of: str, known: Measured) -> None:
    part.parent.mkdir(parents=True, exist_ok=True)
    part.write_text(json.dumps({"of": of, **asdict(known)}), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
