"""Random training programs as data: drawn from a seed, written out as source, made smaller.

A program is a loop over a body of acts, each of them one statement on a line of its own, so that a
line of the source names an act. Acts that an iteration leaves out stand behind a test of `i`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from random import Random


class Do(Enum):
    """What a statement does."""

    ZERO = "zero_grad of an optimizer"
    MODULE_ZERO = "zero_grad of a module"
    NONE = "p.grad = None"
    IN_PLACE = "p.grad.zero_()"
    IN_DATA = "p.grad.data.zero_()"
    BACKWARD = "backward of a loss"
    SCALED = "backward of a scaled loss"
    STEP = "step of an optimizer"
    SCALER_STEP = "step of an optimizer through the scaler"
    UNSCALE = "unscale_ of an optimizer"
    UPDATE = "update of the scaler"
    CLIP = "clip_grad_norm_ of a module"
    CLIP_ALL = "clip_grad_norm_ of an optimizer's parameters"
    ASSIGN = "p.grad = … for an optimizer's parameters"
    FREEZE = "requires_grad_(False) of a module"
    THAW = "requires_grad_(True) of a module"
    REPLACE = "a module is made anew, and no optimizer has it"


BACKWARDS = (Do.BACKWARD, Do.SCALED)
STEPS = (Do.STEP, Do.SCALER_STEP)
BY_HAND = {
    Do.NONE: "p.grad = None",
    Do.IN_PLACE: "p.grad.zero_()",
    Do.IN_DATA: "p.grad.data.zero_()",
}
CLEARS = (Do.ZERO, Do.MODULE_ZERO, *BY_HAND)
SCALING = (Do.SCALED, Do.SCALER_STEP, Do.UNSCALE, Do.UPDATE)
CHANGES = (Do.ASSIGN, Do.FREEZE, Do.THAW, Do.REPLACE)
PARTS = {"[:1]": slice(1), "[1:]": slice(1, None)}
MAX_NORM = 0.05

Chain = tuple[tuple[int, bool], ...]
"""The modules that data runs through, each with whether its output is detached."""


@dataclass(frozen=True)
class Act:
    """One statement of the loop's body."""

    do: Do
    target: int = 0
    """The optimizer's number, or the module's."""
    to_none: bool = True
    part: str = ""
    """Of a clear by hand: which of the module's parameters, as a slice; nothing is all."""
    losses: tuple[Chain, ...] = ()
    """Of a backward: its loss is the sum of these."""
    infinite: bool = False
    """Of a backward: the loss overflows."""
    left_out: tuple[int, ...] = ()
    """The iterations that do without it."""


@dataclass(frozen=True)
class Trainer:
    """An optimizer over the parameters of some modules."""

    kind: str
    modules: tuple[int, ...]
    grouped: bool = False


@dataclass(frozen=True)
class Program:
    """Modules (deep or not), optimizers over them, and a loop."""

    seed: int
    deep: tuple[bool, ...]
    trainers: tuple[Trainer, ...]
    iterations: int
    body: tuple[Act, ...]


# As source


def source(program: Program) -> tuple[str, list[int]]:
    """The program written out, and the line of each act."""
    lines = ["import torch", "from torch import nn", ""]
    lines.append(f"torch.manual_seed({program.seed})")
    for number, deep in enumerate(program.deep):
        lines.append(f"m{number} = {_made(deep)}")
    for number, trainer in enumerate(program.trainers):
        lines.append(f"opt{number} = torch.optim.{trainer.kind}({_params(trainer)}, lr=0.01)")
    if any(act.do in SCALING for act in program.body):
        lines.append('scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=2)')
    lines += ["losses = []", f"for i in range({program.iterations}):"]
    lines.append("    x = torch.randn(3, 2, dtype=torch.float64)")
    places = []
    for act in program.body:
        margin = "    "
        if act.left_out:
            lines.append(f"    if i not in {act.left_out}:")
            margin = "        "
        *before, last = _statement(program, act)
        lines += [margin + line for line in (*before, last)]
        places.append(len(lines))
    return "\n".join(lines) + "\n", places


