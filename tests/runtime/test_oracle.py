"""What a run shows is exactly what the gradients hold: the watcher against an oracle that recomputes.

The oracle runs each program act by act under torch. Beside every `.grad` it keeps the contributions
that make it up, each computed with `autograd.grad` when its backward ran, and which steps have used
them. That their sum is the real `.grad`, after every act, proves the oracle; what the rules say of
the contributions is what the watcher must report of the run.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
import torch

import zerograd
from support import tiers
from support.programs import (
    BACKWARDS,
    BY_HAND,
    CHANGES,
    CLEARS,
    MAX_NORM,
    PARTS,
    SCALING,
    STEPS,
    Act,
    Chain,
    Do,
    Program,
    draw,
    smallest,
    source,
)
from zerograd.runtime import idle_optimizers

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

ENOUGH_LOST = 3
"""So many steps whose gradients were cleared by hand before them are no accident, if no step has used any."""
ENOUGH_IDLE = 3
"""So many windows that an optimizer has cleared are no test of a few batches, if it never steps."""
CONVINCED = 8
"""So many windows in a row that are cut in the same way are no accident."""
CHUNKS = 21
PROGRAMS = 100
SAMPLE = 60
"""Programs of the fast tier, which the long one does not have."""
"""In each chunk."""

Place = tuple[str, int]
"""A code, and the line it is reported at."""
Subject = frozenset[int]
"""The numbers of the modules whose parameters an optimizer steps."""


# The oracle


@dataclass
class Backward:
    """One backward that ran."""

    time: int
    line: int
    reached: frozenset[int]
    """The modules it brought gradients to."""
    passed: frozenset[tuple[int, int]] = frozenset()
    """Pairs of modules: its gradients pass the first on their way to the second."""
    lent: dict[Subject, int] = field(default_factory=dict)
    """When a step first used its contribution to the parameters of a subject."""


@dataclass
class Contribution:
    """What one backward has added to one `.grad`, as much of it as is still there."""

    backward: Backward
    value: Tensor
    used: dict[Subject, int] = field(default_factory=dict)
    """When a subject's step has first used it."""

    @property
    def counts(self) -> bool:
        return bool((self.value != 0).any())


@dataclass
class Past:
    """What a subject has done so far."""

    prints: list[bytes] = field(default_factory=list)
    """What its last step used."""
    by: int = -1
    """The optimizer that stepped last."""
    repeated: bool = False
    """It has used the same twice."""
    repeated_at: int = -1
    """How many backward calls there were then."""
    empty_at: int = -1
    """How many backward calls there were at its last step, if that had nothing to use."""
    unseen: bool = False
    """Gradients that no step had used were cleared by hand, or in part."""
    fresh: bool = False
    """A backward has reached it since its last step, and no call has cleared any of it since."""
    lost: int = 0
    """How many steps had nothing to use although it was fresh."""
    fed: bool = False
    """A step had something to use, or zeros that a call has left."""
    handled: bool = False
    """It was cleared as a whole, or clipped, since its last step."""
    idle: int = 0
    """How often an optimizer has cleared what was brought since the last clear or step."""
    steps: int = 0
    """How many steps it has taken."""
    clears: bool = False
    """It was cleared as a whole after a step."""
    dropped: tuple[int, int] | None = None
    """The line and the time of the clear that has last dropped unused gradients of it."""
    drops: list[tuple[int, int]] = field(default_factory=list)
    """The clears that have dropped some since its last step, with the line of the backward."""
    cuts: list[list[tuple[int, int]]] = field(default_factory=list)
    """The drops before each step so far."""
    pattern: list[tuple[int, int]] = field(default_factory=list)
    alike: int = 0
    """How many steps in a row came after the same drops."""
    convicted: set[tuple[int, int]] = field(default_factory=set)
    """The clears that drop part of every window, with the line of the backward."""


