"""Executes the gradient steps of a loop that was found in public code, as it is and repaired, and compares them.

The loop is cut out of its file: what clears, computes, clips and uses gradients stays, with its loops, counters and
conditions; everything else goes. A small net takes the place of the model, so nothing of the project is imported or
executed but the order of these calls. A condition that the loop does not decide itself is tried both ways. A finding is
proven if a watched run of the cut-out reports it (but for rules that a run does not always show), a watched run of the
repaired one does not, and a step uses another gradient. A loop with several optimizers, or whose calls are elsewhere, is not cut out.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import io
import itertools
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

import zerograd

CLIPS = ("clip_grad_norm_", "clip_grad_norm", "clip_grad_value_", "clip_grad_value")
MOST_DECISIONS = 6
BATCHES, EPOCHS = 7, 2
WINDOWS = (2, 1)
UNSEEN = ("ZG103", "ZG109", "ZG301", "ZG302", "ZG303", "ZG304")
"""Rules about what a loop should do; a run alone does not always show it. Other gradients are enough here."""
TORCH_STEPS = 40
"""No cut-out takes more steps; one that does has no end."""


class NotCutOut(Exception):
    """The loop cannot be cut out, and why."""


@dataclass(frozen=True)
class Run:
    """What a cut-out did."""

    norms: tuple[float, ...]
    """The norm of the gradients that each step used."""
    codes: frozenset[str]


def prove(before: str, after: str | None, line: int, code: str) -> str | None:
    """The first step that shows the bug, in words; None if the run does not show it."""
    try:
        bare = CutOut(before, line)
        name = bare.function
        repaired = None if after is None else CutOut(after, line, name)
    except (NotCutOut, SyntaxError):
        return None
    decisions = sorted(bare.decisions)[:MOST_DECISIONS]
    for window, *values in itertools.product(WINDOWS, *[(True, False)] * len(decisions)):
        chosen = {text: bool(value) for text, value in zip(decisions, values, strict=True)}
        with contextlib.suppress(Exception):
            seen = bare.run(chosen, window)
            if repaired is None or (code not in seen.codes and code not in UNSEEN):
                continue
            right = repaired.run(chosen, window)
            if code in right.codes:
                continue
            for number, (wrong, good) in enumerate(zip(seen.norms, right.norms, strict=False), 1):
                if abs(wrong - good) > 1e-6 * max(abs(wrong), abs(good)):
                    return (
                        f"step {number} uses a gradient of norm {wrong:.3g} instead of {good:.3g}"
                    )
            if len(seen.norms) != len(right.norms):
                return f"{len(seen.norms)} steps instead of {len(right.norms)}"
    return None


@dataclass
class CutOut:
    """The gradient steps of the function around a line."""

    text: str
    line: int
    function: str | None = None
    decisions: set[str] = field(default_factory=set)
    body: list[ast.stmt] = field(default_factory=list)

    def __post_init__(self) -> None:
        tree = ast.parse(self.text)
        around = _around(tree, self.line, self.function)
        self.function = getattr(around, "name", "")
        optimizers = {ast.unparse(call.func.value) for call in _calls(around, "step") if _is_optimizer(call.func.value)}  # fmt: skip
        optimizers |= {ast.unparse(call.args[0]) for call in _calls(around, "step") if _is_scaler(call.func.value) and call.args}  # fmt: skip
        if len(optimizers) != 1:
            raise NotCutOut("it has not one optimizer")
        if "accelerator" in ast.unparse(around) or "deepspeed" in ast.unparse(around):
            raise NotCutOut("a library runs its steps")
        self.counters = _counters(around)
        self.body = [kept for one in around.body for kept in self._kept(one)]
        loops = any(isinstance(one, ast.For) for one in ast.walk(ast.Module(self.body, [])))
        if not loops:
            # The caller has the loop, and may count its calls.
            counted = sorted(self.counters - _assigned(around))
            self.body = [_loop(counted[0] if counted else "_", self.body, "__batches")]
        done = ast.unparse(ast.fix_missing_locations(ast.Module(self.body, [])))
        if "__backward(" not in done or "__step(" not in done:
            raise NotCutOut("its calls are elsewhere")

    # What stays of a statement

    def _kept(self, one: ast.stmt) -> Iterator[ast.stmt]:
        if isinstance(one, ast.For | ast.While):
            yield from self._loop(one)
        elif isinstance(one, ast.If):
            body = [kept for inner in one.body for kept in self._kept(inner)]
            rest = [kept for inner in one.orelse for kept in self._kept(inner)]
            if body or rest:
                yield ast.If(self._test(one.test), body or [ast.Pass()], rest)
        elif isinstance(one, ast.With | ast.Try):
            for inner in one.body:
                yield from self._kept(inner)
        elif isinstance(one, ast.Expr | ast.Assign | ast.Return) and one.value is not None:
            yield from self._acts(one.value)
        elif isinstance(one, ast.AugAssign) and _last(one.target) in self.counters:
            yield _parsed(f"{_last(one.target)} = {_last(one.target)} + 1")
        elif isinstance(one, ast.Continue | ast.Break):
            yield one

    def _loop(self, one: ast.For | ast.While) -> Iterator[ast.stmt]:
        body = [kept for inner in one.body for kept in self._kept(inner)]
        if not any(isinstance(kept, ast.Expr) for kept in ast.walk(ast.Module(body, []))):
            if "p.grad" in ast.unparse(one) or ".grad = None" in ast.unparse(one):
                yield _parsed("__clear()")
            return
        inside = any(isinstance(kept, ast.For) for kept in ast.walk(ast.Module(body, [])))
        names = [n.id for n in ast.walk(one.target) if isinstance(n, ast.Name) and n.id in self.counters] if isinstance(one, ast.For) else []  # fmt: skip
        yield _loop(names[0] if names else "_", body, "__epochs" if inside else "__batches")

    def _acts(self, value: ast.expr) -> Iterator[ast.stmt]:
        for call in (one for one in ast.walk(value) if isinstance(one, ast.Call)):
            name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")  # fmt: skip
            owner = call.func.value if isinstance(call.func, ast.Attribute) else None
            if name == "zero_grad":
                yield _parsed("__clear()")
            elif name == "backward":
                scaled = "scale(" in ast.unparse(call)
                own = bool(call.args) and owner is not None and ast.unparse(call.args[0]) == ast.unparse(owner)  # fmt: skip
                yield _parsed(f"__backward({scaled}, {own})")
            elif name in CLIPS:
                yield _parsed(f"__clip({name!r})")
            elif name == "unscale_":
                yield _parsed("__scaler.unscale_(__optimizer)")
            elif name == "update" and _is_scaler(owner):
                yield _parsed("__scaler.update()")
            elif name == "step" and (_is_optimizer(owner) or _is_scaler(owner)):
                yield _parsed(f"__step({_is_scaler(owner)})")

    def _test(self, test: ast.expr) -> ast.expr:
        text = ast.unparse(test)
        if any(_last(node) in self.counters for node in ast.walk(test) if isinstance(node, ast.Name | ast.Attribute)):  # fmt: skip
            done = ast.unparse(_Numbers(self.counters).visit(ast.parse(text, mode="eval").body))
            return ast.parse(done, mode="eval").body
        self.decisions.add(text)
        return ast.parse(f"__decide({text!r})", mode="eval").body

    def run(self, chosen: dict[str, bool], window: int = 2) -> Run:
        """Run the cut-out with a small net, watched."""
        gc.freeze()  # a watch that begins looks through all objects; those of torch itself are many
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
        norms: list[float] = []

        def backward(scaled: bool, own: bool) -> None:
            loss = (net(torch.randn(5, 3)) - 3).square().mean()
            loss = scaler.scale(loss) if scaled else loss
            loss.backward(loss if own else None)

        def step(scaled: bool) -> None:
            if len(norms) >= TORCH_STEPS:
                raise NotCutOut("it has no end")
            scaler.step(optimizer) if scaled else optimizer.step()

        def used(*_: Any) -> None:
            norms.append(sum(float(p.grad.norm()) ** 2 for p in net.parameters() if p.grad is not None) ** 0.5)  # fmt: skip

        def clip(how: str) -> None:
            getattr(torch.nn.utils, how.rstrip("_") + "_")(net.parameters(), 0.5)

        names = {
            "__backward": backward,
            "__step": step,
            "__clip": clip,
            "__clear": optimizer.zero_grad,
            "__scaler": scaler,
            "__optimizer": optimizer,
            "__decide": lambda text: chosen.get(text, True),
            "__batches": range(BATCHES),
            "__epochs": range(EPOCHS),
            "__length": BATCHES,
            "__window": window,
            **dict.fromkeys(self.counters, 0),
        }
        optimizer.register_step_pre_hook(used)
        module = ast.fix_missing_locations(ast.Module(self.body, []))
        code = compile(module, "cut_out.py", "exec")
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            with zerograd.watch(on="collect") as report:
                exec(code, names)
        return Run(tuple(norms), frozenset(one.code for one in report.findings))


class _Numbers(ast.NodeTransformer):
    """A condition over counters: other names become the length of a window or of the data."""

    def __init__(self, counters: set[str]) -> None:
        self.counters = counters

    def visit_Call(self, node: ast.Call) -> ast.expr:
        return _name("__length" if ast.unparse(node).startswith("len(") else "__window")

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        return _name(_last(node) if _last(node) in self.counters else "__window")

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return node if node.id in self.counters else _name("__window")


Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Module


def _around(tree: ast.Module, line: int, name: str | None) -> Function:
    best: Function = tree
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inside = node.lineno <= line <= (node.end_lineno or node.lineno)
            if inside and name in (None, node.name):
                best = node
    if name and getattr(best, "name", "") != name:
        # A repair moves lines: the function of the same name that is nearest.
        same = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == name]
        if not same:
            raise NotCutOut("the function is gone")
        best = min(same, key=lambda node: abs(node.lineno - line))
    return best


def _calls(around: ast.AST, name: str) -> Iterator[Any]:
    for node in ast.walk(around):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == name:  # fmt: skip
            yield node


def _last(node: ast.expr | None) -> str:
    if isinstance(node, ast.Subscript):
        return _last(node.value)
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _is_optimizer(node: ast.expr | None) -> bool:
    name = _last(node).lower()
    return any(part in name for part in ("opt", "adam", "sgd")) and "sched" not in name


def _is_scaler(node: ast.expr | None) -> bool:
    return "scaler" in _last(node).lower()


def _counters(around: Function) -> set[str]:
    """The names that a condition with a remainder counts with."""
    return {
        _last(name)
        for node in ast.walk(around)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod)
        for name in ast.walk(node.left)
        if isinstance(name, ast.Name | ast.Attribute) and not isinstance(_parent(node.left, name), ast.Attribute)
    } - {"self"}  # fmt: skip


def _parent(tree: ast.AST, child: ast.AST) -> ast.AST | None:
    for node in ast.walk(tree):
        if child in ast.iter_child_nodes(node):
            return node
    return None


def _assigned(around: Function) -> set[str]:
    """What the function counts itself: the names of its loops, and what it adds to."""
    found = {_last(node.target) for node in ast.walk(around) if isinstance(node, ast.AugAssign)}
    for node in ast.walk(around):
        if isinstance(node, ast.For):
            found |= {name.id for name in ast.walk(node.target) if isinstance(name, ast.Name)}
    return found


def _loop(name: str, body: list[ast.stmt], over: str) -> ast.For:
    return ast.For(ast.Name(name, ast.Store()), ast.Name(over, ast.Load()), body, [])


def _parsed(text: str) -> ast.stmt:
    return ast.parse(text).body[0]


def _name(text: str) -> ast.Name:
    return ast.Name(text, ast.Load())
