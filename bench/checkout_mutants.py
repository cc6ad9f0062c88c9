"""Breaks training code of real checkouts in six ways, and counts what is found.

A checkout is a directory of a repository's files. Only files in which nothing is found are broken, and nothing
is run: a mutant that leaves another clear of the same object in its function is not counted, since it may be
right; nor is one of a function that does not train, if the function that trains clears the same, or that calls a
function which clears what it is handed; nor one of code that is never reached, that reads a variable before it has a
value, that moves a clear out of a loop in which it is run once, or that takes a clear away where gradients are set
by hand. Each mutant is checked in a copy of the checkout, together with the files that read it.
"""

from __future__ import annotations

import argparse
import ast
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from mutants import fits, sources
from mutation import operators
from mutation.acts import BACKWARD, CLIP, STEP, ZERO, Act, Acts
from mutation.surgery import Text, blocks
from zerograd.check.drivers import drivers
from zerograd.check.loop_verdicts import verdicts
from zerograd.check.settings import Settings
from zerograd.core.finding import Finding
from zerograd.core.training_loop import TrainingLoop
from zerograd.static.check_file import FileResult, result_for_file

GOAL, GOAL_FOR_CLEARS = 0.98, 1.0
CLEARS = ("zero deleted", "zero of one of several deleted", "zero hoisted a loop level")
KINDS = (
    *CLEARS,
    "zero between backward and step",
    "backward deleted",
    "clip after step",
    "unscale deleted",
)
OUTCOMES = ("found", "possible", "missed", "called right")
MOST_READERS = 5
"""How many of the files that read a broken one are checked with it."""


@dataclass(frozen=True)
class Tried:
    """One mutant of a real file, and whether it was found."""

    checkout: str
    file: str
    kind: str
    line: int
    outcome: str
    """"found"; "possible": what fits is not certain; "missed"; "called right": a loop of it is."""
    codes: tuple[str, ...]
    """All reported codes; a question mark means only possible."""
    followed: bool
    """All training loops of the original were followed."""

    @property
    def found(self) -> bool:
        return self.outcome == "found"


