"""Methods that fill and step an optimizer of their object once per call: they are called again and again.

What one call leaves in the gradients, the next call finds there, unless the callers clear it.
"""

from __future__ import annotations

import ast
import re

from zerograd.core.events import Backward, Step
from zerograd.core.late_pattern import pattern
from zerograd.explore.flow import Flow, find
from zerograd.static.interp.emitter import Act
from zerograd.static.read import vocabulary
from zerograd.static.read.keys import SELF, Key, KeyPart
from zerograd.static.read.syntax_tree import text_of
from zerograd.static.read.values import Fn, Klass, Thing
from zerograd.static.roots import Root

_ONCE = pattern(
    r"^__|(^|_)(test|main|demo|example|init|set_?up|build|make|create|configure|sanity|debug|profile|benchmark|"
    r"find|compile|closure)(_|$)",
    re.IGNORECASE,
)
"""Methods of such names are called once, or in an order of their own."""


def kept_and_stepped(root: Root, flow: Flow) -> frozenset[Key]:
    """The optimizers that a method's object keeps, and that each call of the method fills and steps once."""
    fn = root.fn
    if fn is None or fn.klass is None or not isinstance(fn.owner, Thing) or _ONCE.search(fn.name):
        return frozenset()
    acts = find(flow, Act)
    if not any(isinstance(act.event, Backward) for act in acts):
        return frozenset()
    classes, klass = root.interpreter.classes, fn.owner.klass or fn.klass
    lineage = classes.lineage(klass)
    visible = classes.is_visible(klass)
    return frozenset(
        key
        for act in acts
        if isinstance(act.event, Step) and not act.event.loop
        for key in act.whose
        if key[:1] == SELF
        and len(key) > 1
        # What an unseen base keeps, it may clear.
        and (visible or any(_names(base, key[1]) for base in lineage))
    )


def _names(klass: Klass, attr: KeyPart) -> bool:
    """Whether a class assigns or annotates an attribute."""
    return attr in klass.module.attributes_of(klass.node) or any(
        isinstance(node, ast.AnnAssign) and text_of(node.target) == attr for node in klass.node.body
    )


def callers_may_clear(root: Root) -> bool:
    """Whether code of the project around the calls of a method may clear what the method leaves."""
    fn = root.fn
    if fn is None or fn.klass is None or _has_own_clear(root, fn, fn.klass):
        return True
    from zerograd.static.read.callers import may_be_cleared

    followed = {getattr(node, "name", "") for node in root.interpreter.nesting.inlined}
    return may_be_cleared(fn.module.path, (fn.name,), followed - {""})


def _has_own_clear(root: Root, fn: Fn, klass: Klass) -> bool:
    """Whether another method of the object clears, and the method that is read does not call it."""
    followed = root.interpreter.nesting.inlined | {fn.node}
    others = (
        base.module.facts[method].called
        for base in root.interpreter.classes.lineage(klass)
        for method in base.module.methods_of(base.node).values()
        if method not in followed
    )
    return any(
        any(map(vocabulary.CLEARS.search, called)) and not called >= {"backward", "step"}
        for called in others
    )
