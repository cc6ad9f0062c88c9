"""What torch.distributed says of modules under FSDP2, and of the default process group.

Nothing of torch.distributed is imported that the program has not imported itself.
"""

from __future__ import annotations

import sys
from typing import Any

SHARDING = "torch.distributed.fsdp._fully_shard._fully_shard"
COLLECTIVES = "torch.distributed.distributed_c10d"


def is_fsdp2(module: Any) -> bool:
    """Whether a module is under FSDP2."""
    # Not isinstance: some objects of torch warn when `__class__` is read.
    return is_fsdp2_type(type(module))


def is_fsdp2_type(kind: type) -> bool:
    """Whether modules of this type are under FSDP2."""
    known = sys.modules.get(SHARDING)
    return known is not None and issubclass(kind, known.FSDPModule)


def waiting(module: Any) -> list[Any]:
    """The parameters of an FSDP2 module and its submodules whose gradients are not synchronised yet."""
    found = []
    for one in module.modules():
        if is_fsdp2(one):
            state = one._get_fsdp_state()
            groups = getattr(state, "_fsdp_param_groups", None)
            if groups is None:
                group = getattr(state, "_fsdp_param_group", None)
                groups = [] if group is None else [group]
            for group in groups:
                found += [param.sharded_param for param in group.fsdp_params if _waits(param)]
    return found


def _waits(param: Any) -> bool:
    """Whether FSDP2 keeps an unsharded gradient of a parameter, in the dtype of the reduction or not."""
    whole = getattr(param, "_unsharded_param", None)
    return param.unsharded_accumulated_grad is not None or (
        whole is not None and whole.grad is not None
    )


def world(torch: Any) -> Any:
    """The default process group; None while there is none."""
    group = getattr(torch.distributed, "group", None)
    return None if group is None else group.WORLD


def store() -> Any:
    """The default process group's store."""
    return sys.modules[COLLECTIVES]._get_default_store()
