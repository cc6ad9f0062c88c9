"""Ways to break the other calls: backward, step, clip, scaler, window."""

from __future__ import annotations

import ast

from mutation.acts import BACKWARD, CLIP, STEP, UNSCALE, UPDATE, Acts
from mutation.around import (
    bound_in,
    by_scaler,
    divisions,
    guard_of,
    loss_of,
    modulo,
    modulo_tests,
    moved,
    names_in,
    nodes_of,
    preceding,
)
from mutation.kinds import Broken, breaks
from mutation.surgery import Edit


@breaks("backward deleted", "ZG104", "ZG105", "ZG102")
def delete_backward(acts: Acts) -> Broken:
    """Delete a backward. The loss stays, as in code that forgets to call backward."""
    if len(acts.of(BACKWARD)) == 1:
        yield from _without_backward(acts)


@breaks("backward of one of several deleted", "ZG104", "ZG105", "ZG102")
def delete_one_backward(acts: Acts) -> Broken:
    """Delete one of several backward calls. The rest can look intended."""
    if len(acts.of(BACKWARD)) > 1:
        yield from _without_backward(acts)


def _without_backward(acts: Acts) -> Broken:
    for act in acts.of(BACKWARD):
        assert act.call is not None
        loss = loss_of(act)
        if loss is None or isinstance(loss, ast.Name) or ".scale(" in ast.unparse(loss):
            yield act.line, [acts.text.delete(act.node)]
        else:
            yield act.line, [acts.text.replace(act.call, acts.text.of(loss))]


@breaks("loss handed to its own backward", "ZG109")
def self_backward(acts: Acts) -> Broken:
    for act in acts.of(BACKWARD):
        assert act.call is not None
        loss = loss_of(act)
        if isinstance(loss, ast.Name) and not act.call.args and not act.call.keywords:
            end = acts.text.end(act.call)
            yield act.line, [Edit(end - 1, end, f"{loss.id})")]


@breaks("step deleted", "ZG102", "ZG302", "ZG303", repairable=False)
def delete_step(acts: Acts) -> Broken:
    steps = acts.of(STEP)
    if len(steps) == 1:
        yield steps[0].line, [acts.text.delete(steps[0].node)]


@breaks("step doubled", "ZG105", "ZG207")
def step_twice(acts: Acts) -> Broken:
    for act in acts.of(STEP):
        closure = act.call is not None and act.call.args and not by_scaler(act)
        if not closure:
            yield act.line, [acts.text.after(act.node, acts.text.taken(act.node))]


@breaks("wrapper bypassed", "ZG501")
def bypass_wrapper(acts: Acts) -> Broken:
    for act in acts.of(BACKWARD):
        assert act.call is not None
        if len(act.call.args) == 1 and isinstance(act.call.args[0], ast.Name):
            if not isinstance(loss_of(act), ast.Name):
                loss = act.call.args[0].id
                yield act.line, [acts.text.replace(act.call, f"{loss}.backward()")]


# Clips


@breaks("clip after step", "ZG203")
def clip_after_step(acts: Acts) -> Broken:
    for act in acts.of(CLIP):
        step = acts.after(act, STEP)
        if step is not None and step.loops == act.loops:
            yield act.line, moved(acts.text, act, after=step.node)


@breaks("clip before backward", "ZG202", "ZG203", "ZG204")
def clip_before_backward(acts: Acts) -> Broken:
    for act in acts.of(CLIP):
        backward = acts.before(act, BACKWARD)
        if backward is not None and backward.loops == act.loops:
            yield act.line, moved(acts.text, act, before=backward.node)


@breaks("clip in the window", "ZG204", "ZG201")
def clip_in_window(acts: Acts) -> Broken:
    for act in acts.of(CLIP):
        backward = acts.before(act, BACKWARD)
        if backward is None:
            continue
        inner = len(backward.loops) > len(act.loops)
        guarded = guard_of(acts.text, act) is not None and guard_of(acts.text, backward) is None
        if inner or guarded:
            yield act.line, moved(acts.text, act, after=backward.node)


@breaks("unscale deleted", "ZG201")
def delete_unscale(acts: Acts) -> Broken:
    for act in acts.of(UNSCALE):
        yield act.line, [acts.text.delete(act.node)]


@breaks("clip before unscale", "ZG201")
def clip_before_unscale(acts: Acts) -> Broken:
    for act in acts.of(CLIP):
        unscale = acts.before(act, UNSCALE)
        if unscale is not None and unscale.loops == act.loops:
            yield act.line, moved(acts.text, act, before=unscale.node)


