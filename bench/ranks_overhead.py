"""Times what watching ranks costs: DDP and FSDP2, two and four gloo ranks, and the store.

Ratios: the same training bare, watched, and bare once more, in a new order each round; what bare is
off from bare is what this machine cannot measure. Self time: processor time of what zerograd does in
a step, and of that for the sake of ranks, to the processor time of the step: other programs on the
machine do not change it. What is waited for the store is beside it, and they do change that. Store: what one operation takes, alone and while
others use the store as well, and what that comes to at 1,024 ranks.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

TRAINING = Path(__file__).with_name("ranks_training.py")
LONGEST = 600
WARM_UP = 100
"""Steps whose self time does not count."""
WORLDS = (2, 4)
MODELS = {"small": ("--width=64", "--depth=2", "--batch=32"), "3M": ("--width=1024", "--depth=3")}
ENV = {**os.environ, "OMP_NUM_THREADS": "1"}

CLOCKS = """\
import atexit, json, os, sys, time
from zerograd.runtime import replicas, sync, watcher
spent = {"ranks": 0, "waits": 0, "all": 0, "deep": 0}
calls = {"ranks": 0, "all": 0}
steps = 0
def timed(owner, name, key):
    before = getattr(owner, name)
    def call(*args, **kwargs):
        outer = key == "ranks" or not spent["deep"]
        spent["deep"] += 1
        began, used = time.perf_counter_ns(), time.thread_time_ns()
        try:
            return before(*args, **kwargs)
        finally:
            spent["deep"] -= 1
            if outer:
                used = time.thread_time_ns() - used
                spent[key] += used
                calls[key] += 1
                if key == "ranks":
                    spent["waits"] += time.perf_counter_ns() - began - used
    setattr(owner, name, call)
for name in ("told", "before_step", "stepping", "forwarded", "begins"):
    timed(sync.Sync, name, "ranks")
for name in ("step_begins", "found"):
    timed(replicas.Replicas, name, "ranks")
for name in ("backward_begins", "backward_ended", "step_begins", "step_ended", "zeroed"):
    timed(watcher.Watcher, name, "all")
begins = replicas.Replicas.step_begins
def step_begins(*args):
    global steps
    steps += 1
    if steps == WARM_UP:
        spent.update(dict.fromkeys(spent, 0))
        calls.update(dict.fromkeys(calls, 0))
    return begins(*args)
replicas.Replicas.step_begins = step_begins
class Empty:
    def call(self): pass
def leave():
    # What the clocks themselves take.
    before = {**spent, "calls": dict(calls)}
    timed(Empty, "call", "all")
    for _ in range(1000):
        Empty().call()
    clock = (spent["all"] - before["all"]) / 1000
    spent.update(before, ranks=before["ranks"] - clock * before["calls"]["ranks"],
                 all=before["all"] - clock * before["calls"]["all"])
    if os.environ.get("RANK") == "1":
        with open(os.environ["ZEROGRAD_CLOCKS"], "w") as stream:
            json.dump(spent, stream)
atexit.register(leave)
"""


def step(world: int, words: Sequence[str], *, watched: bool, steps: int, check: str) -> float:
    """Milliseconds of a step."""
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "time"
        command = [sys.executable, "-m"]
        if watched:
            command += ["zerograd", "run", "--quiet", f"--check-ranks={check}", "-m"]
        command += ["torch.distributed.run", "--standalone", f"--nproc-per-node={world}"]
        command += [str(TRAINING), *words, f"--steps={steps}", "--warm-up=20", f"--time={told}"]
        subprocess.run(command, env=ENV, timeout=LONGEST, check=True, capture_output=True)
        return float(told.read_text(encoding="utf-8").split()[0]) * 1e3


def ratios(rounds: int, steps: int, worlds: Sequence[int]) -> None:
    """Watched to bare, and bare to bare."""
    print(f"{'':24}{'step':>10}{'watched':>10}{'bare again':>12}   medians of {rounds} rounds")
    for wrap in ("ddp", "fsdp"):
        for world in worlds:
            words = (f"--wrap={wrap}", *MODELS["small"])
            times: dict[str, list[float]] = {"bare": [], "watched": [], "again": []}
            for _ in range(rounds):
                for way in random.sample(sorted(times), 3):
                    one = step(world, words, watched=way == "watched", steps=steps, check="default")
                    times[way].append(one)
            bare = times["bare"]
            watched = statistics.median(a / b for a, b in zip(times["watched"], bare, strict=True))
            again = statistics.median(a / b for a, b in zip(times["again"], bare, strict=True))
            name = f"{wrap}, {world} ranks"
            print(
                f"{name:24}{statistics.median(bare):8.2f}ms{watched:10.3f}{again:12.3f}", flush=True
            )


def self_time(steps: int, worlds: Sequence[int]) -> None:
    """What a step holds of zerograd's own, on a rank that compares."""
    print(f"\n{'':34}{'step':>10}{'all':>10}{'ranks':>10}{'share':>9}{'waiting':>11}")
    for wrap in ("ddp", "fsdp"):
        for name, model in MODELS.items():
            for check in ("default", "every-step"):
                _self_time(wrap, worlds[0], name, model, check, steps)


