"""The corpus: pinned packages, downloaded and unpacked once; never installed, built or imported.

DIR/archives/<archive>          the file from the package index, checked against its sha256
DIR/src/<name>-<version>/…      its Python files and notebooks, and nothing else
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from index import FetchError, connect

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PINNED = Path(__file__).with_name("ecosystem.txt")
SOURCES = (".py", ".ipynb")
LARGEST_FILE = 50_000_000
LARGEST_PACKAGE = 500_000_000

_LINE = re.compile(
    r"(?P<name>[\w.-]+)==(?P<version>\S+)\s+(?P<archive>[\w.+-]+)\s+sha256:(?P<sha256>[0-9a-f]{64})"
)
_TEST = re.compile(r"(^|/)tests?/|(^|/)(test_[^/]*|[^/]*_test\.(py|ipynb)|conftest\.py)$")


@dataclass(frozen=True)
class Package:
    """One pinned archive of one package."""

    name: str
    version: str
    archive: str
    sha256: str

    @property
    def folder(self) -> str:
        """The directory of its sources in the corpus."""
        return f"{self.name}-{self.version}"


@dataclass(frozen=True)
class Size:
    """The amount of code in the corpus."""

    files: int
    backward: int
    backward_in_tests: int


class CorpusError(Exception):
    """A list, an archive or a package that cannot be used."""


def default_directory() -> Path:
    """A directory outside the repository: linters skip files that a `.gitignore` covers."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "zerograd-bench" / "ecosystem"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of a benchmark that checks the corpus."""
    parser.add_argument(
        "--corpus",
        type=Path,
        default=default_directory(),
        metavar="DIR",
        help="directory for downloaded and unpacked packages (default: %(default)s)",
    )
    parser.add_argument("--list", type=Path, default=PINNED, metavar="FILE", help="other packages")
    parser.add_argument("--zerograd", metavar="COMMAND", help="the checker")


def read_list(path: Path) -> list[Package]:
    """The pinned packages, one per line; `#` starts a comment."""
    packages = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        match = _LINE.fullmatch(text)
        if match is None:
            raise CorpusError(f"{path}:{number}: not `name==version archive sha256:…`")
        packages.append(Package(**match.groupdict()))
    return packages


def prepare(packages: Sequence[Package], directory: Path) -> Path:
    """Download and unpack what is missing, and return the directory that holds the sources."""
    archives, sources = directory / "archives", directory / "src"
    archives.mkdir(parents=True, exist_ok=True)
    sources.mkdir(exist_ok=True)
    missing = [package for package in packages if not (sources / package.folder).is_dir()]
    _download([package for package in missing if not _is_whole(package, archives)], archives)
    for number, package in enumerate(missing, 1):
        progress("unpacking", number, len(missing), package.archive)
        _unpack(archives / package.archive, sources / package.folder)
    return sources


def measure(directory: Path) -> Size:
    """Count the files, and the files that call backward: the denominator of every rate."""
    files = backward = tests = 0
    for path in python_files(directory):
        files += 1
        if b".backward(" in path.read_bytes():
            if is_test(path.relative_to(directory).as_posix()):
                tests += 1
            else:
                backward += 1
    return Size(files, backward, tests)


def python_files(directory: Path) -> Iterator[Path]:
    """Every Python file and notebook below a directory."""
    return (path for path in directory.rglob("*") if path.suffix in SOURCES and path.is_file())


def is_test(path: str) -> bool:
    """Whether the checker skips the file by default. Such a file must not count for a rate."""
    return _TEST.search(path) is not None


def progress(verb: str, number: int, total: int, what: str) -> None:
    """Print a line on standard error that the next one replaces; in a pipe, every tenth line."""
    text = f"{verb} {number}/{total} {what}"
    if sys.stderr.isatty():
        end = "\n" if number == total else ""
        print(f"\r\033[K{text}", end=end, file=sys.stderr, flush=True)
    elif number % 10 == 0 or number == total:
        print(text, file=sys.stderr, flush=True)


def _is_whole(package: Package, archives: Path) -> bool:
    path = archives / package.archive
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == package.sha256


def _download(packages: Sequence[Package], archives: Path) -> None:
    if not packages:
        return
    try:
        with connect() as fetch:
            for number, package in enumerate(packages, 1):
                progress("downloading", number, len(packages), package.archive)
                fetch(package.name, package.archive, package.sha256, archives / package.archive)
    except FetchError as error:
        raise CorpusError(str(error)) from error


def _unpack(archive: Path, to: Path) -> None:
    part = to.with_name(to.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    total = 0
    for member, content in _members(archive):
        total += len(content)
        if total > LARGEST_PACKAGE:
            raise CorpusError(f"{archive.name}: unpacks to more than {LARGEST_PACKAGE} bytes")
        path = part / member
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    part.replace(to)


def _members(archive: Path) -> Iterator[tuple[PurePosixPath, bytes]]:
    """The source files of an archive. Links, devices and outside paths are skipped."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as bundle:
            # An sdist has one top-level folder, a wheel does not.
            inside = 0 if archive.suffix == ".whl" else 1
            for entry in bundle.infolist():
                member = None if entry.is_dir() else _safe(entry.filename, entry.file_size, inside)
                if member is not None:
                    yield member, bundle.read(entry)
        return
    with tarfile.open(archive) as tar:
        for item in tar:
            member = _safe(item.name, item.size, 1) if item.isreg() else None
            stream = tar.extractfile(item) if member is not None else None
            if member is not None and stream is not None:
                yield member, stream.read()


def _safe(name: str, size: int, inside: int) -> PurePosixPath | None:
    path = PurePosixPath(name)
    if path.suffix not in SOURCES or size > LARGEST_FILE:
        return None
    if path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name:
        return None
    return PurePosixPath(*path.parts[inside:]) if len(path.parts) > inside else None
