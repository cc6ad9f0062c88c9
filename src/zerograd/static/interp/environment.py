"""Names: what each one holds where the reader stands, through frames, modules and imports."""

from __future__ import annotations

import ast
import builtins
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from zerograd.core.events import Event, Kind, Site
from zerograd.core.records import replace
from zerograd.explore.flow import Alt, Flow, Seq
from zerograd.explore.logic import (
    WINDOW_LENGTH,
    Const,
    Count,
    Expr,
    LastIteration,
    Name,
    Op,
    Synchronises,
    Variable,
)
from zerograd.static.interp.constructors import role_of_class
from zerograd.static.interp.effects import Act
from zerograd.static.read import vocabulary
from zerograd.static.read.budget import Cut
from zerograd.static.read.file_index import text_of
from zerograd.static.read.project import Module, Project
from zerograd.static.read.values import (
    OPTIMIZER,
    Fn,
    Klass,
    Lit,
    Many,
    Origin,
    Params,
    Table,
    Tensor,
    Thing,
    Value,
    join,
)

MOST_ACTS = 1500

if TYPE_CHECKING:
    from zerograd.static.interp.statements import Lower


@dataclass(eq=False)
class Frame:
    """One activation of a function, or a module's top level."""

    module: Module
    prefix: str = ""
    parent: Frame | None = None
    env: dict[str, Value] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    """Parameters that are another frame's variable under a new name."""
    locals: frozenset[str] = frozenset()
    owner: Value | None = None
    klass: Klass | None = None
    returns: list[Value] = field(default_factory=list)
    iterables: dict[str, ast.expr] = field(default_factory=dict)
    """Loops that were given a name before they run: `bar = enumerate(loader)`."""
    call: int = 0
    """The number of the call; 0 for what nobody is seen to call."""


_BUILTINS = frozenset(dir(builtins))


