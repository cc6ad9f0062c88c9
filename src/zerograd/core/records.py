"""Dataclasses that are cheap to define, frozen records, records with some fields changed, named reasons.

Importing `dataclasses` takes a tenth of a one-file check, and so does what it does to each class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, NoReturn, TypeVar

T = TypeVar("T")


class Field(NamedTuple):
    """What a class says of one of its fields."""

    default: Any
    default_factory: Any
    compare: bool
    hash: bool | None
    name: str = ""
    type: str = ""
    kw_only: bool = False


class _Missing(Enum):
    MISSING = "no default"


MISSING = _Missing.MISSING

if TYPE_CHECKING:
    # Type checkers know what these do to a class; others import them from here.
    from dataclasses import dataclass as dataclass  # noqa: PLC0414
    from dataclasses import field as field  # noqa: PLC0414

    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: object) -> Any:
        """Python 3.10 has none. It is for type checkers, which take the subclasses for dataclasses."""
        return lambda kind: kind

    def field(
        *,
        default: object = MISSING,
        default_factory: object = MISSING,
        compare: bool = True,
        hash: bool | None = None,  # noqa: A002 (as in `dataclasses`)
    ) -> Any:
        """As `dataclasses.field`."""
        return Field(default, default_factory, compare, hash)

    def dataclass(
        kind: type[T] | None = None, *, frozen: bool = False, eq: bool = True, kw_only: bool = False
    ) -> Any:
        """As `dataclasses.dataclass`, but each method is compiled when it is first called.

        A frozen one is frozen for the type checker, and can be hashed; nothing is in the way of its constructor.
        This saves a quarter of the instructions of a one-file check (the file of `bench/check_speed.py`), and 3 %
        of the processor time of a large one (10 training repositories).
        """
        if kind is None:
            return lambda kind: dataclass(kind, frozen=frozen, eq=eq, kw_only=kw_only)
        _add_fields(kind, kw_only=kw_only)
        methods = {"__init__": _init, "__eq__": _equal, "__hash__": _hashed}
        own = {name for name, method in vars(kind).items() if method is not None}
        if not eq or not frozen:
            del methods["__hash__"]
        if not eq:
            del methods["__eq__"]
        for name in methods.keys() - own:
            setattr(kind, name, _later(kind, name, methods[name]))
        if eq and not frozen and "__hash__" not in own:
            kind.__hash__ = None
        if "__repr__" not in own:
            kind.__repr__ = _shown
        return kind


_FIELDS: dict[type, tuple[Field, ...]] = {}
_NAMES: dict[type, frozenset[str]] = {}
"""The fields and their names, by class."""


def fields(kind: type) -> tuple[Field, ...]:
    """The fields of a dataclass or a record, those of its bases first."""
    return next(_FIELDS[one] for one in kind.__mro__ if one in _FIELDS)


def _add_fields(kind: Any, *, kw_only: bool) -> None:
    """Collects the fields that a class and its bases annotate."""
    found = {one.name: one for base in kind.__mro__[:0:-1] for one in _FIELDS.get(base, ())}
    for name, annotation in kind.__annotations__.items():
        if not str(annotation).removeprefix("typing.").startswith("ClassVar"):
            given = vars(kind).get(name, MISSING)
            one = given if isinstance(given, Field) else Field(given, MISSING, True, None)
            found[name] = one._replace(name=name, type=annotation, kw_only=kw_only)
            if given is one:
                if one.default is MISSING:
                    delattr(kind, name)
                else:
                    setattr(kind, name, one.default)
    _FIELDS[kind] = tuple(found.values())
    _NAMES[kind] = frozenset(found)
    kind.__dataclass_fields__ = _StandardFields()


class _StandardFields:
    """The fields as `dataclasses` has them, made when somebody asks: so its functions accept the class."""

    def __get__(self, record: object, kind: Any) -> dict[str, Any]:
        import dataclasses

        made = []
        for one in fields(kind):
            options: Any = one._asdict()
            del options["name"], options["type"]
            given = {name: value for name, value in options.items() if value is not MISSING}
            made.append((one.name, one.type, dataclasses.field(**given)))
        standard: Any = dataclasses.make_dataclass(kind.__name__, made)
        kind.__dataclass_fields__ = standard.__dataclass_fields__
        return kind.__dataclass_fields__  # type: ignore[no-any-return]


def _later(kind: type, name: str, write: Callable[[type], Iterator[str]]) -> Callable[..., Any]:
    """A method that compiles the real one, and replaces itself by it."""

    def first(self: object, *values: object, **named: object) -> Any:
        names = {f"_{one.name}": _default(one) for one in fields(kind)}
        made: dict[str, Any] = {}
        exec("\n ".join(write(kind)), {**names, "MISSING": MISSING}, made)  # noqa: S102 (our own text)
        setattr(kind, name, made[name])
        return made[name](self, *values, **named)

    return first


def _default(one: Field) -> object:
    return one.default if one.default_factory is MISSING else one.default_factory


def _init(kind: type) -> Iterator[str]:
    own = sorted(fields(kind), key=lambda one: one.kw_only)
    given = []
    for at, one in enumerate(own):
        if one.kw_only and (at == 0 or not own[at - 1].kw_only):
            given.append("*")
        computed = one.default_factory is not MISSING
        usual = "MISSING" if computed else f"_{one.name}"
        given.append(one.name if _default(one) is MISSING else f"{one.name}={usual}")
    yield f"def __init__(self, {', '.join(given)}):"
    for one in own:
        if one.default_factory is not MISSING:
            yield f"if {one.name} is MISSING: {one.name} = _{one.name}()"
        yield f"self.{one.name} = {one.name}"
    if hasattr(kind, "__post_init__"):
        yield "self.__post_init__()"


def _equal(kind: type) -> Iterator[str]:
    names = [one.name for one in fields(kind) if one.compare]
    one, other = ("".join(f"{who}.{name}," for name in names) for who in ("self", "other"))
    yield "def __eq__(self, other):"
    yield f"return ({one}) == ({other}) if other.__class__ is self.__class__ else NotImplemented"


def _hashed(kind: type) -> Iterator[str]:
    own = fields(kind)
    names = [one.name for one in own if (one.compare if one.hash is None else one.hash)]
    yield "def __hash__(self):"
    yield f"return hash(({''.join(f'self.{name},' for name in names)}))"


def _shown(self: Any) -> str:
    shown = (f"{one.name}={getattr(self, one.name)!r}" for one in fields(type(self)))
    return f"{type(self).__qualname__}({', '.join(shown)})"


@dataclass_transform(frozen_default=True)
class Record:
    """The base of frozen dataclasses with few instances, such as events and findings.

    It has the methods that `dataclass` would generate for each class, at import: a fifth of the time of a
    one-file check. They are slower than generated ones, so it is not for what explorers make and compare.
    """

    _defaults: ClassVar[dict[str, Any]]
    _order: ClassVar[tuple[str, ...]]
    _positional: ClassVar[tuple[str, ...]]

    def __init_subclass__(cls, *, kw_only: bool = False) -> None:
        _add_fields(cls, kw_only=kw_only)
        own = fields(cls)
        cls._defaults = {one.name: one.default for one in own if one.default is not MISSING}
        cls._positional = tuple(one.name for one in own if not one.kw_only)
        cls._order = tuple(one.name for one in own)

    if not TYPE_CHECKING:

        def __init__(self, *values: object, **named: object) -> None:
            held = self.__dict__
            held.update(self._defaults)
            held.update(zip(self._positional, values, strict=False), **named)
            if held.keys() != _NAMES[type(self)] or len(values) > len(self._positional):
                raise TypeError(f"wrong fields for {type(self).__name__}: {values}, {named}")

    def __setattr__(self, name: str, value: object) -> None:
        _refuse(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        _refuse(f"cannot delete field {name!r}")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        held = self.__dict__  # in the order in which the fields were given
        return hash((type(self), *[held[one] for one in self._order]))

    def __repr__(self) -> str:
        held = self.__dict__
        shown = (
            f"{one}={held[one]!r}"
            for one in self._order
            if held[one] != self._defaults.get(one, held)
        )
        return f"{type(self).__name__}({', '.join(shown)})"


def _refuse(message: str) -> NoReturn:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(message)


class NamedReason(Enum):
    """The base of closed lists of reasons. The value of a member is its name in JSON; the reason is for people."""

    __hash__ = object.__hash__  # Enum has one in Python, which is slow

    reason: str

    def __new__(cls, name: str, reason: str) -> NamedReason:  # noqa: PYI034, 3.10 has no Self
        """Keep the reason beside the name."""
        made = object.__new__(cls)
        made._value_, made.reason = name, reason
        return made


def replace(record: T, **changes: object) -> T:
    """As `dataclasses.replace`, but it calls no constructor, and takes a tenth of the time."""
    kind = type(record)
    new: T = object.__new__(kind)
    held = new.__dict__
    held.update(record.__dict__, **changes)
    names = _NAMES[kind]
    if len(held) != len(names):
        if unknown := changes.keys() - names:
            raise TypeError(f"{kind.__name__} has no {', '.join(sorted(unknown))}")
        # Cached properties are those of the old fields.
        for name in held.keys() - names:
            del held[name]
    return new
