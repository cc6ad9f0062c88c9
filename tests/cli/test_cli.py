"""The command `zerograd`, as a user runs it."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.command import FORGOTTEN_ZERO, RIGHT, environment, write, zerograd
from zerograd import __version__
from zerograd.cli import output
from zerograd.core.events import Excuse

POSSIBLE = """\
import torch

def train(model, optimizer, loader, a, b):
    for x, y in loader:
        if a(x):
            optimizer.zero_grad()
        if b(x):
            optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
"""

ADVICE = """\
import torch

def train(model, optimizer, loader):
    for epoch in range(10):
        optimizer.zero_grad()
        for i, (x, y) in enumerate(loader):
            loss = (model(x) - y).square().mean()
            loss.backward()
            if (i + 1) % 4 == 0:
                optimizer.step()
                optimizer.zero_grad()
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def codes(text: str) -> list[str]:
    return [finding["code"] for finding in json.loads(text)["findings"]]


def test_a_clean_check_ends_with_zero(here: Path) -> None:
    write(here, {"train.py": RIGHT})
    done = zerograd("check", ".", cwd=here)
    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        "checked 1 file: 1 training loop: 1 right\n",
        "",
    )


def test_a_finding_is_shown_as_the_style_says_and_fails_the_check(here: Path) -> None:
    write(here, {"train.py": FORGOTTEN_ZERO})
    done = zerograd("check", "train.py", cwd=here)
    assert done.returncode == 1
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert re.fullmatch(r"train\.py:7:5  ZG101 stale-gradient  \S.+", lines[0])
    assert lines[1:5] == [
        "    7 |     loss.backward()",
        "      |     ^^^^^^^^^^^^^^^ adds to .grad",
        "    8 |     optimizer.step()",
        "      |     ---------------- used here, in the previous iteration",
    ]
    assert lines[5].startswith("   help  ")
    assert lines[5].endswith("  [*] fixable with --fix")
    assert lines[-3:] == [
        "checked 1 file: 1 training loop: 1 wrong",
        "found 1 error",
        "fixable: 1 with --fix",
    ]


def test_without_a_terminal_there_is_no_colour(here: Path) -> None:
    write(here, {"train.py": FORGOTTEN_ZERO})
    assert "\x1b" not in zerograd("check", ".", cwd=here).stdout
    assert "\x1b" in zerograd("check", ".", "--color", "always", cwd=here, NO_COLOR="1").stdout


