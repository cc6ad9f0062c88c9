"""`[tool.zerograd]` of the nearest pyproject.toml above a file.

Settings that cannot be read are reported as a `Problem`, and the check goes on without them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from zerograd.check.gitignore import Patterns
from zerograd.core.finding import Problem

FILE = "pyproject.toml"
_LISTS = ("select", "ignore", "exclude")
_FLAGS = ("include-tests", "pedantic")
_TABLES = ("per-file-ignores",)
KEYS = (*_LISTS, *_FLAGS, *_TABLES)
_SHAPES = {
    **dict.fromkeys(_LISTS, "a list of strings"),
    **dict.fromkeys(_FLAGS, "true or false"),
    **dict.fromkeys(_TABLES, "a table of lists of strings"),
}


@dataclass(frozen=True)
class Settings:
    """The settings of one pyproject.toml; `root` is its directory."""

    root: str = ""
    path: str = ""
    select: tuple[str, ...] | None = None
    ignore: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    include_tests: bool = False
    pedantic: bool = False
    per_file_ignores: tuple[tuple[str, tuple[str, ...]], ...] = ()
    excluded: Patterns = field(default=Patterns(()), compare=False)

    def ignored_in(self, path: str) -> tuple[str, ...]:
        """The rules that are ignored in a file: those for all files, and those for its path."""
        found = list(self.ignore)
        if self.per_file_ignores:
            relative = relative_to(path, self.root)
            for pattern, names in self.per_file_ignores:
                if Patterns((pattern,)).matches(relative):
                    found += names
        return tuple(found)


DEFAULT = Settings()


def relative_to(path: str, root: str) -> str:
    """The path relative to `root`, as patterns need it."""
    return os.path.relpath(path, root or ".").replace(os.sep, "/")


def load(path: str) -> tuple[Settings | None, list[Problem]]:
    """The settings of one pyproject.toml, None without any; and its problems."""
    try:
        with open(path, "rb") as stream:
            data = stream.read()
    except OSError as error:
        return None, [Problem(path, f"cannot be read: {error.strerror}; its settings are not used")]
    try:
        table = _parse(data)
    except (ValueError, RecursionError) as error:
        return None, [_broken(path, error, data)]
    section = table.get("tool", {})
    section = section.get("zerograd") if isinstance(section, dict) else None
    if section is None:
        return None, []
    return _settings(path, section)


def _parse(data: bytes) -> Mapping[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    # Some editors write a byte order mark, which TOML does not allow.
    return tomllib.loads(data.decode("utf-8-sig"))


def _broken(path: str, error: ValueError | RecursionError, data: bytes) -> Problem:
    import re

    text = str(error)
    place = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)", text)
    last = data.rstrip().count(b"\n") + 1
    line = int(place[1] or last) if place else None
    reason = text[: place.start()] if place else text
    return Problem(path, f"is not valid TOML ({reason}); its settings are not used", line)


def _settings(path: str, section: object) -> tuple[Settings | None, list[Problem]]:
    problems: list[Problem] = []

    def wrong(message: str, key: str = "") -> None:
        line = _line_of(path, key) if key else None
        problems.append(Problem(path, f"[tool.zerograd] {message}", line))

    if not isinstance(section, dict):
        wrong("is not a table; its settings are not used")
        return None, problems
    values: dict[str, Any] = {}
    for key, value in section.items():
        if key in _LISTS and _is_list(value):
            values[key] = tuple(value)
        elif key in _FLAGS and isinstance(value, bool):
            values[key.replace("-", "_")] = value
        elif key in _TABLES and isinstance(value, dict) and all(map(_is_list, value.values())):
            names = ((pattern, tuple(names)) for pattern, names in value.items())
            values[key.replace("-", "_")] = tuple(names)
        elif key in KEYS:
            wrong(f"{key} must be {_SHAPES[key]}; it is not used", key)
        else:
            wrong(f"has no setting {key!r}{_hint(key)}", key)
    root = os.path.dirname(path)
    excluded = Patterns(values.get("exclude", ()))
    return Settings(root=root, path=path, excluded=excluded, **values), problems


def _is_list(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _hint(key: str) -> str:
    from difflib import get_close_matches

    close = get_close_matches(key, KEYS, 1)
    return f"; did you mean {close[0]}?" if close else f"; it knows {', '.join(KEYS)}"


def _line_of(path: str, key: str) -> int | None:
    """The line on which a setting is written."""
    import re

    written = re.compile(rf"""\s*(\[[\w.]*)?["']?{re.escape(key)}["']?\s*[=\]]""")
    with open(path, encoding="utf-8-sig") as stream:
        for number, line in enumerate(stream, start=1):
            if written.match(line):
                return number
    return None
