"""The tests of branches as small expressions, evaluated with what a path through the code knows.

An expression is frozen and hashable. What cannot be evaluated is UNKNOWN: nothing is guessed.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from itertools import combinations
from typing import NamedTuple

from zerograd.core.late_pattern import pattern
from zerograd.core.records import dataclass, replace

Value = bool | int | float | str | None


class _Unknown:
    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN = _Unknown()


@dataclass(frozen=True)
class Const:
    """A literal."""

    value: Value


class Variable:
    """What a test can read and a path can know the value of. No two variables have the same `str`.

    Each kind is a named tuple that equals no tuple of another kind: paths hash and compare variables all the
    time. It saves a quarter of the instructions of a file that explores much.
    """

    __slots__ = ()


class _Name(NamedTuple):
    text: str
    call: int = 0
    """The call of a function in which it is; 0 is none."""


class Name(_Name, Variable):
    """A variable or an attribute of the code that is read."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"{self.call}#{self.text}" if self.call else self.text


class _LastIteration(NamedTuple):
    loop: int


class LastIteration(_LastIteration, Variable):
    """Whether a loop is in its last iteration."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"the last iteration of loop {self.loop}"


class _WindowLength(NamedTuple):
    literal: int | None = None
    text: str = "the window's length"


class WindowLength(_WindowLength, Variable):
    """The number of micro-batches in a window: a literal, or what the code calls it."""

    __slots__ = ()

    def __str__(self) -> str:
        return self.text if self.literal is None else f"length {self.literal}"


WINDOW_LENGTH = WindowLength()
"""The length that the code hands to a library, where the code itself does not count."""


class _Count(NamedTuple):
    accelerator: str


class Count(_Count, Variable):
    """How many micro-batches an accelerator has counted since its last step."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"the count of {self.accelerator}"


class _Synchronises(NamedTuple):
    accelerator: str
    attribute: str = "sync_gradients"


