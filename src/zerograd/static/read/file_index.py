"""What a file says about itself, read in one pass: imports, calls, assignments, function by function."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import NamedTuple

from zerograd.core.late_pattern import pattern
from zerograd.core.records import dataclass, field, replace
from zerograd.static.frameworks import registry
from zerograd.static.frameworks.registry import CLIPS, GRADIENT_NAMES, STEPS
from zerograd.static.frameworks.torch import SCALER_NAME
from zerograd.static.read.syntax_tree import (
    BRANCHES,
    FUNCTIONS,
    Function,
    children,
    first_name,
    last_name,
    nodes,
    requires_arguments,
    targets,
    text_of,
)
from zerograd.static.read.vocabulary import OBJECT_METHODS


class GradientCall(NamedTuple):
    """Something done to gradients: `step` on `self.optimizer`, as a statement at this place."""

    kind: str
    what: str
    at: int = 0


@dataclass(eq=False)
class Facts:
    """What one function does. Some fields include its inner functions, and say so."""

    mentions: bool = False
    """It mentions gradients, itself or in an inner function."""
    divides: bool = False
    """It divides something, itself or in an inner function."""
    steps: bool = False
    """It calls what may step something, itself or in an inner function."""
    grads: bool = False
    """It looks at a `.grad`, itself or in an inner function."""
    updates: bool = False
    """It changes something in place, itself or in an inner function: a step by hand, if by a gradient."""
    calls: set[str] = field(default_factory=set)
    """What it calls, itself or in an inner function, by dotted name."""
    given: set[str] = field(default_factory=set)
    """Those of them that it hands something."""
    handed: set[str] = field(default_factory=set)
    """The names, and attributes of `self`, that it hands to what it calls, inner functions left out."""
    assigned: set[str] = field(default_factory=set)
    assigns: list[ast.Assign | ast.AnnAssign] = field(default_factory=list)
    grown: list[tuple[ast.Name, ast.operator, ast.expr]] = field(default_factory=list)
    """Variables that something is added to, or taken from, and what."""
    returns: list[ast.expr] = field(default_factory=list)
    attributes: set[tuple[str, str]] = field(default_factory=set)
    """Name and attribute of every `name.attribute`."""
    yields: bool = False
    touches: list[GradientCall] = field(default_factory=list)
    """All that is done to gradients, inner functions left out."""
    inner_touches: bool = False
    """An inner function does something to gradients."""
    repeated: frozenset[str] | None = None
    """The last names of what it calls in loops, after the first request."""

    @cached_property
    def called(self) -> set[str]:
        """The last names of what it calls: `step` of `self.optimizer.step`."""
        return {last_name(name) for name in self.calls}

    @cached_property
    def called_with(self) -> set[str]:
        """The last names of what it calls and hands something."""
        return set(map(last_name, self.given))

    def may_call(self, function: Function | ast.Lambda) -> bool:
        """Whether one of its calls may be one of a function of that name: it is handed what it requires.

        `model.train()` is no call of a `train(self, data)`.
        """
        if isinstance(function, ast.Lambda):
            return True
        name = function.name
        return name in self.called and (
            name in self.called_with or not requires_arguments(function)
        )

    @cached_property
    def may_use_gradients(self) -> bool:
        """Whether it mentions a gradient, or a hook, which may use gradients."""
        return self.grads or self.calls_hooks

    @cached_property
    def calls_hooks(self) -> bool:
        """Whether it calls something that is named after hooks."""
        return any("hook" in name for name in self.called)

    @cached_property
    def runs_backward(self) -> bool:
        """Whether it calls a backward."""
        return not self.called.isdisjoint(("backward", "manual_backward"))

    @cached_property
    def call_parts(self) -> list[tuple[str, str, str]]:
        """What it calls, in the order of names: `self`, `optimizer` and `step` of `self.optimizer.step`."""
        found = []
        for name in sorted(self.calls):
            owner, _, last = name.rpartition(".")
            first, _, attr = owner.partition(".")
            found.append((first, attr, last))
        return found

    @cached_property
    def stored(self) -> list[tuple[str, str, str]]:
        """Names that are stored as they are: the name, and the object and attribute that hold it."""
        pairs = [(target, node.value) for node, target in self._single]
        for target, value in list(pairs):
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs += zip(target.elts, value.elts, strict=False)
        return [
            (value.id, target.value.id, target.attr)
            for target, value in pairs
            if isinstance(value, ast.Name)
            and isinstance(target, ast.Attribute)
            and isinstance(target.value, ast.Name)
        ]

    @cached_property
    def locals(self) -> dict[str, list[tuple[int, int, str, ast.expr]]]:
        """Values of local variables: in which order they are met, the line, the name, the value."""
        found: dict[str, list[tuple[int, int, str, ast.expr]]] = {}
        for node, target in self._single:
            if isinstance(target, ast.Name) and node.value is not None:
                one = (node.lineno, node.lineno, target.id, node.value)
                found.setdefault(target.id, []).append(one)
        for name, op, added in self.grown:
            whole = ast.BinOp(ast.Name(name.id, ast.Load()), op, added)
            ast.copy_location(whole.left, name)
            one = (name.lineno, name.lineno, name.id, ast.copy_location(whole, name))
            found.setdefault(name.id, []).append(one)
        return found

    @property
    def _single(self) -> Iterator[tuple[ast.Assign | ast.AnnAssign, ast.expr]]:
        for node in self.assigns:
            yield node, node.targets[0] if isinstance(node, ast.Assign) else node.target


@dataclass(eq=False)
class FileFacts:
    """What one file imports, and the facts of its functions (and of itself, under its tree)."""

    imports: dict[str, str] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)
    methods: dict[str, set[str]] = field(default_factory=dict)
    """What is called on each receiver, by the receiver's text."""
    functions: dict[ast.AST, Facts] = field(default_factory=dict)
    asked: list[ast.AST] = field(default_factory=list)
    """Tests, counts and divisors."""
    counted: set[str] = field(default_factory=set)
    """Attributes that are changed in place: `self.count += 1`."""
    bound: set[str] = field(default_factory=set)
    """Names and attributes that hold a method of an optimizer: `update = self.optimizer.step`."""
    top: Facts = field(default_factory=Facts)
    """What the top level does itself: steps and calls."""


