"""FSDP2 without a GPU, where the installed torch has that."""

from __future__ import annotations

from typing import Any

from support.ranks import NotInThisTorch

try:
    from torch.distributed.fsdp import fully_shard
except ImportError:

    def fully_shard(*args: Any, **kwargs: Any) -> Any:  # type: ignore[no-redef]
        """Refuse: the FSDP2 of older versions makes CUDA streams."""
        raise NotInThisTorch("before torch 2.6, FSDP2 needs a GPU")


__all__ = ["fully_shard"]
