"""Whose gradients: the flow of all acts, seen by one subject as events of its own.

Must, to accuse; may, to excuse. A subject is what one optimizer steps (or one module of several that
it steps), or a leaf that is stepped by hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from zerograd import guard
from zerograd.events import Event, Kind, Site
from zerograd.flow import Alt, Block, Emit, Flow, Jump, Loop, Seq, Set, Try
from zerograd.guard import Const, Expr, Op, Var
from zerograd.static.acts import Act
from zerograd.static.values import OPTIMIZER, within

MOST_PARTS = 4
BY_HAND = "by hand:"
EMPTY = Seq(())


@dataclass(frozen=True)
class Subject:
    """The optimizer's key and the keys of what it steps; None where that cannot be seen."""

    key: str
    params: frozenset[str] | None = None


def children(flow: Flow) -> Iterator[Flow]:
    """The parts of a flow."""
    if isinstance(flow, Seq):
        yield from flow.items
    elif isinstance(flow, Alt):
        yield flow.then
        yield flow.orelse
    elif isinstance(flow, Loop):
        yield flow.body
        if flow.orelse is not None:
            yield flow.orelse
    elif isinstance(flow, Block):
        yield flow.body
    elif isinstance(flow, Try):
        yield flow.body
        yield from flow.handlers
        yield flow.orelse
        yield flow.final


def walk(flow: Flow) -> Iterator[Flow]:
    """The flow and all its parts."""
    todo = [flow]
    while todo:
        part = todo.pop()
        yield part
        todo.extend(children(part))


def subjects(flow: Flow, params: dict[str, frozenset[str] | None]) -> list[Subject]:
    """All that is stepped in a flow."""
    keys: dict[str, None] = {}
    for act in walk(flow):
        if isinstance(act, Act) and act.event.kind is Kind.STEP:
            keys.update(dict.fromkeys(sorted(act.whose)))
    return [
        Subject(key, frozenset({key[len(BY_HAND) :]}) if key.startswith(BY_HAND) else params.get(key))
        for key in keys
    ]


def parts(subject: Subject) -> list[Subject]:
    """A subject that steps several modules is looked at one module at a time."""
    if subject.params is None or not 1 < len(subject.params) <= MOST_PARTS:
        return [subject]
    return [Subject(subject.key, frozenset({key})) for key in sorted(subject.params)]


