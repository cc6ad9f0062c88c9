"""Frozen records, records with some fields changed, and objects that are composed of parts."""

from __future__ import annotations

from dataclasses import MISSING, FrozenInstanceError, dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: object) -> Any:
        """Python 3.10 has none. It is for type checkers, which take the subclasses for dataclasses."""
        return lambda kind: kind


T = TypeVar("T")

_NAMES: dict[type, frozenset[str]] = {}
"""The names of the fields, by type of record."""


@dataclass_transform(frozen_default=True)
class Record:
    """The base of frozen dataclasses of which a program makes few, such as events and findings.

    It has the methods that `dataclass` would generate for each class, at import: a fifth of the time of a
    one-file check. They are slower than generated ones, so it is not for what explorers make and compare.
    """

    _defaults: ClassVar[dict[str, Any]]
    _order: ClassVar[tuple[str, ...]]
    _positional: ClassVar[tuple[str, ...]]

    def __init_subclass__(cls, *, kw_only: bool = False) -> None:
        dataclass(init=False, repr=False, eq=False, kw_only=kw_only)(cls)
        own = fields(cls)  # type: ignore[arg-type]
        cls._defaults = {one.name: one.default for one in own if one.default is not MISSING}
        cls._positional = tuple(one.name for one in own if not one.kw_only)
        cls._order = tuple(one.name for one in own)
        _NAMES[cls] = frozenset(cls._order)

    if not TYPE_CHECKING:

        def __init__(self, *values: object, **named: object) -> None:
            held = self.__dict__
            held.update(self._defaults)
            held.update(zip(self._positional, values, strict=False), **named)
            if held.keys() != _NAMES[type(self)] or len(values) > len(self._positional):
                raise TypeError(f"wrong fields for {type(self).__name__}: {values}, {named}")

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

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


@dataclass_transform()
class Composed:
    """The base of an object that is given its parts: those that its class annotates, in order.

    A dataclass would do the same, but to generate its methods takes 0.25 ms at import.
    """

    if not TYPE_CHECKING:

        def __init__(self, *parts: object) -> None:
            self.__dict__.update(zip(type(self).__annotations__, parts, strict=True))


def replace(record: T, **changes: object) -> T:
    """As `dataclasses.replace`, but it calls no constructor, and takes a tenth of the time."""
    kind = type(record)
    new: T = object.__new__(kind)
    held = new.__dict__
    held.update(record.__dict__, **changes)
    names = _NAMES.get(kind) or _names(kind)
    if len(held) != len(names):
        if unknown := changes.keys() - names:
            raise TypeError(f"{kind.__name__} has no {', '.join(sorted(unknown))}")
        # Cached properties are those of the old fields.
        for name in held.keys() - names:
            del held[name]
    return new


def _names(kind: Any) -> frozenset[str]:
    _NAMES[kind] = frozenset([field.name for field in fields(kind)])
    return _NAMES[kind]
