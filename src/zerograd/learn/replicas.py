"""Two processes under DDP, for the lesson on several devices: what each rank's bucket comes to hold.

    python -m zerograd.learn.replicas RANK STORE

is one of them. A slope is the gradient of one weight. They train twice: the second time rank 1 leaves
its clears out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass

SLOPES = ((3.0, 1.0), (5.0, 3.0))
"""Of each rank, batch by batch."""
PATIENCE = 60.0


class Unavailable(Exception):
    """There are no two processes to be had."""


@dataclass(frozen=True)
class Rank:
    """What one process saw: its own slopes, and `.grad` after each backward."""

    own: list[float]
    held: list[float]


def ask() -> tuple[list[Rank], list[Rank]]:
    """What both ranks saw when both cleared, and when rank 1 did not."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        command = [sys.executable, "-m", "zerograd.learn.replicas"]
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
    right, wrong = zip(*(json.loads(out) for out, _ in said), strict=True)
    return [Rank(**one) for one in right], [Rank(**one) for one in wrong]


def _take_part(rank: int, store: str) -> tuple[Rank, Rank]:
    from torch import distributed

    file = distributed.FileStore(store, len(SLOPES))  # type: ignore[attr-defined]
    distributed.init_process_group("gloo", store=file, rank=rank, world_size=len(SLOPES))
    seen = _train(rank, forget=False), _train(rank, forget=True)
    distributed.destroy_process_group()
    return seen


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
    both = _take_part(int(sys.argv[1]), sys.argv[2])
    sys.stdout.write(json.dumps([asdict(one) for one in both]))
