"""`pytest --zerograd`: tests that train wrongly fail, and others do not notice it."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

import zerograd.launch.launch
import zerograd.report.text
import zerograd.runtime.watch
from support import tiers

TRAINING = """\
import pytest
import torch

def train(model=None, optimizer=None, *, clear=True, steps=4):
    model = model or torch.nn.Linear(2, 1)
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        if clear:
            optimizer.zero_grad()
        (model(torch.ones(1, 2)) - 3).square().mean().backward()
        optimizer.step()
"""


PLAIN = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest")
"""hypothesis takes seconds at the end of a run."""
torch.set_num_threads(1)
LOADED = (zerograd.launch.launch, zerograd.report.text, zerograd.runtime.watch)
"""They and torch are imported here, once: an inner run unloads what it has imported."""


def run(pytester: pytest.Pytester, tests: str, *words: str) -> pytest.RunResult:
    """Pytest in this process, which has torch, with an empty set of settings."""
    pytester.makepyfile(test_training=TRAINING + tests)
    return pytester.runpytest_inprocess(*PLAIN, *words)


def test_a_test_that_trains_wrongly_fails_with_file_line_rule_and_help(
    pytester: pytest.Pytester,
) -> None:
    done = run(pytester, "def test_wrong(): train(clear=False)\n", "--zerograd")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(
        [
            "test_training.py:10:*ZG101 stale-gradient  backward() adds to gradients*",
            "   help  clear the gradients between the step and the next backward*",
            "FAILED test_training.py::test_wrong - zerograd.GradientError: *",
        ]
    )
    done.stdout.no_fnmatch_line("*pytest_plugin*")
    done.stdout.no_fnmatch_line("*Captured log*")


def test_right_training_passes_and_is_counted(pytester: pytest.Pytester) -> None:
    done = run(pytester, "def test_a(): train()\ndef test_b(): train()\n", "--zerograd")
    done.assert_outcomes(passed=2)
    done.stdout.fnmatch_lines(["zerograd watched 2 tests, 8 optimizer steps"])


def test_nothing_is_watched_without_the_option(pytester: pytest.Pytester) -> None:
    tests = """
def test_wrong():
    from zerograd.runtime.engine import Engine
    train(clear=False)
    assert Engine.running is None
"""
    done = run(pytester, tests)
    done.assert_outcomes(passed=1)
    done.stdout.no_fnmatch_line("*zerograd watched*")


def test_a_mark_allows_rules_by_name_and_code(pytester: pytest.Pytester) -> None:
    tests = """
@pytest.mark.zerograd(allow=["stale-gradient"])
def test_by_name(): train(clear=False)

@pytest.mark.zerograd(allow=["ZG101"])
def test_by_code(): train(clear=False)

@pytest.mark.zerograd(allow=["ALL"])
def test_not_watched(): train(clear=False)

@pytest.mark.zerograd(allow=["repeated-step"])
def test_another_rule(): train(clear=False)
"""
    done = run(pytester, tests, "--zerograd", "--strict-markers")
    done.assert_outcomes(passed=3, failed=1)
    done.stdout.fnmatch_lines(["FAILED test_training.py::test_another_rule *"])


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        ("allow=['stale-gradien']", "*unknown rule 'stale-gradien'; did you mean stale-gradient*"),
        ("allow='stale-gradient'", "the mark is written zerograd(allow=[names of rules])"),
        ("'stale-gradient'", "the mark is written zerograd(allow=[names of rules])"),
        ("only=['ZG101']", "the mark is written zerograd(allow=[names of rules])"),
    ],
)
def test_a_wrong_mark_is_an_error_of_its_test(
    mark: str, said: str, pytester: pytest.Pytester
) -> None:
    tests = f"@pytest.mark.zerograd({mark})\ndef test_a(): train()\ndef test_b(): train()\n"
    done = run(pytester, tests, "--zerograd")
    done.assert_outcomes(errors=1, passed=1)
    done.stdout.fnmatch_lines([said])
    done.stdout.no_fnmatch_line("*During handling*")


@pytest.mark.parametrize("words", [(), ("--zerograd",)])
def test_a_test_that_asks_for_the_report_decides_itself(
    words: tuple[str, ...], pytester: pytest.Pytester
) -> None:
    tests = """
def test_found(gradient_report):
    train(clear=False)
    assert [(one.code, one.site.line) for one in gradient_report.findings] == [("ZG101", 10)]

def test_clean(gradient_report):
    train()
    assert gradient_report.findings == []

def test_not_clean(gradient_report):
    train(clear=False)
    assert gradient_report.findings == []
"""
    done = run(pytester, tests, *words)
    done.assert_outcomes(passed=2, failed=1)
    done.stdout.fnmatch_lines(["FAILED test_training.py::test_not_clean - *"])


def test_findings_belong_to_their_own_test(pytester: pytest.Pytester) -> None:
    """The same line is wrong in two tests, and each reports its own steps."""
    tests = """
def test_first(): train(clear=False, steps=3)
def test_right(): train()
def test_second(): train(clear=False, steps=6)
"""
    done = run(pytester, tests, "--zerograd")
    done.assert_outcomes(passed=1, failed=2)
    done.stdout.fnmatch_lines(["   seen  2 times, *", "   seen  5 times, *"])


def test_what_fixtures_train_belongs_to_the_test(pytester: pytest.Pytester) -> None:
    tests = """
@pytest.fixture
def trained(): train(clear=False)

