"""Whose gradients: the sets of parameters that optimizers step, however many objects step them.

State belongs to parameters. Wrappers that share the parameter groups of another optimizer are the
same subject; a subject is forgotten when the last of its optimizers is.

What is remembered about a subject is in parts; one component uses each part.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from itertools import compress, repeat
from operator import attrgetter, not_
from typing import TYPE_CHECKING, Any, NamedTuple

from zerograd.core.events import Backward, Measured, Site, Zero
from zerograd.fold.judge import Track
from zerograd.runtime import gradient_values
from zerograd.runtime.parameter_names import MOST_NAMES, names_in_modules, names_of
from zerograd.runtime.step_sums import StepSum

if TYPE_CHECKING:
    from torch import Tensor

NOBODY: frozenset[str] = frozenset()
_IS_META = attrgetter("is_meta")
MOST_CLIPS = 64
USUAL = 3
"""After this many attempts in a row without a result, no result is expected."""


class Probe:
    """One parameter that shows whether a backward reaches the subject (`gradient_probe`)."""

    grad: Tensor | None = None
    version_before = -1
    """The parameter's gradient, and its version, before the backward that is running."""
    cleared: Zero | None = None
    """The clear by hand that was found before the backward that is running."""
    hit = False
    """Whether the backward that has just run has reached the parameter."""
    reached = False
    """Whether it has reached any parameter of the subject."""

    def __init__(self, params: list[Tensor]) -> None:
        self.param: Tensor = next((p for p in params if p.requires_grad), params[0])
        """A parameter that the subject's own backward reaches, as far as is known."""
        sharded = gradient_values.is_sharded(self.param)
        self.version: Callable[[Tensor], int] = (
            gradient_values.version if sharded else gradient_values.VERSION
        )
        """How often a gradient was written to: of a distributed one, the part that is here."""
        flat = gradient_values.is_flattened(self.param)
        self.identity = gradient_values.storage if flat else gradient_values.itself
        self.fills: dict[object, Tensor | int] = {}
        """By backward that misses the parameter: one that it fills, or how often it filled none."""

    def misses_all(self, event: Backward) -> bool:
        """Whether the backward that has just run reaches this parameter, or is known to reach no other one either."""
        if self.hit:
            return True
        known = self.fills.get(event, USUAL)
        return not self.reached and isinstance(known, int) and known >= USUAL


class Meeting:
    """One backward call in the source that meets gradients of a subject that a step has used."""

    harmless = 0
    """How often it has reached them, and they were cleared before a step used the sum."""
    missed = 0
    """How often in a row it has not reached them."""

    def __init__(self, event: Backward) -> None:
        self.event = event
        self.reached: list[Tensor] = []
        """The parameters that it reached when all of them were last looked at."""


class UsedGradients:
    """Gradients that a step has used and nothing has cleared (`gradient_probe`)."""

    grad: weakref.ref[Any] | None = None
    """The probe's gradient that the last step used, as its `identity`."""
    version = -1
    """Its version then; -1 if that is not known."""
    left: list[Tensor] | None = None
    """The parameters that may still hold used gradients; None is all of them."""
    count = 0
    """How many parameters held used gradients when that was last looked at."""
    uneven = False
    """It was not always the same number: then every meeting is looked at in full."""
    company: frozenset[str] = NOBODY
    """The subjects that a backward has reached together with this one, since its clear or step."""

    def __init__(self) -> None:
        self.mixed: list[tuple[Tensor, Backward]] = []
        """Those of them that a backward has added to, and the backward."""
        self.meetings: dict[int, Meeting] = {}
        """By the identity of the backward's event, which the meeting keeps alive."""
        self.met: list[Meeting] = []
        """The backward calls that have reached used gradients since the last clear or step."""
        self.sum = StepSum()
        """What the next step will use, and what it should, once a backward adds to used gradients."""

    def came_to_nothing(self) -> None:
        """The sums of used and new gradients are cleared, or reported: nothing else can use them."""
        for meeting in set(self.met):
            meeting.harmless += 1
        self.met.clear()


