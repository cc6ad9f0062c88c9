"""A training on several ranks, with a fault on one of them if the options ask for it.

`ranks_soak`, the measurements of ranks, and tests run it.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import signal
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

TIMEOUT = dt.timedelta(seconds=30)


def main() -> None:
    """Train."""
    options = _options()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=TIMEOUT)
    rank = dist.get_rank()
    model = build(options.wrap, options.width, options.depth)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    torch.manual_seed(1 + rank)
    x = torch.randn(options.batch, options.width)
    began = time.perf_counter()
    for step in range(1, options.steps + 1):
        if step == options.warm_up + 1:
            dist.barrier()
            began = time.perf_counter()
        here = rank == options.rank and step == options.at
        if not (here and options.fault == "forget"):
            optimizer.zero_grad()
        model(x).square().mean().backward()
        if here and options.fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if here and options.fault == "perturb":
            with torch.no_grad():
                list(model.parameters())[-2][0, 0] += 1e-3
        optimizer.step()
    dist.barrier()
    spent = time.perf_counter() - began
    if rank == 0 and options.time:
        options.time.write_text(repr(spent / (options.steps - options.warm_up)), encoding="utf-8")
    dist.destroy_process_group()


def build(wrap: str, width: int, depth: int) -> Any:
    """The same model on all ranks."""
    torch.manual_seed(0)
    layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.Tanh())]
    model = nn.Sequential(*layers, nn.Linear(width, 1))
    if wrap == "ddp":
        return DistributedDataParallel(model)
    from torch.distributed.fsdp import fully_shard

    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    return fully_shard(model)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--warm-up", type=int, default=0, help="steps that are not timed")
    parser.add_argument("--wrap", choices=("ddp", "fsdp"), default="ddp")
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--depth", type=int, default=2)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--fault", choices=("none", "kill", "forget", "perturb"), default="none")
    parser.add_argument("--rank", type=int, default=1, help="the rank with the fault")
    parser.add_argument("--at", type=int, default=0, help="the step of the fault")
    parser.add_argument("--time", type=Path, help="write the seconds per step to this file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
