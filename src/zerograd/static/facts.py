"""What a file says about itself, read in one pass: imports, calls, assignments, function by function."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from zerograd.static.names import INTERESTING, OBJECT_METHODS, SCALER_NAME, STEPPING

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(eq=False)
class Facts:
    """What one function does, its inner functions included where that is said."""

    mentions: bool = False
    """It speaks of gradients, itself or in an inner function."""
    steps: bool = False
    """It may step something, itself or in an inner function."""
    calls: set[str] = field(default_factory=set)
    """What it calls, itself or in an inner function, by dotted name."""
    assigned: set[str] = field(default_factory=set)
    assigns: list[ast.Assign | ast.AnnAssign] = field(default_factory=list)
    returns: list[ast.expr] = field(default_factory=list)
    attributes: set[tuple[str, str]] = field(default_factory=set)
    """Name and attribute of every `name.attribute`."""
    yields: bool = False


@dataclass(eq=False)
class FileFacts:
    """What one file imports, and the facts of its functions (and of itself, under its tree)."""

    imports: dict[str, str] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)
    methods: dict[str, set[str]] = field(default_factory=dict)
    """What is called on each receiver, by the receiver's text."""
    functions: dict[ast.AST, Facts] = field(default_factory=dict)
    tested: set[str] = field(default_factory=set)
    """Names and attributes that a test, a count or a divisor may depend on."""


_TELLING = frozenset(
    {"step", "zero_grad", "backward", "scale", "unscale_", "update", "prepare", "accumulate", "setup",
     "unwrap_model", "gather", "gather_for_metrics", "sync_gradients", "is_main_process",
     "wait_for_everyone", "clip_grad_norm_", "clip_gradients", "setup_dataloaders", "setup_module",
     "launch", "is_local_main_process"}
    | OBJECT_METHODS
)  # fmt: skip
_LEAVES = (ast.Constant, ast.expr_context, ast.operator, ast.cmpop, ast.boolop, ast.unaryop)
Chain = tuple[Facts, ...]