_TELLING = registry.TELLING | OBJECT_METHODS | {"forward"}


@dataclass(eq=False)
class StatementFacts:
    """The facts of some statements of the top level: of these themselves, and of the functions in them."""

    own: FileFacts
    inner: FileFacts
    whole: Facts
    """What the statements do together."""

    @property
    def functions(self) -> Iterator[Facts]:
        """The facts of each function in it."""
        yield from self.own.functions.values()
        yield from self.inner.functions.values()


def read(tree: ast.Module) -> FileFacts:
    """All facts of a file."""
    return joined(tree, [part(tree.body)])


def part(statements: list[ast.stmt]) -> StatementFacts:
    """All facts of some statements of the top level."""
    whole = Facts()
    found = StatementFacts(FileFacts(), FileFacts(), whole)
    todo = _read_body(found.own, ast.Module(statements, []), whole)
    found.own.top = replace(whole, calls=set(whole.calls), given=set(whole.given))
    inner = []
    while todo:
        one = todo.pop()
        todo += _read_body(found.inner, one.node, one.facts)
        inner.append(one)
    # The innermost first, so that each passes on what its inner ones have passed to it.
    for one in reversed(inner):
        _pass_on(one.facts, one.around, _PASSED_OUT)
        one.around.inner_touches |= one.facts.inner_touches or bool(one.facts.touches)
    return found


def joined(tree: ast.Module, parts: list[StatementFacts]) -> FileFacts:
    """The facts of a file that has these parts."""
    file = FileFacts()
    whole = file.functions[tree] = Facts()
    for one in reversed(parts):
        _join(file, one.own)
        _join_facts(file.top, one.own.top)
    _join_facts(whole, file.top)
    for one in parts:
        _join(file, one.inner)
        _pass_on(one.whole, whole, _FLAGS)
    for facts in (file.top, *file.functions.values()) if file.bound else ():
        if not file.bound.isdisjoint(facts.called):
            facts.mentions = facts.steps = True
    return file