class LastBackward:
    """What the last backward has left, to see whether the program has used it (`step_and_clear`)."""

    weights_version = -1
    """The version of the probe itself; -1 after a clear."""
    weights: Tensor | None = None
    """A copy of the probe itself, once a clear has dropped something."""
    finite = True
    """No inf or nan was seen in the gradients; they are looked at once a clear has dropped something."""
    held = False
    """The gradient of the probe was not zero, as far as its memory can be read."""
    grad: weakref.ref[Tensor] | None = None
    grad_version = -1
    """The gradient of the probe and its version, since a clear has dropped something."""
    sample: Tensor | None = None
    """The smallest parameter, once a scaler is used: it shows whether the program divides by hand."""
    scaled: Tensor | None = None
    """A copy of its gradient, if the loss was scaled."""

    def have_weights_moved(self, param: Tensor) -> bool:
        """Whether the probe is not what it was: something has used the gradients."""
        if self.weights_version < 0:
            return False
        if self.weights_version != param._version:
            return True
        weights, self.weights = self.weights, None
        # Writing through `.data` leaves the version as it is.
        return weights is not None and not weights.equal(param.detach())


class Stepping:
    """The steps of a subject so far, and the one that is running (`step_and_clear`)."""

    began_at = 0
    """How many backward calls there had been when the running step began."""
    depth = 0
    """How many steps of it are running, one inside the other."""
    inner_stepped = False
    """In the running step, another optimizer of the subject has stepped."""
    held_clear: Zero | None = None
    """A clear of the running step, not posted yet: it may come after the step has used them."""
    optimizer = 0
    """The identity of the optimizer that has stepped last."""
    same_optimizer = True
    """Whether that one had stepped the time before, too."""
    scaled_optimizer = 0
    """The identity of the optimizer that a scaler has last unscaled or stepped."""
    norms: dict[int, float] | None = None
    """By identity of the parameter: the norms that the last step used; None until a step has come with no backward before it."""
    measured: Measured | None = None
    """The norms that the running step should use and does use, if it uses more."""
    repeated_at = -1
    """How many backward calls there had been when a step last used the same again."""
    clipped = False
    """Whether the gradients that the last step used had been clipped, as far as is known."""
    handled = False
    """Whether the program has cleared or clipped the gradients since the last step that had nothing to use."""
    empty_at = -1
    """How many backward calls there had been at the last step that had nothing to use."""
    has_used = False
    """A step has used gradients, or something else has: the weights have moved."""
    lacks = False
    """Until then: the gradients of a backward were gone when the running step began."""
    lost = 0
    """How many such steps there were."""

    def __init__(self) -> None:
        self.left: dict[int, float] = {}
        """By identity: the norms of used gradients that the last step used beside new ones of others."""


class Finiteness:
    """Whether a subject's numbers are finite (`finite_check`)."""

    suspicious = False
    """A parameter was not finite: the gradients of every step are looked at."""
    known: bool | None = None
    """Whether the gradients of the latest step that is known about were finite."""
    turn = 0
    """How many looks there were: each is at another parameter."""
    vain = skip = 0
    """How often suspicious gradients were finite after all, and how many looks are skipped for that."""

    def __init__(self) -> None:
        self.fetching: list[Any] = []
        """Numbers that have not arrived, as `finite_check.Fetched`."""

    def calm(self) -> None:
        """The gradients are finite."""
        self.suspicious, self.known = False, None
        self.fetching.clear()
        self.vain += 1
        self.skip = 1 << min(self.vain, 10)


class Leak:
    """What another subject's backward has left in this one, and its step has used (`missing_detach`)."""

    lender = ""
    """The name of the other subject."""
    lent = False
    """The contribution is there: this subject has neither stepped nor been cleared since."""
    site: Site | None = None
    """The backward that left it."""
    crossed = False
    """A backward of this subject, which reaches the other one too, has added to it."""
    rounds = 0
    """How many steps in a row have used such a sum."""
    opposed = 0
    """How many of them in a row had parts that point against each other."""
    apart = False
    """The other subject's window also has a part that does not come through this one."""
    walks = 0
    """How many graphs were walked to see that."""
    together: frozenset[str] = NOBODY
    """The subjects that every backward since the clear has reached."""

    def __init__(self) -> None:
        self.kept: dict[int, Tensor] = {}
        """Copies of the contribution, by the identity of the parameter, once all else speaks for a leak."""
        self.returned: set[str] = set()
        """The subjects whose backward has added to this one since its clear, after it had lent."""

    def lend(self, lender: str, site: Site) -> None:
        """Another subject's step has used what its backward left here."""
        if self.site != site or self.lender != lender:
            self.rounds = self.opposed = self.walks = 0
            self.apart = False
        self.lender, self.site, self.lent = lender, site, True

    def forget(self) -> None:
        """The contribution is used, or cleared."""
        self.lent, self.crossed, self.kept = False, False, {}
        self.returned.clear()


