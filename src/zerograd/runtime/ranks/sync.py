"""Which gradients ranks share, and whether a backward has shared them: DDP and FSDP2.

DDP decides in the forward: only the first backward after a forward through the wrapper, with
synchronisation on, synchronises. FSDP2 decides in the backward.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable
from itertools import repeat
from typing import TYPE_CHECKING, Any

from zerograd.core import events
from zerograd.core.events import Backward, Event, Excuse, Site
from zerograd.runtime.call_sites import NOWHERE, CallSites
from zerograd.runtime.event_cache import EventCache
from zerograd.runtime.live_objects import instances
from zerograd.runtime.ranks import groups
from zerograd.runtime.subjects import Subject

if TYPE_CHECKING:
    from torch import Tensor

USER = 3
"""How many frames the user's call is above `put_off`."""


_NOTHING = Backward(NOWHERE)
_NONE = (_NOTHING, _NOTHING)


class Wrapper:
    """One module under DDP."""

    due: bool | None = None
    """Whether the next backward synchronises; None before the first forward."""
    forwards = 0
    """How many there were since the last step."""
    used_by = 0
    """The number of the backward that followed the last forward: a second one does not synchronise."""
    off: Site | None = None

    def __init__(self, module: Any, *, known: bool) -> None:
        self.module = weakref.ref(module)
        self.group = module.process_group
        ignored = getattr(module, "parameters_to_ignore", ())
        self.ids = {
            id(param) for name, param in module.module.named_parameters() if name not in ignored
        }
        self.known = known
        """Whether it was seen from its beginning. If not, its forwards before are not known."""

    @property
    def averages(self) -> bool:
        """Whether all ranks get the same gradients. A communication hook may keep some of them local."""
        hooks = getattr(self.module(), "_comm_hooks", ())
        return all(
            hook.__module__.startswith("torch.") and "local" not in hook.__name__.lower()
            for hook, _ in hooks
            if hasattr(hook, "__module__") and hasattr(hook, "__name__")
        )


class Shared:
    """What ranks share of one subject."""

    syncs = 0
    """How many backward calls were synchronised."""
    steps = 0
    strayed = False
    """A step has used gradients that were not shared: from then on ranks are expected to differ."""

    def __init__(self, params: list[Tensor], wrappers: list[Wrapper]) -> None:
        self.params = params
        self.wrappers = wrappers
        self.wrapper = wrappers[0] if len(wrappers) == 1 else None
        """The wrapper, if there is only one."""
        self.volume = sum(one.numel() * one.element_size() for one in params if one.requires_grad)
        self.numbers = sum(one.numel() for one in params)
        self.last: tuple[Backward, Backward] = _NONE
        """The event of the last backward that was synchronised, without and with that annotation."""
        modules = [wrapper.module() for wrapper in wrappers]
        self.first_window_syncs = any(getattr(one, "static_graph", False) for one in modules)


