"""Whether the ranks still do the same: fingerprints of their steps, exchanged through the store.

Every rank overwrites one key with a short ring of its latest fingerprints, and compares with the
ring of the first rank of its group. No collective, and nothing that waits: ranks that have diverged
would wait for each other for ever. What is compared is exact: sums of bit patterns, which come out
the same in whatever order they are added up.

NOTE [Within a hundred steps]
A check is due every EVERY steps, and looks at one of PARTS parts of the parameters, the next one
each time. The first rank may write its fingerprint after the others have looked for it: then it is
compared at the next check. So what differs is found after at most (PARTS + 1) * EVERY = 100 steps.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import json
import sys
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from zerograd.events import Diverged
from zerograd.runtime import distributed
from zerograd.runtime.subjects import Subject, names_of
from zerograd.runtime.sync import Shared

if TYPE_CHECKING:
    from torch import Tensor

EVERY = 25
PARTS = 3
FIRST = frozenset({1, 2, 4, 8, 16})
"""The steps that are looked at besides: what is wrong from the beginning shows at once."""
RING = 4
MOST_PRINTS = 16
"""So many sums a fingerprint has: with more parameters in a part, neighbours are added up."""
MOST_ASKED = 64
"""So many other ranks are asked which of two that differ is the odd one."""
MOST_NAMES = 3
PATIENCE = dt.timedelta(seconds=5)
SETTINGS = ("default", "every-step", "off")

_Ring = list[dict[str, Any]]


class Replicas:
    """Takes the fingerprints of this rank, and compares them."""

    made = 0
    """How many there were in this process: what another watch has left in the store is past."""

    def __init__(self, torch: Any, names: Callable[[Subject], dict[int, str]]) -> None:
        self.setting = "default"
        self.trouble = ""
        """Why the ranks are not compared any more."""
        self.tell: Callable[[str, bool], None] = lambda *_: None
        """Is told what keeps ranks from being compared, and whether that is wrong with the run."""
        self.compared = 0
        """How many fingerprints were found to agree or not."""
        self.scaler: Callable[[], Any] = lambda: None
        self._torch = torch
        Replicas.made += 1
        self._number = Replicas.made
        self._names = names
        self._group: Any = None
        self._store: Any = None
        self._books: dict[str, _Book] = {}
        self._found: dict[str, list[Diverged]] = {}
        self._seen: dict[str, int] = {}

    def step_begins(self, subject: Subject, shared: Shared | None, optimizer: Any) -> None:
        """A rank is about to step what it shares with others."""
        if shared is None or self.trouble or self.setting == "off":
            return
        book = self._books.get(subject.name)
        if book is None or book.shared is not shared:
            book = self._books[subject.name] = self._open(subject, shared, book)
        book.steps += 1
        if shared.strayed or len(book.ranks) < 2 or not self._due(book.steps):
            return
        try:
            self._exchange(subject, book, optimizer)
        except Exception as error:  # the store may go away in many ways
            self._lost(error, book.me, book.steps)

    def found(self, subject: Subject) -> Iterable[Diverged]:
        """What has come out since it was last asked."""
        return self._found.pop(subject.name, ()) if self._found else ()

    def _due(self, step: int) -> bool:
        return self.setting == "every-step" or step % EVERY == 0 or step in FIRST

    def _open(self, subject: Subject, shared: Shared, before: _Book | None) -> _Book:
        """Who shares a subject: the ranks of DDP's group, or those that hold the same shards."""
        made = _Book(shared, _shape(subject.params))
        if before is not None:
            made.steps, made.key = before.steps, before.key
        else:
            # Two models alike: they are told apart by who comes first.
            self._seen[made.key] = self._seen.get(made.key, 0) + 1
            made.key = f"{self._number}/{made.key}/{self._seen[made.key]}"
        dist = self._torch.distributed
        if not dist.is_initialized():
            return made
        made.me = dist.get_rank()
        if shared.wrappers:
            group = shared.wrappers[0].group
            made.ranks = dist.get_process_group_ranks(group)
            made.params = [param for param in shared.params if param.requires_grad]
            made.gradients = made.weights = all(one.averages for one in shared.wrappers)
        else:
            mesh = shared.params[0].device_mesh  # type: ignore[attr-defined]
            made.ranks = sorted(int(rank) for rank in mesh.mesh.flatten().tolist())
            made.params, made.twins = _replicated(shared.params)
            made.weights = made.gradients = bool(made.params)
        return made

    def _exchange(self, subject: Subject, book: _Book, optimizer: Any) -> None:
        """Write this rank's fingerprint, and compare what can be compared."""
        current = distributed.store(self._torch)
        if current is None:
            return
        if current[0] is not self._group:
            self._group, self._store = current[0], _own(current[1])
            for one in self._books.values():
                one.written.clear()
        book.ring.append(self._fingerprint(book, optimizer))
        self._store.set(book.name(book.me), json.dumps([_hello(self._torch), list(book.ring)]))
        leaders = {book.ranks[0], book.twins[0] if book.twins else book.ranks[0]} - {book.me}
        for leader in leaders:
            there = self._read(book, leader)
            if there is not None:
                self._compare(subject, book, leader, there)

    def _read(self, book: _Book, rank: int) -> _Ring | None:
        """What another rank has last written; asking for what is not there would wait for it."""
        key = book.name(rank)
        if rank not in book.written and not self._store.check([key]):
            return None
        book.written.add(rank)
        hello, ring = json.loads(self._store.get(key))
        if rank == book.ranks[0] and not book.greeted:
            book.greeted = True
            for message in _strangers(_hello(self._torch), hello, book.me, rank):
                self.tell(message, True)
        known: _Ring = ring
        return known

    def _fingerprint(self, book: _Book, optimizer: Any) -> dict[str, Any]:
        every = self.setting == "every-step"
        part = 0 if every else _part(book.steps)
        chosen = book.params if every else book.params[part::PARTS]
        grads = [param.grad for param in chosen if param.grad is not None]
        scaler = self.scaler()
        return {
            "step": book.steps,
            "syncs": book.shared.syncs,
            "lr": [float(one["lr"]) for one in optimizer.param_groups if "lr" in one],
            "scale": scaler.get_scale() if scaler is not None else None,
            "parameters": _prints(chosen) if book.weights else [],
            "gradients": _prints(grads) if book.gradients else [],
        }

    def _compare(self, subject: Subject, book: _Book, leader: int, there: _Ring) -> None:
        theirs = {one["step"]: one for one in there}
        for mine in book.ring:
            other = theirs.get(mine["step"])
            if other is None or (leader, mine["step"]) in book.compared:
                continue
            book.compared.append((leader, mine["step"]))
            self.compared += 1
            what = _difference(mine, other, twins=not book.twins or leader == book.twins[0])
            if what:
                found = self._worded(subject, book, what, mine, leader, other)
                self._found.setdefault(subject.name, []).append(found)
                return

    def _worded(
        self,
        subject: Subject,
        book: _Book,
        what: str,
        mine: dict[str, Any],
        leader: int,
        other: dict[str, Any],
    ) -> Diverged:
        here = there = ""
        names: Sequence[str] = ()
        count = 0
        if what == "steps":
            here, there = str(mine["syncs"]), str(other["syncs"])
        elif what in ("learning rate", "scale"):
            key = "lr" if what == "learning rate" else "scale"
            pairs = zip(_listed(mine[key]), _listed(other[key]), strict=False)
            here, there = next((f"{a:g}", f"{b:g}") for a, b in pairs if a != b)
        else:
            every = self.setting == "every-step"
            chosen = book.params if every else book.params[_part(mine["step"]) :: PARTS]
            if what == "gradients":
                chosen = [param for param in chosen if param.grad is not None]
            odd = _behind(chosen, mine[what], other[what])
            names, count = names_of(odd[:MOST_NAMES], self._names(subject)), len(odd)
        odd_ones, than = self._odd(book, what, mine, leader, other)
        if book.me not in odd_ones:
            here, there = there, here
        return Diverged(what, mine["step"], odd_ones, than, tuple(names), count, here, there)

    def _odd(
        self, book: _Book, what: str, mine: dict[str, Any], leader: int, other: dict[str, Any]
    ) -> tuple[tuple[int, ...], int]:
        """Which ranks differ from the most, and one of the most; of two, it is not the first."""
        with_me, with_leader = [book.me], [leader]
        for rank in (book.twins or book.ranks)[:MOST_ASKED]:
            if rank in (book.me, leader):
                continue
            ring = self._read(book, rank) or []
            for one in ring:
                if one["step"] == mine["step"]:
                    if not _difference(one, other, twins=True):
                        with_leader.append(rank)
                    elif not _difference(one, mine, twins=True):
                        with_me.append(rank)
        if len(with_me) > len(with_leader):
            return tuple(sorted(with_leader)), book.me
        return tuple(sorted(with_me)), leader

    def _lost(self, error: Exception, me: int, step: int) -> None:
        self.trouble = (
            f"the process group's store is gone since step {step} ({type(error).__name__}), "
            "so the ranks are not compared any more"
        )
        self.tell(f"rank {me}: {self.trouble}", False)

    def could_not(self) -> dict[str, str]:
        """Why there was nothing to compare, if so."""
        if self.trouble:
            return {"ZG402": self.trouble}
        if self.setting == "off":
            return {"ZG402": "the ranks were not to be compared"}
        many = [book for book in self._books.values() if len(book.ranks) > 1]
        if not many:
            return {"ZG402": "there were no ranks that share parameters"}
        # The first rank is what the others compare with.
        leads = all(book.me == book.ranks[0] for book in many)
        return {} if self.compared or leads else {"ZG402": "no two ranks took the same step"}