class Subject:
    """A set of parameters that optimizers step."""

    _names: dict[int, str] | None = None
    cleared = False
    """Whether the program has ever cleared gradients of it."""
    lane: Any = None
    """The thread that drives it, as a `lanes.ThreadLane`; None until one does."""
    shared: Any = None
    """What ranks share of it, as a `ranks.sync.Shared`, as far as that was known then."""
    shared_at = -1

    def __init__(self, name: str, params: list[Tensor], track: Track) -> None:
        self.name = name
        self.params = params
        self.track = track
        self.ids = frozenset(map(id, params))
        self.whole = not gradient_values.any_is_sharded(params)
        """Whether each of them is whole in this process."""
        self.owners: set[int] = set()
        """The identities of the optimizers that step them."""
        self.covers: list[Subject] = []
        """Other subjects, all of whose parameters are among these."""
        self.overlaps: list[Subject] = []
        """Other subjects that share some of these."""
        self.probe = Probe(params)
        self.used = UsedGradients()
        self.last_backward = LastBackward()
        self.stepping = Stepping()
        self.finite = Finiteness()
        self.leak = Leak()

    def leave_loop(self) -> None:
        """Leave the loop that is followed: the state is up to date then."""
        if self.lane is not None:
            self.lane.loop.leave()

    def emptied(self) -> None:
        """Its gradients are cleared."""
        used = self.used
        self.cleared |= self.track.steps > 0
        used.left, used.company = None, NOBODY
        used.sum.forget()
        if used.mixed:
            used.mixed = []
        self.last_backward.weights_version = -1
        self.leak.forget()
        self.leak.together = NOBODY
        if self.lane is not None:
            self.lane.used.pop(self.name, None)

    def holds_nothing_used(self) -> None:
        """No step has used what its gradients hold now: a backward may add to them."""
        self.used.sum.forget()
        if self.lane is not None:
            self.lane.used.pop(self.name, None)

    def measured(self, *, divided: bool) -> Measured | None:
        """The norms that a step should use and does use, if they differ."""
        numbers = self.used.sum.at_step(self.params, divided=divided)
        if numbers is None:
            return None
        concerned = self.used.sum.concerned
        names = tuple(self.names(concerned)[:MOST_NAMES])
        return Measured(*numbers, names, len(concerned), not self.whole)

    def names(self, params: Iterable[Tensor]) -> list[str]:
        """What the program calls some of the parameters."""
        if self._names is None:
            # Only on demand, because all objects of the program are searched.
            self._names = names_in_modules(self.params)
        return names_of(params, self._names)


class Among:
    """Subjects that have parameters among some, each with those of its parameters that are not."""

    def __init__(self, found: list[tuple[Subject, list[Tensor]]], *, strangers: bool) -> None:
        self.strangers = strangers
        """Whether some of the parameters are of no subject, as far as is known."""
        self._whole = [one for one, others in found if not others]
        self._partly = [(one, others) for one, others in found if others]

    def now(self) -> list[Subject]:
        """Those all of whose parameters are among them, but for frozen ones that hold no gradients.

        A program freezes and unfreezes parameters as it goes: what is frozen now is asked each time.
        """
        if not self._partly:
            return self._whole
        partly = [
            one
            for one, others in self._partly
            if not any(param.requires_grad or param.grad is not None for param in others)
        ]
        return [*self._whole, *partly]


class _Known(NamedTuple):
    """An optimizer, the parameter groups that it had, and the subject that it steps."""

    optimizer: weakref.ref[Any]
    groups: Any
    number: int
    params: Any
    """The parameters of the last group."""
    subject: Subject