@dataclass
class Oracle:
    """Runs a program and knows the truth about each of its steps."""

    program: Program
    must: Counter[Place] = field(default_factory=Counter)
    """What has to be reported, and how often."""
    may: Counter[Place] = field(default_factory=Counter)
    """What may be reported beside that."""
    steps: list[str] = field(default_factory=list)
    """What each step used, in words."""
    losses: list[float] = field(default_factory=list)
    always_stale: bool = True
    """Every step but those of the first iteration is stale."""
    raised: str = ""

    def __post_init__(self) -> None:
        _, self.lines = source(self.program)
        torch.manual_seed(self.program.seed)
        self.modules = [_module(deep) for deep in self.program.deep]
        self.optimizers = [_optimizer(self, one) for one in range(len(self.program.trainers))]
        self.subjects = [frozenset(one.modules) for one in self.program.trainers]
        self.scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=2)
        self.params: dict[Tensor, int] = {
            param: number
            for number, module in enumerate(self.modules)
            for param in module.parameters()
        }
        self.held: dict[Tensor, list[Contribution]] = {param: [] for param in self.params}
        self.past = {subject: Past() for subject in self.subjects}
        self.time = 0
        self.stepped: set[Subject] = set()
        self.backwards: list[Backward] = []
        acts = self.program.body
        self.numbers = list(range(len(self.modules)))
        """The numbers of the modules; one that is made anew has another."""
        self.changes = any(act.do in CHANGES for act in acts)
        assigned = {self.subjects[act.target] for act in acts if act.do is Do.ASSIGN}
        self.unsure = any(one & other and one != other for one in assigned for other in self.past)
        """Gradients are assigned to a part of what an optimizer steps, and nobody sees that."""
        self.any_line = bool(assigned) and len(self.past) > 1 and not self.unsure
        """Gradients of one optimizer are assigned: it is not known whom a backward of several was for."""
        self.stale = 0
        """How many steps are stale."""
        self.plain = len(self.subjects) == 1 and not any(
            act.do in (*BY_HAND, *SCALING, *CHANGES) for act in acts
        )
        """One optimizer, cleared as a whole and reached as a whole: then all rules are exact."""
        self.whole = len(self.subjects) == 1 and not any(
            act.do in (*SCALING, *CHANGES) for act in acts
        )
        """The same, but that it may be cleared by hand, and in part."""

    def run(self) -> Oracle:
        try:
            for iteration in range(self.program.iterations):
                self.x = torch.randn(3, 2, dtype=torch.float64)
                for act, line in zip(self.program.body, self.lines, strict=True):
                    if iteration not in act.left_out:
                        self.time += 1
                        self.do(act, line, iteration)
                        self.prove(act)
        except (RuntimeError, AssertionError) as error:
            if isinstance(error, Unproven):
                raise
            self.raised = repr(error)
        for number, subject in enumerate(self.subjects):
            past = self.past[subject]
            if past.idle and not past.steps:
                place = ("ZG102", _made_at(self.program, number))
                (self.must if self.plain and past.idle >= ENOUGH_IDLE else self.may)[place] += 1
        return self

    def prove(self, act: Act) -> None:
        """The contributions that are said to be there add up to what is there."""
        for param in self.params:
            total = self.total(param)
            real = torch.zeros_like(param) if param.grad is None else param.grad
            if not torch.allclose(total, real, rtol=1e-6, atol=1e-12, equal_nan=True):
                raise Unproven(f"after {act}: {total} is not {real}")

    def total(self, param: Tensor) -> Tensor:
        return sum((one.value for one in self.held[param]), torch.zeros_like(param))

    def do(self, act: Act, line: int, iteration: int) -> None:
        if act.do in BACKWARDS:
            self.backward(act, line)
        elif act.do is Do.ZERO:
            self.optimizers[act.target].zero_grad(act.to_none)
            past = self.past[self.subjects[act.target]]
            held = any(self.held[param] for param in self.of(self.subjects[act.target]))
            past.idle += past.fresh or held
            self.seen_to_clear(self.subjects[act.target], line)
        elif act.do is Do.MODULE_ZERO:
            self.modules[act.target].zero_grad(act.to_none)
            self.seen_to_clear(frozenset({self.numbers[act.target]}), line)
        elif act.do in BY_HAND:
            self.by_hand(act)
        elif act.do in CHANGES:
            self.change(act, line, iteration)
        elif act.do in (Do.CLIP, Do.CLIP_ALL):
            only = [act.target]
            self.clip(self.of(self.now(only if act.do is Do.CLIP else self.named(act.target))))
        elif act.do is Do.UNSCALE:
            scale = self.scaler.get_scale()
            self.scaler.unscale_(self.optimizers[act.target])
            self.multiply(self.of(self.subjects[act.target]), 1 / scale)
        elif act.do is Do.UPDATE:
            self.scaler.update()
        else:
            self.step(act, line, iteration)

    def change(self, act: Act, line: int, iteration: int) -> None:
        if act.do is Do.ASSIGN:
            subject = self.now(self.named(act.target))
            this = Backward(self.time, line, subject)
            for param in self.of(subject):
                param.grad = torch.full_like(param, 0.1 + iteration)
                self.held[param] = [Contribution(this, param.grad.clone())]
            for one, past in self.past.items():
                if one & subject:
                    past.prints, past.dropped = [], None
        elif act.do is Do.REPLACE:
            self.modules[act.target] = made = _module(self.program.deep[act.target])
            self.numbers[act.target] = number = max(self.params.values()) + 1
            self.params |= dict.fromkeys(made.parameters(), number)
            self.held |= {param: [] for param in made.parameters()}
        else:
            self.modules[act.target].requires_grad_(act.do is Do.THAW)

    def named(self, optimizer: int) -> Sequence[int]:
        """The modules that an optimizer was made for, by the numbers in their names."""
        return self.program.trainers[optimizer].modules

    def now(self, names: Sequence[int]) -> Subject:
        """The modules that have these numbers in their names now."""
        return frozenset(self.numbers[name] for name in names)

    def of(self, modules: Subject) -> list[Tensor]:
        return [param for param, module in self.params.items() if module in modules]

    def backward(self, act: Act, line: int) -> None:
        loss = sum(map(self.loss, act.losses)) * (float("inf") if act.infinite else 1.0)
        assert isinstance(loss, torch.Tensor)
        self.losses.append(loss.item())
        if act.do is Do.SCALED:
            loss = self.scaler.scale(loss)
        wanted = [param for param in self.params if param.requires_grad]
        brought: Any = []
        if wanted:
            brought = torch.autograd.grad(loss, wanted, retain_graph=True, allow_unused=True)
        loss.backward()  # type: ignore[no-untyped-call]
        reached = {
            self.params[param]
            for param, value in zip(wanted, brought, strict=True)
            if value is not None
        }
        passed = {
            (self.numbers[late], self.numbers[early])
            for chain in act.losses
            for number, (early, _) in enumerate(chain)
            for after, (late, _) in enumerate(chain[number + 1 :], start=number)
            if not any(detached for _, detached in chain[number : after + 1])
        }
        this = Backward(self.time, line, frozenset(reached), frozenset(passed))
        self.backwards.append(this)
        self.plain &= self.subjects[0] <= reached
        self.whole &= self.subjects[0] <= reached
        for subject, past in self.past.items():
            past.unseen &= not subject & reached
            past.fresh |= bool(subject & reached)
        for param, value in zip(wanted, brought, strict=True):
            if value is not None:
                self.held[param].append(Contribution(this, value.clone()))

    def loss(self, chain: Chain) -> Tensor:
        out = self.x
        for number, (module, detached) in enumerate(chain, start=1):
            out = self.modules[module](out)
            out = out.detach() if detached and number < len(chain) else out
        return out.square().mean()

    def seen_to_clear(self, modules: Subject, line: int) -> None:
        """A clear that is a call of torch's; what it drops of any subject is noted."""
        for subject, past in self.past.items():
            lost = [
                one.backward
                for param in self.of(subject & modules)
                for one in self.held[param]
                if one.counts and not one.used
            ]
            if lost or (past.unseen and self.backwards):
                # What was cleared by hand or in part before may be taken for what this one drops.
                latest = max(lost or self.backwards, key=lambda one: one.time)
                past.drops.append((line, latest.line))
                past.dropped = (line, self.time)
                past.unseen |= not subject <= modules
            past.handled = past.handled or subject <= modules
            past.clears |= subject <= modules and past.steps > 0
            past.unseen &= not subject <= modules
            past.fresh &= not subject & modules
        self.plain &= any(subject <= modules for subject in self.subjects)
        self.clear(self.of(modules))

    def clear(self, params: list[Tensor]) -> None:
        for param in params:
            self.held[param] = []

    def by_hand(self, act: Act) -> None:
        params = self.of(frozenset({self.numbers[act.target]}))
        params = params[PARTS[act.part]] if act.part else params
        for subject, past in self.past.items():
            shared = [param for param in params if self.params[param] in subject]
            past.unseen |= any(one.counts and not one.used for p in shared for one in self.held[p])
        for param in params:
            if act.do is Do.NONE:
                param.grad = None
            elif param.grad is not None:
                (param.grad if act.do is Do.IN_PLACE else param.grad.data).zero_()
        self.clear(params)

    def clip(self, params: list[Tensor]) -> None:
        norm = math.sqrt(sum(float(self.total(param).norm()) ** 2 for param in params))
        torch.nn.utils.clip_grad_norm_(params, MAX_NORM)
        factor = MAX_NORM / (norm + 1e-6)
        self.multiply(params, 1.0 if factor > 1 else factor)  # min would lose a nan
        for subject, past in self.past.items():
            past.handled |= any(self.params[param] in subject for param in params)

    def multiply(self, params: list[Tensor], factor: float) -> None:
        for param in params:
            for one in self.held[param]:
                one.value *= factor

    def step(self, act: Act, line: int, iteration: int) -> None:
        optimizer, subject = self.optimizers[act.target], self.subjects[act.target]
        if act.do is Do.SCALER_STEP:
            scale = self.scaler.get_scale()
            stage = self.scaler._per_optimizer_states[id(optimizer)]["stage"].name
            self.scaler.step(optimizer)
            if stage == "READY":
                self.multiply(self.of(subject), 1 / scale)
        else:
            optimizer.step()
        self.stepped.add(subject)
        self.judge(act.target, line, iteration)
        for param in self.of(subject):
            for one in self.held[param]:
                one.used.setdefault(subject, self.time)
                if one.counts:
                    one.backward.lent.setdefault(subject, self.time)

    # What the rules say of it

    def judge(self, optimizer: int, line: int, iteration: int) -> None:
        subject = self.subjects[optimizer]
        held = [self.held[param] for param in self.of(subject)]
        there = [[one for one in each if one.counts] for each in held]
        mixing = [b for each in there for b in _mixing(each, subject)]
        if mixing:
            first = self.own(sorted(mixing, key=lambda one: one.time), subject)
            self.stale += 1
            if self.any_line:
                self.may.update({("ZG101", one.line) for one in mixing})
            elif not self.unsure:
                self.must["ZG101", first.line] += 1
        if self.any_line:
            self.may.update(("ZG106", one.line) for one in self.backwards)
        if self.unsure:
            lines = {one.line for one in self.backwards}
            self.may.update((code, line) for code in ("ZG101", "ZG106") for line in lines)
        self.always_stale &= bool(mixing) or iteration == 0
        # Where gradients are stale, that they are another's besides need not be said.
        clean = [one for each in there if not any(one.used for one in each) for one in each]
        crossing = self.crossing(clean, [one for each in there for one in each], subject)
        if crossing:
            latest, through = max(crossing, key=lambda one: one[0].time)
            sure = all(sure for _, sure in crossing) and self.past[subject].clears
            sure = sure and not mixing and not self.changes
            (self.must if sure and through else self.may)["ZG106", latest.line] += 1
        self.past[subject].steps += 1
        if any(there):
            self.judge_full(optimizer, subject, [one for each in there for one in each], line)
        else:
            self.past[subject].by = optimizer
            self.judge_empty(self.past[subject], line)
        past = self.past[subject]
        past.fed |= not past.fresh and any(param.grad is not None for param in self.of(subject))
        past.fed |= any(there)
        past.fresh = False
        self.steps.append(
            f"iteration {iteration}, line {line}: step of {sorted(subject)} uses "
            + "; ".join(", ".join(_said(one, subject) for one in each) or "-" for each in there)
        )

    def own(self, mixing: list[Backward], subject: Subject) -> Backward:
        """The first backward that added to used gradients, but for those that were for another's step."""
        first = mixing[0]
        for late in mixing[1:]:
            others = [
                one for one, when in first.lent.items() if when < late.time and not one & subject
            ]
            if any((own, two) in first.passed for one in others for two in one for own in subject):
                first = late
        return first

    def judge_full(
        self, optimizer: int, subject: Subject, there: list[Contribution], line: int
    ) -> None:
        """A step with something to use: the same again, or the rest of a window cut short."""
        past = self.past[subject]
        prints = [b"" if p.grad is None else bits(p.grad) for p in self.of(subject)]
        new = [one.backward for one in there if subject not in one.used]
        same = prints == past.prints
        rest = len(prints) == len(past.prints) and all(
            now == then or not any(now) for now, then in zip(prints, past.prints, strict=True)
        )
        if not new and rest and not same:
            self.may["ZG105", line] += 1  # some of them are cleared
            past.repeated = True
        if not new and same:
            # Two optimizers over the same gradients are meant, and so are many steps in a row.
            meant = past.by != optimizer or past.repeated_at == len(self.backwards)
            known = past.repeated and not any(one.value.isnan().any() for one in there)
            if not meant:
                (self.must if known else self.may)["ZG105", line] += 1
            past.repeated = True
        if not new:
            past.repeated_at = len(self.backwards)
        past.by = optimizer
        past.prints, past.empty_at, past.handled, past.dropped = prints, -1, False, None
        if not new:
            return
        if any(subject in one.used for one in there):
            self.may["ZG105", line] += 1  # a part of it is used once more
        own = max(new, key=lambda one: one.time).line
        past.cuts.append(past.drops)
        past.drops = []
        for clear in {clear for clear, _ in past.cuts[-1]}:
            if all(any(one == clear for one, _ in drops) for drops in past.cuts[-CONVINCED:]):
                self.may["ZG103", clear] += CONVINCED * (len(past.cuts) >= CONVINCED)
        regular = (
            past.cuts[-1] == [past.cuts[-1][0]] * len(past.cuts[-1]) if past.cuts[-1] else False
        )
        pattern = past.cuts[-1] if regular and past.cuts[-1][0][1] == own else []
        past.alike = past.alike + 1 if pattern and pattern == past.pattern else 1
        past.pattern = pattern
        if self.plain and pattern:
            if pattern[0] in past.convicted:
                self.must["ZG103", pattern[0][0]] += 1
            elif past.alike == CONVINCED:
                past.convicted.add(pattern[0])
                self.must["ZG103", pattern[0][0]] += CONVINCED

    def judge_empty(self, past: Past, line: int) -> None:
        """A step with nothing to use: forgotten, or thrown away before."""
        now = len(self.backwards)
        if past.empty_at == now:
            (self.must if self.plain and past.handled else self.may)["ZG104", line] += past.handled
        past.empty_at, past.handled = now, False
        past.lost += past.fresh
        if past.fresh and past.lost >= ENOUGH_LOST and not past.fed:
            # Of several subjects, the watch may not know for whom a backward was.
            (self.must if self.whole else self.may)["ZG102", line] += 1
        if past.dropped is not None:
            clear, when = past.dropped
            since = bool(self.backwards) and self.backwards[-1].time > when
            (self.must if self.plain and not since else self.may)["ZG102", clear] += 1
        past.dropped = None

    def crossing(
        self, clean: list[Contribution], held: list[Contribution], subject: Subject
    ) -> list[tuple[Backward, bool]]:
        """The subject's own backward calls that came onto what another one's phase has left.

        Each with whether all of that came through this subject's modules.
        """
        own = [one.backward for one in held if not one.used and self.alone(one.backward, subject)]
        return [
            (late, any((one, two) in left.passed for one in subject for two in other))
            for left in (one.backward for one in clean)
            for other, when in left.lent.items()
            if not other & subject
            for late in own
            if late.time > when and late.line != left.line
        ]

    def alone(self, backward: Backward, subject: Subject) -> bool:
        return not any(backward.reached & other for other in self.subjects if other != subject)


