"""Runs the real command in a real process, with a cache of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from support import warm_python

FORGOTTEN_ZERO = """\
import torch

model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in [(torch.ones(1), torch.ones(1))] * 3:
    loss = (model(x) - y).square().mean()
    loss.backward()
    optimizer.step()
"""

RIGHT = FORGOTTEN_ZERO.replace(
    "    loss.backward()", "    optimizer.zero_grad()\n    loss.backward()"
)

Done = subprocess.CompletedProcess[str]


def environment(cache: Path, **more: str) -> dict[str, str]:
    """The environment of a user who has nothing to do with the tests."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("NO_COLOR", "FORCE_COLOR", "TERM")
    }
    return {**kept, "ZEROGRAD_CACHE_DIR": str(cache), "PYTHONUTF8": "1", **more}


def zerograd(*words: str | Path, cwd: Path, stdin: str | bytes | None = None, **env: str) -> Done:
    """`zerograd WORDS…` in a directory; its cache is kept beside the directory.

    It runs in a fork of a warm Python, or, if `env` has variables of Python, in a Python of its own.
    """
    data = stdin.encode() if isinstance(stdin, str) else stdin or b""
    variables = environment(cwd.with_name(f"{cwd.name}.cache"), **env)
    command = ["-m", "zerograd", *map(str, words)]
    runs = words[:1] == ("run",)
    ours = {"PYTHONPATH"} if runs else set()  # nothing of zerograd is imported before a run
    if any(name.startswith("PYTHON") for name in env.keys() - ours):
        done = cold(command, cwd, variables, data)
    else:
        python = warm_python.with_torch() if runs else warm_python.with_commands()
        done = python.run(*command, cwd=cwd, env=variables, stdin=data)
    assert "Traceback" not in done.stdout + done.stderr, done.stdout + done.stderr
    return done


def cold(words: Sequence[str], cwd: Path, env: Mapping[str, str], stdin: bytes = b"") -> Done:
    """`python WORDS…` in a process of its own."""
    done = subprocess.run(
        [sys.executable, *words],
        cwd=cwd,
        env=env,
        input=stdin,
        capture_output=True,
        timeout=180,
        check=False,
    )
    out, err = (stream.decode("utf-8", "backslashreplace") for stream in (done.stdout, done.stderr))
    return subprocess.CompletedProcess(done.args, done.returncode, out, err)


def write(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write files below a folder; the folder."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content, encoding="utf-8")
    return folder
