"""The known ways to break a correct training loop, each as one small edit of its text.

An operator takes the acts of a source and yields every text that is broken in its way. A run decides
whether a mutant is really wrong.
"""

from __future__ import annotations

from collections.abc import Iterator

from mutation import clears, uses
from mutation.acts import Acts
from mutation.kinds import KINDS, Kind, Mutant
from mutation.surgery import Text

__all__ = ["KINDS", "Kind", "Mutant", "clears", "mutants", "uses"]


def mutants(source: str) -> Iterator[Mutant]:
    """Every mutant of a source that is valid Python and differs from the source."""
    acts = Acts(Text(source))
    seen = {source}
    for kind in KINDS:
        for line, edits in kind.operator(acts):
            text = acts.text.with_edits(edits) if edits else None
            if text is not None and text not in seen:
                seen.add(text)
                yield Mutant(kind, line, text)