class _Book:
    """What one subject's ranks are compared by."""

    def __init__(self, shared: Shared, key: str) -> None:
        self.shared = shared
        self.key = key
        self.steps = 0
        self.me = 0
        self.ranks: list[int] = []
        self.twins: list[int] = []
        """Under FSDP2: the ranks that hold the same shards; none where nobody does."""
        self.params: list[Tensor] = []
        self.weights = self.gradients = False
        """Whether parameters, and gradients, are to be the same."""
        self.ring: deque[dict[str, Any]] = deque(maxlen=RING)
        self.compared: deque[tuple[int, int]] = deque(maxlen=4 * RING)
        self.greeted = False
        self.written: set[int] = set()
        """The ranks whose keys are there: they are overwritten, and never taken away."""

    def name(self, rank: int) -> str:
        """The key that a rank writes to."""
        return f"zerograd/{self.key}/{rank}"


def _own(store: Any) -> Any:
    """A connection of our own, where torch has that: nobody else waits in it, nor we for ever."""
    with contextlib.suppress(Exception):
        store = store.clone()
        store.set_timeout(PATIENCE)
    return store


def _part(step: int) -> int:
    number = step // EVERY if step % EVERY == 0 else step.bit_length()
    return number % PARTS


def _shape(params: Sequence[Tensor]) -> str:
    """The same on all ranks that optimize the same model."""
    shapes = repr([(tuple(param.shape), str(param.dtype)) for param in params])
    return hashlib.sha256(shapes.encode()).hexdigest()[:12]


