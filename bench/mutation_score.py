"""Mutation testing of core and rules: how many small changes of our own code the tests notice.

The tests of core and rules that need no torch are collected once. A child process for each mutant (own_mutants.py)
replaces the code of the changed function and runs the tests that execute the line, the fastest first, until one fails.
What survives, and what is executed when a module is imported, is tried again in a process that imports the changed
module afresh and runs all of them. bench/survivors.json explains the mutants that no test can notice. Results are kept
in bench/.cache/mutation.json as long as neither the module nor a test has changed, so that a run can be resumed.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import io
import json
import math
import os
import random
import resource
import signal
import sys
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

import outcome
from outcome import ROOT, Row
from own_mutants import Mutant, mutants

SOURCE = ROOT / "src" / "zerograd"
PACKAGES = ("core", "rules")
TESTS = ("tests/core", "tests/rules/test_edges.py", "tests/rules/test_selection.py")
STATE = ROOT / "bench" / ".cache" / "mutation.json"
EXPLAINED = Path(__file__).with_name("survivors.json")
GOAL = 0.9
PYTEST = [
    "-q",
    "-x",
    "--assert=plain",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:zerograd",
    "--tier",
    "fast",
]
KILLED, SURVIVED, SLOW = "killed", "survived", "timeout"
UNDECIDED = "undecided"
"""No test that executes its line has noticed it; the others were not tried yet. It counts as a survivor."""
SECONDS = 60
"""What a child may take, in CPU time: a mutant that loops for ever is noticed."""


def main() -> int:
    """Try every mutant, or a sample; the exit code is 1 if the goal is missed or a survivor is not explained."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--sample",
        type=int,
        metavar="N",
        help="only so many of those outside of functions, drawn by the seed: each imports all modules",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=math.inf, help="end after this time")
    parser.add_argument("--only", metavar="TEXT", help="only modules whose path contains this")
    outcome.add_argument(parser)
    options = parser.parse_args()
    chosen = [
        mutant
        for package in PACKAGES
        for path in sorted((SOURCE / package).glob("*.py"))
        if options.only is None or options.only in str(path)
        for mutant in mutants(path)
    ]
    total = len(chosen)
    if options.sample is not None:
        inside = [mutant for mutant in chosen if mutant.in_function]
        outside = [mutant for mutant in chosen if not mutant.in_function]
        drawn = random.Random(options.seed).sample(outside, min(options.sample, len(outside)))
        chosen = [*inside, *drawn]
    # In an order drawn by the seed, so that a run which ends early has tried a fair sample.
    chosen = random.Random(options.seed).sample(chosen, len(chosen))
    known = Known()
    _try_all(chosen, known, time.monotonic() + 60 * options.minutes)
    return _report(chosen, known, total, options.result)


class Known:
    """The results so far, of modules and tests that have not changed since."""

    def __init__(self) -> None:
        files = sorted(path for name in TESTS for path in _files(ROOT / name))
        self._tests = _digest([*files, *_files(ROOT / "tests" / "support"), Path(__file__)])
        self._results: dict[str, str] = {}
        if STATE.exists():
            self._results = json.loads(STATE.read_text(encoding="utf-8"))
        self._modules: dict[Path, str] = {}

    def _key(self, mutant: Mutant) -> str:
        if mutant.path not in self._modules:
            self._modules[mutant.path] = _digest([mutant.path])
        return f"{self._tests} {self._modules[mutant.path]} {mutant.key} {mutant.number}"

    def get(self, mutant: Mutant) -> str | None:
        return self._results.get(self._key(mutant))

    def put(self, mutant: Mutant, result: str) -> None:
        self._results[self._key(mutant)] = result

    def keep(self) -> None:
        STATE.parent.mkdir(parents=True, exist_ok=True)
        STATE.write_text(json.dumps(self._results), encoding="utf-8")


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(path.rglob("*.py"))


def _digest(paths: Sequence[Path]) -> str:
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in paths)).hexdigest()[:16]


# Children


def _in_child(work: Callable[[], bool], *, limited: bool = True) -> str:
    """Whether a test fails in a process of its own, in which `work` is done."""
    pid = os.fork()
    if pid == 0:
        try:
            if limited:
                resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 5))
                signal.alarm(20 * SECONDS)
            code = 0 if work() else 1
        except BaseException:  # noqa: BLE001, a module that cannot be imported is noticed
            code = 1
        os._exit(code)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        slow = os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGALRM, signal.SIGKILL)
        return SLOW if slow else KILLED
    return SURVIVED if os.WEXITSTATUS(status) == 0 else KILLED


def _quietly(work: Callable[[], int]) -> int:
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        return work()


