"""The parameters of optimizers by name, where they cannot be seen: `opt_gen` steps `gen`, `optimizerD` steps `netD`.

A module that keeps an optimizer is what the optimizer steps: `gen.optimizer` steps `gen`. Only if each of several
optimizers fits one module, and no two of them the same one.
"""

from __future__ import annotations

from collections.abc import Iterator

from zerograd.core.events import Backward
from zerograd.core.late_pattern import pattern
from zerograd.core.records import replace
from zerograd.explore.flow import Flow, find
from zerograd.static.frameworks.table import Role
from zerograd.static.interp.emitter import Act
from zerograd.static.read.keys import RESULT, SELF, Key
from zerograd.static.subject_events import SubjectKeys

_WORD = pattern(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_COMMON = frozenset({"opt", "optim", "optimizer", "optimiser", "net", "network", "model", "module"})
"""Words that say what kind of object it is, not which one."""


def with_named_parameters(
    subjects: list[SubjectKeys], flow: Flow, roles: dict[Key, Role]
) -> list[SubjectKeys]:
    """The subjects. Those whose parameters cannot be seen get the module that fits their name."""
    unseen = [one for one in subjects if one.params is None and not one.key.is_by_hand]
    if len(subjects) < 2 or not unseen:
        return subjects
    stepped = {key for one in subjects for key in one.params or ()}
    modules = set(_modules(flow, roles)) - stepped
    found: dict[Key, Key] = {}
    for one in unseen:
        words = _words(one.key)
        if not words and (keeper := Key(one.key[:-1])) in modules:
            found[one.key] = keeper
            continue
        akin = [key for key in modules if _are_akin(words, _words(key))]
        if len(akin) != 1 or not _fit(words, _words(akin[0])):
            return subjects
        found[one.key] = akin[0]
    if len(set(found.values())) < len(found):
        return subjects
    return [
        replace(one, params=frozenset({found[one.key]})) if one.key in found else one
        for one in subjects
    ]


def _modules(flow: Flow, roles: dict[Key, Role]) -> Iterator[Key]:
    """The objects that losses run through."""
    for act in find(flow, Act):
        if isinstance(act.event, Backward):
            for key in act.whose | act.perhaps:
                if key not in (RESULT, SELF) and not roles.get(key):
                    yield key


def _words(key: Key) -> frozenset[str]:
    found = (word.lower() for word in _WORD.findall(key.last_name))
    return frozenset(found) - _COMMON


def _are_akin(one: frozenset[str], other: frozenset[str]) -> bool:
    """Whether two names have a word in common, or a word and its abbreviation."""
    return any(a.startswith(b) or b.startswith(a) for a in one for b in other)


def _fit(one: frozenset[str], other: frozenset[str]) -> bool:
    """Whether two names mean the same: the same words, or one word and its abbreviation (`disc`, `discriminator`)."""
    if not one or not other:
        return False
    if one == other:
        return True
    if len(one) > 1 or len(other) > 1:
        return False
    short, long = sorted((*one, *other), key=len)
    return long.startswith(short) and len(short) != 2
