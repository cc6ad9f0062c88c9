"""What a watch says of ranks that train together: scenarios, run once on each rank (test_watched_ranks.py).

Each returns the codes that were found, with a few words of the message.
"""

from __future__ import annotations

import datetime as dt
import gc
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import TCPStore
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import zerograd
from support import ranks
from support.fsdp2 import fully_shard
from support.ranks import work
from zerograd.rules import diverged_ranks
from zerograd.runtime.engine import Engine
from zerograd.runtime.ranks import replicas

rank, world = int(sys.argv[1]), int(sys.argv[2])
Results = list[tuple[str, str, int]]
Train = Callable[[], None]
N = 4
SOON = dt.timedelta(seconds=5)


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))


def batches(number: int) -> Iterator[Tensor]:
    torch.manual_seed(1 + rank)
    for _ in range(number):
        yield torch.randn(3, 4)


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05)


def watched(make: Callable[[], Train], check_ranks: str = "every-step") -> Results:
    with zerograd.watch(on="collect", check_ranks=check_ranks) as report:
        make()()
    assert report.errors == []
    return [(one.code, one.message, one.site.iteration or 0) for one in report.findings]


def plain(model: nn.Module, optimizer: Any = None, steps: int = 6) -> Callable[[], None]:
    """Zero, backward, step."""

    def train() -> None:
        stepping = optimizer or sgd(model)
        for x in batches(steps):
            stepping.zero_grad()
            model(x).square().mean().backward()
            stepping.step()

    return train


def accumulated(model: Any, synced: Callable[[int], bool], windows: int = 4) -> Callable[[], None]:
    """Windows of N micro-batches; `synced` says which of them are synchronised."""

    def train() -> None:
        optimizer = sgd(model)
        for number, x in enumerate(batches(windows * N)):
            on = synced(number % N)
            if isinstance(model, DistributedDataParallel):
                around: Any = nullcontext() if on else model.no_sync()
            else:
                model.set_requires_gradient_sync(on)
                around = nullcontext()
            with around:
                (model(x).square().mean() / N).backward()
            if number % N == N - 1:
                optimizer.step()
                optimizer.zero_grad()

    return train


def ddp(**options: Any) -> DistributedDataParallel:
    return DistributedDataParallel(net(), **options)


def fsdp() -> Any:
    model = net()
    for layer in (model[0], model[2]):
        fully_shard(layer)
    return fully_shard(model)


def hybrid() -> Any:
    mesh = init_device_mesh("cpu", (world, 1), mesh_dim_names=("replicate", "shard"))
    return fully_shard(net(), mesh=mesh)


def last(number: int) -> bool:
    return number == N - 1


def forgets(model: nn.Module, who: int) -> Callable[[], None]:
    """One rank does not clear before its fourth step."""

    def train() -> None:
        optimizer = sgd(model)
        for number, x in enumerate(batches(8), start=1):
            if (rank, number) != (who, 4):
                optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()

    return train


def never_cleared() -> list[int | None]:
    """Every step but the first uses gradients of the one before: how often that is found."""
    model = fsdp()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for x in batches(12):
            model(x).square().mean().backward()
            optimizer.step()
    return [one.seen for one in report.findings]


def shard_norms() -> tuple[list[str], float, float]:
    """What is said of used gradients that are added to, and the norms of what came and of what there was."""

    def local(grad: Any) -> Tensor:
        held: Tensor = grad.to_local()
        return held.detach().clone()

    came = got = 0.0
    with zerograd.watch(on="collect") as report:
        model = fsdp()
        optimizer = sgd(model)
        for number, x in enumerate(batches(3)):
            before = [] if number < 2 else [local(one.grad) for one in model.parameters()]
            model(x).square().mean().backward()
            if before:
                now = [local(one.grad) for one in model.parameters()]
                came = sum(float((b - a).norm() ** 2) for a, b in zip(before, now, strict=True))
                got = sum(float(grad.norm() ** 2) for grad in now)
            optimizer.step()
            if number == 0:
                optimizer.zero_grad()
    return [one.message for one in report.findings], came**0.5, got**0.5


