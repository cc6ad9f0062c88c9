"""Steps without gradients: a loss that is computed and handed to nothing, a step right after its clear."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator, Mapping, Sequence

from zerograd.core.late_pattern import pattern
from zerograd.static.frameworks import registry
from zerograd.static.frameworks.table import Role, RunsBackward
from zerograd.static.frameworks.torch import (
    NOT_AN_OPTIMIZER,
    OPTIMIZER_NAME,
    SCALER_NAME,
    SCHEDULER,
)
from zerograd.static.interp.scalars import is_scalar
from zerograd.static.read import vocabulary
from zerograd.static.read.module import Module
from zerograd.static.read.syntax_tree import (
    LOOPS,
    Function,
    arguments,
    called_name,
    calls_in,
    is_gradient,
    last_name,
    nodes,
    parameters,
    stripped,
    text_of,
)

_CRITERION = pattern(r"(^|\.|_)(crit(erion)?|loss_(fn|func\w*))$", re.IGNORECASE)
_COMPUTES = pattern(r"(^|\.)(F|functional)\.\w+$|\.(mean|sum|mul|div)$")
_TORCH = pattern(r"^(torch|F|nn\.functional)\.\w+$")
_PASSES_ON = frozenset(
    {"mean", "sum", "cpu", "cuda", "to", "float", "double", "half", "squeeze", "view", "reshape",
     "clone", "abs", "sqrt", "contiguous", "mul", "div", "neg"}
)  # fmt: skip
"""Methods of a loss whose result is the loss still."""
_READS = frozenset({"float", "int", "isnan", "isfinite", "isinf", "update", "add_scalar", "scalar"})
"""Functions that only look at a loss."""
_QUIET = frozenset(
    {"zero_grad", "unscale_", "item", "get_scale", "no_grad", "autocast", "scale_loss"}
)
"""Calls that never run a backward."""
_PLAIN = ("torch", "math", "numpy", "random", "time", "tqdm", "itertools")
"""Packages whose functions run no backward unless an argument asks for it."""
_ARITHMETIC = frozenset(
    "abs add add_ clamp clone copy_ cpu cuda detach div dim exp expand float flatten gather item log log_softmax"
    " logsumexp long matmul max mean min mm mul mul_ norm permute pow prod relu repeat reshape sigmoid size softmax"
    " sqrt square squeeze std sub sum t tanh to transpose unsqueeze var view".split()
)
"""Methods of tensors."""
_OF_OBJECTS = frozenset(
    "parameters named_parameters train eval state_dict load_state_dict step append items values keys format".split()
)
"""Methods of modules, optimizers and collections that run no backward; a step with a closure is handled elsewhere."""
_COLLECTS = frozenset({"append", "extend", "insert", "add"})
_STEPS = frozenset(
    name
    for name in registry.STEPS
    if not any(
        isinstance(e, RunsBackward) for call in registry.calls_named(name) for e in call.does
    )
)
"""Functions of libraries that step, and run no backward."""
_COMPUTED = (ast.Call, ast.BinOp, ast.UnaryOp)


def idle_loss(
    around: ast.AST,
    module: Module | None = None,
    stepping: Sequence[ast.AST] = (),
    step: int | None = None,
) -> ast.AST | None:
    """A loss that a loop or a function of a module computes and then only logs: where it is computed.

    `stepping` are functions of the project that are known to run no backward. What is computed only now and then
    after the line of the step is another loss, for instance that of a validation.
    """
    silent = _ignored(stepping)
    assigned: dict[str, ast.AST] = {}
    parts: list[tuple[str, str, ast.AST]] = []
    bare: ast.AST | None = None
    for node in nodes(around):
        if isinstance(node, ast.Assign) and not any(map(_is_backward, calls_in(node.value))):
            for name in _stored(node.targets):
                if isinstance(_whole(node.value), _COMPUTED) and not _is_collection(node.value):
                    assigned[name] = node
                elif isinstance(node.value, (ast.Attribute, ast.Subscript)):
                    parts.append((name, re.split(r"[.\[]", text_of(node.value))[0], node))
        elif isinstance(node, ast.Expr) and (
            _is_computed(node.value) or _gives_loss(node.value, module)
        ):
            bare = bare or node
        if isinstance(node, ast.Call) and _may_run_backward(node):
            if (given := _silent_closure(node, module)) is not None:
                bare = bare or given
                continue
            name = called_name(node)
            if name not in silent and not _runs_none(node, module):
                return None
    if bare is not None:
        return bare
    # `loss = out.loss` and `loss = out["loss"]` are computed if `out` is.
    assigned.update((name, node) for name, whole, node in parts if whole in assigned)
    clear = module is not None and all(_is_plain(call, module) for call in calls_in(around))
    losses = {name: node for name, node in assigned.items() if _is_loss(name, node, clear)}
    if losses and step is not None:
        later = _after(around, step)
        losses = {name: node for name, node in losses.items() if node not in later}
    used = _Uses(around, silent).used() if losses else set()
    used |= _made_of(losses.keys() & used, around)
    idle = [node for name, node in losses.items() if name not in used]
    return max(idle, key=lambda node: getattr(node, "lineno", 0)) if idle else None


def _made_of(losses: set[str], around: ast.AST) -> set[str]:
    """Some losses, and the variables that are computed from them alone: `shown = loss.item()` is no loss of its own."""
    reads = []
    for node in nodes(around):
        if isinstance(node, (ast.Assign, ast.AugAssign)):
            handed = [
                arg
                for call in calls_in(node)
                if called_name(call) not in _READS
                for arg in arguments(call)
            ]
            others = {*nodes(*handed)}
            names = [one for one in nodes(node) if isinstance(one, ast.Name) and one not in others]
            stored = {one.id for one in names if isinstance(one.ctx, ast.Store)}
            reads.append((stored, {one.id for one in names} - stored))
    made = losses
    while more := {name for stored, loaded in reads if loaded & made for name in stored} - made:
        made = made | more
    return made


def _after(around: ast.AST, line: int) -> set[ast.AST]:
    """The statements under a test that come after a line."""
    tests = (node for node in nodes(around) if isinstance(node, ast.If) and node.lineno > line)
    return {part for test in tests for part in nodes(test)}


def _silent_closure(step: ast.Call, module: Module | None) -> ast.AST | None:
    """What the closure of a step returns, if it is a function of the file that may run no backward.

    An optimizer of an unseen class may run the backward of what the closure returns itself.
    """
    given = step.args[0] if len(step.args) == 1 and not step.keywords else None
    owner, _, name = text_of(step.func).rpartition(".")
    if module is None or not isinstance(given, ast.Name) or name != "step":
        return None
    made = (value for value in module.values_of(owner) if isinstance(value, ast.Call))
    if any(vocabulary.role_of_call(text_of(one.func)) is not Role.OPTIMIZER for one in made):
        return None
    named = [one for one in module.facts if getattr(one, "name", "") == given.id]
    if len(named) != 1 or not only_steps(named[0]):
        return None
    returns = [one for one in nodes(named[0]) if isinstance(one, ast.Return) and one.value]
    return returns[-1] if returns else None


def only_steps(function: ast.AST, stepping: Sequence[ast.AST] = ()) -> bool:
    """Whether nothing that a function calls may run a backward; `stepping` are known to run none."""
    silent = {getattr(one, "name", "") for one in stepping}
    return not any(
        _is_backward(node) or _may_run_backward(node)
        for node in calls_in(function)
        if called_name(node) not in silent
    )


def _ignored(stepping: Sequence[ast.AST]) -> dict[str, bool]:
    """The functions that run no backward, by name: whether each only logs the losses that it is handed."""
    return {
        function.name: not _Uses(function, {})
        .used()
        .intersection(arg.arg for arg in parameters(function) if vocabulary.LOSS.search(arg.arg))
        for function in stepping
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
    }


def _is_backward(node: ast.Call) -> bool:
    return text_of(node.func).endswith("backward")


def _is_loss(name: str, assignment: ast.AST, clear: bool) -> bool:
    """Whether a variable is a loss: by its name, by the criterion that computes it, or as a number.

    `clear` says that nothing unseen is called beside it, which might run a backward.
    """
    if vocabulary.LOSS.search(name):
        return True
    value = assignment.value if isinstance(assignment, ast.Assign) else None
    if value is not None and clear and is_scalar(value):
        return not any(isinstance(node, ast.Compare) for node in nodes(value))
    if not isinstance(value, ast.Call):
        return False
    function = text_of(value.func).removesuffix(".forward")
    return bool(_CRITERION.search(function) or vocabulary.LOSS.search(last_name(function)))


def _is_plain(call: ast.Call, module: Module) -> bool:
    """Whether a call is one of Python, of torch, of a tensor or of a module: none of them trains."""
    text = text_of(call.func)
    first, _, rest = text.partition(".")
    if first in module.imports or first in vocabulary.USUAL:
        return module.imports.get(first, vocabulary.USUAL.get(first, "")).startswith(_PLAIN)
    if not rest and hasattr(builtins, first):
        return True
    if "parameters" in module.methods.get(text, ()):
        return True
    name = last_name(text)
    if not isinstance(call.func, ast.Attribute):
        return False
    return name in _ARITHMETIC or name in _QUIET or name in _OF_OBJECTS


def _is_collection(node: ast.expr) -> bool:
    """Whether a value is a new dictionary, list or meter: a container of losses is not a loss."""
    name = called_name(node) if isinstance(node, ast.Call) else ""
    return name in ("dict", "list", "zip") or name.endswith(("Dict", "dict", "Meter"))


def _whole(node: ast.expr) -> ast.expr:
    """What a value is a part of: the call in `model(x)["loss"]`."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node


