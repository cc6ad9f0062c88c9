"""Optimizers that a file makes or is handed, that gradients are computed for, and that nothing steps.

An optimizer is followed through the names that it gets. Code that does more with it than to clear, save or schedule it
may step it: then it is not reported.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from zerograd.core.events import End
from zerograd.core.late_pattern import pattern
from zerograd.static.frameworks import registry
from zerograd.static.frameworks.torch import OPTIMIZER_NAME, SCALER_NAME, SCHEDULER
from zerograd.static.read import vocabulary
from zerograd.static.read.file_index import Facts
from zerograd.static.read.module import Module
from zerograd.static.read.project import Project
from zerograd.static.read.syntax_tree import (
    FUNCTIONS,
    LOOPS,
    Function,
    arguments,
    called_name,
    calls_in,
    first_name,
    last_name,
    nodes,
    parameter_names,
    site_of,
    targets,
    text_of,
)

_READS = frozenset(
    {"zero_grad", "state_dict", "load_state_dict", "param_groups", "add_param_group", "defaults", "state"}
)  # fmt: skip
"""What an optimizer can be asked for without a step."""
_PHASE = frozenset({"zero_grad", "backward", "manual_backward", "step", "backward_step"})
"""Calls that begin or end what one optimizer does in an iteration."""
_ITEMS = frozenset({"values", "items", "keys", "get"})
_SAME_ITEMS = frozenset({"enumerate", "zip", "list", "tuple", "reversed", "iter"})
"""Calls that give the optimizers of a collection."""
_LOOKS = pattern(
    r"^(print|len|id|isinstance|type|unscale_|clip_gradients)$|^_?(save|load|log)(_|$)"
)
"""Calls that leave an optimizer that they are handed as it is, or only change its gradients."""
_ONLY_LOOK = (
    ast.Expr, ast.Compare, ast.BoolOp, ast.UnaryOp, ast.If, ast.Delete, ast.FormattedValue
)  # fmt: skip
_FREEZES = frozenset({"requires_grad_", "eval", "load_state_dict", "requires_grad"})
"""What is done with a module that may not be trained."""
_HARMLESS_BASES = frozenset({"object", "Module", "ABC", "Generic", "Protocol", "NamedTuple"})
_ONCE = pattern(
    r"(^|_)(test|benchmark|profile|debug|demo|find|estimate|measure|check|lr_finder)(_|$)",
    re.IGNORECASE,
)
"""Functions and classes with such names may compute gradients and need no step."""
_STEPS = pattern(
    r"step|optimi[sz]|train(?!ing_loss|_loss)|learn|fit|apply|hook|callback|closure|backward|^(on|after|before)_"
    r"|^update_|accumulat|(^|_)grad",
    re.IGNORECASE,
)
"""Calls of such names may step an optimizer, or use gradients."""
_HARMLESS = frozenset({"train", "eval", "zero_grad", "no_grad", "enable_grad", "set_grad_enabled"})


def never_stepped(module: Module, project: Project) -> Iterator[End]:
    """For each such optimizer, an event at the end of the file."""
    whole = module.facts[module.tree]
    if not ("backward" in whole.called or whole.grads):
        return
    if not module.imports_torch or not registry.MANAGING.isdisjoint(module.packages):
        return
    if whole.calls_hooks:
        return  # a hook may step, or use gradients
    makes = any(_is_optimizer(name, module) for name in whole.calls) and not _are_stepped(module)
    cleared: set[str] = set()
    """The last names of what the file calls an optimizer, and clears, and never steps by that name."""
    for text, called in module.methods.items():
        name = last_name(text)
        if "zero_grad" in called and "step" not in called and OPTIMIZER_NAME.search(name):
            if not any(_steps(facts, name, module) for facts in module.facts.values()):
                cleared.add(name)
    if makes or cleared:
        optimizers = _Optimizers(module, project)
        yield from optimizers.found()
        yield from optimizers.found_handed(cleared)


def _are_stepped(module: Module) -> bool:
    """Whether all optimizers of a file are stepped by the names that they get, as most are.

    Then none has to be followed. It saves 1 % of the instructions of a check (20 files of `bench/right`), and a check of
    eight right lines goes through 131 functions instead of 151 (`bench/walk.py`).
    """
    made = _made(module)
    for name, makers in made.items():
        # Two optimizers of the same name may be in two classes, or in two functions.
        if len(makers) == 1 and "step" in module.methods.get(name, ()):
            continue
        for facts in makers:
            if not _steps(facts, name, module):
                return False
    return len(made) > 0


def _made(module: Module) -> dict[str, list[Facts]]:
    """By variable or attribute that gets an optimizer: the functions that make it, once for each time."""
    found: dict[str, list[Facts]] = {}
    for facts in module.facts.values():
        for node in facts.assigns:
            call = node.value
            if isinstance(call, ast.Call) and isinstance(call.func, (ast.Name, ast.Attribute)):
                if _is_optimizer(text_of(call.func), module):
                    for target in targets(node):
                        found.setdefault(text_of(target), []).append(facts)
    return found


def _steps(facts: Facts, name: str, module: Module) -> bool:
    """Whether a function, or a method of its class, steps what it gives this name, itself or by a scaler."""
    for one in _methods_beside(facts, module) if name.startswith("self.") else [facts]:
        for touch in one.touches:
            by_scaler = name in one.handed and SCALER_NAME.search(touch.what)
            if touch.kind == "step" and (touch.what == name or by_scaler):
                return True
    return False


def _methods_beside(facts: Facts, module: Module) -> list[Facts]:
    """All methods of the class of a method."""
    for klass in module.classes.values():
        methods = [module.facts[method] for method in module.methods_of(klass).values()]
        if any(one is facts for one in methods):
            return methods
    return []


def _is_optimizer(text: str, module: Module) -> bool:
    """Whether a dotted name is that of an optimizer of torch, or `getattr`, which may choose one."""
    name = _dotted(text, module)
    if not name.startswith("torch.optim.") or "lr_scheduler" in name or "swa_utils" in name:
        return name == "getattr"
    return last_name(name)[:1].isupper()


def _dotted(text: str, module: Module) -> str:
    """The dotted name that a text has in the package it was imported from."""
    first, dot, rest = text.partition(".")
    return module.imports.get(first, vocabulary.USUAL.get(first, first)) + dot + rest


class _Slot(NamedTuple):
    """A variable of a function (or of the file), or an attribute: of a class, or of anything."""

    name: str
    home: ast.AST | None
    is_attribute: bool = False


class _Used(Exception):
    """Something may step the optimizer."""


class _Optimizers:
    """Follows the optimizers that a file makes."""

    def __init__(self, module: Module, project: Project) -> None:
        self.module = module
        self.project = project
        self.nodes = module.nodes
        self.bound: dict[ast.AST, set[str]] = {}
        """By function (or file): the variables that it gives values."""
        self.optimized: set[str] = set()
        """The variables that are handed to optimizers."""
        for name, found in self.nodes.names.items():
            for one in found:
                if not isinstance(one.ctx, ast.Load):
                    self.bound.setdefault(self.nodes.function(one), set()).add(name)
        for node in module.facts:
            if isinstance(node, FUNCTIONS):
                given = set(parameter_names(node))
                self.bound.setdefault(node, set()).update(given)

    def found(self) -> Iterator[End]:
        made = [one for one in self.nodes.calls if self.makes(one)]
        self.optimized = {
            node.id
            for one in made
            for given in arguments(one)
            for node in nodes(given)
            if isinstance(node, ast.Name)
        }
        if not made or self.reads_gradients():
            return
        for call in sorted(made, key=lambda one: (one.lineno, one.col_offset)):
            try:
                followed = _Followed(self, call)
            except _Used:
                continue
            filling = followed.filling()
            if filling is not None and not followed.is_used_elsewhere():
                path = self.module.path
                yield End(site_of(call, path), idle_loss=site_of(filling, path))

    def found_handed(self, names: set[str]) -> Iterator[End]:
        """The optimizers that a function is handed under one of these names, clears in a loop, and never steps."""
        given = [arg for name in sorted(names) for arg in self.nodes.parameters.get(name, ())]
        if not given or self.reads_gradients():
            return
        for arg in given:
            try:
                followed = _Followed(self, arg)
            except _Used:
                continue
            path = self.module.path
            for clear, backward in followed.dropped():
                if not followed.is_used_elsewhere():
                    yield End(site_of(clear, path), idle_loss=site_of(backward, path))
                break

    def makes(self, call: ast.Call) -> bool:
        """Whether a call makes an optimizer of torch that gets parameters."""
        if not call.args and not call.keywords:
            return False
        if isinstance(call.func, ast.Call):
            chosen = call.func
            return text_of(chosen.func) == "getattr" and bool(
                chosen.args and text_of(chosen.args[0]).endswith("optim")
            )
        return isinstance(call.func, (ast.Name, ast.Attribute)) and (
            text_of(call.func) != "getattr" and _is_optimizer(text_of(call.func), self.module)
        )

    def binds(self, node: ast.AST, name: str) -> ast.AST:
        """The function, or the file, that owns the variable which a name means at a node."""
        home = self.nodes.function(node)
        while not isinstance(home, ast.Module) and name not in self.bound.get(home, ()):
            home = self.nodes.function(home)
        return home

    # Gradients

    def reads_gradients(self) -> bool:
        """Whether gradients are used for more than to clear or to change them in place."""
        return any(self.is_gradient_read(one) for one in self.nodes.attributes.get("grad", ()))

    def is_gradient_read(self, node: ast.Attribute) -> bool:
        if not isinstance(node.ctx, ast.Load) or text_of(node.value).endswith("autograd"):
            return False
        if isinstance(node.value, ast.Name) and self.is_leaf(node.value):
            return False
        inner: ast.AST = node
        above = self.nodes.above[node]
        while isinstance(above, ast.Attribute) and above.attr == "data":
            above, inner = self.nodes.above[above], above
        if isinstance(above, ast.Attribute) and above.attr.endswith("_"):
            call = self.nodes.above[above]
            return not isinstance(self.nodes.above[call], ast.Expr)
        if isinstance(above, ast.Compare):
            return not all(isinstance(op, (ast.Is, ast.IsNot)) for op in above.ops)
        if isinstance(above, ast.AugAssign):
            return above.target is not inner
        return not isinstance(above, (ast.If, ast.BoolOp, ast.UnaryOp))

    def is_leaf(self, name: ast.Name) -> bool:
        """Whether a variable is a tensor of the code's own, and no parameter of a module or an optimizer."""
        if name.id in self.optimized:
            return False
        made = [
            one
            for one in self.module.values_of(name.id)
            if isinstance(one, ast.Call) and isinstance(one.func, (ast.Name, ast.Attribute))
        ]
        return any(
            text_of(one.func).endswith("requires_grad_")
            or any(keyword.arg == "requires_grad" for keyword in one.keywords)
            for one in made
        )

    def fillings(self) -> Iterator[ast.AST]:
        """Where gradients are computed, or put in place."""
        for call in self.nodes.calls:
            if isinstance(call.func, ast.Attribute) and call.func.attr == "backward":
                yield call
        for node in self.nodes.attributes.get("grad", ()):
            above = self.nodes.above[node]
            if isinstance(node.ctx, ast.Store) and isinstance(above, ast.Assign):
                empty = isinstance(above.value, ast.Constant) or "zeros" in ast.dump(above.value)
                if not empty:
                    yield above

    def is_stepped(self, node: ast.Attribute) -> bool:
        """Whether a mention of `step` may be that of an optimizer."""
        above = self.nodes.above[node]
        if not isinstance(node.ctx, ast.Load) or isinstance(above, (ast.BinOp, ast.Compare)):
            return False
        owner = text_of(node.value)
        last = last_name(owner)
        return not (SCHEDULER.search(last) or re.search(r"(^|_)(envs?|game|profiler|prof)$", last))