class Subjects:
    """Finds the subject of an optimizer at the cost of a look-up."""

    generation = 0
    """Another number whenever a subject has come or gone."""

    def __init__(
        self,
        begun: Callable[[str], Track],
        gone: Callable[[Subject, bool], None],
        heard: Callable[..., Any],
        named: Callable[[Subject, Any], None],
    ) -> None:
        self._begun = begun
        self._named = named
        self._gone = gone
        self._heard = heard
        self._known: dict[int, _Known] = {}
        """By the identities of the optimizers."""
        self._by_optimizer: dict[int, Subject] = {}
        """The same, for optimizers whose groups may have changed since."""
        self._by_params: dict[frozenset[int], Subject] = {}
        self._owned: set[int] = set()
        """The identities of the parameters of all subjects."""
        self._modules: dict[int, tuple[weakref.ref[Any], int, Among]] = {}
        self._clips: dict[object, Among] = {}
        """By the parameters that are clipped together: whose they are."""
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
        """The subject as it was when the optimizer last stepped: enough until it steps again."""
        return self._by_optimizer.get(id(optimizer)) or self.of(optimizer)

    def groups(self, key: int) -> tuple[Any, int, Any]:
        """The groups of an optimizer, given by identity: the list, its length, and the parameters of the last group."""
        return self._known[key][1:4]

    def changed(self, optimizer: Any) -> None:
        """The optimizer's groups are not what they were."""
        self._drop(id(optimizer))

    def owns(self, param: Tensor) -> bool:
        """Whether a parameter belongs to any subject."""
        return id(param) in self._owned

    def strangers(self, leaves: list[Tensor]) -> list[Tensor]:
        """The leaves of a graph that belong to no subject."""
        return list(compress(leaves, map(not_, map(self._owned.__contains__, map(id, leaves)))))

    def covered(self, module: Any) -> list[Subject]:
        """The subjects all of whose parameters are among a module's."""
        known = self._modules.get(id(module))
        if known is None or known[0]() is not module or known[1] != self.generation:
            found = self.among(module.parameters())
            forget = self._modules.pop
            key = id(module)
            known = (weakref.ref(module, lambda _: forget(key, None)), self.generation, found)
            self._modules[key] = known
        return known[2].now()

    def clipped(self, key: object, params: Iterable[Tensor]) -> Among:
        """The subjects whose gradients a clip of these parameters changes; the key is that of the clip."""
        known = self._clips.get(key)
        if known is None:
            if len(self._clips) >= MOST_CLIPS:
                self._clips.clear()
            known = self._clips[key] = self.among(params)
        return known

    def among(self, params: Iterable[Tensor]) -> Among:
        """The subjects some of whose parameters are among these."""
        ids = {id(param) for param in params}
        found = [
            (one, [param for param in one.params if id(param) not in ids])
            for one in self.all
            if not one.ids.isdisjoint(ids)
        ]
        return Among(found, strangers=not ids <= self._owned)

    def _find(self, optimizer: Any) -> Subject | None:
        groups: Any = getattr(optimizer, "param_groups", ())  # a wrong call may be of anything
        params = [param for group in groups for param in group["params"]]
        ids = frozenset(map(id, params))
        subject = self._by_params.get(ids)
        known = self._known.get(id(optimizer))
        if known is None or known.subject is not subject or known.optimizer() is not optimizer:
            self._drop(id(optimizer))
            subject = self._by_params.get(ids)
        if not params or any(map(_IS_META, params)):
            return None  # a tensor without numbers is not trained
        if any(map(hasattr, params, repeat("fake_mode"))):
            return None
        if subject is None:
            once = dict(zip(map(id, params), params, strict=True))
            subject = self._new(optimizer, list(once.values()))
        key = id(optimizer)
        subject.owners.add(key)
        ref = weakref.ref(optimizer, lambda _: self._heard(self._drop, key))
        self._known[key] = _Known(ref, groups, len(groups), groups[-1]["params"], subject)
        self._by_optimizer[key] = subject
        return subject

    def _new(self, optimizer: Any, params: list[Tensor]) -> Subject:
        self.generation += 1
        kind = type(optimizer).__name__
        name = f"{kind}#{self.generation}"
        subject = Subject(name, params, self._begun(name))
        self._named(subject, optimizer)
        for other in () if self._owned.isdisjoint(subject.ids) else self.all:
            if not other.ids.isdisjoint(subject.ids):
                (subject.covers if other.ids <= subject.ids else subject.overlaps).append(other)
                (other.covers if subject.ids <= other.ids else other.overlaps).append(subject)
        self._owned |= subject.ids
        self._by_params[subject.ids] = subject
        self.all.append(subject)
        return subject

    def clear(self) -> None:
        """Forget all subjects."""
        for table in (self._known, self._by_optimizer, self._by_params, self._clips):
            table.clear()
        self._owned.clear()
        self._modules.clear()
        self.all.clear()

    def _drop(self, key: int) -> None:
        self._by_optimizer.pop(key, None)
        known = self._known.pop(key, None)
        if known is None:
            return
        subject = known.subject
        subject.owners.discard(key)
        if subject.owners:
            return
        self.generation += 1
        self.all.remove(subject)
        self._clips.clear()
        self._modules.clear()
        self._by_params.pop(subject.ids, None)
        self._owned -= subject.ids
        for other in (*subject.covers, *subject.overlaps):
            self._owned |= other.ids
            other.covers = [one for one in other.covers if one is not subject]
            other.overlaps = [one for one in other.overlaps if one is not subject]
        self._gone(subject, known.optimizer() is None)