def text_of(node: ast.expr) -> str:
    """The source text of a name or a short expression, on one line."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{text_of(node.value)}.{node.attr}"
    try:
        return ast.unparse(node)
    except (RecursionError, ValueError):
        return "…"


def read(tree: ast.Module) -> FileFacts:
    """All facts of a file."""
    file = FileFacts()
    whole = file.functions[tree] = Facts()
    todo: list[tuple[ast.AST, Chain]] = [(tree, (whole,))]
    while todo:
        node, chain = todo.pop()
        handler = _HANDLERS.get(type(node))
        if handler is not None:
            chain = handler(file, node, chain)
        for name in node._fields:
            value = getattr(node, name, None)
            if type(value) is list:
                todo.extend((item, chain) for item in value if isinstance(item, ast.AST))
            elif isinstance(value, ast.AST) and not isinstance(value, _LEAVES):
                todo.append((value, chain))
    _close(file)
    return file


def _close(file: FileFacts) -> None:
    """Adds to the tested names those that they are computed from."""
    sources: dict[str, set[str]] = {}
    for facts in file.functions.values():
        for node in facts.assigns:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if node.value is None or isinstance(node.value, ast.Call):
                continue
            for target in targets:
                if isinstance(target, (ast.Name, ast.Attribute)):
                    name = target.id if isinstance(target, ast.Name) else target.attr
                    if name in file.tested or isinstance(target, ast.Name):
                        sources.setdefault(name, set()).update(_names(node.value))
    todo = list(file.tested)
    while todo:
        for name in sources.pop(todo.pop(), ()):
            if name not in file.tested:
                file.tested.add(name)
                todo.append(name)


def _names(node: ast.AST) -> set[str]:
    found = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name):
            found.add(inner.id)
        elif isinstance(inner, ast.Attribute):
            found.add(inner.attr)
    return found


def _test(file: FileFacts, node: ast.If | ast.While | ast.IfExp, chain: Chain) -> Chain:
    file.tested |= _names(node.test)
    return chain


def _division(file: FileFacts, node: ast.BinOp | ast.AugAssign, chain: Chain) -> Chain:
    if isinstance(node.op, ast.Div):
        file.tested |= _names(node.right if isinstance(node, ast.BinOp) else node.value)
    return chain


def _name(file: FileFacts, node: ast.Name, chain: Chain) -> Chain:
    if not isinstance(node.ctx, ast.Load):
        chain[-1].assigned.add(node.id)
    elif node.id in INTERESTING:
        _mention(chain)
    return chain


def _mention(chain: Chain) -> None:
    for facts in chain:
        facts.mentions = True


def _attribute(file: FileFacts, node: ast.Attribute, chain: Chain) -> Chain:
    if node.attr in INTERESTING:
        _mention(chain)
        if node.attr in STEPPING:
            for facts in chain:
                facts.steps = True
    if node.attr in _TELLING:
        file.methods.setdefault(text_of(node.value), set()).add(node.attr)
    if isinstance(node.value, ast.Name):
        chain[-1].attributes.add((node.value.id, node.attr))
    return chain


def _call(file: FileFacts, node: ast.Call, chain: Chain) -> Chain:
    if isinstance(node.func, (ast.Name, ast.Attribute)):
        name = _dotted(node.func)
        for facts in chain:
            facts.calls.add(name)
        if name in ("range", "trange", "enumerate") or node.keywords:
            for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
                if isinstance(argument, (ast.Name, ast.Attribute, ast.BinOp, ast.Compare)):
                    file.tested |= _names(argument)
        if SCALER_NAME.search(name):
            _mention(chain)
            for facts in chain:
                facts.steps = True
    return chain


def _dotted(node: ast.expr) -> str:
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        parts.append(node.id)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super":
        parts.append("super()")
    else:
        parts.append("")
    return ".".join(reversed(parts))


def _function(file: FileFacts, node: Function, chain: Chain) -> Chain:
    chain[-1].assigned.add(node.name)
    facts = file.functions[node] = Facts()
    return (*chain, facts)


def _lambda(file: FileFacts, node: ast.Lambda, chain: Chain) -> Chain:
    facts = file.functions[node] = Facts()
    return (*chain, facts)


def _class(file: FileFacts, node: ast.ClassDef, chain: Chain) -> Chain:
    chain[-1].assigned.add(node.name)
    return chain


def _assign(file: FileFacts, node: ast.Assign | ast.AnnAssign, chain: Chain) -> Chain:
    chain[-1].assigns.append(node)
    return chain


def _return(file: FileFacts, node: ast.Return, chain: Chain) -> Chain:
    if node.value is not None:
        chain[-1].returns.append(node.value)
    return chain


def _yield(file: FileFacts, node: ast.AST, chain: Chain) -> Chain:
    chain[-1].yields = True
    return chain


def _import(file: FileFacts, node: ast.Import, chain: Chain) -> Chain:
    for alias in node.names:
        top = alias.name.split(".")[0]
        file.imports[alias.asname or top] = alias.name if alias.asname else top
    return chain


def _import_from(file: FileFacts, node: ast.ImportFrom, chain: Chain) -> Chain:
    prefix = "." * node.level + (node.module or "")
    joint = "" if prefix.endswith(".") or not prefix else "."
    for alias in node.names:
        if alias.name == "*":
            file.stars.append(prefix)
        else:
            file.imports[alias.asname or alias.name] = f"{prefix}{joint}{alias.name}"
    return chain


_HANDLERS = {
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.Call: _call,
    ast.FunctionDef: _function,
    ast.AsyncFunctionDef: _function,
    ast.Lambda: _lambda,
    ast.ClassDef: _class,
    ast.Assign: _assign,
    ast.AnnAssign: _assign,
    ast.Return: _return,
    ast.If: _test,
    ast.While: _test,
    ast.IfExp: _test,
    ast.BinOp: _division,
    ast.AugAssign: _division,
    ast.Yield: _yield,
    ast.YieldFrom: _yield,
    ast.Import: _import,
    ast.ImportFrom: _import_from,
}
