"""Patterns mean what git means by them; git itself is asked."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from support import tiers
from zerograd.check.gitignore import Patterns

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.mark.parametrize(
    ("pattern", "path", "matched"),
    [
        ("build", "build", True),
        ("build", "src/build", True),
        ("build", "src/build/a.py", True),
        ("/build", "src/build", False),
        ("*.py", "src/a.py", True),
        ("src/*.py", "src/a.py", True),
        ("src/*.py", "src/b/a.py", False),
        ("src/**/a.py", "src/a.py", True),
        ("src/**/a.py", "src/b/c/a.py", True),
        ("**/gen/*", "x/gen/a.py", True),
        ("gen/**", "gen/a/b.py", True),
        ("**/a/**/b", "a/x/a/y/b", True),
        ("**/a/**/b", "b/a/x/a", False),
        ("x/**/a/**/b/c", "x/a/b/a/q/b/c", True),
        ("*a*b*.py", "xaxbx.py", True),
        ("*a*b*.py", "xbxax.py", False),
        ("a*b*b", "abb", True),
        ("a*b*b", "ab", False),
        ("lib/*a*b", "lib/cabab", True),
        ("a?.py", "ab.py", True),
        ("a?.py", "a/.py", False),
        ("[ab].py", "a.py", True),
        ("[!ab].py", "a.py", False),
        ("[]].py", "].py", True),
        ("examples/", "examples/a.py", True),
        ("a.py/", "a.py", False),
        ("./src/a.py", "src/a.py", True),
        (r"\#a.py", "#a.py", True),
        (r"\/**", "a", False),
        (r"a\/b", "a/b", True),
        ("# a comment", "# a comment", False),
        ("", "a.py", False),
    ],
)
def test_a_pattern_matches_as_in_gitignore(pattern: str, path: str, matched: bool) -> None:
    assert Patterns([pattern]).matches(path) is matched


def test_the_last_pattern_that_matches_decides() -> None:
    patterns = Patterns(["*.py", "!train.py", "/lib/train.py"])
    assert patterns.matches("a.py")
    assert not patterns.matches("src/train.py")
    assert patterns.matches("lib/train.py")
    assert patterns.excludes("readme.md", is_directory=False) is None


def test_what_lies_in_an_excluded_directory_cannot_be_taken_back() -> None:
    assert Patterns(["build/", "!build/a.py"]).matches("build/a.py")


@pytest.mark.parametrize("pattern", ["*a" * 40 + "b", "/" + "*a" * 40 + "b", "**/a/" * 40 + "b"])
def test_a_pattern_of_many_stars_is_decided_at_once(pattern: str) -> None:
    # By trying all ways this would take longer than the universe is old.
    assert not Patterns([pattern]).matches("a" * 200)
    assert not Patterns([pattern]).matches("a/" * 200 + "a")
    assert Patterns([pattern]).matches(pattern.replace("*", "x").removeprefix("/"))


NAMES = st.sampled_from(["a", "b", "ab", "a.py", "b.py", "[a]", "a b"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
PIECES = st.sampled_from(["a", "b", ".py", "*", "?", "[ab]", "[!a]", "\\*", "\\", " "])
# `a**` is left out: git takes it for `a*` or for more, depending on what comes before it.
PARTS = st.just("**") | st.lists(PIECES, min_size=1, max_size=5).map("".join)
LINES = st.lists(
    st.builds(
        "{}{}{}".format,
        st.sampled_from(["", "!", "/", "!/"]),
        st.lists(
            PARTS.filter(lambda part: part == "**" or "**" not in part), min_size=1, max_size=3
        ).map("/".join),
        st.sampled_from(["", "/", "//", " "]),
    ),
    min_size=1,
    max_size=4,
)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repository")
    subprocess.run(["git", "init", "-q", folder], check=True)
    return folder


@needs_git
@tiers.random(150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=LINES, paths=st.lists(PATHS, min_size=1, max_size=6, unique=True))
def test_git_agrees(repository: Path, lines: list[str], paths: list[str]) -> None:
    ours = Patterns(lines)
    (repository / ".gitignore").write_text("\n".join(lines) + "\n")
    asked = subprocess.run(
        ["git", "check-ignore", "--no-index", "-z", "--stdin"],
        cwd=repository,
        input="\0".join(paths),
        capture_output=True,
        text=True,
        check=False,
    )
    theirs = set(asked.stdout.split("\0")) - {""}
    assert {path for path in paths if ours.matches(path)} == theirs
