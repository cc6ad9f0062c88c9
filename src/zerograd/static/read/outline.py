"""The outline of a file, from its bytes: which of the names that it exports lead to a step.

`for batch in loader: engine.train_step(batch)` says nothing of gradients. Whether such a file has to be parsed is
decided by the names that it imports: a function that steps, or calls one that does, outside of a loop of its
own; a class with such methods. Methods are compared by name, without regard to whose they are, so a file
is parsed once too often rather than not at all.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from functools import cached_property
from typing import NamedTuple

from zerograd.core.late_pattern import pattern
from zerograd.static.read.load import read_bytes
from zerograd.static.read.locate import OUTSIDE, locate
from zerograd.static.read.prefilter import worth_parsing
from zerograd.static.read.recent import EACH, Recent
from zerograd.static.read.source import Unreadable
from zerograd.static.read.syntax_tree import first_name

FARTHEST = 3
"""Imports that are followed from one file to the next, where it is known which files step."""
LARGEST = 600_000
"""Bytes of a file that is still worth following."""

Names = frozenset[bytes]
NONE: Names = frozenset()


class Section(NamedTuple):
    """A function or a class at the top level of a file, or all else there, which has no name."""

    bases: list[bytes]
    once: dict[bytes, set[bytes]]
    """By function or method: what it calls outside of its loops."""
    repeated: dict[bytes, set[bytes]]
    """By function or method: what it calls in a loop."""


class Outline:
    """What the bytes of a file say of it."""

    def __init__(self, data: bytes, path: str) -> None:
        self.path = os.path.abspath(path)
        self.data = data if len(data) <= LARGEST else b""

    @cached_property
    def steps(self) -> bool:
        """Whether it fills and uses gradients itself."""
        return worth_parsing(self.data)

    @cached_property
    def imports(self) -> dict[bytes, bytes]:
        """The dotted name that each imported name has, without those of well-known libraries."""
        return dict(imported_names(import_lines(self.data)))

    @cached_property
    def located(self) -> dict[bytes, tuple[str, str] | None]:
        """For each imported name the file of the project that it is in, and the rest of the name."""
        path = self.path
        return {
            name: locate(path, dotted.decode("utf-8", "replace"))
            for name, dotted in self.imports.items()
        }

    @cached_property
    def parts(self) -> dict[bytes, Section]:
        """What the file defines at its top level, by name."""
        return _parts(self.data)

    @cached_property
    def own_steps(self) -> Names:
        """Functions of this file that step themselves, outside of a loop."""
        if not self.steps:
            return NONE
        return frozenset(
            name
            for part in self.parts.values()
            for name, called in part.once.items()
            if name and any(map(_STEP.search, called))
        )

    def changes(self, klass: bytes) -> bool:
        """Whether a class clips or clears gradients: a callback that a loop of another file calls."""
        part = self.parts.get(klass) if any(name in self.data for name in _CHANGES) else None
        called = [*part.once.values(), *part.repeated.values()] if part is not None else []
        return any(name.startswith(_CHANGES) for names in called for name in names)

    @cached_property
    def made(self) -> dict[bytes, set[bytes]]:
        """By what the file calls: the names that it gives to results, such as objects of a class."""
        found: dict[bytes, set[bytes]] = {}
        for name, called in _MADE.findall(self.data):
            found.setdefault(called, set()).add(name)
        return found

    @cached_property
    def renamed(self) -> list[tuple[bytes, bytes]]:
        """The names that the file gives to functions, each with the function: `step = partial(train_step, x)`."""
        return _RENAMED.findall(self.data)

    def kept(self, names: Names) -> Names:
        """These functions, and the names under which the file keeps them."""
        if not any(name in self.data for name in names):
            return names
        return names.union(name for name, function in self.renamed if function in names)

    def may_call(self, names: Names) -> bool:
        """Whether one of these names is followed by what ends the name of a call, or of a hook."""
        return any(name + b"(" in self.data or name + b'"' in self.data for name in names)

    def calling(self, names: Names) -> Names:
        """Its functions that call one of these outside of their loops, directly or through each other."""
        if not self.may_call(names):
            return NONE
        once = {name: called for part in self.parts.values() for name, called in part.once.items()}
        return frozenset(_closure(once, names, NONE)) - (names - once.keys())

    def repeating(self, names: Names) -> Names:
        """Its functions that lead from a loop to one of these, or call a function that does."""
        if not self.may_call(names):
            return NONE
        names |= self.calling(names)
        repeated = {
            name
            for part in self.parts.values()
            for name, called in part.repeated.items()
            if not names.isdisjoint(called)
        }
        if repeated:
            for part in self.parts.values():
                both = {name: part.once[name] | part.repeated[name] for name in part.once}
                repeated |= _closure(both, repeated, NONE)
        return frozenset(repeated)


def _closure(calls: dict[bytes, set[bytes]], found: Collection[bytes], others: Names) -> set[bytes]:
    """The found functions, and those that call one of them or of the others, directly or not."""
    all_found = set(found)
    grown = True
    while grown:
        grown = False
        for name, called in calls.items():
            if name and name not in all_found and not _DUNDER.match(name):
                leads = name in others or not others.isdisjoint(called)
                if leads or not all_found.isdisjoint(called):
                    all_found.add(name)
                    grown = True
    return all_found


class Outlines:
    """Says which functions lead to a step, in files that import each other."""

    def __init__(self, farthest: int = 1, only: Collection[str] | None = None) -> None:
        self.farthest = farthest
        self.only = only
        """The files that step or lead to a step; None where that is not known."""
        self._known: dict[str, Outline | None] = {}
        self._leading: dict[tuple[str, bytes, int], Names] = {}
        self._imported: dict[tuple[str, int], Names] = {}

    def of(self, path: str) -> Outline | None:
        """The outline of a file, if it may lead to a step."""
        if self.only is not None and path not in self.only:
            return None
        if path not in self._known:
            self._known[path] = outline_of(path)
        return self._known[path]

    def imported(self, outline: Outline, farthest: int) -> Names:
        """The functions and methods behind all names that a file imports that lead to a step."""
        key = (outline.path, farthest)
        if key not in self._imported:
            self._imported[key] = NONE.union(
                *(self.behind(outline, name, farthest) for name in outline.imports)
            )
        return self._imported[key]

    def behind(self, outline: Outline, name: bytes, farthest: int) -> Names:
        """The functions and methods behind an imported name that lead to a step."""
        found = outline.located[name]
        if found is None or found[0] == outline.path:
            return NONE
        path, rest = found
        if rest:
            leading = self.leading(path, first_name(rest).encode(), farthest)
            gives = self.gives_a_step(outline, name, farthest)
            return leading.union(outline.made.get(name, ())) if gives else leading
        known = self.of(path)
        if known is None or not known.steps:
            return NONE
        return NONE.union(*(self.leading(path, part, farthest) for part in known.parts))

    def gives_a_step(self, outline: Outline, name: bytes, farthest: int) -> bool:
        """Whether a call of an imported name gives something that steps when it is called.

        The name is a class with such a `__call__`, or a function that does not step, but defines one that does.
        """
        found = outline.located[name]
        known = self.of(found[0]) if found is not None and found[1] else None
        if found is None or known is None:
            return False
        path, function = found[0], found[1].encode()
        leading = self.leading(path, function, farthest)
        if not leading or b"__call__" in leading:
            return bool(leading)
        part = known.parts.get(function)
        return part is not None and function in part.once.keys() - leading

    def leading(self, path: str, name: bytes, farthest: int) -> Names:
        """The functions and methods behind a name of a file that lead to a step."""
        key = (path, name, farthest)
        if key not in self._leading:
            outline = self.of(path)
            self._leading[key] = self._leads(outline, name, farthest) if outline else NONE
        return self._leading[key]

    def _leads(self, outline: Outline, name: bytes, farthest: int) -> Names:
        if name in outline.imports:
            return self.behind(outline, name, farthest - 1) if farthest else NONE
        others = outline.kept(self.imported(outline, farthest - 1)) if farthest else NONE
        part = outline.parts.get(name) if outline.steps or others else None
        if part is None:
            return NONE
        inherited: set[bytes] = set()
        for base in part.bases if farthest else ():
            inherited |= self._leads(outline, base, farthest - 1)
        if farthest and name in part.once:  # a function, which may make objects and hand them out
            for made in filter(_CLASS.match, part.once[name]):
                inherited |= self._leads(outline, made, farthest - 1)
        return frozenset(_closure(part.once, inherited, others | outline.own_steps))

    def exports(self, outline: Outline) -> list[bytes]:
        """The names of a file behind which something leads to a step."""
        path = outline.path
        if not outline.steps and not self.imported(outline, self.farthest):
            return []
        names = [*outline.parts, *outline.imports]
        found = [name for name in names if name and self.leading(path, name, self.farthest)]
        return found or [name for name in outline.parts if name and outline.changes(name)]

    def all_leading(self, outline: Outline) -> Names:
        """All functions that lead to a step, in a file and behind its imports."""
        found = self.imported(outline, self.farthest)
        return found.union(*(self._leads(outline, name, self.farthest) for name in outline.parts))

    def leads_to_a_step(self, outline: Outline) -> bool:
        """Whether a file imports a name that leads to a step, or a class that clips or clears.

        What it does with them shows only when it is parsed: a loop, a loop of another file that it hands them to, a
        list of callbacks.
        """
        if self.imported(outline, self.farthest):
            return True
        found = filter(None, outline.located.values())
        return any(_changes(first_name(name).encode(), path) for path, name in found)

    def is_led(self, path: str, names: Names) -> bool:
        """Whether a file that says nothing of gradients leads to a step, or calls one of these."""
        outline = outline_of(path)
        if outline is None:
            return False
        names -= _COMMON
        if outline.repeating(names) - {b""} or outline.calling(names):
            return True
        return bool(self.imported(outline, 0)) and bool(self.exports(outline))


def _changes(klass: bytes, path: str | None) -> bool:
    """Whether a class of a file clips or clears gradients."""
    outline = outline_of(path) if path is not None else None
    return outline is not None and outline.changes(klass)


def outline_of(path: str) -> Outline | None:
    """The outline of a file; None if it cannot be read."""
    try:
        status = os.stat(path)
        stamp = (status.st_mtime_ns, status.st_size)
        known = _OUTLINES.get(path)
        if known is None or known[0] != stamp:
            if status.st_size > LARGEST:
                return None
            known = (stamp, Outline(read_bytes(path), path))
            _OUTLINES.put(path, known, status.st_size + 4 * EACH)
    except (OSError, Unreadable):
        return None
    return known[1]


def outlined(data: bytes, path: str) -> Outline:
    """The outline of a text: that of the file at its path, if the file holds it."""
    known = outline_of(path)
    return known if known is not None and known.data == data else Outline(data, path)


MOST_OUTLINED = 12_000_000
"""Bytes of files whose outlines are kept: a file is outlined for its own exports, and for all that import it."""
_OUTLINES: Recent[str, tuple[tuple[int, int], Outline]] = Recent(MOST_OUTLINED)

_CHANGES = (b"clip_grad", b"zero_grad", b"unscale_")
_COMMON = frozenset({b"step", b"train", b"forward", b"backward", b"zero_grad", b"update"})
"""Methods that torch's own objects, environments and meters have, too."""
_STEP = pattern(rb"(?:^|_)step$|caler$")
_CLASS = pattern(rb"[A-Z]\w*[a-z]")
_DUNDER = pattern(rb"__(?!call__)\w+__$")
_IMPORT = pattern(
    rb"[ \t]*(?:from[ \t]+([.\w]+)[ \t]+import[ \t]*(.*)|import[ \t]+(.+))", re.DOTALL
)
_LISTED = pattern(rb"([\w.]+)(?:\s+as\s+(\w+))?")
_OUTSIDE = frozenset(name.encode() for name in OUTSIDE)
_OPENS = (b"def ", b"class ", b"for ", b"while ", b"async ")
_BLOCK = pattern(rb"(?:async[ \t]+)?(def|class|for|while)\b[ \t]*(\w*)(?:\(([\w., \t]*)\)[ \t]*:)?")
_RENAMED = pattern(
    rb"\b(\w+)[ \t]*=[ \t]*(?:(?:functools\.)?partial\([ \t]*)?(?:\w+\.)*(\w+)[ \t]*[,\r\n#)]"
)
_MADE = pattern(rb"(\w+)\s*=\s*([\w.]+)\s*\(")
_CALL = pattern(rb"\b(\w+)[ \t]*\((?:[ \t]*(?:\"(\w+)\"|(\w+)[ \t]*[,)]))?")
"""A call, and the function that it may hand over: `self.notify("after_batch")`, `partial(train_step, model)`."""


