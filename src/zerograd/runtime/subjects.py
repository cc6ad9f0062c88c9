"""Whose gradients: the sets of parameters that optimizers step, however many objects step them.

State belongs to parameters. Wrappers that share the parameter groups of another optimizer are the
same subject; a subject is forgotten when the last of its optimizers is.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from zerograd.core.events import Backward, Event
from zerograd.fold.judge import Track
from zerograd.runtime import verify

if TYPE_CHECKING:
    from torch import Tensor


_VERSION = attrgetter("_version")


class Meeting:
    """One backward, as it meets gradients of a subject that a step has used."""

    __slots__ = ("event", "harmless", "missed", "reached")

    def __init__(self, event: Event) -> None:
        self.event = event
        self.harmless = 0
        """How often it has reached them and it came to nothing."""
        self.missed = 0
        """How often in a row it has not."""
        self.reached: list[Tensor] = []
        """The parameters whose used gradients it has reached when all were last asked."""


class Subject:
    """A set of parameters, and what must be remembered of their gradients."""

    __slots__ = (
        "__weakref__",
        "company",
        "covers",
        "depth",
        "empty_at",
        "entries",
        "filled",
        "filled_version",
        "held",
        "ids",
        "inside",
        "lane",
        "left",
        "meetings",
        "met",
        "name",
        "names",
        "overlaps",
        "owners",
        "params",
        "plain",
        "print",
        "probe",
        "probe_grad",
        "probe_version",
        "probed",
        "repeated_at",
        "same_optimizer",
        "scaling",
        "shared",
        "shared_at",
        "stale",
        "stepped_by",
        "title",
        "touched",
        "track",
        "uneven",
        "used",
        "version",
        "weighed",
        "weights",
    )

    def __init__(  # noqa: PLR0915, each line is a field and its meaning
        self, name: str, title: str, params: list[Tensor], track: Track
    ) -> None:
        self.name = name
        self.title = title
        self.params = params
        self.plain = not any(hasattr(param, "to_local") for param in params)
        """Whether each of them is whole in this process."""
        self.names: dict[int, str] | None = None
        """What modules call the parameters; None until it is asked: all objects are searched."""
        self.track = track
        self.ids: frozenset[int] = frozenset()
        """The identities of the parameters."""
        self.owners: set[int] = set()
        self.covers: list[Subject] = []
        """Other subjects, all of whose parameters are among these."""
        self.overlaps: list[Subject] = []
        """Other subjects that share some of these."""
        self.probe: Tensor = next((p for p in params if p.requires_grad), params[0])
        """A parameter that the subject's own backward reaches, as far as is known."""
        meshed = hasattr(self.probe, "device_mesh")
        self.version: Callable[[Tensor], int] = verify.version if meshed else _VERSION
        """How often a gradient was written to: of a distributed one, the part that is here."""
        self.probe_grad: Tensor | None = None
        self.probe_version = -1
        self.weights = -1
        """The version of the probe itself when a backward last reached it."""
        self.filled: weakref.ref[Tensor] | None = None
        """The probe's gradient as the last backward has left it."""
        self.filled_version = -1
        self.used: weakref.ref[Tensor] | None = None
        """The probe's gradient that the last step used."""
        self.company: frozenset[str] = frozenset()
        """The subjects that a backward has reached together with this one, since its clear or step."""
        self.left: list[Tensor] | None = None
        """The parameters that may still hold used gradients; None is all of them."""
        self.stale: list[tuple[Tensor, Backward]] = []
        """Those of them that a backward has added to, and the backward."""
        self.meetings: dict[int, Meeting] = {}
        """By the identity of the backward's event, which the meeting keeps alive."""
        self.met: list[Meeting] = []
        """The backward calls that have reached used gradients since the last clear or step."""
        self.print: list[float] | None = None
        """The norms that the last step used; None until a step has come with no backward before it."""
        self.probed = self.touched = False
        """Whether the backward that has just run has reached the probe; the subject at all."""
        self.entries: dict[object, Tensor | int] = {}
        """By backward that misses the probe: a parameter it fills, or how often it filled none."""
        self.held = 0
        """How many parameters held used gradients when that was last looked at."""
        self.uneven = False
        """It was not always the same number: then every meeting is looked at in full."""
        self.scaling = 0
        """The optimizer that a scaler has last unscaled or stepped, by its identity."""
        self.repeated_at = -1
        """How many backward calls there had been when a step last used the same again."""
        self.stepped_by = 0
        self.same_optimizer = True
        """Whether it is the optimizer that stepped the last time."""
        self.empty_at = -1
        """How many backward calls there had been at the last step that had nothing to use."""
        self.depth = 0
        """How many steps of it are running, one inside the other."""
        self.inside: Any = None
        """What its own running step has done so far: STEPPED, or a clear that is yet to be posted."""
        self.lane: Any = None
        """The thread that drives it; None until one does."""
        self.weighed: Tensor | None = None
        """The probe's weights at the last backward, once a clear has dropped something."""
        self.shared: Any = None
        """What ranks share of it, as far as that was known then."""
        self.shared_at = -1


