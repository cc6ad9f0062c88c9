"""What the program calls its parameters: by its modules, its variables, or by their shape."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from zerograd.runtime.live_objects import instances

if TYPE_CHECKING:
    from torch import Tensor

MOST_NAMES = 3
"""How many parameters are named where there are several."""


def names_of(params: Iterable[Tensor], in_modules: dict[int, str]) -> list[str]:
    """The names of parameters: their module's, the script's variables, or their shape."""
    script = vars(sys.modules["__main__"]).items()
    return [
        in_modules.get(id(param))
        or next((name for name, value in script if value is param), "")
        or f"a parameter of shape {tuple(param.shape)}"
        for param in params
    ]


def names_in_modules(params: Sequence[Tensor]) -> dict[int, str]:
    """What the program's modules call these parameters, by identity: the outermost module's name."""
    import torch

    wanted = {id(param) for param in params}
    found: dict[int, str] = {}
    flat: dict[int, str] = {}
    """Names in code that a compiler has traced; any other name is preferred."""
    traced = getattr(sys.modules.get("torch.fx"), "GraphModule", ())
    for module in instances(lambda kind: issubclass(kind, torch.nn.Module)):
        if "_parameters" in module.__dict__:
            names = flat if isinstance(module, traced) else found
            for name, param in module.named_parameters():
                if id(param) in wanted and len(name) > len(names.get(id(param), "")):
                    names[id(param)] = name
    return {**flat, **found}
