"""What a function reaches through the calls in it, without interpreting it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from typing import Literal, get_args

from zerograd.core.records import dataclass, field, replace
from zerograd.static.frameworks import registry
from zerograd.static.frameworks.table import CALLED
from zerograd.static.interp.construction_sites import TRAINING, ConstructionSites
from zerograd.static.interp.names import Names
from zerograd.static.interp.objects import Classes, methods_of
from zerograd.static.read import callers, vocabulary
from zerograd.static.read.budget import EXPRESSION, Budget
from zerograd.static.read.file_index import Facts
from zerograd.static.read.module import Module
from zerograd.static.read.syntax_tree import (
    arguments,
    called_name,
    first_name,
    last_name,
    parameter_names,
    parameters,
    text_of,
)
from zerograd.static.read.values import Fn, Klass, Origin, Thing, Value

DEEPEST = 6
"""Calls that are followed from one function to the next."""
Question = Literal["mentions", "steps", "grads", "updates", "runs_backward"]
"""A field of `Facts`: whether a function, or one that it calls, does this."""
QUESTIONS: tuple[Question, ...] = get_args(Question)


@dataclass(eq=False)
class KnownCalls:
    """What was found out about calls, for all functions of a file that are interpreted."""

    near: dict[Facts, list[Fn]] = field(default_factory=dict)
    """By the facts of some code, the functions of its file that it may call."""
    named: dict[tuple[int, str], list[Fn]] = field(default_factory=dict)
    """By the identity of a file and a name, its functions and methods of that name."""
    reached: dict[tuple[ast.AST, str], bool] = field(default_factory=dict)
    """Whether a function, or one that it calls, does this."""
    pending: set[tuple[ast.AST, str]] = field(default_factory=set)
    """What is being found out: functions may call each other in a circle."""
    provisional: set[tuple[ast.AST, str]] = field(default_factory=set)
    """Questions that were answered with no while they depended on something pending."""
    in_circle: bool = False
    """Whether the answer that is being found depends on something pending."""
    methods: dict[tuple[ast.ClassDef, str], list[Fn]] = field(default_factory=dict)
    """By class and name of a method, the methods that it reaches."""
    only: dict[str, Fn | None] = field(default_factory=dict)
    """By name, the method of the project's only class with a method of this name."""
    hooks: dict[str, list[Fn]] = field(default_factory=dict)
    """By name, the methods of the project that clip, and may be registered to be called."""
    made: dict[ast.ClassDef, list[Klass]] = field(default_factory=dict)
    """By class, the classes of the project that its methods make objects of."""