def _stored(targets: list[ast.expr]) -> Iterator[str]:
    """The variables that an assignment gives values to."""
    for target in targets:
        if isinstance(target, ast.Name):
            yield target.id
        elif isinstance(target, (ast.Tuple, ast.List)):
            yield from _stored(target.elts)
        elif isinstance(target, ast.Starred):
            yield from _stored([target.value])


def _may_run_backward(node: ast.Call) -> bool:
    """Whether a call may run the backward that seems to be forgotten: a training step, a pipeline's schedule."""
    text = text_of(node.func)
    owner, _, name = text.rpartition(".")
    if name == "step":
        if SCALER_NAME.search(owner) or _is_number(node):
            return False
        scheduler = SCHEDULER.search(owner) is not None and not owner.endswith("schedule")
        return bool(node.args or node.keywords) and not scheduler
    if name.endswith("schedule"):
        return True
    if name in _STEPS and not any(map(vocabulary.LOSS.search, map(text_of, node.args))):
        return False  # what it may do besides is in the table of its library
    if name in ("backward", "manual_backward", *_QUIET) or vocabulary.is_benign(name):
        return False  # a backward that is called was seen
    if vocabulary.RUNS_BACKWARD.search(name) or owner.endswith("schedule"):
        return True
    if not owner and hasattr(builtins, name):
        return False
    handed = (text_of(arg) for arg in arguments(node))
    return name not in registry.CLIPS and any(map(_can_run_backward, handed))


