"""A module of the project: one parsed file and an index of what it defines, imports and calls."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from functools import cached_property
from typing import TypeGuard

from zerograd.core.records import dataclass, field
from zerograd.static.frameworks.table import Role
from zerograd.static.read import file_index
from zerograd.static.read.file_index import Facts
from zerograd.static.read.parents import Parents
from zerograd.static.read.syntax_tree import (
    FUNCTIONS,
    Function,
    children,
    first_name,
    nodes,
    parameter_names,
    targets,
    text_of,
)
from zerograd.static.read.vocabulary import OPTIMIZER_CLASSES, role_of_use

AttributeTable = dict[str, list[tuple[Function | None, ast.expr, int | None]]]
"""By attribute: the assigning method (None: the class body), the value, the index in a tuple."""


@dataclass(eq=False)
class Module:
    """One parsed file and its index."""

    path: str
    tree: ast.Module
    imports: dict[str, str] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)
    globals: dict[str, list[ast.expr]] = field(default_factory=dict)
    methods: dict[str, frozenset[str]] = field(default_factory=dict)
    """What is called on each receiver, by the receiver's text."""
    stars: list[str] = field(default_factory=list)
    facts: dict[ast.AST, Facts] = field(default_factory=dict)
    top: Facts = field(default_factory=Facts)
    """What the top level does itself."""
    asked: list[ast.AST] = field(default_factory=list)
    counted: AbstractSet[str] = frozenset()
    """Attributes that are changed in place."""
    attributes: dict[ast.ClassDef, AttributeTable] = field(default_factory=dict)
    own: dict[ast.ClassDef, dict[str, Function]] = field(default_factory=dict)
    changes: dict[ast.AST, set[str]] = field(default_factory=dict)
    """By method: the counts of its object that it changes."""

    @cached_property
    def nodes(self) -> Parents:
        """The nodes of the file by name, and what each of them is in."""
        return Parents(self.tree)

    @cached_property
    def tested(self) -> set[str]:
        """Names and attributes that a test, a count or a divisor may depend on."""
        return file_index.tested(self.asked, self.facts)

    def counts_of(self, method: ast.AST) -> set[str]:
        """The attributes that are changed in place somewhere, and that a method gives another value."""
        known = self.changes.get(method)
        if known is None:
            known = self.changes[method] = set()
            if not self.counted.isdisjoint(attr for _, attr in self.facts[method].attributes):
                for node in nodes(method):
                    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
                        given = (one for one in targets(node) if isinstance(one, ast.Attribute))
                        known.update(one.attr for one in given)
                known &= self.counted
        return known

    @cached_property
    def compared(self) -> dict[tuple[str, str], set[str]]:
        """By what a test asks for and a class: the members of the class that it is compared with."""
        found: dict[tuple[str, str], set[str]] = {}
        for node in nodes(*self.asked):
            if isinstance(node, ast.Compare) and len(node.comparators) == 1:
                member = node.comparators[0]
                if isinstance(member, ast.Attribute) and member.attr.isupper():
                    key = (text_of(node.left), text_of(member.value))
                    found.setdefault(key, set()).add(member.attr)
        return found

    @cached_property
    def methods_by_name(self) -> dict[str, list[tuple[ast.ClassDef, Function]]]:
        """The methods of all classes of the module, with their classes."""
        found: dict[str, list[tuple[ast.ClassDef, Function]]] = {}
        for klass in self.classes.values():
            for node in klass.body:
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    found.setdefault(node.name, []).append((klass, node))
        return found

    def methods_named(self, name: str) -> list[tuple[ast.ClassDef, Function]]:
        """The methods of this name in all classes of the module."""
        return self.methods_by_name.get(name, [])

    def values_of(self, name: str) -> list[ast.expr]:
        """What is assigned to variables of this name, anywhere in the module."""
        return list(self.assigned_to(name).values())

    def assigned_to(self, name: str) -> dict[ast.AST, ast.expr]:
        """The statements that assign to variables of this name, anywhere in the module, and the values."""
        return self._assigned.get(name, {})

    @cached_property
    def _assigned(self) -> dict[str, dict[ast.AST, ast.expr]]:
        """By the name of a variable: each statement that assigns to it, and the value."""
        found: dict[str, dict[ast.AST, ast.expr]] = {}
        for facts in self.facts.values():
            for node in facts.assigns:
                for one in targets(node):
                    if isinstance(one, ast.Name) and node.value is not None:
                        found.setdefault(one.id, {})[node] = node.value
        return found

    @cached_property
    def in_parts(self) -> frozenset[str]:
        """The objects whose parts' parameters are taken separately: `net.one.parameters()`, `net.two.parameters()`."""
        given = (text for text, called in self.methods.items() if "parameters" in called)
        owners = Counter(text.rpartition(".")[0] for text in given if "." in text)
        return frozenset(owner for owner, parts in owners.items() if parts > 1)

    @cached_property
    def made_in_parts(self) -> frozenset[ast.expr]:
        """What is assigned to those objects."""
        return frozenset(
            node.value
            for facts in (self.facts.values() if self.in_parts else ())
            for node in facts.assigns
            if isinstance(node, ast.Assign)
            if any(text_of(target) in self.in_parts for target in node.targets)
        )

    @property
    def statements(self) -> list[ast.stmt]:
        """What the file does when it is executed, without what it defines."""
        found: list[ast.stmt] = []
        for node in self.tree.body:
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                found.append(node)
        return found

    def methods_of(self, klass: ast.ClassDef) -> dict[str, Function]:
        """The methods that a class defines itself, the first of each name."""
        if klass not in self.own:
            defined = (
                n for n in klass.body if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))
            )
            self.own[klass] = {node.name: node for node in reversed(list(defined))}
        return self.own[klass]

    def attributes_of(self, klass: ast.ClassDef) -> AttributeTable:
        """What a class and its methods assign to each attribute."""
        if klass not in self.attributes:
            self.attributes[klass] = _attribute_table(klass, self.facts)
        return self.attributes[klass]

    @cached_property
    def called_like_optimizers(self) -> set[ast.ClassDef]:
        """Classes that have the name and the step of an optimizer, but are none."""
        return {
            klass
            for klass, _ in self.methods_named("step")
            if OPTIMIZER_CLASSES.match(klass.name)
            and not any("optim" in text_of(base).lower() for base in klass.bases)
            and not any(klass is other for other, _ in self.methods_named("zero_grad"))
        }

    @cached_property
    def bound(self) -> set[str]:
        """All names that something in the file gives a value."""
        found = {*self.imports, *self.functions, *self.classes}
        for node, facts in self.facts.items():
            found |= facts.assigned
            if isinstance(node, FUNCTIONS):
                found.update(parameter_names(node))
        return found

    @cached_property
    def clears_an_optimizer(self) -> bool:
        """Whether the file clears an optimizer to which it gives a value."""
        return any(
            "zero_grad" in methods
            and first_name(text) in self.bound
            and role_of_use(text, methods) is Role.OPTIMIZER
            for text, methods in self.methods.items()
        )

    def is_misspelt(self, name: str) -> bool:
        """Whether the file gives this name no value and steps it, while it clears an optimizer under another name."""
        if self.stars or name in self.bound or "zero_grad" in self.methods.get(name, ()):
            return False
        return self.clears_an_optimizer

    @cached_property
    def packages(self) -> set[str]:
        """The top-level packages that the file imports from."""
        return set(map(first_name, self.imports.values()))

    @property
    def imports_torch(self) -> bool:
        """Whether the file says that it is about torch."""
        return "torch" in self.packages