def _made(deep: bool) -> str:
    linear = "nn.Linear(2, 2, dtype=torch.float64)"
    return f"nn.Sequential({linear}, nn.Tanh(), {linear})" if deep else linear


def _params(trainer: Trainer) -> str:
    each = [f"m{module}.parameters()" for module in trainer.modules]
    if trainer.grouped:
        return "[" + ", ".join(f'{{"params": {one}}}' for one in each) + "]"
    return each[0] if len(each) == 1 else "[" + ", ".join(f"*{one}" for one in each) + "]"


def _statement(program: Program, act: Act) -> list[str]:
    """The lines of an act; the last one is the call."""
    kwargs = "" if act.to_none else "set_to_none=False"
    if act.do in BY_HAND:
        params = f"m{act.target}.parameters()"
        if act.part:
            params = f"list({params}){act.part}"
        guard = [] if act.do is Do.NONE else ["    if p.grad is not None:"]
        return [f"for p in {params}:", *guard, "    " * (1 + len(guard)) + BY_HAND[act.do]]
    if act.do in BACKWARDS:
        chains = " + ".join(map(_chain, act.losses))
        loss = f"({chains}) * float('inf')" if act.infinite else chains
        call = "loss.backward()" if act.do is Do.BACKWARD else "scaler.scale(loss).backward()"
        return [f"loss = {loss}", "losses.append(loss.item())", call]
    if act.do in (Do.CLIP, Do.CLIP_ALL):
        params = f"m{act.target}.parameters()"
        if act.do is Do.CLIP_ALL:
            params = _params(replace(program.trainers[act.target], grouped=False))
        return [f"nn.utils.clip_grad_norm_({params}, {MAX_NORM})"]
    if act.do is Do.ASSIGN:
        params = _params(replace(program.trainers[act.target], grouped=False))
        return [f"for p in {params}:", "    p.grad = torch.full_like(p, 0.1 + i)"]
    if act.do is Do.REPLACE:
        return [f"m{act.target} = {_made(program.deep[act.target])}"]
    return [
        {
            Do.ZERO: f"opt{act.target}.zero_grad({kwargs})",
            Do.MODULE_ZERO: f"m{act.target}.zero_grad({kwargs})",
            Do.STEP: f"opt{act.target}.step()",
            Do.SCALER_STEP: f"scaler.step(opt{act.target})",
            Do.UNSCALE: f"scaler.unscale_(opt{act.target})",
            Do.UPDATE: "scaler.update()",
            Do.FREEZE: f"m{act.target}.requires_grad_(False)",
            Do.THAW: f"m{act.target}.requires_grad_(True)",
        }[act.do]
    ]


def _chain(chain: Chain) -> str:
    text = "x"
    for number, (module, detached) in enumerate(chain, start=1):
        text = f"m{module}({text})" + (".detach()" if detached and number < len(chain) else "")
    return f"{text}.square().mean()"


# Drawn from a seed


def draw(seed: int) -> Program:
    """A random program: a training loop as people write it, with some of it moved, lost or doubled."""
    random = Random(seed)
    modules = random.choice((1, 1, 2, 2, 2, 3))
    deep = tuple(random.random() < 0.3 for _ in range(modules))
    trainers = _trainers(random, modules)
    iterations = random.randint(3, 8)
    scaling = random.random() < 0.25
    body = list(_phases(random, modules, trainers, scaling=scaling))
    for _ in range(random.choice((0, 0, 1, 1, 2, 3))):
        _disturb(random, body, modules, trainers)
    if any(act.do in (Do.CLIP, Do.CLIP_ALL) for act in body):
        # Clipping to an infinite norm makes zeros: what is there then is a matter of taste.
        body = [replace(act, infinite=False) for act in body]
    if random.random() < 0.4:
        for _ in range(random.choice((1, 1, 2))):
            number = random.randrange(len(body))
            body[number] = replace(body[number], left_out=_left_out(random, iterations))
    if random.random() < 0.3:
        body = list(_changed(random, body, modules, trainers, iterations))
    return Program(seed, deep, trainers, iterations, tuple(body))


