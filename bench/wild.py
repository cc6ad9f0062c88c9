"""Measures the checker on labelled places in real repositories: recall by kind, and false alarms.

Each checkout is checked as a whole, as a user would do it. A bug row counts as found if a finding with a
code that fits its kind has its site or a note in the function of the row: such a bug has two places, and
either one leads to it.
"""

from __future__ import annotations

import argparse
import ast
import json
import multiprocessing
import re
import sys
import time
import traceback
import warnings
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import found
import outcome
from corpus import progress
from zerograd.check import check_session
from zerograd.check.check_session import CheckOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from zerograd.core.finding import Finding, Problem

GOAL_ANY, GOAL_SURE = 0.85, 0.75
METHOD = (
    "Each checkout of bench/labels.jsonl is checked as a whole. A bug is found if a finding with a fitting code "
    "has an end in its function. zerograd was developed with these bugs."
)
LABELS = Path(__file__).with_name("labels.jsonl")

# The first code is the rule for this kind; the others report the same bug at its other place.
CODES: dict[str, tuple[str, ...]] = {
    "missing-zero-grad": ("ZG101", "ZG105", "ZG106"),
    "missing-zero-in-one-branch": ("ZG101", "ZG106"),
    "missing-zero-one-of-several-optimizers": ("ZG101", "ZG106", "ZG108"),
    "missing-zero-between-two-steps": ("ZG101", "ZG105", "ZG106"),
    "zero-at-wrong-loop-level": ("ZG101", "ZG103", "ZG105", "ZG106"),
    "zero-guard-never-true": ("ZG101", "ZG302"),
    "aliased-gradient-never-cleared": ("ZG101",),
    "wrong-object-zeroed": ("ZG101", "ZG103", "ZG106"),
    "stale-cross-optimizer-gradient": ("ZG106", "ZG101"),
    "missing-step": ("ZG102", "ZG302", "ZG303"),
    "zero-every-micro-batch": ("ZG103", "ZG102"),
    "missing-backward": ("ZG104", "ZG105"),
    "zero-on-none": ("ZG107",),
    "optimizer-missing-params": ("ZG108",),
    "backward-wrong-argument": ("ZG109",),
    "clip-before-unscale": ("ZG201",),
    "clip-before-backward": ("ZG202", "ZG203"),
    "clip-after-step": ("ZG203",),
    "clip-every-micro-batch": ("ZG204",),
    "scaler-update-missing": ("ZG207",),
    "accum-loss-not-scaled": ("ZG301",),
    "accum-wrong-divisor": ("ZG301",),
    "accum-condition-wrong": ("ZG302", "ZG303", "ZG304", "ZG101"),
    "accum-remainder": ("ZG303", "ZG304"),
    "wrapper-backward-bypassed": ("ZG501",),
}

VISIBILITIES = ("function", "file", "cross-file")
EVENT = re.compile(r"backward|zero_grad|\bstep\b|clip_|\.grad\b|scaler?\b|optim", re.IGNORECASE)


@dataclass(frozen=True)
class Row:
    """One labelled place."""

    id: str
    file: str
    line: int
    label: str
    kind: str
    visibility: str
    note: str
    codes: tuple[str, ...] = ()
    """The codes that fit, where the row names them itself."""

    @property
    def defect(self) -> str:
        """The kind of bug that the row has or had: `paired-fix:X` is X."""
        return self.kind.removeprefix("paired-fix:")

    @property
    def family(self) -> str:
        """Wrong accumulation arithmetic is advice and is counted separately."""
        return "ZG3xx" if CODES.get(self.defect, ("",))[0].startswith("ZG3") else "ZG1xx, ZG2xx"

    def accepts(self, code: str) -> bool:
        """An unknown kind accepts every code, and is listed in `unknown_kinds`."""
        fits = (*self.codes, *CODES.get(self.defect, ()))
        return not fits or code in fits

    @property
    def checkout(self) -> str:
        """The directory that is checked: a repository at a commit."""
        return "/".join(self.file.split("/")[:2])


@dataclass(frozen=True)
class Region:
    """The lines of a function, a whole module, or one cell of a notebook."""

    first: int = 1
    last: int = sys.maxsize
    cell: int | None = None

    def touches(self, finding: Finding, path: Path) -> bool:
        """Whether the finding or one of its notes is in this region of this file."""
        return any(
            self.first <= site.line <= self.last
            and self.cell in (None, site.cell)
            and Path(site.path).resolve() == path
            for site in (finding.site, *(note.site for note in finding.notes))
        )


@dataclass(frozen=True)
class Checked:
    """The report of the checker for one checkout."""

    findings: dict[str, list[Finding]]
    """By labelled file, the findings with an end in it."""
    near: dict[str, list[Finding]]
    """For each row, by its id, the findings in its function."""
    errors: list[Problem]
    loops: Counter[str]
    """How many training loops got each verdict."""
    crash: str
    seconds: float


