"""What is known of a value without running anything: whose parameters, whose gradients.

Values are frozen, and objects are known by their keys. A function keeps the frame that it was defined
in, so frames are here, too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from zerograd.core.records import dataclass, field, replace
from zerograd.explore.logic import Expr, Name
from zerograd.static.frameworks.table import Role
from zerograd.static.read.keys import Key, local, made
from zerograd.static.read.module import Module
from zerograd.static.read.syntax_tree import Function


@dataclass(frozen=True)
class Lit:
    """A literal."""

    value: bool | int | float | str | None


@dataclass(frozen=True)
class Klass:
    """A class of the project."""

    node: ast.ClassDef = field(hash=False)
    module: Module = field(hash=False, compare=False)
    name: str = ""

    def method(self, name: str) -> Function | None:
        """The class's own method of this name."""
        return self.module.methods_of(self.node).get(name)

    def inner(self, name: str) -> Klass | None:
        """The class of this name in its body."""
        found = (one for one in self.node.body if isinstance(one, ast.ClassDef))
        return next((Klass(one, self.module, name) for one in found if one.name == name), None)


@dataclass(frozen=True)
class Thing:
    """An object: an optimizer, a module, a wrapper, or something of no known role."""

    key: Key
    role: Role = Role.NONE
    params: frozenset[Key] | None = None
    """optimizer: the keys of what it steps; None where that cannot be seen."""
    klass: Klass | None = None
    made: bool = False
    """Built in the code that is read, so that it starts without gradients."""


@dataclass(frozen=True)
class Params:
    """Parameters (all or one of them) of the things with these keys."""

    keys: frozenset[Key]
    some: bool = False
    """Not all of them."""


def all_params(values: Sequence[Value]) -> Params | None:
    """The parameters of all these, if each of them is parameters."""
    params = [value for value in values if isinstance(value, Params)]
    if not params or len(params) < len(values):
        return None
    return Params(frozenset().union(*(one.keys for one in params)))


@dataclass(frozen=True)
class Grad:
    """The `.grad` of parameters."""

    keys: frozenset[Key]
    some: bool = False
    leaf: bool = False
    """Of one tensor."""


class Called(NamedTuple):
    """A module that was called."""

    key: Key
    read: frozenset[Key]
    """What its input was computed through."""
    then: str = ""
    """What was done with its output, where that is short."""
    unsure: frozenset[Key] = frozenset()
    """What its input may have been computed through."""
    cut: frozenset[Key] = frozenset()
    """What its input was computed through before it was detached."""


@dataclass(frozen=True)
class Tensor:
    """A result: through which things it was computed, and what was done to it."""

    roots: frozenset[Key] = frozenset()
    maybe: frozenset[Key] = frozenset()
    grads: frozenset[Key] = frozenset()
    """Computed from the gradients of these."""
    divisor: Expr | None = None
    divided: bool | None = False
    """None: not known."""
    scaled: bool | None = False
    calls: frozenset[Called] = frozenset()
    """The modules that were called for it."""
    cut: frozenset[Key] = frozenset()
    """Through which things it was computed before it was detached."""


@dataclass(frozen=True)
class Many:
    """A list or tuple whose items are known."""

    items: tuple[Value, ...]
    wrapped: bool = False
    """Its one item may already be a collection: the code puts it into a list only if it is not."""


@dataclass(frozen=True)
class Each:
    """A collection whose length is not known: what each of its items is like."""

    item: Value


@dataclass(frozen=True)
class KnownDict:
    """A dict whose entries are known."""

    items: tuple[tuple[object, Value], ...]


@dataclass(frozen=True)
class Fn:
    """A function, method or lambda of the project."""

    node: Function | ast.Lambda = field(hash=False)
    module: Module = field(hash=False, compare=False)
    name: str = ""
    owner: Value | None = field(default=None, hash=False, compare=False)
    frame: Frame | None = field(default=None, hash=False, compare=False)
    klass: Klass | None = None
    given: tuple[Value, ...] = field(default=(), hash=False, compare=False)
    """What `functools.partial` has handed over already, in order,"""
    named: tuple[tuple[str, Value], ...] = field(default=(), hash=False, compare=False)
    """and by name."""

    @property
    def qualified_name(self) -> str:
        """`Trainer.fit`, or `train`."""
        return f"{self.klass.node.name}.{self.name}" if self.klass is not None else self.name


@dataclass(frozen=True)
class Bound:
    """A method of an object under a name of its own: `clear = optimizer.zero_grad`."""

    owner: Thing
    name: str


@dataclass(frozen=True)
class Origin:
    """A name from outside the project, such as `torch.optim.Adam`, or a module of the project."""

    name: str = ""
    path: str | None = None
    """Of the project's module."""


Value = Lit | Klass | Thing | Params | Grad | Tensor | Many | Each | KnownDict | Fn | Origin | Bound


