"""Training loops from a small grammar, each in a right version and broken in one way.

A loop is drawn from its seed: its shape, its names, how it clears, clips, scales and accumulates. Every program runs,
on toy data, with torch alone.
"""

from __future__ import annotations

import random
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

Part = tuple[str, str]
"""A tag, and the lines of a part of the loop's body."""


@dataclass(frozen=True)
class Loop:
    """What was drawn for one training loop."""

    shape: str
    model: str
    optimizer: str
    loss: str
    batch: tuple[str, str]
    kind: str
    clear: str
    clears_at: str
    clip: str
    scaled: bool
    window: int
    extras: tuple[str, ...]
    pair: bool


@dataclass(frozen=True)
class Family:
    """A way to break a loop, the codes that name it, and the loops that can be broken so."""

    name: str
    codes: tuple[str, ...]
    names: str
    """What a message of another tool mentions if it names the bug: a regular expression."""
    needs: Callable[[Loop], Loop]
    breaks: Callable[[list[Part], Loop], list[Part]]
    hoists: bool = False
    refused: bool = False
    """torch itself raises an error in every wrong program; the wrong programs of other families all run."""


@dataclass(frozen=True)
class Program:
    """A right program and its broken twin."""

    family: str
    codes: tuple[str, ...]
    names: str
    right: str
    wrong: str


def draw(random_: random.Random) -> Loop:
    """Draw a loop."""
    choose = random_.choice
    extras = tuple(one for one in ("counter", "log", "eval") if random_.random() < 0.4)
    return Loop(
        shape=choose(("script", "function", "class")),
        model=choose(("model", "net", "encoder", "policy")),
        optimizer=choose(("optimizer", "opt", "optim_net", "adam")),
        loss=choose(("loss", "total", "objective", "err")),
        batch=choose((("x", "y"), ("inputs", "targets"), ("images", "labels"))),
        kind=choose(("SGD", "Adam", "AdamW", "RMSprop")),
        clear=choose(("optimizer", "optimizer", "in place", "module", "by hand")),
        clears_at=choose(("start", "before backward", "end")),
        clip=choose(("", "", "norm", "value")),
        scaled=random_.random() < 0.2,
        window=choose((0, 0, 0, 2, 4)),
        extras=extras,
        pair=False,
    )


def programs(seed: str, family: Family, count: int) -> Iterator[Program]:
    """Pairs of programs, all different."""
    source = random.Random(f"{seed}/{family.name}")
    seen: set[str] = set()
    while len(seen) < count:
        loop = family.needs(draw(source))
        if family.hoists and loop.clears_at == "end":
            loop = replace(loop, clears_at="start")
        parts = body(loop)
        right = program(loop, parts)
        wrong = program(loop, family.breaks(parts, loop), before=hoisted(family, loop))
        if right not in seen and wrong != right:
            seen.add(right)
            yield Program(family.name, family.codes, family.names, right, wrong)


# The parts of a loop


def clearing(loop: Loop, model: str, optimizer: str) -> str:
    """The statement that clears the gradients."""
    return {
        "optimizer": f"{optimizer}.zero_grad()",
        "in place": f"{optimizer}.zero_grad(set_to_none=False)",
        "module": f"{model}.zero_grad()",
        "by hand": f"for p in {model}.parameters():\n    p.grad = None",
    }[loop.clear]


def body(loop: Loop) -> list[Part]:
    """The parts of the body of a right loop."""
    if loop.pair:
        return _pair(loop)
    x, y = loop.batch
    model, optimizer, loss = loop.model, loop.optimizer, loop.loss
    clear = ("clear", clearing(loop, model, optimizer))
    forward = ("forward", f"{loss} = criterion({model}({x}), {y})")
    if loop.window:
        forward = ("forward", f"{forward[1]}\n{loss} = {loss} / N")
    backward = (
        "backward",
        f"scaler.scale({loss}).backward()" if loop.scaled else f"{loss}.backward()",
    )
    use: list[Part] = []
    if loop.clip:
        if loop.scaled:
            use.append(("unscale", f"scaler.unscale_({optimizer})"))
        limit = {"norm": "clip_grad_norm_", "value": "clip_grad_value_"}[loop.clip]
        use.append(("clip", f"torch.nn.utils.{limit}({model}.parameters(), 1.0)"))
    if loop.scaled:
        use += [("step", f"scaler.step({optimizer})"), ("update", "scaler.update()")]
    else:
        use.append(("step", f"{optimizer}.step()"))
    if loop.window:
        guard = "(i + 1) % N == 0 or i + 1 == len(loader)"
        return [forward, backward, ("guard", guard), *use, clear, ("end", "")]
    if loop.clears_at == "start":
        return [clear, forward, backward, *use]
    if loop.clears_at == "before backward":
        return [forward, clear, backward, *use]
    return [forward, backward, *use, clear]


