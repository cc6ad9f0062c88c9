"""What a finding says of the decisions that it depends on."""

from __future__ import annotations

from textwrap import dedent

import pytest

from zerograd.core.finding import Finding
from zerograd.static.check_file import check_text


def findings(code: str, loop: str) -> list[Finding]:
    """The findings of one rule in a function that trains with this loop, the possible ones too."""
    head = """\
        import torch

        def train(model, loader, loss_fn, args):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    """
    text = dedent(head) + "    " + dedent(loop).strip().replace("\n", "\n    ") + "\n"
    report = check_text(text, pedantic=True)
    assert not report.errors
    return [finding for finding in report.findings if finding.code == code]


CERTAIN = [
    (
        "no decision",
        """
        for x, y in loader:
            loss_fn(model(x), y).backward()
            optimizer.step()
        """,
        (),
    ),
    (
        "one decision",
        """
        for x, y in loader:
            if args.clear:
                optimizer.zero_grad()
                model.train()
            else:
                optimizer.step()
            loss_fn(model(x), y).backward()
            optimizer.step()
        """,
        ("not (args.clear)",),
    ),
]

POSSIBLE = [
    (
        "two tests",
        """
        for x, y in loader:
            if args.clear:
                optimizer.zero_grad()
            if args.clear_again:
                optimizer.zero_grad()
            loss_fn(model(x), y).backward()
            optimizer.step()
        """,
        ("not (args.clear)", "not (args.clear_again)"),
    ),
    (
        "a switch for the only clear weighs two and is one decision",
        """
        for x, y in loader:
            if args.clear:
                optimizer.zero_grad()
            loss_fn(model(x), y).backward()
            optimizer.step()
        """,
        ("not (args.clear)",),
    ),
    (
        "an exception that is caught weighs two and is one decision",
        """
        for x, y in loader:
            try:
                loss_fn(model(x), y).backward()
                optimizer.step()
                print(x)
                optimizer.zero_grad()
            except RuntimeError:
                print("skipped")
        """,
        ("an exception in line 6",),
    ),
]


@pytest.mark.parametrize(("why", "loop", "when"), CERTAIN, ids=[why for why, *_ in CERTAIN])
def test_a_certain_finding_depends_on_one_decision_at_most(
    why: str, loop: str, when: tuple[str, ...]
) -> None:
    (finding,) = findings("ZG101", loop)
    assert finding.certain
    assert finding.when == when


@pytest.mark.parametrize(("why", "loop", "when"), POSSIBLE, ids=[why for why, *_ in POSSIBLE])
def test_a_finding_is_possible_when_its_decisions_weigh_two(
    why: str, loop: str, when: tuple[str, ...]
) -> None:
    (finding,) = findings("ZG101", loop)
    assert not finding.certain
    assert finding.when == when


def test_a_decision_in_a_function_that_is_called_is_reported_as_its_source() -> None:
    text = """\
        import torch

        def clear(optimizer, p):
            if isinstance(p, dict):
                optimizer.zero_grad()
                print(p)
            else:
                print(p)

        def train(model, loader, loss_fn):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                clear(optimizer, x)
                loss_fn(model(x), y).backward()
                optimizer.step()
    """
    report = check_text(dedent(text), pedantic=True)
    assert [finding.when for finding in report.findings] == [("not (isinstance(p, dict))",)]


def test_the_same_test_in_two_calls_of_a_function_is_two_decisions_and_one_text() -> None:
    text = """\
        import torch

        def clear(optimizer, p):
            if isinstance(p, dict):
                optimizer.zero_grad()

        def train(model, loader, loss_fn):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                clear(optimizer, x)
                clear(optimizer, y)
                loss_fn(model(x), y).backward()
                optimizer.step()
    """
    (finding,) = check_text(dedent(text), pedantic=True).findings
    assert not finding.certain
    assert finding.when == ("not (isinstance(p, dict))",)


def test_an_expression_that_is_too_long_to_follow_takes_no_findings_from_the_loops_before_it() -> (
    None
):
    loop = """\
def {}(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in loader:
        model(x){}.sum().backward()
        optimizer.step()
"""
    report = check_text(
        "import torch\n" + loop.format("train", "") + loop.format("deep", ".t()" * 700)
    )
    assert [(finding.code, finding.site.line) for finding in report.findings] == [("ZG101", 5)]
    assert ["was checked only in part" in problem.message for problem in report.errors] == [True]


LOOP = """\
import torch

class Trainer:
    def __init__(self, one, two):
        self.one, self.two = one, two
        self.first = torch.optim.SGD(one.parameters(), lr=0.1)
        self.second = torch.optim.SGD(two.parameters(), lr=0.1)

    def train(self, loader):
        for x in loader:
            self.second.zero_grad()
            (self.one(x).sum() + self.two(x).sum()).backward()
            self.first.step()
            self.second.step()
"""
WITHOUT_GRADIENTS = (
    "            with torch.no_grad(): measure_0(self.one, self.two, x)\n"
    + "".join(
        f"def measure_{level}(one, two, x):\n"
        + f"    measure_{level + 1}(one, two, x)\n" * 30
        + "    return one(x) + two(x)\n"
        for level in range(5)
    )
)
IN_THE_MODE_OF_TRAINING = "            self.measure_0(x)\n" + "".join(
    f"    def measure_{level}(self, x):\n        self.one.train()\n"
    + f"        self.measure_{level + 1}(x)\n" * 4
    for level in range(9)
)


@pytest.mark.parametrize("evaluation", [WITHOUT_GRADIENTS, IN_THE_MODE_OF_TRAINING])
def test_evaluation_does_not_keep_a_loop_from_being_read_to_its_end(evaluation: str) -> None:
    report = check_text(LOOP + evaluation)
    assert report.errors == []
    assert [(one.code, one.site.line) for one in report.findings] == [("ZG101", 12)]