def _can_run_backward(text: str) -> bool:
    """Whether an unseen function can train with an object of this name: a criterion or an optimizer."""
    last = last_name(text)
    if _CRITERION.search(text):
        return True
    return bool(OPTIMIZER_NAME.search(last)) and not NOT_AN_OPTIMIZER.search(last)


def _is_number(node: ast.Call) -> bool:
    """Whether a call is handed a number first: `stopper.step(loss.item())`."""
    first = node.args[0] if node.args else None
    return isinstance(first, ast.Call) and text_of(first.func).endswith(".item")


def _is_computed(node: ast.expr) -> bool:
    """Whether a value that is not used is arithmetic, a mean, a sum, or what a function of torch.nn gives."""
    if isinstance(node, ast.BinOp):
        return True  # arithmetic alone does nothing
    return isinstance(node, ast.Call) and _COMPUTES.search(text_of(node.func)) is not None


def _runs_none(call: ast.Call, module: Module | None) -> bool:
    """Whether a call is that of a function of the file which runs no backward, whatever it is called."""
    owner, _, name = text_of(call.func).rpartition(".")
    if module is None or owner not in ("", "self"):
        return False
    seen: set[str] = set()
    todo = [name]
    while todo:
        asked = todo.pop()
        seen.add(asked)
        found = _functions(module, asked)
        if not found or asked == "backward":
            return False
        called = set().union(*(module.facts[one].called for one in found)) - seen
        if "step" in called:
            return False
        todo += [one for one in sorted(called) if vocabulary.RUNS_BACKWARD.search(one)]
    return True


