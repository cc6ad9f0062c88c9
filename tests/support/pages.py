"""Recordings like those of a run, made without torch, for the tests of pages."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

from zerograd import __version__
from zerograd.core.events import Backward, Clip, Event, Measured, Site, Step, Zero
from zerograd.recording.json_codec import event_data
from zerograd.recording.writer import FORMAT

SCRIPT = """\
import torch

for x, y in loader:
    optimizer.zero_grad()
    loss = loss_fn(model(x), y)
    loss.backward()
    clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
"""
LINES: dict[type[Event], int] = {Zero: 4, Backward: 6, Clip: 7, Step: 8}
NASTY = "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=1>\u2028\u202e'\"&amp;"


def event(kind: type[Event], path: str = "train.py", measured: Measured | None = None) -> Event:
    """An event of the script above."""
    site = Site(path, LINES[kind])
    return Backward(site, measured=measured) if kind is Backward else kind(site)


def stale_run(
    path: Path, steps: int, missing: Sequence[int] = (), *, rank: int | None = None
) -> Path:
    """A run with two backward calls per step, some clips and some missing clears.

    It is written without repetitions, which is a quick way to make a long recording.
    """
    draw = random.Random(0)
    about = {} if rank is None else {"rank": rank}
    lines = [
        {"zerograd": __version__, "format": FORMAT, "program": "train.py", **about},
        {"subject": "SGD#1", "title": "SGD, 2 parameters", "parameters": 2},
        {"source": "train.py", "text": SCRIPT},
        *(
            {"define": at, "subject": "SGD#1", "event": event_data(event(kind))}
            for at, kind in enumerate(LINES)
        ),
    ]
    used = [1.0 + draw.random() for _ in range(steps)]
    right: list[float | None] = [None] * steps
    with path.open("w", encoding="ascii") as stream:
        stream.writelines(f"{json.dumps(line)}\n" for line in lines)
        for step in range(steps):
            clear = "" if step in missing else "0\n"
            stream.write(f"{clear}1\n1\n{draw.choice(('', '2' + chr(10)))}3\n")
            if not clear:
                right[step], used[step] = used[step], used[step] + 1.0
        for at in range(0, steps, 128):
            line = {"norms": "SGD#1", "first": at + 1, "each": 1}
            line |= {"used": used[at : at + 128], "right": right[at : at + 128]}
            stream.write(f"{json.dumps(line)}\n")
        stream.write('{"end": true}\n')
    return path
