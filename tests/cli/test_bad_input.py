"""Whatever a file holds: a clear message that names it, exit 2, and everything else is checked."""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from pathlib import Path

import pytest

from support import tiers
from support.command import FORGOTTEN_ZERO, write, zerograd
from support.warm_python import with_commands

# Enough to be looked at: it fills gradients and uses them.
USE = "import torch\nloss.backward()\nopt.step()\n"
BAD: dict[str, tuple[str | bytes, str]] = {
    "broken syntax": (USE + "for\n", "does not parse"),
    "Python 2": (USE + "print 'loss', loss\n", "is Python 2 (a print statement)"),
    "a null byte": (USE.encode() + b"\x00\n", "null byte"),
    "a wrong encoding": (USE.encode() + b"name = '\xe9'\n", "is not valid UTF-8"),
    "an unknown encoding": (b"# coding: klingon\n" + USE.encode(), "'klingon'"),
    "UTF-16": (USE.encode("utf-16"), "UTF-16"),
    "10,000 parentheses": (USE + "x = " + "(" * 10_000 + ")" * 10_000, "nested too deeply"),
    "10,000 operators": (USE + "x = 1" + " + 1" * 10_000, "nested too deeply"),
    "2,500 operators": (USE + "x = 1" + " + 1" * 2_500, "nested too deeply"),
    "5 MB of code": (USE + "x = 1\n" * 833_334, "too big"),
}


@pytest.fixture
def here(tmp_path: Path) -> Path:
    with_commands()  # what a test measures does not include its start
    folder = tmp_path / "project"
    folder.mkdir()
    return write(folder, {"good.py": FORGOTTEN_ZERO})


@pytest.mark.parametrize("what", BAD)
@pytest.mark.parametrize("named", tiers.sample([True, False]), ids=["named", "found"])
def test_a_bad_file_is_named_and_the_others_are_checked(here: Path, what: str, named: bool) -> None:
    content, printed = BAD[what]
    if what == "UTF-16" and not named:
        pytest.skip("its bytes do not spell a call, so it is not looked at")
    write(here, {"bad.py": content})
    start = time.monotonic()
    done = zerograd("check", *(["good.py", "bad.py"] if named else ["."]), cwd=here)
    assert time.monotonic() - start < 5
    assert done.returncode == 2
    (problem,) = (line for line in done.stdout.splitlines() if line.startswith("bad.py"))
    assert printed in problem
    assert "good.py:7:5  ZG101" in done.stdout
    assert "1 error, 1 problem" in done.stdout


def test_a_named_file_that_touches_no_gradient_is_read_all_the_same(here: Path) -> None:
    write(here, {"bad.py": "def f(:\n", "sub/bad.py": "def f(:\n"})
    assert zerograd("check", "bad.py", cwd=here).returncode == 2
    assert zerograd("check", ".", "--exclude", "good.py", cwd=here).returncode == 0


def test_a_byte_order_mark_and_windows_line_ends_are_no_problem(here: Path) -> None:
    windows = FORGOTTEN_ZERO.replace("\n", "\r\n").encode("utf-8-sig")
    write(here, {"good.py": windows})
    done = zerograd("check", "good.py", cwd=here)
    assert done.returncode == 1
    assert "good.py:7:5  ZG101" in done.stdout
    assert "\r" not in done.stdout


def test_a_column_counts_characters(here: Path) -> None:
    text = FORGOTTEN_ZERO.replace("    loss.backward()", "    'größe'; loss.backward()")
    write(here, {"good.py": text})
    done = zerograd("check", "good.py", cwd=here)
    assert "good.py:7:14  ZG101" in done.stdout
    assert "      |              ^^^^^^^^^^^^^^^ " in done.stdout


def test_a_missing_path_is_said(here: Path) -> None:
    done = zerograd("check", "missing.py", "good.py", cwd=here)
    assert done.returncode == 2
    assert "missing.py  problem  does not exist" in done.stdout
    assert "good.py:7:5  ZG101" in done.stdout


def test_a_directory_without_python_is_said(here: Path) -> None:
    write(here, {"docs/readme.md": ""})
    done = zerograd("check", "docs", cwd=here)
    assert done.returncode == 2
    assert "docs  problem  holds no Python file" in done.stdout


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_said_and_not_remembered(here: Path) -> None:
    write(here, {"closed.py": FORGOTTEN_ZERO})
    (here / "closed.py").chmod(0)
    done = zerograd("check", ".", cwd=here)
    assert done.returncode == 2
    assert "closed.py  problem  cannot be read: permission denied" in done.stdout
    assert "good.py:7:5  ZG101" in done.stdout
    (here / "closed.py").chmod(0o600)
    assert "closed.py:7:5  ZG101" in zerograd("check", ".", cwd=here).stdout