@dataclass
class View:
    """Projects a flow onto one subject."""

    subject: Subject
    others: list[Subject]
    roles: dict[str, str]
    idle: dict[int, Site]
    seen: frozenset[str] = frozenset()
    """Everything that some loss runs through."""
    fed: set[int] = field(default_factory=set)
    assigned: list[set[str]] = field(default_factory=list)
    labels: list[set[str]] = field(default_factory=lambda: [set()])
    busy: bool = False
    """An event of this iteration has been passed."""

    def of(self, flow: Flow) -> Flow:
        """The flow as the subject sees it."""
        self.seen = frozenset().union(
            *(
                act.whose | act.perhaps
                for act in walk(flow)
                if isinstance(act, Act) and act.event.kind is Kind.BACKWARD
            )
        )
        self.note_feeding(flow, [])
        skeleton = self.project(flow, {}) or EMPTY
        self.busy = False
        return self.project(flow, _needed(flow, skeleton)) or EMPTY

    def note_feeding(self, flow: Flow, loops: list[int]) -> None:
        if isinstance(flow, Act) and flow.event.kind in (Kind.BACKWARD, Kind.UNKNOWN, Kind.ASSIGN):
            event = self.event(flow)
            if event is not None:
                self.fed.update(loops)
        inner = [*loops, flow.ident] if isinstance(flow, Loop) else loops
        for part in children(flow):
            self.note_feeding(part, inner)

    def project(self, flow: Flow, needed: Mapping[str, bool]) -> Flow | None:
        if isinstance(flow, Act):
            event = self.event(flow)
            if event is None:
                return None
            self.busy = True
            return Emit(event, flow.divisor)
        if isinstance(flow, Seq):
            items = [part for item in flow.items if (part := self.project(item, needed)) is not None]
            return (items[0] if len(items) == 1 else Seq(items)) if items else None
        if isinstance(flow, Alt):
            return self.branch(flow, needed)
        if isinstance(flow, Loop):
            return self.repeat(flow, needed)
        if isinstance(flow, Set):
            if flow.name not in needed:
                return None
            return flow if needed[flow.name] or flow.value is None else Set(flow.name)
        if isinstance(flow, Block):
            self.labels[-1].add(flow.label)
            body = self.project(flow.body, needed)
            return Block(body, flow.label) if body is not None else None
        if isinstance(flow, Try):
            return self.attempt(flow, needed)
        return flow

    def branch(self, alt: Alt, needed: Mapping[str, bool]) -> Flow | None:
        if alt.exists is not None and self.is_mine(alt.exists[0]):
            return self.project(alt.then if alt.exists[1] else alt.orelse, needed)
        busy = self.busy
        then = self.project(alt.then, needed)
        busy_then, self.busy = self.busy, busy
        orelse = self.project(alt.orelse, needed)
        quiet = not busy
        self.busy = self.busy or busy_then
        if then is None and orelse is None:
            return None
        if _fails(then):
            return orelse
        if _fails(orelse):
            return then
        free = (self.leaves(orelse, quiet), self.leaves(then, quiet))
        names = guard.reads(alt.test)
        changing = self.assigned[-1] if self.assigned else set()
        invariant = guard.stable(alt.test) and not names & changing
        return replace(
            alt, then=then or EMPTY, orelse=orelse or EMPTY, free=free, invariant=invariant
        )

    def leaves(self, arm: Flow | None, quiet: bool) -> bool:
        """Whether an arm leaves the loop, or skips an iteration in which nothing has happened."""
        label = _exit(arm)
        if label is None:
            return False
        if label.startswith("continue:") or label in self.labels[-1]:
            return quiet and not any(isinstance(part, Emit) for part in walk(arm or EMPTY))
        return True

    def repeat(self, loop: Loop, needed: Mapping[str, bool]) -> Flow | None:
        changing = set(loop.targets)
        changing |= {part.name for part in walk(loop.body) if isinstance(part, Set)}
        self.assigned.append(changing)
        self.labels.append(set())
        busy, self.busy = self.busy, False
        body = self.project(loop.body, needed)
        self.busy = busy or self.busy
        self.labels.pop()
        self.assigned.pop()
        orelse = self.project(loop.orelse, needed) if loop.orelse is not None else None
        if body is None:
            return orelse
        return replace(loop, body=body, orelse=orelse)

    def attempt(self, flow: Try, needed: Mapping[str, bool]) -> Flow | None:
        parts = [self.project(part, needed) for part in (flow.body, flow.orelse, flow.final)]
        handlers = [self.project(handler, needed) or EMPTY for handler in flow.handlers]
        if all(part is None for part in parts) and all(handler is EMPTY for handler in handlers):
            return None
        body, orelse, final = (part or EMPTY for part in parts)
        return replace(flow, body=body, handlers=handlers, orelse=orelse, final=final)

    # Events

    def is_mine(self, key: str) -> bool:
        return within(self.subject.key, key) or (key.endswith("[*]") and self.subject.key == key)

    def event(self, act: Act) -> Event | None:
        """The act as the subject sees it; None where it does not concern it."""
        kind = act.event.kind
        event = replace(act.event, subject=self.subject.key)
        if kind is Kind.BACKWARD:
            return self.backward(act, event)
        if kind is Kind.STEP:
            return self.step(act, event)
        if kind is Kind.UPDATE:
            return event
        if kind in (Kind.UNKNOWN, Kind.NEW):
            return event if any(self.touched(key) for key in act.whose) else None
        if kind is Kind.UNSCALE and act.anyone:
            return event
        return self.on_gradients(act, event)

    def touched(self, key: str) -> bool:
        """Whether something unseen that is done to an object may reach the subject."""
        if self.is_mine(key):
            return True
        return self.roles.get(key) != OPTIMIZER and within(self.subject.key, key)

    def step(self, act: Act, event: Event) -> Event | None:
        if any(self.is_mine(key) for key in act.whose):
            return replace(
                event, fed=event.loop in self.fed or not event.loop, idle_loss=self.idle.get(event.loop)
            )
        return replace(event, foreign=True)

    def on_gradients(self, act: Act, event: Event) -> Event | None:
        """Zero, clip, assign: by the optimizer, by its modules, or by something unresolved."""
        if act.anyone:
            return replace(event, may=True)
        relations = [self.relation(key, event.kind is Kind.ZERO) for key in act.whose]
        if True in relations:
            return event
        if None in relations:
            return replace(event, may=True)
        covered = self.subject.params
        if covered and len(act.whose) > 1 and all(any(within(p, k) for k in act.whose) for p in covered):
            return event
        return None

    def relation(self, key: str, clears: bool) -> bool | None:
        """True: covers the subject; False: does not touch it; None: may touch some of it."""
        if self.is_mine(key):
            return True
        params = self.subject.params
        if self.roles.get(key) == OPTIMIZER:
            other = next((s for s in self.others if s.key == key), None)
            shared = other is not None and other.params and params and other.params >= params
            return bool(shared)
        if params is None:
            alone = not self.others
            related = any(within(r, key) or within(key, r) for r in self.seen)
            return True if alone and (related or not clears) else None
        if all(within(param, key) for param in params):
            return True
        if any(within(param, key) or within(key, param) for param in params):
            return None
        elsewhere = any(
            within(param, key) or within(key, param) for other in self.others for param in other.params or ()
        )
        return False if elsewhere else None

    def backward(self, act: Act, event: Event) -> Event | None:
        mine = self.reach(self.subject, act)
        others = [self.reach(other, act) for other in self.others]
        if mine is None and not any(others):
            # The loss cannot be followed to anyone: with one optimizer it is that one's.
            mine = not self.others or None
            if mine is None and any(other is None for other in others):
                return replace(event, may=True)
        if mine is False:
            return None
        if mine is None:
            return replace(event, may=True) if self.perhaps(act) or not any(others) else None
        return replace(event, alone=not any(other is not False for other in others))

    def perhaps(self, act: Act) -> bool:
        params = self.subject.params
        if params is None:
            return True
        return any(within(p, k) or within(k, p) for p in params for k in act.perhaps)

    def reach(self, subject: Subject, act: Act) -> bool | None:
        """True: the loss runs through what the subject steps; False: not; None: cannot be seen."""
        if any(within(subject.key, key) for key in act.whose if self.roles.get(key)):
            return True
        params = subject.params
        if params is None:
            return None
        if any(within(key, param) or (within(param, key) and key != "self") for key in act.whose for param in params):
            return True
        if any(within(p, k) or within(k, p) for p in params for k in act.perhaps):
            return None
        if not act.whose or act.anyone:
            return None
        known = [s.params for s in (self.subject, *self.others) if s.params]
        matched = any(
            within(key, param) or within(param, key) for key in act.whose for group in known for param in group
        )
        return False if matched else None


