"""Breaks training code of real checkouts in six ways, and counts what is found.

A checkout is a directory of a repository's files. Only files in which nothing is found are broken, and nothing
is run: a mutant that leaves another clear of the same object in its function is not counted, since it may be
right; nor is one of a function that does not train, if the function that trains clears the same, or that calls a
function which clears what it is handed; nor one of code that is never reached, that reads a variable before it has a
value, or that moves a clear out of a loop in which it is run once. Each mutant is checked in a copy of the checkout, together with the files that read it.
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
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from mutants import BY_NAME, fits, sources
from mutation import operators
from mutation.acts import BACKWARD, CLIP, STEP, ZERO, Act, Acts
from mutation.surgery import Text, blocks
from zerograd.check.drivers import drivers
from zerograd.core.finding import Finding
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
MOST_READERS = 5
"""How many of the files that read a broken one are checked with it."""


@dataclass(frozen=True)
class Tried:
    """One mutant of a real file, and whether it was found."""

    checkout: str
    file: str
    kind: str
    line: int
    found: bool
    codes: tuple[str, ...]
    """All reported codes; a question mark means only possible."""
    followed: bool
    """All training loops of the original were followed."""


def tried(checkout: Path) -> list[Tried]:
    """Checks the files of a checkout, and each mutant of those in which nothing is found."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / checkout.name
        shutil.copytree(checkout, copy, symlinks=True, ignore=_other_files)
        verdicts = {str(path): result_for_file(str(path)) for path in sorted(copy.rglob("*.py"))}
        for path in drivers(verdicts):
            verdicts[path] = result_for_file(path, named=True)
        done: list[Tried] = []
        helpers = frozenset(name for one in files(copy) for name in clearing_helpers(one))
        for one in files(copy):
            right = verdicts[str(one)]
            if not right.findings and not right.problems and right.loops:
                done += _mutants_of(one, copy, verdicts, helpers)
        return done


def _mutants_of(
    path: Path, copy: Path, verdicts: dict[str, FileResult], helpers: frozenset[str]
) -> Iterator[Tried]:
    right = verdicts[str(path)]
    readers = [one for one, verdict in verdicts.items() if str(path) in verdict.depends]
    readers = [one for one in readers if not verdicts[one].findings][:MOST_READERS]
    followed = all(loop.gap is None for loop in right.loops)
    data = path.read_bytes()
    text = data.decode("utf-8-sig")
    try:
        for mutant in operators.mutants(text):
            if mutant.kind.name not in KINDS or is_spare(text, mutant, helpers):
                continue
            path.write_text(mutant.text, encoding="utf-8")
            found = _found((str(path), *readers), BY_NAME[mutant.kind.name])
            codes = tuple(sorted({f.code + ("" if f.certain else "?") for f in found}))
            yield Tried(
                *(copy.name, str(path.relative_to(copy)), mutant.kind.name, mutant.line),
                found=fits(found, BY_NAME[mutant.kind.name]),
                codes=codes,
                followed=followed,
            )
    finally:
        path.write_bytes(data)


def _found(paths: tuple[str, ...], kind: operators.Kind) -> list[Finding]:
    """What is found in the files, up to the first that fits."""
    found: list[Finding] = []
    for path in paths:
        found += result_for_file(path, named=True).findings
        if fits(found, kind):
            break
    return found


def is_spare(text: str, mutant: operators.Mutant, helpers: frozenset[str] = frozenset()) -> bool:
    """Whether what a mutant takes away may be missing: there is another clear, or nothing is clipped.

    `helpers` are functions that clear what they are handed.
    """
    acts = Acts(Text(text))
    if is_never_reached(acts.text.tree, mutant.line):
        return True
    if mutant.kind.name == "clip after step":
        return is_read_too_early(acts, mutant.line)
    if mutant.kind.name == "unscale deleted":
        return not acts.of(CLIP)
    own = [act for act in acts.of(ZERO) if act.line == mutant.line]
    if not own:
        return False
    here = own[0].function
    calls = (ast.unparse(one.func) for one in ast.walk(here) if isinstance(one, ast.Call))
    if mutant.kind.name in CLEARS and any(call.rpartition(".")[2] in helpers for call in calls):
        return True
    if mutant.kind.name == "zero hoisted a loop level" and runs_once(acts, own[0]):
        return True
    trains = any(act.function is here for kind in (BACKWARD, STEP) for act in acts.of(kind))
    others = (act for act in acts.of(ZERO) if act not in own)
    # A function that neither fills nor steps clears what another one, which trains, clears as well.
    return any(
        act.target == own[0].target and (act.function is here or not trains) for act in others
    )


def clearing_helpers(path: Path) -> Iterator[str]:
    """The functions of a file that clear what they are handed, and step nothing."""
    for node in ast.walk(ast.parse(path.read_bytes().decode("utf-8-sig"))):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            given = {arg.arg for arg in node.args.args} - {"self"}
            called = {ast.unparse(one.func) for one in ast.walk(node) if isinstance(one, ast.Call)}
            clears = any(f"{one}.zero_grad" in called for one in given)
            if clears and not any(one.endswith(".step") for one in called):
                yield node.name


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
    """Whether a clear, with all that fills and steps in its loop, is in an `if` of the last iteration."""
    if not clear.loops:
        return False
    loop = clear.loops[-1]
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
        yield "Files of which all loops were followed" if followed else "All files"
        for kind in KINDS:
            own = [one for one in group if one.kind == kind]
            if own:
                yield _row(kind, own)
        yield _row("all", group)
        yield ""
    missed = [one for one in all_ if not one.found]
    for one in missed if listed else ():
        said = " ".join(one.codes) or "nothing"
        yield f"  {one.kind}: {one.checkout}/{one.file}:{one.line} (said: {said})"


def _row(name: str, own: list[Tried]) -> str:
    found = sum(one.found for one in own)
    share = f"{found / len(own):.1%}" if own else ""
    return f"  {name:<36}{len(own):>6}{found:>6}{share:>9}"


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