class Synchronises(_Synchronises, Variable):
    """Whether an accelerator lets its optimizers step now."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"{self.accelerator}.{self.attribute}"


@dataclass(frozen=True)
class Op:
    """An operation; `and`, `or`, `not`, `is` and the arithmetic and comparing ones of Python.

    `if` is an object if its operand is true, else None.
    """

    op: str
    args: tuple[Expr, ...]
    text: str = ""

    @cached_property
    def reads(self) -> frozenset[Variable]:
        """The variables it depends on."""
        return frozenset().union(*map(reads, self.args))

    @cached_property
    def fact(self) -> Fact:
        """Its truth, as something a path can know."""
        if self.op in _LESS:
            args = self.args[::-1] if _LESS[self.op] else self.args
            return Fact(f"(< {' '.join(map(_canonical, args))})", self.reads)
        return Fact(_canonical(self), self.reads)


@dataclass(frozen=True)
class Opaque:
    """An expression that is not evaluated, such as a call: known by its text and by what it reads."""

    text: str
    reads: frozenset[Variable] = frozenset()
    stable: bool = True
    """Gives the same answer until something it reads is assigned."""
    call: int = 0
    """The call in which it is evaluated: in another one, the same text is another expression."""
    asks_for_window: bool = False
    """It calls a function of the project that asks for the length of an accumulation window."""

    @cached_property
    def fact(self) -> Fact:
        """Its truth, as something a path can know."""
        return Fact(_canonical(self), self.reads)


Expr = Const | Variable | Op | Opaque


class Fact(NamedTuple):
    """The truth of an expression, whatever its value is: a path knows it once it has tested it."""

    text: str
    reads: frozenset[Variable]


Known = frozenset[tuple[Variable | Fact, Value]]
"""What a path knows: values of variables and truths of expressions."""

NOTHING: Known = frozenset()

MOST_OPERANDS = 5
"""A test with more operands is not compared with its shorter forms."""

_BINARY: dict[str, Callable[[object, object], object]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "/": operator.truediv,
    "%": operator.mod,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,  # type: ignore[dict-item]
    "<=": operator.le,  # type: ignore[dict-item]
    ">": operator.gt,  # type: ignore[dict-item]
    ">=": operator.ge,  # type: ignore[dict-item]
}


def reads(expr: Expr) -> frozenset[Variable]:
    """The variables an expression depends on."""
    if isinstance(expr, (Op, Opaque)):
        return expr.reads
    return frozenset() if isinstance(expr, Const) else frozenset({expr})


def parts(expr: Expr) -> Iterator[Expr]:
    """The expression and all its parts."""
    yield expr
    if isinstance(expr, Op):
        for arg in expr.args:
            yield from parts(arg)


def remainders(expr: Expr) -> list[Op]:
    """The parts of an expression that are `a % b`."""
    return [part for part in parts(expr) if isinstance(part, Op) and part.op == "%"]


def stable(expr: Expr) -> bool:
    """Whether evaluating twice gives the same result while nothing that it reads is assigned."""
    return all(part.stable for part in parts(expr) if isinstance(part, Opaque))


def show(expr: Expr) -> str:
    """The expression as source text."""
    if isinstance(expr, Const):
        return repr(expr.value)
    if isinstance(expr, Name):
        return expr.text
    if isinstance(expr, LastIteration):
        return "the last iteration"
    if isinstance(expr, Variable):
        return str(expr)
    if isinstance(expr, Opaque) or expr.text:
        return expr.text
    if len(expr.args) == 1:
        return f"{expr.op} {show(expr.args[0])}"
    return f" {expr.op} ".join(show(arg) for arg in expr.args)


def scope(expr: Expr) -> tuple[int, ...]:
    """The calls and loops that distinguish expressions for which `show` gives the same text."""
    if isinstance(expr, Opaque):
        return (expr.call,) if expr.call else ()
    if isinstance(expr, LastIteration):
        return (expr.loop,)
    if isinstance(expr, Op) and not expr.text:
        return tuple(number for arg in expr.args for number in scope(arg))
    return ()


def evaluate(expr: Expr, known: Mapping[Variable | Fact, Value]) -> Value | _Unknown:
    """The value, computed from what is known."""
    if isinstance(expr, Const):
        return expr.value
    if isinstance(expr, Variable):
        return known.get(expr, UNKNOWN)
    if isinstance(expr, Opaque):
        return known.get(expr.fact, UNKNOWN)
    if expr.op in ("and", "or"):
        return _junction(expr, known)
    if expr.op == "not":
        truth = truth_of(expr.args[0], known)
        return UNKNOWN if truth is None else not truth
    if expr.op == "if":
        truth = truth_of(expr.args[0], known)
        return UNKNOWN if truth is None else ("an object" if truth else None)
    values = [_operand(arg, known) for arg in expr.args]
    if any(value is UNKNOWN for value in values):
        if expr.op == "*" and 0 in values:
            return 0
        if expr.op in ("==", "is") and {truth_of(arg, known) for arg in expr.args} == {True, False}:
            return False  # of two equal values, both are true or none is
        return _remembered(expr, known)
    if expr.op == "neg":
        return -values[0] if isinstance(values[0], (int, float)) else UNKNOWN
    if expr.op == "is":
        return values[0] is values[1]
    try:
        result = _BINARY[expr.op](values[0], values[1])
    except (KeyError, TypeError, ZeroDivisionError, OverflowError, ValueError):
        return UNKNOWN
    return result if isinstance(result, (bool, int, float, str)) else UNKNOWN


def truth_of(expr: Expr, known: Mapping[Variable | Fact, Value]) -> bool | None:
    """True, False, or None where it is not known."""
    value = evaluate(expr, known)
    if value is not UNKNOWN:
        return bool(value)
    if isinstance(expr, Op) and expr.op in ("and", "or", "not"):
        return None
    fact = _remembered(expr, known)
    return None if fact is UNKNOWN else bool(fact)


def residual(expr: Expr, known: Mapping[Variable | Fact, Value]) -> Expr:
    """A test without the parts whose truth is known."""
    if isinstance(expr, Op) and expr.op in ("and", "or"):
        open_ = tuple(residual(arg, known) for arg in expr.args if truth_of(arg, known) is None)
        if len(open_) == 1:
            return open_[0]
        return expr if len(open_) == len(expr.args) else Op(expr.op, open_)
    if isinstance(expr, Op) and expr.op == "not":
        inner = residual(expr.args[0], known)
        return expr if inner is expr.args[0] else Op("not", (inner,))
    return expr


def substituted(expr: Expr, tests: Mapping[Variable, Expr]) -> Expr:
    """A test with other tests in the place of the variables that hold their results."""
    if isinstance(expr, Variable):
        held = tests.get(expr, expr)
        return held.args[0] if isinstance(held, Op) and held.op == "if" else held
    if isinstance(expr, Op) and expr.op == "is" and expr.args[1] == Const(None):
        asked = expr.args[0]
        held = tests.get(asked, asked) if isinstance(asked, Variable) else asked
        if isinstance(held, Op) and held.op == "if":
            return Op("not", held.args, expr.text)
    if (
        isinstance(expr, Op)
        and expr.op in ("and", "or", "not")
        and not tests.keys().isdisjoint(expr.reads)
    ):
        return replace(expr, args=tuple(substituted(arg, tests) for arg in expr.args))
    return expr


def leaning(expr: Expr, known: Mapping[Variable | Fact, Value]) -> bool | None:
    """The truth of a test if its unknown parts are ignored; None if all are unknown."""
    if isinstance(expr, Op) and expr.op == "not":
        inner = leaning(expr.args[0], known)
        return None if inner is None else not inner
    if isinstance(expr, Op) and expr.op in ("and", "or"):
        truths = [truth for arg in expr.args if (truth := leaning(arg, known)) is not None]
        if not truths:
            return None
        return all(truths) if expr.op == "and" else any(truths)
    return truth_of(expr, known)


def is_open(expr: Expr, known: Mapping[Variable | Fact, Value]) -> bool:
    """Whether a test is an `or` with an operand whose truth is not known."""
    if not isinstance(expr, Op) or expr.op != "or":
        return False
    return any(truth_of(arg, known) is None for arg in expr.args)


COMPUTED = pattern(r"loss|norm|scale|nan|inf|finite|overflow", re.IGNORECASE)
"""A test with such a name in it goes by what was computed, not by a count."""


def healthy(expr: Expr) -> bool | None:
    """The outcome of a test for inf or nan in a run without any; None for other tests."""
    if isinstance(expr, Op) and expr.op == "not":
        inner = healthy(expr.args[0])
        return None if inner is None else not inner
    if isinstance(expr, Op) and expr.op in ("and", "or"):
        outcomes = {healthy(arg) for arg in expr.args}
        return outcomes.pop() if len(outcomes) == 1 else None
    if isinstance(expr, Name):
        return _healthy_flag(expr.text.rpartition(".")[2])
    if isinstance(expr, Opaque) and expr.text.endswith(")"):
        name = expr.text.partition("(")[0].rpartition(".")[2]
        if name in ("isnan", "isinf"):
            return False
        if name == "isfinite":
            return True
        if name in ("any", "all", "item"):
            found = [one for one in ("isnan", "isinf", "isfinite") if one in expr.text]
            return found == ["isfinite"] if found else None
    return None


_SAYS = {
    "nan": False,
    "nans": False,
    "inf": False,
    "infs": False,
    "overflow": False,
    "finite": True,
}
_FILLS = frozenset(
    {"is", "has", "had", "any", "all", "found", "got", "the", "a", "in", "of", "loss", "losses", "grad",
     "grads", "gradient", "gradients", "norm", "flag", "detected", "step", "batch", "or", "and"}
)  # fmt: skip


def _healthy_flag(name: str) -> bool | None:
    """What a flag is in a healthy run, if its name says nothing else: `found_inf`, `grads_are_finite`."""
    parts = [part.lower() for part in re.findall(r"[a-z]+|[A-Z][a-z]*", name)]
    said = {_SAYS[part] for part in parts if part in _SAYS}
    rest = set(parts) - _SAYS.keys()
    return said.pop() if len(said) == 1 and rest <= _FILLS else None


def facts(expr: Expr, truth: bool) -> list[tuple[Variable | Fact, Value]]:
    """What follows from the outcome of a test: facts, and which text a variable holds that equals one."""
    if isinstance(expr, Op) and expr.op == "not":
        return facts(expr.args[0], not truth)
    if isinstance(expr, Op) and expr.op in ("and", "or"):
        if (expr.op == "and") is not truth and len(expr.args) > 1:
            return [(fact_of(expr), truth)] if stable(expr) else []
        return [fact for arg in expr.args for fact in facts(arg, truth)]
    if isinstance(expr, Const) or not stable(expr):
        return []
    found: list[tuple[Variable | Fact, Value]] = [(fact_of(expr), truth is not _is_opposite(expr))]
    if truth and isinstance(expr, Op) and expr.op == "==":
        held, text = expr.args
        if isinstance(held, Variable) and isinstance(text, Const) and isinstance(text.value, str):
            found.append((held, text.value))
    return found


def fact_of(expr: Expr) -> Fact:
    """The fact about an expression; one fact about `a < b`, `b > a` and the opposites of both."""
    if isinstance(expr, (Op, Opaque)):
        return expr.fact
    return Fact(_canonical(expr), reads(expr))


_LESS = {"<": False, ">=": False, ">": True, "<=": True}
"""By comparison: whether its operands have to be swapped to say it, or its opposite, with `<`."""


def _is_opposite(expr: Expr) -> bool:
    """Whether an expression is true where its fact is false."""
    return isinstance(expr, Op) and expr.op in (">=", "<=")


def _remembered(expr: Expr, known: Mapping[Variable | Fact, Value]) -> Value | _Unknown:
    """What is known of an expression whose operands are not known."""
    value = known.get(fact_of(expr), UNKNOWN)
    return not value if value is not UNKNOWN and _is_opposite(expr) else value


def _canonical(expr: Expr) -> str:
    """A text that is the same for the same operations on the same variables, however it is written."""
    if isinstance(expr, Const):
        return repr(expr.value)
    if isinstance(expr, Opaque):
        return f"{expr.call}#{expr.text}" if expr.call else expr.text
    if isinstance(expr, Variable):
        return str(expr)
    return f"({expr.op} {' '.join(map(_canonical, expr.args))})"


def _operand(expr: Expr, known: Mapping[Variable | Fact, Value]) -> Value | _Unknown:
    """The value to compute with: that an expression is true does not say which number it is."""
    value = evaluate(expr, known)
    if isinstance(value, bool) and not (isinstance(expr, (Const, Variable)) or is_truth(expr)):
        return UNKNOWN
    return value


def is_truth(expr: Expr) -> bool:
    """Whether an expression can be nothing but True or False."""
    if isinstance(expr, Op):
        return expr.op in _TRUTHS or (expr.op in ("and", "or") and all(map(is_truth, expr.args)))
    if isinstance(expr, Const):
        return isinstance(expr.value, bool)
    return isinstance(expr, (LastIteration, Synchronises))


_TRUTHS = ("not", "is", "==", "!=", "<", "<=", ">", ">=")


def _junction(expr: Op, known: Mapping[Variable | Fact, Value]) -> Value | _Unknown:
    """The operand that decides, as in Python; its truth, if only that is known."""
    decisive = expr.op == "or"
    unknown = False
    for arg in expr.args:
        truth = truth_of(arg, known)
        if truth is decisive:
            value = UNKNOWN if unknown else evaluate(arg, known)
            return decisive if value is UNKNOWN else value
        unknown = unknown or truth is None
    if not unknown:
        value = evaluate(expr.args[-1], known)
        return not decisive if value is UNKNOWN else value
    fact = known.get(fact_of(expr))
    if fact is None and any(known.get(part.fact) is decisive for part in shorter(expr)):
        return decisive  # after a test of `a and b` has failed, `a and b and c` does, too
    return UNKNOWN if fact is None else fact


def shorter(expr: Op) -> Iterator[Op]:
    """The same operation on some of the operands of a short one."""
    if len(expr.args) <= MOST_OPERANDS:
        for length in range(2, len(expr.args)):
            for args in combinations(expr.args, length):
                yield Op(expr.op, args)