class Unproven(AssertionError):
    """The oracle is wrong."""


def _mixing(held: list[Contribution], subject: Subject) -> list[Backward]:
    """The backward calls that added to this gradient after a step had used what was there."""
    since = min((when for one in held for when in one.used.values()), default=None)
    if since is None:
        return []
    new = [one.backward for one in held if subject not in one.used]
    return [one for one in new if one.time > since]


def _said(one: Contribution, subject: Subject) -> str:
    used = " used" if subject in one.used else " used by another" if one.used else ""
    return f"line {one.backward.line}{used}"


def _made_at(program: Program, number: int) -> int:
    """The line that makes an optimizer."""
    lines = source(program)[0].splitlines()
    return 1 + next(at for at, line in enumerate(lines) if line.startswith(f"opt{number} = "))


def _module(deep: bool) -> torch.nn.Module:
    first = torch.nn.Linear(2, 2, dtype=torch.float64)
    if not deep:
        return first
    return torch.nn.Sequential(first, torch.nn.Tanh(), torch.nn.Linear(2, 2, dtype=torch.float64))


def _optimizer(oracle: Oracle, number: int) -> Optimizer:
    trainer = oracle.program.trainers[number]
    each = [list(oracle.modules[module].parameters()) for module in trainer.modules]
    params: Any = [{"params": one} for one in each]
    if not trainer.grouped:
        params = [param for one in each for param in one]
    kind: Any = getattr(torch.optim, trainer.kind)
    made: Optimizer = kind(params, lr=0.01)
    return made