def on_a_terminal(*words: str, cwd: Path, **env: str) -> str:
    """What the command writes to a terminal."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "zerograd", *words],
        cwd=cwd,
        env=environment(cwd / ".cache", TERM="xterm", **env),
        stdout=theirs,
        stderr=theirs,
        stdin=theirs,
    ) as running:
        os.close(theirs)
        written = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:
                break
            if not part:
                break
            written += part
        running.wait(30)
    os.close(ours)
    return written.decode()


def test_on_a_terminal_there_is_colour_unless_it_is_refused(here: Path) -> None:
    write(here, {"train.py": FORGOTTEN_ZERO})
    assert "\x1b[" in on_a_terminal("check", ".", cwd=here)
    assert "\x1b[" not in on_a_terminal("check", ".", cwd=here, NO_COLOR="1")
    assert "\x1b[" not in on_a_terminal("check", ".", "--color", "never", cwd=here)
    assert "\x1b[" not in on_a_terminal("check", ".", cwd=here, NO_COLOR="1", FORCE_COLOR="1")
    assert "\x1b[" in zerograd("check", ".", cwd=here, FORCE_COLOR="1").stdout
    assert "\x1b[" in zerograd("run", "train.py", cwd=here, FORCE_COLOR="1").stderr


@pytest.mark.parametrize("stream", ["1", "2"])
def test_a_closed_stream_changes_only_what_is_seen(here: Path, stream: str) -> None:
    write(here, {"train.py": FORGOTTEN_ZERO})
    done = in_a_shell(f"check {stream}>&-", here)
    assert done.returncode == 1
    assert ("ZG101" in done.stdout, done.stderr) == (stream == "2", "")


@pytest.mark.parametrize(
    "words",
    [
        ["check", "--write-baseline", "train.py"],
        ["check", "--output", "train.py", "."],
        ["run", "--html", "train.py", "train.py"],
        ["run", "--record", "train.py", "train.py"],
    ],
)
def test_a_report_replaces_no_source_code(here: Path, words: list[str]) -> None:
    write(here, {"train.py": FORGOTTEN_ZERO})
    done = zerograd(*words, cwd=here)
    assert done.returncode == 2
    assert "train.py is source code, which a report would replace" in done.stderr
    assert (here / "train.py").read_text() == FORGOTTEN_ZERO


def test_the_output_may_be_named_by_a_dash(here: Path) -> None:
    write(here, {"train.py": FORGOTTEN_ZERO})
    assert "ZG101" in zerograd("check", "--output", "-", cwd=here).stdout
    assert not (here / "-").exists()


def test_a_full_disk_is_named(here: Path) -> None:
    write(here, {"train.py": FORGOTTEN_ZERO})
    done = in_a_shell("check >/dev/full", here)
    assert done.returncode == 2
    assert done.stderr == "zerograd: the output cannot be written: no space is left on the device\n"


def test_a_directory_that_is_gone_is_said(here: Path) -> None:
    done = in_a_shell("check", here, before="mkdir gone; cd gone; rmdir ../gone; ")
    assert done.returncode == 2
    assert done.stderr == "zerograd: the current directory is gone; change into another one\n"


def in_a_shell(words: str, here: Path, before: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        f"{before}{sys.executable} -m zerograd {words}",
        shell=True,
        cwd=here,
        env=environment(here / ".cache"),
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_excerpt_is_the_same_with_and_without_colour(here: Path) -> None:
    write(here, {"train.py": FORGOTTEN_ZERO})
    colored = zerograd("check", ".", "--color", "always", cwd=here).stdout
    assert re.sub(r"\x1b\[[0-9;]*m", "", colored) == zerograd("check", ".", cwd=here).stdout


def test_standard_input_is_checked_under_the_name_it_is_given(here: Path) -> None:
    done = zerograd("check", "-", cwd=here, stdin=FORGOTTEN_ZERO)
    assert done.returncode == 1
    assert done.stdout.startswith("<stdin>:7:5  ZG101 ")
    assert "loss.backward()" in done.stdout
    named = zerograd(
        "check", "-", "--stdin-filename", "src/train.py", cwd=here, stdin=FORGOTTEN_ZERO
    )
    assert named.stdout.startswith("src/train.py:7:5  ZG101 ")


def test_a_notebook_may_come_from_standard_input(here: Path) -> None:
    head, loop = FORGOTTEN_ZERO.split("for ")
    cells = [{"cell_type": "code", "source": text} for text in (head, f"for {loop}")]
    done = zerograd(
        "check",
        "-",
        "--stdin-filename=a.ipynb",
        "--format=concise",
        cwd=here,
        stdin=json.dumps({"cells": cells}),
    )
    assert done.stdout.startswith("a.ipynb:cell 2:3:5: ZG101 ")


def test_settings_above_the_name_hold_for_standard_input(here: Path) -> None:
    write(here, {"lib/pyproject.toml": "[tool.zerograd]\nignore = ['ZG101']\n"})
    done = zerograd("check", "-", "--stdin-filename", "lib/a.py", cwd=here, stdin=FORGOTTEN_ZERO)
    assert done.returncode == 0


def test_empty_input_is_clean(here: Path) -> None:
    write(here, {"empty.py": ""})
    assert zerograd("check", "-", cwd=here, stdin="").returncode == 0
    assert zerograd("check", "empty.py", cwd=here).returncode == 0


def test_possible_findings_are_shown_to_the_pedantic(here: Path) -> None:
    write(here, {"train.py": POSSIBLE})
    assert zerograd("check", ".", cwd=here).returncode == 0
    done = zerograd("check", ".", "--pedantic", cwd=here)
    assert done.returncode == 1
    assert "ZG101 stale-gradient (possible)" in done.stdout
    write(here, {"pyproject.toml": "[tool.zerograd]\npedantic = true\n"})
    assert zerograd("check", ".", cwd=here).returncode == 1


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--select", "ZG101"], 1),
        (["--select", "stale-gradient,ZG2"], 1),
        (["--select", "ZG2", "--select", "ZG1"], 1),
        (["--select", "ZG2"], 0),
        (["--ignore", "ZG1"], 0),
        (["--ignore", "stale-gradient"], 0),
        (["--select", "ZG1", "--ignore", "ZG101"], 0),
        (["--exit-zero"], 0),
    ],
)
def test_rules_are_chosen_on_the_command_line(here: Path, words: list[str], code: int) -> None:
    write(here, {"train.py": FORGOTTEN_ZERO})
    assert zerograd("check", "train.py", *words, cwd=here).returncode == code


def test_advice_is_shown_and_fails_only_where_it_was_selected(here: Path) -> None:
    write(here, {"train.py": ADVICE})
    shown = zerograd("check", ".", "--format", "json", cwd=here)
    assert shown.returncode == 0
    printed = codes(shown.stdout)
    assert printed
    assert {finding["level"] for finding in json.loads(shown.stdout)["findings"]} == {"advice"}
    assert zerograd("check", ".", "--select", printed[0], cwd=here).returncode == 1
    assert zerograd("check", ".", "--select", "ALL", cwd=here).returncode == 0
    write(here, {"pyproject.toml": f"[tool.zerograd]\nselect = ['{printed[0]}']\n"})
    assert zerograd("check", ".", cwd=here).returncode == 1


def test_settings_choose_rules_for_the_files_below_them(here: Path) -> None:
    write(
        here,
        {
            "pyproject.toml": "[tool.zerograd]\nper-file-ignores = { 'a/*' = ['ZG101'] }\n",
            "a/train.py": FORGOTTEN_ZERO,
            "b/train.py": FORGOTTEN_ZERO,
            "c/pyproject.toml": "[tool.zerograd]\nignore = ['stale-gradient']\n",
            "c/train.py": FORGOTTEN_ZERO,
        },
    )
    done = zerograd("check", ".", "--format", "concise", cwd=here)
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == ["b/train.py"]


def test_select_on_the_command_line_replaces_the_settings_ignore_adds_to_them(here: Path) -> None:
    write(here, {"train.py": FORGOTTEN_ZERO, "pyproject.toml": "[tool.zerograd]\nselect=['ZG2']\n"})
    assert zerograd("check", ".", cwd=here).returncode == 0
    assert zerograd("check", ".", "--select", "ZG1", cwd=here).returncode == 1
    write(here, {"pyproject.toml": "[tool.zerograd]\nignore=['ZG101']\n"})
    assert zerograd("check", ".", "--ignore", "ZG2", cwd=here).returncode == 0


@pytest.mark.parametrize("option", ["--select", "--ignore"])
def test_an_unknown_rule_is_refused_with_its_neighbours(here: Path, option: str) -> None:
    write(here, {"train.py": FORGOTTEN_ZERO})
    done = zerograd("check", ".", option, "stale-gradients", cwd=here)
    assert (done.returncode, done.stdout) == (2, "")
    assert "unknown rule 'stale-gradients'; did you mean stale-gradient (ZG101)" in done.stderr


def test_an_empty_selection_is_refused(here: Path) -> None:
    write(here, {"train.py": FORGOTTEN_ZERO})
    done = zerograd("check", ".", "--select", ",", cwd=here)
    assert done.returncode == 2
    assert "--select" in done.stderr


def test_statistics_count_by_rule(here: Path) -> None:
    write(here, {"a.py": FORGOTTEN_ZERO, "b.py": FORGOTTEN_ZERO})
    done = zerograd("check", ".", "--statistics", cwd=here)
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "    2  ZG101  stale-gradient  (error)",
        "checked 2 files: 2 training loops: 2 wrong",
        "found 2 errors",
        "fixable: 2 with --fix",
    ]
    assert zerograd("check", ".", "--statistics", "--format", "json", cwd=here).returncode == 2


def test_a_report_may_go_to_a_file(here: Path) -> None:
    write(here, {"train.py": FORGOTTEN_ZERO})
    done = zerograd("check", ".", "--format", "json", "--output", "report.json", cwd=here)
    assert (done.returncode, done.stdout) == (1, "")
    assert codes((here / "report.json").read_text()) == ["ZG101"]
    refused = zerograd("check", ".", "--output", "missing/report.json", cwd=here)
    assert refused.returncode == 2
    assert "missing/report.json" in refused.stderr


def test_exclude_and_include_tests(here: Path) -> None:
    write(here, {"a.py": RIGHT, "old/b.py": FORGOTTEN_ZERO, "tests/test_c.py": FORGOTTEN_ZERO})
    assert zerograd("check", ".", "--exclude", "old", cwd=here).returncode == 0
    done = zerograd("check", ".", "--exclude", "old", "--include-tests", cwd=here)
    assert done.stdout.startswith("tests/test_c.py:7:5 ")


@pytest.mark.parametrize("jobs", ["1", "3"])
def test_the_number_of_processes_changes_nothing(here: Path, jobs: str) -> None:
    write(here, {f"a{number}.py": FORGOTTEN_ZERO for number in range(30)})
    done = zerograd("check", ".", "--jobs", jobs, "--no-cache", "--format=concise", cwd=here)
    assert len(done.stdout.splitlines()) == 30
    assert done.stdout.splitlines() == sorted(done.stdout.splitlines())


@pytest.mark.parametrize("jobs", ["0", "-1", "many"])
def test_a_number_of_processes_that_is_none_is_refused(here: Path, jobs: str) -> None:
    done = zerograd("check", ".", f"--jobs={jobs}", cwd=here)
    assert done.returncode == 2
    assert jobs in done.stderr


def test_the_cache_changes_nothing_but_the_time(here: Path) -> None:
    write(here, {"a.py": FORGOTTEN_ZERO, "b.py": RIGHT, "c.py": "def f(:\n  x.backward()\n"})
    for path in here.iterdir():
        os.utime(path, (1_600_000_000, 1_600_000_000))
    first = zerograd("check", ".", cwd=here)
    assert list(here.with_name("project.cache").iterdir())
    second = zerograd("check", ".", cwd=here)
    third = zerograd("check", ".", "--no-cache", cwd=here)
    assert first.stdout == second.stdout == third.stdout
    write(here, {"a.py": RIGHT})
    assert "ZG101" not in zerograd("check", ".", cwd=here).stdout


def test_a_changed_import_is_noticed_through_the_cache(here: Path) -> None:
    train = """\
