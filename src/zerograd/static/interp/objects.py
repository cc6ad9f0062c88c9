"""Objects and classes: what their attributes hold, what their methods reach."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from zerograd.static.interp import obviously_right
from zerograd.static.interp.environment import Frame, Scope, called
from zerograd.static.read import vocabulary
from zerograd.static.read.budget import EXPRESSION
from zerograd.static.read.file_index import (
    Facts,
    Function,
    blocks,
    nodes,
    parameters,
    text_of,
)
from zerograd.static.read.project import Module
from zerograd.static.read.values import (
    NOTHING,
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
)

_PLAIN_BASES = frozenset(
    {"object", "ABC", "Module", "Generic", "Protocol", "NamedTuple", "Enum", "Exception"}
)


class Classes(Scope):
    """Looks into objects and their classes."""

    def attribute(self, owner: Value, attr: str) -> Value:
        if isinstance(owner, Thing):
            return self.thing_attribute(owner, attr)
        if isinstance(owner, Params):
            return Grad(owner.keys, owner.some) if attr == "grad" else owner
        if isinstance(owner, Grad):
            return owner
        if isinstance(owner, Tensor):
            if attr == "grad":
                # A computed tensor is nobody's parameter; one that came from somewhere may be.
                return Grad(frozenset({"@result"}) if owner.roots else frozenset())
            return Tensor() if attr in vocabulary.CUT else owner
        if isinstance(owner, Origin):
            if owner.name.startswith("module:"):
                return self.module_attribute(owner.name[7:], attr)
            return Origin(f"{owner.name}.{attr}")
        if isinstance(owner, Klass):
            method = owner.method(attr)
            if method is not None:
                return Fn(method, owner.module, attr, None, None, owner)
        return NOTHING

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
            self.role(owner)
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
                method = base.method(attr)
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
        empty = (Lit(None), Many(()), Table(()))
        values = [value for value in values if value not in empty] or values
        if not values:
            return None
        ranked = sorted(values, key=lambda value: not (isinstance(value, Thing) and value.role))
        key = f"{owner.key}.{attr}"
        if isinstance(ranked[0], Tensor):
            methods = klass.module.methods.get(f"self.{attr}", frozenset())
            role = vocabulary.role_of_use(f"self.{attr}", methods) if methods else ""
            if role or methods & vocabulary.OBJECT_METHODS:
                return Thing(key, role)
        if isinstance(ranked[0], Lit) and len(values) > 1:
            return Thing(key)
        return called(ranked[0], key)

    def attribute_value(
        self, owner: Thing, klass: Klass, method: Function, node: ast.expr, index: int | None
    ) -> Value:
        frame = self.frame
        env: dict[str, Value] = {arg.arg: NOTHING for arg in parameters(method)}
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
        formal = {arg.arg for arg in parameters(method)}
        return {
            name: Thing(f"{owner.key}.{attr}")
            for name, holder, attr in klass.module.facts[method].stored
            if holder == me and name in formal
        }

    def locals_before(self, klass: Klass, method: Function, node: ast.expr) -> None:
        """Simple local variables that an attribute's value is built from."""
        known = klass.module.facts[method].locals
        wanted = {n.id for n in nodes(node) if isinstance(n, ast.Name)} if known else set()
        found = [one for name in wanted & known.keys() for one in known[name]]
        for _, line, name, value in sorted(found, key=lambda one: one[0]):
            if line < node.lineno:
                self.frame.env[name] = self.peek(value)

    def lineage(self, klass: Klass, depth: int = 0) -> list[Klass]:
        """The class and its visible bases, nearest first."""
        bases = self.project.bases.get((klass.node, depth))
        if bases is None:
            bases = self.project.bases[klass.node, depth] = list(self.bases(klass, depth))
        return [klass, *bases]

    def bases(self, klass: Klass, depth: int) -> Iterator[Klass]:
        if depth > 5:
            return
        for base in klass.node.bases:
            value = self.base(klass, base)
            if isinstance(value, Klass) and value.node is not klass.node:
                yield from self.lineage(value, depth + 1)

    def base(self, klass: Klass, node: ast.expr) -> Value:
        """What a class inherits from."""
        if not isinstance(node, (ast.Name, ast.Attribute)):
            return NOTHING
        frame, self.frame = self.frame, Frame(klass.module)
        try:
            return self.peek(node)
        finally:
            self.frame = frame

    def whole(self, klass: Klass) -> bool:
        """Whether all bases of a class are visible, or known to leave gradients alone."""
        return all(
            isinstance(self.base(part, base), Klass)
            or text_of(base).rsplit(".", 1)[-1] in _PLAIN_BASES
            for part in self.lineage(klass)
            for base in part.node.bases
        )

    def locals_of(self, fn: Fn) -> frozenset[str]:
        return frozenset(fn.module.facts[fn.node].assigned)

    def relevant(self, fn: Fn) -> bool:
        """Whether a function, or one it calls, does anything to gradients."""
        return self.reaches(fn, "mentions", 0)

    def may_step(self, fn: Fn | None) -> bool:
        """Whether a function, or the top level, or what it calls, may step, by a call or by hand."""

        def reaches(what: str) -> bool:
            return self.reaches(fn, what, 0) if fn is not None else self.top_reaches(what)

        return reaches("steps") or (reaches("grads") and reaches("updates"))

    def top_reaches(self, what: str) -> bool:
        """Whether a fact holds for the top level or for what it calls."""
        module = self.top.module
        top = module.top
        return getattr(top, what) or any(
            self.reaches(inner, what, deep) for inner, deep in self.callees(module, top, None, 0)
        )

    def reaches(self, fn: Fn, what: str, depth: int) -> bool:
        """Whether a fact holds for a function or for one that it calls."""
        known = fn.module.reached.get((fn.node, what))
        if known is None:
            self.work.read(EXPRESSION)
            fn.module.reached[(fn.node, what)] = False
            known = getattr(fn.module.facts[fn.node], what) or (
                depth < 6
                and any(
                    self.reaches(inner, what, deep)
                    for inner, deep in self.callees(
                        fn.module, fn.module.facts[fn.node], fn.klass, depth
                    )
                )
            )
            fn.module.reached[(fn.node, what)] = known
        return known

    def callees(
        self, module: Module, facts: Facts, klass: Klass | None, depth: int
    ) -> Iterator[tuple[Fn, int]]:
        """Functions that code with these facts may call, and how deep they are to be looked for."""
        inherited = klass if depth < 3 else None
        yield from ((inner, depth + 1) for inner in self.near_callees(module, facts, inherited))
        # In an order that is the same in every run: there is a limit to what is imported.
        for name in sorted(facts.calls):
            first, last = name.split(".")[0], name.rpartition(".")[2]
            if first in module.imports:
                value = self.global_name(module, first)
                if isinstance(value, Origin) and value.name.startswith("module:"):
                    value = self.attribute(value, last)
                if isinstance(value, Fn):
                    yield value, depth + 2
                elif isinstance(value, Klass):
                    yield from ((method, depth + 2) for method in self.methods(value))

    def near_callees(self, module: Module, facts: Facts, klass: Klass | None) -> Iterator[Fn]:
        """Functions of the same file, and inherited methods, that code with these facts may call."""
        near = self.project.near.get(facts)
        if near is None:
            near = self.project.near[facts] = list(_in_file(module, facts))
        yield from near
        if klass is not None:
            for base in self.lineage(klass)[1:]:
                yield from (method for method in self.methods(base) if method.name in facts.called)

    def methods(self, klass: Klass) -> list[Fn]:
        """The methods that a class defines itself."""
        known = self.project.methods.get(klass.node)
        if known is None:
            known = self.project.methods[klass.node] = list(_methods(klass))
        return known

    def touches_here(self, fn: Fn) -> bool:
        """Whether a function does something to gradients, itself or through its own file."""
        known = fn.module.reached.get((fn.node, "here"))
        if known is None:
            fn.module.reached[(fn.node, "here")] = False
            facts = fn.module.facts[fn.node]
            known = facts.mentions or any(
                map(self.touches_here, self.near_callees(fn.module, facts, fn.klass))
            )
            fn.module.reached[(fn.node, "here")] = known
        return known

    def plainly_right(self, fn: Fn) -> bool:
        """Whether a function, and all it calls that does anything to gradients, is plainly right."""
        known = fn.module.reached.get((fn.node, "plain"))
        if known is None:
            fn.module.reached[(fn.node, "plain")] = False
            facts, methods = fn.module.facts[fn.node], fn.module.methods
            if obviously_right.is_silent(facts, methods):
                known = all(self.plainly_right(inner) for inner in self.busy_callees(fn))
            else:
                only = sum(bool(other.words) for other in fn.module.facts.values()) == 1
                known = obviously_right.is_plain(facts, blocks(fn.node), methods, only) and not any(
                    self.busy_callees(fn)
                )
            fn.module.reached[(fn.node, "plain")] = known
        return known

    def busy_callees(self, fn: Fn) -> Iterator[Fn]:
        """What a function calls in its own file that does something to gradients.

        Who clears, fills and steps in one block does not have others do it in between.
        """
        near = self.near_callees(fn.module, fn.module.facts[fn.node], fn.klass)
        return (inner for inner in near if self.touches_here(inner))


def _in_file(module: Module, facts: Facts) -> Iterator[Fn]:
    """The functions of a file that code with these facts may call."""
    for last in sorted(facts.called):
        for owner, method in module.methods_named(last):
            yield Fn(method, module, last, None, None, Klass(owner, module))
        if last in module.functions:
            yield Fn(module.functions[last], module, last)
        elif last in module.classes:
            yield from _methods(Klass(module.classes[last], module, last))


def _methods(klass: Klass) -> Iterator[Fn]:
    for node in klass.node.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield Fn(node, klass.module, node.name, None, None, klass)
