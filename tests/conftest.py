"""The choice of a tier, and the fixtures of several folders."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import tiers, without_torch


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--tier",
        choices=tiers.TIERS,
        default="all",
        help="fast: every behaviour once; long: what the fast tier only samples; all: both (default)",
    )


def pytest_configure(config: pytest.Config) -> None:
    tiers.chosen = config.getoption("tier")
    # A shell starts what runs in its background with Ctrl-C ignored, and every program that a test starts inherits that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    without_torch.skip_what_imports_it()
    with contextlib.suppress(ImportError):  # the libraries' environment has no hypothesis
        from hypothesis import HealthCheck, settings

        # How fast inputs are drawn and tried depends on what else the machine does.
        slow = [HealthCheck.too_slow]
        settings.register_profile("zerograd", suppress_health_check=slow, deadline=None)
        settings.load_profile("zerograd")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kept = [item for item in items if tiers.belongs(item)]
    if len(kept) < len(items):
        config.hook.pytest_deselected(items=[item for item in items if not tiers.belongs(item)])
        items[:] = kept


def pytest_collection_finish() -> None:
    if "torch" in sys.modules:
        import torch

        # torch imports much more when an optimizer is first used.
        torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1).zero_grad()


@pytest.fixture(scope="module", autouse=True)
def _only_objects_of_this_module() -> None:
    """A watch searches all objects: those of earlier modules would take longest, and are left out."""
    if "torch" in sys.modules:
        gc.collect()
        gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def _no_process_group_is_left() -> Iterator[None]:
    """The examples of rules about ranks leave one, and only one can be made in a process."""
    yield
    dist = sys.modules.get("torch.distributed")
    if dist is not None and dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


@pytest.fixture(scope="module", autouse=True)
def _no_project_is_around(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """A check looks for callers in the project around a file. For `train.py` here that would be this repository."""
    if request.path.relative_to(Path(__file__).parent).parts[0] not in ("fix", "static"):
        yield
        return
    here = Path.cwd()
    os.chdir(tmp_path_factory.mktemp("alone"))
    yield
    os.chdir(here)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A real browser, or the reason why there is none."""
    playwright = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("there is no chromium here: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield opened
        opened.close()
