"""What other files of the project do to gradients around a function or an object, found by name in their bytes.

A function that steps and never clears is right if its callers clear. Its callers often cannot be seen: its object
comes from a registry or a configuration. So all code that mentions its name counts as a caller.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from zerograd.static.frameworks.table import CALLED
from zerograd.static.read.load import read_bytes
from zerograd.static.read.locate import is_marked, project_folders
from zerograd.static.read.recent import EACH, Recent
from zerograd.static.read.source import Unreadable

MOST_FILES = 3_000
"""Files of a project that are looked at. If it has more, only the largest folder around a file that has not is."""
LARGEST = 400_000
"""Bytes of a file that is looked at."""
SMALL = 20_000
"""A smaller file stays in memory: it may be asked about other functions."""
FARTHEST = 2
"""Calls that are followed from a function to those around it."""


class Piece(NamedTuple):
    """A function; or, without a name, the code of a file that is in no function."""

    name: bytes
    names: frozenset[bytes]
    """What it calls, and the attributes that it mentions."""
    clears: bool
    """It clears gradients, and not only those that it fills and uses itself."""
    handed: frozenset[bytes]
    """What it hands on or keeps, without calling it: the code that gets a function may do more around its calls."""


def may_be_cleared(path: str, names: Collection[str], followed: Collection[str]) -> bool:
    """Whether code that mentions one of these functions, or code around that, may clear gradients.

    `followed` are the functions of the file at `path` whose effects are known.
    """
    files, whole = _project_files(path)
    if not whole:
        return True
    own = os.path.abspath(path)
    known = {one.encode() for one in followed}

    def pieces_with(names: Collection[bytes]) -> list[Piece]:
        return [
            piece
            for file in files
            for piece in _pieces(file, names)
            if not (file == own and piece.name in known)
        ]

    wanted = {name.encode() for name in names}
    # Another class's method of the same name is called instead of this one, unless it calls that of its base.
    helpers = {
        piece.name
        for piece in pieces_with(())
        if piece.clears and not (piece.name in wanted and piece.name not in piece.names)
    } - _COMMON
    # Too many things have a method of a common name for the calls of it to say anything.
    common = bool(wanted & _COMMON)
    asked: set[bytes] = set()
    for _ in range(FARTHEST):
        pieces = pieces_with(() if common else wanted)
        if not (common or asked) and any(not wanted.isdisjoint(one.handed) for one in pieces):
            return True
        asked |= wanted
        callers = [piece for piece in pieces if not wanted.isdisjoint(piece.names - {piece.name})]
        if any(piece.clears or not helpers.isdisjoint(piece.names) for piece in callers):
            return True
        wanted = {piece.name for piece in callers} - asked - _COMMON - {b""}
        if common or not wanted:
            break
    return False


def first_that_clears(path: str, names: Collection[str]) -> str:
    """The first of these names that belongs to a function of the project which clears gradients; else "".

    With `CALLED`, also the first function that clears and is handed on, or kept, without being called.
    """
    wanted = {name.encode() for name in names} - _COMMON
    anyone = CALLED in names
    if not wanted and not anyone:
        return ""
    files, _ = _project_files(path)
    clearing = {one.name for file in files for one in _pieces(file) if one.clears} - {b""}
    found = clearing & wanted
    if anyone and (clearing := clearing - _COMMON | clearing & {CALLED.encode()}):
        found |= {name for file in files for name in _kept(file, clearing)}
    return min(found, default=b"").decode()


def one_runs_backward(path: str, names: Collection[str]) -> bool:
    """Whether a function of the project that has one of these names runs a backward."""
    wanted = {name.encode() for name in names if name} - _COMMON
    files, _ = _project_files(path) if wanted else ([], True)
    return any(not wanted.isdisjoint(_backwards(file)) for file in files)


def files_that_clip_in(path: str, name: str) -> list[str]:
    """The files of the project with a function of this name that clips gradients; none if one unscales them."""
    wanted = name.encode()
    files, _ = _project_files(path)
    clipping = [file for file in files if wanted in _named(_CLIPPING, file, b"clip", _CLIP)]
    unscales = any(
        wanted in _named(_UNSCALING, file, b"unscale", _UNSCALE)
        for file in (files if clipping else ())
    )
    return [] if unscales else clipping


def files_that_call(path: str, name: str) -> list[str]:
    """The other files of the project that call something of this name, which begins with a capital letter."""
    own = os.path.abspath(path)
    wanted = name.encode()
    files, _ = _project_files(path)
    return [file for file in files if file != own and wanted in _capitals(file)]


def _capitals(path: str) -> frozenset[bytes]:
    """The names with a capital letter that a file calls: mostly classes."""
    return _known_of(_CAPITALS, path, lambda data: frozenset(_CAPITAL.findall(data)))


def scales_only_at(path: str) -> tuple[str, int] | None:
    """The first place where the project of a file scales a loss, if it makes gradient scalers and unscales nowhere."""
    makes, first = False, None
    for file in _project_files(path)[0]:
        with contextlib.suppress(OSError, Unreadable):
            data = read_bytes(file) if os.path.getsize(file) <= LARGEST else b""
            if b"unscale" in data:
                return None
            makes |= b"GradScaler" in data
            scaled = _SCALED.search(data) if first is None else None
            if scaled is not None:
                first = file, data.count(b"\n", 0, scaled.start()) + 1
    return first if makes else None


def _backwards(path: str) -> frozenset[bytes]:
    """The functions of a file that run a backward.

    They are few: those of all files are kept, while the pieces of a project with 2,000 files are not. That takes
    a script of such a project from 12 s to 1 s.
    """
    return _named(_BACKWARDS, path, b"backward", _BACKWARD)


def _named(memory: _Words, path: str, word: bytes, wanted: re.Pattern[bytes]) -> frozenset[bytes]:
    """The functions of a file whose text has a pattern in it, which has this word in it."""

    def read(data: bytes) -> frozenset[bytes]:
        pieces = _functions(data) if word in data else ()
        return frozenset(name for name, text in pieces if wanted.search(text))

    return _known_of(memory, path, read)


def _known_of(
    memory: _Words, path: str, read: Callable[[bytes], frozenset[bytes]]
) -> frozenset[bytes]:
    """What is read from the bytes of a file, once for all who ask."""
    try:
        status = os.stat(path)
        stamp = (status.st_mtime_ns, status.st_size)
        known = memory.get(path)
        if known is None or known[0] != stamp:
            known = (stamp, read(read_bytes(path) if status.st_size <= LARGEST else b""))
            memory.put(path, known)
    except (OSError, Unreadable):
        return frozenset()
    return known[1]


def _kept(path: str, names: Collection[bytes]) -> Iterator[bytes]:
    """Those of these functions that a file mentions without calling them; a called object may be kept, too."""
    if CALLED.encode() in names:
        yield CALLED.encode()
    with contextlib.suppress(OSError, Unreadable):
        data = read_bytes(path) if os.path.getsize(path) <= LARGEST else b""
        for name in names:
            if name in data and re.search(_VALUE % re.escape(name), data):
                yield name


def is_mentioned_elsewhere(
    path: str, name: str, related: Collection[str], *, is_attribute: bool
) -> bool:
    """Whether another file of the project may do more than look at what this file gives a name.

    An attribute that a class of another file gives itself is another one, unless that file mentions one of the
    `related` classes.
    """
    if is_attribute:
        pattern = re.compile(_ATTRIBUTE % name.encode())
        own = re.compile(rb"\bself\.%s[ \t]*(?::[^=\n]+)?=[^=]" % name.encode())
        kin = re.compile(rb"\b(?:%s)\b" % b"|".join(sorted(one.encode() for one in related)))
    for data in _others(path, name):
        if data is None:
            return True
        if not is_attribute:
            stem = os.path.basename(path)[: -len(".py")].encode()
            if re.search(rb"\b%s\b" % re.escape(stem), data):
                return True
            continue
        found = {match[1] for match in pattern.finditer(data)}
        if found - {b"self"} or (
            found and (not own.search(data) or (related and kin.search(data)))
        ):
            return True
    return False


def is_class(path: str, name: str) -> bool:
    """Whether a file of the project defines a class of this name."""
    pattern = re.compile(rb"^class[ \t]+%s\b" % name.encode(), re.MULTILINE)
    return any(data is not None and pattern.search(data) for data in _others(path, name))


def files_that_define(path: str, name: str) -> list[str]:
    """The files of the project that define a function of this name, and call or define a step."""
    wanted = name.encode()
    files, _ = _project_files(path)
    return [file for file in files if wanted in _known_of(_STEPPING, file, _defined)]


def _defined(data: bytes) -> frozenset[bytes]:
    return frozenset(_DEF.findall(data)) if b"step(" in data else frozenset()


def _others(path: str, name: str) -> Iterator[bytes | None]:
    """The other files of the project that mention a name; None if there are too many to look at."""
    files, whole = _project_files(path)
    if not whole:
        yield None
    own = os.path.abspath(path)
    for file in files:
        if file != own:
            with contextlib.suppress(OSError, Unreadable):
                data = read_bytes(file) if os.path.getsize(file) <= LARGEST else b""
                if name.encode() in data:
                    yield data


def searched(path: str) -> Iterator[str]:
    """The files that are searched for callers, and their folders, in which files may appear or vanish."""
    folders = project_folders(path)
    if not is_marked(folders[0]):
        yield os.path.dirname(folders[0])  # it holds no code yet
    for folder in folders:
        walked = _walk(folder)
        if walked is None:
            yield folder
        else:
            yield from walked[0]
            yield from walked[1]
            if walked[1]:
                break


def _project_files(path: str) -> tuple[list[str], bool]:
    """The Python files of the project that a file is part of, and whether these are all.

    If the project has too many, only those of the largest folder around the file that has not.
    """
    whole = True
    for folder in project_folders(path):
        walked = _walk(folder)
        if walked is None:
            whole &= not is_marked(folder)  # else it is hardly a project
        elif walked[1]:
            return walked[1], whole
    return [], whole


def _walk(folder: str) -> tuple[list[str], list[str]] | None:
    """The folders and the Python files below a folder, unless there are too many."""
    around: list[str] = []
    found: list[str] = []
    for here, folders, names in os.walk(folder):
        folders[:] = sorted(
            name for name in folders if not name.startswith(".") and name not in _NOT_ITS_OWN
        )
        around.append(here)
        found += [os.path.join(here, name) for name in sorted(names) if name.endswith(".py")]
        if len(found) > MOST_FILES:
            return None
    return around, found


def _pieces(path: str, names: Collection[bytes] = ()) -> list[Piece]:
    """The pieces of a file that clears gradients, or has one of these names in it; others are not cut."""
    try:
        status = os.stat(path)
        stamp = (status.st_mtime_ns, status.st_size)
        known = _KNOWN.get(path)
        if known is None or known.stamp != stamp:
            data = read_bytes(path) if status.st_size <= LARGEST else b""
            known = _Known(stamp, data if len(data) < SMALL else None)
            _KNOWN.put(path, known, status.st_size + EACH)
            if b"grad" in data and _CLEAR.search(data):
                known.cut(data)
        if known.pieces is None and names:
            data = known.data if known.data is not None else read_bytes(path)
            if any(name in data for name in names):
                known.cut(data)
    except (OSError, Unreadable):
        return []
    return known.pieces or []


class _Known:
    """What is known of a file as it was then."""

    def __init__(self, stamp: tuple[int, int], data: bytes | None) -> None:
        self.stamp = stamp
        self.data = data
        """Its bytes, if they are few and were not cut."""
        self.pieces: list[Piece] | None = None

    def cut(self, data: bytes) -> None:
        self.pieces, self.data = [_piece(*one) for one in _functions(data)], b""


MOST_KNOWN = 4_000_000
"""Bytes of files whose pieces are kept."""
_KNOWN: Recent[str, _Known] = Recent(MOST_KNOWN)
_Words = Recent[str, tuple[tuple[int, int], frozenset[bytes]]]
_BACKWARDS: _Words = Recent(2 * MOST_FILES)
_CAPITALS: _Words = Recent(2 * MOST_FILES)
_CLIPPING: _Words = Recent(2 * MOST_FILES)
_UNSCALING: _Words = Recent(2 * MOST_FILES)
_STEPPING: _Words = Recent(2 * MOST_FILES)


def _functions(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The functions of a file, each with its text, a function inside of another as part of both; and the rest of it."""
    rest: list[bytes] = []
    open_: list[tuple[int, bytes, list[bytes]]] = []
    for match in _LINE.finditer(data):
        deep, text = len(match[1]), match[2]
        while open_ and deep <= open_[-1][0]:
            _, name, lines = open_.pop()
            yield name, b"\n".join(lines)
        defined = _DEF.match(text)
        for _, _, lines in open_:
            lines.append(text)
        if defined is not None:
            open_.append((deep, defined[1], []))
        elif not open_:
            rest.append(text)
    yield from ((name, b"\n".join(lines)) for _, name, lines in open_)
    yield b"", b"\n".join(rest)


