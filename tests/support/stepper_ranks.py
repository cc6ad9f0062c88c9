"""Scenarios for a stepper under DDP and FSDP2. Every rank runs them (see ranks.py).

A scenario compares the gradients with one big batch over all ranks, and returns what else the test
compares.
"""

from __future__ import annotations

import copy
import math
import sys
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

import zerograd
from support.big_batch import Batch, Seen, data, error, expect, loss_of, net
from support.fsdp2 import fully_shard
from support.ranks import work
from zerograd.stepper import Stepper

SIZES = ([3, 1, 7, 2, 2, 4, 1], [2, 5, 1, 3], [1, 1, 6, 2, 8])
"""The batch sizes of each rank."""

rank = int(sys.argv[1])
world = int(sys.argv[2])


def batches_of(one: int) -> list[Batch]:
    return data(*SIZES[one], seed=one)


def mine() -> list[Batch]:
    return batches_of(rank)


def windows(n: int) -> list[list[Batch]]:
    """Windows of n batches on each rank, until no rank has batches left."""
    longest = max(len(sizes) for sizes in SIZES[:world])
    everyone = [batches_of(one) for one in range(world)]
    return [
        [batch for batches in everyone for batch in batches[start : start + n]]
        for start in range(0, longest, n)
    ]


def ddp(model: nn.Module, **options: Any) -> nn.Module:
    return DistributedDataParallel(model, **options)


def fsdp(model: nn.Module) -> nn.Module:
    assert isinstance(model, nn.Sequential)
    fully_shard(model[0])
    fully_shard(model)
    return model


def whole(tensor: Tensor | None) -> Tensor | None:
    """The whole of a sharded tensor."""
    if tensor is not None and hasattr(tensor, "full_tensor"):
        return tensor.full_tensor()  # type: ignore[no-any-return]
    return tensor


