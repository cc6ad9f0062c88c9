"""ZG303: the guard also closes the last window, or a step after the loop does."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial
from itertools import takewhile

from zerograd.core.finding import Edit
from zerograd.fix.context import InsertionPoint, Repair, Scene
from zerograd.fix.edits import Refused
from zerograd.fix.syntax import is_modulo, own_nodes, steps
from zerograd.static.read.syntax_tree import stripped


def repairs(scene: Scene) -> Iterator[Repair]:
    """The guard is also true for the last batch; if that is unknown, a step follows the loop."""
    step = scene.here
    loop = scene.loop(step)
    if not isinstance(loop, ast.For):
        raise Refused("the length of the loop is unknown")
    guard = _guard(scene, step, loop)
    last = _last(scene, loop)
    if last:
        skips = not steps(guard)
        message = f"also step at the last batch: {last[0]}"
        yield Repair(message, partial(_asked, scene, guard, last, skips=skips), safe=False)
    yield Repair("step once more after the loop", partial(_again, scene, guard, loop), safe=False)


def _guard(scene: Scene, step: ast.stmt, loop: ast.stmt) -> ast.If:
    """The `if` around the step, or the one that continues the loop before it."""
    around = takewhile(lambda above: above is not loop, scene.code.ancestors(step))
    tests = [above for above in around if isinstance(above, ast.If)]
    counting = [one for one in tests if any(map(is_modulo, ast.walk(one.test)))]
    if tests:
        return (counting or tests)[-1]
    for node in own_nodes(loop):
        if isinstance(node, ast.If) and any(map(is_modulo, ast.walk(node.test))):
            if len(node.body) == 1 and isinstance(node.body[0], ast.Continue):
                return node
    raise Refused("the step has no simple guard")


def _last(scene: Scene, loop: ast.For) -> tuple[str, str] | None:
    """The test for the loop's last batch, and its opposite."""
    call = loop.iter
    target = loop.target
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        return None
    if call.func.id != "enumerate" or not call.args or not isinstance(target, ast.Tuple):
        return None
    batches, counter = stripped(call.args[0]), target.elts[0]
    start = call.args[1] if len(call.args) > 1 else None
    start = next((one.value for one in call.keywords if one.arg == "start"), start)
    if not isinstance(batches, (ast.Name, ast.Attribute)) or not isinstance(counter, ast.Name):
        return None
    first = start.value if isinstance(start, ast.Constant) else None if start else 0
    if first not in (0, 1):
        return None
    count = counter.id if first else f"{counter.id} + 1"
    length = f"len({scene.code.text(batches)})"
    return f"{count} == {length}", f"{count} != {length}"


def _asked(scene: Scene, guard: ast.If, last: tuple[str, str], *, skips: bool) -> tuple[Edit, ...]:
    code, test = scene.code, guard.test
    text = code.text(test)
    loose = (ast.IfExp, ast.Lambda, ast.NamedExpr)
    if isinstance(test, loose) or (skips and isinstance(test, ast.BoolOp)):
        text = f"({text})"
    more = f" and {last[1]}" if skips else f" or {last[0]}"
    return scene.exchanged(test, text + more)


def _again(scene: Scene, guard: ast.If, loop: ast.For) -> tuple[Edit, ...]:
    """The body of the guard, repeated after the loop if a window is open."""
    code = scene.code
    leaving = (ast.Continue, ast.Break, ast.Return)
    if not steps(guard) or loop.orelse or guard.orelse:
        raise Refused("the guard is not a simple test")
    if any(isinstance(node, leaving) for node in own_nodes(guard)):
        raise Refused("the guard leaves the loop")
    test = guard.test
    if not isinstance(test, ast.Compare) or not is_modulo(test.left):
        raise Refused("it is unclear when a window is open")
    if not isinstance(test.ops[0], ast.Eq):
        raise Refused("it is unclear when a window is open")
    more = code.level(loop.body[0])
    lines = code.taken(guard.body, None, more)
    open_ = f"if {code.text(test.left)} != {code.text(test.comparators[0])}:"
    return scene.put(InsertionPoint(after=loop), open_, *lines)
