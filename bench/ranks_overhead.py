"""Measures what watching ranks costs: DDP and FSDP2, two and four gloo ranks, and the store.

Self time is the number that counts: clocks around everything that zerograd does in a step for ranks,
including the store, and around everything that it does. Beside it are the ratios of watched to bare
steps and of bare to bare steps; the difference of the latter from 1 is the measurement error of this
machine. `ranks_timed` is one rank.

Store: the time of one operation for one client and for several at once, the time that the store needs
for one rank, and an estimate for 1,024 ranks.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import outcome
from zerograd.runtime.ranks.fingerprints import MOST_SUMS, Fingerprint
from zerograd.runtime.ranks.replicas import EVERY, RING

HERE = Path(__file__).parent
RANK = HERE / "ranks_timed.py"
LONGEST = 600
"""Seconds after which ranks count as hanging."""
METHOD = (
    "Share: clocks around everything that zerograd does for ranks, in DDP and FSDP2 with gloo, relative to a bare "
    "step. The ratios of watched to bare steps have bare to bare steps beside them as the control."
)
MEASURED: list[outcome.Row] = []
"""The values so far, for the page of results."""
MODELS = {"8k": ("--width=64", "--depth=2", "--batch=32"), "3M": ("--width=1024", "--depth=3")}
WRAPS = ("ddp", "fsdp")
RATIOS = ("8k",)
"""Models whose steps are short enough to run often and to show a difference."""
LIMIT = 0.5
"""The percentage of a step that ranks may cost at the default setting."""
ENV = {**os.environ, "OMP_NUM_THREADS": "1"}


def ranks(worlds: Sequence[int], wraps: Sequence[str], rounds: int) -> bool:
    """Print a line for each wrapper, world size and model. True if all are below the limit."""
    print(
        "for ranks: of a usual step, a check, both in a step, of it; every: a check at every step"
    )
    print(
        f"{'':20}{'step':>9} |{'usual':>8}{'check':>8}{'a step':>8}{'share':>8}{'every':>8} |",
        end="",
    )
    print(f"{'all':>8}{'share':>8} |{'watched':>9}{'bare':>7}")
    met = True
    runs = [(wrap, world, model) for world in worlds for wrap in wraps for model in MODELS]
    for number, (wrap, world, model) in enumerate(runs, start=1):
        name = f"{wrap}, {world} ranks, {model}"
        if sys.stderr.isatty():
            print(f"\r\033[K{number}/{len(runs)} {name} …", end="\r", file=sys.stderr, flush=True)
        measured = timed(wrap, world, MODELS[model], rounds if model in RATIOS else 0)
        share, whole = (measured[key] / measured["step"] / 10 for key in ("own", "all"))
        met &= share < LIMIT
        MEASURED.append(outcome.Row(f"{name}: share of a step", share, "%", goal=LIMIT))
        MEASURED.append(outcome.Row(f"{name}: a bare step", measured["step"], "ms"))
        for key, what in (("watched", "watched, to bare"), ("again", "bare again, to bare")):
            if key in measured:
                MEASURED.append(outcome.Row(f"{name}: {what}", measured[key], "×"))
        row = f"{name:20}{measured['step']:7.2f}ms |{measured['usual']:6.1f}µs{measured['check']:6.0f}µs"
        row += f"{measured['own']:6.1f}µs{share:7.2f}%{measured['always']:6.0f}µs |{measured['all']:6.1f}µs"
        ratio = (
            f"{measured['watched']:9.3f}{measured['again']:7.3f}" if "watched" in measured else ""
        )
        print(f"{row}{whole:7.2f}% |{ratio}", flush=True)
    return met


def timed(wrap: str, world: int, model: Sequence[str], rounds: int) -> dict[str, float]:
    """The measurements of one group of ranks."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "found.json"
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command += [f"--nproc-per-node={world}", str(RANK), f"--wrap={wrap}", *model]
        command += [f"--rounds={rounds}", f"--out={out}"]
        done = subprocess.run(
            command, env=ENV, timeout=LONGEST, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}\n{done.stderr[-4000:]}")
        measured: dict[str, float] = json.loads(out.read_text(encoding="utf-8"))
        return measured


# The store

