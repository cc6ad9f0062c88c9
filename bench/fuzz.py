"""Runs the tests of tests/project/test_fuzz.py with new random input for some minutes each.

A failure prints the input that fails; it becomes an explicit example of its test. The seeds that were tried are kept in
bench/.cache/fuzz.json, so that a run which was ended goes on with others.
"""

from __future__ import annotations

import argparse
import inspect
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis

ROOT = Path(__file__).parents[1]
STATE = ROOT / "bench" / ".cache" / "fuzz.json"
sys.path.insert(0, str(ROOT / "tests"))
BATCH = 200


def fixtures(module: Any, test: Callable[..., None], folder: Path) -> dict[str, Any]:
    """What a test asks pytest for."""
    given: dict[str, Any] = {}
    for name in inspect.signature(test).parameters:
        if name == "tmp_path_factory":
            given[name] = _Folder(folder)
        elif name in ("corpus", "recordings"):
            given[name] = getattr(module, name).__wrapped__()
    return given


class _Folder:
    """Gives a test its folder, as pytest does."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def getbasetemp(self) -> Path:
        return self._folder


def main() -> int:
    """Run each test for its time; the exit code is 1 if one fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, metavar="N", help="for each test")
    options = parser.parse_args()
    module = _module()
    seeds: dict[str, int] = json.loads(STATE.read_text()) if STATE.exists() else {}
    folder = STATE.parent
    folder.mkdir(parents=True, exist_ok=True)
    for name, test in vars(module).copy().items():
        if not name.startswith("test_"):
            continue
        given = fixtures(module, test, folder)
        end = time.monotonic() + 60 * options.minutes
        tried = 0
        while time.monotonic() < end:
            seeds[name] = seeds.get(name, 0) + 1
            hypothesis.seed(seeds[name])(test)(**given)
            tried += BATCH
            STATE.write_text(json.dumps(seeds), encoding="utf-8")
        print(f"{name}: {tried:,} inputs, no failure", flush=True)
    return 0


def _module() -> Any:
    import importlib.util

    from support import tiers

    # Each call of a test tries one batch of new input.
    tiers.size = lambda *_, **__: hypothesis.settings(
        max_examples=BATCH, derandomize=False, deadline=None, database=None
    )
    path = ROOT / "tests" / "project" / "test_fuzz.py"
    spec = importlib.util.spec_from_file_location("fuzzed", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    sys.exit(main())