class Scope:
    """Where the reader stands, and what it knows there."""

    def __init__(self, project: Project, module: Module) -> None:
        self.project = project
        self.work = project.work
        self.out: list[Flow] = []
        self.frame = Frame(module)
        self.heap: dict[tuple[str, str], Value] = {}
        self.roles: dict[str, str] = {}
        self.loops: list[int] = [0]
        self.targets: set[Variable] = set()
        self.ends: dict[Variable, tuple[int, int]] = {}
        self.shifting: dict[Variable, set[str]] = {}
        self.made: dict[str, Site] = {}
        self.fresh: set[str] = set()
        self.closures: list[Fn] = []
        self.prepared: dict[str, str] = {}
        self.params: dict[str, frozenset[str] | None] = {}
        self.handed: set[str] = set()
        self.idle: dict[int, tuple[str, ast.AST, int]] = {}
        self.inlined: set[ast.AST] = set()
        self.stack: list[ast.AST] = []
        self.evaluating: set[tuple[str, str]] = set()
        self.count = 0
        self.acts = 0
        self.no_grad = 0
        self.quiet = 0
        self.unguarded = True
        self.some = False
        self.in_parameters = False
        self.accumulating: str | None = None
        self.frozen: set[str] = set()
        self.wrapped = False
        self.top = self.frame
        project.frames.append(self.top)

    def site(self, node: ast.AST) -> Site:
        return Site(
            self.frame.module.path,
            getattr(node, "lineno", 1),
            getattr(node, "col_offset", 0) + 1,
            getattr(node, "end_lineno", 0) or 0,
            (getattr(node, "end_col_offset", 0) or 0) + 1,
        )

    def emit(self, kind: Kind, node: ast.AST, act: Act | None = None, **fields: object) -> None:
        """Adds an act; `fields` are those of the event."""
        self.acts += 1
        if self.acts > MOST_ACTS:
            raise Cut
        call = text_of(node.func) + "()" if isinstance(node, ast.Call) else ""
        event = Event(kind, self.site(node), call=call, loop=self.loops[-1])
        act = act or Act(event)
        act.event = replace(event, **fields)
        flow: Flow = act
        if self.accumulating and kind in (Kind.STEP, Kind.ZERO) and self.is_wrapped(act):
            flow = Alt(self.synchronises(), act, Seq(()), act.event.site)
        elif self.prepared and kind in (Kind.STEP, Kind.ZERO) and self.is_wrapped(act):
            flow = self.gated(act)
        self.out.append(flow)

    def gated(self, act: Act) -> Flow:
        """Outside of `accumulate`, accelerate still goes by what its last one said."""
        for key in act.whose & self.prepared.keys():
            accelerator = self.prepared[key]
            if f"{accelerator}.accumulate" in self.top.module.facts[self.top.module.tree].calls:
                return Alt(Synchronises(accelerator), act, Seq(()), act.event.site)
        return act

    def is_wrapped(self, act: Act) -> bool:
        """Whether accelerate gates the act: its optimizers' step and zero, not a module's zero."""
        return any(self.roles.get(key) == OPTIMIZER for key in act.whose)

    def synchronises(self) -> Expr:
        """Whether accelerate closes the window in this iteration."""
        key = self.accumulating or "accelerate"
        full = Op("==", (Op("%", (Count(key), WINDOW_LENGTH)), Const(0)))
        return Op("or", (full, LastIteration(self.loops[-1])), "accelerator.sync_gradients")

    def is_optimizer(self, value: Value) -> bool:
        """Whether an object is known to be an optimizer."""
        return isinstance(value, Thing) and self.roles.get(value.key, value.role) == OPTIMIZER

    def used_as(self, node: ast.expr) -> str:
        """The role in which the file uses a name, whatever it was given."""
        text = text_of(node)
        methods = self.frame.module.methods.get(text, frozenset())
        return vocabulary.role_of_use(text, methods) if methods else ""

    def hand_on(self, value: Value) -> None:
        """Remembers optimizers that leave what is read."""
        if isinstance(value, Thing):
            self.handed.add(value.key)
        elif isinstance(value, Many):
            for item in value.items:
                self.hand_on(item)
        elif isinstance(value, Table):
            for _, item in value.items:
                self.hand_on(item)

    def variable(self, node: ast.AST) -> str | None:
        """The unique name of a variable or attribute; None for anything else."""
        if isinstance(node, ast.Name):
            frame: Frame | None = self.frame
            while frame is not None:
                if node.id in frame.aliases:
                    return frame.aliases[node.id]
                if node.id in frame.locals or node.id in frame.env:
                    value = frame.env.get(node.id)
                    if isinstance(value, Thing) and value is frame.owner:
                        return value.key
                    return frame.prefix + node.id
                frame = frame.parent
            return node.id
        if isinstance(node, ast.Attribute):
            base = self.variable(node.value)
            return f"{base}.{node.attr}" if base is not None else None
        return None

    def reads(self, node: ast.expr) -> frozenset[Variable]:
        found = (
            self.variable(inner)
            for inner in ast.walk(node)
            if isinstance(inner, (ast.Name, ast.Attribute))
        )
        return frozenset(Name(name) for name in found if name)

    def peek(self, node: ast.expr) -> Value:
        """The value of an expression, without its effects."""
        if isinstance(node, ast.Name):
            return self.lookup(node.id)
        out, self.out = self.out, []
        self.quiet += 1
        acts = self.acts
        try:
            return self.value(node)
        finally:
            self.out, self.acts = out, acts
            self.quiet -= 1

    def lookup(self, name: str) -> Value:
        frame: Frame | None = self.frame
        while frame is not None:
            if name in frame.env:
                return frame.env[name]
            if name in frame.locals:
                return Thing(frame.prefix + name)
            frame = frame.parent
        return self.global_name(self.frame.module, name)

    def global_name(self, module: Module, name: str, depth: int = 0) -> Value:
        if module is self.top.module and name in self.top.env:
            return self.top.env[name]
        if name in module.functions:
            return Fn(module.functions[name], module, name)
        if name in module.classes:
            return Klass(module.classes[name], module, name)
        if name in module.imports:
            return self.imported(module, module.imports[name], depth)
        if name in module.globals:
            return self.global_value(module, name)
        for star in module.stars:
            found = self.project.resolve(module, star)
            if found is not None and not found[1] and depth < 4:
                inner = found[0]
                if name in inner.functions or name in inner.classes:
                    return self.global_name(inner, name, depth + 1)
        if name in _BUILTINS:
            return Origin(name)
        return Origin(vocabulary.USUAL[name]) if name in vocabulary.USUAL else Thing(name)

    def imported(self, module: Module, dotted: str, depth: int = 0) -> Value:
        found = self.project.resolve(module, dotted) if depth < 4 else None
        if found is None:
            return Origin(dotted.lstrip("."))
        inner, rest = found
        if not rest:
            return Origin(f"module:{inner.path}")
        head, _, tail = rest.partition(".")
        known = head in inner.functions or head in inner.classes or head in inner.imports
        if not tail and (known or head in inner.globals):
            return self.global_name(inner, head, depth + 1)
        return Origin(dotted.lstrip("."))

    def global_value(self, module: Module, name: str) -> Value:
        """What a module-level name holds, as seen from a function."""
        mark = (module.path, name)
        if mark in self.evaluating:
            return Thing(name)
        self.evaluating.add(mark)
        frame = self.frame
        self.frame = Frame(module)
        try:
            values = [self.peek(node) for node in module.globals[name][-3:]]
        finally:
            self.frame = frame
            self.evaluating.discard(mark)
        value = join(values)
        if isinstance(value, (Thing, Many, Table, Params, Klass, Fn, Origin)):
            return called(value, name)
        if isinstance(value, Lit) and len(values) == 1:
            return value
        return Thing(name)

    def role(self, thing: Thing, node: ast.expr | None = None) -> str:
        """The role of an object, from where it was made or from how the file uses it."""
        if thing.params is not None:
            self.params[thing.key] = thing.params
        if thing.role:
            self.roles.setdefault(thing.key, thing.role)
            return thing.role
        if thing.key in self.roles:
            return self.roles[thing.key]
        role = ""
        if thing.klass is not None:
            role = role_of_class(self.reader, thing.klass)
        if not role and node is not None and thing.klass is None:
            text = text_of(node)
            role = vocabulary.role_of_use(text, self.frame.module.methods.get(text, frozenset()))
        if role:
            self.roles[thing.key] = role
        return role

    def module_attribute(self, path: str, attr: str) -> Value:
        """A name in a module of the project, or a module in its package."""
        inner = self.project.load(path)
        if inner is None:
            return Origin(attr)
        known = (inner.functions, inner.classes, inner.imports, inner.globals)
        if not any(attr in names_of for names_of in known):
            found = self.project.resolve(inner, f".{attr}")
            if found is not None and not found[1]:
                return Origin(f"module:{found[0].path}")
        return self.global_name(inner, attr, 1)

    # Parts of the reader that stand on these.

    @property
    def reader(self) -> Lower:
        """The whole reader: its parts are never used alone."""
        return self  # type: ignore[return-value]

    def value(self, node: ast.expr) -> Value:
        """The value of an expression; its acts are emitted."""
        raise NotImplementedError

    def attribute(self, owner: Value, attr: str) -> Value:
        """What an object holds under a name."""
        raise NotImplementedError


def called(value: Value, key: str) -> Value:
    """The value under the name that holds it."""
    if isinstance(value, Thing):
        return replace(value, key=key, made=False) if value.made else value
    if isinstance(value, Many):
        items = enumerate(value.items)
        return Many(tuple(called(item, f"{key}[{index}]") for index, item in items))
    if isinstance(value, Table):
        return Table(tuple((name, called(item, f"{key}[{name!r}]")) for name, item in value.items))
    if isinstance(value, (Params, Klass, Fn, Origin)):
        return value
    if isinstance(value, Lit) or (isinstance(value, Tensor) and value.roots):
        return value
    return Thing(key)
