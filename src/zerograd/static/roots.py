"""The parts of a file that are interpreted: the top level, and each function that no part before it calls."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from zerograd.core.events import Backward, Site, Step, Zero
from zerograd.core.records import dataclass, field, replace
from zerograd.core.training_loop import TrainingLoop
from zerograd.explore.flow import Flow, Seq
from zerograd.static.frameworks import registry
from zerograd.static.frameworks.table import CALLED, Does, Role, Round
from zerograd.static.interp.call_graph import CallGraph
from zerograd.static.interp.emitter import Act
from zerograd.static.interp.interpreter import Interpreter, Program
from zerograd.static.obviously_right import ObviouslyRight
from zerograd.static.read.budget import Cut
from zerograd.static.read.file_index import Facts
from zerograd.static.read.keys import SELF, Key
from zerograd.static.read.module import Module
from zerograd.static.read.syntax_tree import (
    arguments,
    called_name,
    calls_in,
    first_name,
    last_name,
    nodes,
    outer_loops,
    parameter_names,
    text_of,
)
from zerograd.static.read.values import Fn, Klass, Thing
from zerograd.static.reuse import Recalled, Reuse
from zerograd.static.written_loops import TOP_LEVEL, repeated_loops


class Root(NamedTuple):
    """A part of a file that no code is seen to call, as a flow."""

    name: str
    flow: Flow
    interpreter: Interpreter
    """What has made the flow, and knows the objects in it."""
    fn: Fn | None = None
    """The function; None for the top level."""
    per_batch: bool = False
    """A framework calls it once for each batch."""
    completed: bool = False
    """The framework also does all that the function leaves out."""


@dataclass(eq=False)
class Roots:
    """Interprets the roots of a file, one after the other."""

    program: Program
    cut: dict[str, None]
    """What was left out, and why; here, the roots that were too large."""
    reuse: Reuse | None = None
    current: str = "the top level"
    """The name of the root that was interpreted last."""
    plain: list[TrainingLoop] = field(default_factory=list)
    """The loops of functions that are obviously right, and were not interpreted."""
    unread: list[Fn | None] = field(default_factory=list)
    """The roots that were too large."""
    _inlined: set[ast.AST] = field(default_factory=set)
    """The functions that some root has called."""

    @cached_property
    def _right(self) -> ObviouslyRight:
        return ObviouslyRight(self.program)

    def __iter__(self) -> Iterator[Root | Recalled]:
        module = self.program.module
        functions = list(_functions(module))
        defines = not module.methods_by_name.keys().isdisjoint(("zero_grad", "step", "backward"))
        managed = defines or not registry.MANAGING.isdisjoint(module.packages)
        if module.top.steps or self.program.scout.graph.may_step(None) or _feeds(module.top):
            if managed or not self._right.is_top_level(functions):
                yield from self._unit(None)
            else:
                self.plain += repeated_loops(module.tree, TOP_LEVEL, module)
        for klass in module.classes.values():
            yield from self._inherited(Klass(klass, module, klass.name))
        if functions:
            yield from self._functions(_callers_first(functions, module), managed)

    def _functions(self, functions: list[Fn], managed: bool) -> Iterator[Root | Recalled]:
        """The functions and methods that no root has called, and that are not obviously right."""
        scout, module = self.program.scout, self.program.module
        for fn in functions:
            if fn.node in self._inlined or scout.classes.is_optimizer_method(fn):
                continue
            here = scout.graph.touches_gradients_here(fn)
            completed = here and self._round_of(fn) is not None
            is_right = not here or (not (managed or completed) and self._right.is_right(fn))
            # A function that is right itself, or does nothing to gradients, may still repeat what others do.
            if (
                is_right
                and all(self._is_right(inner, fn) for inner in _stepping_callees(fn, scout.graph))
                and not _hands_on(fn, scout.graph)
                and not _feeds_driver(fn)
            ):
                if here:
                    self.plain += repeated_loops(fn.node, fn.qualified_name, module)
                continue
            if not scout.graph.touches_gradients(fn):
                continue
            feeds = completed or _feeds(module.facts[fn.node])
            if feeds or scout.graph.may_step(fn):
                yield from self._unit(fn, with_inner=True)

    def _round_of(self, fn: Fn) -> Round | None:
        """What a framework does for every batch around a method that clips, and leaves the rest to it."""
        called = fn.module.facts[fn.node].called
        if fn.klass is None or registry.CLIPS.isdisjoint(called):
            return None
        if not called.isdisjoint(
            ("optimizers", "manual_backward", "backward", "step", "zero_grad")
        ):
            return None
        lineage = self.program.scout.classes.lineage(fn.klass)
        if any(
            "automatic_optimization" in base.module.attributes_of(base.node) for base in lineage
        ):
            return None  # it does not leave the rest to the framework
        return registry.round_of(fn.name, self._bases(fn))

    def _bases(self, fn: Fn) -> list[str]:
        """The dotted names of all that the class of a method inherits from."""
        lineage = self.program.scout.classes.lineage(fn.klass) if fn.klass is not None else []
        return [imported_name(base, one.module) for one in lineage for base in one.node.bases]

    def _in_round(self, fn: Fn, round_: Round, interpreter: Interpreter) -> Root:
        """A method, and what a framework does before and after each call of it."""
        root = self._interpret(fn, interpreter, per_batch=True)
        key = SELF.attribute("configure_optimizers()")
        interpreter.known.roles[key] = Role.OPTIMIZER
        whole = interpreter.emitter.site(fn.node)
        begin = replace(whole, end_line=whole.line, end_column=0)
        end = replace(begin, line=whole.end_line, end_line=whole.end_line)
        at = round_.parts.index(fn.name)
        flows = [
            root.flow if index == at else _done(part, begin if index < at else end, key)
            for index, part in enumerate(round_.parts)
            if isinstance(part, Does) or index == at
        ]
        return root._replace(flow=Seq(flows), completed=True)

    def _is_driven(self, fn: Fn) -> bool:
        """Whether a framework calls a function once for every batch."""
        if fn.klass is not None and fn.frame is None:
            bases = self._bases(fn)
            if registry.is_managed(bases):
                return registry.is_driven(fn.name, bases)
        if fn.name in registry.PER_BATCH:
            return True
        module = self.program.module
        if registry.MANAGING.isdisjoint(module.packages):
            return False
        name = fn.name if fn.klass is None or fn.frame is not None else f"self.{fn.name}"
        handed = _handed_to_drivers(module)
        return bool(handed & {name, _maker_of(fn)}) and not _cleared_by_handlers(fn, module)

    def _inherited(self, klass: Klass) -> Iterator[Root | Recalled]:
        """Inherited methods that repeat what this class, or another base of it, does to gradients."""
        scout = self.program.scout
        lineage = scout.classes.lineage(klass)
        if len(lineage) == 1:
            return
        open_methods = _OpenMethods(lineage, scout)
        for fn in open_methods.roots(Thing(SELF, klass=klass)):
            reached = scout.graph.methods_reached(klass, fn.name)
            if any(map(scout.graph.may_step, reached)) and any(
                _adds(one)
                for one in reached
                if one.klass is None or one.klass.node is not klass.node
            ):
                yield from self._unit(fn, klass=klass)

    def _unit(
        self, fn: Fn | None, *, with_inner: bool = False, klass: Klass | None = None
    ) -> Iterator[Root | Recalled]:
        """A function, or the top level; if asked for, also the functions that are defined inside it.

        The caller explores each root before it asks for the next one.
        """
        reuse = self.reuse
        if reuse is not None:
            self.current = f"{fn.name}()" if fn is not None else "the top level"
            owner = fn.klass if klass is None and fn is not None else klass
            kept = reuse.begin(fn, owner, len(self.cut))
            if kept is not None:
                self._inlined |= kept.inlined
                yield kept
                return
        interpreter = self.program.interpreter()
        round_ = self._round_of(fn) if fn is not None and with_inner else None
        if fn is not None and round_ is not None:
            yield self._in_round(fn, round_, interpreter)
        else:
            own = with_inner or klass is not None
            per_batch = own and fn is not None and self._is_driven(fn)
            yield self._interpret(fn, interpreter, per_batch=per_batch)
        if with_inner:
            for inner in interpreter.env.closures:
                if inner.node not in self._inlined and self.program.scout.graph.touches_gradients(
                    inner
                ):
                    driven = self._is_driven(inner)
                    yield self._interpret(inner, interpreter, per_batch=driven)
        if reuse is not None:
            reuse.keep(interpreter.nesting.inlined, len(self.cut))

    def _is_right(self, fn: Fn, caller: Fn) -> bool:
        """Whether a function of another file is obviously right, for the objects that its caller knows."""
        if not registry.MANAGING.isdisjoint(fn.module.packages):
            return False
        return self._right.is_right(fn) and not self._is_overridden(fn, caller)

    def _is_overridden(self, fn: Fn, caller: Fn) -> bool:
        """Whether the caller's class, or a class whose objects it makes, overrides a method that this function calls."""
        scout = self.program.scout
        if fn.klass is None:
            return False
        known = {base.node for base in scout.classes.lineage(fn.klass)}
        owners = [*scout.graph.classes_called(caller), *([caller.klass] if caller.klass else ())]
        return any(
            method.klass is not None and method.klass.node not in known
            for owner in owners
            if any(base.node is fn.klass.node for base in scout.classes.lineage(owner)[1:])
            for method in scout.graph.methods_reached(owner, fn.name)
        )

    def _interpret(
        self, fn: Fn | None, interpreter: Interpreter, *, per_batch: bool = False
    ) -> Root:
        self.current = f"{fn.name}()" if fn is not None else "the top level"
        budget = self.program.project.budget
        budget.begin_root()
        try:
            flow = interpreter.function(fn) if fn is not None else interpreter.top_level()
        except Cut:
            if budget.file < 0:
                raise
            self.cut[f"{self.current} is too large to be followed"] = None
            self.unread.append(fn)
            flow = Seq(())
        self._inlined |= interpreter.nesting.inlined
        return Root(self.current, flow, interpreter, fn, per_batch)

    def left_out(self) -> list[Fn | None]:
        """What was not interpreted, if there was too much in the file."""
        functions = (fn for fn in _functions(self.program.module) if fn.node not in self._inlined)
        return [None, *functions]