class _Followed:
    """One optimizer: all the names that it has, and what is done with them."""

    def __init__(self, file: _Optimizers, origin: ast.Call | ast.arg) -> None:
        self.file = file
        self.slots: dict[_Slot, None] = {}
        self.clears: list[ast.AST] = []
        """Where it is cleared."""
        self.results: list[_Slot] = []
        """The functions that have given it back."""
        self.mentions: list[ast.AST] = [origin]
        if isinstance(origin, ast.arg):
            self.slots[_Slot(origin.arg, file.nodes.function(origin))] = None
        else:
            self.follow(origin)
        todo = list(self.slots)
        while todo:
            before = len(self.slots)
            for node in self.mentions_of(todo.pop()):
                self.mentions.append(node)
                self.follow(node)
            todo += list(self.slots)[before:]

    def mentions_of(self, slot: _Slot) -> Iterator[ast.expr]:
        """Where a name is read that the optimizer has."""
        file = self.file
        if not slot.is_attribute:
            for name in file.nodes.names.get(slot.name, ()):
                if isinstance(name.ctx, ast.Load) and self.is_variable(name, slot):
                    yield name
            return
        for node in file.nodes.attributes.get(slot.name, ()):
            imported = isinstance(node.value, ast.Name) and node.value.id in file.module.imports
            if isinstance(node.ctx, ast.Load) and not (imported or self.is_anothers(node, slot)):
                yield node
        for call in file.nodes.calls:
            if text_of(call.func) in ("getattr", "attrgetter", "operator.attrgetter"):
                if any(isinstance(a, ast.Constant) and a.value == slot.name for a in call.args):
                    raise _Used

    def is_variable(self, name: ast.Name, slot: _Slot) -> bool:
        if isinstance(slot.home, ast.comprehension):
            return self.file.nodes.above[slot.home] in self.file.nodes.around(name)
        return self.file.binds(name, slot.name) is slot.home

    def is_anothers(self, node: ast.Attribute, slot: _Slot) -> bool:
        """Whether an attribute of `self` is that of another class, which assigns it itself and is not related."""
        if text_of(node.value) != "self" or not isinstance(slot.home, ast.ClassDef):
            return False
        klass = self.file.nodes.klass(node)
        if klass is None or klass is slot.home:
            return False
        own = slot.name in self.file.module.attributes_of(klass)
        return own and not _names_of(klass) & _names_of(slot.home) - _HARMLESS_BASES

    def follow(self, node: ast.expr, at: int | None = None) -> None:
        """Looks at what is done with a value that is the optimizer, or holds it: as item `at` of a tuple."""
        above = self.file.nodes.above[node]
        if isinstance(above, ast.Attribute):
            self.follow_attribute(above)
        elif isinstance(above, (ast.Subscript, ast.Starred, ast.IfExp, ast.NamedExpr)):
            if isinstance(above, ast.NamedExpr):
                self.store(above.target)
            self.follow(above)
        elif isinstance(above, (ast.List, ast.Tuple)):
            self.follow(above, above.elts.index(node) if at is None else None)
        elif isinstance(above, (ast.Dict, ast.Set, ast.ListComp, ast.DictComp)):
            self.follow(above)
        elif isinstance(above, ast.Call):
            if above.func is node:
                raise _Used  # it is called itself
            self.follow_call(above, node)
        elif isinstance(above, ast.keyword) and above.arg is not None:
            call = self.file.nodes.above[above]
            assert isinstance(call, ast.Call)
            self.follow_call(call, node, above.arg)
        else:
            self.follow_statement(above, node, at)

    def follow_statement(self, above: ast.AST, node: ast.expr, at: int | None) -> None:
        """Looks at a statement, or at the `for` of a comprehension, that the optimizer is in."""
        if isinstance(above, (ast.For, ast.AsyncFor)) and above.iter is node:
            self.store(above.target)
        elif isinstance(above, ast.comprehension) and above.iter is node:
            for name in ast.walk(above.target):
                if isinstance(name, ast.Name):
                    self.slots[_Slot(name.id, above)] = None
        elif isinstance(above, ast.Assign):
            for target in above.targets:
                self.store(target, at)
        elif isinstance(above, ast.AnnAssign):
            self.store(above.target)
        elif isinstance(above, ast.Return):
            self.follow_result(above, at)
        elif not isinstance(above, _ONLY_LOOK):
            raise _Used

    def follow_result(self, given: ast.Return, at: int | None) -> None:
        """The optimizer is returned by a function of the file: its calls there are followed."""
        file, function = self.file, self.file.nodes.function(given)
        name = getattr(function, "name", "")
        private = file.nodes.klass(function) is not None or name.startswith("_")
        calls = [one for one in file.nodes.calls if called_name(one) == name]
        mentions = [*file.nodes.names.get(name, ()), *file.nodes.attributes.get(name, ())]
        if not (name and private and calls) or len(mentions) != len(calls):
            raise _Used  # other code that gets the function may call it
        slot = _Slot(name, file.nodes.klass(function) or file.module.tree, is_attribute=True)
        if slot in self.results:
            raise _Used  # it calls itself
        self.results.append(slot)
        for call in calls:
            self.follow(call, at)

    def follow_attribute(self, node: ast.Attribute) -> None:
        call = self.file.nodes.above[node]
        called = isinstance(call, ast.Call) and call.func is node
        if called and node.attr in _ITEMS:
            assert isinstance(call, ast.Call)
            self.follow(call)
        elif node.attr == "append" and called:
            return
        elif node.attr not in _READS:
            raise _Used
        if node.attr == "zero_grad" and called:
            self.clears.append(call)

    def follow_call(self, call: ast.Call, value: ast.expr, keyword: str | None = None) -> None:
        """The optimizer is handed to a call."""
        text = text_of(call.func)
        owner, _, name = text.rpartition(".")
        module = self.file.module
        if text in _SAME_ITEMS:
            self.follow(call)
        elif name == "append" and isinstance(call.func, ast.Attribute):
            self.store(call.func.value)
        elif (function := self.inner(call, text) or module.functions.get(text)) is not None:
            self.enter(function, call, value, keyword, 0)
        elif text in module.classes:
            self.construct(module.classes[text], call, value, keyword)
        elif owner == "self" and (method := self.method(call, name)) is not None:
            self.enter(method, call, value, keyword, 1)
        elif not (self.is_scheduler(text) or _LOOKS.search(name)):
            imported = self.imported(text)
            if imported is None or not _only_reads(
                imported, _bound(imported, call, value, keyword)
            ):
                raise _Used

    def inner(self, call: ast.Call, name: str) -> Function | None:
        """The function that a call means, if it is defined in one of the functions around the call."""
        for outer in self.file.nodes.around(call):
            if isinstance(outer, (ast.FunctionDef, ast.AsyncFunctionDef)):
                for node in outer.body:
                    if isinstance(node, ast.FunctionDef) and node.name == name:
                        return node
        return None

    def imported(self, text: str) -> Function | None:
        """The function of another file of the project that a call means."""
        module, project = self.file.module, self.file.project
        dotted = _dotted(text, module)
        if not project.open(module, dotted):
            return None
        found = project.resolve(module, dotted)
        return found[0].functions.get(found[1]) if found is not None else None

    def is_scheduler(self, text: str) -> bool:
        """Whether a call makes a scheduler that only sets rates; one of the project may step the optimizer."""
        if not SCHEDULER.search(text):
            return False
        return vocabulary.is_of_a_library(_dotted(text, self.file.module))

    def method(self, call: ast.Call, name: str) -> Function | None:
        klass = self.file.nodes.klass(call)
        return self.file.module.methods_of(klass).get(name) if klass is not None else None

    def construct(
        self, klass: ast.ClassDef, call: ast.Call, value: ast.expr, keyword: str | None
    ) -> None:
        """The optimizer is handed to a new object."""
        method = self.file.module.methods_of(klass).get("__init__")
        if method is not None:
            self.enter(method, call, value, keyword, 1)
            return
        fields = [
            one.target.id
            for one in klass.body
            if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
        ]
        at = call.args.index(value) if value in call.args else -1
        name = keyword or (fields[at] if 0 <= at < len(fields) else None)
        if name not in fields:
            raise _Used
        self.slots[_Slot(name, klass, is_attribute=True)] = None

    def enter(
        self, function: Function, call: ast.Call, value: ast.expr, keyword: str | None, skip: int
    ) -> None:
        """The optimizer becomes a parameter of a function of the file."""
        name = _bound(function, call, value, keyword, skip)
        if name is None:
            raise _Used
        self.slots[_Slot(name, function)] = None

    def store(self, target: ast.expr, at: int | None = None) -> None:
        """The optimizer gets a name; it is item `at` of what is unpacked, or may be any of them."""
        if isinstance(target, (ast.Tuple, ast.List)):
            unpacks = any(isinstance(one, ast.Starred) for one in target.elts)
            known = at is not None and at < len(target.elts) and not unpacks
            for one in target.elts[at : at + 1] if known and at is not None else target.elts:
                self.store(one)
        elif isinstance(target, ast.Name):
            self.slots[_Slot(target.id, self.file.binds(target, target.id))] = None
        elif isinstance(target, ast.Attribute):
            mine = text_of(target.value) == "self"
            home = self.file.nodes.klass(target) if mine else None
            self.slots[_Slot(target.attr, home, is_attribute=True)] = None
        elif isinstance(target, ast.Subscript):
            self.store(target.value)
        else:
            raise _Used

    # Whether it should be stepped

    def filling(self) -> ast.AST | None:
        """Where gradients are computed for the optimizer again and again."""
        file = self.file
        homes = self.homes()
        # If another optimizer is stepped there, the gradients may be its own.
        steps = [one for one in file.nodes.attributes.get("step", ()) if file.is_stepped(one)]
        if any(self.is_in(one, homes) for one in steps):
            return self.filling_of_its_own(homes) or self.filling_after_clear()
        fillings = [one for one in file.fillings() if self.is_in(one, homes)]
        fillings.sort(key=lambda one: getattr(one, "lineno", 0))
        least = 1 if self.clears or self.clears_or_clips(homes) else 2
        if least == 2 and any(self.is_public(slot) for slot in self.slots):
            return None  # other code that has the object may clear and step
        return next((one for one in fillings if self.is_repeated(one, least)), None)

    def dropped(self) -> Iterator[tuple[ast.AST, ast.AST]]:
        """The clears that drop, in each iteration of a loop, what a backward of the loop has computed."""
        file = self.file
        for clear in self.clears:
            around = [*file.nodes.around(clear)]
            function = file.nodes.function(clear)
            loop = next((one for one in around if isinstance(one, LOOPS)), None)
            if loop is None or file.nodes.function(loop) is not function:
                continue
            if _ONCE.search(getattr(function, "name", "")) or _may_step(loop):
                continue
            for backward in file.fillings():
                if loop in file.nodes.around(backward):
                    yield clear, backward

    def filling_of_its_own(self, homes: list[ast.AST]) -> ast.AST | None:
        """Where a backward runs through the one module that the optimizer has, and no other optimizer has."""
        file = self.file
        text = _module_of(self.mentions[0])
        name = last_name(text)
        mentions: list[ast.expr] = [*file.nodes.names.get(name, ())]
        if text.startswith("self."):
            mentions = [*file.nodes.attributes.get(name, ())]
        mentions = [one for one in mentions if text_of(one) == text]
        methods = [
            above for one in mentions if isinstance(above := file.nodes.above[one], ast.Attribute)
        ]
        if not text or any(one.attr in _FREEZES for one in methods):
            return None
        if sum(one.attr == "parameters" for one in methods) != 1:
            return None
        for one in mentions:
            call = file.nodes.above[one]
            if isinstance(call, ast.Call) and call.func is one and self.is_in(call, homes):
                found = _reached(file, call)
                if found is not None and self.is_repeated(found, 1):
                    return found
        return None

    def filling_after_clear(self) -> ast.AST | None:
        """A backward in a loop that the optimizer is cleared for, and that no other optimizer's step follows."""
        for clear in self.clears:
            phase = [
                call
                for one in self.after(clear)
                for call in sorted(calls_in(one), key=lambda call: call.lineno)
                if called_name(call) in _PHASE
            ]
            names = [called_name(call) for call in phase[:2]]
            if names[:1] == ["backward"] and names[1:] != ["step"]:
                if self.is_repeated(phase[0], 1):
                    return phase[0]
        return None

    def after(self, clear: ast.AST) -> list[ast.stmt]:
        """The statements after a clear, in its block."""
        statement = self.file.nodes.above[clear]
        block = self.file.nodes.above[statement]
        body: list[ast.stmt] = getattr(block, "body", [])
        at = next((at for at, one in enumerate(body) if one is statement), len(body))
        return body[at + 1 :]

    def is_public(self, slot: _Slot) -> bool:
        return slot.is_attribute and not slot.name.startswith("_")

    def homes(self) -> list[ast.AST]:
        """The functions and classes in which the optimizer is mentioned; the file, for its own variables."""
        file = self.file
        if any(isinstance(slot.home, ast.Module) for slot in self.slots):
            return [file.module.tree]
        return [file.nodes.klass(one) or self.outermost(one) for one in self.mentions]

    def outermost(self, node: ast.AST) -> ast.AST:
        functions = [one for one in self.file.nodes.around(node) if isinstance(one, FUNCTIONS)]
        return functions[-1] if functions else self.file.module.tree

    def is_in(self, node: ast.AST, homes: list[ast.AST]) -> bool:
        return any(one in homes for one in self.file.nodes.around(node))

    def clears_or_clips(self, homes: list[ast.AST]) -> bool:
        """Whether gradients are cleared or clipped where the optimizer is known: a step is meant to use them."""
        for call in self.file.nodes.calls:
            name = called_name(call)
            if name in registry.CLIPS or vocabulary.CLEARS.search(name):
                if self.is_in(call, homes):
                    return True
        return any(self.is_in(one, homes) for one in self.file.nodes.attributes.get("grad", ()))

    def is_repeated(self, node: ast.AST, least: int) -> bool:
        """Whether some code runs again and again: in a loop, or in a function that others call."""
        around = list(self.file.nodes.around(node))
        named = [getattr(one, "name", "") for one in around]
        if any(map(_ONCE.search, filter(None, named))):
            return False
        loops = sum(isinstance(one, LOOPS) for one in around)
        if loops + any(map(self.is_called_in_loop, filter(None, named))) >= least:
            return True
        made_in = self.file.nodes.function(self.mentions[0])
        called = any(isinstance(one, FUNCTIONS) and one is not made_in for one in around)
        return called and least == 1 and "__init__" not in named

    def is_called_in_loop(self, name: str) -> bool:
        calls = [one for one in self.file.nodes.calls if called_name(one) == name]
        return any(isinstance(one, LOOPS) for call in calls for one in self.file.nodes.around(call))

    # Other files

    def is_used_elsewhere(self) -> bool:
        """Whether another file may step what an attribute or a variable of this file holds."""
        from zerograd.static.read.callers import is_mentioned_elsewhere, searched

        file = self.file
        for slot in (*self.slots, *self.results):
            if isinstance(slot.home, (*FUNCTIONS, ast.comprehension)):
                continue
            file.project.read.update(searched(file.module.path))
            related: set[str] = set()
            if slot.is_attribute:
                related = self.relatives(slot)
                if not self.bases_are_known(related):
                    return True
            if is_mentioned_elsewhere(
                file.module.path, slot.name, related, is_attribute=slot.is_attribute
            ):
                return True
        return False

    def relatives(self, slot: _Slot) -> set[str]:
        """The names of the class that has an attribute, and of all that it inherits from in the file."""
        found: set[str] = set()
        todo = [slot.home] if isinstance(slot.home, ast.ClassDef) else []
        classes = self.file.module.classes
        while todo:
            klass = todo.pop()
            names = _names_of(klass) - found
            found |= names
            todo += [classes[name] for name in names if name in classes]
        return found - _HARMLESS_BASES

    def bases_are_known(self, related: set[str]) -> bool:
        """Whether all bases are classes of the project or of torch."""
        from zerograd.static.read.callers import is_class

        module = self.file.module
        imported = (module.imports.get(name, "torch") for name in related)
        return not module.stars and all(
            first_name(one) == "torch" or is_class(module.path, last_name(one)) for one in imported
        )


