"""`with` blocks and loops over generators: what torch, libraries and the project's own functions do around them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import NamedTuple

from zerograd.core.records import dataclass, replace
from zerograd.core.training_loop import NotFollowed
from zerograd.explore.flow import Alt, Flow, Seq, Set, Try
from zerograd.explore.logic import Const, Count, Expr, LastIteration, Op, Synchronises
from zerograd.static.frameworks import registry
from zerograd.static.frameworks.table import ContextEffect
from zerograd.static.interp.assignments import Assignments
from zerograd.static.interp.call_graph import CallGraph
from zerograd.static.interp.conditions import Conditions
from zerograd.static.interp.effects import NOBODY, Effects, keyword
from zerograd.static.interp.emitter import Emitter, Gate
from zerograd.static.interp.environment import Environment, Mode, Nesting
from zerograd.static.interp.evaluator import Evaluator, ExpressionHandlers, StatementHandlers
from zerograd.static.interp.functions import Functions
from zerograd.static.interp.loops import ForLoop, Loops
from zerograd.static.interp.objects import Objects
from zerograd.static.read.syntax_tree import (
    called_name,
    calls_in,
    last_name,
    may_leave,
    stripped,
    text_of,
)
from zerograd.static.read.values import Fn, Frame, Lit, Thing, Value, mix

WithBlock = ast.With | ast.AsyncWith
_EMPTY = Seq(())


class _Waiting(NamedTuple):
    """A block, or the body of a loop, that runs where a function yields."""

    generator: ast.AST
    frame: Frame
    """Of the code that the block is in."""
    run: Callable[[Value], None]
    """Runs the block, with what was yielded."""


@dataclass(eq=False)
class Contexts:
    """Interprets `with` blocks."""

    env: Environment
    emitter: Emitter
    nesting: Nesting
    mode: Mode
    gate: Gate
    evaluator: Evaluator
    objects: Objects
    graph: CallGraph
    functions: Functions
    assignments: Assignments
    conditions: Conditions
    effects: Effects
    loops: Loops

    def __post_init__(self) -> None:
        self.waiting: list[_Waiting] = []
        self.asked: list[str] = []
        """The variables that are being looked up for such a context."""

    def handlers(self) -> StatementHandlers:
        """The method for each kind of block that may run inside a generator."""
        return {
            ast.With: self.block,
            ast.AsyncWith: self.block,
            ast.For: self.for_loop,
            ast.AsyncFor: self.for_loop,
        }

    def expressions(self) -> ExpressionHandlers:
        """The method for the expression that a block may run at."""
        return {ast.Yield: self.yielded}

    def block(self, node: WithBlock) -> None:
        """`with context:`."""
        self.inside(node.items, node.body)

    def inside(self, items: Sequence[ast.withitem], body: list[ast.stmt]) -> None:
        """Some statements in one context after the other."""
        if not items:
            self.evaluator.run(body)
            return
        item, rest = items[0], items[1:]
        no_grad, accumulating, local = self.mode.no_grad, self.gate.accumulating, self.gate.local
        generator = self.generator(item.context_expr)
        if generator is not None:
            self.inside_generator(generator, item, lambda: self.inside(rest, body), body)
        else:
            leaves = self.open(item)
            test = self.is_local(item.context_expr)
            if test is not None and _computes_a_loss(body):
                self.gate.local = (test, self.emitter.site(item.context_expr))
            if leaves is None or not may_leave(body):
                self.inside(rest, body)
                if leaves is not None:
                    leaves()
            else:
                self.inside_class(leaves, item, lambda: self.inside(rest, body))
        self.mode.no_grad, self.gate.accumulating = no_grad, accumulating
        self.gate.local = local

    def open(self, item: ast.withitem) -> Callable[[], object] | None:
        """Enters a context. Returns what happens when it ends, if anything does."""
        context = item.context_expr
        known = registry.context_named(_name_of(context))
        changes = known.changes if known is not None else None
        if changes is ContextEffect.NO_GRAD:
            self.mode.no_grad += 1
            return None
        if changes is ContextEffect.GRAD:
            self.mode.no_grad = 0
            return None
        if (
            known is not None
            and changes is ContextEffect.ACCUMULATES
            and isinstance(context, ast.Call)
            and isinstance(context.func, ast.Attribute)
        ):
            source = context.func.value
            owner = self.evaluator.value(source)
            self.evaluator.arguments(context)
            if isinstance(owner, Thing) and self.objects.role(owner, source) is known.on:
                ends = self.accumulate(context, text_of(source))
                return lambda: self.emitter.add(ends)
        leaves = None
        if changes is ContextEffect.SCALES_LOSS and isinstance(context, ast.Call):
            losses = self.evaluator.arguments(context)[:1]
            value: Value = replace(mix(losses), scaled=None)
        else:
            value, leaves = self.entered(context)
        if item.optional_vars is not None:
            self.assignments.store(item.optional_vars, value, None, context)
        return leaves

    def entered(self, context: ast.expr) -> tuple[Value, Callable[[], object] | None]:
        """The value of `as`, and what an object of the project does when its block ends."""
        value = self.evaluator.value(context)
        if isinstance(value, Thing) and self.functions.known.holds.get(value.key):
            self.functions.effects.may_touch_inside(context, value, "__enter__")
        if not isinstance(value, Thing) or value.klass is None:
            return value, None
        enter = self.objects.attribute(value, "__enter__")
        leave = self.objects.attribute(value, "__exit__")
        if not isinstance(enter, Fn) or not isinstance(leave, Fn):
            return value, None
        if not any(map(self.graph.touches_gradients, (enter, leave))):
            return value, None
        call = ast.copy_location(ast.Call(context, [], []), context)
        given = [ast.copy_location(ast.Constant(None), context) for _ in range(3)]
        left = ast.copy_location(ast.Call(context, list[ast.expr](given), []), context)
        found = self.functions.call(enter, call, [])
        return found, lambda: self.functions.call(leave, left, [Lit(None)] * 3)

    def inside_class(
        self, leaves: Callable[[], object], item: ast.withitem, run: Callable[[], None]
    ) -> None:
        """A block that a jump may leave: the context ends in that case, too."""
        out = self.emitter.divert()
        run()
        body = Seq(tuple(self.emitter.restore([])))
        leaves()
        final = Seq(tuple(self.emitter.restore(out)))
        self.emitter.add(Try(body, (), _EMPTY, final, self.emitter.site(item.context_expr)))

    def generator(self, context: ast.expr) -> Fn | None:
        """The `@contextmanager` function of the project that a context is, if it touches gradients."""
        if not isinstance(context, ast.Call):
            return None
        if registry.context_named(_name_of(context)) is not None:
            return None
        fn = self.evaluator.peek(context.func)
        if not isinstance(fn, Fn) or not self.functions.can_enter(fn):
            return None
        decorators = getattr(fn.node, "decorator_list", [])
        if not any(text_of(one).endswith("contextmanager") for one in decorators):
            return None
        return fn if self.graph.touches_gradients(fn) else None

    def inside_generator(
        self, fn: Fn, item: ast.withitem, run: Callable[[], None], body: list[ast.stmt]
    ) -> None:
        """A block that runs where a function of the project yields."""

        def run_with(value: Value) -> None:
            if item.optional_vars is not None:
                self.assignments.store(item.optional_vars, value, None, item.context_expr)
            run()

        assert isinstance(item.context_expr, ast.Call)
        self.waiting.append(_Waiting(fn.node, self.env.frame, run_with))
        statements = fn.node.body if not isinstance(fn.node, ast.Lambda) else []
        self.functions.enter(
            fn, item.context_expr, _left_anyway(statements) if may_leave(body) else statements
        )
        self.waiting.pop()

    def for_loop(self, node: ForLoop) -> None:
        """`for target in generator():` runs its body where a generator that touches gradients yields."""
        call = stripped(node.iter)
        fn = self.evaluator.peek(call.func) if isinstance(call, ast.Call) else None
        if (
            not isinstance(call, ast.Call)
            or not isinstance(fn, Fn)
            or isinstance(fn.node, ast.Lambda)
            or not fn.module.facts[fn.node].yields
            or not self.graph.touches_gradients(fn)
            or not self.functions.can_enter(fn)
            or node.orelse
            or may_leave(node.body)
        ):
            self.loops.for_loop(node)
            return

        def run_with(value: Value) -> None:
            self.assignments.store(node.target, value, None, node.iter)
            self.evaluator.run(node.body)

        self.waiting.append(_Waiting(fn.node, self.env.frame, run_with))
        self.functions.enter(fn, call, fn.node.body)
        self.waiting.pop()

    def yielded(self, node: ast.Yield) -> Value:
        """`yield value`: the block of a context manager, or the body of a loop, runs here."""
        value = self.evaluator.value(node.value) if node.value is not None else Lit(None)
        stack = self.nesting.stack
        if not self.waiting or not stack or stack[-1] is not self.waiting[-1].generator:
            facts = self.env.frame.module.facts.get(stack[-1]) if stack else None
            if facts is not None and facts.touches and "backward" not in facts.called:
                # The code that takes the yielded value runs the backward.
                self.effects.unseen(node, NOBODY, NotFollowed.LEFT_TO_CALLER)
            return mix([value])
        waiting, here = self.waiting.pop(), self.env.frame
        self.env.frame = waiting.frame
        function = stack.pop()
        try:
            waiting.run(value)
        finally:
            stack.append(function)
            self.env.frame = here
            self.waiting.append(waiting)
        return Lit(None)

    def is_local(self, context: ast.expr) -> Expr | None:
        """When the ranks do not share gradients in a context; None if it has nothing to do with that."""
        if isinstance(context, ast.Name):
            return self._is_chosen(context.id)
        if isinstance(context, ast.IfExp):
            then, orelse = self.is_local(context.body), self.is_local(context.orelse)
            if (then is None) == (orelse is None):
                return None
            test = self.conditions.expression(context.test)
            return test if then is not None else Op("not", (test,))
        if isinstance(context, ast.Call):
            if context.args and isinstance(self.evaluator.peek(context.func), Fn):
                return None  # of the project: its arguments say what it does
            enabled = keyword(context, "enabled")
            if enabled is not None and self.is_local(context.func) is not None:
                return self.conditions.expression(enabled)
            return self.is_local(context.func)
        local = isinstance(context, ast.Attribute) and context.attr in registry.LOCAL
        return Const(True) if local else None

    def _is_chosen(self, name: str) -> Expr | None:
        """When a variable holds such a context: always, or for one outcome of the test in whose arm it is assigned."""
        if name in self.asked:
            return None  # the variable keeps what it has
        module = self.env.frame.module
        given = module.assigned_to(name)
        self.asked.append(name)
        found = [(node, self.is_local(value)) for node, value in given.items()]
        self.asked.pop()
        local = [(node, test) for node, test in found if test is not None]
        if len(given) == 1 or len(local) != 1:
            return local[0][1] if len(given) == len(local) == 1 else None
        node, test = local[0]
        around = module.nodes.above.get(node)
        if not isinstance(around, ast.If):
            return None
        asked = self.conditions.expression(around.test)
        asked = asked if node in around.body else Op("not", (asked,))
        return asked if test == Const(True) else Op("and", (asked, test))

    def accumulate(self, context: ast.Call, accelerator: str) -> Flow:
        """`with accelerator.accumulate(model):` counts, and decides whether this iteration steps.

        Returns what happens when it is left.
        """
        self.gate.accumulating = accelerator
        counter = Count(accelerator)
        self.emitter.add(Set(counter, Op("+", (counter, Const(1)))))
        self.emitter.add(Set(Synchronises(accelerator), self.gate.synchronises()))
        # The loader's last batch closes the window, and the count begins anew.
        ends = LastIteration(self.nesting.loop)
        return Alt(ends, Set(counter, Const(0)), _EMPTY, self.emitter.site(context))


def _name_of(context: ast.expr) -> str:
    return called_name(context) if isinstance(context, ast.Call) else last_name(text_of(context))


def _left_anyway(statements: list[ast.stmt]) -> list[ast.stmt]:
    """The statements of a context manager; what follows its `yield` runs however the block ends."""
    for at, node in enumerate(statements):
        yields = isinstance(node, (ast.Expr, ast.Assign)) and isinstance(node.value, ast.Yield)
        if yields and at + 1 < len(statements):
            whole = ast.Try([node], [], [], statements[at + 1 :])
            return [*statements[:at], ast.copy_location(whole, node)]
    return statements


def _computes_a_loss(body: list[ast.stmt]) -> bool:
    """Whether a block runs a forward: DDP reads there, and not in the backward, whether to share."""
    return any(called_name(call) not in ("backward", "scale") for call in calls_in(*body))
