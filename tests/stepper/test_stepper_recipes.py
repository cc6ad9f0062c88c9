"""The recipes of docs/stepper.md run and train correctly."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional

import zerograd
from support.big_batch import data, error, net
from support.paths import ROOT

PAGE = ROOT / "docs" / "stepper.md"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def recipes() -> dict[str, list[str]]:
    """The code of each section; the first one is before the headings."""
    first, *sections = re.split(r"^### (.+)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    found = {"the first": BLOCK.findall(first)}
    for title, text in zip(sections[::2], sections[1::2], strict=True):
        found[title] = BLOCK.findall(text)
    return found


RECIPES = recipes()


def setting(**changes: Any) -> dict[str, Any]:
    """The names that a recipe uses."""
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    return {
        "zerograd": zerograd,
        "torch": torch,
        "F": functional,
        "model": model,
        "optimizer": optimizer,
        "scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9),
        "loader": data(*[3] * 8),
        "loss_fn": functional.mse_loss,
        "losses": [],
        **changes,
    }


def run(code: str, names: dict[str, Any]) -> list[Tensor]:
    exec(compile(code, str(PAGE), "exec"), names)
    return [param.detach() for param in names["model"].parameters()]


def test_every_recipe_is_tested_here() -> None:
    assert list(RECIPES) == [
        "the first",
        "A plain loop",
        "An accelerate loop",
        "A GAN",
        "Mixed precision",
        "DDP",
        "Language modelling with variable lengths",
    ]


def test_the_first_runs() -> None:
    (code,) = RECIPES["the first"]
    names = setting()
    run(code, names)
    assert names["stepper"].steps == 1


def test_a_plain_loop_trains_the_same_before_and_after() -> None:
    before, after = RECIPES["A plain loop"]
    assert error(run(after, setting()), run(before, setting())) < 1e-12


def test_an_accelerate_loop_trains_the_same_where_accelerate_is_right() -> None:
    before, after = RECIPES["An accelerate loop"]
    trained = run(after, setting())
    assert error(trained, run(RECIPES["A plain loop"][0], setting(scheduler=NoSchedule()))) < 1e-12
    if importlib.util.find_spec("accelerate"):
        accelerate = importlib.import_module("accelerate")
        loader = torch.utils.data.DataLoader(data(*[3] * 8), batch_size=None)  # type: ignore[arg-type, var-annotated]
        names = setting(accelerate=accelerate, loader=loader)
        assert error(run(before, names), trained) < 1e-12


class NoSchedule:
    def step(self) -> None: ...


def test_a_gan_trains_both() -> None:
    (code,) = RECIPES["A GAN"]
    generator, discriminator = nn.Linear(2, 3).double(), nn.Linear(3, 1).double()
    names = setting(
        generator=generator,
        discriminator=discriminator,
        g_optimizer=torch.optim.SGD(generator.parameters(), lr=0.1),
        d_optimizer=torch.optim.SGD(discriminator.parameters(), lr=0.1),
    )
    with zerograd.watch(on="collect") as report:
        run(code, names)
    assert names["g_stepper"].steps == names["d_stepper"].steps == 2
    assert not report.findings


def test_mixed_precision_recovers_from_an_overflow(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = RECIPES["Mixed precision"]
    model = net().float()
    names = setting(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.01),
        loader=[(x.float(), y.float() * 100) for x, y in data(*[3] * 80)],
    )
    run(code, names)
    assert names["stepper"].steps + names["stepper"].skipped == 20
    assert names["stepper"].steps > 0
    assert ("skipped at scale 65536.0" in capsys.readouterr().out) == bool(names["stepper"].skipped)


@pytest.fixture
def one_rank(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=(tmp_path / "store").as_uri(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("one_rank")
def test_ddp_trains_as_one_process_does() -> None:
    (code,) = RECIPES["DDP"]
    names = setting()
    trained = run(code, names)
    assert error(trained, run(RECIPES["An accelerate loop"][1], setting())) < 1e-12
    assert len(names["losses"]) == 8


def test_language_modelling_steps_on_the_mean_over_tokens() -> None:
    (code,) = RECIPES["Language modelling with variable lengths"]
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(11, 8), nn.Linear(8, 11)).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    texts = []
    for length in (5, 30, 2, 17, 41, 9):
        tokens = torch.randint(0, 11, (2, length))
        targets = tokens.roll(-1, 1)
        targets[1, length // 2 :] = -100
        texts.append((tokens, targets))
    seen: list[list[Tensor]] = []

    def look(*args: Any) -> None:
        seen.append([p.grad.clone() for p in model.parameters() if p.grad is not None])

    optimizer.register_step_pre_hook(look)
    names = setting(model=model, optimizer=optimizer, texts=texts)
    run(code, names)
    weights = [int((targets != -100).sum()) for _, targets in texts]
    windows: list[list[int]] = [[]]
    for index in range(len(texts)):
        if sum(weights[one] for one in windows[-1]) >= 64:
            windows.append([])
        windows[-1].append(index)
    assert len(seen) == len(windows) > 1
    for window, gradient in zip(windows, seen, strict=True):
        logits = torch.cat([model(texts[one][0]).flatten(0, 1) for one in window])
        targets = torch.cat([texts[one][1].flatten() for one in window])
        loss = functional.cross_entropy(logits, targets, ignore_index=-100)
        assert error(gradient, torch.autograd.grad(loss, list(model.parameters()))) < 1e-12
