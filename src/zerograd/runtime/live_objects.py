"""The objects of the program that are alive, by their type."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from itertools import chain, compress, repeat, starmap
from typing import Any


def instances(is_wanted: Callable[[type], bool]) -> list[Any]:
    """Every object whose type is wanted.

    No other thread may run while something here refers to every object: if that thread is just building a
    tuple from a generator, CPython raises SystemError in it, because it resizes a tuple that has a second
    reference. So one call of a C function makes and reads the list of all objects: no other thread runs
    meanwhile.
    """
    wanted = {id(kind) for kind in set(map(type, _all())) if is_wanted(kind)}
    twice = chain.from_iterable(map(repeat, _all(), repeat(2)))
    return list(compress(twice, map(wanted.__contains__, map(id, map(type, twice)))))


def _all() -> Iterator[Any]:
    return chain.from_iterable(starmap(gc.get_objects, [()]))
