"""Patches torch.distributed, and tells a `RankSync` about DDP, FSDP2 and collectives.

It belongs to `patches`: every patch calls the original. Nothing of torch.distributed is imported that
the program has not imported itself, and little of it is patched before the ranks form a process group.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from zerograd.runtime.disguise import disguised
from zerograd.runtime.ranks.groups import COLLECTIVES, SHARDING

if TYPE_CHECKING:
    from zerograd.runtime.ranks.sync import RankSync

Set = Callable[[Any, str, Any], None]
"""Sets an attribute, and notes how to put it back."""
WrapInside = Callable[[Any, Callable[[Any], Any]], None]
"""Wraps the function inside a decorated one."""
Listener = Callable[[], "RankSync | None"]
"""The current listener, if there is one."""

SENDERS = (
    "all_reduce",
    "reduce",
    "reduce_scatter_tensor",
    "all_gather",
    "all_gather_into_tensor",
    "broadcast",
)
"""Collectives with which a program may share gradients. The first argument is a tensor or a list."""
_DDP = "torch.nn.parallel.distributed"
MODULES = (_DDP, COLLECTIVES)
"""The modules that are patched if they are there."""


def listen(wrap_inside: WrapInside, listens: Listener, met: Callable[[], None]) -> None:
    """Begin to listen to the ranks that form a process group; `met` is called before the listener is."""
    meet = getattr(sys.modules.get(COLLECTIVES), "init_process_group", None)
    if getattr(meet, "__closure__", None):
        wrap_inside(meet, lambda inner: _meeting(inner, listens, met))


def have_met() -> bool:
    """Whether ranks have formed a process group."""
    known = sys.modules.get(COLLECTIVES)
    return known is not None and bool(known.is_initialized())


def listen_to_ranks(set_: Set, wrap_inside: WrapInside, listens: Listener) -> None:
    """Begin to listen to DDP and to collectives."""
    module = sys.modules.get(_DDP)
    if module is not None:
        _ddp(set_, module.DistributedDataParallel, listens)
    collectives = sys.modules[COLLECTIVES]
    for name in SENDERS:
        sender = getattr(collectives, name, None)
        if getattr(sender, "__closure__", None):
            wrap_inside(sender, lambda inner: _sending(inner, listens))


def _ddp(set_: Set, ddp: Any, listens: Listener) -> None:
    init, forward, no_sync = ddp.__init__, ddp.forward, ddp.no_sync
    enabled = sys.modules["torch"].is_grad_enabled

    def wraps(*args: Any, **kwargs: Any) -> None:
        init(*args, **kwargs)
        listener = listens()
        if listener is not None:
            listener.heard(listener.wrapped, args[0] if args else kwargs["self"])

    def forwards(*args: Any, **kwargs: Any) -> Any:
        syncs = enabled() and bool(args) and getattr(args[0], "require_backward_grad_sync", False)
        result = forward(*args, **kwargs)
        listener = listens()
        if listener is not None and args and enabled():
            listener.heard(listener.forwarded, args[0], syncs)
        return result

    def puts_off(*args: Any, **kwds: Any) -> Any:
        result = no_sync(*args, **kwds)
        listener = listens()
        if listener is not None and args and isinstance(args[0], ddp):
            listener.heard(listener.put_off, args[0])
        return result

    for name, before, now in (
        ("__init__", init, wraps),
        ("forward", forward, forwards),
        ("no_sync", no_sync, puts_off),
    ):
        set_(ddp, name, disguised(before, now))


def listen_to_shards(set_: Set, listens: Listener) -> bool:
    """Begin to listen to FSDP2; False while the program has not imported it."""
    module = sys.modules.get(SHARDING)
    if module is None:
        return False
    sharded: Any = module.FSDPModule
    before = sharded.set_requires_gradient_sync

    def set_requires_gradient_sync(
        self: Any, requires_gradient_sync: bool, *args: Any, **kwargs: Any
    ) -> None:
        before(self, requires_gradient_sync, *args, **kwargs)
        listener = listens()
        if listener is None:
            return
        if requires_gradient_sync:
            listener.heard(listener.taken_up, self)
        else:
            listener.heard(listener.put_off, self)

    set_(sharded, "set_requires_gradient_sync", disguised(before, set_requires_gradient_sync))
    return True


def _meeting(inner: Any, listens: Listener, met: Callable[[], None]) -> Any:
    def meet(*args: Any, **kwargs: Any) -> Any:
        result = inner(*args, **kwargs)
        listener = listens()
        if listener is not None:
            listener.heard(met)
            listener.heard(listener.met)
        return result

    return disguised(inner, meet)


def _sending(inner: Any, listens: Listener) -> Any:
    def count(listener: RankSync, first: Any = None, *_: Any) -> None:
        tensors = first if isinstance(first, (list, tuple)) else (first,)
        numbers = sum(one.numel() for one in tensors if hasattr(one, "is_floating_point"))
        listener.sent(numbers)

    def send(*args: Any, **kwargs: Any) -> Any:
        result = inner(*args, **kwargs)
        listener = listens()
        if listener is not None:
            listener.heard(count, listener, *(args or kwargs.values()))
        return result

    return disguised(inner, send)
