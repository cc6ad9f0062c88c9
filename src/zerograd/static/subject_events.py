"""What each act of a flow is to one subject: an event of its gradients, or nothing.

An act that must reach the subject can break a rule; an act that only may reach it can only excuse. A subject is all
that one optimizer steps, or one of several modules that it steps, or a leaf that is stepped by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from zerograd.core.events import (
    Assign,
    Backward,
    Clip,
    Event,
    Excuse,
    New,
    ReadBy,
    Reads,
    Site,
    Step,
    Unknown,
    Unscale,
    Update,
    Zero,
)
from zerograd.core.records import dataclass, field, replace
from zerograd.explore.flow import (
    Alt,
    Flow,
    Loop,
    children,
    find,
)
from zerograd.static.entry_states import acts_in_order
from zerograd.static.frameworks import registry
from zerograd.static.frameworks.table import Role
from zerograd.static.frameworks.torch import SCALER
from zerograd.static.interp.emitter import Act
from zerograd.static.read.keys import RESULT, SELF, Key
from zerograd.static.read.values import Called

MOST_PARTS = 4


@dataclass(frozen=True)
class SubjectKeys:
    """The optimizer's key and the keys of what it steps; None where that cannot be seen."""

    key: Key
    params: frozenset[Key] | None = None
    beside: frozenset[Key] = frozenset()
    """The other parameters of the optimizer, where one of its several modules is looked at."""


def subjects(flow: Flow, params: dict[Key, frozenset[Key] | None]) -> list[SubjectKeys]:
    """All that is stepped in a flow."""
    keys: dict[Key, None] = {}
    for act in find(flow, Act):
        if isinstance(act.event, Step):
            keys.update(dict.fromkeys(sorted(act.whose, key=str)))
    return [
        SubjectKeys(key, frozenset({key.plain}) if key.is_by_hand else params.get(key))
        for key in keys
    ]


def leaves(flow: Flow, fresh: set[Key], stepped: list[SubjectKeys]) -> list[SubjectKeys]:
    """The leaf tensors that a flow makes and clears, and that nothing steps."""
    keys: dict[Key, None] = {}
    for act in find(flow, Act):
        if isinstance(act.event, Zero) and act.leaf:
            keys.update(dict.fromkeys(sorted(act.whose & fresh, key=str)))
    known = {key for subject in stepped for key in (subject.key.plain, *(subject.params or ()))}
    return [SubjectKeys(key.by_hand(), frozenset({key})) for key in keys if key not in known]


def parts(subject: SubjectKeys, flow: Flow) -> list[SubjectKeys]:
    """A subject that steps several modules is looked at one module at a time.

    If losses run through one module and nothing is done to another, the other is a second name of the first, or unused.
    """
    if subject.params is None or not 1 < len(subject.params) <= MOST_PARTS:
        return [subject]
    acts = [act for act in find(flow, Act) if not isinstance(act.event, (New, Unknown))]
    named = frozenset().union(*(act.whose | act.perhaps for act in acts))
    reached = [key for key in subject.params if any(map(key.overlaps, named))]
    return [
        SubjectKeys(subject.key, frozenset({key}), subject.params - {key})
        for key in sorted(reached or subject.params, key=str)
    ]