def _pair(loop: Loop) -> list[Part]:
    x, y = loop.batch
    one, two = (f"{loop.optimizer}_{end}" for end in "ab")
    first, second = f"{loop.model}_a", f"{loop.model}_b"
    return [
        ("clear", clearing(loop, first, one)),
        ("forward", f"{loop.loss} = criterion({first}({x}), {y})"),
        ("backward", f"{loop.loss}.backward()"),
        ("step", f"{one}.step()"),
        ("clear second", clearing(loop, second, two)),
        ("forward", f"{loop.loss} = criterion({second}({x}), {y})"),
        ("backward", f"{loop.loss}.backward()"),
        ("step", f"{two}.step()"),
    ]


def hoisted(family: Family, loop: Loop) -> str:
    """What a broken loop does before its loop over the batches."""
    return clearing(loop, loop.model, loop.optimizer) if family.hoists else ""


# The text of a program


def program(loop: Loop, parts: Sequence[Part], before: str = "") -> str:
    """The program around a loop."""
    inside = _lines(parts)
    if "counter" in loop.extras and not loop.pair:
        inside += "\nseen += 1"
    if "log" in loop.extras:
        inside += f"\nif i % 10 == 0:\n    print(i, {loop.loss}.item())"
    batches = "enumerate(loader)"
    x, y = loop.batch
    inner = f"for i, ({x}, {y}) in {batches}:\n{textwrap.indent(inside, '    ')}"
    if "counter" in loop.extras and not loop.pair:
        inner = f"seen = 0\n{inner}"
    inner = f"{before}\n{inner}" if before else inner
    return _set_up(loop) + _around(loop, inner)


def _lines(parts: Sequence[Part]) -> str:
    lines: list[str] = []
    guarded = False
    for tag, text in parts:
        if tag == "guard":
            lines.append(f"if {text}:")
            guarded = True
        elif tag == "end":
            guarded = False
        elif guarded:
            lines.append(textwrap.indent(text, "    "))
        else:
            lines.append(text)
    return "\n".join(lines)


def _set_up(loop: Loop) -> str:
    ends = ("_a", "_b") if loop.pair else ("",)
    pairs = [(f"{loop.model}{end}", f"{loop.optimizer}{end}") for end in ends]
    lines = [
        "import torch",
        "from torch import nn",
        "",
        "torch.manual_seed(0)",
    ]
    lines += [f"N = {loop.window}"] if loop.window else []
    for model, optimizer in pairs:
        lines.append(f"{model} = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))")
        lines.append(f"{optimizer} = torch.optim.{loop.kind}({model}.parameters(), lr=0.01)")
    lines += ['scaler = torch.amp.GradScaler("cpu")'] if loop.scaled else []
    lines.append("criterion = nn.MSELoss()")
    lines.append("loader = [(torch.randn(3, 4), torch.randn(3, 2)) for _ in range(10)]")
    return "\n".join(lines) + "\n\n"


def _around(loop: Loop, inner: str) -> str:
    evaluate = ""
    if "eval" in loop.extras and not loop.pair:
        evaluate = f"with torch.no_grad():\n    print(criterion({loop.model}(loader[0][0]), loader[0][1]))\n"
    indented = textwrap.indent(inner, "    ")
    if loop.shape == "script":
        return f"for epoch in range(3):\n{indented}\n{textwrap.indent(evaluate, '    ')}"
    if loop.shape == "class":
        method = textwrap.indent(indented, "    ")
        return (
            f"class Trainer:\n    def train_epoch(self, loader):\n{method}\n\n"
            f"trainer = Trainer()\nfor epoch in range(3):\n    trainer.train_epoch(loader)\n{textwrap.indent(evaluate, '    ')}"
        )
    call = f"for epoch in range(3):\n    fit(loader)\n{textwrap.indent(evaluate, '    ')}"
    return f"def fit(loader):\n{indented}\n\n{call}"


