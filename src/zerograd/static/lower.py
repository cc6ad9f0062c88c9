"""From a syntax tree to a flow of acts: statements, scopes and inlined calls. Nothing is executed.

What cannot be seen stays unknown; whoever reads the flow may excuse by it, and must not accuse by it.
"""

from __future__ import annotations

import ast
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from zerograd.events import Event, Kind, Site
from zerograd.flow import Alt, Block, Flow, Jump, Loop, Seq, Set, Try, walk
from zerograd.guard import Const, Expr, Op, Opaque, Var
from zerograd.static import calls, conditions, names
from zerograd.static.acts import Act
from zerograd.static.shape import relooped
from zerograd.static.facts import Function, text_of
from zerograd.static.project import Module, Project, assigned_names, method_of
from zerograd.static.values import (
    NOTHING,
    OPTIMIZER,
    Bound,
    Fn,
    Grad,
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
    mix,
)

DEEPEST_CALL = 10
MOST_ACTS = 1500
MOST_STATEMENTS = 6000
EMPTY = Seq(())


class Cut(Exception):
    """The budget for one root is used up."""


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
    label: str = "return:0"


class Lower:
    """Lowers one root (a module's top level or a function) and all that it calls."""

    def __init__(self, project: Project, module: Module, deadline: float) -> None:
        self.project = project
        self.deadline = deadline
        self.out: list[Flow] = []
        self.frame = Frame(module)
        self.heap: dict[tuple[str, str], Value] = {}
        self.roles: dict[str, str] = {}
        self.loops: list[int] = [0]
        self.targets: set[str] = set()
        self.shifting: dict[str, set[str]] = {}
        self.made: dict[str, Site] = {}
        self.fresh: set[str] = set()
        self.closures: list[Fn] = []
        self.prepared: dict[str, str] = {}
        self.params: dict[str, frozenset[str] | None] = {}
        self.handed: set[str] = set()
        self.idle: dict[int, tuple[str, ast.AST]] = {}
        self.inlined: set[ast.AST] = set()
        self.stack: list[ast.AST] = []
        self.evaluating: set[tuple[str, str]] = set()
        self.count = 0
        self.acts = 0
        self.steps = 0
        self.no_grad = 0
        self.quiet = 0
        self.unguarded = True
        self.some = False
        self.accumulating: str | None = None
        self.frozen: set[str] = set()
        self.top = self.frame

    # Roots

    def module_body(self) -> Flow:
        """The module's top level as a flow."""
        return self.collect(self.frame.module.tree.body)

    def function(self, fn: Fn) -> Flow:
        """A function as a flow, its parameters unknown."""
        values = {}
        node = fn.node
        for arg in _parameters(node):
            values[arg.arg] = self.unknown_argument(arg)
        if isinstance(fn.owner, Thing) and node.args.args:
            values[node.args.args[0].arg] = fn.owner
        out, self.out = self.out, []
        self.enter(fn, values, {})
        flow, self.out = self.out, out
        return Seq(tuple(flow))

    def unknown_argument(self, arg: ast.arg) -> Value:
        note = text_of(arg.annotation) if arg.annotation is not None else ""
        role = OPTIMIZER if "Optimizer" in note and "List" not in note and "[" not in note else ""
        return Thing(arg.arg, role)

    def idle_loss(self, loop: int) -> Site | None:
        """Where a loop computes a loss that it hands to nothing."""
        path, node = self.idle.get(loop, ("", None))
        found = calls.idle_loss(node) if isinstance(node, (ast.For, ast.AsyncFor, ast.While)) else None
        return replace(self.site(found), path=path) if found is not None else None

    # Emitting

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
        if self.acts > MOST_ACTS or (not self.acts % 16 and time.monotonic() > self.deadline):
            raise Cut
        call = text_of(node.func) + "()" if isinstance(node, ast.Call) else ""
        event = Event(kind, self.site(node), call=call, loop=self.loops[-1])
        act = act or Act(event)
        act.event = replace(event, **fields)  # type: ignore[arg-type]
        flow: Flow = act
        if self.accumulating and kind in (Kind.STEP, Kind.ZERO) and self.is_wrapped(act):
            flow = Alt(self.synchronises(), act, EMPTY, act.event.site)
        self.out.append(flow)

    def is_wrapped(self, act: Act) -> bool:
        """Whether accelerate gates the act: its optimizers' step and zero, not a module's zero."""
        return any(self.roles.get(key) == OPTIMIZER for key in act.whose)

    def synchronises(self) -> Expr:
        """Whether accelerate closes the window in this iteration."""
        key = self.accumulating or "accelerate"
        full = Op("==", (Op("%", (Var(f"@count:{key}"), Var("@N"))), Const(0)))
        return Op("or", (full, Var(f"@last:{self.loops[-1]}")), "accelerator.sync_gradients")

    def collect(self, body: Sequence[ast.stmt]) -> Flow:
        """The flow of some statements."""
        out, self.out = self.out, []
        try:
            self.statements(body)
            return Seq(tuple(self.out))
        finally:
            self.out = out

    # Statements

    def statements(self, body: Sequence[ast.stmt]) -> None:
        self.steps += len(body)
        if self.steps > MOST_STATEMENTS or time.monotonic() > self.deadline:
            raise Cut
        for node in body:
            handler = getattr(self, f"do_{type(node).__name__}", None)
            if handler is not None:
                handler(node)

    def do_Expr(self, node: ast.Expr) -> None:
        self.value(node.value)

    def do_Assign(self, node: ast.Assign) -> None:
        value = self.value(node.value)
        for target in node.targets:
            self.store(target, value, node.value, node)

    def do_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.store(node.target, self.value(node.value), node.value, node)

    def do_AugAssign(self, node: ast.AugAssign) -> None:
        old = self.peek(node.target)
        new = self.value(node.value)
        if calls.updates_by_hand(self, node.target, old, new, node):
            return
        combined = ast.copy_location(ast.BinOp(_loaded(node.target), node.op, node.value), node)
        value: Value = self.arithmetic(combined, old, new) if old is not None else NOTHING
        if isinstance(old, (Thing, Params)) and not isinstance(new, Tensor):
            value = old
        if isinstance(old, Many) and isinstance(new, Many):
            value = Many(old.items + new.items)
        self.store(node.target, value, combined, node, augmented=True)

    def do_Delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            if isinstance(target, ast.Attribute) and target.attr == "grad":
                calls.clear(self, self.peek(target.value), node, to_none=True)

    def do_Return(self, node: ast.Return) -> None:
        value: Value = Lit(None)
        if node.value is not None:
            value = self.value(node.value)
            self.hand_on(value)
        self.frame.returns.append(value)
        self.out.append(Jump(self.frame.label))

    def do_Raise(self, node: ast.Raise) -> None:
        self.out.append(Jump("raise"))

    def do_Break(self, node: ast.Break) -> None:
        self.out.append(Jump(f"break:{self.loops[-1]}"))

    def do_Continue(self, node: ast.Continue) -> None:
        self.out.append(Jump(f"continue:{self.loops[-1]}"))

    def do_Assert(self, node: ast.Assert) -> None:
        self.value(node.test)

    def do_FunctionDef(self, node: Function) -> None:
        fn = Fn(node, self.frame.module, node.name, None, self.frame)
        self.frame.env[node.name] = fn
        if self.frame is not self.top:
            self.closures.append(fn)

    do_AsyncFunctionDef = do_FunctionDef

    def do_ClassDef(self, node: ast.ClassDef) -> None:
        self.frame.env[node.name] = Klass(node, self.frame.module, node.name)

    def do_If(self, node: ast.If) -> None:
        checked = conditions.is_none_check(node.test)
        if checked is not None:
            self.under_none_check(node, checked)
            return
        self.value(node.test)
        constant = conditions.constant(self, node.test)
        if constant is not None:
            self.statements(node.body if constant else node.orelse)
            return
        partial = self.some
        if self.some is not True and self.in_parameters and not _asks_requires_grad(node.test):
            self.some = True
        before = dict(self.frame.env)
        # What the test is must be said before the arms assign what it reads.
        test = conditions.expression(self, node.test)
        exists = conditions.exists_check(self, node.test)
        then = self.collect(node.body)
        after_then, self.frame.env = self.frame.env, before
        orelse = self.collect(node.orelse)
        self.some = partial
        mixed = self.merge(after_then, leaves(then), leaves(orelse))
        if _does_something(then) or _does_something(orelse):
            alt = Alt(test, then, orelse, self.site(node.test))
            if exists is not None:
                alt.exists = exists
            self.out.append(alt)
        for key in sorted(mixed):
            self.emit(Kind.UNKNOWN, node.test, Act(calls.BLANK, whose=frozenset({key})))

    def under_none_check(self, node: ast.If, present: bool) -> None:
        """A gradient that is None has nothing to clear: only the other arm counts."""
        unguarded, self.unguarded = self.unguarded, False
        body, other = (node.body, node.orelse) if present else (node.orelse, node.body)
        self.statements(body)
        del other  # nothing in it can touch a gradient that is not there
        self.unguarded = unguarded if present else False

    in_parameters = False

    def merge(self, other: dict[str, Value], other_leaves: bool, this_leaves: bool) -> set[str]:
        """Joins the variables of two arms, of which one that leaves does not count.

        Gives back the keys of optimizers that are one or another object from here on.
        """
        if other_leaves:
            return set()
        if this_leaves:
            self.frame.env = other
            return set()
        env = self.frame.env
        mixed = set()
        for name in set(env) | set(other):
            pair = [values[name] for values in (other, env) if name in values]
            if len(pair) == 1 or pair[0] == pair[1]:
                env[name] = pair[0]
                continue
            env[name] = joined = join(pair)
            if isinstance(joined, Thing) and any(map(self.is_optimizer, pair)):
                mixed.add(joined.key)
        return mixed

    def is_optimizer(self, value: Value) -> bool:
        """Whether an object is known to be an optimizer."""
        return isinstance(value, Thing) and self.roles.get(value.key, value.role) == OPTIMIZER

    def do_Match(self, node: ast.Match) -> None:
        self.value(node.subject)
        flow: Flow = EMPTY
        before = dict(self.frame.env)
        for index, case in enumerate(reversed(node.cases)):
            self.frame.env = dict(before)
            body = self.collect(case.body)
            text = f"{text_of(node.subject)} matches {ast.unparse(case.pattern)}"
            wild = isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None
            if wild and case.guard is None and index == 0:
                flow = body
                continue
            test = Opaque(self.frame.prefix + text, self.reads(node.subject))
            flow = Alt(test, body, flow, self.site(case.pattern))
        self.out.append(flow)

    def do_While(self, node: ast.While) -> None:
        self.value(node.test)
        test = conditions.expression(self, node.test)
        forever = isinstance(test, Const) and bool(test.value)
        self.loop(node, frozenset(), None, None if isinstance(test, Const) else test, forever)

    def do_For(self, node: ast.For) -> None:
        self.iterate(node.target, node.iter, node)

    do_AsyncFor = do_For

    def iterate(
        self, target: ast.expr, iterable: ast.expr, node: ast.For | ast.AsyncFor | ast.comprehension
    ) -> None:
        """A loop over known items is written out; one over parameters is one act for all of them."""
        plain = _stripped(iterable)
        value = self.value(plain)
        items = self.items(value)
        if items is not None:
            self.written_out(target, items, node)
            return
        element = self.element(value, plain)
        if element is not None:
            outer, self.in_parameters = self.in_parameters, True
            self.written_out(target, [element], node)
            self.in_parameters = outer
            return
        if isinstance(node, (ast.For, ast.AsyncFor)):
            counter, first, trips, over = self.counting(target, plain)
            targets = frozenset(self.bind_targets(target, value, plain))
            if trips == Const(1):
                self.written_out(target, [Tensor()], node)
                return
            self.loop(node, targets, counter, None, False, first, trips, over)
            return
        list(self.bind_targets(target, value, plain))

    def items(self, value: Value) -> list[Value] | None:
        """The items of a short collection of objects, to be gone through one by one."""
        if isinstance(value, Many) and 0 < len(value.items) <= 8:
            if any(_is_object(item) for item in value.items):
                return list(value.items)
        if isinstance(value, Table) and 0 < len(value.items) <= 8:
            keys: list[Value] = [
                Lit(key) if isinstance(key, (str, int)) else NOTHING for key, _ in value.items
            ]
            return keys
        return None

    def element(self, value: Value, node: ast.expr) -> Value | None:
        """One parameter, group or optimizer that stands for all of a collection."""
        if isinstance(value, Params):
            return value
        if isinstance(value, Many) and value.items and isinstance(value.items[-1], Params):
            return value
        if isinstance(value, Thing):
            text = text_of(node)
            if "optim" in text.lower() or text.lower().endswith(("opts", "opt")):
                return Thing(value.key + "[*]", self.role(value, node))
        return None

    def written_out(
        self, target: ast.expr, items: list[Value], node: ast.For | ast.AsyncFor | ast.comprehension
    ) -> None:
        if not isinstance(node, (ast.For, ast.AsyncFor)):
            self.store(target, items[0] if items else NOTHING, None, target)
            return
        self.count += 1
        label = self.count
        outer = self.loops[-1]
        rounds: list[Flow] = []
        for item in items:
            self.store(target, item, None, node)
            # break and continue belong to this loop, events to the one around it.
            body = _relabelled(self.collect(node.body), outer, label)
            rounds.append(Block(body, f"continue:{label}"))
        self.out.append(Block(Seq(tuple(rounds)), f"break:{label}"))
        self.statements(node.orelse)

    def counting(
        self, target: ast.expr, iterable: ast.expr
    ) -> tuple[str | None, Expr, Expr | None, str]:
        """The counter of a loop, where it starts, how often it runs, and over what."""
        first: Expr = Const(0)
        if not isinstance(iterable, ast.Call):
            return None, first, None, text_of(iterable)
        name = text_of(iterable.func).rsplit(".", 1)[-1]
        if name == "enumerate" and iterable.args and isinstance(target, ast.Tuple):
            start = [kw.value for kw in iterable.keywords if kw.arg == "start"] + iterable.args[1:2]
            if start:
                first = conditions.expression(self, start[0])
            over = text_of(_stripped(iterable.args[0]))
            return self.variable(target.elts[0]), first, None, over
        if name in ("range", "trange") and iterable.args and isinstance(target, ast.Name):
            bounds = [conditions.expression(self, arg) for arg in iterable.args]
            if len(bounds) > 1:
                first = bounds[0]
            trips: Expr = bounds[0] if len(bounds) == 1 else Op("-", (bounds[1], bounds[0]))
            return self.variable(target), first, trips, ""
        return None, first, None, text_of(iterable)

    def bind_targets(self, target: ast.expr, value: Value, iterable: ast.expr) -> Iterator[str]:
        """Gives the targets of a loop values of which nothing is known but that they are data."""
        for node in ast.walk(target):
            if isinstance(node, ast.Name):
                self.frame.env[node.id] = Tensor()
                variable = self.variable(node)
                if variable:
                    yield variable

    def loop(
        self,
        node: ast.For | ast.AsyncFor | ast.While,
        targets: frozenset[str],
        counter: str | None,
        test: Expr | None,
        forever: bool,
        first: Expr = Const(0),
        trips: Expr | None = None,
        over: str = "",
    ) -> None:
        self.count += 1
        ident = self.count
        for name in assigned_names(node):
            if isinstance(self.frame.env.get(name), Lit):
                self.frame.env[name] = NOTHING
        self.idle[ident] = (self.frame.module.path, node)
        before = dict(self.frame.env)
        self.loops.append(ident)
        outer = set(self.targets)
        self.targets |= targets
        try:
            body = self.collect(node.body)
            once = self.goes_through_objects(targets, node)
        finally:
            self.targets = outer
            self.loops.pop()
        for name, value in before.items():
            self.frame.env.setdefault(name, value)
        orelse = self.collect(node.orelse) if node.orelse else None
        if once:
            body = relooped(body, ident, self.loops[-1])
            self.out.append(Block(Block(body, f"continue:{ident}"), f"break:{ident}"))
            return
        self.out.append(
            Loop(
                body,
                ident,
                self.site(node),
                targets,
                counter,
                first,
                trips,
                test,
                forever,
                orelse,
                over=over,
            )
        )

    def goes_through_objects(self, targets: frozenset[str], node: ast.AST) -> bool:
        """Whether a loop meets another model or optimizer in every iteration.

        What it does then happens once to each, not again and again to one.
        """
        if any(self.shifting.pop(name, None) for name in targets):
            return True
        if not isinstance(node, (ast.For, ast.AsyncFor)):
            return False
        bound = {n.id for n in ast.walk(node.target) if isinstance(n, ast.Name)}
        return any(
            text.split(".")[0] in bound and methods & names.HELD_METHODS
            for text, methods in self.frame.module.methods.items()
        )

    def do_With(self, node: ast.With) -> None:
        no_grad, frozen = self.no_grad, self.accumulating
        after: list[Act] = []
        for item in node.items:
            calls.open_context(self, item, after)
        self.statements(node.body)
        self.no_grad, self.accumulating = no_grad, frozen
        self.out.extend(after)

    do_AsyncWith = do_With

    def do_Try(self, node: ast.Try) -> None:
        body = self.collect(node.body)
        env = dict(self.frame.env)
        handlers = [self.collect(handler.body) for handler in node.handlers]
        self.frame.env = env
        orelse = self.collect(node.orelse)
        final = self.collect(node.finalbody)
        self.out.append(Try(body, handlers, orelse, final, self.site(node)))

    do_TryStar = do_Try

    # Storing

    def store(
        self,
        target: ast.expr,
        value: Value,
        source: ast.expr | None,
        node: ast.AST,
        augmented: bool = False,
    ) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            self.unpack(target, value, node)
            return
        if isinstance(target, ast.Starred):
            self.store(target.value, NOTHING, None, node)
            return
        if isinstance(target, ast.Attribute) and target.attr in ("grad", "data", "requires_grad"):
            calls.store_attribute(self, target, value, source, node)
            return
        if isinstance(target, ast.Subscript):
            self.store_item(target, value)
            return
        variable = self.variable(target) if self.is_tested(target) else None
        if variable is not None:
            expr = conditions.expression(self, source) if source is not None else None
            if isinstance(expr, Opaque) and not expr.text.rpartition("#")[2].startswith("len("):
                expr = Const("an object") if _is_something(source) else None
            self.out.append(Set(variable, expr))
        value = self.as_used(target, value, source)
        if isinstance(target, ast.Name):
            self.frame.env[target.id] = value
        elif isinstance(target, ast.Attribute):
            owner = self.peek(target.value)
            if isinstance(owner, Thing):
                self.heap[(owner.key, target.attr)] = self.renamed(
                    value, f"{owner.key}.{target.attr}"
                )
            if not (isinstance(owner, Thing) and owner.key == "self"):
                self.hand_on(value)

    def is_tested(self, target: ast.expr) -> bool:
        """Whether some test may depend on what is stored here."""
        if isinstance(target, ast.Name):
            return target.id in self.frame.module.tested
        return isinstance(target, ast.Attribute) and target.attr in self.frame.module.tested

    def as_used(self, target: ast.expr, value: Value, source: ast.expr | None) -> Value:
        """What an unseen call gave back is an object if the file uses it as one."""
        if not isinstance(value, Tensor) or not isinstance(target, (ast.Name, ast.Attribute)):
            return value
        text = text_of(target)
        methods = self.frame.module.methods.get(text, frozenset())
        role = self.used_as(target)
        if not role and not methods & names.OBJECT_METHODS:
            return value
        if role == OPTIMIZER and isinstance(source, ast.Call):
            given = [self.peek(arg) for arg in source.args]
            keys = [item.keys for item in given if isinstance(item, Params)]
            params = frozenset().union(*keys) if len(keys) == 1 else None
            return self.met(target, Thing(self.variable(target) or text, role, params))
        return self.met(target, Thing(self.variable(target) or text, role))

    def met(self, node: ast.AST, thing: Thing) -> Thing:
        """An object from unseen hands: nothing is known of its gradients, each time anew."""
        if not self.quiet:
            self.emit(Kind.UNKNOWN, node, Act(calls.BLANK, whose=frozenset({thing.key})))
        return thing

    def used_as(self, node: ast.expr) -> str:
        """The role in which the file uses a name, whatever it was given."""
        text = text_of(node)
        methods = self.frame.module.methods.get(text, frozenset())
        return names.role_of_use(text, methods) if methods else ""

    def renamed(self, value: Value, key: str) -> Value:
        """A value of no known role is called by the attribute that holds it."""
        if isinstance(value, Tensor) and not value.roots:
            return Thing(key) if value == NOTHING else value
        return value

    def store_item(self, target: ast.Subscript, value: Value) -> None:
        self.value(target.slice)
        holder = self.peek(target.value)
        key = self.peek(target.slice)
        if (
            isinstance(target.value, ast.Name)
            and isinstance(holder, Table)
            and isinstance(key, Lit)
        ):
            kept = tuple(item for item in holder.items if item[0] != key.value)
            self.frame.env[target.value.id] = Table((*kept, (key.value, value)))
        elif isinstance(holder, Thing) and isinstance(key, Lit):
            self.heap[(holder.key, f"[{key.value!r}]")] = value

    def unpack(self, target: ast.Tuple | ast.List, value: Value, node: ast.AST) -> None:
        for index, item in enumerate(target.elts):
            if isinstance(value, Many) and len(value.items) == len(target.elts):
                part: Value = value.items[index]
            elif isinstance(value, Many) and value.items and isinstance(value.items[-1], Params):
                part = value.items[-1]
            elif isinstance(value, Thing):
                text = text_of(item)
                methods = self.frame.module.methods.get(text, frozenset())
                role = names.role_of_use(text, methods) if value.role else ""
                part = Thing(f"{value.key}[{index}]", role)
            elif isinstance(value, Params):
                part = value
            else:
                part = value if isinstance(value, Tensor) else NOTHING
            self.store(item, part, None, node)

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

    # Names

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

    def reads(self, node: ast.expr) -> frozenset[str]:
        found = (
            self.variable(inner)
            for inner in ast.walk(node)
            if isinstance(inner, (ast.Name, ast.Attribute))
        )
        return frozenset(name for name in found if name)

    def alias(self, variable: str) -> str:
        return variable

    def reassigned(self, variable: str) -> bool:
        return False

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
        return Origin(names.USUAL[name]) if name in names.USUAL else Thing(name)

    def imported(self, module: Module, dotted: str, depth: int = 0) -> Value:
        found = self.project.resolve(module, dotted) if depth < 4 else None
        if found is None:
            return Origin(dotted.lstrip("."))
        inner, rest = found
        if not rest:
            return Origin(dotted.lstrip(".")) if inner is None else Origin(f"module:{inner.path}")
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
            return _called(value, name)
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
            role = calls.role_of_class(self, thing.klass)
        if not role and node is not None and thing.klass is None:
            text = text_of(node)
            role = names.role_of_use(text, self.frame.module.methods.get(text, frozenset()))
        if role:
            self.roles[thing.key] = role
        return role

    # Attributes

    def attribute(self, owner: Value, attr: str) -> Value:
        if isinstance(owner, Thing):
            return self.thing_attribute(owner, attr)
        if isinstance(owner, Params):
            return Grad(owner.keys, owner.some) if attr == "grad" else owner
        if isinstance(owner, Grad):
            return owner
        if isinstance(owner, Tensor):
            if attr == "grad":
                return Grad(frozenset({"@result"}))
            return Tensor() if attr in names.CUT else owner
        if isinstance(owner, Origin):
            if owner.name.startswith("module:"):
                return self.module_attribute(owner.name[7:], attr)
            return Origin(f"{owner.name}.{attr}")
        if isinstance(owner, Klass):
            method = method_of(owner.node, attr)
            if method is not None:
                return Fn(method, owner.module, attr, None, None, owner)
        return NOTHING

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

    def thing_attribute(self, owner: Thing, attr: str) -> Value:
        if (owner.key, attr) in self.heap:
            return self.heap[(owner.key, attr)]
        if attr in ("zero_grad", "step") and owner.klass is None:
            return Bound(owner, attr)
        if attr == "grad":
            return Grad(frozenset({owner.key}), leaf=True)
        if attr in ("module", "data", "_orig_mod"):
            return owner
        if attr == "param_groups":
            return Params(frozenset({owner.key}))
        if owner.klass is not None:
            found = self.class_attribute(owner, owner.klass, attr)
            if found is not None:
                return found
        return Thing(f"{owner.key}.{attr}")

    def holds(self, owner: Thing, attr: str) -> bool:
        """Whether an object is seen to keep something under this name."""
        return (owner.key, attr) in self.heap

    def class_attribute(self, owner: Thing, klass: Klass, attr: str) -> Value | None:
        """What the methods of a class assign to an attribute, seen from outside its constructor."""
        mark = (owner.key, attr)
        if mark in self.evaluating:
            return None
        self.evaluating.add(mark)
        try:
            for base in self.lineage(klass):
                method = method_of(base.node, attr)
                if method is not None:
                    if any(text_of(d).endswith("property") for d in method.decorator_list):
                        return self.property_value(owner, base, method)
                    return Fn(method, base.module, attr, owner, None, base)
                value = self.assigned_attribute(owner, base, attr)
                if value is not None:
                    self.heap[(owner.key, attr)] = value
                    return value
        finally:
            self.evaluating.discard(mark)
        return None

    def property_value(self, owner: Thing, klass: Klass, method: Function) -> Value | None:
        returns = klass.module.facts[method].returns
        if len(returns) != 1 or not method.args.args:
            return None
        frame = self.frame
        self.frame = Frame(
            klass.module, env={method.args.args[0].arg: owner}, klass=klass, owner=owner
        )
        try:
            return self.peek(returns[0])
        finally:
            self.frame = frame

    def assigned_attribute(self, owner: Thing, klass: Klass, attr: str) -> Value | None:
        values: list[Value] = []
        for method, node, index in klass.module.attributes_of(klass.node).get(attr, ()):
            if method is None:
                values.append(self.peek(node))
            else:
                values.append(self.attribute_value(owner, klass, method, node, index))
        values = [value for value in values if value != Lit(None)] or values
        if not values:
            return None
        ranked = sorted(values, key=lambda value: not (isinstance(value, Thing) and value.role))
        key = f"{owner.key}.{attr}"
        if isinstance(ranked[0], Tensor):
            methods = klass.module.methods.get(f"self.{attr}", frozenset())
            role = names.role_of_use(f"self.{attr}", methods) if methods else ""
            if role or methods & names.OBJECT_METHODS:
                return Thing(key, role)
        if isinstance(ranked[0], Lit) and len(values) > 1:
            return Thing(key)
        return _called(ranked[0], key)

    def attribute_value(
        self, owner: Thing, klass: Klass, method: Function, node: ast.expr, index: int | None
    ) -> Value:
        frame = self.frame
        env: dict[str, Value] = {arg.arg: NOTHING for arg in _parameters(method)}
        env[method.args.args[0].arg] = owner
        env.update(self.kept_arguments(owner, klass, method))
        self.frame = Frame(klass.module, prefix=f"{owner.key}.", env=env, klass=klass, owner=owner)
        self.locals_before(klass, method, node)
        try:
            value = self.peek(node)
        finally:
            self.frame = frame
        if index is not None:
            return (
                value.items[index]
                if isinstance(value, Many) and index < len(value.items)
                else NOTHING
            )
        return value

    def kept_arguments(self, owner: Thing, klass: Klass, method: Function) -> dict[str, Value]:
        """Arguments that a method stores are known by the attribute that holds them."""
        me = method.args.args[0].arg
        formal = {arg.arg for arg in _parameters(method)}
        kept: dict[str, Value] = {}
        for node in klass.module.facts[method].assigns:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(node.value, ast.Name) and node.value.id in formal:
                if isinstance(target, ast.Attribute) and text_of(target.value) == me:
                    kept[node.value.id] = Thing(f"{owner.key}.{target.attr}")
        return kept

    def locals_before(self, klass: Klass, method: Function, node: ast.expr) -> None:
        """Simple local variables that an attribute's value is built from."""
        wanted = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
        for statement in klass.module.facts[method].assigns:
            target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
            if isinstance(target, ast.Name) and target.id in wanted and statement.value is not None:
                if statement.lineno < node.lineno:
                    self.frame.env[target.id] = self.peek(statement.value)

    def lineage(self, klass: Klass, depth: int = 0) -> list[Klass]:
        """The class and its visible bases, nearest first."""
        classes = [klass]
        if depth > 5:
            return classes
        frame, self.frame = self.frame, Frame(klass.module)
        try:
            for base in klass.node.bases:
                value = self.peek(base) if isinstance(base, (ast.Name, ast.Attribute)) else NOTHING
                if isinstance(value, Klass) and value.node is not klass.node:
                    classes += self.lineage(value, depth + 1)
        finally:
            self.frame = frame
        return classes

    def whole(self, klass: Klass) -> bool:
        """Whether all bases of a class are visible, or known to leave gradients alone."""
        for part in self.lineage(klass):
            frame, self.frame = self.frame, Frame(part.module)
            try:
                for base in part.node.bases:
                    value = (
                        self.peek(base) if isinstance(base, (ast.Name, ast.Attribute)) else NOTHING
                    )
                    if isinstance(value, Klass):
                        continue
                    if text_of(base).rsplit(".", 1)[-1] not in _PLAIN_BASES:
                        return False
            finally:
                self.frame = frame
        return True

    # Calls

    def enter(self, fn: Fn, values: dict[str, Value], aliases: dict[str, str]) -> Value:
        """Runs through a function's body in a frame of its own; gives back what it returns."""
        self.count += 1
        node = fn.node
        caller = self.frame
        prefix = "" if caller is self.top and not self.stack and not self.out else f"{self.count}#"
        frame = Frame(
            fn.module,
            prefix,
            fn.frame,
            dict(values),
            aliases,
            self.locals_of(fn) | frozenset(values),
            fn.owner,
            fn.klass,
            label=f"return:{self.count}",
        )
        for name in self.locals_of(fn):
            frame.aliases.pop(name, None)
        self.frame = frame
        self.stack.append(node)
        self.inlined.add(node)
        state = (self.in_parameters, self.some, self.unguarded, self.no_grad)
        self.in_parameters, self.some, self.unguarded = False, False, True
        if not isinstance(node, ast.Lambda) and any(
            text_of(d).rstrip("()").endswith(("no_grad", "inference_mode"))
            for d in node.decorator_list
        ):
            self.no_grad += 1
        try:
            if isinstance(node, ast.Lambda):
                return self.value(node.body)
            for name, value in values.items():
                if isinstance(value, Lit):
                    self.out.append(Set(frame.prefix + name, Const(value.value)))
            body = self.collect(node.body)
            self.out.append(Block(body, frame.label))
            return join(frame.returns) if frame.returns else Lit(None)
        finally:
            self.in_parameters, self.some, self.unguarded, self.no_grad = state
            self.stack.pop()
            self.frame = caller

    def returned(self, fn: Fn, owner: Thing) -> Value:
        """What a method gives back, without its effects."""
        if fn.node in self.stack or not fn.node.args.args:
            return NOTHING
        out, self.out = self.out, []
        acts = self.acts
        self.quiet += 1
        try:
            return self.enter(fn, {fn.node.args.args[0].arg: owner}, {})
        finally:
            self.out, self.acts = out, acts
            self.quiet -= 1

    def locals_of(self, fn: Fn) -> frozenset[str]:
        return frozenset(fn.module.facts[fn.node].assigned)

    def relevant(self, fn: Fn) -> bool:
        """Whether a function, or one it calls, does anything to gradients."""
        return self.reaches(fn, "mentions", 0)

    def reaches(self, fn: Fn, what: str, depth: int) -> bool:
        """Whether a fact holds for a function or for one that it calls."""
        known = fn.module.reached.get((fn.node, what))
        if known is None:
            if time.monotonic() > self.deadline:
                raise Cut
            fn.module.reached[(fn.node, what)] = False
            known = getattr(fn.module.facts[fn.node], what) or (
                depth < 6 and any(self.reaches(inner, what, deep) for inner, deep in self.callees(fn, depth))
            )
            fn.module.reached[(fn.node, what)] = known
        return known

    def callees(self, fn: Fn, depth: int) -> Iterator[tuple[Fn, int]]:
        """Functions that a function may call, and how deep they are to be looked for."""
        module = fn.module
        for name in module.facts[fn.node].calls:
            head, _, last = name.rpartition(".")
            for klass, method in module.methods_named(last):
                yield Fn(method, module, last, None, None, Klass(klass, module)), depth + 1
            first = (head or last).split(".")[0]
            if first in module.imports or (not head and last in module.functions):
                value = self.global_name(module, first)
                if isinstance(value, Origin) and value.name.startswith("module:"):
                    value = self.attribute(value, last)
                if isinstance(value, Fn):
                    yield value, depth + 2
                elif isinstance(value, Klass):
                    yield from ((method, depth + 2) for method in _methods(value))
        for base in self.lineage(fn.klass)[1:] if fn.klass is not None and depth < 3 else ():
            yield from ((method, depth + 1) for method in _methods(base))

    # Expressions

    def value(self, node: ast.expr) -> Value:
        """The value of an expression; its acts are emitted in order of evaluation."""
        handler = getattr(self, f"of_{type(node).__name__}", None)
        if handler is not None:
            result: Value = handler(node)
            return result
        parts = [
            self.value(child) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)
        ]
        return mix(parts)

    def of_Constant(self, node: ast.Constant) -> Value:
        value = node.value
        return Lit(value) if isinstance(value, (bool, int, float, str, type(None))) else NOTHING

    def of_Name(self, node: ast.Name) -> Value:
        return self.lookup(node.id)

    def of_Attribute(self, node: ast.Attribute) -> Value:
        return self.attribute(self.value(node.value), node.attr)

    def of_Call(self, node: ast.Call) -> Value:
        return calls.call(self, node)

    def of_Tuple(self, node: ast.Tuple | ast.List) -> Value:
        items: list[Value] = []
        for item in node.elts:
            if isinstance(item, ast.Starred):
                value = self.value(item.value)
                if isinstance(value, Many):
                    items += value.items
                else:
                    items.append(value)
            else:
                items.append(self.value(item))
        if items and all(isinstance(item, Params) for item in items):
            keys = frozenset().union(*(item.keys for item in items if isinstance(item, Params)))
            return Params(keys)
        return Many(tuple(items))

    of_List = of_Tuple

    def of_Dict(self, node: ast.Dict) -> Value:
        items: list[tuple[object, Value]] = []
        for key, item in zip(node.keys, node.values, strict=True):
            value = self.value(item)
            name = self.value(key) if key is not None else NOTHING
            items.append((name.value if isinstance(name, Lit) else "?", value))
        return Table(tuple(items))

    def of_Subscript(self, node: ast.Subscript) -> Value:
        owner, key = self.value(node.value), self.value(node.slice)
        if isinstance(owner, Many):
            if (
                isinstance(key, Lit)
                and isinstance(key.value, int)
                and -len(owner.items) <= key.value < len(owner.items)
            ):
                return owner.items[key.value]
            objects = [item for item in owner.items if _is_object(item)]
            return (
                objects[0]
                if len(objects) == 1
                else (mix(list(owner.items)) if not objects else NOTHING)
            )
        if isinstance(owner, Table):
            for name, value in owner.items:
                if isinstance(key, Lit) and name == key.value:
                    return value
            return NOTHING
        if isinstance(owner, Thing):
            text = repr(key.value) if isinstance(key, Lit) else text_of(node.slice)
            held = self.heap.get((owner.key, f"[{text}]"))
            if held is None and not isinstance(key, Lit):
                self.note_shifting(node.slice, f"{owner.key}[{text}]")
            return self.item(owner, text)
        if isinstance(owner, (Params, Grad, Tensor)):
            return owner
        return NOTHING

    def item(self, owner: Thing, text: str) -> Value:
        """What a collection holds under a key or index."""
        held = self.heap.get((owner.key, f"[{text}]"))
        return held if held is not None else Thing(f"{owner.key}[{text}]", owner.role)

    def note_shifting(self, index: ast.expr, key: str) -> None:
        """An item whose index changes is another object in every iteration of that loop."""
        for name in self.reads(index) & self.targets:
            self.shifting.setdefault(name, set()).add(key)

    def of_BinOp(self, node: ast.BinOp) -> Value:
        return self.arithmetic(node, self.value(node.left), self.value(node.right))

    def arithmetic(self, node: ast.BinOp, left: Value, right: Value) -> Value:
        if isinstance(left, Params) and isinstance(right, Params):
            return Params(left.keys | right.keys)
        if isinstance(left, Many) and isinstance(right, Many):
            return Many(left.items + right.items)
        if isinstance(left, Many) and isinstance(right, Params):
            return right
        if isinstance(left, Lit) and isinstance(right, Lit):
            return NOTHING
        result = mix([left, right])
        if self.no_grad:
            result = replace(result, roots=frozenset(), maybe=frozenset())
        if isinstance(node.op, ast.Div) and not isinstance(left, Lit):
            return replace(result, divisor=conditions.expression(self, node.right), divided=True)
        if isinstance(node.op, ast.Mult):
            if not isinstance(left, Lit) and not isinstance(right, Lit):
                result = replace(result, divided=None)
            for side in (node.left, node.right):
                if isinstance(side, ast.BinOp) and isinstance(side.op, ast.Div):
                    if isinstance(side.left, ast.Constant) and side.left.value in (1, 1.0):
                        divisor = conditions.expression(self, side.right)
                        return replace(result, divisor=divisor, divided=True)
        return result

    def of_IfExp(self, node: ast.IfExp) -> Value:
        self.value(node.test)
        out, self.out = self.out, []
        then = self.value(node.body)
        flow_then, self.out = self.out, []
        orelse = self.value(node.orelse)
        flow_else, self.out = self.out, out
        if flow_then or flow_else:
            test = conditions.expression(self, node.test)
            arms = Seq(tuple(flow_then)), Seq(tuple(flow_else))
            self.out.append(Alt(test, *arms, self.site(node.test)))
        return join([then, orelse])

    def of_BoolOp(self, node: ast.BoolOp) -> Value:
        return join([self.value(value) for value in node.values])

    def of_Lambda(self, node: ast.Lambda) -> Value:
        return Fn(node, self.frame.module, "lambda", None, self.frame)

    def of_NamedExpr(self, node: ast.NamedExpr) -> Value:
        value = self.value(node.value)
        self.store(node.target, value, node.value, node)
        return value

    def of_Await(self, node: ast.Await) -> Value:
        return self.value(node.value)

    def of_Starred(self, node: ast.Starred) -> Value:
        return self.value(node.value)

    def of_ListComp(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp) -> Value:
        env = dict(self.frame.env)
        try:
            known = self.comprehended(node)
            if known is not None:
                return known
            for part in node.generators:
                self.iterate(part.target, part.iter, part)
                for test in part.ifs:
                    self.value(test)
            value = self.repeated(node)
            if isinstance(value, (Params, Grad)):
                return value
            if isinstance(value, Tensor):
                return value
            return Many((value,)) if isinstance(value, Table) else NOTHING
        finally:
            self.frame.env = env

    def repeated(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp) -> Value:
        """The item of a comprehension; what it does is done in a loop."""
        self.count += 1
        self.loops.append(self.count)
        out, self.out = self.out, []
        try:
            return self.value(node.elt)
        finally:
            body, self.out = self.out, out
            ident = self.loops.pop()
            if any(isinstance(part, Act) for part in walk(Seq(body))):
                self.out.append(Loop(Seq(body), ident, self.site(node)))

    of_GeneratorExp = of_ListComp
    of_SetComp = of_ListComp

    def comprehended(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp) -> Value | None:
        """A comprehension over known objects, item by item."""
        if len(node.generators) != 1:
            return None
        part = node.generators[0]
        items = self.items(self.peek(part.iter))
        if items is None:
            return None
        values = []
        for item in items:
            self.store(part.target, item, None, part.target)
            values.append(self.value(node.elt))
        if values and all(isinstance(value, Params) for value in values):
            return Params(frozenset().union(*(v.keys for v in values if isinstance(v, Params))))
        return Many(tuple(values))

    def of_DictComp(self, node: ast.DictComp) -> Value:
        env = dict(self.frame.env)
        for part in node.generators:
            self.iterate(part.target, part.iter, part)
        self.value(node.value)
        self.frame.env = env
        return NOTHING


