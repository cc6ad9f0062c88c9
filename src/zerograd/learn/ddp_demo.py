"""Two processes under DDP, for the lesson on several devices: what `.grad` holds on each rank.

    python -m zerograd.learn.ddp_demo RANK STORE

runs one of the two. A slope is the gradient of one weight. The processes train twice; the second
time rank 1 does not clear. Then they count how often they synchronise in a window.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from typing import Any

SLOPES = ((3.0, 1.0), (5.0, 3.0))
"""The slopes of each rank, batch by batch."""
WINDOW = 4
PATIENCE = 60.0


class Unavailable(Exception):
    """The two processes could not be run."""


@dataclass(frozen=True)
class RankResult:
    """One process: its own slopes, and `.grad` after each backward."""

    own: list[float]
    held: list[float]


@dataclass(frozen=True)
class DdpResults:
    """The results of all ranks."""

    right: list[RankResult]
    """Both ranks cleared."""
    wrong: list[RankResult]
    """Rank 1 did not clear."""
    syncs: tuple[int, int]
    """How often a window of WINDOW batches was synchronised, without and with `no_sync`."""


def measure() -> DdpResults:
    """Start both processes, wait for them, and collect their results."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        command = [sys.executable, "-m", "zerograd.learn.ddp_demo"]
        ranks = [
            subprocess.Popen(
                [*command, str(rank), store],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            for rank in range(len(SLOPES))
        ]
        try:
            outputs = [rank.communicate(timeout=PATIENCE) for rank in ranks]
        except subprocess.TimeoutExpired:
            raise Unavailable(f"no answer within {PATIENCE:.0f} s") from None
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()
    for rank, (_, errors) in zip(ranks, outputs, strict=True):
        if rank.returncode:
            last = errors.decode(errors="replace").strip().splitlines()[-1:]
            raise Unavailable("".join(last) or f"exit code {rank.returncode}")
    right, wrong, syncs = zip(*(json.loads(out) for out, _ in outputs), strict=True)
    every, once = syncs[0]
    return DdpResults(
        [RankResult(**one) for one in right], [RankResult(**one) for one in wrong], (every, once)
    )


def _run_rank(rank: int, store: str) -> list[object]:
    from torch import distributed

    file = distributed.FileStore(store, len(SLOPES))  # type: ignore[attr-defined]
    distributed.init_process_group("gloo", store=file, rank=rank, world_size=len(SLOPES))
    trained = [asdict(_train(rank, forget=forget)) for forget in (False, True)]
    syncs = [_count_syncs(no_sync=no_sync) for no_sync in (False, True)]
    # A rank that ends first would close the connection on which the other still waits.
    distributed.barrier()
    distributed.destroy_process_group()
    return [*trained, syncs]


def _count_syncs(*, no_sync: bool) -> int:
    """How often the ranks synchronise in a window, with or without `no_sync` before its last batch."""
    import torch
    from torch import nn

    model = nn.parallel.DistributedDataParallel(nn.Linear(1, 1, bias=False))
    syncs = []

    def counted(bucket: Any) -> torch.futures.Future[torch.Tensor]:
        syncs.append(1)
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    # DDP checks the annotations of a hook, so the hook is a lambda without any.
    model.register_comm_hook(None, lambda _, bucket: counted(bucket))
    for batch in range(1, WINDOW + 1):
        with model.no_sync() if no_sync and batch < WINDOW else contextlib.nullcontext():
            model(torch.ones(1, 1)).sum().backward()
    return len(syncs)


def _train(rank: int, *, forget: bool) -> RankResult:
    import torch
    from torch import nn

    layer = nn.Linear(1, 1, bias=False)
    model = nn.parallel.DistributedDataParallel(layer)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    held = []
    for slope in SLOPES[rank]:
        if not (forget and rank == 1):
            optimizer.zero_grad()
        (slope * model(torch.ones(1, 1))).sum().backward()
        assert layer.weight.grad is not None
        held.append(layer.weight.grad.item())
        optimizer.step()
    return RankResult(list(SLOPES[rank]), held)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_run_rank(int(sys.argv[1]), sys.argv[2])))