def _functions(module: Module, name: str) -> list[Function]:
    """The functions of this name in a file, or else the methods."""
    if name in module.functions:
        return [module.functions[name]]
    return [method for _, method in module.methods_named(name)]


def _gives_loss(node: ast.expr, module: Module | None) -> bool:
    """Whether an unused value is a loss that a function of the file computes, and only returns."""
    if module is None or not isinstance(node, ast.Call):
        return False
    owner, _, name = text_of(node.func).rpartition(".")
    if not vocabulary.LOSS.search(name) or owner not in ("", "self"):
        return False
    found = [module.facts[one] for one in _functions(module, name)]
    return bool(found) and all(
        one.returns and not one.stored and not any(map(vocabulary.RUNS_BACKWARD.search, one.called))
        for one in found
    )


class _Uses:
    """What becomes of the variables of a loop or a function."""

    def __init__(self, around: ast.AST, silent: Mapping[str, bool]) -> None:
        self.around = around
        self.silent = silent
        """Functions that run no backward, by name: whether they only log a loss that they are handed."""
        self.once = not isinstance(around, LOOPS)
        self.parents = {
            child: node for node in nodes(around) for child in ast.iter_child_nodes(node)
        }

    def used(self) -> set[str]:
        """The variables that are handed to more than a log, themselves or in what becomes of them."""
        used: set[str] = set()
        feeds: dict[str, set[str]] = {}
        for node in nodes(self.around):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                into = self.becomes(node)
                if into is None:
                    used.add(node.id)
                else:
                    feeds.setdefault(node.id, set()).update(into)
        grown = True
        while grown:
            more = {name for name, into in feeds.items() if into & used} - used
            used |= more
            grown = bool(more)
        return used

    def becomes(self, node: ast.AST) -> set[str] | None:
        """The variables that a value becomes a part of; None if it is handed to more than a log."""
        child, parent = node, self.parents.get(node)
        while parent is not None:
            if isinstance(parent, ast.Attribute):
                ends, into = self._attribute(parent)
            elif isinstance(parent, ast.Call) and child is not parent.func:
                ends, into = self._argument(parent)
            elif isinstance(parent, (ast.FormattedValue, ast.Compare)):
                return set()
            elif isinstance(parent, (ast.stmt, ast.comprehension, ast.Yield, ast.YieldFrom)):
                return _statement(parent, child, once=self.once)
            else:
                ends, into = False, None
            if ends:
                return into
            child, parent = parent, self.parents.get(parent)
        return None

    def _attribute(self, node: ast.Attribute) -> tuple[bool, set[str] | None]:
        """Whether a value ends in an attribute of it, and what it becomes there."""
        called = self.parents.get(node)
        is_call = isinstance(called, ast.Call) and called.func is node
        if node.attr == "backward":
            return True, None if is_call else set()
        if node.attr in vocabulary.CUT:
            return True, set()
        if is_call and node.attr in _COLLECTS:
            return True, set()
        return is_call and node.attr not in _PASSES_ON, None

    def _argument(self, call: ast.Call) -> tuple[bool, set[str] | None]:
        """Whether a value ends as an argument of a call, and what it becomes there."""
        name = called_name(call)
        if self.silent.get(name):
            return True, set()
        item = self.parents.get(call)
        if name == "scale_loss" and isinstance(item, ast.withitem) and item.optional_vars:
            return True, set(_stored([item.optional_vars]))
        return _argument(call)


def _argument(call: ast.Call) -> tuple[bool, set[str] | None]:
    text = text_of(call.func)
    owner, _, name = text.rpartition(".")
    if name in _COLLECTS and owner:
        return True, {owner}
    if name in _READS or vocabulary.is_benign(name):
        return True, set()
    return _TORCH.search(text) is None, None