# The ways to break a loop


def _without(*tags: str) -> Callable[[list[Part], Loop], list[Part]]:
    return lambda parts, _: [part for part in parts if part[0] not in tags]


def _moved(tag: str, after: str = "", before: str = "") -> Callable[[list[Part], Loop], list[Part]]:
    def breaks(parts: list[Part], _: Loop) -> list[Part]:
        (moved,) = [part for part in parts if part[0] == tag]
        rest = [part for part in parts if part[0] != tag]
        places = [i for i, part in enumerate(rest) if part[0] == (after or before)]
        place = places[-1] + 1 if after else places[0]
        return [*rest[:place], moved, *rest[place:]]

    return breaks


def _guard(text: str) -> Callable[[list[Part], Loop], list[Part]]:
    return lambda parts, _: [(tag, text if tag == "guard" else one) for tag, one in parts]


def _undivided(parts: list[Part], _: Loop) -> list[Part]:
    return [(tag, text.partition("\n")[0] if tag == "forward" else text) for tag, text in parts]


def _plain(loop: Loop) -> Loop:
    return replace(loop, window=0)


def _with(**given: object) -> Callable[[Loop], Loop]:
    return lambda loop: replace(loop, **given)  # type: ignore[arg-type]


def _clipped(loop: Loop) -> Loop:
    return replace(loop, clip=loop.clip or "norm")


def _without_gradients(loop: Loop) -> Loop:
    """Without what torch refuses where no parameter has a gradient: a scaler's step, a clip of values."""
    return replace(loop, clip="norm" if loop.clip else "", scaled=False, window=0)


CLEAR = "zero_grad|clear|stale|accumulat"
FAMILIES = (
    Family("forgotten clear", ("ZG101",), CLEAR, lambda loop: loop, _without("clear")),
    Family("clear once per epoch", ("ZG101",), CLEAR, _plain, _without("clear"), hoists=True),
    Family(
        "clear before the step",
        ("ZG102",),
        CLEAR + "|no gradients|backward",
        lambda loop: _plain(loop) if loop.clear == "in place" else _without_gradients(loop),
        _moved("clear", after="backward"),
    ),
    Family(
        "one of two optimizers not cleared",
        ("ZG101",),
        CLEAR,
        _with(pair=True, window=0, scaled=False, clip=""),
        _without("clear second"),
    ),
    Family(
        "clip after the step",
        ("ZG203",),
        "clip",
        lambda loop: replace(_clipped(loop), scaled=False, window=0, clears_at="start"),
        _moved("clip", after="step"),
    ),
    Family(
        "clip before the backward",
        ("ZG202", "ZG203"),
        "clip",
        lambda loop: _without_gradients(_clipped(loop)),
        _moved("clip", before="backward"),
    ),
    Family(
        "clip of scaled gradients",
        ("ZG201",),
        "clip|unscale",
        lambda loop: replace(_clipped(loop), scaled=True),
        _without("unscale"),
    ),
    Family(
        "clip of every micro-batch",
        ("ZG204",),
        "clip",
        lambda loop: replace(_clipped(loop), scaled=False, window=loop.window or 4),
        _moved("clip", after="backward"),
    ),
    Family(
        "clear of every micro-batch",
        ("ZG103", "ZG102"),
        CLEAR,
        lambda loop: replace(loop, window=loop.window or 2),
        _moved("clear", before="forward"),
    ),
    Family(
        "forgotten backward",
        ("ZG104",),
        "backward|no gradients",
        _without_gradients,
        _without("backward"),
    ),
    Family(
        "forgotten update of the scaler",
        ("ZG207",),
        "update",
        lambda loop: replace(loop, scaled=True),
        _without("update"),
        refused=True,
    ),
    Family(
        "window not divided",
        ("ZG301",),
        "divid|accumulat",
        lambda loop: replace(loop, window=loop.window or 4),
        _undivided,
    ),
    Family(
        "guard off by one",
        ("ZG302",),
        "accumulat|window|guard",
        lambda loop: replace(loop, window=loop.window or 4),
        _guard("i % N == 0"),
    ),
    Family(
        "last window dropped or carried",
        ("ZG303", "ZG304"),
        "accumulat|window|last",
        lambda loop: replace(loop, window=4),
        _guard("(i + 1) % N == 0"),
    ),
)
