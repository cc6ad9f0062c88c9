"""Reuses what is known of a file's roots when the file changes: an editor asks again after every key.

The result of a root depends on its own text, on the texts that it leads to by names, and on a few facts about the
whole file. If none of these has changed, nor has the result; only its lines may have moved. Texts
are compared by the names in them, whatever these mean, so a root is interpreted once too often rather than not at all.
With `read.parsed_file`, a change of a file of 1,000 lines takes 14 ms of processor time instead of 57, and 22 ms
instead of 468 where the file is dense with loops (the two files of `bench/lsp_latency.py`).
"""

from __future__ import annotations

import ast
import os
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from zerograd.core.events import Site
from zerograd.core.late_pattern import pattern
from zerograd.core.records import dataclass, field, replace
from zerograd.static.entry_states import scales_only
from zerograd.static.frameworks import registry
from zerograd.static.interp.call_graph import QUESTIONS, CallGraph, KnownCalls
from zerograd.static.interp.interpreter import Program
from zerograd.static.read.budget import Budget, Cut
from zerograd.static.read.parsed_file import ParsedFile
from zerograd.static.read.source import Source
from zerograd.static.read.syntax_tree import first_name, last_name
from zerograd.static.read.values import Fn, Klass

if TYPE_CHECKING:
    from zerograd.explore.explore import Outcome

_NAME = pattern(r"\w+")
_PLACE = pattern(r"\.\d+:\d+|\bin line \d+")
"""An object that has no name is called by its line, and a doubt names that of a call: lines move."""
_STEPPED = pattern(r"\b(\w+)\.step\(|\.step\(\s*(\w+)")
"""What is stepped, by its name alone."""
Stamp = tuple[int, int]
Named: TypeAlias = "tuple[Outcome, str]"
"""A violation, and the name of the optimizer that it is about."""


class RelativePosition(NamedTuple):
    """A place that moves with its text: a text of the root, and a line in it."""

    text: int
    line: int
    column: int


class Unit(NamedTuple):
    """What a root and the functions inside it gave."""

    found: tuple[Named, ...]
    starts: tuple[int, ...]
    """The first line of each text that the root depends on."""
    lengths: tuple[int, ...]
    inlined: frozenset[RelativePosition]
    """The functions that it called."""
    spent: int
    """Steps of the budget."""


class Recalled(NamedTuple):
    """A root that needs no interpreting."""

    found: list[Named]
    inlined: set[ast.AST]
    spent: int


@dataclass
class FileMemory:
    """What is known of one file from its earlier texts."""

    units: dict[Hashable, Unit] = field(default_factory=dict)
    depends: dict[str, Stamp] = field(default_factory=dict)
    """The other files that were read."""
    leading: frozenset[bytes] | None = None
    """The names that lead to a step, where they decided which files are read."""
    names: dict[str, frozenset[str]] = field(default_factory=dict)
    """The names in each text."""
    parsed: ParsedFile = field(default_factory=ParsedFile)

    def forget(self) -> None:
        """Forget all of it."""
        self.units, self.depends, self.leading = {}, {}, None


class _Text(NamedTuple):
    """A statement of the top level."""

    text: str
    start: int
    end: int
    is_loose: bool
    """It is neither a function nor a class: every root depends on it."""


