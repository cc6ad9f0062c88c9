"""The coverage of core and rules is demanded in full, and a line without a test fails."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from support import tiers
from support.paths import ROOT

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def coverage(*words: str, data: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "coverage", *words]
    environment = {**os.environ, "COVERAGE_FILE": str(data)}
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


@tiers.long
def test_lines_that_no_test_executes_fail(tmp_path: Path) -> None:
    data = tmp_path / "coverage"
    done = coverage("run", "-m", "pytest", "-q", "tests/rules/test_selection.py", data=data)
    assert done.returncode == 0, done.stdout
    report = coverage("report", data=data)
    assert report.returncode == 2
    assert "rules/stale_gradient.py" in report.stdout.replace("\\", "/")
    assert "less than fail-under=100" in report.stdout


def test_all_tests_include_it() -> None:
    rules = dict(re.findall(r"^([\w-]+):(.*)$", MAKEFILE, re.MULTILINE))
    assert "test-coverage" in rules["test-all"].split()