def _called(text: bytes) -> set[bytes]:
    """What a line calls, and the names that it hands over first."""
    return {name for names in _CALL.findall(text) for name in names if name}


def import_lines(data: bytes) -> list[bytes]:
    """The statements of a file that import something that is not of a well-known library."""
    lines = []
    at = data.find(b"import")
    while at >= 0:
        start = data.rfind(b"\n", 0, at) + 1
        end = data.find(b"\n", at)
        end = len(data) if end < 0 else end
        head = data[start:at].strip()
        if not head or head.startswith(b"from"):
            if data.find(b"(", at, end) >= 0 and head:
                closed = data.find(b")", at)
                end = closed if closed >= 0 else end
            first = (head[4:] or data[at + 6 : end]).strip().partition(b".")[0]
            if first.partition(b" ")[0] not in _OUTSIDE:
                lines.append(data[start:end].strip())
        at = data.find(b"import", end)
    return lines


def imported_names(lines: list[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """The names that import statements define, and the dotted name that each of them has."""
    for line in lines:
        match = _IMPORT.match(line.partition(b"#")[0] if b"(" not in line else line)
        if match is None:
            continue
        module, names, modules = match.groups()
        if module is None:
            for dotted, name in _LISTED.findall(modules):
                if dotted.partition(b".")[0] not in _OUTSIDE:
                    yield name or dotted, dotted
        else:
            joint = b"" if module.endswith(b".") else b"."
            for dotted, name in _LISTED.findall(names):
                yield name or dotted, module + joint + dotted


class _Block(NamedTuple):
    """A block of the file that is being read: where its lines belong."""

    indent: int
    part: Section
    function: bytes
    looped: bool
    lines: list[bytes]
    """The lines of the block itself, without inner blocks, that call something."""

    @property
    def calls(self) -> set[bytes]:
        """Where the names of what it calls are put."""
        calls = self.part.repeated if self.looped else self.part.once
        return calls[self.function]


def _parts(data: bytes) -> dict[bytes, Section]:
    top = Section([], {b"": set()}, {b"": set()})
    parts = {b"": top}
    blocks = [_Block(-1, top, b"", False, [])]
    closed: list[_Block] = []
    for line in data.split(b"\n"):
        text = line.lstrip(b" \t")
        opened = _BLOCK.match(text) if text.startswith(_OPENS) else None
        if opened is None and (b"(" not in text or text.startswith(b"#")):
            continue
        deep = len(line) - len(text)
        if opened is None:
            # A line of a string may be further to the left: it closes no block.
            at = -1
            while blocks[at].indent >= deep:
                at -= 1
            block = blocks[at]
            block.lines.append(text)
            if b" for " in text:  # `[update(batch) for batch in loader]`
                block.part.repeated[block.function] |= _called(text.partition(b" for ")[0])
            continue
        while blocks[-1].indent >= deep:
            closed.append(blocks.pop())
        _, part, function, looped, _ = blocks[-1]
        kind, name, bases = opened.groups()
        if kind in (b"for", b"while"):
            part.once[function].update(_called(text))
            looped = True
        else:
            if not deep:
                listed = re.findall(rb"\w+", bases or b"") if kind == b"class" else []
                part = parts[name] = Section(listed, {b"": set()}, {b"": set()})
            if kind == b"def":
                part.once.setdefault(name, set())
                part.repeated.setdefault(name, set())
            function, looped = (name, False) if kind == b"def" else (b"", False)
        blocks.append(_Block(deep, part, function, looped, []))
    for block in (*closed, *blocks):
        if block.lines:
            block.calls.update(_called(b"\n".join(block.lines)))
    for part in parts.values():
        for function, called in part.repeated.items():
            if b"backward" not in called:
                # `for optimizer in optimizers: optimizer.step()` is one step of several, and no training loop.
                part.once[function].update(filter(_STEP.search, called))
    return parts
