"""`%load_ext zerograd` in real kernels and shells: findings are below their cell, by cell and line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import zerograd
from support import tiers
from support.paths import ROOT

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")

START = """\
%load_ext zerograd
import torch
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = [torch.ones(1, 2)] * 3"""
WRONG = """\
for x in data:
    loss = (model(x) - 3).square().mean()
    loss.backward()
    optimizer.step()"""
RIGHT = WRONG.replace("    loss =", "    optimizer.zero_grad()\n    loss =")
RAISES = 'print("before")\nraise ValueError("of the user")'


class Executed:
    """A notebook that was executed in a kernel; cells count from 1."""

    def __init__(self, *cells: str) -> None:
        made = [nbformat.v4.new_code_cell(cell) for cell in cells]
        self.notebook = nbformat.v4.new_notebook(cells=made)
        client = nbclient.NotebookClient(
            self.notebook, timeout=120, kernel_name="python3", allow_errors=True
        )
        client.execute()

    def outputs(self, cell: int, *kinds: str) -> list[Any]:
        made = self.notebook.cells[cell - 1].outputs
        return [one for one in made if not kinds or one.output_type in kinds]

    def text(self, cell: int) -> str:
        """What zerograd shows below a cell, as text."""
        return "\n\n".join(one.data["text/plain"] for one in self.outputs(cell, "display_data"))

    def html(self, cell: int) -> str:
        return "".join(one.data["text/html"] for one in self.outputs(cell, "display_data"))

    def printed(self, cell: int) -> str:
        return "".join(one.text for one in self.outputs(cell, "stream"))


@pytest.fixture(scope="module")
def executed() -> Executed:
    """One kernel for most tests: to start one takes seconds."""
    return Executed(
        START,  # 1
        WRONG,  # 2
        RIGHT,  # 3
        "%zerograd status",  # 4
        f"%%time\n{WRONG}",  # 5
        f"%%capture kept\n{WRONG}",  # 6
        "%zerograd off",  # 7
        WRONG,  # 8
        f"%%zerograd run\n{RIGHT}",  # 9
        f"%%zerograd run\n{WRONG}",  # 10
        "%zerograd on",  # 11
        f"from IPython.display import clear_output\n{WRONG}\n    clear_output()",  # 12
        RAISES,  # 13
        WRONG.replace("()\n    opt", "()  # zerograd: allow[stale-gradient]\n    opt"),  # 14
        "def train():\n" + "\n".join(f"    {line}" for line in RIGHT.splitlines()),  # 15
        "train()",  # 16
        "%zerograd perhaps",  # 17
        "import zerograd\n%zerograd off\nwith zerograd.watch(on='collect') as report:\n"
        + "\n".join(f"    {line}" for line in WRONG.splitlines()),  # 18
        "report",  # 19
        "report.findings[0]",  # 20
        "report.show()",  # 21
        f"%%zerograd run\n{RAISES}",  # 22
        "%unload_ext zerograd\n%zerograd status",  # 23
    )


pytestmark = tiers.long


def test_a_wrong_cell_shows_one_finding_by_cell_and_line(executed: Executed) -> None:
    assert len(executed.outputs(2)) == 1, "the check and the watch agree on one place"
    shown = executed.text(2)
    assert shown.startswith("notebook:cell 2:3:5  ZG101 stale-gradient")
    assert "seen  2 times, first at step 2" in shown
    assert "    3 |     loss.backward()" in shown
    assert "ipykernel" not in shown


def test_the_finding_is_rich_html(executed: Executed) -> None:
    shown = executed.html(2)
    assert "ZG101" in shown
    assert "notebook, cell 2, line 3" in shown
    assert "<mark class=here>loss.backward()</mark>" in shown
    assert "optimizer.zero_grad()" in shown, "the help"


def test_a_right_cell_shows_nothing(executed: Executed) -> None:
    assert executed.outputs(3) == []
    assert executed.outputs(15) == []
    assert executed.outputs(16) == []


def test_the_status_says_what_was_watched(executed: Executed) -> None:
    assert executed.printed(4) == "zerograd is on: watched 6 steps, 1 error\n"


@pytest.mark.parametrize("cell", [5, 6])
def test_lines_in_the_body_of_a_cell_magic_are_those_of_the_cell(
    cell: int, executed: Executed
) -> None:
    if cell == 6:
        assert executed.outputs(6) != [], "%%capture does not hide a finding"
    assert executed.text(cell).startswith(f"notebook:cell {cell}:4:5  ZG101")


def test_off_watches_nothing_and_run_watches_one_cell(executed: Executed) -> None:
    assert executed.outputs(8) == []
    assert executed.text(9) == "zerograd watched 3 steps: nothing to report"
    shown = executed.text(10)
    assert shown.startswith("notebook:cell 10:4:5  ZG101")
    assert shown.endswith("zerograd watched 3 steps: 1 error")


def test_a_finding_survives_a_cell_that_clears_its_output(executed: Executed) -> None:
    assert "notebook:cell 12:4:5  ZG101" in executed.text(12)


def test_the_user_sees_own_errors_and_output(executed: Executed) -> None:
    stream, error = executed.outputs(13)
    assert stream.text == "before\n"
    assert (error.ename, error.evalue) == ("ValueError", "of the user")


def test_an_error_under_the_magic_is_shown_once_with_the_users_lines(executed: Executed) -> None:
    _, _, error = executed.outputs(22)
    assert (error.ename, error.evalue) == ("ValueError", "of the user")
    assert "zerograd/integrations" not in "".join(error.traceback)


def test_a_comment_in_a_cell_allows_a_rule(executed: Executed) -> None:
    assert executed.outputs(14) == []


def test_an_unknown_argument_of_the_magic_is_named_with_the_way_out(executed: Executed) -> None:
    printed = executed.printed(17)
    assert "UsageError: %zerograd perhaps is none of these:" in printed
    assert "%zerograd off" in printed


def test_reports_and_findings_show_themselves(executed: Executed) -> None:
    (report,) = executed.outputs(19)
    assert "notebook:cell 18:6:9  ZG101" in report.data["text/plain"]
    assert report.data["text/plain"].endswith("watched 3 steps: 1 error")
    assert "notebook, cell 18, line 6" in report.data["text/html"]
    (finding,) = executed.outputs(20)
    assert "ZG101" in finding.data["text/html"]


def test_the_page_is_shown_below_the_cell(executed: Executed) -> None:
    (page,) = executed.outputs(21)
    shown = page.data["text/html"]
    assert shown.startswith('<iframe srcdoc="&lt;!doctype html&gt;')
    assert "ZG101" in shown


def test_unloading_takes_the_magic_away(executed: Executed) -> None:
    assert "Line magic function `%zerograd` not found" in executed.printed(23)


def test_an_earlier_cell_is_context_for_a_later_one() -> None:
    """The step of cell 2 is in no loop; the loop of cell 3 makes it wrong before anything ran."""
    done = Executed(
        START,
        "def update(x):\n    (model(x) - 3).square().mean().backward()\n    optimizer.step()",
        "for x in []:\n    update(x)",
    )
    assert done.outputs(2) == []
    assert done.text(3).startswith("notebook:cell 2:2:5  ZG101 stale-gradient")


def test_torch_may_be_imported_after_the_extension() -> None:
    done = Executed(
        "%load_ext zerograd",
        "%zerograd status",
        START.replace("%load_ext zerograd\n", ""),
        WRONG,
    )
    assert done.printed(2) == "zerograd is on, and waits until torch is imported\n"
    assert "seen  2 times" in done.text(4)


def test_a_plain_terminal_shows_text_on_standard_error(tmp_path: Path) -> None:
    script = "\n\n".join([START, f"{WRONG}\n", "exit"])
    done = subprocess.run(
        [sys.executable, "-m", "IPython", "--no-banner", "--colors=nocolor", "--simple-prompt"],
        input=script + "\n",
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**_environment(), "IPYTHONDIR": str(tmp_path)},
        timeout=120,
        check=False,
    )
    assert ":3:5  ZG101 stale-gradient" in done.stderr, done.stdout + done.stderr
    assert "<style>" not in done.stdout + done.stderr


def _environment() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONUTF8": "1"}


def test_a_shell_that_is_not_ipython_gets_a_clear_message() -> None:
    with pytest.raises(RuntimeError, match=r"needs the shell of IPython; elsewhere, use zerograd"):
        zerograd.load_ipython_extension(object())


def test_the_example_notebook_is_executed_end_to_end() -> None:
    notebook = nbformat.read(ROOT / "examples" / "notebook.ipynb", as_version=4)
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    shown = [
        output.data["text/plain"]
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if output.output_type == "display_data"
    ]
    assert len(shown) == 1
    assert "ZG101 stale-gradient" in shown[0]
