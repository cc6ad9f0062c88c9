"""What the server finds is what `zerograd check` finds, and what it offers does what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import tiers
from support.casefile import Case, load_all
from zerograd.check.check_session import CheckOptions
from zerograd.core.finding import Finding
from zerograd.fix.document import Document
from zerograd.server.editor_checks import Checked, Checker, Text, allowing
from zerograd.static.check_file import check_file

CASES = [
    case
    for case in load_all()
    if case.expected and all(p.suffix == ".py" for p in map(Path, case.files))
]


def found(text: Text) -> Checked:
    checker = Checker(CheckOptions((), pedantic=True))
    return checker.check(text, str(Path(text.path).parent))


def places(findings: tuple[Finding, ...] | list[Finding]) -> list[tuple[str, int, int]]:
    return [(one.code, one.site.line, one.site.column) for one in findings]


@pytest.mark.parametrize(
    "case", tiers.sample(CASES, 20), ids=lambda case: f"{case.topic}: {case.claim}"
)
def test_allow_here_allows_exactly_one_finding_in_every_case(case: Case, tmp_path: Path) -> None:
    for name, content in case.files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content, encoding="utf-8")
    for name, content in case.files.items():
        path = str(tmp_path / name)
        before = found(Text(path, content))
        assert places(before.findings) == places(check_file(path, pedantic=True).findings)
        for finding in before.findings:
            if finding.site.path != path:
                continue
            edit = allowing(before.text, finding)
            assert edit is not None, finding
            data = Document(path, content.encode()).edited([edit]).data
            after = found(Text(path, data.decode()))
            kept = [one for one in after.findings if one.code == finding.code]
            assert len(kept) < sum(one.code == finding.code for one in before.findings)
            assert not [one for one in after.findings if one.name == "unused-allow"]


AWKWARD = {
    "a line that goes on": "    loss \\\n        .backward()\n",
    "a call over several lines": "    loss.backward(\n        retain_graph=True,\n    )\n",
    "a comment": "    loss.backward()  # add them up\n",
    "two statements": "    x = 1; loss.backward(); y = 2\n",
    "spaces at the end": "    loss.backward()   \n",
    "a string over several lines": '    loss.backward(), """\n  text\n"""\n',
}
LOOP = """\
import torch

model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in data:
    loss = model(x).sum()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize("shape", AWKWARD)
def test_allow_here_finds_a_place_for_its_comment(shape: str, ends: str, tmp_path: Path) -> None:
    content = LOOP.replace("    loss.backward()\n", AWKWARD[shape]).replace("\n", ends)
    path = str(tmp_path / "train.py")
    before = found(Text(path, content))
    (finding,) = before.findings
    edit = allowing(before.text, finding)
    assert edit is not None
    data = Document(path, content.encode()).edited([edit]).data
    assert found(Text(path, data.decode())).findings == ()


def test_a_declared_encoding_does_not_shift_columns(tmp_path: Path) -> None:
    content = "# -*- coding: latin-1 -*-\n" + LOOP.replace("    loss.b", '    "ä"; loss.b')
    (finding,) = found(Text(str(tmp_path / "train.py"), content)).findings
    assert finding.site.column == 10


def test_a_half_of_a_character_is_no_crash(tmp_path: Path) -> None:
    content = LOOP + "# \ud800\n"
    assert len(found(Text(str(tmp_path / "train.py"), content)).findings) == 1
