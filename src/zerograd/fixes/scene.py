"""What a repair looks at: a finding, the code around it, and what the calls in it are about."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from zerograd.events import Site
from zerograd.finding import Edit, Finding
from zerograd.static import names
from zerograd.static.edits import Code, Function, Refused
from zerograd.static.facts import text_of

LOOPS = (ast.For, ast.AsyncFor, ast.While)
CLEAR_WORDS = re.compile(r"zero|clear|reset", re.IGNORECASE)
CLIP_WORDS = re.compile(r"clip|clamp|unscale|norm", re.IGNORECASE)
_NAMES = (ast.Name, ast.Attribute)
_CLEARS = re.compile(r"^(zero_grad|zero_grads|clear_grad|clear_grads|reset_grad)$")


@dataclass(frozen=True)
class Repair:
    """One way to repair a finding; whether it holds is for others to find out."""

    message: str
    edits: Callable[[], tuple[Edit, ...]]
    """Or `Refused`, with the reason."""
    safe: bool = True


@dataclass(frozen=True)
class Place:
    """Between two statements: before one, or after one."""

    before: ast.stmt | None = None
    after: ast.stmt | None = None


@dataclass(frozen=True)
class Window:
    """Where a window begins, and whether that is sure.

    It is not where a backward of an earlier phase adds to it as well, whether meant or not, and where
    something is done to the gradients before its own backward.
    """

    start: Place
    sure: bool


class Scene:
    """A finding in its code."""

    def __init__(self, code: Code, finding: Finding, others: Sequence[Finding] = ()) -> None:
        self.code = code
        self.finding = finding
        self.others = others
        """All that is found in the file."""

    # The ends of the finding

    def statement(self, site: Site) -> ast.stmt:
        """The statement that a place belongs to."""
        return self.code.statement(site)

    def call(self, site: Site) -> ast.Call:
        """The call that stands exactly there."""
        node = self.code.node(site)
        if not isinstance(node, ast.Call):
            raise Refused("it is no call")
        return node

    @property
    def here(self) -> ast.stmt:
        """The statement of the finding itself."""
        return self.statement(self.finding.site)

    def note(self, number: int) -> Site:
        """The site of one of the finding's notes."""
        if number >= len(self.finding.notes):
            raise Refused("the finding has no other end")
        return self.finding.notes[number].site

    @property
    def step(self) -> Site:
        """The step at which it shows."""
        if self.finding.step is None:
            raise Refused("no step shows it")
        return self.finding.step

    def also(self, *codes: str) -> bool:
        """Whether one of these rules is broken in the same function."""
        here = self.code.function(self.here)
        for one in self.others:
            if one.code in codes and one.site.path == self.finding.site.path:
                if self.code.function(self.code.statement(one.site)) is here:
                    return True
        return False

    # Edits

    def put(self, place: Place, *lines: str) -> tuple[Edit, ...]:
        """New lines at a place."""
        if place.before is not None:
            return (self.code.insert_before(place.before, *lines),)
        assert place.after is not None
        return (self.code.insert_after(place.after, *lines),)

    def carry(
        self, unit: Sequence[ast.stmt], place: Place, words: re.Pattern[str], *ahead: str
    ) -> tuple[Edit, ...]:
        """Statements moved to a place, with new lines ahead of them."""
        if any(node in (place.before, place.after) for one in unit for node in ast.walk(one)):
            raise Refused("a statement cannot be moved into itself")
        lines = self.code.taken(unit, words)
        return (self.code.delete(unit, words), *self.put(place, *ahead, *lines))

    # Whose it is

    def stepped(self, call: ast.Call) -> str:
        """The optimizer that a call steps, as the code there calls it."""
        if not isinstance(call.func, ast.Attribute):
            raise Refused("it is no step of an optimizer")
        return self.code.text(call.args[0] if self._through(call) else call.func.value)

    def scaler(self, call: ast.Call) -> str:
        """The scaler that a call steps through; "" for a step of the optimizer itself."""
        if not self._through(call) or method(call) != "step":
            return ""
        assert isinstance(call.func, ast.Attribute)
        return self.code.text(call.func.value)

    def _through(self, call: ast.Call) -> bool:
        """Whether it is `scaler.step(optimizer)`, and not `optimizer.step(closure)`."""
        if not isinstance(call.func, ast.Attribute) or not call.args or self.closure(call):
            return False
        owner = text_of(call.func.value)
        if call.func.attr != "step" or names.SCALER_NAME.search(owner):
            return call.func.attr in ("step", "optimizer_step")
        return any(
            isinstance(node, ast.Attribute)
            and node.attr in ("scale", "unscale_", "update")
            and text_of(node.value) == owner
            for node in ast.walk(self.code.tree)
        )

    def closure(self, call: ast.Call) -> ast.FunctionDef | None:
        """The function of this file that a step is handed."""
        first = call.args[0] if call.args else None
        name = text_of(first).rpartition(".")[2] if isinstance(first, _NAMES) else ""
        for node in ast.walk(self.code.tree):
            if isinstance(node, ast.FunctionDef) and node.name == name:
                return node
        return None

    def scaling(self, backward: ast.stmt) -> str:
        """The scaler that has scaled what a statement back-propagates."""
        for around in (backward, self.loop(backward), self.code.function(backward)):
            found = {
                self.code.text(call.func.value)
                for call in calls(around or backward)
                if isinstance(call.func, ast.Attribute) and call.func.attr == "scale"
            }
            if len(found) == 1:
                return found.pop()
        raise Refused("it cannot be seen which scaler has scaled the loss")

    # Blocks

    def loop(self, statement: ast.stmt) -> ast.stmt | None:
        """The innermost loop of its function around a statement."""
        for above in self.code.ancestors(statement):
            if isinstance(above, Function):
                return None
            if isinstance(above, LOOPS):
                return above
        return None

    def after(self, step: ast.stmt) -> Place:
        """Right after a step; after the scaler's update where that follows."""
        block = self.code.block(step)
        number = self.code.index(step)
        while number + 1 < len(block) and is_call_of(block[number + 1], "update"):
            number += 1
        return Place(after=block[number])

    def behind(self, calls_of_step: Sequence[ast.Call]) -> Place:
        """After the last of several steps, or of the arms that hold them."""
        statements = [self.code.statement_of(call) for call in calls_of_step]
        block = self.code.meet(*statements)
        last = max(self.number(one, block) for one in statements)
        return self.after(block[last])

    def window(self, backward: ast.stmt, step: ast.stmt, owner: str) -> Window:
        """Where the window begins that a step closes: a clear belongs there."""
        block = self.code.meet(backward, step)
        mixing, closing = self.number(backward, block), self.number(step, block)
        last = max((n for n in range(closing + 1) if backwards(block[n])), default=mixing)
        first = last
        while first > 0 and not steps(block[first - 1]):
            first -= 1
        filling = next(n for n in range(first, last + 1) if n == last or backwards(block[n]))
        ahead = block[first:filling]
        sure = mixing >= first and not mentions_gradients(ahead)
        # What the phase before has stepped may be cleared at its end.
        before = {self.stepped(call) for call in steps(block[first - 1])} if first else set()
        for number in reversed(range(first, filling)):
            if is_clear(block[number]) and cleared(block[number]) not in before:
                if not binds(block[number + 1 : filling], owner):
                    return Window(Place(after=block[number]), sure)
        in_function = isinstance(self.code.holder(block[0]), (*Function, ast.Module))
        if first > 0 or in_function or binds(ahead, owner) or mentions_gradients(ahead):
            return Window(Place(before=block[filling]), sure)
        return Window(Place(before=block[0]), sure)

    def number(self, statement: ast.stmt, block: list[ast.stmt]) -> int:
        """The number of the statement of a block that another is part of."""
        one = self.code.within(statement, block)
        if one is None:
            raise Refused("the statements stand in different blocks")
        return block.index(one)


