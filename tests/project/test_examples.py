"""Every script in examples/ prints what it says, and check finds what the README says."""

from __future__ import annotations

import ast
import re
import runpy
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from support import tiers
from support.example_scripts import EXAMPLES, SCRIPTS, table

TOGETHER = {path for path in SCRIPTS if "torchrun" in path.read_text(encoding="utf-8")}
"""Scripts for several ranks; test_run_ranks runs them."""
RAISES = re.compile(r"^It raises (?P<type>\w+): (?P<message>.+)$", re.MULTILINE)


def by_name(path: Path) -> str:
    return path.name


def docstring(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    assert text, f"{path.name} says nothing about itself"
    return text


def promised_output(path: Path) -> str:
    """The output according to the docstring: its indented lines."""
    lines = [line for line in docstring(path).splitlines() if line.startswith("    ")]
    return textwrap.dedent("\n".join(lines)) + "\n"


def test_the_readme_lists_exactly_the_scripts() -> None:
    assert sorted(table()) == [path.name for path in SCRIPTS]


@pytest.mark.parametrize(
    "path",
    [path for path in SCRIPTS if path not in TOGETHER and not RAISES.search(docstring(path))],
    ids=by_name,
)
def test_a_script_prints_what_it_promises(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out == promised_output(path)


@pytest.mark.parametrize(
    "path", [path for path in SCRIPTS if RAISES.search(docstring(path))], ids=by_name
)
def test_a_script_raises_what_it_promises(path: Path) -> None:
    pytest.importorskip("torch")
    promise = RAISES.search(docstring(path))
    assert promise is not None
    with pytest.raises(Exception, match=re.escape(promise["message"])) as caught:
        runpy.run_path(str(path), run_name="__main__")
    assert type(caught.value).__name__ == promise["type"]


def test_the_forgotten_zero_uses_8_where_5_is_right() -> None:
    assert "used by step() 8.0" in promised_output(EXAMPLES / "forgotten_zero_grad.py")
    assert "used by step() 5.0" in promised_output(EXAMPLES / "correct.py")


@pytest.mark.parametrize("path", SCRIPTS, ids=by_name)
def test_check_says_about_a_script_what_the_readme_says(path: Path) -> None:
    from zerograd.static.check_file import check_file

    found = [finding.code for finding in check_file(path, pedantic=True).findings]
    assert found == table()[path.name]


@tiers.long
def test_the_example_tests_fail_where_they_say_so() -> None:
    def run(*words: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "addopts="]
        done = subprocess.run(
            [*command, *words, "examples/tests"],
            cwd=EXAMPLES.parent,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout

    code, said = run()
    assert code == 0, said
    code, said = run("--zerograd")
    assert code == 1, said
    assert "1 failed, 3 passed" in said
    assert "FAILED examples/tests/test_training.py::test_the_loss_falls_without_a_clear" in said