def _changed(
    random: Random, body: list[Act], modules: int, trainers: tuple[Trainer, ...], iterations: int
) -> Iterator[Act]:
    """The body with what changes a run on its way: frozen modules, assigned gradients."""
    module, place = random.randrange(modules), random.randrange(len(body) + 1)
    change = random.choice((Do.ASSIGN, Do.FREEZE, Do.FREEZE, Do.REPLACE))
    when = random.randrange(1, iterations)
    once = tuple(i for i in range(iterations) if i != when)
    if change is Do.ASSIGN:
        trainer = random.randrange(len(trainers))
        left_out = random.choice(((), _left_out(random, iterations)))
        extra = [(place, Act(Do.ASSIGN, trainer, left_out=left_out))]
    elif change is Do.REPLACE:
        extra = [(0, Act(Do.REPLACE, module, left_out=once))]
    else:
        later = random.randrange(place, len(body) + 1)
        phase = random.choice(((), _left_out(random, iterations)))
        extra = [(place, Act(Do.FREEZE, module, left_out=phase)), (later, Act(Do.THAW, module))]
    for number in range(len(body) + 1):
        yield from (act for where, act in extra if where == number)
        yield from body[number : number + 1]


def _trainers(random: Random, modules: int) -> tuple[Trainer, ...]:
    kind = random.choice(("SGD", "Adam"))
    everything = tuple(range(modules))
    shape = random.random()
    sets: list[tuple[int, ...]]
    if modules == 1:
        sets = [(0,), (0,)] if shape < 0.1 else [(0,)]
    elif shape < 0.5:
        sets = [(module,) for module in everything]
    elif shape < 0.65:
        sets = [everything]
    elif shape < 0.8:
        sets = [everything[:-1], everything[-1:]]
    elif shape < 0.9:
        sets = [everything, everything[-1:]]
    elif modules == 3:
        sets = [(0, 1), (1, 2)]
    else:
        sets = [(0,)]
    return tuple(
        Trainer(
            kind if number == 0 else random.choice(("SGD", "Adam")), part, random.random() < 0.4
        )
        for number, part in enumerate(sets)
    )


def _phases(
    random: Random, modules: int, trainers: tuple[Trainer, ...], *, scaling: bool
) -> Iterator[Act]:
    order = list(range(len(trainers)))
    random.shuffle(order)
    together = random.random() < 0.3
    if together:
        yield from (Act(Do.ZERO, one) for one in order)
        yield _backward(random, range(modules), modules, scaled=scaling)
    for one in order:
        clear = [_clear(random, one, module) for module in trainers[one].modules[:1]]
        if clear[0].do is not Do.ZERO:
            clear = [replace(clear[0], target=module) for module in trainers[one].modules]
        backwards = [
            _backward(random, trainers[one].modules, modules, scaled=scaling)
            for _ in range(random.choice((1, 1, 1, 2)))
        ]
        late = random.random() < 0.3
        if not together:
            if not late:
                yield from clear
            yield from backwards
        if scaling and random.random() < 0.5:
            yield Act(Do.UNSCALE, one)
        if random.random() < 0.2:
            yield Act(Do.CLIP_ALL, one)
        yield Act(Do.SCALER_STEP if scaling else Do.STEP, one)
        if late and not together:
            yield from clear
    if scaling:
        yield Act(Do.UPDATE)


def _clear(random: Random, trainer: int, module: int) -> Act:
    do = random.choice((Do.ZERO, Do.ZERO, Do.ZERO, Do.ZERO, Do.MODULE_ZERO, *BY_HAND))
    target = trainer if do is Do.ZERO else module
    return Act(do, target, to_none=random.random() < 0.6 if do not in BY_HAND else True)


def _backward(random: Random, aim: object, modules: int, *, scaled: bool) -> Act:
    """A loss through the modules aimed at, and often through others on the way."""
    assert isinstance(aim, (tuple, range))
    chains: list[Chain] = []
    if len(aim) > 1 and random.random() < 0.4:
        chains = [((module, False),) for module in aim]
    else:
        through = list(aim)
        for module in range(modules):
            if module not in through and random.random() < 0.5:
                through.insert(random.choice((0, len(through))), module)
        last = len(through) - 1
        chains = [
            tuple(
                (module, number < last and random.random() < 0.35)
                for number, module in enumerate(through)
            )
        ]
    infinite = scaled and random.random() < 0.08
    return Act(Do.SCALED if scaled else Do.BACKWARD, losses=tuple(chains), infinite=infinite)


