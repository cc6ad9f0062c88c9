"""ZG301: the loss is divided by the length of the window in its backward."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial

from zerograd.core.finding import Edit
from zerograd.fix.context import Repair, Scene
from zerograd.fix.edits import Refused
from zerograd.fix.syntax import bound, is_modulo, method, own_nodes, steps, used
from zerograd.rules.unscaled_window import DIFFERENT

_TIGHT = (ast.Name, ast.Attribute, ast.Call, ast.Subscript)


def repairs(scene: Scene) -> Iterator[Repair]:
    """`loss.backward()` becomes `(loss / N).backward()`, so that logged losses do not change."""
    call = scene.call(scene.finding.site)
    if scene.finding.message == DIFFERENT:
        for divisor in _divisors(scene):
            for length in dict.fromkeys(_lengths(scene)):
                edit = partial(scene.exchanged, divisor, length)
                yield Repair(f"divide the loss by {length}", edit, safe=False)
        return
    for length in dict.fromkeys(_lengths(scene)):
        divided = partial(_divided, scene, call, length)
        yield Repair(f"divide the loss by {length}", divided, safe=False)


def _lengths(scene: Scene) -> Iterator[str]:
    """The number of backward calls per window, as an expression of the code."""
    loop = scene.loop(scene.here)
    around = scene.around(scene.here)
    if isinstance(loop, ast.For) and isinstance(loop.iter, ast.Call) and not steps(loop):
        if method(loop.iter) == "range" and len(loop.iter.args) == 1:
            yield _tight(scene, loop.iter.args[0])
        return
    tests = [node.test for node in own_nodes(around) if isinstance(node, ast.If) and _guards(node)]
    named = used(map(ast.Expr, tests))
    counters = {
        name
        for node in own_nodes(around)
        if isinstance(node, ast.AugAssign)
        for name in bound([node])
    }
    tests += [
        node.value
        for node in own_nodes(around)
        if isinstance(node, ast.Assign) and bound([node]) & named
    ]
    for node in (node for test in tests for node in ast.walk(test)):
        if is_modulo(node):
            yield _tight(scene, node.right)
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.Eq, ast.GtE)):
            if isinstance(node.left, ast.Name) and node.left.id in counters:
                if isinstance(node.comparators[0], (ast.Name, ast.Attribute)):
                    yield scene.code.text(node.comparators[0])


def _guards(node: ast.If) -> bool:
    return bool(steps(node)) or isinstance(node.body[-1], ast.Continue)


def _tight(scene: Scene, node: ast.expr) -> str:
    text = scene.code.text(node)
    return text if isinstance(node, (*_TIGHT, ast.Constant)) else f"({text})"


def _divisors(scene: Scene) -> Iterator[ast.expr]:
    """The divisors of losses in the statements above the backward."""
    around = scene.around(scene.here)
    for node in reversed(list(own_nodes(around))):
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Div):
            yield node.value
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            yield node.right


def _divided(scene: Scene, call: ast.Call, length: str) -> tuple[Edit, ...]:
    code = scene.code
    if not isinstance(call.func, ast.Attribute):
        raise Refused("the backward is not a plain call of backward()")
    loss: ast.expr = call.func.value
    given = call.args[:1] if isinstance(loss, ast.Name) and call.args else []
    bare = True
    if isinstance(loss, ast.Call) and method(loss) == "scale" and loss.args:
        loss, bare = loss.args[0], False
    elif given:
        loss, bare = given[0], False
    text = code.text(loss)
    tight = isinstance(loss, _TIGHT)
    quotient = f"{text if tight else f'({text})'} / {length}"
    return scene.exchanged(loss, f"({quotient})" if bare and tight else quotient)