def _join(file: FileFacts, more: FileFacts) -> None:
    file.imports.update(more.imports)
    file.stars += more.stars
    file.asked += more.asked
    file.counted |= more.counted
    file.bound |= more.bound
    file.functions.update(more.functions)
    for receiver, methods in more.methods.items():
        file.methods.setdefault(receiver, set()).update(methods)


_PASSED_OUT = ("mentions", "divides", "steps", "grads", "updates")
"""What is true of a function if it is true of an inner one."""
_FLAGS = (*_PASSED_OUT, "yields", "inner_touches")


def _pass_on(more: Facts, facts: Facts, names: tuple[str, ...]) -> None:
    """What is called, and what these names say, is also true of other facts."""
    facts.calls |= more.calls
    facts.given |= more.given
    for name in names:
        if getattr(more, name):
            setattr(facts, name, True)


def _join_facts(facts: Facts, more: Facts) -> None:
    _pass_on(more, facts, _FLAGS)
    facts.handed |= more.handed
    facts.assigned |= more.assigned
    facts.attributes |= more.attributes
    facts.assigns += more.assigns
    facts.grown += more.grown
    facts.returns += more.returns
    facts.touches += more.touches


class _Inner(NamedTuple):
    """A function, and the facts of what it is directly in."""

    node: ast.AST
    facts: Facts
    around: Facts


def _read_body(file: FileFacts, root: ast.AST, own: Facts) -> list[_Inner]:
    """Notes the facts of one function; the functions inside it are not read, but returned."""
    inner = []
    todo = [root]
    while todo:
        node = todo.pop()
        kind = node.__class__
        if type(node) is ast.Name:
            if node.ctx.__class__ is not ast.Load:
                own.assigned.add(node.id)
            elif node.id in _NAMES_OR_CLIPS:
                _name(node, own)
            continue
        if type(node) is ast.Attribute:
            _attribute(file, node, own, todo)
            continue
        if type(node) is ast.Call:
            _call(file, node, own, todo)
            continue
        handler = _HANDLERS.get(kind)
        if handler is not None:
            handler(file, node, own)
        elif kind in FUNCTIONS and node is not root:
            facts = file.functions[node] = Facts()
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                own.assigned.add(node.name)
            inner.append(_Inner(node, facts, own))
            continue
        todo += children(node)
    return inner


_NAMES_OR_CLIPS = GRADIENT_NAMES | CLIPS
_NOTED = _NAMES_OR_CLIPS | _TELLING | {"data"}


def tested(asked: list[ast.AST], functions: dict[ast.AST, Facts]) -> set[str]:
    """Names and attributes that a test, a count or a divisor may depend on."""
    found = _names(*asked)
    sources: dict[str, list[ast.expr]] = {}
    for facts in functions.values():
        for node in facts.assigns:
            if node.value is None or isinstance(node.value, ast.Call):
                continue
            for target in targets(node):
                if isinstance(target, ast.Name):
                    sources.setdefault(target.id, []).append(node.value)
                elif isinstance(target, ast.Attribute):
                    sources.setdefault(target.attr, []).append(node.value)
    todo = list(found)
    while todo:
        for value in sources.pop(todo.pop(), ()):
            fresh = _names(value) - found
            found |= fresh
            todo.extend(fresh)
    return found


def _names(*roots: ast.AST) -> set[str]:
    found = set()
    for inner in nodes(*roots):
        if inner.__class__ is ast.Name:
            found.add(inner.id)
        elif inner.__class__ is ast.Attribute:
            found.add(inner.attr)
    return found


def _test(file: FileFacts, node: ast.If | ast.While | ast.IfExp, facts: Facts) -> None:
    file.asked.append(node.test)