@dataclass(eq=False)
class CallGraph:
    """Says what a function, or one that it calls, does."""

    budget: Budget
    known: KnownCalls
    top: Module
    names: Names
    classes: Classes
    sites: ConstructionSites

    def touches_gradients(self, fn: Fn) -> bool:
        """Whether a function, or one it calls, does anything to gradients."""
        return self.reaches(fn, "mentions", 0)

    def class_touches_gradients(self, klass: Klass) -> bool:
        """Whether a method of a class, or of a base, does anything to gradients."""
        known = self.known.reached.get((klass.node, "mentions"))
        if known is None:
            known = any(
                self.touches_gradients(method)
                for base in self.classes.lineage(klass)
                for method in methods_of(base)
            )
            self.known.reached[(klass.node, "mentions")] = known
        return known

    def subclass_touches_gradients(self, fn: Fn) -> bool:
        """Whether an inherited method calls a method of its object's class that touches gradients."""
        owner = fn.owner.klass if isinstance(fn.owner, Thing) else None
        if owner is None or fn.klass is None or owner.node is fn.klass.node:
            return False
        return any(map(self.touches_gradients, self.methods_reached(owner, fn.name)))

    def methods_reached(self, klass: Klass, name: str) -> list[Fn]:
        """A method that objects of a class have, and those that it calls of the same object, by name."""
        key = (klass.node, name)
        known = self.known.methods.get(key)
        if known is None:
            seen: set[str] = set()
            todo, known = [name], []
            while todo:
                name = todo.pop()
                for method in self.method_chain(klass, name) if name not in seen else ():
                    known.append(method)
                    todo += sorted(method.module.facts[method.node].called)
                seen.add(name)
            self.known.methods[key] = known
        return known

    def steps_through(self, called: set[str], values: Iterable[Value]) -> bool:
        """Whether code that calls these names does something to gradients through one of these objects."""
        for value in values:
            if isinstance(value, Fn):
                if self.touches_gradients(value):
                    return True
            elif isinstance(value, Thing) and value.klass is not None:
                for base in self.classes.lineage(value.klass):
                    for method in self.classes.methods(base):
                        # An object may be called by any name.
                        named = method.name in called or method.name == CALLED
                        if named and self.touches_gradients(method):
                            return True
        return False

    def may_step(self, fn: Fn | None) -> bool:
        """Whether a function, or the top level, or what it calls, may step, by a call or by hand."""

        def reaches(what: Question) -> bool:
            return self.reaches(fn, what, 0) if fn is not None else self.top_reaches(what)

        return reaches("steps") or (reaches("grads") and reaches("updates"))

    def top_reaches(self, what: Question) -> bool:
        """Whether a fact holds for the top level or for what it calls."""
        facts = self.top.top
        return getattr(facts, what) or any(
            self.reaches(inner, what, deep)
            for inner, deep in self.callees(self.top, facts, None, 0)
        )

    def reaches(self, fn: Fn, what: Question, depth: int) -> bool:
        """Whether a fact holds for a function or for one that it calls."""
        question = (fn.node, what)
        if not self.known.pending and question in self.known.reached:
            return self.known.reached[question]
        facts = fn.module.facts[fn.node]
        return self._find_out(
            question,
            lambda: (
                getattr(facts, what)
                or any(
                    self.reaches(inner, what, deep) for inner, deep in self.all_callees(fn, depth)
                )
            ),
        )

    def all_callees(self, fn: Fn, depth: int) -> Iterator[tuple[Fn, int]]:
        """Functions of any file that a function may call, and how deep they are to be looked for."""
        if depth < DEEPEST:
            yield from self.callees(fn.module, fn.module.facts[fn.node], fn.klass, depth)
        yield from ((inner, depth + 2) for inner in self.held_callees(fn))
        yield from ((inner, depth + 2) for inner in self.handed_functions(fn))

    def _find_out(self, question: tuple[ast.AST, str], ask: Callable[[], bool]) -> bool:
        """The answer to a question. If the search for it asks the same question again, the answer there is no."""
        known = self.known
        answer = known.reached.get(question)
        if answer is not None:
            known.in_circle |= question in known.pending or question in known.provisional
            return answer
        self.budget.spend(EXPRESSION)
        known.reached[question] = False
        known.pending.add(question)
        outer, known.in_circle = known.in_circle, False
        try:
            answer = known.reached[question] = ask()
        finally:
            known.pending.discard(question)
        if not answer and known.in_circle:
            known.provisional.add(question)
        known.in_circle |= outer
        if not known.pending:
            if answer:  # a provisional no may depend on it
                for one in known.provisional:
                    del known.reached[one]
            known.provisional.clear()
            known.in_circle = False
        return answer

    def callees(
        self, module: Module, facts: Facts, klass: Klass | None, depth: int
    ) -> Iterator[tuple[Fn, int]]:
        """Functions that code with these facts may call, and how deep they are to be looked for."""
        inherited = klass if depth < 3 else None
        yield from ((inner, depth + 1) for inner in self.near_callees(module, facts, inherited))
        # In an order that is the same in every run: there is a limit to what is imported.
        imports = module.imports
        for owner, _, last in facts.call_parts:
            first = owner or last
            if first in imports:
                value = self.names.of_module(module, first)
                if isinstance(value, Origin) and value.path is not None:
                    value = self.names.attribute(value, last)
                if isinstance(value, Fn):
                    yield value, depth + 2
                elif isinstance(value, Klass):
                    for base in self.classes.lineage(value):
                        yield from ((method, depth + 2) for method in self.classes.methods(base))

    def held_callees(self, fn: Fn) -> Iterator[Fn]:
        """Methods that a function may call of objects that it is handed, or that others made for it.

        `def run(engine: Engine)`, `self.engine = Engine()` in another method, `engine = Engine()` outside.
        """
        module = fn.module
        made = self.classes_made(fn.klass) if fn.klass is not None else []
        notes = {arg.arg: arg.annotation for arg in parameters(fn.node) if arg.annotation}
        me = fn.node.args.args[0].arg if fn.klass is not None and fn.node.args.args else None
        for first, attr, last in module.facts[fn.node].call_parts:
            makers: list[tuple[Module, ast.expr]] = []
            if first == me and not attr:
                yield from self.kept_functions(fn, last)
            elif first in notes and not attr:
                makers = [(module, notes[first])]
            elif not attr:
                makers = [(module, value) for value in module.globals.get(first, ())]
            elif first == me and "." not in attr:
                makers = list(self.assigned(fn, attr))
                handed = self.classes_handed(fn, attr) if last in TRAINING else ()
                yield from (method for one in handed for method in self.methods_named(one, last))
            for where, value in makers:
                klass = self.names.class_of(where, value)
                if klass is not None:
                    yield from self.methods_named(klass, last)
            # `for callback in self.callbacks: callback.after_step(self)`, `self.call("after_step")`
            if made and not attr and not makers and first not in module.imports:
                for klass in made:
                    yield from self.methods_named(klass, last)

    def only_method(self, name: str) -> Fn | None:
        """The method of this name, if one class of the project has it, and a step: its objects are optimizers."""
        if name not in self.known.only:
            self.names.project.read.update(callers.searched(self.top.path))
            found = [
                Fn(method, module, name, None, None, Klass(klass, module))
                for module in map(
                    self.names.project.opened,
                    callers.files_that_define(self.top.path, name),
                )
                if module is not None
                for klass, method in module.methods_named(name)
            ]
            only = found[0] if len(found) == 1 else None
            steps = (
                only is not None
                and only.klass is not None
                and self.classes.defines(only.klass, "step")
            )
            self.known.only[name] = only if steps else None
        return self.known.only[name]

    def hooks(self, node: ast.Call) -> list[Fn]:
        """The methods of the project that a call names as hooks, and that clip, and do no more to gradients."""
        name = _hook_named(node)
        if name is None:
            return []
        if name not in self.known.hooks:
            self.names.project.read.update(callers.searched(self.top.path))
            self.known.hooks[name] = [
                Fn(method, module, name, None, None, Klass(klass, module))
                for module in map(
                    self.names.project.opened, callers.files_that_clip_in(self.top.path, name)
                )
                if module is not None
                for klass, method in module.methods_named(name)
                if not _is_of_library(klass, module)
            ]
        does: tuple[Question, ...] = ("steps", "runs_backward")
        return [
            fn
            for fn in self.known.hooks[name]
            if not any(self.reaches(fn, what, 0) for what in does)
        ]

    def handed_functions(self, fn: Fn) -> Iterator[Fn]:
        """The functions of the project that a function hands to others."""
        module = fn.module
        for name in sorted(module.facts[fn.node].handed):
            if name in module.functions or name in module.imports:
                value = self.names.of_module(module, name)
                if isinstance(value, Fn):
                    yield value

    def open_callees(self, fn: Fn) -> None:
        """Reads the files of what a function calls, even if nothing in them touches gradients."""
        for first, _, last in fn.module.facts[fn.node].call_parts:
            if (first or last) in fn.module.imports:
                self.names.open(fn.module, first or last)

    def classes_called(self, fn: Fn) -> list[Klass]:
        """The classes of the project that a function makes objects of."""
        module = fn.module
        names = {
            last
            for first, _, last in module.facts[fn.node].call_parts
            if not first and (last in module.imports or last in module.classes)
        }
        values = (self.names.of_module(module, name) for name in sorted(names))
        return [value for value in values if isinstance(value, Klass)]

    def classes_made(self, klass: Klass) -> list[Klass]:
        """The classes of other files that the methods of a class make objects of."""
        known = self.known.made.get(klass.node)
        if known is None:
            known = self.known.made[klass.node] = []
            for base in self.classes.lineage(klass):
                module = base.module
                names = {
                    last
                    for method in module.methods_of(base.node).values()
                    for first, _, last in module.facts[method].call_parts
                    if not first and last in module.imports and vocabulary.is_class_name(last)
                }
                values = (self.names.of_module(module, name) for name in sorted(names))
                known += [value for value in values if isinstance(value, Klass)]
        return known

    def assigned(self, method: Fn, attr: str) -> Iterator[tuple[Module, ast.expr]]:
        """What the class of a method and its bases give to an attribute, each with its module."""
        for base in self.classes.lineage(method.klass) if method.klass is not None else ():
            given = base.module.attributes_of(base.node).get(attr, ())
            yield from ((base.module, value) for _, value, _ in given)

    def classes_handed(self, method: Fn, attr: str) -> Iterator[Klass]:
        """The classes of the objects that other files hand a constructor, which keeps them under a name."""
        for base in self.classes.lineage(method.klass) if method.klass is not None else ():
            init = base.method("__init__")
            for name, _, kept in base.module.facts[init].stored if init is not None else ():
                if init is not None and kept == attr and name in parameter_names(init):
                    yield from self.sites.classes(self.sites.given(base, init, name))

    def kept_functions(self, method: Fn, attr: str) -> Iterator[Fn]:
        """The functions that an object keeps under a name: `step = train_step`, `self.step = partial(f, x)`."""
        for where, value in self.assigned(method, attr):
            if isinstance(value, ast.Call):
                # Of a call, the function that defines what is kept: `self.step = self.make_step()`.
                partial = value.args and text_of(value.func).endswith("partial")
                value = value.args[0] if partial else value.func
                owner, _, name = text_of(value).rpartition(".")
                if owner == "self" and method.klass is not None:
                    for made in self.methods_named(method.klass, name):
                        yield replace(made, name=attr)
            if isinstance(value, (ast.Name, ast.Attribute)):
                first, _, rest = text_of(value).partition(".")
                if first in where.functions or first in where.imports:
                    held = self.names.of_module(where, first)
                    if rest and isinstance(held, Origin) and held.path is not None:
                        held = self.names.attribute(held, rest)
                    if isinstance(held, Fn):
                        yield replace(held, name=attr)

    def keeps_backward(self, method: Fn, attr: str) -> bool:
        """Whether what an object keeps under a name, `self.compute = make_compute(n)`, runs a backward."""
        kept = list(self.kept_functions(method, attr))
        made = [inner for one in kept for inner in self.returned_functions(one)]
        return any(self.reaches(one, "runs_backward", 0) for one in (*kept, *made))

    def returned_functions(self, fn: Fn) -> Iterator[Fn]:
        """The functions of the project that a function returns: `return f`, `return partial(f, x)`."""
        for value in fn.module.facts[fn.node].returns:
            if isinstance(value, ast.Call) and value.args and called_name(value) == "partial":
                value = value.args[0]
            if isinstance(value, ast.Name):
                held = self.names.of_module(fn.module, value.id)
                if isinstance(held, Fn):
                    yield held

    def methods_named(self, klass: Klass, name: str) -> Iterator[Fn]:
        """The method of this name that a class defines or inherits."""
        for base in self.classes.lineage(klass):
            method = base.method(name)
            if method is not None:
                yield Fn(method, base.module, name, None, None, base)
                return

    def method_chain(self, klass: Klass, name: str) -> Iterator[Fn]:
        """The method of this name that objects of a class have, and those that it calls through `super()`."""
        for base in self.classes.lineage(klass):
            method = base.method(name)
            if method is not None:
                yield Fn(method, base.module, name, None, None, base)
                if not base.module.facts[method].called >= {"super", name}:
                    return

    def near_callees(self, module: Module, facts: Facts, klass: Klass | None) -> Iterator[Fn]:
        """Functions of the same file, and inherited methods, that code with these facts may call."""
        near = self.known.near.get(facts)
        if near is None:
            # Code that is handed a function, or a method of the object, may call it.
            handed = {name.removeprefix("self.") for name in facts.handed}
            near = self.known.near[facts] = [
                fn
                for last in sorted(facts.called)
                for fn in self._named(module, last)
                if fn.name != last or facts.may_call(fn.node)  # else it is a method of a class
            ] + [
                fn
                for last in sorted(handed - facts.called)
                for fn in self._named(module, last)
                if (f"self.{last}" if fn.klass is not None else last) in facts.handed
            ]
        yield from near
        if klass is not None:
            for base in self.classes.lineage(klass)[1:]:
                methods = self.classes.methods(base)
                yield from (method for method in methods if facts.may_call(method.node))

    def touches_gradients_here(self, fn: Fn) -> bool:
        """Whether a function does something to gradients, itself or through its own file."""
        facts = fn.module.facts[fn.node]
        return self._find_out(
            (fn.node, "here"),
            lambda: (
                facts.mentions
                or any(
                    map(
                        self.touches_gradients_here,
                        self.near_callees(fn.module, facts, fn.klass),
                    )
                )
            ),
        )

    def _named(self, module: Module, last: str) -> list[Fn]:
        """The functions of a file that code which calls this name may call."""
        known = self.known.named.get((id(module), last))
        if known is None:
            known = [
                Fn(method, module, last, None, None, Klass(owner, module))
                for owner, method in module.methods_named(last)
            ]
            if last in module.functions:
                known.append(Fn(module.functions[last], module, last))
            elif last in module.classes:
                known += methods_of(Klass(module.classes[last], module, last))
            self.known.named[id(module), last] = known
        return known


def _hook_named(node: ast.Call) -> str | None:
    """The hook that a call runs: its own name, or what it is handed, if that is the name of a hook."""
    func = node.func
    if isinstance(func, ast.Attribute) and vocabulary.names_hook(func.attr):
        return None if text_of(func.value) in ("self", "super()") else func.attr
    for one in arguments(node):
        if isinstance(one, ast.Constant) and isinstance(one.value, str):
            if vocabulary.names_hook(one.value):
                return one.value
        elif isinstance(one, ast.Attribute) and one.attr in ("name", "value"):
            member = last_name(text_of(one.value))
            if vocabulary.names_hook(member):
                return member
    return None


def _is_of_library(klass: ast.ClassDef, module: Module) -> bool:
    """Whether a class inherits from a library that is known, which calls its methods itself."""
    bases = map(text_of, klass.bases)
    return registry.is_managed(module.imports.get(first_name(base), base) for base in bases)
