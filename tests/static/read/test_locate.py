"""Where an import leads."""

from __future__ import annotations

from pathlib import Path

import pytest

from zerograd.static.read.locate import locate


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "kit"
    folder.mkdir()
    for name in ("__init__", "kit", "optim", "trainer"):
        (folder / f"{name}.py").write_text("")
    return folder


def test_a_module_with_the_name_of_its_package_does_not_hide_the_package(package: Path) -> None:
    found = locate(str(package / "trainer.py"), "kit.optim.get")
    assert found == (str(package / "optim.py"), "get")


def test_a_name_of_a_module_beside_the_file_is_found_there(package: Path) -> None:
    found = locate(str(package / "trainer.py"), "optim.get")
    assert found == (str(package / "optim.py"), "get")


def test_a_name_that_no_root_has_whole_is_found_as_far_as_it_goes(package: Path) -> None:
    found = locate(str(package / "trainer.py"), "kit.gone.get")
    assert found is not None
    assert found[1] == "gone.get"


def test_a_setup_file_inside_of_a_project_does_not_end_the_search(package: Path) -> None:
    scripts = package.parent / "bin"
    scripts.mkdir()
    (scripts / "setup.py").write_text("")
    (package.parent / ".git").mkdir()
    found = locate(str(scripts / "main.py"), "kit.optim.get")
    assert found == (str(package / "optim.py"), "get")


def test_what_lies_beside_a_project_is_not_part_of_it(package: Path) -> None:
    project = package.parent / "project"
    project.mkdir()
    (project / "setup.py").write_text("")
    assert locate(str(project / "main.py"), "kit.optim.get") is None
