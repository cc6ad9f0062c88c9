"""Ways to break a clear: forgotten, misplaced, of another object, in one branch only."""

from __future__ import annotations

import ast
import re

from mutation.acts import BACKWARD, ZERO, Acts
from mutation.around import (
    assigned_before,
    bound_in,
    clears,
    closes_window,
    following,
    guard_of,
    loss_of,
    moved,
    names_in,
    own_step,
    zero_targets,
)
from mutation.kinds import Broken, breaks


@breaks("zero deleted", "ZG101", "ZG105", "ZG106")
def delete_zero(acts: Acts) -> Broken:
    if len(zero_targets(acts)) == 1:
        for act in clears(acts):
            yield act.line, [acts.text.delete(act.node)]


@breaks("zero of one of several deleted", "ZG101", "ZG106", "ZG105")
def delete_one_zero(acts: Acts) -> Broken:
    if len(zero_targets(acts)) > 1:
        for act in clears(acts):
            yield act.line, [acts.text.delete(act.node)]


@breaks("zero hoisted a loop level", "ZG101", "ZG103", "ZG105", "ZG106")
def hoist_zero(acts: Acts) -> Broken:
    for act in clears(acts):
        if act.loops and not bound_in(act.loops[-1]) & names_in(act.node):
            yield act.line, moved(acts.text, act, before=act.loops[-1])


@breaks("zero between backward and step", "ZG102", "ZG103", "ZG101", "ZG104")
def zero_between(acts: Acts) -> Broken:
    for act in clears(acts):
        step = own_step(acts, act)
        if step is not None and step.loops == act.loops:
            yield act.line, moved(acts.text, act, before=step.node)


@breaks("zero in one branch only", "ZG101", "ZG106")
def zero_in_branch(acts: Acts) -> Broken:
    text = acts.text
    for act in clears(acts):
        test = following(text, act.node)
        if isinstance(test, ast.If) and test.orelse:
            yield act.line, moved(text, act, before=test.body[0])
        backward = acts.before(act, BACKWARD) or acts.after(act, BACKWARD)
        loss = loss_of(backward) if backward is not None else None
        if isinstance(loss, ast.Name) and text.begins_line(act.node) and text.ends_line(act.node):
            if assigned_before(text, loss.id, act.node):
                inner = text.deeper(text.taken(act.node))
                whole = f"if {loss.id}.item() > 0.5:{text.newline}{inner}"
                yield act.line, [text.delete(act.node), text.before(act.node, whole)]


@breaks("zero of another object", "ZG101", "ZG103", "ZG106", "ZG107")
def zero_other(acts: Acts) -> Broken:
    calls = [act for act in acts.of(ZERO) if act.call and isinstance(act.call.func, ast.Attribute)]
    for act in calls:
        assert act.call is not None
        assert isinstance(act.call.func, ast.Attribute)
        others = {one.target for one in calls if one.function is act.function} - {act.target}
        for other in sorted(others):
            yield act.line, [acts.text.replace(act.call.func.value, other)]


@breaks("zero every micro-batch", "ZG103", "ZG102")
def zero_every_batch(acts: Acts) -> Broken:
    for act in clears(acts):
        guard = guard_of(acts.text, act)
        backward = acts.before(act, BACKWARD)
        if guard is None or backward is None or not closes_window(acts, guard):
            continue
        if act.loops and act.loops == backward.loops:
            loop = backward.loops[-1]
            assert isinstance(loop, ast.For | ast.While)
            yield act.line, moved(acts.text, act, before=loop.body[0])


@breaks("None check deleted", "ZG107")
def unguard_none(acts: Acts) -> Broken:
    text = acts.text
    for node in ast.walk(text.tree):
        if isinstance(node, ast.If) and not node.orelse and text.begins_line(node):
            if re.fullmatch(r"[\w.]+\.grad is not None", ast.unparse(node.test)):
                body = text.newline.join(map(text.taken, node.body))
                yield node.lineno, [text.delete(node), text.before(node, body)]
