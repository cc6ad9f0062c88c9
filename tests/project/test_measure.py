"""The benchmarks run one after the other: one that fails, hangs or is stopped does not lose the others."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import measure
import outcome
from measure import Measurement
from support.paths import ROOT

WRITES = (
    "import json, sys; open(sys.argv[-1], 'w').write(json.dumps({'setting': {}, 'rows': [VALUE]}))"
)
SCRIPTS = {
    "good": WRITES.replace("VALUE", "1"),
    "misses_a_goal": WRITES.replace("VALUE", "2") + "; sys.exit(1)",
    "fails": "raise ValueError('a defect')",
    "is_refused": "import sys; sys.exit('no such tool')",
    "hangs": "import time; time.sleep(60)",
    "is_killed": "import os; os.kill(os.getpid(), 9)",
    "prints_its_words": "import sys; print(sys.argv[1:]);" + WRITES.replace("VALUE", "3"),
}


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of results, in which each script has an old one; pages are not written."""
    found = tmp_path / "results"
    found.mkdir()
    for name, text in SCRIPTS.items():
        (tmp_path / f"{name}.py").write_text(text)
        (found / f"{name}.json").write_text('{"setting": {"commit": "old"}, "rows": [0]}')
    monkeypatch.setattr(measure, "HERE", tmp_path)
    monkeypatch.setattr(outcome, "RESULTS", found)
    monkeypatch.setattr(measure, "_page", lambda _: True)
    return found


def chosen(*names: str, seconds: float = 30, repos: bool = False) -> list[Measurement]:
    return [Measurement(name, f"{name}.py", (), seconds, repos) for name in names]


def options(*, repos: Path | None = None, patient: bool = False) -> argparse.Namespace:
    return argparse.Namespace(resume=False, patient=patient, repos=repos)


def value(results: Path, name: str) -> int:
    (found,) = json.loads((results / f"{name}.json").read_text())["rows"]
    assert isinstance(found, int)
    return found


def test_a_benchmark_that_fails_keeps_its_old_result_and_the_others_are_measured(
    results: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    names = ("fails", "is_refused", "is_killed", "good", "misses_a_goal")
    assert measure.measure(chosen(*names), options()) == 2
    assert [value(results, name) for name in names] == [0, 0, 0, 1, 2]
    said = capfd.readouterr()
    assert "fails                 NOT MEASURED: it ended with exit code 1" in said.out
    assert "is_killed             NOT MEASURED: it ended with exit code -9" in said.out
    assert "misses_a_goal         measured in 0 s" in said.out
    assert "a defect" in said.err


def test_a_missed_goal_is_a_result(results: Path) -> None:
    assert measure.measure(chosen("misses_a_goal"), options()) == 0
    assert value(results, "misses_a_goal") == 2


def test_a_benchmark_that_takes_longer_than_its_time_is_ended(
    results: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    began = time.monotonic()
    assert measure.measure(chosen("hangs", "good", seconds=1), options()) == 2
    assert time.monotonic() - began < 20
    assert (value(results, "hangs"), value(results, "good")) == (0, 1)
    assert (
        "hangs                 NOT MEASURED: it took longer than its 1 s" in capfd.readouterr().out
    )


def test_known_bugs_are_skipped_with_a_sentence_if_there_are_no_checkouts(
    results: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    needy = chosen("prints_its_words", repos=True)
    assert measure.measure(needy, options()) == 0
    assert value(results, "prints_its_words") == 0
    assert "skipped: known_bugs needs the checkouts of bench/labels.jsonl" in capfd.readouterr().out
    assert measure.measure(needy, options(repos=Path("there"))) == 0
    assert value(results, "prints_its_words") == 3
    assert "['--repos', 'there', '--result'," in capfd.readouterr().out


STOPPED = """
import argparse, sys
from pathlib import Path
import measure, outcome
measure.HERE = Path(sys.argv[1])
outcome.RESULTS = measure.HERE / "results"
measure._page = lambda name: True
options = argparse.Namespace(resume=False, patient=False, repos=None)
chosen = [measure.Measurement(name, f"{name}.py", (), 60) for name in ("good", "hangs")]
sys.exit(measure.measure(chosen, options))
"""


def test_a_stop_keeps_what_is_measured_and_ends_what_runs(results: Path) -> None:
    (results.parent / "hangs.py").write_text(
        f"import os, time; open({str(results.parent / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", STOPPED, str(results.parent)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "bench")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Whoever is started in the background of a shell ignores this signal.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    until = time.monotonic() + 30
    pid = results.parent / "pid"
    while not (pid.exists() and pid.read_text()) and time.monotonic() < until:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    said, wrong = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "what was measured is kept" in wrong
    assert "good                  measured in 0 s" in said
    assert "hangs                 not measured" in said
    assert (value(results, "good"), value(results, "hangs")) == (1, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def test_the_benchmarks_of_make_bench_have_20_minutes_together() -> None:
    times = [one.seconds for one in measure.MEASUREMENTS if one.seconds is not None]
    assert 0 < sum(times) <= 20 * 60


def test_every_benchmark_is_a_script_that_takes_its_words() -> None:
    for one in measure.MEASUREMENTS:
        assert (ROOT / "bench" / one.script).is_file()
        words = [word for word in one.words if word.startswith("--")]
        text = (ROOT / "bench" / one.script).read_text(encoding="utf-8")
        assert all(f'"{word}"' in text for word in words)
