"""The import of torch is noticed by every watch that waits for it, and looks as it does without one."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path

import pytest

from zerograd.launch import launch
from zerograd.launch.launch import Finder

NAME = "looks_like_torch"


class Waiting:
    """A watch that waits for torch."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def torch_imported(self) -> None:
        self.heard.append("imported")

    def torch_missing(self) -> None:
        self.heard.append("missing")


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Waiting]:
    """Two watches, such as `zerograd run` and the extension of the notebook that it runs."""
    (tmp_path / f"{NAME}.py").write_text("value = 1\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(launch, "TORCH", NAME)
    monkeypatch.delitem(sys.modules, NAME, raising=False)
    two = [Waiting(), Waiting()]
    monkeypatch.setattr(sys, "meta_path", [*(Finder(one) for one in two), *sys.meta_path])
    return two


def test_two_watches_notice_one_import(waiting: list[Waiting]) -> None:
    module = importlib.import_module(NAME)
    assert module.value == 1
    assert [one.heard for one in waiting] == [["imported"], ["imported"]]
    assert not [one for one in sys.meta_path if isinstance(one, Finder)]
    assert module.__spec__ is not None
    assert "exec_module" not in vars(module.__spec__.loader)


def test_two_watches_notice_that_there_is_no_torch(waiting: list[Waiting], tmp_path: Path) -> None:
    (tmp_path / f"{NAME}.py").unlink()
    importlib.invalidate_caches()
    assert importlib.util.find_spec(NAME) is None
    assert [set(one.heard) for one in waiting] == [{"missing"}, {"missing"}]
