"""The training loops of code that is not interpreted: the steps in it, by the loops that they are written in."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping

from zerograd.core.events import Site
from zerograd.core.training_loop import Gap, Kind, LoopStep, NotFollowed, TrainingLoop
from zerograd.static.frameworks.table import Role
from zerograd.static.frameworks.torch import NOT_AN_OPTIMIZER, SCHEDULER
from zerograd.static.read import vocabulary
from zerograd.static.read.file_index import GradientCall
from zerograd.static.read.module import Module
from zerograd.static.read.syntax_tree import (
    LOOPS,
    arguments,
    called_name,
    children,
    first_name,
    last_name,
    nodes,
    site_of,
    text_of,
)
from zerograd.static.read.values import Fn

TOP_LEVEL = "<module>"
"""The name of the top level, as Python calls it."""
_NONE: frozenset[str] = frozenset()
Methods = Mapping[str, frozenset[str]]
ForOrWhile = ast.For | ast.AsyncFor | ast.While
Repeated = tuple[ForOrWhile, list[ast.Call]]
"""A loop, and the steps that it repeats."""


def repeated_loops(root: ast.AST, name: str, module: Module) -> Iterator[TrainingLoop]:
    """The loops around the steps of a function that is right and has this name."""
    for loop, calls in repeated_steps(root, module) or ():
        yield TrainingLoop(site_of(loop, module.path), name, "loop", _steps(module.path, calls))


def not_read(module: Module, roots: list[Fn | None]) -> Iterator[TrainingLoop]:
    """The loops of functions, or of the top level, that were too large to be interpreted."""
    for fn in roots:
        root = fn.node if fn is not None else module.tree
        name = fn.qualified_name if fn is not None else TOP_LEVEL
        for loop, calls in written_steps(root, module).items():
            site = site_of(loop or root, module.path) if loop or fn else site_of_file(module)
            kind: Kind = "loop" if loop is not None else "function"
            kind = kind if loop or fn else file_kind(module)
            gap = Gap(NotFollowed.TOO_LARGE, site)
            yield TrainingLoop(site, name, kind, _steps(module.path, calls), gap=gap)


def repeated_steps(root: ast.AST, module: Module) -> list[Repeated] | None:
    """The steps of a function by the loops around them.

    None if a step is in no loop, or if something that gets the optimizer may step it, too: then only
    interpreting shows what repeats the step.
    """
    found: list[Repeated] = []
    others: list[ast.Call] = []
    stepped: set[str] = set()
    kinds: set[type[ast.expr]] = set()
    for loop, calls in written_steps(root, module, others).items():
        if loop is None:
            return None
        targets = [] if isinstance(loop, ast.While) else nodes(loop.target)
        bound = {node.id for node in targets if isinstance(node, ast.Name)}
        for call in calls:
            assert isinstance(call.func, ast.Attribute), "it is a call of `step`"
            owner = call.func.value
            if first_name(text_of(owner)) in bound:
                return None
            stepped.add(text_of(owner))
            kinds.add(type(owner))
        found.append((loop, calls))
    for call in others:
        for one in arguments(call):
            if type(one) in kinds and text_of(one) in stepped:
                if not vocabulary.is_benign(called_name(call)):
                    return None
    return found


def written_steps(
    root: ast.AST, module: Module, others: list[ast.Call] | None = None
) -> dict[ForOrWhile | None, list[ast.Call]]:
    """The steps that a function contains, by the innermost loop around each; `others` gets all other calls."""
    found: dict[ForOrWhile | None, list[ast.Call]] = {}
    todo: list[tuple[ast.AST, ForOrWhile | None]] = [(root, None)]
    while todo:
        node, loop = todo.pop()
        if type(node) is ast.Name:
            continue  # nothing is in it
        if type(node) is ast.Call:
            func = node.func
            if (
                isinstance(func, ast.Attribute)
                and func.attr == "step"
                and concerns_gradients(GradientCall("step", text_of(func.value)), module.methods)
            ):
                found.setdefault(loop, []).append(node)
            elif others is not None:
                others.append(node)
        elif node is not root and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        inside = node if isinstance(node, LOOPS) else loop
        todo += [(inner, inside) for inner in reversed(children(node))]
    return found


def concerns_gradients(touch: GradientCall, methods: Methods) -> bool:
    """Whether a call concerns gradients: environments and schedulers have a `step`, too."""
    if (
        touch.kind != "step"
        or vocabulary.role_of_use(touch.what, methods.get(touch.what, _NONE)) is Role.OPTIMIZER
    ):
        return True
    last = last_name(touch.what)
    return not (SCHEDULER.search(last) or NOT_AN_OPTIMIZER.search(last))


def _steps(path: str, calls: list[ast.Call]) -> tuple[LoopStep, ...]:
    steps = []
    for call in calls:
        text = text_of(call.func)
        # Most steps of a project are written alike: each text is kept once.
        named, subject = sys.intern(f"{text}()"), sys.intern(text.rpartition(".")[0])
        steps.append(LoopStep(site_of(call, path), named, subject))
    return tuple(steps)


def file_kind(module: Module) -> Kind:
    """What a training loop without a `for` or `while` is, at the top level of a file."""
    return "notebook" if module.path.endswith(".ipynb") else "module"


def site_of_file(module: Module) -> Site:
    """The place of a whole file."""
    last = max((getattr(node, "end_lineno", 0) for node in module.tree.body), default=1)
    return Site(module.path, 1, 1, last, 1)
