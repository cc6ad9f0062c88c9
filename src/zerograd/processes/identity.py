"""Which rank of a run this process is."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Identity:
    """A process among the ranks of a run."""

    rank: int | None = None
    world: int = 1
    restart: int = 0

    @property
    def one_of_many(self) -> bool:
        """Whether there are other ranks."""
        return self.rank is not None and self.world > 1

    @property
    def several(self) -> tuple[int, ...]:
        """The rank, if there are others."""
        return (self.rank,) if self.rank is not None and self.world > 1 else ()


def identify() -> Identity:
    """The rank of this process: from its process group, or from the environment of a launcher."""
    known = rank_and_world()
    if known is not None:
        return Identity(*known, restart=number_in_environment("TORCHELASTIC_RESTART_COUNT") or 0)
    if _is_worker():
        return Identity()  # the environment is that of its parent
    rank, world = number_in_environment("RANK"), number_in_environment("WORLD_SIZE")
    if rank is None or world is None or rank >= world:
        return Identity()
    return Identity(rank, world, number_in_environment("TORCHELASTIC_RESTART_COUNT") or 0)


def rank_and_world() -> tuple[int, int] | None:
    """Rank and world size of the default process group; None without one."""
    dist = getattr(sys.modules.get("torch"), "distributed", None)
    if dist is None or not dist.is_available() or not dist.is_initialized():
        return None
    return dist.get_rank(), dist.get_world_size()


def _is_worker() -> bool:
    """Whether multiprocessing has started this process."""
    processes: Any = sys.modules.get("multiprocessing.process")
    return processes is not None and processes.parent_process() is not None


def number_in_environment(name: str) -> int | None:
    """The number in an environment variable; None if there is none."""
    value = os.environ.get(name, "")
    return int(value) if value.isdecimal() else None
