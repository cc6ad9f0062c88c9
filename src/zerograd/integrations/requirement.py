"""Says clearly if the library of an integration is missing or too old."""

from __future__ import annotations

import re
from importlib import metadata


def require(library: str, least: str) -> None:
    """Raise `ImportError`, with the way out, unless this version of a library or a newer one is installed."""
    needs = f"this integration of zerograd needs {library} {least} or newer"
    way_out = f'pip install "{library}>={least}"'
    try:
        found = metadata.version(library)
    except metadata.PackageNotFoundError:
        raise ImportError(f"{needs}, which is not installed: {way_out}", name=library) from None
    if _numbers(found) < _numbers(least):
        raise ImportError(f"{needs}, and {found} is installed: {way_out}", name=library)


def first_of(libraries: dict[str, str]) -> str:
    """The first library that is installed and new enough, of some that do the same; see `require`."""
    problem: ImportError | None = None
    for library, least in libraries.items():
        try:
            require(library, least)
        except ImportError as error:
            problem = problem or error
        else:
            return library
    assert problem is not None
    raise problem


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])
