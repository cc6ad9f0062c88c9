"""Which rules are explored: those that source code can break, and no others."""

from __future__ import annotations

import pytest

import zerograd
from zerograd.core.rule import Rule
from zerograd.explore import explore as explorer
from zerograd.rules.catalogue import RULES
from zerograd.static import explore_root

SOURCE = """\
import torch

model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in range(3):
    loss = model(torch.ones(1)).sum()
    loss.backward()
    optimizer.step()
"""


def test_a_rule_that_only_a_run_can_break_is_not_explored() -> None:
    explored: set[Rule] = set()

    def explore(flow: object, rules: list[Rule], **more: object) -> explorer.Result:
        explored.update(rules)
        return explorer.explore(flow, rules, **more)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(explore_root, "explore", explore)
        report = zerograd.check_source(SOURCE, "train.py")
    assert [finding.code for finding in report.findings] == ["ZG101"]
    assert explored
    assert {rule.only for rule in explored} <= {"both", "static"}
    assert {rule.only for rule in RULES} == {"both", "static", "runtime"}
