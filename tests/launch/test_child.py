"""Every Python process that a watched program starts is watched too."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.command import zerograd

pytest.importorskip("torch")


def test_a_child_process_is_watched_and_one_without_torch_loads_nothing(tmp_path: Path) -> None:
    wrong = (
        "import torch\nw = torch.ones(1, requires_grad=True)\no = torch.optim.SGD([w], lr=0.1)\n"
        "for _ in range(3):\n    (w * w).sum().backward()\n    o.step()\n"
    )
    (tmp_path / "train.py").write_text(wrong)
    (tmp_path / "idle.py").write_text(
        "import sys\nprint([m for m in sys.modules if m.startswith('zerograd')], sys.path[0])\n"
    )
    (tmp_path / "main.py").write_text(
        "import subprocess, sys\n"
        "for name in ('idle.py', 'train.py'):\n"
        "    subprocess.run([sys.executable, name], check=True)\n"
    )
    done = zerograd("run", "main.py", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert done.stdout == f"[] {tmp_path}\n"
    assert "train.py:5" in done.stderr
    assert "watched 3 steps: 1 error" in done.stderr


def test_the_sitecustomize_that_is_there_is_loaded(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "sitecustomize.py").write_text("import builtins\nbuiltins.CUSTOM = 7\n")
    (tmp_path / "child.py").write_text("print(CUSTOM)\n")
    (tmp_path / "main.py").write_text(
        "import subprocess, sys\nsubprocess.run([sys.executable, 'child.py'], check=True)\n"
    )
    done = zerograd("run", "main.py", cwd=tmp_path, PYTHONPATH=str(theirs))
    assert (done.returncode, done.stdout) == (0, "7\n"), done.stderr


def test_a_run_leaves_no_directory_behind(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\n")
    (tmp_path / "temporary").mkdir()
    done = zerograd("run", "train.py", cwd=tmp_path, TMPDIR=str(tmp_path / "temporary"))
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "temporary").iterdir()) == []
