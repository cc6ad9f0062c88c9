"""How each rule is repaired: one file per rule, one line here, loaded when somebody asks."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

from zerograd.finding import Finding
from zerograd.fixes.scene import Repair, Scene
from zerograd.static.edits import Code, Refused

REPAIRED = {
    "ZG101": "stale_gradient",
}


def repairs(code: Code, finding: Finding) -> Iterator[Repair]:
    """Ways to repair a finding, the best first; nothing says yet that they hold. Or `Refused`."""
    name = REPAIRED.get(finding.code)
    if name is None:
        raise Refused("there is no machine's repair for it")
    yield from import_module(f"zerograd.fixes.{name}").repairs(Scene(code, finding))
