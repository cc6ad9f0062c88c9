"""Tests of a training loop. All pass under `pytest`; `pytest --zerograd examples/tests` fails one of them.

The loss falls with a forgotten clear, too, so a test of the loss alone does not see the mistake.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

import zerograd


def test_the_loss_falls(fit: Callable[..., float]) -> None:
    assert fit() < 1


def test_the_loss_falls_without_a_clear(fit: Callable[..., float]) -> None:
    assert fit("state_dict") < 1  # the wrong method is called: pytest --zerograd fails this test


@pytest.mark.zerograd(allow=["stale-gradient"])
def test_a_mistake_that_is_allowed(fit: Callable[..., float]) -> None:
    assert fit("state_dict") < 1


def test_the_report_says_what_was_found(
    fit: Callable[..., float], gradient_report: zerograd.Report
) -> None:
    fit("state_dict")
    assert [one.name for one in gradient_report.findings] == ["stale-gradient"]