import torch
from helper import clear

def train(model, optimizer, loader):
    for x, y in loader:
        clear(optimizer)
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
"""
    helper = "import torch\n\ndef clear(optimizer):\n    {}\n"
    write(here, {"train.py": train, "helper.py": helper.format("optimizer.zero_grad()")})
    for path in here.iterdir():
        os.utime(path, (1_600_000_000, 1_600_000_000))
    assert zerograd("check", ".", cwd=here).returncode == 0
    write(here, {"helper.py": helper.format("print('nothing')")})
    assert zerograd("check", ".", cwd=here).returncode == 1


def test_what_is_read_is_never_run(here: Path) -> None:
    trap = f"open('trap', 'w')\nimport trap_module\n{FORGOTTEN_ZERO}"
    write(here, {"train.py": trap, "trap_module.py": "open('trap', 'w')\nx.backward()\n"})
    assert zerograd("check", ".", cwd=here).returncode == 1
    assert not (here / "trap").exists()


def test_a_reader_that_has_read_enough_ends_it_quietly(here: Path) -> None:
    write(here, {f"a{number}.py": FORGOTTEN_ZERO for number in range(300)})
    with subprocess.Popen(
        [sys.executable, "-m", "zerograd", "check", "."],
        cwd=here,
        env=environment(here / ".cache"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.read(10)
        running.stdout.close()
        assert running.stderr.read() == b""


def test_a_check_that_takes_long_says_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    progress = output.Progress("checking: {done} of {total} files")
    progress.show(1, 9)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(output.Progress, "AFTER", 0.0)
    late = output.Progress("checking: {done} of {total} files")
    late.show(7, 9)
    late.show(8, 9)
    late.end()
    assert capsys.readouterr().err == "\r\x1b[Kchecking: 7 of 9 files\r\x1b[K"


def test_help_teaches_by_examples(here: Path) -> None:
    done = zerograd("--help", cwd=here)
    assert done.returncode == 0
    assert "zerograd check ." in done.stdout
    inner = zerograd("check", "--help", cwd=here)
    for word in ("allow[", "[tool.zerograd]", "exit: 0", "--format sarif"):
        assert word in inner.stdout


def test_the_version_is_printed(here: Path) -> None:
    assert zerograd("--version", cwd=here).stdout == f"zerograd {__version__}\n"


@pytest.mark.parametrize("word", ["ZG101", "zg101", "stale-gradient"])
def test_explain_prints_the_page_of_a_rule(here: Path, word: str) -> None:
    done = zerograd("explain", word, cwd=here)
    assert done.returncode == 0
    assert done.stdout.startswith("ZG101 stale-gradient (error)\n\n")
    assert "optimizer.zero_grad()" in done.stdout


def test_explain_prints_the_reasons_for_which_a_rule_is_silent(here: Path) -> None:
    done = zerograd("explain", "ZG501", cwd=here)
    assert Excuse.OTHER_ARM.value in done.stdout
    assert Excuse.OTHER_ARM.reason in " ".join(done.stdout.split())


def test_explain_alone_lists_every_rule(here: Path) -> None:
    from zerograd.rules.catalogue import RULES

    done = zerograd("explain", cwd=here)
    listed = re.findall(r"^(ZG\d{3})  ([\w-]+) ", done.stdout, re.MULTILINE)
    expected = {(rule.code, rule.name) for rule in RULES} | {("ZG001", "unused-allow")}
    assert set(listed) == expected
    assert listed == sorted(listed)


def test_explain_of_a_group_lists_it_and_of_no_rule_is_refused(here: Path) -> None:
    group = zerograd("explain", "ZG2", cwd=here)
    assert all(line.startswith("ZG2") for line in group.stdout.splitlines())
    done = zerograd("explain", "stale", cwd=here)
    assert done.returncode == 2
    assert "stale-gradient (ZG101)" in done.stderr


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["check", "--help"]])
def test_what_needs_no_check_loads_none(here: Path, words: list[str]) -> None:
    code = (
        "import sys\nfrom zerograd.cli.main import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
        "sys.stderr.write(' '.join(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=here, capture_output=True, text=True, check=True
    )
    loaded = set(done.stderr.split())
    assert not loaded & {"ast", "json", "dataclasses", "multiprocessing", "tomllib", "difflib"}
    assert not {name for name in loaded if name.startswith(("zerograd.static", "zerograd.rules"))}
