"""Expressions that are one number by the way they are computed: means, sums, losses of torch, arithmetic of them."""

from __future__ import annotations

import ast

from zerograd.core.late_pattern import pattern
from zerograd.static.read.syntax_tree import text_of

_REDUCES = frozenset({"mean", "sum"})
_LOSS = pattern(r"(^|\.)(F|functional)\.(\w+_loss|(binary_)?cross_entropy(_with_logits)?|kl_div)$")


def is_scalar(node: ast.expr) -> bool:
    """Whether an expression is a tensor of one number, whatever its parts are."""
    if isinstance(node, ast.UnaryOp):
        return is_scalar(node.operand)
    if isinstance(node, ast.BinOp):
        return _is_scalar_arithmetic(node)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    if any(one.arg != "dtype" for one in node.keywords):
        return False
    text = text_of(node.func)
    if _LOSS.search(text):
        return True
    if node.func.attr not in _REDUCES:
        return False
    return len(node.args) == (text in ("torch.mean", "torch.sum"))


def _is_scalar_arithmetic(node: ast.BinOp) -> bool:
    left, right = is_scalar(node.left), is_scalar(node.right)
    if isinstance(node.op, ast.Div):
        return left and (right or isinstance(node.right, (ast.Name, ast.Constant, ast.Attribute)))
    sides = (
        left or isinstance(node.left, ast.Constant),
        right or isinstance(node.right, ast.Constant),
    )
    return (left or right) and all(sides)