def _adds(method: Fn) -> bool:
    """Whether a method of a base has a loop, or does something to gradients itself.

    Otherwise it only passes a call on, and the method that it calls is read by itself.
    """
    return method.module.facts[method.node].mentions or any(True for _ in outer_loops(method.node))


def _done(part: str | Does, site: Site, optimizer: Key) -> Act:
    """What a framework does itself."""
    if part is Does.CLEARS:
        return Act(Zero(site), whose=frozenset({optimizer}))
    if part is Does.STEPS:
        return Act(Step(site), whose=frozenset({optimizer}))
    return Act(Backward(site), anyone=True)


class _OpenMethods:
    """The methods that a class inherits from bases which do not know all that these methods call.

    A base has the loop, and calls `self.train_step()`: what that does is known in the class alone.
    """

    def __init__(self, lineage: list[Klass], scout: Interpreter) -> None:
        self.scout = scout
        self.owner: dict[str, Klass] = {}
        """By name: the class that a method of the object comes from."""
        for base in reversed(lineage):
            self.owner.update(dict.fromkeys(base.module.methods_of(base.node), base))
        self.lineage = lineage
        self.known: dict[str, bool] = {}
        touches = (
            touch
            for base in lineage
            for method in base.module.methods_of(base.node).values()
            for touch in base.module.facts[method].touches
        )
        stepped = {touch.what for touch in touches if touch.kind == "step"}
        self.has_several_steps = len(stepped) > 1
        """Several optimizers are stepped: it matters whose gradients a loss fills."""

    def roots(self, me: Thing) -> Iterator[Fn]:
        """The open methods that no other one calls."""
        found = [
            Fn(method, base.module, name, me, None, base)
            for base in self.lineage[1:]
            for name, method in base.module.methods_of(base.node).items()
            if self.owner[name].node is base.node and self.is_open(name)
        ]
        called = set().union(*(fn.module.facts[fn.node].called - {fn.name} for fn in found))
        for fn in found:
            if fn.name not in called:
                yield fn

    def is_open(self, name: str) -> bool:
        """Whether a method calls one that its own class does not have, and that touches gradients or computes losses."""
        known = self.known.get(name)
        if known is None:
            self.known[name] = False
            base = self.owner[name]
            known = self.known[name] = any(
                self.is_open(inner) or (self.is_foreign(base, inner) and self.touches(inner))
                for inner in sorted(self.called(name))
            )
        return known

    def called(self, name: str) -> set[str]:
        """The methods of the object that a method may call."""
        base = self.owner[name]
        method = base.method(name)
        return (base.module.facts[method].called & self.owner.keys()) - {name} if method else set()

    def is_foreign(self, base: Klass, name: str) -> bool:
        """Whether the object's method of this name is not that of a base."""
        owner = self.owner[name].node
        return all(one.node is not owner for one in self.scout.classes.lineage(base))

    def touches(self, name: str) -> bool:
        """Whether a method does something to gradients, or decides which of several optimizers a loss fills.

        So does a method that replaces one: `def before_step(self): pass`, where the base clears.
        """
        graph = self.scout.graph
        methods = [one for base in self.lineage for one in graph.methods_named(base, name)]
        return any(map(graph.touches_gradients, methods)) or (
            self.has_several_steps and any(one.module.facts[one.node].returns for one in methods)
        )


