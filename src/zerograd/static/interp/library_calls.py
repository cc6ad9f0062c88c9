"""Calls of what is not part of the project: Python's own functions, torch, and everything unseen."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TypeGuard

from zerograd.core.records import dataclass, replace
from zerograd.static.frameworks import registry
from zerograd.static.interp.constructors import Constructors
from zerograd.static.interp.effects import Effects, is_constant, keyword
from zerograd.static.interp.evaluator import Evaluator
from zerograd.static.interp.framework_calls import FrameworkCalls, unwrapped
from zerograd.static.interp.gradient_calls import ParameterCalls
from zerograd.static.interp.objects import Objects
from zerograd.static.interp.step_calls import StepCalls, without_limit
from zerograd.static.read import vocabulary
from zerograd.static.read.syntax_tree import last_name, text_of
from zerograd.static.read.values import (
    NOTHING,
    Bound,
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
    mix,
    roots,
)


@dataclass(eq=False)
class BuiltinCalls:
    """Handles `zip`, `enumerate`, `list`, `getattr` and their like."""

    evaluator: Evaluator
    objects: Objects
    parameters: ParameterCalls

    def call(self, node: ast.Call, name: str) -> Value | None:
        """The value of a call of one of these; None for any other call."""
        handler = _BUILTINS.get(last_name(name))
        return handler(self, node, name) if handler is not None else None

    def zipped(self, node: ast.Call, name: str) -> Value | None:
        """`zip(…)` of known items, or of parameters."""
        columns = [self.evaluator.value(arg) for arg in node.args]
        if columns and all(isinstance(column, Many) for column in columns):
            items = (column.items for column in columns if isinstance(column, Many))
            return Many(tuple(Many(row) for row in zip(*items, strict=False)))
        if any(isinstance(column, Params) for column in columns):
            return Each(Many(tuple(_each(column) for column in columns)))
        return NOTHING

    def enumerated(self, node: ast.Call, name: str) -> Value | None:
        """`enumerate(…)` of known items, or of parameters."""
        inner = self.evaluator.value(node.args[0]) if node.args else NOTHING
        if isinstance(inner, Many):
            return Many(tuple(Many((Lit(index), item)) for index, item in enumerate(inner.items)))
        if isinstance(inner, (Params, Each)):
            return Each(Many((NOTHING, _each(inner))))
        return Tensor()

    def same(self, node: ast.Call, name: str) -> Value | None:
        """`list(x)` and its like hold what x holds."""
        arguments = self.evaluator.arguments(node)
        return arguments[0] if arguments else Many(())

    def filtered(self, node: ast.Call, name: str) -> Value | None:
        """`filter(test, x)` holds what x holds."""
        arguments = self.evaluator.arguments(node)
        return arguments[1] if len(arguments) == 2 else NOTHING

    def mapped(self, node: ast.Call, name: str) -> Value | None:
        """`map(model, (a, b))` calls the model with each of them."""
        if (
            name != "map"
            or len(node.args) != 2
            or not isinstance(node.args[1], (ast.Tuple, ast.List))
        ):
            return None
        function, inputs = node.args[0], node.args[1].elts
        if not isinstance(function, (ast.Name, ast.Attribute)):
            return None
        calls = (ast.copy_location(ast.Call(function, [one], []), one) for one in inputs)
        return Many(tuple(self.evaluator.value(call) for call in calls))

    def chained(self, node: ast.Call, name: str) -> Value | None:
        """`itertools.chain(…)` of parameters."""
        if "itertools" not in name and name != "chain":
            return None
        arguments = self.evaluator.arguments(node)
        if len(arguments) == 1 and isinstance(arguments[0], Many):
            arguments = list(arguments[0].items)
        return all_params(arguments) or NOTHING

    def cast(self, node: ast.Call, name: str) -> Value | None:
        """`typing.cast(type, x)` is x."""
        given = self.evaluator.arguments(node)
        return given[1] if len(given) == 2 else None

    def partial(self, node: ast.Call, name: str) -> Value | None:
        """`functools.partial(f, …)` does what f does."""
        arguments = self.evaluator.arguments(node)
        if not arguments or without_limit(node):
            return None
        first = arguments[0]
        if isinstance(first, Fn) and not any(isinstance(arg, ast.Starred) for arg in node.args):
            names = [keyword.arg for keyword in node.keywords]
            later = zip(names, arguments[len(node.args) :], strict=False)
            named = tuple((name, value) for name, value in later if name is not None)
            given = (*first.given, *arguments[1 : len(node.args)])
            return replace(first, given=given, named=(*first.named, *named))
        return first if isinstance(first, (Bound, Fn, Origin)) else None

    def dictionary(self, node: ast.Call, name: str) -> Value | None:
        """`dict(a=…)`."""
        if node.args:
            return self.same(node, name)
        pairs = [(keyword.arg, self.evaluator.value(keyword.value)) for keyword in node.keywords]
        return KnownDict(tuple(pairs))

    def get_attribute(self, node: ast.Call, name: str) -> Value | None:
        """`getattr(x, "name")`, `getattr(self, f"optimizer_{i}")`, `getattr(torch.optim, name)`."""
        if len(node.args) < 2:
            return NOTHING
        owner, attr = self.evaluator.value(node.args[0]), node.args[1]
        asked = self.evaluator.value(attr)
        if isinstance(asked, Lit):
            return self.objects.attribute(owner, asked.value) if _is_name(asked.value) else NOTHING
        if isinstance(owner, Thing) and isinstance(attr, ast.JoinedStr):
            return Thing(owner.key.attribute(text_of(attr)[2:-1]))
        if isinstance(owner, Origin) and owner.name == "torch.optim":
            return Origin(f"{owner.name}.{text_of(attr)}")
        return NOTHING

    def set_attribute(self, node: ast.Call, name: str) -> Value | None:
        """`setattr(p, "grad", value)` does what `p.grad = value` does; one with a computed name may replace a loss."""
        if len(node.args) != 3:
            return None
        if not isinstance(node.args[1], ast.Constant):
            holder = self.evaluator.peek(node.args[0])
            if isinstance(holder, Thing) and isinstance(self.evaluator.peek(node.args[2]), Tensor):
                self.objects.known.overwritten.add(holder.key)
        if not is_constant(node.args[1], "grad"):
            return None
        owner, value = self.evaluator.value(node.args[0]), self.evaluator.value(node.args[2])
        self.parameters.store(owner, "grad", value, node.args[2], node)
        return Lit(None)


def _each(column: Value) -> Value:
    """What each item of a collection is like."""
    if isinstance(column, Each):
        return column.item
    return column if isinstance(column, (Params, Grad, Tensor)) else NOTHING


def _is_name(value: object) -> TypeGuard[str]:
    return isinstance(value, str)


_BUILTINS: dict[str, Callable[[BuiltinCalls, ast.Call, str], Value | None]] = {
    "zip": BuiltinCalls.zipped,
    "enumerate": BuiltinCalls.enumerated,
    "list": BuiltinCalls.same,
    "tuple": BuiltinCalls.same,
    "set": BuiltinCalls.same,
    "iter": BuiltinCalls.same,
    "sorted": BuiltinCalls.same,
    "reversed": BuiltinCalls.same,
    "filter": BuiltinCalls.filtered,
    "map": BuiltinCalls.mapped,
    "chain": BuiltinCalls.chained,
    "from_iterable": BuiltinCalls.chained,
    "dict": BuiltinCalls.dictionary,
    "partial": BuiltinCalls.partial,
    "cast": BuiltinCalls.cast,
    "getattr": BuiltinCalls.get_attribute,
    "setattr": BuiltinCalls.set_attribute,
}


@dataclass(eq=False)
class LibraryCalls:
    """Handles calls of functions and classes from outside the project."""

    evaluator: Evaluator
    effects: Effects
    constructors: Constructors
    frameworks: FrameworkCalls
    steps: StepCalls
    builtins: BuiltinCalls

    def call(self, node: ast.Call, name: str) -> Value:
        """A call of something that is not part of the project, by its dotted name."""
        last = last_name(name)
        handled = (
            self.builtins.call(node, name)
            or self.known_call(node, name)
            or self.frameworks.function(node, name)
        )
        if handled is not None:
            return handled
        if last in registry.CLIPS:
            return self.steps.clip(node, None)
        arguments = self.evaluator.arguments(node)
        if self.steps.only_clips(last, arguments):
            return self.steps.clip(node, None)
        role = vocabulary.role_of_call(name)
        if role and not name.startswith(("os.", "logging.", "time.")):
            return self.constructors.make(node, name, role, arguments)
        made = registry.made_by(name)
        if made is not None:
            return self.constructors.several(node, made.items)
        if node.args and registry.WRAPPERS.search(last):
            return unwrapped(arguments[:1] if last[:1].isupper() else arguments[: len(node.args)])
        if not name.startswith("torch."):
            known = vocabulary.is_of_a_library(name)
            self.effects.hand_to_unseen(node, arguments, last, known=known)
        leaf = last == "Parameter" or is_constant(keyword(node, "requires_grad"), True)
        built = vocabulary.is_class_name(last) and (
            not name.startswith("torch.") or name.startswith("torch.nn.")
        )
        if built and not leaf and not name.startswith("torch."):
            return self.constructors.record(node, last, arguments)
        if leaf and (name.startswith("torch.") or last in ("Parameter", "Variable")):
            return self.constructors.built_leaf(node)
        if leaf or built:
            return self.constructors.built_object(node, arguments)
        return self.effects.result_of([], arguments, node=node)

    def known_call(self, node: ast.Call, name: str) -> Value | None:
        """A call that does something to gradients; None if it is none of those."""
        handler = _KNOWN.get(last_name(name))
        return handler(self, node, name) if handler is not None else None

    def autograd_backward(self, node: ast.Call, name: str) -> Value | None:
        """`torch.autograd.backward(losses)`."""
        if not name.endswith("autograd.backward"):
            return None
        arguments = self.evaluator.arguments(node)
        first = arguments[0] if arguments else NOTHING
        self.effects.backward(node, mix(list(first.items)) if isinstance(first, Many) else first)
        return Lit(None)

    def foreach_zero(self, node: ast.Call, name: str) -> Value | None:
        """`torch._foreach_zero_(gradients)`."""
        arguments = self.evaluator.arguments(node)
        if arguments:
            keys, _ = roots(arguments[0])
            self.effects.clear(Grad(keys), node, to_none=False)
        return Lit(None)

    def copied(self, node: ast.Call, name: str) -> Value | None:
        """`copy.deepcopy(model)` is another model, of the same class, without gradients."""
        arguments = self.evaluator.arguments(node)
        given = arguments[0] if arguments else NOTHING
        if not isinstance(given, Thing) or given.role:
            return None
        return replace(self.constructors.built_object(node), klass=given.klass)


_KNOWN: dict[str, Callable[[LibraryCalls, ast.Call, str], Value | None]] = {
    "deepcopy": LibraryCalls.copied,
    "backward": LibraryCalls.autograd_backward,
    "_foreach_zero_": LibraryCalls.foreach_zero,
}