def _augmented(file: FileFacts, node: ast.AugAssign, facts: Facts) -> None:
    if isinstance(node.target, ast.Name):
        facts.grown.append((node.target, node.op, node.value))
    elif isinstance(node.target, ast.Attribute):
        file.counted.add(node.target.attr)
    _division(file, node, facts)
    if not isinstance(node.value, ast.Constant):
        facts.updates = True


def _division(file: FileFacts, node: ast.BinOp | ast.AugAssign, facts: Facts) -> None:
    if isinstance(node.op, ast.Div):
        facts.divides = True
        file.asked.append(node.right if isinstance(node, ast.BinOp) else node.value)


def _name(node: ast.Name, facts: Facts) -> None:
    facts.touches.append(GradientCall(node.id, ""))
    if node.id in GRADIENT_NAMES:
        facts.mentions = True
    if node.id in STEPS and node.id not in _IF_CALLED:
        facts.steps = True


_IF_CALLED = frozenset({"step", "requires_grad", "requires_grad_"})
"""Attributes that count only where they are called or assigned."""


def _attribute(file: FileFacts, node: ast.Attribute, facts: Facts, todo: list[ast.AST]) -> None:
    value = node.value
    if node.attr in _NOTED:
        _noted(file, node, facts)
    if type(value) is ast.Name:
        facts.attributes.add((value.id, node.attr))
        if value.id in _NAMES_OR_CLIPS:
            _name(value, facts)
    elif value.__class__ in BRANCHES:
        todo.append(value)


def _noted(file: FileFacts, node: ast.Attribute, facts: Facts) -> None:
    if node.attr in _NAMES_OR_CLIPS and (
        node.attr != "requires_grad" or not isinstance(node.ctx, ast.Load)
    ):
        facts.touches.append(
            GradientCall(node.attr, "" if node.attr in CLIPS else text_of(node.value))
        )
    if node.attr in GRADIENT_NAMES and (
        node.attr not in _IF_CALLED or not isinstance(node.ctx, ast.Load)
    ):
        facts.mentions = True
        if node.attr in STEPS:
            facts.steps = True
        if node.attr in ("grad", "_grad"):
            facts.grads = True
    if node.attr == "data" and isinstance(node.ctx, ast.Store):
        facts.updates = True
    if node.attr in _TELLING:
        file.methods.setdefault(text_of(node.value), set()).add(node.attr)


def _called_later(name: str, first: ast.expr) -> str:
    """What a call leads to: `f` of `partial(f, x)`, `on_step` of `self.call_hook("on_step")`."""
    if last_name(name) == "partial" and isinstance(first, (ast.Name, ast.Attribute)):
        return _dotted(first)
    owner, _, last = name.rpartition(".")
    if not isinstance(first, ast.Constant) or not isinstance(first.value, str):
        return ""
    return f"{owner}.{first.value}" if owner and _BY_NAME.search(last) else ""


_BY_NAME = pattern(r"hook|call|trigger|fire|dispatch|invoke|notify")
"""Methods of such names call another method whose name they are handed."""


def _hand_on(given: list[ast.expr], facts: Facts) -> None:
    for item in given:
        if type(item) is ast.Name:
            facts.handed.add(item.id)
        elif type(item) is ast.Attribute and getattr(item.value, "id", "") == "self":
            facts.handed.add(f"self.{item.attr}")


def _call(file: FileFacts, node: ast.Call, facts: Facts, todo: list[ast.AST]) -> None:
    todo.append(node.func)
    given = [item for item in node.args if item.__class__ in BRANCHES]
    for keyword in node.keywords:
        if keyword.value.__class__ in BRANCHES:
            given.append(keyword.value)
    todo += given
    _hand_on(given, facts)
    if not isinstance(node.func, (ast.Name, ast.Attribute)):
        return
    name = _dotted(node.func)
    facts.calls.add(name)
    if node.args or node.keywords:
        facts.given.add(name)
    if node.args and (later := _called_later(name, node.args[0])):
        facts.calls.add(later)
        facts.given.add(later)
    if name.endswith(".extend") and isinstance(node.func, ast.Attribute) and node.args:
        if isinstance(node.func.value, ast.Name):
            facts.grown.append((node.func.value, ast.Add(), node.args[0]))
    if name in ("range", "trange", "enumerate") or node.keywords:
        asked = (ast.Name, ast.Attribute, ast.BinOp, ast.Compare)
        file.asked += [argument for argument in given if isinstance(argument, asked)]
    if name.endswith("_") and (node.args or node.keywords):
        facts.updates = True
    if name.endswith(_CALLED):
        scales = SCALER_NAME.search(name) is not None
        if scales or name.endswith((".step", ".requires_grad_", ".update")):
            facts.mentions = True
        # A scaler that steps is handed a loss and an optimizer.
        if name.endswith(".step") or (scales and len(node.args) + len(node.keywords) > 1):
            facts.steps = True
        if scales:
            facts.touches.append(GradientCall("scaler", name))


