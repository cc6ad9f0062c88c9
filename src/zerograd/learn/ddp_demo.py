"""Two processes under DDP, for the lesson on several devices: what each rank's bucket comes to hold.

    python -m zerograd.learn.ddp_demo RANK STORE

is one of them. A slope is the gradient of one weight. They train twice, the second time rank 1 leaves
its clears out; then they count how often a window makes them synchronise.
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
"""Of each rank, batch by batch."""
WINDOW = 4
PATIENCE = 60.0


class Unavailable(Exception):
    """There are no two processes to be had."""


@dataclass(frozen=True)
class Rank:
    """What one process saw: its own slopes, and `.grad` after each backward."""

    own: list[float]
    held: list[float]


@dataclass(frozen=True)
class Seen:
    """What all ranks saw."""

    right: list[Rank]
    """Where both cleared."""
    wrong: list[Rank]
    """Where rank 1 did not."""
    syncs: tuple[int, int]
    """How often a window of WINDOW was synchronised: as it comes, and with `no_sync`."""


def ask() -> Seen:
    """Start both, wait, and gather what they saw."""
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
            said = [rank.communicate(timeout=PATIENCE) for rank in ranks]
        except subprocess.TimeoutExpired:
            raise Unavailable(f"they did not answer within {PATIENCE:.0f} s") from None
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()
    for rank, (_, errors) in zip(ranks, said, strict=True):
        if rank.returncode:
            last = errors.decode(errors="replace").strip().splitlines()[-1:]
            raise Unavailable("".join(last) or f"exit code {rank.returncode}")
    right, wrong, syncs = zip(*(json.loads(out) for out, _ in said), strict=True)
    every, once = syncs[0]
    return Seen([Rank(**one) for one in right], [Rank(**one) for one in wrong], (every, once))


def _take_part(rank: int, store: str) -> list[object]:
    from torch import distributed

    file = distributed.FileStore(store, len(SLOPES))  # type: ignore[attr-defined]
    distributed.init_process_group("gloo", store=file, rank=rank, world_size=len(SLOPES))
    trained = [asdict(_train(rank, forget=forget)) for forget in (False, True)]
    syncs = [_syncs(hold=hold) for hold in (False, True)]
    distributed.destroy_process_group()
    return [*trained, syncs]


def _syncs(*, hold: bool) -> int:
    """How often the ranks synchronise in a window, as it comes or held back until its last backward."""
    import torch
    from torch import nn

    model = nn.parallel.DistributedDataParallel(nn.Linear(1, 1, bias=False))
    seen = []

    def counted(bucket: Any) -> torch.futures.Future[torch.Tensor]:
        seen.append(1)
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    # DDP looks at the annotations of a hook, and wants none or its own.
    model.register_comm_hook(None, lambda _, bucket: counted(bucket))
    for last in range(1, WINDOW + 1):
        with model.no_sync() if hold and last < WINDOW else contextlib.nullcontext():
            model(torch.ones(1, 1)).sum().backward()
    return len(seen)


def _train(rank: int, *, forget: bool) -> Rank:
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
    return Rank(list(SLOPES[rank]), held)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_take_part(int(sys.argv[1]), sys.argv[2])))
