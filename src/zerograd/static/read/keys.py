"""Keys: the names of objects and variables of the code that is read.

A key is a path: a variable of a call, or the place where an object was made, then attributes and items.
Two keys are the same object if their paths are equal, and a key is inside another if its path goes on.
"""

from __future__ import annotations

from typing import NamedTuple


class Local(NamedTuple):
    """A variable; in which call of a function, or 0 for those of a module or of the first function."""

    call: int
    name: str


class AllocationSite(NamedTuple):
    """An object that was made at this place."""

    call: int
    line: int
    column: int


class Item(NamedTuple):
    """An item of a collection, by the text of its index."""

    text: str


class KeyTag:
    """A part of a key that is not named in the code."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


ANY_ITEM = KeyTag("[*]")
"""Any item of a collection."""
CALLED = KeyTag("[?]")
"""The result of an unseen call: perhaps another object each time."""
BY_HAND = KeyTag("by hand:")
"""First part: what the code steps by hand, without an optimizer."""

KeyPart = Local | AllocationSite | Item | KeyTag | str
"""A string is an attribute."""


class Key(tuple[KeyPart, ...]):
    """The name of an object or a variable."""

    __slots__ = ()

    def attribute(self, name: str) -> Key:
        """What the object holds under a name."""
        return Key((*self, name))

    def item(self, index: str) -> Key:
        """What a collection holds under a key or an index, given as source text."""
        return Key((*self, Item(index)))

    def any_item(self) -> Key:
        """Any of what a collection holds."""
        return Key((*self, ANY_ITEM))

    def may_be_item(self, other: Key) -> bool:
        """Whether one is an item of a collection, and the other one is any item of it."""
        if len(self) != len(other) or self == other:
            return False
        pairs = zip(self, other, strict=True)
        return all(mine == its or mine is ANY_ITEM or its is ANY_ITEM for mine, its in pairs)

    def may_be_kept_in(self, other: Key) -> bool:
        """Whether one is an item of a collection, and the other one may be in it, too.

        Two collections of one object may hold the same; two variables are taken for two collections, and what
        was made in the code that is read for no item of them.
        """
        mine, its = self.collection, other.collection
        if mine is None or its is None:
            alone = self if mine is None else other
            return mine != its and not isinstance(alone[-1], AllocationSite)
        return mine != its and (mine.overlaps(its) or (len(mine) > 1 and mine[:-1] == its[:-1]))

    @property
    def collection(self) -> Key | None:
        """The first collection on the path; None if there is none."""
        for at, part in enumerate(self):
            if isinstance(part, Item) or part is ANY_ITEM:
                return Key(self[:at])
        return None

    def called(self) -> Key:
        """The result of a call of this."""
        return Key((*self, CALLED))

    def by_hand(self) -> Key:
        """The key as that of something that is stepped by hand."""
        return Key((BY_HAND, *self))

    @property
    def is_called(self) -> bool:
        """Whether it is the result of an unseen call."""
        return self[-1] is CALLED

    @property
    def is_by_hand(self) -> bool:
        """Whether it is stepped by hand."""
        return self[0] is BY_HAND

    @property
    def caller(self) -> Key:
        """The key without its last part."""
        return Key(self[:-1])

    @property
    def plain(self) -> Key:
        """The key, not stepped by hand."""
        return Key(self[1:]) if self.is_by_hand else self

    @property
    def object(self) -> Key:
        """The object that the first attribute belongs to."""
        for at, part in enumerate(self[1:], 1):
            if isinstance(part, (str, AllocationSite)):
                return Key(self[:at])
        return self

    @property
    def call(self) -> int:
        """The call in which the variable is, or the object was made."""
        first = self[0]
        return first.call if isinstance(first, (Local, AllocationSite)) else 0

    @property
    def shown(self) -> str:
        """The key as it is in the code."""
        if len(self) == 1 and isinstance(self[0], Local):
            return self[0].name  # most keys
        return "".join(map(part_shown, self)).removeprefix(".")

    @property
    def last_name(self) -> str:
        """The last attribute and what follows it; the name of the variable if there is none."""
        for at in range(len(self) - 1, 0, -1):
            if isinstance(self[at], (str, AllocationSite)):
                return "".join(map(part_shown, self[at:]))[1:]
        return self.plain.shown

    def is_inside(self, outer: Key) -> bool:
        """Whether the key is the other one, or is inside it."""
        length = len(outer)
        if self[:length] == outer:
            return True
        if outer[-1] is not ANY_ITEM or self[: length - 1] != outer[:-1]:
            return False
        return len(self) >= length and isinstance(self[length - 1], (Item, KeyTag))

    def overlaps(self, other: Key) -> bool:
        """Whether one of the two is inside the other."""
        return self.is_inside(other) or other.is_inside(self)

    def __str__(self) -> str:
        call = self.plain.call
        shown = f"{call}#{self.plain.shown}" if call else self.plain.shown
        return f"{BY_HAND}{shown}" if self.is_by_hand else shown


def part_shown(part: KeyPart) -> str:
    """A part of a key as it is in the code."""
    if isinstance(part, Local):
        return part.name
    if isinstance(part, Item):
        return f"[{part.text}]"
    if isinstance(part, AllocationSite):
        return f".{part.line}:{part.column}"
    return part.text if isinstance(part, KeyTag) else f".{part}"


def local(name: str, call: int = 0) -> Key:
    """The key of a variable."""
    return Key((Local(call, name),))


def made(line: int, column: int, call: int = 0) -> Key:
    """The key of an object that is made at this place."""
    return Key((AllocationSite(call, line, column),))


SELF = local("self")
"""The object whose method is the root of what is read."""
RESULT = Key((KeyTag("@result"),))
"""Something computed: its gradients are not kept."""
