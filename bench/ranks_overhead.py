"""Times what watching ranks costs: DDP and FSDP2, two and four gloo ranks, and the store.

Ratios: the same training bare, watched, and bare once more, in a new order each round; what bare is
off from bare is what this machine cannot measure. Self time: clocks around what zerograd does in a
step for the sake of ranks, the store included; medians of steps that compare and of those that don't.
Store: what one operation takes, alone and while others use the store as well, and what that comes to
at 1,024 ranks.
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

from zerograd.runtime.replicas import EVERY

TRAINING = Path(__file__).with_name("ranks_training.py")
LONGEST = 600
WARM_UP = 100
"""Steps whose self time does not count."""
WORLDS = (2, 4)
MODELS = {"small": ("--width=64", "--depth=2", "--batch=32"), "3M": ("--width=1024", "--depth=3")}
ENV = {**os.environ, "OMP_NUM_THREADS": "1"}

CLOCKS = """\
import atexit, json, os, statistics, time
from zerograd.runtime import replicas, sync
now = time.perf_counter_ns
spent, rows, last = 0, [], 0
def timed(owner, name):
    before = getattr(owner, name)
    def call(*args, **kwargs):
        global spent
        began = now()
        try:
            return before(*args, **kwargs)
        finally:
            spent += now() - began
    setattr(owner, name, call)
NAMES = ("told", "before_step", "stepping", "forwarded", "begins")
for name in NAMES:
    timed(sync.Sync, name)
timed(replicas.Replicas, "found")
timed(replicas.Replicas, "step_begins")
begins = replicas.Replicas.step_begins
def step_begins(self, *args):
    global spent, last
    checks = self.compared
    begins(self, *args)
    rows.append((self.compared > checks, spent, now() - last))
    spent, last = 0, now()
replicas.Replicas.step_begins = step_begins
class Empty:
    def call(self): pass
timed(Empty, "call")
def leave():
    global spent
    if os.environ.get("RANK") != "1":
        return
    clocks = []
    for _ in range(1000):
        spent = 0
        Empty().call()
        clocks.append(spent)
    clock = statistics.median(clocks) * (len(NAMES) + 2)
    kept = rows[WARM_UP:]
    with open(os.environ["ZEROGRAD_CLOCKS"], "w") as stream:
        json.dump({
            "usual": statistics.median([own for check, own, _ in kept if not check] or [0]) - clock,
            "check": statistics.median([own for check, own, _ in kept if check] or [0]) - clock,
            "step": statistics.median(step for _, _, step in kept),
        }, stream)
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
        return float(told.read_text(encoding="utf-8")) * 1e3


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


def self_time(steps: int, world: int) -> None:
    """What a step holds of zerograd's for the sake of ranks, on a rank that compares."""
    print(f"\n{'':34}{'step':>10}{'usual':>10}{'check':>10}{'a step':>10}{'share':>9}")
    for wrap in ("ddp", "fsdp"):
        for name, model in MODELS.items():
            for check in ("default", "every-step"):
                told = _self_time(wrap, world, model, check, steps)
                usual, checks, whole = (told[key] / 1e3 for key in ("usual", "check", "step"))
                own = checks if check == "every-step" else max(usual, 0) + checks / EVERY
                label = f"{wrap}, {world} ranks, {name}, {check}"
                row = f"{label:34}{whole / 1e3:8.2f}ms{usual:8.1f}µs{checks:8.1f}µs"
                print(f"{row}{own:8.1f}µs{100 * own / whole:8.2f}%", flush=True)


def _self_time(
    wrap: str, world: int, model: Sequence[str], check: str, steps: int
) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        clocks = Path(folder) / "spent.json"
        script = Path(folder) / "training.py"
        script.write_text(
            f"WARM_UP = {WARM_UP}\n{CLOCKS}\nimport runpy\n"
            f"runpy.run_path({str(TRAINING)!r}, run_name='__main__')\n",
            encoding="utf-8",
        )
        command = [sys.executable, "-m", "zerograd", "run", "--quiet", f"--check-ranks={check}"]
        command += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={world}"]
        command += [str(script), f"--wrap={wrap}", *model, f"--steps={steps}"]
        env = {**ENV, "ZEROGRAD_CLOCKS": str(clocks)}
        subprocess.run(command, env=env, timeout=LONGEST, check=True, capture_output=True)
        told: dict[str, float] = json.loads(clocks.read_text(encoding="utf-8"))
        return told


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
        self_time(options.steps, options.worlds[0])
    if options.only in (None, "store"):
        estimate()
    print(f"\n{time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