def perturbed(
    model: nn.Module, who: int, at: int, steps: int, which: int = 2, after: Any = lambda _: None
) -> Callable[[], None]:
    """One rank changes one number of one parameter; `after` is called with each step's number."""

    def train() -> None:
        optimizer = sgd(model)
        for number, x in enumerate(batches(steps), start=1):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            if (rank, number) == (who, at):
                with torch.no_grad():
                    local = list(model.parameters())[which]
                    getattr(local, "_local_tensor", local).view(-1)[0] += 1e-3
            optimizer.step()
            after(number)

    return train


def skipping() -> None:
    """One rank leaves out a step."""
    model = ddp()
    optimizer = sgd(model)
    for number, x in enumerate(batches(12), start=1):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        if (rank, number) != (1, 5):
            optimizer.step()


def other_rate(model: nn.Module) -> Callable[[], None]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05 * (1 + rank))
    return plain(model, optimizer)


def own_gradients() -> None:
    """A rank clips what all have shared by a measure of its own."""
    model = ddp()
    optimizer = sgd(model)
    for x in batches(6):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1e-3 * (1 + rank))
        optimizer.step()


def by_hand(*, flat: bool) -> Callable[[], None]:
    """Everything under no_sync, and the gradients averaged by the program itself."""

    def train() -> None:
        model = ddp()
        optimizer = sgd(model)
        for x in batches(6):
            with model.no_sync():
                model(x).square().mean().backward()
            grads = [param.grad for param in model.parameters() if param.grad is not None]
            if flat:
                together = torch.cat([grad.flatten() for grad in grads])
                dist.all_reduce(together)
                for grad, part in zip(
                    grads, torch.split(together, [g.numel() for g in grads]), strict=True
                ):
                    grad.copy_(part.view_as(grad) / world)
            else:
                for grad in grads:
                    dist.all_reduce(grad)
                    grad /= world
            dist.all_reduce(torch.zeros(1))
            optimizer.step()
            optimizer.zero_grad()

    return train


def retained() -> None:
    """Two backward calls through one forward: DDP shares the first."""
    model = ddp()
    optimizer = sgd(model)
    for x in batches(4):
        optimizer.zero_grad()
        out = model(x)
        out.square().mean().backward(retain_graph=True)
        out.mean().backward()
        optimizer.step()


def through_module() -> None:
    model = ddp()
    optimizer = sgd(model)
    for x in batches(4):
        optimizer.zero_grad()
        model.module(x).square().mean().backward()
        optimizer.step()


def unused() -> None:
    """Part of the model takes turns; with find_unused_parameters."""
    layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)])

    class Turns(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = layers

        def forward(self, x: Tensor, turn: int) -> Any:
            return self.layers[2](self.layers[turn % 2](x))

    model = DistributedDataParallel(Turns(), find_unused_parameters=True)
    optimizer = sgd(model)
    for number, x in enumerate(batches(8)):
        optimizer.zero_grad()
        model(x, number).square().mean().backward()
        optimizer.step()


def evaluated() -> None:
    """Forwards without a gradient, between forward and backward and elsewhere, change nothing."""
    model = ddp()
    optimizer = sgd(model)
    for x in batches(6):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        with torch.no_grad():
            model(x)
        loss.backward()
        optimizer.step()
        model(x)


def two_of_one() -> None:
    """Two optimizers over the halves of one wrapper, and one over two wrappers."""
    model = ddp()
    halves = [torch.optim.SGD(model.module[0].parameters(), lr=0.1), sgd(model.module[2])]
    for x in batches(6):
        for one in halves:
            one.zero_grad()
        model(x).square().mean().backward()
        for one in halves:
            one.step()
    first, second = DistributedDataParallel(nn.Linear(4, 4)), DistributedDataParallel(net())
    both = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)
    for x in batches(6):
        both.zero_grad()
        second(first(x)).square().mean().backward()
        both.step()