def _self_time(
    wrap: str, world: int, name: str, model: Sequence[str], check: str, steps: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        clocks = Path(folder) / "spent.json"
        script = Path(folder) / "training.py"
        script.write_text(
            f"WARM_UP = {WARM_UP}\n{CLOCKS}\nimport runpy\nrunpy.run_path({str(TRAINING)!r}, run_name='__main__')\n",
            encoding="utf-8",
        )
        told = Path(folder) / "time"
        command = [sys.executable, "-m", "zerograd", "run", "--quiet", f"--check-ranks={check}"]
        command += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={world}"]
        command += [str(script), f"--wrap={wrap}", *model, f"--steps={steps}", f"--time={told}"]
        env = {**ENV, "ZEROGRAD_CLOCKS": str(clocks)}
        subprocess.run(command, env=env, timeout=LONGEST, check=True, capture_output=True)
        spent = json.loads(clocks.read_text(encoding="utf-8"))
        whole = float(told.read_text(encoding="utf-8").split()[1]) * 1e6
        ranks, both, waits = (
            spent[key] / 1e3 / (steps - WARM_UP) for key in ("ranks", "all", "waits")
        )
        label = f"{wrap}, {world} ranks, {name}, {check}"
        share = 100 * ranks / whole
        row = f"{label:34}{whole / 1e3:8.2f}ms{both:8.1f}µs{ranks:8.1f}µs{share:8.2f}%"
        print(f"{row}{waits:9.1f}µs", flush=True)


# The store

CLIENT = """\
import datetime, json, statistics, sys, time
import torch.distributed as dist
port, number, rounds = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
store = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=datetime.timedelta(seconds=60))
value = "x" * 3000
store.set(f"ring/{number}", value)
store.set(f"ready/{number}", "")
store.wait(["go"])
spent = {"set": [], "check": [], "get": []}
for _ in range(rounds):
    for name, call in (
        ("set", lambda: store.set(f"ring/{number}", value)),
        ("check", lambda: store.check(["ring/0"])),
        ("get", lambda: store.get("ring/0")),
    ):
        began = time.perf_counter()
        call()
        spent[name].append(time.perf_counter() - began)
print(json.dumps({name: 1e6 * statistics.median(times) for name, times in spent.items()}))
"""


def store(clients: int, rounds: int = 1000) -> dict[str, float]:
    """Microseconds of each operation, as each of some clients sees it that all go on at once."""
    import datetime as dt

    from torch._C._distributed_c10d import TCPStore

    server = TCPStore("127.0.0.1", 0, is_master=True, timeout=dt.timedelta(seconds=60))
    words = [sys.executable, "-c", CLIENT, str(server.port)]
    started = [
        subprocess.Popen([*words, str(number), str(rounds)], stdout=subprocess.PIPE, env=ENV)
        for number in range(clients)
    ]
    server.wait([f"ready/{number}" for number in range(clients)])
    server.set("go", "")
    told = [json.loads(one.communicate(timeout=LONGEST)[0]) for one in started]
    return {name: statistics.mean(one[name] for one in told) for name in told[0]}


def estimate() -> None:
    """What the check costs at 1,024 ranks, on paper."""
    from zerograd.runtime.replicas import EVERY

    print(f"\n{'store, clients at once':32}{'set':>10}{'check':>10}{'get':>10}{'each':>10}")
    served = 0.0
    for clients in (1, 2, 4):
        told = store(clients)
        total = sum(told.values())
        served = total / clients
        row = "".join(f"{told[name]:8.0f}µs" for name in ("set", "check", "get"))
        print(f"{clients:<32}{row}{served:8.0f}µs")
    alone = sum(store(1).values())
    worst = 1024 * served
    print(
        f"1,024 ranks, one store: each serves {served:.0f} µs a rank and check; all at once, the last "
        f"waits {worst / 1e3:.0f} ms, every {EVERY} steps: {worst / EVERY / 1e3:.2f} ms a step at "
        f"worst, {alone / EVERY:.0f} µs where they don't meet"
    )


def main() -> int:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=420)
    parser.add_argument("--worlds", type=int, nargs="+", default=WORLDS)
    parser.add_argument("--only", choices=("ratios", "self", "store"))
    options = parser.parse_args()
    began = time.monotonic()
    if options.only in (None, "ratios"):
        ratios(options.rounds, options.steps, options.worlds)
    if options.only in (None, "self"):
        self_time(options.steps, options.worlds)
    if options.only in (None, "store"):
        estimate()
    print(f"\n{time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
