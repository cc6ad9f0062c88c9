"""Python source as the expressions that tests of flows are made of."""

from __future__ import annotations

import ast

from zerograd.explore.logic import Const, Expr, Name, Op

OPS: dict[type, str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.And: "and",
    ast.Or: "or",
}


def read(text: str) -> Expr:
    """Python source as an expression."""
    return _read(ast.parse(text, mode="eval").body)


def _read(node: ast.expr) -> Expr:
    if isinstance(node, ast.Constant):
        assert isinstance(node.value, int)
        return Const(node.value)
    if isinstance(node, ast.Name):
        return Name(node.id)
    if isinstance(node, ast.UnaryOp):
        return Op("not" if isinstance(node.op, ast.Not) else "neg", (_read(node.operand),))
    if isinstance(node, ast.BinOp):
        return Op(OPS[type(node.op)], (_read(node.left), _read(node.right)))
    if isinstance(node, ast.BoolOp):
        return Op(OPS[type(node.op)], tuple(map(_read, node.values)))
    assert isinstance(node, ast.Compare)
    return Op(OPS[type(node.ops[0])], (_read(node.left), _read(node.comparators[0])))
