"""A user's loop inside a library: nothing is said while it is right, and a forgotten clear is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.library_programs import HERE, watched

# Which lines of which right program are taken out to make it wrong.
FORGOTTEN = {
    "accelerate_loop": "    optimizer.zero_grad()\n",
    "ignite_engine": "    optimizer.zero_grad()\n",
    "lightning_automatic": "        optimizer.zero_grad()\n",
    "lightning_manual": "        optimizer.zero_grad()\n",
    "transformers_trainer": "        super().zero_grad(set_to_none)\n",
}


def source(name: str) -> str:
    return (HERE / "mistakes" / f"{name}.py").read_text(encoding="utf-8")


def test_every_program_has_its_mistake() -> None:
    assert {path.stem for path in (HERE / "mistakes").glob("*.py")} == set(FORGOTTEN)


@pytest.mark.parametrize("name", FORGOTTEN)
def test_a_right_loop_in_a_library_is_silent(name: str, tmp_path: Path) -> None:
    program = tmp_path / "right.py"
    program.write_text(source(name), encoding="utf-8")
    seen = watched(program, tmp_path)
    assert seen.ran.code == 0, seen.ran.log
    assert seen.codes("error") == set(), seen.findings


@pytest.mark.parametrize("name", FORGOTTEN)
def test_a_forgotten_clear_in_a_library_is_found(name: str, tmp_path: Path) -> None:
    right, line = source(name), FORGOTTEN[name]
    assert right.count(line) == 1
    # `pass` stands in, for the line may be all that its function does.
    wrong = right.replace(line, line[: -len(line.lstrip())] + "pass\n")
    program = tmp_path / "wrong.py"
    program.write_text(wrong, encoding="utf-8")
    seen = watched(program, tmp_path)
    assert "ZG101" in seen.codes("error"), (seen.findings, seen.ran.log)
    assert seen.ran.code == 1
