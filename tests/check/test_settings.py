"""`[tool.zerograd]`: what is understood, and what is said of the rest."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from zerograd.check.settings import Settings, load
from zerograd.core.finding import Problem


def read(tmp_path: Path, text: str | bytes) -> tuple[Settings | None, list[Problem]]:
    path = tmp_path / "pyproject.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load(str(path))


def test_every_setting_is_read(tmp_path: Path) -> None:
    settings, problems = read(
        tmp_path,
        """
        [tool.zerograd]
        select = ["ZG1"]
        ignore = ["ZG101"]
        exclude = ["legacy"]
        include-tests = true
        pedantic = true
        per-file-ignores = { "examples/*" = ["ZG3"], "a.py" = ["repeated-step"] }
        """,
    )
    assert not problems
    assert settings is not None
    assert settings.select == ("ZG1",)
    assert settings.exclude == ("legacy",)
    assert settings.include_tests
    assert settings.pedantic
    assert settings.ignored_in(str(tmp_path / "b.py")) == ("ZG101",)
    assert settings.ignored_in(str(tmp_path / "examples/deep/b.py")) == ("ZG101", "ZG3")
    assert settings.ignored_in(str(tmp_path / "src/a.py")) == ("ZG101", "repeated-step")


@pytest.mark.parametrize("text", ["", "[project]\nname = 'x'\n", "[tool.ruff]\n", "tool = 3\n"])
def test_a_file_of_other_tools_holds_no_settings(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text) == (None, [])


def test_an_empty_section_is_settings(tmp_path: Path) -> None:
    settings, problems = read(tmp_path, "[tool.zerograd]\n")
    assert settings is not None
    assert not problems


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[tool.zerograd]\nselect = [\n", 2),
        ("[tool.zerograd\n", 1),
        ("[tool.zerograd]\nignore = 'a\n", 2),
        (b"[tool.zerograd]\nignore = ['\xe9']\n", None),
        ("x = " + "[" * 100_000, None),
    ],
)
def test_broken_toml_is_said_with_its_line(
    tmp_path: Path, text: str | bytes, line: int | None
) -> None:
    settings, (problem,) = read(tmp_path, text)
    assert settings is None
    assert problem.path.endswith("pyproject.toml")
    assert "is not valid TOML" in problem.message
    assert problem.line == line


@pytest.mark.parametrize(
    ("setting", "printed"),
    [
        ("selct = ['ZG101']", "did you mean select?"),
        ("line-length = 3", "it knows select,"),
        ("select = 'ZG101'", "select must be a list of strings"),
        ("ignore = [1]", "ignore must be a list of strings"),
        ("include-tests = 'yes'", "include-tests must be true or false"),
        ("per-file-ignores = ['a']", "per-file-ignores must be a table"),
        ("per-file-ignores = { 'a.py' = 'ZG101' }", "per-file-ignores must be a table"),
    ],
)
def test_a_wrong_setting_is_said_and_the_others_hold(
    tmp_path: Path, setting: str, printed: str
) -> None:
    settings, (problem,) = read(tmp_path, f"[tool.zerograd]\nexclude = ['a']\n{setting}\n")
    assert printed in problem.message
    assert problem.line == 3
    assert settings is not None
    assert settings.exclude == ("a",)


def test_a_section_that_is_no_table_is_said(tmp_path: Path) -> None:
    settings, (problem,) = read(tmp_path, "[tool]\nzerograd = 3\n")
    assert settings is None
    assert "is not a table" in problem.message


def test_a_file_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    settings, (problem,) = load(str(tmp_path / "pyproject.toml"))
    assert settings is None
    assert "cannot be read" in problem.message


def test_a_pipe_and_a_device_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pyproject.toml")
    settings, (problem,) = load(str(tmp_path / "pyproject.toml"))
    assert settings is None
    assert problem.message == "is not a file; its settings are not used"
    extends = tmp_path / "more.toml"
    extends.write_text('extend = "/dev/zero"\npedantic = true\n')
    settings, (problem,) = load(str(extends))
    assert settings is not None
    assert settings.pedantic
    assert problem.path == "/dev/zero"
