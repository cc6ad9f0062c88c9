"""What calls and statements do to gradients, as acts of the flow."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from zerograd.core.events import Backward, Clip, Event, Excuse, New, Step, Unknown, Update, Zero
from zerograd.core.records import dataclass, replace
from zerograd.core.training_loop import NotFollowed
from zerograd.explore.flow import Alt, Flow, Seq, find
from zerograd.explore.logic import Opaque
from zerograd.static.frameworks import registry
from zerograd.static.frameworks.table import Role
from zerograd.static.frameworks.torch import SCHEDULER
from zerograd.static.interp.emitter import Act, Emitter
from zerograd.static.interp.environment import (
    OF_TENSORS,
    Environment,
    KnownObjects,
    Mode,
    Nesting,
    UnseenCall,
)
from zerograd.static.read import vocabulary
from zerograd.static.read.keys import SELF, Key
from zerograd.static.read.syntax_tree import arguments, last_name, short_text, text_of
from zerograd.static.read.values import (
    Bound,
    Called,
    Each,
    Fn,
    Grad,
    Lit,
    Many,
    Params,
    Tensor,
    Thing,
    Value,
    mix,
    parts,
    roots,
    then,
)

NOBODY: frozenset[Key] = frozenset()


@dataclass(eq=False)
class Effects:
    """Emits acts."""

    env: Environment
    emitter: Emitter
    known: KnownObjects
    nesting: Nesting
    mode: Mode
    wrapped = False
    """Accelerate, Fabric or an engine has run a backward."""
    scales = False
    """A scaler has run a step."""

    def act_on(
        self,
        kind: type[Event],
        node: ast.AST,
        keys: frozenset[Key],
        borrowed: bool = False,
        **fields: object,
    ) -> None:
        """Something is done to the gradients of these objects; it is not known whether unknown ones are None."""
        if not keys and "bare" in fields:
            fields["bare"] = False
        event = self.emitter.event(kind, node, **fields)
        self.emitter.emit(Act(event, whose=keys, anyone=not keys, borrowed=borrowed))

    def clip_by_hand(self, node: ast.AST, owner: Grad, *, bare: bool) -> None:
        """Code of the project limits these gradients. A function that is called a clip is one where it is called."""
        event = self.emitter.event(Clip, node, may=owner.some, bare=bare and bool(owner.keys))
        for function, site in self.nesting.call_sites.items():
            name = getattr(function, "name", "")
            if vocabulary.clips(name):
                event = replace(event, site=site, call=f"{name}()")
                break
        self.emitter.emit(Act(event, whose=owner.keys, anyone=not owner.keys))

    def only_clips_by_hand(self, *arms: Flow) -> bool:
        """Whether a test decides only how, or whether, a function that is called a clip limits gradients."""
        acts = [act.event for arm in arms for act in find(arm, Act)]
        sites = self.nesting.call_sites.values()
        return bool(acts) and all(isinstance(one, Clip) and one.site in sites for one in acts)

    def clear(
        self, owner: Value | None, node: ast.AST, *, to_none: bool, bare: bool = False
    ) -> None:
        """Something clears these gradients."""
        keys, perhaps = roots(owner)
        if any(key.is_called for key in keys):
            callers = frozenset(key.caller if key.is_called else key for key in keys)
            self.unseen(node, callers, NotFollowed.UNCLEAR_CLEAR)
            return
        self._keep_snapshots(keys)
        some = self.mode.some or (isinstance(owner, (Params, Grad)) and owner.some)
        leaf = isinstance(owner, Grad) and owner.leaf
        event = self.emitter.event(Zero, node, to_none=to_none, bare=bare and not some, may=some)
        self.emitter.emit(Act(event, whose=keys | perhaps, anyone=not keys, leaf=leaf))

    def _keep_snapshots(self, keys: frozenset[Key]) -> None:
        """Marks values that were computed from gradients which are cleared now: they use them no more."""
        cleared = keys
        for key in keys:
            params = self.known.params.get(key)
            if params is not None:
                cleared |= params
            elif self.known.roles.get(key) is Role.OPTIMIZER:
                cleared |= frozenset(self._gradients_kept())  # perhaps it steps all of them
        for name, value in self.env.frame.env.items():
            self.env.frame.env[name] = _snapshot(value, cleared)
        for held, value in self.env.heap.items():
            self.env.heap[held] = _snapshot(value, cleared)

    def _gradients_kept(self) -> Iterator[Key]:
        for value in (*self.env.frame.env.values(), *self.env.heap.values()):
            one = value.item if isinstance(value, Each) else value
            if isinstance(one, Tensor):
                yield from one.grads

    def unseen(self, node: ast.AST, keys: frozenset[Key], gap: NotFollowed | None) -> None:
        """Something that cannot be seen may have been done to these."""
        event = self.emitter.event(Unknown, node)
        self.emitter.emit(Act(event, whose=keys, anyone=not keys, gap=gap))

    def unknown(
        self, node: ast.AST, key: Key, gap: NotFollowed | None = NotFollowed.UNSEEN_CALL
    ) -> None:
        """Nothing is known of the gradients of an object from here on."""
        self.unseen(node, frozenset({key}), gap)

    def backward(
        self,
        node: ast.AST,
        owner: Value,
        whose: frozenset[Key] = NOBODY,
        *,
        wrapped: bool = False,
        unknown: bool = False,
        bypasses: str = "",
        own_gradient: bool = False,
    ) -> None:
        """A backward of this loss, or of these losses."""
        sure, perhaps = roots(owner)
        if isinstance(owner, Tensor):
            tensor = owner
        elif isinstance(owner, Many):
            tensor = mix(list(owner.items))
        else:
            tensor = Tensor(sure, perhaps, divided=None, scaled=None)
        self.wrapped |= wrapped
        frozen, unsure = sure & self.known.frozen, sure & self.known.perhaps_frozen
        undivided = not bypasses and tensor.divided is False
        event = self.emitter.event(
            Backward,
            node,
            scaled=tensor.scaled,
            divisor=None if undivided else 0,
            bypasses=bypasses,
            own_gradient=own_gradient,
        )
        reached, perhaps = sure - frozen - unsure, (perhaps | unsure) - frozen
        act = Act(event, whose=reached | whose, perhaps=perhaps, wrapped=wrapped, unknown=unknown)
        act.calls = tensor.calls
        act.anyone = not act.whose and not act.perhaps and not frozen
        if undivided:
            act.within = self.nesting.around()
        elif not bypasses and tensor.divided:
            act.divisor = tensor.divisor
        self.emitter.emit(act)

    def step(
        self,
        node: ast.AST,
        key: Key,
        *,
        scaled: bool | None = False,
        scaler: Key | None = None,
        ahead: bool = False,
    ) -> None:
        """A step of the optimizer with this key; `scaled` if a scaler runs it, `ahead` if it only looks ahead."""
        if key.is_called:
            self.unknown(node, key.caller, NotFollowed.UNSEEN_STEP)
            return
        self.known.roles.setdefault(key, Role.OPTIMIZER)
        self.scales |= bool(scaled)
        event = self.emitter.event(Step, node, scaled=scaled, ahead=ahead)
        named = _named(node, key, scaled)
        self.emitter.emit(Act(event, whose=frozenset({key}), subject=named, scaler=scaler))
        if key in self.known.kept:
            self.unknown(node, key, NotFollowed.UNSEEN_STEP)

    def step_by_hand(self, node: ast.AST, keys: frozenset[Key], given: Tensor) -> None:
        """Parameters are updated with what was computed from their gradients, without an optimizer."""
        scaled = None if given.scaled is None else False
        event = self.emitter.event(Step, node, may=self.mode.some, scaled=scaled)
        whose = frozenset(key.by_hand() for key in keys)
        self.emitter.emit(Act(event, whose=whose, subject=_updated(node)))

    def restored(self, node: ast.AST, keys: frozenset[Key]) -> None:
        """Weights are set back: from here on it cannot be seen what their gradients are for."""
        if self.nesting.loop:
            self.unseen(node, keys, NotFollowed.RESTORED_WEIGHTS)

    def update(self, node: ast.AST, scaler: Key | None) -> None:
        """A scaler updates its scale."""
        event = self.emitter.event(Update, node)
        self.emitter.emit(Act(event, anyone=True, scaler=scaler))

    def announce(self, node: ast.AST, key: Key, *, leaf: bool = False) -> None:
        """New parameters have no gradients; those of a module are announced with the module."""
        alone = leaf or self.env.frame.owner is None or self.nesting.loop
        if alone and not self.emitter.quiet:
            self.act_on(New, node, frozenset({key}))

    def freeze(self, owner: Value, trains: Value) -> None:
        """From here on no gradient reaches these objects, or gradients reach them again, as a value says."""
        keys, _ = roots(owner)
        for frozen, now in (
            (self.known.frozen, isinstance(trains, Lit) and trains.value is False),
            (self.known.perhaps_frozen, not isinstance(trains, Lit)),
        ):
            (frozen.update if now else frozen.difference_update)(keys)

    def hand_to_unseen(
        self,
        node: ast.Call,
        arguments: list[Value],
        name: str,
        gap: NotFollowed = NotFollowed.UNSEEN_CALL,
        *,
        known: bool = False,
    ) -> None:
        """An optimizer in unseen hands is unknown afterwards, unless they only read it.

        `known` says that the function is of a library whose schedulers only set rates.
        """
        self.note_unseen(node, arguments, name)
        quiet = self.emitter.quiet
        if not quiet and (vocabulary.CLEARS.search(name) or any(map(_clears, arguments))):
            self.act_on(Zero, node, NOBODY, may=True)
            self.known.registered |= any(map(_clears, arguments))
        if vocabulary.is_benign(name):
            quiet = 1
        handed = (part for argument in arguments for part in parts(argument))
        for item in (part for part in handed if isinstance(part, Thing)):
            if self.known.is_optimizer(item):
                if not (known and SCHEDULER.search(name)):
                    self.known.handed.add(item.key)
                if vocabulary.KEEPS.search(name):
                    self.known.kept.add(item.key)
                if not quiet:
                    self._hand_over(node, item.key, name, gap)
            elif not quiet:
                self.may_touch_inside(node, item, name, gap)

    def note_unseen(
        self, node: ast.Call, arguments: list[Value], name: str, owner: Thing | None = None
    ) -> None:
        """A call that cannot be followed may run a backward, unless it only computes or logs.

        It may if its name says so, if it is handed what has one to run (a model, an optimizer, a function), or if it
        is handed a loss and is a method of an unseen object, `owner`, or called for what it does.
        """
        if self.emitter.quiet or registry.context_named(name) is not None:
            return
        handed = [part for argument in arguments for part in parts(argument)]
        if owner is not None:
            handed += map(Thing, self.known.holds.get(owner.key, ()))
        may = any(isinstance(part, Fn) for part in handed)
        if not vocabulary.is_benign(name):
            named = vocabulary.RUNS_BACKWARD.search(name) and not SCHEDULER.search(name)
            computes = owner is None or name in OF_TENSORS or self._is_forward(owner, name)
            acts = self.mode.statement is node or not computes
            done = acts and any(map(self._is_computed, handed))
            may |= bool(named) or done or any(map(self.has_backward, handed))
        if may:
            sites = (*self.nesting.call_sites.values(), self.emitter.site(node))
            self.nesting.unseen.append(UnseenCall(f"{text_of(node.func)}()", sites))

    def _is_computed(self, value: Value) -> bool:
        """Whether a value is a tensor that gradients reach: it may be a loss."""
        if isinstance(value, Thing):
            return value.key in self.known.leaves
        return isinstance(value, Tensor) and bool(value.roots or value.maybe)

    def has_backward(self, value: Value) -> bool:
        """Whether unseen code can run a backward with an object or a function that it is handed."""
        if isinstance(value, (Fn, Bound)):
            return True
        if not isinstance(value, Thing) or value.key in self.known.leaves:
            return False
        if value.role or value.key == SELF or vocabulary.MODELS.search(value.key.last_name):
            return True
        return self.known.is_stepped(value.key)

    def _is_forward(self, owner: Thing, name: str) -> bool:
        """Whether a method computes: `forward`, or one of a model that is trained, as `model.features(x)` is."""
        return name == "forward" or (
            self.known.is_stepped(owner.key) and not vocabulary.meddles(name)
        )

    def may_touch_inside(
        self,
        node: ast.expr,
        owner: Thing,
        name: str,
        gap: NotFollowed = NotFollowed.UNSEEN_CALL,
    ) -> None:
        """Unseen code gets an object, or is a method of it: it may do something to an optimizer that the object holds.

        Also to the parameters of the object, if its name says so and it is called for what it does, not for a loss.
        """
        inside = not vocabulary.may_clear_model(name) or self.mode.statement is not node
        for key in (owner.key, *self.known.holds.get(owner.key, ())):
            self._may_touch(node, key, name, gap, inside=inside)

    def hand_models(self, node: ast.Call, arguments: list[Value]) -> None:
        """A function that an object was given, and that it hands its models, may clear them."""
        keys = frozenset(
            one.key for one in arguments if isinstance(one, Thing) and one.key[:1] == SELF
        )
        if keys and not self.emitter.quiet:
            event = self.emitter.event(Unknown, node)
            gap = NotFollowed.UNSEEN_CALL
            self.emitter.emit(Act(event, whose=keys, unless_cleared=True, gap=gap))

    def _hand_over(self, node: ast.Call, key: Key, name: str, gap: NotFollowed) -> None:
        """An unseen function gets an optimizer: it may touch the gradients, above all if its name says so."""
        if vocabulary.works_on_optimizers(name):
            self.unknown(node, key, gap)
            return
        self._may_touch(node, key, name, gap)

    def _may_touch(
        self, node: ast.expr, key: Key, name: str, gap: NotFollowed, *, inside: bool = False
    ) -> None:
        event = self.emitter.event(Unknown, node)
        act = Act(event, whose=frozenset({key}), gap=gap, inside=inside)
        test = Opaque(f"{name}() touches the gradients", stable=False, call=self.env.frame.call)
        site = self.emitter.site(node)
        # If it does, nothing is known, so no more is assumed.
        self.emitter.add(Alt(test, act, Seq(()), site, free=(True, False), optional=True))

    def result_of(
        self,
        callees: list[Value],
        arguments: list[Value],
        perhaps: frozenset[Key] = NOBODY,
        node: ast.Call | None = None,
    ) -> Tensor:
        """What an unseen function returns: computed from its arguments, for all we know."""
        if self.mode.no_grad:
            return Tensor()
        things, others = [], list(callees)
        for index, argument in enumerate(arguments):
            for one in parts(argument):
                if isinstance(one, Thing):
                    things.append(one.key)
                elif node is not None and isinstance(one, Tensor) and one.calls:
                    others.append(then(one, _done_by(node, index)))
                else:
                    others.append(one)
        result = mix(others)
        calls = result.calls
        if run := [one.key for one in callees if isinstance(one, Thing)]:
            handed = mix(arguments)
            read, unsure = roots(handed)
            calls = calls.union([Called(k, read, unsure=unsure, cut=handed.cut) for k in run])
        held = [self.known.holds[key] for key in (*run, *things) if key in self.known.holds]
        summed = node is not None and is_constant(keyword(node, "reduction"), "sum")
        return Tensor(
            result.roots,
            result.maybe.union(things, perhaps, *held) - result.roots,
            result.grads,
            divided=None if summed else False,
            scaled=result.scaled,
            calls=calls,
        )

    def excuse_bypass(self, then: Flow, orelse: Flow) -> None:
        """Where one arm lets the wrapper or the scaler do its work, the other one does without it on purpose."""
        if not self.wrapped and not self.scales:
            return
        arms = [find(arm, Act) for arm in (then, orelse)]
        for arm, other in (arms, arms[::-1]):
            steps = [act for act in other if isinstance(act.event, Step) and act.event.scaled]
            with_scaler = frozenset[Key]().union(*(act.whose for act in steps))
            for act in arm:
                if isinstance(act.event, Step) and act.whose & with_scaler:
                    if act.event.scaled is False:
                        act.event = replace(act.event, scaled=None)
        for arm, other in (arms, arms[::-1]):
            if any(act.wrapped for act in other):
                for act in arm:
                    if isinstance(act.event, Backward):
                        act.event = replace(act.event, excuse=Excuse.OTHER_ARM)


def _clears(value: Value) -> bool:
    """Whether something that is handed over is a function that clears gradients."""
    if isinstance(value, Bound):
        return value.name == "zero_grad"
    if not isinstance(value, Fn):
        return False
    return any(touch.kind == "zero_grad" for touch in value.module.facts[value.node].touches)


def _snapshot(value: Value, cleared: frozenset[Key]) -> Value:
    """A value that was computed from gradients which are cleared now."""
    if isinstance(value, Tensor) and value.grads & cleared:
        return replace(value, grads=value.grads - cleared)
    return Each(_snapshot(value.item, cleared)) if isinstance(value, Each) else value


def _done_by(node: ast.Call, index: int) -> str:
    """What a call does with one of its arguments, as a short text."""
    given = arguments(node)
    others = (
        short_text(one.func if isinstance(one, ast.Call) else one)
        for at, one in enumerate(given)
        if at != index
    )
    return f" {short_text(node.func)}({', '.join(others)})"


def _named(node: ast.AST, key: Key, scaled: bool | None) -> str:
    """The optimizer of a step, as the code names it: `self.opt` of `scaler.step(self.opt)`."""
    if not isinstance(node, ast.Call):
        return key.plain.shown
    texts = [text_of(argument) for argument in node.args]
    if isinstance(node.func, ast.Attribute):
        owner = text_of(node.func.value)
        texts = [*texts, owner] if texts and scaled else [owner, *texts]
    same = (text for text in texts if last_name(text) == key.last_name)
    return next(same, texts[0] if texts else key.plain.shown)


def _updated(node: ast.AST) -> str:
    """The parameter that is updated by hand, as the code names it."""
    target = node
    if isinstance(node, ast.Assign):
        target = node.targets[0]
    elif isinstance(node, ast.AugAssign):
        target = node.target
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        target = node.func.value
    return text_of(target).removesuffix(".data") if isinstance(target, ast.expr) else ""


def keyword(node: ast.Call, *wanted: str) -> ast.expr | None:
    """What a call hands over under one of these keywords."""
    return next((keyword.value for keyword in node.keywords if keyword.arg in wanted), None)


def is_constant(node: ast.expr | None, value: object) -> bool:
    """Whether an argument is this literal."""
    return (
        isinstance(node, ast.Constant) and type(node.value) is type(value) and node.value == value
    )
