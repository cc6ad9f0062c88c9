"""`zerograd run NOTEBOOK`: cells run from top to bottom, findings are by cell and line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support import tiers
from support.command import environment, write
from support.command import zerograd as run_zerograd
from support.notebooks import notebook

START = """\
import torch
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)"""
WRONG = """\
for x in [torch.ones(1, 2)] * 3:
    loss = (model(x) - 3).square().mean()
    loss.backward()
    optimizer.step()"""
needs_ipython = pytest.mark.skipif(sys.version_info < (3, 11), reason="IPython is not installed")


def without_ipython(name: str, folder: Path) -> subprocess.CompletedProcess[str]:
    code = "import sys; sys.modules['IPython'] = None; from zerograd.cli.main import main; sys.exit(main())"
    return subprocess.run(
        [sys.executable, "-c", code, "run", name],
        cwd=folder,
        env=environment(folder / "cache"),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@tiers.long
@needs_ipython
def test_findings_are_by_cell_and_line_as_check_reports_them(tmp_path: Path) -> None:
    folder = write(
        tmp_path / "here",
        {"sub/x.ipynb": notebook("#md # Title", START, f"%%time\n{WRONG}", "!echo from the shell")},
    )
    done = run_zerograd(
        "run", "--format", "json", "--output", "found.json", "sub/x.ipynb", cwd=folder
    )
    assert done.returncode == 1, done.stderr
    assert "sub/x.ipynb:cell 3:4:5  ZG101 stale-gradient" in done.stderr
    assert "    4 |     loss.backward()" in done.stderr
    assert "from the shell" in done.stdout
    (ran,) = json.loads((folder / "found.json").read_text())["findings"]
    checked = json.loads(
        run_zerograd("check", "--format", "json", "sub/x.ipynb", cwd=folder).stdout
    )["findings"][0]
    for key in ("code", "path", "cell", "line", "column"):
        assert ran[key] == checked[key]


@tiers.long
@tiers.long
@needs_ipython
def test_a_notebook_that_loads_the_extension_has_each_finding_once(tmp_path: Path) -> None:
    cells = ("%load_ext zerograd", START, f"%%zerograd run\n{WRONG}", "%zerograd status")
    done = run_zerograd("run", "x.ipynb", cwd=write(tmp_path, {"x.ipynb": notebook(*cells)}))
    assert done.returncode == 1
    said = done.stdout + done.stderr
    assert said.count("ZG101 stale-gradient  backward() adds") == 1
    assert "zerograd run watches this notebook" in said
    assert "watched 3 steps: 1 error" in said


def test_without_ipython_magics_are_left_out_and_said(tmp_path: Path) -> None:
    folder = write(tmp_path, {"x.ipynb": notebook(f"%matplotlib inline\n{START}", WRONG)})
    done = without_ipython("x.ipynb", folder)
    assert done.returncode == 1, done.stderr
    assert "cell 1: `%matplotlib inline` is left out: IPython is not installed" in done.stderr
    assert "x.ipynb:cell 2:3:5  ZG101 stale-gradient" in done.stderr


@tiers.long
@needs_ipython
def test_the_page_of_a_notebook_has_its_cells(tmp_path: Path) -> None:
    folder = write(tmp_path / "here", {"x.ipynb": notebook(START, WRONG)})
    done = run_zerograd("run", "--html", "page.html", "x.ipynb", cwd=folder)
    assert done.returncode == 1, done.stderr
    page = (folder / "page.html").read_text(encoding="utf-8")
    assert "x.ipynb:cell 2:3:5" in page
    assert "<mark class=here>loss.backward()</mark>" in page


@needs_ipython
def test_cells_share_names_and_the_directory_of_the_notebook(tmp_path: Path) -> None:
    folder = write(
        tmp_path / "here",
        {
            "sub/x.ipynb": notebook(
                "import helper\na = 2", "print(a + helper.b, open('data').read())"
            ),
            "sub/helper.py": "b = 3",
            "sub/data": "read",
        },
    )
    done = run_zerograd("run", "sub/x.ipynb", cwd=folder)
    assert (done.returncode, done.stdout) == (0, "5 read\n"), done.stderr
    assert "sub/x.ipynb never imported torch" in done.stderr


@pytest.mark.parametrize(
    ("cell", "code"), [("raise ValueError('mine')", 1), ("import sys; sys.exit(3)", 3), ("1 +", 1)]
)
def test_a_cell_that_fails_ends_the_run_with_its_code(cell: str, code: int, tmp_path: Path) -> None:
    write(tmp_path, {"x.ipynb": notebook("print('first')", cell, "print('the end')")})
    done = without_ipython("x.ipynb", tmp_path)
    assert done.returncode == code
    assert "first" in done.stdout
    assert "the end" not in done.stdout


@needs_ipython
def test_under_ipython_a_cell_that_fails_ends_the_run_too(tmp_path: Path) -> None:
    folder = write(tmp_path / "here", {"x.ipynb": notebook("1/0", "print('the end')")})
    done = subprocess.run(
        [sys.executable, "-m", "zerograd", "run", "x.ipynb"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stdout + done.stderr
    assert "the end" not in done.stdout


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "x.ipynb is not a notebook: its JSON breaks"),
        ("[1]", "x.ipynb is not a notebook: its JSON has no cells"),
    ],
)
def test_what_is_not_a_notebook_is_refused(text: str, said: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "here", {"x.ipynb": text})
    done = run_zerograd("run", "x.ipynb", cwd=folder)
    assert done.returncode == 2
    assert said in done.stderr
