"""Whether the ranks still do the same: fingerprints of their steps, exchanged through the store.

Every rank overwrites one key with a short ring of its latest fingerprints, and compares with the
ring of the first rank of its group. No collective, and nothing that waits: ranks that have diverged
would wait for each other for ever.

NOTE [Within a hundred steps]
A check takes PARTS steps in a row, and there is one in EVERY steps. Before each of them a rank takes
a fingerprint of the next part of the parameters, and after the last one it writes them. What the
first rank has written is read before the step after that: a rank whose gradients are shared comes
there only when the first rank has gone on, too. So what differs is found after at most EVERY + PARTS
= 100 steps. Where ranks are further apart, the first rank's is not there yet: it is asked for again
after 2, 4, 8 … steps.
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

from zerograd.core.events import Diverged
from zerograd.runtime.parameter_names import MOST_NAMES
from zerograd.runtime.ranks import collectives, fingerprints
from zerograd.runtime.ranks.fingerprints import Fingerprint, difference
from zerograd.runtime.ranks.sync import Shared
from zerograd.runtime.subjects import Subject

if TYPE_CHECKING:
    from torch import Tensor

EVERY = 98
PARTS = 2
FIRST = 32
"""Until then a part at each power of two: what is wrong from the beginning shows soon."""
RING = 4
MOST_ASKED = 64
"""So many other ranks are asked which of two that differ is the odd one."""
PATIENCE = dt.timedelta(seconds=5)
SETTINGS = ("default", "every-step", "off")


class Replicas:
    """Takes the fingerprints of this rank, and compares them."""

    made = 0
    """How many there were in this process: what another watch has left in the store is past."""

    def __init__(
        self,
        torch: Any,
        *,
        scaler: Callable[[], Any],
        problem: Callable[[str, bool], None],
    ) -> None:
        """Reports by `problem` what keeps ranks from being compared, and if the run is wrong in that."""
        self._setting = "default"
        self._lost_because = ""
        """Why the ranks are not compared any more."""
        self._compared = 0
        """How many fingerprints were found to agree or not."""
        self._scaler = scaler
        self._problem = problem
        self._torch = torch
        Replicas.made += 1
        self._number = Replicas.made
        self._hello = ""
        self._group: Any = None
        self._store: Any = None
        self._books: dict[str, _Book] = {}
        self._found: dict[str, list[Diverged]] = {}
        self._seen: dict[str, int] = {}

    def compare(self, setting: str) -> None:
        """From now on compare as often as one of SETTINGS says."""
        self._setting = setting

    def step_begins(self, subject: Subject, shared: Shared | None, optimizer: Any) -> None:
        """A rank is about to step what it shares with others."""
        if shared is None or self._lost_because or self._setting == "off":
            return
        book = self._books.get(subject.name)
        if book is None or book.shared is not shared:
            book = self._books[subject.name] = self._open(subject, shared, book)
        book.steps += 1
        if book.steps < book.next and self._setting == "default":
            return
        book.ask = sys.maxsize
        try:
            if not shared.strayed and len(book.ranks) > 1 and self._connected():
                self._exchange(subject, book, optimizer)
        except Exception as error:  # the store may go away in many ways
            self._lost(error, book.me, book.steps)
        book.next = min(book.ask, taken_after(book.steps))

    def found(self, subject: Subject) -> Iterable[Diverged]:
        """What has come out since it was last asked."""
        return self._found.pop(subject.name, ()) if self._found else ()

    def _open(self, subject: Subject, shared: Shared, before: _Book | None) -> _Book:
        """Who shares a subject: the ranks of DDP's group, or those that hold the same shards."""
        made = _Book(shared, _shape(subject.params))
        if before is not None:
            made.steps, made.key = before.steps, before.key
        else:
            # Two models alike: they are told apart by who comes first.
            self._seen[made.key] = self._seen.get(made.key, 0) + 1
            made.key = f"{self._number}/{made.key}/{self._seen[made.key]}"
        made.next = taken_after(made.steps)
        dist = self._torch.distributed
        if not dist.is_initialized():
            return made
        made.me = dist.get_rank()
        if shared.wrappers:
            made.ranks = dist.get_process_group_ranks(shared.wrappers[0].group)
            if all(one.averages for one in shared.wrappers):
                made.params = [param for param in shared.params if param.requires_grad]
        else:
            mesh = shared.params[0].device_mesh  # type: ignore[attr-defined]
            made.ranks = sorted(int(rank) for rank in mesh.mesh.flatten().tolist())
            made.params, made.twins = _replicated(shared.params)
        return made

    def _connected(self) -> bool:
        """Whether there is a store, the one that there was or another."""
        group = collectives.world(self._torch)
        if group is not self._group:
            self._group, self._store = group, None if group is None else _own(collectives.store())
            for book in self._books.values():
                book.written.clear()
        return group is not None

    def _exchange(self, subject: Subject, book: _Book, optimizer: Any) -> None:
        """Take this rank's fingerprint, write it, and before the next step, or now, compare it."""
        always, step = self._setting == "every-step", book.steps
        takes = always or step == taken_after(step - 1)
        if takes:
            book.ring.append((step, self._fingerprint(book, optimizer)))
        if always or is_written(step):
            lines = [self._greeting(), *(line for _, line in book.ring)]
            self._store.set(book.name(book.me), "\n".join(lines))
            book.wait, book.ask = 1, step + 1
        if always or not takes:
            leaders = {book.ranks[0], book.twins[0] if book.twins else book.ranks[0]} - {book.me}
            known = [self._compare(subject, book, leader) for leader in leaders]
            if not all(known):
                book.ask, book.wait = step + book.wait, 2 * book.wait

    def _greeting(self) -> str:
        """Who this is: the ranks of one run ought to be alike."""
        if not self._hello:
            torch = str(self._torch.__version__)
            self._hello = json.dumps({"torch": torch, "program": _program()})
        return self._hello

    def _read(self, book: _Book, rank: int) -> list[str]:
        """What another rank has last written; asking for what is not there would wait for it."""
        key = book.name(rank)
        if rank not in book.written and not self._store.check([key]):
            return []
        book.written.add(rank)
        written: bytes = self._store.get(key)
        hello, *lines = written.decode("utf-8").split("\n")
        if rank == book.ranks[0] and not book.greeted:
            book.greeted = True
            mine, other = json.loads(self._greeting()), json.loads(hello)
            for message in _strangers(mine, other, book.me, rank):
                self._problem(message, True)
        return lines

    def _fingerprint(self, book: _Book, optimizer: Any) -> str:
        chosen = self._chosen(book, book.steps)
        grads = [param.grad for param in chosen if param.grad is not None]
        return fingerprints.taken(
            book.steps, book.shared.syncs, optimizer.param_groups, self._scaler(), chosen, grads
        ).line()

    def _chosen(self, book: _Book, step: int) -> Sequence[Tensor]:
        """The parameters whose turn it is."""
        if self._setting == "every-step":
            return book.params
        part, number = part_of(step), len(book.params)
        return book.params[part * number // PARTS : (part + 1) * number // PARTS]

    def _compare(self, subject: Subject, book: _Book, leader: int) -> bool:
        """Compare with what another rank has written; whether that goes as far as what this one has."""
        lines = self._read(book, leader)
        for step, line in book.ring:
            there = line if line in lines else fingerprints.of_step(step, lines)
            if there is None or (leader, step) in book.compared:
                continue
            book.compared.append((leader, step))
            self._compared += 1
            if there is line:
                continue
            mine, other = fingerprints.read(line), fingerprints.read(there)
            what = difference(mine, other, twins=not book.twins or leader == book.twins[0])
            if what:
                found = self._worded(subject, book, what, mine, leader, other)
                self._found.setdefault(subject.name, []).append(found)
        return (leader, book.ring[-1][0]) in book.compared

    def _worded(
        self,
        subject: Subject,
        book: _Book,
        what: str,
        mine: Fingerprint,
        leader: int,
        other: Fingerprint,
    ) -> Diverged:
        chosen = self._chosen(book, mine.step)
        odd: list[Any] = []
        if what == "parameters":
            odd = fingerprints.behind(chosen, mine.parameters, other.parameters)
        elif what == "gradients":
            held = [param for param in chosen if param.grad is not None]
            odd = fingerprints.behind(held, mine.gradients, other.gradients)
        names = subject.names(odd[:MOST_NAMES])
        here, there = fingerprints.values(what, mine, other)
        if what not in book.odd:
            book.odd[what] = self._odd(book, mine, leader, other)
        odd_ones, than = book.odd[what]
        if book.me not in odd_ones:
            here, there = there, here
        return Diverged(what, mine.step, odd_ones, than, tuple(names), len(odd), here, there)

    def _odd(
        self, book: _Book, mine: Fingerprint, leader: int, other: Fingerprint
    ) -> tuple[tuple[int, ...], int]:
        """Which ranks differ from the most, and one of the most; of two, it is not the first."""
        with_me, with_leader = [book.me], [leader]
        for rank in (book.twins or book.ranks)[:MOST_ASKED]:
            if rank in (book.me, leader):
                continue
            line = fingerprints.of_step(mine.step, self._read(book, rank))
            if line is None:
                continue
            one = fingerprints.read(line)
            if not difference(one, other, twins=True):
                with_leader.append(rank)
            elif not difference(one, mine, twins=True):
                with_me.append(rank)
        if len(with_me) > len(with_leader):
            return tuple(sorted(with_leader)), book.me
        return tuple(sorted(with_me)), leader

    def _lost(self, error: Exception, me: int, step: int) -> None:
        gone = isinstance(error, (RuntimeError, OSError))
        why = "the process group's store is gone" if gone else "zerograd has failed to compare"
        self._lost_because = f"{why} since step {step} ({type(error).__name__}), so the ranks are not compared any more"
        self._problem(f"rank {me}: {self._lost_because}", False)

    def could_not(self) -> str:
        """Why there was nothing to compare; "" if there was something."""
        if self._lost_because:
            return self._lost_because
        if self._setting == "off":
            return "the ranks were not to be compared"
        many = [book for book in self._books.values() if len(book.ranks) > 1]
        if not many:
            return "there were no ranks that share parameters"
        # The first rank is what the others compare with.
        leads = all(book.me == book.ranks[0] for book in many)
        return "" if self._compared or leads else "no two ranks took the same step"


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
        """Those that are to be the same, with their gradients."""
        self.next = 0
        """The step before which something is to be done: written, or asked for."""
        self.ask = sys.maxsize
        """The step before which the first rank's fingerprint is asked for."""
        self.wait = 1
        """How many steps later again, if it is not there."""
        self.ring: deque[tuple[int, str]] = deque(maxlen=RING)
        """The latest fingerprints, by step."""
        self.compared: deque[tuple[int, int]] = deque(maxlen=4 * RING)
        self.greeted = False
        self.odd: dict[str, tuple[tuple[int, ...], int]] = {}
        """By what they differ in: who is odd, and somebody who is not."""
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


def taken_after(step: int) -> int:
    """The next step that a fingerprint is taken of."""
    if step < FIRST:
        return 1 << step.bit_length()
    after = step + 1
    return after if after > EVERY and after % EVERY < PARTS else (step // EVERY + 1) * EVERY


def part_of(step: int) -> int:
    """Which part of the parameters that is of."""
    return step % EVERY if step >= EVERY else step.bit_length() % PARTS


def is_written(step: int) -> bool:
    """Whether it is written then, with what was taken just before."""
    if step <= FIRST:
        return step == taken_after(step - 1)
    return step > EVERY and step % EVERY == PARTS - 1


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
