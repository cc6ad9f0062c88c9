"""What statements do, judged by their names alone: steps, backward calls, clears, clips, variables."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import TypeGuard

from zerograd.fix.edits import Function
from zerograd.static.frameworks.registry import CLIPS
from zerograd.static.frameworks.torch import SCHEDULER
from zerograd.static.read.syntax_tree import last_name, text_of

CLEAR_WORDS = re.compile(r"zero|clear|reset", re.IGNORECASE)
CLIP_WORDS = re.compile(r"clip|clamp|unscale|norm", re.IGNORECASE)
_CLEARS = re.compile(r"^(zero_grad|zero_grads|clear_grad|clear_grads|reset_grad)$")


def own_nodes(statement: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a statement, without those of functions that it defines."""
    yield statement
    todo = list(ast.iter_child_nodes(statement))[::-1]
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, Function):
            todo.extend(list(ast.iter_child_nodes(node))[::-1])


def calls(statement: ast.AST) -> Iterator[ast.Call]:
    """The calls in a statement."""
    return (node for node in own_nodes(statement) if isinstance(node, ast.Call))


def method(call: ast.Call) -> str:
    """The last part of a call's name."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


def is_step(call: ast.Call) -> bool:
    """Whether a call steps an optimizer, judged by its names."""
    if not isinstance(call.func, ast.Attribute):
        return False
    owner = last_name(text_of(call.func.value))
    return call.func.attr in ("step", "optimizer_step") and not SCHEDULER.search(owner)


def steps(statement: ast.AST) -> list[ast.Call]:
    """The steps in a statement."""
    return [call for call in calls(statement) if is_step(call)]


def backwards(statement: ast.AST) -> list[ast.Call]:
    """The backward calls in a statement."""
    return [call for call in calls(statement) if method(call) in ("backward", "manual_backward")]


def clips(statement: ast.AST) -> list[ast.Call]:
    """The clips in a statement."""
    return [call for call in calls(statement) if method(call) in CLIPS]


def is_call_of(statement: ast.stmt, *methods: str) -> ast.Call | None:
    """The call, if a statement is only a call of one of these methods."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        return statement.value if method(statement.value) in methods else None
    return None


def is_clear(statement: ast.stmt) -> bool:
    """Whether a statement does nothing but clear gradients."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        call = statement.value
        if _CLEARS.match(method(call)):
            return True
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        methods = ("zero_", "detach_")
        return method(call) in methods and owner is not None and mentions_gradients([owner])
    if isinstance(statement, ast.Assign) and all(map(is_gradient, statement.targets)):
        value = statement.value
        if isinstance(value, ast.Call):
            return method(value) in ("zeros_like", "zeros", "new_zeros")
        return isinstance(value, ast.Constant) and value.value is None
    if isinstance(statement, (ast.For, ast.If)) and not statement.orelse:
        return all(map(is_clear, statement.body))
    return False


def cleared(statement: ast.stmt) -> str:
    """Whose gradients a plain `x.zero_grad()` clears; "" for anything else."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        call = statement.value
        if isinstance(call.func, ast.Attribute) and _CLEARS.match(call.func.attr):
            return text_of(call.func.value)
    return ""


def is_modulo(node: ast.AST) -> TypeGuard[ast.BinOp]:
    """Whether a node is `a % b` of numbers, not of a string."""
    return (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Mod)
        and not isinstance(node.left, (ast.Constant, ast.JoinedStr))
    )


def is_gradient(node: ast.AST) -> TypeGuard[ast.Attribute]:
    """Whether a node is `x.grad`, and not `torch.autograd.grad`."""
    if not isinstance(node, ast.Attribute) or node.attr != "grad":
        return False
    return last_name(text_of(node.value)) not in ("autograd", "func")


def mentions_gradients(nodes: Iterable[ast.AST]) -> bool:
    """Whether statements read or write `.grad`."""
    return any(is_gradient(node) for one in nodes for node in own_nodes(one))


def names_in(text: str) -> set[str]:
    """The variables that an expression begins with."""
    return {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}


def bound(statements: Iterable[ast.stmt]) -> set[str]:
    """The names that statements bind."""
    found = set()
    for statement in statements:
        for node in own_nodes(statement):
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                found.add(node.id)
            elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                found.add(node.name)
            elif isinstance(node, ast.alias):
                found.add((node.asname or node.name).split(".")[0])
    return found


def binds(statements: Iterable[ast.stmt], expression: str) -> bool:
    """Whether statements bind a variable that an expression begins with."""
    return not names_in(expression).isdisjoint(bound(statements))


def used(statements: Iterable[ast.stmt]) -> set[str]:
    """The names that statements read."""
    return {
        node.id
        for statement in statements
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