def test_a_circle_of_links_is_walked_once(here: Path) -> None:
    (here / "round").symlink_to(here, target_is_directory=True)
    (here / "self.py").symlink_to("self.py")
    done = zerograd("check", ".", cwd=here)
    assert done.returncode == 2
    assert "self.py  problem  is a symbolic link that leads back to itself" in done.stdout
    assert done.stdout.count("ZG101") == 1


@pytest.mark.parametrize("text", ["this is backward", "[]", '{"cells": "backward"}'])
def test_a_notebook_that_is_none_is_said(here: Path, text: str) -> None:
    write(here, {"bad.ipynb": text})
    done = zerograd("check", "bad.ipynb", "good.py", cwd=here)
    assert done.returncode == 2
    assert "bad.ipynb" in done.stdout
    assert "is not a notebook" in done.stdout
    assert "good.py:7:5  ZG101" in done.stdout


def test_a_broken_cell_is_said_and_the_others_are_checked(here: Path) -> None:
    cells = [{"cell_type": "code", "source": text} for text in ("for for\n", FORGOTTEN_ZERO)]
    write(here, {"nb.ipynb": json.dumps({"cells": cells})})
    done = zerograd("check", "nb.ipynb", cwd=here)
    assert done.returncode == 2
    assert "cell 1 line 1 does not parse" in done.stdout
    assert "nb.ipynb:cell 2:7:5  ZG101" in done.stdout


@pytest.mark.parametrize(
    ("text", "line"),
    [("[tool.zerograd\n", 1), ("this is not toml ][\n", 1), ("[tool.zerograd]\nselect = 3\n", 2)],
)
def test_a_broken_pyproject_is_said_and_the_check_goes_on(here: Path, text: str, line: int) -> None:
    write(here, {"pyproject.toml": text})
    for path in (".", "good.py"):
        done = zerograd("check", path, cwd=here)
        assert done.returncode == 2
        assert f"pyproject.toml:{line}  problem  " in done.stdout
        assert "good.py:7:5  ZG101" in done.stdout


def test_an_unknown_rule_in_the_settings_is_said_even_when_all_is_well(here: Path) -> None:
    write(here, {"pyproject.toml": "[tool.zerograd]\nignore = ['ZG999', 'ZG101']\n"})
    done = zerograd("check", ".", cwd=here)
    assert done.returncode == 2
    assert "unknown rule 'ZG999'" in done.stdout
    assert "good.py" not in done.stdout


def test_a_file_deep_and_wide_ends_in_time(here: Path) -> None:
    deep = "".join("    " * n + f"for x{n} in y:\n" for n in range(18))
    deep += "    " * 18 + "loss.backward()\n" + "    " * 18 + "optimizer.step()\n"
    wide = "for x in y:\n" + "".join(
        f"    if a{n}:\n        opt{n}.zero_grad()\n    loss.backward()\n    opt{n}.step()\n"
        for n in range(300)
    )
    write(here, {"deep.py": f"import torch\n{deep}", "wide.py": f"import torch\n{wide}"})
    for name in ("deep.py", "wide.py"):
        before = _processor_time()
        done = zerograd("check", name, cwd=here, PYTHONHASHSEED="0")  # in a process of its own
        assert done.returncode in (0, 1, 2)
        # Two seconds for the file, and the start of the process.
        assert _processor_time() - before < 4


def _processor_time() -> float:
    """That of the processes that have ended: a busy machine does not change it much."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


# Files that a directory holds, and nobody named

NEWER = {
    "a type statement": "type Pair = tuple[int, int]\n",
    "a generic function": "def first[T](items: list[T]) -> T: ...\n",
    "a generic class": "class Box[T]: ...\n",
    "quotes inside an f-string": "print(f'{x['a']}')\n",
}


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="this Python reads them")
@pytest.mark.parametrize("what", NEWER)
def test_a_file_for_a_newer_python_is_skipped_unless_it_is_named(here: Path, what: str) -> None:
    write(here, {"newer.py": USE + NEWER[what]})
    done = zerograd("check", ".", "--format", "json", cwd=here)
    report = json.loads(done.stdout)
    assert done.returncode == 1
    assert report["skipped"] == [{"path": "newer.py", "message": "needs Python 3.12 to read"}]
    assert report["errors"] == []
    assert "newer.py:4  skipped" in zerograd("check", ".", cwd=here).stdout
    assert zerograd("check", "newer.py", cwd=here).returncode == 2


def test_a_file_that_does_not_parse_and_does_not_train_is_skipped(here: Path) -> None:
    write(here, {"template.py": "loss.backward()\nopt.step()\n{{ name }} = = 1\n"})
    done = zerograd("check", ".", "--format", "json", cwd=here)
    assert done.returncode == 1
    assert [one["path"] for one in json.loads(done.stdout)["skipped"]] == ["template.py"]
    assert zerograd("check", "template.py", cwd=here).returncode == 2