class SeenWhole(Seen):
    def _look(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        params = [param for group in optimizer.param_groups for param in group["params"]]
        self.weights.append([whole(param.detach()).clone() for param in params])  # type: ignore[union-attr]
        grads = [whole(param.grad) for param in params]
        self.gradients.append([grad.clone() for grad in grads if grad is not None])


class Training:
    def __init__(
        self, wrap: Callable[[nn.Module], nn.Module], optimizer: str = "SGD", **options: Any
    ) -> None:
        self.model = wrap(net())
        kind = getattr(torch.optim, optimizer)
        self.optimizer: torch.optim.Optimizer = kind(self.model.parameters(), lr=0.1)
        self.seen = SeenWhole(self.optimizer)
        self.stepper = Stepper(self.model, self.optimizer, **options)
        self.padded = 0

    def backward(self, batch: Batch) -> None:
        self.padded += self.stepper.padding
        self.stepper.backward(loss_of(self.model, batch), weight=len(batch[0]))

    def run(self, batches: Iterable[Batch]) -> None:
        for batch in self.stepper(batches):
            self.backward(batch)

    def weights(self) -> list[Tensor]:
        return [whole(param.detach()).clone() for param in self.model.parameters()]  # type: ignore[union-attr]


Wrap = Callable[[nn.Module], nn.Module]


def uneven(wrap: Wrap) -> Any:
    printed = []
    for n in (1, 3):
        training = Training(wrap, "AdamW", accumulate=n)
        training.run(mine())
        expect(training.seen, windows(n))
        printed.append([step.weight for step in training.stepper.history])
        longest = max(len(sizes) for sizes in SIZES[:world])
        assert training.padded == longest - len(SIZES[rank])
    return printed


def unknown_lengths(wrap: Wrap) -> None:
    training = Training(wrap, accumulate=3)
    training.run(iter(mine()))
    expect(training.seen, windows(3))


def summed(wrap: Wrap) -> None:
    training = Training(wrap, accumulate=2, reduction="sum")
    for x, y in training.stepper(mine()):
        loss = nn.functional.mse_loss(training.model(x), y, reduction="sum") / 2
        training.stepper.backward(loss, weight=len(x))
    expect(training.seen, windows(2))


def by_weight(wrap: Wrap) -> list[list[int]]:
    """A window closes at the first batch at which the weight of all ranks is enough."""
    columns = [
        [batches_of(one)[i] for one in range(world) if i < len(SIZES[one])]
        for i in range(max(len(sizes) for sizes in SIZES[:world]))
    ]
    expected: list[list[Batch]] = [[]]
    for column in columns:
        if sum(len(x) for x, _ in expected[-1]) >= 9:
            expected.append([])
        expected[-1] += column
    padded = []
    for batches in (mine(), iter(mine())):
        training = Training(wrap, accumulate_weight=9)
        training.run(batches)
        expect(training.seen, expected)
        padded.append(training.padded)
    return [padded]


def clipped(wrap: Wrap) -> None:
    training = Training(wrap, accumulate=3, clip_norm=0.01)
    training.run(mine())
    free = Training(wrap, accumulate=3)
    free.run(mine())
    norm = torch.cat([grad.flatten() for grad in free.seen.gradients[0]]).norm()
    expected = [grad * 0.01 / (norm + 1e-6) for grad in free.seen.gradients[0]]
    assert error(training.seen.gradients[0], expected) < 1e-12
    first = training.stepper.history[0].norm
    assert first is not None
    assert abs(first - float(norm)) < 1e-12


def dropped(wrap: Wrap) -> None:
    training = Training(wrap, accumulate=3)
    for number, batch in enumerate(training.stepper(mine())):
        training.backward(batch)
        if number == 1:
            break
    training.run(mine())
    expect(training.seen, windows(3))


def flushed(wrap: Wrap) -> None:
    training = Training(wrap, accumulate=4)
    for number, batch in enumerate(training.stepper(mine())):
        training.backward(batch)
        if number == 1:
            training.stepper.flush()
            break
    everyone = [batches_of(one) for one in range(world)]
    expect(training.seen, [[batch for batches in everyone for batch in batches[:2]]])
    training.run(mine())
    del training.seen.gradients[0], training.seen.weights[0]
    expect(training.seen, windows(4))


def nonfinite(wrap: Wrap) -> Any:
    """A nan on one rank skips the window on all; so does an overflow under a scaler."""
    printed = []
    for scaler in (None, torch.amp.GradScaler("cpu", init_scale=8.0)):
        training = Training(wrap, accumulate=3, skip_nonfinite=True, scaler=scaler)
        poisoned = mine()
        if rank == 0:
            poisoned[1] = poisoned[1][0] * math.inf, poisoned[1][1]
        training.run(poisoned)
        expect(training.seen, windows(3)[1:], tolerance=1e-12 if scaler is None else 1e-6)
        printed.append([(step.reason, step.scale) for step in training.stepper.history])
    return printed


def every(wrap: Wrap) -> None:
    training = Training(wrap, accumulate=3, sync="every")
    training.run(mine())
    expect(training.seen, windows(3))
    training = Training(wrap, accumulate=3, sync="every")
    for number, batch in enumerate(training.stepper(mine())):
        training.backward(batch)
        if number == 1:
            break
    training.run(mine())
    expect(training.seen, windows(3))


def watched(wrap: Wrap) -> list[str]:
    with zerograd.watch(on="collect") as report:
        for options in ({"accumulate": 3}, {"accumulate": 2, "clip_norm": 1.0}):
            training = Training(wrap, **options)
            training.run(mine())
            training.run(mine())
    return [finding.code for finding in report.findings]


def refused(wrap: Wrap) -> list[str]:
    model = wrap(net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    said = []
    for options in ({"free_gradients": True}, {"accumulate_dtype": torch.float32}):
        try:
            Stepper(model, optimizer, **options)
            said.append("")
        except ValueError as refusal:
            said.append(str(refusal))
    outside = net()
    optimizer = torch.optim.SGD([*model.parameters(), *outside.parameters()], lr=0.1)
    try:
        Stepper([model, outside], optimizer)
    except ValueError as refusal:
        said.append(str(refusal))
    training = Training(wrap, accumulate=2)
    try:
        for number, batch in enumerate(training.stepper(mine())):
            if number == 1:
                continue
            training.backward(batch)
    except RuntimeError as refusal:
        said.append(str(refusal))
    for batches in (mine() if rank else [], iter(mine() if rank else [])):
        training = Training(wrap, accumulate=2)
        try:
            training.run(batches)
        except ValueError as refusal:
            said.append(str(refusal))
    return said


def saved_ddp() -> None:
    through = Training(ddp, "AdamW", accumulate=3)
    through.run(mine())
    begun = Training(ddp, "AdamW", accumulate=3)
    for number, batch in enumerate(begun.stepper(mine())):
        begun.backward(batch)
        if number == 1:
            saved = copy.deepcopy(
                [one.state_dict() for one in (begun.model, begun.optimizer, begun.stepper)]
            )
            break
    resumed = Training(ddp, "AdamW", accumulate=3)
    parts: list[Any] = [resumed.model, resumed.optimizer, resumed.stepper]
    for one, state in zip(parts, saved, strict=True):
        one.load_state_dict(state)
    resumed.run(mine()[2:])
    assert error(resumed.weights(), through.weights()) < 1e-12


def saved_fsdp() -> str:
    training = Training(fsdp, accumulate=3)
    for number, batch in enumerate(training.stepper(mine())):
        training.backward(batch)
        if number == 1:
            try:
                training.stepper.state_dict()
            except RuntimeError as refusal:
                said = str(refusal)
            training.stepper.flush()
            assert training.stepper.state_dict()["window"] is None
            break
    return said


def synced_once(wrap: Wrap) -> list[int]:
    """How often gradients are sent in each window."""
    model = wrap(net())
    assert isinstance(model, DistributedDataParallel)
    sent: list[int] = [0]

    def hook(state: Any, bucket: Any) -> Any:
        sent[-1] += 1
        average = bucket.buffer() / world
        work = dist.all_reduce(average, async_op=True)
        assert work is not None
        return work.get_future().then(lambda done: done.value()[0])

    hook.__annotations__.clear()  # DDP reads annotations and does not understand postponed ones
    model.register_comm_hook(None, hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = SeenWhole(optimizer)
    stepper = Stepper(model, optimizer, accumulate=3)
    for batch in stepper(mine()):
        steps = stepper.steps
        stepper.backward(loss_of(model, batch), weight=len(batch[0]))
        if stepper.steps > steps:
            sent.append(0)
    expect(seen, windows(3))
    return sent


def static_graph() -> None:
    training = Training(lambda model: ddp(model, static_graph=True), accumulate=3)
    training.run(mine())
    training.run(mine())
    del training.seen.gradients[: len(windows(3))], training.seen.weights[: len(windows(3))]
    expect(training.seen, windows(3))


def bucket_views() -> None:
    """Interleaved windows of two steppers. The loss of one depends on the model of the other."""

    def views(model: nn.Module) -> nn.Module:
        return ddp(model, gradient_as_bucket_view=True)

    for sizes in ({"accumulate": 2}, {"accumulate_weight": 0.5}):
        interleaved(views, mine(), sizes, windows(2 if "accumulate" in sizes else 1))
    interleaved(views, iter(mine()), {"accumulate": 2}, windows(2))


def interleaved(
    wrap: Wrap,
    batches: Iterable[Batch],
    size: dict[str, Any],
    expected: list[list[Batch]],
    **options: Any,
) -> None:
    front, back = Training(wrap, accumulate=3, **options), Training(wrap, **size, **options)
    back.optimizer.param_groups[0]["lr"] = 0.0  # constant weights give an exact expected gradient
    for batch in back.stepper(front.stepper(batches)):
        back.backward(batch)
        x, y = batch
        out = front.model(x)
        loss = nn.functional.mse_loss(out, y) + back.model(out[:, :1].expand(-1, 3)).mean()
        front.stepper.backward(loss, weight=len(y))
    expect(back.seen, expected)
    assert len(front.seen.gradients) == len(windows(3))


def interleaved_fsdp() -> str:
    interleaved(fsdp, mine(), {"accumulate": 2}, windows(2), sync="every")
    try:
        interleaved(fsdp, mine(), {"accumulate": 2}, windows(2))
    except RuntimeError as refusal:
        return str(refusal)
    return ""


def hybrid() -> None:
    """HSDP: gradients are averaged over both dimensions of a mesh."""
    mesh = init_device_mesh("cpu", (world, 1), mesh_dim_names=("replicate", "shard"))
    training = Training(lambda model: fully_shard(model, mesh=mesh), accumulate=3)  # type: ignore[arg-type, return-value]
    training.run(mine())
    expect(training.seen, windows(3))


def bf16() -> list[float]:
    errors = []
    torch.manual_seed(0)
    start = nn.Linear(64, 8)
    x = torch.randn(world, 128, 4, 64).bfloat16()
    for dtype in (None, torch.float32):
        model = DistributedDataParallel(copy.deepcopy(start).bfloat16())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        seen = Seen(optimizer)
        stepper = Stepper(model, optimizer, accumulate=128, accumulate_dtype=dtype)
        for one in stepper(list(x[rank])):
            stepper.backward(model(one).square().mean())
        exact = copy.deepcopy(start).bfloat16().double()
        loss = exact(x.double().reshape(-1, 64)).square().mean()
        expected = torch.autograd.grad(loss, list(exact.parameters()))
        errors.append(error(seen.gradients[0], expected))
    return errors


BOTH = (
    uneven,
    unknown_lengths,
    summed,
    by_weight,
    clipped,
    dropped,
    flushed,
    nonfinite,
    every,
    watched,
    refused,
)
SCENARIOS: dict[str, Callable[[], Any]] = {
    f"{wrap.__name__} {scenario.__name__}": (lambda s=scenario, w=wrap: s(w))  # type: ignore[misc]
    for wrap in (ddp, fsdp)
    for scenario in BOTH
}
SCENARIOS |= {
    "ddp synced_once": lambda: synced_once(ddp),
    "ddp saved": saved_ddp,
    "fsdp saved": saved_fsdp,
    "ddp static_graph": static_graph,
    "ddp bucket_views": bucket_views,
    "ddp bf16": bf16,
    "fsdp hybrid": hybrid,
    "fsdp interleaved": interleaved_fsdp,
}

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    work(rank, world, Path(sys.argv[3]), SCENARIOS)