_CALLED = ("caler", "amp", "caler.update", "amp.update", ".step", ".requires_grad_")


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
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


def _class(file: FileFacts, node: ast.ClassDef, facts: Facts) -> None:
    facts.assigned.add(node.name)


def _assign(file: FileFacts, node: ast.Assign | ast.AnnAssign, facts: Facts) -> None:
    facts.assigns.append(node)
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    if isinstance(node.value, ast.Attribute) and node.value.attr in _BOUND:
        if isinstance(target, (ast.Name, ast.Attribute)) and "opt" in _dotted(node.value.value):
            file.bound.add(last_name(_dotted(target)))
    if isinstance(target, ast.Attribute) and isinstance(node.value, ast.BinOp):
        if any(getattr(inner, "attr", None) == target.attr for inner in nodes(node.value)):
            file.counted.add(target.attr)


_BOUND = frozenset({"step", "zero_grad"})


def _return(file: FileFacts, node: ast.Return, facts: Facts) -> None:
    if node.value is not None:
        facts.returns.append(node.value)
        if isinstance(node.value, (ast.Compare, ast.BoolOp)):
            file.asked.append(node.value)


def _for(file: FileFacts, node: ast.For, facts: Facts) -> None:
    """`for n, p in net.named_parameters(): chosen.append(p)` adds parameters of the net to a list."""
    call = node.iter
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return
    if call.func.attr not in ("parameters", "named_parameters"):
        return
    last = node.target.elts[-1] if isinstance(node.target, ast.Tuple) else node.target
    added = ast.Attribute(call.func.value, "parameters", ast.Load())
    given = ast.copy_location(ast.Call(ast.copy_location(added, call), [], []), call)
    for inner in nodes(*node.body):
        if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute):
            if inner.func.attr == "append" and isinstance(inner.func.value, ast.Name):
                if isinstance(last, ast.Name) and [text_of(one) for one in inner.args] == [last.id]:
                    facts.grown.append((inner.func.value, ast.Add(), given))


def _yield(file: FileFacts, node: ast.AST, facts: Facts) -> None:
    facts.yields = True


def _import(file: FileFacts, node: ast.Import, facts: Facts) -> None:
    for alias in node.names:
        top = first_name(alias.name)
        file.imports[alias.asname or top] = alias.name if alias.asname else top


def _import_from(file: FileFacts, node: ast.ImportFrom, facts: Facts) -> None:
    prefix = "." * node.level + (node.module or "")
    joint = "" if prefix.endswith(".") or not prefix else "."
    for alias in node.names:
        if alias.name == "*":
            file.stars.append(prefix)
        else:
            file.imports[alias.asname or alias.name] = f"{prefix}{joint}{alias.name}"


_HANDLERS: dict[type[ast.AST], Callable[..., None]] = {
    ast.ClassDef: _class,
    ast.Assign: _assign,
    ast.AnnAssign: _assign,
    ast.Return: _return,
    ast.For: _for,
    ast.If: _test,
    ast.While: _test,
    ast.IfExp: _test,
    ast.BinOp: _division,
    ast.AugAssign: _augmented,
    ast.Yield: _yield,
    ast.YieldFrom: _yield,
    ast.Import: _import,
    ast.ImportFrom: _import_from,
}
