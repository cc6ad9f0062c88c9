"""Measures time and memory of `zerograd report` for a recording of a given size.

    .venv/bin/python bench/page_memory.py [MEGABYTES]        default: 1024

First it writes the recording: steps with windows of changing length, one line per event, and the
norms of the steps, like a run in which nothing repeats.
"""

from __future__ import annotations

import json
import math
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

KINDS = ("zero", "backward", "clip", "step")


def write(path: Path, *, megabytes: float = math.inf, most_steps: float = math.inf) -> int:
    """Write a recording of about this size. Returns the number of steps."""
    draw = random.Random(0)
    steps = 0
    with path.open("w", encoding="ascii") as stream:
        stream.write('{"zerograd": "0.1.0", "format": 2, "program": "train.py"}\n')
        for number, kind in enumerate(KINDS):
            event = {"kind": kind, "site": {"path": "train.py", "line": number + 1}}
            made = {"define": number, "subject": "SGD#1", "event": event}
            stream.write(f"{json.dumps(made)}\n")
        while stream.tell() < megabytes * 1e6 and steps < most_steps:
            for _ in range(128):
                clip = "2\n" if draw.random() < 0.5 else ""
                stream.write("0\n" + "1\n" * draw.randint(1, 4) + f"{clip}3\n")
            norms = {"norms": "SGD#1", "first": steps + 1, "each": 1, "used": [1.23456] * 128}
            stream.write(f"{json.dumps(norms)}\n")
            steps += 128
        stream.write('{"end": true}\n')
    return steps


def main() -> None:
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 1024
    with tempfile.TemporaryDirectory() as folder:
        recording, page = Path(folder, "run.jsonl"), Path(folder, "page.html")
        steps = write(recording, megabytes=megabytes)
        print(f"recording {recording.stat().st_size / 1e6:9.1f} MB, {steps:,} steps")
        begun = time.perf_counter()
        words = ["report", str(recording), "-o", str(page)]
        subprocess.run([sys.executable, "-m", "zerograd", *words], check=True, capture_output=True)
        print(f"page      {page.stat().st_size / 1e6:9.1f} MB")
        print(f"time      {time.perf_counter() - begun:9.1f} s")
        used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        print(f"memory    {used:9.1f} MB at most")


if __name__ == "__main__":
    main()
