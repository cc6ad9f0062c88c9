"""Recordings like those of a run, made without torch, for the tests of pages."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

from zerograd import __version__
from zerograd.core.events import Backward, Clip, Event, Measured, Site, Step, Zero
from zerograd.recording.json_codec import event_data
from zerograd.recording.writer import FORMAT, Recorder

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


def pair_run(path: Path, rounds: int, missing: int) -> Path:
    """Two optimizers of which one is not cleared in one round.

    `opt_d` steps in each round; `opt_g` in every second one, and adds to the gradients of `opt_d`.
    """
    recorder = Recorder(str(path), program="train.py")
    for name, title in (("D", "opt_d"), ("G", "opt_g")):
        recorder.title(name, title, 2)
    used = [1.0] * rounds
    for at in range(rounds):
        for kind in (Zero, Backward, Step):
            if kind is not Zero or at != missing:
                measured = Measured(2.5, 4.25, ("weight",), 1) if at == missing else None
                recorder.write("D", event(kind, measured=measured))
        if at % 2 == 0:
            for kind in (Zero, Backward, Step):
                recorder.write("G", event(kind))
                if kind is Backward:
                    recorder.write("D", event(kind))
    right: list[float | None] = [None] * rounds
    if missing < rounds:
        used[missing], right[missing] = 4.25, 2.5
    for first in range(0, rounds, 128):
        last = first + 128
        recorder.norms("D", first + 1, used[first:last], right[first:last])
    recorder.close(clean=True)
    return path


def shared_run(path: Path, steps: int, missing: int, *, rank: int) -> Path:
    """One rank of two that share gradients at every backward, which is advice; one clear is missing."""
    recorder = Recorder(str(path), program="train.py", rank=rank)
    recorder.title("SGD#1", "SGD, 2 parameters", 2)
    shared = Backward(Site("train.py", LINES[Backward]), synced=True, volume=12)
    for step in range(steps):
        if step != missing:
            recorder.write("SGD#1", event(Zero))
        recorder.write("SGD#1", shared)
        recorder.write("SGD#1", shared)
        recorder.write("SGD#1", event(Step))
    recorder.close(clean=True)
    return path


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