def index(path: str, tree: ast.Module, facts: file_index.FileFacts | None = None) -> Module:
    """Reads what a module imports, defines and calls, unless its facts are known."""
    file = facts or file_index.read(tree)
    methods = {name: frozenset(attrs) for name, attrs in file.methods.items()}
    module = Module(path, tree, file.imports, methods=methods, stars=file.stars)
    module.facts, module.top, module.asked = file.functions, file.top, file.asked
    module.counted = file.counted
    for node in tree.body:
        _top_level(module, node)
    return module


def _top_level(module: Module, node: ast.stmt) -> None:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        module.functions[node.name] = node
    elif isinstance(node, ast.ClassDef):
        module.classes[node.name] = node
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Name):
                module.globals.setdefault(target.id, []).append(node.value)
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
        module.globals.setdefault(node.target.id, []).append(node.value)
    elif isinstance(node, (ast.If, ast.Try, ast.With)):
        for inner in ast.iter_child_nodes(node):
            if isinstance(inner, ast.stmt):
                _top_level(module, inner)
            elif isinstance(inner, ast.ExceptHandler):
                for statement in inner.body:
                    _top_level(module, statement)


def assigned_names(loop: ast.AST) -> frozenset[str]:
    """Names that a loop assigns; those of its inner functions do no harm."""
    found = set()
    todo = [loop]
    while todo:
        node = todo.pop()
        if type(node) is not ast.Name:
            todo += children(node)
        elif type(node.ctx) is not ast.Load:
            found.add(node.id)
    return frozenset(found)


def _attribute_table(klass: ast.ClassDef, known: dict[ast.AST, Facts]) -> AttributeTable:
    table: AttributeTable = {}
    for member in klass.body:
        if isinstance(member, ast.Assign):
            for target in member.targets:
                if isinstance(target, ast.Name):
                    table.setdefault(target.id, []).append((None, member.value, None))
        if isinstance(member, (ast.FunctionDef, ast.AsyncFunctionDef)) and member.args.args:
            me = member.args.args[0].arg
            for node in known[member].assigns:
                for attr, value, index in _stored(node, me):
                    table.setdefault(attr, []).append((member, value, index))
    return table


def _stored(node: ast.AST, me: str) -> Iterator[tuple[str, ast.expr, int | None]]:
    """The attributes of an object that a statement assigns."""
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        pairs: list[tuple[ast.expr, ast.expr]] = [(node.target, node.value)]
    elif isinstance(node, ast.Assign):
        pairs = [(target, node.value) for target in node.targets]
    else:
        return
    for target, value in pairs:
        if not isinstance(target, ast.Tuple):
            if _is_attribute_of(target, me):
                yield target.attr, value, None
            continue
        for index, item in enumerate(target.elts):
            if _is_attribute_of(item, me):
                if isinstance(value, ast.Tuple) and index < len(value.elts):
                    yield item.attr, value.elts[index], None
                else:
                    yield item.attr, value, index


def _is_attribute_of(node: ast.expr, me: str) -> TypeGuard[ast.Attribute]:
    return (
        isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == me
    )