_BUILTINS = frozenset(dir(__builtins__) if not isinstance(__builtins__, dict) else __builtins__)
_PLAIN_BASES = frozenset(
    {"object", "ABC", "Module", "Generic", "Protocol", "NamedTuple", "Enum", "Exception"}
)


def leaves(flow: Flow) -> bool:
    """Whether control never comes out at the end."""
    if isinstance(flow, Jump):
        return True
    if isinstance(flow, Seq):
        return any(leaves(item) for item in flow.items)
    if isinstance(flow, Alt):
        return leaves(flow.then) and leaves(flow.orelse)
    return False


def _does_something(flow: Flow) -> bool:
    return not isinstance(flow, Seq) or bool(flow.items)


def _methods(klass: Klass) -> Iterator[Fn]:
    for node in klass.node.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield Fn(node, klass.module, node.name, None, None, klass)


def _is_object(value: Value) -> bool:
    return isinstance(value, (Thing, Many, Params, Fn, Klass, Table))


def _called(value: Value, key: str) -> Value:
    """The value under the name that holds it."""
    if isinstance(value, Thing):
        return replace(value, key=key, made=False) if value.made else value
    if isinstance(value, Many):
        items = enumerate(value.items)
        return Many(tuple(_called(item, f"{key}[{index}]") for index, item in items))
    if isinstance(value, Table):
        return Table(tuple((name, _called(item, f"{key}[{name!r}]")) for name, item in value.items))
    if isinstance(value, (Params, Klass, Fn, Origin)):
        return value
    if isinstance(value, Lit) or (isinstance(value, Tensor) and value.roots):
        return value
    return Thing(key)


