"""Runs the tests of tests/project/test_fuzz.py with new random input for some minutes each.

What a failing test prints, with the input that fails, is kept in bench/.cache/fuzz/; that input becomes an explicit example
of its test. How many seeds of this commit were tried, and for how long, is kept in bench/.cache/fuzz.json, so that a run
which was ended goes on with others. Time is processor time.
"""

from __future__ import annotations

import argparse
import hashlib
import inspect
import json
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis

import outcome

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

    def mktemp(self, name: str) -> Path:
        """A folder that is empty: the one of the last input is removed."""
        made = self._folder / name
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir()
        return made


def main() -> int:
    """Run each test for its time; the exit code is 1 if one fails."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0, metavar="N", help="for each test")
    outcome.add_argument(parser)
    options = parser.parse_args()
    module = _module()
    folder = STATE.parent / "fuzz"
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        row
        for name, test in vars(module).copy().items()
        if name.startswith("test_")
        for row in _fuzzed(name, test, fixtures(module, test, folder), 60 * options.minutes)
    ]
    if options.result is not None:
        outcome.write(
            options.result,
            title="Fuzzing",
            method=f"Each reader gets random and damaged input for at least {options.minutes:g} minutes of processor time, or until it fails: the "
            "tests of tests/project/test_fuzz.py with seeds of the commit.",
            rows=rows,
        )
    return int(any(row.goal is not None and row.value > row.goal for row in rows))


def _fuzzed(
    name: str, test: Callable[..., None], given: dict[str, Any], seconds: float
) -> Iterator[outcome.Row]:
    """Run one test until its time is over, or until it fails."""
    commit = outcome.setting()["commit"]
    state: dict[str, dict[str, float]] = json.loads(STATE.read_text()) if STATE.exists() else {}
    tried = state.setdefault(f"{commit} {name}", {"seeds": 0, "seconds": 0.0})
    failed = 0
    while tried["seconds"] < seconds and not failed:
        began = time.process_time()
        tried["seeds"] += 1
        # Another commit tries other seeds.
        seed = f"{commit} {tried['seeds']:.0f}"
        try:
            hypothesis.seed(int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "big"))(test)(**given)  # fmt: skip
        except Exception:  # noqa: BLE001, whatever it is, it is kept
            failed = 1
            text = traceback.format_exc()
            (STATE.parent / "fuzz" / f"{name}.{int(tried['seeds'])}.txt").write_text(text)
            print(text, flush=True)
        tried["seconds"] += time.process_time() - began
        STATE.write_text(json.dumps(state), encoding="utf-8")
    said = name.removeprefix("test_").replace("_", " ")
    print(f"{said}: {tried['seeds'] * BATCH:,.0f} inputs, {failed} failures", flush=True)
    yield outcome.Row(f"{said}: inputs", tried["seeds"] * BATCH)
    yield outcome.Row(f"{said}: time", tried["seconds"] / 60, "min")
    yield outcome.Row(f"{said}: failures", failed, goal=0)


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