@dataclass(eq=False)
class Frame:
    """One activation of a function, or a module's top level."""

    module: Module
    scope: Key | None = None
    """The object that its names are attributes of, where it is the frame of an object's attributes."""
    parent: Frame | None = None
    env: dict[str, Value] = field(default_factory=dict)
    aliases: dict[str, Key] = field(default_factory=dict)
    """Parameters that are another frame's variable under a new name."""
    locals: frozenset[str] = frozenset()
    owner: Value | None = None
    klass: Klass | None = None
    returns: list[Value] = field(default_factory=list)
    answer: Name | None = None
    """What holds the result, if that is True on some paths and False on others."""
    iterables: dict[str, ast.expr] = field(default_factory=dict)
    """What a loop over a name goes through: `bar = enumerate(loader)`, then `for i, x in bar`."""
    call: int = 0
    """The number of the call; 0 for a root and a top level, which nothing is seen to call."""
    round: int | None = None
    """The round of the comprehension that is read, if it goes through known objects: each makes its own."""

    def variable(self, name: str) -> Key:
        """The key of a variable of this frame."""
        return local(name, self.call) if self.scope is None else self.scope.attribute(name)

    def new_key(self, node: ast.expr) -> Key:
        """The key of an object that is made here."""
        key = made(node.lineno, node.col_offset, self.call)
        if self.round is not None:
            key = key.item(str(self.round))
        return key if self.scope is None else Key((*self.scope, *key))


MOST_TEXT = 200
NOTHING = Tensor(divided=None, scaled=None)
"""A value about which nothing is known."""


def is_object(value: Value) -> bool:
    """Whether a value is something with an identity, not the result of a computation."""
    return isinstance(value, (Thing, Many, Each, Params, Fn, Klass, KnownDict))


def called(value: Value, key: Key) -> Value:
    """The value, known by the variable that holds it."""
    if isinstance(value, Thing):
        return replace(value, key=key, made=False) if value.made else value
    if isinstance(value, Many):
        items = enumerate(value.items)
        return Many(tuple(called(item, key.item(str(index))) for index, item in items))
    if isinstance(value, KnownDict):
        return KnownDict(
            tuple((name, called(item, key.item(repr(name)))) for name, item in value.items)
        )
    if isinstance(value, (Params, Each, Klass, Fn, Origin, Bound)):
        return value
    if isinstance(value, Lit) or (isinstance(value, Tensor) and value.roots):
        return value
    return Thing(key)


def parts(value: Value) -> Iterator[Value]:
    """What a collection, or a collection in it, holds; any other value is itself."""
    if isinstance(value, Many):
        yield from (part for item in value.items for part in parts(item))
    elif isinstance(value, KnownDict):
        yield from (part for _, item in value.items for part in parts(item))
    else:
        yield value


def parameters_of(value: Value) -> frozenset[Key] | None:
    """The keys of what an optimizer is given to step; None where that cannot be seen."""
    if isinstance(value, Params):
        return value.keys or None
    if isinstance(value, Thing):
        return frozenset({value.key})
    if isinstance(value, KnownDict):
        found = [item for name, item in value.items if name == "params"]
        return parameters_of(found[0]) if found else None
    if isinstance(value, Each):
        return roots(value)[0] or None
    if isinstance(value, Many) and value.items:
        parts = [parameters_of(item) for item in value.items]
        known = [part for part in parts if part is not None]
        return frozenset().union(*known) if len(known) == len(parts) else None
    return None


def roots(value: Value | None) -> tuple[frozenset[Key], frozenset[Key]]:
    """The keys that a value was computed through, for sure and perhaps."""
    if isinstance(value, Tensor):
        return value.roots, value.maybe
    if isinstance(value, Thing):
        return frozenset({value.key}), frozenset()
    if isinstance(value, (Params, Grad)):
        return value.keys, frozenset()
    if isinstance(value, Each):
        return roots(value.item)
    if isinstance(value, Many):
        return _union(value.items)
    if isinstance(value, KnownDict):
        return _union([item for _, item in value.items])
    if isinstance(value, Fn):
        return frozenset(), _run_by(value)
    return frozenset(), frozenset()


def _run_by(fn: Fn, depth: int = 2) -> frozenset[Key]:
    """What the result of a function may be computed through, whoever calls it: what it reads of the code around it."""
    held = [value for value in (fn.owner, *fn.given, *dict(fn.named).values()) if value is not None]
    frame = fn.frame
    names = set()
    if frame is not None:
        names = {part.id for part in ast.walk(fn.node) if isinstance(part, ast.Name)}
    while frame is not None and names:
        held += [frame.env[name] for name in names & frame.env.keys()]
        names -= frame.env.keys()
        frame = frame.parent
    inner = [_run_by(one, depth - 1) for one in held if isinstance(one, Fn) and depth]
    found = [roots(one) for one in held if not isinstance(one, Fn)]
    return frozenset().union(*inner, *(keys for pair in found for keys in pair))


