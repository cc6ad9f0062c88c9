"""Small changes to a module of ours, each of which should make a test fail: the operators of mutation testing.

A mutant is one changed place: a comparison, a logical operator, a condition, a number, a text, an argument that is
left out, a statement that is deleted, a result that is None. Annotations, docstrings, imports and assertions stay.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.Mod: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
Path_ = tuple[tuple[str, int | None], ...]
"""The way from a module to a node: the names of fields, and the indices in them."""


@dataclass(frozen=True)
class Mutant:
    """One change of one module."""

    path: Path
    line: int
    change: str
    """What it was, and what it is instead: `== -> !=`."""
    where: Path_
    number: int
    """Which of the changes at that node."""
    in_function: bool

    @property
    def key(self) -> str:
        """What identifies it as long as the code of its module does not change."""
        way = ".".join(field if at is None else f"{field}{at}" for field, at in self.where)
        return f"{self.path.parent.name}/{self.path.name} {self.change} [{way}]"

    def tree(self) -> ast.Module:
        """The changed module."""
        module = ast.parse(self.path.read_text(encoding="utf-8"))
        node = _at(module, self.where)
        for number, (_, changed) in enumerate(_changes(node)):
            if number == self.number:
                _put(module, self.where, changed)
                return ast.fix_missing_locations(module)
        raise LookupError(self.key)


def mutants(path: Path) -> Iterator[Mutant]:
    """All mutants of a module, in the order of its lines."""
    module = ast.parse(path.read_text(encoding="utf-8"))
    found = []
    for where, node, in_function in _places(module, (), in_function=False):
        for number, (change, _) in enumerate(_changes(node)):
            line = getattr(node, "lineno", 0)
            found.append(Mutant(path, line, change, where, number, in_function))
    yield from sorted(found, key=lambda mutant: mutant.line)


def _places(
    node: ast.AST, where: Path_, *, in_function: bool
) -> Iterator[tuple[Path_, ast.AST, bool]]:
    """The nodes that may be changed."""
    if isinstance(node, (ast.Import, ast.ImportFrom, ast.Assert)):
        return
    if where:
        yield where, node, in_function
    inside = in_function or isinstance(node, _FUNCTION)
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "type_params", "type_comment"):
            continue
        if isinstance(node, _FUNCTION) and field == "args":
            continue  # defaults are values of the module, and few
        for index, child in enumerate(value if isinstance(value, list) else [value]):
            if not isinstance(child, ast.AST) or _is_declaration(node, field, index, child):
                continue
            at = index if isinstance(value, list) else None
            yield from _places(child, (*where, (field, at)), in_function=inside)


def _is_declaration(node: ast.AST, field: str, index: int, child: ast.AST) -> bool:
    """Whether a child only documents, or is for type checkers."""
    if field == "body" and isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
        return True
    if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
        return True
    if isinstance(child, ast.ClassDef) and "Protocol" in map(ast.unparse, child.bases):
        return True
    made = child.value if isinstance(child, (ast.Assign, ast.AnnAssign)) else None
    if isinstance(made, ast.Call) and ast.unparse(made.func) in ("TypeVar", "TypeAlias"):
        return True
    # A type that is given a name: `Place = tuple[str, int]`, `Level = Literal["error"]`.
    if isinstance(node, ast.Module) and isinstance(child, ast.Assign):
        return isinstance(child.value, (ast.Subscript, ast.BinOp))
    return isinstance(child, ast.Assign) and ast.unparse(child.targets[0]) == "__slots__"


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """The changes of one node, each with what it becomes."""
    if isinstance(node, ast.Compare):
        for index, operator in enumerate(node.ops):
            other = _COMPARISONS[type(operator)]
            changed = copy.deepcopy(node)
            changed.ops[index] = other()
            yield f"{type(operator).__name__} -> {other.__name__}", changed
    elif isinstance(node, ast.BoolOp):
        other_logic = ast.Or if isinstance(node.op, ast.And) else ast.And
        yield (
            f"{type(node.op).__name__} -> {other_logic.__name__}",
            ast.BoolOp(other_logic(), node.values),
        )
        for index in range(len(node.values)):
            rest = [value for at, value in enumerate(node.values) if at != index]
            left = rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
            yield f"without {ast.unparse(node.values[index])}", left
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "without not", node.operand
    elif isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        operation = _ARITHMETIC[type(node.op)]
        yield (
            f"{type(node.op).__name__} -> {operation.__name__}",
            ast.BinOp(node.left, operation(), node.right),
        )
    elif isinstance(node, ast.Constant):
        yield from _constants(node)
    elif isinstance(node, ast.Call):
        for index, word in enumerate(node.keywords):
            fewer = copy.copy(node)
            fewer.keywords = [one for at, one in enumerate(node.keywords) if at != index]
            yield f"without {word.arg}=", fewer
    else:
        yield from _statements(node)


def _statements(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(node, (ast.If, ast.IfExp, ast.While)):
        if not isinstance(node.test, (ast.Compare, ast.BoolOp, ast.UnaryOp)):
            turned = copy.copy(node)
            turned.test = ast.UnaryOp(ast.Not(), node.test)
            yield f"not {ast.unparse(node.test)}", turned
    elif isinstance(node, ast.Return) and node.value is not None:
        # False is changed to True: None would be the same to most callers.
        if ast.unparse(node.value) not in ("None", "False"):
            yield "return None", ast.Return(ast.Constant(None))
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield f"without {ast.unparse(node.value)[:40]}", ast.Pass()
    elif isinstance(node, ast.AugAssign):
        yield "assigned, not added", ast.Assign([node.target], node.value, lineno=node.lineno)
    elif isinstance(node, ast.Continue):
        yield "continue -> break", ast.Break()
    elif isinstance(node, ast.Break):
        yield "break -> continue", ast.Continue()


def _constants(node: ast.Constant) -> Iterator[tuple[str, ast.AST]]:
    value = node.value
    if isinstance(value, bool):
        yield f"{value} -> {not value}", ast.Constant(not value)
    elif isinstance(value, (int, float)):
        yield f"{value} -> {value + 1}", ast.Constant(value + 1)
    elif isinstance(value, str):
        yield f"{value[:30]!r} -> with X", ast.Constant(f"X{value}X")


def _at(module: ast.AST, where: Path_) -> ast.AST:
    node = module
    for field, index in where:
        value = getattr(node, field)
        node = value if index is None else value[index]
    return node


def _put(module: ast.AST, where: Path_, changed: ast.AST) -> None:
    parent = _at(module, where[:-1])
    field, index = where[-1]
    old = _at(module, where)
    if hasattr(old, "lineno"):
        ast.copy_location(changed, old)
    if index is None:
        setattr(parent, field, changed)
    else:
        getattr(parent, field)[index] = changed