def _disturb(random: Random, body: list[Act], modules: int, trainers: tuple[Trainer, ...]) -> None:
    """Lose, move, double or add an act."""
    what = random.random()
    number = random.randrange(len(body))
    if what < 0.3 and len(body) > 2:
        del body[number]
    elif what < 0.5:
        body.insert(random.randrange(len(body)), body.pop(number))
    elif what < 0.65:
        body.insert(random.randrange(len(body) + 1), body[number])
    else:
        body.insert(random.randrange(len(body) + 1), _anything(random, modules, trainers))


def _anything(random: Random, modules: int, trainers: tuple[Trainer, ...]) -> Act:
    module, trainer = random.randrange(modules), random.randrange(len(trainers))
    do = random.choice((*CLEARS, *BY_HAND, Do.BACKWARD, Do.BACKWARD, Do.STEP, Do.CLIP, Do.CLIP_ALL))
    if do is Do.BACKWARD:
        aim = tuple(sorted(random.sample(range(modules), random.randint(1, modules))))
        return _backward(random, aim, modules, scaled=False)
    target = trainer if do in (Do.ZERO, Do.STEP, Do.CLIP_ALL) else module
    part = random.choice(("", *PARTS)) if do in BY_HAND else ""
    to_none = do in BY_HAND or random.random() < 0.6
    return Act(do, target, to_none=to_none, part=part)


def _left_out(random: Random, iterations: int) -> tuple[int, ...]:
    if random.random() < 0.3:
        return tuple(range(0, iterations, 2))
    some = random.randint(1, min(2, iterations - 1))
    return tuple(sorted(random.sample(range(iterations), some)))


# Made smaller


def smallest(program: Program, fails: Callable[[Program], bool]) -> Program:
    """A program that still fails, and of which no part can be left out."""
    shrunk = True
    while shrunk:
        shrunk = False
        for smaller in _smaller(program):
            if fails(smaller):
                program, shrunk = smaller, True
                break
    return program


def _smaller(program: Program) -> Iterator[Program]:
    if program.iterations > 1:
        yield replace(program, iterations=program.iterations - 1)
    body = program.body
    for number, act in enumerate(body):
        before, after = body[:number], body[number + 1 :]
        if len(body) > 1:
            yield replace(program, body=(*before, *after))
        yield from (replace(program, body=(*before, one, *after)) for one in _simpler(act))
    trainers = program.trainers
    for number, trainer in enumerate(trainers):
        plain = replace(trainer, kind="SGD", grouped=False)
        if plain != trainer:
            yield replace(program, trainers=(*trainers[:number], plain, *trainers[number + 1 :]))
    if any(program.deep):
        yield replace(program, deep=(False,) * len(program.deep))
    of_trainers = (Do.ZERO, Do.CLIP_ALL, Do.UNSCALE, Do.ASSIGN, *STEPS)
    used = {act.target for act in body if act.do in of_trainers}
    if len(trainers) > 1 and len(trainers) - 1 not in used:
        yield replace(program, trainers=trainers[:-1])


def _simpler(act: Act) -> Iterator[Act]:
    plain = {Do.IN_PLACE: Do.NONE, Do.IN_DATA: Do.NONE}
    plain |= {Do.SCALED: Do.BACKWARD, Do.SCALER_STEP: Do.STEP}
    yield from (
        simpler
        for simpler in (
            replace(act, left_out=()),
            *(replace(act, left_out=(one,)) for one in act.left_out),
            replace(act, infinite=False),
            replace(act, part=""),
            replace(act, to_none=True),
            replace(act, do=plain.get(act.do, act.do)),
        )
        if simpler != act
    )
    for chain in act.losses:
        if len(act.losses) > 1:
            yield replace(act, losses=(chain,))
        elif len(chain) > 1:
            yield from (replace(act, losses=(one,)) for one in (chain[1:], chain[:-1]))
