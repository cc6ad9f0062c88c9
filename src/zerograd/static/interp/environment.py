"""What is known where the interpreter is: variables, objects, and the loops and calls around."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from typing import NamedTuple

from zerograd.core.events import Site
from zerograd.core.late_pattern import pattern
from zerograd.explore.logic import Expr, Name, Variable
from zerograd.static.frameworks.table import Role
from zerograd.static.read.keys import AllocationSite, Key, local
from zerograd.static.read.module import Module, assigned_names
from zerograd.static.read.syntax_tree import nodes, text_of
from zerograd.static.read.values import Fn, Frame, Klass, KnownDict, Many, Thing, Value


class LoopNode(NamedTuple):
    """A loop of the source."""

    path: str
    node: ast.AST
    depth: int
    """How many calls there are around it."""
    name: str
    """The function that it is in: `Trainer.fit`."""
    outer: int
    """The loop around it; 0 is none."""


class UnseenCall(NamedTuple):
    """A call that was not followed, and that may run a backward."""

    text: str
    sites: tuple[Site, ...]
    """The calls that lead to it, and its own place."""


class Nesting:
    """The loops and the calls that are around the code that is read."""

    def __init__(self) -> None:
        self.count = 0
        """Numbers of loops and frames are given out once."""
        self.loops: list[int] = [0]
        """The loops around, the innermost last; 0 is none."""
        self.loop_nodes: dict[int, LoopNode] = {}
        self.stack: list[ast.AST] = []
        """The functions that were called to come here."""
        self.callers: dict[Site, set[Site | None]] = {}
        """By the place of an act: where the function that it is in was called."""
        self.inlined: set[ast.AST] = set()
        """All functions that were ever called,"""
        self.hooks: set[ast.AST] = set()
        """Those of them that may be registered to be called."""
        self.path_of: dict[ast.AST, str] = {}
        """and the file that each of them is in."""
        self.call_sites: dict[ast.AST, Site] = {}
        """By function that is being read: where it was called. The outermost comes first."""
        self.unseen: list[UnseenCall] = []
        """The calls that were not followed, and that may run a backward."""
        self.forwards: dict[int, set[Key]] = {}
        """By loop: the objects that are called in it, where gradients are recorded."""
        self.targets: set[Variable] = set()
        """Variables that the loops around assign in every iteration."""
        self.lengths: dict[Variable, tuple[int, int, Expr]] = {}
        """By counter: its loop, the number that it begins with, and how often the loop runs."""
        self.read_lengths: dict[str, int | None] = {}
        """By the text of a collection: how many items of it are read, while a loop goes through them."""
        self.shifting: set[Variable] = set()
        """Variables of loops by which objects are picked: others in every iteration."""
        self.inputs: set[int] = set()
        """Items that a model or a loss is called with, by identity of their nodes."""
        self.answers: dict[ast.Call, Name] = {}
        """The variables that hold whether the calls, when they were read last, returned True or False."""

    @property
    def loop(self) -> int:
        """The innermost loop."""
        return self.loops[-1]

    def number(self) -> int:
        """A number for a loop or a frame."""
        self.count += 1
        return self.count

    def enter_loop(self, ident: int, node: ast.AST, frame: Frame) -> None:
        """From here on the innermost loop is this one."""
        name = self.function(frame)
        path, depth = frame.module.path, len(self.stack)
        self.loop_nodes[ident] = LoopNode(path, node, depth, name, outer=self.loop)
        self.loops.append(ident)

    def function(self, frame: Frame) -> str:
        """The name of the function that is read: `Trainer.fit`, or `<module>`."""
        name = getattr(self.stack[-1], "name", "<lambda>") if self.stack else "<module>"
        return f"{frame.klass.node.name}.{name}" if frame.klass is not None else name

    def around(self) -> tuple[ast.AST, ...]:
        """The innermost loop, and the functions that were called from there to here."""
        loop = self.loop_nodes.get(self.loops[-1])
        if loop is None:
            return tuple(self.stack[-1:])
        return (loop.node, *self.stack[loop.depth :])

    def note_shifting(self, item: ast.Subscript, index: frozenset[Variable]) -> None:
        """An item whose index changes is another object in every iteration of that loop, unless it is data."""
        parts = item.slice.elts if isinstance(item.slice, ast.Tuple) else [item.slice]
        cut = any(isinstance(part, ast.Slice) for part in parts)
        if not cut and id(item) not in self.inputs:
            self.shifting |= index & self.targets

    def note_inputs(self, call: ast.Call) -> None:
        """What a model or a loss is called with is data, unless its name says that it is an object."""
        for argument in call.args:
            self._note_input(argument)

    def note_batch(self, node: ast.Assign, calls: Collection[str]) -> None:
        """A variable holds data if it is never called, and only methods of tensors are called on it: `x = data[i]`."""
        if not isinstance(_moved(node.value), ast.Subscript):
            return
        names = {name for target in node.targets for name in assigned_names(target)}
        if not names or any(map(_OBJECTS.search, names)):
            return
        for call in calls:
            owner, _, method = call.partition(".")
            if owner.partition("[")[0] in names and method not in OF_TENSORS:
                return
        self._note_input(node.value)

    def _note_input(self, node: ast.expr) -> None:
        inner = _moved(node)
        if isinstance(inner, ast.Subscript) and not _OBJECTS.search(text_of(inner.value)):
            self.inputs.add(id(inner))


def _moved(node: ast.expr) -> ast.expr:
    """What methods are called on: `batches[i]` of `batches[i].to(device)`."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        node = node.func.value
    return node