def scaled() -> None:
    model = ddp()
    optimizer = sgd(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    for x in batches(6):
        optimizer.zero_grad()
        scaler.scale(model(x).square().mean()).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()


def flat(mistake: str = "", *, parts: bool = False) -> Train:
    """FSDP1 with the scaler of its own; with `parts` the optimizer has the parameters of the model."""

    def train() -> None:
        model = FullyShardedDataParallel(
            net(), device_id=torch.device("cpu"), use_orig_params=parts
        )
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        scaler = ShardedGradScaler(device="cpu", init_scale=64.0)
        for number, x in enumerate(batches(8)):
            if mistake != "never cleared":
                optimizer.zero_grad()
            factor = float("inf") if number == 4 and not mistake else 1.0
            loss = model(x).square().mean() * factor
            if mistake != "not always scaled" or number % 2 == 0:
                loss = scaler.scale(loss)
            loss.backward()
            if mistake == "clipped scaled":
                model.clip_grad_norm_(1.0)
            scaler.unscale_(optimizer)
            if not mistake:
                model.clip_grad_norm_(1.0)
            scaler.step(optimizer)
            scaler.update()

    return train


def tensor_parallel() -> None:
    mesh = init_device_mesh("cpu", (world,))
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    model = parallelize_module(net(), mesh, plan)
    optimizer = sgd(model)
    torch.manual_seed(5)
    for _ in range(6):
        optimizer.zero_grad()
        model(torch.randn(3, 4)).square().mean().backward()
        optimizer.step()


def apart() -> None:
    """Every rank trains a model of its own: they have nothing to compare."""
    torch.manual_seed(rank)
    model = nn.Linear(4, 2)
    plain(model, torch.optim.SGD(model.parameters(), lr=0.1 * (1 + rank)))()


def zero_redundancy() -> None:
    model = ddp()
    plain(model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01))()


def page(which: str) -> Callable[[], None]:
    """An example of the rule's own page."""

    def train() -> None:
        code = diverged_ranks.__doc__.split(f"## {which}\n\n```python\n")[1].split("```")[0]
        torch.manual_seed(rank)
        model = nn.Linear(3, 1)
        names = {
            "model": model,
            "optimizer": torch.optim.SGD(model.parameters(), lr=0.01),
            "loss_fn": nn.MSELoss(),
            "loader": [(torch.randn(2, 3), torch.randn(2, 1)) for _ in range(6)],
            "dist": dist,
            "DistributedDataParallel": DistributedDataParallel,
        }
        exec(compile(code, "train.py", "exec"), names)

    return train


def made_before(make: Callable[[], nn.Module]) -> Results:
    """A wrapper and an optimizer that were there before the watch began, and no others."""
    gc.collect()
    train = other_rate(make())
    return watched(lambda: train)


def another_later() -> str:
    """A second wrapper comes when the first has stepped, between two checks."""
    with zerograd.watch(on="collect") as report:
        model = ddp()
        optimizer = sgd(model)
        plain(model, optimizer, 5)()
        other = ddp()
        plain(model, optimizer, 30)()
        del other
    assert report.findings == []
    assert report.watched is not None
    return report.watched.could_not.get("ZG402", "")


def found_by_default() -> list[tuple[int, list[str], int]]:
    """When each parameter is changed, right after ranks have compared: what is said, and after which step."""
    results = []
    for which in range(4):
        heard: list[int] = []
        with zerograd.watch(on="collect") as report:
            changes = replicas.EVERY + 1
            last = changes + replicas.EVERY + 5

            def after(step: int, heard: list[int] = heard, report: Any = report) -> None:
                if report.findings and not heard:
                    heard.append(step)

            perturbed(ddp(), 1, changes, last, which, after)()
        messages = [one.message for one in report.findings]
        results.append((changes, messages, heard[0] if heard else 0))
    return results


def strangers() -> list[str]:
    """The ranks have another torch, and another program."""
    main: Any = sys.modules["__main__"]
    known = torch.__version__, main.__file__
    try:
        if rank == 1:
            torch.__version__, main.__file__ = "2.99.0", ranks.__file__  # type: ignore[assignment]
        with zerograd.watch(on="collect", check_ranks="every-step") as report:
            plain(ddp())()
    finally:
        torch.__version__, main.__file__ = known
    assert report.findings == []
    return [problem.message for problem in report.errors]


