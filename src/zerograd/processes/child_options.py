"""The options that a watched process passes to the processes that it starts, through the environment."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass

from zerograd.recording.json_codec import parsed, plain

VARIABLE = "ZEROGRAD_RUN"
"""The environment variable with the options for child processes."""
BOOT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "launch", "boot")
"""Every Python with this directory in its path imports the `sitecustomize` in it first."""


@dataclass(frozen=True)
class ChildOptions:
    """The options that a watched program passes to its child processes."""

    directory: str
    on: str = "warn"
    codes: tuple[str, ...] = ()
    check_ranks: str = "default"
    color: bool = False
    record: str | None = None
    steps: int = 0
    ends: bool = False


def pass_on(options: ChildOptions) -> None:
    """Watch every Python that this process starts from now on."""
    os.environ[VARIABLE] = json.dumps(plain(options))
    path = os.environ.get("PYTHONPATH", "")
    if BOOT not in path.split(os.pathsep):
        os.environ["PYTHONPATH"] = f"{BOOT}{os.pathsep}{path}" if path else BOOT


def from_parent() -> ChildOptions | None:
    """The options from the process that started this one; None if there is none."""
    text = os.environ.get(VARIABLE)
    if not text:
        return None
    try:
        options = parsed(ChildOptions, json.loads(text))
    except ValueError:
        return None
    return options if os.path.isdir(options.directory) else None