OF_TENSORS = frozenset(
    {"to", "cuda", "cpu", "size", "dim", "float", "long", "half", "double", "int", "bool", "view", "reshape",
     "permute", "transpose", "unsqueeze", "squeeze", "detach", "clone", "contiguous", "numpy", "tolist", "item",
     "requires_grad_", "repeat", "expand", "type", "flatten", "t", "mean", "sum", "keys", "items", "values", "get",
     "sub", "add", "mul", "div", "matmul", "mm", "eq", "gather", "index_select", "masked_fill", "where"}
)  # fmt: skip
"""Methods of tensors and of dictionaries of tensors."""
_OBJECTS = pattern(
    r"net|model|opt|module|layer|param|agent|client|actor|critic|polic|expert|learner|worker|head"
    r"|encoder|decoder|discr|gen|trainer|member|student|teacher|fns|func",
    re.IGNORECASE,
)
"""Collections of such names hold models, optimizers or what has them."""


class Mode:
    """What is true of the code that is read because of the statements around it."""

    def __init__(self) -> None:
        self.no_grad = 0
        """How many `no_grad` are around."""
        self.in_parameters = False
        """A loop goes through parameters: what it does to one, it does to all."""
        self.some = False
        """A test selects some of those parameters."""
        self.unguarded = True
        """Nothing has asked whether `.grad` is None."""
        self.statement: ast.expr | None = None
        """The latest expression statement: its value is not used."""


class Environment:
    """The current frame, those around it, and what objects hold."""

    def __init__(self, module: Module) -> None:
        self.top = Frame(module)
        self.frame = self.top
        self.frames = [self.top]
        """All frames that were ever entered."""
        self.branches = 0
        """How many branches and handlers are around the code that is read."""
        self.heap: dict[Key, Value] = {}
        """What attributes and items of objects hold."""
        self.closures: list[Fn] = []
        """Functions that were defined inside functions."""

    def enter(self, frame: Frame) -> Frame:
        """Makes a frame the current one; returns the one before."""
        caller, self.frame = self.frame, frame
        self.frames.append(frame)
        return caller

    def forget(self) -> None:
        """Lets go of what frames and functions hold of each other."""
        for frame in self.frames:
            frame.env.clear()
            frame.returns.clear()

    def names(self) -> dict[Key, str]:
        """The variable that holds each object, the first there is."""
        found: dict[Key, str] = {}
        for frame in self.frames:
            for name, value in frame.env.items():
                if isinstance(value, Thing):
                    found.setdefault(value.key, name)
        return found

    def held(self, name: str) -> Value | None:
        """What a variable of the current frame, or of one around it, holds."""
        frame: Frame | None = self.frame
        while frame is not None:
            if name in frame.env:
                return frame.env[name]
            if name in frame.locals:
                return Thing(frame.variable(name))
            frame = frame.parent
        return None

    def variable(self, node: ast.AST) -> Key | None:
        """The key of a variable or attribute; None for anything else."""
        if isinstance(node, ast.Name):
            frame: Frame | None = self.frame
            while frame is not None:
                if node.id in frame.aliases:
                    return frame.aliases[node.id]
                if node.id in frame.locals or node.id in frame.env:
                    value = frame.env.get(node.id)
                    if isinstance(value, Thing) and value is frame.owner:
                        return value.key
                    return frame.variable(node.id)
                frame = frame.parent
            return local(node.id)
        if isinstance(node, ast.Attribute):
            base = self._object(node.value)
            return base.attribute(node.attr) if base is not None else None
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            base = self.variable(node.value)
            return base.item(repr(node.slice.value)) if base is not None else None
        return None

    def _object(self, node: ast.expr) -> Key | None:
        """The key of what an attribute is of: `self.state`, where a variable is another name of it."""
        held = self.held(node.id) if isinstance(node, ast.Name) else None
        if isinstance(held, Thing) and isinstance(held.key[-1], (str, AllocationSite)):
            return held.key
        return self.variable(node)

    def name(self, node: ast.AST) -> Name | None:
        """A variable or attribute, as tests read it; None for anything else."""
        variable = self.variable(node)
        return Name(variable.shown, variable.call) if variable is not None else None

    def reads(self, node: ast.expr) -> frozenset[Variable]:
        """The variables and attributes that an expression reads."""
        found = (
            self.name(inner)
            for inner in nodes(node)
            if isinstance(inner, (ast.Name, ast.Attribute))
        )
        return frozenset(name for name in found if name is not None)

    def key(self, node: ast.expr) -> Key:
        """The key of what an expression gives: of a variable, or of its text."""
        return self.variable(node) or _key_of_text(node)


