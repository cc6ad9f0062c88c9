"""How each rule is repaired: one file per rule, one line here, loaded when somebody asks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module

from zerograd.core.finding import Finding
from zerograd.fix.context import Repair, Scene
from zerograd.fix.edits import Code, Refused

REPAIRED = {
    "ZG101": "stale_gradient",
    "ZG102": "discarded_gradient",
    "ZG103": "zero_in_window",
    "ZG104": "empty_step",
    "ZG105": "repeated_step",
    "ZG106": "foreign_gradient",
    "ZG107": "none_gradient",
    "ZG109": "self_backward",
    "ZG201": "clip_before_unscale",
    "ZG202": "clip_before_backward",
    "ZG203": "clip_after_step",
    "ZG204": "clip_in_window",
    "ZG205": "scaled_step",
    "ZG207": "missing_update",
    "ZG208": "unscaled_backward",
    "ZG301": "unscaled_window",
    "ZG302": "misplaced_guard",
    "ZG303": "dropped_window",
    "ZG304": "dropped_window",
    "ZG501": "bypassed_wrapper",
}


def repairs(code: Code, finding: Finding, others: Sequence[Finding]) -> Iterator[Repair]:
    """Ways to repair a finding, the best first; nothing says yet that they hold. Or `Refused`."""
    name = REPAIRED.get(finding.code)
    if name is None:
        raise Refused("there is no machine's repair for it")
    yield from import_module(f"zerograd.fix.{name}").repairs(Scene(code, finding, others))
