"""The integrations of trainers: findings go to the library's log, scalars to its loggers, and it stays as it was."""

from __future__ import annotations

import importlib
import logging
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from support.library_programs import bare
from support.paths import ROOT
from zerograd.runtime.engine import Engine

pytest.importorskip("lightning")
pytestmark = pytest.mark.filterwarnings("default")

EXAMPLES = sorted((ROOT / "examples" / "trainers").glob("*.py"))
SCALARS = {"zerograd/gradient_norm", "zerograd/window", "zerograd/findings"}
STEPS = 8


@pytest.fixture(autouse=True)
def _offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Loggers write below the folder of the test and talk to nobody; nothing is watched afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    import mlflow

    mlflow.set_tracking_uri(f"file:{tmp_path}/mlruns")  # the process remembers it
    yield
    mlflow.end_run()
    assert Engine.running is None


def data() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    inputs = torch.rand(4 * STEPS, 2)
    return inputs, inputs.sum(dim=1, keepdim=True)


def in_tensorboard(folder: Path) -> dict[str, list[Any]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found: dict[str, list[Any]] = {}
    for path in folder.rglob("events.out.tfevents*"):
        events = EventAccumulator(str(path)).Reload()
        for tag in events.Tags()["scalars"]:
            found.setdefault(tag, []).extend(events.Scalars(tag))
    return found


def in_mlflow(folder: Path) -> set[str]:
    return {
        path.relative_to(
            path.parents[1] if path.parent.name == "zerograd" else path.parent
        ).as_posix()
        for path in folder.glob("mlruns/*/*/metrics/**/*")
        if path.is_file()
    }


def lightning_module(*, right: bool) -> Any:
    import lightning

    class Line(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def training_step(self, batch: Any, number: int) -> Any:
            features, target = batch
            return torch.nn.functional.mse_loss(self.layer(features), target)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.01)

        def optimizer_zero_grad(self, epoch: int, number: int, optimizer: Any) -> None:
            if right:
                optimizer.zero_grad()

    return Line()


def fit(module: Any, callback: Any, **options: Any) -> Any:
    import lightning

    quiet = dict.fromkeys(
        ("enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False
    )
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=1,
        callbacks=[callback],
        **{"logger": False, **quiet, **options},
    )
    trainer.fit(module, DataLoader(TensorDataset(*data()), batch_size=4))
    return trainer


@pytest.mark.parametrize("program", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_logs_its_finding_and_prints_what_it_says(program: Path, tmp_path: Path) -> None:
    ran = bare(program, tmp_path)
    assert ran.code == 0, ran.log
    assert "    ZG101 stale-gradient" in (program.read_text(encoding="utf-8"))
    assert "\nZG101 stale-gradient\n" in f"\n{ran.log}"
    assert "zerograd: " in ran.log, "the log of the library"


def test_lightning_logs_findings_and_scalars(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from lightning.pytorch.loggers import MLFlowLogger, TensorBoardLogger, WandbLogger

    from zerograd.integrations.lightning import WatchGradients

    callback = WatchGradients()
    wandb = WandbLogger(project="p", save_dir=tmp_path, offline=True)
    loggers = [
        TensorBoardLogger(tmp_path / "tb"),
        wandb,
        MLFlowLogger(tracking_uri=f"file:{tmp_path}/mlruns"),
    ]
    logging.getLogger("lightning.pytorch").propagate = True
    fit(lightning_module(right=False), callback, logger=loggers, log_every_n_steps=2)
    assert [one.code for one in callback.report.findings] == ["ZG101"]
    assert "ZG101 stale-gradient backward() adds to gradients" in caplog.text
    written = in_tensorboard(tmp_path / "tb")
    assert written.keys() >= SCALARS
    assert [one.step for one in written["zerograd/window"]] == [2, 4, 6, 8]
    assert {one.value for one in written["zerograd/window"]} == {1.0}
    assert written["zerograd/findings"][-1].value == 1.0
    assert set(dict(wandb.experiment.summary)) >= SCALARS
    wandb.experiment.finish()
    assert in_mlflow(tmp_path) >= SCALARS


def test_lightning_says_the_norm_that_the_step_used_after_clipping(tmp_path: Path) -> None:
    from lightning.pytorch.loggers import TensorBoardLogger

    from zerograd.integrations.lightning import WatchGradients

    callback = WatchGradients()
    logger = TensorBoardLogger(tmp_path / "tb")
    module = lightning_module(right=True)
    fit(
        module,
        callback,
        logger=logger,
        log_every_n_steps=1,
        gradient_clip_val=0.01,
        accumulate_grad_batches=2,
    )
    assert callback.report.findings == []
    written = in_tensorboard(tmp_path / "tb")
    norms = [one.value for one in written["zerograd/gradient_norm"]]
    assert norms == pytest.approx([0.01] * (STEPS // 2), rel=1e-3)
    assert [one.value for one in written["zerograd/window"]] == [2.0] * (STEPS // 2)


def test_lightning_can_raise_and_leaves_no_watch_open() -> None:
    import zerograd
    from zerograd.integrations.lightning import WatchGradients

    with pytest.raises(zerograd.GradientError, match="ZG101") as raised:
        fit(lightning_module(right=False), WatchGradients(on="raise"))
    assert not shows_us(raised.value)


def test_accelerate_can_raise() -> None:
    from accelerate import Accelerator

    import zerograd
    from zerograd.integrations.accelerate import watch_gradients

    layer = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)

    def train() -> None:
        with watch_gradients(Accelerator(cpu=True), on="raise"):
            for _ in range(2):
                layer(torch.ones(1, 2)).sum().backward()
                optimizer.step()

    with pytest.raises(zerograd.GradientError, match="ZG101") as raised:
        train()
    assert not shows_us(raised.value)


def shows_us(error: BaseException) -> bool:
    """Whether a traceback leads into the code that watches."""
    return "step_and_clear" in "".join(traceback.format_exception(error))


def test_a_fit_that_fails_leaves_no_watch_open() -> None:
    from zerograd.integrations.lightning import WatchGradients

    module = lightning_module(right=True)
    module.layer = torch.nn.Linear(3, 1)  # its inputs have two numbers
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        fit(module, WatchGradients())


class Line(torch.nn.Module):
    """A model for transformers."""

    def __init__(self, *, right: bool) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
        self.right = right

    def forward(self, features: Any, labels: Any) -> Any:
        guess = self.layer(features)
        return {"loss": torch.nn.functional.mse_loss(guess, labels), "logits": guess}

    def zero_grad(self, set_to_none: bool = True) -> None:
        if self.right:
            super().zero_grad(set_to_none)


def train(model: Any, folder: Path, *callbacks: Any, **options: Any) -> Any:
    from transformers import Trainer, TrainingArguments

    arguments = TrainingArguments(
        str(folder),
        disable_tqdm=True,
        logging_steps=2,
        num_train_epochs=1,
        per_device_train_batch_size=4,
        save_strategy="no",
        use_cpu=True,
        **{"report_to": [], **options},
    )
    rows = [{"features": x, "labels": y} for x, y in zip(*data(), strict=True)]
    trainer = Trainer(model, arguments, train_dataset=rows, callbacks=list(callbacks))
    trainer.train()
    return trainer


def test_transformers_logs_findings_and_scalars(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    import transformers
    import wandb

    from zerograd.integrations.transformers import WatchGradients

    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "tb"))
    transformers.utils.logging.enable_propagation()
    callback = WatchGradients()
    train(Line(right=False), tmp_path, callback, report_to=["tensorboard", "wandb", "mlflow"])
    assert [one.code for one in callback.report.findings] == ["ZG101"]
    assert "ZG101 stale-gradient backward() adds to gradients" in caplog.text
    written = in_tensorboard(tmp_path)
    names = {name.removeprefix("train/") for name in written}
    assert names >= SCALARS
    steps = next(values for name, values in written.items() if name.endswith("zerograd/window"))
    assert [one.step for one in steps] == [2, 4, 6, 8]
    summary = {name.removeprefix("train/") for name in dict(wandb.run.summary)}
    wandb.finish()
    assert summary >= SCALARS
    assert in_mlflow(tmp_path) >= SCALARS


def test_transformers_is_silent_about_a_right_training(tmp_path: Path) -> None:
    from zerograd.integrations.transformers import WatchGradients

    callback = WatchGradients()
    trainer = train(
        Line(right=True), tmp_path, callback, gradient_accumulation_steps=2, max_grad_norm=0.01
    )
    assert callback.report.findings == []
    assert callback.report.watched is not None
    assert callback.report.watched.steps == STEPS // 2
    assert len([one for one in trainer.callback_handler.callbacks if one is callback]) == 1


@pytest.mark.parametrize("right", [True, False])
def test_accelerate_logs_findings_and_scalars(
    right: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    import wandb
    from accelerate import Accelerator

    from zerograd.integrations.accelerate import watch_gradients

    accelerator = Accelerator(
        cpu=True,
        gradient_accumulation_steps=2,
        log_with=["tensorboard", "wandb", "mlflow"],
        project_dir=str(tmp_path / "tb"),
    )
    accelerator.init_trackers("p", init_kwargs={"wandb": {"dir": str(tmp_path)}})
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(TensorDataset(*data()), batch_size=4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    with watch_gradients(accelerator, every=2) as report:
        for x, y in loader:
            with accelerator.accumulate(model):
                accelerator.backward(torch.nn.functional.mse_loss(model(x), y))
                optimizer.step()
                if right:
                    optimizer.zero_grad()
    summary = set(dict(wandb.run.summary))
    accelerator.end_training()
    assert [one.code for one in report.findings] == ([] if right else ["ZG101"])
    assert ("ZG101 stale-gradient" in caplog.text) == (not right)
    written = in_tensorboard(tmp_path / "tb")
    assert written.keys() >= SCALARS
    assert [one.step for one in written["zerograd/window"]] == [2, 4]
    assert {one.value for one in written["zerograd/window"]} == {2.0}
    assert summary >= SCALARS
    assert in_mlflow(tmp_path) >= SCALARS


@pytest.mark.parametrize(
    ("module", "library"),
    [("lightning", "lightning"), ("transformers", "transformers"), ("accelerate", "accelerate")],
)
@pytest.mark.parametrize("found", [None, "0.1.2"], ids=["missing", "too old"])
def test_a_library_that_is_missing_or_too_old_is_said_with_the_way_out(
    module: str, library: str, found: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from importlib import metadata

    def version(name: str) -> str:
        if found is None:
            raise metadata.PackageNotFoundError(name)
        return found

    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.delitem(sys.modules, f"zerograd.integrations.{module}", raising=False)
    state = "which is not installed" if found is None else "and 0.1.2 is installed"
    with pytest.raises(
        ImportError, match=rf"needs {library} [\d.]+ or newer, {state}: pip install"
    ):
        importlib.import_module(f"zerograd.integrations.{module}")
