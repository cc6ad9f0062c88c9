"""What a new user meets: suggestions for wrong words, and `zerograd doctor`."""

from __future__ import annotations

from pathlib import Path

import pytest

import zerograd as package
from support.command import write, zerograd


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["chekc"], "; did you mean check?"),
        (["check", "--selct", "ZG1"], "unrecognized arguments: --selct"),
        (["check", "--selct=ZG1"], "; did you mean --select?"),
        (["run", "--hmtl", "page.html", "train.py"], "; did you mean --html?"),
        (["replay", "a.jsonl", "--outptu", "x"], "; did you mean --output?"),
    ],
)
def test_a_word_that_is_not_known_gets_a_suggestion(
    tmp_path: Path, words: list[str], said: str
) -> None:
    done = zerograd(*words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_a_word_that_is_like_no_other_gets_none(tmp_path: Path) -> None:
    done = zerograd("check", "--xyzzy", cwd=tmp_path)
    assert done.returncode == 2
    assert "unrecognized arguments: --xyzzy" in done.stderr
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


def test_doctor_says_why_nothing_is_watched_without_torch(tmp_path: Path) -> None:
    write(tmp_path, {"torch/__init__.py": "raise ImportError('no torch here')\n"})
    done = zerograd("doctor", cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert "run       not possible: " in done.stdout
