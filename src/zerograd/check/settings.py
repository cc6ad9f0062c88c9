"""`[tool.zerograd]` of the nearest pyproject.toml above a file, and of the files that it extends.

Settings that cannot be read are reported as a `Problem`, and the check goes on without them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from zerograd.check.gitignore import Patterns
from zerograd.core.finding import Problem
from zerograd.core.records import dataclass, field

FILE = "pyproject.toml"
_LISTS = ("select", "ignore", "exclude")
_FLAGS = ("include-tests", "pedantic")
_TABLES = ("per-file-ignores",)
_GRADES = ("severity",)
_TEXTS = ("extend", "rule-pages")
KEYS = (*_LISTS, *_FLAGS, *_TABLES, *_GRADES, *_TEXTS)
SEVERITIES = ("error", "advice", "off")
_ONE_OF = '"error", "advice" or "off"'
_SHAPES = {
    **dict.fromkeys(_LISTS, "a list of strings"),
    **dict.fromkeys(_FLAGS, "true or false"),
    **dict.fromkeys(_TABLES, "a table of lists of strings"),
    **dict.fromkeys(_GRADES, f"a table of rules, each {_ONE_OF}"),
    **dict.fromkeys(_TEXTS, "a string"),
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
    severity: tuple[tuple[str, str], ...] = ()
    """What rules count for; a narrow name is stronger than a wide one."""
    rule_pages: str = ""
    """The address of the pages of the rules."""
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
    """The path relative to `root`, with slashes on every system."""
    return os.path.relpath(path, root or ".").replace(os.sep, "/")


def load(path: str, root: str | None = None) -> tuple[Settings | None, list[Problem]]:
    """The settings of one file, None without any; and its problems.

    Patterns are relative to `root`, which is the directory of the file unless another one is given.
    """
    problems: list[Problem] = []
    values = _values(path, problems, ())
    if values is None:
        return None, problems
    root = os.path.dirname(path) if root is None else root
    excluded = Patterns(values.get("exclude", ()))
    for key in (*_TABLES, *_GRADES):
        field_name = key.replace("-", "_")
        values[field_name] = tuple(values.get(field_name, {}).items())
    return Settings(root=root, path=path, excluded=excluded, **values), problems


def _values(path: str, problems: list[Problem], above: tuple[str, ...]) -> dict[str, Any] | None:
    """The settings of a file and of those that it extends; None if it has none.

    Its own lists, flags and strings take the place of those that it extends; tables are merged.
    """
    section = _section(path, problems)
    if section is None:
        return None
    if not isinstance(section, dict):
        message = "[tool.zerograd] is not a table; its settings are not used"
        problems.append(Problem(path, message))
        return None
    own = _understood(path, section, problems)
    extended = own.pop("extend", None)
    if extended is None:
        return own
    base = os.path.normpath(os.path.join(os.path.dirname(path), os.path.expanduser(extended)))
    if base in (path, *above):
        message = f"[tool.zerograd] extend leads back to {base}; it is not used"
        problems.append(Problem(path, message, _line_of(path, "extend")))
        return own
    values = _values(base, problems, (path, *above)) or {}
    for key, value in own.items():
        values[key] = {**values.get(key, {}), **value} if isinstance(value, dict) else value
    return values


def _section(path: str, problems: list[Problem]) -> object:
    """`[tool.zerograd]`, or all of a file that is only about zerograd; None without settings."""
    if os.path.exists(path) and not os.path.isfile(path):
        # A pipe or a device could be read without end.
        problems.append(Problem(path, "is not a file; its settings are not used"))
        return None
    try:
        with open(path, "rb") as stream:
            data = stream.read()
    except (OSError, ValueError) as error:  # a name with a null byte is no OSError
        why = getattr(error, "strerror", None) or error
        problems.append(Problem(path, f"cannot be read: {why}; its settings are not used"))
        return None
    try:
        table = _parse(data)
    except (ValueError, RecursionError) as error:
        problems.append(_broken(path, error, data))
        return None
    tool = table.get("tool", {})
    section = tool.get("zerograd") if isinstance(tool, dict) else None
    return table if section is None and os.path.basename(path) != FILE else section


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


def _understood(path: str, section: dict[str, Any], problems: list[Problem]) -> dict[str, Any]:
    """The settings that have the right shape, by the names of the fields of `Settings`."""

    def wrong(message: str, key: str) -> None:
        problems.append(Problem(path, f"[tool.zerograd] {message}", _line_of(path, key)))

    values: dict[str, Any] = {}
    for key, value in section.items():
        name = key.replace("-", "_")
        if key in _LISTS and _is_list(value):
            values[name] = tuple(value)
        elif (key in _FLAGS and isinstance(value, bool)) or (
            key in _TEXTS and isinstance(value, str)
        ):
            values[name] = value
        elif key in _TABLES and isinstance(value, dict) and all(map(_is_list, value.values())):
            values[name] = {pattern: tuple(names) for pattern, names in value.items()}
        elif key in _GRADES and isinstance(value, dict):
            values[name] = {rule: grade for rule, grade in value.items() if _is_severity(grade)}
            for rule, grade in value.items():
                if not _is_severity(grade):
                    wrong(f"{key} of {rule} must be {_ONE_OF}, not {grade!r}; it is not used", rule)
        elif key in KEYS:
            wrong(f"{key} must be {_SHAPES[key]}; it is not used", key)
        else:
            wrong(f"has no setting {key!r}{_hint(key)}", key)
    return values


def _is_severity(value: object) -> bool:
    return isinstance(value, str) and value in SEVERITIES


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