def _bound(
    function: Function, call: ast.Call, value: ast.expr, keyword: str | None, skip: int = 0
) -> str | None:
    """The parameter of a function that a call gives a value to; None if that is not clear."""
    given = function.args
    names = [arg.arg for arg in (*given.posonlyargs, *given.args)][skip:]
    if keyword is not None:
        return keyword if keyword in {*names, *(arg.arg for arg in given.kwonlyargs)} else None
    rest = given.vararg.arg if given.vararg is not None else None
    if any(isinstance(one, ast.Starred) for one in call.args):
        return None if names else rest
    at = call.args.index(value)
    return names[at] if at < len(names) else rest


def _only_reads(function: Function, name: str | None) -> bool:
    """Whether a function only looks at the settings and the state of an optimizer that it is handed."""
    attributes = [one for one in nodes(function) if isinstance(one, ast.Attribute)]
    if name is None or any(one.attr in ("grad", "step") for one in attributes):
        return False
    read = {one.value for one in attributes if one.attr in _READS}
    named = (one for one in nodes(function) if isinstance(one, ast.Name) and one.id == name)
    return all(one in read for one in named)


def _may_step(loop: ast.AST) -> bool:
    """Whether a loop calls anything that may step an optimizer which it is not handed, or use gradients."""
    if any(isinstance(one, (ast.Yield, ast.YieldFrom, ast.Await)) for one in nodes(loop)):
        return True
    calls = list(calls_in(loop))
    called = {text_of(one.func) for one in calls}
    backwards = [one for one in calls if text_of(one.func).endswith(".backward")]
    filled = min((one.lineno for one in backwards), default=0)
    if any(one.args for one in backwards):
        return True  # that of an engine, which may step
    for call in calls:
        owner, _, name = text_of(call.func).rpartition(".")
        if call in backwards or name in registry.CLIPS or name in _HARMLESS:
            continue
        if _STEPS.search(name) and not SCHEDULER.search(last_name(owner)):
            return True
        for given in map(text_of, call.args):
            if given == "self" or (call.lineno > filled and given.split(".param")[0] in called):
                return True
    return False


