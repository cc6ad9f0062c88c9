"""What speaks against a violation that rests on something that was not seen: then it is only possible.

A missing backward is certain only if everything is understood that runs where it would have to be: no call that was
not followed, no backward that is taken to reach other optimizers only, no gradients that are set or used by hand. A
missing clear is certain only if every clear that runs there is known to clear something else, and no unknown object
runs the backward. Other reasons: a setting that chooses both the backward and the step, a count that decides about
the clear and the step, an optimizer that is made and stepped once, as in a test, a file that computes with numpy and
not with torch.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cached_property

from zerograd.core.events import Backward, Site, Step, Zero
from zerograd.core.records import replace
from zerograd.core.rule import Rule, Violation
from zerograd.explore import logic
from zerograd.explore.decisions import Decision, weight
from zerograd.explore.explore import Outcome
from zerograd.explore.flow import Alt, Block, Flow, Jump, Loop, Raise, Seq, find
from zerograd.explore.logic import Expr
from zerograd.static.entry_states import acts_in_order
from zerograd.static.frameworks import registry
from zerograd.static.frameworks.torch import OPTIMIZER_NAME
from zerograd.static.interp.emitter import Act
from zerograd.static.read.keys import RESULT, AllocationSite, Key
from zerograd.static.read.module import Module
from zerograd.static.read.syntax_tree import called_name, is_gradient, nodes, spans
from zerograd.static.roots import Root
from zerograd.static.subject_events import SubjectKeys


class Doubts:
    """What speaks against the violations of one root."""

    def __init__(self, root: Root, module: Module, repeated: bool) -> None:
        self.root = root
        self.module = module
        self.repeated = repeated
        """Whether the root is read as called again and again."""
        self.own_backwards: frozenset[Site] | None = None
        """The backward calls that are taken to reach the subject that is explored; None if none has to."""
        self.own_clears: frozenset[Site] = frozenset()
        """The clears that are taken to reach it."""
        self.others: list[SubjectKeys] = []
        """The other subjects that are stepped."""

    def applied(self, outcome: Outcome, subject: SubjectKeys, flow: Flow) -> Outcome:
        """The violation; with two decisions more, so that it is only possible, if something speaks against it."""
        doubt = self.doubt(outcome.rule, outcome.violation, subject, flow)
        if not doubt and outcome.rule.outlives_calls and _has_one_count(outcome, subject, flow):
            doubt = "the count that closes a window also clears"
        if not doubt:
            return outcome
        decision = Decision(doubt, outcome=False, weight=2)
        # A path that is only possible already stays as it is.
        paths = (path if weight(path) > 1 else path | {decision} for path in outcome.decisions)
        return replace(outcome, decisions=tuple(paths))

    def doubt(self, rule: Rule, violation: Violation, subject: SubjectKeys, flow: Flow) -> str:
        """What speaks against a violation; empty if nothing does."""
        if self.is_without_torch:
            return "the file computes with numpy, and no file that was read imports torch"
        if self.is_tried(subject, flow):
            return "it is made here and stepped only once"
        if rule.pairs_scaling and _trains_both_ways(subject, flow):
            return "one setting chooses both the backward and the step"
        known = self.root.interpreter.known
        if rule.pairs_scaling and _asks_for_scaler(subject, flow, known.enabled):
            return "the setting that chooses the backward enables the scaler"
        if rule.outlives_calls and known.registered:
            return "a function that clears is registered"
        if rule.outlives_calls and (doubt := self.other_clear(violation, subject, flow)):
            return doubt
        if not rule.misses_backward or self.own_backwards is None:
            return ""
        if subject.key in known.own_steps:
            return "its step may do more than use gradients"
        if doubt := _other_backward(violation, self.own_backwards, flow):
            return doubt
        if doubt := self.unseen_backward(violation):
            return doubt
        if subject.key.is_by_hand:
            return "it is moved and moved back by hand" if _is_moved_twice(violation, flow) else ""
        return "gradients are used by hand" if self.is_by_hand(violation) else ""

    def other_clear(self, violation: Violation, subject: SubjectKeys, flow: Flow) -> str:
        """A clear that runs where a clear is missed, and that may clear this subject, too."""
        used = violation.notes[0].site if violation.notes else None
        for act in _between(used, violation.site, flow) if used is not None else ():
            if not isinstance(act.event, Zero) or act.event.site in self.own_clears:
                continue
            if not all(self.is_another(key, subject) for key in act.whose):
                return f"`{act.event.call}` in line {act.event.site.line} clears it, too"
        for act in find(flow, Act):
            # A wrapper that is called an optimizer leaves the clear to the code.
            is_wrapper = OPTIMIZER_NAME.search(act.event.call)
            if act.unknown and act.event.site == violation.site and not is_wrapper:
                return f"what runs `{act.event.call}` may clear in its step"
        return ""

    def is_another(self, key: Key, subject: SubjectKeys) -> bool:
        """Whether a cleared object is known not to be the subject, nor what it steps.

        It is stepped itself, or is what another optimizer steps; or both optimizers are made here, over different objects.
        """
        stepped = [subject.beside, *({one.key, *(one.params or ())} for one in self.others)]
        if any(key.overlaps(one) for keys in stepped for one in keys):
            return True
        known = self.root.interpreter.known
        mine, its = subject.params, known.params.get(key)
        if key == RESULT or key in known.fresh:
            return True
        return bool(mine and its) and not any(a.overlaps(b) for a in mine or () for b in its or ())

    @cached_property
    def is_without_torch(self) -> bool:
        """Whether a file may use a network of its own, without torch."""
        modules = filter(None, self.root.interpreter.names.project.modules.values())
        libraries = registry.MANAGING | {"torch"}
        return "numpy" in self.module.packages and all(
            libraries.isdisjoint(module.packages) for module in modules
        )

    def is_tried(self, subject: SubjectKeys, flow: Flow) -> bool:
        """Whether a function makes an optimizer and steps it outside of loops: a test, not training."""
        if self.root.fn is None or self.repeated or not isinstance(subject.key[0], AllocationSite):
            return False
        steps = find(flow, Act)
        return not any(
            act.event.loop
            for act in steps
            if isinstance(act.event, Step) and subject.key in act.whose
        )

    def unseen_backward(self, violation: Violation) -> str:
        """A call that was not followed, and may run the backward that is missed.

        That a backward is missed is certain only if everything is understood that is run where it would have to be.
        """
        start, end = _gap(violation)
        for call in self.root.interpreter.nesting.unseen:
            if any(self.is_between(site, start, end) for site in call.sites):
                return f"`{call.text}` in line {call.sites[-1].line} may run a backward"
        return ""

    def is_between(self, site: Site, start: Site | None, end: Site) -> bool:
        """Whether what is at a place may run after a clear or a step and before the next step."""
        around = self.around(end)
        if start is not None and self.around(start) is not around:
            callers = self.root.interpreter.nesting.callers.get(start, set())
            start = next(iter(callers)) if len(callers) == 1 else None
            if start is not None and self.around(start) is around:
                return self.is_between(site, start, end)
            return True  # the functions are called in turn, from wherever
        if self.around(site) is not around:
            return False
        if start is None or start.line <= end.line:
            return (start is None or start.line <= site.line) and site.line <= end.line
        loop = self.loop_of(start, end)
        if loop is None:
            return True
        inside = loop.lineno <= site.line <= (loop.end_lineno or 0)
        return inside and (site.line >= start.line or site.line <= end.line)

    def around(self, site: Site) -> ast.AST | str:
        """The innermost function that was followed to a place; else the file of the place."""
        return self.root.interpreter.function_around(site) or site.path

    def loop_of(self, *sites: Site) -> ast.stmt | None:
        """The innermost loop around some places of one function."""
        loops = [
            loop.node
            for loop in self.root.interpreter.nesting.loop_nodes.values()
            if isinstance(loop.node, ast.stmt)
            if all(loop.path == site.path and spans(loop.node, site.line) for site in sites)
        ]
        return max(loops, key=lambda node: node.lineno) if loops else None

    def is_by_hand(self, violation: Violation) -> bool:
        """Whether gradients are set by hand where a backward is missed, or used before they are cleared."""
        used = violation.notes[0].site if violation.notes else None
        if any(used is None or not _is_above(one, used) for one in self.set_elsewhere):
            return True
        if used is None or used.path != violation.site.path:
            return False
        start, end = used.line, violation.site.line
        lines = self.lines_that_use if violation.step is not None else self.lines_that_set
        if start <= end:
            return any(start <= line < end for line in lines)
        return any(line >= start or line < end for line in lines)

    @cached_property
    def set_elsewhere(self) -> list[tuple[str, ast.AST, int]]:
        """Where functions of other files that were followed set gradients: file, function and line."""
        functions = (
            (module.path, function)
            for module, function, facts in self.root.interpreter.followed()
            if facts.grads and module is not self.module
        )
        return [
            (path, function, getattr(node, "lineno", 0))
            for path, function in functions
            for node in nodes(function)
            if _sets_gradient(node)
        ]

    @cached_property
    def lines_that_set(self) -> list[int]:
        """Where code that was followed sets gradients by hand."""
        found = (node for node in self.followed() if isinstance(node, (ast.stmt, ast.expr)))
        return [node.lineno for node in found if _sets_gradient(node)]

    @cached_property
    def lines_that_use(self) -> list[int]:
        """Where code that was followed computes with gradients by hand."""
        found = [node for node in self.followed() if isinstance(node, (ast.Attribute, ast.Call))]
        looked_at = {
            _without_views(node.func.value)
            for node in found
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
            if node.func.attr in _LOOKS
        }
        compared = {node.left for node in self.followed() if isinstance(node, ast.Compare)}
        return [
            node.lineno
            for node in found
            if is_gradient(node) and isinstance(node.ctx, ast.Load)
            if node not in looked_at | compared
        ]

    def followed(self) -> Iterator[ast.AST]:
        """The nodes of the root and of the functions of its file that it calls."""
        fn = self.root.fn
        top = [fn.node] if fn is not None else self.module.statements
        functions = self.root.interpreter.followed()
        return nodes(*top, *(node for module, node, _ in functions if module is self.module))


def _has_one_count(outcome: Outcome, subject: SubjectKeys, flow: Flow) -> bool:
    """Whether a violation rests on a test of a count, which clears, and another test of the same count steps.

    `(step.number - 1) % n == 0` clears, `step.number % n == 0` steps: both are assumed, because the code that
    counts is not seen.
    """
    assumed = {one.test for path in outcome.decisions for one in path if "%" in one.test}
    if not assumed:
        return False
    clears: list[Expr] = []
    steps: list[Expr] = []
    for alt in find(flow, Alt):
        if logic.remainders(alt.test):
            acts = find(alt, Act)
            if logic.show(alt.test) in assumed and any(isinstance(a.event, Zero) for a in acts):
                clears.append(alt.test)
            if any(isinstance(a.event, Step) and subject.key in a.whose for a in acts):
                steps.append(alt.test)
    return any(
        logic.reads(clear) == logic.reads(step) and clear != step
        for clear in clears
        for step in steps
    )


def _is_moved_twice(violation: Violation, flow: Flow) -> bool:
    """Whether a violation is about two steps in the code: a search along the gradient writes both on purpose."""
    acts = find(flow, Act)
    steps = {act.event.site for act in acts if isinstance(act.event, Step)}
    return len({violation.site, *(note.site for note in violation.notes)} & steps) > 1


def _trains_both_ways(subject: SubjectKeys, flow: Flow) -> bool:
    """Whether there are a backward and a step with a scaler, and a backward and a step without."""
    acts = find(flow, Act)
    losses = {act.event.scaled for act in acts if isinstance(act.event, Backward)}
    mine = (act.event for act in acts if subject.key in act.whose)
    steps = {event.scaled for event in mine if isinstance(event, Step)}
    return len(losses) > 1 and len(steps) > 1


def _asks_for_scaler(subject: SubjectKeys, flow: Flow, enabled: Mapping[Key, bool]) -> bool:
    """Whether a test chooses a scaled or a plain backward, and one step is for both: by a scaler that may be off."""
    acts = (act for act in find(flow, Act) if subject.key in act.whose)
    mine = [act for act in acts if isinstance(act.event, Step)]
    if any(act.scaler is None or enabled.get(act.scaler) for act in mine):
        return False
    arms = ([_scales(alt.then), _scales(alt.orelse)] for alt in find(flow, Alt))
    return any(
        {True} in scales and any(False in one and True not in one for one in scales)
        for scales in arms
    )


def _scales(arm: Flow) -> set[bool | None]:
    """Whether the losses of an arm are scaled."""
    acts = (act.event for act in find(arm, Act))
    return {event.scaled for event in acts if isinstance(event, Backward)}


def _other_backward(violation: Violation, own: frozenset[Site], flow: Flow) -> str:
    """A backward that runs where one is missed, and is taken to reach other optimizers only."""
    for act in _between(*_gap(violation), flow):
        if isinstance(act.event, Backward) and act.event.site not in own:
            return f"`{act.event.call}` in line {act.event.site.line} reaches it, too"
    return ""


def _gap(violation: Violation) -> tuple[Site | None, Site]:
    """Between which places a backward is missed: a clear, or a step, and the step after it."""
    if violation.step is not None:
        return violation.site, violation.step
    return (violation.notes[0].site if violation.notes else None), violation.site


def _between(start: Site | None, end: Site, flow: Flow) -> list[Act]:
    """What runs from one place to another, or from the beginning; around in a loop, if it comes first in the code."""
    within = flow
    for loop in find(flow, Loop):
        if start is not None and {start, end} <= {act.event.site for act in acts_in_order(loop)}:
            within = loop  # an inner loop comes later
    acts = [*acts_in_order(within)]
    sites = [act.event.site for act in acts]
    if end not in sites or (start is not None and start not in sites):
        return []
    first, last = 0 if start is None else sites.index(start), sites.index(end)
    return acts[first:last] if first < last else [*acts[first:], *acts[:last]]


def round_of(violation: Violation, own_clears: frozenset[Site], flow: Flow) -> Loop | None:
    """The loop that misses a clear in each of its iterations: what runs around it does not matter."""
    ends = {violation.site, *(note.site for note in violation.notes[:1])}
    found = None
    for loop in find(flow, Loop):
        sites = {act.event.site for act in find(loop, Act)}
        if ends <= sites and (found is None or loop in find(found, Loop)):
            found = loop if sites.isdisjoint(own_clears) else None
    if found is None or not ends <= {act.event.site for act in _always(found.body)}:
        return None
    return None if _leaves(found.body) else found


def _always(flow: Flow) -> Iterator[Act]:
    """The acts that run whatever the tests say."""
    if isinstance(flow, Act):
        yield flow
    elif isinstance(flow, Block):
        yield from _always(flow.body)
    elif isinstance(flow, Seq):
        for part in flow.items:
            yield from _always(part)
            if _leaves(part):
                return


def _leaves(flow: Flow) -> bool:
    """Whether the program may leave a part before its end, and go on somewhere else."""
    caught = {block.label for block in find(flow, Block)}
    return any(
        jump.label not in caught and not isinstance(jump.label, Raise) for jump in find(flow, Jump)
    )


_LOOKS = frozenset(
    {"zero_", "norm", "isnan", "isfinite", "isinf", "abs", "max", "mean", "detach_", "clamp_", "mul_", "div_"}
)  # fmt: skip
"""Methods of a gradient that look at it, clear it or change its size."""
_ADDS = frozenset({"add_", "sub_", "copy_"})
_EMPTY = frozenset({"zeros_like", "zeros"})


def _is_above(place: tuple[str, ast.AST, int], site: Site) -> bool:
    """Whether a place comes before another one in the same function."""
    path, function, line = place
    return path == site.path and spans(function, site.line) and line < site.line


def _sets_gradient(node: ast.AST) -> bool:
    """Whether a node gives a gradient other values than a backward does."""
    if isinstance(node, ast.Assign):
        value = node.value
        if isinstance(value, ast.Constant) and value.value is None:
            return False
        if isinstance(value, ast.Call) and called_name(value) in _EMPTY:
            return False
        return any(map(is_gradient, node.targets))
    if isinstance(node, ast.AugAssign):
        return is_gradient(node.target) and isinstance(node.op, (ast.Add, ast.Sub))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in _ADDS and is_gradient(_without_views(node.func.value))
    return False


def _without_views(node: ast.expr) -> ast.expr:
    """The tensor of `x.data` and `x.detach()`."""
    while True:
        if isinstance(node, ast.Call) and not node.args and isinstance(node.func, ast.Attribute):
            node = node.func.value
        elif isinstance(node, ast.Attribute) and node.attr == "data":
            node = node.value
        else:
            return node
