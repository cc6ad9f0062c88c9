"""Every rule's fix makes its bad example the good one; repaired programs run, and watching them is silent."""

from __future__ import annotations

import re
import runpy
import shutil
from importlib import import_module
from pathlib import Path

import pytest

import zerograd
from support import tiers
from support.casefile import Case, load_all
from support.command import zerograd as command
from support.example_scripts import EXAMPLES, SCRIPTS, table
from support.repairs import everything, repaired
from support.rule_pages import by_rule, example, rules_for
from zerograd.core.finding import Finding
from zerograd.core.rule import Rule
from zerograd.fix.document import Document
from zerograd.fix.repair import module_of, repair
from zerograd.learn.rule_pages import LAYOUT, prelude
from zerograd.static.check_file import result_for_bytes

FIX = re.compile(r"\n\nFix: (?P<kind>safe|unsafe|none)\. ")
CASES = [case for case in load_all() if case.expected and all(b.cell is None for b in case.blocks)]


def promised(rule: Rule) -> str:
    page = LAYOUT.fullmatch(rule.doc)
    assert page is not None
    (kind,) = FIX.findall("\n\n" + page["why"])
    return str(kind)


@by_rule
def test_a_page_says_whether_a_machine_repairs_it(rule: Rule) -> None:
    assert (promised(rule) != "none") == (module_of(rule) is not None)


@by_rule
def test_a_repair_has_the_name_of_its_rule_and_begins_with_its_code(rule: Rule) -> None:
    name = module_of(rule)
    if name is not None:
        assert name == f"zerograd.fix.{rule.name.replace('-', '_')}"
        assert (import_module(name).__doc__ or "").startswith(f"{rule.code}: ")


@rules_for("static")
def test_fix_of_bad_is_good_and_safe_where_the_page_says_so(rule: Rule) -> None:
    bad, good = example(rule, "bad"), example(rule, "good")
    head = prelude(bad)
    kind = promised(rule)
    safely = repaired(head + bad, unsafe=False)
    assert safely.document.text == head + (good if kind == "safe" else bad)
    unsafely = repaired(head + bad, unsafe=True)
    assert unsafely.document.text == head + (bad if kind == "none" else good)
    again = repaired(unsafely.document.data, unsafe=True)
    assert (again.document, again.fixed) == (unsafely.document, [])


@by_rule
def test_the_good_example_is_left_alone(rule: Rule) -> None:
    code = example(rule, "good")
    assert repaired(prelude(code) + code).document.text == prelude(code) + code


@pytest.mark.parametrize("unsafe", tiers.sample([False, True], [True]), ids=["safe", "unsafe"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_repaired_case_has_less_to_find_and_nothing_new(
    case: Case, unsafe: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for path in case.write(tmp_path):
        document = Document(path.relative_to(tmp_path).as_posix(), path.read_bytes())
        before = result_for_bytes(document.data, document.path)
        done = repair(document, lambda finding: finding.certain, unsafe=unsafe)
        after = done.result
        errors = [[f.code for f in one.findings if f.level == "error"] for one in (before, after)]
        assert all(errors[1].count(code) <= errors[0].count(code) for code in set(errors[1]))
        assert after.problems == before.problems
        if not done.fixed:
            assert done.document == document  # another repair would do the same
            continue
        again = repair(done.document, lambda finding: finding.certain, unsafe=unsafe)
        assert (again.document, again.fixed) == (done.document, [])


def seen_when_run(path: Path) -> set[str]:
    """The codes of what a watched run of a script shows, other than advice."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    with zerograd.watch(on="collect") as report:
        runpy.run_path(str(path), run_name="__main__")
    return {finding.code for finding in report.findings}


@pytest.mark.parametrize("case", [one for one in CASES if one.runnable], ids=lambda case: case.id)
def test_a_repaired_program_runs_and_a_watch_of_it_is_silent(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    paths = case.write(tmp_path)
    fixed: list[Finding] = []
    left: list[Finding] = []
    for path in paths:
        done = repair(Document(str(path), path.read_bytes()), everything, unsafe=True)
        path.write_bytes(done.document.data)
        fixed += done.fixed
        left += done.result.findings
    seen = seen_when_run(paths[-1])
    assert seen.isdisjoint({one.code for one in fixed} - {one.code for one in left})


@pytest.fixture(scope="module")
def mended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of examples/, repaired by the command."""
    folder = tmp_path_factory.mktemp("examples") / "copy"
    shutil.copytree(EXAMPLES, folder)
    done = command("check", "--fix", "--ignore", NOT_REPAIRED, ".", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    return folder


NOT_REPAIRED = "ZG401"
"""An error of an example that has no repair: where a window ends is not a machine's decision."""


def errors(name: str) -> list[str]:
    """What the README says is wrong with an example and is repaired; advice is not."""
    return [code for code in table()[name] if not code.startswith("ZG3") and code != NOT_REPAIRED]


def test_the_repaired_examples_are_clean(mended: Path) -> None:
    done = command("check", "--pedantic", "--ignore", NOT_REPAIRED, ".", cwd=mended)
    assert done.returncode == 0
    assert " error" not in done.stdout.splitlines()[-1]


def test_no_other_example_is_touched(mended: Path) -> None:
    for path in SCRIPTS:
        changed = path.read_bytes() != (mended / path.name).read_bytes()
        assert changed == bool(errors(path.name)), path.name


@pytest.mark.parametrize("name", [name for name in table() if errors(name)])
def test_every_repaired_example_still_runs_and_a_watch_of_it_is_silent(
    name: str, mended: Path
) -> None:
    assert seen_when_run(mended / name) == set()


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("pitfall_forgotten_zero", "pitfall_forgotten_zero_fixed"),
        ("pitfall_none_gradient", "pitfall_none_gradient_fixed"),
        ("pitfall_zero_after_backward", "pitfall_zero_after_backward_fixed"),
        ("accumulating_linear", "cleared_linear"),
        ("gradient_accumulation_wrong", "gradient_accumulation"),
        ("mixed_precision_clip_scaled", "mixed_precision"),
        ("forgotten_zero_grad", "correct"),
        ("two_optimizers_one_forgotten", "two_optimizers"),
    ],
)
def test_a_repaired_example_ends_with_the_weights_of_the_right_one_beside_it(
    wrong: str, right: str, mended: Path
) -> None:
    pytest.importorskip("torch")
    ends = [weights(path) for path in (mended / f"{wrong}.py", EXAMPLES / f"{right}.py")]
    assert ends[0]
    assert ends[0] == ends[1]


def weights(path: Path) -> dict[str, list[float]]:
    """What a script leaves in its parameters, bit for bit."""
    import torch

    names = runpy.run_path(str(path), run_name="__main__")
    modules = {name: one for name, one in names.items() if isinstance(one, torch.nn.Module)}
    found = {
        f"{name}.{key}": tensor
        for name, module in modules.items()
        for key, tensor in module.named_parameters()
    }
    found |= {name: one for name, one in names.items() if isinstance(one, torch.nn.Parameter)}
    return {name: tensor.detach().flatten().tolist() for name, tensor in found.items()}
