"""Who shares the gradients: nobody, DDP's ranks, or FSDP2's.

A collective is only ever started where every rank starts it: at the beginning of a loop, when a
window opens, before its synchronised backward, and in `flush()`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from zerograd.stepper.weights import Amount, readable


class Alone:
    """One process: nothing to share, nothing to agree on."""

    size = 1
    shards = False
    views = False
    """Whether gradients are views of DDP's buckets."""
    first_syncs_all = False
    """Whether the first window must synchronise every batch."""

    def sync(self, on: bool) -> None:
        """Whether the next backward synchronises; set before the forward."""

    def start_sum(self, value: Amount) -> Callable[[], Amount]:
        """Begin to add up over the ranks; the result is waited for when asked for."""
        return lambda: value

    def largest(self, value: Amount) -> Amount:
        """The largest of the ranks' values."""
        return value

    def each(self, value: int) -> list[int]:
        """What every rank says, known to all."""
        return [value]

    def rerun(self) -> bool:
        """A synchronised backward that adds nothing: what waited for one is delivered."""
        return True

    def forget_inputs(self) -> None:
        """The window is over."""

    def local(self, grads: list[Tensor]) -> list[Tensor]:
        """This rank's part of the gradients, as plain tensors."""
        return grads


class Ranks(Alone):
    """Several ranks whose gradients are averaged."""

    name = ""

    def __init__(self, modules: list[nn.Module], group: Any, device: torch.device) -> None:
        self._group = group
        self._device = device
        self.size = dist.get_world_size(group)
        self._rank = dist.get_rank(group)
        self._inputs = [_Inputs() for _ in modules]
        self._modules = modules
        for module, inputs in zip(modules, self._inputs, strict=True):
            hook = module.register_forward_pre_hook(inputs, with_kwargs=True)
            weakref.finalize(self, hook.remove)

    def start_sum(self, value: Amount) -> Callable[[], Amount]:
        exact = torch.float32 if self._device.type == "mps" else torch.float64
        total = torch.as_tensor(value, dtype=exact, device=self._device).clone()
        work = dist.all_reduce(total, group=self._group, async_op=True)

        def result() -> Amount:
            if work is not None:
                work.wait()
            return total.item() if readable(total) else total

        return result

    def largest(self, value: Amount) -> Amount:
        exact = torch.float32 if self._device.type == "mps" else torch.float64
        most = torch.as_tensor(value, dtype=exact, device=self._device).clone()
        dist.all_reduce(most, dist.ReduceOp.MAX, group=self._group)
        return most.item() if readable(most) else most

    def each(self, value: int) -> list[int]:
        said = torch.zeros(self.size, dtype=torch.int64, device=self._device)
        said[self._rank] = value
        dist.all_reduce(said, group=self._group)
        return [int(one) for one in said.tolist()]

    def rerun(self) -> bool:
        self.sync(True)
        known = any(inputs.last is not None for inputs in self._inputs)
        for module, inputs in zip(self._modules, self._inputs, strict=True):
            if inputs.last is not None:
                args, kwargs = _detached(inputs.last)
                with torch.enable_grad():
                    outputs = [one for one in _tensors(module(*args, **kwargs)) if one.grad_fn]
                    torch.autograd.backward(outputs, [torch.zeros_like(one) for one in outputs])
        return known

    def forget_inputs(self) -> None:
        for inputs in self._inputs:
            inputs.last = None


class Replicas(Ranks):
    """DDP: every rank holds all gradients."""

    name = "DDP"

    def __init__(self, modules: list[DistributedDataParallel], device: torch.device) -> None:
        super().__init__(list(modules), modules[0].process_group, device)
        self._wrappers = modules
        self.views = any(module.gradient_as_bucket_view for module in modules)
        # DDP learns the graph in its first synchronised backward, and asserts that it comes first.
        self.first_syncs_all = any(module.static_graph for module in modules)

    def sync(self, on: bool) -> None:
        for module in self._wrappers:
            module.require_backward_grad_sync = on


