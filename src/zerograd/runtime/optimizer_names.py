"""What the program calls its optimizers: `opt_g`, `self.optimizer`; `2nd Adam, 4 parameters` where it has no name.

This costs a repeating loop nothing: the places where an optimizer is made and stepped are known anyway. The name is
read from those lines of the source, or from the object that holds the optimizer, when a report needs it.
"""

from __future__ import annotations

import ast
import gc
import os
import sys
import weakref
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NamedTuple

from zerograd.core.events import Site
from zerograd.core.interruptions import Tolerating
from zerograd.core.wording import counted
from zerograd.runtime.call_sites import is_installed
from zerograd.runtime.program_source import ProgramSource

LONGEST = 60
"""A longer expression is not used as a name."""
MOST_OPTIMIZERS = 1024
"""Only so many are named: a program that makes more makes them all alike."""

DEEPEST = 2
"""How many objects of libraries may be nested around an optimizer."""

_PROGRAM = ModuleType("program")
"""Any module of the program that has a name for something."""
_ORDINALS = {1: "st", 2: "nd", 3: "rd"}


class _Optimizer:
    """An optimizer that steps a subject, as the program first used it."""

    held: tuple[str, ...] | None = None
    """The names under which objects of the program hold it, once they were searched for."""
    items: tuple[str, ...] | None = None
    """The list items that hold it, once they were searched for."""
    name: str | None = None
    """Its name, once it is certain that it keeps it."""

    def __init__(self, optimizer: Any, parameters: int, number: int, made: Site | None) -> None:
        self.kind = type(optimizer).__name__
        self.parameters = parameters
        self.number = number
        """Among those of the same type."""
        self.ref = weakref.ref(optimizer)
        self.made = made
        """Where the program makes it."""
        self.stepped: Callable[[], Site | None] = _nowhere
        """Where the program steps it, if that is known yet."""


class OptimizerNames:
    """The optimizers of all subjects, also of those that are gone."""

    def __init__(self, source: ProgramSource, home: str) -> None:
        self._source = source
        self._home = home
        self._known: dict[str, _Optimizer] = {}
        """By the names of subjects."""
        self._kinds: dict[str, int] = {}
        self._read: dict[tuple[Site, bool], _Name] = {}

    def add(self, subject: str, optimizer: Any, parameters: int, made: Site | None) -> None:
        """A subject has begun; `made` is where its optimizer was made, if that was seen."""
        kind = type(optimizer).__name__
        number = self._kinds[kind] = self._kinds.get(kind, 0) + 1
        self._known[subject] = _Optimizer(optimizer, parameters, number, made)

    def steps_at(self, subject: str, site: Callable[[], Site | None]) -> None:
        """Whom to ask for the place of the subject's latest step."""
        self._known[subject].stepped = site

    def gone(self, subject: str) -> None:
        """The subject is gone, and its optimizer with it: keep the name that it had."""
        known = self._known.get(subject)
        if known is not None:
            known.name = self.name(subject)
            known.stepped = _nowhere

    def name(self, subject: str) -> str:
        """What the program calls the optimizer of a subject; empty if it has no name."""
        known = self._known.get(subject)
        if known is None or len(self._known) > MOST_OPTIMIZERS:
            return ""
        if known.name is not None:
            return known.name
        # Other threads may add theirs meanwhile.
        everyone = tuple(self._known.values())
        others = [one for one in everyone if one is not known and one.name is None]
        for name in self._candidates(known):
            if not any(name == self._first(other) for other in others):
                return name
        return self._first(known)

    def title(self, subject: str) -> str:
        """Its name, its type and its size: `opt_g: Adam, 4 parameters`."""
        known = self._known[subject]
        number = counted(known.parameters, "parameter")
        name = self.name(subject)
        if name:
            return f"{name}: {known.kind}, {number}"
        nth = "" if known.number == 1 else f"{_ordinal(known.number)} "
        return f"{nth}{known.kind}, {number}"

    def called(self, subject: str) -> str:
        """What a finding calls it: its name, or its title if it has none."""
        return self.name(subject) or (self.title(subject) if subject in self._known else "")

    def _first(self, known: _Optimizer) -> str:
        return next(self._candidates(known), "")

    def _candidates(self, known: _Optimizer) -> Iterator[str]:
        """What it may be called, the best name first."""
        optimizer = known.ref()
        for site in (known.made, known.stepped()):
            # The program may have no name for an optimizer of a library, but one for the object that steps it: `wrapped.step()`.
            if site is not None and not (site.via and site is known.made):
                name, of_list = self._of(site, makes=site is known.made)
                if name and of_list:
                    if known.items is None:
                        known.items = tuple(_items(name, optimizer))
                    yield from known.items
                elif name:
                    yield name
        if known.held is None and optimizer is not None:
            known.held = tuple(dict.fromkeys(_held(optimizer)))
        yield from known.held or ()

    def _of(self, site: Site, *, makes: bool) -> _Name:
        """The name that the source has for an optimizer which is made or stepped at a place."""
        key = (site, makes)
        if key not in self._read:
            path = self._source.around(os.path.join(self._home, site.path), site)
            found = _NONE
            if path is not None:
                found = _target(path) if makes else _Name(_receiver(path, site))
            self._read[key] = found if len(found.text) <= LONGEST else _NONE
        return self._read[key]