class Reuse:
    """One analysis of a file about which something is known."""

    def __init__(self, memory: FileMemory, source: Source, program: Program) -> None:
        self._memory = memory
        module = self._module = program.module
        self._project = program.project
        scout = program.interpreter()
        # It asks more than an analysis without a memory would: its answers must not reach that analysis.
        known = KnownCalls()
        known.near = program.calls.near
        self._graph = CallGraph(
            Budget(), known, module, scout.names, scout.classes, scout.objects.sites
        )
        self._answers: dict[str, Hashable] = {}
        self._lines = source.lines
        self._kept: dict[Hashable, Unit] = {}
        self._names: dict[str, frozenset[str]] = {}
        self.recalled = 0
        """How many roots were not interpreted."""
        self.found: list[Named] = []
        """All that the analysis has found, in order."""
        self._now: tuple[Hashable, list[_Text]] | None = None
        """What the current root depends on; None if that takes too long to say."""
        self._before = (0, 0, 0)
        """How much was found, left of the budget, and cut when the current root began."""
        self._forget_what_changed()
        self._texts = [self._text(node) for node in module.tree.body]
        self._texts.sort(key=lambda one: one.start)
        self._starts = [one.start for one in self._texts]
        self._defines = self._definitions()
        self._whole = self._facts_of_the_file()
        self._methods: dict[str, tuple[tuple[str, frozenset[str]], ...]] = {}
        """What is called on receivers, by the first name of each receiver."""
        for receiver, methods in sorted(module.methods.items()):
            for name in self._names_in(first_name(receiver)):
                self._methods[name] = (*self._methods.get(name, ()), (receiver, methods))
        self._functions = {mark: node for node in self._nodes() if (mark := self._place(node))}
        self._places = {node: mark for mark, node in self._functions.items()}

    def _forget_what_changed(self) -> None:
        memory = self._memory
        if any(_stamp(path) != stamp for path, stamp in memory.depends.items()):
            memory.forget()
        if memory.leading is not None and memory.leading != self._project.leading_names():
            memory.forget()

    # What there is in the file

    def _text(self, node: ast.stmt) -> _Text:
        decorators: Iterable[ast.expr] = getattr(node, "decorator_list", ())
        start = min([node.lineno, *(one.lineno for one in decorators)])
        end = node.end_lineno or node.lineno
        is_loose = not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        return _Text("\n".join(self._lines[start - 1 : end]), start, end, is_loose)

    def _names_in(self, text: str) -> frozenset[str]:
        names = self._names.get(text)
        if names is None:
            names = self._memory.names.get(text) or frozenset(_NAME.findall(text))
            self._names[text] = names
        return names

    def _definitions(self) -> dict[str, list[_Text]]:
        """By name, the statements that define it."""
        module = self._module
        found: dict[str, list[_Text]] = {}
        for name, values in module.globals.items():
            found.setdefault(name, []).extend(self._around(value.lineno) for value in values)
        for node in module.tree.body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                found.setdefault(node.name, []).append(self._around(node.lineno))
        for name, function in module.functions.items():
            found.setdefault(name, []).append(self._around(function.lineno))
        for klass in module.classes.values():
            found.setdefault(klass.name, []).append(self._around(klass.lineno))
        return found

    def _reached(self, name: str) -> Hashable:
        """What code that calls methods of this name may reach: that is asked by the name alone."""
        if name not in self._answers:
            graph = self._graph
            answers = []
            for klass, method in self._module.methods_named(name):
                fn = Fn(method, self._module, name, None, None, Klass(klass, self._module))
                facts = [graph.reaches(fn, what, 0) for what in QUESTIONS]
                answers.append((name, klass.name, *facts, graph.touches_gradients_here(fn)))
            self._answers[name] = tuple(answers)
        return self._answers[name]

    def _around(self, line: int) -> _Text:
        """The statement of the top level that a line is in."""
        return self._texts[max(bisect_right(self._starts, line) - 1, 0)]

    def _nodes(self) -> Iterable[ast.AST]:
        module = self._module
        yield from module.functions.values()
        for klass in module.classes.values():
            yield from (
                one
                for one in klass.body
                if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))
            )

    def _facts_of_the_file(self) -> Hashable:
        """What interpreting any root may ask about the whole file."""
        module = self._module
        whole = module.facts[module.tree]
        return (
            tuple(one.text for one in self._texts if one.is_loose),
            frozenset(module.packages),
            tuple(module.stars),
            sum(bool(facts.touches) for facts in module.facts.values()) == 1,
            whole.grads,
            whole.mentions,
            frozenset(name for name in whole.calls if last_name(name) in registry.ACCUMULATES),
            frozenset(klass.name for klass in module.called_like_optimizers),
            module.in_parts,
            scales_only(module),
            frozenset(
                name
                for one in self._texts
                for pair in _STEPPED.findall(one.text)
                for name in pair
                if name and module.is_misspelt(name)
            ),
            tuple(
                one.text.partition("\n")[0]
                for one in self._texts
                if "scale" in self._names_in(one.text)
            ),
        )

    # What a root depends on

    def _dependencies(self, begin: list[_Text]) -> tuple[list[_Text], set[str]]:
        """The texts that some texts lead to by names, and all names in those."""
        reached = dict.fromkeys(begin)
        names: set[str] = set()
        todo = list(reached)
        while todo:
            fresh = self._names_in(todo.pop().text) - names
            names |= fresh
            for name in fresh & self._defines.keys():
                for text in self._defines[name]:
                    if text not in reached:
                        reached[text] = None
                        todo.append(text)
        return sorted(reached, key=lambda one: (one.start, -one.end)), names

    def _key(self, fn: Fn | None, klass: Klass | None) -> tuple[Hashable, list[_Text]]:
        """What the result of a root depends on, and the texts in it."""
        module = self._module
        begin = [one for one in self._texts if one.is_loose] if fn is None else []
        for node in (fn and fn.module is module and fn.node, klass and klass.node):
            if node:
                begin.append(self._around(node.lineno))
        texts, names = self._dependencies(begin)
        # Where the loose statements are among the others does not matter, but for the top level.
        order = tuple(one.text for one in texts)
        at = self._place(fn.node) if fn is not None and fn.module is module else None
        key = (
            self._whole,
            order,
            fn and (fn.module.path, fn.name, at and (at.line, at.column)),
            klass and klass.name,
            tuple(sorted((w, self._module.imports[w]) for w in names & module.imports.keys())),
            tuple(self._methods[w] for w in sorted(names & self._methods.keys())),
            frozenset(names & module.tested),
            tuple(self._reached(w) for w in sorted(names & module.methods_by_name.keys())),
        )
        return key, texts

    def _place(self, node: ast.AST) -> RelativePosition | None:
        """Where a function is, in a way that does not depend on the lines above its statement."""
        line = getattr(node, "lineno", 0)
        at = bisect_right(self._starts, line) - 1
        if at < 0:
            return None
        return RelativePosition(
            self._starts[at], line - self._starts[at], getattr(node, "col_offset", 0)
        )

    # What was found

    def begin(self, fn: Fn | None, klass: Klass | None, cuts: int) -> Recalled | None:
        """What is known of a root; None if it has to be interpreted."""
        budget = self._project.budget
        left = budget.file, budget.root
        try:
            self._now = self._key(fn, klass)
        except Cut:
            self._now = None
        budget.file, budget.root = left
        self._before = (len(self.found), budget.file, cuts)
        return self._recall(*self._now) if self._now is not None else None

    def _recall(self, key: Hashable, texts: list[_Text]) -> Recalled | None:
        unit = self._memory.units.get(key)
        if unit is None:
            return None
        self.recalled += 1
        starts = tuple(one.start for one in texts)
        path = self._module.path
        moves = [
            (old, old + length, new - old)
            for old, length, new in zip(unit.starts, unit.lengths, starts, strict=True)
        ]

        def moved(site: Site) -> Site:
            if site.path != path:
                return site
            more = next(by for first, last, by in moves if first <= site.line < last)
            end = site.end_line + more if site.end_line else 0
            return replace(site, line=site.line + more, end_line=end)

        found = list(unit.found)
        if starts != unit.starts:
            found = [(_moved(one, moved), optimizer) for one, optimizer in found]
        inlined = set()
        for mark in unit.inlined:
            start = starts[unit.starts.index(mark.text)]
            inlined.add(self._functions[mark._replace(text=start)])
        marks = frozenset(self._places[node] for node in inlined)
        self._kept[key] = Unit(tuple(found), starts, unit.lengths, marks, unit.spent)
        return Recalled(found, inlined, unit.spent)

    def keep(self, inlined: Iterable[ast.AST], cuts: int) -> None:
        """Remember what the current root gave, unless it led where its names do not lead."""
        if self._now is None:
            return
        key, texts = self._now
        before, left, cut = self._before
        found = self.found[before:]
        path = self._module.path
        spans = [(one.start, one.end) for one in texts]
        lines = {s.line for one, _ in found for s in _sites(one) if s.path == path}
        marks = frozenset(self._places[node] for node in inlined if node in self._places)
        starts = tuple(one.start for one in texts)
        if (
            cuts == cut
            and all(any(a <= line <= b for a, b in spans) for line in lines)
            and all(mark.text in starts for mark in marks)
            and not any(_PLACE.search(text) for one, name in found for text in _texts(one, name))
        ):
            lengths = tuple(one.end - one.start + 1 for one in texts)
            spent = left - self._project.budget.file
            self._kept[key] = Unit(tuple(found), starts, lengths, marks, spent)

    def end(self) -> None:
        """The analysis is complete: remember what it used."""
        memory = self._memory
        memory.units = self._kept
        memory.names = self._names
        memory.leading = self._project.leading
        for path in self._project.read - {os.path.abspath(self._module.path)}:
            memory.depends.setdefault(path, _stamp(path))


def _sites(outcome: Outcome) -> list[Site]:
    violation = outcome.violation
    found = [violation.site, *(one.site for one in violation.notes)]
    return found if violation.step is None else [*found, violation.step]


def _texts(outcome: Outcome, optimizer: str) -> Iterable[str]:
    """What a finding says that may name a line."""
    return (
        optimizer,
        outcome.violation.message,
        *(one.test for decisions in outcome.decisions for one in decisions),
    )


def _moved(outcome: Outcome, move: Callable[[Site], Site]) -> Outcome:
    violation = outcome.violation
    there = replace(
        violation,
        site=move(violation.site),
        notes=tuple(replace(one, site=move(one.site)) for one in violation.notes),
        step=violation.step and move(violation.step),
    )
    return replace(outcome, violation=there)


def _stamp(path: str) -> Stamp:
    try:
        status = os.stat(path)
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size
