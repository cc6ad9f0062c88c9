"""`--diff-base`: only findings with an end in a function that differs from the merge base."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from support.command import FORGOTTEN_ZERO, write, zerograd

HEAD = "import torch\nmodel = torch.nn.Linear(1, 1)\noptimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
TRAIN = """
def train_{name}(loader):
    for x in loader:
        loss = model(x).mean()
        loss.backward()
        optimizer.step()
"""
TWO = HEAD + TRAIN.format(name="a") + TRAIN.format(name="b")


def git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a file of two wrong functions, and a branch for a change."""
    write(tmp_path, {"sub/two.py": TWO, "old.py": FORGOTTEN_ZERO})
    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "old")
    git(tmp_path, "switch", "-q", "-c", "change")
    return tmp_path


def found(folder: Path, *words: str) -> list[tuple[str, int]]:
    done = zerograd("check", "--diff-base", "main", "--format", "json", *words, cwd=folder)
    assert done.returncode in (0, 1), done.stderr
    return [(one["path"], one["line"]) for one in json.loads(done.stdout)["findings"]]


def test_without_a_change_nothing_is_shown_and_all_is_counted(repository: Path) -> None:
    done = zerograd("check", "--diff-base", "main", cwd=repository)
    assert done.returncode == 0
    assert "not shown: 3 in unchanged code" in done.stdout


def test_only_the_function_that_differs_is_reported(repository: Path) -> None:
    changed = TWO.replace("def train_b(loader):", "def train_b(loader):\n    print(1)")
    write(repository, {"sub/two.py": "# a comment above moves all lines\n" + changed})
    assert found(repository) == [("sub/two.py", 16)]
    assert found(repository / "sub") == [("two.py", 16)]
    git(repository, "commit", "-q", "-a", "-m", "new")
    assert found(repository) == [("sub/two.py", 16)]


def test_code_outside_of_functions_is_one_piece(repository: Path) -> None:
    write(repository, {"old.py": FORGOTTEN_ZERO + "print(loss)\n"})
    assert found(repository) == [("old.py", 7)]


def test_an_untracked_file_is_new(repository: Path) -> None:
    write(repository, {"new.py": FORGOTTEN_ZERO})
    assert found(repository) == [("new.py", 7)]


def test_a_file_that_cannot_be_read_fails_only_the_change_that_touches_it(repository: Path) -> None:
    write(repository, {"broken.py": FORGOTTEN_ZERO + "def"})
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", "broken before")
    git(repository, "branch", "-f", "main")
    done = zerograd("check", "--diff-base", "main", cwd=repository)
    assert done.returncode == 0
    assert "not shown: 4 in unchanged code" in done.stdout
    write(repository, {"broken.py": FORGOTTEN_ZERO + "class"})
    done = zerograd("check", "--diff-base", "main", cwd=repository)
    assert done.returncode == 2
    assert "broken.py:9  problem" in done.stdout


def test_a_renamed_file_is_not_new(repository: Path) -> None:
    git(repository, "mv", "old.py", "renamed.py")
    assert found(repository) == []


def test_what_the_other_branch_did_since_does_not_count(repository: Path) -> None:
    git(repository, "switch", "-q", "main")
    write(repository, {"old.py": FORGOTTEN_ZERO + "print(loss)\n"})
    git(repository, "commit", "-q", "-a", "-m", "elsewhere")
    git(repository, "switch", "-q", "change")
    assert found(repository) == []


def test_a_change_at_the_other_end_shows_the_finding(repository: Path) -> None:
    helper = "def backward_of(loss):\n    loss.backward()\n"
    loop = "for x in loader:\n    backward_of(model(x).mean())\n    optimizer.step()\n"
    caller = f"{HEAD}from helper import backward_of\n{loop}"
    write(repository, {"helper.py": helper, "caller.py": caller})
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", "more")
    git(repository, "branch", "-f", "main")
    assert found(repository) == []
    write(repository, {"caller.py": caller + "print(1)\n"})
    assert found(repository) == [("helper.py", 2)]


@pytest.mark.parametrize("revision", ["nowhere", "--output=x", "main:old.py", ""])
def test_a_revision_that_does_not_exist_is_named(repository: Path, revision: str) -> None:
    done = zerograd("check", f"--diff-base={revision}", cwd=repository)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"there is no revision {revision!r} here" in done.stderr
    assert not (repository / "x").exists()


def test_a_directory_without_git_is_named(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": FORGOTTEN_ZERO})
    ceiling = str(tmp_path.parent)
    done = zerograd("check", "--diff-base", "main", cwd=tmp_path, GIT_CEILING_DIRECTORIES=ceiling)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--diff-base needs a git repository" in done.stderr


def test_a_fix_repairs_only_the_function_that_differs(repository: Path) -> None:
    changed = TWO.replace("def train_b(loader):", "def train_b(loader):\n    print(1)")
    write(repository, {"sub/two.py": changed})
    done = zerograd("check", "--diff-base", "main", "--fix", cwd=repository)
    assert done.returncode == 0, done.stdout
    assert "1 fixed, 0 remaining" in done.stdout
    before, _, after = (repository / "sub/two.py").read_text(encoding="utf-8").partition("train_b")
    assert "zero_grad" not in before
    assert after.count("optimizer.zero_grad()") == 1
