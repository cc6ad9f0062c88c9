"""`zerograd check --fix`, `--unsafe-fixes` and `--diff`: real files, real commands."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.command import FORGOTTEN_ZERO, RIGHT, environment, write, zerograd
from support.notebooks import notebook
from support.paths import ROOT
from zerograd.check import check_session, workers
from zerograd.fix.rewrite import NotWritten, exchange
from zerograd.static.check_file import result_for_file

MENDED = FORGOTTEN_ZERO.replace("    loss = ", "    optimizer.zero_grad()\n    loss = ")
UNDIVIDED = """\
import torch

model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = [(torch.ones(1), torch.ones(1))] * 8
N = 4
for i, (x, y) in enumerate(data):
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    if (i + 1) % N == 0 or i + 1 == len(data):
        optimizer.step()
        optimizer.zero_grad()
"""
DIVIDED = UNDIVIDED.replace("    loss.backward()", "    (loss / N).backward()")
NO_REPAIR = """\
import torch

model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
for x in torch.ones(8, 1):
    optimizer.zero_grad()
    scaler.scale(model(x).mean()).backward()
    scaler.unscale_(optimizer)
    scaler.scale(model(x).square().mean()).backward()
    scaler.step(optimizer)
    scaler.update()
"""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_texts_are_what_they_are_taken_for(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": FORGOTTEN_ZERO, "b.py": MENDED, "c.py": UNDIVIDED, "d.py": NO_REPAIR})
    printed = zerograd("check", "--format", "concise", ".", cwd=tmp_path).stdout
    found = [(line[:4], line.split(": ")[1][:5]) for line in printed.splitlines()]
    assert found == [("a.py", "ZG101"), ("c.py", "ZG301"), ("d.py", "ZG206")]


# What is repaired


def test_a_file_is_repaired_and_the_check_passes(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": FORGOTTEN_ZERO})
    done = zerograd("check", "--fix", "train.py", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "checked 1 file: 1 training loop: 1 right\n1 fixed, 0 remaining\n"
    assert (tmp_path / "train.py").read_text() == MENDED


def test_what_is_repaired_is_not_touched_again(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": FORGOTTEN_ZERO})
    zerograd("check", "--fix", ".", cwd=tmp_path)
    before = (tmp_path / "train.py").stat()
    done = zerograd("check", "--fix", "--unsafe-fixes", ".", cwd=tmp_path)
    after = (tmp_path / "train.py").stat()
    assert done.stdout.endswith("0 fixed, 0 remaining\n")
    assert (before.st_mtime_ns, before.st_ino) == (after.st_mtime_ns, after.st_ino)


def test_unsafe_fixes_are_made_only_when_asked_for(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": UNDIVIDED})
    done = zerograd("check", "--fix", "train.py", cwd=tmp_path)
    assert "[*] fixable with --unsafe-fixes" in done.stdout
    assert done.stdout.endswith("0 fixed, 1 remaining (1 more with --unsafe-fixes)\n")
    assert (tmp_path / "train.py").read_text() == UNDIVIDED
    done = zerograd("check", "--unsafe-fixes", "train.py", cwd=tmp_path)
    assert done.stdout.endswith("1 fixed, 0 remaining\n")
    assert (tmp_path / "train.py").read_text() == DIVIDED


def test_what_is_left_fails_the_check_and_says_why(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": FORGOTTEN_ZERO, "b.py": NO_REPAIR})
    done = zerograd("check", "--fix", ".", cwd=tmp_path)
    assert done.returncode == 1
    assert "ZG206" in done.stdout
    assert "fix   none: this rule has no automatic fix" in done.stdout
    assert done.stdout.endswith("1 fixed, 1 remaining\n")
    assert zerograd("check", "--fix", "--exit-zero", ".", cwd=tmp_path).returncode == 0


def test_only_what_is_selected_is_repaired(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": FORGOTTEN_ZERO})
    zerograd("check", "--fix", "--ignore", "ZG101", "train.py", cwd=tmp_path)
    assert (tmp_path / "train.py").read_text() == FORGOTTEN_ZERO


def test_what_is_allowed_is_not_repaired(tmp_path: Path) -> None:
    meant = FORGOTTEN_ZERO.replace("backward()", "backward()  # zerograd: allow[stale-gradient]")
    write(tmp_path, {"train.py": meant})
    done = zerograd("check", "--fix", "train.py", cwd=tmp_path)
    assert (done.returncode, (tmp_path / "train.py").read_text()) == (0, meant)


def test_several_findings_of_one_file_are_repaired_together(tmp_path: Path) -> None:
    text = """\
import torch