# What statements are about


def own_nodes(statement: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a statement, but for those of functions that are only defined in it."""
    yield statement
    todo = list(ast.iter_child_nodes(statement))[::-1]
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, Function):
            todo.extend(list(ast.iter_child_nodes(node))[::-1])


def calls(statement: ast.AST) -> Iterator[ast.Call]:
    """The calls in a statement."""
    return (node for node in own_nodes(statement) if isinstance(node, ast.Call))


def method(call: ast.Call) -> str:
    """The last part of what is called."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


def is_step(call: ast.Call) -> bool:
    """Whether a call steps an optimizer, as far as its words say."""
    if not isinstance(call.func, ast.Attribute):
        return False
    owner = text_of(call.func.value).rpartition(".")[2]
    return call.func.attr in ("step", "optimizer_step") and not names.SCHEDULER.search(owner)


def steps(statement: ast.AST) -> list[ast.Call]:
    """The steps in a statement."""
    return [call for call in calls(statement) if is_step(call)]


def backwards(statement: ast.AST) -> list[ast.Call]:
    """The backward calls in a statement."""
    return [call for call in calls(statement) if method(call) in ("backward", "manual_backward")]


def clips(statement: ast.AST) -> list[ast.Call]:
    """The clips in a statement."""
    return [call for call in calls(statement) if method(call) in names.CLIPS]


def is_call_of(statement: ast.stmt, *methods: str) -> ast.Call | None:
    """The call that a statement is nothing but, if it is one of these methods."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        return statement.value if method(statement.value) in methods else None
    return None


def is_clear(statement: ast.stmt) -> bool:
    """Whether a statement does nothing but clear gradients."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        call = statement.value
        if _CLEARS.match(method(call)):
            return True
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        words = ("zero_", "detach_")
        return method(call) in words and owner is not None and mentions_gradients([owner])
    if isinstance(statement, ast.Assign) and all(map(is_gradient, statement.targets)):
        value = statement.value
        if isinstance(value, ast.Call):
            return method(value) in ("zeros_like", "zeros", "new_zeros")
        return isinstance(value, ast.Constant) and value.value is None
    if isinstance(statement, (ast.For, ast.If)) and not statement.orelse:
        return all(map(is_clear, statement.body))
    return False


def cleared(statement: ast.stmt) -> str:
    """Whose gradients a plain `x.zero_grad()` clears; "" for anything else."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        call = statement.value
        if isinstance(call.func, ast.Attribute) and _CLEARS.match(call.func.attr):
            return text_of(call.func.value)
    return ""


def clearing(scene: Scene, statement: ast.stmt) -> ast.stmt:
    """The whole of a clear: the loop over parameters, the `if` around it."""
    if not is_clear(statement):
        raise Refused("the statement does more than clear")
    holder = scene.code.holder(statement)
    while isinstance(holder, ast.stmt) and is_clear(holder):
        statement, holder = holder, scene.code.holder(holder)
    return statement


def is_modulo(node: ast.AST) -> bool:
    """Whether it is `a % b`, of numbers."""
    return (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Mod)
        and not isinstance(node.left, (ast.Constant, ast.JoinedStr))
    )


def is_gradient(node: ast.AST) -> bool:
    """Whether it is `x.grad`, and not `torch.autograd.grad`."""
    if not isinstance(node, ast.Attribute) or node.attr != "grad":
        return False
    return text_of(node.value).rpartition(".")[2] not in ("autograd", "func")


def mentions_gradients(nodes: Iterable[ast.AST]) -> bool:
    """Whether `.grad` is read or written there."""
    return any(is_gradient(node) for one in nodes for node in own_nodes(one))


def names_in(text: str) -> set[str]:
    """The names that an expression starts from."""
    return {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}


def bound(statements: Iterable[ast.stmt]) -> set[str]:
    """The names that statements bind."""
    found = set()
    for statement in statements:
        for node in own_nodes(statement):
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                found.add(node.id)
            elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                found.add(node.name)
            elif isinstance(node, ast.alias):
                found.add((node.asname or node.name).split(".")[0])
    return found


def binds(statements: Iterable[ast.stmt], expression: str) -> bool:
    """Whether statements bind a name that an expression starts from."""
    return not names_in(expression).isdisjoint(bound(statements))


def used(statements: Iterable[ast.stmt]) -> set[str]:
    """The names that statements read."""
    return {
        node.id
        for statement in statements
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
