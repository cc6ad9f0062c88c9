"""Frozen records with some fields changed: what readers and explorers do all day."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

Record = TypeVar("Record")

_NAMES: dict[type, frozenset[str]] = {}
"""The names of the fields, by type of record."""


def replace(record: Record, **changes: object) -> Record:
    """As `dataclasses.replace`, but it calls no constructor, and takes a tenth of the time."""
    kind = type(record)
    new: Record = object.__new__(kind)
    held = new.__dict__
    held.update(record.__dict__, **changes)
    names = _NAMES.get(kind) or _names(kind)
    if len(held) != len(names):
        if unknown := changes.keys() - names:
            raise TypeError(f"{kind.__name__} has no {', '.join(sorted(unknown))}")
        # What the record has computed of its fields is not true of other fields.
        for name in held.keys() - names:
            del held[name]
    return new


def _names(kind: Any) -> frozenset[str]:
    _NAMES[kind] = frozenset([field.name for field in fields(kind)])
    return _NAMES[kind]
