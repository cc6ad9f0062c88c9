"""The known ways to break a right training loop, each as one small edit of its text.

An operator takes the acts of a source and gives every text that breaks it in its way. Whether a
mutant is really wrong is not decided here: it is run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from acts import BACKWARD, CLIP, STEP, UNSCALE, UPDATE, ZERO, Act, Acts
from surgery import Edit, Text

Broken = Iterator[tuple[int, list[Edit] | None]]
"""Lines, each with the edits that break the source there."""
Operator = Callable[[Acts], Broken]


@dataclass(frozen=True)
class Kind:
    """A way to break a loop, and the codes that tell of it; the first is the rule written for it."""

    name: str
    codes: tuple[str, ...]
    operator: Operator


@dataclass(frozen=True)
class Mutant:
    """One broken source."""

    kind: Kind
    line: int
    text: str


KINDS: list[Kind] = []


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


def breaks(name: str, *codes: str) -> Callable[[Operator], Operator]:
    """Enters an operator into the list of kinds."""

    def enter(operator: Operator) -> Operator:
        KINDS.append(Kind(name, codes, operator))
        return operator

    return enter


# Clears


@breaks("zero deleted", "ZG101", "ZG105", "ZG106")
def delete_zero(acts: Acts) -> Broken:
    if len(_targets(acts)) == 1:
        for act in _clears(acts):
            yield act.line, [acts.text.delete(act.node)]


@breaks("zero of one of several deleted", "ZG101", "ZG106", "ZG105")
def delete_one_zero(acts: Acts) -> Broken:
    if len(_targets(acts)) > 1:
        for act in _clears(acts):
            yield act.line, [acts.text.delete(act.node)]


@breaks("zero hoisted a loop level", "ZG101", "ZG103", "ZG105", "ZG106")
def hoist_zero(acts: Acts) -> Broken:
    for act in _clears(acts):
        if act.loops and not _bound_in(act.loops[-1]) & _names(act.node):
            yield act.line, _moved(acts.text, act, before=act.loops[-1])


@breaks("zero between backward and step", "ZG102", "ZG103", "ZG101")
def zero_between(acts: Acts) -> Broken:
    for act in _clears(acts):
        step = _own_step(acts, act)
        if step is not None and step.loops == act.loops:
            yield act.line, _moved(acts.text, act, before=step.node)


@breaks("zero in one branch only", "ZG101", "ZG106")
def zero_in_branch(acts: Acts) -> Broken:
    text = acts.text
    for act in _clears(acts):
        following = _next(text, act.node)
        if isinstance(following, ast.If) and following.orelse:
            yield act.line, _moved(text, act, before=following.body[0])
        backward = acts.before(act, BACKWARD) or acts.after(act, BACKWARD)
        loss = _loss(backward) if backward is not None else None
        if isinstance(loss, ast.Name) and text.begins_line(act.node) and text.ends_line(act.node):
            if _assigned_before(text, loss.id, act.node):
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
    for act in _clears(acts):
        guard = _guard(acts.text, act)
        backward = acts.before(act, BACKWARD)
        if guard is None or backward is None or not _closes_window(acts, guard):
            continue
        if act.loops and act.loops == backward.loops:
            loop = backward.loops[-1]
            assert isinstance(loop, ast.For | ast.While)
            yield act.line, _moved(acts.text, act, before=loop.body[0])


@breaks("None check deleted", "ZG107")
def unguard_none(acts: Acts) -> Broken:
    text = acts.text
    for node in ast.walk(text.tree):
        if isinstance(node, ast.If) and not node.orelse and len(node.body) == 1:
            if re.fullmatch(r"\w+\.grad is not None", ast.unparse(node.test)):
                yield node.lineno, [text.replace(node, text.taken(node.body[0]))]


# Backward and step


@breaks("backward deleted", "ZG104", "ZG105", "ZG102")
def delete_backward(acts: Acts) -> Broken:
    """The loss stays: whoever forgets to call backward has computed it."""
    for act in acts.of(BACKWARD):
        assert act.call is not None
        loss = _loss(act)
        if loss is None or isinstance(loss, ast.Name) or ".scale(" in ast.unparse(loss):
            yield act.line, [acts.text.delete(act.node)]
        else:
            yield act.line, [acts.text.replace(act.call, acts.text.of(loss))]


@breaks("loss handed to its own backward", "ZG109")
def self_backward(acts: Acts) -> Broken:
    for act in acts.of(BACKWARD):
        assert act.call is not None
        loss = _loss(act)
        if isinstance(loss, ast.Name) and not act.call.args and not act.call.keywords:
            end = acts.text.end(act.call)
            yield act.line, [Edit(end - 1, end, f"{loss.id})")]


@breaks("step deleted", "ZG102", "ZG302", "ZG303", "ZG108")
def delete_step(acts: Acts) -> Broken:
    steps = acts.of(STEP)
    if len(steps) == 1:
        yield steps[0].line, [acts.text.delete(steps[0].node)]


@breaks("step doubled", "ZG105", "ZG207")
def step_twice(acts: Acts) -> Broken:
    for act in acts.of(STEP):
        closure = act.call is not None and act.call.args and not _by_scaler(act)
        if not closure:
            yield act.line, [acts.text.after(act.node, acts.text.taken(act.node))]


@breaks("wrapper bypassed", "ZG501")
def bypass_wrapper(acts: Acts) -> Broken:
    for act in acts.of(BACKWARD):
        assert act.call is not None
        if len(act.call.args) == 1 and isinstance(act.call.args[0], ast.Name):
            if not isinstance(_loss(act), ast.Name):
                loss = act.call.args[0].id
                yield act.line, [acts.text.replace(act.call, f"{loss}.backward()")]


# Clips


@breaks("clip after step", "ZG203")
def clip_after_step(acts: Acts) -> Broken:
    for act in acts.of(CLIP):
        step = acts.after(act, STEP)
        if step is not None and step.loops == act.loops:
            yield act.line, _moved(acts.text, act, after=step.node)


@breaks("clip before backward", "ZG202", "ZG203", "ZG204")
def clip_before_backward(acts: Acts) -> Broken:
    for act in acts.of(CLIP):
        backward = acts.before(act, BACKWARD)
        if backward is not None and backward.loops == act.loops:
            yield act.line, _moved(acts.text, act, before=backward.node)


@breaks("clip in the window", "ZG204", "ZG201")
def clip_in_window(acts: Acts) -> Broken:
    for act in acts.of(CLIP):
        backward = acts.before(act, BACKWARD)
        if backward is None:
            continue
        inner = len(backward.loops) > len(act.loops)
        guarded = _guard(acts.text, act) is not None and _guard(acts.text, backward) is None
        if inner or guarded:
            yield act.line, _moved(acts.text, act, after=backward.node)


@breaks("unscale deleted", "ZG201")
def delete_unscale(acts: Acts) -> Broken:
    for act in acts.of(UNSCALE):
        yield act.line, [acts.text.delete(act.node)]


@breaks("clip before unscale", "ZG201")
def clip_before_unscale(acts: Acts) -> Broken:
    for act in acts.of(CLIP):
        unscale = acts.before(act, UNSCALE)
        if unscale is not None and unscale.loops == act.loops:
            yield act.line, _moved(acts.text, act, before=unscale.node)


# The scaler


@breaks("update deleted", "ZG207")
def delete_update(acts: Acts) -> Broken:
    for act in acts.of(UPDATE):
        yield act.line, [acts.text.delete(act.node)]


@breaks("scaler's step bypassed", "ZG205")
def bypass_scaler(acts: Acts) -> Broken:
    for act in acts.of(STEP):
        if act.call is not None and _by_scaler(act):
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
    for test in _modulo_tests(acts):
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
    for test in _modulo_tests(acts):
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
                if any(one in acts.text.block_of[node] for one in _nodes(acts, STEP)):
                    yield node.lineno, [acts.text.delete(node)]


@breaks("remainder not stepped", "ZG303", "ZG304")
def drop_remainder(acts: Acts) -> Broken:
    text = acts.text
    for node in ast.walk(text.tree):
        if isinstance(node, ast.BoolOp) and len(node.values) == 2:
            counts = [bool(_modulo(value)) for value in node.values]
            if counts == [True, False]:
                yield node.lineno, [Edit(text.end(node.values[0]), text.end(node), "")]
        if isinstance(node, ast.If) and isinstance(_previous(text, node), ast.For | ast.While):
            if any(one in node.body for one in _nodes(acts, STEP)):
                yield node.lineno, [text.delete(node)]


@breaks("division undone", "ZG301")
def undo_division(acts: Acts) -> Broken:
    for node in _divisions(acts):
        if isinstance(node, ast.BinOp):
            yield node.lineno, [acts.text.replace(node, acts.text.of(node.left))]
        else:
            yield node.lineno, [acts.text.delete(node)]


@breaks("divided by a changing number", "ZG301")
def changing_divisor(acts: Acts) -> Broken:
    loops = [node for node in ast.walk(acts.text.tree) if isinstance(node, ast.For)]
    counters = {name for loop in loops for name in _bound_in(loop)}
    for test in _modulo_tests(acts):
        for counter in sorted(_names(test.left) & counters):
            for node in _divisions(acts):
                divisor = node.right if isinstance(node, ast.BinOp) else node.value
                if ast.dump(test.left.right) == ast.dump(divisor):  # type: ignore[attr-defined]
                    new = f"({counter} % {acts.text.of(divisor)} + 1)"
                    yield node.lineno, [acts.text.replace(divisor, new)]


# What the operators ask


def _moved(
    text: Text, act: Act, *, before: ast.stmt | None = None, after: ast.stmt | None = None
) -> list[Edit] | None:
    """The edits that move an act; None if it stands there already, or cannot stand there."""
    place = before or after
    assert place is not None
    if place is act.node or act.node in ast.walk(place) and place not in act.loops:
        return None
    compound = text.newline in text.taken(act.node) or isinstance(act.node, ast.For | ast.If)
    inline = not text.begins_line(place) or (after is not None and not text.ends_line(place))
    if inline and compound:
        return None
    taken = text.taken(act.node)
    insertion = text.before(place, taken) if before is not None else text.after(place, taken)
    return [text.delete(act.node), insertion]


def _targets(acts: Acts) -> set[str]:
    return {act.target for act in acts.of(ZERO)}


def _nodes(acts: Acts, kind: str) -> list[ast.stmt]:
    return [act.node for act in acts.of(kind)]


def _names(node: ast.AST) -> set[str]:
    return {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}


def _bound_in(loop: ast.stmt) -> set[str]:
    """The names that a loop binds."""
    return {
        name.id
        for name in ast.walk(loop)
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
    }


def _own_step(acts: Acts, zero: Act) -> Act | None:
    """The step whose gradients a clear clears, as far as names tell; else the next one, or last."""
    steps = [step for step in acts.of(STEP) if step.function is zero.function]
    own = [
        step
        for step in steps
        if zero.target in (step.target, *(map(ast.unparse, step.call.args) if step.call else ()))
    ]
    if own:
        return own[0]
    return acts.after(zero, STEP) or acts.before(zero, STEP)


def _by_scaler(act: Act) -> bool:
    return act.call is not None and len(act.call.args) == 1 and "scaler" in act.target.lower()


def _loss(act: Act) -> ast.expr | None:
    """The tensor whose own backward is called."""
    func = act.call.func if act.call is not None else None
    if isinstance(func, ast.Attribute) and func.attr == "backward" and not act.call.args:  # type: ignore[union-attr]
        return func.value
    return None


def _next(text: Text, node: ast.stmt) -> ast.stmt | None:
    block = text.block_of[node]
    index = block.index(node)
    return block[index + 1] if index + 1 < len(block) else None


def _previous(text: Text, node: ast.stmt) -> ast.stmt | None:
    block = text.block_of[node]
    index = block.index(node)
    return block[index - 1] if index else None


def _assigned_before(text: Text, name: str, node: ast.stmt) -> bool:
    block = text.block_of[node]
    return any(
        isinstance(one, ast.Assign) and name in _names(one.targets[0])
        for one in block[: block.index(node)]
    )


def _clears(acts: Acts) -> list[Act]:
    """Clears that start a window, or end one; what is dropped between on purpose is none."""
    found = []
    for act in acts.of(ZERO):
        index = acts.all.index(act)
        around = {one.kind for one in acts.all[max(0, index - 1) : index + 2] if one is not act}
        skips = isinstance(acts.text.block_of[act.node][-1], ast.Continue)
        if around not in ({BACKWARD, STEP}, {CLIP, STEP}) or skips or not _after(acts, act):
            found.append(act)
    return found


def _after(acts: Acts, act: Act) -> bool:
    """Whether an act comes after a backward in the same iteration."""
    backward = acts.before(act, BACKWARD)
    step = acts.before(act, STEP)
    if backward is None or backward.loops != act.loops:
        return False
    return step is None or step.line < backward.line


def _guard(text: Text, act: Act) -> ast.If | None:
    """The test that stands between an act and its innermost loop."""
    node: ast.AST = act.node
    while node is not act.function and node not in act.loops:
        node = text.parent_of[node]
        if isinstance(node, ast.If):
            return node
    return None


def _closes_window(acts: Acts, node: ast.If) -> bool:
    """Whether a test decides about a step of what stands before it, or skips that step."""
    inside = set(ast.walk(node))
    leaves = isinstance(node.body[-1], ast.Continue)
    fills = any(backward in inside for backward in _nodes(acts, BACKWARD))
    return not fills and (leaves or any(step in inside for step in _nodes(acts, STEP)))


def _modulo(node: ast.AST) -> ast.BinOp | None:
    for inner in ast.walk(node):
        if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Mod):
            return inner
    return None


def _modulo_tests(acts: Acts) -> Iterator[ast.Compare]:
    """Comparisons of `count % N` that decide about a step, in a test or in a flag."""
    for node in ast.walk(acts.text.tree):
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.BinOp):
            if isinstance(node.left.op, ast.Mod) and len(node.ops) == 1:
                if _decides(acts, node):
                    yield node


def _decides(acts: Acts, test: ast.expr) -> bool:
    node: ast.AST = test
    while not isinstance(node, ast.stmt):
        node = acts.text.parent_of[node]
    if isinstance(node, ast.If):
        return _closes_window(acts, node)
    return isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)


def _divisions(acts: Acts) -> Iterator[ast.BinOp | ast.AugAssign]:
    """Divisions of a loss by what counts its window."""
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