class Shards(Ranks):
    """FSDP2: every rank holds its part of each gradient; what is not synchronised waits inside."""

    name = "FSDP2"
    shards = True

    def __init__(
        self, roots: list[nn.Module], sharded: list[Any], group: Any, device: torch.device
    ) -> None:
        super().__init__(roots, group, device)
        self._sharded = sharded

    def sync(self, on: bool) -> None:
        for module in self._sharded:
            module.set_requires_gradient_sync(on, recurse=False)

    def local(self, grads: list[Tensor]) -> list[Tensor]:
        return [grad.to_local() if hasattr(grad, "to_local") else grad for grad in grads]


class _Inputs:
    """What a module was last called with, kept while a window is open; copies of it are empty."""

    def __init__(self) -> None:
        self.last: tuple[tuple[Any, ...], dict[str, Any]] | None = None

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if torch.is_grad_enabled():
            self.last = args, kwargs

    def __reduce__(self) -> tuple[type[_Inputs], tuple[()]]:
        return _Inputs, ()


def _tensors(value: Any) -> list[Tensor]:
    """The tensors in a module's output."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    elif hasattr(value, "__dataclass_fields__"):
        value = list(vars(value).values())
    return (
        [one for part in value for one in _tensors(part)]
        if isinstance(value, (list, tuple))
        else []
    )


def _detached(value: Any) -> Any:
    """The same without the graph it came from, which is spent."""
    if isinstance(value, Tensor):
        return value.detach().requires_grad_(value.requires_grad)
    if isinstance(value, dict):
        return {key: _detached(one) for key, one in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_detached(one) for one in value)
    return value


def ranks_of(modules: list[nn.Module], params: Iterable[Tensor], group: Any) -> Alone:
    """Who shares the gradients of these parameters, found from how the modules are wrapped."""
    params = list(params)
    inside = [one for module in modules for one in module.modules()]
    replicas = [one for one in inside if isinstance(one, DistributedDataParallel)]
    # By name: where the class lives has moved between torch 2.4 and now.
    sharded = [one for one in inside if "FSDPModule" in (c.__name__ for c in type(one).__mro__)]
    if any(type(one).__name__ == "FullyShardedDataParallel" for one in inside):
        raise TypeError("FSDP1 is not supported: shard the model with fully_shard() (FSDP2)")
    if replicas and sharded:
        raise TypeError("modules under DDP and modules under FSDP2 need a stepper each")
    if replicas:
        shared = {id(param) for one in replicas for param in one.parameters()}
        _all_shared(params, shared, "DDP", "wrap every trained module in DDP")
        if len({id(one.process_group) for one in replicas}) > 1:
            raise TypeError("modules of different process groups need a stepper each")
        return Replicas(replicas, params[0].device)
    if sharded:
        shared = {id(param) for param in params if hasattr(param, "device_mesh")}
        _all_shared(params, shared, "FSDP2", "fully_shard() every trained module")
        roots = [one for one in modules if any(part in sharded for part in one.modules())]
        return Shards(roots, sharded, group or _group(params), params[0].device)
    return Alone()


def _all_shared(params: list[Tensor], shared: set[int], name: str, way_out: str) -> None:
    outside = sum(id(param) not in shared for param in params)
    if outside:
        raise ValueError(
            f"{outside} of the optimizer's {len(params)} parameters are not under {name}, so the"
            f" ranks would step them differently: {way_out}"
        )


def _group(params: list[Any]) -> Any:
    """The ranks over which FSDP2 averages: the parameters' mesh, if it has no other use."""
    mesh = params[0].device_mesh
    if mesh.ndim == 1:
        return mesh.get_group()
    first, *rest = params[0].placements
    hybrid = mesh.ndim == 2 and first.is_replicate() and rest[0].is_shard()
    if hybrid and mesh.size() == dist.get_world_size():
        return None
    raise ValueError(
        f"over which ranks are gradients averaged on a mesh of {mesh.ndim} dimensions?"
        " Say it with group=, a process group"
    )