def tried(checkout: Path) -> list[Tried]:
    """Checks the files of a checkout, and each mutant of those in which nothing is found."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / checkout.name
        shutil.copytree(checkout, copy, symlinks=True, ignore=_other_files)
        originals = {str(path): result_for_file(str(path)) for path in sorted(copy.rglob("*.py"))}
        for path in drivers(originals):
            originals[path] = result_for_file(path, named=True)
        done: list[Tried] = []
        helpers = frozenset(name for one in files(copy) for name in clearing_helpers(one))
        for one in files(copy):
            right = originals[str(one)]
            if not right.findings and not right.problems and right.loops:
                done += _mutants_of(one, copy, originals, helpers)
        return done


def _mutants_of(
    path: Path, copy: Path, originals: dict[str, FileResult], helpers: frozenset[str]
) -> Iterator[Tried]:
    right = originals[str(path)]
    readers = [one for one, result in originals.items() if str(path) in result.depends]
    readers = [one for one in readers if not originals[one].findings][:MOST_READERS]
    followed = all(loop.gap is None for loop in right.loops)
    data = path.read_bytes()
    text = data.decode("utf-8-sig")
    try:
        for mutant in operators.mutants(text):
            if mutant.kind.name not in KINDS or is_spare(text, mutant, helpers):
                continue
            path.write_text(mutant.text, encoding="utf-8")
            results = _results((str(path), *readers), mutant.kind)
            found = [finding for result in results for finding in result.findings]
            yield Tried(
                *(copy.name, str(path.relative_to(copy)), mutant.kind.name, mutant.line),
                outcome=_outcome(results, found, mutant, Acts(Text(text)), str(path)),
                codes=tuple(sorted({f.code + ("" if f.certain else "?") for f in found})),
                followed=followed,
            )
    finally:
        path.write_bytes(data)


def _results(paths: tuple[str, ...], kind: operators.Kind) -> list[FileResult]:
    """The results for the files, up to the first in which a finding fits."""
    results: list[FileResult] = []
    for path in paths:
        results.append(result_for_file(path, named=True))
        if fits(list(results[-1].findings), kind):
            break
    return results


def _outcome(
    results: list[FileResult],
    found: list[Finding],
    mutant: operators.Mutant,
    acts: Acts,
    path: str,
) -> str:
    if fits(found, mutant.kind):
        return "found"
    if any(finding.code in mutant.kind.codes for finding in found):
        return "possible"
    broken = next(act for act in acts.all if act.line == mutant.line)
    loops = [loop for result in results for loop in result.loops]
    seen = verdicts([(path, Settings(), tuple(loops))], _paths(loops), found, lambda *_: "wrong")
    for scope in (*reversed(broken.loops), broken.function):
        first, last = getattr(scope, "lineno", 1), getattr(scope, "end_lineno", sys.maxsize)
        inside = [
            verdict.verdict
            for verdict in seen
            if any(
                step.site.path == path and first <= step.site.line <= last
                for step in verdict.loop.steps
            )
        ]
        if inside:
            return "called right" if "right" in inside else "missed"
    return "missed"


def _paths(loops: list[TrainingLoop]) -> set[str]:
    return {loop.site.path for loop in loops}


def is_spare(text: str, mutant: operators.Mutant, helpers: frozenset[str] = frozenset()) -> bool:
    """Whether what a mutant takes away may be missing: there is another clear, or nothing is clipped.

    `helpers` are functions that clear what they are handed, or the object that they are called on.
    """
    acts = Acts(Text(text))
    if is_never_reached(acts.text.tree, mutant.line):
        return True
    if mutant.kind.name == "clip after step":
        return is_read_too_early(acts, mutant.line) or is_between_steps(acts, mutant.line)
    if mutant.kind.name == "unscale deleted":
        return not acts.of(CLIP)
    own = [act for act in acts.of(ZERO) if act.line == mutant.line]
    if not own:
        return False
    here = own[0].function
    if mutant.kind.name in CLEARS and sets_gradients(acts, here):
        return True
    calls = (ast.unparse(one.func) for one in ast.walk(here) if isinstance(one, ast.Call))
    if mutant.kind.name in CLEARS:
        if any(call.rpartition(".")[2] in helpers for call in calls):
            return True
        if isinstance(here, ast.Module) and not own[0].loops:
            return True  # It is run once, when there are no gradients yet.
    if mutant.kind.name == "zero hoisted a loop level" and runs_once(acts, own[0]):
        return True
    others = [act for act in acts.of(ZERO) if act not in own]
    trains = any(act.function is here for kind in (BACKWARD, STEP) for act in acts.of(kind))
    # A function that neither fills nor steps clears what another one, which trains, clears as well.
    if any(act.target == own[0].target and (act.function is here or not trains) for act in others):
        return True
    return is_beside_the_steps(acts, own[0], others)


def sets_gradients(acts: Acts, function: ast.AST) -> bool:
    """Whether a function gives gradients other values by hand, and runs no backward: its clears change nothing."""
    if any(act.function is function for act in acts.of(BACKWARD)):
        return False
    stored = (
        target
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and not isinstance(node.value, ast.Constant)
        for target in node.targets
    )
    return any(isinstance(one, ast.Attribute) and one.attr in ("grad", "_grad") for one in stored)


def is_beside_the_steps(acts: Acts, clear: Act, others: list[Act]) -> bool:
    """Whether a clear is of what its function does not step, and every step has a clear of its own."""
    steps = [(act.function, name) for act in acts.of(STEP) for name in _stepped(act)]
    if not steps or any(step == (clear.function, clear.target) for step in steps):
        return False
    cleared = {(act.function, act.target) for act in others}
    return all(step in cleared for step in steps)


def _stepped(step: Act) -> list[str]:
    """What a step concerns, as the code names it: `opt` in `opt.step()` and in `scaler.step(opt)`."""
    handed = [ast.unparse(one) for one in step.call.args] if step.call is not None else []
    return handed or [step.target]


def is_between_steps(acts: Acts, line: int) -> bool:
    """Whether a clip that is moved behind a step still comes before a step of the same gradients."""
    (clip,) = (act for act in acts.of(CLIP) if act.line == line)
    step = acts.after(clip, STEP)
    following = acts.after(step, STEP) if step is not None else None
    if step is None or following is None:
        return False
    backward = acts.after(step, BACKWARD)
    return backward is None or backward.line > following.line


def clearing_helpers(path: Path) -> Iterator[str]:
    """The functions of a file that step nothing, and clear what they are handed or called on."""
    called: dict[str, set[str]] = {}
    helpers: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes().decode("utf-8-sig"))):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            calls = {ast.unparse(one.func) for one in ast.walk(node) if isinstance(one, ast.Call)}
            if not any(one.endswith((".step", ".backward")) for one in calls):
                called.setdefault(node.name, set()).update(one.rpartition(".")[2] for one in calls)
                if any(f"{arg.arg}.zero_grad" in calls for arg in node.args.args):
                    helpers.add(node.name)
    while more := {name for name, calls in called.items() if calls & helpers} - helpers:
        helpers |= more
    yield from sorted(helpers)


def is_read_too_early(acts: Acts, line: int) -> bool:
    """Whether the result of a clip is read before the step behind which the clip is moved."""
    (clip,) = (act for act in acts.of(CLIP) if act.line == line)
    step = acts.after(clip, STEP)
    stored = clip.node.targets if isinstance(clip.node, ast.Assign) else []
    names = {one.id for target in stored for one in ast.walk(target) if isinstance(one, ast.Name)}
    end = clip.node.end_lineno or line
    return step is not None and any(
        isinstance(node, ast.Name) and node.id in names and end < node.lineno <= step.line
        for node in ast.walk(clip.function)
    )


def runs_once(acts: Acts, clear: Act) -> bool:
    """Whether the loop of a clear runs once, or the clear is in an `if` of its last iteration with all that trains."""
    if not clear.loops:
        return False
    loop = clear.loops[-1]
    if isinstance(loop, ast.For) and ast.unparse(loop.iter) == "range(1)":
        return True
    if isinstance(loop, ast.For | ast.While) and isinstance(loop.body[-1], ast.Break | ast.Return):
        return True
    inside = [act for act in acts.all if loop in act.loops]
    for node in ast.walk(loop):
        if isinstance(node, ast.If) and all(_spans(node, act.line) for act in inside):
            test = node.test
            if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq):
                return "len(" in ast.unparse(test)
    return False


def is_never_reached(tree: ast.AST, line: int) -> bool:
    """Whether a line comes after a statement that leaves its block for good: `exit()`, `return`, `raise`."""
    for block in (block for node in ast.walk(tree) for block in blocks(node)):
        around = next((at for at, one in enumerate(block) if _spans(one, line)), 0)
        if any(_leaves(one) for one in block[:around]):
            return True
    return False


def _spans(node: ast.stmt, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _leaves(node: ast.stmt) -> bool:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return ast.unparse(node.value.func) in ("exit", "quit", "sys.exit", "os._exit")
    return isinstance(node, (ast.Return, ast.Raise))


def files(checkout: Path) -> Iterator[Path]:
    """The files of a checkout that train, without its tests."""
    for path in sources(checkout):
        parts = path.relative_to(checkout).parts
        if not any(part.startswith("test") for part in parts):
            yield path


def _other_files(folder: str, names: list[str]) -> list[str]:
    return [n for n in names if not n.endswith(".py") and not Path(folder, n).is_dir()]


def render(all_: list[Tried], listed: bool) -> Iterator[str]:
    for followed in (True, False):
        group = [one for one in all_ if one.followed or not followed]
        title = "Files of which all loops were followed" if followed else "All files"
        yield f"{title:<44}" + "".join(f"{one.removeprefix('called '):>9}" for one in OUTCOMES)
        for kind in KINDS:
            own = [one for one in group if one.kind == kind]
            if own:
                yield _row(kind, own)
        yield _row("all", group)
        yield ""
    missed = [one for one in all_ if not one.found]
    for one in missed if listed else ():
        said = " ".join(one.codes) or "nothing"
        yield f"  {one.outcome}: {one.kind}: {one.checkout}/{one.file}:{one.line} (said: {said})"


def _row(name: str, own: list[Tried]) -> str:
    count = Counter(one.outcome for one in own)
    share = f"{count['found'] / len(own):.1%}" if own else ""
    numbers = "".join(f"{count[one]:>9}" for one in OUTCOMES)
    return f"  {name:<36}{len(own):>6}{numbers}{share:>9}"


def is_met(all_: list[Tried]) -> bool:
    """Whether enough is found, and every clear that is deleted or hoisted."""
    clears = [one for one in all_ if one.kind in CLEARS]
    return all(
        sum(one.found for one in group) >= goal * len(group)
        for group, goal in ((all_, GOAL), (clears, GOAL_FOR_CLEARS))
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkouts", nargs="+", type=Path, metavar="DIR", help="one checkout each")
    parser.add_argument("--list", action="store_true", help="also list every miss")
    parser.add_argument("--json", action="store_true", help="print all measurements as JSON")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    done: list[Tried] = []
    with multiprocessing.get_context("spawn").Pool(max(1, options.jobs)) as pool:
        for some in pool.imap_unordered(tried, options.checkouts):
            done += some
    done.sort(key=lambda one: (one.checkout, one.file, one.line, one.kind))
    if options.json:
        print(json.dumps([asdict(one) for one in done], indent=1))
    else:
        print(f"{len(options.checkouts)} checkouts, {len(done)} mutants")
        print(*render(done, options.list), sep="\n")
        print(f"Goals {'met' if is_met(done) else 'not met'}.")
    return 0 if is_met(done) else 1


if __name__ == "__main__":
    sys.exit(main())