class _Name(NamedTuple):
    """A name in the source."""

    text: str
    of_list: bool = False
    """It is the name of the list that the optimizer is made for."""


_NONE = _Name("")


def _nowhere() -> Site | None:
    return None


def _ordinal(number: int) -> str:
    teen = 10 < number % 100 < 20
    return f"{number}{'th' if teen else _ORDINALS.get(number % 10, 'th')}"


def _target(path: list[ast.AST]) -> _Name:
    """What the statement of a call assigns its result to: `opt_g` of `opt_g = Adam(…)`."""
    inner, of_list = "", False
    for node, child in zip(path[-2::-1], path[:0:-1], strict=True):
        if isinstance(node, (ast.List, ast.Tuple)):
            inner = f"[{node.elts.index(child)}]{inner}"  # type: ignore[arg-type]
        elif isinstance(node, ast.Dict) and child in node.values:
            key = node.keys[node.values.index(child)]
            if key is None:
                return _NONE
            inner = f"[{ast.unparse(key)}]{inner}"
        elif isinstance(node, ast.Call) and child not in (node.func, *node.args[:1]):
            return _NONE  # it is handed to an object that is more than the optimizer: `Trainer(net, Adam(…))`
        elif isinstance(node, (ast.ListComp, ast.GeneratorExp, ast.DictComp)):
            of_list = True
        elif isinstance(node, ast.Assign):
            return _Name(_unpacked(node.targets[0], inner), of_list)
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)):
            return _Name(ast.unparse(node.target) + inner, of_list)
        elif isinstance(node, (ast.stmt, ast.Lambda)):
            return _NONE
    return _NONE


def _unpacked(target: ast.expr, inner: str) -> str:
    """`opt_d` of `opt_g, opt_d = Adam(…), Adam(…)`, where `inner` is `[1]`."""
    if isinstance(target, (ast.Tuple, ast.List)):
        index = inner[1:-1]
        known = index.isdecimal() and int(index) < len(target.elts)
        return ast.unparse(target.elts[int(index)]) if known else ""
    return ast.unparse(target) + inner


def _receiver(path: list[ast.AST], site: Site) -> str:
    """Whose step a call is: `self.opt` of `self.opt.step()` and of `scaler.step(self.opt)`."""
    nodes = path if site.end_column else [one for at in path[-1:] for one in ast.walk(at)]
    for node in reversed(nodes):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr == "step":
                first = node.args[0] if node.args else None
                named = isinstance(first, (ast.Name, ast.Attribute, ast.Subscript))
                return ast.unparse(first if first is not None and named else node.func.value)
            return ""
    return ""


def _items(name: str, optimizer: Any) -> Iterator[str]:
    """The items of a list or dictionary with a name that an optimizer is: `opts[1]`."""
    for holder in gc.get_referrers(optimizer) if optimizer is not None else ():
        if isinstance(holder, (list, tuple)):
            yield from (f"{name}[{at}]" for at, one in enumerate(holder) if one is optimizer)
        elif isinstance(holder, dict) and "__name__" not in holder:
            yield from (f"{name}[{key!r}]" for key, one in holder.items() if one is optimizer)


def _held(held: Any, deepest: int = DEEPEST) -> Iterator[str]:
    """The names under which the program holds an optimizer: itself, or inside an object of a library."""
    inside: list[tuple[Any, str]] = []
    for owner, key in _owners(held):
        if isinstance(owner, ModuleType):
            yield key
        elif _is_installed(type(owner).__module__):
            inside.append((owner, key))
        else:
            yield f"{type(owner).__name__}.{key}"
    for owner, key in inside if deepest else ():
        if type(owner).__module__.partition(".")[0] in ("torch", "zerograd"):
            continue  # such as a scheduler
        if all(callable(getattr(type(owner), name, None)) for name in ("step", "zero_grad")):
            yield from _held(owner, deepest - 1)  # it wraps the optimizer
        elif not key.startswith("_"):
            yield from (f"{name}.{key}" for name in _held(owner, deepest - 1))


def _owners(held: Any) -> Iterator[tuple[Any, str]]:
    """The modules of the program and the objects that hold something, each with its name for it."""
    for holder in gc.get_referrers(held):
        if not isinstance(holder, dict):
            # Since Python 3.11 the attributes of an object need no dictionary of their own.
            yield from (
                (holder, key) for key, value in _attributes(holder).items() if value is held
            )
            continue
        for key in [key for key, value in holder.items() if value is held]:
            if not isinstance(key, str) or not key.isidentifier():
                continue
            if "__name__" in holder and "__builtins__" in holder:
                if not _is_installed(str(holder["__name__"])):
                    yield _PROGRAM, key
                continue
            for owner in gc.get_referrers(holder):
                if _attributes(owner) is holder and not isinstance(owner, ModuleType):
                    yield owner, key


def _attributes(holder: object) -> dict[str, Any]:
    """The attributes of an object, without calling anything of the program."""
    found: object = None
    with Tolerating(AttributeError, TypeError):
        found = object.__getattribute__(holder, "__dict__")
    return found if isinstance(found, dict) else {}


def _is_installed(module: str) -> bool:
    """Whether a module is of a library."""
    file = getattr(sys.modules.get(module), "__file__", None)
    return module == "builtins" or (isinstance(file, str) and is_installed(file))
