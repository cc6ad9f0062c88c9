"""What a new user meets: suggestions for wrong words, and `zerograd doctor`."""

from __future__ import annotations

from pathlib import Path

import pytest

import zerograd as package
from support.command import FORGOTTEN_ZERO, RIGHT, write, zerograd
from zerograd.cli.commands import COMMANDS


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["chekc"], "; did you mean check?"),
        (["check", "--selct", "ZG1"], "unrecognized arguments: --selct"),
        (["check", "--selct=ZG1"], "; did you mean --select?"),
        (["run", "--hmtl", "page.html", "train.py"], "; did you mean --html?"),
        (["replay", "a.jsonl", "--outptu", "x"], "; did you mean --output?"),
        (["check", "--format", "jsn"], "; did you mean json?"),
        (["explain", "stale-gradent"], "did you mean stale-gradient (ZG101)"),
        (["--versoin"], "; did you mean --version?"),
        (["-q", "check"], "unrecognized arguments: -q; options come after the command"),
        (["train.py"], "unknown command 'train.py'; did you mean zerograd check train.py?"),
    ],
)
def test_an_unknown_command_or_option_gets_a_suggestion(
    tmp_path: Path, words: list[str], said: str
) -> None:
    done = zerograd(*words, cwd=write(tmp_path, {"train.py": RIGHT}))
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1 + ("see zerograd " in done.stderr), "no wall of options"


def test_without_a_command_the_help_is_shown(tmp_path: Path) -> None:
    done = zerograd(cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "examples:\n  zerograd check ." in done.stderr


@pytest.mark.parametrize("argument", ["--xyzzy", "--bogus"])
def test_an_argument_that_is_like_no_other_gets_no_suggestion(
    argument: str, tmp_path: Path
) -> None:
    done = zerograd("enable", argument, cwd=tmp_path)
    assert done.returncode == 2
    assert f"unrecognized arguments: {argument}" in done.stderr
    assert "did you mean" not in done.stderr


def test_doctor_says_what_is_there(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    write(tmp_path, {"pyproject.toml": "[tool.zerograd]\npedantc = true\n"})
    done = zerograd("doctor", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"zerograd     {package.__version__} (" in done.stdout
    assert str(tmp_path / "pyproject.toml") in done.stdout
    assert "did you mean pedantic?" in done.stdout
    assert "not watched  optimizers that are not a torch.optim.Optimizer" in done.stdout
    assert "libraries    pytest " in done.stdout
    assert "enabled      no: zerograd enable" in done.stdout
    assert ", for zerograd server" in done.stdout
    assert ", for zerograd mcp" in done.stdout


def test_doctor_says_why_nothing_is_watched_without_torch(tmp_path: Path) -> None:
    write(tmp_path, {"torch/__init__.py": "raise ImportError('no torch here')\n"})
    done = zerograd("doctor", cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert "run        not possible: " in done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_can_say_less_and_more(tmp_path: Path, command: str) -> None:
    shown = zerograd(command, "--help", cwd=tmp_path).stdout
    assert "-q, --quiet" in shown
    assert "-v, --verbose" in shown


def test_a_quiet_check_prints_findings_and_nothing_else(tmp_path: Path) -> None:
    write(tmp_path, {"right.py": RIGHT, "wrong.py": FORGOTTEN_ZERO})
    assert zerograd("check", "-q", "right.py", cwd=tmp_path).stdout == ""
    shown = zerograd("check", "-q", "wrong.py", cwd=tmp_path).stdout
    assert shown.startswith("wrong.py:7:5  ZG101")
    assert "checked" not in shown
    done = zerograd("check", "-q", "--write-baseline", "known.json", cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("", "")


def test_a_verbose_check_says_what_it_uses_and_how_long_it_takes(tmp_path: Path) -> None:
    write(tmp_path, {"right.py": RIGHT, "pyproject.toml": "[tool.zerograd]\npedantic = true\n"})
    said = zerograd("check", "-v", ".", cwd=tmp_path).stderr
    assert f"zerograd: settings of {tmp_path / 'pyproject.toml'}" in said
    assert "zerograd: 0 of 1 files are unchanged" in said
    assert said.splitlines()[-1].startswith("zerograd: took ")


def test_what_can_be_repaired_is_marked_and_counted_with_and_without_the_cache(
    tmp_path: Path,
) -> None:
    unsafe = FORGOTTEN_ZERO.replace(
        "loss.backward()", "optimizer.zero_grad()\n    loss.backward(loss)"
    )
    write(tmp_path, {"safe.py": FORGOTTEN_ZERO, "unsafe.py": unsafe})
    first, again = (zerograd("check", ".", cwd=tmp_path).stdout for _ in range(2))
    assert first == again
    assert first.count("  [*] fixable with --fix\n") == 1
    assert first.count("  [*] fixable with --unsafe-fixes\n") == 1
    assert first.endswith("fixable: 1 with --fix, 1 more with --unsafe-fixes\n")
    assert zerograd("check", ".", "--format", "concise", cwd=tmp_path).stdout.count("[*]") == 0