class RankSync:
    """Listens to wrappers, forwards and collectives, and annotates backward events with what was shared."""

    active = False
    """Whether there is anything that ranks share."""
    _sharded: list[weakref.ref[Any]] | None = None
    _off: weakref.WeakKeyDictionary[Any, Site] | None = None
    """The modules under FSDP2 whose synchronisation is switched off, and where that was done."""
    _generation = 0
    _sent = 0
    _number = 0
    """The number of the backward that is running, or has run last."""
    _latest: Backward | None = None

    def __init__(
        self,
        torch: Any,
        places: CallSites,
        cache: EventCache,
        *,
        met: Callable[[], None],
        shares_more: Callable[[], None],
        heard: Callable[..., Any],
    ) -> None:
        """Calls `met` when the ranks form a process group, `shares_more` when they share more."""
        self.met = met
        self.heard = heard
        self._shares_more = shares_more
        self._torch = torch
        self._places = places
        self._events = cache
        self._wrappers: list[Wrapper] = []

    # Called by the patches of torch.distributed

    def wrapped(self, module: Any, *, known: bool = True) -> None:
        self._more()
        self._wrappers = [one for one in self._wrappers if one.module() is not None]
        self._wrappers.append(Wrapper(module, known=known))

    def forwarded(self, module: Any, syncs: bool) -> None:
        """A forward went through DDP; `syncs`: the backward after it will synchronise."""
        for wrapper in self._wrappers:
            if wrapper.module() is module:
                break
        else:
            wrapper = self._wrapper(module)
        wrapper.known = True
        wrapper.due = syncs or (bool(wrapper.due) and not wrapper.used_by)
        wrapper.used_by = 0
        wrapper.forwards += 1

    def put_off(self, module: Any) -> None:
        """From now on gradients are not synchronised. It is called inside the user's call."""
        site = self._places.site(sys._getframe(USER))
        if groups.is_fsdp2(module):
            if self._off is None:
                self._off = weakref.WeakKeyDictionary()
            self._off[module] = site
        else:
            self._wrapper(module).off = site

    def taken_up(self, module: Any) -> None:
        """From now on they are synchronised again."""
        if self._off:
            for one in module.modules():
                self._off.pop(one, None)

    def sent(self, numbers: int) -> None:
        """A collective has sent so many numbers."""
        self._sent += numbers

    # Called by the watcher and its parts

    def look_for_wrappers(self) -> None:
        """Find the wrappers that were made before the watch began."""
        ddp = self._torch.nn.parallel.DistributedDataParallel
        for wrapper in instances(lambda kind: issubclass(kind, ddp)):
            if hasattr(wrapper, "reducer"):  # else making it has failed
                self.wrapped(wrapper, known=False)
        if instances(groups.is_fsdp2_type):
            self._more()

    def grouped(self, params: Iterable[Any]) -> bool:
        """An optimizer got parameters. The result: whether some of them are under FSDP2, by their mesh."""
        sharded = any(map(hasattr, params, repeat("device_mesh")))
        if sharded:
            self._sharded = None
            self._more()
        return sharded

    def _more(self) -> None:
        self.active = True
        self._generation += 1
        self._shares_more()

    def begins(self, event: Backward) -> None:
        """A backward is about to run."""
        self._latest = event
        self._number += 1
        self._sent = 0

    def annotate(self, subject: Subject, event: Backward) -> Backward:
        """The event of a backward that has reached a subject, with whether its gradients were shared."""
        if not self.active:
            return event
        shared = self.of(subject)
        if shared is None:
            return event
        one = shared.wrapper
        if one is not None and one.due and not one.used_by and shared.last[0] is event:
            # As in the last iteration.
            one.used_by = self._number
            shared.syncs += 1
            return shared.last[1]
        if not shared.wrappers:
            shared.syncs += 1
            return self._synced(shared, event)
        fresh = [
            wrapper
            for wrapper in shared.wrappers
            if wrapper.due is not None and wrapper.used_by in (0, self._number)
        ]
        for wrapper in fresh:
            wrapper.used_by = self._number
        if fresh and all(wrapper.due for wrapper in fresh):
            shared.syncs += 1
            if shared.first_window_syncs and not shared.steps:
                return self._events.variant(
                    event, synced=True, volume=shared.volume, excuse=Excuse.STATIC_GRAPH
                )
            return self._synced(shared, event)
        if not fresh:
            if not all(wrapper.known for wrapper in shared.wrappers):
                return event
            again = any(wrapper.forwards for wrapper in shared.wrappers)
            why = "a second backward() through one forward" if again else ".module"
            return self._events.variant(event, synced=False, unsynced=why)
        off = next((wrapper.off for wrapper in fresh if not wrapper.due), None)
        return self._events.variant(event, synced=False, unsynced="no_sync()", off=off)

    def _synced(self, shared: Shared, event: Backward) -> Backward:
        """The event of a synchronised backward; in a loop it is mostly the same as the last time."""
        if shared.last[0] is not event:
            synced = self._events.variant(event, synced=True, volume=shared.volume)
            shared.last = (event, synced)
        return shared.last[1]

    def before_step(self, subject: Subject) -> Event | None:
        """An event to post before a step, if the gradients were shared, or not shared, by other means."""
        shared = self.of(subject)
        if shared is None:
            return None
        shared.steps += 1
        for wrapper in shared.wrappers:
            wrapper.known, wrapper.forwards = True, 0
        if not shared.wrappers:
            return self._waiting(shared)
        if subject.track.node.state.local is None or self._strays(subject, shared):
            return None
        return self._events.event(events.Sync, NOWHERE)

    def stepping(self, subject: Subject) -> Shared | None:
        """What ranks share of a subject that is about to step."""
        shared = self.of(subject)
        if subject.track.node.state.local is not None and shared is not None and shared.wrappers:
            shared.strayed |= self._strays(subject, shared)
        return shared

    def _strays(self, subject: Subject, shared: Shared) -> bool:
        """Whether it holds gradients that neither a backward nor the program by hand has shared."""
        return subject.track.node.state.local is not None and 2 * self._sent < shared.numbers

    def of(self, subject: Subject) -> Shared | None:
        """What ranks share of a subject."""
        if subject.shared_at != self._generation:
            before, subject.shared_at = subject.shared, self._generation
            subject.shared = self._find(subject)
            if before is not None and subject.shared is not None:
                subject.shared.syncs, subject.shared.steps = before.syncs, before.steps
        found: Shared | None = subject.shared
        return found

    def _find(self, subject: Subject) -> Shared | None:
        wrappers = [one for one in self._wrappers if one.module() and one.ids & subject.ids]
        if wrappers:
            ids = set().union(*(one.ids for one in wrappers))
            return Shared([param for param in subject.params if id(param) in ids], wrappers)
        meshed = [param for param in subject.params if hasattr(param, "device_mesh")]
        if not meshed:
            return None
        ids = {
            id(param)
            for module in self._shards()
            for param in module.parameters()
            if hasattr(param, "device_mesh")
        }
        params = [param for param in meshed if id(param) in ids]
        return Shared(params, []) if params else None

    def _shards(self) -> list[Any]:
        if self._sharded is None:
            self._sharded = list(map(weakref.ref, instances(groups.is_fsdp2_type)))
        return [module for ref in self._sharded if (module := ref()) is not None]

    def _waiting(self, shared: Shared) -> Backward | None:
        """A backward whose gradients FSDP2 keeps inside, because synchronisation was switched off."""
        if not self._off:
            return None
        ids = {id(param) for param in shared.params}
        for module, site in list(self._off.items()):
            if self._latest is not None and ids & set(map(id, groups.waiting(module))):
                shared.strayed = True
                return self._events.variant(
                    self._latest,
                    synced=False,
                    unsynced="set_requires_gradient_sync(False)",
                    off=site,
                )
        return None

    def _wrapper(self, module: Any) -> Wrapper:
        for wrapper in self._wrappers:
            if wrapper.module() is module:
                return wrapper
        self.wrapped(module, known=False)
        return self._wrappers[-1]
