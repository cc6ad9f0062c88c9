"""Measures how exact gradient accumulation is: each window against one big batch.

    python bench/exactness.py

The data are float64, with ten batches per rank in windows of 4, 4 and 2 (more if ranks have
different numbers of batches). The table shows relative errors compared with training on the big
batches: the worst gradient of a full window, the gradient of the last, partial window, and the
weights after the epoch. The exit code is 1 if an error of the stepper is above 1e-12. accelerate,
Fabric and Lightning run as in their documentation, if they are installed. On several ranks (DDP,
gloo) only the stepper is measured.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import logging
import math
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import outcome
import zerograd

N = 4
LIMIT = 1e-12
METHOD = (
    "float64, ten batches per rank in windows of 4, 4 and 2. The relative error of the gradient of a window, "
    "or of the weights after the epoch, compared with training on the big batches. Steps that never come are "
    "left out."
)
EQUAL = [8] * 10
VARIABLE = [1, 2, 3, 30, 1, 40, 2, 5, 20, 1]
UNEVEN = ([1, 2, 3, 30, 1, 40, 2, 5, 20, 1], [7, 1, 2], [4, 4, 9, 1, 1, 3])

Batch = tuple[Tensor, Tensor]


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)).double()


def data(sizes: list[int], seed: int = 0) -> list[Batch]:
    """Batches of different lengths. Long batches have other values than short ones, like texts."""
    made = torch.Generator().manual_seed(seed)
    return [
        (
            torch.randn(size, 6, generator=made, dtype=torch.float64) + size / 20,
            torch.randn(size, 3, generator=made, dtype=torch.float64),
        )
        for size in sizes
    ]


def loss_of(model: nn.Module, batch: Batch) -> Tensor:
    return functional.mse_loss(model(batch[0]), batch[1])


class Seen:
    """The gradients that the steps used."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.gradients: list[list[Tensor]] = []
        self.weights: list[list[Tensor]] = []
        optimizer.register_step_pre_hook(self._before)
        # Lightning runs backward inside step(), so the gradient is complete only afterwards.
        optimizer.register_step_post_hook(self._after)

    def _before(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        params = [param for group in optimizer.param_groups for param in group["params"]]
        self.weights.append([param.detach().clone() for param in params])

    def _after(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        params = [param for group in optimizer.param_groups for param in group["params"]]
        self.gradients.append(
            [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in params]
        )


def error(found: list[Tensor], expected: list[Tensor]) -> float:
    one, other = (torch.cat([part.flatten() for part in parts]) for parts in (found, expected))
    return float((one - other).norm() / other.norm())


def optimizer_of(kind: str, model: nn.Module) -> torch.optim.Optimizer:
    return getattr(torch.optim, kind)(model.parameters(), lr=0.01)  # type: ignore[no-any-return]


Errors = tuple[float, float, float]


def errors(kind: str, seen: Seen, model: nn.Module, windows: list[list[Batch]]) -> Errors | None:
    """The errors of full windows, of the last window (nan if it was dropped) and of the weights."""
    big = net()
    optimizer = optimizer_of(kind, big)
    each = []
    for number, window in enumerate(windows):
        whole = torch.cat([x for x, _ in window]), torch.cat([y for _, y in window])
        optimizer.zero_grad()
        loss_of(big, whole).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if number < len(seen.gradients):
            there = net()
            with torch.no_grad():
                for param, value in zip(there.parameters(), seen.weights[number], strict=True):
                    param.copy_(value)
            exact = torch.autograd.grad(loss_of(there, whole), list(there.parameters()))
            each.append(error(seen.gradients[number], list(exact)))
    if len(each) < len(windows):
        each.append(float("nan"))
    final = error([p.detach() for p in model.parameters()], [p.detach() for p in big.parameters()])
    return max(each[:-1]), each[-1], final


Trains = Callable[[nn.Module, torch.optim.Optimizer, list[Batch]], None]


def stepper(model: nn.Module, optimizer: torch.optim.Optimizer, batches: list[Batch]) -> None:
    stepper = zerograd.Stepper(model, optimizer, accumulate=N)
    for batch in stepper(batches):
        stepper.backward(loss_of(model, batch), weight=len(batch[0]))


def plain(model: nn.Module, optimizer: torch.optim.Optimizer, batches: list[Batch]) -> None:
    for number, batch in enumerate(batches, start=1):
        (loss_of(model, batch) / N).backward()  # type: ignore[no-untyped-call]
        if number % N == 0:
            optimizer.step()
            optimizer.zero_grad()


def accelerate(model: nn.Module, optimizer: torch.optim.Optimizer, batches: list[Batch]) -> None:
    accelerator = importlib.import_module("accelerate").Accelerator(
        gradient_accumulation_steps=N, cpu=True
    )
    loader: Any = torch.utils.data.DataLoader(batches, batch_size=None)  # type: ignore[arg-type]
    model, ready, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        with accelerator.accumulate(model):
            accelerator.backward(loss_of(model, batch))
            ready.step()
            ready.zero_grad()


def fabric(model: nn.Module, optimizer: torch.optim.Optimizer, batches: list[Batch]) -> None:
    """The loop of Fabric's documentation. It does not divide and does not close the last window."""
    made = importlib.import_module("lightning.fabric").Fabric(accelerator="cpu", devices=1)
    wrapped: Any
    wrapped, ready = made.setup(model, optimizer)
    for number, batch in enumerate(batches):
        accumulating = number % N != N - 1
        with made.no_backward_sync(wrapped, enabled=accumulating):
            made.backward(loss_of(wrapped, batch))
        if not accumulating:
            ready.step()
            ready.zero_grad()


def lightning(model: nn.Module, optimizer: torch.optim.Optimizer, batches: list[Batch]) -> None:
    pl: Any = importlib.import_module("lightning")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class Module(pl.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def training_step(self, batch: Batch) -> Tensor:
            return loss_of(self.model, batch)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return optimizer

    trainer = pl.Trainer(
        max_epochs=1,
        accumulate_grad_batches=N,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    loader = torch.utils.data.DataLoader(batches, batch_size=None)  # type: ignore[arg-type, var-annotated]
    trainer.fit(Module(), loader)


METHODS: dict[str, tuple[str, Trains]] = {
    "Stepper": ("torch", stepper),
    "loss / N, by hand": ("torch", plain),
    "accelerate": ("accelerate", accelerate),
    "Fabric's recipe": ("lightning", fabric),
    "Lightning's Trainer": ("lightning", lightning),
}


MEASURED: list[outcome.Row] = []
"""The errors so far, for the page of results."""


def row(name: str, kind: str, lengths: str, found: Errors | None) -> None:
    for what, error in zip(("full window", "partial window", "weights"), found or (), strict=False):
        if not math.isnan(error):
            MEASURED.append(outcome.Row(f"{name}, {kind}, {lengths} lengths: {what}", error))
    shown = ["dropped" if math.isnan(one) else f"{one:.1e}" for one in found or ()]
    print(f"{name:22}{kind:7}{lengths:10}" + "".join(f"{one:>10}" for one in shown), flush=True)


def one_process() -> float:
    worst = 0.0
    for name, (needs, train) in METHODS.items():
        if not importlib.util.find_spec(needs):
            print(f"{name:22}not installed: pip install --no-deps -r requirements/bench.txt")
            continue
        for kind in ("SGD", "AdamW"):
            for lengths, sizes in (("equal", EQUAL), ("variable", VARIABLE)):
                batches = data(sizes)
                model = net()
                optimizer = optimizer_of(kind, model)
                seen = Seen(optimizer)
                train(model, optimizer, batches)
                windows = [batches[start : start + N] for start in range(0, len(batches), N)]
                found = errors(kind, seen, model, windows)
                row(name, kind, lengths, found)
                if name == "Stepper" and found is not None:
                    worst = max(worst, *found)
    return worst


def rank_of(rank: int, world: int, store: str) -> None:
    """Run one of several ranks. The first rank prints the errors of all."""
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    everyone = [data(sizes, seed) for seed, sizes in enumerate(UNEVEN[:world])]
    longest = max(map(len, everyone))
    windows = [
        [batch for batches in everyone for batch in batches[start : start + N]]
        for start in range(0, longest, N)
    ]
    for kind in ("SGD", "AdamW"):
        model = DistributedDataParallel(net())
        optimizer = optimizer_of(kind, model)
        seen = Seen(optimizer)
        stepper(model, optimizer, everyone[rank])
        found = errors(kind, seen, model, windows)
        if rank == 0 and found is not None:
            row(f"Stepper, {world} ranks", kind, "uneven", found)
            for measured in MEASURED:
                print("row", json.dumps(asdict(measured)))
            MEASURED.clear()
            print("worst", max(found))
    dist.destroy_process_group()


def ranks(world: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--rank"]
        arguments = [str(world), str(Path(folder) / "store")]
        started = [
            subprocess.Popen([*command, str(rank), *arguments], stdout=subprocess.PIPE, text=True)
            for rank in range(world)
        ]
        said = [process.communicate(timeout=300)[0] for process in started]
    worst = []
    for line in said[0].splitlines():
        if line.startswith("row "):
            MEASURED.append(outcome.Row(**json.loads(line[4:])))
        elif line.startswith("worst"):
            worst.append(float(line.split()[1]))
        else:
            print(line)
    assert len(worst) == 2, "a rank has failed"
    return max(worst)


def main() -> int:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    if sys.argv[1:2] == ["--rank"]:
        rank_of(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
        return 0
    parser = argparse.ArgumentParser(description=__doc__)
    outcome.add_argument(parser)
    options = parser.parse_args()
    print(f"{'':22}{'':7}{'lengths':10}{'full':>10}{'partial':>10}{'weights':>10}")
    worst = max(one_process(), ranks(2), ranks(3))
    print(f"\nthe stepper's worst: {worst:.1e}; allowed: {LIMIT:.0e}")
    if options.result:
        worst_row = outcome.Row("the stepper's worst error", worst, goal=LIMIT)
        rows = [worst_row, *MEASURED]
        outcome.write(options.result, title="Exactness of accumulation", method=METHOD, rows=rows)
    return int(worst > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