# The run


@dataclass
class Run:
    """What a program leaves behind."""

    weights: list[bytes]
    losses: bytes
    random: bytes
    raised: str


def run(text: str, path: str) -> Run:
    names: dict[str, Any] = {}
    raised = ""
    try:
        exec(compile(text, path, "exec"), names)
    except (RuntimeError, AssertionError) as error:
        raised = repr(error)
    modules = [names[name] for name in sorted(names) if name.startswith("m")]
    params = [param for module in modules for param in module.parameters()]
    grads = [param.grad for param in params if param.grad is not None]
    losses = torch.tensor(names["losses"], dtype=torch.float64)
    return Run(
        weights=[bits(one) for one in (*params, *grads)],
        losses=bits(losses),
        random=bits(torch.get_rng_state()),
        raised=raised,
    )


def bits(tensor: Tensor) -> bytes:
    return tensor.detach().numpy().tobytes()


def hooks() -> list[object]:
    """Everything of torch that watching puts its own in the place of."""
    from torch.nn.utils import clip_grad
    from torch.optim import optimizer

    owners: list[tuple[Any, str]] = [
        (torch.autograd, "_engine_run_backward"),
        (torch.autograd.graph, "_engine_run_backward"),
        (optimizer.Optimizer, "add_param_group"),
        (optimizer.Optimizer, "zero_grad"),
        (torch.nn.Module, "zero_grad"),
        (clip_grad, "_clip_grads_with_norm_"),
        (clip_grad, "clip_grad_norm_"),
        (clip_grad, "clip_grad_value_"),
        *((torch.amp.GradScaler, name) for name in ("scale", "unscale_", "step", "update")),
    ]
    found = [vars(owner).get(name) for owner, name in owners]
    cells = [
        cell.cell_contents for one in found for cell in getattr(one, "__closure__", None) or ()
    ]
    pre, post = optimizer._global_optimizer_pre_hooks, optimizer._global_optimizer_post_hooks
    return [*found, *cells, *pre.values(), *post.values()]