def read_rows(labels: Path) -> list[Row]:
    """Read the labels, one JSON object per line."""
    rows = []
    for text in labels.read_text(encoding="utf-8").splitlines():
        if text.strip():
            raw = json.loads(text)
            file = f"{raw['repo'].replace('/', '+')}/{raw['commit']}/{raw['path']}"
            visibility = raw.get("static_visibility", "")
            place = (raw["id"], file, int(raw["line"]), raw["label"], raw["kind"], visibility)
            rows.append(Row(*place, raw.get("note", ""), tuple(raw.get("codes", ()))))
    return rows


def function_around(text: str, line: int) -> Region:
    """The innermost function around a line, or the module if there is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return Region()
    best = Region()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            last = node.end_lineno or node.lineno
            if node.lineno <= line <= last and last - node.lineno < best.last - best.first:
                best = Region(node.lineno, last)
    return best


def cell_around(text: str, line: int) -> Region:
    """The cell of a label. Its line counts the lines of the file, or of all code cells joined.

    Both ways occur in the labels, so the one that leads to a line about gradients is taken.
    """
    raw = text.split("\n")
    cells = json.loads(text).get("cells", [])
    code = [i for i, cell in enumerate(cells) if cell.get("cell_type") == "code"]
    starts = [i for i, s in enumerate(raw, 1) if re.match(r'\s*"source":', s)]
    if line <= len(raw) and EVENT.search(raw[line - 1]) and len(starts) == len(cells):
        return Region(cell=max(i for i, start in enumerate(starts, 1) if start <= line))
    for i in code:
        length = len("".join(cells[i]["source"]).split("\n"))
        if line <= length:
            return Region(cell=i + 1)
        line -= length
    return Region()


def check(task: tuple[Path, list[Row]]) -> Checked:
    """Check one checkout in a worker. A crash of the checker is a result and does not end the run."""
    repos, rows = task
    crash = ""
    began = time.perf_counter()
    options = CheckOptions(
        paths=(str((repos / rows[0].checkout).resolve()),),
        pedantic=True,
        include_tests=True,
        jobs=1,
        cache=False,
    )
    try:
        report = check_session.run(options, lambda *_: None).report
    except Exception:  # noqa: BLE001 - whatever it is, the other checkouts are still measured
        return Checked({}, {}, [], Counter(), traceback.format_exc(), 0.0)
    seconds = time.perf_counter() - began
    files: dict[str, list[Finding]] = {}
    near = {}
    paths = {}
    for row in rows:
        path = paths[row.file] = (repos / row.file).resolve()
        text = path.read_text(encoding="utf-8-sig", errors="replace")
        around = cell_around if path.suffix == ".ipynb" else function_around
        region = around(text, row.line)
        near[row.id] = [f for f in report.findings if region.touches(f, path)]
        files[row.file] = [f for f in report.findings if Path(f.site.path).resolve() == path]
    labelled = set(map(str, paths.values()))
    errors = [one for one in report.errors if str(Path(one.path).resolve()) in labelled]
    loops = Counter(one.verdict for one in report.loops or ())
    return Checked(files, near, errors, Counter(loops), crash, seconds)


def check_all(rows: list[Row], repos: Path) -> dict[str, Checked]:
    """Check every checkout that exists, once."""
    tasks: dict[str, list[Row]] = {}
    for row in rows:
        if (repos / row.file).is_file():
            tasks.setdefault(row.checkout, []).append(row)
    checked = {}
    with multiprocessing.Pool(2) as pool:
        results = pool.imap(check, [(repos, some) for some in tasks.values()])
        for done, (name, result) in enumerate(zip(tasks, results, strict=True), 1):
            checked[name] = result
            progress("checking", done, len(tasks), "checkouts")
    return checked


@dataclass(frozen=True)
class Verdict:
    """The result of one bug row."""

    row: Row
    any: bool
    sure: bool
    """Found by a certain finding or by advice."""
    certain: bool
    codes: list[str]
    """All codes found at the place, fitting or not, to see why a bug is missed."""


@dataclass(frozen=True)
class Alarm:
    """A finding for a person to read, with the rows of its function."""

    rows: list[str]
    file: str
    finding: Finding

    def __str__(self) -> str:
        f = self.finding
        cell = "" if f.site.cell is None else f"cell {f.site.cell}:"
        doubt = "" if f.certain else " (possible)"
        rows = f" [{' '.join(self.rows)}]" if self.rows else ""
        return f"{self.file}:{cell}{f.site.line} {f.code} {f.name}{doubt}: {f.message}{rows}"


@dataclass
class Score:
    """All measurements."""

    bugs: list[Verdict] = field(default_factory=list)
    false_alarms: list[Alarm] = field(default_factory=list)
    beside_fixes: list[Alarm] = field(default_factory=list)
    unlabelled: list[Alarm] = field(default_factory=list)
    errors: list[Problem] = field(default_factory=list)
    crashes: list[str] = field(default_factory=list)
    absent: list[Row] = field(default_factory=list)
    unknown_kinds: list[str] = field(default_factory=list)
    loops: Counter[str] = field(default_factory=Counter)
    right: int = 0
    """How many places are labelled as right."""
    seconds: float = 0.0

    @property
    def goals_met(self) -> bool:
        """Missing files and crashes are not measured, so the goals are not met."""
        aim = [v for v in self.bugs if is_goal(v)]
        found = (
            share(aim, lambda v: v.any) >= GOAL_ANY and share(aim, lambda v: v.sure) >= GOAL_SURE
        )
        return found and not (self.false_alarms or self.crashes or self.absent)


def is_goal(verdict: Verdict) -> bool:
    """Whether the bug is visible in one file."""
    return verdict.row.visibility in ("function", "file")


def share(verdicts: list[Verdict], hit: Callable[[Verdict], bool]) -> float:
    """The share of bugs that was found; 1 if there are none."""
    return sum(map(hit, verdicts)) / len(verdicts) if verdicts else 1.0


def judge(rows: list[Row], checked: dict[str, Checked], pedantic: bool) -> Score:
    """Compare every finding with the rows of its file."""
    there = {file for result in checked.values() for file in result.findings}
    score = Score(absent=[r for r in rows if r.file not in there])
    kinds = {r.defect for r in rows if r.label == "bug" or r.kind.startswith("paired-fix:")}
    score.unknown_kinds = sorted(kinds - CODES.keys())
    score.right = sum(row.label == "ok" and row.file in there for row in rows)
    score.seconds = sum(c.seconds for c in checked.values())
    for name, result in checked.items():
        score.errors += result.errors
        score.loops += result.loops
        score.crashes += [f"{name}\n{result.crash}"] if result.crash else []
        near = result.near
        for row in rows:
            if row.label == "bug" and row.id in near:
                fits = [f for f in near[row.id] if row.accepts(f.code)]
                score.bugs.append(
                    Verdict(
                        row,
                        bool(fits),
                        any(f.certain or f.level == "advice" for f in fits),
                        any(f.certain for f in fits),
                        sorted({f.code + ("" if f.certain else "?") for f in near[row.id]}),
                    )
                )
        for file, findings in result.findings.items():
            of_file = [r for r in rows if r.file == file]
            for finding in findings:
                if finding.level == "error" and (finding.certain or pedantic):
                    place(score, finding, file, [r for r in of_file if finding in near[r.id]])
    return score


def place(score: Score, finding: Finding, file: str, rows: list[Row]) -> None:
    """Put an error into its list, unless a bug row explains it."""
    if any(r.label == "bug" and r.accepts(finding.code) for r in rows):
        return
    right = [r for r in rows if r.label == "ok"]
    # In a file after a fix, only the named defect is known to be gone.
    wrong = [r for r in right if not r.kind.startswith("paired-fix:") or r.accepts(finding.code)]
    if wrong and finding.certain:
        score.false_alarms.append(Alarm([r.id for r in wrong], file, finding))
    elif right:
        score.beside_fixes.append(Alarm([r.id for r in right], file, finding))
    else:
        score.unlabelled.append(Alarm([r.id for r in rows], file, finding))


def table(verdicts: list[Verdict]) -> Iterator[str]:
    """Recall by kind and in total: at any confidence, certain or advice, certain."""
    groups: dict[str, list[Verdict]] = {}
    for v in sorted(verdicts, key=lambda v: (v.row.family, v.row.kind)):
        groups.setdefault(f"  {v.row.kind}", []).append(v)
    for visibility in VISIBILITIES:
        some = [v for v in verdicts if v.row.visibility == visibility]
        if some:
            groups[f"visible in: {visibility}"] = some
    for family in sorted({v.row.family for v in verdicts}):
        groups[f"all {family} kinds"] = [v for v in verdicts if v.row.family == family]
    groups["all kinds"] = verdicts
    for name, group in groups.items():
        found = [
            sum(v.any for v in group),
            sum(v.sure for v in group),
            sum(v.certain for v in group),
        ]
        cells = "".join(f"{n:>8}/{len(group):<3}{n / len(group):>5.0%}" for n in found)
        yield f"{name:<42}{cells}"


def render(score: Score) -> Iterator[str]:
    """The score as text."""
    heads = "".join(f"{h:>17}" for h in ("any confidence", "certain|advice", "certain"))
    if score.bugs:
        yield f"{'Bugs':<42}{heads}"
        yield from (*table(score.bugs), "")
    missed = [v for v in score.bugs if not v.sure]
    yield f"Bugs missed or only possible: {len(missed)}"
    for v in missed:
        state = "possible" if v.any else "missed"
        seen = " ".join(v.codes) or "nothing"
        yield f"  {v.row.id} {state} {v.row.kind} {v.row.file}:{v.row.line} (seen there: {seen})"
        yield f"        {v.row.note}"
    yield from section("False alarms", score.false_alarms)
    yield from section(
        "Other findings in paired-fix files or possible in right ones", score.beside_fixes
    )
    yield from section("Unlabelled findings, to be read", score.unlabelled)
    yield from section("Not checked", [f"{p.path}: {p.message}" for p in score.errors])
    yield from section("Crashes of the checker", score.crashes)
    yield from section("Rows whose file is absent", [f"{r.id} {r.file}" for r in score.absent])
    if score.unknown_kinds:
        yield f"Kinds not in the table, for which any code counts: {', '.join(score.unknown_kinds)}"
    loops = sum(score.loops.values())
    followed = loops - score.loops["not followed"]
    counts = ", ".join(f"{n} {name}" for name, n in score.loops.most_common())
    yield f"Training loops: {loops}: {counts}; followed {followed / max(loops, 1):.1%}"
    yield f"Checked in {score.seconds:.1f} s. Goals {'met' if score.goals_met else 'not met'}."


def measured(score: Score) -> Iterator[outcome.Row]:
    """The counts of the page of results."""
    groups = {"": score.bugs}
    for visibility in VISIBILITIES:
        some = [v for v in score.bugs if v.row.visibility == visibility]
        groups[f", visible in: {visibility}"] = some
    for kind in sorted({v.row.kind for v in score.bugs}):
        groups[f": {kind}"] = [v for v in score.bugs if v.row.kind == kind]
    for name, group in groups.items():
        yield outcome.Row(f"found{name}", sum(v.any for v in group), of=len(group))
    sure = sum(v.sure for v in score.bugs)
    yield outcome.Row("found as certain or advice", sure, of=len(score.bugs))
    yield outcome.Row("right places", score.right)
    yield outcome.Row("false alarms", len(score.false_alarms))
    loops = sum(score.loops.values())
    yield outcome.Row("training loops followed", loops - score.loops["not followed"], of=loops)


def section(title: str, lines: Iterable[object]) -> Iterator[str]:
    """A title with its count, and the items."""
    texts = [f"  {line}" for line in lines]
    yield f"{title}: {len(texts)}"
    yield from texts


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="DIR/OWNER+NAME/COMMIT/PATH holds the file that a row's repo, commit and path name; "
        "with it the project's other modules, because imports between them are followed. "
        f"Exits with 0 when {GOAL_ANY:.0%} of the bugs visible in a function or file are found at "
        f"any confidence, {GOAL_SURE:.0%} certain or as advice, and no right place is accused.",
    )
    parser.add_argument(
        "--labels",
        type=Path,
        default=[LABELS],
        nargs="+",
        metavar="FILE",
        help="JSON lines; several files are read as one (default: bench/labels.jsonl)",
    )
    parser.add_argument("--repos", type=Path, required=True, metavar="DIR", help="see below")
    parser.add_argument(
        "--pedantic", action="store_true", help="also list findings that are only possible"
    )
    parser.add_argument("--json", action="store_true", help="print all measurements as JSON")
    outcome.add_argument(parser)
    parser.add_argument(
        "--found",
        type=Path,
        metavar="FILE",
        help="instead, renew in this file what is reported at the places that were read (bench/found.jsonl)",
    )
    parser.add_argument(
        "--patches", type=Path, metavar="DIR", help="with --found: write the repairs as patches"
    )
    options = parser.parse_args()
    if options.found is not None:
        return int(found.renew(options.found, options.repos, options.patches) > 0)
    rows = [row for labels in options.labels for row in read_rows(labels)]
    score = judge(rows, check_all(rows, options.repos), options.pedantic)
    if len(score.absent) == len(rows):
        print(f"wild: no row of the labels has its file below {options.repos}", file=sys.stderr)
        return 2
    if options.result:
        title = "Known bugs in public repositories"
        notes = [f"{len(score.absent)} of {len(rows)} labelled places were not there, and are not counted."]  # fmt: skip
        notes = notes if score.absent else []
        outcome.write(options.result, title=title, method=METHOD, rows=list(measured(score)), notes=notes)  # fmt: skip
    if options.json:
        # asdict counts the items of a Counter anew.
        loops = dict(score.loops)
        print(json.dumps({"goals_met": score.goals_met, **asdict(score), "loops": loops}, indent=1))
    else:
        print(*render(score), sep="\n")
    return 0 if score.goals_met else 1


if __name__ == "__main__":
    sys.exit(main())