# The scaler


@breaks("update deleted", "ZG207")
def delete_update(acts: Acts) -> Broken:
    for act in acts.of(UPDATE):
        yield act.line, [acts.text.delete(act.node)]


@breaks("scaler's step bypassed", "ZG205")
def bypass_scaler(acts: Acts) -> Broken:
    for act in acts.of(STEP):
        if act.call is not None and by_scaler(act):
            optimizer = acts.text.of(act.call.args[0])
            yield act.line, [acts.text.replace(act.call, f"{optimizer}.step()")]


@breaks("loss not scaled", "ZG208", "ZG206")
def unscaled_backward(acts: Acts) -> Broken:
    for act in acts.of(BACKWARD):
        assert act.call is not None
        func = act.call.func
        inner = func.value if isinstance(func, ast.Attribute) else None
        if isinstance(inner, ast.Call) and ast.unparse(inner.func).endswith(".scale"):
            yield act.line, [acts.text.replace(inner, acts.text.of(inner.args[0]))]


# Windows


@breaks("guard off by one", "ZG302", "ZG303", "ZG304", "ZG101", "ZG103")
def guard_off_by_one(acts: Acts) -> Broken:
    for test in modulo_tests(acts):
        left = test.left
        assert isinstance(left, ast.BinOp)
        if isinstance(left.left, ast.BinOp) and isinstance(left.left.op, ast.Add):
            counter = acts.text.of(left.left.left)
            start = acts.text.start(left)
            if acts.text.text[start] == "(":
                yield test.lineno, [Edit(start, acts.text.start(left.right), f"{counter} % ")]
        elif not isinstance(test.comparators[0], ast.Constant):
            yield test.lineno, [acts.text.replace(test.comparators[0], "0")]


@breaks("guard inverted", "ZG302", "ZG303", "ZG304", "ZG101", "ZG103")
def guard_inverted(acts: Acts) -> Broken:
    opposite = {ast.Eq: "!=", ast.NotEq: "=="}
    for test in modulo_tests(acts):
        sign = opposite.get(type(test.ops[0]))
        if sign:
            start, end = acts.text.end(test.left), acts.text.start(test.comparators[0])
            yield test.lineno, [Edit(start, end, f" {sign} ")]


@breaks("count not set back", "ZG302", "ZG303", "ZG304", "ZG101")
def count_not_set_back(acts: Acts) -> Broken:
    counted = {
        node.target.id
        for node in ast.walk(acts.text.tree)
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name)
    }
    for node in ast.walk(acts.text.tree):
        if isinstance(node, ast.Assign) and isinstance(acts.text.parent_of[node], ast.If):
            if isinstance(node.targets[0], ast.Name) and node.targets[0].id in counted:
                if any(one in acts.text.block_of[node] for one in nodes_of(acts, STEP)):
                    yield node.lineno, [acts.text.delete(node)]


@breaks("remainder not stepped", "ZG303", "ZG304")
def drop_remainder(acts: Acts) -> Broken:
    text = acts.text
    for node in ast.walk(text.tree):
        if isinstance(node, ast.BoolOp) and len(node.values) == 2:
            counts = [bool(modulo(value)) for value in node.values]
            if counts == [True, False]:
                yield node.lineno, [Edit(text.end(node.values[0]), text.end(node), "")]
        if isinstance(node, ast.If) and isinstance(preceding(text, node), ast.For | ast.While):
            if any(one in node.body for one in nodes_of(acts, STEP)):
                yield node.lineno, [text.delete(node)]


@breaks("division undone", "ZG301")
def undo_division(acts: Acts) -> Broken:
    for node in divisions(acts):
        if isinstance(node, ast.BinOp):
            yield node.lineno, [acts.text.replace(node, acts.text.of(node.left))]
        else:
            yield node.lineno, [acts.text.delete(node)]


@breaks("divided by a changing number", "ZG301")
def changing_divisor(acts: Acts) -> Broken:
    loops = [node for node in ast.walk(acts.text.tree) if isinstance(node, ast.For)]
    counters = {name for loop in loops for name in bound_in(loop)}
    for test in modulo_tests(acts):
        for counter in sorted(names_in(test.left) & counters):
            for node in divisions(acts):
                divisor = node.right if isinstance(node, ast.BinOp) else node.value
                if ast.dump(test.left.right) == ast.dump(divisor):  # type: ignore[attr-defined]
                    new = f"({counter} % {acts.text.of(divisor)} + 1)"
                    yield node.lineno, [acts.text.replace(divisor, new)]