CLIENT = """\
import datetime, json, statistics, sys, time
import torch.distributed as dist
port, number, rounds, length = map(int, sys.argv[1:])
store = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=datetime.timedelta(seconds=60))
value, mine, first = "x" * length, f"ring/{number}", "ring/0"
calls = {
    "set": lambda: store.set(mine, value),
    "check": lambda: store.check([first]),
    "get": lambda: store.get(first),
}
measured = {}
store.set(f"ready/{number}", "")
for name, call in calls.items():
    store.wait([f"go/{name}"])
    spent = []
    for _ in range(rounds):
        began = time.perf_counter()
        call()
        spent.append(time.perf_counter() - began)
    store.set(f"{name}/{number}", "")
    measured[name] = 1e6 * statistics.median(spent)
print(json.dumps(measured))
"""
ROUNDS = 1000
OPERATIONS = ("set", "check", "get")
RANKS = 1024


def ring() -> int:
    """The length of the longest value that a rank writes."""
    sums = [-(2**31)] * MOST_SUMS
    line = Fingerprint(10**6, 10**6, [1 / 3], 65536.0, sums, sums).line()
    return RING * len(line)


def store(clients: int) -> tuple[dict[str, float], dict[str, float]]:
    """Microseconds of each operation, for concurrent clients and for the store itself."""
    import datetime as dt

    from torch._C._distributed_c10d import TCPStore

    server = TCPStore("127.0.0.1", 0, is_master=True, timeout=dt.timedelta(seconds=60))
    words = [sys.executable, "-c", CLIENT, str(server.port)]
    started = [
        subprocess.Popen(
            [*words, str(number), str(ROUNDS), str(ring())], stdout=subprocess.PIPE, env=ENV
        )
        for number in range(clients)
    ]
    server.wait([f"ready/{number}" for number in range(clients)])
    serving = {}
    for name in OPERATIONS:
        # The store is in this process, which does nothing else meanwhile.
        began = time.process_time()
        server.set(f"go/{name}", "")
        server.wait([f"{name}/{number}" for number in range(clients)])
        serving[name] = 1e6 * (time.process_time() - began) / ROUNDS / clients
    measured = [json.loads(one.communicate(timeout=LONGEST)[0]) for one in started]
    return {name: statistics.mean(one[name] for one in measured) for name in OPERATIONS}, serving


def estimate(clients: Sequence[int]) -> None:
    """An estimate of the cost of a check with 1,024 ranks."""
    print(f"\nstore, {ring():,} bytes{'':10}seen by a client{'':14}used by the store")
    print(f"{'clients at once':16}" + 2 * "".join(f"{name:>10}" for name in OPERATIONS))
    alone, served = 0.0, 0.0
    for number in clients:
        seen, serving = store(number)
        row = "".join(f"{one[name]:8.1f}µs" for one in (seen, serving) for name in OPERATIONS)
        print(f"{number:<16}{row}", flush=True)
        alone = alone or seen["set"] + seen["get"]
        served = max(served, serving["set"] + serving["get"])
    worst = RANKS * served
    print(
        f"A check is a set and a get. {RANKS:,} ranks at the same moment: the store takes {served:.0f} µs "
        f"for each, the last one waits {worst / 1e3:.0f} ms, every {EVERY} steps: "
        f"{worst / EVERY / 1e3:.2f} ms a step at worst, {alone / EVERY:.1f} µs where they don't meet."
    )


def main() -> int:
    """Measure and print. Returns 1 if a share is above its limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--worlds", type=int, nargs="+", default=(2, 4))
    parser.add_argument("--wraps", nargs="+", choices=WRAPS, default=WRAPS)
    parser.add_argument("--clients", type=int, nargs="+", default=(1, 2, 4, 8))
    parser.add_argument("--only", choices=("ranks", "store"))
    outcome.add_argument(parser)
    options = parser.parse_args()
    began = time.monotonic()
    met = options.only == "store" or ranks(options.worlds, options.wraps, options.rounds)
    if options.only != "ranks":
        estimate(options.clients)
    print(f"\n{time.monotonic() - began:.0f} s")
    if options.result:
        title = "Watching ranks"
        outcome.write(options.result, title=title, method=METHOD, rows=MEASURED)
    return int(not met)


if __name__ == "__main__":
    sys.exit(main())
