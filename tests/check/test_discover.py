"""Which files a check takes, on real directories."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from support.command import write
from zerograd.check.discover import EXCLUDED, Discovery
from zerograd.check.settings import DEFAULT

CODE = "x = 1\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory to stand in."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def taken(*paths: str, exclude: tuple[str, ...] = (), include_tests: bool = False) -> list[str]:
    discovery = Discovery(exclude, include_tests=include_tests)
    for path in paths:
        discovery.add(path)
    assert not discovery.found.problems
    return [target.path for target in discovery.found.targets]


def problem(path: str) -> str:
    discovery = Discovery()
    discovery.add(path)
    assert not discovery.found.targets
    (found,) = discovery.found.problems
    assert found.path == path
    return found.message


def test_python_files_and_notebooks_are_taken_in_order(here: Path) -> None:
    write(here, dict.fromkeys(["b.py", "a/z.py", "a/n.ipynb", "c.txt", "a.py", "d/e/f.py"], CODE))
    assert taken(".") == ["a.py", "b.py", "a/n.ipynb", "a/z.py", "d/e/f.py"]


def test_paths_are_printed_as_they_were_given(here: Path) -> None:
    write(here, {"src/a.py": CODE})
    assert taken("src") == taken("src/") == ["src/a.py"]
    assert taken(str(here / "src")) == [str(here / "src" / "a.py")]


def test_a_file_given_twice_is_taken_once(here: Path) -> None:
    write(here, {"a.py": CODE})
    assert taken("a.py", ".", "./a.py", "./") == ["a.py"]


@pytest.mark.parametrize("name", sorted(EXCLUDED))
def test_directories_that_hold_no_code_of_ones_own_are_left_out(here: Path, name: str) -> None:
    write(here, {f"{name}/a.py": CODE, f"src/{name}/a.py": CODE, "b.py": CODE})
    assert taken(".") == ["b.py"]


def test_a_virtual_environment_is_recognised_by_its_mark(here: Path) -> None:
    write(here, {"myenv/pyvenv.cfg": "", "myenv/lib/a.py": CODE, "b.py": CODE})
    assert taken(".") == ["b.py"]


def test_a_directory_that_is_named_is_entered_whatever_its_name(here: Path) -> None:
    write(here, {"build/a.py": CODE, "env/pyvenv.cfg": "", "env/a.py": CODE})
    assert taken("build", "env") == ["build/a.py", "env/a.py"]


def test_tests_are_left_out_unless_asked_for(here: Path) -> None:
    tests = ["conftest.py", "test_a.py", "a_test.py", "tests/a.py", "pkg/test/b.py"]
    write(here, dict.fromkeys([*tests, "test.py", "latest.py", "testing/a.py"], CODE))
    assert taken(".") == ["latest.py", "test.py", "testing/a.py"]
    assert set(taken(".", include_tests=True)) > set(tests)


def test_a_test_that_is_named_is_taken(here: Path) -> None:
    write(here, {"tests/test_a.py": CODE})
    assert taken("tests/test_a.py") == ["tests/test_a.py"]


def test_a_named_file_is_taken_whatever_excludes_it(here: Path) -> None:
    write(here, {".gitignore": "*.py\n", "build/a.txt": CODE})
    assert taken("build/a.txt", exclude=("build",)) == ["build/a.txt"]


def test_where_there_is_nothing_to_check_this_is_said(here: Path) -> None:
    write(here, {"docs/readme.md": "", "tests/test_a.py": CODE})
    assert "no Python file" in problem("docs")
    assert "--include-tests" in problem("tests")


def test_what_is_missing_is_said(here: Path) -> None:
    assert problem("missing.py") == "does not exist"


def test_a_pipe_is_not_waited_for(here: Path) -> None:
    os.mkfifo(here / "pipe.py")
    assert "not a regular file" in problem("pipe.py")
    assert "no Python file" in problem(".")


def test_a_link_to_itself_is_said(here: Path) -> None:
    (here / "a.py").symlink_to("b.py")
    (here / "b.py").symlink_to("a.py")
    assert "leads back to itself" in problem("a.py")


def test_directories_that_lead_back_are_walked_once(here: Path) -> None:
    write(here, {"a/b/c.py": CODE})
    (here / "a" / "b" / "up").symlink_to(here, target_is_directory=True)
    assert taken(".") == ["a/b/c.py"]


def test_a_linked_file_is_taken(here: Path, tmp_path: Path) -> None:
    write(tmp_path, {"elsewhere.py": CODE})
    (here / "a.py").symlink_to(tmp_path / "elsewhere.py")
    assert taken(".") == ["a.py"]


def test_a_file_that_is_linked_in_other_directories_is_taken_once(here: Path) -> None:
    write(here, {"a/b.py": CODE, "c/d.py": CODE})
    (here / "c" / "b.py").symlink_to("../a/b.py")
    assert taken(".") == ["a/b.py", "c/d.py"]
    assert taken("c") == ["c/b.py", "c/d.py"]
    assert taken("c/b.py") == ["c/b.py"]


def test_a_link_to_nowhere_is_said_but_for_an_editors_lock(here: Path) -> None:
    (here / ".#a.py").symlink_to("nobody@nowhere")
    assert "no Python file" in problem(".")
    (here / "b.py").symlink_to("gone.py")
    discovery = Discovery()
    discovery.add(".")
    assert [one.path for one in discovery.found.problems] == ["b.py"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_closed_directory_is_said(here: Path) -> None:
    write(here, {"a.py": CODE, "closed/b.py": CODE})
    (here / "closed").chmod(0)
    discovery = Discovery()
    discovery.add(".")
    (here / "closed").chmod(0o700)
    assert [one.path for one in discovery.found.targets] == ["a.py"]
    assert [one.path for one in discovery.found.problems] == ["closed"]


def test_exclude_patterns_are_relative_to_the_working_directory(here: Path) -> None:
    write(here, dict.fromkeys(["src/a.py", "src/gen/b.py", "gen/c.py", "old.py"], CODE))
    assert taken("src", exclude=("src/gen",)) == ["src/a.py"]
    assert taken(".", exclude=("gen", "/old.py")) == ["src/a.py"]


IGNORING = {
    ".gitignore": "ignored.py\n/only_here.py\nout/\n*.gen.py\n!keep.gen.py\n",
    "sub/.gitignore": "inner.py\n!ignored.py\n",
    **dict.fromkeys(
        """a.py ignored.py only_here.py out/b.py x.gen.py keep.gen.py
        sub/inner.py sub/ignored.py sub/only_here.py sub/y.gen.py sub/deep/inner.py inner.py
        """.split(),
        CODE,
    ),
}


def test_gitignore_is_kept_nested_and_negated(here: Path) -> None:
    write(here, IGNORING)
    kept = {"a.py", "inner.py", "keep.gen.py", "sub/ignored.py", "sub/only_here.py"}
    assert set(taken(".")) == kept


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_git_would_take_the_same_files(here: Path) -> None:
    write(here, IGNORING)
    subprocess.run(["git", "init", "-q"], check=True)
    (here / ".git" / "info" / "exclude").write_text("a.py\n")
    listed = subprocess.run(
        ["git", "ls-files", "--others", "--exclude-standard", "*.py"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(taken(".")) == set(listed.stdout.split())


def test_ignore_files_above_count_within_a_repository_only(here: Path) -> None:
    write(here, {".gitignore": "a.py\n", "sub/a.py": CODE, "sub/b.py": CODE})
    assert taken("sub") == ["sub/a.py", "sub/b.py"]
    (here / ".git").mkdir()
    assert taken("sub") == ["sub/b.py"]


def test_what_is_excluded_by_default_can_be_taken_back(here: Path) -> None:
    write(here, {"build/a.py": CODE})
    assert taken(".", exclude=("!build",)) == ["build/a.py"]


def test_settings_hold_below_their_file(here: Path) -> None:
    write(
        here,
        {
            "pyproject.toml": "[tool.zerograd]\nexclude = ['gen']\n",
            "a.py": CODE,
            "gen/b.py": CODE,
            "lib/pyproject.toml": "[tool.zerograd]\ninclude-tests = true\n",
            "lib/gen/c.py": CODE,
            "lib/test_d.py": CODE,
            "other/pyproject.toml": "[project]\nname = 'other'\n",
            "other/gen/e.py": CODE,
        },
    )
    assert taken(".") == ["a.py", "lib/test_d.py", "lib/gen/c.py"]
    assert taken("lib") == ["lib/test_d.py", "lib/gen/c.py"]


def test_settings_are_found_upwards_from_a_file(here: Path) -> None:
    write(here, {"pyproject.toml": "[tool.zerograd]\nignore = ['ZG101']\n", "a/b/c.py": CODE})
    discovery = Discovery()
    discovery.add("a/b/c.py")
    assert discovery.found.targets[0].settings.ignore == ("ZG101",)
    assert discovery.settings_above("/") is DEFAULT


def test_a_name_that_is_no_text_does_no_harm(here: Path) -> None:
    name = b"caf\xe9.py"
    try:
        with open(os.path.join(os.fsencode(here), name), "wb"):  # noqa: PTH118, PTH123 (bytes)
            pass
    except OSError:
        pytest.skip("this file system wants text")
    assert [os.fsencode(path) for path in taken(".")] == [name]


def test_a_file_is_left_out_if_and_only_if_the_walk_leaves_it_out(here: Path) -> None:
    write(
        here,
        {
            ".git/HEAD": "ref: refs/heads/main\n",
            ".git/info/exclude": "mine.py\n",
            ".gitignore": "ignored/\n*.gen.py\n!kept.gen.py\n",
            "pyproject.toml": "[tool.zerograd]\nexclude = ['legacy', 'deep/one.py']\n",
            "with_tests/pyproject.toml": "[tool.zerograd]\ninclude-tests = true\n",
            "environment/pyvenv.cfg": "",
            "deep/.gitignore": "two.py\n",
        },
    )
    names = [
        "a.py", "mine.py", "ignored/a.py", "x.gen.py", "kept.gen.py", "legacy/a.py", "deep/one.py",
        "deep/two.py", "deep/three.py", "tests/a.py", "test_a.py", "with_tests/test_a.py",
        "with_tests/tests/a.py", "environment/lib/a.py", ".venv/a.py", "node_modules/a.py", "conftest.py",
    ]  # fmt: skip
    write(here, dict.fromkeys(names, CODE))
    kept = [name for name in names if not Discovery().leaves_out(str(here / name), str(here))]
    assert sorted(kept) == sorted(taken("."))
    assert kept == [
        "a.py", "kept.gen.py", "deep/three.py", "with_tests/test_a.py", "with_tests/tests/a.py",
    ]  # fmt: skip
