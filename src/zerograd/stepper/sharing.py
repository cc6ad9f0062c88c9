"""Which ranks share the gradients: none, those of DDP, or those of FSDP2.

A collective call starts only where every rank starts it: at the beginning of a loop, when a window
opens, before the synchronised backward of a window, and in `flush()`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from zerograd.stepper.weights import Scalar, exact_dtype, on_host


class SingleProcess:
    """One process: there is nothing to synchronise."""

    size = 1
    distributed = False
    sharded = False
    """Whether each rank holds only its shard of a gradient (FSDP2)."""
    bucket_views = False
    """Whether gradients are views of DDP's buckets."""
    sync_first_window = False
    """Whether every batch of the first window must be synchronised."""

    def set_sync(self, on: bool) -> None:
        """Say whether the next backward synchronises. Must be called before the forward."""

    def start_sum(self, value: Scalar) -> Callable[[], Scalar]:
        """Start a sum over the ranks. Calling the result waits for the sum."""
        return lambda: value

    def largest(self, value: Scalar) -> Scalar:
        """The largest of the ranks' values."""
        return value

    def gather(self, value: int) -> list[int]:
        """The values of all ranks."""
        return [value]

    def sync_again(self) -> bool:
        """Synchronise with a backward that adds zeros, after repeating the last forward.

        False if no forward has been seen in this window.
        """
        return True

    def forget_inputs(self) -> None:
        """Drop the inputs of the last forward: the window is closed."""

    def local(self, grads: list[Tensor]) -> list[Tensor]:
        """This rank's part of the gradients, as plain tensors."""
        return grads


class Ranks(SingleProcess):
    """Several ranks that average their gradients."""

    distributed = True

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

    def _tensor(self, value: Scalar) -> Tensor:
        return torch.as_tensor(value, dtype=exact_dtype(self._device), device=self._device).clone()

    def start_sum(self, value: Scalar) -> Callable[[], Scalar]:
        total = self._tensor(value)
        work = dist.all_reduce(total, group=self._group, async_op=True)

        def result() -> Scalar:
            if work is not None:
                work.wait()
            return total.item() if on_host(total) else total

        return result

    def largest(self, value: Scalar) -> Scalar:
        most = self._tensor(value)
        dist.all_reduce(most, dist.ReduceOp.MAX, group=self._group)
        return most.item() if on_host(most) else most

    def gather(self, value: int) -> list[int]:
        values = torch.zeros(self.size, dtype=torch.int64, device=self._device)
        values[self._rank] = value
        dist.all_reduce(values, group=self._group)
        return [int(one) for one in values.tolist()]

    def sync_again(self) -> bool:
        self.set_sync(True)
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


class DdpRanks(Ranks):
    """DDP: every rank holds all gradients."""

    def __init__(self, modules: list[DistributedDataParallel], device: torch.device) -> None:
        super().__init__(list(modules), modules[0].process_group, device)
        self._wrappers = modules
        self.bucket_views = any(module.gradient_as_bucket_view for module in modules)
        # DDP learns a static graph in its first backward, and asserts that it is a synchronised one.
        self.sync_first_window = any(module.static_graph for module in modules)

    def set_sync(self, on: bool) -> None:
        for module in self._wrappers:
            module.require_backward_grad_sync = on


class FsdpRanks(Ranks):
    """FSDP2: every rank holds a shard of each gradient. FSDP2 keeps unsynchronised gradients."""

    sharded = True

    def __init__(
        self, roots: list[nn.Module], sharded: list[Any], group: Any, device: torch.device
    ) -> None:
        super().__init__(roots, group, device)
        self._sharded = sharded

    def set_sync(self, on: bool) -> None:
        for module in self._sharded:
            module.set_requires_gradient_sync(on, recurse=False)

    def local(self, grads: list[Tensor]) -> list[Tensor]:
        return [grad.to_local() if hasattr(grad, "to_local") else grad for grad in grads]


class _Inputs:
    """The last inputs of a module, kept while a window is open. A copy is empty."""

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
    """The same value without its graph, which backward has freed."""
    if isinstance(value, Tensor):
        return value.detach().requires_grad_(value.requires_grad)
    if isinstance(value, dict):
        return {key: _detached(one) for key, one in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_detached(one) for one in value)
    return value


def ranks_of(modules: list[nn.Module], params: Iterable[Tensor], group: Any) -> SingleProcess:
    """The ranks that share these gradients, found from the wrappers of the modules."""
    params = list(params)
    inside = [one for module in modules for one in module.modules()]
    replicas = [one for one in inside if isinstance(one, DistributedDataParallel)]
    # By name: torch has moved the class since 2.4.
    sharded = [one for one in inside if "FSDPModule" in (c.__name__ for c in type(one).__mro__)]
    if any(type(one).__name__ == "FullyShardedDataParallel" for one in inside):
        raise TypeError("FSDP1 is not supported: use fully_shard() (FSDP2)")
    if replicas and sharded:
        raise TypeError(
            "some modules are under DDP and some under FSDP2: give each kind its own stepper"
        )
    if replicas:
        shared = {id(param) for one in replicas for param in one.parameters()}
        _all_shared(params, shared, "DDP", "wrap every trained module in DDP")
        if len({id(one.process_group) for one in replicas}) > 1:
            raise TypeError(
                "the modules have different process groups: give each group its own stepper"
            )
        return DdpRanks(replicas, params[0].device)
    if sharded:
        shared = {id(param) for param in params if hasattr(param, "device_mesh")}
        _all_shared(params, shared, "FSDP2", "fully_shard() every trained module")
        roots = [one for one in modules if any(part in sharded for part in one.modules())]
        return FsdpRanks(roots, sharded, group or _group(params), params[0].device)
    return SingleProcess()


def _all_shared(params: list[Tensor], shared: set[int], name: str, remedy: str) -> None:
    outside = sum(id(param) not in shared for param in params)
    if outside:
        raise ValueError(
            f"{outside} of the optimizer's {len(params)} parameters are not under {name}, so the"
            f" ranks would step them differently: {remedy}"
        )


def _group(params: list[Any]) -> Any:
    """The ranks over which FSDP2 averages, if the mesh of the parameters serves nothing else."""
    mesh = params[0].device_mesh
    if mesh.ndim == 1:
        return mesh.get_group()
    first, *rest = params[0].placements
    hybrid = mesh.ndim == 2 and first.is_replicate() and rest[0].is_shard()
    if hybrid and mesh.size() == dist.get_world_size():
        return None
    raise ValueError(
        f"the parameters are on a mesh of {mesh.ndim} dimensions: say with group= over which"
        " process group their gradients are averaged"
    )