def _statement(node: ast.AST, child: ast.AST, *, once: bool) -> set[str] | None:
    """What a value becomes that a statement computes with."""
    if isinstance(node, (ast.Expr, ast.Assert, ast.Raise)):
        return set()
    if isinstance(node, (ast.If, ast.While)):
        return set()
    if isinstance(node, ast.Return) and once:
        return set()  # the caller gets it after the step
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, (ast.AugAssign, ast.AnnAssign)) or (
        isinstance(node, (ast.For, ast.AsyncFor)) and child is node.iter
    ):
        targets = [node.target]
    found = set()
    for target in targets:
        while isinstance(target, ast.Subscript):
            target = target.value
        names = set(_stored([target]))
        if not names:
            return None
        found |= names
    return found or None


def clears_before(loop: ast.AST, line: int) -> list[ast.Call]:
    """The clears from which an iteration of a loop goes straight on to the step in this line."""
    found: list[ast.Call] = []
    leading = _leading_to(loop, line)
    for node in reversed(leading) if _is_about_data(loop, leading) else ():
        if not _is_quiet(node):
            break
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            if text_of(node.value.func).endswith(".zero_grad"):
                found.append(node.value)
    return found


def _is_about_data(loop: ast.AST, leading: list[ast.stmt]) -> bool:
    """Whether a loop trains: a loop that only counts may advance a scheduler to where training resumes.

    A step outside of loops is the scheduler's, too, if no loss is computed before it.
    """
    if isinstance(loop, (ast.For, ast.AsyncFor)):
        iterable = stripped(loop.iter)
        name = text_of(iterable.func) if isinstance(iterable, ast.Call) else ""
        if last_name(name) not in ("range", "trange"):
            return True
    return any(
        (isinstance(node, ast.Attribute) and node.attr == "backward")
        or (
            isinstance(node, ast.Assign) and any(map(vocabulary.LOSS.search, _stored(node.targets)))
        )
        for node in (nodes(loop) if isinstance(loop, LOOPS) else nodes(*leading))
    )


def _leading_to(node: ast.AST, line: int) -> list[ast.stmt]:
    """The statements that are run before a line, in its block and in those around it up to a node."""
    for name in ("body", "orelse", "finalbody"):
        block: list[ast.stmt] = getattr(node, name, [])
        for at, inner in enumerate(block):
            if not inner.lineno <= line <= (inner.end_lineno or 0):
                continue
            if isinstance(node, ast.If) and _gives_up(node, block):
                return []
            before = block[:at] + [ast.Expr(value=test) for test in _asked(inner)]
            return before + _leading_to(inner, line)
    return []


def _asked(node: ast.stmt) -> list[ast.expr]:
    """What a statement computes before its block."""
    if isinstance(node, ast.If):
        return [node.test]
    if isinstance(node, (ast.With, ast.AsyncWith)):
        return [item.context_expr for item in node.items]
    return [node.iter] if isinstance(node, (ast.For, ast.AsyncFor)) else []


def _gives_up(node: ast.If, arm: list[ast.stmt]) -> bool:
    """Whether an arm gives an iteration up: it leaves, or the other one runs the backward."""
    if isinstance(arm[-1], (ast.Continue, ast.Break, ast.Return, ast.Raise)):
        return True
    other = node.orelse if arm is node.body else node.body
    return any(isinstance(n, ast.Attribute) and n.attr == "backward" for n in nodes(*other))


_SIMPLE = (ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Pass, ast.If, ast.With)


def _is_quiet(node: ast.stmt) -> bool:
    """Whether no call in a statement could run a backward, and none puts gradients in place."""
    if not isinstance(node, _SIMPLE):
        return False
    return all(
        _is_quiet_call(inner) if isinstance(inner, ast.Call) else not is_gradient(inner)
        for inner in nodes(node)
    )


def _is_quiet_call(call: ast.Call) -> bool:
    owner, _, name = text_of(call.func).rpartition(".")
    if name in _QUIET or name in registry.CLIPS:
        return True
    if vocabulary.is_benign(name) and not name.endswith("schedule"):
        return True
    return name == "update" and SCALER_NAME.search(owner) is not None
