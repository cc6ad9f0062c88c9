"""docs/claims.md: the command of every row prints what the row says, and its test exists."""

from __future__ import annotations

import ast
import io
import re
import shlex
from collections import defaultdict
from contextlib import redirect_stdout
from functools import cache
from typing import NamedTuple

import pytest

from support import tiers
from support.command import zerograd
from support.paths import ROOT
from zerograd.cli.main import main

PAGE = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")


class Row(NamedTuple):
    """One claim."""

    claim: str
    true: str
    command: str
    words: str
    test: str


def rows() -> list[Row]:
    found = []
    for line in PAGE.splitlines():
        if line.startswith("|") and not line.startswith(("|---", "| claim |")):
            cells = re.split(r"(?<!\\)\|", line.strip().strip("|"))
            found.append(Row(*(cell.strip().replace(r"\|", "|") for cell in cells)))
    return found


ROWS = rows()


def by_command() -> dict[str, list[Row]]:
    found = defaultdict(list)
    for row in ROWS:
        found[row.command.strip("`")].append(row)
    return dict(found)


def flat(text: str) -> str:
    """The text in one line, without backticks."""
    return " ".join(text.replace("`", "").split())


@cache
def said(command: str) -> tuple[int, str]:
    """The exit code and the output of a command."""
    program, *words = shlex.split(command)
    assert program == "zerograd"
    if words[0] == "learn":
        pytest.importorskip("torch")
        out = io.StringIO()
        with redirect_stdout(out):
            code = main(words)
        return code, out.getvalue()
    if words[0] == "run":
        pytest.importorskip("torch")
    done = zerograd(*words, cwd=ROOT)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    "command",
    tiers.sample(
        sorted(by_command()),
        [
            one
            for one in by_command()
            if not re.search(r" run |lesson [48]|check (?!examples/correct)", one)
        ],
    ),
)
def test_the_command_says_what_its_rows_promise(command: str) -> None:
    code, out = said(command)
    finds = any("ZG" in row.words for row in by_command()[command])
    assert code == int(finds and command.split()[1] in ("check", "run")), out
    for row in by_command()[command]:
        looked_for = re.escape(flat(row.words)).replace("…", ".{1,80}?")
        assert re.search(looked_for, flat(out)), f"{command} does not say {row.words!r}:\n{out}"


@cache
def functions_of(name: str) -> set[str]:
    tree = ast.parse((ROOT / "tests" / name).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_row_names_a_test_that_exists() -> None:
    assert len(ROWS) > 60
    for row in ROWS:
        file, _, name = row.test.partition("::")
        assert name in functions_of(file), f"{row.claim}: there is no {row.test}"


def test_every_lesson_shows_something() -> None:
    from zerograd.learn.contents import LESSONS

    shown = {int(n) for n in re.findall(r"zerograd learn --lesson (\d+)", PAGE)}
    assert shown == {lesson.number for lesson in LESSONS}


def test_a_row_that_promises_something_else_is_noticed() -> None:
    _, out = said("zerograd check examples/correct.py")
    assert re.search(re.escape("1 training loop: 1 right"), flat(out))
    assert not re.search(re.escape("ZG101"), flat(out))


def test_every_claim_has_a_verdict() -> None:
    assert all(row.true and row.claim and row.words for row in ROWS)
    assert len({row.claim for row in ROWS}) == len(ROWS)