def _stepping_callees(fn: Fn, graph: CallGraph) -> list[Fn]:
    """What a function calls in a loop that steps in other files, or calls with an optimizer of the project."""
    facts = fn.module.facts[fn.node]
    callees = [inner for inner, _ in graph.callees(fn.module, facts, fn.klass, 0)]
    return [*_repeated(fn, callees, graph), *_hands_wrapper_to(callees, graph)]


def _repeated(fn: Fn, callees: list[Fn], graph: CallGraph) -> list[Fn]:
    """The functions of other files that step and that a function calls in a loop, directly or through others."""
    callees = [*callees, *graph.held_callees(fn)]
    if not callees:
        return []
    makers = [inner for inner in callees if inner.klass is None and inner.module is not fn.module]
    callees += [
        method
        for maker in makers
        for klass in graph.classes_called(maker)
        for base in graph.classes.lineage(klass)
        for method in graph.classes.methods(base)
    ]
    called = _called_in_loops(fn)
    if any(inner.module.facts[inner.node].steps for inner in callees):
        called |= _called_for_each(fn)
    for inner in callees:
        if not inner.module.facts[inner.module.tree].mentions:
            called |= _called_in_loops(inner)
    if called:
        called |= {CALLED}  # an object may be called by any name
    return [inner for inner in callees if inner.name in called and graph.reaches(inner, "steps", 2)]