def _exit(arm: Flow | None) -> str | None:
    """The label by which an arm always leaves."""
    if isinstance(arm, Jump):
        return arm.label
    if isinstance(arm, Seq):
        for item in arm.items:
            label = _exit(item)
            if label is not None:
                return label
    if isinstance(arm, Alt):
        labels = {_exit(arm.then), _exit(arm.orelse)}
        return labels.pop() if len(labels) == 1 else None
    return None


def _fails(arm: Flow | None) -> bool:
    """An arm that only raises says nothing about the runs that go on."""
    return isinstance(arm, Jump) and arm.label == "raise"


def _needed(flow: Flow, skeleton: Flow) -> dict[str, bool]:
    """Variables that the tests of a flow read, and whether their values could decide one."""
    needed: dict[str, bool] = {}
    sets: dict[str, list[Expr | None]] = {}
    for part in walk(flow):
        if isinstance(part, Set):
            sets.setdefault(part.name, []).append(part.value)
    counters, meanings = _counters(flow), _meanings(flow)
    decisive: set[str] = set()
    for part in walk(skeleton):
        if isinstance(part, Alt):
            names = guard.reads(part.test)
            needed.update(dict.fromkeys(names, False))
            if all(name in counters or name in sets or name[0] == "@" for name in names):
                decisive |= names
            else:
                modulo = _modulo(part.test, counters, meanings)
                decisive |= names if modulo is not None or len(names) == 1 else frozenset()
        elif isinstance(part, Loop):
            for expr in (part.trips, part.test, part.first):
                decisive |= guard.reads(expr) if expr is not None else frozenset()
        elif isinstance(part, Emit) and part.divisor is not None:
            decisive |= guard.reads(part.divisor)
    todo = list(decisive)
    while todo:
        name = todo.pop()
        if needed.get(name):
            continue
        needed[name] = True
        for value in sets.get(name, ()):
            todo.extend(guard.reads(value) if value is not None else ())
    return needed


