"""The cache gives back what was found, and only as long as it is true."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import zerograd
from zerograd.check import cache as cache_module
from zerograd.check.cache import Cache, directory, pack, stamp, unpack
from zerograd.core.events import Site
from zerograd.core.finding import Edit, Finding, Fix, Note, Problem
from zerograd.static.check_file import CLEAN, FileResult

LONG_AGO = 1_600_000_000


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ZEROGRAD_CACHE_DIR", str(tmp_path / "cache"))
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def old_file(path: Path, text: str = "x = 1\n") -> tuple[str, int, int]:
    """A file that was not touched for long: its path and its stamp."""
    path.write_text(text)
    os.utime(path, (LONG_AGO, LONG_AGO))
    return (str(path), *stamp(str(path)))


def remember(*entries: tuple[tuple[str, int, int], FileResult]) -> None:
    cache = Cache(["."])
    for entry, verdict in entries:
        cache.put(*entry, verdict)
    cache.save()


VERDICT = FileResult(
    (
        Finding(
            "ZG101",
            "stale-gradient",
            "error",
            "message",
            Site("a.py", 3, 5, 3, 9),
            notes=(Note(Site("b.ipynb", 1, cell=2), "note"),),
            when=("a", "b"),
            fix=Fix("repair", True, (Edit("a.py", 1, 1, 1, 2, "x"),)),
        ),
    ),
    (Problem("a.py", "problem", 3),),
)


def test_a_verdict_comes_back_as_it_was(here: Path) -> None:
    clean, printed = old_file(here / "a.py"), old_file(here / "b.py")
    remember((clean, CLEAN), (printed, VERDICT))
    cache = Cache(["."])
    assert cache.get(*clean) is CLEAN
    assert cache.get(*printed) == VERDICT
    assert cache.get("c.py", 0, 0) is None


sites = st.builds(Site, st.text(), st.integers(0), cell=st.none() | st.integers(1))
findings = st.builds(
    Finding,
    st.text(),
    st.text(),
    st.sampled_from(["error", "advice"]),
    st.text(),
    sites,
    notes=st.lists(st.builds(Note, sites, st.text())).map(tuple),
    when=st.lists(st.text()).map(tuple),
)


@settings(deadline=None)
@given(findings)
def test_packing_loses_nothing(finding: Finding) -> None:
    assert unpack(pack(finding)) == finding


@pytest.mark.parametrize("change", ["content", "time"])
def test_a_changed_file_is_read_again(here: Path, change: str) -> None:
    entry = old_file(here / "a.py")
    remember((entry, CLEAN))
    if change == "content":
        now = old_file(here / "a.py", "x = 22\n")
    else:
        os.utime(here / "a.py", (LONG_AGO + 1, LONG_AGO + 1))
        now = (entry[0], *stamp(entry[0]))
    assert Cache(["."]).get(*now) is None


@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.write_text("changed"),
        lambda path: path.unlink(),
        lambda path: os.utime(path, (LONG_AGO + 1, LONG_AGO + 1)),
    ],
)
def test_a_verdict_falls_with_the_files_it_was_found_with(
    here: Path, change: Callable[[Path], object]
) -> None:
    entry, other = old_file(here / "a.py"), old_file(here / "b.py")
    remember((entry, FileResult(depends=(other[0],))))
    assert Cache(["."]).get(*entry) is not None
    change(here / "b.py")
    assert Cache(["."]).get(*entry) is None


def test_a_file_that_was_looked_for_and_now_exists_counts(here: Path) -> None:
    entry = old_file(here / "a.py")
    remember((entry, FileResult(depends=(str(here / "b.py"),))))
    assert Cache(["."]).get(*entry) is not None
    (here / "b.py").write_text("x = 1\n")
    assert Cache(["."]).get(*entry) is None


def test_a_file_changed_a_moment_ago_is_not_trusted(here: Path) -> None:
    (here / "a.py").write_text("x = 1\n")
    entry = (str(here / "a.py"), *stamp(str(here / "a.py")))
    remember((entry, CLEAN))
    assert Cache(["."]).get(*entry) is None


def test_what_may_pass_is_not_remembered(here: Path) -> None:
    entry = old_file(here / "a.py")
    remember((entry, FileResult(problems=(Problem("a.py", "permission denied"),), lasting=False)))
    assert Cache(["."]).get(*entry) is None


def only_cache_file() -> Path:
    (path,) = Path(directory()).iterdir()
    return path


@pytest.mark.parametrize("keep", [0, 3, 19, 40, -1])
def test_a_broken_cache_is_no_cache(here: Path, keep: int) -> None:
    entry = old_file(here / "a.py")
    remember((entry, VERDICT))
    path = only_cache_file()
    path.write_bytes(path.read_bytes()[:keep])
    assert Cache(["."]).get(*entry) is None


def test_a_flipped_bit_is_noticed(here: Path) -> None:
    entry = old_file(here / "a.py")
    remember((entry, VERDICT))
    path = only_cache_file()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert Cache(["."]).get(*entry) is None


@pytest.mark.parametrize(
    ("name", "value"), [("__version__", "0.0.0"), ("_code", lambda: "other code")]
)
def test_another_zerograd_does_not_use_it(
    here: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: object
) -> None:
    entry = old_file(here / "a.py")
    remember((entry, CLEAN))
    monkeypatch.setattr(cache_module, name, value)
    assert Cache(["."]).get(*entry) is None


def test_a_change_in_any_module_of_zerograd_is_another_zerograd() -> None:
    package = Path(zerograd.__file__).parent
    stamped = {name for name, _, _ in cache_module._code()}
    assert stamped == {str(path) for path in package.rglob("*.py")}


@pytest.mark.skipif(sys.platform == "win32", reason="Windows files have no such modes")
@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_cache_that_others_can_write_is_not_read(here: Path, mode: int) -> None:
    entry = old_file(here / "a.py")
    remember((entry, VERDICT))
    only_cache_file().chmod(mode)
    assert Cache(["."]).get(*entry) is None
    only_cache_file().chmod(0o600)
    assert Cache(["."]).get(*entry) == VERDICT


@pytest.mark.skipif(sys.platform == "win32", reason="Windows files have no such owner")
def test_a_cache_of_another_user_is_not_read(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = old_file(here / "a.py")
    remember((entry, VERDICT))
    owner = only_cache_file().stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert Cache(["."]).get(*entry) is None


@pytest.mark.skipif(sys.platform == "win32", reason="Windows files have no such modes")
def test_only_the_user_can_read_a_cache(here: Path) -> None:
    before = os.umask(0)
    try:
        remember((old_file(here / "a.py"), VERDICT))
    finally:
        os.umask(before)
    assert only_cache_file().stat().st_mode & 0o777 == 0o600


def test_other_paths_from_another_place_have_another_cache(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = old_file(here / "a.py")
    remember((entry, CLEAN))
    assert Cache(["src"]).get(*entry) is None
    monkeypatch.chdir(here.parent)
    assert Cache(["."]).get(*entry) is None


def test_what_is_gone_is_forgotten(here: Path) -> None:
    first, second = old_file(here / "a.py"), old_file(here / "b.py")
    remember((first, CLEAN), (second, CLEAN))
    cache = Cache(["."])
    cache.get(*first)
    cache.save()
    assert Cache(["."]).get(*second) is None


def test_without_news_nothing_is_written(here: Path) -> None:
    entry = old_file(here / "a.py")
    remember((entry, CLEAN))
    before = only_cache_file().stat().st_mtime_ns
    cache = Cache(["."])
    cache.get(*entry)
    cache.save()
    assert only_cache_file().stat().st_mtime_ns == before


def test_a_cache_that_nobody_uses_is_removed(here: Path) -> None:
    forgotten = Path(directory()) / "00000000.cache"
    forgotten.parent.mkdir(parents=True)
    forgotten.write_bytes(b"")
    os.utime(forgotten, (LONG_AGO, LONG_AGO))
    remember((old_file(here / "a.py"), CLEAN))
    assert not forgotten.exists()


def test_a_place_that_cannot_be_written_does_no_harm(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "file").write_text("")
    monkeypatch.setenv("ZEROGRAD_CACHE_DIR", str(here / "file" / "cache"))
    entry = old_file(here / "a.py")
    remember((entry, CLEAN))
    assert Cache(["."]).get(*entry) is None


def test_settings_that_are_none_are_not_read_again(here: Path) -> None:
    path, *_ = old_file(here / "pyproject.toml", "[project]\nname = 'x'\n")
    cache = Cache(["."])
    assert cache.load_settings(path) == (None, [])
    cache.save()
    quiet = Cache(["."])._old_quiet
    assert path in quiet
    now = time.time()
    (here / "pyproject.toml").write_text("[tool.zerograd]\nignore = ['ZG1']\n")
    os.utime(path, (now, now))
    settings, _ = Cache(["."]).load_settings(path)
    assert settings is not None


def test_the_users_cache_directory_is_the_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ZEROGRAD_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    monkeypatch.setattr("sys.platform", "linux")
    assert directory() == "/somewhere/zerograd"
