"""ZG101: a clear at the beginning of the window, or right after the step that used the gradients."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial

from zerograd.core.rule import Feature, Windows
from zerograd.fix.context import InsertionPoint, Repair, Scene
from zerograd.fix.edits import Function, Refused
from zerograd.fix.syntax import (
    CLEAR_WORDS,
    backwards,
    binds,
    bound,
    calls,
    cleared,
    is_clear,
    is_gradient,
    is_modulo,
    mentions_gradients,
    method,
    names_in,
    own_nodes,
    steps,
    used,
)
from zerograd.rules.catalogue import BY_CODE
from zerograd.static.read.syntax_tree import LOOPS

_HARMLESS = ("item", "isnan", "isfinite", "isinf", "len", "size", "numel", "abs", "mean", "float")


def repairs(scene: Scene) -> Iterator[Repair]:
    """A clear of what is stepped: freed of its test, moved into the loop, or a new one."""
    code, backward, step = scene.code, scene.here, scene.statement(scene.step)
    node = code.node(scene.step)
    if not isinstance(node, ast.Call) or not steps(step):
        yield from _by_hand(scene, backward, step)
        return
    owner = scene.stepped(node)
    clear = f"{owner}.zero_grad()"
    closure = scene.closure(node)
    if closure is not None and closure in code.ancestors(backward):
        yield scene.insertion(scene.window(backward, backward, owner).start, clear)
        return
    if code.function(backward) is not code.function(step):
        around = scene.around(step)
        for own in map(code.statement_of, backwards(around)):
            yield scene.insertion(scene.window(own, step, owner).start, clear, safe=False)
        yield scene.insertion(scene.after(step), clear, safe=False)
        return
    window = scene.window(backward, step, owner)
    block = code.meet(backward, step)
    sure = window.sure or _foreign(scene)
    asked = _asked(scene, backward, owner)
    # Where windows end in the wrong place, that may be all that is wrong.
    ends = scene.also(Windows.LENGTH, Windows.REMAINDER)
    safe = sure and not _two_steps(scene) and not ends
    yield from _freed(scene, asked, safe=safe)
    safe = safe and not asked
    usable = not binds(block[scene.number(backward, block) :], owner)
    tests = list(_tests(scene, step, block))
    held = any(_counts(scene, test) or names_in(owner) & used([ast.Expr(test)]) for test in tests)
    if usable and not tests:
        for one in _misplaced(scene, backward, step):
            moved = partial(scene.carry, [one], window.start, CLEAR_WORDS)
            yield Repair("move the clear into the loop", moved, safe)
    first = _used(scene, step, owner)
    kept = not _read_after(scene, first) and (held or not tests) and window.sure
    after = scene.insertion(scene.after(first), clear, safe=safe and kept)
    start = scene.insertion(window.start, clear, safe=safe and not held)
    ways = [start, after] if usable else [after]
    yield from reversed(ways) if held else ways


def _foreign(scene: Scene) -> bool:
    """Whether another finding says that the gradients come from another optimizer's phase."""
    return any(
        BY_CODE[one.code].applies_to is Feature.SEVERAL_OPTIMIZERS and one.step == scene.step
        for one in scene.others
    )


def _used(scene: Scene, step: ast.stmt, owner: str) -> ast.stmt:
    """The earlier step after which nothing was cleared, if it steps the same object."""
    try:
        call = scene.call(scene.note(0))
        first = scene.statement(scene.note(0))
    except Refused:
        return step
    same = scene.code.function(first) is scene.code.function(step)
    return first if same and scene.stepped(call) == owner else step


def _tests(scene: Scene, step: ast.stmt, block: list[ast.stmt]) -> Iterator[ast.expr]:
    """The tests between a block and a step in it."""
    for node in (step, *scene.code.ancestors(step)):
        if isinstance(node, ast.If) and node is not step:
            yield node.test
        if node in block:
            return