# Guards that count


@dataclass(frozen=True)
class Pace:
    """What has to be given numbers so that a flow's accumulation guards can be executed."""

    symbols: frozenset[str]
    sizes: frozenset[guard.Fact]
    counters: frozenset[str]


def pace(flow: Flow) -> tuple[Flow, Pace | None]:
    """Marks the loops whose step a counter guards; None where there is nothing to execute."""
    counters = _counters(flow)
    meanings = _meanings(flow)
    counting: dict[int, tuple[Site, Site]] = {}
    symbols: set[str] = set()
    _find_guards(flow, [], [], counters, meanings, counting, symbols)
    micro = _micro_batches(flow)
    symbols |= micro
    if not counting and not micro:
        return flow, None
    marked = _mark(flow, counting)
    overs = {loop.over for loop in walk(marked) if isinstance(loop, Loop) and loop.paced and loop.over}
    sizes = {
        guard.Fact(part.text, part.reads)
        for expr in _expressions(flow)
        for part in guard.parts(expr)
        if isinstance(part, guard.Opaque) and part.text.rpartition("#")[2] in {f"len({o})" for o in overs}
    }
    return marked, Pace(frozenset(symbols), frozenset(sizes), frozenset(counters))


def _expressions(flow: Flow) -> Iterator[Expr]:
    for part in walk(flow):
        if isinstance(part, Alt):
            yield part.test
        elif isinstance(part, Set) and part.value is not None:
            yield part.value
        elif isinstance(part, Loop):
            yield from (expr for expr in (part.trips, part.first, part.test) if expr is not None)


def _counters(flow: Flow) -> set[str]:
    """Loop counters, and variables that are counted up."""
    found = {part.counter for part in walk(flow) if isinstance(part, Loop) and part.counter}
    for part in walk(flow):
        if isinstance(part, Set) and isinstance(part.value, Op) and part.value.op in "+-":
            left, right = part.value.args
            if left == Var(part.name) and isinstance(right, Const):
                found.add(part.name)
    return found


def _meanings(flow: Flow) -> dict[str, list[Expr]]:
    meanings: dict[str, list[Expr]] = {}
    for part in walk(flow):
        if isinstance(part, Set) and part.value is not None:
            meanings.setdefault(part.name, []).append(part.value)
    return meanings


def _modulo(
    expr: Expr, counters: set[str], meanings: dict[str, list[Expr]], depth: int = 0
) -> set[str] | None:
    """The names of N in a test that counts; None if it does not count."""
    found: set[str] | None = None
    for part in guard.parts(expr):
        if isinstance(part, Op) and part.op == "%":
            left, right = part.args
            names = guard.reads(left)
            counted = names and all(_counts(name, counters, meanings) for name in names)
            if counted and guard.reads(right):
                found = (found or set()) | set(guard.reads(right))
        elif isinstance(part, Var) and depth < 3 and part.name not in counters:
            for meaning in meanings.get(part.name, ()):
                inner = _modulo(meaning, counters, meanings, depth + 1)
                if inner is not None:
                    found = (found or set()) | inner
    return found


def _counts(name: str, counters: set[str], meanings: dict[str, list[Expr]]) -> bool:
    if name in counters or name.startswith("@count:"):
        return True
    known = meanings.get(name)
    return bool(known) and all(
        guard.reads(value) and guard.reads(value) <= counters for value in known or ()
    )


