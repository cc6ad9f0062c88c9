"""A memory of what was used lately: a process may read a hundred thousand files."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

EACH = 2_000
"""The least weight of a value that was made from a file: even a short file becomes many objects."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """Holds values up to a total weight, and forgets those first that were not used for the longest time."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held = 0
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()

    def get(self, key: K) -> V | None:
        """The value of a key, which now counts as used."""
        known = self._values.get(key)
        if known is None:
            return None
        self._values.move_to_end(key)
        return known[0]

    def put(self, key: K, value: V, weight: int = 1) -> None:
        """Remember a value. The latest one is kept, whatever its weight."""
        self._forget(key)
        self._values[key] = (value, weight)
        self._held += weight
        while self._held > self._most and len(self._values) > 1:
            self._forget(next(iter(self._values)))

    def drop(self, unwanted: Callable[[K], bool]) -> None:
        """Forget the values of these keys."""
        for key in [key for key in self._values if unwanted(key)]:
            self._forget(key)
        if not self._values:
            self._held = 0  # a time limit may have ended a check between two lines of this class

    def _forget(self, key: K) -> None:
        known = self._values.pop(key, None)
        if known is not None:
            self._held -= known[1]
