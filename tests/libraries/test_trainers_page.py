"""The examples of docs/howto/trainers.md run from top to bottom, each with its library."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from support.paths import ROOT

pytest.importorskip("lightning")
PAGE = ROOT / "docs" / "howto" / "trainers.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)


@pytest.mark.filterwarnings("default")
def test_the_page_runs_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "page"}
    for number, example in enumerate(EXAMPLES, 1):
        exec(compile(example, f"example {number}", "exec"), names)
    assert len(EXAMPLES) == 6
    for library in ("lightning", "transformers", "accelerate", "ignite", "skorch", "fastai"):
        assert any(re.search(rf"^(import|from) {library}\b", one, re.MULTILINE) for one in EXAMPLES)
