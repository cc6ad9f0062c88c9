"""Compares the ranks of a run: each writes fingerprints of its steps to the process group's store.

Every rank overwrites one key with its latest fingerprints, and compares them with those of the first
rank of its group. It uses no collective and never waits: ranks that have diverged would wait for each
other for ever.

NOTE [Within a hundred steps]
A check takes PARTS steps in a row, and there is one check in EVERY steps. Before each of these steps a
rank takes a fingerprint of the next part of the parameters, and after the last one it writes them. It
reads the first rank's before the step after that: a rank whose gradients are shared gets there only
when the first rank has gone on, too. So a difference is found after at most EVERY + PARTS = 100 steps.
If the first rank has not written its fingerprints yet, they are read again after 2, 4, 8 … steps.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from zerograd.core.events import Diverged
from zerograd.core.interruptions import Tolerating, interrupts
from zerograd.runtime.parameter_names import MOST_NAMES
from zerograd.runtime.ranks import fingerprints, groups
from zerograd.runtime.ranks.fingerprints import Fingerprint, difference
from zerograd.runtime.ranks.sync import Shared
from zerograd.runtime.subjects import Subject

if TYPE_CHECKING:
    from torch import Tensor

EVERY = 98
PARTS = 2
NO_REPLICAS = "there were no ranks that share parameters"
FIRST = 32
"""Up to this step there is a fingerprint at each power of two: early differences are found early."""
RING = 4
MOST_ASKED = 64
"""How many other ranks are read to find out which of two ranks that differ is the odd one."""
PATIENCE = dt.timedelta(seconds=5)
SETTINGS = ("default", "every-step", "off")


class Replicas:
    """Takes the fingerprints of this rank, and compares them with those of others."""

    made = 0
    """How many there were in this process: each has its own keys in the store."""

    _lost_because = ""
    """Why the ranks are not compared any more."""
    _compared = 0
    """How many fingerprints were compared."""
    _shares = _follows = False
    """Whether ranks share anything at all, and whether another rank is the first of them."""
    _known_versions = ""
    _group: Any = None
    _store: Any = None
    _comparisons: weakref.WeakKeyDictionary[Subject, _Comparison] | None = None

    def __init__(
        self,
        torch: Any,
        *,
        scaler: Callable[[], Any],
        problem: Callable[[str, bool], None],
    ) -> None:
        """`problem` is called with why ranks cannot be compared, and whether that is an error of the run."""
        self._setting = "default"
        self._scaler = scaler
        self._problem = problem
        self._torch = torch
        Replicas.made += 1
        self._number = Replicas.made
        self._found: dict[str, list[Diverged]] = {}
        self._seen: dict[str, int] = {}

    def compare(self, setting: str) -> None:
        """Compare as often as the setting says, one of SETTINGS."""
        self._setting = setting

    def step_begins(self, subject: Subject, shared: Shared | None, optimizer: Any) -> None:
        """This rank is about to step parameters that it shares with others."""
        if shared is None or self._lost_because or self._setting == "off":
            return
        if self._comparisons is None:
            self._comparisons = weakref.WeakKeyDictionary()
        comparison = self._comparisons.get(subject)
        if comparison is None or comparison.shared is not shared:
            comparison = self._comparisons[subject] = self._open(subject, shared, comparison)
        comparison.steps += 1
        if comparison.steps < comparison.next and self._setting == "default":
            return
        comparison.ask = sys.maxsize
        try:
            if not shared.strayed and len(comparison.ranks) > 1 and self._connected():
                self._exchange(subject, comparison, optimizer)
        except Exception as error:  # a store can fail in many ways
            if interrupts(error):
                raise
            self._lost(error, comparison.me, comparison.steps)
        comparison.next = min(comparison.ask, taken_after(comparison.steps))

    def found(self, subject: Subject) -> Iterable[Diverged]:
        """The differences found since the last call."""
        return self._found.pop(subject.name, ()) if self._found else ()

    def _open(self, subject: Subject, shared: Shared, before: _Comparison | None) -> _Comparison:
        """Find the ranks that share a subject: DDP's group, or the ranks that hold the same shards."""
        made = _Comparison(shared, _shape(subject.params))
        if before is not None:
            made.steps, made.key = before.steps, before.key
        else:
            # Models of the same shapes get numbers, in the order in which they step.
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
        if len(made.ranks) > 1:
            self._shares = True
            self._follows |= made.me != made.ranks[0]
        return made

    def _connected(self) -> bool:
        """Whether there is a process group with a store."""
        group = groups.world(self._torch)
        if group is not self._group:
            self._group, self._store = group, None if group is None else _own(groups.store())
            for comparison in tuple((self._comparisons or {}).values()):
                comparison.written.clear()
        return group is not None

    def _exchange(self, subject: Subject, comparison: _Comparison, optimizer: Any) -> None:
        """Take the fingerprint of this rank, write it, or compare it, as the step number says."""
        always, step = self._setting == "every-step", comparison.steps
        takes = always or step == taken_after(step - 1)
        if takes:
            comparison.ring.append((step, self._fingerprint(comparison, optimizer)))
        if always or is_written(step):
            lines = [self._versions(), *(line for _, line in comparison.ring)]
            self._store.set(comparison.name(comparison.me), "\n".join(lines))
            comparison.wait, comparison.ask = 1, step + 1
        if always or not takes:
            leaders = {
                comparison.ranks[0],
                comparison.twins[0] if comparison.twins else comparison.ranks[0],
            } - {comparison.me}
            known = [self._compare(subject, comparison, leader) for leader in leaders]
            if not all(known):
                comparison.ask, comparison.wait = step + comparison.wait, 2 * comparison.wait

    def _versions(self) -> str:
        """The versions of torch and of the program, which should be the same on all ranks."""
        if not self._known_versions:
            torch = str(self._torch.__version__)
            self._known_versions = json.dumps({"torch": torch, "program": _program()})
        return self._known_versions

    def _read(self, comparison: _Comparison, rank: int) -> list[str]:
        """The latest fingerprints of another rank. To get a key that is not there yet would block."""
        key = comparison.name(rank)
        if rank not in comparison.written and not self._store.check([key]):
            return []
        comparison.written.add(rank)
        written: bytes = self._store.get(key)
        versions, *lines = written.decode("utf-8").split("\n")
        if rank == comparison.ranks[0] and not comparison.versions_compared:
            comparison.versions_compared = True
            mine, other = json.loads(self._versions()), json.loads(versions)
            for message in _mismatches(mine, other, comparison.me, rank):
                self._problem(message, True)
        return lines

    def _fingerprint(self, comparison: _Comparison, optimizer: Any) -> str:
        chosen = self._chosen(comparison, comparison.steps)
        grads = [param.grad for param in chosen if param.grad is not None]
        return fingerprints.taken(
            comparison.steps,
            comparison.shared.syncs,
            optimizer.param_groups,
            self._scaler(),
            chosen,
            grads,
        ).line()

    def _chosen(self, comparison: _Comparison, step: int) -> Sequence[Tensor]:
        """The parameters that the fingerprint of a step is taken of."""
        if self._setting == "every-step":
            return comparison.params
        part, number = part_of(step), len(comparison.params)
        return comparison.params[part * number // PARTS : (part + 1) * number // PARTS]

    def _compare(self, subject: Subject, comparison: _Comparison, leader: int) -> bool:
        """Compare with another rank; False if that has not written its latest fingerprint yet."""
        lines = self._read(comparison, leader)
        for step, line in comparison.ring:
            there = line if line in lines else fingerprints.of_step(step, lines)
            if there is None or (leader, step) in comparison.compared:
                continue
            comparison.compared.append((leader, step))
            self._compared += 1
            if there is line:
                continue
            mine, other = fingerprints.read(line), fingerprints.read(there)
            what = difference(
                mine, other, twins=not comparison.twins or leader == comparison.twins[0]
            )
            if what:
                found = self._described(subject, comparison, what, mine, leader, other)
                self._found.setdefault(subject.name, []).append(found)
        return (leader, comparison.ring[-1][0]) in comparison.compared

    def _described(
        self,
        subject: Subject,
        comparison: _Comparison,
        what: str,
        mine: Fingerprint,
        leader: int,
        other: Fingerprint,
    ) -> Diverged:
        chosen = self._chosen(comparison, mine.step)
        odd: list[Any] = []
        if what == "parameters":
            odd = fingerprints.behind(chosen, mine.parameters, other.parameters)
        elif what == "gradients":
            held = [param for param in chosen if param.grad is not None]
            odd = fingerprints.behind(held, mine.gradients, other.gradients)
        names = subject.names(odd[:MOST_NAMES])
        here, there = fingerprints.values(what, mine, other)
        if what not in comparison.odd:
            comparison.odd[what] = self._odd(comparison, mine, leader, other)
        odd_ones, than = comparison.odd[what]
        if comparison.me not in odd_ones:
            here, there = there, here
        return Diverged(what, mine.step, odd_ones, than, tuple(names), len(odd), here, there)

    def _odd(
        self, comparison: _Comparison, mine: Fingerprint, leader: int, other: Fingerprint
    ) -> tuple[tuple[int, ...], int]:
        """The ranks in the minority, and one of the majority; of two ranks, the first is right."""
        with_me, with_leader = [comparison.me], [leader]
        for rank in (comparison.twins or comparison.ranks)[:MOST_ASKED]:
            if rank in (comparison.me, leader):
                continue
            line = fingerprints.of_step(mine.step, self._read(comparison, rank))
            if line is None:
                continue
            one = fingerprints.read(line)
            if not difference(one, other, twins=True):
                with_leader.append(rank)
            elif not difference(one, mine, twins=True):
                with_me.append(rank)
        if len(with_me) > len(with_leader):
            return tuple(sorted(with_leader)), comparison.me
        return tuple(sorted(with_me)), leader

    def _lost(self, error: Exception, me: int, step: int) -> None:
        gone = isinstance(error, (RuntimeError, OSError))
        why = "the process group's store is gone" if gone else "zerograd has failed to compare"
        self._lost_because = f"{why} since step {step} ({type(error).__name__}), so the ranks are not compared any more"
        self._problem(f"rank {me}: {self._lost_because}", False)

    def could_not(self) -> str:
        """Why no ranks were compared; "" if some were."""
        if self._lost_because:
            return self._lost_because
        if self._setting == "off":
            return "comparing the ranks is switched off"
        if not self._shares:
            return NO_REPLICAS
        # The first rank does not compare: the others compare with it.
        return "" if self._compared or not self._follows else "no two ranks took the same step"


class _Comparison:
    """The comparison of the ranks that share one subject."""

    def __init__(self, shared: Shared, key: str) -> None:
        self.shared = shared
        self.key = key
        self.steps = 0
        self.me = 0
        self.ranks: list[int] = []
        self.twins: list[int] = []
        """Under FSDP2: the ranks that hold the same shards, this one included; empty if there are none."""
        self.params: list[Tensor] = []
        """The parameters that should be the same on these ranks, and their gradients."""
        self.next = 0
        """The next step before which there is something to do."""
        self.ask = sys.maxsize
        """The step before which the first rank's fingerprint is read."""
        self.wait = 1
        """After how many steps it is read again, if it is not there."""
        self.ring: deque[tuple[int, str]] = deque(maxlen=RING)
        """The latest fingerprints, by step."""
        self.compared: deque[tuple[int, int]] = deque(maxlen=4 * RING)
        self.versions_compared = False
        self.odd: dict[str, tuple[tuple[int, ...], int]] = {}
        """By kind of difference: the ranks in the minority, and one of the majority."""
        self.written: set[int] = set()
        """The ranks that have written their key: it stays in the store."""

    def name(self, rank: int) -> str:
        """The key that a rank writes to."""
        return f"zerograd/{self.key}/{rank}"


def _own(store: Any) -> Any:
    """Our own connection to the store, with a timeout, if torch can clone one."""
    with Tolerating(Exception):
        store = store.clone()
        store.set_timeout(PATIENCE)
    return store


def taken_after(step: int) -> int:
    """The next step with a fingerprint."""
    if step < FIRST:
        return 1 << step.bit_length()
    after = step + 1
    return after if after > EVERY and after % EVERY < PARTS else (step // EVERY + 1) * EVERY


def part_of(step: int) -> int:
    """The part of the parameters that the fingerprint of a step is taken of."""
    return step % EVERY if step >= EVERY else step.bit_length() % PARTS


def is_written(step: int) -> bool:
    """Whether the fingerprints taken so far are written at this step."""
    if step <= FIRST:
        return step == taken_after(step - 1)
    return step > EVERY and step % EVERY == PARTS - 1


def _shape(params: Sequence[Tensor]) -> str:
    """A digest of the shapes: the same on all ranks with the same model."""
    shapes = repr([(tuple(param.shape), str(param.dtype)) for param in params])
    return hashlib.sha256(shapes.encode()).hexdigest()[:12]


def _replicated(params: Sequence[Any]) -> tuple[list[Any], list[int]]:
    """The FSDP2 parameters that other ranks hold the same shards of, and those ranks."""
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
    """The name of the program, and a digest of its text."""
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    if not path:
        return ""
    if path not in _PROGRAMS:
        print_ = ""
        with Tolerating(OSError), open(path, "rb") as stream:
            print_ = hashlib.sha256(stream.read()).hexdigest()[:8]
        _PROGRAMS[path] = f"{path.rsplit('/', 1)[-1]} ({print_})"
    return _PROGRAMS[path]


_PROGRAMS: dict[str, str] = {}


def _mismatches(mine: dict[str, str], other: dict[str, str], me: int, leader: int) -> list[str]:
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
