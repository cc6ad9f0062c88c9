"""The language of the tables: what a library's objects are, and what its calls do to gradients.

A table is data. `interp.framework_calls` reads it, and nothing else knows a library's names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import ClassVar


class Role:
    """What an object does with gradients. A library may have roles of its own."""

    NONE: ClassVar[Role]
    """Nothing is known."""
    OPTIMIZER: ClassVar[Role]
    OTHER: ClassVar[Role]
    """Nothing, for sure: a scheduler, for instance."""
    TAKEN: ClassVar[Role]
    """Nothing: an optimizer that an engine has taken, and steps. Without the engine, the code steps it."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __bool__(self) -> bool:
        return self is not Role.NONE

    def __repr__(self) -> str:
        return f"Role({self.name!r})"


Role.NONE = Role("")
Role.OPTIMIZER = Role("optimizer")
Role.OTHER = Role("other")
Role.TAKEN = Role("taken optimizer")


class Whose(Enum):
    """Whose gradients a call changes."""

    OWNER = "what the method is called on"
    FIRST = "the object that is the first argument"
    SECOND = "the object that is the second argument"
    EACH_OF_FIRST = "the first argument, or each of its items"
    ANYONE = "it cannot be seen whose"


class Divided(Enum):
    """Who divides the loss of a window."""

    BY_CODE = "the code that is read, or nobody"
    BY_LIBRARY = "perhaps the library"
    BY_WINDOW = "the library, by the length of the window, where it accumulates"


class RunsBackward:
    """Runs the backward of the first argument, scaled as the library likes."""

    def __init__(
        self,
        *,
        required: bool = False,
        unknown: bool = False,
        fills_owner: bool = False,
        divided: Divided = Divided.BY_CODE,
        bypassed: str = "",
        unless: str = "",
    ) -> None:
        self.required = required
        """Only the library may run it: `loss.backward()` would bypass it."""
        self.unknown = unknown
        """It is not known which library it is: its step may clear."""
        self.fills_owner = fills_owner
        """The gradients are those of what the method is called on."""
        self.divided = divided
        self.bypassed = bypassed
        """What a finding calls the library where it is bypassed, if not by the variable's name."""
        self.unless = unless
        """The keyword that asks for the forward alone if it is True."""


class Steps:
    """Steps an optimizer."""

    def __init__(
        self,
        whose: Whose = Whose.OWNER,
        *,
        scaled: bool | None = False,
        when: Iterable[str] = (),
        ahead: bool = False,
    ) -> None:
        self.whose = whose
        self.scaled = scaled
        """Whether it unscales the gradients for it; None: it may."""
        self.when = tuple(when)
        """The keywords of a test that decides; without it, it always steps."""
        self.ahead = ahead
        """Whether the next step puts back what it has moved."""


class Clears:
    """Clears gradients."""

    def __init__(self, whose: Whose = Whose.OWNER, *, flag: str = "") -> None:
        self.whose = whose
        self.flag = flag
        """The keyword, or first argument, that asks for it; without a name it is always done."""


class Unscales:
    """Divides gradients by the scale."""

    def __init__(self, whose: Whose) -> None:
        self.whose = whose


class Updates:
    """Updates the scale."""


class MayTouch:
    """May do more with an object's gradients than can be seen."""

    def __init__(self, whose: Whose) -> None:
        self.whose = whose


class Restores:
    """Sets the weights of what the method is called on, from the first argument."""


class Prepares:
    """Takes over the objects it is handed: it wants to run their backward, and may gate their step."""


Effect = RunsBackward | Steps | Clears | Unscales | Updates | MayTouch | Restores | Prepares


class Gives(Enum):
    """What a call returns."""

    NOTHING = "None"
    UNKNOWN = "something computed"
    SCALED_LOSS = "the first argument, scaled"
    ARGUMENTS = "what it was handed"


class ResultOf:
    """What a method of the same object returns, as the project defines it."""

    def __init__(self, method: str) -> None:
        self.method = method


class HandsBack:
    """What it was handed, in the order of its parameters."""

    def __init__(self, *parameters: str) -> None:
        self.parameters = parameters


class On(Enum):
    """What a method is called on, if not on an object of a certain role."""

    ANYTHING = "anything"
    UNSEEN = "anything whose method of this name is not part of the project"
    MODULE = "a module: it is a function of the library"


CALLED = "__call__"
"""The name of a call of an object itself."""


class LibraryCall:
    """What a call of a library does."""

    def __init__(
        self,
        name: str,
        *does: Effect,
        on: Role | On = On.UNSEEN,
        gives: Gives | ResultOf | HandsBack = Gives.NOTHING,
        given: Role | None = None,
        arguments: int = 0,
        always: bool = False,
    ) -> None:
        self.name = name
        """Of the method or function; `prepare*` is any that begins so."""
        self.does = does
        """In order."""
        self.on = on
        self.gives = gives
        self.given = given
        """It is this call only if the first argument has this role."""
        self.arguments = arguments
        """It is this call only if it has at least this many arguments."""
        self.always = always
        """Also where the project defines the method itself, or the object was computed."""
        whose = [effect.whose for effect in does if isinstance(effect, (Steps, Clears, MayTouch))]
        self.needs_owner = Whose.OWNER in whose or isinstance(gives, ResultOf)
        self.needs_first = Whose.FIRST in whose
        self.steps_first = any(
            isinstance(effect, Steps) and effect.whose is Whose.FIRST for effect in does
        )


