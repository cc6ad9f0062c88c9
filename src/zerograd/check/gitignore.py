"""Path patterns as .gitignore writes them, for .gitignore itself and for every exclude setting.

The last pattern that matches decides, `!` negates, and a pattern matches paths relative to the
directory of its file. Matching takes time in proportion to the pattern and the path, whatever stars it has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from zerograd.core.late_pattern import pattern

_MAGIC = pattern(r"[*?\[\\]")
Glob = list["re.Pattern[str] | None"]
"""An expression for each part of a path; None is any number of parts."""
_NEVER = pattern(r"(?!)")


class Patterns:
    """The patterns of one file or one setting, in order."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._rules: list[tuple[bool, bool]] = []
        # Most patterns are a name, a path or an ending. Sets find these at once, while compiling the
        # regular expressions of one long .gitignore would take longer than the walk.
        self._names: dict[str, list[int]] = {}
        self._paths: dict[str, list[int]] = {}
        self._suffixes: list[tuple[str, int]] = []
        self._shapes: list[tuple[re.Pattern[str], int]] = []
        self._globs: list[tuple[Glob, int]] = []
        for line in lines:
            self._add(line)
        self._tails = tuple(tail for tail, _ in self._suffixes)

    def __bool__(self) -> bool:
        return bool(self._rules)

    def _add(self, line: str) -> None:
        pattern = _strip(line)
        negated = pattern.startswith("!")
        pattern = pattern.removeprefix("!").removeprefix("./")
        only_directories = pattern.endswith("/")
        pattern = pattern.removesuffix("/")
        if not pattern:
            return
        anchored = "/" in pattern
        pattern = pattern.removeprefix("/")
        number = len(self._rules)
        self._rules.append((negated, only_directories))
        if not _MAGIC.search(pattern):
            table = self._paths if anchored else self._names
            table.setdefault(pattern, []).append(number)
        elif not anchored and pattern[0] == "*" and not _MAGIC.search(pattern, 1):
            self._suffixes.append((pattern[1:], number))
        else:
            try:
                glob = _glob(pattern)
            except re.error:
                # In git, an invalid pattern matches nothing.
                return
            if anchored:
                self._globs.append((glob, number))
            elif glob[-1] is not None:
                self._shapes.append((glob[-1], number))

    def excludes(self, path: str, *, is_directory: bool) -> bool | None:
        """True: matched. False: negated. None: no pattern matches this path."""
        name = path[path.rfind("/") + 1 :]
        numbers = [*self._names.get(name, ()), *self._paths.get(path, ())]
        if name.endswith(self._tails):
            numbers += [number for tail, number in self._suffixes if name.endswith(tail)]
        numbers += [number for shape, number in self._shapes if shape.match(name)]
        if self._globs:
            parts = path.split("/")
            numbers += [number for glob, number in self._globs if _fits(glob, parts)]
        if not is_directory:
            numbers = [number for number in numbers if not self._rules[number][1]]
        return not self._rules[max(numbers)][0] if numbers else None

    def matches(self, path: str) -> bool:
        """Whether a file matches, by itself or because a directory above it does."""
        parts = path.split("/")
        for depth in range(1, len(parts)):
            if self.excludes("/".join(parts[:depth]), is_directory=True):
                return True
        return bool(self.excludes(path, is_directory=False))


def _strip(line: str) -> str:
    """The pattern on a line, without its comment, line end and unescaped spaces."""
    line = line.rstrip("\r\n")
    while line.endswith(" ") and not line.endswith("\\ "):
        line = line[:-1]
    return "" if line.startswith("#") else line


def _glob(text: str) -> Glob:
    """The parts of a pattern with wildcards."""
    found: Glob = []
    pieces = [""]  # what is between the stars of one part
    at = 0
    while at < len(text):
        begins = at == 0 or text[at - 1] == "/"
        if begins and text.startswith("**/", at):
            found.append(None)
            at += 3
            continue
        if begins and text[at:] == "**":
            return [*found, None, _part(["", ""])]
        char = text[at]
        at += 1
        if char == "/":
            found.append(_part(pieces))
            pieces = [""]
        elif char == "*":
            pieces.append("")
            while text.startswith("*", at):
                at += 1
        elif char == "?":
            pieces[-1] += "."
        elif char == "[" and (end := _class_end(text, at)) > 0:
            inside = text[at:end].replace("\\", r"\\").replace("[", r"\[")
            pieces[-1] += f"[^{inside[1:]}]" if inside[0] in "!^" else f"[{inside}]"
            at = end + 1
        elif char == "\\" and at < len(text):
            if text[at] != "/":  # a slash ends the part, escaped or not
                pieces[-1] += re.escape(text[at])
                at += 1
        else:
            pieces[-1] += re.escape(char)
    return [*found, _part(pieces)]


def _part(pieces: list[str]) -> re.Pattern[str]:
    """One part of a path. A star before a piece ends where the piece first fits: no later place is better."""
    first, *rest = pieces
    *middle, last = rest or [""]
    between = "".join(
        f"(?=(?P<g{number}>.*?{piece}))(?P=g{number})" for number, piece in enumerate(middle)
    )
    end = f".*{last}" if rest else ""
    return re.compile(rf"{first}{between}{end}\Z", re.DOTALL)


def _fits(glob: Glob, parts: list[str]) -> bool:
    """Whether a pattern matches a path. If a None has taken too few parts, it is enough to extend the last one."""
    at = place = 0
    again = taken = -1
    while place < len(parts):
        expression = glob[at] if at < len(glob) else _NEVER
        if expression is None:
            again, taken = at + 1, place
            at += 1
        elif expression.match(parts[place]):
            at += 1
            place += 1
        elif again >= 0:
            taken += 1
            at, place = again, taken
        else:
            return False
    return all(expression is None for expression in glob[at:])


def _class_end(text: str, start: int) -> int:
    """The position of the bracket that closes a class; a `]` in first place is a member."""
    if text[start : start + 1] in ("!", "^"):
        start += 1
    return text.find("]", start + 1)
