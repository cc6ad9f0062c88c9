"""Syntax trees: what is in a node, its source text, what a call calls and is handed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypeGuard

from zerograd.core.events import Site

Function = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
LOOPS = (ast.For, ast.AsyncFor, ast.While)
_LEAVES = (ast.Constant, ast.expr_context, ast.operator, ast.cmpop, ast.boolop, ast.unaryop)
_KINDS = [
    kind for kind in vars(ast).values() if isinstance(kind, type) and issubclass(kind, ast.AST)
]
BRANCHES = frozenset(kind for kind in _KINDS if not issubclass(kind, _LEAVES))
"""Kinds of nodes that others can be in."""
_PLAIN_FIELDS = frozenset("id attr arg names ctx op ops module level kind type_comment".split())
FIELDS = {
    kind: tuple(name for name in kind._fields if kind in BRANCHES and name not in _PLAIN_FIELDS)
    for kind in _KINDS
}
"""The fields of a node that others can be in."""
BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


def children(node: ast.AST) -> list[ast.AST]:
    """What is directly in a node but literals and operators, in order."""
    found: list[ast.AST] = []
    for name in FIELDS[node.__class__]:
        value = getattr(node, name, None)
        if value.__class__ is list:
            found += [item for item in value if item.__class__ in BRANCHES]
        elif value.__class__ in BRANCHES:
            found.append(value)
    return found


def nodes(*roots: ast.AST) -> Iterator[ast.AST]:
    """Some nodes and all that is in them but literals and operators; in no order."""
    todo = list(roots)
    while todo:
        node = todo.pop()
        yield node
        if FIELDS[node.__class__]:  # every second node is a name
            todo += children(node)


def calls_in(*roots: ast.AST) -> Iterator[ast.Call]:
    """The calls in some nodes; in no order."""
    for node in nodes(*roots):
        if isinstance(node, ast.Call):
            yield node


def arguments(call: ast.Call) -> list[ast.expr]:
    """All that a call hands over: its positional arguments, then the values of its keywords."""
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def targets(node: ast.Assign | ast.AnnAssign | ast.AugAssign) -> list[ast.expr]:
    """What an assignment gives a value."""
    return node.targets if isinstance(node, ast.Assign) else [node.target]


def reached(root: ast.AST) -> Iterator[ast.AST]:
    """A node and all that is in it, without statements that follow a return or a raise in their block."""
    todo = [root]
    while todo:
        node = todo.pop()
        yield node
        for name in FIELDS[node.__class__]:
            value = getattr(node, name, None)
            for item in value if value.__class__ is list else [value]:
                if item.__class__ in BRANCHES:
                    todo.append(item)
                if isinstance(item, (ast.Return, ast.Raise)):
                    break


def outer_loops(root: ast.AST) -> Iterator[ast.For | ast.AsyncFor | ast.While]:
    """The loops in a node that are not in the body of another one."""
    todo: list[ast.AST] = [root]
    while todo:
        node = todo.pop()
        if isinstance(node, LOOPS):
            yield node
            todo += node.orelse
        elif not isinstance(node, ast.expr):
            todo += children(node)


def may_leave(statements: list[ast.stmt]) -> bool:
    """Whether some statements have a `return`, or a `break` or `continue` of a loop around them."""
    return any(map(_may_leave_by, statements))


def _may_leave_by(node: ast.AST, in_loop: bool = False) -> bool:
    """Whether a statement has a `return`, or a `break` or `continue` of a loop around it."""
    if node.__class__ is ast.Return:
        return True
    if node.__class__ in (ast.Break, ast.Continue):
        return not in_loop
    if node.__class__ in FUNCTIONS:
        return False
    loop = node.__class__ in LOOPS
    return any(
        _may_leave_by(inner, in_loop or (loop and name == "body"))
        for name in BLOCKS
        if (inners := getattr(node, name, None)).__class__ is list
        for inner in inners
    )


def parameters(node: Function | ast.Lambda) -> list[ast.arg]:
    """All parameters of a function, in order."""
    args = node.args
    extra = [arg for arg in (args.vararg, args.kwarg) if arg is not None]
    return [*args.posonlyargs, *args.args, *args.kwonlyargs, *extra]


def parameter_names(node: Function | ast.Lambda) -> list[str]:
    """The names of all parameters of a function, in order."""
    return [arg.arg for arg in parameters(node)]


def requires_arguments(node: Function) -> bool:
    """Whether a call of a function or a method fails that hands it nothing, unless a decorator hands it more."""
    required = [*node.args.posonlyargs, *node.args.args]
    required = required[: len(required) - len(node.args.defaults)]
    itself = required[:1] and required[0].arg in ("self", "cls")
    return not node.decorator_list and len(required) > bool(itself)


def stripped(node: ast.expr) -> ast.expr:
    """An iterable without the progress bar or the copy around it."""
    if isinstance(node, ast.Call) and node.args:
        name = called_name(node).lower()
        if name in ("iter", "list", "tuple", "reversed", "track", "log_every"):
            return stripped(node.args[0])
        if "tqdm" in name or "progress" in name:
            return stripped(node.args[0])
    return node


def is_gradient(node: ast.AST) -> TypeGuard[ast.Attribute]:
    """Whether a node is `x.grad`."""
    return isinstance(node, ast.Attribute) and node.attr == "grad"


def spans(node: ast.AST, line: int) -> bool:
    """Whether a line is inside of a node."""
    return getattr(node, "lineno", line + 1) <= line <= (getattr(node, "end_lineno", 0) or 0)


def site_of(node: ast.AST, path: str) -> Site:
    """Where a node of the file at this path is; columns are counted as the parser does, in bytes."""
    return Site(
        path,
        getattr(node, "lineno", 1),
        getattr(node, "col_offset", 0) + 1,
        getattr(node, "end_lineno", 0) or 0,
        (getattr(node, "end_col_offset", 0) or 0) + 1,
    )


def text_of(node: ast.expr) -> str:
    """The source text of a name or a short expression, on one line."""
    if type(node) is ast.Name:
        return node.id
    # The same texts are asked for wherever their function is called: they go with the node.
    text: str | None = getattr(node, "text", None)
    if text is None:
        if type(node) is ast.Attribute:
            owner = text_of(node.value)
            bare = isinstance(node.value, (ast.Name, ast.Attribute, ast.Call, ast.Subscript))
            text = f"{owner}.{node.attr}" if bare else f"({owner}).{node.attr}"
        else:
            try:
                text = ast.unparse(node)
            except (RecursionError, ValueError):
                text = "…"
        setattr(node, "text", text)  # noqa: B010 (nodes declare no such attribute)
    return text


def called_name(call: ast.Call) -> str:
    """The last name of what a call calls: `step` of `self.optimizer.step()`."""
    return last_name(text_of(call.func))


def last_name(dotted: str) -> str:
    """`step` of `self.optimizer.step`."""
    return dotted.rpartition(".")[2]


def first_name(dotted: str) -> str:
    """`self` of `self.optimizer.step`."""
    return dotted.partition(".")[0]


def short_text(node: ast.expr) -> str:
    """The text of a name or a number; of another expression only what kind it is."""
    if isinstance(node, (ast.Name, ast.Attribute, ast.Constant)):
        return text_of(node)
    return type(node).__name__