def _piece(name: bytes, text: bytes) -> Piece:
    clears = _CLEAR.search(text) is not None
    own = clears and b"step(" in text and _FILL.search(text) is not None
    names, handed = frozenset(_NAMES.findall(text)), frozenset(_HANDED.findall(text))
    return Piece(name, names, clears and not own, handed)


_LINE = re.compile(rb"^([ \t]*)([^\s#)\]}][^\n]*)", re.MULTILINE)
_DEF = re.compile(rb"(?:async[ \t]+)?def[ \t]+(\w+)")
_NAMES = re.compile(rb"(?<=\.)\w+|\w+(?=[ \t]*\()")
_CAPITAL = re.compile(rb"\b([A-Z]\w*)[ \t]*\(")
_BACKWARD = re.compile(rb"(?<=\.)backward\b|\bbackward(?=[ \t]*\()")
_CLIP = re.compile(rb"(?:clip_?grad|clip_?norm|grad(?:ient)?s?_?clip)\w*\(")
_UNSCALE = re.compile(rb"unscale\w*\(")
_SCALED = re.compile(rb"scaler\w*\.scale\(")
_HANDED = re.compile(rb"[(,=:\[][ \t\n]*(?:\w+\.)+(\w+)[ \t]*(?:[,)\]}]|$)", re.MULTILINE)
_VALUE = rb"[(,=:\[][ \t\n]*(?:\w+\.)*%s[ \t]*(?:[,)\]}]|\r?\n|$)"
_ATTRIBUTE = rb"([\w)\]]+)\.%s\b(?!\.(?:zero_grad|state_dict|load_state_dict|param_groups)\b|[ \t]*(?::[^=\n]+)?=[^=])"
"""An attribute that is read for more than to look at it, and the end of what it is an attribute of."""
_CLEAR = re.compile(
    rb"(?:zero|clear|reset|clean)_?grad|\.grad\s*=\s*None|grad(?:\.data)?\.zero_|\.grad\s*\*=\s*0"
)
_FILL = re.compile(rb"backward\w*\(")
_COMMON = frozenset(
    b"train step update forward backward fit run main learn optimize test __init__ __call__ call zero_grad"
    b" setup reset init".split()
)
"""Methods that many classes have: most calls of such a name are of another class."""
_NOT_ITS_OWN = frozenset({"node_modules", "site-packages", "venv", "env", "build", "dist"})