def _hands_wrapper_to(callees: list[Fn], graph: CallGraph) -> list[Fn]:
    """What a function calls that steps in other files, if it makes an optimizer of a class of the project."""
    if not any(_is_wrapper(inner) and graph.reaches(inner, "steps", 2) for inner in callees):
        return []
    return [inner for inner in callees if not _is_wrapper(inner) and graph.may_step(inner)]


def _hands_on(fn: Fn, graph: CallGraph) -> list[Fn]:
    """The callees with loops that get a function, or an object of another class, which steps for them.

    The file of the loop does not know it: `Trainer(net, Strategy()).fit(loader)`, `repeat(loader, train_step)`.
    """
    facts = fn.module.facts[fn.node]
    made: dict[ast.ClassDef, list[Fn]] = {}
    found = []
    steps = any(map(graph.touches_gradients, graph.handed_functions(fn)))
    if steps:
        graph.open_callees(fn)
    for inner, _ in graph.callees(fn.module, facts, None, 0):
        if inner.klass is not None and inner.klass.node.name in facts.called:
            made.setdefault(inner.klass.node, []).append(inner)
        if steps and not _called_in_loops(inner).isdisjoint(parameter_names(inner.node)):
            found.append(inner)
    if len(made) < 2:
        return found
    for node, methods in made.items():
        module = methods[0].module
        called = set().union(*(method.module.facts[method.node].called for method in methods))
        ends = tuple(f"_{name}" for name in called) if "getattr" in called else ()
        unseen = (
            helper
            for other, helpers in made.items()
            if other is not node and other.name not in module.imports.keys() | module.classes.keys()
            for helper in helpers
        )
        if any(
            (one.name in called or one.name.endswith(ends)) and graph.touches_gradients(one)
            for one in unseen
        ):
            found += [method for method in methods if _called_in_loops(method)]
    return found


def _is_wrapper(method: Fn) -> bool:
    """Whether a method is the step of a class of the project that has the name of an optimizer."""
    return (
        method.name == "step"
        and method.klass is not None
        and "optim" in method.klass.node.name.lower()
    )


def _called_for_each(fn: Fn) -> frozenset[str]:
    """What a function calls for each item of a comprehension: `[update(batch) for batch in loader]`."""
    each = (one.elt for one in nodes(fn.node) if isinstance(one, (ast.ListComp, ast.GeneratorExp)))
    return frozenset(map(called_name, calls_in(*each)))


