"""What `import zerograd` offers: exactly its public names, each loaded when it is used."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import zerograd
from zerograd.core.finding import Finding, Report

PUBLIC = [
    "Finding",
    "GradientError",
    "GradientWarning",
    "Report",
    "Stepper",
    "__version__",
    "allow",
    "check_source",
    "expect_window",
    "watch",
]


def test_the_public_names_are_these() -> None:
    assert sorted(zerograd.__all__) == PUBLIC
    assert dir(zerograd) == PUBLIC
    assert zerograd.Finding is Finding
    assert zerograd.Report is Report


def test_every_public_name_is_there_and_no_other_is_made_up() -> None:
    for name in zerograd.__all__:
        assert getattr(zerograd, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'step'"):
        _ = zerograd.step  # type: ignore[attr-defined]


def test_the_names_for_type_checkers_are_the_names_at_run_time() -> None:
    tree = ast.parse(Path(zerograd.__file__).read_text(encoding="utf-8"))
    typed = next(node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in typed.body if isinstance(node, ast.ImportFrom)]
    imported = {alias.asname for node in imports for alias in node.names}
    assert imported == set(PUBLIC) - {"__version__"}


def test_importing_loads_nothing_of_weight() -> None:
    code = "import sys, zerograd; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert not loaded & {"torch", "argparse", "ast", "dataclasses", "json"}
    assert not [name for name in done.stdout.split() if name.startswith("zerograd.")]


def test_a_text_can_be_checked_without_a_file() -> None:
    text = """\
import torch

def train(model, optimizer, loader):
    for x, y in loader:
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
"""
    report = zerograd.check_source(text, path="x.py")
    assert isinstance(report, Report)
    (finding,) = report.findings
    assert (finding.code, finding.name, finding.level) == ("ZG101", "stale-gradient", "error")
    assert (finding.site.path, finding.site.line) == ("x.py", 6)
    assert finding.certain
    assert report.exit_code == 1
    assert zerograd.check_source("x = 1\n").exit_code == 0


def test_a_text_that_cannot_be_checked_is_a_report_too() -> None:
    report = zerograd.check_source("def f(:\n", path="x.py")
    assert [(one.path, one.line) for one in report.errors] == [("x.py", 1)]
    assert report.exit_code == 2