class Subjects:
    """Finds the subject of an optimizer at the cost of a look-up."""

    def __init__(self, made: Callable[[str], Track], gone: Callable[[Subject], None]) -> None:
        self._made = made
        self._gone = gone
        self._known: dict[int, tuple[weakref.ref[Any], Any, int, Any, Subject]] = {}
        self._by_optimizer: dict[int, Subject] = {}
        """By the identity of their optimizers; whose groups may have changed since."""
        self._by_params: dict[frozenset[int], Subject] = {}
        self._of_param: dict[int, list[Subject]] = {}
        self.generation = 0
        """Another number whenever a subject has come or gone."""
        self._modules: dict[int, tuple[weakref.ref[Any], int, list[Subject]]] = {}
        self.all: list[Subject] = []

    def of(self, optimizer: Any) -> Subject | None:
        """The subject of an optimizer; None if it has no parameters."""
        known = self._known.get(id(optimizer))
        if known is not None:
            # What is known of an optimizer is dropped when it goes: this is the same one.
            _, groups, number, params, subject = known
            if optimizer.param_groups is groups:
                if len(groups) == number and groups[-1]["params"] is params:
                    return subject
        return self._find(optimizer)

    def known(self, optimizer: Any) -> Subject | None:
        """As it was when the optimizer last stepped: enough for what is told of it until it does again."""
        return self._by_optimizer.get(id(optimizer)) or self.of(optimizer)

    def groups(self, key: int) -> tuple[Any, int, Any]:
        """The groups of the optimizer with an identity: they, how many, and what the last holds."""
        return self._known[key][1:4]

    def changed(self, optimizer: Any) -> None:
        """The optimizer's groups are not what they were."""
        self._drop(id(optimizer))

    def owning(self, param: Tensor) -> list[Subject]:
        """The subjects that a parameter belongs to."""
        return self._of_param.get(id(param), [])

    def covered(self, module: Any) -> list[Subject]:
        """The subjects all of whose parameters are among a module's."""
        known = self._modules.get(id(module))
        if known is None or known[0]() is not module or known[1] != self.generation:
            found = self.among(module.parameters())
            forget = self._modules.pop
            key = id(module)
            known = (weakref.ref(module, lambda _: forget(key, None)), self.generation, found)
            self._modules[key] = known
        return known[2]

    def among(self, params: Iterable[Tensor]) -> list[Subject]:
        """The subjects all of whose parameters, but for frozen ones, are among these."""
        ids = {id(param) for param in params}
        return [
            one
            for one in self.all
            if all(id(param) in ids for param in one.params if param.requires_grad)
        ]

    def _find(self, optimizer: Any) -> Subject | None:
        groups = optimizer.param_groups
        params = [param for group in groups for param in group["params"]]
        ids = frozenset(map(id, params))
        subject = self._by_params.get(ids)
        known = self._known.get(id(optimizer))
        if known is None or known[4] is not subject or known[0]() is not optimizer:
            self._drop(id(optimizer))
            subject = self._by_params.get(ids)
        if not params:
            return None
        if subject is None:
            subject = self._new(optimizer, ids, list({id(one): one for one in params}.values()))
        key = id(optimizer)
        subject.owners.add(key)
        ref = weakref.ref(optimizer, lambda _: self._drop(key))
        self._known[key] = (ref, groups, len(groups), groups[-1]["params"], subject)
        self._by_optimizer[key] = subject
        return subject

    def _new(self, optimizer: Any, ids: frozenset[int], params: list[Tensor]) -> Subject:
        self.generation += 1
        name = f"{type(optimizer).__name__}#{self.generation}"
        number = f"{len(params)} parameter{'' if len(params) == 1 else 's'}"
        subject = Subject(
            name, f"{type(optimizer).__name__} over {number}", params, self._made(name)
        )
        near = {id(one): one for param in params for one in self._of_param.get(id(param), ())}
        for other in near.values():
            others = {id(param) for param in other.params}
            (subject.covers if others <= ids else subject.overlaps).append(other)
            (other.covers if ids <= others else other.overlaps).append(subject)
        for param in params:
            self._of_param.setdefault(id(param), []).append(subject)
        self._by_params[ids] = subject
        subject.ids = ids
        self.all.append(subject)
        return subject

    def _drop(self, key: int) -> None:
        self._by_optimizer.pop(key, None)
        known = self._known.pop(key, None)
        if known is None:
            return
        subject = known[4]
        subject.owners.discard(key)
        if subject.owners:
            return
        self.generation += 1
        self.all.remove(subject)
        self._by_params.pop(subject.ids, None)
        for param in subject.params:
            self._without(self._of_param, id(param), subject)
        for other in self.all:
            other.covers = [one for one in other.covers if one is not subject]
            other.overlaps = [one for one in other.overlaps if one is not subject]
        self._gone(subject)

    @staticmethod
    def _without(table: dict[int, list[Subject]], key: int, subject: Subject) -> None:
        table[key] = [one for one in table.get(key, ()) if one is not subject]
        if not table[key]:
            del table[key]


def names_of(params: Iterable[Tensor], known: dict[int, str]) -> list[str]:
    """The names of parameters: their module's, the script's variables, or their shape."""
    script = vars(sys.modules["__main__"]).items()
    return [
        known.get(id(param))
        or next((name for name, value in script if value is param), "")
        or f"a parameter of shape {tuple(param.shape)}"
        for param in params
    ]