def _called_in_loops(fn: Fn) -> frozenset[str]:
    facts = fn.module.facts[fn.node]
    if facts.repeated is None:
        calls = [
            call
            for loop in outer_loops(fn.node)
            for call in calls_in(*loop.body)
            if isinstance(call.func, (ast.Name, ast.Attribute))
        ]
        named = (call.args[0] for call in calls if call.args)
        facts.repeated = frozenset(
            [
                *(called_name(call) for call in calls),
                # `self.notify("after_batch")` calls a method of that name.
                *(str(one.value) for one in named if isinstance(one, ast.Constant)),
            ]
        )
    return facts.repeated


def _functions(module: Module) -> Iterator[Fn]:
    """The functions of a module and the methods of its classes."""
    for node in module.functions.values():
        yield Fn(node, module, node.name)
    for klass in module.classes.values():
        owner = Klass(klass, module, klass.name)
        for method in klass.body:
            if isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef)):
                static = any(getattr(d, "id", "") == "staticmethod" for d in method.decorator_list)
                me = None if static else Thing(SELF, klass=owner)
                yield Fn(method, module, method.name, me, None, owner)


def _callers_first(functions: list[Fn], module: Module) -> list[Fn]:
    """The functions of a module; those that the module calls itself come last."""
    calls = module.facts[module.tree].calls
    # `model.train()` may call the `train` of a class here, `train_batch()` has to call the one here.
    called = {last_name(name) for name in calls}
    own = calls | {name[5:] for name in calls if name.startswith("self.")}
    return sorted(functions, key=lambda fn: (fn.name in called) + (fn.name in own))


def _feeds_driver(fn: Fn) -> bool:
    """Whether a function hands something to what calls it once for every batch: `Engine(make_update(model))`."""
    if registry.MANAGING.isdisjoint(fn.module.packages):
        return False
    return any(registry.drives(imported_name(one.func, fn.module)) for one in calls_in(fn.node))


def _handed_to_drivers(module: Module) -> set[str]:
    """The functions of a file that a framework calls once for every batch, and those that make such functions.

    `Engine(update)`, `Engine(self.update)`, `Engine(make_update(model))`
    """
    return {
        text_of(argument.func if isinstance(argument, ast.Call) else argument)
        for call in calls_in(module.tree)
        if isinstance(call.func, (ast.Name, ast.Attribute))
        if registry.drives(imported_name(call.func, module))
        for argument in arguments(call)
        if isinstance(argument, (ast.Name, ast.Attribute, ast.Call))
    }


def _maker_of(fn: Fn) -> str:
    """The name of the function that a function is defined in; empty if it is in none."""
    if fn.frame is None:
        return ""
    outer = fn.module.functions.items()
    return next((name for name, node in outer if any(one is fn.node for one in nodes(node))), "")


def _cleared_by_handlers(fn: Fn, module: Module) -> bool:
    """Whether functions that react to events clear gradients: in this module, or in that of a function, beside it."""
    found = [node for tree in {module.tree, fn.module.tree} for node in ast.walk(tree)]
    handlers = any("add_event_handler" in one.facts[one.tree].called for one in (module, fn.module))
    handlers = handlers or any(
        text_of(getattr(decorator, "func", decorator)).endswith(".on")
        for node in found
        if isinstance(node, ast.FunctionDef)
        for decorator in node.decorator_list
    )
    return handlers and sum(map(_is_clear, found)) > sum(map(_is_clear, ast.walk(fn.node)))


def _is_clear(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "zero_grad"


def imported_name(node: ast.expr, module: Module) -> str:
    """The dotted name that an expression has in the package it was imported from; else its text."""
    text = text_of(node)
    first, dot, rest = text.partition(".")
    if first in module.imports:
        return f"{module.imports[first]}{dot}{rest}"
    if first in module.classes or len(module.stars) == 0:
        return text
    known = (star for star in module.stars if first_name(star) in registry.MANAGING)
    return next((f"{star}.{text}" for star in known), text)


def _feeds(facts: Facts) -> bool:
    """Whether some code clears and runs backward, though it never steps."""
    return "backward" in facts.called and not facts.called.isdisjoint(("zero_grad", "zero_"))
