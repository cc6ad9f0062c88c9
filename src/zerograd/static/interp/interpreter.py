"""The interpreter: puts the parts together, and interprets the top level or one function."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property

from zerograd.core.events import Event, Site
from zerograd.core.records import dataclass, field, replace
from zerograd.explore.flow import Flow
from zerograd.static.interp.call_graph import CallGraph, KnownCalls
from zerograd.static.interp.construction_sites import ConstructionSites
from zerograd.static.interp.emitter import Emitter, Gate
from zerograd.static.interp.environment import (
    Environment,
    KnownObjects,
    LoopNode,
    Mode,
    Nesting,
)
from zerograd.static.interp.evaluator import Evaluator
from zerograd.static.interp.names import Names
from zerograd.static.interp.objects import Classes, KnownClasses, Objects
from zerograd.static.interp.unused_loss import clears_before, idle_loss, only_steps
from zerograd.static.read.file_index import Facts
from zerograd.static.read.module import Module
from zerograd.static.read.project import Project
from zerograd.static.read.syntax_tree import called_name, calls_in, spans
from zerograd.static.read.values import Fn, Klass


@dataclass(eq=False)
class Program:
    """A file and what it imports, with what all its interpreters have found out."""

    project: Project
    module: Module
    classes: KnownClasses = field(default_factory=KnownClasses)
    calls: KnownCalls = field(default_factory=KnownCalls)
    interpreters: list[Interpreter] = field(default_factory=list)

    def interpreter(self) -> Interpreter:
        """An interpreter for the top level, or for one function."""
        interpreter = Interpreter(self)
        self.interpreters.append(interpreter)
        return interpreter

    @cached_property
    def scout(self) -> Interpreter:
        """Says what functions reach, which depends on no root. A file without functions does not need it."""
        return self.interpreter()


class Interpreter:
    """Turns one root (a module's top level or a function) and all that it calls into a flow.

    Nothing is executed. What cannot be seen stays unknown: it may excuse, and it must not accuse. The parts that
    handle expressions and statements are made when the first one is evaluated.
    """

    def __init__(self, program: Program) -> None:
        project, module = program.project, program.module
        self.env = Environment(module)
        self.known = KnownObjects()
        self.nesting = Nesting()
        self.gate = Gate(self.env, self.nesting, self.known)
        self.emitter = Emitter(self.env, self.nesting, self.gate)
        self.evaluator = Evaluator(project.budget, self.env, self.emitter, self._add_handlers)
        self.names = Names(project, self.env, self.evaluator)
        self.classes = Classes(program.classes, self.evaluator)
        sites = ConstructionSites(self.names, program.classes.sites)
        self.graph = CallGraph(
            project.budget, program.calls, module, self.names, self.classes, sites
        )
        self.objects = Objects(
            self.env, self.known, self.evaluator, self.names, self.classes, sites
        )

    def _add_handlers(self) -> None:
        from zerograd.static.interp.assignments import Assignments
        from zerograd.static.interp.calls import Calls
        from zerograd.static.interp.conditions import Conditions
        from zerograd.static.interp.constructors import Constructors
        from zerograd.static.interp.contexts import Contexts
        from zerograd.static.interp.effects import Effects
        from zerograd.static.interp.expressions import Expressions
        from zerograd.static.interp.framework_calls import FrameworkCalls
        from zerograd.static.interp.functions import Activations, Functions
        from zerograd.static.interp.gradient_calls import BackwardCalls, ClearCalls, ParameterCalls
        from zerograd.static.interp.library_calls import BuiltinCalls, LibraryCalls
        from zerograd.static.interp.loops import Comprehensions, Loops
        from zerograd.static.interp.registered_hooks import RegisteredHooks
        from zerograd.static.interp.statements import Statements
        from zerograd.static.interp.step_calls import StepCalls

        env, known, nesting, gate, emitter = (
            self.env, self.known, self.nesting, self.gate, self.emitter,
        )  # fmt: skip
        evaluator, names, classes, graph, objects = (
            self.evaluator, self.names, self.classes, self.graph, self.objects,
        )  # fmt: skip
        mode = Mode()
        conditions = self.conditions = Conditions(env, nesting, gate, evaluator, objects)
        effects = Effects(env, emitter, known, nesting, mode)
        constructors = Constructors(env, emitter, known, nesting, evaluator, objects, effects)
        activations = self.activations = Activations(env, emitter, nesting, mode, evaluator, names)
        functions = Functions(
            env, emitter, known, nesting, evaluator, names, classes, objects, graph,
            conditions, effects, constructors, activations,
        )  # fmt: skip
        frameworks = FrameworkCalls(
            emitter, known, gate, evaluator, objects, conditions, effects, constructors,
            activations,
        )  # fmt: skip
        parameters = ParameterCalls(env, mode, evaluator, objects, effects, constructors)
        clears = ClearCalls(emitter, evaluator, classes, objects, effects, constructors, functions)
        backwards = BackwardCalls(
            known, env, gate, evaluator, classes, objects, effects, frameworks
        )
        steps = StepCalls(
            known, evaluator, names, classes, objects, effects, constructors, functions, frameworks
        )
        builtins = BuiltinCalls(evaluator, objects, parameters)
        libraries = LibraryCalls(evaluator, effects, constructors, frameworks, steps, builtins)
        hooks = RegisteredHooks(env, emitter, nesting, functions)
        calls = Calls(
            env, emitter, nesting, evaluator, names, classes, objects, graph, effects, constructors,
            functions, frameworks, parameters, clears, backwards, steps, libraries, hooks,
        )  # fmt: skip
        assignments = Assignments(
            env, emitter, known, evaluator, objects, conditions, effects, parameters
        )
        expressions = Expressions(
            env, emitter, nesting, mode, evaluator, objects, conditions, assignments
        )
        loops = Loops(env, emitter, nesting, mode, evaluator, objects, conditions, assignments)
        comprehensions = Comprehensions(env, emitter, nesting, evaluator, assignments, loops)
        contexts = Contexts(
            env, emitter, nesting, mode, gate, evaluator, objects, graph, functions, assignments,
            conditions, effects, loops,
        )  # fmt: skip
        statements = Statements(
            env, emitter, known, nesting, mode, evaluator, conditions, effects, parameters,
            assignments, expressions,
        )  # fmt: skip
        evaluator.expressions.update({ast.Name: names.name, ast.Call: calls.call})
        evaluator.expressions.update(expressions.handlers() | comprehensions.handlers())
        evaluator.expressions.update(contexts.expressions())
        evaluator.statements.update(statements.handlers() | loops.handlers() | contexts.handlers())

    def top_level(self) -> Flow:
        """The module's top level as a flow."""
        self.evaluator.complete()
        return self.evaluator.collect(self.env.top.module.tree.body)

    def function(self, fn: Fn) -> Flow:
        """A function as a flow, its parameters unknown."""
        self.evaluator.complete()
        return self.activations.flow_of(fn)

    def forget(self) -> None:
        """Lets go of what the parts hold of each other: no collector looks for cycles."""
        self.env.forget()
        self.evaluator.forget()

    def followed(self) -> Iterator[tuple[Module, ast.AST, Facts]]:
        """The functions that were called, each with its module and its facts."""
        for module in filter(None, self.names.project.modules.values()):
            for node, facts in module.facts.items():
                if node in self.nesting.inlined:
                    yield module, node, facts

    def idle_loss(self, step: Event) -> Site | None:
        """Where the loop of a step, or else its function, computes a loss that it hands to nothing."""
        loop = self._loop_around(step)
        if loop is not None:
            found = idle_loss(loop.node, self._module_at(loop.path), step=step.site.line)
            return self._site_in(found, loop.path) if found is not None else None
        # A loss that the loop of a helper computes may go on to other helpers.
        stepping: list[ast.AST] = []
        node = self.function_around(step.site)
        while node is not None and node not in stepping:
            found = idle_loss(node, self._module_at(self.nesting.path_of[node]), stepping)
            if found is not None:
                return self._site_in(found, self.nesting.path_of[node])
            # A wrapper of the project only steps: its caller has to run the backward.
            if not only_steps(node, stepping):
                return None
            stepping.append(node)
            callers = self._callers(node)
            node = callers[0] if len(callers) == 1 else None
        loop = self.nesting.loop_nodes.get(step.loop)
        if loop is None or not stepping:
            return None
        found = idle_loss(loop.node, stepping=stepping)
        return self._site_in(found, loop.path) if found is not None else None

    def calls_kept_backward(self) -> bool:
        """Whether a method that was entered calls a function that its object keeps, and that runs a backward."""
        return any(
            self.graph.keeps_backward(method, last)
            for module, node, facts in self.followed()
            for method in _method_at(module, node)
            for first, attr, last in facts.call_parts
            if first == "self" and not attr
        )

    def called_around(self, step: Event) -> set[str]:
        """The last names of what the loop of a step calls, and of what a function between the two calls."""
        loop = self.nesting.loop_nodes.get(step.loop)
        around = [] if loop is None else [loop.node]
        if self._loop_around(step) is None and (function := self.function_around(step.site)):
            around.append(function)
        return set(map(called_name, calls_in(*around)))

    def _module_at(self, path: str) -> Module | None:
        """The module of a path, if it is that of the file that is checked."""
        module = self.env.top.module
        return module if module.path == path else None

    def _site_in(self, node: ast.AST, path: str) -> Site:
        return replace(self.emitter.site(node), path=path)

    def _callers(self, function: ast.AST) -> list[ast.AST]:
        """The functions that were entered and call one of this name."""
        name = getattr(function, "name", "")
        return [
            node
            for node in self.nesting.path_of
            if node is not function and any(called_name(call) == name for call in calls_in(node))
        ]

    def clears_before(self, step: Event) -> list[Site]:
        """The clears from which an iteration goes straight on to a step: it has nothing to use."""
        loop = self._loop_around(step)
        around = self.function_around(step.site) if loop is None else loop.node
        found = clears_before(around, step.site.line) if around is not None else ()
        return [self._site_in(node, step.site.path) for node in found]

    def _loop_around(self, event: Event) -> LoopNode | None:
        """The loop that repeats an event, if the event is written in it."""
        loop = self.nesting.loop_nodes.get(event.loop)
        if loop is None or loop.path != event.site.path:
            return None
        return loop if spans(loop.node, event.site.line) else None

    def function_around(self, site: Site) -> ast.AST | None:
        """The innermost function around a place, if it was called."""
        files = self.nesting.path_of.items()
        around = [node for node, path in files if path == site.path and spans(node, site.line)]
        return max(around, key=lambda node: getattr(node, "lineno", 0), default=None)


def _method_at(module: Module, node: ast.AST) -> Iterator[Fn]:
    """The method of a class of a file that is this node."""
    for owner in module.classes.values():
        for name, method in module.methods_of(owner).items():
            if method is node:
                yield Fn(method, module, name, None, None, Klass(owner, module))