model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
for x in [torch.ones(1)] * 3:
    loss = model(x).sum()
    scaler.scale(loss).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
for x in [torch.ones(1)] * 3:
    model(x).sum().backward()
    optimizer.zero_grad()
    optimizer.step()
"""
    right = """\
import torch

model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
for x in [torch.ones(1)] * 3:
    optimizer.zero_grad()
    loss = model(x).sum()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
for x in [torch.ones(1)] * 3:
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
"""
    write(tmp_path, {"train.py": text})
    done = zerograd("check", "--fix", "train.py", cwd=tmp_path)
    assert (tmp_path / "train.py").read_text() == right
    assert done.returncode == 0


# A diff


def test_a_diff_writes_nothing_and_patch_takes_it(tmp_path: Path) -> None:
    latin = "# -*- coding: latin-1 -*-\n# größer\n" + FORGOTTEN_ZERO
    files = {
        "a.py": FORGOTTEN_ZERO.encode(),
        "sub/b.py": FORGOTTEN_ZERO.replace("\n", "\r\n").encode(),
        "c.py": FORGOTTEN_ZERO.rstrip("\n").encode(),
        "d.py": latin.encode("latin-1"),
        "e.ipynb": notebook(FORGOTTEN_ZERO).encode(),
    }
    write(tmp_path / "one", files)
    write(tmp_path / "two", files)
    done = subprocess.run(
        [sys.executable, "-m", "zerograd", "check", "--diff", "."],
        cwd=tmp_path / "one",
        env=environment(tmp_path / "cache"),
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, b"zerograd: would fix 5, 0 remaining\n")
    assert all((tmp_path / "one" / name).read_bytes() == data for name, data in files.items())
    assert zerograd("check", "--fix", ".", cwd=tmp_path / "two").returncode == 0
    apply = ["git", "apply", "-p0", "--whitespace=nowarn", "-"]
    subprocess.run(apply, cwd=tmp_path / "one", input=done.stdout, check=True)
    for name, data in files.items():
        repaired = (tmp_path / "two" / name).read_bytes()
        assert (tmp_path / "one" / name).read_bytes() == repaired
        assert repaired != data


def test_a_diff_of_nothing_is_empty(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": MENDED})
    done = zerograd("check", "--diff", "--fix", "train.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")


# Formats that carry edits


def spliced(text: str, edits: list[tuple[int, int, int, int, str]]) -> str:
    """A text with edits applied as a stranger would: by lines and columns from 1, last first."""
    lines = text.split("\n")
    for line, column, end_line, end_column, new in sorted(edits, reverse=True):
        tail = lines[end_line - 1][end_column - 1 :] if end_line <= len(lines) else ""
        lines[line - 1 : end_line] = [lines[line - 1][: column - 1] + new + tail]
        lines = "\n".join(lines).split("\n")
    return "\n".join(lines)


WRONG = {
    "inserted": FORGOTTEN_ZERO,
    "moved": MENDED.replace("    optimizer.zero_grad()\n", "").replace(
        "    optimizer.step()", "    optimizer.zero_grad()  # größer\n    optimizer.step()"
    ),
    "replaced": UNDIVIDED,
}


@pytest.mark.parametrize("kind", WRONG)
def test_json_and_sarif_carry_the_edits(kind: str, tmp_path: Path) -> None:
    text = WRONG[kind]
    write(tmp_path, {"train.py": text})
    printed = zerograd("check", "--format", "json", "train.py", cwd=tmp_path)
    (finding,) = json.loads(printed.stdout)["findings"]
    assert finding["fix"]["safe"] == (kind != "replaced")
    keys = ("line", "column", "end_line", "end_column", "text")
    edits = [tuple(edit[key] for key in keys) for edit in finding["fix"]["edits"]]
    assert {(edit["path"], edit["cell"]) for edit in finding["fix"]["edits"]} == {
        ("train.py", None)
    }
    log = json.loads(zerograd("check", "--format", "sarif", "train.py", cwd=tmp_path).stdout)
    assert (tmp_path / "train.py").read_text() == text
    (result,) = log["runs"][0]["results"]
    (change,) = result["fixes"][0]["artifactChanges"]
    assert change["artifactLocation"]["uri"] == "train.py"
    regions = [_region(one) for one in change["replacements"]]
    zerograd("check", "--unsafe-fixes", "train.py", cwd=tmp_path)
    repaired = (tmp_path / "train.py").read_text()
    assert repaired != text
    assert spliced(text, edits) == spliced(text, regions) == repaired


def _region(replacement: dict[str, Any]) -> tuple[int, int, int, int, str]:
    region = replacement["deletedRegion"]
    start, end = (
        (region["startLine"], region["startColumn"]),
        (region["endLine"], region["endColumn"]),
    )
    return (*start, *end, replacement["insertedContent"]["text"])


def test_a_fix_in_another_format_is_counted_on_standard_error(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": FORGOTTEN_ZERO})
    done = zerograd("check", "--fix", "--format", "json", "train.py", cwd=tmp_path)
    assert json.loads(done.stdout)["findings"] == []
    assert done.stderr == "zerograd: 1 fixed, 0 remaining\n"


def test_what_repairs_is_not_loaded_where_nothing_is_wrong(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": RIGHT})
    code = """\