@dataclass
class Verdict:
    """A program, what the oracle says of it, and what zerograd does."""

    program: Program
    oracle: Oracle
    found: Counter[Place]
    wrong: list[str]

    def __str__(self) -> str:
        text, _ = source(self.program)
        lines = [f"{n:3} {line}" for n, line in enumerate(text.splitlines(), start=1)]
        return "\n".join(
            [
                *lines,
                *self.oracle.steps,
                f"must be found: {dict(self.oracle.must)}",
                f"may be found:  {dict(self.oracle.may)}",
                f"was found:     {dict(self.found)}",
                *self.wrong,
            ]
        )


JUDGED = ("ZG101", "ZG102", "ZG103", "ZG104", "ZG105", "ZG106")


def verdict(program: Program) -> Verdict:
    text, _ = source(program)
    path = f"program_{program.seed}.py"
    oracle = Oracle(program).run()
    alone = run(text, path)
    before = hooks()
    with zerograd.watch(on="collect") as report:
        watched = run(text, path)
    wrong = []
    if [id(one) for one in hooks()] != [id(one) for one in before]:
        wrong.append("torch is not as it was")
    if report.errors:
        wrong.append(f"zerograd has failed: {report.errors}")
    if watched != alone:
        wrong.append("the watched run is not the same run")
    final = [bits(p) for module in oracle.modules for p in module.parameters()]
    if final != alone.weights[: len(final)] or oracle.raised != alone.raised:
        wrong.append(f"the oracle ran another program: {oracle.raised} / {alone.raised}")
    found = Counter({(one.code, one.site.line): one.seen or 0 for one in report.findings})
    for place in sorted({*oracle.must, *found}):
        code, line = place
        must, may = oracle.must[place], oracle.may[place]
        if code in JUDGED and not must <= found[place] <= must + may:
            wrong.append(f"{code} at line {line}: {found[place]} times, not {must} to {must + may}")
    stale = sum(times for (code, _), times in found.items() if code == "ZG101")
    if oracle.any_line and stale != oracle.stale:
        wrong.append(f"ZG101 {stale} times, and {oracle.stale} steps are stale")
    wrong += by_reading(program, oracle, text, path)
    return Verdict(program, oracle, found, wrong)


