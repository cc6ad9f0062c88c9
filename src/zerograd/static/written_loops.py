"""The training loops of code that is not interpreted, as it is written."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator

from zerograd.core.events import Site
from zerograd.core.training_loop import Gap, Kind, LoopStep, NotFollowed, TrainingLoop
from zerograd.static.interp.obviously_right import Repeated, written_steps
from zerograd.static.read.file_index import site_of, text_of
from zerograd.static.read.module import Module
from zerograd.static.read.values import Fn
from zerograd.static.roots import qualified_name


def plainly_right(path: str, plain: list[tuple[str, list[Repeated]]]) -> Iterator[TrainingLoop]:
    """The loops of functions, given by name, that need not be interpreted."""
    for name, loops in plain:
        for loop, calls in loops:
            yield TrainingLoop(site_of(loop, path), name, "loop", _steps(path, calls))


def not_read(module: Module, roots: list[Fn | None]) -> Iterator[TrainingLoop]:
    """The loops of functions, or of the top level, that were too large to be interpreted."""
    for fn in roots:
        root = fn.node if fn is not None else module.tree
        name = qualified_name(fn)
        for loop, calls in written_steps(root, module).items():
            site = site_of(loop or root, module.path) if loop or fn else site_of_file(module)
            kind: Kind = "loop" if loop is not None else "function"
            kind = kind if loop or fn else file_kind(module)
            gap = Gap(NotFollowed.TOO_LARGE, site)
            yield TrainingLoop(site, name, kind, _steps(module.path, calls), gap=gap)


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
