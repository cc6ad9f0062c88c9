"""The statements of a training script that affect gradients, recognised by their syntax.

A loop over parameters or optimizers with one such effect counts as one statement.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from mutation.surgery import Text, blocks

ZERO, BACKWARD, STEP, CLIP, UNSCALE, UPDATE = "zero backward step clip unscale update".split()

_NOT_STEPPED = re.compile(r"sched|plateau|env|warmup|(^|\.)self$|^super", re.IGNORECASE)
_SCALER = re.compile(r"scaler|amp", re.IGNORECASE)
_CLEARER = re.compile(r"(^|_)zero(?!s)|(^|_)clear\w*grad", re.IGNORECASE)
"""`zeros_()` fills a tensor, `clear()` empties a list: neither clears gradients."""
_CLIPPER = re.compile(r"^clip_(grad|gradients)")

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef


@dataclass(frozen=True)
class Act:
    """One statement with one effect."""

    kind: str
    node: ast.stmt
    call: ast.Call | None
    """The call, if the act is a call."""
    target: str
    """The text of the receiver, or of the iterable of the loop."""
    function: ast.AST
    loops: tuple[ast.stmt, ...]
    """The enclosing loops in its function, outermost first."""

    @property
    def line(self) -> int:
        return self.node.lineno


class Acts:
    """All acts of a source, in order."""

    def __init__(self, text: Text) -> None:
        self.text = text
        self._seen: set[ast.AST] = set()
        self.all = sorted(self._found(), key=lambda act: (act.line, act.node.col_offset))

    def of(self, kind: str) -> list[Act]:
        return [act for act in self.all if act.kind == kind]

    def before(self, act: Act, kind: str) -> Act | None:
        """The nearest act before this one, in the same function."""
        found = [one for one in self._beside(act, kind) if self._place(one) < self._place(act)]
        return found[-1] if found else None

    def after(self, act: Act, kind: str) -> Act | None:
        """The nearest act after this one, in the same function."""
        found = [one for one in self._beside(act, kind) if self._place(one) > self._place(act)]
        return found[0] if found else None

    def _beside(self, act: Act, kind: str) -> list[Act]:
        return [one for one in self.of(kind) if one.function is act.function]

    def _place(self, act: Act) -> int:
        return self.text.start(act.node)

    def _found(self) -> Iterator[Act]:
        for node in ast.walk(self.text.tree):
            if isinstance(node, ast.stmt) and node not in self._seen:
                kind = self._kind(node)
                if kind:
                    self._seen.update(ast.walk(node))
                    yield self._act(kind, node)

    def _act(self, kind: str, node: ast.stmt) -> Act:
        function: ast.AST = node
        loops: list[ast.stmt] = []
        while function is node or not isinstance(function, Function | ast.Module):
            function = self.text.parent_of[function]
            if isinstance(function, ast.For | ast.While):
                loops.insert(0, function)
        call = node.value if isinstance(node, ast.Expr | ast.Assign) else None
        own = call if isinstance(call, ast.Call) else None
        return Act(kind, node, own, _target(node), function, tuple(loops))

    def _kind(self, node: ast.stmt) -> str:
        """The effect of a statement, if it has one."""
        if isinstance(node, ast.For | ast.If):
            kinds = {self._kind(inner) for block in blocks(node) for inner in block}
            one = kinds.pop() if len(kinds) == 1 else ""
            if isinstance(node, ast.For) and one in (ZERO, STEP, CLIP) and _over_few(node):
                return one
            # A condition that only asks whether to clip, or whether there is something to clear.
            if isinstance(node, ast.If) and not node.orelse:
                asks = one == CLIP or (one == ZERO and ".grad" in ast.unparse(node.test))
                return one if asks else ""
            return ""
        if isinstance(node, ast.Assign):
            target = node.targets[0]
            if isinstance(target, ast.Attribute) and target.attr == "grad" and _empty(node.value):
                return ZERO
        if isinstance(node, ast.Expr | ast.Assign) and isinstance(node.value, ast.Call):
            return _kind_of_call(node.value, bare=isinstance(node, ast.Expr))
        return ""


def _kind_of_call(call: ast.Call, bare: bool) -> str:
    func = call.func
    name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
    receiver = ast.unparse(func.value) if isinstance(func, ast.Attribute) else ""
    if _CLIPPER.match(name) or (bare and name == "clamp_" and ".grad" in receiver):
        return CLIP
    if not bare:
        return ""
    if name in ("backward", "manual_backward"):
        return BACKWARD
    if name == "zero_grad" or (name in ("zero_", "detach_") and ".grad" in receiver):
        return ZERO
    if _CLEARER.search(name) and name != "zero_":
        return ZERO
    if name == "unscale_":
        return UNSCALE
    if name == "step" and not _NOT_STEPPED.search(receiver):
        return STEP
    if name == "update" and _SCALER.search(receiver):
        return UPDATE
    return ""


def _empty(value: ast.expr) -> bool:
    text = ast.unparse(value)
    return text == "None" or "zeros_like" in text


def _over_few(node: ast.For) -> bool:
    """A loop over parameters, groups or optimizers, not over data."""
    return bool(re.search(r"param|opt|group|module|\.values\(\)", ast.unparse(node.iter)))


def _target(node: ast.stmt) -> str:
    if isinstance(node, ast.For):
        return ast.unparse(node.iter)
    if isinstance(node, ast.If):
        return _target(node.body[0])
    value = node.value if isinstance(node, ast.Expr | ast.Assign) else None
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        return ast.unparse(value.func.value)
    if isinstance(node, ast.Assign):
        return ast.unparse(node.targets[0])
    return ast.unparse(value) if value is not None else ""