@dataclass
class SubjectEvents:
    """What the acts of one flow are to one subject."""

    subject: SubjectKeys
    others: list[SubjectKeys]
    roles: dict[Key, Role]
    idle: Callable[[Event], Site | None]
    computes: Callable[[Event, SubjectKeys, Site | None], bool]
    clears_before: Callable[[Event], list[Site]]
    fresh: set[Key]
    seen: frozenset[Key] = frozenset()
    """Everything that some loss runs through."""
    through: frozenset[Key] = frozenset()
    """The same without `self`, if attributes of `self` are among it."""
    fed: set[int] = field(default_factory=set)
    """The loops in which something fills the subject, or may fill it."""
    feeding: set[Site] = field(default_factory=set)
    """Where something fills the subject, or may fill it."""
    present: frozenset[Key] = frozenset()
    """Scalers that some loss is scaled with on every path: they are not None."""
    clears: frozenset[Site] = frozenset()
    """Where the subject is cleared. A function that is called twice clears in one place."""
    backwards: list[Act] = field(default_factory=list)
    events: dict[int, Event | None] = field(default_factory=dict)
    """By the identity of an act: what the subject sees of it."""
    used_by: dict[int, frozenset[Key]] = field(default_factory=dict)
    """By the identity of a backward or a clip, the optimizers whose steps alone can use it."""
    scalers: dict[Key, set[bool]] = field(default_factory=dict)
    """The scalers that step, and whether they step the subject, others, or both."""
    borrows: bool = False
    """Whether its gradients were assigned from other parameters: a clear of those may clear these."""
    filled: bool = True
    """Whether some backward reaches the subject, or may reach it."""
    without_engine: set[Key] = field(default_factory=set)
    """The optimizers that are there only where no engine has taken them."""

    def read(self, flow: Flow) -> None:
        """Notes what all acts of a flow are to the subject."""
        acts = find(flow, Act)
        self.backwards = [act for act in acts if isinstance(act.event, Backward)]
        self.seen = frozenset().union(*(act.whose | act.perhaps for act in self.backwards))
        attributes = frozenset(one for one in self.seen if one != SELF and one.is_inside(SELF))
        self.through = self.seen - {SELF} if attributes else self.seen
        for act in acts:
            if isinstance(act.event, Step) and act.scaler is not None:
                self.scalers.setdefault(act.scaler, set()).add(any(map(self.is_mine, act.whose)))
        assigned = [act for act in acts if isinstance(act.event, Assign) and act.borrowed]
        self.borrows = any(self.event(act) is not None for act in assigned)
        self.used_by = _used_by(flow) if self.others else {}
        self.filled = any(self.event(act) is not None for act in self.backwards)
        self.note_feeding(flow, [])
        scalers = {key for key, role in self.roles.items() if role is SCALER}
        if len(scalers) == 1 and _scales_without_asking(flow, *scalers):
            self.present = frozenset(scalers)
        clears = (a for a in acts if isinstance(a.event, Zero) and self.event(a) is not None)
        self.clears = frozenset(act.event.site for act in clears)
        self.events = {id(act): self.event(act) for act in acts}

    def note_feeding(self, flow: Flow, loops: list[int]) -> None:
        if isinstance(flow, Act) and isinstance(flow.event, (Backward, Unknown, Assign)):
            if self.event(flow) is not None or self.fills_beside(flow):
                self.fed.update((0, *loops))
                self.feeding.add(flow.event.site)
        inner = [*loops, flow.ident] if isinstance(flow, Loop) else loops
        for part in children(flow):
            self.note_feeding(part, inner)

    def fills_beside(self, act: Act) -> bool:
        """Whether a backward may fill other parameters of the optimizer: then its step has something to use."""
        beside = self.subject.beside
        if not beside or not isinstance(act.event, Backward):
            return False
        return self.reach(replace(self.subject, params=beside), act) is not False

    def is_there(self, asked: Key, arm: Flow) -> bool:
        """Whether an object that a test asks for exists: the subject, what it steps, or a scaler that is used.

        An arm that only clears the object leaves nothing out where there is no object.
        """
        if self.is_mine(asked) or asked in self.present:
            return True
        if self.roles.get(asked) is SCALER:
            return self.is_always_scaled()
        if any(param.is_inside(asked) for param in self.subject.params or ()):
            return True
        acts = find(arm, Act)
        return bool(acts) and all(
            isinstance(act.event, Zero) and all(key.is_inside(asked) for key in act.whose)
            for act in acts
        )

    def is_always_scaled(self) -> bool:
        """Whether every loss is scaled: then there is a scaler, whatever a test asks."""
        scaled = [act.event.scaled for act in self.backwards if isinstance(act.event, Backward)]
        return bool(scaled) and all(one is True for one in scaled)

    def is_mine(self, key: Key) -> bool:
        return self.subject.key.is_inside(key)

    def is_engine(self) -> bool:
        """Whether the subject is an engine, which runs backward itself."""
        return bool(registry.bypassed_name(self.roles.get(self.subject.key, Role.NONE)))

    def event(self, act: Act) -> Event | None:
        """The act as the subject sees it; None where it does not concern it."""
        event = act.event
        if isinstance(event, Backward):
            return self.backward(act, event)
        if isinstance(event, Step):
            return self.step(act, event)
        if isinstance(event, Update):
            return None if self.is_of_another_scaler(act) else event
        if isinstance(event, Unknown) and act.unless_cleared:
            runs = any(one.overlaps(key) for one in self.seen for key in act.whose)
            reached = any(map(self.touched, act.whose)) or (self.subject.params is None and runs)
            return event if reached and not self.clears else None
        if isinstance(event, Unknown) and act.inside:
            return event if any(map(self.is_mine, act.whose)) else None
        if isinstance(event, Unknown):
            reached = act.anyone or any(map(self.touched, act.whose))
            return event if reached else None
        if isinstance(event, New):
            made = next(iter(act.whose))
            params = self.subject.params
            return event if params and all(param.is_inside(made) for param in params) else None
        if isinstance(event, Unscale) and event.scaled:
            # A scaler keeps a record for each optimizer, whatever parameters they share.
            if act.anyone or any(map(self.is_mine, act.whose)):
                return event
            shared = self.may_share(act) or any(map(self.may_be, act.whose))
            return replace(event, scaled=False, may=True) if shared else None
        if isinstance(event, Unscale) and act.anyone:
            return event
        return self.on_gradients(act, event)

    def is_of_another_scaler(self, act: Act) -> bool:
        """Whether the scaler of an update steps other optimizers only, and another scaler steps the subject."""
        if act.scaler is None or self.scalers.get(act.scaler) != {False}:
            return False
        return any(True in steps for steps in self.scalers.values())

    def touched(self, key: Key) -> bool:
        """Whether something unseen that is done to an object may reach the subject."""
        if self.is_mine(key):
            return True
        if self.roles.get(key) is Role.OPTIMIZER:
            return False
        if self.subject.params is None and not self.others:
            return any(part.overlaps(key) for part in (self.subject.key, *self.through))
        held = (self.subject.key, *(self.subject.params or ()))
        return any(part.is_inside(key) for part in held)

    def step(self, act: Act, event: Step) -> Step:
        if any(self.is_mine(key) for key in act.whose):
            if self.is_engine():
                event = replace(event, scaled=None)  # it unscales what it scaled itself
            again = not self.clears.isdisjoint(self.clears_before(event))
            if event.loop not in self.fed:
                alone = all(act.event.loop != event.loop for act in self.backwards)
                again = again or (alone and self.computes(event, self.subject, self.cleared(event)))
                return replace(event, fed=False, again=again, idle_loss=self.idle(event))
            idle = self.idle_since_clear(event)
            return replace(event, again=again or idle is not None, idle_loss=idle)
        part, through = self.shares(act), self.passes(act)
        return replace(event, foreign=True, part=part, whole=self.is_equal(act), through=through)

    def idle_since_clear(self, step: Step) -> Site | None:
        """An unused loss that is computed between a clear and the step, where no backward is run.

        Losses are looked for only there: to look in every loop took 4 % of a check (64 training repositories).
        """
        path, end, clear = step.site.path, step.site.line, self.cleared(step)
        if clear is None:
            return None
        begin = clear.line
        if any(s.path == path and begin <= s.line <= end for s in self.feeding):
            return None
        loss = self.idle(step)
        inside = loss is not None and loss.path == path and begin <= loss.line <= end
        return loss if inside else None

    def cleared(self, step: Step) -> Site | None:
        """The last clear above a step in its file."""
        path, end = step.site.path, step.site.line
        clears = [site for site in self.clears if site.path == path and site.line <= end]
        return max(clears, key=lambda site: site.line, default=None)

    def passes(self, act: Act) -> bool | None:
        """Whether the gradients that another optimizer's step uses come through the subject; None: unknown."""
        seen: list[bool] = []
        for other in self.others:
            if other.key not in act.whose:
                continue
            for backward in self.backwards:
                if self.reach(self.subject, backward) and self.reach(other, backward):
                    own = [one.read for one in self.calls(backward) if self.is_own(one.key)]
                    seen.append(any(_among(key, other.params) for read in own for key in read))
                    if not seen[-1] and not (own and self.reads_only_own(other, backward)):
                        return None
        return any(seen) if seen else None

    def reads_only_own(self, other: SubjectKeys, act: Act) -> bool:
        """Whether another subject's modules read what this one's have computed, and nothing else."""
        inputs = [one.read for one in self.calls(act) if _among(one.key, other.params)]
        mine = [any(map(self.is_own, read)) for read in inputs]
        return (
            bool(mine) and all(mine) and not any(self.reads_more(other, a) for a in self.backwards)
        )

    def calls(self, act: Act) -> Iterator[Called]:
        """The modules that were called for a loss, if it is known which of the subjects their inputs come from."""
        params = [one.params for one in (self.subject, *self.others)]
        for one in act.calls:
            if not any(_among(key, keys) for key in one.unsure for keys in params):
                yield one

    def is_own(self, key: Key) -> bool:
        return _among(key, self.subject.params)

    def shares(self, act: Act) -> bool:
        """Whether the optimizers of an act step some parameters of the subject."""
        mine = self.subject.params or ()
        theirs = [p for other in self.others if other.key in act.whose for p in other.params or ()]
        return any(one.overlaps(other) for one in mine for other in theirs)

    def is_equal(self, act: Act) -> bool:
        """Whether an optimizer of an act steps the same parameters as the subject's."""
        mine = self.subject.params
        theirs = [other.params for other in self.others if other.key in act.whose]
        return mine is not None and (mine | self.subject.beside) in theirs

    def may_share(self, act: Act) -> bool:
        """Whether the optimizers of an act may step some parameters of the subject."""
        others = [other for other in self.others if other.key in act.whose]
        unknown = self.subject.params is None or any(other.params is None for other in others)
        return bool(others) and (unknown or self.shares(act))

    def on_gradients(self, act: Act, event: Event) -> Event | None:
        """Zero, clip, assign: by the optimizer, by its modules, or by something unresolved."""
        if act.anyone:
            # What is clipped is what is stepped, if one optimizer steps.
            sure = isinstance(event, Clip) and self.filled and not self.others
            return event if sure else replace(event, may=True)
        relations = [self.relation(key, act) for key in act.whose]
        if True in relations and isinstance(event, Zero) and self.spares(act):
            event = replace(event, excuse=Excuse.ONE_MODULE)
        if isinstance(event, Clip) and self.is_meant_for_another(act):
            return replace(event, may=True)
        if True in relations:
            # Where no backward is seen at all, something unseen runs it.
            sure = self.subject.params is not None or any(map(self.is_mine, act.whose))
            return event if sure and self.filled else replace(event, bare=False)
        if None in relations or (isinstance(event, Zero) and self.borrows):
            return replace(event, may=True)
        return None

    def spares(self, act: Act) -> bool:
        """Whether a clear leaves out other modules of the optimizer: it keeps the step from changing the cleared ones."""
        if any(map(self.is_mine, act.whose)):
            return False
        return any(not any(p.is_inside(k) for k in act.whose) for p in self.subject.beside)

    def relation(self, key: Key, act: Act) -> bool | None:
        """True: covers the subject; False: does not touch it; None: may touch some of it."""
        if self.is_mine(key):
            return True
        if key == RESULT:
            return False
        if key.may_be_item(self.subject.key):
            return None
        params = self.subject.params
        if self.roles.get(key) is Role.OPTIMIZER:
            other = next((s for s in self.others if s.key == key), None)
            if other is None or other.params is None or params is None:
                # Two optimizers never share parameters; one and a step by hand may.
                unsure = self.subject.key.is_by_hand or self.may_be(key)
                return None if unsure else False
            return other.params >= params
        if params is None:
            if isinstance(act.event, Clip) and self.is_used(act):
                return True
            return None if self.others else self.is_taken(key, act)
        if all(param.is_inside(key) for param in params):
            return True
        if any(param.overlaps(key) for param in params):
            return None
        if any(key.overlaps(other) for other in self.subject.beside):
            return False  # an optimizer steps no parameter twice
        if not self.others and not self.subject.key.is_by_hand and self.is_assumed(key):
            return self.is_taken(key, act)
        elsewhere = any(
            param.overlaps(key) for other in self.others for param in other.params or ()
        )
        known = key in self.fresh and all(param.object in self.fresh for param in params)
        return False if elsewhere or known else None

    def is_taken(self, key: Key, act: Act) -> bool | None:
        """Whether an act on an object is taken to be one on the parameters of the only optimizer."""
        if act.leaf:
            return None
        return None if isinstance(act.event, Zero) and not self.is_all(key) else True

    def is_assumed(self, key: Key) -> bool:
        """Whether a loss runs through an object, and is taken to reach the only optimizer: the object holds what it steps."""
        return any(
            one.overlaps(key)
            for act in self.backwards
            if self.reach(self.subject, act) is None
            for one in act.whose
            if one != SELF
        )

    def may_be(self, key: Key) -> bool:
        """Whether an optimizer that has another key may be the subject's."""
        mine = self.subject.key
        return key.may_be_item(mine) or key.may_be_kept_in(mine)

    def is_all(self, key: Key) -> bool:
        """Whether some loss runs through an object, and not only through a part of it."""
        through = [one for one in self.seen if one.overlaps(key) and one != SELF]
        if not through:
            return not self.seen or SELF in self.seen
        return any(one.is_inside(key) for one in through)

    def backward(self, act: Act, event: Backward) -> Backward | None:
        if event.excuse is Excuse.OTHER_ARM and self.is_engine():
            return None  # the engine runs its own backward, in the other arm
        if self.subject.key in self.without_engine:
            if act.wrapped:
                return None  # the engine runs it, and steps
            event = replace(event, bypasses="")
        mine = self.reach(self.subject, act)
        others = [self.reach(other, act) for other in self.others]
        if mine is None and self.subject.params is None and self.is_used(act):
            mine = True
        if mine is None and not any(others):
            # The loss cannot be followed to anyone: with one optimizer it is that one's.
            mine = not self.others or None
            if mine is None and any(other is None for other in others):
                return replace(event, may=True)
        if mine is False:
            return None
        if mine is None:
            return replace(event, may=True) if self.perhaps(act) or not any(others) else None
        alone = not any(other is not False for other in others)
        read_by = None if alone else self.read_by(act)
        return replace(event, alone=alone, read_by=read_by, reads=self.reads(act, alone))

    def reads(self, act: Act, alone: bool) -> Reads | None:
        """Whether the subject's modules read what another subject's have computed."""
        theirs = [other.params for other in self.others]
        for one in self.calls(act) if theirs else ():
            read = one.cut if alone else one.read
            if self.is_own(one.key) and any(_among(k, keys) for k in read for keys in theirs):
                return Reads.DETACHED if alone else Reads.ATTACHED
        return None

    def read_by(self, act: Act) -> ReadBy | None:
        """Whether another subject's module reads what this one's have computed, and what else."""
        for other in self.others:
            mine = [
                one
                for one in self.calls(act)
                if _among(one.key, other.params) and any(map(self.is_own, one.read))
            ]
            if mine:
                alike = {one.then for one in mine if one.then} & self.does_elsewhere(other, act)
                only = alike or self.reads_only_own(other, act)
                return ReadBy.ONLY if only else ReadBy.AND_MORE
        return None

    def does_elsewhere(self, other: SubjectKeys, act: Act) -> set[str]:
        """What other backward calls do with what another subject computes of this one's output."""
        return {
            one.then
            for backward in self.backwards
            if backward.event.site != act.event.site
            for one in self.calls(backward)
            if _among(one.key, other.params) and any(map(self.is_own, one.read))
        }

    def reads_more(self, other: SubjectKeys, act: Act) -> bool:
        """Whether a backward reaches another subject, whose modules read what is not this one's."""
        if self.reach(other, act) is not True or self.reach(self.subject, act) is not False:
            return False
        return any(_among(one.key, other.params) for one in self.calls(act))

    def is_its_own(self, act: Act) -> bool:
        """Whether an act is a backward that reaches this subject and no other."""
        event = self.event(act)
        return isinstance(event, Backward) and event.alone and not event.may

    def is_used(self, act: Act) -> bool:
        """Whether only the subject's step can use what a backward or a clip has done."""
        return any(map(self.is_mine, self.used_by.get(id(act), ())))

    def is_meant_for_another(self, clip: Act) -> bool:
        """Whether a clip is of what another optimizer steps, too, and only the steps of others can use it."""
        steps = self.used_by.get(id(clip), frozenset())
        if any(map(self.is_mine, steps)):
            return False
        if any(self.is_used(one) and steps <= self.used_by[id(one)] for one in self.backwards):
            return False  # the subject's own step was before it, and could have used it
        theirs = (one.params or () for one in self.others if one.key in steps)
        return any(
            param.is_inside(key) for params in theirs for param in params for key in clip.whose
        )

    def perhaps(self, act: Act) -> bool:
        params = self.subject.params
        if params is None:
            return True
        return any(p.overlaps(k) for p in params for k in act.perhaps)

    def reach(self, subject: SubjectKeys, act: Act) -> bool | None:
        """True: the loss runs through what the subject steps; False: not; None: cannot be seen."""
        if any(subject.key.is_inside(key) for key in act.whose if self.roles.get(key)):
            return True
        params = subject.params
        if params is None:
            return None
        if any(
            key.is_inside(param) or (param.is_inside(key) and key != SELF)
            for key in act.whose
            for param in params
        ):
            return True
        if any(p.overlaps(k) for p in params for k in act.perhaps):
            return None
        if not act.whose or act.anyone:
            return None
        known = [s.params for s in (self.subject, *self.others) if s.params]
        matched = any(
            key.overlaps(param) for key in act.whose for group in known for param in group
        )
        return False if matched else None