def _reset_compare(expr: Expr, counters: set[str], meanings: dict[str, list[Expr]]) -> set[str] | None:
    """`count == N` where the count is set back: the names of N."""
    for part in guard.parts(expr):
        if isinstance(part, Op) and part.op in ("==", ">=", ">") and len(part.args) == 2:
            left, right = part.args
            if isinstance(left, Var) and left.name in counters and isinstance(right, Var):
                resets = [v for v in meanings.get(left.name, ()) if isinstance(v, Const)]
                if len(resets) >= 2 and right.name not in counters and right.name not in meanings:
                    return {right.name}
    return None


def _find_guards(
    flow: Flow,
    loops: list[int],
    guards: list[tuple[int, Alt, set[str]]],
    counters: set[str],
    meanings: dict[str, list[Expr]],
    found: dict[int, tuple[Site, Site]],
    symbols: set[str],
) -> None:
    """Finds steps and clears under tests that count, or behind a `continue` under one."""
    if isinstance(flow, Emit) and flow.event.kind in (Kind.STEP, Kind.ZERO) and not flow.event.foreign:
        for loop, alt, names in guards:
            if loops and loop == loops[-1]:
                symbols |= names
                if flow.event.kind is Kind.STEP:
                    found.setdefault(loop, (alt.site, flow.event.site))
        return
    inner_guards = list(guards)
    if isinstance(flow, Alt):
        names = _modulo(flow.test, counters, meanings) or _reset_compare(flow.test, counters, meanings)
        if names is not None and loops:
            inner_guards.append((loops[-1], flow, names))
    inner_loops = [*loops, flow.ident] if isinstance(flow, Loop) else loops
    for part in children(flow):
        _find_guards(part, inner_loops, inner_guards, counters, meanings, found, symbols)
        if isinstance(part, Alt) and _exit(part.then) is not None and loops:
            # What follows `if …: continue` stands under the opposite of its test.
            names = _modulo(part.test, counters, meanings)
            if names is not None:
                inner_guards.append((loops[-1], part, names))


def _micro_batches(flow: Flow) -> set[str]:
    """`for … in range(accumulation_steps)` around a backward whose step comes after the loop."""
    names: set[str] = set()
    for part in walk(flow):
        if isinstance(part, Loop) and isinstance(part.trips, Var) and _is_accumulation(part.trips.name):
            kinds = {e.event.kind for e in walk(part.body) if isinstance(e, Emit) and not e.event.foreign}
            if Kind.BACKWARD in kinds and Kind.STEP not in kinds:
                names.add(part.trips.name)
    return names


def _is_accumulation(name: str) -> bool:
    return any(word in name.lower() for word in ("accum", "micro"))


def _mark(flow: Flow, counting: dict[int, tuple[Site, Site]]) -> Flow:
    def again(part: Flow) -> Flow:
        return _mark(part, counting)

    if isinstance(flow, Emit):
        guarded = counting.get(flow.event.loop)
        if guarded is not None and flow.event.kind is Kind.STEP:
            return Emit(replace(flow.event, guard=guarded[0]), flow.divisor)
        return flow
    if isinstance(flow, Loop):
        paced, closes = counting.get(flow.ident, (None, None))
        orelse = again(flow.orelse) if flow.orelse is not None else None
        return replace(flow, body=again(flow.body), orelse=orelse, paced=paced, closes=closes)
    return rebuild(flow, again)


def rebuild(flow: Flow, change: object) -> Flow:
    """The flow with its parts changed."""
    apply = change
    assert callable(apply)
    if isinstance(flow, Seq):
        return Seq([apply(item) for item in flow.items])
    if isinstance(flow, Alt):
        return replace(flow, then=apply(flow.then), orelse=apply(flow.orelse))
    if isinstance(flow, Block):
        return Block(apply(flow.body), flow.label)
    if isinstance(flow, Try):
        handlers: Iterable[Flow] = [apply(handler) for handler in flow.handlers]
        return replace(
            flow,
            body=apply(flow.body),
            handlers=list(handlers),
            orelse=apply(flow.orelse),
            final=apply(flow.final),
        )
    return flow
