"""A user's loop inside a library: nothing is said while it is right, and a forgotten clear is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.library_programs import HERE, watched
from support.paths import ROOT

TRAINERS = ROOT / "examples" / "trainers"

# Which line of which right program is taken out to make it wrong.
FORGOTTEN = {
    "ignite_engine": "    optimizer.zero_grad()\n",
    "lightning_manual": "        optimizer.zero_grad()\n",
}
# Which line of which example, that shows a mistake, is written as what to make it right.
REPAIRED = {
    "accelerate_loop": ("optimizer.step()", "optimizer.step()\n        optimizer.zero_grad()"),
    "lightning_fit": ("pass", "optimizer.zero_grad()"),
    "transformers_train": ("pass", "super().zero_grad(set_to_none)"),
}


def programs(name: str) -> tuple[str, str]:
    """A right program, and the same with its mistake."""
    if name in FORGOTTEN:
        right, line = (
            (HERE / "mistakes" / f"{name}.py").read_text(encoding="utf-8"),
            FORGOTTEN[name],
        )
        assert right.count(line) == 1
        # `pass` stands in, for the line may be all that its function does.
        return right, right.replace(line, line[: -len(line.lstrip())] + "pass\n")
    wrong = (TRAINERS / f"{name}.py").read_text(encoding="utf-8")
    old, new = (f"        {one}" for one in REPAIRED[name])
    assert wrong.count(old) == 1
    return wrong.replace(old, new), wrong


def test_every_program_has_its_mistake() -> None:
    assert {path.stem for path in (HERE / "mistakes").glob("*.py")} == set(FORGOTTEN)
    assert {path.stem for path in TRAINERS.glob("*.py")} == set(REPAIRED)


@pytest.mark.parametrize("name", [*FORGOTTEN, *REPAIRED])
def test_a_right_loop_in_a_library_is_silent(name: str, tmp_path: Path) -> None:
    program = tmp_path / "right.py"
    program.write_text(programs(name)[0], encoding="utf-8")
    seen = watched(program, tmp_path)
    assert seen.ran.code == 0, seen.ran.log
    assert seen.codes("error") == set(), seen.findings


@pytest.mark.parametrize("name", [*FORGOTTEN, *REPAIRED])
def test_a_forgotten_clear_in_a_library_is_found(name: str, tmp_path: Path) -> None:
    program = tmp_path / "wrong.py"
    program.write_text(programs(name)[1], encoding="utf-8")
    seen = watched(program, tmp_path)
    assert "ZG101" in seen.codes("error"), (seen.findings, seen.ran.log)
    assert seen.ran.code == 1
