"""Makes a patch look like the function in whose place it is: to `inspect`, to `pickle`, to torch.compile."""

from __future__ import annotations

import functools
import inspect
from types import CellType, CodeType, FunctionType
from typing import Any


def disguised(original: Any, patch: Any) -> Any:
    """The patch with all visible properties of the original.

    The patch has to be a closure without names of its module: type hints are looked up in the module of
    the original.
    """
    if not isinstance(original, FunctionType):
        return compile_instead(patch, original)
    made = FunctionType(
        patch.__code__,
        original.__globals__,
        original.__name__,
        patch.__defaults__,
        patch.__closure__,
    )
    made.__qualname__, made.__module__ = original.__qualname__, original.__module__
    made.__doc__, made.__annotations__ = original.__doc__, dict(original.__annotations__)
    # What torch's compiler has noted at the original is about its code.
    noted = {name: value for name, value in vars(original).items() if "dynamo" not in name}
    made.__dict__.update(noted)
    if "__wrapped__" not in original.__dict__:
        seen = _other_signature(original, patch.__code__, patch.__defaults__)
        if seen is not None:
            made.__signature__ = seen  # type: ignore[attr-defined]
    return compile_instead(made, original)


@functools.lru_cache(maxsize=128)
def _other_signature(original: Any, code: CodeType, defaults: Any) -> inspect.Signature | None:
    """The signature of the original, if the patch seems to have another one.

    It is remembered: a watch for each of many short trainings would spend a third of its time here.
    """
    seen = inspect.signature(original)
    patch = FunctionType(code, {}, argdefs=defaults, closure=tuple(map(_cell, code.co_freevars)))
    patch.__annotations__ = original.__annotations__
    return None if inspect.signature(patch) == seen else seen


def _cell(_: str) -> CellType:
    return CellType()


def compile_instead(patch: Any, original: Any) -> Any:
    """Let torch.compile, which cannot follow our code, trace the original in place of the patch."""
    patch._torchdynamo_inline = original
    return patch


class Unseen:
    """What has happened in code that torch.compile has compiled, where our code does not run."""

    stepped = False
    """Whether an optimizer has stepped there since the last question."""


UNSEEN = Unseen()
"""One for the process, as a name of this module: torch 2.4 cannot compile a closure in place of a patch."""
