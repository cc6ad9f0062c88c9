"""What the rules found in all roots of a file, and the findings that it becomes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerograd.core.events import Site
from zerograd.core.finding import Finding
from zerograd.core.records import dataclass, field, replace
from zerograd.core.rule import Rule, finding_of
from zerograd.explore.decisions import smallest, weight

if TYPE_CHECKING:
    from zerograd.explore.explore import Outcome
    from zerograd.static.reuse import Named, Recalled


@dataclass
class Outcomes:
    """The violations in all roots of a file."""

    found: list[Named]
    """All of them, in order."""
    _kept: dict[tuple[Rule, Site], list[Outcome]] = field(default_factory=dict)
    _optimizers: dict[tuple[Rule, Site], str] = field(default_factory=dict)

    def recall(self, root: Recalled) -> None:
        """Keeps the violations of a root that was not interpreted."""
        for outcome, optimizer in root.found:
            self.add(outcome, optimizer)

    def add(self, outcome: Outcome, optimizer: str) -> None:
        """Keeps a violation, and the name of the optimizer that it is about."""
        self.found.append((outcome, optimizer))
        key = (outcome.rule, outcome.violation.site)
        self._kept.setdefault(key, []).append(outcome)
        self._optimizers.setdefault(key, optimizer)

    def findings(self) -> list[Finding]:
        """The findings, in the order of the source."""
        found = {}
        for (rule, site), kept in self._kept.items():
            # The outcomes with the fewest decisions; among these, those that show without a caller or a subclass.
            outcome = min(
                kept, key=lambda one: (weight(one.decisions[0]), len(one.violation.notes))
            )
            message = outcome.violation.message
            same = [
                other for other in kept if rule.most_decisions or other.violation.message == message
            ]
            # What the outcomes of a test have in common does not depend on the test.
            decisions = smallest({path for other in same for path in other.decisions})[0]
            if weight(decisions) <= rule.most_decisions:
                found[rule, site] = replace(
                    finding_of(rule, outcome.violation),
                    step=outcome.violation.step,
                    certain=weight(decisions) < 2,
                    when=tuple(sorted({str(decision) for decision in decisions})),
                    optimizer=self._optimizers[rule, site],
                )
        made = [
            one
            for (rule, site), one in found.items()
            if not _says_more(found.get((rule.yields_to or rule, site)), one)
        ]
        made.sort(key=lambda f: (f.site.path, f.site.line, f.site.column, f.code))
        return made


def _says_more(other: Finding | None, one: Finding) -> bool:
    """Whether another finding at the same place says more, and is no less certain."""
    return other is not None and other is not one and other.certain >= one.certain
