"""The known ways to break a right training loop, each as one small edit of its text.

An operator takes the acts of a source and gives every text that breaks it in its way. Whether a
mutant is really wrong is not decided here: it is run.
"""

from __future__ import annotations

from collections.abc import Iterator

from mutation import clears, uses
from mutation.acts import Acts
from mutation.kinds import KINDS, Kind, Mutant
from mutation.surgery import Text

__all__ = ["KINDS", "Kind", "Mutant", "clears", "mutants", "uses"]


def mutants(source: str) -> Iterator[Mutant]:
    """Every way to break a source, but for what breaks its syntax or changes nothing."""
    acts = Acts(Text(source))
    seen = {source}
    for kind in KINDS:
        for line, edits in kind.operator(acts):
            text = acts.text.with_edits(edits) if edits else None
            if text is not None and text not in seen:
                seen.add(text)
                yield Mutant(kind, line, text)