class ContextEffect(Enum):
    """What a `with` block changes for its body."""

    NO_GRAD = "no graph is recorded"
    GRAD = "a graph is recorded"
    ACCUMULATES = "the library counts, and gates the steps of what it has prepared"
    LOCAL = "the ranks do not share the gradients of a loss that is computed in it"
    SCALES_LOSS = "its variable is the first argument, scaled perhaps"


class Context:
    """What a context manager of a library does."""

    def __init__(self, name: str, changes: ContextEffect, *, on: Role | None = None) -> None:
        self.name = name
        self.changes = changes
        self.on = on


class Use:
    """The role of an object whose class cannot be seen, by what is called on it and by its name."""

    def __init__(
        self,
        role: Role,
        *,
        calls: Iterable[str] = (),
        any_of: Iterable[str] = (),
        none_of: Iterable[str] = (),
        named: re.Pattern[str] | None = None,
        not_named: re.Pattern[str] | None = None,
    ) -> None:
        self.role = role
        self.calls = frozenset(calls)
        """All of these are called on it,"""
        self.any_of = frozenset(any_of)
        """at least one of these,"""
        self.none_of = frozenset(none_of)
        """and none of these;"""
        self.named = named
        """its name looks like this,"""
        self.not_named = not_named
        """and not like this."""

    def fits(self, name: str, methods: frozenset[str]) -> bool:
        """Whether an object of this name, with these methods called on it, has the role."""
        return (
            self.calls <= methods
            and (not self.any_of or not self.any_of.isdisjoint(methods))
            and self.none_of.isdisjoint(methods)
            and (self.named is None or self.named.search(name) is not None)
            and (self.not_named is None or self.not_named.search(name) is None)
        )


class ReturnedTuple:
    """The tuple of objects that a function of a library returns."""

    def __init__(self, function: str, *items: tuple[str, Role] | None) -> None:
        self.module, _, self.function = function.rpartition(".")
        self.items = items
        """Each with its role and the attribute of the first that it is; None is something computed."""


class Does(Enum):
    """What a library does itself for every batch."""

    CLEARS = "clears the gradients"
    RUNS_BACKWARD = "runs the backward of the loss"
    STEPS = "steps"


class Round:
    """What a library does for every batch, in order: the methods that it calls, and what it does itself."""

    def __init__(self, *parts: str | Does) -> None:
        self.parts = parts


class Framework:
    """What one library does to gradients."""

    def __init__(
        self,
        *,
        packages: Iterable[str] = (),
        classes: Mapping[str, Role] | None = None,
        uses: Iterable[Use] = (),
        calls: Iterable[LibraryCall] = (),
        contexts: Iterable[Context] = (),
        makes: Iterable[ReturnedTuple] = (),
        wrappers: str = "",
        clips: Iterable[str] = (),
        unscales_to_clip: Iterable[Role] = (),
        closes_window: Iterable[str] = (),
        per_batch: Iterable[str] = (),
        driven: Iterable[str] = (),
        rounds: Iterable[Round] = (),
        drivers: Iterable[str] = (),
        mentions: Iterable[str] = (),
    ) -> None:
        self.packages = frozenset(packages)
        """Packages that run, gate or collect backward: no function of a file that imports one is obviously right."""
        self.classes = dict(classes or {})
        """The roles of objects of its classes."""
        self.uses = tuple(uses)
        self.calls = tuple(calls)
        self.contexts = tuple(contexts)
        self.makes = tuple(makes)
        self.wrappers = wrappers
        """A pattern for the end of names of calls that return what they are handed, wrapped."""
        self.clips = frozenset(clips)
        """Names of functions and methods that limit gradients."""
        self.unscales_to_clip = frozenset(unscales_to_clip)
        """Objects of these roles unscale gradients before they clip them."""
        self.closes_window = frozenset(closes_window)
        """Attributes that say whether this iteration steps."""
        self.per_batch = frozenset(per_batch)
        """Methods that it calls once for every batch, whatever class of the project they are in."""
        self.driven = frozenset(driven)
        """Methods that it calls once for every batch, in classes that inherit from one of its own."""
        self.rounds = tuple(rounds)
        """What it does for every batch around the methods of such classes, unless they do it themselves."""
        self.drivers = frozenset(drivers)
        """Its functions and classes that are handed a function, which they call once for every batch."""
        self.mentions = frozenset(mentions)
        """Other names that say that a function does something to gradients."""
