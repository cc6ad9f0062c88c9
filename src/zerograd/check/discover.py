"""Finds the files of a check: walks directories, obeys .gitignore and excludes, skips tests.

A file that the user names is always checked. Symbolic links to directories are not followed, so a walk always
ends; a link to a file of the same walk is left out.
"""

from __future__ import annotations

import errno
import os
import stat
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from zerograd.check.gitignore import Patterns
from zerograd.check.settings import DEFAULT, Settings, relative_to
from zerograd.check.settings import FILE as PYPROJECT
from zerograd.check.settings import load as load_settings
from zerograd.core.finding import Problem
from zerograd.core.records import dataclass, field

SUFFIXES = (".py", ".ipynb")
EXCLUDED = frozenset(
    ".bzr .direnv .eggs .git .git-rewrite .hg .ipynb_checkpoints .mypy_cache .nox .pants.d .pyenv "
    ".pytest_cache .pytype .ruff_cache .svn .tox .venv .vscode __pycache__ __pypackages__ _build "
    "buck-out build dist node_modules site-packages venv".split()
)
TEST_DIRECTORIES = frozenset(("test", "tests"))
_TEST_ENDS = ("_test.py", "_test.ipynb")

Loader = Callable[[str], "tuple[Settings | None, list[Problem]]"]


class Target(NamedTuple):
    """A file to check, the time of its last change, and its settings."""

    path: str
    mtime: int
    size: int
    settings: Settings = DEFAULT
    named: bool = False


class _Folder(NamedTuple):
    """Files with the same prefix and settings."""

    prefix: str
    names: str
    """Their names, with a NUL between, which no name contains."""
    stamps: array[int]
    """The time and the size of each."""
    settings: Settings
    named: bool


@dataclass(eq=False)
class Targets:
    """The files of one check, in order. There may be a hundred thousand, so `Target`s are made for one folder at a time."""

    _folders: list[_Folder] = field(default_factory=list)
    _starts: list[int] = field(default_factory=list)
    """The number of the first file of each folder."""
    _length: int = 0
    _at: int = -1
    _here: list[Target] = field(default_factory=list)
    """The files of the folder that was asked for last."""

    def add(
        self,
        prefix: str,
        files: Sequence[tuple[str, os.stat_result]],
        settings: Settings,
        *,
        named: bool = False,
    ) -> None:
        """Add files, each with its name and status."""
        names, stamps = [], array("q")
        for name, status in files:
            names.append(name)
            stamps.extend(stamp_of(status))
        if names:
            self._folders.append(_Folder(prefix, "\0".join(names), stamps, settings, named))
            self._starts.append(self._length)
            self._length += len(names)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Target]:
        return map(self.__getitem__, range(self._length))

    def __getitem__(self, number: int) -> Target:
        at = bisect_right(self._starts, number) - 1
        if at != self._at:
            prefix, names, stamps, settings, named = self._folders[at]
            self._at, self._here = at, []
            for name, mtime, size in zip(names.split("\0"), stamps[::2], stamps[1::2], strict=True):
                self._here.append(Target(prefix + name, mtime, size, settings, named))
        return self._here[number - self._starts[at]]


_LATEST = 2**63 - 1


def stamp_of(status: os.stat_result) -> tuple[int, int]:
    """The time of the last change of a file, and its size; the year 2262 is as late as it gets."""
    return min(status.st_mtime_ns, _LATEST), status.st_size


@dataclass
class FoundFiles:
    """The files of one check, and the paths that could not be read."""

    targets: Targets = field(default_factory=Targets)
    problems: list[Problem] = field(default_factory=list)


class _Directory(NamedTuple):
    """A directory to walk, with its settings and excludes."""

    prefix: str
    """The prefix of the names in it, as the user sees them."""
    absolute: str
    settings: Settings
    filters: tuple[tuple[Patterns, str], ...]
    """The patterns that exclude, the strongest last, each with the path from its file to here."""

    def below(self, name: str) -> _Directory:
        """A directory inside this one."""
        filters = tuple((patterns, f"{way}{name}/") for patterns, way in self.filters)
        absolute = os.path.join(self.absolute, name)
        return _Directory(self.prefix + name + os.sep, absolute, self.settings, filters)


