"""FSDP2 without a GPU, where the installed torch has that."""

from __future__ import annotations

from typing import Any

import torch

from support.ranks import NotInThisTorch

# The FSDP2 of torch 2.6 records events on streams of the processor, which it does not have.
if hasattr(torch.cpu.Stream, "record_event"):
    from torch.distributed.fsdp import fully_shard
else:

    def fully_shard(*args: Any, **kwargs: Any) -> Any:  # type: ignore[no-redef]
        """Refuse: the FSDP2 of older versions makes CUDA streams."""
        raise NotInThisTorch("before torch 2.7, FSDP2 needs a GPU")


__all__ = ["fully_shard"]
