"""Breaks correct training code in every known way, and counts what is found and fixed.

The code is our own corpus (`bench/right/`), which is run, and any directory that is given, which is
not run. A mutant of the corpus counts if it fails or its final weights differ from the original's. A
fix is correct if it leads to the weights of the original, bit for bit.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import json
import multiprocessing
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import outcome
import zerograd
from corpus import progress
from mutation import operators, trial
from zerograd.cli.main import main as zerograd_command
from zerograd.core.finding import Finding

GOAL_FOUND, GOAL_FIXED = 0.95, 0.90
RIGHT = Path(__file__).with_name("right")
ALONE = Path(__file__).anchor + "alone"
"""Where the files of the corpus are said to be when they are checked: each is a project of its own."""
METHOD = (
    "Each loop is broken in every way that applies. A mutant counts if it fails or learns other weights. "
    "It is found if a certain finding or advice fits. Repairs are made with --unsafe-fixes."
)
BY_NAME = {kind.name: kind for kind in operators.KINDS}


@dataclass(frozen=True)
class Verdict:
    """The result of one mutant."""

    file: str
    kind: str
    line: int
    real: bool
    """The mutant behaves differently from the original; always true if the original is not run."""
    found: bool
    """Found by a fitting code, certain or advice."""
    codes: tuple[str, ...]
    """All reported codes, to see why a mutant is missed. A question mark means only possible."""
    watched: tuple[str, ...] = ()
    error: str = ""
    """The error when the mutant is run."""
    safe: bool = False
    """A safe fix was applied."""
    fixed: bool = False
    """A fix was applied, safe or not, and no fitting code is found any more."""
    safe_same: bool = False
    same: bool = False
    """The fixed mutant behaves like the original."""


@dataclass
class Judged:
    """The results of one correct file and its mutants."""

    file: str
    executed: bool
    wrong: list[str] = field(default_factory=list)
    """What was reported about the correct file, or changed in it."""
    verdicts: list[Verdict] = field(default_factory=list)


def repaired(text: str, path: Path, *, unsafe: bool) -> str:
    """The source after `zerograd check --fix`."""
    words = ["check", "--fix", *(["--unsafe-fixes"] if unsafe else [])]
    words += ["--stdin-filename", str(path), "-"]
    given, out = sys.stdin, io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="")
    try:
        sys.stdin = io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8", newline="")
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            zerograd_command(words)
    except SystemExit:
        return text  # a command without --fix
    finally:
        sys.stdin = given
    out.flush()
    return out.buffer.getvalue().decode()


def check(text: str, path: Path) -> list[Finding]:
    return zerograd.check_source(text, str(path), pedantic=True).findings


def fits(findings: list[Finding], kind: operators.Kind) -> bool:
    """Whether a certain finding fits the mutation."""
    return any(finding.certain and finding.code in kind.codes for finding in findings)


def judge(task: tuple[Path, bool, bool]) -> Judged:
    """Check one file in a worker: the original, then each of its mutants."""
    path, execute, fix = task
    judged = Judged(path.name if execute else str(path), execute)
    text = path.read_bytes().decode("utf-8-sig")
    place = Path(ALONE, path.name) if execute else path
    for finding in check(text, place):
        judged.wrong.append(f"{finding.site.line}: {finding.code} {finding.message}")
    right = trial.Trial()
    if execute:
        right = trial.run(text, path)
        judged.wrong += [right.error] if right.error else []
        seen = trial.run(text, path, watch=True)
        judged.wrong += [f"watched: {code}" for code in seen.watched]
        judged.wrong += [] if seen.same(right) else ["does not behave the same twice"]
    elif judged.wrong:
        return judged  # a file that is not known to be correct cannot be mutated
    if fix and any(repaired(text, place, unsafe=unsafe) != text for unsafe in (False, True)):
        judged.wrong.append("is changed by --fix")
    for mutant in operators.mutants(text):
        judged.verdicts.append(_verdict(judged.file, place, mutant, text, right, execute, fix))
    return judged


def _verdict(
    file: str,
    path: Path,
    mutant: operators.Mutant,
    original: str,
    right: trial.Trial,
    execute: bool,
    fix: bool,
) -> Verdict:
    findings = check(mutant.text, path)
    codes = tuple(sorted({f.code + ("" if f.certain else "?") for f in findings}))
    found = fits(findings, mutant.kind)
    kind, line = mutant.kind.name, mutant.line
    run = trial.run(mutant.text, path) if execute else trial.Trial()
    if execute and (run.nonsense or run.same(right)):
        return Verdict(file, kind, line, False, found, codes, error=run.error)
    watched: tuple[str, ...] = ()
    if execute and not found:
        watched = trial.run(mutant.text, path, watch=True).watched
    verdict = Verdict(file, kind, line, True, found, codes, watched, run.error)
    if not (found and fix):
        return verdict

    def same(text: str) -> bool:
        if execute:
            return trial.run(text, path).same(right)
        return ast.dump(ast.parse(text)) == ast.dump(ast.parse(original))

    safe = repaired(mutant.text, path, unsafe=False)
    whole = repaired(mutant.text, path, unsafe=True)
    gone = whole != mutant.text and not fits(check(whole, path), mutant.kind)
    applied = safe != mutant.text
    return Verdict(
        *(file, kind, line, True, found, codes, watched, run.error),
        safe=applied,
        fixed=gone,
        safe_same=applied and same(safe),
        same=gone and same(whole),
    )


def sources(directory: Path) -> Iterator[Path]:
    """The readable files of a directory that mention gradients."""
    for path in sorted(directory.rglob("*.py")):
        data = path.read_bytes() if path.is_file() else b""
        if b".backward(" in data and b"zero_grad" in data:
            with contextlib.suppress(SyntaxError, ValueError, RecursionError):
                ast.parse(data.decode("utf-8-sig"))
                yield path


def judge_all(tasks: list[tuple[Path, bool, bool]], jobs: int) -> list[Judged]:
    done = []
    context = multiprocessing.get_context("spawn")
    with context.Pool(jobs, initializer=trial.prepare) as pool:
        for judged in pool.imap(judge, tasks):
            done.append(judged)
            progress("checking", len(done), len(tasks), "files")
    return done


# What is printed


@dataclass(frozen=True)
class Score:
    """The numbers of the goals."""

    mutants: int
    wrong: int
    found: int
    repairable: int
    """Found, and of a kind that has a fix."""
    fixed: int
    same: int
    safe: int
    safe_same: int

    @classmethod
    def of(cls, verdicts: list[Verdict]) -> Score:
        wrong = [v for v in verdicts if v.real]
        return cls(
            len(verdicts),
            len(wrong),
            sum(v.found for v in wrong),
            sum(v.found and BY_NAME[v.kind].repairable for v in wrong),
            sum(v.fixed for v in wrong),
            sum(v.same for v in wrong),
            sum(v.safe for v in wrong),
            sum(v.safe_same for v in wrong),
        )

    def met(self, fix: bool) -> bool:
        found = self.found >= GOAL_FOUND * self.wrong
        fixed = self.fixed >= GOAL_FIXED * self.repairable and self.safe_same == self.safe
        return found and (fixed or not fix)

    def row(self, name: str) -> str:
        cells = f"{self.mutants:>8}{self.wrong:>7}{self.found:>7}{_share(self.found, self.wrong)}"
        cells += f"{self.fixed:>7}{_share(self.fixed, self.repairable)}"
        cells += f"{self.same:>7}{_share(self.same, self.fixed)}"
        return f"{name:<38}{cells}{self.safe:>7}{self.safe_same:>7}"


def _share(part: int, whole: int) -> str:
    return f"{part / whole:>6.0%}" if whole else "      "


def render(judged: list[Judged], fix: bool, listed: bool) -> Iterator[str]:
    for executed in (True, False):
        group = [one for one in judged if one.executed is executed]
        verdicts = [verdict for one in group for verdict in one.verdicts]
        if not group:
            continue
        yield f"{len(group)} right files, " + ("executed" if executed else "only read")
        heads = f"{'mutants':>8}{'wrong':>7}{'found':>13}{'fixed':>13}{'the same':>13}"
        yield f"{'':<38}{heads}{'safe':>7}{'same':>7}"
        for kind in operators.KINDS:
            own = [verdict for verdict in verdicts if verdict.kind == kind.name]
            if own:
                yield Score.of(own).row(f"  {kind.name}")
        yield Score.of(verdicts).row("all")
        yield ""
    verdicts = [verdict for one in judged for verdict in one.verdicts if verdict.real]
    if listed:
        yield from _list("Missed", [v for v in verdicts if not v.found])
        if fix:
            left = [v for v in verdicts if v.found > v.fixed and BY_NAME[v.kind].repairable]
            yield from _list("Found, not fixed", left)
            yield from _list("Fixed to something else", [v for v in verdicts if v.fixed > v.same])
            wrong = [v for v in verdicts if v.safe > v.safe_same]
            yield from _list("Safe fixes that are wrong", wrong)
    accused = [f"{one.file}:{said}" for one in judged if one.executed for said in one.wrong]
    yield f"Correct files reported or changed: {len(accused)}"
    yield from (f"  {line}" for line in accused)


def _list(title: str, verdicts: list[Verdict]) -> Iterator[str]:
    yield f"{title}: {len(verdicts)}"
    for v in sorted(verdicts, key=lambda v: (v.kind, v.file, v.line)):
        said = " ".join(v.codes) or "nothing"
        seen = f"; watched: {' '.join(v.watched)}" if v.watched else ""
        fails = f"; fails: {v.error[:70]}" if v.error else ""
        yield f"  {v.kind}: {v.file}:{v.line} (said: {said}{seen}{fails})"


def result(ours: list[Judged]) -> Iterator[outcome.Row]:
    """The counts of the page of results: of all kinds, and of each."""
    verdicts = [verdict for one in ours for verdict in one.verdicts]
    everything = Score.of(verdicts)
    goal = GOAL_FOUND * everything.wrong
    yield outcome.Row("found", everything.found, of=everything.wrong, goal=goal)
    yield outcome.Row("repaired", everything.fixed, of=everything.found)
    yield outcome.Row("repaired to the same weights", everything.same, of=everything.fixed)
    yield outcome.Row("safe repairs to the same weights", everything.safe_same, of=everything.safe)
    yield outcome.Row("correct loops reported", sum(bool(one.wrong) for one in ours), of=len(ours))
    for kind in operators.KINDS:
        own = Score.of([verdict for verdict in verdicts if verdict.kind == kind.name])
        if own.wrong:
            yield outcome.Row(f"found: {kind.name}", own.found, of=own.wrong)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog=f"Exits with 0 when of the corpus's mutants {GOAL_FOUND:.0%} are found, {GOAL_FIXED:.0%}"
        " of those fixed, every safe fix leads to the original's weights, and no right file is"
        " accused or changed.",
    )
    parser.add_argument("paths", nargs="*", type=Path, metavar="DIR", help="more correct code")
    parser.add_argument("--no-fix", action="store_true", help="only count what is found")
    parser.add_argument("--list", action="store_true", help="also list every miss")
    parser.add_argument("--json", action="store_true", help="print all measurements as JSON")
    outcome.add_argument(parser)
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="only files whose name contains this"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    fix = not options.no_fix
    corpus = [path for path in sorted(RIGHT.glob("*.py")) if options.only in path.name]
    tasks = [(path, True, fix) for path in corpus]
    tasks += [(path, False, fix) for one in options.paths for path in sources(one)]
    judged = judge_all(tasks, max(1, options.jobs))
    ours = [one for one in judged if one.executed]
    verdicts = [verdict for one in ours for verdict in one.verdicts]
    score = Score.of(verdicts)
    # A safe fix must be correct, whatever finding it repairs.
    met = score.met(fix) and all(v.safe_same for v in verdicts if v.safe)
    met = met and not any(one.wrong for one in ours)
    if options.result:
        title = f"Planted bugs in {len(ours)} correct training loops"
        outcome.write(options.result, title=title, method=METHOD, rows=list(result(ours)))
    if options.json:
        everything = {"goals_met": met, "score": asdict(score), "files": [*map(asdict, judged)]}
        print(json.dumps(everything, indent=1))
    else:
        print(*render(judged, fix, options.list), sep="\n")
        print(f"Goals {'met' if met else 'not met'}.")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