def test_a(trained): pass
def test_b(): train()
"""
    done = run(pytester, tests, "--zerograd")
    done.assert_outcomes(passed=1, failed=1)


def test_an_optimizer_that_is_older_than_the_test_is_watched(pytester: pytest.Pytester) -> None:
    tests = """
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
def test_right(): train(model, optimizer)
def test_wrong(): train(model, optimizer, clear=False)
"""
    done = run(pytester, tests, "--zerograd")
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(["FAILED test_training.py::test_wrong *"])


def test_a_test_that_fails_itself_shows_its_own_error_and_the_findings(
    pytester: pytest.Pytester,
) -> None:
    done = run(pytester, "def test_a():\n    train(clear=False)\n    assert 1 == 2\n", "--zerograd")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["E*assert 1 == 2", "*Captured zerograd call*", "*ZG101*"])


def test_a_failed_fixture_leaves_no_watch_open(pytester: pytest.Pytester) -> None:
    tests = """
@pytest.fixture
def broken(): raise ValueError("no data")

def test_a(broken): pass
def test_b():
    from zerograd.runtime.engine import Engine
    assert len(Engine.running.watches) == 1
"""
    done = run(pytester, tests, "--zerograd")
    done.assert_outcomes(errors=1, passed=1)


def test_advice_is_shown_and_fails_no_test(pytester: pytest.Pytester) -> None:
    tests = """
def test_dropped_window():
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(3):
        optimizer.zero_grad()
        for i in range(10):
            (model(torch.ones(1, 2)) - 3).square().mean().div(4).backward()
            if (i + 1) % 4 == 0:
                optimizer.step()
                optimizer.zero_grad()
"""
    done = run(pytester, tests, "--zerograd", "-W", "error")
    done.assert_outcomes(passed=1)
    done.stdout.fnmatch_lines(["*zerograd: advice*", "test_training.py:*ZG303 dropped-window*"])


def test_skipped_and_expected_failures_stay_what_they_are(pytester: pytest.Pytester) -> None:
    tests = """
@pytest.mark.skip
def test_skipped(): train(clear=False)

@pytest.mark.xfail(strict=True)
def test_expected(): train(clear=False)
"""
    done = run(pytester, tests, "--zerograd")
    done.assert_outcomes(skipped=1, xfailed=1)


def test_a_test_of_unittest_is_watched(pytester: pytest.Pytester) -> None:
    tests = """
import unittest
class Wrong(unittest.TestCase):
    def test_a(self): train(clear=False)
    def test_b(self): train()
"""
    done = run(pytester, tests, "--zerograd")
    done.assert_outcomes(passed=1, failed=1)


def test_a_torch_that_is_too_old_is_said_and_fails_tests(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.__version__", "1.13.0")
    done = run(pytester, "def test_a(): pass\n", "--zerograd")
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines(["zerograd: torch 1.13.0 is too old to be watched: *--zerograd"])


def test_the_plugin_loads_nothing_before_it_is_asked_for() -> None:
    code = "import sys, zerograd.integrations.pytest_plugin; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert "torch" not in loaded
    assert [name for name in loaded if name.startswith("zerograd.")] == [
        "zerograd.integrations",
        "zerograd.integrations.pytest_plugin",
    ]


@tiers.long
def test_processes_of_xdist_report_to_the_one_that_prints(pytester: pytest.Pytester) -> None:
    tests = """
@pytest.mark.parametrize("number", range(4))
def test_right(number): train()

def test_wrong(): train(clear=False)
"""
    pytester.makepyfile(test_training=TRAINING + tests)
    done = pytester.runpytest_subprocess("--zerograd", "-n", "2", *PLAIN)
    done.assert_outcomes(passed=4, failed=1)
    done.stdout.fnmatch_lines(
        ["*ZG101 stale-gradient*", "zerograd watched 5 tests, 20 optimizer steps"]
    )


@tiers.long
def test_torch_is_imported_by_the_test_and_not_by_the_plugin(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_late="""
import sys

def test_without_torch():
    assert "torch" not in sys.modules

def test_late_import():
    import torch
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(3):
        model(torch.ones(1, 2)).square().mean().backward()
        optimizer.step()
"""
    )
    done = pytester.runpytest_subprocess("--zerograd", *PLAIN)
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(["test_late.py:11:*ZG101*"])


def test_torch_stays_patched_from_one_watched_test_to_the_next_and_in_no_other(
    pytester: pytest.Pytester,
) -> None:
    pytester.makeconftest(
        "import torch\n"
        "def pytest_runtest_logfinish(nodeid):\n"
        "    print('after', nodeid.split(':')[-1], torch.nn.Module.zero_grad.__code__.co_filename)\n"
    )
    unwatched = "@pytest.mark.zerograd(allow=['ALL'])\ndef test_c():\n"
    done = run(
        pytester,
        "def test_a(): train()\ndef test_b(): train()\n"
        f"{unwatched}    assert torch.nn.Module.zero_grad.__code__.co_filename.endswith('module.py')\n"
        "def test_d(): train()\n",
        "--zerograd",
        "-s",
    )
    done.assert_outcomes(passed=4)
    ends = {"a": "patches.py", "b": "patches.py", "c": "module.py", "d": "patches.py"}
    done.stdout.fnmatch_lines([f"*after test_{test} *{end}" for test, end in ends.items()])
    assert torch.nn.Module.zero_grad.__code__.co_filename.endswith("module.py")