import sys
from zerograd.cli.main import main
main(["check", "train.py"])
sys.exit(any(name.startswith("zerograd.fix.") for name in sys.modules))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment(tmp_path / "c"), check=False
    )
    assert done.returncode == 0


# Standard input


def test_standard_input_comes_out_repaired_and_nothing_else(tmp_path: Path) -> None:
    done = zerograd("check", "--fix", "-", cwd=tmp_path, stdin=FORGOTTEN_ZERO)
    assert (done.returncode, done.stdout) == (0, MENDED)
    assert done.stderr == "checked 1 file: 1 training loop: 1 right\n1 fixed, 0 remaining\n"


@pytest.mark.parametrize("text", [MENDED, NO_REPAIR, "", "for x in\n", "x = 1"])
def test_standard_input_that_is_not_repaired_comes_out_as_it_is(text: str, tmp_path: Path) -> None:
    done = zerograd("check", "--fix", "-", cwd=tmp_path, stdin=text)
    assert done.stdout == text
    assert done.stderr


def test_a_diff_of_standard_input(tmp_path: Path) -> None:
    words = ("check", "--diff", "--stdin-filename", "train.py", "-")
    done = zerograd(*words, cwd=tmp_path, stdin=FORGOTTEN_ZERO)
    assert done.stdout.startswith("--- train.py\n+++ train.py\n@@")
    assert "+    optimizer.zero_grad()\n" in done.stdout


# Files are replaced whole, and only what was read


def test_the_mode_stays_and_a_link_stays_a_link(tmp_path: Path) -> None:
    write(tmp_path, {"real/train.py": FORGOTTEN_ZERO})
    (tmp_path / "real" / "train.py").chmod(0o751)
    (tmp_path / "link.py").symlink_to("real/train.py")
    done = zerograd("check", "--fix", "link.py", cwd=tmp_path)
    assert done.returncode == 0
    assert (tmp_path / "link.py").is_symlink()
    assert (tmp_path / "real" / "train.py").read_text() == MENDED
    assert stat.S_IMODE((tmp_path / "real" / "train.py").stat().st_mode) == 0o751
    assert names(tmp_path / "real") == ["train.py"]


