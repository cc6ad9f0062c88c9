"""Mutation testing of core and rules: how many small changes of our own code the tests notice.

The tests of core and rules that need no torch are collected once, and coverage says which of them execute which line.
A child process for each mutant (own_mutants.py) replaces the code of the changed function and runs the tests that
execute the line, the fastest first, until one fails. What is executed when a module is imported is tried in a child
that imports the changed module before it collects the tests. bench/survivors.json explains the mutants that no test
can notice. Results are kept in bench/.cache/mutation.jsonl, so that a run can be resumed: a mutant that was noticed
as long as neither its module nor the file of that test has changed, another as long as no test has changed.
"""

from __future__ import annotations

import argparse
import ast
import functools
import gc
import hashlib
import importlib
import importlib.abc
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
import traceback
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

import outcome
from outcome import ROOT, Row
from own_mutants import Mutant, mutants

SOURCE = ROOT / "src" / "zerograd"
PACKAGES = ("core", "rules")
TESTS = (
    "tests/core",
    "tests/rules/test_edges.py",
    "tests/rules/test_selection.py",
    "tests/rules/test_unused_allow.py",
    "tests/rules/test_which_rules.py",
)
CACHE = ROOT / "bench" / ".cache"
EXPLAINED = Path(__file__).with_name("survivors.json")
GOAL = 0.9
PYTEST = ["-q", "-x", "--tb=no", "--assert=plain", "-p", "no:cacheprovider", "-p", "no:zerograd", "--tier", "fast"]  # fmt: skip
KILLED, SURVIVED, SLOW = "killed", "survived", "timeout"
MOST_SECONDS = 60.0
"""What a child may take at most, in CPU time."""
MOST_BYTES = 4 << 30
IMPORT = "import"
"""The test that notices a module which cannot be imported."""


@dataclass(frozen=True)
class Result:
    """What became of a mutant, and the test that noticed it."""

    said: str
    by: str = ""


