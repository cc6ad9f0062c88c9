"""The surroundings of an act. Operators use them to decide what to break."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from mutation.acts import BACKWARD, CLIP, STEP, ZERO, Act, Acts
from mutation.surgery import Edit, Text


def moved(
    text: Text, act: Act, *, before: ast.stmt | None = None, after: ast.stmt | None = None
) -> list[Edit] | None:
    """The edits that move an act; None if it is there already or cannot be there."""
    place = before or after
    assert place is not None
    if place is act.node or (act.node in ast.walk(place) and place not in act.loops):
        return None
    compound = text.newline in text.taken(act.node) or isinstance(act.node, ast.For | ast.If)
    inline = not text.begins_line(place) or (after is not None and not text.ends_line(place))
    if inline and compound:
        return None
    taken = text.taken(act.node)
    insertion = text.before(place, taken) if before is not None else text.after(place, taken)
    return [text.delete(act.node), insertion]


def zero_targets(acts: Acts) -> set[str]:
    return {act.target for act in acts.of(ZERO)}


def nodes_of(acts: Acts, kind: str) -> list[ast.stmt]:
    return [act.node for act in acts.of(kind)]


def names_in(node: ast.AST) -> set[str]:
    return {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}


def bound_in(loop: ast.stmt) -> set[str]:
    """The names that a loop binds."""
    return {
        name.id
        for name in ast.walk(loop)
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
    }


def own_step(acts: Acts, zero: Act) -> Act | None:
    """The step whose gradients a clear clears, by its names; else the next or the last step."""
    steps = [step for step in acts.of(STEP) if step.function is zero.function]
    own = [
        step
        for step in steps
        if zero.target in (step.target, *(map(ast.unparse, step.call.args) if step.call else ()))
    ]
    if own:
        return own[0]
    return acts.after(zero, STEP) or acts.before(zero, STEP)


def by_scaler(act: Act) -> bool:
    return act.call is not None and len(act.call.args) == 1 and "scaler" in act.target.lower()


def loss_of(act: Act) -> ast.expr | None:
    """The tensor whose own backward is called."""
    func = act.call.func if act.call is not None else None
    if isinstance(func, ast.Attribute) and func.attr == "backward" and not act.call.args:  # type: ignore[union-attr]
        return func.value
    return None


def following(text: Text, node: ast.stmt) -> ast.stmt | None:
    block = text.block_of[node]
    index = block.index(node)
    return block[index + 1] if index + 1 < len(block) else None


def preceding(text: Text, node: ast.stmt) -> ast.stmt | None:
    block = text.block_of[node]
    index = block.index(node)
    return block[index - 1] if index else None


def assigned_before(text: Text, name: str, node: ast.stmt) -> bool:
    block = text.block_of[node]
    return any(
        isinstance(one, ast.Assign) and name in names_in(one.targets[0])
        for one in block[: block.index(node)]
    )


def clears(acts: Acts) -> list[Act]:
    """Clears that start or end a window, not those that drop gradients on purpose."""
    found = []
    for act in acts.of(ZERO):
        index = acts.all.index(act)
        around = {one.kind for one in acts.all[max(0, index - 1) : index + 2] if one is not act}
        skips = isinstance(acts.text.block_of[act.node][-1], ast.Continue)
        if around not in ({BACKWARD, STEP}, {CLIP, STEP}) or skips or not after_backward(acts, act):
            found.append(act)
    return found


def after_backward(acts: Acts, act: Act) -> bool:
    """Whether an act comes after a backward in the same iteration."""
    backward = acts.before(act, BACKWARD)
    step = acts.before(act, STEP)
    if backward is None or backward.loops != act.loops:
        return False
    return step is None or step.line < backward.line


def guard_of(text: Text, act: Act) -> ast.If | None:
    """The condition between an act and its innermost loop."""
    node: ast.AST = act.node
    while node is not act.function and node not in act.loops:
        node = text.parent_of[node]
        if isinstance(node, ast.If):
            return node
    return None


def closes_window(acts: Acts, node: ast.If) -> bool:
    """Whether a condition decides about a step, or skips it."""
    inside = set(ast.walk(node))
    leaves = isinstance(node.body[-1], ast.Continue)
    fills = any(backward in inside for backward in nodes_of(acts, BACKWARD))
    return not fills and (leaves or any(step in inside for step in nodes_of(acts, STEP)))


def modulo(node: ast.AST) -> ast.BinOp | None:
    for inner in ast.walk(node):
        if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Mod):
            return inner
    return None


def modulo_tests(acts: Acts) -> Iterator[ast.Compare]:
    """Comparisons of `count % N` that decide about a step, in a condition or in a flag."""
    for node in ast.walk(acts.text.tree):
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.BinOp):
            if isinstance(node.left.op, ast.Mod) and len(node.ops) == 1:
                if decides(acts, node):
                    yield node


def decides(acts: Acts, test: ast.expr) -> bool:
    node: ast.AST = test
    while not isinstance(node, ast.stmt):
        node = acts.text.parent_of[node]
    if isinstance(node, ast.If):
        return closes_window(acts, node)
    return isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)


def divisions(acts: Acts) -> Iterator[ast.BinOp | ast.AugAssign]:
    """Divisions of a loss by the length of its window."""
    lengths = {
        ast.dump(inner.right)
        for inner in ast.walk(acts.text.tree)
        if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Mod)
    }
    words = re.compile(r"accum|micro|tasks|every|freq", re.IGNORECASE)
    for node in ast.walk(acts.text.tree):
        if isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.Div):
            divisor = node.right if isinstance(node, ast.BinOp) else node.value
            if ast.dump(divisor) in lengths or words.search(ast.unparse(divisor)):
                yield node