def lost() -> str:
    """The process group's store is gone, for one rank; the training goes on."""
    with zerograd.watch(on="collect", check_ranks="every-step") as report:
        model = ddp()
        optimizer = sgd(model)
        plain(model, optimizer)()
        engine = Engine.running
        assert engine is not None
        if rank == 1:
            host = TCPStore("127.0.0.1", 0, is_master=True, timeout=SOON)
            engine.watcher.replicas._store = TCPStore("127.0.0.1", host.port, timeout=SOON)
            del host
        plain(model, optimizer)()
    assert report.findings == []
    assert report.errors == []
    assert report.watched is not None
    assert report.watched.steps == 12
    return report.watched.could_not.get("ZG402", "")


RIGHT: dict[str, Callable[[], Train]] = {
    "ddp": lambda: plain(ddp()),
    "ddp bucket views": lambda: plain(ddp(gradient_as_bucket_view=True)),
    "ddp static graph": lambda: plain(ddp(static_graph=True)),
    "ddp unused": lambda: unused,
    "ddp window": lambda: accumulated(ddp(), last),
    "ddp window, bucket views": lambda: accumulated(ddp(gradient_as_bucket_view=True), last),
    "ddp evaluated": lambda: evaluated,
    "ddp scaled": lambda: scaled,
    "ddp several": lambda: two_of_one,
    "ddp by hand": lambda: by_hand(flat=False),
    "ddp by hand, flat": lambda: by_hand(flat=True),
    "ddp zero redundancy": lambda: zero_redundancy,
    "fsdp": lambda: plain(fsdp()),
    "fsdp window": lambda: accumulated(fsdp(), last),
    "fsdp hybrid": lambda: plain(hybrid()),
    "flat": flat,
    "flat parts": lambda: flat(parts=True),
    "tensor parallel": lambda: tensor_parallel,
    "apart": lambda: apart,
    "page good": lambda: page("Good"),
}
WRONG: dict[str, Callable[[], Train]] = {
    "ddp last apart": lambda: accumulated(ddp(), lambda n: not last(n)),
    "ddp never": lambda: accumulated(ddp(), lambda _: False),
    "ddp always": lambda: accumulated(ddp(), lambda _: True),
    "ddp module": lambda: through_module,
    "ddp retained": lambda: retained,
    "ddp forgets": lambda: forgets(ddp(), 1),
    "ddp forgets, bucket views": lambda: forgets(ddp(gradient_as_bucket_view=True), 0),
    "ddp perturbed": lambda: perturbed(ddp(), 1, 3, 8),
    "ddp perturbed first": lambda: perturbed(ddp(), 0, 3, 8),
    "ddp skips": lambda: skipping,
    "page bad": lambda: page("Bad"),
    "ddp other rate": lambda: other_rate(ddp()),
    "ddp own gradients": lambda: own_gradients,
    "flat never cleared": lambda: flat("never cleared"),
    "flat parts never cleared": lambda: flat("never cleared", parts=True),
    "flat clipped scaled": lambda: flat("clipped scaled"),
    "flat not always scaled": lambda: flat("not always scaled"),
    "flat parts not always scaled": lambda: flat("not always scaled", parts=True),
    "fsdp never": lambda: accumulated(fsdp(), lambda _: False),
    "fsdp last apart": lambda: accumulated(fsdp(), lambda n: not last(n)),
    "fsdp always": lambda: accumulated(fsdp(), lambda _: True),
    "fsdp forgets": lambda: forgets(fsdp(), 1),
    "fsdp other rate": lambda: other_rate(fsdp()),
    "fsdp hybrid perturbed": lambda: perturbed(hybrid(), 1, 3, 8),
}
SCENARIOS: dict[str, Callable[[], Any]] = {
    name: (lambda make=make: watched(make))  # type: ignore[misc]
    for name, make in {**RIGHT, **WRONG}.items()
}
SCENARIOS["ddp perturbed, default"] = found_by_default
SCENARIOS["fsdp norms"] = shard_norms
SCENARIOS["fsdp never cleared"] = never_cleared
SCENARIOS["another later"] = another_later
SCENARIOS["made before"] = lambda: [made_before(make) for make in (ddp, fsdp)]
SCENARIOS["ddp perturbed, off"] = lambda: watched(lambda: perturbed(ddp(), 1, 3, 40), "off")
SCENARIOS["strangers"] = strangers
SCENARIOS["lost"] = lost

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    work(rank, world, Path(sys.argv[3]), ranks.chosen(SCENARIOS))