def by_reading(program: Program, oracle: Oracle, text: str, path: str) -> list[str]:
    """The reader of source on the same program, where all iterations are alike."""
    if oracle.changes:
        return []  # what changes on the way is asked of a run alone
    cleared = [frozenset({act.target}) for act in program.body if act.do in CLEARS[1:]]
    if any(act.part for act in program.body) or any(
        one & subject and not subject <= one for one in cleared for subject in oracle.subjects
    ):
        return []  # that the part which is cleared is all that is ever filled is not read
    if sum(map(len, oracle.subjects)) > len(frozenset().union(*oracle.subjects)):
        return []  # that one optimizer clears what another shares is not read
    order = [act.do in STEPS for act in program.body if act.do in (*STEPS, *BACKWARDS)]
    if any(program.deep) and order[:1] == [True]:
        return []  # that the parameters of a Sequential were just made is not read
    skips = any(act.left_out for act in program.body)
    if oracle.raised or skips or program.iterations < 3:
        return []
    if not all(one.reached & stepped for stepped in oracle.stepped for one in oracle.backwards):
        if len(oracle.stepped) < 2:
            return []  # where one optimizer steps, a backward is taken to be its own
    report = zerograd.check_source(text, path)
    lines = {one.site.line for one in report.findings if one.code == "ZG101" and one.certain}
    stale = {line for code, line in oracle.must if code == "ZG101"}
    if lines and not stale:
        return [f"reading finds ZG101 at {sorted(lines)}, and no step is stale"]
    if not lines and stale and oracle.plain and oracle.always_stale:
        return [f"reading does not find ZG101 at {sorted(stale)}"]
    return []


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The drawn program is all there is: the files of these tests read gradients, too."""
    monkeypatch.setattr(idle_optimizers, "program_files", list)


def test_a_sample_of_programs_has_the_findings_of_the_oracle() -> None:
    hold(range(CHUNKS * PROGRAMS, CHUNKS * PROGRAMS + SAMPLE))


@tiers.long
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_stale_and_foreign_gradients_are_found_exactly_where_they_are(chunk: int) -> None:
    hold(range(chunk * PROGRAMS, (chunk + 1) * PROGRAMS))


def hold(seeds: range) -> None:
    """Fails on the first program whose findings are others than the oracle's, made as small as possible."""
    for seed in seeds:
        if verdict(draw(seed)).wrong:
            program = smallest(draw(seed), lambda smaller: bool(verdict(smaller).wrong))
            pytest.fail(str(verdict(program)))
