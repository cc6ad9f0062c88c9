"""Frozen records with some fields changed: what readers and explorers do all day."""

from __future__ import annotations

from typing import TypeVar

Record = TypeVar("Record")


def replace(record: Record, **changes: object) -> Record:
    """As `dataclasses.replace`, for records that only hold their fields, in a tenth of the time."""
    new: Record = object.__new__(type(record))
    new.__dict__.update(record.__dict__, **changes)
    return new