class _Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives Python the changed module instead of the one on disk."""

    def __init__(self, mutant: Mutant) -> None:
        relative = mutant.path.relative_to(SOURCE.parent).with_suffix("")
        self._name = ".".join(relative.parts).removesuffix(".__init__")
        self._mutant = mutant

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != self._name:
            return None
        place = str(self._mutant.path)
        spec = importlib.util.spec_from_file_location(name, place, loader=self)
        if spec is not None and self._mutant.path.name == "__init__.py":
            spec.submodule_search_locations = [str(self._mutant.path.parent)]
        return spec

    def exec_module(self, module: Any) -> None:
        exec(compile(self._mutant.tree(), str(self._mutant.path), "exec"), vars(module))


def _imported_afresh(mutant: Mutant | None) -> bool:
    if mutant is not None:
        sys.meta_path.insert(0, _Changed(mutant))
    tests = [str(ROOT / name) for name in TESTS]
    return _quietly(lambda: int(pytest.main([*PYTEST, *tests]))) == 0


# Tests that were collected


class Collected:
    """A plugin of pytest: what a run does once the tests are collected."""

    def __init__(self, work: Callable[[Collected], None]) -> None:
        self._work = work
        self.items: list[pytest.Item] = []
        self.covering: dict[tuple[str, int], list[int]] = defaultdict(list)
        self.seconds: dict[int, float] = {}
        self._functions: dict[tuple[str, str, int], list[FunctionType]] = defaultdict(list)
        self._killers: Counter[int] = Counter()

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.items = session.items
        for one in gc.get_objects():
            if isinstance(one, FunctionType):
                code = one.__code__
                self._functions[code.co_filename, code.co_name, code.co_firstlineno].append(one)
        self._look()
        self._work(self)
        return True

    def _look(self) -> None:
        """Find out in a child which lines each test executes, and how long it takes."""
        found = STATE.with_name("mutation_lines.json")
        found.parent.mkdir(parents=True, exist_ok=True)

        def run() -> bool:
            import coverage

            tool = coverage.Coverage(
                data_file=None,
                config_file=False,
                include=[f"{SOURCE / name}/*" for name in PACKAGES],
            )
            tool.start()
            seconds: dict[int, float] = {}
            for number, item in enumerate(self.items):
                tool.switch_context(str(number))
                began = time.perf_counter()
                if not self._passes([number]):
                    raise AssertionError(item.nodeid)
                seconds[number] = time.perf_counter() - began
            tool.stop()
            warnings.simplefilter("ignore")  # modules were imported before
            data = tool.get_data()
            lines = [
                [path, line, [int(one) for one in contexts if one]]
                for path in data.measured_files()
                for line, contexts in data.contexts_by_lineno(path).items()
            ]
            found.write_text(json.dumps({"lines": lines, "seconds": seconds}), encoding="utf-8")
            return True

        if _in_child(run) != SURVIVED:
            raise SystemExit("the tests fail without any change")
        read = json.loads(found.read_text(encoding="utf-8"))
        for path, line, tests in read["lines"]:
            self.covering[path, line] = tests
        self.seconds = {int(number): took for number, took in read["seconds"].items()}

    def _passes(self, numbers: Sequence[int]) -> bool:
        """Whether some tests pass; the first that fails ends them."""
        for number in numbers:
            item = self.items[number]
            failed = item.session.testsfailed
            item.ihook.pytest_runtest_protocol(item=item, nextitem=None)
            if item.session.testsfailed > failed:
                self._failed = number
                return False
        return True

    def result(self, mutant: Mutant) -> str:
        """Whether a test that executes the line of a mutant notices it."""
        tests = self.covering.get((str(mutant.path), mutant.line), [])
        if not tests:
            return SURVIVED
        pairs = list(self._replacements(mutant))
        if not pairs:
            return SURVIVED
        order = sorted(tests, key=lambda one: (-self._killers[one], self.seconds[one]))
        read, written = os.pipe()

        def run() -> bool:
            for function, code in pairs:
                function.__code__ = code
            passed = _quietly(lambda: 0 if self._passes(order) else 1) == 0
            if not passed:
                os.write(written, str(self._failed).encode())
            return passed

        try:
            result = _in_child(run)
            os.close(written)
            killer = os.read(read, 20).decode()
        finally:
            os.close(read)
        if killer:
            self._killers[int(killer)] += 1
        return result

    def _replacements(self, mutant: Mutant) -> Iterator[tuple[FunctionType, CodeType]]:
        """The functions that have to run other code. There are none where that is made by a class."""
        place = str(mutant.path)
        old = compile(mutant.path.read_text(encoding="utf-8"), place, "exec", dont_inherit=True)
        new = compile(mutant.tree(), place, "exec", dont_inherit=True)
        for before, after in _pairs(old, new):
            if before != after:
                key = (place, before.co_name, before.co_firstlineno)
                for function in self._functions.get(key, ()):
                    if function.__code__.co_freevars == after.co_freevars:
                        yield function, after


def _pairs(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """The functions of a module, and of its classes, before and after."""
    before = [one for one in old.co_consts if isinstance(one, CodeType)]
    after = [one for one in new.co_consts if isinstance(one, CodeType)]
    for one, other in zip(before, after, strict=False):
        if one.co_flags & 0x02:  # CO_NEWLOCALS: a function, not the body of a class
            yield one, other
        else:
            yield from _pairs(one, other)


def _try_all(chosen: Sequence[Mutant], known: Known, end: float) -> None:
    left = [mutant for mutant in chosen if known.get(mutant) in (None, UNDECIDED)]
    print(f"{len(chosen)} mutants, {len(chosen) - len(left)} of them tried before", flush=True)
    slow = [mutant for mutant in left if not mutant.in_function]

    def work(collected: Collected) -> None:
        for number, mutant in enumerate(left):
            if time.monotonic() > end:
                break
            if mutant.in_function:
                result = collected.result(mutant)
                if result == SURVIVED:
                    slow.insert(0, mutant)
                    result = UNDECIDED
                known.put(mutant, result)
            if number % 50 == 49:
                known.keep()
                print(f"{number + 1} of {len(left)}: {len(slow)} to import", flush=True)

    if any(mutant.in_function for mutant in left):
        # In a child, so that this process never imports what is changed.
        path = STATE.with_name("mutation_slow.json")

        def run() -> bool:
            os.chdir(ROOT)
            tests = [str(ROOT / name) for name in TESTS]
            done = pytest.main([*PYTEST, *tests], plugins=[Collected(work)])
            if done is not pytest.ExitCode.OK:
                return False
            known.keep()
            numbers = {id(mutant): number for number, mutant in enumerate(left)}
            path.write_text(json.dumps([numbers[id(one)] for one in slow]), encoding="utf-8")
            return True

        path.unlink(missing_ok=True)
        if _in_child(run, limited=False) != SURVIVED or not path.exists():
            raise SystemExit("the tests could not be run")
        known.__init__()  # type: ignore[misc]
        slow = [left[index] for index in json.loads(path.read_text(encoding="utf-8"))]
    _warm()
    if slow and time.monotonic() < end and _in_child(lambda: _imported_afresh(None)) != SURVIVED:
        raise SystemExit("the tests fail without any change")
    for number, mutant in enumerate(slow):
        if time.monotonic() > end:
            break
        known.put(mutant, _in_child(lambda mutant=mutant: _imported_afresh(mutant)))  # type: ignore[misc]
        if number % 20 == 19:
            known.keep()
            print(f"{number + 1} of {len(slow)} imported", flush=True)
    known.keep()


def _warm() -> None:
    """Import what every child needs and no mutant changes."""
    importlib.import_module("hypothesis.strategies")
    assert not [name for name in sys.modules if name.startswith("zerograd")]
    os.chdir(ROOT)


def _report(chosen: Sequence[Mutant], known: Known, total: int, result: Path | None) -> int:
    explained: dict[str, str] = json.loads(EXPLAINED.read_text(encoding="utf-8"))
    counts: dict[str, Counter[str]] = {name: Counter() for name in PACKAGES}
    open_ = []
    decided = [(mutant, known.get(mutant)) for mutant in chosen]
    tried_ = [(mutant, said) for mutant, said in decided if said is not None]
    for mutant, said in tried_:
        said = SURVIVED if said == UNDECIDED else said
        counts[mutant.path.parent.name][said] += 1
        if said == SURVIVED:
            why = explained.get(name_of(mutant))
            if why is None:
                open_.append(mutant)
            else:
                counts[mutant.path.parent.name]["explained"] += 1
    for mutant in open_:
        print(f"survives: {name_of(mutant)}  (line {mutant.line})")
    rows = []
    for name, counted in counts.items():
        tried = counted[KILLED] + counted[SLOW] + counted[SURVIVED]
        killed = counted[KILLED] + counted[SLOW]
        rows += [
            Row(f"{name}: mutants that a test notices", killed, of=tried, goal=GOAL * tried),
            Row(f"{name}: of them, by running too long", counted[SLOW], of=tried),
            Row(f"{name}: survivors that no test can notice", counted["explained"], of=tried),
        ]
    for row in rows:
        print(f"{row.name}: {row.value:g} of {row.of:g}")
    if result is not None:
        outcome.write(
            result,
            title="Mutation testing of core and rules",
            method=f"{len(tried_)} of {total} mutants of the modules of core and rules, in an order drawn by a fixed "
            "seed, those in functions first: "
            f"{sum(not mutant.in_function for mutant, _ in tried_)} of them are executed at import. Each is tried with "
            "the tests of these packages that need no torch: a comparison, logical operator, condition, number, text, "
            "argument, statement or result is changed. bench/survivors.json says why the explained ones cannot be "
            "noticed.",
            rows=rows,
        )
    missed = any(row.goal is not None and row.value < row.goal for row in rows)
    return int(missed or bool(open_))


def name_of(mutant: Mutant) -> str:
    """What a mutant is called in the list of explained ones: lines may move, the text of the line stays."""
    line = mutant.path.read_text(encoding="utf-8").splitlines()[mutant.line - 1].strip()
    return f"{mutant.path.parent.name}/{mutant.path.name}: {line}: {mutant.change}"


if __name__ == "__main__":
    sys.exit(main())