def _counts(scene: Scene, test: ast.expr) -> bool:
    """Whether a test counts micro-batches: a clear at each of them would drop the others."""
    loop = scene.loop(scene.code.statement_of(test))
    names = used([ast.Expr(test)])
    if any(map(is_modulo, ast.walk(test))) or "sync_gradients" in ast.unparse(test):
        return True
    for node in own_nodes(loop or scene.code.function(scene.here)):
        if isinstance(node, ast.AugAssign) and bound([node]) & names:
            return True
        if isinstance(node, ast.Assign) and bound([node]) & names:
            if any(map(is_modulo, ast.walk(node.value))):
                return True
    return isinstance(loop, ast.For) and bool(bound([ast.Assign([loop.target], test)]) & names)


def _two_steps(scene: Scene) -> bool:
    """Whether one iteration steps twice: then one clear more or one step less could be meant."""
    first = scene.statement(scene.note(0))
    here = scene.here
    if scene.loop(here) is None or first is scene.statement(scene.step):
        return False
    return scene.finding.notes[0].site.line < scene.finding.site.line


def _asked(scene: Scene, backward: ast.stmt, owner: str) -> list[ast.If | ast.IfExp]:
    """Tests around a clear of the same object that guard no part of the training."""
    around = scene.around(backward)
    found = []
    for node in own_nodes(around):
        if isinstance(node, (ast.If, ast.IfExp)):
            made = (ast.Expr(one) for one in ast.walk(node) if isinstance(one, ast.Call))
            if not any(cleared(one) == owner for one in made):
                continue
            arms = [node] if isinstance(node, ast.If) else []
            if not (steps(node) or backwards(node) or bound(arms) & used([backward])):
                found.append(node)
    return found


def _freed(scene: Scene, asked: list[ast.If | ast.IfExp], *, safe: bool) -> Iterator[Repair]:
    """The clear without its test. It is safe if the test depends on a value that every iteration computes."""
    for node in asked:
        if not isinstance(node, ast.If) or not is_clear(node):
            continue
        loop = scene.loop(node)
        computed = {
            name
            for one in own_nodes(loop or node)
            if isinstance(one, ast.Assign) and not isinstance(one.value, ast.Constant)
            for name in bound([one])
        }
        plain = all(method(one) in _HARMLESS for one in calls(node.test))
        depends = bool(computed & used([ast.Expr(node.test)])) and not _counts(scene, node.test)
        unwrapped = partial(lambda node: (scene.code.unwrap(node),), node)
        yield Repair("clear without the test", unwrapped, safe and plain and depends)


def _misplaced(scene: Scene, backward: ast.stmt, step: ast.stmt) -> Iterator[ast.stmt]:
    """Clears outside the loop, with no training between them and the loop."""
    loop = scene.loop(scene.code.meet(backward, step)[0])
    while loop is not None:
        block = scene.code.block(loop)
        number = block.index(loop)
        for side in (reversed(block[:number]), block[number + 1 :]):
            for one in side:
                if is_clear(one):
                    yield one
                    break
                if backwards(one) or steps(one) or isinstance(one, LOOPS):
                    break
        loop = scene.loop(loop)


def _read_after(scene: Scene, step: ast.stmt) -> bool:
    """Whether the gradients are read after the step."""
    loop = scene.loop(step)
    one: ast.AST = step
    while one is not loop and isinstance(one, ast.stmt) and not isinstance(one, Function):
        block = scene.code.block(one)
        if mentions_gradients(block[block.index(one) + 1 :]):
            return True
        one = scene.code.holder(one)
    return False


def _by_hand(scene: Scene, backward: ast.stmt, step: ast.stmt) -> Iterator[Repair]:
    """`w -= lr * w.grad`: the gradient is set to None before the backward, or after its use."""
    found = {scene.code.text(node) for node in own_nodes(step) if is_gradient(node)}
    if len(found) != 1 or scene.code.function(backward) is not scene.code.function(step):
        raise Refused("it is unclear whose gradients have to be cleared")
    gradient = found.pop()
    clear = f"{gradient} = None"
    block = scene.code.meet(backward, step)
    filling = scene.number(backward, block)
    if not binds(block[filling:], gradient) and names_in(gradient):
        yield scene.insertion(InsertionPoint(before=block[filling]), clear)
    yield scene.insertion(InsertionPoint(after=step), clear, safe=not _read_after(scene, step))
