"""All tables, and the questions that the interpreter asks of them.

A new library is a file beside this one with a `TABLE`, and its name in `_MODULES`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from importlib import import_module

from zerograd.core.late_pattern import pattern
from zerograd.static.frameworks.table import (
    CALLED,
    Clears,
    Context,
    ContextEffect,
    Effect,
    Framework,
    LibraryCall,
    ReturnedTuple,
    Role,
    Round,
    RunsBackward,
    Steps,
)

_MODULES = (
    "accelerate",
    "lightning",
    "openmmlab",
    "colossalai",
    "deepspeed",
    "apex",
    "timm",
    "opacus",
    "ignite",
    "catalyst",
    "fastai",
    "skorch",
    "speechbrain",
    "composer",
    "transformers",
    "pipelines",
    "sam",
    "gym",
    "xla",
    "wrappers",
    "torch",
)
"""Where several know an object by its use, the first one says what it is: torch comes last."""

FRAMEWORKS: tuple[Framework, ...] = tuple(
    import_module(f"zerograd.static.frameworks.{name}").TABLE for name in _MODULES
)

CLASSES: dict[str, Role] = {}
"""The roles of objects, by the name of their class."""
for framework in FRAMEWORKS:
    CLASSES |= framework.classes

MANAGING = frozenset().union(*(framework.packages for framework in FRAMEWORKS))
"""Packages that run, gate or collect backward themselves."""
CLIPS = frozenset().union(*(framework.clips for framework in FRAMEWORKS))
UNSCALES_TO_CLIP = frozenset().union(*(framework.unscales_to_clip for framework in FRAMEWORKS))
CLOSES_WINDOW = frozenset().union(*(framework.closes_window for framework in FRAMEWORKS))
PER_BATCH = frozenset().union(*(framework.per_batch for framework in FRAMEWORKS))
WRAPPERS = pattern(f"({'|'.join(f.wrappers for f in FRAMEWORKS if f.wrappers)})$")

_CALLS = [call for framework in FRAMEWORKS for call in framework.calls]
_CONTEXTS = {context.name: context for f in FRAMEWORKS for context in f.contexts}
_MAKES = [made for framework in FRAMEWORKS for made in framework.makes]
_USES = [use for framework in FRAMEWORKS for use in framework.uses]


def _names_of(*effects: type[Effect]) -> frozenset[str]:
    """The names of calls that have such an effect."""
    return frozenset(
        call.name
        for call in _CALLS
        if call.name != CALLED and any(isinstance(effect, effects) for effect in call.does)
    )


NO_GRAD = tuple(c.name for c in _CONTEXTS.values() if c.changes is ContextEffect.NO_GRAD)
LOCAL = frozenset(c.name for c in _CONTEXTS.values() if c.changes is ContextEffect.LOCAL)
ACCUMULATES = tuple(c.name for c in _CONTEXTS.values() if c.changes is ContextEffect.ACCUMULATES)
STEPS = _names_of(Steps)
"""Methods that step something."""
GRADIENT_NAMES = _names_of(RunsBackward, Steps, Clears).union(
    *(framework.mentions for framework in FRAMEWORKS)
)
"""A function that mentions none of these (nor calls one that does) does nothing to gradients."""
TELLING = frozenset().union(*(use.calls | use.any_of | use.none_of for use in _USES))
"""Methods whose calls show the role of an object."""


@lru_cache(maxsize=1024)
def calls_named(name: str) -> tuple[LibraryCall, ...]:
    """What a method or function of this name may be. To remember it saves 2 % of a check of `bench/right`."""
    return tuple(
        call
        for call in _CALLS
        if (name.startswith(call.name[:-1]) if call.name.endswith("*") else name == call.name)
    )


def call_on(name: str, role: Role) -> LibraryCall | None:
    """What a method of an object of this role does."""
    return next((call for call in calls_named(name) if call.on is role), None)


def drives(dotted: str) -> bool:
    """Whether a function or class of this dotted name calls what it is handed once for every batch."""
    return any(name in framework.drivers for framework, name in _of_library(dotted))


def is_driven(method: str, bases: Iterable[str]) -> bool:
    """Whether a method of a class with bases of these dotted names is called once for every batch."""
    return any(method in framework.driven for base in bases for framework, _ in _of_library(base))


def is_its_own(dotted: str) -> bool:
    """Whether a class with the name of a library's may be the library's: others have a `Booster`, too."""
    package, _, rest = dotted.partition(".")
    last = dotted.rpartition(".")[2]
    owners = [framework.packages for framework in FRAMEWORKS if last in framework.classes]
    return not rest or any(not packages or package in packages for packages in owners)


def round_of(method: str, bases: Iterable[str]) -> Round | None:
    """What a library does for every batch, if this method of a class with such bases is one part of that."""
    rounds = (
        one for base in bases for framework, _ in _of_library(base) for one in framework.rounds
    )
    return next((one for one in rounds if method in one.parts), None)


def is_managed(bases: Iterable[str]) -> bool:
    """Whether one of these dotted names belongs to a library that is known."""
    return any(map(_of_library, bases))


def _of_library(dotted: str) -> list[tuple[Framework, str]]:
    """The frameworks that a dotted name belongs to, each with its last part."""
    package, _, _ = dotted.partition(".")
    last = dotted.rpartition(".")[2]
    return [(framework, last) for framework in FRAMEWORKS if package in framework.packages]


def context_named(name: str) -> Context | None:
    """What a context manager of this name changes."""
    return _CONTEXTS.get(name)


def made_by(name: str) -> ReturnedTuple | None:
    """The objects that a function of this dotted name returns."""
    last = name.rpartition(".")[2]
    return next((made for made in _MAKES if made.function == last and made.module in name), None)


def bypassed_name(role: Role) -> str:
    """What a finding calls an object of this role if a backward that it has to run is run without it."""
    call = call_on("backward", role)
    effects = call.does if call is not None else ()
    return next((effect.bypassed for effect in effects if isinstance(effect, RunsBackward)), "")


def role_of_use(name: str, methods: frozenset[str]) -> Role:
    """The role of an object of this name that these methods are called on."""
    return next((use.role for use in _USES if use.fits(name, methods)), Role.NONE)
