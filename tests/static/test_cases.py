"""Every case of tests/cases/*.md is judged by the real checker, on real files."""

from __future__ import annotations

import ast
import runpy
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.casefile import CASES, Case, Expectation, load, load_all

if TYPE_CHECKING:
    from zerograd.core.finding import Finding

ALL = load_all()

# Every rule a static reader can see.
CODES = (
    "ZG101 ZG102 ZG103 ZG104 ZG105 ZG106 ZG107 ZG109 ZG111 "
    "ZG201 ZG202 ZG203 ZG204 ZG205 ZG206 ZG207 ZG208 "
    "ZG301 ZG302 ZG303 ZG304 ZG401 ZG501"
).split()


def findings(case: Case, root: Path, *, pedantic: bool) -> set[Expectation]:
    """What the checker finds in the case's files, in the words of an expectation."""
    from zerograd.static.check_file import check_file

    found: set[Expectation] = set()
    for path in case.write(root):
        report = check_file(path, pedantic=pedantic)
        assert report.errors == []
        found |= {_expectation(finding, root) for finding in report.findings}
    return found


def _expectation(finding: Finding, root: Path) -> Expectation:
    path = Path(finding.site.path)
    name = path.relative_to(root) if path.is_absolute() else path
    site = finding.site
    return Expectation(name.as_posix(), site.line, finding.code, finding.certain, site.cell)


def difference(case: Case, found: set[Expectation], expected: set[Expectation]) -> str:
    """The case's code, each line that disagrees marked with what was missed or made up."""
    lines = [f"tests/cases/{case.topic}.md:{case.line}: {case.claim}"]
    for block in case.blocks:
        if len(case.blocks) > 1:
            lines.append(f"--- {block.path}" + (f" cell {block.cell}" if block.cell else ""))
        for number, line in enumerate(block.text.splitlines(), start=1):
            lines.append(f"{number:4} | {line}")
            here = (block.path, block.cell, number)
            for one in sorted(expected ^ found):
                if (one.path, one.cell, one.line) == here:
                    lines.append(f"     ^ {'missed' if one in expected else 'made up'}: {one}")
    strays = {one for one in found - expected if one.path not in case.files}
    lines.extend(f"     made up elsewhere: {one}" for one in sorted(strays))
    return "\n".join(lines)


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.id)
def test_check_finds_exactly_what_the_case_says(case: Case, tmp_path: Path) -> None:
    expected = set(case.expected)
    found = findings(case, tmp_path, pedantic=True)
    assert found == expected, "\n" + difference(case, found, expected)


@pytest.mark.parametrize(
    "case",
    [case for case in ALL if any(not one.certain for one in case.expected)],
    ids=lambda case: case.id,
)
def test_a_possible_finding_is_hidden_unless_asked_for(case: Case, tmp_path: Path) -> None:
    expected = {one for one in case.expected if one.certain}
    found = findings(case, tmp_path, pedantic=False)
    assert found == expected, "\n" + difference(case, found, expected)


@pytest.mark.parametrize("path", sorted(CASES.glob("*.md")), ids=lambda path: path.stem)
def test_a_case_file_holds_cases_of_valid_python(path: Path) -> None:
    cases = load(path)
    assert cases
    for case in cases:
        for block in case.blocks:
            if block.cell is None:
                ast.parse(block.text, filename=f"{case.id} {block.path}")


def test_no_claim_is_made_twice() -> None:
    counted = Counter(case.id for case in ALL)
    assert [claim for claim, times in counted.items() if times > 1] == []


def test_expectations_name_rules_that_exist() -> None:
    named = {one.code for case in ALL for one in case.expected | case.refuted}
    assert named <= set(CODES)


@pytest.mark.parametrize("code", CODES)
def test_every_rule_is_both_broken_and_kept(code: str) -> None:
    broken = [case.id for case in ALL if any(one.code == code for one in case.expected)]
    kept = [case.id for case in ALL if any(one.code == code for one in case.refuted)]
    assert broken, f"no case breaks {code}"
    assert kept, f"no case keeps {code} where a naive reader would accuse (# not {code})"


def test_right_code_is_shown_at_least_as_often_as_wrong_code() -> None:
    silent = sum(case.silent for case in ALL)
    assert silent >= len(ALL) - silent


@pytest.mark.parametrize("case", [case for case in ALL if case.runnable], ids=lambda case: case.id)
def test_a_case_that_says_it_runs_runs(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    paths = case.write(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with paths[-1].open("a", encoding="utf-8") as script:
        script.write("\nreached_the_end = True\n")
    assert runpy.run_path(str(paths[-1]), run_name="__main__")["reached_the_end"]
