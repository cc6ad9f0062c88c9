"""What a repair works with: a finding, the code around it, and the objects that its calls use."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from zerograd.core.events import Site
from zerograd.core.finding import Edit, Finding
from zerograd.core.rule import Windows
from zerograd.fix.edits import EditableCode, Function, Refused
from zerograd.fix.syntax import (
    backwards,
    binds,
    calls,
    cleared,
    is_call_of,
    is_clear,
    mentions_gradients,
    method,
    steps,
)
from zerograd.rules.catalogue import BY_CODE
from zerograd.static.frameworks.torch import SCALER_NAME
from zerograd.static.read.syntax_tree import LOOPS, last_name, text_of

_NAMES = (ast.Name, ast.Attribute)


@dataclass(frozen=True)
class Repair:
    """One way to repair a finding. A second check decides whether it works."""

    message: str
    edits: Callable[[], tuple[Edit, ...]]
    """The edits, or `Refused` with the reason."""
    safe: bool = True


@dataclass(frozen=True)
class InsertionPoint:
    """A place between two statements: before one, or after one."""

    before: ast.stmt | None = None
    after: ast.stmt | None = None


@dataclass(frozen=True)
class WindowStart:
    """Where a window begins, and whether that is certain.

    It is uncertain if a backward of an earlier phase adds to the window, or if the gradients are used
    before the window's own backward.
    """

    start: InsertionPoint
    sure: bool


class Scene:
    """A finding in its code."""

    def __init__(
        self, code: EditableCode, finding: Finding, others: Sequence[Finding] = ()
    ) -> None:
        self.code = code
        self.finding = finding
        self.others = others
        """All findings of the file."""

    # The places of the finding

    def statement(self, site: Site) -> ast.stmt:
        """The statement that a place belongs to."""
        return self.code.statement(site)

    def call(self, site: Site) -> ast.Call:
        """The call at exactly this place."""
        node = self.code.node(site)
        if not isinstance(node, ast.Call):
            raise Refused("the code at this place is not a call")
        return node

    @property
    def here(self) -> ast.stmt:
        """The statement of the finding itself."""
        return self.statement(self.finding.site)

    def note(self, number: int) -> Site:
        """The site of one of the finding's notes."""
        if number >= len(self.finding.notes):
            raise Refused("the finding names no other line")
        return self.finding.notes[number].site

    @property
    def step(self) -> Site:
        """The step that uses the wrong gradients."""
        if self.finding.step is None:
            raise Refused("the finding names no step")
        return self.finding.step

    def also(self, *about: Windows) -> bool:
        """Whether the same function breaks a rule about these properties of windows."""
        here = self.code.function(self.here)
        for one in self.others:
            if BY_CODE[one.code].windows in about and one.site.path == self.finding.site.path:
                if self.code.function(self.code.statement(one.site)) is here:
                    return True
        return False

    # Edits

    def exchanged(self, node: ast.expr, text: str) -> tuple[Edit, ...]:
        """Edits that put a text in the place of an expression."""
        return (self.code.edit(self.code.span(node), text),)

    def put(self, place: InsertionPoint, *lines: str) -> tuple[Edit, ...]:
        """Edits that insert lines at a place."""
        if place.before is not None:
            return (self.code.insert_before(place.before, *lines),)
        assert place.after is not None
        return (self.code.insert_after(place.after, *lines),)

    def insertion(self, place: InsertionPoint, line: str, *, safe: bool = True) -> Repair:
        """A repair that inserts a line at a place."""
        return Repair(f"insert {line}", partial(self.put, place, line), safe)

    def carry(
        self, unit: Sequence[ast.stmt], place: InsertionPoint, topic: re.Pattern[str], *ahead: str
    ) -> tuple[Edit, ...]:
        """Edits that move statements to a place, with new lines before them."""
        if any(node in (place.before, place.after) for one in unit for node in ast.walk(one)):
            raise Refused("a statement cannot be moved into itself")
        there = place.before or place.after
        assert there is not None
        if any(self.code.function(one) is not self.code.function(there) for one in unit):
            raise Refused("it would have to move into another function, which has other names")
        lines = self.code.taken(unit, topic)
        return (self.code.delete(unit, topic), *self.put(place, *ahead, *lines))

    # Optimizers and scalers

    def stepped(self, call: ast.Call) -> str:
        """The optimizer that a call steps, as an expression of that code."""
        if not isinstance(call.func, ast.Attribute):
            raise Refused("the call is not a step of an optimizer")
        return self.code.text(call.args[0] if self._through(call) else call.func.value)

    def scaler(self, call: ast.Call) -> str:
        """The scaler that a call steps through; "" if it calls the optimizer itself."""
        if not self._through(call) or method(call) != "step":
            return ""
        assert isinstance(call.func, ast.Attribute)
        return self.code.text(call.func.value)

    def _through(self, call: ast.Call) -> bool:
        """Whether it is `scaler.step(optimizer)`, and not `optimizer.step(closure)`."""
        if not isinstance(call.func, ast.Attribute) or not call.args or self.closure(call):
            return False
        owner = text_of(call.func.value)
        if call.func.attr != "step" or SCALER_NAME.search(owner):
            return call.func.attr in ("step", "optimizer_step")
        return any(
            isinstance(node, ast.Attribute)
            and node.attr in ("scale", "unscale_", "update")
            and text_of(node.value) == owner
            for node in ast.walk(self.code.tree)
        )

    def closure(self, call: ast.Call) -> ast.FunctionDef | None:
        """The function of this file that is an argument of the step."""
        first = call.args[0] if call.args else None
        if not isinstance(first, _NAMES):
            return None
        name = last_name(text_of(first))
        for node in ast.walk(self.code.tree):
            if isinstance(node, ast.FunctionDef) and node.name == name:
                return node
        return None

    def scaling(self, backward: ast.stmt) -> str:
        """The scaler that scaled the loss of a backward."""
        for around in (backward, self.loop(backward), self.code.function(backward)):
            found = {
                self.code.text(call.func.value)
                for call in calls(around or backward)
                if isinstance(call.func, ast.Attribute) and call.func.attr == "scale"
            }
            if len(found) == 1:
                return found.pop()
        raise Refused("it is unclear which scaler scaled the loss")

    # Blocks

    def loop(self, statement: ast.stmt) -> ast.stmt | None:
        """The innermost loop around a statement, within its function."""
        for above in self.code.ancestors(statement):
            if isinstance(above, Function):
                return None
            if isinstance(above, LOOPS):
                return above
        return None

    def around(self, statement: ast.stmt) -> ast.AST:
        """The innermost loop around a statement, or else its function."""
        return self.loop(statement) or self.code.function(statement)

    def opened(self, *methods: str) -> Iterator[str]:
        """The objects whose `with` blocks are around the finding: `accelerator` of `with accelerator.no_sync():`."""
        for above in self.code.ancestors(self.here):
            for item in above.items if isinstance(above, ast.With) else ():
                call = item.context_expr
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
                    if call.func.attr in methods:
                        yield self.code.text(call.func.value)

    def after(self, step: ast.stmt) -> InsertionPoint:
        """The place right after a step, or after the scaler's update if that follows."""
        block = self.code.block(step)
        number = self.code.index(step)
        while number + 1 < len(block) and is_call_of(block[number + 1], "update"):
            number += 1
        return InsertionPoint(after=block[number])

    def behind(self, calls_of_step: Sequence[ast.Call]) -> InsertionPoint:
        """The place after the last of several steps, or of the branches that contain them."""
        statements = [self.code.statement_of(call) for call in calls_of_step]
        block = self.code.meet(*statements)
        last = max(self.number(one, block) for one in statements)
        return self.after(block[last])

    def window(self, backward: ast.stmt, step: ast.stmt, owner: str) -> WindowStart:
        """The window that a step closes: a clear belongs where it begins."""
        block = self.code.meet(backward, step)
        mixing, closing = self.number(backward, block), self.number(step, block)
        last = max((n for n in range(closing + 1) if backwards(block[n])), default=mixing)
        first = last
        while first > 0 and not steps(block[first - 1]):
            first -= 1
        filling = next(n for n in range(first, last + 1) if n == last or backwards(block[n]))
        ahead = block[first:filling]
        sure = mixing >= first and not mentions_gradients(ahead)
        # The phase before may clear at its end what it has stepped.
        before = {self.stepped(call) for call in steps(block[first - 1])} if first else set()
        for number in reversed(range(first, filling)):
            if is_clear(block[number]) and cleared(block[number]) not in before:
                if not binds(block[number + 1 : filling], owner):
                    return WindowStart(InsertionPoint(after=block[number]), sure)
        in_function = isinstance(self.code.holder(block[0]), (*Function, ast.Module))
        if first > 0 or in_function or binds(ahead, owner) or mentions_gradients(ahead):
            return WindowStart(InsertionPoint(before=block[filling]), sure)
        return WindowStart(InsertionPoint(before=block[0]), sure)

    def number(self, statement: ast.stmt, block: list[ast.stmt]) -> int:
        """The index in a block of the statement that contains another one."""
        one = self.code.within(statement, block)
        if one is None:
            raise Refused("the statements are in different blocks")
        return block.index(one)


def clearing(scene: Scene, statement: ast.stmt) -> ast.stmt:
    """The outermost statement that does nothing but this clear: a loop over parameters, an `if`."""
    if not is_clear(statement):
        raise Refused("the statement does more than clear gradients")
    holder = scene.code.holder(statement)
    while isinstance(holder, ast.stmt) and is_clear(holder):
        statement, holder = holder, scene.code.holder(holder)
    return statement
