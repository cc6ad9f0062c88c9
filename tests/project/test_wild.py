"""The measurement of labelled places: a checkout with a bug and a right loop, read from labels, counted and printed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import wild
from support.command import FORGOTTEN_ZERO, RIGHT

COMMIT = "0" * 40


@pytest.fixture
def checkouts(tmp_path: Path) -> Path:
    folder = tmp_path / "repos" / "someone+project" / COMMIT
    folder.mkdir(parents=True)
    (folder / "wrong.py").write_text(FORGOTTEN_ZERO, encoding="utf-8")
    (folder / "right.py").write_text(RIGHT, encoding="utf-8")
    line = FORGOTTEN_ZERO.splitlines().index("    loss.backward()") + 1
    place = {"repo": "someone/project", "commit": COMMIT, "line": line, "static_visibility": "file"}
    rows = [
        {**place, "id": "a", "path": "wrong.py", "label": "bug", "kind": "missing-zero-grad"},
        {**place, "id": "b", "path": "right.py", "label": "ok", "kind": "plain"},
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "labels.jsonl").write_text(text, encoding="utf-8")
    return tmp_path


def test_all_measurements_are_printed_as_json(
    checkouts: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    labels, repos = str(checkouts / "labels.jsonl"), str(checkouts / "repos")
    words = ["wild.py", "--labels", labels, "--repos", repos, "--json"]
    monkeypatch.setattr(sys, "argv", words)
    assert wild.main() == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["goals_met"] is True
    assert printed["loops"] == {"wrong": 1, "right": 1}
    assert [(one["row"]["id"], one["certain"]) for one in printed["bugs"]] == [("a", True)]
    assert printed["false_alarms"] == []
