"""ZG302: the count in the guard is corrected; the second check shows which correction is right."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial

from zerograd.fix.context import Repair, Scene
from zerograd.fix.edits import Refused
from zerograd.fix.syntax import is_modulo, own_nodes, used


def repairs(scene: Scene) -> Iterator[Repair]:
    """`i % N == 0` becomes `(i + 1) % N == 0`, or another count that closes windows of N."""
    test = scene.code.node(scene.finding.site)
    for whole, modulo in _counts(scene, test):
        count, length = modulo.left, _tight(scene, modulo.right)
        if isinstance(count, ast.BinOp) and isinstance(count.op, (ast.Add, ast.Sub)):
            if isinstance(count.right, ast.Constant):
                count = count.left
        if not isinstance(count, (ast.Name, ast.Attribute)):
            raise Refused("the guard counts in an unusual way")
        name = scene.code.text(count)
        for left in (f"({name} + 1)", name, f"({name} - 1)"):
            for sign in ("==", "!="):
                text = f"{left} % {length} {sign} 0"
                yield Repair(f"count `{text}`", partial(scene.exchanged, whole, text), safe=False)


def _tight(scene: Scene, node: ast.expr) -> str:
    text = scene.code.text(node)
    return f"({text})" if isinstance(node, ast.BinOp) else text


def _counts(scene: Scene, test: ast.AST) -> Iterator[tuple[ast.expr, ast.BinOp]]:
    """Each `count % N` of a guard, or of the variable that the guard tests, with its comparison."""
    places = [test]
    loop = scene.loop(scene.code.statement(scene.finding.site))
    if loop is not None and not any(map(is_modulo, ast.walk(test))):
        names = used([ast.Expr(test)]) if isinstance(test, ast.expr) else set()
        places = [
            node.value
            for node in own_nodes(loop)
            if isinstance(node, ast.Assign)
            and any(isinstance(one, ast.Name) and one.id in names for one in node.targets)
        ]
    for place in places:
        for node in ast.walk(place):
            if is_modulo(node):
                whole: ast.AST = node
                for above in scene.code.ancestors(node):
                    if not isinstance(above, (ast.Compare, ast.UnaryOp)):
                        break
                    whole = above
                assert isinstance(whole, ast.expr)
                yield whole, node
