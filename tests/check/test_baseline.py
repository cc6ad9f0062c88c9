"""`--write-baseline` and `--baseline`: known findings are counted, new ones are shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.command import FORGOTTEN_ZERO, write, zerograd
from support.notebooks import notebook
from zerograd.check.function_texts import Function, enclosing, functions


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A project with one finding, which its baseline knows."""
    write(tmp_path, {"train.py": FORGOTTEN_ZERO})
    done = zerograd("check", "--write-baseline", "known.json", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert "known.json knows 1 finding;" in done.stderr
    return tmp_path


def test_a_known_finding_is_counted_and_not_shown(old: Path) -> None:
    done = zerograd("check", "--baseline", "known.json", cwd=old)
    assert done.returncode == 0
    assert done.stdout == "checked 1 file: 1 training loop: 1 wrong\nnot shown: 1 known\n"


def test_a_known_finding_stays_known_when_lines_move(old: Path) -> None:
    moved = FORGOTTEN_ZERO.replace("model =", "# one\n# two\n\nmodel =").replace("    ", "\t")
    write(old, {"train.py": moved})
    done = zerograd("check", "--baseline", "known.json", "--format", "json", cwd=old)
    found = json.loads(done.stdout)
    assert (done.returncode, found["findings"], found["known"]) == (0, [], 1)


def test_a_baseline_is_relative_to_its_own_directory(old: Path) -> None:
    below = write(old, {"deep/other.py": ""}) / "deep"
    done = zerograd("check", "--baseline", "../known.json", "..", cwd=below)
    assert done.returncode == 0
    assert "not shown: 1 known" in done.stdout


@pytest.mark.parametrize(
    "new",
    [
        {"train.py": FORGOTTEN_ZERO.replace("loss", "total")},
        {"other.py": FORGOTTEN_ZERO},
        {"train.py": FORGOTTEN_ZERO + FORGOTTEN_ZERO.partition("\n\n")[2]},
    ],
    ids=["other lines", "another file", "the same once more"],
)
def test_a_new_finding_is_shown(old: Path, new: dict[str, str]) -> None:
    write(old, new)
    done = zerograd("check", "--baseline", "known.json", "--format", "json", cwd=old)
    assert done.returncode == 1
    assert len(json.loads(done.stdout)["findings"]) == 1


def test_a_notebook_has_a_baseline_too(tmp_path: Path) -> None:
    write(tmp_path, {"a.ipynb": notebook("%matplotlib inline\n" + FORGOTTEN_ZERO)})
    assert zerograd("check", "--write-baseline", "known.json", cwd=tmp_path).returncode == 0
    write(tmp_path, {"a.ipynb": notebook("x = 1", "%matplotlib inline\n" + FORGOTTEN_ZERO)})
    done = zerograd("check", "--baseline", "known.json", cwd=tmp_path)
    assert (done.returncode, done.stdout.count("not shown: 1 known")) == (0, 1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "there is no baseline known.json"),
        ("{", "known.json is not a baseline"),
        ("[]", "it has version None, this zerograd reads version 1"),
        ('{"version": 7, "findings": []}', "it has version 7, this zerograd reads version 1"),
        ('{"version": 1}', "its findings are broken"),
        ('{"version": 1, "findings": [3]}', "its findings are broken"),
        (b"\xff\xfe", "known.json is not a baseline"),
    ],
)
def test_a_baseline_that_cannot_be_used_says_the_way_out(
    tmp_path: Path, text: str | bytes | None, said: str
) -> None:
    write(tmp_path, {"train.py": FORGOTTEN_ZERO, **({} if text is None else {"known.json": text})})
    done = zerograd("check", "--baseline", "known.json", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "zerograd check --write-baseline known.json" in done.stderr


def test_a_baseline_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": FORGOTTEN_ZERO})
    done = zerograd("check", "--write-baseline", "no/where.json", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "no/where.json cannot be written" in done.stderr


def test_a_fix_repairs_only_what_is_not_known(old: Path) -> None:
    again = FORGOTTEN_ZERO.partition("\n\n")[2].replace("(x)", "(2 * x)")
    write(old, {"train.py": FORGOTTEN_ZERO + again})
    shown = zerograd("check", "--diff", "--baseline", "known.json", cwd=old)
    assert "would fix 1, 0 remaining" in shown.stderr
    assert shown.stdout.count("+    optimizer.zero_grad()") == 1
    done = zerograd("check", "--fix", "--baseline", "known.json", cwd=old)
    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith("not shown: 1 known\n1 fixed, 0 remaining\n")
    kept = (old / "train.py").read_text(encoding="utf-8")
    assert kept.count("optimizer.zero_grad()") == 1, "only the new loop is repaired"
    assert kept.startswith(FORGOTTEN_ZERO)


LINES = """\
a = 1
class C:
    b = 2
    @wrapped
    def f(self):
        def g():
            return 1
        return g
c = 3""".split("\n")


def test_a_line_belongs_to_the_innermost_function() -> None:
    assert enclosing(LINES, 7) == Function("C.f.g", "        def g():\n            return 1")
    assert enclosing(LINES, 4).name == enclosing(LINES, 8).name == "C.f"
    assert (
        enclosing(LINES, 1)
        == enclosing(LINES, 9)
        == Function("", "a = 1\nclass C:\n    b = 2\nc = 3")
    )
    assert {one.name for one in functions(LINES)} == {"", "C.f", "C.f.g"}


def test_a_text_that_does_not_parse_is_one_piece() -> None:
    assert enclosing(["def f(:", "  x"], 2) == Function("", "def f(:\n  x")