def _module_of(made: ast.AST) -> str:
    """The module whose parameters an optimizer gets, and nothing else."""
    given = made.args[0] if isinstance(made, ast.Call) and made.args else None
    if not isinstance(given, ast.Call) or given.args:
        return ""
    owner, _, method = text_of(given.func).rpartition(".")
    plain = owner.removeprefix("self.").isidentifier()
    return owner if method == "parameters" and plain and owner != "self" else ""


def _reached(file: _Optimizers, call: ast.Call) -> ast.AST | None:
    """The backward of the same function that the result of a call is handed on to, as it is."""
    function = file.nodes.function(call)
    around = [*file.nodes.around(call)]
    if any(isinstance(one, (ast.With, ast.AsyncWith)) for one in around):
        return None  # under `no_grad`, perhaps
    names: set[str] = set()
    carried: ast.AST = call
    statements = sorted(
        (one for one in nodes(function) if isinstance(one, (ast.Assign, ast.AugAssign, ast.Expr))),
        key=lambda one: one.lineno,
    )
    for one in statements:
        inside = [part for part in nodes(one.value) if part is carried or _reads(part, names)]
        if not any(_is_carried(file, part, one) for part in inside):
            continue
        if isinstance(one, ast.Expr):
            func = one.value.func if isinstance(one.value, ast.Call) else None
            if isinstance(func, ast.Attribute) and func.attr == "backward":
                return one.value
            continue
        names |= {target.id for target in targets(one) if isinstance(target, ast.Name)}
    return None


def _reads(node: ast.AST, names: set[str]) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in names


def _is_carried(file: _Optimizers, node: ast.AST, statement: ast.stmt) -> bool:
    """Whether the value of a statement is computed with a value that is in it, and runs back through it."""
    for above in file.nodes.around(node):
        if above is statement:
            return True
        if isinstance(above, ast.Attribute) and above.attr in vocabulary.CUT:
            return False
        if isinstance(above, (ast.Compare, ast.IfExp, ast.Lambda, ast.comprehension)):
            return False
    return False


def _names_of(klass: ast.ClassDef) -> set[str]:
    return {klass.name, *(last_name(text_of(base)) for base in klass.bases)}
