"""The file in an environment that makes every Python there look at the variable ZEROGRAD when it starts."""

from __future__ import annotations

import os
import sys
import sysconfig

from zerograd.core.atomic_write import atomic_write

NAME = "zerograd-start.pth"
LINE = (
    "import os; "
    'exec("try:\\n from zerograd.launch.boot.at_start import begin\\nexcept ImportError:\\n pass\\nelse:\\n begin()")'
    ' if os.environ.get("ZEROGRAD") else None\n'
)
"""Without the variable it does nothing; without zerograd, neither."""


def places() -> list[str]:
    """Where the file may be: in the environment of this Python, and in the directory of the user."""
    found = [sysconfig.get_path("purelib")]
    if sys.prefix == sys.base_prefix and not sys.flags.no_user_site:
        found.append(sysconfig.get_path("purelib", sysconfig.get_preferred_scheme("user")))
    return [os.path.join(one, NAME) for one in found]


def written() -> list[str]:
    """The files that are there."""
    return [one for one in places() if os.path.exists(one)]


def write(path: str) -> None:
    """Write the file, whole or not at all. Raises `OSError`."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with atomic_write(path) as stream:
        stream.write(LINE.encode("ascii"))
