"""What one watch has learned and patched serves the next one, and changes nothing that it finds."""

from __future__ import annotations

import ast
import gc
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

import zerograd
from support.training import batches, loss_of, net, sgd
from zerograd.core.events import Site
from zerograd.runtime.engine import Engine
from zerograd.runtime.optimizer_names import OptimizerNames
from zerograd.runtime.program_source import ProgramSource

if TYPE_CHECKING:
    import pytest


def forgets_the_clear() -> None:
    model = net()
    optimizer = sgd(model)
    for x in batches(5):
        loss_of(model, x).backward()
        optimizer.step()


def found(train: Callable[[], object] = forgets_the_clear) -> list[tuple[object, ...]]:
    with zerograd.watch(on="collect") as report:
        train()
    return [(one.code, one.site, one.seen, one.optimizer, one.message) for one in report.findings]


def test_each_watch_finds_the_same_as_often() -> None:
    first = found()
    assert [one[0] for one in first] == ["ZG101"]
    assert found() == first
    assert found() == first


def test_patches_are_made_once() -> None:
    found()
    hooks = Engine.last_hooks
    found()
    assert Engine.last_hooks is hooks


def test_what_the_program_has_put_there_between_two_watches_is_called_and_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = found()
    original, calls = torch.nn.Module.zero_grad, []

    def zero_grad(self: Any, set_to_none: bool = True) -> None:
        calls.append(self)
        original(self, set_to_none)

    def clears() -> None:
        model = net()
        model.zero_grad()
        forgets_the_clear()

    monkeypatch.setattr(torch.nn.Module, "zero_grad", zero_grad)
    assert found(clears) == first
    assert len(calls) == 1
    assert torch.nn.Module.zero_grad is zero_grad


def test_a_patch_that_the_program_has_kept_is_heard_once_in_the_next_watch() -> None:
    def clears(clear: Any) -> Callable[[], None]:
        def train() -> None:
            model = net()
            optimizer = sgd(model)
            for x in batches(5):
                clear(optimizer)
                loss_of(model, x).backward()
                optimizer.step()

        return train

    with zerograd.watch(on="collect"):
        kept = torch.optim.Optimizer.zero_grad
    clears(kept)()
    assert found(clears(kept)) == []


def test_an_optimizer_may_die_while_the_source_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The garbage collector runs whenever it wants, and reading waits for other threads that read."""
    gc.enable()  # a check that another test has run in this process ends without
    path = tmp_path / "train.py"
    path.write_text("opt = make()\n", encoding="utf-8")
    names = OptimizerNames(ProgramSource(), str(tmp_path))
    site = Site(str(path), 1, 7, 1, 13)
    dying = [sgd(net())]
    names.add("1", dying[0], 2, site)
    names.add("2", sgd(net()), 2, None)
    parse, collects = ast.parse, list[bool]()

    def parse_and_collect(text: str, *more: Any, **named: Any) -> ast.Module:
        collects.append(gc.isenabled())
        if dying:
            dying.clear()
            names.gone("1")
        tree: ast.Module = parse(text, *more, **named)
        return tree

    monkeypatch.setattr(ast, "parse", parse_and_collect)
    said: list[str] = []
    thread = threading.Thread(target=lambda: said.append(names.name("1")), daemon=True)
    thread.start()
    thread.join(60)
    assert said == ["opt"]
    assert names.name("1") == "opt"
    assert collects
    assert not any(collects)
    assert gc.isenabled()