def main() -> int:
    """Try every mutant; the exit code is 1 if the goal is missed or a survivor is not explained."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=math.inf, help="end after this time")
    parser.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="so many processes at once"
    )
    parser.add_argument("--only", metavar="TEXT", help="only modules whose path contains this")
    outcome.add_argument(parser)
    options = parser.parse_args()
    all_of_them = [
        mutant
        for package in PACKAGES
        for path in sorted((SOURCE / package).glob("*.py"))
        if options.only is None or options.only in str(path)
        for mutant in mutants(path)
    ]
    known = Known()
    left = [mutant for mutant in all_of_them if known.get(mutant) is None]
    # In an order drawn by a fixed seed, so that a run which ends early has tried a fair sample.
    left = random.Random(0).sample(left, len(left))
    print(f"{len(all_of_them)} mutants, {len(all_of_them) - len(left)} of them tried before")
    if left:
        _try_all(left, known, time.monotonic() + 60 * options.minutes, options.jobs)
    return _report(all_of_them, known, options.result)


class Known:
    """The results so far, of modules and tests that have not changed since."""

    def __init__(self) -> None:
        self._path = CACHE / "mutation.jsonl"
        files = [path for name in TESTS for path in _files(ROOT / name)]
        self._tests = _digest(*files, *_files(ROOT / "tests" / "support"))
        self._results: dict[str, Result] = {}
        self.read()

    def read(self) -> None:
        """Read what another process has added."""
        if self._path.exists():
            for line in self._path.read_text(encoding="utf-8").splitlines():
                key, tests, said, by = json.loads(line)
                if tests == self._of_tests(said, by):
                    self._results[key] = Result(said, by)

    def _of_tests(self, said: str, by: str) -> str:
        """The tests that a result depends on: all, or the file of the one that noticed the mutant."""
        path = ROOT / by.partition("::")[0]
        return _digest(path) if said == KILLED and path.is_file() else self._tests

    def killers(self) -> Counter[str]:
        """How many mutants each test has noticed."""
        return Counter(result.by for result in self._results.values() if result.said == KILLED)

    def get(self, mutant: Mutant) -> Result | None:
        return self._results.get(_key(mutant))

    def put(self, mutant: Mutant, result: Result) -> None:
        self._results[_key(mutant)] = result
        line = [_key(mutant), self._of_tests(result.said, result.by), result.said, result.by]
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def _key(mutant: Mutant) -> str:
    return f"{_digest(mutant.path)} {mutant.key} {mutant.number}"


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(path.rglob("*.py"))


@functools.cache
def _digest(*paths: Path) -> str:
    """What the code of modules is, without comments and docstrings."""
    found = hashlib.sha256()
    for path in paths:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            body = getattr(node, "body", None)
            if isinstance(body, list):
                body[:] = [one for one in body if not _is_text(one)]
        found.update(ast.dump(tree).encode())
    return found.hexdigest()[:16]


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


# Children


def _in_child(work: Callable[[], str | None], seconds: float | None = MOST_SECONDS) -> Result:
    """What `work` says in a process of its own: the test that fails, or None."""
    read, written = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            if seconds is not None:
                whole = math.ceil(seconds)
                resource.setrlimit(resource.RLIMIT_CPU, (whole, whole + 5))
                resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
                signal.alarm(20 * whole)
            said = work()
        except BaseException:  # noqa: BLE001, a module that cannot be imported is noticed
            said = IMPORT
        os.write(written, (said or "").encode())
        os._exit(0 if said is None else 1)
    os.close(written)
    with os.fdopen(read, "rb") as pipe:
        by = pipe.read().decode()
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        slow = os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGALRM, signal.SIGKILL)
        return Result(SLOW if slow else KILLED, IMPORT)
    return Result(SURVIVED) if os.WEXITSTATUS(status) == 0 else Result(KILLED, by)


def _run(plugin: object) -> bool:
    """Run pytest with a plugin, without a word; whether it ends well."""
    os.chdir(ROOT)
    tests = [str(ROOT / name) for name in TESTS]
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        return pytest.main([*PYTEST, *tests], plugins=[plugin]) == pytest.ExitCode.OK


class Plugin:
    """A plugin of pytest: random inputs are not kept, and not made smaller when a test fails."""

    def pytest_sessionstart(self) -> None:
        from hypothesis import Phase, settings

        settings.register_profile("mutation", settings(), database=None, phases=[Phase.explicit, Phase.generate])  # fmt: skip
        settings.load_profile("mutation")


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


class Afresh(Plugin):
    """Imports a changed module, then collects the tests and runs them, the fastest first, until one fails."""

    def __init__(self, tests: Tests) -> None:
        self._tests = tests
        self._failed: str | None = None

    def result(self, mutant: Mutant | None) -> Result:
        """Whether a test notices a mutant."""
        return _in_child(lambda: self._run(mutant))

    def _run(self, mutant: Mutant | None) -> str | None:
        if mutant is not None:
            sys.meta_path.insert(0, _Changed(mutant))
        return None if _run(self) else self._failed or IMPORT

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=lambda item: self._tests.order(item.nodeid))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self._failed is None:
            self._failed = report.nodeid


# What is known of the tests


@dataclass
class Tests:
    """Which lines each test executes, how long it takes, and how many mutants it has noticed."""

    covering: dict[tuple[str, int], list[str]] = field(default_factory=dict)
    imported: set[tuple[str, int]] = field(default_factory=set)
    """The lines that are executed while the tests are collected."""
    seconds: dict[str, float] = field(default_factory=dict)
    killers: Counter[str] = field(default_factory=Counter)

    def order(self, name: str) -> tuple[int, float]:
        return -self.killers[name], self.seconds.get(name, 0.0)

    def of(self, mutant: Mutant) -> list[str]:
        """The tests that execute the line of a mutant, in the order in which they are tried."""
        found = self.covering.get((str(mutant.path), mutant.line), [])
        return sorted(found, key=self.order)

    def is_imported(self, mutant: Mutant) -> bool:
        return not mutant.in_function or (str(mutant.path), mutant.line) in self.imported


def _coverage() -> Any:
    import coverage

    include = [f"{SOURCE / name}/*" for name in PACKAGES]
    return coverage.Coverage(data_file=None, config_file=False, include=include)


class Collected(Plugin):
    """Collects the tests once, and then does its work: everything in children of this process."""

    def __init__(self, work: Callable[[Collected], None]) -> None:
        self._work = work
        self.tests = Tests()
        self._items: dict[str, pytest.Item] = {}
        self._functions: dict[tuple[str, str, int], list[FunctionType]] = defaultdict(list)
        self._while_collecting = _coverage()
        self._while_collecting.start()

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._while_collecting.stop()
        data = self._while_collecting.get_data()
        for path in data.measured_files():
            self.tests.imported |= {(path, line) for line in data.lines(path) or ()}
        self._items = {item.nodeid: item for item in session.items}
        for one in gc.get_objects():
            if isinstance(one, FunctionType):
                code = one.__code__
                self._functions[code.co_filename, code.co_name, code.co_firstlineno].append(one)
        self._look()
        gc.freeze()  # a child that collects garbage copies all of it otherwise
        self._work(self)
        return True

    def _look(self) -> None:
        """Find out in a child which lines each test executes, and how long it takes."""
        found = CACHE / "mutation_lines.json"
        found.parent.mkdir(parents=True, exist_ok=True)

        def run() -> str | None:
            tool = _coverage()
            tool.start()
            seconds: dict[str, float] = {}
            for name in self._items:
                tool.switch_context(name)
                began = time.process_time()
                if self._first_failing([name]) is not None:
                    return name
                seconds[name] = time.process_time() - began
            tool.stop()
            warnings.simplefilter("ignore")  # modules were imported before
            data = tool.get_data()
            lines = [
                [path, line, [one for one in contexts if one]]
                for path in data.measured_files()
                for line, contexts in data.contexts_by_lineno(path).items()
            ]
            found.write_text(json.dumps({"lines": lines, "seconds": seconds}), encoding="utf-8")
            return None

        done = _in_child(run, None)
        if done.said != SURVIVED:
            raise SystemExit(f"a test fails without any change: {done.by}")
        read = json.loads(found.read_text(encoding="utf-8"))
        self.tests.covering = {(path, line): tests for path, line, tests in read["lines"]}
        self.tests.seconds = read["seconds"]

    def _first_failing(self, names: Sequence[str]) -> str | None:
        for name in names:
            item = self._items[name]
            failed = item.session.testsfailed
            item.ihook.pytest_runtest_protocol(item=item, nextitem=None)
            if item.session.testsfailed > failed:
                return name
        return None

    def result(self, mutant: Mutant) -> Result | None:
        """Whether a test that executes the line of a mutant notices it; None if no function can be replaced."""
        tests = self.tests.of(mutant)
        pairs = list(self._replacements(mutant))
        if not tests or not pairs:
            return None

        def run() -> str | None:
            for function, code in pairs:
                function.__code__ = code
            return self._first_failing(tests)

        usual = sum(self.tests.seconds[name] for name in tests)
        return _in_child(run, min(5 + 5 * usual, MOST_SECONDS))

    def _replacements(self, mutant: Mutant) -> Iterator[tuple[FunctionType, CodeType]]:
        """The functions that have to run other code."""
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


def _try_all(left: Sequence[Mutant], known: Known, end: float, jobs: int) -> None:
    """Try the mutants: first those whose function can be replaced, in a child, so that this process imports nothing."""
    path = CACHE / "mutation_seconds.json"
    path.unlink(missing_ok=True)

    def replaced(collected: Collected) -> None:
        tests = collected.tests
        path.write_text(json.dumps(tests.seconds), encoding="utf-8")

        def one(mutant: Mutant) -> None:
            result = None if tests.is_imported(mutant) else collected.result(mutant)
            if result is not None:
                known.put(mutant, result)
                tests.killers[result.by] += 1

        _each(left, one, end, jobs)

    if _in_child(lambda: None if _run(Collected(replaced)) else IMPORT, None).said != SURVIVED:
        raise SystemExit("the tests fail without any change, or could not be collected")
    known.read()
    seconds = json.loads(path.read_text(encoding="utf-8"))
    tests = Tests(seconds=seconds, killers=known.killers())
    importlib.import_module(
        "hypothesis.strategies"
    )  # what every child needs, and no mutant changes
    assert not [name for name in sys.modules if name.startswith("zerograd")]
    afresh = Afresh(tests)
    rest = [mutant for mutant in left if known.get(mutant) is None]
    if rest and time.monotonic() < end and afresh.result(None).said != SURVIVED:
        raise SystemExit("the tests fail in the order of their speed, without any change")

    def one(mutant: Mutant) -> None:
        result = afresh.result(mutant)
        known.put(mutant, result)
        tests.killers[result.by] += 1

    _each(rest, one, end, jobs)
    known.read()


def _each(some: Sequence[Mutant], work: Callable[[Mutant], None], end: float, jobs: int) -> None:
    """Do the work for each mutant, until the time is over, in so many processes at once; the first prints how far it is."""
    children = []
    for job in range(jobs):
        pid = os.fork()
        if pid:
            children.append(pid)
            continue
        try:
            for number, mutant in enumerate(some[job::jobs], 1):
                if time.monotonic() > end:
                    break
                work(mutant)
                if number % 50 == 0 and job == 0:
                    print(f"{number * jobs} of {len(some)}", file=sys.__stdout__, flush=True)
            os._exit(0)
        except BaseException:  # noqa: BLE001, said and not raised into pytest
            traceback.print_exc(file=sys.__stderr__)
            os._exit(1)
    # A child that failed has tried fewer: those are not counted as tried.
    for pid in children:
        os.waitpid(pid, 0)


def _report(all_of_them: Sequence[Mutant], known: Known, result: Path | None) -> int:
    explained: dict[str, str] = json.loads(EXPLAINED.read_text(encoding="utf-8"))
    counts: dict[str, Counter[str]] = {name: Counter() for name in PACKAGES}
    open_ = []
    for mutant in all_of_them:
        said = known.get(mutant)
        if said is None:
            continue
        counted = counts[mutant.path.parent.name]
        counted["tried"] += 1
        counted[said.said] += 1
        if said.said == SURVIVED and name_of(mutant) in explained:
            counted["explained"] += 1
        elif said.said == SURVIVED:
            open_.append(mutant)
    for mutant in open_:
        print(f"survives: {name_of(mutant)}  (line {mutant.line})")
    rows = []
    for name, counted in counts.items():
        tried = counted["tried"]
        noticed = counted[KILLED] + counted[SLOW]
        rows += [
            Row(f"{name}: mutants that a test notices", noticed, of=tried, goal=GOAL * tried),
            Row(f"{name}: of them, by running too long", counted[SLOW], of=tried),
            Row(f"{name}: survivors that no test can notice", counted["explained"], of=tried),
        ]
    for row in rows:
        print(f"{row.name}: {row.value:g} of {row.of:g}")
    if result is not None:
        tried = sum(counted["tried"] for counted in counts.values())
        outcome.write(
            result,
            title="Mutation testing of core and rules",
            method=f"{tried} of all {len(all_of_them)} mutants of the modules of core and rules. Each is tried with the "
            "tests of these packages that need no torch: a comparison, logical operator, condition, number, text, "
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
