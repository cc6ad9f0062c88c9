"""Loops and comprehensions: over data they repeat, over parameters and known objects they are unrolled."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from zerograd.core.records import dataclass
from zerograd.core.training_loop import NotFollowed
from zerograd.explore.flow import (
    Alt,
    Block,
    Break,
    Continue,
    Flow,
    Loop,
    Seq,
    Set,
    find,
    relabelled,
    relooped,
)
from zerograd.explore.logic import Const, Expr, LastIteration, Op, Opaque, Variable, WindowLength
from zerograd.static.frameworks.table import Role
from zerograd.static.frameworks.torch import SCHEDULER
from zerograd.static.interp.assignments import Assignments
from zerograd.static.interp.conditions import Conditions
from zerograd.static.interp.effects import NOBODY
from zerograd.static.interp.emitter import Act, Emitter
from zerograd.static.interp.environment import Environment, Mode, Nesting
from zerograd.static.interp.evaluator import Evaluator, ExpressionHandlers, StatementHandlers
from zerograd.static.interp.names import BUILTINS
from zerograd.static.interp.objects import Objects
from zerograd.static.read import vocabulary
from zerograd.static.read.module import assigned_names
from zerograd.static.read.syntax_tree import (
    LOOPS,
    called_name,
    calls_in,
    first_name,
    nodes,
    stripped,
    text_of,
)
from zerograd.static.read.values import (
    NOTHING,
    Each,
    Fn,
    Grad,
    KnownDict,
    Lit,
    Many,
    Origin,
    Params,
    Tensor,
    Thing,
    Value,
    all_params,
    is_object,
    parts,
)

MOST_ITEMS = 8
"""Items of a collection that a loop is unrolled for."""

ForLoop = ast.For | ast.AsyncFor


@dataclass(eq=False)
class Loops:
    """Interprets loops."""

    env: Environment
    emitter: Emitter
    nesting: Nesting
    mode: Mode
    evaluator: Evaluator
    objects: Objects
    conditions: Conditions
    assignments: Assignments

    def handlers(self) -> StatementHandlers:
        """The method for each kind of loop."""
        return {
            ast.For: self.for_loop,
            ast.AsyncFor: self.for_loop,
            ast.While: self.while_loop,
        }

    def while_loop(self, node: ast.While) -> None:
        """`while test:`."""
        self.forget_literals(node)
        self.evaluator.value(node.test)
        test = self.conditions.expression(node.test)
        forever = isinstance(test, Const) and bool(test.value)
        self.loop(node, frozenset(), None, None if isinstance(test, Const) else test, forever)

    def for_loop(self, node: ForLoop) -> None:
        """`for target in iterable:`, unrolled over known items and over parameters."""
        iterable, value, items = self.iterated(node)
        if items is None and _are_keys(value) and _looks_up(node):
            items = list(parts(value))
        if items is not None:
            self.unrolled(node, self.distinct(node, iterable, items))
            return
        element = self.element(value, iterable) or self.elements(iterable)
        if element is not None:
            outer, self.mode.in_parameters = self.mode.in_parameters, True
            self.unrolled(node, [element])
            self.mode.in_parameters = outer
            return
        counter, first, trips = self.counting(node.target, iterable)
        targets = frozenset(self.bind_columns(node.target, iterable, value))
        cycled = self.cycled(node.target, iterable)
        if cycled is not None:
            self.emitter.add(Set(cycled.variable, Const(-1)))
            targets -= {cycled.variable}
        self.bind_objects(node, iterable, value)
        if SCHEDULER.search(text_of(iterable)):
            for name in assigned_names(node.target):
                self.env.frame.env[name] = Thing(self.env.frame.variable(name), Role.OTHER)
        if trips == Const(1):
            self.unrolled(node, [Tensor()])
            return
        alone = self.alone(iterable)
        if alone is None:
            self.loop(node, targets, counter, None, False, first, trips, cycled)
            return
        out = self.emitter.divert()
        self.loop(node, targets, counter, None, False, first, trips, cycled)
        flow = self.emitter.restore(out)
        self.emitter.add(Alt(alone, Seq([*map(_once, flow)]), Seq(flow), self.emitter.site(node)))

    def alone(self, iterable: ast.expr) -> Expr | None:
        """The test under which a loop runs once: `range(1 if test else n)`, or a variable that holds the number."""
        if not isinstance(iterable, ast.Call) or text_of(iterable.func) != "range":
            return None
        number = iterable.args[0] if len(iterable.args) == 1 else None
        if isinstance(number, ast.Name) and self.nesting.stack:
            facts = self.env.frame.module.facts.get(self.nesting.stack[-1])
            given = facts.locals.get(number.id, []) if facts is not None else []
            number = given[0][-1] if len(given) == 1 else None
        if not isinstance(number, ast.IfExp):
            return None
        test = self.conditions.expression(number.test)
        if isinstance(number.body, ast.Constant) and number.body.value == 1:
            return test
        if isinstance(number.orelse, ast.Constant) and number.orelse.value == 1:
            return Op("not", (test,))
        return None

    def bind(self, part: ast.comprehension) -> None:
        """Gives the targets of a comprehension what they hold in an iteration."""
        iterable, value, items = self.iterated(part)
        if items is None:
            element = self.element(value, iterable)
            items = [element] if element is not None else None
        if items is not None:
            self.assignments.store(part.target, items[0] if items else NOTHING, None, part.target)
        else:
            list(self.bind_data(part.target))

    def iterated(
        self, node: ForLoop | ast.comprehension
    ) -> tuple[ast.expr, Value, list[Value] | None]:
        """What a loop iterates over, without progress bars and aliases; its value and its items."""
        iterable = self.assignments.iterable_of(node.iter)
        value = self.evaluator.value(iterable)
        return iterable, value, items_of(value)

    def element(self, value: Value, node: ast.expr) -> Value | None:
        """One parameter, gradient, group or optimizer that represents all of a collection."""
        if isinstance(value, Params) or (isinstance(value, Grad) and not value.leaf):
            return value
        if isinstance(value, Each):
            return value.item
        role = Role.NONE
        named = False
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in ("values", "items") and not node.args:
                named = node.func.attr == "items"
                node = node.func.value
                value = Thing(self.env.key(node))
                role = Role.NONE if SCHEDULER.search(text_of(node)) else Role.OPTIMIZER
        if isinstance(value, Thing):
            text = text_of(node)
            if "optim" in text.lower() or text.lower().endswith(("opts", "opt")):
                item = Thing(value.key.any_item(), self.objects.role(value, node) or role)
                return Many((NOTHING, item)) if named else item
        return None

    def elements(self, node: ast.expr) -> Value | None:
        """The items of `zip` of several collections, one of which holds optimizers."""
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            return None
        if node.func.id == "enumerate" and node.args:
            inner = self.elements(node.args[0])
            return Many((NOTHING, inner)) if inner is not None else None
        if node.func.id != "zip":
            return None
        items = [self.element(self.evaluator.peek(arg), arg) for arg in node.args]
        if not any(isinstance(item, Thing) for item in items):
            return None
        return Many(tuple(item if item is not None else NOTHING for item in items))

    def distinct(self, node: ForLoop, iterable: ast.expr, items: list[Value]) -> list[Value]:
        """The items of a loop over optimizers or models; those that cannot be seen are different objects."""
        if not self.calls_held_methods({*assigned_names(node.target)}):
            return items
        if isinstance(iterable, ast.Call) and isinstance(iterable.func, ast.Attribute):
            iterable = iterable.func.value  # `optimizers.values()`
        key = self.env.key(iterable)
        return [
            Thing(key.item(str(index))) if isinstance(item, Tensor) else item
            for index, item in enumerate(items)
        ]

    def unrolled(self, node: ForLoop, items: list[Value]) -> None:
        """The body of a loop once for each item."""
        label = self.nesting.number()
        outer = self.nesting.loop
        rounds: list[Flow] = []
        collection, lengths = text_of(_collection(node)), self.nesting.read_lengths
        known = lengths.get(collection)
        lengths[collection] = len(items)
        for item in items:
            self.assignments.store(node.target, item, None, node)
            # break and continue belong to this loop, events to the one around it.
            body = relabelled(self.evaluator.collect(node.body), outer, label)
            rounds.append(Block(body, Continue(label)))
        lengths[collection] = known
        self.emitter.add(Block(Seq(tuple(rounds)), Break(label)))
        if any(isinstance(part, (ast.Break, ast.Continue)) for part in nodes(*node.body)):
            self.forget_literals(node)  # what an arm that leaves the loop has assigned counts too
        self.evaluator.run(node.orelse)

    def counting(
        self, target: ast.expr, iterable: ast.expr
    ) -> tuple[Variable | None, Expr, Expr | None]:
        """The counter of a loop, where it starts, and how often the loop runs."""
        first: Expr = Const(0)
        if not isinstance(iterable, ast.Call):
            return None, first, None
        name = called_name(iterable)
        if name == "enumerate" and iterable.args and isinstance(target, ast.Tuple):
            start = [kw.value for kw in iterable.keywords if kw.arg == "start"] + iterable.args[1:2]
            if start:
                first = self.conditions.expression(start[0])
            return self.env.name(target.elts[0]), first, self.micro_batches(iterable)
        if name in ("range", "trange") and iterable.args and isinstance(target, ast.Name):
            bounds = [self.conditions.expression(arg) for arg in iterable.args]
            if len(bounds) > 1:
                first = bounds[0]
            trips: Expr = bounds[0] if len(bounds) == 1 else Op("-", (bounds[1], bounds[0]))
            length = text_of(iterable.args[0])
            if isinstance(trips, Const) and trips.value != 1 and vocabulary.WINDOW.search(length):
                trips = WindowLength(text=length)  # whatever number it holds, it is N
            return self.env.name(target), first, trips
        if name in ("chunk", "tensor_split") and (count := _parts(iterable)) is not None:
            return None, first, self.conditions.expression(count)
        return None, first, self.micro_batches(iterable)

    def cycled(self, target: ast.expr, iterable: ast.expr) -> Set | None:
        """The next value of a count that begins anew: `for batch, i in zip(loader, cycle(range(n)))`."""
        if not isinstance(iterable, ast.Call) or not isinstance(target, ast.Tuple):
            return None
        if text_of(iterable.func) == "enumerate" and iterable.args and len(target.elts) == 2:
            return self.cycled(target.elts[1], iterable.args[0])
        pairs = zip(target.elts, iterable.args, strict=False)
        for one, given in pairs if text_of(iterable.func) == "zip" else ():
            variable, length = self.env.name(one), _length_of_cycle(given)
            if variable is not None and length is not None:
                goes_on = Op("+", (variable, Const(1)))
                return Set(variable, Op("%", (goes_on, self.conditions.expression(length))))
        return None

    def micro_batches(self, iterable: ast.expr) -> WindowLength | None:
        """The text for the number of parts into which a loop cuts a batch: by `x.split(n)`, or several at a time."""
        if isinstance(iterable, ast.Name):
            iterable = self.env.frame.iterables.get(iterable.id, iterable)
        if not isinstance(iterable, ast.Call):
            return None
        if text_of(iterable.func) in ("zip", "enumerate", "list"):
            return next(filter(None, map(self.micro_batches, iterable.args)), None)
        if _is_split(iterable):
            return WindowLength(text=f"micro-batches of {text_of(iterable)}")
        return None

    def bind_columns(
        self, target: ast.expr, iterable: ast.expr, value: Value
    ) -> Iterator[Variable]:
        """Gives the targets of a loop their data: each of `zip(…)` and `enumerate(…)` that of its own column."""
        called = text_of(iterable.func) if isinstance(iterable, ast.Call) else ""
        columns = iterable.args if isinstance(iterable, ast.Call) else []
        given: list[ast.expr | None] = [*columns] if called == "zip" else []
        if called == "enumerate" and columns:
            given = [None, columns[0]]
        if not isinstance(target, ast.Tuple) or not given or len(given) != len(target.elts):
            yield from self.bind_data(target, value)
            return
        for part, column in zip(target.elts, given, strict=True):
            if column is None:
                yield from self.bind_data(part)
            else:
                yield from self.bind_columns(part, column, self.evaluator.peek(column))

    def bind_data(self, target: ast.expr, value: Value = NOTHING) -> Iterator[Variable]:
        """Gives the targets of a loop unknown values that are data.

        What a module computes are tensors. Others may hold what a collection was made from:
        `for task in tasks_of(model)`.
        """
        held = Tensor()
        if isinstance(value, Tensor):
            held = value if value.calls else Tensor(maybe=value.roots | value.maybe)
        for node in ast.walk(target):
            if not isinstance(node, (ast.Name, ast.Attribute)) or isinstance(node.ctx, ast.Load):
                continue
            if isinstance(node, ast.Name):
                self.env.frame.env[node.id] = held
            variable = self.env.name(node)
            if variable is not None:
                yield variable

    def bind_objects(self, node: ForLoop, iterable: ast.expr, value: Value) -> None:
        """Makes the target of a loop over models or optimizers an item of the collection.

        So it is the same in all functions that go through the collection: one may clear, another step.
        """
        target = node.target
        if isinstance(iterable, ast.Call) and text_of(iterable.func) == "enumerate":
            if not (isinstance(target, ast.Tuple) and len(target.elts) == 2 and iterable.args):
                return
            target, iterable = target.elts[1], iterable.args[0]
            value = self.evaluator.peek(iterable)
        if isinstance(target, ast.Name) and self.calls_held_methods({target.id}):
            key = value.key if isinstance(value, Thing) else self.env.variable(iterable)
            if key is not None:
                self.env.frame.env[target.id] = Thing(key.any_item())

    def loop(
        self,
        node: ForLoop | ast.While,
        targets: frozenset[Variable],
        counter: Variable | None,
        test: Expr | None,
        forever: bool,
        first: Expr = Const(0),
        trips: Expr | None = None,
        cycled: Set | None = None,
    ) -> None:
        """A loop that repeats its body; `cycled` is a count that is advanced before it."""
        nesting, frame = self.nesting, self.env.frame
        ident = nesting.number()
        self.forget_literals(node)
        nesting.enter_loop(ident, node, frame)
        before = dict(frame.env)
        length = trips if trips is not None else self.length(node)
        begins = first.value if isinstance(first, Const) else None
        if counter and isinstance(begins, int) and isinstance(length, (Const, Variable, Opaque)):
            nesting.lengths[counter] = (ident, begins, length)
            targets |= {LastIteration(ident)}
        outer = set(nesting.targets)
        nesting.targets |= targets
        try:
            resumed = self.resumed(node)
            body = self.evaluator.collect(node.body)
            if cycled is not None:
                body = Seq((cycled, body))
            if resumed:
                body = Seq((*resumed, body))
            once = self.goes_through_objects(targets, node)
        finally:
            nesting.targets = outer
            nesting.loops.pop()
            if counter is not None:
                nesting.lengths.pop(counter, None)
        for name, value in before.items():
            frame.env.setdefault(name, value)
        orelse = self.evaluator.collect(node.orelse) if node.orelse else None
        if once:
            for variable in sorted(targets, key=str):
                self.emitter.add(Set(variable))
            body = relooped(body, ident, nesting.loop)
            self.emitter.add(Block(Block(body, Continue(ident)), Break(ident)))
            return
        site = self.emitter.site(node)
        self.emitter.add(
            Loop(body, ident, site, targets, counter, first, trips, test, forever, orelse)
        )

    def resumed(self, node: ForLoop | ast.While) -> list[Flow]:
        """What a generator may do to gradients before each iteration of a loop over it."""
        if isinstance(node, ast.While):
            return []
        effects = self.assignments.effects
        out = self.emitter.divert()
        for call in calls_in(node.iter):
            called = self.evaluator.peek(call.func)
            if isinstance(called, Fn):
                facts = called.module.facts[called.node]
                if facts.yields and facts.touches:
                    effects.unseen(call, NOBODY, NotFollowed.UNFOLLOWED_CALL)
            elif not (isinstance(called, Origin) and called.name in BUILTINS):
                handed = [self.evaluator.peek(arg) for arg in call.args]
                effects.hand_to_unseen(call, handed, called_name(call))
        return self.emitter.restore(out)

    def length(self, node: ForLoop | ast.While) -> Expr | None:
        """The number of items of `enumerate(items)`, as the code writes it: `len(items)`."""
        iterable = stripped(node.iter) if isinstance(node, (ast.For, ast.AsyncFor)) else None
        if not isinstance(iterable, ast.Call) or text_of(iterable.func) != "enumerate":
            return None
        items = stripped(iterable.args[0]) if iterable.args else None
        if not isinstance(items, (ast.Name, ast.Attribute)):
            return None
        asked = ast.Call(ast.Name("len", ast.Load()), [items], [])
        return self.conditions.expression(ast.copy_location(asked, items))

    def forget_literals(self, node: ForLoop | ast.While) -> None:
        """What a loop assigns holds a literal in the first iteration at most."""
        env = self.env.frame.env
        literals = [name for name, value in env.items() if type(value) is Lit]
        for name in assigned_names(node).intersection(literals) if literals else ():
            env[name] = NOTHING

    def goes_through_objects(self, targets: frozenset[Variable], node: ast.AST) -> bool:
        """Whether a loop meets another model or optimizer in every iteration.

        What it does then happens once to each, not again and again to one.
        """
        if targets & self.nesting.shifting:
            self.nesting.shifting -= targets
            return True
        if not isinstance(node, (ast.For, ast.AsyncFor)):
            return False
        return self.calls_held_methods(set(assigned_names(node.target)))

    def calls_held_methods(self, names: set[str]) -> bool:
        """Whether the file calls methods of models or optimizers on what variables of these names hold."""
        return any(
            first_name(text) in names and methods & vocabulary.HELD_METHODS
            for text, methods in self.env.frame.module.methods.items()
        )


def _collection(node: ForLoop) -> ast.expr:
    """What a loop goes through, without its count."""
    iterable = stripped(node.iter)
    if isinstance(iterable, ast.Call) and text_of(iterable.func) == "enumerate" and iterable.args:
        return stripped(iterable.args[0])
    return iterable


def _once(flow: Flow) -> Flow:
    """A loop as its body, without repetition."""
    if not isinstance(flow, Loop):
        return flow
    return Block(Block(flow.body, Continue(flow.ident)), Break(flow.ident))


def _length_of_cycle(node: ast.expr) -> ast.expr | None:
    """The n of `itertools.cycle(range(n))`."""
    for name in ("cycle", "range"):
        if not isinstance(node, ast.Call) or len(node.args) != 1:
            return None
        if called_name(node) != name:
            return None
        node = node.args[0]
    return node


def _is_split(call: ast.Call) -> bool:
    """Whether a call cuts a batch into parts of a size: `x.split(n)`, `torch.split(x, n)`."""
    owner, _, name = text_of(call.func).rpartition(".")
    given = call.args[owner == "torch" :]
    if name != "split" or len(given) != 1 or call.keywords:
        return False
    return not (isinstance(given[0], ast.Constant) and isinstance(given[0].value, str))


def _parts(call: ast.Call) -> ast.expr | None:
    """Into how many parts a call cuts a tensor: `x.chunk(n)`, `torch.chunk(x, n)`."""
    of_torch = text_of(call.func).startswith("torch.")
    given = call.args[of_torch : of_torch + 1]
    given += [keyword.value for keyword in call.keywords if keyword.arg in ("chunks", "sections")]
    return given[0] if given and isinstance(given[0], (ast.Name, ast.Attribute)) else None


def items_of(value: Value) -> list[Value] | None:
    """The items of a short collection of objects, which a loop is unrolled for."""
    if isinstance(value, Many) and 0 < len(value.items) <= MOST_ITEMS:
        if any(is_object(item) for item in value.items):
            return list(value.items)
    if isinstance(value, KnownDict) and 0 < len(value.items) <= MOST_ITEMS:
        return [Lit(key) if isinstance(key, (str, int)) else NOTHING for key, _ in value.items]
    return None


def _are_keys(value: Value) -> bool:
    """Whether a loop goes through a few literals, written in it or handed in."""
    if not isinstance(value, Many) or len(value.items) > MOST_ITEMS:
        return False
    return all(isinstance(item, Lit) for item in value.items)


def _looks_up(node: ForLoop) -> bool:
    """Whether a loop looks something up under its target.

    Where it goes through whole trainings, one after the other, each is read like the others.
    """
    key = text_of(node.target)
    inside = [*nodes(*node.body)]
    looks_up = any(isinstance(one, ast.Subscript) and text_of(one.slice) == key for one in inside)
    return looks_up and not any(map(_trains, inside))


def _trains(node: ast.AST) -> bool:
    """Whether a node is a loop around a backward and a step."""
    if not isinstance(node, LOOPS):
        return False
    return {called_name(call) for call in calls_in(*node.body)} >= {"backward", "step"}


Comprehension = ast.ListComp | ast.GeneratorExp | ast.SetComp


@dataclass(eq=False)
class Comprehensions:
    """Evaluates comprehensions."""

    env: Environment
    emitter: Emitter
    nesting: Nesting
    evaluator: Evaluator
    assignments: Assignments
    loops: Loops

    def handlers(self) -> ExpressionHandlers:
        """The method for each kind of comprehension."""
        return {
            ast.ListComp: self.sequence,
            ast.GeneratorExp: self.sequence,
            ast.SetComp: self.sequence,
            ast.DictComp: self.dictionary,
        }

    def sequence(self, node: Comprehension) -> Value:
        """`[x for …]`, `{x for …}`, `(x for …)`."""
        env = dict(self.env.frame.env)
        try:
            known = self.item_by_item(node)
            if known is not None:
                return known
            for part in node.generators:
                self.loops.bind(part)
                for test in part.ifs:
                    self.evaluator.value(test)
            value = self.repeated(node)
            if isinstance(value, (Params, Grad, Tensor)):
                return value
            return Many((value,)) if isinstance(value, KnownDict) else NOTHING
        finally:
            self.env.frame.env = env

    def dictionary(self, node: ast.DictComp) -> Value:
        """`{key: x for …}`."""
        env = dict(self.env.frame.env)
        try:
            rounds = self.rounds(node)
            if rounds is None:
                for part in node.generators:
                    self.loops.bind(part)
                self.evaluator.value(node.value)
                return NOTHING
            pairs = [
                (self.evaluator.value(node.key), self.evaluator.value(node.value)) for _ in rounds
            ]
        finally:
            self.env.frame.env = env
        if not all(isinstance(key, Lit) for key, _ in pairs):
            return NOTHING
        return KnownDict(tuple((key.value, value) for key, value in pairs if isinstance(key, Lit)))

    def repeated(self, node: Comprehension) -> Value:
        """The item of a comprehension; what it does is done in a loop."""
        self.nesting.enter_loop(self.nesting.number(), node, self.env.frame)
        out = self.emitter.divert()
        try:
            return self.evaluator.value(node.elt)
        finally:
            body = self.emitter.restore(out)
            ident = self.nesting.loops.pop()
            if find(Seq(body), Act):
                self.emitter.add(Loop(Seq(body), ident, self.emitter.site(node)))

    def rounds(self, node: Comprehension | ast.DictComp) -> Iterator[int] | None:
        """The rounds of a comprehension over known objects, in which its target holds each; None for others."""
        if len(node.generators) != 1:
            return None
        part = node.generators[0]
        items = self._parameters_of_each(part.iter) or items_of(self.evaluator.peek(part.iter))
        return self._round_after_round(part.target, items) if items is not None else None

    def _parameters_of_each(self, iterable: ast.expr) -> list[Value]:
        """The items of `(a.parameters(), b.parameters())`, which are not the parameters themselves."""
        if not isinstance(iterable, (ast.Tuple, ast.List)) or len(iterable.elts) > MOST_ITEMS:
            return []
        if not all(isinstance(part, ast.Call) for part in iterable.elts):
            return []
        items = [self.evaluator.peek(part) for part in iterable.elts]
        return items if all(isinstance(item, Params) for item in items) else []

    def _round_after_round(self, target: ast.expr, items: list[Value]) -> Iterator[int]:
        frame = self.env.frame
        before = frame.round
        for frame.round, item in enumerate(items):
            self.assignments.store(target, item, None, target)
            yield frame.round
        frame.round = before

    def item_by_item(self, node: Comprehension) -> Value | None:
        """A comprehension over known objects."""
        rounds = self.rounds(node)
        if rounds is None:
            return None
        values = [self.evaluator.value(node.elt) for _ in rounds]
        return all_params(values) or Many(tuple(values))