def _union(values: tuple[Value, ...] | list[Value]) -> tuple[frozenset[Key], frozenset[Key]]:
    pairs = [roots(value) for value in values]
    sure = frozenset().union(*(pair[0] for pair in pairs))
    return sure, frozenset().union(*(pair[1] for pair in pairs)) - sure


_NO_RESULT = Tensor()


def mix(values: Sequence[Value]) -> Tensor:
    """The result of computing with these values."""
    sure: frozenset[Key] = frozenset()
    maybe = grads = sure
    calls: frozenset[Called] = frozenset()
    cut = sure
    scaled: bool | None = False
    divided: Tensor | None = None
    for value in values:
        if isinstance(value, Tensor):
            # Most of these are empty: a union would be a new set each time.
            if value.roots:
                sure |= value.roots
            if value.maybe:
                maybe |= value.maybe
            if value.grads:
                grads |= value.grads
            if value.calls:
                calls |= value.calls
            if value.cut:
                cut |= value.cut
            if value.scaled is not False and not scaled:
                scaled = value.scaled
            if divided is None and value.divisor is not None:
                divided = value
        elif not isinstance(value, Lit):
            certain, perhaps = roots(value)
            sure |= certain
            maybe |= perhaps
            if isinstance(value, Grad):
                grads |= value.keys
    if divided is None:
        if scaled is False and not (sure or maybe or grads or calls or cut):
            return _NO_RESULT
        rest = maybe - sure if sure else maybe
        return Tensor(sure, rest, grads, scaled=scaled, calls=calls, cut=cut)
    return Tensor(sure, maybe - sure, grads, divided.divisor, divided.divided, scaled, calls, cut)


def detached(value: Tensor) -> Tensor:
    """The same numbers, through which no gradient runs back."""
    return Tensor(cut=value.roots | value.cut) if value.roots or value.cut else _NO_RESULT


def then(value: Value, done: str) -> Value:
    """A value that something was done with."""
    if not isinstance(value, Tensor) or not value.calls:
        return value
    calls = [one._replace(then=f"{one.then}{done}"[:MOST_TEXT]) for one in value.calls]
    return replace(value, calls=frozenset(calls))


def _is_optimizer_class(value: Origin) -> bool:
    """Whether a name from outside is that of one of torch's optimizers."""
    module, _, name = value.name.rpartition(".")
    return module == "torch.optim" and name[:1].isupper()


def join(values: list[Value]) -> Value:
    """What a variable holds that two paths have given values to."""
    values = [value for value in values if value != Lit(None)] or values[:1]
    if not values:
        return Lit(None)
    first = values[0]
    if all(value == first for value in values):
        return first
    if all(isinstance(value, Origin) and _is_optimizer_class(value) for value in values):
        return first  # `Adam if fast else SGD`: what is made of it is stepped all the same
    manys = [value for value in values if isinstance(value, Many)]
    if len(values) == 2 and len(manys) == 1 and manys[0].items == (values[values[0] == manys[0]],):
        return replace(manys[0], wrapped=True)  # `if not isinstance(nets, list): nets = [nets]`
    if len(manys) == len(values) and len({len(many.items) for many in manys}) == 1:
        columns = zip(*(many.items for many in manys), strict=True)
        return Many(tuple(join(list(column)) for column in columns))
    things = [value for value in values if isinstance(value, Thing)]
    if things and len(things) == len(values):
        own = [thing for thing in things if thing.role is not Role.TAKEN]
        if len(own) == 1:
            return own[0]  # `if engine: model, optimizer = make(model, optimizer)`
        if len({thing.role for thing in things}) == 1 and first == things[0]:
            # The same variable, built one way or the other: one object with one name.
            known = [thing.params for thing in things if thing.params is not None]
            params = frozenset().union(*known) if len(known) == len(things) else None
            return replace(things[0], params=params)
    if things and not any(isinstance(value, Tensor) and value.scaled for value in values):
        # What is an optimizer or its scheduler is stepped as a scheduler.
        schedulers = [thing for thing in things if thing.role is Role.OTHER]
        optimizers = [thing for thing in things if thing.role is Role.OPTIMIZER]
        return (schedulers or optimizers or things)[0]
    parameters = [value for value in values if isinstance(value, Params)]
    if parameters:
        return Params(frozenset().union(*(value.keys for value in parameters)))
    if all(isinstance(value, (Lit, Fn)) for value in values):
        return NOTHING
    return _either([value for value in values if isinstance(value, Tensor)], values)


def _either(tensors: list[Tensor], values: list[Value]) -> Value:
    """A tensor computed one way or another: scaled for sure only if it is both times."""
    scaled = {getattr(value, "scaled", False) for value in values if not isinstance(value, Lit)}
    result = replace(mix(values), scaled=scaled.pop() if len(scaled) == 1 else None)
    unsure = not result.divided and any(tensor.divided is None for tensor in tensors)
    return replace(result, divided=None) if unsure else result
