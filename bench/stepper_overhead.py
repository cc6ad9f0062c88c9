"""Measures time and peak memory of the stepper, compared with an equally correct loop by hand.

    python bench/stepper_overhead.py            # time and memory
    python bench/stepper_overhead.py --rounds 30

Time (processor time, one thread): each round runs every loop once over the same windows of four
batches, in a new order. The table shows medians over the rounds, relative to the loop by hand, with a
second run of that loop as the control. accelerate and Fabric are measured if they are installed; they
do not compute the same (see exactness.py).
Memory: the peak of a process that trains a model of 50 million parameters with AdamW, one process
per loop, as counted by the kernel.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import random
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

import outcome
import zerograd

N = 4
Train = Callable[[], None]
METHOD = (
    "Processor time of one thread, relative to an equally correct loop by hand, medians over rounds in which "
    "each loop runs once in a new order; the loop by hand is measured a second time as the control. Peak memory "
    "of a process that trains 50 million parameters with AdamW."
)
MEASURED: list[outcome.Row] = []
"""The values so far, for the page of results."""


def mlp() -> tuple[nn.Module, list[Tensor]]:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)
    )
    return model, [torch.randn(32, 32) for _ in range(N * 20)]


def transformer() -> tuple[nn.Module, list[Tensor]]:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    return model, [torch.randn(4, 64, 128) for _ in range(N)]


def loss_of(model: nn.Module, x: Tensor) -> Tensor:
    out: Tensor = model(x)
    return out.square().mean()


def by_hand(model: nn.Module, batches: list[Tensor], clip: float | None) -> Train:
    """Correct for different lengths too: add up, and divide once at the end of the window."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    params = list(model.parameters())

    def train() -> None:
        weight = 0
        for number, x in enumerate(batches, start=1):
            (loss_of(model, x) * len(x)).backward()  # type: ignore[no-untyped-call]
            weight += len(x)
            if number % N == 0 or number == len(batches):
                for param in params:
                    if param.grad is not None:
                        param.grad /= weight
                if clip is not None:
                    nn.utils.clip_grad_norm_(params, clip)
                optimizer.step()
                optimizer.zero_grad()
                weight = 0

    return train


def divided(model: nn.Module, batches: list[Tensor], clip: float | None) -> Train:
    """Correct for equal lengths and full windows only, like most loops."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def train() -> None:
        for number, x in enumerate(batches, start=1):
            (loss_of(model, x) / N).backward()  # type: ignore[no-untyped-call]
            if number % N == 0:
                if clip is not None:
                    nn.utils.clip_grad_norm_(model.parameters(), clip)
                optimizer.step()
                optimizer.zero_grad()

    return train


def stepper(model: nn.Module, batches: list[Tensor], clip: float | None) -> Train:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    stepper = zerograd.Stepper(model, optimizer, accumulate=N, clip_norm=clip)

    def train() -> None:
        for x in stepper(batches):
            stepper.backward(loss_of(model, x), weight=len(x))

    return train


def accelerate(model: nn.Module, batches: list[Tensor], clip: float | None) -> Train:
    accelerator = importlib.import_module("accelerate").Accelerator(
        gradient_accumulation_steps=N, cpu=True
    )
    optimizer: Any = torch.optim.AdamW(model.parameters(), lr=1e-4)
    model, optimizer = accelerator.prepare(model, optimizer)

    def train() -> None:
        for x in batches:
            with accelerator.accumulate(model):
                accelerator.backward(loss_of(model, x))
                if clip is not None and accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), clip)
                optimizer.step()
                optimizer.zero_grad()

    return train


def fabric(model: nn.Module, batches: list[Tensor], clip: float | None) -> Train:
    made = importlib.import_module("lightning.fabric").Fabric(accelerator="cpu", devices=1)
    optimizer: Any = torch.optim.AdamW(model.parameters(), lr=1e-4)
    wrapped: Any
    wrapped, optimizer = made.setup(model, optimizer)

    def train() -> None:
        for number, x in enumerate(batches, start=1):
            with made.no_backward_sync(wrapped, enabled=number % N != 0):
                made.backward(loss_of(wrapped, x) / N)
            if number % N == 0:
                if clip is not None:
                    made.clip_gradients(wrapped, optimizer, max_norm=clip)
                optimizer.step()
                optimizer.zero_grad()

    return train


def loops() -> Iterator[tuple[str, Callable[..., Train]]]:
    yield "by hand", by_hand
    yield "by hand, again", by_hand
    yield "by hand, / N", divided
    yield "Stepper", stepper
    for name, needs, loop in (
        ("accelerate", "accelerate", accelerate),
        ("Fabric", "lightning", fabric),
    ):
        if importlib.util.find_spec(needs):
            yield name, loop


def time_of(train: Train) -> float:
    start = time.process_time()
    train()
    return time.process_time() - start


def table(rounds: int) -> None:
    print(f"{'':18}{'tiny MLP':>12}{'with clip':>12}{'transformer':>14}{'with clip':>12}")
    columns = []
    for make in (mlp, transformer):
        for clip in (None, 1.0):
            trains = {}
            for name, loop in loops():
                model, batches = make()
                trains[name] = loop(model, batches, clip)
            times: dict[str, list[float]] = {name: [] for name in trains}
            for train in trains.values():
                train()
            for _ in range(rounds):
                order = list(trains)
                random.shuffle(order)
                for name in order:
                    times[name].append(time_of(trains[name]))
            # Compare within a round: other load on the machine affects all loops of a round.
            base = times["by hand"]
            ratios = {
                name: [a / b for a, b in zip(one, base, strict=True)] for name, one in times.items()
            }
            columns.append({name: statistics.median(one) for name, one in ratios.items()})
            what = f"{make.__name__}{', with clip' if clip else ''}"
            for name, one in ratios.items():
                low, middle, high = statistics.quantiles(one, n=4)
                MEASURED.append(outcome.Row(f"{what}: {name}, to by hand", middle, "×", low, high))
    for name in columns[0]:
        a, b, c, d = (f"{column[name]:.3f}" for column in columns)
        print(f"{name:18}{a:>12}{b:>12}{c:>14}{d:>12}")


def peak(kind: str) -> None:
    """Train in a separate process, and print the peak in MB."""
    torch.manual_seed(0)
    # Each weight is so large that malloc returns its memory to the system when it is freed.
    model = nn.Sequential(*[nn.Linear(2900, 2900) for _ in range(6)])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)
    batches = [torch.randn(4, 2900) for _ in range(3)]
    if kind == "by hand":
        for x in batches:
            loss_of(model, x).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad()
    else:
        free = kind == "Stepper, free_gradients"
        stepper = zerograd.Stepper(model, optimizer, free_gradients=free)
        for x in stepper(batches):
            stepper.backward(loss_of(model, x))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def memory() -> None:
    print("\npeak memory, MB")
    for kind in ("by hand", "Stepper", "Stepper, free_gradients"):
        command = [sys.executable, __file__, "--peak", kind]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        peaked = float(done.stdout.split()[-1])
        print(f"{kind:26}{peaked:8.0f}")
        MEASURED.append(outcome.Row(f"peak memory: {kind}", peaked, "MB"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--peak", help=argparse.SUPPRESS)
    outcome.add_argument(parser)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.peak:
        peak(options.peak)
        return
    random.seed(0)
    table(options.rounds)
    memory()
    if options.result:
        title = "What the stepper costs"
        outcome.write(options.result, title=title, method=METHOD, rows=MEASURED)


if __name__ == "__main__":
    main()