def _replicated(params: Sequence[Any]) -> tuple[list[Any], list[int]]:
    """Of FSDP2's parameters those that other ranks hold the same of, and which ranks."""
    mesh, placements = params[0].device_mesh, params[0].placements
    dimensions = [number for number, one in enumerate(placements) if one.is_replicate()]
    if len(dimensions) != 1:
        return [], []
    alike = [one for one in params if one.device_mesh == mesh and one.placements == placements]
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        return [], []
    place: list[Any] = list(coordinate)
    place[dimensions[0]] = slice(None)
    return alike, [int(rank) for rank in mesh.mesh[tuple(place)].tolist()]


def _prints(tensors: Sequence[Any]) -> list[int]:
    """At most MOST_PRINTS sums of bit patterns, of neighbours together."""
    import torch

    if not tensors:
        return []
    with torch.no_grad():
        sums = [_bits(torch, one) for one in tensors]
        alike: dict[object, list[int]] = {}
        for number, one in enumerate(sums):
            alike.setdefault((one.device, one.dtype), []).append(number)
        known = [0] * len(sums)
        for numbers in alike.values():
            together = torch.stack([sums[number] for number in numbers]).tolist()
            for number, value in zip(numbers, together, strict=True):
                known[number] = value
    width = _width(len(known))
    return [sum(known[at : at + width]) for at in range(0, len(known), width)]


