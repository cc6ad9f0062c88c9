"""Losses that may be right for a window although no division by its length is seen.

A function that gets the number of micro-batches in a window may divide by it. Code that reads all
micro-batches before or after its own computes the loss of the whole window, one part at a time.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from zerograd.core.events import Backward, Excuse, Site
from zerograd.core.records import replace
from zerograd.explore.flow import Emit, Flow, find, rebuild
from zerograd.explore.logic import Name, Variable, WindowLength
from zerograd.static.interp.emitter import Act
from zerograd.static.read import vocabulary
from zerograd.static.read.syntax_tree import called_name, last_name, nodes, targets, text_of

_ASK_ONLY = frozenset("range trange tqdm int float min max print len chunk tensor_split".split())


def excused(seen: Flow, acts: Flow, symbols: frozenset[Variable]) -> Flow:
    """A subject's flow in which a backward has an excuse if its loss may be that of the whole window."""
    names = (symbol.text for symbol in symbols if isinstance(symbol, (Name, WindowLength)))
    window = {last_name(name) for name in names}
    sites = {act.event.site for act in find(acts, Act) if act.within and _may_be_whole(act, window)}
    return _undivided(seen, sites) if sites else seen


def _undivided(flow: Flow, sites: set[Site]) -> Flow:
    if isinstance(flow, Emit):
        event = flow.event
        if not isinstance(event, Backward) or event.divisor is not None or event.site not in sites:
            return flow
        return replace(flow, event=replace(event, excuse=Excuse.MAY_BE_WHOLE))
    return rebuild(flow, lambda part: _undivided(part, sites))


def _may_be_whole(act: Act, window: set[str]) -> bool:
    loop = act.within[0]
    targets = _names(loop.target) if isinstance(loop, (ast.For, ast.AsyncFor)) else set()
    divisions: list[ast.AST] = []
    for node in (node for part in act.within for node in nodes(part)):
        if isinstance(node, ast.Slice) and (node.lower is None) != (node.upper is None):
            if targets & _names(node):
                return True
        elif any(last_name(text_of(value)) in window for value in _passed(node)):
            if not isinstance(node, (ast.BinOp, ast.AugAssign)):
                return True
            divisions.append(node)
    return bool(divisions) and _reaches(divisions, act)


def _reaches(divisions: list[ast.AST], act: Act) -> bool:
    """Whether the result of a division may be part of the loss: the code may divide something else."""
    inside = [node for part in act.within for node in nodes(part)]
    site = act.event.site
    call = next((node for node in inside if _is_at(node, site)), None)
    if call is None:
        return True
    made = {id(node) for node in divisions}
    divided: set[str] = set()
    kinds = (ast.Assign, ast.AnnAssign, ast.AugAssign)
    assigns = [node for node in inside if isinstance(node, kinds) and node.lineno <= site.line]
    before = -1
    while before < len(divided):
        before = len(divided)
        for node in assigns:
            held = [node, *(nodes(node.value) if node.value is not None else ())]
            if any(id(one) in made or _text(one) in divided for one in held):
                given = targets(node)
                divided.update(_text(one) for target in given for one in nodes(target))
                divided.discard("")
    return any(id(one) in made or _text(one) in divided for one in nodes(call))


def _is_at(node: ast.AST, site: Site) -> bool:
    here = (getattr(node, "lineno", 0), getattr(node, "col_offset", 0) + 1)
    return isinstance(node, ast.Call) and here == (site.line, site.column)


def _text(node: ast.AST) -> str:
    """A variable or attribute, as it is written; nothing for anything else."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return text_of(node)
    return node.id if isinstance(node, ast.Name) and node.id != "self" else ""


def _names(node: ast.AST) -> set[str]:
    return {inner.id for inner in nodes(node) if isinstance(inner, ast.Name)}


def _passed(node: ast.AST) -> Iterator[ast.expr]:
    """What a call is handed, and what is divided by."""
    if isinstance(node, ast.Call):
        name = called_name(node)
        if name not in _ASK_ONLY and not vocabulary.is_benign(name):
            yield from (arg for arg in node.args if isinstance(arg, (ast.Name, ast.Attribute)))
            yield from (keyword.value for keyword in node.keywords)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        yield from (n for n in nodes(node.right) if isinstance(n, (ast.Name, ast.Attribute)))
    elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Div):
        yield from (n for n in nodes(node.value) if isinstance(n, (ast.Name, ast.Attribute)))