def test_a_read_only_file_is_left_and_said(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": FORGOTTEN_ZERO, "b.py": FORGOTTEN_ZERO})
    (tmp_path / "a.py").chmod(0o444)
    done = zerograd("check", "--fix", ".", cwd=tmp_path)
    assert done.returncode == 2
    assert "a.py  problem  was not repaired: it is read-only; change its mode" in done.stdout
    assert "a.py:7:5  ZG101" in done.stdout
    assert (tmp_path / "a.py").read_text() == FORGOTTEN_ZERO
    assert (tmp_path / "b.py").read_text() == MENDED


def test_a_file_that_changed_since_it_was_read_is_left(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_bytes(b"new\n")
    with pytest.raises(NotWritten, match="it was changed after it was read; check it again"):
        exchange(str(path), b"old\n", b"repaired\n")
    assert path.read_bytes() == b"new\n"
    assert names(tmp_path) == ["train.py"]


def test_a_file_that_is_gone_is_not_made_anew(tmp_path: Path) -> None:
    with pytest.raises(NotWritten, match="does not exist"):
        exchange(str(tmp_path / "train.py"), b"old\n", b"repaired\n")
    assert names(tmp_path) == []


@pytest.mark.parametrize("broken", ["replace", "fsync", "chmod"])
def test_a_disk_that_fails_loses_nothing(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "train.py"
    path.write_bytes(b"old\n")
    monkeypatch.setattr(os, broken, fail)
    with pytest.raises(NotWritten, match="it cannot be written: No space left on device"):
        exchange(str(path), b"old\n", b"repaired\n")
    assert path.read_bytes() == b"old\n"
    assert names(tmp_path) == ["train.py"]


def test_a_file_that_goes_away_while_others_are_repaired(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": FORGOTTEN_ZERO})
    zerograd("check", ".", cwd=tmp_path)
    shutil.copy(tmp_path / "train.py", tmp_path / "other.py")
    (tmp_path / "train.py").unlink()
    done = zerograd("check", "--fix", "train.py", "other.py", cwd=tmp_path)
    assert done.returncode == 2
    assert "train.py  problem  does not exist" in done.stdout
    assert (tmp_path / "other.py").read_text() == MENDED


# Other files of the project


def test_what_shows_only_through_another_file_is_not_repaired(tmp_path: Path) -> None:
    step = "def step(loss, optimizer):\n    loss.backward()\n    optimizer.step()\n"
    loop = FORGOTTEN_ZERO.replace(
        "    loss.backward()\n    optimizer.step()\n", "    step(loss, optimizer)\n"
    )
    loop = "from steps import step\n" + loop
    write(tmp_path, {"steps.py": step, "train.py": loop})
    done = zerograd("check", "--fix", "--unsafe-fixes", "train.py", "steps.py", cwd=tmp_path)
    assert done.returncode == 1
    assert "fix   none: a line of the finding is in steps.py" in done.stdout
    assert (tmp_path / "steps.py").read_text() == step
    assert (tmp_path / "train.py").read_text() == loop


# Notebooks


@pytest.mark.parametrize("indent", [None, 1, 4])
@pytest.mark.parametrize("as_list", [False, True])
@pytest.mark.parametrize("escaped", [False, True])
def test_only_the_source_of_the_cell_changes(
    indent: int | None, as_list: bool, escaped: bool, tmp_path: Path
) -> None:
    head, loop = FORGOTTEN_ZERO.split("for x, y", 1)
    cells: list[str] = ["%matplotlib inline\n" + head + "# größer", "#md words", "for x, y" + loop]
    split = [cell.splitlines(keepends=True) if as_list else cell for cell in cells]
    book = json.loads(notebook(*cells))
    for cell, source in zip(book["cells"], split, strict=True):
        cell["source"] = source
    book["cells"][2]["outputs"] = [{"output_type": "stream", "text": ["1.50\n", "é"]}]
    book["metadata"]["x"] = 1.0e-3
    text = json.dumps(book, indent=indent, ensure_ascii=escaped)
    text = text.replace('"nbformat"', '"nbformat"  ')
    write(tmp_path, {"train.ipynb": text})
    done = zerograd("check", "--fix", "train.ipynb", cwd=tmp_path)
    assert done.returncode == 0
    after = (tmp_path / "train.ipynb").read_text(encoding="utf-8")
    mended = "for x, y" + MENDED.split("for x, y", 1)[1]
    book["cells"][2]["source"] = mended.splitlines(keepends=True) if as_list else mended
    wanted = json.dumps(book, indent=indent, ensure_ascii=escaped)
    assert after == wanted.replace('"nbformat"', '"nbformat"  ')


def test_a_repair_that_would_change_two_cells_is_not_made(tmp_path: Path) -> None:
    head, loop = FORGOTTEN_ZERO.split("for x, y", 1)
    text = notebook(head + "optimizer.zero_grad()", "for x, y" + loop)
    write(tmp_path, {"train.ipynb": text})
    assert zerograd("check", "--fix", ".", cwd=tmp_path).returncode == 0
    cells = json.loads((tmp_path / "train.ipynb").read_text())["cells"]
    before = json.loads(text)["cells"]
    assert cells[0] == before[0]
    assert "optimizer.zero_grad()" in "".join(cells[1]["source"])


# pre-commit


def test_the_hook_repairs_and_is_otherwise_the_hook_that_checks() -> None:
    hooks = (ROOT / ".pre-commit-hooks.yaml").read_text()
    check, fix = hooks.split("- id: ")[1:]
    assert "entry: zerograd check --fix\n" in fix
    for line in check.splitlines():
        if line.startswith(("  exclude", "  types", "  language", "  require", "  minimum")):
            assert line in fix


@pytest.mark.parametrize("after", [FORGOTTEN_ZERO + "\n", "", None])
def test_a_file_that_changes_after_its_check_is_shown_no_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: str | None
) -> None:
    path = write(tmp_path, {"train.py": FORGOTTEN_ZERO}) / "train.py"
    check = result_for_file

    def then_changes(*args: Any, **options: Any) -> Any:
        result = check(*args, **options)
        if after is None:
            path.unlink()
        elif after:
            path.write_text(after)
        return result

    monkeypatch.setattr(workers, "result_for_file", then_changes)
    options = check_session.CheckOptions((str(path),), cache=False, repair="show")
    (finding,) = check_session.run(options, lambda *_: None).report.findings
    assert finding.code == "ZG101"
    assert (finding.fix is not None) == (after == "")