def _bits(torch: Any, tensor: Any) -> Any:
    """The sum of a tensor's numbers, read as integers: it overflows alike on all ranks."""
    if hasattr(tensor, "to_local"):
        tensor = tensor.to_local()
    if tensor.is_sparse:
        tensor = tensor.coalesce().values()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    size = tensor.element_size()
    if size in (4, 8):
        kind = torch.int32 if size == 4 else torch.int64
        return tensor.reshape(-1).view(kind).sum(dtype=kind)
    kind = torch.int16 if size == 2 else torch.uint8
    return tensor.reshape(-1).view(kind).sum(dtype=torch.int64)


def _width(number: int) -> int:
    return -(-number // MOST_PRINTS)


def _behind(chosen: Sequence[Any], mine: list[int], other: list[int]) -> list[Any]:
    """The parameters among which a difference is."""
    width = max(_width(len(chosen)), 1)
    found: list[Any] = []
    for number, (here, there) in enumerate(zip(mine, other, strict=False)):
        if here != there:
            found += chosen[number * width : (number + 1) * width]
    return found


def _difference(mine: dict[str, Any], other: dict[str, Any], *, twins: bool) -> str:
    """In what two fingerprints of one step differ; what follows from something else comes last."""
    if mine["syncs"] != other["syncs"]:
        return "steps"
    if mine["lr"] != other["lr"]:
        return "learning rate"
    if mine["scale"] != other["scale"]:
        return "scale"
    for what in ("parameters", "gradients"):
        # A gradient that only one of them has: another way through the model, not another result.
        if twins and len(mine[what]) == len(other[what]) and mine[what] != other[what]:
            return what
    return ""


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list) else [value or 0.0]


def _hello(torch: Any) -> dict[str, str]:
    return {"torch": str(torch.__version__), "program": _program()}


def _program() -> str:
    """The name of what is run, and a print of what stands there."""
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    if not path:
        return ""
    if path not in _PROGRAMS:
        try:
            with open(path, "rb") as stream:
                print_ = hashlib.sha256(stream.read()).hexdigest()[:8]
        except OSError:
            print_ = ""
        _PROGRAMS[path] = f"{path.rsplit('/', 1)[-1]} ({print_})"
    return _PROGRAMS[path]


_PROGRAMS: dict[str, str] = {}


def _strangers(mine: dict[str, str], other: dict[str, str], me: int, leader: int) -> list[str]:
    found = []
    if mine["torch"] != other["torch"]:
        found.append(
            f"rank {me} runs torch {mine['torch']}, rank {leader} torch {other['torch']}: install "
            "the same on all ranks"
        )
    if mine["program"] != other["program"]:
        found.append(
            f"rank {me} runs {mine['program']}, rank {leader} {other['program']}: start the same "
            "script on all ranks"
        )
    return found