def _parameters(node: Function | ast.Lambda) -> list[ast.arg]:
    args = node.args
    extra = [arg for arg in (args.vararg, args.kwarg) if arg is not None]
    return [*args.posonlyargs, *args.args, *args.kwonlyargs, *extra]


def _asks_requires_grad(node: ast.expr) -> bool:
    return any(isinstance(n, ast.Attribute) and n.attr == "requires_grad" for n in ast.walk(node))


def _loaded(node: ast.expr) -> ast.expr:
    if isinstance(node, ast.Name):
        return ast.copy_location(ast.Name(node.id, ast.Load()), node)
    if isinstance(node, ast.Attribute):
        return ast.copy_location(ast.Attribute(node.value, node.attr, ast.Load()), node)
    return node


def _stripped(node: ast.expr) -> ast.expr:
    """An iterable without its progress bar: `tqdm(x)`, `enumerate(tqdm(x))` stay what they are."""
    if isinstance(node, ast.Call) and node.args:
        name = text_of(node.func).rsplit(".", 1)[-1]
        if name in (
            "tqdm",
            "track",
            "tqdm_notebook",
            "ProgressBar",
            "iter",
            "list",
            "tuple",
            "reversed",
        ):
            return _stripped(node.args[0])
    return node


def _relabelled(flow: Flow, loop: int, label: int) -> Flow:
    """Jumps of a written-out loop lead to its own blocks."""
    if isinstance(flow, Jump):
        for kind in ("break", "continue"):
            if flow.label == f"{kind}:{loop}":
                return Jump(f"{kind}:{label}")
        return flow
    if isinstance(flow, Seq):
        return Seq(tuple(_relabelled(item, loop, label) for item in flow.items))
    if isinstance(flow, Alt):
        then, orelse = (_relabelled(arm, loop, label) for arm in (flow.then, flow.orelse))
        return replace(flow, then=then, orelse=orelse)
    if isinstance(flow, Block):
        return Block(_relabelled(flow.body, loop, label), flow.label)
    if isinstance(flow, Try):
        return replace(
            flow,
            body=_relabelled(flow.body, loop, label),
            handlers=[_relabelled(handler, loop, label) for handler in flow.handlers],
            orelse=_relabelled(flow.orelse, loop, label),
            final=_relabelled(flow.final, loop, label),
        )
    return flow


def _is_something(node: ast.expr | None) -> bool:
    """Whether an expression cannot be None."""
    if isinstance(node, ast.Call):
        name = text_of(node.func).rsplit(".", 1)[-1]
        return name[:1].isupper() or (name in ("set", "list", "tuple", "dict") and bool(node.args))
    return isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.JoinedStr))