def _used_by(flow: Flow) -> dict[int, frozenset[Key]]:
    """By the identity of a backward or a clip, the optimizers whose steps alone can use it.

    There is one backward between two steps: the second has nothing else to use. A clip is for the steps after it; one
    after all of them is too late for those before it.
    """
    found: dict[int, frozenset[Key]] = {}
    pending: list[Act] = []
    clips: list[Act] = []
    late: list[Act] = []
    stepped: frozenset[Key] = frozenset()
    for act in acts_in_order(flow):
        if isinstance(act.event, Backward):
            if stepped:
                pending, clips, late, stepped = [], [], [], frozenset()
            pending.append(act)
        elif isinstance(act.event, Clip):
            late.append(act)
            if stepped and len(pending) == 1:
                found[id(act)] = stepped
        elif isinstance(act.event, Step):
            stepped |= act.whose
            if len(pending) == 1:
                found[id(pending[0])] = stepped
                found.update((id(one), found[id(one)] | act.whose) for one in clips)
                found.update((id(one), act.whose) for one in late)
                clips, late = [*clips, *late], []
    return found


def _scales_without_asking(flow: Flow, scaler: Key) -> bool:
    """Whether a scaled backward runs without a test whether there is a scaler."""
    if isinstance(flow, Act):
        return isinstance(flow.event, Backward) and flow.event.scaled is True
    if isinstance(flow, Alt):
        if flow.exists is not None and flow.exists[0] == scaler:
            return False
        if _fills_unscaled(flow.then) or _fills_unscaled(flow.orelse):
            return False  # another test says so: `scaler = GradScaler() if amp else None`, then `if amp`
    return any(_scales_without_asking(part, scaler) for part in children(flow))


def _fills_unscaled(flow: Flow) -> bool:
    acts = find(flow, Act)
    return any(isinstance(act.event, Backward) and act.event.scaled is False for act in acts)


def _among(key: Key, params: frozenset[Key] | None) -> bool:
    return any(key.is_inside(param) or param == key for param in params or ())