class Discovery:
    """One search for files; every settings file is read once."""

    def __init__(
        self,
        exclude: Sequence[str] = (),
        *,
        include_tests: bool = False,
        loader: Loader = load_settings,
        config: str | None = None,
    ) -> None:
        self.found = FoundFiles()
        self._exclude = exclude
        self._include_tests = include_tests
        self._loader = loader
        self._settings: dict[str, Settings | None] = {}
        self._taken: set[str] | None = None
        """The paths of all targets, from the second path on: below one folder, none is met twice."""
        self._met = 0
        self._inside = ""
        self._tests_left_out = False
        self._fixed: Settings | None = None
        """The settings of all files, where the user has named them."""
        if config is not None:
            fixed, problems = load_settings(config, os.getcwd())
            self._fixed = fixed or DEFAULT
            self.found.problems += problems

    def add(self, path: str) -> None:
        """Add a file, or every file below a directory that should be checked."""
        if os.pardir not in path:
            path = os.path.normpath(path)
        if self._taken is None and self.found.targets:
            self._taken = {target.path for target in self.found.targets}
        try:
            status = os.stat(path)
        except (OSError, ValueError) as error:
            self._problem(path, _why_not(error))
            return
        if stat.S_ISREG(status.st_mode):
            settings = self.settings_above(os.path.dirname(os.path.abspath(path)))
            if self._is_new(path):
                self.found.targets.add("", [(path, status)], settings, named=True)
        elif stat.S_ISDIR(status.st_mode):
            self._add_directory(path)
        else:
            self._problem(
                path, "is not a regular file; its text can be handed in: zerograd check -"
            )

    def settings_above(self, directory: str) -> Settings:
        """The settings of the nearest pyproject.toml that has any, from here upwards."""
        if self._fixed is not None:
            return self._fixed
        while True:
            if os.path.isfile(os.path.join(directory, PYPROJECT)):
                own = self._settings_in(directory)
                if own is not None:
                    return own
            parent = os.path.dirname(directory)
            if parent == directory:
                return DEFAULT
            directory = parent

    def leaves_out(self, path: str, top: str) -> bool:
        """Whether a check of the directory `top` leaves out this file, which need not exist."""
        path, top = os.path.abspath(path), os.path.abspath(top)
        way = os.path.relpath(path, top)
        if way.startswith(os.pardir) or os.path.isabs(way):
            top, way = os.path.split(path)
        here = self._top(top, "")
        *folders, name = way.split(os.sep)
        for folder in folders:
            if self._skips(here, folder, is_directory=True):
                return True
            here = here.below(folder)
            if os.path.lexists(os.path.join(here.absolute, "pyvenv.cfg")):
                return True
        return self._skips(here, name, is_directory=False)

    def _skips(self, here: _Directory, name: str, *, is_directory: bool) -> bool:
        """Whether a walk leaves out this entry of a directory."""
        there = (one for one in _DECIDING if os.path.lexists(os.path.join(here.absolute, one)))
        here = self._entered(here, frozenset(there))
        active = tuple(one for one in reversed(here.filters) if one[0])
        if _excluded(name, active, is_directory=is_directory):
            return True
        with_tests = self._include_tests or here.settings.include_tests
        return not with_tests and _is_test(name, is_directory=is_directory)

    def _settings_in(self, directory: str) -> Settings | None:
        if directory not in self._settings:
            self._settings[directory], problems = self._loader(os.path.join(directory, PYPROJECT))
            self.found.problems += problems
        return self._settings[directory]

    def _add_directory(self, top: str) -> None:
        absolute = os.path.abspath(top)
        prefix = "" if os.path.normpath(top) == "." else os.path.join(top, "")
        todo = [self._top(absolute, prefix)]
        problems = len(self.found.problems)
        self._met = 0
        self._inside = os.path.join(os.path.realpath(top), "")
        self._tests_left_out = False
        while todo:
            # Depth first and in order, so that a report reads like a listing.
            here = todo.pop()
            todo.extend(reversed(list(self._walk(here, is_top=here.absolute == absolute))))
        if not self._met and problems == len(self.found.problems):
            self._problem(top, _NOTHING_BUT_TESTS if self._tests_left_out else _NOTHING)

    def _top(self, absolute: str, prefix: str) -> _Directory:
        """The directory where a walk begins, with what the directories above it say."""
        settings = self.settings_above(absolute)
        filters = (
            *_ignores_above(absolute),
            (settings.excluded, _way(absolute, settings.root)),
            (Patterns(self._exclude), _way(absolute, os.getcwd())),
        )
        return _Directory(prefix, absolute, settings, filters)

    def _walk(self, here: _Directory, *, is_top: bool) -> Iterator[_Directory]:
        """Add the files of one directory; the directories in it that should be walked."""
        try:
            with os.scandir(here.prefix or ".") as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except OSError as error:
            self._problem(here.prefix.rstrip(os.sep), _why_not(error))
            return
        names = {entry.name for entry in entries if entry.name in _DECIDING}
        if "pyvenv.cfg" in names and not is_top:
            return
        if names:
            here = self._entered(here, names)
        with_tests = self._include_tests or here.settings.include_tests
        active = tuple(one for one in reversed(here.filters) if one[0])
        files: list[tuple[str, os.stat_result]] = []
        for entry in entries:
            name = entry.name
            is_directory = entry.is_dir(follow_symlinks=False)
            if not is_directory and not name.endswith(SUFFIXES):
                continue
            if (active or is_directory) and _excluded(name, active, is_directory=is_directory):
                continue
            if not with_tests and _is_test(name, is_directory=is_directory):
                self._tests_left_out = True
            elif is_directory:
                yield here.below(name)
            else:
                path = here.prefix + name
                status = self._status(entry, path)
                if status is not None and self._is_new(path):
                    if not (entry.is_symlink() and self._is_inside(path)):
                        files.append((name, status))
        self.found.targets.add(here.prefix, files, here.settings)

    def _entered(self, here: _Directory, names: AbstractSet[str]) -> _Directory:
        """The directory with its own ignore file and settings."""
        *ignores, own, ours = here.filters
        settings = here.settings
        if ".gitignore" in names:
            ignores.append((_read_ignore(here.absolute), ""))
        if PYPROJECT in names and self._fixed is None:
            settings = self._settings_in(here.absolute) or settings
            if settings is not here.settings:
                own = (settings.excluded, "")
        return here._replace(settings=settings, filters=(*ignores, own, ours))

    def _status(self, entry: os.DirEntry[str], path: str) -> os.stat_result | None:
        """The status of a regular file; None if the entry is none."""
        try:
            status = entry.stat()
        except OSError as error:
            # Editors lock a file with a broken link.
            if not entry.name.startswith(".#"):
                self._problem(path, _why_not(error))
            return None
        return status if stat.S_ISREG(status.st_mode) else None

    def _is_inside(self, link: str) -> bool:
        """Whether a link leads to a file of the directory that is walked: it is checked where it lies."""
        return os.path.realpath(link).startswith(self._inside)

    def _is_new(self, path: str) -> bool:
        """Whether a file is met for the first time."""
        self._met += 1
        if self._taken is None:
            return True
        known = path in self._taken
        self._taken.add(path)
        return not known

    def _problem(self, path: str, message: str) -> None:
        self.found.problems.append(Problem(path, message))


