"""Patches torch.distributed so that a listener hears of DDP, FSDP2, and collectives.

It belongs to `patches`: every patch calls the original. Nothing of torch.distributed is imported that
the program has not imported itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Protocol

from zerograd.runtime.disguise import disguised

Set = Callable[[Any, str, Any], None]
"""Sets an attribute, and notes how to put it back."""
WrapInside = Callable[[Any, Callable[[Any], Any]], None]
"""Wraps the function inside a decorated one."""

SENDERS = (
    "all_reduce",
    "reduce",
    "reduce_scatter_tensor",
    "all_gather",
    "all_gather_into_tensor",
    "broadcast",
)
"""Collectives with which a program may share gradients. The first argument is a tensor or a list."""
_SHARDING = "torch.distributed.fsdp._fully_shard._fully_shard"
_DDP = "torch.nn.parallel.distributed"
_COLLECTIVES = "torch.distributed.distributed_c10d"
MODULES = (_DDP, _COLLECTIVES)
"""The modules that `listen` patches if they are there."""


class Listener(Protocol):
    """What is called when torch.distributed is used."""

    heard: Callable[..., Any]
    """Calls a method of the listener, so that the program does not notice (`unnoticed`)."""

    def look_for_wrappers(self) -> None:
        """Find the modules that were wrapped before."""
        ...

    def met(self) -> None:
        """The ranks have formed a process group."""
        ...

    def wrapped(self, module: Any) -> None:
        """A module is under DDP."""
        ...

    def forwarded(self, module: Any, syncs: bool) -> None:
        """A forward went through DDP; `syncs`: the backward after it will synchronise."""
        ...

    def put_off(self, module: Any) -> None:
        """From now on gradients are not synchronised. It is called inside the user's call."""
        ...

    def taken_up(self, module: Any) -> None:
        """From now on they are synchronised again."""
        ...

    def sent(self, numbers: int) -> None:
        """A collective has sent `numbers` numbers."""
        ...


class Ear(Protocol):
    """A patch reaches the current listener through it."""

    @property
    def sync(self) -> Listener | None:
        """The current listener; None if nobody listens."""
        ...


def listen(set_: Set, wrap_inside: WrapInside, ear: Ear) -> None:
    """Begin to listen to DDP and to collectives."""
    module = sys.modules.get(_DDP)
    if module is not None:
        _ddp(set_, module.DistributedDataParallel, ear)
    collectives = sys.modules.get(_COLLECTIVES)
    meet = getattr(collectives, "init_process_group", None)
    if getattr(meet, "__closure__", None):
        wrap_inside(meet, lambda inner: _meeting(inner, ear))
    for name in SENDERS if collectives is not None else ():
        sender = getattr(collectives, name, None)
        if getattr(sender, "__closure__", None):
            wrap_inside(sender, lambda inner: _sending(inner, ear))


def _ddp(set_: Set, ddp: Any, ear: Ear) -> None:
    init, forward, no_sync = ddp.__init__, ddp.forward, ddp.no_sync
    enabled = sys.modules["torch"].is_grad_enabled

    def wraps(*args: Any, **kwargs: Any) -> None:
        init(*args, **kwargs)
        listener = ear.sync
        if listener is not None:
            listener.heard(listener.wrapped, args[0] if args else kwargs["self"])

    def forwards(*args: Any, **kwargs: Any) -> Any:
        syncs = enabled() and bool(args) and getattr(args[0], "require_backward_grad_sync", False)
        result = forward(*args, **kwargs)
        listener = ear.sync
        if listener is not None and args and enabled():
            listener.heard(listener.forwarded, args[0], syncs)
        return result

    def puts_off(*args: Any, **kwds: Any) -> Any:
        result = no_sync(*args, **kwds)
        listener = ear.sync
        if listener is not None and args and isinstance(args[0], ddp):
            listener.heard(listener.put_off, args[0])
        return result

    for name, before, now in (
        ("__init__", init, wraps),
        ("forward", forward, forwards),
        ("no_sync", no_sync, puts_off),
    ):
        set_(ddp, name, disguised(before, now))


def listen_to_shards(set_: Set, ear: Ear) -> bool:
    """Begin to listen to FSDP2; False while the program has not imported it."""
    module = sys.modules.get(_SHARDING)
    if module is None:
        return False
    sharded: Any = module.FSDPModule
    before = sharded.set_requires_gradient_sync

    def set_requires_gradient_sync(
        self: Any, requires_gradient_sync: bool, *args: Any, **kwargs: Any
    ) -> None:
        before(self, requires_gradient_sync, *args, **kwargs)
        listener = ear.sync
        if listener is None:
            return
        if requires_gradient_sync:
            listener.heard(listener.taken_up, self)
        else:
            listener.heard(listener.put_off, self)

    set_(sharded, "set_requires_gradient_sync", disguised(before, set_requires_gradient_sync))
    return True


def is_sharded(module: Any) -> bool:
    """Whether a module is under FSDP2."""
    # Not isinstance: some objects of torch warn when `__class__` is read.
    return is_sharded_type(type(module))


def is_sharded_type(kind: type) -> bool:
    """Whether modules of this type are under FSDP2."""
    known = sys.modules.get(_SHARDING)
    return known is not None and issubclass(kind, known.FSDPModule)


def waiting(module: Any) -> list[Any]:
    """The parameters of an FSDP2 module and its submodules whose gradients are not synchronised yet."""
    found = []
    for one in module.modules():
        if is_sharded(one):
            state = one._get_fsdp_state()
            groups = getattr(state, "_fsdp_param_groups", None)
            if groups is None:
                group = getattr(state, "_fsdp_param_group", None)
                groups = [] if group is None else [group]
            for group in groups:
                found += [param.sharded_param for param in group.fsdp_params if _waits(param)]
    return found


def _waits(param: Any) -> bool:
    """Whether FSDP2 keeps an unsharded gradient of a parameter, in the dtype of the reduction or not."""
    whole = getattr(param, "_unsharded_param", None)
    return param.unsharded_accumulated_grad is not None or (
        whole is not None and whole.grad is not None
    )


def world(torch: Any) -> Any:
    """The default process group; None while there is none."""
    group = getattr(torch.distributed, "group", None)
    return None if group is None else group.WORLD


def store() -> Any:
    """The default process group's store."""
    return sys.modules[_COLLECTIVES]._get_default_store()


def _meeting(inner: Any, ear: Ear) -> Any:
    def meet(*args: Any, **kwargs: Any) -> Any:
        result = inner(*args, **kwargs)
        listener = ear.sync
        if listener is not None:
            listener.heard(listener.met)
        return result

    return disguised(inner, meet)


def _sending(inner: Any, ear: Ear) -> Any:
    def count(listener: Listener, first: Any = None, *_: Any) -> None:
        tensors = first if isinstance(first, (list, tuple)) else (first,)
        numbers = sum(one.numel() for one in tensors if hasattr(one, "is_floating_point"))
        listener.sent(numbers)

    def send(*args: Any, **kwargs: Any) -> Any:
        result = inner(*args, **kwargs)
        listener = ear.sync
        if listener is not None:
            listener.heard(count, listener, *(args or kwargs.values()))
        return result

    return disguised(inner, send)