def _key_of_text(node: ast.expr) -> Key:
    """The key of an expression that is not a variable, by its text alone."""
    if isinstance(node, ast.Attribute):
        return _key_of_text(node.value).attribute(node.attr)
    if isinstance(node, ast.Subscript):
        return _key_of_text(node.value).item(text_of(node.slice))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        owner, text = text_of(node.func.value), text_of(node)
        if text.startswith(f"{owner}."):
            return _key_of_text(node.func.value).attribute(text[len(owner) + 1 :])
    return local(text_of(node))


class KnownObjects:
    """Roles of objects, what optimizers step, and what else was found out about them."""

    def __init__(self) -> None:
        self.roles: dict[Key, Role] = {}
        self.params: dict[Key, frozenset[Key] | None] = {}
        """What each optimizer steps; None where that cannot be seen."""
        self.classes: dict[Key, Klass] = {}
        """The classes of the modules whose parameters the code takes."""
        self.made: dict[Key, Site] = {}
        """Where each optimizer was made."""
        self.of_torch: set[Key] = set()
        """Optimizers of torch's own classes: their steps do no more than run a closure and use gradients."""
        self.fresh: set[Key] = set()
        """Objects that were made in the code, and share nothing with what was there before."""
        self.overwritten: set[Key] = set()
        """Objects that got something computed where it cannot be seen under which name: it may be any of their tensors."""
        self.leaves: set[Key] = set()
        """Tensors that were made in the code, and that gradients reach."""
        self.prepared: dict[Key, str] = {}
        """What accelerate or Fabric has prepared, and by which name."""
        self.handed: set[Key] = set()
        """Objects that the code has given away: others may do something to them."""
        self.holds: dict[Key, set[Key]] = {}
        """What objects of unseen classes were made with."""
        self.kept: set[Key] = set()
        """Optimizers that unseen code has changed for good: what their steps leave behind is unknown."""
        self.own_steps: dict[Key, frozenset[Key] | None] = {}
        """Objects of classes that no library has, and the parameters they were made with.

        If one is an optimizer, its step may do more than use gradients."""
        self.enabled: dict[Key, bool] = {}
        """Scalers that were made, and are known to be enabled, or not to be."""
        self.without_engine: set[Key] = set()
        """Optimizers that an engine takes where a setting chooses one: the code steps them where there is none."""
        self.registered = False
        """Unseen code was given a function that clears, and may call it at any time."""
        self.frozen: set[Key] = set()
        """Objects that no gradient reaches now."""
        self.perhaps_frozen: set[Key] = set()
        """Objects that gradients reach if a value says so which cannot be seen."""

    def is_optimizer(self, value: Value) -> bool:
        """Whether an object is known to be an optimizer."""
        return isinstance(value, Thing) and self.roles.get(value.key, value.role) is Role.OPTIMIZER

    def is_stepped(self, key: Key) -> bool:
        """Whether an optimizer is known to step an object, a part of it, or what it is a part of."""
        return any(key.overlaps(one) for params in self.params.values() for one in params or ())

    def hand_on(self, value: Value) -> None:
        """Remembers objects that leave the code that is read."""
        if isinstance(value, Thing):
            self.handed.add(value.key)
        elif isinstance(value, Many):
            for item in value.items:
                self.hand_on(item)
        elif isinstance(value, KnownDict):
            for _, item in value.items:
                self.hand_on(item)
