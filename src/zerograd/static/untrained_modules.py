"""Modules whose parameters an optimizer has and no loss reaches.

Two mistakes show in the text of a file alone: the output of the module is detached at its only use, and
the name of the module gets another one after the optimizer was made.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import takewhile

from zerograd.core.events import Backward, Site, Untrained
from zerograd.core.records import replace
from zerograd.static.frameworks.registry import CLIPS
from zerograd.static.frameworks.table import Role
from zerograd.static.read import vocabulary
from zerograd.static.read.module import Module
from zerograd.static.read.syntax_tree import called_name, last_name, site_of, text_of

_CUTS = frozenset({"detach", "data"})
_SETUP = vocabulary.PASS_THROUGH | {"zero_grad", "state_dict", "load_state_dict"}
"""Methods of a module that use nothing of what it computes."""
_PARAMETERS = frozenset({"parameters", "named_parameters"})


def untrained_modules(module: Module) -> Iterator[Backward]:
    """For each untrained module, the backward that should reach it."""
    facts = module.facts[module.tree]
    if "backward" not in facts.called or facts.grads:
        return  # where gradients are looked at, the program may do the rest of the backward itself
    trained = {name.rpartition(".")[0] for name in facts.calls if name.endswith(".parameters")}
    trained &= facts.calls
    cuts = len(trained) > 1 and ("detach" in facts.called or _reads_data(module))
    # What a function is handed may have other uses: these need not be looked at, and most files have no others.
    cuts = cuts and not {last_name(name) for name in trained} <= _parameters(module)
    if cuts or _are_rebound(trained, module):
        yield from _Uses(module, trained).found()


def _parameters(module: Module) -> set[str]:
    """The names of what functions are handed."""
    functions = (
        one for one in module.facts if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))
    )
    found = (one.args for one in functions)
    return {arg.arg for args in found for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs)}


def _reads_data(module: Module) -> bool:
    return any(attr == "data" for facts in module.facts.values() for _, attr in facts.attributes)


def _are_rebound(names: set[str], module: Module) -> bool:
    """Whether the top level, or a function, gives a variable of one of these names more than one value."""
    for name in names:
        if len(module.globals.get(name, ())) > 1:
            return True
        for facts in module.facts.values():
            if name in facts.assigned and len(facts.locals.get(name, ())) > 1:
                return True
    return False


class _Uses:
    """Every place of a file where a module is mentioned that an optimizer trains."""

    def __init__(self, module: Module, trained: set[str]) -> None:
        self.path = module.path
        self.trained = trained
        self.nodes = module.nodes
        self.above = self.nodes.above

    def found(self) -> Iterator[Backward]:
        """The untrained modules."""
        for name in sorted(self.trained):
            made = [one for one in self.optimizers(name) if one is not None]
            if not made:
                continue
            cut = self.cut(name)
            if cut is not None:
                yield self.event(cut, cut, Untrained(name, self.site(made[0])))
            elif "." not in name:
                yield from self.replaced(name, made)

    def names_read(self, name: str) -> list[ast.expr]:
        """Where a variable of this name is read."""
        return [one for one in self.nodes.names.get(name, ()) if isinstance(one.ctx, ast.Load)]

    def mentions(self, name: str) -> list[ast.expr]:
        """Where a variable or an attribute of this name is read."""
        attributes = self.nodes.attributes.get(name, ())
        return self.names_read(name) + [one for one in attributes if isinstance(one.ctx, ast.Load)]

    def stored(self, name: str) -> list[ast.AST]:
        """Where a variable of this name gets a value, other than as a parameter."""
        return [one for one in self.nodes.names.get(name, ()) if not isinstance(one.ctx, ast.Load)]

    def event(self, place: ast.AST, before: ast.AST, untrained: Untrained) -> Backward:
        reached = self.backward_after(before)
        site = None if reached is None else self.site(reached)
        return Backward(self.site(place), untrained=replace(untrained, backward=site))

    def site(self, node: ast.AST) -> Site:
        return site_of(node, self.path)

    def optimizers(self, name: str) -> list[ast.Call | None]:
        """For each use of a module's parameters the optimizer that gets them; None where none does."""
        found: list[ast.Call | None] = []
        for node in self.mentions(last_name(name)):
            method = self.above.get(node)
            if isinstance(method, ast.Attribute) and method.attr in _PARAMETERS:
                found.append(self.given_to(method))
        return found

    def given_to(self, node: ast.AST, *, named: bool = False) -> ast.Call | None:
        """The optimizer that gets parameters, which may be in a list that has a name."""
        above = node
        for above in self.around(node):
            if isinstance(above, ast.Call):
                if vocabulary.role_of_call(text_of(above.func)) is Role.OPTIMIZER:
                    return above
        statement = self.above[above]
        if named or not isinstance(statement, (ast.Assign, ast.AugAssign)):
            return None
        target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
        read = self.mentions(target.id) if isinstance(target, ast.Name) else []
        given = (self.given_to(one, named=True) for one in read)
        return next((one for one in given if one is not None), None)

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        """What a node is in, from the inside to its statement."""
        return takewhile(
            lambda above: isinstance(above, (ast.expr, ast.keyword)), self.nodes.around(node)
        )

    # Detached at its only use

    def cut(self, name: str) -> ast.AST | None:
        """Where the output of a module is cut off, if nothing else is done with the module."""
        calls = self.only_calls(name)
        if len(calls) != 1 or self.computes_no_graph(calls[0]):
            return None
        cuts = self.cuts_of(calls[0])
        if cuts is None or not any(self.is_read(cut, name) for cut in cuts):
            return None
        return cuts[0]

    def only_calls(self, name: str) -> list[ast.Call]:
        """The calls of a module; none if anything else may use it."""
        last, calls = last_name(name), []
        if last in self.nodes.parameters:
            return []
        for node in self.mentions(last):
            above = self.above[node]
            if isinstance(above, ast.Call) and above.func is node:
                calls.append(above)
            elif not isinstance(above, ast.Attribute) or not self.is_setup(above):
                return []
        return calls

    def is_setup(self, method: ast.Attribute) -> bool:
        """Whether a method of a module uses nothing of what it computes, and changes no parameter."""
        call = self.above[method]
        if not isinstance(call, ast.Call) or call.func is not method:
            return False
        if method.attr not in _PARAMETERS:
            return method.attr in _SETUP
        above = [one for one in self.around(call) if isinstance(one, ast.Call)]
        names = [called_name(one) for one in above]
        return any(one in CLIPS for one in names) or self.given_to(method) is not None

    def computes_no_graph(self, call: ast.Call) -> bool:
        """Whether a call is under `no_grad`."""
        for node in self.nodes.around(call):
            texts: list[ast.expr] = []
            if isinstance(node, (ast.With, ast.AsyncWith)):
                texts = [item.context_expr for item in node.items]
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                texts = node.decorator_list
            if any("no_grad" in text_of(one) or "inference" in text_of(one) for one in texts):
                return True
        return False

    def cuts_of(self, value: ast.expr) -> list[ast.AST] | None:
        """Where a value is cut off; None if it is also read as it is."""
        above = self.above[value]
        if isinstance(above, ast.Attribute) and above.attr in _CUTS:
            call = self.above[above]
            return [call if isinstance(call, ast.Call) and call.func is above else above]
        if isinstance(above, ast.Attribute) and above.attr in vocabulary.CUT:
            return []
        if not isinstance(above, ast.Assign):
            return None
        names = self.reads_of(above)
        if not names:
            return None
        found = []
        for node in names:
            cuts = None if self.above[node] is above else self.cuts_of(node)
            if cuts is None:
                return None
            found += cuts
        return found

    def reads_of(self, assign: ast.Assign) -> list[ast.expr]:
        """Where a variable is read that gets a value here, and nowhere else in its function."""
        (target, *others) = assign.targets
        if others or not isinstance(target, ast.Name):
            return []
        home = self.nodes.function(assign)
        parameters = self.nodes.parameters.get(target.id, ())
        values = (*self.stored(target.id), *parameters)
        stored = [one for one in values if self.nodes.function(one) is home]
        read = self.names_read(target.id)
        if len(stored) > 1 or any(self.nodes.function(one) is not home for one in read):
            return []
        return read

    def is_read(self, cut: ast.AST, name: str) -> bool:
        """Whether another module that is trained reads what was cut off."""
        for above in self.around(cut):
            if isinstance(above, ast.Call) and text_of(above.func) in self.trained - {name}:
                return True
        assign = self.above[cut]
        if not isinstance(assign, ast.Assign):
            return False
        return any(self.is_read(node, name) for node in self.reads_of(assign))

    # Another module under the name

    def replaced(self, name: str, optimizers: list[ast.Call]) -> Iterator[Backward]:
        """Where a name gets another module after the last optimizer of the first one was made."""
        made = max(map(self.statement, optimizers), key=lambda one: one.lineno)
        home = self.above[made]
        body = getattr(home, "body", [])
        if made not in body or isinstance(home, (ast.For, ast.While, ast.AsyncFor, ast.If)):
            return
        before, after = body[: body.index(made)], body[body.index(made) + 1 :]
        new = next((one for one in after if self.gives(one, name)), None)
        if new is None or not any(self.gives(one, name) for one in before):
            return
        later = [node for one in after[after.index(new) + 1 :] for node in ast.walk(one)]
        calls = {text_of(one.func) for one in later if isinstance(one, ast.Call)}
        if isinstance(made, ast.Assign) and name in calls and not self.is_changed(made):
            ends = {last_name(one) for one in calls}
            if ends >= {"backward", "step"}:
                yield self.event(new, new, Untrained(name, self.site(made), replaced=True))

    def gives(self, statement: ast.AST, name: str) -> bool:
        """Whether a statement gives a name a new object, which is not made of what the name held before."""
        if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
            return False
        targets = [one.id for one in statement.targets if isinstance(one, ast.Name)]
        read = {one.id for one in ast.walk(statement.value) if isinstance(one, ast.Name)}
        return targets == [name] and name not in read

    def is_changed(self, made: ast.Assign) -> bool:
        """Whether an optimizer gets other parameters later."""
        (target, *_) = made.targets
        if not isinstance(target, ast.Name):
            return True
        values = (*self.stored(target.id), *self.nodes.parameters.get(target.id, ()))
        if any(getattr(one, "lineno", 0) > target.lineno for one in values):
            return True
        methods = (self.above[node] for node in self.mentions(target.id))
        return any(
            isinstance(one, ast.Attribute) and one.attr in ("param_groups", "add_param_group")
            for one in methods
        )

    def statement(self, node: ast.AST) -> ast.stmt:
        while not isinstance(node, ast.stmt):
            node = self.above[node]
        return node

    def backward_after(self, node: ast.AST) -> ast.AST | None:
        """The next backward in the same function."""
        line, home = getattr(node, "lineno", 0), self.nodes.function(node)
        calls = (self.above[one] for one in self.mentions("backward"))
        found = [
            one
            for one in calls
            if isinstance(one, ast.Call) and one.lineno >= line and self.nodes.function(one) is home
        ]
        return min(found, key=lambda one: one.lineno, default=None)