_DECIDING = frozenset((".gitignore", "pyvenv.cfg", PYPROJECT))
_NOTHING = "holds no Python file or notebook that is not excluded"
_NOTHING_BUT_TESTS = "holds nothing but tests, which are left out; check them with --include-tests"


def _excluded(name: str, filters: tuple[tuple[Patterns, str], ...], *, is_directory: bool) -> bool:
    for patterns, way in filters:
        decided = patterns.excludes(way + name, is_directory=is_directory)
        if decided is not None:
            return decided
    return is_directory and name in EXCLUDED


def _is_test(name: str, *, is_directory: bool) -> bool:
    if is_directory:
        return name in TEST_DIRECTORIES
    return name.startswith("test_") or name.endswith(_TEST_ENDS) or name == "conftest.py"


def _way(directory: str, root: str) -> str:
    """The path from `root` to a directory below it, as the patterns of `root` need it."""
    way = relative_to(directory, root)
    return "" if way == "." else f"{way}/"


def _read_ignore(directory: str, name: str = ".gitignore") -> Patterns:
    path = os.path.join(directory, name)
    if not os.path.isfile(path):
        return Patterns(())  # a pipe or a device could be read without end
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return Patterns(stream)
    except OSError:
        return Patterns(())


def _ignores_above(directory: str) -> list[tuple[Patterns, str]]:
    """The ignore files of the git repository around a directory, the outermost first."""
    found: list[tuple[Patterns, str]] = []
    above = directory
    while True:
        if above != directory:
            found.append((_read_ignore(above), _way(directory, above)))
        if os.path.lexists(os.path.join(above, ".git")):
            exclude = os.path.join(".git", "info", "exclude")
            found.append((_read_ignore(above, exclude), _way(directory, above)))
            return found[::-1]
        parent = os.path.dirname(above)
        if parent == above:
            return []
        above = parent


def _why_not(error: OSError | ValueError) -> str:
    if isinstance(error, FileNotFoundError):
        return "does not exist"
    if isinstance(error, PermissionError):
        return "cannot be looked into: permission denied; change its mode or exclude it"
    if isinstance(error, OSError) and error.errno == errno.ELOOP:
        return "is a symbolic link that leads back to itself"
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return f"cannot be looked into: {reason}"
