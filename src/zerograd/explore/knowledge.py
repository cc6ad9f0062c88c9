"""What paths know, each as one integer: a bit for every fact or value that some path has known.

An exploration forgets, adds and compares what is known at each part of a flow, for each of its paths. With sets
of facts in the place of bits, exploring took twice as long (diffusers, 100 training scripts: 6.9 s, 3.4 s with bits).
"""

from __future__ import annotations

from collections.abc import Iterable

from zerograd.explore.logic import Fact, Value, Variable

Key = Variable | Fact
Keys = frozenset[Key]


class Knowledge:
    """Gives each fact and each value of a variable a bit."""

    def __init__(self) -> None:
        self._bits: dict[tuple[Key, type, Value], int] = {}
        self._items: list[tuple[Key, Value]] = []
        self._of_keys: dict[Keys, int] = {}
        self._about: dict[Variable, int] = {}

    def bit(self, key: Key, value: Value) -> int:
        """The bit for what a path knows of a variable or a fact."""
        item = (key, value.__class__, value)  # True equals 1, and is another value
        bit = self._bits.get(item)
        if bit is None:
            bit = self._bits[item] = 1 << len(self._items)
            self._items.append((key, value))
            for keys in self._of_keys:
                if key in keys:
                    self._of_keys[keys] |= bit
            for variable in self._about:
                if _is_about(key, variable):
                    self._about[variable] |= bit
        return bit

    def bits(self, known: Iterable[tuple[Key, Value]]) -> int:
        """All of this together."""
        found = 0
        for key, value in known:
            found |= self.bit(key, value)
        return found

    def values(self, known: int) -> dict[Key, Value]:
        """What the bits stand for."""
        found = {}
        while known:
            last = known & -known
            key, value = self._items[last.bit_length() - 1]
            found[key] = value
            known ^= last
        return found

    def of(self, keys: Keys) -> int:
        """The bits for what can be known of these."""
        mask = self._of_keys.get(keys)
        if mask is None:
            mask = self._of_keys[keys] = self._sum(key in keys for key, _ in self._items)
        return mask

    def about(self, variables: Iterable[Variable]) -> int:
        """The bits for all that is no longer known once these variables get new values."""
        found = 0
        for variable in variables:
            mask = self._about.get(variable)
            if mask is None:
                mask = self._about[variable] = self._sum(
                    _is_about(key, variable) for key, _ in self._items
                )
            found |= mask
        return found

    def _sum(self, chosen: Iterable[bool]) -> int:
        return sum(1 << at for at, is_chosen in enumerate(chosen) if is_chosen)


def _is_about(key: Key, variable: Variable) -> bool:
    return variable in key.reads if type(key) is Fact else key == variable
