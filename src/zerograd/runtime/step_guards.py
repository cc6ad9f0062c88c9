"""Reads in the source of a running program which tests decide about a call: `if (i + 1) % N == 0:`.

A run shows that a step is left out, not why. Where the source can be read, it shows whether a counter
decides, or something that was computed: a loss, a norm, an exception. Nothing of the program is called.

`static.accumulation` reads guards, too, but in a flow, which needs the interpreter: 90 modules, 6 MB and 0.2 s of
processor time in the program that is watched. Here the syntax around one call is enough.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import FrameType
from typing import Any, NamedTuple

from zerograd.core.events import Decided, Site
from zerograd.runtime.call_sites import CallSites
from zerograd.runtime.program_source import ProgramSource

MOST_FRAMES = 8
"""How many callers are searched for the loop that a call is in."""
MOST_CALLS = 1024
DEPTH = 3
"""How many variables in a row are followed to the test whose result they hold."""

_JUMPS = (ast.Continue, ast.Break, ast.Return)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COUNTING = ("enumerate", "range", "count", "trange")
_ARITHMETIC = ("len", "int", "min", "max", "abs", "bool", "divmod")


class _Read(NamedTuple):
    """What the source says about one call, apart from the values of variables."""

    guard: Site | None
    lengths: tuple[ast.expr, ...]
    """What the guard calls N."""
    chosen: bool
    """A test of something that is not a counter decides, too."""
    handles: bool
    """The call is where an exception is handled."""
    caught: bool
    """An exception may keep the program from the call, and is handled."""
    in_loop: bool


class StepGuards:
    """What the files that were read so far say about calls."""

    def __init__(self, places: CallSites, source: ProgramSource) -> None:
        self._places = places
        self._source = source
        self._calls: dict[tuple[int, int], _Read | None] = {}
        """By the identity of a code object, which `CallSites` keeps alive, and an instruction."""

    def of(self, frame: FrameType | None) -> Decided | None:
        """What decides about the call that runs in a frame; None if its source cannot be read."""
        found: Decided | None = None
        for read, where in self._up(frame):
            length = max((_number(one, where) for one in read.lengths), default=0)
            inner = found or Decided()
            chosen = inner.chosen or read.chosen or read.caught or read.handles
            found = (
                Decided(read.guard, length, chosen)
                if inner.guard is None
                else Decided(inner.guard, inner.length, chosen)
            )
        return found

    def chooses(self, frame: FrameType | None) -> bool:
        """Whether a call is made because of what was computed: in a test of it, or after an error."""
        reads = [read for read, _ in self._up(frame)]
        if any(read.guard is not None for read in reads):
            return False
        return any(read.chosen or read.handles for read in reads)

    def _up(self, frame: FrameType | None) -> Iterator[tuple[_Read, FrameType]]:
        """What is around a call, and around its callers up to the loop that it is in."""
        for _ in range(MOST_FRAMES):
            site = self._places.site(frame)
            frame = self._places.outside_torch(frame)
            if frame is None or site.via or not self._places.is_users(frame):
                return
            key = (id(frame.f_code), frame.f_lasti)
            if key not in self._calls:
                if len(self._calls) >= MOST_CALLS:
                    self._calls.clear()
                path = self._source.around(frame.f_code.co_filename, site)
                self._calls[key] = None if path is None else _read(path, site)
            read = self._calls[key]
            if read is None:
                return
            yield read, frame
            if read.in_loop:
                return
            frame = frame.f_back


class _Around(NamedTuple):
    """What is around a line, in its own function."""

    tests: list[ast.expr]
    """The tests that decide about it in one iteration of its loop, also those of `if …: continue`."""
    handles: bool
    caught: bool
    in_loop: bool
    scope: ast.AST
    """The function, or the module."""


def _read(path: list[ast.AST], site: Site) -> _Read:
    """What the source of a file says about a call; `path` leads to it."""
    around = _around(path[_innermost(path) :], site.line)
    scope = _Scope(around.scope)
    guard, chosen = None, False
    lengths: list[ast.expr] = []
    for test in around.tests:
        for part in _operands(test):
            counted = scope.counted(part)
            if counted is None:
                chosen |= not scope.is_the_same(part, throughout_loop=around.in_loop)
            elif guard is None or not lengths:
                guard = Site(site.path, test.lineno, test.col_offset + 1)
                lengths = counted
    return _Read(guard, tuple(lengths), chosen, around.handles, around.caught, around.in_loop)


def _innermost(path: list[ast.AST]) -> int:
    return max((n for n, one in enumerate(path) if isinstance(one, _FUNCTIONS)), default=0)


def _around(path: list[ast.AST], line: int) -> _Around:
    """The tests between a call and its loop, or its function if it is in no loop."""
    tests: list[ast.expr] = []
    handles = caught = False
    for outer, inner in zip(path[-2::-1], path[:0:-1], strict=True):
        for block in ("body", "orelse", "finalbody"):
            statements = getattr(outer, block, None)
            if isinstance(statements, list) and inner in statements:
                tests += _jumps_before(statements, line)
        if isinstance(outer, _LOOPS):
            return _Around(tests, handles, caught, True, path[0])
        if isinstance(outer, (ast.If, ast.IfExp)) and inner is not outer.test:
            tests.append(outer.test)
        if isinstance(outer, ast.BoolOp):
            tests += outer.values[: outer.values.index(inner)]  # type: ignore[arg-type]
        handles |= isinstance(outer, ast.ExceptHandler)
        caught |= isinstance(outer, ast.Try) and inner in outer.body and bool(outer.handlers)
    return _Around(tests, handles, caught, False, path[0])


def _jumps_before(statements: list[Any], line: int) -> Iterator[ast.expr]:
    """The tests of statements before a line that may leave out the rest."""
    for statement in statements:
        if statement.end_lineno >= line:
            return
        for part in ast.walk(statement):
            if isinstance(part, ast.If):
                last = [branch[-1] for branch in (part.body, part.orelse) if branch]
                if any(isinstance(one, _JUMPS) for one in last):
                    yield part.test


def _operands(test: ast.expr) -> Iterator[ast.expr]:
    if isinstance(test, ast.BoolOp):
        for value in test.values:
            yield from _operands(value)
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _operands(test.operand)
    else:
        yield test


class _Scope:
    """What the variables of a function are set to."""

    def __init__(self, scope: ast.AST) -> None:
        self._set: dict[str, list[ast.expr | None]] = {}
        """By variable: all values; None where a value is not an expression."""
        self._indexes: set[str] = set()
        """Variables that count iterations."""
        self._stepped: set[str] = set()
        """Variables that are counted up or down."""
        self._arguments = {one.arg for one in ast.walk(scope) if isinstance(one, ast.arg)}
        for part in ast.walk(scope):
            self._note(part)

    def _note(self, part: ast.AST) -> None:
        if isinstance(part, (ast.For, ast.AsyncFor)):
            target, called = part.target, _called(part.iter)
            if called in _COUNTING:
                first = target.elts[0] if isinstance(target, ast.Tuple) else target
                self._indexes.add(_dotted(first))
            self._assign(target, None)
        elif isinstance(part, ast.Assign):
            for target in part.targets:
                self._assign(target, part.value)
        elif isinstance(part, (ast.AnnAssign, ast.NamedExpr)):
            self._assign(part.target, part.value)
        elif isinstance(part, ast.AugAssign):
            known = isinstance(part.op, (ast.Add, ast.Sub)) and isinstance(part.value, ast.Constant)
            if known:
                self._stepped.add(_dotted(part.target))
            else:
                self._assign(part.target, None)
        elif isinstance(part, ast.withitem) and part.optional_vars is not None:
            self._assign(part.optional_vars, None)

    def _assign(self, target: ast.expr, value: ast.expr | None) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            values: list[Any] = [None] * len(target.elts)
            if isinstance(value, ast.Tuple) and len(value.elts) == len(values):
                values = value.elts
            for one, its in zip(target.elts, values, strict=True):
                self._assign(one, its)
        elif _dotted(target) not in self._indexes:
            self._set.setdefault(_dotted(target), []).append(value)

    def counted(self, test: ast.expr, depth: int = 0) -> list[ast.expr] | None:
        """What a test compares a counter with as its N; None if the test reads no counter."""
        name = _dotted(test)
        if name and depth < DEPTH and name not in self._stepped | self._indexes:
            found = [
                self.counted(part, depth + 1)
                for value in self._set.get(name, ())
                if value is not None and not isinstance(value, ast.Constant)
                for part in _operands(value)
            ]
            return next((one for one in found if one is not None), None)
        rests = [
            part.right
            for part in ast.walk(test)
            if isinstance(part, ast.BinOp)
            and isinstance(part.op, ast.Mod)
            and self._computed_from_counters(part.left)
        ]
        if rests:
            return rests
        if isinstance(test, ast.Compare) and len(test.comparators) == 1:
            sides = (test.left, test.comparators[0])
            if self._is_set_back(sides[0]) and isinstance(test.ops[0], (ast.Eq, ast.GtE)):
                return [sides[1]]
            for side in sides:
                counts = any(self._counts(_dotted(part)) for part in ast.walk(side))
                if counts and self._computed_from_counters(side):
                    return []
        return None

    def is_the_same(self, test: ast.expr, *, throughout_loop: bool) -> bool:
        """Whether a test has the same outcome as long as the loop runs: it reads only names that nothing sets."""
        parts = list(ast.walk(test))
        if any(isinstance(part, (ast.Call, ast.Attribute, ast.Subscript)) for part in parts):
            return False
        names = {part.id for part in parts if isinstance(part, ast.Name)}
        # The arguments of a function that is called in the loop are others in each iteration.
        return names.isdisjoint(self._set if throughout_loop else {*self._set, *self._arguments})

    def _computed_from_counters(self, expr: ast.expr, depth: int = 0) -> bool:
        """Whether nothing in an expression is computed from data."""
        if isinstance(expr, ast.Call):
            return _called(expr) in _ARITHMETIC and (
                _called(expr) == "len" or self._all_computed_from_counters(expr.args, depth)
            )
        name = _dotted(expr)
        if name:
            return self._is_plain(name, depth)
        if isinstance(expr, (ast.Constant, ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp)):
            inner = [one for one in ast.iter_child_nodes(expr) if isinstance(one, ast.expr)]
            return self._all_computed_from_counters(inner, depth)
        return False

    def _all_computed_from_counters(self, exprs: list[ast.expr], depth: int) -> bool:
        return all(self._computed_from_counters(one, depth) for one in exprs)

    def _is_plain(self, name: str, depth: int) -> bool:
        """Whether a variable counts, or is the same throughout, or is computed from such."""
        if self._counts(name):
            return True
        values = self._set.get(name, [])
        if "." in name and not values:
            # An attribute that is set elsewhere: of an object that is the same throughout.
            owner = self._set.get(name.partition(".")[0], [])
            return len(owner) <= 1 and None not in owner
        return depth < DEPTH and all(
            value is not None and self._computed_from_counters(value, depth + 1) for value in values
        )

    def _counts(self, name: str) -> bool:
        return bool(name) and (name in self._indexes or name in self._stepped)

    def _is_set_back(self, expr: ast.expr) -> bool:
        name = _dotted(expr)
        values = self._set.get(name, ())
        return name in self._stepped and any(isinstance(one, ast.Constant) for one in values)


def _called(expr: ast.expr) -> str:
    """The name of the function that an expression calls, without its module."""
    if not isinstance(expr, ast.Call):
        return ""
    called = _dotted(expr.func).rpartition(".")[2]
    if called not in _COUNTING and expr.args and called in ("tqdm", "track", "iter"):
        return _called(expr.args[0])
    return called


def _dotted(expr: ast.AST) -> str:
    """`self.count` as text; nothing for what is not a chain of names."""
    if isinstance(expr, ast.Name):
        return expr.id
    if isinstance(expr, ast.Attribute):
        base = _dotted(expr.value)
        return f"{base}.{expr.attr}" if base else ""
    return ""


def _number(expr: ast.expr, frame: FrameType) -> int:
    """The value of an N: a number, or a variable or attribute that holds one; 0 if not known."""
    value: Any = None
    if isinstance(expr, ast.Constant):
        value = expr.value
    else:
        first, *rest = _dotted(expr).split(".")
        value = frame.f_locals.get(first, frame.f_globals.get(first))
        for name in rest:
            # Only the attributes that an object holds itself: no property of the program is called.
            value = getattr(value, "__dict__", {}).get(name)
    return value if type(value) is int and value > 0 else 0
